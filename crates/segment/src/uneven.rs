//! Groups with parity on devices of different sizes: what larger ones have beyond the others is used by *narrow* segments, of fewer columns
//! in the same slots. They hold less: of k columns of data each holds a k-th of a slot. So everybody counts in units. Why so, and proofs, are
//! in `docs/decisions/0115-uneven-devices.md`; the arithmetic is in `widths.rs`.
//!
//! ## Definitions
//! *Narrow group*: one in which new segments may be narrow, because the group holds more so. *Narrow row*: a segment with fewer columns than
//! its group has by now, whatever became of the group. *Reachable*: what the segments of a group hold when they are full, and what can still
//! be placed there.
//!
//! ## Invariants
//! (U1) A segment with parity has between parity + 1 and `width` columns on as many devices, and is filled to what these hold at most.
//!                                                                    `Table::check_place`, `Table::load_row`; assert: `Table::check`
//! (U2) Placing a segment lowers what its group counts as free by what that segment holds, in columns of data; but for the log, for a tail that
//!      fits into wide segments only, and while a device is replaced.                                              test
//! (U3) A commit that frees a segment raises it by that at least.                                                  test
//! (U4) A segment lacks columns only for devices that are away, and no more than its parity: a narrow one survives what any other does.
//!                                                                                                  `Table::take_narrow`; test
//! (U5) What is kept out of the capacity is free or dead, as capacity is what can be reached, less that.            `Table::reachable_of`
//! (U6) Every narrow segment takes any block, and a tail: it holds a third of a slot at least, and in groups without narrow rows twice the last
//!      tail, so that none come to be where tails are longer. Where there are some such a tail takes a wider segment.  `Table::widths`
//! (U7) In a group of as many devices as columns those that fail change nothing that admission counts, and find room for every column that was
//!      written without them when they are back, whoever writes first. A device that comes in the stead of another has room for what that one held.
//!                                                                                    `Table::members`, `Table::meant`; test
//! (U8) Without the feature, and in groups that hold no more by it, the table decides as it did before there were narrow segments. (What a
//!      group of more devices than columns can come to is counted as it lies in any case.)

use std::cmp::Reverse;
use std::collections::BTreeMap;

use steadfast_format::{Column, DeviceId, Placement, SegmentId};

use crate::Class;
use crate::groups::{self, Counts, Group, Redundancy};
use crate::room::leaf_units;
use crate::sides::Side;
use crate::table::{DeviceSpace, Geometry, Row, Table, signed};
use crate::widths::{Widths, lowered};

/// A group has narrow segments if they add this part of what whole ones come to, and more than a whole one: less is what the log leaves of
/// devices that are alike, or what they have beyond whole segments if there are more of them than columns.
const GAIN_SHARE: u64 = 64;
/// A narrow segment holds this part of a slot at least: a block may be as long as a quarter, and each segment may end with a rest of one.
const NARROW_SHARE: u32 = 3;

/// A device of a group on which the next segment may have a column.
struct Member {
    /// Its free slots, less what is to come from elsewhere.
    free: u32,
    device: DeviceId,
    /// False if it is away: its column is missing then.
    here: bool,
}

