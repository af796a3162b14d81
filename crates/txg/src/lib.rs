//! # Transaction groups
//!
//! A transaction group (txg) is a set of changes that becomes durable all at once or not at all.
//! Operations join the open one; one thread of the pool closes it, writes it and commits it.
//!
//! ## Definitions
//! *Operation*: one call that changes something; it holds the gate from its first change to its
//! last.
//! *Memory cost*: bytes an operation leaves in memory until its txg is synced. *Space cost*: bytes
//! its txg may have to place on devices in the worst case. *Reserved*: the sum of costs of
//! operations whose txg is not yet released.
//!
//! ## States
//! ```text
//! open ─[Gate::advance: last holder leaves, freeze runs]→ frozen ─[pool syncs]→ synced
//!      ─[uberblock durable; Commits::note_committed, Budget::release]→ committed
//! ```
//! Quiescing has no duration of its own: the sync thread takes the gate exclusively, which waits
//! for the operations inside and holds back new ones, runs the freeze of every dataset (pointer
//! swaps and a few inode items), and lets T+1 in. Then T is written while operations of T+1 go on.
//!
//! ## Invariants
//! [txg.1] One txg is open at all times, and at most one is frozen and not committed. The pool
//!      calls `advance` only after it has committed or given up the previous one.
//!      assert: `Commits::note_committed`
//! [txg.2] An operation's changes are all in one txg: it holds the gate shared, and freeze holds it
//!      exclusively.
//!      test: `freeze_sees_whole_operations_only`
//! [txg.3] Reserved bytes of T fall only when T is released, after its real usage is known to the
//!      pool, so that `live + reserved` never under-estimates.
//!      test: `reserved_falls_only_by_settling_or_release`
//! [txg.4] Nothing waits for a commit while it holds the gate: throttle, admission and fsync happen
//!      outside.
//! [txg.5] A waiter outside can be given up: no wait is longer than a tenth of a second between two
//!      looks at whether the caller lives.
//!      test: `a_killed_caller_leaves_the_throttle`
//!
//! ## What it costs
//! One shared lock and one short mutex per operation. The stall at freeze is the longest running
//! operation (a copy of at most a megabyte) plus the freeze itself: nothing is read under the gate
//! (`dataset::Dataset::operate`).
//!
//! ## Why writers are slowed smoothly
//! If writers outrun the devices, reserved bytes grow. A bare limit would let writers run at memory
//! speed and then stop for the length of a sync. Instead each operation sleeps a little, more the
//! fuller it is (`budget`), so the point of balance is found where operations arrive as fast as
//! syncs drain. The idea is that of the OpenZFS write throttle.
//!
//! ## Lock order
//! Gate, then everything else. Throttle and admission come before the gate. A thread never enters
//! the gate twice.
//!
//! ## Not here
//! The work of freeze and sync is `dataset`'s and `pool`'s; this crate never writes.
#![forbid(unsafe_code)]

mod account;
mod budget;
mod changed;
mod claims;
mod close;
mod commits;
mod gate;
mod patience;

pub use account::Account;
pub use budget::{
    AdmitKind, Budget, Cost, Limits, Reservation, Room, Space, Unlimited, Verdict, Waits, delay_ns,
};
pub use changed::Changed;
pub use claims::{Claim, Claims};
pub use close::{CloseReason, CloseRule, Moment};
pub use commits::{Commits, Suspended};
pub use gate::{Gate, Hold};
pub use patience::Patience;

use std::sync::Arc;
use steadfast_env::Env;
use steadfast_format::Txg;

/// Why an operation was not let in. Nothing was changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The pool could not place the worst case of this operation.
    #[error("no space left in the pool")]
    NoSpace,
    /// A quota of the dataset, of one above it, or of an owner leaves no room for the worst case of
    /// this operation.
    #[error("a quota is reached")]
    OverQuota,
    /// The pool is suspended after a fault of its devices.
    #[error(transparent)]
    Suspended(#[from] Suspended),
    /// The pool takes no changes.
    #[error("the pool is read-only")]
    ReadOnly,
    /// It had to wait, and its caller is about to die ([`Patience::WhileAlive`]).
    #[error("the caller was killed while it waited")]
    CallerDying,
    /// It has to wait, and its caller does not want that ([`Patience::None`]).
    #[error("the operation would have to wait")]
    WouldWait,
}

/// All that operations and the sync thread of one pool share, and caches above it.
pub struct Txgs {
    /// Which txg is open.
    pub gate: Gate,
    /// Bytes that operations may still leave behind.
    pub budget: Budget,
    /// Committed txgs.
    pub commits: Commits,
    /// Space that caches above may need.
    pub claims: Claims,
}

impl Txgs {
    /// Starts with `committed` as the last durable txg; the one after it is open.
    #[must_use]
    pub fn new(env: &Env, committed: Txg, limits: Limits, space: Arc<dyn Space>) -> Txgs {
        Txgs {
            gate: Gate::new(committed.next()),
            budget: Budget::new(env.clone(), limits, space),
            commits: Commits::new(committed),
            claims: Claims::default(),
        }
    }

    /// Begins an operation: waits as the throttle says, asks for admission, then enters the open
    /// txg.
    ///
    /// `cost` is the worst case; [`Operation::settle`] gives back what was not needed. Must not be
    /// called by a thread that is inside an operation or holds any lock that an operation takes.
    /// Waits as long as the thread's [`Patience`] says.
    pub fn begin(&self, kind: AdmitKind, cost: Cost) -> Result<Operation<'_>, Refusal> {
        self.begin_for(None, kind, cost)
    }

    /// The same for an operation that is held to an account's limits too.
    pub fn begin_for(
        &self,
        account: Option<Arc<dyn Account>>,
        kind: AdmitKind,
        cost: Cost,
    ) -> Result<Operation<'_>, Refusal> {
        let mut reservation = self.budget.reserve(account, kind, cost, &self.commits)?;
        let hold = match Patience::current() {
            Patience::None => self.gate.try_enter().ok_or(Refusal::WouldWait)?,
            // A freeze takes milliseconds.
            Patience::Endless | Patience::WhileAlive { .. } | Patience::Accepted { .. } => self.gate.enter(),
        };
        reservation.assign(hold.txg());
        Ok(Operation { reservation, hold })
    }

    /// Begins an operation whose room was promised before: what a log is replayed with. It is
    /// counted like any other and waits for nothing. Refused only on a suspended pool.
    pub fn begin_promised(
        &self,
        account: Option<Arc<dyn Account>>,
        cost: Cost,
    ) -> Result<Operation<'_>, Refusal> {
        let mut reservation = self.budget.reserve_promised(account, cost, &self.commits)?;
        let hold = self.gate.enter();
        reservation.assign(hold.txg());
        Ok(Operation { reservation, hold })
    }
}

/// One operation inside the open txg. Dropping it leaves the gate; what it reserved stays until its
/// txg is released.
pub struct Operation<'a> {
    // Dropped first: an unassigned reservation would give its bytes back, an assigned one does
    // nothing.
    reservation: Reservation<'a>,
    hold: Hold<'a>,
}

impl Operation<'_> {
    /// The txg this operation belongs to.
    #[must_use]
    pub fn txg(&self) -> Txg {
        self.hold.txg()
    }

    /// Replaces the worst case by what the operation really left behind. May be called once or
    /// more; the last one counts.
    pub fn settle(&mut self, cost: Cost) {
        self.reservation.settle(cost);
    }
}

#[cfg(test)]
mod tests;
