//! A re-key: the code is made anew under another map, beside the present one. Decision 0238.
//!
//! The tiles of the next code are made in rounds, as many as memory holds: each round reads all
//! segments, from the journal or from their stores. While it reads, no pass runs [por.16]; between
//! rounds passes bring made tiles to the end of the journal as those of the present code [por.17].
//!
//! Which segments are in the next code must not depend on the round. So those that it leaves out
//! are on the manifest before the first tile, and a round that lacks a cell of another one ends
//! the work: that is a case for a recovery, whose list of lost cells begins the next code anew.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use steadfast_env::{Job, Random};
use steadfast_format::SegmentId;
use steadfast_format::parity::ParitySegment;

use super::contents::{Code, Contents, Next};
use super::device::{ParityDevice, cell_id, ids, size};
use super::error::{Error, Result};
use super::geometry::Slots;
use super::pass::{Change, Which};
use super::recovery::{ReadStored, Search, Share, Snapshot, Sum, Turns, locked, places};
use super::step::{Step, StepWork, Sum as NewSum};
use crate::bound::Plan;
use crate::cell::PAYLOAD;
use crate::code::Place;
use crate::tag::Proven;
use crate::tile::Tile;

/// A code that is to be begun.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// Number of its map.
    pub number: u64,
    /// Cells in a million that may be lost.
    pub loss_ppm: u32,
    pub slots: Slots,
    pub left_out: BTreeSet<ParitySegment>,
}

/// Tiles of the next code, as of a snapshot.
pub struct MadeTiles {
    number: u64,
    cut: u64,
    /// Not stored yet; the next one is the last.
    tiles: Vec<(u32, Tile)>,
}

/// How far a re-key has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// The next pass begins it.
    Wished,
    /// So many tiles are not made.
    Making(u32),
    /// The next pass makes it the code.
    Complete,
}

impl ParityDevice {
    /// Wishes for a code under another map, without some segments: a pass begins it. One that is
    /// being made, and leaves out these segments at least, goes on. With `loss_ppm` it gives back
    /// so many cells in a million, and one that is being made for another loss does not go on;
    /// without it, as many as the one that is being made, or as the present one. The medium grows
    /// if it has no room.
    ///
    /// # Errors
    /// There is no room, or the medium fails.
    ///
    /// # Panics
    /// If a step is running: it may be about to end what is begun anew [por.18].
    pub fn begin_rekey(
        &mut self,
        left_out: &BTreeSet<ParitySegment>,
        loss_ppm: Option<u32>,
        random: &dyn Random,
    ) -> Result<()> {
        assert!(!self.is_step_running(), "[por.18]: a code is begun between steps");
        let left_out: BTreeSet<ParitySegment> = left_out.intersection(&self.now.segments).copied().collect();
        let wished = self.wish.as_ref().map(|wish| wish.loss_ppm);
        let next_loss = wished.or(self.now.next.as_ref().map(|next| next.code.loss_ppm));
        let loss_ppm = loss_ppm.or(next_loss).unwrap_or(self.header.loss_ppm);
        let goes_on = |next: &Next| left_out.is_subset(&next.left_out) && next.code.loss_ppm == loss_ppm;
        let is_under_way = self.now.next.as_ref().is_some_and(goes_on);
        if is_under_way && self.wish.is_none() {
            return Ok(());
        }
        let tiles = Plan::new(self.header.cells, f64::from(loss_ppm) / 1e6).tiles;
        let (geometry, present) = (self.now.source.geometry, self.now.code.slots);
        if let Some(bodies) = &self.now.source.bodies {
            bodies.check_room(u64::from(present.tiles) + u64::from(tiles))?;
        }
        let slots = geometry.beside(present, tiles);
        let (have, need) = (size(&*self.now.source.medium)?, geometry.size_with(present, Some(slots)));
        if have < need && self.now.source.medium.grow(need).is_err() {
            return Err(Error::NoRoomBeside {
                have,
                need,
                missing: self.now.source.medium.missing_for(need),
            });
        }
        let mut number = random.nonzero_u64();
        while number == self.header.map || Some(number) == self.header.next_map {
            number = random.nonzero_u64();
        }
        // A segment that is left out may come in again, with other bytes: by another name [por.1].
        self.opening = self.fresh_opening(random);
        // A pass that is under way may be about to end what is begun anew.
        self.passing = None;
        self.wish = Some(Wish { number, loss_ppm, slots, left_out });
        Ok(())
    }

