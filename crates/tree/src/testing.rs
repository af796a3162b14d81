//! A store in memory that keeps exact books, for tests and benches of this room and those above.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use steadfast_format::{Address, BlockKind, BlockPointer, Compression, SegmentId, Stamp, Txg};

use crate::{NodeStore, StoreError, Tree};

/// A [`NodeStore`] that knows what it gave out and what it got back. It panics at once when a block
/// is freed that is not live. Like a pool, it goes on reading freed blocks until
/// [`CountingStore::commit`], and refuses them from then on.
#[derive(Debug, Default)]
pub struct CountingStore {
    accounts: Mutex<Accounts>,
    reads_left: Countdown,
    writes_left: Countdown,
    /// It brings what it is told will be wanted.
    brings: AtomicBool,
}

#[derive(Debug, Default)]
struct Accounts {
    live: HashMap<Address, (BlockPointer, Arc<[u8]>)>,
    freed: HashMap<Address, Arc<[u8]>>,
    statistics: CountingStoreStatistics,
}

/// Counters of [`CountingStore`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CountingStoreStatistics {
    /// Nodes read.
    pub nodes_read: u64,
    /// Nodes that were to be brought.
    pub nodes_brought: u64,
    /// Calls that read: of one node, or of several side by side.
    pub reads: u64,
    /// Nodes written.
    pub nodes_written: u64,
    /// Their bytes.
    pub bytes_written: u64,
    /// Calls of `write`.
    pub batches: u64,
    /// Nodes freed.
    pub nodes_freed: u64,
}

/// Errors of [`CountingStore`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CountingStoreError {
    /// Made to fail by [`CountingStore::fail_reads_after`] or [`CountingStore::fail_writes_after`].
    #[error("made to fail")]
    Injected,
    /// No such block, or freed before the last commit.
    #[error("no block at {0:?}")]
    Absent(Address),
}

/// Lets a number of calls pass, then fails all. Zero, the default, is "off"; else calls left plus
/// one.
#[derive(Debug, Default)]
struct Countdown(AtomicU64);

impl Countdown {
    fn set(&self, calls: Option<u64>) {
        self.0.store(calls.map_or(0, |calls| calls + 1), Ordering::SeqCst);
    }

    fn pass(&self) -> Result<(), StoreError> {
        let before = self
            .0
            .try_update(
                Ordering::SeqCst,
                Ordering::SeqCst,
                |left| if left > 1 { Some(left - 1) } else { None },
            )
            .unwrap_or_else(|left| left);
        if before == 1 { Err(StoreError::new(CountingStoreError::Injected)) } else { Ok(()) }
    }
}

