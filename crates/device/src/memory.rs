//! # A device in memory, with faults
//!
//! For tests of every room above. It has the layout of a file, keeps only pages that were written,
//! and plays what a medium may do.
//!
//! ## Fault model
//! *Unflushed writes* are kept in a list beside the durable bytes. When the power goes, a function
//! chosen by the test gives each of them a [`Fate`]: dropped, applied, or torn at a 512-byte
//! sector. After a flush nothing before it can be lost. *Armed faults* ([`Fault`]) strike the n-th
//! operation of a kind from now: fail once, fail from then on, or take the power away (the
//! operation and all later ones fail until [`MemoryDevice::power_on`]).
//! *Decay and malice*: [`MemoryDevice::flip_bit`] changes durable bytes; [`MemoryDevice::image`]
//! and [`MemoryDevice::restore`] bring the whole device back to an older state. Not played: a
//! device that lies about flushes; writes that go to a wrong place (a test can do both with an
//! image).

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_format::medium::{
    CONFIG_OFFSET, CONFIG_SIZE, DEVICE_SIZE_MIN, RING_OFFSET, RING_SLOTS, UBERBLOCK_SIZE, label_offset,
    slot_count, slot_offset,
};
use steadfast_format::{SegmentId, Txg, Uberblock};

use crate::objects::LaterOwner;
use crate::{Character, Device, Error, Kind, Objects, Operation, Result, SegmentPlace};

const PAGE: usize = 4096;
const SECTOR: usize = 512;

/// Fate of one unflushed write when the power goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It never happened.
    Dropped,
    /// It reached the medium.
    Applied,
    /// Only its first sectors (of 512 bytes) did.
    Torn {
        /// How many.
        sectors: usize,
    },
}

/// Effect of an armed fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// That operation fails with EIO.
    FailOnce,
    /// That operation and all later ones of its kind fail with EIO.
    FailAlways,
    /// The power goes: that operation and all others fail until it is back.
    PowerOff,
    /// That operation panics, as a bug on the way to the device would.
    Panic,
}

/// A fault that waits for its operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fault {
    /// Kind of operation: read, write, flush or discard.
    pub operation: Operation,
    /// How many of them go well first.
    pub skip: u64,
    /// Its effect.
    pub effect: Effect,
}

/// Operations since the device was made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Operations that failed because of a fault or without power; these are counted nowhere else.
    pub failed: u64,
}

type Pages = HashMap<u64, Arc<[u8; PAGE]>>;

/// All durable bytes of a device at one moment.
#[derive(Clone)]
pub struct Image {
    size_bytes: u64,
    pages: Pages,
}

impl Image {
    /// All its bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.size_bytes).expect("it is in memory")];
        read_pages(&self.pages, 0, &mut bytes);
        bytes
    }
}

/// The device.
pub struct MemoryDevice {
    identity: String,
    appendable: bool,
    state: Mutex<State>,
}

struct State {
    size_bytes: u64,
    /// Pages as reads see them.
    current: Pages,
    /// Pages that survive.
    durable: Pages,
    unflushed: Vec<(u64, Vec<u8>)>,
    faults: Vec<Fault>,
    powered: bool,
    counts: Counts,
    /// Of a device of whole segments: the segment in each slot, and the epochs that are claimed.
    names: HashMap<u32, SegmentId>,
    claimed: BTreeSet<u64>,
}

impl MemoryDevice {
    /// A blank device of at least 64 MiB that takes appends. Only what is written takes memory.
    #[must_use]
    pub fn new(identity: &str, size_bytes: u64) -> MemoryDevice {
        MemoryDevice::from_image(identity, Image { size_bytes, pages: Pages::new() })
    }

    /// A blank device that takes whole segments only, like a store of objects, and keeps each in
    /// its slot: the segment that was there is gone. [`crate::objects::MemoryStore`] keeps objects
    /// by their names.
    #[must_use]
    pub fn whole_segments(identity: &str, size_bytes: u64) -> MemoryDevice {
        MemoryDevice { appendable: false, ..MemoryDevice::new(identity, size_bytes) }
    }

