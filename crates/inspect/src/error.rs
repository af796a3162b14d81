//! Reasons why nothing could be printed.

use steadfast_format::Address;

/// Why nothing could be printed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device could not be opened or read.
    #[error(transparent)]
    Device(#[from] steadfast_device::Error),
    /// A file could not be read.
    #[error("{path}: {source}")]
    File {
        /// As it was named.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// No pool can be read from these devices; the findings say why.
    #[error("no pool can be read from these devices")]
    NoPool,
    /// There is no such dataset.
    #[error("there is no dataset '{name}'")]
    NoDataset {
        /// As it was named.
        name: String,
    },
    /// A dataset whose key was not given.
    #[error("dataset '{dataset}' is encrypted, and its key was not given")]
    Locked {
        /// As it was named.
        dataset: String,
    },
    /// Bytes that no segment has.
    #[error("no segment has {length} bytes at segment {}, offset {}", address.segment, address.offset)]
    Span {
        /// Where they should begin.
        address: Address,
        /// How many.
        length: u32,
    },
    /// A word of the command line that means nothing.
    #[error("'{word}' is not {wanted}")]
    Word {
        /// As it was typed.
        word: String,
        /// Kind wanted.
        wanted: &'static str,
    },
}
