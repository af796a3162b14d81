//! A run: which workloads are tried, by how many workers, and what is told of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use steadfast_device::Operation;
use steadfast_env::{Bug, Env, Job};
use steadfast_pool::Redundancy;

use crate::disk::Effect;
use crate::draw::Draw;
use crate::explore::{Broken, Counts, Explorer};
use crate::mirror_faults;
use crate::workload::{Number, Set};
use crate::world::{SETTINGS, Setting};

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

/// Plan of a run.
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
    /// The only setting, if it shall be one.
    pub setting: Option<usize>,
    /// Which workloads.
    pub choice: Choice,
}

/// Which workloads a run is of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Choice {
    /// Kept seeds, all of one change and samples of the others, mixed.
    Mixed,
    /// All of two changes: part `part` of `of`, from chunk `at` on.
    Two {
        /// Which part, from 0.
        part: u64,
        /// How many there are.
        of: u64,
        /// First chunk: all workloads that begin with one change, made durable in one way, are a
        /// chunk.
        at: u64,
    },
    /// Workloads with a fault.
    Faulty,
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Counters.
    pub counts: Counts,
    /// Workloads by set.
    pub sets: BTreeMap<Set, u64>,
    /// States and workloads by setting.
    pub settings: BTreeMap<usize, (u64, u64)>,
    /// Claims that do not hold.
    pub broken: Vec<Broken>,
    /// Of all workloads of two changes: the first chunk that is not done, and the last one of the
    /// part plus one.
    pub chunks: Option<(u64, u64)>,
    /// The workload that took most processor time, in nanoseconds, with its counters.
    pub longest: Option<(u64, Number, Counts)>,
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

/// Coprime to the number of workloads of one change: neighbours differ only in how they are made
/// durable.
const STRIDE: u64 = 37;

/// The settings that turns take, in turn. Those whose states are dear come less often; the full
/// one's workloads a test runs without cuts.
fn cycle(only: Option<usize>) -> Vec<usize> {
    if let Some(only) = only {
        return vec![only];
    }
    let cheap = || (0..SETTINGS.len()).filter(|&at| !SETTINGS[at].full);
    let dear = (0..SETTINGS.len()).filter(|&at| SETTINGS[at].full && !SETTINGS[at].brim);
    (0..4).flat_map(|_| cheap()).chain(dear).collect()
}

/// The workload that comes at a turn. Of four turns three go through all of one change, as long as
/// there are some left; the others sample.
fn workload(turn: u64, plan: &Plan) -> Number {
    let cycle = cycle(plan.setting);
    let length = cycle.len() as u64;
    let at = |turn: u64| cycle[usize::try_from(turn % length).expect("small")];
    let one = Set::One.size().expect("bounded");
    let ones = turn / 4 * 3 + turn % 4;
    if turn % 4 < 3 && plan.choice == Choice::Mixed && ones < one * length {
        return Number::new(Set::One, at(ones), ones / length * STRIDE % one);
    }
    let mut draw = Draw(turn ^ plan.from.rotate_left(32));
    let setting = at(draw.word() >> 8);
    let index = draw.word();
    let set = match draw.below(16) {
        _ if plan.choice == Choice::Faulty => Set::Faulty,
        0 => Set::Many,
        1..=4 => Set::Faulty,
        5..=8 => Set::Few,
        _ => Set::Two,
    };
    Number::new(set, setting, index)
}

/// Workloads of a chunk: they begin with the same change, and so share states.
fn chunk(plan: &Plan, number: u64) -> Vec<Number> {
    let one = Set::One.size().expect("bounded");
    let setting = plan.setting.unwrap_or_else(|| usize::try_from(number / one).expect("small"));
    (0..one).map(|second| Number::new(Set::Two, setting, number % one * one + second)).collect()
}

/// Source of the workers' work.
struct Source<'a> {
    plan: &'a Plan,
    kept: Vec<Number>,
    next: u64,
    end: u64,
    under_way: BTreeSet<u64>,
}

impl Source<'_> {
    fn new(plan: &Plan) -> Source<'_> {
        let (next, end) = match plan.choice {
            Choice::Two { part, of, at } => {
                let settings = plan.setting.map_or(SETTINGS.len() as u64, |_| 1);
                let all = settings * Set::One.size().expect("bounded");
                ((all * part / of).max(at), all * (part + 1) / of)
            }
            Choice::Mixed | Choice::Faulty => (0, u64::MAX),
        };
        let kept = if plan.choice == Choice::Mixed && plan.setting.is_none() { kept() } else { Vec::new() };
        Source { plan, kept, next, end, under_way: BTreeSet::new() }
    }

    /// The next workloads, and their number.
    fn take(&mut self) -> Option<(u64, Vec<Number>)> {
        if self.next >= self.end {
            return None;
        }
        let turn = self.next;
        self.next += 1;
        self.under_way.insert(turn);
        let kept = self.kept.len() as u64;
        let numbers = match self.plan.choice {
            Choice::Two { .. } => chunk(self.plan, turn),
            _ if turn < kept => vec![self.kept[usize::try_from(turn).expect("few")]],
            _ => vec![workload(turn - kept, self.plan)],
        };
        Some((turn, numbers))
    }

    /// First chunk that is not done, and where they end.
    fn chunks(&self) -> Option<(u64, u64)> {
        let first = self.under_way.first().copied().unwrap_or(self.next);
        matches!(self.plan.choice, Choice::Two { .. }).then_some((first, self.end))
    }
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
    let mut report = Report::default();
    report.note(number, thread_ns() - cpu, &counts, result);
    (report.cpu_ns, report.wall_ns) = (thread_ns() - cpu, env.clock.monotonic_ns() - began);
    report
}

