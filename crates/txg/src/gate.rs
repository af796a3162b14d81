//! The gate: operations hold the open txg, the sync thread closes it. It is held briefly: nothing
//! is read or written under it.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLockReadGuard;
use steadfast_env::brief::{BriefGuard, BriefRwLock};
use steadfast_format::Txg;

/// Holds the number of the open txg. Operations hold it shared, `advance` exclusively.
pub struct Gate {
    open: BriefRwLock<Txg>,
    /// The same number, for those that are inside already.
    shown: AtomicU64,
}

/// A hold of the open txg: it cannot be frozen while this lives.
pub struct Hold<'a> {
    open: BriefGuard<RwLockReadGuard<'a, Txg>>,
}

impl Gate {
    /// A gate whose open txg is `first`.
    #[must_use]
    pub fn new(first: Txg) -> Gate {
        Gate { open: BriefRwLock::new(first), shown: AtomicU64::new(first.0) }
    }

    /// Enters the open txg. Waits while a freeze runs. Never called by a thread that is inside
    /// already: a waiting freeze would stand between the two.
    pub fn enter(&self) -> Hold<'_> {
        Hold { open: self.open.read() }
    }

    /// Enters the open txg unless that would mean waiting for a freeze.
    #[must_use]
    pub fn try_enter(&self) -> Option<Hold<'_>> {
        self.open.try_read().map(|open| Hold { open })
    }

    /// Number of the open txg, a moment ago. Never called by a thread that is inside already, as
    /// for [`Gate::enter`].
    #[must_use]
    pub fn open_txg(&self) -> Txg {
        *self.open.read()
    }

    /// Number of the txg that is open or being frozen, without waiting: exact for a thread that is
    /// inside, and for one that freezes.
    #[must_use]
    pub fn present_txg(&self) -> Txg {
        Txg(self.shown.load(Ordering::Acquire))
    }

    /// Waits until every operation has left, and runs `look` with the open txg while nothing is
    /// inside. The txg stays open.
    pub fn still<R>(&self, look: impl FnOnce(Txg) -> R) -> R {
        let open = self.open.write();
        look(*open)
    }

    /// Waits until every operation has left, runs `freeze` with the closing txg while nothing is
    /// inside, then opens the next one. Returns what `freeze` returned.
    pub fn advance<R>(&self, freeze: impl FnOnce(Txg) -> R) -> R {
        let mut open = self.open.write();
        let result = freeze(*open);
        *open = open.next();
        self.shown.store(open.0, Ordering::Release);
        result
    }

    /// The same if `freeze` gives something; else the txg stays open.
    pub fn try_advance<R>(&self, freeze: impl FnOnce(Txg) -> Option<R>) -> Option<R> {
        let mut open = self.open.write();
        let result = freeze(*open)?;
        *open = open.next();
        self.shown.store(open.0, Ordering::Release);
        Some(result)
    }
}

impl Hold<'_> {
    /// The txg held.
    #[must_use]
    pub fn txg(&self) -> Txg {
        *self.open
    }
}
