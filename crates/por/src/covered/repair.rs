//! Repair of stores: what a recovery gives back is put under the names that it had.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use steadfast_env::{Env, Job};
use steadfast_format::SegmentId;
use steadfast_format::parity::ParitySegment;

use super::{Cover, Covered};
use crate::cell::PAYLOAD;
use crate::parity::{Error, Found, Search, Snapshot};
use crate::recover::Recovered;

/// Segments that are put back at once.
const WRITERS: usize = 16;

/// Outcome of a repair.
#[derive(Clone, Debug, Default)]
pub struct Repair {
    /// Cells that were looked at.
    pub cells: u64,
    /// Cells that the store had.
    pub held: u64,
    /// Segments that were put back whole, each with the bytes it had.
    pub restored: Vec<SegmentId>,
    /// Cells that came back from the journal.
    pub from_journal: u64,
    /// Cells that came back from the code, and those that did not.
    pub from_code: Found,
    /// Tiles that are not the sum of their cells.
    pub unsound: Vec<u32>,
    /// Times that all stores were read: more than one where memory was short.
    pub rounds: u32,
    /// Time from the last cell that was read until all were solved.
    pub solving: Duration,
}

pub(super) type Stores = BTreeMap<u16, (Arc<Covered>, Arc<Cover>)>;

/// Stores that a code covers, by number.
pub(super) fn stores_of(stores: &[Arc<Covered>]) -> Stores {
    let covers = stores.iter().filter_map(|store| Some((Arc::clone(store), store.covering()?)));
    covers.map(|(store, cover)| (cover.store, (store, cover))).collect()
}

