//! `steadfast lab run cow` and `lab run journal`: one parameter file of the source reports, on many file systems beside each
//! other, as it is and then with an fsync after every write.
//!
//! ```text
//! file ─[loads: luns mapped; durations and size only on request]→ plan ─┐
//! rounds × file systems, rotated ─[make, fill, cold, read]→ mount ──────┴─[measure]→ phases ─► rows ─► goals
//!                                                                             report.json, report.html, a document
//! ```
//!
//! Like the other experiments it is a stranger to the engine: it types commands and makes system calls.
//!
//! ## Invariants
//! (B1) Each figure of each file system comes from a fresh one with a fresh file: no round pays for the one before, and the
//!      disk has to hold one image at a time.
//! (B2) Caches are alike when the clock starts: everything was unmounted (our pools exported), the kernel's caches dropped
//!      with those of the image, mounted again, and the whole file read once.
//! (B3) All do the same calls in the same order; each round begins with another one.
//! (B4) What is not installed, and a journal mode that this build refuses, is a column that says so, never a number. A run
//!      that failed is a note and no number.
//! (B5) Whatever way it ends, mounts, loop devices, daemons and files are gone.                    `Drop` of `arms::Arms`
//!
//! ## Reading order
//! [`data`] (what a result is), [`loads`] (the two experiments), [`arms`](crate::arms), `measure`, `page`.

pub(crate) mod args;
pub mod data;
pub mod loads;
mod measure;
mod page;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime};

pub use args::{BesideRequest, USAGE};
pub use page::render;

use crate::arms::{Arms, Recipe};
use crate::error::Error;
use crate::figures::goals;
use crate::figures::markdown::{self, Figures};
use crate::figures::{ArmInfo, Axis, Chart, Series, shown};
use crate::progress::Progress;
use crate::report::{self, Conditions, median};
use crate::results::{self, Results};
use crate::shell::Shell;
use crate::target::check_fuse;
use crate::workdir::Workdir;
use crate::{Context, load, machine, number, space};

use data::{BesideReport, Reported, SCHEMA, VERSION};
use loads::{Column, Variant};
use measure::Hands;

/// The column that ratios refer to.
pub(crate) const BASE: &str = "ext4";
/// Seconds for making, filling and taking away, for the progress bar.
const MAKING_S: f64 = 20.0;
/// Room on the disk beside the image.
const SLACK: u64 = 256 << 20;

/// What it left behind.
pub type BesideResults = Results<BesideReport>;

