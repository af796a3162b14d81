//! `zfs snapshot`.

use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag, valued};
use crate::properties::assignments;
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::FsSnapshot;
use steadfast_property::Scope;

pub(super) const COMMAND: Command = Command {
    names: &["snapshot", "snap"],
    syntax: Syntax {
        flags: &[
            flag('r', "all file systems below too, at the same moment"),
            valued('o', "property=value", "a user property; may be repeated"),
        ],
        operands: "filesystem@snapshot...",
        least: 1,
        most: MANY,
    },
    doc: "Takes snapshots of file systems.",
    run: snapshot,
};

fn snapshot(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let names = parsed.operands.clone();
    let doing = || match &names[..] {
        [name] => format!("cannot create snapshot '{}'", tame(name)),
        _ => "cannot create snapshots".to_owned(),
    };
    let properties = assignments(session, Scope::Dataset, parsed.values('o'))?;
    let request = FsSnapshot { names: names.clone(), recursive: parsed.has('r'), properties };
    let outcome = session.ask(request).doing(doing)?;
    session.warn("the snapshots are taken, but", &outcome.warnings);
    Ok(())
}
