//! File systems of a read-only pool as snapshots: nothing of it changes, so its head is one
//! already, as far as streams are concerned. Such a snapshot is in memory alone.

use std::sync::atomic::Ordering;

use steadfast_format::Txg;

use crate::core::error::{Error, Result};
use crate::datasets::snapshot::Snapshot;
use crate::datasets::state::Datasets;

impl Datasets {
    /// Shows a dataset as it is as the snapshot of this full name, until [`Datasets::hide_head`].
    /// Of a pool that is read-only: no commit ever stores it.
    ///
    /// # Errors
    /// There is no such dataset, or the name is taken.
    ///
    /// # Panics
    /// If the pool takes changes.
    pub fn show_head(&self, full: &str) -> Result<()> {
        assert!(self.core.health.read_only, "the head of a pool that takes changes is no snapshot");
        let absent = || Error::NoSuchSnapshot { name: full.to_owned() };
        let (name, last) = full.split_once('@').ok_or_else(absent)?;
        let mut table = self.table.write();
        let id = table.find(name)?;
        let number = table.take_id();
        let entry = table.get_mut(id).ok_or_else(absent)?;
        if entry.snapshot(last).is_some() {
            return Err(Error::SnapshotExists { name: full.to_owned() });
        }
        // Behind everything that is stored, and behind others like it.
        let newest = entry.snapshots.keys().next_back().copied().unwrap_or(Txg(0));
        let txg = newest.max(Txg(self.snapped.load(Ordering::Acquire))).next();
        let new = (self.core.env.random.nonzero_u64(), self.core.now_ns());
        let row = entry.as_snapshot(number, last.to_owned(), new);
        entry.snapshots.insert(txg, Snapshot::new(row, Default::default()));
        table.note_snapshots(id);
        Ok(())
    }

    /// Shows it no more.
    pub fn hide_head(&self, full: &str) {
        assert!(self.core.health.read_only, "snapshots of a pool that takes changes are destroyed");
        let mut table = self.table.write();
        let Ok((id, txg)) = table.find_snapshot(full) else { return };
        if let Some(entry) = table.get_mut(id) {
            entry.snapshots.remove(&txg);
        }
        table.note_snapshots(id);
    }
}
