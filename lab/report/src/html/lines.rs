//! Lines: response times by percentile, and figures over time.
//!
//! The plot is stretched to its place, its strokes and its text are not: labels are HTML at
//! percentages of the plot, strokes do not scale.

use super::{colour, escape};
use crate::figures::shown;
use crate::number;
use crate::report::{Interval, Phase, Report, Unit, median};

/// Data of the lines: runs of the load on several arms.
pub struct Runs<'a> {
    /// Key and name of each arm, in the order of their colours.
    pub arms: Vec<(&'a str, &'a str)>,
    /// Every run.
    pub phases: &'a [Phase],
}

impl<'a> From<&'a Report> for Runs<'a> {
    fn from(report: &'a Report) -> Self {
        let arms = report.arms.iter().map(|arm| (arm.key.as_str(), arm.short.as_str())).collect();
        Runs { arms, phases: &report.phases }
    }
}

impl<'a> Runs<'a> {
    /// Names of the operations, in the order they first ran.
    fn operations(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for phase in self.phases {
            if !names.contains(&phase.operation.as_str()) {
                names.push(&phase.operation);
            }
        }
        names
    }

    /// The runs of one operation on one arm, in the order of rounds.
    fn of(&self, operation: &str, arm: &str) -> Vec<&'a Phase> {
        self.phases.iter().filter(|phase| phase.operation == operation && phase.arm == arm).collect()
    }

    /// Older rounds are drawn behind the last one, thin, as long as there is room; every line gets
    /// its name at its end where there are too many to know them by colour.
    fn crowded(&self) -> bool {
        self.arms.len() > CROWD
    }
}

/// More arms than this, and only the last round is drawn in a shared plot.
const CROWD: usize = 3;

/// Units of the stretched plot, both ways.
const PLOT: f64 = 1000.0;

/// Where values lie on the vertical axis.
enum Axis {
    Linear {
        end: f64,
        steps: u32,
    },
    /// Whole decades.
    Log {
        low: i32,
        high: i32,
    },
}

impl Axis {
    fn linear(greatest: f64) -> Self {
        let (end, steps) = number::axis_end(greatest);
        Self::Linear { end, steps }
    }

    fn log(values: &[f64]) -> Self {
        let positive = || values.iter().copied().filter(|value| value.is_finite() && *value > 0.0);
        let low = positive().fold(f64::INFINITY, f64::min);
        let high = positive().fold(0.0, f64::max);
        if high <= 0.0 {
            return Self::Log { low: -3, high: 0 };
        }
        let bottom = (low.log10() + 1e-9).floor() as i32;
        Self::Log { low: bottom, high: ((high.log10() - 1e-9).ceil() as i32).max(bottom + 1) }
    }

    /// Distance from the top, 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let up = match self {
            Self::Linear { end, .. } => value / end,
            Self::Log { low, high } => (value.max(1e-12).log10() - f64::from(*low)) / f64::from(high - low),
        };
        1.0 - up.clamp(0.0, 1.0)
    }

    /// Values with a line across the plot, and their labels.
    fn ticks(&self) -> Vec<(f64, String)> {
        match self {
            Self::Linear { end, steps } => {
                let step = end / f64::from(*steps);
                (0..=*steps)
                    .map(|n| step * f64::from(n))
                    .map(|value| (value, number::tick(value, step)))
                    .collect()
            }
            Self::Log { low, high } => (*low..=*high)
                .map(|power| 10f64.powi(power))
                .map(|value| (value, number::tick(value, value.min(1.0))))
                .collect(),
        }
    }
}

/// An arm's colour, whether an older round, and its points in seconds.
type Raw = (usize, bool, Vec<(f64, f64)>);

/// One line.
struct Line {
    class: &'static str,
    /// Older rounds are drawn behind, thin.
    faint: bool,
    dots: bool,
    /// Horizontal place 0 to 1, and value.
    points: Vec<(f64, f64)>,
    /// Name at its end.
    name: Option<String>,
}

