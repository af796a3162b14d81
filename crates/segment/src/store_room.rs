//! Room of a store of objects, in units: an object takes what it holds, not a slot (ZFS has no such
//! devices).
//!
//! ## Definitions
//! *Capacity*: units that the store may hold, a number its owner chose. *Number*: what the row of a
//! segment has where others have their slot; it tells segments of a store apart and nothing else.
//! *Garbage*: units of closed objects that do not live, and for each object [`OBJECT_SHARE`] of a
//! slot, which stands for what it costs by itself: a row, a request of every reader, a delete.
//!
//! ## Invariants
//! [store_room.1] Units taken are the fill marks of closed and emptied segments, and a slot for
//!      each that is open, as it may come to hold that.
//!      `Table::check_store`
//! [store_room.2] Numbers are unique among segments that have not gone.
//!      assert: `StoreRoom::release`
//!
//! ## Cleaning
//! A store is cleaned when its garbage is more than a third of what lives, and more than
//! [`OBJECTS_SPARE`] objects by themselves come to; then down to half of that. So of the bytes that
//! are paid for three quarters live at least, small commits leave a bounded number of small
//! objects, and a pool that changes little is left alone. Free room has no part in it, but for a
//! store that is full. Where prices are known, their rule takes the place of the third
//! ([`Space::set_garbage_share`](crate::Space::set_garbage_share)).
//!
//! Why it ends: an object is taken for what is dead in it, or together with others of its stream
//! that are small as well, which become one.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::{Column, DatasetId, DeviceId, Placement};

use crate::Class;
use crate::groups::Counts;
use crate::row::Row;
use crate::table::Table;

/// Part of a slot that an object counts as garbage, whatever it holds.
pub(crate) const OBJECT_SHARE: u32 = 8;
/// Objects that count for nothing.
const OBJECTS_SPARE: u64 = 64;
/// Garbage that is left where no price is known, in thousandths of what lives: a third.
const GARBAGE_SHARE: u32 = 333;

/// Room of one store.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreRoom {
    pub total_units: u64,
    pub taken_units: u64,
    /// Numbers of its segments, and such below their end as were given back since import.
    numbers: BTreeSet<u32>,
    returned: BTreeSet<u32>,
    /// Garbage that is left by its prices, in thousandths of what lives.
    garbage_share: Option<u32>,
}

impl StoreRoom {
    /// A number that no segment has.
    fn take(&mut self) -> Option<u32> {
        let end = self.numbers.last().map_or(Some(0), |last| last.checked_add(1));
        // Where a row has the last one, which no pool of ours comes to, any other will do.
        let any = || (0..=u32::MAX).find(|number| !self.numbers.contains(number));
        let number = self.returned.pop_first().or(end).or_else(any)?;
        self.numbers.insert(number).then_some(number)
    }

    /// False if a segment has it.
    pub fn claim(&mut self, number: u32) -> bool {
        self.returned.remove(&number);
        self.numbers.insert(number)
    }

    pub fn release(&mut self, number: u32) {
        assert!(self.numbers.remove(&number), "a number that a segment has is given back [store_room.2]");
        if self.numbers.last().is_some_and(|last| number < *last) {
            self.returned.insert(number);
        } else {
            self.returned.clear();
        }
    }

    pub fn is_taken(&self, number: u32) -> bool {
        self.numbers.contains(&number)
    }

    /// Garbage that is left alone beside so much that lives, apart from objects themselves.
    fn garbage_beside(&self, live: u64) -> u64 {
        live * u64::from(self.garbage_share.unwrap_or(GARBAGE_SHARE)) / 1_000
    }

    /// Segments on it, those that are emptied among them.
    pub fn objects(&self) -> u64 {
        self.numbers.len() as u64
    }
}

/// Garbage of all stores, and the most that is left alone, in units.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Garbage {
    pub units: u64,
    pub most: u64,
}

impl Garbage {
    /// Units to clean away.
    pub fn wanted(self) -> u64 {
        if self.units > self.most { self.units - self.most / 2 } else { 0 }
    }
}

impl Table {
    /// A device that was added holds whole objects.
    pub fn make_store(&mut self, id: DeviceId, slots: u32) {
        let total_units = u64::from(slots) * u64::from(self.geometry.slot_units());
        let space = self.devices.get_mut(&id).expect("it was added");
        space.store = Some(StoreRoom { total_units, ..StoreRoom::default() });
        let group = space.group;
        self.recount(group);
    }

    /// The only device of a group, if that is a store.
    fn store_device(&self, index: usize) -> Option<DeviceId> {
        match self.groups[index].devices[..] {
            [device] => self.devices[&device].store.is_some().then_some(device),
            _ => None,
        }
    }

    /// The room of a group that is a store.
    pub fn store_of(&self, index: usize) -> Option<&StoreRoom> {
        self.devices[&self.store_device(index)?].store.as_ref()
    }

    /// Units that a segment takes on a store [store_room.1].
    pub fn units_on_store(&self, row: &Row) -> u64 {
        if row.open { self.geometry.slot_units().into() } else { row.filled.into() }
    }

    /// A segment of a store takes so many units, and so many fewer.
    pub fn take_units(&mut self, index: usize, more: u64, less: u64) {
        let Some(device) = self.store_device(index) else { return };
        if let Some(room) = self.devices.get_mut(&device).and_then(|space| space.store.as_mut()) {
            room.taken_units = room.taken_units + more - less;
        }
        self.recount(index);
    }

