//! Requests of blocks that are shared. Part of [`crate::api`].

use serde::{Deserialize, Serialize};

/// Read the table of what is known by content into memory, and wait for it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolPrefetch {
    /// Pools; empty: all.
    pub names: Vec<String>,
}

/// Forget the content of blocks that only one pointer leads to.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolDdtPrune {
    /// Name.
    pub name: String,
    /// Those that were written so many days ago or more.
    pub days: Option<u32>,
    /// So many of a hundred, the oldest.
    pub percent: Option<u8>,
}

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Pruned {
    /// Blocks.
    pub blocks: u64,
}

/// What blocks that are known by content come to.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct SharingReport {
    /// How many there are.
    pub entries: u64,
    /// Bytes of their rows on devices, both copies, before compression.
    pub table_bytes: u64,
    /// Bytes of memory that finding them takes, at most.
    pub index_bytes: u64,
    /// All that fits into memory is there.
    pub index_filled: bool,
    /// Blocks by how many pointers lead to them.
    pub classes: Vec<SharingClassReport>,
}

/// Blocks that so many pointers lead to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct SharingClassReport {
    /// At least so many, and less than twice as many.
    pub references: u64,
    /// Blocks; bytes before compression, stored, and on devices.
    pub allocated: [u64; 4],
    /// The same, for each pointer.
    pub referenced: [u64; 4],
}
