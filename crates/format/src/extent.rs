//! Extent: one record of a file's content. FORMAT.md, "Extent".
//!
//! Its key says where in the file it begins. Bytes between the end of an extent and the next one
//! read as zeros.

use crate::layout::{Decoder, Encoder, Layout};
use crate::overlay::Overlay;
use crate::{BlockPointer, DecodeError};

/// One record of content.
///
/// | off | len | field    | meaning |
/// |-----|-----|----------|---|
/// |   0 |   1 | kind     | 1 block, 2 inline, 3 overlaid |
/// |   1 |   3 | reserved | zero |
/// |   4 |   4 | length   | bytes of content: of a block its first ones (a truncated block is not rewritten) |
/// |   8 |   n | content  | kind 1: block pointer (112 bytes); kind 2: `length` bytes; kind 3: see [`Overlaid`] |
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
    /// In a block, if there is one, and in overlays over it. Feature `overlays`.
    Overlaid(Overlaid),
}

/// A record with overlays: a base, and what was written over it since.
///
/// | off | len | field       | meaning                                                           |
/// |-----|-----|-------------|-------------------------------------------------------------------|
/// |   0 |   4 | base_length | bytes of content at the start of the base; 0: there is no base     |
/// |   4 |     | base        | if there is one: block pointer (112 bytes)                        |
/// |     |     | overlays    | one at least, oldest first, up to the end of the value            |
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Overlaid {
    /// Bytes of content: up to the end of the last one that a block gives.
    pub length: u32,
    /// Content below all overlays. Without it, bytes that no overlay covers are zeros.
    pub base: Option<Base>,
    /// Oldest first; where several cover a byte the last one counts.
    pub overlays: Vec<Overlay>,
}

/// The block below overlays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Base {
    /// The first so many bytes of the block count.
    pub length: u32,
    /// Where it is.
    pub pointer: BlockPointer,
}

/// Layout of [`Overlaid`].
pub static OVERLAID_LAYOUT: Layout =
    Layout::new("overlaid_extent", &[("base_length", 0, 4)], &["base", "overlays"]);

/// Layout of [`Extent`].
pub static LAYOUT: Layout =
    Layout::new("extent", &[("kind", 0, 1), ("reserved", 1, 3), ("length", 4, 4)], &["content"]);

/// Bytes of a cut's value: its end.
pub const CUT_SIZE: usize = 8;

impl Extent {
    /// Most bytes that are kept in the tree itself. Leaf values are at most 3 KiB; above half of a
    /// 4 KiB sector a block of its own wastes less than the second copy of metadata costs.
    pub const INLINE_MAX: usize = 2048;

    /// Bytes of content.
    #[must_use]
    pub fn length(&self) -> u32 {
        match self {
            Extent::Block { length, .. } => *length,
            Extent::Inline(content) => u32::try_from(content.len()).expect("at most INLINE_MAX"),
            Extent::Overlaid(overlaid) => overlaid.length,
        }
    }

    /// Pointers of all its blocks.
    #[must_use]
    pub fn pointers(&self) -> Vec<&BlockPointer> {
        match self {
            Extent::Block { pointer, .. } => vec![pointer],
            Extent::Inline(_) => Vec::new(),
            Extent::Overlaid(overlaid) => overlaid.pointers().collect(),
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
            Extent::Overlaid(overlaid) => {
                out.u8("kind", 3).reserved().u32("length", overlaid.length);
                out.tail("content", &overlaid.encode()).finish()
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
            3 => {
                let content = from.tail("content", from.rest().len())?;
                Extent::Overlaid(Overlaid::decode(length, content)?)
            }
            _ => return Err(from.refuse("kind", kind)),
        };
        from.finish()?;
        Ok(extent)
    }
}

impl Overlaid {
    /// Pointers of all its blocks, the base's first.
    pub fn pointers(&self) -> impl Iterator<Item = &BlockPointer> {
        let base = self.base.iter().map(|base| &base.pointer);
        base.chain(self.overlays.iter().filter_map(|overlay| overlay.block.as_ref()))
    }

    /// End of the last byte that anything in it speaks of.
    #[must_use]
    pub fn end(&self) -> u32 {
        let base = self.base.map_or(0, |base| base.length);
        let ends = self.overlays.iter().filter_map(|overlay| overlay.ranges.last()).map(|range| range.end);
        ends.fold(base, u32::max)
    }

    fn encode(&self) -> Vec<u8> {
        assert!(self.length > 0 && self.length <= self.end() && !self.overlays.is_empty());
        let mut encoder = Encoder::new(&OVERLAID_LAYOUT);
        let (length, base) = match &self.base {
            Some(base) => (base.length, base.pointer.to_bytes().to_vec()),
            None => (0, Vec::new()),
        };
        let mut overlays = Vec::new();
        let mut before = self.base.as_ref().map(|base| &base.pointer);
        for overlay in &self.overlays {
            overlay.encode(before, &mut overlays);
            before = overlay.block.as_ref().or(before);
        }
        encoder.u32("base_length", length).tail("base", &base).tail("overlays", &overlays).finish()
    }

