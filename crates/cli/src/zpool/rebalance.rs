//! `zpool rebalance`.

use super::wait::wait_for;
use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{PoolRebalance, ScrubCommand};

pub(super) const COMMAND: Command = Command {
    names: &["rebalance"],
    syntax: Syntax {
        flags: &[
            flag('p', "pause; `zpool rebalance` without options continues"),
            flag('s', "stop"),
            flag('w', "wait until the rebalance or the expansion has finished"),
        ],
        operands: "pool",
        least: 1,
        most: 1,
    },
    doc: "Moves data from full devices to emptier ones, for example after `zpool add`. \
          Also pauses or stops a raidz expansion.",
    run: rebalance,
};

fn rebalance(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let command = match (parsed.has('p'), parsed.has('s')) {
        (true, true) => return Err(Failure::Usage("-p cannot be combined with -s".into())),
        (true, false) => ScrubCommand::Pause,
        (false, true) => ScrubCommand::Stop,
        (false, false) => ScrubCommand::Start,
    };
    if command != ScrubCommand::Start && parsed.has('w') {
        return Err(Failure::Usage("-w cannot be combined with -p or -s".into()));
    }
    let request = PoolRebalance { name: name.clone(), command };
    session.ask(request).doing(|| format!("cannot rebalance '{}'", tame(&name)))?;
    if parsed.has('w') { wait_for(session, &name, &["rebalance", "raidz_expand"]) } else { Ok(()) }
}
