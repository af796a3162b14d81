//! Destroys datasets, several at once. `docs/decisions/0121-destroying-without-keys.md`.
//!
//! ## How blocks go
//! A dataset's trees are read and its blocks freed, a bounded part in each commit; the own blocks
//! of a clone go into a cell first, when it is destroyed. Blocks of an encrypted dataset lie in
//! segments of an *owner*, which hold no others. When all datasets of an owner are destroyed, its
//! segments are dropped: no block is read, and no key is needed (decision 0003). Rows tell: all
//! datasets of the owner are being destroyed.
//!
//! ## Invariants
//! [destroy.1] Datasets that are destroyed together are so from one commit on.
//!      `destroy_all`: one hold of the table
//! [destroy.2] A clone is emptied unread only together with all datasets of its owner, and if no
//!      new dataset can get that owner: the dataset with the owner's number is gone or goes too.
//!      `Doomed::of`, `add_with`
//! [destroy.3] An owner's segments are dropped when all its datasets are being destroyed and none
//!      has a cell that is to be freed; none of their rows goes before.
//!      `drop_owners`, `destroy_step`
//!
//! ## What a crash does
//! Before the commit of [destroy.1] all of them are there. After it rows say that they are being
//! destroyed, and each import goes on from there. Segments and their rows change in one commit;
//! dropping an owner again finds nothing.

use crate::datasets::state::Datasets;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_format::{Cell, CellId, CellPlace, DatasetId, Txg};

use crate::core::error::{Error, Result};
use crate::datasets::newer;
use crate::datasets::snapshot::Snapshot;
use crate::datasets::snapshots::Removal;
use crate::datasets::snapshots::take_out;
use crate::datasets::table::{Entry, ROOT, Table};
use steadfast_refs::deadlist::places_of;

/// Names that are told of those that stand in the way.
const NAMES_TOLD: usize = 4;

/// Datasets that are destroyed together.
struct Doomed {
    /// In the order in which they were named.
    names: Vec<(DatasetId, String)>,
    ids: BTreeSet<DatasetId>,
    /// Owners all of whose datasets are these, or are being destroyed.
    owners: BTreeSet<DatasetId>,
    /// Those of them that nobody can be given any more. [destroy.2]
    final_owners: BTreeSet<DatasetId>,
    /// Their kept partial receives with the same owners: they go unread as well.
    hidden: Vec<DatasetId>,
}

impl Doomed {
    fn of(table: &Table, names: &[String]) -> Result<Doomed> {
        let mut found = Vec::new();
        for name in names {
            found.push((table.find(name)?, name.clone()));
        }
        let ids: BTreeSet<DatasetId> = found.iter().map(|(id, _)| *id).collect();
        let is_kept_for = |entry: &Entry| {
            let receiving = entry.receiving.as_ref().filter(|receiving| !receiving.active);
            receiving.is_some_and(|receiving| {
                ids.contains(&receiving.row.target) || ids.contains(&entry.row.parent)
            })
        };
        let goes =
            |id: DatasetId, entry: &Entry| ids.contains(&id) || entry.row.destroying || is_kept_for(entry);
        let mut owners: BTreeSet<DatasetId> = ids.iter().filter_map(|id| table.get(*id)?.owner()).collect();
        for (id, entry) in table.iter_all() {
            if let Some(owner) = entry.owner().filter(|_| !goes(id, entry)) {
                owners.remove(&owner);
            }
        }
        let is_final = |owner: &DatasetId| table.get(*owner).is_none_or(|entry| goes(*owner, entry));
        let final_owners: BTreeSet<DatasetId> = owners.iter().copied().filter(is_final).collect();
        let is_theirs = |entry: &Entry| {
            let owner = entry.owner().filter(|_| is_kept_for(entry));
            owner.is_some_and(|owner| final_owners.contains(&owner))
        };
        let hidden = table.iter_all().filter(|(_, entry)| is_theirs(entry)).map(|(id, _)| id).collect();
        Ok(Doomed { names: found, ids, owners, final_owners, hidden })
    }

    /// True if nothing of a dataset is read: its blocks go with the segments that they lie in.
    fn is_unread(&self, table: &Table, id: DatasetId) -> bool {
        let Some(owner) = table.get(id).and_then(Entry::owner) else { return false };
        match is_clone(table, id) {
            true => self.final_owners.contains(&owner),
            false => self.owners.contains(&owner),
        }
    }

