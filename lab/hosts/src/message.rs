//! Messages between master and agents, as JSON in frames of bounded length.

use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use steadfast_lab_params::{FormatTuning, General, Operation, Run, Sd};
use steadfast_lab_workload::cpu::CpuUse;
use steadfast_lab_workload::histogram::Histogram;
use steadfast_lab_workload::{Counter, Engine, Group, Groups, Interval, IoError, RunResult};

/// Version of everything here; master and agent must have the same.
pub(crate) const VERSION: u32 = 3;

/// To a host that carries out a part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// All runs begin, or begin again.
    Begin(Box<Begin>),
    /// Which of these storages must be filled first?
    Short(Vec<Sd>),
    /// Prepare this run.
    Run { number: u32, run: Box<Run>, weights: Option<Vec<f64>> },
    /// Begin it: all are prepared.
    Go(u32),
    /// All users of this shared tree have come to this step of its format.
    Meet { number: u32, fsd: String, step: usize },
    /// End it.
    End(u32),
    /// I am here.
    Alive,
}

/// Settings of all runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Begin {
    pub general: General,
    pub format: FormatTuning,
    pub seed: u64,
    /// Of addresses and arrivals.
    pub draws: u64,
    pub engine: EngineWord,
    pub from_arrival: bool,
    /// Of the master's own machine alone.
    #[serde(skip)]
    pub watch: Vec<u32>,
}

/// [`Engine`] in words.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum EngineWord {
    Auto,
    Threads,
    Ring,
}

impl From<Engine> for EngineWord {
    fn from(engine: Engine) -> EngineWord {
        match engine {
            Engine::Auto => EngineWord::Auto,
            Engine::Threads => EngineWord::Threads,
            Engine::Ring => EngineWord::Ring,
        }
    }
}

impl From<EngineWord> for Engine {
    fn from(word: EngineWord) -> Engine {
        match word {
            EngineWord::Auto => Engine::Auto,
            EngineWord::Threads => Engine::Threads,
            EngineWord::Ring => Engine::Ring,
        }
    }
}

/// From a host that carries out a part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    Begun,
    Short(Vec<Sd>),
    /// The last order cannot be carried out.
    Refused(String),
    Ready {
        number: u32,
        kinds: Vec<Kind>,
        sizes: Vec<(String, u64)>,
    },
    Interval {
        number: u32,
        interval: Stretch,
    },
    Message(String),
    Notice(String),
    Error(Mistake),
    Reached {
        number: u32,
        fsd: String,
        step: usize,
    },
    Done {
        number: u32,
        done: Box<Done>,
    },
    Alive,
}

/// Groups that are counted apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kind {
    pub storage: String,
    pub workload: String,
    pub operation: Operation,
    pub requested: bool,
}

/// The kinds of a run's groups.
pub(crate) fn kinds(groups: &Groups) -> Vec<Kind> {
    let kind = |group: &Group| Kind {
        storage: group.storage.clone(),
        workload: group.workload.clone(),
        operation: group.operation,
        requested: group.requested,
    };
    groups.0.iter().map(kind).collect()
}

/// One interval of one host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Stretch {
    /// From 1.
    pub at: u32,
    pub seconds: f64,
    pub cpu: Cpu,
    /// Groups in which something happened, by their place in the kinds.
    pub times: Vec<(u32, Times)>,
}

impl From<&Interval> for Stretch {
    fn from(interval: &Interval) -> Stretch {
        let filled = (0..).zip(&interval.groups.0).filter(|(_, group)| group.times.count > 0);
        Stretch {
            at: interval.line.number,
            seconds: interval.line.seconds,
            cpu: (&interval.line.cpu).into(),
            times: filled.map(|(at, group)| (at, (&group.times).into())).collect(),
        }
    }
}

/// A histogram.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Times {
    pub count: u64,
    pub sum_ns: u64,
    pub squares_us2: f64,
    pub bytes: u64,
    pub max_ns: u64,
    pub filled: Vec<(u16, u64)>,
}

impl From<&Histogram> for Times {
    fn from(times: &Histogram) -> Times {
        Times {
            count: times.count,
            sum_ns: u64::try_from(times.sum_ns).unwrap_or(u64::MAX),
            squares_us2: times.squares_us2,
            bytes: times.bytes,
            max_ns: times.max_ns,
            filled: times.filled(),
        }
    }
}

