//! Sizes of a parity device that is to be made.

use steadfast_crypto::Key;
use steadfast_format::parity::ParitySegment;
use steadfast_format::{PoolGuid, SegmentId};

use super::bodies::{CELLS, MORE, SEALED};
use super::geometry::{BLOCK, Geometry, record_size};
use crate::bound::Plan;
use crate::cell::PAYLOAD;

/// Cells in a million of the bodies that may be lost, and whole bodies at least.
const LOSS_PPM: u64 = 20_000;
const LOST_LEAST: u64 = 2;
/// Codes whose bodies fit in the inner code, with some more that are on their way.
const CODES: u64 = 2;
/// The inner journal has room for a sixteenth of the bodies; for so many records at most where that
/// is less, and for two of each tile at least.
const JOURNAL_PART: u64 = 16;
const JOURNAL_RECORDS: u64 = 24;

/// Purpose of a new parity device.
#[derive(Clone, Copy, Debug)]
pub struct Creation<'k> {
    /// Pool.
    pub pool: PoolGuid,
    /// Cells that the pool can hold.
    pub cells: u64,
    /// Cells in a million that may be lost.
    pub loss_ppm: u32,
    /// Bytes of the journal's ring, rounded up to 4,096.
    pub journal_bytes: u64,
    /// Key to derive the code's keys from, if the pool is sealed. Without it a random one is stored
    /// on the device.
    pub key: Option<&'k Key>,
    /// The tiles lie at a store.
    pub is_away: bool,
}

impl Creation<'_> {
    pub(super) fn tiles(&self) -> u32 {
        Plan::new(self.cells, f64::from(self.loss_ppm) / 1e6).tiles
    }

    /// The code of most cells for which a device of so many bytes has room; `None` if none has.
    #[must_use]
    pub fn fitting(self, bytes: u64) -> Option<Self> {
        let fits = |cells: u64| Creation { cells, ..self }.bytes() <= bytes;
        let (mut fit, mut beyond) = (0, bytes.div_ceil(PAYLOAD as u64).saturating_mul(1000));
        while beyond - fit > 1 {
            let middle = fit + (beyond - fit) / 2;
            if fits(middle) { fit = middle } else { beyond = middle }
        }
        (fit > 0).then_some(Creation { cells: fit, ..self })
    }

    /// Bytes that the device needs.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.geometry().size()
    }

    pub(super) fn geometry(&self) -> Geometry {
        let journal_size = self.journal_bytes.max(1).next_multiple_of(BLOCK);
        Geometry::new(self.cells, self.tiles(), journal_size, self.inner_size())
    }

    /// Bytes of the inner device, if the tiles lie at a store.
    pub(super) fn inner_size(&self) -> Option<u64> {
        self.is_away.then(|| inner_creation(self.pool, self.tiles(), None).bytes())
    }
}

/// Purpose of the inner device for so many tiles.
pub(super) fn inner_creation(pool: PoolGuid, tiles: u32, key: Option<&Key>) -> Creation<'_> {
    let tiles = u64::from(tiles);
    let records = (tiles / JOURNAL_PART).max((2 * tiles + 2).min(JOURNAL_RECORDS));
    let length = u32::try_from(SEALED).expect("bytes of a tile");
    let segment = ParitySegment { segment: SegmentId(1), store: 1, opening: 1, length };
    let bodies = CODES.saturating_mul(tiles).saturating_add(MORE);
    let loss_ppm = LOSS_PPM.max((LOST_LEAST * 1_000_000).div_ceil(bodies));
    Creation {
        pool,
        cells: bodies.saturating_mul(CELLS),
        loss_ppm: u32::try_from(loss_ppm).expect("far below a million"),
        journal_bytes: records.saturating_mul(record_size(&segment)),
        key,
        is_away: false,
    }
}
