//! Reading blocks: the first good copy, verified, opened and decompressed (ZFS: `arc_read`,
//! `zio_read`).

use std::sync::{Arc, PoisonError};

use steadfast_crypto::{AuthError, BlockKeys, Mismatch, Verified};
use steadfast_device::{Buffer, Error as DeviceError};
use steadfast_env::{Bug, Job};
use steadfast_format::{Address, BlockKind, BlockPointer, Compression, DatasetId, PoolGuid};
use steadfast_segment::{READ_GAP_MAX, ReadError};

use crate::cache::{Block, Lookup};

use crate::error::{Attempt, Badness, BlockFault, Error};
use crate::io::{BlockIo, PARALLEL_BYTES_MIN};
use crate::l2arc::L2Arc;
use crate::seal::Identity;
use crate::stats::add;

/// Blocks that are read as they were compressed, in one transfer.
const PACKED_RUN_BYTES: u32 = 1 << 20;

/// Transfers of one caller that are under way at once, at most: each has a thread.
const READS_AT_ONCE_MAX: usize = 32;

/// Compressed bytes, how they were made, and how many bytes they are to become.
pub type PackedPart<'a> = (Compression, &'a [u8], u32);

/// The reader: dataset, key, and use of the cache.
#[derive(Clone, Copy, Debug)]
pub struct ReadContext<'a> {
    /// Dataset that bad blocks are reported for; 0 for the pool's own metadata.
    pub dataset: DatasetId,
    /// Under whose number its blocks are sealed and kept: a clone's are those of its origin.
    pub family: DatasetId,
    /// Opens what is sealed. A dataset with keys accepts nothing that is not.
    pub keys: Option<&'a BlockKeys>,
    /// False if file content should not stay in the cache. Metadata never does: trees keep their
    /// own nodes.
    pub cache: bool,
}

impl BlockIo {
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

    /// A block that a cache device holds [block.7].
    pub(crate) fn read_l2arc(&self, pointer: &BlockPointer, context: &ReadContext<'_>) -> Option<Block> {
        let caches = self.l2arc_of(pointer);
        let bytes = caches.iter().find_map(|cache| cache.get(&pointer.hash, pointer.psize as usize))?;
        let stored = Verified::check(bytes, &pointer.hash).ok()?;
        let opened = self.open_stored(stored, pointer.copies[0], pointer, context).ok()?;
        add(&self.counters.l2arc_hits, 1);
        Some(Block::new(opened))
    }

    /// Which device keeps a block: the same one always, so that none is kept twice.
    pub(crate) fn offer_l2arc(&self, pointer: &BlockPointer, dataset: DatasetId, bytes: &[u8]) {
        let caches = self.l2arc_of(pointer);
        if caches.is_empty() {
            return;
        }
        let not = match pointer.kind {
            BlockKind::Data => &self.not_for_l2arc,
            _ => &self.nodes_not_for_l2arc,
        };
        if not.read().unwrap_or_else(PoisonError::into_inner).contains(&dataset) {
            return;
        }
        if let Some(cache) = caches.get(usize::from(pointer.hash[0]) % caches.len().max(1)) {
            cache.offer(&pointer.hash, bytes);
        }
    }

    /// True if a cache device holds a block, as far as is known.
    pub(crate) fn is_in_l2arc(&self, pointer: &BlockPointer) -> bool {
        self.l2arc_of(pointer).iter().any(|cache| cache.holds(&pointer.hash))
    }

    /// Cache devices that may hold a block: content, and nodes of file systems' trees. The pool's
    /// own metadata is read at an import, before there are any.
    pub(crate) fn l2arc_of(&self, pointer: &BlockPointer) -> Vec<Arc<L2Arc>> {
        match pointer.kind {
            BlockKind::Data | BlockKind::Names | BlockKind::Extents => {
                self.l2arc.read().unwrap_or_else(PoisonError::into_inner).clone()
            }
            _ => Vec::new(),
        }
    }

    /// Reads a block from a cache device, or from its first good copy.
    pub(crate) fn read_stored(
        &self,
        pointer: &BlockPointer,
        context: &ReadContext<'_>,
    ) -> Result<Block, Error> {
        if let Some(block) = self.read_l2arc(pointer, context) {
            return Ok(block);
        }
        self.first_good(pointer, context, |address| self.read_copy(address, pointer, context)).map(Block::new)
    }

    /// Reads a block of metadata from the pool's devices, though a cache device may hold it: a
    /// scrub wants to know whether they do.
    ///
    /// # Errors
    /// Those of [`BlockIo::read`].
    pub fn read_from_devices(
        &self,
        pointer: &BlockPointer,
        context: &ReadContext<'_>,
    ) -> Result<Block, Error> {
        if pointer.is_sealed() && context.keys.is_none() {
            return Err(Error::KeyNotLoaded { dataset: context.dataset });
        }
        self.first_good(pointer, context, |address| self.read_copy(address, pointer, context)).map(Block::new)
    }

