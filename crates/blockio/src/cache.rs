//! Verified, opened blocks of file content, kept for the next reader. Bounded; second chance (a clock) decides who goes.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

use steadfast_crypto::Verified;
use steadfast_format::{Address, BlockPointer, DatasetId};

/// The bytes of a block, verified, opened and decompressed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Block(Arc<Verified<Vec<u8>>>);

impl Block {
    pub(crate) fn new(bytes: Verified<Vec<u8>>) -> Block {
        Block(Arc::new(bytes))
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Locks are held for a lookup only; this many keep threads out of each other's way.
const SHARDS: usize = 16;
/// A block larger than this share of a shard would push out everything else for itself.
const BLOCK_SHARE: usize = 4;
/// What an entry costs besides its bytes.
const ENTRY_OVERHEAD: usize = 160;

pub(crate) struct Cache {
    shards: Vec<Mutex<Shard>>,
    shard_bytes_max: usize,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Address, Entry>,
    /// The clock's circle; may name what is gone already.
    circle: VecDeque<Address>,
    bytes: usize,
}

struct Entry {
    block: Block,
    hash: [u8; 32],
    dataset: DatasetId,
    referenced: bool,
}

impl Entry {
    fn cost(&self) -> usize {
        self.block.len() + ENTRY_OVERHEAD
    }
}

impl Cache {
    pub fn new(bytes_max: usize) -> Cache {
        Cache { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), shard_bytes_max: bytes_max / SHARDS }
    }

    /// The block, if it is here for this dataset with this hash.
    pub fn get(&self, dataset: DatasetId, pointer: &BlockPointer) -> Option<Block> {
        let mut shard = self.shard(pointer.copies[0]);
        let entry = shard.entries.get_mut(&pointer.copies[0])?;
        if entry.dataset != dataset
            || entry.hash != pointer.hash
            || entry.block.len() != pointer.lsize as usize
        {
            return None;
        }
        entry.referenced = true;
        Some(entry.block.clone())
    }

    pub fn insert(&self, dataset: DatasetId, pointer: &BlockPointer, block: &Block) {
        let entry = Entry { block: block.clone(), hash: pointer.hash, dataset, referenced: false };
        if entry.cost() > self.shard_bytes_max / BLOCK_SHARE {
            return;
        }
        let mut shard = self.shard(pointer.copies[0]);
        let shard = &mut *shard;
        shard.bytes += entry.cost();
        match shard.entries.insert(pointer.copies[0], entry) {
            Some(before) => shard.bytes -= before.cost(),
            None => shard.circle.push_back(pointer.copies[0]),
        }
        while shard.bytes > self.shard_bytes_max {
            let address = shard.circle.pop_front().expect("whatever has bytes is in the circle");
            match shard.entries.get_mut(&address) {
                Some(entry) if entry.referenced => {
                    entry.referenced = false;
                    shard.circle.push_back(address);
                }
                Some(_) => shard.remove(address),
                None => {}
            }
        }
    }

    pub fn remove(&self, address: Address) {
        let mut shard = self.shard(address);
        shard.remove(address);
        // Names of what is gone are swept once they are the greater part.
        if shard.circle.len() > 2 * shard.entries.len() + 64 {
            shard.sweep();
        }
    }

    /// Drops everything of one dataset: its key was unloaded.
    pub fn forget(&self, dataset: DatasetId) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.entries.retain(|_, entry| entry.dataset != dataset);
            shard.bytes = shard.entries.values().map(Entry::cost).sum();
            shard.sweep();
        }
    }

    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).bytes).sum()
    }

    fn shard(&self, address: Address) -> MutexGuard<'_, Shard> {
        let mixed =
            (address.segment.0 << 20 ^ u64::from(address.offset) >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        lock(&self.shards[(mixed >> 32) as usize % SHARDS])
    }
}

impl Shard {
    fn remove(&mut self, address: Address) {
        if let Some(entry) = self.entries.remove(&address) {
            self.bytes -= entry.cost();
        }
    }

    /// Leaves one name per entry in the circle.
    fn sweep(&mut self) {
        let mut seen = std::collections::HashSet::new();
        self.circle.retain(|address| self.entries.contains_key(address) && seen.insert(*address));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_format::{BlockKind, Compression, SegmentId, Stamp, Txg};

    fn pointer(segment: u64, lsize: u32) -> BlockPointer {
        BlockPointer {
            hash: [segment as u8; 32],
            copies: [Address { segment: SegmentId(segment), offset: 0 }, Address::NONE],
            psize: lsize,
            lsize,
            birth: Txg(1),
            stamp: Stamp::default(),
            compression: Compression::Off,
            kind: BlockKind::Data,
            level: 0,
        }
    }

    fn block(len: usize) -> Block {
        Block::new(Verified::sign(vec![7; len]).0)
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let cache = Cache::new(SHARDS * (64 << 10));
        let hot = pointer(1, 4096);
        cache.insert(DatasetId(1), &hot, &block(4096));
        for segment in 2..2000 {
            cache.insert(DatasetId(1), &pointer(segment, 4096), &block(4096));
            assert!(cache.get(DatasetId(1), &hot).is_some(), "segment {segment}");
            assert!(cache.bytes() <= SHARDS * (64 << 10));
        }
        cache.insert(DatasetId(1), &pointer(5000, 32 << 10), &block(32 << 10));
        assert!(cache.get(DatasetId(1), &pointer(5000, 32 << 10)).is_none(), "too large for this cache");
    }

    #[test]
    fn an_entry_is_for_its_dataset_hash_and_size_only() {
        let cache = Cache::new(16 << 20);
        let at = pointer(1, 4096);
        cache.insert(DatasetId(1), &at, &block(4096));
        assert!(cache.get(DatasetId(2), &at).is_none());
        assert!(cache.get(DatasetId(1), &BlockPointer { hash: [9; 32], ..at }).is_none());
        assert!(cache.get(DatasetId(1), &BlockPointer { lsize: 4095, ..at }).is_none());
        cache.forget(DatasetId(1));
        assert!(cache.get(DatasetId(1), &at).is_none());
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn removing_and_inserting_again_leaves_no_trace() {
        let cache = Cache::new(16 << 20);
        for _ in 0..10_000 {
            cache.insert(DatasetId(1), &pointer(1, 100), &block(100));
            cache.remove(pointer(1, 100).copies[0]);
        }
        assert_eq!(cache.bytes(), 0);
        assert!(cache.shards.iter().all(|shard| lock(shard).circle.len() <= 65));
    }
}
