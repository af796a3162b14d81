//! A run: which workloads are tried, by how many workers, and what is told of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use steadfast_env::{Bug, Env, Job};

use crate::draw::Draw;
use crate::explore::{Broken, Counts, Explorer};
use crate::workload::{Number, Set};
use crate::world::SETTINGS;

/// Seeds that are run again every time.
pub const KEPT: &str = include_str!("../seeds.txt");

/// The kept seeds.
///
/// # Panics
/// If a line of the file is no number.
#[must_use]
pub fn kept() -> Vec<Number> {
    let lines = KEPT.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    let number = |line| parse(line).expect("a line of seeds.txt is a number");
    lines.filter(|line| !line.is_empty()).map(number).collect()
}

/// A number as it is printed, or decimal.
#[must_use]
pub fn parse(text: &str) -> Option<Number> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.ok().map(Number)
}

/// What a run is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Time it may take, by the clock.
    pub seconds: u64,
    /// States after which it ends.
    pub states: u64,
    /// Which sampled workloads: another number, other ones.
    pub from: u64,
    /// Workers.
    pub workers: usize,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// What was done.
    pub counts: Counts,
    /// Workloads by set.
    pub sets: BTreeMap<Set, u64>,
    /// What is not as it must be.
    pub broken: Vec<Broken>,
    /// Processor time of all workers, in nanoseconds.
    pub cpu_ns: u64,
    /// Time by the clock, in nanoseconds.
    pub wall_ns: u64,
}

/// Broken states after which a run has told enough.
const BROKEN_MAX: usize = 10;

fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The workload that comes at a turn: all of one change on every setting, then samples of the others.
fn workload(turn: u64, from: u64) -> Number {
    let one = Set::One.size().expect("bounded");
    let settings = SETTINGS.len() as u64;
    if turn < one * settings {
        return Number::new(Set::One, usize::try_from(turn / one).expect("small"), turn % one);
    }
    let mut draw = Draw(turn ^ from.rotate_left(32));
    let setting = draw.below(SETTINGS.len());
    let index = draw.word();
    let set = match turn % 16 {
        0 => Set::Many,
        1 | 2 => Set::Faulty,
        3..=6 => Set::Few,
        _ => Set::Two,
    };
    Number::new(set, setting, index)
}

/// Explorers of one worker, made as they are needed.
#[derive(Default)]
struct Worker {
    explorers: BTreeMap<usize, Explorer>,
}

impl Worker {
    fn explore(&mut self, number: Number) -> (Counts, Result<(), Box<Broken>>) {
        let setting = number.setting();
        let explorer = match self.explorers.entry(setting) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => match Explorer::new(setting, None) {
                Ok(explorer) => entry.insert(explorer),
                Err(what) => {
                    let broken = Broken { number, moment: None, fates: Vec::new(), what };
                    return (Counts::default(), Err(Box::new(broken)));
                }
            },
        };
        let result = explorer.explore(number);
        (std::mem::take(&mut explorer.counts), result)
    }
}

/// Runs one workload alone.
#[must_use]
pub fn replay(number: Number) -> Report {
    let env = Env::real();
    let (began, cpu) = (env.clock.monotonic_ns(), thread_ns());
    let (counts, result) = Worker::default().explore(number);
    Report {
        counts,
        sets: BTreeMap::from([(number.set(), 1)]),
        broken: result.err().map(|broken| *broken).into_iter().collect(),
        cpu_ns: thread_ns() - cpu,
        wall_ns: env.clock.monotonic_ns() - began,
    }
}

/// Runs kept seeds, then workloads until time or states are used up. `progress` is told now and then how far it is.
pub fn run(plan: &Plan, progress: &(dyn Fn(&Counts, usize) + Sync)) -> Report {
    let env = Env::real();
    let began = env.clock.monotonic_ns();
    let (turn, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let report = Mutex::new(Report::default());
    let told_ns = AtomicU64::new(began);
    let kept = kept();
    let work = || {
        let cpu = thread_ns();
        let mut worker = Worker::default();
        while !stop.load(Ordering::Relaxed) {
            let turn = turn.fetch_add(1, Ordering::Relaxed);
            let number = match usize::try_from(turn).ok().and_then(|at| kept.get(at)) {
                Some(number) => *number,
                None => workload(turn - kept.len() as u64, plan.from),
            };
            let (counts, result) = worker.explore(number);
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            report.counts.add(&counts);
            *report.sets.entry(number.set()).or_default() += 1;
            report.broken.extend(result.err().map(|broken| *broken));
            let now = env.clock.monotonic_ns();
            let over = now - began >= plan.seconds.saturating_mul(1_000_000_000)
                || report.counts.states >= plan.states
                || report.broken.len() >= BROKEN_MAX;
            stop.fetch_or(over, Ordering::Relaxed);
            if now - told_ns.load(Ordering::Relaxed) >= 5_000_000_000 {
                told_ns.store(now, Ordering::Relaxed);
                progress(&report.counts, report.broken.len());
            }
        }
        report.lock().unwrap_or_else(PoisonError::into_inner).cpu_ns += thread_ns() - cpu;
    };
    let jobs: Vec<Job<'_>> = (0..plan.workers.max(1)).map(|_| -> Job<'_> { Box::new(work) }).collect();
    env.tasks.run_all(jobs);
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.wall_ns = env.clock.monotonic_ns() - began;
    report
}

/// What finds a planted bug.
#[derive(Debug)]
pub struct Caught {
    /// The bug.
    pub bug: Bug,
    /// What was seen, if anything was.
    pub broken: Option<Broken>,
    /// Workloads run until then.
    pub workloads: u64,
}

/// Plants a bug and looks for it in all workloads of one change, then in some of two, on the first setting.
#[must_use]
pub fn hunt(bug: Bug, workloads: u64) -> Caught {
    let mut explorer = match Explorer::new(0, Some(bug)) {
        Ok(explorer) => explorer,
        Err(what) => {
            let broken = Broken { number: Number(0), moment: None, fates: Vec::new(), what };
            return Caught { bug, broken: Some(broken), workloads: 0 };
        }
    };
    let mut draw = Draw(0xb06);
    for turn in 0..workloads {
        // Spread over the changes: neighbours differ only in how they are made durable.
        let number = match turn % 3 {
            0 => Number::new(Set::One, 0, turn / 3 * 37),
            1 => Number::new(Set::Few, 0, draw.word()),
            _ => Number::new(Set::Faulty, 0, draw.word()),
        };
        if let Err(broken) = explorer.explore(number) {
            return Caught { bug, broken: Some(*broken), workloads: turn + 1 };
        }
    }
    Caught { bug, broken: None, workloads }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_printed() {
        let number = Number::new(Set::Two, 1, 77);
        assert_eq!(parse(&number.to_string()), Some(number));
        assert_eq!(parse("12"), Some(Number(12)));
        assert_eq!(parse("0xg"), None);
        assert!(!kept().is_empty());
    }

    #[test]
    fn a_run_begins_with_every_change_on_every_setting() {
        let one = Set::One.size().expect("bounded");
        let all: std::collections::BTreeSet<Number> =
            (0..one * SETTINGS.len() as u64).map(|turn| workload(turn, 9)).collect();
        assert_eq!(all.len() as u64, one * SETTINGS.len() as u64);
        assert_ne!(workload(100_000, 1), workload(100_000, 2));
    }
}