/// Runs it and writes the reports.
///
/// # Errors
/// Whatever keeps it from its end. What is merely not installed does not, nor does a load that fails on one file system.
pub fn run(
    request: &BesideRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<BesideResults, Error> {
    let name = request.load.name;
    check_fuse()?;
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Missing {
            what: "This needs root: it mounts loop devices and drops the kernel's caches.".to_owned(),
            action: format!("type `sudo steadfast lab run {name}`."),
        });
    }
    let changes = request.changes();
    let file_bytes = changes.size.unwrap_or(u64::MAX).min(request.load.file_bytes());
    let image_bytes = request.image_bytes(file_bytes);
    let parent = request.dir.clone().unwrap_or_else(|| PathBuf::from("/var/tmp"));
    let (available, needed) = (space::available(&parent)?, image_bytes + SLACK);
    if available < needed {
        return Err(Error::Missing {
            what: format!(
                "{} has {} free, and this needs {}: one image at a time.",
                parent.display(),
                number::bytes(available),
                number::bytes(needed)
            ),
            action: "name another directory with --dir DIR, or a smaller file with --size.".to_owned(),
        });
    }
    let out = results::directory(name, request.out.as_deref())?;
    let runs = out.join("vdbench");
    fs::create_dir_all(&runs).map_err(Error::io("create", &runs))?;

    let (started, clock) = (SystemTime::now(), Instant::now());
    let mut machine = machine::describe(&parent);
    machine.busy_before_percent = machine::busy();
    let mut report = empty(request, context, file_bytes);
    report.conditions.machine = machine;

    let workdir = Workdir::create(&parent)?;
    let mut shell = Shell::new(&context.steadfast, &workdir.subdirectory("said")?).heeding(Arc::clone(stop));
    let columns: Vec<&Column> =
        request.load.columns.iter().filter(|column| wanted(request, column)).collect();
    let variants: Vec<&Variant> =
        loads::VARIANTS.iter().filter(|variant| request.wants(variant.key)).collect();
    let seconds = load::seconds(&request.load.plan(changes, &loads::VARIANTS[0])?);
    let mut progress = Progress::new(
        (seconds * variants.len() as f64 + MAKING_S) * columns.len() as f64 * f64::from(request.rounds),
    );
    let done = (1..=request.rounds).try_for_each(|round| {
        let mut order: Vec<(usize, &&Column)> = columns.iter().enumerate().collect();
        // Each round begins with another one (B3).
        let first = (round - 1) as usize % order.len().max(1);
        order.rotate_left(first);
        for (at, column) in order {
            if report.arms[at].missing.is_some() {
                continue;
            }
            progress.begin(&format!("round {round}: making {}", column.label));
            let recipe =
                Recipe { key: column.key, label: column.label, kind: column.kind.clone(), image_bytes };
            // Fresh for this round, gone behind it (B1, B5).
            let mut arms = Arms::new(vec![recipe], &workdir, context, &mut shell)?;
            report.arms[at].missing = arms.info().remove(0).missing;
            let Some(arm) = arms.get(column.key) else { continue };
            let mut hands = Hands {
                arm,
                shell: &mut shell,
                progress: &mut progress,
                stop,
                out: &out,
                round,
                file_bytes,
                report: &mut report,
            };
            hands.fill_and_run(request, &variants)?;
        }
        Ok(())
    });
    progress.end();
    report.conditions.started = machine::stamp(started);
    report.conditions.seconds = clock.elapsed().as_secs_f64();
    report.rows.retain(|row| !row.values.is_empty());
    let early = results::early(done, !report.rows.is_empty(), &mut report.notes)?;
    if early.is_some() {
        report.conditions.rounds = results::rounds(report.rows.iter().flat_map(|row| row.values.values()));
    }
    report.goals = request.load.judge(&report.rows);
    report.charts = charts(&report);
    report.summary = summary(&report);
    report.commands = shell.history();
    let (page, whole) = (render(&report), report.clone());
    let figures = figures(&whole);
    results::write(report, &page, &out, early, Some(&figures), request.markdown.as_deref())
}

fn wanted(request: &BesideRequest, column: &Column) -> bool {
    request.arms.as_ref().is_none_or(|only| only.iter().any(|name| name == column.key))
}

/// The report before anything was measured.
fn empty(request: &BesideRequest, context: &Context, file_bytes: u64) -> BesideReport {
    let (load, changes) = (request.load, request.changes());
    let mut sizes = format!(
        "a file of {}, images of {}",
        number::bytes(file_bytes),
        number::bytes(request.image_bytes(file_bytes))
    );
    let mut changed = Vec::new();
    if file_bytes < load.file_bytes() {
        changed.push(format!(
            "the file is {} instead of {}",
            number::bytes(file_bytes),
            number::bytes(load.file_bytes())
        ));
    }
    if let Some(seconds) = changes.elapsed_s {
        changed.push(format!("each run takes {seconds} s instead of what the file says"));
    }
    if let Some(seconds) = changes.interval_s {
        changed.push(format!("intervals of {seconds} s instead of 5 s"));
    }
    if !changed.is_empty() {
        sizes.push_str(&format!("; on request {}", changed.join(", ")));
    }
    BesideReport {
        schema: SCHEMA.to_owned(),
        version: VERSION,
        experiment: load.name.to_owned(),
        title: load.title.to_owned(),
        question: load.question.to_owned(),
        summary: String::new(),
        conditions: Conditions {
            target: format!("Steadfast {} through FUSE", context.version),
            repeat: args::repeat(request),
            rounds: request.rounds,
            elapsed_override_s: changes.elapsed_s,
            ..Conditions::default()
        },
        sizes,
        arms: load
            .columns
            .iter()
            .filter(|column| wanted(request, column))
            .map(|column| ArmInfo {
                key: column.key.to_owned(),
                label: column.label.to_owned(),
                missing: None,
            })
            .collect(),
        variants: loads::VARIANTS
            .iter()
            .filter(|variant| request.wants(variant.key))
            .map(|variant| data::Variant {
                prefix: variant.prefix.to_owned(),
                name: variant.name.to_owned(),
                how: variant.how.to_owned(),
            })
            .collect(),
        rows: Vec::new(),
        goals: Vec::new(),
        charts: Vec::new(),
        phases: Vec::new(),
        reported: load
            .reported()
            .into_iter()
            .map(|(row, what, value)| Reported { row: row.to_owned(), what: what.to_owned(), value })
            .collect(),
        source: load.source.to_owned(),
        load: report::Load {
            file: load.parameters.file.to_owned(),
            text: load.parameters.text.to_owned(),
            mapping: vec![(load.anchor.to_owned(), "the mount of each file system".to_owned())],
        },
        notes: Vec::new(),
        commands: Vec::new(),
    }
}

