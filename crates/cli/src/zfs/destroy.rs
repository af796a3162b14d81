//! `zfs destroy`: file systems, volumes, snapshots, bookmarks.

use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{FsBookmarkDestroy, FsDestroy, FsSnapshotDestroy};
use steadfast_control::{Code, Refusal};
use steadfast_property::nice_bytes;

pub(super) const COMMAND: Command = Command {
    names: &["destroy"],
    syntax: Syntax {
        flags: &[
            flag('r', "children and snapshots too"),
            flag('R', "children, snapshots and clones too"),
            flag('d', "defer: snapshots with holds or clones are destroyed when the last one is gone"),
            flag('f', "even if files are open"),
            flag('n', "destroy nothing; with -v print the names"),
            flag('v', "print the names"),
            flag('p', "with -n or -v: for scripts"),
        ],
        operands: "filesystem[@snapshot[%snapshot][,...]]",
        least: 1,
        most: 1,
    },
    doc: "Destroys a file system and all its data, or snapshots, or a bookmark.",
    run: destroy,
};

fn destroy(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    if parsed.operands[0].contains('@') {
        return snapshots(session, parsed);
    }
    if parsed.operands[0].contains('#') {
        return bookmark(session, parsed);
    }
    let name = parsed.operands[0].clone();
    let request = FsDestroy {
        name: name.clone(),
        recursive: parsed.has('r') || parsed.has('R'),
        clones: parsed.has('R'),
        force: parsed.has('f'),
        dry_run: parsed.has('n'),
    };
    let outcome = session
        .ask_in_steps(request, &format!("destroy {}", tame(&name)))
        .doing(|| format!("cannot destroy '{}'", tame(&name)))?;
    print_names(session, parsed, &outcome.touched);
    session.warn(&format!("'{name}' is destroyed, but"), &outcome.warnings);
    Ok(())
}

/// Destroys the snapshots behind an `@`.
fn snapshots(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let operand = parsed.operands[0].clone();
    let Some((name, snapshots)) = operand.split_once('@') else { return Ok(()) };
    let doing = || format!("cannot destroy '{}'", tame(&operand));
    if snapshots.is_empty() {
        let what = "missing snapshot after '@': name snapshots, ranges (a%b), or all (%)";
        return Err(Refusal::new(Code::NameInvalid, what)).doing(doing);
    }
    let request = FsSnapshotDestroy {
        name: name.to_owned(),
        snapshots: snapshots.to_owned(),
        recursive: parsed.has('r') || parsed.has('R'),
        clones: parsed.has('R'),
        force: parsed.has('f'),
        defer: parsed.has('d'),
        dry_run: parsed.has('n'),
    };
    let gone = session.ask(request).doing(doing)?;
    if print_names(session, parsed, &gone.touched) {
        session.line(match (parsed.has('p'), parsed.has('n')) {
            (true, _) => format!("reclaim\t{}", gone.bytes),
            (false, true) => format!("would reclaim {}", nice_bytes(gone.bytes)),
            (false, false) => format!("will reclaim {}", nice_bytes(gone.bytes)),
        });
    }
    Ok(())
}

/// Destroys a bookmark.
fn bookmark(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    if !parsed.has('n') {
        let doing = || format!("cannot destroy bookmark '{}'", tame(&name));
        session.ask(FsBookmarkDestroy { name: name.clone() }).doing(doing)?;
    }
    print_names(session, parsed, &[name]);
    Ok(())
}

/// Prints the destroyed names, if the options ask for them. True if they do.
fn print_names(session: &mut Session<'_, '_>, parsed: &Parsed, names: &[String]) -> bool {
    let (scripted, dry_run) = (parsed.has('p'), parsed.has('n'));
    let wanted = parsed.has('v') || dry_run && scripted;
    for name in names.iter().filter(|_| wanted) {
        session.line(match (scripted, dry_run) {
            (true, _) => format!("destroy\t{name}"),
            (false, true) => format!("would destroy {name}"),
            (false, false) => format!("will destroy {name}"),
        });
    }
    wanted
}
