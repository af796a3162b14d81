//! Audits of stores, files and disks, and recovery of what stores lost.

use serde::{Deserialize, Serialize};

/// Ask the stores of a pool for cells drawn at random, or its files and disks for bytes.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolAudit {
    /// Name.
    pub name: String,
    /// Samples of each store, file or disk; `None`: as many as find out all but one in 2^40 of the
    /// stores that lack half of what the code gives back, or of the devices of which 1 % is bad.
    #[serde(default)]
    pub samples: Option<u32>,
    /// Address of an agent beside the store, `HOST:PORT`.
    #[serde(default)]
    pub agent: Option<String>,
    /// Name the files in cells that are not held.
    #[serde(default)]
    pub files: bool,
}

/// Outcome of an audit.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct AuditOutcome {
    /// Cells in a million that may be lost and still come back. Of files and disks twice the part
    /// that is found out if it is bad: what comes back is a matter of their redundancy.
    pub loss_ppm: u32,
    /// Files and disks were asked.
    #[serde(default)]
    pub by_device: bool,
    /// Files and disks that are away: nothing is said of them.
    #[serde(default)]
    pub absent: Vec<String>,
    /// Datasets whose keys are not loaded, of files and disks: only what manifests list was drawn.
    #[serde(default)]
    pub locked: Vec<String>,
    /// Bytes that the pool stores.
    #[serde(default)]
    pub stored_bytes: u64,
    /// Those of them that the code covers: the outcome tells of these alone.
    #[serde(default)]
    pub covered_bytes: u64,
    /// Objects that the code does not cover.
    #[serde(default)]
    pub uncovered_objects: u64,
    /// Part by part.
    pub strata: Vec<AuditStratum>,
    /// Time that it took.
    pub nanos: u64,
    /// Requests that the stores saw meanwhile.
    pub requests: u64,
    /// Bytes that were read from them meanwhile.
    pub bytes_in: u64,
    /// Price of these, in billionths, and its currency, if all stores have prices.
    pub price: Option<(u64, String)>,
    /// Number of its record, if one was kept.
    #[serde(default)]
    pub record: Option<u64>,
    /// Why none was kept.
    #[serde(default)]
    pub no_record: Option<String>,
    /// Files in the cells that are named as not held, if that was asked for.
    #[serde(default)]
    pub content: Option<LostContent>,
}

/// Outcome of one part.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct AuditStratum {
    /// Store, parity device, file or disk.
    pub device: String,
    /// Part of it: `all`, `newest`, `agent` or `tiles`.
    pub part: String,
    /// Cells (or tiles) of which samples were drawn.
    pub cells: u64,
    /// Samples.
    pub samples: u32,
    /// Samples that were held.
    pub held: u32,
    /// Some of the others: segment, cell, reason. Of a file or disk the offset in the segment's
    /// column instead of the cell.
    pub failed: Vec<(u64, u32, String)>,
}

impl AuditOutcome {
    /// True if every sample was held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.strata.iter().all(|stratum| stratum.held == stratum.samples)
    }
}

/// Content in cells of a pool.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct LostContent {
    /// Cells with bytes of blocks that live.
    pub live_cells: u64,
    /// Cells in which none was found.
    pub dead_cells: u64,
    /// Ranges of files, of datasets and snapshots; one entry for each.
    pub files: Vec<crate::api::DataError>,
    /// Nodes of trees, lost with all copies.
    pub metadata: Vec<LostNode>,
    /// Blocks that have a copy elsewhere.
    pub spared: u64,
    /// Ranges and nodes beyond those that are named.
    pub unnamed: u64,
    /// Datasets that were not looked at, because their keys are not loaded.
    pub locked: Vec<String>,
    /// Nodes that could not be read for another reason: nothing is known of what is below them.
    pub unread: u64,
    /// There is a checkpoint: what only that has was not looked at.
    pub has_checkpoint: bool,
}

/// A node of a tree.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct LostNode {
    /// Dataset or snapshot, or the pool.
    pub dataset: String,
    /// Tree: `extents`, `names` or `pool`.
    pub tree: String,
    /// Its height above the leaves.
    pub level: u8,
    /// First inode of which it holds something, and the last one; not of the pool's tree.
    pub inodes: Option<(u64, u64)>,
}

