//! Moving: a whole segment goes to another group, or a column of it to another device of its group.
//! No tree changes: a block's address stays what it was, and the segment's row says where it lies
//! now.
//!
//! Segments of a group with redundancy are compared with their checksums before they are written
//! elsewhere, so that nothing wrong gets parity of its own. A segment that has lost more than
//! redundancy makes up for stays where it is. Segments on a single device have no checksums: their
//! bytes are copied as they are, and the reader of a block judges it by its own hash, as before.
//!
//! ## Invariants
//! [moving.1] Bytes are written into slots that are free, and the row names them in the same commit
//!      whose flush makes them durable.
//! [moving.2] The slots left are free after that commit: what the last root names stays as it was.
//!      `Table::set_place`, [segment.7]
//! [moving.3] Sync context only, as for mending [mend.3].
//! [moving.4] Moving leaves to others what admission counts on: a slot is taken only where content
//!      could be let in.
//!      `Space::has_room`
//!
//! ## Cost
//! A segment is read once and written once, and its row and checksums change. A column alone: the
//! same of a k-th.

use std::cmp::Reverse;
use std::sync::Arc;

use steadfast_device::{Buffer, SegmentPlace};
use steadfast_format::{Checksums, Column, DeviceId, Placement, SegmentId};
use steadfast_vdev::{Layout, Part, Summing, Written};

use crate::Class;
use crate::error::Error;
use crate::groups::{self, Group, Redundancy};
use crate::mend::Mended;
use crate::redundant::checksum;
use crate::row::Row;
use crate::side::Side;
use crate::space::{Space, lock};
use crate::table::{DeviceSpace, Table};

type Sums = Vec<[u8; Checksums::SIZE]>;

/// Result of moving a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Moved {
    /// Nothing: it lies where it should, is open, or is gone.
    Stays,
    /// So many bytes were written elsewhere.
    Bytes(u64),
    /// There is no room now.
    NoRoom,
    /// It cannot be read whole.
    Unreadable,
}

/// How a group's segments may have to be changed to be what new ones are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Conversion {
    /// Nothing is missing now.
    pub complete: bool,
    /// Checksums that it did not have before.
    pub sums: Option<Sums>,
}

impl Table {
    /// Whether a group keeps segments in several columns, or will.
    pub fn is_redundant(&self, row: &Row) -> bool {
        !matches!(row.place, Placement::Plain(_)) || self.groups[row.group].redundancy != Redundancy::None
    }

    /// Whether a segment has as many columns as new ones of its group. Those of a raidz group have
    /// them for life.
    pub fn is_fit(&self, row: &Row) -> bool {
        let group = &self.groups[row.group];
        match (&row.place, group.redundancy) {
            (_, Redundancy::None | Redundancy::Raidz(_)) => true,
            (Placement::Mirror(columns), Redundancy::Mirror) => {
                row.class == Class::Log || columns.len() == group.width as usize
            }
            (_, Redundancy::Mirror) => row.class == Class::Log,
        }
    }

    /// The side where a segment belongs: what may lie on special groups, there, if there is room
    /// for more than what is written next.
    fn home_of(&self, row: &Row) -> Side {
        let here = self.side_of(row);
        let room = row.class.may_be_special() && self.free_of(Side::Special) > self.small_floor();
        if room && self.has_special() { Side::Special } else { here }
    }

    /// Whether all that lies on a group is to go to others.
    pub fn is_group_leaving(&self, group: usize) -> bool {
        let devices = &self.groups[group].devices;
        !devices.is_empty() && devices.iter().all(|id| self.devices[id].leaving)
    }

    /// Whether a column may stay on a device: not if it leaves while its group stays.
    pub fn may_stay(&self, device: DeviceId) -> bool {
        let space = self.devices.get(&device);
        space.is_some_and(|space| !space.leaving || self.is_group_leaving(space.group))
    }

