//! [`Space`]: its groups of devices, and its state. Allocation, reads, frees and commits are in its
//! modules.
//!
//! Stands where ZFS has metaslabs, but appends to open segments, so there are no space maps.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use steadfast_device::{Kind, SegmentPlace, SharedDevice};
use steadfast_env::Env;
use steadfast_env::brief::BriefMutex;
use steadfast_format::{Address, DatasetId, DeviceId, GroupClass, Placement, SegmentId};

use crate::Class;
use crate::accounting::{DeviceCounts, Wrong};
use crate::chunks::Chunks;
use crate::dead_objects::DeadObjects;
use crate::devices::{Devices, GivenUp};
use crate::error::Error;
use crate::geometry::Geometry;
use crate::group_spec::{GroupSpec, MemberSpec};
use crate::groups::Redundancy;
use crate::headroom::CleanerRoom;
use crate::row::Unallocated;
use crate::stream::{OpenSegment, SpareBuffers, Stream};
use crate::table::Table;
use crate::uploads::Uploads;

/// The space of a pool: every segment on every device. Shared by all threads; `free`, `clean`,
/// `drop_owner` and the hooks of a commit belong to the one sync that runs at a time.
pub struct Space {
    pub(crate) env: Env,
    pub(crate) geometry: Geometry,
    pub(crate) devices: Devices,
    pub(crate) streams: Mutex<Streams>,
    pub(crate) state: RwLock<State>,
    /// Held by every operation that frees or moves, so that a block does not die while it is
    /// copied.
    pub(crate) sync: Mutex<()>,
    /// Free slots that still hold old bytes on their device, oldest first.
    pub(crate) discards: Mutex<VecDeque<Discard>>,
    /// Objects that no root from the last one on needs.
    pub(crate) dead_objects: Mutex<DeadObjects>,
    /// Commits so far, and whether the devices hear of the slots they free.
    pub(crate) commits: AtomicU64,
    pub(crate) discarding: AtomicBool,
    /// Units of the longest block, as admission was told last.
    pub(crate) block_units_max: AtomicU32,
    /// Wrong bytes are rewritten where the right ones were found elsewhere.
    pub(crate) healing: AtomicBool,
    /// The pool's own metadata has a second copy on stores of objects too.
    pub(crate) pool_copies: AtomicBool,
    pub(crate) spare: SpareBuffers,
    pub(crate) uploads: Uploads,
    /// Chunks of segments on devices of whole objects.
    pub(crate) chunks: Chunks,
}

/// One stream per owner and class.
type Streams = BTreeMap<(DatasetId, Class), Arc<BriefMutex<Stream>>>;

pub(crate) struct State {
    pub table: Table,
    pub open: BTreeMap<SegmentId, Arc<OpenSegment>>,
    /// Segments that import reads before it has their rows, and the unit behind the tail in each.
    pub provisional: BTreeMap<SegmentId, (Placement, u32)>,
    pub loading: Option<crate::loading::Loading>,
    /// Living share of the victims of late: what a slot costs.
    pub victim_live: f64,
    pub cleaner_room: CleanerRoom,
    /// Narrow segments were emptied by the last commit for what their slots are worth, so the next
    /// one may find more.
    pub widening: bool,
    /// Bytes of the last tail at most.
    pub tail_bytes: u64,
    /// Devices that failed and were taken out of use.
    pub given_up: Vec<GivenUp>,
    /// A checkpoint waits for room.
    pub wishes_room: bool,
}

/// A slot that a commit freed.
pub(crate) struct Discard {
    pub(crate) device: DeviceId,
    pub(crate) place: SegmentPlace,
    /// Which commit that was.
    pub(crate) commit: u64,
}

impl Space {
    /// Slots kept out of the capacity, at least.
    pub const RESERVE_SLOTS_MIN: u32 = 12;

    /// The same if a device takes whole objects only: each commit then takes slots for streams that
    /// others have open.
    pub const RESERVE_SLOTS_MIN_OBJECTS: u32 = 24;

    /// Free slots that admission leaves to the cleaner, besides what the commit needs: with the
    /// margin, one to copy into when both of the pool's own streams need their next one. So the
    /// cleaner always gets on.
    pub(crate) const CLEANER_SLOTS: u32 = 2;

