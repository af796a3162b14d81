//! Block pointer: where a block is, what it hashes to, and how to open it. FORMAT.md, "Block
//! pointer".

use crate::layout::Layout;
use crate::{DecodeError, SegmentId, Txg};

/// Virtual address of a block: a segment and a byte offset in it (a multiple of the pool's
/// allocation unit). Stays true for the block's whole life; where the bytes lie now is the segment
/// table's business.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Address {
    /// Segment; 0 means "no copy here".
    pub segment: SegmentId,
    /// Byte offset in the segment's payload.
    pub offset: u32,
}

impl Address {
    /// No copy.
    pub const NONE: Address = Address { segment: SegmentId(0), offset: 0 };

    /// True if this names a place.
    #[must_use]
    pub fn is_some(self) -> bool {
        self.segment.0 != 0
    }
}

/// How a block's bytes were compressed before they were sealed.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Compression {
    /// Stored as it is.
    #[default]
    Off = 1,
    /// LZ4 block format.
    Lz4 = 2,
    /// Zstandard frame (the level is not needed to open it).
    Zstd = 3,
    /// Runs of zeros removed.
    Zle = 4,
}

impl Compression {
    pub(crate) fn from_u8(value: u8) -> Result<Self, DecodeError> {
        Ok(match value {
            1 => Compression::Off,
            2 => Compression::Lz4,
            3 => Compression::Zstd,
            4 => Compression::Zle,
            _ => return Err(field("compression", value.into())),
        })
    }
}

/// Kind of a block. Bound into its seal, so a block of one kind is never taken for another.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum BlockKind {
    /// File content.
    Data = 1,
    /// Node of a dataset's names tree.
    Names = 2,
    /// Node of a dataset's extents tree.
    Extents = 3,
    /// Node of the pool's meta tree.
    Meta = 4,
    /// Commit tail.
    Tail = 5,
}

impl BlockKind {
    fn from_u8(value: u8) -> Result<Self, DecodeError> {
        Ok(match value {
            1 => BlockKind::Data,
            2 => BlockKind::Names,
            3 => BlockKind::Extents,
            4 => BlockKind::Meta,
            5 => BlockKind::Tail,
            _ => return Err(field("kind", value.into())),
        })
    }

    /// Metadata is stored twice, whatever the property `copies` says.
    #[must_use]
    pub fn is_metadata(self) -> bool {
        self != BlockKind::Data
    }
}

/// How a sealed block's key and nonce are found again: key = HKDF(master, salt), nonce = counter
/// ‖ 0. Not a secret. All zero on a block that is not sealed.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Stamp {
    /// Random per import and dataset key.
    pub salt: [u8; 16],
    /// Unique under one salt; starts at 1 on sealed blocks.
    pub counter: u64,
}

/// Pointer to a block. Encoded in [`BlockPointer::ENCODED_SIZE`] bytes; all zero bytes mean "no
/// block" and are handled by `decode_option`.
///
/// | off | len | field       | meaning |
/// |-----|-----|-------------|---|
/// |   0 |  32 | hash        | BLAKE3 of the `psize` stored bytes |
/// |  32 |   8 | segment_0   | first copy's segment |
/// |  40 |   4 | offset_0    | first copy's offset |
/// |  44 |   4 | psize       | bytes stored (after compression and sealing, before padding)|
/// |  48 |   8 | segment_1   | second copy's segment, 0 if there is none |
/// |  56 |   4 | offset_1    | second copy's offset |
/// |  60 |   4 | lsize       | bytes after opening and decompression |
/// |  64 |   8 | birth       | txg that wrote the block, or made this reference to it |
/// |  72 |  16 | salt        | sealed: epoch salt of the sealing key; else the third copy's segment (8) and offset (4), or zero |
/// |  88 |   8 | counter     | nonce counter; zero if not sealed |
/// |  96 |   1 | compression | 1 off, 2 lz4, 3 zstd, 4 zle |
/// |  97 |   1 | kind        | 1 data, 2 names, 3 extents, 4 meta, 5 tail |
/// |  98 |   1 | level       | 0 for data and leaves, height for inner nodes |
/// |  99 |   5 | reserved    | zero |
/// | 104 |   8 | written     | txg that wrote the block if this is a later reference to it, whose own txg is `birth`; else 0 |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlockPointer {
    /// BLAKE3 of the stored bytes.
    pub hash: [u8; 32],
    /// One, two or three places; those behind the last one are [`Address::NONE`]. Three only of
    /// file content that is not sealed.
    pub copies: [Address; BlockPointer::COPIES_MAX],
    /// Stored size in bytes.
    pub psize: u32,
    /// Logical size in bytes.
    pub lsize: u32,
    /// Txg that wrote the block; of a reference that was made to a block which was there, the txg
    /// that made it. Snapshots and deadlists compare this txg.
    pub birth: Txg,
    /// Txg that wrote the block where `birth` is a younger one, else 0.
    pub written: Txg,
    /// Key and nonce of the seal.
    pub stamp: Stamp,
    /// Compression of the opened bytes.
    pub compression: Compression,
    /// Its kind.
    pub kind: BlockKind,
    /// Height above the leaves.
    pub level: u8,
}

