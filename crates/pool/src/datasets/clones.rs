//! Clones, and their promotion (`zfs clone`, `zfs promote`). `docs/decisions/0090-snapshots.md`,
//! `0091-clones.md`.
//!
//! A clone is a dataset whose row begins with the roots of a snapshot, its *origin*. Blocks born by
//! then belong to the origin: the clone reads them, with its own copy of the master key and under
//! the number of its origin's family, and never frees them (`deadlist.rs`).
//!
//! ## Definitions
//! A clone C of the snapshot S of O; N is the snapshot of O after S, or its head. The *trunk* is
//! common to O and C: the snapshots up to S, and the cells (L, B) of O with L < S, which name
//! blocks that were let go before S was taken.
//!
//! ## What a promotion moves
//! The trunk, to C. All other cells stay where they are: blocks that O let go since S are still let
//! go by O. But the owner of their blocks changes. Cells of O with B < S become shadows. Shadows of
//! C with B < S become held by C, unless they are older than O's own origin. So rows change, and a
//! promotion costs the items of the trunk.
//!
//! ## Invariants
//! [clone.1] Snapshots of a dataset are older than its head, and blocks shared with its origin are
//!      not younger than the origin: so its own snapshots are younger than its base.
//! [clone.2] A snapshot with clones is not destroyed.
//!      `destroy_snapshots`, `check_destroy`: clones that go with it do not count
//! [clone.3] Relatives are sealed under one number, with one master key, into segments of one
//!      owner, and order directories by one seed.
//!      checked: import, `inspect check`
//!
//! ## What a crash does
//! Each of these verbs changes rows and items in one commit; by `sync_turn` no commit sees a part
//! of them.

use crate::datasets::owners::owner_quotas;
use crate::datasets::state::Datasets;
use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_crypto::BlockKeys;
use steadfast_format::{
    Cell, CellId, DatasetEncryption, DatasetId, DatasetRow, Lineage, MetaKey, SnapshotRow, Txg,
};
use steadfast_property::Local;

use crate::core::error::{Error, Result};
use crate::datasets::snapshot::Snapshot;
use crate::datasets::snapshots::Finder;
use crate::datasets::table::{Entry, LoadedKeys, ROOT, Table};
use steadfast_refs::deadlist::Sum;

/// Feature of pools with clones.
pub(crate) const FEATURE: &str = "clones";
/// Properties of an encryption root, which go where the root goes.
const KEY_PROPERTIES: [&str; 3] = ["encryption", "keyformat", "keylocation"];

/// Items of the meta tree that go from one dataset to another.
type Runs = Vec<(u64, Vec<u8>)>;

impl Table {
    /// Dataset and txg of the snapshot that a dataset is a clone of.
    pub fn origin_of(&self, id: DatasetId) -> Option<(DatasetId, Txg)> {
        let entry = self.get(id)?;
        let number = entry.row.lineage.origin;
        let is_it = |of: &Entry| of.snapshots.get(&entry.base).is_some_and(|s| s.row.number == number);
        let found = self.iter_all().find(|(_, of)| number.0 != 0 && is_it(of))?;
        Some((found.0, entry.base))
    }

    /// The row of that snapshot.
    fn origin_row(&self, id: DatasetId) -> Option<&SnapshotRow> {
        let (of, txg) = self.origin_of(id)?;
        Some(&self.get(of)?.snapshots.get(&txg)?.row)
    }

    /// Bytes that a dataset's origin refers to, 0 without one.
    pub fn origin_bytes(&self, id: DatasetId) -> u64 {
        self.origin_row(id).map_or(0, |row| row.used)
    }

    /// Full name of the snapshot that a dataset is a clone of.
    pub fn origin_name(&self, id: DatasetId) -> Option<String> {
        let (of, _) = self.origin_of(id)?;
        Some(format!("{}@{}", self.full_name(of), self.origin_row(id)?.name))
    }

