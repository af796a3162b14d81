//! Errors of a dataset.

use std::ops::Range;
use std::sync::Arc;
use steadfast_format::{DatasetId, DecodeError, InodeId};
use steadfast_txg::{Refusal, Suspended};

/// Errors of a dataset.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operation was not let in; nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The txg that was waited for will not commit.
    #[error(transparent)]
    Suspended(#[from] Suspended),
    /// No such inode (any more).
    #[error("inode {0} does not exist")]
    NoInode(InodeId),
    /// A tree could not be read, changed or written.
    #[error("a tree of the dataset failed: {0}")]
    Tree(#[from] steadfast_tree::Error),
    /// Content could not be read.
    #[error("bytes {} to {} of inode {inode} in dataset {dataset} cannot be read: {source}", range.start, range.end - 1)]
    Read {
        /// Dataset.
        dataset: DatasetId,
        /// File.
        inode: InodeId,
        /// Bytes of the file that the unreadable block holds.
        range: Range<u64>,
        /// The error of the layer below.
        source: Arc<steadfast_blockio::Error>,
    },
    /// Content could not be written.
    #[error("file content of dataset {dataset} cannot be written: {source}")]
    Write {
        /// Dataset.
        dataset: DatasetId,
        /// The error of the layer below.
        source: Arc<steadfast_blockio::Error>,
    },
    /// An authentic item of a tree is not what it should be.
    #[error("dataset {dataset} holds an item that cannot be understood: {source}")]
    Item {
        /// Dataset.
        dataset: DatasetId,
        /// The decoder's error.
        source: DecodeError,
    },
    /// An item is missing where another one says it must be.
    #[error("dataset {dataset} lacks {what}")]
    Missing {
        /// Dataset.
        dataset: DatasetId,
        /// The missing item.
        what: &'static str,
    },
}

/// A range of a file that could not be read. Kept so that status reports can name the file.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Damage {
    /// File.
    pub inode: InodeId,
    /// Bytes of it.
    pub range: Range<u64>,
}
