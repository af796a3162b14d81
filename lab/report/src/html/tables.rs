//! The tables: the source reports' own, repeated; percentiles; space; intervals.

use super::lines::capital;
use super::{colour, escape};
use crate::number;
use crate::report::{Measure, Report};

fn cell(text: Option<String>) -> String {
    match text {
        Some(text) => format!("<td>{}</td>", escape(&text)),
        None => "<td class=\"none\">not reported</td>".to_owned(),
    }
}

fn scroll(table: &str) -> String {
    super::parts::framed(table, "")
}

/// The ratio of the first arm to the last as a row.
fn ratio_row(report: &Report, value: impl Fn(&Measure, &str) -> Option<f64>) -> String {
    let [first, .., last] = report.arms.as_slice() else { return String::new() };
    let mut row = format!(
        "<tr class=\"ratio\"><th scope=\"row\">{} ÷ {}</th>",
        escape(&first.short),
        escape(&last.short)
    );
    for measure in &report.measures {
        let text = match (value(measure, &first.key), value(measure, &last.key)) {
            (Some(on), Some(off)) if off > 0.0 => number::times(on / off),
            _ => "\u{2013}".to_owned(),
        };
        row.push_str(&format!("<td>{text}</td>"));
    }
    row + "</tr>\n"
}

/// The table of the source reports with this run on top.
pub fn comparison(report: &Report) -> String {
    let columns = report.measures.len() + 1;
    let mut table = String::from("<thead><tr><th scope=\"col\"></th>");
    for measure in &report.measures {
        table.push_str(&format!("<th scope=\"col\">{}</th>", escape(&measure.label)));
    }
    table.push_str("</tr></thead>\n<tbody>\n");

    let rounds = report.conditions.rounds;
    let about = if rounds > 1 { format!("middle of {rounds} rounds") } else { "one round".to_owned() };
    table.push_str(&head("This run", &about, columns));
    for (index, arm) in report.arms.iter().enumerate() {
        table.push_str(&format!("<tr class=\"ours\">{}", arm_cell(index, &arm.label)));
        for measure in &report.measures {
            table.push_str(&match measure.median(&arm.key) {
                Some(value) => cell(Some(number::with_unit(value, measure.unit))),
                None => "<td class=\"none\">not measured</td>".to_owned(),
            });
        }
        table.push_str("</tr>\n");
    }
    table.push_str(&ratio_row(report, Measure::median));

    for source in &report.sources {
        table.push_str(&head(&source.label, &source.about, columns));
        for (index, arm) in report.arms.iter().enumerate() {
            table.push_str(&format!("<tr>{}", arm_cell(index, &arm.label)));
            for measure in &report.measures {
                table.push_str(&cell(measure.published(&source.key, &arm.key).map(|f| f.printed.clone())));
            }
            table.push_str("</tr>\n");
        }
        table.push_str(&ratio_row(report, |measure, arm| {
            measure.published(&source.key, arm).map(|figure| figure.value)
        }));
    }
    scroll(&(table + "</tbody>\n"))
}

fn head(title: &str, about: &str, columns: usize) -> String {
    format!(
        "<tr class=\"head\"><th scope=\"rowgroup\" colspan=\"{columns}\">{}<small>{}</small></th></tr>\n",
        escape(title),
        escape(about)
    )
}

fn arm_cell(index: usize, label: &str) -> String {
    format!("<th scope=\"row\"><span class=\"dot {}\"></span>{}</th>", colour(index), escape(label))
}

/// Response times of every run of the load.
pub fn percentiles(report: &Report) -> String {
    let mut table = String::from("<thead><tr><th scope=\"col\">Run</th>");
    if report.conditions.rounds > 1 {
        table.push_str("<th scope=\"col\">Round</th>");
    }
    for name in ["Operations", "Mean", "p50", "p90", "p99", "p99.9", "Max"] {
        let unit = if name == "Operations" { "" } else { "<small>ms</small>" };
        table.push_str(&format!("<th scope=\"col\">{name}{unit}</th>"));
    }
    table.push_str("</tr></thead>\n<tbody>\n");
    for operation in report.operations() {
        for (index, arm) in report.arms.iter().enumerate() {
            for phase in &report.phases {
                if phase.operation != operation || phase.arm != arm.key {
                    continue;
                }
                let label = format!("{}, {}", capital(operation), arm.short);
                table.push_str(&format!("<tr>{}", arm_cell(index, &label)));
                if report.conditions.rounds > 1 {
                    table.push_str(&format!("<td>{}</td>", phase.round));
                }
                table.push_str(&format!("<td>{}</td>", phase.operations));
                let response = &phase.response;
                let [p50, p90, p99, p999] = response.percentiles(phase.operations);
                for value in [Some(response.mean), p50, p90, p99, p999, Some(response.max)] {
                    let text = value.map_or_else(|| "\u{2013}".to_owned(), number::milliseconds);
                    table.push_str(&format!("<td>{text}</td>"));
                }
                table.push_str("</tr>\n");
            }
        }
    }
    scroll(&(table + "</tbody>\n"))
}

/// Space after the last phase of each arm that measured it.
pub fn space(report: &Report) -> String {
    let mut table = String::from("<thead><tr><th scope=\"col\"></th>");
    for (name, from) in [
        ("Used", "df"),
        ("Size", "df"),
        ("Used", "property"),
        ("Referenced", "property"),
        ("Logical used", "property"),
        ("Blocks of files", "du"),
        ("Sizes of files", "sum"),
    ] {
        table.push_str(&format!("<th scope=\"col\">{name}<small>{from}</small></th>"));
    }
    table.push_str("</tr></thead>\n<tbody>\n");
    let mut any = false;
    for (index, arm) in report.arms.iter().enumerate() {
        let last =
            report.phases.iter().rev().filter(|phase| phase.arm == arm.key).find_map(|p| p.space.as_ref());
        let Some(space) = last else { continue };
        any = true;
        table.push_str(&format!("<tr>{}", arm_cell(index, &arm.label)));
        let known = [
            Some(space.df_used),
            Some(space.df_size),
            space.used,
            space.referenced,
            space.logical_used,
            Some(space.du),
            Some(space.apparent),
        ];
        for value in known {
            match value {
                Some(value) => table.push_str(&format!("<td>{}</td>", number::bytes(value))),
                None => table.push_str("<td class=\"none\">\u{2013}</td>"),
            }
        }
        table.push_str("</tr>\n");
    }
    if any { scroll(&(table + "</tbody>\n")) } else { String::new() }
}

/// Every interval of every run: the table behind the lines.
pub fn intervals(report: &Report) -> String {
    let mut table = String::from(
        "<thead><tr><th scope=\"col\">Run</th><th scope=\"col\">Round</th><th scope=\"col\">At<small>s</small></th>\
         <th scope=\"col\">Rate<small>/s</small></th><th scope=\"col\">Response<small>ms</small></th>\
         <th scope=\"col\">CPU<small>%</small></th></tr></thead>\n<tbody>\n",
    );
    for phase in &report.phases {
        for interval in &phase.intervals {
            table.push_str(&format!(
                "<tr><th scope=\"row\">{}</th><td>{}</td><td>{:.0}</td><td>{:.1}</td><td>{}</td><td>{:.1}</td></tr>\n",
                escape(&phase.run),
                phase.round,
                interval.at_s,
                interval.rate,
                interval.response_ms.map_or_else(|| "\u{2013}".to_owned(), number::milliseconds),
                interval.cpu_total
            ));
        }
    }
    scroll(&(table + "</tbody>\n"))
}
