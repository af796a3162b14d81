//! Time, randomness and tasks, passed in as values, so that a simulation can own them.
//!
//! Below the fronts nothing else reads a clock, draws a random number or starts a thread.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A job handed to [`Tasks`].
pub type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Wall time and monotonic time.
pub trait Clock: Send + Sync {
    /// Nanoseconds since 1970-01-01 UTC; what files are stamped with.
    fn wall_ns(&self) -> i128;
    /// Wall time as of the system's last clock tick, with which the kernel stamps files
    /// (`CLOCK_REALTIME_COARSE`).
    fn tick_ns(&self) -> i128 {
        self.wall_ns()
    }
    /// Nanoseconds of a clock that never goes back; what is measured with.
    fn monotonic_ns(&self) -> u64;
    /// Lets time pass.
    fn sleep(&self, duration: Duration);
}

/// Source of random bytes fit for keys.
pub trait Random: Send + Sync {
    /// Fills `out`.
    fn fill(&self, out: &mut [u8]);

    /// A random number; never 0.
    fn nonzero_u64(&self) -> u64 {
        loop {
            let mut bytes = [0; 8];
            self.fill(&mut bytes);
            let value = u64::from_le_bytes(bytes);
            if value != 0 {
                return value;
            }
        }
    }
}

/// Something started in the background.
pub trait TaskHandle: Send {
    /// Waits until it has ended. True if it ended without a panic.
    fn join(self: Box<Self>) -> bool;
}

/// Starts work on other processors.
pub trait Tasks: Send + Sync {
    /// Starts a long-lived task under a name.
    fn spawn(&self, name: &str, job: Job<'static>) -> Box<dyn TaskHandle>;
    /// Runs all jobs, in parallel where there is something to gain, and returns when all have
    /// ended. A panic in a job is passed on to the caller.
    fn run_all<'a>(&self, jobs: Vec<Job<'a>>);
    /// The same for jobs that mostly wait for devices: all at once, in a thread each, where
    /// anything runs beside anything.
    fn run_waiting<'a>(&self, jobs: Vec<Job<'a>>) {
        self.run_all(jobs);
    }
    /// The same for jobs that own what they need: on threads that stay for the next ones, so that
    /// none has to be started for them. All that the jobs own is gone when this returns.
    fn run_owned(&self, jobs: Vec<Job<'static>>) {
        self.run_waiting(jobs);
    }
    /// True if jobs of `run_waiting`, and tasks that wait for devices, wait beside each other.
    /// False in a world that repeats.
    fn waits_beside(&self) -> bool {
        false
    }
    /// How many jobs it pays to hand to `run_all` at once.
    fn parallelism(&self) -> usize;
    /// True if a spawned task runs beside its spawner. If it is false, nothing is spawned: a caller
    /// that waits for the work of a long-lived task does a step of it itself.
    fn is_concurrent(&self) -> bool {
        true
    }
    /// A bug that is planted in this world. Only the simulator's own tasks name one; no other crate
    /// may (`xtask tidy`), so that nothing in a product can.
    fn planted(&self) -> Option<Bug> {
        None
    }
}

/// The world below the fronts.
#[derive(Clone)]
pub struct Env {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
    /// Tasks.
    pub tasks: Arc<dyn Tasks>,
}

impl Env {
    /// The real world: the system's clocks, the kernel's random numbers, threads.
    #[must_use]
    pub fn real() -> Env {
        let parallelism = std::thread::available_parallelism().map_or(1, usize::from);
        Env {
            clock: Arc::new(RealClock { start: Instant::now() }),
            random: Arc::new(RealRandom),
            tasks: Arc::new(Threads { parallelism, real: true, crew: Crew::default() }),
        }
    }

    /// A world that repeats: time that passes only when someone sleeps or looks, random numbers
    /// from `seed` (not fit for real keys), jobs of `run_all` one after another in order.
    #[must_use]
    pub fn seeded(seed: u64) -> Env {
        Env {
            clock: Arc::new(SteppedClock::new(true)),
            random: Arc::new(SeededRandom { state: AtomicU64::new(seed) }),
            tasks: Arc::new(Threads { parallelism: 1, real: false, crew: Crew::default() }),
        }
    }

    /// As [`Env::seeded`], and without tasks: everything happens in the caller's thread, so that
    /// all of a run follows from the seed and from what is called. Starting a task is a bug here,
    /// and panics.
    #[must_use]
    pub fn simulated(seed: u64) -> Env {
        let clock = Arc::new(SteppedClock::new(false));
        Env { clock, tasks: Arc::new(NoTasks), ..Env::seeded(seed) }
    }

    /// True if `bug` is planted in this world ([`Tasks::planted`]). Always false without debug
    /// assertions, so the branch behind it is not compiled into a release build.
    #[must_use]
    #[inline]
    pub fn has_bug(&self, bug: Bug) -> bool {
        Bug::COMPILED && self.tasks.planted() == Some(bug)
    }
}

/// One thread, the caller's.
struct NoTasks;

impl Tasks for NoTasks {
    fn spawn(&self, name: &str, _: Job<'static>) -> Box<dyn TaskHandle> {
        panic!("the task '{name}' is started in a world without tasks");
    }

    fn run_all<'a>(&self, jobs: Vec<Job<'a>>) {
        jobs.into_iter().for_each(|job| job());
    }

    fn parallelism(&self) -> usize {
        1
    }

    fn is_concurrent(&self) -> bool {
        false
    }
}

