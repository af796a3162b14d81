//! Dirty budget and write throttle: the bytes that may be changed and not yet committed, and the
//! delay of writers.
//!
//! Like ZFS's write throttle (`dmu_tx_delay`), but bytes are reserved before an operation begins,
//! so a limit is never exceeded, and space on the devices is reserved with them (ZFS:
//! `dsl_dir_tempreserve_space`).
//!
//! ## The curve
//! Let `x` be fullness between the start (60 % of the limit) and the limit, 0 to 1. An operation of
//! `n` bytes waits
//!
//! ```text
//! delay = DELAY_UNIT_NS × max(n, 16 KiB) / 128 KiB × x / (1 − x)    at most DELAY_NS_MAX = 20 ms
//!
//! for n = 128 KiB:
//!    60 %: 0    70 %: 0.17 ms    80 %: 0.5 ms    90 %: 1.5 ms    95 %: 3.5 ms    98 %: 9.5 ms
//! ```
//! Delays are taken one after another (each wake-up is later than the one before by its delay), so
//! the rate let through at a fullness does not depend on the number of writers: 128 KiB per delay,
//! that is 750 MB/s at 70 %, 260 MB/s at 80 %, 87 MB/s at 90 %, 14 MB/s at 98 %. A device that
//! drains at 100 MB/s balances near 89 % with 1.3 ms a write. At the limit itself an operation
//! waits for a release, and nobody behind it for its delay; the curve's steepness makes that rare.
//! The delays of waiting writers were computed before a release. If the curve asks for no delay
//! after it, all of them go on, and the next writer waits for one longest delay at most.

use crate::{Account, Commits, Patience, Refusal};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;
use steadfast_env::Env;
use steadfast_env::waiting::for_commit;
use steadfast_format::Txg;

/// Delay of 128 KiB at the middle of the curve.
const DELAY_UNIT_NS: u64 = 500_000;
/// No single delay is longer.
const DELAY_NS_MAX: u64 = 20_000_000;
/// Where the curve starts, in thousandths of the limit.
const DELAY_START: u32 = 600;
/// How long a waiter sleeps before it looks again by itself.
const STALL_PATIENCE: Duration = Duration::from_millis(100);
/// Slices of a delay that make up as much.
const SLICES_A_LOOK: u32 = 5;
const _: () = assert!(SLICES_A_LOOK as u64 * DELAY_NS_MAX == STALL_PATIENCE.as_nanos() as u64);
/// Txgs that can hold reservations at once: open, frozen, and one being released. A power of two
/// above that.
const TXG_SLOTS: usize = 4;

/// Effect of an operation on space.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AdmitKind {
    /// It may leave the pool fuller.
    Write,
    /// It will leave the pool emptier in the end: admitted into the reserve, so that deleting works
    /// on a full pool.
    Remove,
    /// Content that comes later, piece by piece: there must be room for all of it in the end, and a
    /// place for its first piece now.
    Promise,
    /// A write that was accepted before, when there was room, and whose content is lost if it is
    /// refused: admitted into the reserve, and past quotas. The cache bounds its bytes.
    Accepted,
}

/// Bytes an operation may leave behind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Cost {
    /// In memory, until its txg is synced.
    pub memory: u64,
    /// On devices, in the worst case.
    pub space: u64,
    /// Leaves of metadata that may change because of it, one for each block of content written or
    /// freed: what they take depends on what else the txg changes ([`Space::overhead`]).
    pub blocks: u64,
}

impl Cost {
    /// Sum of two costs.
    #[must_use]
    pub fn plus(self, other: Cost) -> Cost {
        Cost {
            memory: self.memory + other.memory,
            space: self.space + other.space,
            blocks: self.blocks + other.blocks,
        }
    }
}

impl Cost {
    /// The rest without a cost that is part of this one.
    fn less(self, part: Cost) -> Cost {
        Cost {
            memory: self.memory - part.memory,
            space: self.space - part.space,
            blocks: self.blocks - part.blocks,
        }
    }
}