    /// The empty space of a new pool of single devices, or what [`Space::bootstrap`] begins to fill
    /// at import.
    #[must_use]
    pub fn new(geometry: Geometry, devices: Vec<(DeviceId, u32, SharedDevice)>, env: Env) -> Space {
        let single = |(id, slots, device)| GroupSpec {
            redundancy: Redundancy::None,
            class: GroupClass::Normal,
            width: 1,
            column: geometry.slot_size,
            members: vec![MemberSpec { id, slots, device: Some(device) }],
        };
        Space::with_groups(geometry, devices.into_iter().map(single).collect(), env)
    }

    /// The same of groups.
    #[must_use]
    pub fn with_groups(geometry: Geometry, groups: Vec<GroupSpec>, env: Env) -> Space {
        assert!(geometry.unit.is_power_of_two() && geometry.slot_size.is_power_of_two());
        assert!(geometry.unit <= geometry.slot_size && geometry.slot_size <= 1 << 30);
        let space = Space {
            env,
            geometry,
            devices: Devices::new(),
            streams: Mutex::default(),
            state: RwLock::new(State {
                table: Table::new(geometry),
                open: BTreeMap::new(),
                provisional: BTreeMap::new(),
                loading: None,
                victim_live: 0.5,
                cleaner_room: CleanerRoom::default(),
                widening: false,
                tail_bytes: 0,
                given_up: Vec::new(),
                wishes_room: false,
            }),
            sync: Mutex::new(()),
            discards: Mutex::default(),
            dead_objects: Mutex::default(),
            commits: AtomicU64::new(0),
            discarding: AtomicBool::new(true),
            block_units_max: AtomicU32::new(geometry.slot_units()),
            healing: AtomicBool::new(true),
            pool_copies: AtomicBool::new(true),
            spare: SpareBuffers::default(),
            uploads: Uploads::default(),
            chunks: Chunks::new(),
        };
        for group in groups {
            assert!(space.add_group(group), "a label lists each of its at most 255 devices once");
        }
        space
    }

    /// Adds an empty group of devices. False if an id is taken or the pool has as many devices as a
    /// label lists. One caller at a time; nothing is placed on it before this returns.
    pub fn add_group(&self, group: GroupSpec) -> bool {
        let _sync = lock(&self.sync);
        let known = |member: &MemberSpec| self.devices.get(member.id).is_some();
        if group.members.iter().any(known) {
            return false;
        }
        let is_store = |device: &SharedDevice| device.character().kind == Kind::Objects;
        let listed = |member: &MemberSpec| {
            let is_store = member.device.as_ref().is_some_and(is_store);
            (member.id, member.slots, member.device.is_some(), is_store)
        };
        let members: Vec<(DeviceId, u32, bool, bool)> = group.members.iter().map(listed).collect();
        for member in group.members {
            if !self.devices.add(member.id, member.device) {
                return false;
            }
        }
        let table = &mut self.write_state().table;
        let index = table.add_group(group.redundancy, group.class, group.width, group.column);
        for (id, slots, usable, is_store) in members {
            if is_store {
                table.add_device(id, 0, index, usable);
                table.make_store(id, slots);
            } else {
                table.add_device(id, slots, index, usable);
            }
        }
        true
    }

    /// Adds an empty device of so many slots, alone. As [`Space::add_group`].
    pub fn add_device(&self, id: DeviceId, slots: u32, device: SharedDevice) -> bool {
        self.add_group(GroupSpec {
            redundancy: Redundancy::None,
            class: GroupClass::Normal,
            width: 1,
            column: self.geometry.slot_size,
            members: vec![MemberSpec { id, slots, device: Some(device) }],
        })
    }

    /// Whether segments may have fewer columns than their group, where that uses what larger
    /// devices have (decision 0115). Known before [`Space::bootstrap`].
    pub fn set_uneven(&self, on: bool) {
        self.write_state().table.set_uneven(on);
    }

    /// True if a device is known and neither written nor read. One that is about to be added is
    /// not.
    #[must_use]
    pub fn is_out_of_use(&self, device: DeviceId) -> bool {
        self.devices.get(device).is_some_and(|handle| handle.in_use().is_none())
    }

