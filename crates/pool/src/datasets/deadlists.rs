//! The deadlists of datasets, as stored: read, written, freed.

use crate::core::error::Result;
use crate::datasets::state::Datasets;
use steadfast_format::Cell;
use steadfast_format::CellId;
use steadfast_format::CellPlace;
use steadfast_format::DatasetId;
use steadfast_format::DeadRange;
use steadfast_format::MetaKey;
use steadfast_format::Txg;
use steadfast_format::meta_keys;
use steadfast_refs::deadlist::Sum;
use steadfast_refs::deadlist::Txgs;

/// Cells and runs of places that one commit frees, even if there is room for freeing more blocks.
const RUNS_PER_COMMIT: usize = 10_000;

/// Room that one commit has left for freeing.
struct Room {
    places: usize,
    runs: usize,
}

impl Datasets {
    /// Visits the cells of a dataset in rectangles of txgs, in order, until `visit` says no. Costs
    /// a seek for each first txg.
    pub(crate) fn visit_cells(
        &self,
        id: DatasetId,
        left: Txgs,
        born: Txgs,
        mut visit: impl FnMut(CellId, Cell) -> bool,
    ) -> Result<()> {
        let key = |left: Txg, born: Txg| MetaKey::Cell(id, CellId { left, born }).encode();
        let mut at = (left.start, born.start);
        while at.0 < left.end {
            let mut seek = None;
            for item in self.core.meta.range(key(at.0, at.1)..key(left.end, Txg(0))) {
                let (found, value) = item?;
                let Some(MetaKey::Cell(_, cell)) = MetaKey::decode(&found) else { continue };
                if cell.born < born.start {
                    seek = Some((cell.left, born.start));
                    break;
                }
                if cell.born >= born.end {
                    seek = Some((cell.left.next(), born.start));
                    break;
                }
                let sum =
                    Cell::decode(&value).map_err(|e| self.core.corrupt(&self.core.name(), "a cell", e))?;
                if !visit(cell, sum) {
                    return Ok(());
                }
            }
            match seek {
                Some(next) => at = next,
                None => break,
            }
        }
        Ok(())
    }

    /// Sum of the cells in a rectangle.
    pub(crate) fn sum_of_cells(&self, id: DatasetId, left: Txgs, born: Txgs) -> Result<Sum> {
        let mut sum = Sum::default();
        self.visit_cells(id, left, born, |_, cell| {
            sum.add(&cell);
            true
        })?;
        Ok(sum)
    }

    /// Writes what was let go in this commit into its cells. Sync context, under `figures`.
    pub(crate) fn note_cells(&self) -> Result<()> {
        let mut table = self.table.write();
        for (id, entry) in table.iter_mut() {
            for (cell, places) in entry.deadlist.take() {
                // [deadlist.2] Its holder may have gone since.
                debug_assert!(
                    entry.deadlist.is_shadow(cell) || entry.deadlist.holds(cell) || entry.is_dead(cell),
                    "{id}: {cell:?} is held by nobody and in no dead range"
                );
                let sum = self.sum_of(&places);
                self.put(id, cell, &places, sum)?;
                if entry.deadlist.is_shadow(cell) {
                    entry.row.lineage.shared = entry.row.lineage.shared.saturating_sub(sum.bytes);
                    entry.row.lineage.shared_logical =
                        entry.row.lineage.shared_logical.saturating_sub(sum.logical);
                    entry.row_dirty = true;
                } else if entry.deadlist.holds(cell) {
                    entry.row.lineage.kept = entry.row.lineage.kept.saturating_add(sum.bytes);
                    entry.row.lineage.kept_logical =
                        entry.row.lineage.kept_logical.saturating_add(sum.logical);
                    entry.row_dirty = true;
                }
            }
        }
        Ok(())
    }

    /// Bytes and number of some places.
    pub(crate) fn sum_of(&self, places: &[CellPlace]) -> Sum {
        let unit = 1_u64 << self.core.identity.ashift;
        let mut sum = Sum::default();
        for place in places {
            sum.bytes += u64::from(place.psize).next_multiple_of(unit);
            sum.logical += u64::from(place.logical);
        }
        sum
    }

