//! # How many threads serve a mount
//!
//! ## The problem
//! A handler may block for long: on a disk, on the commit of a transaction group, or on a call that
//! itself needs the mount (a nested `mount(2)` walks through our directories). A fixed number of
//! threads then stops the mount, and in the last case for ever. Many threads, on the other hand,
//! are slower than few: each wake-up goes to the one that slept longest, with the coldest cache.
//!
//! ## The rule
//! *Base* threads serve as long as none is blocked. A thread is *blocked* when it has been in one
//! and the same request for a whole [`TICK`]. There may be *base + blocked* threads, up to a
//! maximum. A supervisor counts; it sleeps for ever while some thread is idle, so a mount at rest
//! costs nothing.
//!
//! ## Rest
//! While one thread is enough, the others *rest*: the kernel hands a request to a thread that
//! sleeps in `read(2)` even if another one is awake and takes it, so whoever sleeps there costs a
//! wake-up for each request. A thread rests after it looked for requests in vain some times while
//! others *attend* (live, neither resting nor blocked); it is called when another one finds
//! requests that wait, or when nobody attends any more.
//!
//! ## Invariants
//! [threads.1] While no thread is idle and not all `max` threads exist, at most about two ticks
//!      pass before either some request has completed or a thread is added.
//!      test: `blocked_threads_are_replaced`
//! [threads.2] `live` is the number of threads that may still serve; it is raised before a thread
//!      starts and lowered exactly once by the thread itself.
//!      guard: `ThreadSeat`
//! [threads.3] The last thread to leave ends the session.
//!      guard: `SessionThreads::leave` says so once
//! [threads.4] A thread rests only while another one attends; when the last one that attends leaves
//!      or is found to be blocked, one that rests is called.
//!      `SessionThreads::rest`, `SessionThreads::relieve`; test:
//!      `who_rests_is_called_when_nobody_attends`

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// How long a thread must stay in one request to count as blocked: more than a request that only
/// computes takes on a busy machine, less than an operator notices. At 5 ms a loaded two-core
/// machine grew threads for nothing.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// The threads of one session, seen from outside.
pub(crate) struct SessionThreads {
    base: usize,
    max: usize,
    live: AtomicUsize,
    idle: AtomicUsize,
    blocked: AtomicUsize,
    ended: AtomicBool,
    slots: Box<[Slot]>,
    supervisor: OnceLock<Thread>,
    rest: Mutex<RestingThreads>,
    bell: Condvar,
    /// As `RestingThreads::resting`, for a glance.
    resting: AtomicUsize,
}

#[derive(Default)]
struct RestingThreads {
    /// Threads that rest and were not called.
    resting: usize,
    /// Called, and still asleep.
    called: usize,
    /// Nobody rests any more.
    dismissed: bool,
}

#[derive(Default)]
struct Slot {
    taken: AtomicBool,
    /// Changes with each request; 0 while there is none.
    request: AtomicU64,
    /// Counted in `SessionThreads::blocked`.
    blocked: AtomicBool,
}

/// One thread's place among them.
pub(crate) struct ThreadSeat {
    slot: usize,
    requests: u64,
}

impl SessionThreads {
    pub fn new(base: usize, max: usize) -> Self {
        let max = max.max(base);
        Self {
            base,
            max,
            live: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            blocked: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            slots: (0..max).map(|_| Slot::default()).collect(),
            supervisor: OnceLock::new(),
            rest: Mutex::default(),
            bell: Condvar::new(),
            resting: AtomicUsize::new(0),
        }
    }

    /// The threads to start with: what was asked for, or one per CPU, at least 2 and at most 16.
    pub fn base_for(asked: Option<usize>) -> usize {
        let cpus = std::thread::available_parallelism().map_or(2, |n| n.get());
        asked.map_or_else(|| cpus.clamp(2, 16), |n| n.clamp(1, 1024))
    }

    pub fn base(&self) -> usize {
        self.base
    }

    pub fn live(&self) -> usize {
        self.live.load(SeqCst)
    }

    /// A place for one more thread, if there may be one.
    pub fn join(&self) -> Option<ThreadSeat> {
        for (slot, s) in self.slots.iter().enumerate() {
            if !s.taken.swap(true, SeqCst) {
                self.live.fetch_add(1, SeqCst);
                return Some(ThreadSeat { slot, requests: 0 });
            }
        }
        None
    }

