//! Extent: one record of a file's content. FORMAT.md, "Extent".
//!
//! Its key says where in the file it begins. What lies between the end of an extent and the next one reads as zeros.

use crate::layout::{Decoder, Encoder, Layout};
use crate::{BlockPointer, DecodeError};

/// One record of content.
///
/// | off | len | field    | meaning                                                              |
/// |-----|-----|----------|----------------------------------------------------------------------|
/// |   0 |   1 | kind     | 1 block, 2 inline                                                    |
/// |   1 |   3 | reserved | zero                                                                 |
/// |   4 |   4 | length   | bytes of content: of a block its first ones (a truncated block is not rewritten) |
/// |   8 |   n | content  | kind 1: block pointer (112 bytes); kind 2: `length` bytes            |
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Extent {
    /// In a block of its own.
    Block {
        /// The first so many bytes of the block count.
        length: u32,
        /// Where it is.
        pointer: BlockPointer,
    },
    /// In the tree itself.
    Inline(Vec<u8>),
}

/// Layout of [`Extent`].
pub static LAYOUT: Layout =
    Layout::new("extent", &[("kind", 0, 1), ("reserved", 1, 3), ("length", 4, 4)], &["content"]);

/// Bytes of a cut's value: its end.
pub const CUT_SIZE: usize = 8;

impl Extent {
    /// Most bytes that are kept in the tree itself. Leaf values are at most 3 KiB; above half of a 4 KiB sector a
    /// block of its own wastes less than the second copy of metadata costs.
    pub const INLINE_MAX: usize = 2048;

    /// Bytes of content.
    #[must_use]
    pub fn length(&self) -> u32 {
        match self {
            Extent::Block { length, .. } => *length,
            Extent::Inline(content) => u32::try_from(content.len()).expect("at most INLINE_MAX"),
        }
    }

    /// The extent's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new(&LAYOUT);
        match self {
            Extent::Block { length, pointer } => {
                assert!(*length > 0 && *length <= pointer.lsize, "a block holds what its extent shows");
                out.u8("kind", 1).reserved().u32("length", *length);
                out.tail("content", &pointer.to_bytes()).finish()
            }
            Extent::Inline(content) => {
                assert!(!content.is_empty() && content.len() <= Self::INLINE_MAX);
                out.u8("kind", 2).reserved().u32("length", self.length());
                out.tail("content", content).finish()
            }
        }
    }

    /// Reads an extent.
    pub fn decode(bytes: &[u8]) -> Result<Extent, DecodeError> {
        let mut from = Decoder::new(&LAYOUT, bytes)?;
        let kind = from.u8("kind");
        from.reserved()?;
        let length = from.u32("length");
        if length == 0 {
            return Err(from.refuse("length", length));
        }
        let extent = match kind {
            1 => {
                let pointer = BlockPointer::decode(from.tail("content", BlockPointer::ENCODED_SIZE)?)?;
                if length > pointer.lsize {
                    return Err(from.refuse("length", length));
                }
                Extent::Block { length, pointer }
            }
            2 => {
                let size = usize::try_from(length).ok().filter(|&size| size <= Self::INLINE_MAX);
                let Some(size) = size else { return Err(from.refuse("length", length)) };
                Extent::Inline(from.tail("content", size)?.to_vec())
            }
            _ => return Err(from.refuse("kind", kind)),
        };
        from.finish()?;
        Ok(extent)
    }
}

/// A cut's value.
#[must_use]
pub fn encode_cut(end: u64) -> [u8; CUT_SIZE] {
    end.to_le_bytes()
}

/// Reads the end of a cut that starts at `start`.
pub fn decode_cut(start: u64, bytes: &[u8]) -> Result<u64, DecodeError> {
    let (need, have) = (CUT_SIZE, bytes.len());
    let bytes = bytes.try_into().map_err(|_| DecodeError::Short { structure: "cut", need, have })?;
    let end = u64::from_le_bytes(bytes);
    if end <= start {
        return Err(DecodeError::Field { structure: "cut", field: "end", value: end });
    }
    Ok(end)
}

/// Any bytes: what is accepted encodes to what it came from.
pub fn fuzz(bytes: &[u8]) {
    if let Ok(extent) = Extent::decode(bytes) {
        assert_eq!(extent.encode(), bytes);
    }
    if let Ok(end) = decode_cut(0, bytes) {
        assert_eq!(encode_cut(end).as_slice(), bytes);
    }
}

const _: () = assert!(Extent::INLINE_MAX + 8 <= 3072, "an inline extent is a leaf value");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_keys::tests::from_hex;
    use crate::{Address, BlockKind, Compression, SegmentId, Stamp, Txg};

    fn block() -> Extent {
        let pointer = BlockPointer {
            hash: [7; 32],
            copies: [Address { segment: SegmentId(9), offset: 4096 }, Address::NONE],
            psize: 5000,
            lsize: 131_072,
            birth: Txg(3),
            stamp: Stamp { salt: [1; 16], counter: 77 },
            compression: Compression::Lz4,
            kind: BlockKind::Data,
            level: 0,
        };
        Extent::Block { length: 100_000, pointer }
    }

    #[test]
    fn golden_extents_decode_and_encode_to_the_same_bytes() {
        let golden = from_hex(include_str!("../golden/extent_inline.v1.hex"));
        let inline = Extent::Inline(b"small file".to_vec());
        assert_eq!(Extent::decode(&golden), Ok(inline.clone()));
        assert_eq!(inline.encode(), golden);
        let golden = from_hex(include_str!("../golden/extent_block.v1.hex"));
        assert_eq!(Extent::decode(&golden), Ok(block()));
        assert_eq!(block().encode(), golden);
    }

    #[test]
    fn what_is_not_allowed_is_refused() {
        for bytes in
            [&[][..], &[1, 0, 0, 0, 0, 0, 0, 0], &[2, 0, 0, 0, 2, 0, 0, 0, 9], &[2, 0, 0, 1, 1, 0, 0, 0, 9]]
        {
            assert!(Extent::decode(bytes).is_err(), "{bytes:?}");
        }
        let mut long = block().encode();
        long[7] = 1; // longer than the block
        assert!(Extent::decode(&long).is_err());
        assert!(decode_cut(5, &encode_cut(5)).is_err());
        assert_eq!(decode_cut(5, &encode_cut(6)), Ok(6));
    }
}
