//! Places on a parity device. docs/format/parity.md.

use std::collections::BTreeSet;

use steadfast_format::parity::{NextParity, ParityHeader, ParityManifest, ParityPlaces, ParitySegment};

use crate::cell::{PAYLOAD, TAG};
use crate::tile::Tile;

/// Bytes that heads and parts are rounded up to.
pub(crate) const BLOCK: u64 = 4096;
/// Cells for which a manifest has room for one segment, and segments beyond.
const CELLS_A_ROW: u64 = 32;
const ROWS_MORE: u64 = 4096;
/// Most spare slots: tiles that are written between two flushes.
const SPARE_MAX: u32 = 8;
/// Cells for which there is one unit of tags more than they fill, and units beyond: tags of a short
/// segment take a unit as well.
const CELLS_A_SHORT: u64 = 512;
const SHORT_MORE: u64 = 1024;

/// A code as a header names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodePlace {
    /// Number of the map.
    pub number: u64,
    /// Cells in a million that may be lost.
    pub loss_ppm: u32,
    pub slots: Slots,
}

/// Slots of one code: where they begin, and for how many tiles.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Slots {
    pub at: u64,
    pub tiles: u32,
    /// Heads alone: the tiles lie at a store.
    pub is_away: bool,
}

impl Slots {
    pub fn spare(self) -> u32 {
        self.tiles.min(SPARE_MAX)
    }

    pub fn count(self) -> u32 {
        self.tiles.saturating_add(self.spare())
    }

    /// Place of a slot.
    pub fn slot(self, slot: u32) -> u64 {
        let tile = if self.is_away { 0 } else { Tile::SIZE as u64 };
        let before = u64::from(slot).saturating_mul(BLOCK + tile);
        self.at.saturating_add(before)
    }

    pub fn end(self) -> u64 {
        self.slot(self.count())
    }
}

/// Places, as they follow from the header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Geometry {
    /// Cells that the code is made for.
    cells: u64,
    /// Tiles for which there is room before the tags.
    first_tiles: u32,
    pub manifest_size: u64,
    pub journal_size: u64,
    /// Bytes of the inner device, if the tiles lie at a store.
    inner_size: Option<u64>,
}

impl Geometry {
    pub fn new(cells: u64, first_tiles: u32, journal_size: u64, inner_size: Option<u64>) -> Geometry {
        let mut geometry = Geometry { cells, first_tiles, manifest_size: 0, journal_size, inner_size };
        let units = u64::from(geometry.tag_units()) * ParityManifest::UNIT_SIZE as u64;
        geometry.manifest_size = geometry
            .rows()
            .saturating_mul(ParityManifest::ROW_SIZE as u64)
            .saturating_add(ParityManifest::size(0, 0) as u64 + units)
            .div_ceil(BLOCK)
            .saturating_mul(BLOCK);
        geometry
    }

    /// Segments that a manifest has room for.
    pub fn rows(&self) -> u64 {
        (self.cells / CELLS_A_ROW).saturating_add(ROWS_MORE)
    }

    /// Units of the tag area.
    pub fn tag_units(&self) -> u32 {
        let full = self.cells / u64::from(ParitySegment::UNIT_TAGS);
        u32::try_from(full + self.cells / CELLS_A_SHORT + SHORT_MORE).unwrap_or(u32::MAX)
    }

    pub fn of(header: &ParityHeader, inner_size: Option<u64>) -> Geometry {
        let first_tiles = header.places.map_or(header.tiles, |places| places.first_tiles);
        Geometry::new(header.cells, first_tiles, header.journal_size, inner_size)
    }

    pub fn header(sequence: u64) -> u64 {
        sequence % 2 * BLOCK
    }

    /// The block that names the store of the tiles.
    pub const TILE_STORE: u64 = 2 * BLOCK;

    pub fn manifest(&self, area: u32) -> u64 {
        let first = Self::TILE_STORE + if self.is_away() { BLOCK } else { 0 };
        (u64::from(area) - 1).saturating_mul(self.manifest_size).saturating_add(first)
    }

    fn is_away(&self) -> bool {
        self.inner_size.is_some()
    }

    pub fn journal(&self) -> u64 {
        self.manifest(3)
    }

    /// The slots before the tags.
    pub fn first(&self) -> Slots {
        self.slots(self.journal().saturating_add(self.journal_size), self.first_tiles)
    }

