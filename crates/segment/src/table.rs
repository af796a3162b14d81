//! The segment table: what lies where, what of it lives, and what changed. Pure logic; no device is touched here.
//! Theory and invariants are in the crate's documentation.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::{
    Address, Checksums, Column, DatasetId, DeviceId, GroupClass, Placement, RelocationRow, SegmentId,
    SegmentRow,
};

use crate::bitmap::DeadUnits;
use crate::error::TableError;
use crate::groups::{self, Counts, Group, Redundancy};
use crate::relocation::{Relocations, Run};
use crate::sides::{Headroom, Side};
use crate::slots::Slots;
use crate::space::CleanerRoom;
use crate::uneven::missing_of;
use crate::{Class, SpaceChanges};

/// A slot left to metadata whose open segment fills up during a commit, besides what is counted.
const COMMIT_MARGIN: u32 = 1;
/// An open segment of metadata with less than this part of a slot left, or less than so many bytes, may not hold the next
/// commit's.
const ROOM_SHARE: u32 = 4;
const ROOM_BYTES_MIN: u32 = 64 << 10;

/// Sizes that the whole pool shares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    /// Bytes of a slot; a power of two.
    pub slot_size: u32,
    /// Bytes of an allocation unit; a power of two, at most `slot_size`.
    pub unit: u32,
}

impl Geometry {
    /// Units of a slot.
    #[must_use]
    pub fn slot_units(self) -> u32 {
        self.slot_size / self.unit
    }

    /// Units that `bytes` bytes take.
    #[must_use]
    pub fn units(self, bytes: usize) -> usize {
        bytes.div_ceil(self.unit as usize)
    }
}

/// One segment.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub place: Placement,
    /// Index of its group.
    pub group: usize,
    pub owner: DatasetId,
    pub class: Class,
    /// Units written.
    pub filled: u32,
    /// Units that live.
    pub live: u32,
    pub dead: DeadUnits,
    /// True while a stream appends to it.
    pub open: bool,
    /// True once the cleaner could not read it; it is left alone until the pool is imported again.
    pub unreadable: bool,
}

/// A segment that holds nothing any more but whose slot may not be used yet.
#[derive(Clone, Debug)]
pub(crate) struct Emptied {
    pub row: Row,
    /// True if the tail of the commit under way knows of it.
    pub committing: bool,
}

/// A column that its segment's row does not name any more, but which the last committed root may name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub segment: SegmentId,
    pub column: Column,
    /// As in [`Emptied`].
    pub committing: bool,
}

/// A slot that a commit freed: what lay there, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    pub segment: SegmentId,
    pub column: Column,
    /// Bytes of the slot.
    pub slot_size: u32,
}

/// A part of a block's bytes: units of one segment in one place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Piece {
    pub segment: SegmentId,
    pub unit: u32,
    pub units: u32,
}

/// Space of one device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceSpace {
    pub slots: Slots,
    /// Index of its group.
    pub group: usize,
    /// It is read and written.
    pub in_use: bool,
    /// What it holds is to be moved to others.
    pub leaving: bool,
    /// Columns that rows lack and that are to be built on it ([`Table::meant`]).
    pub owed: u32,
    /// Slots of it that only the last committed root names.
    pub lost: u32,
}

