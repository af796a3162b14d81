//! # Held logs
//!
//! If a dataset's key is not loaded at import, its part of the intent log (ZIL) cannot be replayed:
//! the groups and the trees are sealed. The log itself keeps the promise: as long as there is such
//! a dataset, every uberblock goes on naming the groups of then, nothing is written to the log, and
//! `fsync` commits. An item of the meta tree for each such dataset tells later imports that all
//! others are done.
//!
//! ## Invariants
//! [held_log.1] While a log is held, uberblocks have its head, and the log's segments are not
//!      written.
//!      `log_head`, `begin_log`
//! [held_log.2] The trees of a dataset whose log is held are those of `HeldLog::base`: nobody can
//!      open them before its replay.
//!      `open_head`
//! [held_log.3] A held log's item goes in the txg in which its groups are replayed.
//!      lock: `sync_turn`, held for both
//!
//! ## What a crash does
//! *Before the commit of the import that found the groups*: they are found again. *After it*: the
//! item names them. *In the replay, or before its commit*: as before it. *After that commit*: the
//! item is gone, and with the last item the head moves on.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::{DatasetId, HeldLog, LogStart, MetaKey};

/// Logs of datasets whose keys were not there.
#[derive(Default)]
pub(crate) struct Held {
    /// Where their groups begin.
    pub head: Option<LogStart>,
    pub logs: BTreeMap<DatasetId, HeldLog>,
    /// Items to be written or removed by the next commit.
    pub dirty: BTreeSet<DatasetId>,
}

impl Held {
    /// Head of the log that is held, if one is.
    pub fn head(&self) -> Option<LogStart> {
        self.head.filter(|_| !self.logs.is_empty())
    }

    pub fn count(&self) -> usize {
        self.logs.len()
    }

    pub fn hold(&mut self, id: DatasetId, head: LogStart, log: HeldLog) {
        self.head = Some(head);
        self.logs.insert(id, log);
        self.dirty.insert(id);
    }

    /// A dataset's log is replayed, or the dataset is gone.
    pub fn release(&mut self, id: DatasetId) {
        if self.logs.remove(&id).is_some() {
            self.dirty.insert(id);
        }
    }

    /// Items of the meta tree that changed.
    pub fn take_items(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let item = |id: DatasetId| {
            let value = self.logs.get(&id).map(|log| log.encode().to_vec());
            (MetaKey::HeldLog(id).encode(), value)
        };
        std::mem::take(&mut self.dirty).into_iter().map(item).collect()
    }
}
