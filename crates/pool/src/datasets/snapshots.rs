//! Snapshots of datasets: taken, measured, read, destroyed. `docs/decisions/0090-snapshots.md`.
//!
//! A snapshot is taken by a commit, between the sync of the datasets and the writing of their rows:
//! it is the roots that this commit stores. Several that are asked for together are one commit, all
//! or none. Destroying one removes its row at once. Blocks that only it held go into a dead range,
//! which later commits free (`deadlist.rs`).

use crate::datasets::snapshot::Answer;
use crate::datasets::snapshot::Request;
use crate::datasets::snapshot::Snapshot;
use crate::datasets::state::Datasets;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use steadfast_dataset::Dataset;
use steadfast_format::{CellId, DatasetId, MetaKey, SnapshotRow, Txg, meta_keys};
use steadfast_property::Local;

use crate::core::error::{Error, Result};
use crate::datasets::dataset::check_next_inode;
use crate::datasets::notes::Notes;
use crate::datasets::table::{Entry, Table};
use steadfast_refs::deadlist::Sum;

/// Feature of pools with snapshots.
pub(crate) const FEATURE: &str = "snapshots";

/// Figures and state of a snapshot that `zfs list` and `zfs get` show.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SnapshotInfo {
    /// Full name, with its dataset's.
    pub name: String,
    /// Number.
    pub number: DatasetId,
    /// Names it wherever it goes.
    pub guid: u64,
    /// Txg whose roots it keeps.
    pub txg: Txg,
    /// Seconds since 1970.
    pub created_seconds: u64,
    /// Bytes it refers to.
    pub referenced: u64,
    /// Bytes that only it holds.
    pub used: u64,
    /// Bytes it refers to that the snapshot before it did not.
    pub written: u64,
    /// Bytes of its data before compression.
    pub logical: u64,
    /// Bytes of its data on devices.
    pub data: u64,
    /// Inodes.
    pub files: u64,
    /// It goes when nothing keeps it any more.
    pub deferred: bool,
    /// Tags that keep it.
    pub holds: u64,
    /// Full names of its clones.
    pub clones: Vec<String>,
    /// Properties of users.
    pub props: Local,
    /// Which of these came with a stream.
    pub counting: BTreeSet<String>,
    /// Properties received with a stream, counting or not.
    pub received: Local,
}

/// A snapshot that is read.
#[derive(Clone)]
pub struct SnapshotHandle {
    dataset: Arc<Dataset>,
    number: DatasetId,
    gone: Arc<RwLock<bool>>,
}

impl SnapshotHandle {
    /// Number.
    #[must_use]
    pub fn number(&self) -> DatasetId {
        self.number
    }

    /// The snapshot as a dataset. The caller makes sure that it stays.
    pub(crate) fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Reads from it, if it is still there. While `read` runs nothing of it is freed.
    pub fn with<R>(&self, read: impl FnOnce(&Arc<Dataset>) -> R) -> Option<R> {
        let gone = self.gone.read();
        (!*gone).then(|| read(&self.dataset))
    }
}

/// The snapshots of a dataset that is in use.
#[derive(Clone)]
pub struct SnapshotsOf {
    pub(crate) datasets: Weak<Datasets>,
    pub(crate) id: DatasetId,
}

