//! A full recovery: every cell is read once, tiles are summed, and what is missing is solved for.
//!
//! Segments are read side by side, [`READERS`] at once. As many of them are worked on at a time as
//! there are processors: tags are checked, and cells are added to the sums of their tiles. The
//! stored tiles are read between them, so that stores have questions all the time. Those that are
//! asked for together come together: of a store of few segments a part is read at once
//! ([`READERS_LEAST`]), so that there is work while the others come. Tiles do not depend on each
//! other, so each is solved by itself on some processor.
//!
//! A cell that only the journal has, because its tile was stored before it came, is in no sum:
//! it is looked for at its store, and comes from the journal if it is not there.
//!
//! ## Memory
//! The sums of all tiles take 2.6 % of what the code is made for, contents of lost cells up to 2 %.
//! If that is more than the setting, tiles are summed in rounds, each of which reads all segments:
//! the first one finds where cells are missing, later ones take the tiles that have some and were
//! not summed before. Contents of the lost cells are kept for as many whole segments as fit; the
//! others are *postponed*: they come back when these are at the store again.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_device::Buffer;
use steadfast_env::{Env, Job, Tasks};
use steadfast_format::SegmentId;
use steadfast_format::parity::ParitySegment;

use super::contents::{Contents, WindowCell};
use super::device::{cell_id, ids};
use super::error::{Error, Result};
use crate::cell::{CellId, PAYLOAD, Payload};
use crate::code::{Place, Rows};
use crate::recover::{Recovered, Recovery, blank};
use crate::tag::Proven;
use crate::tile::{Batch, Tile};

/// Segments that are read at once at most.
const READERS: u64 = 32;
/// Segments that are read at once at least, if there are so many.
const READERS_LEAST: u64 = 8;
/// Cells that are added to a tile at once: the most for which memory holds all tiles. Each time,
/// all rows of the tile pass through the caches: for 512 cells that is nearly as much as their
/// nine sums.
const BATCHES: [usize; 3] = [2048, 1024, 512];

/// Bytes of memory for a tile: its sums, and the cells that wait to be added.
fn tile_bytes(batch: usize) -> u64 {
    (Tile::SIZE + batch * (PAYLOAD + 64)) as u64
}

/// The code at one moment, for a recovery that reads beside writers.
pub struct Snapshot {
    pub(super) now: Contents,
    pub(super) cells: u64,
    /// End of the journal then.
    pub(super) end: u64,
    /// While it is there, no pass runs.
    pub(super) _pin: Arc<()>,
}

/// Reads a segment as its store has it.
pub type ReadStored<'s> = dyn Fn(ParitySegment, &mut Vec<u8>) -> Result<()> + Sync + 's;

/// Way to search for what is missing.
pub struct Search<'s> {
    /// Clock and processors.
    pub env: &'s Env,
    /// Bytes of memory that it may take, if the code lets it: one tile and one segment it needs.
    pub memory: u64,
    /// Segments whose cells are counted only, and not given back.
    pub done: &'s BTreeSet<ParitySegment>,
    /// Fills in a segment as its store has it: less, or nothing, if the store has no more. The
    /// buffer may hold anything before. An error ends the search.
    pub read: &'s ReadStored<'s>,
    /// Hears of a segment of which the journal gave cells that its store has not, or has wrong.
    pub mirrored: &'s (dyn Fn(ParitySegment) + Sync),
    /// True once the recovery is to end.
    pub stop: &'s AtomicBool,
    /// Hears how many cells were looked at, of how many.
    pub watch: &'s mut (dyn FnMut(u64, u64) + Send),
}

/// Missing cells for which the code was asked. Each is counted or named once.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Cells that came back, each with its tag.
    pub recovered: u64,
    /// Cells that the rows do not determine: more was lost than the code covers.
    pub undetermined: Vec<CellId>,
    /// Cells whose solution has another tag: the tile is damaged, or not of this generation.
    pub refused: Vec<CellId>,
}

impl Found {
    /// True if every missing cell came back.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.undetermined.is_empty() && self.refused.is_empty()
    }
}

