//! `zpool sync`.

use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use steadfast_control::api::PoolSync;

pub(super) const COMMAND: Command = Command {
    names: &["sync"],
    syntax: Syntax {
        flags: &[flag('f', "accepted, no effect: every commit writes what changed")],
        operands: "[pool]...",
        least: 0,
        most: MANY,
    },
    doc: "Commits all changes of pools now.",
    run: sync,
};

fn sync(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let outcome =
        session.ask(PoolSync { names: parsed.operands.clone() }).doing(|| "cannot commit".into())?;
    session.warn("the pools have committed, but", &outcome.warnings);
    Ok(())
}