    /// Gives a place back. True for the last thread of the session.
    pub fn leave(&self, seat: ThreadSeat) -> bool {
        self.slots[seat.slot].taken.store(false, SeqCst);
        let is_last = self.live.fetch_sub(1, SeqCst) == 1;
        self.relieve();
        is_last
    }

    fn lock_rest(&self) -> MutexGuard<'_, RestingThreads> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Threads that listen, or serve what they are not blocked in.
    fn attending(&self, resting: usize) -> usize {
        self.live.load(SeqCst).saturating_sub(self.blocked.load(SeqCst) + resting)
    }

    /// True if others attend beside the thread that asks.
    pub fn may_rest(&self) -> bool {
        self.attending(self.resting.load(SeqCst)) > 1
    }

    /// Sleeps until called, if others attend [threads.4].
    pub fn rest(&self) {
        let mut rest = self.lock_rest();
        if rest.dismissed || self.attending(rest.resting) <= 1 {
            return;
        }
        rest.resting += 1;
        self.resting.store(rest.resting, SeqCst);
        while rest.called == 0 && !rest.dismissed {
            rest = self.bell.wait(rest).unwrap_or_else(PoisonError::into_inner);
        }
        rest.called = rest.called.saturating_sub(1);
    }

    /// Calls a thread that rests. False if there is none.
    pub fn call(&self) -> bool {
        self.resting.load(SeqCst) > 0 && self.call_one(&mut self.lock_rest())
    }

    fn call_one(&self, rest: &mut RestingThreads) -> bool {
        if rest.resting == 0 {
            return false;
        }
        rest.resting -= 1;
        rest.called += 1;
        self.resting.store(rest.resting, SeqCst);
        self.bell.notify_one();
        true
    }

    /// Calls a thread that rests if nobody attends [threads.4]. Called after the number of
    /// attending threads fell.
    fn relieve(&self) -> bool {
        let mut rest = self.lock_rest();
        self.attending(rest.resting) == 0 && self.call_one(&mut rest)
    }

    /// The mount is gone: resting threads wake and see that.
    pub fn dismiss(&self) {
        let mut rest = self.lock_rest();
        rest.dismissed = true;
        rest.resting = 0;
        self.resting.store(0, SeqCst);
        self.bell.notify_all();
    }

    /// Gives a place back if there are more threads than needed.
    pub fn leave_if_surplus(&self, seat: ThreadSeat) -> Result<(), ThreadSeat> {
        let wanted = self.base + self.blocked.load(SeqCst);
        let lowered = self.live.fetch_update(SeqCst, SeqCst, |live| (live > wanted).then(|| live - 1));
        match lowered {
            Ok(_) => {
                self.slots[seat.slot].taken.store(false, SeqCst);
                self.relieve();
                Ok(())
            }
            Err(_) => Err(seat),
        }
    }

