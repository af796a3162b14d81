//! Every request and answer, and the trait that a daemon serves.
//!
//! Values are exact (bytes, seconds, words); making them readable is the command line's business. Requests carry
//! absolute paths: the daemon's working folder is `/`.

pub use crate::api_clones::{CloneHost, FsClone, FsPromote};
pub use crate::api_moves::{
    PoolAttach, PoolDetach, PoolInitialize, PoolRebalance, PoolReguid, PoolResilver, PoolSplit,
};
pub use crate::api_owners::{FsUserspace, OwnerEntry};
pub use crate::api_sharing::{PoolDdtPrune, PoolPrefetch, Pruned, SharingClassReport, SharingReport};
pub use crate::api_snapshots::{
    FsHold, FsHolds, FsListAll, FsRollback, FsSnapshot, FsSnapshotDestroy, FsSnapshotRename, HeldBy,
    Reclaimed, SnapshotHost,
};
pub use crate::api_streams::{
    FsBookmark, FsBookmarkDestroy, FsDiff, FsDiffEntry, FsReceive, FsReceiveAbort, FsSend, Receipt,
    ReceiveNaming, ReceivedPart, Sent, SentPart, StreamHost,
};
use crate::descriptor::Descriptor;
use crate::inject::{Injections, PoolInject};
use crate::refusal::{Message, Refusal};
use crate::secret::Key;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use steadfast_property::Resolved;

/// Version of this API. Both ends must speak the same; it grows with every change that an older end would misread.
pub const API_VERSION: u32 = 2;

/// Exact values by property name.
pub type Properties = BTreeMap<String, String>;

/// Who asks, for history and for owners of what is created.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Caller {
    /// User id, as the kernel reports it.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Process.
    pub pid: u32,
    /// The command as typed (`zpool create tank disk.img`): what history records. Never holds a secret, because no
    /// option takes one.
    pub command: String,
    /// Where a stream goes to or comes from, for the verbs that have one.
    pub descriptor: Option<Descriptor>,
}

/// Where a value comes from; what `zfs get` prints as SOURCE.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Measured or fixed.
    None,
    /// Nobody set it.
    Default,
    /// Set here.
    Local,
    /// Came with a stream.
    Received,
    /// For this import or mount only.
    Temporary,
    /// Set on the named ancestor.
    Inherited(String),
}

/// A property's exact value and origin.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Exact form; `-` where there is none.
    pub value: String,
    /// Origin.
    pub source: Source,
}

impl Value {
    /// A measured value.
    #[must_use]
    pub fn measured(value: impl ToString) -> Value {
        Value { value: value.to_string(), source: Source::None }
    }
}

impl From<Resolved> for Value {
    fn from(resolved: Resolved) -> Value {
        let source = match resolved.source {
            steadfast_property::Source::None => Source::None,
            steadfast_property::Source::Default => Source::Default,
            steadfast_property::Source::Local => Source::Local,
            steadfast_property::Source::Received => Source::Received,
            steadfast_property::Source::Temporary => Source::Temporary,
            steadfast_property::Source::Inherited(from) => Source::Inherited(from),
        };
        Value { value: resolved.value, source }
    }
}

/// State of a pool or device.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Health {
    /// Works.
    Online,
    /// Works with less redundancy than it should have, or with known damage.
    Degraded,
    /// Too damaged to be used.
    Faulted,
    /// Taken out by the operator.
    Offline,
    /// Cannot be opened.
    Unavail,
    /// Gone while in use.
    Removed,
    /// Stopped after a write error until it is opened again.
    Suspended,
    /// A spare that waits.
    Avail,
    /// A spare that stands for a device.
    Inuse,
}

impl Health {
    /// The word that status and list print.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Online => "ONLINE",
            Health::Degraded => "DEGRADED",
            Health::Faulted => "FAULTED",
            Health::Offline => "OFFLINE",
            Health::Unavail => "UNAVAIL",
            Health::Removed => "REMOVED",
            Health::Suspended => "SUSPENDED",
            Health::Avail => "AVAIL",
            Health::Inuse => "INUSE",
        }
    }
}

/// What a group of devices is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VdevClass {
    /// Holds segments.
    Main,
    /// Holds segments of metadata and small blocks.
    Special,
    /// Intent log.
    Log,
    /// Second-level cache.
    Cache,
    /// Steps in for a failed device.
    Spare,
    /// The only acceptable root.
    Anchor,
    /// Hidden erasure code.
    Parity,
}

impl VdevClass {
    /// What daemons meant that did not say it.
    fn main() -> VdevClass {
        VdevClass::Main
    }
}

/// How a group of devices keeps data.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VdevKind {
    /// One device, no redundancy.
    Plain,
    /// Every device holds everything.
    Mirror,
    /// One parity column.
    Raidz1,
    /// Two parity columns.
    Raidz2,
    /// Three parity columns.
    Raidz3,
}

/// One group of a device list as typed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct VdevSpec {
    /// What for.
    pub class: VdevClass,
    /// How.
    pub kind: VdevKind,
    /// Absolute paths.
    pub devices: Vec<PathBuf>,
}

