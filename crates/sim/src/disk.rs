//! The false device: one of slots that are appended to, or one that takes whole objects.
//!
//! A device of whole objects keeps each in a place of its own, behind a page that tells its name
//! and length. A put is there or not, never in part, and durable when it returns; so are labels and
//! uberblocks, of which it keeps one copy, and claimed epochs. A segment, a root and an epoch are
//! created once.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_device::objects::LaterOwner;
use steadfast_device::{Character, Device, Error, Kind, Objects, Operation, Result, SegmentPlace};
use steadfast_format::medium::{
    CONFIG_OFFSET, CONFIG_SIZE, RING_OFFSET, RING_SLOTS, SLOT_SIZE_MIN, UBERBLOCK_SIZE, label_offset,
    slot_count, slot_offset,
};
use steadfast_format::{SegmentId, Txg, Uberblock};

use crate::log::{Area, EventKind, Log};
use crate::pages::{Image, PAGE, pieces};

/// Objects that a device takes for each slot that it would have.
const OBJECTS_A_SLOT: u32 = 4;

/// Effect of a fault on the operation it strikes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// It fails with EIO; a write leaves nothing.
    Fail,
    /// A write fails with ENOSPC, as a sparse file on a full disk does.
    Full,
    /// A write or flush succeeds and does nothing.
    Lost,
    /// A write lands so many sectors of 512 bytes too far, and what was there is gone.
    Misdirected(u16),
    /// One bit of what is read, or written, is wrong for good.
    Rot,
    /// A read gives what was there when the world began.
    Stale,
    /// The device is gone: this operation and all later ones fail.
    Gone,
    /// The same for so many operations of it; then it is back, without its cache.
    Away(u16),
}

impl Effect {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Effect::Fail => "EIO",
            Effect::Full => "device full",
            Effect::Lost => "said yes, did nothing",
            Effect::Misdirected(_) => "misdirected write",
            Effect::Rot => "bit rot",
            Effect::Stale => "stale read",
            Effect::Gone => "gone",
            Effect::Away(_) => "away and back",
        }
    }

    /// True if the caller of the operation learns of it.
    #[must_use]
    pub fn is_loud(self) -> bool {
        matches!(self, Effect::Fail | Effect::Full | Effect::Gone | Effect::Away(_))
    }
}

/// A fault that waits for its operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fault {
    /// Kind of operation.
    pub operation: Operation,
    /// How many of them go well first.
    pub skip: u64,
    /// How many of them it strikes then.
    pub times: u64,
    /// Its effect.
    pub effect: Effect,
}

struct State {
    image: Image,
    /// As it was in the beginning.
    first: Image,
    /// As of the last flush.
    flushed: Image,
    faults: Vec<Fault>,
    gone: bool,
    away: u16,
    /// Effects of faults that have struck, each once.
    struck: Vec<Effect>,
    /// Pages read or wholly written since.
    known: HashSet<u32>,
}

/// A device whose every write and flush is noted.
pub struct Disk {
    identity: String,
    number: usize,
    appendable: bool,
    log: Arc<Log>,
    state: Mutex<State>,
}

