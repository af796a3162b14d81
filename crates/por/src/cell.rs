//! Cells: the unit that is tagged, coded, asked for and recovered.

use std::fmt;

use steadfast_format::SegmentId;

/// Bytes of content in a cell.
pub const PAYLOAD: usize = 4096;
/// Bytes of a tag.
pub const TAG: usize = 16;
/// Most cells of a segment: 64 MiB, the greatest slot of the format.
pub const CELLS_MAX: u16 = 1 << 14;

/// Content of a cell. The last cell of a segment is filled up with zeros.
pub type Payload = [u8; PAYLOAD];

/// Identity of a cell: it names one content for ever [por.1].
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CellId {
    /// Segment.
    pub segment: SegmentId,
    /// Random number of the opening of the pool under which the segment was written. A segment id
    /// that two openings of one root both use makes two identities.
    pub opening: u32,
    /// The store that holds this column of the segment: its number in the pool.
    pub store: u16,
    /// Number of the cell in its segment, below [`CELLS_MAX`].
    pub index: u16,
}

impl CellId {
    /// The identity as the input of a pseudorandom function. `draw` (0 to 3) tells apart several
    /// inputs of one cell; its two bits are those that an index never uses.
    #[must_use]
    pub fn block(&self, draw: u16) -> [u8; 16] {
        assert!(self.index < CELLS_MAX && draw < 4, "cell {} of a segment, draw {draw}", self.index);
        let mut block = [0; 16];
        block[..8].copy_from_slice(&self.segment.0.to_le_bytes());
        block[8..12].copy_from_slice(&self.opening.to_le_bytes());
        block[12..14].copy_from_slice(&self.store.to_le_bytes());
        block[14..].copy_from_slice(&(self.index | draw << 14).to_le_bytes());
        block
    }
}

impl fmt::Debug for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{:x}/{}/{}", self.segment.0, self.opening, self.store, self.index)
    }
}

/// Tag of a cell.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Tag(pub [u8; TAG]);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_part_of_an_identity_and_every_draw_makes_another_block() {
        let base = CellId { segment: SegmentId(5), opening: 6, store: 7, index: 8 };
        let others = [
            base,
            CellId { segment: SegmentId(6), ..base },
            CellId { opening: 7, ..base },
            CellId { store: 8, ..base },
            CellId { index: CELLS_MAX - 1, ..base },
        ];
        let blocks: HashSet<_> = others.iter().flat_map(|id| (0..4).map(|draw| id.block(draw))).collect();
        assert_eq!(blocks.len(), 20);
    }
}
