//! # L2ARC
//!
//! Blocks of file content and nodes of file systems' trees that were read from the pool's devices
//! are kept, as they are stored, on faster devices: *cache devices*. A block read from one is
//! compared with the hash in its pointer and opened with its seal, like any other. So a cache
//! device need not be trusted: at worst it is useless.
//!
//! Like ZFS's L2ARC, but it is fed by reads instead of by evictions from memory, and its entries
//! are keyed by the block's hash instead of its address: bytes with the right hash are the right
//! bytes, so frees and moves need not be reported to it. It survives an import, as ZFS's does with
//! `l2arc_rebuild_enabled`.
//!
//! ## Filling a device
//! A device is a row of *chunks*, written one after the other, and then from the beginning again. A
//! block that a reader had to fetch is copied into the chunk in memory; a full chunk goes to the
//! device's own task. Blocks are not kept while [`FULL_MAX`] chunks wait for that task: no reader
//! waits for a write to a cache device.
//!
//! ## Finding them again
//! Each chunk begins with a head: the hashes, offsets and lengths of its blocks, and the number of
//! the write ([`CacheChunk`]). The task reads the heads when it starts, one after the other until
//! there is none, and goes on behind the chunk that was written last. A chunk that is half full at
//! the end is written then; after a crash its blocks are missing.
//!
//! ## Invariants
//! [l2arc.1] An entry is served only if its bytes have the hash it is known by; else it is
//!      forgotten, and that is counted.
//!      `get`
//! [l2arc.2] An entry of a chunk is forgotten before the chunk is written over.
//!      `write`
//! [l2arc.3] A device that fails to be written is not used any more; one that fails to be read
//!      serves that reader nothing.
//! [l2arc.4] Memory is bounded: [`CHUNK_BYTES`] for the chunk that is filled, the one that is
//!      written and [`FULL_MAX`] others of a device, and [`ENTRIES_MAX`] entries.
//! [l2arc.5] A head of another pool or of another life of the device is not believed: it carries
//!      both guids. A head that lies about its blocks costs reads, and [l2arc.1] holds.
//!      `restore`

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use steadfast_crypto::hash;
use steadfast_device::{Buffer, SegmentPlace, SharedDevice};
use steadfast_env::{Env, TaskHandle};
use steadfast_format::{CacheChunk, CacheEntry, PoolGuid, SegmentId};

/// Bytes of a chunk, at most; a slot has a whole number of them.
const CHUNK_BYTES: u32 = 4 << 20;
/// Bytes of the chunk for each entry that its head has room for.
const BYTES_PER_ENTRY: u32 = 4_096;
/// Full chunks that wait for the task: what a store brings in a tenth of a second at 100 MB/s.
const FULL_MAX: usize = 2;
/// Blocks that one device is known to hold, at most: some 60 bytes of memory each.
const ENTRIES_MAX: usize = 1 << 20;

/// Hash of a block's stored bytes.
type Key = [u8; 32];

/// Where a block lies on a cache device.
#[derive(Clone, Copy)]
struct Entry {
    chunk: u32,
    offset: u32,
    len: u32,
}

/// A chunk that is filled in memory.
#[derive(Default)]
struct Filling {
    bytes: Vec<u8>,
    keys: Vec<(Key, u32, u32)>,
}

#[derive(Default)]
struct State {
    index: HashMap<Key, Entry>,
    /// Keys of each chunk that was written.
    written: Vec<Vec<Key>>,
    /// The chunk that is written next.
    next: u32,
    /// Number of the last write.
    sequence: u64,
    filling: Filling,
    /// Full, and waiting for the task.
    full: VecDeque<Filling>,
    /// Kept bytes of blocks.
    bytes: u64,
}

/// Counters of a cache device.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct L2ArcCounts {
    /// Blocks that were asked for and there.
    pub hits: u64,
    /// Blocks that were there no more, or not what they should be: wrong bytes, each a block.
    pub wrong: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Bytes of blocks that it holds.
    pub bytes: u64,
}