pub mod brief;
mod bug;
mod crew;
pub mod insist;
pub mod requests;
pub mod waiting;
pub use bug::Bug;
use crew::Crew;

struct RealClock {
    start: Instant,
}

impl Clock for RealClock {
    fn wall_ns(&self) -> i128 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i128::try_from(after.as_nanos()).unwrap_or(i128::MAX),
            Err(before) => -i128::try_from(before.duration().as_nanos()).unwrap_or(i128::MAX),
        }
    }

    fn tick_ns(&self) -> i128 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

struct RealRandom;

impl Random for RealRandom {
    fn fill(&self, out: &mut [u8]) {
        getrandom::fill(out).expect("the kernel gives random bytes");
    }
}

struct Threads {
    parallelism: usize,
    /// False in a world that repeats.
    real: bool,
    crew: Crew,
}

struct Thread(std::thread::JoinHandle<()>);

impl TaskHandle for Thread {
    fn join(self: Box<Self>) -> bool {
        self.0.join().is_ok()
    }
}

impl Tasks for Threads {
    fn spawn(&self, name: &str, job: Job<'static>) -> Box<dyn TaskHandle> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(job);
        Box::new(Thread(thread.expect("the system starts a thread")))
    }

    fn run_all<'a>(&self, jobs: Vec<Job<'a>>) {
        if self.parallelism <= 1 || jobs.len() <= 1 {
            for job in jobs {
                job();
            }
            return;
        }
        let workers = self.parallelism.min(jobs.len());
        share(jobs, workers);
    }

    fn run_waiting<'a>(&self, jobs: Vec<Job<'a>>) {
        if !self.real {
            return self.run_all(jobs);
        }
        let workers = jobs.len();
        share(jobs, workers);
    }

    fn run_owned(&self, jobs: Vec<Job<'static>>) {
        if self.real && jobs.len() > 1 { self.crew.run(jobs) } else { self.run_all(jobs) }
    }

    fn waits_beside(&self) -> bool {
        self.real
    }

    fn parallelism(&self) -> usize {
        self.parallelism
    }
}

/// Jobs drawn from a list by so many threads, of which the caller is one.
fn share(mut jobs: Vec<Job<'_>>, workers: usize) {
    jobs.reverse();
    let queue = std::sync::Mutex::new(jobs);
    let manner = insist::manner();
    let draw = || {
        insist::set(manner);
        loop {
            let job = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop();
            match job {
                Some(job) => job(),
                None => return,
            }
        }
    };
    let longest = std::sync::Mutex::new(waiting::Waited::default());
    let help = || {
        draw();
        // A thread of its own: all that it waited, it waited for this.
        let waited = waiting::waited();
        let mut longest = longest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *longest = longest.longer(waited);
    };
    let mut drawn = Instant::now();
    std::thread::scope(|scope| {
        for _ in 1..workers {
            // Where the system starts no more threads, those that there are do all.
            if std::thread::Builder::new().spawn_scoped(scope, help).is_err() {
                break;
            }
        }
        draw();
        drawn = Instant::now();
    });
    let longest = longest.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    waiting::joined(drawn, longest);
}

struct SteppedClock {
    now_ns: AtomicU64,
    /// Other threads may wait for the one that sleeps. Where there are none, giving way would hand
    /// the processor to other programs, each time for a slice of the scheduler.
    has_threads: bool,
}

impl SteppedClock {
    fn new(has_threads: bool) -> SteppedClock {
        SteppedClock { now_ns: AtomicU64::new(1), has_threads }
    }
}

impl Clock for SteppedClock {
    fn wall_ns(&self) -> i128 {
        // 2026-01-01 in nanoseconds, plus what has passed.
        1_767_225_600_000_000_000 + i128::from(self.monotonic_ns())
    }

    fn monotonic_ns(&self) -> u64 {
        self.now_ns.fetch_add(1, Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) {
        let step = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4);
        self.now_ns.fetch_add(step, Ordering::Relaxed);
        if self.has_threads {
            std::thread::yield_now();
        }
    }
}

struct SeededRandom {
    state: AtomicU64,
}

impl Random for SeededRandom {
    fn fill(&self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            // SplitMix64 (Steele, Lea, Flood 2014).
            let mut z = self.state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            let bytes = z.to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_seed_repeats() {
        let draw = |seed| {
            let mut out = [0; 20];
            Env::seeded(seed).random.fill(&mut out);
            out
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn no_world_of_this_room_has_a_bug() {
        for env in [Env::real(), Env::seeded(1), Env::simulated(1)] {
            assert!(Bug::ALL.iter().all(|bug| !env.has_bug(*bug)));
        }
    }

    #[test]
    fn jobs_that_wait_run_all_at_once() {
        let barrier = std::sync::Barrier::new(16);
        let barrier = &barrier;
        let wait = || -> Job<'_> { Box::new(move || _ = barrier.wait()) };
        Env::real().tasks.run_waiting((0..16).map(|_| wait()).collect());
    }

    #[test]
    fn every_job_runs_once() {
        let env = Env::real();
        let count = AtomicUsize::new(0);
        let count = &count;
        env.tasks.run_all(
            (0..100)
                .map(|_| -> Job<'_> {
                    Box::new(move || {
                        count.fetch_add(1, Ordering::Relaxed);
                    })
                })
                .collect(),
        );
        assert_eq!(count.load(Ordering::Relaxed), 100);
    }
}
