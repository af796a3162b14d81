//! `zpool labelclear`.

use super::operands::device_path;
use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::LabelClear;

pub(super) const COMMAND: Command = Command {
    names: &["labelclear"],
    syntax: Syntax {
        flags: &[flag('f', "even if the device's pool was not destroyed")],
        operands: "device",
        least: 1,
        most: 1,
    },
    doc: "Removes the pool labels from a device that no imported pool uses.",
    run: labelclear,
};

fn labelclear(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let device = device_path(session, &parsed.operands[0]);
    let doing = || format!("cannot clear the labels of '{}'", tame(&parsed.operands[0]));
    session.ask(LabelClear { device, force: parsed.has('f') }).doing(doing)?;
    Ok(())
}
