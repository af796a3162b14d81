//! `zpool clear`.

use super::operands::{POWER, check_refused, device_path};
use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{PoolClear, PoolStatus};

pub(super) const COMMAND: Command = Command {
    names: &["clear"],
    syntax: Syntax {
        flags: &[
            POWER,
            flag('F', "accepted, no effect: an imported pool needs no older root"),
            flag('n', "with -F: check only whether the pool can be opened"),
            flag('X', "with -F: accepted, no effect"),
        ],
        operands: "pool [device]...",
        least: 1,
        most: MANY,
    },
    doc: "Clears the error counters and the list of damaged files, and brings faulted devices online. Errors that remain are counted again.",
    run: clear,
};

fn clear(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    check_refused(parsed)?;
    let name = parsed.operands[0].clone();
    if (parsed.has('n') || parsed.has('X')) && !parsed.has('F') {
        return Err(Failure::Usage("-n and -X only work with -F".to_owned()));
    }
    if parsed.has('n') {
        let request = PoolStatus { names: vec![name.clone()] };
        session.ask(request).doing(|| format!("cannot clear errors for '{}'", tame(&name)))?;
        return Ok(());
    }
    let devices = parsed.operands[1..].iter().map(|word| device_path(session, word)).collect();
    let request = PoolClear { name: name.clone(), devices };
    let outcome = session.ask(request).doing(|| format!("cannot clear errors for '{}'", tame(&name)))?;
    session.warn(&format!("errors of '{name}' are cleared, but"), &outcome.warnings);
    Ok(())
}