impl SnapshotsOf {
    /// Names and numbers, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<(String, DatasetId)> {
        let Some(datasets) = self.datasets.upgrade() else { return Vec::new() };
        let table = datasets.table.read();
        let Some(entry) = table.get(self.id) else { return Vec::new() };
        entry.snapshots.values().map(|s| (s.row.name.clone(), s.row.number)).collect()
    }

    /// When one was last taken or destroyed, nanoseconds since 1970; 0 if that is not known.
    #[must_use]
    pub fn changed_ns(&self) -> u64 {
        let datasets = self.datasets.upgrade();
        datasets.and_then(|datasets| datasets.table.read().get(self.id)?.snapshots_changed_ns()).unwrap_or(0)
    }

    /// True if they are to be listed at the top of the file system (`snapdir`).
    #[must_use]
    pub fn is_visible(&self) -> bool {
        let value = self
            .datasets
            .upgrade()
            .and_then(|datasets| datasets.table.read().resolve(self.id, "snapdir", "/"));
        value.is_some_and(|resolved| resolved.value == "visible")
    }

    /// Opens one for reading.
    #[must_use]
    pub fn open(&self, name: &str) -> Option<SnapshotHandle> {
        let datasets = self.datasets.upgrade()?;
        datasets.open_snapshot(self.id, name).ok()
    }

    /// Opens the one with this number for reading, whatever its name is now.
    #[must_use]
    pub fn open_number(&self, number: DatasetId) -> Option<SnapshotHandle> {
        let name_of = || {
            let datasets = self.datasets.upgrade()?;
            let table = datasets.table.read();
            let mut snapshots = table.get(self.id)?.snapshots.values();
            snapshots.find(|s| s.row.number == number).map(|s| s.row.name.clone())
        };
        // Another one may have the name a moment later.
        self.open(&name_of()?).filter(|opened| opened.number() == number)
    }

    /// The number of the one with this name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<DatasetId> {
        let datasets = self.datasets.upgrade()?;
        let table = datasets.table.read();
        let mut snapshots = table.get(self.id)?.snapshots.values();
        snapshots.find(|s| s.row.name == name).map(|s| s.row.number)
    }
}

/// A snapshot that stays as long as this lives.
#[derive(Clone)]
pub(crate) struct Pin {
    pub row: SnapshotRow,
    pub txg: Txg,
    _pin: Arc<()>,
}

impl Entry {
    /// The row of a snapshot of it as it is: with this number and name, that guid and that time.
    pub fn as_snapshot(
        &self,
        number: DatasetId,
        name: String,
        (guid, created_ns): (u64, u64),
    ) -> SnapshotRow {
        SnapshotRow {
            number,
            guid,
            created_ns,
            names: self.row.names,
            extents: self.row.extents,
            used: self.row.used,
            data: self.row.data,
            logical: self.row.logical,
            files: self.row.files,
            next_inode: self.row.next_inode,
            deferred: false,
            name,
        }
    }

    /// The txg of a snapshot by its name.
    pub fn snapshot(&self, name: &str) -> Option<Txg> {
        self.snapshots.iter().find(|(_, snapshot)| snapshot.row.name == name).map(|(txg, _)| *txg)
    }

    /// Cells from one txg up to below another are to be freed; what was to be freed within that is
    /// a part of it.
    pub fn add_dead(&mut self, after: Txg, before: Txg) {
        let inside: Vec<Txg> =
            self.dead.range(after..).filter(|(_, end)| **end <= before).map(|(at, _)| *at).collect();
        for at in inside {
            self.dead.remove(&at);
            self.dead_dirty.insert(at);
        }
        self.dead.insert(after, before);
        self.dead_dirty.insert(after);
    }

    /// True if a cell is to be freed.
    pub fn is_dead(&self, cell: CellId) -> bool {
        let of =
            |(after, before): (&Txg, &Txg)| *after < cell.left && cell.left < *before && cell.born < *before;
        self.dead.range(..=cell.born).any(of)
    }

    /// The snapshots before and after a txg: where nothing is, the origin or 0, and the end of
    /// time.
    pub fn neighbours(&self, txg: Txg) -> (Txg, Txg) {
        let before = self.snapshots.range(..txg).next_back().map_or(self.base, |(txg, _)| *txg);
        let after = self.snapshots.range(txg.next()..).next().map_or(Txg(u64::MAX), |(txg, _)| *txg);
        (before, after)
    }
}

impl Table {
    /// Dataset and txg of each snapshot by its number.
    pub fn snapshots_by_number(&self) -> BTreeMap<DatasetId, (DatasetId, Txg)> {
        let of = |(id, entry): (DatasetId, &Entry)| {
            let numbers = entry.snapshots.iter().map(|(txg, s)| (s.row.number, (id, *txg)));
            numbers.collect::<Vec<_>>()
        };
        self.iter_all().flat_map(of).collect()
    }

