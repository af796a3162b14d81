//! Allocation: a segment for a stream, on the slots of a group (ZFS: `metaslab_alloc`). Like ZFS's
//! metaslab classes, but the unit handed out is a slot, and blocks are appended to the segment that
//! lies there.

use steadfast_format::{Address, Checksums, Column, DatasetId, DeviceId, Placement, SegmentId};

use crate::Class;
use crate::bitmap::DeadUnits;
use crate::groups::Counts;
use crate::groups::{self, Group, Redundancy};
use crate::row::{Row, Unallocated};
use crate::side::Side;
use crate::table::Table;

/// Owners of the other copies of the content of which one owner has a copy.
fn other_copies(owner: DatasetId) -> impl Iterator<Item = DatasetId> {
    let (own, of) = owner.copy().unwrap_or((0, 0));
    (0..of).filter(move |copy| *copy != own).map(move |copy| owner.of_copy(copy, of))
}

impl Table {
    /// Units in an address and a length, if they can lie within one segment.
    pub fn units_of(&self, address: Address, bytes: usize) -> Result<(u32, u32), Unallocated> {
        let geometry = self.geometry;
        let units = u32::try_from(geometry.units(bytes)).map_err(|_| Unallocated)?;
        let unit = address.offset / geometry.unit;
        let inside = unit.checked_add(units).is_some_and(|end| end <= geometry.slot_units());
        (inside && units > 0 && address.offset.is_multiple_of(geometry.unit))
            .then_some((unit, units))
            .ok_or(Unallocated)
    }

    /// Opens a segment for a stream, unless no more than `floor` slots are free. It is to hold a
    /// block of so many units at least.
    pub fn allocate(&mut self, owner: DatasetId, class: Class, floor: u32, units: u32) -> Option<SegmentId> {
        assert!(!self.open.contains_key(&(owner, class)), "a stream has one open segment");
        if self.free_units_for(class) <= u64::from(floor) * u64::from(self.geometry.slot_units()) {
            return None;
        }
        let first = self.choose_group(owner, class)?;
        let id = self.next_id;
        // A block too long for the narrow segments of one group may find a wide one in another.
        let sides = self.sides_for(class);
        let fits = |at: &usize| *at != first && sides.contains(&self.groups[*at].side());
        let others: Vec<usize> = (0..self.groups.len()).filter(fits).collect();
        let mut tried = std::iter::once(first).chain(others);
        let (group, place) =
            tried.find_map(|at| Some((at, self.take_columns(at, (owner, class), id, units)?)))?;
        // [segment.2] An id is given out once.
        self.next_id = SegmentId(id.0.checked_add(1).expect("2^64 segments outlast any device"));
        if !matches!(place, Placement::Plain(_)) && !class.is_pool() && class != Class::Log {
            self.sums.insert(id, Vec::new());
        }
        let dead = DeadUnits::default();
        let row = Row {
            place,
            group,
            owner,
            class,
            filled: 0,
            live: 0,
            dead,
            open: true,
            unreadable: false,
            pinned: false,
        };
        self.enter(&row);
        let missing = row.missing();
        let before = self.rows.insert(id, row);
        assert!(before.is_none());
        if missing > 0 {
            self.assign_missing(id);
            self.recount(group);
        }
        if class.is_pool() {
            self.pool_rows.insert(id);
        }
        self.open.insert((owner, class), id);
        self.owners.insert(owner);
        Some(id)
    }

    /// The group with the greatest share of free space, of the first side that has any; for second
    /// copies, one that the first copies do not use if there is one. First copies prefer groups of
    /// even rank and second copies odd ones, so that copies stay apart when the cleaner moves them
    /// one by one. So do copies of content, by the rest that the rank leaves.
    pub fn choose_group(&self, owner: DatasetId, class: Class) -> Option<usize> {
        self.sides_for(class).iter().find_map(|side| self.choose_on(*side, owner, class))
    }

