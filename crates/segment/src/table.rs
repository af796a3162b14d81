//! The segment table: what lies where, what of it lives, and what changed. Pure logic; no device is touched here.
//! Theory and invariants are in the crate's documentation.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::{Address, Column, DatasetId, DeviceId, RelocationRow, SegmentId, SegmentRow};

use crate::bitmap::DeadUnits;
use crate::error::TableError;
use crate::relocation::{Relocations, Run};
use crate::slots::Slots;
use crate::space::CleanerRoom;
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
    pub device: DeviceId,
    pub slot: u32,
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
    pub live_units: u64,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub geometry: Geometry,
    pub devices: BTreeMap<DeviceId, DeviceSpace>,
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
    changed: BTreeSet<SegmentId>,
}

/// An address at which nothing lives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unallocated;

impl Table {
    pub fn new(geometry: Geometry, devices: impl IntoIterator<Item = (DeviceId, u32)>) -> Table {
        let space = |slots| DeviceSpace { slots: Slots::new(slots), live_units: 0 };
        Table {
            geometry,
            devices: devices.into_iter().map(|(id, slots)| (id, space(slots))).collect(),
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
            changed: BTreeSet::new(),
        }
    }

    pub fn add_device(&mut self, id: DeviceId, slots: u32) {
        let space = DeviceSpace { slots: Slots::new(slots), live_units: 0 };
        assert!(self.devices.insert(id, space).is_none(), "a device is added once");
    }

    pub fn grow_device(&mut self, id: DeviceId, slots: u32) -> u32 {
        self.devices.get_mut(&id).map_or(0, |space| space.slots.grow(slots))
    }

    pub fn free_slots(&self) -> u32 {
        self.devices.values().map(|device| device.slots.free()).sum()
    }

    pub fn total_slots(&self) -> u32 {
        self.devices.values().map(|device| device.slots.total()).sum()
    }

    /// Slots that the next commit is likely to take for metadata: one for each of its streams that has no open segment or
    /// one with little room left.
    pub fn metadata_slots(&self) -> u32 {
        self.metadata_streams(|row| self.is_nearly_full(row))
    }

    /// Slots that a commit without file content takes at most, if `pool_units` are yet to come of each copy of the pool's own
    /// metadata: as above, but metadata of datasets has room enough in any open segment.
    pub fn idle_commit_slots(&self, pool_units: u32) -> u32 {
        let slot_units = self.geometry.slot_units();
        let short = |row: &Row| slot_units - row.filled < self.commit_units().max(pool_units);
        let further = 2 * (pool_units / slot_units);
        self.metadata_streams(|row| row.class.is_pool() && short(row)) + further
    }

    fn is_nearly_full(&self, row: &Row) -> bool {
        self.geometry.slot_units() - row.filled < self.commit_units()
    }

    /// Units below which an open segment of metadata may not hold the next commit's.
    fn commit_units(&self) -> u32 {
        (self.geometry.slot_size / ROOM_SHARE).max(ROOM_BYTES_MIN) / self.geometry.unit
    }