    /// Dataset and txg of a snapshot, of the dataset that has it and lies nearest to `near`: below
    /// that, then below what is above it, and so on.
    pub fn snapshot_of_guid(&self, guid: u64, raw: bool, near: DatasetId) -> Option<(DatasetId, Txg)> {
        let of = |entry: &Entry| {
            let found = entry.snapshots.iter().find(|(_, snapshot)| snapshot.row.guid == guid);
            found.map(|(txg, _)| *txg).filter(|_| !entry.row.destroying && entry.row.raw == raw)
        };
        let found: Vec<(DatasetId, Txg)> =
            self.iter().filter_map(|(id, entry)| Some((id, of(entry)?))).collect();
        let nearest = |above: DatasetId| found.iter().find(|(id, _)| self.is_within(*id, above)).copied();
        self.ancestry(near).into_iter().rev().find_map(nearest)
    }

    /// Dataset and txg of a snapshot by its full name.
    pub fn find_snapshot(&self, name: &str) -> Result<(DatasetId, Txg)> {
        let missing = || Error::NoSuchSnapshot { name: name.to_owned() };
        let (dataset, snapshot) = name.split_once('@').ok_or_else(missing)?;
        let id = self.find(dataset)?;
        let txg = self.get(id).and_then(|entry| entry.snapshot(snapshot)).ok_or_else(missing)?;
        Ok((id, txg))
    }
}

/// Finds many snapshots by their full names, with an index of the names of each dataset that is
/// asked for: to look for each of n snapshots among n would take n² comparisons.
pub(crate) struct Finder<'t> {
    table: &'t Table,
    names: BTreeMap<DatasetId, HashMap<&'t str, Txg>>,
}

impl<'t> Finder<'t> {
    pub fn new(table: &'t Table) -> Finder<'t> {
        Finder { table, names: BTreeMap::new() }
    }

    /// As [`Table::find_snapshot`] does.
    pub fn find(&mut self, name: &str) -> Result<(DatasetId, Txg)> {
        let missing = || Error::NoSuchSnapshot { name: name.to_owned() };
        let (dataset, snapshot) = name.split_once('@').ok_or_else(missing)?;
        let id = self.table.find(dataset)?;
        let index = || {
            let entry = self.table.get(id).expect("just found");
            entry.snapshots.iter().map(|(txg, snapshot)| (snapshot.row.name.as_str(), *txg)).collect()
        };
        let txg = self.names.entry(id).or_insert_with(index).get(snapshot).copied();
        Ok((id, txg.ok_or_else(missing)?))
    }
}

/// A dead range between two txgs, and what snapshots hold of it.
pub(crate) type Removal = (Txg, Txg, Sum);

/// Takes snapshots out as it was planned.
pub(crate) fn take_out(
    table: &mut Table,
    id: DatasetId,
    (txgs, now_ns): (&[Txg], u64),
    removal: Vec<Removal>,
) {
    let mut removed = Vec::new();
    let entry = table.get_mut(id).expect("looked at just now");
    entry.snapshots_changed_ns = now_ns;
    for txg in txgs {
        if let Some(snapshot) = entry.snapshots.remove(txg) {
            entry.snapshots_dirty.insert(*txg);
            removed.push(snapshot);
        }
    }
    for (after, before, sum) in removal {
        entry.add_dead(after, before);
        let lineage = &mut entry.row.lineage;
        lineage.kept = lineage.kept.saturating_sub(sum.bytes);
        lineage.kept_logical = lineage.kept_logical.saturating_sub(sum.logical);
        entry.row_dirty = true;
    }
    table.note_snapshots(id);
    for snapshot in removed {
        // Waits for the readers; nobody reads it afterwards.
        *snapshot.gone.write() = true;
        let mut names: Vec<String> = snapshot.received.names().cloned().collect();
        names.extend(snapshot.props.into_keys().chain(snapshot.props_dirty));
        let tags = snapshot.holds.into_keys().chain(snapshot.holds_dirty);
        table.remove_traces(snapshot.row.number, names, tags.collect());
    }
}

impl Datasets {
    /// When a snapshot of a dataset was last taken or destroyed, seconds since 1970.
    #[must_use]
    pub fn snapshots_changed(&self, id: DatasetId) -> Option<u64> {
        Some(self.table.read().get(id)?.snapshots_changed_ns()? / 1_000_000_000)
    }

