//! Groups with parity on devices of different sizes. The extra slots of larger devices hold
//! *narrow* segments, of fewer columns. They hold less: of k columns of data each holds a k-th of a
//! slot. So space is counted in units. Reasons and proofs: `docs/decisions/0115-uneven-devices.md`;
//! the arithmetic: `widths.rs`.
//!
//! ## Definitions
//! *Narrow group*: one in which new segments may be narrow, because the group holds more so.
//! *Narrow row*: a segment with fewer columns than its group has by now, whatever became of the
//! group. *Reachable*: what the segments of a group hold when they are full, and what can still be
//! placed there.
//!
//! ## Invariants
//! [uneven.1] A segment with parity has between parity + 1 and `width` columns on as many devices,
//!      and is filled to what these hold at most.
//!      `Table::check_place`, `Table::load_row`; assert: `Table::check`
//! [uneven.2] Placing a segment lowers what its group counts as free by what that segment holds, in
//!      columns of data; but for the log, for a tail that fits into wide segments only, and while a
//!      device is replaced.
//!      test
//! [uneven.3] A commit that frees a segment raises it by that at least.
//!      test
//! [uneven.4] A segment lacks columns only for devices that are away, and no more than its parity:
//!      a narrow one survives what any other does.
//!      `Table::take_narrow`; test
//! [uneven.5] The units kept out of the capacity are free or dead: capacity is the reachable units
//!      less them.
//!      `Table::reachable_of`
//! [uneven.6] Every narrow segment takes any block, and a tail: it holds a third of a slot at
//!      least, and in groups without narrow rows twice the last tail, so that none come to be where
//!      tails are longer. Where there are some such a tail takes a wider segment.
//!      `Table::widths`
//! [uneven.7] In a group of as many devices as columns those that fail change nothing that
//!      admission counts, and find room for every column that was written without them when they
//!      are back, whoever writes first. A device that comes in the stead of another has room for
//!      what that one held.
//!      `Table::members`, `Table::meant`; test
//! [uneven.8] Without the feature, and in groups that hold no more by it, the table decides as it
//!      did before there were narrow segments. (What a group of more devices than columns can come
//!      to is counted as it lies in any case.)

use crate::Class;
use crate::commit_room::leaf_units;
use crate::geometry::{Geometry, signed};
use crate::groups::{self, Counts, Group, Redundancy};
use crate::row::Row;
use crate::side::Side;
use crate::table::{DeviceSpace, Table};
use crate::widths::{Widths, lowered};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use steadfast_format::{Column, DatasetId, DeviceId, Placement, SegmentId};

/// A group has narrow segments if they add this part of what whole ones come to, and more than a
/// whole one: less is what the log leaves of devices that are alike, or what they have beyond whole
/// segments if there are more of them than columns.
const GAIN_SHARE: u64 = 64;

/// A narrow segment holds this part of a slot at least: a block may be as long as a quarter, and
/// each segment may end with a rest of one.
const NARROW_SHARE: u32 = 3;

/// A device of a group on which the next segment may have a column.
struct Member {
    /// Its free slots, less what is to come from elsewhere.
    free: u32,
    device: DeviceId,
    /// False if it is away: its column is missing then.
    here: bool,
}

/// Units that slots on some devices of a group hold together, computed once.
pub(crate) type SlotUnits = BTreeMap<(usize, Vec<DeviceId>), u64>;

impl Table {
    /// Whether new segments may be narrow where that uses more of the devices.
    pub fn set_uneven(&mut self, on: bool) {
        self.may_narrow = on;
        self.recount_all();
    }

    /// Counts every group anew.
    pub fn recount_all(&mut self) {
        (0..self.groups.len()).for_each(|index| self.recount(index));
    }

    /// Counts what a group can take. Not while a table is being loaded, which ends with counting
    /// all.
    pub fn recount(&mut self, index: usize) {
        if !self.loading {
            self.groups[index].counts = self.count(index);
        }
    }

