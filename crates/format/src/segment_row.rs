//! Segment row: where a segment lies, whose it is, how far it is filled, and what of it is dead.
//! FORMAT.md, "Segment row".

use std::sync::Arc;

use crate::layout::{Decoder, Encoder, Layout};
use crate::{DatasetId, DecodeError, DeviceId};

/// One place of a segment. Redundant segments have several.
///
/// | off | len | field    | meaning                                                      |
/// |-----|-----|----------|--------------------------------------------------------------|
/// |   0 |   8 | device   | device, from 1; 0 where a redundant segment lacks the column |
/// |   8 |   4 | slot     | slot of that device, from 0                                  |
/// |  12 |   4 | reserved | zero                                                         |
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Column {
    /// Device.
    pub device: DeviceId,
    /// Slot of that device.
    pub slot: u32,
}

/// Where the bytes of a segment lie. Columns that are `None` were never written, or are known to be
/// lost.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Placement {
    /// One column holds all bytes.
    Plain(Column),
    /// Each of 1 to 4 columns holds all bytes.
    Mirror(Arc<[Option<Column>]>),
    /// Rows of chunks with their parity: chunk c of the segment lies in column c mod k, at the (c /
    /// k)-th chunk of it; the last `parity` columns hold P, Q and R of each row.
    Raidz {
        /// Columns of parity, 1 to 3.
        parity: u8,
        /// Log2 of the bytes of a chunk, 9 to 20.
        chunk_shift: u8,
        /// Data columns, then parity.
        columns: Arc<[Option<Column>]>,
    },
}

/// Value of a segment row; its key in the meta tree is the segment's id.
///
/// | off | len | field       | meaning |
/// |-----|-----|-------------|---|
/// |   0 |   1 | layout      | 1 one column holds all bytes, 2 mirror, 3 raidz |
/// |   1 |   1 | class       | 1 data, 2 meta0, 3 meta1, 4 clean, 5 pool0, 6 pool1, 7 log, 8 small |
/// |   2 |   1 | columns     | number of columns, 1 to 32; of a mirror 1 to 4 |
/// |   3 |   1 | dead_map    | 1 if a map of dead units follows, else 0 |
/// |   4 |   4 | filled      | bytes written, a multiple of the allocation unit |
/// |   8 |   8 | owner       | encryption root whose blocks it holds, 0 if shared; above bit 60: see [`DatasetId::of_copy`] |
/// |  16 |   4 | dead_bytes  | length of the map of dead units |
/// |  20 |   1 | parity      | raidz: columns of parity, 1 to 3; else 0 |
/// |  21 |   1 | chunk_shift | raidz: log2 of the bytes of a chunk, 9 to 20; else 0 |
/// |  22 |  42 | reserved    | zero |
/// |  64 |     | column ...  | a column (16 bytes), `columns` times |
/// |     |     | dead        | bit per unit below `filled`, set if dead; lowest bit first |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SegmentRow {
    /// Class number, as the room `segment` gives it; 1 to 8.
    pub class: u8,
    /// Owner, 0 if shared.
    pub owner: DatasetId,
    /// Bytes written.
    pub filled: u32,
    /// Where it lies.
    pub place: Placement,
    /// Dead units; absent if all below `filled` live.
    pub dead: Option<Vec<u8>>,
}

/// Layout byte, number of columns, parity, log2 of the chunk: what a placement is without its
/// columns. Rows and uberblocks store it alike.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Shape {
    pub layout: u8,
    pub columns: u8,
    pub parity: u8,
    pub chunk_shift: u8,
}

const LAYOUT_PLAIN: u8 = 1;
const LAYOUT_MIRROR: u8 = 2;
const LAYOUT_RAIDZ: u8 = 3;

impl Placement {
    /// Most columns of a mirror.
    pub const COPIES_MAX: usize = 4;
    /// Most columns of parity.
    pub const PARITY_MAX: u8 = 3;

