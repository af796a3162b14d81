//! The metadata of a commit, bounded before anything is admitted.
//!
//! A block of file content that is written or freed changes leaves of four kinds: its extent; the
//! rows of the segments that its old bytes and the leaf's old copies lay in; and, where the cleaner
//! moved those, their relocations. A leaf changed by many blocks is written once a commit. So a
//! commit that changes `n` blocks writes, in each of the two copies, at most
//!
//! ```text
//! leaves(n)  = min(n, stored units of the owners' metadata)      a node takes one unit at least
//! meta(n)    = BASE + min(n × (leaf + growth), 2 × stored)
//! keys(n)    = 2 × (n + 2 × leaves(n))         a row and a relocation for each block that dies
//! pool(n)    = BASE + min(keys(n) × node, 2 × stored)
//!              + 2 × (the tail, and the rest of a segment that is too small for it)
//! ```
//! All of these are bytes or numbers of blocks; `stored` is the stored size of that metadata. It
//! counts twice, because two commits may be under way for the operations that were let in. Where
//! blocks are shared, each block also has a row of references, which is new or changes, and so has
//! the block that it replaces: `keys(n)` grows by `2 × n`, and `stored` by `n` new rows.
//!
//! Each of the streams that metadata goes to has the rest of its open segment and one slot more
//! ([`Table::headroom_units`]). Bytes beyond that slot are *overhead*, and admission counts it like
//! content. [commit_room.2] So no commit finds less room than it needs.
//!
//! The bound is coarse: a node is taken for uncompressed, a changed key for a leaf of its own until
//! all leaves are changed. It costs nothing where slots are large against what a txg changes, and
//! makes txgs small where they are not.
//!
//! ## Invariants
//! [commit_room.1] The cleaner leaves the commit its room in open segments of metadata, unless a
//!      free slot can take its place. `Space::cleaner_units`; test: `commit_room`
//! [commit_room.2] An admitted operation finds room, with all the metadata that the commit may come
//!      to ([`CommitRoom::overhead`]). Three slots are taken by neither content nor deletes: so the
//!      cleaner fills one while the pool's own streams take their next.
//!      test: `commit_room`
//! [commit_room.3] The room that writers see never jumps by a slot: the next slot of a stream is
//!      set aside as its present segment fills, so taking it costs nothing.
//!      test: `no_write_waits_for_the_slots_that_the_cleaner_takes`
//!
//! [`Table::headroom_units`]: crate::table::Table::headroom_units

use crate::Class;
use crate::geometry::Geometry;
use crate::space::Space;
use crate::table::Table;

/// Largest node of a dataset's trees and of the pool's, and what sealing adds.
const LEAF_BYTES: u64 = 16 << 10;
const NODE_BYTES: u64 = 8 << 10;
const SEAL_BYTES: u64 = 64;
/// Nodes that a commit writes of a tree whatever it changes: a path in each of two trees of a
/// dataset, and as many again for the next commit.
const BASE_NODES: u64 = 12;
/// Bytes by which a block may make its tree grow: an item in leaves that are half full.
const GROWTH_BYTES: u64 = 512;
/// Inner nodes, as a share of the leaves.
const INNER_SHARE: u64 = 32;

/// Bytes of a node as it lies on a device, at most.
fn stored(bytes: u64, geometry: Geometry) -> u64 {
    (bytes + SEAL_BYTES).next_multiple_of(geometry.unit.into())
}

/// Units of a node of the pool's metadata, at most.
pub(crate) fn node_units(geometry: Geometry) -> u64 {
    stored(NODE_BYTES, geometry) / u64::from(geometry.unit)
}

/// The same of a dataset's.
pub(crate) fn leaf_units(geometry: Geometry) -> u64 {
    stored(LEAF_BYTES, geometry) / u64::from(geometry.unit)
}

/// Room for admission, as of one moment between two commits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CommitRoom {
    /// Bytes of content that surely find room if no metadata goes beyond its slots, as
    /// [`Space::room_for_txg_bytes`] says.
    pub content: u64,
    /// The same for operations that free: into what writers leave to further owners.
    pub removes: u64,
    geometry: Geometry,
    /// Bytes of the smallest segment that metadata may come to lie in: a slot, but for narrow
    /// groups.
    least_bytes: u64,
    /// Stored units of one copy of the datasets' metadata, and of the pool's.
    meta_units: u64,
    pool_units: u64,
    /// Bytes of the last tail.
    tail_bytes: u64,
    /// Blocks of content may have rows of references.
    shares: bool,
}

impl Default for CommitRoom {
    /// No room at all.
    fn default() -> CommitRoom {
        CommitRoom::flat(0, 0)
    }
}

