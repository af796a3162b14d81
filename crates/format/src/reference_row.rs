//! The reference table: blocks of file content with more than one pointer, and blocks that are
//! known by their content. FORMAT.md, "Reference row", and
//! `docs/decisions/0092-one-reference-table.md`.
//!
//! Like ZFS's DDT (dedup table) and BRT (block cloning) in one. Unlike the DDT, rows are keyed by
//! the block's address: blocks that were written together have rows side by side, and a free finds
//! the row without a hash of the content.

use crate::layout::{Decoder, Encoder, Layout};
use crate::{BlockPointer, Compression, DatasetId, DecodeError, Stamp, Txg};

/// A block that is shared, or may come to be.
///
/// | off | len | field    | meaning                                                       |
/// |-----|-----|----------|---------------------------------------------------------------|
/// |   0 |   8 | more     | references beyond the first; 0 only if it has content         |
/// |   8 |   8 | owner    | owner of its segment                                          |
/// |  16 |   4 | psize    | stored length, at least 1                                     |
/// |  20 |   4 | lsize    | length after opening and decompression, at least 1            |
/// |  24 |   1 | kind     | 1: shared; 2: also known by content                           |
/// |  25 |   7 | reserved | zero                                                          |
/// |  32 |     | content  | if kind is 2, how it is known                                 |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReferenceRow {
    /// References beyond the first.
    pub more: u64,
    /// Owner of its segment.
    pub owner: DatasetId,
    /// Stored length.
    pub psize: u32,
    /// Length after opening and decompression.
    pub lsize: u32,
    /// How it is known by its content, if it is.
    pub content: Option<ContentRow>,
}

/// How a block is known by its content: what a later write of the same bytes compares, and needs to
/// refer to it.
///
/// | off | len | field       | meaning                                                       |
/// |-----|-----|-------------|---------------------------------------------------------------|
/// |   0 |  32 | digest      | keyed BLAKE3 of the content before compression                |
/// |  32 |  32 | hash        | BLAKE3 of the stored bytes                                    |
/// |  64 |   8 | domain      | dataset under whose key its like are found; 0: not sealed     |
/// |  72 |   8 | written     | txg that wrote it, not 0                                      |
/// |  80 |  16 | salt        | as in its block pointers                                      |
/// |  96 |   8 | counter     | as in its block pointers                                      |
/// | 104 |   4 | noted       | minutes since 1970 when it was written                        |
/// | 108 |   1 | compression | as in its block pointers                                      |
/// | 109 |   3 | reserved    | zero                                                          |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ContentRow {
    /// Keyed BLAKE3 of the content before compression.
    pub digest: [u8; 32],
    /// BLAKE3 of the stored bytes.
    pub hash: [u8; 32],
    /// Dataset under whose key its like are found; 0 of what is not sealed.
    pub domain: DatasetId,
    /// Txg that wrote it.
    pub written: Txg,
    /// Key and nonce of its seal.
    pub stamp: Stamp,
    /// Minutes since 1970 when it was written.
    pub noted: u32,
    /// How it was compressed.
    pub compression: Compression,
}

impl ReferenceRow {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "reference_row",
        &[
            ("more", 0, 8),
            ("owner", 8, 8),
            ("psize", 16, 4),
            ("lsize", 20, 4),
            ("kind", 24, 1),
            ("reserved", 25, 7),
        ],
        &["content"],
    );

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.psize > 0 && self.lsize > 0 && (self.more > 0 || self.content.is_some()));
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("more", self.more).u64("owner", self.owner.0).u32("psize", self.psize);
        out.u32("lsize", self.lsize).u8("kind", if self.content.is_some() { 2 } else { 1 }).reserved();
        let content = self.content.as_ref().map(ContentRow::encode).unwrap_or_default();
        out.tail("content", &content).finish()
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<ReferenceRow, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let (more, owner) = (from.u64("more"), DatasetId(from.u64("owner")));
        let (psize, lsize, kind) = (from.u32("psize"), from.u32("lsize"), from.u8("kind"));
        from.reserved()?;
        if psize == 0 || psize > BlockPointer::PSIZE_MAX {
            return Err(from.refuse("psize", psize));
        }
        if lsize == 0 || lsize > BlockPointer::LSIZE_MAX {
            return Err(from.refuse("lsize", lsize));
        }
        let content = match kind {
            1 if more == 0 => return Err(from.refuse("more", more)),
            1 => {
                from.tail("content", 0)?;
                None
            }
            2 => Some(ContentRow::decode(from.tail("content", ContentRow::LAYOUT.size())?)?),
            _ => return Err(from.refuse("kind", kind)),
        };
        from.finish()?;
        Ok(ReferenceRow { more, owner, psize, lsize, content })
    }
}

