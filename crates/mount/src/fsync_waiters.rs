//! Callers of `fsync` that another thread answers, when their group of the intent log is durable.
//!
//! The kernel lets no process die before each of its requests is answered. So a thread looks twice
//! a second which waiting callers were killed, and answers those `EINTR`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_fuse::{Errno, Later};

/// Time between two looks for killed callers.
const DYING_LOOK: Duration = Duration::from_millis(500);

/// True if the thread was killed and waits only for its request. The kernel tells us that *some*
/// signal came; a fatal one is pending at the thread as SIGKILL until the thread can die.
pub(crate) fn is_dying(thread: u32) -> bool {
    const SIGKILL: u64 = 1 << (9 - 1);
    if thread == 0 {
        return false;
    }
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    pending.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits & SIGKILL != 0)
}

/// Waiting callers. Each is answered once: by the thread that takes it from here.
#[derive(Default)]
pub(crate) struct FsyncWaiters {
    callers: Mutex<Callers>,
}

#[derive(Default)]
struct Callers {
    next: u64,
    by_number: HashMap<u64, (u32, Later)>,
    /// The watching thread runs.
    watched: bool,
}

impl FsyncWaiters {
    fn lock(&self) -> MutexGuard<'_, Callers> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a caller until [`FsyncWaiters::take`], or until the caller is killed and answered
    /// `EINTR`.
    pub(crate) fn add(self: &Arc<FsyncWaiters>, caller: u32, later: Later) -> u64 {
        let mut callers = self.lock();
        let number = callers.next;
        callers.next += 1;
        callers.by_number.insert(number, (caller, later));
        if !callers.watched {
            let waiters = Arc::clone(self);
            let watch = std::thread::Builder::new().name("fsync watch".into()).spawn(move || waiters.watch());
            // Without the thread a waiting caller cannot be killed; the next `add` tries again to
            // start it.
            callers.watched = watch.is_ok();
        }
        number
    }

    pub(crate) fn take(&self, number: u64) -> Option<Later> {
        self.lock().by_number.remove(&number).map(|(_, later)| later)
    }

    /// Watches the callers until there are none.
    fn watch(&self) {
        loop {
            std::thread::sleep(DYING_LOOK);
            let waiting: Vec<(u64, u32)> = {
                let mut callers = self.lock();
                if callers.by_number.is_empty() {
                    callers.watched = false;
                    return;
                }
                callers.by_number.iter().map(|(&number, &(caller, _))| (number, caller)).collect()
            };
            for (number, caller) in waiting {
                if is_dying(caller)
                    && let Some(later) = self.take(number)
                {
                    later.answer(Err(Errno::EINTR));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lives_is_not_dying() {
        assert!(!is_dying(std::process::id()));
        assert!(!is_dying(0), "a caller of another pid namespace");
    }
}