impl Disk {
    /// Device `number` of a world, holding an image. Its operations go to `log`.
    #[must_use]
    pub fn new(number: usize, image: Image, appendable: bool, log: &Arc<Log>) -> Disk {
        let state = State {
            first: image.clone(),
            flushed: image.clone(),
            image,
            faults: Vec::new(),
            gone: false,
            away: 0,
            struck: Vec::new(),
            known: HashSet::new(),
        };
        let identity = format!("disk{number}");
        Disk { identity, number, appendable, log: Arc::clone(log), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Image that reads see now: all writes applied.
    #[must_use]
    pub fn image(&self) -> Image {
        self.lock().image.clone()
    }

    /// Arms a fault.
    pub fn arm(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// True if a fault has struck.
    #[must_use]
    pub fn is_struck(&self) -> bool {
        !self.lock().struck.is_empty()
    }

    /// Effects of the faults that have struck, each kind once.
    #[must_use]
    pub fn struck(&self) -> Vec<Effect> {
        self.lock().struck.clone()
    }

    /// Changes one bit of a page for good.
    pub fn rot(&self, at: u64, bit: u8) {
        let image = &mut self.lock().image;
        let mut byte = [0];
        image.read(at, &mut byte);
        image.write(at, &[byte[0] ^ 1 << (bit % 8)]);
    }

    fn io_error(&self, operation: Operation, offset: u64, number: i32) -> Error {
        let source = io::Error::from_raw_os_error(number);
        Error::Io { device: self.identity.clone(), operation, offset, source }
    }

    /// Applies the faults to one operation.
    fn strike(&self, state: &mut State, operation: Operation, offset: u64) -> Result<Option<Effect>> {
        let mut effect = None;
        if state.away > 0 {
            state.away -= 1;
            return Err(self.io_error(operation, offset, 19));
        }
        state.faults.retain_mut(|fault| {
            if fault.operation != operation {
                return true;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                return true;
            }
            effect = Some(fault.effect);
            fault.times -= 1;
            fault.times > 0
        });
        if let Some(effect) = effect.filter(|effect| !state.struck.contains(effect)) {
            state.struck.push(effect);
        }
        state.gone |= effect == Some(Effect::Gone);
        match effect {
            _ if state.gone => Err(self.io_error(operation, offset, 19)),
            Some(Effect::Away(count)) => {
                state.away = count;
                state.image = state.flushed.clone();
                self.log.note(self.number, EventKind::FlushFailed);
                Err(self.io_error(operation, offset, 19))
            }
            Some(Effect::Fail) => Err(self.io_error(operation, offset, 5)),
            Some(Effect::Full) => Err(self.io_error(operation, offset, 28)),
            other => Ok(other),
        }
    }

    fn locate(&self, operation: Operation, place: SegmentPlace, offset: u32, length: usize) -> Result<u64> {
        let at = slot_offset(place.slot, place.slot_size) + u64::from(offset);
        let size_bytes = self.lock().image.size_bytes();
        let in_slot = u64::from(offset) + length as u64 <= u64::from(place.slot_size);
        if !in_slot || place.slot >= slot_count(size_bytes, place.slot_size) {
            let device = self.identity.clone();
            return Err(Error::Outside { device, operation, offset: at, length: length as u64, size_bytes });
        }
        Ok(at)
    }

    fn label(&self, copy: usize) -> u64 {
        label_offset(copy, self.lock().image.size_bytes())
    }

    /// Writes; on a device of whole objects, for good.
    pub(crate) fn write(&self, at: u64, bytes: &[u8], area: Area) -> Result<()> {
        self.write_cached(at, bytes, area)?;
        if !self.appendable && self.log.hears_writes() {
            let state = &mut *self.lock();
            state.flushed = state.image.clone();
            self.log.note(self.number, EventKind::Flush);
        }
        Ok(())
    }

    fn write_cached(&self, at: u64, bytes: &[u8], area: Area) -> Result<()> {
        let state = &mut *self.lock();
        let (mut at, mut bytes) = (at, std::borrow::Cow::from(bytes));
        match self.strike(state, Operation::Write, at)? {
            Some(Effect::Lost) => return Ok(()),
            Some(Effect::Misdirected(sectors)) => {
                let end = state.image.size_bytes() - bytes.len() as u64;
                at = (at + u64::from(sectors) * 512).min(end);
            }
            Some(Effect::Rot) => {
                let byte = bytes.len() / 2;
                bytes.to_mut()[byte] ^= 4;
            }
            _ => {}
        }
        let length = if self.log.is_deaf() { 0 } else { bytes.len() };
        for (page, inside, _) in pieces(at, length) {
            // The rest of a page that is written in part is read by the reader of the page.
            if state.known.insert(page) && inside.len() < PAGE {
                self.log.note_read(self.number, page);
            }
        }
        state.image.write(at, &bytes);
        if self.log.hears_writes() {
            self.log.note(self.number, EventKind::Write { at, bytes: bytes.into(), area });
        }
        Ok(())
    }

    /// Reads.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        let state = &mut *self.lock();
        let effect = self.strike(state, Operation::Read, at)?;
        for (page, ..) in pieces(at, out.len()) {
            if !self.log.is_deaf() && state.known.insert(page) {
                self.log.note_read(self.number, page);
            }
        }
        if effect == Some(Effect::Rot) {
            let middle = at + out.len() as u64 / 2;
            let mut byte = [0];
            state.image.read(middle, &mut byte);
            state.image.write(middle, &[byte[0] ^ 4]);
        }
        match effect {
            Some(Effect::Stale) => state.first.read(at, out),
            _ => state.image.read(at, out),
        }
        Ok(())
    }

    /// Makes what was written durable.
    pub(crate) fn flush(&self) -> Result<()> {
        let state = &mut *self.lock();
        match self.strike(state, Operation::Flush, 0) {
            Ok(Some(Effect::Lost)) => {}
            Ok(_) if !self.log.hears_writes() => {}
            Ok(_) => {
                state.flushed = state.image.clone();
                self.log.note(self.number, EventKind::Flush);
            }
            Err(error) => {
                self.log.note(self.number, EventKind::FlushFailed);
                return Err(error);
            }
        }
        Ok(())
    }

    fn area(&self, area: Area) -> Area {
        if self.appendable { area } else { Area::Object }
    }

    /// Forgets the faults that did not strike yet.
    pub fn disarm(&self) {
        self.lock().faults.clear();
    }

    /// A store loses an object. False if it did not have it.
    ///
    /// # Errors
    /// A fault strikes.
    pub fn lose(&self, segment: SegmentId) -> Result<bool> {
        let place = Self::whole(SegmentPlace { segment, slot: 0, slot_size: SLOT_SIZE_MIN });
        let is_there = self.find_object(place)?.is_some();
        self.delete_object(place)?;
        Ok(is_there)
    }

    /// Objects are found by their names: who asks for one need not know the size of slots.
    fn whole(place: SegmentPlace) -> SegmentPlace {
        SegmentPlace { slot_size: SLOT_SIZE_MIN, ..place }
    }

    /// Where the object of a slot lies: a page with its name and length, then its bytes.
    fn object_at(slot: u32, slot_size: u32) -> u64 {
        slot_offset(0, slot_size) + u64::from(slot) * (u64::from(slot_size) + PAGE as u64)
    }

    /// Name and length of the object in a slot; the name 0 where there is none.
    fn object(&self, slot: u32, slot_size: u32) -> Result<(u64, u64)> {
        let mut head = [0; 16];
        self.read(Self::object_at(slot, slot_size), &mut head)?;
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        Ok((word(0), word(8)))
    }

    /// Objects that fit: they are counted in bytes, so there may be more than slots.
    fn object_places(&self, slot_size: u32) -> u32 {
        OBJECTS_A_SLOT * slot_count(self.lock().image.size_bytes(), slot_size)
    }

    fn places(&self, slot_size: u32) -> impl Iterator<Item = Result<(u32, u64)>> + '_ {
        let places = 0..self.object_places(slot_size);
        places
            .map(move |slot| Ok((slot, self.object(slot, slot_size)?.0)))
            .filter(|object| object.as_ref().map_or(true, |(_, name)| *name != 0))
    }

    /// Where an object is, by its name.
    fn find_object(&self, place: SegmentPlace) -> Result<Option<u32>> {
        // It is in its slot, unless an object that nobody has deleted yet was there.
        let is_place = place.slot < self.object_places(place.slot_size);
        if is_place && self.object(place.slot, place.slot_size)?.0 == place.segment.0 {
            return Ok(Some(place.slot));
        }
        let found = self.places(place.slot_size).find(|object| match object {
            Ok((_, name)) => *name == place.segment.0,
            Err(_) => true,
        });
        Ok(found.transpose()?.map(|(slot, _)| slot))
    }

    fn put_object(&self, place: SegmentPlace, bytes: &[u8]) -> Result<()> {
        if let Some(slot) = self.find_object(place)? {
            let (_, length) = self.object(slot, place.slot_size)?;
            let mut there = vec![0; usize::try_from(length).expect("small")];
            self.read(Self::object_at(slot, place.slot_size) + PAGE as u64, &mut there)?;
            if there == bytes {
                return Ok(());
            }
            let object = format!("segment {}", place.segment);
            return Err(Error::Exists { device: self.identity.clone(), object });
        }
        let places = self.object_places(place.slot_size);
        let mut free = Some(place.slot).filter(|slot| *slot < places).into_iter().chain(0..places);
        let free = free.find_map(|slot| match self.object(slot, place.slot_size) {
            Ok((0, _)) => Some(Ok(slot)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        });
        let Some(slot) = free.transpose()? else {
            return Err(self.io_error(Operation::Write, 0, 28));
        };
        let at = Self::object_at(slot, place.slot_size);
        let mut whole = vec![0; PAGE];
        whole[..8].copy_from_slice(&place.segment.0.to_le_bytes());
        whole[8..16].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        whole.extend_from_slice(bytes);
        self.write(at, &whole, Area::Object)
    }

    fn read_object(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()> {
        let (device, object) = (self.identity.clone(), format!("segment {}", place.segment));
        let Some(slot) = self.find_object(place)? else {
            return Err(Error::Missing { device, object });
        };
        let (_, length) = self.object(slot, place.slot_size)?;
        let needed = u64::from(offset) + out.len() as u64;
        if needed > length {
            return Err(Error::CutShort { device, object, length, needed });
        }
        self.read(Self::object_at(slot, place.slot_size) + PAGE as u64 + u64::from(offset), out)
    }

    fn delete_object(&self, place: SegmentPlace) -> Result<()> {
        let Some(slot) = self.find_object(place)? else { return Ok(()) };
        self.write(Self::object_at(slot, place.slot_size), &[0; PAGE], Area::Object)
    }

    /// Where a claimed epoch is noted: in the second label, which a store does not have.
    fn claim_at(&self, epoch: u64) -> u64 {
        self.label(1) + RING_OFFSET + epoch % RING_SLOTS * UBERBLOCK_SIZE as u64
    }

    fn claim_in(&self, at: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn root_at(&self, txg: Txg) -> u64 {
        self.label(0) + RING_OFFSET + txg.0 % RING_SLOTS * UBERBLOCK_SIZE as u64
    }
}

/// Epoch of an uberblock's writer.
fn epoch_of(uberblock: &[u8]) -> u64 {
    let uberblock = Uberblock::decode(uberblock);
    uberblock.map_or(0, |uberblock| uberblock.age().0)
}

impl Objects for Disk {
    fn stored_segments(&self) -> Result<Vec<SegmentId>> {
        self.places(SLOT_SIZE_MIN).map(|object| Ok(SegmentId(object?.1))).collect()
    }

    fn delete_segments(&self, segments: &[SegmentId]) -> Result<()> {
        segments.iter().try_for_each(|&segment| {
            self.delete_object(SegmentPlace { segment, slot: 0, slot_size: SLOT_SIZE_MIN })
        })
    }

    fn claim_epoch(&self, epoch: u64) -> Result<bool> {
        if self.is_claimed(epoch)? {
            return Ok(false);
        }
        self.write(self.claim_at(epoch), &epoch.to_le_bytes(), Area::Object)?;
        Ok(true)
    }

    fn creates_once(&self) -> Result<bool> {
        Ok(true)
    }

    fn is_claimed(&self, epoch: u64) -> Result<bool> {
        Ok(self.claim_in(self.claim_at(epoch))? == epoch)
    }

    fn has_root(&self, epoch: u64, txg: Txg) -> Result<bool> {
        let mut bytes = vec![0; UBERBLOCK_SIZE];
        self.read(self.root_at(txg), &mut bytes)?;
        let root = Uberblock::decode(&bytes);
        Ok(root.is_ok_and(|root| root.age() == (epoch, txg)))
    }

    /// One host at a time has a disk.
    fn is_pruned(&self, _epoch: u64) -> Result<bool> {
        Ok(false)
    }

    fn newest_epoch(&self) -> Result<u64> {
        let claims = (0..RING_SLOTS).map(|at| self.claim_in(self.claim_at(at)));
        claims.collect::<Result<Vec<_>>>().map(|claims| claims.into_iter().max().unwrap_or(0))
    }

    /// It keeps no marks of others.
    fn later_owner(&self, _epoch: u64) -> Result<Option<LaterOwner>> {
        Ok(None)
    }
}

impl Device for Disk {
    fn character(&self) -> Character {
        Character {
            kind: if self.appendable { Kind::Memory } else { Kind::Objects },
            size_bytes: self.lock().image.size_bytes(),
            appendable: self.appendable,
            writable: true,
            identity: self.identity.clone(),
            medium: None,
        }
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> Result<()> {
        if !self.appendable {
            return self.put_object(Self::whole(place), bytes);
        }
        self.write(self.locate(Operation::Write, place, 0, bytes.len())?, bytes, Area::Segment)
    }

    fn append_segment(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()> {
        if !self.appendable {
            return Err(Error::NotAppendable { device: self.identity.clone(), segment: place.segment.0 });
        }
        self.write(self.locate(Operation::Write, place, offset, bytes.len())?, bytes, Area::Segment)
    }

    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()> {
        if !self.appendable {
            return self.read_object(Self::whole(place), offset, out);
        }
        self.read(self.locate(Operation::Read, place, offset, out.len())?, out)
    }

    fn discard_segment(&self, place: SegmentPlace) -> Result<()> {
        if !self.appendable {
            return self.delete_object(Self::whole(place));
        }
        let at = self.locate(Operation::Discard, place, 0, place.slot_size as usize)?;
        let state = &mut *self.lock();
        self.strike(state, Operation::Discard, at)?;
        let length = u64::from(place.slot_size);
        let is_heard = !self.log.is_deaf();
        state.known.extend(pieces(at, place.slot_size as usize).map(|(page, ..)| page).filter(|_| is_heard));
        state.image.discard(at, length);
        self.log.note(self.number, EventKind::Discard { at, length });
        Ok(())
    }

    fn objects(&self) -> Option<&dyn Objects> {
        (!self.appendable).then_some(self as &dyn Objects)
    }

    fn write_label(&self, copy: usize, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() <= CONFIG_SIZE, "a configuration fits in its area");
        if copy > 0 && !self.appendable {
            return Ok(());
        }
        self.write(self.label(copy) + CONFIG_OFFSET, bytes, self.area(Area::Label))
    }

    fn read_label(&self, copy: usize) -> Result<Vec<u8>> {
        if copy > 0 && !self.appendable {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; CONFIG_SIZE];
        self.read(self.label(copy) + CONFIG_OFFSET, &mut bytes)?;
        Ok(bytes)
    }

    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        if copy > 0 && !self.appendable {
            return Ok(());
        }
        if !self.appendable && self.has_root(epoch_of(bytes), txg)? {
            let mut there = vec![0; UBERBLOCK_SIZE];
            self.read(self.root_at(txg), &mut there)?;
            if there == bytes {
                return Ok(());
            }
            return Err(Error::Exists { device: self.identity.clone(), object: format!("root {txg}") });
        }
        let ring = self.label(copy) + RING_OFFSET;
        self.write(ring + txg.0 % RING_SLOTS * UBERBLOCK_SIZE as u64, bytes, self.area(Area::Root))
    }

    fn read_uberblocks(&self, copy: usize) -> Result<Vec<Vec<u8>>> {
        if copy > 0 && !self.appendable {
            return Ok(Vec::new());
        }
        let mut ring = vec![0; RING_SLOTS as usize * UBERBLOCK_SIZE];
        self.read(self.label(copy) + RING_OFFSET, &mut ring)?;
        Ok(ring.chunks(UBERBLOCK_SIZE).map(<[u8]>::to_vec).collect())
    }

    fn flush(&self) -> Result<()> {
        if self.appendable { Disk::flush(self) } else { Ok(()) }
    }
}
