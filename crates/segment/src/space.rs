//! [`Space`]: allocation (append), read, free, and the hooks of a commit.
//!
//! Stands where ZFS has metaslabs, but appends to open segments, so there are no space maps.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use steadfast_device::{Buffer, Error as DeviceError, Place, SharedDevice};
use steadfast_env::{Env, Job};
use steadfast_format::{
    Address, Column, CommitTail, DatasetId, DeviceId, GroupClass, GroupConfig, GroupKind, LeafConfig,
    Placement, SegmentId, SegmentRow,
};

use crate::accounting::{Accounting, DeviceCounts, DeviceUsage, Wrong};
use crate::devices::{Devices, Handle};
use crate::error::{Error, ReadError};
use crate::groups::{Group, Redundancy};
use crate::redundant::{GivenUp, piece_bytes};
use crate::sides::Side;
use crate::stream::{Filling, OpenSegment, SpareBuffers, Stream};
use crate::table::{Freed, Geometry, Piece, Row, Table, Unallocated, signed};
use crate::{Class, SpaceChanges, SpaceTail};

/// Pieces in which open segments go to a device: large enough to stream, small enough not to stall an append.
pub(crate) const WRITE_BYTES: usize = 1 << 20;

/// Reads below this are not worth the few bytes that alignment costs.
const ALIGNED_BYTES_MIN: usize = 64 << 10;

/// What sealing adds to a block, generously.
const SEAL_BYTES_MAX: usize = 64;

/// Places looked up for one read before it gives up: each time the cleaner must have moved the block meanwhile.
const LOOKUPS_MAX: usize = 4;

/// The space of a pool: every segment on every device. Shared by all threads; `free`, `clean`, `drop_owner` and the hooks of
/// a commit belong to the one sync that runs at a time.
pub struct Space {
    pub(crate) env: Env,
    pub(crate) geometry: Geometry,
    pub(crate) devices: Devices,
    streams: Mutex<Streams>,
    pub(crate) state: RwLock<State>,
    /// Held by whoever frees or moves, so that a block does not die while it is copied.
    pub(crate) sync: Mutex<()>,
    /// Free slots that still hold old bytes on their device, oldest first.
    discards: Mutex<VecDeque<Discard>>,
    /// Commits so far, and whether the devices hear of the slots they free.
    commits: AtomicU64,
    discarding: AtomicBool,
    /// Units of the longest block, as admission was told last.
    block_units_max: AtomicU32,
    /// What was found wrong and known to be right elsewhere is written back.
    healing: AtomicBool,
    spare: SpareBuffers,
}

/// A group of devices that keep segments together.
pub struct GroupSpec {
    /// How.
    pub redundancy: Redundancy,
    /// What it holds.
    pub class: GroupClass,
    /// Columns of a new segment.
    pub width: u32,
    /// Bytes of a slot on its devices ([`Redundancy::column_bytes`]).
    pub column: u32,
    /// Its devices, at least `width`.
    pub members: Vec<MemberSpec>,
}

/// A device of a group.
pub struct MemberSpec {
    /// Its id.
    pub id: DeviceId,
    /// Its slots.
    pub slots: u32,
    /// The device, if it is in use.
    pub device: Option<SharedDevice>,
}