fn field(field: &'static str, value: u64) -> DecodeError {
    DecodeError::Field { structure: "block_pointer", field, value }
}

impl BlockPointer {
    /// Offsets and lengths. Pointers are read often, so their code has the offsets in line; a test
    /// compares.
    pub const LAYOUT: Layout = Layout::new(
        "block_pointer",
        &[
            ("hash", 0, 32),
            ("segment_0", 32, 8),
            ("offset_0", 40, 4),
            ("psize", 44, 4),
            ("segment_1", 48, 8),
            ("offset_1", 56, 4),
            ("lsize", 60, 4),
            ("birth", 64, 8),
            ("salt", 72, 16),
            ("counter", 88, 8),
            ("compression", 96, 1),
            ("kind", 97, 1),
            ("level", 98, 1),
            ("reserved", 99, 5),
            ("written", 104, 8),
        ],
        &[],
    );
    /// Places that a block may have.
    pub const COPIES_MAX: usize = 3;
    /// Bytes of an encoded pointer.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();
    /// Greatest logical size of a block: 16 MiB.
    pub const LSIZE_MAX: u32 = 16 << 20;
    /// Greatest stored size: a block that did not compress, with its seal's tag.
    pub const PSIZE_MAX: u32 = Self::LSIZE_MAX + 16;