/// What a changing verb did. Warnings are for what did not follow suit (created, but not mounted).
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Pools or file systems it touched, in order.
    pub touched: Vec<String>,
    /// What the operator should still hear.
    pub warnings: Vec<Refusal>,
}

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
    /// Can it be imported as it stands?
    pub importable: bool,
    /// Its own metadata is sealed: import needs a key of this format.
    pub sealed: Option<crate::secret::KeyFormat>,
    /// Devices, found and missing.
    pub vdevs: Vec<VdevReport>,
    /// What is wrong or needs attention.
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
    /// Although another host or daemon seems to use it (`-f`).
    pub force: bool,
    /// A destroyed pool (`-D`).
    #[serde(default)]
    pub destroyed: bool,
    /// Mount nothing (`-N`).
    pub no_mount: bool,
    /// `-o`: `readonly`, `altroot`, `cachefile` and settable pool properties.
    pub properties: Properties,
    /// Key of a sealed pool (`-l`).
    pub key: Option<Key>,
    /// Where its anchor is, if not where its labels say (`--anchor`).
    #[serde(default)]
    pub anchor: Option<PathBuf>,
    /// Open what the devices hold, though its anchor holds another root (`--accept-rollback`).
    #[serde(default)]
    pub accept_rollback: bool,
    /// Open what the devices hold, though its anchor is lost (`--accept-lost-anchor`).
    #[serde(default)]
    pub accept_lost_anchor: bool,
    /// Open what is committed, though promises of the intent log are lost (`-m`, `--accept-lost-log`).
    #[serde(default)]
    pub accept_lost_log: bool,
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

/// A pool and all its properties. Pools that are remembered but whose devices are missing are listed with `UNAVAIL`.
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
    /// All properties, those of users too.
    pub properties: BTreeMap<String, Value>,
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
    /// What is wrong, most serious first; empty if healthy.
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
    /// What moves things from devices to others: `remove`, `expand` or `rebalance`.
    #[serde(default)]
    pub moving: Option<ScanReport>,
    /// Its blocks that are known by content.
    #[serde(default)]
    pub sharing: SharingReport,
}

/// What an intent log is and did since the import.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct LogReport {
    /// Bytes that groups can fill; 0 while there is none.
    pub size: u64,
    /// Log devices it has for itself; without any it lies among what the pool holds.
    pub devices: u64,
    /// Groups written.
    pub groups: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Calls of `fsync` that it answered.
    pub durable: u64,
    /// Calls that were answered by a commit.
    pub committed_instead: u64,
    /// Groups replayed.
    pub replayed: u64,
    /// File systems for which groups are kept until their keys are loaded.
    pub held: u64,
}

/// One device or group of devices.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct VdevReport {
    /// Path of a device; `mirror-0` and the like for a group.
    pub name: String,
    /// Number that identifies it.
    pub guid: u64,
    /// What for.
    pub class: VdevClass,
    /// How.
    pub kind: VdevKind,
    /// State.
    pub state: Health,
    /// Bytes that segments can fill.
    pub size: u64,
    /// Bytes that live blocks occupy.
    pub allocated: u64,
    /// Bytes that it has grown by and that the pool does not use yet.
    #[serde(default)]
    pub expandsize: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Blocks whose hash or seal was wrong.
    pub checksum_errors: u64,
    /// Errors by kind.
    #[serde(default)]
    pub kinds: ErrorKinds,
    /// A remark for the line's end.
    pub note: Option<String>,
    /// How far its trim is, where there can be one.
    #[serde(default)]
    pub trim: Option<TrimReport>,
    /// How far its initialization is; nothing for what holds no slots.
    #[serde(default)]
    pub initialize: Option<TrimReport>,
    /// Members of a group.
    pub children: Vec<VdevReport>,
}

impl VdevReport {
    /// A device of which no more is known.
    #[must_use]
    pub fn new(name: String, guid: u64, class: VdevClass, state: Health) -> VdevReport {
        VdevReport {
            name,
            guid,
            class,
            kind: VdevKind::Plain,
            state,
            size: 0,
            allocated: 0,
            expandsize: 0,
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
            kinds: ErrorKinds::default(),
            note: None,
            trim: None,
            initialize: None,
            children: Vec::new(),
        }
    }
}

/// Errors of a device by kind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct ErrorKinds {
    /// Reads that failed.
    pub unreadable: u64,
    /// Blocks with other bytes than were written.
    pub hash: u64,
    /// Blocks with the right bytes that their key does not open.
    pub authentication: u64,
    /// Blocks with zeros where something was written.
    pub stale: u64,
    /// Blocks with bytes that belong to another place.
    pub misplaced: u64,
    /// Calls that took 30 seconds or longer.
    pub slow: u64,
}

/// How far a device's trim is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct TrimReport {
    /// How far.
    pub state: TrimState,
    /// Bytes of the device that were gone through.
    pub done: u64,
    /// Bytes of the device.
    pub total: u64,
    /// Bytes given back.
    pub trimmed: u64,
    /// When it began, or ended if it is complete: seconds since 1970.
    pub since: u64,
}

