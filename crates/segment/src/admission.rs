//! Admission: the room that a txg may count on (ZFS: `dsl_pool_adjustedsize`).

use std::sync::atomic::Ordering;

use steadfast_format::{DatasetId, DeviceId, SegmentId};

use crate::Class;
use crate::accounting::{Accounting, DeviceUsage};
use crate::geometry::signed;
use crate::groups::Group;
use crate::headroom::STREAMS_PER_OWNER;
use crate::row::Row;
use crate::side::Side;
use crate::space::{Space, State};
use crate::table::Table;

impl Space {
    /// Slots that can be taken now.
    #[must_use]
    pub fn free_slots(&self) -> u32 {
        self.read_state().table.free_slots()
    }

    /// Units that new segments can hold now, and units that can live once what is dead was cleaned,
    /// the reserve among them: where either grows, a commit got on.
    #[must_use]
    pub fn gains(&self) -> (u64, u64) {
        let table = &self.read_state().table;
        let sides = [Side::Normal, Side::Special];
        let free = sides.map(|side| table.free_units_of(side)).iter().sum();
        (free, sides.map(|side| table.reachable_of(side)).iter().sum())
    }

    /// Bytes of file content that one sync can surely append if no block is larger than
    /// `block_bytes_max`: a segment may end with a rest that the next block does not fit into, and
    /// every owner fills a segment of its own.
    #[must_use]
    pub fn room_for_txg_bytes(&self, block_bytes_max: u32) -> u64 {
        self.block_units_max.store(block_bytes_max.div_ceil(self.geometry.unit), Ordering::Relaxed);
        let (whole, begun, narrow) = {
            let table = &self.read_state().table;
            let begun = table.open_room_units(&[Class::Data]);
            let narrow = table.narrow_segments(Side::Normal);
            (table.content_headroom_units(Self::CLEANER_SLOTS), begun, narrow)
        };
        let (unit, slot_size) = (u64::from(self.geometry.unit), u64::from(self.geometry.slot_size));
        let rest = u64::from(block_bytes_max.next_multiple_of(self.geometry.unit)) - unit;
        let begun = (begun.unsigned_abs() * unit).saturating_sub(rest).min(slot_size);
        let Ok(whole) = u64::try_from(whole) else {
            // The slot that content has open was taken from what is kept, which it gets back with
            // what is left of it.
            return begun.saturating_sub(whole.unsigned_abs() * unit);
        };
        let whole = whole * unit;
        if let Some((least, most)) = narrow {
            // So does every narrow segment, of which there are more.
            let segments = whole.div_ceil((least * unit).max(1)).min(most);
            return whole.saturating_sub(segments * rest) + begun;
        }
        // Every slot may end with a rest; what is less than a slot counts the same way.
        (whole / slot_size * slot_size.saturating_sub(rest))
            + (whole % slot_size).saturating_sub(rest)
            + begun
    }

    /// Names an owner that is going to append (its key was loaded), so that room for its streams is
    /// counted from now on. Owner 0 need not be named; who appends without being named is counted
    /// from then on.
    pub fn expect_owner(&self, owner: DatasetId) {
        self.write_state().table.owners.insert(owner);
    }

    /// How space is used.
    #[must_use]
    pub fn accounting(&self) -> Accounting {
        let state = self.read_state();
        let table = &state.table;
        let unit = u64::from(self.geometry.unit);
        let slots = u64::from(table.total_slots());
        // Content lies on the normal side; what lives on the other takes nothing from it [sides.2].
        let normal = table.reachable_of(Side::Normal) * unit;
        let reserve = self.reserve_of(table, normal);
        let special_live = table.live_units_of_side(Side::Special) * unit;
        let open: Vec<&Row> = table.open.values().chain(&table.full).map(|id| &table.rows[id]).collect();
        let open_live: u64 = open.iter().map(|row| u64::from(row.live)).sum();
        let open_held: u64 = open.iter().map(|row| u64::from(table.capacity_units(row))).sum();
        let open_room: u64 = open.iter().map(|row| u64::from(table.room_units(row))).sum();
        let of_groups = |count: fn(&Group) -> u64| table.groups.iter().map(count).sum::<u64>();
        let emptied = of_groups(|group| group.emptied_units);
        let held = |(index, group): (usize, &Group)| match table.store_of(index) {
            Some(room) => room.taken_units,
            None => group.units_in(group.held_columns, self.geometry),
        };
        let held: u64 = table.groups.iter().enumerate().map(held).sum();
        let closed = held.saturating_sub(emptied + open_held);
        let devices = table.devices.iter().map(|(&device, space)| DeviceUsage {
            device,
            slots: match space.store {
                Some(_) => table.groups[space.group].counts.total.into(),
                None => space.slots.total().into(),
            },
            free_slots: match space.store {
                Some(_) => table.groups[space.group].counts.free.into(),
                None => space.slots.free().into(),
            },
            live_bytes: table.live_units_of(space) * unit,
        });
        Accounting {
            slot_size: self.geometry.slot_size,
            unit: self.geometry.unit,
            slots,
            free_slots: table.free_slots().into(),
            emptied_slots: table.emptied.len() as u64,
            size_bytes: of_groups(|group| group.counts.total_units) * unit,
            free_bytes: of_groups(|group| group.counts.free_units) * unit,
            emptied_bytes: emptied * unit,
            open_slots: open.len() as u64,
            capacity_bytes: normal.saturating_sub(reserve) + special_live,
            reserve_bytes: reserve.min(normal),
            live_bytes: table.live_units * unit,
            dead_bytes: closed.saturating_sub(table.live_units - open_live + table.kept_units()) * unit,
            kept_bytes: table.kept_units() * unit,
            open_room_bytes: open_room * unit,
            relocations: table.relocations.len() as u64,
            devices: devices.collect(),
        }
    }

