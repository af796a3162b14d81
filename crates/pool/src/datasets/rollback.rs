//! Takes a dataset back to a snapshot (`zfs rollback`).
//!
//! The dataset gets the snapshot's roots. Blocks written since are not freed here: they go into the
//! cell of blocks born after that snapshot and let go now. Nobody holds that cell, so it is freed
//! like the blocks of a destroyed snapshot. Blocks let go since live again: those cells are
//! dropped. Row and cells change in one commit, so a crash leaves all of it or nothing. The cost is
//! the nodes that changed since the snapshot, not the file system.

use crate::datasets::state::Datasets;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use steadfast_format::{Cell, CellId, CellPlace, DatasetId, Txg};

use crate::core::error::{Error, Result};
use crate::datasets::newer;
use crate::datasets::quotas::Limits;
use crate::datasets::table::{Entry, Table};
use steadfast_refs::deadlist::{Sum, places_of};

/// Keeps room for a dataset.
const RESERVED: &str = "refreservation";

impl Datasets {
    /// Makes a dataset that nobody uses what it was at its youngest snapshot. Durable when it
    /// returns.
    pub fn rollback(&self, name: &str) -> Result<()> {
        self.core.check_writable()?;
        let (id, txg) = self.table.read().find_snapshot(name)?;
        self.open_head(id)?;
        self.check_rollback(name, id, txg)?;
        let reserved = self.reserved_at(name, id)?;
        loop {
            // All that was written is in the row's trees from here on.
            self.core.commit_changes()?;
            let _turn = self.core.sync_turn.lock();
            self.check_rollback(name, id, txg)?;
            if self.roll((name, id, txg), reserved)? {
                break;
            }
        }
        self.open_head(id)?;
        self.update_quotas(None);
        self.core.commit_changes()
    }

    /// The new refreservation of a volume whose size goes back: its smaller size, if all of it is
    /// reserved now.
    fn reserved_at(&self, name: &str, id: DatasetId) -> Result<Option<u64>> {
        let Some(then) = self.snapshot_volume(name)?.and_then(|volume| volume.bytes) else { return Ok(None) };
        let now = self.volume_info(id).bytes;
        let table = self.table.read();
        let kept = table.get(id).and_then(|entry| entry.props.get(RESERVED)?.parse::<u64>().ok());
        Ok(Some(then).filter(|then| kept.is_some() && kept == now && kept > Some(*then)))
    }

    /// Refuses to go back to a snapshot, if that could not be even if there were no younger ones.
    /// `mounted`: its user lets go of it before the rollback.
    pub fn try_rollback(&self, name: &str, mounted: bool) -> Result<()> {
        self.core.check_writable()?;
        let (id, txg) = self.table.read().find_snapshot(name)?;
        self.open_head(id)?;
        let _turn = self.core.sync_turn.lock();
        let table = self.table.read();
        let missing = || Error::NoSuchSnapshot { name: name.to_owned() };
        let entry = table.get(id).filter(|entry| !entry.row.destroying).ok_or_else(missing)?;
        if entry.is_in_use() && !mounted {
            return Err(Error::Busy { name: table.full_name(id) });
        }
        check_quota(&table, entry, txg)?;
        self.newer_places(entry, &table.key_name(id), txg).map(drop)
    }

    fn check_rollback(&self, name: &str, id: DatasetId, txg: Txg) -> Result<()> {
        let table = self.table.read();
        let missing = || Error::NoSuchSnapshot { name: name.to_owned() };
        let entry = table.get(id).filter(|entry| !entry.row.destroying).ok_or_else(missing)?;
        if !entry.snapshots.contains_key(&txg) {
            return Err(missing());
        }
        let dataset = table.full_name(id);
        let younger: Vec<String> =
            entry.snapshots.range(txg.next()..).map(|(_, s)| format!("{dataset}@{}", s.row.name)).collect();
        if !younger.is_empty() {
            return Err(Error::YoungerSnapshots { name: name.to_owned(), snapshots: younger });
        }
        if entry.is_in_use() {
            return Err(Error::Busy { name: dataset });
        }
        check_quota(&table, entry, txg)
    }

    /// The change itself, under `sync_turn`: no commit sees a part of it. False if something was
    /// written since the last one.
    fn roll(&self, (name, id, txg): (&str, DatasetId, Txg), reserved: Option<u64>) -> Result<bool> {
        let _figures = self.figures.write();
        let mut table = self.table.write();
        if let Some(entry) = table.get(id) {
            if entry.is_in_use() {
                return Err(Error::Busy { name: table.full_name(id) });
            }
            if entry.has_unstored() {
                return Ok(false);
            }
        }
        self.roll_within(&mut table, name, id, txg)?;
        if let Some((bytes, entry)) = reserved.zip(table.get_mut(id)) {
            entry.received.set(&mut entry.props, RESERVED, &bytes.to_string());
            entry.props_dirty.insert(RESERVED.to_owned());
            let dataset = name.split('@').next().unwrap_or_default();
            self.core.note_done(&format!("set {dataset} ({id}) {RESERVED}={bytes}"));
        }
        Ok(true)
    }

