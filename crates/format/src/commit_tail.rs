//! Commit tail: the last block of a commit. FORMAT.md, "Commit tail".
//!
//! Writing the meta tree changes segment rows, which live in the meta tree. The tail ends that
//! circle: it carries every row of the pool's own segments (so that import can find the meta tree
//! at all) and every change that came after the rows were written to the tree.

use crate::layout::{Decoder, Encoder, Layout};
use crate::segment_row::Column;
use crate::{DatasetId, DecodeError, RelocationRow, SegmentId, SegmentRow, Txg};

/// The tail of a commit.
///
/// | off | len | field        | meaning                                                          |
/// |-----|-----|--------------|------------------------------------------------------------------|
/// |   0 |   8 | magic        | "SFtail" and two zero bytes                                      |
/// |   8 |   4 | version      | 1                                                                |
/// |  12 |   4 | reserved     | zero                                                             |
/// |  16 |   8 | txg          | of the commit                                                    |
/// |  24 |   8 | next_segment | id that the next segment will have                               |
/// |  32 |   8 | next_dataset | id that the next dataset will have                               |
/// |  40 |   8 | next_history | number that the next history entry will have                     |
/// |  48 |   4 | rows         | number of segment changes                                        |
/// |  52 |   4 | runs         | number of relocation changes                                     |
/// |  56 |  40 | reserved     | zero                                                             |
/// |  96 |     | row ...      | a row change, `rows` times                                       |
/// |     |     | run ...      | a run change, `runs` times                                       |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CommitTail {
    /// Txg of the commit.
    pub txg: Txg,
    /// Id of the next segment.
    pub next_segment: SegmentId,
    /// Id of the next dataset.
    pub next_dataset: DatasetId,
    /// Number of the next history entry.
    pub next_history: u64,
    /// Segment rows set, or removed (`None`).
    pub rows: Vec<(SegmentId, Option<SegmentRow>)>,
    /// Relocation rows set, or removed (`None`), by the (segment, unit) they are known by.
    pub runs: Vec<((SegmentId, u32), Option<RelocationRow>)>,
}

const MAGIC: &[u8; 8] = b"SFtail\0\0";
const VERSION: u32 = 1;

