//! Snapshots, holds, clones and bookmarks.

use super::values::Properties;
use serde::{Deserialize, Serialize};

/// Take snapshots.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsSnapshot {
    /// Full names (`tank/home@monday`). They are taken in one commit, or none is.
    pub names: Vec<String>,
    /// Of all file systems below too (`-r`).
    pub recursive: bool,
    /// User properties (`-o`).
    pub properties: Properties,
}

/// Destroy snapshots.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsSnapshotDestroy {
    /// File system.
    pub name: String,
    /// Names and ranges after the `@`: `a,c%f,%b`.
    pub snapshots: String,
    /// Of all file systems below too (`-r`).
    pub recursive: bool,
    /// Their clones too (`-R`).
    #[serde(default)]
    pub clones: bool,
    /// Clones even if files are open in them (`-f`).
    #[serde(default)]
    pub force: bool,
    /// Destroy held or cloned snapshots when the last hold and clone are gone (`-d`).
    pub defer: bool,
    /// Only list what would be destroyed (`-n`).
    pub dry_run: bool,
}

/// Answer of destroying snapshots.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Reclaimed {
    /// Full names of destroyed snapshots and clones.
    pub touched: Vec<String>,
    /// Bytes freed.
    pub bytes: u64,
}

/// Roll back to a snapshot.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsRollback {
    /// Full name of the snapshot.
    pub name: String,
    /// Destroy younger snapshots (`-r`).
    pub destroy_younger: bool,
    /// Destroy clones of these too (`-R`).
    #[serde(default)]
    pub clones: bool,
    /// Even if files are open (`-f`).
    pub force: bool,
}

/// Hold snapshots by a tag, or release it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsHold {
    /// Full names of snapshots.
    pub names: Vec<String>,
    /// The tag.
    pub tag: String,
    /// The same snapshots of all file systems below too (`-r`).
    pub recursive: bool,
    /// Release it.
    pub release: bool,
}

/// List the holds of snapshots.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsHolds {
    /// Full names of snapshots.
    pub names: Vec<String>,
    /// The same snapshots of all file systems below too (`-r`).
    pub recursive: bool,
}

/// A hold.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct HeldBy {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// The tag.
    pub tag: String,
    /// Time of the hold, seconds since 1970.
    pub time: u64,
}

/// Rename snapshots.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsSnapshotRename {
    /// Full name of the snapshot.
    pub name: String,
    /// New name after the `@`.
    pub to: String,
    /// The same snapshots of all file systems below too (`-r`).
    pub recursive: bool,
}

/// Create a clone of a snapshot.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsClone {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Name of the file system.
    pub name: String,
    /// Create missing parents too; succeed if it exists already (`-p`).
    pub parents: bool,
    /// Do not mount (`-u`).
    pub no_mount: bool,
    /// `-o`.
    pub properties: Properties,
}

/// Promote a clone.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsPromote {
    /// Name of the clone.
    pub name: String,
}

/// Make a bookmark.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsBookmark {
    /// Full name of the snapshot or bookmark.
    pub of: String,
    /// Name after the `#`.
    pub name: String,
}

/// Remove a bookmark.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsBookmarkDestroy {
    /// Full name.
    pub name: String,
}

/// Ask which files changed.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsDiff {
    /// Full name of the earlier snapshot.
    pub base: String,
    /// Full name of a later snapshot, or of its file system.
    pub target: String,
}

/// A file that changed.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsDiffEntry {
    /// `+` new, `-` gone, `M` modified, `R` renamed.
    pub change: String,
    /// Its kind, as `ls -F` shows it; `F` for a file.
    pub kind: String,
    /// Its path, below the mountpoint if there is one. Bytes outside `!` to `~`, and the backslash,
    /// are escaped as in ZFS: `\0` and three octal digits.
    pub path: String,
    /// Its new path, in the same form.
    pub to: Option<String>,
    /// Hard links that it gained, less those that it lost.
    #[serde(default)]
    pub links: i64,
    /// Time of its last change: seconds since 1970, and nanoseconds.
    pub time: String,
}
