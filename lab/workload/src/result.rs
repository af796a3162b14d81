//! Results of a run.

use crate::cpu::CpuUse;
use crate::histogram::Histogram;
use std::time::SystemTime;
use steadfast_lab_params::{Operation, Run};

/// Response times of one operation of one workload on one storage.
#[derive(Clone, Debug)]
pub struct Group {
    /// Name of the sd or fsd.
    pub storage: String,
    /// Name of the wd or fwd.
    pub workload: String,
    /// Operation.
    pub operation: Operation,
    /// Whether it was asked for, or came with it (opens and closes around reads).
    pub requested: bool,
    /// When it answered.
    pub times: Histogram,
}

/// Groups over some stretch of time.
#[derive(Clone, Debug, Default)]
pub struct Groups(pub Vec<Group>);

impl Groups {
    /// Merges those that `which` chooses.
    pub fn merged(&self, which: impl Fn(&Group) -> bool) -> Histogram {
        let mut out = Histogram::default();
        self.0.iter().filter(|group| which(group)).for_each(|group| out.merge(&group.times));
        out
    }

    /// All of one operation.
    pub fn operation(&self, operation: Operation) -> Histogram {
        self.merged(|group| group.operation == operation)
    }

    /// All that was asked for.
    pub fn requested(&self) -> Histogram {
        self.merged(|group| group.requested)
    }

    /// Only the groups that `which` chooses.
    pub fn filtered(&self, which: impl Fn(&Group) -> bool) -> Groups {
        Groups(self.0.iter().filter(|group| which(group)).cloned().collect())
    }

    /// Adds another stretch of the same groups.
    pub fn merge(&mut self, other: &Groups) {
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
            return;
        }
        for (to, from) in self.0.iter_mut().zip(&other.0) {
            to.times.merge(&from.times);
        }
    }
}

/// Part of one of several hosts.
#[derive(Clone, Debug)]
pub struct Share {
    /// Its name in the parameter file.
    pub host: String,
    /// All groups of the run, with what this host did in them.
    pub groups: Groups,
    /// Its processors.
    pub cpu: CpuUse,
}

/// Figures of one operation, without its histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Operations.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Mean response time, milliseconds. All others too.
    pub mean_ms: f64,
    /// Sample standard deviation.
    pub stddev_ms: f64,
    /// Half were faster.
    pub p50_ms: f64,
    /// 90 % were faster.
    pub p90_ms: f64,
    /// 99 % were faster.
    pub p99_ms: f64,
    /// 99.9 % were faster.
    pub p999_ms: f64,
    /// The slowest.
    pub max_ms: f64,
}

/// Whether so many operations have this percentile: at least one of them was slower than it. So p99
/// needs 100 operations, and p99.9 needs 1,000.
pub fn has_percentile(percent: f64, operations: u64) -> bool {
    operations as f64 * (100.0 - percent) >= 100.0 - 1e-6
}

impl Figures {
    /// p50, p90, p99 and p99.9, milliseconds: those that so many operations have.
    pub fn percentiles(&self) -> [Option<f64>; 4] {
        let all = [(50.0, self.p50_ms), (90.0, self.p90_ms), (99.0, self.p99_ms), (99.9, self.p999_ms)];
        all.map(|(percent, value)| has_percentile(percent, self.count).then_some(value))
    }
}

impl From<&Histogram> for Figures {
    fn from(times: &Histogram) -> Figures {
        Figures {
            count: times.count,
            bytes: times.bytes,
            mean_ms: times.mean_ms(),
            stddev_ms: times.stddev_ms(),
            p50_ms: times.percentile_ms(50.0),
            p90_ms: times.percentile_ms(90.0),
            p99_ms: times.percentile_ms(99.0),
            p999_ms: times.percentile_ms(99.9),
            max_ms: times.max_ms(),
        }
    }
}

