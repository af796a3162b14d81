//! The result as data: what `report.json` holds and what everything is drawn from.

use serde::{Deserialize, Serialize};

use steadfast_lab_report::figures::{self, ArmInfo, Chart, Goal, Row};
use steadfast_lab_report::report::{Command, Conditions, Load, Phase};

/// Name of the schema.
pub const SCHEMA: &str = "steadfast-lab-beside";
/// Version of the schema. It grows when a field changes its meaning or goes; new fields alone do
/// not change it.
pub const VERSION: u32 = 1;

/// The experiment, run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BesideReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Always [`VERSION`] when written.
    pub version: u32,
    /// `cow` or `journal`.
    pub experiment: String,
    /// Heading.
    pub title: String,
    /// Question, in one sentence.
    pub question: String,
    /// Summary, in words.
    pub summary: String,
    /// Where, when and how.
    pub conditions: Conditions,
    /// How large the file was and how long a run, in words; what was reduced on request says so.
    pub sizes: String,
    /// Columns, in their order.
    pub arms: Vec<ArmInfo>,
    /// How the load was run.
    pub variants: Vec<Variant>,
    /// The figures.
    pub rows: Vec<Row>,
    /// Goals.
    pub goals: Vec<Goal>,
    /// Pictures for a document.
    pub charts: Vec<Chart>,
    /// Every run of the load, in the order they ran; `operation` is the name of the variant.
    pub phases: Vec<Phase>,
    /// Figures of the source report.
    pub reported: Vec<Reported>,
    /// Setting of the source report.
    pub source: String,
    /// The parameter file.
    pub load: Load,
    /// Notes that a reader needs to compare fairly.
    pub notes: Vec<String>,
    /// Every line typed, repetitions left out.
    pub commands: Vec<Command>,
}

/// A way the load was run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Variant {
    /// Before the keys of its rows.
    pub prefix: String,
    /// Name: "fsync after every write".
    pub name: String,
    /// How it was made.
    pub how: String,
}

/// A figure of the source report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reported {
    /// Key of the row of ours that is the same figure.
    pub row: String,
    /// Description.
    pub what: String,
    /// The figure, in the row's unit.
    pub value: f64,
}

impl BesideReport {
    /// The row with this key.
    pub fn row(&self, key: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.key == key)
    }

    /// Warning for the reader if the machine had other work.
    pub fn warning(&self) -> Option<String> {
        figures::warning(&self.conditions)
    }
}

/// Reads `report.json` of these experiments; `None` if it is another's.
pub fn parse(text: &str) -> Option<Result<BesideReport, String>> {
    figures::parse(text, SCHEMA, VERSION)
}