impl ContentRow {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "content_row",
        &[
            ("digest", 0, 32),
            ("hash", 32, 32),
            ("domain", 64, 8),
            ("written", 72, 8),
            ("salt", 80, 16),
            ("counter", 96, 8),
            ("noted", 104, 4),
            ("compression", 108, 1),
            ("reserved", 109, 3),
        ],
        &[],
    );

    fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("digest", &self.digest).bytes("hash", &self.hash).u64("domain", self.domain.0);
        out.u64("written", self.written.0).bytes("salt", &self.stamp.salt);
        out.u64("counter", self.stamp.counter).u32("noted", self.noted);
        out.u8("compression", self.compression as u8).reserved().finish()
    }

    fn decode(bytes: &[u8]) -> Result<ContentRow, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let (digest, hash) = (from.array("digest"), from.array("hash"));
        let (domain, written) = (DatasetId(from.u64("domain")), Txg(from.u64("written")));
        let stamp = Stamp { salt: from.array("salt"), counter: from.u64("counter") };
        let (noted, compression) = (from.u32("noted"), Compression::from_u8(from.u8("compression"))?);
        from.reserved()?;
        if written.0 == 0 {
            return Err(from.refuse("written", 0_u64));
        }
        if (stamp.counter == 0) != (stamp.salt == [0; 16]) {
            return Err(from.refuse("counter", stamp.counter));
        }
        if (stamp.counter == 0) != (domain.0 == 0) {
            return Err(from.refuse("domain", domain.0));
        }
        from.finish()?;
        Ok(ContentRow { digest, hash, domain, written, stamp, noted, compression })
    }
}

/// Sums of the reference table (DDT).
///
/// | off | len | field        | meaning                                                       |
/// |-----|-----|--------------|---------------------------------------------------------------|
/// |   0 |   8 | shared       | blocks that are shared and not known by content               |
/// |   8 |   8 | shared_bytes | bytes that they occupy                                        |
/// |  16 |   8 | saved_bytes  | bytes that their further references would occupy              |
/// |  24 |   2 | classes      | number of classes, at most 64                                 |
/// |  26 |   6 | reserved     | zero                                                          |
/// |  32 |     | class ...    | a class of blocks known by content, ascending                 |
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SharingRow {
    /// Blocks that are shared and not known by content.
    pub shared: u64,
    /// Bytes that they occupy.
    pub shared_bytes: u64,
    /// Bytes that their further references would occupy.
    pub saved_bytes: u64,
    /// Blocks known by content, by the logarithm of their references.
    pub classes: Vec<SharingClass>,
}

/// Blocks that are known by their content and have so many references, from 2^log2 to below
/// 2^(log2 + 1).
///
/// | off | len | field     | meaning                                             |
/// |-----|-----|-----------|-----------------------------------------------------|
/// |   0 |   1 | log2      | logarithm of their references, rounded down; below 64 |
/// |   1 |   7 | reserved  | zero                                                |
/// |   8 |   8 | blocks    | how many there are, at least 1                      |
/// |  16 |   8 | lsize     | bytes before compression                            |
/// |  24 |   8 | psize     | bytes stored                                        |
/// |  32 |   8 | dsize     | bytes on devices, each once                         |
/// |  40 |   8 | ref_blocks | references to them                                 |
/// |  48 |   8 | ref_lsize | bytes before compression, for each reference        |
/// |  56 |   8 | ref_psize | bytes stored, for each reference                    |
/// |  64 |   8 | ref_dsize | bytes on devices if nothing were shared             |
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SharingClass {
    /// Logarithm of their references, rounded down.
    pub log2: u8,
    /// How many there are.
    pub blocks: u64,
    /// Bytes before compression.
    pub lsize: u64,
    /// Bytes stored.
    pub psize: u64,
    /// Bytes on devices, each once.
    pub dsize: u64,
    /// References to them.
    pub ref_blocks: u64,
    /// Bytes before compression, for each reference.
    pub ref_lsize: u64,
    /// Bytes stored, for each reference.
    pub ref_psize: u64,
    /// Bytes on devices if nothing were shared.
    pub ref_dsize: u64,
}

impl SharingRow {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "sharing_row",
        &[
            ("shared", 0, 8),
            ("shared_bytes", 8, 8),
            ("saved_bytes", 16, 8),
            ("classes", 24, 2),
            ("reserved", 26, 6),
        ],
        &["class"],
    );

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.classes.len() <= 64 && self.classes.is_sorted_by(|a, b| a.log2 < b.log2));
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("shared", self.shared).u64("shared_bytes", self.shared_bytes);
        out.u64("saved_bytes", self.saved_bytes);
        out.u16("classes", u16::try_from(self.classes.len()).expect("at most 64")).reserved();
        let classes: Vec<u8> = self.classes.iter().flat_map(SharingClass::encode).collect();
        out.tail("class", &classes).finish()
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<SharingRow, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let (shared, shared_bytes) = (from.u64("shared"), from.u64("shared_bytes"));
        let (saved_bytes, count) = (from.u64("saved_bytes"), from.u16("classes"));
        from.reserved()?;
        let size = SharingClass::LAYOUT.size();
        let parts = from.tail("class", usize::from(count) * size)?;
        let classes: Vec<SharingClass> =
            parts.chunks(size).map(SharingClass::decode).collect::<Result<_, _>>()?;
        if !classes.is_sorted_by(|a, b| a.log2 < b.log2) {
            return Err(from.refuse("classes", count));
        }
        from.finish()?;
        Ok(SharingRow { shared, shared_bytes, saved_bytes, classes })
    }
}