    /// Adds places to a cell: its last run is filled up first, so that a cell is as short as it can
    /// be.
    pub(crate) fn put(&self, id: DatasetId, cell: CellId, mut places: &[CellPlace], more: Sum) -> Result<()> {
        let corrupt = |what, error| self.core.corrupt(&self.core.name(), what, error);
        let key = MetaKey::Cell(id, cell).encode();
        let mut sum = match self.core.meta.get(&key)? {
            Some(value) => Cell::decode(&value).map_err(|error| corrupt("a cell", error))?,
            None => Cell::default(),
        };
        sum.places = sum.places.saturating_add(places.len() as u64);
        sum.bytes = sum.bytes.saturating_add(more.bytes);
        sum.logical = sum.logical.saturating_add(more.logical);
        if let Some(last) = sum.next.checked_sub(1) {
            let run = MetaKey::CellRun(id, cell, last).encode();
            if let Some(value) = self.core.meta.get(&run)? {
                let mut known =
                    CellPlace::decode_run(&value).map_err(|error| corrupt("places of a cell", error))?;
                let (fill, rest) = places.split_at(places.len().min(CellPlace::RUN_MAX - known.len()));
                known.extend_from_slice(fill);
                places = rest;
                self.core.meta.insert(&run, &CellPlace::encode_run(&known))?;
            }
        }
        for run in places.chunks(CellPlace::RUN_MAX) {
            let number = MetaKey::CellRun(id, cell, sum.next).encode();
            self.core.meta.insert(&number, &CellPlace::encode_run(run))?;
            sum.next += 1;
        }
        self.core.meta.insert(&key, &sum.encode())?;
        Ok(())
    }

    /// Keys of the runs of a cell. Not all numbers below its next one need be there, and a forged
    /// cell may have any next one.
    pub(crate) fn runs_of(&self, id: DatasetId, cell: CellId) -> Result<Vec<Vec<u8>>> {
        let [from, to] = [0, u64::MAX].map(|number| MetaKey::CellRun(id, cell, number).encode());
        self.core.meta.range(from..to).map(|item| Ok(item?.0)).collect()
    }

    /// Removes a cell, and not what it names.
    pub(crate) fn remove_cell(&self, id: DatasetId, cell: CellId) -> Result<()> {
        for run in self.runs_of(id, cell)? {
            self.core.meta.remove(&run)?;
        }
        self.core.meta.remove(&MetaKey::Cell(id, cell).encode())?;
        Ok(())
    }

    /// Frees what no snapshot holds any more, a bounded part in each commit. True if there is more
    /// to do. Sync context.
    pub(crate) fn free_dead(&self) -> Result<bool> {
        let work: Vec<(DatasetId, Txg, Txg)> = {
            let table = self.table.read();
            let dead = |(id, entry): (DatasetId, &crate::datasets::table::Entry)| {
                let ranges: Vec<_> = entry.dead.iter().map(|(after, before)| (id, *after, *before)).collect();
                ranges
            };
            table.iter_all().flat_map(dead).collect()
        };
        let mut room = Room { places: 0, runs: RUNS_PER_COMMIT };
        if !work.is_empty() {
            room.places = self.core.frees_max();
        }
        for (id, after, before) in work {
            if !self.free_range(id, after, before, &mut room)? {
                self.core.health.changed.note();
                return Ok(true);
            }
            let mut table = self.table.write();
            let Some(entry) = table.get_mut(id) else { continue };
            // It may have been joined with another meanwhile.
            if entry.dead.get(&after) == Some(&before) {
                entry.dead.remove(&after);
                entry.dead_dirty.insert(after);
            }
        }
        Ok(false)
    }

    /// Frees the cells of a dead range. False if there was no room for all.
    fn free_range(&self, id: DatasetId, after: Txg, before: Txg, room: &mut Room) -> Result<bool> {
        let mut cells: Vec<(CellId, Cell)> = Vec::new();
        let limit = room.runs;
        self.visit_cells(id, after.next()..before, after..before, |cell, sum| {
            cells.push((cell, sum));
            cells.len() < limit
        })?;
        let all = cells.len() < limit;
        for (cell, sum) in cells {
            if !self.free_cell(id, cell, sum, room)? {
                return Ok(false);
            }
        }
        Ok(all)
    }

