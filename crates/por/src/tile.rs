//! Tiles: rows of the code in memory, and batches of cells that are added to or taken from them.

use steadfast_device::Buffer;

use crate::cell::PAYLOAD;
use crate::code::{ROWS, Rows};
use crate::gather::{Lists, STRIP, Strip, ZERO, add, gather_by};
use crate::kernel::Kernel;
use crate::tag::Proven;

/// Strips of a cell.
pub(crate) const STRIPS: usize = PAYLOAD / STRIP;

/// A tile: 2,048 rows, each with the sum of its cells' contents and the sum of their tags.
///
/// In memory and where it is stored it lies by strips: the first 256 bytes of all rows, then the
/// next 256 of all rows, and so on; then the tags. So it is read and written from where it lies.
#[derive(Clone)]
pub struct Tile {
    /// As it is stored, but for the tags: those are written when it is to be stored.
    bytes: Buffer,
    pub(crate) tags: Vec<u128>,
}

/// Bytes of contents in a tile.
const CONTENTS: usize = ROWS * PAYLOAD;

impl Tile {
    /// Bytes of a tile.
    pub const SIZE: usize = ROWS * (PAYLOAD + 16);

    /// The tile of no cells.
    #[must_use]
    pub fn empty() -> Tile {
        // Memory that was used before need not come from the kernel.
        let mut bytes = Buffer::to_fill(Self::SIZE);
        bytes.fill(0);
        Tile { bytes, tags: vec![0; ROWS] }
    }

    pub(crate) fn strips(&self) -> &[Strip] {
        self.bytes[..CONTENTS].as_chunks().0
    }

    fn strips_mut(&mut self) -> &mut [Strip] {
        self.bytes[..CONTENTS].as_chunks_mut().0
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
        let (count, inputs) = (batch.rows.len(), batch.strips.as_chunks().0);
        for (at, rows) in self.strips_mut().chunks_exact_mut(ROWS).enumerate() {
            gather_by(kernel, &lists, &inputs[at * batch.stride..][..count], rows);
        }
        for (rows, tag) in batch.rows.iter().zip(&batch.tags) {
            rows.iter().for_each(|&row| self.tags[usize::from(row)] ^= tag);
        }
    }

    /// Adds another one, row by row, of which these are the stored bytes.
    pub(crate) fn add_bytes(&mut self, other: &[u8]) {
        assert_eq!(other.len(), Self::SIZE, "bytes of a tile");
        let (strips, tags) = other.split_at(CONTENTS);
        self.strips_mut().iter_mut().zip(strips.as_chunks().0).for_each(|(sum, strip)| add(sum, strip));
        self.tags.iter_mut().zip(tags_of(tags)).for_each(|(sum, tag)| *sum ^= tag);
    }

    /// Its bytes as they are stored.
    #[must_use]
    pub fn stored_bytes(&mut self) -> &[u8] {
        let tags = self.bytes[CONTENTS..].as_chunks_mut().0;
        tags.iter_mut().zip(&self.tags).for_each(|(bytes, tag)| *bytes = tag.to_le_bytes());
        &self.bytes
    }

    /// The tile of stored bytes.
    ///
    /// # Panics
    /// If they are not [`Tile::SIZE`] bytes.
    #[must_use]
    pub fn from_bytes(bytes: Buffer) -> Tile {
        assert_eq!(bytes.len(), Self::SIZE, "bytes of a tile");
        let tags = tags_of(&bytes[CONTENTS..]).collect();
        Tile { bytes, tags }
    }

    /// True if every row is zero: all that was added was taken out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strips().iter().all(|strip| *strip == ZERO) && self.tags.iter().all(|tag| *tag == 0)
    }
}

impl PartialEq for Tile {
    fn eq(&self, other: &Tile) -> bool {
        self.strips() == other.strips() && self.tags == other.tags
    }
}

impl Eq for Tile {}

impl std::fmt::Debug for Tile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tile").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}

fn tags_of(bytes: &[u8]) -> impl Iterator<Item = u128> {
    bytes.as_chunks().0.iter().map(|tag| u128::from_le_bytes(*tag))
}

/// Cells of one tile that are added or taken out together.
#[derive(Clone)]
pub struct Batch {
    capacity: usize,
    /// By strip, then by cell.
    strips: Buffer,
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
        let strips = Buffer::to_fill(STRIPS * stride * STRIP);
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
        let strips: &mut [Strip] = self.strips.as_chunks_mut().0;
        for (strip, bytes) in cell.payload().as_chunks::<STRIP>().0.iter().enumerate() {
            strips[strip * self.stride + at] = *bytes;
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
