//! Pictures: requests and bytes over time.

use std::time::Instant;

use steadfast_lab_network::{Kind, Link, SLICE};
use steadfast_lab_report::figures::{Axis, Chart, Series, shown};

/// Points of a line, at most.
const POINTS: usize = 240;

/// Requests a second by kind, requests in flight, and bytes a second in both directions, over the
/// time of all steps of one client.
pub(super) fn over_time(
    key: &str,
    label: &str,
    link: &Link,
    steps: &[(&'static str, Instant, Instant)],
) -> Vec<Chart> {
    let slices = link.slices();
    let each = slices.len().div_ceil(POINTS).max(1);
    let seconds = each as f64 * SLICE.as_secs_f64();
    let points = |value: &dyn Fn(&[steadfast_lab_network::Slice]) -> f64| -> Vec<(f64, f64)> {
        let part = |(at, part): (usize, &[_])| ((at as f64 + 0.5) * seconds, value(part));
        slices.chunks(each).enumerate().map(part).collect()
    };
    let line =
        |label: &str, points: Vec<(f64, f64)>| Series { label: label.to_owned(), calculated: false, points };
    let of_kind = |kind: Kind| {
        points(&|part| part.iter().map(|slice| slice.counts.of(kind)).sum::<u64>() as f64 / seconds)
    };
    let requests = [Kind::Put, Kind::Get, Kind::List, Kind::Delete]
        .into_iter()
        .map(|kind| line(kind.name(), of_kind(kind)))
        .filter(|series| series.points.iter().any(|(_, value)| *value > 0.0));
    let flight = points(&|part| f64::from(part.iter().map(|slice| slice.in_flight).max().unwrap_or(0)));
    let megabytes = |of: fn(&steadfast_lab_network::Counts) -> u64| {
        points(&|part| part.iter().map(|slice| of(&slice.counts)).sum::<u64>() as f64 / 1e6 / seconds)
    };
    let how = steps_in_words(link, steps);
    let chart = |name: &str, title: String, y: &str, series: Vec<Series>| Chart {
        key: format!("{key}_{name}"),
        title,
        how: how.clone(),
        x: Axis::linear("seconds"),
        y: Axis::linear(y),
        limit: None,
        series,
    };
    vec![
        chart("requests", format!("{label}: requests over time"), "requests/s", requests.collect()),
        chart("flight", format!("{label}: requests in flight"), "requests", vec![line("at once", flight)]),
        chart(
            "bytes",
            format!("{label}: bytes over time"),
            "MB/s",
            vec![
                line("to the store", megabytes(|counts| counts.up)),
                line("from it", megabytes(|counts| counts.down)),
            ],
        ),
    ]
}

/// "0.1 to 3.2 s: write; ...": the steps that took a tenth of a second or more.
fn steps_in_words(link: &Link, steps: &[(&'static str, Instant, Instant)]) -> String {
    let at = |moment: &Instant| moment.saturating_duration_since(link.began()).as_secs_f64();
    let mut words: Vec<String> = Vec::new();
    let mut rest = steps;
    while let Some((name, began, _)) = rest.first() {
        // Steps of one name that follow each other are one.
        let same = rest.iter().take_while(|(other, ..)| other == name).count();
        let ended = &rest[same - 1].2;
        if *ended - *began >= SLICE {
            words.push(format!("{name} {} to {} s", shown(at(began)), shown(at(ended))));
        }
        rest = &rest[same..];
    }
    format!("Counted by the link in slices of time. {}.", words.join("; "))
}