/// Least distance of two names, in hundredths of the height of a plot with names.
const NAME_APART: f64 = 6.4;

/// Names beside the ends of their lines, moved apart where lines end close to each other.
fn names(axis: &Axis, lines: &[Line]) -> String {
    let mut ends: Vec<(f64, &Line, &str)> = lines
        .iter()
        .filter_map(|line| {
            let last = line.points.last()?;
            Some((axis.place(last.1) * 100.0, line, line.name.as_deref()?))
        })
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut floor = f64::NEG_INFINITY;
    for end in &mut ends {
        end.0 = end.0.max(floor);
        floor = end.0 + NAME_APART;
    }
    let mut ceiling = 100.0;
    for end in ends.iter_mut().rev() {
        end.0 = end.0.min(ceiling);
        ceiling = end.0 - NAME_APART;
    }
    ends.iter()
        .map(|(place, line, name)| {
            format!(
                "<span style=\"top:{place:.1}%\"><svg class=\"key\" viewBox=\"0 0 26 6\"><line class=\"{} series\" x1=\"0\" x2=\"26\" \
                 y1=\"3\" y2=\"3\"/></svg>{}</span>",
                line.class,
                escape(name)
            )
        })
        .collect()
}

fn plot(label: &str, axis: &Axis, x_ticks: &[(f64, String)], lines: &[Line]) -> String {
    plot_with(label, axis, x_ticks, lines, "")
}

/// A plot, and fields over it that say values.
fn plot_with(label: &str, axis: &Axis, x_ticks: &[(f64, String)], lines: &[Line], hover: &str) -> String {
    let mut grid = String::new();
    let mut y = String::new();
    for (value, text) in axis.ticks() {
        let place = axis.place(value);
        grid.push_str(&format!(
            "<line class=\"grid\" x1=\"0\" x2=\"{PLOT}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/>",
            place * PLOT
        ));
        y.push_str(&format!("<span style=\"top:{:.2}%\">{}</span>", place * 100.0, escape(&text)));
    }
    let x: String = x_ticks
        .iter()
        .map(|(place, text)| format!("<span style=\"left:{:.2}%\">{}</span>", place * 100.0, escape(text)))
        .collect();
    let mut drawn = String::new();
    for line in lines {
        let points: Vec<String> = line
            .points
            .iter()
            .map(|(across, value)| format!("{:.1},{:.1}", across * PLOT, axis.place(*value) * PLOT))
            .collect();
        let faint = if line.faint { " faint" } else { "" };
        drawn.push_str(&format!(
            "<polyline class=\"{} series{faint}\" points=\"{}\"/>",
            line.class,
            points.join(" ")
        ));
        if line.dots {
            for (across, value) in &line.points {
                let (cx, cy) = (across * PLOT, axis.place(*value) * PLOT);
                drawn.push_str(&format!(
                    "<path class=\"{} dot\" d=\"M{cx:.1} {cy:.1}h0.01\"><title>{}</title></path>",
                    line.class,
                    shown(*value)
                ));
            }
        }
    }
    let names = names(axis, lines);
    let (named, names) = match names.as_str() {
        "" => ("", String::new()),
        _ if lines.iter().flat_map(|line| &line.name).all(|name| name.len() <= 8) => {
            (" named short", format!("<div class=\"ends\">{names}</div>"))
        }
        _ => (" named", format!("<div class=\"ends\">{names}</div>")),
    };
    format!(
        "<div class=\"plot{named}\"><div class=\"y\" aria-hidden=\"true\">{y}</div>\
         <svg viewBox=\"0 0 {PLOT} {PLOT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">{grid}{drawn}{hover}</svg>\
         {names}<div class=\"x\" aria-hidden=\"true\">{x}</div></div>",
        escape(label)
    )
}

