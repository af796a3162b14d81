//! # Chunks of objects (ZFS: the vdev cache, and part of `dmu_zfetch`)
//!
//! On a device of whole objects every request costs the same 50 to 100 ms, however few bytes it
//! brings. This cache keeps raw bytes of segments in chunks of [`CHUNK`], and asks for more than it
//! was asked for where that pays. Readers above it see the device they know.
//!
//! ## Contents
//! Raw bytes by segment and chunk. A segment's id is never used again and its object is never
//! changed, so nothing here is ever stale. The bytes are not verified: their reader compares them
//! with the hash in a pointer. If they are not right, their chunks are dropped and the reader asks
//! the device itself ([`Chunks::forget`]): one torn answer does not stay. A scrub asks the device
//! only.
//!
//! ## Requests
//! *Metadata*: the whole chunk of a missing node. A commit writes the nodes of its trees one after
//! the other, so a chunk brings some sixty neighbours.
//! *Content*: what was asked for and no more, while reads jump about: 256 KiB for 4 KiB would cost
//! sixty times the egress. Once a read begins where another one ended, or close by, it belongs to a
//! *walk*, and whole chunks are read.
//! *Walks*: what lies behind the reader, in this segment and in the next ones of its stream, is
//! asked for ahead of it, in transfers of [`TRANSFER`] to [`TRANSFER_MAX`], up to [`FLIGHTS_MAX`]
//! at once. The window grows when a reader had to wait for it, and stays while it does not: so it
//! becomes as long as what the reader takes in one latency, which is the product of latency and
//! bandwidth, measured where it counts. Files are read in the order in which they were written as
//! a rule, and so are directories, trees, scrubs and streams: one rule serves all of them.
//!
//! *Files of one directory* are read in the order of its listing, and lie in another one: the
//! caller names what it will want ([`Chunks::bring`]), and chunks come of which a sixteenth at
//! least is wanted.
//!
//! ## Flights
//! A chunk that is being read is read once; others wait for it and hold no lock. If the transfer
//! fails, each reader asks the device for what it wants, so that the error is its own.
//!
//! ## Memory
//! Chunks that are kept and those under way together take [`Chunks::set_bytes_max`] at most: a
//! quarter of what the pool may use for content. Walks have half of that under way at most, all of
//! them together; one has [`WINDOW_MAX`] at most. A bound for all that is no larger than that of
//! one would have a hundred readers fall back to requests of a chunk each.
//! Content goes when all of it was read: the cache of opened blocks has it. The rest goes in the
//! order in which it came; metadata that was read since gets a second chance.
//! Files of many writers lie among each other, so ahead of one reader lies what others have read
//! already. That is remembered by segment, and is not asked for again ahead of anybody, until a
//! reader wants it.
//!
//! ## Invariants
//! [chunks.1] `bytes` is the sum of all chunks kept and under way, and at most `bytes_max` when
//!      another one is taken up.
//!      `State::make_room`
//! [chunks.2] A flight lands, well or not, whatever happens to the thread that flies it.
//!      `Transfer::drop`
//! [chunks.3] No lock is held over a call of a device.
//!      `Transfer::fly`, `fly_all`
//! [chunks.4] Nothing is asked ahead in a world with one processor's worth of tasks, where order is
//!      to be repeatable.
//!      `Chunks::plan`

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use steadfast_device::{Buffer, PartRead, SegmentPlace, SharedDevice};
use steadfast_env::waiting::for_read;
use steadfast_env::{Env, TaskHandle};
use steadfast_format::SegmentId;

use crate::accounting::Counters;
use crate::walks::{Advance, Walks};

