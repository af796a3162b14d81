//! Read-ahead (ZFS: prefetch, `dmu_zfetch`): background threads bring blocks into the cache that a
//! reader will want soon.
//!
//! A stored block is read, hashed, opened and decompressed in one go by one thread. A reader who
//! asks for one block after another therefore has one transfer under way, and the device or the
//! processor always waits for the other. Blocks named here are read by a few threads side by side;
//! the reader finds them in the cache, or waits for the one that is under way ([`crate::cache`])
//! instead of reading it a second time.
//!
//! ## Runs
//! Blocks of one file are appended one after the other, the parts of an overlaid record to where
//! the overlays of their txg are. So what waits in the queue lies side by side in a few places. A
//! reader that takes the first block of the queue also takes the blocks that follow it on the
//! device, wherever they wait, and reads all of them in one transfer. Gaps of at most 16 KiB, of
//! blocks that were folded or freed, are read too. The transfer leaves every thread its part of the
//! queue, so that several threads read and verify a short queue side by side.
//!
//! ## Bounds
//! At most [`QUEUE_MAX`] blocks wait that nobody waits for; the latest are dropped when there are
//! more. A stream that turns out not to be sequential is cancelled: what waits of it is dropped.
//! Nothing here may be needed for a result: the reader of a block that was dropped or failed reads
//! it itself, and gets the error.
//!
//! ## Life
//! Threads start with the first block and hold nothing of the pool while they wait. [`Ahead::stop`]
//! drops what waits and returns when no thread reads any more: from then on the devices are not
//! touched from here.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use steadfast_crypto::BlockKeys;
use steadfast_env::{Env, TaskHandle};
use steadfast_format::{BlockPointer, DatasetId};

use crate::io::BlockIo;
use crate::read::ReadContext;
use steadfast_segment::READ_GAP_MAX;

/// Blocks that wait and nobody waits for, at most: those of a few windows, also where records are
/// in ten pieces.
const QUEUE_MAX: usize = 4096;
/// How far behind the last block of a run the next one may wait: the next record's pieces, or those
/// of the one after it.
const LOOK_MAX: usize = 64;
/// Threads: a device wants a few transfers under way even if there are few processors.
const THREADS_MIN: usize = 4;
const THREADS_MAX: usize = 8;

/// Bytes of a run, at most, and how many of them a thread may take however short the queue is.
const RUN_BYTES_MAX: u64 = 1 << 20;
const RUN_BYTES_MIN: u64 = 128 << 10;

/// Blocks to be read ahead.
pub struct ReadAhead<'a> {
    /// Dataset.
    pub dataset: DatasetId,
    /// Under whose number its blocks are sealed and kept.
    pub family: DatasetId,
    /// Opens what is sealed.
    pub keys: Option<Arc<BlockKeys>>,
    /// The reader: a number of the caller's, for [`BlockIo::cancel_read_ahead`].
    pub stream: u64,
    /// The blocks, in the order in which they will be wanted.
    pub pointers: &'a [BlockPointer],
    /// Somebody waits for them already: they go before all that is not.
    pub urgent: bool,
}

struct Job {
    blockio: Arc<BlockIo>,
    dataset: DatasetId,
    family: DatasetId,
    keys: Option<Arc<BlockKeys>>,
    stream: u64,
    pointer: BlockPointer,
}

#[derive(Default)]
struct State {
    /// Blocks that a reader waits for, and blocks that none waits for yet.
    urgent: VecDeque<Job>,
    queue: VecDeque<Job>,
    threads: Vec<Box<dyn TaskHandle>>,
    stopping: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

/// The queue and the threads of one pool.
#[derive(Default)]
pub(crate) struct Ahead {
    shared: Arc<Shared>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(run) = state.take_run() {
                drop(state);
                let (first, pointers): (_, Vec<_>) = (&run[0], run.iter().map(|job| job.pointer).collect());
                let (dataset, family) = (first.dataset, first.family);
                let context = ReadContext { dataset, family, keys: first.keys.as_deref(), cache: true };
                match &pointers[..] {
                    [pointer] => first.blockio.read_for_later(pointer, &context),
                    pointers => first.blockio.read_run_for_later(pointers, &context),
                }
                drop(run);
                state = self.lock();
            } else if state.stopping {
                return;
            } else {
                state = self.work.wait(state).expect("no holder of this lock panics");
            }
        }
    }
}