/// Answer of the pool to a wish for space.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// There is room for the worst case.
    Admit,
    /// There may be room once what is reserved or freed now is committed: wait for a commit and ask
    /// again.
    AfterCommit,
    /// There will be room once the cleaner, or a deletion that goes on from commit to commit, has
    /// got further: wait for a commit and ask again, as often as this is the answer. The pool gives
    /// it only while it sees progress.
    AfterCleaning,
    /// There is none.
    NoSpace,
    /// There may be room below a limit once what is reserved or freed now is committed: like
    /// [`Verdict::AfterCommit`].
    QuotaAfterCommit,
    /// A limit of the dataset, of one above it or of an owner is reached.
    OverQuota,
    /// The pool takes no changes.
    ReadOnly,
}

/// How much of a pool is free.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Room {
    /// Bytes that may come to live, besides those that do.
    pub free: u64,
    /// Bytes that may live at most.
    pub capacity: u64,
    /// Bytes of content that can be written before the cleaner has gained slots.
    pub placeable: u64,
}

/// The pool's knowledge of its space.
pub trait Space: Send + Sync {
    /// May an operation of this kind go on, if afterwards `reserved` (this operation's included, of
    /// which `cost` is new) is promised and not yet placed? Called under the budget's lock: must be
    /// quick and must not call the budget.
    fn admit(&self, kind: AdmitKind, cost: Cost, reserved: Cost) -> Verdict;

    /// Bytes that the metadata of so many changed blocks may take beyond what is kept for it. Grows
    /// with them, and for the sum of two it is no more than for each. Called like [`Space::admit`].
    fn overhead(&self, blocks: u64) -> u64 {
        let _ = blocks;
        0
    }

    /// How much is free as of the last commit. Without end, if nobody says otherwise.
    fn room(&self) -> Room {
        Room { free: u64::MAX, capacity: u64::MAX, placeable: u64::MAX }
    }

    /// Called, without gate or locks, when an operation has to wait for a commit: a world without a
    /// sync thread makes one here and returns true. With a sync thread it is false, and the
    /// operation sleeps until that has committed.
    fn commit_inline(&self) -> bool {
        false
    }
}

/// Space without end.
pub struct Unlimited;

impl Space for Unlimited {
    fn admit(&self, _: AdmitKind, _: Cost, _: Cost) -> Verdict {
        Verdict::Admit
    }
}

/// Bounds of what may be reserved at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of worst-case space.
    pub space: u64,
}

/// How long operations waited before they were let in, all together since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Waits {
    /// Operations that the curve delayed.
    pub delayed: u64,
    /// How long the curve said that they should wait, in nanoseconds.
    pub delayed_ns: u64,
    /// Times that one waited for a release: at a limit, or because the pool did not admit it yet.
    pub held: u64,
    /// How long, in nanoseconds.
    pub held_ns: u64,
}

/// Dirty budget of a pool.
pub struct Budget {
    env: Env,
    space: Arc<dyn Space>,
    state: Mutex<State>,
    released: Condvar,
}

struct State {
    limits: Limits,
    /// All that is reserved.
    total: Cost,
    /// The part of it that has its txg, by txg modulo the number of slots.
    by_txg: [Cost; TXG_SLOTS],
    /// Monotonic time at which the last delayed operation wakes.
    wake_ns: u64,
    /// Number of releases; a waiter sees whether one came.
    releases: u64,
    waits: Waits,
}

impl State {
    /// Fullness in thousandths, of the limit that is nearer.
    fn fullness(&self, world: &dyn Space, extra: Cost) -> u32 {
        let all = self.total.plus(extra);
        let space = thousandths(all.space.saturating_add(world.overhead(all.blocks)), self.limits.space);
        self.memory_fullness(extra).max(space)
    }

    fn memory_fullness(&self, extra: Cost) -> u32 {
        thousandths(self.total.memory + extra.memory, self.limits.memory)
    }

