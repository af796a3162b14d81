//! Segments kept for a checkpoint (ZFS: `spa_checkpoint.c`, the checkpoint's space map).
//!
//! A checkpoint is an earlier root, and all that it leads to has to stay as it is. Bytes of a
//! segment never change once they are written, so it is enough that no slot comes to hold another
//! segment. Nothing is stored for that: the checkpoint's own segment table says which segments it
//! needs, and an import reads that (`Space::load_kept`).
//!
//! ## Definitions
//! *Pinned*: said of a segment with a row that the checkpoint's table has too. *Kept*: a segment
//! without life, or a column without a row, whose slot nobody but the checkpoint needs.
//! *Kept units*: what would be free, after cleaning, if there were no checkpoint.
//!
//! ```text
//! closed -- keep_all --> pinned -- its last unit dies (retire) --> kept -- let_go --> emptied
//! ```
//!
//! ## Invariants
//! [kept.1] A slot that the checkpoint's table names is taken, by that segment.
//!      `Table::retire`, `Table::leave_column`; `Space::load_kept` refuses a table that breaks it
//! [kept.2] Pinned segments are closed, and the cleaner leaves them alone: emptied, they would give
//!      back nothing.
//!      `Space::keep_all`, `Space::candidates`
//! [kept.3] Kept units of a group are what pinned segments hold that does not live, and all that
//!      kept ones hold. They count for nothing that can be reached, so that freeing what the
//!      checkpoint needs makes no room for content, and the reserve stays as large as it was.
//!      `Group::reachable`; assert: `Table::check`
//! [kept.4] Slots are let go by a commit whose root has no checkpoint, and are free when it is
//!      durable, as those of emptied segments are [segment.7].
//!      `Space::let_go`
//! [kept.5] The reserve has room for a second copy of all metadata that pinned segments hold: what
//!      changes of it is written elsewhere, and the old one gives back nothing.
//!      `Space::reserve_of`; assert: `Table::check`
//!
//! ## Going back
//! The table is then the checkpoint's, and the newest root's segments are what the last committed
//! root names and no row does: columns that were left (`Space::load_left`), free after the first
//! commit. The checkpoint's own segments without life, which were open when it was taken, are gone
//! before that: they were never pinned.

use std::collections::BTreeMap;

use steadfast_format::{Column, SegmentId, SegmentRow};

use crate::Class;
use crate::bitmap::DeadUnits;
use crate::error::{Error, TableError};
use crate::row::{Emptied, LostColumn, Row};
use crate::side::Side;
use crate::space::{Space, lock};
use crate::table::Table;

/// Slots that no row of the table in memory names, and that other roots need.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Slots of columns that the last committed root names.
    pub lost: Vec<LostColumn>,
    /// A checkpoint exists.
    pub is_there: bool,
    /// Segments that only the checkpoint needs.
    pub rows: BTreeMap<SegmentId, Row>,
    /// Units of metadata that live in pinned segments.
    pub metadata_units: u64,
    /// Columns that pinned segments have left.
    pub columns: BTreeMap<Column, SegmentId>,
}

impl Table {
    /// Pins a closed segment.
    fn pin(&mut self, id: SegmentId) {
        let Some(row) = self.rows.get(&id).filter(|row| !row.pinned) else { return };
        let waste = u64::from(self.capacity_units(row) - row.live);
        self.groups[row.group].kept_units += waste;
        if row.class.copy_index().is_some() {
            self.kept.metadata_units += u64::from(row.live);
        }
        self.rows.get_mut(&id).expect("found just now").pinned = true;
    }

    /// A pinned segment has lost its life: its slots stay taken. It has left the rows.
    pub(crate) fn keep_row(&mut self, id: SegmentId, row: Row) {
        let held = u64::from(self.capacity_units(&row));
        self.groups[row.group].kept_units -= held;
        self.groups[row.group].kept_units += self.returned_units(&row);
        self.lack(row.group, 0, row.missing());
        self.kept.rows.insert(id, row);
    }

    /// A pinned segment leaves a column, whose slot stays taken.
    pub(crate) fn keep_column(&mut self, id: SegmentId, column: Column) {
        let units = self.column_units(column);
        if self.kept.columns.insert(column, id).is_none() {
            let group = self.devices[&column.device].group;
            self.groups[group].kept_units += units;
        }
    }

    /// Units that one column of a device's group is worth.
    fn column_units(&self, column: Column) -> u64 {
        self.groups[self.devices[&column.device].group].units_in(1, self.geometry)
    }