/// The groups of a pool as a label lists them, those that stand alone among them, each where its first device is listed. `member`
/// gives the slots of a device and the device itself, if it is in use.
pub fn groups_of(
    slot_size: u32,
    listed_groups: &[GroupConfig],
    leaves: &[LeafConfig],
    mut member: impl FnMut(&LeafConfig) -> (u32, Option<SharedDevice>),
) -> Vec<GroupSpec> {
    let mut groups: Vec<(u8, GroupSpec)> = Vec::new();
    for leaf in leaves {
        let (slots, device) = member(leaf);
        let member = MemberSpec { id: leaf.id, slots, device };
        if let Some((_, group)) = groups.iter_mut().find(|(id, _)| leaf.group != 0 && *id == leaf.group) {
            group.members.push(member);
            continue;
        }
        let listed = listed_groups.iter().find(|group| group.id == leaf.group);
        let class = listed.map_or(GroupClass::Normal, |group| group.class);
        let (redundancy, width, column) = match listed {
            None => (Redundancy::None, 1, slot_size),
            Some(GroupConfig { kind: GroupKind::Mirror, width, column, .. }) => {
                (Redundancy::Mirror, u32::from(*width), *column)
            }
            Some(GroupConfig { kind: GroupKind::Raidz(parity), width, column, .. }) => {
                (Redundancy::Raidz(*parity), u32::from(*width), *column)
            }
        };
        groups.push((leaf.group, GroupSpec { redundancy, class, width, column, members: vec![member] }));
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// One stream per owner and class.
type Streams = BTreeMap<(DatasetId, Class), Arc<Mutex<Stream>>>;

pub(crate) struct State {
    pub table: Table,
    pub open: BTreeMap<SegmentId, Arc<OpenSegment>>,
    /// Segments that import reads before it has their rows.
    pub provisional: BTreeMap<SegmentId, Placement>,
    pub loading: Option<crate::load::Loading>,
    /// Living share of the victims of late: what a slot costs.
    pub victim_live: f64,
    pub cleaner_room: CleanerRoom,
    /// Narrow segments were emptied by the last commit for what their slots are worth, so the next one may find more.
    pub widening: bool,
    /// Bytes of the last tail at most.
    pub tail_bytes: u64,
    /// Devices that failed and were taken out of use.
    pub given_up: Vec<GivenUp>,
}

/// What the cleaner leaves to others.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct CleanerRoom {
    /// Nothing was written and slots are short, so only cleaning helps: it leaves what this commit surely needs, instead of
    /// what it and the next one may need.
    pub alone: bool,
    /// Units that operations were or will be let in for, metadata beyond its slots included.
    pub promised_units: u32,
    /// Units that this commit has yet to write of each copy of the pool's own metadata.
    pub pool_units: u32,
    /// The side on which it empties segments.
    pub emptying: Side,
    /// Units that the segment holds which it is emptying: what comes back for what is copied.
    pub emptying_units: u32,
}

/// A slot that a commit freed.
struct Discard {
    device: DeviceId,
    place: Place,
    /// Which commit that was.
    commit: u64,
}

/// A part of a block's bytes and where they are.
pub(crate) struct Located {
    pub segment: SegmentId,
    pub place: Placement,
    /// Bytes of a slot where it lies.
    pub column: u32,
    pub offset: u32,
    pub bytes: usize,
    pub open: Option<Arc<OpenSegment>>,
}

impl Located {
    /// The first device it lies on.
    fn device(&self) -> DeviceId {
        self.place.present().next().map_or(DeviceId(0), |(_, column)| column.device)
    }

    /// Where it lies, if that is one place.
    fn plain(&self) -> Option<(DeviceId, Place)> {
        let Placement::Plain(Column { device, slot }) = self.place else { return None };
        Some((device, Place { segment: self.segment, slot, slot_size: self.column }))
    }
}

impl Space {
    /// Slots kept out of the capacity, at least.
    pub const RESERVE_SLOTS_MIN: u32 = 12;
    /// The same if a device takes whole objects only: each commit then takes slots for streams that others have open.
    pub const RESERVE_SLOTS_MIN_OBJECTS: u32 = 24;
    /// Free slots that admission leaves to the cleaner, besides what the commit needs: with the margin, one to copy into when
    /// both of the pool's own streams need their next one. So the cleaner always gets on.
    pub(crate) const CLEANER_SLOTS: u32 = 2;
    /// Slots that one owner's streams keep open at most (data, copies of metadata, what was cleaned).
    const STREAMS_PER_OWNER: u32 = 4;

    /// The empty space of a new pool of single devices, or what [`Space::bootstrap`] begins to fill at import.
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
            }),
            sync: Mutex::new(()),
            discards: Mutex::default(),
            commits: AtomicU64::new(0),
            discarding: AtomicBool::new(true),
            block_units_max: AtomicU32::new(geometry.slot_units()),
            healing: AtomicBool::new(true),
            spare: SpareBuffers::default(),
        };
        for group in groups {
            assert!(space.add_group(group), "a label lists each of its at most 255 devices once");
        }
        space
    }

    /// Adds an empty group of devices. False if an id is taken or the pool has as many devices as a label lists. One caller at a
    /// time; nothing is placed on it before this returns.
    pub fn add_group(&self, group: GroupSpec) -> bool {
        let _sync = lock(&self.sync);
        let known = |member: &MemberSpec| self.devices.get(member.id).is_some();
        if group.members.iter().any(known) {
            return false;
        }
        let members: Vec<(DeviceId, u32, bool)> =
            group.members.iter().map(|member| (member.id, member.slots, member.device.is_some())).collect();
        for member in group.members {
            if !self.devices.add(member.id, member.device) {
                return false;
            }
        }
        let table = &mut self.write_state().table;
        let index = table.add_group(group.redundancy, group.class, group.width, group.column);
        members.into_iter().for_each(|(id, slots, usable)| table.add_device(id, slots, index, usable));
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

    /// Whether segments may have fewer columns than their group, where that uses what larger devices have (decision 0115). Known before
    /// [`Space::bootstrap`].
    pub fn set_uneven(&self, on: bool) {
        self.write_state().table.set_uneven(on);
    }

    /// True if a device is known and neither written nor read. One that is about to be added is not.
    #[must_use]
    pub fn is_out_of_use(&self, device: DeviceId) -> bool {
        self.devices.get(device).is_some_and(|handle| handle.in_use().is_none())
    }

    /// Whether what is found wrong may be written anew: not by a pool that is read only, or that may have lost its devices to
    /// another daemon.
    pub fn set_healing(&self, on: bool) {
        self.healing.store(on, Ordering::Relaxed);
    }

    /// Takes a device out of use: nothing is read from it or written to it, and rows written since the last commit do without it.
    /// False if its group cannot do without it.
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

    /// What a device holds is to be moved to others, and nothing new is placed on it; or not any more.
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

    /// Whether so many devices more can be added before the next import: those that have left since the last one count too.
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

    /// Gives a device that has grown as many slots as it has now; it never loses any. Gives how many it gained.
    pub fn grow_device(&self, id: DeviceId, slots: u32) -> u32 {
        let _sync = lock(&self.sync);
        self.write_state().table.grow_device(id, slots)
    }

    /// Slot and unit sizes.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Appends a block to the open segment of its stream. Its bytes are in memory when this returns and on the device
    /// after [`Space::flush_open`] and [`Space::flush_devices`].
    ///
    /// Content in small blocks for which special groups have no room is stored as content.
    pub fn append(&self, owner: DatasetId, class: Class, bytes: &[u8]) -> Result<Address, Error> {
        match self.append_as(owner, class, bytes) {
            Err(Error::NoSpace) if class == Class::Small => self.append_as(owner, Class::Data, bytes),
            result => result,
        }
    }

    fn append_as(&self, owner: DatasetId, class: Class, bytes: &[u8]) -> Result<Address, Error> {
        assert!(!bytes.is_empty(), "a block has bytes");
        if bytes.len() > self.geometry.slot_size as usize {
            return Err(Error::TooLarge { bytes: bytes.len(), slot_size: self.geometry.slot_size });
        }
        let stream = self.stream(owner, class);
        let mut stream = lock(&stream);
        let units = u32::try_from(self.geometry.units(bytes.len())).expect("checked against the slot size");
        self.make_room(&mut stream, owner, class, units, false)?;
        let filling = stream.open.as_mut().expect("room was made");
        let segment = filling.segment.id;
        let offset = filling.segment.push(bytes, self.geometry.unit);
        self.appended(&mut stream, units)?;
        Ok(Address { segment, offset })
    }

    /// Appends as many whole units of `bytes` as the open segment takes, opening one if there is none: the cleaner's
    /// way to pack. `bytes` is a multiple of the unit. Gives the address and the units taken.
    pub(crate) fn append_part(
        &self,
        owner: DatasetId,
        class: Class,
        bytes: &[u8],
    ) -> Result<(Address, u32), Error> {
        let stream = self.stream(owner, class);
        let mut stream = lock(&stream);
        self.make_room(&mut stream, owner, class, 1, true)?;
        let filling = stream.open.as_mut().expect("room was made");
        let room = self.cleaner_units(&self.read_state(), filling.segment.id);
        let wanted = u32::try_from(bytes.len() / self.geometry.unit as usize).unwrap_or(u32::MAX);
        let units = room.min(wanted);
        if units == 0 {
            return Err(Error::NoSpace);
        }
        let segment = filling.segment.id;
        let part = &bytes[..units as usize * self.geometry.unit as usize];
        let offset = filling.segment.push(part, self.geometry.unit);
        self.appended(&mut stream, units)?;
        Ok((Address { segment, offset }, units))
    }

    /// Reads `len` bytes and lets `verify` judge them. Bytes that are rejected are looked for once more where the table
    /// says they lie *now*: the cleaner may have moved them meanwhile.
    pub fn read<T, E>(
        &self,
        address: Address,
        len: usize,
        verify: impl FnMut(Buffer) -> Result<T, E>,
    ) -> Result<T, ReadError<E>> {
        self.read_keeping(0, address, len, verify)
    }

    /// The same for who looks for what is wrong: what was rejected is kept, so that it is not read a second and a third time to be put
    /// together from the rest. Who reads what is right as a rule does not have it copied for that.
    pub fn read_doubting<T, E>(
        &self,
        address: Address,
        len: usize,
        verify: impl FnMut(Buffer) -> Result<T, E>,
    ) -> Result<T, ReadError<E>> {
        self.read_keeping(KEPT_BYTES_MAX, address, len, verify)
    }

    fn read_keeping<T, E>(
        &self,
        kept_max: usize,
        address: Address,
        len: usize,
        mut verify: impl FnMut(Buffer) -> Result<T, E>,
    ) -> Result<T, ReadError<E>> {
        let mut tried: Option<(Vec<Located>, ReadError<E>)> = None;
        let mut blank = false;
        let mut rejected: Option<(Buffer, usize)> = None;
        for _ in 0..LOOKUPS_MAX {
            // Whole units, as they lie on the device: a transfer of those can go straight into the buffer.
            let padded = self.geometry.units(len) * self.geometry.unit as usize;
            let parts = match self.locate(address, padded) {
                Ok(parts) => parts,
                Err(Unallocated) => return Err(ReadError::Unallocated { address }),
            };
            if tried.as_ref().is_some_and(|(before, _)| same_places(before, &parts)) {
                break;
            }
            let failure = match self.fetch(&parts, padded) {
                Err((device, source)) => {
                    rejected = None;
                    ReadError::Device { device, source }
                }
                Ok((mut bytes, copy)) => {
                    rejected = (padded <= kept_max).then(|| (Buffer::from(bytes[..].to_vec()), copy));
                    bytes.resize(len);
                    blank = bytes.iter().all(|byte| *byte == 0);
                    match verify(bytes) {
                        Ok(value) => return Ok(value),
                        Err(verdict) => ReadError::Rejected { device: parts[0].device(), verdict },
                    }
                }
            };
            tried = Some((parts, failure));
        }
        let (parts, failure) = tried.expect("at least one place was tried");
        if let Some(value) = self.recover(address, &parts, len, rejected, &mut verify) {
            return Ok(value);
        }
        if let ReadError::Rejected { device, .. } = failure {
            let wrong = if blank { Wrong::Stale } else { Wrong::Hash };
            self.devices[&device].counters.rejected(address, wrong);
        }
        Err(failure)
    }

    /// Reads blocks that lie one behind the other, with gaps of [`READ_GAP_MAX`] at most, in one transfer, for who will judge
    /// each by itself; `None` if they do not lie so now, or cannot be read so. What is rejected is read again by
    /// [`Space::read`], which knows what to do about it.
    pub fn read_run(&self, blocks: &[(Address, usize)]) -> Option<Vec<Buffer>> {
        let padded = |len: usize| self.geometry.units(len) * self.geometry.unit as usize;
        let mut run: Option<Located> = None;
        // What lies before each block and is of no use.
        let mut gaps = Vec::with_capacity(blocks.len());
        for &(address, len) in blocks {
            let mut parts = self.locate(address, padded(len)).ok()?;
            let part = parts.pop().filter(|part| parts.is_empty() && part.open.is_none())?;
            match &mut run {
                None => {
                    gaps.push(Buffer::default());
                    run = Some(part);
                }
                Some(run) => {
                    let gap = (part.offset as usize).checked_sub(run.offset as usize + run.bytes)?;
                    let apart = run.segment != part.segment || run.place != part.place;
                    if apart || gap > READ_GAP_MAX as usize {
                        return None;
                    }
                    gaps.push(if gap > 0 { room_for(gap) } else { Buffer::default() });
                    run.bytes += gap + part.bytes;
                }
            }
        }
        let run = run?;
        let mut buffers: Vec<Buffer> = blocks.iter().map(|&(_, len)| room_for(padded(len))).collect();
        let mut outs: Vec<&mut [u8]> = Vec::with_capacity(2 * blocks.len());
        for (gap, buffer) in gaps.iter_mut().zip(&mut buffers) {
            outs.extend(Some(&mut gap[..]).filter(|gap| !gap.is_empty()));
            outs.push(&mut buffer[..]);
        }
        self.read_part(&run, &mut outs).ok()?;
        for (buffer, (_, len)) in buffers.iter_mut().zip(blocks) {
            buffer.resize(*len);
        }
        Some(buffers)
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

    /// Frees all blocks of an owner without reading any of them (decision 0003). Sync context only. Gives the bytes freed.
    pub fn drop_owner(&self, owner: DatasetId) -> u64 {
        let _sync = lock(&self.sync);
        for class in Class::ALL {
            let stream = self.stream(owner, class);
            let mut stream = lock(&stream);
            if let Some(filling) = stream.open.take() {
                let mut state = self.write_state();
                state.open.remove(&filling.segment.id);
                state.table.close(filling.segment.id);
            }
        }
        lock(&self.streams).retain(|(of, _), _| *of != owner);
        self.write_state().table.drop_owner(owner)
    }

    /// Hands all appended bytes to the devices. Segments on devices of whole objects are closed by this, as such a
    /// device takes a segment once. Comes after the tail's block was appended.
    pub fn flush_open(&self) -> Result<(), Error> {
        let streams: Vec<_> = lock(&self.streams).values().cloned().collect();
        let results: Vec<Mutex<Result<(), Error>>> = streams.iter().map(|_| Mutex::new(Ok(()))).collect();
        let jobs = streams.iter().zip(&results).map(|(stream, result)| -> Job<'_> {
            Box::new(move || *lock(result) = self.flush_stream(&mut lock(stream)))
        });
        self.env.tasks.run_all(jobs.collect());
        results.into_iter().try_for_each(|result| result.into_inner().expect("no flush panics"))
    }

    /// Closes all open segments on devices that cannot be appended to. Part of [`Space::flush_open`].
    pub fn close_all_unappendable(&self) -> Result<(), Error> {
        let streams: Vec<_> = lock(&self.streams).values().cloned().collect();
        for stream in streams {
            let mut stream = lock(&stream);
            if stream.open.as_ref().is_some_and(|filling| !self.is_appendable(&filling.segment)) {
                self.close(&mut stream)?;
            }
        }
        Ok(())
    }

    /// Ends the open segments that are chosen.
    pub(crate) fn close_streams(&self, chosen: impl Fn(&Space, SegmentId) -> bool) -> Result<(), Error> {
        let streams: Vec<_> = lock(&self.streams).values().cloned().collect();
        for stream in streams {
            let mut stream = lock(&stream);
            if stream.open.as_ref().is_some_and(|filling| chosen(self, filling.segment.id)) {
                self.close(&mut stream)?;
            }
        }
        Ok(())
    }

    /// Makes all devices' writes durable, in parallel. A device of a group that fails is given up if the group can do without
    /// it.
    pub fn flush_devices(&self) -> Result<(), Error> {
        let used: Vec<(DeviceId, &Handle, SharedDevice)> =
            self.devices.iter().filter_map(|(&id, handle)| Some((id, handle, handle.in_use()?))).collect();
        let results: Vec<Mutex<Option<DeviceError>>> = used.iter().map(|_| Mutex::new(None)).collect();
        let jobs = used.iter().zip(&results).map(|((_, handle, device), result)| -> Job<'_> {
            Box::new(move || {
                if let Err(source) = device.flush() {
                    handle.counters.write_failed();
                    *lock(result) = Some(source);
                }
            })
        });
        self.env.tasks.run_waiting(jobs.collect());
        for ((device, ..), result) in used.into_iter().zip(results) {
            if let Some(source) = result.into_inner().expect("no flush panics") {
                self.give_up_or_fail(device, source)?;
            }
        }
        Ok(())
    }

    /// Gives up a device that failed, if its group can do without it; else that is the error.
    pub fn give_up_or_fail(&self, device: DeviceId, source: DeviceError) -> Result<(), Error> {
        if self.give_up(device, &source.to_string()) { Ok(()) } else { Err(Error::Device { device, source }) }
    }

    /// Gives up a device for a reason, if its group can do without it. False if it cannot.
    pub fn give_up(&self, device: DeviceId, reason: &str) -> bool {
        let spared = self.read_state().table.can_spare(device);
        if spared {
            self.give_up_device(device, reason);
        }
        spared
    }

    /// Rows and relocations that changed since this was last called, for the meta tree. Storing them changes the table
    /// again; those changes go into the tail ([`Space::tail`]) and, one commit later, come from here.
    pub fn table_changes(&self) -> SpaceChanges {
        self.write_state().table.take_changes()
    }

    /// What the commit tail carries of space, with room for the tail's block itself opened in both of the pool's streams:
    /// the next append of class `Pool0` and the next of `Pool1`, if they are of this tail (compressed or not, sealed or not),
    /// go to segments whose rows are in the tail. Nothing else may be appended to those streams or freed before
    /// [`Space::committed`].
    pub fn tail(&self) -> Result<SpaceTail, Error> {
        let owner = DatasetId(0);
        // Two more rows at most come in when segments are opened for the tail.
        let columns = self.read_state().table.columns_max() as usize;
        let bytes = tail_bytes_max(&self.tail_now()) + 2 * (ROW_BYTES_MAX + columns * Column::ENCODED_SIZE);
        if bytes > self.geometry.slot_size as usize {
            return Err(Error::TooLarge { bytes, slot_size: self.geometry.slot_size });
        }
        let units = u32::try_from(self.geometry.units(bytes)).expect("checked against the slot size");
        for class in [Class::Pool0, Class::Pool1] {
            let stream = self.stream(owner, class);
            let mut stream = lock(&stream);
            self.make_room(&mut stream, owner, class, units, false)?;
            let id = stream.open.as_ref().expect("room was made").segment.id;
            self.write_state().table.touch(id);
        }
        let tail = self.tail_now();
        debug_assert!(tail_bytes_max(&tail) <= bytes);
        let mut state = self.write_state();
        state.table.seal_emptied();
        state.tail_bytes = bytes as u64;
        state.table.note_tail(units);
        drop(state);
        Ok(tail)
    }

    fn tail_now(&self) -> SpaceTail {
        let state = self.read_state();
        let changes = state.table.peek_changes();
        let bootstrap = state.table.bootstrap();
        let rows: BTreeMap<_, _> = changes.rows.into_iter().chain(bootstrap.rows).collect();
        let runs: BTreeMap<_, _> = changes.runs.into_iter().chain(bootstrap.runs).collect();
        let (rows, runs) = (rows.into_iter().collect(), runs.into_iter().collect());
        let changes = SpaceChanges { rows, runs, sums: Vec::new() };
        SpaceTail { changes, next_segment: state.table.next_id }
    }

    /// Where a segment lies, for the uberblock to name the places of the tail.
    #[must_use]
    pub fn place_of(&self, segment: SegmentId) -> Option<Placement> {
        self.read_state().table.rows.get(&segment).map(|row| row.place.clone())
    }

    /// The commit is durable: slots of segments that its tail knew to be empty are free (T2). Gives how many.
    pub fn committed(&self) -> usize {
        let (count, freed) = self.write_state().table.release_committed();
        let commit = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        let mut at_once = Vec::new();
        {
            let mut discards = lock(&self.discards);
            for Freed { segment, column: Column { device, slot }, slot_size } in freed {
                let place = Place { segment, slot, slot_size };
                if !self.devices[&device].appendable {
                    // A whole object has a name of its own: whoever takes its slot does not replace it.
                    at_once.push((device, place));
                } else if self.discarding.load(Ordering::Relaxed) {
                    discards.push_back(Discard { device, place, commit });
                }
            }
        }
        for (device, place) in at_once {
            self.discard_place(device, place);
        }
        count
    }

    /// Whether devices of slots are told which of them are free again (`autotrim`); they are if nobody says otherwise.
    pub fn set_discarding(&self, on: bool) {
        self.discarding.store(on, Ordering::Relaxed);
        if !on {
            lock(&self.discards).clear();
        }
    }

    /// Discards what slots still hold that have stayed free since an earlier commit than the last, at most `slots_max` of
    /// them, oldest first; `keep` of the newest are left, because a busy pool uses them again at once, and a host that has
    /// to find room anew is slower than one that overwrites. Gives how many slots wait to be discarded, now or later.
    pub fn discard(&self, slots_max: usize, keep: usize) -> usize {
        self.discard_before(self.commits.load(Ordering::Relaxed), slots_max, keep)
    }

    /// Discards all free slots that still hold something, those of the last commit too: for a pool that is being closed.
    pub fn discard_all(&self) {
        self.discard_before(u64::MAX, usize::MAX, 0);
    }

    fn discard_before(&self, last: u64, slots_max: usize, keep: usize) -> usize {
        for _ in 0..slots_max {
            let next = {
                let mut discards = lock(&self.discards);
                let due = discards.len() > keep && discards.front().is_some_and(|slot| slot.commit < last);
                if due { discards.pop_front() } else { None }
            };
            let Some(Discard { device, place, .. }) = next else { break };
            // The slot is taken while it is discarded, lest an append get there first and lose its bytes.
            let column = Column { device, slot: place.slot };
            let claimed = self.write_state().table.claim_slot(column);
            if claimed {
                self.discard_place(device, place);
                self.write_state().table.unclaim_slot(column);
            }
        }
        lock(&self.discards).len()
    }

    /// Discards the first free slot of a device from slot `from` on, whatever it holds, and gives its number; `None` if there
    /// is none. The slot is taken meanwhile, so nobody may be appending: sync context only.
    pub fn discard_free_slot(&self, device: DeviceId, from: u32) -> Option<(u32, Result<(), DeviceError>)> {
        self.with_free_slot(device, from, |device, place| device.discard_segment(place))
    }

    /// Fills the first free slot of a device from slot `from` on with a pattern; else like [`Space::discard_free_slot`].
    pub fn fill_free_slot(&self, device: DeviceId, from: u32) -> Option<(u32, Result<(), DeviceError>)> {
        self.with_free_slot(device, from, |device, place| {
            let piece = FILL.to_le_bytes().repeat(FILL_BYTES / size_of_val(&FILL));
            let offsets = (0..place.slot_size).step_by(FILL_BYTES);
            offsets.into_iter().try_for_each(|offset| {
                let left = (place.slot_size - offset) as usize;
                device.append_segment(place, offset, &piece[..left.min(FILL_BYTES)])
            })
        })
    }

    fn with_free_slot(
        &self,
        device: DeviceId,
        from: u32,
        act: impl FnOnce(&dyn steadfast_device::Device, Place) -> Result<(), DeviceError>,
    ) -> Option<(u32, Result<(), DeviceError>)> {
        let handle = self.devices.get(device)?;
        let (column, slot_size) = {
            let mut state = self.write_state();
            let space = state.table.devices.get(&device)?;
            let column = Column { device, slot: space.slots.next_free(from)? };
            let slot_size = state.table.groups[space.group].column;
            assert!(state.table.claim_slot(column), "a free slot can be claimed");
            (column, slot_size)
        };
        // The name is of no meaning where slots are discarded; no segment has this one.
        let place = Place { segment: SegmentId(0), slot: column.slot, slot_size };
        let result = handle.device(device).and_then(|device| act(&*device, place));
        if result.is_err() {
            handle.counters.write_failed();
        }
        self.write_state().table.unclaim_slot(column);
        Some((column.slot, result))
    }

    pub(crate) fn discard_place(&self, device: DeviceId, place: Place) {
        let handle = &self.devices[&device];
        let Some(in_use) = handle.in_use() else { return };
        if in_use.discard_segment(place).is_err() {
            // The bytes stay, which nobody minds; that the device failed is worth counting.
            handle.counters.write_failed();
        }
    }

    /// Memory that open segments and spare buffers hold, in bytes.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        let open: Vec<Arc<OpenSegment>> = self.read_state().open.values().cloned().collect();
        let held =
            |segment: &Arc<OpenSegment>| segment.bytes.read().expect("no append panics").memory_bytes();
        open.iter().map(held).sum::<usize>() + self.spare.memory_bytes()
    }

    /// Slots that can be taken now.
    #[must_use]
    pub fn free_slots(&self) -> u32 {
        self.read_state().table.free_slots()
    }

    /// Units that new segments can hold now, and units that can live once what is dead was cleaned, the reserve among them: where either grows,
    /// a commit got on.
    #[must_use]
    pub fn gains(&self) -> (u64, u64) {
        let table = &self.read_state().table;
        let sides = [Side::Normal, Side::Special];
        let free = sides.map(|side| table.free_units_of(side)).iter().sum();
        (free, sides.map(|side| table.reachable_of(side)).iter().sum())
    }

    /// Bytes of file content that one sync can surely append if no block is larger than `block_bytes_max`: a segment may end
    /// with a rest that the next block does not fit into, and every owner fills a segment of its own.
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
            // The slot that content has open was taken from what is kept, which it gets back with what is left of it.
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

    /// Names an owner that is going to append (its key was loaded), so that room for its streams is counted from now on.
    /// Owner 0 need not be named; who appends without being named is counted from then on.
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
        // Content lies on the normal side; what lives on the other takes nothing from it (S2).
        let normal = table.reachable_of(Side::Normal) * unit;
        let reserve = self.reserve_of(table, normal);
        let special_live = table.live_units_of_side(Side::Special) * unit;
        let open: Vec<&Row> = table.open.values().map(|id| &table.rows[id]).collect();
        let open_live: u64 = open.iter().map(|row| u64::from(row.live)).sum();
        let open_held: u64 = open.iter().map(|row| u64::from(table.capacity_units(row))).sum();
        let open_room: u64 = open.iter().map(|row| u64::from(table.room_units(row))).sum();
        let of_groups = |count: fn(&Group) -> u64| table.groups.iter().map(count).sum::<u64>();
        let emptied = of_groups(|group| group.emptied_units);
        let held: u64 =
            table.groups.iter().map(|group| group.units_in(group.held_columns, self.geometry)).sum();
        let closed = held.saturating_sub(emptied + open_held);
        let devices = table.devices.iter().map(|(&device, space)| DeviceUsage {
            device,
            slots: space.slots.total().into(),
            free_slots: space.slots.free().into(),
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
            dead_bytes: closed.saturating_sub(table.live_units - open_live) * unit,
            open_room_bytes: open_room * unit,
            relocations: table.relocations.len() as u64,
            devices: devices.collect(),
        }
    }

    /// Bytes kept of so many: max(12 slots, 5 %), and for every owner beyond the first the slots its streams may keep open: room in them is of
    /// no use to others. Where there are narrow segments, also what streams of metadata may need because of their rests.
    pub(crate) fn reserve_of(&self, table: &Table, bytes: u64) -> u64 {
        let slot_size = u64::from(self.geometry.slot_size);
        let appendable = self.devices.values().all(|handle| handle.appendable);
        let least = if appendable { Self::RESERVE_SLOTS_MIN } else { Self::RESERVE_SLOTS_MIN_OBJECTS };
        let owners = table.owners.len() as u64;
        let others = (owners - 1) * u64::from(Self::STREAMS_PER_OWNER);
        let slots = u64::from(least).max(bytes / slot_size / 20) + others;
        // Two of each owner, and the pool's own.
        let streams = 2 * (owners + 1);
        slots * slot_size + streams * table.spare_units().unsigned_abs() * u64::from(self.geometry.unit)
    }

    /// Bytes that may live in a pool of so many.
    pub(crate) fn capacity_of(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.reserve_of(&self.read_state().table, bytes))
    }

    /// Bytes that may live in the pool if a device had so many slots, and all were written anew; `None` of a device whose group is not of those
    /// that make narrow segments.
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

    /// What was asked of each device, and how often it failed.
    #[must_use]
    pub fn device_counts(&self) -> BTreeMap<DeviceId, DeviceCounts> {
        self.devices.iter().map(|(&id, handle)| (id, handle.counters.snapshot())).collect()
    }

    /// Counts a block whose bytes are those that were written, and that its key does not open, against the first device that it
    /// lies on.
    pub fn note_authentication(&self, address: Address) {
        let parts = self.locate(address, 1).unwrap_or_default();
        if let Some(handle) = parts.first().and_then(|part| self.devices.get(part.device())) {
            handle.counters.rejected(address, Wrong::Authentication);
        }
    }

    /// Forgets counted errors (`zpool clear`), of these devices or of all if none is named; what could not be read is tried again.
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
        let mut known: Vec<SegmentId> = state.table.open.values().copied().collect();
        known.sort_unstable();
        if open == known {
            Ok(())
        } else {
            Err(format!("(G4) open segments {open:?}, in the table {known:?}"))
        }
    }

    pub(crate) fn read_state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect("no change of the table panics")
    }

    pub(crate) fn write_state(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect("no change of the table panics")
    }

    fn stream(&self, owner: DatasetId, class: Class) -> Arc<Mutex<Stream>> {
        Arc::clone(lock(&self.streams).entry((owner, class)).or_default())
    }

    /// Free slots that an append of this class leaves alone, or `None` if there is none for it: file content leaves to metadata
    /// what the commit may need; what the cleaner moves leaves what [`CleanerRoom`] says, and takes slots for metadata as the
    /// commit would.
    fn floor(&self, state: &State, class: Class, for_cleaner: bool) -> Option<u32> {
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

    /// Units that the cleaner may take of where a class goes, beside `slot` units that it needs at once; negative if others want more than
    /// there is.
    /// What this commit has yet to write needs slots that are free now. What operations of the next one need, and the slots
    /// that keep the cleaner itself going, have to be there after this commit, which gives back what was emptied, the victim
    /// under way included; content that finds room in an open segment needs none. The slot that one of the cleaner's streams
    /// takes is not taken from operations: they have left it.
    fn cleaner_headroom(&self, state: &State, class: Class, slot: i64) -> i64 {
        let (table, room) = (&state.table, &state.cleaner_room);
        let slot_units = i64::from(table.geometry.slot_units());
        // Each of these slots may come in narrow segments, with a rest in each.
        let kept = i64::from(table.idle_commit_slots(room.pool_units)) * (slot_units + table.rest_units());
        let [normal, special] = [Side::Normal, Side::Special].map(|side| signed(table.free_units_of(side)));
        // What the commit needs beyond the special side's slots it takes of the normal ones.
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
            // What the special side can take is taken from nobody else.
            true => now.min(content.max(after.special)),
            false => now.min(content),
        }
    }

    /// Units that the cleaner may append to an open segment. (C1) What it fills of a segment of metadata is room that the
    /// commit counted on: it leaves what keeps the stream from needing a slot more, unless that slot is there.
    fn cleaner_units(&self, state: &State, id: SegmentId) -> u32 {
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

    /// Sees to it that the stream has an open segment with room for `units`.
    fn make_room(
        &self,
        stream: &mut Stream,
        owner: DatasetId,
        class: Class,
        units: u32,
        for_cleaner: bool,
    ) -> Result<(), Error> {
        if let Some(filling) = &stream.open {
            if filling.segment.capacity_units - filling.filled_units >= units {
                return Ok(());
            }
            self.close(stream)?;
        }
        let mut state = self.write_state();
        let floor = self.floor(&state, class, for_cleaner).ok_or(Error::NoSpace)?;
        let id = state.table.allocate(owner, class, floor, units).ok_or(Error::NoSpace)?;
        let row = &state.table.rows[&id];
        let (place, column) = (row.place.clone(), state.table.groups[row.group].column);
        let capacity_units = state.table.capacity_units(row);
        let row = (state.table.row_units(row) * self.geometry.unit) as usize;
        let bytes = RwLock::new(self.spare.take(self.geometry.slot_size));
        let segment = Arc::new(OpenSegment { id, place, column, row, capacity_units, bytes });
        state.open.insert(id, Arc::clone(&segment));
        stream.open = Some(Filling { segment, filled_units: 0, written: 0 });
        Ok(())
    }

    /// Bytes were pushed: the table learns of it, and the device gets whole pieces.
    fn appended(&self, stream: &mut Stream, units: u32) -> Result<(), Error> {
        let filling = stream.open.as_mut().expect("something was pushed");
        filling.filled_units += units;
        self.write_state().table.extend(filling.segment.id, units);
        if filling.filled_units == filling.segment.capacity_units {
            return self.close(stream);
        }
        let least = piece_bytes(&filling.segment);
        self.write_out(filling, least)
    }

    /// Writes what the device does not have, if it is at least `least` bytes, to a device that can be appended to.
    fn write_out(&self, filling: &mut Filling, least: usize) -> Result<(), Error> {
        let Some((device, place)) = filling.segment.plain() else { return self.write_rows(filling, least) };
        let handle = &self.devices[&device];
        let bytes = filling.segment.bytes.read().expect("no append panics");
        while handle.appendable && bytes.len() - filling.written >= least.max(1) {
            let end = bytes.len().min(filling.written + WRITE_BYTES);
            let piece = &bytes[filling.written..end];
            let offset = u32::try_from(filling.written).expect("segments are far below 4 GiB");
            let result = handle.device(device).and_then(|device| device.append_segment(place, offset, piece));
            handle.counters.wrote(piece.len(), result.is_ok());
            // `written` stays where it was on failure: a flush may be tried again.
            result.map_err(|source| Error::Device { device, source })?;
            filling.written = end;
        }
        Ok(())
    }

    /// Fills up the last row, so that it can be written (R1).
    fn pad_stream(&self, filling: &mut Filling) {
        if filling.segment.plain().is_some() {
            return;
        }
        let units = self.write_state().table.pad(filling.segment.id);
        filling.segment.pad((units * self.geometry.unit) as usize);
        filling.filled_units += units;
    }

    /// Writes all rows of file content and of metadata of datasets that are begun, so that the table knows them whole: before
    /// the changes of a commit are taken the last time. Does nothing to segments of one column.
    pub fn seal_rows(&self) -> Result<(), Error> {
        let streams: Vec<_> = lock(&self.streams)
            .iter()
            .filter(|((_, class), _)| !class.is_pool())
            .map(|(_, stream)| Arc::clone(stream))
            .collect();
        for stream in streams {
            let mut stream = lock(&stream);
            if let Some(filling) = &mut stream.open
                && filling.segment.plain().is_none()
            {
                self.pad_stream(filling);
                self.write_out(filling, 1)?;
            }
        }
        Ok(())
    }

    /// Ends the stream's open segment: its device gets all of it, then memory forgets it. On failure it stays open.
    fn close(&self, stream: &mut Stream) -> Result<(), Error> {
        let Some(filling) = stream.open.as_mut() else { return Ok(()) };
        let segment = Arc::clone(&filling.segment);
        if self.is_appendable(&segment) {
            self.pad_stream(filling);
            self.write_out(filling, 1)?;
        } else if let Some((device, place)) = segment.plain()
            && self.read_state().table.rows.get(&segment.id).is_some_and(|row| row.live > 0)
        {
            let handle = &self.devices[&device];
            let bytes = segment.bytes.read().expect("no append panics");
            let result = handle.device(device).and_then(|device| device.put_segment(place, &bytes));
            handle.counters.wrote(bytes.len(), result.is_ok());
            result.map_err(|source| Error::Device { device, source })?;
        }
        stream.open = None;
        {
            let mut state = self.write_state();
            state.open.remove(&segment.id);
            state.table.close(segment.id);
        }
        self.spare.put(segment);
        Ok(())
    }

    fn is_appendable(&self, segment: &OpenSegment) -> bool {
        segment.plain().is_none_or(|(device, _)| self.devices[&device].appendable)
    }

    fn flush_stream(&self, stream: &mut Stream) -> Result<(), Error> {
        match &mut stream.open {
            None => Ok(()),
            Some(filling) if self.is_appendable(&filling.segment) => {
                self.pad_stream(filling);
                self.write_out(filling, 1)
            }
            Some(_) => self.close(stream),
        }
    }

    pub(crate) fn locate(&self, address: Address, len: usize) -> Result<Vec<Located>, Unallocated> {
        let state = self.read_state();
        let (unit, units) = state.table.units_of(address, len)?;
        let pieces = match state.provisional.get(&address.segment) {
            Some(_) => vec![Piece { segment: address.segment, unit, units }],
            None => state.table.resolve(address.segment, unit, units)?,
        };
        let mut left = len;
        let located = pieces.into_iter().map(|piece| {
            let emptied = || state.table.emptied.get(&piece.segment).map(|emptied| &emptied.row);
            let row = state.table.rows.get(&piece.segment).or_else(emptied);
            let place = match state.provisional.get(&piece.segment) {
                Some(place) => place,
                None => row.map(|row| &row.place).ok_or(Unallocated)?,
            };
            let bytes = left.min(piece.units as usize * self.geometry.unit as usize);
            left -= bytes;
            Ok(Located {
                segment: piece.segment,
                column: state.table.column_bytes(place),
                place: place.clone(),
                offset: piece.unit * self.geometry.unit,
                bytes,
                open: state.open.get(&piece.segment).cloned(),
            })
        });
        located.collect()
    }

    /// The bytes of parts as they lie, and from which copy the last of them is.
    fn fetch(&self, parts: &[Located], len: usize) -> Result<(Buffer, usize), (DeviceId, DeviceError)> {
        let mut bytes = room_for(len);
        let (mut rest, mut copy) = (&mut bytes[..], 0);
        for part in parts {
            let (out, after) = rest.split_at_mut(part.bytes);
            rest = after;
            match &part.open {
                Some(open) => open.read(part.offset as usize, out),
                None => copy = self.read_part(part, &mut [out])?,
            }
        }
        Ok((bytes, copy))
    }

    /// Reads a part that is not in memory as it lies, into buffers that follow each other. Gives which copy of a mirror it is.
    fn read_part(&self, part: &Located, outs: &mut [&mut [u8]]) -> Result<usize, (DeviceId, DeviceError)> {
        let bytes = outs.iter().map(|out| out.len()).sum();
        if let Some((device, place)) = part.plain() {
            let handle = &self.devices[&device];
            let result = handle.device(device).and_then(|device| match outs {
                [out] => device.read_segment(place, part.offset, out),
                outs => device.read_segment_parts(place, part.offset, outs),
            });
            handle.counters.read(bytes, result.is_ok());
            return result.map(|()| 0).map_err(|source| (device, source));
        }
        let result = self.columns_of(part).read_straight(part.offset as usize, outs);
        self.note_read(part, bytes, result.as_ref().err().map(|(column, _)| *column));
        result.map_err(|(index, source)| {
            let device =
                part.place.columns().nth(index).flatten().map_or(DeviceId(0), |column| column.device);
            let missing =
                || DeviceError::NotInUse { device: format!("column {index} of segment {}", part.segment) };
            (device, source.unwrap_or_else(missing))
        })
    }

    pub(crate) fn read_place(
        &self,
        device: DeviceId,
        place: Place,
        offset: u32,
        out: &mut [u8],
    ) -> Result<(), DeviceError> {
        let handle = &self.devices[&device];
        let result = handle.device(device).and_then(|device| device.read_segment(place, offset, out));
        handle.counters.read(out.len(), result.is_ok());
        result
    }
}