    pub(crate) fn choose_on(&self, side: Side, owner: DatasetId, class: Class) -> Option<usize> {
        let of_metadata = class.sibling().map(|sibling| (owner, sibling)).into_iter();
        let streams = of_metadata.chain(other_copies(owner).map(|other| (other, class)));
        let open = streams.filter_map(|stream| self.open.get(&stream));
        let avoided: Vec<usize> = open.filter_map(|id| self.rows.get(id)).map(|row| row.group).collect();
        let copy = class.copy_index().map(|copy| (copy, 2)).or(owner.copy());
        let rank = |at: usize, group: &Group| {
            let apart = !avoided.contains(&at);
            let parity = copy.is_none_or(|(copy, of)| self.rank_on_side(at) % of == copy);
            let Counts { free_units, total_units, .. } = group.counts;
            let share = (u128::from(free_units) << 32) / u128::from(total_units.max(1));
            (apart, parity, share, std::cmp::Reverse(at))
        };
        let has_room = |group: &Group| group.counts.free_units > 0 && group.side() == side;
        let with_room = self.groups.iter().enumerate().filter(|(_, group)| has_room(group));
        with_room.max_by_key(|&(at, group)| rank(at, group)).map(|(at, _)| at)
    }

    /// Takes a slot on each of the devices of a group that have the most free ones. Which of them
    /// holds which column is turned by the segment's number, so that parity is spread; columns for
    /// which there is no device are the last: parity is missed least. Copies of content lie far
    /// apart on a device.
    pub fn take_whole(
        &mut self,
        index: usize,
        (owner, class): (DatasetId, Class),
        id: SegmentId,
    ) -> Option<Placement> {
        if self.store_of(index).is_some() {
            return self.take_on_store(index, class);
        }
        let group = &self.groups[index];
        let mut usable: Vec<(u32, DeviceId)> = group
            .devices
            .iter()
            .filter(|id| self.devices[id].usable())
            .map(|&id| (self.devices[&id].slots.free(), id))
            .collect();
        let width = group.columns_of(class).min(group.width_of(usable.len())?);
        let wanted = group.columns_of(class);
        usable.sort_unstable_by_key(|&(free, id)| (std::cmp::Reverse(free), id));
        usable.truncate(width as usize);
        if usable.len() < width as usize || usable.last().is_none_or(|&(free, _)| free == 0) {
            return None;
        }
        let turn = usize::try_from(id.0 % u64::from(width)).expect("below the width");
        usable.sort_unstable_by_key(|&(_, id)| id);
        usable.rotate_left(turn);
        let mut columns: Vec<Option<Column>> = Vec::with_capacity(wanted as usize);
        for (_, device) in usable {
            let slot = self.take_apart(device, owner).expect("a free one was counted");
            columns.push(Some(Column { device, slot }));
        }
        columns.resize(wanted as usize, None);
        self.recount(index);
        Some(self.groups[index].placement(class, self.geometry, columns))
    }

    /// Takes a free slot of a device: for copies of content in the part that is theirs, while there
    /// is one.
    pub(crate) fn take_apart(&mut self, device: DeviceId, owner: DatasetId) -> Option<u32> {
        let (copy, of) = owner.copy().unwrap_or((0, 1));
        self.devices.get_mut(&device)?.slots.take_behind(copy, of)
    }

    /// Takes a column out of a segment's row.
    pub(crate) fn take_column(&mut self, id: SegmentId, index: usize) -> Option<Column> {
        let row = self.rows.get_mut(&id)?;
        let column = match &mut row.place {
            Placement::Plain(_) => None,
            Placement::Mirror(columns) | Placement::Raidz { columns, .. } => {
                let mut all = columns.to_vec();
                let taken = all.get_mut(index).and_then(Option::take);
                *columns = all.into();
                taken
            }
        }?;
        let group = row.group;
        self.leave_column(id, column);
        self.changed.insert(id);
        self.lack(group, 1, 0);
        Some(column)
    }

