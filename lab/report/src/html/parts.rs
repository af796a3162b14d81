//! Parts that the pages of all experiments share: the frame, sections, the facts of a run; and for
//! those that compare many arms, goals, figures, bars and pictures.

use super::{STYLE, escape};
use crate::figures::stack::{self, Stack};
use crate::figures::{ArmInfo, Chart, Goal, Row, Verdict, chart, shown};
use crate::number;
use crate::report::{Command, Conditions, Load};

/// Text between tags, in which backticks enclose code.
pub fn inline(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let pieces: Vec<&str> = text.split('`').collect();
    // An odd backtick at the end is one.
    let whole = pieces.len() % 2 == 1;
    for (at, piece) in pieces.iter().enumerate() {
        match at % 2 {
            1 if whole || at + 1 < pieces.len() => out += &format!("<code>{}</code>", escape(piece)),
            1 => out += &format!("`{}", escape(piece)),
            _ => out += &escape(piece),
        }
    }
    out
}

/// The page up to the first section.
pub fn opening(title: &str, question: &str, summary: &str, warning: Option<&str>, facts: &[&str]) -> String {
    let title = escape(title);
    let warning =
        warning.map_or_else(String::new, |text| format!("<p class=\"warning\">{}</p>\n", inline(text)));
    let facts: String = facts
        .iter()
        .enumerate()
        .map(|(at, fact)| match at {
            0 => format!("<li><b>{}</b></li>", escape(fact)),
            _ => format!("<li>{}</li>", escape(fact)),
        })
        .collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<main>\n<header>\n<p class=\"eyebrow\">Steadfast lab</p>\n<h1>{title}</h1>\n\
         <p class=\"question\">{}</p>\n<p class=\"summary\">{}</p>\n{warning}<ul class=\"facts\">{facts}</ul>\n</header>\n",
        inline(question),
        inline(summary),
    )
}

/// The end of the page: schema, version, date.
pub fn footer(conditions: &Conditions, schema: &str, version: u32) -> String {
    format!(
        "<footer>Made by <code>{}</code> on {}. The same figures for programs: <a href=\"report.json\">report.json</a>, schema {} version {version}.</footer>\n",
        escape(&conditions.repeat),
        escape(&conditions.started),
        escape(schema),
    )
}

/// Puts links to all sections, and to the data beside the page, behind its head.
pub fn linked(page: String) -> String {
    const END: &str = "</header>\n";
    let Some(at) = page.find(END) else { return page };
    let links: String = page
        .split("<h2 id=\"")
        .skip(1)
        .filter_map(|rest| {
            let (id, rest) = rest.split_once("\">")?;
            let (title, _) = rest.split_once("</h2>")?;
            Some(format!("<a href=\"#{id}\">{title}</a>\n"))
        })
        .collect();
    let nav = format!("<nav>\n{links}<a href=\"report.json\">report.json</a>\n</nav>\n");
    format!("{}{nav}{}", &page[..at + END.len()], &page[at + END.len()..])
}

/// A heading, a line below it, and what follows.
pub fn section(title: &str, lead: &str, body: &str) -> String {
    let lead =
        if lead.is_empty() { String::new() } else { format!("<p class=\"lead\">{}</p>\n", inline(lead)) };
    let id: String =
        title.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    format!("<section>\n<h2 id=\"{id}\">{}</h2>\n{lead}{body}</section>\n", escape(title))
}

/// "one round", "3 rounds".
pub fn rounds(rounds: u32) -> String {
    if rounds == 1 { "one round".to_owned() } else { format!("{rounds} rounds") }
}

/// The facts of a run: what was measured, when, on what machine, how to repeat it.
pub fn facts(conditions: &Conditions) -> String {
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
            "Machine",
            match machine.busy_during_percent {
                Some(busy) => format!(
                    "load average of the minute before {:.2}; {busy:.0} % busy from the first run to the last, {:.0} % \
                     of it by the measuring program and what it watches",
                    machine.load_before,
                    machine.own_during_percent / busy.max(1e-9) * 100.0
                ),
                None => format!(
                    "{:.0} % busy in the second before the load; load average of the minute before {:.2}",
                    machine.busy_before_percent, machine.load_before
                ),
            },
        ),
        ("Repeat it", conditions.repeat.clone()),
    ]);
    let mut body = String::from("<dl>\n");
    for (name, text) in facts {
        body.push_str(&format!("<dt>{name}</dt><dd>{}</dd>\n", escape(&text)));
    }
    body + "</dl>\n"
}

/// The parameter file and where its anchors were.
pub fn parameter_file(load: &Load) -> String {
    let mut body = format!(
        "<h3>Parameter file <code>{}</code>, as it is</h3>\n<pre tabindex=\"0\">{}</pre>\n",
        escape(&load.file),
        escape(&load.text)
    );
    if !load.mapping.is_empty() {
        let mapping: Vec<String> = load.mapping.iter().map(|(from, to)| format!("{from}  →  {to}")).collect();
        body.push_str(&format!(
            "<h3>Anchors of the file, and where they were in this run</h3>\n<pre tabindex=\"0\">{}</pre>\n",
            escape(&mapping.join("\n"))
        ));
    }
    body
}

/// Every line that was typed.
pub fn commands(commands: &[Command]) -> String {
    let lines: Vec<String> = commands
        .iter()
        .map(|command| match command.status {
            Some(0) => command.line.clone(),
            Some(status) => format!("{}    # exit status {status}", command.line),
            None => format!("{}    # ended by a signal", command.line),
        })
        .collect();
    format!("<pre tabindex=\"0\">{}</pre>", escape(&lines.join("\n")))
}

