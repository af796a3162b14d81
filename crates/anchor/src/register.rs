//! The interface of a register.

use steadfast_format::anchor::RecordBytes;

/// Keeps one record and changes it by compare-and-swap, linearizably: a read returns what the last
/// swap that was done has put there, and of two swaps from the same record one is done.
///
/// A register knows a record as bytes with a `seq`; it has no keys and judges nothing else.
pub trait Register: Send + Sync {
    /// Name in messages: a path or an address.
    fn identity(&self) -> String;

    /// Refuses a place that holds something already, unless it may be replaced. Changes nothing.
    fn check_vacant(&self, replace: bool) -> Result<(), RegisterError>;

    /// Puts the first record into a place that is vacant (or, with `replace`, into any). Durable
    /// when it returns.
    fn create(&self, first: &RecordBytes, replace: bool) -> Result<(), RegisterError>;

    /// The record.
    fn read(&self) -> Result<Box<RecordBytes>, RegisterError>;

    /// Replaces `expected` by `next`, durable when it returns. Done as well if the register holds
    /// `next` already: sending a swap again whose outcome is not known does it once.
    fn swap(&self, expected: &RecordBytes, next: &RecordBytes) -> Result<(), SwapError>;
}

/// Why a register did not do as it was told.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// There is none.
    #[error("there is no anchor at {register}")]
    Missing {
        /// The register.
        register: String,
    },
    /// The file is no register, or none any more.
    #[error("the anchor {register} is damaged: {reason}")]
    Damaged {
        /// The register.
        register: String,
        /// The fault.
        reason: String,
    },
    /// A register cannot be kept there.
    #[error("{register} cannot hold an anchor: {reason}")]
    Unfit {
        /// The place.
        register: String,
        /// Why.
        reason: String,
    },
    /// The place holds something already.
    #[error("{register} holds {contents}")]
    Occupied {
        /// The place.
        register: String,
        /// Its content.
        contents: String,
    },
    /// It does not answer, or answers with errors. Whether a swap was done is not known.
    #[error("the anchor {register} does not answer: {reason}")]
    Unreachable {
        /// The register.
        register: String,
        /// The system's error.
        reason: String,
    },
}

/// Why a swap was not done, as far as is known.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SwapError {
    /// The register holds neither what was expected nor what should take its place.
    #[error("the anchor holds another record")]
    Lost(Box<RecordBytes>),
    /// The register failed.
    #[error(transparent)]
    Failed(#[from] RegisterError),
}
