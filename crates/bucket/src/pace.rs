//! How fast a store is asked: pauses between tries, requests in flight, second requests for slow
//! reads. Plain state, without a clock: times come in as values.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_env::Random;
use tokio::sync::Notify;

/// Limits of one store's requests.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Tries of one operation before it fails.
    pub tries: u32,
    /// Longest a request without content takes before it is given up.
    pub deadline: Duration,
    /// Slowest transfer that is waited for, added to `deadline`.
    pub bytes_per_second: u64,
    /// Shortest and longest pause before the next try.
    pub pause: (Duration, Duration),
    /// Least and most requests in flight.
    pub window: (u32, u32),
    /// Most second requests for slow reads, in a hundred reads.
    pub hedges_percent: u32,
    /// True if pauses pass on the clock of [`steadfast_env::Env`] instead of in real time: tests
    /// need not wait then.
    pub steps_clock: bool,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            tries: 10,
            deadline: Duration::from_secs(5),
            bytes_per_second: 1_000_000,
            pause: (Duration::from_millis(50), Duration::from_secs(10)),
            window: (8, 256),
            hedges_percent: 3,
            steps_clock: false,
        }
    }
}

impl Tuning {
    /// For a first contact: an operator waits, and most failures are mistakes in the address.
    #[must_use]
    pub fn impatient() -> Tuning {
        Tuning {
            tries: 3,
            pause: (Duration::from_millis(50), Duration::from_millis(500)),
            ..Tuning::default()
        }
    }

    /// Time for one request that moves `bytes`.
    #[must_use]
    pub fn deadline_for(&self, bytes: u64) -> Duration {
        self.deadline + Duration::from_millis(bytes.saturating_mul(1_000) / self.bytes_per_second.max(1))
    }

    /// Pause after `tries` tries: somewhere between the shortest and a limit that doubles, so that
    /// many clients do not come back together.
    pub(crate) fn pause_after(&self, tries: u32, random: &dyn Random) -> Duration {
        let (least, most) = (self.pause.0, self.pause.1.max(self.pause.0));
        let limit = least.saturating_mul(1 << tries.min(16)).min(most);
        let span = u64::try_from((limit - least).as_micros()).unwrap_or(u64::MAX - 1);
        least + Duration::from_micros(random.nonzero_u64() % (span + 1))
    }
}

/// Requests in flight. The limit grows by one for each window of good answers and halves when the
/// store asks for less, as TCP does; once for all requests that were under way at that moment.
#[derive(Debug)]
pub(crate) struct Window {
    state: Mutex<WindowState>,
    bounds: (u32, u32),
    freed: Notify,
}

#[derive(Debug)]
struct WindowState {
    limit: u32,
    in_flight: u32,
    /// Good answers since the limit changed.
    credit: u32,
    /// Counts halvings: a request that began before the last one does not cause another.
    halvings: u64,
}

/// Where a request began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    halvings: u64,
}

/// End of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ending {
    Good,
    Slow,
    Other,
}

