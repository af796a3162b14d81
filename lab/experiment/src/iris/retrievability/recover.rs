//! `steadfast lab run iris-recover`: how long a recovery takes beside reading the store once, and
//! up to which loss everything comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use steadfast_lab_network::Conditions;
use steadfast_lab_report::figures::goals::{Bound, bound, ratio, summary};
use steadfast_lab_report::figures::{ArmInfo, Axis, Chart, Goal, Row, Series, shown};
use steadfast_lab_report::number;
use steadfast_lab_report::report::median;

use super::RecoverRequest;
use super::covered::{CELL, CoveredPool};
use super::program::{self, Edge, Losses};
use crate::bucket::Cleared;
use crate::bucket::remote::Remote;
use crate::comparison::{self, ComparisonReport, Heading};
use crate::context::Context;
use crate::error::Error;
use crate::host::progress::Progress;
use crate::host::requirements::{check_fuse, check_room, check_root};
use crate::load::files::Noise;
use crate::options::Rate;
use crate::results::{self, Results};
use crate::setup::Setup;

/// Columns.
const POOL: &str = "pool";
const BARE: &str = "bare";
const MEMORY: &str = "memory";
/// Part of the pool's content that a round loses: what the code is made for. It is one segment at
/// least.
const LOST_PART: u64 = 50;
/// Cells of a code for each of its tiles, at the loss of 2 %.
const CELLS_OF_A_TILE: f64 = 1583.9 / 0.02;
/// Lost cells that a tile is made for.
const PLANNED: u32 = 1_583;
/// A network that reads a store once: 10 Gb/s.
const NETWORK: f64 = 1_250.0;

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early.
pub fn run(
    request: &RecoverRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Results<ComparisonReport>, Error> {
    let program = program::find(request.program.as_deref(), context)?;
    check_fuse()?;
    check_root("it drops the kernel's caches", "steadfast lab run iris-recover")?;
    let parent = request.places.parent();
    check_room(parent, 4 << 30, "name another directory with --dir DIR.")?;
    let remote = Remote::open(None)?;
    let setup = Setup::new("iris-recover", request.places.out.as_deref(), parent)?;
    let mut shell = setup.shell(context, stop)?;
    let arms =
        [(BARE, "reading the store once"), (POOL, "recovery of a pool"), (MEMORY, "in memory, one core")];
    let (tiles, trials) = request.trials();
    let mut report = ComparisonReport::new(
        Some(heading()),
        setup.conditions(
            format!("Steadfast {} on {}", context.version, remote.label),
            request.repeat(),
            request.rounds(),
        ),
        format!(
            "{} in the pool, {tiles} tiles and {trials} recoveries at each loss in memory",
            number::bytes(request.file())
        ),
        arms.map(|(key, label)| ArmInfo { key: key.to_owned(), label: label.to_owned(), missing: None })
            .to_vec(),
    );
    let cleared = Cleared(&remote);
    let mut progress = Progress::new(f64::from(request.rounds()) * request.rates().len() as f64 + 2.0);
    progress.begin("making the pool");
    let conditions = Conditions { round_trip: Duration::ZERO, rate: None, loss: None };
    let sizes = (request.file(), request.parity());
    let rounds = (request.rounds(), request.file() / LOST_PART);
    let done =
        CoveredPool::make(&setup, context, &remote, conditions, sizes, &mut shell).and_then(|mut pool| {
            let rates = request.rates();
            of_a_pool(&mut pool, rounds, &rates, &mut progress, &mut report, stop)
        });
    let done = done.and_then(|()| {
        progress.begin("recovering losses in memory");
        let words = format!("recover --tiles {tiles} --trials {trials} --rounds {}", request.rounds());
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

fn row(key: &str, label: &str, unit: &str, more: bool, how: &str) -> Row {
    Row::new(key, label, unit, more, how)
}

/// Loses segments of so many bytes and recovers them, over and over.
fn of_a_pool(
    pool: &mut CoveredPool<'_>,
    (rounds, bytes): (u32, u64),
    rates: &[Rate],
    progress: &mut Progress,
    report: &mut ComparisonReport,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let checksum = pool.checksum()?;
    let mut noise = Noise::new(11);
    for (round, limit) in (1..=rounds).flat_map(|round| rates.iter().map(move |rate| (round, *rate))) {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        progress.begin(&limit.label(&format!("loss and recovery, round {round}")));
        pool.set_rate(limit);
        let bare = pool.bare.read_all()?;
        let lost = pool.lose(bytes, &mut noise)?;
        let (_, found) = pool.audit()?;
        let (seconds, recovery) = pool.recover()?;
        let (_, after) = pool.audit()?;
        if !recovery.lost.is_empty() || !after.held || pool.checksum()? != checksum {
            return Err(Error::Answer {
                line: "a recovery".to_owned(),
                answer: format!("{} cells that did not come back", recovery.lost.len()),
                expected: "the pool as it was",
            });
        }
        let inside = recovery.nanoseconds as f64 / 1e9;
        let content = (recovery.cells * CELL) as f64 / 1e6;
        let solving = recovery.solving_nanoseconds as f64 / 1e9;
        let of_limit = |key: &str, label: &str, unit: &str, more, how: &str| {
            row(&limit.key(key), &limit.label(label), unit, more, how)
        };
        let how = "Content of all cells over the whole time.";
        let rate = of_limit("rate", "all cells of the store", "MB/s", true, how);
        report.add(&rate, BARE, bare);
        report.add(&rate, POOL, content / inside);
        let of_pool = [
            (
                of_limit(
                    "time",
                    "the command, from its start to its end",
                    "s",
                    false,
                    "Measured by the lab.",
                ),
                seconds,
            ),
            (
                of_limit(
                    "solving",
                    "solving, in that recovery",
                    "% of its time",
                    false,
                    "As the recovery tells it.",
                ),
                100.0 * solving / inside,
            ),
            (
                row("lost", "cells that were lost", "cells", false, "Of whole segments that were deleted."),
                lost as f64,
            ),
            (
                row("from_code", "of them from the code", "cells", true, "The others came from the journal."),
                recovery.from_code as f64,
            ),
            (
                row(
                    "found",
                    "samples of the audit before that failed",
                    "%",
                    true,
                    "Of those that were drawn.",
                ),
                100.0 * f64::from(found.samples() - found.held()) / f64::from(found.samples().max(1)),
            ),
        ];
        for (row, value) in of_pool {
            report.add(&row, POOL, value);
        }
        debug_assert_eq!(recovery.from_code + recovery.from_journal, lost);
        progress.advance(1.0, "");
    }
    Ok(())
}

/// Losses of a code in memory.
fn in_memory(report: &mut ComparisonReport, losses: &Losses) {
    for solving in &losses.solving {
        let label = format!("solving a tile that lost {} cells", shown(f64::from(solving.lost)));
        let key = format!("solve_{}", solving.lost);
        let row = row(&key, &label, "s", false, "Processor time of one thread.");
        solving.seconds.iter().for_each(|value| report.add(&row, MEMORY, *value));
        if solving.lost == PLANNED
            && let Some(seconds) = median(&solving.seconds)
        {
            let reading = CELLS_OF_A_TILE * CELL as f64 / 1e6 / NETWORK;
            let share = Row::new(
                "share",
                "solving the planned loss of a full pool",
                "% of reading it once at 10 Gb/s",
                false,
                "From the time of a tile: a pool has one for each 324 MB.",
            );
            report.add(&share, MEMORY, 100.0 * seconds / reading);
        }
    }
    let up_to = |value: fn(&Edge) -> f64| {
        losses.edge.iter().filter(|edge| edge.part <= 1.0).map(value).fold(100.0, f64::min)
    };
    let how = "Of all trials at losses up to the planned one.";
    let least =
        row("whole", "recoveries after which nothing is missing, up to the planned loss", "%", true, how);
    report.add(&least, MEMORY, up_to(|edge| 100.0 * edge.whole));
    report.charts.push(edge(
        losses,
        "edge",
        "Recoveries after which nothing is missing",
        |edge| edge.whole,
        true,
    ));
    report.charts.push(edge(losses, "back", "Lost cells that come back", |edge| edge.back, false));
}

fn edge(losses: &Losses, key: &str, title: &str, value: fn(&Edge) -> f64, with_bound: bool) -> Chart {
    let mut patterns: Vec<&str> = losses.edge.iter().map(|edge| edge.pattern.as_str()).collect();
    patterns.dedup();
    let line = |label: &str, pattern: &str, calculated, value: fn(&Edge) -> f64| Series {
        label: label.to_owned(),
        calculated,
        points: losses
            .edge
            .iter()
            .filter(|edge| edge.pattern == pattern)
            .map(|edge| (100.0 * edge.part, 100.0 * value(edge)))
            .collect(),
    };
    let mut series: Vec<Series> =
        patterns.iter().map(|pattern| line(&format!("lost {pattern}"), pattern, false, value)).collect();
    if let Some(pattern) = patterns.first().filter(|_| with_bound) {
        series.push(line("at least, by the arithmetic", pattern, true, |edge| edge.bound));
    }
    Chart {
        key: key.to_owned(),
        title: title.to_owned(),
        how: format!(
            "{} recoveries at each loss, each with another map; {} tiles, {} cells.",
            losses.trials, losses.tiles, losses.cells
        ),
        x: Axis::linear("loss, % of the planned one"),
        y: Axis::linear("%"),
        limit: None,
        series,
    }
}

fn judge(rows: &[Row], rates: &[Rate]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for rate in rates {
        let text =
            format!("{}: at least 0.8 of the rate of reading the store once", rate.label("a recovery"));
        goals.extend(ratio(rows, &rate.key("rate"), POOL, BARE, 0.8, &text));
    }
    let text = "solving the planned loss: at most 10 % of reading a full pool once at 10 Gb/s";
    goals.extend(bound(rows, "share", MEMORY, Bound::AtMost(10.0), text));
    let text = "everything comes back after each loss up to the planned one";
    goals.extend(bound(rows, "whole", MEMORY, Bound::AtLeast(100.0), text));
    goals
}

fn heading() -> Heading {
    Heading {
        name: "iris-recover".to_owned(),
        title: "What a recovery costs, and how much may be lost".to_owned(),
        question: "Does everything come back up to the planned loss, and how long does it take?".to_owned(),
        base: (BARE.to_owned(), "reading the store once".to_owned()),
    }
}

fn notes_of_every_run() -> Vec<String> {
    vec![
        "The pool is on the lab's own store, encrypted, with a parity device on this machine, and no delay between them. Each \
         round deletes whole segments at the store, 2 % of the content and one of them at least, audits, recovers, audits \
         again, and compares a checksum of the file."
            .to_owned(),
        "Reading the store once: a bare loop over the crate object_store, 32 whole objects at once, on a link of its own. Where \
         the pool's link has a rate, so has that one. Cells that were lost are those of all rounds."
            .to_owned(),
        "In memory the store is its losses alone: the rows of a tile without the cells that are there are the sums of the \
         missing ones. Tiles hold 2,048 cells at the most, 1.29 times the planned loss: no code can do better there."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::report;
    use steadfast_lab_report::figures::Verdict;

    #[test]
    fn the_edge_is_drawn_and_losses_up_to_the_plan_are_judged() {
        let said = r#"{"cells":79195,"tiles":1,"trials":10,"edge":[
            {"pattern":"by chance","part":0.5,"whole":1.0,"back":1.0,"bound":1.0},
            {"pattern":"by chance","part":1.0,"whole":0.9,"back":0.99,"bound":1.0},
            {"pattern":"by chance","part":1.3,"whole":0.0,"back":0.2,"bound":0.0}],
            "solving":[{"lost":1583,"seconds":[0.1,0.2,0.1]}]}"#;
        let mut report = report("x", true, &[]);
        report.rows.clear();
        in_memory(&mut report, &serde_json::from_str(said).unwrap());
        let whole = report.row("whole").unwrap().median(MEMORY).unwrap();
        assert!((whole - 90.0).abs() < 1e-9, "{whole}");
        let share = report.row("share").unwrap().median(MEMORY).unwrap();
        assert!((share - 38.5).abs() < 0.2, "{share}");
        let verdicts: Vec<Verdict> =
            judge(&report.rows, &[Rate(None)]).iter().map(|goal| goal.verdict).collect();
        assert_eq!(verdicts, [Verdict::NotMet, Verdict::NotMet]);
        assert_eq!(report.charts[0].series.len(), 2);
        assert_eq!(report.charts[0].series[0].points[2], (130.0, 0.0));
    }

    #[test]
    fn a_recovery_is_judged_at_each_rate() {
        let mut report = report("x", true, &[]);
        report.rows.clear();
        let rates = [Rate(None), Rate(Some(250_000_000))];
        for (rate, read) in rates.into_iter().zip([2_000.0, 240.0]) {
            let told = row(&rate.key("rate"), "cells", "MB/s", true, "");
            report.add(&told, BARE, read);
            report.add(&told, POOL, 235.0);
        }
        let verdicts: Vec<Verdict> = judge(&report.rows, &rates).iter().map(|goal| goal.verdict).collect();
        assert_eq!(verdicts, [Verdict::NotMet, Verdict::Met]);
        assert!(judge(&report.rows, &rates)[1].text.contains("link of 250 MB/s"));
    }
}