/// Bytes of a chunk: 2.5 ms at 100 MB/s, little beside a latency of 50 ms.
pub(crate) const CHUNK: u32 = 256 << 10;
/// Bytes of one transfer that its reader waits for, at most.
const TRANSFER: u32 = 1 << 20;
/// Bytes of one transfer ahead of a reader that takes much, at most: few requests, and each long
/// enough that its round trip does not count.
const TRANSFER_MAX: u32 = 4 << 20;
/// Bytes ahead of one reader, at most.
const WINDOW_MAX: u64 = 32 << 20;
/// Bytes under way ahead of all readers from which on a line is busy whatever one of them does.
const LINE_FULL: usize = 16 << 20;
/// Transfers ahead of readers that are under way at once, at most: each has a thread.
const FLIGHTS_MAX: usize = 32;
/// A chunk is worth a request of its own if one part in so many of it is wanted: below that, egress
/// costs more than the round trips.
const SPARSE: usize = 16;
/// Chunks of nodes that are brought at once: each costs as much egress as a node that somebody
/// waits for.
const NODE_CHUNKS_MAX: usize = 4;
/// Segments of which it is remembered what was read of them.
const SERVED_MAX: usize = 4096;
/// Bytes that a new space keeps, before it is told what it may.
const BYTES_DEFAULT: usize = 16 << 20;

/// A closed segment on a device of whole objects.
#[derive(Clone)]
pub(crate) struct Source {
    pub device: SharedDevice,
    pub counters: Arc<Counters>,
    pub place: SegmentPlace,
    /// Its bytes.
    pub end: u32,
    pub is_metadata: bool,
}

impl Source {
    /// Bytes of a chunk of it.
    fn chunk_bytes(&self, chunk: u32) -> usize {
        (self.end - chunk * CHUNK).min(CHUNK) as usize
    }

    pub(crate) fn chunks(&self) -> u32 {
        self.end.div_ceil(CHUNK)
    }

    /// A range with so many bytes around it: all, if the segment has no more, else half of them
    /// before it and half behind it.
    pub(crate) fn around(&self, offset: u32, len: usize, around: usize) -> (u32, usize) {
        let end = self.end as usize;
        if end <= around {
            return (0, end);
        }
        let half = u32::try_from(around / 2).unwrap_or(u32::MAX);
        let first = offset.saturating_sub(half);
        // A range beyond the end stays one: it is told of where it is read.
        let behind = (offset as usize).saturating_add(len);
        (first, end.min(behind.saturating_add(half as usize)).max(behind) - first as usize)
    }
}

/// Finds the segment that its stream filled after another one.
pub(crate) type Next<'n> = dyn Fn(SegmentId) -> Option<Source> + 'n;

type Key = (SegmentId, u32);

enum Slot {
    Flight(Arc<Flight>),
    Kept(Kept),
}

struct Kept {
    bytes: Arc<Buffer>,
    is_metadata: bool,
    /// Its place in the order in which chunks go.
    order: u64,
    /// Bytes of it that were read since it came.
    served: usize,
}

/// A transfer under way.
struct Flight {
    first: u32,
    /// `Some` once it has ended, with its chunks if that went well.
    landed: Mutex<Option<Option<Vec<Arc<Buffer>>>>>,
    ended: Condvar,
}

impl Flight {
    fn wait(&self) -> Option<Vec<Arc<Buffer>>> {
        let landed = lock(&self.landed);
        let landed = for_read(|| self.ended.wait_while(landed, |landed| landed.is_none()));
        landed.unwrap_or_else(PoisonError::into_inner).clone().flatten()
    }
}

/// Chunks side by side that are to be read.
struct Transfer {
    shared: Arc<Shared>,
    source: Source,
    flight: Arc<Flight>,
    buffers: Vec<Buffer>,
    /// Nobody waits for it yet.
    is_ahead: bool,
    has_landed: bool,
}

