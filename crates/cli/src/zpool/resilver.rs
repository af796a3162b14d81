//! `zpool resilver`.

use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::PoolResilver;

pub(super) const COMMAND: Command = Command {
    names: &["resilver"],
    syntax: Syntax { flags: &[], operands: "pool...", least: 1, most: MANY },
    doc: "Starts a resilver, or restarts the one in progress.",
    run: resilver,
};

fn resilver(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    for name in &parsed.operands {
        let request = PoolResilver { name: name.clone() };
        session.ask(request).doing(|| format!("cannot resilver '{}'", tame(name)))?;
    }
    Ok(())
}
