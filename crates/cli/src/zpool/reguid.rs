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
    let guid = match parsed.value('g').map(str::parse) {
        None => None,
        Some(Ok(guid)) if guid > 0 => Some(guid),
        Some(_) => {
            let text = parsed.value('g').unwrap_or_default();
            return Err(Failure::Usage(format!("invalid GUID '{}': must be a number above 0", tame(text))));
        }
    };
    let request = PoolReguid { name: name.clone(), guid };
    let outcome = session.ask(request).doing(|| format!("cannot change the GUID of '{}'", tame(&name)))?;
    session.warn(&format!("'{name}' has a new GUID, but"), &outcome.warnings);
    Ok(())
}
