//! The page: goals, figures, lines over time, what was run. One file, no script needed, light and
//! dark.

use super::BASE;
use super::report::{BesideReport, Variant};
use steadfast_lab_report::figures::{Row, shown};
use steadfast_lab_report::html::lines::{self, Runs};
use steadfast_lab_report::html::{escape, parts};
use steadfast_lab_report::number;
use steadfast_lab_report::report::Phase;

/// Rows that are drawn as bars: what a reader compares first.
const DRAWN: [&str; 5] = ["rate", "worst", "p999", "bytes", "space"];

/// The whole page.
pub fn render(report: &BesideReport) -> String {
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
    let base = report.arms.iter().find(|arm| arm.key == BASE).map_or("the first", |arm| arm.label.as_str());
    for variant in &report.variants {
        let rows = rows_of(report, variant);
        if rows.is_empty() {
            continue;
        }
        page.push_str(&parts::section(&lines::capital(&variant.name), &variant.how, ""));
        let lead = format!(
            "Median of {}; below it the ratio to {base}, above 1 is better.",
            parts::rounds(conditions.rounds)
        );
        page.push_str(&parts::section(
            &format!("The figures: {}", variant.name),
            &lead,
            &parts::figures(&report.arms, &rows, BASE),
        ));
        page.push_str(&over_time(report, variant));
        let drawn: Vec<Row> =
            rows.iter().filter(|row| DRAWN.contains(&&row.key[variant.prefix.len()..])).cloned().collect();
        page.push_str(&parts::section(
            &format!("Drawn: {}", variant.name),
            "The bar is the median of the rounds, the thin line the smallest and the largest.",
            &parts::bars(&report.arms, &drawn),
        ));
    }
    page.push_str(&parts::section(
        "Beside the source report",
        "Other machine, other program; the shape compares, the height does not.",
        &beside_the_source(report),
    ));
    page.push_str(&parts::section("Read this before you compare", "", &parts::notes(&notes(report))));
    let run = format!(
        "{}{}<details><summary>Commands, each once</summary>{}</details>\n",
        parts::facts(conditions),
        parts::parameter_file(&report.load),
        parts::commands(&report.commands)
    );
    page.push_str(&parts::section("Commands and conditions", "", &run));
    page.push_str(&parts::footer(conditions, &report.schema, report.version));
    parts::linked(page + "</main>\n</body>\n</html>\n")
}

/// The rows of one variant, its name left off their labels.
fn rows_of(report: &BesideReport, variant: &Variant) -> Vec<Row> {
    let begin = format!("{}: ", variant.name);
    let own = |row: &Row| {
        let label = row.label.strip_prefix(&begin)?.to_owned();
        Some(Row { label, ..row.clone() })
    };
    report.rows.iter().filter_map(own).collect()
}

fn over_time(report: &BesideReport, variant: &Variant) -> String {
    let phases: Vec<Phase> =
        report.phases.iter().filter(|phase| phase.operation == variant.name).cloned().collect();
    // At the end of a line there is room for a short name.
    let short: Vec<String> =
        report.arms.iter().map(|arm| arm.label.replace("data=", "").replace("journal=", "")).collect();
    let arms = report.arms.iter().zip(&short).map(|(arm, name)| (arm.key.as_str(), name.as_str())).collect();
    let runs = Runs { arms, phases: &phases };
    let together = parts::section(
        &format!("Over time: {}", variant.name),
        "Interval by interval, the last round; the first interval is warm-up: drawn, and not counted in the averages.",
        &format!(
            "<div class=\"cards full\">\n{}{}</div>\n<details><summary>The intervals as a table</summary>{}</details>\n",
            lines::over_time(&runs),
            lines::percentiles(&runs),
            intervals(report, &phases)
        ),
    );
    let alone = parts::section(
        &format!("Each for itself: {}", variant.name),
        "The rate of every round on a scale of its own: how even it is.",
        &format!("<div class=\"cards\">\n{}</div>\n", lines::each_rate(&runs, &variant.name)),
    );
    together + &alone
}

