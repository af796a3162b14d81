//! # A device whose segments the code covers
//!
//! Stands around a device of whole objects and is one itself: what is above it sees segments as
//! before. An object has cells instead of plain bytes: 4,096 bytes and their tag, 4,096 bytes and
//! their tag. A put goes to the journal of the parity first. A read that the store cannot serve, or
//! serves wrong, is served from the journal if that still has the segment. By [por.13] a segment
//! that is to be deleted leaves the code first, and goes when the pass that took it out is
//! anchored.
//!
//! Labels, roots and epochs pass through: the anchor holds the root.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_device::{
    Character, Device, Error as DeviceError, Objects, Operation, PartRead, Presence, Result as DeviceResult,
    SegmentPlace, SharedDevice,
};
use steadfast_env::Random;
use steadfast_format::medium::UBERBLOCK_SIZE;
use steadfast_format::parity::ParitySegment;
use steadfast_format::{SegmentId, Txg};

use crate::audit::{Challenge, Judgement, judge};
use crate::cell::{CellId, PAYLOAD, Payload, TAG, Tag};
use crate::parity::{Error, ParityDevice, Pass, cell_id};
use crate::recover::Recovery;
use crate::tag::TagKeys;

/// Bytes of a cell in an object.
const CELL: usize = PAYLOAD + TAG;
/// Slot that objects are read and written with: stores of objects use the id alone.
const NO_SLOT: u32 = 0;

/// A device of whole objects, covered by a parity device.
pub struct Covered {
    inner: SharedDevice,
    /// Its number in the pool.
    store: u16,
    parity: Arc<Mutex<ParityDevice>>,
    keys: Arc<TagKeys>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Tags of segments whose put has not succeeded yet: it may come again.
    under_way: HashMap<SegmentId, Vec<Tag>>,
    /// Segments that left the code, and the pass that took them out; none yet if it is to come.
    leaving: Vec<(ParitySegment, Option<u64>)>,
    /// Segments with cells that are not theirs: they stay, in the code and at the store.
    held_back: Vec<ParitySegment>,
}

/// Outcome of a repair.
#[derive(Clone, Debug, Default)]
pub struct Repair {
    /// Segments that were put back whole, each with the bytes it had.
    pub restored: Vec<SegmentId>,
    /// Cells that came back from the journal.
    pub from_journal: u64,
    /// Cells that came back from the code, and those that did not.
    pub from_code: Recovery,
    /// Tiles that are not the sum of their cells.
    pub unsound: Vec<u32>,
}

impl Covered {
    /// Covers a device of whole objects. Its segments must have been written through this from the
    /// first one on.
    ///
    /// # Panics
    /// If it is no device of whole objects: tags would have no place in its slots.
    #[must_use]
    pub fn new(inner: SharedDevice, store: u16, parity: Arc<Mutex<ParityDevice>>) -> Covered {
        assert!(inner.objects().is_some(), "a device of whole objects");
        let keys = Arc::clone(parity.lock().unwrap_or_else(PoisonError::into_inner).keys());
        Covered { inner, store, parity, keys, state: Mutex::default() }
    }

    /// Brings the tiles up to date. Its number and root belong into the next anchor record, and
    /// then to [`Covered::anchored`].
    ///
    /// # Errors
    /// Of the parity device.
    pub fn pass(&self) -> Result<Pass, Error> {
        let pass = self.parity().pass()?;
        self.note(&pass);
        Ok(pass)
    }

    /// Deletes what left the code up to this pass, which is anchored.
    ///
    /// # Errors
    /// Of the store; what is left is deleted by a later call.
    pub fn anchored(&self, generation: u64) -> DeviceResult<()> {
        let is_free = |leaving: &(ParitySegment, Option<u64>)| leaving.1.is_some_and(|of| of <= generation);
        let free: Vec<_> = self.state().leaving.iter().copied().filter(is_free).collect();
        let ids: Vec<SegmentId> = free.iter().map(|(segment, _)| segment.segment).collect();
        if !ids.is_empty() {
            self.inner_objects().delete_segments(&ids)?;
        }
        self.state().leaving.retain(|leaving| !free.contains(leaving));
        Ok(())
    }