    /// Fills up the last row of an open segment with units that are dead from birth; gives how
    /// many.
    pub fn pad(&mut self, id: SegmentId) -> u32 {
        let slot_units = self.geometry.slot_units();
        let capacity = self.rows.get(&id).map_or(0, |row| self.capacity_units(row));
        let row = self.rows.get_mut(&id).expect("an open segment has a row");
        let end = row
            .filled
            .next_multiple_of(groups::row_units(&row.place, row.class, self.geometry))
            .min(capacity);
        let units = end - row.filled;
        if units > 0 {
            row.dead.kill(row.filled, units, slot_units);
            row.filled = end;
            self.changed.insert(id);
        }
        units
    }

    /// Units with which a segment of a class may be filled up at a commit, at most, on any group.
    pub fn padding_units(&self, class: Class) -> i64 {
        let of = |group: &Group| match group.redundancy {
            Redundancy::None => 0,
            Redundancy::Mirror => groups::chunk_bytes(class, self.geometry) / self.geometry.unit - 1,
            Redundancy::Raidz(parity) => {
                let data = group.width - u32::from(parity);
                data * (groups::chunk_bytes(class, self.geometry) / self.geometry.unit) - 1
            }
        };
        let here = self.groups.iter().filter(|group| !group.devices.is_empty());
        here.map(of).max().map_or(0, i64::from)
    }

    /// Notes checksums of rows of an open segment, which follow those noted before. Nothing for
    /// segments that have none.
    pub fn add_sums(&mut self, id: SegmentId, new: &[[u8; Checksums::SIZE]]) {
        let (Some(row), Some(sums)) = (self.rows.get(&id), self.sums.get_mut(&id)) else { return };
        let per_part = Checksums::rows_per_part(&row.place) * Checksums::per_row(&row.place);
        for sum in new {
            self.sums_changed.insert((id, u32::try_from(sums.len() / per_part).expect("far fewer")));
            sums.push(*sum);
        }
    }

    /// Parts of checksums that a segment filled so far has at most.
    pub fn sum_parts(&self, row: &Row) -> u32 {
        if matches!(row.place, Placement::Plain(_)) || row.class.is_pool() || row.class == Class::Log {
            return 0;
        }
        let rows = row.filled.div_ceil(self.row_units(row));
        rows.div_ceil(u32::try_from(Checksums::rows_per_part(&row.place)).expect("at most 128"))
    }

    /// Notes that `units` more units of an open segment hold a block.
    pub fn extend(&mut self, id: SegmentId, units: u32) {
        let capacity = self.rows.get(&id).map_or(0, |row| self.capacity_units(row));
        let row = self.rows.get_mut(&id).expect("an open segment has a row");
        assert!(row.open && row.filled + units <= capacity);
        row.filled += units;
        row.live += units;
        self.fresh.insert(id);
        if row.class == Class::Data {
            self.appended_units += u64::from(units);
        }
        if self.groups[row.group].side() == Side::Special {
            self.special_units += u64::from(units);
        }
        self.changed.insert(id);
        self.live_units += u64::from(units);
        self.class_live[row.class as usize] += u64::from(units);
        self.groups[row.group].live_units += u64::from(units);
    }

    /// A stream leaves its open segment, or has left it before. Nothing more is appended to it.
    pub fn fill(&mut self, id: SegmentId) {
        if self.full.insert(id) {
            let row = &self.rows[&id];
            assert_eq!(self.open.remove(&(row.owner, row.class)), Some(id));
        }
    }

    /// A segment that was open, or full, is on its device, or nothing lives there.
    pub fn close(&mut self, id: SegmentId) {
        let row = self.rows.get_mut(&id).expect("an open segment has a row");
        assert!(row.open);
        row.open = false;
        let (stream, empty) = ((row.owner, row.class), row.live == 0);
        let (group, filled) = (row.group, u64::from(row.filled));
        // A store gets back what the segment does not hold [store_room.1].
        self.take_units(group, filled, self.geometry.slot_units().into());
        if !self.full.remove(&id) {
            assert_eq!(self.open.remove(&stream), Some(id));
        }
        if empty {
            self.retire(id);
        }
    }
}
