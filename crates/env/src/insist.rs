//! Work that has to succeed, however long that takes.
//!
//! A commit cannot be taken back or begun again, so its reads and writes wait for a store that is
//! away. The thread that commits says so with [`insisting`]. The thread that serves a client says
//! so with [`serving`]: its reads wait where the pool's `failmode` says so, as long as the client
//! lives. The jobs that either shares out inherit that.

use std::cell::Cell;

/// A client for whom a thread works.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// Will it die as soon as it is answered?
    pub is_dying: fn(u32) -> bool,
    /// Its thread, or another number by which `is_dying` knows it.
    pub thread: u32,
}

impl Client {
    /// True if nobody hears the answer.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        (self.is_dying)(self.thread)
    }
}

/// For whom a thread works, and how.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    insists: bool,
    client: Option<Client>,
}

thread_local! {
    static MANNER: Cell<Manner> = const { Cell::new(Manner { insists: false, client: None }) };
}

/// Puts back what was, even if the work panics.
struct Before(Manner);

impl Drop for Before {
    fn drop(&mut self) {
        set(self.0);
    }
}

/// Runs work whose transfers wait for a device instead of failing.
pub fn insisting<T>(work: impl FnOnce() -> T) -> T {
    let _before = Before(MANNER.replace(Manner { insists: true, ..MANNER.get() }));
    work()
}

/// Runs work for a client who waits.
pub fn serving<T>(client: Client, work: impl FnOnce() -> T) -> T {
    let _before = Before(MANNER.replace(Manner { client: Some(client), ..MANNER.get() }));
    work()
}

/// The client for whom this thread works.
#[must_use]
pub fn served() -> Option<Client> {
    MANNER.get().client
}

/// True if this thread's transfers wait for a device.
#[must_use]
pub fn is_insisting() -> bool {
    MANNER.get().insists
}

/// That of this thread, for those that take over a part of its work.
pub(crate) fn manner() -> Manner {
    MANNER.get()
}

/// For threads that take over a part of another one's work.
pub(crate) fn set(manner: Manner) {
    MANNER.set(manner);
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

    #[test]
    fn jobs_know_for_whom_they_work() {
        let env = Env::real();
        let threads = AtomicU32::new(0);
        let client = Client { is_dying: |thread| thread == 7, thread: 7 };
        let job = || -> Job<'_> {
            Box::new(|| _ = threads.fetch_add(served().map_or(0, |client| client.thread), Ordering::Relaxed))
        };
        serving(client, || env.tasks.run_waiting((0..8).map(|_| job()).collect()));
        assert_eq!(threads.load(Ordering::Relaxed), 56);
        assert!(client.is_gone() && served().is_none());
    }
}
