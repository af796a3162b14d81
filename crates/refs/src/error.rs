//! Errors of this room.

use steadfast_format::{DatasetId, DecodeError};

/// A result of this room.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this room.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A stored row is not valid.
    #[error("pool '{pool}': {what}: {source}")]
    Corrupt {
        /// Pool.
        pool: String,
        /// Which structure.
        what: &'static str,
        /// Why it was refused.
        source: DecodeError,
    },
    /// The dataset's stored state contradicts itself.
    #[error("dataset {dataset}: {reason}")]
    BadDataset {
        /// Dataset.
        dataset: DatasetId,
        /// The contradiction.
        reason: String,
    },
    /// A write to a dataset that was received raw.
    #[error("'{name}' was received raw: its content cannot be changed here")]
    Raw {
        /// Dataset.
        name: String,
    },
    /// A block could not be written or read.
    #[error(transparent)]
    Block(#[from] steadfast_blockio::Error),
    /// A tree could not be read or written.
    #[error(transparent)]
    Tree(#[from] steadfast_tree::Error),
    /// A dataset failed.
    #[error(transparent)]
    Dataset(#[from] steadfast_dataset::Error),
}

impl Error {
    /// Code of the message in docs/operations/messages.md.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Error::Corrupt { .. } | Error::BadDataset { .. } => "POOL-DAMAGED",
            Error::Raw { .. } => "RAW",
            Error::Block(_) | Error::Tree(_) | Error::Dataset(_) => "VDEV-IO",
        }
    }

    /// Roles and texts of the subjects, for the message.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        match self {
            Error::Corrupt { pool, .. } => vec![("pool", pool.clone())],
            Error::Raw { name } => vec![("fs", name.clone())],
            Error::BadDataset { .. } | Error::Block(_) | Error::Tree(_) | Error::Dataset(_) => Vec::new(),
        }
    }
}