/// State of a device's trim.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TrimState {
    /// The device takes no discards.
    Unsupported,
    /// Not since the import.
    Untrimmed,
    /// Under way.
    Active,
    /// Stopped for now.
    Suspended,
    /// Ended.
    Complete,
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
    /// What to set.
    pub properties: Properties,
}

/// What was done to pools.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolHistory {
    /// Which; empty: all.
    pub names: Vec<String>,
}

/// One pool's past.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolPast {
    /// Name.
    pub name: String,
    /// Oldest first.
    pub records: Vec<HistoryRecord>,
}

/// One line of history.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct HistoryRecord {
    /// Seconds since 1970-01-01 UTC.
    pub time: u64,
    /// Transaction group, for events of the pool itself.
    pub txg: Option<u64>,
    /// An event of the pool itself, shown by `-i`.
    pub internal: bool,
    /// The command as typed, or the event.
    pub text: String,
    /// Who.
    pub uid: u32,
    /// Where.
    pub host: String,
}

/// Commit pools now.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolSync {
    /// Which; empty: all.
    pub names: Vec<String>,
}

/// Make a pool larger by devices.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolAdd {
    /// Name.
    pub name: String,
    /// Devices.
    pub vdevs: Vec<VdevSpec>,
    /// Overwrite devices that seem to be in use (`-f`).
    pub force: bool,
    /// Only check (`-n`).
    pub dry_run: bool,
}

/// Let a pool live without devices.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolRemove {
    /// Name of the pool.
    pub name: String,
    /// Devices, by the names that status prints or a path to them.
    pub devices: Vec<PathBuf>,
    /// Only check (`-n`).
    pub dry_run: bool,
    /// End the removal that is under way (`-s`); no device is named.
    #[serde(default)]
    pub cancel: bool,
}

/// Bring devices into use; `touched` lists those that were not.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolOnline {
    /// Name of the pool.
    pub name: String,
    /// Devices, by the names that status prints or a path to them.
    pub devices: Vec<PathBuf>,
    /// Use all of a device that has grown (`-e`).
    pub expand: bool,
}

/// Take devices out of use.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolOffline {
    /// Name of the pool.
    pub name: String,
    /// Devices.
    pub devices: Vec<PathBuf>,
    /// As failed: spares step in.
    #[serde(default)]
    pub as_failed: bool,
    /// Until the next import.
    #[serde(default)]
    pub until_import: bool,
}

/// Forget counted errors and damaged files, and bring faulted devices back into use.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolClear {
    /// Name.
    pub name: String,
    /// Devices, by the names that status prints or a path to them; empty: all.
    #[serde(default)]
    pub devices: Vec<PathBuf>,
}

/// Read and compare everything that is stored redundantly, or stop that.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolScrub {
    /// Name.
    pub name: String,
    /// What.
    pub command: ScrubCommand,
}

/// What is asked of a scrub.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScrubCommand {
    /// Begin, or go on if it is paused.
    Start,
    /// Stop, so that it may go on later.
    Pause,
    /// End.
    Stop,
}

/// Put a device into the place of another.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolReplace {
    /// Name.
    pub name: String,
    /// The device that leaves.
    pub old: PathBuf,
    /// The device that comes; none: what lies under the old one's path now.
    pub new: Option<PathBuf>,
    /// Take a device that carries something already.
    pub force: bool,
}

/// The last scrub or resilver.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ScanReport {
    /// `scrub` or `resilver`.
    pub function: String,
    /// `active`, `paused`, `finished` or `canceled`.
    pub state: String,
    /// When it began and ended, seconds since 1970; the end is 0 while it is under way.
    pub started: u64,
    /// As above.
    pub ended: u64,
    /// Bytes to be looked at when it began.
    pub total: u64,
    /// Bytes looked at.
    pub scanned: u64,
    /// Bytes written anew in place.
    pub repaired: u64,
    /// Bytes of missing columns built elsewhere.
    pub resilvered: u64,
    /// Bytes that could not be mended.
    pub lost: u64,
    /// Columns that no device had room for.
    pub missing: u64,
    /// What is removed, by the names that status prints, or by its number once it is gone.
    #[serde(default)]
    pub what: String,
    /// Bytes a second that a scrub reads at most beside other load; 0: as much as half of the time gives.
    #[serde(default)]
    pub limit: u64,
    /// File systems that a scrub of single devices left out, because their keys are not loaded.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// Discard all free space of devices, or stop that.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolTrim {
    /// Name.
    pub name: String,
    /// Devices, by the names that status prints or a path to them; empty: all.
    pub devices: Vec<PathBuf>,
    /// What.
    pub command: TrimCommand,
    /// Bytes a second on each device (`-r`); `None`: without limit, or as it was when it was suspended.
    pub rate: Option<u64>,
}

/// What is asked of a trim.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrimCommand {
    /// Begin, or go on if it is suspended.
    Start,
    /// Stop for now (`-s`).
    Suspend,
    /// End (`-c`).
    Cancel,
    /// Forget what ended or was suspended (`zpool initialize -u`).
    Forget,
}

