//! A pass: brings all tiles to the end of the journal, a few at a time, and then moves the tail.
//!
//! Between two steps, and while one of them runs, records may come: they lie behind the pass's end
//! and belong to the next one [por.20].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_crypto::hash;
use steadfast_env::Tasks;
use steadfast_format::SegmentId;
use steadfast_format::parity::{ParityManifest, ParitySegment, RecordKind, check_of};

use super::contents::{Code, Entry, Next, Stored, WindowCell};
use super::device::ParityDevice;
use super::error::{Error, Result};
use super::rekey::Wish;
use super::step::{End, Running, Step, StepResult, StepWork, Sum, Taken, Tiles};

/// Outcome of a pass.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pass {
    /// Number for the anchor's record.
    pub generation: u64,
    /// Root of tiles and manifest, for the anchor's record.
    pub root: [u8; 32],
    /// Segments that left the code: once generation and root are anchored, they may be deleted.
    pub released: Vec<ParitySegment>,
}

/// Change of the code at the end of a pass.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Nothing,
    /// The header names another map from then on.
    Begin(Wish),
    /// The next code takes the place of the present one, whose tiles stay behind.
    Switch,
}

/// Objects at the store of the tiles that are needed, and as of when.
#[derive(Clone, Debug)]
pub struct Heads {
    /// Those that heads name.
    pub names: BTreeSet<SegmentId>,
    /// Number of the last pass.
    pub pass: u64,
    /// Number of the last pass when the device was opened.
    pub opened_at: u64,
}

/// One of the codes of a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Which {
    Present,
    Next,
}

/// State of a pass that is under way.
#[derive(Debug)]
pub(crate) struct Passing {
    /// End of the journal when it began, and the check of the record before it.
    end: u64,
    check: [u8; 32],
    /// Segments at that end, and records up to it.
    segments: BTreeSet<ParitySegment>,
    window: Arc<[Entry]>,
    pub change: Change,
    /// Tiles that were behind when it began.
    tiles: usize,
    present: Work,
    next: Work,
}

/// Work of a pass on a code.
#[derive(Debug, Default)]
struct Work {
    /// Cells of the window up to the pass's end, by tile.
    cells: BTreeMap<u32, Vec<WindowCell>>,
    /// Tiles that are behind; the next one is the last of the list.
    behind: Vec<u32>,
    /// The next one is a tile that its store did not give: it is tried alone.
    is_next_lost: bool,
}

impl Work {
    /// A tile was not stored: it is the next one once more.
    fn take_again(&mut self, tile: u32, cells: Vec<WindowCell>) {
        self.behind.push(tile);
        self.cells.insert(tile, cells);
    }
}

impl ParityDevice {
    /// Brings all tiles to the end of the journal and frees it.
    ///
    /// # Errors
    /// A tile or the journal is damaged, or the medium fails.
    pub fn pass(&mut self) -> Result<Pass> {
        loop {
            if let Some(pass) = self.pass_step()? {
                return Ok(pass);
            }
        }
    }

    /// A step of a pass, which begins one if none is under way: some tiles, or its end. Where a
    /// former opening was in a pass, that one goes on: tiles that it stored are not stored again.
    ///
    /// # Errors
    /// A tile or the journal is damaged, or the medium fails: the pass begins anew then, but for a
    /// tile at a store ([`ParityDevice::end_step`]). A recovery reads or is owed, or a step is
    /// running: it goes on later.
    pub fn pass_step(&mut self) -> Result<Option<Pass>> {
        let step = self.begin_step()?.ok_or(Error::StepRunning)?;
        self.end_step(step.run())
    }

    /// Steps do parts of their work beside each other from now on, as many as these tasks run at
    /// once: each more takes the memory of a tile. Decision 0290.
    pub fn work_beside(&mut self, tasks: Arc<dyn Tasks>) {
        self.tasks = Some(tasks);
    }

