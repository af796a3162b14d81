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

/// Writes `report.json` and `report.html`, and the table and pictures into a document.
pub(crate) fn write<R: Serialize>(
    report: R,
    page: &str,
    out: &Path,
    document: Option<(&Figures<'_>, &Path)>,
) -> Result<Results<R>, Error> {
    let (json, html) = (out.join("report.json"), out.join("report.html"));
    let text = serde_json::to_string_pretty(&report).map_err(|error| Error::Io {
        doing: "encode",
        path: json.clone(),
        source: error.into(),
    })?;
    fs::write(&json, text + "\n").map_err(Error::io("write", &json))?;
    fs::write(&html, page).map_err(Error::io("write", &html))?;
    if let Some((figures, document)) = document {
        markdown::insert(figures, document)?;
    }
    Ok(Results { report, json, html })
}
