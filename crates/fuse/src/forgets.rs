//! # Forgotten inodes, by the ten thousand and one by one
//!
//! When a user drops the kernel's caches, or memory runs short, the kernel forgets all inodes at
//! once. It puts as many as fit into one message (65,000 in a megabyte), and prefers such messages
//! to requests, two to one. A thread that serves requests would be busy for tens of milliseconds
//! with each, all of them before the first request gets through. So it only takes large messages
//! over, and a thread of their own works them off. Beyond a bound, the thread that brings more
//! does the work itself.
//!
//! Behind each file that is removed the kernel forgets one inode, before the next request of the
//! program that removes. To remove what is left of a file costs as much as the request did. So
//! these are gathered for [`GATHER`], and worked off together by the same thread. A request that
//! finds no room has them worked off at once, and is served again ([`Forgets::gathered`]).
//!
//! ## Invariants
//! [forgets.1] Nothing is forgotten that was not handed over, and nothing twice: a message is in
//!      the queue or with one thread, and so is what was gathered.
//! [forgets.2] When [`Forgets::end`] has returned nothing is forgotten any more. The rest of the
//!      queue is dropped: the session's end forgets everything [session.1].
//!      test: `nothing_is_forgotten_after_the_end`
//!
//! Requests and messages overtake each other here. That changes nothing: what is forgotten is a
//! number of lookups that the kernel was told of before, and an inode's count comes to the same in
//! any order.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::types::Forget;

/// Messages of fewer bytes are gathered: 256 inodes.
pub(crate) const LARGE_BYTES: usize = 4 << 10;
/// Bytes of large messages that wait at most.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// Inodes that are gathered at most.
const GATHERED_MAX: usize = 4_096;
/// How long inodes are gathered from the first on.
const GATHER: Duration = Duration::from_millis(1);

/// Work for the worker.
pub(crate) enum Work {
    /// A large message, as it came.
    Message(Vec<u8>),
    /// Inodes that small messages named.
    Gathered(Vec<Forget>),
}

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
    gathered: Vec<Forget>,
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

    /// Takes over what small messages hold. False if nothing of it was taken: too many wait
    /// already, or nobody works any more.
    pub fn gather(&self, forgets: impl Iterator<Item = Forget>) -> bool {
        let mut state = self.lock();
        if state.ended || state.gathered.len() >= GATHERED_MAX {
            return false;
        }
        let is_first = state.gathered.is_empty();
        state.gathered.extend(forgets);
        if is_first {
            self.bell.notify_all();
        }
        true
    }

    /// Takes what is gathered, to be worked off by the caller.
    pub fn gathered(&self) -> Vec<Forget> {
        let mut state = self.lock();
        if state.ended { Vec::new() } else { std::mem::take(&mut state.gathered) }
    }

    /// The worker's life: `forget` works one piece off.
    pub fn run(&self, forget: impl Fn(&Work)) {
        let mut state = self.lock();
        while !state.ended {
            let work = if let Some(message) = state.messages.pop_front() {
                Work::Message(message)
            } else if state.gathered.is_empty() {
                state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            } else {
                drop(state);
                std::thread::sleep(GATHER);
                state = self.lock();
                if state.ended || state.gathered.is_empty() {
                    continue;
                }
                Work::Gathered(std::mem::take(&mut state.gathered))
            };
            state.at_work = true;
            drop(state);
            forget(&work);
            state = self.lock();
            if let Work::Message(message) = &work {
                state.bytes -= message.len();
            }
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

    fn bytes(work: &Work) -> Vec<u8> {
        match work {
            Work::Message(message) => message.clone(),
            Work::Gathered(forgets) => panic!("{forgets:?} was no message"),
        }
    }

    #[test]
    fn what_is_gathered_is_worked_off_once_by_the_worker_or_by_who_asks() {
        let forgets = Arc::new(Forgets::default());
        let (said, heard) = channel();
        let one = |ino| std::iter::once(Forget { ino, nlookup: ino + 1 });
        assert!(forgets.gather(one(1)) && forgets.gather(one(2)));
        let asked = forgets.gathered();
        assert_eq!(asked, [Forget { ino: 1, nlookup: 2 }, Forget { ino: 2, nlookup: 3 }]);
        assert!(forgets.gathered().is_empty());
        let worker = {
            let forgets = Arc::clone(&forgets);
            std::thread::spawn(move || {
                forgets.run(|work| match work {
                    Work::Message(message) => panic!("{message:?} was not gathered"),
                    Work::Gathered(some) => said.send(some.clone()).expect("heard"),
                });
            })
        };
        for ino in 0..300 {
            assert!(forgets.gather(one(ino)));
        }
        let mut all: Vec<u64> = Vec::new();
        while all.len() < 300 {
            all.extend(heard.recv().expect("the worker goes on").iter().map(|forget| forget.ino));
        }
        assert_eq!(all, (0..300).collect::<Vec<_>>());
        forgets.end();
        worker.join().expect("no panic");
        assert!(!forgets.gather(one(7)) && forgets.gathered().is_empty() && heard.try_recv().is_err());
    }

    #[test]
    fn so_many_are_gathered_and_no_more() {
        let forgets = Forgets::default();
        let many = |count: u64| (0..count).map(|ino| Forget { ino, nlookup: 1 });
        assert!(forgets.gather(many(GATHERED_MAX as u64)));
        assert!(!forgets.gather(many(1)), "nobody takes anything out");
        assert_eq!(forgets.gathered().len(), GATHERED_MAX);
    }

    #[test]
    fn messages_are_worked_off_once_and_in_order() {
        let forgets = Arc::new(Forgets::default());
        let (said, heard) = channel();
        let worker = Arc::clone(&forgets);
        let worker = std::thread::spawn(move || worker.run(|work| said.send(bytes(work)).expect("heard")));
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
                forgets.run(|work| {
                    begun.wait();
                    go_on.wait();
                    said.send(bytes(work)).expect("heard");
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
