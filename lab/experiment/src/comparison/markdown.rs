//! The report as Markdown, for a document.

use super::report::{ComparisonReport, Heading};
use crate::document::Figures;

/// Contents of the table in a document.
pub(crate) fn figures<'a>(report: &'a ComparisonReport, heading: &'a Heading) -> Figures<'a> {
    Figures {
        name: &heading.name,
        conditions: &report.conditions,
        sizes: &report.sizes,
        arms: &report.arms,
        base: (&heading.base.0, &heading.base.1),
        rows: &report.rows,
        goals: &report.goals,
        charts: &report.charts,
        stacks: &report.stacks,
        notes: &report.notes,
    }
}

/// The figures, the goals, and what has to be known of them.
pub(super) fn table(report: &ComparisonReport) -> String {
    crate::document::table(&figures(report, &report.heading()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_lab_report::figures::goals::ratio;

    use crate::comparison::tests::report;

    #[test]
    fn the_table_has_ratios_and_goals() {
        let mut whole = report("write", true, &[("ext4", &[977.0, 977.0]), ("plain", &[428.0, 430.0])]);
        let text = "sequential write at least 0.7 of ext4";
        whole.goals.extend(ratio(&whole.rows, "write", "plain", "ext4", 0.7, text));
        let text = table(&whole);
        assert!(text.contains("| a row, 1/s | 977 | 429 (0.44) |"), "{text}");
        assert!(
            text.contains("| sequential write at least 0.7 of ext4 | 0.44 | 0.44 to 0.44 | not met |"),
            "{text}"
        );
    }
}