fn card(title: &str, how: &str, plot: &str) -> String {
    format!(
        "<figure class=\"card\"><figcaption><h3>{}</h3><p>{}</p></figcaption>\n{plot}</figure>\n",
        escape(title),
        escape(how)
    )
}

/// "Write" for "write".
pub fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// One card an operation: response time at each percentile, all rounds.
pub fn percentiles(runs: &Runs<'_>) -> String {
    let names = ["p50", "p90", "p99", "p99.9", "max"];
    let ticks: Vec<(f64, String)> =
        names.iter().enumerate().map(|(n, name)| (0.06 + n as f64 * 0.22, (*name).to_owned())).collect();
    let mut cards = String::new();
    for operation in runs.operations() {
        let mut lines = Vec::new();
        for (index, (arm, name)) in runs.arms.iter().enumerate() {
            let rounds = runs.of(operation, arm);
            for (round, phase) in rounds.iter().enumerate() {
                if runs.crowded() && round + 1 < rounds.len() {
                    continue;
                }
                let response = &phase.response;
                let [p50, p90, p99, p999] = response.percentiles(phase.operations);
                let values = [p50, p90, p99, p999, (phase.operations > 0).then_some(response.max)];
                let places = ticks.iter().map(|tick| tick.0).zip(values);
                let points = places.filter_map(|(at, value)| Some((at, value?))).collect();
                let last = round + 1 == rounds.len();
                let name = runs.crowded().then(|| (*name).to_owned());
                lines.push(Line { class: colour(index), faint: !last, dots: last, points, name });
            }
        }
        let all: Vec<f64> = lines.iter().flat_map(|line| line.points.iter().map(|point| point.1)).collect();
        let title = format!("{} response time by percentile", capital(operation));
        let drawn = plot(&title, &Axis::log(&all), &ticks, &lines);
        cards.push_str(&card(&title, "Milliseconds, each line across is ten times the one below", &drawn));
    }
    cards
}

/// A figure of an interval; none when nothing was done in it.
type Reading = fn(&Interval) -> Option<f64>;

/// Cards over time: rate, response time and processor use, one an operation.
pub fn over_time(runs: &Runs<'_>) -> String {
    let figures: [(&str, &str, Unit, Reading); 3] = [
        ("rate", "Operations a second in each interval", Unit::PerSecond, |interval| Some(interval.rate)),
        ("response time", "Mean of each interval, milliseconds", Unit::Milliseconds, |interval| {
            interval.response_ms
        }),
        ("processor use", "Whole machine, percent of all processors", Unit::PercentOfMachine, |interval| {
            Some(interval.cpu_total)
        }),
    ];
    let mut cards = String::new();
    for (name, how, unit, reading) in figures {
        for operation in runs.operations() {
            let mut raw: Vec<Raw> = Vec::new();
            for (index, (arm, _)) in runs.arms.iter().enumerate() {
                let rounds = runs.of(operation, arm);
                for (round, phase) in rounds.iter().enumerate() {
                    raw.push((index, round + 1 < rounds.len(), stairs(&phase.intervals, reading).0));
                }
            }
            let seconds = raw.iter().flat_map(|line| line.2.iter().map(|point| point.0)).fold(0.0, f64::max);
            let greatest = raw.iter().flat_map(|line| line.2.iter().map(|point| point.1)).fold(0.0, f64::max);
            if seconds <= 0.0 {
                continue;
            }
            let all: Vec<f64> = raw.iter().flat_map(|line| line.2.iter().map(|point| point.1)).collect();
            let least = all.iter().copied().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
            let axis = match unit {
                Unit::PercentOfMachine if greatest > 60.0 => Axis::Linear { end: 100.0, steps: 4 },
                // Among many arms one may be a hundred times another.
                Unit::PerSecond | Unit::Milliseconds if runs.crowded() && greatest > 10.0 * least => {
                    Axis::log(&all)
                }
                _ => Axis::linear(greatest),
            };
            let decades = matches!(axis, Axis::Log { .. });
            let lines: Vec<Line> = raw
                .into_iter()
                .map(|(index, faint, points)| Line {
                    class: colour(index),
                    faint,
                    dots: false,
                    points: points.into_iter().map(|(at, value)| (at / seconds, value)).collect(),
                    name: (runs.crowded() && !faint).then(|| runs.arms[index].1.to_owned()),
                })
                .collect();
            let title = format!("{}: {name} over time", capital(operation));
            let how = if decades {
                format!("{how}; each line across is ten times the one below")
            } else {
                how.to_owned()
            };
            cards.push_str(&card(&title, &how, &plot(&title, &axis, &time_ticks(seconds), &lines)));
        }
    }
    cards
}