/// What goes on in the background of a pool.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolActivities {
    /// Name.
    pub name: String,
    /// Answer when none of these goes on ([`Activities::left`]); without any, at once.
    #[serde(default)]
    pub until_over: Vec<String>,
    /// Answer after so many milliseconds though one of them does.
    #[serde(default)]
    pub patience_ms: u64,
}

/// What goes on in the background of a pool: bytes left, 0 where nothing goes on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Activities {
    /// What was deleted comes back.
    pub free: u64,
    /// Free space is discarded on demand.
    pub trim: u64,
    /// Free space is filled on demand.
    #[serde(default)]
    pub initialize: u64,
    /// Everything stored redundantly is read and compared.
    #[serde(default)]
    pub scrub: u64,
    /// Columns that are missing are built.
    #[serde(default)]
    pub resilver: u64,
    /// What lies on devices that are removed goes to others.
    #[serde(default)]
    pub remove: u64,
    /// Columns go to a device that was attached to raidz.
    #[serde(default)]
    pub expand: u64,
    /// Groups are evened out.
    #[serde(default)]
    pub rebalance: u64,
}

impl Activities {
    /// Bytes left of an activity, by the name that `zpool wait` gives it; 0 of one that is none here.
    #[must_use]
    pub fn left(&self, name: &str) -> u64 {
        match name {
            "free" => self.free,
            "trim" => self.trim,
            "initialize" => self.initialize,
            "scrub" => self.scrub,
            "resilver" | "replace" => self.resilver,
            "remove" => self.remove,
            "raidz_expand" => self.expand,
            "rebalance" => self.rebalance,
            _ => 0,
        }
    }
}

/// Remove a pool's labels from a device that no imported pool uses.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LabelClear {
    /// Path.
    pub device: PathBuf,
    /// Although the pool on it was not destroyed (`-f`).
    pub force: bool,
}

/// Let pools use features; `touched` lists `pool feature`.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolUpgrade {
    /// Which; empty: all.
    pub names: Vec<String>,
}

/// Counters of pools and their devices, since import.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolIostat {
    /// Which; empty: all.
    pub names: Vec<String>,
}

/// Counters of one pool.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolIo {
    /// Name.
    pub name: String,
    /// Number that identifies it.
    pub guid: u64,
    /// Nanoseconds since it was imported, when the counters began: the difference of two answers is what passed between
    /// them.
    pub age_ns: u64,
    /// Bytes that live blocks occupy.
    #[serde(default)]
    pub allocated: u64,
    /// Bytes that segments can fill, less those.
    #[serde(default)]
    pub free: u64,
    /// Its groups.
    #[serde(default)]
    pub groups: Vec<GroupIo>,
    /// Its devices.
    pub devices: Vec<DeviceIo>,
}

/// Room of one group, counted as `list -v` does.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct GroupIo {
    /// The name that status prints.
    pub name: String,
    /// Number that identifies it.
    #[serde(default)]
    pub guid: u64,
    /// Bytes that live blocks occupy.
    pub allocated: u64,
    /// Bytes that segments can fill, less those.
    pub free: u64,
}

/// Counters of one device.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct DeviceIo {
    /// What for.
    #[serde(default = "VdevClass::main")]
    pub class: VdevClass,
    /// Its group, by the name that status prints; empty if it stands alone.
    #[serde(default)]
    pub group: String,
    /// Path.
    pub name: String,
    /// Number that identifies it.
    pub guid: u64,
    /// Bytes that live blocks occupy. Of a member of a group its share, which is nothing that ZFS would tell: room is counted by group.
    pub allocated: u64,
    /// Bytes that segments can fill, less those.
    pub free: u64,
    /// Reads.
    pub read: CallCount,
    /// Writes.
    pub write: CallCount,
    /// Flushes.
    pub flush: CallCount,
    /// Discards.
    pub trim: CallCount,
}

/// Calls of one kind.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct CallCount {
    /// How many.
    pub calls: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Nanoseconds they took together.
    pub nanos: u64,
    /// How many took 2^n to 2^(n+1) - 1 ns.
    pub histogram: Vec<u64>,
}

/// What happened lately.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolEvents {
    /// Of this pool; `None`: of all.
    pub name: Option<String>,
    /// Only those with a greater number.
    pub after: u64,
}

/// Forget all events; `touched` has an entry for each.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolEventsClear {}

/// One event.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolEvent {
    /// Number; grows by one with each.
    pub eid: u64,
    /// Nanoseconds since 1970-01-01 UTC.
    pub time_ns: u64,
    /// What kind: `sysevent.fs.steadfast.pool_import`, `ereport.fs.steadfast.checksum` and so on.
    pub class: String,
    /// Pool, where there is one.
    pub pool: Option<String>,
    /// More, by name.
    pub fields: BTreeMap<String, String>,
}

/// Move a file system, with all below it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsRename {
    /// Name.
    pub name: String,
    /// New name, in the same pool.
    pub to: String,
    /// Create missing parents of the new name (`-p`).
    pub parents: bool,
    /// Even if files are open (`-f`).
    pub force: bool,
    /// Leave mounted where it is what is mounted (`-u`).
    pub no_remount: bool,
}

