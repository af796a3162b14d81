//! Raw datasets: sealed blocks that are kept for somebody else. docs/format/stream.md, "Raw
//! snapshots".
//!
//! The same structures travel in raw streams and lie in the files of a raw dataset.

use crate::layout::{Decoder, Encoder, Layout};
use crate::{BlockPointer, DatasetId, DecodeError, InodeId, PoolGuid, Stamp, Txg, WrappedKey};

/// Key and tree roots of a raw snapshot. Its pointers are those of the pool it was made in: their
/// places mean nothing elsewhere, and their stamps name the same blocks everywhere.
///
/// | off | len | field      | meaning                                                          |
/// |-----|-----|------------|------------------------------------------------------------------|
/// |   0 |   8 | pool       | pool that sealed its blocks, not 0                               |
/// |   8 |   8 | dataset    | dataset there, to which the key is bound; not 0                  |
/// |  16 |   8 | family     | dataset under whose number its blocks are sealed; not 0          |
/// |  24 |   8 | txg        | of the snapshot there, not 0                                     |
/// |  32 | 112 | names      | root of the names tree; zero if empty                            |
/// | 144 | 112 | extents    | root of the extents tree; zero if empty                          |
/// | 256 |   8 | used       | bytes it occupied there                                          |
/// | 264 |   8 | data       | bytes of file content it occupied there                          |
/// | 272 |   8 | logical    | bytes of its data before compression                             |
/// | 280 |   8 | files      | inodes                                                           |
/// | 288 |   8 | next_inode | number of the next inode                                         |
/// | 296 |  16 | hash_seed  | key of the hash that orders its directories                      |
/// | 312 |  24 | reserved   | zero                                                             |
/// | 336 |     | wrapped    | wrapped master key (120 bytes)                                   |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RawRoots {
    /// Pool that sealed its blocks.
    pub pool: PoolGuid,
    /// Dataset there, to which the key is bound.
    pub dataset: DatasetId,
    /// Dataset there under whose number its blocks are sealed.
    pub family: DatasetId,
    /// Txg of the snapshot there.
    pub txg: Txg,
    /// Root of the names tree.
    pub names: Option<BlockPointer>,
    /// Root of the extents tree.
    pub extents: Option<BlockPointer>,
    /// Bytes it occupied there.
    pub used: u64,
    /// Bytes of file content it occupied there.
    pub data: u64,
    /// Bytes of its data before compression.
    pub logical: u64,
    /// Inodes.
    pub files: u64,
    /// Number of the next inode.
    pub next_inode: u64,
    /// Key of the hash that orders its directories.
    pub hash_seed: [u8; 16],
    /// Its master key.
    pub wrapped: WrappedKey,
}

impl RawRoots {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "raw_roots",
        &[
            ("pool", 0, 8),
            ("dataset", 8, 8),
            ("family", 16, 8),
            ("txg", 24, 8),
            ("names", 32, 112),
            ("extents", 144, 112),
            ("used", 256, 8),
            ("data", 264, 8),
            ("logical", 272, 8),
            ("files", 280, 8),
            ("next_inode", 288, 8),
            ("hash_seed", 296, 16),
            ("reserved", 312, 24),
        ],
        &["wrapped"],
    );
    /// Its length.
    pub const ENCODED_SIZE: usize = 336 + WrappedKey::ENCODED_SIZE;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.pool.0 != 0 && self.dataset.0 != 0 && self.family.0 != 0 && self.txg.0 != 0);
        let mut pointer = [0; BlockPointer::ENCODED_SIZE];
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("pool", self.pool.0).u64("dataset", self.dataset.0).u64("family", self.family.0);
        out.u64("txg", self.txg.0);
        BlockPointer::encode_option(self.names.as_ref(), &mut pointer);
        out.bytes("names", &pointer);
        BlockPointer::encode_option(self.extents.as_ref(), &mut pointer);
        out.bytes("extents", &pointer);
        out.u64("used", self.used).u64("data", self.data).u64("logical", self.logical);
        out.u64("files", self.files).u64("next_inode", self.next_inode);
        out.bytes("hash_seed", &self.hash_seed).reserved();
        out.tail("wrapped", &self.wrapped.encode()).finish()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<RawRoots, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let mut number = |name| match from.u64(name) {
            0 => Err(from.refuse(name, 0u64)),
            number => Ok(number),
        };
        let (pool, dataset) = (PoolGuid(number("pool")?), DatasetId(number("dataset")?));
        let (family, txg) = (DatasetId(number("family")?), Txg(number("txg")?));
        let mut root = |name| {
            let root = BlockPointer::decode_option(from.bytes(name, BlockPointer::ENCODED_SIZE))?;
            match root.is_none_or(|root| root.is_sealed()) {
                true => Ok(root),
                false => Err(from.refuse(name, 0u64)),
            }
        };
        let (names, extents) = (root("names")?, root("extents")?);
        let (used, data, logical) = (from.u64("used"), from.u64("data"), from.u64("logical"));
        let (files, next_inode) = (from.u64("files"), from.u64("next_inode"));
        if !(2..=InodeId::FILES_END).contains(&next_inode) {
            return Err(from.refuse("next_inode", next_inode));
        }
        let hash_seed = from.array("hash_seed");
        from.reserved()?;
        let wrapped = WrappedKey::decode(from.tail("wrapped", WrappedKey::ENCODED_SIZE)?)?;
        from.finish()?;
        Ok(RawRoots {
            pool,
            dataset,
            family,
            txg,
            names,
            extents,
            used,
            data,
            logical,
            files,
            next_inode,
            hash_seed,
            wrapped,
        })
    }
}

