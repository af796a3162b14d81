//! The datasets that names, `-r`, `-d` and `-t` select.

use crate::options::Parsed;
use crate::session::{Failure, Session};
use crate::table::tame;
use std::collections::BTreeSet;
use steadfast_control::api::{FsInfo, FsList, FsListAll};
use steadfast_control::{Code, Refusal};

/// Types that `-t` selects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Kinds {
    pub filesystems: bool,
    pub volumes: bool,
    pub snapshots: bool,
    pub bookmarks: bool,
}

impl Kinds {
    /// Reads `-t`. The default is file systems and volumes, with `snapshots` all types.
    ///
    /// # Errors
    /// An unknown type.
    pub(super) fn of(parsed: &Parsed, snapshots: bool) -> Result<Kinds, Failure> {
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

/// Datasets that operands (names, or paths below a mountpoint), `-r` and `-d` select.
///
/// # Errors
/// An operand that names nothing, or the daemon's refusal.
pub(super) fn select(
    session: &mut Session<'_, '_>,
    parsed: &Parsed,
    operands: &[String],
    kinds: Kinds,
    wanted: &[String],
) -> Result<Vec<FsInfo>, Refusal> {
    let depth = match parsed.value('d').map(str::parse) {
        Some(Ok(depth)) => Some(depth),
        Some(Err(_)) => {
            return Err(Refusal::new(Code::PropValue, "the depth of -d must be a number"));
        }
        None if parsed.has('r') || operands.is_empty() => None,
        None => Some(0),
    };
    let mut names = Vec::new();
    for operand in operands {
        names.push(if is_path(operand) { name_of_path(session, operand)? } else { operand.clone() });
    }
    listed(session, names, depth, kinds, wanted)
}

/// Datasets with these names, with the wanted properties; all datasets if there are no names.
fn listed(
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
        // List the datasets that exist, and complain about the others.
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

/// True if the named dataset does not exist, or no dataset can have this name.
fn is_absent(refusal: &Refusal) -> bool {
    matches!(refusal.code, Code::FsAbsent | Code::SnapshotAbsent | Code::BookmarkAbsent | Code::NameInvalid)
}

/// True for an operand that is a path and no name, as in ZFS.
pub(super) fn is_path(operand: &str) -> bool {
    operand.starts_with('/') || operand.starts_with("./")
}

/// The file system that is mounted at `path` or at the nearest folder above it.
///
/// # Errors
/// There is none, or no such path.
pub(super) fn name_of_path(session: &mut Session<'_, '_>, path: &str) -> Result<String, Refusal> {
    let all = session.ask(FsList::default())?;
    // As ZFS, which follows symbolic links. A path that is not there may lie on a mount that died.
    let whole = session.world.absolute(path);
    let real = match std::fs::canonicalize(&whole) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Refusal::new(Code::FsAbsent, format!("there is no path {}", tame(path))));
        }
        real => real.unwrap_or(whole),
    };
    let holds = |fs: &&FsInfo| fs.mounted_at.as_ref().is_some_and(|at| real.starts_with(at));
    let nearest =
        all.iter().filter(holds).max_by_key(|fs| fs.mounted_at.as_ref().map(|at| at.as_os_str().len()));
    nearest.map(|fs| fs.name.clone()).ok_or_else(|| {
        Refusal::new(
            Code::FsAbsent,
            format!("no Steadfast file system is mounted at or above {}", tame(path)),
        )
    })
}
