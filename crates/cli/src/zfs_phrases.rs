//! First lines of refusals in the phrases of `zfs` and `zpool`, which programs look for.
//!
//! The phrases are those of OpenZFS 2.3 (libzfs). They tell less than our own sentence, which
//! follows where a refusal is explained.

use steadfast_control::{Code, Refusal};

/// The first line of a refusal of `doing` ("cannot create 'tank'"), if ZFS has one for it. `typed`
/// is the command: `zfs` says of a pool that is absent what it says of a dataset.
#[must_use]
pub fn first_line(doing: &str, refusal: &Refusal, typed: &str) -> Option<String> {
    let of_others = [crate::zpool_phrases::first_line, crate::key_phrases::first_line];
    if let Some(line) = of_others.iter().find_map(|first_line| first_line(doing, refusal)) {
        return Some(line);
    }
    let field = |name: &str| refusal.fields.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let name = || field("snapshot").or(field("bookmark")).or(field("fs")).or(field("pool"));
    // Verbs that make something name that; the others begin with opening what is there.
    let makes = ["cannot create", "cannot receive", "cannot hold", "cannot release"];
    let opens = |phrase: &str| match name() {
        Some(name)
            if doing.starts_with("cannot create bookmark")
                || !makes.iter().any(|verb| doing.starts_with(verb)) =>
        {
            format!("cannot open '{name}': {phrase}")
        }
        _ => format!("{doing}: {phrase}"),
    };
    let said = |phrase: &str| format!("{doing}: {phrase}");
    Some(match refusal.code {
        Code::SnapshotAbsent if doing.starts_with("cannot destroy") => {
            "could not find any snapshots to destroy; check snapshot names.".to_owned()
        }
        Code::BookmarkAbsent if doing.starts_with("cannot destroy") => {
            format!("bookmark '{}' does not exist.", name()?)
        }
        // The refusal names the pool if that is absent.
        Code::PoolAbsent | Code::FsAbsent
            if doing.starts_with("cannot create '") && field("pool").is_some() =>
        {
            said(&format!("no such pool '{}'", field("pool")?))
        }
        Code::FsAbsent | Code::SnapshotAbsent | Code::BookmarkAbsent => opens("dataset does not exist"),
        Code::PoolAbsent if typed.starts_with("zfs ") => opens("dataset does not exist"),
        Code::PoolAbsent => opens("no such pool"),
        Code::PeerRights => said("permission denied"),
        Code::PoolNotFound => said("no such pool available"),
        Code::PoolExists => said("pool already exists"),
        Code::PoolImported => said("a pool with that name already exists"),
        Code::FsExists | Code::SnapshotExists => said("dataset already exists"),
        Code::BookmarkExists => said("bookmark exists"),
        Code::FsParent => said("parent does not exist"),
        Code::PoolFull => said("out of space"),
        Code::StreamNoPartial => {
            format!("'{}' does not have any resumable receive state to abort", field("fs")?)
        }
        Code::StreamToken if refusal.what.starts_with("the resume token is") => {
            said("resume token is corrupt (invalid format)")
        }
        Code::StreamEnds if refusal.what.contains(" at byte 0,") => {
            "cannot receive: failed to read from stream".to_owned()
        }
        Code::StreamEnds => said("incomplete stream"),
        Code::HoldExists => said("tag already exists on this dataset"),
        Code::HoldAbsent => said("no such tag on this dataset"),
        Code::SnapshotHeld if doing.starts_with("cannot destroy") => {
            let name = field("snapshot")?;
            format!(
                "cannot destroy snapshot {name}: it's being held. Run 'zfs holds -r {name}' to see holders."
            )
        }
        Code::SnapshotHeld => said("dataset is busy"),
        Code::StreamDecrypts => "cannot receive new filesystem stream: zfs receive -F cannot be used to \
             destroy an encrypted filesystem or overwrite an unencrypted one with an encrypted one"
            .to_owned(),
        Code::StreamBase => {
            let (base, snapshot) = (field("base")?, field("snapshot")?);
            format!("WARNING: could not send {snapshot}: incremental source ({base}) is not earlier than it")
        }
        Code::FsBusy if doing.starts_with("cannot send") => {
            said("target is busy; if a filesystem, it must not be mounted")
        }
        Code::FsBusy | Code::PoolBusy => said("pool or dataset is busy"),
        Code::FsChildren | Code::FsSnapshots if doing.starts_with("cannot destroy") => {
            said("filesystem has children")
        }
        Code::SnapshotClones => said("snapshot has dependent clones"),
        Code::SnapshotYounger => said("more recent snapshots or bookmarks exist"),
        Code::PropSpace if doing.starts_with("cannot rollback") => {
            format!("cannot rollback '{}': out of space", field("fs")?)
        }
        Code::FsNotClone => said("not a cloned filesystem"),
        Code::FsMountpoint if doing.starts_with("cannot mount") && refusal.what.ends_with("not empty") => {
            said("directory is not empty")
        }
        Code::FsMounted => said("filesystem already mounted"),
        Code::FsNotMounted => said("not currently mounted"),
        Code::ScanNone => said("there is no active scrub"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_once_and_where_zfs_has_them() {
        let absent = Refusal::new(Code::FsAbsent, "there is no file system 'tank/x'").with("fs", "tank/x");
        let line = |doing: &str, refusal: &Refusal| first_line(doing, refusal, "").unwrap_or_default();
        assert_eq!(line("cannot list datasets", &absent), "cannot open 'tank/x': dataset does not exist");
        assert_eq!(
            line("cannot create snapshot 'tank/x@1'", &absent),
            "cannot create snapshot 'tank/x@1': dataset does not exist"
        );
        let gone = Refusal::new(Code::SnapshotAbsent, "").with("snapshot", "tank@1");
        assert_eq!(line("cannot list holds", &gone), "cannot open 'tank@1': dataset does not exist");
        assert!(line("cannot destroy 'tank@1'", &gone).starts_with("could not find any snapshots"));
        let pool = Refusal::new(Code::PoolAbsent, "").with("pool", "tank");
        assert_eq!(line("cannot scrub 'tank'", &pool), "cannot open 'tank': no such pool");
        let listed = first_line("cannot list datasets", &pool, "zfs list tank");
        assert_eq!(listed.as_deref(), Some("cannot open 'tank': dataset does not exist"));
        let base = Refusal::new(Code::StreamBase, "").with("snapshot", "tank@1").with("base", "tank@2");
        let line = line("cannot send 'tank@1'", &base);
        assert_eq!(
            line,
            "WARNING: could not send tank@1: incremental source (tank@2) is not earlier than it"
        );
        assert_eq!(first_line("cannot clear", &Refusal::new(Code::VdevIo, "EIO"), ""), None);
    }
}