impl DeviceSpace {
    /// New segments are placed on it.
    pub fn usable(&self) -> bool {
        self.in_use && !self.leaving
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    pub geometry: Geometry,
    pub devices: BTreeMap<DeviceId, DeviceSpace>,
    pub groups: Vec<Group>,
    pub rows: BTreeMap<SegmentId, Row>,
    /// Rows of the pool's own metadata: every tail carries them.
    pool_rows: BTreeSet<SegmentId>,
    pub emptied: BTreeMap<SegmentId, Emptied>,
    pub relocations: Relocations,
    pub open: BTreeMap<(DatasetId, Class), SegmentId>,
    /// Who has appended since the table was made or loaded; owner 0 always counts.
    pub owners: BTreeSet<DatasetId>,
    pub next_id: SegmentId,
    pub live_units: u64,
    /// The part of them in segments of each class, by its number.
    class_live: [u64; Class::ALL.len() + 1],
    /// Units of file content appended, but not by the cleaner, since it looked last.
    pub appended_units: u64,
    /// The same of everything on special groups, the cleaner's copies among it.
    pub special_units: u64,
    pub changed: BTreeSet<SegmentId>,
    /// Checksums of redundant segments that are open, or were closed since changes were last taken.
    pub sums: BTreeMap<SegmentId, Vec<[u8; Checksums::SIZE]>>,
    /// Parts of them that changed, and parts of segments that left the table.
    pub sums_changed: BTreeSet<(SegmentId, u32)>,
    /// Slots of columns that rows do not name any more.
    pub lost: Vec<Lost>,
    /// Devices on which columns are to be built that rows of groups with narrow segments lack.
    pub meant: BTreeMap<SegmentId, Vec<DeviceId>>,
    /// Segments appended to since the last commit.
    pub fresh: BTreeSet<SegmentId>,
    /// New segments may have fewer columns than their group, where that uses more of its devices.
    pub may_narrow: bool,
    /// Units that narrow segments have to hold for the sake of tails.
    pub tail_units: u32,
    /// A segment of a group that leaves fits nowhere whole: the cleaner is to empty such ones.
    pub empty_leaving: bool,
    /// Rows are being loaded; groups are counted when all are there.
    pub loading: bool,
}

/// An address at which nothing lives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unallocated;

impl Table {
    /// Groups of devices, each with its redundancy, the columns of a new segment, the bytes of a slot, and its devices with their
    /// slots and whether they are in use.
    pub fn new(geometry: Geometry) -> Table {
        Table {
            geometry,
            devices: BTreeMap::new(),
            groups: Vec::new(),
            rows: BTreeMap::new(),
            pool_rows: BTreeSet::new(),
            emptied: BTreeMap::new(),
            relocations: Relocations::default(),
            open: BTreeMap::new(),
            owners: BTreeSet::from([DatasetId(0)]),
            next_id: SegmentId(1),
            live_units: 0,
            class_live: Default::default(),
            appended_units: 0,
            special_units: 0,
            changed: BTreeSet::new(),
            sums: BTreeMap::new(),
            sums_changed: BTreeSet::new(),
            lost: Vec::new(),
            meant: BTreeMap::new(),
            fresh: BTreeSet::new(),
            may_narrow: false,
            tail_units: 0,
            empty_leaving: false,
            loading: false,
        }
    }

    /// Adds a group without devices; gives its index.
    pub fn add_group(&mut self, redundancy: Redundancy, class: GroupClass, width: u32, column: u32) -> usize {
        let devices = Vec::new();
        self.groups.push(Group {
            redundancy,
            class,
            width,
            column,
            devices,
            counts: Counts::default(),
            held_columns: 0,
            emptied_units: 0,
            narrow_rows: 0,
            missing: 0,
            live_units: 0,
        });
        self.groups.len() - 1
    }

    pub fn add_device(&mut self, id: DeviceId, slots: u32, group: usize, in_use: bool) {
        let space = DeviceSpace { slots: Slots::new(slots), group, in_use, leaving: false, owed: 0, lost: 0 };
        assert!(self.devices.insert(id, space).is_none(), "a device is added once");
        self.groups[group].devices.push(id);
        self.settle_owed(group);
    }

    pub fn grow_device(&mut self, id: DeviceId, slots: u32) -> u32 {
        let Some(space) = self.devices.get_mut(&id) else { return 0 };
        let (gained, group) = (space.slots.grow(slots), space.group);
        // It may have narrow segments from now on.
        self.settle_owed(group);
        gained
    }

    /// Slots of a device that only the last committed root names.
    pub fn lost_on(&self, id: DeviceId) -> u32 {
        self.devices.get(&id).map_or(0, |space| space.lost)
    }

    /// A slot is named by the last committed root only.
    pub fn leave_column(&mut self, segment: SegmentId, column: Column) {
        self.lost.push(Lost { segment, column, committing: false });
        if let Some(space) = self.devices.get_mut(&column.device) {
            space.lost += 1;
        }
    }

    /// Forgets a device on which nothing lies.
    pub fn remove_device(&mut self, id: DeviceId) {
        if let Some(space) = self.devices.remove(&id) {
            self.groups[space.group].devices.retain(|device| *device != id);
            self.settle_owed(space.group);
        }
    }

    /// Whether a device is read and written from now on.
    pub fn set_in_use(&mut self, id: DeviceId, in_use: bool) {
        let Some(space) = self.devices.get_mut(&id) else { return };
        space.in_use = in_use;
        let group = space.group;
        self.settle_owed(group);
    }

    /// What a device holds is to be moved to others, and nothing new is placed on it; or not any more.
    pub fn set_leaving(&mut self, id: DeviceId, leaving: bool) {
        let Some(space) = self.devices.get_mut(&id) else { return };
        space.leaving = leaving;
        let group = space.group;
        self.settle_owed(group);
    }

    /// Gives back a slot of a device.
    pub fn release_slot(&mut self, column: Column) {
        let group = self.free_slot(column);
        self.recount(group);
    }