    /// Begins a step of a pass, which runs without the device. `None` if one is running
    /// [por.18].
    ///
    /// # Errors
    /// As of [`ParityDevice::pass_step`].
    pub fn begin_step(&mut self) -> Result<Option<Step>> {
        if self.is_step_running() {
            return Ok(None);
        }
        self.has_failed |= self.running.is_lost();
        if self.has_failed() {
            return Err(Error::Failed);
        }
        if self.is_pinned() {
            return Err(Error::Recovering);
        }
        // [por.25]
        if self.owes_repair {
            return Err(Error::RecoveryOwed);
        }
        let mut passing = self.passing.take().unwrap_or_else(|| self.begin_pass());
        let behind = [Which::Present, Which::Next].into_iter();
        let work = match behind.rev().rfind(|which| !passing.work(*which).behind.is_empty()) {
            Some(which) => StepWork::Tiles(self.take_tiles(which, &mut passing)),
            None => StepWork::End(Box::new(self.prepare_end(&passing))),
        };
        self.passing = Some(passing);
        Ok(Some(self.send(work)))
    }

    pub(super) fn send(&self, work: StepWork) -> Step {
        Step::begin(&self.running, self.now.source.clone(), self.header.pool, work)
    }

    /// Ends a step of a pass: what it stored is what the code has from now on [por.21].
    ///
    /// # Errors
    /// As of [`ParityDevice::pass_step`]. Where the store of the tiles fails, or does not give one,
    /// the pass goes on with the same tiles later, and with that one alone.
    ///
    /// # Panics
    /// If it began on another device.
    pub fn end_step(&mut self, result: StepResult) -> Result<Option<Pass>> {
        let (work, outcome) = result.end(&self.running);
        let is_taken_again = self.is_taken_again(&work, &outcome);
        // Its tiles are durable, or it says why not: so it ends beside a flush that failed, too.
        let ended = match work {
            _ if self.has_failed => Err(Error::Failed),
            StepWork::Tiles(tiles) => self.end_tiles(tiles, outcome, is_taken_again).map(|()| None),
            StepWork::End(end) => outcome.map(|()| Some(self.end_pass(*end))),
        };
        self.has_failed |= matches!(ended, Err(Error::Io { .. }));
        if !matches!(ended, Ok(None)) && !is_taken_again {
            self.passing = None;
        }
        ended
    }

    /// True if the step is to be taken again, and all that the pass stored stays: the store of the
    /// tiles failed, or lost one. A lost one of the next code is made again.
    fn is_taken_again(&self, work: &StepWork, outcome: &Result<()>) -> bool {
        let StepWork::Tiles(tiles) = work else { return false };
        match outcome {
            _ if self.has_failed => false,
            Err(Error::TileStore { .. } | Error::Inner { .. }) => true,
            Err(Error::TileDamaged(_)) => self.bodies().is_some() && tiles.which == Which::Present,
            _ => false,
        }
    }

    /// True if a step of a pass is running.
    #[must_use]
    pub fn is_step_running(&self) -> bool {
        self.running.is_step_running()
    }

    /// To wait until none is.
    #[must_use]
    pub fn running(&self) -> &Arc<Running> {
        &self.running
    }

    /// True if writers fill the journal faster than the pass under way brings tiles up to date. One
    /// that waits for a step then waits for no rest of the pass later, when the journal is full.
    /// Half of the room that there was when the pass began is filled at any rate; of the other half
    /// no more than the pass has done of its tiles.
    pub(crate) fn is_pass_behind(&self) -> bool {
        let Some(passing) = &self.passing else { return false };
        let left = passing.present.behind.len() + passing.next.behind.len();
        let done = passing.tiles.saturating_sub(left) as u128;
        let before = passing.end - self.header.journal_tail;
        let half = (self.now.source.geometry.journal_size - before) / 2;
        let beyond = (self.end - passing.end).saturating_sub(half);
        u128::from(beyond) * passing.tiles as u128 > u128::from(half) * done
    }

    /// A put waits for a pass, or finds no room in the journal: passes begin sooner from now on.
    pub(crate) fn note_full(&mut self) {
        self.came_in = self.now.source.geometry.journal_size;
    }

    /// True if a pass is under way or should begin: the rest of the journal is what writers may
    /// fill until it ends, judged by the last pass. The later it begins, the fewer bytes it moves
    /// for each byte of content.
    #[must_use]
    pub fn is_pass_due(&self) -> bool {
        let size = self.now.source.geometry.journal_size;
        let room = self.came_in.saturating_add(self.came_in / 4).clamp(size / 4, size / 2);
        self.is_passing() || self.journal_bytes() > size - room
    }