    fn slots(&self, at: u64, tiles: u32) -> Slots {
        Slots { at, tiles, is_away: self.is_away() }
    }

    /// Place of a unit of tags.
    pub fn tags(&self, unit: u32) -> u64 {
        self.first().end().saturating_add(u64::from(unit).saturating_mul(BLOCK))
    }

    /// Bytes of a device with the slots before the tags alone.
    pub fn size(&self) -> u64 {
        self.inner().saturating_add(self.inner_size.unwrap_or(0))
    }

    /// Where the inner device begins.
    pub fn inner(&self) -> u64 {
        self.tags(self.tag_units())
    }

    /// The first and the last block of each part.
    pub fn edges(&self) -> BTreeSet<u64> {
        let parts = [0, BLOCK, Self::TILE_STORE, self.manifest(1), self.manifest(2), self.journal()];
        let begin = parts.into_iter().chain([self.first().at, self.tags(0), self.inner(), self.size()]);
        let begin: BTreeSet<u64> = begin.collect();
        let last = begin.iter().filter_map(|begin| begin.checked_sub(BLOCK)).collect::<Vec<u64>>();
        begin.into_iter().filter(|begin| *begin < self.size()).chain(last).collect()
    }

    /// Where a code of so many tiles goes while another one is there: before the tags if there is
    /// room, else behind them, before the other one or behind it.
    pub fn beside(&self, present: Slots, tiles: u32) -> Slots {
        let (first, behind) = (self.first(), self.slots(self.size(), tiles));
        if present.at != first.at && tiles <= first.tiles {
            return Slots { tiles, ..first };
        }
        match present.at == first.at || behind.end() <= present.at {
            true => behind,
            false => self.slots(present.end(), tiles),
        }
    }

    /// Slots of the code, and of the one that is being made.
    pub fn slots_of(&self, header: &ParityHeader) -> (Slots, Option<Slots>) {
        let area = |area| if area == 0 { self.first().at } else { self.size() };
        match header.places {
            None => {
                let slots = |at| self.slots(at, header.tiles);
                let next = header.next_map.map(|_| slots(area(1 - header.slot_area)));
                (slots(area(header.slot_area)), next)
            }
            Some(places) => {
                let next = places.next.map(|next| self.slots(next.slots_at, next.tiles));
                (self.slots(places.slots_at, header.tiles), next)
            }
        }
    }

    /// Notes the codes in a header: as software that knows of one size alone does, if it can.
    pub fn note(&self, header: &mut ParityHeader, code: CodePlace, next: Option<CodePlace>) {
        (header.map, header.loss_ppm, header.tiles) = (code.number, code.loss_ppm, code.slots.tiles);
        header.next_map = next.map(|next| next.number);
        let (first, behind) = (self.first().at, self.size());
        let other = if code.slots.at == first { behind } else { first };
        let is_alike = |next: CodePlace| {
            (next.slots, next.loss_ppm) == (Slots { at: other, ..code.slots }, code.loss_ppm)
        };
        let is_plain = code.slots.tiles == self.first_tiles
            && [first, behind].contains(&code.slots.at)
            && next.is_none_or(is_alike);
        header.slot_area = u32::from(is_plain && code.slots.at == behind);
        header.places = (!is_plain).then(|| ParityPlaces {
            first_tiles: self.first_tiles,
            slots_at: code.slots.at,
            next: next.map(|next| NextParity {
                loss_ppm: next.loss_ppm,
                tiles: next.slots.tiles,
                slots_at: next.slots.at,
            }),
        });
    }

    /// Bytes of a device with these codes.
    pub fn size_with(&self, code: Slots, next: Option<Slots>) -> u64 {
        self.size().max(code.end()).max(next.map_or(0, Slots::end))
    }

    /// Bytes that this header's parts take.
    pub fn size_for(&self, header: &ParityHeader) -> u64 {
        let (code, next) = self.slots_of(header);
        self.size_with(code, next)
    }
}

/// Bytes of a record of the journal.
pub(crate) fn record_size(segment: &ParitySegment) -> u64 {
    let cells = u64::from(segment.cells());
    let tags = (cells * TAG as u64).next_multiple_of(BLOCK);
    BLOCK + cells * PAYLOAD as u64 + tags
}
