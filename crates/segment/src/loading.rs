//! The state of an import between its steps ([`crate::load`]).

use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::{RelocationRow, SegmentId};

/// State between the steps.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    /// Rows that the tail listed. The meta tree may not know them.
    pub(crate) rows: BTreeSet<SegmentId>,
    pub(crate) runs: BTreeSet<(SegmentId, u32)>,
    /// Relocations of the tail whose target row is not loaded yet.
    pub(crate) waiting: BTreeMap<(SegmentId, u32), RelocationRow>,
}