/// Outcome of a full recovery.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Cells that the store had.
    pub held: u64,
    /// Cells that came back from the journal.
    pub from_journal: u64,
    /// Cells that came back from the code, or did not.
    pub from_code: Found,
    /// Cells that came back, by segment.
    pub back: BTreeMap<ParitySegment, Vec<Recovered>>,
    /// Segments of which cells came back for which there was no memory.
    pub postponed: BTreeSet<ParitySegment>,
    /// Tiles that are not the sum of their cells: something is left when all are taken out. Not
    /// told of tiles with cells that did not come back.
    pub unsound: Vec<u32>,
    /// Times that all segments were read.
    pub rounds: u32,
    /// Time from the last cell that was read until all were solved.
    pub solving: Duration,
}

/// How memory is divided.
pub(super) struct Share {
    pub readers: usize,
    /// Tiles of a round.
    pub tiles: usize,
    /// Cells that are added to each at once.
    pub batch: usize,
    /// Bytes of lost cells.
    back: u64,
}

impl Share {
    /// For so many segments, of which the longest has so many bytes, and so many tiles.
    pub fn of(memory: u64, (segments, longest): (u64, u64), tiles: u64) -> Share {
        let wanted = (segments / 4).clamp(READERS_LEAST, READERS);
        let readers = (memory / 4 / longest.max(1)).clamp(1, wanted);
        let fit = |batch: usize| memory / 2 / tile_bytes(batch);
        let least = BATCHES[BATCHES.len() - 1];
        let batch = BATCHES.into_iter().find(|&batch| fit(batch) >= tiles).unwrap_or(least);
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Share { readers: count(readers), tiles: count(fit(batch).max(1)), batch, back: memory / 4 }
    }
}

/// A tile of the round.
pub(super) struct Sum {
    /// `None` until something is added.
    pub tile: Option<Tile>,
    pub batch: Batch,
    missing: Vec<(CellId, Rows)>,
}

impl Sum {
    pub fn new(batch: usize) -> Sum {
        Sum { tile: None, batch: Batch::new(batch), missing: Vec::new() }
    }

    /// True if nothing was added, and nothing is missing.
    fn is_blank(&self) -> bool {
        self.tile.is_none() && self.batch.is_empty() && self.missing.is_empty()
    }

    pub fn apply(&mut self) {
        self.tile.get_or_insert_with(Tile::empty).apply(&self.batch);
        self.batch.clear();
    }

    /// Adds the bytes of a stored tile.
    fn add(&mut self, stored: Buffer) {
        match &mut self.tile {
            None => self.tile = Some(Tile::from_bytes(stored)),
            Some(tile) => tile.add_bytes(&stored),
        }
    }
}

/// Work of a reader.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Work {
    /// Reads a segment and takes its cells out.
    Segment(ParitySegment),
    /// Adds a stored tile to its sum, which has this place in the round.
    Tile(usize),
}

/// The work of a round in its order: first as many segments as are read at once, then a tile now
/// and then.
fn works(segments: &[ParitySegment], tiles: usize, readers: usize) -> Vec<Work> {
    let (first, rest) = segments.split_at(readers.min(segments.len()));
    let mut works: Vec<Work> = first.iter().copied().map(Work::Segment).collect();
    let between = (rest.len() / tiles.max(1)).max(1);
    let mut tiles = (0..tiles).map(Work::Tile);
    for segments in rest.chunks(between) {
        works.extend(tiles.next());
        works.extend(segments.iter().copied().map(Work::Segment));
    }
    works.extend(tiles);
    works
}

/// Cells of a tile, as the last round that looked at it found them.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    held: u64,
    from_journal: u64,
    missing: u64,
}

/// Contents that are kept for segments.
struct Kept<'s> {
    back: BTreeMap<ParitySegment, Vec<Recovered>>,
    cells: u64,
    cells_max: u64,
    postponed: BTreeSet<ParitySegment>,
    done: &'s BTreeSet<ParitySegment>,
}