/// Change the key of a file system.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsChangeKey {
    /// Name.
    pub name: String,
    /// The new key; `None`: that of the encryption root above (`-i`).
    pub key: Option<Key>,
    /// New `keylocation`; `None`: it stays, or becomes `prompt`.
    pub location: Option<String>,
}

/// Create a file system.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsCreate {
    /// Name, pool included.
    pub name: String,
    /// Create missing parents too (`-p`), and be content if it exists.
    pub parents: bool,
    /// Do not mount (`-u`).
    pub no_mount: bool,
    /// Only check (`-n`).
    pub dry_run: bool,
    /// `-o`.
    pub properties: Properties,
    /// Key, if it becomes an encryption root.
    pub key: Option<Key>,
    /// Not a file system but a volume (`-V`).
    #[serde(default)]
    pub volume: Option<NewVolume>,
}

/// What a volume is to be. Its block is the property `volblocksize`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct NewVolume {
    /// Its size; made longer to whole blocks.
    pub bytes: u64,
    /// Nothing is reserved for it (`-s`).
    pub sparse: bool,
}

/// Destroy a file system.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsDestroy {
    /// Name.
    pub name: String,
    /// Children too (`-r`).
    pub recursive: bool,
    /// Clones of their snapshots too, wherever they are (`-R`).
    #[serde(default)]
    pub clones: bool,
    /// Even if files are open (`-f`).
    pub force: bool,
    /// Only say what would go (`-n`).
    pub dry_run: bool,
}

/// Properties of file systems.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsList {
    /// Where to begin; empty: at every pool.
    pub names: Vec<String>,
    /// How many levels below to include; `None`: all. 0: only the named.
    pub depth: Option<u32>,
}

/// A file system and all its properties.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsInfo {
    /// Name.
    pub name: String,
    /// Transaction group that made it.
    pub createtxg: u64,
    /// Where it is mounted now, which need not be its mountpoint.
    pub mounted_at: Option<PathBuf>,
    /// All properties, those of users too.
    pub properties: BTreeMap<String, Value>,
    /// Values that came with a stream, whether they count or not.
    #[serde(default)]
    pub received: Properties,
}

impl FsInfo {
    /// Exact value of a property; `-` if it has none.
    #[must_use]
    pub fn value(&self, property: &str) -> &str {
        self.properties.get(property).map_or("-", |v| v.value.as_str())
    }
}

/// Change properties of a file system.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsSet {
    /// Name.
    pub name: String,
    /// What to set.
    pub properties: Properties,
    /// Do not remount even if the mountpoint changes (`-u`).
    pub no_mount: bool,
}

/// Forget a file system's own setting.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsInherit {
    /// Name.
    pub name: String,
    /// Which property.
    pub property: String,
    /// In all children too (`-r`).
    pub recursive: bool,
    /// Back to what was received, if anything was (`-S`).
    #[serde(default)]
    pub received: bool,
}

/// Mount a file system.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsMount {
    /// Name.
    pub name: String,
    /// Here instead of at its mountpoint (`mount -t steadfast`).
    pub at: Option<PathBuf>,
    /// `-o`: `ro`, `noexec` and the like, for this mount only.
    pub options: Vec<String>,
    /// Over a folder that is not empty (`-O`).
    pub overlay: bool,
}

/// Unmount a file system.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsUnmount {
    /// Name.
    pub name: String,
    /// Even if files are open (`-f`).
    pub force: bool,
}

/// Load a key.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsLoadKey {
    /// An encryption root.
    pub name: String,
    /// Its key.
    pub key: Key,
    /// Only try it (`-n`).
    pub dry_run: bool,
}

/// Forget a key.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsUnloadKey {
    /// An encryption root.
    pub name: String,
}

/// Asks nothing: an answer shows that the daemon lives. One that has just been killed takes connections for a moment
/// longer, and answers none.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct DaemonPing {}

/// What the daemon uses of memory.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct DaemonMemory {}

/// What the daemon uses of memory. All sizes are in bytes.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// Resident memory of the process now.
    pub resident: u64,
    /// The most it ever was.
    pub resident_max: u64,
    /// What the node caches of all pools may hold together.
    pub node_cache_bytes: u64,
    /// What the block caches of all pools may hold together.
    pub block_cache_bytes: u64,
    /// What changes that wait for a commit may take in all pools together.
    pub dirty_bytes: u64,
    /// Each pool.
    pub pools: Vec<PoolMemory>,
}

/// What a pool uses of memory.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolMemory {
    /// Name.
    pub name: String,
    /// Nodes of trees: names, attributes, where content lies.
    pub nodes: CacheReport,
    /// Content of files.
    pub blocks: CacheReport,
    /// Inodes.
    #[serde(default)]
    pub inodes: InodeReport,
    /// Blocks that were read ahead of their readers since the import.
    pub blocks_read_ahead: u64,
    /// Changes that wait for a commit.
    pub dirty: u64,
    /// What they may be at most.
    pub dirty_max: u64,
    /// Buffers of open segments.
    pub buffers: u64,
}