/// Header of a sealed block, in a stream and in a file.
///
/// | off | len | field    | meaning                                                            |
/// |-----|-----|----------|--------------------------------------------------------------------|
/// |   0 |  32 | hash     | BLAKE3 of the bytes that follow, as in every pointer to the block  |
/// |  32 |  16 | salt     | as in every pointer to the block                                   |
/// |  48 |   8 | counter  | as in every pointer to the block: 1 to 2^37 - 1                    |
/// |  56 |   4 | psize    | how many bytes follow, as in every pointer to the block            |
/// |  60 |   4 | reserved | zero                                                               |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RawBlock {
    /// BLAKE3 of its bytes.
    pub hash: [u8; 32],
    /// Its name in every pool.
    pub stamp: Stamp,
    /// How many bytes it has.
    pub psize: u32,
}

impl RawBlock {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "raw_block",
        &[("hash", 0, 32), ("salt", 32, 16), ("counter", 48, 8), ("psize", 56, 4), ("reserved", 60, 4)],
        &[],
    );
    /// Its length.
    pub const SIZE: usize = 64;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        assert!(is_stamp(&self.stamp) && self.psize > 0 && self.psize <= BlockPointer::PSIZE_MAX);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("hash", &self.hash).bytes("salt", &self.stamp.salt).u64("counter", self.stamp.counter);
        out.u32("psize", self.psize).reserved().finish_array()
    }

    /// Reads it off the front.
    pub fn decode(bytes: &[u8]) -> Result<RawBlock, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let (hash, salt, counter) = (from.array("hash"), from.array("salt"), from.u64("counter"));
        let stamp = Stamp { salt, counter };
        if !is_stamp(&stamp) {
            return Err(from.refuse("counter", counter));
        }
        let psize = from.u32("psize");
        if psize == 0 || psize > BlockPointer::PSIZE_MAX {
            return Err(from.refuse("psize", psize));
        }
        from.reserved()?;
        Ok(RawBlock { hash, stamp, psize })
    }
}

/// A block that a raw snapshot has no more, and its base has.
///
/// | off | len | field    | meaning                                                            |
/// |-----|-----|----------|--------------------------------------------------------------------|
/// |   0 |  16 | salt     | as in every pointer to the block                                   |
/// |  16 |   8 | counter  | as in every pointer to the block: 1 to 2^37 - 1                    |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RawGone(pub Stamp);

impl RawGone {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new("raw_gone", &[("salt", 0, 16), ("counter", 16, 8)], &[]);
    /// Its length.
    pub const SIZE: usize = 24;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        assert!(is_stamp(&self.0));
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("salt", &self.0.salt).u64("counter", self.0.counter).finish_array()
    }

    /// Reads it off the front.
    pub fn decode(bytes: &[u8]) -> Result<RawGone, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let stamp = Stamp { salt: from.array("salt"), counter: from.u64("counter") };
        match is_stamp(&stamp) {
            true => Ok(RawGone(stamp)),
            false => Err(from.refuse("counter", stamp.counter)),
        }
    }
}

/// Blocks that a raw snapshot still has of what its base had. Blocks of the base between these,
/// before the first and after the last are gone.
///
/// | off | len | field    | meaning                                                            |
/// |-----|-----|----------|--------------------------------------------------------------------|
/// |   0 |  16 | salt     | as in every pointer to the blocks                                  |
/// |  16 |   8 | counter  | of the first: 1 to 2^37 - 1                                        |
/// |  24 |   8 | count    | how many with counters that follow, at least 1; they end below 2^37 |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RawKept {
    /// Name of the first.
    pub first: Stamp,
    /// How many there are.
    pub count: u64,
}

