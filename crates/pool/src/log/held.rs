//! # Held logs
//!
//! What the intent log promised to a dataset whose key is not loaded at import cannot be replayed there: its groups are sealed,
//! and so are its trees. The log itself keeps the promise: as long as there is such a dataset, every uberblock goes on naming
//! the groups of then, nothing is written to the log, and `fsync` commits. An item of the meta tree for each such dataset
//! tells later imports that all others are done.
//!
//! ## Invariants
//! (H1) While a log is held, uberblocks have its head, and the log's segments are not written.   `log_head`, `begin_log`
//! (H2) The trees of a dataset whose log is held are those of `HeldLog::base`: nobody can open them before its replay.
//!                                                                                              `Inner::open_head`
//! (H3) A held log's item goes in the txg in which its groups are replayed.             lock: `sync_turn`, held for both
//!
//! ## What a crash does
//! *Before the commit of the import that found the groups*: they are found again. *After it*: the item names them. *In the replay,
//! or before its commit*: as before it. *After that commit*: the item is gone, and with the last item the head moves on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use steadfast_crypto::BlockKeys;
use steadfast_dataset::Dataset;
use steadfast_format::{DatasetId, HeldLog, LogRecord, LogStart, MetaKey, meta_keys};
use steadfast_intent_log::{Damage, Group, Survey, Wanted, open_group, read_groups};

use crate::core::error::{Error, Result};
use crate::core::inner::Inner;

/// Logs of datasets whose keys were not there.
#[derive(Default)]
pub(crate) struct Held {
    /// Where their groups begin.
    head: Option<LogStart>,
    logs: BTreeMap<DatasetId, HeldLog>,
    /// Items to be written or removed by the next commit.
    dirty: BTreeSet<DatasetId>,
}

impl Held {
    /// Head of the log that is held, if one is.
    pub fn head(&self) -> Option<LogStart> {
        self.head.filter(|_| !self.logs.is_empty())
    }

    pub fn count(&self) -> usize {
        self.logs.len()
    }

    fn hold(&mut self, id: DatasetId, head: LogStart, log: HeldLog) {
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

impl Inner {
    pub(crate) fn log_damaged(&self, damage: &Damage) -> Error {
        let safe = format!("Safe are all commits up to txg {}", self.txgs.commits.committed());
        Error::LogDamaged { pool: self.name(), reason: damage.to_string(), safe }
    }

    /// Reads which logs are held, before any dataset is opened. `head` is what the uberblock says.
    pub(crate) fn load_held(&self, pool: &str, head: Option<LogStart>) -> Result<()> {
        let mut held = self.held.lock();
        held.head = head;
        for item in self.items_of(meta_keys::HELD_LOG) {
            let (MetaKey::HeldLog(id), value) = item? else { continue };
            let log = HeldLog::decode(&value);
            let log = log.map_err(|source| self.corrupt(pool, "a held intent log", source))?;
            if head.is_none_or(|head| head.epoch != log.epoch) {
                let reason = "the uberblock names another log than its held part is of".to_owned();
                let safe = "Safe are all commits".to_owned();
                return Err(Error::LogDamaged { pool: pool.to_owned(), reason, safe });
            }
            held.logs.insert(id, log);
        }
        Ok(())
    }

    /// Import found groups of a dataset whose key is not there.
    pub(crate) fn hold_log(&self, id: DatasetId, head: LogStart, log: HeldLog) {
        self.held.lock().hold(id, head, log);
    }

    /// Gives up what is held of datasets whose groups are not all there any more. The notice for the history.
    pub(crate) fn give_up_held(&self, found: &Survey) -> Option<String> {
        let is_there = |log: &HeldLog| {
            found.groups.iter().any(|group| group.header.sequence + 1 == log.end && group.hash == log.hash)
        };
        let lost: Vec<DatasetId> = {
            let held = self.held.lock();
            held.logs.iter().filter(|(_, log)| !is_there(log)).map(|(id, _)| *id).collect()
        };
        lost.iter().for_each(|id| self.held.lock().release(*id));
        let names: Vec<String> = lost.iter().map(|id| self.dataset_name(*id)).collect();
        (!names.is_empty()).then(|| {
            let names = names.join(", ");
            format!("the operator gave up what the intent log held for {names} until its key is loaded")
        })
    }

    /// True if a dataset may be opened only after a replay.
    pub(crate) fn holds_log_of(&self, id: DatasetId) -> bool {
        !self.read_only && self.held.lock().logs.contains_key(&id)
    }

    /// Replays what is held of a dataset whose key came, into the open txg. Under `sync_turn` (H3), and before anybody else
    /// can have the dataset (H2).
    pub(crate) fn replay_held(
        &self,
        id: DatasetId,
        dataset: &Dataset,
        keys: Option<&BlockKeys>,
    ) -> Result<()> {
        let (head, log) = {
            let held = self.held.lock();
            let Some((head, log)) = held.head.zip(held.logs.get(&id).copied()) else { return Ok(()) };
            (head, log)
        };
        let damaged = |damage: Damage| self.log_damaged(&damage);
        let groups = read_groups(&self.log_medium(), &Wanted { pool: self.guid, head, unhashed: false })
            .map_err(damaged)?;
        let last = log.end - 1;
        if !groups.iter().any(|group| group.header.sequence == last && group.hash == log.hash) {
            return Err(damaged(Damage::Lost { sequence: last }));
        }
        let own = |group: &&Group| group.header.dataset == id && group.header.sequence < log.end;
        let groups: Vec<&Group> = groups.iter().filter(own).collect();
        // All are opened first: they are replayed together or not at all.
        let bodies: Vec<Vec<u8>> = groups
            .iter()
            .map(|group| open_group(group, keys))
            .collect::<std::result::Result<_, _>>()
            .map_err(damaged)?;
        for (group, body) in groups.iter().zip(&bodies) {
            let records = LogRecord::decode_all(body, group.header.records).expect("decoded before");
            dataset.replay(&records, log.base)?;
        }
        self.held.lock().release(id);
        self.log_replayed.fetch_add(groups.len() as u64, Ordering::Relaxed);
        self.changed.store(true, Ordering::Release);
        Ok(())
    }
}
