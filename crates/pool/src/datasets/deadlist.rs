//! The deadlist: blocks that a dataset let go while its snapshots hold them.
//! `docs/decisions/0090-snapshots.md`.
//!
//! Like ZFS's deadlist, but a dataset has one, split in cells by birth and by the youngest snapshot.
//!
//! ## Definitions
//! The *gap* of a txg is the youngest snapshot older than it, or 0. A block that is let go while L is the youngest snapshot, and whose
//! birth has the gap B, belongs into the cell (L, B). A snapshot X holds the cell (L, B) if B < X ≤ L: it is younger than that gap, so
//! the block was born by then, and not younger than L, so it was not let go yet.
//!
//! The snapshots that count for a clone are its own and those that its origin's dataset had up to the origin: its *chain*. The txg of the
//! origin is its *base*, 0 of what is no clone. Cells with B below the base are its *shadows*: what they name was born by then and is the
//! origin's to keep and to free. They are written all the same, for a promotion makes shadows of the one cells of the other
//! (`clones.rs`).
//!
//! ## Invariants
//! (S1) A block is let go once: it is then freed, or a place in one cell.                    `Deaths::let_go`; `inspect check`
//! (S2) A cell that no snapshot holds lies in a dead range, and is freed.      `remove_snapshots`, `note_cells`; `inspect check`
//! (S3) What a cell is in never changes: snapshots that go, or come, only change who holds it. So no cell is ever rewritten.
//! (S4) `kept` of a dataset's row is the sum of its cells that some snapshot of its own holds, without shadows. `inspect check`
//! (S5) `shared` of a clone's row is what its origin refers to without the shadows.           `inspect check`
//!
//! ## Lock order
//! `figures` < `table` < one `Deaths` < the meta tree.

use std::collections::BTreeMap;
use std::ops::Range;

use parking_lot::Mutex;
use steadfast_format::{
    BlockKind, BlockPointer, Cell, CellId, CellPlace, DatasetId, DeadRange, MetaKey, Txg, meta_keys,
};

use crate::core::error::Result;
use crate::core::inner::Inner;

/// Cells and runs of places that one commit frees, whatever room there is for freeing blocks.
const RUNS_PER_COMMIT: usize = 10_000;

/// Decides where what a dataset lets go belongs, and collects it until the commit writes it down.
#[derive(Default)]
pub(crate) struct Deaths {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Txgs of the snapshots of the dataset's chain, ascending. What is gone of those up to the base may stay listed: a gap that is
    /// named by a snapshot that is gone is as good as any.
    snapshots: Vec<Txg>,
    /// Its origin, or 0.
    base: Txg,
    /// What was let go in the commit under way.
    pending: BTreeMap<CellId, Vec<CellPlace>>,
}

impl State {
    /// The youngest snapshot older than `birth`, or 0.
    fn gap(&self, birth: Txg) -> Txg {
        let older = self.snapshots.partition_point(|txg| *txg < birth);
        older.checked_sub(1).map_or(Txg(0), |at| self.snapshots[at])
    }
}

impl Deaths {
    /// The chain as it is now, ascending, and what of it is not the dataset's own.
    pub fn set_chain(&self, chain: Vec<Txg>, base: Txg) {
        let mut state = self.state.lock();
        (state.snapshots, state.base) = (chain, base);
    }

    /// A block is let go. True if a snapshot of the chain holds it; else it is the caller's to free.
    pub fn let_go(&self, pointer: &BlockPointer) -> bool {
        let mut state = self.state.lock();
        let Some(&left) = state.snapshots.last().filter(|txg| **txg >= pointer.birth) else { return false };
        let cell = CellId { left, born: state.gap(pointer.birth) };
        state.pending.entry(cell).or_default().extend(places_of(pointer));
        true
    }

    /// True if what the cell names is the origin's.
    pub fn is_shadow(&self, cell: CellId) -> bool {
        cell.born < self.state.lock().base
    }

    /// True if a snapshot of the dataset's own holds the cell.
    pub fn holds(&self, cell: CellId) -> bool {
        let state = self.state.lock();
        if cell.born < state.base {
            return false;
        }
        let next = state.snapshots.partition_point(|txg| *txg <= cell.born);
        state.snapshots.get(next).is_some_and(|txg| *txg <= cell.left)
    }

    fn take(&self) -> BTreeMap<CellId, Vec<CellPlace>> {
        std::mem::take(&mut self.state.lock().pending)
    }
}

/// The copies of a block, as a cell has them.
pub(crate) fn places_of(pointer: &BlockPointer) -> impl Iterator<Item = CellPlace> + '_ {
    pointer.copies[..pointer.copy_count()].iter().enumerate().map(|(copy, &address)| {
        let is_content = copy == 0 && pointer.kind == BlockKind::Data;
        CellPlace { address, psize: pointer.psize, logical: if is_content { pointer.lsize } else { 0 } }
    })
}