    /// The same, but its group, which is given, is to be counted anew.
    fn free_slot(&mut self, column: Column) -> usize {
        let space = self.devices.get_mut(&column.device).expect("a row's device exists");
        space.slots.release(column.slot);
        space.group
    }

    /// Takes a free slot for a moment, if it is free.
    pub fn claim_slot(&mut self, column: Column) -> bool {
        let Some(space) = self.devices.get_mut(&column.device) else { return false };
        let (claimed, group) = (space.slots.claim(column.slot), space.group);
        if claimed {
            self.recount(group);
        }
        claimed
    }

    /// Gives back what [`Table::claim_slot`] took.
    pub fn unclaim_slot(&mut self, column: Column) {
        self.release_slot(column);
    }

    pub fn free_slots(&self) -> u32 {
        self.groups.iter().fold(0, |sum, group| group.counts.free.saturating_add(sum))
    }

    pub fn total_slots(&self) -> u32 {
        self.groups.iter().fold(0, |sum, group| group.counts.total.saturating_add(sum))
    }

    /// Where a segment lies whose slots are taken.
    pub fn place_of(&self, segment: SegmentId) -> Option<&Placement> {
        let emptied = || self.emptied.get(&segment).map(|emptied| &emptied.row);
        self.rows.get(&segment).or_else(emptied).map(|row| &row.place)
    }

    /// Bytes of a slot on the devices where something lies.
    pub fn column_bytes(&self, place: &Placement) -> u32 {
        let device = place.present().next().and_then(|(_, column)| self.devices.get(&column.device));
        device.map_or(self.geometry.slot_size, |space| self.groups[space.group].column)
    }

    /// Units that live on a device, its share of its group's.
    pub fn live_units_of(&self, space: &DeviceSpace) -> u64 {
        let group = &self.groups[space.group];
        let taken = |space: &DeviceSpace| u64::from(space.slots.total() - space.slots.free());
        let all: u64 = group.devices.iter().map(|id| taken(&self.devices[id])).sum();
        let share = u128::from(group.live_units) * u128::from(taken(space)) / u128::from(all.max(1));
        u64::try_from(share).expect("a part of a whole")
    }

    /// Whether everything on the group of a device can be read without it, as things are: no more devices are out of use than a
    /// segment may lack columns, and no segment lacks so many that it needs this one.
    pub fn can_spare(&self, id: DeviceId) -> bool {
        let Some(space) = self.devices.get(&id) else { return true };
        let group = &self.groups[space.group];
        let out = group.devices.iter().filter(|other| **other == id || !self.devices[other].in_use).count();
        out <= group.redundancy.spared(group.width) as usize && !self.is_needed(id)
    }

    /// Whether a segment has a column on a device that it cannot be read without.
    pub fn is_needed(&self, id: DeviceId) -> bool {
        let needs = |row: &Row| {
            let place = &row.place;
            let others = place
                .present()
                .filter(|(_, column)| column.device != id && self.devices[&column.device].in_use)
                .count();
            place.present().any(|(_, column)| column.device == id)
                && others + place.redundancy() < place.columns().count()
        };
        self.rows.values().any(needs)
    }

    /// Takes a slot for a column of a segment, on a device of its group that is in use and holds no other column of it: one that was meant for
    /// it, or that with the most free slots which are not kept for others.
    pub fn take_spare_column(&mut self, id: SegmentId) -> Option<Column> {
        let row = self.rows.get(&id)?;
        let taken: Vec<DeviceId> = row.place.present().map(|(_, column)| column.device).collect();
        let fits = |id: &&DeviceId| {
            let space = &self.devices[id];
            space.usable() && space.slots.free() > 0 && !taken.contains(id)
        };
        let meant = self.meant.get(&id);
        let most = |id: &&DeviceId| {
            let (space, is_meant) = (&self.devices[id], meant.is_some_and(|meant| meant.contains(id)));
            let free = space.slots.free();
            (is_meant, free.saturating_sub(space.owed), free, std::cmp::Reverse(**id))
        };
        let device = *self.groups[row.group].devices.iter().filter(fits).max_by_key(most)?;
        let slot = self.devices.get_mut(&device)?.slots.take()?;
        let group = self.devices[&device].group;
        self.recount(group);
        Some(Column { device, slot })
    }

