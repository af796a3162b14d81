//! Results of an experiment: a report as data, as a page, and as text for a terminal.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use steadfast_lab_report::figures::Row;
use steadfast_lab_report::machine;
use steadfast_lab_report::report::{Conditions, Report};

use crate::document::{self, Figures};
use crate::error::Error;

/// Results of an experiment.
#[derive(Debug)]
pub struct Results<R = Report> {
    /// The result as data.
    pub report: R,
    /// `report.json`.
    pub json: PathBuf,
    /// `report.html`.
    pub html: PathBuf,
}

/// Text of a report for a terminal.
pub(crate) trait Told {
    /// In words.
    fn summary(&self) -> &str;
    /// In figures.
    fn table(&self) -> String;
}

/// The same of any experiment.
pub(crate) struct Done {
    pub summary: String,
    pub table: String,
    pub json: PathBuf,
    pub html: PathBuf,
}

impl<R: Told> From<Results<R>> for Done {
    fn from(results: Results<R>) -> Done {
        Done {
            summary: results.report.summary().to_owned(),
            table: results.report.table(),
            json: results.json,
            html: results.html,
        }
    }
}

/// Makes the directory for the results of an experiment: the one that was asked for, or one named
/// after it and now.
pub(crate) fn directory(experiment: &str, asked: Option<&Path>) -> Result<PathBuf, Error> {
    let out = match asked {
        Some(out) => out.to_owned(),
        None => {
            let stamp = machine::stamp(SystemTime::now());
            let stamp = stamp.trim_end_matches(" UTC").replace(' ', "-").replace(':', "");
            PathBuf::from(format!("lab-{experiment}-{stamp}"))
        }
    };
    fs::create_dir_all(&out).map_err(Error::io("create", &out))?;
    out.canonicalize().map_err(Error::io("find", &out))
}

/// Notes an early end: why it ended is the first note, and the figures are of as many rounds as the
/// row with most has. Returns the error of an experiment that ended early and had measured
/// something; `None` for one that came to its end.
///
/// # Errors
/// The error itself if nothing was measured.
pub(crate) fn early<'r>(
    done: Result<(), Error>,
    measured: bool,
    rows: impl IntoIterator<Item = &'r Row>,
    notes: &mut Vec<String>,
    conditions: &mut Conditions,
) -> Result<Option<Error>, Error> {
    let error = match done {
        Ok(()) => return Ok(None),
        Err(error) if !measured => return Err(error),
        Err(error) => error,
    };
    let why = error.to_string().replace('\n', " ");
    notes.insert(0, format!("This run ended early. The figures were measured before. Why it ended: {why}."));
    let most = rows.into_iter().flat_map(|row| row.values.values()).map(Vec::len).max().unwrap_or(0).max(1);
    conditions.rounds = u32::try_from(most).unwrap_or(u32::MAX);
    Ok(Some(error))
}

/// Writes `report.json` and `report.html`, and the table and pictures into a document: not those of
/// an experiment that ended `early`, which is an error all the same.
pub(crate) fn write<R: Serialize>(
    report: R,
    page: &str,
    out: &Path,
    early: Option<Error>,
    figures: Option<&Figures<'_>>,
    document: Option<&Path>,
) -> Result<Results<R>, Error> {
    let (json, html) = (out.join("report.json"), out.join("report.html"));
    let text = serde_json::to_string_pretty(&report).map_err(|error| Error::Io {
        doing: "encode",
        path: json.clone(),
        source: error.into(),
    })?;
    fs::write(&json, text + "\n").map_err(Error::io("write", &json))?;
    fs::write(&html, page).map_err(Error::io("write", &html))?;
    if let Some(why) = early {
        return Err(Error::Early { why: Box::new(why), report: html });
    }
    if let (Some(figures), Some(document)) = (figures, document) {
        document::insert(figures, document)?;
    }
    Ok(Results { report, json, html })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_measured_is_no_report() {
        let (mut notes, mut conditions) = (Vec::new(), Conditions::default());
        let mut ended = |done, measured| early(done, measured, [], &mut notes, &mut conditions);
        assert!(matches!(ended(Err(Error::Stopped), false), Err(Error::Stopped)));
        assert!(ended(Ok(()), true).unwrap().is_none() && notes.is_empty());
    }
}
