//! The table as Markdown, and its place in a document.

use std::fs;
use std::path::Path;

use super::chart;
use super::data::{EngineReport, Row, shown};
use crate::error::Error;
use crate::number;

/// Between these two lines the document is ours.
const MARKS: (&str, &str) = ("<!-- engine -->", "<!-- /engine -->");
/// What ratios refer to.
pub(super) const BASE: &str = "ext4";

/// The figures, the goals, and what has to be known of them.
pub fn table(report: &EngineReport) -> String {
    let conditions = &report.conditions;
    let machine = &conditions.machine;
    let mut text = format!(
        "Measured {} by `{}` on {} cores ({}), {} of memory, {}, {}; {}; median of {} interleaved rounds.",
        conditions.started,
        conditions.repeat,
        machine.cores,
        machine.processor,
        number::bytes(machine.memory_bytes),
        machine.kernel,
        machine.backing,
        report.sizes,
        conditions.rounds
    );
    if let Some(warning) = report.warning() {
        text.push_str(&format!(" {warning}"));
    }
    text.push_str("\n\n");
    let arms: Vec<_> = report.arms.iter().filter(|arm| arm.missing.is_none()).collect();
    if !report.rows.is_empty() {
        text.push_str("| |");
        arms.iter().for_each(|arm| text.push_str(&format!(" {} |", arm.label)));
        text.push_str("\n|---|");
        arms.iter().for_each(|_| text.push_str("---:|"));
        text.push('\n');
        for row in &report.rows {
            text.push_str(&format!("| {}, {} |", row.label, row.unit));
            for arm in &arms {
                text.push_str(&format!(" {} |", cell(row, &arm.key)));
            }
            text.push('\n');
        }
        text.push_str("\nIn brackets: ratio to ext4, above 1 is better than ext4.\n\n");
    }
    for arm in &report.arms {
        if let Some(why) = &arm.missing {
            text.push_str(&format!("{} took no part: {why}.\n\n", arm.label));
        }
    }
    if !report.goals.is_empty() {
        text.push_str("| goal | measured | spread | |\n|---|---:|---:|---|\n");
        for goal in &report.goals {
            let range = goal
                .range
                .filter(|_| report.conditions.rounds > 1)
                .map_or_else(String::new, |(a, b)| format!("{} to {}", shown(a), shown(b)));
            text.push_str(&format!(
                "| {} | {} | {range} | {} |\n",
                goal.text,
                goal.figure(),
                goal.verdict.text()
            ));
        }
        text.push('\n');
    }
    for note in &report.notes {
        text.push_str(&format!("{note}\n\n"));
    }
    text
}

fn cell(row: &Row, arm: &str) -> String {
    match (row.median(arm), row.ratio(arm, BASE)) {
        (None, _) => "-".to_owned(),
        (Some(value), Some(ratio)) if arm != BASE => format!("{} ({ratio:.2})", shown(value)),
        (Some(value), _) => shown(value),
    }
}

/// Writes the table between the marks of a document, or at its end, and the pictures into `img` beside it.
pub(super) fn insert(report: &EngineReport, document: &Path) -> Result<(), Error> {
    let old = match fs::read_to_string(document) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Error::io("read", document)(error)),
    };
    let mut body = table(report);
    let folder = document.parent().unwrap_or(Path::new(".")).join("img");
    if !report.charts.is_empty() {
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    }
    for drawn in &report.charts {
        let name = format!("engine-{}.svg", drawn.key.replace('_', "-"));
        let path = folder.join(&name);
        fs::write(&path, chart::svg(drawn, true)).map_err(Error::io("write", &path))?;
        body.push_str(&format!("![{}](img/{name})\n\n{}\n\n", drawn.title, drawn.how));
    }
    fs::write(document, placed(&old, &body)).map_err(Error::io("write", document))
}

/// The document with `body` between its marks.
fn placed(old: &str, body: &str) -> String {
    let (begin, end) = MARKS;
    let body = body.trim_end();
    match old.split_once(begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1))) {
        Some((before, after)) => format!("{before}{begin}\n\n{body}\n\n{end}{after}"),
        None => format!("{old}\n{begin}\n\n{body}\n\n{end}\n").trim_start().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::goals::{judge, tests::report};

    #[test]
    fn the_table_has_ratios_and_goals() {
        let mut whole = report("write", true, &[("ext4", &[977.0, 977.0]), ("plain", &[428.0, 430.0])]);
        whole.goals = judge(&whole);
        let text = table(&whole);
        assert!(text.contains("| a row, 1/s | 977 | 429 (0.44) |"), "{text}");
        assert!(
            text.contains("| sequential write at least 0.7 of ext4 | 0.44 | 0.44 to 0.44 | not met |"),
            "{text}"
        );
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let old = "# Title\n\n<!-- engine -->\nold\n<!-- /engine -->\n\nbelow\n";
        assert_eq!(
            placed(old, "new\n\n"),
            "# Title\n\n<!-- engine -->\n\nnew\n\n<!-- /engine -->\n\nbelow\n"
        );
        assert_eq!(placed(&placed(old, "a"), "b"), placed(old, "b"));
        assert_eq!(placed("", "x"), "<!-- engine -->\n\nx\n\n<!-- /engine -->\n");
    }
}
