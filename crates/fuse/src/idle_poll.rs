//! # Processors that stay awake while requests come fast
//!
//! A program and the daemon hand work to each other some ten thousand times a second. Where a
//! processor with nothing to do halts at once, as a guest's does under Linux's `haltpoll` driver,
//! each hand-over has to wake one: an interrupt between processors, which costs the waker 20 to 50
//! µs there, more than serving a request does. A processor that polls in the kernel's idle loop
//! instead sees work in its own memory. Linux's power management takes such wishes: as long as
//! somebody holds `/dev/cpu_dma_latency` open with 0 written to it, no processor halts
//! (Documentation/power/pm_qos_interface.rst of the kernel).
//!
//! ```text
//!            STRIDE requests within RISE          fewer than KEEP in PERIOD, or the end
//!     asleep ───────────────────────────► awake ────────────────────────────────────────► asleep
//! ```
//!
//! Cost: while awake, each idle processor of the machine draws the power of a busy one. So it is
//! for guests with few processors unless asked for ([`IdlePoll`]), and for as long as requests
//! come.
//!
//! ## Invariants
//! [idle_poll.1] The wish is withdrawn when the session ends, however it ends: the kernel forgets
//!      it with the descriptor.
//! [idle_poll.2] Threads that serve only count. One thread of its own writes the device.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::options::IdlePoll;

const DEVICE: &str = "/dev/cpu_dma_latency";
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// Most processors that are kept awake without being asked to.
const PROCESSORS_MAX: usize = 8;
/// The thread looks once in so many requests.
const STRIDE: u64 = 64;
/// So many must come within this for processors to be kept awake: 3,200 a second.
const RISE: Duration = Duration::from_millis(20);
/// How often it looks whether they still come, and how many must have: 1,600 a second.
const PERIOD: Duration = Duration::from_millis(10);
const KEEP: u64 = 16;
/// Microseconds that waking may take, and the value that takes a wish back.
const AT_ONCE: i32 = 0;
const NO_WISH: i32 = -1;

/// Counts requests and keeps processors awake while there are many. [`IdlePolling::end`] ends it.
pub struct IdlePolling {
    served: AtomicU64,
    is_awake: AtomicBool,
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Default)]
struct State {
    calls: u64,
    ended: bool,
}