impl State {
    /// Takes the first block that waits, and those that follow it on the device.
    fn take_run(&mut self) -> Option<Vec<Job>> {
        let threads = self.threads.len().max(1) as u64;
        let queue = if self.urgent.is_empty() { &mut self.queue } else { &mut self.urgent };
        let mut waiting = 0;
        for job in queue.iter() {
            waiting += u64::from(job.pointer.psize);
            if waiting >= threads * RUN_BYTES_MAX {
                break;
            }
        }
        let most = (waiting / threads).clamp(RUN_BYTES_MIN, RUN_BYTES_MAX);
        let first = queue.pop_front()?;
        let (unit, dataset) = (first.blockio.unit(), first.dataset);
        let mut bytes = u64::from(first.pointer.psize);
        let mut run = vec![first];
        let mut from = 0;
        while bytes < most {
            let last = &run[run.len() - 1].pointer;
            let mut next = last.copies[0];
            next.offset += last.asize(unit);
            let gap = |job: &Job| {
                let place = job.pointer.copies[0];
                let gap = place.offset.checked_sub(next.offset).filter(|&gap| gap <= READ_GAP_MAX);
                gap.filter(|_| place.segment == next.segment && job.dataset == dataset)
            };
            // The nearest; what lies at once behind the last one cannot be beaten.
            let mut nearest: Option<(u32, usize)> = None;
            for (place, job) in queue.iter().enumerate().skip(from).take(LOOK_MAX) {
                if let Some(gap) = gap(job)
                    && nearest.is_none_or(|(least, _)| gap < least)
                {
                    nearest = Some((gap, place));
                    if gap == 0 {
                        break;
                    }
                }
            }
            let Some((gap, place)) = nearest else { break };
            from = place;
            let job = queue.remove(from).expect("just found");
            bytes += u64::from(gap) + u64::from(job.pointer.psize);
            run.push(job);
        }
        Some(run)
    }

    /// Takes out what waits and is `unwanted`.
    fn take(&mut self, unwanted: impl Fn(&Job) -> bool) -> Vec<Job> {
        let mut taken = Vec::new();
        for queue in [&mut self.urgent, &mut self.queue] {
            let (gone, kept): (VecDeque<_>, _) =
                std::mem::take(queue).into_iter().partition(|job| unwanted(job));
            *queue = kept;
            taken.extend(gone);
        }
        taken
    }
}

impl Ahead {
    /// Queues blocks. Does nothing in a world with one processor's worth of tasks, where order is
    /// to be repeatable.
    pub fn push(&self, env: &Env, blockio: &Arc<BlockIo>, wanted: &ReadAhead<'_>) {
        let parallelism = env.tasks.parallelism();
        if parallelism <= 1 {
            return;
        }
        let mut dropped = Vec::new();
        let mut state = self.shared.lock();
        if state.stopping {
            return;
        }
        if state.threads.is_empty() {
            for number in 0..parallelism.clamp(THREADS_MIN, THREADS_MAX) {
                let shared = Arc::clone(&self.shared);
                let thread = env.tasks.spawn(&format!("read {number}"), Box::new(move || shared.serve()));
                state.threads.push(thread);
            }
        }
        for pointer in wanted.pointers {
            let (dataset, family) = (wanted.dataset, wanted.family);
            let (keys, stream) = (wanted.keys.clone(), wanted.stream);
            let job = Job { blockio: Arc::clone(blockio), dataset, family, keys, stream, pointer: *pointer };
            if wanted.urgent {
                state.urgent.push_back(job);
            } else {
                state.queue.push_back(job);
            }
        }
        while state.queue.len() > QUEUE_MAX {
            dropped.extend(state.queue.pop_back());
        }
        drop(state);
        self.shared.work.notify_all();
        // A job holds the pool's parts: it goes without the lock.
        drop(dropped);
    }

    /// Drops what waits of a stream and nobody waits for.
    pub fn cancel_stream(&self, dataset: DatasetId, stream: u64) {
        let unwanted = {
            let mut state = self.shared.lock();
            let urgent = std::mem::take(&mut state.urgent);
            let unwanted = state.take(|job| job.dataset == dataset && job.stream == stream);
            state.urgent = urgent;
            unwanted
        };
        drop(unwanted);
    }

    /// Drops what waits of a dataset.
    pub fn cancel_dataset(&self, dataset: DatasetId) {
        let unwanted = self.shared.lock().take(|job| job.dataset == dataset);
        drop(unwanted);
    }

    /// Drops all that waits, for ever, and waits for what is under way. Not from a thread of its
    /// own.
    pub fn stop(&self) {
        let (unwanted, threads) = {
            let mut state = self.shared.lock();
            state.stopping = true;
            (state.take(|_| true), std::mem::take(&mut state.threads))
        };
        self.shared.work.notify_all();
        drop(unwanted);
        for thread in threads {
            thread.join();
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Perhaps on one of the threads, whose job held the pool's last part: they are told, and
        // not waited for.
        self.shared.lock().stopping = true;
        self.shared.work.notify_all();
    }
}