    /// Counts the room of a group, now and in all.
    pub fn count(&self, index: usize) -> Counts {
        if let Some(counts) = self.count_store(index) {
            return counts;
        }
        let group = &self.groups[index];
        let (slot, data) = (u64::from(self.geometry.slot_units()), u64::from(group.data()));
        let here = || group.devices.iter().map(|id| &self.devices[id]);
        let free: Vec<u32> = here().filter(|space| space.usable()).map(|space| space.slots.free()).collect();
        let all: Vec<u32> = here().filter(|space| !space.leaving).map(|space| space.slots.total()).collect();
        let total = groups::formable(&all, group.width);
        let width = group.width_of(free.len());
        let surplus = matches!(group.redundancy, Redundancy::Raidz(_)) && all.len() > group.width as usize;
        let free = width.map_or(0, |width| groups::formable(&free, width));
        let (free_columns, whole) = (u64::from(free) * data, u64::from(total) * data);
        if let Some(widths) =
            self.widths(group).filter(|_| width.is_some() && self.may_be_narrow(group, &all))
        {
            let best = widths.best(&all).columns;
            let columns = widths.best(&self.free_of_members(index)).columns;
            let stays = group.narrow_rows > 0 || group.counts.narrow && columns > free_columns;
            if stays || is_gain(best, whole, data) {
                let [free_units, total_units] =
                    [columns, best].map(|columns| group.units_in(columns, self.geometry));
                let [free, total] =
                    [free_units, total_units].map(|units| u32::try_from(units / slot).unwrap_or(u32::MAX));
                return Counts {
                    free,
                    total,
                    free_units,
                    total_units,
                    free_columns: columns,
                    narrow: true,
                    surplus,
                };
            }
        }
        Counts {
            free,
            total,
            free_units: u64::from(free) * slot,
            total_units: u64::from(total) * slot,
            free_columns,
            narrow: false,
            surplus,
        }
    }

    /// False if devices of so many slots gain nothing by narrow segments, and there are none. A
    /// narrow group stays one until it has no narrow rows, and what is free is in whole segments:
    /// else what a commit gives back of narrow ones, or what already lives in them, would count for
    /// nothing once devices are alike.
    fn may_be_narrow(&self, group: &Group, all: &[u32]) -> bool {
        let alike = all.len() == group.width as usize && all.iter().all(|slots| *slots == all[0]);
        !alike || group.counts.narrow || group.narrow_rows > 0
    }

    /// The widths that segments of a group may have; `None` if only whole ones.
    fn widths(&self, group: &Group) -> Option<Widths> {
        let Redundancy::Raidz(parity) = group.redundancy else { return None };
        let parity = u32::from(parity);
        if !self.may_narrow || group.width <= parity {
            return None;
        }
        // [uneven.6] Living units of narrow rows count, whatever becomes of the tail.
        let tail = match group.narrow_rows {
            0 => self.data_for(group, self.tail_units.min(self.geometry.slot_units())),
            _ => 0,
        };
        let least = parity + group.data().div_ceil(NARROW_SHARE).max(tail).min(group.data());
        Some(Widths { parity, least, most: group.width })
    }

    /// Columns of data that hold so many units.
    fn data_for(&self, group: &Group, units: u32) -> u32 {
        let columns = u64::from(units) * u64::from(group.data());
        u32::try_from(columns.div_ceil(self.geometry.slot_units().into())).unwrap_or(u32::MAX / 2)
    }

    /// The same of a narrow group.
    fn widths_of_narrow(&self, index: usize) -> Option<Widths> {
        let group = &self.groups[index];
        self.widths(group).filter(|_| group.counts.narrow)
    }

    /// A tail took so many units: narrow segments of groups that have none yet will have to hold
    /// twice as much [uneven.6]. In powers of two, and with some play, so that what groups count
    /// seldom changes because of it.
    pub fn note_tail(&mut self, units: u32) {
        let wanted = units.saturating_mul(2).checked_next_power_of_two().unwrap_or(u32::MAX);
        if wanted > self.tail_units || wanted < self.tail_units / 2 {
            self.tail_units = wanted;
            if self.may_narrow {
                self.recount_all();
            }
        }
    }

