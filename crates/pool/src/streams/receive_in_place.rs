//! Receiving: a whole snapshot takes the place of what a dataset has, and the dataset stays
//! (`docs/decisions/0211-a-stream-in-place.md`).
//!
//! The root of a pool cannot go, and a dataset with others below it would take them along. So the
//! hidden dataset lies below the one that it is for. With the last commit that one takes over its
//! trees, and what it had before is freed like the blocks of a destroyed snapshot.
//!
//! ## Invariants
//! [in_place.1] Nothing of the dataset changes before the commit that takes the snapshot.
//!      `take_place`; test: `a_whole_snapshot_takes_the_place_of_the_root_at_any_cut`
//! [in_place.2] It has no snapshot, and is no clone. So nobody else refers to its blocks, and all
//!      its cells may go.
//!      `check_place_of`

use std::sync::atomic::Ordering;
use steadfast_format::stream::StreamBegin;
use steadfast_format::{CellId, DatasetId, InodeId, ReceiveRow, Txg};
use steadfast_property::Local;

use crate::core::error::{Error, Result};
use crate::datasets::notes::Notes;
use crate::datasets::quotas::Expected;
use crate::datasets::received::Brought;
use crate::datasets::received_props::ReceivedProps;
use crate::datasets::receiving::Receiving;
use crate::datasets::table::{Entry, ROOT, Table};
use crate::streams::receive::ReceiveSpec;
use crate::streams::state::Streams;

impl Streams {
    /// True if a whole snapshot cannot come instead of this dataset: it is the root of the pool, or
    /// others lie below it.
    pub(crate) fn must_stay(&self, id: DatasetId) -> bool {
        id == ROOT || !self.datasets.table.read().children(id).is_empty()
    }

    /// Makes a hidden dataset for what takes the place of a dataset's content.
    pub(crate) fn begin_in_place(
        &self,
        spec: &ReceiveSpec,
        target: DatasetId,
        (name, snapshot): (&str, &str),
        (begin, brought): (&StreamBegin, &Brought),
    ) -> Result<DatasetId> {
        {
            let table = self.datasets.table.read();
            let missing = || Error::NoSuchDataset { name: name.to_owned() };
            let entry = table.get(target).ok_or_else(missing)?;
            check_place_of(&table, entry, spec.key.is_some(), begin)?;
            self.datasets.check_snapshot_limits(&table, &[(target, 1)], &[])?;
        }
        self.datasets.check_brought(target, brought)?;
        // Content is stored as the properties that come along have it.
        let (mut props, mut received) = (Local::new(), ReceivedProps::default());
        brought.apply(&mut props, &mut received);
        let row = ReceiveRow {
            target: DatasetId(0),
            base: None,
            guid: begin.guid,
            position: (InodeId(0), 0),
            kept: spec.keep,
            clone: false,
            packed: self.is_kept_packed(begin),
            name: format!("@{snapshot}"),
        };
        let (own, receiving) = ((props, received, None), Receiving::new(row, true));
        let id = self.datasets.add_hidden(target, own, begin.hash_seed, receiving, false, false)?;
        self.core.commit_changes()?;
        Ok(id)
    }

    /// The last commit of a snapshot that comes in place: the dataset takes over what was received,
    /// and the snapshot is taken. [in_place.1]
    pub(crate) fn take_place(
        &self,
        (hidden, target): (DatasetId, DatasetId),
        (begin, brought): (&StreamBegin, &Brought),
        notes: Notes,
    ) -> Result<()> {
        self.datasets.open_head(target)?;
        self.datasets.check_brought(target, brought)?;
        let answer = loop {
            // All that was received is in the hidden row's trees from here on, and what the target
            // changed in its own.
            self.core.commit_changes()?;
            let _turn = self.core.sync_turn.lock();
            let _figures = self.datasets.figures.write();
            let mut table = self.datasets.table.write();
            let name = table.full_name(target);
            let missing = || Error::NoSuchDataset { name: name.clone() };
            let entry = table.get(target).filter(|entry| !entry.row.destroying).ok_or_else(missing)?;
            let became = table.get(hidden).ok_or_else(missing)?;
            let receiving = became.receiving.as_ref().ok_or_else(missing)?;
            let snapshot = receiving.row.name.trim_start_matches('@').to_owned();
            if entry.is_in_use() {
                return Err(Error::Busy { name });
            }
            // Unless somebody used it in between.
            if entry.has_unstored() {
                continue;
            }
            check_place_of(&table, entry, false, begin)?;
            check_quotas(entry, became.row.used, brought)?;
            // A read error shows here, before the first change.
            let places = self.datasets.newer_places(entry, &table.key_name(target), Txg(0))?;
            if !places.is_empty() {
                let snapped = Txg(self.datasets.snapped.load(Ordering::Acquire)).max(Txg(1));
                let cell = CellId { left: snapped, born: Txg(0) };
                let put = self.datasets.put(target, cell, &places, self.datasets.sum_of(&places));
                if let Err(error) = &put {
                    // A part of it is in the tree that the next commit would store.
                    self.core.suspend(error);
                }
                put?;
                table.get_mut(target).ok_or_else(missing)?.add_dead(Txg(0), snapped.next());
            }
            let became = table.remove(hidden).ok_or_else(missing)?.row;
            let entry = table.get_mut(target).ok_or_else(missing)?;
            entry.open = None;
            let row = &mut entry.row;
            (row.names, row.extents, row.hash_seed) = (became.names, became.extents, became.hash_seed);
            (row.used, row.data, row.logical) = (became.used, became.data, became.logical);
            (row.files, row.next_inode) = (became.files, became.next_inode.max(row.next_inode));
            entry.row_dirty = true;
            entry.take_brought(brought);
            // They name moments of what was here before.
            entry.bookmarks_dirty.extend(std::mem::take(&mut entry.bookmarks).into_keys());
            break self.datasets.ask_for(target, snapshot, (begin.guid, begin.created_ns), notes);
        };
        self.core.blockio.forget(hidden, hidden);
        self.datasets.open_head(target)?;
        self.datasets.apply_settings(target);
        self.datasets.update_quotas(None);
        self.datasets.await_answer(&answer)
    }
}

/// Refuses a dataset whose content a whole snapshot cannot replace. [in_place.2]
fn check_place_of(table: &Table, entry: &Entry, new_key: bool, begin: &StreamBegin) -> Result<()> {
    let id = entry.row.id;
    let name = table.full_name(id);
    let refused = |reason| Err(Error::InPlace { name: name.clone(), reason });
    if begin.volume || entry.row.volume {
        return refused("the stream is of a volume, or it is one");
    }
    if begin.raw || new_key || entry.is_encrypted() || entry.row.raw {
        return refused("it stays as it is encrypted, or not, while others lie below it");
    }
    if table.origin_of(id).is_some() {
        return Err(Error::TargetIsClone { name });
    }
    if !entry.snapshots.is_empty() {
        let full = entry.snapshots.values().map(|snapshot| format!("{name}@{}", snapshot.row.name));
        return Err(Error::HasSnapshots { snapshots: full.collect(), name });
    }
    Ok(())
}

/// Refuses what is larger than a quota that was set here.
fn check_quotas(entry: &Entry, bytes: u64, brought: &Brought) -> Result<()> {
    let (mut props, mut received) = (entry.props.clone(), entry.received.clone());
    brought.apply(&mut props, &mut received);
    let Expected { quota, refquota } = Expected::of(&props, &received);
    match [quota, refquota].into_iter().any(|limit| limit > 0 && bytes > limit) {
        true => Err(Error::ReceiveOverQuota),
        false => Ok(()),
    }
}
