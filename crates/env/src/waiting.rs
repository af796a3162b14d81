//! How long threads wait for devices, so that a request can tell where its time went.
//!
//! A request is carried out by one thread. It waits for a store in three ways:
//!
//! | wait | told by |
//! |---|---|
//! | in a call of a device that it makes itself | [`asking`] |
//! | for a thread that reads the same, or a part of it | [`for_read`]; jobs of [`crate::Tasks`] |
//! | for a commit, or a group of the intent log | [`for_commit`], [`Departed`] |
//!
//! The first two are the whole time of the wait. In the third, threads also compress, seal and
//! hash, which is our own work. So only the time counts in which some write or flush was under way:
//! the *write clock* of the process runs as long as one is. With several busy pools it runs for all
//! of them, so a wait for one pool's commit then also counts writes of another.
//!
//! The rest of a request's time is our own processing. Nothing here changes how a thread goes on,
//! so the system's clock serves in every world.
//!
//! It costs two looks at the clock for each call of a device or request, and for each write a lock
//! that is held for a few instructions.

use std::cell::Cell;
use std::time::Instant;

use parking_lot::Mutex;

use crate::insist::is_insisting;

/// Nanoseconds for which a thread waited for devices.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Waited {
    /// For something to be read.
    pub read_ns: u64,
    /// For something to be written or flushed.
    pub write_ns: u64,
}

impl Waited {
    pub(crate) fn since(self, earlier: Waited) -> Waited {
        Waited {
            read_ns: self.read_ns.saturating_sub(earlier.read_ns),
            write_ns: self.write_ns.saturating_sub(earlier.write_ns),
        }
    }

    pub(crate) fn longer(self, other: Waited) -> Waited {
        std::cmp::max_by_key(self, other, |waited| waited.read_ns + waited.write_ns)
    }

    fn plus(self, more: Waited) -> Waited {
        Waited { read_ns: self.read_ns + more.read_ns, write_ns: self.write_ns + more.write_ns }
    }
}

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// From the device.
    Read,
    /// To the device, and flushes.
    Write,
}

thread_local! {
    static WAITED: Cell<Waited> = const { Cell::new(Waited { read_ns: 0, write_ns: 0 }) };
    /// A wait of this thread is being measured: what it contains is not counted again.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs while writes are under way.
#[derive(Debug)]
struct WriteClock(Mutex<Writes>);

#[derive(Debug)]
struct Writes {
    under_way: u32,
    since: Option<Instant>,
    total_ns: u64,
}

static WRITES: WriteClock = WriteClock::new();

impl WriteClock {
    const fn new() -> WriteClock {
        WriteClock(Mutex::new(Writes { under_way: 0, since: None, total_ns: 0 }))
    }

    fn begin(&self, now: Instant) {
        let mut writes = self.0.lock();
        writes.under_way += 1;
        if writes.under_way == 1 {
            writes.since = Some(now);
        }
    }

    fn end(&self, now: Instant) {
        let mut writes = self.0.lock();
        writes.under_way -= 1;
        if writes.under_way == 0
            && let Some(since) = writes.since.take()
        {
            writes.total_ns += ns(since, now);
        }
    }

    fn at(&self, now: Instant) -> u64 {
        let writes = self.0.lock();
        writes.total_ns + writes.since.map_or(0, |since| ns(since, now))
    }
}

/// A write that is under way, even if it panics.
struct UnderWay;

impl UnderWay {
    fn new() -> UnderWay {
        WRITES.begin(Instant::now());
        UnderWay
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        WRITES.end(Instant::now());
    }
}

/// A wait of this thread that is measured, even if it panics.
struct Outermost;

impl Outermost {
    /// `None` within another one.
    fn begin() -> Option<Outermost> {
        (!IS_INSIDE.replace(true)).then_some(Outermost)
    }
}

impl Drop for Outermost {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
    }
}

fn ns(since: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(since).as_nanos()).unwrap_or(u64::MAX)
}

fn elapsed_ns(since: Instant) -> u64 {
    ns(since, Instant::now())
}

