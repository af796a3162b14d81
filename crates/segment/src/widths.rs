//! How many columns segments of a group with parity have, and what devices of different sizes hold
//! then: pure arithmetic. Proofs: `docs/decisions/0115-uneven-devices.md`.
//!
//! A segment's size depends on its data columns: as many as the group is made for hold a slot. So
//! a group holds most if its segments have most data columns between them. Devices give at most
//! `min(free, m)` slots to m segments, because no device takes part in a segment twice. So m
//! segments take
//!
//! ```text
//! U(m) = min(most × m, sum over devices of min(free, m))
//! ```
//!
//! slots, and `U(m) - parity × m` of these are data. That is concave in m, so the best m is found
//! by halving. A width for the next segment that loses nothing always exists; the widest of these
//! is taken, as long rows are fast and cost little parity.

use crate::groups::formable;

/// How many columns segments of a group may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Widths {
    pub parity: u32,
    /// Fewest and most.
    pub least: u32,
    pub most: u32,
}

/// The most that devices with some free slots can hold, in columns of data, and the fewest segments
/// that do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct WidestFit {
    pub segments: u64,
    pub columns: u64,
}

impl Widths {
    /// Columns of data of so many segments at most, each of them as wide as free slots allow (lemma
    /// 1).
    fn data_of(self, free: &[u32], segments: u64) -> u64 {
        let all: u64 = free.iter().map(|&free| u64::from(free).min(segments)).sum();
        let taken = all.min(segments * u64::from(self.most));
        taken.saturating_sub(segments * u64::from(self.parity))
    }