    /// How far a re-key has come, if one is under way.
    #[must_use]
    pub fn rekey_stage(&self) -> Option<Stage> {
        if self.wish.is_some() {
            return Some(Stage::Wished);
        }
        let unmade = self.now.next.as_ref()?.code.unmade().count();
        match u32::try_from(unmade).expect("tiles have four bytes") {
            0 => Some(Stage::Complete),
            unmade => Some(Stage::Making(unmade)),
        }
    }

    /// Stores saw in a repair that objects came back, and that some did not if cells were lost.
    pub fn note_repair(&mut self, has_lost: bool) {
        // An inner code is never made anew.
        if self.is_inner {
            return;
        }
        self.owes_rekey |= has_lost;
        self.recoveries = self.recoveries.saturating_add(1);
    }

    /// True if a repair of this opening named lost cells, or stores saw too many of them, and the
    /// code was not made anew since.
    #[must_use]
    pub fn owes_rekey(&self) -> bool {
        self.owes_rekey || self.figures().is_map_used_up()
    }

    /// Segments that the code which is being made leaves out.
    #[must_use]
    pub fn left_out(&self) -> BTreeSet<ParitySegment> {
        self.now.next.as_ref().map(|next| next.left_out.clone()).unwrap_or_default()
    }

    /// Position from which on the journal keeps records.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.header.journal_tail
    }

    /// Number of the map of the code.
    #[must_use]
    pub fn map_number(&self) -> u64 {
        self.header.map
    }

    /// Begins a step that stores some tiles which a snapshot made, while that is there: it runs
    /// without the device, and [`ParityDevice::end_step`] ends it. `None` if none is left, or the
    /// next code was given up.
    pub fn begin_made(&mut self, made: &mut MadeTiles) -> Option<Step> {
        let next = self.now.next.as_ref().filter(|next| next.code.number == made.number)?;
        let spare = next.code.slots.spare().max(1) as usize;
        let held = self.now.source.bodies.as_ref().map_or(spare, |bodies| bodies.at_once());
        let group = made.tiles.split_off(made.tiles.len().saturating_sub(spare.min(held)));
        if group.is_empty() {
            return None;
        }
        assert!(!self.is_step_running(), "[por.18]: what is made is stored beside no pass");
        let group = group.into_iter().map(|(tile, sum)| (tile, NewSum::Made(Some(sum)))).collect();
        let tiles = self.take(Which::Next, false, (made.cut, Arc::new([])), group);
        Some(self.send(StepWork::Tiles(tiles)))
    }

    /// True if the segment leaves the list at the end of the pass under way, with the present code.
    pub(super) fn is_dropping(&self, segment: &ParitySegment) -> bool {
        let is_switch = self.passing.as_ref().is_some_and(|passing| matches!(passing.change, Change::Switch));
        is_switch && self.now.next.as_ref().is_some_and(|next| next.left_out.contains(segment))
    }

    /// A segment that a re-key left out is to be deleted: it may be when the pass that ended the
    /// re-key is anchored [por.13]. False if none left it out, or that pass is anchored.
    pub(crate) fn release_left_out(&mut self, segment: SegmentId, store: u16) -> bool {
        let of = |opening, length| ParitySegment { segment, store, opening, length };
        let left_out: Vec<(ParitySegment, u64)> =
            self.left_out.extract_if(of(0, 0)..=of(u32::MAX, u32::MAX), |_, _| true).collect();
        self.released.extend(&left_out);
        !left_out.is_empty()
    }

    /// The pass is anchored: what a re-key left out up to it may be deleted at once.
    pub(crate) fn forget_left_out(&mut self, store: u16, generation: u64) {
        self.left_out.retain(|segment, of| segment.store != store || *of > generation);
    }
}

impl Snapshot {
    /// Makes tiles of the next code, as many as memory holds: all segments are read once, but those
    /// that the journal has. `None` if none is left to be made.
    ///
    /// # Errors
    /// A segment has a cell that is not there, the medium fails, or it was stopped.
    pub fn make_tiles(&self, search: &mut Search<'_>) -> Result<Option<MadeTiles>> {
        let Some(next) = &self.now.next else { return Ok(None) };
        let segments: Vec<ParitySegment> =
            self.now.segments.iter().filter(|segment| !next.left_out.contains(segment)).copied().collect();
        let mut unmade: Vec<usize> = next.code.unmade().collect();
        if unmade.is_empty() {
            return Ok(None);
        }
        let longest = segments.iter().map(|segment| u64::from(segment.length)).max().unwrap_or(0);
        let share = Share::of(search.memory, (segments.len() as u64, longest), unmade.len() as u64);
        unmade.truncate(share.tiles);
        let tiles = next.code.tiles.len();
        let expected = usize::try_from(self.cells).unwrap_or(usize::MAX) / tiles.max(1);
        let batch = share.batch.min(expected.saturating_mul(2) + 1);
        let round = Round {
            now: &self.now,
            code: &next.code,
            place: places(&unmade, tiles),
            sums: unmade.iter().map(|_| Mutex::new(Sum::new(batch))).collect(),
        };
        round.read(search, &segments, share.readers)?;
        let sums = round.sums.into_iter().map(|sum| {
            let mut sum = sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
            sum.apply();
            sum.tile.expect("a batch was added")
        });
        let numbers = unmade.iter().map(|&tile| u32::try_from(tile).expect("tiles have four bytes"));
        let tiles: Vec<(u32, Tile)> = numbers.zip(sums).collect();
        Ok(Some(MadeTiles { number: next.code.number, cut: self.end, tiles }))
    }
}

