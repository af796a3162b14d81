//! The compact table on the terminal.

use steadfast_lab_report::number;
use steadfast_lab_report::report::Report;

/// The table of the report as lines of text, columns aligned.
pub fn table(report: &Report) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let headings: Vec<Vec<&str>> = report.measures.iter().map(|measure| split(&measure.label)).collect();
    let lines = headings.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..lines {
        let mut row = vec![String::new()];
        for heading in &headings {
            // Headings end on the same line.
            let skip = lines - heading.len();
            let word = if line >= skip { heading[line - skip] } else { "" };
            row.push(word.to_owned());
        }
        rows.push(row);
    }
    let ours = rows.len();
    for arm in &report.arms {
        let mut row = vec![arm.label.clone()];
        for measure in &report.measures {
            row.push(
                measure
                    .median(&arm.key)
                    .map_or_else(|| "-".to_owned(), |value| number::with_unit(value, measure.unit)),
            );
        }
        rows.push(row);
    }
    let theirs = rows.len();
    for source in &report.sources {
        for arm in &report.arms {
            let mut row = vec![format!("  {}, {}", source.label, arm.short)];
            for measure in &report.measures {
                row.push(
                    measure
                        .published(&source.key, &arm.key)
                        .map_or_else(|| "-".to_owned(), |figure| figure.printed.clone()),
                );
            }
            rows.push(row);
        }
    }
    let columns = report.measures.len() + 1;
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let rule: usize = widths.iter().sum::<usize>() + 3 * (columns - 1);
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        if index == ours || index == theirs {
            text.push_str(&"-".repeat(rule));
            text.push('\n');
        }
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(
                |(column, (cell, width))| {
                    if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                },
            )
            .collect();
        text.push_str(cells.join("   ").trim_end());
        text.push('\n');
    }
    if let Some(warning) = report.warning() {
        text.push_str(&format!("\nNote: {warning}\n"));
    }
    text
}

/// A heading cut into short lines.
fn split(label: &str) -> Vec<&str> {
    if label.len() <= 11 { vec![label] } else { label.split(' ').collect() }
}
