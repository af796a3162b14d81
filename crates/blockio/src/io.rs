//! [`BlockIo`]: writing, reading and freeing blocks.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use steadfast_crypto::{AuthError, BlockKeys, Mismatch, SEAL_OVERHEAD, Verified};
use steadfast_device::Buffer;
use steadfast_env::{Bug, Env, Job};
use steadfast_format::{Address, BlockKind, BlockPointer, Compression, DatasetId, PoolGuid, Stamp, Txg};
use steadfast_segment::{Class, READ_GAP_MAX, ReadError, Space};

use crate::ahead::{Ahead, ReadAhead};
use crate::cache::{Block, Cache, Lookup};
use crate::compress::{CompressionSetting, Compressor};
use crate::error::{Attempt, Badness, BlockFault, Error, ErrorLog};
use crate::seal::Identity;
use crate::second::SecondCache;
use crate::stats::{Counters, Statistics, add};

/// Faults kept for `status`; older ones go.
const FAULTS_KEPT: usize = 256;
/// Bytes of requests that are sealed at once, and held twice: one window is appended while the next is sealed, so the devices
/// wait for the first one of a call only.
const WINDOW_BYTES: usize = 2 << 20;
/// Read ahead of one stream at most: some ten milliseconds of a fast disk.
const READ_AHEAD_BYTES_MAX: u64 = 16 << 20;
/// Blocks that are read as they were compressed, in one transfer.
const PACKED_RUN_BYTES: u32 = 1 << 20;
/// Requests smaller than this in all are not worth waking other cores.
const PARALLEL_BYTES_MIN: usize = 64 << 10;

/// A block to be written.
#[derive(Clone, Debug)]
pub struct WriteRequest<'a> {
    /// What it holds; metadata is stored twice.
    pub kind: BlockKind,
    /// Height above the leaves; 0 for data.
    pub level: u8,
    /// Under whose number it is sealed: a dataset's family, 0 for the pool's own metadata.
    pub family: DatasetId,
    /// Encryption root in whose segments it goes, 0 for the shared ones.
    pub owner: DatasetId,
    /// Txg being synced.
    pub txg: Txg,
    /// How to compress it.
    pub compression: CompressionSetting,
    /// Seals it; `None` stores it open.
    pub keys: Option<&'a BlockKeys>,
    /// Content that takes so many bytes at most as it is stored goes to special groups, as metadata does.
    pub small_bytes_max: u32,
    /// Its bytes, 1 to 16 MiB.
    pub data: Cow<'a, [u8]>,
    /// The same bytes as somebody compressed them before: stored so, if that saves a unit.
    pub packed: Option<(Compression, &'a [u8])>,
}

/// Compressed bytes, how they were made, and how many bytes they are to become.
pub type PackedPart<'a> = (Compression, &'a [u8], u32);

/// Who reads.
#[derive(Clone, Copy, Debug)]
pub struct ReadContext<'a> {
    /// Dataset, 0 for the pool's own metadata: who is told of what is bad.
    pub dataset: DatasetId,
    /// Under whose number its blocks are sealed and kept: a clone's are those of its origin.
    pub family: DatasetId,
    /// Opens what is sealed. A dataset with keys accepts nothing that is not.
    pub keys: Option<&'a BlockKeys>,
    /// False if file content should not stay in the cache. Metadata never does: trees keep their own nodes.
    pub cache: bool,
}

/// Writes, reads and frees blocks of one pool. Shared by all threads.
pub struct BlockIo {
    space: Arc<Space>,
    env: Env,
    pool: PoolGuid,
    compressor: Compressor,
    cache: Cache,
    ahead: Ahead,
    counters: Counters,
    faults: Mutex<VecDeque<BlockFault>>,
    log: OnceLock<Arc<dyn ErrorLog>>,
    /// Cache devices.
    second: RwLock<Vec<Arc<SecondCache>>>,
    /// Datasets of which cache devices are to keep nothing more.
    not_for_second: RwLock<HashSet<DatasetId>>,
}