    /// A column of a segment lies elsewhere from now on; the slot where it was is free after the next commit.
    pub fn set_column(&mut self, id: SegmentId, index: usize, column: Column) {
        let left = self.take_column(id, index);
        if left.is_none() {
            self.forget_meant(id, column.device);
        }
        let row = self.rows.get_mut(&id).expect("nothing left the table meanwhile");
        let group = row.group;
        let lacked = missing_of(row);
        if let Placement::Mirror(columns) | Placement::Raidz { columns, .. } = &mut row.place {
            let mut all = columns.to_vec();
            all[index] = Some(column);
            *columns = all.into();
        }
        let lacks = missing_of(row);
        self.lack(group, lacks, lacked);
        if left.is_some() && self.meant.get(&id).is_some_and(|meant| meant.contains(&column.device)) {
            // It took the place of another that was to be built there.
            self.forget_meant(id, column.device);
            self.assign_missing(id);
            self.recount(group);
        }
        self.changed.insert(id);
        // What was written there is not durable yet (R3).
        self.fresh.insert(id);
    }

    /// Rows written since the last commit do without a device.
    pub fn lose_fresh(&mut self, device: DeviceId) {
        let ids: Vec<SegmentId> = self.fresh.iter().chain(self.open.values()).copied().collect();
        for id in ids {
            let place = self.rows.get(&id).map(|row| row.place.clone());
            let index = place.and_then(|place| place.present().find(|(_, column)| column.device == device));
            if let Some((index, _)) = index {
                self.lose_column(id, index);
            }
        }
    }

    /// Units of a row of a segment.
    pub fn row_units(&self, row: &Row) -> u32 {
        groups::row_units(&row.place, row.class, self.geometry)
    }

