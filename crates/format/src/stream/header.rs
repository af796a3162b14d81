//! The header of a stream.

use crate::DecodeError;
use crate::layout::{Decoder, Encoder, Layout};

const MAGIC: &[u8; 8] = b"SFstream";

/// The first bytes of a stream.
///
/// | off | len | field    | meaning |
/// |-----|-----|----------|---|
/// |   0 |   8 | magic    | "SFstream" |
/// |   8 |   4 | version  | 1 |
/// |  12 |   4 | flags    | bit 0: with packed records; bit 1: with notes; bit 2: with repeated content; bit 3: with members; bit 4: with what raw snapshots keep; a reader that does not know a bit refuses the stream |
/// |  16 |  48 | reserved | zero |
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StreamHeader {
    /// Content of some of its snapshots comes in packed records.
    pub packed: bool,
    /// Some of its snapshots come with notes.
    pub notes: bool,
    /// Content that came before may be named instead of sent again.
    pub repeats: bool,
    /// It begins with the file systems of the tree that it is of.
    pub members: bool,
    /// Some of its raw snapshots say what they keep, and not what is gone.
    pub kept: bool,
}

impl StreamHeader {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "stream_header",
        &[("magic", 0, 8), ("version", 8, 4), ("flags", 12, 4), ("reserved", 16, 48)],
        &[],
    );
    /// Its length.
    pub const SIZE: usize = 64;
    /// Version written here.
    pub const VERSION: u32 = 1;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("magic", MAGIC).u32("version", Self::VERSION);
        let flags = u32::from(self.packed) | u32::from(self.notes) << 1 | u32::from(self.repeats) << 2;
        let flags = flags | u32::from(self.members) << 3 | u32::from(self.kept) << 4;
        out.u32("flags", flags).reserved().finish_array()
    }

    /// True if these bytes, or what follows them, may be one.
    #[must_use]
    pub fn may_begin(bytes: &[u8]) -> bool {
        MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())])
    }

    /// Reads it.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<StreamHeader, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        if from.bytes("magic", 8) != MAGIC {
            return Err(DecodeError::Magic { structure: "stream_header" });
        }
        let found = from.u32("version");
        if found == 0 || found > Self::VERSION {
            return Err(DecodeError::Version { structure: "stream_header", found, known: Self::VERSION });
        }
        let flags = from.u32("flags");
        if flags > 31 {
            return Err(from.refuse("flags", flags));
        }
        from.reserved()?;
        from.finish()?;
        Ok(StreamHeader {
            packed: flags & 1 != 0,
            notes: flags & 2 != 0,
            repeats: flags & 4 != 0,
            members: flags & 8 != 0,
            kept: flags & 16 != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_and_unknown_flags_are_refused() {
        for flags in 0..32_u8 {
            let [packed, notes, repeats, members, kept] = [1, 2, 4, 8, 16].map(|bit| flags & bit != 0);
            let header = StreamHeader { packed, notes, repeats, members, kept };
            assert_eq!((header.encode()[12], StreamHeader::decode(&header.encode())), (flags, Ok(header)));
        }
        let bytes = StreamHeader::default().encode();
        assert_eq!(StreamHeader::decode(&bytes), Ok(StreamHeader::default()));
        let mut newer = bytes;
        newer[8] = 2;
        let error = StreamHeader::decode(&newer).unwrap_err();
        assert_eq!(error, DecodeError::Version { structure: "stream_header", found: 2, known: 1 });
        for at in [0, 12, 16, 63] {
            let mut bad = bytes;
            bad[at] ^= 32;
            assert!(StreamHeader::decode(&bad).is_err(), "byte {at}");
        }
    }
}
