//! Cache of stored nodes, shared by all trees of a pool: the metadata half of ZFS's ARC. Its size
//! is set by the pool. File content has a cache of its own (`blockio::cache`).
//!
//! Unlike the ARC, which adapts between recency and frequency, it is a clock with second chance:
//! shards, each a table under a read-write lock with a clock hand. A hit takes the shared lock and
//! sets one bit. The hand clears bits until it finds one already clear, and evicts there. That is
//! close to least recently used, and moves nothing on a hit. Pointers name their blocks for ever,
//! so an entry is never wrong, only useless. The sync that frees a block removes its node.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use steadfast_format::{Address, BlockPointer};

use crate::node::Node;
use crate::nodes::Flights;

/// Shards when the cache is large enough for each to hold a good many nodes.
const SHARDS_MAX: usize = 16;
/// A shard smaller than this would evict by accident of hashing.
const SHARD_BYTES_MIN: usize = 1 << 20;

/// Cache of nodes in the form trees use them. See the module's text.
#[derive(Debug)]
pub struct NodeCache {
    shards: Box<[RwLock<Shard>]>,
    shard_bytes_max: AtomicUsize,
    /// Nodes being read.
    flights: Flights,
}

/// Counters of a cache.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CacheStatistics {
    /// Nodes found.
    pub hits: u64,
    /// Nodes not found, and then read: each counts once, however often it was looked for.
    pub misses: u64,
    /// Memory of the nodes held now, in bytes.
    pub bytes: usize,
    /// Nodes held now.
    pub nodes: usize,
}

impl NodeCache {
    /// A cache that holds at most `bytes` bytes of nodes. Zero is allowed: nothing is kept.
    #[must_use]
    pub fn new(bytes: usize) -> Arc<Self> {
        let shards = (bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        Arc::new(NodeCache {
            shards: (0..shards).map(|_| RwLock::default()).collect(),
            shard_bytes_max: AtomicUsize::new(bytes / shards),
            flights: Flights::default(),
        })
    }

    /// Changes how many bytes of nodes the cache may hold; what is too much goes at once. The
    /// number of shards stays.
    pub fn set_bytes_max(&self, bytes: usize) {
        let shard_bytes_max = bytes / self.shards.len();
        self.shard_bytes_max.store(shard_bytes_max, Ordering::Relaxed);
        for shard in &self.shards {
            let mut shard = shard.write().expect("no panic while held");
            while shard.bytes > shard_bytes_max {
                shard.evict_one();
            }
            shard.close_ranks();
        }
    }

    /// Bytes of nodes it may hold.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.shard_bytes_max.load(Ordering::Relaxed) * self.shards.len()
    }

    /// Counters so far.
    #[must_use]
    pub fn statistics(&self) -> CacheStatistics {
        let mut statistics = CacheStatistics::default();
        for shard in &self.shards {
            let shard = shard.read().expect("no panic while held");
            statistics.hits += shard.hits.load(Ordering::Relaxed);
            statistics.misses += shard.misses.load(Ordering::Relaxed);
            statistics.bytes += shard.bytes;
            statistics.nodes += shard.index.len();
        }
        statistics
    }

    /// Forgets all nodes (benchmarks of a cold cache; export), also those being read: who asks for
    /// one later reads it anew. Counters go on.
    pub fn clear(&self) {
        self.flights.lock().expect("no panic while held").clear();
        for shard in &self.shards {
            let mut shard = shard.write().expect("no panic while held");
            let (hits, misses) = (std::mem::take(&mut shard.hits), std::mem::take(&mut shard.misses));
            *shard = Shard { hits, misses, ..Shard::default() };
        }
    }

