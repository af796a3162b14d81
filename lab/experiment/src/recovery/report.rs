//! The result as data: what `report.json` holds and what everything is drawn from.

use serde::{Deserialize, Serialize};

use crate::figures::{self, ArmInfo, Chart, Goal, Row};
use crate::report::{Command, Conditions};

/// Name of the schema.
pub const SCHEMA: &str = "steadfast-lab-recovery";
/// Version of the schema. It grows when a field changes its meaning or goes; new fields alone do not change it.
pub const VERSION: u32 = 1;

/// The experiment, run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecoveryReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Always [`VERSION`] when written.
    pub version: u32,
    /// Heading.
    pub title: String,
    /// What is asked, in one sentence.
    pub question: String,
    /// What came out, in words.
    pub summary: String,
    /// Where, when and how.
    pub conditions: Conditions,
    /// How large everything was, in words.
    pub sizes: String,
    /// What stands for a hard disk, as `zpool inject` takes it.
    #[serde(default = "usual_model")]
    pub model: String,
    /// What is compared, in the order of the columns.
    pub arms: Vec<ArmInfo>,
    /// The figures.
    pub rows: Vec<Row>,
    /// What was to be reached.
    pub goals: Vec<Goal>,
    /// Pictures.
    pub charts: Vec<Chart>,
    /// Every recovery, over time.
    pub courses: Vec<Course>,
    /// What the source report printed.
    pub reported: Vec<Reported>,
    /// What the source report was about.
    pub source: String,
    /// What a reader must know to compare fairly.
    pub notes: Vec<String>,
    /// Every line typed, repetitions left out.
    pub commands: Vec<Command>,
}

/// Of reports that do not say it.
fn usual_model() -> String {
    super::args::MODEL.to_owned()
}

/// One scrub or resilver over time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Course {
    /// Arm.
    pub arm: String,
    /// `scrub`, `heal`, `resilver` and the like.
    pub what: String,
    /// Percent of the pool that was filled.
    pub fill: u32,
    /// Round, from 1.
    pub round: u32,
    /// Seconds it took.
    pub seconds: f64,
    /// Bytes read from the devices.
    pub read: u64,
    /// Bytes written to the devices.
    pub written: u64,
    /// Seconds since it began, bytes read and bytes written by then.
    pub points: Vec<(f64, u64, u64)>,
}

/// A figure of the source report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reported {
    /// What it was.
    pub what: String,
    /// As printed.
    pub printed: String,
    /// MB/s.
    pub rate: f64,
}

impl RecoveryReport {
    /// What a reader must hear first: the machine had other things to do.
    pub fn warning(&self) -> Option<String> {
        figures::warning(&self.conditions)
    }
}

impl crate::results::Told for RecoveryReport {
    fn summary(&self) -> &str {
        &self.summary
    }

    fn table(&self) -> String {
        super::table(self)
    }
}

/// Reads `report.json` of this experiment; `None` if it is another's.
pub fn parse(text: &str) -> Option<Result<RecoveryReport, String>> {
    figures::parse(text, SCHEMA, VERSION)
}
