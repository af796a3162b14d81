//! When the open txg is closed. The decision is here, the loop in `pool`.

use std::time::Duration;

/// Why a txg was closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CloseReason {
    /// Somebody waits for it.
    Request,
    /// Enough is dirty to keep the devices busy.
    Dirty,
    /// It has been open long enough.
    Time,
}

/// The state that the decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Monotonic time now.
    pub now_ns: u64,
    /// Monotonic time when the txg was opened.
    pub opened_ns: u64,
    /// Reserved bytes against their limit, in thousandths ([`crate::Budget::fullness`]).
    pub fullness: u32,
    /// A commit of the open txg was asked for ([`crate::Commits::is_requested`]).
    pub requested: bool,
    /// Something in the open txg is worth a commit.
    pub changed: bool,
}

/// Rule by which a txg is closed.
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
        let age = Duration::from_nanos(moment.now_ns.saturating_sub(moment.opened_ns));
        (moment.changed && age >= self.interval).then_some(CloseReason::Time)
    }

    /// How long the loop may sleep before it must decide again, if nobody wakes it.
    #[must_use]
    pub fn patience(&self, moment: &Moment) -> Duration {
        let age = Duration::from_nanos(moment.now_ns.saturating_sub(moment.opened_ns));
        let rest = self.interval.saturating_sub(age);
        if rest.is_zero() { self.interval } else { rest }
    }
}
