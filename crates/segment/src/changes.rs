//! Changes of the table since the last commit, as the meta tree and the commit tail store them
//! (ZFS: space map syncing).

use std::collections::BTreeSet;

use steadfast_format::{Checksums, Column, RelocationRow, SegmentId, SegmentRow};

use crate::SpaceChanges;
use crate::relocation::Run;
use crate::row::{Emptied, FreedSlot, Row};
use crate::table::Table;

impl Table {
    /// Rows and relocations set or removed since this was last called.
    pub fn take_changes(&mut self) -> SpaceChanges {
        let rows = std::mem::take(&mut self.changed);
        let runs = self.relocations.take_changed();
        let parts = std::mem::take(&mut self.sums_changed);
        let sums = parts.into_iter().map(|(id, part)| ((id, part), self.part_of(id, part))).collect();
        // Of segments that are closed all is stored now.
        self.sums.retain(|id, _| self.rows.get(id).is_some_and(|row| row.open));
        SpaceChanges { sums, ..self.changes_of(&rows, &runs) }
    }

    /// A part of a segment's checksums; `None` if the segment left the table.
    pub(crate) fn part_of(&self, id: SegmentId, part: u32) -> Option<Checksums> {
        let (row, sums) = (self.rows.get(&id)?, self.sums.get(&id)?);
        let per_part = Checksums::rows_per_part(&row.place) * Checksums::per_row(&row.place);
        let part = sums.chunks(per_part).nth(part as usize)?;
        Some(Checksums { sums: part.to_vec() })
    }

    /// The same, but they will be reported again.
    pub fn peek_changes(&self) -> SpaceChanges {
        self.changes_of(&self.changed, self.relocations.changed())
    }

    pub(crate) fn changes_of(
        &self,
        rows: &BTreeSet<SegmentId>,
        runs: &BTreeSet<(SegmentId, u32)>,
    ) -> SpaceChanges {
        SpaceChanges {
            rows: rows.iter().map(|&id| (id, self.rows.get(&id).map(|row| self.store_row(row)))).collect(),
            runs: runs.iter().map(|&from| (from, self.relocations.get(from).map(store_run))).collect(),
            sums: Vec::new(),
        }
    }

    /// All rows of the pool's own metadata and the relocations that lie on them or were theirs:
    /// what must be known before the meta tree can be read.
    pub fn bootstrap(&self) -> SpaceChanges {
        let rows = self.pool_rows.iter().map(|id| (*id, &self.rows[id]));
        let runs = rows.clone().flat_map(|(id, row)| self.relocations.lying_on(id, 0, row.filled));
        SpaceChanges {
            rows: rows.map(|(id, row)| (id, Some(self.store_row(row)))).collect(),
            runs: runs.map(|run| (run.from, Some(store_run(run)))).collect(),
            sums: Vec::new(),
        }
    }

    pub fn store_row(&self, row: &Row) -> SegmentRow {
        SegmentRow {
            class: row.class as u8,
            owner: row.owner,
            filled: row.filled * self.geometry.unit,
            place: row.place.clone(),
            dead: row.dead.to_bytes(row.filled),
        }
    }

    /// Marks a row as changed, so that the next tail has it.
    pub fn touch(&mut self, id: SegmentId) {
        self.changed.insert(id);
    }

    /// The tail that is about to be written knows all segments emptied so far.
    pub fn seal_emptied(&mut self) {
        for emptied in self.emptied.values_mut() {
            emptied.committing = true;
        }
        self.kept.lost.iter_mut().for_each(|lost| lost.committing = true);
    }

    /// The tail is durable: slots of the segments it knew to be empty are free [segment.7], and
    /// those of columns that it names no more. Gives how many segments went, and all slots that are
    /// free now.
    pub fn release_committed(&mut self) -> (usize, Vec<FreedSlot>) {
        let ids: Vec<SegmentId> =
            self.emptied.iter().filter(|(_, emptied)| emptied.committing).map(|(&id, _)| id).collect();
        let count = ids.len();
        let (mut freed, mut groups) = (Vec::with_capacity(count), BTreeSet::new());
        let mut free = |table: &mut Table, segment: SegmentId, column: Column| {
            let group = table.free_slot(column);
            groups.insert(group);
            freed.push(FreedSlot { segment, column, slot_size: table.groups[group].column });
        };
        for id in ids {
            let Emptied { row, .. } = self.emptied.remove(&id).expect("listed just now");
            self.leave_emptied(&row);
            row.place.present().for_each(|(_, column)| free(self, id, column));
        }
        self.fresh.clear();
        for lost in std::mem::take(&mut self.kept.lost) {
            if lost.committing {
                let space = self.devices.get_mut(&lost.column.device);
                space.expect("a device is removed when nothing is on it").lost -= 1;
                free(self, lost.segment, lost.column);
            } else {
                self.kept.lost.push(lost);
            }
        }
        // Once each, as counting costs more than freeing.
        groups.into_iter().for_each(|group| self.recount(group));
        (count, freed)
    }
}

fn store_run(run: Run) -> RelocationRow {
    RelocationRow { segment: run.to.0, unit: run.to.1, units: run.units }
}
