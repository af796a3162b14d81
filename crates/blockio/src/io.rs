//! [`BlockIo`]: the blocks of one pool, its caches, and frees.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use steadfast_device::Buffer;
use steadfast_env::Env;
use steadfast_format::{Address, BlockKind, BlockPointer, DatasetId, PoolGuid};
use steadfast_segment::Space;

use crate::ahead::{Ahead, ReadAhead};
use crate::cache::{Block, Cache};

use crate::compress::Compressor;
use crate::error::{BlockFault, ErrorLog};

use crate::l2arc::L2Arc;

use crate::stats::{Counters, Statistics, add};

/// Faults kept for `status`; older ones go.
const FAULTS_KEPT: usize = 256;

/// Requests smaller than this in all are not worth waking other cores.
pub(crate) const PARALLEL_BYTES_MIN: usize = 64 << 10;

/// Read ahead of one stream at most: some ten milliseconds of a fast disk.
const READ_AHEAD_BYTES_MAX: u64 = 16 << 20;

/// Writes, reads and frees blocks of one pool. Shared by all threads.
pub struct BlockIo {
    pub(crate) space: Arc<Space>,
    pub(crate) env: Env,
    pub(crate) pool: PoolGuid,
    pub(crate) compressor: Compressor,
    pub(crate) cache: Cache,
    pub(crate) ahead: Ahead,
    pub(crate) counters: Counters,
    pub(crate) faults: Mutex<VecDeque<BlockFault>>,
    pub(crate) log: OnceLock<Arc<dyn ErrorLog>>,
    /// Cache devices.
    pub(crate) l2arc: RwLock<Vec<Arc<L2Arc>>>,
    /// Datasets of which cache devices are to keep nothing more.
    pub(crate) not_for_l2arc: RwLock<HashSet<DatasetId>>,
    /// The same of the nodes of their trees.
    pub(crate) nodes_not_for_l2arc: RwLock<HashSet<DatasetId>>,
    /// Only what somebody waits for is read ahead.
    spares_reads: AtomicBool,
}

impl BlockIo {
    /// Over the space of pool `pool`, with a cache of at most `cache_bytes`.
    #[must_use]
    pub fn new(space: Arc<Space>, env: Env, pool: PoolGuid, cache_bytes: usize) -> BlockIo {
        BlockIo {
            space,
            env,
            pool,
            compressor: Compressor::default(),
            cache: Cache::new(cache_bytes),
            ahead: Ahead::default(),
            counters: Counters::default(),
            faults: Mutex::default(),
            log: OnceLock::new(),
            l2arc: RwLock::default(),
            not_for_l2arc: RwLock::default(),
            nodes_not_for_l2arc: RwLock::default(),
            spares_reads: AtomicBool::new(false),
        }
    }

    /// Sets the receiver of bad blocks. Once; a second call is ignored and gives false.
    pub fn set_error_log(&self, log: Arc<dyn ErrorLog>) -> bool {
        self.log.set(log).is_ok()
    }

    /// Uses these cache devices from now on, and no others.
    pub fn set_l2arc(&self, caches: Vec<Arc<L2Arc>>) {
        *self.l2arc.write().unwrap_or_else(PoisonError::into_inner) = caches;
    }

    /// Says whether cache devices may keep content of a dataset, and nodes of its trees; so until
    /// this is called. Blocks they already hold serve readers in any case.
    pub fn allow_l2arc(&self, dataset: DatasetId, content: bool, nodes: bool) {
        for (not, wanted) in [(&self.not_for_l2arc, content), (&self.nodes_not_for_l2arc, nodes)] {
            let mut not = not.write().unwrap_or_else(PoisonError::into_inner);
            if wanted {
                not.remove(&dataset);
            } else {
                not.insert(dataset);
            }
        }
    }

    /// Brings blocks of file content into the cache in the background. Those that are there are
    /// left out.
    pub fn read_ahead(self: &Arc<Self>, wanted: ReadAhead<'_>) {
        if !wanted.urgent && self.spares_reads.load(Ordering::Relaxed) {
            return;
        }
        let missing: Vec<BlockPointer> = wanted
            .pointers
            .iter()
            .filter(|pointer| {
                let readable = !pointer.is_sealed() || wanted.keys.is_some();
                readable && pointer.kind == BlockKind::Data && !self.cache.expects(wanted.family, pointer)
            })
            .copied()
            .collect();
        if !missing.is_empty() {
            let wanted = ReadAhead { pointers: &missing, ..wanted };
            self.ahead.push(&self.env, self, &wanted);
        }
    }

    /// True if the cache has a block: a read of it waits for nothing.
    #[must_use]
    pub fn is_cached(&self, family: DatasetId, pointer: &BlockPointer) -> bool {
        self.cache.holds(family, pointer)
    }

