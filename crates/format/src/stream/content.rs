//! Content frames: records as they are compressed (ZFS: `DRR_WRITE`), and repeats of content sent
//! before (ZFS: `DRR_WRITE_BYREF`).

use crate::layout::{Decoder, Encoder, Layout};
use crate::{BlockPointer, Compression, DecodeError, InodeId};

use super::frame::FrameHeader;

/// Stands before the bytes of each record in a frame *packed*.
///
/// | off | len | field       | meaning                                                           |
/// |-----|-----|-------------|-------------------------------------------------------------------|
/// |   0 |   8 | inode       | file, not 0                                                       |
/// |   8 |   8 | offset      | where the record's bytes begin in it                              |
/// |  16 |   4 | lsize       | bytes after decompression: 1 to 2^24                              |
/// |  20 |   4 | psize       | how many bytes follow: below lsize, or lsize if not compressed    |
/// |  24 |   1 | compression | as in the block pointer                                           |
/// |  25 |   7 | reserved    | zero                                                              |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PackedRecord {
    /// File.
    pub inode: InodeId,
    /// Where its bytes begin.
    pub offset: u64,
    /// Bytes after decompression.
    pub lsize: u32,
    /// Bytes that follow.
    pub psize: u32,
    /// How they are compressed.
    pub compression: Compression,
}

impl PackedRecord {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "packed_record",
        &[
            ("inode", 0, 8),
            ("offset", 8, 8),
            ("lsize", 16, 4),
            ("psize", 20, 4),
            ("compression", 24, 1),
            ("reserved", 25, 7),
        ],
        &[],
    );
    /// Its length.
    pub const SIZE: usize = 32;
    /// Most bytes that the records of one frame come to after decompression.
    pub const PLAIN_MAX: u64 = FrameHeader::PAYLOAD_MAX as u64;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        assert!(self.inode.0 != 0 && (1..=BlockPointer::LSIZE_MAX).contains(&self.lsize));
        assert!(self.is_sized() && self.end().is_some());
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("inode", self.inode.0).u64("offset", self.offset).u32("lsize", self.lsize);
        out.u32("psize", self.psize).u8("compression", self.compression as u8).reserved().finish_array()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<PackedRecord, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let inode = InodeId(from.u64("inode"));
        if !inode.is_valid() {
            return Err(from.refuse("inode", inode.0));
        }
        let (offset, lsize, psize) = (from.u64("offset"), from.u32("lsize"), from.u32("psize"));
        if !(1..=BlockPointer::LSIZE_MAX).contains(&lsize) {
            return Err(from.refuse("lsize", lsize));
        }
        let compression = Compression::from_u8(from.u8("compression"))?;
        let record = PackedRecord { inode, offset, lsize, psize, compression };
        if !record.is_sized() {
            return Err(from.refuse("psize", psize));
        }
        if record.end().is_none() {
            return Err(from.refuse("offset", offset));
        }
        from.reserved()?;
        Ok(record)
    }

    /// Where its bytes end in the file, if there is such a place.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.lsize.into()).filter(|end| *end <= i64::MAX as u64)
    }

    /// True if there are as many bytes as there may be with its compression.
    #[must_use]
    pub fn is_sized(&self) -> bool {
        match self.compression {
            Compression::Off => self.psize == self.lsize,
            _ => (1..self.lsize).contains(&self.psize),
        }
    }
}

/// Content that the stream brought before: a frame *repeats* is some of these.
///
/// | off | len | field  | meaning |
/// |-----|-----|--------|---|
/// |   0 |   8 | inode  | file, not 0 |
/// |   8 |   8 | offset | where the bytes begin in it |
/// |  16 |   8 | length | how many: 1 to 2^26 |
/// |  24 |   8 | snapshot | that has them, by its place in the stream, from 1: this one, or one before |
/// |  32 |   8 | source | file that has them in that, not 0 |
/// |  40 |   8 | from   | where they begin in it |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Repeat {
    /// File.
    pub inode: InodeId,
    /// Where the bytes begin in it.
    pub offset: u64,
    /// How many.
    pub length: u64,
    /// Snapshot that has them: the first of the stream is 1.
    pub snapshot: u64,
    /// File that has them.
    pub source: InodeId,
    /// Where they begin in that.
    pub from: u64,
}