    /// Fullness as an operation of this kind feels it. The limit of space paces those who fill the
    /// pool: where it is small, deleting is what helps, and has only to be bounded by memory and by
    /// admission.
    fn felt(&self, world: &dyn Space, kind: AdmitKind, extra: Cost) -> u32 {
        match kind {
            AdmitKind::Write | AdmitKind::Promise => self.fullness(world, extra),
            AdmitKind::Remove | AdmitKind::Accepted => self.memory_fullness(extra),
        }
    }
}

fn thousandths(used: u64, limit: u64) -> u32 {
    u32::try_from(u128::from(used) * 1000 / u128::from(limit.max(1))).unwrap_or(u32::MAX)
}

/// Delay, in nanoseconds, of an operation that leaves `bytes` in memory when reservations stand at
/// `fullness` thousandths of their limit. Public for simulations of a pool.
#[must_use]
pub fn delay_ns(fullness: u32, bytes: u64) -> u64 {
    if fullness <= DELAY_START {
        return 0;
    }
    if fullness >= 1000 {
        return DELAY_NS_MAX;
    }
    let unit = DELAY_UNIT_NS.saturating_mul(bytes.max(16 << 10)) / (128 << 10);
    let (above, below) = (u64::from(fullness - DELAY_START), u64::from(1000 - fullness));
    (unit.saturating_mul(above) / below).min(DELAY_NS_MAX)
}

impl Budget {
    pub(crate) fn new(env: Env, limits: Limits, space: Arc<dyn Space>) -> Budget {
        let (total, by_txg, waits) = (Cost::default(), Default::default(), Waits::default());
        let state = State { limits, total, by_txg, wake_ns: 0, releases: 0, waits };
        Budget { env, space, state: Mutex::new(state), released: Condvar::new() }
    }

    /// Changes the limits; the pool lowers them when free slots run low.
    pub fn set_limits(&self, limits: Limits) {
        self.state.lock().limits = limits;
        self.released.notify_all();
    }

