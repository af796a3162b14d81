//! Head of a chunk of a cache device: the blocks that lie in the chunk. FORMAT.md, "Cache chunk".

use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, PoolGuid};

/// Head of a chunk.
///
/// | off | len | field    | meaning                                                             |
/// |-----|-----|----------|---------------------------------------------------------------------|
/// |   0 |   8 | magic    | `SFcache` and a zero                                                |
/// |   8 |  32 | check    | BLAKE3 of all that follows, entries included                        |
/// |  40 |   4 | version  | 1                                                                   |
/// |  44 |   4 | count    | number of entries, 1 to 1,024                                       |
/// |  48 |   8 | pool     | the pool                                                            |
/// |  56 |   8 | device   | guid of the cache device                                            |
/// |  64 |   8 | sequence | from 1; the chunk that was written last has the greatest            |
/// |  72 |     | entry ...| hash of the stored block (32), offset in the chunk (4), length (4)  |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CacheChunk {
    /// The pool.
    pub pool: PoolGuid,
    /// Guid of the cache device.
    pub device: u64,
    /// Number of the write, from 1.
    pub sequence: u64,
    /// Blocks, by hash.
    pub entries: Vec<CacheEntry>,
}

/// A block of a chunk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CacheEntry {
    /// Hash of the stored bytes.
    pub hash: [u8; 32],
    /// First byte in the chunk.
    pub offset: u32,
    /// Stored bytes.
    pub len: u32,
}

const MAGIC: &[u8; 8] = b"SFcache\0";
const VERSION: u32 = 1;
/// Where the bytes begin that the check covers.
const CHECKED_FROM: usize = 40;

impl CacheChunk {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "cache_chunk",
        &[
            ("magic", 0, 8),
            ("check", 8, 32),
            ("version", 40, 4),
            ("count", 44, 4),
            ("pool", 48, 8),
            ("device", 56, 8),
            ("sequence", 64, 8),
        ],
        &["entry"],
    );
    /// Bytes of an entry.
    pub const ENTRY_SIZE: usize = 40;
    /// Most entries.
    pub const ENTRIES_MAX: usize = 1_024;

    /// Bytes of a head with so many entries.
    #[must_use]
    pub const fn size(entries: usize) -> usize {
        Self::LAYOUT.size() + entries * Self::ENTRY_SIZE
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self, hash: impl Fn(&[u8]) -> [u8; 32]) -> Vec<u8> {
        assert!(self.sequence != 0 && (1..=Self::ENTRIES_MAX).contains(&self.entries.len()));
        let mut entries = Vec::with_capacity(self.entries.len() * Self::ENTRY_SIZE);
        for entry in &self.entries {
            entries.extend_from_slice(&entry.hash);
            entries.extend_from_slice(&entry.offset.to_le_bytes());
            entries.extend_from_slice(&entry.len.to_le_bytes());
        }
        let count = u32::try_from(self.entries.len()).expect("few entries");
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("magic", MAGIC).bytes("check", &[0; 32]).u32("version", VERSION).u32("count", count);
        out.u64("pool", self.pool.0).u64("device", self.device).u64("sequence", self.sequence);
        let mut bytes = out.tail("entry", &entries).finish();
        let check = hash(&bytes[CHECKED_FROM..]);
        bytes[8..CHECKED_FROM].copy_from_slice(&check);
        bytes
    }

    /// Reads one from the front of a chunk. Bytes behind it are not looked at.
    pub fn decode(bytes: &[u8], hash: impl Fn(&[u8]) -> [u8; 32]) -> Result<CacheChunk, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        if from.bytes("magic", 8) != MAGIC {
            return Err(from.refuse("magic", 0u64));
        }
        let check: [u8; 32] = from.array("check");
        let version = from.u32("version");
        if version != VERSION {
            return Err(from.refuse("version", version));
        }
        let count = from.u32("count");
        if !(1..=Self::ENTRIES_MAX).contains(&(count as usize)) {
            return Err(from.refuse("count", count));
        }
        let (pool, device, sequence) = (PoolGuid(from.u64("pool")), from.u64("device"), from.u64("sequence"));
        if sequence == 0 {
            return Err(from.refuse("sequence", sequence));
        }
        let rows = from.tail("entry", count as usize * Self::ENTRY_SIZE)?;
        if hash(&bytes[CHECKED_FROM..Self::size(count as usize)]) != check {
            return Err(from.refuse("check", 0u64));
        }
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let entry = |row: &[u8]| CacheEntry {
            hash: row[..32].try_into().expect("32 bytes"),
            offset: number(&row[32..36]),
            len: number(&row[36..40]),
        };
        Ok(CacheChunk {
            pool,
            device,
            sequence,
            entries: rows.chunks_exact(Self::ENTRY_SIZE).map(entry).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: &[u8]) -> [u8; 32] {
        let mut sum = [0_u8; 32];
        bytes.iter().enumerate().for_each(|(at, byte)| sum[at % 32] = sum[at % 32].wrapping_mul(3) ^ *byte);
        sum
    }

    #[test]
    fn a_head_is_read_back_and_any_changed_byte_is_refused() {
        let entry = CacheEntry { hash: [7; 32], offset: 4096, len: 100 };
        let head = CacheChunk { pool: PoolGuid(1), device: 2, sequence: 3, entries: vec![entry; 3] };
        let mut bytes = head.encode(sum);
        assert_eq!(bytes.len(), CacheChunk::size(3));
        assert_eq!(CacheChunk::decode(&bytes, sum), Ok(head.clone()));
        assert!(CacheChunk::decode(&bytes[..bytes.len() - 1], sum).is_err());
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert!(CacheChunk::decode(&bytes, sum).is_err(), "byte {at}");
            bytes[at] ^= 1;
        }
        bytes.extend_from_slice(&[9; 50]);
        assert_eq!(CacheChunk::decode(&bytes, sum), Ok(head), "zeros or blocks follow");
    }
}
