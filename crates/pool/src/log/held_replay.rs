//! Held logs of a pool: loaded, replayed, given up.

use crate::core::error::Error;
use crate::core::error::Result;
use crate::log::state::Zil;
use std::sync::atomic::Ordering;
use steadfast_crypto::BlockKeys;
use steadfast_dataset::Dataset;
use steadfast_format::DatasetId;
use steadfast_format::HeldLog;
use steadfast_format::LogRecord;
use steadfast_format::LogStart;
use steadfast_format::MetaKey;
use steadfast_format::meta_keys;
use steadfast_intent_log::Damage;
use steadfast_intent_log::Group;
use steadfast_intent_log::Survey;
use steadfast_intent_log::Wanted;
use steadfast_intent_log::open_group;
use steadfast_intent_log::read_groups;

impl Zil {
    pub(crate) fn log_damaged(&self, damage: &Damage) -> Error {
        let safe = format!("All commits up to txg {} are safe", self.core.txgs.commits.committed());
        Error::LogDamaged { pool: self.core.name(), reason: damage.to_string(), safe }
    }

    /// Reads which logs are held, before any dataset is opened. `head` is what the uberblock says.
    pub(crate) fn load_held(&self, pool: &str, head: Option<LogStart>) -> Result<()> {
        let mut held = self.held.lock();
        held.head = head;
        for item in self.core.items_of(meta_keys::HELD_LOG) {
            let (MetaKey::HeldLog(id), value) = item? else { continue };
            let log = HeldLog::decode(&value);
            let log = log.map_err(|source| self.core.corrupt(pool, "a held intent log", source))?;
            if head.is_none_or(|head| head.epoch != log.epoch) {
                let reason = "the uberblock names another log than its held part is of".to_owned();
                let safe = "All commits are safe".to_owned();
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

    /// Gives up what is held of datasets whose groups are not all there any more. The notice for
    /// the history.
    pub(crate) fn give_up_held(&self, found: &Survey) -> Option<String> {
        let is_there = |log: &HeldLog| {
            found.groups.iter().any(|group| group.header.sequence + 1 == log.end && group.hash == log.hash)
        };
        let lost: Vec<DatasetId> = {
            let held = self.held.lock();
            held.logs.iter().filter(|(_, log)| !is_there(log)).map(|(id, _)| *id).collect()
        };
        lost.iter().for_each(|id| self.held.lock().release(*id));
        let names: Vec<String> = lost.iter().map(|id| self.core.dataset_name(*id)).collect();
        (!names.is_empty()).then(|| {
            let names = names.join(", ");
            format!("the operator gave up what the intent log held for {names} until its key is loaded")
        })
    }

    /// True if a dataset may be opened only after a replay.
    pub(crate) fn holds_log_of(&self, id: DatasetId) -> bool {
        !self.core.health.read_only && self.held.lock().logs.contains_key(&id)
    }

    /// Replays what is held of a dataset whose key came, into the open txg. Under `sync_turn`
    /// [held_log.3], and before anybody else can have the dataset [held_log.2].
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
        let groups =
            read_groups(&self.log_medium(), &Wanted { pool: self.core.identity.guid, head, unhashed: false })
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
        self.replayed.fetch_add(groups.len() as u64, Ordering::Relaxed);
        self.core.health.changed.note();
        Ok(())
    }
}
