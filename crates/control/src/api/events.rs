//! History, events and counters of pools.

use super::costs::StoreIo;
use super::daemon::CacheReport;
use super::devices::VdevClass;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ask for the history of pools.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolHistory {
    /// Which; empty: all.
    pub names: Vec<String>,
}

/// History of one pool.
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
    /// User id.
    pub uid: u32,
    /// Host.
    pub host: String,
}

/// Ask for recent events.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolEvents {
    /// Only of this pool; `None`: of all.
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
    /// Class: `sysevent.fs.steadfast.pool_import`, `ereport.fs.steadfast.checksum` and so on.
    pub class: String,
    /// Pool, where there is one.
    pub pool: Option<String>,
    /// Details, by name.
    pub fields: BTreeMap<String, String>,
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
    /// Nanoseconds since its import, when the counters started.
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
    /// Stores of objects among them.
    #[serde(default)]
    pub stores: Vec<StoreIo>,
    /// Requests of its clients, by operation.
    #[serde(default)]
    pub requests: Vec<RequestIo>,
    /// Its caches in memory.
    #[serde(default)]
    pub caches: Vec<CacheIo>,
}

/// Counters of one cache of a pool since the import.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct CacheIo {
    /// Its content: `nodes`, `blocks` or `chunks`.
    pub cache: String,
    /// The counters.
    pub counts: CacheReport,
}

/// Requests of one operation since the import, and where their time went.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct RequestIo {
    /// The way on which they came: `local` (FUSE) or `nfs`.
    pub origin: String,
    /// Operation: `lookup`, `create`, `read` and so on.
    pub operation: String,
    /// Nothing had to be read from a device or store.
    pub hot: bool,
    /// How many were answered.
    pub count: u64,
    /// Nanoseconds of the daemon's own processing, all together.
    pub own_ns: u64,
    /// Nanoseconds of waiting for reads from devices and stores.
    pub read_ns: u64,
    /// Nanoseconds of waiting for writes to them.
    pub write_ns: u64,
    /// How many by the power of two of the nanoseconds they took.
    pub histogram: Vec<u64>,
}

/// Space of one group, counted as `zpool list -v` does.
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
    /// Use.
    #[serde(default = "VdevClass::main")]
    pub class: VdevClass,
    /// Its group, by the name that status prints; empty if it stands alone.
    #[serde(default)]
    pub group: String,
    /// Path.
    pub name: String,
    /// Number that identifies it.
    pub guid: u64,
    /// Bytes that live blocks occupy; of a member of a group, its share.
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
    /// How many were to move 2^n to 2^(n+1) - 1 bytes.
    #[serde(default)]
    pub sizes: Vec<u64>,
}