    /// Slots of a device that are free, or will be with the next commit, and are not kept for what
    /// rows lack.
    pub fn spare(&self, device: DeviceId) -> u32 {
        let spare =
            |space: &DeviceSpace| space.slots.free().saturating_add(space.lost).saturating_sub(space.owed);
        self.devices.get(&device).map_or(0, spare)
    }

    /// The group of a device is of another kind or width from now on.
    pub fn set_group(&mut self, device: DeviceId, redundancy: Redundancy, width: u32) {
        let Some(index) = self.devices.get(&device).map(|space| space.group) else { return };
        let group = &mut self.groups[index];
        (group.redundancy, group.width) = (redundancy, width);
        self.recount(index);
    }

    /// A segment lies in other columns from now on, with these checksums. The slots that it leaves
    /// are free after the next commit.
    pub fn set_place(&mut self, id: SegmentId, place: Placement, group: usize, sums: Option<Sums>) {
        let row = self.rows.get_mut(&id).expect("nothing left the table meanwhile");
        let kept: Vec<Column> = place.present().map(|(_, column)| column).collect();
        let left = row.place.present().map(|(_, column)| column).filter(|column| !kept.contains(column));
        let left: Vec<Column> = left.collect();
        let before = row.clone();
        row.place = place;
        row.group = group;
        let (now, live) = (row.clone(), u64::from(row.live));
        left.into_iter().for_each(|column| self.leave_column(id, column));
        self.forget_all_meant(id);
        self.reenter(&before, &now);
        self.assign_missing(id);
        if self.meant.contains_key(&id) {
            self.recount(group);
        }
        self.groups[before.group].live_units -= live;
        self.groups[group].live_units += live;
        let parts = self.sum_parts(&before).max(self.sum_parts(&now));
        match sums {
            Some(sums) => _ = self.sums.insert(id, sums),
            None => _ = self.sums.remove(&id),
        }
        self.sums_changed.extend((0..parts).map(|part| (id, part)));
        self.changed.insert(id);
        // Those bytes are not durable yet [redundant.3].
        self.fresh.insert(id);
    }

    /// Gives a mirrored segment as many columns as its group has: new ones are missing yet, and
    /// those on devices that leave go first.
    fn fit_mirror(&mut self, id: SegmentId) {
        let Some(row) = self.rows.get(&id).filter(|row| !self.is_fit(row)) else { return };
        let Placement::Mirror(columns) = &row.place else { return };
        let (mut columns, group) = (columns.to_vec(), row.group);
        let width = self.groups[group].width as usize;
        while columns.len() > width {
            let worth = |column: &Option<Column>| match column {
                None => 0,
                Some(column) if !self.devices[&column.device].in_use => 1,
                Some(column) if self.devices[&column.device].leaving => 2,
                Some(_) => 3,
            };
            let least = (0..columns.len()).min_by_key(|&at| (worth(&columns[at]), Reverse(at)));
            columns.remove(least.expect("there are several"));
        }
        columns.resize(width, None);
        if columns.iter().all(Option::is_none) {
            return;
        }
        let sums = self.sums.get(&id).cloned();
        // The checksums of a mirror are one for all columns: what is stored of them stays true.
        let stored = self.sums_changed.clone();
        self.set_place(id, Placement::Mirror(columns.into()), group, sums);
        self.sums_changed = stored;
    }

    /// A free slot on one device, if there is one.
    fn take_on(&mut self, device: DeviceId) -> Option<Column> {
        let space = self.devices.get_mut(&device).filter(|space| space.usable())?;
        let slot = space.slots.take()?;
        let group = space.group;
        self.recount(group);
        Some(Column { device, slot })
    }