/// One card an arm, each with a scale of its own: median, p99 and longest of every interval.
pub fn each_quantiles(runs: &Runs<'_>, operation: &str) -> String {
    let mut cards = String::new();
    for (arm, name) in &runs.arms {
        let Some(phase) = runs.of(operation, arm).last().copied() else { continue };
        let line = |(at, class, name): (usize, &'static str, &str)| {
            let value = |interval: &Interval| interval.quantiles_ms[at];
            let (points, seconds) = stairs(&phase.intervals, value);
            let points: Vec<(f64, f64)> = points.into_iter().map(|(x, y)| (x / seconds, y)).collect();
            Line { class, faint: false, dots: false, points, name: Some(name.to_owned()) }
        };
        let lines: Vec<Line> = [(0, "c0", "p50"), (1, "c2", "p99"), (2, "c1", "longest")]
            .into_iter()
            .map(line)
            .filter(|line| !line.points.is_empty())
            .collect();
        if lines.is_empty() {
            continue;
        }
        let all: Vec<f64> = lines.iter().flat_map(|line| line.points.iter().map(|point| point.1)).collect();
        let worst = phase.intervals.iter().filter_map(|i| i.quantiles_ms[2]).fold(0.0, f64::max);
        let how = format!("Longest of all {} ms", shown(worst));
        let seconds = phase.intervals.last().map_or(1.0, |last| last.at_s);
        let hover = hover(&phase.intervals, seconds, |interval| {
            let names = ["p50", "p99", "longest"].into_iter().zip(interval.quantiles_ms);
            let texts: Vec<String> =
                names.filter_map(|(name, ms)| Some(format!("{name} {} ms", shown(ms?)))).collect();
            texts.join(", ")
        });
        cards.push_str(&card(
            name,
            &how,
            &plot_with(name, &Axis::log(&all), &time_ticks(seconds), &lines, &hover),
        ));
    }
    cards
}

/// Points of a line that is level throughout each interval, so that it fills its axis from the
/// start; and where it ends.
fn stairs(intervals: &[Interval], value: impl Fn(&Interval) -> Option<f64>) -> (Vec<(f64, f64)>, f64) {
    let mut points = Vec::new();
    let mut from = 0.0;
    for interval in intervals {
        if let Some(value) = value(interval) {
            points.extend([(from, value), (interval.at_s, value)]);
        }
        from = interval.at_s;
    }
    (points, if from > 0.0 { from } else { 1.0 })
}

/// More intervals than this say nothing when pointed at.
const HOVER_MAX: usize = 600;

/// Fields over a plot that say the values of their interval when pointed at.
fn hover(intervals: &[Interval], seconds: f64, text: impl Fn(&Interval) -> String) -> String {
    let mut out = String::new();
    let mut from = 0.0;
    for interval in intervals.iter().take(HOVER_MAX) {
        let (x, width) = (from / seconds * PLOT, (interval.at_s - from) / seconds * PLOT);
        out += &format!(
            "<rect class=\"hit\" x=\"{x:.1}\" y=\"0\" width=\"{width:.1}\" height=\"{PLOT}\"><title>{} to {} s: {}</title></rect>",
            shown(from),
            shown(interval.at_s),
            escape(&text(interval))
        );
        from = interval.at_s;
    }
    out
}