/// Inodes of a pool that are in the daemon's memory, or that the kernel knows.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct InodeReport {
    /// Those with attributes at hand.
    pub live: u64,
    /// Bytes they take, reckoned.
    pub live_bytes: u64,
    /// Bytes they may take, but for those that changed or are in use.
    pub live_bytes_max: u64,
    /// Those of which nothing is kept but how often the kernel looked them up.
    pub resting: u64,
    /// Bytes that takes, reckoned.
    pub resting_bytes: u64,
}

/// One cache of a pool.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct CacheReport {
    /// Bytes it holds.
    pub bytes: u64,
    /// Bytes it may hold.
    pub bytes_max: u64,
    /// Times something was asked for and found, since the import.
    pub hits: u64,
    /// Times it was not.
    pub misses: u64,
}

/// What the daemon is.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct DaemonInfo {}

/// What the daemon is.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct DaemonReport {
    /// Process.
    pub pid: u32,
    /// Version of the program.
    pub version: String,
    /// Version of this API.
    pub api_version: u32,
    /// Its runtime folder.
    pub runtime_dir: PathBuf,
    /// Its log.
    pub log: PathBuf,
    /// Imported pools.
    pub pools: Vec<String>,
}

/// Export everything and leave.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct DaemonStop {
    /// Even if files are open.
    pub force: bool,
}