    /// The column of a segment that should go to another device of its group, which has at least
    /// two slots more to spare.
    fn uneven(&self, row: &Row) -> Option<(usize, DeviceId)> {
        let group = &self.groups[row.group];
        let taken: Vec<DeviceId> = row.place.present().map(|(_, column)| column.device).collect();
        let usable = |id: &&DeviceId| self.devices[id].usable();
        let others = group.devices.iter().filter(usable).filter(|id| !taken.contains(id));
        let to = *others.max_by_key(|id| (self.spare(**id), Reverse(**id)))?;
        let present = row.place.present().filter(|(_, column)| self.devices[&column.device].usable());
        let (index, from) = present.min_by_key(|(_, column)| (self.spare(column.device), column.device))?;
        (self.spare(to) >= self.spare(from.device) + 2).then_some((index, to))
    }

    /// The group to which a segment should go so that all are filled alike; `None` if it may stay.
    fn emptier(&self, row: &Row) -> Option<usize> {
        let slot = u64::from(self.geometry.slot_units());
        // Spare units of a group, less so many segments, as a share of all units.
        let share = |index: usize, less: u64| {
            let group = &self.groups[index];
            let lost: u64 = group.devices.iter().map(|id| u64::from(self.lost_on(*id))).sum();
            let free = group.counts.free_units + lost / u64::from(group.width.max(1)) * slot;
            (u128::from(free.saturating_sub(less * slot)) << 32) / u128::from(group.counts.total_units.max(1))
        };
        // The pool's own metadata and the log are few, and move by themselves. Copies of metadata
        // stay apart.
        if row.class.is_pool() || row.class == Class::Log {
            return None;
        }
        let home = self.home_of(row);
        let fits = |index: &usize| {
            let parity = row.class.copy_index().is_none_or(|copy| self.rank_on_side(*index) % 2 == copy);
            let group = &self.groups[*index];
            // Of special groups there is mostly one, and it takes both copies.
            let parity = parity || home == Side::Special;
            *index != row.group && group.counts.free_units > 0 && group.side() == home && parity
        };
        let best = (0..self.groups.len()).filter(fits).max_by_key(|&at| (share(at, 1), Reverse(at)))?;
        (home != self.side_of(row) || share(best, 1) > share(row.group, 0)).then_some(best)
    }
}

impl Space {
    /// Segments that are closed and not of the log, in the order of their names; those only of
    /// groups that leave, or all.
    #[must_use]
    pub fn movable(&self, leaving: bool) -> Vec<SegmentId> {
        let state = self.read_state();
        let rows = state.table.rows.iter().filter(|(_, row)| {
            !row.open && row.class != Class::Log && (!leaving || state.table.is_group_leaving(row.group))
        });
        rows.map(|(id, _)| *id).collect()
    }

    /// Ends all open segments on groups that leave. Sync context only.
    pub fn close_leaving(&self) -> Result<(), Error> {
        self.close_streams(|space, id| {
            let state = space.read_state();
            state.table.rows.get(&id).is_some_and(|row| state.table.is_group_leaving(row.group))
        })
    }

    /// Ends the open segments of what belongs on special groups and lies on others: after a special
    /// group was added. Sync context only.
    pub fn close_misplaced(&self) -> Result<(), Error> {
        self.close_streams(|space, id| {
            let state = space.read_state();
            let row = state.table.rows.get(&id);
            row.is_some_and(|row| row.class.may_be_special() && state.table.side_of(row) == Side::Normal)
        })
    }

    /// Whether every segment of a device's group has a column on it, and none needs it.
    #[must_use]
    pub fn holds_its_group(&self, device: DeviceId) -> bool {
        let table = &self.read_state().table;
        let Some(group) = table.devices.get(&device).map(|space| space.group) else { return false };
        let mut rows = table.rows.values().filter(|row| row.group == group);
        rows.all(|row| row.place.present().any(|(_, column)| column.device == device))
            && !table.is_needed(device)
    }

