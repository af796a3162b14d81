//! Rows of the segment table, and the places inside segments.

use steadfast_format::{Column, DatasetId, Placement, SegmentId};

use crate::Class;
use crate::bitmap::DeadUnits;

/// One segment.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub place: Placement,
    /// Index of its group.
    pub group: usize,
    pub owner: DatasetId,
    pub class: Class,
    /// Units written.
    pub filled: u32,
    /// Units that live.
    pub live: u32,
    pub dead: DeadUnits,
    /// True while a stream appends to it.
    pub open: bool,
    /// True once the cleaner could not read it; it is left alone until the pool is imported again.
    pub unreadable: bool,
    /// True if the pool's checkpoint needs it [kept.1].
    pub pinned: bool,
}

impl Row {
    /// Columns that the segment lacks.
    pub fn missing(&self) -> u32 {
        let missing = self.place.columns().filter(Option::is_none).count();
        u32::try_from(missing).expect("at most 32")
    }
}

/// A segment that holds nothing any more but whose slot may not be used yet.
#[derive(Clone, Debug)]
pub(crate) struct Emptied {
    pub row: Row,
    /// True if the tail of the commit under way knows of it.
    pub committing: bool,
}

/// A column that its segment's row does not name any more, but which the last committed root may
/// name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostColumn {
    pub segment: SegmentId,
    pub column: Column,
    /// As in [`Emptied`].
    pub committing: bool,
}

/// A slot that a commit freed: what lay there, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreedSlot {
    pub segment: SegmentId,
    pub column: Column,
    /// Bytes of the slot.
    pub slot_size: u32,
}

/// A part of a block's bytes: units of one segment in one place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Piece {
    pub segment: SegmentId,
    pub unit: u32,
    pub units: u32,
}

/// An address at which nothing lives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unallocated;
