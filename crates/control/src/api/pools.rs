//! Pools: creating, destroying, importing and exporting them, their properties and their status.

use super::costs::{BudgetReport, StoreReport};
use super::dedup::SharingReport;
use super::devices::{Health, VdevReport, VdevSpec};
use super::scans::ScanReport;
use super::values::{Properties, Value};
use crate::refusal::Message;
use crate::secret::{Key, KeyFormat};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Create a pool and its root file system.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolCreate {
    /// Name.
    pub name: String,
    /// Devices.
    pub vdevs: Vec<VdevSpec>,
    /// Overwrite devices that seem to be in use (`-f`).
    pub force: bool,
    /// Only check (`-n`).
    pub dry_run: bool,
    /// Name until the export; the devices get the other one (`-t`).
    #[serde(default)]
    pub temporary_name: Option<String>,
    /// Use only features that `properties` enable (`-d`).
    #[serde(default)]
    pub no_features: bool,
    /// `-m`, which is `-O mountpoint=`.
    pub mountpoint: Option<String>,
    /// `-o`.
    pub properties: Properties,
    /// `-O`, for the root file system.
    pub fs_properties: Properties,
    /// Key of the root file system, if `-O encryption=on`.
    pub key: Option<Key>,
    /// Cells in a million that may be lost and still come back, if there is a parity device among
    /// the devices (`-o loss=2%`).
    #[serde(default)]
    pub loss_ppm: Option<u32>,
    /// Address of a store for the tiles of a parity device among them (`-o tiles=s3://...`).
    #[serde(default)]
    pub tiles: Option<String>,
}

/// Unmount everything and forget that the devices hold a pool.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolDestroy {
    /// Name.
    pub name: String,
    /// Even if files are open (`-f`).
    pub force: bool,
}

/// Look for pools that could be imported.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolImportScan {
    /// Folders and devices to look at (`-d`); empty: the usual places.
    pub search: Vec<PathBuf>,
    /// Destroyed pools instead of living ones (`-D`).
    #[serde(default)]
    pub destroyed: bool,
}

/// A pool that was found on devices and is not imported.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolCandidate {
    /// Name.
    pub name: String,
    /// Number that identifies it.
    pub guid: u64,
    /// State it would have.
    pub state: Health,
    /// It can be imported as it is.
    pub importable: bool,
    /// Its own metadata is encrypted: import needs a key of this format.
    pub sealed: Option<KeyFormat>,
    /// Devices, found and missing.
    pub vdevs: Vec<VdevReport>,
    /// The problem, if there is one.
    pub message: Option<Message>,
}

/// Which pool to import.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolSelector {
    /// By name.
    Name(String),
    /// By number.
    Guid(u64),
}

/// Import a pool.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolImport {
    /// Which.
    pub pool: PoolSelector,
    /// Folders and devices to look at (`-d`); empty: the usual places.
    pub search: Vec<PathBuf>,
    /// Import under another name.
    pub new_name: Option<String>,
    /// The new name is not written to the devices (`-t`).
    #[serde(default)]
    pub temporary: bool,
    /// Import it although another host or daemon seems to use it (`-f`).
    pub force: bool,
    /// A destroyed pool (`-D`).
    #[serde(default)]
    pub destroyed: bool,
    /// Open an older root if the newest one cannot be read (`-F`): a pool on stores alone and
    /// without an anchor goes back to it, another one is opened without the right to write.
    #[serde(default)]
    pub rewind: bool,
    /// With it: only find out to which root the pool would go back (`-n`).
    #[serde(default)]
    pub is_trial: bool,
    /// Open no root newer than this txg (`-T`).
    #[serde(default)]
    pub as_of: Option<u64>,
    /// Mount nothing (`-N`).
    pub no_mount: bool,
    /// `-o`: `readonly`, `altroot`, `cachefile` and settable pool properties.
    pub properties: Properties,
    /// Key of a sealed pool (`-l`).
    pub key: Option<Key>,
    /// Without a key, take the one of a sealed pool from the file that its labels name.
    #[serde(default)]
    pub key_of_file: bool,
    /// Path of its anchor, if it is not where the labels say (`--anchor`).
    #[serde(default)]
    pub anchor: Option<PathBuf>,
    /// Import the root on the devices although the anchor records another one
    /// (`--accept-rollback`).
    #[serde(default)]
    pub accept_rollback: bool,
    /// Import the root on the devices although the anchor is lost (`--accept-lost-anchor`).
    #[serde(default)]
    pub accept_lost_anchor: bool,
    /// Import the last commit although the intent log is lost (`-m`, `--accept-lost-log`).
    #[serde(default)]
    pub accept_lost_log: bool,
    /// Take the pool back to its checkpoint (`--rewind-to-checkpoint`); without the right to write
    /// only look at it.
    #[serde(default)]
    pub to_checkpoint: bool,
}

/// Unmount, commit and let go of a pool.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolExport {
    /// Name.
    pub name: String,
    /// Even if files are open (`-f`).
    pub force: bool,
}