    /// Takes snapshots (`pool/fs@name`), of one moment, all or none, each with these properties.
    /// Durable when it returns.
    pub fn take_snapshots(&self, names: &[String], props: &Local) -> Result<()> {
        self.core.check_writable()?;
        self.core.need_feature(FEATURE)?;
        let of = {
            let table = self.table.read();
            let mut of: Vec<(DatasetId, String)> = Vec::new();
            for name in names {
                let missing = || Error::NoSuchSnapshot { name: name.clone() };
                let (dataset, snapshot) = name.split_once('@').ok_or_else(missing)?;
                let id = table.find(dataset)?;
                if of.iter().any(|(other, _)| *other == id) {
                    return Err(Error::SnapshotTwice { name: dataset.to_owned() });
                }
                of.push((id, snapshot.to_owned()));
            }
            let more: Vec<(DatasetId, u64)> = of.iter().map(|(id, _)| (*id, 1)).collect();
            self.check_snapshot_limits(&table, &more, &[])?;
            of
        };
        for (id, _) in &of {
            self.check_snapshot(*id)?;
        }
        let answer = Arc::new(Mutex::new(None));
        let open = self.core.txgs.gate.open_txg();
        let (props, notes) = (props.clone(), Notes::default());
        let request = Request { open, of, props, origin: None, notes, answer: Arc::clone(&answer) };
        self.asked.lock().push(request);
        self.await_answer(&answer)
    }

    /// The next commit takes a snapshot of a dataset that was received: with the guid and the time
    /// it had where it came from, and what came with it. [notes.1]
    pub(crate) fn ask_for(&self, id: DatasetId, name: String, origin: (u64, u64), notes: Notes) -> Answer {
        let answer = Arc::new(Mutex::new(None));
        let (open, of, props) = (self.core.txgs.gate.open_txg(), vec![(id, name)], Local::new());
        let request = Request { open, of, props, origin: Some(origin), notes, answer: Arc::clone(&answer) };
        // Before those of the same name that others asked for: its content is there already.
        self.asked.lock().insert(0, request);
        answer
    }

    /// Commits until what was asked for is answered.
    pub(crate) fn await_answer(&self, answer: &Answer) -> Result<()> {
        loop {
            self.core.commit_changes()?;
            if let Some(answer) = answer.lock().take() {
                return answer;
            }
        }
    }

    /// Refuses a snapshot that would not hold what was promised.
    fn check_snapshot(&self, id: DatasetId) -> Result<()> {
        if self.zil.holds_log_of(id) {
            return Err(Error::KeyNotLoaded { name: self.table.read().key_name(id) });
        }
        Ok(())
    }

    /// Takes the snapshots that were asked for before `txg` closed. Sync context, under `figures`,
    /// when rows have the new roots.
    pub(crate) fn take_asked(&self, txg: Txg) {
        self.snapped.store(txg.0, std::sync::atomic::Ordering::Release);
        let asked = std::mem::take(&mut *self.asked.lock());
        for request in asked {
            let mut table = self.table.write();
            let taken = |(id, _): &(DatasetId, String)| {
                table.get(*id).is_some_and(|entry| entry.unborn || entry.snapshots.contains_key(&txg))
            };
            // A commit takes one snapshot of a dataset, and none of what it does not store.
            if request.open > txg || request.of.iter().any(taken) {
                drop(table);
                self.asked.lock().push(request);
                self.core.health.changed.note();
                continue;
            }
            let refused = request.of.iter().find_map(|(id, name)| {
                let full = || format!("{}@{name}", table.full_name(*id));
                match table.get(*id) {
                    None => Some(Error::NoSuchDataset { name: format!("<{id}>") }),
                    Some(entry) if entry.row.destroying => Some(Error::NoSuchDataset { name: full() }),
                    Some(entry) if entry.snapshot(name).is_some() => {
                        Some(Error::SnapshotExists { name: full() })
                    }
                    Some(_) => None,
                }
            });
            // Received content belongs to the dataset already.
            let check_reserved = || self.check_reserved(&table, txg, &request.of).err();
            let refused = refused.or_else(|| request.origin.is_none().then(check_reserved).flatten());
            if let Some(refused) = refused {
                *request.answer.lock() = Some(Err(refused));
                continue;
            }
            let created_ns = self.core.now_ns();
            for (id, name) in request.of {
                let number = table.take_id();
                let entry = table.get_mut(id).expect("looked at just now");
                let new = || (self.core.env.random.nonzero_u64(), created_ns);
                let row = entry.as_snapshot(number, name, request.origin.unwrap_or_else(new));
                let mut snapshot = Snapshot::new(row, request.props.clone());
                snapshot.take_notes(&request.notes, created_ns);
                entry.snapshots.insert(txg, snapshot);
                entry.snapshots_dirty.insert(txg);
                entry.snapshots_changed_ns = created_ns;
                table.note_snapshots(id);
            }
            *request.answer.lock() = Some(Ok(()));
        }
    }