/// Operations by interval and response time.
pub struct HeatMap {
    /// One an interval: operations below the first edge, between each two, and above the last.
    pub columns: Vec<Vec<u64>>,
    /// Seconds of a column.
    pub seconds: f64,
    /// The first edge, milliseconds.
    pub from_ms: f64,
    /// Edges a decade.
    pub per_decade: usize,
}

/// A card with a heat map; nothing where nothing was done.
pub fn heat_card(title: &str, map: &HeatMap) -> String {
    let used = |row: usize| map.columns.iter().any(|column| column.get(row).is_some_and(|count| *count > 0));
    let rows = map.columns.first().map_or(0, Vec::len);
    let (Some(low), Some(high)) = ((0..rows).find(|row| used(*row)), (0..rows).rfind(|row| used(*row)))
    else {
        return String::new();
    };
    let most = map.columns.iter().flatten().copied().max().unwrap_or(1).max(1) as f64;
    let edge = |row: usize| map.from_ms * 10f64.powf(row as f64 / map.per_decade as f64);
    let height = PLOT / (high - low + 1) as f64;
    let width = PLOT / map.columns.len() as f64;
    let mut fields = String::new();
    for (at, column) in map.columns.iter().enumerate() {
        for (row, count) in column.iter().enumerate().filter(|(_, count)| **count > 0) {
            // By its root, or rare operations would not be seen.
            let shade = 0.12 + 0.88 * (*count as f64 / most).powf(0.33);
            let below = if row == 0 { 0.0 } else { edge(row - 1) };
            fields += &format!(
                "<rect class=\"heat\" x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
                 fill-opacity=\"{shade:.2}\"><title>{} to {} s: {count} operations of {} to {} ms</title></rect>",
                at as f64 * width,
                (high - row) as f64 * height,
                shown(at as f64 * map.seconds),
                shown((at + 1) as f64 * map.seconds),
                shown(below),
                shown(edge(row)),
            );
        }
    }
    let label = |row: usize| {
        let place = (high + 1 - row) as f64 * height / PLOT * 100.0;
        format!("<span style=\"top:{place:.1}%\">{}</span>", shown(edge(row - 1)))
    };
    let step = ((high - low) / 5).max(1);
    let y: String = (low.max(1)..=high).step_by(step).map(label).collect();
    let seconds = map.columns.len() as f64 * map.seconds;
    let x: String = time_ticks(seconds)
        .iter()
        .map(|(place, text)| format!("<span style=\"left:{:.2}%\">{}</span>", place * 100.0, escape(text)))
        .collect();
    let total: u64 = map.columns.iter().flatten().sum();
    let drawn = format!(
        "<div class=\"plot\"><div class=\"y\" aria-hidden=\"true\">{y}</div>\
         <svg viewBox=\"0 0 {PLOT} {PLOT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">{fields}</svg>\
         <div class=\"x\" aria-hidden=\"true\">{x}</div></div>",
        escape(&format!("{title}: operations by response time over time"))
    );
    card(
        title,
        &format!("{} operations; milliseconds upwards", steadfast_lab_params::thousands(total)),
        &drawn,
    )
}

/// One card an arm, each with a scale of its own: the rate of every round, the last one strong.
pub fn each_rate(runs: &Runs<'_>, operation: &str) -> String {
    each(runs, operation, "/s", |interval| interval.rate)
}

