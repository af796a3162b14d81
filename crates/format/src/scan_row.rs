//! State of a scrub or resilver. FORMAT.md, "Scan".

use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, SegmentId};

/// Purpose of a scan.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum ScanKind {
    /// Every column of every segment is read and compared.
    Scrub = 1,
    /// Columns that are missing, or on a device that leaves, are built on others.
    Resilver = 2,
    /// Segments of groups that leave go to others.
    Remove = 3,
    /// Columns go to devices of their group that hold fewer.
    Expand = 4,
    /// Segments go to groups that are emptier, and columns as above.
    Rebalance = 5,
}

impl ScanKind {
    /// True for those that move what lies somewhere, and are stored as the pool's last move; the
    /// others as its last scan.
    #[must_use]
    pub fn moves(self) -> bool {
        matches!(self, ScanKind::Remove | ScanKind::Expand | ScanKind::Rebalance)
    }
}

/// How far a scan is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum ScanState {
    /// Under way.
    Active = 1,
    /// Stopped for now.
    Paused = 2,
    /// Went through everything.
    Finished = 3,
    /// Ended by the operator.
    Canceled = 4,
}

/// Value of the pool's last scan in the meta tree, and of its last move.
///
/// | off | len | field    | meaning                                                          |
/// |-----|-----|----------|------------------------------------------------------------------|
/// |   0 |   1 | kind     | 1 scrub, 2 resilver; moves: 3 remove, 4 expand, 5 rebalance      |
/// |   1 |   1 | state    | 1 active, 2 paused, 3 finished, 4 canceled                       |
/// |   2 |   2 | reserved | zero                                                             |
/// |   4 |   4 | device   | first device of the first group that leaves; 0 of all else       |
/// |   8 |   8 | next     | segments below this id were looked at                            |
/// |  16 |   8 | until    | segments from this id on were written after it began             |
/// |  24 |   8 | begun_ns | wall time of its beginning, nanoseconds since 1970               |
/// |  32 |   8 | ended_ns | wall time of its end or of its pause; 0 while it is under way    |
/// |  40 |   8 | total    | bytes of columns to be looked at when it began                   |
/// |  48 |   8 | read     | bytes read                                                       |
/// |  56 |   8 | repaired | bytes that were wrong and were written anew                      |
/// |  64 |   8 | rebuilt  | bytes of missing columns built elsewhere; of a move bytes moved  |
/// |  72 |   8 | lost     | bytes that could not be mended, or moved                         |
/// |  80 |   8 | missing  | columns that no device had room for                              |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ScanRow {
    /// Its purpose.
    pub kind: ScanKind,
    /// How far.
    pub state: ScanState,
    /// Which device a removal began with; 0 of all else.
    pub device: u32,
    /// Segments below were looked at.
    pub next: SegmentId,
    /// Segments from here on are newer than the scan.
    pub until: SegmentId,
    /// Beginning, nanoseconds since 1970.
    pub begun_ns: u64,
    /// End or pause, or 0.
    pub ended_ns: u64,
    /// Bytes of columns to be looked at when it began.
    pub total: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes that were wrong and were written anew.
    pub repaired: u64,
    /// Bytes of missing columns built elsewhere.
    pub rebuilt: u64,
    /// Bytes that could not be mended.
    pub lost: u64,
    /// Columns that no device had room for.
    pub missing: u64,
}

impl ScanRow {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "scan",
        &[
            ("kind", 0, 1),
            ("state", 1, 1),
            ("reserved", 2, 2),
            ("device", 4, 4),
            ("next", 8, 8),
            ("until", 16, 8),
            ("begun_ns", 24, 8),
            ("ended_ns", 32, 8),
            ("total", 40, 8),
            ("read", 48, 8),
            ("repaired", 56, 8),
            ("rebuilt", 64, 8),
            ("lost", 72, 8),
            ("missing", 80, 8),
        ],
        &[],
    );

    /// The row's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u8("kind", self.kind as u8).u8("state", self.state as u8).reserved();
        out.u32("device", self.device);
        out.u64("next", self.next.0).u64("until", self.until.0);
        out.u64("begun_ns", self.begun_ns).u64("ended_ns", self.ended_ns).u64("total", self.total);
        out.u64("read", self.read).u64("repaired", self.repaired).u64("rebuilt", self.rebuilt);
        out.u64("lost", self.lost).u64("missing", self.missing).finish()
    }

    /// Reads a row.
    pub fn decode(bytes: &[u8]) -> Result<ScanRow, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let kind = match from.u8("kind") {
            1 => ScanKind::Scrub,
            2 => ScanKind::Resilver,
            3 => ScanKind::Remove,
            4 => ScanKind::Expand,
            5 => ScanKind::Rebalance,
            other => return Err(from.refuse("kind", other)),
        };
        let state = match from.u8("state") {
            1 => ScanState::Active,
            2 => ScanState::Paused,
            3 => ScanState::Finished,
            4 => ScanState::Canceled,
            other => return Err(from.refuse("state", other)),
        };
        from.reserved()?;
        let row = ScanRow {
            kind,
            state,
            device: from.u32("device"),
            next: SegmentId(from.u64("next")),
            until: SegmentId(from.u64("until")),
            begun_ns: from.u64("begun_ns"),
            ended_ns: from.u64("ended_ns"),
            total: from.u64("total"),
            read: from.u64("read"),
            repaired: from.u64("repaired"),
            rebuilt: from.u64("rebuilt"),
            lost: from.u64("lost"),
            missing: from.u64("missing"),
        };
        from.finish()?;
        Ok(row)
    }
}
