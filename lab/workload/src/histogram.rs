//! Response times without their history: counts in log-linear buckets.
//!
//! # Shape
//!
//! Values below 128 ns have a bucket each. Above, each power of two is cut into 64 equal parts, so
//! a bucket is at most 1/64 of its value wide and its middle is wrong by at most 0.8 %. 2,496
//! buckets reach to 2^45 ns, almost ten hours; what is longer counts as that. 20 kB for one
//! operation of one thread, of which a run touches a few lines.
//!
//! # Writing without locks
//!
//! [`Cell`] has one writer, a worker thread, and any number of readers. The writer adds with a
//! plain load and a plain store (`Relaxed`; no locked instruction); readers see counts that are a
//! moment old. Counts only grow, so an interval is the difference of two readings, and nothing is
//! ever reset under a writer's feet.
//!
//! ## Invariants
//! [histogram.1] `bucket` is monotonic and `low(bucket(v)) <= v`.
//!      test: `buckets_hold_their_values`
//! [histogram.2] Merging then asking equals asking of all values at once.
//!      test: `merged_histograms_answer_as_one`

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// log2 of the parts of a power of two.
const PART_BITS: u32 = 6;
/// Values with more bits than this share the last bucket.
const VALUE_BITS: u32 = 45;
/// Number of buckets.
pub const BUCKETS: usize = ((VALUE_BITS - PART_BITS) as usize + 1) << PART_BITS;

/// Upper edges of vdbench's 27 buckets, in nanoseconds; the last has none.
pub const VDBENCH_EDGES_NS: [u64; 26] = [
    20_000,
    40_000,
    60_000,
    80_000,
    100_000,
    200_000,
    400_000,
    600_000,
    800_000,
    1_000_000,
    2_000_000,
    4_000_000,
    6_000_000,
    8_000_000,
    10_000_000,
    20_000_000,
    40_000_000,
    60_000_000,
    80_000_000,
    100_000_000,
    200_000_000,
    400_000_000,
    600_000_000,
    800_000_000,
    1_000_000_000,
    2_000_000_000,
];

/// The bucket of a value.
#[inline]
fn bucket(value: u64) -> usize {
    let value = value.min((1 << VALUE_BITS) - 1);
    let bits = 64 - (value | 1).leading_zeros();
    let shift = bits.saturating_sub(PART_BITS + 1);
    ((shift as usize) << PART_BITS) + (value >> shift) as usize
}

/// Smallest value of a bucket.
fn low(bucket: usize) -> u64 {
    let shift = (bucket >> PART_BITS).saturating_sub(1) as u32;
    ((bucket - ((shift as usize) << PART_BITS)) as u64) << shift
}

/// Counts of one operation of one thread. One writer; see the module's text.
#[derive(Debug, Default)]
pub struct Cell {
    /// Made by the first operation: most threads do few kinds of operations.
    counts: OnceLock<Box<[AtomicU64]>>,
    count: AtomicU64,
    sum_ns: AtomicU64,
    /// Sum of squares in square microseconds, as the bits of an f64.
    squares: AtomicU64,
    bytes: AtomicU64,
    /// Largest value, one place per interval modulo 4: the reader clears the place after next.
    max_ns: [AtomicU64; 4],
}

#[inline]
fn add(cell: &AtomicU64, value: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(value), Relaxed);
}

