//! `zpool checkpoint`.

use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::PoolCheckpoint;

pub(super) const COMMAND: Command = Command {
    names: &["checkpoint"],
    syntax: Syntax {
        flags: &[
            flag('d', "discard the checkpoint").or("discard"),
            flag('w', "with -d: accepted, no effect: the space is free when the command returns").or("wait"),
        ],
        operands: "pool",
        least: 1,
        most: 1,
    },
    doc: "Takes a checkpoint of a pool: the state to which `zpool import --rewind-to-checkpoint` takes it back as a whole.",
    run: checkpoint,
};

fn checkpoint(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let discard = parsed.has('d');
    if parsed.has('w') && !discard {
        return Err(Failure::Usage("--wait only valid when discarding checkpoints".to_owned()));
    }
    let name = parsed.operands[0].clone();
    let doing = || match discard {
        true => format!("cannot discard checkpoint in '{}'", tame(&name)),
        false => format!("cannot checkpoint '{}'", tame(&name)),
    };
    session.ask(PoolCheckpoint { name: name.clone(), discard }).doing(doing)?;
    Ok(())
}