impl Transfer {
    fn bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.len()).sum()
    }

    fn part(&mut self) -> PartRead<'_> {
        let outs = self.buffers.iter_mut().map(|buffer| &mut buffer[..]).collect();
        PartRead::new(self.source.place, self.flight.first * CHUNK, outs)
    }

    fn fly(mut self) {
        let device = Arc::clone(&self.source.device);
        let mut reads = [self.part()];
        device.read_many(&mut reads);
        let [PartRead { outcome, .. }] = reads;
        self.land(outcome.is_ok());
    }

    fn land(&mut self, good: bool) {
        self.source.counters.read(self.bytes(), good);
        let buffers = std::mem::take(&mut self.buffers);
        self.settle(buffers, good);
    }

    fn settle(&mut self, buffers: Vec<Buffer>, good: bool) {
        self.has_landed = true;
        let sizes: Vec<usize> = buffers.iter().map(|buffer| buffer.len()).collect();
        let chunks: Option<Vec<Arc<Buffer>>> = good.then(|| buffers.into_iter().map(Arc::new).collect());
        let mut state = self.shared.lock();
        if self.is_ahead {
            state.ahead_bytes -= sizes.iter().sum::<usize>();
        }
        for (at, size) in sizes.into_iter().enumerate() {
            let key = (self.source.place.segment, self.flight.first + u32::try_from(at).expect("a few"));
            let is_mine =
                |slot: &Slot| matches!(slot, Slot::Flight(flight) if Arc::ptr_eq(flight, &self.flight));
            let mine = state.slots.get(&key).is_some_and(is_mine);
            match &chunks {
                Some(chunks) if mine => state.keep(key, &chunks[at], self.source.is_metadata),
                _ => {
                    // It failed, or was forgotten meanwhile.
                    state.bytes -= size;
                    if mine {
                        state.slots.remove(&key);
                    }
                }
            }
        }
        drop(state);
        *lock(&self.flight.landed) = Some(chunks);
        self.flight.ended.notify_all();
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if !self.has_landed {
            let buffers = std::mem::take(&mut self.buffers);
            self.settle(buffers, false);
        }
    }
}

/// Flies transfers of which none was begun, side by side where a device can.
fn fly_all(mut transfers: Vec<Transfer>) {
    if transfers.len() == 1 {
        transfers.pop().expect("one").fly();
        return;
    }
    transfers.sort_by_key(|transfer| Arc::as_ptr(&transfer.source.device).cast::<()>() as usize);
    for some in transfers.chunk_by_mut(|one, next| Arc::ptr_eq(&one.source.device, &next.source.device)) {
        let device = Arc::clone(&some[0].source.device);
        let mut reads: Vec<PartRead<'_>> = some.iter_mut().map(Transfer::part).collect();
        device.read_many(&mut reads);
        let outcomes: Vec<bool> = reads.into_iter().map(|read| read.outcome.is_ok()).collect();
        some.iter_mut().zip(outcomes).for_each(|(transfer, good)| transfer.land(good));
    }
}

#[derive(Default)]
struct State {
    slots: HashMap<Key, Slot>,
    /// Chunks that are kept, in the order in which they go.
    order: BTreeMap<u64, Key>,
    next_order: u64,
    /// Bytes kept and under way [chunks.1].
    bytes: usize,
    bytes_max: usize,
    /// Bytes under way, or waiting, that nobody asked for yet.
    ahead_bytes: usize,
    /// Chunks of content that were read whole and went, a bit for each.
    served: HashMap<SegmentId, Vec<u64>>,
    walks: Walks,
    queue: VecDeque<Transfer>,
    threads: Vec<Box<dyn TaskHandle>>,
    idle: usize,
    is_stopping: bool,
    /// Only what a reader waits for is read: bytes cost.
    is_held: bool,
}

impl State {
    fn keep(&mut self, key: Key, bytes: &Arc<Buffer>, is_metadata: bool) {
        let order = self.next_order;
        self.next_order += 1;
        self.order.insert(order, key);
        let kept = Kept { bytes: Arc::clone(bytes), is_metadata, order, served: 0 };
        self.slots.insert(key, Slot::Kept(kept));
    }

    fn remove(&mut self, key: Key) {
        match self.slots.remove(&key) {
            Some(Slot::Kept(kept)) => {
                self.order.remove(&kept.order);
                self.bytes -= kept.bytes.len();
            }
            // Its transfer gives the bytes back when it lands.
            Some(Slot::Flight(_)) | None => {}
        }
    }

    /// Lets go of chunks until there is room for so many bytes more; false if there is none.
    fn make_room(&mut self, bytes: usize) -> bool {
        let mut chances = self.order.len();
        while self.bytes + bytes > self.bytes_max {
            let Some((order, key)) = self.order.pop_first() else { return false };
            let next_order = self.next_order;
            match self.slots.get_mut(&key) {
                Some(Slot::Kept(kept)) if kept.is_metadata && kept.served > 0 && chances > 0 => {
                    chances -= 1;
                    (kept.served, kept.order) = (0, next_order);
                    self.next_order += 1;
                    self.order.insert(next_order, key);
                }
                _ => {
                    self.order.insert(order, key);
                    self.remove(key);
                }
            }
        }
        true
    }