    /// Nothing is pinned any more; what is kept goes with the commit under way.
    fn unpin(&mut self) {
        self.kept.is_there = false;
        self.kept.metadata_units = 0;
        self.rows.values_mut().for_each(|row| row.pinned = false);
        self.groups.iter_mut().for_each(|group| group.kept_units = 0);
        for (id, mut row) in std::mem::take(&mut self.kept.rows) {
            row.pinned = false;
            let units = self.returned_units(&row);
            self.groups[row.group].emptied_units += units;
            self.emptied.insert(id, Emptied { row, committing: false });
        }
        for (column, segment) in std::mem::take(&mut self.kept.columns) {
            self.lose_slot(segment, column);
        }
        self.recount_all();
    }

    /// Units that only the checkpoint needs.
    pub fn kept_units(&self) -> u64 {
        self.groups.iter().map(|group| group.kept_units).sum()
    }

    /// A row of the checkpoint's table, at import, when all rows are loaded.
    fn load_kept(&mut self, segment: SegmentId, stored: &SegmentRow) -> Result<(), TableError> {
        let class = Class::from_u8(stored.class);
        let class = class.ok_or(TableError::Class { segment, class: stored.class })?;
        let group = self.check_place(segment, class, &stored.place)?;
        let known = self.rows.get(&segment).map(|row| row.place.clone());
        let is_named =
            |column: Column| known.iter().any(|place| place.present().any(|(_, other)| other == column));
        for (_, column) in stored.place.present().filter(|(_, column)| !is_named(*column)) {
            self.claim_for(segment, column)?;
            if known.is_some() {
                self.keep_column(segment, column);
            }
        }
        if known.is_some() {
            self.pin(segment);
            return Ok(());
        }
        let units = stored.filled / self.geometry.unit;
        let (place, owner) = (stored.place.clone(), stored.owner);
        let mut dead = DeadUnits::default();
        dead.kill(0, units, self.geometry.slot_units());
        let row = Row {
            place,
            group,
            owner,
            class,
            filled: units,
            live: 0,
            dead,
            open: false,
            unreadable: false,
            pinned: true,
        };
        self.enter(&row);
        let held = u64::from(self.capacity_units(&row));
        self.groups[group].kept_units += held;
        self.keep_row(segment, row);
        Ok(())
    }

    /// Forgets the checkpoint's segments without life, at the import of it, and gives them. They
    /// were open when it was taken, and emptied as soon as they were closed: the newest root may
    /// have given their slots to others.
    fn drop_lifeless(&mut self) -> Vec<SegmentId> {
        let lifeless: Vec<SegmentId> =
            self.rows.iter().filter(|(_, row)| row.live == 0).map(|(&id, _)| id).collect();
        for id in &lifeless {
            self.retire(*id);
            let Emptied { row, .. } = self.emptied.remove(id).expect("retired just now, and not pinned");
            self.leave_emptied(&row);
            row.place.present().for_each(|(_, column)| _ = self.free_slot(column));
        }
        lifeless
    }

    /// Takes a slot that another root names, at import.
    fn claim_for(&mut self, segment: SegmentId, column: Column) -> Result<(), TableError> {
        if self.claim_slot(column) {
            return Ok(());
        }
        let holds = |row: &Row| row.place.present().any(|(_, other)| other == column);
        let first = self.rows.iter().find(|(_, row)| holds(row)).map_or(segment, |(&id, _)| id);
        let Column { device, slot } = column;
        Err(TableError::SlotTwice { first, second: segment, device, slot })
    }

    /// Verifies [kept.2], [kept.3] and [kept.5].
    pub(crate) fn check_kept(&self) -> Result<(), String> {
        let (mut units, mut metadata) = (vec![0; self.groups.len()], 0);
        for (id, row) in self.rows.iter().filter(|(_, row)| row.pinned) {
            if row.open {
                return Err(format!("[kept.2] segment {id} is pinned and open"));
            }
            units[row.group] += u64::from(self.capacity_units(row) - row.live);
            metadata += row.class.copy_index().map_or(0, |_| u64::from(row.live));
        }
        if metadata != self.kept.metadata_units {
            return Err(format!("[kept.5] {metadata} units of metadata live in pinned segments"));
        }
        self.kept.rows.values().for_each(|row| units[row.group] += self.returned_units(row));
        for column in self.kept.columns.keys() {
            units[self.devices[&column.device].group] += self.column_units(*column);
        }
        let counted: Vec<u64> = self.groups.iter().map(|group| group.kept_units).collect();
        if units != counted {
            return Err(format!("[kept.3] groups count {counted:?} kept units, and there are {units:?}"));
        }
        Ok(())
    }
}

