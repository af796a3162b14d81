//! The block cache: verified, opened blocks of file content, kept for the next reader.
//!
//! Like ZFS's ARC, but S3-FIFO decides which blocks stay (`steadfast_cache`) instead of the two
//! adapting lists, its size is set by the pool instead of adapting to memory, and it holds file
//! content only: tree nodes have a cache of their own (`tree::cache`). Blocks are kept
//! decompressed. The second level, on cache devices, is [`crate::l2arc`].
//!
//! A block that is missing is read once, however many want it. The first reader leads; the others
//! wait for its block ([`Flight`]) and hold no lock. If the leader fails, each of them reads for
//! itself, so that the error is its own. If the block is freed or its dataset forgotten meanwhile,
//! the flight ends as usual and leaves nothing here.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use steadfast_cache::{AddressMap, Shard, shard_of};
use steadfast_crypto::Verified;
use steadfast_device::Buffer;
use steadfast_env::waiting::for_read;
use steadfast_format::{Address, BlockPointer, DatasetId};

/// The bytes of a block, verified, opened and decompressed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Block(Verified<Arc<Buffer>>);

impl Block {
    pub(crate) fn new(bytes: Verified<Buffer>) -> Block {
        Block(bytes.hold(Arc::new))
    }

    /// Content that was written just now.
    pub(crate) fn written(content: &Arc<Buffer>) -> Block {
        Block(Verified::written(Arc::clone(content)))
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
const BLOCK_SHARE: usize = 2;

pub(crate) struct Cache {
    shards: Vec<Mutex<Part>>,
    bytes_max: AtomicUsize,
}

/// Answer to a reader.
pub(crate) enum Lookup<'c> {
    /// Here it is.
    Hit(Block),
    /// Somebody reads it.
    Follow(Arc<Flight>),
    /// Read it, and say so.
    Lead(Lead<'c>),
    /// Read it: the address is being read as another block, which one of the two is not.
    Alone,
}

/// A block being read.
pub(crate) struct Flight {
    dataset: DatasetId,
    hash: [u8; 32],
    landed: Mutex<Landed>,
    ended: Condvar,
}

#[derive(Default)]
struct Landed {
    /// `Some` once it has ended, with the block if it was good.
    block: Option<Option<Block>>,
    /// Somebody waits for that. To wake nobody is a call of the system, too.
    is_awaited: bool,
}

impl Flight {
    /// Waits for the leader; `None` if it failed.
    pub fn wait(&self) -> Option<Block> {
        let mut landed = self.landed.lock().expect("no holder of this lock panics");
        landed.is_awaited = true;
        let landed = for_read(|| self.ended.wait_while(landed, |landed| landed.block.is_none()));
        landed.expect("no holder of this lock panics").block.clone().expect("it has ended")
    }
}

/// The duty to end a flight. Dropped without a block, it ends as failed.
pub(crate) struct Lead<'c> {
    cache: &'c Cache,
    address: Address,
    flight: Arc<Flight>,
}

impl Lead<'_> {
    /// The block is here: waiters get it, and it is kept if `keep`.
    pub fn land(self, pointer: &BlockPointer, block: &Block, keep: bool) {
        self.end(Some(block), keep.then_some(pointer));
    }

    fn end(&self, block: Option<&Block>, keep_as: Option<&BlockPointer>) {
        {
            let mut shard = self.cache.shard(self.address);
            // A free, or a forgotten dataset, has taken the flight out already.
            let listed =
                shard.flights.get(&self.address).is_some_and(|known| Arc::ptr_eq(known, &self.flight));
            if listed {
                shard.flights.remove(&self.address);
                if let (Some(block), Some(pointer)) = (block, keep_as) {
                    shard.insert(self.flight.dataset, pointer, block);
                }
            }
        }
        let is_awaited = {
            let mut landed = self.flight.landed.lock().expect("no holder of this lock panics");
            let is_first = landed.block.is_none();
            landed.block.get_or_insert_with(|| block.cloned());
            is_first && landed.is_awaited
        };
        if is_awaited {
            self.flight.ended.notify_all();
        }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.end(None, None);
    }
}

/// Blocks that are here, and those being read.
struct Part {
    shard: Shard<Kept>,
    flights: AddressMap<Arc<Flight>>,
}

struct Kept {
    block: Block,
    hash: [u8; 32],
    dataset: DatasetId,
}

