//! Group commit: callers of one dataset share groups.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use steadfast_crypto::BlockKeys;
use steadfast_dataset::{Dataset, Durable, Inode, Journal};

use crate::Log;

/// The log as one dataset sees it.
pub struct DatasetLog {
    log: Arc<Log>,
    keys: Option<Arc<BlockKeys>>,
    queue: Mutex<Queue>,
    done: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Who waits for the next group.
    forming: Arc<Batch>,
    asked: Vec<Arc<Inode>>,
    /// Somebody writes a group.
    leading: bool,
}

/// Callers that share a group.
#[derive(Default)]
struct Batch {
    outcome: OnceLock<Durable>,
}

/// Ends a lead, by a panic too: callers must not wait for a leader that is gone.
struct Lead<'a> {
    of: &'a DatasetLog,
    batch: Arc<Batch>,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let _ = self.batch.outcome.set(Durable::CommitInstead);
        self.of.queue.lock().leading = false;
        self.of.done.notify_all();
    }
}

impl DatasetLog {
    /// The log for a dataset with these keys.
    #[must_use]
    pub fn new(log: Arc<Log>, keys: Option<Arc<BlockKeys>>) -> DatasetLog {
        DatasetLog { log, keys, queue: Mutex::default(), done: Condvar::new() }
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
            if queue.leading {
                let timeout = self.done.wait_for(&mut queue, patience);
                if timeout.timed_out() && batch.outcome.get().is_none() {
                    drop(queue);
                    if !go_on() {
                        return Durable::GaveUp;
                    }
                    queue = self.queue.lock();
                }
                continue;
            }
            // Nobody leads, so nobody took this batch: it is the one that forms.
            queue.leading = true;
            queue.forming = Arc::default();
            let asked = std::mem::take(&mut queue.asked);
            drop(queue);
            let lead = Lead { of: self, batch: Arc::clone(&batch) };
            let outcome = self.log.make_durable(dataset, self.keys.as_deref(), &asked);
            let _ = batch.outcome.set(outcome);
            drop(lead);
            return outcome;
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
}