/// Runs workloads until time or states are used up, or there are no more. `progress` is told now
/// and then how far it is.
pub fn run(plan: &Plan, progress: &(dyn Fn(&Report) + Sync)) -> Report {
    let env = Env::real();
    let began = env.clock.monotonic_ns();
    let source = Mutex::new(Source::new(plan));
    let stop = AtomicBool::new(false);
    let report = Mutex::new(Report::default());
    let told_ns = AtomicU64::new(began);
    let work = || {
        let cpu = thread_ns();
        let mut worker = Worker::default();
        while !stop.load(Ordering::Relaxed) {
            let Some((turn, numbers)) = lock(&source).take() else { break };
            let mut left = numbers.len();
            for number in numbers {
                let before = thread_ns();
                let (counts, result) = worker.explore(number);
                left -= 1;
                let mut report = lock(&report);
                report.note(number, thread_ns() - before, &counts, result);
                let now = env.clock.monotonic_ns();
                report.wall_ns = now - began;
                let over = report.wall_ns >= plan.seconds.saturating_mul(1_000_000_000)
                    || report.counts.states >= plan.states
                    || report.broken.len() >= BROKEN_MAX;
                stop.fetch_or(over, Ordering::Relaxed);
                if now - told_ns.load(Ordering::Relaxed) >= 5_000_000_000 {
                    told_ns.store(now, Ordering::Relaxed);
                    report.chunks = lock(&source).chunks();
                    progress(&report);
                }
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            if left == 0 {
                lock(&source).under_way.remove(&turn);
            }
        }
        lock(&report).cpu_ns += thread_ns() - cpu;
    };
    let jobs: Vec<Job<'_>> = (0..plan.workers.max(1)).map(|_| -> Job<'_> { Box::new(work) }).collect();
    env.tasks.run_all(jobs);
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.chunks = lock(&source).chunks();
    report.wall_ns = env.clock.monotonic_ns() - began;
    report
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Report {
    fn note(&mut self, number: Number, cpu_ns: u64, counts: &Counts, result: Result<(), Box<Broken>>) {
        self.counts.add(counts);
        if self.longest.as_ref().is_none_or(|(longest, ..)| cpu_ns > *longest) {
            self.longest = Some((cpu_ns, number, counts.clone()));
        }
        *self.sets.entry(number.set()).or_default() += 1;
        let (states, workloads) = self.settings.entry(number.setting()).or_default();
        *states += counts.states;
        *workloads += 1;
        self.broken.extend(result.err().map(|broken| *broken));
    }
}

/// Finds of a planted bug.
#[derive(Debug)]
pub struct Caught {
    /// The bug.
    pub bug: Bug,
    /// The broken claim, if one was found.
    pub broken: Option<Broken>,
    /// Workloads run until then.
    pub workloads: u64,
    /// States judged until then.
    pub states: u64,
}

/// The setting on which a bug is looked for: one that has what it is in.
#[must_use]
pub fn habitat(bug: Bug) -> usize {
    let is_home = |setting: &Setting| match bug {
        Bug::LogNotFlushed
        | Bug::LogErrorSwallowed
        | Bug::LogReplayedTwice
        | Bug::LogTornAccepted
        | Bug::ReplayErasesLog
        | Bug::NamesNotLogged => setting.props.contains(&("journal", "ordered")),
        Bug::AnchorEarly => setting.anchored,
        Bug::LogNotVouched => setting.anchored && setting.props.contains(&("journal", "ordered")),
        Bug::RelocationLost => setting.full && !setting.brim,
        Bug::OthersUnread => setting.redundancy == Redundancy::Raidz(2),
        Bug::ReferenceNotCounted => setting.props.iter().any(|(name, _)| *name == "dedup"),
        Bug::BlockUnlisted => setting.sealed,
        _ => true,
    };
    SETTINGS.iter().position(is_home).expect("every bug has a setting")
}

/// Fault that a device needs for a bug to show, if any.
fn needs_fault(bug: Bug) -> Option<(Operation, Effect)> {
    match bug {
        Bug::FlushErrorSwallowed => Some((Operation::Flush, Effect::Fail)),
        Bug::LogErrorSwallowed => Some((Operation::Write, Effect::Fail)),
        Bug::HashIgnored | Bug::OthersUnread => Some((Operation::Write, Effect::Rot)),
        _ => None,
    }
}

/// The next workload with a fault that a bug needs, if it needs one.
fn faulty(bug: Bug, home: usize, draw: &mut Draw) -> Number {
    loop {
        let number = Number::new(Set::Faulty, home, draw.word());
        let has = number.fault().map(|(_, fault)| (fault.operation, fault.effect));
        if has == needs_fault(bug) {
            return number;
        }
    }
}

/// States of each history of log devices that are judged for a bug.
const HUNTED_STATES: usize = 200;

/// Plants a bug and looks for it in workloads of one change, of some and with faults, on the
/// setting that has what it is in.
#[must_use]
pub fn hunt(bug: Bug, workloads: u64) -> Caught {
    if bug == Bug::LogSideSwallowed {
        // It shows where one side alone is left.
        let (what, counts) = mirror_faults::hunt(bug, HUNTED_STATES);
        let broken = |what| Broken { number: Number(0), moment: None, fates: Vec::new(), what };
        return Caught { bug, broken: what.map(broken), workloads: 0, states: counts.states };
    }
    let home = habitat(bug);
    let mut explorer = match Explorer::new(home, Some(bug)) {
        Ok(explorer) => explorer,
        Err(what) => {
            let broken = Broken { number: Number(0), moment: None, fates: Vec::new(), what };
            return Caught { bug, broken: Some(broken), workloads: 0, states: 0 };
        }
    };
    // Bugs that a cut inside recovery finds are found sooner if more of recovery is cut.
    explorer.second_every = 5;
    let mut draw = Draw(0xb06);
    for turn in 0..workloads {
        // Spread over the changes: neighbours differ only in how they are made durable.
        let number = match turn % 3 {
            0 => Number::new(Set::One, home, turn / 3 * STRIDE),
            _ if needs_fault(bug).is_some() => faulty(bug, home, &mut draw),
            1 => Number::new(Set::Few, home, draw.word()),
            _ => Number::new(Set::Faulty, home, draw.word()),
        };
        if let Err(broken) = explorer.explore(number) {
            let states = explorer.counts.states;
            return Caught { bug, broken: Some(*broken), workloads: turn + 1, states };
        }
    }
    Caught { bug, broken: None, workloads, states: explorer.counts.states }
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

    fn plan(choice: Choice) -> Plan {
        Plan { seconds: 1, states: 1, from: 9, workers: 1, setting: None, choice }
    }

    #[test]
    fn a_mixed_run_comes_to_every_change_on_every_setting_and_samples_meanwhile() {
        let one = Set::One.size().expect("bounded");
        // All but the full one, whose workloads a test runs without cuts.
        let taken: BTreeSet<usize> = (0..SETTINGS.len()).filter(|&at| !SETTINGS[at].brim).collect();
        assert_eq!(cycle(None).into_iter().collect::<BTreeSet<usize>>(), taken);
        let all = one * taken.len() as u64;
        let mixed = plan(Choice::Mixed);
        let turns = one * cycle(None).len() as u64 / 3 * 4 + 4;
        let run: Vec<Number> = (0..turns).map(|turn| workload(turn, &mixed)).collect();
        let ones: BTreeSet<Number> = run.iter().filter(|number| number.set() == Set::One).copied().collect();
        assert_eq!(ones.len() as u64, all);
        let early: BTreeSet<usize> =
            run[..8 * SETTINGS.len()].iter().map(|number| number.setting()).collect();
        assert_eq!(early, taken);
        let sets: BTreeSet<Set> = run[..200].iter().map(|number| number.set()).collect();
        assert_eq!(sets.len(), 5);
        let other = Plan { from: 10, ..mixed.clone() };
        assert_ne!(workload(100_003, &mixed), workload(100_003, &other));
    }

    #[test]
    fn parts_of_all_workloads_of_two_changes_are_all_of_them() {
        let one = Set::One.size().expect("bounded");
        let whole = Plan { setting: Some(0), ..plan(Choice::Two { part: 0, of: 1, at: 0 }) };
        let mut seen = BTreeSet::new();
        for part in 0..7 {
            let part = Plan { choice: Choice::Two { part, of: 7, at: 0 }, ..whole.clone() };
            let mut source = Source::new(&part);
            while let Some((_, numbers)) = source.take() {
                for number in numbers {
                    assert!(seen.insert(number), "{number} is in two parts");
                }
            }
        }
        assert_eq!(seen.len() as u64, one * one);
        let mut source = Source::new(&whole);
        let (first, second) = (source.take().expect("some").0, source.take().expect("some").0);
        source.under_way.remove(&second);
        assert_eq!(source.chunks(), Some((first, one)));
        source.under_way.remove(&first);
        assert_eq!(source.chunks(), Some((2, one)));
    }
}
