//! The table at import, row by row.

use std::collections::BTreeSet;

use steadfast_format::{Address, Column, Placement, RelocationRow, SegmentId, SegmentRow};

use crate::Class;
use crate::bitmap::DeadUnits;
use crate::error::TableError;
use crate::groups::{self, Group, Redundancy};
use crate::relocation::Run;
use crate::row::{Row, Unallocated};
use crate::side::Side;
use crate::table::Table;

impl Table {
    /// Adds a stored row.
    pub fn load_row(&mut self, segment: SegmentId, stored: &SegmentRow) -> Result<(), TableError> {
        let unit = self.geometry.unit;
        let class = Class::from_u8(stored.class);
        let class = class.ok_or(TableError::Class { segment, class: stored.class })?;
        if self.rows.contains_key(&segment) {
            return Err(TableError::RowTwice { segment });
        }
        if stored.filled > self.geometry.slot_size || !stored.filled.is_multiple_of(unit) {
            let (filled, slot_size) = (stored.filled, self.geometry.slot_size);
            return Err(TableError::Filled { segment, filled, slot_size });
        }
        if segment >= self.next_id || segment.0 == 0 {
            return Err(TableError::FutureId { segment, next: self.next_id });
        }
        let group = self.check_place(segment, class, &stored.place)?;
        let units = stored.filled / unit;
        let capacity = self.groups[group].capacity_of(&stored.place, class, self.geometry);
        if units > capacity {
            return Err(TableError::Filled { segment, filled: stored.filled, slot_size: capacity * unit });
        }
        let dead = match &stored.dead {
            Some(bytes) => {
                DeadUnits::from_bytes(bytes, units).ok_or(TableError::DeadUnits { segment, units })?
            }
            None => DeadUnits::default(),
        };
        for (_, column) in stored.place.present() {
            let Column { device, slot } = column;
            if !self.claim_slot(column) {
                let holds = |row: &Row| row.place.present().any(|(_, other)| other == column);
                let first = self.rows.iter().find(|(_, row)| holds(row)).map_or(segment, |(&id, _)| id);
                return Err(TableError::SlotTwice { first, second: segment, device, slot });
            }
        }
        let live = units - dead.count(0, units);
        self.groups[group].live_units += u64::from(live);
        self.live_units += u64::from(live);
        self.class_live[class as usize] += u64::from(live);
        let owner = stored.owner;
        let place = stored.place.clone();
        let row = Row {
            place,
            group,
            owner,
            class,
            filled: units,
            live,
            dead,
            open: false,
            unreadable: false,
            pinned: false,
        };
        self.enter(&row);
        self.rows.insert(segment, row);
        if class.is_pool() {
            self.pool_rows.insert(segment);
        }
        Ok(())
    }

    /// The group on which a stored segment lies: its devices are there and of one group, its slots
    /// exist, and its columns are as many, as large and as far apart as they should be: of one with
    /// parity there may be fewer, which hold less [uneven.1].
    pub fn check_place(
        &self,
        segment: SegmentId,
        class: Class,
        place: &Placement,
    ) -> Result<usize, TableError> {
        let wrong = |reason: &'static str| TableError::Columns { segment, reason };
        let mut group = None;
        let mut seen = BTreeSet::new();
        for (_, Column { device, slot }) in place.present() {
            let space = self.devices.get(&device).ok_or(TableError::NoDevice { segment, device })?;
            let slots = space.slots.total();
            if slot >= slots && space.store.is_none() {
                return Err(TableError::NoSlot { segment, device, slot, slots });
            }
            if !seen.insert(device) {
                return Err(wrong("two of its columns lie on one device"));
            }
            if group.replace(space.group).is_some_and(|other| other != space.group) {
                return Err(wrong("its columns lie on devices of different groups"));
            }
        }
        let group = group.ok_or_else(|| wrong("none of its columns is there"))?;
        if self.groups[group].side() == Side::Special && !class.may_be_special() {
            return Err(wrong("content or the log lies on a special group"));
        }
        let Group { redundancy, width, column, .. } = self.groups[group];
        let fits = match place {
            Placement::Plain(_) => column >= self.geometry.slot_size,
            Placement::Mirror(_) => class == Class::Log || column >= self.geometry.slot_size,
            Placement::Raidz { parity, columns, .. } => match groups::layout(place) {
                steadfast_vdev::Layout::Raidz(stripe) => {
                    let fit = |bytes: u32| stripe.column_bytes(bytes as usize) <= column as usize;
                    let units = self.groups[group].capacity_of(place, class, self.geometry);
                    let narrow = self.may_narrow
                        && redundancy == Redundancy::Raidz(*parity)
                        && columns.len() <= width as usize
                        && fit(units * self.geometry.unit);
                    stripe.chunk() >= self.geometry.unit as usize && (fit(self.geometry.slot_size) || narrow)
                }
                steadfast_vdev::Layout::Mirror => false,
            },
        };
        if !fits || redundancy == Redundancy::None && !matches!(place, Placement::Plain(_)) {
            return Err(wrong("its columns are not what its group is made for"));
        }
        Ok(group)
    }

