//! The deadlist: blocks that a dataset let go while its snapshots hold them.
//! `docs/decisions/0090-snapshots.md`.
//!
//! Like ZFS's deadlist, but a dataset has one, split in cells by birth and by the youngest
//! snapshot.
//!
//! ## Definitions
//! The *gap* of a txg is the youngest snapshot older than it, or 0. A block that is let go while L
//! is the youngest snapshot, and whose birth has the gap B, belongs into the cell (L, B). A
//! snapshot X holds the cell (L, B) if B < X ≤ L: it is younger than that gap, so the block was
//! born by then, and not younger than L, so it was not let go yet.
//!
//! The snapshots that count for a clone are its own and those that its origin's dataset had up to
//! the origin: its *chain*. The txg of the origin is its *base*, 0 of what is no clone. Cells with
//! B below the base are its *shadows*: what they name was born by then and is the origin's to keep
//! and to free. They are written all the same, for a promotion makes shadows of the one cells of
//! the other (`clones.rs`).
//!
//! ## Invariants
//! [deadlist.1] A block is let go once: it is then freed, or a place in one cell.
//!      `Deadlist::let_go`; `inspect check`
//! [deadlist.2] A cell that no snapshot holds lies in a dead range, and is freed.
//!      `remove_snapshots`, `note_cells`; `inspect check`
//! [deadlist.3] What a cell is in never changes: snapshots that go, or come, only change who holds
//!      it. So no cell is ever rewritten.
//! [deadlist.4] `kept` of a dataset's row is the sum of its cells that some snapshot of its own
//!      holds, without shadows. `inspect check`
//! [deadlist.5] `shared` of a clone's row is what its origin refers to without the shadows.
//!      `inspect check`
//!
//! ## Lock order
//! `figures` < `table` < one `Deadlist` < the meta tree.

use std::collections::BTreeMap;
use std::ops::Range;

use parking_lot::Mutex;
use steadfast_format::{BlockKind, BlockPointer, Cell, CellId, CellPlace, DatasetRow, Txg};

/// Decides where what a dataset lets go belongs, and collects it until the commit writes it down.
#[derive(Default)]
pub struct Deadlist {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Txgs of the snapshots of the dataset's chain, ascending. Destroyed snapshots up to the
    /// base may stay listed: the name of a gap stays as good as any, whether its snapshot exists or
    /// not.
    snapshots: Vec<Txg>,
    /// Its origin, or 0.
    base: Txg,
    /// Blocks that were let go in the commit under way.
    pending: BTreeMap<CellId, Vec<CellPlace>>,
}

impl State {
    /// The youngest snapshot older than `birth`, or 0.
    fn gap(&self, birth: Txg) -> Txg {
        let older = self.snapshots.partition_point(|txg| *txg < birth);
        older.checked_sub(1).map_or(Txg(0), |at| self.snapshots[at])
    }
}

impl Deadlist {
    /// The chain as it is now, ascending, and what of it is not the dataset's own.
    pub fn set_chain(&self, chain: Vec<Txg>, base: Txg) {
        let mut state = self.state.lock();
        (state.snapshots, state.base) = (chain, base);
    }

    /// A block is let go. True if a snapshot of the chain holds it; else it is the caller's to
    /// free.
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

    /// Takes the cells that the commit under way is to write.
    pub fn take(&self) -> BTreeMap<CellId, Vec<CellPlace>> {
        std::mem::take(&mut self.state.lock().pending)
    }
}

/// The copies of a block, as a cell has them.
pub fn places_of(pointer: &BlockPointer) -> impl Iterator<Item = CellPlace> + '_ {
    pointer.copies[..pointer.copy_count()].iter().enumerate().map(|(copy, &address)| {
        let is_content = copy == 0 && pointer.kind == BlockKind::Data;
        CellPlace { address, psize: pointer.psize, logical: if is_content { pointer.lsize } else { 0 } }
    })
}