    /// Room of a store, now and in all.
    pub fn count_store(&self, index: usize) -> Option<Counts> {
        let space = &self.devices[&self.store_device(index)?];
        let room = space.store.as_ref()?;
        let slot = u64::from(self.geometry.slot_units());
        let total_units = if space.leaving { 0 } else { room.total_units };
        let free = room.total_units.saturating_sub(room.taken_units);
        let free_units = if space.usable() { free } else { 0 };
        let [free, total] =
            [free_units, total_units].map(|units| u32::try_from(units / slot).unwrap_or(u32::MAX));
        let free_columns = free.into();
        Some(Counts { free, total, free_units, total_units, free_columns, narrow: false, surplus: false })
    }

    /// A place for a segment on a store, if a slot's worth is free.
    pub fn take_on_store(&mut self, index: usize, class: Class) -> Option<Placement> {
        let device = self.store_device(index)?;
        if self.groups[index].counts.free == 0 {
            return None;
        }
        let slot = self.devices.get_mut(&device)?.store.as_mut()?.take()?;
        Some(self.groups[index].placement(class, self.geometry, vec![Some(Column { device, slot })]))
    }

    /// Units that an object counts as garbage by itself.
    pub fn object_units(&self) -> u32 {
        (self.geometry.slot_units() / OBJECT_SHARE).max(1)
    }

    /// Garbage of all stores.
    pub fn garbage(&self) -> Garbage {
        let mut garbage = Garbage::default();
        let object = u64::from(self.object_units());
        for (index, group) in self.groups.iter().enumerate() {
            let Some(room) = self.store_of(index) else { continue };
            let ids = self.open.values().chain(&self.full);
            let open = ids.map(|id| &self.rows[id]).filter(|row| row.group == index);
            let (count, live) =
                open.fold((0, 0), |(count, live), row| (count + 1, live + u64::from(row.live)));
            let emptied = self.emptied.values().filter(|emptied| emptied.row.group == index).count() as u64;
            let live = group.live_units - live;
            let open_units = count * u64::from(self.geometry.slot_units());
            let held = room.taken_units.saturating_sub(group.emptied_units + open_units);
            let objects = room.objects().saturating_sub(emptied + count);
            garbage.units += held.saturating_sub(live) + objects * object;
            garbage.most += room.garbage_beside(live) + OBJECTS_SPARE * object;
        }
        garbage
    }

    /// Says how much garbage is left on a store; `None` if its prices are not known.
    pub fn set_garbage_share(&mut self, id: DeviceId, thousandths: Option<u32>) {
        if let Some(room) = self.devices.get_mut(&id).and_then(|space| space.store.as_mut()) {
            room.garbage_share = thousandths;
        }
    }

    /// How much garbage is left on a store, in thousandths of what lives.
    pub fn garbage_share(&self, id: DeviceId) -> u32 {
        let room = self.devices.get(&id).and_then(|space| space.store.as_ref());
        room.and_then(|room| room.garbage_share).unwrap_or(GARBAGE_SHARE)
    }

    /// Verifies what a store counts, and what its segments take.
    pub fn check_store(&self, index: usize) -> Result<(), String> {
        let Some(room) = self.store_of(index) else { return Ok(()) };
        let rows = self.rows.values().chain(self.emptied.values().map(|emptied| &emptied.row));
        let taken: u64 = rows.filter(|row| row.group == index).map(|row| self.units_on_store(row)).sum();
        if taken == room.taken_units {
            return Ok(());
        }
        let counted = room.taken_units;
        Err(format!("[store_room.1] group {index} counts {counted} units, and {taken} are taken"))
    }

    /// True if a segment is a small part of what an object may hold.
    pub fn is_small_object(&self, row: &Row) -> bool {
        self.store_of(row.group).is_some() && row.filled <= self.geometry.slot_units() / 2
    }
}

/// Streams into which small objects can be merged: the name of each, and how many it has.
pub(crate) type SmallObjects = BTreeMap<(DatasetId, Class), u32>;

/// Small objects of a stream that are worth merging into one.
pub(crate) const MERGED_MIN: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_stay_low() {
        let mut room = StoreRoom::default();
        assert!(room.claim(7) && !room.claim(7));
        assert_eq!([room.take(), room.take()], [Some(8), Some(9)]);
        room.release(8);
        assert!(!room.is_taken(8) && room.is_taken(9));
        assert_eq!([room.take(), room.take()], [Some(8), Some(10)]);
        for number in [7, 8, 9, 10] {
            room.release(number);
        }
        assert_eq!((room.objects(), room.take()), (0, Some(0)));
        assert!(room.claim(u32::MAX));
        assert_eq!(room.take(), Some(1), "behind the last one there is none");
    }

    #[test]
    fn prices_take_the_place_of_the_third() {
        let mut room = StoreRoom::default();
        assert_eq!(room.garbage_beside(3_000), 999);
        room.garbage_share = Some(125);
        assert_eq!(room.garbage_beside(3_000), 375);
        room.garbage_share = Some(1_000);
        assert_eq!(room.garbage_beside(3_000), 3_000);
    }

    #[test]
    fn garbage_is_cleaned_to_half_of_what_is_left_alone() {
        assert_eq!(Garbage { units: 100, most: 100 }.wanted(), 0);
        assert_eq!(Garbage { units: 101, most: 100 }.wanted(), 51);
    }
}
