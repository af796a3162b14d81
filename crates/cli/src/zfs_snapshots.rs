//! `zfs snapshot`, and what `zfs destroy` and `zfs list` do with snapshots.

use std::collections::BTreeSet;

use crate::family::{Command, Doing, Failure, Session};
use crate::options::{Parsed, Syntax, flag, valued};
use crate::table::tame;
use crate::zpool::assignments;
use steadfast_control::api::{FsInfo, FsListAll, FsSnapshot, FsSnapshotDestroy};
use steadfast_control::{Code, Refusal};
use steadfast_property::nice_bytes;

/// `zfs snapshot`.
pub(crate) const TAKE: Command = Command {
    names: &["snapshot", "snap"],
    syntax: Syntax {
        flags: &[
            flag('r', "of all file systems below too, of the same moment"),
            valued('o', "property=value", "a property of your own; may be repeated"),
        ],
        operands: "filesystem@snapshot...",
        least: 1,
        most: usize::MAX,
    },
    doc: "Keeps file systems as they are now, under a name.",
    run: take,
};

fn take(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let names = parsed.operands.clone();
    let doing = || match &names[..] {
        [name] => format!("cannot create snapshot '{}'", tame(name)),
        _ => "cannot create snapshots".to_owned(),
    };
    let properties = assignments(parsed.values('o'))?;
    let request = FsSnapshot { names: names.clone(), recursive: parsed.has('r'), properties };
    let outcome = session.ask(request).doing(doing)?;
    session.warn("the snapshots are taken, but", &outcome.warnings);
    Ok(())
}

/// `zfs destroy` of what follows an `@`.
pub(crate) fn destroy(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let operand = parsed.operands[0].clone();
    let Some((name, snapshots)) = operand.split_once('@') else { return Ok(()) };
    let doing = || format!("cannot destroy '{}'", tame(&operand));
    if snapshots.is_empty() {
        let what = "nothing follows the '@': name snapshots, ranges (a%b), or '%' for all";
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
    if parsed.has('v') || parsed.has('n') && parsed.has('p') {
        let would = parsed.has('n');
        for name in &gone.touched {
            session.line(match (parsed.has('p'), would) {
                (true, _) => format!("destroy\t{name}"),
                (false, true) => format!("would destroy {name}"),
                (false, false) => format!("will destroy {name}"),
            });
        }
        session.line(match (parsed.has('p'), would) {
            (true, _) => format!("reclaim\t{}", gone.bytes),
            (false, true) => format!("would reclaim {}", nice_bytes(gone.bytes)),
            (false, false) => format!("will reclaim {}", nice_bytes(gone.bytes)),
        });
    }
    Ok(())
}

/// What `-t` and the operands leave in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Kinds {
    pub filesystems: bool,
    pub volumes: bool,
    pub snapshots: bool,
    pub bookmarks: bool,
}

impl Kinds {
    /// Without `-t`: file systems, and snapshots where these belong to what is usual.
    pub(crate) fn of(parsed: &Parsed, snapshots: bool) -> Result<Kinds, Failure> {
        let given = parsed.value('t').is_some();
        let (sets, points) = (!given, snapshots && !given);
        let mut kinds = Kinds { filesystems: sets, volumes: sets, snapshots: points, bookmarks: points };
        for kind in parsed.values('t').flat_map(|list| list.split(',')) {
            match kind {
                "filesystem" | "fs" => kinds.filesystems = true,
                "snapshot" | "snap" => kinds.snapshots = true,
                "bookmark" => kinds.bookmarks = true,
                "all" => kinds = Kinds { filesystems: true, volumes: true, snapshots: true, bookmarks: true },
                "volume" | "vol" => kinds.volumes = true,
                kind => {
                    let sentence = format!(
                        "invalid type '{kind}': must be filesystem, snapshot, volume, bookmark or all"
                    );
                    return Err(Failure::Usage(sentence));
                }
            }
        }
        Ok(kinds)
    }
}

/// File systems and snapshots that the names choose, with the properties that are wanted; all if there are none.
pub(crate) fn listed(
    session: &mut Session<'_, '_>,
    names: Vec<String>,
    depth: Option<u32>,
    kinds: Kinds,
    wanted: &[String],
) -> Result<Vec<FsInfo>, Refusal> {
    let Kinds { snapshots, bookmarks, .. } = kinds;
    let filesystems = kinds.filesystems || kinds.volumes;
    if !filesystems && !snapshots && !bookmarks {
        return Ok(Vec::new());
    }
    if let Some(name) = names.iter().find(|name| !snapshots && !filesystems && name.contains('@')) {
        return Err(Refusal::new(Code::SnapshotAbsent, format!("'{}' is a snapshot", tame(name))));
    }
    let request =
        |names| FsListAll { names, depth, filesystems, snapshots, bookmarks, wanted: wanted.to_vec() };
    let mut found = match session.ask(request(names.clone())) {
        // Those that are there are shown.
        Err(refusal) if names.len() > 1 && is_absent(&refusal) => {
            let mut found: Vec<FsInfo> = Vec::new();
            for name in names {
                match session.ask(request(vec![name.clone()])) {
                    Ok(more) => {
                        let seen: BTreeSet<String> = found.iter().map(|fs| fs.name.clone()).collect();
                        found.extend(more.into_iter().filter(|fs| !seen.contains(&fs.name)));
                    }
                    Err(refusal) if is_absent(&refusal) => {
                        session.complain(&format!("cannot open '{}'", tame(&name)), &refusal);
                    }
                    Err(refusal) => return Err(refusal),
                }
            }
            found
        }
        found => found?,
    };
    found.retain(|fs| match fs.value("type") {
        "volume" => kinds.volumes,
        "filesystem" => kinds.filesystems,
        _ => true,
    });
    Ok(found)
}

/// What was named is not there.
fn is_absent(refusal: &Refusal) -> bool {
    matches!(refusal.code, Code::FsAbsent | Code::SnapshotAbsent | Code::BookmarkAbsent)
}
