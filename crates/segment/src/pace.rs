//! How much the cleaner copies in one commit: a share of time, by the rate that the devices showed
//! in commits before.

use std::sync::atomic::{AtomicU64, Ordering};

/// How long the cleaner's share of one commit may keep the devices busy. Writers that reached their
/// limit wait for a commit.
const CLEAN_NS: u64 = 40_000_000;
/// Of a long commit it may be half of what was written before, up to this: where txgs are large
/// there is room, and with nothing but the share above the cleaner would fall behind until they are
/// small.
const CLEAN_NS_MAX: u64 = 160_000_000;
/// Bytes that the cleaner copies in one commit at least, whatever the devices do, and at most; it
/// may exceed them by one segment.
const CLEAN_BYTES_MIN: u64 = 1 << 20;
const CLEAN_BYTES_MAX: u64 = 64 << 20;
/// Bytes to and from devices below which a commit's duration says little about their rate.
const RATED_BYTES: u64 = 4 << 20;
/// Bytes copied before any commit was timed.
const FIRST_BYTES: u64 = 16 << 20;

/// The cleaner's pace in a pool.
#[derive(Debug)]
pub struct Pace {
    /// Bytes that the devices copy in [`CLEAN_NS`].
    bytes: AtomicU64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { bytes: AtomicU64::new(FIRST_BYTES) }
    }
}

impl Pace {
    /// A pace that copies `bytes` in a commit until commits are timed.
    #[must_use]
    pub fn of(bytes: u64) -> Pace {
        Pace { bytes: AtomicU64::new(bytes) }
    }

    /// Bytes that the cleaner copies in the shortest commit: what writers may count on.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that the cleaner may copy in a commit that has taken `elapsed_ns` so far.
    #[must_use]
    pub fn budget(&self, elapsed_ns: u64) -> u64 {
        let share_ns = (elapsed_ns / 2).clamp(CLEAN_NS, CLEAN_NS_MAX);
        self.bytes() * (share_ns / 1000) / (CLEAN_NS / 1000)
    }

    /// A commit read and wrote `bytes` in `ns` nanoseconds: sets what the cleaner may copy in the
    /// next one, a read and a write a byte. Smoothed, so that one slow flush does not stop the
    /// cleaner.
    pub fn observe(&self, bytes: u64, ns: u64) {
        if bytes < RATED_BYTES {
            return;
        }
        let now = u128::from(bytes / 2) * u128::from(CLEAN_NS) / u128::from(ns.max(1));
        let now = u64::try_from(now).unwrap_or(u64::MAX).clamp(CLEAN_BYTES_MIN, CLEAN_BYTES_MAX);
        self.bytes.store((self.bytes() * 3 + now) / 4, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_follows_the_rate_of_the_devices_and_the_length_of_the_commit() {
        let pace = Pace::default();
        for _ in 0..64 {
            pace.observe(400 << 20, 1_000_000_000);
        }
        let short = pace.budget(0);
        assert!((7 << 20..=8 << 20).contains(&short), "200 MiB/s copied in 40 ms: {short}");
        assert_eq!(pace.budget(80_000_000), short, "half of 80 ms");
        assert_eq!(pace.budget(160_000_000), 2 * short);
        assert_eq!(pace.budget(u64::MAX), 4 * short);
        assert_eq!(pace.bytes(), short);
    }

    #[test]
    fn a_small_commit_says_nothing_and_no_commit_says_much() {
        let pace = Pace::default();
        pace.observe(RATED_BYTES - 1, 60_000_000_000);
        assert_eq!(pace.bytes(), FIRST_BYTES);
        pace.observe(RATED_BYTES, 60_000_000_000);
        assert_eq!(pace.bytes(), (3 * FIRST_BYTES + CLEAN_BYTES_MIN) / 4, "a quarter of the way at once");
        for _ in 0..64 {
            pace.observe(RATED_BYTES, 0);
        }
        assert!(pace.bytes() <= CLEAN_BYTES_MAX);
    }
}