    /// Whether what is found wrong may be written anew: not by a pool that is read only, or that
    /// may have lost its devices to another daemon.
    pub fn set_healing(&self, on: bool) {
        self.healing.store(on, Ordering::Relaxed);
    }

    /// Says up to which part of what lives, in thousandths, garbage is left on a store of whole
    /// objects. `None` is a third: its prices are not known.
    pub fn set_garbage_share(&self, device: DeviceId, thousandths: Option<u32>) {
        self.write_state().table.set_garbage_share(device, thousandths);
    }

    /// Up to which part of what lives, in thousandths, garbage is left on a store.
    #[must_use]
    pub fn garbage_share(&self, device: DeviceId) -> u32 {
        self.read_state().table.garbage_share(device)
    }

    /// Whether the pool's own metadata has a second copy on stores of objects, as it has everywhere
    /// else. Not within a commit.
    pub fn set_pool_copies(&self, on: bool) {
        self.pool_copies.store(on, Ordering::Relaxed);
    }

    /// As [`Space::set_pool_copies`] said.
    #[must_use]
    pub fn has_pool_copies(&self) -> bool {
        self.pool_copies.load(Ordering::Relaxed)
    }

    /// True if a segment that lives lies on a store of objects.
    #[must_use]
    pub fn is_on_store(&self, segment: SegmentId) -> bool {
        match self.read_state().table.rows.get(&segment).map(|row| &row.place) {
            Some(Placement::Plain(column)) => !self.devices[&column.device].appendable,
            _ => false,
        }
    }

    /// Takes a device out of use: nothing is read from it or written to it, and rows written since
    /// the last commit do without it. False if its group cannot do without it.
    pub fn take_out(&self, device: DeviceId) -> bool {
        let Some(handle) = self.devices.get(device) else { return false };
        let mut state = self.write_state();
        if handle.in_use().is_some() && !state.table.can_spare(device) {
            return false;
        }
        handle.set(None);
        state.table.set_in_use(device, false);
        state.table.lose_fresh(device);
        true
    }

    /// Takes a device into use.
    pub fn take_in(&self, device: DeviceId, opened: SharedDevice) {
        if let Some(handle) = self.devices.get(device) {
            handle.set(Some(opened));
            self.write_state().table.set_in_use(device, true);
        }
    }

    /// Marks a device as leaving, or not: its segments are to be moved to others, and nothing new
    /// is placed on it.
    pub fn set_leaving(&self, device: DeviceId, leaving: bool) {
        self.write_state().table.set_leaving(device, leaving);
    }

    /// A device that holds nothing leaves its group: it counts for nothing any more.
    ///
    /// # Panics
    /// If something lies on it.
    pub fn remove_device(&self, device: DeviceId) {
        assert_eq!(self.columns_on(device), 0, "nothing lies on a device that leaves");
        if let Some(handle) = self.devices.get(device) {
            handle.set(None);
        }
        self.write_state().table.remove_device(device);
    }

    /// The greatest number that a device has or had since import.
    #[must_use]
    pub fn last_device(&self) -> DeviceId {
        self.devices.iter().map(|(id, _)| *id).max().unwrap_or(DeviceId(0))
    }

    /// Whether so many devices more can be added before the next import: those that have left since
    /// the last one count too.
    #[must_use]
    pub fn has_places(&self, devices: usize) -> bool {
        self.devices.has_places(devices)
    }

    /// Adds an empty device to the group of another.
    pub fn add_to_group(&self, beside: DeviceId, member: MemberSpec) -> bool {
        let _sync = lock(&self.sync);
        if self.devices.get(member.id).is_some() || !self.devices.add(member.id, member.device.clone()) {
            return false;
        }
        let table = &mut self.write_state().table;
        let Some(group) = table.devices.get(&beside).map(|space| space.group) else { return false };
        table.add_device(member.id, member.slots, group, member.device.is_some());
        true
    }

    /// True if a device is written and read.
    #[must_use]
    pub fn is_in_use(&self, device: DeviceId) -> bool {
        self.devices.get(device).is_some_and(|handle| handle.in_use().is_some())
    }

    pub(crate) fn is_healing(&self) -> bool {
        self.healing.load(Ordering::Relaxed)
    }

