//! Tiles: rows of the code in memory, and batches of cells that are added to or taken from them.

use crate::cell::PAYLOAD;
use crate::code::{ROWS, Rows};
use crate::gather::{Lists, STRIP, Strip, gather_by};
use crate::kernel::Kernel;
use crate::tag::Proven;

/// Strips of a cell.
pub(crate) const STRIPS: usize = PAYLOAD / STRIP;

/// A tile: 2,048 rows, each with the sum of its cells' contents and the sum of their tags.
///
/// In memory and where it is stored it lies by strips: the first 256 bytes of all rows, then the
/// next 256 of all rows, and so on; then the tags.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tile {
    pub(crate) strips: Vec<Strip>,
    pub(crate) tags: Vec<u128>,
}

impl Tile {
    /// Bytes of a tile.
    pub const SIZE: usize = ROWS * (PAYLOAD + 16);

    /// The tile of no cells.
    #[must_use]
    pub fn empty() -> Tile {
        Tile { strips: vec![Strip::ZERO; STRIPS * ROWS], tags: vec![0; ROWS] }
    }

    /// Adds the cells of a batch; a cell that is in the tile is taken out.
    pub fn apply(&mut self, batch: &Batch) {
        self.apply_by(Kernel::best(), batch);
    }

    /// Like [`Tile::apply`], by a kernel of the caller's choice.
    ///
    /// # Panics
    /// If the processor has no such kernel.
    pub fn apply_by(&mut self, kernel: Kernel, batch: &Batch) {
        let lists = Lists::of_outputs(ROWS, batch.rows.iter());
        let count = batch.rows.len();
        for (at, rows) in self.strips.chunks_exact_mut(ROWS).enumerate() {
            gather_by(kernel, &lists, &batch.strips[at * batch.stride..][..count], rows);
        }
        for (rows, tag) in batch.rows.iter().zip(&batch.tags) {
            rows.iter().for_each(|&row| self.tags[usize::from(row)] ^= tag);
        }
    }

    /// Adds another one, row by row, of which these are the stored bytes.
    pub(crate) fn add_bytes(&mut self, other: &[u8]) {
        assert_eq!(other.len(), Self::SIZE, "bytes of a tile");
        let (strips, tags) = other.split_at(ROWS * PAYLOAD);
        for (sum, strip) in self.strips.iter_mut().zip(strips.as_chunks::<STRIP>().0) {
            sum.0.iter_mut().zip(strip).for_each(|(sum, byte)| *sum ^= byte);
        }
        let tags = tags.as_chunks().0.iter().map(|tag| u128::from_le_bytes(*tag));
        self.tags.iter_mut().zip(tags).for_each(|(sum, tag)| *sum ^= tag);
    }

    /// Its bytes as they are stored.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::SIZE);
        self.strips.iter().for_each(|strip| bytes.extend_from_slice(&strip.0));
        self.tags.iter().for_each(|tag| bytes.extend_from_slice(&tag.to_le_bytes()));
        bytes
    }

    /// The tile of stored bytes.
    ///
    /// # Panics
    /// If they are not [`Tile::SIZE`] bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Tile {
        assert_eq!(bytes.len(), Self::SIZE, "bytes of a tile");
        let (strips, tags) = bytes.split_at(ROWS * PAYLOAD);
        Tile {
            strips: strips.as_chunks().0.iter().map(|strip| Strip(*strip)).collect(),
            tags: tags.as_chunks().0.iter().map(|tag| u128::from_le_bytes(*tag)).collect(),
        }
    }

    /// True if every row is zero: all that was added was taken out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strips.iter().all(|strip| *strip == Strip::ZERO) && self.tags.iter().all(|tag| *tag == 0)
    }
}

/// Cells of one tile that are added or taken out together.
#[derive(Clone, Debug)]
pub struct Batch {
    capacity: usize,
    /// By strip, then by cell.
    strips: Vec<Strip>,
    /// From a cell's strip to its next one. Odd, so that the strips of a cell fall into different
    /// sets of the caches.
    stride: usize,
    tags: Vec<u128>,
    rows: Vec<Rows>,
}

impl Batch {
    /// Room for so many cells.
    ///
    /// # Panics
    /// If there is no room.
    #[must_use]
    pub fn new(capacity: usize) -> Batch {
        assert!(capacity > 0, "a batch has room");
        let stride = capacity | 1;
        let strips = vec![Strip::ZERO; STRIPS * stride];
        Batch {
            capacity,
            strips,
            stride,
            tags: Vec::with_capacity(capacity),
            rows: Vec::with_capacity(capacity),
        }
    }

    /// Cells for which it has room.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Cells in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without a cell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// True if there is no room for another cell.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    /// Copies a cell in; `rows` are those of its place.
    ///
    /// # Panics
    /// If the batch is full.
    pub fn add(&mut self, cell: Proven<'_>, rows: Rows) {
        assert!(!self.is_full(), "a batch of {} cells is full", self.capacity);
        let at = self.rows.len();
        for (strip, bytes) in cell.payload().as_chunks::<STRIP>().0.iter().enumerate() {
            self.strips[strip * self.stride + at].0 = *bytes;
        }
        self.tags.push(u128::from_le_bytes(cell.tag().0));
        self.rows.push(rows);
    }

    /// Forgets the cells and keeps the room.
    pub fn clear(&mut self) {
        self.tags.clear();
        self.rows.clear();
    }
}