fn add(more: Waited) {
    WAITED.set(WAITED.get().plus(more));
}

/// Makes a call of a device or a register. Reads of a thread that commits are part of the commit:
/// the write clock runs for them, too.
pub fn asking<T>(way: Way, call: impl FnOnce() -> T) -> T {
    let is_of_commit = way == Way::Write || is_insisting();
    let _under_way = is_of_commit.then(UnderWay::new);
    let Some(_outermost) = Outermost::begin() else { return call() };
    let began = Instant::now();
    let answer = call();
    let waited_ns = elapsed_ns(began);
    add(match is_of_commit {
        true => Waited { write_ns: waited_ns, ..Waited::default() },
        false => Waited { read_ns: waited_ns, ..Waited::default() },
    });
    answer
}

/// Waits for another thread that reads from a device.
pub fn for_read<T>(wait: impl FnOnce() -> T) -> T {
    let Some(_outermost) = Outermost::begin() else { return wait() };
    let began = Instant::now();
    let answer = wait();
    add(Waited { read_ns: elapsed_ns(began), ..Waited::default() });
    answer
}

/// Waits until other threads have made something durable, or have room again because they did.
pub fn for_commit<T>(wait: impl FnOnce() -> T) -> T {
    let Some(_outermost) = Outermost::begin() else { return wait() };
    let began_ns = WRITES.at(Instant::now());
    let answer = wait();
    add(Waited { write_ns: WRITES.at(Instant::now()).saturating_sub(began_ns), ..Waited::default() });
    answer
}

/// A thread shared work out and, since `drawn`, waited for those who helped.
pub(crate) fn joined(drawn: Instant, longest: Waited) {
    if longest != Waited::default() && !IS_INSIDE.get() {
        add(share_of(elapsed_ns(drawn), longest));
    }
}

/// The share of a wait for helpers that was a wait for devices: as far as the helper did so who
/// waited for them longest.
fn share_of(joined_ns: u64, longest: Waited) -> Waited {
    let read_ns = longest.read_ns.min(joined_ns);
    Waited { read_ns, write_ns: longest.write_ns.min(joined_ns - read_ns) }
}

/// Waits of this thread since it began.
pub(crate) fn waited() -> Waited {
    WAITED.get()
}

/// Where the time of a request went.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Split {
    /// All of it.
    pub total_ns: u64,
    /// Waiting for devices.
    pub waited: Waited,
}

impl Split {
    /// Our own processing: what is left.
    #[must_use]
    pub fn own_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.waited.read_ns).saturating_sub(self.waited.write_ns)
    }

    /// True if nothing had to be read from a device.
    #[must_use]
    pub fn is_hot(&self) -> bool {
        self.waited.read_ns == 0
    }
}

/// A request that is being carried out by this thread.
#[derive(Debug)]
pub struct Span {
    began: Instant,
    before: Waited,
    /// A span belongs to its thread.
    thread: std::marker::PhantomData<*const ()>,
}

impl Span {
    /// It begins now.
    #[must_use]
    pub fn begin() -> Span {
        Span::since(Instant::now())
    }

    /// It came then and waited for a thread until now.
    #[must_use]
    pub fn since(came: Instant) -> Span {
        Span { began: came, before: waited(), thread: std::marker::PhantomData }
    }

    /// Where its time went until now.
    #[must_use]
    pub fn split(&self) -> Split {
        Split { total_ns: elapsed_ns(self.began), waited: waited().since(self.before) }
    }

    /// Leaves its thread and waits for a commit, or for a group of the intent log.
    #[must_use]
    pub fn depart(self) -> Departed {
        let waited = waited().since(self.before);
        Departed { began: self.began, waited, left_ns: WRITES.at(Instant::now()) }
    }
}

/// A request without a thread, that waits until something is durable.
#[derive(Clone, Copy, Debug)]
pub struct Departed {
    began: Instant,
    waited: Waited,
    /// The write clock when it left.
    left_ns: u64,
}

