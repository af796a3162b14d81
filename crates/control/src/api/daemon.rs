//! The daemon itself: whether it lives, its memory, its end.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Asks nothing: an answer shows that the daemon lives. A daemon that was just killed may still
/// accept connections, but does not answer.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct DaemonPing {}

/// Ask for the memory of the daemon, after its limits were changed to those that are given.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct DaemonMemory {
    /// New limit of the node caches of all pools together, in bytes.
    #[serde(default)]
    pub node_cache_bytes: Option<u64>,
    /// New limit of the block caches of all pools together, in bytes.
    #[serde(default)]
    pub block_cache_bytes: Option<u64>,
    /// New limit of dirty data of all pools together, in bytes.
    #[serde(default)]
    pub dirty_bytes: Option<u64>,
}

/// Memory of the daemon. All sizes are in bytes.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// Resident memory of the process now.
    pub resident: u64,
    /// Its maximum so far.
    pub resident_max: u64,
    /// Limit of the node caches of all pools together.
    pub node_cache_bytes: u64,
    /// Limit of the block caches of all pools together.
    pub block_cache_bytes: u64,
    /// Limit of dirty data of all pools together.
    pub dirty_bytes: u64,
    /// Each pool.
    pub pools: Vec<PoolMemory>,
}

/// Memory of one pool.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolMemory {
    /// Name.
    pub name: String,
    /// Cache of tree nodes: names, attributes, block pointers.
    pub nodes: CacheReport,
    /// Cache of file data.
    pub blocks: CacheReport,
    /// Raw chunks of stores of objects: kept, and under way.
    #[serde(default)]
    pub chunks: CacheReport,
    /// Inodes.
    #[serde(default)]
    pub inodes: InodeReport,
    /// Blocks read ahead since the import.
    pub blocks_read_ahead: u64,
    /// Dirty data.
    pub dirty: u64,
    /// Its limit.
    pub dirty_max: u64,
    /// Buffers of open segments.
    pub buffers: u64,
}

/// Inodes of a pool in the daemon's memory.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct InodeReport {
    /// Inodes with attributes.
    pub live: u64,
    /// Bytes they take, estimated.
    pub live_bytes: u64,
    /// Limit of these bytes; changed and used inodes may exceed it.
    pub live_bytes_max: u64,
    /// Inodes without attributes: only the kernel's lookup count is kept.
    pub resting: u64,
    /// Bytes they take, estimated.
    pub resting_bytes: u64,
}

/// One cache of a pool.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct CacheReport {
    /// Bytes it holds.
    pub bytes: u64,
    /// Bytes it may hold.
    pub bytes_max: u64,
    /// Hits since the import.
    pub hits: u64,
    /// Misses since the import.
    pub misses: u64,
    /// Requests since the import that got their entry from another one that was reading it.
    #[serde(default)]
    pub shared: u64,
    /// Entries since the import that went for others.
    #[serde(default)]
    pub evictions: u64,
    /// Entries that operations use now. Counted for nodes.
    #[serde(default)]
    pub pinned: u64,
}

/// Ask the daemon about itself.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct DaemonInfo {}

/// Facts about the daemon.
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

/// Export all pools and end.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct DaemonStop {
    /// Even if files are open.
    pub force: bool,
}
