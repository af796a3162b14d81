//! Space that an operation reserves for metadata, whatever it changes.

use steadfast_txg::Cost;

/// Of an operation that changes names: two leaves and a share of the nodes above, two copies of
/// each, compressed, as measured on untar and rm. The leaves themselves: an entry's, two inodes'.
pub const NAME_COST: Cost = Cost { memory: 4 << 10, space: 16 << 10, blocks: 3 };
/// Of one that removes what is left of an inode without names.
pub(crate) const RECLAIM_COST: Cost = Cost { memory: 4 << 10, space: 32 << 10, blocks: 3 };

/// Nodes of both trees that a write of content may add, all copies.
pub(crate) const METADATA_SPACE: u64 = 16 << 10;
/// By what the item of a record makes its tree larger at most, both copies, in leaves that are half
/// full. That its leaf is written again is counted as a block ([`Cost::blocks`]).
pub(crate) const ITEM_SPACE: u64 = 1 << 10;