    /// A device that holds an image.
    #[must_use]
    pub fn from_image(identity: &str, image: Image) -> MemoryDevice {
        assert!(image.size_bytes >= DEVICE_SIZE_MIN, "a device has at least {DEVICE_SIZE_MIN} bytes");
        let state = State {
            size_bytes: image.size_bytes,
            current: image.pages.clone(),
            durable: image.pages,
            unflushed: Vec::new(),
            faults: Vec::new(),
            powered: true,
            counts: Counts::default(),
            names: HashMap::new(),
            claimed: BTreeSet::new(),
        };
        MemoryDevice { identity: identity.to_owned(), appendable: true, state: Mutex::new(state) }
    }

    /// The durable bytes now (cheap: pages are shared).
    #[must_use]
    pub fn image(&self) -> Image {
        let state = self.lock();
        Image { size_bytes: state.size_bytes, pages: state.durable.clone() }
    }

    /// Puts an image in place of all bytes, as an adversary would who kept an old disk.
    pub fn restore(&self, image: &Image) {
        let mut state = self.lock();
        state.size_bytes = image.size_bytes;
        state.current = image.pages.clone();
        state.durable = image.pages.clone();
        state.unflushed.clear();
    }

    /// Arms a fault.
    pub fn arm(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// Takes all faults away.
    pub fn disarm(&self) {
        self.lock().faults.clear();
    }

    /// Takes away the faults that still wait, or strike every time, and returns them: for looking
    /// at what stands without meeting them. A fault that strikes once is gone when it has struck.
    pub fn take_faults(&self) -> Vec<Fault> {
        std::mem::take(&mut self.lock().faults)
    }

    /// Takes the power away: every operation fails until [`MemoryDevice::power_on`].
    pub fn power_off(&self) {
        self.lock().powered = false;
    }

    /// Gives each unflushed write, in the order they were made, its fate, disarms all faults and
    /// puts the power on. Also a way to crash without an interval: what was unflushed meets its
    /// fate either way.
    pub fn power_on(&self, mut fate: impl FnMut(usize) -> Fate) {
        let mut state = self.lock();
        for (index, (at, bytes)) in std::mem::take(&mut state.unflushed).into_iter().enumerate() {
            let kept = match fate(index) {
                Fate::Dropped => 0,
                Fate::Applied => bytes.len(),
                Fate::Torn { sectors } => bytes.len().min(sectors * SECTOR),
            };
            write_pages(&mut state.durable, at, &bytes[..kept]);
        }
        state.current = state.durable.clone();
        state.faults.clear();
        state.powered = true;
    }

    /// How many writes a crash could lose now.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        self.lock().unflushed.len()
    }

    /// Changes one bit (0 to 7) of the byte at `at` of the device, at once and for good.
    pub fn flip_bit(&self, at: u64, bit: u8) {
        let state = &mut *self.lock();
        for pages in [&mut state.current, &mut state.durable] {
            let mut byte = [0];
            read_pages(pages, at, &mut byte);
            write_pages(pages, at, &[byte[0] ^ (1 << bit)]);
        }
    }

    /// Changes one bit of the byte at `offset` of a segment.
    pub fn flip_bit_in(&self, place: SegmentPlace, offset: u32, bit: u8) {
        self.flip_bit(slot_offset(place.slot, place.slot_size) + u64::from(offset), bit);
    }

    /// Makes the device larger (what a grown file looks like after the next `refresh_size`).
    pub fn grow(&self, size_bytes: u64) {
        let mut state = self.lock();
        assert!(size_bytes >= state.size_bytes);
        state.size_bytes = size_bytes;
    }