fn each(runs: &Runs<'_>, operation: &str, unit: &str, reading: fn(&Interval) -> f64) -> String {
    let mut cards = String::new();
    for (index, (arm, name)) in runs.arms.iter().enumerate() {
        let rounds = runs.of(operation, arm);
        let all = || rounds.iter().flat_map(|phase| &phase.intervals);
        let seconds = all().map(|interval| interval.at_s).fold(0.0, f64::max);
        let greatest = all().map(reading).fold(0.0, f64::max);
        if seconds <= 0.0 {
            continue;
        }
        let lines: Vec<Line> = rounds
            .iter()
            .enumerate()
            .map(|(round, phase)| Line {
                class: colour(index),
                faint: round + 1 < rounds.len(),
                dots: false,
                points: stairs(&phase.intervals, |i| Some(reading(i)))
                    .0
                    .into_iter()
                    .map(|(at, value)| (at / seconds, value))
                    .collect(),
                name: None,
            })
            .collect();
        let rates: Vec<f64> =
            rounds.last().map_or_else(Vec::new, |last| last.intervals.iter().map(reading).collect());
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let middle = median(&rates).unwrap_or(0.0);
        let how = format!(
            "{}median interval {}{unit}, lowest {}{unit}, highest {}{unit}",
            if rounds.len() > 1 { "Last round: " } else { "" },
            shown(middle),
            shown(least),
            shown(rates.iter().copied().fold(0.0, f64::max))
        );
        let told = rounds.last().map_or_else(String::new, |last| {
            hover(&last.intervals, seconds, |interval| format!("{}{unit}", shown(reading(interval))))
        });
        let drawn = plot_with(name, &Axis::linear(greatest), &time_ticks(seconds), &lines, &told);
        cards.push_str(&card(name, &how, &drawn));
    }
    cards
}

fn time_ticks(seconds: f64) -> Vec<(f64, String)> {
    let (end, steps) = number::axis_end(seconds);
    let step = if (end - seconds).abs() < 1e-9 { end / f64::from(steps) } else { (seconds / 4.0).ceil() };
    let mut ticks = Vec::new();
    let mut at = 0.0;
    while at <= seconds + 1e-9 {
        ticks.push((at / seconds, format!("{} s", number::tick(at, step))));
        at += step;
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_lines_that_end_together_are_apart_and_inside() {
        let line = |value: f64, name: &str| Line {
            class: "c0",
            faint: false,
            dots: false,
            points: vec![(1.0, value)],
            name: Some(name.to_owned()),
        };
        let axis = Axis::linear(100.0);
        for values in [[50.0, 50.1, 50.2], [0.0, 0.1, 0.2], [100.0, 99.0, 99.9]] {
            let lines: Vec<Line> = values.iter().map(|value| line(*value, "x")).collect();
            let text = names(&axis, &lines);
            let mut places: Vec<f64> = text
                .split("top:")
                .skip(1)
                .map(|rest| rest.split('%').next().unwrap().parse().unwrap())
                .collect();
            places.sort_by(f64::total_cmp);
            assert!(places.windows(2).all(|pair| pair[1] - pair[0] > NAME_APART - 0.11), "{places:?}");
            assert!(places[0] >= 0.0 && places[2] <= 100.0, "{places:?}");
        }
        assert_eq!(names(&axis, &[Line { name: None, ..line(1.0, "") }]), "");
    }

    #[test]
    fn log_axis_holds_every_value_between_whole_decades() {
        let axis = Axis::log(&[0.02, 0.5, 31.0]);
        assert!(matches!(axis, Axis::Log { low: -2, high: 2 }));
        assert!((axis.place(0.01) - 1.0).abs() < 1e-9);
        assert!(axis.place(100.0).abs() < 1e-9);
        assert!((axis.place(1.0) - 0.5).abs() < 1e-9);
        let labels: Vec<String> = axis.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(labels, ["0.01", "0.1", "1", "10", "100"]);
        assert!(matches!(Axis::log(&[]), Axis::Log { .. }));
    }

    #[test]
    fn time_ticks_stay_inside_the_run() {
        for seconds in [2.0, 3.0, 4.0, 7.0, 10.0, 60.0, 119.0] {
            let ticks = time_ticks(seconds);
            assert!((3..=7).contains(&ticks.len()), "{seconds}: {ticks:?}");
            assert!(ticks.iter().all(|tick| (0.0..=1.0 + 1e-9).contains(&tick.0)));
        }
    }
}
