//! Things that are made on all processors and used in order, as soon as the next one is made.
//!
//! One thread uses; it makes too, while what it waits for is not made. The others make what comes
//! next, so many bytes ahead at most. All of them begin and end once for a list, however long it
//! is: a step for each few mebibytes started 500 threads for each gigabyte.
//!
//! ## Invariants
//! [in_order.1] Nothing waits for a thread that may not exist: who uses makes what nobody has
//!      begun, and helpers wait only while it is there.
//!      `Making::next`
//! [in_order.2] A panic of one ends all, and is the caller's.
//!      test: `a_panic_ends_all`

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use steadfast_env::{Job, Tasks};

/// Something to be made, and how many bytes it counts for.
pub(crate) struct Wanted<I> {
    pub bytes: usize,
    pub of: I,
}

struct State<I, O> {
    waiting: std::vec::IntoIter<Wanted<I>>,
    /// Begun and not used yet, in order, with their bytes; `None` while they are being made.
    begun: VecDeque<(usize, Option<O>)>,
    /// Number of the first of these.
    used: usize,
    /// Bytes of all of these.
    ahead: usize,
    /// They were as many as they may be, and not half of that since: helpers are woken for several
    /// at once.
    is_full: bool,
    is_over: bool,
}

struct Making<I, O> {
    state: Mutex<State<I, O>>,
    changed: Condvar,
    ahead_max: usize,
}

/// Ends the others, however its thread ends.
struct Ending<'m, I, O> {
    making: &'m Making<I, O>,
    is_user: bool,
}

impl<I, O> Drop for Ending<'_, I, O> {
    fn drop(&mut self) {
        if self.is_user || std::thread::panicking() {
            self.making.lock().is_over = true;
            self.making.changed.notify_all();
        }
    }
}

impl<I, O> State<I, O> {
    /// The next one that nobody has begun, and its number.
    fn begin(&mut self, ahead_max: usize) -> Option<(usize, I)> {
        let Wanted { bytes, of } = self.waiting.next()?;
        self.ahead += bytes;
        self.is_full |= self.ahead >= ahead_max;
        self.begun.push_back((bytes, None));
        Some((self.used + self.begun.len() - 1, of))
    }
}

impl<I, O> Making<I, O> {
    fn lock(&self) -> MutexGuard<'_, State<I, O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State<I, O>>) -> MutexGuard<'s, State<I, O>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, number: usize, made: O) {
        let mut state = self.lock();
        let at = number - state.used;
        state.begun[at].1 = Some(made);
        drop(state);
        if at == 0 {
            self.changed.notify_all();
        }
    }

    /// Makes ahead until nothing is left.
    fn help(&self, make: &(impl Fn(I) -> O + Sync)) {
        let _ending = Ending { making: self, is_user: false };
        let mut state = self.lock();
        while !state.is_over && state.waiting.len() > 0 {
            if state.is_full {
                state = self.wait(state);
                continue;
            }
            let Some((number, of)) = state.begin(self.ahead_max) else { return };
            drop(state);
            self.put(number, make(of));
            state = self.lock();
        }
    }

    /// The next one in order; `None` behind the last, or if a helper ended by a panic.
    fn next(&self, make: &(impl Fn(I) -> O + Sync)) -> Option<O> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if state.begun.front().is_some_and(|(_, made)| made.is_some()) {
                let (bytes, made) = state.begun.pop_front()?;
                state.used += 1;
                state.ahead -= bytes;
                let wakes = state.is_full && state.ahead < self.ahead_max.div_ceil(2);
                state.is_full &= !wakes;
                drop(state);
                if wakes {
                    self.changed.notify_all();
                }
                return made;
            }
            let is_wanted = state.begun.is_empty() || !state.is_full;
            match if is_wanted { state.begin(self.ahead_max) } else { None } {
                Some((number, of)) => {
                    drop(state);
                    self.put(number, make(of));
                    state = self.lock();
                }
                None if state.begun.is_empty() => return None,
                None => state = self.wait(state),
            }
        }
    }
}

/// Makes all of a list on all processors, and uses them in order, until `consume` says false.
pub(crate) fn in_order<I: Send, O: Send>(
    tasks: &dyn Tasks,
    list: Vec<Wanted<I>>,
    ahead_max: usize,
    make: impl Fn(I) -> O + Sync,
    mut consume: impl FnMut(O) -> bool + Send,
) {
    let helpers = tasks.parallelism().min(list.len()).saturating_sub(1);
    let waiting = list.into_iter();
    let state = State { waiting, begun: VecDeque::new(), used: 0, ahead: 0, is_full: false, is_over: false };
    let making = Making { state: Mutex::new(state), changed: Condvar::new(), ahead_max };
    let (making, make) = (&making, &make);
    // Where there is one thread after all, it is the user [in_order.1].
    let mut jobs: Vec<Job<'_>> = vec![Box::new(move || {
        let _ending = Ending { making, is_user: true };
        while making.next(make).is_some_and(&mut consume) {}
    })];
    jobs.extend((0..helpers).map(|_| -> Job<'_> { Box::new(move || making.help(make)) }));
    tasks.run_all(jobs);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use steadfast_env::Env;

    fn list(count: usize) -> Vec<Wanted<usize>> {
        (0..count).map(|of| Wanted { bytes: 1 + of % 3, of }).collect()
    }

    #[test]
    fn all_are_made_once_and_used_in_order() {
        for env in [Env::real(), Env::seeded(1)] {
            for (count, ahead_max) in [(0, 5), (1, 5), (2, 1), (500, 1), (500, 7), (500, 10_000)] {
                let made = AtomicUsize::new(0);
                let mut used = Vec::new();
                let make = |of: usize| {
                    made.fetch_add(1, Ordering::Relaxed);
                    of
                };
                in_order(&*env.tasks, list(count), ahead_max, make, |of| {
                    used.push(of);
                    true
                });
                assert_eq!(made.into_inner(), count);
                assert_eq!(used, (0..count).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn no_more_is_made_ahead_than_it_may() {
        let (made, used) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let list: Vec<_> = (0..300).map(|of| Wanted { bytes: 1, of }).collect();
        in_order(
            &*Env::real().tasks,
            list,
            8,
            |_| _ = made.fetch_add(1, Ordering::SeqCst),
            |()| {
                // One more may be under way on this thread.
                let (used, made) = (used.fetch_add(1, Ordering::SeqCst), made.load(Ordering::SeqCst));
                assert!(made <= used + 1 + 8, "{made} made when {used} were used");
                true
            },
        );
    }

    #[test]
    fn it_ends_when_the_user_has_enough() {
        let mut used = 0;
        in_order(
            &*Env::real().tasks,
            list(100),
            4,
            |of| of,
            |of| {
                used += 1;
                of < 10
            },
        );
        assert_eq!(used, 11);
    }

    #[test]
    fn a_panic_ends_all() {
        let run = |bad: usize, is_maker: bool| {
            catch_unwind(AssertUnwindSafe(|| {
                let make = |of| {
                    assert!(!is_maker || of != bad, "as asked");
                    of
                };
                in_order(&*Env::real().tasks, list(100), 4, make, |of| {
                    assert!(is_maker || of != bad, "as asked");
                    true
                });
            }))
        };
        for bad in [0, 1, 50, 99] {
            assert!(run(bad, true).is_err() && run(bad, false).is_err());
        }
    }
}