    /// Segments that stay at the store because cells of them are wrong.
    #[must_use]
    pub fn held_back(&self) -> Vec<ParitySegment> {
        self.state().held_back.clone()
    }

    /// Asks the store for so many cells, drawn at random, and judges each.
    pub fn audit(&self, samples: u32, random: &dyn Random) -> Judgement<DeviceError> {
        let stratum = self.parity().stratum(self.store);
        let mut seed = [0; 32];
        random.fill(&mut seed);
        let challenge = Challenge { seed, generation: stratum.generation(), samples };
        let ids: Vec<CellId> = challenge.expand(&stratum).into_iter().map(|sample| sample.id).collect();
        let mut cells = vec![[0; CELL]; ids.len()];
        let reads = ids.iter().zip(&mut cells).map(|(id, out)| {
            PartRead::new(self.whole(id.segment), u32::from(id.index) * CELL as u32, vec![out])
        });
        let mut reads: Vec<PartRead<'_>> = reads.collect();
        self.inner.read_many(&mut reads);
        let outcomes: Vec<_> = reads.into_iter().map(|read| read.outcome).collect();
        let answers = ids.into_iter().zip(&cells).zip(outcomes);
        let answers = answers.map(|((id, cell), outcome)| (id, outcome.map(|()| parts(cell))));
        judge(&self.keys, answers)
    }

    /// Reads everything, recovers what is missing or wrong, and puts whole segments back under
    /// their names, with the bytes that they had. Cells that do not come back are named, and their
    /// segments are left as they are.
    ///
    /// # Errors
    /// The parity is damaged, or the store does not take what came back.
    pub fn repair(&self) -> Result<Repair, Error> {
        let parity = self.parity();
        let mut object: (Option<SegmentId>, Vec<u8>) = (None, Vec::new());
        let outcome = parity.recover(|id, out| {
            if id.store != self.store {
                return None;
            }
            if object.0 != Some(id.segment) {
                let cells = parity.named(id.segment, id.store).find(|known| known.opening == id.opening)?;
                object = (Some(id.segment), self.read_object(id.segment, cells.cells()).unwrap_or_default());
            }
            let (payload, tag) = parts(object.1.as_chunks::<CELL>().0.get(usize::from(id.index))?);
            *out = *payload;
            Some(tag)
        })?;
        let mut repair = Repair {
            from_journal: outcome.from_journal.len() as u64,
            unsound: outcome.unsound,
            ..Repair::default()
        };
        let mut back: HashMap<ParitySegment, Vec<(u16, [u8; CELL])>> = HashMap::new();
        for cell in outcome.from_journal.iter().chain(&outcome.from_code.recovered) {
            let id = cell.id();
            let Some(segment) = parity.named(id.segment, id.store).find(|known| known.opening == id.opening)
            else {
                continue;
            };
            back.entry(segment).or_default().push((id.index, joined(cell.payload(), cell.tag())));
        }
        repair.from_code = outcome.from_code;
        let lost = repair.from_code.undetermined.iter().chain(&repair.from_code.refused);
        let lost: Vec<(SegmentId, u32)> = lost.map(|id| (id.segment, id.opening)).collect();
        let mut back: Vec<_> = back.into_iter().collect();
        back.sort_unstable_by_key(|(segment, _)| *segment);
        for (segment, cells) in back {
            if segment.store != self.store || lost.contains(&(segment.segment, segment.opening)) {
                continue;
            }
            let length = usize::from(segment.cells()) * CELL;
            let mut bytes = self.read_object(segment.segment, segment.cells()).unwrap_or_default();
            bytes.resize(length, 0);
            let places = bytes.as_chunks_mut::<CELL>().0;
            cells.into_iter().for_each(|(index, cell)| places[usize::from(index)] = cell);
            let place = self.whole(segment.segment);
            // A store never replaces an object; all of its bytes are in hand.
            let put = self.inner.discard_segment(place).and_then(|()| self.inner.put_segment(place, &bytes));
            put.map_err(|source| Error::Store { source })?;
            repair.restored.push(segment.segment);
        }
        Ok(repair)
    }

