//! Committed txgs, waiters for them, and requests for the next commit.

use crate::{Patience, Refusal};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use steadfast_format::Txg;

/// The pool is suspended: nothing commits any more until it is reopened.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the pool is suspended: {reason}")]
pub struct Suspended {
    /// The cause, for the operator.
    pub reason: Arc<str>,
}

/// Progress of commits, and the callers that wait for it.
pub struct Commits {
    state: Mutex<State>,
    /// Woken by a commit or a suspension.
    progress: Condvar,
    /// Woken by a request.
    work: Condvar,
    /// Woken by each turn of the sync loop, for callers that wait for its background work.
    news: Condvar,
    /// A step of the sync loop, in a world where nobody else makes it.
    step: OnceLock<Step>,
    /// Reads wait for a device that is away.
    holds_reads: AtomicBool,
}

/// One look of the sync loop, made by its waiter.
pub type Step = Box<dyn Fn() + Send + Sync>;

/// Steps without a commit after which a waiter would wait for ever.
const FUTILE_STEPS_MAX: u32 = 100_000;

struct State {
    committed: Txg,
    /// Greatest txg somebody wants committed soon.
    requested: Txg,
    /// The loop should look again even if nothing was requested.
    nudged: bool,
    suspended: Option<Suspended>,
    /// A commit waits for a device that is away. Memory still takes changes, while there is room.
    stalled: Option<Suspended>,
    /// While it is suspended, operations wait instead of failing.
    holding: bool,
    /// Turns of the sync loop that were told of.
    turns: u64,
}

impl State {
    /// Why no commit comes, if so.
    fn halted(&self) -> Option<&Suspended> {
        self.suspended.as_ref().or(self.stalled.as_ref())
    }
}

/// How often an operation that is held looks whether its caller still lives.
const HOLD_LOOK: Duration = Duration::from_millis(200);

impl Commits {
    /// Starts with `committed` as the last durable txg.
    #[must_use]
    pub fn new(committed: Txg) -> Commits {
        let (requested, nudged, suspended, stalled, holding) = (Txg(0), false, None, None, false);
        let state = State { committed, requested, nudged, suspended, stalled, holding, turns: 0 };
        Commits {
            state: Mutex::new(state),
            progress: Condvar::new(),
            work: Condvar::new(),
            news: Condvar::new(),
            step: OnceLock::new(),
            holds_reads: AtomicBool::new(false),
        }
    }

    /// From now on waiters drive the sync loop themselves: each wait is a row of steps. For worlds
    /// without tasks, where a wait for another thread would have no end. Set once, before the first
    /// wait.
    pub fn set_step(&self, step: Step) {
        assert!(self.step.set(step).is_ok(), "one loop commits");
    }

    /// Makes one step of the sync loop, if waiters are to make them. False where a task does.
    pub fn make_step(&self) -> bool {
        match self.step.get() {
            Some(step) => {
                step();
                true
            }
            None => false,
        }
    }

    /// Makes steps until `txg` is durable. False where a task makes them.
    fn drive_to(&self, txg: Txg) -> Result<bool, Suspended> {
        if self.step.get().is_none() {
            return Ok(false);
        }
        for _ in 0..FUTILE_STEPS_MAX {
            {
                let state = self.state.lock();
                if state.committed >= txg {
                    return Ok(true);
                }
                if let Some(suspended) = state.halted() {
                    return Err(suspended.clone());
                }
            }
            self.make_step();
        }
        panic!("txg {txg} is waited for, and never committed");
    }

    /// Last durable txg.
    #[must_use]
    pub fn committed(&self) -> Txg {
        self.state.lock().committed
    }

    /// Asks that `txg` be committed soon.
    pub fn request_sync(&self, txg: Txg) {
        let mut state = self.state.lock();
        if txg > state.requested {
            state.requested = txg;
            self.work.notify_all();
        }
    }

    /// True if somebody asked for a commit of `open` (or a later txg).
    #[must_use]
    pub fn is_requested(&self, open: Txg) -> bool {
        self.state.lock().requested >= open
    }

    /// Wakes the loop so that it decides anew (dirty bytes crossed a mark, the pool closes).
    pub fn nudge(&self) {
        self.state.lock().nudged = true;
        self.work.notify_all();
    }

    /// Waits until `txg` is durable. Fails if the pool is suspended or stalled before that.
    pub fn wait_committed(&self, txg: Txg) -> Result<(), Suspended> {
        self.wait(txg, false)
    }

    /// The same for a client of the pool, who waits for a stalled pool where operations are held.
    pub fn wait_committed_held(&self, txg: Txg) -> Result<(), Suspended> {
        self.wait(txg, true)
    }

    fn wait(&self, txg: Txg, is_held: bool) -> Result<(), Suspended> {
        if self.drive_to(txg)? {
            return Ok(());
        }
        let mut state = self.state.lock();
        loop {
            if state.committed >= txg {
                return Ok(());
            }
            let waits = is_held && state.holding && state.suspended.is_none();
            if let Some(suspended) = state.halted().filter(|_| !waits) {
                return Err(suspended.clone());
            }
            self.progress.wait(&mut state);
        }
    }

