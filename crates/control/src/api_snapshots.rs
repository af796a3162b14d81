//! Requests of the verbs of snapshots, and the part of a host that serves them. Part of [`crate::api`].

use crate::api::{Caller, FsInfo, Outcome, Properties};
use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};

/// Take snapshots.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsSnapshot {
    /// Full names (`tank/home@monday`): all of one moment, or none.
    pub names: Vec<String>,
    /// Of all file systems below too (`-r`).
    pub recursive: bool,
    /// Properties of users (`-o`).
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
    /// Those that are kept go when nothing keeps them any more (`-d`).
    pub defer: bool,
    /// Only say what would go (`-n`).
    pub dry_run: bool,
}

/// What destroying snapshots came to.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Reclaimed {
    /// Full names of what went, or would go.
    pub touched: Vec<String>,
    /// Bytes that come back.
    pub bytes: u64,
}

/// File systems and snapshots with their properties.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsListAll {
    /// Where to begin, names of snapshots among them; empty: at every pool.
    pub names: Vec<String>,
    /// How many levels below to include; `None`: all. 0: only the named. A snapshot is a level below its file system.
    pub depth: Option<u32>,
    /// File systems.
    pub filesystems: bool,
    /// Snapshots.
    pub snapshots: bool,
    /// Bookmarks.
    #[serde(default)]
    pub bookmarks: bool,
    /// Which properties are of interest; empty: all.
    #[serde(default)]
    pub wanted: Vec<String>,
}

/// Go back to a snapshot.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsRollback {
    /// Full name of the snapshot.
    pub name: String,
    /// Destroy the snapshots that are younger (`-r`).
    pub destroy_younger: bool,
    /// And their clones (`-R`).
    #[serde(default)]
    pub clones: bool,
    /// Even if files are open (`-f`).
    pub force: bool,
}

/// Keep snapshots by a tag, or take it away.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsHold {
    /// Full names of snapshots.
    pub names: Vec<String>,
    /// The tag.
    pub tag: String,
    /// The same snapshots of all file systems below too (`-r`).
    pub recursive: bool,
    /// Take it away.
    pub release: bool,
}

/// List the tags that keep snapshots.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsHolds {
    /// Full names of snapshots.
    pub names: Vec<String>,
    /// The same snapshots of all file systems below too (`-r`).
    pub recursive: bool,
}

/// A tag that keeps a snapshot.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct HeldBy {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// The tag.
    pub tag: String,
    /// When it was set, seconds since 1970.
    pub time: u64,
}

/// Give snapshots another name.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsSnapshotRename {
    /// Full name of the snapshot.
    pub name: String,
    /// What is to follow the `@`.
    pub to: String,
    /// The same snapshots of all file systems below too (`-r`).
    pub recursive: bool,
}

/// The part of a host that serves the verbs of snapshots.
#[allow(clippy::missing_errors_doc)] // As in `Host`.
pub trait SnapshotHost {
    /// Takes snapshots, all or none.
    fn fs_snapshot(&self, caller: &Caller, request: FsSnapshot) -> Result<Outcome, Refusal>;
    /// Destroys snapshots, all or none.
    fn fs_snapshot_destroy(&self, caller: &Caller, request: FsSnapshotDestroy) -> Result<Reclaimed, Refusal>;
    /// Goes back to a snapshot.
    fn fs_rollback(&self, caller: &Caller, request: FsRollback) -> Result<Outcome, Refusal>;
    /// Keeps snapshots by a tag, or takes it away.
    fn fs_hold(&self, caller: &Caller, request: FsHold) -> Result<Outcome, Refusal>;
    /// Lists the tags that keep snapshots.
    fn fs_holds(&self, caller: &Caller, request: FsHolds) -> Result<Vec<HeldBy>, Refusal>;
    /// Gives snapshots another name.
    fn fs_snapshot_rename(&self, caller: &Caller, request: FsSnapshotRename) -> Result<Outcome, Refusal>;
    /// File systems and snapshots, each file system before its snapshots and these before its children.
    fn fs_list_all(&self, caller: &Caller, request: FsListAll) -> Result<Vec<FsInfo>, Refusal>;
}