impl CountingStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// From now on it says that it brings what will be wanted, as where each request is dear.
    pub fn bring_from_now_on(&self) {
        self.brings.store(true, Ordering::Relaxed);
    }

    /// Lets this many reads pass and fails all after them; `None` ends that.
    pub fn fail_reads_after(&self, calls: Option<u64>) {
        self.reads_left.set(calls);
    }

    /// Lets this many calls of `write` pass and fails all after them; `None` ends that.
    pub fn fail_writes_after(&self, calls: Option<u64>) {
        self.writes_left.set(calls);
    }

    /// From here on blocks freed so far are really gone.
    pub fn commit(&self) {
        self.accounts().freed.clear();
    }

    /// Counters so far.
    #[must_use]
    pub fn statistics(&self) -> CountingStoreStatistics {
        self.accounts().statistics
    }

    /// Number of live blocks.
    #[must_use]
    pub fn live_count(&self) -> usize {
        self.accounts().live.len()
    }

    /// Bytes of live blocks.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.accounts().live.values().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// Puts other bytes where a pointer points, as a misdirected write would below the hashes.
    pub fn overwrite(&self, pointer: &BlockPointer, bytes: &[u8]) {
        let mut accounts = self.accounts();
        let block = accounts.live.get_mut(&pointer.copies[0]).expect("a live block");
        block.1 = bytes.into();
    }

    /// Checks that the live blocks are exactly the nodes of the tree as last synced.
    pub fn audit(&self, tree: &Tree) {
        let mut reachable = HashMap::new();
        tree.visit_pointers(|pointer| {
            let twice = reachable.insert(pointer.copies[0], *pointer);
            assert!(twice.is_none(), "{pointer:?} is reachable twice");
        })
        .expect("all inner nodes can be read");
        let accounts = self.accounts();
        for (address, pointer) in &reachable {
            let (live, _) = accounts.live.get(address).unwrap_or_else(|| panic!("{pointer:?} is not live"));
            assert_eq!(live, pointer);
        }
        let lost: Vec<_> = accounts.live.keys().filter(|address| !reachable.contains_key(address)).collect();
        assert!(lost.is_empty(), "live but not reachable: {lost:?}");
    }

    fn read_one(&self, pointer: &BlockPointer) -> Result<Vec<u8>, StoreError> {
        self.reads_left.pass()?;
        let mut accounts = self.accounts();
        accounts.statistics.nodes_read += 1;
        let address = pointer.copies[0];
        let found = accounts.live.get(&address).map(|(_, bytes)| bytes).or(accounts.freed.get(&address));
        found.map(|bytes| bytes.to_vec()).ok_or_else(|| StoreError::new(CountingStoreError::Absent(address)))
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().expect("the books panicked before")
    }
}

impl NodeStore for CountingStore {
    fn read(&self, pointer: &BlockPointer) -> Result<Vec<u8>, StoreError> {
        self.accounts().statistics.reads += 1;
        self.read_one(pointer)
    }

    fn read_many(&self, pointers: &[BlockPointer]) -> Vec<Result<Vec<u8>, StoreError>> {
        self.accounts().statistics.reads += 1;
        pointers.iter().map(|pointer| self.read_one(pointer)).collect()
    }

    fn bring(&self, pointers: &[BlockPointer]) -> bool {
        self.accounts().statistics.nodes_brought += pointers.len() as u64;
        self.brings.load(Ordering::Relaxed)
    }

    fn write(&self, nodes: Vec<(u8, Vec<u8>)>) -> Result<Vec<BlockPointer>, StoreError> {
        self.writes_left.pass()?;
        let mut accounts = self.accounts();
        accounts.statistics.batches += 1;
        assert!(nodes.windows(2).all(|pair| pair[0].0 == pair[1].0), "one call is of one level");
        let pointers = nodes.into_iter().map(|(level, bytes)| {
            let number = accounts.statistics.nodes_written + 1;
            let size = u32::try_from(bytes.len()).expect("nodes are small");
            accounts.statistics.nodes_written = number;
            accounts.statistics.bytes_written += u64::from(size);
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&number.to_le_bytes());
            let offset = u32::try_from(number % (1 << 20)).expect("below 2^20") * 4096;
            let address = Address { segment: SegmentId(1 + (number >> 20)), offset };
            let pointer = BlockPointer {
                hash,
                copies: [address, Address::NONE, Address::NONE],
                psize: size,
                lsize: size,
                birth: Txg(1),
                written: Txg(0),
                stamp: Stamp::default(),
                compression: Compression::Off,
                kind: BlockKind::Meta,
                level,
            };
            accounts.live.insert(address, (pointer, bytes.into()));
            pointer
        });
        Ok(pointers.collect())
    }

    fn free(&self, pointer: &BlockPointer) {
        let mut accounts = self.accounts();
        accounts.statistics.nodes_freed += 1;
        let (live, bytes) = accounts
            .live
            .remove(&pointer.copies[0])
            .unwrap_or_else(|| panic!("{pointer:?} is freed but not live"));
        assert_eq!(live, *pointer, "freed by the pointer it was given");
        accounts.freed.insert(pointer.copies[0], bytes);
    }
}
