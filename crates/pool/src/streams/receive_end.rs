//! Receiving: the commit that ends it (`receive.rs`). A hidden dataset is seen, or what it became
//! is taken over by the target.

use crate::streams::state::Streams;
use steadfast_format::stream::StreamBegin;
use steadfast_format::{DatasetId, Lineage, MetaKey, Txg};

use crate::core::error::{Error, Result};
use crate::datasets::notes::Notes;
use crate::datasets::quotas::Expected;
use crate::datasets::received::Brought;
use crate::datasets::table::Table;
use crate::streams::receive::note_root;

impl Streams {
    /// The last commit of an increment: the target takes over what the hidden dataset became, and
    /// its snapshot is taken.
    pub(crate) fn take_over(
        &self,
        (hidden, target): (DatasetId, DatasetId),
        force: bool,
        (begin, brought): (&StreamBegin, &Brought),
        notes: Notes,
    ) -> Result<()> {
        self.datasets.open_head(target)?;
        let is_told = self.datasets.check_brought(target, brought)?;
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
            let receiving =
                table.get(hidden).and_then(|entry| entry.receiving.as_ref()).ok_or_else(missing)?;
            let snapshot = receiving.row.name.trim_start_matches('@').to_owned();
            if entry.is_in_use() {
                return Err(Error::Busy { name });
            }
            // Unless somebody used it in between.
            if entry.has_unstored() {
                continue;
            }
            let txg = self.check_target((&*table, entry), &name, &snapshot, force, begin)?;
            let younger: Vec<Txg> = entry.snapshots.range(txg.next()..).map(|(txg, _)| *txg).collect();
            let named = format!("{name}@{}", entry.snapshots[&txg].row.name);
            if !younger.is_empty() {
                // A read error shows here, before they are gone.
                self.datasets.newer_places(entry, &table.key_name(target), txg)?;
                self.datasets.remove_snapshots(&mut table, target, &younger)?;
            }
            let rolled = self.datasets.roll_within(&mut table, &named, target, txg);
            if let Some(error) = rolled.as_ref().err().filter(|_| !younger.is_empty()) {
                // They are gone from the table that the next commit would store.
                self.core.suspend(error);
            }
            rolled?;
            let taken = self.take_cells(&mut table, hidden, target);
            if let Err(error) = &taken {
                // A part of it is in the tree that the next commit would store.
                self.core.suspend(error);
            }
            taken?;
            let became = table.remove(hidden).expect("looked at just now").row;
            let entry = table.get_mut(target).expect("looked at just now");
            entry.open = None;
            let row = &mut entry.row;
            (row.names, row.extents) = (became.names, became.extents);
            (row.used, row.data, row.logical) = (became.used, became.data, became.logical);
            (row.files, row.next_inode) = (became.files, became.next_inode.max(row.next_inode));
            entry.row_dirty = true;
            entry.take_brought(brought);
            break self.datasets.ask_for(target, snapshot, (begin.guid, begin.created_ns), notes);
        };
        self.core.blockio.forget(hidden, hidden);
        self.datasets.open_head(target)?;
        if is_told {
            self.datasets.apply_settings(target);
            self.datasets.update_quotas(None);
        }
        self.datasets.await_answer(&answer)
    }

    /// Origin of a hidden dataset that becomes a clone. All that it let go is the origin's.
    fn origin_to_be(&self, table: &Table, hidden: DatasetId) -> Result<Option<(Txg, Lineage)>> {
        let Some(entry) = table.get(hidden) else { return Ok(None) };
        let Some(row) = entry.receiving.as_ref().map(|receiving| &receiving.row).filter(|row| row.clone)
        else {
            return Ok(None);
        };
        let missing = || Error::NoOrigin { name: table.full_name(hidden) };
        let (txg, _) = row.base.ok_or_else(missing)?;
        let origin = table.get(row.target).and_then(|of| of.snapshots.get(&txg)).ok_or_else(missing)?;
        let (mut bytes, mut logical) = (0_u64, 0_u64);
        for (_, sum) in self.datasets.cells_of(hidden)? {
            bytes = bytes.saturating_add(sum.bytes);
            logical = logical.saturating_add(sum.logical);
        }
        let lineage = Lineage {
            family: entry.row.lineage.family,
            origin: origin.row.number,
            shared: origin.row.used.saturating_sub(bytes),
            shared_logical: origin.row.logical.saturating_sub(logical),
            kept: 0,
            kept_logical: 0,
        };
        Ok(Some((txg, lineage)))
    }

    /// The target lets go the blocks of the base that the hidden dataset let go. [receive.2]
    pub(crate) fn take_cells(&self, table: &mut Table, hidden: DatasetId, target: DatasetId) -> Result<()> {
        for (cell, sum) in self.datasets.cells_of(hidden)? {
            for key in self.datasets.runs_of(hidden, cell)? {
                let Some(value) = self.core.meta.get(&key)? else { continue };
                let places = steadfast_format::CellPlace::decode_run(&value)
                    .map_err(|source| self.core.corrupt(&self.core.name(), "places of a cell", source))?;
                self.datasets.put(target, cell, &places, self.datasets.sum_of(&places))?;
                self.core.meta.remove(&key)?;
            }
            self.core.meta.remove(&MetaKey::Cell(hidden, cell).encode())?;
            let entry = table.get_mut(target).expect("looked at before");
            let lineage = &mut entry.row.lineage;
            if entry.deadlist.is_shadow(cell) {
                lineage.shared = lineage.shared.saturating_sub(sum.bytes);
                lineage.shared_logical = lineage.shared_logical.saturating_sub(sum.logical);
            } else if entry.deadlist.holds(cell) {
                lineage.kept = lineage.kept.saturating_add(sum.bytes);
                lineage.kept_logical = lineage.kept_logical.saturating_add(sum.logical);
            }
        }
        Ok(())
    }

    /// The last commit of a whole snapshot: the hidden dataset is seen, and its snapshot is taken.
    /// With `replace` the dataset of that name goes in the same commit, and its properties become
    /// those of the received one, as far as the receive does not bring others.
    pub(crate) fn become_visible(
        &self,
        hidden: DatasetId,
        (name, replace): (&str, Option<&Brought>),
        begin: &StreamBegin,
        notes: Notes,
    ) -> Result<()> {
        let old = self.datasets.table.read().find(name).ok();
        if let Some(old) = old.filter(|_| replace.is_some()) {
            let (alone, is_clone) = {
                let table = self.datasets.table.read();
                (table.owned_alone(old).is_some(), table.origin_of(old).is_some())
            };
            if is_clone {
                return Err(Error::TargetIsClone { name: name.to_owned() });
            }
            // Its blocks are found by its trees, unless its segments are nobody else's.
            match self.datasets.open_head(old) {
                Err(Error::KeyNotLoaded { .. }) if alone => {}
                opened => _ = opened?,
            }
            // Partial receives below it go with it, as if it were destroyed. Nobody could name
            // them, and their rows would never go.
            self.datasets.check_destroy(&self.datasets.table.read(), name, false)?;
            self.datasets.discard_partials(name, &[])?;
        }
        self.core.commit_changes()?;
        let answer = {
            let _turn = self.core.sync_turn.lock();
            let _figures = self.datasets.figures.write();
            let mut table = self.datasets.table.write();
            check_place(&table, hidden, name)?;
            // Everything that can fail comes before the first change: what is replaced stays if
            // this one is not seen.
            let missing = || Error::NoSuchDataset { name: name.to_owned() };
            let origin = self.origin_to_be(&table, hidden)?;
            let receiving =
                table.get(hidden).and_then(|entry| entry.receiving.as_ref()).ok_or_else(missing)?;
            let (last, snapshot) = receiving.row.name.split_once('@').ok_or_else(missing)?;
            let (last, snapshot) = (last.to_owned(), snapshot.to_owned());
            if let Ok(old) = table.find(name) {
                let Some(brought) = replace else {
                    return Err(Error::DestinationExists { name: name.to_owned() });
                };
                self.datasets.check_destroy(&table, name, false)?;
                table.check_no_hidden(old, &[])?;
                keep_props(&mut table, (old, hidden), begin, brought)?;
                let entry = table.get_mut(old).expect("just found");
                entry.row.destroying = true;
                entry.row_dirty = true;
                if let Some(open) = &entry.open {
                    open.head.begin_destroy();
                }
            }
            let entry = table.get_mut(hidden).expect("looked at just now");
            entry.receiving = None;
            if let Some((txg, lineage)) = origin {
                (entry.base, entry.row.lineage) = (txg, lineage);
                table.note_snapshots(hidden);
            }
            let entry = table.get_mut(hidden).expect("looked at just now");
            entry.row.name = last;
            entry.row_dirty = true;
            entry.receive_dirty = true;
            self.datasets.ask_for(hidden, snapshot, (begin.guid, begin.created_ns), notes)
        };
        if replace.is_some() {
            self.datasets.apply_settings(hidden);
        }
        self.datasets.update_quotas(None);
        self.datasets.await_answer(&answer)
    }
}

