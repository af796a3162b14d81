//! When the open txg is closed. The decision is here, the loop in `pool`.

use std::time::Duration;

/// Why a txg was closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CloseReason {
    /// Somebody waits for it.
    Request,
    /// Enough is dirty to keep the devices busy.
    Dirty,
    /// Its first change has waited long enough.
    Time,
}

/// The state that the decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Monotonic time now.
    pub now_ns: u64,
    /// Monotonic time of the first change of the open txg that is worth a commit; `None`: there is
    /// nothing to commit.
    pub changed_ns: Option<u64>,
    /// Reserved bytes against their limit, in thousandths ([`crate::Budget::fullness`]).
    pub fullness: u32,
    /// A commit of the open txg was asked for ([`crate::Commits::is_requested`]).
    pub requested: bool,
}

impl Moment {
    /// How long the first change waits.
    fn age(&self) -> Option<Duration> {
        let since = self.changed_ns?;
        Some(Duration::from_nanos(self.now_ns.saturating_sub(since)))
    }
}

/// Rule by which a txg is closed.
///
/// The interval counts from the first change of the open txg, not from the commit before: behind a
/// rest a txg fills as long as any other, and what came first is durable an interval later.
#[derive(Clone, Copy, Debug)]
pub struct CloseRule {
    /// Longest time changes stay uncommitted.
    pub interval: Duration,
    /// Fullness at which a sync starts, in thousandths. Well below the throttle's start (600), so
    /// that in balance one txg is written while the next one fills: 250 frozen + 250 open is still
    /// undelayed.
    pub fullness: u32,
}

impl Default for CloseRule {
    fn default() -> CloseRule {
        CloseRule { interval: Duration::from_secs(5), fullness: 250 }
    }
}

impl CloseRule {
    /// Why the open txg should be closed now, or `None`.
    #[must_use]
    pub fn decide(&self, moment: &Moment) -> Option<CloseReason> {
        if moment.requested {
            return Some(CloseReason::Request);
        }
        if moment.fullness >= self.fullness {
            return Some(CloseReason::Dirty);
        }
        (moment.age()? >= self.interval).then_some(CloseReason::Time)
    }

    /// How long the loop may sleep before it must decide again, if nobody wakes it.
    #[must_use]
    pub fn patience(&self, moment: &Moment) -> Duration {
        let rest = self.interval.saturating_sub(moment.age().unwrap_or_default());
        if rest.is_zero() { self.interval } else { rest }
    }
}