    /// Refuses to destroy snapshots, if one of them could not be even without clones: something
    /// keeps it.
    pub fn check_destroy_snapshots(&self, names: &[String], defer: bool) -> Result<()> {
        let table = self.table.read();
        let mut finder = Finder::new(&table);
        for name in names {
            let (id, txg) = finder.find(name)?;
            self.check_unneeded(&table, name, id, txg)?;
            let snapshot = &table.get(id).expect("just found").snapshots[&txg];
            if !defer && !snapshot.holds.is_empty() {
                let tags = snapshot.holds.keys().cloned().collect();
                return Err(Error::SnapshotHeld { name: name.clone(), tags });
            }
        }
        Ok(())
    }

    /// A snapshot that nobody reads and that nothing is received upon.
    pub(crate) fn find_unneeded(&self, table: &Table, name: &str) -> Result<(DatasetId, Txg)> {
        let (id, txg) = table.find_snapshot(name)?;
        self.check_unneeded(table, name, id, txg)?;
        Ok((id, txg))
    }

    /// Refuses a snapshot that somebody reads, or that something is received upon.
    fn check_unneeded(&self, table: &Table, name: &str, id: DatasetId, txg: Txg) -> Result<()> {
        self.check_receives(table, id, |base| base == txg)?;
        match table.get(id).expect("it was found").snapshots[&txg].is_pinned() {
            true => Err(Error::SnapshotPinned { name: name.to_owned() }),
            false => Ok(()),
        }
    }

    /// Destroys snapshots, all or none; space comes back in the background. Those that tags keep
    /// are refused, or with `defer` go when nothing keeps them any more.
    pub fn destroy_snapshots(&self, names: &[String], defer: bool) -> Result<()> {
        self.core.check_writable()?;
        {
            let _figures = self.figures.write();
            let mut table = self.table.write();
            let mut doomed: BTreeMap<DatasetId, Vec<Txg>> = BTreeMap::new();
            let mut deferred = Vec::new();
            let mut finder = Finder::new(&table);
            for name in names {
                let (id, txg) = finder.find(name)?;
                self.check_unneeded(&table, name, id, txg)?;
                let snapshot = &table.get(id).expect("just found").snapshots[&txg];
                let clones = table.clones_of(snapshot.row.number);
                match snapshot.holds.is_empty() {
                    true if clones.is_empty() => doomed.entry(id).or_default().push(txg),
                    _ if defer => deferred.push((id, txg)),
                    true => {
                        let clones = clones.into_iter().map(|clone| table.full_name(clone)).collect();
                        return Err(Error::HasClones { name: name.clone(), clones });
                    }
                    false => {
                        let tags = snapshot.holds.keys().cloned().collect();
                        return Err(Error::SnapshotHeld { name: name.clone(), tags });
                    }
                }
            }
            // Nothing is changed before all is known, of all of them.
            let mut removals = Vec::new();
            for (id, txgs) in doomed {
                removals.push((id, self.plan_removal(&table, id, &txgs)?, txgs));
            }
            for (id, removal, txgs) in removals {
                take_out(&mut table, id, (&txgs, self.core.now_ns()), removal);
            }
            for (id, txg) in deferred {
                self.defer(&mut table, id, txg);
            }
        }
        self.core.commit_changes()
    }