    /// The most that so many free slots on each device hold. The first number of segments that one
    /// more does not better is the best, as what they hold is concave in their number.
    pub fn best(self, free: &[u32]) -> WidestFit {
        let (mut low, mut high) = (0, u64::from(formable(free, self.least)));
        while low < high {
            let middle = low.midpoint(high);
            if self.data_of(free, middle + 1) > self.data_of(free, middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        WidestFit { segments: low, columns: self.data_of(free, low) }
    }

    /// The most segments that hold as much: the narrower they are, the more it takes.
    pub fn segments_max(self, free: &[u32]) -> u64 {
        let best = self.best(free);
        let (mut low, mut high) = (best.segments, u64::from(formable(free, self.least)));
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.data_of(free, middle) == best.columns {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    /// Columns of data that can be had after a segment in so many columns on the fullest devices.
    /// `free` begins with these.
    fn after(self, free: &[u32], columns: u32) -> u64 {
        let mut rest = free.to_vec();
        rest[..columns as usize].iter_mut().for_each(|free| *free -= 1);
        self.best(&rest).columns
    }

    /// Columns of the next segment, which has to have so many: the most that lose nothing (lemma
    /// 3), or the most there can be if only narrower ones lose nothing. `free` begins with the
    /// fullest device.
    pub fn next(self, free: &[u32], wanted: u32) -> Option<u32> {
        let here = free.iter().take_while(|&&free| free > 0).count();
        let most = self.most.min(u32::try_from(here).unwrap_or(u32::MAX));
        let all = self.best(free).columns;
        let wide = || (self.least.max(wanted)..=most).rev();
        let loses_nothing =
            |columns: &u32| self.after(free, *columns) + u64::from(*columns - self.parity) == all;
        wide().find(loses_nothing).or_else(|| wide().next())
    }
}

/// Free slots after so many are taken from the greatest, one by one.
pub(crate) fn lowered(free: &[u32], count: u64) -> Vec<u32> {
    let above = |level: u32| free.iter().map(|&free| u64::from(free.saturating_sub(level))).sum::<u64>();
    // The highest level above which there are as many.
    let (mut low, mut high) = (0, free.iter().copied().max().unwrap_or(0));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if above(middle) >= count {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let mut back = above(low).saturating_sub(count);
    let left = |&free: &u32| {
        if free > low && back > 0 {
            back -= 1;
            low + 1
        } else {
            free.min(low)
        }
    };
    free.iter().map(left).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn random(seed: &mut u64, below: u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % below
    }

    /// The most by trying everything: all sets of devices for the next segment.
    fn tried(free: &mut [u32], widths: Widths, known: &mut BTreeMap<Vec<u32>, u64>) -> u64 {
        let mut key = free.to_vec();
        key.sort_unstable();
        if let Some(best) = known.get(&key) {
            return *best;
        }
        let mut best = 0;
        for set in 0..1_u32 << free.len() {
            let columns = set.count_ones();
            let on: Vec<usize> = (0..free.len()).filter(|at| set >> at & 1 == 1).collect();
            if columns < widths.least || columns > widths.most || on.iter().any(|&at| free[at] == 0) {
                continue;
            }
            on.iter().for_each(|&at| free[at] -= 1);
            best = best.max(u64::from(columns - widths.parity) + tried(free, widths, known));
            on.iter().for_each(|&at| free[at] += 1);
        }
        known.insert(key, best);
        best
    }

    /// All there are for so many devices.
    fn all_widths(devices: u32) -> Vec<Widths> {
        let mut all = Vec::new();
        for parity in 1..devices.min(4) {
            for most in parity + 1..=devices {
                all.extend((parity + 1..=most).map(|least| Widths { parity, least, most }));
            }
        }
        all
    }

    fn any(seed: &mut u64, devices: u32) -> Widths {
        let all = all_widths(devices);
        all[random(seed, all.len() as u64) as usize]
    }

    #[test]
    fn what_uneven_devices_hold_is_what_trying_everything_finds() {
        for devices in 2..=4_u32 {
            for widths in all_widths(devices) {
                let mut known = BTreeMap::new();
                for all in 0..4_u32.pow(devices) {
                    let mut free: Vec<u32> = (0..devices).map(|at| all / 4_u32.pow(at) % 4).collect();
                    let tried = tried(&mut free, widths, &mut known);
                    assert_eq!(widths.best(&free).columns, tried, "{free:?} {widths:?}");
                }
            }
        }
    }

    #[test]
    fn placing_loses_nothing() {
        let mut seed = 7;
        for _ in 0..400 {
            let devices = 2 + random(&mut seed, 7) as u32;
            let widths = any(&mut seed, devices);
            let mut free: Vec<u32> = (0..devices).map(|_| random(&mut seed, 30) as u32).collect();
            let (all, most) = (widths.best(&free), widths.segments_max(&free));
            let (mut placed, mut segments) = (0, 0);
            loop {
                free.sort_unstable_by(|left, right| right.cmp(left));
                let before = widths.best(&free).columns;
                let Some(columns) = widths.next(&free, 0) else { break };
                free[..columns as usize].iter_mut().for_each(|free| *free -= 1);
                let data = u64::from(columns - widths.parity);
                assert_eq!(widths.best(&free).columns + data, before, "{free:?} {widths:?}");
                placed += data;
                segments += 1;
            }
            assert_eq!((widths.best(&free).columns, placed), (0, all.columns), "{free:?} {widths:?}");
            assert!((all.segments..=most).contains(&segments), "{segments} of {all:?} to {most}");
        }
    }

    /// (Lemma 4) A segment that is emptied gives back what it holds at least, and no slot more
    /// makes what is there less.
    #[test]
    fn freeing_gives_back_what_was_held() {
        let mut seed = 11;
        for _ in 0..2000 {
            let devices = 2 + random(&mut seed, 5) as u32;
            let widths = any(&mut seed, devices);
            let free: Vec<u32> = (0..devices).map(|_| random(&mut seed, 12) as u32).collect();
            let before = widths.best(&free).columns;
            let columns = widths.least + random(&mut seed, u64::from(widths.most - widths.least) + 1) as u32;
            let mut more = free.clone();
            let first = random(&mut seed, u64::from(devices)) as usize;
            (0..columns as usize).for_each(|at| more[(first + at) % devices as usize] += 1);
            let after = widths.best(&more).columns;
            assert!(after >= before + u64::from(columns - widths.parity), "{free:?} {more:?} {widths:?}");
            let mut one = free.clone();
            one[first] += 1;
            assert!(widths.best(&one).columns >= before, "{free:?} {widths:?}");
        }
    }

    #[test]
    fn all_but_the_largest_devices_can_be_used() {
        let mut seed = 3;
        for _ in 0..2000 {
            let devices = 2 + random(&mut seed, 6) as u32;
            let parity = 1 + random(&mut seed, u64::from(devices.min(4) - 1)) as u32;
            let widths = Widths { parity, least: parity + 1, most: devices };
            let mut sizes: Vec<u32> = (0..devices).map(|_| random(&mut seed, 4000) as u32).collect();
            sizes.sort_unstable_by(|left, right| right.cmp(left));
            let rest: u64 = sizes[parity as usize..].iter().map(|&size| u64::from(size)).sum();
            assert_eq!(widths.best(&sizes).columns, rest, "{sizes:?}");
            // And the first segment has a column on each device that has a free slot.
            let here = sizes.iter().filter(|&&size| size > 0).count() as u32;
            let widest = (here > parity).then_some(here);
            assert_eq!(widths.next(&sizes, 0), widest, "{sizes:?}");
        }
    }

    /// The table of decision 0115, in slots of a column's size.
    #[test]
    fn the_examples_of_the_decision_come_to_what_it_says() {
        let of = |parity: u32, least: u32, sizes: &[u32]| {
            let most = u32::try_from(sizes.len()).unwrap();
            let whole = formable(sizes, most) * (most - parity);
            (u64::from(whole), Widths { parity, least, most }.best(sizes).columns)
        };
        assert_eq!(of(1, 2, &[4000, 4000, 1000]), (2000, 5000));
        assert_eq!(of(1, 2, &[4000, 4000, 2000, 2000]), (6000, 8000));
        assert_eq!(of(1, 2, &[8000, 4000, 4000, 4000]), (12_000, 12_000));
        assert_eq!(of(2, 4, &[8000, 8000, 8000, 4000, 4000, 4000]), (16_000, 20_000));
        assert_eq!(of(1, 3, &[8000, 8000, 1000, 1000, 1000]), (4000, 6000));
    }

    #[test]
    fn a_segment_that_has_to_hold_more_is_wider() {
        let widths = Widths { parity: 1, least: 2, most: 3 };
        assert_eq!((widths.next(&[9, 9, 9, 0], 3), widths.next(&[2, 2, 2], 0)), (Some(3), Some(3)));
        assert_eq!(widths.next(&[9, 9, 0, 0], 3), None, "no two devices make three columns");
        assert_eq!(widths.next(&[], 0), None);
        // Two segments of four columns hold two columns of data each. One of five holds three, and
        // leaves too little for another.
        let few = Widths { parity: 2, least: 4, most: 5 };
        assert_eq!((few.best(&[2, 2, 2, 1, 1]).columns, few.next(&[2, 2, 2, 1, 1], 0)), (4, Some(4)));
        assert_eq!(few.next(&[2, 2, 2, 1, 1], 5), Some(5), "it is wanted, whatever it loses");
    }

    #[test]
    fn what_is_taken_from_the_greatest_leaves_them_alike() {
        let mut seed = 5;
        for _ in 0..1000 {
            let devices = 1 + random(&mut seed, 6);
            let free: Vec<u32> = (0..devices).map(|_| random(&mut seed, 20) as u32).collect();
            let count = random(&mut seed, 60);
            let mut expected = free.clone();
            for _ in 0..count {
                let greatest = expected.iter_mut().max().expect("there is one");
                *greatest = greatest.saturating_sub(1);
            }
            let mut lowered = lowered(&free, count);
            assert!(lowered.iter().zip(&free).all(|(lowered, free)| lowered <= free));
            expected.sort_unstable();
            lowered.sort_unstable();
            assert_eq!(lowered, expected, "{free:?} less {count}");
        }
        assert!(lowered(&[], 3).is_empty());
    }
}
