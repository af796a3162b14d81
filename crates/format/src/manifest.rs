//! Manifests: which sealed blocks a dataset has written and when, in the clear. FORMAT.md,
//! "Manifest", and `docs/decisions/0127-manifests.md`.
//!
//! Where nodes are sealed, only who has their key can walk from a snapshot to its blocks. A
//! manifest says of each block what any pointer to it says without being opened: where it lies,
//! what names it, its hash and its length.

use crate::block_pointer::BlockKind;
use crate::layout::{Decoder, Encoder, Layout};
use crate::{Address, BlockPointer, Compression, DatasetId, DecodeError, SegmentId, Stamp, Txg};

/// Blocks that one dataset wrote in one txg under one salt, in one segment.
///
/// | off | len | field    | meaning                                                            |
/// |-----|-----|----------|--------------------------------------------------------------------|
/// |   0 |   8 | dataset  | dataset that wrote them, not 0                                     |
/// |   8 |   8 | birth    | txg that wrote them, not 0                                         |
/// |  16 |  16 | salt     | as in every pointer to them                                        |
/// |  32 |     | entries  | 1 to 24 entries (64 bytes each), by rising offset                  |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ManifestRun {
    /// Dataset that wrote them.
    pub dataset: DatasetId,
    /// Txg that wrote them.
    pub birth: Txg,
    /// Salt under which they are sealed.
    pub salt: [u8; 16],
    /// The blocks, by rising offset.
    pub entries: Vec<ManifestEntry>,
}

/// One sealed block.
///
/// | off | len | field     | meaning                                                           |
/// |-----|-----|-----------|-------------------------------------------------------------------|
/// |   0 |  32 | hash      | as in every pointer to it                                         |
/// |  32 |   8 | counter   | as in every pointer to it, not 0                                  |
/// |  40 |   4 | offset    | of its first copy, in the segment of the key                      |
/// |  44 |   4 | psize     | as in every pointer to it                                         |
/// |  48 |   8 | segment_1 | second copy's segment, 0 if there is none                         |
/// |  56 |   4 | offset_1  | second copy's offset, 0 if there is none                          |
/// |  60 |   1 | kind      | as in every pointer to it: 1 data, 2 names, 3 extents             |
/// |  61 |   3 | reserved  | zero                                                              |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ManifestEntry {
    /// BLAKE3 of its stored bytes.
    pub hash: [u8; 32],
    /// Its nonce's counter.
    pub counter: u64,
    /// Where its first copy lies in the segment.
    pub offset: u32,
    /// How many bytes it has.
    pub psize: u32,
    /// Its second copy, if it has one.
    pub second: Address,
    /// Its kind.
    pub kind: BlockKind,
}

impl ManifestEntry {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "manifest_entry",
        &[
            ("hash", 0, 32),
            ("counter", 32, 8),
            ("offset", 40, 4),
            ("psize", 44, 4),
            ("segment_1", 48, 8),
            ("offset_1", 56, 4),
            ("kind", 60, 1),
            ("reserved", 61, 3),
        ],
        &[],
    );
    /// Its length.
    pub const SIZE: usize = Self::LAYOUT.size();

    /// The manifest entry of a sealed block.
    #[must_use]
    pub fn of(pointer: &BlockPointer) -> ManifestEntry {
        ManifestEntry {
            hash: pointer.hash,
            counter: pointer.stamp.counter,
            offset: pointer.copies[0].offset,
            psize: pointer.psize,
            second: pointer.copies[1],
            kind: pointer.kind,
        }
    }

    fn encode(&self) -> Vec<u8> {
        assert!(self.counter > 0 && self.psize > 0 && self.psize <= BlockPointer::PSIZE_MAX);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("hash", &self.hash).u64("counter", self.counter).u32("offset", self.offset);
        out.u32("psize", self.psize).u64("segment_1", self.second.segment.0);
        out.u32("offset_1", self.second.offset).u8("kind", self.kind as u8).reserved().finish()
    }

    fn decode(bytes: &[u8]) -> Result<ManifestEntry, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let (hash, counter) = (from.array("hash"), from.u64("counter"));
        if counter == 0 {
            return Err(from.refuse("counter", counter));
        }
        let (offset, psize) = (from.u32("offset"), from.u32("psize"));
        if psize == 0 || psize > BlockPointer::PSIZE_MAX {
            return Err(from.refuse("psize", psize));
        }
        let second = Address { segment: SegmentId(from.u64("segment_1")), offset: from.u32("offset_1") };
        if !second.is_some() && second.offset != 0 {
            return Err(from.refuse("offset_1", second.offset));
        }
        let kind = match from.u8("kind") {
            1 => BlockKind::Data,
            2 => BlockKind::Names,
            3 => BlockKind::Extents,
            other => return Err(from.refuse("kind", other)),
        };
        from.reserved()?;
        from.finish()?;
        Ok(ManifestEntry { hash, counter, offset, psize, second, kind })
    }
}