    /// Takes snapshots out of the table and leaves what only they held in dead ranges. Under
    /// `figures`.
    pub(crate) fn remove_snapshots(&self, table: &mut Table, id: DatasetId, txgs: &[Txg]) -> Result<()> {
        // Nothing is changed before all is known.
        let removal = self.plan_removal(table, id, txgs)?;
        take_out(table, id, (txgs, self.core.now_ns()), removal);
        Ok(())
    }

    /// Dead ranges that the removal of snapshots leaves.
    pub(crate) fn plan_removal(&self, table: &Table, id: DatasetId, txgs: &[Txg]) -> Result<Vec<Removal>> {
        let snapped = Txg(self.snapped.load(std::sync::atomic::Ordering::Acquire));
        let entry = table.get(id).expect("it has snapshots");
        let mut removal = Vec::new();
        for (after, before) in entry.runs_of(txgs, snapped) {
            removal.push((after, before, self.held_within(id, entry, after, before)?));
        }
        Ok(removal)
    }

    /// Sum of the cells between two txgs that snapshots hold; a dead range names the same cells.
    fn held_within(&self, id: DatasetId, entry: &Entry, after: Txg, before: Txg) -> Result<Sum> {
        let mut sum = Sum::default();
        self.visit_cells(id, after.next()..before, after..before, |cell, held| {
            if entry.deadlist.holds(cell) {
                sum.add(&held);
            }
            true
        })?;
        Ok(sum)
    }

    /// Bytes that would come back if these snapshots were destroyed together.
    pub fn reclaimable(&self, names: &[String]) -> Result<u64> {
        let _figures = self.figures.read();
        let table = self.table.read();
        let mut doomed: BTreeMap<DatasetId, Vec<Txg>> = BTreeMap::new();
        let mut finder = Finder::new(&table);
        for name in names {
            let (id, txg) = finder.find(name)?;
            doomed.entry(id).or_default().push(txg);
        }
        let snapped = Txg(self.snapped.load(std::sync::atomic::Ordering::Acquire));
        let mut bytes = 0;
        for (id, txgs) in doomed {
            let entry = table.get(id).expect("just found");
            for (after, before) in entry.runs_of(&txgs, snapped) {
                bytes += self.held_within(id, entry, after, before)?.bytes;
            }
        }
        Ok(bytes)
    }

    /// Bytes that a dataset refers to and one of its snapshots, or its origin, does not:
    /// `written@`. Under `figures`.
    pub(crate) fn written_since(
        &self,
        table: &Table,
        id: DatasetId,
        since: Txg,
        until: Option<Txg>,
    ) -> Result<u64> {
        let entry = table.get(id).expect("whoever asks has found it");
        let now = match until {
            Some(txg) => entry.snapshots[&txg].row.used,
            None => entry.row.used,
        };
        let then = match entry.snapshots.get(&since) {
            Some(snapshot) => snapshot.row.used,
            None if since.0 != 0 && since == entry.base => table.origin_bytes(id),
            None => return Ok(now),
        };
        let left = self.sum_of_cells(id, since..until.unwrap_or(Txg(u64::MAX)), Txg(0)..since)?;
        Ok((now + left.bytes).saturating_sub(then))
    }

    /// Bytes that a dataset has written since its youngest snapshot, or its origin. Under
    /// `figures`.
    pub(crate) fn written(&self, table: &Table, id: DatasetId) -> Result<u64> {
        let entry = table.get(id).expect("whoever asks has found it");
        let last = entry.snapshots.keys().next_back().copied();
        self.written_since(table, id, last.unwrap_or(entry.base), None)
    }

    /// Bytes that a dataset refers to and a snapshot of it does not.
    pub fn written_since_name(&self, dataset: &str, snapshot: &str) -> Result<u64> {
        let _figures = self.figures.read();
        let table = self.table.read();
        let name = format!("{dataset}@{snapshot}");
        let (id, txg) = table.find_snapshot(&name)?;
        self.written_since(&table, id, txg, None)
    }

