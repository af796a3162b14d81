//! # The log's interval
//!
//! A dataset with `journal=data` promises without an `fsync`: a change is durable about a second
//! after its call returned. A task of the pool looks once an [`INTERVAL`], and logs pending
//! changes, names and content together. So after a crash the dataset is as it was at one moment.
//!
//! ## Invariants
//! [interval.1] A change made in such a dataset before a look is in the log when the look ends, or
//!      in a txg whose commit was asked for before it ended, or in one that is being committed.
//!      `Dataset::log_pending`; test: `log_interval`
//! [interval.2] A look waits for no commit: it is not late because the devices are busy with one.
//!      `Log::log_pending`
//! [interval.3] A dataset with the property and without a log (in a pool without the feature, on
//!      whole objects, or with a held log) gets a commit in place of a group.
//!
//! If there is more than a group takes, a commit is asked for too. So a program that writes tens of
//! mebibytes a second has a commit each second instead of one every five. A look at a dataset in
//! which nothing changed costs two loads.

use std::collections::BTreeSet;

use parking_lot::{Condvar, Mutex};
use steadfast_format::DatasetId;

/// Datasets with the property, and the bell of the task.
#[derive(Default)]
pub(crate) struct Interval {
    pub datasets: Mutex<BTreeSet<DatasetId>>,
    pub news: Condvar,
}

impl Interval {
    /// Whether a dataset wants looks from now on.
    pub fn set(&self, id: DatasetId, wanted: bool) {
        let mut datasets = self.datasets.lock();
        let changed = if wanted { datasets.insert(id) } else { datasets.remove(&id) };
        if changed {
            self.news.notify_all();
        }
    }

    /// The task looks whether to end.
    pub fn wake(&self) {
        let _datasets = self.datasets.lock();
        self.news.notify_all();
    }
}