    /// A dataset that must be read and is not open.
    fn unopened(&self, table: &Table) -> Option<DatasetId> {
        let is_open = |id: DatasetId| table.get(id).is_some_and(|entry| entry.open.is_some());
        self.ids.iter().copied().find(|id| !is_open(*id) && !self.is_unread(table, *id))
    }

    /// True if more than rows change: then it runs between two commits.
    fn needs_turn(&self, table: &Table) -> bool {
        !self.hidden.is_empty() || self.clones(table).next().is_some()
    }

    fn clones<'a>(&'a self, table: &'a Table) -> impl Iterator<Item = DatasetId> + 'a {
        self.ids.iter().copied().filter(|id| is_clone(table, *id))
    }
}

/// Blocks taken from a clone or a kept partial receive that is to be destroyed.
struct Emptying {
    id: DatasetId,
    /// Its own blocks, if they were read.
    own: Vec<CellPlace>,
    /// Cells that name what is another's.
    foreign: Vec<(CellId, Cell)>,
}

impl Table {
    /// Owners all of whose datasets are being destroyed, with these.
    fn doomed_owners(&self) -> BTreeMap<DatasetId, Vec<DatasetId>> {
        let mut owners: BTreeMap<DatasetId, Vec<DatasetId>> = BTreeMap::new();
        let doomed = self.iter_all().filter(|(_, entry)| entry.row.destroying);
        for (id, owner) in doomed.filter_map(|(id, entry)| Some((id, entry.owner()?))) {
            owners.entry(owner).or_default().push(id);
        }
        if !owners.is_empty() {
            let living = self.iter_all().filter(|(_, entry)| !entry.row.destroying);
            living.filter_map(|(_, entry)| entry.owner()).for_each(|owner| _ = owners.remove(&owner));
        }
        owners
    }
}

/// Its cells go first, and what the meta tree has of its snapshots.
fn owes(entry: &Entry) -> bool {
    !entry.dead.is_empty() || !entry.dead_dirty.is_empty() || !entry.snapshots_dirty.is_empty()
}

impl Datasets {
    /// Refuses to destroy what others need, or somebody uses.
    pub(crate) fn check_destroy(&self, table: &Table, name: &str, snapshots: bool) -> Result<()> {
        self.check_destroy_with(table, name, snapshots, &BTreeSet::new())
    }

    /// The same of one of several that are destroyed together.
    fn check_destroy_with(
        &self,
        table: &Table,
        name: &str,
        snapshots: bool,
        with: &BTreeSet<DatasetId>,
    ) -> Result<()> {
        let id = table.find(name)?;
        if id == ROOT {
            return Err(Error::RootDataset { name: name.to_owned() });
        }
        let staying = |ids: Vec<DatasetId>| -> Vec<DatasetId> {
            ids.into_iter().filter(|id| !with.contains(id)).collect()
        };
        let full = |ids: Vec<DatasetId>| ids.into_iter().map(|id| table.full_name(id)).collect::<Vec<_>>();
        let children = staying(table.children(id));
        if !children.is_empty() {
            return Err(Error::HasChildren { name: name.to_owned(), children: full(children) });
        }
        let entry = table.get(id).expect("just found");
        for snapshot in entry.snapshots.values() {
            let clones = staying(table.clones_of(snapshot.row.number));
            if !clones.is_empty() {
                let name = format!("{name}@{}", snapshot.row.name);
                return Err(Error::HasClones { name, clones: full(clones) });
            }
        }
        let keyed = table.keyed_by(id).into_iter().filter(|other| *other != id);
        let lives = |id: &DatasetId| {
            // A kept partial receive goes with its target, or is given up before.
            table.get(*id).is_some_and(|entry| !entry.row.destroying && !entry.is_hidden())
        };
        let keyed: Vec<DatasetId> = staying(keyed.filter(lives).collect());
        if !keyed.is_empty() {
            return Err(Error::KeyNeeded { name: name.to_owned(), datasets: full(keyed) });
        }
        if let Some(held) = entry.snapshots.values().find(|snapshot| !snapshot.holds.is_empty()) {
            let tags = held.holds.keys().cloned().collect();
            return Err(Error::SnapshotHeld { name: format!("{name}@{}", held.row.name), tags });
        }
        if entry.is_in_use() || entry.snapshots.values().any(Snapshot::is_pinned) {
            return Err(Error::Busy { name: name.to_owned() });
        }
        if !entry.snapshots.is_empty() && !snapshots {
            let full = |snapshot: &Snapshot| format!("{name}@{}", snapshot.row.name);
            let snapshots = entry.snapshots.values().map(full).collect();
            return Err(Error::HasSnapshots { name: name.to_owned(), snapshots });
        }
        Ok(())
    }

