//! `zfs diff`: which files changed.

use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{FsDiff, FsDiffEntry};

pub(super) const COMMAND: Command = Command {
    names: &["diff"],
    syntax: Syntax {
        flags: &[
            flag('F', "with the type of each file, as `ls -F` prints it"),
            flag('H', "for scripts: tabs, and no arrow"),
            flag('h', "accepted, no effect: non-ASCII characters are never escaped"),
            flag('t', "with the time of the change, in seconds since 1970"),
        ],
        operands: "filesystem@snapshot [filesystem@snapshot|filesystem]",
        least: 1,
        most: 2,
    },
    doc: "Lists the files that changed since a snapshot: + created, - removed, M modified, R renamed.",
    run: diff,
};

fn diff(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let base = parsed.operands[0].clone();
    let fs = base.split('@').next().unwrap_or_default().to_owned();
    let target = match parsed.operands.get(1) {
        None => fs,
        Some(snapshot) if snapshot.starts_with('@') => format!("{fs}{snapshot}"),
        Some(target) => target.clone(),
    };
    let doing = || format!("cannot list the changes since '{}'", tame(&base));
    let (types, script, times) = (parsed.has('F'), parsed.has('H'), parsed.has('t'));
    for FsDiffEntry { change, kind, path, to, time } in
        session.ask(FsDiff { base: base.clone(), target }).doing(doing)?
    {
        let mut columns = Vec::new();
        if times {
            columns.push(time);
        }
        columns.push(change);
        if types {
            columns.push(kind);
        }
        columns.push(match (to, script) {
            (None, _) => tame(&path),
            (Some(to), true) => format!("{}\t{}", tame(&path), tame(&to)),
            (Some(to), false) => format!("{} -> {}", tame(&path), tame(&to)),
        });
        session.line(columns.join("\t"));
    }
    Ok(())
}