    /// Measured values of a dataset's snapshots, oldest first, or of the one of that name.
    pub fn snapshot_infos(&self, dataset: &str, only: Option<&str>) -> Result<Vec<SnapshotInfo>> {
        let _figures = self.figures.read();
        let table = self.table.read();
        let id = table.find(dataset)?;
        let entry = table.get(id).expect("just found");
        let mut infos = Vec::new();
        let clones = table.clone_names();
        for (&txg, snapshot) in &entry.snapshots {
            let row = &snapshot.row;
            if only.is_some_and(|only| only != row.name) {
                continue;
            }
            let (before, after) = entry.neighbours(txg);
            infos.push(SnapshotInfo {
                name: format!("{dataset}@{}", row.name),
                number: row.number,
                guid: row.guid,
                txg,
                created_seconds: row.created_ns / 1_000_000_000,
                referenced: row.used,
                used: self.sum_of_cells(id, txg..after, before..txg)?.bytes,
                written: self.written_since(&table, id, before, Some(txg))?,
                logical: row.logical,
                data: row.data,
                files: row.files,
                deferred: row.deferred,
                holds: snapshot.holds.len() as u64,
                clones: clones.get(&row.number).cloned().unwrap_or_default(),
                props: snapshot.props.clone(),
                counting: snapshot.received.counting().clone(),
                received: snapshot.received.values(),
            });
        }
        if infos.is_empty()
            && let Some(only) = only
        {
            return Err(Error::NoSuchSnapshot { name: format!("{dataset}@{only}") });
        }
        Ok(infos)
    }

    /// Names of a dataset's snapshots (what follows the `@`), oldest first.
    pub fn snapshot_names(&self, dataset: &str) -> Result<Vec<String>> {
        let table = self.table.read();
        let id = table.find(dataset)?;
        let entry = table.get(id).expect("just found");
        Ok(entry.snapshots.values().map(|snapshot| snapshot.row.name.clone()).collect())
    }

    /// Opens a snapshot for reading. Its readers share the open snapshot.
    pub(crate) fn open_snapshot(&self, id: DatasetId, name: &str) -> Result<SnapshotHandle> {
        let stored = self.open_stored(id, name)?;
        if !self.is_raw(id) {
            return Ok(stored);
        }
        let known = |view: &mut dyn FnMut(&mut Snapshot)| {
            let mut table = self.table.write();
            let entry = table.get_mut(id);
            let snapshot = entry.and_then(|entry| entry.snapshots.values_mut().find(|s| s.row.name == name));
            snapshot.into_iter().for_each(view);
        };
        let mut view = None;
        known(&mut |snapshot| view = snapshot.view.upgrade());
        if view.is_none() {
            let made = self.raw_view(id, vec![Arc::clone(&stored.dataset)])?.dataset;
            known(&mut |snapshot| snapshot.view = Arc::downgrade(&made));
            view = Some(made);
        }
        Ok(SnapshotHandle { dataset: view.expect("made just now"), ..stored })
    }

    /// The same as it is stored: of a raw dataset, its files.
    pub(crate) fn open_stored(&self, id: DatasetId, name: &str) -> Result<SnapshotHandle> {
        self.open_head(id)?;
        let settings = self.settings_of(id);
        let mut table = self.table.write();
        let full = || Error::NoSuchSnapshot { name: name.to_owned() };
        let entry = table.get_mut(id).ok_or_else(full)?;
        let txg = entry.snapshot(name).ok_or_else(full)?;
        let blocks = Arc::clone(&entry.open.as_ref().ok_or_else(full)?.blocks);
        let mut row = entry.row.clone();
        let snapshot = entry.snapshots.get_mut(&txg).ok_or_else(full)?;
        let (number, gone) = (snapshot.row.number, Arc::clone(&snapshot.gone));
        if let Some(dataset) = snapshot.open.upgrade() {
            return Ok(SnapshotHandle { dataset, number, gone });
        }
        row.names = snapshot.row.names;
        row.extents = snapshot.row.extents;
        (row.used, row.data, row.logical) = (snapshot.row.used, snapshot.row.data, snapshot.row.logical);
        (row.files, row.next_inode) = (snapshot.row.files, snapshot.row.next_inode);
        let dataset = Arc::new(Dataset::open(self.parts(&row, &blocks, settings))?);
        check_next_inode(&dataset, row.raw)?;
        snapshot.open = Arc::downgrade(&dataset);
        Ok(SnapshotHandle { dataset, number, gone })
    }

