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
    /// Which properties are of interest; empty: all.
    #[serde(default)]
    pub wanted: Vec<String>,
}

/// The part of a host that serves the verbs of snapshots.
#[allow(clippy::missing_errors_doc)] // As in `Host`.
pub trait SnapshotHost {
    /// Takes snapshots, all or none.
    fn fs_snapshot(&self, caller: &Caller, request: FsSnapshot) -> Result<Outcome, Refusal>;
    /// Destroys snapshots, all or none.
    fn fs_snapshot_destroy(&self, caller: &Caller, request: FsSnapshotDestroy) -> Result<Reclaimed, Refusal>;
    /// File systems and snapshots, each file system before its snapshots and these before its children.
    fn fs_list_all(&self, caller: &Caller, request: FsListAll) -> Result<Vec<FsInfo>, Refusal>;
}
