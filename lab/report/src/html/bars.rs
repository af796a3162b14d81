//! Bars with their numbers on them.
//!
//! A bar's length is a share of the width it is given, so nothing is scaled and text keeps its size
//! on a phone. A card shows this run and what others published. Where their figures and ours differ
//! by more than a factor of four, one scale would flatten one of them; then theirs get a card of
//! their own. No card has two scales.

use super::{colour, escape};
use crate::number;
use crate::report::{Measure, Report, Unit};

/// Share of the width that the longest bar takes; the rest is for its number.
const LONGEST_PERCENT: f64 = 66.0;
/// Above this factor ours and theirs do not share a scale.
const SCALE_SHARED_MAX: f64 = 4.0;

/// One row.
struct Bar<'a> {
    name: &'a str,
    class: &'a str,
    value: f64,
    text: String,
    spread: Option<(f64, f64)>,
    height: u32,
    /// A value to mark with a line across; the number stands clear of it.
    mark: Option<f64>,
}

fn share(value: f64, longest: f64) -> f64 {
    if longest > 0.0 { (value / longest).clamp(0.0, 1.0) * LONGEST_PERCENT } else { 0.0 }
}

fn bar(bar: &Bar<'_>, longest: f64, row_class: &str) -> String {
    let width = share(bar.value, longest);
    let (height, row) = (bar.height, bar.height + 8);
    let middle = row / 2;
    let mut text_at = width;
    let whisker = match bar.spread {
        Some((low, high)) if share(high, longest) - share(low, longest) > 0.4 => {
            text_at = text_at.max(share(high, longest));
            let (low, high) = (share(low, longest), share(high, longest));
            let (top, bottom) = (middle - 4, middle + 4);
            format!(
                "<line class=\"whisker\" x1=\"{low:.2}%\" x2=\"{high:.2}%\" y1=\"{middle}\" y2=\"{middle}\"/>\
                 <line class=\"whisker\" x1=\"{low:.2}%\" x2=\"{low:.2}%\" y1=\"{top}\" y2=\"{bottom}\"/>\
                 <line class=\"whisker\" x1=\"{high:.2}%\" x2=\"{high:.2}%\" y1=\"{top}\" y2=\"{bottom}\"/>"
            )
        }
        _ => String::new(),
    };
    let mark = match bar.mark {
        Some(value) => {
            let at = share(value, longest);
            if text_at <= at && text_at + 24.0 > at {
                text_at = at;
            }
            format!("<line class=\"one\" x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"0\" y2=\"{row}\"/>")
        }
        None => String::new(),
    };
    format!(
        "<div class=\"row {row_class}\"><span>{name}</span>\
         <svg width=\"100%\" height=\"{row}\" role=\"img\" aria-label=\"{label}\">\
         <line class=\"base\" x1=\"0\" x2=\"0\" y1=\"0\" y2=\"{row}\"/>\
         <rect class=\"bar {class}\" x=\"0\" y=\"4\" width=\"{width:.2}%\" height=\"{height}\" rx=\"1.5\"/>{whisker}{mark}\
         <text class=\"value\" x=\"{text_at:.2}%\" dx=\"7\" y=\"{middle}\" dominant-baseline=\"central\">{text}</text>\
         </svg></div>\n",
        name = escape(bar.name),
        label = escape(&format!("{}: {}", bar.name, bar.text)),
        class = bar.class,
        text = escape(&bar.text),
    )
}

/// "on is 2.2× off", when there are two arms with figures.
fn relation(report: &Report, on: Option<f64>, off: Option<f64>) -> String {
    let [first, .., last] = report.arms.as_slice() else { return String::new() };
    match (on, off) {
        (Some(on), Some(off)) if off > 0.0 => {
            format!("{} is {} {}", first.short, number::times(on / off), last.short)
        }
        _ => String::new(),
    }
}

fn group(title: &str, relation: &str, rows: &str) -> String {
    format!(
        "<div class=\"group\"><div class=\"group-head\"><b>{}</b><span>{}</span></div>\n{rows}</div>\n",
        escape(title),
        escape(relation)
    )
}

/// Greatest of our figures, spread included.
fn ours_max(report: &Report, measure: &Measure) -> f64 {
    let greatest = |key: &str| measure.spread(key).map(|spread| spread.1).or_else(|| measure.median(key));
    report.arms.iter().filter_map(|arm| greatest(&arm.key)).fold(0.0, f64::max)
}

/// Our bars for one measure.
fn ours(report: &Report, measure: &Measure, title: &str, scale: f64) -> String {
    let mut rows = String::new();
    for (index, arm) in report.arms.iter().enumerate() {
        let Some(value) = measure.median(&arm.key) else { continue };
        let shown = Bar {
            name: &arm.short,
            class: colour(index),
            value,
            text: number::with_unit(value, measure.unit),
            spread: measure.spread(&arm.key),
            height: 24,
            mark: None,
        };
        rows.push_str(&bar(&shown, scale, "ours"));
    }
    let relation = ends(report)
        .map(|(on, off)| relation(report, measure.median(on), measure.median(off)))
        .unwrap_or_default();
    group(title, &relation, &rows)
}