/// Gives a received dataset the properties of the one that it replaces, as they are now. Refuses it
/// if it is larger than a quota that was set here.
fn keep_props(
    table: &mut Table,
    (old, hidden): (DatasetId, DatasetId),
    begin: &StreamBegin,
    brought: &Brought,
) -> Result<()> {
    let Some((replaced, entry)) = table.get(old).zip(table.get(hidden)) else { return Ok(()) };
    let (mut props, mut received) = replaced.props_to_keep(begin.volume);
    if begin.resumed {
        // Given with the first part of the stream, if not again with this one.
        for (name, value) in entry.props.iter().filter(|(name, _)| !entry.received.counts(name)) {
            props.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    brought.apply(&mut props, &mut received);
    if begin.raw {
        note_root(&mut props);
    }
    let Expected { quota, refquota } = Expected::of(&props, &received);
    if [quota, refquota].into_iter().any(|limit| limit > 0 && entry.row.used > limit) {
        return Err(Error::ReceiveOverQuota);
    }
    received.dirty.extend(entry.received.names().cloned());
    let entry = table.get_mut(hidden).expect("looked at just now");
    let names: Vec<String> = entry.props.keys().chain(props.keys()).cloned().collect();
    (entry.props, entry.received) = (props, received);
    entry.props_dirty.extend(names);
    Ok(())
}

/// Refuses a hidden dataset the name that another one beside it has. That is not always one of
/// `name`, by which it is received: what it is below may have been given another name since.
/// [table.2]
fn check_place(table: &Table, hidden: DatasetId, name: &str) -> Result<()> {
    let beside = table.get(hidden).and_then(|entry| {
        let (last, _) = entry.receiving.as_ref()?.row.name.split_once('@')?;
        table.child(entry.row.parent, last)
    });
    match beside.filter(|other| table.find(name).ok() != Some(*other)) {
        Some(other) => Err(Error::DestinationExists { name: table.full_name(other) }),
        None => Ok(()),
    }
}