    /// The devices on which the next segment may have a column, those with most free slots first.
    /// Of as many as are lacking to a whole segment those that are away count as if they were there
    /// [uneven.7]. Room for the columns that rows lack is kept free where they are to be built.
    /// Columns on devices that leave, or that a spare stands in for, count for the newest present
    /// devices, which were added in their stead; the rest of the leaving columns count for any. For
    /// an absent device that others make up for, as there are more devices than columns, no more is
    /// kept than the newest ones have: it may never come back.
    fn members(&self, index: usize) -> Vec<Member> {
        let group = &self.groups[index];
        let of = |wanted: fn(&DeviceSpace) -> bool, here: bool| -> Vec<Member> {
            let spaces = group.devices.iter().map(|id| (*id, &self.devices[id]));
            let spaces = spaces.filter(|(_, space)| wanted(space));
            spaces.map(|(device, space)| Member { free: space.slots.free(), device, here }).collect()
        };
        let mut here = of(DeviceSpace::usable, true);
        let mut away = of(|space| !space.in_use && !space.leaving, false);
        for member in &mut away {
            // Slots that rows lost since the last commit are among what is owed, and free with the
            // next.
            let space = &self.devices[&member.device];
            member.free = member.free.saturating_add(space.lost).saturating_sub(space.owed);
        }
        fullest_first(&mut away);
        away.truncate((group.width as usize).saturating_sub(here.len()));
        let stays = |id: &DeviceId| here.iter().chain(&away).any(|member| member.device == *id);
        let others: Vec<DeviceId> = group.devices.iter().copied().filter(|id| !stays(id)).collect();
        // Without what was built elsewhere since the last commit: that has its slots already.
        let lies = |id: &DeviceId| {
            let slots = &self.devices[id].slots;
            u64::from((slots.total() - slots.free()).saturating_sub(self.lost_on(*id)))
        };
        let moving: u64 = others.iter().map(lies).sum();
        let leaving: u64 = others.iter().filter(|id| self.devices[*id].leaving).map(lies).sum();
        here.sort_unstable_by_key(|member| Reverse(member.device));
        let newest = others.len().min(here.len());
        let room: u64 = here[..newest].iter().map(|member| u64::from(member.free)).sum();
        lower(&mut here[..newest], moving.min(room));
        lower(&mut here, leaving.saturating_sub(room));
        for member in &mut here {
            // If it came back before the next commit, a part of what is owed gets slots that it
            // lost.
            let space = &self.devices[&member.device];
            member.free = member.free.saturating_sub(space.owed.saturating_sub(space.lost));
        }
        let owed: u32 = here.iter().chain(&away).map(|member| self.devices[&member.device].owed).sum();
        let lacking = if away.is_empty() { &mut here } else { &mut away };
        lower(lacking, group.missing.saturating_sub(owed).into());
        here.append(&mut away);
        fullest_first(&mut here);
        here
    }

    /// Sees to it that of each column that rows of a group with narrow segments lack it is known
    /// where it is to be built. When a device comes, goes or grows, and at import: a pass over all
    /// rows, if any is missing. Those with least choice go first.
    pub fn settle_owed(&mut self, index: usize) {
        self.recount(index);
        if self.loading || self.groups[index].missing == 0 || !self.is_narrow_group(index) {
            return;
        }
        let group = &self.groups[index];
        let gone = |id: &DeviceId| !self.is_awaited(*id);
        let mut lacking: Vec<(usize, SegmentId)> = Vec::new();
        let mut moot: Vec<(SegmentId, DeviceId)> = Vec::new();
        for (id, row) in self.rows.iter().filter(|(_, row)| row.group == index) {
            let missing = row.missing() as usize;
            if missing == 0 {
                continue;
            }
            let meant = self.meant.get(id).map_or(&[][..], Vec::as_slice);
            moot.extend(meant.iter().filter(|device| gone(device)).map(|device| (*id, *device)));
            if meant.len() < missing || meant.iter().any(gone) {
                let choice = group.devices.len().saturating_sub(row.place.columns().count());
                lacking.push((choice, *id));
            }
        }
        moot.into_iter().for_each(|(id, device)| self.forget_meant(id, device));
        lacking.sort_unstable();
        lacking.into_iter().for_each(|(_, id)| self.assign_missing(id));
        self.recount(index);
    }

