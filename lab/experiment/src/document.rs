//! Figures as Markdown, and their place in a document.

use std::fs;
use std::path::Path;

use crate::error::Error;
use steadfast_lab_report::figures::stack::{self, Stack};
use steadfast_lab_report::figures::{ArmInfo, Chart, Goal, Row, chart, shown, warning};
use steadfast_lab_report::number;
use steadfast_lab_report::report::Conditions;

/// Contents of a table in a document.
pub(crate) struct Figures<'a> {
    /// Name of the experiment: of the marks in a document, and of its pictures.
    pub name: &'a str,
    /// Where, when and how.
    pub conditions: &'a Conditions,
    /// How large everything was, in words.
    pub sizes: &'a str,
    /// The columns.
    pub arms: &'a [ArmInfo],
    /// Key of the column that ratios refer to, and its name.
    pub base: (&'a str, &'a str),
    /// The figures.
    pub rows: &'a [Row],
    /// Goals.
    pub goals: &'a [Goal],
    /// Pictures.
    pub charts: &'a [Chart],
    /// Pictures of stacked bars.
    pub stacks: &'a [Stack],
    /// Notes.
    pub notes: &'a [String],
}

/// The figures, the goals, and what has to be known of them.
pub(crate) fn table(figures: &Figures<'_>) -> String {
    let conditions = figures.conditions;
    let machine = &conditions.machine;
    let rounds = match conditions.rounds {
        1 => "one round".to_owned(),
        rounds => format!("median of {rounds} interleaved rounds"),
    };
    let mut text = format!(
        "Measured {} by `{}` on {} cores ({}), {} of memory, {}, {}; {}; {rounds}.",
        conditions.started,
        conditions.repeat,
        machine.cores,
        machine.processor,
        number::bytes(machine.memory_bytes),
        machine.kernel,
        machine.backing,
        figures.sizes,
    );
    if let Some(warning) = warning(conditions) {
        text.push_str(&format!(" {warning}"));
    }
    text.push_str("\n\n");
    let arms: Vec<_> = figures.arms.iter().filter(|arm| !arm.is_absent(figures.rows)).collect();
    if !figures.rows.is_empty() {
        text.push_str("| |");
        arms.iter().for_each(|arm| text.push_str(&format!(" {} |", arm.label)));
        text.push_str("\n|---|");
        arms.iter().for_each(|_| text.push_str("---:|"));
        text.push('\n');
        for row in figures.rows {
            text.push_str(&format!("| {}, {} |", row.label, row.unit));
            for arm in &arms {
                text.push_str(&format!(" {} |", cell(row, &arm.key, figures.base.0)));
            }
            text.push('\n');
        }
        let base = figures.base.1;
        text.push_str(&format!("\nIn brackets: ratio to {base}, above 1 is better than {base}.\n\n"));
    }
    for arm in figures.arms {
        if let Some(lacking) = arm.lacking(figures.rows) {
            text.push_str(&format!("{lacking}\n\n"));
        }
    }
    if !figures.goals.is_empty() {
        text.push_str("| goal | measured | spread | |\n|---|---:|---:|---|\n");
        for goal in figures.goals {
            let range = goal
                .range
                .filter(|_| conditions.rounds > 1)
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
    for note in figures.notes {
        text.push_str(&format!("{note}\n\n"));
    }
    text
}

fn cell(row: &Row, arm: &str, base: &str) -> String {
    match (row.median(arm), row.ratio(arm, base)) {
        (None, _) => "-".to_owned(),
        (Some(value), Some(ratio)) if arm != base => format!("{} ({ratio:.2})", shown(value)),
        (Some(value), _) => shown(value),
    }
}

/// Writes the table between the marks of a document, or at its end, and the pictures into `img`
/// beside it.
pub(crate) fn insert(figures: &Figures<'_>, document: &Path) -> Result<(), Error> {
    let old = match fs::read_to_string(document) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Error::io("read", document)(error)),
    };
    let mut body = table(figures);
    let folder = document.parent().unwrap_or(Path::new(".")).join("img");
    if !figures.charts.is_empty() || !figures.stacks.is_empty() {
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    }
    let charts =
        figures.charts.iter().map(|drawn| (&drawn.key, chart::svg(drawn, true), &drawn.title, &drawn.how));
    let stacks =
        figures.stacks.iter().map(|drawn| (&drawn.key, stack::svg(drawn, true), &drawn.title, &drawn.how));
    for (key, picture, title, how) in stacks.chain(charts) {
        let name = format!("{}-{}.svg", figures.name, key.replace('_', "-"));
        let path = folder.join(&name);
        fs::write(&path, picture).map_err(Error::io("write", &path))?;
        body.push_str(&format!("![{title}](img/{name})\n\n{how}\n\n"));
    }
    fs::write(document, placed(&old, &body, figures.name)).map_err(Error::io("write", document))
}

/// The document with `body` between its marks, `<!-- NAME -->` and `<!-- /NAME -->`.
fn placed(old: &str, body: &str, name: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->"), format!("<!-- /{name} -->"));
    let body = body.trim_end();
    match old.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1))) {
        Some((before, after)) => format!("{before}{begin}\n\n{body}\n\n{end}{after}"),
        None => format!("{old}\n{begin}\n\n{body}\n\n{end}\n").trim_start().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let old = "# Title\n\n<!-- engine -->\nold\n<!-- /engine -->\n\nbelow\n";
        let placed = |old: &str, body: &str| placed(old, body, "engine");
        assert_eq!(
            placed(old, "new\n\n"),
            "# Title\n\n<!-- engine -->\n\nnew\n\n<!-- /engine -->\n\nbelow\n"
        );
        assert_eq!(placed(&placed(old, "a"), "b"), placed(old, "b"));
        assert_eq!(placed("", "x"), "<!-- engine -->\n\nx\n\n<!-- /engine -->\n");
    }

    #[test]
    fn two_experiments_share_a_document() {
        let both = placed(&placed("# Title\n", "one", "cow"), "two", "journal");
        let again = placed(&both, "three", "cow");
        assert!(again.contains("three") && again.contains("two") && !again.contains("one"), "{again}");
    }
}
