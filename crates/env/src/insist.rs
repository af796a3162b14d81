//! Work that has to succeed, however long that takes.
//!
//! A commit cannot be taken back or begun again, so its reads and writes wait for a store that is
//! away, where those of a client fail. The thread that commits says so with [`insisting`], and the
//! jobs that it shares out inherit that.

use std::cell::Cell;

thread_local! {
    static INSISTS: Cell<bool> = const { Cell::new(false) };
}

/// Runs work whose transfers wait for a device instead of failing.
pub fn insisting<T>(work: impl FnOnce() -> T) -> T {
    struct Restored(bool);
    impl Drop for Restored {
        fn drop(&mut self) {
            set(self.0);
        }
    }
    let _restored = Restored(INSISTS.replace(true));
    work()
}

/// True if this thread's transfers wait for a device.
#[must_use]
pub fn is_insisting() -> bool {
    INSISTS.get()
}

/// For threads that take over a part of another one's work.
pub(crate) fn set(insists: bool) {
    INSISTS.set(insists);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Env, Job};
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn jobs_inherit_it_and_the_thread_forgets_it() {
        let env = Env::real();
        let count = |expected: u32| {
            let insisted = AtomicU32::new(0);
            let insisted_in = &insisted;
            let job = || -> Job<'_> {
                Box::new(move || _ = insisted_in.fetch_add(u32::from(is_insisting()), Ordering::Relaxed))
            };
            env.tasks.run_waiting((0..8).map(|_| job()).collect());
            assert_eq!(insisted.load(Ordering::Relaxed), expected);
        };
        count(0);
        insisting(|| count(8));
        assert!(!is_insisting());
        count(0);
    }
}
