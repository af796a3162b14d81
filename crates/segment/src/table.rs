//! The segment table: the place of each segment, its living units, and its changes. Pure logic; no
//! device is touched here. Theory and invariants are in the crate's documentation.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::{Checksums, Column, DatasetId, DeviceId, GroupClass, Placement, SegmentId};

use crate::Class;
use crate::geometry::Geometry;
use crate::groups;
use crate::groups::{Counts, Group, Redundancy};
use crate::kept::Kept;
use crate::relocation::Relocations;
use crate::row::{Emptied, Row};
use crate::slots::Slots;
use crate::store_room::StoreRoom;

/// Space of one device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceSpace {
    /// None of a store of objects.
    pub slots: Slots,
    /// Room of a store of objects, which has units instead of slots.
    pub store: Option<StoreRoom>,
    /// Index of its group.
    pub group: usize,
    /// It is read and written.
    pub in_use: bool,
    /// Its segments are to be moved to others.
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
    pub pool_rows: BTreeSet<SegmentId>,
    pub emptied: BTreeMap<SegmentId, Emptied>,
    pub relocations: Relocations,
    pub open: BTreeMap<(DatasetId, Class), SegmentId>,
    /// Open segments that their streams have left, and that devices do not have yet [uploads.1].
    pub full: BTreeSet<SegmentId>,
    /// Owners that have appended since the table was made or loaded; owner 0 always counts.
    pub owners: BTreeSet<DatasetId>,
    pub next_id: SegmentId,
    pub live_units: u64,
    /// The part of them in segments of each class, by its number.
    pub class_live: [u64; Class::ALL.len() + 1],
    /// Units of file content appended, but not by the cleaner, since it looked last.
    pub appended_units: u64,
    /// The same of everything on special groups, the cleaner's copies among it.
    pub special_units: u64,
    pub changed: BTreeSet<SegmentId>,
    /// Checksums of redundant segments that are open, or were closed since changes were last taken.
    pub sums: BTreeMap<SegmentId, Vec<[u8; Checksums::SIZE]>>,
    /// Parts of them that changed, and parts of segments that left the table.
    pub sums_changed: BTreeSet<(SegmentId, u32)>,
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
    /// Slots that other roots need.
    pub kept: Kept,
}

impl Table {
    /// Groups of devices, each with its redundancy, the columns of a new segment, the bytes of a
    /// slot, and its devices with their slots and whether they are in use.
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
            full: BTreeSet::new(),
            owners: BTreeSet::from([DatasetId(0)]),
            next_id: SegmentId(1),
            live_units: 0,
            class_live: Default::default(),
            appended_units: 0,
            special_units: 0,
            changed: BTreeSet::new(),
            sums: BTreeMap::new(),
            sums_changed: BTreeSet::new(),
            meant: BTreeMap::new(),
            fresh: BTreeSet::new(),
            may_narrow: false,
            tail_units: 0,
            empty_leaving: false,
            loading: false,
            kept: Kept::default(),
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
            kept_units: 0,
            narrow_rows: 0,
            missing: 0,
            live_units: 0,
        });
        self.groups.len() - 1
    }

    pub fn add_device(&mut self, id: DeviceId, slots: u32, group: usize, in_use: bool) {
        let slots = Slots::new(slots);
        let space = DeviceSpace { slots, store: None, group, in_use, leaving: false, owed: 0, lost: 0 };
        assert!(self.devices.insert(id, space).is_none(), "a device is added once");
        self.groups[group].devices.push(id);
        self.settle_owed(group);
    }

    pub fn grow_device(&mut self, id: DeviceId, slots: u32) -> u32 {
        let Some(space) = self.devices.get_mut(&id) else { return 0 };
        let (gained, group) = match &mut space.store {
            None => (space.slots.grow(slots), space.group),
            Some(room) => {
                let slot = u64::from(self.geometry.slot_units());
                let gained = (u64::from(slots) * slot).saturating_sub(room.total_units);
                room.total_units += gained;
                (u32::try_from(gained / slot).expect("no more than the slots"), space.group)
            }
        };
        // It may have narrow segments from now on.
        self.settle_owed(group);
        gained
    }

    /// Slots of a device that only the last committed root names.
    pub fn lost_on(&self, id: DeviceId) -> u32 {
        self.devices.get(&id).map_or(0, |space| space.lost)
    }

    /// A slot is named by the last committed root only, or by the checkpoint as well [kept.1].
    pub fn leave_column(&mut self, segment: SegmentId, column: Column) {
        match self.rows.get(&segment).is_some_and(|row| row.pinned) {
            true => self.keep_column(segment, column),
            false => self.lose_slot(segment, column),
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

    /// Marks a device as leaving, or not: its segments are to be moved to others, and nothing new
    /// is placed on it.
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
    pub(crate) fn free_slot(&mut self, column: Column) -> usize {
        let space = self.devices.get_mut(&column.device).expect("a row's device exists");
        match &mut space.store {
            None => space.slots.release(column.slot),
            Some(room) => room.release(column.slot),
        }
        space.group
    }

    /// Takes a free slot for a moment, if it is free.
    pub fn claim_slot(&mut self, column: Column) -> bool {
        let Some(space) = self.devices.get_mut(&column.device) else { return false };
        let claimed = match &mut space.store {
            None => space.slots.claim(column.slot),
            Some(room) => room.claim(column.slot),
        };
        let group = space.group;
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

    /// The row that a segment has, or had while its slots are taken still.
    pub fn taken_row(&self, segment: SegmentId) -> Option<&Row> {
        let emptied = || self.emptied.get(&segment).map(|emptied| &emptied.row);
        self.rows.get(&segment).or_else(emptied).or_else(|| self.kept.rows.get(&segment))
    }

    /// Where a segment lies whose slots are taken.
    pub fn place_of(&self, segment: SegmentId) -> Option<&Placement> {
        self.taken_row(segment).map(|row| &row.place)
    }

    /// Bytes of a slot on the devices where something lies.
    pub fn column_bytes(&self, place: &Placement) -> u32 {
        let device = place.present().next().and_then(|(_, column)| self.devices.get(&column.device));
        device.map_or(self.geometry.slot_size, |space| self.groups[space.group].column)
    }

    /// Units that live on a device, its share of its group's.
    pub fn live_units_of(&self, space: &DeviceSpace) -> u64 {
        let group = &self.groups[space.group];
        if space.store.is_some() {
            return group.live_units;
        }
        let taken = |space: &DeviceSpace| u64::from(space.slots.total() - space.slots.free());
        let all: u64 = group.devices.iter().map(|id| taken(&self.devices[id])).sum();
        let share = u128::from(group.live_units) * u128::from(taken(space)) / u128::from(all.max(1));
        u64::try_from(share).expect("a part of a whole")
    }

    /// Units of a row of a segment.
    pub fn row_units(&self, row: &Row) -> u32 {
        groups::row_units(&row.place, row.class, self.geometry)
    }

    /// Columns of a segment at most.
    pub fn columns_max(&self) -> u32 {
        self.groups.iter().map(|group| group.width).max().unwrap_or(1)
    }
}
