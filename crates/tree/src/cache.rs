//! Cache of stored nodes, shared by all trees of a pool: the metadata half of ZFS's ARC. Its size
//! is set by the pool. File content has a cache of its own (`blockio::cache`).
//!
//! Which nodes stay is decided by `steadfast_cache` (S3-FIFO). The cache is divided into shards,
//! each under a read-write lock. A hit takes the shared lock and moves nothing. Pointers name their
//! blocks for ever, so an entry is never wrong, only useless. The sync that frees a block removes
//! its node.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use steadfast_cache::{Shard, shard_of};
use steadfast_format::BlockPointer;

use crate::node::Node;
use crate::nodes::Flights;

/// Shards when the cache is large enough for each to hold a good many nodes.
const SHARDS_MAX: usize = 16;
/// A shard smaller than this would evict by accident of hashing.
const SHARD_BYTES_MIN: usize = 1 << 20;

/// Cache of nodes in the form trees use them. See the module's text.
#[derive(Debug)]
pub struct NodeCache {
    parts: [Part; SHARDS_MAX],
    /// How many of the parts are in use: as many as the size allows.
    parts_used: AtomicUsize,
    bytes_max: AtomicUsize,
    /// Nodes being read.
    flights: Flights,
}

/// A shard and its counters.
#[derive(Debug)]
struct Part {
    shard: RwLock<Shard<Kept>>,
    hits: AtomicU64,
    misses: AtomicU64,
    shared: AtomicU64,
}

#[derive(Debug)]
struct Kept {
    pointer: BlockPointer,
    /// Whose key opened it ([`crate::NodeStore::domain`]).
    domain: u64,
    node: Arc<Node>,
}

impl Kept {
    /// The whole pointer must agree: an address alone is a claim, the hash is the proof. And what
    /// one key opened, another may not.
    fn is(&self, pointer: &BlockPointer, domain: u64) -> bool {
        self.pointer == *pointer && self.domain == domain
    }
}

/// Counters of a cache.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CacheStatistics {
    /// Nodes found.
    pub hits: u64,
    /// Nodes not found, and then read: each counts once, however often it was looked for.
    pub misses: u64,
    /// Nodes not found, and taken from another operation that was reading them.
    pub shared: u64,
    /// Nodes that went for others.
    pub evictions: u64,
    /// Memory of the nodes held now, in bytes.
    pub bytes: usize,
    /// Nodes held now.
    pub nodes: usize,
    /// Nodes held now that an operation is using.
    pub pinned: usize,
}

impl NodeCache {
    /// A cache that holds at most `bytes` bytes of nodes. Zero is allowed: nothing is kept.
    #[must_use]
    pub fn new(bytes: usize) -> Arc<Self> {
        let cache = NodeCache {
            parts: std::array::from_fn(|_| Part {
                shard: RwLock::new(Shard::new(0)),
                hits: AtomicU64::new(0),
                misses: AtomicU64::new(0),
                shared: AtomicU64::new(0),
            }),
            parts_used: AtomicUsize::new(1),
            bytes_max: AtomicUsize::new(0),
            flights: Flights::default(),
        };
        cache.set_bytes_max(bytes);
        Arc::new(cache)
    }

    /// Changes how many bytes of nodes the cache may hold; what is too much goes at once. All nodes
    /// go where the number of shards changes: each is looked for in another one then.
    pub fn set_bytes_max(&self, bytes: usize) {
        let used = (bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        if self.parts_used.swap(used, Ordering::Relaxed) != used {
            for part in &self.parts {
                part.shard.write().expect("no panic while held").set_bytes_max(0);
            }
        }
        self.bytes_max.store(bytes, Ordering::Relaxed);
        for part in &self.parts[..used] {
            part.shard.write().expect("no panic while held").set_bytes_max(bytes / used);
        }
    }

    /// Bytes of nodes it may hold.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Counters so far.
    #[must_use]
    pub fn statistics(&self) -> CacheStatistics {
        let mut statistics = CacheStatistics::default();
        for part in &self.parts {
            statistics.hits += part.hits.load(Ordering::Relaxed);
            statistics.misses += part.misses.load(Ordering::Relaxed);
            statistics.shared += part.shared.load(Ordering::Relaxed);
            let shard = part.shard.read().expect("no panic while held");
            statistics.evictions += shard.evictions();
            statistics.bytes += shard.bytes();
            statistics.nodes += shard.len();
            statistics.pinned += shard.values().filter(|kept| Arc::strong_count(&kept.node) > 1).count();
        }
        statistics
    }

    /// Forgets all nodes (benchmarks of a cold cache; export), also those being read: who asks for
    /// one later reads it anew. Counters go on.
    pub fn clear(&self) {
        self.flights.lock().expect("no panic while held").clear();
        for part in &self.parts {
            part.shard.write().expect("no panic while held").retain(|_| false);
        }
    }

    /// A node that is here. One that is not is a miss once somebody reads it
    /// ([`NodeCache::count_miss`]).
    pub(crate) fn glance(&self, pointer: &BlockPointer, domain: u64) -> Option<Arc<Node>> {
        let part = self.part(pointer);
        let shard = part.shard.read().expect("no panic while held");
        let found = shard.find(pointer.copies[0], |kept| kept.is(pointer, domain))?;
        part.hits.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(&found.node))
    }

