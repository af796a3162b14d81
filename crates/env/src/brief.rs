//! Locks that are held briefly: never while a device or a register is asked.
//!
//! A device may lie behind a network and take fifty milliseconds to answer. A lock that operations
//! take must not be held meanwhile, or all who want it wait with its holder, one round trip after
//! the other. An operation that finds something missing lets go of its locks, reads, takes the
//! locks and looks again (`tree::unread`).
//!
//! With debug assertions each thread keeps a list of the brief locks that it holds, and where each
//! was taken. The rooms that ask devices and registers call [`check_none_held`], which panics with
//! that place. So the first test that waits under such a lock finds it; no second thread has to
//! come by. A thread that takes a brief lock which it holds already panics too, with the place
//! where it took it. That holds for reading as well: a second hold waits for ever as soon as a
//! writer stands between the two. Without debug assertions a brief lock is the lock alone.

use std::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A mutex that is held briefly.
#[derive(Debug, Default)]
pub struct BriefMutex<T>(Mutex<T>);

/// A lock for readers or a writer that is held briefly.
#[derive(Debug, Default)]
pub struct BriefRwLock<T>(RwLock<T>);

impl<T> BriefMutex<T> {
    /// A mutex around a value.
    pub const fn new(value: T) -> Self {
        BriefMutex(Mutex::new(value))
    }

    /// Takes it.
    #[track_caller]
    pub fn lock(&self) -> BriefGuard<MutexGuard<'_, T>> {
        let held = Held::of(address(self));
        BriefGuard { guard: self.0.lock(), _held: held }
    }
}

impl<T> BriefRwLock<T> {
    /// A lock around a value.
    pub const fn new(value: T) -> Self {
        BriefRwLock(RwLock::new(value))
    }

    /// Takes it for reading.
    #[track_caller]
    pub fn read(&self) -> BriefGuard<RwLockReadGuard<'_, T>> {
        let held = Held::of(address(self));
        BriefGuard { guard: self.0.read(), _held: held }
    }

    /// As [`BriefRwLock::read`], unless that would mean waiting.
    #[track_caller]
    pub fn try_read(&self) -> Option<BriefGuard<RwLockReadGuard<'_, T>>> {
        Some(BriefGuard { guard: self.0.try_read()?, _held: Held::tried(address(self)) })
    }

    /// Takes it for writing.
    #[track_caller]
    pub fn write(&self) -> BriefGuard<RwLockWriteGuard<'_, T>> {
        let held = Held::of(address(self));
        BriefGuard { guard: self.0.write(), _held: held }
    }
}

/// Tells one lock from another: none moves while it is held.
fn address<L>(lock: &L) -> usize {
    std::ptr::from_ref(lock).addr()
}

/// A brief lock that is held.
#[derive(Debug)]
pub struct BriefGuard<G> {
    guard: G,
    _held: Held,
}

impl<G> BriefGuard<G> {
    /// Takes a lock of another kind, and counts it as a brief one while it is held.
    #[track_caller]
    pub fn of<L>(lock: &L, take: impl FnOnce() -> G) -> Self {
        let held = Held::of(address(lock));
        BriefGuard { guard: take(), _held: held }
    }
}

impl<G: Deref> Deref for BriefGuard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for BriefGuard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

pub use held::{Held, check_none_held, excused};

#[cfg(debug_assertions)]
mod held {
    use std::cell::{Cell, RefCell};
    use std::marker::PhantomData;
    use std::panic::Location;

    /// A brief lock, and where it was taken. Address 0: a lock of another kind.
    type Taken = (usize, &'static Location<'static>);

    thread_local! {
        /// The brief locks that this thread holds.
        static HELD: RefCell<Vec<Taken>> = const { RefCell::new(Vec::new()) };
        /// The thread may wait for devices whatever it holds.
        static EXCUSED: Cell<bool> = const { Cell::new(false) };
    }

    /// This thread holds a brief lock as long as this lives.
    #[derive(Debug)]
    pub struct Held {
        taken: Taken,
        /// It belongs to its thread.
        thread: PhantomData<*const ()>,
    }

    impl Held {
        /// Notes that a lock of another kind was taken by the caller.
        #[track_caller]
        #[allow(clippy::new_without_default, reason = "it notes its caller")]
        pub fn new() -> Held {
            Held::tried(0)
        }