    fn decode(length: u32, bytes: &[u8]) -> Result<Overlaid, DecodeError> {
        let mut from = Decoder::new(&OVERLAID_LAYOUT, bytes)?;
        let base_length = from.u32("base_length");
        let base = match base_length {
            0 => {
                from.tail("base", 0)?;
                None
            }
            length => {
                let pointer = BlockPointer::decode(from.tail("base", BlockPointer::ENCODED_SIZE)?)?;
                if length > pointer.lsize {
                    return Err(from.refuse("base_length", length));
                }
                Some(Base { length, pointer })
            }
        };
        let mut rest = from.tail("overlays", from.rest().len())?;
        let mut overlaid = Overlaid { length, base, overlays: Vec::new() };
        let mut before = base.map(|base| base.pointer);
        while !rest.is_empty() {
            let (overlay, taken) = Overlay::decode(rest, before.as_ref())?;
            before = overlay.block.or(before);
            overlaid.overlays.push(overlay);
            rest = &rest[taken..];
        }
        if overlaid.overlays.is_empty() || length > overlaid.end() {
            return Err(from.refuse("length", length));
        }
        from.finish()?;
        Ok(overlaid)
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
#[allow(clippy::single_range_in_vec_init, reason = "an overlay may have one range")]
mod tests {
    use super::*;
    use crate::file_keys::tests::from_hex;
    use crate::{Address, BlockKind, Compression, SegmentId, Stamp, Txg};

    fn block() -> Extent {
        let pointer = BlockPointer {
            hash: [7; 32],
            copies: [Address { segment: SegmentId(9), offset: 4096 }, Address::NONE, Address::NONE],
            psize: 5000,
            lsize: 131_072,
            birth: Txg(3),
            written: Txg(0),
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

    fn overlaid() -> Extent {
        let Extent::Block { pointer: base, .. } = block() else { unreachable!() };
        let over = |ranges: &[std::ops::Range<u32>], place: u32, stamp: Stamp| Overlay {
            ranges: ranges.to_vec(),
            block: Some(BlockPointer {
                hash: [8; 32],
                copies: [Address { segment: SegmentId(300), offset: place }, Address::NONE, Address::NONE],
                psize: 4_112,
                lsize: ranges.iter().map(|range| range.end - range.start).sum(),
                birth: Txg(4),
                stamp,
                compression: Compression::Off,
                ..base
            }),
        };
        let sealed = |salt, counter| Stamp { salt: [salt; 16], counter };
        Extent::Overlaid(Overlaid {
            length: 100_001,
            base: Some(Base { length: 100_000, pointer: base }),
            overlays: vec![
                over(&[4_096..8_192, 12_288..16_384], 8_192, sealed(1, 200)),
                Overlay { ranges: vec![1..3], block: None },
                over(&[100_000..100_001], 16_384, sealed(2, 1)),
                over(&[0..4_096], 20_480, Stamp::default()),
            ],
        })
    }

    #[test]
    fn golden_overlays_decode_and_encode_to_the_same_bytes() {
        let golden = from_hex(include_str!("../golden/extent_overlaid.v1.hex"));
        assert_eq!(overlaid().encode(), golden);
        assert_eq!(Extent::decode(&golden), Ok(overlaid()));
        let bare = Extent::Overlaid(Overlaid {
            base: None,
            overlays: vec![Overlay { ranges: vec![9..10], block: None }],
            length: 10,
        });
        assert_eq!(Extent::decode(&bare.encode()), Ok(bare));
    }

    #[test]
    fn what_is_not_allowed_is_refused() {
        for bytes in
            [&[][..], &[1, 0, 0, 0, 0, 0, 0, 0], &[2, 0, 0, 0, 2, 0, 0, 0, 9], &[2, 0, 0, 1, 1, 0, 0, 0, 9]]
        {
            assert!(Extent::decode(bytes).is_err(), "{bytes:?}");
        }
        let golden = overlaid().encode();
        for (at, byte, why) in [
            (6, 0x7f, "longer than anything in it"),
            (8 + 2, 0x7f, "the base shows more than it holds"),
            (124, 0x6c, "a salt repeated and not said to be"),
            (125, 0, "no ranges"),
            (127, 0, "an empty range"),
            (128, 0, "two ranges that touch"),
        ] {
            assert_ne!(golden[at], byte);
            let mut bytes = golden.clone();
            bytes[at] = byte;
            assert!(Extent::decode(&bytes).is_err(), "{why}");
        }
        for length in 8..golden.len() {
            let whole = Extent::decode(&golden[..length]);
            assert!(
                whole.is_err()
                    || length > 124 && whole.is_ok_and(|extent| extent.encode() == golden[..length])
            );
        }
        let mut long = block().encode();
        long[7] = 1; // longer than the block
        assert!(Extent::decode(&long).is_err());
        assert!(decode_cut(5, &encode_cut(5)).is_err());
        assert_eq!(decode_cut(5, &encode_cut(6)), Ok(6));
    }
}
