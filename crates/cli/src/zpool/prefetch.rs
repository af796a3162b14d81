//! `zpool prefetch`.

use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, valued};
use crate::session::{Doing, Failure, Session};
use steadfast_control::api::PoolPrefetch;

pub(super) const COMMAND: Command = Command {
    names: &["prefetch"],
    syntax: Syntax {
        flags: &[valued('t', "type", "ddt, the dedup table (the default)")],
        operands: "[pool]...",
        least: 0,
        most: MANY,
    },
    doc: "Loads the dedup table (DDT) into memory.",
    run: prefetch,
};

fn prefetch(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    match parsed.value('t') {
        None | Some("ddt") => {}
        Some("brt") => {
            // Block cloning has no table to load: its references are looked up in a tree.
            return Ok(());
        }
        Some(other) => return Err(Failure::Usage(format!("invalid type '{other}': must be ddt"))),
    }
    let names = parsed.operands.clone();
    session.ask(PoolPrefetch { names }).doing(|| "cannot prefetch the dedup table".into())?;
    Ok(())
}