    /// Operations so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one operation, and fails it if a fault says so.
    fn begin(&self, operation: Operation, offset: u64, length: usize) -> Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        let mut fails = !state.powered;
        if !fails {
            let (mut power_off, mut panics) = (false, false);
            state.faults.retain_mut(|fault| {
                if fault.operation != operation {
                    return true;
                }
                if fault.skip > 0 {
                    fault.skip -= 1;
                    return true;
                }
                fails = true;
                power_off |= fault.effect == Effect::PowerOff;
                panics |= fault.effect == Effect::Panic;
                fault.effect == Effect::FailAlways
            });
            state.powered = !power_off;
            assert!(!panics, "a fault that was armed panics");
        }
        if fails {
            state.counts.failed += 1;
            // EIO. A write that fails may still reach the medium in part; tests of that use a torn
            // fate.
            let source = io::Error::from_raw_os_error(5);
            return Err(Error::Io { device: self.identity.clone(), operation, offset, source });
        }
        match operation {
            Operation::Read => {
                state.counts.reads += 1;
                state.counts.read_bytes += length as u64;
            }
            Operation::Write => {
                state.counts.writes += 1;
                state.counts.written_bytes += length as u64;
            }
            Operation::Flush => state.counts.flushes += 1,
            Operation::Discard => state.counts.discards += 1,
            Operation::Open | Operation::List => {}
        }
        Ok(state)
    }

    fn locate(&self, operation: Operation, place: SegmentPlace, offset: u32, length: usize) -> Result<u64> {
        let at = slot_offset(place.slot, place.slot_size) + u64::from(offset);
        let size_bytes = self.lock().size_bytes;
        let in_slot = u64::from(offset) + length as u64 <= u64::from(place.slot_size);
        if !in_slot || place.slot >= slot_count(size_bytes, place.slot_size) {
            let device = self.identity.clone();
            return Err(Error::Outside { device, operation, offset: at, length: length as u64, size_bytes });
        }
        Ok(at)
    }

    fn label(&self, copy: usize) -> u64 {
        label_offset(copy, self.lock().size_bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.begin(Operation::Write, at, bytes.len())?;
        write_pages(&mut state.current, at, bytes);
        state.unflushed.push((at, bytes.to_vec()));
        Ok(())
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        let state = self.begin(Operation::Read, at, out.len())?;
        read_pages(&state.current, at, out);
        Ok(())
    }
}

impl Device for MemoryDevice {
    fn character(&self) -> Character {
        Character {
            kind: Kind::Memory,
            size_bytes: self.lock().size_bytes,
            appendable: self.appendable,
            writable: true,
            identity: self.identity.clone(),
            medium: None,
        }
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> Result<()> {
        self.write(self.locate(Operation::Write, place, 0, bytes.len())?, bytes)?;
        if !self.appendable {
            self.lock().names.insert(place.slot, place.segment);
        }
        Ok(())
    }

    fn append_segment(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()> {
        if !self.appendable {
            return Err(Error::NotAppendable { device: self.identity.clone(), segment: place.segment.0 });
        }
        self.write(self.locate(Operation::Write, place, offset, bytes.len())?, bytes)
    }

    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()> {
        self.read(self.locate(Operation::Read, place, offset, out.len())?, out)
    }

    /// Whole pages of the slot read as zeros at once, and a crash does not bring them back.
    fn discard_segment(&self, place: SegmentPlace) -> Result<()> {
        let at = self.locate(Operation::Discard, place, 0, place.slot_size as usize)?;
        let state = &mut *self.begin(Operation::Discard, at, 0)?;
        let end = at + u64::from(place.slot_size);
        for page in at / PAGE as u64..end / PAGE as u64 {
            state.current.remove(&page);
            state.durable.remove(&page);
        }
        state.unflushed.retain(|(start, _)| *start < at || *start >= end);
        Ok(())
    }

    fn objects(&self) -> Option<&dyn Objects> {
        (!self.appendable).then_some(self as &dyn Objects)
    }

    fn write_label(&self, copy: usize, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() <= CONFIG_SIZE, "a configuration fits in its area");
        self.write(self.label(copy) + CONFIG_OFFSET, bytes)
    }

    fn read_label(&self, copy: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; CONFIG_SIZE];
        self.read(self.label(copy) + CONFIG_OFFSET, &mut bytes)?;
        Ok(bytes)
    }

    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        let ring = self.label(copy) + RING_OFFSET;
        self.write(ring + txg.0 % RING_SLOTS * UBERBLOCK_SIZE as u64, bytes)
    }

    fn read_uberblocks(&self, copy: usize) -> Result<Vec<Vec<u8>>> {
        let mut ring = vec![0; RING_SLOTS as usize * UBERBLOCK_SIZE];
        self.read(self.label(copy) + RING_OFFSET, &mut ring)?;
        Ok(ring.chunks(UBERBLOCK_SIZE).map(<[u8]>::to_vec).collect())
    }

    fn flush(&self) -> Result<()> {
        let state = &mut *self.begin(Operation::Flush, 0, 0)?;
        for (at, bytes) in state.unflushed.drain(..) {
            write_pages(&mut state.durable, at, &bytes);
        }
        Ok(())
    }
}