/// Properties of pools.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolList {
    /// Which; empty: all.
    pub names: Vec<String>,
}

/// A pool and all its properties. Pools that are remembered but whose devices are missing are
/// listed with `UNAVAIL`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolInfo {
    /// Name.
    pub name: String,
    /// Number that identifies it.
    pub guid: u64,
    /// State.
    pub state: Health,
    /// Last committed transaction group.
    pub txg: u64,
    /// Its import went back to an older root (`import -F`).
    #[serde(default)]
    pub went_back: Option<WentBack>,
    /// All properties, user properties too.
    pub properties: BTreeMap<String, Value>,
    /// Its last audit, or recovery.
    #[serde(default)]
    pub audit: Option<LastAudit>,
}

/// An older root that an import went back to.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct WentBack {
    /// Txg of the newest root, which was given up.
    pub from: u64,
    /// Txg of the root that was opened.
    pub to: u64,
    /// When that one was committed, in nanoseconds since 1970.
    pub time_ns: u64,
}

/// The last audit of a pool.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LastAudit {
    /// When it ended, nanoseconds since 1970.
    pub ended_ns: u64,
    /// Samples.
    pub samples: u32,
    /// Samples that were not held.
    pub failed: u32,
}

/// State of pools in detail.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Which; empty: all.
    pub names: Vec<String>,
}

/// One pool's state in detail.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolReport {
    /// Name.
    pub name: String,
    /// Number that identifies it.
    pub guid: u64,
    /// State.
    pub state: Health,
    /// Last committed transaction group.
    pub txg: u64,
    /// Problems, most serious first; empty if healthy.
    pub messages: Vec<Message>,
    /// Devices.
    pub vdevs: Vec<VdevReport>,
    /// Data known to be damaged, at most some hundreds.
    pub errors: Vec<DataError>,
    /// Number of all of them.
    pub error_count: u64,
    /// Its intent log.
    #[serde(default)]
    pub log: LogReport,
    /// Its last scrub or resilver.
    #[serde(default)]
    pub scan: Option<ScanReport>,
    /// The removal, raidz expansion or rebalance that is running or was last.
    #[serde(default)]
    pub moving: Option<ScanReport>,
    /// Its checkpoint.
    #[serde(default)]
    pub checkpoint: Option<CheckpointReport>,
    /// Its dedup table.
    #[serde(default)]
    pub sharing: SharingReport,
    /// Stores of objects among its devices.
    #[serde(default)]
    pub stores: Vec<StoreReport>,
    /// Budgets that are set.
    #[serde(default)]
    pub budgets: Vec<BudgetReport>,
    /// The last audit of files and disks, and how often each byte is asked for.
    #[serde(default)]
    pub audit: Option<String>,
}

/// The checkpoint of a pool.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct CheckpointReport {
    /// When it was taken, seconds since 1970.
    pub taken: u64,
    /// Bytes that would be free without it.
    pub bytes: u64,
}

/// State of an intent log, and its counters since the import.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct LogReport {
    /// Bytes of its segments; 0 if there is none.
    pub size: u64,
    /// Log devices; without any it uses segments of the main devices.
    pub devices: u64,
    /// Groups written.
    pub groups: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Calls of `fsync` that the log made durable.
    pub durable: u64,
    /// Calls of `fsync` that a commit made durable.
    pub committed_instead: u64,
    /// Groups replayed.
    pub replayed: u64,
    /// Encrypted file systems whose groups wait for their keys.
    pub held: u64,
}

/// A range of a file, or a piece of metadata, that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct DataError {
    /// File system, or the pool's name for its own metadata.
    pub dataset: String,
    /// Mountpoint, if mounted.
    pub mountpoint: Option<PathBuf>,
    /// Path below the file system's root; `None` for metadata or when the name is not known.
    pub path: Option<String>,
    /// Inode, or 0 for metadata.
    pub inode: u64,
    /// First bad byte of the file.
    pub offset: u64,
    /// Bad bytes.
    pub length: u64,
}

/// Change pool properties.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolSet {
    /// Name.
    pub name: String,
    /// New values.
    pub properties: Properties,
    /// The group or device whose properties they are, by its number or as `root-0`; none: the pool.
    #[serde(default)]
    pub vdev: Option<String>,
}

/// Commit pools now.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolSync {
    /// Which; empty: all.
    pub names: Vec<String>,
}

/// Let pools use features; `touched` lists `pool feature`.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolUpgrade {
    /// Which; empty: all.
    pub names: Vec<String>,
}

/// Take a checkpoint of a pool, or discard it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolCheckpoint {
    /// Name.
    pub name: String,
    /// Discard it (`-d`).
    #[serde(default)]
    pub discard: bool,
}

/// Give the pool a new guid.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolReguid {
    /// Name.
    pub name: String,
    /// The new GUID (`-g`); `None`: a random one.
    #[serde(default)]
    pub guid: Option<u64>,
}