    fn inner_objects(&self) -> &dyn Objects {
        self.inner.objects().expect("a device of whole objects, as asserted")
    }

    fn parity(&self) -> MutexGuard<'_, ParityDevice> {
        self.parity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, pass: &Pass) {
        let mut state = self.state();
        for (segment, of) in &mut state.leaving {
            if of.is_none() && pass.released.contains(segment) {
                *of = Some(pass.generation);
            }
        }
    }

    /// The object of a segment, however long.
    fn whole(&self, segment: SegmentId) -> SegmentPlace {
        let slot_size = ParitySegment::LENGTH_MAX / PAYLOAD as u32 * CELL as u32;
        SegmentPlace { segment, slot: NO_SLOT, slot_size }
    }

    fn failed(&self, operation: Operation, segment: SegmentId, error: &Error) -> DeviceError {
        let (device, object) = (self.inner.character().identity, format!("segment {segment}"));
        DeviceError::Store { device, operation, object, reason: error.to_string() }
    }

    /// Runs a change of the journal, after a pass if there was no room.
    fn journaled<T>(
        &self,
        parity: &mut ParityDevice,
        mut change: impl FnMut(&mut ParityDevice) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match change(parity) {
            Err(Error::JournalFull { .. }) if parity.journal_bytes() > 0 => {
                let pass = parity.pass()?;
                self.note(&pass);
                change(parity)
            }
            outcome => outcome,
        }
    }

    /// Tags of a segment that is about to be put; it is in the journal then.
    fn cover(&self, segment: SegmentId, bytes: &[u8]) -> Result<Vec<Tag>, Error> {
        let parity = &mut *self.parity();
        match self.journaled(parity, |parity| parity.add(segment, self.store, bytes)) {
            Ok((_, tags)) => {
                self.state().under_way.insert(segment, tags.clone());
                Ok(tags)
            }
            // The put comes again, because its answer was lost: with the same bytes, or it is
            // refused.
            Err(Error::Exists(known)) => {
                let tags = parity.tags(known, bytes);
                match self.state().under_way.get(&segment) {
                    Some(before) if *before == tags => Ok(tags),
                    _ => Err(Error::Exists(known)),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn read_object(&self, segment: SegmentId, cells: u16) -> DeviceResult<Vec<u8>> {
        let mut bytes = vec![0; usize::from(cells) * CELL];
        self.inner.read_segment(self.whole(segment), 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Takes a segment out of the code. False if the code does not have it, and it may go at once.
    fn leave(&self, segment: SegmentId) -> DeviceResult<bool> {
        let parity = &mut *self.parity();
        let named: Vec<ParitySegment> = parity.named(segment, self.store).collect();
        let is_leaving = self.state().leaving.iter().any(|(leaving, _)| leaving.segment == segment);
        for &known in &named {
            let outcome = if parity.is_mirrored(known) {
                self.journaled(parity, |parity| parity.remove(known, None))
            } else {
                let (mut content, mut tags) = (Vec::new(), Vec::new());
                for cell in self.read_object(segment, known.cells()).unwrap_or_default().as_chunks::<CELL>().0
                {
                    let (payload, tag) = parts(cell);
                    content.extend_from_slice(payload);
                    tags.push(tag);
                }
                self.journaled(parity, |parity| parity.remove(known, Some((&content, &tags))))
            };
            let mut state = self.state();
            match outcome {
                Ok(()) => state.leaving.push((known, None)),
                Err(Error::WrongCells(_)) if state.held_back.contains(&known) => {}
                Err(Error::WrongCells(_)) => state.held_back.push(known),
                Err(error) => return Err(self.failed(Operation::Discard, segment, &error)),
            }
        }
        Ok(!named.is_empty() || is_leaving)
    }

    /// Fills in a part of a segment from the cells that hold it.
    fn fill(&self, read: &mut PartRead<'_>, first: u32, cells: &[u8], outcome: DeviceResult<()>) {
        let named: Vec<ParitySegment> = self.parity().named(read.place.segment, self.store).collect();
        let mut bytes = Vec::with_capacity(cells.len());
        let mut is_served = true;
        for (at, cell) in (first..).zip(cells.as_chunks::<CELL>().0) {
            let (payload, tag) = parts(cell);
            let index = u16::try_from(at).unwrap_or(u16::MAX);
            let is_right = |known: &ParitySegment| {
                index < known.cells() && self.keys.prove(cell_id(*known, index), payload, tag).is_some()
            };
            let is_right = outcome.is_ok() && named.iter().any(is_right);
            let mut mirrored = [0; PAYLOAD];
            let mut from_journal = || {
                let parity = self.parity();
                let mut whole = named.iter().filter(|known| index < known.cells());
                whole.any(|known| matches!(parity.mirrored(*known, index, &mut mirrored), Ok(true)))
            };
            if is_right {
                bytes.extend_from_slice(payload);
            } else if from_journal() {
                bytes.extend_from_slice(&mirrored);
            } else {
                // The reader judges: a block's hash tells.
                is_served &= outcome.is_ok();
                bytes.extend_from_slice(payload);
            }
        }
        read.outcome = if is_served { Ok(()) } else { outcome };
        let begin = read.offset as usize - first as usize * PAYLOAD;
        let mut rest = &bytes[begin..];
        for out in &mut read.outs {
            let (now, later) = rest.split_at(out.len());
            out.copy_from_slice(now);
            rest = later;
        }
    }
}

/// Content and tag of a cell of an object.
fn parts(cell: &[u8; CELL]) -> (&Payload, Tag) {
    let (payload, tag) = cell.split_at(PAYLOAD);
    (payload.try_into().expect("bytes of a content"), Tag(tag.try_into().expect("bytes of a tag")))
}

fn joined(payload: &Payload, tag: Tag) -> [u8; CELL] {
    let mut cell = [0; CELL];
    cell[..PAYLOAD].copy_from_slice(payload);
    cell[PAYLOAD..].copy_from_slice(&tag.0);
    cell
}

impl Device for Covered {
    fn character(&self) -> Character {
        let inner = self.inner.character();
        let size_bytes = inner.size_bytes / CELL as u64 * PAYLOAD as u64;
        Character { size_bytes, ..inner }
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> DeviceResult<()> {
        let tags = self.cover(place.segment, bytes);
        let tags = tags.map_err(|error| self.failed(Operation::Write, place.segment, &error))?;
        let mut object = Vec::with_capacity(tags.len() * CELL);
        for (content, tag) in bytes.chunks(PAYLOAD).zip(tags) {
            object.extend_from_slice(content);
            object.resize(object.len().next_multiple_of(CELL) - TAG, 0);
            object.extend_from_slice(&tag.0);
        }
        self.inner.put_segment(self.whole(place.segment), &object)?;
        self.state().under_way.remove(&place.segment);
        Ok(())
    }

    fn append_segment(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> DeviceResult<()> {
        self.inner.append_segment(place, offset, bytes)
    }

    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> DeviceResult<()> {
        self.read_segment_parts(place, offset, &mut [out])
    }

    fn read_segment_parts(
        &self,
        place: SegmentPlace,
        offset: u32,
        parts: &mut [&mut [u8]],
    ) -> DeviceResult<()> {
        let outs = parts.iter_mut().map(|part| &mut **part).collect();
        let mut reads = [PartRead::new(place, offset, outs)];
        self.read_many(&mut reads);
        let [read] = reads;
        read.outcome
    }

    fn read_many(&self, reads: &mut [PartRead<'_>]) {
        let span = |read: &PartRead<'_>| {
            let first = read.offset / PAYLOAD as u32;
            let end = (read.offset as usize + read.bytes()).div_ceil(PAYLOAD);
            (first, end - first as usize)
        };
        let mut cells: Vec<Vec<u8>> = reads.iter().map(|read| vec![0; span(read).1 * CELL]).collect();
        let inner = reads.iter().zip(&mut cells).map(|(read, cells)| {
            PartRead::new(self.whole(read.place.segment), span(read).0 * CELL as u32, vec![cells])
        });
        let mut inner: Vec<PartRead<'_>> = inner.collect();
        self.inner.read_many(&mut inner);
        let outcomes: Vec<_> = inner.into_iter().map(|read| read.outcome).collect();
        for ((read, cells), outcome) in reads.iter_mut().zip(&cells).zip(outcomes) {
            let (first, _) = span(read);
            self.fill(read, first, cells, outcome);
        }
    }

    fn discard_segment(&self, place: SegmentPlace) -> DeviceResult<()> {
        if self.leave(place.segment)? {
            Ok(())
        } else {
            self.inner.discard_segment(self.whole(place.segment))
        }
    }

    fn can_discard(&self) -> bool {
        self.inner.can_discard()
    }

    fn objects(&self) -> Option<&dyn Objects> {
        Some(self)
    }

    fn write_label(&self, copy: usize, bytes: &[u8]) -> DeviceResult<()> {
        self.inner.write_label(copy, bytes)
    }

    fn read_label(&self, copy: usize) -> DeviceResult<Vec<u8>> {
        self.inner.read_label(copy)
    }

    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> DeviceResult<()> {
        self.inner.write_uberblock(copy, txg, bytes)
    }

    fn read_uberblocks(&self, copy: usize) -> DeviceResult<Vec<Vec<u8>>> {
        self.inner.read_uberblocks(copy)
    }

    /// Journal first: a segment that a commit needs is covered.
    fn flush(&self) -> DeviceResult<()> {
        let flushed = self.parity().flush();
        flushed.map_err(|error| self.failed(Operation::Flush, SegmentId(0), &error))?;
        self.inner.flush()
    }

    fn presence(&self) -> Presence {
        self.inner.presence()
    }

    fn release(&self) {
        self.inner.release();
    }
}

impl Objects for Covered {
    fn stored_segments(&self) -> DeviceResult<Vec<SegmentId>> {
        self.inner_objects().stored_segments()
    }

    fn delete_segments(&self, segments: &[SegmentId]) -> DeviceResult<()> {
        let mut uncovered = Vec::new();
        for &segment in segments {
            if !self.leave(segment)? {
                uncovered.push(segment);
            }
        }
        if uncovered.is_empty() { Ok(()) } else { self.inner_objects().delete_segments(&uncovered) }
    }

    fn claim_epoch(&self, epoch: u64) -> DeviceResult<bool> {
        self.inner_objects().claim_epoch(epoch)
    }

    fn creates_once(&self) -> DeviceResult<bool> {
        self.inner_objects().creates_once()
    }

    fn is_claimed(&self, epoch: u64) -> DeviceResult<bool> {
        self.inner_objects().is_claimed(epoch)
    }

    fn has_root(&self, epoch: u64, txg: Txg) -> DeviceResult<bool> {
        self.inner_objects().has_root(epoch, txg)
    }

    fn is_pruned(&self, epoch: u64) -> DeviceResult<bool> {
        self.inner_objects().is_pruned(epoch)
    }

    fn newest_epoch(&self) -> DeviceResult<u64> {
        self.inner_objects().newest_epoch()
    }
}
