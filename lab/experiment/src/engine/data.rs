//! The result as data: what `report.json` holds and what everything is drawn from.

use serde::{Deserialize, Serialize};

use super::args::{self, EngineRequest};
use crate::Context;
use crate::arms::Arms;
use crate::figures;
use crate::number;
use crate::report::{Command, Conditions, Machine};

pub use crate::figures::{ArmInfo, Axis, Chart, Goal, Row, Series, Verdict, shown};

/// Name of the schema.
pub const SCHEMA: &str = "steadfast-lab-engine";
/// Version of the schema. It grows when a field changes its meaning or goes; new fields alone do not change it.
pub const VERSION: u32 = 1;

/// The experiment, run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EngineReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Always [`VERSION`] when written.
    pub version: u32,
    /// What came out, in a sentence.
    pub summary: String,
    /// Where, when and how.
    pub conditions: Conditions,
    /// How large files and trees were, in words.
    pub sizes: String,
    /// What is compared, in the order of the columns.
    pub arms: Vec<ArmInfo>,
    /// The figures.
    pub rows: Vec<Row>,
    /// What was to be reached.
    pub goals: Vec<Goal>,
    /// Pictures.
    pub charts: Vec<Chart>,
    /// What a reader must know to compare fairly.
    pub notes: Vec<String>,
    /// Every line typed, repetitions left out.
    pub commands: Vec<Command>,
}

impl EngineReport {
    /// Without figures.
    pub(crate) fn new(
        request: &EngineRequest,
        arms: &Arms,
        context: &Context,
        machine: Machine,
    ) -> EngineReport {
        let sizes = request.sizes();
        EngineReport {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            summary: String::new(),
            conditions: Conditions {
                target: format!("Steadfast {} through FUSE", context.version),
                repeat: args::repeat(request),
                rounds: request.rounds,
                machine,
                ..Conditions::default()
            },
            sizes: format!(
                "{} file, {} files, tree of {} sources",
                number::bytes(sizes.file),
                sizes.files,
                sizes.sources
            ),
            arms: arms.info(),
            rows: Vec::new(),
            goals: Vec::new(),
            charts: Vec::new(),
            notes: Vec::new(),
            commands: Vec::new(),
        }
    }

    /// Adds a figure of one round; the row is made at its first.
    pub(crate) fn add(&mut self, row: &Row, arm: &str, value: f64) {
        figures::add(&mut self.rows, row, arm, value);
    }

    /// The row with this key.
    pub fn row(&self, key: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.key == key)
    }

    /// What a reader must hear first: the machine had other things to do.
    pub fn warning(&self) -> Option<String> {
        figures::warning(&self.conditions)
    }
}

/// Reads `report.json` of this experiment; `None` if it is another's.
pub fn parse(text: &str) -> Option<Result<EngineReport, String>> {
    figures::parse(text, SCHEMA, VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_experiments_report_is_not_ours() {
        assert!(parse("{\"schema\":\"steadfast-lab-report\",\"version\":1}").is_none());
        assert!(parse("{\"schema\":\"steadfast-lab-engine\",\"version\":9}").unwrap().is_err());
    }
}