    /// Refuses to destroy datasets together, with their snapshots, if one of them could not be: a
    /// key is missing, or something keeps it. Whether they are mounted is not looked at.
    pub fn check_destroy_all(&self, names: &[String]) -> Result<()> {
        let table = self.table.read();
        let doomed = Doomed::of(&table, names)?;
        for (id, name) in &doomed.names {
            let entry = table.get(*id).expect("just found");
            for snapshot in entry.snapshots.values() {
                let name = format!("{name}@{}", snapshot.row.name);
                if !snapshot.holds.is_empty() {
                    return Err(Error::SnapshotHeld { name, tags: snapshot.holds.keys().cloned().collect() });
                }
                if snapshot.is_pinned() {
                    return Err(Error::SnapshotPinned { name });
                }
            }
        }
        check_keys(&table, &doomed)?;
        self.check_origins(&table, &doomed.ids.iter().copied().collect::<Vec<_>>())
    }

    /// Destroys a dataset without children and snapshots that nobody uses. Its space comes back in
    /// the background.
    pub fn destroy_dataset(&self, name: &str) -> Result<()> {
        self.destroy_named(&[name.to_owned()], false)
    }

    /// Destroys a dataset without children that nobody uses, with all its snapshots, in one step.
    pub fn destroy_with_snapshots(&self, name: &str) -> Result<()> {
        self.destroy_named(&[name.to_owned()], true)
    }

    /// Destroys datasets that nobody uses with all their snapshots, all or none, in one step.
    /// Refused if another dataset depends on one of them. A key is needed only of datasets that
    /// share segments with datasets that stay. Their space comes back in the background.
    pub fn destroy_all(&self, names: &[String]) -> Result<()> {
        self.destroy_named(names, true)
    }

    /// `zfs destroy`: datasets are gone at once, all or none, with their snapshots if that is
    /// wanted, and their blocks are freed in the background. Durable when it returns. [destroy.1]
    fn destroy_named(&self, names: &[String], snapshots: bool) -> Result<()> {
        self.core.check_writable()?;
        if names.is_empty() {
            return Ok(());
        }
        let hidden = {
            let table = self.table.read();
            let doomed = Doomed::of(&table, names)?;
            self.check_doomed(&table, &doomed, snapshots)?;
            check_keys(&table, &doomed)?;
            doomed.hidden
        };
        // Other partial receives that are kept for them.
        for name in names {
            self.discard_partials(name, &hidden)?;
        }
        while !self.destroy_now(names, snapshots)? {}
        self.core.commit_changes()
    }

    fn check_doomed(&self, table: &Table, doomed: &Doomed, snapshots: bool) -> Result<()> {
        for (_, name) in &doomed.names {
            self.check_destroy_with(table, name, snapshots, &doomed.ids)?;
        }
        self.check_origins(table, &doomed.ids.iter().copied().collect::<Vec<_>>())
    }

    /// The change itself. False if something has to be opened or committed first, which others may
    /// undo until then.
    fn destroy_now(&self, names: &[String], snapshots: bool) -> Result<bool> {
        let (unopened, between) = {
            let table = self.table.read();
            let doomed = Doomed::of(&table, names)?;
            check_keys(&table, &doomed)?;
            (doomed.unopened(&table), doomed.needs_turn(&table))
        };
        if let Some(id) = unopened {
            self.open_for_destroy(id)?;
            return Ok(false);
        }
        if between {
            // All that was written is in the rows' trees from here on.
            self.core.commit_changes()?;
        }
        let _turn = between.then(|| self.core.sync_turn.lock());
        let _figures = self.figures.write();
        let mut table = self.table.write();
        let doomed = Doomed::of(&table, names)?;
        self.check_doomed(&table, &doomed, snapshots)?;
        for (id, _) in &doomed.names {
            table.check_no_hidden(*id, &doomed.hidden)?;
        }
        // Somebody may have used a clone in between, whose trees then lack what it wrote.
        let is_changed = |id: DatasetId| table.get(id).is_some_and(Entry::has_unstored);
        if doomed.unopened(&table).is_some()
            || doomed.needs_turn(&table) && !between
            || doomed.clones(&table).any(is_changed)
        {
            return Ok(false);
        }
        // Everything that can fail by reading comes before the first change.
        let mut removals: Vec<(DatasetId, Vec<Txg>, Vec<Removal>)> = Vec::new();
        let mut clones = Vec::new();
        for &id in &doomed.ids {
            if is_clone(&table, id) {
                clones.push(self.plan_emptying(&table, &doomed, id)?);
                continue;
            }
            let txgs: Vec<Txg> = table.get(id).expect("just found").snapshots.keys().copied().collect();
            let removal = self.plan_removal(&table, id, &txgs)?;
            removals.push((id, txgs, removal));
        }
        let mut kept = Vec::new();
        for &id in &doomed.hidden {
            kept.push(Emptying { id, own: Vec::new(), foreign: self.cells_of(id)? });
        }
        for (id, txgs, removal) in removals {
            take_out(&mut table, id, (&txgs, self.core.now_ns()), removal);
            let entry = table.get_mut(id).expect("looked at just now");
            (entry.row.destroying, entry.row_dirty) = (true, true);
            if let Some(open) = &entry.open {
                open.head.begin_destroy();
            }
        }
        let emptied = clones.into_iter().try_for_each(|clone| self.empty(&mut table, clone));
        let emptied = emptied.and_then(|()| kept.into_iter().try_for_each(|of| self.forget(&mut table, of)));
        if let Err(error) = emptied {
            // A part of it is in the tree that the next commit would store.
            self.core.suspend(&error);
            return Err(error);
        }
        for (id, name) in &doomed.names {
            self.core.note_done(&format!("destroy {name} ({id})"));
        }
        Ok(true)
    }

