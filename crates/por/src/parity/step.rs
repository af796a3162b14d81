//! A step of a pass: its work takes no lock. Decision 0258.
//!
//! ```text
//! [begins, lock held]→ runs: reads, sums, writes, flushes ─[ends, lock held]→ in memory
//! ```
//! All that a step reads and writes is settled when it begins: records up to the end of its
//! pass, slots that no tile has, units of tags and the area of a manifest that no header names. So
//! others add, remove, read and audit meanwhile. Invariants [por.18] to [por.21].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use steadfast_crypto::hash;
use steadfast_device::Buffer;
use steadfast_env::Tasks;
use steadfast_format::parity::{ParityHeader, ParitySegment, ParityTile};
use steadfast_format::{PoolGuid, SegmentId};

use super::bodies::name_of;
use super::contents::{Entry, Next, Stored, WindowCell};
use super::device::{UNIT, cell_id, padded, tags_at};
use super::error::{Error, Result};
use super::geometry::{BLOCK, Geometry, Slots};
use super::pass::Which;
use super::queue::Queue;
use super::recovery::{for_each, locked};
use super::source::{Source, UNFLUSHED};
use crate::cell::{PAYLOAD, TAG};
use crate::tile::{Batch, Tile};

/// Cells that a step has in memory at once, and those of one tile.
const CELLS_AT_ONCE: usize = 16384;
const BATCH: usize = 2048;
/// Cells of a record that are read at once at most, and those between two that are read with them
/// rather than by themselves: a copy of two cells takes as long as another read.
const SPAN: u16 = 256;
const GAP: u16 = 2;

/// Whether a step is running, and how to wait until it has ended.
#[derive(Default)]
pub struct Running {
    state: Mutex<State>,
    ended: Condvar,
    /// Those who change the journal while a pass is behind.
    queue: Queue,
}

#[derive(Default)]
struct State {
    is_running: bool,
    /// A thread is at work on it: it ends without anybody's help.
    is_at_work: bool,
    /// One was dropped before its end: nobody knows what it wrote.
    is_lost: bool,
}

impl Running {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_step_running(&self) -> bool {
        self.state().is_running
    }

    /// True if a step has begun and waits for its caller: so it does where nothing runs beside
    /// anything. A caller that waited for its end would wait for itself.
    pub(crate) fn is_waiting(&self) -> bool {
        let state = self.state();
        state.is_running && !state.is_at_work
    }

    /// Those who change the journal while a pass is behind: one after the other.
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// True if a step was dropped before its end, as by a panic.
    pub(super) fn is_lost(&self) -> bool {
        self.state().is_lost
    }