    /// Frees the places of a cell and removes it. False if there was no room for all.
    fn free_cell(&self, id: DatasetId, cell: CellId, mut sum: Cell, room: &mut Room) -> Result<bool> {
        let corrupt = |error| self.core.corrupt(&self.core.name(), "places of a cell", error);
        // A range that was forged frees nothing that is held, or another's.
        let keeps = |entry: &crate::datasets::table::Entry| {
            entry.deadlist.holds(cell) || entry.deadlist.is_shadow(cell)
        };
        let held = self.table.read().get(id).is_some_and(keeps);
        if held {
            return Ok(true);
        }
        let unit = 1_u64 << self.core.identity.ashift;
        let (from, to) =
            (MetaKey::CellRun(id, cell, 0).encode(), MetaKey::CellRun(id, cell, u64::MAX).encode());
        let mut runs: Vec<(Vec<u8>, Vec<CellPlace>, usize)> = Vec::new();
        let mut all = true;
        for item in self.core.meta.range(from..to) {
            if room.places == 0 || room.runs == 0 {
                all = false;
                break;
            }
            let (key, value) = item?;
            let run = CellPlace::decode_run(&value).map_err(corrupt)?;
            let now = run.len().min(room.places);
            all &= now == run.len();
            room.places -= now;
            room.runs -= 1;
            runs.push((key, run, now));
        }
        for (key, run, now) in runs {
            for place in &run[..now] {
                // Nodes and second copies are nobody else's.
                if place.logical == 0 || self.core.references.release(place.address) {
                    self.core.blockio.free_at(place.address, place.psize);
                }
                sum.bytes = sum.bytes.saturating_sub(u64::from(place.psize).next_multiple_of(unit));
                sum.logical = sum.logical.saturating_sub(place.logical.into());
                sum.places = sum.places.saturating_sub(1);
            }
            // The rest of the run, for which there was no room, keeps its number.
            match &run[now..] {
                [] => self.core.meta.remove(&key)?,
                rest => self.core.meta.insert(&key, &CellPlace::encode_run(rest))?,
            };
        }
        let key = MetaKey::Cell(id, cell).encode();
        if all || sum.places == 0 {
            self.core.meta.remove(&key)?;
        } else {
            self.core.meta.insert(&key, &sum.encode())?;
        }
        Ok(all)
    }

    /// Dead ranges, as stored.
    pub(crate) fn load_dead(&self, pool: &str) -> Result<()> {
        for item in self.core.items_of(meta_keys::DEAD_RANGE) {
            let (MetaKey::DeadRange(id, after), value) = item? else { continue };
            let range = DeadRange::decode(&value).map_err(|e| self.core.corrupt(pool, "a dead range", e))?;
            if let Some(entry) = self.table.write().get_mut(id) {
                entry.dead.insert(after, range.before);
            }
        }
        Ok(())
    }

    /// Bytes in dead ranges: what destroyed snapshots are about to give back.
    pub(crate) fn dead_bytes(&self) -> u64 {
        let ranges: Vec<(DatasetId, Txg, Txg)> = {
            let table = self.table.read();
            let all = table.iter_all().flat_map(|(id, entry)| {
                entry.dead.iter().map(move |(after, before)| (id, *after, *before)).collect::<Vec<_>>()
            });
            all.collect()
        };
        let sum = |(id, after, before): &(DatasetId, Txg, Txg)| {
            let sum = self.sum_of_cells(*id, after.next()..*before, *after..*before);
            sum.map_or(1, |sum| sum.bytes.max(1))
        };
        ranges.iter().map(sum).sum()
    }

    pub(crate) fn cells_of(
        &self,
        id: DatasetId,
    ) -> Result<Vec<(steadfast_format::CellId, steadfast_format::Cell)>> {
        let mut cells = Vec::new();
        let all = Txg(0)..Txg(u64::MAX);
        self.visit_cells(id, all.clone(), all, |cell, sum| {
            cells.push((cell, sum));
            true
        })?;
        Ok(cells)
    }

    /// Bytes of what was deleted that the next commits give back, at least 1 if there are any.
    #[must_use]
    pub fn freeing(&self) -> u64 {
        let count = || {
            let doomed: u64 = {
                let table = self.table.read();
                let rows = table.iter_all().map(|(_, entry)| &entry.row).filter(|row| row.destroying);
                rows.map(|row| row.used.max(1)).sum()
            };
            (doomed + self.dead_bytes()).max(u64::from(self.owes_heads()))
        };
        if self.core.is_suspended() || self.core.health.read_only { 0 } else { self.freeing.told(count) }
    }

    /// True if there is something to be freed; what it comes to is not added up.
    pub(crate) fn is_owing(&self) -> bool {
        let doomed =
            || self.table.read().iter_all().any(|(_, entry)| entry.row.destroying || !entry.dead.is_empty());
        self.owes_heads() || doomed()
    }

    /// True if something was deleted in an open head.
    fn owes_heads(&self) -> bool {
        // A deletion that was let in and then failed leaves nothing to commit.
        let deleting = || self.core.admission.is_deleting() && self.core.has_changes();
        self.core.heads().iter().any(|head| head.owes_frees()) || deleting()
    }
}
