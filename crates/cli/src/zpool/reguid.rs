//! `zpool reguid`.

use crate::command::Command;
use crate::options::{Parsed, Syntax, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::PoolReguid;

pub(super) const COMMAND: Command = Command {
    names: &["reguid"],
    syntax: Syntax {
        flags: &[valued('g', "guid", "the new GUID; without this option a random one")],
        operands: "pool",
        least: 1,
        most: 1,
    },
    doc: "Gives a pool a new GUID, so that a copy of its devices counts as a different pool.",
    run: reguid,
};

fn reguid(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let guid = match parsed.value('g').map(|text| (text, guid_of(text))) {
        None => None,
        Some((_, Some(guid))) => Some(guid),
        Some((text, None)) => {
            return Err(Failure::Usage(format!("invalid GUID '{}': must be a number above 0", tame(text))));
        }
    };
    let request = PoolReguid { name: name.clone(), guid };
    let outcome = session.ask(request).doing(|| format!("cannot change the GUID of '{}'", tame(&name)))?;
    session.warn(&format!("'{name}' has a new GUID, but"), &outcome.warnings);
    Ok(())
}

/// A GUID as typed. A negative number counts down from 2^64, as in ZFS.
fn guid_of(text: &str) -> Option<u64> {
    let guid = match text.strip_prefix('-') {
        Some(digits) if !digits.starts_with('+') => digits.parse::<u64>().ok()?.wrapping_neg(),
        Some(_) => return None,
        None => text.parse().ok()?,
    };
    (guid > 0).then_some(guid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_is_a_decimal_number_above_zero() {
        let read = ["18446744073709551615", "314", "0123", "-1"].map(guid_of);
        assert_eq!(read, [Some(u64::MAX), Some(314), Some(123), Some(u64::MAX)]);
        for text in ["18446744073709551616", "0xA", "0", "-0", "", "-", "--1", "-+1", "none"] {
            assert_eq!(guid_of(text), None, "{text:?}");
        }
    }
}
