//! Space that an operation reserves for metadata, whatever it changes.

/// Nodes of both trees that a write of content may add, all copies.
pub(crate) const METADATA_SPACE: u64 = 16 << 10;
/// By what the item of a record makes its tree larger at most, both copies, in leaves that are half
/// full. That its leaf is written again is counted as a block ([`Cost::blocks`]).
pub(crate) const ITEM_SPACE: u64 = 1 << 10;
