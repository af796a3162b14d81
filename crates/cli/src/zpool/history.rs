//! `zpool history`.

use crate::command::Command;
use crate::date;
use crate::options::{MANY, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::PoolHistory;

pub(super) const COMMAND: Command = Command {
    names: &["history"],
    syntax: Syntax {
        flags: &[flag('i', "internal events too"), flag('l', "with user and host")],
        operands: "[pool]...",
        least: 0,
        most: MANY,
    },
    doc: "Lists the commands that changed a pool, oldest first. Times are in UTC.",
    run: history,
};

fn history(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let request = PoolHistory { names: parsed.operands.clone() };
    let pools = session.ask(request).doing(|| "cannot list the history".into())?;
    if pools.is_empty() {
        session.line("no pools available");
    }
    for pool in pools {
        session.line(format!("History for '{}':", tame(&pool.name)));
        for record in pool.records.iter().filter(|r| !r.internal || parsed.has('i')) {
            let mut line = date::history(record.time);
            if let Some(txg) = record.txg.filter(|_| record.internal) {
                line.push_str(&format!(" [txg:{txg}]"));
            }
            line.push_str(&format!(" {}", tame(&record.text)));
            if parsed.has('l') {
                line.push_str(&format!(" [user {} on {}]", record.uid, tame(&record.host)));
            }
            session.line(line);
        }
        session.line("");
    }
    Ok(())
}
