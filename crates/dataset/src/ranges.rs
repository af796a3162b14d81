//! A set of byte ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of disjoint, non-adjacent, half-open ranges.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RangeSet {
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// True if nothing is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// The lowest range.
    #[must_use]
    pub fn first(&self) -> Option<Range<u64>> {
        self.iter().next()
    }

    /// Adds a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Ranges that touch the new one, from the last to the first.
        while let Some((&other_start, &other_end)) = self.ranges.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            start = start.min(other_start);
            end = end.max(other_end);
            self.ranges.remove(&other_start);
        }
        self.ranges.insert(start, end);
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.ranges.range(..range.end).next_back() {
            if end <= range.start {
                break;
            }
            self.ranges.remove(&start);
            if end > range.end {
                self.ranges.insert(range.end, end);
            }
            if start < range.start {
                self.ranges.insert(start, range.start);
            }
        }
    }

    /// Parts of `range` that are in the set, in order.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.ranges.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
        self.ranges
            .range(before..range.end.max(before))
            .map(move |(&start, &end)| start.max(range.start)..end.min(range.end))
            .filter(|part| !part.is_empty())
    }

    /// Parts of `range` that are not in the set, in order.
    #[must_use]
    pub fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for part in self.within(range.clone()) {
            if part.start > at {
                gaps.push(at..part.start);
            }
            at = part.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// The range that holds `at`.
    #[must_use]
    pub fn containing(&self, at: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.ranges.range(..=at).next_back()?;
        (end > at).then_some(start..end)
    }

    /// Start of the first range at or above `at`.
    #[must_use]
    pub fn next_start(&self, at: u64) -> Option<u64> {
        self.ranges.range(at..).next().map(|(&start, _)| start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_ranges_equals_a_set_of_numbers() {
        let mut state = 12345_u64;
        let mut draw = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        for _ in 0..200 {
            let mut set = RangeSet::default();
            let mut plain = [false; 64];
            for _ in 0..30 {
                let (start, length) = (draw(64), draw(20));
                let range = start..(start + length).min(64);
                let add = draw(2) == 0;
                if add {
                    set.insert(range.clone())
                } else {
                    set.remove(range.clone())
                }
                plain[usize::try_from(range.start).expect("small")
                    ..usize::try_from(range.end).expect("small")]
                    .fill(add);
                let inside: Vec<u64> = set.within(0..64).flatten().collect();
                let expected: Vec<u64> =
                    (0..64).filter(|&n| plain[usize::try_from(n).expect("small")]).collect();
                assert_eq!(inside, expected);
                let outside: Vec<u64> = set.gaps(3..50).into_iter().flatten().collect();
                let expected: Vec<u64> =
                    (3..50).filter(|&n| !plain[usize::try_from(n).expect("small")]).collect();
                assert_eq!(outside, expected);
                let ranges: Vec<_> = set.iter().collect();
                assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "touching ranges are one");
            }
        }
    }
}