    /// Begins a transfer of chunks that are neither here nor under way.
    fn take_off(
        &mut self,
        shared: &Arc<Shared>,
        source: &Source,
        first: u32,
        count: u32,
        is_ahead: bool,
    ) -> Option<Transfer> {
        let chunks = first..first + count;
        let bytes: usize = chunks.clone().map(|chunk| source.chunk_bytes(chunk)).sum();
        if !self.make_room(bytes) {
            return None;
        }
        self.bytes += bytes;
        self.ahead_bytes += if is_ahead { bytes } else { 0 };
        let flight = Arc::new(Flight { first, landed: Mutex::new(None), ended: Condvar::new() });
        for chunk in chunks.clone() {
            self.slots.insert((source.place.segment, chunk), Slot::Flight(Arc::clone(&flight)));
        }
        let buffers = chunks.map(|chunk| Buffer::to_fill(source.chunk_bytes(chunk))).collect();
        let (shared, source) = (Arc::clone(shared), source.clone());
        Some(Transfer { shared, source, flight, buffers, is_ahead, has_landed: false })
    }

    /// Longest run of chunks from one on that are neither here nor under way.
    fn missing_from(&self, source: &Source, first: u32, until: u32) -> u32 {
        let is_missing = |chunk: &u32| !self.slots.contains_key(&(source.place.segment, *chunk));
        let count = (first..until.min(source.chunks())).take_while(is_missing).count();
        u32::try_from(count).expect("a part of a segment")
    }

    fn mark_served(&mut self, (segment, chunk): Key) {
        if self.served.len() >= SERVED_MAX && !self.served.contains_key(&segment) {
            self.served.clear();
        }
        let (word, bits) = (chunk as usize / 64, self.served.entry(segment).or_default());
        bits.resize(bits.len().max(word + 1), 0);
        bits[word] |= 1 << (chunk % 64);
    }

    fn was_served(&self, segment: SegmentId, chunk: u32) -> bool {
        let bits = self.served.get(&segment).and_then(|bits| bits.get(chunk as usize / 64));
        bits.is_some_and(|bits| bits >> (chunk % 64) & 1 == 1)
    }

    /// The same of what a walk may want ahead of its reader.
    fn wanted_from(&self, walk: usize, source: &Source, first: u32, until: u32) -> u32 {
        let is_read = |chunk: &u32| self.was_served(source.place.segment, *chunk);
        let read = if self.walks.reads_again(walk) { None } else { (first..until).find(is_read) };
        self.missing_from(source, first, read.unwrap_or(until))
    }

    /// Bytes that may be under way ahead of readers.
    fn ahead_bound(&self) -> usize {
        self.bytes_max / 2
    }

