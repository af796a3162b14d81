//! The dedup table (DDT) and blocks that several pointers share.

use serde::{Deserialize, Serialize};

/// Load the dedup table into memory, and wait for it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolPrefetch {
    /// Pools; empty: all.
    pub names: Vec<String>,
}

/// Remove unique entries from the dedup table.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolDdtPrune {
    /// Name.
    pub name: String,
    /// Entries of at least this age.
    pub days: Option<u32>,
    /// The oldest entries, in percent.
    pub percent: Option<u8>,
}

/// Answer of a prune.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Pruned {
    /// Removed entries.
    pub blocks: u64,
}

/// The dedup table of a pool.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct SharingReport {
    /// Entries.
    pub entries: u64,
    /// Bytes of the table on devices: both copies, before compression.
    pub table_bytes: u64,
    /// Bytes of its index in memory, at most.
    pub index_bytes: u64,
    /// The index is loaded, as far as it fits.
    pub index_filled: bool,
    /// Entries by number of references.
    pub classes: Vec<SharingClassReport>,
}

/// Entries with a similar number of references.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct SharingClassReport {
    /// Least number of references; the class ends below twice as many.
    pub references: u64,
    /// Blocks; bytes before compression (LSIZE), after it (PSIZE), and on devices (DSIZE).
    pub allocated: [u64; 4],
    /// The same, once for each reference.
    pub referenced: [u64; 4],
}