impl IdlePolling {
    /// Polling, if it is wanted and this machine can have it.
    ///
    /// # Errors
    /// The reason why not, where somebody asked for it.
    pub fn begin(wanted: IdlePoll) -> Result<Option<Arc<IdlePolling>>, String> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let suits = || {
            std::fs::read_to_string(DRIVER).is_ok_and(|driver| driver.trim() == "haltpoll")
                && (2..=PROCESSORS_MAX).contains(&processors)
        };
        match wanted {
            IdlePoll::Off => Ok(None),
            IdlePoll::Auto if !suits() => Ok(None),
            // Ordinary users may not open it, and nobody asked.
            IdlePoll::Auto => Ok(IdlePolling::over(Path::new(DEVICE)).ok()),
            IdlePoll::On => {
                IdlePolling::over(Path::new(DEVICE)).map(Some).map_err(|e| format!("{DEVICE}: {e}"))
            }
        }
    }

    fn over(device: &Path) -> std::io::Result<Arc<IdlePolling>> {
        let device = OpenOptions::new().write(true).open(device)?;
        // Whether it can be written shows now.
        wish(&device, NO_WISH)?;
        let idle_poll = Arc::new(IdlePolling {
            served: AtomicU64::new(0),
            is_awake: AtomicBool::new(false),
            state: Mutex::default(),
            called: Condvar::new(),
        });
        let keeper = Arc::clone(&idle_poll);
        std::thread::Builder::new().name("fuse-idle-poll".into()).spawn(move || keeper.keep(&device))?;
        Ok(idle_poll)
    }

    /// A request came.
    pub fn count(&self) {
        let served = self.served.fetch_add(1, Ordering::Relaxed) + 1;
        if served.is_multiple_of(STRIDE) && !self.is_awake.load(Ordering::Relaxed) {
            self.lock().calls += 1;
            self.called.notify_one();
        }
    }

    /// The session is over.
    pub fn end(&self) {
        self.lock().ended = true;
        self.called.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The life of the thread. A device that cannot be written any more ends it: processors halt as
    /// they would without.
    fn keep(&self, device: &File) {
        while self.wait_for_many() {
            if wish(device, AT_ONCE).is_err() {
                return;
            }
            self.is_awake.store(true, Ordering::Relaxed);
            self.wait_for_few();
            self.is_awake.store(false, Ordering::Relaxed);
            if wish(device, NO_WISH).is_err() {
                return;
            }
        }
    }

    /// Until [`STRIDE`] requests came within [`RISE`]. False if the session is over.
    fn wait_for_many(&self) -> bool {
        let mut last: Option<Instant> = None;
        let mut state = self.lock();
        loop {
            let calls = state.calls;
            while state.calls == calls && !state.ended {
                state = self.called.wait(state).unwrap_or_else(|e| e.into_inner());
            }
            if state.ended {
                return false;
            }
            let now = Instant::now();
            if last.replace(now).is_some_and(|last| now - last <= RISE) {
                return true;
            }
        }
    }

    /// Until fewer than [`KEEP`] requests come in a [`PERIOD`], or the session is over.
    fn wait_for_few(&self) {
        let mut state = self.lock();
        let mut before = self.served.load(Ordering::Relaxed);
        while !state.ended {
            state = self.called.wait_timeout(state, PERIOD).unwrap_or_else(|e| e.into_inner()).0;
            let served = self.served.load(Ordering::Relaxed);
            if served - before < KEEP {
                return;
            }
            before = served;
        }
    }
}

fn wish(mut device: &File, microseconds: i32) -> std::io::Result<()> {
    device.write_all(&microseconds.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(path: &Path) -> Vec<i32> {
        let bytes = std::fs::read(path).unwrap();
        bytes.chunks(4).map(|word| i32::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    fn wait_until(holds: impl Fn() -> bool) {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < Duration::from_secs(600), "it never came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn processors_are_kept_awake_while_requests_come_and_no_longer() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let idle_poll = IdlePolling::over(file.path()).unwrap();
        for _ in 1..STRIDE {
            idle_poll.count();
        }
        assert_eq!(wishes(file.path()), [NO_WISH], "a few requests");
        wait_until(|| {
            (0..STRIDE).for_each(|_| idle_poll.count());
            idle_poll.is_awake.load(Ordering::Relaxed)
        });
        assert_eq!(wishes(file.path())[..2], [NO_WISH, AT_ONCE]);
        // Where this thread does not get to count for a while, it may rise and fall more than once.
        wait_until(|| wishes(file.path()).last() == Some(&NO_WISH));
        let all = wishes(file.path());
        assert!(all.chunks(2).all(|pair| matches!(*pair, [NO_WISH, AT_ONCE] | [NO_WISH])), "{all:?}");
        idle_poll.end();
        wait_until(|| Arc::strong_count(&idle_poll) == 1);
    }

    #[test]
    fn a_session_that_ends_takes_its_wish_back() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let idle_poll = IdlePolling::over(file.path()).unwrap();
        wait_until(|| {
            (0..STRIDE).for_each(|_| idle_poll.count());
            idle_poll.is_awake.load(Ordering::Relaxed)
        });
        idle_poll.end();
        wait_until(|| Arc::strong_count(&idle_poll) == 1);
        assert_eq!(wishes(file.path()).last(), Some(&NO_WISH));
    }

    #[test]
    fn without_being_asked_nothing_that_fails_is_told() {
        assert!(IdlePolling::begin(IdlePoll::Off).unwrap().is_none());
        IdlePolling::begin(IdlePoll::Auto).unwrap().inspect(|idle_poll| idle_poll.end());
        assert!(IdlePolling::over(Path::new("/nonexistent/device")).is_err());
    }
}
