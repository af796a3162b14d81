//! Segment row: where a segment lies, whose it is, how far it is filled, and what of it is dead. FORMAT.md, "Segment row".

use crate::layout::{Decoder, Encoder, Layout};
use crate::{DatasetId, DecodeError, DeviceId};

/// One place of a segment. Redundant segments will have several.
///
/// | off | len | field    | meaning                    |
/// |-----|-----|----------|----------------------------|
/// |   0 |   8 | device   | device, from 1             |
/// |   8 |   4 | slot     | slot of that device, from 0|
/// |  12 |   4 | reserved | zero                       |
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Column {
    /// Device.
    pub device: DeviceId,
    /// Slot of that device.
    pub slot: u32,
}

/// Value of a segment row; its key in the meta tree is the segment's id.
///
/// | off | len | field       | meaning                                                       |
/// |-----|-----|-------------|---------------------------------------------------------------|
/// |   0 |   1 | layout      | 1: one column holds all bytes                                 |
/// |   1 |   1 | class       | 1 data, 2 meta0, 3 meta1, 4 clean, 5 pool0, 6 pool1, 7 log    |
/// |   2 |   1 | columns     | number of columns, 1 to 32                                    |
/// |   3 |   1 | dead_map    | 1 if a map of dead units follows, else 0                      |
/// |   4 |   4 | filled      | bytes written, a multiple of the allocation unit              |
/// |   8 |   8 | owner       | encryption root whose blocks it holds, 0 if shared            |
/// |  16 |   4 | dead_bytes  | length of the map of dead units                               |
/// |  20 |  44 | reserved    | zero (parity, block list)                                     |
/// |  64 |     | column ...  | a column (16 bytes), `columns` times                          |
/// |     |     | dead        | bit per unit below `filled`, set if dead; lowest bit first    |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SegmentRow {
    /// Class number, as the room `segment` gives it; 1 to 6.
    pub class: u8,
    /// Owner, 0 if shared.
    pub owner: DatasetId,
    /// Bytes written.
    pub filled: u32,
    /// Where it lies.
    pub columns: Vec<Column>,
    /// Dead units; absent if all below `filled` live.
    pub dead: Option<Vec<u8>>,
}

const LAYOUT_PLAIN: u8 = 1;

impl Column {
    /// Offsets and lengths.
    pub const LAYOUT: Layout =
        Layout::new("column", &[("device", 0, 8), ("slot", 8, 4), ("reserved", 12, 4)], &[]);
    /// Bytes of an encoded column.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();

    /// The column's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::ENCODED_SIZE] {
        assert!(self.device.0 != 0);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("device", self.device.0).u32("slot", self.slot).reserved().finish_array()
    }

    /// Reads a column.
    pub fn decode(bytes: &[u8]) -> Result<Column, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let column = Column { device: DeviceId(from.u64("device")), slot: from.u32("slot") };
        if column.device.0 == 0 {
            return Err(from.refuse("device", 0u64));
        }
        from.reserved()?;
        from.finish()?;
        Ok(column)
    }
}

impl SegmentRow {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "segment_row",
        &[
            ("layout", 0, 1),
            ("class", 1, 1),
            ("columns", 2, 1),
            ("dead_map", 3, 1),
            ("filled", 4, 4),
            ("owner", 8, 8),
            ("dead_bytes", 16, 4),
            ("reserved", 20, 44),
        ],
        &["column", "dead"],
    );
    /// Most columns of a segment.
    pub const COLUMNS_MAX: usize = 32;
    /// Longest map of dead units: a segment of 2^14 units.
    pub const DEAD_BYTES_MAX: usize = 2048;

    /// The row's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=Self::COLUMNS_MAX).contains(&self.columns.len()) && (1..=7).contains(&self.class));
        let dead = self.dead.as_deref().unwrap_or_default();
        assert!(dead.len() <= Self::DEAD_BYTES_MAX);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u8("layout", LAYOUT_PLAIN).u8("class", self.class);
        out.u8("columns", u8::try_from(self.columns.len()).expect("at most 32"));
        out.u8("dead_map", u8::from(self.dead.is_some())).u32("filled", self.filled);
        out.u64("owner", self.owner.0).u32("dead_bytes", u32::try_from(dead.len()).expect("bounded"));
        out.reserved();
        let columns: Vec<u8> = self.columns.iter().flat_map(Column::encode).collect();
        out.tail("column", &columns).tail("dead", dead).finish()
    }

    /// Reads a row.
    pub fn decode(bytes: &[u8]) -> Result<SegmentRow, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let layout = from.u8("layout");
        if layout != LAYOUT_PLAIN {
            return Err(from.refuse("layout", layout));
        }
        let class = from.u8("class");
        if !(1..=7).contains(&class) {
            return Err(from.refuse("class", class));
        }
        let count = usize::from(from.u8("columns"));
        if !(1..=Self::COLUMNS_MAX).contains(&count) {
            return Err(from.refuse("columns", count as u64));
        }
        let dead_map = from.u8("dead_map");
        let filled = from.u32("filled");
        let owner = DatasetId(from.u64("owner"));
        let dead_bytes = from.u32("dead_bytes") as usize;
        if dead_map > 1 || (dead_map == 0 && dead_bytes != 0) {
            return Err(from.refuse("dead_map", dead_map));
        }
        if dead_bytes > Self::DEAD_BYTES_MAX {
            return Err(from.refuse("dead_bytes", dead_bytes as u64));
        }
        from.reserved()?;
        let columns = from.tail("column", count * Column::ENCODED_SIZE)?;
        let columns = columns.chunks_exact(Column::ENCODED_SIZE).map(Column::decode);
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let dead = from.tail("dead", dead_bytes)?.to_vec();
        from.finish()?;
        Ok(SegmentRow { class, owner, filled, columns, dead: (dead_map == 1).then_some(dead) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_back_and_foreign_numbers_refused() {
        let row = SegmentRow {
            class: 2,
            owner: DatasetId(4),
            filled: 8192,
            columns: vec![Column { device: DeviceId(1), slot: 77 }],
            dead: Some(vec![3, 0]),
        };
        let bytes = row.encode();
        assert_eq!(SegmentRow::decode(&bytes), Ok(row.clone()));
        let all_live = SegmentRow { dead: None, ..row };
        assert_eq!(SegmentRow::decode(&all_live.encode()), Ok(all_live));
        for at in [0, 1, 2, 3, 18, 30, 78] {
            let mut bad = bytes.clone();
            bad[at] = 0xee;
            assert!(SegmentRow::decode(&bad).is_err(), "byte {at}");
        }
        for end in 0..bytes.len() {
            assert!(SegmentRow::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
    }
}