    /// The own blocks of a clone, and its shadow cells.
    fn plan_emptying(&self, table: &Table, doomed: &Doomed, id: DatasetId) -> Result<Emptying> {
        let entry = table.get(id).expect("just found");
        let base = entry.base;
        let mut own: Vec<CellPlace> = Vec::new();
        if !doomed.is_unread(table, id) {
            let open = entry.open.as_ref().ok_or_else(|| Error::KeyNotLoaded { name: table.key_name(id) })?;
            for root in [entry.row.names, entry.row.extents] {
                newer::visit(&open.blocks, root, base, |pointer| own.extend(places_of(pointer)))?;
            }
        }
        let mut foreign = Vec::new();
        self.visit_cells(id, base..Txg(u64::MAX), Txg(0)..base, |cell, sum| {
            foreign.push((cell, sum));
            true
        })?;
        Ok(Emptying { id, own, foreign })
    }

    /// Empties a clone that is to be destroyed. Its own blocks go into a cell that nobody holds;
    /// shared blocks are left alone. A row with dead ranges remains. The cost follows its own
    /// blocks, not the shared ones.
    fn empty(&self, table: &mut Table, clone: Emptying) -> Result<()> {
        let Emptying { id, own, foreign } = clone;
        let txgs: Vec<Txg> = table.get(id).expect("looked at just now").snapshots.keys().copied().collect();
        if !txgs.is_empty() {
            self.remove_snapshots(table, id, &txgs)?;
        }
        let snapped = Txg(self.snapped.load(Ordering::Acquire));
        self.remove_cells(id, &foreign)?;
        let entry = table.get_mut(id).expect("looked at just now");
        let (number, base) = (entry.row.lineage.origin, entry.base);
        take_trees(entry);
        let lineage = &mut entry.row.lineage;
        (lineage.origin, lineage.shared, lineage.shared_logical) = (DatasetId(0), 0, 0);
        if !own.is_empty() {
            let cell = CellId { left: snapped.max(base.next()), born: base };
            self.put(id, cell, &own, self.sum_of(&own))?;
            entry.add_dead(base, cell.left.next());
        }
        self.release_origin(table, number)
    }

    /// Takes everything from what was kept of a snapshot that broke off: its blocks go with their
    /// segments.
    fn forget(&self, table: &mut Table, kept: Emptying) -> Result<()> {
        let Emptying { id, foreign, .. } = kept;
        self.remove_cells(id, &foreign)?;
        let entry = table.get_mut(id).expect("looked at just now");
        take_trees(entry);
        entry.deadlist.set_chain(Vec::new(), Txg(0));
        let lineage = &mut entry.row.lineage;
        (lineage.kept, lineage.kept_logical) = (0, 0);
        (entry.receiving, entry.receive_dirty) = (None, true);
        Ok(())
    }

    /// Removes cells, and not what they name.
    fn remove_cells(&self, id: DatasetId, cells: &[(CellId, Cell)]) -> Result<()> {
        cells.iter().try_for_each(|(cell, _)| self.remove_cell(id, *cell))
    }

