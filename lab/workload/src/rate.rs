//! How fast threads may go: arrivals on an absolute schedule, and shares of an uncontrolled rate.
//!
//! A [`Schedule`] is one number, the time of the next arrival. A thread takes an arrival by moving
//! that number on with one compare-and-swap, sleeps until its time, and goes. So all threads of a
//! group share one queue of arrivals, as in vdbench, and there is no queue. If threads fall behind,
//! arrivals wait; more than 2,000 of them never do, which is the length of vdbench's queue: what is
//! older is forgotten, as its generator would have been blocked.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::random::Random;
use steadfast_lab_params::Arrival;

/// vdbench's queue.
const BACKLOG: f64 = 2_000.0;
/// Longest sleep before the end of a run is looked for again.
const NAP: Duration = Duration::from_millis(20);

/// Arrivals of one group of threads.
#[derive(Debug)]
pub struct Schedule {
    next_ns: AtomicU64,
    /// (end of the phase in ns, mean distance in ns); the phases repeat.
    phases: Vec<(u64, f64)>,
    arrival: Arrival,
    /// All arrivals of a second come at its beginning.
    spike: bool,
}

impl Schedule {
    /// Rates with their seconds, times `share`.
    pub fn varying(phases: &[(f64, f64)], share: f64, arrival: Arrival) -> Schedule {
        let mut end = 0.0;
        let phases = phases
            .iter()
            .map(|(rate, seconds)| {
                end += seconds * 1e9;
                (end as u64, 1e9 / (rate * share).max(1e-6))
            })
            .collect();
        Schedule { next_ns: AtomicU64::new(0), phases, arrival, spike: false }
    }

    /// With all arrivals of a second at its beginning, or not.
    pub fn spiking(self, spike: bool) -> Schedule {
        Schedule { spike, ..self }
    }

    fn mean_ns(&self, at: u64) -> f64 {
        let period = self.phases.last().map_or(1, |(end, _)| (*end).max(1));
        let at = at % period;
        self.phases.iter().find(|(end, _)| at < *end).map_or(1e9, |(_, mean)| *mean)
    }

    /// Takes the next arrival if it is due, and says when it was. Else the time at which it will
    /// be.
    pub fn take_due(&self, random: &mut Random, now_ns: u64) -> Result<u64, u64> {
        let next = self.next_ns.load(Relaxed);
        let due = if self.spike { next - next % 1_000_000_000 } else { next };
        if due > now_ns {
            return Err(due);
        }
        Ok(self.take(random, now_ns).min(now_ns))
    }

    /// Takes the next arrival; its time, in nanoseconds after the start.
    pub fn take(&self, random: &mut Random, now_ns: u64) -> u64 {
        let mut current = self.next_ns.load(Relaxed);
        loop {
            let mean = self.mean_ns(current);
            let due = current.max(now_ns.saturating_sub((mean * BACKLOG) as u64));
            let step = match self.arrival {
                Arrival::Exponential => -mean * (1.0 - random.unit()).ln(),
                Arrival::Uniform => 2.0 * mean * random.unit(),
                Arrival::Deterministic => mean,
            };
            match self.next_ns.compare_exchange_weak(
                current,
                due.saturating_add(step as u64),
                Relaxed,
                Relaxed,
            ) {
                Ok(_) if self.spike => return due - due % 1_000_000_000,
                Ok(_) => return due,
                Err(other) => current = other,
            }
        }
    }
}

/// Keeps groups of threads in proportion when no rate is asked for: a group that is ahead waits.
#[derive(Debug)]
pub struct Gate {
    lanes: Vec<Lane>,
}

/// A line of the processor's cache for each, or the groups would slow each other down.
#[derive(Debug)]
#[repr(align(128))]
struct Lane {
    issued: AtomicU64,
    left: AtomicBool,
    share: f64,
}

impl Gate {
    /// One lane per group. `None` if there is nothing to balance.
    pub fn new(shares: &[f64]) -> Option<Gate> {
        if shares.len() < 2 {
            return None;
        }
        let lanes = shares
            .iter()
            .map(|share| Lane {
                issued: AtomicU64::new(0),
                left: AtomicBool::new(false),
                share: share.max(1e-9),
            })
            .collect();
        Some(Gate { lanes })
    }

