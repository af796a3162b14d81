//! # A device whose segments the code may cover
//!
//! Stands around a device of whole objects and is one itself. Rooms above it see segments as
//! before, and so does the store: tags are in the trusted corner. Without a code it only passes
//! calls on. With one, a put goes to the journal of the parity first, a read of a segment that the
//! journal still has is served from there, and by [por.13] a segment that is to be deleted leaves
//! the code first and goes when the pass that took it out is anchored.
//!
//! A segment that the code cannot take (it is full, or its medium failed) is stored all the same,
//! and is *uncovered* until [`Covered::adopt`] brings it in. So are segments that were there before
//! the code.
//!
//! Labels, roots and epochs pass through: the anchor holds the root.

mod rekey;
mod repair;
mod waiting;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use steadfast_crypto::hash;
use steadfast_device::objects::LaterOwner;
use steadfast_device::{
    Buffer, Character, Device, Error as DeviceError, Objects, Operation, PartRead, Presence,
    Result as DeviceResult, SegmentPlace, SharedDevice,
};
use steadfast_env::Random;
use steadfast_format::medium::UBERBLOCK_SIZE;
use steadfast_format::parity::ParitySegment;
use steadfast_format::{SegmentId, Txg};

use crate::agent::{AskedCell, Question};
use crate::audit::{Challenge, Judgement, Stratum, judge, verify_sum};
use crate::cell::{PAYLOAD, Payload, Tag};
use crate::parity::{Error, ParityDevice, Pass, tags_of};
use crate::tag::TagKeys;

pub use rekey::{Rekey, rekey};
pub use repair::{Repair, repair};
use waiting::{Leave, Leaving, Waiting};

/// Slot that objects are read and written with: stores of objects use the id alone.
const NO_SLOT: u32 = 0;
/// Cells that are asked for side by side.
const ASKED_AT_ONCE: usize = 512;
/// Questions to an agent until one meets no change of the store.
const AGENT_TRIES: u32 = 3;

/// A parity device that several stores share.
pub type SharedParity = Arc<RwLock<ParityDevice>>;

/// A device of whole objects, which a parity device may cover.
pub struct Covered {
    inner: SharedDevice,
    cover: RwLock<Option<Arc<Cover>>>,
}

/// The code around a store.
struct Cover {
    /// Number of the store in the pool.
    store: u16,
    parity: SharedParity,
    keys: Arc<TagKeys>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Tags of segments whose put has not succeeded yet: it may come again.
    under_way: HashMap<SegmentId, Vec<Tag>>,
    /// Segments with cells that are not theirs: they stay, in the code and at the store.
    held_back: Vec<ParitySegment>,
    /// Segments that are to be deleted, and could not leave the code yet.
    waiting: Waiting,
    /// The segment that [`Covered::adopt`] is reading, until it is deleted meanwhile.
    adopting: Option<SegmentId>,
    /// Segments that came in by [`Covered::adopt`], each with the position behind its record,
    /// until that is durable. Those that are put are flushed before a root names them.
    adopted: HashMap<SegmentId, u64>,
    /// Why the last segment that stayed uncovered did.
    left_out: Option<String>,
}

/// Outcome of an audit of one stratum.
#[derive(Debug)]
pub struct Audit {
    /// Question that was asked.
    pub challenge: Challenge,
    /// Hash of the list of cells that it was asked of.
    pub list: [u8; 32],
    /// Hash of the answers: of the hashes of their contents in the order of the samples, zeros for
    /// one that did not come.
    pub answers: [u8; 32],
    /// Cells of the stratum.
    pub cells: u64,
    /// Samples, and which of them failed.
    pub judgement: Judgement<DeviceError>,
}

/// Outcome of an audit by an agent.
#[derive(Debug)]
pub struct AgentAudit {
    /// Question that was asked.
    pub challenge: Challenge,
    /// Hash of the list of cells that it was asked of.
    pub list: [u8; 32],
    /// Hash of the reply; zeros without one.
    pub answers: [u8; 32],
    /// Cells of the store.
    pub cells: u64,
    /// Why the reply is no proof, if it is none.
    pub problem: Option<String>,
}

/// The part of a pool that an audit samples.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// All segments of the store.
    All,
    /// Those that the journal still mirrors: the newest.
    Newest,
}