    /// Clones of the snapshot of that number.
    pub fn clones_of(&self, number: DatasetId) -> Vec<DatasetId> {
        let is_clone = |entry: &Entry| entry.row.lineage.origin == number;
        self.iter_all().filter(|(_, entry)| is_clone(entry)).map(|(id, _)| id).collect()
    }

    /// Full names of the clones of each snapshot that has some, by its number.
    pub fn clone_names(&self) -> BTreeMap<DatasetId, Vec<String>> {
        let mut names: BTreeMap<DatasetId, Vec<String>> = BTreeMap::new();
        for (id, entry) in self.iter().filter(|(_, entry)| entry.row.lineage.origin.0 != 0) {
            names.entry(entry.row.lineage.origin).or_default().push(self.full_name(id));
        }
        names.values_mut().for_each(|names| names.sort());
        names
    }

    /// The snapshots of a dataset's chain, ascending (`deadlist.rs`).
    fn chain_of(&self, id: DatasetId) -> Vec<Txg> {
        let mut chain: Vec<Txg> = Vec::new();
        let mut at = id;
        if let Some(entry) = self.get(at) {
            chain.extend(entry.snapshots.keys());
        }
        // Each base is older than the one before [clone.1], so this ends.
        while let Some((of, base)) = self.origin_of(at) {
            chain.extend(
                self.get(of).into_iter().flat_map(|entry| entry.snapshots.range(..=base)).map(|s| s.0),
            );
            at = of;
        }
        chain.sort_unstable();
        chain
    }

    /// Those of them that are no younger than a txg.
    pub fn chain_up_to(&self, id: DatasetId, txg: Txg) -> Vec<Txg> {
        self.chain_of(id).into_iter().filter(|of| *of <= txg).collect()
    }

    /// True if `id` is a clone, or one of a clone, of what `of` was at `txg` or later.
    pub fn begins_after(&self, id: DatasetId, of: DatasetId, txg: Txg) -> bool {
        let mut at = id;
        while let Some((origin, base)) = self.origin_of(at) {
            if origin == of {
                return txg <= base;
            }
            at = origin;
        }
        false
    }

    /// Tells a dataset's deadlist which snapshots its chain has.
    pub fn note_snapshots(&self, id: DatasetId) {
        if let Some(entry) = self.get(id) {
            entry.deadlist.set_chain(self.chain_of(id), entry.base);
        }
    }
}

/// Changes of rows that a promotion makes, computed before anything is changed.
struct Promotion {
    /// The clone, and what it is a clone of.
    clone: DatasetId,
    of: DatasetId,
    txg: Txg,
    trunk: Vec<(CellId, Cell, Runs)>,
    /// Own cells that are held, of the trunk, of the origin's line and of the clone's.
    kept: [Sum; 3],
    /// Bytes that each shares with its origin afterwards: the old origin's dataset, and the clone.
    shared: [Sum; 2],
}

impl Datasets {
    /// Makes a dataset that begins as what a snapshot keeps. Durable when it returns.
    pub fn clone_snapshot(&self, snapshot: &str, name: &str, props: Local) -> Result<DatasetId> {
        self.core.check_writable()?;
        self.core.need_feature(FEATURE)?;
        let (parent, last) = self.place_for(name)?;
        self.table.read().check_filesystem_limits(parent, None)?;
        self.check_new_limits(parent, name, &props)?;
        self.check_owner_quotas(props.keys().map(String::as_str))?;
        self.check_props(&props)?;
        self.check_room()?;
        let id = {
            let _figures = self.figures.write();
            let mut table = self.table.write();
            self.add_clone(&mut table, snapshot, (parent, last), props)?
        };
        if let Some(owner) = self.table.read().get(id).and_then(|e| Some(e.row.encryption.as_ref()?.owner)) {
            self.core.space.expect_owner(owner);
        }
        if let Err(error) = self.open_head(id) {
            // A clone that cannot be read is not created.
            self.table.write().remove(id);
            return Err(error);
        }
        self.core.note_done(&format!("clone {name} ({id}) of {snapshot}"));
        self.update_quotas(None);
        self.core.commit_changes()?;
        Ok(id)
    }