    /// Opens a block whose stored bytes the caller has read. `None` if they are not right.
    #[must_use]
    pub fn open_read(
        &self,
        bytes: Buffer,
        pointer: &BlockPointer,
        context: &ReadContext<'_>,
    ) -> Option<Block> {
        let stored = Verified::check(bytes, &pointer.hash).ok()?;
        let opened = self.open_stored(stored, pointer.copies[0], pointer, context).ok()?;
        Some(Block::new(opened))
    }

    /// The first good copy. Faults of the copies before it are noted.
    pub(crate) fn first_good(
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
                        self.rewrite(pointer, address, &attempts);
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

    /// Writes copies of content that are wrong anew from the one that is right. Those of metadata
    /// are left to a scrub.
    fn rewrite(&self, pointer: &BlockPointer, right: Address, attempts: &[Attempt]) {
        let wrong = attempts.iter().filter(|attempt| {
            let is_lost = matches!(attempt.badness, Badness::Checksum | Badness::Unreadable);
            is_lost && pointer.kind == BlockKind::Data
        });
        let wrong: Vec<Address> = wrong.map(|attempt| attempt.address).collect();
        if wrong.is_empty() {
            return;
        }
        if let Ok(stored) = self.fetch_copy(right, pointer) {
            wrong.iter().for_each(|address| _ = self.space.rewrite(*address, &stored));
        }
    }

    /// A block read ahead: unless it is here or under way it is read and kept. The reader that asks
    /// for it gets the error.
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
        let together = places.len() > 1 && !leads.iter().any(|(_, pointer)| self.is_in_l2arc(pointer));
        let read = if together { self.space.read_run(&places) } else { None };
        let mut buffers = read.into_iter().flatten();
        for (lead, pointer) in leads {
            let checked = buffers.next().and_then(|bytes| Verified::check(bytes, &pointer.hash).ok());
            if let Some(stored) = &checked {
                self.offer_l2arc(pointer, context.dataset, stored);
            }
            let opened = checked
                .and_then(|stored| self.open_stored(stored, pointer.copies[0], pointer, context).ok())
                .map(Block::new);
            // A bad block is read by itself, which reports the fault, and from another copy if
            // there is one.
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

    /// Reads blocks of metadata: all at once, those that lie side by side in one transfer. Answers
    /// in the same order; an error is what [`BlockIo::read`] gives of the same block.
    pub fn read_many(
        &self,
        pointers: &[BlockPointer],
        context: &ReadContext<'_>,
    ) -> Vec<Result<Block, Error>> {
        let mut answers: Vec<Option<Result<Block, Error>>> = Vec::new();
        answers.resize_with(pointers.len(), || None);
        for (pointer, answer) in pointers.iter().zip(&mut answers) {
            *answer = self.read_l2arc(pointer, context).map(Ok);
        }
        let mut order: Vec<usize> = (0..pointers.len()).filter(|&index| answers[index].is_none()).collect();
        order.sort_by_key(|&index| pointers[index].copies[0]);
        let sorted: Vec<BlockPointer> = order.iter().map(|&index| pointers[index]).collect();
        let mut read: Vec<Option<Result<Block, Error>>> = Vec::new();
        read.resize_with(sorted.len(), || None);
        let mut jobs: Vec<Job<'_>> = Vec::new();
        // Blocks that came in chunks are taken from them by this thread.
        let lengths: Vec<_> =
            sorted.iter().map(|pointer| (pointer.copies[0], pointer.psize as usize)).collect();
        let is_here = self.space.bring(&lengths);
        let (mut rest, mut places) = (&sorted[..], &mut read[..]);
        while !rest.is_empty() {
            let (run, behind) = rest.split_at(self.run_length(rest));
            let (now, later) = std::mem::take(&mut places).split_at_mut(run.len());
            (rest, places) = (behind, later);
            if is_here {
                self.read_run(run, context, now);
            } else {
                jobs.push(Box::new(move || self.read_run(run, context, now)));
            }
        }
        while !jobs.is_empty() {
            let later = jobs.split_off(jobs.len().min(READS_AT_ONCE_MAX));
            self.env.tasks.run_waiting(std::mem::replace(&mut jobs, later));
        }
        drop(jobs);
        for (index, answer) in order.into_iter().zip(read) {
            answers[index] = answer;
        }
        answers.into_iter().map(|answer| answer.expect("every block was asked for")).collect()
    }

    fn read_run(
        &self,
        run: &[BlockPointer],
        context: &ReadContext<'_>,
        answers: &mut [Option<Result<Block, Error>>],
    ) {
        let places: Vec<_> = run.iter().map(|pointer| (pointer.copies[0], pointer.psize as usize)).collect();
        let readable = |pointer: &BlockPointer| !pointer.is_sealed() || context.keys.is_some();
        let together = places.len() > 1 && run.iter().all(readable);
        let read = if together { self.space.read_run(&places) } else { None };
        let mut buffers = read.into_iter().flatten();
        for (pointer, answer) in run.iter().zip(answers) {
            let checked = buffers.next().and_then(|bytes| Verified::check(bytes, &pointer.hash).ok());
            if let Some(stored) = &checked {
                self.offer_l2arc(pointer, context.dataset, stored);
            }
            let opened =
                checked.and_then(|stored| self.open_stored(stored, pointer.copies[0], pointer, context).ok());
            *answer = Some(match opened {
                Some(bytes) => {
                    add(&self.counters.blocks_read, 1);
                    add(&self.counters.logical_bytes_read, bytes.len() as u64);
                    Ok(Block::new(bytes))
                }
                // By itself, which reports what is wrong with it, and from another copy if there is
                // one.
                None => self.read(pointer, context),
            });
        }
    }

    /// A block's bytes as they are stored: useless without its key. From its first good copy.
    pub fn read_sealed(
        &self,
        pointer: &BlockPointer,
        context: &ReadContext<'_>,
    ) -> Result<Verified<Buffer>, Error> {
        self.first_good(pointer, context, |address| self.fetch_copy(address, pointer))
    }

    /// Counts bytes of another pool that are those that were sent, and that their key does not
    /// open, where they are kept.
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
            let attempts = vec![Attempt { address, device: None, badness, detail, is_away: false }];
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

    /// Blocks of file content as they were compressed, verified and opened: each from its first
    /// good copy, those that lie side by side in one transfer, on all cores. An error is what
    /// [`BlockIo::read`] gives of the same block. They are not looked for in the cache, and not
    /// kept.
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

    /// How many of these blocks, from the first one on, lie side by side, as far as one transfer
    /// goes.
    pub(crate) fn run_length(&self, pointers: &[BlockPointer]) -> usize {
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

    pub(crate) fn read_packed_run(
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
                // Read by itself, which says what is wrong with it, and from another copy if there
                // is one.
                None => self.first_good(pointer, context, |address| {
                    let stored = self.fetch_copy(address, pointer)?;
                    open(stored).map_err(|bad| self.not_opened(address, pointer, bad))
                }),
            };
            *result = Some(block.map(Block::new));
        }
    }

    /// Decompresses blocks, in order, on all cores; `None` for those that do not give their stated
    /// size.
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

    pub(crate) fn read_copy(
        &self,
        address: Address,
        pointer: &BlockPointer,
        context: &ReadContext<'_>,
    ) -> Result<Verified<Buffer>, Failure> {
        let stored = self.fetch_copy(address, pointer)?;
        self.offer_l2arc(pointer, context.dataset, &stored);
        self.open_stored(stored, address, pointer, context)
    }

    pub(crate) fn fetch_copy(
        &self,
        address: Address,
        pointer: &BlockPointer,
    ) -> Result<Verified<Buffer>, Failure> {
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
                is_away: !matches!(source, DeviceError::Missing { .. } | DeviceError::CutShort { .. }),
            }),
            ReadError::Rejected { device, verdict } => Failure::Copy(Attempt {
                address,
                device: Some(device),
                badness: Badness::Checksum,
                detail: verdict.to_string(),
                is_away: false,
            }),
            _ => Failure::Copy(Attempt {
                address,
                device: None,
                badness: Badness::Unreadable,
                detail: error.to_string(),
                is_away: true,
            }),
        })
    }

    /// Opens and decompresses. These are the bytes the parent vouches for: no device is to blame,
    /// though a seal that does not open is counted where it lies.
    pub(crate) fn open_stored(
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

    pub(crate) fn not_opened(
        &self,
        address: Address,
        pointer: &BlockPointer,
        (badness, detail): (Badness, &'static str),
    ) -> Failure {
        if badness == Badness::Authentication && pointer.is_sealed() {
            self.space.note_authentication(address);
        }
        let detail = detail.to_owned();
        Failure::Copy(Attempt { address, device: None, badness, detail, is_away: false })
    }

    /// The same for what was sealed as `identity`: what is wrong is told as it is.
    pub(crate) fn open_as(
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
    pub(crate) fn unseal(
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
}

/// Why one copy could not be used.
pub(crate) enum Failure {
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