impl ManifestRun {
    /// Offsets and lengths.
    pub const LAYOUT: Layout =
        Layout::new("manifest_run", &[("dataset", 0, 8), ("birth", 8, 8), ("salt", 16, 16)], &["entries"]);
    /// Most entries of one: five such runs fill a leaf of the meta tree.
    pub const ENTRIES_MAX: usize = 24;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.dataset.0 != 0 && self.birth.0 != 0);
        assert!((1..=Self::ENTRIES_MAX).contains(&self.entries.len()));
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("dataset", self.dataset.0).u64("birth", self.birth.0).bytes("salt", &self.salt);
        let entries: Vec<u8> = self.entries.iter().flat_map(ManifestEntry::encode).collect();
        out.tail("entries", &entries).finish()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<ManifestRun, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let (dataset, birth) = (DatasetId(from.u64("dataset")), Txg(from.u64("birth")));
        if dataset.0 == 0 {
            return Err(from.refuse("dataset", 0u64));
        }
        if birth.0 == 0 {
            return Err(from.refuse("birth", 0u64));
        }
        let salt = from.array("salt");
        let length = bytes.len() - Self::LAYOUT.size();
        let count = length / ManifestEntry::SIZE;
        if !(1..=Self::ENTRIES_MAX).contains(&count) {
            return Err(from.refuse("entries", count as u64));
        }
        let all = from.tail("entries", count * ManifestEntry::SIZE)?;
        let entries =
            all.chunks(ManifestEntry::SIZE).map(ManifestEntry::decode).collect::<Result<Vec<_>, _>>()?;
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].offset >= pair[1].offset) {
            return Err(from.refuse("entries", pair[1].offset));
        }
        from.finish()?;
        Ok(ManifestRun { dataset, birth, salt, entries })
    }

    /// As much of a pointer to one of its blocks as it knows: enough to fetch the bytes as they are
    /// sealed, and to name them.
    #[must_use]
    pub fn pointer(&self, segment: SegmentId, entry: &ManifestEntry) -> BlockPointer {
        BlockPointer {
            hash: entry.hash,
            copies: [Address { segment, offset: entry.offset }, entry.second, Address::NONE],
            psize: entry.psize,
            lsize: entry.psize,
            birth: self.birth,
            written: Txg(0),
            stamp: Stamp { salt: self.salt, counter: entry.counter },
            compression: Compression::Off,
            kind: entry.kind,
            level: 0,
        }
    }
}

/// A writer of the blocks of a dataset: itself, and before its beginning its origin. A list of
/// these, one after the other.
///
/// | off | len | field    | meaning                                                            |
/// |-----|-----|----------|--------------------------------------------------------------------|
/// |   0 |   8 | after    | txg: what was born after it, and by that of the next writer        |
/// |   8 |   8 | dataset  | was written by this dataset, not 0                                 |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ManifestWriter {
    /// It wrote what was born after this, and by the next writer's.
    pub after: Txg,
    /// Number by which it is known in manifests.
    pub dataset: DatasetId,
}

impl ManifestWriter {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new("manifest_writer", &[("after", 0, 8), ("dataset", 8, 8)], &[]);
    /// Its length.
    pub const SIZE: usize = Self::LAYOUT.size();
    /// Most that a dataset has: clones of clones beyond that have no manifest.
    pub const MAX: usize = 64;

    /// The bytes of a dataset's writers, the oldest first.
    #[must_use]
    pub fn encode_all(writers: &[ManifestWriter]) -> Vec<u8> {
        assert!((1..=Self::MAX).contains(&writers.len()));
        let mut bytes = Vec::with_capacity(writers.len() * Self::SIZE);
        for writer in writers {
            assert!(writer.dataset.0 != 0);
            let mut out = Encoder::new(&Self::LAYOUT);
            bytes.extend(out.u64("after", writer.after.0).u64("dataset", writer.dataset.0).finish());
        }
        bytes
    }