impl Part {
    fn find(&self, dataset: DatasetId, pointer: &BlockPointer) -> Option<Block> {
        let is_it = |kept: &Kept| {
            kept.dataset == dataset && kept.hash == pointer.hash && kept.block.len() == pointer.lsize as usize
        };
        self.shard.find(pointer.copies[0], is_it).map(|kept| kept.block.clone())
    }

    fn insert(&mut self, dataset: DatasetId, pointer: &BlockPointer, block: &Block) {
        let bytes = block.0.memory_bytes();
        if bytes + Shard::<Kept>::ENTRY_BYTES <= self.shard.bytes_max() / BLOCK_SHARE {
            let kept = Kept { block: block.clone(), hash: pointer.hash, dataset };
            self.shard.insert(pointer.copies[0], kept, bytes);
        }
    }
}

impl Cache {
    pub fn new(bytes_max: usize) -> Cache {
        let cache = Cache {
            shards: (0..SHARDS)
                .map(|_| Mutex::new(Part { shard: Shard::new(0), flights: AddressMap::default() }))
                .collect(),
            bytes_max: AtomicUsize::new(0),
        };
        cache.set_bytes_max(bytes_max);
        cache
    }

    /// Changes the bound; what is too much goes at once.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        for shard in &self.shards {
            lock(shard).shard.set_bytes_max(bytes_max / SHARDS);
        }
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// The block, if it is here for this dataset with this hash; else the caller reads it.
    pub fn begin(&self, dataset: DatasetId, pointer: &BlockPointer) -> Lookup<'_> {
        let address = pointer.copies[0];
        let mut shard = self.shard(address);
        if let Some(block) = shard.find(dataset, pointer) {
            return Lookup::Hit(block);
        }
        if let Some(flight) = shard.flights.get(&address) {
            let same = flight.dataset == dataset && flight.hash == pointer.hash;
            return if same { Lookup::Follow(Arc::clone(flight)) } else { Lookup::Alone };
        }
        let (landed, ended) = (Mutex::default(), Condvar::new());
        let flight = Arc::new(Flight { dataset, hash: pointer.hash, landed, ended });
        shard.flights.insert(address, Arc::clone(&flight));
        Lookup::Lead(Lead { cache: self, address, flight })
    }

    /// Takes a block that nobody had to read.
    pub fn keep(&self, dataset: DatasetId, pointer: &BlockPointer, block: &Block) {
        self.shard(pointer.copies[0]).insert(dataset, pointer, block);
    }

    /// True if the block is here or being read.
    pub fn expects(&self, dataset: DatasetId, pointer: &BlockPointer) -> bool {
        let shard = self.shard(pointer.copies[0]);
        shard.flights.contains_key(&pointer.copies[0]) || shard.find(dataset, pointer).is_some()
    }

    /// True if the block is here.
    pub fn holds(&self, dataset: DatasetId, pointer: &BlockPointer) -> bool {
        self.shard(pointer.copies[0]).find(dataset, pointer).is_some()
    }

    pub fn remove(&self, address: Address) {
        let mut shard = self.shard(address);
        shard.shard.remove(address);
        shard.flights.remove(&address);
    }

    /// Drops everything of one dataset: its key was unloaded.
    pub fn forget(&self, dataset: DatasetId) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.flights.retain(|_, flight| flight.dataset != dataset);
            shard.shard.retain(|kept| kept.dataset != dataset);
        }
    }

    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).shard.bytes()).sum()
    }

    /// Blocks that went for others.
    pub fn evictions(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).shard.evictions()).sum()
    }

    fn shard(&self, address: Address) -> MutexGuard<'_, Part> {
        lock(&self.shards[shard_of(address, SHARDS)])
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
            copies: [Address { segment: SegmentId(segment), offset: 0 }, Address::NONE, Address::NONE],
            psize: lsize,
            lsize,
            birth: Txg(1),
            written: Txg(0),
            stamp: Stamp::default(),
            compression: Compression::Off,
            kind: BlockKind::Data,
            level: 0,
        }
    }

    fn block(len: usize) -> Block {
        Block::new(Verified::sign(Buffer::from(vec![7; len])).0)
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let cache = Cache::new(SHARDS * (64 << 10));
        let hot = pointer(1, 4096);
        cache.keep(DatasetId(1), &hot, &block(4096));
        for segment in 2..2000 {
            cache.keep(DatasetId(1), &pointer(segment, 4096), &block(4096));
            assert!(cache.get(DatasetId(1), &hot).is_some(), "segment {segment}");
            assert!(cache.bytes() <= SHARDS * (64 << 10));
        }
        cache.keep(DatasetId(1), &pointer(5000, 32 << 10), &block(32 << 10));
        assert!(cache.get(DatasetId(1), &pointer(5000, 32 << 10)).is_none(), "too large for this cache");
    }

    #[test]
    fn an_entry_is_for_its_dataset_hash_and_size_only() {
        let cache = Cache::new(16 << 20);
        let at = pointer(1, 4096);
        cache.keep(DatasetId(1), &at, &block(4096));
        assert!(cache.get(DatasetId(2), &at).is_none());
        assert!(cache.get(DatasetId(1), &BlockPointer { hash: [9; 32], ..at }).is_none());
        assert!(cache.get(DatasetId(1), &BlockPointer { lsize: 4095, ..at }).is_none());
        cache.forget(DatasetId(1));
        assert!(cache.get(DatasetId(1), &at).is_none());
        assert_eq!(cache.bytes(), 0);
    }

    impl Cache {
        fn get(&self, dataset: DatasetId, pointer: &BlockPointer) -> Option<Block> {
            self.shard(pointer.copies[0]).find(dataset, pointer)
        }
    }

    fn leads<'c>(cache: &'c Cache, at: &BlockPointer) -> Lead<'c> {
        match cache.begin(DatasetId(1), at) {
            Lookup::Lead(lead) => lead,
            _ => panic!("it is neither here nor under way"),
        }
    }

    fn follows(cache: &Cache, at: &BlockPointer) -> Arc<Flight> {
        match cache.begin(DatasetId(1), at) {
            Lookup::Follow(flight) => flight,
            _ => panic!("it is under way"),
        }
    }

    #[test]
    fn a_block_that_many_want_is_read_once() {
        let cache = Cache::new(16 << 20);
        let at = pointer(1, 4096);
        let lead = leads(&cache, &at);
        let flights: Vec<_> = (0..3).map(|_| follows(&cache, &at)).collect();
        assert!(cache.expects(DatasetId(1), &at));
        assert!(matches!(cache.begin(DatasetId(1), &BlockPointer { hash: [9; 32], ..at }), Lookup::Alone));
        std::thread::scope(|scope| {
            let waiting: Vec<_> = flights.iter().map(|flight| scope.spawn(|| flight.wait())).collect();
            lead.land(&at, &block(4096), true);
            for waiter in waiting {
                assert_eq!(waiter.join().unwrap().expect("it was read").len(), 4096);
            }
        });
        assert!(matches!(cache.begin(DatasetId(1), &at), Lookup::Hit(_)));
        assert!(cache.shards.iter().all(|shard| lock(shard).flights.is_empty()));
    }

    #[test]
    fn a_reader_that_fails_lets_the_others_go() {
        let cache = Cache::new(16 << 20);
        let at = pointer(1, 4096);
        let lead = leads(&cache, &at);
        let flight = follows(&cache, &at);
        drop(lead);
        assert!(flight.wait().is_none());
        drop(leads(&cache, &at));
    }

    #[test]
    fn what_was_freed_or_forgotten_while_it_was_read_is_not_kept() {
        let cache = Cache::new(16 << 20);
        let at = pointer(1, 4096);
        for turn in 0..2 {
            let lead = leads(&cache, &at);
            let flight = follows(&cache, &at);
            match turn {
                0 => cache.remove(at.copies[0]),
                _ => cache.forget(DatasetId(1)),
            }
            // A later reader reads anew, beside the flight that goes on.
            let second = leads(&cache, &at);
            lead.land(&at, &block(4096), true);
            assert!(flight.wait().is_some(), "whoever waited asked before");
            assert!(cache.get(DatasetId(1), &at).is_none());
            drop(second);
            assert_eq!(cache.bytes(), 0);
        }
    }

    #[test]
    fn a_smaller_bound_counts_at_once() {
        let cache = Cache::new(16 << 20);
        for segment in 1..2000 {
            cache.keep(DatasetId(1), &pointer(segment, 4096), &block(4096));
        }
        assert!(cache.bytes() > 4 << 20);
        cache.set_bytes_max(1 << 20);
        assert!(cache.bytes() <= 1 << 20 && cache.bytes() > 1 << 19);
        assert_eq!(cache.bytes_max(), 1 << 20);
    }

    #[test]
    fn removing_and_inserting_again_leaves_no_trace() {
        let cache = Cache::new(16 << 20);
        for _ in 0..10_000 {
            cache.keep(DatasetId(1), &pointer(1, 100), &block(100));
            cache.remove(pointer(1, 100).copies[0]);
        }
        assert_eq!(cache.bytes(), 0);
    }
}