/// One reading of all segments, for some tiles of the next code.
struct Round<'r> {
    now: &'r Contents,
    code: &'r Code,
    /// Place of each tile among those that are summed.
    place: Vec<Option<usize>>,
    sums: Vec<Mutex<Sum>>,
}

impl Round<'_> {
    fn read(&self, search: &mut Search<'_>, segments: &[ParitySegment], readers: usize) -> Result<()> {
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let turns = Turns::new(search.env.tasks.parallelism());
        let of: u64 = segments.iter().map(|segment| u64::from(segment.cells())).sum();
        let looked_at = Mutex::new((0, &mut *search.watch));
        let read = search.read;
        let draw = || {
            let mut bytes = Vec::new();
            while locked(&failed).is_none() {
                let Some(&segment) = segments.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                if search.stop.load(Ordering::Relaxed) {
                    locked(&failed).get_or_insert(Error::Stopped);
                    return;
                }
                let done = self.take_in(segment, &mut bytes, read, &turns);
                let (count, watch) = &mut *locked(&looked_at);
                *count += u64::from(segment.cells());
                watch(*count, of);
                if let Err(error) = done {
                    locked(&failed).get_or_insert(error);
                }
            }
        };
        let jobs = readers.min(segments.len());
        search.env.tasks.run_waiting((0..jobs).map(|_| -> Job<'_> { Box::new(draw) }).collect());
        failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Adds the cells of a segment to the sums.
    fn take_in(
        &self,
        segment: ParitySegment,
        bytes: &mut Vec<u8>,
        read: &ReadStored<'_>,
        turns: &Turns,
    ) -> Result<()> {
        let mut cells: Vec<(u16, Place)> = Vec::with_capacity(segment.cells().into());
        for id in ids(segment) {
            let place = self.code.map.place(id);
            if self.place[place.tile as usize].is_some() {
                cells.push((id.index, place));
            }
        }
        if cells.is_empty() {
            return Ok(());
        }
        if let Some(&position) = self.now.mirror.get(&segment) {
            bytes.resize(segment.length as usize, 0);
            self.now.source.read_mirrored(position, bytes)?;
        } else {
            read(segment, bytes)?;
        }
        let tags = self.now.stored_tags(segment)?;
        let _turn = turns.take();
        bytes.resize(usize::from(segment.cells()) * PAYLOAD, 0);
        let payloads = bytes.as_chunks::<PAYLOAD>().0;
        // In the order in which they lie, as a recovery does.
        let prove = |(index, place): &(u16, Place)| -> Option<(Proven<'_>, Place)> {
            let at = usize::from(*index);
            let cell = self.now.source.keys.prove(cell_id(segment, *index), &payloads[at], tags[at])?;
            Some((cell, *place))
        };
        let proven: Option<Vec<(Proven<'_>, Place)>> = cells.iter().map(prove).collect();
        let mut proven = proven.ok_or(Error::Missing(segment))?;
        proven.sort_unstable_by_key(|(_, place)| place.tile);
        let mut by_tile: Vec<&[(Proven<'_>, Place)]> = proven.chunk_by(|a, b| a.1.tile == b.1.tile).collect();
        // Segments begin at different tiles, so that they do not wait for one another.
        let first = segment.segment.0 % by_tile.len() as u64;
        by_tile.rotate_left(usize::try_from(first).expect("below the number of tiles"));
        for cells in by_tile {
            let sum = self.place[cells[0].1.tile as usize].expect("left out above");
            let sum = &mut *locked(&self.sums[sum]);
            for (cell, place) in cells {
                sum.batch.add(*cell, place.rows);
                if sum.batch.is_full() {
                    sum.apply();
                }
            }
        }
        Ok(())
    }
}