    /// Columns of a segment at most.
    pub fn columns_max(&self) -> u32 {
        self.groups.iter().map(|group| group.width).max().unwrap_or(1)
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

    /// Slots that the next commit is likely to take for metadata: one for each of its streams that has no open segment or
    /// one with little room left.
    pub fn metadata_slots(&self) -> u32 {
        self.metadata_streams(|row| self.is_nearly_full(row))
    }

    /// Slots that a commit without file content takes at most, if `pool_units` are yet to come of each copy of the pool's own
    /// metadata: as above, but metadata of datasets has room enough in any open segment.
    pub fn idle_commit_slots(&self, pool_units: u32) -> u32 {
        let short = |row: &Row| self.room_units(row) < self.commit_units().max(pool_units);
        let further = 2 * (pool_units / self.geometry.slot_units());
        self.metadata_streams(|row| row.class.is_pool() && short(row)) + further
    }

    fn is_nearly_full(&self, row: &Row) -> bool {
        self.room_units(row) < self.commit_units()
    }

    /// Units below which an open segment of metadata may not hold the next commit's.
    fn commit_units(&self) -> u32 {
        (self.geometry.slot_size / ROOM_SHARE).max(ROOM_BYTES_MIN) / self.geometry.unit
    }

    /// Units that an open segment still takes, and how many of them the commit counts on: none if no metadata goes there, or
    /// if the stream's next slot is counted already.
    pub fn room_beside_commit(&self, id: SegmentId, beside: CleanerRoom) -> (u32, u32) {
        let row = &self.rows[&id];
        let room = self.room_units(row);
        let wanted = match row.class {
            Class::Pool0 | Class::Pool1 => self.commit_units().max(beside.pool_units),
            Class::Meta0 | Class::Meta1 => self.commit_units(),
            Class::Data | Class::Clean | Class::Log | Class::Small => 0,
        };
        let counted = room < wanted && row.class.is_pool() && beside.alone;
        (room, if counted { 0 } else { wanted.min(room) })
    }

    /// Streams of metadata without an open segment, or with one that `counts`.
    fn metadata_streams(&self, counts: impl Fn(&Row) -> bool) -> u32 {
        let needs = |owner: DatasetId, class: Class| {
            let open = self.open.get(&(owner, class)).map(|id| &self.rows[id]);
            u32::from(open.is_none_or(&counts))
        };
        let meta = self.owners.iter().map(|&owner| needs(owner, Class::Meta0) + needs(owner, Class::Meta1));
        meta.sum::<u32>() + needs(DatasetId(0), Class::Pool0) + needs(DatasetId(0), Class::Pool1)
    }

    /// Units that streams of metadata can fill before each needs the slot after its next one: what a commit may take of free slots.
    pub fn metadata_units(&self) -> i64 {
        let slot_units = i64::from(self.geometry.slot_units());
        // What fills up rows at the commit is taken as well, and rests of narrow segments are lost.
        let spare = self.spare_units();
        let kept = |owner: DatasetId, class: Class| {
            let open = self.open.get(&(owner, class));
            let room = open.map_or(0, |id| i64::from(self.room_units(&self.rows[id])));
            slot_units - room + self.padding_units(class) + spare
        };
        let meta: i64 =
            self.owners.iter().map(|&owner| kept(owner, Class::Meta0) + kept(owner, Class::Meta1)).sum();
        meta + kept(DatasetId(0), Class::Pool0) + kept(DatasetId(0), Class::Pool1)
    }

    /// Free units of each side, less what is kept from file content: for each stream of metadata as much as it can fill
    /// before it needs the slot after its present one, and `others` slots. Smooth on purpose: when a stream of metadata takes a
    /// slot, its share of what is kept falls by as much.
    pub fn headroom(&self, others: u32) -> Headroom {
        let slot_units = i64::from(self.geometry.slot_units());
        let content = self.owners.len() as i64 * 2 * self.padding_units(Class::Data);
        let others = i64::from(others + COMMIT_MARGIN) * slot_units;
        Headroom {
            normal: signed(self.free_units_of(Side::Normal)) - content - others,
            special: signed(self.free_units_of(Side::Special)) - self.metadata_units(),
        }
    }

    /// What of that content and deletes can take. Negative if slots are short.
    pub fn headroom_units(&self, others: u32) -> i64 {
        self.headroom(others).content()
    }

    /// What file content may take of that: less what the cleaner's streams can fill before they need the slots after their
    /// present ones, and `others` slots. Were it not kept, the cleaner would stop where one of them is full and little is
    /// left; writers would take the rest, and then all would wait until the slot that the cleaner takes next is gained again,
    /// which at 95 % means to copy seven.
    pub fn content_headroom(&self, others: u32) -> Headroom {
        let slot_units = i64::from(self.geometry.slot_units());
        let open = |owner| self.open.get(&(owner, Class::Clean));
        let room = |id: &SegmentId| i64::from(self.room_units(&self.rows[id]));
        let kept = |&owner| slot_units - open(owner).map_or(0, room);
        let headroom = self.headroom(others);
        Headroom { normal: headroom.normal - self.owners.iter().map(kept).sum::<i64>(), ..headroom }
    }

    /// The same as one number.
    pub fn content_headroom_units(&self, others: u32) -> i64 {
        self.content_headroom(others).content()
    }

    /// Units that live in segments of a class.
    pub fn class_live_units(&self, class: Class) -> u64 {
        self.class_live[class as usize]
    }

    /// Units that open segments of these classes still take.
    pub fn open_room_units(&self, classes: &[Class]) -> i64 {
        let rows = self.open.iter().filter(|((_, class), _)| classes.contains(class));
        rows.map(|(_, id)| i64::from(self.room_units(&self.rows[id]))).sum()
    }

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

    /// Opens a segment for a stream, unless no more than `floor` slots are free. It is to hold a block of so many units at least.
    pub fn allocate(&mut self, owner: DatasetId, class: Class, floor: u32, units: u32) -> Option<SegmentId> {
        assert!(!self.open.contains_key(&(owner, class)), "a stream has one open segment");
        if self.free_units_for(class) <= u64::from(floor) * u64::from(self.geometry.slot_units()) {
            return None;
        }
        let first = self.choose_group(owner, class)?;
        let id = self.next_id;
        // What is too long for the narrow segments of one group may find a wide one in another.
        let sides = self.sides_for(class);
        let fits = |at: &usize| *at != first && sides.contains(&self.groups[*at].side());
        let others: Vec<usize> = (0..self.groups.len()).filter(fits).collect();
        let mut tried = std::iter::once(first).chain(others);
        let (group, place) = tried.find_map(|at| Some((at, self.take_columns(at, class, id, units)?)))?;
        // (G2) An id is given out once.
        self.next_id = SegmentId(id.0.checked_add(1).expect("2^64 segments outlast any device"));
        if !matches!(place, Placement::Plain(_)) && !class.is_pool() && class != Class::Log {
            self.sums.insert(id, Vec::new());
        }
        let dead = DeadUnits::default();
        let row = Row { place, group, owner, class, filled: 0, live: 0, dead, open: true, unreadable: false };
        self.enter(&row);
        let missing = missing_of(&row);
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

    /// The group with the greatest share of free space, of the first side that has any; for second copies, one that the first copies
    /// do not use if there is one. First copies prefer groups of even rank and second copies odd ones, so that copies stay
    /// apart when the cleaner moves them one by one.
    pub fn choose_group(&self, owner: DatasetId, class: Class) -> Option<usize> {
        self.sides_for(class).iter().find_map(|side| self.choose_on(*side, owner, class))
    }

    fn choose_on(&self, side: Side, owner: DatasetId, class: Class) -> Option<usize> {
        let sibling = class.sibling().and_then(|sibling| self.open.get(&(owner, sibling)));
        let avoided = sibling.and_then(|id| self.rows.get(id)).map(|row| row.group);
        let rank = |at: usize, group: &Group| {
            let apart = Some(at) != avoided;
            let parity = class.copy_index().is_none_or(|copy| self.rank_on_side(at) % 2 == copy);
            let Counts { free_units, total_units, .. } = group.counts;
            let share = (u128::from(free_units) << 32) / u128::from(total_units.max(1));
            (apart, parity, share, std::cmp::Reverse(at))
        };
        let has_room = |group: &Group| group.counts.free_units > 0 && group.side() == side;
        let with_room = self.groups.iter().enumerate().filter(|(_, group)| has_room(group));
        with_room.max_by_key(|&(at, group)| rank(at, group)).map(|(at, _)| at)
    }

    /// Takes a slot on each of the devices of a group that have the most free ones. Which of them holds which column is turned by
    /// the segment's number, so that parity is spread; columns for which there is no device are the last: parity is missed least.
    pub fn take_whole(&mut self, index: usize, class: Class, id: SegmentId) -> Option<Placement> {
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
            let slot = self.devices.get_mut(&device)?.slots.take().expect("a free one was counted");
            columns.push(Some(Column { device, slot }));
        }
        columns.resize(wanted as usize, None);
        self.recount(index);
        Some(self.groups[index].placement(class, self.geometry, columns))
    }

    /// Fills up the last row of an open segment with units that are dead from birth; gives how many.
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

    /// Notes checksums of rows of an open segment, which follow those noted before. Nothing for segments that have none.
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

    /// A column of a segment is not what it should be: its row does without it from now on.
    pub fn lose_column(&mut self, id: SegmentId, index: usize) {
        if let Some(column) = self.take_column(id, index) {
            match self.is_awaited(column.device) {
                true => self.mean(id, column.device),
                false => self.assign_missing(id),
            }
            if self.meant.contains_key(&id) {
                self.recount(self.rows[&id].group);
            }
        }
    }

    /// Takes a column out of a segment's row.
    fn take_column(&mut self, id: SegmentId, index: usize) -> Option<Column> {
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

    /// Ends appending to a segment.
    pub fn close(&mut self, id: SegmentId) {
        let row = self.rows.get_mut(&id).expect("an open segment has a row");
        assert!(row.open);
        row.open = false;
        let stream = (row.owner, row.class);
        let empty = row.live == 0;
        assert_eq!(self.open.remove(&stream), Some(id));
        if empty {
            self.retire(id);
        }
    }

    /// Where the units known as (`segment`, `unit`) and on lie now.
    pub fn resolve(&self, segment: SegmentId, unit: u32, units: u32) -> Result<Vec<Piece>, Unallocated> {
        let mut pieces = Vec::with_capacity(1);
        let mut at = unit;
        let end = unit + units;
        let native = |from: u32, to: u32| {
            if from == to {
                return Ok(None);
            }
            let emptied = || self.emptied.get(&segment).map(|emptied| &emptied.row);
            let row = self.rows.get(&segment).or_else(emptied).ok_or(Unallocated)?;
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
    fn kill_piece(&mut self, piece: Piece) {
        let slot_units = self.geometry.slot_units();
        let row = self.rows.get_mut(&piece.segment).expect("looked up before");
        row.dead.kill(piece.unit, piece.units, slot_units);
        row.live -= piece.units;
        self.changed.insert(piece.segment);
        self.live_units -= u64::from(piece.units);
        self.class_live[row.class as usize] -= u64::from(piece.units);
        self.groups[row.group].live_units -= u64::from(piece.units);
        if row.live == 0 && !row.open {
            self.retire(piece.segment);
        }
    }

    /// Forgets runs that lie on `piece` and have no living unit left.
    fn drop_dead_runs(&mut self, piece: Piece) {
        for part in self.relocations.lying_on(piece.segment, piece.unit, piece.units) {
            let Some(run) = self.relocations.run_of(part.from) else { continue };
            let alive =
                self.rows.get(&run.to.0).is_some_and(|row| row.dead.count(run.to.1, run.units) < run.units);
            if !alive {
                self.relocations.remove(run.from);
            }
        }
    }

    /// A segment without life leaves the table. Its slot stays taken until the commit that knows (T2).
    fn retire(&mut self, id: SegmentId) {
        let row = self.rows.remove(&id).expect("only a known segment is retired");
        self.pool_rows.remove(&id);
        assert!(row.live == 0 && !row.open);
        self.changed.insert(id);
        self.sums.remove(&id);
        self.sums_changed.extend((0..self.sum_parts(&row)).map(|part| (id, part)));
        self.forget_all_meant(id);
        self.enter_emptied(&row);
        self.emptied.insert(id, Emptied { row, committing: false });
    }

    /// Units `unit` and on of `victim` were copied to `target`: whatever name they are known by now leads there.
    /// Units that died meanwhile are dead in the copy as well.
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
        // The copy was appended as living: what had died is killed in it; what lived is killed in the victim.
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

    /// Takes the virtual units of `part` out of the run they are in, if any. What is left of the run on either side
    /// stays if something lives in it.
    fn cut(&mut self, part: Run) {
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
    fn part_of(&self, id: SegmentId, part: u32) -> Option<Checksums> {
        let (row, sums) = (self.rows.get(&id)?, self.sums.get(&id)?);
        let per_part = Checksums::rows_per_part(&row.place) * Checksums::per_row(&row.place);
        let part = sums.chunks(per_part).nth(part as usize)?;
        Some(Checksums { sums: part.to_vec() })
    }

    /// The same, but they will be reported again.
    pub fn peek_changes(&self) -> SpaceChanges {
        self.changes_of(&self.changed, self.relocations.changed())
    }

    fn changes_of(&self, rows: &BTreeSet<SegmentId>, runs: &BTreeSet<(SegmentId, u32)>) -> SpaceChanges {
        SpaceChanges {
            rows: rows.iter().map(|&id| (id, self.rows.get(&id).map(|row| self.store_row(row)))).collect(),
            runs: runs.iter().map(|&from| (from, self.relocations.get(from).map(store_run))).collect(),
            sums: Vec::new(),
        }
    }

    /// All rows of the pool's own metadata and the relocations that lie on them or were theirs: what must be known
    /// before the meta tree can be read.
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

    /// What was emptied so far is known to the tail that is about to be written.
    pub fn seal_emptied(&mut self) {
        for emptied in self.emptied.values_mut() {
            emptied.committing = true;
        }
        self.lost.iter_mut().for_each(|lost| lost.committing = true);
    }

    /// The tail is durable: slots of the segments it knew to be empty are free (T2), and those of columns that it names no more.
    /// Gives how many segments went, and all slots that are free now.
    pub fn release_committed(&mut self) -> (usize, Vec<Freed>) {
        let ids: Vec<SegmentId> =
            self.emptied.iter().filter(|(_, emptied)| emptied.committing).map(|(&id, _)| id).collect();
        let count = ids.len();
        let (mut freed, mut groups) = (Vec::with_capacity(count), BTreeSet::new());
        let mut free = |table: &mut Table, segment: SegmentId, column: Column| {
            let group = table.free_slot(column);
            groups.insert(group);
            freed.push(Freed { segment, column, slot_size: table.groups[group].column });
        };
        for id in ids {
            let Emptied { row, .. } = self.emptied.remove(&id).expect("listed just now");
            self.leave_emptied(&row);
            row.place.present().for_each(|(_, column)| free(self, id, column));
        }
        self.fresh.clear();
        for lost in std::mem::take(&mut self.lost) {
            if lost.committing {
                let space = self.devices.get_mut(&lost.column.device);
                space.expect("a device is removed when nothing is on it").lost -= 1;
                free(self, lost.segment, lost.column);
            } else {
                self.lost.push(lost);
            }
        }
        // Once each, as counting costs more than freeing.
        groups.into_iter().for_each(|group| self.recount(group));
        (count, freed)
    }

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
        let row =
            Row { place, group, owner, class, filled: units, live, dead, open: false, unreadable: false };
        self.enter(&row);
        self.rows.insert(segment, row);
        if class.is_pool() {
            self.pool_rows.insert(segment);
        }
        Ok(())
    }

    /// The group on which a stored segment lies: its devices are there and of one group, its slots exist, and its columns are
    /// as many, as large and as far apart as they should be: of one with parity there may be fewer, which hold less (U1).
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
            if slot >= slots {
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

    /// Extends a loaded segment by the block of the tail itself, which was appended after its row was computed.
    pub fn load_tail_block(&mut self, address: Address, bytes: usize) -> Result<(), TableError> {
        let wrong = TableError::TailPlace { address };
        let (unit, units) = self.units_of(address, bytes).map_err(|Unallocated| wrong.clone())?;
        let row = self.rows.get(&address.segment).ok_or(wrong.clone())?;
        if row.filled != unit || units > self.room_units(row) {
            return Err(wrong);
        }
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

    /// All is loaded. What the tail said (`rows`, `runs`) is not in the meta tree yet and counts as changed; rows without
    /// life are retired; ids skip what an uncommitted txg can have used, which is no more than there are slots: of a narrow group no more
    /// than those of all its devices, as a segment may leave what it has on each of them.
    pub fn finish_load(
        &mut self,
        rows: &BTreeSet<SegmentId>,
        runs: &BTreeSet<(SegmentId, u32)>,
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
    fn lives_natively(&self, run: Run) -> bool {
        self.rows.get(&run.from.0).is_some_and(|row| {
            let end = row.filled.min(run.from.1 + run.units);
            run.from.1 < end && row.dead.count(run.from.1, end - run.from.1) < end - run.from.1
        })
    }

    /// Verifies every invariant of the table. Costs a pass over everything; for tests and for `inspect`.
    pub fn check(&self) -> Result<(), String> {
        let mut taken: BTreeMap<(DeviceId, u32), SegmentId> = BTreeMap::new();
        let mut live_by_group = vec![0; self.groups.len()];
        let mut live_by_class = self.class_live;
        live_by_class.fill(0);
        let emptied = self.emptied.iter().map(|(id, emptied)| (id, &emptied.row));
        for (&id, row) in self.rows.iter().chain(emptied) {
            for (_, Column { device, slot }) in row.place.present() {
                if let Some(other) = taken.insert((device, slot), id) {
                    return Err(format!("(G1) segments {id} and {other} share slot {slot}"));
                }
                if !self.devices[&device].slots.is_taken(slot) {
                    return Err(format!("(G1) the slot of segment {id} is not taken"));
                }
            }
            if id >= self.next_id {
                return Err(format!("(G2) segment {id} has a future id"));
            }
            if row.filled > self.capacity_units(row) {
                return Err(format!("(G3) (U1) segment {id} is overfull"));
            }
            if self.side_of(row) == Side::Special && !row.class.may_be_special() {
                return Err(format!("(S1) segment {id} of class {:?} lies on a special group", row.class));
            }
            if row.filled - row.dead.count(0, row.filled) != row.live {
                return Err(format!("(G3) segment {id} counts {} live units", row.live));
            }
            live_by_group[row.group] += u64::from(row.live);
            live_by_class[row.class as usize] += u64::from(row.live);
        }
        if live_by_class != self.class_live {
            return Err(format!("(G3) the classes count {:?} live units", self.class_live));
        }
        for (&id, space) in &self.devices {
            let lost = self.lost.iter().filter(|lost| lost.column.device == id).count();
            if lost != space.lost as usize {
                return Err(format!("(G1) device {id} counts {} slots that rows have left", space.lost));
            }
            let taken_here = taken.keys().filter(|(device, _)| *device == id).count() + lost;
            if taken_here + space.slots.free() as usize != space.slots.total() as usize {
                return Err(format!("(G1) device {id} has taken slots without a segment"));
            }
        }
        for (index, group) in self.groups.iter().enumerate() {
            if live_by_group[index] != group.live_units {
                return Err(format!("(G3) group {index} counts {} live units", group.live_units));
            }
            if self.count(index) != group.counts {
                return Err(format!("(G1) group {index} counts {:?}", group.counts));
            }
        }
        if live_by_group.iter().sum::<u64>() != self.live_units {
            return Err(format!("(G3) the pool counts {} live units", self.live_units));
        }
        self.check_uneven()?;
        for (id, row) in &self.rows {
            if row.class.is_pool() != self.pool_rows.contains(id) {
                return Err(format!("(G4) the tail would not know segment {id}"));
            }
            if row.live == 0 && !row.open {
                return Err(format!("(G4) segment {id} is empty and closed but has a row"));
            }
            if row.open != (self.open.get(&(row.owner, row.class)) == Some(id)) {
                return Err(format!("(G4) segment {id} is not its stream's"));
            }
        }
        let mut virtual_end: Option<(SegmentId, u32)> = None;
        for run in self.relocations.iter() {
            let target = self.rows.get(&run.to.0);
            if target.is_none_or(|row| run.to.1 + run.units > row.filled) {
                return Err(format!("(G5) {run:?} leads nowhere"));
            }
            if target.is_some_and(|row| row.dead.count(run.to.1, run.units) == run.units) {
                return Err(format!("(G5) {run:?} is all dead"));
            }
            if let Some((segment, end)) = virtual_end
                && segment == run.from.0
                && end > run.from.1
            {
                return Err(format!("(G6) {run:?} overlaps its predecessor"));
            }
            virtual_end = Some((run.from.0, run.from.1 + run.units));
            if self.lives_natively(run) {
                return Err(format!("(G6) {run:?} still lives where it was"));
            }
            let here = self.relocations.lying_on(run.to.0, run.to.1, run.units);
            if here.len() != 1 || here[0] != run {
                return Err(format!("(G6) {run:?} shares its place"));
            }
        }
        Ok(())
    }
}

/// A count as what may be negative.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX / 8).min(i64::MAX / 8)
}

fn store_run(run: Run) -> RelocationRow {
    RelocationRow { segment: run.to.0, unit: run.to.1, units: run.units }
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