    /// Drops the segments of owners that nobody has any more. Gives these owners. Sync context.
    /// [destroy.3]
    fn drop_owners(&self) -> Result<BTreeSet<DatasetId>> {
        let owners = self.table.read().doomed_owners();
        for (owner, ids) in &owners {
            {
                let table = self.table.read();
                let entries: Vec<&Entry> = ids.iter().filter_map(|id| table.get(*id)).collect();
                if entries.iter().any(|entry| owes(entry)) || entries.iter().all(|entry| entry.dropped) {
                    continue;
                }
            }
            self.core.space.drop_owner(*owner);
            self.core.references.drop_owner(*owner)?;
            let mut table = self.table.write();
            for id in ids {
                if let Some(entry) = table.get_mut(*id) {
                    take_trees(entry);
                    entry.dropped = true;
                }
            }
        }
        Ok(owners.into_keys().collect())
    }

    /// Frees blocks of datasets that are being destroyed, a bounded number in each commit. Sync
    /// context.
    pub(crate) fn destroy_step(&self, txg: Txg) -> Result<()> {
        let owners = self.drop_owners()?;
        let doomed: Vec<DatasetId> =
            self.table.read().iter_all().filter(|(_, e)| e.row.destroying).map(|(id, _)| id).collect();
        let mut goes_on = false;
        for id in doomed {
            self.core.health.changed.note();
            let (by_owner, head) = {
                let table = self.table.read();
                // A row outlives those below it, and those that take their key from it: import
                // joins every row to the root dataset by its parents, and to its encryption root.
                let needs = |(other, entry): (DatasetId, &Entry)| {
                    entry.row.parent == id || other != id && table.encryption_root(other) == Some(id)
                };
                if table.iter_all().any(needs) {
                    continue;
                }
                let Some(entry) = table.get(id) else { continue };
                if owes(entry) {
                    goes_on = true;
                    continue;
                }
                let head = entry.open.as_ref().map(|open| Arc::clone(&open.head));
                (entry.owner().filter(|owner| owners.contains(owner)).map(|_| entry.dropped), head)
            };
            let done = match (by_owner, head) {
                (Some(dropped), _) => {
                    goes_on |= !dropped;
                    dropped
                }
                (None, Some(head)) => {
                    head.set_frees_room(self.core.frees_max());
                    let (done, result) = head.destroy_step(txg)?;
                    self.take_result(id, &result);
                    goes_on |= !done;
                    done
                }
                // A clone was emptied when it was destroyed.
                (None, None) => self
                    .table
                    .read()
                    .get(id)
                    .is_some_and(|entry| entry.row.names.is_none() && entry.row.extents.is_none()),
            };
            if done {
                self.table.write().remove(id);
                self.zil.held.lock().release(id);
            }
        }
        self.destroying.store(goes_on, Ordering::Relaxed);
        Ok(())
    }
}

fn is_clone(table: &Table, id: DatasetId) -> bool {
    table.get(id).is_some_and(|entry| entry.row.lineage.origin.0 != 0)
}

/// Nobody reads what a dataset has any more.
fn take_trees(entry: &mut Entry) {
    entry.open = None;
    let row = &mut entry.row;
    (row.names, row.extents) = (None, None);
    (row.used, row.data, row.logical, row.files) = (0, 0, 0, 0);
    (row.destroying, entry.row_dirty) = (true, true);
}

/// Refuses to destroy what has to be read and cannot be: its key is not loaded, and its blocks lie
/// beside those of others.
fn check_keys(table: &Table, doomed: &Doomed) -> Result<()> {
    for (id, name) in &doomed.names {
        let entry = table.get(*id).expect("just found");
        if !entry.is_encrypted() || entry.keys.is_some() || doomed.is_unread(table, *id) {
            continue;
        }
        let root = table.key_name(*id);
        let stays = |(other, of): &(DatasetId, &Entry)| {
            of.owner() == entry.owner() && !of.row.destroying && !doomed.ids.contains(other)
        };
        let mut beside: Vec<String> =
            table.iter_all().filter(stays).map(|(other, _)| table.full_name(other)).collect();
        let more = beside.len().saturating_sub(NAMES_TOLD);
        beside.truncate(NAMES_TOLD);
        beside.extend((more > 0).then(|| format!("{more} others")));
        return match beside.is_empty() {
            true => Err(Error::KeyNotLoaded { name: root }),
            false => Err(Error::BlocksBeside { name: name.clone(), root, beside }),
        };
    }
    Ok(())
}
