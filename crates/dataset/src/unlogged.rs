//! Changes that neither a commit nor a log group holds yet: their places, by txg
//! ([`crate::journal`]).

use std::ops::Range;

use steadfast_format::{InodeId, Txg};

use crate::RangeSet;

/// Ranges noted of one file before they are joined.
const RANGES_LOOSE: usize = 64;

/// Keys and inodes that changed in one txg and are not logged.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) inodes: Vec<InodeId>,
}

/// All that is pending of a dataset, but for ranges of content, which their inodes keep.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) open: Generation,
    pub(crate) frozen: Generation,
    pub(crate) frozen_txg: Txg,
}

/// Content of one file that changed in one txg and is not logged.
#[derive(Debug, Default)]
pub(crate) struct Unlogged {
    pub(crate) writes: LooseRanges,
    pub(crate) cuts: LooseRanges,
}

/// Ranges, joined now and then.
#[derive(Debug, Default)]
pub(crate) struct LooseRanges {
    pub(crate) ranges: Vec<Range<u64>>,
    pub(crate) joined: usize,
}

impl LooseRanges {
    pub(crate) fn push(&mut self, range: Range<u64>) {
        match self.ranges.last_mut() {
            Some(last) if last.start <= range.start && range.start <= last.end => {
                last.end = last.end.max(range.end);
            }
            _ => self.ranges.push(range),
        }
        if self.ranges.len() > RANGES_LOOSE + 2 * self.joined {
            let mut set = RangeSet::default();
            self.ranges.drain(..).for_each(|range| set.insert(range));
            self.ranges.extend(set.iter());
            self.joined = self.ranges.len();
        }
    }
}

/// An inode's notes for the log.
#[derive(Debug, Default)]
pub(crate) struct InodeJournal {
    pub(crate) open: Unlogged,
    pub(crate) frozen: Unlogged,
    pub(crate) frozen_txg: Txg,
}

impl InodeJournal {
    /// The open txg closes.
    pub(crate) fn freeze(&mut self, txg: Txg) {
        self.frozen = std::mem::take(&mut self.open);
        self.frozen_txg = txg;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loose_ranges_stay_few_where_the_same_bytes_are_written_again() {
        let mut loose = LooseRanges::default();
        for round in 0..10_000 {
            let at = round * 7 % 50 * 100;
            loose.push(at..at + 10);
        }
        assert!(loose.ranges.len() <= RANGES_LOOSE + 2 * 50 + 1, "{}", loose.ranges.len());
        let mut set = RangeSet::default();
        loose.ranges.iter().for_each(|range| set.insert(range.clone()));
        assert_eq!(set.iter().count(), 50);
        let mut sequential = LooseRanges::default();
        (0..1000).for_each(|n| sequential.push(n * 4096..(n + 1) * 4096));
        assert_eq!(sequential.ranges, vec![0..4_096_000]);
    }
}