    /// Puts a clone into the table.
    fn add_clone(
        &self,
        table: &mut Table,
        snapshot: &str,
        (parent, last): (DatasetId, &str),
        props: Local,
    ) -> Result<DatasetId> {
        table.check_place(parent, last)?;
        table.check_filesystem_limits(parent, None)?;
        let (of, txg) = table.find_snapshot(snapshot)?;
        let locked = || Error::KeyNotLoaded { name: table.key_name(of) };
        let origin = table.get(of).expect("just found");
        let keys = match &origin.row.encryption {
            None => None,
            Some(encryption) => {
                let root = table.get(encryption.root).and_then(|root| root.keys.as_ref()?.user.clone());
                let master = origin.keys.as_ref().map(|keys| Arc::clone(&keys.blocks));
                Some((encryption.clone(), root.ok_or_else(locked)?, master.ok_or_else(locked)?))
            }
        };
        let (source, family, seed) =
            (origin.snapshots[&txg].row.clone(), origin.row.family(), origin.row.hash_seed);
        let raw = origin.row.raw;
        let volume = origin.row.volume;
        let id = table.take_id();
        let (encryption, loaded) = match keys {
            None => (None, None),
            Some((encryption, user, blocks)) => {
                let random = |out: &mut [u8]| self.core.env.random.fill(out);
                let aad = crate::datasets::keys::wrap_aad(self.core.identity.guid, id);
                let wrapped = steadfast_crypto::wrap(&user, blocks.master(), &aad, &random);
                // The same master key, and a salt of its own: no nonce is used twice.
                let blocks = Arc::new(BlockKeys::new(blocks.master().clone(), &random));
                (Some(DatasetEncryption { wrapped, ..encryption }), Some(LoadedKeys { blocks, user: None }))
            }
        };
        let row = DatasetRow {
            id,
            parent,
            name: last.to_owned(),
            created_txg: self.core.txgs.gate.open_txg(),
            created_ns: self.core.now_ns(),
            names: source.names,
            extents: source.extents,
            used: source.used,
            data: source.data,
            logical: source.logical,
            files: source.files,
            next_inode: source.next_inode,
            hash_seed: seed,
            destroying: false,
            raw,
            volume,
            encryption,
            lineage: Lineage {
                family,
                origin: source.number,
                shared: source.used,
                shared_logical: source.logical,
                kept: 0,
                kept_logical: 0,
            },
        };
        let quotas = table.get(of).map(|origin| owner_quotas(&origin.props)).unwrap_or_default();
        let props = quotas.into_iter().chain(props).collect();
        let props = crate::datasets::dataset::with_fixed(table.get(of), props);
        let mut entry = Entry::new(row, props);
        entry.props_dirty = entry.props.keys().cloned().collect();
        (entry.keys, entry.row_dirty, entry.base) = (loaded, true, txg);
        entry.set_writers(self.writers_of_clone(table, (of, txg), id));
        table.insert(entry);
        table.note_snapshots(id);
        Ok(id)
    }

    /// Makes a clone what its origin's dataset was, and that dataset the clone. Durable when it
    /// returns.
    pub fn promote(&self, name: &str) -> Result<()> {
        self.core.check_writable()?;
        self.core.commit_changes()?;
        let turn = self.core.sync_turn.lock();
        {
            let _figures = self.figures.write();
            let mut table = self.table.write();
            let promotion = self.plan_promotion(&table, name)?;
            if let Err(error) = self.carry_out(&mut table, promotion) {
                // A part of it is in the tree that the next commit would store.
                self.core.suspend(&error);
                return Err(error);
            }
            self.core.note_done(&format!("promote {name}"));
        }
        drop(turn);
        self.update_quotas(None);
        self.core.commit_changes()
    }