/// Reads all of these stores, recovers what is missing or wrong, and puts whole segments back under
/// their names, with the bytes that they had. They must be all stores of one code: its tiles span
/// them. Cells that do not come back are named, and their segments are left as they are. If it is
/// cut off, and a store lacked objects of the journal, passes wait for the next one [por.25]. It
/// takes `memory` bytes at most, as far as one tile and one segment let it, and ends soon after
/// `stop` is true: what was put back by then stays. `watch` hears how many cells were looked at, of
/// how many. Puts go on meanwhile; passes wait [por.16].
///
/// # Errors
/// The parity is damaged, a store does not answer or does not take what came back, or it was
/// stopped.
pub fn repair(
    stores: &[Arc<Covered>],
    env: &Env,
    memory: u64,
    stop: &AtomicBool,
    watch: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Repair, Error> {
    let covers = stores_of(stores);
    let Some((_, first)) = covers.values().next() else { return Ok(Repair::default()) };
    let mut repair = Repair::default();
    let mut done = BTreeSet::new();
    let outcome = loop {
        let (snapshot, under_way) = {
            let parity = first.between_steps();
            (parity.snapshot(), under_way(&covers))
        };
        let limits = (memory, stop);
        match round((&snapshot, &under_way), &covers, env, limits, &mut done, &mut repair, watch) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // They wait on: their pass would empty the journal of what was not put back.
    outcome?;
    first.between_steps().settle_repair();
    // Those that could not leave the code before can leave it now. They are on the list until they
    // have left: where one fails, the others come later.
    for (store, cover) in covers.values() {
        // A delete that was told to wait holds the lock until it is on the list.
        let waiting = {
            let _parity = cover.parity();
            cover.state().waiting.all()
        };
        waiting.into_iter().map_while(|segment| store.try_waiting(cover, segment).ok()).for_each(drop);
    }
    Ok(repair)
}

/// Reads a segment as its store has it: nothing, if the store has none of it, refuses it, or is
/// silent about it while it answers other questions, lest a store that hides one object keep all
/// others from being recovered.
///
/// # Errors
/// [`Error::StoreAway`]: no answer came to anything. A store that is stopped would else be told to
/// have lost everything, and what it has be put again.
pub(super) fn read_stored(covers: &Stores, segment: ParitySegment, bytes: &mut Vec<u8>) -> Result<(), Error> {
    let Some((store, _)) = covers.get(&segment.store) else {
        bytes.clear();
        return Ok(());
    };
    match store.read_object(segment, bytes) {
        Ok(()) => return Ok(()),
        // With a status the store has answered, for this object.
        Err(source @ steadfast_device::Error::Away { status: None, .. }) if !store.answers() => {
            return Err(Error::StoreAway { source });
        }
        Err(_) => bytes.clear(),
    }
    Ok(())
}

/// Segments whose put has not succeeded yet: that a store lacks them tells nothing.
fn under_way(covers: &Stores) -> BTreeSet<(u16, SegmentId)> {
    let of_store = |(store, (_, cover)): (&u16, &(_, Arc<Cover>))| -> Vec<(u16, SegmentId)> {
        cover.state().under_way.keys().map(|segment| (*store, *segment)).collect()
    };
    covers.iter().flat_map(of_store).collect()
}

/// Recovers, and puts back as many segments as memory holds. True if there are more.
fn round(
    (snapshot, under_way): (&Snapshot, &BTreeSet<(u16, SegmentId)>),
    covers: &Stores,
    env: &Env,
    (memory, stop): (u64, &AtomicBool),
    done: &mut BTreeSet<ParitySegment>,
    repair: &mut Repair,
    watch: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<bool, Error> {
    let read = |segment: ParitySegment, bytes: &mut Vec<u8>| read_stored(covers, segment, bytes);
    // [por.25]
    let mirrored = |segment: ParitySegment| {
        let cover = covers.get(&segment.store).map(|(_, cover)| cover);
        let cover = cover.filter(|_| !under_way.contains(&(segment.store, segment.segment)));
        cover.into_iter().for_each(|cover| cover.parity_mut().owe_repair());
    };
    let search = &mut Search { env, memory, done, read: &read, mirrored: &mirrored, stop, watch };
    let outcome = snapshot.recover(search)?;
    if done.is_empty() {
        repair.cells = snapshot.cells();
        repair.held = outcome.held;
        repair.from_journal = outcome.from_journal;
        repair.from_code.recovered = outcome.from_code.recovered;
    }
    repair.rounds += outcome.rounds;
    repair.solving += outcome.solving;
    repair.unsound = outcome.unsound;
    (repair.from_code.undetermined, repair.from_code.refused) =
        (outcome.from_code.undetermined, outcome.from_code.refused);
    let lost = repair.from_code.undetermined.iter().chain(&repair.from_code.refused);
    let lost: BTreeSet<_> = lost.map(|id| (id.segment, id.store, id.opening)).collect();
    done.extend(outcome.back.keys().copied());
    let back = outcome.back.into_iter();
    let whole =
        back.filter(|(segment, _)| !lost.contains(&(segment.segment, segment.store, segment.opening)));
    let has_put = AtomicBool::new(false);
    let put = put_back(snapshot, covers, whole.collect(), env, (stop, &has_put));
    // [por.24]
    if let Some((_, any)) = covers.values().next()
        && (!lost.is_empty() || has_put.into_inner())
    {
        any.parity_mut().note_repair(!lost.is_empty());
    }
    let mut restored = put?;
    restored.sort_unstable();
    for segment in &restored {
        let Some((_, cover)) = covers.get(&segment.store) else { continue };
        let state = &mut *cover.state();
        if state.held_back.contains(segment) {
            state.held_back.retain(|held| held != segment);
            state.waiting.push(segment.segment);
        }
    }
    repair.restored.extend(restored.iter().map(|segment| segment.segment));
    repair.restored.sort_unstable();
    Ok(!outcome.postponed.is_empty())
}

/// Puts segments back, side by side. Those that were put. `has_put` is true from the first put on.
fn put_back(
    snapshot: &Snapshot,
    covers: &Stores,
    segments: Vec<(ParitySegment, Vec<Recovered>)>,
    env: &Env,
    (stop, has_put): (&AtomicBool, &AtomicBool),
) -> Result<Vec<ParitySegment>, Error> {
    let writers = WRITERS.min(segments.len());
    let segments: Vec<_> = segments.into_iter().rev().collect();
    let (left, restored) = (Mutex::new(segments), Mutex::new(Vec::new()));
    let failed = Mutex::new(None);
    let draw = || {
        while failed.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some((segment, cells)) = next else { return };
            let put = |segment, cells| match stop.load(Ordering::Relaxed) {
                true => Err(Error::Stopped),
                false => put(snapshot, covers, segment, cells, has_put),
            };
            match put(segment, &cells) {
                Ok(false) => {}
                Ok(true) => restored.lock().unwrap_or_else(PoisonError::into_inner).push(segment),
                Err(error) => {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        }
    };
    env.tasks.run_waiting((0..writers).map(|_| -> Job<'_> { Box::new(draw) }).collect());
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(restored.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Puts a segment back. False if it was not: it is being put, or its store gave other bytes for
/// the rest of it than before.
fn put(
    snapshot: &Snapshot,
    covers: &Stores,
    segment: ParitySegment,
    cells: &[Recovered],
    has_put: &AtomicBool,
) -> Result<bool, Error> {
    let Some((store, cover)) = covers.get(&segment.store) else { return Ok(false) };
    // One that is being put comes by itself.
    if cover.state().under_way.contains_key(&segment.segment) {
        return Ok(false);
    }
    let is_all = cells.len() == usize::from(segment.cells());
    let mut bytes = Vec::new();
    if !is_all {
        read_stored(covers, segment, &mut bytes)?;
    }
    bytes.resize(usize::from(segment.cells()) * PAYLOAD, 0);
    for cell in cells {
        bytes[usize::from(cell.id().index) * PAYLOAD..][..PAYLOAD].copy_from_slice(cell.payload());
    }
    bytes.truncate(segment.length as usize);
    // The rest was read again: what is put back is what entered the code. Of a store that gives
    // other bytes than before the journal may know better.
    if !snapshot.is_content(segment, &bytes)? {
        let is_mirrored = snapshot.read_mirror(segment, &mut bytes)?;
        if !is_mirrored || !snapshot.is_content(segment, &bytes)? {
            return Ok(false);
        }
    }
    let place = store.whole(segment.segment);
    if is_all {
        // Its put may have been under way when it was looked for. A right object is neither
        // deleted nor told as restored; a store takes the same object twice without a word.
        let mut there = Vec::new();
        if store.read_object(segment, &mut there).is_ok() && snapshot.is_content(segment, &there)? {
            return Ok(false);
        }
        has_put.store(true, Ordering::Relaxed);
        // One that is gone whole needs no delete.
        if store.inner.put_segment(place, &bytes).is_ok() {
            return Ok(true);
        }
    }
    has_put.store(true, Ordering::Relaxed);
    // A store never replaces an object; all of its bytes are in hand, and in the code.
    let put = store.inner.discard_segment(place).and_then(|()| store.inner.put_segment(place, &bytes));
    put.map_err(|source| Error::Store { source })?;
    Ok(true)
}