    /// Whether a device is one of a group whose segments all go to others.
    #[must_use]
    pub fn is_group_leaving(&self, device: DeviceId) -> bool {
        let table = &self.read_state().table;
        table.devices.get(&device).is_some_and(|space| table.is_group_leaving(space.group))
    }

    /// The group of a device is of another kind or width from now on; what lies there is made to
    /// fit by [`Space::fit`].
    pub fn set_group(&self, device: DeviceId, redundancy: Redundancy, width: u32) {
        let _sync = lock(&self.sync);
        self.write_state().table.set_group(device, redundancy, width);
    }

    /// Whether a segment has a column on a device that it cannot be read without.
    #[must_use]
    pub fn is_needed(&self, device: DeviceId) -> bool {
        self.read_state().table.is_needed(device)
    }

    /// Bytes that live, and bytes that could if these devices and what lies on them were gone: what
    /// others have room for.
    #[must_use]
    pub fn room_without(&self, devices: &[DeviceId]) -> (u64, u64) {
        let unit = u64::from(self.geometry.unit);
        let (live, room) = {
            let table = &self.read_state().table;
            let stays = |group: &&Group| !group.devices.iter().all(|id| devices.contains(id));
            let reachable = |group: &Group| group.reachable(self.geometry);
            let room_of = |side| table.of_side(side).filter(stays).map(reachable).sum::<u64>();
            let movable: u64 = Class::ALL
                .into_iter()
                .filter(|class| class.may_be_special())
                .map(|class| table.class_live_units(class))
                .sum();
            // Segments lie whole, so of special slots a part stays empty.
            let special = room_of(Side::Special) / 2;
            let live = table.live_units - movable.min(special);
            (live * unit, room_of(Side::Normal) * unit)
        };
        (live, self.capacity_of(room))
    }

