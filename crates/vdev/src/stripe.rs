//! How the bytes of a segment lie in its columns. Arithmetic only.
//!
//! ```text
//! k = 3, p = 1          column 0   column 1   column 2   column 3
//! row 0                 chunk 0    chunk 1    chunk 2    parity of 0 to 2
//! row 1                 chunk 3    chunk 4    chunk 5    parity of 3 to 5
//! ```
//!
//! Byte b of the segment lies in chunk c = b / chunk size: in column c mod k, at (c / k) chunk
//! size + b mod chunk size. A column's chunks are contiguous, so a range of bytes is at most one
//! range in each column.

use std::ops::Range;

use crate::parity::{DATA_COLUMNS_MAX, PARITY_COLUMNS_MAX};

/// A raidz segment's shape.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Stripe {
    data: usize,
    parity: usize,
    chunk: usize,
}

/// A run of a segment's bytes within one chunk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Piece {
    /// Column it lies in.
    pub column: usize,
    /// Where in the column.
    pub at: usize,
    /// Which of the bytes asked for.
    pub bytes: Range<usize>,
}

impl Stripe {
    /// # Panics
    /// If there is no such stripe.
    #[must_use]
    pub fn new(data: usize, parity: usize, chunk: usize) -> Stripe {
        assert!((1..=DATA_COLUMNS_MAX).contains(&data) && (1..=PARITY_COLUMNS_MAX).contains(&parity));
        assert!(chunk.is_power_of_two() && data + parity <= DATA_COLUMNS_MAX + 1);
        Stripe { data, parity, chunk }
    }

    /// Columns that hold data.
    #[must_use]
    pub fn data(&self) -> usize {
        self.data
    }

    /// Columns that hold parity.
    #[must_use]
    pub fn parity(&self) -> usize {
        self.parity
    }

    /// All columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.data + self.parity
    }

    /// Bytes of a chunk.
    #[must_use]
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// Data bytes of a row.
    #[must_use]
    pub fn row(&self) -> usize {
        self.data * self.chunk
    }

    /// Bytes of each column of a segment of so many bytes.
    #[must_use]
    pub fn column_bytes(&self, segment_bytes: usize) -> usize {
        segment_bytes.div_ceil(self.row()) * self.chunk
    }

    /// Where bytes of the segment lie, chunk by chunk, ascending.
    pub fn pieces(&self, bytes: Range<usize>) -> impl Iterator<Item = Piece> + use<> {
        let Stripe { data, chunk, .. } = *self;
        let mut at = bytes.start;
        std::iter::from_fn(move || {
            if at >= bytes.end {
                return None;
            }
            let index = at / chunk;
            let end = bytes.end.min((index + 1) * chunk);
            let piece = Piece {
                column: index % data,
                at: index / data * chunk + at % chunk,
                bytes: at - bytes.start..end - bytes.start,
            };
            at = end;
            Some(piece)
        })
    }

    /// The part of each column that holds the rows of these bytes.
    #[must_use]
    pub fn rows(&self, bytes: &Range<usize>) -> Range<usize> {
        bytes.start / self.row() * self.chunk..bytes.end.div_ceil(self.row()) * self.chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_place_and_every_place_one_byte() {
        for (data, chunk, segment) in [(1, 4, 32), (3, 4, 60), (4, 8, 96), (5, 16, 81), (31, 2, 200)] {
            let stripe = Stripe::new(data, 1, chunk);
            let mut places = std::collections::BTreeSet::new();
            for byte in 0..segment {
                let pieces: Vec<Piece> = stripe.pieces(byte..byte + 1).collect();
                assert_eq!(pieces.len(), 1);
                assert!(pieces[0].at < stripe.column_bytes(segment), "{byte} of {segment}");
                assert!(stripe.rows(&(byte..byte + 1)).contains(&pieces[0].at));
                assert!(places.insert((pieces[0].column, pieces[0].at)));
            }
            // Ranges are what their bytes are.
            for start in 0..segment {
                for end in start..=segment {
                    let mut at = start;
                    for piece in stripe.pieces(start..end) {
                        for (index, byte) in piece.bytes.clone().enumerate() {
                            assert_eq!(start + byte, at);
                            let one = stripe.pieces(at..at + 1).next().unwrap();
                            assert_eq!((one.column, one.at), (piece.column, piece.at + index));
                            at += 1;
                        }
                    }
                    assert_eq!(at, end);
                }
            }
        }
    }

    #[test]
    fn a_unit_lies_in_one_column() {
        let stripe = Stripe::new(7, 2, 16 << 10);
        for unit in 0..1000 {
            assert_eq!(stripe.pieces(unit * 4096..(unit + 1) * 4096).count(), 1);
        }
    }

    #[test]
    fn columns_waste_less_than_a_row() {
        for data in 1..=DATA_COLUMNS_MAX {
            let stripe = Stripe::new(data, 1, 16 << 10);
            let taken = stripe.column_bytes(4 << 20) * data;
            assert!(taken >= 4 << 20 && taken < (4 << 20) + stripe.row(), "{data}");
        }
    }
}
