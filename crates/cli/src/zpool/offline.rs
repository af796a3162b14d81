//! `zpool offline`.

use super::operands::{POWER, check_refused, device_path, of_devices};
use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use steadfast_control::api::PoolOffline;

pub(super) const COMMAND: Command = Command {
    names: &["offline"],
    syntax: Syntax {
        flags: &[POWER, flag('f', "mark the device as faulted"), flag('t', "only until the next import")],
        operands: "pool device...",
        least: 2,
        most: MANY,
    },
    doc: "Takes devices offline, if the redundancy allows it.",
    run: offline,
};

fn offline(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    check_refused(parsed)?;
    let name = parsed.operands[0].clone();
    let devices = parsed.operands[1..].iter().map(|word| device_path(session, word)).collect();
    let (as_failed, until_import) = (parsed.has('f'), parsed.has('t'));
    let request = PoolOffline { name: name.clone(), devices, as_failed, until_import };
    session.ask(request).doing(|| of_devices("offline", &parsed.operands[1..]))?;
    Ok(())
}
