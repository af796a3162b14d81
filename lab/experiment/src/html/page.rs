//! The page: its order of sections and their words.

use super::{STYLE, bars, colour, escape, lines, tables};
use crate::number;
use crate::report::Report;

/// Opens what is folded before printing. Without scripts only the fold stays.
const PRINT: &str =
    "addEventListener('beforeprint',()=>{for(const d of document.querySelectorAll('details'))d.open=true})";

/// The whole page.
pub fn render(report: &Report) -> String {
    let title = escape(&report.title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<main>\n"
    );
    page.push_str(&heading(report));
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
            "What turning it on costs, here and there",
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
            lines::percentiles(report),
            tables::percentiles(report)
        ),
    ));
    page.push_str(&section(
        "Over time",
        "Each run of the load, interval by interval. The first interval is warm-up: it is drawn, and not counted in the averages.",
        &format!(
            "{}<div class=\"cards wide\">\n{}</div>\n<details><summary>The intervals as a table</summary>{}</details>\n",
            legend(report),
            lines::over_time(report),
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
    page.push_str(&section("What was run", "", &what_was_run(report)));
    page.push_str(&section("Read this before you compare", "", &notes(report)));
    page.push_str(&format!(
        "<footer>Made by <code>{}</code> on {}. The same figures for programs: <code>report.json</code>, schema {} version {}.</footer>\n",
        escape(&report.conditions.repeat),
        escape(&report.conditions.started),
        escape(&report.schema),
        report.version
    ));
    page.push_str(&format!("</main>\n<script>{PRINT}</script>\n</body>\n</html>\n"));
    page
}

fn section(title: &str, lead: &str, body: &str) -> String {
    let lead =
        if lead.is_empty() { String::new() } else { format!("<p class=\"lead\">{}</p>\n", escape(lead)) };
    format!("<section>\n<h2>{}</h2>\n{lead}{body}</section>\n", escape(title))
}

fn heading(report: &Report) -> String {
    let conditions = &report.conditions;
    let machine = &conditions.machine;
    format!(
        "<header>\n<p class=\"eyebrow\">Steadfast lab</p>\n<h1>{}</h1>\n<p class=\"question\">{}</p>\n\
         <p class=\"summary\">{}</p>\n{}<ul class=\"facts\"><li><b>{}</b></li><li>{} cores, {} memory</li>\
         <li>{}</li><li>{}</li></ul>\n</header>\n",
        escape(&report.title),
        escape(&report.question),
        escape(&report.summary),
        report
            .warning()
            .map_or_else(String::new, |text| format!("<p class=\"warning\">{}</p>\n", escape(&text))),
        escape(&conditions.target),
        machine.cores,
        number::bytes(machine.memory_bytes),
        escape(&machine.kernel),
        escape(&conditions.started),
    )
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
    let conditions = &report.conditions;
    let machine = &conditions.machine;
    let mut facts = vec![
        ("Measured", conditions.target.clone()),
        ("Started", conditions.started.clone()),
        ("Took", format!("{:.0} s, {} of the load", conditions.seconds, rounds(conditions.rounds))),
    ];
    if let Some(seconds) = conditions.elapsed_override_s {
        facts.push(("Shortened", format!("each run took {seconds} s instead of what the file says")));
    }
    facts.extend([
        ("Processor", format!("{}, {} logical", machine.processor, machine.cores)),
        ("Memory", number::bytes(machine.memory_bytes)),
        ("System", format!("{}, {}", machine.system, machine.kernel)),
        ("Image files on", machine.backing.clone()),
        (
            "Machine before",
            format!(
                "{:.0} % busy in the second before the load; load average of the minute before {:.2}",
                machine.busy_before_percent, machine.load_before
            ),
        ),
        ("Repeat it", conditions.repeat.clone()),
    ]);
    let mut body = String::from("<dl>\n");
    for (name, text) in facts {
        body.push_str(&format!("<dt>{name}</dt><dd>{}</dd>\n", escape(&text)));
    }
    body.push_str("</dl>\n");
    body.push_str(&format!(
        "<h3>Parameter file <code>{}</code>, as it is</h3>\n<pre tabindex=\"0\">{}</pre>\n",
        escape(&report.load.file),
        escape(&report.load.text)
    ));
    if !report.load.mapping.is_empty() {
        let mapping: Vec<String> =
            report.load.mapping.iter().map(|(from, to)| format!("{from}  →  {to}")).collect();
        body.push_str(&format!(
            "<h3>Anchors of the file, and where they were in this run</h3>\n<pre tabindex=\"0\">{}</pre>\n",
            escape(&mapping.join("\n"))
        ));
    }
    if !report.commands.is_empty() {
        let lines: Vec<String> = report
            .commands
            .iter()
            .map(|command| match command.status {
                Some(0) => format!("$ {}", command.line),
                Some(status) => format!("$ {}    # exit status {status}", command.line),
                None => format!("$ {}    # ended by a signal", command.line),
            })
            .collect();
        body.push_str(&format!(
            "<h3>Commands</h3>\n<pre tabindex=\"0\">{}</pre>\n",
            escape(&lines.join("\n"))
        ));
    }
    body
}

fn rounds(rounds: u32) -> String {
    if rounds == 1 { "one round".to_owned() } else { format!("{rounds} rounds") }
}

fn notes(report: &Report) -> String {
    let items: String = report.notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
    let mut body = format!("<ul class=\"notes\">\n{items}</ul>\n");
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