    /// True if the block was sealed.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.stamp.counter != 0
    }

    /// Txg that wrote the block: what its seal is bound to.
    #[must_use]
    pub fn written_in(&self) -> Txg {
        if self.written.0 == 0 { self.birth } else { self.written }
    }

    /// A reference to the same block that is made in `txg`.
    #[must_use]
    pub fn referred_in(&self, txg: Txg) -> BlockPointer {
        let written = self.written_in();
        BlockPointer { birth: txg, written: if written < txg { written } else { Txg(0) }, ..*self }
    }

    /// Number of copies, 1 to 3.
    #[must_use]
    pub fn copy_count(&self) -> usize {
        1 + self.copies[1..].iter().filter(|copy| copy.is_some()).count()
    }

    /// Bytes one copy occupies with allocation units of `unit` bytes (a power of two).
    #[must_use]
    pub fn asize(&self, unit: u32) -> u32 {
        debug_assert!(unit.is_power_of_two());
        (self.psize + unit - 1) & !(unit - 1)
    }

    /// Writes the pointer's bytes.
    pub fn encode(&self, out: &mut [u8; Self::ENCODED_SIZE]) {
        assert!(self.copies[0].is_some(), "a pointer has a first copy");
        assert!(self.psize > 0 && self.lsize > 0 && self.lsize <= Self::LSIZE_MAX);
        out.fill(0);
        out[0..32].copy_from_slice(&self.hash);
        out[32..40].copy_from_slice(&self.copies[0].segment.0.to_le_bytes());
        out[40..44].copy_from_slice(&self.copies[0].offset.to_le_bytes());
        out[44..48].copy_from_slice(&self.psize.to_le_bytes());
        out[48..56].copy_from_slice(&self.copies[1].segment.0.to_le_bytes());
        out[56..60].copy_from_slice(&self.copies[1].offset.to_le_bytes());
        out[60..64].copy_from_slice(&self.lsize.to_le_bytes());
        out[64..72].copy_from_slice(&self.birth.0.to_le_bytes());
        match self.copies[2] {
            Address::NONE => out[72..88].copy_from_slice(&self.stamp.salt),
            third => {
                assert!(self.stamp == Stamp::default(), "a third copy stands where a salt would");
                assert!(self.copies[1].is_some() && self.kind == BlockKind::Data);
                out[72..80].copy_from_slice(&third.segment.0.to_le_bytes());
                out[80..84].copy_from_slice(&third.offset.to_le_bytes());
            }
        }
        out[88..96].copy_from_slice(&self.stamp.counter.to_le_bytes());
        out[96] = self.compression as u8;
        out[97] = self.kind as u8;
        out[98] = self.level;
        out[104..112].copy_from_slice(&self.written.0.to_le_bytes());
    }

    /// The pointer's bytes as an array.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::ENCODED_SIZE] {
        let mut out = [0; Self::ENCODED_SIZE];
        self.encode(&mut out);
        out
    }

    /// Reads a pointer; all zero bytes are an error here.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let have = bytes.len();
        if have < Self::ENCODED_SIZE {
            return Err(DecodeError::Short { structure: "block_pointer", need: Self::ENCODED_SIZE, have });
        }
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if bytes[99..104].iter().any(|&b| b != 0) {
            return Err(DecodeError::Reserved { structure: "block_pointer" });
        }
        let mut stamp = Stamp { salt: bytes[72..88].try_into().expect("16 bytes"), counter: u64_at(88) };
        let mut third = Address::NONE;
        if stamp.counter == 0 && !crate::is_zero(&stamp.salt) {
            if u32_at(84) != 0 {
                return Err(field("segment_2", u32_at(84).into()));
            }
            third = Address { segment: SegmentId(u64_at(72)), offset: u32_at(80) };
            stamp = Stamp::default();
        }
        let pointer = BlockPointer {
            hash: bytes[0..32].try_into().expect("32 bytes"),
            copies: [
                Address { segment: SegmentId(u64_at(32)), offset: u32_at(40) },
                Address { segment: SegmentId(u64_at(48)), offset: u32_at(56) },
                third,
            ],
            psize: u32_at(44),
            lsize: u32_at(60),
            birth: Txg(u64_at(64)),
            stamp,
            compression: Compression::from_u8(bytes[96])?,
            kind: BlockKind::from_u8(bytes[97])?,
            level: bytes[98],
            written: Txg(u64_at(104)),
        };
        pointer.checked()
    }

    /// The pointer, if its numbers may stand together.
    pub(crate) fn checked(self) -> Result<Self, DecodeError> {
        if !self.copies[0].is_some() {
            return Err(field("segment_0", 0));
        }
        if !self.copies[1].is_some() && self.copies[1].offset != 0 {
            return Err(field("offset_1", self.copies[1].offset.into()));
        }
        let [_, second, third] = self.copies;
        if third != Address::NONE {
            // Only content has so many, and none that is sealed.
            let fits = third.is_some() && second.is_some() && self.kind == BlockKind::Data;
            if !fits || self.is_sealed() {
                return Err(field("segment_2", third.segment.0));
            }
        }
        if self.psize == 0 || self.psize > Self::PSIZE_MAX {
            return Err(field("psize", self.psize.into()));
        }
        if self.lsize == 0 || self.lsize > Self::LSIZE_MAX {
            return Err(field("lsize", self.lsize.into()));
        }
        if self.birth.0 == 0 || self.birth.0 >= Txg::END {
            return Err(field("birth", self.birth.0));
        }
        if let Some(far) = self.copies.iter().find(|copy| copy.segment.0 >= SegmentId::END) {
            return Err(field("segment", far.segment.0));
        }
        if self.written.0 != 0 && self.written >= self.birth {
            return Err(field("written", self.written.0));
        }
        if self.stamp.counter == 0 && self.stamp.salt != [0; 16] {
            return Err(field("counter", 0));
        }
        Ok(self)
    }

    /// Writes a pointer or, for `None`, zeros.
    pub fn encode_option(pointer: Option<&Self>, out: &mut [u8; Self::ENCODED_SIZE]) {
        match pointer {
            Some(pointer) => pointer.encode(out),
            None => out.fill(0),
        }
    }

    /// Reads a pointer, or `None` from zeros.
    pub fn decode_option(bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
        if bytes.len() >= Self::ENCODED_SIZE && crate::is_zero(&bytes[..Self::ENCODED_SIZE]) {
            return Ok(None);
        }
        Self::decode(bytes).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> BlockPointer {
        BlockPointer {
            hash: [7; 32],
            copies: [Address { segment: SegmentId(9), offset: 4096 }, Address::NONE, Address::NONE],
            psize: 5000,
            lsize: 131_072,
            birth: Txg(3),
            written: Txg(2),
            stamp: Stamp { salt: [1; 16], counter: 77 },
            compression: Compression::Lz4,
            kind: BlockKind::Data,
            level: 0,
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        assert_eq!(BlockPointer::decode(&sample().to_bytes()), Ok(sample()));
        assert_eq!(BlockPointer::decode_option(&[0; BlockPointer::ENCODED_SIZE]), Ok(None));
    }

    /// Not sealed, in three places.
    fn threefold() -> BlockPointer {
        let at = |segment| Address { segment: SegmentId(segment), offset: 8192 };
        BlockPointer { copies: [at(9), at(10), at(11)], stamp: Stamp::default(), ..sample() }
    }

    #[test]
    fn a_third_copy_stands_where_the_salt_of_a_seal_would() {
        assert_eq!(BlockPointer::decode(&threefold().to_bytes()), Ok(threefold()));
        assert_eq!((threefold().copy_count(), sample().copy_count()), (3, 1));
        let refused = |at: usize, value: u8| {
            let mut bytes = threefold().to_bytes();
            bytes[at..at + 8].copy_from_slice(&u64::from(value).to_le_bytes());
            BlockPointer::decode(&bytes).is_err()
        };
        // Without a second copy, without a segment, with bytes behind its offset.
        assert!(refused(48, 0) && refused(72, 0) && refused(84, 1));
        let mut of_metadata = threefold().to_bytes();
        of_metadata[97] = BlockKind::Extents as u8;
        assert!(BlockPointer::decode(&of_metadata).is_err(), "metadata has two copies");
    }

    #[test]
    fn reserved_bytes_and_unknown_numbers_are_refused() {
        for at in 96..BlockPointer::ENCODED_SIZE {
            if at == 98 {
                continue; // any level is allowed
            }
            let mut bytes = sample().to_bytes();
            bytes[at] = 0xee;
            assert!(BlockPointer::decode(&bytes).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_reference_knows_who_wrote_its_block() {
        let first = BlockPointer { written: Txg(0), ..sample() };
        assert_eq!(first.written_in(), Txg(3));
        let second = first.referred_in(Txg(9));
        assert_eq!((second.birth, second.written, second.written_in()), (Txg(9), Txg(3), Txg(3)));
        let third = second.referred_in(Txg(10));
        assert_eq!((third.birth, third.written), (Txg(10), Txg(3)));
        assert_eq!(first.referred_in(Txg(3)), first, "within the txg that wrote it");
        for written in [9, 10] {
            let forged = BlockPointer { written: Txg(written), ..second };
            assert!(BlockPointer::decode(&forged.to_bytes()).is_err(), "written in {written}, born in 9");
        }
    }

    #[test]
    fn stored_size_is_rounded_up_to_units() {
        assert_eq!(sample().asize(4096), 8192);
    }
}
