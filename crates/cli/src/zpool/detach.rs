//! `zpool detach`.

use super::operands::{device_path, of_devices};
use crate::command::Command;
use crate::options::{Parsed, Syntax};
use crate::session::{Doing, Failure, Session};
use steadfast_control::api::PoolDetach;

pub(super) const COMMAND: Command = Command {
    names: &["detach"],
    syntax: Syntax { flags: &[], operands: "pool device", least: 2, most: 2 },
    doc: "Removes a device from a mirror, or cancels a replacement by removing its old or its new device.",
    run: detach,
};

fn detach(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let device = device_path(session, &parsed.operands[1]);
    let request = PoolDetach { name: name.clone(), device };
    let outcome = session.ask(request).doing(|| of_devices("detach", &parsed.operands[1..]))?;
    session.warn(&format!("the device is detached from '{name}', but"), &outcome.warnings);
    Ok(())
}
