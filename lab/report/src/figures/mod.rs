//! Figures of many arms: rows with a value a round, goals that judge them, pictures of lines.
//! Shared by experiments that compare more than two settings of one system.

pub mod chart;
pub mod goals;
pub mod stack;

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::report::{Conditions, median};

/// One of the things compared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArmInfo {
    /// Key used by rows: `ext4`, `plain`.
    pub key: String,
    /// Name: "Steadfast, lz4".
    pub label: String,
    /// Why it did not take part, or not to its end: then rows hold what it came to before.
    pub missing: Option<String>,
}

impl ArmInfo {
    /// Whether no row has a figure of it, because it did not take part.
    #[must_use]
    pub fn is_absent(&self, rows: &[Row]) -> bool {
        self.missing.is_some() && !rows.iter().any(|row| row.values.contains_key(&self.key))
    }

    /// The sentence that says what of it is not there; `None` where all is.
    #[must_use]
    pub fn lacking(&self, rows: &[Row]) -> Option<String> {
        let why = self.missing.as_ref()?;
        let what = if self.is_absent(rows) { "took no part" } else { "did not come to its end" };
        Some(format!("{} {what}: {why}.", self.label))
    }
}

/// One figure for every arm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Key: `write`.
    pub key: String,
    /// Heading: "sequential write, fsync at the end".
    pub label: String,
    /// Unit as it is printed: "MB/s".
    pub unit: String,
    /// More is better.
    pub more: bool,
    /// How it was taken.
    pub how: String,
    /// Arm to one value a round.
    pub values: BTreeMap<String, Vec<f64>>,
}

/// Goals.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Goal {
    /// In words: "sequential write at least 0.7 of ext4".
    pub text: String,
    /// Key of the [`Row`].
    pub row: String,
    /// The arm that is judged.
    pub arm: String,
    /// The arm it is compared with; none where the figure itself is judged.
    pub against: Option<String>,
    /// The ratio (better is greater), or the figure itself (smaller is better), that counts as
    /// reached.
    pub limit: f64,
    /// Of a figure itself: greater is better.
    #[serde(default)]
    pub at_least: bool,
    /// Measured value, the same way.
    pub measured: Option<f64>,
    /// The best and the worst that the rounds allow to be said.
    pub range: Option<(f64, f64)>,
    /// Reached or not.
    pub verdict: Verdict,
}

/// Whether a goal was reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The middle of the rounds reaches it.
    Met,
    /// The middle does not, but the rounds scatter across the limit.
    WithinSpread,
    /// No.
    NotMet,
    /// One of the two was not measured.
    NotMeasured,
}

/// A picture: lines over a horizontal axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Chart {
    /// Key: `files`.
    pub key: String,
    /// Heading.
    pub title: String,
    /// How it was taken.
    pub how: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// A level that must not be crossed, and its name.
    pub limit: Option<(f64, String)>,
    /// The lines.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Axis {
    /// Name with unit.
    pub label: String,
    /// Decades instead of steps.
    pub log: bool,
}

/// A line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Name in the legend.
    pub label: String,
    /// Calculated rather than measured: drawn dashed.
    pub calculated: bool,
    /// Points, from left to right.
    pub points: Vec<(f64, f64)>,
}

impl Axis {
    /// Steps of equal size.
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.to_owned(), log: false }
    }

    /// Decades.
    pub fn log(label: &str) -> Axis {
        Axis { label: label.to_owned(), log: true }
    }
}

impl Row {
    /// A row without figures.
    pub fn new(key: &str, label: &str, unit: &str, more: bool, how: &str) -> Row {
        Row {
            key: key.to_owned(),
            label: label.to_owned(),
            unit: unit.to_owned(),
            more,
            how: how.to_owned(),
            values: BTreeMap::new(),
        }
    }

    /// The middle of an arm's rounds.
    pub fn median(&self, arm: &str) -> Option<f64> {
        median(self.values.get(arm)?)
    }