impl Objects for MemoryDevice {
    fn stored_segments(&self) -> Result<Vec<SegmentId>> {
        Ok(self.lock().names.values().copied().collect())
    }

    fn delete_segments(&self, segments: &[SegmentId]) -> Result<()> {
        let mut state = self.lock();
        state.names.retain(|_, segment| !segments.contains(segment));
        Ok(())
    }

    fn claim_epoch(&self, epoch: u64) -> Result<bool> {
        Ok(self.lock().claimed.insert(epoch))
    }

    fn creates_once(&self) -> Result<bool> {
        Ok(true)
    }

    fn is_claimed(&self, epoch: u64) -> Result<bool> {
        Ok(self.lock().claimed.contains(&epoch))
    }

    fn has_root(&self, epoch: u64, txg: Txg) -> Result<bool> {
        let ring = self.read_uberblocks(0)?;
        let mut roots = ring.iter().filter_map(|bytes| Uberblock::decode(bytes).ok());
        Ok(roots.any(|root| root.age() == (epoch, txg)))
    }

    /// A ring overwrites roots, and nobody else writes to it.
    fn is_pruned(&self, _epoch: u64) -> Result<bool> {
        Ok(false)
    }

    fn newest_epoch(&self) -> Result<u64> {
        Ok(self.lock().claimed.last().copied().unwrap_or(0))
    }

    /// It keeps no marks of others.
    fn later_owner(&self, _epoch: u64) -> Result<Option<LaterOwner>> {
        Ok(None)
    }
}

/// Calls `step` with each page's number, the range within it, and the range of the caller's bytes.
fn pages_of(
    at: u64,
    length: usize,
    mut step: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < length {
        let position = at + done as u64;
        let start = (position % PAGE as u64) as usize;
        let count = (PAGE - start).min(length - done);
        step(position / PAGE as u64, start..start + count, done..done + count);
        done += count;
    }
}

fn write_pages(pages: &mut Pages, at: u64, bytes: &[u8]) {
    pages_of(at, bytes.len(), |page, inside, outside| {
        let page = pages.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
        Arc::make_mut(page)[inside].copy_from_slice(&bytes[outside]);
    });
}