    /// Everything that can be refused, and that can fail by reading.
    fn plan_promotion(&self, table: &Table, name: &str) -> Result<Promotion> {
        let clone = table.find(name)?;
        let not_clone = || Error::NotClone { name: name.to_owned() };
        let (of, txg) = table.origin_of(clone).ok_or_else(not_clone)?;
        // Positions of what is being received speak of snapshots by the dataset that has them.
        self.check_receives(table, of, |_| true)?;
        self.check_receives(table, clone, |_| true)?;
        let (entry, origin) = (table.get(clone).expect("found"), table.get(of).expect("found"));
        let moved = || origin.snapshots.range(..=txg);
        let both: Vec<String> = moved()
            .filter(|(_, snapshot)| entry.snapshot(&snapshot.row.name).is_some())
            .map(|(_, snapshot)| format!("{name}@{}", snapshot.row.name))
            .collect();
        if !both.is_empty() {
            return Err(Error::PromoteConflict { name: name.to_owned(), snapshots: both });
        }
        let takes_root = table.encryption_root(of) == Some(of) && table.encryption_root(clone) == Some(of);
        if takes_root {
            if of == ROOT {
                let reason = "the pool's own file system keeps the key of the pool".to_owned();
                let to = name.to_owned();
                return Err(Error::KeyBorder { name: table.full_name(of), to, reason });
            }
            self.core.need_feature("moved_datasets")?;
        }
        self.check_snapshot_limits(table, &[(clone, moved().count() as u64)], &table.ancestry(of))?;

        let base = origin.base;
        let mut cells = Vec::new();
        let mut kept = [Sum::default(); 3];
        self.visit_cells(of, Txg(0)..txg, Txg(0)..txg, |id, cell| {
            if origin.deadlist.holds(id) {
                kept[0].add(&cell);
            }
            cells.push((id, cell));
            true
        })?;
        let mut trunk = Vec::new();
        for (id, cell) in cells {
            let runs = self.runs_of_cell(of, id)?;
            trunk.push((id, cell, runs));
        }
        // Cells that each line let go of the origin, and of the origin of the origin's dataset.
        let (mut left, mut older) = ([Sum::default(); 2], Sum::default());
        for (line, id) in [of, clone].into_iter().enumerate() {
            self.visit_cells(id, txg..Txg(u64::MAX), Txg(0)..txg, |cell, sum| {
                left[line].add(&sum);
                if cell.born >= base {
                    kept[line + 1].add(&sum);
                } else if line == 1 {
                    older.add(&sum);
                }
                true
            })?;
        }
        trunk.iter().filter(|(id, ..)| id.born < base).for_each(|(_, cell, _)| older.add(cell));
        let of_origin = |row: Option<&SnapshotRow>, less: Sum| Sum {
            bytes: row.map_or(0, |row| row.used).saturating_sub(less.bytes),
            logical: row.map_or(0, |row| row.logical).saturating_sub(less.logical),
        };
        let shared =
            [of_origin(Some(&origin.snapshots[&txg].row), left[0]), of_origin(table.origin_row(of), older)];
        let own = |entry: &Entry| entry.row.used - entry.row.lineage.shared.min(entry.row.used);
        let stays = kept[0].bytes.saturating_add(kept[2].bytes);
        let after = entry.row.used.saturating_sub(shared[1].bytes).saturating_add(stays);
        let more = after.saturating_sub(own(entry));
        self.quotas.check_moved(of, clone, more, name, |id| table.full_name(id))?;
        Ok(Promotion { clone, of, txg, trunk, kept, shared })
    }

    /// Runs of the places of a cell, as stored.
    fn runs_of_cell(&self, id: DatasetId, cell: CellId) -> Result<Runs> {
        let key = |number| MetaKey::CellRun(id, cell, number).encode();
        let mut runs = Vec::new();
        for item in self.core.meta.range(key(0)..key(u64::MAX)) {
            let (key, value) = item?;
            if let Some(MetaKey::CellRun(_, _, number)) = MetaKey::decode(&key) {
                runs.push((number, value));
            }
        }
        Ok(runs)
    }

