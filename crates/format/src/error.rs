//! Errors of a decoder.

/// Why bytes are not the structure they should be. Decoders return this for any input and never
/// panic.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Fewer bytes than the structure needs.
    #[error("{structure}: {have} bytes where {need} are needed")]
    Short {
        /// Structure being decoded.
        structure: &'static str,
        /// Bytes needed.
        need: usize,
        /// Bytes given.
        have: usize,
    },
    /// A magic number is not ours.
    #[error("{structure}: magic number is not Steadfast's")]
    Magic {
        /// Structure being decoded.
        structure: &'static str,
    },
    /// A version this code does not know.
    #[error("{structure}: format version {found} is not known here (this code knows up to {known})")]
    Version {
        /// Structure being decoded.
        structure: &'static str,
        /// Version found.
        found: u32,
        /// Greatest version known.
        known: u32,
    },
    /// A field holds a value that is not allowed.
    #[error("{structure}: field {field} holds {value}, which is not allowed")]
    Field {
        /// Structure being decoded.
        structure: &'static str,
        /// Field's name as in FORMAT.md.
        field: &'static str,
        /// Value found.
        value: u64,
    },
    /// Reserved bytes are not zero.
    #[error("{structure}: reserved bytes are not zero")]
    Reserved {
        /// Structure being decoded.
        structure: &'static str,
    },
    /// The checksum does not match the bytes.
    #[error("{structure}: checksum does not match")]
    Checksum {
        /// Structure being decoded.
        structure: &'static str,
    },
    /// More bytes than the structure has.
    #[error("{structure}: {extra} bytes follow where nothing may")]
    Trailing {
        /// Structure being decoded.
        structure: &'static str,
        /// Bytes too many.
        extra: usize,
    },
    /// A text is not UTF-8.
    #[error("{structure}: field {field} is not UTF-8 text")]
    Text {
        /// Structure being decoded.
        structure: &'static str,
        /// Field's name as in FORMAT.md.
        field: &'static str,
    },
}