    /// Around waiting for a request.
    pub fn idle<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.idle.fetch_add(1, SeqCst);
        let out = wait();
        if self.idle.fetch_sub(1, SeqCst) == 1
            && let Some(supervisor) = self.supervisor.get()
        {
            supervisor.unpark();
        }
        out
    }

    /// Around serving a request.
    pub fn busy<T>(&self, seat: &mut ThreadSeat, serve: impl FnOnce() -> T) -> T {
        let slot = &self.slots[seat.slot];
        seat.requests += 1;
        slot.request.store(seat.requests, SeqCst);
        let out = serve();
        slot.request.store(0, SeqCst);
        if slot.blocked.swap(false, SeqCst) {
            self.blocked.fetch_sub(1, SeqCst);
        }
        out
    }

    /// The session is over: the supervisor returns.
    pub fn end(&self) {
        self.ended.store(true, SeqCst);
        if let Some(supervisor) = self.supervisor.get() {
            supervisor.unpark();
        }
    }

    /// Runs on a thread of its own until [`SessionThreads::end`]. `add` starts a thread, or says
    /// that none can be started; `exhausted` hears once per shortage that there may be no more.
    pub fn supervise(&self, mut add: impl FnMut() -> bool, mut exhausted: impl FnMut(usize)) {
        let _ = self.supervisor.set(std::thread::current());
        let mut seen = vec![0; self.slots.len()];
        let mut told = false;
        while !self.ended.load(SeqCst) {
            if self.idle.load(SeqCst) > 0 {
                told = false;
                std::thread::park();
                continue;
            }
            std::thread::sleep(TICK);
            self.count_blocked(&mut seen);
            if self.relieve() {
                continue;
            }
            while self.live() < self.max.min(self.base + self.blocked.load(SeqCst))
                && !self.ended.load(SeqCst)
            {
                if !add() {
                    break;
                }
            }
            if self.blocked.load(SeqCst) >= self.max && !told {
                told = true;
                exhausted(self.live());
            }
        }
    }

    fn count_blocked(&self, seen: &mut [u64]) {
        for (slot, seen) in self.slots.iter().zip(seen) {
            let request = slot.request.load(SeqCst);
            if request != 0 && request == *seen && !slot.blocked.swap(true, SeqCst) {
                // If the request ends right here, the next one's end takes this back.
                self.blocked.fetch_add(1, SeqCst);
            }
            *seen = request;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc;

    #[test]
    fn surplus_threads_leave_and_the_last_one_says_so() {
        let session = SessionThreads::new(1, 3);
        let (a, b) = (session.join().unwrap(), session.join().unwrap());
        assert!(session.leave_if_surplus(a).is_ok(), "two live, one wanted");
        let b = session.leave_if_surplus(b).expect_err("the base stays");
        assert!(session.leave(b));
        assert_eq!(session.live(), 0);
    }

    #[test]
    fn no_more_threads_than_places() {
        let session = SessionThreads::new(2, 2);
        let seats: Vec<_> = std::iter::from_fn(|| session.join()).collect();
        assert_eq!(seats.len(), 2);
    }

    #[test]
    fn who_rests_is_called_when_nobody_attends() {
        let session = Arc::new(SessionThreads::new(2, 4));
        let (said, heard) = mpsc::channel();
        let rests = || {
            let (session, said) = (session.clone(), said.clone());
            std::thread::spawn(move || {
                session.rest();
                said.send(()).unwrap();
            });
        };
        let until_resting = |threads| {
            while session.resting.load(SeqCst) != threads {
                std::thread::yield_now();
            }
        };
        let (a, _b, _c) = (session.join().unwrap(), session.join().unwrap(), session.join().unwrap());
        assert!(!session.call(), "nobody rests");
        rests();
        until_resting(1);
        assert!(session.may_rest());
        rests();
        until_resting(2);
        assert!(!session.may_rest());
        session.rest(); // The last one that attends does not.
        assert!(!session.relieve(), "somebody attends");
        // One that is blocked attends no more.
        session.slots[a.slot].request.store(1, SeqCst);
        let mut seen = vec![0; session.slots.len()];
        session.count_blocked(&mut seen);
        session.count_blocked(&mut seen);
        assert!(session.relieve(), "[threads.4]");
        assert!(!session.relieve(), "who was called attends");
        until_resting(1);
        // Nor does one that leaves: the blocked one remains, and the one that was called goes.
        assert!(!session.leave(ThreadSeat { slot: 1, requests: 0 }));
        until_resting(0);
        session.rest(); // The second one that was called attends alone.
        for _ in 0..2 {
            heard.recv_timeout(Duration::from_secs(600)).expect("both were called");
        }
    }

    /// [threads.1]: every thread blocks; each time one more is started, until the maximum, which is
    /// reported once.
    #[test]
    fn blocked_threads_are_replaced() {
        let session = Arc::new(SessionThreads::new(2, 5));
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(std::sync::Mutex::new(gate));
        let start = {
            let session = session.clone();
            move || {
                let Some(mut seat) = session.join() else { return false };
                let (session, gate) = (session.clone(), gate.clone());
                std::thread::spawn(move || {
                    session.idle(|| ());
                    session.busy(&mut seat, || gate.lock().unwrap().recv().unwrap());
                    session.leave(seat);
                });
                true
            }
        };
        for _ in 0..2 {
            assert!(start());
        }
        let (said, hear) = mpsc::channel();
        let supervisor = {
            let session = session.clone();
            std::thread::spawn(move || session.supervise(start, |n| said.send(n).unwrap()))
        };
        let threads =
            hear.recv_timeout(Duration::from_secs(600)).expect("the maximum is reached and reported");
        assert_eq!(threads, 5);
        for _ in 0..5 {
            release.send(()).unwrap();
        }
        session.end();
        supervisor.join().unwrap();
    }
}