    /// Limits in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.state.lock().limits
    }

    /// How much of the pool is free as of the last commit, whatever is reserved.
    #[must_use]
    pub fn room(&self) -> Room {
        self.space.room()
    }

    /// Bytes that the metadata of so many changed blocks may take beyond what is kept for it.
    #[must_use]
    pub fn overhead(&self, blocks: u64) -> u64 {
        self.space.overhead(blocks)
    }

    /// All that is reserved now.
    #[must_use]
    pub fn reserved(&self) -> Cost {
        self.state.lock().total
    }

    /// Cost reserved in one txg (the open or the frozen one).
    #[must_use]
    pub fn reserved_in(&self, txg: Txg) -> Cost {
        self.state.lock().by_txg[slot(txg)]
    }

    /// Reserved bytes against the nearer limit, in thousandths.
    #[must_use]
    pub fn fullness(&self) -> u32 {
        self.state.lock().fullness(&*self.space, Cost::default())
    }

    /// How long operations waited so far.
    #[must_use]
    pub fn waits(&self) -> Waits {
        self.state.lock().waits
    }

    /// Gives back all that operations of `txg` reserved. Called when the pool has counted what
    /// `txg` really uses.
    pub fn release(&self, txg: Txg) {
        let mut state = self.state.lock();
        let cost = std::mem::take(&mut state.by_txg[slot(txg)]);
        state.total = state.total.less(cost);
        state.releases += 1;
        state.wake_ns = state.wake_ns.min(self.env.clock.monotonic_ns() + DELAY_NS_MAX);
        self.released.notify_all();
    }

    /// Reserves without asking and without waiting.
    pub(crate) fn reserve_promised(
        &self,
        account: Option<Arc<dyn Account>>,
        cost: Cost,
        commits: &Commits,
    ) -> Result<Reservation<'_>, Refusal> {
        commits.check()?;
        let mut state = self.state.lock();
        state.total = state.total.plus(cost);
        account.iter().for_each(|account| account.take(cost.space));
        drop(state);
        Ok(Reservation { budget: self, account, cost, txg: None })
    }

    /// Waits by the curve, asks the account and the pool, and reserves.
    pub(crate) fn reserve(
        &self,
        account: Option<Arc<dyn Account>>,
        kind: AdmitKind,
        cost: Cost,
        commits: &Commits,
    ) -> Result<Reservation<'_>, Refusal> {
        let patience = Patience::current();
        let reserved = self.reserve_patiently(account.clone(), kind, cost, commits, patience);
        match (reserved, patience) {
            (Err(Refusal::Suspended(_)), Patience::Accepted { most }) => {
                let is_taken = self.take_accepted(account.as_ref(), cost, most);
                match is_taken {
                    true => Ok(Reservation { budget: self, account, cost, txg: None }),
                    false => self.reserve_patiently(account, kind, cost, commits, Patience::Endless),
                }
            }
            (reserved, _) => reserved,
        }
    }

    /// Takes what was accepted before into memory, beyond its limit by `most` bytes, without
    /// waiting. False if there is no room for it.
    pub(crate) fn take_accepted(&self, account: Option<&Arc<dyn Account>>, cost: Cost, most: u64) -> bool {
        let mut state = self.state.lock();
        let total = state.total.plus(cost);
        let kind = AdmitKind::Accepted;
        let fits = total.memory <= state.limits.memory.saturating_add(most)
            && account.is_none_or(|account| account.admit(kind, cost.space) == Verdict::Admit)
            && self.space.admit(kind, cost, total) == Verdict::Admit;
        if fits {
            state.total = total;
            account.iter().for_each(|account| account.take(cost.space));
        }
        fits
    }

    fn reserve_patiently(
        &self,
        account: Option<Arc<dyn Account>>,
        kind: AdmitKind,
        cost: Cost,
        commits: &Commits,
        patience: Patience,
    ) -> Result<Reservation<'_>, Refusal> {
        self.delay(kind, cost, patience)?;
        let mut after_commit = 0;
        loop {
            commits.check_patiently(patience)?;
            let releases = {
                let mut state = self.state.lock();
                // Something larger than the limit goes alone.
                let fits = state.total == Cost::default() || state.felt(&*self.space, kind, cost) <= 1000;
                if fits {
                    // The account first, because the pool counts what it admits.
                    let asked = account.as_ref().map_or(Verdict::Admit, |a| a.admit(kind, cost.space));
                    let verdict = match asked {
                        Verdict::Admit => self.space.admit(kind, cost, state.total.plus(cost)),
                        other => other,
                    };
                    match verdict {
                        Verdict::Admit => {
                            state.total = state.total.plus(cost);
                            account.iter().for_each(|account| account.take(cost.space));
                            let crossed = state.fullness(&*self.space, Cost::default());
                            drop(state);
                            if crossed >= crate::CloseRule::default().fullness {
                                commits.nudge();
                            }
                            return Ok(Reservation { budget: self, account, cost, txg: None });
                        }
                        // Space freed by a commit may be usable only after the next one, and the
                        // living space is known only after a sync: so two full commits settle the
                        // question.
                        Verdict::AfterCommit | Verdict::QuotaAfterCommit if after_commit < 3 => {
                            after_commit += 1;
                        }
                        Verdict::AfterCleaning => {}
                        Verdict::AfterCommit | Verdict::NoSpace => return Err(Refusal::NoSpace),
                        Verdict::QuotaAfterCommit | Verdict::OverQuota => return Err(Refusal::OverQuota),
                        Verdict::ReadOnly => return Err(Refusal::ReadOnly),
                    }
                }
                state.releases
            };
            patience.check(false)?;
            let began_ns = self.env.clock.monotonic_ns();
            let waited = for_commit(|| self.wait_release(releases, commits, patience));
            let waits = &mut self.state.lock().waits;
            waits.held += 1;
            waits.held_ns += self.env.clock.monotonic_ns().saturating_sub(began_ns);
            waited?;
        }
    }

    /// Waits as the curve says, behind those who wait already. Delays of many writers add up to
    /// more than a caller that is killed should wait for, or one whom a release has made room for.
    fn delay(&self, kind: AdmitKind, cost: Cost, patience: Patience) -> Result<(), Refusal> {
        let asked = |state: &State| match state.felt(&*self.space, kind, Cost::default()) {
            // It waits for a release, which is told of at once.
            1000.. => 0,
            fullness => delay_ns(fullness, cost.memory),
        };
        let now = || self.env.clock.monotonic_ns();
        let (wake_ns, releases) = {
            let mut state = self.state.lock();
            let delay = asked(&state);
            if delay == 0 {
                return Ok(());
            }
            patience.check(false)?;
            let now = now();
            state.wake_ns = state.wake_ns.max(now) + delay;
            state.waits.delayed += 1;
            state.waits.delayed_ns += state.wake_ns - now;
            (state.wake_ns, state.releases)
        };
        for_commit(|| self.sleep_until(wake_ns, releases, patience, asked))
    }

    /// Sleeps until then, or until a release has made room.
    fn sleep_until(
        &self,
        wake_ns: u64,
        releases: u64,
        patience: Patience,
        asked: impl Fn(&State) -> u64,
    ) -> Result<(), Refusal> {
        for slice in 1_u32.. {
            let left = wake_ns.saturating_sub(self.env.clock.monotonic_ns());
            if left == 0 {
                return Ok(());
            }
            self.env.clock.sleep(Duration::from_nanos(left.min(DELAY_NS_MAX)));
            if left > DELAY_NS_MAX {
                // As often as those look who wait for a release.
                if slice.is_multiple_of(SLICES_A_LOOK) {
                    patience.check(true)?;
                }
                let state = self.state.lock();
                if state.releases != releases && asked(&state) == 0 {
                    return Ok(());
                }
            }
        }
        unreachable!("the loop returns")
    }

    /// Waits, without locks held, until something was released after `seen`; asks for a commit
    /// first.
    fn wait_release(&self, seen: u64, commits: &Commits, patience: Patience) -> Result<(), Refusal> {
        let goal = commits.committed().next();
        loop {
            commits.check_progress(patience)?;
            if self.space.commit_inline() {
                return Ok(());
            }
            // The txg after the last committed one is open or frozen; if frozen, the open one is
            // the next to ask for.
            commits.request_sync(goal.next());
            if commits.make_step() {
                return Ok(());
            }
            let mut state = self.state.lock();
            if state.releases != seen {
                return Ok(());
            }
            self.released.wait_for(&mut state, STALL_PATIENCE);
            let is_released = state.releases != seen;
            drop(state);
            patience.check(true)?;
            if is_released {
                return Ok(());
            }
        }
    }
}

