//! Writes that wait until the host has room.
//!
//! A sparse image file grows. If the file system below it is full, a write fails with ENOSPC, and
//! it would succeed once something is deleted there. Nothing is lost by repeating it: the same
//! bytes go to the same place. So such a write waits and is repeated, as ZFS repeats the I/O of a
//! suspended pool. A flush is not repeated ([device.2]).

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::{Error, Result};

/// Pause before a write is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// Hears that a write waits, with the error, and that none does any more.
pub type OnChange = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// Whether the writes of a pool wait for room, and whether one does now.
#[derive(Default)]
pub struct HostRoom {
    state: Mutex<State>,
    changed: Condvar,
    on_change: OnceLock<OnChange>,
}

#[derive(Default)]
struct State {
    /// Writes wait instead of failing.
    waits: bool,
    /// Error of a write that waits, or was given up while it did.
    full: Option<String>,
    /// Writes that failed, and writes that were asked for by [`HostRoom::retry`].
    failed: u64,
    asked: u64,
}

impl HostRoom {
    /// From now on writes wait. `on_change` is kept from the first call.
    pub fn wait_for_room(&self, on_change: OnChange) {
        _ = self.on_change.set(on_change);
        self.lock().waits = true;
    }

    /// From now on writes fail, also those that wait.
    pub fn give_up(&self) {
        self.lock().waits = false;
        self.changed.notify_all();
    }

    /// The error of a write that waits, or was given up while it did.
    #[must_use]
    pub fn full(&self) -> Option<String> {
        self.lock().full.clone()
    }

    /// True if a write waits.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        let state = self.lock();
        state.waits && state.full.is_some()
    }

    /// Repeats the writes that wait at once. True if one succeeded within `patience`, or none
    /// waited.
    pub fn retry(&self, patience: Duration) -> bool {
        let mut state = self.lock();
        state.asked += 1;
        self.changed.notify_all();
        let failed = state.failed;
        let is_open = |state: &mut State| state.full.is_some() && state.failed == failed;
        let waited = self.changed.wait_timeout_while(state, patience, is_open);
        waited.unwrap_or_else(PoisonError::into_inner).0.full.is_none()
    }

    /// Writes, and repeats that while the host has no room.
    ///
    /// # Errors
    /// Of the write.
    pub(crate) fn patiently(&self, write: impl Fn() -> Result<()>) -> Result<()> {
        let mut has_waited = false;
        loop {
            match write() {
                Err(error) if is_full(&error) && self.wait(&error) => has_waited = true,
                result => {
                    if has_waited {
                        self.end(&result);
                    }
                    return result;
                }
            }
        }
    }

    /// Waits before a write is repeated. False if it is not to be.
    fn wait(&self, error: &Error) -> bool {
        let mut state = self.lock();
        if !state.waits {
            return false;
        }
        state.failed += 1;
        let asked = state.asked;
        let reason = error.to_string();
        if state.full.is_none() {
            state.full = Some(reason.clone());
            drop(state);
            self.tell(Some(&reason));
            state = self.lock();
        }
        self.changed.notify_all();
        let is_early = |state: &mut State| state.waits && state.asked == asked;
        let waited = self.changed.wait_timeout_while(state, RETRY, is_early);
        // A write that was given up meanwhile fails once more, and its error is returned.
        drop(waited);
        true
    }

    /// A write that had waited has ended.
    fn end(&self, result: &Result<()>) {
        if result.as_ref().is_err_and(is_full) {
            // It was given up, and its caller suspends the pool. Until then `full` says so.
            return;
        }
        let was_full = self.lock().full.take().is_some();
        self.changed.notify_all();
        // After another failure nobody goes on.
        if was_full && result.is_ok() {
            self.tell(None);
        }
    }

    fn tell(&self, full: Option<&str>) {
        if let Some(on_change) = self.on_change.get() {
            on_change(full);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if a device failed because the file system that holds it has no room.
pub(crate) fn is_full(error: &Error) -> bool {
    [Errno::NOSPC, Errno::DQUOT].iter().any(|errno| error.errno() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operation;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    fn no_space() -> Error {
        let source = Errno::NOSPC.into();
        Error::Io { device: "a.img".into(), operation: Operation::Write, offset: 7, source }
    }

    /// Room that tells its changes, and how often it was full and had room again.
    fn room() -> (Arc<HostRoom>, Arc<[AtomicU32; 2]>) {
        let (room, told) = (Arc::new(HostRoom::default()), Arc::<[AtomicU32; 2]>::default());
        let hear = Arc::clone(&told);
        room.wait_for_room(Box::new(move |full| {
            hear[usize::from(full.is_none())].fetch_add(1, Ordering::SeqCst);
        }));
        (room, told)
    }

    fn until(is_so: impl Fn() -> bool) {
        while !is_so() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_write_waits_until_there_is_room_and_others_fail_at_once() {
        let (room, told) = room();
        let has_room = AtomicBool::new(false);
        let write = || if has_room.load(Ordering::SeqCst) { Ok(()) } else { Err(no_space()) };
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| room.patiently(write));
            until(|| room.full().is_some());
            assert!(room.full().unwrap().contains("a.img"));
            assert!(!room.retry(Duration::from_secs(600)), "it failed again");
            has_room.store(true, Ordering::SeqCst);
            assert!(room.retry(Duration::from_secs(600)));
            writer.join().unwrap().unwrap();
        });
        assert_eq!([0, 1].map(|at: usize| told[at].load(Ordering::SeqCst)), [1, 1]);
        assert_eq!(room.full(), None);
        // Another error is no want of room.
        assert!(room.patiently(|| Err(Error::ReadOnly { device: "a.img".into() })).is_err());
    }

    #[test]
    fn writes_that_wait_are_given_up() {
        let (room, told) = room();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| room.patiently(|| Err(no_space())));
            until(|| room.full().is_some());
            room.give_up();
            assert!(is_full(&writer.join().unwrap().unwrap_err()));
            assert!(room.full().is_some() && !room.is_waiting(), "nobody may take it for writable");
        });
        assert!(room.patiently(|| Err(no_space())).is_err(), "nor does a later one wait");
        assert_eq!([0, 1].map(|at: usize| told[at].load(Ordering::SeqCst)), [1, 0]);
    }
}