impl CommitTail {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "commit_tail",
        &[
            ("magic", 0, 8),
            ("version", 8, 4),
            ("reserved", 12, 4),
            ("txg", 16, 8),
            ("next_segment", 24, 8),
            ("next_dataset", 32, 8),
            ("next_history", 40, 8),
            ("rows", 48, 4),
            ("runs", 52, 4),
            ("reserved", 56, 40),
        ],
        &["row", "run"],
    );
    /// Offsets and lengths of a row change.
    ///
    /// | off | len | field   | meaning                                  |
    /// |-----|-----|---------|------------------------------------------|
    /// |   0 |   8 | segment | the segment                              |
    /// |   8 |   4 | length  | length of its row; 0: the row is removed |
    /// |  12 |     | row     | segment row                              |
    pub const ROW_LAYOUT: Layout =
        Layout::new("row_change", &[("segment", 0, 8), ("length", 8, 4)], &["row"]);
    /// Offsets and lengths of a run change.
    ///
    /// | off | len | field   | meaning                                      |
    /// |-----|-----|---------|----------------------------------------------|
    /// |   0 |   8 | segment | segment and unit by which the run is known   |
    /// |   8 |   4 | unit    |                                              |
    /// |  12 |   4 | present | 1: the row is set; 0: it is removed          |
    /// |  16 |     | run     | relocation row, if present                   |
    pub const RUN_LAYOUT: Layout =
        Layout::new("run_change", &[("segment", 0, 8), ("unit", 8, 4), ("present", 12, 4)], &["run"]);

    /// The tail's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let count = |n: usize| u32::try_from(n).expect("fewer than 2^32 changes");
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("magic", MAGIC).u32("version", VERSION).reserved().u64("txg", self.txg.0);
        out.u64("next_segment", self.next_segment.0).u64("next_dataset", self.next_dataset.0);
        out.u64("next_history", self.next_history);
        out.u32("rows", count(self.rows.len())).u32("runs", count(self.runs.len())).reserved();
        let mut rows = Vec::new();
        for (id, row) in &self.rows {
            let row = row.as_ref().map(SegmentRow::encode).unwrap_or_default();
            let mut out = Encoder::new(&Self::ROW_LAYOUT);
            out.u64("segment", id.0).u32("length", count(row.len()));
            rows.extend_from_slice(&out.tail("row", &row).finish());
        }
        let mut runs = Vec::new();
        for ((id, unit), run) in &self.runs {
            let mut out = Encoder::new(&Self::RUN_LAYOUT);
            out.u64("segment", id.0).u32("unit", *unit).u32("present", u32::from(run.is_some()));
            let run = run.as_ref().map(RelocationRow::encode);
            runs.extend_from_slice(&out.tail("run", run.as_ref().map_or(&[], |run| &run[..])).finish());
        }
        out.tail("row", &rows).tail("run", &runs).finish()
    }

    /// Upper bound of an encoded tail of that many changes.
    #[must_use]
    pub fn encoded_size_max(rows: usize, runs: usize) -> usize {
        let row = SegmentRow::LAYOUT.size()
            + Column::ENCODED_SIZE * SegmentRow::COLUMNS_MAX
            + SegmentRow::DEAD_BYTES_MAX;
        Self::LAYOUT.size()
            + rows * (Self::ROW_LAYOUT.size() + row)
            + runs * (Self::RUN_LAYOUT.size() + RelocationRow::ENCODED_SIZE)
    }

    /// Reads a tail. Allocates no more than the bytes given can hold.
    pub fn decode(bytes: &[u8]) -> Result<CommitTail, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        if from.bytes("magic", 8) != MAGIC {
            return Err(DecodeError::Magic { structure: "commit_tail" });
        }
        let found = from.u32("version");
        if found != VERSION {
            return Err(DecodeError::Version { structure: "commit_tail", found, known: VERSION });
        }
        from.reserved()?;
        let txg = Txg(from.u64("txg"));
        let next_segment = SegmentId(from.u64("next_segment"));
        let next_dataset = DatasetId(from.u64("next_dataset"));
        let next_history = from.u64("next_history");
        let (rows, runs) = (from.u32("rows"), from.u32("runs"));
        from.reserved()?;

        if txg.0 == 0 {
            return Err(from.refuse("txg", 0u64));
        }
        if next_segment.0 == 0 {
            return Err(from.refuse("next_segment", 0u64));
        }
        let mut tail =
            CommitTail { txg, next_segment, next_dataset, next_history, rows: Vec::new(), runs: Vec::new() };
        let mut length = 0;
        for _ in 0..rows {
            let mut entry = Decoder::new(&Self::ROW_LAYOUT, &from.rest()[length..])?;
            let (id, row_length) = (SegmentId(entry.u64("segment")), entry.u32("length") as usize);
            if id.0 == 0 {
                return Err(entry.refuse("segment", 0u64));
            }
            let row = entry.tail("row", row_length)?;
            tail.rows.push((id, if row.is_empty() { None } else { Some(SegmentRow::decode(row)?) }));
            length += entry.taken();
        }
        from.tail("row", length)?;
        let mut length = 0;
        for _ in 0..runs {
            let mut entry = Decoder::new(&Self::RUN_LAYOUT, &from.rest()[length..])?;
            let known = (SegmentId(entry.u64("segment")), entry.u32("unit"));
            let run = match entry.u32("present") {
                0 => entry.tail("run", 0).map(|_| None)?,
                1 => Some(RelocationRow::decode(entry.tail("run", RelocationRow::ENCODED_SIZE)?)?),
                other => return Err(entry.refuse("present", other)),
            };
            tail.runs.push((known, run));
            length += entry.taken();
        }
        from.tail("run", length)?;
        from.finish()?;
        Ok(tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceId;

    #[test]
    fn a_tail_is_read_back_and_every_cut_is_refused() {
        let row = SegmentRow {
            class: 5,
            owner: DatasetId(0),
            filled: 4096,
            place: crate::Placement::Plain(crate::Column { device: DeviceId(1), slot: 2 }),
            dead: None,
        };
        let run = RelocationRow { segment: SegmentId(6), unit: 1, units: 2 };
        let tail = CommitTail {
            txg: Txg(5),
            next_segment: SegmentId(8),
            next_dataset: DatasetId(2),
            next_history: 3,
            rows: vec![(SegmentId(6), Some(row)), (SegmentId(4), None)],
            runs: vec![((SegmentId(1), 7), Some(run)), ((SegmentId(2), 0), None)],
        };
        let bytes = tail.encode();
        assert!(bytes.len() <= CommitTail::encoded_size_max(2, 2));
        assert_eq!(CommitTail::decode(&bytes), Ok(tail));
        for end in 0..bytes.len() {
            assert!(CommitTail::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
    }
}