/// The sum of what cells hold.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sum {
    /// Stored bytes.
    pub bytes: u64,
    /// Bytes before compression.
    pub logical: u64,
}

impl Sum {
    /// Adds a cell.
    pub fn add(&mut self, cell: &Cell) {
        self.bytes = bounded_sum(self.bytes, cell.bytes);
        self.logical = bounded_sum(self.logical, cell.logical);
    }
}

/// A sum that no forged cell makes larger than a dataset may be.
fn bounded_sum(sum: u64, more: u64) -> u64 {
    sum.saturating_add(more).min(DatasetRow::FIGURE_MAX)
}

/// Txgs from one up to below another.
pub type Txgs = Range<Txg>;

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_format::{Address, Compression, SegmentId, Stamp};

    fn pointer(birth: u64) -> BlockPointer {
        BlockPointer {
            hash: [0; 32],
            copies: [Address { segment: SegmentId(birth), offset: 0 }, Address::NONE, Address::NONE],
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
        let deadlist = Deadlist::default();
        assert!(!deadlist.let_go(&pointer(1)), "no snapshot");
        deadlist.set_chain(vec![Txg(5), Txg(9)], Txg(0));
        assert!(!deadlist.let_go(&pointer(10)), "born since the youngest snapshot");
        for birth in [9, 6, 5, 1] {
            assert!(deadlist.let_go(&pointer(birth)));
        }
        let cells: Vec<(u64, u64, usize)> = deadlist
            .take()
            .into_iter()
            .map(|(cell, places)| (cell.left.0, cell.born.0, places.len()))
            .collect();
        assert_eq!(cells, [(9, 0, 2), (9, 5, 2)]);
        assert!(deadlist.take().is_empty());
    }

    #[test]
    fn who_holds_a_cell_changes_with_the_snapshots_and_the_cell_does_not() {
        let deadlist = Deadlist::default();
        let cell = |left, born| CellId { left: Txg(left), born: Txg(born) };
        deadlist.set_chain(vec![Txg(5), Txg(9), Txg(12)], Txg(0));
        assert!(deadlist.holds(cell(9, 5)) && deadlist.holds(cell(9, 0)) && deadlist.holds(cell(12, 9)));
        deadlist.set_chain(vec![Txg(5), Txg(12)], Txg(0));
        assert!(!deadlist.holds(cell(9, 5)), "only 9 held what was born after 5 and left by 9");
        assert!(deadlist.holds(cell(9, 0)) && deadlist.holds(cell(12, 9)));
        deadlist.set_chain(Vec::new(), Txg(0));
        assert!(!deadlist.holds(cell(9, 0)));
    }

    #[test]
    fn what_was_born_before_its_origin_is_no_clones_to_free_or_to_keep() {
        let deadlist = Deadlist::default();
        let cell = |left, born| CellId { left: Txg(left), born: Txg(born) };
        deadlist.set_chain(vec![Txg(5), Txg(9)], Txg(9));
        for birth in [4, 9] {
            assert!(deadlist.let_go(&pointer(birth)), "it is the origin's");
        }
        assert!(!deadlist.let_go(&pointer(10)), "it is nobody's but the clone's");
        let noted: Vec<CellId> = deadlist.take().into_keys().collect();
        assert_eq!(noted, [cell(9, 0), cell(9, 5)], "told apart by the origin's chain");
        assert!(noted.iter().all(|cell| deadlist.is_shadow(*cell) && !deadlist.holds(*cell)));
        // With a snapshot of its own, and promoted: the same cells, its own now.
        deadlist.set_chain(vec![Txg(5), Txg(9), Txg(12)], Txg(9));
        assert!(deadlist.holds(cell(12, 9)) && !deadlist.holds(cell(12, 5)));
        deadlist.set_chain(vec![Txg(5), Txg(9), Txg(12)], Txg(0));
        assert!(deadlist.holds(cell(12, 5)) && deadlist.holds(cell(9, 5)) && !deadlist.is_shadow(cell(9, 0)));
    }
}