    /// Whether a thread of this group may do one more; if so it is counted.
    pub fn admit(&self, group: usize) -> bool {
        let lane = &self.lanes[group];
        let mine = lane.issued.load(Relaxed) as f64 / lane.share;
        let slowest = self
            .lanes
            .iter()
            .filter(|lane| !lane.left.load(Relaxed))
            .map(|lane| lane.issued.load(Relaxed) as f64 / lane.share)
            .fold(f64::INFINITY, f64::min);
        // A window of some operations, so that groups seldom wait for each other's last.
        if mine > slowest + 200.0 {
            return false;
        }
        lane.issued.fetch_add(1, Relaxed);
        true
    }

    /// A group has no more work: nobody waits for it.
    pub fn leave(&self, group: usize) {
        self.lanes[group].left.store(true, Relaxed);
    }
}

/// Sleeps until `due_ns` after `start`; false if `ended` came first.
pub fn sleep_until(start: Instant, due_ns: u64, ended: impl Fn() -> bool) -> bool {
    let due = start + Duration::from_nanos(due_ns);
    loop {
        if ended() {
            return false;
        }
        let now = Instant::now();
        if now >= due {
            return true;
        }
        std::thread::sleep((due - now).min(NAP));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(rate: f64, arrival: Arrival) -> Schedule {
        Schedule::varying(&[(rate, 1.0)], 1.0, arrival)
    }

    /// Arrivals of ten seconds, never behind.
    fn arrivals(schedule: &Schedule, seconds: u64) -> Vec<u64> {
        let mut random = Random::new(&[5]);
        let mut out = Vec::new();
        loop {
            let due = schedule.take(&mut random, 0);
            if due > seconds * 1_000_000_000 {
                return out;
            }
            out.push(due);
        }
    }

    #[test]
    fn exponential_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() {
        let times = arrivals(&steady(100.0, Arrival::Exponential), 1_000);
        // 100,000 expected, standard deviation 316.
        assert!(times.len().abs_diff(100_000) < 1_600, "{}", times.len());
        let mut counts = vec![0f64; 1_000];
        times.iter().for_each(|t| counts[((t / 1_000_000_000) as usize).min(999)] += 1.0);
        let variance = counts.iter().map(|c| (c - 100.0).powi(2)).sum::<f64>() / 1_000.0;
        assert!((70.0..130.0).contains(&variance), "{variance}");
    }

    #[test]
    fn deterministic_arrivals_keep_their_distance() {
        let times = arrivals(&steady(1_000.0, Arrival::Deterministic), 1);
        assert!(times.windows(2).all(|w| w[1] - w[0] == 1_000_000));
    }

    #[test]
    fn a_variable_schedule_changes_its_rate() {
        let times =
            arrivals(&Schedule::varying(&[(100.0, 2.0), (50.0, 2.0)], 1.0, Arrival::Deterministic), 4);
        let first = times.iter().filter(|t| **t < 2_000_000_000).count();
        assert_eq!(first, 200);
        assert!((times.len() - first).abs_diff(100) <= 1, "{}", times.len() - first);
    }

    #[test]
    fn a_spike_begins_with_its_second() {
        let phases = [(100.0, 1.0), (50.0, 1.0)];
        let schedule = Schedule::varying(&phases, 1.0, Arrival::Deterministic).spiking(true);
        let times = arrivals(&schedule, 3);
        assert!(times.iter().all(|t| t % 1_000_000_000 == 0));
        assert_eq!(times.iter().filter(|t| **t == 0).count(), 100);
        assert_eq!(times.iter().filter(|t| **t == 1_000_000_000).count(), 50);
    }

    #[test]
    fn what_is_older_than_the_queue_is_forgotten() {
        let schedule = steady(1_000.0, Arrival::Deterministic);
        let mut random = Random::new(&[1]);
        schedule.take(&mut random, 0);
        let due = schedule.take(&mut random, 60_000_000_000);
        assert_eq!(due, 58_000_000_000);
    }

    #[test]
    fn a_gate_keeps_groups_in_proportion_until_one_leaves() {
        let gate = Gate::new(&[0.75, 0.25]).unwrap();
        let fast = (0..10_000).filter(|_| gate.admit(0)).count();
        assert!((150..=152).contains(&fast), "{fast}");
        assert!((0..100).all(|_| gate.admit(1)));
        gate.leave(1);
        assert!((0..10_000).all(|_| gate.admit(0)));
    }
}
