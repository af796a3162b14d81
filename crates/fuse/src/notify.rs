//! # Telling the kernel to forget
//!
//! ## Why not simply write the message
//! The kernel acts on a notification inside the `write(2)` that delivers it, and takes locks for
//! that: the parent directory's for a name, the pages' for a range of data. A program waiting for
//! *our* answer holds the same locks: a `create` holds its directory, a read holds its pages. So a
//! handler that wrote the message itself, or anyone who holds a lock that a handler needs, could
//! wait for the kernel, which waits for the program, which waits for the handler.
//!
//! ## The rule
//! [`Notifier`]'s methods only put the message into a queue, and a thread of its own delivers: they
//! never wait and may be called from anywhere, from handlers and under any lock.
//! [`Notifier::drain`] does wait for delivery: never call it from a handler, nor while holding a
//! lock that a handler may want.
//!
//! The queue is bounded. When it is full, single messages are refused with [`NotifyError::Full`];
//! what was asked to be forgotten may then still be cached until its time-to-live ends.

use crate::options::LogEvent;
use crate::wire::reply::Notification;
use rustix::fd::OwnedFd;
use rustix::io::Errno as OsErrno;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Messages that may wait: some 10 MiB at the longest names.
const QUEUE_MAX: usize = 32 << 10;

/// Why a notification was not taken.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum NotifyError {
    /// The queue is full.
    #[error("too many notifications are waiting for the kernel")]
    Full,
    /// The mount is gone, and its caches with it.
    #[error("the mount is gone")]
    Ended,
    /// Delivery took longer than asked.
    #[error("the kernel has not yet taken all notifications")]
    TimedOut,
}

/// Sends notifications to the kernel of one mount. Cheap to clone; outliving the session is fine.
#[derive(Clone)]
pub struct Notifier(Arc<Queue>);

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

/// Hears whether the kernel knew the inode of a notification.
type Then = Box<dyn FnOnce(bool) + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<(Notification, Option<Then>)>,
    /// Taken by the thread, not yet through.
    under_way: bool,
    ended: bool,
}

impl Notifier {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Queue { state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Forgets `name` in `parent`, and unmounts what is mounted on it. The next use looks it up.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> Result<(), NotifyError> {
        self.push(Notification::InvalEntry { parent, name: name.to_vec(), expire_only: false })
    }

    /// Lets `name` in `parent` be looked up again at its next use, leaving mounts below it alone
    /// (kernels since 6.3).
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> Result<(), NotifyError> {
        self.push(Notification::InvalEntry { parent, name: name.to_vec(), expire_only: true })
    }

    /// Forgets attributes of `ino` and its cached pages from `offset`, `length` bytes; 0 means to
    /// the end, and a negative offset attributes only.
    pub fn inval_inode(&self, ino: u64, offset: i64, length: i64) -> Result<(), NotifyError> {
        self.push(Notification::InvalInode { ino, offset, length })
    }

    /// The same. `then` hears whether the kernel knew the inode, from the thread that delivers; it
    /// must not wait. It hears nothing once the mount is gone.
    pub fn inval_inode_then(
        &self,
        ino: u64,
        offset: i64,
        length: i64,
        then: impl FnOnce(bool) + Send + 'static,
    ) -> Result<(), NotifyError> {
        self.push_then(Notification::InvalInode { ino, offset, length }, Some(Box::new(then)))
    }

    /// Says that `name` in `parent`, which named `child`, was removed: watchers (inotify) hear of
    /// it.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> Result<(), NotifyError> {
        self.push(Notification::Delete { parent, child, name: name.to_vec() })
    }

    /// Forgets every name of the mount (kernels since 6.16): after a rollback.
    pub fn inval_all_entries(&self) -> Result<(), NotifyError> {
        self.push(Notification::IncEpoch)
    }

