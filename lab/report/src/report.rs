//! The result of an experiment as data: what `report.json` holds and everything that is drawn is
//! drawn from.
//!
//! The structure knows nothing of compression or encryption. An experiment compares *arms* (the
//! same load on differently configured places), in one or more *rounds*, each a series of *phases*
//! (one run of the load each). *Measures* are the figures taken out of the phases: one per arm and
//! round, beside what others have published. An experiment fills this in and gets the table, the
//! charts and the file for nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use steadfast_lab_workload::has_percentile;

/// Name of the schema in `report.json`.
pub const SCHEMA: &str = "steadfast-lab-report";
/// Version of the schema. It grows when a field changes its meaning or goes; new fields alone do
/// not change it.
pub const VERSION: u32 = 1;

/// One experiment, run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Always [`VERSION`] when written.
    pub version: u32,
    /// Name on the command line: `compression`.
    pub experiment: String,
    /// Heading.
    pub title: String,
    /// Question, in one sentence.
    pub question: String,
    /// Summary, in words with numbers.
    pub summary: String,
    /// Where, when and how.
    pub conditions: Conditions,
    /// Arms: the first is the feature, the last its reference.
    pub arms: Vec<Arm>,
    /// The figures, in the order of the table.
    pub measures: Vec<Measure>,
    /// Every run of the load, in the order they ran.
    pub phases: Vec<Phase>,
    /// The reports whose figures stand beside ours.
    pub sources: Vec<Source>,
    /// The load.
    pub load: Load,
    /// Every command given, in order.
    pub commands: Vec<Command>,
    /// Notes that a reader needs to compare fairly.
    pub notes: Vec<String>,
}

/// Where, when and how an experiment ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Conditions {
    /// Start, RFC 3339 in UTC.
    pub started: String,
    /// Seconds from first command to last.
    pub seconds: f64,
    /// System under test: "Steadfast 0.1.0 (FUSE)", "directories /a and /b".
    pub target: String,
    /// The command that repeats it.
    pub repeat: String,
    /// How often the whole file was run.
    pub rounds: u32,
    /// Seconds that were asked of each run of the load, when not what the file says.
    pub elapsed_override_s: Option<u32>,
    /// The machine.
    pub machine: Machine,
}

/// The machine, as far as it bears on the figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Processor's name.
    pub processor: String,
    /// Logical processors.
    pub cores: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Distribution.
    pub system: String,
    /// File system that held the image files.
    pub backing: String,
    /// Load average over one minute when the experiment began.
    pub load_before: f64,
    /// How busy the machine was with other things in the second before the load began, percent of
    /// all processors.
    #[serde(default)]
    pub busy_before_percent: f64,
    /// How busy it was from the first run to the last, percent of all processors.
    #[serde(default)]
    pub busy_during_percent: Option<f64>,
    /// The part of that by the measuring program and by what it watches.
    #[serde(default)]
    pub own_during_percent: f64,
}

impl Machine {
    /// Other work of the machine before the load began; `None` where that was little.
    pub fn other_work(&self) -> Option<String> {
        let busy = self.busy_before_percent;
        if busy > BUSY_PERCENT {
            return Some(format!("was {busy:.0} % busy with other things when this began"));
        }
        let load = self.load_before;
        (load > f64::from(self.cores.max(1))).then(|| {
            format!("had a load average of {load:.1} on {} processors in the minute before", self.cores)
        })
    }
}

/// One of the things compared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Arm {
    /// Key used by measures and phases: `on`.
    pub key: String,
    /// Long name: "Compression on (lz4)".
    pub label: String,
    /// Short name for the end of a bar: "on".
    pub short: String,
    /// Anchor in the parameter file.
    pub anchor: String,
    /// Directory it was mapped to in this run.
    pub directory: String,
}

/// Unit of a measure; decides how it is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// 2^20 bytes.
    Mebibytes,
    /// Milliseconds.
    Milliseconds,
    /// Hundredths of all processors together.
    PercentOfMachine,
    /// Operations a second.
    PerSecond,
}

/// One figure for every arm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measure {
    /// Key: `read_response`.
    pub key: String,
    /// Heading: "Read response time".
    pub label: String,
    /// One line on how it was measured.
    pub how: String,
    /// Unit.
    pub unit: Unit,
    /// Neighbouring measures of the same panel share a chart.
    #[serde(default)]
    pub panel: Option<String>,
    /// Our figures: arm to one value a round.
    pub values: BTreeMap<String, Vec<f64>>,
    /// Figures of others.
    pub published: Vec<Published>,
}

/// A figure someone else reported.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Published {
    /// Key of the [`Source`].
    pub source: String,
    /// Key of the [`Arm`].
    pub arm: String,
    /// The figure in the measure's unit.
    pub value: f64,
    /// The figure as it was printed: "26 MB".
    pub printed: String,
}

/// A report whose figures stand beside ours.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Source {
    /// Key: `a`.
    pub key: String,
    /// Name in tables: "OpenZFS, report 000".
    pub label: String,
    /// Description.
    pub about: String,
}

/// One run of the load on one arm.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Phase {
    /// Round, from 1.
    pub round: u32,
    /// Key of the [`Arm`].
    pub arm: String,
    /// Name of the run in the parameter file: `write_compressed`.
    pub run: String,
    /// `write`, `read`.
    pub operation: String,
    /// Operations a second.
    pub rate: f64,
    /// MiB a second.
    pub mib_per_s: f64,
    /// Operations that were counted.
    pub operations: u64,
    /// Response times.
    pub response: Response,
    /// Processor use of the whole machine.
    pub cpu: Cpu,
    /// Processor use of our daemon, percent of the whole machine; absent where there is no daemon.
    pub daemon_percent: Option<f64>,
    /// One entry an interval.
    pub intervals: Vec<Interval>,
    /// Space after it.
    pub space: Option<Space>,
}