impl CommitRoom {
    /// Room of a pool whose slots are so large that metadata never goes beyond them: for models of
    /// a pool.
    #[must_use]
    pub fn flat(content: u64, removes: u64) -> CommitRoom {
        let geometry = Geometry { slot_size: 1 << 30, unit: 512 };
        let least_bytes = geometry.slot_size.into();
        let (meta_units, pool_units, tail_bytes, shares) = (0, 0, 0, false);
        CommitRoom { content, removes, geometry, least_bytes, meta_units, pool_units, tail_bytes, shares }
    }

    /// The same where blocks of content have rows of references in the pool's metadata, or come to
    /// have them.
    #[must_use]
    pub fn with_references(self, shares: bool) -> CommitRoom {
        CommitRoom { shares, ..self }
    }

    /// Bytes that a node of `bytes` bytes takes on the devices of a pool, at most: sealed, not
    /// compressed, padded.
    #[must_use]
    pub fn stored_node(bytes: usize, geometry: Geometry) -> u64 {
        stored(bytes as u64, geometry)
    }

    /// Bytes, beyond the slots kept for it, that the metadata of `blocks` changed blocks may take.
    #[must_use]
    pub fn overhead(&self, blocks: u64) -> u64 {
        let (meta, pool) = self.metadata(blocks);
        2 * (self.beyond_slot(meta, LEAF_BYTES) + self.beyond_slot(pool, NODE_BYTES))
    }

    /// Blocks that may be freed by a commit for which `reserved` bytes of content and so many
    /// blocks are reserved: as many as need no more than half of what is left, and none if nothing
    /// is left: deleting writes before it gives back, so the cleaner goes first.
    #[must_use]
    pub fn frees_max(&self, reserved: u64, blocks: u64) -> usize {
        const MOST: u64 = 1 << 20;
        let left = self.removes.saturating_sub(reserved + self.overhead(blocks)) / 2;
        if left == 0 {
            return 0;
        }
        let fits = |frees: u64| self.overhead(blocks + frees) <= self.overhead(blocks) + left;
        let (mut low, mut high) = (1, MOST);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if fits(middle) { low = middle } else { high = middle - 1 }
        }
        usize::try_from(low).expect("at most a million")
    }

    /// Bytes of one copy of the datasets' metadata and of the pool's that a commit of `blocks`
    /// changed blocks writes at most.
    fn metadata(&self, blocks: u64) -> (u64, u64) {
        let unit = u64::from(self.geometry.unit);
        let (leaf, node) = (stored(LEAF_BYTES, self.geometry), stored(NODE_BYTES, self.geometry));
        let all = 2 * self.meta_units * unit + blocks.saturating_mul(GROWTH_BYTES);
        let leaves = blocks.saturating_mul(leaf).min(all);
        let meta = BASE_NODES * leaf + leaves + leaves / INNER_SHARE;
        let references = if self.shares { blocks } else { 0 };
        let keys = 2 * (blocks + 2 * blocks.min(2 * self.meta_units) + references);
        let all = 2 * self.pool_units * unit + BASE_NODES * node + references.saturating_mul(GROWTH_BYTES);
        let rows = keys.saturating_mul(node).min(all);
        let pool = BASE_NODES * node + rows + rows / INNER_SHARE + 4 * self.tail_bytes;
        (meta, pool)
    }

    /// Bytes beyond a slot that `bytes` in nodes of `node` bytes take, with the rests of slots
    /// that no node fits into.
    fn beyond_slot(&self, bytes: u64, node: u64) -> u64 {
        let slot = u64::from(self.geometry.slot_size);
        let rest = (stored(node, self.geometry) - u64::from(self.geometry.unit)).min(self.least_bytes / 2);
        let usable = slot - rest;
        match bytes.saturating_sub(usable.saturating_sub(rest)) {
            0 => 0,
            beyond => beyond + beyond.div_ceil(self.least_bytes - rest) * rest,
        }
    }
}

impl Space {
    /// Room for admission now, between two commits. No block is larger than `block_bytes_max`.
    #[must_use]
    pub fn commit_room(&self, block_bytes_max: u32) -> CommitRoom {
        let content = self.room_for_txg_bytes(block_bytes_max);
        let state = self.read_state();
        let table = &state.table;
        let left = table.headroom_units(Space::CLEANER_SLOTS);
        CommitRoom {
            content,
            removes: left.max(0).unsigned_abs() * u64::from(self.geometry.unit),
            geometry: self.geometry,
            least_bytes: table.least_segment_units() * u64::from(self.geometry.unit),
            meta_units: metadata_units(table, [Class::Meta0, Class::Meta1]),
            pool_units: metadata_units(table, [Class::Pool0, Class::Pool1]),
            tail_bytes: state.tail_bytes,
            shares: false,
        }
    }
}

/// Units of the greater copy.
fn metadata_units(table: &Table, classes: [Class; 2]) -> u64 {
    classes.map(|class| table.class_live_units(class)).into_iter().max().unwrap_or(0)
}