impl Space {
    /// Rows of all segments, for the space of another root of the pool.
    #[must_use]
    pub fn rows(&self) -> Vec<(SegmentId, SegmentRow)> {
        let table = &self.read_state().table;
        table.rows.iter().map(|(id, row)| (*id, table.store_row(row))).collect()
    }

    /// The next id that a segment will have.
    #[must_use]
    pub fn next_segment(&self) -> SegmentId {
        self.read_state().table.next_id
    }

    /// At import, between [`Space::load_runs`] and [`Space::finish_load`]: keeps what the table of
    /// the pool's checkpoint names, in which every row lives.
    pub fn load_kept(&self, rows: &[(SegmentId, SegmentRow)]) -> Result<(), TableError> {
        let table = &mut self.write_state().table;
        table.kept.is_there = true;
        rows.iter().try_for_each(|(id, row)| table.load_kept(*id, row))
    }

    /// At the import of a checkpoint, in the same place: the newest root's table, whose slots are
    /// free after the first commit, and the id behind all that it gave out.
    pub fn load_left(&self, rows: &[(SegmentId, SegmentRow)], next: SegmentId) -> Result<(), TableError> {
        let state = &mut *self.write_state();
        let table = &mut state.table;
        table.next_id = table.next_id.max(next);
        let dropped = table.drop_lifeless();
        state.loading.as_mut().expect("the table is being loaded").rows.extend(dropped);
        for (segment, stored) in rows {
            let known = table.rows.get(segment).map(|row| row.place.clone());
            let named = |column| known.iter().any(|place| place.present().any(|(_, other)| other == column));
            for (_, column) in stored.place.present().filter(|(_, column)| !named(*column)) {
                table.claim_for(*segment, column)?;
                table.lose_slot(*segment, column);
            }
        }
        Ok(())
    }

    /// Whether there is a checkpoint.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.read_state().table.kept.is_there
    }

    /// Keeps all that the root names which has just been committed. Ends the open segments. Between
    /// two commits, while nothing is appended.
    pub fn keep_all(&self) -> Result<(), Error> {
        self.close_streams(|_, _| true)?;
        let _sync = lock(&self.sync);
        let table = &mut self.write_state().table;
        table.kept.is_there = true;
        let ids: Vec<SegmentId> = table.rows.keys().copied().collect();
        debug_assert!(table.rows.values().all(|row| !row.open), "[kept.2]");
        ids.into_iter().for_each(|id| table.pin(id));
        Ok(())
    }

    /// Keeps nothing any more: the slots are free with the commit under way [kept.4]. Sync context
    /// only, before the commit's tail.
    pub fn let_go(&self) {
        let _sync = lock(&self.sync);
        self.write_state().table.unpin();
    }

    /// Whether the pool can go on beside a checkpoint of what it holds now: no more than is free
    /// now is left to it then, as nothing comes back of what dies. That is to be the reserve, and
    /// the slots that streams take when they begin anew.
    #[must_use]
    pub fn has_room_to_keep(&self) -> bool {
        let table = &self.read_state().table;
        table.free_units_of(Side::Normal) >= self.units_to_keep(table)
    }

    fn units_to_keep(&self, table: &Table) -> u64 {
        let unit = u64::from(self.geometry.unit);
        let reserve = self.reserve_of(table, table.reachable_of(Side::Normal) * unit) / unit;
        let streams = 2 + table.open_slots_max().0;
        let metadata = [Class::Meta0, Class::Meta1, Class::Pool0, Class::Pool1];
        let metadata: u64 = metadata.into_iter().map(|class| table.class_live_units(class)).sum();
        reserve + metadata + streams * u64::from(self.geometry.slot_units())
    }

    /// Units that the cleaner is to have free at any price, if a checkpoint waits for them.
    pub(crate) fn wished_units(&self) -> i64 {
        let state = self.read_state();
        if !state.wishes_room {
            return 0;
        }
        let wished = self.units_to_keep(&state.table) + 2 * u64::from(self.geometry.slot_units());
        i64::try_from(wished).unwrap_or(i64::MAX)
    }

    /// Whether the cleaner is to make room for a checkpoint ([`Space::has_room_to_keep`]).
    pub fn wish_room(&self, on: bool) {
        self.write_state().wishes_room = on;
    }
}

impl Table {
    /// The last committed root alone names a slot.
    pub(crate) fn lose_slot(&mut self, segment: SegmentId, column: Column) {
        self.kept.lost.push(LostColumn { segment, column, committing: false });
        if let Some(space) = self.devices.get_mut(&column.device) {
            space.lost += 1;
        }
    }
}
