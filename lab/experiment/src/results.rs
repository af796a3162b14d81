//! What every experiment leaves behind: a report as data, drawn, and what is told of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;

use crate::error::Error;
use crate::figures::markdown::{self, Figures};
use crate::machine;
use crate::report::Report;

/// What an experiment left behind.
#[derive(Debug)]
pub struct Results<R = Report> {
    /// The result as data.
    pub report: R,
    /// `report.json`.
    pub json: PathBuf,
    /// `report.html`.
    pub html: PathBuf,
}

/// What a report tells on a terminal.
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

/// Makes the directory for the results of an experiment: the one that was asked for, or one named after it and now.
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

/// What an experiment that ended early leaves: its error if nothing was measured (there is nothing to tell then), else why it
/// ended, which the notes tell first. `None` for one that came to its end.
pub(crate) fn early(
    done: Result<(), Error>,
    measured: bool,
    notes: &mut Vec<String>,
) -> Result<Option<Error>, Error> {
    match done {
        Ok(()) => Ok(None),
        Err(error) if !measured => Err(error),
        Err(error) => {
            let why = error.to_string().replace('\n', " ");
            notes.insert(0, format!("This ended early; what stands here was measured before. Why: {why}."));
            Ok(Some(error))
        }
    }
}

/// How many rounds figures are of, of an experiment that ended early: as many as the one with most has. None of them stands for more.
pub(crate) fn rounds<'v>(values: impl IntoIterator<Item = &'v Vec<f64>>) -> u32 {
    let most = values.into_iter().map(Vec::len).max().unwrap_or(0).max(1);
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// Writes `report.json` and `report.html`, and the table and pictures into a document: not those of an experiment that
/// ended `early`, which is an error all the same.
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
        markdown::insert(figures, document)?;
    }
    Ok(Results { report, json, html })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::goals::tests::report;
    use crate::engine::{markdown as of_engine, render};

    #[test]
    fn what_was_measured_before_an_error_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let document = dir.path().join("NOTES.md");
        fs::write(&document, "# Notes\n").unwrap();
        let mut whole = report("write", true, &[("ext4", &[977.0]), ("plain", &[428.0])]);
        let full = Error::Missing { what: "No room.".to_owned(), action: "give some.".to_owned() };
        let early = early(Err(full), true, &mut whole.notes).unwrap();
        let (page, heading) = (render(&whole), whole.heading());
        let figures = of_engine::figures(&whole, &heading);
        let error =
            write(whole.clone(), &page, dir.path(), early, Some(&figures), Some(&document)).unwrap_err();
        assert_eq!(error.exit_status(), 1);
        let said = error.to_string();
        assert!(said.contains("No room.") && said.contains("report.html"), "{said}");
        let kept = fs::read_to_string(dir.path().join("report.json")).unwrap();
        assert!(
            kept.contains("977") && kept.contains("This ended early") && kept.contains("No room."),
            "{kept}"
        );
        assert!(fs::read_to_string(dir.path().join("report.html")).unwrap().contains("This ended early"));
        assert_eq!(rounds(whole.rows.iter().flat_map(|row| row.values.values())), 1);
        // Half a run never takes the place of a whole one.
        assert_eq!(fs::read_to_string(&document).unwrap(), "# Notes\n");
    }

    #[test]
    fn nothing_measured_is_no_report() {
        let mut notes = Vec::new();
        assert!(matches!(early(Err(Error::Stopped), false, &mut notes), Err(Error::Stopped)));
        assert!(early(Ok(()), true, &mut notes).unwrap().is_none() && notes.is_empty());
    }
}