/// A block on its way down: everything but its places.
struct Sealed<'a> {
    bytes: Cow<'a, [u8]>,
    pointer: BlockPointer,
    owner: DatasetId,
    small_bytes_max: u32,
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
            second: RwLock::default(),
            not_for_second: RwLock::default(),
        }
    }

    /// Names who hears of bad blocks. Once; a second call is ignored and gives false.
    pub fn set_error_log(&self, log: Arc<dyn ErrorLog>) -> bool {
        self.log.set(log).is_ok()
    }

    /// Writes one block.
    pub fn write(&self, request: WriteRequest<'_>) -> Result<BlockPointer, Error> {
        self.place(&self.seal(request)?)
    }

    /// Writes blocks in order, compressing, sealing and hashing on all cores. On an error nothing of them stays
    /// allocated.
    pub fn write_many(&self, requests: Vec<WriteRequest<'_>>) -> Result<Vec<BlockPointer>, Error> {
        let mut pointers = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter().peekable();
        let mut sealed: Vec<Result<Sealed<'_>, Error>> = Vec::new();
        loop {
            let mut window = Vec::new();
            let mut bytes = 0;
            while let Some(request) = requests.next_if(|_| bytes < WINDOW_BYTES) {
                bytes += request.data.len();
                window.push(request);
            }
            if window.is_empty() && sealed.is_empty() {
                return Ok(pointers);
            }
            let placed = Mutex::new(Ok(()));
            let next = self.step(window, bytes, || {
                let result = sealed.drain(..).try_for_each(|block| {
                    pointers.push(self.place(&block?)?);
                    Ok(())
                });
                *placed.lock().expect("no holder panics") = result;
            });
            if let Err(error) = placed.into_inner().expect("no holder panics") {
                pointers.iter().for_each(|pointer| self.free(pointer));
                return Err(error);
            }
            sealed = next;
        }
    }

    /// Keyed hashes of contents, in order, on all cores.
    #[must_use]
    pub fn digests(&self, key: &steadfast_crypto::Key, contents: &[&[u8]]) -> Vec<[u8; 32]> {
        let mut digests = vec![[0; 32]; contents.len()];
        let parallelism = self.env.tasks.parallelism();
        let bytes: usize = contents.iter().map(|content| content.len()).sum();
        let portion = match bytes < PARALLEL_BYTES_MIN || parallelism <= 1 {
            true => contents.len(),
            false => contents.len().div_ceil(parallelism * 4),
        };
        let jobs = digests.chunks_mut(portion.max(1)).zip(contents.chunks(portion.max(1)));
        let jobs = jobs.map(|(digests, contents)| -> Job<'_> {
            Box::new(move || {
                let all = digests.iter_mut().zip(contents);
                all.for_each(|(digest, content)| *digest = steadfast_crypto::keyed_hash(key, content));
            })
        });
        self.env.tasks.run_all(jobs.collect());
        digests
    }

    /// Reads a block: from the cache, or from its first good copy.
    pub fn read(&self, pointer: &BlockPointer, context: &ReadContext<'_>) -> Result<Block, Error> {
        if pointer.is_sealed() && context.keys.is_none() {
            return Err(Error::KeyNotLoaded { dataset: context.dataset });
        }
        if pointer.kind != BlockKind::Data {
            return self.read_stored(pointer, context);
        }
        let lead = match self.cache.begin(context.family, pointer) {
            Lookup::Hit(block) => {
                add(&self.counters.cache_hits, 1);
                return Ok(block);
            }
            Lookup::Follow(flight) => match flight.wait() {
                Some(block) => {
                    add(&self.counters.cache_waits, 1);
                    return Ok(block);
                }
                None => None,
            },
            Lookup::Lead(lead) => Some(lead),
            Lookup::Alone => None,
        };
        add(&self.counters.cache_misses, 1);
        let block = self.read_stored(pointer, context)?;
        if let Some(lead) = lead {
            lead.land(pointer, &block, context.cache);
        }
        Ok(block)
    }

    /// Uses these cache devices from now on, and no others.
    pub fn set_second(&self, caches: Vec<Arc<SecondCache>>) {
        *self.second.write().unwrap_or_else(PoisonError::into_inner) = caches;
    }

    /// Says whether cache devices may keep content of a dataset; so until this is called. What they have of it serves readers in any case.
    pub fn set_for_second(&self, dataset: DatasetId, wanted: bool) {
        let mut not = self.not_for_second.write().unwrap_or_else(PoisonError::into_inner);
        if wanted {
            not.remove(&dataset)
        } else {
            not.insert(dataset)
        };
    }

    fn second(&self, pointer: &BlockPointer) -> Vec<Arc<SecondCache>> {
        match pointer.kind {
            BlockKind::Data => self.second.read().unwrap_or_else(PoisonError::into_inner).clone(),
            _ => Vec::new(),
        }
    }

    /// A block that a cache device holds (K7).
    fn read_second(&self, pointer: &BlockPointer, context: &ReadContext<'_>) -> Option<Block> {
        let caches = self.second(pointer);
        let bytes = caches.iter().find_map(|cache| cache.get(&pointer.hash, pointer.psize as usize))?;
        let stored = Verified::check(bytes, &pointer.hash).ok()?;
        let opened = self.open_stored(stored, pointer.copies[0], pointer, context).ok()?;
        add(&self.counters.second_hits, 1);
        Some(Block::new(opened))
    }

    /// Which device keeps a block: the same one always, so that none is kept twice.
    fn offer_second(&self, pointer: &BlockPointer, dataset: DatasetId, bytes: &[u8]) {
        let caches = self.second(pointer);
        if caches.is_empty()
            || self.not_for_second.read().unwrap_or_else(PoisonError::into_inner).contains(&dataset)
        {
            return;
        }
        if let Some(cache) = caches.get(usize::from(pointer.hash[0]) % caches.len().max(1)) {
            cache.offer(&pointer.hash, bytes);
        }
    }

    /// Reads a block from a cache device, or from its first good copy.
    fn read_stored(&self, pointer: &BlockPointer, context: &ReadContext<'_>) -> Result<Block, Error> {
        if let Some(block) = self.read_second(pointer, context) {
            return Ok(block);
        }
        self.first_good(pointer, context, |address| self.read_copy(address, pointer, context)).map(Block::new)
    }

    /// What the first good copy gives; what is wrong with those before it is noted.
    fn first_good(
        &self,
        pointer: &BlockPointer,
        context: &ReadContext<'_>,
        read: impl Fn(Address) -> Result<Verified<Buffer>, Failure>,
    ) -> Result<Verified<Buffer>, Error> {
        let mut attempts = Vec::new();
        for &address in &pointer.copies[..pointer.copy_count()] {
            match read(address) {
                Ok(bytes) => {
                    add(&self.counters.blocks_read, 1);
                    add(&self.counters.logical_bytes_read, bytes.len() as u64);
                    if !attempts.is_empty() {
                        add(&self.counters.blocks_healed, 1);
                        self.note(fault(pointer, context, attempts, true));
                    }
                    return Ok(bytes);
                }
                Err(Failure::Unallocated) => return Err(Error::Unallocated { address }),
                Err(Failure::Copy(attempt)) => attempts.push(attempt),
            }
        }
        add(&self.counters.blocks_bad, 1);
        let fault = fault(pointer, context, attempts, false);
        self.note(fault.clone());
        Err(Error::Bad(Box::new(fault)))
    }

    /// Brings blocks of file content into the cache in the background. Those that are there are left out.
    pub fn read_ahead(self: &Arc<Self>, wanted: ReadAhead<'_>) {
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

    /// Bytes one stream should have read ahead of it at most: a share of the cache, or they would push each other out.
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
    }

    /// A block read ahead: unless it is here or under way it is read and kept. Errors are whoever asks for it gets.
    pub(crate) fn read_for_later(&self, pointer: &BlockPointer, context: &ReadContext<'_>) {
        if let Lookup::Lead(lead) = self.cache.begin(context.family, pointer)
            && let Ok(block) = self.read_stored(pointer, context)
        {
            add(&self.counters.blocks_read_ahead, 1);
            lead.land(pointer, &block, true);
        }
    }

    /// The same for blocks that lie side by side, in one transfer if that is still so.
    pub(crate) fn read_run_for_later(&self, pointers: &[BlockPointer], context: &ReadContext<'_>) {
        let leads: Vec<_> = pointers
            .iter()
            .filter_map(|pointer| match self.cache.begin(context.family, pointer) {
                Lookup::Lead(lead) => Some((lead, pointer)),
                _ => None,
            })
            .collect();
        let places: Vec<_> =
            leads.iter().map(|(_, pointer)| (pointer.copies[0], pointer.psize as usize)).collect();
        let kept =
            |pointer: &BlockPointer| self.second(pointer).iter().any(|cache| cache.holds(&pointer.hash));
        let together = places.len() > 1 && !leads.iter().any(|(_, pointer)| kept(pointer));
        let read = if together { self.space.read_run(&places) } else { None };
        let mut buffers = read.into_iter().flatten();
        for (lead, pointer) in leads {
            let checked = buffers.next().and_then(|bytes| Verified::check(bytes, &pointer.hash).ok());
            if let Some(stored) = &checked {
                self.offer_second(pointer, context.dataset, stored);
            }
            let opened = checked
                .and_then(|stored| self.open_stored(stored, pointer.copies[0], pointer, context).ok())
                .map(Block::new);
            // What is not good is read by itself, which says what is wrong with it, and from another copy if there is one.
            let block = match opened {
                Some(block) => {
                    add(&self.counters.blocks_read, 1);
                    add(&self.counters.logical_bytes_read, block.len() as u64);
                    Some(block)
                }
                None => self.read_stored(pointer, context).ok(),
            };
            if let Some(block) = block {
                add(&self.counters.blocks_read_ahead, 1);
                lead.land(pointer, &block, true);
            }
        }
    }

    /// Bytes that blocks lie apart at least, and a multiple of which they begin at.
    pub(crate) fn unit(&self) -> u32 {
        self.space.geometry().unit
    }

    /// Frees all copies of a block. Sync context only. A block that does not live cannot be freed; that is counted
    /// ([`Statistics::frees_refused`]) and changes nothing, as its owner could do nothing about it either.
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

    /// Drops opened bytes of a dataset and of its family from the cache: its key was unloaded, or it is gone.
    pub fn forget(&self, dataset: DatasetId, family: DatasetId) {
        self.ahead.cancel_dataset(dataset);
        self.cache.forget(family);
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.counters.snapshot(self.cache.bytes() as u64, self.cache.bytes_max() as u64)
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

    /// Most bytes a block may have before compression: it fits a segment even if it does not compress and is sealed.
    #[must_use]
    pub fn block_bytes_max(&self) -> u32 {
        let geometry = self.space.geometry();
        (geometry.slot_size - geometry.unit).min(BlockPointer::LSIZE_MAX)
    }

    /// Seals a window of requests, and meanwhile does what is left of the window before it.
    fn step<'a>(
        &self,
        window: Vec<WriteRequest<'a>>,
        bytes: usize,
        meanwhile: impl FnOnce() + Send,
    ) -> Vec<Result<Sealed<'a>, Error>> {
        let parallelism = self.env.tasks.parallelism();
        if window.len() <= 1 || parallelism <= 1 || bytes < PARALLEL_BYTES_MIN {
            meanwhile();
            return window.into_iter().map(|request| self.seal(request)).collect();
        }
        let count = window.len();
        // Several portions a core, as blocks differ in what compression costs.
        let portion = count.div_ceil(parallelism * 4);
        let mut sealed: Vec<Option<Result<Sealed<'a>, Error>>> = Vec::new();
        sealed.resize_with(count, || None);
        let mut rest = window.into_iter();
        let mut jobs: Vec<Job<'_>> = vec![Box::new(meanwhile)];
        for places in sealed.chunks_mut(portion) {
            let requests: Vec<WriteRequest<'a>> = rest.by_ref().take(places.len()).collect();
            jobs.push(Box::new(move || {
                for (place, request) in places.iter_mut().zip(requests) {
                    *place = Some(self.seal(request));
                }
            }));
        }
        self.env.tasks.run_all(jobs);
        sealed.into_iter().map(|block| block.expect("every request was sealed")).collect()
    }

    /// Compresses, seals and hashes.
    fn seal<'a>(&self, request: WriteRequest<'a>) -> Result<Sealed<'a>, Error> {
        let lsize = match u32::try_from(request.data.len()) {
            Ok(lsize) if (1..=BlockPointer::LSIZE_MAX).contains(&lsize) => lsize,
            _ => return Err(Error::Size { bytes: request.data.len() }),
        };
        let overhead = if request.keys.is_some() { SEAL_OVERHEAD } else { 0 };
        // Compression is kept if it saves a unit of what is allocated.
        let unit = self.space.geometry().unit as usize;
        let units = (request.data.len() + overhead).div_ceil(unit);
        let limit = ((units - 1) * unit).saturating_sub(overhead);
        let packed = request.packed.filter(|(_, bytes)| bytes.len() <= limit);
        let (compression, mut bytes) = match packed {
            Some((compression, bytes)) => (compression, Cow::Borrowed(bytes)),
            None => self.compressor.compress(request.compression, request.data, limit),
        };
        let (dataset, birth, kind, level) = (request.family, request.txg, request.kind, request.level);
        let identity = Identity { pool: self.pool, dataset, birth, lsize, kind, level, compression };
        let stamp = match request.keys {
            Some(keys) => {
                // With room for the seal: growing would copy all of it once more.
                let mut buffer = match bytes {
                    Cow::Owned(buffer) if buffer.capacity() >= buffer.len() + SEAL_OVERHEAD => buffer,
                    bytes => {
                        let mut buffer = Vec::with_capacity(bytes.len() + SEAL_OVERHEAD);
                        buffer.extend_from_slice(&bytes);
                        buffer
                    }
                };
                let stamp = keys.seal(&identity.aad(), &mut buffer);
                bytes = Cow::Owned(buffer);
                stamp
            }
            None => Stamp::default(),
        };
        let psize = u32::try_from(bytes.len()).expect("at most 16 MiB and a seal");
        let hash = steadfast_crypto::hash(&bytes);
        let copies = [Address::NONE; 2];
        let written = Txg(0);
        let pointer =
            BlockPointer { hash, copies, psize, lsize, birth, written, stamp, compression, kind, level };
        add(&self.counters.blocks_written, 1);
        add(&self.counters.logical_bytes_written, lsize.into());
        add(&self.counters.blocks_compressed, u64::from(compression != Compression::Off));
        Ok(Sealed { bytes, pointer, owner: request.owner, small_bytes_max: request.small_bytes_max })
    }

    /// Appends the copies.
    fn place(&self, sealed: &Sealed<'_>) -> Result<BlockPointer, Error> {
        let mut pointer = sealed.pointer;
        let (owner, classes): (DatasetId, &[Class]) = match pointer.kind {
            BlockKind::Data if pointer.psize <= sealed.small_bytes_max => (sealed.owner, &[Class::Small]),
            BlockKind::Data => (sealed.owner, &[Class::Data]),
            BlockKind::Names | BlockKind::Extents => (sealed.owner, &[Class::Meta0, Class::Meta1]),
            BlockKind::Meta | BlockKind::Tail => (DatasetId(0), &[Class::Pool0, Class::Pool1]),
        };
        for (copy, class) in classes.iter().enumerate() {
            match self.space.append(owner, *class, &sealed.bytes) {
                Ok(address) => pointer.copies[copy] = address,
                Err(error) => {
                    if copy > 0 {
                        self.free(&pointer);
                    }
                    return Err(error.into());
                }
            }
        }
        add(&self.counters.stored_bytes_written, u64::from(pointer.psize) * classes.len() as u64);
        Ok(pointer)
    }

    /// A block's bytes as they are stored: whoever holds them needs its key to make anything of them. From its first good copy.
    pub fn read_sealed(
        &self,
        pointer: &BlockPointer,
        context: &ReadContext<'_>,
    ) -> Result<Verified<Buffer>, Error> {
        self.first_good(pointer, context, |address| self.fetch_copy(address, pointer))
    }

    /// Counts bytes of another pool that are those that were sent, and that their key does not open, where they are kept.
    pub fn note_unopened(&self, address: Address) {
        self.space.note_authentication(address);
    }

    /// Opens a block of another pool, whose bytes were kept there as they were sealed here.
    pub fn open_foreign(
        &self,
        bytes: Buffer,
        pool: PoolGuid,
        pointer: &BlockPointer,
        context: &ReadContext<'_>,
    ) -> Result<Block, Error> {
        let address = pointer.copies[0];
        let bad = |badness, detail: String| {
            let attempts = vec![Attempt { address, device: None, badness, detail }];
            let fault = fault(pointer, context, attempts, false);
            self.note(fault.clone());
            Error::Bad(Box::new(fault))
        };
        if context.keys.is_none() {
            return Err(Error::KeyNotLoaded { dataset: context.dataset });
        }
        let stored = Verified::check(bytes, &pointer.hash)
            .map_err(|mismatch| bad(Badness::Checksum, mismatch.to_string()))?;
        let identity = Identity::of(pool, context.family, pointer);
        self.open_as(stored, &identity, pointer, context)
            .map(Block::new)
            .map_err(|(badness, detail)| bad(badness, detail.to_owned()))
    }

    /// Blocks of file content as they were compressed, verified and opened: each from its first good copy, those that lie side by side in one
    /// transfer, on all cores. An error is what [`BlockIo::read`] gives of the same block. They are not looked for in the cache, and not kept.
    pub fn read_packed(
        &self,
        pointers: &[BlockPointer],
        context: &ReadContext<'_>,
    ) -> Vec<Result<Block, Error>> {
        let mut results: Vec<Option<Result<Block, Error>>> = Vec::new();
        results.resize_with(pointers.len(), || None);
        let mut jobs: Vec<Job<'_>> = Vec::new();
        let (mut rest, mut places) = (pointers, &mut results[..]);
        while !rest.is_empty() {
            let (run, behind) = rest.split_at(self.run_length(rest));
            let (now, later) = std::mem::take(&mut places).split_at_mut(run.len());
            (rest, places) = (behind, later);
            jobs.push(Box::new(move || self.read_packed_run(run, context, now)));
        }
        self.env.tasks.run_all(jobs);
        results.into_iter().map(|result| result.expect("every block was asked for")).collect()
    }

    /// How many of these blocks, from the first one on, lie side by side, as far as one transfer goes.
    fn run_length(&self, pointers: &[BlockPointer]) -> usize {
        let unit = self.unit();
        let mut bytes = 0;
        let follows = |pair: &&[BlockPointer]| {
            let (last, next) = (&pair[0], pair[1].copies[0]);
            bytes += last.psize;
            let end = last.copies[0].offset + last.asize(unit);
            let gap = next.offset.checked_sub(end).filter(|gap| *gap <= READ_GAP_MAX);
            next.segment == last.copies[0].segment && gap.is_some() && bytes < PACKED_RUN_BYTES
        };
        1 + pointers.windows(2).take_while(follows).count()
    }

    fn read_packed_run(
        &self,
        run: &[BlockPointer],
        context: &ReadContext<'_>,
        results: &mut [Option<Result<Block, Error>>],
    ) {
        let places: Vec<_> = run.iter().map(|pointer| (pointer.copies[0], pointer.psize as usize)).collect();
        let together = if places.len() > 1 { self.space.read_run(&places) } else { None };
        let mut buffers = together.into_iter().flatten();
        for (pointer, result) in run.iter().zip(results) {
            if pointer.is_sealed() && context.keys.is_none() {
                *result = Some(Err(Error::KeyNotLoaded { dataset: context.dataset }));
                continue;
            }
            let identity = Identity::of(self.pool, context.family, pointer);
            let open = |stored| self.unseal(stored, &identity, pointer, context);
            let first = buffers.next().and_then(|bytes| Verified::check(bytes, &pointer.hash).ok());
            let block = match first.and_then(|stored| open(stored).ok()) {
                Some(block) => {
                    add(&self.counters.blocks_read, 1);
                    add(&self.counters.logical_bytes_read, block.len() as u64);
                    Ok(block)
                }
                // Read by itself, which says what is wrong with it, and from another copy if there is one.
                None => self.first_good(pointer, context, |address| {
                    let stored = self.fetch_copy(address, pointer)?;
                    open(stored).map_err(|bad| self.not_opened(address, pointer, bad))
                }),
            };
            *result = Some(block.map(Block::new));
        }
    }

    /// What compressed bytes become, in order, on all cores; `None` for those that do not become as many as they are to.
    #[must_use]
    pub fn unpack(&self, parts: &[PackedPart<'_>]) -> Vec<Option<Buffer>> {
        let mut plain: Vec<Option<Buffer>> = Vec::new();
        plain.resize_with(parts.len(), || None);
        let parallelism = self.env.tasks.parallelism();
        let bytes: usize = parts.iter().map(|(.., lsize)| *lsize as usize).sum();
        let portion = match bytes < PARALLEL_BYTES_MIN || parallelism <= 1 {
            true => parts.len(),
            false => parts.len().div_ceil(parallelism * 4),
        };
        let jobs = plain.chunks_mut(portion.max(1)).zip(parts.chunks(portion.max(1)));
        let jobs = jobs.map(|(plain, parts)| -> Job<'_> {
            Box::new(move || {
                for (plain, &(compression, bytes, lsize)) in plain.iter_mut().zip(parts) {
                    *plain = self.compressor.unpack(compression, bytes, lsize as usize);
                }
            })
        });
        self.env.tasks.run_all(jobs.collect());
        plain
    }

    fn read_copy(
        &self,
        address: Address,
        pointer: &BlockPointer,
        context: &ReadContext<'_>,
    ) -> Result<Verified<Buffer>, Failure> {
        let stored = self.fetch_copy(address, pointer)?;
        self.offer_second(pointer, context.dataset, &stored);
        self.open_stored(stored, address, pointer, context)
    }

    fn fetch_copy(&self, address: Address, pointer: &BlockPointer) -> Result<Verified<Buffer>, Failure> {
        let judge = |bytes: Buffer| match self.env.has_bug(Bug::HashIgnored) {
            true => Ok(Verified::sign(bytes).0),
            false => Verified::check(bytes, &pointer.hash),
        };
        let stored = self.space.read(address, pointer.psize as usize, judge);
        stored.map_err(|error: ReadError<Mismatch>| match error {
            ReadError::Unallocated { .. } => Failure::Unallocated,
            ReadError::Device { device, source } => Failure::Copy(Attempt {
                address,
                device: Some(device),
                badness: Badness::Unreadable,
                detail: source.to_string(),
            }),
            ReadError::Rejected { device, verdict } => Failure::Copy(Attempt {
                address,
                device: Some(device),
                badness: Badness::Checksum,
                detail: verdict.to_string(),
            }),
            _ => Failure::Copy(Attempt {
                address,
                device: None,
                badness: Badness::Unreadable,
                detail: error.to_string(),
            }),
        })
    }

    /// Opens and decompresses. These are the bytes the parent vouches for: no device is to blame, though a seal that does not open is
    /// counted where it lies.
    fn open_stored(
        &self,
        stored: Verified<Buffer>,
        address: Address,
        pointer: &BlockPointer,
        context: &ReadContext<'_>,
    ) -> Result<Verified<Buffer>, Failure> {
        let identity = Identity::of(self.pool, context.family, pointer);
        self.open_as(stored, &identity, pointer, context)
            .map_err(|bad| self.not_opened(address, pointer, bad))
    }

    fn not_opened(
        &self,
        address: Address,
        pointer: &BlockPointer,
        (badness, detail): (Badness, &'static str),
    ) -> Failure {
        if badness == Badness::Authentication && pointer.is_sealed() {
            self.space.note_authentication(address);
        }
        Failure::Copy(Attempt { address, device: None, badness, detail: detail.to_owned() })
    }

    /// The same for what was sealed as `identity`: what is wrong is told as it is.
    fn open_as(
        &self,
        stored: Verified<Buffer>,
        identity: &Identity,
        pointer: &BlockPointer,
        context: &ReadContext<'_>,
    ) -> Result<Verified<Buffer>, (Badness, &'static str)> {
        let opened = self.unseal(stored, identity, pointer, context)?;
        let lsize = pointer.lsize as usize;
        opened
            .try_map(|bytes| self.compressor.decompress(pointer.compression, bytes, lsize).ok_or(()))
            .map_err(|()| (Badness::Malformed, "decompression does not give the size in the pointer"))
    }

    /// Opens the seal, if there is to be one.
    fn unseal(
        &self,
        stored: Verified<Buffer>,
        identity: &Identity,
        pointer: &BlockPointer,
        context: &ReadContext<'_>,
    ) -> Result<Verified<Buffer>, (Badness, &'static str)> {
        let keys = match context.keys {
            None => return Ok(stored),
            Some(_) if !pointer.is_sealed() => {
                return Err((Badness::Authentication, "a block of an encrypted dataset is not sealed"));
            }
            Some(keys) => keys,
        };
        let aad = identity.aad();
        let open = |mut bytes: Buffer| {
            let length = keys.open_slice(&pointer.stamp, &aad, &mut bytes)?;
            bytes.resize(length);
            Ok(bytes)
        };
        stored.try_map(open).map_err(|AuthError| (Badness::Authentication, "the seal does not open"))
    }

    fn note(&self, fault: BlockFault) {
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

/// Why one copy could not be used.
enum Failure {
    Unallocated,
    Copy(Attempt),
}

fn fault(
    pointer: &BlockPointer,
    context: &ReadContext<'_>,
    attempts: Vec<Attempt>,
    healed: bool,
) -> BlockFault {
    BlockFault {
        dataset: context.dataset,
        kind: pointer.kind,
        level: pointer.level,
        lsize: pointer.lsize,
        birth: pointer.birth,
        attempts,
        healed,
    }
}
