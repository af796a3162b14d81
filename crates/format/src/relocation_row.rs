//! Relocation row: where a run of units that the cleaner moved lies now. FORMAT.md, "Relocation
//! row".

use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, SegmentId};

/// Value of a relocation row; its key in the meta tree is the segment and unit by which the run is
/// known.
///
/// | off | len | field    | meaning                                       |
/// |-----|-----|----------|-----------------------------------------------|
/// |   0 |   8 | segment  | segment in which the run lies now             |
/// |   8 |   4 | unit     | its first unit there                          |
/// |  12 |   4 | units    | length of the run in units, at least 1        |
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RelocationRow {
    /// Segment in which the run lies now.
    pub segment: SegmentId,
    /// First unit there.
    pub unit: u32,
    /// Length in units.
    pub units: u32,
}

impl RelocationRow {
    /// Offsets and lengths.
    pub const LAYOUT: Layout =
        Layout::new("relocation_row", &[("segment", 0, 8), ("unit", 8, 4), ("units", 12, 4)], &[]);
    /// Bytes of an encoded row.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();

    /// The row's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::ENCODED_SIZE] {
        assert!(self.segment.0 != 0 && self.units > 0);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("segment", self.segment.0).u32("unit", self.unit).u32("units", self.units).finish_array()
    }

    /// Reads a row.
    pub fn decode(bytes: &[u8]) -> Result<RelocationRow, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let row = RelocationRow {
            segment: SegmentId(from.u64("segment")),
            unit: from.u32("unit"),
            units: from.u32("units"),
        };
        if row.segment.0 == 0 {
            return Err(from.refuse("segment", 0u64));
        }
        if row.units == 0 {
            return Err(from.refuse("units", 0u64));
        }
        from.finish()?;
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_back_and_empty_runs_refused() {
        let row = RelocationRow { segment: SegmentId(9), unit: 3, units: 5 };
        assert_eq!(RelocationRow::decode(&row.encode()), Ok(row));
        assert!(RelocationRow::decode(&[0; 16]).is_err());
        assert!(RelocationRow::decode(&row.encode()[..15]).is_err());
    }
}
