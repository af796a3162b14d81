//! `zfs wait`.

use crate::command::Command;
use crate::options::{Parsed, Syntax, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::time::Duration;
use steadfast_control::Code;
use steadfast_control::api::FsDeleteQueue;

pub(super) const COMMAND: Command = Command {
    names: &["wait"],
    syntax: Syntax {
        flags: &[valued('t', "activity[,activity]...", "wait for these only: deleteq")],
        operands: "filesystem",
        least: 1,
        most: 1,
    },
    doc: "Waits until the files that were removed from a file system are destroyed: nobody has them open any more.",
    run: wait,
};

/// The daemon answers after this time, or when the queue is empty.
const LOOK: Duration = Duration::from_millis(250);

fn wait(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    if let Some(word) = parsed.values('t').flat_map(|list| list.split(',')).find(|word| *word != "deleteq") {
        return Err(Failure::Usage(format!("invalid activity '{}'", tame(word))));
    }
    let name = parsed.operands[0].clone();
    let mut patience = Duration::ZERO;
    loop {
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        match session.ask(FsDeleteQueue { name: name.clone(), patience_ms }) {
            Ok(0) => return Ok(()),
            Ok(_) => patience = LOOK,
            // It was destroyed or exported meanwhile.
            Err(refusal)
                if !patience.is_zero() && matches!(refusal.code, Code::FsAbsent | Code::PoolAbsent) =>
            {
                return Ok(());
            }
            Err(refusal) => return Err(refusal).doing(|| format!("cannot wait for '{}'", tame(&name))),
        }
    }
}