    /// Finds devices for columns that a row lacks: those that are away, for which it was made so,
    /// or else others; those with most slots that nobody waits for. The log is not mended. The
    /// group is counted anew by the caller.
    pub fn assign_missing(&mut self, id: SegmentId) {
        let Some(row) = self.rows.get(&id).filter(|row| row.class != Class::Log) else { return };
        let missing = row.missing() as usize;
        if missing == 0 || self.loading || !self.is_narrow_group(row.group) {
            return;
        }
        let known = self.meant.get(&id).map_or(&[][..], Vec::as_slice);
        let holds = |id: &DeviceId| row.place.present().any(|(_, column)| column.device == *id);
        let others = self.groups[row.group].devices.iter().filter(|id| !holds(id) && !known.contains(id));
        let mut fit: Vec<(bool, Reverse<u32>, DeviceId)> = others
            .map(|id| (*id, &self.devices[id]))
            .filter(|(id, _)| self.is_awaited(*id))
            .map(|(id, space)| (space.in_use, Reverse(self.spare(id)), id))
            .collect();
        fit.sort_unstable();
        let chosen: Vec<DeviceId> =
            fit.into_iter().take(missing.saturating_sub(known.len())).map(|(.., device)| device).collect();
        chosen.into_iter().for_each(|device| self.mean(id, device));
    }

    /// Whether columns may be built on a device, now or when it is back: not if it leaves, or is
    /// away and others make up for it.
    pub fn is_awaited(&self, device: DeviceId) -> bool {
        let Some(space) = self.devices.get(&device).filter(|space| !space.leaving) else { return false };
        let group = &self.groups[space.group];
        let usable = || group.devices.iter().filter(|id| self.devices[id].usable()).count();
        space.in_use || usable() < group.width as usize
    }

    /// A column that a row lacks is to be built on a device. Its group is counted anew by the
    /// caller.
    pub fn mean(&mut self, id: SegmentId, device: DeviceId) {
        let narrow = |row: &Row| row.class != Class::Log && self.is_narrow_group(row.group);
        if !self.rows.get(&id).is_some_and(narrow) {
            return;
        }
        self.meant.entry(id).or_default().push(device);
        if let Some(space) = self.devices.get_mut(&device) {
            space.owed += 1;
        }
    }

    /// A column of a row was built on a device, or is not waited for there any more.
    pub fn forget_meant(&mut self, id: SegmentId, device: DeviceId) {
        let Some(meant) = self.meant.get_mut(&id) else { return };
        // If it was built elsewhere, one of those is not needed.
        let at = meant.iter().position(|meant| *meant == device).unwrap_or(meant.len() - 1);
        let device = meant.swap_remove(at);
        if meant.is_empty() {
            self.meant.remove(&id);
        }
        if let Some(space) = self.devices.get_mut(&device) {
            space.owed -= 1;
        }
    }

    /// A row lacks nothing that is to be built, or is gone.
    pub fn forget_all_meant(&mut self, id: SegmentId) {
        while let Some(device) = self.meant.get(&id).and_then(|meant| meant.first().copied()) {
            self.forget_meant(id, device);
        }
    }

    fn free_of_members(&self, index: usize) -> Vec<u32> {
        self.members(index).into_iter().map(|member| member.free).collect()
    }

    /// Takes slots for a segment: in as many columns as lose nothing of what the group can hold,
    /// and as are needed for a block of so many units.
    pub fn take_columns(
        &mut self,
        index: usize,
        (owner, class): (DatasetId, Class),
        id: SegmentId,
        units: u32,
    ) -> Option<Placement> {
        match self.widths_of_narrow(index).filter(|_| class != Class::Log) {
            Some(widths) => self.take_narrow((index, widths), (owner, class), id, units),
            None => self.take_whole(index, (owner, class), id),
        }
    }

    /// The columns are on the devices with most free slots, turned as those of whole segments are.
    /// Those of devices that are away are missing; they are the last, as parity is missed least.
    fn take_narrow(
        &mut self,
        (index, widths): (usize, Widths),
        (owner, class): (DatasetId, Class),
        id: SegmentId,
        units: u32,
    ) -> Option<Placement> {
        let mut members = self.members(index);
        let free: Vec<u32> = members.iter().map(|member| member.free).collect();
        let least = widths.parity + self.data_for(&self.groups[index], units);
        let wanted = widths.next(&free, least)? as usize;
        members.truncate(wanted);
        let mut here: Vec<DeviceId> =
            members.iter().filter(|member| member.here).map(|member| member.device).collect();
        // [uneven.4]
        if here.len() + (widths.parity as usize) < wanted {
            return None;
        }
        here.sort_unstable();
        let turn = usize::try_from(id.0 % here.len() as u64).expect("below their number");
        here.rotate_left(turn);
        let mut columns: Vec<Option<Column>> = Vec::with_capacity(wanted);
        for device in here {
            let slot = self.take_apart(device, owner).expect("a free one was counted");
            columns.push(Some(Column { device, slot }));
        }
        columns.resize(wanted, None);
        self.recount(index);
        Some(self.groups[index].placement(class, self.geometry, columns))
    }