/// One cache device.
pub struct L2Arc {
    device: SharedDevice,
    slot_size: u32,
    /// The pool, and this device in it.
    owner: (PoolGuid, u64),
    chunk: u32,
    chunks: u32,
    /// Bytes of a head, and entries that it has room for.
    head: (u32, usize),
    unit: u32,
    concurrent: bool,
    state: Mutex<State>,
    work: Condvar,
    stopping: AtomicBool,
    failed: AtomicBool,
    hits: AtomicU64,
    wrong: AtomicU64,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    task: Mutex<Option<Box<dyn TaskHandle>>>,
}

impl L2Arc {
    /// Begins to use a device of so many slots. Blocks that the same pool kept there are found
    /// again. `owner` is the pool, and the guid of the device in it.
    #[must_use]
    pub fn start(
        env: &Env,
        device: SharedDevice,
        owner: (PoolGuid, u64),
        slot_size: u32,
        slots: u32,
        unit: u32,
    ) -> Arc<L2Arc> {
        let chunk = slot_size.min(CHUNK_BYTES);
        let entries = ((chunk / BYTES_PER_ENTRY) as usize).min(CacheChunk::ENTRIES_MAX);
        let head = CacheChunk::size(entries).next_multiple_of(unit as usize);
        let chunks = slots.saturating_mul(slot_size / chunk);
        let cache = Arc::new(L2Arc {
            device,
            slot_size,
            owner,
            chunk,
            chunks,
            head: (u32::try_from(head).expect("below a chunk"), entries),
            unit,
            concurrent: env.tasks.is_concurrent(),
            state: Mutex::default(),
            work: Condvar::new(),
            stopping: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            hits: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            read_errors: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
            task: Mutex::new(None),
        });
        if cache.concurrent {
            let task = Arc::clone(&cache);
            *lock(&cache.task) = Some(env.tasks.spawn("cache device", Box::new(move || task.feed())));
        } else {
            cache.restore();
        }
        cache
    }

    /// Ends it, and lets others have the device. Blocks that still wait in memory are written.
    pub fn stop(&self) {
        self.end_task();
        let last = {
            let mut state = lock(&self.state);
            let full = std::mem::take(&mut state.full);
            full.into_iter().chain([std::mem::take(&mut state.filling)])
        };
        for filling in last {
            if !self.has_failed() && !filling.keys.is_empty() {
                self.write(filling);
            }
        }
        *lock(&self.state) = State::default();
        self.device.release();
    }

    /// Ends it: when this returns the device is not touched any more.
    pub fn stop_using(&self) {
        self.end_task();
        *lock(&self.state) = State::default();
    }

    fn end_task(&self) {
        self.stopping.store(true, Ordering::Release);
        {
            // Under the lock, or the task could miss it.
            let _state = lock(&self.state);
            self.work.notify_all();
        }
        if let Some(task) = lock(&self.task).take() {
            task.join();
        }
    }

