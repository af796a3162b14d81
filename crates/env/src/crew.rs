//! Threads that stay: helpers for jobs that own what they need.
//!
//! ## The problem
//! To start and end a thread takes some 50 µs of processor time here (stack, signal stack, the
//! kernel's and the allocator's parts of it). Rows of a RAID-Z go out in pieces of a mebibyte or
//! two, each to as many devices as there are columns, so a filling started 1,900 threads for each
//! gigabyte: a tenth of the daemon's processor time, with those of `run_all`.
//!
//! ## The idea
//! A *batch* is the jobs of one caller. Each helper that is called gets the batch and draws jobs of
//! it until there are none. The caller draws too, so that a batch ends even if no thread can be
//! started. Helpers that nobody calls for [`STAY`] leave.
//!
//! ## Invariants
//! [crew.1] A job, and all that it owns, is gone when the caller goes on.
//!      `Batch::draw`, test: `what_a_job_owns_is_gone_when_the_batch_has_ended`
//! [crew.2] No lock is held while a job runs.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Job;
use crate::insist::{self, Manner};
use crate::waiting::{self, Waited};

/// How long a helper waits for its next batch.
const STAY: Duration = Duration::from_secs(2);

/// The helpers of one world.
#[derive(Default)]
pub(crate) struct Crew {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Default)]
struct State {
    /// A batch as often as a helper is called to it.
    calls: VecDeque<Arc<Batch>>,
    /// Helpers that wait for a call.
    idle: usize,
    /// Helpers that were ever started.
    started: usize,
}

/// Jobs of one caller.
struct Batch {
    jobs: Mutex<VecDeque<Job<'static>>>,
    manner: Manner,
    left: Mutex<Left>,
    ended: Condvar,
}

/// Jobs that have not ended.
struct Left {
    jobs: usize,
    /// How long the helper waited for devices who did so longest.
    longest: Waited,
    /// The first panic of a job.
    panic: Option<Box<dyn Any + Send>>,
}

impl Crew {
    /// Runs all jobs at once, and returns when all have ended.
    pub fn run(&self, jobs: Vec<Job<'static>>) {
        let helpers = jobs.len().saturating_sub(1);
        let left = Left { jobs: jobs.len(), longest: Waited::default(), panic: None };
        let batch = Arc::new(Batch {
            jobs: Mutex::new(jobs.into()),
            manner: insist::manner(),
            left: Mutex::new(left),
            ended: Condvar::new(),
        });
        self.call(&batch, helpers);
        batch.draw(false);
        let drawn = Instant::now();
        let left = lock(&batch.left);
        let mut left =
            batch.ended.wait_while(left, |left| left.jobs > 0).unwrap_or_else(PoisonError::into_inner);
        let (longest, panic) = (left.longest, left.panic.take());
        drop(left);
        waiting::joined(drawn, longest);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Calls so many helpers to a batch, and starts those that are missing.
    fn call(&self, batch: &Arc<Batch>, helpers: usize) {
        let missing = {
            let mut state = lock(&self.shared.state);
            state.calls.extend((0..helpers).map(|_| Arc::clone(batch)));
            state.calls.len().saturating_sub(state.idle).min(helpers)
        };
        (0..helpers - missing).for_each(|_| self.shared.called.notify_one());
        for _ in 0..missing {
            let shared = Arc::clone(&self.shared);
            let started = std::thread::Builder::new().name("crew".to_owned()).spawn(move || shared.serve());
            // Where the system starts no more threads, those that there are do all.
            if started.is_err() {
                return;
            }
            lock(&self.shared.state).started += 1;
        }
    }

    /// Helpers that were ever started.
    #[cfg(test)]
    fn started(&self) -> usize {
        lock(&self.shared.state).started
    }
}

impl Shared {
    /// The life of a helper.
    fn serve(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(batch) = state.calls.pop_front() {
                drop(state);
                batch.draw(true);
                drop(batch);
                state = lock(&self.state);
                continue;
            }
            state.idle += 1;
            let waited = self.called.wait_timeout_while(state, STAY, |state| state.calls.is_empty());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.idle -= 1;
            if state.calls.is_empty() {
                return;
            }
        }
    }
}

impl Batch {
    /// Runs jobs until there are no more.
    fn draw(&self, is_helper: bool) {
        let (before, mine) = (waiting::waited(), insist::manner());
        insist::set(self.manner);
        loop {
            let job = lock(&self.jobs).pop_front();
            let Some(job) = job else { break };
            // All that the job owns goes with it [crew.1].
            let outcome = catch_unwind(AssertUnwindSafe(job));
            let mut left = lock(&self.left);
            if is_helper {
                left.longest = left.longest.longer(waiting::waited().since(before));
            }
            if let Err(panic) = outcome {
                left.panic.get_or_insert(panic);
            }
            left.jobs -= 1;
            if left.jobs == 0 {
                self.ended.notify_all();
            }
        }
        insist::set(mine);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn batch_of(count: usize, crew: &Crew) {
        let barrier = Arc::new(Barrier::new(count));
        let job = || -> Job<'static> {
            let barrier = Arc::clone(&barrier);
            Box::new(move || _ = barrier.wait())
        };
        crew.run((0..count).map(|_| job()).collect());
    }

    #[test]
    fn jobs_run_all_at_once_and_the_next_ones_on_the_same_threads() {
        let crew = Crew::default();
        // A barrier lets nobody through before all are there.
        (0..100).for_each(|_| batch_of(4, &crew));
        // A helper that has just ended its part may not be idle yet when the next ones are called.
        assert!(crew.started() < 30, "{} threads for 100 batches of 4", crew.started());
    }

    #[test]
    fn what_a_job_owns_is_gone_when_the_batch_has_ended() {
        let crew = Crew::default();
        for _ in 0..1_000 {
            let owned = Arc::new(AtomicUsize::new(0));
            let job = || -> Job<'static> {
                let owned = Arc::clone(&owned);
                Box::new(move || _ = owned.fetch_add(1, Ordering::Relaxed))
            };
            crew.run((0..3).map(|_| job()).collect());
            assert_eq!(Arc::try_unwrap(owned).map(AtomicUsize::into_inner).ok(), Some(3));
        }
    }

    #[test]
    fn a_panic_is_passed_on_when_all_jobs_have_ended() {
        let crew = Crew::default();
        let done = Arc::new(AtomicUsize::new(0));
        let job = |number: usize| -> Job<'static> {
            let done = Arc::clone(&done);
            Box::new(move || {
                done.fetch_add(1, Ordering::Relaxed);
                assert_ne!(number, 1, "as asked");
            })
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| crew.run((0..4).map(job).collect())));
        assert!(outcome.is_err());
        assert_eq!(done.load(Ordering::Relaxed), 4);
        batch_of(4, &crew);
    }

    #[test]
    fn callers_do_not_wait_for_one_another() {
        let crew = Crew::default();
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    barrier.wait();
                    (0..50).for_each(|_| batch_of(3, &crew));
                });
            }
        });
    }
}
