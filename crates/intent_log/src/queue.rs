//! Group commit: callers of one dataset share groups.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use steadfast_crypto::BlockKeys;
use steadfast_dataset::{Answer, Dataset, Durable, Inode, Journal};

use crate::Log;

/// Groups of one dataset that are under way at once: one is written while the one before is
/// flushed.
const LEADING_MAX: usize = 1;

/// The log as one dataset sees it.
pub struct DatasetLog {
    log: Arc<Log>,
    keys: Option<Arc<BlockKeys>>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Waiters for the next group.
    forming: Arc<Batch>,
    asked: Vec<Arc<Inode>>,
    /// Callbacks to be told of it; their callers do not wait.
    later: Vec<Answer>,
    /// How many write groups.
    leading: usize,
}

/// Callers that share a group.
#[derive(Default)]
struct Batch {
    outcome: OnceLock<Durable>,
    /// It has an outcome; or there is room for a leader, and one of its callers shall be it.
    news: Condvar,
}

/// Ends a lead, by a panic too: callers must not wait for a leader that is gone.
struct Lead<'a> {
    of: &'a DatasetLog,
    batch: Arc<Batch>,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let _ = self.batch.outcome.set(Durable::CommitInstead);
        let next = {
            let mut queue = self.of.queue.lock();
            queue.leading -= 1;
            Arc::clone(&queue.forming)
        };
        // The next leader first: the medium waits for it.
        next.news.notify_one();
        self.batch.news.notify_all();
    }
}

impl DatasetLog {
    /// The log for a dataset with these keys.
    #[must_use]
    pub fn new(log: Arc<Log>, keys: Option<Arc<BlockKeys>>) -> DatasetLog {
        DatasetLog { log, keys, queue: Mutex::default() }
    }

    fn ask(
        &self,
        dataset: &Dataset,
        inode: &Arc<Inode>,
        patience: Duration,
        go_on: &dyn Fn() -> bool,
    ) -> Durable {
        let mut queue = self.queue.lock();
        let batch = Arc::clone(&queue.forming);
        queue.asked.push(Arc::clone(inode));
        loop {
            if let Some(outcome) = batch.outcome.get() {
                return *outcome;
            }
            let forms = Arc::ptr_eq(&batch, &queue.forming);
            if queue.leading == LEADING_MAX || !forms {
                let timeout = batch.news.wait_for(&mut queue, patience);
                if timeout.timed_out() && batch.outcome.get().is_none() {
                    drop(queue);
                    if !go_on() {
                        return Durable::GaveUp;
                    }
                    queue = self.queue.lock();
                }
                continue;
            }
            // It is the one that forms: the writer that takes a batch gives it its outcome.
            let outcome = self.lead(dataset, queue);
            self.lead_for_later(dataset);
            return outcome;
        }
    }

    /// Writes a group for all who queue.
    fn lead(&self, dataset: &Dataset, mut queue: MutexGuard<'_, Queue>) -> Durable {
        queue.leading += 1;
        let lead = Lead { of: self, batch: std::mem::take(&mut queue.forming) };
        let asked = std::mem::take(&mut queue.asked);
        let later = std::mem::take(&mut queue.later);
        drop(queue);
        let outcome = self.log.make_durable(dataset, self.keys.as_deref(), &asked);
        let _ = lead.batch.outcome.set(outcome);
        drop(lead);
        for answer in later {
            self.log.count_answer(outcome);
            answer(outcome);
        }
        self.log.answered();
        outcome
    }

    /// Leads as long as there are callers who do not wait, and nobody else to do it.
    fn lead_for_later(&self, dataset: &Dataset) {
        loop {
            let queue = self.queue.lock();
            if queue.later.is_empty() || queue.leading == LEADING_MAX {
                return;
            }
            self.lead(dataset, queue);
        }
    }
}

impl Journal for DatasetLog {
    fn make_durable(
        &self,
        dataset: &Dataset,
        inode: &Arc<Inode>,
        patience: Duration,
        go_on: &dyn Fn() -> bool,
    ) -> Durable {
        let answer = self.ask(dataset, inode, patience, go_on);
        self.log.count_answer(answer);
        answer
    }
    fn log_pending(&self, dataset: &Dataset) -> Durable {
        let durable = self.log.log_pending(dataset, self.keys.as_deref());
        self.log.answered();
        durable
    }
    fn make_durable_later(&self, dataset: &Dataset, inode: &Arc<Inode>, answer: Answer) {
        {
            let mut queue = self.queue.lock();
            queue.asked.push(Arc::clone(inode));
            queue.later.push(answer);
        }
        self.lead_for_later(dataset);
    }
}