    /// Waits until all that was queued before has been delivered. See the rule above before
    /// calling.
    pub fn drain(&self, timeout: Duration) -> Result<(), NotifyError> {
        let deadline = Instant::now() + timeout;
        let mut state = self.lock();
        while !state.ended && (state.under_way || !state.waiting.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NotifyError::TimedOut);
            }
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0;
        }
        Ok(())
    }

    /// True if all that was queued has been delivered.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let state = self.lock();
        !state.under_way && state.waiting.is_empty()
    }

    fn push(&self, notification: Notification) -> Result<(), NotifyError> {
        self.push_then(notification, None)
    }

    fn push_then(&self, notification: Notification, then: Option<Then>) -> Result<(), NotifyError> {
        let mut state = self.lock();
        if state.ended {
            return Err(NotifyError::Ended);
        }
        if state.waiting.len() >= QUEUE_MAX {
            return Err(NotifyError::Full);
        }
        state.waiting.push_back((notification, then));
        drop(state);
        self.0.changed.notify_all();
        Ok(())
    }

    /// No panic happens under this lock, so a poisoned one is as good as another.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Nothing more will be delivered.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.waiting.clear();
        drop(state);
        self.0.changed.notify_all();
    }

    /// Delivers until [`Notifier::end`]. Runs on a thread of its own.
    pub(crate) fn run(&self, fd: &OwnedFd, log: impl Fn(LogEvent)) {
        loop {
            let mut state = self.lock();
            state.under_way = false;
            self.0.changed.notify_all();
            let (next, then) = loop {
                if state.ended {
                    return;
                }
                if let Some(next) = state.waiting.pop_front() {
                    break next;
                }
                state = self.0.changed.wait(state).unwrap_or_else(|e| e.into_inner());
            };
            state.under_way = true;
            drop(state);
            let delivered = deliver(fd, &next);
            if let Some(then) = then {
                then(delivered.is_ok());
            }
            match delivered {
                // NOENT: nothing of it was cached. The others: the mount is gone, which its threads
                // will notice.
                Ok(()) | Err(OsErrno::NOENT | OsErrno::NODEV | OsErrno::CONNABORTED | OsErrno::NOTCONN) => {}
                // NOTDIR, NOTEMPTY, BUSY: a deletion that the kernel's own view contradicts. It
                // keeps its view.
                Err(OsErrno::NOTDIR | OsErrno::NOTEMPTY | OsErrno::BUSY) => {}
                Err(errno) => log(LogEvent::NotificationFailed { message: format!("{next:?}: {errno}") }),
            }
        }
    }
}

fn deliver(fd: &OwnedFd, notification: &Notification) -> rustix::io::Result<()> {
    let message = notification.encode();
    loop {
        match rustix::io::write(fd, &message) {
            Err(OsErrno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_and_refuses_after_the_end() {
        let notifier = Notifier::new();
        for ino in 0..QUEUE_MAX as u64 {
            notifier.inval_inode(ino, 0, 0).unwrap();
        }
        assert_eq!(notifier.inval_inode(1, 0, 0), Err(NotifyError::Full));
        assert_eq!(notifier.drain(Duration::from_millis(1)), Err(NotifyError::TimedOut));
        assert!(!notifier.is_idle());
        notifier.end();
        assert!(notifier.is_idle());
        assert_eq!(notifier.delete(1, 2, b"x"), Err(NotifyError::Ended));
        assert_eq!(notifier.drain(Duration::from_millis(1)), Ok(()), "nothing is waiting any more");
    }

    #[test]
    fn messages_go_out_in_order() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let notifier = Notifier::new();
        notifier.inval_inode(7, -1, 0).unwrap();
        notifier.inval_entry(1, b"a").unwrap();
        let thread = {
            let notifier = notifier.clone();
            std::thread::spawn(move || notifier.run(&write, |event| panic!("{event}")))
        };
        notifier.drain(Duration::from_secs(600)).unwrap();
        notifier.end();
        thread.join().unwrap();
        let mut bytes = [0; 256];
        let len = rustix::io::read(&read, &mut bytes).unwrap();
        let first = Notification::InvalInode { ino: 7, offset: -1, length: 0 }.encode();
        let second = Notification::InvalEntry { parent: 1, name: b"a".to_vec(), expire_only: false }.encode();
        assert_eq!(bytes[..len], [first, second].concat());
    }
}
