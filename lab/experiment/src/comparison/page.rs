//! The page: goals, figures, pictures, what was run. One file, no script needed, light and dark.

use super::report::ComparisonReport;
use steadfast_lab_report::html::parts;
use steadfast_lab_report::number;

/// The whole page.
pub fn render(report: &ComparisonReport) -> String {
    let conditions = &report.conditions;
    let machine = &conditions.machine;
    let cores = format!("{} cores, {} memory", machine.cores, number::bytes(machine.memory_bytes));
    let heading = report.heading();
    let (base, base_name) = (heading.base.0.as_str(), heading.base.1.as_str());
    let mut page = parts::opening(
        &heading.title,
        &heading.question,
        &report.summary,
        report.warning().as_deref(),
        &[&conditions.target, &cores, &machine.kernel, &report.sizes, &conditions.started],
    );
    if !report.goals.is_empty() {
        page.push_str(&parts::section(
            "Goals",
            "A ratio above 1 is better than the reference.",
            &parts::goals(&report.goals, conditions.rounds),
        ));
    }
    if !report.stacks.is_empty() {
        page.push_str(&parts::section("Where the time goes", "", &parts::stacks(&report.stacks)));
    }
    if !report.rows.is_empty() {
        let lead = format!(
            "Median of {}; below it the ratio to {base_name}, above 1 is better than {base_name}.",
            parts::rounds(conditions.rounds)
        );
        page.push_str(&parts::section(
            "The figures",
            &lead,
            &parts::figures(&report.arms, &report.rows, base),
        ));
        let lead = "The bar is the median of the rounds, the thin line the smallest and the largest.";
        page.push_str(&parts::section("The figures, drawn", lead, &parts::bars(&report.arms, &report.rows)));
    }
    if !report.charts.is_empty() {
        page.push_str(&parts::section("Curves", "", &parts::charts(&report.charts)));
    }
    page.push_str(&parts::section("Read this before you compare", "", &notes(report)));
    let run = format!(
        "{}<details><summary>Commands, each once</summary>{}</details>\n",
        parts::facts(conditions),
        parts::commands(&report.commands)
    );
    page.push_str(&parts::section("Commands and conditions", "", &run));
    page.push_str(&parts::footer(conditions, &report.schema, report.version));
    parts::linked(page + "</main>\n</body>\n</html>\n")
}

/// Notes for every run of `engine`.
fn of_the_engine() -> Vec<String> {
    vec![
        "Image files lie on one disk beside each other; kernel file systems are mounted from loop devices over them, with \
         the options their tools choose, and every pool has a daemon of its own."
            .to_owned(),
        "Cold means: everything was unmounted (our pools exported), written back, the kernel's caches were dropped with \
         those of the image files, and everything was mounted again."
            .to_owned(),
        "Bytes to the device are what the loop device was told to write, and for our pools what the daemon's process wrote."
            .to_owned(),
        "The empty FUSE file system keeps names in memory and does nothing else: what FUSE itself costs on this machine."
            .to_owned(),
        "A goal is within the spread if the median of the rounds misses it and the best of ours against the worst of the \
         others does not."
            .to_owned(),
    ]
}

fn notes(report: &ComparisonReport) -> String {
    let mut items = if report.heading.is_none() { of_the_engine() } else { Vec::new() };
    items.extend(report.arms.iter().filter_map(|arm| arm.lacking(&report.rows)));
    items.extend(report.notes.iter().cloned());
    parts::notes(&items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_lab_report::figures::goals::{ratio, summary};

    use crate::comparison::tests::report;

    #[test]
    fn the_page_is_one_file_that_shows_figures_goals_and_who_was_missing() {
        let mut whole = report("write", true, &[("ext4", &[977.0]), ("plain", &[428.0])]);
        whole.goals.extend(ratio(&whole.rows, "write", "plain", "ext4", 0.7, "at least 0.7 of ext4"));
        whole.summary = summary(&whole.goals);
        whole.arms[0].missing = Some("mkfs.<ext4> is not installed".to_owned());
        let page = render(&whole);
        assert!(page.starts_with("<!DOCTYPE html>") && page.contains("not met") && page.contains("0.44"));
        assert!(page.contains("mkfs.&lt;ext4&gt; is not installed") && !page.contains("http-equiv"));
        assert!(!page.contains("src=\"http") && !page.contains("href=\"http"));
    }
}
