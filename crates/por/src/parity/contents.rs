//! Contents of a parity device at one moment, and how they are read. A copy stays readable beside
//! writers while no pass runs: records are appended to the journal, and nothing is overwritten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_crypto::{Key, hash};
use steadfast_device::Buffer;
use steadfast_format::SegmentId;
use steadfast_format::parity::{ParitySegment, RecordKind};

use super::bodies::name_of;
use super::device::{UNIT, ids, tags_at};
use super::error::{Error, Result};
use super::geometry::{CodePlace, Slots};
use super::source::Source;
use super::tags::TagArea;
use crate::cell::{TAG, Tag};
use crate::code::{Map, Rows};
use crate::tile::Tile;

/// Newest stored tile.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stored {
    pub slot: Option<u32>,
    pub generation: u64,
    pub cut: u64,
    pub hash: [u8; 32],
}

impl Stored {
    /// Object of the tile, if tiles lie at a store.
    pub fn body(&self) -> Option<SegmentId> {
        self.slot.map(|_| name_of(&self.hash))
    }

    /// Refuses bytes that are not those of its head.
    pub fn check(&self, tile: u32, bytes: &[u8]) -> Result<()> {
        match hash(bytes) == self.hash {
            true => Ok(()),
            false => Err(Error::TileDamaged(tile)),
        }
    }
}

/// Tiles of one map.
#[derive(Clone)]
pub(super) struct Code {
    /// Number of the map.
    pub number: u64,
    pub map: Arc<Map>,
    /// Cells in a million that may be lost.
    pub loss_ppm: u32,
    pub slots: Slots,
    pub tiles: Vec<Stored>,
    /// Slots that no tile has.
    pub free: Vec<u32>,
}

impl Code {
    /// A code of which no tile is stored.
    pub fn new(root: &Key, number: u64, loss_ppm: u32, slots: Slots) -> Code {
        Code {
            number,
            map: Arc::new(Map::new(root, number, slots.tiles)),
            loss_ppm,
            slots,
            tiles: vec![Stored::default(); slots.tiles as usize],
            free: (0..slots.count()).collect(),
        }
    }

    pub fn place(&self) -> CodePlace {
        CodePlace { number: self.number, loss_ppm: self.loss_ppm, slots: self.slots }
    }

    /// Lists the slots that no tile has.
    pub fn find_free(&mut self) {
        let used: BTreeSet<u32> = self.tiles.iter().filter_map(|tile| tile.slot).collect();
        self.free = (0..self.slots.count()).filter(|slot| !used.contains(slot)).collect();
    }

    pub fn tile(&self, tile: u32) -> &Stored {
        &self.tiles[tile as usize]
    }

    /// Puts what was stored in the place of an older generation, whose slot is free now.
    pub fn replace(&mut self, tile: u32, stored: Stored) {
        let before = std::mem::replace(&mut self.tiles[tile as usize], stored);
        self.free.extend(before.slot);
    }

    /// Tiles that are not stored.
    pub fn unmade(&self) -> impl Iterator<Item = usize> {
        (0..self.tiles.len()).filter(|&tile| self.tiles[tile].slot.is_none())
    }
}

/// The code that is being made.
#[derive(Clone)]
pub(super) struct Next {
    /// A tile without a slot is not made yet.
    pub code: Code,
    /// Segments that it leaves out.
    pub left_out: BTreeSet<ParitySegment>,
}

/// A record of the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub position: u64,
    pub kind: RecordKind,
    pub segment: ParitySegment,
}

/// A cell of the window: the entry that has it, and its number there.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowCell {
    pub entry: usize,
    pub index: u16,
    pub rows: Rows,
}

/// Contents of a parity device at one moment.
#[derive(Clone)]
pub(super) struct Contents {
    pub source: Source,
    pub code: Code,
    pub next: Option<Next>,
    pub window: Vec<Entry>,
    /// Where the journal has the contents of segments.
    pub mirror: BTreeMap<ParitySegment, u64>,
    pub tags: TagArea,
    /// Segments at the end of the journal.
    pub segments: BTreeSet<ParitySegment>,
}

impl Contents {
    /// The names here of a store's segment: one, or one for each opening that used its id.
    pub fn named(&self, segment: SegmentId, store: u16) -> impl Iterator<Item = ParitySegment> {
        let name = |opening| ParitySegment { segment, store, opening, length: 0 };
        let last = ParitySegment { length: u32::MAX, ..name(u32::MAX) };
        self.segments.range(name(0)..=last).copied()
    }