    /// Queues what a walk wants ahead of its reader.
    fn look_ahead(&mut self, shared: &Arc<Shared>, walk: usize, next: &Next<'_>) {
        let bound = self.ahead_bound();
        loop {
            let is_line_full = self.ahead_bytes >= LINE_FULL;
            let Some(Advance { source, first, chunks }) =
                self.walks.advance(walk, (TRANSFER / CHUNK, TRANSFER_MAX / CHUNK), is_line_full, next)
            else {
                return;
            };
            let (mut at, segment) = (first, source.place.segment);
            while at < first + chunks {
                let count = self.wanted_from(walk, &source, at, first + chunks);
                if count == 0 {
                    at += 1;
                    continue;
                }
                if self.ahead_bytes + (count * CHUNK) as usize > bound {
                    // The reader meets it, or the next look does.
                    self.walks.fall_back(walk, segment, at);
                    return;
                }
                let Some(transfer) = self.take_off(shared, &source, at, count, true) else {
                    self.walks.fall_back(walk, segment, at);
                    return;
                };
                self.queue.push_back(transfer);
                at += count;
            }
        }
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(transfer) = state.queue.pop_front() {
                drop(state);
                transfer.fly();
                state = self.lock();
            } else if state.is_stopping {
                return;
            } else {
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

/// Chunks that one read wants.
pub(crate) struct Plan {
    chunks: Vec<Wanted>,
    own: Vec<Transfer>,
}

enum Wanted {
    Here(Arc<Buffer>),
    Flying(Arc<Flight>, u32),
}

impl Wanted {
    fn bytes(&self) -> Option<Arc<Buffer>> {
        match self {
            Wanted::Here(bytes) => Some(Arc::clone(bytes)),
            Wanted::Flying(flight, chunk) => {
                let chunks = flight.wait()?;
                chunks.get((chunk - flight.first) as usize).cloned()
            }
        }
    }
}

/// Use of the cache.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ChunkUse {
    /// Bytes it may hold.
    pub bytes_max: u64,
    /// Bytes it holds, of which some are under way.
    pub bytes: u64,
    /// Reads that found all they wanted here or under way.
    pub hits: u64,
    /// Reads that a request was made for.
    pub misses: u64,
}

/// The cache of one pool.
pub(crate) struct Chunks {
    shared: Arc<Shared>,
}

impl Chunks {
    pub(crate) fn new() -> Chunks {
        let chunks = Chunks { shared: Arc::default() };
        chunks.set_bytes_max(BYTES_DEFAULT);
        chunks
    }

    /// How many bytes it may hold; below two chunks it keeps nothing. Those beyond that go at once.
    pub(crate) fn set_bytes_max(&self, bytes: usize) {
        let mut state = self.shared.lock();
        state.bytes_max = bytes;
        state.make_room(0);
    }

    pub(crate) fn used(&self) -> ChunkUse {
        let state = self.shared.lock();
        ChunkUse {
            bytes_max: state.bytes_max as u64,
            bytes: state.bytes as u64,
            hits: self.shared.hits.load(Ordering::Relaxed),
            misses: self.shared.misses.load(Ordering::Relaxed),
        }
    }

    /// Chunks of a range, of which those that are missing are to be read by [`Plan::fly`]. `None`:
    /// the caller asks the device for what it wants and no more.
    pub(crate) fn plan(
        &self,
        env: &Env,
        source: &Source,
        (offset, len): (u32, usize),
        next: &Next<'_>,
    ) -> Option<Plan> {
        let end = u32::try_from(len).ok().and_then(|len| offset.checked_add(len))?;
        if len == 0 || end > source.end {
            return None;
        }
        let (first, behind, segment) = (offset / CHUNK, end.div_ceil(CHUNK), source.place.segment);
        let is_alone = env.tasks.parallelism() <= 1;
        let mut state = self.shared.lock();
        if state.bytes_max < 2 * CHUNK as usize {
            return None;
        }
        let is_here = |chunk| matches!(state.slots.get(&(segment, chunk)), Some(Slot::Kept(_)));
        let waits = !(first..behind).all(is_here);
        let misses = (first..behind).any(|chunk| !state.slots.contains_key(&(segment, chunk)));
        let counter = if misses { &self.shared.misses } else { &self.shared.hits };
        counter.fetch_add(1, Ordering::Relaxed);
        let window_max = WINDOW_MAX.min(state.bytes_max as u64 / 2);
        let (walk, is_walking) = state.walks.note(source, offset..end, waits, window_max);
        if misses && !is_walking && !source.is_metadata {
            return None;
        }
        let is_gone =
            |chunk| !state.slots.contains_key(&(segment, chunk)) && state.was_served(segment, chunk);
        if misses && (first..behind).any(is_gone) {
            state.walks.read_again(walk);
        }
        // Those that are here are held before others are let go for those that are not.
        let wanted = |state: &State, chunk| match state.slots.get(&(segment, chunk))? {
            Slot::Kept(kept) => Some(Wanted::Here(Arc::clone(&kept.bytes))),
            Slot::Flight(flight) => Some(Wanted::Flying(Arc::clone(flight), chunk)),
        };
        let here: Vec<Option<Wanted>> = (first..behind).map(|chunk| wanted(&state, chunk)).collect();
        let looks_ahead = !is_alone && is_walking && !state.is_stopping && !state.is_held;
        let (mut own, mut at, mut has_room) = (Vec::new(), first, true);
        while at < behind && has_room {
            let count = match &here[(at - first) as usize] {
                Some(_) => 0,
                None => state.missing_from(source, at, behind).min(TRANSFER / CHUNK),
            };
            if count > 0 {
                let is_last = looks_ahead && !source.is_metadata && at + count == behind;
                let more = if is_last { state.walks.room_at(walk, segment, behind) } else { 0 };
                let more = more.min(TRANSFER / CHUNK);
                let more = state.wanted_from(walk, source, behind, behind + more);
                let mut transfer = state.take_off(&self.shared, source, at, count + more, false);
                if transfer.is_none() && more > 0 {
                    transfer = state.take_off(&self.shared, source, at, count, false);
                }
                has_room = transfer.is_some();
                own.extend(transfer);
            }
            at += count.max(1);
        }
        if !has_room {
            // Transfers that were begun end as failed, without the lock.
            drop(state);
            return None;
        }
        let each = (first..behind).zip(here);
        let chunks: Vec<Wanted> =
            each.filter_map(|(chunk, here)| here.or_else(|| wanted(&state, chunk))).collect();
        if looks_ahead {
            state.look_ahead(&self.shared, walk, next);
            self.man(&mut state, env);
        }
        drop(state);
        Some(Plan { chunks, own })
    }

    /// Brings, in the background, the chunks of which so much is wanted that they are worth a
    /// request: in the order in which they are first wanted, as far as there is room.
    pub(crate) fn bring(&self, env: &Env, pieces: &[(Source, u32, usize)]) {
        if env.tasks.parallelism() <= 1 {
            return;
        }
        let mut wanted: HashMap<Key, usize> = HashMap::new();
        let mut order = Vec::new();
        for (source, offset, len) in pieces {
            let (begin, end) = (*offset as usize, (*offset as usize + len).min(source.end as usize));
            for chunk in *offset / CHUNK..u32::try_from(end).unwrap_or(u32::MAX).div_ceil(CHUNK) {
                let at = (chunk * CHUNK) as usize;
                let bytes = end.min(at + CHUNK as usize).saturating_sub(begin.max(at));
                *wanted.entry((source.place.segment, chunk)).or_insert_with(|| {
                    order.push((source, chunk));
                    0
                }) += bytes;
            }
        }
        let is_dense = |source: &Source, chunk: u32| {
            let bytes = wanted.get(&(source.place.segment, chunk)).copied().unwrap_or(0);
            bytes * SPARSE >= source.chunk_bytes(chunk) || source.is_metadata && bytes > 0
        };
        let mut metadata_left = NODE_CHUNKS_MAX;
        let mut state = self.shared.lock();
        if state.is_stopping || state.is_held || state.bytes_max < 2 * CHUNK as usize {
            return;
        }
        let bound = state.ahead_bound();
        for (source, first) in order {
            let missing = state.missing_from(source, first, first + TRANSFER / CHUNK);
            let dense = (first..first + missing).take_while(|chunk| is_dense(source, *chunk)).count();
            let most = if source.is_metadata { metadata_left } else { dense };
            let count = u32::try_from(dense.min(most)).expect("a few");
            if count == 0 {
                continue;
            }
            metadata_left -= if source.is_metadata { count as usize } else { 0 };
            if state.ahead_bytes + (count * CHUNK) as usize > bound {
                break;
            }
            let Some(transfer) = state.take_off(&self.shared, source, first, count, true) else { break };
            state.queue.push_back(transfer);
        }
        self.man(&mut state, env);
    }

    /// Sees to it that there is a thread for each transfer that waits.
    fn man(&self, state: &mut State, env: &Env) {
        let mut idle = state.idle;
        for _ in 0..state.queue.len() {
            if idle > 0 {
                idle -= 1;
                self.shared.work.notify_one();
            } else if state.threads.len() < FLIGHTS_MAX {
                let shared = Arc::clone(&self.shared);
                let name = format!("fetch {}", state.threads.len());
                state.threads.push(env.tasks.spawn(&name, Box::new(move || shared.serve())));
            }
        }
    }

    /// Reads a range through the cache. False if the caller is to ask the device itself.
    pub(crate) fn read(
        &self,
        env: &Env,
        source: &Source,
        offset: u32,
        outs: &mut [&mut [u8]],
        next: &Next<'_>,
    ) -> bool {
        let len = outs.iter().map(|out| out.len()).sum();
        let Some(mut plan) = self.plan(env, source, (offset, len), next) else { return false };
        plan.fly();
        let Some(chunks) = plan.land() else { return false };
        let mut at = offset as usize;
        for out in outs {
            let mut out = &mut **out;
            while !out.is_empty() {
                let (chunk, from) =
                    (at / CHUNK as usize - offset as usize / CHUNK as usize, at % CHUNK as usize);
                let count = out.len().min(chunks[chunk].len() - from);
                let (now, later) = out.split_at_mut(count);
                now.copy_from_slice(&chunks[chunk][from..from + count]);
                (out, at) = (later, at + count);
            }
        }
        self.note_served(source, offset as usize, len);
        true
    }

    /// Content that was read once goes: the cache of opened blocks has it.
    fn note_served(&self, source: &Source, offset: usize, len: usize) {
        let (chunk_bytes, end) = (CHUNK as usize, offset + len);
        let mut state = self.shared.lock();
        for chunk in offset / chunk_bytes..end.div_ceil(chunk_bytes) {
            let key = (source.place.segment, u32::try_from(chunk).expect("within a segment"));
            let begin = chunk * chunk_bytes;
            let Some(Slot::Kept(kept)) = state.slots.get_mut(&key) else { continue };
            kept.served += end.min(begin + chunk_bytes) - offset.max(begin);
            if !kept.is_metadata && kept.served >= kept.bytes.len() {
                state.remove(key);
                state.mark_served(key);
            }
        }
    }

    /// Drops the chunks of a range: its bytes are not right.
    pub(crate) fn forget(&self, segment: SegmentId, offset: u32, len: usize) {
        let end = offset as usize + len;
        let mut state = self.shared.lock();
        for chunk in offset / CHUNK..u32::try_from(end.div_ceil(CHUNK as usize)).unwrap_or(u32::MAX) {
            state.remove((segment, chunk));
        }
    }

    /// Says whether only what a reader waits for is read. Chunks that are under way come all the
    /// same.
    pub(crate) fn hold_ahead(&self, is_held: bool) {
        self.shared.lock().is_held = is_held;
    }

    /// Ends reading ahead for good: when this returns no thread of its own touches a device.
    pub(crate) fn stop(&self) {
        let (queue, threads) = {
            let mut state = self.shared.lock();
            state.is_stopping = true;
            (std::mem::take(&mut state.queue), std::mem::take(&mut state.threads))
        };
        self.shared.work.notify_all();
        drop(queue);
        for thread in threads {
            thread.join();
        }
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        // Perhaps on one of the threads: they are told, and not waited for.
        let queue = {
            let mut state = self.shared.lock();
            state.is_stopping = true;
            std::mem::take(&mut state.queue)
        };
        self.shared.work.notify_all();
        drop(queue);
    }
}

impl Plan {
    /// Transfers that the caller is to fly, alone or with others.
    pub(crate) fn fly(&mut self) {
        if !self.own.is_empty() {
            fly_all(std::mem::take(&mut self.own));
        }
    }

    /// Waits for the chunks; `None` if one could not be read.
    fn land(&self) -> Option<Vec<Arc<Buffer>>> {
        self.chunks.iter().map(Wanted::bytes).collect()
    }
}

/// Flies the transfers of several reads side by side, and waits for all of them.
pub(crate) fn fly_together(mut plans: Vec<Plan>) {
    let own: Vec<Transfer> = plans.iter_mut().flat_map(|plan| std::mem::take(&mut plan.own)).collect();
    if !own.is_empty() {
        fly_all(own);
    }
    plans.iter().for_each(|plan| _ = plan.land());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