    /// Reads them: the first wrote from the beginning, and each later one began later.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<ManifestWriter>, DecodeError> {
        let structure = Self::LAYOUT.name;
        let (count, extra) = (bytes.len() / Self::SIZE, bytes.len() % Self::SIZE);
        if !(1..=Self::MAX).contains(&count) {
            return Err(DecodeError::Field { structure, field: "after", value: count as u64 });
        }
        if extra > 0 {
            return Err(DecodeError::Trailing { structure, extra });
        }
        let mut writers: Vec<ManifestWriter> = Vec::with_capacity(count);
        for bytes in bytes.chunks(Self::SIZE) {
            let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
            let (after, dataset) = (Txg(from.u64("after")), DatasetId(from.u64("dataset")));
            let follows = match writers.last() {
                None => after.0 == 0,
                Some(last) => after > last.after,
            };
            if !follows {
                return Err(from.refuse("after", after.0));
            }
            if dataset.0 == 0 {
                return Err(from.refuse("dataset", 0u64));
            }
            from.finish()?;
            writers.push(ManifestWriter { after, dataset });
        }
        Ok(writers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(offset: u32) -> ManifestEntry {
        ManifestEntry {
            hash: [7; 32],
            counter: 9,
            offset,
            psize: 4112,
            second: Address { segment: SegmentId(4), offset: 8192 },
            kind: BlockKind::Names,
        }
    }

    #[test]
    fn runs_are_read_back_and_cut_ones_are_not() {
        let run = ManifestRun {
            dataset: DatasetId(3),
            birth: Txg(8),
            salt: [5; 16],
            entries: vec![entry(0), entry(8192)],
        };
        let bytes = run.encode();
        assert_eq!(ManifestRun::decode(&bytes), Ok(run.clone()));
        for end in 0..bytes.len() {
            // Cut behind an entry it is a shorter run.
            let whole = end == ManifestRun::LAYOUT.size() + ManifestEntry::SIZE;
            assert_eq!(ManifestRun::decode(&bytes[..end]).is_ok(), whole, "cut at {end}");
        }
        let pointer = run.pointer(SegmentId(2), &run.entries[1]);
        assert_eq!(ManifestEntry::of(&pointer), run.entries[1]);
        assert_eq!(pointer.stamp, Stamp { salt: [5; 16], counter: 9 });
        // Nobody's, never written, two at one place, no counter, no bytes, too many, half a second
        // copy, of the pool's own, reserved.
        for (at, byte) in [(0, 0), (8, 0), (32 + 64 + 41, 0), (64, 0), (32 + 44, 0), (32 + 47, 9), (93, 9)] {
            let mut bad = bytes.clone();
            bad[at] = byte;
            if at == 32 + 44 {
                bad[32 + 45] = 0;
            }
            assert!(ManifestRun::decode(&bad).is_err(), "byte {at}");
        }
        let mut bad = bytes.clone();
        bad[32 + 48] = 0;
        assert!(ManifestRun::decode(&bad).is_err(), "an offset in no segment");
        let mut bad = bytes;
        bad[32 + 60] = 4;
        assert!(ManifestRun::decode(&bad).is_err(), "of the pool's own");
    }

    #[test]
    fn writers_follow_each_other() {
        let writer = |after, dataset| ManifestWriter { after: Txg(after), dataset: DatasetId(dataset) };
        let writers = vec![writer(0, 3), writer(7, 5)];
        assert_eq!(ManifestWriter::decode_all(&ManifestWriter::encode_all(&writers)), Ok(writers));
        for bad in [vec![writer(1, 3)], vec![writer(0, 3), writer(0, 5)]] {
            assert!(ManifestWriter::decode_all(&ManifestWriter::encode_all(&bad)).is_err(), "{bad:?}");
        }
        assert!(ManifestWriter::decode_all(&[]).is_err());
        assert!(ManifestWriter::decode_all(&[0; 16]).is_err(), "nobody");
        assert!(ManifestWriter::decode_all(&[0; 17]).is_err(), "cut");
    }
}
