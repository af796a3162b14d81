//! `steadfast lab run iris-audit`: how long an audit takes, what it reads, and how often it finds
//! out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use steadfast_lab_network::Conditions;
use steadfast_lab_report::figures::goals::{Bound, bound, ratio, summary};
use steadfast_lab_report::figures::{ArmInfo, Axis, Chart, Goal, Row, Series};
use steadfast_lab_report::number;

use super::AuditRequest;
use super::covered::CoveredPool;
use super::program::{self, Audits, Detection};
use super::writers;
use crate::bucket::Cleared;
use crate::bucket::remote::Remote;
use crate::comparison::{self, ComparisonReport, Heading};
use crate::context::Context;
use crate::error::Error;
use crate::host::progress::Progress;
use crate::host::requirements::{check_fuse, check_room, check_root};
use crate::options::Rate;
use crate::results::{self, Results};
use crate::setup::Setup;

/// The column of figures that need no pool.
const MEMORY: &str = "memory";
/// Distance at which the goals are judged, ms.
const FAR: u64 = 50;
/// Bytes of the parity device.
const PARITY: u64 = 256 << 20;

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early.
pub fn run(
    request: &AuditRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Results<ComparisonReport>, Error> {
    let program = program::find(request.program.as_deref(), context)?;
    check_fuse()?;
    check_root("it drops the kernel's caches", "steadfast lab run iris-audit")?;
    let parent = request.places.parent();
    check_room(parent, 4 << 30, "name another directory with --dir DIR.")?;
    let remote = Remote::open(None)?;
    let setup = Setup::new("iris-audit", request.places.out.as_deref(), parent)?;
    let mut shell = setup.shell(context, stop)?;
    let mut arms: Vec<ArmInfo> =
        request.delays().iter().map(|ms| arm(&ms.to_string(), &format!("{ms} ms"))).collect();
    arms.push(arm(writers::PLAIN, "writers, without parity"));
    arms.push(arm(writers::COVERED, "writers, with parity and audits"));
    arms.push(arm(MEMORY, "in memory, one core"));
    let mut report = ComparisonReport::new(
        Some(heading()),
        setup.conditions(
            format!("Steadfast {} on {}", context.version, remote.label),
            request.repeat(),
            request.rounds(),
        ),
        format!(
            "{} in the pool, {} audits of each damaged store",
            number::bytes(request.file()),
            request.audits()
        ),
        arms,
    );
    let cleared = Cleared(&remote);
    let mut progress = Progress::new(request.delays().len() as f64 * 2.0 + 2.0);
    let mut done = Ok(());
    for &ms in request.delays() {
        done = done.and_then(|()| {
            at_distance(ms, request, (&setup, context, &remote), &mut shell, &mut progress, &mut report, stop)
        });
    }
    let done = done.and_then(|()| {
        let places = (&setup, context, &remote);
        writers::measure(request, places, PARITY, &mut shell, &mut progress, &mut report, stop)
    });
    let done = done.and_then(|()| {
        progress.begin("auditing damaged stores in memory");
        let words = format!("audit --audits {}", request.audits());
        in_memory(&mut report, &program::run(&program, &words, &mut shell)?);
        Ok(())
    });
    progress.end();
    drop(cleared);
    report.conditions.seconds = setup.seconds();
    let measured = !report.rows.is_empty();
    let ComparisonReport { rows, notes, conditions, .. } = &mut report;
    let early = results::early(done, measured, &*rows, notes, conditions)?;
    report.goals = judge(&report.rows, &request.rates());
    report.summary = summary(&report.goals);
    report.notes.extend(notes_of_every_run());
    report.commands = shell.history();
    comparison::write(report, &setup.out, early, request.document.markdown.as_deref())
}

fn arm(key: &str, label: &str) -> ArmInfo {
    ArmInfo { key: key.to_owned(), label: label.to_owned(), missing: None }
}

/// Audits a pool whose store is so far away, beside a bare loop of ranged reads.
fn at_distance(
    ms: u64,
    request: &AuditRequest,
    (setup, context, remote): (&Setup, &Context, &Remote),
    shell: &mut crate::host::shell::Shell,
    progress: &mut Progress,
    report: &mut ComparisonReport,
    stop: &AtomicBool,
) -> Result<(), Error> {
    progress.begin(&format!("making a pool {ms} ms away"));
    let conditions = Conditions { round_trip: Duration::from_millis(ms), rate: None, loss: None };
    let mut pool = CoveredPool::make(setup, context, remote, conditions, (request.file(), PARITY), shell)?;
    progress.advance(1.0, "");
    progress.begin(&format!("audits, {ms} ms away"));
    let key = ms.to_string();
    for round in 0..request.rounds() {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let before = pool.arm.link.counts();
        let (seconds, audit) = pool.audit()?;
        let passed = pool.arm.link.counts().since(&before);
        if !audit.held {
            return Err(Error::Answer {
                line: format!("an audit {ms} ms away"),
                answer: format!("{} of {} samples held", audit.held(), audit.samples()),
                expected: "a store that holds everything",
            });
        }
        let bare = pool.bare.ranges(audit.samples(), u64::from(round) + 1)?;
        let figures = [
            (row("audit", "audit", "s", "From the start of the command to its end."), seconds),
            (
                row(
                    "bare",
                    "bare loop of as many ranged reads",
                    "s",
                    "object_store, 64 at once, the same objects.",
                ),
                bare,
            ),
            (
                Row {
                    more: true,
                    ..row("rate", "audit beside the bare loop", "of its rate", "Ratio of the times.")
                },
                bare / seconds,
            ),
            (
                row("samples", "cells asked for", "cells", "As the audit tells it."),
                f64::from(audit.samples()),
            ),
            (row("requests", "requests", "requests", "As the audit tells it."), audit.requests as f64),
            (row("bytes", "read", "MB", "As the audit tells it."), audit.bytes_in as f64 / 1e6),
            (
                row(
                    "bytes_of_all",
                    "of it for the 2,759 cells of the whole store",
                    "MB",
                    "By the share of the samples.",
                ),
                audit.bytes_in as f64 / 1e6 * audit.of_all() / f64::from(audit.samples()),
            ),
            (
                row("wire", "bytes on the way, both directions", "MB", "Counted by the link."),
                (passed.up + passed.down) as f64 / 1e6,
            ),
        ];
        for (row, value) in figures {
            report.add(&row, &key, value);
        }
    }
    progress.advance(1.0, "");
    Ok(())
}

fn row(key: &str, label: &str, unit: &str, how: &str) -> Row {
    Row::new(key, label, unit, false, how)
}

/// Times without a pool, and the statistics.
fn in_memory(report: &mut ComparisonReport, audits: &Audits) {
    let samples = audits.samples;
    let how = "Processor time of one thread.";
    let rows = [
        (
            row("verify", &format!("check an agent's reply of {samples} samples"), "ms", how),
            &audits.verify_ms,
        ),
        (row("reply", &format!("make that reply, {samples} cells in memory"), "ms", how), &audits.reply_ms),
        (row("judge", &format!("check {samples} cells one by one"), "ms", how), &audits.judge_ms),
    ];
    for (row, values) in rows {
        values.iter().for_each(|value| report.add(&row, MEMORY, *value));
    }
    report.add(
        &row("reply_bytes", "an agent's reply", "bytes", "Counted."),
        MEMORY,
        audits.reply_bytes as f64,
    );
    let worst = audits.detection.iter().map(|point| point.deviations.abs()).fold(0.0, f64::max);
    let what = format!(
        "largest difference of {} points from 1 - (1 - e)^N",
        audits.detection.iter().filter(|point| point.deviations != 0.0).count()
    );
    report.add(
        &row("deviations", &what, "standard deviations", "Binomial, in so many audits."),
        MEMORY,
        worst,
    );
    report.charts.push(detection(audits));
    report.charts.push(histogram(audits));
}

fn detection(audits: &Audits) -> Chart {
    let mut fractions: Vec<f64> = audits.detection.iter().map(|point| point.missing).collect();
    fractions.dedup();
    let line = |missing: f64, calculated: bool, value: fn(&Detection) -> f64| Series {
        label: format!(
            "{} % missing, {}",
            (missing * 1e4).round() / 100.0,
            if calculated { "1 - (1 - e)^N" } else { "counted" }
        ),
        calculated,
        points: audits
            .detection
            .iter()
            .filter(|point| point.missing == missing)
            .map(|point| (f64::from(point.samples), 100.0 * value(point)))
            .collect(),
    };
    let counted = fractions.iter().map(|&missing| line(missing, false, |point| point.found));
    let formula = fractions.iter().map(|&missing| line(missing, true, |point| point.formula));
    Chart {
        key: "detection".to_owned(),
        title: "How often an audit finds out that cells are missing".to_owned(),
        how: format!(
            "{} audits of a store of {} cells in memory for each fraction, another loss every hundred.",
            audits.audits, audits.cells
        ),
        x: Axis::log("samples"),
        y: Axis::linear("% of audits that find out"),
        limit: None,
        series: counted.chain(formula).collect(),
    }
}

fn histogram(audits: &Audits) -> Chart {
    let line = |label: &str, calculated, value: &dyn Fn(&program::Bar) -> f64| Series {
        label: label.to_owned(),
        calculated,
        points: audits.histogram.iter().map(|bar| (f64::from(bar.failed), value(bar))).collect(),
    };
    Chart {
        key: "histogram".to_owned(),
        title: format!("Samples of {} that fail where 1 % is missing", audits.samples),
        how: format!("{} audits; the line is the binomial distribution.", audits.audits),
        x: Axis::linear("samples that fail"),
        y: Axis::linear("audits"),
        limit: None,
        series: vec![
            line("counted", false, &|bar| f64::from(bar.audits)),
            line("formula", true, &|bar| bar.formula),
        ],
    }
}

fn judge(rows: &[Row], rates: &[Rate]) -> Vec<Goal> {
    let far = FAR.to_string();
    let goals = [
        (
            "audit",
            far.as_str(),
            3.0,
            "an audit by ranged reads, 50 ms away, the newest objects too: at most 3 s",
        ),
        ("bytes_of_all", far.as_str(), 12.0, "2,759 ranged reads: at most 12 MB"),
        ("reply_bytes", MEMORY, 5_000.0, "an agent's reply: at most 5 KB"),
        ("verify", MEMORY, 1.0, "check of that reply: at most 1 ms"),
        ("deviations", MEMORY, 3.0, "detection within 3 standard deviations of 1 - (1 - e)^N"),
    ];
    let mut goals: Vec<Goal> = goals
        .into_iter()
        .filter_map(|(row, arm, limit, text)| bound(rows, row, arm, Bound::AtMost(limit), text))
        .collect();
    for rate in rates {
        let who = rate.label("writers, with parity and audits by the hour");
        let text = format!("{who}: at least 0.95 of the rate without");
        goals.extend(ratio(rows, &rate.key("written"), writers::COVERED, writers::PLAIN, 0.95, &text));
    }
    let text = "parity traffic: at most 1.1 of the formula";
    goals.extend(bound(rows, "of_formula", writers::COVERED, Bound::AtMost(1.1), text));
    goals
}

fn heading() -> Heading {
    Heading {
        name: "iris-audit".to_owned(),
        title: "What an audit costs, and how often it finds out".to_owned(),
        question: "Does a store that one does not trust still hold everything, and how dear is the question?"
            .to_owned(),
        base: ("0".to_owned(), "a store without a delay".to_owned()),
    }
}

fn notes_of_every_run() -> Vec<String> {
    vec![
        "The pool is on the lab's own store, encrypted, with a parity device on this machine; the delay is played by a link \
         between them, without a limit of its rate but where writers have one. Client, daemon, link and store share the processors."
            .to_owned(),
        "An audit asks for 2,759 cells drawn at random from all of the store, and for 459 of the newest objects if the \
         journal still has some: the cells asked for are the sum. It also reads two tiles of the parity on this machine."
            .to_owned(),
        "The bare loop reads as many ranges of 4 KiB of the same objects with the crate object_store, 64 at once, through a \
         link of its own."
            .to_owned(),
        "Statistics: each audit draws a fresh seed, each cell is judged by its tag, missing cells come back as zeros. Seeds \
         are fixed, so the counts of a run repeat."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::report;
    use steadfast_lab_report::figures::Verdict;

    #[test]
    fn statistics_are_drawn_and_judged() {
        let said = r#"{"samples":2759,"cells":4096,"audits":100,"reply_bytes":4112,"reply_ms":[2.0],"verify_ms":[0.1],
            "judge_ms":[1.0],"detection":[
            {"missing":0.01,"samples":10,"found":0.1,"formula":0.0956,"deviations":0.3},
            {"missing":0.01,"samples":90,"found":0.9,"formula":0.5953,"deviations":-4.5},
            {"missing":0.02,"samples":10,"found":0.2,"formula":0.1829,"deviations":0.4}],
            "histogram":[{"failed":0,"audits":1,"formula":0.5}]}"#;
        let mut report = report("x", true, &[]);
        report.rows.clear();
        in_memory(&mut report, &serde_json::from_str(said).unwrap());
        assert_eq!(report.row("deviations").unwrap().median(MEMORY), Some(4.5));
        let verdicts: Vec<Verdict> =
            judge(&report.rows, &[Rate(None)]).iter().map(|goal| goal.verdict).collect();
        assert_eq!(verdicts, [Verdict::Met, Verdict::Met, Verdict::NotMet]);
        let [detection, histogram] = &report.charts[..] else { panic!("{:?}", report.charts) };
        assert_eq!((detection.series.len(), histogram.series.len()), (4, 2));
        assert_eq!(detection.series[0].points, [(10.0, 10.0), (90.0, 90.0)]);
        assert_eq!(detection.series[2].label, "1 % missing, 1 - (1 - e)^N");
    }

    #[test]
    fn writers_are_judged_at_each_rate() {
        let mut report = report("x", true, &[]);
        report.rows.clear();
        let rates = [Rate(None), Rate(Some(250_000_000))];
        for (rate, with_parity) in rates.into_iter().zip([260.0, 230.0]) {
            let row = Row::new(&rate.key("written"), &rate.label("writing"), "MB/s", true, "");
            report.add(&row, writers::PLAIN, 240.0);
            report.add(&row, writers::COVERED, with_parity * 0.9);
        }
        let goals = judge(&report.rows, &rates);
        let told: Vec<(&str, Verdict)> =
            goals.iter().map(|goal| (goal.text.as_str(), goal.verdict)).collect();
        let who = "writers, with parity and audits by the hour";
        let without = format!("{who}: at least 0.95 of the rate without");
        let limited = format!("{who}, link of 250 MB/s: at least 0.95 of the rate without");
        assert_eq!(told, [(without.as_str(), Verdict::Met), (limited.as_str(), Verdict::NotMet)]);
    }
}
