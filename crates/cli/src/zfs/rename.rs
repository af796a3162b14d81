//! `zfs rename`: file systems and snapshots.

use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{FsRename, FsSnapshotRename};
use steadfast_control::{Code, Refusal};

pub(super) const COMMAND: Command = Command {
    names: &["rename"],
    syntax: Syntax {
        flags: &[
            flag('f', "even if files are open"),
            flag('p', "create missing parents of the new name"),
            flag('r', "with a snapshot: those of all file systems below too"),
            flag('u', "do not remount"),
        ],
        operands: "filesystem|snapshot newname",
        least: 2,
        most: 2,
    },
    doc: "Renames a file system and all below it within its pool, or renames a snapshot.",
    run: rename,
};

fn rename(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (name, to) = (parsed.operands[0].clone(), parsed.operands[1].clone());
    let doing = || format!("cannot rename '{}'", tame(&name));
    if name.contains('@') {
        return snapshot(session, parsed);
    }
    if parsed.has('r') {
        let what = "-r is for snapshots only; the file systems below are always renamed too";
        return Err(Refusal::new(Code::NameInvalid, what)).doing(doing);
    }
    let request = FsRename {
        name: name.clone(),
        to: to.clone(),
        parents: parsed.has('p'),
        force: parsed.has('f'),
        no_remount: parsed.has('u'),
    };
    let outcome = session.ask(request).doing(doing)?;
    session.warn(&format!("'{name}' is renamed to '{to}', but"), &outcome.warnings);
    Ok(())
}

/// Renames a snapshot within its file system. The new name may omit the file system.
fn snapshot(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (name, to) = (parsed.operands[0].clone(), parsed.operands[1].clone());
    let doing = || format!("cannot rename '{}'", tame(&name));
    let (fs, _) = name.split_once('@').unwrap_or((&name, ""));
    let to = match to.split_once('@') {
        Some((other, snapshot)) if other.is_empty() || other == fs => snapshot.to_owned(),
        Some((other, _)) => {
            let what = format!("a snapshot cannot move to another file system ('{}')", tame(other));
            return Err(Refusal::new(Code::FsPlace, what).with("fs", fs)).doing(doing);
        }
        None => to,
    };
    let request = FsSnapshotRename { name: name.clone(), to, recursive: parsed.has('r') };
    session.ask(request).doing(doing)?;
    Ok(())
}
