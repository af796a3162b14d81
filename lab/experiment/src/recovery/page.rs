//! The page: goals, curves, figures, the source's own figures, what was run. One file, no script
//! needed, light and dark.

use super::report::RecoveryReport;
use super::small_files;
use steadfast_lab_report::figures::{Row, shown};
use steadfast_lab_report::html::{escape, parts};
use steadfast_lab_report::number;

/// The whole page.
pub fn render(report: &RecoveryReport) -> String {
    let conditions = &report.conditions;
    let machine = &conditions.machine;
    let cores = format!("{} cores, {} memory", machine.cores, number::bytes(machine.memory_bytes));
    let mut page = parts::opening(
        &report.title,
        &report.question,
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
    page.push_str(&parts::section(
        "The curves",
        "Against how full the pool was, and over time.",
        &parts::charts(&report.charts),
    ));
    let base = report.arms.first().map_or("", |arm| arm.key.as_str());
    page.push_str(&parts::section(
        "The figures",
        &format!("Median of {}; below it the ratio to the first column.", parts::rounds(conditions.rounds)),
        &parts::figures(&report.arms, &report.rows, base),
    ));
    let drawn: Vec<Row> =
        report.rows.iter().filter(|row| row.key.ends_with("75") && row.unit == "MB/s").cloned().collect();
    page.push_str(&parts::section(
        "Drawn: 75 % full",
        "The bar is the median of the rounds, the thin line the smallest and the largest.",
        &parts::bars(&report.arms, &drawn),
    ));
    let small: Vec<Row> = report.rows.iter().filter(|row| small_files::is_of_this(row)).cloned().collect();
    if !small.is_empty() {
        let mut answers: Vec<String> = small_files::of_scans(&report.rows).into_iter().collect();
        answers.extend(small_files::answers(&report.rows, &report.model));
        page.push_str(&parts::section(
            "Open questions of the source report: memory, and fast devices beside slow ones",
            &answers.join(" "),
            &parts::bars(&report.arms[..1], &small),
        ));
    }
    page.push_str(&parts::section(
        "Beside the source report",
        "Other machine, other disks; what compares is recovery against the clone of the same device.",
        &beside_the_source(report),
    ));
    page.push_str(&parts::section("Read this before you compare", "", &parts::notes(&notes(report))));
    let run = format!(
        "{}<details><summary>Commands, each once</summary>{}</details>\n<details><summary>Every scrub and resilver</summary>{}</details>\n",
        parts::facts(conditions),
        parts::commands(&report.commands),
        courses(report)
    );
    page.push_str(&parts::section("Commands and conditions", "", &run));
    page.push_str(&parts::footer(conditions, &report.schema, report.version));
    parts::linked(page + "</main>\n</body>\n</html>\n")
}

fn beside_the_source(report: &RecoveryReport) -> String {
    let mut table = String::from(
        "<thead><tr><th scope=\"col\"></th><th scope=\"col\">Source report</th></tr></thead>\n<tbody>\n",
    );
    for reported in &report.reported {
        table.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n",
            escape(&reported.what),
            escape(&reported.printed)
        ));
    }
    let rows = [
        ("heal75", "healed here at 75 %"),
        ("resilver75", "resilvered here at 75 %"),
        ("clone", "clone here"),
    ];
    for (key, what) in rows {
        let Some(row) = report.rows.iter().find(|row| row.key == key) else { continue };
        for arm in &report.arms {
            if let Some(value) = row.median(&arm.key) {
                table.push_str(&format!(
                    "<tr class=\"ours\"><th scope=\"row\">{}, {}</th><td>{} MB/s</td></tr>\n",
                    escape(&arm.label),
                    what,
                    shown(value)
                ));
            }
        }
    }
    format!("<p>{}</p>\n{}", escape(&report.source), parts::scroll(&(table + "</tbody>\n")))
}

fn notes(report: &RecoveryReport) -> Vec<String> {
    let mut notes = vec![
        "The device is flooded behind the pool's back while it is mounted; labels (of btrfs the superblocks) stay, as a device \
         without any is a device that is gone. Then a scrub heals it in place. Separately another device is flooded and \
         replaced, so that what is rebuilt comes from the others."
            .to_owned(),
        "dd reads and clones the same devices in the same run, directly, 1 MiB at a time: one transfer under way. A scrub has a \
         transfer under way on every device, so on devices that are files of one disk its rate may be above dd's."
            .to_owned(),
    ];
    notes.extend(report.arms.iter().filter_map(|arm| arm.lacking(&report.rows)));
    notes.extend(report.notes.iter().cloned());
    notes
}

/// Every scrub and resilver: the table behind the figures.
fn courses(report: &RecoveryReport) -> String {
    let mut table = String::from(
        "<thead><tr><th scope=\"col\">What</th><th scope=\"col\">Round</th><th scope=\"col\">Full<small>%</small></th>\
         <th scope=\"col\">Took<small>s</small></th><th scope=\"col\">Read<small>MB</small></th>\
         <th scope=\"col\">Written<small>MB</small></th></tr></thead>\n<tbody>\n",
    );
    for course in &report.courses {
        table.push_str(&format!(
            "<tr><th scope=\"row\">{}, {}</th><td>{}</td><td>{}</td><td>{:.2}</td><td>{}</td><td>{}</td></tr>\n",
            escape(&course.arm),
            escape(&course.what),
            course.round,
            course.fill,
            course.seconds,
            shown(course.read as f64 / 1e6),
            shown(course.written as f64 / 1e6)
        ));
    }
    parts::scroll(&(table + "</tbody>\n"))
}

#[cfg(test)]
mod tests {
    use steadfast_lab_report::report::Conditions;

    use super::*;
    use crate::options::tests::read;
    use crate::recovery::report::parse;

    #[test]
    fn the_source_s_figures_are_carried() {
        let report = RecoveryReport::new(&read(""), Conditions::default(), 1 << 30);
        let rates: Vec<f64> = report.reported.iter().map(|reported| reported.rate).collect();
        assert_eq!(rates, [75.0, 32.0, 60.0, 30.0]);
        let page = render(&report);
        assert!(page.contains("75 MB/s") && page.contains("</html>"), "{page}");
        assert!(parse(&serde_json::to_string(&report).unwrap()).unwrap().is_ok());
    }
}