fn read_pages(pages: &Pages, at: u64, out: &mut [u8]) {
    pages_of(at, out.len(), |page, inside, outside| match pages.get(&page) {
        Some(page) => out[outside].copy_from_slice(&page[inside]),
        None => out[outside].fill(0),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_format::SegmentId;

    const PLACE: SegmentPlace = SegmentPlace { segment: SegmentId(1), slot: 5, slot_size: 1 << 20 };

    fn device() -> MemoryDevice {
        MemoryDevice::new("memory", 64 << 20)
    }

    fn read(device: &MemoryDevice, offset: u32, length: usize) -> Vec<u8> {
        let mut out = vec![0xcc; length];
        device.read_segment(PLACE, offset, &mut out).unwrap();
        out
    }

    #[test]
    fn what_is_written_is_read() {
        let device = device();
        device.append_segment(PLACE, 4000, &[7; 5000]).unwrap();
        let expected = [[0; 10].as_slice(), &[7; 10]].concat();
        assert_eq!(read(&device, 3990, 20), expected);
        device.write_uberblock(3, Txg(50), &[4; UBERBLOCK_SIZE]).unwrap();
        assert_eq!(device.read_uberblocks(3).unwrap()[2], [4; UBERBLOCK_SIZE]);
        device.write_label(2, b"label").unwrap();
        assert_eq!(device.read_label(2).unwrap()[..6], *b"label\0");
        let counts = device.counts();
        assert_eq!((counts.writes, counts.reads, counts.written_bytes), (3, 3, 9101));
    }

    #[test]
    fn a_crash_loses_what_was_not_flushed_and_only_that() {
        let device = device();
        device.append_segment(PLACE, 0, &[1; 2048]).unwrap();
        device.flush().unwrap();
        for n in 2..=4 {
            device.append_segment(PLACE, u32::from(n) * 2048, &[n; 2048]).unwrap();
        }
        assert_eq!(device.unflushed(), 3);
        let fates = [Fate::Applied, Fate::Dropped, Fate::Torn { sectors: 1 }];
        device.power_on(|index| fates[index]);
        assert_eq!(read(&device, 0, 2048), [1; 2048]);
        assert_eq!(read(&device, 4096, 2048), [2; 2048]);
        assert_eq!(read(&device, 6144, 2048), [0; 2048]);
        assert_eq!(read(&device, 8192, 512), [4; 512]);
        assert_eq!(read(&device, 8704, 1536), [0; 1536]);
    }

    #[test]
    fn faults_strike_when_they_are_due() {
        let device = device();
        device.arm(Fault { operation: Operation::Write, skip: 1, effect: Effect::FailOnce });
        device.arm(Fault { operation: Operation::Read, skip: 0, effect: Effect::FailAlways });
        let results = [0, 1, 2].map(|_| device.put_segment(PLACE, &[1]).is_ok());
        assert_eq!(results, [true, false, true]);
        assert!([0, 1].iter().all(|_| device.read_label(0).is_err()));
        device.disarm();
        assert!(device.read_label(0).is_ok());
        device.arm(Fault { operation: Operation::Flush, skip: 0, effect: Effect::PowerOff });
        let error = device.flush().unwrap_err();
        assert_eq!((error.errno(), error.device()), (Some(5), "memory"));
        assert!(device.read_label(0).is_err(), "everything fails without power");
        device.power_on(|_| Fate::Dropped);
        assert_eq!(read(&device, 0, 1), [0]);
    }

    #[test]
    fn bits_flip_and_images_come_back() {
        let device = device();
        device.put_segment(PLACE, &[0; 4096]).unwrap();
        device.flush().unwrap();
        let image = device.image();
        device.flip_bit_in(PLACE, 100, 3);
        assert_eq!(read(&device, 100, 1), [8]);
        device.restore(&image);
        assert_eq!(read(&device, 100, 1), [0]);
        assert_eq!(read(&MemoryDevice::from_image("copy", image), 100, 1), [0]);
    }

    #[test]
    fn discarded_slots_are_blank_and_neighbours_are_not() {
        let device = device();
        let next = SegmentPlace { slot: 6, ..PLACE };
        device.put_segment(PLACE, &[1; 10_000]).unwrap();
        device.put_segment(next, &[2; 10]).unwrap();
        device.discard_segment(PLACE).unwrap();
        device.flush().unwrap();
        assert_eq!(read(&device, 0, 10_000), [0; 10_000]);
        let mut out = [0; 10];
        device.read_segment(next, 0, &mut out).unwrap();
        assert_eq!(out, [2; 10]);
    }

    #[test]
    fn whole_segment_devices_refuse_appends() {
        let device = MemoryDevice::whole_segments("objects", 64 << 20);
        assert!(!device.character().appendable);
        device.put_segment(PLACE, &[1; 10]).unwrap();
        assert!(matches!(device.append_segment(PLACE, 10, &[1]), Err(Error::NotAppendable { .. })));
        let outside = SegmentPlace { slot: 1000, ..PLACE };
        assert!(matches!(device.put_segment(outside, &[1]), Err(Error::Outside { .. })));
    }
}