    /// Units that a segment holds where it lies.
    pub fn capacity_units(&self, row: &Row) -> u32 {
        if !row.open && self.store_of(row.group).is_some() {
            return row.filled;
        }
        self.groups[row.group].capacity_of(&row.place, row.class, self.geometry)
    }

    /// Units that a segment still takes.
    pub fn room_units(&self, row: &Row) -> u32 {
        self.capacity_units(row).saturating_sub(row.filled)
    }

    /// Counts a segment with its group.
    pub fn enter(&mut self, row: &Row) {
        self.hold(row, true);
        if self.groups[row.group].narrow_rows == 1 && self.is_narrow(row) {
            // Others may be as narrow as it from now on.
            self.recount(row.group);
        }
        self.lack(row.group, row.missing(), 0);
    }

    /// A segment is emptied: its slots stay taken, and its group is owed no columns of it.
    pub fn enter_emptied(&mut self, row: &Row) {
        let units = self.returned_units(row);
        self.groups[row.group].emptied_units += units;
        self.lack(row.group, 0, row.missing());
    }

    /// Slots of an emptied segment are free.
    pub fn leave_emptied(&mut self, row: &Row) {
        let units = self.returned_units(row);
        self.groups[row.group].emptied_units -= units;
        self.hold(row, false);
    }

    /// Units that a segment's slots bring when they are free, at least [uneven.3].
    pub(crate) fn returned_units(&self, row: &Row) -> u64 {
        if self.store_of(row.group).is_some() {
            return row.filled.into();
        }
        let group = &self.groups[row.group];
        group.units_in(group.data_of(&row.place).into(), self.geometry)
    }

    /// A segment lies elsewhere from now on.
    pub fn reenter(&mut self, before: &Row, now: &Row) {
        self.hold(before, false);
        self.hold(now, true);
        self.lack(before.group, 0, before.missing());
        self.lack(now.group, now.missing(), 0);
        // Columns that it left on a leaving device need not move any more.
        self.recount(before.group);
    }

    fn hold(&mut self, row: &Row, more: bool) {
        if self.store_of(row.group).is_some() {
            let units = self.units_on_store(row);
            let (more, less) = if more { (units, 0) } else { (0, units) };
            self.take_units(row.group, more, less);
        }
        let narrow = u32::from(self.is_narrow(row));
        let group = &mut self.groups[row.group];
        let columns = u64::from(group.data_of(&row.place));
        if more {
            group.held_columns += columns;
            group.narrow_rows += narrow;
        } else {
            group.held_columns -= columns;
            group.narrow_rows -= narrow;
        }
    }

    /// Rows of a group lack more columns, or fewer.
    pub fn lack(&mut self, index: usize, more: u32, less: u32) {
        let group = &mut self.groups[index];
        group.missing = group.missing + more - less;
        if group.counts.narrow && more != less {
            self.recount(index);
        }
    }

    /// Whether a segment holds less than a slot for want of columns.
    fn is_narrow(&self, row: &Row) -> bool {
        let group = &self.groups[row.group];
        row.class != Class::Log && group.data_of(&row.place) < group.data()
    }

    /// Units that can be placed on a side, in segments of whatever width.
    pub fn free_units_of(&self, side: Side) -> u64 {
        self.of_side(side).map(|group| group.counts.free_units).sum()
    }

    /// Units that a commit gives back on a side.
    pub fn emptied_units_of(&self, side: Side) -> u64 {
        self.of_side(side).map(|group| group.emptied_units).sum()
    }

    /// Units that what lies on a side can come to, as it lies [uneven.5]: a group with narrow rows
    /// would hold more if these were written anew.
    pub fn reachable_of(&self, side: Side) -> u64 {
        self.of_side(side).map(|group| group.reachable(self.geometry)).sum()
    }