    fn carry_out(&self, table: &mut Table, promotion: Promotion) -> Result<()> {
        let Promotion { clone, of, txg, trunk, kept, shared } = promotion;
        for (cell, sum, runs) in trunk {
            for (number, run) in runs {
                self.core.meta.remove(&MetaKey::CellRun(of, cell, number).encode())?;
                self.core.meta.insert(&MetaKey::CellRun(clone, cell, number).encode(), &run)?;
            }
            self.core.meta.remove(&MetaKey::Cell(of, cell).encode())?;
            self.core.meta.insert(&MetaKey::Cell(clone, cell).encode(), &sum.encode())?;
        }
        let origin = table.get_mut(of).expect("looked at just now");
        let number = origin.snapshots[&txg].row.number;
        let younger = origin.snapshots.split_off(&txg.next());
        let moved = std::mem::replace(&mut origin.snapshots, younger);
        origin.snapshots_dirty.extend(moved.keys());
        let dead: Vec<(Txg, Txg)> =
            origin.dead.iter().filter(|(_, before)| **before <= txg).map(|(a, b)| (*a, *b)).collect();
        for (after, _) in &dead {
            origin.dead.remove(after);
            origin.dead_dirty.insert(*after);
        }
        let above = (origin.row.lineage.origin, origin.base);
        let lineage = &mut origin.row.lineage;
        lineage.origin = number;
        (lineage.shared, lineage.shared_logical) = (shared[0].bytes, shared[0].logical);
        lineage.kept = lineage.kept.saturating_sub(kept[0].bytes.saturating_add(kept[1].bytes));
        lineage.kept_logical =
            lineage.kept_logical.saturating_sub(kept[0].logical.saturating_add(kept[1].logical));
        (origin.base, origin.row_dirty) = (txg, true);

        let entry = table.get_mut(clone).expect("looked at just now");
        entry.snapshots_dirty.extend(moved.keys());
        for (txg, mut snapshot) in moved {
            snapshot.moved();
            entry.snapshots.insert(txg, snapshot);
        }
        for (after, before) in dead {
            entry.dead.insert(after, before);
            entry.dead_dirty.insert(after);
        }
        let lineage = &mut entry.row.lineage;
        lineage.origin = above.0;
        (lineage.shared, lineage.shared_logical) = (shared[1].bytes, shared[1].logical);
        for kept in [kept[0], kept[2]] {
            lineage.kept = lineage.kept.saturating_add(kept.bytes);
            lineage.kept_logical = lineage.kept_logical.saturating_add(kept.logical);
        }
        (entry.base, entry.row_dirty) = (above.1, true);
        for id in [of, clone] {
            table.note_snapshots(id);
        }
        if table.encryption_root(of) == Some(of) && table.encryption_root(clone) == Some(of) {
            hand_over_root(table, of, clone);
        }
        Ok(())
    }

    /// A snapshot that was to go when nothing keeps it goes, if nothing does any more. Under
    /// `figures`.
    pub(crate) fn release_origin(&self, table: &mut Table, number: DatasetId) -> Result<()> {
        let is_it = |(_, snapshot): &(&Txg, &Snapshot)| snapshot.row.number == number;
        let found = table.iter_all().find_map(|(of, entry)| {
            let (txg, snapshot) = entry.snapshots.iter().find(is_it)?;
            Some((of, *txg, snapshot.row.deferred && snapshot.holds.is_empty()))
        });
        match found {
            Some((of, txg, true)) if table.clones_of(number).is_empty() => {
                self.remove_snapshots(table, of, &[txg])
            }
            _ => Ok(()),
        }
    }

    /// Refuses to destroy clones with which a snapshot goes that is sent, or upon which something
    /// is received [receive.3].
    pub(crate) fn check_origins(&self, table: &Table, clones: &[DatasetId]) -> Result<()> {
        for clone in clones {
            let Some((of, txg)) = table.origin_of(*clone) else { continue };
            let snapshot = &table.get(of).expect("just found").snapshots[&txg];
            let mut others = table.clones_of(snapshot.row.number).into_iter();
            let stays = !snapshot.holds.is_empty() || others.any(|other| !clones.contains(&other));
            if snapshot.row.deferred && !stays {
                let name = format!("{}@{}", table.full_name(of), snapshot.row.name);
                self.find_unneeded(table, &name)?;
            }
        }
        Ok(())
    }

