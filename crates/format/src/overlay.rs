//! Overlay: bytes that were written over a part of a record, kept beside the record. FORMAT.md,
//! "Overlay".
//!
//! An overlay says which ranges of the record it covers and where their bytes are: all of them one
//! after the other in one block, or nowhere if they are zeros. Of several the later one wins.
//!
//! An overlay's block is always file content, one copy, level 0, and as long as its ranges
//! together. So its pointer leaves these fields out. Numbers are written as short as they are:
//! besides their own bytes, small overwrites cost leaves of the extents tree.

use std::ops::Range;

use crate::layout::{Decoder, Encoder, Layout};
use crate::{Address, BlockKind, BlockPointer, Compression, DecodeError, SegmentId, Stamp, Txg};

/// Ranges of a record that were written over, and their bytes.
///
/// | off | len | field    | meaning |
/// |-----|-----|----------|---|
/// |   0 |   1 | head     | bits 0 to 4: shift; 32: has a block; 64: it is sealed; 128: its salt is that of the pointer before |
/// |   1 |     | ranges   | number of ranges, then of each the gap before it and its length: varints, in units of 2^shift bytes |
/// |     |     | block    | if there is one: hash (32), compression (1), salt (16) if sealed and not that of the pointer before; varints: segment, offset, psize, birth, counter if sealed |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Overlay {
    /// In order, disjoint, not adjacent, not empty; by offset in the record.
    pub ranges: Vec<Range<u32>>,
    /// Their bytes, one range after the other; `None`: zeros.
    pub block: Option<BlockPointer>,
}

/// Layout of [`Overlay`].
pub static LAYOUT: Layout = Layout::new("overlay", &[("head", 0, 1)], &["ranges", "block"]);

const HAS_BLOCK: u8 = 32;
const SEALED: u8 = 64;
const SAME_SALT: u8 = 128;
const SHIFT: u8 = 31;

impl Overlay {
    /// Bytes of an overlay but its ranges, at most.
    pub const BLOCK_BYTES_MAX: usize = 1 + 32 + 1 + 16 + 10 + 5 + 4 + 10 + 10;

    /// Bytes that `count` ranges take, at most.
    #[must_use]
    pub const fn ranges_bytes_max(count: usize) -> usize {
        // A number of bytes up to 16 MiB is a varint of four bytes.
        2 + 8 * count
    }

    /// Bytes of the record that it covers.
    #[must_use]
    pub fn covered(&self) -> u32 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Appends the overlay's bytes; `before` is the nearest pointer before it in the extent.
    pub(crate) fn encode(&self, before: Option<&BlockPointer>, out: &mut Vec<u8>) {
        let shift = shift_of(&self.ranges);
        let mut head = shift;
        let mut ranges = Vec::with_capacity(Self::ranges_bytes_max(self.ranges.len()));
        put_varint(&mut ranges, self.ranges.len() as u64);
        let mut end = 0;
        for range in &self.ranges {
            put_varint(&mut ranges, u64::from(range.start - end) >> shift);
            put_varint(&mut ranges, u64::from(range.end - range.start) >> shift);
            end = range.end;
        }
        let mut block = Vec::with_capacity(if self.block.is_some() { Self::BLOCK_BYTES_MAX } else { 0 });
        if let Some(pointer) = &self.block {
            assert_eq!(
                (pointer.lsize, pointer.kind, pointer.level, pointer.copy_count(), pointer.written),
                (self.covered(), BlockKind::Data, 0, 1, Txg(0)),
                "the block of an overlay holds its ranges, and is nobody else's"
            );
            head |= HAS_BLOCK;
            block.extend_from_slice(&pointer.hash);
            block.push(pointer.compression as u8);
            if pointer.is_sealed() {
                head |= SEALED;
                if same_salt(before, &pointer.stamp) {
                    head |= SAME_SALT;
                } else {
                    block.extend_from_slice(&pointer.stamp.salt);
                }
            }
            put_varint(&mut block, pointer.copies[0].segment.0);
            put_varint(&mut block, pointer.copies[0].offset.into());
            put_varint(&mut block, pointer.psize.into());
            put_varint(&mut block, pointer.birth.0);
            if pointer.is_sealed() {
                put_varint(&mut block, pointer.stamp.counter);
            }
        }
        let mut encoder = Encoder::new(&LAYOUT);
        out.extend(encoder.u8("head", head).tail("ranges", &ranges).tail("block", &block).finish());
    }

