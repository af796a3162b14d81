//! `zpool replace`.

use super::attach::SEQUENTIAL;
use super::operands::{ASHIFT, FORCE, check_new, device_path, of_devices};
use super::wait::wait_for;
use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::PoolReplace;

pub(super) const COMMAND: Command = Command {
    names: &["replace"],
    syntax: Syntax {
        flags: &[FORCE, SEQUENTIAL, flag('w', "wait until the resilver has finished"), ASHIFT],
        operands: "pool device [new-device]",
        least: 2,
        most: 3,
    },
    doc: "Replaces a device by another one, and resilvers it. Without a new device, the disk that is now at the \
          old path is used.",
    run: replace,
};

fn replace(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let doing = || match parsed.operands.get(2) {
        Some(new) => format!("cannot replace {} with {}", tame(&parsed.operands[1]), tame(new)),
        None => of_devices("replace", &parsed.operands[1..]),
    };
    check_new(session, parsed, &name, &[], doing)?;
    let old = device_path(session, &parsed.operands[1]);
    let new = parsed.operands.get(2).map(|word| device_path(session, word));
    let request = PoolReplace { name: name.clone(), old, new, force: parsed.has('f') };
    let outcome = session.ask(request).doing(doing)?;
    session.warn(&format!("a device of '{name}' is replaced, but"), &outcome.warnings);
    if parsed.has('w') { wait_for(session, &name, &["resilver"]) } else { Ok(()) }
}
