//! An audit by schedule, spread over its period: how far it is.

use std::time::Duration;
use steadfast_bucket::Counts;
use steadfast_pool::AuditReport;

/// Batches of an audit by schedule.
pub(super) const BATCHES: u32 = 12;

/// An audit by schedule that has begun: batches of it are asked for all over its period.
#[derive(Default)]
pub(super) struct Spread {
    /// End of the audit before, in nanoseconds since 1970.
    pub behind_ns: u64,
    /// Batches that were asked for.
    pub done: u32,
    /// When the next one is due, counted from there.
    pub next: Duration,
    /// The agent gave no answer.
    pub is_silent: bool,
    pub asked: Asked,
}

impl Spread {
    /// The batch up to which all are due.
    pub fn due(&self, age: Duration, every: Duration) -> Option<u32> {
        if age >= every {
            return Some(BATCHES);
        }
        let passed = age.as_nanos() * u128::from(BATCHES) / every.as_nanos();
        let passed = u32::try_from(passed).unwrap_or(BATCHES);
        (age >= self.next).then_some(passed.clamp(self.done + 1, BATCHES))
    }

    /// True if all batches were asked for, or one was not held: that is told at once.
    pub fn is_over(&self) -> bool {
        self.done >= BATCHES || self.asked.report.as_ref().is_some_and(|report| !report.is_held())
    }
}

/// Batches of an audit that were asked for, and what they cost.
#[derive(Default)]
pub(super) struct Asked {
    pub report: Option<AuditReport>,
    pub begun_wall_ns: u64,
    pub nanos: u64,
    pub counts: Counts,
    pub price: Option<(u64, String)>,
}

impl Asked {
    pub fn strata(&self) -> usize {
        self.report.as_ref().map_or(0, |report| report.strata.len())
    }
}