    /// The same of the normal side, if a device of a group there had so many slots and all was
    /// written anew; `None` of a device whose group is not of those that make narrow segments.
    pub fn reachable_with(&self, device: DeviceId, slots: u32) -> Option<u64> {
        let index = self.devices.get(&device)?.group;
        let group = &self.groups[index];
        let widths = self.widths(group).filter(|_| group.side() == Side::Normal)?;
        let stays = group.devices.iter().filter(|id| **id != device).map(|id| &self.devices[id]);
        let mut all: Vec<u32> =
            stays.filter(|space| !space.leaving).map(|space| space.slots.total()).collect();
        all.push(slots);
        let others = self.groups.iter().enumerate();
        let others = others.filter(|(at, group)| *at != index && group.side() == Side::Normal);
        let others: u64 = others.map(|(_, group)| group.reachable(self.geometry)).sum();
        let (best, data) = (widths.best(&all).columns, u64::from(group.data()));
        let whole = u64::from(groups::formable(&all, group.width)) * data;
        let columns = if group.narrow_rows > 0 || is_gain(best, whole, data) { best } else { whole };
        Some(others + group.units_in(columns, self.geometry).saturating_sub(group.kept_units))
    }

    /// Units of each stream of metadata that may be lost to rests of narrow segments, beside the
    /// one of a whole segment: no node goes across the end of one. 0 if there are no narrow groups.
    pub fn rest_units(&self) -> i64 {
        let slot = u64::from(self.geometry.slot_units());
        let further = slot.div_ceil(self.least_segment_units()) - 1;
        signed(further * leaf_units(self.geometry))
    }

    /// The same, and a narrow segment: with these rests a stream may need one more than its share
    /// comes to, of which it fills little.
    pub fn spare_units(&self) -> i64 {
        match self.rest_units() {
            0 => 0,
            rests => rests + signed(self.least_segment_units()),
        }
    }

    /// Units of the smallest segment that may be made in a narrow group.
    fn least_units(&self, index: usize) -> Option<u64> {
        let widths = self.widths_of_narrow(index)?;
        Some(self.groups[index].units_in((widths.least - widths.parity).into(), self.geometry).max(1))
    }

    /// Units of the smallest segment that may be made: a slot, if there are no narrow groups.
    pub fn least_segment_units(&self) -> u64 {
        let least = (0..self.groups.len()).filter_map(|index| self.least_units(index)).min();
        least.unwrap_or(self.geometry.slot_units().into())
    }

    /// Units of the smallest segment that may be made on a side, and segments at most; `None` if
    /// there are no narrow groups.
    pub fn narrow_segments(&self, side: Side) -> Option<(u64, u64)> {
        let (mut least, mut segments) = (None, 0);
        for (index, group) in self.groups.iter().enumerate().filter(|(_, group)| group.side() == side) {
            let (Some(widths), Some(holds)) = (self.widths_of_narrow(index), self.least_units(index)) else {
                segments += u64::from(group.counts.free);
                continue;
            };
            least = Some(least.map_or(holds, |least: u64| least.min(holds)));
            segments += widths.segments_max(&self.free_of_members(index));
        }
        least.map(|least| (least, segments))
    }

    /// Units that come back when a segment is emptied: what it holds, or more where its slots
    /// complete what others have free (lemma 4). For the cleaner. It is the figure of one segment
    /// alone: of several that compete for a free slot all look worth it once.
    pub fn worth_units(&self, row: &Row, known: &mut SlotUnits) -> u32 {
        let (holds, group) = (self.capacity_units(row), &self.groups[row.group]);
        if group.narrow_rows == 0 || !self.is_narrow(row) {
            return holds;
        }
        let mut on: Vec<DeviceId> = row.place.present().map(|(_, column)| column.device).collect();
        on.sort_unstable();
        let gain = *known.entry((row.group, on)).or_insert_with_key(|(index, on)| self.gain_of(*index, on));
        if gain <= u64::from(group.data_of(&row.place)) {
            return holds;
        }
        let units = group.units_in(gain, self.geometry);
        u32::try_from(units).unwrap_or(u32::MAX).clamp(holds, 2 * self.geometry.slot_units())
    }

    /// Columns of data by which free ones rise if a slot more is free on each of these devices.
    fn gain_of(&self, index: usize, on: &[DeviceId]) -> u64 {
        let members = self.members(index);
        let before: Vec<u32> = members.iter().map(|member| member.free).collect();
        let with = |member: &Member| member.free + u32::from(on.contains(&member.device));
        let after: Vec<u32> = members.iter().map(with).collect();
        let group = &self.groups[index];
        let holds = |free: &[u32]| match self.widths_of_narrow(index) {
            Some(widths) => widths.best(free).columns,
            None => u64::from(groups::formable(free, group.width)) * u64::from(group.data()),
        };
        holds(&after).saturating_sub(holds(&before))
    }

