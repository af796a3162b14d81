//! # The locks of a pool, and the order in which they are taken
//!
//! A lock carries its rank in its type. A thread that holds a lock takes only locks of later ranks,
//! so no two threads wait for each other.
//!
//! With debug assertions each thread keeps a list of the ranks that it holds, and panics with the
//! names of both locks where it takes one out of order. So the first test that goes the wrong way
//! finds it; no second thread has to come by. Without debug assertions a ranked lock is the lock
//! alone.
//!
//! Two calls never wait for long and may be made in any order: [`RankedRwLock::try_read`], and
//! [`RankedMutex::try_lock_for`], which gives up. A lock that they give counts as held.
//!
//! Not ranked, and not checked: the gate of the txgs, which is taken under any rank and under which
//! no task waits for an earlier one; the circle of the intent log, which is held while an anchor is
//! added; `Snapshot::gone`, which a reader of a snapshot holds; locks inside one value (results of
//! a job, an answer); locks of the crates below the pool.
//!
//! Like the lock classes of Linux's lockdep, but the order is written down and not learned.
//!
//! [lock.1] A thread waits for a lock only if all ranks that it holds are earlier.
//!      assert: `held::check`; test: `a_lock_that_is_taken_out_of_order_panics`
//! [lock.2] A lock that operations take is not held over a call of a device or a register.
//!      assert: `steadfast_env::brief`

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A place in the order of locks.
pub(crate) trait Rank {
    /// Greater ranks are taken later.
    const ORDER: u8;
    /// Operations take it: it is not held over a call of a device [lock.2].
    #[cfg_attr(not(debug_assertions), allow(dead_code, reason = "checked with debug assertions"))]
    const IS_BRIEF: bool;
}

macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        enum Order { $($name,)* }
        /// Names of the ranks, for the panic.
        #[cfg(debug_assertions)]
        pub(super) const NAMES: &[&str] = &[$(stringify!($name),)*];
        $(
            $(#[$doc])*
            pub(crate) struct $name;
            impl super::Rank for $name {
                const ORDER: u8 = Order::$name as u8;
                const IS_BRIEF: bool = Order::$name as u8 >= Order::Room as u8
                    || Order::$name as u8 == Order::Quotas as u8;
            }
        )*
    };
}

/// The order in which the locks of a pool are taken, the first one first.
pub(crate) mod rank {
    ranks! {
        /// `Pool::tasks`.
        Tasks,
        /// The turn of a sync loop without a task of its own.
        StepTurn,
        /// `Core::sync_turn`: held for a whole commit.
        SyncTurn,
        /// `Core::commit_state`.
        CommitState,
        /// `Core::checkpoint`.
        Checkpoint,
        /// `ScanState::scan`.
        Scan,
        /// `MoveState::job`.
        MoveJob,
        /// `Sweeps::trims` and `initials`.
        Sweeps,
        /// `ErrorSearch::search`.
        Search,
        /// `ErrorSearch::lost`.
        LostFiles,
        /// `ErrorSearch::unproven`.
        Unproven,
        /// `ScanState::progress`.
        ScanProgress,
        /// `MoveState::progress`.
        MoveProgress,
        /// `Topology::replacing`.
        Replacing,
        /// `Datasets::figures`.
        Figures,
        /// `Datasets::table`.
        Table,
        /// `Zil::held`.
        HeldLogs,
        /// `Datasets::asked`.
        Asked,
        /// `Quotas::tree`.
        Quotas,
        /// `Core::props`.
        Props,
        /// `Core::history`.
        History,
        /// `Zil::mends`.
        LogMends,
        /// `Zil::changes`.
        LogChanges,
        /// `Auxiliary::spares`.
        Spares,
        /// `Auxiliary::caches`.
        Caches,
        /// `Auxiliary::parity`.
        Parity,
        /// `Parity::catch_up`.
        CatchUp,
        /// `Parity::standing`.
        ParityStanding,
        /// `ScanState::audited`.
        DeviceAudit,
        /// `Auxiliary::unhelped`.
        Unhelped,
        /// `Auxiliary::listed`.
        Listed,
        /// `Auxiliary::logs_before`.
        LogsBefore,
        /// `Zil::log_devices`.
        LogDevices,
        /// `Diagnosis::cases`.
        Cases,
        /// `Topology::groups`.
        Groups,
        /// `Topology::leaves`.
        Leaves,
        /// `Topology::departed`.
        Departed,
        /// `Topology::until_import`.
        UntilImport,
        /// `Leaf::config`, of one leaf at a time.
        LeafConfig,
        /// `Core::features`.
        Features,
        /// Why a log device, a spare or a cache device is out of use.
        Trouble,
        /// `Core::anchor`.
        Anchor,
        /// `Identity::known_as`.
        KnownAs,
        /// `Identity::becoming`.
        Becoming,
        /// `Sealing::wrapped`.
        WrappedKey,
        /// `Admission::room`.
        Room,
        /// `Health::suspended`.
        Suspended,
        /// `Identity::name`.
        Name,
        /// `Events::state`.
        Events,
    }
}

/// A mutex with a rank.
pub(crate) struct RankedMutex<T, R> {
    lock: Mutex<T>,
    rank: PhantomData<fn() -> R>,
}

/// A lock for readers or a writer, with a rank.
pub(crate) struct RankedRwLock<T, R> {
    lock: RwLock<T>,
    rank: PhantomData<fn() -> R>,
}

impl<T, R: Rank> RankedMutex<T, R> {
    pub(crate) const fn new(value: T) -> Self {
        RankedMutex { lock: Mutex::new(value), rank: PhantomData }
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> Guard<MutexGuard<'_, T>, R> {
        held::check(R::ORDER);
        Guard::new(self.lock.lock())
    }