    /// The same, under `figures` besides.
    pub(crate) fn roll_within(&self, table: &mut Table, name: &str, id: DatasetId, txg: Txg) -> Result<()> {
        let missing = || Error::NoSuchSnapshot { name: name.to_owned() };
        let key = table.key_name(id);
        let entry = table.get_mut(id).ok_or_else(missing)?;
        let snapped = Txg(self.snapped.load(Ordering::Acquire));

        // Everything that can fail comes before the first change.
        let newer_places = self.newer_places(entry, &key, txg)?;
        let mut alive: BTreeMap<CellId, Cell> = BTreeMap::new();
        self.visit_cells(id, txg..Txg(u64::MAX), Txg(0)..txg, |cell, sum| {
            alive.insert(cell, sum);
            true
        })?;

        let renewed = self.renew(entry, (id, txg, snapped), &newer_places, alive);
        if let Err(error) = &renewed {
            // A part of it is in the tree that the next commit would store.
            self.core.suspend(error);
        }
        renewed
    }

    /// Blocks of a dataset's trees that are younger than a snapshot. `key`: whose key opens it.
    pub(crate) fn newer_places(&self, entry: &Entry, key: &str, txg: Txg) -> Result<Vec<CellPlace>> {
        let open = entry.open.as_ref().ok_or_else(|| Error::KeyNotLoaded { name: key.to_owned() })?;
        let mut places = Vec::new();
        for root in [entry.row.names, entry.row.extents] {
            newer::visit(&open.blocks, root, txg, |pointer| places.extend(places_of(pointer)))?;
        }
        Ok(places)
    }

    /// The snapshot's trees in place of the head's, and cells as that leaves them.
    fn renew(
        &self,
        entry: &mut Entry,
        (id, txg, snapped): (DatasetId, Txg, Txg),
        newer_places: &[CellPlace],
        alive: BTreeMap<CellId, Cell>,
    ) -> Result<()> {
        // Nobody uses it; the next open finds the snapshot's trees.
        entry.open = None;
        let snapshot = &entry.snapshots[&txg].row;
        let row = &mut entry.row;
        row.names = snapshot.names;
        row.extents = snapshot.extents;
        (row.used, row.data, row.logical) = (snapshot.used, snapshot.data, snapshot.logical);
        // Numbers of inodes are never given out twice.
        (row.files, row.next_inode) = (snapshot.files, row.next_inode.max(snapshot.next_inode));
        let (mut back, mut shared) = (Sum::default(), Sum::default());
        for (cell, sum) in alive {
            // Blocks of the origin were never kept here: they are shared again.
            if entry.deadlist.is_shadow(cell) { &mut shared } else { &mut back }.add(&sum);
            self.remove_cell(id, cell)?;
        }
        row.lineage.kept = row.lineage.kept.saturating_sub(back.bytes);
        row.lineage.kept_logical = row.lineage.kept_logical.saturating_sub(back.logical);
        row.lineage.shared = row.lineage.shared.saturating_add(shared.bytes);
        row.lineage.shared_logical = row.lineage.shared_logical.saturating_add(shared.logical);
        entry.row_dirty = true;
        if !newer_places.is_empty() {
            let cell = CellId { left: snapped, born: txg };
            self.put(id, cell, newer_places, self.sum_of(newer_places))?;
            entry.add_dead(txg, snapped.next());
        }
        Ok(())
    }
}

/// Refuses a snapshot that is larger than the refquota of its dataset.
fn check_quota(table: &Table, entry: &Entry, txg: Txg) -> Result<()> {
    let quota = Limits::of(&entry.props).refquota;
    let bytes = entry.snapshots.get(&txg).map_or(0, |snapshot| snapshot.row.used);
    match quota > 0 && bytes > quota {
        true => Err(Error::RollbackOverQuota { name: table.full_name(entry.row.id), quota, bytes }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_was_written_since_the_commit_before_is_stored_before_it_is_let_go() {
        let pool = crate::test_pool::tank();
        pool.datasets().create_dataset("tank/fs", Default::default(), None).expect("made");
        let name = "tank/fs@a";
        pool.datasets().take_snapshots(&[name.to_owned()], &Default::default()).expect("taken");
        let (id, txg) = pool.datasets.table.read().find_snapshot(name).expect("found");
        // Somebody used it between the commit of the rollback and its turn.
        let head = pool.datasets.open_head(id).expect("open");
        let root = head.inode(steadfast_format::InodeId(1)).expect("a root");
        let turn = pool.core.sync_turn.lock();
        let op = head.begin(steadfast_txg::AdmitKind::Write).expect("begun");
        head.change(&op, &root, |record| record.mode ^= 0o22);
        drop(op);
        drop((root, head));
        assert!(!pool.datasets.roll((name, id, txg), None).expect("looked at"));
        drop(turn);
        pool.datasets().rollback(name).expect("rolled back");
        let _turn = pool.core.sync_turn.lock();
        assert!(pool.datasets.roll((name, id, txg), None).expect("nothing is in the way"));
    }
}