impl RawKept {
    /// Offsets and lengths.
    pub const LAYOUT: Layout =
        Layout::new("raw_kept", &[("salt", 0, 16), ("counter", 16, 8), ("count", 24, 8)], &[]);
    /// Its length.
    pub const SIZE: usize = 32;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        assert!(is_stamp(&self.first) && self.count > 0 && self.count <= COUNTER_END - self.first.counter);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("salt", &self.first.salt).u64("counter", self.first.counter);
        out.u64("count", self.count).finish_array()
    }

    /// Reads it off the front.
    pub fn decode(bytes: &[u8]) -> Result<RawKept, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let first = Stamp { salt: from.array("salt"), counter: from.u64("counter") };
        if !is_stamp(&first) {
            return Err(from.refuse("counter", first.counter));
        }
        let count = from.u64("count");
        match count > 0 && count <= COUNTER_END - first.counter {
            true => Ok(RawKept { first, count }),
            false => Err(from.refuse("count", count)),
        }
    }
}

/// Blocks lie this far apart in the file of their salt: the longest of them fits, with what stands
/// before it.
pub const STRIDE: u64 = 1 << 25;
/// Counters have room in a file below this one.
pub const COUNTER_END: u64 = 1 << 37;
const _: () = assert!(RawBlock::SIZE as u64 + BlockPointer::PSIZE_MAX as u64 <= STRIDE);
const _: () = assert!(COUNTER_END * STRIDE <= 1 << 62);

/// True for a stamp of a sealed block that has a place in a raw dataset.
#[must_use]
pub fn is_stamp(stamp: &Stamp) -> bool {
    (1..COUNTER_END).contains(&stamp.counter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyFormat;

    fn roots() -> RawRoots {
        RawRoots {
            pool: PoolGuid(1),
            dataset: DatasetId(2),
            family: DatasetId(3),
            txg: Txg(4),
            names: None,
            extents: None,
            used: 5,
            data: 6,
            logical: 7,
            files: 8,
            next_inode: 9,
            hash_seed: [10; 16],
            wrapped: WrappedKey {
                key_format: KeyFormat::Raw,
                kdf: None,
                guid: 1,
                nonce: [2; 12],
                sealed: [3; 48],
            },
        }
    }

    #[test]
    fn what_is_written_is_read_back_and_cut_it_is_not() {
        let bytes = roots().encode();
        assert_eq!(bytes.len(), RawRoots::ENCODED_SIZE);
        assert_eq!(RawRoots::decode(&bytes), Ok(roots()));
        for end in 0..bytes.len() {
            assert!(RawRoots::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        let stamp = Stamp { salt: [7; 16], counter: 8 };
        let block = RawBlock { hash: [9; 32], stamp, psize: 10 };
        assert_eq!(RawBlock::decode(&block.encode()), Ok(block));
        assert!(RawBlock::decode(&block.encode()[..63]).is_err());
        assert_eq!(RawGone::decode(&RawGone(stamp).encode()), Ok(RawGone(stamp)));
        assert!(RawGone::decode(&RawGone(stamp).encode()[..23]).is_err());
        let kept = RawKept { first: stamp, count: 5 };
        assert_eq!(RawKept::decode(&kept.encode()), Ok(kept));
        assert!(RawKept::decode(&kept.encode()[..31]).is_err());
        // No counter, none of them, more than there are.
        for (at, byte) in [(16, 0), (24, 0), (29, 0x40)] {
            let mut bad = kept.encode();
            bad[at] = byte;
            assert!(RawKept::decode(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn numbers_that_nothing_can_have_are_refused() {
        for at in [0, 8, 16, 24] {
            let mut bytes = roots().encode();
            bytes[at] = 0;
            assert!(RawRoots::decode(&bytes).is_err(), "byte {at}");
        }
        let mut bytes = roots().encode();
        bytes[312] = 1;
        assert!(RawRoots::decode(&bytes).is_err(), "reserved");
        let block =
            RawBlock { hash: [9; 32], stamp: Stamp { salt: [7; 16], counter: 8 }, psize: 10 }.encode();
        // No counter, one beyond the file, no bytes, more than a block has, reserved.
        for (at, byte) in [(48, 0), (53, 0x40), (56, 0), (59, 2), (60, 1)] {
            let mut bad = block;
            bad[at] = byte;
            assert!(RawBlock::decode(&bad).is_err(), "byte {at}");
        }
    }
}