    /// Gives a device that has grown as many slots as it has now; it never loses any. Gives how
    /// many it gained.
    pub fn grow_device(&self, id: DeviceId, slots: u32) -> u32 {
        let _sync = lock(&self.sync);
        self.write_state().table.grow_device(id, slots)
    }

    /// Slot and unit sizes.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Frees a block of `len` bytes. Sync context only. Nothing changes unless all of it lives.
    pub fn free(&self, address: Address, len: usize) -> Result<(), Error> {
        let _sync = lock(&self.sync);
        let mut state = self.write_state();
        let freed = match state.table.units_of(address, len) {
            Ok((unit, units)) => state.table.kill(address.segment, unit, units),
            Err(error) => Err(error),
        };
        freed.map_err(|Unallocated| Error::Unallocated { address })
    }

    /// True if a block that begins at an address lives, there or where it was moved.
    #[must_use]
    pub fn is_live(&self, address: Address) -> bool {
        let state = self.read_state();
        let units = state.table.units_of(address, 1);
        units.is_ok_and(|(unit, units)| state.table.is_live(address.segment, unit, units))
    }

    /// True if a segment lists units of blocks that live, in it or moved from it.
    #[must_use]
    pub fn is_known(&self, segment: SegmentId) -> bool {
        self.read_state().table.is_known(segment)
    }

    /// Frees all blocks of an owner, with all copies, without reading any of them (decision 0003).
    /// Sync context only. Gives the bytes freed.
    pub fn drop_owner(&self, owner: DatasetId) -> u64 {
        let _sync = lock(&self.sync);
        std::iter::once(owner).chain(owner.copies()).map(|owner| self.drop_streams_of(owner)).sum()
    }

    fn drop_streams_of(&self, owner: DatasetId) -> u64 {
        self.forget_uploads(owner);
        for class in Class::ALL {
            let stream = self.stream(owner, class);
            let mut stream = stream.lock();
            if let Some(filling) = stream.open.take() {
                let mut state = self.write_state();
                state.open.remove(&filling.segment.id);
                state.table.close(filling.segment.id);
            }
        }
        lock(&self.streams).retain(|(of, _), _| *of != owner);
        self.write_state().table.drop_owner(owner)
    }

    /// Operations and errors of each device.
    #[must_use]
    pub fn device_counts(&self) -> BTreeMap<DeviceId, DeviceCounts> {
        self.devices.iter().map(|(&id, handle)| (id, handle.counters.snapshot())).collect()
    }

    /// Counts a block whose bytes are those that were written, and that its key does not open,
    /// against the first device that it lies on.
    pub fn note_authentication(&self, address: Address) {
        let parts = self.locate(address, 1).unwrap_or_default();
        if let Some(handle) = parts.first().and_then(|part| self.devices.get(part.device())) {
            handle.counters.rejected(address, Wrong::Authentication);
        }
    }

    /// Forgets counted errors (`zpool clear`), of these devices or of all if none is named; what
    /// could not be read is tried again.
    pub fn clear_errors(&self, devices: &[DeviceId]) {
        self.retry_unreadable();
        for (id, handle) in self.devices.iter() {
            if devices.is_empty() || devices.contains(id) {
                handle.counters.clear_errors();
            }
        }
    }

    /// Verifies every invariant of the table (a pass over all of it).
    pub fn check(&self) -> Result<(), String> {
        let state = self.read_state();
        state.table.check()?;
        let open: Vec<SegmentId> = state.open.keys().copied().collect();
        let table = &state.table;
        let mut known: Vec<SegmentId> = table.open.values().chain(&table.full).copied().collect();
        known.sort_unstable();
        if open == known {
            Ok(())
        } else {
            Err(format!("[segment.4] open segments {open:?}, in the table {known:?}"))
        }
    }

    pub(crate) fn read_state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect("no change of the table panics")
    }

    pub(crate) fn write_state(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect("no change of the table panics")
    }

    pub(crate) fn stream(&self, owner: DatasetId, class: Class) -> Arc<BriefMutex<Stream>> {
        Arc::clone(lock(&self.streams).entry((owner, class)).or_default())
    }

    pub(crate) fn is_appendable(&self, segment: &OpenSegment) -> bool {
        segment.plain().is_none_or(|(device, _)| self.devices[&device].appendable)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}
