//! The page: goals, figures, pictures, what was run. One file, no script needed, light and dark.

use super::chart;
use super::data::{EngineReport, Row, Verdict, shown};
use super::markdown::BASE;
use crate::html::{STYLE, escape};
use crate::number;

/// The whole page.
pub fn render(report: &EngineReport) -> String {
    let machine = &report.conditions.machine;
    let title = "How fast the engine is, beside others on the same disk";
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<main>\n<header>\n<p class=\"eyebrow\">Steadfast lab</p>\n<h1>{title}</h1>\n\
         <p class=\"question\">Everything goes through the mount, on image files on the same disk, in one run, in \
         interleaved rounds.</p>\n<p class=\"summary\">{}</p>\n",
        escape(&report.summary)
    );
    if let Some(warning) = report.warning() {
        page.push_str(&format!("<p class=\"warning\">{}</p>\n", escape(&warning)));
    }
    page.push_str(&format!(
        "<ul class=\"facts\"><li><b>{}</b></li><li>{} cores, {} memory</li><li>{}</li><li>{}</li><li>{}</li></ul>\n</header>\n",
        escape(&report.conditions.target),
        machine.cores,
        number::bytes(machine.memory_bytes),
        escape(&machine.kernel),
        escape(&report.sizes),
        escape(&report.conditions.started),
    ));
    if !report.goals.is_empty() {
        section(
            &mut page,
            "What was to be reached",
            "A ratio above 1 is better than what it is held against.",
            &goals(report),
        );
    }
    if !report.rows.is_empty() {
        let lead = format!(
            "Median of {} rounds; below it the ratio to ext4, above 1 is better than ext4.",
            report.conditions.rounds
        );
        section(&mut page, "The figures", &lead, &figures(report));
        let lead = "The bar is the middle of the rounds, the thin line the smallest and the greatest.";
        section(&mut page, "The same, drawn", lead, &bars(report));
    }
    if !report.charts.is_empty() {
        let cards: String = report
            .charts
            .iter()
            .map(|drawn| {
                format!(
                    "<figure class=\"card\"><figcaption><h3>{}</h3><p>{}</p></figcaption>\n{}{}</figure>\n",
                    escape(&drawn.title),
                    escape(&drawn.how),
                    chart::svg(drawn, false),
                    numbers(drawn)
                )
            })
            .collect();
        section(
            &mut page,
            "As it grows, and as it fills",
            "",
            &format!("<div class=\"cards charts\">\n{cards}</div>\n"),
        );
    }
    section(&mut page, "Read this before you compare", "", &notes(report));
    section(&mut page, "What was run", "", &run(report));
    page.push_str(&format!(
        "<footer>Made by <code>{}</code>. The same figures for programs: <code>report.json</code>, schema {} version {}.</footer>\n\
         </main>\n</body>\n</html>\n",
        escape(&report.conditions.repeat),
        escape(&report.schema),
        report.version
    ));
    page
}

fn section(page: &mut String, title: &str, lead: &str, body: &str) {
    let lead =
        if lead.is_empty() { String::new() } else { format!("<p class=\"lead\">{}</p>\n", escape(lead)) };
    page.push_str(&format!("<section>\n<h2>{}</h2>\n{lead}{body}</section>\n", escape(title)));
}

fn scroll(table: &str) -> String {
    format!("<div class=\"scroll dense\" tabindex=\"0\"><table>\n{table}</table></div>\n")
}

fn goals(report: &EngineReport) -> String {
    let mut table = String::from(
        "<thead><tr><th scope=\"col\">Goal</th><th scope=\"col\">Wanted</th><th scope=\"col\">Measured</th>\
         <th scope=\"col\">Spread</th><th scope=\"col\">Verdict</th></tr></thead>\n<tbody>\n",
    );
    for goal in &report.goals {
        let range = match goal.range {
            Some((least, most)) if report.conditions.rounds > 1 => {
                format!("{} to {}", shown(least), shown(most))
            }
            _ => "\u{2013}".to_owned(),
        };
        let class = match goal.verdict {
            Verdict::Met => "met",
            Verdict::WithinSpread => "near",
            Verdict::NotMet => "missed",
            Verdict::NotMeasured => "none",
        };
        table.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{range}</td><td class=\"{class}\">{}</td></tr>\n",
            escape(&goal.text),
            escape(&goal.bound()),
            escape(&goal.figure()),
            goal.verdict.text()
        ));
    }
    scroll(&(table + "</tbody>\n"))
}

fn figures(report: &EngineReport) -> String {
    let mut table = String::from("<thead><tr><th scope=\"col\"></th>");
    for (index, arm) in report.arms.iter().enumerate() {
        table.push_str(&format!(
            "<th scope=\"col\"><span class=\"dot a{index}\"></span>{}</th>",
            escape(&arm.label)
        ));
    }
    table.push_str("</tr></thead>\n<tbody>\n");
    for row in &report.rows {
        table.push_str(&format!(
            "<tr><th scope=\"row\">{}<small> {}</small></th>",
            escape(&row.label),
            escape(&row.unit)
        ));
        for arm in &report.arms {
            let cell = match (row.median(&arm.key), row.ratio(&arm.key, BASE)) {
                (Some(value), Some(ratio)) if arm.key != BASE => {
                    format!("<td>{}<small class=\"under\">{ratio:.2}</small></td>", shown(value))
                }
                (Some(value), _) => format!("<td>{}</td>", shown(value)),
                (None, _) if arm.missing.is_some() => "<td class=\"none\">not there</td>".to_owned(),
                (None, _) => "<td class=\"none\">\u{2013}</td>".to_owned(),
            };
            table.push_str(&cell);
        }
        table.push_str("</tr>\n");
    }
    scroll(&(table + "</tbody>\n"))
}

