//! Pictures: rates against the filling, and over time.

use steadfast_lab_report::figures::{ArmInfo, Axis, Chart, Series};

use super::report::{Course, FILLS, RecoveryReport};
use super::request::MODEL;

/// MB/s against the filling, and over time.
pub(super) fn charts(report: &RecoveryReport) -> Vec<Chart> {
    let of = |arm: &ArmInfo, what: &str, name: &str| {
        let points: Vec<(f64, f64)> = FILLS
            .iter()
            .filter_map(|fill| {
                let row = report.rows.iter().find(|row| row.key == format!("{what}{fill}"))?;
                Some((f64::from(*fill), row.median(&arm.key)?))
            })
            .collect();
        (!points.is_empty()).then(|| Series {
            label: format!("{}, {name}", arm.label),
            calculated: false,
            points,
        })
    };
    let by_fill = |key: &str, what: &str, title: &str| {
        let mut series: Vec<Series> = report.arms.iter().filter_map(|arm| of(arm, key, what)).collect();
        let flat = |label: &str, rate: f64| Series {
            label: label.to_owned(),
            calculated: true,
            points: FILLS.iter().map(|fill| (f64::from(*fill), rate)).collect(),
        };
        series.extend(
            report.reported.iter().map(|reported| flat(&format!("source: {}", reported.what), reported.rate)),
        );
        Chart {
            key: key.to_owned(),
            title: title.to_owned(),
            how: "The median of the rounds; dashed: the figures of the source report.".to_owned(),
            x: Axis::linear("percent full"),
            y: Axis::log("MB/s"),
            limit: None,
            series,
        }
    };
    let mut all = vec![
        by_fill("heal", "healed", "A zeroed device healed by a scrub, MB/s"),
        by_fill("resilver", "rebuilt", "A zeroed device replaced, MB/s"),
    ];
    for (what, title) in
        [("heal", "Healing over time at 75 %, MB/s"), ("resilver", "Resilver over time at 75 %, MB/s")]
    {
        let last = |arm: &ArmInfo| {
            let fullest = |course: &&Course| {
                course.arm == arm.key && course.what == what && course.fill == FILLS[FILLS.len() - 1]
            };
            let course = report.courses.iter().rev().find(fullest)?;
            Some(drawn(&arm.label, course))
        };
        all.push(Chart {
            key: format!("{what}-time"),
            title: title.to_owned(),
            how: "Bytes written to the devices, in tenths of the time it took, which stands beside the name; the last round."
                .to_owned(),
            x: Axis::linear("percent of the time it took"),
            y: Axis::linear("MB/s"),
            limit: None,
            series: report.arms.iter().filter_map(last).collect(),
        });
    }
    let disks = ["heal on hard disks", "resilver on hard disks"].into_iter().filter_map(|what| {
        let course = report.courses.iter().rfind(|course| course.what == what)?;
        Some(drawn(what, course))
    });
    all.push(Chart {
        key: "disk-time".to_owned(),
        title: "On devices that stand for hard disks, MB/s".to_owned(),
        how: format!(
            "Bytes written to the devices, in tenths of the time it took; raidz1 of 4, each {}.",
            report.model
        ),
        x: Axis::linear("percent of the time it took"),
        y: Axis::linear("MB/s"),
        limit: (report.model == MODEL).then(|| (60.0, "rate of one disk".to_owned())),
        series: disks.collect(),
    });
    all.retain(|chart| chart.series.iter().any(|series| !series.points.is_empty()));
    all
}

/// A line over the time that a course took.
fn drawn(label: &str, course: &Course) -> Series {
    let label = format!("{label}, {:.1} s", course.seconds);
    let points = rates(course).into_iter().map(|(at, rate)| (at / course.seconds * 100.0, rate)).collect();
    Series { label, calculated: false, points }
}

/// MB/s written, in tenths of the time it took.
fn rates(course: &Course) -> Vec<(f64, f64)> {
    let step = course.seconds / 10.0;
    let by = |until: f64| {
        let passed = course.points.iter().take_while(|point| point.0 <= until);
        passed.last().map_or(0, |point| point.2)
    };
    (0..10)
        .map(|tenth| {
            let (from, until) = (step * f64::from(tenth), step * f64::from(tenth + 1));
            let last = if tenth == 9 { course.written } else { by(until) };
            ((from + until) / 2.0, last.saturating_sub(by(from)) as f64 / 1e6 / step)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rates_of_a_course_add_up_to_what_was_written() {
        let course = Course {
            arm: "raidz1".into(),
            what: "heal".into(),
            fill: 75,
            round: 1,
            seconds: 2.0,
            read: 0,
            written: 400_000_000,
            points: (0..=20u32).map(|at| (f64::from(at) / 10.0, 0, u64::from(at) * 20_000_000)).collect(),
        };
        let rates = rates(&course);
        let written: f64 = rates.iter().map(|(_, rate)| rate * 0.2).sum();
        assert!((written - 400.0).abs() < 1e-6, "{rates:?}");
    }
}