impl Departed {
    /// Where its time went until now.
    #[must_use]
    pub fn split(&self) -> Split {
        let write_ns = WRITES.at(Instant::now()).saturating_sub(self.left_ns);
        let waited = self.waited.plus(Waited { write_ns, ..Waited::default() });
        Split { total_ns: elapsed_ns(self.began), waited }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Env, Job};
    use std::time::Duration;

    /// Lasts as long as the clock needs to move.
    fn moment() {
        let began = Instant::now();
        while began.elapsed().is_zero() {}
    }

    #[test]
    fn a_call_counts_once_and_by_its_way() {
        let span = Span::begin();
        assert!(span.split().is_hot());
        for_read(|| asking(Way::Read, moment));
        let split = span.split();
        assert!((1..=split.total_ns).contains(&split.waited.read_ns));
        assert!(!split.is_hot() && split.waited.write_ns == 0);
        asking(Way::Write, moment);
        let written = span.split();
        assert!(written.waited.write_ns > 0);
        assert_eq!(written.waited.read_ns, split.waited.read_ns);
        let waited_ns = written.waited.read_ns + written.waited.write_ns;
        assert_eq!(written.own_ns() + waited_ns, written.total_ns);
        // A read of a commit is part of what its waiters wait for.
        crate::insist::insisting(|| asking(Way::Read, moment));
        assert_eq!(span.split().waited.read_ns, split.waited.read_ns);
        assert!(span.split().waited.write_ns > written.waited.write_ns);
    }

    #[test]
    fn the_write_clock_runs_while_any_write_does() {
        let clock = WriteClock::new();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let seconds = |ns: u64| ns / 1_000_000_000;
        assert_eq!(clock.at(at(1)), 0);
        clock.begin(at(1));
        clock.begin(at(2));
        clock.end(at(4));
        assert_eq!(seconds(clock.at(at(5))), 4);
        clock.end(at(6));
        assert_eq!(seconds(clock.at(at(9))), 5, "nothing is written");
        clock.begin(at(10));
        assert_eq!(seconds(clock.at(at(12))), 7);
    }

    #[test]
    fn a_wait_for_a_commit_counts_the_writes_under_way() {
        let write = || std::thread::scope(|scope| _ = scope.spawn(|| asking(Way::Write, moment)));
        let span = Span::begin();
        for_commit(write);
        let split = span.split();
        assert!(split.waited.write_ns > 0 && split.is_hot());
        let departed = span.depart();
        let before = departed.split();
        assert!(before.waited.write_ns >= split.waited.write_ns);
        write();
        let after = departed.split();
        assert!(after.waited.write_ns > before.waited.write_ns);
    }

    #[test]
    fn helpers_count_as_far_as_they_waited_for_devices() {
        let waited = |read_ns, write_ns| Waited { read_ns, write_ns };
        assert_eq!(share_of(10, waited(4, 3)), waited(4, 3));
        assert_eq!(share_of(5, waited(4, 3)), waited(4, 1));
        assert_eq!(share_of(3, waited(4, 3)), waited(3, 0));
        assert_eq!(waited(4, 3).longer(waited(1, 2)), waited(4, 3));
        let env = Env::real();
        let span = Span::begin();
        let job = || -> Job<'_> { Box::new(|| asking(Way::Read, moment)) };
        env.tasks.run_waiting((0..4).map(|_| job()).collect());
        assert!((1..=span.split().total_ns).contains(&span.split().waited.read_ns));
        // Jobs that only compute are our own work, whoever does them.
        let span = Span::begin();
        let job = || -> Job<'_> { Box::new(moment) };
        env.tasks.run_waiting((0..4).map(|_| job()).collect());
        assert_eq!(span.split().waited, Waited::default());
    }

    #[test]
    fn a_thread_that_panicked_in_a_wait_goes_on_counting() {
        let panics = || asking(Way::Write, || panic!("a device that panics"));
        std::panic::catch_unwind(panics).expect_err("it panics");
        let span = Span::begin();
        asking(Way::Read, moment);
        assert!(span.split().waited.read_ns > 0);
    }
}