    /// The columns in order.
    pub fn columns(&self) -> impl Iterator<Item = Option<Column>> + '_ {
        let (one, many): (_, &[Option<Column>]) = match self {
            Placement::Plain(column) => (Some(Some(*column)), &[]),
            Placement::Mirror(columns) | Placement::Raidz { columns, .. } => (None, columns),
        };
        one.into_iter().chain(many.iter().copied())
    }

    /// The columns that are there, with their index.
    pub fn present(&self) -> impl Iterator<Item = (usize, Column)> + '_ {
        self.columns().enumerate().filter_map(|(index, column)| Some((index, column?)))
    }

    /// Columns that may be lost without loss of bytes, were all of them there.
    #[must_use]
    pub fn redundancy(&self) -> usize {
        match self {
            Placement::Plain(_) => 0,
            Placement::Mirror(columns) => columns.len() - 1,
            Placement::Raidz { parity, .. } => usize::from(*parity),
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        let count = |columns: &[Option<Column>]| u8::try_from(columns.len()).expect("at most 32 columns");
        let shape = match self {
            Placement::Plain(_) => Shape { layout: LAYOUT_PLAIN, columns: 1, parity: 0, chunk_shift: 0 },
            Placement::Mirror(columns) => {
                Shape { layout: LAYOUT_MIRROR, columns: count(columns), parity: 0, chunk_shift: 0 }
            }
            Placement::Raidz { parity, chunk_shift, columns } => Shape {
                layout: LAYOUT_RAIDZ,
                columns: count(columns),
                parity: *parity,
                chunk_shift: *chunk_shift,
            },
        };
        assert!(shape.is_possible().is_ok(), "{shape:?}");
        shape
    }

    /// # Panics
    /// If the shape was not checked, or wants another number of columns; or if a plain one has
    /// none.
    pub(crate) fn of(shape: Shape, columns: Vec<Option<Column>>) -> Placement {
        assert!(shape.is_possible().is_ok() && columns.len() == usize::from(shape.columns));
        match shape.layout {
            LAYOUT_PLAIN => Placement::Plain(columns[0].expect("a plain segment has its column")),
            LAYOUT_MIRROR => Placement::Mirror(columns.into()),
            _ => Placement::Raidz {
                parity: shape.parity,
                chunk_shift: shape.chunk_shift,
                columns: columns.into(),
            },
        }
    }
}

impl Shape {
    /// Or the field that makes it impossible, and its value.
    pub fn is_possible(self) -> Result<(), (&'static str, u8)> {
        let (least, most) = match self.layout {
            LAYOUT_PLAIN => (1, 1),
            LAYOUT_MIRROR => (1, Placement::COPIES_MAX),
            LAYOUT_RAIDZ => (usize::from(self.parity) + 1, SegmentRow::COLUMNS_MAX),
            other => return Err(("layout", other)),
        };
        let raidz = self.layout == LAYOUT_RAIDZ;
        let parity = if raidz { 1..=Placement::PARITY_MAX } else { 0..=0 };
        let chunk = if raidz { 9..=20 } else { 0..=0 };
        if !parity.contains(&self.parity) {
            return Err(("parity", self.parity));
        }
        if !chunk.contains(&self.chunk_shift) {
            return Err(("chunk_shift", self.chunk_shift));
        }
        if !(least..=most).contains(&usize::from(self.columns)) {
            return Err(("columns", self.columns));
        }
        Ok(())
    }

