//! `zpool online`.

use super::operands::{POWER, check_refused, device_path, of_devices};
use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use steadfast_control::api::PoolOnline;

pub(super) const COMMAND: Command = Command {
    names: &["online"],
    syntax: Syntax {
        flags: &[POWER, flag('e', "expand: use the whole device if it has grown")],
        operands: "pool device...",
        least: 2,
        most: MANY,
    },
    doc: "Brings devices online.",
    run: online,
};

fn online(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    check_refused(parsed)?;
    let name = parsed.operands[0].clone();
    let devices = parsed.operands[1..].iter().map(|word| device_path(session, word)).collect();
    let request = PoolOnline { name: name.clone(), devices, expand: parsed.has('e') };
    let outcome = session.ask(request).doing(|| of_devices("online", &parsed.operands[1..]))?;
    session.warn(&format!("devices of '{name}' are online, but"), &outcome.warnings);
    Ok(())
}