    /// Units that an open segment still takes, and how many of them the commit counts on: none if no metadata goes there, or
    /// if the stream's next slot is counted already.
    pub fn room_beside_commit(&self, id: SegmentId, beside: CleanerRoom) -> (u32, u32) {
        let row = &self.rows[&id];
        let room = self.geometry.slot_units() - row.filled;
        let wanted = match row.class {
            Class::Pool0 | Class::Pool1 => self.commit_units().max(beside.pool_units),
            Class::Meta0 | Class::Meta1 => self.commit_units(),
            Class::Data | Class::Clean | Class::Log => 0,
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

    /// Free slots, in units, less what is kept from file content: for each stream of metadata as much as it can fill before it
    /// needs the slot after its present one, and `others` slots. Smooth on purpose: when a stream of metadata takes a slot,
    /// its share of what is kept falls by as much. Negative if slots are short.
    pub fn headroom_units(&self, others: u32) -> i64 {
        let slot_units = i64::from(self.geometry.slot_units());
        let kept = |owner: DatasetId, class: Class| {
            self.open.get(&(owner, class)).map_or(slot_units, |id| i64::from(self.rows[id].filled))
        };
        let meta: i64 =
            self.owners.iter().map(|&owner| kept(owner, Class::Meta0) + kept(owner, Class::Meta1)).sum();
        let pool = kept(DatasetId(0), Class::Pool0) + kept(DatasetId(0), Class::Pool1);
        let others = i64::from(others + COMMIT_MARGIN) * slot_units;
        i64::from(self.free_slots()) * slot_units - meta - pool - others
    }

    /// What file content may take of that: less what the cleaner's streams can fill before they need the slots after their
    /// present ones, and `others` slots. Were it not kept, the cleaner would stop where one of them is full and little is
    /// left; writers would take the rest, and then all would wait until the slot that the cleaner takes next is gained again,
    /// which at 95 % means to copy seven.
    pub fn content_headroom_units(&self, others: u32) -> i64 {
        let slot_units = i64::from(self.geometry.slot_units());
        let open = |owner| self.open.get(&(owner, Class::Clean));
        let kept = |&owner| open(owner).map_or(slot_units, |id| i64::from(self.rows[id].filled));
        self.headroom_units(others) - self.owners.iter().map(kept).sum::<i64>()
    }

    /// Units that live in segments of a class.
    pub fn class_live_units(&self, class: Class) -> u64 {
        self.class_live[class as usize]
    }

    /// Units that open segments of these classes still take.
    pub fn open_room_units(&self, classes: &[Class]) -> i64 {
        let rows = self.open.iter().filter(|((_, class), _)| classes.contains(class));
        rows.map(|(_, id)| i64::from(self.geometry.slot_units() - self.rows[id].filled)).sum()
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

    /// Opens a segment for a stream, unless no more than `floor` slots are free.
    pub fn allocate(&mut self, owner: DatasetId, class: Class, floor: u32) -> Option<SegmentId> {
        assert!(!self.open.contains_key(&(owner, class)), "a stream has one open segment");
        if self.free_slots() <= floor {
            return None;
        }
        let device = self.choose_device(owner, class)?;
        let slot = self.devices.get_mut(&device)?.slots.take()?;
        let id = self.next_id;
        // (G2) An id is given out once.
        self.next_id = SegmentId(id.0.checked_add(1).expect("2^64 segments outlast any device"));
        let dead = DeadUnits::default();
        let row = Row { device, slot, owner, class, filled: 0, live: 0, dead, open: true, unreadable: false };
        let before = self.rows.insert(id, row);
        assert!(before.is_none());
        if class.is_pool() {
            self.pool_rows.insert(id);
        }
        self.open.insert((owner, class), id);
        self.owners.insert(owner);
        Some(id)
    }

    /// The device with the greatest share of free slots; for second copies, one that the first copies do not use if
    /// there is one. First copies prefer devices of even rank and second copies odd ones, so that copies stay
    /// apart when the cleaner moves them one by one.
    fn choose_device(&self, owner: DatasetId, class: Class) -> Option<DeviceId> {
        let sibling = class.sibling().and_then(|sibling| self.open.get(&(owner, sibling)));
        let avoided = sibling.and_then(|id| self.rows.get(id)).map(|row| row.device);
        let rank = |at: usize, id: DeviceId, space: &DeviceSpace| {
            let apart = Some(id) != avoided;
            let parity = class.copy_index().is_none_or(|copy| at % 2 == copy);
            let share = u64::from(space.slots.free()) * (1 << 32) / u64::from(space.slots.total().max(1));
            (apart, parity, share, std::cmp::Reverse(id))
        };
        let with_room = self.devices.iter().enumerate().filter(|(_, (_, space))| space.slots.free() > 0);
        with_room.max_by_key(|&(at, (&id, space))| rank(at, id, space)).map(|(_, (&id, _))| id)
    }

    /// Notes that `units` more units of an open segment hold a block.
    pub fn extend(&mut self, id: SegmentId, units: u32) {
        let row = self.rows.get_mut(&id).expect("an open segment has a row");
        assert!(row.open && row.filled + units <= self.geometry.slot_units());
        row.filled += units;
        row.live += units;
        if row.class == Class::Data {
            self.appended_units += u64::from(units);
        }
        self.changed.insert(id);
        self.live_units += u64::from(units);
        self.class_live[row.class as usize] += u64::from(units);
        self.devices.get_mut(&row.device).expect("a row's device exists").live_units += u64::from(units);
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

    /// Marks living units of one place dead, and retires the segment if they were its last.
    fn kill_piece(&mut self, piece: Piece) {
        let slot_units = self.geometry.slot_units();
        let row = self.rows.get_mut(&piece.segment).expect("looked up before");
        row.dead.kill(piece.unit, piece.units, slot_units);
        row.live -= piece.units;
        self.changed.insert(piece.segment);
        self.live_units -= u64::from(piece.units);
        self.class_live[row.class as usize] -= u64::from(piece.units);
        self.devices.get_mut(&row.device).expect("a row's device exists").live_units -=
            u64::from(piece.units);
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
        self.changes_of(&rows, &runs)
    }

    /// The same, but they will be reported again.
    pub fn peek_changes(&self) -> SpaceChanges {
        self.changes_of(&self.changed, self.relocations.changed())
    }

    fn changes_of(&self, rows: &BTreeSet<SegmentId>, runs: &BTreeSet<(SegmentId, u32)>) -> SpaceChanges {
        SpaceChanges {
            rows: rows.iter().map(|&id| (id, self.rows.get(&id).map(|row| self.store_row(row)))).collect(),
            runs: runs.iter().map(|&from| (from, self.relocations.get(from).map(store_run))).collect(),
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
        }
    }

    fn store_row(&self, row: &Row) -> SegmentRow {
        SegmentRow {
            class: row.class as u8,
            owner: row.owner,
            filled: row.filled * self.geometry.unit,
            columns: vec![Column { device: row.device, slot: row.slot }],
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
    }

    /// The tail is durable: slots of the segments it knew to be empty are free (T2).
    pub fn release_committed(&mut self) -> Vec<(SegmentId, Row)> {
        let ids: Vec<SegmentId> =
            self.emptied.iter().filter(|(_, emptied)| emptied.committing).map(|(&id, _)| id).collect();
        let mut released = Vec::with_capacity(ids.len());
        for id in ids {
            let Emptied { row, .. } = self.emptied.remove(&id).expect("listed just now");
            self.devices.get_mut(&row.device).expect("a row's device exists").slots.release(row.slot);
            released.push((id, row));
        }
        released
    }

    /// Adds a stored row.
    pub fn load_row(&mut self, segment: SegmentId, stored: &SegmentRow) -> Result<(), TableError> {
        let unit = self.geometry.unit;
        let [Column { device, slot }] = stored.columns[..] else {
            return Err(TableError::Columns { segment, columns: stored.columns.len() });
        };
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
        let space = self.devices.get_mut(&device).ok_or(TableError::NoDevice { segment, device })?;
        let units = stored.filled / unit;
        let dead = match &stored.dead {
            Some(bytes) => {
                DeadUnits::from_bytes(bytes, units).ok_or(TableError::DeadUnits { segment, units })?
            }
            None => DeadUnits::default(),
        };
        let slots = space.slots.total();
        if slot >= slots {
            return Err(TableError::NoSlot { segment, device, slot, slots });
        }
        if !space.slots.claim(slot) {
            let other = self.rows.iter().find(|(_, row)| (row.device, row.slot) == (device, slot));
            let first = other.map_or(SegmentId(0), |(&id, _)| id);
            return Err(TableError::SlotTwice { first, second: segment, device, slot });
        }
        let live = units - dead.count(0, units);
        space.live_units += u64::from(live);
        self.live_units += u64::from(live);
        self.class_live[class as usize] += u64::from(live);
        let owner = stored.owner;
        let row =
            Row { device, slot, owner, class, filled: units, live, dead, open: false, unreadable: false };
        self.rows.insert(segment, row);
        if class.is_pool() {
            self.pool_rows.insert(segment);
        }
        Ok(())
    }

    /// Extends a loaded segment by the block of the tail itself, which was appended after its row was computed.
    pub fn load_tail_block(&mut self, address: Address, bytes: usize) -> Result<(), TableError> {
        let wrong = TableError::TailPlace { address };
        let (unit, units) = self.units_of(address, bytes).map_err(|Unallocated| wrong.clone())?;
        let row = self.rows.get_mut(&address.segment).ok_or(wrong.clone())?;
        if row.filled != unit {
            return Err(wrong);
        }
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
    /// life are retired; ids skip what an uncommitted txg can have used, which is no more than there are slots.
    pub fn finish_load(
        &mut self,
        rows: &BTreeSet<SegmentId>,
        runs: &BTreeSet<(SegmentId, u32)>,
    ) -> Result<(), TableError> {
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
        let next = self.next_id.0.checked_add(u64::from(self.total_slots()));
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
        let mut live_by_device: BTreeMap<DeviceId, u64> = BTreeMap::new();
        let mut live_by_class = self.class_live;
        live_by_class.fill(0);
        let emptied = self.emptied.iter().map(|(id, emptied)| (id, &emptied.row));
        for (&id, row) in self.rows.iter().chain(emptied) {
            if let Some(other) = taken.insert((row.device, row.slot), id) {
                return Err(format!("(G1) segments {id} and {other} share slot {}", row.slot));
            }
            if !self.devices[&row.device].slots.is_taken(row.slot) {
                return Err(format!("(G1) the slot of segment {id} is not taken"));
            }
            if id >= self.next_id {
                return Err(format!("(G2) segment {id} has a future id"));
            }
            if row.filled > self.geometry.slot_units() {
                return Err(format!("(G3) segment {id} is overfull"));
            }
            if row.filled - row.dead.count(0, row.filled) != row.live {
                return Err(format!("(G3) segment {id} counts {} live units", row.live));
            }
            *live_by_device.entry(row.device).or_default() += u64::from(row.live);
            live_by_class[row.class as usize] += u64::from(row.live);
        }
        if live_by_class != self.class_live {
            return Err(format!("(G3) the classes count {:?} live units", self.class_live));
        }
        for (&id, space) in &self.devices {
            let taken_here = taken.keys().filter(|(device, _)| *device == id).count();
            if taken_here + space.slots.free() as usize != space.slots.total() as usize {
                return Err(format!("(G1) device {id} has taken slots without a segment"));
            }
            if live_by_device.get(&id).copied().unwrap_or(0) != space.live_units {
                return Err(format!("(G3) device {id} counts {} live units", space.live_units));
            }
        }
        if live_by_device.values().sum::<u64>() != self.live_units {
            return Err(format!("(G3) the pool counts {} live units", self.live_units));
        }
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
