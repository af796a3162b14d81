//! Cells of the deadlist: blocks that a dataset has freed and its snapshots still hold. FORMAT.md,
//! "Cell", and `docs/decisions/0090-snapshots.md`.
//!
//! Like ZFS's deadlist, but one for a dataset instead of one for each snapshot. Its cells (ZFS: the
//! bpobjs of a deadlist) are keyed by two txgs, *died* and *born*: those of the youngest snapshot
//! when the blocks were freed, and of the youngest one older than the blocks. A snapshot holds the
//! blocks of a cell if its txg lies above *born* and not above *died*. So destroying a snapshot
//! moves whole cells, and reads no block pointer.

use crate::layout::{Decoder, Encoder, Layout};
use crate::{Address, BlockPointer, DecodeError, SegmentId, Txg};

/// A cell: the sums over its dead ranges.
///
/// | off | len | field    | meaning                                                   |
/// |-----|-----|----------|-----------------------------------------------------------|
/// |   0 |   8 | places   | places in its runs, at least 1                            |
/// |   8 |   8 | bytes    | bytes that they occupy                                    |
/// |  16 |   8 | logical  | bytes of file content in them before compression          |
/// |  24 |   8 | next     | number of its next run: above that of each it has         |
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Cell {
    /// Places in its runs.
    pub places: u64,
    /// Bytes that they occupy.
    pub bytes: u64,
    /// Bytes of file content in them before compression.
    pub logical: u64,
    /// Number of its next run.
    pub next: u64,
}

impl Cell {
    /// Offsets and lengths.
    pub const LAYOUT: Layout =
        Layout::new("cell", &[("places", 0, 8), ("bytes", 8, 8), ("logical", 16, 8), ("next", 24, 8)], &[]);

    /// Numbers of runs are below this.
    pub const RUNS_END: u64 = 1 << 48;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.places > 0 && self.next > 0);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("places", self.places).u64("bytes", self.bytes).u64("logical", self.logical);
        out.u64("next", self.next).finish()
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<Cell, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let cell = Cell {
            places: from.u64("places"),
            bytes: from.u64("bytes"),
            logical: from.u64("logical"),
            next: from.u64("next"),
        };
        if cell.places == 0 {
            return Err(from.refuse("places", 0u64));
        }
        if cell.next == 0 || cell.next > Self::RUNS_END {
            return Err(from.refuse("next", cell.next));
        }
        from.finish()?;
        Ok(cell)
    }
}

/// One copy of a block that was let go.
///
/// | off | len | field    | meaning                                                   |
/// |-----|-----|----------|-----------------------------------------------------------|
/// |   0 |   8 | segment  | segment of its address                                    |
/// |   8 |   4 | offset   | offset of its address                                     |
/// |  12 |   4 | psize    | stored length, at least 1                                 |
/// |  16 |   4 | logical  | content before compression; 0 for second copies and nodes |
/// |  20 |   4 | reserved | zero                                                      |
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct CellPlace {
    /// Where it lies.
    pub address: Address,
    /// Stored length.
    pub psize: u32,
    /// Content before compression, counted once for each block.
    pub logical: u32,
}

