//! The result as data: what `report.json` holds and what everything is drawn from.

use serde::{Deserialize, Serialize};
use steadfast_lab_report::figures::stack::Stack;
use steadfast_lab_report::figures::{self, ArmInfo, Chart, Goal, Row};
use steadfast_lab_report::report::{Command, Conditions};

/// Name of the schema.
pub const SCHEMA: &str = "steadfast-lab-engine";
/// Version of the schema. It grows when a field changes its meaning or goes; new fields alone do
/// not change it.
pub const VERSION: u32 = 1;

/// The experiment, run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ComparisonReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Always [`VERSION`] when written.
    pub version: u32,
    /// Of another experiment that has figures of many columns; none is the engine's.
    #[serde(default)]
    pub heading: Option<Heading>,
    /// Summary, in a sentence.
    pub summary: String,
    /// Where, when and how.
    pub conditions: Conditions,
    /// How large files and trees were, in words.
    pub sizes: String,
    /// Columns, in their order.
    pub arms: Vec<ArmInfo>,
    /// The figures.
    pub rows: Vec<Row>,
    /// Goals.
    pub goals: Vec<Goal>,
    /// Pictures.
    pub charts: Vec<Chart>,
    /// Pictures of stacked bars.
    #[serde(default)]
    pub stacks: Vec<Stack>,
    /// Notes that a reader needs to compare fairly.
    pub notes: Vec<String>,
    /// Every line typed, repetitions left out.
    pub commands: Vec<Command>,
}

/// Title and question of an experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heading {
    /// Name on the command line.
    pub name: String,
    /// Heading of the report.
    pub title: String,
    /// Question, in one sentence.
    pub question: String,
    /// Key of the column that ratios refer to, and its name.
    pub base: (String, String),
}

impl ComparisonReport {
    /// A report without figures; no heading means the engine's own.
    pub(crate) fn new(
        heading: Option<Heading>,
        conditions: Conditions,
        sizes: String,
        arms: Vec<ArmInfo>,
    ) -> ComparisonReport {
        ComparisonReport {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            heading,
            summary: String::new(),
            conditions,
            sizes,
            arms,
            rows: Vec::new(),
            goals: Vec::new(),
            charts: Vec::new(),
            stacks: Vec::new(),
            notes: Vec::new(),
            commands: Vec::new(),
        }
    }

    /// Title and question of the experiment.
    pub(crate) fn heading(&self) -> Heading {
        self.heading.clone().unwrap_or_else(|| Heading {
            name: "engine".to_owned(),
            title: "How fast the engine is, beside others on the same disk".to_owned(),
            question:
                "Everything goes through the mount, on image files on the same disk, in one run, in interleaved rounds."
                    .to_owned(),
            base: ("ext4".to_owned(), "ext4".to_owned()),
        })
    }

    /// Adds a figure of one round; the row is made at its first.
    pub(crate) fn add(&mut self, row: &Row, arm: &str, value: f64) {
        figures::add(&mut self.rows, row, arm, value);
    }

    /// The row with this key.
    pub fn row(&self, key: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.key == key)
    }

    /// Warning for the reader if the machine had other work.
    pub fn warning(&self) -> Option<String> {
        figures::warning(&self.conditions)
    }
}

/// Reads `report.json` of this experiment; `None` if it is another's.
pub fn parse(text: &str) -> Option<Result<ComparisonReport, String>> {
    figures::parse(text, SCHEMA, VERSION)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A report with one row.
    pub(crate) fn report(key: &str, more: bool, values: &[(&str, &[f64])]) -> ComparisonReport {
        let mut row = Row::new(key, "a row", "1/s", more, "counted");
        for (arm, figures) in values {
            row.values.insert((*arm).to_owned(), figures.to_vec());
        }
        ComparisonReport {
            heading: None,
            schema: SCHEMA.to_owned(),
            version: VERSION,
            summary: String::new(),
            conditions: Conditions { rounds: 3, ..Conditions::default() },
            sizes: "small".to_owned(),
            arms: values
                .iter()
                .map(|(arm, _)| ArmInfo {
                    key: (*arm).to_owned(),
                    label: format!("arm {arm}"),
                    missing: None,
                })
                .collect(),
            rows: vec![row],
            goals: Vec::new(),
            charts: Vec::new(),
            stacks: Vec::new(),
            notes: Vec::new(),
            commands: Vec::new(),
        }
    }

    #[test]
    fn another_experiments_report_is_not_ours() {
        assert!(parse("{\"schema\":\"steadfast-lab-report\",\"version\":1}").is_none());
        assert!(parse("{\"schema\":\"steadfast-lab-engine\",\"version\":9}").unwrap().is_err());
    }
}
