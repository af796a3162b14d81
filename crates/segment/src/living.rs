//! Life and death of units: frees, moves, and segments that become empty.

use steadfast_format::{DatasetId, SegmentId};

use crate::relocation::Run;
use crate::row::{Emptied, Piece, Unallocated};
use crate::table::Table;

impl Table {
    /// Where the units known as (`segment`, `unit`) and on lie now.
    pub fn resolve(&self, segment: SegmentId, unit: u32, units: u32) -> Result<Vec<Piece>, Unallocated> {
        let mut pieces = Vec::with_capacity(1);
        let mut at = unit;
        let end = unit + units;
        let native = |from: u32, to: u32| {
            if from == to {
                return Ok(None);
            }
            let row = self.taken_row(segment).ok_or(Unallocated)?;
            (to <= row.filled)
                .then_some(Some(Piece { segment, unit: from, units: to - from }))
                .ok_or(Unallocated)
        };
        let moved = if self.relocations.is_empty() {
            Vec::new()
        } else {
            self.relocations.moved_from(segment, unit, units)
        };
        for run in moved {
            pieces.extend(native(at, run.from.1)?);
            pieces.push(Piece { segment: run.to.0, unit: run.to.1, units: run.units });
            at = run.from.1 + run.units;
        }
        pieces.extend(native(at, end)?);
        Ok(pieces)
    }

    /// Frees the units known as (`segment`, `unit`) and on. All of them live, or nothing changes.
    pub fn kill(&mut self, segment: SegmentId, unit: u32, units: u32) -> Result<(), Unallocated> {
        let pieces = self.resolve(segment, unit, units)?;
        for piece in &pieces {
            let row = self.rows.get(&piece.segment).ok_or(Unallocated)?;
            if row.dead.count(piece.unit, piece.units) != 0 {
                return Err(Unallocated);
            }
        }
        for piece in pieces {
            self.kill_piece(piece);
            self.drop_dead_runs(piece);
        }
        Ok(())
    }

    /// True if the units known as (`segment`, `unit`) and on live.
    pub fn is_live(&self, segment: SegmentId, unit: u32, units: u32) -> bool {
        let lives = |piece: &Piece| {
            self.rows.get(&piece.segment).is_some_and(|row| row.dead.count(piece.unit, piece.units) == 0)
        };
        self.resolve(segment, unit, units).is_ok_and(|pieces| pieces.iter().all(lives))
    }

    /// True if the segment has a row, or units that are known by it live elsewhere.
    pub fn is_known(&self, segment: SegmentId) -> bool {
        self.rows.contains_key(&segment)
            || !self.relocations.moved_from(segment, 0, self.geometry.slot_units()).is_empty()
    }

    /// Marks living units of one place dead, and retires the segment if they were its last.
    pub(crate) fn kill_piece(&mut self, piece: Piece) {
        let slot_units = self.geometry.slot_units();
        let row = self.rows.get_mut(&piece.segment).expect("looked up before");
        row.dead.kill(piece.unit, piece.units, slot_units);
        row.live -= piece.units;
        self.changed.insert(piece.segment);
        self.live_units -= u64::from(piece.units);
        self.class_live[row.class as usize] -= u64::from(piece.units);
        let group = &mut self.groups[row.group];
        group.live_units -= u64::from(piece.units);
        if row.pinned {
            group.kept_units += u64::from(piece.units);
            if row.class.copy_index().is_some() {
                self.kept.metadata_units -= u64::from(piece.units);
            }
        }
        if row.live == 0 && !row.open {
            self.retire(piece.segment);
        }
    }

    /// Forgets runs that lie on `piece` and have no living unit left.
    pub(crate) fn drop_dead_runs(&mut self, piece: Piece) {
        for part in self.relocations.lying_on(piece.segment, piece.unit, piece.units) {
            let Some(run) = self.relocations.run_of(part.from) else { continue };
            let alive =
                self.rows.get(&run.to.0).is_some_and(|row| row.dead.count(run.to.1, run.units) < run.units);
            if !alive {
                self.relocations.remove(run.from);
            }
        }
    }

