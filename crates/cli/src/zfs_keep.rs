//! `zfs rollback`, `hold`, `release`, `holds`, and new names for snapshots.

use crate::family::{Command, Doing, Failure, Session};
use crate::options::{Parsed, Syntax, flag};
use crate::table::{Column, render, tame};
use steadfast_control::api::{FsHold, FsHolds, FsRollback, FsSnapshotRename};
use steadfast_control::{Code, Refusal};

const MANY: usize = usize::MAX;

/// `zfs rollback`.
pub(crate) const ROLLBACK: Command = Command {
    names: &["rollback"],
    syntax: Syntax {
        flags: &[
            flag('r', "destroy the snapshots that are younger"),
            flag('R', "destroy them with their clones"),
            flag('f', "even if files are open"),
        ],
        operands: "filesystem@snapshot",
        least: 1,
        most: 1,
    },
    doc: "Makes a file system what it was at its youngest snapshot.",
    run: rollback,
};

/// `zfs hold`.
pub(crate) const HOLD: Command = Command {
    names: &["hold"],
    syntax: Syntax {
        flags: &[flag('r', "the same snapshots of all file systems below too")],
        operands: "tag filesystem@snapshot...",
        least: 2,
        most: MANY,
    },
    doc: "Keeps snapshots from being destroyed, by a tag.",
    run: hold,
};

/// `zfs release`.
pub(crate) const RELEASE: Command = Command {
    names: &["release"],
    syntax: Syntax {
        flags: &[flag('r', "the same snapshots of all file systems below too")],
        operands: "tag filesystem@snapshot...",
        least: 2,
        most: MANY,
    },
    doc: "Takes a tag away from snapshots.",
    run: release,
};

/// `zfs holds`.
pub(crate) const HOLDS: Command = Command {
    names: &["holds"],
    syntax: Syntax {
        flags: &[
            flag('r', "the same snapshots of all file systems below too"),
            flag('H', "no headings, tabs between columns"),
            flag('p', "times in seconds since 1970"),
        ],
        operands: "filesystem@snapshot...",
        least: 1,
        most: MANY,
    },
    doc: "Lists the tags that keep snapshots.",
    run: holds,
};

fn rollback(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let destroy_younger = parsed.has('r') || parsed.has('R');
    let (clones, force) = (parsed.has('R'), parsed.has('f'));
    let request = FsRollback { name: name.clone(), destroy_younger, clones, force };
    let outcome = session.ask(request).doing(|| format!("cannot rollback to '{}'", tame(&name)))?;
    session.warn(&format!("it is rolled back to '{name}', but"), &outcome.warnings);
    Ok(())
}

fn hold(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    change(session, parsed, false)
}

fn release(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    change(session, parsed, true)
}

fn change(session: &mut Session<'_, '_>, parsed: &Parsed, release: bool) -> Result<(), Failure> {
    let (tag, names) = parsed.operands.split_first().expect("the syntax asks for two operands at least");
    for name in names {
        let doing = || match release {
            false => format!("cannot hold snapshot '{}'", tame(name)),
            true => format!("cannot release hold from snapshot '{}'", tame(name)),
        };
        let recursive = parsed.has('r');
        let request = FsHold { names: vec![name.clone()], tag: tag.clone(), recursive, release };
        if let Err(refusal) = session.ask(request) {
            session.complain(&doing(), &refusal);
        }
    }
    Ok(())
}

fn holds(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let request = FsHolds { names: parsed.operands.clone(), recursive: parsed.has('r') };
    let found = session.ask(request).doing(|| "cannot list holds".into())?;
    let exact = parsed.has('p');
    let time = |seconds: u64| if exact { seconds.to_string() } else { crate::date::creation(seconds) };
    let rows: Vec<Vec<String>> =
        found.iter().map(|hold| vec![hold.snapshot.clone(), hold.tag.clone(), time(hold.time)]).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let columns = ["NAME", "TAG", "TIMESTAMP"].map(|name| Column { heading: name.into(), right: false });
    session.out.push_str(&render(&columns, &rows, parsed.has('H')));
    Ok(())
}

/// `zfs rename` of a snapshot: within its file system, which the new name may leave out.
pub(crate) fn rename(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (name, to) = (parsed.operands[0].clone(), parsed.operands[1].clone());
    let doing = || format!("cannot rename '{}'", tame(&name));
    let (fs, _) = name.split_once('@').unwrap_or((&name, ""));
    let to = match to.split_once('@') {
        Some((other, snapshot)) if other.is_empty() || other == fs => snapshot.to_owned(),
        Some((other, _)) => {
            let what = format!("a snapshot stays with its file system, and '{}' is another one", tame(other));
            return Err(Refusal::new(Code::FsPlace, what).with("fs", fs)).doing(doing);
        }
        None => to,
    };
    let request = FsSnapshotRename { name: name.clone(), to, recursive: parsed.has('r') };
    session.ask(request).doing(doing)?;
    Ok(())
}
