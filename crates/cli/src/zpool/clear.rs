//! `zpool clear`.

use super::operands::device_path;
use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::PoolClear;

pub(super) const COMMAND: Command = Command {
    names: &["clear"],
    syntax: Syntax { flags: &[], operands: "pool [device]...", least: 1, most: MANY },
    doc: "Clears the error counters and the list of damaged files, and brings faulted devices online. Errors that remain are counted again.",
    run: clear,
};

fn clear(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let devices = parsed.operands[1..].iter().map(|word| device_path(session, word)).collect();
    let request = PoolClear { name: name.clone(), devices };
    let outcome = session.ask(request).doing(|| format!("cannot clear errors for '{}'", tame(&name)))?;
    session.warn(&format!("errors of '{name}' are cleared, but"), &outcome.warnings);
    Ok(())
}
