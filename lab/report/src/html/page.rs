//! The page: its order of sections and their words.

use super::parts::{self, commands, facts, footer, opening, parameter_file, section};
use super::{bars, colour, escape, lines, tables};
use crate::number;
use crate::report::Report;

/// Opens what is folded before printing. Without scripts only the fold stays.
const PRINT: &str =
    "addEventListener('beforeprint',()=>{for(const d of document.querySelectorAll('details'))d.open=true})";

/// The whole page.
pub fn render(report: &Report) -> String {
    let conditions = &report.conditions;
    let machine = &conditions.machine;
    let cores = format!("{} cores, {} memory", machine.cores, number::bytes(machine.memory_bytes));
    let mut page = opening(
        &report.title,
        &report.question,
        &report.summary,
        report.warning().as_deref(),
        &[&conditions.target, &cores, &machine.kernel, &conditions.started],
    );
    let beside = !report.sources.is_empty();
    page.push_str(&section(
        if beside { "The table of the source reports, repeated" } else { "The figures" },
        if beside {
            "The same files, the same load, the same columns. CPU is the whole machine unless it says daemon."
        } else {
            "CPU is the whole machine."
        },
        &tables::comparison(report),
    ));
    let charts = format!("{}<div class=\"cards\">\n{}</div>\n", legend(report), bars::cards(report));
    let short = |index: usize| report.arms.get(index).map_or("", |arm| arm.short.as_str());
    let last = report.arms.len().saturating_sub(1);
    page.push_str(&section(
        &format!("{} against {}", lines::capital(short(0)), short(last)),
        &if report.conditions.rounds > 1 {
            format!(
                "Bars show the middle of {} rounds, the thin line on a bar the smallest and the greatest.",
                report.conditions.rounds
            )
        } else {
            "Shorter is better in every chart.".to_owned()
        },
        &charts,
    ));
    if beside {
        page.push_str(&section(
            "Cost of turning it on, here and in the reports",
            "Machines differ, so milliseconds of one cannot be held against those of another. How many times more the \
             same machine needs can. The dotted line is 1×: no difference.",
            &bars::ratios(report),
        ));
    }
    page.push_str(&section(
        "Response times beyond the mean",
        "Of 1,000 operations, 500 were quicker than p50, 990 quicker than p99 and 999 quicker than p99.9.",
        &format!(
            "{}<div class=\"cards wide\">\n{}</div>\n{}",
            legend(report),
            lines::percentiles(&report.into()),
            tables::percentiles(report)
        ),
    ));
    page.push_str(&section(
        "Over time",
        "Each run of the load, interval by interval. The first interval is warm-up: it is drawn, and not counted in the averages.",
        &format!(
            "{}<div class=\"cards wide\">\n{}</div>\n<details><summary>The intervals as a table</summary>{}</details>\n",
            legend(report),
            lines::over_time(&report.into()),
            tables::intervals(report)
        ),
    ));
    let space = tables::space(report);
    if !space.is_empty() {
        page.push_str(&section(
            "Space, asked in several ways",
            "After the last run. The first column is what the source reports call disk usage.",
            &space,
        ));
    }
    page.push_str(&section("Commands and conditions", "", &what_was_run(report)));
    page.push_str(&section("Read this before you compare", "", &notes(report)));
    page.push_str(&footer(conditions, &report.schema, report.version));
    page.push_str(&format!("</main>\n<script>{PRINT}</script>\n</body>\n</html>\n"));
    parts::linked(page)
}

fn legend(report: &Report) -> String {
    let items: String = report
        .arms
        .iter()
        .enumerate()
        .map(|(index, arm)| {
            format!("<li><span class=\"swatch {}\"></span>{}</li>", colour(index), escape(&arm.label))
        })
        .collect();
    format!("<ul class=\"legend\">{items}</ul>\n")
}

fn what_was_run(report: &Report) -> String {
    let mut body = facts(&report.conditions) + &parameter_file(&report.load);
    if !report.commands.is_empty() {
        body.push_str(&format!("<h3>Commands</h3>\n{}\n", commands(&report.commands)));
    }
    body
}

fn notes(report: &Report) -> String {
    let mut body = parts::notes(&report.notes);
    if !report.sources.is_empty() {
        let sources: String = report
            .sources
            .iter()
            .map(|source| format!("<dt>{}</dt><dd>{}</dd>\n", escape(&source.label), escape(&source.about)))
            .collect();
        body.push_str(&format!("<h3>The source reports</h3>\n<dl>\n{sources}</dl>\n"));
    }
    let how: String = report
        .measures
        .iter()
        .map(|measure| format!("<dt>{}</dt><dd>{}</dd>\n", escape(&measure.label), escape(&measure.how)))
        .collect();
    body.push_str(&format!("<h3>How each figure was taken</h3>\n<dl>\n{how}</dl>\n"));
    body
}