    /// Extends a loaded segment by the block of the tail itself, which was appended after its row
    /// was computed.
    pub fn load_tail_block(&mut self, address: Address, bytes: usize) -> Result<(), TableError> {
        let wrong = TableError::TailPlace { address };
        let (unit, units) = self.units_of(address, bytes).map_err(|Unallocated| wrong.clone())?;
        let row = self.rows.get(&address.segment).ok_or(wrong.clone())?;
        let capacity = self.groups[row.group].capacity_of(&row.place, row.class, self.geometry);
        if row.filled != unit || units > capacity.saturating_sub(row.filled) {
            return Err(wrong);
        }
        self.take_units(row.group, units.into(), 0);
        let row = self.rows.get_mut(&address.segment).expect("found just now");
        row.open = true;
        self.extend(address.segment, units);
        self.rows.get_mut(&address.segment).expect("extended just now").open = false;
        Ok(())
    }

    /// Adds a stored relocation. All rows are loaded.
    pub fn load_run(&mut self, from: (SegmentId, u32), stored: &RelocationRow) -> Result<(), TableError> {
        let run = Run { from, to: (stored.segment, stored.unit), units: stored.units };
        let ((from, from_unit), (to, to_unit), units) = (run.from, run.to, run.units);
        let end_inside = |unit: u32, end: u32| unit.checked_add(units).is_some_and(|at| at <= end);
        let lives = self
            .rows
            .get(&to)
            .is_some_and(|row| end_inside(to_unit, row.filled) && row.dead.count(to_unit, units) < units);
        if units == 0 || !lives {
            return Err(TableError::RelocationTarget { from, from_unit, to, to_unit, units });
        }
        if from >= self.next_id
            || !end_inside(from_unit, self.geometry.slot_units())
            || !self.relocations.insert(run)
        {
            return Err(TableError::RelocationOverlap { from, from_unit, units });
        }
        Ok(())
    }

    /// All is loaded. The tail's `rows` and `runs` are not in the meta tree yet and counts as
    /// changed; rows without life are retired; with `skip_ids`, ids skip what an uncommitted txg
    /// can have used, which is no more than there are slots: of a narrow group no more than those
    /// of all its devices, as a segment may leave what it has on each of them.
    pub fn finish_load(
        &mut self,
        rows: &BTreeSet<SegmentId>,
        runs: &BTreeSet<(SegmentId, u32)>,
        skip_ids: bool,
    ) -> Result<(), TableError> {
        self.loading = false;
        self.recount_all();
        for run in self.relocations.iter() {
            if self.lives_natively(run) {
                let ((from, from_unit), units) = (run.from, run.units);
                return Err(TableError::RelocationOverlap { from, from_unit, units });
            }
        }
        self.changed = rows.clone();
        self.relocations.set_changed(runs.clone());
        let empty: Vec<SegmentId> =
            self.rows.iter().filter(|(_, row)| row.live == 0).map(|(&id, _)| id).collect();
        for id in empty {
            self.retire(id);
        }
        (0..self.groups.len()).for_each(|index| self.settle_owed(index));
        if !skip_ids {
            return Ok(());
        }
        let used = |group: &Group| match group.counts.narrow || group.narrow_rows > 0 {
            true => group.devices.iter().map(|id| u64::from(self.devices[id].slots.total())).sum::<u64>(),
            false => u64::from(group.counts.total),
        };
        let next = self.next_id.0.checked_add(self.groups.iter().map(used).sum());
        self.next_id =
            SegmentId(next.ok_or(TableError::FutureId { segment: self.next_id, next: self.next_id })?);
        Ok(())
    }

    /// True if units that a run moved are not dead where they were.
    pub(crate) fn lives_natively(&self, run: Run) -> bool {
        self.rows.get(&run.from.0).is_some_and(|row| {
            let end = row.filled.min(run.from.1 + run.units);
            run.from.1 < end && row.dead.count(run.from.1, end - run.from.1) < end - run.from.1
        })
    }
}