fn slot(txg: Txg) -> usize {
    usize::try_from(txg.0 % TXG_SLOTS as u64).expect("small")
}

/// Reserved bytes. Without a txg they are given back on drop; with one they stay until its release.
pub struct Reservation<'a> {
    budget: &'a Budget,
    /// The quota that was asked.
    account: Option<Arc<dyn Account>>,
    cost: Cost,
    txg: Option<Txg>,
}

impl Reservation<'_> {
    /// Charges the reservation to its txg. Called once, inside the gate.
    pub(crate) fn assign(&mut self, txg: Txg) {
        assert!(self.txg.is_none(), "a reservation has one txg");
        let mut state = self.budget.state.lock();
        let slot = &mut state.by_txg[slot(txg)];
        *slot = slot.plus(self.cost);
        self.account.iter().for_each(|account| account.assign(txg, self.cost.space));
        self.txg = Some(txg);
    }

    /// Replaces the reserved cost by `cost`.
    pub(crate) fn settle(&mut self, cost: Cost) {
        let txg = self.txg.expect("settled inside the gate");
        let mut state = self.budget.state.lock();
        let old = std::mem::replace(&mut self.cost, cost);
        let replace = |sum: &mut Cost| *sum = sum.less(old).plus(cost);
        replace(&mut state.total);
        replace(&mut state.by_txg[slot(txg)]);
        self.account.iter().for_each(|account| account.settle(txg, old.space, cost.space));
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.txg.is_none() {
            let mut state = self.budget.state.lock();
            state.total = state.total.less(self.cost);
            self.account.iter().for_each(|account| account.give_back(self.cost.space));
            self.budget.released.notify_all();
        }
    }
}