    /// Tags of a segment of the code, as they were made when it entered.
    ///
    /// # Errors
    /// The segment is not known, or the medium fails.
    pub fn stored_tags(&self, segment: ParitySegment) -> Result<Vec<Tag>> {
        let mut bytes = vec![0; usize::from(segment.cells()) * TAG];
        if let Some(&position) = self.mirror.get(&segment) {
            self.source.read_ring(tags_at(position, &segment), &mut bytes)?;
        } else {
            let units = self.tags.units(&segment).ok_or(Error::Unknown(segment))?;
            for (unit, out) in units.iter().zip(bytes.chunks_mut(UNIT)) {
                self.source.read_into(self.source.geometry.tags(*unit), out)?;
            }
        }
        Ok(bytes.as_chunks().0.iter().map(|tag| Tag(*tag)).collect())
    }

    /// Tag of one cell.
    ///
    /// # Errors
    /// As of [`ParityDevice::stored_tags`].
    pub fn stored_tag(&self, segment: ParitySegment, index: u16) -> Result<Tag> {
        let mut tag = [0; TAG];
        let offset = u64::from(index) * TAG as u64;
        if let Some(&position) = self.mirror.get(&segment) {
            self.source.read_ring(tags_at(position, &segment) + offset, &mut tag)?;
        } else {
            let units = self.tags.units(&segment).ok_or(Error::Unknown(segment))?;
            let (unit, within) = (offset / UNIT as u64, offset % UNIT as u64);
            let unit = units[usize::try_from(unit).expect("of a segment")];
            self.source.read_into(self.source.geometry.tags(unit) + within, &mut tag)?;
        }
        Ok(Tag(tag))
    }

    /// Cells of the window's first records by tile of a code, without those of some segments. Those
    /// that the stored tile includes are left out.
    pub fn window_cells(
        &self,
        code: &Code,
        records: usize,
        without: &BTreeSet<ParitySegment>,
    ) -> BTreeMap<u32, Vec<WindowCell>> {
        let mut cells: BTreeMap<u32, Vec<WindowCell>> = BTreeMap::new();
        for (at, entry) in self.window[..records].iter().enumerate() {
            if without.contains(&entry.segment) {
                continue;
            }
            for id in ids(entry.segment) {
                let place = code.map.place(id);
                if code.tile(place.tile).cut <= entry.position {
                    let cell = WindowCell { entry: at, index: id.index, rows: place.rows };
                    cells.entry(place.tile).or_default().push(cell);
                }
            }
        }
        cells
    }

    /// Cells by tile that the stored tile includes and a record of the window takes out.
    pub fn cells_leaving(&self) -> BTreeMap<u32, Vec<WindowCell>> {
        let mut cells: BTreeMap<u32, Vec<WindowCell>> = BTreeMap::new();
        let removed = self.window.iter().enumerate().filter(|(_, entry)| entry.kind == RecordKind::Remove);
        for (at, entry) in removed {
            for id in ids(entry.segment) {
                let place = self.code.map.place(id);
                let was_in = self.is_in_tile(entry.segment, place.tile, Some(entry.position));
                if was_in && self.code.tile(place.tile).cut <= entry.position {
                    let cell = WindowCell { entry: at, index: id.index, rows: place.rows };
                    cells.entry(place.tile).or_default().push(cell);
                }
            }
        }
        cells
    }

    /// True if the stored tile includes the cells of a segment that entered the code and did not
    /// leave it up to its cut. `left` is the record that takes it out, if there is one.
    pub fn is_in_tile(&self, segment: ParitySegment, tile: u32, left: Option<u64>) -> bool {
        // The first record of a segment is the one that adds it, unless that is behind the tail.
        let added = self.mirror.get(&segment).copied().filter(|first| Some(*first) != left);
        added.is_none_or(|added| added < self.code.tile(tile).cut)
    }

    /// Bytes of a stored tile, not checked yet; `None` if it was never stored.
    pub fn read_tile(&self, code: &Code, tile: u32) -> Result<Option<Buffer>> {
        self.source.read_tile(code.slots, code.tile(tile))
    }

    /// Refuses bytes of a stored tile that are not those of its head.
    pub fn check_tile(code: &Code, tile: u32, bytes: &[u8]) -> Result<()> {
        code.tile(tile).check(tile, bytes)
    }

    /// A tile's own bytes, of those that were stored, which are checked.
    pub fn open_tile(&self, code: &Code, tile: u32, stored: Buffer) -> Result<Buffer> {
        Self::check_tile(code, tile, &stored)?;
        self.source.opened(code.number, tile, stored)
    }

    /// Adds these cells of records to a sum, or takes them out.
    pub fn apply_window(&self, sum: &mut Tile, cells: &[WindowCell]) -> Result<()> {
        self.source.apply_window(&self.window, sum, cells)
    }
}
