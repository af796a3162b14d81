//! `zfs clone`.

use crate::command::Command;
use crate::options::{Parsed, Syntax, flag, valued};
use crate::properties::assignments;
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::FsClone;
use steadfast_property::Scope;

pub(super) const COMMAND: Command = Command {
    names: &["clone"],
    syntax: Syntax {
        flags: &[
            flag('p', "create missing parents; succeed if the file system exists"),
            flag('u', "do not mount"),
            valued('o', "property=value", "a property; may be repeated"),
        ],
        operands: "snapshot filesystem",
        least: 2,
        most: 2,
    },
    doc: "Creates a file system from a snapshot, and mounts it.",
    run: clone,
};

fn clone(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (snapshot, name) = (parsed.operands[0].clone(), parsed.operands[1].clone());
    let request = FsClone {
        snapshot,
        name: name.clone(),
        parents: parsed.has('p'),
        no_mount: parsed.has('u'),
        properties: assignments(session, Scope::Dataset, parsed.values('o'))?,
    };
    let outcome = session.ask(request).doing(|| format!("cannot create '{}'", tame(&name)))?;
    session.warn(&format!("'{name}' is created, but"), &outcome.warnings);
    Ok(())
}
