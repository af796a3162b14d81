//! Counters of one store: requests by operation, bytes, failures. They only grow; a rate is the
//! difference of two [`Counts`], and a price is a sum over them ([`crate::prices`]).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Operation;

const KINDS: usize = Operation::REQUESTS.len();

/// Counters while they are counted.
#[derive(Debug, Default)]
pub struct Meter {
    requests: [AtomicU64; KINDS],
    failed: [AtomicU64; KINDS],
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    retries: AtomicU64,
    hedges: AtomicU64,
    slowdowns: AtomicU64,
}

/// All counters at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Requests, in the order of [`Operation::REQUESTS`]: every try and every page of a list is
    /// one, since each is paid for.
    pub requests: [u64; KINDS],
    /// Operations that failed for good, in the same order.
    pub failed: [u64; KINDS],
    /// Bytes of objects read.
    pub bytes_in: u64,
    /// Bytes of objects sent, those of repeated tries too.
    pub bytes_out: u64,
    /// Tries after the first.
    pub retries: u64,
    /// Reads that were asked for a second time because the first was slow.
    pub hedges: u64,
    /// Answers that asked for fewer requests.
    pub slowdowns: u64,
}

impl Counts {
    /// Requests of one operation.
    #[must_use]
    pub fn of(&self, operation: Operation) -> u64 {
        index(operation).map_or(0, |index| self.requests[index])
    }

    /// All requests.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Requests of each operation, by its word.
    pub fn words(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Operation::REQUESTS.iter().map(|operation| operation.word()).zip(self.requests)
    }

    /// The same counters, of which each is joined with the same one of others.
    fn with(&self, other: &Counts, join: fn(u64, u64) -> u64) -> Counts {
        let all =
            |own: &[u64; KINDS], other: &[u64; KINDS]| std::array::from_fn(|at| join(own[at], other[at]));
        Counts {
            requests: all(&self.requests, &other.requests),
            failed: all(&self.failed, &other.failed),
            bytes_in: join(self.bytes_in, other.bytes_in),
            bytes_out: join(self.bytes_out, other.bytes_out),
            retries: join(self.retries, other.retries),
            hedges: join(self.hedges, other.hedges),
            slowdowns: join(self.slowdowns, other.slowdowns),
        }
    }

    /// The counters of both.
    #[must_use]
    pub fn plus(&self, other: &Counts) -> Counts {
        self.with(other, u64::saturating_add)
    }

    /// Increase since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Counts) -> Counts {
        self.with(earlier, u64::saturating_sub)
    }
}

fn index(operation: Operation) -> Option<usize> {
    Operation::REQUESTS.iter().position(|known| *known == operation)
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl Meter {
    pub(crate) fn request(&self, operation: Operation) {
        if let Some(index) = index(operation) {
            add(&self.requests[index], 1);
        }
    }

    pub(crate) fn failure(&self, operation: Operation) {
        if let Some(index) = index(operation) {
            add(&self.failed[index], 1);
        }
    }

    pub(crate) fn received(&self, bytes: usize) {
        add(&self.bytes_in, bytes as u64);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        add(&self.bytes_out, bytes as u64);
    }

    pub(crate) fn retry(&self) {
        add(&self.retries, 1);
    }

    pub(crate) fn hedge(&self) {
        add(&self.hedges, 1);
    }

    pub(crate) fn slowdown(&self) {
        add(&self.slowdowns, 1);
    }

    /// The counters now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            requests: std::array::from_fn(|index| load(&self.requests[index])),
            failed: std::array::from_fn(|index| load(&self.failed[index])),
            bytes_in: load(&self.bytes_in),
            bytes_out: load(&self.bytes_out),
            retries: load(&self.retries),
            hedges: load(&self.hedges),
            slowdowns: load(&self.slowdowns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_increase_and_the_earlier_counters_are_the_later_ones() {
        let meter = Meter::default();
        meter.request(Operation::Create);
        meter.sent(100);
        let earlier = meter.counts();
        meter.request(Operation::Get);
        meter.request(Operation::Get);
        meter.received(7);
        let increase = meter.counts().since(&earlier);
        assert_eq!((increase.of(Operation::Get), increase.of(Operation::Create)), (2, 0));
        assert_eq!((increase.bytes_in, increase.bytes_out, increase.total()), (7, 0, 2));
        assert_eq!(earlier.plus(&increase), meter.counts());
        assert_eq!(
            earlier.since(&meter.counts()),
            Counts::default(),
            "a meter that begins anew takes nothing away"
        );
        assert_eq!(meter.counts().words().find(|(word, _)| *word == "get"), Some(("get", 2)));
    }
}