impl CellPlace {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "cell_place",
        &[("segment", 0, 8), ("offset", 8, 4), ("psize", 12, 4), ("logical", 16, 4), ("reserved", 20, 4)],
        &[],
    );
    /// Bytes of an encoded place.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();
    /// Places of a run at most: three of them fill a leaf of the meta tree.
    pub const RUN_MAX: usize = 60;

    /// The bytes of a run of them.
    #[must_use]
    pub fn encode_run(places: &[CellPlace]) -> Vec<u8> {
        assert!((1..=Self::RUN_MAX).contains(&places.len()));
        let mut bytes = Vec::with_capacity(places.len() * Self::ENCODED_SIZE);
        for place in places {
            assert!(place.address.is_some() && place.psize > 0);
            let mut out = Encoder::new(&Self::LAYOUT);
            out.u64("segment", place.address.segment.0).u32("offset", place.address.offset);
            out.u32("psize", place.psize).u32("logical", place.logical).reserved();
            bytes.extend(out.finish());
        }
        bytes
    }

    /// Reads a run.
    pub fn decode_run(bytes: &[u8]) -> Result<Vec<CellPlace>, DecodeError> {
        let structure = Self::LAYOUT.name;
        let count = bytes.len() / Self::ENCODED_SIZE;
        if !(1..=Self::RUN_MAX).contains(&count) {
            return Err(DecodeError::Field { structure, field: "places", value: count as u64 });
        }
        let extra = bytes.len() % Self::ENCODED_SIZE;
        if extra > 0 {
            return Err(DecodeError::Trailing { structure, extra });
        }
        bytes.chunks(Self::ENCODED_SIZE).map(Self::decode).collect()
    }

    fn decode(bytes: &[u8]) -> Result<CellPlace, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let address = Address { segment: SegmentId(from.u64("segment")), offset: from.u32("offset") };
        let (psize, logical) = (from.u32("psize"), from.u32("logical"));
        if !address.is_some() {
            return Err(from.refuse("segment", 0u64));
        }
        if psize == 0 || psize > BlockPointer::PSIZE_MAX {
            return Err(from.refuse("psize", psize));
        }
        from.reserved()?;
        from.finish()?;
        Ok(CellPlace { address, psize, logical })
    }
}

/// Cells of a dataset that no snapshot holds any more, and that are being freed. Its key in the
/// meta tree is the dataset and a txg: cells whose second txg is that or above, and whose first is
/// below `before`.
///
/// | off | len | field  | meaning                                  |
/// |-----|-----|--------|------------------------------------------|
/// |   0 |   8 | before | above the txg of the key                 |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeadRange {
    /// First txgs of cells are below.
    pub before: Txg,
}

impl DeadRange {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new("dead_range", &[("before", 0, 8)], &[]);

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        Encoder::new(&Self::LAYOUT).u64("before", self.before.0).finish()
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<DeadRange, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let before = Txg(from.u64("before"));
        if before.0 == 0 || before.0 > Txg::END {
            return Err(from.refuse("before", 0u64));
        }
        from.finish()?;
        Ok(DeadRange { before })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_and_runs_are_read_back_and_cut_ones_are_not() {
        let cell = Cell { places: 3, bytes: 12_288, logical: 9_000, next: 2 };
        let bytes = cell.encode();
        assert_eq!(Cell::decode(&bytes), Ok(cell));
        let place = |segment, offset| CellPlace {
            address: Address { segment: SegmentId(segment), offset },
            psize: 700,
            logical: 1000,
        };
        let run = vec![place(1, 0), place(1, 4096), place(7, 8192)];
        let bytes = CellPlace::encode_run(&run);
        assert_eq!(CellPlace::decode_run(&bytes), Ok(run));
        for end in 0..bytes.len() {
            let whole = end > 0 && end % CellPlace::ENCODED_SIZE == 0;
            assert_eq!(CellPlace::decode_run(&bytes[..end]).is_ok(), whole, "cut at {end}");
        }
        let dead = DeadRange { before: Txg(9) };
        assert_eq!(DeadRange::decode(&dead.encode()), Ok(dead));
    }

    #[test]
    fn empty_cells_and_places_of_nothing_are_refused() {
        assert!(Cell::decode(&[0; 32]).is_err());
        assert!(Cell::decode(&Cell { places: 1, bytes: 1, logical: 1, next: u64::MAX }.encode()).is_err());
        assert!(CellPlace::decode_run(&[0; 24]).is_err());
        assert!(CellPlace::decode_run(&[1; 24 * 61]).is_err());
        assert!(DeadRange::decode(&[0; 8]).is_err());
    }
}