impl Kept<'_> {
    fn keep(&mut self, segment: ParitySegment, cell: Recovered) {
        if self.done.contains(&segment) || self.postponed.contains(&segment) {
            return;
        }
        self.back.entry(segment).or_default().push(cell);
        self.cells += 1;
        while self.cells > self.cells_max && self.back.len() > 1 {
            let (last, cells) = self.back.pop_last().expect("two at least");
            self.cells -= cells.len() as u64;
            self.postponed.insert(last);
        }
    }
}

/// As many turns as there are processors.
pub(super) struct Turns {
    free: Mutex<usize>,
    freed: Condvar,
}

pub(super) struct Turn<'t>(&'t Turns);

impl Turns {
    pub fn new(free: usize) -> Turns {
        Turns { free: Mutex::new(free.max(1)), freed: Condvar::new() }
    }

    pub fn take(&self) -> Turn<'_> {
        let mut free = locked(&self.free);
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *locked(&self.0.free) += 1;
        self.0.freed.notify_one();
    }
}

pub(super) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does some work for each number below `count`, on all processors or, without tasks, in turn. The
/// first error of some.
pub(super) fn for_each(
    tasks: Option<&dyn Tasks>,
    count: usize,
    work: &(dyn Fn(usize) -> Result<()> + Sync),
) -> Result<()> {
    let Some(tasks) = tasks.filter(|tasks| tasks.parallelism().min(count) > 1) else {
        return (0..count).try_for_each(work);
    };
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let draw = || {
        while locked(&failed).is_none() {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            if let Err(error) = work(at) {
                locked(&failed).get_or_insert(error);
            }
        }
    };
    let jobs = tasks.parallelism().min(count);
    tasks.run_all((0..jobs).map(|_| -> Job<'_> { Box::new(draw) }).collect());
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

impl Snapshot {
    /// Cells that the code covers.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.cells
    }

    /// The names here of a store's segment.
    pub fn named(&self, segment: SegmentId, store: u16) -> impl Iterator<Item = ParitySegment> {
        self.now.named(segment, store)
    }

    /// True if these are the bytes of the segment that entered the code.
    ///
    /// # Errors
    /// The medium fails.
    pub fn is_content(&self, segment: ParitySegment, content: &[u8]) -> Result<bool> {
        let mut content = content.to_vec();
        content.resize(usize::from(segment.cells()) * PAYLOAD, 0);
        let tags = self.now.stored_tags(segment)?;
        let mut cells = ids(segment).zip(content.as_chunks().0).zip(tags);
        Ok(cells.all(|((id, payload), tag)| self.now.source.keys.prove(id, payload, tag).is_some()))
    }

    /// Reads the content of a segment from the journal. False if the journal does not have it.
    ///
    /// # Errors
    /// The medium fails.
    pub fn read_mirror(&self, segment: ParitySegment, out: &mut [u8]) -> Result<bool> {
        let Some(&position) = self.now.mirror.get(&segment) else { return Ok(false) };
        self.now.source.read_mirrored(position, out).map(|()| true)
    }

    /// Reads every segment, and finds the cells that its store has not, or has wrong.
    ///
    /// # Errors
    /// The parity itself is damaged.
    pub fn recover(&self, search: &mut Search<'_>) -> Result<Outcome> {
        let leaving = self.now.cells_leaving();
        let segments: Vec<ParitySegment> = self.now.segments.iter().copied().collect();
        let longest = segments.iter().map(|segment| u64::from(segment.length)).max().unwrap_or(0);
        let tiles = self.now.code.tiles.len();
        let share = Share::of(search.memory, (segments.len() as u64, longest), tiles as u64);
        // A tile gets about as many cells as any other.
        let expected = usize::try_from(self.cells).unwrap_or(usize::MAX) / tiles.max(1);
        let batch = share.batch.min(expected.saturating_mul(2) + 1);
        let kept = Mutex::new(Kept {
            back: BTreeMap::new(),
            cells: 0,
            cells_max: share.back / PAYLOAD as u64,
            postponed: BTreeSet::new(),
            done: search.done,
        });
        let mut outcome = Outcome::default();
        let mut counts = vec![Count::default(); tiles];
        let mut rounds = vec![(0..tiles.min(share.tiles)).collect::<Vec<usize>>()];
        let mut at = 0;
        while at < rounds.len() {
            let of = self.cells * rounds.len() as u64;
            let round = Round {
                now: &self.now,
                segments: &segments,
                tiles: &rounds[at],
                leaving: &leaving,
                place: places(&rounds[at], tiles),
                is_first: at == 0,
                counts: Mutex::new(vec![Count::default(); tiles]),
                kept: &kept,
                sums: rounds[at].iter().map(|_| Mutex::new(Sum::new(batch))).collect(),
            };
            round.read(search, share.readers, (self.cells * at as u64, of))?;
            let began = search.env.clock.monotonic_ns();
            round.solve(search, &mut outcome)?;
            let solved = search.env.clock.monotonic_ns().saturating_sub(began);
            outcome.solving += Duration::from_nanos(solved);
            let found = round.counts.into_inner().unwrap_or_else(PoisonError::into_inner);
            if at == 0 {
                counts = found;
                let later = (share.tiles..tiles).filter(|&tile| counts[tile].missing > 0);
                let later: Vec<usize> = later.collect();
                rounds.extend(later.chunks(share.tiles).map(<[usize]>::to_vec));
            } else {
                rounds[at].iter().for_each(|&tile| counts[tile] = found[tile]);
            }
            at += 1;
        }
        outcome.rounds = u32::try_from(at).unwrap_or(u32::MAX);
        outcome.held = counts.iter().map(|count| count.held).sum();
        outcome.from_journal = counts.iter().map(|count| count.from_journal).sum();
        let kept = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        (outcome.back, outcome.postponed) = (kept.back, kept.postponed);
        outcome.from_code.undetermined.sort_unstable();
        outcome.from_code.refused.sort_unstable();
        outcome.unsound.sort_unstable();
        Ok(outcome)
    }
}

/// For each tile its place among those of the round.
pub(super) fn places(round: &[usize], tiles: usize) -> Vec<Option<usize>> {
    let mut places = vec![None; tiles];
    round.iter().enumerate().for_each(|(at, &tile)| places[tile] = Some(at));
    places
}

/// One reading of all segments.
struct Round<'r, 'k> {
    now: &'r Contents,
    segments: &'r [ParitySegment],
    /// The tiles that are summed.
    tiles: &'r [usize],
    /// Cells of records that stored tiles include still.
    leaving: &'r BTreeMap<u32, Vec<WindowCell>>,
    /// Place of each tile among those that are summed.
    place: Vec<Option<usize>>,
    /// Cells of other tiles are looked at, too.
    is_first: bool,
    counts: Mutex<Vec<Count>>,
    kept: &'r Mutex<Kept<'k>>,
    sums: Vec<Mutex<Sum>>,
}

impl Round<'_, '_> {
    fn read(&self, search: &mut Search<'_>, readers: usize, (before, of): (u64, u64)) -> Result<()> {
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let turns = Turns::new(search.env.tasks.parallelism());
        let looked_at = Mutex::new((before, &mut *search.watch));
        let (read, mirrored) = (search.read, search.mirrored);
        let works = works(self.segments, self.tiles.len(), readers);
        let draw = || {
            // Pages of a segment are asked of the system once, not for each segment.
            let mut bytes = Vec::new();
            while locked(&failed).is_none() {
                let done = match works.get(next.fetch_add(1, Ordering::Relaxed)) {
                    None => return,
                    Some(_) if search.stop.load(Ordering::Relaxed) => Err(Error::Stopped),
                    Some(Work::Tile(at)) => self.load(*at, &turns),
                    Some(Work::Segment(segment)) => {
                        let done = read(*segment, &mut bytes).and_then(|()| {
                            let _turn = turns.take();
                            self.take_out(*segment, &mut bytes)
                        });
                        if matches!(done, Ok(true)) {
                            mirrored(*segment);
                        }
                        let (count, watch) = &mut *locked(&looked_at);
                        *count += u64::from(segment.cells());
                        watch(*count, of);
                        done.map(drop)
                    }
                };
                if let Err(error) = done {
                    locked(&failed).get_or_insert(error);
                }
            }
        };
        let jobs = readers.min(works.len());
        search.env.tasks.run_waiting((0..jobs).map(|_| -> Job<'_> { Box::new(draw) }).collect());
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Adds a stored tile to its sum, without what left the code since.
    fn load(&self, at: usize, turns: &Turns) -> Result<()> {
        let tile = u32::try_from(self.tiles[at]).expect("tiles have four bytes");
        let stored = self.now.read_tile(&self.now.code, tile)?;
        let leaving = self.leaving.get(&tile).map_or(&[][..], Vec::as_slice);
        let _turn = turns.take();
        let stored = stored.map(|bytes| self.now.open_tile(&self.now.code, tile, bytes)).transpose()?;
        let sum = &mut *locked(&self.sums[at]);
        stored.into_iter().for_each(|bytes| sum.add(bytes));
        if !leaving.is_empty() {
            self.now.apply_window(sum.tile.get_or_insert_with(Tile::empty), leaving)?;
        }
        Ok(())
    }

    /// Takes the cells of a segment out of the sums, and notes those that are missing. True if the
    /// journal gave some.
    fn take_out(&self, segment: ParitySegment, bytes: &mut Vec<u8>) -> Result<bool> {
        let mut cells: Vec<(u16, Place)> = Vec::with_capacity(segment.cells().into());
        for id in ids(segment) {
            let place = self.now.code.map.place(id);
            if self.is_first || self.place[place.tile as usize].is_some() {
                cells.push((id.index, place));
            }
        }
        if cells.is_empty() {
            return Ok(false);
        }
        let tags = self.now.stored_tags(segment)?;
        let mirrored = self.now.mirror.get(&segment).copied();
        let here = bytes.len();
        bytes.resize(usize::from(segment.cells()) * PAYLOAD, 0);
        let payloads = bytes.as_chunks::<PAYLOAD>().0;
        let spare: Vec<OnceCell<Box<Payload>>> = payloads.iter().map(|_| OnceCell::new()).collect();
        // In the order in which they lie: memory comes faster so than tile by tile.
        let mut held: Vec<Option<Proven<'_>>> = vec![None; payloads.len()];
        for (index, _) in &cells {
            let at = usize::from(*index);
            if at * PAYLOAD < here {
                held[at] = self.now.source.keys.prove(cell_id(segment, *index), &payloads[at], tags[at]);
            }
        }
        // Those of a tile one after the other: its lock is taken once.
        cells.sort_unstable_by_key(|(_, place)| place.tile);
        let mut by_tile: Vec<&[(u16, Place)]> = cells.chunk_by(|a, b| a.1.tile == b.1.tile).collect();
        // Segments begin at different tiles, so that they do not wait for one another.
        let first = segment.segment.0 % by_tile.len() as u64;
        by_tile.rotate_left(usize::try_from(first).expect("below the number of tiles"));
        let mut counts = Vec::with_capacity(by_tile.len());
        for cells in by_tile {
            let tile = cells[0].1.tile as usize;
            let mut count = Count::default();
            let mut found: Vec<(Proven<'_>, Rows)> = Vec::with_capacity(cells.len());
            let mut missing: Vec<(CellId, Rows)> = Vec::new();
            let is_in = self.now.is_in_tile(segment, cells[0].1.tile, None);
            for &(index, place) in cells {
                let (id, at) = (cell_id(segment, index), usize::from(index));
                let prove = |payload| self.now.source.keys.prove(id, payload, tags[at]);
                if let Some(cell) = held[at] {
                    count.held += 1;
                    if is_in {
                        found.push((cell, place.rows));
                    }
                } else if let Some(position) = mirrored
                    && let Some(cell) = prove(self.journal_cell(position, segment, index, &spare[at])?)
                {
                    count.from_journal += 1;
                    if is_in {
                        found.push((cell, place.rows));
                    }
                    // Later rounds look at some tiles alone.
                    if self.is_first {
                        locked(self.kept).keep(segment, cell.into());
                    }
                } else if let (Some(position), false) = (mirrored, is_in) {
                    // No sum has it, and the journal does not have it as it was written.
                    return Err(Error::JournalDamaged(position));
                } else {
                    count.missing += 1;
                    missing.push((id, place.rows));
                }
            }
            counts.push((tile, count));
            let Some(sum) = self.place[tile] else { continue };
            let sum = &mut *locked(&self.sums[sum]);
            for (cell, rows) in found {
                sum.batch.add(cell, rows);
                if sum.batch.is_full() {
                    sum.apply();
                }
            }
            sum.missing.extend(missing);
        }
        let from_journal = counts.iter().any(|(_, count)| count.from_journal > 0);
        let all = &mut *locked(&self.counts);
        for (tile, count) in counts {
            all[tile].held += count.held;
            all[tile].from_journal += count.from_journal;
            all[tile].missing += count.missing;
        }
        Ok(from_journal)
    }

    /// A cell as the journal has it.
    fn journal_cell<'c>(
        &self,
        position: u64,
        segment: ParitySegment,
        index: u16,
        out: &'c OnceCell<Box<Payload>>,
    ) -> Result<&'c Payload> {
        let mut content = blank();
        self.now.source.record_cell(position, segment, index, &mut content)?;
        Ok(out.get_or_init(|| content))
    }

    /// Solves the tiles, each by itself.
    fn solve(&self, search: &Search<'_>, outcome: &mut Outcome) -> Result<()> {
        let outcome = Mutex::new(outcome);
        for_each(Some(&*search.env.tasks), self.tiles.len(), &|at| {
            if search.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let sum = &mut *locked(&self.sums[at]);
            if sum.is_blank() {
                return Ok(());
            }
            sum.apply();
            let Sum { tile, batch, missing } = sum;
            let tile = tile.as_mut().expect("something was added");
            // The same report, whichever segment came first.
            missing.sort_unstable_by_key(|(id, _)| *id);
            let Recovery { recovered, undetermined, refused } = tile.recover(missing, &self.now.source.keys);
            for cells in recovered.chunks(batch.capacity()) {
                batch.clear();
                for cell in cells.iter().filter_map(|cell| cell.prove(&self.now.source.keys)) {
                    batch.add(cell, self.now.code.map.place(cell.id()).rows);
                }
                tile.apply(batch);
            }
            let is_sound = !undetermined.is_empty() || !refused.is_empty() || tile.is_empty();
            {
                let outcome = &mut *locked(&outcome);
                if !is_sound {
                    outcome.unsound.push(u32::try_from(self.tiles[at]).expect("tiles have four bytes"));
                }
                outcome.from_code.recovered += recovered.len() as u64;
                outcome.from_code.undetermined.extend(undetermined);
                outcome.from_code.refused.extend(refused);
            }
            let kept = &mut *locked(self.kept);
            for cell in recovered {
                let id = cell.id();
                let mut named = self.now.named(id.segment, id.store);
                let segment = named.find(|known| known.opening == id.opening);
                kept.keep(segment.expect("cells of the code are of its segments"), cell);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_divided_so_that_one_round_is_enough_if_it_can_be() {
        const MIB: u64 = 1 << 20;
        let share = |memory: u64, segments: u64, tiles: u64| {
            let share = Share::of(memory * MIB, (segments, 8 * MIB), tiles);
            (share.readers, share.tiles, share.batch)
        };
        // Few segments are not all read at once.
        assert_eq!(share(4096, 31, 10), (8, 126, 2048));
        assert_eq!(share(4096, 64, 10).0, 16);
        assert_eq!(share(4096, 100_000, 10).0, 32);
        // Tiles come first: batches are as large as they leave room for.
        for (tiles, batch) in [(126, 2048), (127, 1024), (169, 1024), (170, 512), (203, 512), (10_000, 512)] {
            assert_eq!(share(4096, 64, tiles).2, batch, "{tiles} tiles");
        }
        // The least that works.
        assert_eq!(share(1, 64, 10), (1, 1, 512));
    }
}
