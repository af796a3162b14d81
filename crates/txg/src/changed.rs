//! Whether something changed that no commit has stored, and since when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use steadfast_env::Clock;

/// Nothing changed.
const NEVER: u64 = u64::MAX;

/// A mark that a change of the open txg is to be committed. It carries the time of the first one,
/// from which the interval of commits counts ([`crate::CloseRule`]).
pub struct Changed {
    clock: Arc<dyn Clock>,
    /// Monotonic time of the first change, or [`NEVER`].
    since_ns: AtomicU64,
}

impl Changed {
    /// Nothing changed so far.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Changed {
        Changed { clock, since_ns: AtomicU64::new(NEVER) }
    }

    /// Notes a change that was made. Only the first one of a txg reads the clock and writes here.
    pub fn note(&self) {
        // With the fence in `clear`: a commit that clears the mark beside this either sees the
        // change, or this sees that the mark is gone.
        fence(Ordering::SeqCst);
        if self.since_ns.load(Ordering::Acquire) == NEVER {
            self.since_ns.fetch_min(self.clock.monotonic_ns(), Ordering::AcqRel);
        }
    }

    /// Takes the mark away, before the changes it stands for are taken.
    pub fn clear(&self) {
        self.since_ns.store(NEVER, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Monotonic time of the first change since the mark was taken away; `None`: nothing changed.
    #[must_use]
    pub fn since_ns(&self) -> Option<u64> {
        Some(self.since_ns.load(Ordering::Acquire)).filter(|since| *since != NEVER)
    }

    /// True if something changed.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.since_ns().is_some()
    }
}