/// Sentences as a list.
pub fn notes(notes: &[String]) -> String {
    let items: String = notes.iter().map(|note| format!("<li>{}</li>\n", inline(note))).collect();
    format!("<ul class=\"notes\">\n{items}</ul>\n")
}

/// A table that may be wider than its place.
pub fn scroll(table: &str) -> String {
    framed(table, " dense")
}

/// A table in a frame that scrolls, with the sentence that it goes on where there is little room.
pub(super) fn framed(table: &str, class: &str) -> String {
    let columns = table.split("</thead>").next().unwrap_or("").matches("<th ").count();
    let hint = match columns {
        0..4 => String::new(),
        _ => format!("<p class=\"goes-on\">{columns} columns: the table goes on to the right.</p>\n"),
    };
    format!("{hint}<div class=\"scroll{class}\" tabindex=\"0\"><table>\n{table}</table></div>\n")
}

/// Goals, as a table.
pub fn goals(goals: &[Goal], rounds: u32) -> String {
    let mut table = String::from(
        "<thead><tr><th scope=\"col\">Goal</th><th scope=\"col\">Wanted</th><th scope=\"col\">Measured</th>\
         <th scope=\"col\">Spread</th><th scope=\"col\">Verdict</th></tr></thead>\n<tbody>\n",
    );
    for goal in goals {
        let range = match goal.range {
            Some((least, most)) if rounds > 1 => {
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

/// The figures: a row each, a column an arm, ratios to the arm `base` below them.
pub fn figures(arms: &[ArmInfo], rows: &[Row], base: &str) -> String {
    let mut table = String::from("<thead><tr><th scope=\"col\"></th>");
    for (index, arm) in arms.iter().enumerate() {
        table.push_str(&format!(
            "<th scope=\"col\"><span class=\"dot a{index}\"></span>{}</th>",
            escape(&arm.label)
        ));
    }
    table.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        table.push_str(&format!(
            "<tr><th scope=\"row\">{}<small> {}</small></th>",
            escape(&row.label),
            escape(&row.unit)
        ));
        for arm in arms {
            let cell = match (row.median(&arm.key), row.ratio(&arm.key, base)) {
                (Some(value), Some(ratio)) if arm.key != base => {
                    format!("<td>{}<small class=\"under\">{ratio:.2}</small></td>", shown(value))
                }
                (Some(value), _) => format!("<td>{}</td>", shown(value)),
                (None, _) if arm.is_absent(rows) => "<td class=\"none\">not there</td>".to_owned(),
                (None, _) => "<td class=\"none\">\u{2013}</td>".to_owned(),
            };
            table.push_str(&cell);
        }
        table.push_str("</tr>\n");
    }
    scroll(&(table + "</tbody>\n"))
}

/// One card a row: a bar an arm, its name before it and its number behind it.
pub fn bars(arms: &[ArmInfo], rows: &[Row]) -> String {
    let cards: String = rows.iter().map(|row| card(arms, row)).collect();
    format!("<div class=\"cards\">\n{cards}</div>\n")
}

fn card(arms: &[ArmInfo], row: &Row) -> String {
    let most = arms
        .iter()
        .filter_map(|arm| row.spread(&arm.key).map(|(_, most)| most))
        .fold(f64::MIN_POSITIVE, f64::max);
    let mut lines = String::new();
    for (index, arm) in arms.iter().enumerate() {
        let (Some(value), Some((least, greatest))) = (row.median(&arm.key), row.spread(&arm.key)) else {
            continue;
        };
        // A value below zero has no bar; its number shows it.
        let share = |value: f64| (value / most * 100.0).max(0.0);
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
            "<div class=\"hbar a{}\"><span>{}</span><div><b style=\"width:{:.1}%\"></b>{whisker}</div><em>{}</em></div>\n",
            index % 9,
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

/// Pictures on cards, each with its numbers below it.
pub fn charts(charts: &[Chart]) -> String {
    let cards: String = charts
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
    format!("<div class=\"cards charts\">\n{cards}</div>\n")
}

/// Stacked bars on cards, each with its numbers below it.
pub fn stacks(stacks: &[Stack]) -> String {
    let cell = |value: f64| format!("<td>{}</td>", shown(value));
    let cards: String = stacks
        .iter()
        .map(|drawn| {
            let heads: String = drawn
                .parts
                .iter()
                .map(|part| format!("<th scope=\"col\">{}</th>", escape(part)))
                .collect();
            let rows: String = drawn
                .bars
                .iter()
                .map(|bar| {
                    let cells: String = bar.values.iter().map(|value| cell(*value)).collect();
                    let total = cell(bar.values.iter().sum());
                    let (label, note) = (escape(&bar.label), escape(&bar.note));
                    format!("<tr><th scope=\"row\">{label}</th>{cells}{total}<td>{note}</td></tr>\n")
                })
                .collect();
            format!(
                "<figure class=\"card\"><figcaption><h3>{}</h3><p>{}</p></figcaption>\n{}<details><summary>Numbers, {}</summary>\
                 <div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\"></th>{heads}<th scope=\"col\">together</th>\
                 <th scope=\"col\"></th></tr></thead>\n<tbody>\n{rows}</tbody></table></div></details></figure>\n",
                escape(&drawn.title),
                escape(&drawn.how),
                stack::svg(drawn, false),
                escape(&drawn.unit),
            )
        })
        .collect();
    format!("<div class=\"cards charts\">\n{cards}</div>\n")
}

/// The numbers behind a picture.
fn numbers(drawn: &Chart) -> String {
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