/// What a daemon serves. One method per verb; requests have passed [`crate::check`], so names are well formed and
/// property values exact. Methods run on several threads at once.
///
/// Every error is a [`Refusal`]: a code of the catalogue, a sentence, a way out.
#[allow(clippy::missing_errors_doc)] // Said above once, instead of twenty times below.
pub trait Host: SnapshotHost + CloneHost + StreamHost + Send + Sync {
    /// Creates a pool, mounts its root file system, remembers it in the cache file.
    fn pool_create(&self, caller: &Caller, request: PoolCreate) -> Result<Outcome, Refusal>;
    /// Destroys a pool.
    fn pool_destroy(&self, caller: &Caller, request: PoolDestroy) -> Result<Outcome, Refusal>;
    /// Finds pools that are not imported.
    fn pool_import_scan(
        &self,
        caller: &Caller,
        request: PoolImportScan,
    ) -> Result<Vec<PoolCandidate>, Refusal>;
    /// Imports a pool and mounts what mounts by itself.
    fn pool_import(&self, caller: &Caller, request: PoolImport) -> Result<Outcome, Refusal>;
    /// Exports a pool. Afterwards its devices may travel.
    fn pool_export(&self, caller: &Caller, request: PoolExport) -> Result<Outcome, Refusal>;
    /// Pools with all properties, sorted by name.
    fn pool_list(&self, caller: &Caller, request: PoolList) -> Result<Vec<PoolInfo>, Refusal>;
    /// Pools in detail, sorted by name.
    fn pool_status(&self, caller: &Caller, request: PoolStatus) -> Result<Vec<PoolReport>, Refusal>;
    /// Sets properties.
    fn pool_set(&self, caller: &Caller, request: PoolSet) -> Result<Outcome, Refusal>;
    /// What all pools use of memory, and the process as a whole.
    fn daemon_memory(&self, caller: &Caller, request: DaemonMemory) -> Result<MemoryReport, Refusal>;
    /// Tells the past, oldest first.
    fn pool_history(&self, caller: &Caller, request: PoolHistory) -> Result<Vec<PoolPast>, Refusal>;
    /// Commits now; returns when everything written before is durable.
    fn pool_sync(&self, caller: &Caller, request: PoolSync) -> Result<Outcome, Refusal>;
    /// Adds devices.
    fn pool_add(&self, caller: &Caller, request: PoolAdd) -> Result<Outcome, Refusal>;
    /// Lets a pool live without devices; what holds data stays.
    fn pool_remove(&self, caller: &Caller, request: PoolRemove) -> Result<Outcome, Refusal>;
    /// Brings devices into use, and expands them.
    fn pool_online(&self, caller: &Caller, request: PoolOnline) -> Result<Outcome, Refusal>;
    /// Takes devices out of use.
    fn pool_offline(&self, caller: &Caller, request: PoolOffline) -> Result<Outcome, Refusal>;
    /// Forgets errors.
    fn pool_clear(&self, caller: &Caller, request: PoolClear) -> Result<Outcome, Refusal>;
    /// Begins or stops trims.
    fn pool_trim(&self, caller: &Caller, request: PoolTrim) -> Result<Outcome, Refusal>;
    /// Begins or stops initializations.
    fn pool_initialize(&self, caller: &Caller, request: PoolInitialize) -> Result<Outcome, Refusal>;
    /// Begins, pauses or ends a scrub.
    fn pool_scrub(&self, caller: &Caller, request: PoolScrub) -> Result<Outcome, Refusal>;
    /// Puts a device into the place of another.
    fn pool_replace(&self, caller: &Caller, request: PoolReplace) -> Result<Outcome, Refusal>;
    /// Injects faults, or tells which are in force.
    fn pool_inject(&self, caller: &Caller, request: PoolInject) -> Result<Injections, Refusal>;
    /// Adds a device to the group of another.
    fn pool_attach(&self, caller: &Caller, request: PoolAttach) -> Result<Outcome, Refusal>;
    /// Takes a device out of a mirror, or ends a replacement.
    fn pool_detach(&self, caller: &Caller, request: PoolDetach) -> Result<Outcome, Refusal>;
    /// Evens out how full devices are, or stops that.
    fn pool_rebalance(&self, caller: &Caller, request: PoolRebalance) -> Result<Outcome, Refusal>;
    /// Begins a resilver anew.
    fn pool_resilver(&self, caller: &Caller, request: PoolResilver) -> Result<Outcome, Refusal>;
    /// Gives a pool another number.
    fn pool_reguid(&self, caller: &Caller, request: PoolReguid) -> Result<Outcome, Refusal>;
    /// Makes a pool of one device of each mirror; touched are those devices.
    fn pool_split(&self, caller: &Caller, request: PoolSplit) -> Result<Outcome, Refusal>;
    /// See [`PoolPrefetch`].
    fn pool_prefetch(&self, caller: &Caller, request: PoolPrefetch) -> Result<Outcome, Refusal>;
    /// See [`PoolDdtPrune`].
    fn pool_ddt_prune(&self, caller: &Caller, request: PoolDdtPrune) -> Result<Pruned, Refusal>;
    /// Tells what goes on in the background.
    fn pool_activities(&self, caller: &Caller, request: PoolActivities) -> Result<Activities, Refusal>;
    /// Removes labels.
    fn label_clear(&self, caller: &Caller, request: LabelClear) -> Result<Outcome, Refusal>;
    /// Enables features.
    fn pool_upgrade(&self, caller: &Caller, request: PoolUpgrade) -> Result<Outcome, Refusal>;
    /// Counters, sorted by name.
    fn pool_iostat(&self, caller: &Caller, request: PoolIostat) -> Result<Vec<PoolIo>, Refusal>;
    /// Events, oldest first.
    fn pool_events(&self, caller: &Caller, request: PoolEvents) -> Result<Vec<PoolEvent>, Refusal>;
    /// Forgets all events.
    fn pool_events_clear(&self, caller: &Caller, request: PoolEventsClear) -> Result<Outcome, Refusal>;
    /// Moves a file system; `touched` lists what was mounted and is mounted again.
    fn fs_rename(&self, caller: &Caller, request: FsRename) -> Result<Outcome, Refusal>;
    /// Changes a key.
    fn fs_change_key(&self, caller: &Caller, request: FsChangeKey) -> Result<Outcome, Refusal>;
    /// Creates a file system and mounts it.
    fn fs_create(&self, caller: &Caller, request: FsCreate) -> Result<Outcome, Refusal>;
    /// Destroys a file system; `touched` lists what went (or would go), children first.
    fn fs_destroy(&self, caller: &Caller, request: FsDestroy) -> Result<Outcome, Refusal>;
    /// File systems with all properties, parents before children, sorted by name.
    fn fs_list(&self, caller: &Caller, request: FsList) -> Result<Vec<FsInfo>, Refusal>;
    /// Users and groups, users first, in the order of their numbers.
    fn fs_userspace(&self, caller: &Caller, request: FsUserspace) -> Result<Vec<OwnerEntry>, Refusal>;
    /// Sets properties, all or none.
    fn fs_set(&self, caller: &Caller, request: FsSet) -> Result<Outcome, Refusal>;
    /// Forgets a setting.
    fn fs_inherit(&self, caller: &Caller, request: FsInherit) -> Result<Outcome, Refusal>;
    /// Mounts.
    fn fs_mount(&self, caller: &Caller, request: FsMount) -> Result<Outcome, Refusal>;
    /// Unmounts.
    fn fs_unmount(&self, caller: &Caller, request: FsUnmount) -> Result<Outcome, Refusal>;
    /// Loads a key for an encryption root and everything that inherits it.
    fn fs_load_key(&self, caller: &Caller, request: FsLoadKey) -> Result<Outcome, Refusal>;
    /// Forgets it again.
    fn fs_unload_key(&self, caller: &Caller, request: FsUnloadKey) -> Result<Outcome, Refusal>;
    /// Unmounts and exports everything, because the daemon ends. Pools stay remembered for the next start. Without
    /// `force` it refuses while files are open, and everything stays as it was.
    fn shutdown(&self, force: bool) -> Result<(), Refusal>;
}

/// A request type and what answers it.
pub trait Call: Serialize {
    /// Its answer.
    type Answer: for<'de> Deserialize<'de>;
    /// The request as it travels.
    fn into_request(self) -> Request;
}