/// What cells hold together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Sum {
    pub bytes: u64,
    pub logical: u64,
}

impl Sum {
    pub fn add(&mut self, cell: &Cell) {
        self.bytes += cell.bytes;
        self.logical += cell.logical;
    }
}

/// Txgs from one up to below another.
pub(crate) type Txgs = Range<Txg>;

impl Inner {
    /// Visits the cells of a dataset in rectangles of txgs, in order, until `visit` says no. Costs a seek for each first txg.
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
            for item in self.meta.range(key(at.0, at.1)..key(left.end, Txg(0))) {
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
                let sum = Cell::decode(&value).map_err(|e| self.corrupt(&self.name(), "a cell", e))?;
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

    /// What cells in a rectangle hold together.
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
            for (cell, places) in entry.deaths.take() {
                // (S2) Who held it may have gone since.
                debug_assert!(
                    entry.deaths.is_shadow(cell) || entry.deaths.holds(cell) || entry.is_dead(cell),
                    "{id}: {cell:?} is held by nobody and in no dead range"
                );
                let sum = self.sum_of(&places);
                self.put(id, cell, &places, sum)?;
                if entry.deaths.is_shadow(cell) {
                    entry.row.lineage.shared = entry.row.lineage.shared.saturating_sub(sum.bytes);
                    entry.row.lineage.shared_logical =
                        entry.row.lineage.shared_logical.saturating_sub(sum.logical);
                    entry.row_dirty = true;
                } else if entry.deaths.holds(cell) {
                    entry.row.lineage.kept += sum.bytes;
                    entry.row.lineage.kept_logical += sum.logical;
                    entry.row_dirty = true;
                }
            }
        }
        Ok(())
    }

    /// What places occupy.
    pub(crate) fn sum_of(&self, places: &[CellPlace]) -> Sum {
        let unit = 1_u64 << self.ashift;
        let mut sum = Sum::default();
        for place in places {
            sum.bytes += u64::from(place.psize).next_multiple_of(unit);
            sum.logical += u64::from(place.logical);
        }
        sum
    }

    /// Adds places to a cell: its last run is filled up first, so that a cell is as short as it can be.
    pub(crate) fn put(&self, id: DatasetId, cell: CellId, mut places: &[CellPlace], more: Sum) -> Result<()> {
        let corrupt = |what, error| self.corrupt(&self.name(), what, error);
        let key = MetaKey::Cell(id, cell).encode();
        let mut sum = match self.meta.get(&key)? {
            Some(value) => Cell::decode(&value).map_err(|error| corrupt("a cell", error))?,
            None => Cell::default(),
        };
        sum.places += places.len() as u64;
        sum.bytes += more.bytes;
        sum.logical += more.logical;
        if let Some(last) = sum.next.checked_sub(1) {
            let run = MetaKey::CellRun(id, cell, last).encode();
            if let Some(value) = self.meta.get(&run)? {
                let mut known =
                    CellPlace::decode_run(&value).map_err(|error| corrupt("places of a cell", error))?;
                let (fill, rest) = places.split_at(places.len().min(CellPlace::RUN_MAX - known.len()));
                known.extend_from_slice(fill);
                places = rest;
                self.meta.insert(&run, &CellPlace::encode_run(&known))?;
            }
        }
        for run in places.chunks(CellPlace::RUN_MAX) {
            let number = MetaKey::CellRun(id, cell, sum.next).encode();
            self.meta.insert(&number, &CellPlace::encode_run(run))?;
            sum.next += 1;
        }
        self.meta.insert(&key, &sum.encode())?;
        Ok(())
    }

    /// Frees what no snapshot holds any more, a bounded part in each commit. True if there is more to do. Sync context.
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
            room.places = self.frees_max();
        }
        for (id, after, before) in work {
            if !self.free_range(id, after, before, &mut room)? {
                self.changed.store(true, std::sync::atomic::Ordering::Release);
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
        let corrupt = |error| self.corrupt(&self.name(), "places of a cell", error);
        // A range that was forged frees nothing that is held, or another's.
        let keeps =
            |entry: &crate::datasets::table::Entry| entry.deaths.holds(cell) || entry.deaths.is_shadow(cell);
        let held = self.table.read().get(id).is_some_and(keeps);
        if held {
            return Ok(true);
        }
        let unit = 1_u64 << self.ashift;
        let (from, to) =
            (MetaKey::CellRun(id, cell, 0).encode(), MetaKey::CellRun(id, cell, u64::MAX).encode());
        let mut runs: Vec<(Vec<u8>, Vec<CellPlace>, usize)> = Vec::new();
        let mut all = true;
        for item in self.meta.range(from..to) {
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
                if place.logical == 0 || self.references.release(place.address) {
                    self.blockio.free_at(place.address, place.psize);
                }
                sum.bytes = sum.bytes.saturating_sub(u64::from(place.psize).next_multiple_of(unit));
                sum.logical = sum.logical.saturating_sub(place.logical.into());
                sum.places = sum.places.saturating_sub(1);
            }
            // What there was no room for stays under the same number.
            match &run[now..] {
                [] => self.meta.remove(&key)?,
                rest => self.meta.insert(&key, &CellPlace::encode_run(rest))?,
            };
        }
        let key = MetaKey::Cell(id, cell).encode();
        if all || sum.places == 0 {
            self.meta.remove(&key)?;
        } else {
            self.meta.insert(&key, &sum.encode())?;
        }
        Ok(all)
    }

    /// Dead ranges, as stored.
    pub(crate) fn load_dead(&self, pool: &str) -> Result<()> {
        for item in self.items_of(meta_keys::DEAD_RANGE) {
            let (MetaKey::DeadRange(id, after), value) = item? else { continue };
            let range = DeadRange::decode(&value).map_err(|e| self.corrupt(pool, "a dead range", e))?;
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
}

/// What one commit may still free.
struct Room {
    places: usize,
    runs: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_format::{Address, Compression, SegmentId, Stamp};

    fn pointer(birth: u64) -> BlockPointer {
        BlockPointer {
            hash: [0; 32],
            copies: [Address { segment: SegmentId(birth), offset: 0 }, Address::NONE],
            psize: 4096,
            lsize: 5000,
            birth: Txg(birth),
            written: Txg(0),
            stamp: Stamp::default(),
            compression: Compression::Off,
            kind: BlockKind::Data,
            level: 0,
        }
    }

    #[test]
    fn what_no_snapshot_holds_is_freed_and_the_rest_goes_by_death_and_birth() {
        let deaths = Deaths::default();
        assert!(!deaths.let_go(&pointer(1)), "no snapshot");
        deaths.set_chain(vec![Txg(5), Txg(9)], Txg(0));
        assert!(!deaths.let_go(&pointer(10)), "born since the youngest snapshot");
        for birth in [9, 6, 5, 1] {
            assert!(deaths.let_go(&pointer(birth)));
        }
        let cells: Vec<(u64, u64, usize)> = deaths
            .take()
            .into_iter()
            .map(|(cell, places)| (cell.left.0, cell.born.0, places.len()))
            .collect();
        assert_eq!(cells, [(9, 0, 2), (9, 5, 2)]);
        assert!(deaths.take().is_empty());
    }

    #[test]
    fn who_holds_a_cell_changes_with_the_snapshots_and_the_cell_does_not() {
        let deaths = Deaths::default();
        let cell = |left, born| CellId { left: Txg(left), born: Txg(born) };
        deaths.set_chain(vec![Txg(5), Txg(9), Txg(12)], Txg(0));
        assert!(deaths.holds(cell(9, 5)) && deaths.holds(cell(9, 0)) && deaths.holds(cell(12, 9)));
        deaths.set_chain(vec![Txg(5), Txg(12)], Txg(0));
        assert!(!deaths.holds(cell(9, 5)), "only 9 held what was born after 5 and left by 9");
        assert!(deaths.holds(cell(9, 0)) && deaths.holds(cell(12, 9)));
        deaths.set_chain(Vec::new(), Txg(0));
        assert!(!deaths.holds(cell(9, 0)));
    }

    #[test]
    fn what_was_born_before_its_origin_is_no_clones_to_free_or_to_keep() {
        let deaths = Deaths::default();
        let cell = |left, born| CellId { left: Txg(left), born: Txg(born) };
        deaths.set_chain(vec![Txg(5), Txg(9)], Txg(9));
        for birth in [4, 9] {
            assert!(deaths.let_go(&pointer(birth)), "it is the origin's");
        }
        assert!(!deaths.let_go(&pointer(10)), "it is nobody's but the clone's");
        let noted: Vec<CellId> = deaths.take().into_keys().collect();
        assert_eq!(noted, [cell(9, 0), cell(9, 5)], "told apart by the origin's chain");
        assert!(noted.iter().all(|cell| deaths.is_shadow(*cell) && !deaths.holds(*cell)));
        // With a snapshot of its own, and promoted: the same cells, its own now.
        deaths.set_chain(vec![Txg(5), Txg(9), Txg(12)], Txg(9));
        assert!(deaths.holds(cell(12, 9)) && !deaths.holds(cell(12, 5)));
        deaths.set_chain(vec![Txg(5), Txg(9), Txg(12)], Txg(0));
        assert!(deaths.holds(cell(12, 5)) && deaths.holds(cell(9, 5)) && !deaths.is_shadow(cell(9, 0)));
    }
}