/// One line of a report, kept after the run: figures of every operation that occurred.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Number of the interval, from 1.
    pub number: u32,
    /// Figures over all that was asked for.
    pub requested: Figures,
    /// Figures per operation, in the order of [`Operation::ALL`], only those that occurred.
    pub operations: Vec<(Operation, Figures)>,
    /// Processors.
    pub cpu: CpuUse,
    /// Seconds by the clock: shorter than the interval where the work ended early.
    pub seconds: f64,
}

/// One interval while the run goes on.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Its line.
    pub line: Line,
    /// All groups, with their histograms.
    pub groups: Groups,
    /// Whether it belongs to the warm-up.
    pub warmup: bool,
    /// The same by host, of those that had something to say. Empty where one machine alone works.
    pub hosts: Vec<Share>,
}

/// Counters that are no response times, with vdbench's names.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// `WRITE_OPENS`.
    pub name: &'static str,
    /// `Files opened for write activity:`.
    pub text: &'static str,
    /// How often.
    pub count: u64,
}

impl Counter {
    /// The counter of this name, if there is one.
    pub fn named(name: &str, count: u64) -> Option<Counter> {
        let known = crate::shared::COUNTERS.iter().find(|(known, _)| *known == name);
        known.map(|(name, text)| Counter { name, text, count })
    }
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The run. For a curve, the point of it.
    pub run: Run,
    /// Started at.
    pub started: SystemTime,
    /// Seconds from the start to the last operation or the end of `elapsed=`.
    pub seconds: f64,
    /// Every interval.
    pub lines: Vec<Line>,
    /// First interval that counts.
    pub first_measured: u32,
    /// The intervals that count, merged.
    pub measured: Groups,
    /// Processors over the intervals that count.
    pub measured_cpu: CpuUse,
    /// Everything, warm-up included: what a format, which may be over before the warm-up, is judged
    /// by.
    pub whole: Groups,
    /// Processors over everything.
    pub whole_cpu: CpuUse,
    /// The intervals that count by host, in the order of the parameter file. Empty where one
    /// machine alone works.
    pub hosts: Vec<Share>,
    /// Counters.
    pub counters: Vec<Counter>,
    /// `monitor=` asked for the end of all runs.
    pub ended_all: bool,
    /// Notes for the end.
    pub notes: Vec<String>,
    /// Number of I/O errors.
    pub errors: u64,
    /// Why the run ended before its time: a sentence.
    pub failure: Option<String>,
    /// Ended by the stop flag.
    pub stopped: bool,
}

impl RunResult {
    /// Whether anything was done that was asked for. A format may find that all is there.
    pub fn did_work(&self) -> bool {
        self.is_format() || self.whole.0.iter().any(|group| group.requested && group.times.count > 0)
    }

    /// Whether this is a format.
    pub fn is_format(&self) -> bool {
        self.run.label == "SD_format"
            || matches!(&self.run.work, steadfast_lab_params::Work::Files(work) if work.format.is_some())
    }

    /// Processor time of the engine outside the kernel per operation, microseconds: what measuring
    /// costs, data included that is made for writes. `None` if too little was done to tell.
    pub fn overhead_us(&self) -> Option<f64> {
        let count: u64 = self.whole.0.iter().map(|group| group.times.count).sum();
        // The kernel counts in hundredths of a second.
        (count >= 10_000).then(|| self.whole_cpu.own_user_seconds * 1e6 / count as f64)
    }

    /// Nominal seconds of the intervals that count; rates divide by it.
    pub fn measured_seconds(&self) -> f64 {
        let count = self.lines.iter().filter(|line| line.number >= self.first_measured).count();
        (count as u64 * self.run.interval) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_an_operation_above_it() {
        for (percent, needed) in [(50.0, 2), (90.0, 10), (99.0, 100), (99.9, 1_000)] {
            assert!(has_percentile(percent, needed) && !has_percentile(percent, needed - 1), "{percent}");
        }
        let figures = Figures { count: 150, p50_ms: 1.0, p90_ms: 2.0, p99_ms: 3.0, ..Figures::default() };
        assert_eq!(figures.percentiles(), [Some(1.0), Some(2.0), Some(3.0), None]);
    }
}