    /// Those of some snapshots that have clones, and the full names of these, sorted.
    pub fn clones(&self, snapshots: &[String]) -> Result<Vec<(String, Vec<String>)>> {
        let table = self.table.read();
        let mut names: BTreeMap<DatasetId, Vec<String>> = BTreeMap::new();
        for (id, entry) in table.iter_all().filter(|(_, entry)| entry.row.lineage.origin.0 != 0) {
            names.entry(entry.row.lineage.origin).or_default().push(table.full_name(id));
        }
        let mut finder = Finder::new(&table);
        let mut found = Vec::new();
        for snapshot in snapshots {
            let (id, txg) = finder.find(snapshot)?;
            let number = table.get(id).expect("just found").snapshots[&txg].row.number;
            if let Some(mut clones) = names.get(&number).cloned() {
                clones.sort();
                found.push((snapshot.clone(), clones));
            }
        }
        Ok(found)
    }

    /// Origins, as stored: what a clone is a clone of must be there, and a relative.
    pub(crate) fn load_origins(&self) -> Result<()> {
        let mut table = self.table.write();
        let numbers = table.snapshots_by_number();
        let clones: Vec<DatasetId> =
            table.iter_all().filter(|(_, entry)| entry.row.lineage.origin.0 != 0).map(|(id, _)| id).collect();
        for id in clones {
            let row = &table.get(id).expect("just listed").row;
            let found = numbers.get(&row.lineage.origin).copied();
            let wrong = match found.and_then(|(of, txg)| Some((table.get(of)?, txg))) {
                None => Some("its origin does not exist"),
                Some((of, txg)) => unrelated(table.get(id).expect("just listed"), of, txg),
            };
            if let Some(reason) = wrong {
                return Err(Error::BadDataset { dataset: id, reason: reason.to_owned() });
            }
            table.get_mut(id).expect("just listed").base = found.map_or(Txg(0), |(_, txg)| txg);
        }
        let ids: Vec<DatasetId> = table.iter_all().map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| table.note_snapshots(id));
        Ok(())
    }
}

/// Why a dataset cannot be a clone of that snapshot of `of` ([clone.1], [clone.3]).
fn unrelated(entry: &Entry, of: &Entry, txg: Txg) -> Option<&'static str> {
    let owner = |entry: &Entry| entry.row.encryption.as_ref().map(|encryption| encryption.owner);
    let (row, lineage) = (&entry.row, &entry.row.lineage);
    let tests = [
        (of.row.id == row.id, "its origin is a snapshot of its own"),
        (
            entry.snapshots.keys().next().is_some_and(|oldest| *oldest <= txg),
            "it has a snapshot older than its origin",
        ),
        (row.family() != of.row.family(), "its blocks are sealed under another number than its origin's"),
        (row.hash_seed != of.row.hash_seed, "it orders directories by another seed than its origin"),
        (owner(entry) != owner(of), "its blocks lie in segments of another owner than its origin's"),
        (row.destroying, "it is being destroyed, and has an origin"),
        (lineage.shared > row.used, "it shares more than it has"),
    ];
    tests.into_iter().find_map(|(wrong, reason)| wrong.then_some(reason))
}