impl Times {
    /// `None` if it is no histogram.
    pub(crate) fn histogram(&self) -> Option<Histogram> {
        let mut plain = Histogram::default();
        plain.count = self.count;
        plain.sum_ns = u128::from(self.sum_ns);
        plain.squares_us2 = self.squares_us2;
        plain.bytes = self.bytes;
        plain.max_ns = self.max_ns;
        plain.with_filled(&self.filled)
    }
}

/// [`CpuUse`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cpu {
    used: f64,
    user: f64,
    system: f64,
    wait: f64,
    idle: f64,
    nice: f64,
    steal: f64,
    watched_seconds: f64,
    own_seconds: f64,
    own_user_seconds: f64,
}

impl From<&CpuUse> for Cpu {
    fn from(cpu: &CpuUse) -> Cpu {
        Cpu {
            used: cpu.used,
            user: cpu.user,
            system: cpu.system,
            wait: cpu.wait,
            idle: cpu.idle,
            nice: cpu.nice,
            steal: cpu.steal,
            watched_seconds: cpu.watched_seconds,
            own_seconds: cpu.own_seconds,
            own_user_seconds: cpu.own_user_seconds,
        }
    }
}

/// Percentages are means over the hosts, seconds their sums. Each host comes with its place:
/// clients of one place are one machine, often one process, and are counted once.
pub(crate) fn over_hosts<P: PartialEq>(all: &[(P, Cpu)]) -> CpuUse {
    let first = |(at, (place, cpu))| (!all[..at].iter().any(|(known, _)| known == place)).then_some(cpu);
    let all: Vec<&Cpu> = all.iter().map(|(place, cpu)| (place, cpu)).enumerate().filter_map(first).collect();
    let mean =
        |field: fn(&Cpu) -> f64| all.iter().map(|cpu| field(cpu)).sum::<f64>() / all.len().max(1) as f64;
    let sum = |field: fn(&Cpu) -> f64| all.iter().map(|cpu| field(cpu)).sum::<f64>();
    CpuUse {
        used: mean(|cpu| cpu.used),
        user: mean(|cpu| cpu.user),
        system: mean(|cpu| cpu.system),
        wait: mean(|cpu| cpu.wait),
        idle: mean(|cpu| cpu.idle),
        nice: mean(|cpu| cpu.nice),
        steal: mean(|cpu| cpu.steal),
        watched_seconds: sum(|cpu| cpu.watched_seconds),
        own_seconds: sum(|cpu| cpu.own_seconds),
        own_user_seconds: sum(|cpu| cpu.own_user_seconds),
    }
}

/// An [`IoError`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Mistake {
    at_ms: u64,
    operation: Operation,
    path: String,
    offset: u64,
    bytes: u64,
    errno: String,
    evidence: Vec<String>,
}

impl From<&IoError> for Mistake {
    fn from(error: &IoError) -> Mistake {
        let since = error.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Mistake {
            at_ms: u64::try_from(since.as_millis()).unwrap_or_default(),
            operation: error.operation,
            path: error.path.clone(),
            offset: error.offset,
            bytes: error.bytes,
            errno: error.errno.clone(),
            evidence: error.evidence.clone(),
        }
    }
}

impl Mistake {
    pub(crate) fn of(self, host: &str) -> IoError {
        let at = UNIX_EPOCH.checked_add(Duration::from_millis(self.at_ms)).unwrap_or_else(SystemTime::now);
        IoError {
            at,
            host: Some(host.to_string()),
            operation: self.operation,
            path: self.path,
            offset: self.offset,
            bytes: self.bytes,
            errno: self.errno,
            evidence: self.evidence,
        }
    }
}

/// The end of a run on one host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub seconds: f64,
    pub measured_cpu: Cpu,
    pub whole_cpu: Cpu,
    pub counters: Vec<(String, u64)>,
    pub notes: Vec<String>,
    pub errors: u64,
    pub failure: Option<String>,
    pub compared: Option<u64>,
}

impl Done {
    pub(crate) fn new(result: &RunResult, compared: Option<u64>) -> Done {
        let counter = |counter: &Counter| (counter.name.to_string(), counter.count);
        Done {
            seconds: result.seconds,
            measured_cpu: (&result.measured_cpu).into(),
            whole_cpu: (&result.whole_cpu).into(),
            counters: result.counters.iter().map(counter).collect(),
            notes: result.notes.clone(),
            errors: result.errors,
            failure: result.failure.clone(),
            compared,
        }
    }
}