    /// Reads an overlay off the front, and how many bytes it took.
    pub(crate) fn decode(
        bytes: &[u8],
        before: Option<&BlockPointer>,
    ) -> Result<(Overlay, usize), DecodeError> {
        let mut from = Decoder::new(&LAYOUT, bytes)?;
        let head = from.u8("head");
        let refuse = |field, value| DecodeError::Field { structure: LAYOUT.name, field, value };
        let mut ranges_from = Varints::new(from.rest());
        let ranges = decode_ranges(&mut ranges_from, head & SHIFT)?;
        from.tail("ranges", ranges_from.at)?;
        if shift_of(&ranges) != head & SHIFT {
            return Err(refuse("shift", u64::from(head & SHIFT)));
        }
        let mut overlay = Overlay { ranges, block: None };
        if head & HAS_BLOCK == 0 {
            if head & (SEALED | SAME_SALT) != 0 {
                return Err(refuse("head", head.into()));
            }
            from.tail("block", 0)?;
            return Ok((overlay, from.taken()));
        }
        let mut block = Varints::new(from.rest());
        let hash = block.bytes(32)?.try_into().expect("32 bytes");
        let compression = Compression::from_u8(block.bytes(1)?[0])?;
        let mut stamp = Stamp::default();
        match (head & SEALED != 0, head & SAME_SALT != 0) {
            (false, false) => {}
            (false, true) => return Err(refuse("head", head.into())),
            (true, true) => match before {
                Some(before) if before.is_sealed() => stamp.salt = before.stamp.salt,
                _ => return Err(refuse("head", head.into())),
            },
            (true, false) => {
                stamp.salt = block.bytes(16)?.try_into().expect("16 bytes");
                if same_salt(before, &stamp) {
                    return Err(refuse("head", head.into()));
                }
            }
        }
        let segment = SegmentId(block.number()?);
        let offset = block.number32("offset")?;
        let psize = block.number32("psize")?;
        let birth = Txg(block.number()?);
        if head & SEALED != 0 {
            stamp.counter = block.number()?;
            if stamp.counter == 0 {
                return Err(refuse("counter", 0));
            }
        }
        from.tail("block", block.at)?;
        let pointer = BlockPointer {
            hash,
            copies: [Address { segment, offset }, Address::NONE, Address::NONE],
            psize,
            lsize: overlay.covered(),
            birth,
            written: Txg(0),
            stamp,
            compression,
            kind: BlockKind::Data,
            level: 0,
        };
        overlay.block = Some(pointer.checked()?);
        Ok((overlay, from.taken()))
    }
}

/// True if `stamp` has the salt of the sealed pointer before it.
fn same_salt(before: Option<&BlockPointer>, stamp: &Stamp) -> bool {
    before.is_some_and(|before| before.is_sealed() && before.stamp.salt == stamp.salt)
}

/// The greatest shift of which all ends of `ranges` are multiples; at most that of the greatest
/// block.
fn shift_of(ranges: &[Range<u32>]) -> u8 {
    let bits = ranges.iter().fold(BlockPointer::LSIZE_MAX, |bits, range| bits | range.start | range.end);
    u8::try_from(bits.trailing_zeros()).expect("at most 24")
}

fn decode_ranges(from: &mut Varints<'_>, shift: u8) -> Result<Vec<Range<u32>>, DecodeError> {
    let refuse = |field, value| DecodeError::Field { structure: LAYOUT.name, field, value };
    let count = from.number()?;
    // Each takes two bytes at least, so a count that lies is noticed before room is made for it.
    if count == 0 || count > (from.bytes.len() / 2) as u64 {
        return Err(refuse("ranges", count));
    }
    let mut ranges: Vec<Range<u32>> = Vec::new();
    let mut end = 0_u64;
    for number in 0..count {
        let (gap, length) = (from.number()?, from.number()?);
        if length == 0 || (gap == 0 && number > 0) {
            return Err(refuse("ranges", length));
        }
        let limit = u64::from(BlockPointer::LSIZE_MAX) >> shift.min(24);
        let start = end.saturating_add(gap);
        end = start.saturating_add(length);
        if end > limit {
            return Err(refuse("ranges", end));
        }
        let bytes = |units: u64| u32::try_from(units << shift).expect("at most 16 MiB");
        ranges.push(bytes(start)..bytes(end));
    }
    Ok(ranges)
}

