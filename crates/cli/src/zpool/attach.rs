//! `zpool attach`.

use super::operands::{ASHIFT, FORCE, check_new, device_path};
use super::wait::wait_for;
use crate::command::Command;
use crate::options::{Flag, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::PoolAttach;

/// `-s` of `attach` and `replace`.
pub(super) const SEQUENTIAL: Flag =
    flag('s', "accepted, no effect: a resilver is always sequential and verifies checksums");

pub(super) const COMMAND: Command = Command {
    names: &["attach"],
    syntax: Syntax {
        flags: &[
            FORCE,
            SEQUENTIAL,
            flag('w', "wait until the resilver or the expansion has finished"),
            ASHIFT,
        ],
        operands: "pool device|group new-device",
        least: 3,
        most: 3,
    },
    doc: "Adds a device to a mirror or a raidz group, or makes a mirror of a single device.",
    run: attach,
};

fn attach(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let doing = || format!("cannot attach {} to {}", tame(&parsed.operands[2]), tame(&parsed.operands[1]));
    check_new(session, parsed, &name, &[], doing)?;
    let device = device_path(session, &parsed.operands[1]);
    let new = device_path(session, &parsed.operands[2]);
    let request = PoolAttach { name: name.clone(), device, new, force: parsed.has('f') };
    let outcome = session.ask(request).doing(doing)?;
    session.warn(&format!("the device is attached to '{name}', but"), &outcome.warnings);
    if parsed.has('w') { wait_for(session, &name, &["resilver", "raidz_expand"]) } else { Ok(()) }
}
