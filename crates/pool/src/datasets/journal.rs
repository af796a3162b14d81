//! Which log a dataset has, as its properties `journal` and `sync` say.

use crate::datasets::state::Datasets;
use std::sync::Arc;
use steadfast_dataset::Dataset;
use steadfast_dataset::JournalMode;
use steadfast_dataset::SyncMode;
use steadfast_format::DatasetId;
use steadfast_intent_log::DatasetLog;

impl Datasets {
    /// Connects an open dataset with the log, as its properties say.
    pub(crate) fn connect_log(&self, id: DatasetId, head: &Dataset) {
        let sync = self.sync_mode(id);
        head.set_sync_mode(sync);
        // Nobody will ask: nothing needs to be tracked.
        let mode = if sync == SyncMode::Disabled { JournalMode::Off } else { self.journal_mode(id) };
        self.zil.interval.set(id, mode == JournalMode::Data && !self.core.health.read_only);
        let (locked, keys) = {
            let table = self.table.read();
            let entry = table.get(id);
            let keys = entry.and_then(|entry| Some(Arc::clone(&entry.keys.as_ref()?.blocks)));
            (entry.is_none_or(|entry| entry.is_encrypted() && keys.is_none()), keys)
        };
        if self.core.health.read_only
            || locked
            || mode == JournalMode::Off
            || !self.core.has_feature("intent_log")
        {
            head.set_journal(None, JournalMode::Off);
        } else if head.journal_mode() == JournalMode::Off {
            head.set_journal(Some(Arc::new(DatasetLog::new(Arc::clone(&self.zil.log), keys))), mode);
        } else {
            head.set_journal_mode(mode);
        }
    }

    /// Journal mode of a dataset: the content that its `fsync` writes.
    pub(crate) fn journal_mode(&self, id: DatasetId) -> JournalMode {
        let table = self.table.read();
        let value = table.resolve(id, "journal", "/").map(|resolved| resolved.value);
        match value.as_deref() {
            Some("off") => JournalMode::Off,
            Some("writeback") => JournalMode::Writeback,
            Some("data") => JournalMode::Data,
            _ => JournalMode::Ordered,
        }
    }

    /// Sync mode of a dataset: how durable a change is when its call returns.
    pub(crate) fn sync_mode(&self, id: DatasetId) -> SyncMode {
        let table = self.table.read();
        let value = table.resolve(id, "sync", "/").map(|resolved| resolved.value);
        match value.as_deref() {
            Some("always") => SyncMode::Always,
            Some("disabled") => SyncMode::Disabled,
            _ => SyncMode::Standard,
        }
    }
}