/// Every measure on a card; neighbours that name the same panel share one.
pub fn cards(report: &Report) -> String {
    let mut drawn = String::new();
    for panel in report.measures.chunk_by(|a, b| a.panel.is_some() && a.panel == b.panel) {
        drawn.push_str(&match (panel, panel.first().and_then(|measure| measure.panel.as_deref())) {
            ([_, _, ..], Some(title)) => shared_card(report, title, panel),
            _ => panel.iter().map(|measure| card(report, measure)).collect(),
        });
    }
    drawn
}

/// One card for several measures of ours that nobody else has published.
fn shared_card(report: &Report, title: &str, panel: &[Measure]) -> String {
    let scale = panel.iter().map(|measure| ours_max(report, measure)).fold(0.0, f64::max);
    let body: String = panel.iter().map(|measure| ours(report, measure, &measure.label, scale)).collect();
    let how = panel.first().map_or("", |measure| measure.how.as_str());
    frame(title, how, &body, "The source reports have no such figure. All bars share one scale.")
}

fn frame(title: &str, how: &str, body: &str, note: &str) -> String {
    format!(
        "<figure class=\"card\"><figcaption><h3>{}</h3><p>{}</p></figcaption>\n{body}<p class=\"scale-note\">{}</p></figure>\n",
        escape(title),
        escape(how),
        escape(note),
    )
}

/// A card for one measure: this run, and the published figures below it.
fn card(report: &Report, measure: &Measure) -> String {
    let ours_longest = ours_max(report, measure);
    let theirs = measure.published.iter().map(|figure| figure.value).fold(0.0, f64::max);
    let shared = ours_longest > 0.0
        && theirs > 0.0
        && ours_longest.max(theirs) / ours_longest.min(theirs) <= SCALE_SHARED_MAX;
    let longest = ours_longest.max(theirs);
    let (our_scale, their_scale) = if shared { (longest, longest) } else { (ours_longest, theirs) };

    let own = ours(report, measure, "This run", our_scale);
    let mut published = String::new();
    for source in &report.sources {
        let mut rows = String::new();
        for (index, arm) in report.arms.iter().enumerate() {
            let Some(figure) = measure.published(&source.key, &arm.key) else { continue };
            let shown = Bar {
                name: &arm.short,
                class: colour(index),
                value: figure.value,
                text: figure.printed.clone(),
                spread: None,
                height: 12,
                mark: None,
            };
            rows.push_str(&bar(&shown, their_scale, "published"));
        }
        if rows.is_empty() {
            continue;
        }
        let value = |arm: &str| measure.published(&source.key, arm).map(|figure| figure.value);
        let relation =
            ends(report).map(|(on, off)| relation(report, value(on), value(off))).unwrap_or_default();
        published.push_str(&group(&source.label, &relation, &rows));
    }
    const ONE_SCALE: &str = "All bars share one scale.";
    let one = |note: &str| frame(&measure.label, &measure.how, &format!("{own}{published}"), note);
    if report.sources.is_empty() {
        one("")
    } else if published.is_empty() {
        one("The source reports have no such figure.")
    } else if shared || ours_longest <= 0.0 {
        one(ONE_SCALE)
    } else {
        let title = format!("{}, in the reports", measure.label);
        let apart = "This run alone: the figures of the reports are far from it and have the next card.";
        frame(&measure.label, &measure.how, &own, apart)
            + &frame(&title, "As published, on other machines.", &published, ONE_SCALE)
    }
}

/// Keys of the first arm and the last, when there are at least two.
fn ends(report: &Report) -> Option<(&str, &str)> {
    match report.arms.as_slice() {
        [first, .., last] => Some((&first.key, &last.key)),
        _ => None,
    }
}

/// Cost of the feature, as a factor, here and in the reports: the one figure that does not depend
/// on the machine.
pub fn ratios(report: &Report) -> String {
    let Some((on, off)) = ends(report) else { return String::new() };
    let ratio = |high: Option<f64>, low: Option<f64>| match (high, low) {
        (Some(high), Some(low)) if low > 0.0 => Some(high / low),
        _ => None,
    };
    let mut charts = Vec::new();
    let mut longest = 1.0f64;
    for measure in &report.measures {
        let mut rows = Vec::new();
        if let Some(value) = ratio(measure.median(on), measure.median(off)) {
            rows.push(("This run".to_owned(), "cus", value));
        }
        for source in &report.sources {
            let value = |arm: &str| measure.published(&source.key, arm).map(|figure| figure.value);
            if let Some(value) = ratio(value(on), value(off)) {
                rows.push((source.label.clone(), "cx", value));
            }
        }
        if measure.unit == Unit::PerSecond || rows.len() < 2 {
            continue;
        }
        longest = rows.iter().map(|row| row.2).fold(longest, f64::max);
        charts.push((measure, rows));
    }
    let mut cards = String::new();
    for (measure, rows) in charts {
        let mut body = String::new();
        for (name, class, value) in rows {
            let text = number::times(value);
            let shown = Bar { name: &name, class, value, text, spread: None, height: 16, mark: Some(1.0) };
            body.push_str(&bar(&shown, longest, "wide-label"));
        }
        cards.push_str(&format!(
            "<figure class=\"card\"><figcaption><h3>{}</h3><p>{} divided by {}</p></figcaption>\n{body}</figure>\n",
            escape(&measure.label),
            escape(&report.arms[0].short),
            escape(&report.arms[report.arms.len() - 1].short),
        ));
    }
    format!("<div class=\"cards\">\n{cards}</div>\n")
}
