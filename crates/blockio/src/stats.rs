//! Counters of the room.

use crate::cache::Cache;
use std::sync::atomic::{AtomicU64, Ordering};

/// Work done since the pool was imported. Device operations and bytes are in
/// [`steadfast_segment::Space::device_counts`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Statistics {
    /// Blocks written (not copies).
    pub blocks_written: u64,
    /// Their bytes before compression.
    pub logical_bytes_written: u64,
    /// Their bytes after compression and sealing, all copies, without padding.
    pub stored_bytes_written: u64,
    /// Blocks that compression made smaller.
    pub blocks_compressed: u64,
    /// Blocks read from devices.
    pub blocks_read: u64,
    /// Their bytes after decompression.
    pub logical_bytes_read: u64,
    /// Reads the cache answered.
    pub cache_hits: u64,
    /// Reads of file content it could not answer.
    pub cache_misses: u64,
    /// Reads that waited for a block another reader or the read-ahead was bringing already.
    pub cache_waits: u64,
    /// Blocks that went out of the cache for others.
    pub cache_evictions: u64,
    /// Blocks read ahead of their reader.
    pub blocks_read_ahead: u64,
    /// Blocks that a cache device had.
    pub l2arc_hits: u64,
    /// Bytes in the cache now.
    pub cache_bytes: u64,
    /// Bytes it may hold.
    pub cache_bytes_max: u64,
    /// Blocks of which one copy was bad and another good.
    pub blocks_healed: u64,
    /// Blocks of which no copy was good.
    pub blocks_bad: u64,
    /// Frees of blocks that did not live: a fault of a room above, or metadata that contradicts
    /// itself. Their space is lost.
    pub frees_refused: u64,
}

impl Statistics {
    /// Blocks that were asked for, wherever they were found: on devices, on cache devices, in
    /// memory.
    #[must_use]
    pub fn blocks_asked(&self) -> u64 {
        [self.cache_hits, self.cache_waits, self.l2arc_hits]
            .iter()
            .fold(self.blocks_read, |all, found| all.wrapping_add(*found))
    }
}

/// Live counters behind [`Statistics`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub blocks_written: AtomicU64,
    pub logical_bytes_written: AtomicU64,
    pub stored_bytes_written: AtomicU64,
    pub blocks_compressed: AtomicU64,
    pub blocks_read: AtomicU64,
    pub logical_bytes_read: AtomicU64,
    pub cache_hits: AtomicU64,
    pub cache_misses: AtomicU64,
    pub cache_waits: AtomicU64,
    pub blocks_read_ahead: AtomicU64,
    pub l2arc_hits: AtomicU64,
    pub blocks_healed: AtomicU64,
    pub blocks_bad: AtomicU64,
    pub frees_refused: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

impl Counters {
    pub fn snapshot(&self, cache: &Cache) -> Statistics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Statistics {
            blocks_written: get(&self.blocks_written),
            logical_bytes_written: get(&self.logical_bytes_written),
            stored_bytes_written: get(&self.stored_bytes_written),
            blocks_compressed: get(&self.blocks_compressed),
            blocks_read: get(&self.blocks_read),
            logical_bytes_read: get(&self.logical_bytes_read),
            cache_hits: get(&self.cache_hits),
            cache_misses: get(&self.cache_misses),
            cache_waits: get(&self.cache_waits),
            blocks_read_ahead: get(&self.blocks_read_ahead),
            l2arc_hits: get(&self.l2arc_hits),
            cache_bytes: cache.bytes() as u64,
            cache_bytes_max: cache.bytes_max() as u64,
            cache_evictions: cache.evictions(),
            blocks_healed: get(&self.blocks_healed),
            blocks_bad: get(&self.blocks_bad),
            frees_refused: get(&self.frees_refused),
        }
    }
}