    /// Bytes kept of so many: max(12 slots, 5 %), and for every owner beyond the first the slots
    /// its streams may keep open: room in them is of no use to others. Where there are narrow
    /// segments, also what streams of metadata may need because of their rests.
    pub(crate) fn reserve_of(&self, table: &Table, bytes: u64) -> u64 {
        let slot_size = u64::from(self.geometry.slot_size);
        let appendable = self.devices.values().all(|handle| handle.appendable);
        let least = if appendable { Self::RESERVE_SLOTS_MIN } else { Self::RESERVE_SLOTS_MIN_OBJECTS };
        let (open, metadata) = table.open_slots_max();
        let others = open.saturating_sub(STREAMS_PER_OWNER.into());
        let slots = u64::from(least).max(bytes / slot_size / 20) + others;
        // Two of each owner, and the pool's own.
        let streams = metadata + 2;
        // [kept.5]
        let units = streams * table.spare_units().unsigned_abs() + table.kept.metadata_units;
        slots * slot_size + units * u64::from(self.geometry.unit)
    }

    /// Bytes that may live in a pool of so many.
    pub(crate) fn capacity_of(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.reserve_of(&self.read_state().table, bytes))
    }

    /// Bytes that may live in the pool if a device had so many slots, and all were written anew;
    /// `None` of a device whose group is not of those that make narrow segments.
    #[must_use]
    pub fn capacity_with(&self, device: DeviceId, slots: u32) -> Option<u64> {
        let unit = u64::from(self.geometry.unit);
        let (bytes, special) = {
            let table = &self.read_state().table;
            let units = table.reachable_with(device, slots)?;
            (units * unit, table.live_units_of_side(Side::Special) * unit)
        };
        Some(self.capacity_of(bytes) + special)
    }

    /// Free slots that an append of this class leaves alone, or `None` if there is none for it:
    /// file content leaves to metadata what the commit may need; what the cleaner moves leaves what
    /// [`CleanerRoom`] says, and takes slots for metadata as the commit would.
    pub(crate) fn floor(&self, state: &State, class: Class, for_cleaner: bool) -> Option<u32> {
        let slot_units = i64::from(self.geometry.slot_units());
        let table = &state.table;
        let beyond = || table.metadata_slots().saturating_sub(table.free_of(Side::Special));
        match class {
            Class::Clean => (self.cleaner_headroom(state, class, slot_units) >= 0).then_some(0),
            Class::Small => Some(table.small_floor()),
            _ if for_cleaner => (self.cleaner_headroom(state, class, 0) >= 0).then_some(0),
            Class::Data => Some(beyond().saturating_sub(1)),
            _ => Some(0),
        }
    }

    /// Units that the cleaner may take of where a class goes, beside `slot` units that it needs at
    /// once; negative if others want more than there is. The blocks that this commit has yet to
    /// write need slots that are free now. The operations of the next commit, and the slots that
    /// keep the cleaner going, need room after this commit, which gives back emptied slots, the
    /// victim under way included. Content that fits an open segment needs no slot. The slot of one
    /// of the cleaner's streams is not taken from operations: they have left it.
    pub(crate) fn cleaner_headroom(&self, state: &State, class: Class, slot: i64) -> i64 {
        let (table, room) = (&state.table, &state.cleaner_room);
        let slot_units = i64::from(table.geometry.slot_units());
        // Each of these slots may come in narrow segments, with a rest in each.
        let kept = i64::from(table.idle_commit_slots(room.pool_units)) * (slot_units + table.rest_units());
        let [normal, special] = [Side::Normal, Side::Special].map(|side| signed(table.free_units_of(side)));
        // Metadata beyond the special side's slots takes normal ones.
        let free = match class {
            Class::Small => special - kept,
            _ if class.may_be_special() => normal + special - kept,
            _ => normal + (special - kept).min(0),
        };
        let now = free - slot;
        if room.alone {
            return now;
        }
        let rest = i64::from(self.block_units_max.load(Ordering::Relaxed)) - 1;
        let begun = (table.open_room_units(&[Class::Data]) - rest).clamp(0, slot_units);
        let promised = (i64::from(room.promised_units) - begun).max(0);
        let emptying = Some((room.emptying, room.emptying_units));
        let mut after = table.after_commit(table.content_headroom(Self::CLEANER_SLOTS), emptying);
        after.special -= 2 * i64::from(room.pool_units);
        let content = after.content() - promised;
        match class.may_be_special() && table.has_special() {
            // Room on the special side is taken from nobody else.
            true => now.min(content.max(after.special)),
            false => now.min(content),
        }
    }

    /// Units that the cleaner may append to an open segment. [commit_room.1] What it fills of a
    /// segment of metadata is room that the commit counted on: it leaves what keeps the stream from
    /// needing a slot more, unless that slot is there.
    pub(crate) fn cleaner_units(&self, state: &State, id: SegmentId) -> u32 {
        let table = &state.table;
        let headroom = self.cleaner_headroom(state, table.rows[&id].class, 0);
        let (room, kept) = table.room_beside_commit(id, state.cleaner_room);
        match u32::try_from(headroom) {
            Err(_) if headroom < 0 => 0,
            _ if kept == 0 => room,
            _ if state.cleaner_room.alone && headroom < i64::from(table.geometry.slot_units()) => room - kept,
            Ok(headroom) if !state.cleaner_room.alone => room.min(headroom),
            _ => room,
        }
    }
}