/// What an initialized slot is filled with, as in OpenZFS, and how many bytes of it are written at once.
const FILL: u64 = 0xdead_beef_dead_beee;
const FILL_BYTES: usize = 1 << 20;

/// Longest block of which a copy is kept by who expects that it is wrong: nodes of trees are shorter, and content is copied for nothing.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Bytes between two blocks that are read with them: a device takes longer to begin another transfer than to read these.
pub const READ_GAP_MAX: u32 = 16 << 10;

/// Stored bytes of a change of one row, at most, without its columns.
const ROW_BYTES_MAX: usize = 12 + SegmentRow::LAYOUT.size() + SegmentRow::DEAD_BYTES_MAX;

/// Stored bytes of a tail, at most: encoded, not compressed, sealed.
fn tail_bytes_max(tail: &SpaceTail) -> usize {
    let length = |row: &SegmentRow| {
        row.place.columns().count() * Column::ENCODED_SIZE + row.dead.as_ref().map_or(0, Vec::len)
    };
    let lengths: usize = tail.changes.rows.iter().filter_map(|(_, row)| row.as_ref()).map(length).sum();
    let rows = tail.changes.rows.len() * (ROW_BYTES_MAX - SegmentRow::DEAD_BYTES_MAX);
    let runs = CommitTail::encoded_size_max(0, tail.changes.runs.len());
    runs + rows + lengths + SEAL_BYTES_MAX
}

