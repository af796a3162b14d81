//! Errors of a tree.

use steadfast_format::{Address, DecodeError};

use crate::StoreError;

/// Errors of the tree. An operation that returns one has changed nothing (what a failed sync leaves
/// is said at [`Tree::sync`](crate::Tree::sync)).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store could not give a node's bytes.
    #[error("node of level {level} at segment {}, offset {} cannot be read: {source}", address.segment, address.offset)]
    Read {
        /// First copy's address.
        address: Address,
        /// Level the node should have.
        level: u8,
        /// The store's error.
        source: StoreError,
    },
    /// The store could not write nodes.
    #[error("nodes of level {level} cannot be written: {source}")]
    Write {
        /// Their level.
        level: u8,
        /// The store's error.
        source: StoreError,
    },
    /// The bytes are authentic but are not a node.
    #[error("block at segment {}, offset {} is not a tree node: {source}", address.segment, address.offset)]
    Decode {
        /// First copy's address.
        address: Address,
        /// Level the node should have.
        level: u8,
        /// The decoder's error.
        source: DecodeError,
    },
    /// A valid node of another level than its parent says.
    #[error("node at segment {}, offset {} has level {found} where {expected} is due", address.segment, address.offset)]
    WrongLevel {
        /// First copy's address.
        address: Address,
        /// Level its parent says.
        expected: u8,
        /// Level it has.
        found: u8,
    },
    /// A valid node whose keys are not within what its parent says: right bytes, wrong place.
    #[error("node of level {level} at segment {}, offset {} holds keys that belong elsewhere", address.segment, address.offset)]
    Misplaced {
        /// First copy's address.
        address: Address,
        /// Its level.
        level: u8,
        /// The key that lies outside.
        key: Vec<u8>,
        /// No key may be below this one.
        lower: Option<Vec<u8>>,
        /// All keys must be below this one.
        upper: Option<Vec<u8>>,
    },
    /// A key that is empty or longer than 512 bytes.
    #[error("a key of {len} bytes is not allowed (1 to {max})")]
    KeySize {
        /// Its length.
        len: usize,
        /// Greatest length allowed.
        max: usize,
    },
    /// A value too long for this tree.
    #[error("a value of {len} bytes is not allowed (at most {max} with this key)")]
    ValueSize {
        /// Its length.
        len: usize,
        /// Greatest length allowed with this key in this tree.
        max: usize,
    },
    /// A node is not in memory, and the caller is in an operation that reads nothing
    /// ([`without_reading`](crate::without_reading)), which begins again.
    #[error("a node has to be read first")]
    Unread,
    /// Changes of a batch are not in strictly ascending order of their keys.
    #[error("change {index} of a batch is not above the one before it")]
    BatchOrder {
        /// First change out of order.
        index: usize,
    },
}

impl Error {
    /// True if a stored node cannot be had: its bytes, or a node in them that belongs there. A try
    /// that was to be made again ([`Error::Unread`]) says nothing of the kind.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        matches!(
            self,
            Error::Read { .. } | Error::Decode { .. } | Error::WrongLevel { .. } | Error::Misplaced { .. }
        )
    }
}