    /// Waits until `txg` is durable, at most `patience`. True if it is.
    pub fn wait_committed_for(&self, txg: Txg, patience: Duration) -> Result<bool, Suspended> {
        if self.drive_to(txg)? {
            return Ok(true);
        }
        let mut state = self.state.lock();
        if state.committed < txg && state.halted().is_none() {
            self.progress.wait_for(&mut state, patience);
        }
        if state.committed < txg && state.halted().is_some() && state.holding {
            self.progress.wait_for(&mut state, patience.min(HOLD_LOOK));
            return Ok(false);
        }
        match state.halted() {
            _ if state.committed >= txg => Ok(true),
            Some(suspended) => Err(suspended.clone()),
            None => Ok(false),
        }
    }

    /// The sync loop sleeps here until a request for `open`, a nudge, or `patience` has passed. A
    /// loop that cannot commit gives `None`: requests stay, and would end each sleep at once.
    pub fn park(&self, open: Option<Txg>, patience: Duration) {
        let mut state = self.state.lock();
        if open.is_none_or(|open| state.requested < open) && !state.nudged {
            self.work.wait_for(&mut state, patience);
        }
        state.nudged = false;
    }

    /// The sync loop made a turn: whatever went on in the background may have ended with it.
    pub fn tell(&self) {
        self.state.lock().turns += 1;
        self.news.notify_all();
    }

    /// How often [`Commits::tell`] was called: to be asked before the look whose answer is waited
    /// for.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.state.lock().turns
    }

    /// Waits until a turn was told of that is not among the first `seen`, at most `patience`; where
    /// nobody else makes turns, makes one.
    pub fn wait_turn(&self, seen: u64, patience: Duration) {
        if self.make_step() {
            return;
        }
        let mut state = self.state.lock();
        let _ = self.news.wait_while_for(&mut state, |state| state.turns <= seen, patience);
    }

    /// The pool made `txg` durable.
    pub fn note_committed(&self, txg: Txg) {
        let mut state = self.state.lock();
        assert!(txg > state.committed, "[txg.1] commits go forward: {txg} after {}", state.committed);
        state.committed = txg;
        self.progress.notify_all();
    }

    /// Nothing commits any more: all waiting and later callers get `reason`. The first reason
    /// stays.
    pub fn suspend(&self, reason: &str) {
        let mut state = self.state.lock();
        state.suspended.get_or_insert_with(|| Suspended { reason: reason.into() });
        self.progress.notify_all();
        self.work.notify_all();
    }

    /// A commit waits for a device that is away. Changes go on as far as memory has room for them;
    /// a wait for a commit fails, or goes on where operations are held.
    pub fn stall(&self, reason: &str) {
        let mut state = self.state.lock();
        state.stalled.get_or_insert_with(|| Suspended { reason: reason.into() });
        self.progress.notify_all();
    }

    /// Commits go on: the fault is over, and nothing was lost by it. A loop that is about to sleep
    /// because it could not commit looks again.
    pub fn resume(&self) {
        let mut state = self.state.lock();
        (state.suspended, state.stalled, state.nudged) = (None, None, true);
        self.progress.notify_all();
        self.work.notify_all();
    }

    /// Whether operations that a suspended pool cannot take wait (`failmode=wait`) instead of
    /// failing. Those that wait fail once this is off. A caller that only waits for the commit of
    /// earlier operations, as the pool's own verbs do, fails at once in any case.
    pub fn set_holding(&self, on: bool) {
        self.state.lock().holding = on;
        self.progress.notify_all();
    }

    /// Whether reads wait for a device that is away.
    pub fn set_holding_reads(&self, on: bool) {
        self.holds_reads.store(on, Ordering::Relaxed);
    }

    /// True if reads wait for a device that is away.
    #[must_use]
    pub fn holds_reads(&self) -> bool {
        self.holds_reads.load(Ordering::Relaxed)
    }

    /// Fails if the pool is suspended; where operations are held, only when they are let go, or the
    /// caller's patience ends.
    pub(crate) fn check_patiently(&self, patience: Patience) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        let mut has_waited = false;
        loop {
            match &state.suspended {
                None => return Ok(()),
                Some(suspended) if !state.holding || !patience.waits_for_halted() => {
                    return Err(suspended.clone().into());
                }
                Some(_) => patience.check(has_waited)?,
            }
            self.progress.wait_for(&mut state, HOLD_LOOK);
            has_waited = true;
        }
    }

    /// The same for an operation that waits for a commit: it fails on a stalled pool, too.
    pub(crate) fn check_progress(&self, patience: Patience) -> Result<(), Refusal> {
        {
            let state = self.state.lock();
            let fails = !state.holding || !patience.waits_for_halted();
            if let Some(stalled) = state.stalled.as_ref().filter(|_| fails) {
                return Err(stalled.clone().into());
            }
        }
        self.check_patiently(patience)
    }

    /// True if no commit comes for now: the pool is suspended, or its store is away.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        self.state.lock().halted().is_some()
    }

    /// Fails if the pool is suspended.
    pub fn check(&self) -> Result<(), Suspended> {
        match &self.state.lock().suspended {
            Some(suspended) => Err(suspended.clone()),
            None => Ok(()),
        }
    }
}
