//! Devices of pools: how they are listed, reported, and changed.

use super::values::Properties;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

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
    /// Taken out of use by the operator.
    Offline,
    /// Cannot be opened.
    Unavail,
    /// Removed while in use.
    Removed,
    /// Stopped after a write error, until it is imported again.
    Suspended,
    /// An unused spare.
    Avail,
    /// A spare that replaces a device.
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

/// Use of a group of devices.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VdevClass {
    /// Data and metadata.
    Main,
    /// Metadata and small blocks.
    Special,
    /// Intent log (ZIL).
    Log,
    /// Cache of blocks (L2ARC).
    Cache,
    /// Hot spare.
    Spare,
    /// Anchor: the record of the newest root.
    Anchor,
    /// Hidden erasure code.
    Parity,
}

impl VdevClass {
    /// Class in answers of daemons that did not send it.
    pub(super) fn main() -> VdevClass {
        VdevClass::Main
    }
}

/// Redundancy of a group of devices.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VdevKind {
    /// One device, no redundancy.
    Plain,
    /// Each device holds a copy.
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
    /// Use.
    pub class: VdevClass,
    /// Redundancy.
    pub kind: VdevKind,
    /// Absolute paths.
    pub devices: Vec<PathBuf>,
}

/// One device or group of devices.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct VdevReport {
    /// Path of a device; `mirror-0` and the like for a group.
    pub name: String,
    /// Number that identifies it.
    pub guid: u64,
    /// Use.
    pub class: VdevClass,
    /// Redundancy.
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
    /// Remark at the end of the line.
    pub note: Option<String>,
    /// Progress of its trim; `None` if it has no slots.
    #[serde(default)]
    pub trim: Option<TrimReport>,
    /// Progress of its initialization; `None` if it has no slots.
    #[serde(default)]
    pub initialize: Option<TrimReport>,
    /// Tiles of a parity device, if they lie at a store.
    #[serde(default)]
    pub tiles: Option<TilesReport>,
    /// Members of a group.
    pub children: Vec<VdevReport>,
}

/// Tiles of a parity device at a store.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct TilesReport {
    /// Address of the store.
    pub store: String,
    /// Why it did not do what it was asked last; passes wait for it.
    pub trouble: Option<String>,
    /// A tile that it does not have, or has with other bytes; passes wait for it.
    pub lost: Option<u32>,
    /// Objects that wait to be deleted there.
    pub to_delete: u64,
    /// Those of them that are lost there.
    pub gone: u64,
    /// Those of them that could not be read at the last try.
    pub staying: u64,
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
            tiles: None,
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

/// Progress of a device's trim or initialization.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct TrimReport {
    /// State.
    pub state: TrimState,
    /// Bytes of the device that are done.
    pub done: u64,
    /// Bytes of the device.
    pub total: u64,
    /// Bytes given back.
    pub trimmed: u64,
    /// Time of its start, or of its end if it is complete: seconds since 1970.
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

/// Make a pool larger by devices.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolAdd {
    /// Name.
    pub name: String,
    /// Devices.
    pub vdevs: Vec<VdevSpec>,
    /// Overwrite devices that seem to be in use (`-f`).
    pub force: bool,
    /// Groups may have another redundancy than the pool's, and devices of different sizes (`-f`).
    #[serde(default)]
    pub allow_mismatch: bool,
    /// Only check (`-n`).
    pub dry_run: bool,
    /// Cells in a million that may be lost and still come back, if there is a parity device among
    /// them (`-o loss=2%`).
    #[serde(default)]
    pub loss_ppm: Option<u32>,
    /// Address of a store for the tiles of a parity device among them (`-o tiles=s3://...`).
    #[serde(default)]
    pub tiles: Option<String>,
}

/// Remove devices.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolRemove {
    /// Name of the pool.
    pub name: String,
    /// Devices, by the names that status prints or a path to them.
    pub devices: Vec<PathBuf>,
    /// Only check (`-n`).
    pub dry_run: bool,
    /// Cancel the running removal (`-s`); no device is named.
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
    /// Fault it: a spare replaces it.
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

/// Replace a device.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolReplace {
    /// Name.
    pub name: String,
    /// The old device.
    pub old: PathBuf,
    /// The new device; `None`: the device that is now at the old one's path.
    pub new: Option<PathBuf>,
    /// Overwrite a device that seems to be in use (`-f`).
    pub force: bool,
}

/// Attach a device to a group, or make a mirror of a single device.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolAttach {
    /// Name of the pool.
    pub name: String,
    /// A device of the pool, or a group by the name that status prints.
    pub device: PathBuf,
    /// The new device.
    pub new: PathBuf,
    /// Overwrite a device that seems to be in use (`-f`).
    pub force: bool,
}

/// Detach a device from a mirror, or end a replacement by giving up the old or the new device.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolDetach {
    /// Name of the pool.
    pub name: String,
    /// Device.
    pub device: PathBuf,
}

/// Split a pool of mirrors: one device of each becomes a new pool.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolSplit {
    /// Name.
    pub name: String,
    /// Name of the new pool.
    pub new_name: String,
    /// Devices of the new pool; a group of which none is named gives its last one.
    pub devices: Vec<PathBuf>,
    /// Only list these devices (`-n`).
    pub dry_run: bool,
    /// Properties of the new pool that it keeps (`-o`).
    #[serde(default)]
    pub properties: Properties,
}

/// Discard all free space of devices, or stop that.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolTrim {
    /// Name.
    pub name: String,
    /// Devices, by the names that status prints or a path to them; empty: all.
    pub devices: Vec<PathBuf>,
    /// Command.
    pub command: TrimCommand,
    /// Bytes a second on each device (`-r`); `None`: no limit, or the limit from before it was
    /// suspended.
    pub rate: Option<u64>,
}

/// Start or stop filling the free space of devices with a pattern.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolInitialize {
    /// Name.
    pub name: String,
    /// Devices, by the names that status prints or a path to them; empty: all.
    pub devices: Vec<PathBuf>,
    /// Command.
    pub command: TrimCommand,
}

/// Command to a trim or initialization.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrimCommand {
    /// Start, or resume if it is suspended.
    Start,
    /// Suspend (`-s`).
    Suspend,
    /// Cancel (`-c`).
    Cancel,
    /// Forget that it ended or was suspended (`zpool initialize -u`).
    Forget,
}

/// Remove a pool's labels from a device that no imported pool uses.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LabelClear {
    /// Path.
    pub device: PathBuf,
    /// Even if the pool on it was not destroyed (`-f`).
    pub force: bool,
}