impl Cover {
    fn parity(&self) -> RwLockReadGuard<'_, ParityDevice> {
        self.parity.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn parity_mut(&self) -> RwLockWriteGuard<'_, ParityDevice> {
        self.parity.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes durable what came in until now. Puts go on meanwhile.
    fn flush(&self) -> Result<(), Error> {
        let flusher = self.parity().flusher();
        let end = flusher.flush()?;
        self.state().adopted.retain(|_, position| *position > end);
        Ok(())
    }

    /// The device while no step is running: none begins before it is given back.
    fn between_steps(&self) -> RwLockWriteGuard<'_, ParityDevice> {
        loop {
            let parity = self.parity_mut();
            if !parity.is_step_running() {
                return parity;
            }
            let running = Arc::clone(parity.running());
            drop(parity);
            running.wait();
        }
    }

    /// Covers a segment that is about to be put; it is in the journal then.
    ///
    /// # Errors
    /// The code does not take it. By [`Error::Exists`] it is known with other bytes: the store must
    /// not get them under its name.
    fn take(&self, segment: SegmentId, bytes: &[u8]) -> Result<(), Error> {
        // Beside other puts: only the record is written under the lock.
        let name = self.parity().name_for(segment, self.store, bytes.len());
        let made = name.map(|name| tags_of(&self.keys, name, bytes)).unwrap_or_default();
        let (parity, outcome) = self.journaled(self.parity_mut(), |parity| match name {
            Some(name) => parity.add_tagged(name, bytes, &made),
            None => parity.add(segment, self.store, bytes),
        });
        let tags = |known| if Some(known) == name { made.clone() } else { parity.tags(known, bytes) };
        match outcome {
            Ok(known) => {
                let tags = tags(known);
                self.state().under_way.insert(segment, tags);
                Ok(())
            }
            // The put comes again, because its answer was lost: with the same bytes, or it is
            // refused.
            Err(Error::Exists(known)) => {
                let tags = tags(known);
                match self.state().under_way.get(&segment) {
                    Some(before) if *before == tags => Ok(()),
                    _ => Err(Error::Exists(known)),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Runs a change of the journal. If writers outrun the pass under way, after some steps of it;
    /// if there is no room, after its end. The lock is free while a step runs, so what was looked
    /// at before may have changed.
    fn journaled<'c, T>(
        &'c self,
        mut parity: RwLockWriteGuard<'c, ParityDevice>,
        mut change: impl FnMut(&mut ParityDevice) -> Result<T, Error>,
    ) -> (RwLockWriteGuard<'c, ParityDevice>, Result<T, Error>) {
        // Nobody waits for a store of tiles.
        let is_behind = |parity: &ParityDevice| parity.bodies().is_none() && parity.is_pass_behind();
        let running = Arc::clone(parity.running());
        let mut _turn = None;
        if is_behind(&parity) || !running.queue().is_empty() {
            drop(parity);
            _turn = Some(running.queue().take());
            parity = self.parity_mut();
        }
        while is_behind(&parity) && !running.is_waiting() {
            parity.note_full();
            drop(parity);
            let stepped = pass_step(&self.parity);
            parity = self.parity_mut();
            // One that cannot go on now may do so later.
            if stepped.is_err() {
                break;
            }
        }
        loop {
            match change(&mut parity) {
                Err(Error::JournalFull { need, .. })
                    if parity.journal_bytes() > 0 && need <= parity.figures().journal_size =>
                {
                    parity.note_full();
                    // A pass takes as long as the store of the tiles does: nobody waits for that.
                    if parity.bodies().is_some() {
                        let free = parity.figures().journal_size - parity.journal_bytes();
                        return (parity, Err(Error::JournalFull { need, free }));
                    }
                    drop(parity);
                    let stepped = pass_step(&self.parity);
                    parity = self.parity_mut();
                    if let Err(error) = stepped {
                        return (parity, Err(error));
                    }
                }
                outcome => return (parity, outcome),
            }
        }
    }
}

/// A step of a pass, which begins one if none is under way. The lock is taken to begin and to end
/// it, and is free while tiles are read and stored. If a step is running already, waits until it
/// has ended.
///
/// # Errors
/// A tile or the journal is damaged, or the medium fails: the pass begins anew then. A recovery
/// reads, or is owed: it goes on later.
pub fn pass_step(parity: &SharedParity) -> Result<Option<Pass>, Error> {
    let (begun, running) = {
        let parity = &mut *parity.write().unwrap_or_else(PoisonError::into_inner);
        (parity.begin_step()?, Arc::clone(parity.running()))
    };
    let Some(step) = begun else {
        running.wait();
        return Ok(None);
    };
    let result = step.run();
    parity.write().unwrap_or_else(PoisonError::into_inner).end_step(result)
}

impl Covered {
    /// A device of whole objects that nothing covers yet.
    ///
    /// # Panics
    /// If it is no device of whole objects: segments of others change while they are open.
    #[must_use]
    pub fn new(inner: SharedDevice) -> Covered {
        assert!(inner.objects().is_some(), "a device of whole objects");
        Covered { inner, cover: RwLock::new(None) }
    }

    /// From now on the code covers what is put here. Segments that are there come in by
    /// [`Covered::adopt`].
    pub fn cover(&self, store: u16, parity: SharedParity) {
        let keys = Arc::clone(parity.read().unwrap_or_else(PoisonError::into_inner).keys());
        let cover = Cover { store, parity, keys, state: Mutex::default() };
        *self.cover.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(cover));
    }

    /// Nothing covers the device any more. Objects that waited for a pass stay, as left over.
    pub fn uncover(&self) {
        *self.cover.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// True if a code covers what is put here.
    #[must_use]
    pub fn is_covering(&self) -> bool {
        self.covering().is_some()
    }

    fn covering(&self) -> Option<Arc<Cover>> {
        self.cover.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Deletes what left the code up to this pass, which is anchored, or was left out by a re-key.
    /// How many there were.
    ///
    /// # Errors
    /// Of the store; what is left is deleted by a later call.
    pub fn anchored(&self, generation: u64) -> DeviceResult<usize> {
        let Some(cover) = self.covering() else { return Ok(0) };
        // Another thread may have made the last pass of a re-key.
        cover.let_go();
        let free = {
            let parity = &mut *cover.parity_mut();
            parity.forget_left_out(cover.store, generation);
            parity.released(cover.store, generation)
        };
        let ids: Vec<SegmentId> = free.iter().map(|segment| segment.segment).collect();
        if !ids.is_empty() {
            self.inner_objects().delete_segments(&ids)?;
            cover.parity_mut().forget_released(&free);
        }
        Ok(ids.len())
    }

    /// Segments that stay at the store because cells of them are wrong.
    #[must_use]
    pub fn held_back(&self) -> Vec<ParitySegment> {
        self.covering().map(|cover| cover.state().held_back.clone()).unwrap_or_default()
    }

    /// Why the last segment that stayed uncovered did.
    #[must_use]
    pub fn left_out(&self) -> Option<String> {
        self.covering()?.state().left_out.clone()
    }

    /// True if the code has this segment.
    #[must_use]
    pub fn is_covered(&self, segment: SegmentId) -> bool {
        self.covering().is_some_and(|cover| cover.parity().named(segment, cover.store).next().is_some())
    }

    /// True if the code has this segment, and keeps it if the power fails now. One that is being
    /// put counts: no root names it before its record is durable.
    #[must_use]
    pub fn is_settled(&self, segment: SegmentId) -> bool {
        let Some(cover) = self.covering() else { return false };
        let parity = cover.parity();
        if parity.named(segment, cover.store).next().is_none() {
            return false;
        }
        let adopted = cover.state().adopted.get(&segment).copied();
        adopted.is_none_or(|position| parity.is_durable_to(position))
    }

    /// Makes durable what [`Covered::adopt`] brought in.
    ///
    /// # Errors
    /// The parity device fails; then nothing more comes in.
    pub fn settle(&self) -> Result<(), Error> {
        let Some(cover) = self.covering() else { return Ok(()) };
        if cover.state().adopted.is_empty() { Ok(()) } else { cover.flush() }
    }

    /// Reads a segment of `length` bytes from the store and brings it into the code, unless it is
    /// there or is deleted meanwhile. It is durable after the next flush of the store, or after
    /// [`Covered::settle`]. Nothing here proves that the bytes are those that were written: a
    /// scrub does.
    ///
    /// # Errors
    /// It cannot be read, or the code does not take it.
    pub fn adopt(&self, segment: SegmentId, length: usize) -> Result<(), Error> {
        let Some(cover) = self.covering() else { return Ok(()) };
        if self.is_covered(segment) {
            return Ok(());
        }
        cover.state().adopting = Some(segment);
        let mut bytes = vec![0; length];
        let read = self.inner.read_segment(self.whole(segment), 0, &mut bytes);
        if let Err(source) = read {
            let is_there = cover.state().adopting.take() == Some(segment);
            return if is_there { Err(Error::Store { source }) } else { Ok(()) };
        }
        // One that is deleted while a pass makes room is not taken in either.
        let (parity, added) =
            cover.journaled(cover.parity_mut(), |parity| match cover.state().adopting == Some(segment) {
                true => parity.add(segment, cover.store, &bytes).map(Some),
                false => Ok(None),
            });
        cover.state().adopting = None;
        match added {
            Ok(None) => Ok(()),
            Ok(Some(_)) => {
                cover.state().adopted.insert(segment, parity.standing().position);
                Ok(())
            }
            Err(Error::Exists(_)) => Ok(()),
            Err(error) => {
                cover.state().left_out = Some(error.to_string());
                Err(error)
            }
        }
    }

    /// Asks the store for so many cells, drawn at random, and judges each. Nothing if no code
    /// covers it.
    ///
    /// # Errors
    /// The parity device cannot be read.
    pub fn audit(&self, part: Part, samples: u32, random: &dyn Random) -> Result<Option<Audit>, Error> {
        let Some(cover) = self.covering() else { return Ok(None) };
        let mut seed = [0; 32];
        random.fill(&mut seed);
        let (stratum, challenge, asked, under_way) = {
            let parity = cover.parity();
            let stratum: Stratum = match part {
                Part::All => parity.stratum(cover.store),
                Part::Newest => parity.newest(cover.store),
            };
            let challenge = Challenge { seed, generation: stratum.generation(), samples };
            let mut asked = Vec::new();
            for sample in challenge.expand(&stratum) {
                let id = sample.id;
                let known = parity.named(id.segment, id.store).find(|known| known.opening == id.opening);
                let known = known.expect("the stratum is of this moment, under this lock");
                asked.push((id, known.length, parity.stored_tag(known, id.index)?));
            }
            let under_way: BTreeSet<SegmentId> = cover.state().under_way.keys().copied().collect();
            (stratum, challenge, asked, under_way)
        };
        let mut contents: Vec<u8> = Vec::with_capacity(32 * asked.len());
        let mut judgement = Judgement { held: 0, failed: Vec::new() };
        for asked in asked.chunks(ASKED_AT_ONCE) {
            let mut cells = vec![[0; PAYLOAD]; asked.len()];
            let reads = asked.iter().zip(&mut cells).map(|((id, length, _), out)| {
                let offset = u32::from(id.index) * PAYLOAD as u32;
                // The last cell of a segment may be shorter than a cell.
                let here = (*length - offset).min(PAYLOAD as u32) as usize;
                PartRead::new(self.whole(id.segment), offset, vec![&mut out[..here]])
            });
            let mut reads: Vec<PartRead<'_>> = reads.collect();
            self.inner.read_many(&mut reads);
            let outcomes: Vec<_> = reads.into_iter().map(|read| read.outcome).collect();
            for (cell, outcome) in cells.iter().zip(&outcomes) {
                contents.extend_from_slice(&if outcome.is_ok() { hash(cell) } else { [0; 32] });
            }
            let answers = asked.iter().zip(&cells).zip(outcomes);
            let answers =
                answers.map(|(((id, _, tag), cell), outcome)| (*id, outcome.map(|()| (cell, *tag))));
            let part = judge(&cover.keys, answers);
            judgement.held += part.held;
            judgement.failed.extend(part.failed);
        }
        // A segment that was deleted meanwhile was not lost, nor is one that is being put.
        let parity = cover.parity();
        judgement.failed.retain(|(id, _)| {
            let is_there = parity.named(id.segment, id.store).any(|known| known.opening == id.opening);
            is_there && !under_way.contains(&id.segment)
        });
        let (list, answers) = (stratum.hash(), hash(&contents));
        Ok(Some(Audit { challenge, list, answers, cells: stratum.cells(), judgement }))
    }

    /// Asks an agent beside the store for the sum of so many cells, drawn at random. `ask` carries
    /// the question. Nothing if no code covers the store, or nothing is stored. A reply of which a
    /// segment was deleted or put meanwhile proves nothing, so it is asked for again.
    ///
    /// # Errors
    /// The parity device cannot be read.
    pub fn audit_by_agent(
        &self,
        samples: u32,
        random: &dyn Random,
        ask: &mut dyn FnMut(&Question) -> Result<Box<Payload>, String>,
    ) -> Result<Option<AgentAudit>, Error> {
        let Some(cover) = self.covering() else { return Ok(None) };
        let mut tries = 0;
        loop {
            tries += 1;
            let mut seed = [0; 32];
            random.fill(&mut seed);
            let (stratum, challenge, asked, tags, cells) = {
                let parity = cover.parity();
                let stratum = parity.stratum(cover.store);
                let challenge = Challenge { seed, generation: stratum.generation(), samples };
                let asked = challenge.expand(&stratum);
                let (mut tags, mut cells) = (Vec::new(), Vec::new());
                for sample in &asked {
                    let id = sample.id;
                    let mut named = parity.named(id.segment, id.store);
                    let known = named.find(|known| known.opening == id.opening);
                    let known = known.expect("the stratum is of this moment, under this lock");
                    tags.push(parity.stored_tag(known, id.index)?);
                    let left = known.length - u32::from(id.index) * PAYLOAD as u32;
                    let bytes = u16::try_from(left.min(PAYLOAD as u32)).expect("bytes of a cell");
                    cells.push(AskedCell { segment: id.segment, index: id.index, bytes });
                }
                (stratum, challenge, asked, tags, cells)
            };
            if asked.is_empty() {
                return Ok(None);
            }
            let busy_before: BTreeSet<SegmentId> = cover.state().under_way.keys().copied().collect();
            let reply = ask(&Question { seed, cells });
            let answers = reply.as_ref().map_or([0; 32], |sum| hash(sum.as_slice()));
            let problem = match reply {
                Err(reason) => Some(reason),
                Ok(sum) if verify_sum(&cover.keys, &asked, &tags, &sum) => None,
                Ok(_) => Some("its sum is not that of the cells".to_owned()),
            };
            let has_changed = || {
                let parity = cover.parity();
                asked.iter().any(|sample| {
                    let id = sample.id;
                    let is_there =
                        parity.named(id.segment, id.store).any(|known| known.opening == id.opening);
                    !is_there || busy_before.contains(&id.segment)
                })
            };
            if problem.is_some() && tries < AGENT_TRIES && has_changed() {
                continue;
            }
            let (list, cells) = (stratum.hash(), stratum.cells());
            return Ok(Some(AgentAudit { challenge, list, answers, cells, problem }));
        }
    }

    fn inner_objects(&self) -> &dyn Objects {
        self.inner.objects().expect("a device of whole objects, as asserted")
    }

    /// The object of a segment, however long.
    fn whole(&self, segment: SegmentId) -> SegmentPlace {
        SegmentPlace { segment, slot: NO_SLOT, slot_size: ParitySegment::LENGTH_MAX }
    }

    fn failed(&self, operation: Operation, segment: SegmentId, error: &Error) -> DeviceError {
        let (device, object) = (self.inner.character().identity, format!("segment {segment}"));
        DeviceError::Store { device, operation, object, reason: error.to_string() }
    }

    /// Fills in the object of a segment; if it fails, with anything.
    fn read_object(&self, segment: ParitySegment, bytes: &mut Vec<u8>) -> DeviceResult<()> {
        let length = segment.length as usize;
        if bytes.capacity() < length {
            // Zeros of the system, which nobody has to write; with room for the last cell.
            *bytes = vec![0; usize::from(segment.cells()) * PAYLOAD];
        }
        bytes.resize(length, 0);
        self.inner.read_segment(self.whole(segment.segment), 0, bytes)
    }

    /// True if the store answers a question about the pool's label, which every pool has.
    fn answers(&self) -> bool {
        self.inner.read_label(0).is_ok_and(|label| !label.is_empty())
    }

    /// Takes a segment out of the code. False if the code does not have it, and it may go at once.
    fn leave(&self, cover: &Cover, segment: SegmentId, how: &Leaving<'_>) -> DeviceResult<(bool, Leave)> {
        let named: Vec<ParitySegment> = {
            let mut parity = cover.parity_mut();
            let named: Vec<ParitySegment> = parity.named(segment, cover.store).collect();
            if named.is_empty() {
                parity.release_left_out(segment, cover.store);
                let mut state = cover.state();
                state.adopting = state.adopting.filter(|adopting| *adopting != segment);
                return Ok((parity.is_leaving(segment, cover.store), Leave::Done));
            }
            named
        };
        for known in named {
            match self.leave_as(cover, known, how)? {
                Leave::Done => {}
                Leave::Waits => return Ok((true, Leave::Waits)),
                Leave::Unread(error) => {
                    cover.state().waiting.push_unread(segment, &error);
                    return Ok((true, Leave::Unread(error)));
                }
            }
        }
        Ok((true, Leave::Done))
    }

    /// Takes a segment out of the code, and leaves it at the store. Its content is read there if
    /// it is not at hand.
    pub(crate) fn take_out(&self, segment: SegmentId, content: Option<&[u8]>) -> DeviceResult<()> {
        let Some(cover) = self.covering() else { return Ok(()) };
        let known: Vec<ParitySegment> = cover.parity().named(segment, cover.store).collect();
        let how = Leaving { content, reads: true, lists: false };
        for known in known {
            if let Leave::Unread(error) = self.leave_as(&cover, known, &how)? {
                return Err(error);
            }
        }
        cover.state().under_way.remove(&segment);
        Ok(())
    }

    /// Refuses if the code has no room for so many segments of this length. If its journal has none
    /// for one of them, it makes a pass first.
    pub(crate) fn check_room(&self, length: usize, count: usize) -> Result<(), Error> {
        let cover = self.covering().ok_or(Error::Failed)?;
        let (_parity, outcome) = cover.journaled(cover.parity_mut(), |parity| {
            let any = parity.name_for(SegmentId(1), cover.store, length);
            parity.check_room(&any.ok_or(Error::Length(length))?, count as u64)
        });
        outcome
    }

    /// Puts a segment that the code covers.
    ///
    /// # Errors
    /// [`Error::Inner`] if the code does not take it: then nothing was asked of the store.
    pub(crate) fn put_covered(&self, place: SegmentPlace, bytes: &[u8]) -> Result<(), Error> {
        let cover = self.covering().ok_or(Error::Failed);
        let taken = cover.and_then(|cover| cover.take(place.segment, bytes).map(|()| cover));
        let cover = taken.map_err(|error| Error::Inner { reason: error.to_string() })?;
        self.put_taken(&cover, place, || self.inner.put_segment(place, bytes))
            .map_err(|source| Error::TileStore { source })
    }

    /// Puts a segment by `put`, behind the code that takes it.
    fn put_as(
        &self,
        place: SegmentPlace,
        bytes: &[u8],
        put: impl FnOnce() -> DeviceResult<()>,
    ) -> DeviceResult<()> {
        let Some(cover) = self.covering() else { return put() };
        match cover.take(place.segment, bytes) {
            Ok(()) => {}
            Err(error @ Error::Exists(_)) => {
                return Err(self.failed(Operation::Write, place.segment, &error));
            }
            Err(error) => cover.state().left_out = Some(error.to_string()),
        }
        self.put_taken(&cover, place, put)
    }

    /// Puts a segment that the code has, or leaves out.
    fn put_taken(
        &self,
        cover: &Cover,
        place: SegmentPlace,
        put: impl FnOnce() -> DeviceResult<()>,
    ) -> DeviceResult<()> {
        // Beside what others send to the store: behind it, a commit would wait for both.
        let flusher = cover.parity().flusher();
        flusher.flush_ahead();
        put()?;
        cover.state().under_way.remove(&place.segment);
        Ok(())
    }

    /// Those of these segments that the code does not have and that wait for the end of a pass.
    pub(crate) fn owed(&self, segments: &[SegmentId]) -> BTreeSet<SegmentId> {
        let Some(cover) = self.covering() else { return BTreeSet::new() };
        let owed = cover.parity().owed_deletes(cover.store);
        segments.iter().filter(|segment| owed.contains(segment)).copied().collect()
    }

    /// Deletes those of these segments that the code does not have, and that a pass of it has
    /// released [por.13]. Gives those that were deleted.
    pub(crate) fn delete_left(&self, segments: &[SegmentId]) -> DeviceResult<Vec<SegmentId>> {
        let Some(cover) = self.covering() else { return Ok(Vec::new()) };
        let (gone, released): (Vec<SegmentId>, Vec<ParitySegment>) = {
            let parity = cover.parity();
            let released = parity.released(cover.store, parity.standing().generation);
            let is_free = |segment: &&SegmentId| {
                let is_in = parity.named(**segment, cover.store).next().is_some();
                !is_in && !parity.owes_delete(**segment, cover.store)
            };
            let gone: BTreeSet<SegmentId> = segments.iter().filter(is_free).copied().collect();
            let released = released.into_iter().filter(|known| gone.contains(&known.segment)).collect();
            (gone.into_iter().collect(), released)
        };
        if !gone.is_empty() {
            self.inner_objects().delete_segments(&gone)?;
            cover.parity_mut().forget_released(&released);
        }
        Ok(gone)
    }

    fn leave_as(&self, cover: &Cover, known: ParitySegment, how: &Leaving<'_>) -> DeviceResult<Leave> {
        let segment = known.segment;
        // The caller of a list waits for the parity's lock, which is held here.
        let wait = || {
            if how.lists {
                cover.state().waiting.push(segment);
            }
            Ok(Leave::Waits)
        };
        // Bytes that only the store has are read without the lock: nobody waits for a store.
        let mut content: Option<Vec<u8>> = how.content.map(<[u8]>::to_vec);
        loop {
            let mut parity = cover.parity_mut();
            // The room that is left is for puts.
            if parity.owes_repair() {
                return wait();
            }
            // No pass of this call makes room: nothing is read for what has to wait.
            if !parity.has_room_for(&known) && (parity.bodies().is_some() || parity.is_pinned()) {
                parity.note_full();
                return wait();
            }
            if content.is_none() && !parity.is_mirrored(known) {
                if !how.reads {
                    return wait();
                }
                // Nor for what a pass makes no room for.
                let (parity, room) = cover.journaled(parity, |parity| parity.room_of(&known));
                match room {
                    Ok(_) => drop(parity),
                    // A recovery began between two steps of the pass that was to make room.
                    Err(Error::Recovering | Error::RecoveryOwed | Error::JournalFull { .. }) => {
                        return wait();
                    }
                    Err(error) => return Err(self.failed(Operation::Discard, segment, &error)),
                }
                let mut read = Vec::new();
                match self.read_object(known, &mut read) {
                    Ok(()) => {}
                    Err(DeviceError::Missing { .. } | DeviceError::CutShort { .. }) => read.clear(),
                    // Its cells may all be right.
                    Err(error) => return Ok(Leave::Unread(error)),
                }
                content = Some(read);
                continue;
            }
            let (parity, outcome) = cover.journaled(parity, |parity| {
                let content = content.as_deref().filter(|_| !parity.is_mirrored(known));
                parity.remove(known, content)
            });
            match outcome {
                // The journal had it until the pass that made room ended.
                Err(Error::WrongCells(_)) if content.is_none() && !parity.is_mirrored(known) => {}
                // Somebody else takes it out.
                Ok(()) | Err(Error::Unknown(_)) => return Ok(Leave::Done),
                Err(Error::WrongCells(_)) => {
                    let held_back = &mut cover.state().held_back;
                    if !held_back.contains(&known) {
                        held_back.push(known);
                    }
                    return Ok(Leave::Done);
                }
                // It leaves behind the recovery, or when a pass has made room.
                Err(Error::Recovering | Error::RecoveryOwed | Error::JournalFull { .. }) => return wait(),
                Err(error) => return Err(self.failed(Operation::Discard, segment, &error)),
            }
        }
    }

    /// Serves a part of a segment from the journal, if that has it.
    fn from_journal(cover: &Cover, read: &mut PartRead<'_>) -> bool {
        // While a pass works, the store is asked.
        let Ok(parity) = cover.parity.try_read() else { return false };
        let Some(known) = parity.named(read.place.segment, cover.store).last() else { return false };
        let mut bytes = vec![0; read.bytes()];
        if !matches!(parity.read_mirror(known, read.offset, &mut bytes), Ok(true)) {
            return false;
        }
        drop(parity);
        let mut rest = &bytes[..];
        for out in &mut read.outs {
            let (now, later) = rest.split_at(out.len());
            out.copy_from_slice(now);
            rest = later;
        }
        read.outcome = Ok(());
        true
    }
}

impl Device for Covered {
    fn character(&self) -> Character {
        self.inner.character()
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> DeviceResult<()> {
        self.put_as(place, bytes, || self.inner.put_segment(place, bytes))
    }

    fn put_shared(&self, place: SegmentPlace, bytes: &Arc<Buffer>) -> DeviceResult<()> {
        self.put_as(place, bytes, || self.inner.put_shared(place, bytes))
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
        let Some(cover) = self.covering() else { return self.inner.read_segment_parts(place, offset, parts) };
        let outs = parts.iter_mut().map(|part| &mut **part).collect();
        let mut read = PartRead::new(place, offset, outs);
        if Self::from_journal(&cover, &mut read) {
            return Ok(());
        }
        self.inner.read_segment_parts(place, offset, parts)
    }

    fn read_many(&self, reads: &mut [PartRead<'_>]) {
        let Some(cover) = self.covering() else { return self.inner.read_many(reads) };
        let mut left: Vec<&mut PartRead<'_>> =
            reads.iter_mut().filter_map(|read| (!Self::from_journal(&cover, read)).then_some(read)).collect();
        let asked = left.iter_mut().map(|read| {
            PartRead::new(read.place, read.offset, read.outs.iter_mut().map(|out| &mut **out).collect())
        });
        let mut asked: Vec<PartRead<'_>> = asked.collect();
        self.inner.read_many(&mut asked);
        let outcomes: Vec<_> = asked.into_iter().map(|read| read.outcome).collect();
        left.into_iter().zip(outcomes).for_each(|(read, outcome)| read.outcome = outcome);
    }

    fn discard_segment(&self, place: SegmentPlace) -> DeviceResult<()> {
        match self.covering() {
            Some(cover) if self.leave(&cover, place.segment, &Leaving::newly(&cover))?.0 => Ok(()),
            _ => self.inner.discard_segment(place),
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

    /// Journal first: a segment that a commit needs is covered. A journal that fails covers nothing
    /// more, and holds nothing up.
    fn flush(&self) -> DeviceResult<()> {
        if let Some(cover) = self.covering()
            && let Err(error) = cover.flush()
        {
            cover.state().left_out = Some(error.to_string());
        }
        self.inner.flush()
    }

    fn presence(&self) -> Presence {
        self.inner.presence()
    }

    fn seen_bytes(&self) -> u64 {
        self.inner.seen_bytes()
    }

    fn refresh_size(&self) -> DeviceResult<u64> {
        self.inner.refresh_size()
    }

    fn release(&self) {
        self.inner.release();
    }
}

impl Objects for Covered {
    /// With segments that the code has and the store may have lost: whoever looks for what is left
    /// over finds them, too.
    fn stored_segments(&self) -> DeviceResult<Vec<SegmentId>> {
        let stored = self.inner_objects().stored_segments()?;
        let Some(cover) = self.covering() else { return Ok(stored) };
        let mut all: BTreeSet<SegmentId> = stored.into_iter().collect();
        let parity = cover.parity();
        let of_store = parity.segments().filter(|segment| segment.store == cover.store);
        all.extend(of_store.map(|segment| segment.segment));
        Ok(all.into_iter().collect())
    }

    fn delete_segments(&self, segments: &[SegmentId]) -> DeviceResult<()> {
        let Some(cover) = self.covering() else { return self.inner_objects().delete_segments(segments) };
        let (mut uncovered, mut how) = (Vec::new(), Leaving::newly(&cover));
        for &segment in segments {
            let (is_known, left) = self.leave(&cover, segment, &how)?;
            if !is_known {
                uncovered.push(segment);
            }
            // Where the store is away it is asked once.
            how.reads &= !matches!(left, Leave::Unread(_));
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

    fn known_roots(&self) -> Vec<(u64, Txg)> {
        self.inner_objects().known_roots()
    }

    fn newest_epoch(&self) -> DeviceResult<u64> {
        self.inner_objects().newest_epoch()
    }

    fn later_owner(&self, epoch: u64) -> DeviceResult<Option<LaterOwner>> {
        self.inner_objects().later_owner(epoch)
    }
}