    /// True if columns may be missing.
    pub fn is_redundant(self) -> bool {
        self.layout != LAYOUT_PLAIN
    }
}

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

    /// Reads a column; `None` if it stands for one that is missing.
    pub fn decode(bytes: &[u8]) -> Result<Option<Column>, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let column = Column { device: DeviceId(from.u64("device")), slot: from.u32("slot") };
        from.reserved()?;
        if column.device.0 == 0 && column.slot != 0 {
            return Err(from.refuse("slot", column.slot));
        }
        from.finish()?;
        Ok((column.device.0 != 0).then_some(column))
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
            ("parity", 20, 1),
            ("chunk_shift", 21, 1),
            ("reserved", 22, 42),
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
        assert!((1..=8).contains(&self.class));
        let dead = self.dead.as_deref().unwrap_or_default();
        assert!(dead.len() <= Self::DEAD_BYTES_MAX);
        let shape = self.place.shape();
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u8("layout", shape.layout).u8("class", self.class).u8("columns", shape.columns);
        out.u8("dead_map", u8::from(self.dead.is_some())).u32("filled", self.filled);
        out.u64("owner", self.owner.0).u32("dead_bytes", u32::try_from(dead.len()).expect("bounded"));
        out.u8("parity", shape.parity).u8("chunk_shift", shape.chunk_shift).reserved();
        let missing = [0; Column::ENCODED_SIZE];
        let encode = |column: Option<Column>| column.map_or(missing, |column| column.encode());
        let columns: Vec<u8> = self.place.columns().flat_map(encode).collect();
        out.tail("column", &columns).tail("dead", dead).finish()
    }

    /// Reads a row.
    pub fn decode(bytes: &[u8]) -> Result<SegmentRow, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let layout = from.u8("layout");
        let class = from.u8("class");
        if !(1..=8).contains(&class) {
            return Err(from.refuse("class", class));
        }
        let count = from.u8("columns");
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
        let (parity, chunk_shift) = (from.u8("parity"), from.u8("chunk_shift"));
        let shape = Shape { layout, columns: count, parity, chunk_shift };
        shape.is_possible().map_err(|(field, value)| from.refuse(field, value))?;
        from.reserved()?;
        let columns = from.tail("column", usize::from(count) * Column::ENCODED_SIZE)?;
        let columns = columns.chunks_exact(Column::ENCODED_SIZE).map(Column::decode);
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        if !shape.is_redundant() && columns[0].is_none() {
            return Err(from.refuse("column", 0u64));
        }
        let dead = from.tail("dead", dead_bytes)?.to_vec();
        from.finish()?;
        let place = Placement::of(shape, columns);
        Ok(SegmentRow { class, owner, filled, place, dead: (dead_map == 1).then_some(dead) })
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
            place: Placement::Plain(Column { device: DeviceId(1), slot: 77 }),
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

    #[test]
    fn redundant_rows_are_read_back_and_impossible_ones_refused() {
        let column = |device: u64| Some(Column { device: DeviceId(device), slot: 7 });
        let row =
            |place: Placement| SegmentRow { class: 1, owner: DatasetId(0), filled: 4096, place, dead: None };
        let mirror = row(Placement::Mirror([column(1), None, column(3)].into()));
        let columns = [column(4), column(2), None, column(1), column(9)].into();
        let raidz = row(Placement::Raidz { parity: 2, chunk_shift: 14, columns });
        for row in [&mirror, &raidz] {
            assert_eq!(SegmentRow::decode(&row.encode()).as_ref(), Ok(row));
        }
        assert_eq!((mirror.place.redundancy(), raidz.place.redundancy()), (2, 2));
        assert_eq!(mirror.place.present().map(|(index, _)| index).collect::<Vec<_>>(), [0, 2]);
        // Byte and value: a layout unknown, more copies than a mirror has, no data column, parity
        // or chunk beyond bounds, a slot of no device.
        for (row, at, value) in [
            (&raidz, 0, 4),
            (&mirror, 2, 5),
            (&raidz, 20, 4),
            (&raidz, 20, 0),
            (&raidz, 21, 21),
            (&mirror, 21, 14),
        ] {
            let mut bad = row.encode();
            bad[at] = value;
            assert!(SegmentRow::decode(&bad).is_err(), "byte {at}");
        }
        let mut bad = mirror.encode();
        bad[64 + 16 + 8] = 1;
        assert!(SegmentRow::decode(&bad).is_err());
    }
}
