//! # The code TSX-9: tiled, sparse, exclusive or, nine rows a cell
//!
//! A secret function sends a cell's identity to one *tile* and to nine different *rows* of it. A
//! row is the sum of the cells that were sent there. So adding a cell and removing it are the same
//! nine sums, and nobody without the key knows which cells share a row.

use steadfast_crypto::prf::Prf;
use steadfast_crypto::{Key, derive};

use crate::cell::CellId;

/// Rows of a tile.
pub const ROWS: usize = 2048;
/// Rows of a cell.
pub const DEGREE: usize = 9;
/// Bits that name a row.
const ROW_BITS: u32 = ROWS.trailing_zeros();
const _: () = assert!(1 << ROW_BITS == ROWS);

/// Rows of a cell in its tile, all different.
pub type Rows = [u16; DEGREE];

/// Where a cell goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// Tile.
    pub tile: u32,
    /// Rows.
    pub rows: Rows,
}

/// The secret function.
#[derive(Debug)]
pub struct Map {
    prf: Prf,
    tiles: u32,
}

impl Map {
    /// The map of one generation: a full recovery writes the parity anew under the next one,
    /// because reading what is missing shows a store which cells were.
    ///
    /// # Panics
    /// If there are no tiles.
    #[must_use]
    pub fn new(root: &Key, generation: u64, tiles: u32) -> Map {
        assert!(tiles > 0, "a code has tiles");
        let key = derive(root, &generation.to_le_bytes(), "steadfast parity map v1");
        Map { prf: Prf::new(&key), tiles }
    }

    /// Number of tiles.
    #[must_use]
    pub fn tiles(&self) -> u32 {
        self.tiles
    }

    /// Where a cell goes.
    #[must_use]
    pub fn place(&self, id: CellId) -> Place {
        let mut blocks = [id.block(0), id.block(1)];
        self.prf.fill(&mut blocks);
        let [first, second] = blocks.map(u128::from_le_bytes);
        // The upper half of the first output chooses the tile: a multiplication instead of a
        // remainder, even to tiles / 2^64.
        let tile = ((first >> 64) * u128::from(self.tiles)) >> 64;
        let tile = u32::try_from(tile).expect("below the number of tiles");
        let mut rows = Distinct { rows: [0; DEGREE], count: 0 };
        rows.draw(first, 64);
        rows.draw(second, 128);
        // 16 numbers hold nine different ones except in one of some 10^13 cells.
        for draw in 2..4 {
            if rows.count < DEGREE {
                rows.draw(u128::from_le_bytes(self.prf.block(id.block(draw))), 128);
            }
        }
        Place { tile, rows: rows.complete() }
    }
}

/// Different rows, in the order in which they were drawn.
struct Distinct {
    rows: Rows,
    count: usize,
}

impl Distinct {
    fn draw(&mut self, mut bits: u128, count: u32) {
        for _ in 0..count / ROW_BITS {
            self.add(u16::try_from(bits % ROWS as u128).expect("below the number of rows"));
            bits >>= ROW_BITS;
        }
    }

    fn add(&mut self, row: u16) {
        if self.count < DEGREE && !self.rows[..self.count].contains(&row) {
            self.rows[self.count] = row;
            self.count += 1;
        }
    }

    /// The least rows fill up what 38 draws left open: not in the life of a universe.
    fn complete(mut self) -> Rows {
        (0..).take(2 * DEGREE).for_each(|row| self.add(row));
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_format::SegmentId;

    fn id(segment: u64, index: u16) -> CellId {
        CellId { segment: SegmentId(segment), opening: 1, store: 2, index }
    }

    #[test]
    fn tiles_and_rows_are_even_and_rows_differ() {
        let map = Map::new(&Key::from_bytes([1; 32]), 1, 7);
        let (mut of_tile, mut of_row) = ([0_u32; 7], vec![0_u32; ROWS]);
        let cells = 70_000_u32;
        for at in 0..cells {
            let place = map.place(id(u64::from(at / 2000), u16::try_from(at % 2000).unwrap()));
            of_tile[place.tile as usize] += 1;
            for (at, &row) in place.rows.iter().enumerate() {
                assert!(!place.rows[..at].contains(&row), "{:?}", place.rows);
                of_row[usize::from(row)] += 1;
            }
        }
        // Chi-square, with six and 2,047 degrees of freedom: means 6 and 2,047, deviations 3.5 and
        // 64. The rows of one cell differ, so its sum is below the mean.
        let chi = |counts: &[u32]| {
            let mean = counts.iter().sum::<u32>() as f64 / counts.len() as f64;
            counts.iter().map(|&count| (f64::from(count) - mean).powi(2) / mean).sum::<f64>()
        };
        assert!(chi(&of_tile) < 25.0, "{of_tile:?}");
        assert!((chi(&of_row) - 2047.0).abs() < 5.0 * 64.0, "{}", chi(&of_row));
    }

    #[test]
    fn key_generation_and_identity_each_change_the_place() {
        let place = |key, generation, id| Map::new(&Key::from_bytes([key; 32]), generation, 1000).place(id);
        let first = place(1, 1, id(1, 1));
        assert_eq!(first, place(1, 1, id(1, 1)));
        for other in
            [place(2, 1, id(1, 1)), place(1, 2, id(1, 1)), place(1, 1, id(1, 2)), place(1, 1, id(2, 1))]
        {
            assert_ne!(first.rows, other.rows);
        }
    }

    #[test]
    fn rows_differ_however_the_draws_fall() {
        let mut rows = Distinct { rows: [0; DEGREE], count: 0 };
        rows.draw(0, 128);
        rows.draw(u128::MAX, 128);
        assert_eq!((rows.count, rows.complete()), (2, [0, 2047, 1, 2, 3, 4, 5, 6, 7]));
    }
}
