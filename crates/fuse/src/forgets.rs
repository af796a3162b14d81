//! # Forgotten inodes, by the ten thousand
//!
//! When a user drops the kernel's caches, or memory runs short, the kernel forgets all inodes at
//! once. It puts as many as fit into one message (65,000 in a megabyte), and prefers such messages
//! to requests, two to one. A thread that serves requests would be busy for tens of milliseconds
//! with each, all of them before the first request gets through. So it only takes large messages
//! over, and a thread of their own works them off. Beyond a bound, the thread that brings more
//! does the work itself.
//!
//! ## Invariants
//! [forgets.1] Nothing is forgotten that was not handed over, and nothing twice: a message is in
//!      the queue or with one thread.
//! [forgets.2] When [`Forgets::end`] has returned nothing is forgotten any more. The rest of the
//!      queue is dropped: the session's end forgets everything [session.1].
//!      test: `nothing_is_forgotten_after_the_end`
//!
//! Requests and messages overtake each other here. That changes nothing: what is forgotten is a
//! number of lookups that the kernel was told of before, and an inode's count comes to the same in
//! any order.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The reader works off messages of fewer bytes itself: 256 inodes, some 0.2 ms.
pub(crate) const LARGE_BYTES: usize = 4 << 10;
/// Bytes that wait at most.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// Messages that wait to be worked off.
#[derive(Default)]
pub(crate) struct Forgets {
    state: Mutex<State>,
    /// Rung for the worker, and by it when it stops.
    bell: Condvar,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    at_work: bool,
    ended: bool,
}

impl Forgets {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message over. False if too many wait already, or nobody works any more.
    pub fn push(&self, message: &[u8]) -> bool {
        let mut state = self.lock();
        if state.ended || state.bytes + message.len() > WAITING_BYTES_MAX {
            return false;
        }
        state.bytes += message.len();
        state.messages.push_back(message.to_vec());
        self.bell.notify_all();
        true
    }

    /// The worker's life: `forget` works one message off.
    pub fn run(&self, forget: impl Fn(&[u8])) {
        let mut state = self.lock();
        while !state.ended {
            let Some(message) = state.messages.pop_front() else {
                state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.at_work = true;
            drop(state);
            forget(&message);
            state = self.lock();
            state.bytes -= message.len();
            state.at_work = false;
            self.bell.notify_all();
        }
    }

    /// Ends the worker, and waits for what it is at [forgets.2].
    pub fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        self.bell.notify_all();
        while state.at_work {
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Barrier};

    #[test]
    fn messages_are_worked_off_once_and_in_order() {
        let forgets = Arc::new(Forgets::default());
        let (said, heard) = channel();
        let worker = Arc::clone(&forgets);
        let worker =
            std::thread::spawn(move || worker.run(|message| said.send(message.to_vec()).expect("heard")));
        for number in 0..100 {
            assert!(forgets.push(&[number]));
        }
        let all: Vec<Vec<u8>> = heard.iter().take(100).collect();
        assert_eq!(all, (0..100).map(|number| vec![number]).collect::<Vec<_>>());
        forgets.end();
        worker.join().expect("no panic");
        assert!(heard.try_recv().is_err());
    }

    #[test]
    fn what_is_too_much_is_left_to_who_brings_it() {
        let forgets = Forgets::default();
        let message = vec![0; WAITING_BYTES_MAX / 2];
        assert!(forgets.push(&message) && forgets.push(&message));
        assert!(!forgets.push(&[0]), "nobody takes anything out");
    }

    #[test]
    fn nothing_is_forgotten_after_the_end() {
        let forgets = Arc::new(Forgets::default());
        let (begun, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (said, heard) = channel();
        let worker = {
            let (forgets, begun, go_on) = (Arc::clone(&forgets), Arc::clone(&begun), Arc::clone(&go_on));
            std::thread::spawn(move || {
                forgets.run(|message| {
                    begun.wait();
                    go_on.wait();
                    said.send(message.to_vec()).expect("heard");
                });
            })
        };
        assert!(forgets.push(b"one") && forgets.push(b"two"));
        begun.wait();
        let ends = {
            let forgets = Arc::clone(&forgets);
            std::thread::spawn(move || {
                forgets.end();
                heard.try_iter().collect::<Vec<_>>()
            })
        };
        while !forgets.lock().ended {
            std::thread::yield_now();
        }
        go_on.wait();
        assert_eq!(
            ends.join().expect("no panic"),
            [b"one".to_vec()],
            "the one it was at, before the end came back"
        );
        worker.join().expect("no panic");
        assert!(!forgets.push(b"three"));
    }
}