/// Response times in milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Response {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 9 of 10 were quicker.
    pub p90: f64,
    /// 99 of 100 were quicker.
    pub p99: f64,
    /// 999 of 1,000 were quicker.
    pub p999: f64,
    /// The slowest.
    pub max: f64,
}

impl Response {
    /// p50, p90, p99 and p99.9: those that so many operations have.
    pub fn percentiles(&self, operations: u64) -> [Option<f64>; 4] {
        let all = [(50.0, self.p50), (90.0, self.p90), (99.0, self.p99), (99.9, self.p999)];
        all.map(|(percent, value)| has_percentile(percent, operations).then_some(value))
    }
}

/// Processor use of the whole machine, in percent of all processors.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Cpu {
    /// User and system.
    pub total: f64,
    /// System alone.
    pub system: f64,
}

/// One interval of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Interval {
    /// Its end, in seconds from the start of the run.
    pub at_s: f64,
    /// Operations a second.
    pub rate: f64,
    /// Mean response time, milliseconds; absent when nothing was done.
    pub response_ms: Option<f64>,
    /// Processor use of the whole machine, percent.
    pub cpu_total: f64,
    /// p50 and p99 of the interval, where it had operations enough, and its longest.
    #[serde(default)]
    pub quantiles_ms: [Option<f64>; 3],
}

/// Space an arm takes, in bytes, each from another mouth.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Space {
    /// `df`: size of the mounted file system.
    pub df_size: u64,
    /// `df`: used.
    pub df_used: u64,
    /// `du`: blocks of all files under the anchor.
    pub du: u64,
    /// Sum of the sizes of all files under the anchor.
    pub apparent: u64,
    /// Property `used` of the dataset, where there is one.
    pub used: Option<u64>,
    /// Property `referenced`.
    pub referenced: Option<u64>,
    /// Property `logicalused`.
    pub logical_used: Option<u64>,
}

/// The load and how it was pointed at the arms.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    /// Name of the parameter file.
    pub file: String,
    /// Its text, unchanged.
    pub text: String,
    /// Anchor in the file to directory of this run.
    pub mapping: Vec<(String, String)>,
}

/// A command given, and how it ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Command {
    /// The line as one would type it.
    pub line: String,
    /// Exit status; none when it was ended by a signal.
    pub status: Option<i32>,
}

/// A machine busier than this before the load begins spoils the figures.
const BUSY_PERCENT: f64 = 5.0;

impl Report {
    /// Warning for the reader if the machine had other work.
    pub fn warning(&self) -> Option<String> {
        self.conditions.machine.other_work().map(|work| {
            format!(
                "The machine {work}. Processor use and response times include it; only the space can be trusted. \
                 Repeat it on an idle machine."
            )
        })
    }

    /// The arm with this key.
    pub fn arm(&self, key: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.key == key)
    }

    /// The measure with this key.
    pub fn measure(&self, key: &str) -> Option<&Measure> {
        self.measures.iter().find(|measure| measure.key == key)
    }

    /// Names of the operations, in the order they first ran.
    pub fn operations(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for phase in &self.phases {
            if !names.contains(&phase.operation.as_str()) {
                names.push(&phase.operation);
            }
        }
        names
    }
}

impl Measure {
    /// The middle of an arm's rounds; none when it was not measured.
    pub fn median(&self, arm: &str) -> Option<f64> {
        median(self.values.get(arm)?)
    }

    /// Smallest and greatest of an arm's rounds, when there is more than one.
    pub fn spread(&self, arm: &str) -> Option<(f64, f64)> {
        let values = self.values.get(arm)?;
        if values.len() < 2 {
            return None;
        }
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some((low, high))
    }

    /// Figure that a source reported for an arm.
    pub fn published(&self, source: &str, arm: &str) -> Option<&Published> {
        self.published.iter().find(|figure| figure.source == source && figure.arm == arm)
    }
}

/// The middle value; the mean of the two middle ones when there is an even number of them.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Why a file is not a report that this program can draw.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Not JSON, or a field is missing.
    #[error("not a lab report: {0}")]
    Json(#[from] serde_json::Error),
    /// Another kind of file.
    #[error("not a lab report: its schema is `{found}`, not `{SCHEMA}`")]
    Schema {
        /// Value in the file.
        found: String,
    },
    /// From the future.
    #[error("the report has version {found}; this program reads up to version {VERSION}: update it")]
    Version {
        /// Value in the file.
        found: u32,
    },
}

/// Reads `report.json`.
pub fn parse(text: &str) -> Result<Report, ReadError> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
        version: u32,
    }
    let head: Head = serde_json::from_str(text)?;
    if head.schema != SCHEMA {
        return Err(ReadError::Schema { found: head.schema });
    }
    if head.version == 0 || head.version > VERSION {
        return Err(ReadError::Version { found: head.version });
    }
    Ok(serde_json::from_str(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
        assert_eq!(median(&[f64::NAN, 5.0]), Some(5.0));
    }

    #[test]
    fn foreign_files_and_future_versions_are_refused_by_name() {
        assert!(parse("{}").unwrap_err().to_string().contains("not a lab report"));
        let other = r#"{"schema":"x","version":1}"#;
        assert!(parse(other).unwrap_err().to_string().contains("its schema is `x`"));
        let later = r#"{"schema":"steadfast-lab-report","version":9}"#;
        assert!(parse(later).unwrap_err().to_string().contains("version 9"));
    }
}
