//! A picture of stacked bars as SVG: each bar is the sum of its parts, which are told apart by
//! colour and by the table beside the picture.

use serde::{Deserialize, Serialize};

use super::chart::ALONE;
use super::shown;
use crate::html::escape;
use crate::number;

/// Bars that are made of parts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stack {
    /// Key: `cold`.
    pub key: String,
    /// Heading.
    pub title: String,
    /// How it was taken.
    pub how: String,
    /// Unit of all values: "ms".
    pub unit: String,
    /// Names of the parts, from the left.
    pub parts: Vec<String>,
    /// The bars, from the top.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bar {
    /// Name.
    pub label: String,
    /// A value for each part.
    pub values: Vec<f64>,
    /// Text behind the sum, or nothing.
    pub note: String,
}

const WIDTH: f64 = 720.0;
const LEFT: f64 = 132.0;
/// Room for the sum and its note.
const RIGHT: f64 = 226.0;
const TOP: f64 = 10.0;
const ROW: f64 = 30.0;
const BAR: f64 = 18.0;
const BOTTOM: f64 = 40.0;
const LEGEND: f64 = 20.0;

/// The picture. `alone`: with a title, a background and colours of its own.
pub fn svg(stack: &Stack, alone: bool) -> String {
    let total = |bar: &Bar| bar.values.iter().sum::<f64>();
    let longest = stack.bars.iter().map(total).fold(0.0, f64::max);
    let (end, steps) = number::axis_end(if longest > 0.0 { longest } else { 1.0 });
    let across = |value: f64| LEFT + value / end * (WIDTH - LEFT - RIGHT);
    let head = if alone { 30.0 } else { 0.0 };
    let top = head + TOP + stack.parts.len().div_ceil(2) as f64 * LEGEND;
    let foot = top + stack.bars.len() as f64 * ROW;
    let height = foot + BOTTOM;
    let mut svg = format!(
        "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escape(&stack.title)
    );
    if alone {
        svg.push_str(&format!(
            "<style>{ALONE}</style>\n<rect class=\"bg\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n\
             <text class=\"t\" x=\"14\" y=\"24\">{}</text>\n",
            escape(&stack.title)
        ));
    }
    for (index, part) in stack.parts.iter().enumerate() {
        let (left, line) = (14.0 + (index % 2) as f64 * 340.0, head + 14.0 + (index / 2) as f64 * LEGEND);
        svg.push_str(&format!(
            "<g class=\"s{}\"><rect x=\"{left}\" y=\"{:.0}\" width=\"26\" height=\"10\" style=\"fill:var(--c)\"/>\
             <text class=\"k\" x=\"{:.0}\" y=\"{:.0}\">{}</text></g>\n",
            index % 9,
            line - 5.0,
            left + 34.0,
            line + 4.0,
            escape(part)
        ));
    }
    for step in 0..=steps {
        let value = end / f64::from(steps) * f64::from(step);
        let place = across(value);
        svg.push_str(&format!(
            "<line class=\"g\" x1=\"{place:.1}\" x2=\"{place:.1}\" y1=\"{top:.1}\" y2=\"{foot:.1}\"/>\
             <text class=\"k\" text-anchor=\"middle\" x=\"{place:.1}\" y=\"{:.1}\">{}</text>\n",
            foot + 16.0,
            number::tick(value, end / f64::from(steps))
        ));
    }
    svg.push_str(&format!(
        "<text class=\"k\" text-anchor=\"middle\" x=\"{:.0}\" y=\"{:.0}\">{}</text>\n",
        (LEFT + WIDTH - RIGHT) / 2.0,
        foot + 34.0,
        escape(&stack.unit)
    ));
    for (row, bar) in stack.bars.iter().enumerate() {
        let y = top + row as f64 * ROW + (ROW - BAR) / 2.0;
        let middle = y + BAR / 2.0 + 4.0;
        svg.push_str(&format!(
            "<text class=\"k\" text-anchor=\"end\" x=\"{:.0}\" y=\"{middle:.1}\">{}</text>\n",
            LEFT - 8.0,
            escape(&bar.label)
        ));
        let mut from = 0.0;
        for (index, (value, part)) in bar.values.iter().zip(&stack.parts).enumerate() {
            let (left, right) = (across(from), across(from + value));
            from += value;
            svg.push_str(&format!(
                "<g class=\"s{}\"><title>{}: {} {}</title>\
                 <rect x=\"{left:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{BAR}\" style=\"fill:var(--c)\"/></g>\n",
                index % 9,
                escape(part),
                shown(*value),
                escape(&stack.unit),
                (right - left).max(0.0)
            ));
        }
        let note = if bar.note.is_empty() { String::new() } else { format!(" · {}", bar.note) };
        svg.push_str(&format!(
            "<text class=\"v\" x=\"{:.1}\" y=\"{middle:.1}\">{}{}</text>\n",
            across(from) + 6.0,
            shown(from),
            escape(&note)
        ));
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_bar_lie_side_by_side_and_make_its_length() {
        let bar = |label: &str, values: [f64; 2], note: &str| Bar {
            label: label.to_owned(),
            values: values.to_vec(),
            note: note.to_owned(),
        };
        let stack = Stack {
            key: "cold".to_owned(),
            title: "Where <time> goes".to_owned(),
            how: String::new(),
            unit: "ms".to_owned(),
            parts: vec!["portal".to_owned(), "store".to_owned()],
            bars: vec![bar("create", [10.0, 30.0], "25 %"), bar("list", [0.0, 40.0], "")],
        };
        let drawn = svg(&stack, true);
        assert!(drawn.contains("Where &lt;time&gt; goes") && drawn.contains(">40.0 · 25 %<"), "{drawn}");
        let at = |name: &str, line: &str| -> f64 {
            line.split_once(&format!(" {name}=\"")).unwrap().1.split('"').next().unwrap().parse().unwrap()
        };
        let bars: Vec<(f64, f64)> = drawn
            .lines()
            .filter(|line| line.starts_with(" <rect") || line.contains("<title>"))
            .map(|line| line.split_once("<rect").unwrap().1)
            .map(|line| (at("x", line), at("width", line)))
            .collect();
        assert_eq!(bars.len(), 4);
        let near = |a: f64, b: f64| (a - b).abs() < 0.02;
        assert!(near(bars[0].0, LEFT) && near(bars[1].0, bars[0].0 + bars[0].1), "{bars:?}");
        assert!(near(bars[1].1, 3.0 * bars[0].1) && near(bars[3].1, bars[0].1 + bars[1].1), "{bars:?}");
        assert!(drawn.contains("<title>store: 30.0 ms</title>"));
        let empty = Stack { bars: Vec::new(), ..stack };
        assert!(svg(&empty, false).ends_with("</svg>\n"));
    }
}