/// The records of audits that are kept, oldest first.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolAuditRecords {
    /// Name of the pool.
    pub name: String,
}

/// Records of audits, as lines of a file for an auditor.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct AuditRecords {
    /// Key with which they are checked, hexadecimal.
    pub key: String,
    /// The lines.
    pub lines: Vec<String>,
}

/// Begin to read all stores of a pool, and to put back what they lost. If that is under way, look
/// at it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolRecover {
    /// Name.
    pub name: String,
    /// Bytes of memory that it may take; `None`: a quarter of the machine's.
    #[serde(default)]
    pub memory: Option<u64>,
    /// Make the code anew behind it, under another map. Where cells did not come back, and where
    /// that was begun before, it is made anew without being asked for.
    #[serde(default)]
    pub rekey: bool,
    /// Cells in a million that the code gives back from then on; `None`: as before.
    #[serde(default)]
    pub loss_ppm: Option<u32>,
}

/// Look at the recovery of a pool, at once or when it has ended.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolRecovery {
    /// Name.
    pub name: String,
    /// Tell it to end.
    #[serde(default)]
    pub stop: bool,
    /// Wait so long for its end, at most half a second.
    #[serde(default)]
    pub patience_ms: u64,
}

/// The recovery of a pool that is under way, or how the last one ended.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct RecoveryState {
    /// Number of the last one that began since the pool was imported.
    pub number: u64,
    /// True if it is under way.
    pub running: bool,
    /// Cells that were looked at, and of how many; both 0 before the first.
    pub done: u64,
    /// All cells.
    pub of: u64,
    /// True if these are cells of the code that is being made anew.
    #[serde(default)]
    pub rekeying: bool,
    /// True if these are cells of the pool, passed to name the files in lost ones.
    #[serde(default)]
    pub naming: bool,
    /// Outcome, if it came to its end.
    pub outcome: Option<RecoverOutcome>,
    /// Why it did not.
    pub refused: Option<crate::refusal::Refusal>,
}

/// Outcome of a recovery.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct RecoverOutcome {
    /// Cells that were looked at.
    pub cells: u64,
    /// Cells that the stores had.
    pub held: u64,
    /// Cells that came back from the journal.
    pub from_journal: u64,
    /// Cells that came back from the code.
    pub from_code: u64,
    /// Objects that were put back.
    pub restored: Vec<u64>,
    /// Cells that did not come back: store, segment, cell.
    pub lost: Vec<(u16, u64, u16)>,
    /// Files in lost cells.
    #[serde(default)]
    pub content: Option<LostContent>,
    /// Blocks that live in the objects that were put back, held against their hashes.
    #[serde(default)]
    pub proven: Option<ProvenContent>,
    /// Tiles that are not the sum of their cells.
    pub unsound: Vec<u32>,
    /// Times that all stores were read: more than one where memory was short.
    #[serde(default)]
    pub rounds: u32,
    /// Tiles of the parity at a store that were put back, and cells of them that did not come back.
    #[serde(default)]
    pub tiles: (u64, u64),
    /// Why tiles of the parity at a store were not looked after.
    #[serde(default)]
    pub tiles_trouble: Option<String>,
    /// Time that it took.
    pub nanos: u64,
    /// Part of it for solving: reading and putting back are the rest.
    #[serde(default)]
    pub solving_nanos: u64,
    /// The code was made anew behind it.
    #[serde(default)]
    pub rekeyed: Option<RekeyOutcome>,
    /// Why it was not.
    #[serde(default)]
    pub rekey_refused: Option<crate::refusal::Refusal>,
}

/// Blocks that live in objects that were put back.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct ProvenContent {
    /// Blocks that were read.
    pub blocks: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// How many do not have the hash in their pointer.
    pub wrong: u64,
    /// Some of these: segment, and offset in it.
    pub named: Vec<(u64, u32)>,
    /// Datasets whose keys are not loaded: their blocks were not looked at.
    pub locked: Vec<String>,
    /// Nodes and blocks that could not be read: nothing is known of them, and of what is below.
    pub unread: u64,
}

/// Outcome of a re-key.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct RekeyOutcome {
    /// Objects that the code leaves out, because cells of them did not come back: store, segment.
    pub left_out: Vec<(u16, u64)>,
    /// Times that all stores were read for it.
    pub rounds: u32,
    /// Time that it took.
    pub nanos: u64,
}