impl Cell {
    /// Counts one operation. To be called by the owning thread only.
    #[inline]
    pub fn record(&self, ns: u64, bytes: u64, interval: u32) {
        let counts = self.counts.get_or_init(|| (0..BUCKETS).map(|_| AtomicU64::new(0)).collect());
        add(&counts[bucket(ns)], 1);
        add(&self.count, 1);
        add(&self.sum_ns, ns);
        add(&self.bytes, bytes);
        let us = ns as f64 / 1000.0;
        self.squares.store((f64::from_bits(self.squares.load(Relaxed)) + us * us).to_bits(), Relaxed);
        let max = &self.max_ns[interval as usize % 4];
        if ns > max.load(Relaxed) {
            max.store(ns, Relaxed);
        }
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Adds all counts so far to `into`; the largest value is that of `interval`, whose place after
    /// next is cleared.
    pub fn read(&self, into: &mut Histogram, interval: u32) {
        into.count += self.count.load(Relaxed);
        into.sum_ns += u128::from(self.sum_ns.load(Relaxed));
        into.squares_us2 += f64::from_bits(self.squares.load(Relaxed));
        into.bytes += self.bytes.load(Relaxed);
        into.max_ns = into.max_ns.max(self.max_ns[interval as usize % 4].load(Relaxed));
        self.max_ns[(interval as usize + 2) % 4].store(0, Relaxed);
        for (to, from) in into.counts.iter_mut().zip(self.counts.get().into_iter().flatten()) {
            *to += from.load(Relaxed);
        }
    }
}

/// Response times of one kind of operation over some time: mergeable, subtractable.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    counts: Vec<u64>,
    /// Operations.
    pub count: u64,
    /// Sum of their response times.
    pub sum_ns: u128,
    /// Sum of the squares, in square microseconds.
    pub squares_us2: f64,
    /// Bytes they moved.
    pub bytes: u64,
    /// The slowest, exact.
    pub max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS], count: 0, sum_ns: 0, squares_us2: 0.0, bytes: 0, max_ns: 0 }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, ns: u64, bytes: u64) {
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.squares_us2 += (ns as f64 / 1000.0).powi(2);
        self.bytes += bytes;
        self.max_ns = self.max_ns.max(ns);
    }

    /// The buckets that hold something: their numbers and their counts.
    pub fn filled(&self) -> Vec<(u16, u64)> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, count)| (bucket as u16, *count)).collect()
    }

    /// This histogram with these buckets, as [`Histogram::filled`] gives them. `None` if there is
    /// no such bucket, or if they are more than can be counted.
    pub fn with_filled(self, filled: &[(u16, u64)]) -> Option<Histogram> {
        let mut counts = vec![0u64; BUCKETS];
        let mut sum = 0u64;
        for (bucket, count) in filled {
            let cell = counts.get_mut(usize::from(*bucket))?;
            *cell = cell.checked_add(*count)?;
            sum = sum.checked_add(*count)?;
        }
        Some(Histogram { counts, ..self })
    }

    /// Adds another.
    pub fn merge(&mut self, other: &Histogram) {
        for (to, from) in self.counts.iter_mut().zip(&other.counts) {
            *to += from;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.squares_us2 += other.squares_us2;
        self.bytes += other.bytes;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Counts since `before`, an earlier reading of the same cells. The largest value is this
    /// reading's own.
    pub fn since(&self, before: &Histogram) -> Histogram {
        let counts: Vec<u64> =
            self.counts.iter().zip(&before.counts).map(|(a, b)| a.saturating_sub(*b)).collect();
        Histogram {
            counts,
            count: self.count.saturating_sub(before.count),
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
            squares_us2: (self.squares_us2 - before.squares_us2).max(0.0),
            bytes: self.bytes.saturating_sub(before.bytes),
            max_ns: self.max_ns,
        }
    }

    /// Mean response time in milliseconds; 0 if there was none.
    pub fn mean_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 / 1e6 }
    }

    /// Largest, in milliseconds.
    pub fn max_ms(&self) -> f64 {
        self.max_ns as f64 / 1e6
    }

    /// Sample standard deviation (n-1) in milliseconds.
    pub fn stddev_ms(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = self.count as f64;
        let sum_us = self.sum_ns as f64 / 1000.0;
        ((self.squares_us2 - sum_us * sum_us / n).max(0.0) / (n - 1.0)).sqrt() / 1000.0
    }

    /// The value below which `percent` of the operations stayed, in nanoseconds, right to 0.8 %;
    /// never above the largest. 0 if there was none.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let total: u64 = self.counts.iter().sum();
        if total == 0 {
            return 0;
        }
        let rank = ((percent / 100.0 * total as f64).ceil() as u64).clamp(1, total);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let middle = (low(at) + low(at + 1).saturating_sub(1)) / 2;
                return if self.max_ns > 0 { middle.min(self.max_ns) } else { middle };
            }
        }
        self.max_ns
    }

    /// As [`Histogram::percentile_ns`], in milliseconds.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        self.percentile_ns(percent) as f64 / 1e6
    }

    /// The counts in vdbench's 27 buckets. A bucket of ours that lies across an edge goes where its
    /// middle lies.
    pub fn vdbench_buckets(&self) -> Vec<u64> {
        self.buckets(&VDBENCH_EDGES_NS)
    }

    /// The counts between rising upper edges, and those above the last.
    pub fn buckets(&self, edges_ns: &[u64]) -> Vec<u64> {
        let mut out = vec![0; edges_ns.len() + 1];
        for (at, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let middle = (low(at) + low(at + 1)) / 2;
            out[edges_ns.partition_point(|edge| *edge <= middle)] += count;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_values() {
        let mut last = 0;
        for power in 0..46u32 {
            for part in 0..130u64 {
                let value = (1u64 << power) + part * (1u64 << power) / 130;
                let at = bucket(value);
                assert!(at < BUCKETS, "{value}");
                if value < 1 << VALUE_BITS {
                    assert!(low(at) <= value && value < low(at + 1), "{value}: {} {}", low(at), low(at + 1));
                    assert!(low(at + 1) - low(at) <= (value / 64).max(1), "{value} is in a bucket too wide");
                    assert!(at >= last, "{value}");
                    last = at;
                }
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_of_a_known_distribution_are_right_within_one_per_cent() {
        let mut histogram = Histogram::default();
        for value in 1..=100_000u64 {
            histogram.record(value * 1_000, 0);
        }
        for percent in [50.0, 90.0, 99.0, 99.9] {
            let exact = percent * 1_000.0 * 1_000.0;
            let found = histogram.percentile_ns(percent) as f64;
            assert!((found - exact).abs() / exact < 0.01, "p{percent}: {found} for {exact}");
        }
        assert_eq!(histogram.max_ns, 100_000_000);
        assert!((histogram.mean_ms() - 50.0005).abs() < 1e-9);
        let exact = (100_000.0f64 * 100_001.0 / 12.0).sqrt() / 1000.0;
        assert!((histogram.stddev_ms() - exact).abs() / exact < 1e-6);
    }

    #[test]
    fn merged_histograms_answer_as_one() {
        let (mut one, mut two, mut all) = (Histogram::default(), Histogram::default(), Histogram::default());
        for value in 0..10_000u64 {
            let ns = value * value % 7_919 * 131;
            (if value % 3 == 0 { &mut one } else { &mut two }).record(ns, 7);
            all.record(ns, 7);
        }
        one.merge(&two);
        assert_eq!(one.counts, all.counts);
        assert_eq!(
            (one.count, one.sum_ns, one.bytes, one.max_ns),
            (all.count, all.sum_ns, all.bytes, all.max_ns)
        );
    }

    #[test]
    fn an_interval_is_the_difference_of_two_readings() {
        let cell = Cell::default();
        let (mut first, mut second) = (Histogram::default(), Histogram::default());
        cell.record(5_000, 10, 0);
        cell.record(9_000, 10, 0);
        cell.read(&mut first, 0);
        cell.record(1_000, 10, 1);
        cell.read(&mut second, 1);
        let interval = second.since(&first);
        assert_eq!((interval.count, interval.bytes, interval.max_ns, interval.sum_ns), (1, 10, 1_000, 1_000));
    }

    #[test]
    fn vdbenchs_buckets_count_everything_once() {
        let mut histogram = Histogram::default();
        for (ns, _) in [10_000u64, 30_000, 150_000, 3_000_000_000].iter().zip(0..) {
            histogram.record(*ns, 0);
        }
        let buckets = histogram.vdbench_buckets();
        assert_eq!(buckets.iter().sum::<u64>(), 4);
        assert_eq!((buckets[0], buckets[1], buckets[5], buckets[26]), (1, 1, 1, 1));
    }
}