    /// Verifies what groups count of their segments.
    pub fn check_uneven(&self) -> Result<(), String> {
        for (index, group) in self.groups.iter().enumerate() {
            let rows = || self.rows.values().filter(|row| row.group == index);
            let emptied =
                || self.emptied.values().map(|emptied| &emptied.row).filter(|row| row.group == index);
            let kept = || self.kept.rows.values().filter(|row| row.group == index);
            let columns = |row: &Row| u64::from(group.data_of(&row.place));
            let held = rows().chain(emptied()).chain(kept()).map(columns).sum::<u64>();
            let returned = emptied().map(|row| self.returned_units(row)).sum::<u64>();
            let narrow = rows().chain(emptied()).chain(kept()).filter(|row| self.is_narrow(row)).count();
            let missing: u32 = rows().map(Row::missing).sum();
            let found = (held, returned, narrow, missing);
            let known = (group.held_columns, group.emptied_units, group.narrow_rows as usize, group.missing);
            if found != known {
                return Err(format!("[uneven.5] group {index} counts {known:?}, and there are {found:?}"));
            }
        }
        let mut owed: BTreeMap<DeviceId, u32> = BTreeMap::new();
        for (id, meant) in &self.meant {
            let lacks = self.rows.get(id).map_or(0, Row::missing) as usize;
            let holds = |device| {
                let row = self.rows.get(id);
                row.is_some_and(|row| row.place.present().any(|(_, column)| column.device == device))
            };
            if meant.is_empty() || meant.len() > lacks || meant.iter().any(|device| holds(*device)) {
                return Err(format!(
                    "[uneven.7] segment {id} lacks {lacks} columns, which are to be on {meant:?}"
                ));
            }
            meant.iter().for_each(|device| *owed.entry(*device).or_default() += 1);
        }
        for (id, space) in &self.devices {
            if space.owed != owed.get(id).copied().unwrap_or(0) {
                return Err(format!("[uneven.7] device {id} counts {} columns that are to come", space.owed));
            }
        }
        let helpless = |row: &Row| row.missing() as usize > row.place.redundancy();
        match self.rows.iter().find(|(_, row)| helpless(row)) {
            Some((id, _)) => {
                Err(format!("[uneven.4] segment {id} lacks more columns than it can do without"))
            }
            None => Ok(()),
        }
    }

    /// Whether any segment is narrow.
    pub fn has_narrow_rows(&self) -> bool {
        self.groups.iter().any(|group| group.narrow_rows > 0)
    }

    /// Whether a group has narrow segments, or may have them.
    pub fn is_narrow_group(&self, index: usize) -> bool {
        let group = &self.groups[index];
        group.counts.narrow || group.narrow_rows > 0
    }
}

impl Group {
    /// Units that its segments can come to, as they lie, without what only the checkpoint needs.
    pub fn reachable(&self, geometry: Geometry) -> u64 {
        let Counts { free_columns, total_units, narrow, surplus, .. } = self.counts;
        // Where there are more devices than columns free slots may all be on one of them, as after
        // it took the place of a smaller one: until columns have moved there (`Space::level`)
        // nothing can be placed on them.
        let units = if narrow || surplus || self.narrow_rows > 0 {
            total_units.min(self.units_in(self.held_columns + free_columns, geometry))
        } else {
            total_units
        };
        units.saturating_sub(self.kept_units)
    }
}

/// Whether a group holds so much more with narrow segments than with whole ones, in columns of
/// data, that it has some.
fn is_gain(best: u64, whole: u64, data: u64) -> bool {
    best > whole + (whole / GAIN_SHARE).max(data)
}

fn fullest_first(members: &mut [Member]) {
    members.sort_unstable_by_key(|member| (Reverse(member.free), member.device));
}

fn lower(members: &mut [Member], count: u64) {
    let free: Vec<u32> = members.iter().map(|member| member.free).collect();
    for (member, free) in members.iter_mut().zip(lowered(&free, count)) {
        member.free = free;
    }
}

#[cfg(test)]
mod tests;