    /// A node that is here. One that is not is a miss once somebody reads it
    /// ([`NodeCache::count_miss`]).
    pub(crate) fn glance(&self, pointer: &BlockPointer, domain: u64) -> Option<Arc<Node>> {
        let shard = self.shard(pointer).read().expect("no panic while held");
        let found = shard.find(pointer, domain)?;
        shard.hits.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    fn count_miss(&self, pointer: &BlockPointer) {
        let shard = self.shard(pointer).read().expect("no panic while held");
        shard.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// As [`NodeCache::glance`], without counting.
    pub(crate) fn peek(&self, pointer: &BlockPointer, domain: u64) -> Option<Arc<Node>> {
        self.shard(pointer).read().expect("no panic while held").find(pointer, domain)
    }

    pub(crate) fn insert(&self, pointer: BlockPointer, node: Arc<Node>, domain: u64) {
        let bytes = node.memory_bytes() + size_of::<Entry>();
        let bytes_max = self.shard_bytes_max.load(Ordering::Relaxed);
        if bytes <= bytes_max {
            let entry = Entry { pointer, domain, node, bytes, referenced: AtomicBool::new(false) };
            self.shard(&pointer).write().expect("no panic while held").insert(entry, bytes_max);
        }
    }

    pub(crate) fn remove(&self, pointer: &BlockPointer) {
        self.shard(pointer).write().expect("no panic while held").remove(pointer.copies[0]);
        self.flights.lock().expect("no panic while held").remove(&pointer.copies[0]);
    }

    fn shard(&self, pointer: &BlockPointer) -> &RwLock<Shard> {
        let mut hasher = AddressHasher::default();
        std::hash::Hash::hash(&pointer.copies[0], &mut hasher);
        // The table uses the low and the top bits; take others.
        &self.shards[(hasher.finish() >> 32) as usize % self.shards.len()]
    }
}

/// The cache as the trees of one key see it.
#[derive(Clone, Debug)]
pub(crate) struct CacheView {
    cache: Arc<NodeCache>,
    domain: u64,
}

impl CacheView {
    pub fn new(cache: Arc<NodeCache>, domain: u64) -> CacheView {
        CacheView { cache, domain }
    }

    pub fn domain(&self) -> u64 {
        self.domain
    }

    pub fn bytes_max(&self) -> usize {
        self.cache.bytes_max()
    }

    pub fn flights(&self) -> &Flights {
        &self.cache.flights
    }

    pub fn count_miss(&self, pointer: &BlockPointer) {
        self.cache.count_miss(pointer);
    }

    pub fn glance(&self, pointer: &BlockPointer) -> Option<Arc<Node>> {
        self.cache.glance(pointer, self.domain)
    }

    pub fn peek(&self, pointer: &BlockPointer) -> Option<Arc<Node>> {
        self.cache.peek(pointer, self.domain)
    }

    pub fn insert(&self, pointer: BlockPointer, node: Arc<Node>) {
        self.cache.insert(pointer, node, self.domain);
    }

    pub fn remove(&self, pointer: &BlockPointer) {
        self.cache.remove(pointer);
    }
}

#[derive(Debug)]
struct Entry {
    pointer: BlockPointer,
    /// Whose key opened it ([`crate::NodeStore::domain`]).
    domain: u64,
    node: Arc<Node>,
    bytes: usize,
    referenced: AtomicBool,
}

#[derive(Debug, Default)]
struct Shard {
    index: AddressMap<usize>,
    slots: Vec<Option<Entry>>,
    vacant: Vec<usize>,
    hand: usize,
    bytes: usize,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Shard {
    fn find(&self, pointer: &BlockPointer, domain: u64) -> Option<Arc<Node>> {
        let entry = self.slots[*self.index.get(&pointer.copies[0])?].as_ref()?;
        // The whole pointer must agree: an address alone is a claim, the hash is the proof. And
        // what one key opened, another may not.
        if entry.pointer != *pointer || entry.domain != domain {
            return None;
        }
        if !entry.referenced.load(Ordering::Relaxed) {
            entry.referenced.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(&entry.node))
    }

    fn insert(&mut self, entry: Entry, bytes_max: usize) {
        self.remove(entry.pointer.copies[0]);
        while self.bytes + entry.bytes > bytes_max {
            self.evict_one();
        }
        let (address, bytes) = (entry.pointer.copies[0], entry.bytes);
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.slots[slot] = Some(entry);
                slot
            }
            None => {
                self.slots.push(Some(entry));
                self.slots.len() - 1
            }
        };
        self.index.insert(address, slot);
        self.bytes += bytes;
    }

    fn remove(&mut self, address: Address) {
        if let Some(slot) = self.index.remove(&address) {
            let entry = self.slots[slot].take().expect("the index names full slots");
            self.bytes -= entry.bytes;
            self.vacant.push(slot);
        }
    }

    /// Lets go of vacant slots, which the hand would have to pass for ever if the cache stays
    /// smaller.
    fn close_ranks(&mut self) {
        self.slots.retain(Option::is_some);
        self.slots.shrink_to_fit();
        self.vacant = Vec::new();
        let addresses = self.slots.iter().flatten().map(|entry| entry.pointer.copies[0]);
        self.index = addresses.zip(0..).collect();
        self.hand = 0;
    }

    /// Turns the hand to the first entry not referenced since its last visit, and evicts it. Ends
    /// within two turns.
    fn evict_one(&mut self) {
        assert!(!self.index.is_empty(), "one entry always fits: it is smaller than a shard");
        loop {
            self.hand = (self.hand + 1) % self.slots.len();
            if let Some(entry) = &self.slots[self.hand]
                && !entry.referenced.swap(false, Ordering::Relaxed)
            {
                return self.remove(entry.pointer.copies[0]);
            }
        }
    }
}

/// Map keyed by addresses. They are ours, not an attacker's, so hashing is two multiplications.
pub(crate) type AddressMap<V> = HashMap<Address, V, BuildHasherDefault<AddressHasher>>;

#[derive(Debug, Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        // An odd constant near 2^64 / golden ratio spreads consecutive numbers.
        self.0 = (self.0.rotate_left(26) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_format::{BlockKind, Compression, SegmentId, Stamp, Txg};

    fn pointer(offset: u32) -> BlockPointer {
        BlockPointer {
            hash: [0; 32],
            copies: [Address { segment: SegmentId(1), offset }, Address::NONE],
            psize: 1,
            lsize: 1,
            birth: Txg(1),
            written: Txg(0),
            stamp: Stamp::default(),
            compression: Compression::Off,
            kind: BlockKind::Meta,
            level: 0,
        }
    }

    fn node() -> Arc<Node> {
        let mut node = Node::leaf();
        node.page.push(b"key", &[0; 1000]);
        Arc::new(node)
    }

    #[test]
    fn the_cache_never_holds_more_than_its_size() {
        for size in [0, 1, 5_000, 100_000, 5 << 20] {
            let cache = NodeCache::new(size);
            for offset in 0..10_000 {
                cache.insert(pointer(offset), node(), 0);
                assert!(cache.statistics().bytes <= size);
            }
        }
    }

    #[test]
    fn a_node_used_again_and_again_survives_a_stream_of_others() {
        let cache = NodeCache::new(50_000);
        cache.insert(pointer(0), node(), 0);
        for offset in 1..1_000 {
            assert!(cache.glance(&pointer(0), 0).is_some(), "after {offset}");
            cache.insert(pointer(offset), node(), 0);
        }
        assert_eq!(cache.statistics().hits, 999);
    }

    #[test]
    fn a_cache_that_was_large_is_as_quick_as_one_that_never_was() {
        let cache = NodeCache::new(10_000_000);
        (0..5_000).for_each(|offset| cache.insert(pointer(offset), node(), 0));
        cache.set_bytes_max(20_000);
        let kept = cache.statistics();
        assert!(kept.bytes <= 20_000 && kept.nodes > 0);
        for shard in &cache.shards {
            let shard = shard.read().unwrap();
            assert_eq!(shard.slots.len(), shard.index.len(), "the hand passes what is there");
            assert!(shard.index.iter().all(|(address, slot)| {
                shard.slots[*slot].as_ref().is_some_and(|entry| entry.pointer.copies[0] == *address)
            }));
        }
        assert_eq!(
            (0..5_000).filter(|&offset| cache.peek(&pointer(offset), 0).is_some()).count(),
            kept.nodes
        );
    }

    #[test]
    fn the_same_address_with_another_hash_is_a_miss() {
        let cache = NodeCache::new(50_000);
        cache.insert(pointer(7), node(), 0);
        assert!(cache.glance(&BlockPointer { hash: [1; 32], ..pointer(7) }, 0).is_none());
        cache.count_miss(&pointer(7));
        assert_eq!((cache.statistics().hits, cache.statistics().misses), (0, 1));
        cache.remove(&pointer(7));
        assert_eq!((cache.statistics().nodes, cache.statistics().bytes), (0, 0));
    }

    #[test]
    fn what_one_key_opened_is_not_there_for_another() {
        let cache = NodeCache::new(50_000);
        let [one, two] = [1, 2].map(|domain| CacheView::new(Arc::clone(&cache), domain));
        one.insert(pointer(7), node());
        assert!(one.glance(&pointer(7)).is_some() && one.peek(&pointer(7)).is_some());
        assert!(two.glance(&pointer(7)).is_none() && two.peek(&pointer(7)).is_none());
        assert!(one.peek(&pointer(7)).is_some() && two.peek(&pointer(7)).is_none());
    }

    #[test]
    fn shards_share_the_load() {
        let cache = NodeCache::new(16 << 20);
        (0..4_000).for_each(|index| cache.insert(pointer(index * 4096), node(), 0));
        let fullest = cache.shards.iter().map(|shard| shard.read().unwrap().index.len()).max().unwrap();
        assert!(fullest < 2 * 4_000 / 16, "{fullest} of 4,000 in one of 16 shards");
    }
}
