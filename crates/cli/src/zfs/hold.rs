//! `zfs hold`, `zfs release`, `zfs holds`.

use crate::command::Command;
use crate::date;
use crate::options::{Flag, MANY, Parsed, SCRIPTED, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::{Column, render, tame};
use steadfast_control::api::{FsHold, FsHolds};

const RECURSIVE: Flag = flag('r', "the snapshots of the same name of all file systems below too");

pub(super) const HOLD: Command = Command {
    names: &["hold"],
    syntax: Syntax { flags: &[RECURSIVE], operands: "tag filesystem@snapshot...", least: 2, most: MANY },
    doc: "Holds snapshots: they cannot be destroyed until the tag is released.",
    run: |session: &mut Session<'_, '_>, parsed: &Parsed| change(session, parsed, false),
};

pub(super) const RELEASE: Command = Command {
    names: &["release"],
    syntax: Syntax { flags: &[RECURSIVE], operands: "tag filesystem@snapshot...", least: 2, most: MANY },
    doc: "Releases holds of snapshots.",
    run: |session: &mut Session<'_, '_>, parsed: &Parsed| change(session, parsed, true),
};

pub(super) const HOLDS: Command = Command {
    names: &["holds"],
    syntax: Syntax {
        flags: &[RECURSIVE, SCRIPTED, flag('p', "times in seconds since 1970")],
        operands: "filesystem@snapshot...",
        least: 1,
        most: MANY,
    },
    doc: "Lists the holds of snapshots.",
    run: holds,
};

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
    let time = |seconds: u64| if exact { seconds.to_string() } else { date::creation(seconds) };
    let rows: Vec<Vec<String>> =
        found.iter().map(|hold| vec![hold.snapshot.clone(), hold.tag.clone(), time(hold.time)]).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let columns = ["NAME", "TAG", "TIMESTAMP"].map(|name| Column { heading: name.into(), right: false });
    session.out.push_str(&render(&columns, &rows, parsed.has('H')));
    Ok(())
}
