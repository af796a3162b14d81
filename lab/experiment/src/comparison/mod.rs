//! A report with a column a file system: what `engine`, `bench`, `compare`, `dedup` and `snapshots`
//! leave behind.

mod markdown;
mod page;
mod report;

use std::path::Path;

pub(crate) use markdown::figures;
pub use page::render;
#[cfg(test)]
pub(crate) use report::tests;
pub use report::{ComparisonReport, Heading, SCHEMA, VERSION, parse};

use crate::error::Error;
use crate::results::{self, Results, Told};

impl Told for ComparisonReport {
    fn summary(&self) -> &str {
        &self.summary
    }

    fn table(&self) -> String {
        markdown::table(self)
    }
}

/// Writes the report as data and as a page, and its table into a document.
pub(crate) fn write(
    report: ComparisonReport,
    out: &Path,
    early: Option<Error>,
    document: Option<&Path>,
) -> Result<Results<ComparisonReport>, Error> {
    let (page, heading, drawn) = (render(&report), report.heading(), report.clone());
    results::write(report, &page, out, early, Some(&figures(&drawn, &heading)), document)
}

#[cfg(test)]
mod of_writing {
    use std::fs;

    use super::tests::report;
    use super::*;

    #[test]
    fn what_was_measured_before_an_error_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let document = dir.path().join("NOTES.md");
        fs::write(&document, "# Notes\n").unwrap();
        let mut whole = report("write", true, &[("ext4", &[977.0]), ("plain", &[428.0])]);
        let full = Error::Missing { what: "No room.".to_owned(), action: "give some.".to_owned() };
        let ComparisonReport { rows, notes, conditions, .. } = &mut whole;
        let early = results::early(Err(full), true, &*rows, notes, conditions).unwrap();
        let error = write(whole.clone(), dir.path(), early, Some(&document)).unwrap_err();
        assert_eq!(error.exit_status(), 1);
        let said = error.to_string();
        assert!(said.contains("No room.") && said.contains("report.html"), "{said}");
        let kept = fs::read_to_string(dir.path().join("report.json")).unwrap();
        assert!(
            kept.contains("977") && kept.contains("This run ended early") && kept.contains("No room."),
            "{kept}"
        );
        assert!(fs::read_to_string(dir.path().join("report.html")).unwrap().contains("This run ended early"));
        assert_eq!(whole.conditions.rounds, 1);
        // Half a run never takes the place of a whole one.
        assert_eq!(fs::read_to_string(&document).unwrap(), "# Notes\n");
    }
}