    /// Smallest and greatest of an arm's rounds.
    pub fn spread(&self, arm: &str) -> Option<(f64, f64)> {
        let values = self.values.get(arm).filter(|values| !values.is_empty())?;
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        Some((least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max)))
    }

    /// How much better `arm` is than `base`; 2 is twice as good, whichever way is better.
    pub fn ratio(&self, arm: &str, base: &str) -> Option<f64> {
        let (value, base) = (self.median(arm)?, self.median(base)?);
        let ratio = if self.more { value / base } else { base / value };
        // Of nothing, and of what shrank, there is no ratio.
        (value > 0.0 && base > 0.0 && ratio.is_finite()).then_some(ratio)
    }
}

/// The row with the key of `row`, which is made at its first.
pub fn entry<'a>(rows: &'a mut Vec<Row>, row: &Row) -> &'a mut Row {
    let at = match rows.iter().position(|known| known.key == row.key) {
        Some(at) => at,
        None => {
            rows.push(row.clone());
            rows.len() - 1
        }
    };
    &mut rows[at]
}

/// Adds a figure of one round to its row, which is made at its first.
pub fn add(rows: &mut Vec<Row>, row: &Row, arm: &str, value: f64) {
    entry(rows, row).values.entry(arm.to_owned()).or_default().push(value);
}

/// Warning for the reader if the machine had other work.
pub fn warning(conditions: &Conditions) -> Option<String> {
    conditions.machine.other_work().map(|work| {
        format!(
            "The machine {work}. Rates and times include it; ratios and counted bytes suffer less. Repeat it on \
             an idle machine."
        )
    })
}

/// Reads a `report.json` of this schema; `None` if it is of another.
pub fn parse<T: DeserializeOwned>(text: &str, schema: &str, version: u32) -> Option<Result<T, String>> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
        version: u32,
    }
    let head: Head = serde_json::from_str(text).ok()?;
    if head.schema != schema {
        return None;
    }
    if head.version == 0 || head.version > version {
        let words = format!(
            "the report has version {}; this program reads up to version {version}: update it",
            head.version
        );
        return Some(Err(words));
    }
    Some(serde_json::from_str(text).map_err(|error| format!("not a lab report: {error}")))
}

/// A figure as a person reads it: three significant digits, none lost that count.
pub fn shown(value: f64) -> String {
    let size = value.abs();
    if size >= 9_999.5 {
        // 12,345
        let whole = format!("{size:.0}");
        let mut grouped = String::new();
        for (at, digit) in whole.chars().enumerate() {
            if at > 0 && (whole.len() - at) % 3 == 0 {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        if value < 0.0 { format!("-{grouped}") } else { grouped }
    } else if size >= 99.95 || size == 0.0 {
        format!("{value:.0}")
    } else if size >= 9.995 {
        format!("{value:.1}")
    } else if size >= 0.0995 {
        format!("{value:.2}")
    } else if size >= 0.009_95 {
        format!("{value:.3}")
    } else {
        format!("{value:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_that_count() {
        for (value, text) in [
            (0.0, "0"),
            (0.000_42, "0.0004"),
            (0.004_21, "0.0042"),
            (0.0283, "0.028"),
            (0.254, "0.25"),
            (9.99, "9.99"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1234.0, "1234"),
            (45509.0, "45,509"),
            (1_000_000.0, "1,000,000"),
        ] {
            assert_eq!(shown(value), text);
        }
    }

    #[test]
    fn a_ratio_above_one_is_better_whichever_way_is_better() {
        let mut rate = Row::new("a", "", "MB/s", true, "");
        rate.values.insert("x".to_owned(), vec![100.0, 300.0, 200.0]);
        rate.values.insert("y".to_owned(), vec![100.0]);
        assert_eq!(rate.ratio("x", "y"), Some(2.0));
        assert_eq!(rate.spread("x"), Some((100.0, 300.0)));
        let time = Row { more: false, ..rate };
        assert_eq!(time.ratio("x", "y"), Some(0.5));
        assert_eq!(time.ratio("x", "none"), None);
    }
}