    pub(crate) fn try_lock_for(&self, patience: Duration) -> Option<Guard<MutexGuard<'_, T>, R>> {
        self.lock.try_lock_for(patience).map(Guard::new)
    }

    pub(crate) fn into_inner(self) -> T {
        self.lock.into_inner()
    }
}

impl<T, R: Rank> RankedRwLock<T, R> {
    pub(crate) const fn new(value: T) -> Self {
        RankedRwLock { lock: RwLock::new(value), rank: PhantomData }
    }

    #[track_caller]
    pub(crate) fn read(&self) -> Guard<RwLockReadGuard<'_, T>, R> {
        held::check(R::ORDER);
        Guard::new(self.lock.read())
    }

    #[track_caller]
    pub(crate) fn write(&self) -> Guard<RwLockWriteGuard<'_, T>, R> {
        held::check(R::ORDER);
        Guard::new(self.lock.write())
    }

    /// Like [`Self::read`], but does not wait.
    pub(crate) fn try_read(&self) -> Option<Guard<RwLockReadGuard<'_, T>, R>> {
        self.lock.try_read().map(Guard::new)
    }
}

impl<T: Default, R: Rank> Default for RankedMutex<T, R> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Default, R: Rank> Default for RankedRwLock<T, R> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A lock that is held.
pub(crate) struct Guard<G, R: Rank> {
    guard: G,
    _held: held::Held<R>,
}

impl<G, R: Rank> Guard<G, R> {
    #[track_caller]
    fn new(guard: G) -> Self {
        Guard { guard, _held: held::Held::new() }
    }
}

impl<G: Deref, R: Rank> Deref for Guard<G, R> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut, R: Rank> DerefMut for Guard<G, R> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;
    use std::marker::PhantomData;

    use super::Rank;
    use super::rank::NAMES;

    thread_local! {
        /// Ranks of the locks that this thread holds.
        static RANKS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    /// Panics if the thread may not wait for a lock of this rank now.
    pub(super) fn check(rank: u8) {
        let last = RANKS.with_borrow(|ranks| ranks.iter().copied().max());
        // A second panic while one unwinds would end the process and hide the first.
        if let Some(last) = last.filter(|last| *last >= rank && !std::thread::panicking()) {
            let (taken, held) = (NAMES[usize::from(rank)], NAMES[usize::from(last)]);
            panic!("lock {taken} is taken out of order: {held} is held");
        }
    }

    /// The thread holds a lock of this rank as long as this lives.
    pub(super) struct Held<R: Rank> {
        rank: PhantomData<R>,
        _brief: Option<steadfast_env::brief::Held>,
    }

    impl<R: Rank> Held<R> {
        #[track_caller]
        pub(super) fn new() -> Self {
            RANKS.with_borrow_mut(|ranks| ranks.push(R::ORDER));
            let brief = if R::IS_BRIEF { Some(steadfast_env::brief::Held::new()) } else { None };
            Held { rank: PhantomData, _brief: brief }
        }
    }

    impl<R: Rank> Drop for Held<R> {
        fn drop(&mut self) {
            // Guards may go in any order.
            RANKS.with_borrow_mut(|ranks| {
                let at = ranks.iter().rposition(|rank| *rank == R::ORDER);
                ranks.remove(at.expect("it was noted when it was taken"));
            });
        }
    }
}

#[cfg(not(debug_assertions))]
mod held {
    use std::marker::PhantomData;

    #[inline(always)]
    pub(super) fn check(_rank: u8) {}

    pub(super) struct Held<R>(PhantomData<R>);

    impl<R> Held<R> {
        #[inline(always)]
        pub(super) fn new() -> Self {
            Held(PhantomData)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type First = RankedMutex<u64, rank::SyncTurn>;
    type Second = RankedRwLock<u64, rank::CommitState>;

    #[test]
    fn locks_are_taken_in_the_order_of_their_ranks() {
        let (first, second) = (First::new(1), Second::new(2));
        let held = first.lock();
        assert_eq!((*held, *second.read()), (1, 2));
        *second.write() += 1;
        drop(held);
        assert_eq!(*second.read(), 3);
        drop(first.lock());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock SyncTurn is taken out of order: CommitState is held")]
    fn a_lock_that_is_taken_out_of_order_panics() {
        let (first, second) = (First::new(1), Second::new(2));
        let _held = second.read();
        first.lock();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock CommitState is taken out of order: CommitState is held")]
    fn a_lock_that_is_taken_twice_panics() {
        let second = Second::new(2);
        let _held = second.read();
        second.read();
    }

    #[test]
    fn guards_go_in_any_order_and_a_lock_that_is_not_waited_for_is_taken_in_any_order() {
        let (first, second) = (First::new(1), Second::new(2));
        let (one, two) = (first.lock(), second.write());
        drop(one);
        assert!(second.try_read().is_none());
        drop(two);
        let third = RankedMutex::<u64, rank::Events>::new(3);
        let _held = third.lock();
        assert_eq!(second.try_read().as_deref(), Some(&2));
        assert_eq!(first.try_lock_for(Duration::ZERO).as_deref(), Some(&1));
    }

    #[test]
    fn a_ranked_lock_is_as_small_as_the_lock() {
        assert_eq!(size_of::<First>(), size_of::<Mutex<u64>>());
        assert_eq!(size_of::<Second>(), size_of::<RwLock<u64>>());
        #[cfg(not(debug_assertions))]
        assert_eq!(size_of::<Guard<MutexGuard<'_, u64>, rank::SyncTurn>>(), size_of::<MutexGuard<'_, u64>>());
    }
}
