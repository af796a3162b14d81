//! `zfs rollback`.

use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::FsRollback;

pub(super) const COMMAND: Command = Command {
    names: &["rollback"],
    syntax: Syntax {
        flags: &[
            flag('r', "destroy newer snapshots"),
            flag('R', "destroy newer snapshots and their clones"),
            flag('f', "even if files are open"),
        ],
        operands: "filesystem@snapshot",
        least: 1,
        most: 1,
    },
    doc: "Returns a file system to its latest snapshot; later changes are lost.",
    run: rollback,
};

fn rollback(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let destroy_younger = parsed.has('r') || parsed.has('R');
    let (clones, force) = (parsed.has('R'), parsed.has('f'));
    let request = FsRollback { name: name.clone(), destroy_younger, clones, force };
    let outcome = session.ask(request).doing(|| format!("cannot rollback to '{}'", tame(&name)))?;
    session.warn(&format!("the file system is rolled back to '{name}', but"), &outcome.warnings);
    Ok(())
}