    /// Columns that were left since the last commit: their slots come back with the next.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.read_state().table.kept.lost.len()
    }

    /// Moves a segment of a group that leaves to another group. `sums` are its stored checksums.
    /// One that holds more than any segment which can be made there is left to the next commit's
    /// cleaner, which takes it apart. Sync context only [moving.3].
    pub fn evacuate(&self, id: SegmentId, sums: &[[u8; Checksums::SIZE]]) -> Result<Moved, Error> {
        let _sync = lock(&self.sync);
        let target = {
            let table = &self.read_state().table;
            match table.rows.get(&id).filter(|row| !row.open && table.is_group_leaving(row.group)) {
                // Small blocks that find no room on special groups go where content goes.
                Some(row) if row.pinned => return Ok(Moved::Stays),
                Some(row) => table
                    .choose_group(row.owner, row.class)
                    .or_else(|| table.choose_group(row.owner, row.class.elsewhere())),
                None => return Ok(Moved::Stays),
            }
        };
        let Some(group) = target.filter(|group| self.has_room(*group)) else { return Ok(Moved::NoRoom) };
        let moved = self.transfer(id, sums, group)?;
        if moved == Moved::NoRoom {
            let table = &mut self.write_state().table;
            let narrow = table.is_narrow_group(group);
            table.empty_leaving |= narrow;
        }
        Ok(moved)
    }

    /// Moves a segment, or a column of it, if that evens out how full devices are; between groups
    /// only if that is asked for. Sync context only [moving.3].
    pub fn level(&self, id: SegmentId, sums: &[[u8; Checksums::SIZE]], groups: bool) -> Result<Moved, Error> {
        let _sync = lock(&self.sync);
        let (uneven, emptier) = {
            let table = &self.read_state().table;
            let Some(row) =
                table.rows.get(&id).filter(|row| !row.open && !row.pinned && row.class != Class::Log)
            else {
                return Ok(Moved::Stays);
            };
            (table.uneven(row), table.emptier(row).filter(|_| groups))
        };
        match (uneven, emptier) {
            (_, Some(group)) if self.has_room(group) => self.transfer(id, sums, group),
            (Some((index, to)), _) => self.shift(id, index, to, sums),
            _ => Ok(Moved::Stays),
        }
    }

    /// [moving.4]
    fn has_room(&self, group: usize) -> bool {
        let table = &self.read_state().table;
        let slot_units = i64::from(self.geometry.slot_units());
        let mut headroom = table.content_headroom(Space::CLEANER_SLOTS);
        match table.groups[group].side() {
            Side::Normal => headroom.normal -= slot_units,
            Side::Special => headroom.special -= slot_units,
        }
        headroom.content() >= 0
    }

    /// Rows do without the columns they have on a device, so many of them; their slots are free
    /// after the next commit. Gives how many did. The caller knows that none is needed
    /// ([`Space::is_needed`]). Sync context only [moving.3].
    pub fn drop_columns(&self, device: DeviceId, columns_max: usize) -> usize {
        let _sync = lock(&self.sync);
        let mut state = self.write_state();
        let on = |row: &Row| row.place.present().find(|(_, column)| column.device == device);
        let rows = state.table.rows.iter().filter(|(_, row)| !row.open);
        let found: Vec<(SegmentId, usize)> =
            rows.filter_map(|(id, row)| Some((*id, on(row)?.0))).take(columns_max).collect();
        for (id, index) in &found {
            state.table.lose_column(*id, *index);
        }
        found.len()
    }

    /// Makes a segment of a mirror what new ones are: of one column it becomes a mirror with
    /// checksums, of too many it loses those that leave, and of too few it gets others, which are
    /// missing until it is mended. Sync context only [moving.3].
    pub fn fit(&self, id: SegmentId) -> Result<Conversion, Error> {
        let _sync = lock(&self.sync);
        let mut fitted = Conversion::default();
        let plain = {
            let state = self.read_state();
            let Some(row) = state.table.rows.get(&id).filter(|row| !row.open) else { return Ok(fitted) };
            (matches!(row.place, Placement::Plain(_)) && !state.table.is_fit(row)).then(|| row.clone())
        };
        match plain {
            Some(row) => fitted.sums = self.mirror_plain(id, &row)?,
            None => self.write_state().table.fit_mirror(id),
        }
        let state = self.read_state();
        let row = state.table.rows.get(&id);
        fitted.complete = row.is_some_and(|row| !self.is_incomplete(&state.table, row));
        Ok(fitted)
    }

    /// A segment of one column gets checksums, and room for further columns.
    fn mirror_plain(&self, id: SegmentId, row: &Row) -> Result<Option<Sums>, Error> {
        let Some(bytes) = self.gather(id, row, &[]) else { return Ok(None) };
        let Placement::Plain(column) = row.place else { return Ok(None) };
        let chunk = groups::chunk_bytes(row.class, self.geometry) as usize;
        let padded = bytes.len().next_multiple_of(chunk);
        let handle = &self.devices[&column.device];
        if padded > bytes.len() {
            // Behind its end lies what nobody wrote; a chunk is compared whole.
            let slot_size = self.read_state().table.column_bytes(&row.place);
            let place = SegmentPlace { segment: id, slot: column.slot, slot_size };
            let offset = u32::try_from(bytes.len()).expect("within a slot");
            let rest = Buffer::from(vec![0; padded - bytes.len()]);
            let device = handle.device(column.device);
            let written = device.and_then(|device| device.append_segment(place, offset, &rest));
            handle.counters.wrote(rest.len(), written.is_ok());
            if written.is_err() {
                return Ok(None);
            }
        }
        let mut whole = bytes;
        whole.resize(padded);
        let sums = (!row.class.is_pool()).then(|| whole.chunks(chunk).map(checksum).collect::<Sums>());
        let mut state = self.write_state();
        let width = state.table.groups[row.group].width as usize;
        let mut columns = vec![None; width];
        columns[0] = Some(column);
        state.table.set_place(id, Placement::Mirror(columns.into()), row.group, sums.clone());
        Ok(Some(sums.unwrap_or_default()))
    }

    /// Moves a whole segment to a group.
    fn transfer(&self, id: SegmentId, sums: &[[u8; Checksums::SIZE]], group: usize) -> Result<Moved, Error> {
        let row = self.read_state().table.rows[&id].clone();
        let Some(bytes) = self.gather(id, &row, sums) else { return Ok(Moved::Unreadable) };
        let place = self.write_state().table.take_columns(group, (row.owner, row.class), id, row.filled);
        let Some(place) = place else { return Ok(Moved::NoRoom) };
        match self.write_whole(id, &row, &place, group, &bytes)? {
            Some(sums) => {
                let sums = (!row.class.is_pool() && !matches!(place, Placement::Plain(_))).then_some(sums);
                self.write_state().table.set_place(id, place, group, sums);
                Ok(Moved::Bytes(bytes.len() as u64))
            }
            None => {
                let mut state = self.write_state();
                place.present().for_each(|(_, column)| state.table.release_slot(column));
                Ok(Moved::NoRoom)
            }
        }
    }

    /// Writes a whole segment to free slots; its checksums, or `None` if a device failed and was
    /// given up.
    fn write_whole(
        &self,
        id: SegmentId,
        row: &Row,
        place: &Placement,
        group: usize,
        bytes: &Buffer,
    ) -> Result<Option<Sums>, Error> {
        let slot_size = self.read_state().table.groups[group].column;
        if let Placement::Plain(Column { device, slot }) = *place {
            let handle = &self.devices[&device];
            let at = SegmentPlace { segment: id, slot, slot_size };
            let written = handle.device(device).and_then(|device| match handle.appendable {
                true => device.append_segment(at, 0, bytes),
                false => device.put_segment(at, bytes),
            });
            handle.counters.wrote(bytes.len(), written.is_ok());
            return match written {
                Ok(()) => Ok(Some(Sums::new())),
                Err(source) => self.give_up_or_fail(device, source).map(|()| None),
            };
        }
        let unit = self.geometry.unit as usize;
        let row_bytes = groups::row_units(place, row.class, self.geometry) as usize * unit;
        let chunk = match place {
            Placement::Raidz { chunk_shift, .. } => 1 << chunk_shift,
            _ => groups::chunk_bytes(row.class, self.geometry) as usize,
        };
        let whole = bytes.len().next_multiple_of(row_bytes);
        let mut padded = Buffer::with_capacity(whole);
        padded.extend(bytes);
        padded.resize(whole);
        let columns = self.columns(id, place, slot_size);
        let summing = Some(Summing { chunk, sum: checksum });
        let part = Part::new(Arc::new(padded), 0..whole);
        let Written { failed, sums } = columns.write(0, &part, summing, &*self.env.tasks);
        let each = whole / Self::data_columns_of(place);
        for (index, column) in place.present() {
            let right = failed.iter().all(|(at, _)| *at != index);
            self.devices[&column.device].counters.wrote(each, right);
        }
        let all_written = failed.is_empty();
        for (index, source) in failed {
            let column = place.columns().nth(index).flatten().expect("it was written");
            self.give_up_or_fail(column.device, source)?;
        }
        Ok(all_written.then_some(sums))
    }

    fn data_columns_of(place: &Placement) -> usize {
        match groups::layout(place) {
            Layout::Mirror => 1,
            Layout::Raidz(stripe) => stripe.data(),
        }
    }

    /// The bytes of a closed segment up to its fill mark, as they should be; `None` if they cannot
    /// be had. Of dead units of a single device that cannot be read there are zeros.
    fn gather(&self, id: SegmentId, row: &Row, sums: &[[u8; Checksums::SIZE]]) -> Option<Buffer> {
        let filled = (row.filled * self.geometry.unit) as usize;
        if let Placement::Plain(Column { device, slot }) = row.place {
            let slot_size = self.read_state().table.column_bytes(&row.place);
            let place = SegmentPlace { segment: id, slot, slot_size };
            let mut bytes = Buffer::to_fill(filled);
            if self.read_place(device, place, 0, &mut bytes).is_ok() {
                return Some(bytes);
            }
            bytes = Buffer::from(vec![0; filled]);
            for (unit, units) in row.dead.live_runs(row.filled) {
                let from = (unit * self.geometry.unit) as usize;
                let to = from + (units * self.geometry.unit) as usize;
                let offset = unit * self.geometry.unit;
                self.read_place(device, place, offset, &mut bytes[from..to]).ok()?;
            }
            return Some(bytes);
        }
        let mut report = Mended::default();
        let mut repair = self.examine(id, sums, &mut report)?;
        repair.rebuild(sums, &mut report);
        if report.lost_bytes > 0 {
            return None;
        }
        // Whole rows: the last may reach beyond the end of the segment.
        let whole = repair.rows * repair.chunk * Self::data_columns_of(&row.place);
        let mut bytes = Buffer::with_capacity(whole);
        match groups::layout(&row.place) {
            Layout::Mirror => bytes.extend(&repair.columns.iter().flatten().next()?[..filled]),
            Layout::Raidz(stripe) => {
                for at in 0..repair.rows {
                    let chunk = at * repair.chunk..(at + 1) * repair.chunk;
                    for column in &repair.columns[..stripe.data()] {
                        bytes.extend(&column.as_ref()?[chunk.clone()]);
                    }
                }
                bytes.resize(filled);
            }
        }
        Some(bytes)
    }

    /// Moves one column to another device of its group. One that is not what its checksums say
    /// stays for a scrub to mend.
    fn shift(
        &self,
        id: SegmentId,
        index: usize,
        to: DeviceId,
        sums: &[[u8; Checksums::SIZE]],
    ) -> Result<Moved, Error> {
        let (row, slot_size, row_units, stale) = {
            let table = &self.read_state().table;
            let row = table.rows[&id].clone();
            let stale = table.sums.get(&id).is_some_and(|pending| *pending != sums);
            (row.clone(), table.column_bytes(&row.place), table.row_units(&row), stale)
        };
        let Some(from) = row.place.columns().nth(index).flatten().filter(|_| !stale) else {
            return Ok(Moved::Stays);
        };
        let chunk = self.chunk_of(&row) as usize;
        let rows = row.filled.div_ceil(row_units) as usize;
        let mut bytes = Buffer::to_fill(rows * chunk);
        let place = SegmentPlace { segment: id, slot: from.slot, slot_size };
        if self.read_place(from.device, place, 0, &mut bytes).is_err() {
            return Ok(Moved::Unreadable);
        }
        let per_row = Checksums::per_row(&row.place);
        let column = if per_row == 1 { 0 } else { index };
        let is_right = |(at, bytes): (usize, &[u8])| match sums.get(at * per_row + column) {
            Some(sum) => checksum(bytes) == *sum,
            None => row.class.is_pool(),
        };
        if !bytes.chunks(chunk).enumerate().all(is_right) {
            return Ok(Moved::Unreadable);
        }
        let Some(target) = self.write_state().table.take_on(to) else { return Ok(Moved::NoRoom) };
        let handle = &self.devices[&to];
        let place = SegmentPlace { segment: id, slot: target.slot, slot_size };
        let written = handle.device(to).and_then(|device| device.append_segment(place, 0, &bytes));
        handle.counters.wrote(bytes.len(), written.is_ok());
        match written {
            Ok(()) => {
                self.write_state().table.set_column(id, index, target);
                Ok(Moved::Bytes(bytes.len() as u64))
            }
            Err(source) => {
                self.write_state().table.unclaim_slot(target);
                self.give_up_or_fail(to, source)?;
                Ok(Moved::NoRoom)
            }
        }
    }
}