    /// True if a pass has begun and is not over.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        self.passing.is_some()
    }

    fn begin_pass(&mut self) -> Passing {
        let begun = self.begun.take().filter(|_| self.wish.is_none() && self.now.next.is_none());
        let (end, check) = begun.unwrap_or((self.end, self.last_check));
        let now = &self.now;
        let records = now.window.partition_point(|entry| entry.position < end);
        let change = match (&self.wish, &now.next) {
            (Some(wish), _) => Change::Begin(wish.clone()),
            (None, Some(next)) if next.code.unmade().next().is_none() => Change::Switch,
            (None, _) => Change::Nothing,
        };
        let work = |code: &Code, without: &BTreeSet<ParitySegment>, is_made: fn(&Stored) -> bool| {
            let is_behind =
                |tile: &u32| Some(code.tile(*tile)).is_some_and(|tile| is_made(tile) && tile.cut < end);
            let behind = (0..code.slots.tiles).rev().filter(is_behind).collect();
            Work { cells: now.window_cells(code, records, without), behind, is_next_lost: false }
        };
        // A code that goes, or is about to be begun anew, stays as it is.
        let present = match change {
            Change::Switch => Work::default(),
            _ => work(&now.code, &BTreeSet::new(), |_| true),
        };
        let next = match (&now.next, &change) {
            (Some(next), Change::Nothing | Change::Switch) => {
                work(&next.code, &next.left_out, |tile| tile.slot.is_some())
            }
            _ => Work::default(),
        };
        let mut segments = now.segments.clone();
        for Entry { kind, segment, .. } in now.window[records..].iter().rev() {
            match kind {
                RecordKind::Add => _ = segments.remove(segment),
                RecordKind::Remove => _ = segments.insert(*segment),
            }
        }
        let window = now.window[..records].into();
        let tiles = present.behind.len() + next.behind.len();
        Passing { end, check, segments, window, change, tiles, present, next }
    }

    /// The next tiles of a pass, no more than there are spare slots.
    fn take_tiles(&mut self, which: Which, passing: &mut Passing) -> Tiles {
        let needs_all = matches!(passing.change, Change::Switch);
        let (cut, window) = (passing.end, Arc::clone(&passing.window));
        let spare = self.code(which).map_or(1, |code| code.slots.spare().max(1)) as usize;
        let held = self.now.source.bodies.as_ref().map_or(spare, |bodies| bodies.at_once());
        let spare = spare.min(held);
        let Work { cells, behind, is_next_lost } = passing.work(which);
        // Each try would read and put the healthy ones, too.
        let spare = if std::mem::take(is_next_lost) { 1 } else { spare };
        let group = behind.split_off(behind.len().saturating_sub(spare)).into_iter().rev();
        let group: Vec<(u32, Sum)> =
            group.map(|tile| (tile, Sum::With(cells.remove(&tile).unwrap_or_default()))).collect();
        self.take(which, needs_all, (cut, window), group)
    }

    /// Takes slots for tiles that are to be stored, which no tile has.
    pub(super) fn take(
        &mut self,
        which: Which,
        needs_all: bool,
        (cut, window): (u64, Arc<[Entry]>),
        group: Vec<(u32, Sum)>,
    ) -> Tiles {
        // [por.20]
        assert!(window.iter().all(|entry| entry.position < cut), "[por.20]: records of the pass alone");
        let code = match which {
            Which::Present => &mut self.now.code,
            Which::Next => &mut self.now.next.as_mut().expect("there are tiles of it").code,
        };
        let tiles = group.into_iter().map(|(tile, sum)| {
            let (before, slot) = (*code.tile(tile), code.free.pop());
            let slot = slot.expect("as many spare slots as tiles of a group");
            Taken { tile, before, slot, sum, hash: None, read: None, former: None }
        });
        let tiles = tiles.collect();
        let (number, slots, pass) = (code.number, code.slots, self.header.sequence + 1);
        let tasks = self.tasks.clone();
        Tiles { which, needs_all, number, slots, cut, pass, window, tasks, tiles }
    }

    fn code(&self, which: Which) -> Option<&Code> {
        match which {
            Which::Present => Some(&self.now.code),
            Which::Next => self.now.next.as_ref().map(|next| &next.code),
        }
    }

    /// Puts stored tiles in the place of their former generations. If the room of the next code
    /// failed, that is given up.
    fn end_tiles(&mut self, mut ended: Tiles, outcome: Result<()>, is_taken_again: bool) -> Result<()> {
        let bodies = self.now.source.bodies.clone();
        let pass = self.header.sequence + 1;
        if matches!(outcome, Err(Error::NoRoom { .. })) {
            // The next header is without that code.
            let before = self.body_names();
            self.now.next = None;
            self.retire_unnamed(&before, pass);
            let of_step = &mut ended.tiles.iter().filter_map(Taken::body);
            bodies.iter().for_each(|bodies| bodies.retire(of_step, pass));
            return outcome;
        }
        let code = match ended.which {
            Which::Present => Some(&mut self.now.code),
            Which::Next => self.now.next.as_mut().map(|next| &mut next.code),
        };
        let code = code.expect("[por.18]: the code stays while a step runs");
        assert_eq!(code.number, ended.number, "[por.18]: the code stays while a step runs");
        let lost = match outcome {
            Err(Error::TileDamaged(tile)) => Some(tile),
            _ => None,
        };
        if lost.is_some() || (outcome.is_ok() && ended.which == Which::Present) {
            bodies.iter().for_each(|bodies| bodies.note_lost(lost));
        }
        // It is the next one.
        ended.tiles.sort_by_key(|taken| Some(taken.tile) == lost);
        for taken in ended.tiles {
            let body = taken.body();
            let Taken { tile, before, slot, sum, hash, .. } = taken;
            let is_used = code.tiles.iter().any(|stored| stored.slot == Some(slot));
            assert!(!is_used, "[por.19]: slot {slot} was of no tile");
            assert_eq!(code.tile(tile).generation, before.generation, "[por.18]: one step at a time");
            match (sum, hash, &outcome) {
                (Sum::Damaged, ..) => {
                    code.free.push(slot);
                    bodies.iter().for_each(|bodies| bodies.retire(&mut before.body().into_iter(), pass));
                    code.replace(tile, Stored::default());
                }
                (_, Some(hash), Ok(())) => {
                    let (generation, cut) = (before.generation + 1, ended.cut);
                    code.replace(tile, Stored { slot: Some(slot), generation, cut, hash });
                    bodies.iter().zip(body).for_each(|(bodies, name)| bodies.named(name));
                }
                // Where the medium failed, in this step or beside it, a head may name it.
                (_, _, Err(Error::Io { .. } | Error::Failed)) => code.free.push(slot),
                (sum, ..) => {
                    code.free.push(slot);
                    // No head ever named it.
                    bodies.iter().for_each(|bodies| bodies.retire(&mut body.into_iter(), 0));
                    if let (true, Sum::With(cells), Some(passing)) = (is_taken_again, sum, &mut self.passing)
                    {
                        let work = passing.work(ended.which);
                        work.take_again(tile, cells);
                        work.is_next_lost = lost.is_some();
                    }
                }
            }
        }
        outcome
    }

    /// Settles what the end of a pass stores. Units of tags are taken here; nobody reads them
    /// before it has ended.
    fn prepare_end(&mut self, passing: &Passing) -> End {
        let root = &self.root_key;
        let (mut segments, mut next) = (passing.segments.clone(), self.now.next.clone());
        match (&passing.change, &mut next) {
            (Change::Begin(wish), _) => {
                let code = Code::new(root, wish.number, wish.loss_ppm, wish.slots);
                let left_out = wish.left_out.intersection(&segments).copied().collect();
                next = Some(Next { code, left_out });
            }
            (Change::Switch, Some(next)) => segments.retain(|segment| !next.left_out.contains(segment)),
            // One that left the code is on no list any more.
            (_, Some(next)) => next.left_out.retain(|segment| segments.contains(segment)),
            (_, None) => {}
        }
        let is_switch = matches!(passing.change, Change::Switch);
        let mut tags = Vec::new();
        for Entry { position, kind, segment } in passing.window.iter().copied() {
            let is_new = kind == RecordKind::Add && segments.contains(&segment);
            if is_new && self.now.tags.units(&segment).is_none() {
                tags.push((segment, position, self.now.tags.place(segment).to_vec()));
            }
        }
        let code = next.as_ref().filter(|_| is_switch).map_or(&self.now.code, |next| &next.code);
        let mut header = self.header.clone();
        let other = next.as_ref().filter(|_| !is_switch);
        self.now.source.geometry.note(&mut header, code.place(), other.map(|next| next.code.place()));
        let manifest = ParityManifest {
            pool: self.header.pool,
            cut: passing.end,
            units: self.now.tags.units_of(&segments),
            segments: segments.into_iter().collect(),
            left_out: other.map(|next| next.left_out.clone()).unwrap_or_default(),
        };
        let manifest = manifest.encode(hash);
        // [por.24]
        header.recoveries = if is_switch { 0 } else { header.recoveries.saturating_add(self.recoveries) };
        let recoveries = self.recoveries;
        header.sequence += 1;
        header.manifest_area = 3 - header.manifest_area;
        (header.manifest_len, header.manifest_check) = (manifest.len() as u64, check_of(&manifest));
        (header.journal_tail, header.journal_prev) = (passing.end, passing.check);
        let has_begun = matches!(passing.change, Change::Begin(_));
        End { end: passing.end, header, manifest, tags, next, is_switch, has_begun, recoveries }
    }

    /// Objects at the store of the tiles that are needed now.
    #[must_use]
    pub fn heads(&self) -> Heads {
        Heads { names: self.body_names(), pass: self.header.sequence, opened_at: self.opened_at }
    }

    /// Objects at the store of the tiles that heads name.
    fn body_names(&self) -> BTreeSet<SegmentId> {
        if self.now.source.bodies.is_none() {
            return BTreeSet::new();
        }
        let next = self.now.next.iter().flat_map(|next| &next.code.tiles);
        self.now.code.tiles.iter().chain(next).filter_map(Stored::body).collect()
    }

    /// Those of `before` that no head names any more are stale once a header is durable [por.22].
    fn retire_unnamed(&self, before: &BTreeSet<SegmentId>, pass: u64) {
        let Some(bodies) = &self.now.source.bodies else { return };
        bodies.retire(&mut before.difference(&self.body_names()).copied(), pass);
    }

    fn end_pass(&mut self, ended: End) -> Pass {
        let End { end, header, mut next, is_switch, has_begun, recoveries, .. } = ended;
        let before = self.body_names();
        assert_eq!(header.sequence, self.header.sequence + 1, "[por.18]: one step at a time");
        self.header = header;
        // One may have ended since.
        self.recoveries -= recoveries;
        // Those of the manifest, which has them in memory's order.
        let passing = self.passing.take();
        let mut segments = passing.map(|passing| passing.segments).unwrap_or_default();
        if let (true, Some(next)) = (is_switch, &next) {
            segments.retain(|segment| !next.left_out.contains(segment));
        }
        self.now.tags.keep(&segments);
        if let Some(next) = next.take_if(|_| is_switch) {
            for segment in next.left_out.iter().filter(|segment| self.now.segments.contains(segment)) {
                self.cells -= u64::from(segment.cells());
                self.left_out.insert(*segment, self.header.sequence);
            }
            self.now.segments.retain(|segment| !next.left_out.contains(segment));
            self.now.code = next.code;
            self.owes_rekey = false;
        }
        self.now.next = next;
        let generation = self.header.sequence;
        self.retire_unnamed(&before, generation);
        self.bodies().iter().for_each(|bodies| bodies.note_lost(None));
        if has_begun {
            self.wish = None;
        }
        let removed = self.now.window.iter().filter(|entry| entry.kind == RecordKind::Remove);
        let removed = removed.filter(|entry| entry.position < end);
        let released: Vec<ParitySegment> = removed.map(|entry| entry.segment).collect();
        self.released.extend(released.iter().map(|segment| (*segment, generation)));
        self.shorten_window(end);
        self.came_in = (self.end - end).max(self.came_in / 2);
        self.root = self.stored_root();
        Pass { generation, root: self.root, released }
    }
}

impl Passing {
    fn work(&mut self, which: Which) -> &mut Work {
        match which {
            Which::Present => &mut self.present,
            Which::Next => &mut self.next,
        }
    }
}
