//! Places on a parity device. docs/format/parity.md.

use steadfast_format::parity::{ParityHeader, ParityManifest, ParitySegment};

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

/// Places, as they follow from the header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Geometry {
    /// Cells that the code is made for.
    cells: u64,
    pub tiles: u32,
    pub manifest_size: u64,
    pub journal_size: u64,
}

impl Geometry {
    pub fn new(cells: u64, tiles: u32, journal_size: u64) -> Geometry {
        let mut geometry = Geometry { cells, tiles, manifest_size: 0, journal_size };
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

    pub fn of(header: &ParityHeader) -> Geometry {
        Geometry::new(header.cells, header.tiles, header.journal_size)
    }

    pub fn header(sequence: u64) -> u64 {
        sequence % 2 * BLOCK
    }

    pub fn manifest(&self, area: u32) -> u64 {
        (u64::from(area) - 1).saturating_mul(self.manifest_size).saturating_add(2 * BLOCK)
    }

    pub fn journal(&self) -> u64 {
        self.manifest(3)
    }

    pub fn slots(&self) -> u32 {
        self.tiles.saturating_add(self.spare())
    }

    pub fn spare(&self) -> u32 {
        self.tiles.min(SPARE_MAX)
    }

    /// Place of a slot of an area: 0 before the tags, 1 behind them.
    pub fn slot(&self, area: u32, slot: u32) -> u64 {
        let before = u64::from(slot).saturating_mul(BLOCK + Tile::SIZE as u64);
        let area = match area {
            0 => self.journal().saturating_add(self.journal_size),
            _ => self.tags(self.tag_units()),
        };
        area.saturating_add(before)
    }

    /// Place of a unit of tags.
    pub fn tags(&self, unit: u32) -> u64 {
        self.slot(0, self.slots()).saturating_add(u64::from(unit).saturating_mul(BLOCK))
    }

    /// Bytes of a device with the first area of slots.
    pub fn size(&self) -> u64 {
        self.tags(self.tag_units())
    }

    /// Bytes of a device with both areas of slots.
    pub fn size_of_both(&self) -> u64 {
        self.slot(1, self.slots())
    }

    /// Bytes that this header's parts take.
    pub fn size_for(&self, header: &ParityHeader) -> u64 {
        match (header.next_map, header.slot_area) {
            (None, 0) => self.size(),
            _ => self.size_of_both(),
        }
    }
}

/// Bytes of a record of the journal.
pub(crate) fn record_size(segment: &ParitySegment) -> u64 {
    let cells = u64::from(segment.cells());
    let tags = (cells * TAG as u64).next_multiple_of(BLOCK);
    BLOCK + cells * PAYLOAD as u64 + tags
}