/// Appends a number: seven bits a byte, lowest first, the highest bit set on all bytes but the
/// last.
fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        out.push(u8::try_from(number & 127).expect("seven bits") | 128);
        number >>= 7;
    }
    out.push(u8::try_from(number).expect("seven bits"));
}

/// Reads numbers and bytes off the front.
struct Varints<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Varints<'b> {
    fn new(bytes: &'b [u8]) -> Varints<'b> {
        Varints { bytes, at: 0 }
    }

    fn bytes(&mut self, count: usize) -> Result<&'b [u8], DecodeError> {
        let (need, have) = (self.at + count, self.bytes.len());
        if need > have {
            return Err(DecodeError::Short { structure: LAYOUT.name, need, have });
        }
        self.at = need;
        Ok(&self.bytes[need - count..need])
    }

    fn number(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.bytes(1)?[0];
            let bits = u64::from(byte & 127);
            // No bits beyond the 64th, and no last byte that says nothing: a number has one form.
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                break;
            }
            number |= bits << shift;
            if byte < 128 {
                return Ok(number);
            }
        }
        Err(DecodeError::Field { structure: LAYOUT.name, field: "varint", value: number })
    }

    fn number32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        let number = self.number()?;
        let refuse = |_| DecodeError::Field { structure: LAYOUT.name, field, value: number };
        u32::try_from(number).map_err(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_form() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            assert_eq!(Varints::new(&bytes).number(), Ok(number));
            assert!(bytes.len() <= 10);
            if number < 128 {
                // The same with a byte more that says nothing.
                let padded = [u8::try_from(number).expect("small") | 128, 0];
                assert!(Varints::new(&padded).number().is_err());
            }
        }
        assert!(Varints::new(&[255; 10]).number().is_err());
        assert!(Varints::new(&[128]).number().is_err());
    }

    #[test]
    fn a_set_of_ranges_has_one_form() {
        assert!(Overlay::decode(&[13, 1, 0, 1], None).is_ok());
        assert!(Overlay::decode(&[12, 1, 0, 2], None).is_err(), "a shift that is not the greatest");
        assert!(Overlay::decode(&[0, 1, 0, 0], None).is_err(), "an empty range");
        assert!(Overlay::decode(&[0, 2, 0, 1, 0, 1], None).is_err(), "two ranges that touch");
        assert!(Overlay::decode(&[24, 1, 1, 1], None).is_err(), "beyond the greatest record");
        assert!(Overlay::decode(&[64, 1, 0, 1], None).is_err(), "zeros that are sealed");
    }

    #[test]
    fn the_bounds_of_encoded_overlays_hold() {
        let worst = Overlay {
            ranges: (0..16).map(|at| at * 1_000_001..at * 1_000_001 + 999_999).collect(),
            block: Some(BlockPointer {
                hash: [1; 32],
                copies: [
                    Address { segment: SegmentId(SegmentId::END - 1), offset: u32::MAX },
                    Address::NONE,
                    Address::NONE,
                ],
                psize: BlockPointer::PSIZE_MAX,
                lsize: 16 * 999_999,
                birth: Txg(Txg::END - 1),
                written: Txg(0),
                stamp: Stamp { salt: [1; 16], counter: u64::MAX },
                compression: Compression::Off,
                kind: BlockKind::Data,
                level: 0,
            }),
        };
        let mut out = Vec::new();
        worst.encode(None, &mut out);
        assert!(out.len() <= Overlay::BLOCK_BYTES_MAX + Overlay::ranges_bytes_max(16));
        assert_eq!(Overlay::decode(&out, None), Ok((worst, out.len())));
    }
}