/// One card a row: a bar an arm, its name before it and its number behind it.
fn bars(report: &EngineReport) -> String {
    let cards: String = report.rows.iter().map(|row| card(report, row)).collect();
    format!("<div class=\"cards\">\n{cards}</div>\n")
}

fn card(report: &EngineReport, row: &Row) -> String {
    let most = report
        .arms
        .iter()
        .filter_map(|arm| row.spread(&arm.key).map(|(_, most)| most))
        .fold(f64::MIN_POSITIVE, f64::max);
    let mut lines = String::new();
    for (index, arm) in report.arms.iter().enumerate() {
        let (Some(value), Some((least, greatest))) = (row.median(&arm.key), row.spread(&arm.key)) else {
            continue;
        };
        let share = |value: f64| value / most * 100.0;
        let whisker = if greatest > least {
            format!(
                "<i class=\"whisker\" style=\"left:{:.1}%;width:{:.1}%\"></i>",
                share(least),
                share(greatest) - share(least)
            )
        } else {
            String::new()
        };
        lines.push_str(&format!(
            "<div class=\"hbar a{index}\"><span>{}</span><div><b style=\"width:{:.1}%\"></b>{whisker}</div><em>{}</em></div>\n",
            escape(&arm.label),
            share(value),
            shown(value)
        ));
    }
    let better = if row.more { "longer is better" } else { "shorter is better" };
    format!(
        "<figure class=\"card\"><figcaption><h3>{}</h3><p>{}, {better}. {}</p></figcaption>\n{lines}</figure>\n",
        escape(&row.label),
        escape(&row.unit),
        escape(&row.how)
    )
}

/// The numbers behind a picture.
fn numbers(drawn: &super::data::Chart) -> String {
    let mut table = format!(
        "<thead><tr><th scope=\"col\"></th><th scope=\"col\">{}</th><th scope=\"col\">{}</th></tr></thead>\n<tbody>\n",
        escape(&drawn.x.label),
        escape(&drawn.y.label)
    );
    for series in &drawn.series {
        for (x, y) in &series.points {
            table.push_str(&format!(
                "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>\n",
                escape(&series.label),
                shown(*x),
                shown(*y)
            ));
        }
    }
    format!("<details><summary>As a table</summary>{}</details>\n", scroll(&(table + "</tbody>\n")))
}

fn notes(report: &EngineReport) -> String {
    let mut items = vec![
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
        "A goal is within the spread when the middle of the rounds misses it and the best of ours against the worst of the \
         others does not."
            .to_owned(),
    ];
    items.extend(
        report
            .arms
            .iter()
            .filter_map(|arm| arm.missing.as_ref().map(|why| format!("{} took no part: {why}.", arm.label))),
    );
    items.extend(report.notes.iter().cloned());
    let items: String = items.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
    format!("<ul class=\"notes\">\n{items}</ul>\n")
}

fn run(report: &EngineReport) -> String {
    let conditions = &report.conditions;
    let machine = &conditions.machine;
    let facts = [
        ("Started", conditions.started.clone()),
        ("Took", format!("{:.0} s, {} rounds", conditions.seconds, conditions.rounds)),
        ("Processor", format!("{}, {} logical", machine.processor, machine.cores)),
        ("Memory", number::bytes(machine.memory_bytes)),
        ("System", format!("{}, {}", machine.system, machine.kernel)),
        ("Image files on", machine.backing.clone()),
        (
            "Machine before",
            format!(
                "{:.0} % busy with other things; load average {:.2}",
                machine.busy_before_percent, machine.load_before
            ),
        ),
        ("Repeat it", conditions.repeat.clone()),
    ];
    let mut body = String::from("<dl>\n");
    for (name, text) in facts {
        body.push_str(&format!("<dt>{name}</dt><dd>{}</dd>\n", escape(&text)));
    }
    let lines: Vec<String> = report.commands.iter().map(|command| format!("$ {}", command.line)).collect();
    body.push_str(&format!(
        "</dl>\n<details><summary>Commands, each once</summary><pre tabindex=\"0\">{}</pre></details>\n",
        escape(&lines.join("\n"))
    ));
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::goals::{judge, summary, tests::report};

    #[test]
    fn the_page_is_one_file_that_shows_figures_goals_and_who_was_missing() {
        let mut whole = report("write", true, &[("ext4", &[977.0]), ("plain", &[428.0])]);
        whole.goals = judge(&whole);
        whole.summary = summary(&whole);
        whole.arms[0].missing = Some("mkfs.<ext4> is not installed".to_owned());
        let page = render(&whole);
        assert!(page.starts_with("<!DOCTYPE html>") && page.contains("not met") && page.contains("0.44"));
        assert!(page.contains("mkfs.&lt;ext4&gt; is not installed") && !page.contains("http-equiv"));
        assert!(!page.contains("src=\"http") && !page.contains("href=\"http"));
    }
}