impl Repeat {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "repeat",
        &[
            ("inode", 0, 8),
            ("offset", 8, 8),
            ("length", 16, 8),
            ("snapshot", 24, 8),
            ("source", 32, 8),
            ("from", 40, 8),
        ],
        &[],
    );
    /// Its length.
    pub const SIZE: usize = 48;
    /// Most bytes that one stands for.
    pub const LENGTH_MAX: u64 = 1 << 26;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        assert!(self.inode.0 != 0 && self.source.0 != 0 && self.snapshot != 0);
        assert!((1..=Self::LENGTH_MAX).contains(&self.length) && self.is_placed());
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("inode", self.inode.0).u64("offset", self.offset).u64("length", self.length);
        out.u64("snapshot", self.snapshot).u64("source", self.source.0).u64("from", self.from);
        out.finish_array()
    }

    /// Reads it off the front.
    pub fn decode(bytes: &[u8]) -> Result<Repeat, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let inode = InodeId(from.u64("inode"));
        if inode.0 == 0 {
            return Err(from.refuse("inode", 0u64));
        }
        let (offset, length) = (from.u64("offset"), from.u64("length"));
        if !(1..=Self::LENGTH_MAX).contains(&length) {
            return Err(from.refuse("length", length));
        }
        let snapshot = from.u64("snapshot");
        if snapshot == 0 {
            return Err(from.refuse("snapshot", 0u64));
        }
        let source = InodeId(from.u64("source"));
        if source.0 == 0 {
            return Err(from.refuse("source", 0u64));
        }
        let repeat = Repeat { inode, offset, length, snapshot, source, from: from.u64("from") };
        match repeat.is_placed() {
            true => Ok(repeat),
            false => Err(from.refuse("offset", offset)),
        }
    }

    /// True if another one says of the bytes behind its own that they are what lies behind its
    /// source.
    #[must_use]
    pub fn is_followed_by(&self, next: &Repeat) -> bool {
        let of = |repeat: &Repeat| (repeat.inode, repeat.snapshot, repeat.source);
        of(self) == of(next)
            && self.length + next.length <= Self::LENGTH_MAX
            && (self.offset + self.length, self.from + self.length) == (next.offset, next.from)
    }

    /// True if there are such places in files.
    fn is_placed(&self) -> bool {
        let is_place = |at: u64| at.checked_add(self.length).is_some_and(|end| end <= i64::MAX as u64);
        is_place(self.offset) && is_place(self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_lies_inside_of_files() {
        let repeat = Repeat {
            inode: InodeId(9),
            offset: 1 << 20,
            length: 1 << 17,
            snapshot: 7,
            source: InodeId(8),
            from: 1 << 30,
        };
        let bytes = repeat.encode();
        assert_eq!(Repeat::decode(&bytes), Ok(repeat));
        for end in 0..bytes.len() {
            assert!(Repeat::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        // No file, outside of any, nothing, too much, of nothing, in no file, outside of any.
        for (at, byte) in [(0, 0), (15, 0x80), (18, 0), (19, 5), (24, 0), (32, 0), (47, 0x80)] {
            let mut bad = bytes;
            bad[at] = byte;
            assert!(Repeat::decode(&bad).is_err(), "byte {at}: {byte}");
        }
        let mut bad = bytes;
        bad[40..].copy_from_slice(&(i64::MAX as u64 - 100).to_le_bytes());
        assert!(Repeat::decode(&bad).is_err(), "its source ends outside of any file");
        let (offset, from) = (repeat.offset + repeat.length, repeat.from + repeat.length);
        let next = Repeat { offset, from, ..repeat };
        assert!(repeat.is_followed_by(&next) && !next.is_followed_by(&repeat));
        assert!(!repeat.is_followed_by(&Repeat { snapshot: 6, ..next }));
        assert!(!repeat.is_followed_by(&Repeat { from: 0, ..next }));
        assert!(!repeat.is_followed_by(&Repeat { length: Repeat::LENGTH_MAX, ..next }));
    }

    #[test]
    fn a_packed_record_is_sized_as_its_compression_says() {
        let record = PackedRecord {
            inode: InodeId(9),
            offset: 1 << 20,
            lsize: 4096,
            psize: 70,
            compression: Compression::Zstd,
        };
        let bytes = record.encode();
        assert_eq!(PackedRecord::decode(&bytes), Ok(record));
        let off = PackedRecord { psize: 4096, compression: Compression::Off, ..record };
        assert_eq!(PackedRecord::decode(&off.encode()), Ok(off));
        for end in 0..bytes.len() {
            assert!(PackedRecord::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        // No file, far outside of any, nothing to make, too much, nothing to make it of, as much as
        // it makes, another method.
        let wrong: [(usize, &[u8]); 9] = [
            (0, &[0]),
            (15, &[0x80]),
            (16, &[0; 4]),
            (16, &[1, 0, 0, 1]),
            (20, &[0; 4]),
            (20, &[0, 16, 0, 0]),
            (24, &[1]),
            (24, &[5]),
            (31, &[1]),
        ];
        for (at, patch) in wrong {
            let mut bad = bytes;
            bad[at..at + patch.len()].copy_from_slice(patch);
            assert!(PackedRecord::decode(&bad).is_err(), "byte {at}: {patch:?}");
        }
    }
}
