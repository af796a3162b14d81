//! Reading ahead: blocks that a reader will want soon are brought into the cache by threads of their own.
//!
//! A stored block is read, hashed, opened and decompressed in one go by one thread. A reader who asks for one block after
//! another therefore has one transfer under way, and the device or the processor always waits for the other. Blocks
//! named here are read by a few threads side by side; the reader finds them in the cache, or waits for the one that is
//! under way ([`crate::cache`]) instead of reading it a second time.
//!
//! ## Bounds
//! At most [`QUEUE_MAX`] blocks wait, the oldest of what is not urgent goes first when there are more. A stream that turns
//! out not to be sequential is cancelled: what waits of it is dropped. Nothing here may be needed for a result: a block
//! that was dropped or failed is read by whoever asks for it, who then also gets the error.
//!
//! ## Life
//! Threads start with the first block and hold nothing of the pool while they wait. [`Ahead::stop`] drops what waits and
//! returns when no thread reads any more: from then on the devices are not touched from here.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use steadfast_crypto::BlockKeys;
use steadfast_env::{Env, TaskHandle};
use steadfast_format::{BlockPointer, DatasetId};

use crate::io::BlockIo;

/// Blocks that wait, at most.
const QUEUE_MAX: usize = 256;
/// Threads: a device wants a few transfers under way even if there are few processors.
const THREADS_MIN: usize = 4;
const THREADS_MAX: usize = 8;

/// Blocks to be read ahead.
pub struct ReadAhead<'a> {
    /// Dataset.
    pub dataset: DatasetId,
    /// Opens what is sealed.
    pub keys: Option<Arc<BlockKeys>>,
    /// Who will want them: a number of the caller's, for [`BlockIo::cancel_read_ahead`].
    pub stream: u64,
    /// The blocks, in the order in which they will be wanted.
    pub pointers: &'a [BlockPointer],
    /// Somebody waits for them already: they go before all that is not.
    pub urgent: bool,
}

struct Job {
    blockio: Arc<BlockIo>,
    dataset: DatasetId,
    keys: Option<Arc<BlockKeys>>,
    stream: u64,
    pointer: BlockPointer,
    urgent: bool,
}

#[derive(Default)]
struct State {
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
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                job.blockio.read_for_later(&job.pointer, job.dataset, job.keys.as_deref());
                drop(job);
                state = self.lock();
            } else if state.stopping {
                return;
            } else {
                state = self.work.wait(state).expect("no holder of this lock panics");
            }
        }
    }
}

impl Ahead {
    /// Queues blocks. Does nothing in a world with one processor's worth of tasks, where order is to be repeatable.
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
        let urgent = wanted.urgent;
        let place = if urgent { state.queue.iter().take_while(|job| job.urgent).count() } else { 0 };
        for (offset, pointer) in wanted.pointers.iter().enumerate() {
            let (dataset, keys, stream) = (wanted.dataset, wanted.keys.clone(), wanted.stream);
            let job = Job { blockio: Arc::clone(blockio), dataset, keys, stream, pointer: *pointer, urgent };
            if urgent {
                state.queue.insert(place + offset, job);
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

    /// Drops what waits and is `unwanted`.
    fn cancel(&self, unwanted: impl Fn(&Job) -> bool) {
        let mut dropped = Vec::new();
        {
            let mut state = self.shared.lock();
            let (gone, kept) = std::mem::take(&mut state.queue).into_iter().partition(|job| unwanted(job));
            state.queue = kept;
            dropped.append(&mut Vec::from(gone));
        }
    }

    /// Drops what waits of a stream.
    pub fn cancel_stream(&self, dataset: DatasetId, stream: u64) {
        self.cancel(|job| !job.urgent && job.dataset == dataset && job.stream == stream);
    }

    /// Drops what waits of a dataset.
    pub fn cancel_dataset(&self, dataset: DatasetId) {
        self.cancel(|job| job.dataset == dataset);
    }

    /// Drops all that waits, for ever, and waits for what is under way. Not from a thread of its own.
    pub fn stop(&self) {
        let (queue, threads) = {
            let mut state = self.shared.lock();
            state.stopping = true;
            (std::mem::take(&mut state.queue), std::mem::take(&mut state.threads))
        };
        self.shared.work.notify_all();
        drop(queue);
        for thread in threads {
            thread.join();
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Perhaps on one of the threads, whose job held the pool's last part: they are told, and not waited for.
        self.shared.lock().stopping = true;
        self.shared.work.notify_all();
    }
}