macro_rules! verbs {
    ($($name:ident $method:ident -> $answer:ty;)*) => {
        /// A request as it travels.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(tag = "verb", content = "args", rename_all = "snake_case")]
        #[allow(missing_docs)] // Each variant is documented at the type it holds.
        pub enum Request {
            $($name($name),)*
            DaemonPing(DaemonPing),
            DaemonInfo(DaemonInfo),
            DaemonStop(DaemonStop),
        }

        $(impl Call for $name {
            type Answer = $answer;
            fn into_request(self) -> Request { Request::$name(self) }
        })*

        /// Hands a request to the host. `None` for the requests that the daemon answers itself.
        pub(crate) fn dispatch(
            host: &dyn Host, caller: &Caller, request: Request,
        ) -> Option<Result<serde_json::Value, Refusal>> {
            let answer = match request {
                $(Request::$name(request) => host.$method(caller, request).map(|a| to_json(&a)),)*
                Request::DaemonPing(_) | Request::DaemonInfo(_) | Request::DaemonStop(_) => return None,
            };
            Some(answer)
        }
    };
}

verbs! {
    PoolCreate pool_create -> Outcome;
    PoolDestroy pool_destroy -> Outcome;
    PoolImportScan pool_import_scan -> Vec<PoolCandidate>;
    PoolImport pool_import -> Outcome;
    PoolExport pool_export -> Outcome;
    PoolList pool_list -> Vec<PoolInfo>;
    PoolStatus pool_status -> Vec<PoolReport>;
    PoolSet pool_set -> Outcome;
    PoolHistory pool_history -> Vec<PoolPast>;
    PoolSync pool_sync -> Outcome;
    PoolAdd pool_add -> Outcome;
    PoolRemove pool_remove -> Outcome;
    PoolOnline pool_online -> Outcome;
    PoolOffline pool_offline -> Outcome;
    PoolClear pool_clear -> Outcome;
    PoolTrim pool_trim -> Outcome;
    PoolInitialize pool_initialize -> Outcome;
    PoolScrub pool_scrub -> Outcome;
    PoolReplace pool_replace -> Outcome;
    PoolInject pool_inject -> Injections;
    PoolAttach pool_attach -> Outcome;
    PoolDetach pool_detach -> Outcome;
    PoolRebalance pool_rebalance -> Outcome;
    PoolResilver pool_resilver -> Outcome;
    PoolReguid pool_reguid -> Outcome;
    PoolSplit pool_split -> Outcome;
    PoolPrefetch pool_prefetch -> Outcome;
    PoolDdtPrune pool_ddt_prune -> Pruned;
    PoolActivities pool_activities -> Activities;
    LabelClear label_clear -> Outcome;
    PoolUpgrade pool_upgrade -> Outcome;
    PoolIostat pool_iostat -> Vec<PoolIo>;
    PoolEvents pool_events -> Vec<PoolEvent>;
    PoolEventsClear pool_events_clear -> Outcome;
    FsRename fs_rename -> Outcome;
    FsChangeKey fs_change_key -> Outcome;
    FsCreate fs_create -> Outcome;
    FsDestroy fs_destroy -> Outcome;
    FsList fs_list -> Vec<FsInfo>;
    FsUserspace fs_userspace -> Vec<OwnerEntry>;
    FsSet fs_set -> Outcome;
    FsSnapshot fs_snapshot -> Outcome;
    FsSnapshotDestroy fs_snapshot_destroy -> Reclaimed;
    FsListAll fs_list_all -> Vec<FsInfo>;
    FsRollback fs_rollback -> Outcome;
    FsHold fs_hold -> Outcome;
    FsHolds fs_holds -> Vec<HeldBy>;
    FsSnapshotRename fs_snapshot_rename -> Outcome;
    FsClone fs_clone -> Outcome;
    FsPromote fs_promote -> Outcome;
    FsSend fs_send -> Sent;
    FsReceive fs_receive -> Receipt;
    FsReceiveAbort fs_receive_abort -> Outcome;
    FsBookmark fs_bookmark -> Outcome;
    FsDiff fs_diff -> Vec<FsDiffEntry>;
    FsBookmarkDestroy fs_bookmark_destroy -> Outcome;
    FsInherit fs_inherit -> Outcome;
    FsMount fs_mount -> Outcome;
    FsUnmount fs_unmount -> Outcome;
    FsLoadKey fs_load_key -> Outcome;
    FsUnloadKey fs_unload_key -> Outcome;
    DaemonMemory daemon_memory -> MemoryReport;
}

impl Request {
    /// True if the command hands over a descriptor with it.
    pub(crate) fn wants_descriptor(&self) -> bool {
        match self {
            Request::FsSend(request) => !request.dry_run,
            Request::FsReceive(_) => true,
            _ => false,
        }
    }
}

impl Call for DaemonPing {
    type Answer = Outcome;
    fn into_request(self) -> Request {
        Request::DaemonPing(self)
    }
}

impl Call for DaemonInfo {
    type Answer = DaemonReport;
    fn into_request(self) -> Request {
        Request::DaemonInfo(self)
    }
}

impl Call for DaemonStop {
    type Answer = Outcome;
    fn into_request(self) -> Request {
        Request::DaemonStop(self)
    }
}

/// An answer as JSON. Answers are plain data with string keys, so this cannot fail.
pub(crate) fn to_json<T: Serialize>(answer: &T) -> serde_json::Value {
    serde_json::to_value(answer).expect("answers are plain data with string keys")
}