    /// Snapshots, as stored.
    pub(crate) fn load_snapshots(&self, pool: &str, newest: Txg) -> Result<()> {
        self.snapped.store(newest.0, std::sync::atomic::Ordering::Release);
        let mut names: BTreeSet<(DatasetId, String)> = BTreeSet::new();
        for item in self.core.items_of(meta_keys::SNAPSHOT) {
            let (MetaKey::Snapshot(id, txg), value) = item? else { continue };
            let row = SnapshotRow::decode(&value);
            let row = row.map_err(|source| self.core.corrupt(pool, "a snapshot row", source))?;
            let mut table = self.table.write();
            let bad = |reason: String| Error::BadDataset { dataset: id, reason };
            if row.number >= table.next_id() || txg.0 == 0 || txg > newest {
                return Err(bad(format!("its snapshot {:?} contradicts the rest of the pool", row.name)));
            }
            if steadfast_property::check_snapshot_name(&format!("p@{}", row.name)).is_err() {
                return Err(bad(format!("the name {:?} of its snapshot is none", row.name)));
            }
            let Some(entry) = table.get_mut(id) else {
                return Err(bad(format!("it has a snapshot {:?} and is not there", row.name)));
            };
            if !names.insert((id, row.name.clone())) {
                return Err(bad(format!("it has two snapshots {:?}", row.name)));
            }
            let mut snapshot = Snapshot::new(row.bounded(), Local::new());
            snapshot.props_dirty.clear();
            entry.snapshots.insert(txg, snapshot);
        }
        self.load_dead(pool)?;
        self.load_holds(pool)?;
        self.load_origins()?;
        self.load_bookmarks(pool)?;
        self.load_receives(pool)
    }

    /// Keeps a snapshot from being destroyed.
    pub(crate) fn pin(&self, name: &str) -> Result<(DatasetId, Pin)> {
        let table = self.table.read();
        let (id, txg) = table.find_snapshot(name)?;
        let snapshot = &table.get(id).expect("just found").snapshots[&txg];
        Ok((id, Pin { row: snapshot.row.clone(), txg, _pin: Arc::clone(&snapshot.pins) }))
    }
}

impl Entry {
    /// Dead ranges that are left when snapshots go, one for each run of neighbours among them.
    fn runs_of(&self, txgs: &[Txg], snapped: Txg) -> Vec<(Txg, Txg)> {
        let doomed: BTreeSet<Txg> = txgs.iter().copied().collect();
        let mut runs: Vec<(Txg, Txg)> = Vec::new();
        let mut after = self.base;
        let mut open = false;
        for &txg in self.snapshots.keys() {
            if doomed.contains(&txg) {
                open = true;
                continue;
            }
            if std::mem::take(&mut open) {
                runs.push((after, txg));
            }
            after = txg;
        }
        if open {
            // Cells of snapshots that are long gone may lie above the youngest one; those to come
            // are younger than this commit.
            runs.push((after, snapped.next()));
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_received_gets_its_snapshot_before_others_get_one_of_that_name() {
        let pool = crate::test_pool::tank();
        let id = pool.datasets.table.read().find("tank").expect("the root");
        let (theirs, ours) = {
            let _turn = pool.core.sync_turn.lock();
            let answer = Arc::new(Mutex::new(None));
            let open = pool.core.txgs.gate.open_txg();
            pool.datasets.asked.lock().push(Request {
                open,
                of: vec![(id, "a".into())],
                props: Local::new(),
                origin: None,
                notes: Notes::default(),
                answer: Arc::clone(&answer),
            });
            (answer, pool.datasets.ask_for(id, "a".into(), (77, 5), Notes::default()))
        };
        pool.datasets.await_answer(&ours).expect("taken");
        assert!(matches!(pool.datasets.await_answer(&theirs), Err(Error::SnapshotExists { .. })));
        let infos = pool.datasets().snapshot_infos("tank", None).expect("listed");
        assert_eq!(
            infos.iter().map(|info| (info.name.as_str(), info.guid)).collect::<Vec<_>>(),
            [("tank@a", 77)]
        );
    }
}