    /// Brings chunks in which many of these blocks lie, or one of the first nodes, in the
    /// background, from devices of whole objects. False if there are none, or only blocks are read
    /// that somebody waits for.
    pub fn bring(&self, family: DatasetId, pointers: &[BlockPointer]) -> bool {
        if self.spares_reads.load(Ordering::Relaxed) || !self.space.has_objects() {
            return false;
        }
        let missing = pointers.iter().filter(|pointer| {
            let is_here = || self.cache.expects(family, pointer) || self.is_in_l2arc(pointer);
            // Nodes have a cache of their own, and their reader has looked there.
            pointer.kind != BlockKind::Data || !is_here()
        });
        let places: Vec<_> = missing.map(|pointer| (pointer.copies[0], pointer.psize as usize)).collect();
        self.space.bring_later(&places);
        true
    }

    /// How many bytes of content it is of use to bring at once.
    #[must_use]
    pub fn bring_bytes_max(&self) -> u64 {
        if self.space.has_objects() { self.space.chunk_use().bytes_max / 4 } else { 0 }
    }

    /// Says whether only blocks are read that somebody waits for.
    pub fn hold_read_ahead(&self, is_held: bool) {
        self.spares_reads.store(is_held, Ordering::Relaxed);
    }

    /// Bytes one stream should have read ahead of it at most: a share of the cache, or they would
    /// push each other out.
    #[must_use]
    pub fn read_ahead_bytes_max(&self) -> u64 {
        (self.cache.bytes_max() as u64 / 16).min(READ_AHEAD_BYTES_MAX)
    }

    /// Drops what waits to be read ahead for a stream of a dataset.
    pub fn cancel_read_ahead(&self, dataset: DatasetId, stream: u64) {
        self.ahead.cancel_stream(dataset, stream);
    }

    /// Ends reading ahead for good; when this returns nothing is read in the background any more.
    pub fn stop_read_ahead(&self) {
        self.ahead.stop();
        self.space.stop_read_ahead();
    }

    /// Bytes that blocks lie apart at least, and a multiple of which they begin at.
    pub(crate) fn unit(&self) -> u32 {
        self.space.geometry().unit
    }

    /// Keeps the content of a block that was written at `pointer` for readers of datasets sealed
    /// under `family`.
    pub fn keep(&self, family: DatasetId, pointer: &BlockPointer, content: &Arc<Buffer>) {
        if pointer.kind == BlockKind::Data && content.len() == pointer.lsize as usize {
            self.cache.keep(family, pointer, &Block::written(content));
        }
    }

    /// Frees all copies of a block. Sync context only. A block that does not live cannot be freed;
    /// that is counted ([`Statistics::frees_refused`]) and changes nothing, as its owner could do
    /// nothing about it either.
    pub fn free(&self, pointer: &BlockPointer) {
        for &address in &pointer.copies[..pointer.copy_count()] {
            if self.space.free(address, pointer.psize as usize).is_err() {
                add(&self.counters.frees_refused, 1);
            }
        }
        if pointer.kind == BlockKind::Data {
            self.cache.remove(pointer.copies[0]);
        }
    }

    /// Frees one copy of a block of which only its place is known. As [`BlockIo::free`].
    pub fn free_at(&self, address: Address, psize: u32) {
        if self.space.free(address, psize as usize).is_err() {
            add(&self.counters.frees_refused, 1);
        }
        self.cache.remove(address);
    }

    /// Drops opened bytes of a dataset and of its family from the cache: its key was unloaded, or
    /// it is gone.
    pub fn forget(&self, dataset: DatasetId, family: DatasetId) {
        self.ahead.cancel_dataset(dataset);
        self.cache.forget(family);
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.counters.snapshot(&self.cache)
    }

    /// Changes how many bytes the cache may hold; what is too much goes at once.
    pub fn set_cache_bytes(&self, bytes: usize) {
        self.cache.set_bytes_max(bytes);
    }

    /// The latest blocks with bad copies, oldest first.
    #[must_use]
    pub fn faults(&self) -> Vec<BlockFault> {
        self.faults.lock().expect("no holder panics").iter().cloned().collect()
    }

    /// Forgets them (`zpool clear`).
    pub fn clear_faults(&self) {
        self.faults.lock().expect("no holder panics").clear();
    }

    pub(crate) fn note(&self, fault: BlockFault) {
        if let Some(log) = self.log.get() {
            log.block_failed(&fault);
        }
        let mut faults = self.faults.lock().expect("no holder panics");
        if faults.len() == FAULTS_KEPT {
            faults.pop_front();
        }
        faults.push_back(fault);
    }
}