    /// Its counters.
    #[must_use]
    pub fn counts(&self) -> L2ArcCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        L2ArcCounts {
            hits: get(&self.hits),
            wrong: get(&self.wrong),
            read_errors: get(&self.read_errors),
            write_errors: get(&self.write_errors),
            bytes: lock(&self.state).bytes,
        }
    }

    /// True if it failed and is not used any more [l2arc.3].
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn is_used(&self) -> bool {
        !self.has_failed() && !self.stopping.load(Ordering::Acquire)
    }

    /// True if it holds a block, as far as it knows.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.is_used() && lock(&self.state).index.contains_key(key)
    }

    /// The stored bytes of a block, if they are here and right [l2arc.1].
    pub(crate) fn get(&self, key: &Key, len: usize) -> Option<Buffer> {
        if !self.is_used() {
            return None;
        }
        let entry = *lock(&self.state).index.get(key)?;
        if entry.len as usize != len {
            return None;
        }
        let padded = len.next_multiple_of(self.unit as usize);
        let mut bytes = Buffer::to_fill(padded);
        let (place, offset) = self.place(entry.chunk, entry.offset);
        if self.device.read_segment(place, offset, &mut bytes).is_err() {
            self.read_errors.fetch_add(1, Ordering::Relaxed);
            self.forget(key, entry);
            return None;
        }
        bytes.resize(len);
        if hash(&bytes) != *key {
            // It may have been written over meanwhile, which is nobody's fault.
            let same = |now: &Entry| (now.chunk, now.offset) == (entry.chunk, entry.offset);
            if lock(&self.state).index.get(key).is_some_and(same) {
                self.wrong.fetch_add(1, Ordering::Relaxed);
                self.forget(key, entry);
            }
            return None;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(bytes)
    }

    /// A block that was read, as it is stored: it is kept if that costs its reader nothing.
    pub(crate) fn offer(&self, key: &Key, bytes: &[u8]) {
        let padded = bytes.len().next_multiple_of(self.unit as usize);
        let (head, entries_max) = (self.head.0 as usize, self.head.1);
        if !self.is_used() || head + padded > self.chunk as usize || self.chunks == 0 {
            return;
        }
        let mut state = lock(&self.state);
        if state.index.contains_key(key) || state.filling.keys.iter().any(|(known, ..)| known == key) {
            return;
        }
        let is_full = state.filling.bytes.len() + padded > self.chunk as usize;
        if is_full || state.filling.keys.len() >= entries_max {
            if state.full.len() >= FULL_MAX {
                return;
            }
            let full = std::mem::take(&mut state.filling);
            if self.concurrent {
                state.full.push_back(full);
                self.work.notify_all();
            } else {
                drop(state);
                self.write(full);
                state = lock(&self.state);
            }
        }
        if state.filling.bytes.is_empty() {
            state.filling.bytes.resize(head, 0);
        }
        let (offset, len) = (state.filling.bytes.len(), bytes.len());
        let small = |n: usize| u32::try_from(n).expect("within a chunk");
        state.filling.bytes.extend_from_slice(bytes);
        state.filling.bytes.resize(offset + padded, 0);
        state.filling.keys.push((*key, small(offset), small(len)));
    }

    /// Finds the blocks again that were kept before [l2arc.5].
    fn restore(&self) {
        for chunk in 0..self.chunks {
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            let (place, offset) = self.place(chunk, 0);
            let mut bytes = Buffer::to_fill(self.head.0 as usize);
            if self.device.read_segment(place, offset, &mut bytes).is_err() {
                self.read_errors.fetch_add(1, Ordering::Relaxed);
                return;
            }
            // Chunks are written one behind the other: the first that is none ends them.
            let Ok(head) = CacheChunk::decode(&bytes, hash) else { return };
            let begin = u64::from(self.head.0);
            let fits = |entry: &CacheEntry| {
                let (from, len) = (u64::from(entry.offset), u64::from(entry.len));
                from >= begin
                    && from.is_multiple_of(u64::from(self.unit))
                    && from + len <= u64::from(self.chunk)
            };
            if (head.pool, head.device) != self.owner || !head.entries.iter().all(fits) {
                return;
            }
            let mut state = lock(&self.state);
            if state.index.len() + head.entries.len() > ENTRIES_MAX {
                return;
            }
            if head.sequence > state.sequence {
                (state.sequence, state.next) = (head.sequence, chunk + 1);
            }
            self.know(&mut state, chunk, head.entries);
        }
    }

    /// Takes the blocks of a chunk into the index.
    fn know(&self, state: &mut State, chunk: u32, entries: Vec<CacheEntry>) {
        if state.written.len() <= chunk as usize {
            state.written.resize_with(chunk as usize + 1, Vec::new);
        }
        for CacheEntry { hash, offset, len } in entries {
            state.bytes += u64::from(len);
            if let Some(old) = state.index.insert(hash, Entry { chunk, offset, len }) {
                state.bytes -= u64::from(old.len);
            }
            state.written[chunk as usize].push(hash);
        }
    }

    /// Body of the task.
    fn feed(&self) {
        self.restore();
        loop {
            let full = {
                let mut state = lock(&self.state);
                loop {
                    if self.stopping.load(Ordering::Acquire) || self.has_failed() {
                        return;
                    }
                    match state.full.pop_front() {
                        Some(full) => break full,
                        None => state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                    }
                }
            };
            self.write(full);
        }
    }

    fn write(&self, mut full: Filling) {
        let (chunk, sequence) = {
            let mut state = lock(&self.state);
            let wraps = state.next >= self.chunks || state.index.len() >= ENTRIES_MAX;
            let chunk = if wraps { 0 } else { state.next };
            state.next = chunk + 1;
            state.sequence += 1;
            if state.written.len() <= chunk as usize {
                state.written.resize_with(chunk as usize + 1, Vec::new);
            }
            // [l2arc.2]
            for key in std::mem::take(&mut state.written[chunk as usize]) {
                if state.index.get(&key).is_some_and(|entry| entry.chunk == chunk)
                    && let Some(entry) = state.index.remove(&key)
                {
                    state.bytes -= u64::from(entry.len);
                }
            }
            (chunk, state.sequence)
        };
        let entries: Vec<CacheEntry> =
            full.keys.iter().map(|&(hash, offset, len)| CacheEntry { hash, offset, len }).collect();
        let (pool, device) = self.owner;
        let head = CacheChunk { pool, device, sequence, entries };
        let bytes = head.encode(hash);
        full.bytes[..bytes.len()].copy_from_slice(&bytes);
        let (place, offset) = self.place(chunk, 0);
        if self.device.append_segment(place, offset, &full.bytes).is_err() {
            self.write_errors.fetch_add(1, Ordering::Relaxed);
            self.failed.store(true, Ordering::Relaxed);
            *lock(&self.state) = State::default();
            return;
        }
        self.know(&mut lock(&self.state), chunk, head.entries);
    }

    fn forget(&self, key: &Key, entry: Entry) {
        let mut state = lock(&self.state);
        let same = |now: &Entry| (now.chunk, now.offset) == (entry.chunk, entry.offset);
        if state.index.get(key).is_some_and(same) {
            state.index.remove(key);
            state.bytes -= u64::from(entry.len);
        }
    }

    /// Where a byte of a chunk lies.
    fn place(&self, chunk: u32, offset: u32) -> (SegmentPlace, u32) {
        let per_slot = self.slot_size / self.chunk;
        // The name is of no meaning on devices of slots.
        let place = SegmentPlace { segment: SegmentId(1), slot: chunk / per_slot, slot_size: self.slot_size };
        (place, chunk % per_slot * self.chunk + offset)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_device::memory::{Effect, Fault};
    use steadfast_device::{Device, MemoryDevice, Operation};

    const SLOT: u32 = 256 << 10;

    fn block(number: u64) -> Vec<u8> {
        let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let draw = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..10_000 + number as usize % 5000).map(draw).collect()
    }

    fn cache(slots: u32) -> (Arc<MemoryDevice>, Arc<L2Arc>) {
        let device = Arc::new(MemoryDevice::new("cache", 64 << 20));
        let cache = begin(&device, PoolGuid(1), slots);
        (device, cache)
    }

    fn begin(device: &Arc<MemoryDevice>, pool: PoolGuid, slots: u32) -> Arc<L2Arc> {
        let shared = Arc::clone(device) as SharedDevice;
        L2Arc::start(&Env::simulated(1), shared, (pool, 7), SLOT, slots, 4096)
    }

    #[test]
    fn what_was_kept_is_found_again_and_written_on_behind_it() {
        let (device, cache) = cache(4);
        // More than fits: the ring has turned, and the last chunk is half full.
        (0..150).for_each(|number| offer(&cache, number));
        let held: Vec<u64> = (0..150).filter(|number| get(&cache, *number)).collect();
        let counted = cache.counts().bytes;
        cache.stop_using();
        drop(cache);
        let again = begin(&device, PoolGuid(1), 4);
        assert_eq!(again.counts().bytes, counted);
        assert!(held.iter().all(|number| get(&again, *number)), "all of it, without a read of the pool");
        // The next chunk goes where it would have gone.
        (150..190).for_each(|number| offer(&again, number));
        let (oldest, newest) = (held[0], held[held.len() - 1]);
        assert!(!get(&again, oldest) && get(&again, newest), "the oldest chunk went, and no other");
        assert_eq!(again.counts().wrong, 0);
        // Blocks that wait in memory are written at the end.
        assert!(!get(&again, 189));
        again.stop_using();
        offer(&again, 500);
        drop(again);
        let other = begin(&device, PoolGuid(2), 4);
        assert_eq!(other.counts().bytes, 0, "another pool believes nothing of it");
        drop(other);
        let third = begin(&device, PoolGuid(1), 4);
        offer(&third, 600);
        third.end_task();
        let filling = std::mem::take(&mut lock(&third.state).filling);
        third.write(filling);
        drop(third);
        assert!(get(&begin(&device, PoolGuid(1), 4), 600));
    }

    fn offer(cache: &L2Arc, number: u64) {
        let bytes = block(number);
        cache.offer(&hash(&bytes), &bytes);
    }

    fn get(cache: &L2Arc, number: u64) -> bool {
        let bytes = block(number);
        match cache.get(&hash(&bytes), bytes.len()) {
            Some(found) => {
                assert!(found[..] == bytes[..], "block {number}");
                true
            }
            None => false,
        }
    }

    #[test]
    fn what_was_offered_is_there_until_it_is_written_over() {
        let (_, cache) = cache(4);
        (0..40).for_each(|number| offer(&cache, number));
        let held = (0..40).filter(|number| get(&cache, *number)).count();
        assert!(held > 10 && held < 40, "{held} of 40: the last chunk is in memory still");
        assert!((0..held as u64).all(|number| get(&cache, number)));
        // Sixteen blocks of three units go into a slot: four slots are written over by a hundred.
        (40..200).for_each(|number| offer(&cache, number));
        assert!(!get(&cache, 0) && get(&cache, 170), "the oldest went");
        let counts = cache.counts();
        assert!(counts.bytes <= 4 * u64::from(SLOT) && counts.wrong == 0, "{counts:?}");
        cache.stop();
        assert!(!get(&cache, 170), "nothing is served any more");
    }

    #[test]
    fn spoilt_bytes_are_never_served() {
        let (device, cache) = cache(16);
        (0..40).for_each(|number| offer(&cache, number));
        let held: Vec<u64> = (0..40).filter(|number| get(&cache, *number)).collect();
        for slot in 0..16 {
            let place = SegmentPlace { segment: SegmentId(1), slot, slot_size: SLOT };
            device.append_segment(place, 0, &vec![7; SLOT as usize]).expect("written");
        }
        assert!(held.iter().all(|number| !get(&cache, *number)));
        assert_eq!(cache.counts().wrong, held.len() as u64);
        assert!(held.iter().all(|number| !get(&cache, *number)), "they are forgotten");
        assert_eq!(cache.counts().wrong, held.len() as u64);
        held.iter().for_each(|number| offer(&cache, *number));
    }

    #[test]
    fn a_device_that_fails_is_of_no_use_and_does_no_harm() {
        let (device, cache) = cache(16);
        (0..30).for_each(|number| offer(&cache, number));
        assert!(get(&cache, 0));
        device.arm(Fault { operation: Operation::Read, skip: 0, effect: Effect::FailAlways });
        assert!(!get(&cache, 0) && !cache.has_failed());
        device.disarm();
        device.arm(Fault { operation: Operation::Write, skip: 0, effect: Effect::FailAlways });
        (30..80).for_each(|number| offer(&cache, number));
        assert!(cache.has_failed() && !get(&cache, 1));
        assert_eq!((cache.counts().write_errors, cache.counts().bytes), (1, 0));
    }
}
