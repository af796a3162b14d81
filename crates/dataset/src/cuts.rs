//! Cuts that outlive their txg: how a huge file goes without a stall.
//!
//! Cutting is one range in a layer, whatever the file's size; freeing the extents below takes time
//! in proportion to their number. A sync frees a bounded number; what is left of the ranges is kept
//! here, reads as zeros, and is listed in the extents tree (under inode 0) so that a crash does not
//! lose it. Since the listing and the extents are in one tree, the two are never of different txgs,
//! and a removed file needs no trace in the names tree for its content to go on going.
//!
//! Ranges here begin and end at records: the records at the edges of a cut get new extents in the
//! txg of the cut. (The first record of a range that was worked off in part may be cut in part, but
//! its extent is gone.) So an extent is cut as a whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use steadfast_format::InodeId;

use crate::RangeSet;

/// Ranges whose extents are not all freed, by file.
#[derive(Default)]
pub(crate) struct Cuts {
    pub(crate) by_inode: BTreeMap<InodeId, RangeSet>,
    /// Ranges listed in the extents tree.
    pub(crate) listed: BTreeSet<(InodeId, u64, u64)>,
    /// Files whose extents cannot all be read. Their cuts stay listed and wait for the next opening
    /// of the dataset: each try reads what is damaged.
    pub(crate) blocked: BTreeSet<InodeId>,
}

impl Cuts {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_inode.is_empty()
    }

    /// True if the next sync can free extents.
    pub(crate) fn is_due(&self) -> bool {
        self.by_inode.keys().any(|inode| !self.blocked.contains(inode))
    }

    pub(crate) fn of(&self, inode: InodeId) -> Option<&RangeSet> {
        self.by_inode.get(&inode)
    }

    pub(crate) fn add(&mut self, inode: InodeId, range: Range<u64>) {
        if !range.is_empty() {
            self.by_inode.entry(inode).or_default().insert(range);
        }
    }

    /// Takes a range out: its extents are freed, or replaced by newer content.
    pub(crate) fn remove(&mut self, inode: InodeId, range: Range<u64>) {
        if let Some(ranges) = self.by_inode.get_mut(&inode) {
            ranges.remove(range);
            if ranges.is_empty() {
                self.by_inode.remove(&inode);
            }
        }
    }

    pub(crate) fn items(&self) -> BTreeSet<(InodeId, u64, u64)> {
        let of = |(&inode, ranges): (&InodeId, &RangeSet)| -> Vec<(InodeId, u64, u64)> {
            ranges.iter().map(|range| (inode, range.start, range.end)).collect()
        };
        self.by_inode.iter().flat_map(of).collect()
    }
}
