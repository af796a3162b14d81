//! Faults of a block, with the evidence.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use steadfast_format::{Address, BlockKind, BlockPointer, DatasetId, DeviceId, Txg};

/// Why a block could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No space, or a device that does not take bytes.
    #[error(transparent)]
    Space(#[from] steadfast_segment::Error),
    /// The block was freed after its pointer was looked up: look it up again. With a fresh pointer,
    /// this is corruption.
    #[error("no living block at segment {}, offset {}", address.segment, address.offset)]
    Unallocated {
        /// The address.
        address: Address,
    },
    /// The block is sealed and no key was given.
    #[error("the key of dataset {dataset} is not loaded")]
    KeyNotLoaded {
        /// The dataset.
        dataset: DatasetId,
    },
    /// No copy could be used.
    #[error("{0}")]
    Bad(Box<BlockFault>),
    /// A block has no bytes or more than a block can have.
    #[error("a block of {bytes} bytes; blocks have 1 to {}", BlockPointer::LSIZE_MAX)]
    Size {
        /// Its bytes.
        bytes: usize,
    },
    /// A layer above refused: the dataset is read only, say.
    #[error(transparent)]
    Layer(Arc<dyn StdError + Send + Sync>),
}

impl Error {
    /// An error of a layer between datasets and blocks.
    pub fn layer(source: impl StdError + Send + Sync + 'static) -> Error {
        Error::Layer(Arc::new(source))
    }
}

/// Kinds of badness, mildest first.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Badness {
    /// The device did not give the bytes.
    Unreadable,
    /// Bytes came whose hash is not the one in the pointer.
    Checksum,
    /// The right bytes, but what they decompress to is not what the pointer says.
    Malformed,
    /// The right bytes, but the key does not open them as what the pointer says they are.
    Authentication,
}

impl Badness {
    /// One word, for messages.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Badness::Unreadable => "unreadable",
            Badness::Checksum => "checksum",
            Badness::Malformed => "malformed",
            Badness::Authentication => "authentication",
        }
    }
}

/// One copy that was tried and not used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Attempt {
    /// Where the pointer says it is.
    pub address: Address,
    /// The device it came from, if one can be named.
    pub device: Option<DeviceId>,
    /// The kind of fault.
    pub badness: Badness,
    /// Description by the layer below.
    pub detail: String,
    /// The device did not answer, or refused: what it holds is not known.
    pub is_away: bool,
}

/// A block of which at least one copy was bad.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BlockFault {
    /// Dataset, 0 for the pool's own metadata.
    pub dataset: DatasetId,
    /// Its kind.
    pub kind: BlockKind,
    /// Height above the leaves.
    pub level: u8,
    /// Logical bytes.
    pub lsize: u32,
    /// Txg that wrote it.
    pub birth: Txg,
    /// The bad copies.
    pub attempts: Vec<Attempt>,
    /// True if another copy was good, so that the reader got its bytes.
    pub healed: bool,
}

impl BlockFault {
    /// The gravest of what was wrong.
    #[must_use]
    pub fn badness(&self) -> Badness {
        self.attempts.iter().map(|attempt| attempt.badness).max().unwrap_or(Badness::Unreadable)
    }

    /// True if a copy may be good: its device did not give it.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.is_away)
    }
}

impl fmt::Display for BlockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlockFault { dataset, kind, level, .. } = self;
        write!(
            f,
            "{} failure of a block of dataset {dataset} ({kind:?}, level {level}): ",
            self.badness().word()
        )?;
        for (at, attempt) in self.attempts.iter().enumerate() {
            let Attempt { address, badness, detail, .. } = attempt;
            let (segment, offset) = (address.segment, address.offset);
            let comma = if at == 0 { "" } else { "; " };
            write!(f, "{comma}copy at segment {segment}, offset {offset}: {}, {detail}", badness.word())?;
        }
        Ok(())
    }
}

/// Hears of every block with a bad copy, healed or not. Called from the reading thread, so it
/// should not block.
pub trait ErrorLog: Send + Sync {
    /// A copy, or all of them, were bad.
    fn block_failed(&self, fault: &BlockFault);
}