        /// Notes that the caller takes the lock at this address. Panics if its thread has it.
        #[track_caller]
        pub(super) fn of(lock: usize) -> Held {
            let before = HELD.with_borrow(|held| held.iter().find(|(other, _)| *other == lock).copied());
            // A second panic while one unwinds would end the process and hide the first.
            if let Some((_, at)) = before.filter(|_| !std::thread::panicking()) {
                panic!("a brief lock is taken by a thread that holds it, which took it at {at}");
            }
            Held::tried(lock)
        }

        /// Notes that the caller has the lock at this address, for which it did not wait.
        #[track_caller]
        pub(super) fn tried(lock: usize) -> Held {
            let taken = (lock, Location::caller());
            HELD.with_borrow_mut(|held| held.push(taken));
            Held { taken, thread: PhantomData }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // Guards may go in any order.
            HELD.with_borrow_mut(|held| {
                let is_it = |other: &Taken| other.0 == self.taken.0 && std::ptr::eq(other.1, self.taken.1);
                let place = held.iter().rposition(is_it);
                held.remove(place.expect("it was noted when it was taken"));
            });
        }
    }

    /// Panics if this thread holds a brief lock: it is about to ask a device or a register.
    pub fn check_none_held(asked: &str) {
        let last = HELD.with_borrow(|held| held.last().copied());
        // A second panic while one unwinds would end the process and hide the first.
        if let Some((_, at)) = last.filter(|_| !EXCUSED.get() && !std::thread::panicking()) {
            panic!("{asked} is asked while a brief lock is held, which was taken at {at}");
        }
    }

    /// Runs `act`, which may ask devices whatever is held: where nobody else can want the locks, or
    /// where going on matters more than who waits.
    pub fn excused<R>(act: impl FnOnce() -> R) -> R {
        struct Before(bool);
        impl Drop for Before {
            fn drop(&mut self) {
                EXCUSED.set(self.0);
            }
        }
        let _before = Before(EXCUSED.replace(true));
        act()
    }
}

#[cfg(not(debug_assertions))]
mod held {
    use std::marker::PhantomData;

    /// This thread holds a brief lock as long as this lives.
    #[derive(Debug)]
    pub struct Held(PhantomData<*const ()>);

    impl Held {
        /// Notes nothing without debug assertions.
        #[inline(always)]
        #[allow(clippy::new_without_default, reason = "it notes its caller with debug assertions")]
        pub fn new() -> Held {
            Held(PhantomData)
        }

        #[inline(always)]
        pub(super) fn of(_lock: usize) -> Held {
            Held(PhantomData)
        }

        #[inline(always)]
        pub(super) fn tried(_lock: usize) -> Held {
            Held(PhantomData)
        }
    }

    /// Looks at nothing without debug assertions.
    #[inline(always)]
    pub fn check_none_held(_asked: &str) {}

    /// Runs `act`.
    #[inline(always)]
    pub fn excused<R>(act: impl FnOnce() -> R) -> R {
        act()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a device is asked while a brief lock is held, which was taken at")]
    fn a_device_that_is_asked_under_a_brief_lock_panics() {
        let lock = BriefRwLock::new(1);
        let _held = lock.read();
        check_none_held("a device");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a brief lock is taken by a thread that holds it, which took it at")]
    fn a_thread_that_takes_a_brief_lock_twice_panics() {
        let lock = BriefRwLock::new(1);
        let _held = lock.read();
        let _again = lock.read();
    }

    #[test]
    fn a_try_and_another_lock_of_the_same_place_do_not_count() {
        let locks = [BriefRwLock::new(1), BriefRwLock::new(2)];
        let held: Vec<_> = locks.iter().map(|lock| lock.read()).collect();
        assert_eq!(locks[0].try_read().map(|value| *value), Some(1));
        drop(held);
        assert_eq!(*locks[0].write(), 1);
    }

    #[test]
    fn what_was_let_go_or_is_excused_does_not_count() {
        let (lock, mutex) = (BriefRwLock::new(1), BriefMutex::new(2));
        let (one, two) = (lock.write(), mutex.lock());
        excused(|| excused(|| check_none_held("a device")));
        // In any order.
        drop(one);
        assert_eq!(*two, 2);
        drop(two);
        check_none_held("a device");
    }

    #[test]
    fn a_brief_lock_is_as_small_as_the_lock() {
        assert_eq!(size_of::<BriefMutex<u64>>(), size_of::<Mutex<u64>>());
        assert_eq!(size_of::<BriefRwLock<u64>>(), size_of::<RwLock<u64>>());
        #[cfg(not(debug_assertions))]
        assert_eq!(size_of::<BriefGuard<MutexGuard<'_, u64>>>(), size_of::<MutexGuard<'_, u64>>());
    }
}
