//! A picture as SVG: lines over a linear or logarithmic axis, a legend, labels, and the numbers at
//! the points that have room for them. The same drawing stands in the page, which brings the
//! colours, and alone in a file, which has its own.

use super::{Axis, Chart, shown};
use crate::html::escape;
use crate::number;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 26.0;
/// Width of a digit of the labels, at most.
const DIGIT: f64 = 7.5;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 44.0;
/// Height of a line of the legend.
const LEGEND: f64 = 20.0;
/// Two numbers are not written closer than this.
const APART: (f64, f64) = (46.0, 13.0);
/// Among more lines than this no numbers are written: the table beside the picture has them.
const CROWD: usize = 4;
/// A line with more points than this is one over time: no numbers are written at it, and a few of
/// its marks are drawn, so that lines are still told apart.
const DENSE: usize = 60;
/// Marks of such a line.
const DENSE_MARKS: usize = 16;

/// Colours for a picture that stands alone.
pub(super) const ALONE: &str = "\
.k{font:12px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#57616a}.v{font:600 11px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#1b2126}
.t{font:600 14px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#1b2126}.bg{fill:#fff}.g{stroke:#e4e1da}.lim{stroke:#b3261e}.limt{fill:#b3261e}
.s0{--c:#0064a6}.s1{--c:#d98200}.s2{--c:#00795a}.s3{--c:#a3417c}.s4{--c:#5b5fc7}.s5{--c:#7a6a00}.s6{--c:#6b7780}.s7{--c:#b3261e}.s8{--c:#8b5a2b}
@media(prefers-color-scheme:dark){.bg{fill:#1c2226}.k{fill:#a9b3ba}.v,.t{fill:#e9ecee}.g{stroke:#38424a}.lim{stroke:#ff8a80}.limt{fill:#ff8a80}
.s0{--c:#5db4f2}.s1{--c:#f0a830}.s2{--c:#4cc9a4}.s3{--c:#e08fc0}.s4{--c:#a5a8f5}.s5{--c:#d4c257}.s6{--c:#a2adb5}.s7{--c:#ff8a80}.s8{--c:#cfa678}}";

/// Where values lie on an axis.
struct Scale {
    log: bool,
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
}

impl Scale {
    fn new(axis: &Axis, values: &[f64], from_zero: bool) -> Scale {
        let usable = || values.iter().copied().filter(|v| v.is_finite() && (!axis.log || *v > 0.0));
        let least = usable().fold(f64::INFINITY, f64::min);
        let greatest = usable().fold(f64::NEG_INFINITY, f64::max);
        if !least.is_finite() {
            return Scale {
                log: false,
                low: 0.0,
                high: 1.0,
                ticks: vec![(0.0, "0".into()), (1.0, "1".into())],
            };
        }
        if axis.log {
            let low = (least.log10() + 1e-9).floor();
            let high = (greatest.log10() - 1e-9).ceil().max(low + 1.0);
            let ticks = (low as i32..=high as i32)
                .map(|power| 10f64.powi(power))
                .map(|value| {
                    (value, if value < 1_000.0 { number::tick(value, value.min(1.0)) } else { shown(value) })
                })
                .collect();
            return Scale { log: true, low, high, ticks };
        }
        let (low, high, step) = if from_zero {
            let (end, steps) = number::axis_end(greatest);
            (0.0, end, end / f64::from(steps))
        } else {
            // Utilisation and its like: the whole range that was measured, in tens.
            let step = if greatest - least > 50.0 { 20.0 } else { 10.0 };
            ((least / step).floor() * step, ((greatest / step).ceil() * step).max(least + step), step)
        };
        let count = ((high - low) / step).round() as u32;
        let ticks = (0..=count)
            .map(|n| low + step * f64::from(n))
            .map(|value| (value, number::tick(value, step)))
            .collect();
        Scale { log: false, low, high, ticks }
    }

    /// 0 at the low end, 1 at the high one.
    fn place(&self, value: f64) -> f64 {
        let value = if self.log { value.max(1e-12).log10() } else { value };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// The picture. `alone`: with a title, a background and colours of its own.
pub fn svg(chart: &Chart, alone: bool) -> String {
    let points = || chart.series.iter().flat_map(|series| series.points.iter());
    let xs: Vec<f64> = points().map(|point| point.0).collect();
    let mut ys: Vec<f64> = points().map(|point| point.1).collect();
    ys.extend(chart.limit.as_ref().map(|(level, _)| *level));
    let (x, y) = (Scale::new(&chart.x, &xs, false), Scale::new(&chart.y, &ys, true));
    let head = if alone { 30.0 } else { 0.0 };
    let rows = chart.series.len().div_ceil(2) as f64;
    let top = head + TOP + rows * LEGEND;
    let height = top + HEIGHT + BOTTOM;
    let across = |value: f64| LEFT + x.place(value) * (WIDTH - LEFT - RIGHT);
    let down = |value: f64| top + (1.0 - y.place(value)) * HEIGHT;

    let mut svg = format!(
        "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escape(&chart.title)
    );
    if alone {
        svg.push_str(&format!(
            "<style>{ALONE}</style>\n<rect class=\"bg\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n\
             <text class=\"t\" x=\"{LEFT}\" y=\"24\">{}</text>\n",
            escape(&chart.title)
        ));
    }
    for (index, series) in chart.series.iter().enumerate() {
        let (column, row) = ((index % 2) as f64, (index / 2) as f64);
        let (left, line) = (LEFT + column * 330.0, head + 14.0 + row * LEGEND);
        svg.push_str(&format!(
            "<g class=\"s{}\"><line x1=\"{left}\" x2=\"{:.0}\" y1=\"{line}\" y2=\"{line}\" style=\"stroke:var(--c);stroke-width:3{}\"/>\
             {}<text class=\"k\" x=\"{:.0}\" y=\"{:.0}\">{}</text></g>\n",
            index % 9,
            left + 26.0,
            dashes(series.calculated),
            if series.calculated { String::new() } else { marker(index, left + 13.0, line) },
            left + 34.0,
            line + 4.0,
            escape(&series.label)
        ));
    }
    for (value, text) in &y.ticks {
        let line = down(*value);
        svg.push_str(&format!(
            "<line class=\"g\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{line:.1}\" y2=\"{line:.1}\"/>\
             <text class=\"k\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            WIDTH - RIGHT,
            LEFT - 8.0,
            line + 4.0,
            escape(text)
        ));
    }
    for (value, text) in &x.ticks {
        let place = across(*value);
        // A long number at the right edge stays in the picture.
        let middle = place.min(WIDTH - 4.0 - text.chars().count() as f64 * DIGIT / 2.0);
        svg.push_str(&format!(
            "<line class=\"g\" x1=\"{place:.1}\" x2=\"{place:.1}\" y1=\"{top:.1}\" y2=\"{:.1}\"/>\
             <text class=\"k\" text-anchor=\"middle\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>\n",
            top + HEIGHT,
            top + HEIGHT + 18.0,
            escape(text)
        ));
    }
    svg.push_str(&format!(
        "<text class=\"k\" text-anchor=\"middle\" x=\"{:.0}\" y=\"{:.0}\">{}</text>\n\
         <text class=\"k\" text-anchor=\"middle\" transform=\"translate(14 {:.0}) rotate(-90)\">{}</text>\n",
        (LEFT + WIDTH - RIGHT) / 2.0,
        top + HEIGHT + 38.0,
        escape(&chart.x.label),
        top + HEIGHT / 2.0,
        escape(&chart.y.label)
    ));
    if let Some((level, name)) = &chart.limit {
        let line = down(*level);
        svg.push_str(&format!(
            "<line class=\"lim\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{line:.1}\" y2=\"{line:.1}\" style=\"stroke-width:1.5;stroke-dasharray:2 4\"/>\
             <text class=\"k limt\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            WIDTH - RIGHT,
            WIDTH - RIGHT,
            line - 5.0,
            escape(name)
        ));
    }
    // Numbers leave the limit's words alone.
    let of_limit = |(level, name): &(f64, String)| {
        (WIDTH - RIGHT - name.chars().count() as f64 * DIGIT / 2.0, down(*level) - 5.0)
    };
    let mut written: Vec<(f64, f64)> = chart.limit.iter().map(of_limit).collect();
    let mut numbers = String::new();
    for (index, series) in chart.series.iter().enumerate() {
        let places: Vec<(f64, f64)> = series.points.iter().map(|(a, b)| (across(*a), down(*b))).collect();
        let line: Vec<String> = places.iter().map(|(a, b)| format!("{a:.1},{b:.1}")).collect();
        let is_dense = places.len() > DENSE;
        let width = if is_dense { 1.5 } else { 2.25 };
        svg.push_str(&format!(
            "<g class=\"s{}\"><polyline points=\"{}\" style=\"fill:none;stroke:var(--c);stroke-width:{width};stroke-linejoin:round{}\"/>",
            index % 9,
            line.join(" "),
            dashes(series.calculated)
        ));
        // The marks of one line lie between those of another.
        let each = (places.len() / DENSE_MARKS).max(1);
        let is_drawn = |at: usize| !is_dense || at % each == index * each / chart.series.len();
        for (at, ((a, b), (x, value))) in places.iter().zip(&series.points).enumerate() {
            if !series.calculated {
                // Said when one points at it.
                let said = format!("{}: {} at {}", series.label, shown(*value), shown(*x));
                let mark = marker(index, *a, *b);
                let unseen = if is_drawn(at) { "" } else { " style=\"opacity:0\"" };
                svg.push_str(&format!("<g{unseen}><title>{}</title>{mark}</g>", escape(&said)));
            }
            let at = (*a, b - 8.0);
            let free = !is_dense
                && chart.series.len() <= CROWD
                && written.iter().all(|(c, d)| (c - at.0).abs() > APART.0 || (d - at.1).abs() > APART.1);
            if free {
                written.push(at);
                numbers.push_str(&format!(
                    "<text class=\"v\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
                    at.0,
                    at.1,
                    shown(*value)
                ));
            }
        }
        svg.push_str("</g>\n");
    }
    svg.push_str(&numbers);
    svg + "</svg>\n"
}

/// The mark of a line at one of its points: another shape for each, so that nobody needs to tell
/// colours apart.
fn marker(index: usize, x: f64, y: f64) -> String {
    let shape = |path: &str| format!("<path d=\"M{x:.1} {y:.1}{path}\"");
    let (outline, hollow) = match index % 9 {
        0 => (shape("m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z"), false),
        1 => (shape("m-3.5 -3.5h7v7h-7z"), false),
        2 => (shape("m0 -4.5l4.5 8h-9z"), false),
        3 => (shape("m0 -5l4.5 5l-4.5 5l-4.5 -5z"), false),
        4 => (shape("m-3.5 -3.5l7 7m0 -7l-7 7"), true),
        5 => (shape("m-4.5 0h9m-4.5 -4.5v9"), true),
        6 => (shape("m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"), true),
        7 => (shape("m-3.5 -3.5h7v7h-7z"), true),
        _ => (shape("m0 4.5l4.5 -8h-9z"), true),
    };
    let style = if hollow { "fill:none;stroke:var(--c);stroke-width:2" } else { "fill:var(--c)" };
    format!("{outline} style=\"{style}\"/>")
}

fn dashes(calculated: bool) -> &'static str {
    if calculated { ";stroke-dasharray:6 4" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Series;

    fn chart() -> Chart {
        Chart {
            key: "k".to_owned(),
            title: "A <title>".to_owned(),
            how: String::new(),
            x: Axis::log("files"),
            y: Axis::linear("µs"),
            limit: Some((200.0, "200 ms".to_owned())),
            series: vec![Series {
                label: "ext4".to_owned(),
                calculated: false,
                points: vec![(1e4, 12.0), (1e5, 13.0), (1e6, 150.0)],
            }],
        }
    }

    #[test]
    fn decades_are_equally_far_apart_and_the_limit_is_in_the_picture() {
        let scale = Scale::new(&Axis::log(""), &[1e4, 1e6], false);
        assert_eq!((scale.place(1e4), scale.place(1e5), scale.place(1e6)), (0.0, 0.5, 1.0));
        let svg = svg(&chart(), true);
        assert!(svg.contains("200 ms") && svg.contains("10,000") && svg.contains(">150<"), "{svg}");
        assert!(svg.contains("A &lt;title&gt;") && svg.contains("prefers-color-scheme"));
    }

    #[test]
    fn a_long_number_at_the_edge_stays_in_the_picture() {
        let mut wide = chart();
        wide.x = Axis::log("files");
        wide.series[0].points = vec![(1e4, 1.0), (1e7, 2.0)];
        let drawn = svg(&wide, true);
        let label = drawn.lines().find(|line| line.contains(">10,000,000<")).unwrap();
        let (_, from) = label.split_once("text-anchor=\"middle\" x=\"").unwrap();
        let middle: f64 = from.split_once('"').unwrap().0.parse().unwrap();
        assert!(middle + 5.0 * DIGIT <= WIDTH && middle > WIDTH - RIGHT - 30.0, "{label}");
    }

    #[test]
    fn a_line_over_time_has_few_marks_and_no_numbers() {
        let mut long = chart();
        long.x = Axis::linear("seconds");
        long.series[0].points = (0..240).map(|at| (f64::from(at), 77.0 + f64::from(at % 3))).collect();
        let drawn = svg(&long, false);
        let seen = drawn.matches("<g><title>").count();
        assert!((DENSE_MARKS..=DENSE_MARKS + 1).contains(&seen), "{seen} marks");
        assert_eq!(drawn.matches("<title>").count(), 240, "each point says its value");
        assert!(!drawn.contains("class=\"v\""), "{drawn}");
    }

    #[test]
    fn numbers_leave_the_words_of_the_limit_alone() {
        let mut at_limit = chart();
        at_limit.series[0].points = vec![(1.0, 100.0), (10.0, 150.0), (100.0, 199.0)];
        let numbers = svg(&at_limit, false).matches("class=\"v\"").count();
        at_limit.limit = None;
        assert_eq!((numbers, svg(&at_limit, false).matches("class=\"v\"").count()), (2, 3));
    }

    #[test]
    fn a_chart_without_points_is_still_a_picture() {
        let empty = Chart { series: Vec::new(), limit: None, ..chart() };
        assert!(svg(&empty, false).ends_with("</svg>\n"));
    }
}
