//! History of the pool: each change, its time and its user. Kept in the meta tree.

use crate::core::state::Core;
use steadfast_format::{HistoryEntry, Txg};

/// History entries that the next commit stores.
#[derive(Debug)]
pub(crate) struct History {
    pub next: u64,
    pub pending: Vec<HistoryEntry>,
    /// Those that the last commit stores: not in what is read of the meta tree until it is over.
    pub storing: Vec<HistoryEntry>,
}

/// Entries kept; older ones are removed as new ones come.
pub(crate) const KEPT: u64 = 10_000;

impl History {
    /// Entries that cannot be read from the meta tree yet, oldest first.
    pub fn recent(&self) -> Vec<HistoryEntry> {
        self.storing.iter().chain(&self.pending).cloned().collect()
    }

    pub fn add(&mut self, time_ns: u64, txg: Txg, uid: u32, internal: bool, host: &str, text: &str) {
        self.pending.push(HistoryEntry {
            time_ns,
            txg,
            uid,
            internal,
            host: host.to_owned(),
            text: text.to_owned(),
        });
    }
}

impl Core {
    /// Adds what the pool did to the internal history (`zpool history -i`); stored with the next
    /// commit.
    pub(crate) fn note_done(&self, text: &str) {
        let txg = self.txgs.gate.open_txg();
        self.history.lock().add(self.now_ns(), txg, 0, true, &self.identity.host, text);
    }

    pub(crate) fn note_in_history(&self, notice: &str) {
        if !self.health.read_only {
            let txg: Txg = self.txgs.gate.open_txg();
            self.history.lock().add(self.now_ns(), txg, 0, true, &self.identity.host, notice);
        }
    }
}