impl SharingClass {
    /// Most that a sum of a class is: those of all 64 together are a number.
    pub const SUM_MAX: u64 = 1 << 57;
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "sharing_class",
        &[
            ("log2", 0, 1),
            ("reserved", 1, 7),
            ("blocks", 8, 8),
            ("lsize", 16, 8),
            ("psize", 24, 8),
            ("dsize", 32, 8),
            ("ref_blocks", 40, 8),
            ("ref_lsize", 48, 8),
            ("ref_psize", 56, 8),
            ("ref_dsize", 64, 8),
        ],
        &[],
    );

    fn encode(&self) -> Vec<u8> {
        assert!(self.log2 < 64 && self.blocks > 0);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u8("log2", self.log2).reserved().u64("blocks", self.blocks).u64("lsize", self.lsize);
        out.u64("psize", self.psize).u64("dsize", self.dsize).u64("ref_blocks", self.ref_blocks);
        out.u64("ref_lsize", self.ref_lsize).u64("ref_psize", self.ref_psize);
        out.u64("ref_dsize", self.ref_dsize).finish()
    }

    fn decode(bytes: &[u8]) -> Result<SharingClass, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let log2 = from.u8("log2");
        from.reserved()?;
        let class = SharingClass {
            log2,
            blocks: from.u64("blocks"),
            lsize: from.u64("lsize"),
            psize: from.u64("psize"),
            dsize: from.u64("dsize"),
            ref_blocks: from.u64("ref_blocks"),
            ref_lsize: from.u64("ref_lsize"),
            ref_psize: from.u64("ref_psize"),
            ref_dsize: from.u64("ref_dsize"),
        };
        if log2 >= 64 {
            return Err(from.refuse("log2", log2));
        }
        if class.blocks == 0 {
            return Err(from.refuse("blocks", 0_u64));
        }
        let sums = [class.blocks, class.lsize, class.psize, class.dsize];
        let of_references = [class.ref_blocks, class.ref_lsize, class.ref_psize, class.ref_dsize];
        if let Some(sum) = sums.into_iter().chain(of_references).find(|sum| *sum > Self::SUM_MAX) {
            return Err(from.refuse("blocks", sum));
        }
        from.finish()?;
        Ok(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content() -> ContentRow {
        ContentRow {
            digest: [1; 32],
            hash: [2; 32],
            domain: DatasetId(0),
            written: Txg(7),
            stamp: Stamp::default(),
            noted: 29_000_000,
            compression: Compression::Lz4,
        }
    }

    #[test]
    fn rows_are_read_back_and_cut_ones_are_not() {
        for (more, content) in [(1, None), (0, Some(content())), (7, Some(content()))] {
            let row = ReferenceRow { more, owner: DatasetId(0), psize: 700, lsize: 1000, content };
            let bytes = row.encode();
            assert_eq!(ReferenceRow::decode(&bytes), Ok(row));
            (0..bytes.len()).for_each(|end| assert!(ReferenceRow::decode(&bytes[..end]).is_err(), "{end}"));
        }
    }

    #[test]
    fn a_row_of_nothing_is_refused() {
        assert!(ReferenceRow::decode(&[0; 32]).is_err());
        let far = ReferenceRow {
            more: 1,
            owner: DatasetId(0),
            psize: BlockPointer::PSIZE_MAX + 1,
            lsize: 1,
            content: None,
        };
        assert!(ReferenceRow::decode(&far.encode()).is_err(), "no block is so long");
        let row = ReferenceRow { more: 1, owner: DatasetId(0), psize: 1, lsize: 1, content: None };
        let mut bytes = row.encode();
        bytes[0] = 0;
        assert!(ReferenceRow::decode(&bytes).is_err(), "one reference, and no content");
        let sealed = ContentRow { domain: DatasetId(3), ..content() };
        let row = ReferenceRow { more: 1, owner: DatasetId(3), psize: 1, lsize: 1, content: Some(sealed) };
        assert!(ReferenceRow::decode(&row.encode()).is_err(), "a domain of what is not sealed");
    }

    #[test]
    fn sums_are_read_back_and_classes_are_in_order() {
        let class = |log2| SharingClass { log2, blocks: 3, ref_blocks: 9, ..SharingClass::default() };
        let row = SharingRow { shared: 1, classes: vec![class(0), class(3)], ..SharingRow::default() };
        let mut bytes = row.encode();
        assert_eq!(SharingRow::decode(&bytes), Ok(row));
        bytes[32] = 3;
        assert!(SharingRow::decode(&bytes).is_err());
    }
}