/// Bytes to be filled. What is small goes through the page cache, where alignment is of no use.
fn room_for(len: usize) -> Buffer {
    if len < ALIGNED_BYTES_MIN { Buffer::from(vec![0; len]) } else { Buffer::to_fill(len) }
}

fn same_places(left: &[Located], right: &[Located]) -> bool {
    let same = |left: &Located, right: &Located| {
        (left.segment, left.offset, left.bytes) == (right.segment, right.offset, right.bytes)
            && left.place == right.place
    };
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

#[cfg(test)]
mod tests {
    use steadfast_format::{RelocationRow, Txg};

    use super::*;

    /// The columns of a row were taken for one, so tails with many rows of wide groups came out longer than what room was made for.
    #[test]
    fn a_tail_is_no_longer_than_what_room_is_made_for() {
        let column = |id: u64| Column { device: DeviceId(id), slot: 7 };
        for width in [1, 2, 6, 32] {
            let place = match width {
                1 => Placement::Plain(column(1)),
                _ => Placement::Raidz {
                    parity: 1,
                    chunk_shift: 12,
                    columns: (1..=width).map(|id| Some(column(id))).collect(),
                },
            };
            let row = |dead: Option<Vec<u8>>| SegmentRow {
                class: Class::Pool0 as u8,
                owner: DatasetId(0),
                filled: 1 << 20,
                place: place.clone(),
                dead,
            };
            let rows = (1..=300).map(|id| match id % 3 {
                0 => (SegmentId(id), None),
                1 => (SegmentId(id), Some(row(None))),
                _ => (SegmentId(id), Some(row(Some(vec![0x55; 32])))),
            });
            let run = RelocationRow { segment: SegmentId(9), unit: 3, units: 2 };
            let runs = (0..50).map(|unit| ((SegmentId(5), unit), (unit % 2 == 0).then_some(run)));
            let changes = SpaceChanges { rows: rows.collect(), runs: runs.collect(), sums: Vec::new() };
            let tail = SpaceTail { changes: changes.clone(), next_segment: SegmentId(400) };
            let encoded = CommitTail {
                txg: Txg(1),
                next_segment: tail.next_segment,
                next_dataset: DatasetId(1),
                next_history: 1,
                rows: changes.rows,
                runs: changes.runs,
            };
            let (length, bound) = (encoded.encode().len() + SEAL_BYTES_MAX, tail_bytes_max(&tail));
            assert!(length <= bound, "{width} columns: {length} bytes, and room for {bound}");
        }
    }
}