/// Every interval of every run: the table behind the lines.
fn intervals(report: &BesideReport, phases: &[Phase]) -> String {
    let mut table = String::from(
        "<thead><tr><th scope=\"col\">File system</th><th scope=\"col\">Round</th><th scope=\"col\">At<small>s</small></th>\
         <th scope=\"col\">Rate<small>/s</small></th><th scope=\"col\">Response<small>ms</small></th>\
         <th scope=\"col\">CPU<small>%</small></th></tr></thead>\n<tbody>\n",
    );
    for phase in phases {
        let label = report.arms.iter().find(|arm| arm.key == phase.arm).map_or("", |arm| arm.label.as_str());
        for interval in &phase.intervals {
            table.push_str(&format!(
                "<tr><th scope=\"row\">{}</th><td>{}</td><td>{:.0}</td><td>{:.1}</td><td>{}</td><td>{:.1}</td></tr>\n",
                escape(label),
                phase.round,
                interval.at_s,
                interval.rate,
                interval.response_ms.map_or_else(|| "\u{2013}".to_owned(), number::milliseconds),
                interval.cpu_total
            ));
        }
    }
    parts::scroll(&(table + "</tbody>\n"))
}

/// The report's figures, and the same figures of ours.
fn beside_the_source(report: &BesideReport) -> String {
    let mut table = String::from(
        "<thead><tr><th scope=\"col\">As the file says</th><th scope=\"col\">Source report</th>",
    );
    for (index, arm) in report.arms.iter().enumerate() {
        table.push_str(&format!(
            "<th scope=\"col\"><span class=\"dot a{index}\"></span>{}</th>",
            escape(&arm.label)
        ));
    }
    table.push_str("</tr></thead>\n<tbody>\n");
    for figure in &report.reported {
        let row = report.row(&figure.row);
        let unit = row.map_or("", |row| row.unit.as_str());
        table.push_str(&format!(
            "<tr><th scope=\"row\">{}<small> {}</small></th><td>{}</td>",
            escape(&figure.what),
            escape(unit),
            printed(figure.value)
        ));
        for arm in &report.arms {
            table.push_str(&match row.and_then(|row| row.median(&arm.key)) {
                Some(value) => format!("<td>{}</td>", shown(value)),
                None => "<td class=\"none\">\u{2013}</td>".to_owned(),
            });
        }
        table.push_str("</tr>\n");
    }
    format!("<p>{}</p>\n{}", escape(&report.source), parts::scroll(&(table + "</tbody>\n")))
}

/// As the report printed it: whole numbers with commas, times to the microsecond.
fn printed(value: f64) -> String {
    if value >= 1_000.0 {
        let whole = format!("{value:.0}");
        let (head, tail) = whole.split_at(whole.len() - 3);
        format!("{head},{tail}")
    } else {
        format!("{value:.3}")
    }
}

fn notes(report: &BesideReport) -> Vec<String> {
    let mut notes = vec![
        "Each file system is made anew for each round, filled with one file of data that does not compress, and taken away \
         behind it; the disk below holds one image at a time, and all images have the same size."
            .to_owned(),
        "Before the clock starts everything was unmounted (our pools exported) and mounted again with the kernel's caches \
         and those of the image dropped, and the whole file was read once."
            .to_owned(),
        "Kernel file systems lie on loop devices, whose writes end in the page cache of the image until somebody asks for a \
         flush; our daemon writes past that cache. Writes that were still in memory at the end of a run are counted in the \
         bytes and not in its time, for everybody alike."
            .to_owned(),
        "The parameter file names one place for one file system; only that place is mapped. Unless this page says that it was \
         asked for, neither size nor duration is changed."
            .to_owned(),
        "Processor use is the whole machine's: the load, the kernel, the daemon, and whatever else ran. The daemon's own is in \
         rows of its own."
            .to_owned(),
        "A goal is within the spread if the median of the rounds misses it and the best of ours against the worst of the \
         others does not."
            .to_owned(),
    ];
    notes.extend(report.arms.iter().filter_map(|arm| arm.lacking(&report.rows)));
    if report.conditions.rounds == 1 {
        notes.push("One round: no spread is known.".to_owned());
    }
    notes.extend(report.notes.iter().cloned());
    notes
}