/// What slots on some devices of a group are worth together, found out once.
pub(crate) type Worth = BTreeMap<(usize, Vec<DeviceId>), u64>;

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

    /// Counts what a group can take. Not while a table is being loaded, which ends with counting all.
    pub fn recount(&mut self, index: usize) {
        if !self.loading {
            self.groups[index].counts = self.count(index);
        }
    }

    /// What a group can take now, and in all.
    pub fn count(&self, index: usize) -> Counts {
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

    /// False if devices of so many slots gain nothing by narrow segments, and there are none. A narrow group stays one until it has no narrow
    /// rows, and what is free is in whole segments: else what a commit gives back of narrow ones, or what already lives in them, would count
    /// for nothing once devices are alike.
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
        // (U6) What lives in narrow rows has to count, whatever becomes of the tail.
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

    /// A tail took so many units: narrow segments of groups that have none yet will have to hold twice as much (U6). In powers of two, and with
    /// some play, so that what groups count seldom changes because of it.
    pub fn note_tail(&mut self, units: u32) {
        let wanted = units.saturating_mul(2).checked_next_power_of_two().unwrap_or(u32::MAX);
        if wanted > self.tail_units || wanted < self.tail_units / 2 {
            self.tail_units = wanted;
            if self.may_narrow {
                self.recount_all();
            }
        }
    }

    /// The devices on which the next segment may have a column, those with most free slots first. Of as many as are lacking to a whole segment
    /// those that are away count as if they were there (U7). What rows lack is kept free where it is to be built.
    /// What lies on devices that leave, or for which a spare stands in, comes to the newest of those that
    /// are there, which were added in their stead; of what has to leave the rest comes to any. Of a device that is away and that others make up
    /// for, as there are more of them than columns, no more is kept than the newest have: nobody may be waiting for it.
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
            // Slots that rows lost since the last commit are among what is owed, and free with the next.
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
            // If it came back before the next commit, a part of what is owed gets slots that it lost.
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

    /// Sees to it that of each column that rows of a group with narrow segments lack it is known where it is to be built. When a device comes,
    /// goes or grows, and at import: a pass over all rows, if any is missing. Those with least choice go first.
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
            let missing = missing_of(row) as usize;
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

    /// Finds devices for columns that a row lacks: those that are away, for which it was made so, or else others; those with most slots that
    /// nobody waits for. The log is not mended. The group is counted anew by the caller.
    pub fn assign_missing(&mut self, id: SegmentId) {
        let Some(row) = self.rows.get(&id).filter(|row| row.class != Class::Log) else { return };
        let missing = missing_of(row) as usize;
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

    /// Whether columns may be built on a device, now or when it is back: not if it leaves, or is away and others make up for it.
    pub fn is_awaited(&self, device: DeviceId) -> bool {
        let Some(space) = self.devices.get(&device).filter(|space| !space.leaving) else { return false };
        let group = &self.groups[space.group];
        let usable = || group.devices.iter().filter(|id| self.devices[id].usable()).count();
        space.in_use || usable() < group.width as usize
    }

    /// A column that a row lacks is to be built on a device. Its group is counted anew by the caller.
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

    /// Takes slots for a segment: in as many columns as lose nothing of what the group can hold, and as are needed for a block of so many
    /// units.
    pub fn take_columns(
        &mut self,
        index: usize,
        class: Class,
        id: SegmentId,
        units: u32,
    ) -> Option<Placement> {
        match self.widths_of_narrow(index).filter(|_| class != Class::Log) {
            Some(widths) => self.take_narrow(index, widths, class, id, units),
            None => self.take_whole(index, class, id),
        }
    }

    /// The columns are on the devices with most free slots, turned as those of whole segments are. Those of devices that are away are
    /// missing; they are the last, as parity is missed least.
    fn take_narrow(
        &mut self,
        index: usize,
        widths: Widths,
        class: Class,
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
        // (U4)
        if here.len() + (widths.parity as usize) < wanted {
            return None;
        }
        here.sort_unstable();
        let turn = usize::try_from(id.0 % here.len() as u64).expect("below their number");
        here.rotate_left(turn);
        let mut columns: Vec<Option<Column>> = Vec::with_capacity(wanted);
        for device in here {
            let slot = self.devices.get_mut(&device)?.slots.take().expect("a free one was counted");
            columns.push(Some(Column { device, slot }));
        }
        columns.resize(wanted, None);
        self.recount(index);
        Some(self.groups[index].placement(class, self.geometry, columns))
    }

    /// Units that a segment holds where it lies.
    pub fn capacity_units(&self, row: &Row) -> u32 {
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
        self.lack(row.group, missing_of(row), 0);
    }

    /// A segment is emptied: its slots stay taken, and its group is owed no columns of it.
    pub fn enter_emptied(&mut self, row: &Row) {
        let units = self.returned_units(row);
        self.groups[row.group].emptied_units += units;
        self.lack(row.group, 0, missing_of(row));
    }

    /// Slots of an emptied segment are free.
    pub fn leave_emptied(&mut self, row: &Row) {
        let units = self.returned_units(row);
        self.groups[row.group].emptied_units -= units;
        self.hold(row, false);
    }

    /// Units that a segment's slots bring when they are free, at least (U3).
    fn returned_units(&self, row: &Row) -> u64 {
        let group = &self.groups[row.group];
        group.units_in(group.data_of(&row.place).into(), self.geometry)
    }

    /// A segment lies elsewhere from now on.
    pub fn reenter(&mut self, before: &Row, now: &Row) {
        self.hold(before, false);
        self.hold(now, true);
        self.lack(before.group, 0, missing_of(before));
        self.lack(now.group, missing_of(now), 0);
        // What it left of a device that leaves does not have to move any more.
        self.recount(before.group);
    }

    fn hold(&mut self, row: &Row, more: bool) {
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

    /// Units that what lies on a side can come to, as it lies (U5): a group with narrow rows would hold more if these were written anew.
    pub fn reachable_of(&self, side: Side) -> u64 {
        self.of_side(side).map(|group| group.reachable(self.geometry)).sum()
    }

    /// The same of the normal side, if a device of a group there had so many slots and all was written anew; `None` of a device whose group is
    /// not of those that make narrow segments.
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
        Some(others + group.units_in(columns, self.geometry))
    }

    /// Units of each stream of metadata that may be lost to rests of narrow segments, beside the one of a whole segment: no node goes across
    /// the end of one. 0 if there are no narrow groups.
    pub fn rest_units(&self) -> i64 {
        let slot = u64::from(self.geometry.slot_units());
        let further = slot.div_ceil(self.least_segment_units()) - 1;
        signed(further * leaf_units(self.geometry))
    }

    /// The same, and a narrow segment: with these rests a stream may need one more than its share comes to, of which it fills little.
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

    /// Units of the smallest segment that may be made on a side, and segments at most; `None` if there are no narrow groups.
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

    /// Units that come back when a segment is emptied: what it holds, or more where its slots complete what others have free (lemma 4). For
    /// the cleaner. It is the figure of one segment alone: of several that compete for a free slot all look worth it once.
    pub fn worth_units(&self, row: &Row, known: &mut Worth) -> u32 {
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
            let columns = |row: &Row| u64::from(group.data_of(&row.place));
            let held = rows().chain(emptied()).map(columns).sum::<u64>();
            let returned = emptied().map(|row| self.returned_units(row)).sum::<u64>();
            let narrow = rows().chain(emptied()).filter(|row| self.is_narrow(row)).count();
            let missing: u32 = rows().map(missing_of).sum();
            let found = (held, returned, narrow, missing);
            let known = (group.held_columns, group.emptied_units, group.narrow_rows as usize, group.missing);
            if found != known {
                return Err(format!("(U5) group {index} counts {known:?}, and there are {found:?}"));
            }
        }
        let mut owed: BTreeMap<DeviceId, u32> = BTreeMap::new();
        for (id, meant) in &self.meant {
            let lacks = self.rows.get(id).map_or(0, missing_of) as usize;
            let holds = |device| {
                let row = self.rows.get(id);
                row.is_some_and(|row| row.place.present().any(|(_, column)| column.device == device))
            };
            if meant.is_empty() || meant.len() > lacks || meant.iter().any(|device| holds(*device)) {
                return Err(format!("(U7) segment {id} lacks {lacks} columns, which are to be on {meant:?}"));
            }
            meant.iter().for_each(|device| *owed.entry(*device).or_default() += 1);
        }
        for (id, space) in &self.devices {
            if space.owed != owed.get(id).copied().unwrap_or(0) {
                return Err(format!("(U7) device {id} counts {} columns that are to come", space.owed));
            }
        }
        let helpless = |row: &Row| missing_of(row) as usize > row.place.redundancy();
        match self.rows.iter().find(|(_, row)| helpless(row)) {
            Some((id, _)) => Err(format!("(U4) segment {id} lacks more columns than it can do without")),
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
    /// Units that its segments can come to, as they lie.
    pub fn reachable(&self, geometry: Geometry) -> u64 {
        let Counts { free_columns, total_units, narrow, surplus, .. } = self.counts;
        // Where there are more devices than columns free slots may all be on one of them, as after it took the place of a smaller one: until
        // columns have moved there (`Space::level`) nothing can be placed on them.
        if narrow || surplus || self.narrow_rows > 0 {
            total_units.min(self.units_in(self.held_columns + free_columns, geometry))
        } else {
            total_units
        }
    }
}

/// Whether a group holds so much more with narrow segments than with whole ones, in columns of data, that it has some.
fn is_gain(best: u64, whole: u64, data: u64) -> bool {
    best > whole + (whole / GAIN_SHARE).max(data)
}

/// Columns that a segment lacks.
pub(crate) fn missing_of(row: &Row) -> u32 {
    let missing = row.place.columns().filter(Option::is_none).count();
    u32::try_from(missing).expect("at most 32")
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
mod tests {
    use std::collections::BTreeSet;

    use steadfast_format::{DatasetId, GroupClass, SegmentRow};

    use super::*;
    use crate::error::TableError;

    const GEOMETRY: Geometry = Geometry { slot_size: 64 << 10, unit: 512 };
    const OWNER: DatasetId = DatasetId(0);

    /// Parity and sizes in slots: all with as many devices as columns.
    const GROUPS: [(u8, &[u32]); 5] = [
        (1, &[40, 40, 12]),
        (1, &[40, 30, 20, 10]),
        (2, &[40, 40, 40, 12, 12]),
        (1, &[40, 40, 40, 12, 12]),
        (3, &[20, 20, 20, 20, 8, 8]),
    ];

    fn table(parity: u8, width: u32, sizes: &[u32]) -> Table {
        let mut table = Table::new(GEOMETRY);
        let redundancy = Redundancy::Raidz(parity);
        let column = redundancy.column_bytes(width, GEOMETRY);
        let group = table.add_group(redundancy, GroupClass::Normal, width, column);
        table.set_uneven(true);
        for (id, &slots) in (1..).zip(sizes) {
            table.add_device(DeviceId(id), slots, group, true);
        }
        table
    }

    fn of((parity, sizes): (u8, &[u32])) -> Table {
        table(parity, u32::try_from(sizes.len()).unwrap(), sizes)
    }

    fn random(seed: &mut u64, below: u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % below
    }

    /// Columns of data that can be taken.
    fn free(table: &Table) -> u64 {
        table.groups[0].counts.free_columns
    }

    fn data_of(table: &Table, id: SegmentId) -> u64 {
        table.groups[0].data_of(&table.rows[&id].place).into()
    }

    fn reachable(table: &Table) -> u64 {
        table.reachable_of(Side::Normal)
    }

    /// A full segment, if there is room for one.
    fn fill(table: &mut Table) -> Option<SegmentId> {
        let id = table.allocate(OWNER, Class::Data, 0, 1)?;
        let units = table.capacity_units(&table.rows[&id]);
        table.extend(id, units);
        table.close(id);
        Some(id)
    }

    fn fill_all(table: &mut Table) -> Vec<SegmentId> {
        std::iter::from_fn(|| fill(table)).collect()
    }

    fn empty(table: &mut Table, id: SegmentId) {
        let units = table.rows[&id].filled;
        table.kill(id, 0, units).expect("it lives");
    }

    fn commit(table: &mut Table) {
        table.seal_emptied();
        table.release_committed();
    }

    fn columns(table: &Table, id: SegmentId) -> usize {
        table.rows[&id].place.columns().count()
    }

    /// Builds missing columns, and those on a device that leaves, as a resilver does.
    fn mend(table: &mut Table) {
        let wrong = |table: &Table, column: Option<Column>| {
            column.is_none_or(|column| !table.devices[&column.device].usable())
        };
        let ids: Vec<SegmentId> = table.rows.keys().copied().collect();
        for id in ids {
            let found: Vec<usize> = table.rows[&id]
                .place
                .columns()
                .enumerate()
                .filter(|(_, column)| wrong(table, *column))
                .map(|(index, _)| index)
                .collect();
            for index in found {
                let column = table.take_spare_column(id).expect("what was kept free for it");
                table.set_column(id, index, column);
            }
        }
    }

    #[test]
    fn placing_and_freeing_keep_what_was_told() {
        for group in GROUPS {
            let mut table = of(group);
            assert!(table.groups[0].counts.narrow, "{group:?}");
            let (mut seed, mut ids) = (9, Vec::new());
            for _ in 0..600 {
                let (told, most) = (free(&table), reachable(&table));
                match random(&mut seed, 4) {
                    0 if !ids.is_empty() => {
                        let at = random(&mut seed, ids.len() as u64) as usize;
                        empty(&mut table, ids.swap_remove(at));
                        assert_eq!(free(&table), told, "not before a commit");
                    }
                    1 => {
                        let (units, owed) =
                            (table.free_units_of(Side::Normal), table.emptied_units_of(Side::Normal));
                        commit(&mut table);
                        // (U3)
                        assert!(table.free_units_of(Side::Normal) >= units + owed, "{group:?}");
                    }
                    _ => match fill(&mut table) {
                        Some(id) => {
                            // (U2)
                            assert_eq!(free(&table) + data_of(&table, id), told, "{group:?}");
                            ids.push(id);
                        }
                        None => assert_eq!(told, 0, "{group:?}"),
                    },
                }
                assert!(reachable(&table) >= most, "{group:?}");
                table.check().unwrap();
            }
            let narrow = ids.iter().filter(|id| columns(&table, **id) < group.1.len()).count();
            assert!(narrow > 0, "{group:?}");
        }
    }

    #[test]
    fn devices_are_filled_as_far_as_the_parity_allows() {
        for (parity, sizes) in GROUPS {
            let mut table = of((parity, sizes));
            let (all, total) = (free(&table), table.groups[0].counts.total_units);
            let ids = fill_all(&mut table);
            let columns_held: u64 = ids.iter().map(|id| data_of(&table, *id)).sum();
            assert_eq!((columns_held, free(&table)), (all, 0), "{sizes:?}");
            let held: u64 = ids.iter().map(|id| u64::from(table.capacity_units(&table.rows[id]))).sum();
            let width = sizes.len();
            let slots = u64::from(groups::formable(sizes, u32::try_from(width).unwrap()));
            assert!(held >= total && held > slots * u64::from(GEOMETRY.slot_units()), "{sizes:?}");
            // Wide ones come first, and the last are no narrower than they have to be.
            assert_eq!(columns(&table, ids[0]), width, "{sizes:?}");
            let least = ids.iter().map(|id| columns(&table, *id)).min().unwrap();
            let data = width - usize::from(parity);
            assert!(least >= usize::from(parity) + data.div_ceil(3), "{sizes:?}");
            table.check().unwrap();
        }
    }

    #[test]
    fn groups_of_devices_that_are_alike_have_whole_segments_only() {
        for width in 2..=9_u32 {
            for parity in 1..width.min(4) {
                for (more, slots) in [(0, 7), (0, 300), (1, 7), (1, 300), (2, 20), (3, 100)] {
                    let sizes = vec![slots; (width + more) as usize];
                    let uneven = table(parity as u8, width, &sizes);
                    let counts = uneven.groups[0].counts;
                    let whole = groups::formable(&sizes, width);
                    assert!(!counts.narrow, "{width} {parity} {more}");
                    assert_eq!((counts.free, counts.total), (whole, whole));
                    let units = u64::from(whole) * u64::from(GEOMETRY.slot_units());
                    assert_eq!((counts.free_units, counts.total_units), (units, units));
                }
            }
        }
        // And without the feature so do all others.
        let mut table = of(GROUPS[0]);
        table.set_uneven(false);
        assert_eq!(fill_all(&mut table).len(), 12);
        assert!(table.rows.values().all(|row| row.place.columns().count() == 3));
        table.check().unwrap();
    }

    /// (U5)
    #[test]
    fn what_one_device_has_to_itself_beside_full_ones_is_not_counted_as_room() {
        for (uneven, more) in [(true, 12), (true, 60), (false, 60)] {
            let mut table = table(1, 3, &[40, 40, 40]);
            table.set_uneven(uneven);
            let ids = fill_all(&mut table);
            let full = reachable(&table);
            assert_eq!(full, 40 * u64::from(GEOMETRY.slot_units()));
            table.add_device(DeviceId(4), more, 0, true);
            // Four devices, three columns: nothing can be placed on one alone.
            assert!(fill(&mut table).is_none());
            assert_eq!(reachable(&table), full, "{more}");
            assert!(table.groups[0].counts.total > 40);
            // What is freed comes back, and with it what the newest has.
            ids.iter().step_by(3).for_each(|id| empty(&mut table, *id));
            commit(&mut table);
            assert!(reachable(&table) > full, "{more}");
            let before = reachable(&table);
            fill_all(&mut table);
            let held: u64 = table.rows.values().map(|row| u64::from(table.capacity_units(row))).sum();
            assert_eq!((held, reachable(&table)), (before, before), "{more}");
            table.check().unwrap();
        }
    }

    /// (U7)
    #[test]
    fn devices_that_fail_change_no_figure_and_find_room_when_they_are_back() {
        for group in GROUPS {
            for gone in spared(group) {
                for filled in [0, 5, 17] {
                    let mut table = of(group);
                    (0..filled).for_each(|_| _ = fill(&mut table));
                    commit(&mut table);
                    let before = (free(&table), reachable(&table));
                    gone.iter().for_each(|gone| table.set_in_use(*gone, false));
                    assert_eq!((free(&table), reachable(&table)), before, "{group:?} {gone:?}");
                    let mut told = before.0;
                    while let Some(id) = fill(&mut table) {
                        told -= data_of(&table, id);
                        assert_eq!(free(&table), told, "{group:?} {gone:?}");
                        table.check().unwrap();
                        if told < before.0 / 3 {
                            break;
                        }
                    }
                    for back in &gone {
                        table.set_in_use(*back, true);
                        assert_eq!(free(&table), told, "{group:?} {gone:?}");
                    }
                    // Whoever writes first, what was written without them finds room on them.
                    fill_all(&mut table);
                    mend(&mut table);
                    assert_eq!(table.groups[0].missing, 0, "{group:?} {gone:?}");
                    commit(&mut table);
                    table.check().unwrap();
                }
            }
        }
    }

    /// Sets of devices that a group can do without.
    fn spared((parity, sizes): (u8, &[u32])) -> Vec<Vec<DeviceId>> {
        let sets = (1_u32..1 << sizes.len()).filter(|set| set.count_ones() <= u32::from(parity));
        let ids = |set: u32| {
            (0..sizes.len() as u64).filter(move |at| set >> at & 1 == 1).map(|at| DeviceId(at + 1))
        };
        sets.map(|set| ids(set).collect()).collect()
    }

    /// (U7) Several devices are mended side by side: what is kept free on each is what is to come there still.
    #[test]
    fn what_was_built_is_not_kept_free_again_while_others_wait() {
        let mut table = of(GROUPS[2]);
        let gone = [DeviceId(1), DeviceId(4)];
        gone.iter().for_each(|gone| table.set_in_use(*gone, false));
        while free(&table) > 20 {
            fill(&mut table).expect("there is room");
        }
        gone.iter().for_each(|gone| table.set_in_use(*gone, true));
        let told = free(&table);
        let ids: Vec<SegmentId> = table.meant.keys().copied().collect();
        assert!(ids.len() > 10);
        for id in ids {
            while missing_of(&table.rows[&id]) > 0 {
                let index = table.rows[&id].place.columns().position(|column| column.is_none());
                let column = table.take_spare_column(id).expect("what was kept free for it");
                table.set_column(id, index.expect("one is missing"), column);
                assert_eq!(free(&table), told);
                table.check().unwrap();
            }
        }
        assert!(table.meant.is_empty() && gone.iter().all(|gone| table.devices[gone].owed == 0));
    }

    /// (U7) A device that was away for a moment: its slots of what was written since the last commit come back with the next one, and are what
    /// is owed to it.
    #[test]
    fn a_device_that_is_back_before_the_commit_changes_no_figure() {
        for group in GROUPS {
            for gone in (1..).take(group.1.len()).map(DeviceId) {
                let mut table = of(group);
                (0..9).for_each(|_| _ = fill(&mut table));
                let before = (free(&table), reachable(&table));
                table.set_in_use(gone, false);
                table.lose_fresh(gone);
                table.set_in_use(gone, true);
                assert_eq!((free(&table), reachable(&table)), before, "{group:?} {gone}");
                table.check().unwrap();
                commit(&mut table);
                assert_eq!((free(&table), reachable(&table)), before, "{group:?} {gone}, committed");
                fill_all(&mut table);
                mend(&mut table);
                assert_eq!(table.groups[0].missing, 0, "{group:?} {gone}");
                table.check().unwrap();
            }
        }
    }

    /// (U7) After an import nobody knows for which device a row lacks a column: those with least choice are given one first.
    #[test]
    fn what_rows_lack_finds_room_after_an_import() {
        for group in GROUPS {
            for gone in spared(group) {
                let mut table = of(group);
                gone.iter().for_each(|gone| table.set_in_use(*gone, false));
                while free(&table) > 8 {
                    fill(&mut table).expect("there is room");
                }
                commit(&mut table);
                for here in [false, true] {
                    let mut again = of(group);
                    gone.iter().for_each(|gone| again.set_in_use(*gone, here));
                    again.loading = true;
                    again.next_id = table.next_id;
                    for (id, row) in &table.rows {
                        again.load_row(*id, &table.store_row(row)).unwrap();
                    }
                    again.finish_load(&BTreeSet::new(), &BTreeSet::new()).unwrap();
                    again.check().unwrap();
                    gone.iter().for_each(|gone| again.set_in_use(*gone, true));
                    fill_all(&mut again);
                    mend(&mut again);
                    assert_eq!(again.groups[0].missing, 0, "{group:?} {gone:?}");
                    again.check().unwrap();
                }
            }
        }
    }

    /// (U7) What was written since the last commit loses its columns on it, whose slots are free with the next one.
    #[test]
    fn a_device_that_fails_amid_a_commit_changes_no_figure() {
        for group in GROUPS {
            for gone in (1..).take(group.1.len()).map(DeviceId) {
                let mut table = of(group);
                (0..9).for_each(|_| _ = fill(&mut table));
                let before = (free(&table), reachable(&table));
                table.set_in_use(gone, false);
                table.lose_fresh(gone);
                assert_eq!((free(&table), reachable(&table)), before, "{group:?} {gone}");
                assert!(table.groups[0].missing > 0, "{group:?} {gone}");
                table.check().unwrap();
                commit(&mut table);
                assert_eq!((free(&table), reachable(&table)), before, "{group:?} {gone}, committed");
                table.check().unwrap();
            }
        }
    }

    #[test]
    fn what_lies_on_a_device_that_is_replaced_finds_room_on_the_new_one() {
        for group in GROUPS {
            for old in (1..).take(group.1.len()).map(DeviceId) {
                let mut table = of(group);
                (0..20).for_each(|_| _ = fill(&mut table));
                commit(&mut table);
                let slots = &table.devices[&old].slots;
                let taken = slots.total() - slots.free();
                table.add_device(DeviceId(100), taken + 3, 0, true);
                table.set_leaving(old, true);
                fill_all(&mut table);
                table.check().unwrap();
                mend(&mut table);
                commit(&mut table);
                assert_eq!(table.devices[&old].slots.free(), table.devices[&old].slots.total(), "{group:?}");
                table.remove_device(old);
                table.check().unwrap();
            }
        }
    }

    /// Slots that were left for others are free with the next commit only. Until then they are not kept free twice.
    #[test]
    fn what_was_built_on_the_new_device_is_not_kept_free_again() {
        let mut table = of(GROUPS[0]);
        (0..20).for_each(|_| _ = fill(&mut table));
        commit(&mut table);
        table.add_device(DeviceId(100), 23, 0, true);
        table.set_leaving(DeviceId(1), true);
        let told = free(&table);
        assert_eq!(told, 3, "on the new device, beside what comes from the old one");
        mend(&mut table);
        assert_eq!(free(&table), told, "before the commit");
        table.check().unwrap();
        commit(&mut table);
        assert_eq!(free(&table), told);
        table.check().unwrap();
    }

    /// In a group of more devices than columns nobody need build elsewhere what lies on one that is away.
    #[test]
    fn a_group_of_more_devices_than_columns_is_written_without_one() {
        let mut table = table(1, 4, &[60, 60, 60, 12, 12]);
        (0..40).for_each(|_| _ = fill(&mut table));
        commit(&mut table);
        assert!(table.groups[0].counts.narrow);
        assert_eq!(free(&table), 40, "20 segments of two columns of data");
        table.set_in_use(DeviceId(1), false);
        assert_eq!(free(&table), 20, "20 of one");
        assert_eq!(fill_all(&mut table).len(), 20);
        table.check().unwrap();
    }

    #[test]
    fn a_narrow_segment_is_worth_what_its_slots_complete() {
        let mut table = of((1, &[40, 40, 10]));
        let ids = fill_all(&mut table);
        let narrow: Vec<SegmentId> = ids.iter().copied().filter(|id| columns(&table, *id) == 2).collect();
        let half = GEOMETRY.slot_units() / 2;
        assert_eq!((ids.len(), narrow.len()), (40, 30), "10 whole ones, and 30 on the two larger devices");
        let worth = |table: &Table| table.worth_units(&table.rows[&narrow[0]], &mut Worth::new());
        assert_eq!(worth(&table), half);
        table.grow_device(DeviceId(3), 12);
        assert_eq!((free(&table), worth(&table)), (0, 2 * half), "slots that nothing else can take");
        let before = reachable(&table);
        for id in &narrow[1..3] {
            empty(&mut table, *id);
            commit(&mut table);
        }
        assert_eq!(reachable(&table), before + u64::from(2 * half));
        assert_eq!(worth(&table), half, "each of the new slots is completed once");
        table.check().unwrap();
    }

    /// Emptied one by one, narrow segments that are worth more than they hold gain with each, and at the end all is used that can be.
    #[test]
    fn widening_gains_with_every_segment_and_comes_to_an_end() {
        let mut emptied = 0;
        for group in GROUPS {
            for (grown, slots) in (1..).map(DeviceId).zip(group.1) {
                let mut table = of(group);
                // Some room to copy into.
                while free(&table) > 2 * u64::from(table.groups[0].data()) {
                    fill(&mut table).expect("there is room");
                }
                table.grow_device(grown, slots + 9);
                let reached = |table: &Table| table.groups[0].held_columns + free(table);
                let (mut before, mut copy, mut left) = (reached(&table), None, 0);
                loop {
                    let mut known = Worth::new();
                    let found = table
                        .rows
                        .iter()
                        .find(|(_, row)| table.worth_units(row, &mut known) > table.capacity_units(row));
                    let Some(id) = found.map(|(id, _)| *id) else { break };
                    if copy == Some(id) {
                        left = 0;
                    }
                    let mut columns = data_of(&table, id);
                    while columns > 0 {
                        if left == 0 {
                            let next = fill(&mut table).expect("room to copy into");
                            (copy, left) = (Some(next), data_of(&table, next));
                        }
                        let copied = columns.min(left);
                        (columns, left) = (columns - copied, left - copied);
                    }
                    empty(&mut table, id);
                    commit(&mut table);
                    assert!(reached(&table) > before, "{group:?} {grown}");
                    (before, emptied) = (reached(&table), emptied + 1);
                    table.check().unwrap();
                }
                let all: Vec<u32> = table.devices.values().map(|space| space.slots.total()).collect();
                let best = table.widths(&table.groups[0]).expect("it has the feature").best(&all);
                assert_eq!(before, best.columns, "{group:?} {grown}");
            }
        }
        assert!(emptied > 10, "{emptied}");
    }

    #[test]
    fn narrow_segments_take_any_tail() {
        let mut table = of((1, &[40, 30, 20, 10]));
        let (narrow, all) = (table.groups[0].counts.narrow, free(&table));
        table.note_tail(40);
        assert!(narrow && !table.groups[0].counts.narrow, "not even two columns of data hold 128 units");
        table.note_tail(10);
        assert_eq!((table.groups[0].counts.narrow, free(&table)), (true, all));
        table.check().unwrap();
    }

    /// A long tail took narrow segments from a group that had some: it counted as full, as more lives there than whole ones hold.
    #[test]
    fn a_long_tail_takes_nothing_from_a_group_that_has_narrow_rows() {
        for group in GROUPS {
            let mut table = of(group);
            while table.groups[0].narrow_rows == 0 || free(&table) > 10 {
                fill(&mut table).expect("there is room");
            }
            let before = table.groups[0].counts;
            for units in [17, 33, 65, 128, 3] {
                table.note_tail(units);
                assert_eq!(table.groups[0].counts, before, "{group:?}");
                table.check().unwrap();
            }
        }
        // Where there were none it is the first that changes what the next may be.
        let mut table = table(1, 6, &[20, 20, 20, 20, 8, 8]);
        table.note_tail(30);
        while table.groups[0].narrow_rows == 0 {
            fill(&mut table).expect("there is room");
            table.check().unwrap();
        }
        assert!(fill_all(&mut table).len() > 5);
    }

    /// (U2), (U3) whatever devices grow to: once they are alike, or nearly, narrow rows give back what they hold all the same.
    #[test]
    fn narrow_rows_give_back_what_they_hold_however_devices_grow() {
        let (mut narrowed, mut widened) = (0, 0);
        for (at, (parity, sizes)) in GROUPS.into_iter().chain([(1, &[24, 18, 18][..])]).enumerate() {
            let largest = *sizes.iter().max().unwrap();
            for (first, others) in [
                (largest, largest),
                (largest + 8, largest),
                (largest + 1, largest),
                (largest, largest - 1),
                (largest, largest - 2),
                (largest, 30),
            ] {
                let mut table = of((parity, sizes));
                let mut ids = fill_all(&mut table);
                commit(&mut table);
                for (id, slots) in (1..).map(DeviceId).zip(sizes) {
                    let slots = if id == DeviceId(1) { first } else { others.max(*slots) };
                    table.grow_device(id, slots);
                }
                let mut seed = at as u64;
                for _ in 0..300 {
                    let (told, most) = (free(&table), reachable(&table));
                    match random(&mut seed, 5) {
                        0 | 1 if !ids.is_empty() => {
                            let at = random(&mut seed, ids.len() as u64) as usize;
                            empty(&mut table, ids.swap_remove(at));
                        }
                        2 => {
                            let (units, owed) =
                                (table.free_units_of(Side::Normal), table.emptied_units_of(Side::Normal));
                            commit(&mut table);
                            let now = table.free_units_of(Side::Normal);
                            assert!(
                                now >= units + owed,
                                "{sizes:?} {first} {others}: {units} + {owed}, {now}"
                            );
                        }
                        _ => {
                            if let Some(id) = fill(&mut table) {
                                assert_eq!(free(&table) + data_of(&table, id), told, "{sizes:?} {first}");
                                narrowed += u32::from(columns(&table, id) < sizes.len());
                                ids.push(id);
                            }
                        }
                    }
                    assert!(reachable(&table) >= most, "{sizes:?} {first} {others}");
                    table.check().unwrap();
                }
                // Written anew all is in whole segments again, if devices are alike.
                let give_back = |table: &mut Table, id: SegmentId| {
                    empty(table, id);
                    let (units, owed) =
                        (table.free_units_of(Side::Normal), table.emptied_units_of(Side::Normal));
                    commit(table);
                    let now = table.free_units_of(Side::Normal);
                    assert!(now >= units + owed, "{sizes:?} {first} {others}: {units} + {owed}, {now}");
                };
                let mut left = 1000;
                while let Some(at) =
                    ids.iter().position(|id| columns(&table, *id) < sizes.len()).filter(|_| left > 0)
                {
                    ids.append(&mut fill_all(&mut table));
                    give_back(&mut table, ids.swap_remove(at));
                    left -= 1;
                }
                ids.into_iter().for_each(|id| give_back(&mut table, id));
                let all_alike = table.devices.values().all(|space| space.slots.total() == largest);
                if all_alike {
                    widened += 1;
                    assert!(!table.groups[0].counts.narrow, "{sizes:?}");
                }
            }
        }
        assert!(narrowed > 0 && widened > 3, "{narrowed}, {widened}");
    }

    /// What is told before a device is replaced is what there is afterwards: less than a 64th more is not had by narrow segments.
    #[test]
    fn what_another_device_would_bring_is_counted_as_it_will_be() {
        for (sizes, slots) in [
            (&[640, 640, 320][..], 650),
            (&[640, 640, 320], 640),
            (&[640, 640, 320], 600),
            (&[64, 64, 20], 62),
        ] {
            let mut table = of((1, sizes));
            let old = DeviceId(3);
            let told = table.reachable_with(old, slots).expect("a raidz group");
            table.add_device(DeviceId(9), slots, 0, true);
            table.set_leaving(old, true);
            table.remove_device(old);
            assert_eq!(reachable(&table), told, "{sizes:?} {slots}");
        }
        // With narrow rows the group stays what it is.
        let mut table = of((1, &[640, 640, 320]));
        fill_all(&mut table);
        let told = table.reachable_with(DeviceId(3), 636).expect("a raidz group");
        table.grow_device(DeviceId(3), 636);
        let counts = table.groups[0].counts;
        assert_eq!((counts.narrow, counts.total_units), (true, told));
    }

    #[test]
    fn what_is_too_long_for_narrow_segments_goes_to_another_group() {
        let mut table = of((1, &[40, 40, 10]));
        while table.devices[&DeviceId(3)].slots.free() > 0 {
            fill(&mut table).expect("there is room");
        }
        let other = table.add_group(Redundancy::None, GroupClass::Normal, 1, GEOMETRY.slot_size);
        table.add_device(DeviceId(50), 10, other, true);
        (1..10).for_each(|slot| assert!(table.claim_slot(Column { device: DeviceId(50), slot })));
        assert_eq!(table.choose_group(OWNER, Class::Data), Some(0), "more of it is free");
        let id = table.allocate(OWNER, Class::Data, 0, GEOMETRY.slot_units()).expect("a whole slot");
        assert_eq!(table.rows[&id].group, other);
    }

    #[test]
    fn rows_that_hold_too_much_for_their_columns_are_refused() {
        let mut full = of((1, &[40, 40, 10]));
        let ids = fill_all(&mut full);
        let id = *ids.iter().find(|id| columns(&full, **id) == 2).expect("a narrow one");
        let row = |filled: u32, place: &Placement| SegmentRow {
            class: Class::Data as u8,
            owner: OWNER,
            filled,
            place: place.clone(),
            dead: None,
        };
        let place = full.rows[&id].place.clone();
        let half = GEOMETRY.slot_size / 2;
        let fresh = |uneven: bool| {
            let mut table = of((1, &[40, 40, 10]));
            table.set_uneven(uneven);
            table.next_id = full.next_id;
            table
        };
        assert_eq!(fresh(true).load_row(id, &row(half, &place)), Ok(()));
        let over = fresh(true).load_row(id, &row(half + GEOMETRY.unit, &place));
        assert!(matches!(over, Err(TableError::Filled { .. })), "{over:?}");
        // A program that does not know the feature would count it for a whole slot.
        let unknown = fresh(false).load_row(id, &row(half, &place));
        assert!(matches!(unknown, Err(TableError::Columns { .. })), "{unknown:?}");
        // Nor may parity be another than its group's.
        let mut other = of((2, &[40, 40, 40, 12, 12]));
        let ids = fill_all(&mut other);
        let id = *ids.iter().find(|id| columns(&other, **id) == 3).expect("a narrow one");
        let Placement::Raidz { chunk_shift, columns, .. } = other.rows[&id].place.clone() else {
            panic!("{:?}", other.rows[&id].place)
        };
        let mut table = of((2, &[40, 40, 40, 12, 12]));
        table.next_id = other.next_id;
        let place = Placement::Raidz { parity: 1, chunk_shift, columns };
        let found = table.load_row(id, &row(0, &place));
        assert!(matches!(found, Err(TableError::Columns { .. })), "{found:?}");
    }
}