    /// A segment without life leaves the table. Its slot stays taken until the commit that knows
    /// [segment.7], or as long as the checkpoint needs it [kept.1].
    pub(crate) fn retire(&mut self, id: SegmentId) {
        let row = self.rows.remove(&id).expect("only a known segment is retired");
        self.pool_rows.remove(&id);
        assert!(row.live == 0 && !row.open);
        self.changed.insert(id);
        self.sums.remove(&id);
        self.sums_changed.extend((0..self.sum_parts(&row)).map(|part| (id, part)));
        self.forget_all_meant(id);
        if row.pinned {
            self.keep_row(id, row);
            return;
        }
        self.enter_emptied(&row);
        self.emptied.insert(id, Emptied { row, committing: false });
    }

    /// Units `unit` and on of `victim` were copied to `target`: whatever name they are known by now
    /// leads there. Units that died meanwhile are dead in the copy as well.
    pub fn relocate(&mut self, victim: SegmentId, unit: u32, target: (SegmentId, u32), units: u32) {
        let Some(row) = self.rows.get(&victim) else {
            self.kill_piece(Piece { segment: target.0, unit: target.1, units });
            return;
        };
        assert!(target.0 != victim);
        let live: Vec<(u32, u32)> = clip(&row.dead.live_runs(row.filled), unit, units);
        // Names of the living units, in order of place: moved here before, or native.
        let mut named = Vec::new();
        for &(start, count) in &live {
            let mut at = start;
            for run in self.relocations.lying_on(victim, start, count) {
                if at < run.to.1 {
                    named.push(Run { from: (victim, at), to: (victim, at), units: run.to.1 - at });
                }
                named.push(run);
                at = run.to.1 + run.units;
            }
            if at < start + count {
                named.push(Run { from: (victim, at), to: (victim, at), units: start + count - at });
            }
        }
        for part in &named {
            self.cut(*part);
        }
        for part in &named {
            let to = (target.0, target.1 + (part.to.1 - unit));
            self.relocations.insert_joined(Run { from: part.from, to, units: part.units });
        }
        // The copy was appended as living: what had died is killed in it; what lived is killed in
        // the victim.
        let mut at = unit;
        for &(start, count) in live.iter().chain(std::iter::once(&(unit + units, 0))) {
            if at < start {
                let segment = target.0;
                self.kill_piece(Piece { segment, unit: target.1 + (at - unit), units: start - at });
            }
            if count > 0 {
                self.kill_piece(Piece { segment: victim, unit: start, units: count });
            }
            at = start + count;
        }
    }

    /// Takes the virtual units of `part` out of the run they are in, if any. The rest of the run on
    /// either side stays if something lives in it.
    pub(crate) fn cut(&mut self, part: Run) {
        let Some(run) = self.relocations.run_of(part.from) else { return };
        self.relocations.remove(run.from);
        let before = part.from.1 - run.from.1;
        let after = run.units - before - part.units;
        let skip = before + part.units;
        let left = Run { from: run.from, to: run.to, units: before };
        let right =
            Run { from: (run.from.0, run.from.1 + skip), to: (run.to.0, run.to.1 + skip), units: after };
        for rest in [left, right] {
            let alive = rest.units > 0
                && self
                    .rows
                    .get(&rest.to.0)
                    .is_some_and(|row| row.dead.count(rest.to.1, rest.units) < rest.units);
            if alive {
                assert!(self.relocations.insert(rest), "a part of a run overlaps nothing");
            }
        }
    }

    /// Everything of one owner dies. Its streams are closed already.
    pub fn drop_owner(&mut self, owner: DatasetId) -> u64 {
        let ids: Vec<SegmentId> =
            self.rows.iter().filter(|(_, row)| row.owner == owner).map(|(&id, _)| id).collect();
        let mut freed = 0;
        for id in ids {
            let row = &self.rows[&id];
            assert!(!row.open, "streams of a dropped owner are closed");
            let filled = row.filled;
            for run in self.relocations.lying_on(id, 0, filled) {
                self.relocations.remove(run.from);
            }
            for (unit, units) in self.rows[&id].dead.live_runs(filled) {
                freed += u64::from(units);
                self.kill_piece(Piece { segment: id, unit, units });
            }
        }
        self.owners.remove(&owner);
        self.owners.insert(DatasetId(0));
        freed * u64::from(self.geometry.unit)
    }
}

/// The parts of `runs` within `units` units from `unit`.
fn clip(runs: &[(u32, u32)], unit: u32, units: u32) -> Vec<(u32, u32)> {
    let end = unit + units;
    runs.iter()
        .map(|&(start, count)| (start.max(unit), (start + count).min(end)))
        .filter(|(first, last)| first < last)
        .map(|(first, last)| (first, last - first))
        .collect()
}