/// Makes `to` the encryption root of all that `from` is the root of. User key and master keys stay,
/// so nothing is wrapped anew.
fn hand_over_root(table: &mut Table, from: DatasetId, to: DatasetId) {
    let user = table.get_mut(from).and_then(|entry| entry.keys.as_mut()?.user.take());
    for id in table.keyed_by(from) {
        let entry = table.get_mut(id).expect("just listed");
        if let Some(encryption) = &mut entry.row.encryption {
            encryption.root = to;
        }
        entry.row_dirty = true;
    }
    let mut carried = Vec::new();
    if let Some(entry) = table.get_mut(from) {
        for name in KEY_PROPERTIES {
            carried.extend(entry.props.remove(name).map(|value| (name, value)));
            entry.props_dirty.insert(name.to_owned());
        }
    }
    if let Some(entry) = table.get_mut(to) {
        if let Some(keys) = &mut entry.keys {
            keys.user = user;
        }
        for (name, value) in carried {
            entry.props.insert(name.to_owned(), value);
            entry.props_dirty.insert(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u64) -> DatasetRow {
        DatasetRow {
            id: DatasetId(id),
            parent: DatasetId(1),
            name: format!("fs{id}"),
            created_txg: Txg(1),
            created_ns: 0,
            names: None,
            extents: None,
            used: 100,
            data: 0,
            logical: 0,
            files: 0,
            next_inode: 1,
            hash_seed: [7; 16],
            destroying: false,
            raw: false,
            volume: false,
            encryption: None,
            lineage: Lineage::default(),
        }
    }

    fn snapshot(number: u64, name: &str) -> Snapshot {
        let row = SnapshotRow {
            number: DatasetId(number),
            guid: number,
            created_ns: 0,
            names: None,
            extents: None,
            used: 100,
            data: 0,
            logical: 0,
            files: 0,
            next_inode: 1,
            deferred: false,
            name: name.into(),
        };
        Snapshot::new(row, Local::new())
    }

    #[test]
    fn only_a_relative_is_an_origin() {
        let lineage =
            Lineage { family: DatasetId(2), origin: DatasetId(9), shared: 60, ..Lineage::default() };
        let clone = DatasetRow { lineage, ..row(3) };
        let of = Entry::new(row(2), Local::new());
        let why = |row: DatasetRow| unrelated(&Entry::new(row, Local::new()), &of, Txg(5));
        assert_eq!(why(clone.clone()), None);
        let stranger = Lineage { family: DatasetId(0), ..lineage };
        for (row, word) in [
            (DatasetRow { id: DatasetId(2), ..clone.clone() }, "of its own"),
            (DatasetRow { lineage: stranger, ..clone.clone() }, "another number"),
            (DatasetRow { hash_seed: [8; 16], ..clone.clone() }, "another seed"),
            (DatasetRow { destroying: true, ..clone.clone() }, "being destroyed"),
            (DatasetRow { used: 59, ..clone.clone() }, "more than it has"),
        ] {
            assert!(why(row).is_some_and(|reason| reason.contains(word)), "{word}");
        }
        let mut older = Entry::new(clone, Local::new());
        older.snapshots.insert(Txg(5), snapshot(10, "s"));
        assert!(unrelated(&older, &of, Txg(5)).is_some_and(|reason| reason.contains("older")));
    }

    #[test]
    fn a_chain_goes_through_all_origins_and_stops_at_each() {
        let mut table = Table::new("p", DatasetId(20));
        let mut first = Entry::new(DatasetRow { parent: DatasetId(0), ..row(1) }, Local::new());
        for txg in [3, 5, 8] {
            first.snapshots.insert(Txg(txg), snapshot(10 + txg, "s"));
        }
        table.insert(first);
        for (id, origin, base, own) in [(2, 15, 5, [6, 7]), (3, 16, 6, [9, 12])] {
            let lineage = Lineage { origin: DatasetId(origin), ..Lineage::default() };
            let mut entry = Entry::new(DatasetRow { lineage, ..row(id) }, Local::new());
            entry.base = Txg(base);
            for txg in own {
                entry.snapshots.insert(Txg(txg), snapshot(10 + txg, "s"));
            }
            table.insert(entry);
        }
        let chain = |id| table.chain_of(DatasetId(id)).into_iter().map(|txg| txg.0).collect::<Vec<_>>();
        assert_eq!(chain(1), [3, 5, 8]);
        assert_eq!(chain(2), [3, 5, 6, 7]);
        assert_eq!(chain(3), [3, 5, 6, 9, 12]);
        assert_eq!(table.origin_of(DatasetId(3)), Some((DatasetId(2), Txg(6))));
        assert_eq!(table.origin_name(DatasetId(2)).as_deref(), Some("p@s"));
        assert_eq!(table.clones_of(DatasetId(16)), [DatasetId(3)]);
    }
}