    /// Waits until no step is running. The device's lock must be free: the end of a step takes it.
    pub fn wait(&self) {
        let mut state = self.state();
        while state.is_running {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Marks that a step is running.
struct Mark {
    running: Arc<Running>,
    has_ended: bool,
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut state = self.running.state();
        (state.is_running, state.is_at_work) = (false, false);
        state.is_lost |= !self.has_ended;
        drop(state);
        self.running.ended.notify_all();
    }
}

/// A step of a pass that has begun.
pub struct Step {
    source: Source,
    pool: PoolGuid,
    work: StepWork,
    mark: Mark,
}

/// A step of a pass that has run and is to end.
pub struct StepResult {
    work: StepWork,
    outcome: Result<()>,
    mark: Mark,
}

pub(super) enum StepWork {
    Tiles(Tiles),
    End(Box<End>),
}

/// Tiles that are to be stored as new generations.
pub(super) struct Tiles {
    pub which: Which,
    /// One that is damaged ends the step, though it can be made again.
    pub needs_all: bool,
    /// Number of the map.
    pub number: u64,
    pub slots: Slots,
    pub cut: u64,
    /// Number of the pass.
    pub pass: u64,
    /// Records up to the end of the pass.
    pub window: Arc<[Entry]>,
    /// Those that run parts of the work beside each other.
    pub tasks: Option<Arc<dyn Tasks>>,
    pub tiles: Vec<Taken>,
}

/// A tile of a step.
pub(super) struct Taken {
    pub tile: u32,
    /// As it was stored when the step began.
    pub before: Stored,
    /// Slot for the new generation, which no tile has [por.10].
    pub slot: u32,
    pub sum: Sum,
    /// Hash of what is stored: once there is one, the slot has it, or the store.
    pub hash: Option<[u8; 32]>,
    /// The former body as the store has it, until it is used.
    pub read: Option<Vec<u8>>,
    /// The former body, which is the one that its head names.
    pub former: Option<Vec<u8>>,
}

impl Taken {
    /// Object of the new generation, if tiles lie at a store and it was put there.
    pub fn body(&self) -> Option<SegmentId> {
        self.hash.as_ref().map(name_of)
    }
}

/// Way to a tile's new sum.
pub(super) enum Sum {
    /// The stored one, and these cells of records.
    With(Vec<WindowCell>),
    /// The sum itself, until it is stored.
    Made(Option<Tile>),
    /// The stored one is damaged.
    Damaged,
}

/// A cell of the window, and the tile of the step that it belongs to.
type Wanted = (WindowCell, usize);

/// End of a pass.
pub(super) struct End {
    pub end: u64,
    pub header: ParityHeader,
    pub manifest: Vec<u8>,
    /// Tags that come from records: segment, position of its record, units.
    pub tags: Vec<(ParitySegment, u64, Vec<u32>)>,
    /// Contents of memory behind it.
    pub next: Option<Next>,
    pub is_switch: bool,
    pub has_begun: bool,
    /// Recoveries that the header counts, and the former one did not.
    pub recoveries: u32,
}

impl Step {
    pub(super) fn begin(running: &Arc<Running>, source: Source, pool: PoolGuid, work: StepWork) -> Step {
        let mut state = running.state();
        assert!(!state.is_running, "[por.18]: one step at a time");
        state.is_running = true;
        drop(state);
        Step { source, pool, work, mark: Mark { running: Arc::clone(running), has_ended: false } }
    }

    /// Does the work. The device's lock should be free.
    #[must_use]
    pub fn run(self) -> StepResult {
        let Step { source, pool, mut work, mark } = self;
        mark.running.state().is_at_work = true;
        let outcome = match &mut work {
            StepWork::Tiles(tiles) => tiles.store(&source, pool),
            StepWork::End(end) => end.store(&source),
        };
        mark.running.state().is_at_work = false;
        StepResult { work, outcome, mark }
    }
}

impl StepResult {
    /// Ends the step: the caller has the device's lock.
    pub(super) fn end(self, running: &Arc<Running>) -> (StepWork, Result<()>) {
        let StepResult { work, outcome, mut mark } = self;
        assert!(Arc::ptr_eq(running, &mark.running), "[por.18]: it ends where it began");
        mark.has_ended = true;
        (work, outcome)
    }
}

impl Tiles {
    /// [por.10], [por.11]
    fn store(&mut self, source: &Source, pool: PoolGuid) -> Result<()> {
        let mut tiles = std::mem::take(&mut self.tiles);
        let stored = tiles.chunk_by_mut(at_once()).try_for_each(|some| self.store_some(source, some));
        self.tiles = tiles;
        stored?;
        // Records are durable with the tiles, before a head says that they are in them: a crash
        // would leave a tile with cells that no record names.
        source.flush(self.cut)?;
        for taken in &self.tiles {
            let Some(hash_of_tile) = taken.hash else { continue };
            let head = ParityTile {
                tile: taken.tile,
                pool,
                map: self.number,
                generation: taken.before.generation + 1,
                cut: self.cut,
                hash: hash_of_tile,
            };
            self.write(source, self.slots.slot(taken.slot), &padded(head.encode(hash)))?;
        }
        source.flush(self.cut)?;
        // [por.22]
        if let Some(bodies) = &source.bodies {
            for taken in self.tiles.iter_mut().filter(|taken| taken.hash.is_some()) {
                match (taken.former.take(), taken.before.body()) {
                    (Some(bytes), Some(name)) => bodies.give_up(name, &bytes, self.pass),
                    (None, Some(name)) => bodies.retire(&mut std::iter::once(name), self.pass),
                    (_, None) => {}
                }
            }
        }
        Ok(())
    }

    fn write(&self, source: &Source, at: u64, bytes: &[u8]) -> Result<()> {
        match source.write(at, bytes) {
            Err(Error::Io { offset, source, .. }) if self.which == Which::Next => {
                Err(Error::NoRoom { offset, source })
            }
            outcome => outcome,
        }
    }

    /// Stores some tiles. Their cells are read together; the tiles pass through memory one by one,
    /// or as many beside each other as tasks run. Where they lie at a store, the former bodies are
    /// read side by side, and the new ones are put side by side: a round trip each.
    fn store_some(&self, source: &Source, tiles: &mut [Taken]) -> Result<()> {
        if let Some(bodies) = &source.bodies {
            bodies.check_inner(tiles.len())?;
            let is_there =
                |taken: &&mut Taken| matches!(taken.sum, Sum::With(_)) && taken.before.slot.is_some();
            let mut former: Vec<&mut Taken> = tiles.iter_mut().filter(is_there).collect();
            let hashes: Vec<[u8; 32]> = former.iter().map(|taken| taken.before.hash).collect();
            let read = bodies.read_each(&hashes)?;
            former.iter_mut().zip(read).for_each(|(taken, read)| taken.read = Some(read));
        }
        let sums: Vec<Mutex<Option<Collected<'_>>>> =
            tiles.iter_mut().map(|taken| Mutex::new(Some(Collected::of(taken)))).collect();
        self.add_window(source, &sums)?;
        let Some(bodies) = &source.bodies else {
            let unflushed = AtomicU64::new(0);
            return for_each(self.tasks.as_deref(), sums.len(), &|at| {
                let sum = locked(&sums[at]).take().expect("each is stored once");
                self.store_here(source, sum, &unflushed)
            });
        };
        let (mut away, mut sealed) = (Vec::new(), Vec::new());
        for sum in sums {
            let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
            let (taken, tile) = self.summed(source, sum.expect("each is stored once"))?;
            let Some(mut tile) = tile else { continue };
            sealed.push(bodies.sealed(self.number, taken.tile, tile.stored_bytes()));
            away.push(taken);
        }
        let (hashes, outcome) = bodies.put_each(&sealed);
        away.into_iter().zip(hashes).for_each(|(taken, hash)| taken.hash = hash);
        outcome
    }

    /// Stores a tile in its slot.
    fn store_here(&self, source: &Source, sum: Collected<'_>, unflushed: &AtomicU64) -> Result<()> {
        let (taken, tile) = self.summed(source, sum)?;
        let Some(mut tile) = tile else { return Ok(()) };
        let bytes = tile.stored_bytes();
        self.write(source, self.slots.slot(taken.slot) + BLOCK, bytes)?;
        taken.hash = Some(hash(bytes));
        // A flush of records beside the step waits for what others wrote, too.
        let written = bytes.len() as u64;
        if unflushed.fetch_add(written, Ordering::Relaxed) + written >= UNFLUSHED {
            unflushed.store(0, Ordering::Relaxed);
            source.flush(self.cut)?;
        }
        Ok(())
    }

    /// A tile with its cells of records.
    fn summed<'t>(&self, source: &Source, sum: Collected<'t>) -> Result<(&'t mut Taken, Option<Tile>)> {
        let Collected { taken, tile, batch } = sum;
        let mut tile = if tile.is_some() { tile } else { self.stored(source, taken)? };
        if let Some(tile) = tile.as_mut().filter(|_| !batch.is_empty()) {
            tile.apply(&batch);
        }
        Ok((taken, tile))
    }

    /// A tile as it is stored. One of the next code that is damaged is made again; the code does
    /// not take the place of the other one without it.
    fn stored(&self, source: &Source, taken: &mut Taken) -> Result<Option<Tile>> {
        let tile = match &mut taken.sum {
            Sum::Damaged => None,
            Sum::Made(tile) => tile.take(),
            Sum::With(_) => match (&source.bodies, taken.read.take()) {
                (Some(bodies), Some(read)) => {
                    let is_right = taken.before.check(taken.tile, &read).is_ok();
                    taken.former = is_right.then_some(read);
                    let former = taken.former.as_ref();
                    let opened = former.and_then(|read| bodies.opened(self.number, taken.tile, read));
                    opened.map(|bytes| Tile::from_bytes(bytes.into()))
                }
                _ => match source.read_tile(self.slots, &taken.before)? {
                    None => Some(Tile::empty()),
                    Some(bytes) => {
                        let is_right = taken.before.check(taken.tile, &bytes).is_ok();
                        is_right.then(|| Tile::from_bytes(bytes))
                    }
                },
            },
        };
        if tile.is_none() {
            if self.which == Which::Present {
                return Err(Error::TileDamaged(taken.tile));
            }
            taken.sum = Sum::Damaged;
            if self.needs_all {
                return Err(Error::TileDamaged(taken.tile));
            }
        }
        Ok(tile)
    }

    /// Collects cells of the window for tiles, record by record: most of a small code's tiles are
    /// in a group, and so are most cells of a record.
    fn add_window(&self, source: &Source, sums: &[Mutex<Option<Collected<'_>>>]) -> Result<()> {
        let mut wanted: Vec<Wanted> = Vec::new();
        for (at, sum) in sums.iter().enumerate() {
            let cells = locked(sum);
            let cells = cells.iter().flat_map(|sum| sum.taken.cells());
            wanted.extend(cells.map(|cell| (*cell, at)));
        }
        wanted.sort_unstable_by_key(|(cell, _)| (cell.entry, cell.index));
        let is_near =
            |(a, _): &Wanted, (b, _): &Wanted| (a.entry, a.index / SPAN) == (b.entry, b.index / SPAN);
        let records: Vec<&[Wanted]> = wanted.chunk_by(is_near).collect();
        for_each(self.tasks.as_deref(), records.len(), &|at| self.add_record(source, records[at], sums))
    }

    /// Collects cells of a part of a record.
    fn add_record(
        &self,
        source: &Source,
        record: &[Wanted],
        sums: &[Mutex<Option<Collected<'_>>>],
    ) -> Result<()> {
        let (first, last) = (record[0].0, record[record.len() - 1].0.index);
        let Entry { position, segment, .. } = self.window[first.entry];
        let tags = source.record_tags(position, segment, first.index..=last)?;
        let mut buffer = Buffer::to_fill((usize::from(last - first.index) + 1) * PAYLOAD);
        for wanted in record.chunk_by(|(a, _), (b, _)| b.index - a.index <= GAP + 1) {
            let (from, to) = (wanted[0].0.index, wanted[wanted.len() - 1].0.index);
            let payloads = &mut buffer.as_chunks_mut::<PAYLOAD>().0[..=usize::from(to - from)];
            source.record_payloads(position, from, payloads)?;
            for (cell, at) in wanted {
                let payload = &payloads[usize::from(cell.index - from)];
                let tag = tags[usize::from(cell.index - first.index)];
                let id = cell_id(segment, cell.index);
                let proven = source.keys.prove(id, payload, tag);
                let proven = proven.ok_or(Error::JournalDamaged(position))?;
                let mut sum = locked(&sums[*at]);
                let Collected { taken, tile, batch } = sum.as_mut().expect("none is stored yet");
                if batch.is_full() {
                    if tile.is_none() {
                        *tile = self.stored(source, taken)?;
                    }
                    tile.iter_mut().for_each(|tile| tile.apply(batch));
                    batch.clear();
                }
                batch.add(proven, cell.rows);
            }
        }
        Ok(())
    }
}

/// Cells that are to be added to a tile, and the tile itself once there was no more room for them.
struct Collected<'t> {
    taken: &'t mut Taken,
    tile: Option<Tile>,
    batch: Batch,
}

impl<'t> Collected<'t> {
    fn of(taken: &'t mut Taken) -> Collected<'t> {
        let batch = Batch::new(taken.cells().len().clamp(1, BATCH));
        Collected { taken, tile: None, batch }
    }
}

impl Taken {
    /// Cells of records that are to be added.
    fn cells(&self) -> &[WindowCell] {
        if let Sum::With(cells) = &self.sum { cells } else { &[] }
    }
}

/// True for tiles whose cells are in memory together.
fn at_once() -> impl FnMut(&Taken, &Taken) -> bool {
    let mut cells = None;
    move |first, next| {
        let together = cells.unwrap_or(first.cells().len()) + next.cells().len();
        cells = (together <= CELLS_AT_ONCE).then_some(together);
        cells.is_some()
    }
}

impl End {
    /// [por.11], [por.14]
    fn store(&self, source: &Source) -> Result<()> {
        for (segment, position, units) in &self.tags {
            let mut bytes = vec![0; units.len() * UNIT];
            let length = usize::from(segment.cells()) * TAG;
            source.read_ring(tags_at(*position, segment), &mut bytes[..length])?;
            for (unit, bytes) in units.iter().zip(bytes.chunks(UNIT)) {
                source.write(source.geometry.tags(*unit), bytes)?;
            }
        }
        source.write(source.geometry.manifest(self.header.manifest_area), &self.manifest)?;
        source.flush(self.end)?;
        source.write(Geometry::header(self.header.sequence), &padded(self.header.encode(hash)))?;
        source.flush(self.end)
    }
}