    fn count_miss(&self, pointer: &BlockPointer) {
        self.part(pointer).misses.fetch_add(1, Ordering::Relaxed);
    }

    fn count_shared(&self, pointer: &BlockPointer) {
        self.part(pointer).shared.fetch_add(1, Ordering::Relaxed);
    }

    /// As [`NodeCache::glance`], without counting.
    pub(crate) fn peek(&self, pointer: &BlockPointer, domain: u64) -> Option<Arc<Node>> {
        let shard = self.part(pointer).shard.read().expect("no panic while held");
        let found = shard.find(pointer.copies[0], |kept| kept.is(pointer, domain))?;
        Some(Arc::clone(&found.node))
    }

    pub(crate) fn insert(&self, pointer: BlockPointer, node: Arc<Node>, domain: u64) {
        let bytes = node.memory_bytes();
        let mut shard = self.part(&pointer).shard.write().expect("no panic while held");
        shard.insert(pointer.copies[0], Kept { pointer, domain, node }, bytes);
    }

    pub(crate) fn remove(&self, pointer: &BlockPointer) {
        self.part(pointer).shard.write().expect("no panic while held").remove(pointer.copies[0]);
        self.flights.lock().expect("no panic while held").remove(&pointer.copies[0]);
    }

    fn part(&self, pointer: &BlockPointer) -> &Part {
        &self.parts[shard_of(pointer.copies[0], self.parts_used.load(Ordering::Relaxed))]
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

    pub fn count_shared(&self, pointer: &BlockPointer) {
        self.cache.count_shared(pointer);
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

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_format::{Address, BlockKind, Compression, SegmentId, Stamp, Txg};

    fn pointer(offset: u32) -> BlockPointer {
        BlockPointer {
            hash: [0; 32],
            copies: [Address { segment: SegmentId(1), offset }, Address::NONE, Address::NONE],
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
    fn a_cache_of_any_size_is_resized_while_it_is_used() {
        let cache = NodeCache::new(10_000_000);
        (0..5_000).for_each(|offset| cache.insert(pointer(offset), node(), 0));
        for (bytes, nodes_min) in [(100 << 10, 60), (0, 0), (40 << 20, 5_000), (1 << 20, 600)] {
            cache.set_bytes_max(bytes);
            assert_eq!(cache.bytes_max(), bytes);
            assert!(cache.statistics().bytes <= bytes);
            (0..5_000).for_each(|offset| cache.insert(pointer(offset), node(), 0));
            let kept = cache.statistics();
            assert!(kept.bytes <= bytes && kept.nodes >= nodes_min, "{kept:?} in {bytes}");
            let found = (0..5_000).filter(|&offset| cache.peek(&pointer(offset), 0).is_some()).count();
            assert_eq!(found, kept.nodes, "each that is held is found");
        }
    }

    #[test]
    fn what_is_used_and_what_went_is_counted() {
        let cache = NodeCache::new(100 << 10);
        cache.insert(pointer(0), node(), 0);
        let held = cache.glance(&pointer(0), 0).expect("it is here");
        assert_eq!((cache.statistics().pinned, cache.statistics().evictions), (1, 0));
        drop(held);
        (1..500).for_each(|offset| cache.insert(pointer(offset), node(), 0));
        let seen = cache.statistics();
        assert_eq!((seen.pinned, seen.evictions), (0, 500 - seen.nodes as u64));
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
        let fullest = cache.parts.iter().map(|part| part.shard.read().unwrap().len()).max().unwrap();
        assert!(fullest < 2 * 4_000 / 16, "{fullest} of 4,000 in one of 16 shards");
    }
}
