//! `zfs clone` and `zfs promote`.

use crate::family::{Command, Doing, Failure, Session};
use crate::options::{Parsed, Syntax, flag, valued};
use crate::table::tame;
use crate::zpool::assignments;
use steadfast_control::api::{FsClone, FsPromote};

/// `zfs clone`.
pub(crate) const CLONE: Command = Command {
    names: &["clone"],
    syntax: Syntax {
        flags: &[
            flag('p', "missing parents too; content if it exists"),
            flag('u', "do not mount"),
            valued('o', "property=value", "a property; may be repeated"),
        ],
        operands: "snapshot filesystem",
        least: 2,
        most: 2,
    },
    doc: "Creates a file system that begins as what a snapshot keeps, and mounts it.",
    run: clone,
};

/// `zfs promote`.
pub(crate) const PROMOTE: Command = Command {
    names: &["promote"],
    syntax: Syntax { flags: &[], operands: "clone", least: 1, most: 1 },
    doc: "Makes a clone what its origin's file system was, which becomes the clone.",
    run: promote,
};

fn clone(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (snapshot, name) = (parsed.operands[0].clone(), parsed.operands[1].clone());
    let request = FsClone {
        snapshot,
        name: name.clone(),
        parents: parsed.has('p'),
        no_mount: parsed.has('u'),
        properties: assignments(parsed.values('o'))?,
    };
    let outcome = session.ask(request).doing(|| format!("cannot create '{}'", tame(&name)))?;
    session.warn(&format!("'{name}' is created, but"), &outcome.warnings);
    Ok(())
}

fn promote(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let request = FsPromote { name: name.clone() };
    let outcome = session.ask(request).doing(|| format!("cannot promote '{}'", tame(&name)))?;
    session.warn(&format!("'{name}' is promoted, but"), &outcome.warnings);
    Ok(())
}