impl Window {
    pub(crate) fn new(bounds: (u32, u32)) -> Window {
        let limit = bounds.0.max(1) * 4;
        let state = WindowState { limit: limit.min(bounds.1.max(1)), in_flight: 0, credit: 0, halvings: 0 };
        Window { state: Mutex::new(state), bounds, freed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, WindowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_begin(&self) -> Option<Ticket> {
        let mut state = self.state();
        (state.in_flight < state.limit).then(|| {
            state.in_flight += 1;
            Ticket { halvings: state.halvings }
        })
    }

    pub(crate) async fn begin(&self) -> Ticket {
        loop {
            // Listening begins before looking: a place that is freed in between is not missed.
            let freed = self.freed.notified();
            if let Some(ticket) = self.try_begin() {
                return ticket;
            }
            freed.await;
        }
    }

    pub(crate) fn end(&self, ticket: Ticket, ending: Ending) {
        let mut state = self.state();
        state.in_flight -= 1;
        match ending {
            Ending::Good => {
                state.credit += 1;
                if state.credit >= state.limit {
                    state.credit = 0;
                    state.limit = (state.limit + 1).min(self.bounds.1.max(1));
                }
            }
            Ending::Slow if ticket.halvings == state.halvings => {
                state.halvings += 1;
                state.credit = 0;
                state.limit = (state.limit / 2).max(self.bounds.0.max(1));
            }
            Ending::Slow | Ending::Other => {}
        }
        let free = state.limit.saturating_sub(state.in_flight);
        drop(state);
        if free > 0 {
            self.freed.notify_one();
        }
        if free > 1 {
            // The limit may just have grown: a second waiter may begin too.
            self.freed.notify_one();
        }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.state().limit
    }
}

/// Sizes whose latencies are alike: up to 64 KiB, up to 1 MiB, more.
const SIZES: usize = 3;
/// Latencies remembered for each size.
const REMEMBERED: usize = 128;
/// Latencies needed before anything is judged slow.
const NEEDED: usize = 32;

/// Judges which reads are slow, and how many may be asked for twice.
#[derive(Debug)]
pub(crate) struct Hedge {
    state: Mutex<HedgeState>,
    percent: u64,
}

#[derive(Debug, Default)]
struct HedgeState {
    latencies: [VecDeque<u64>; SIZES],
    reads: u64,
    hedges: u64,
}

fn size_class(bytes: u64) -> usize {
    usize::from(bytes > 64 << 10) + usize::from(bytes > 1 << 20)
}

impl Hedge {
    pub(crate) fn new(percent: u32) -> Hedge {
        Hedge { state: Mutex::default(), percent: percent.into() }
    }

    fn state(&self) -> MutexGuard<'_, HedgeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A read of `bytes` begins: after this time it is slow, one and a half times the 95th
    /// percentile of its size. `None` while too few are known.
    pub(crate) fn begin(&self, bytes: u64) -> Option<Duration> {
        let mut state = self.state();
        state.reads += 1;
        let known = &state.latencies[size_class(bytes)];
        if self.percent == 0 || known.len() < NEEDED {
            return None;
        }
        let mut sorted: Vec<u64> = known.iter().copied().collect();
        let at = sorted.len() * 95 / 100;
        let (_, p95, _) = sorted.select_nth_unstable(at);
        Some(Duration::from_nanos(p95.saturating_add(*p95 / 2)))
    }

    /// True if a slow read may be asked for again; it is counted then.
    pub(crate) fn take(&self) -> bool {
        let mut state = self.state();
        let may = (state.hedges + 1) * 100 <= state.reads * self.percent;
        state.hedges += u64::from(may);
        may
    }

    /// A read of `bytes` took so long.
    pub(crate) fn note(&self, bytes: u64, nanos: u64) {
        let mut state = self.state();
        let known = &mut state.latencies[size_class(bytes)];
        if known.len() == REMEMBERED {
            known.pop_front();
        }
        known.push_back(nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_env::Env;

    #[test]
    fn pauses_double_up_to_a_limit_and_are_spread() {
        let (tuning, env) = (Tuning::default(), Env::simulated(7));
        let mut seen = std::collections::BTreeSet::new();
        for tries in 1..40 {
            let pause = tuning.pause_after(tries, &*env.random);
            let limit = Duration::from_millis(50 << tries.min(10)).min(Duration::from_secs(10));
            assert!(pause >= Duration::from_millis(50) && pause <= limit, "{tries}: {pause:?}");
            seen.insert(pause);
        }
        assert!(seen.len() > 30, "{seen:?}");
        assert_eq!(tuning.deadline_for(8_000_000), Duration::from_secs(13));
    }

    #[test]
    fn a_window_halves_once_for_all_that_were_under_way_and_grows_by_one() {
        let window = Window::new((8, 256));
        assert_eq!(window.limit(), 32);
        let tickets: Vec<Ticket> = (0..32).map(|_| window.try_begin().unwrap()).collect();
        assert!(window.try_begin().is_none());
        tickets.iter().for_each(|&ticket| window.end(ticket, Ending::Slow));
        assert_eq!(window.limit(), 16);
        for _ in 0..10 {
            let ticket = window.try_begin().unwrap();
            window.end(ticket, Ending::Slow);
        }
        assert_eq!(window.limit(), 8);
        for _ in 0..8 {
            let ticket = window.try_begin().unwrap();
            window.end(ticket, Ending::Good);
        }
        assert_eq!(window.limit(), 9);
        for _ in 0..40_000 {
            let ticket = window.try_begin().unwrap();
            window.end(ticket, Ending::Good);
        }
        assert_eq!(window.limit(), 256);
    }

    #[test]
    fn at_most_three_reads_in_a_hundred_are_asked_for_twice() {
        let hedge = Hedge::new(3);
        let mut hedges = 0;
        for read in 0..1_000 {
            let slow = hedge.begin(4_096);
            assert_eq!(slow.is_some(), read >= 32, "{read}");
            if slow.is_some() && hedge.take() {
                hedges += 1;
            }
            hedge.note(4_096, 1_000_000);
        }
        assert_eq!(hedges, 30);
        // The 95th percentile of 1..=100 ms is 96 ms; half of it more is 144 ms.
        let hedge = Hedge::new(3);
        (1..=100).for_each(|ms| hedge.note(4_096, ms * 1_000_000));
        assert_eq!(hedge.begin(4_096), Some(Duration::from_millis(144)));
        assert_eq!(hedge.begin(1 << 20), None, "another size");
    }
}