/// Rate over time, one picture a variant: of each interval the middle of the rounds.
fn charts(report: &BesideReport) -> Vec<Chart> {
    let chart = |variant: &data::Variant| {
        let series: Vec<Series> = report
            .arms
            .iter()
            .filter_map(|arm| {
                let rounds: Vec<_> = report
                    .phases
                    .iter()
                    .filter(|phase| phase.arm == arm.key && phase.operation == variant.name)
                    .collect();
                let points: Vec<(f64, f64)> = (0..rounds.first()?.intervals.len())
                    .filter_map(|at| {
                        let there: Vec<_> =
                            rounds.iter().filter_map(|phase| phase.intervals.get(at)).collect();
                        let rates: Vec<f64> = there.iter().map(|interval| interval.rate).collect();
                        Some((there.first()?.at_s, median(&rates)?))
                    })
                    .collect();
                Some(Series { label: arm.label.clone(), calculated: false, points })
            })
            .collect();
        let rates = || series.iter().flat_map(|line| &line.points).map(|point| point.1);
        let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        Chart {
            key: format!("{}rate", variant.prefix),
            title: format!("{}, {}: I/Os a second over time", report.load.file, variant.name),
            how: "Of each interval the middle of the rounds.".to_owned(),
            x: Axis::linear("seconds"),
            y: if most > 10.0 * least { Axis::log("I/Os a second") } else { Axis::linear("I/Os a second") },
            limit: None,
            series,
        }
    };
    report.variants.iter().map(chart).filter(|chart| !chart.series.is_empty()).collect()
}

/// What came out, in a few sentences.
fn summary(report: &BesideReport) -> String {
    let mut words = if report.goals.is_empty() { String::new() } else { goals::summary(&report.goals) };
    for arm in &report.arms {
        let of = |key: &str| report.row(key).and_then(|row| row.median(&arm.key));
        let known = arm.label.starts_with("steadfast");
        if let (true, Some(rate), Some(worst), Some(bytes)) = (known, of("rate"), of("worst"), of("bytes")) {
            words.push_str(&format!(
                " {}: {} I/Os a second, the worst interval {} of the median one, {} bytes written to the device for one \
                 accepted.",
                arm.label,
                shown(rate),
                shown(worst),
                shown(bytes)
            ));
        }
    }
    words.trim().to_owned()
}

/// What a document gets.
pub(crate) fn figures(report: &BesideReport) -> Figures<'_> {
    let base = report.arms.iter().find(|arm| arm.key == BASE).map_or("ext4", |arm| arm.label.as_str());
    Figures {
        name: &report.experiment,
        conditions: &report.conditions,
        sizes: &report.sizes,
        arms: &report.arms,
        base: (BASE, base),
        rows: &report.rows,
        goals: &report.goals,
        charts: &report.charts,
        notes: &report.notes,
    }
}

/// The figures, the goals, and what has to be known of them, as Markdown.
pub fn table(report: &BesideReport) -> String {
    markdown::table(&figures(report))
}
