//! `steadfast lab run cow` and `lab run journal`: one parameter file of the source reports, on many
//! file systems beside each other, as it is and then with an fsync after every write.
//!
//! ```text
//! file ─[loads: luns mapped; durations and size only on request]→ plan ─┐
//! rounds × file systems, rotated ─[make, fill, cold, read]→ mount ──────┴─[measure]→ phases
//!
//! phases ─► rows ─► goals ─► report.json, report.html, a document
//! ```
//!
//! Like the other experiments it is a stranger to the engine: it types commands and makes system
//! calls.
//!
//! ## Invariants
//! [beside.1] Each figure of each file system comes from a fresh one with a fresh file: no round
//!      pays for the one before, and the disk has to hold one image at a time.
//! [beside.2] Caches are alike when the clock starts: everything was unmounted (our pools
//!      exported), the kernel's caches dropped with those of the image, mounted again, and the
//!      whole file read once.
//! [beside.3] All file systems do the same calls in the same order; each round begins with another
//!      one.
//! [beside.4] A file system that is not installed, and a journal mode that this build refuses, is a
//!      column that says so, never a number. A run that failed is a note and no number.
//! [beside.5] When it ends, in whatever way, mounts, loop devices, daemons and files are gone:
//!      `Drop` of `Arms`.
//!
//! ## Reading order
//! [`report`] (the result as data), `loads` (the two experiments), `measure`, `page`.

mod loads;
mod measure;
mod page;
pub mod report;
mod request;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use steadfast_lab_report::figures::{ArmInfo, Axis, Chart, Series, goals, shown};
use steadfast_lab_report::number;
use steadfast_lab_report::report::{Conditions, Load, median};

pub(crate) use loads::find;
pub use page::render;
pub(crate) use request::{BesideRequest, with_columns};

use crate::context::Context;
use crate::document::{self, Figures};
use crate::error::Error;
use crate::file_systems::{Arms, Recipe};
use crate::host::progress::Progress;
use crate::host::requirements::{check_fuse, check_room, check_root};
use crate::load;
use crate::results::{self, Results, Told};
use crate::setup::Setup;
use loads::{Column, VARIANTS, Variant};
use measure::Hands;
use report::{BesideReport, Reported, SCHEMA, VERSION};

/// The column that ratios refer to.
pub(crate) const BASE: &str = "ext4";
/// Seconds for making, filling and taking away, for the progress bar.
const MAKING_S: f64 = 20.0;
/// Room on the disk beside the image.
const SLACK: u64 = 256 << 20;

impl Told for BesideReport {
    fn summary(&self) -> &str {
        &self.summary
    }

    fn table(&self) -> String {
        table(self)
    }
}

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early. A program that is not installed is none, nor is a load that
/// fails on one file system.
pub fn run(
    request: &BesideRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Results<BesideReport>, Error> {
    let name = request.load.name;
    check_fuse()?;
    let command = format!("steadfast lab run {name}");
    check_root("it mounts loop devices and drops the kernel's caches", &command)?;
    let changes = request.changes();
    let file_bytes = changes.size.unwrap_or(u64::MAX).min(request.load.file_bytes());
    let image_bytes = request.image_bytes(file_bytes);
    let parent = request.places.parent();
    let advice = "name another directory with --dir DIR, or a smaller file with --size.";
    check_room(parent, image_bytes + SLACK, advice)?;
    let setup = Setup::new(name, request.places.out.as_deref(), parent)?;
    let runs = setup.out.join("vdbench");
    fs::create_dir_all(&runs).map_err(Error::io("create", &runs))?;
    let conditions = Conditions {
        elapsed_override_s: changes.elapsed_s,
        ..setup.conditions(
            format!("Steadfast {} through FUSE", context.version),
            request.repeat(),
            request.rounds(),
        )
    };
    let mut report = empty(request, conditions, file_bytes);
    let (workdir, mut shell) = (&setup.workdir, setup.shell(context, stop)?);
    let columns: Vec<&Column> =
        request.load.columns.iter().filter(|column| request.wants_arm(column.key)).collect();
    let variants: Vec<&Variant> = VARIANTS.iter().filter(|variant| request.wants(variant.key)).collect();
    let seconds = load::seconds(&request.load.plan(changes, &VARIANTS[0])?);
    let mut progress = Progress::new(
        (seconds * variants.len() as f64 + MAKING_S) * columns.len() as f64 * f64::from(request.rounds()),
    );
    let done = (1..=request.rounds()).try_for_each(|round| {
        let mut order: Vec<(usize, &&Column)> = columns.iter().enumerate().collect();
        // Each round begins with another one [beside.3].
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
            let mut arms = Arms::new(vec![recipe], workdir, context, &mut shell)?;
            report.arms[at].missing = arms.info().remove(0).missing;
            let Some(arm) = arms.get(column.key) else { continue };
            let mut hands = Hands {
                arm,
                shell: &mut shell,
                progress: &mut progress,
                stop,
                out: &setup.out,
                round,
                file_bytes,
                report: &mut report,
            };
            hands.fill_and_run(request, &variants)?;
        }
        Ok(())
    });
    progress.end();
    report.conditions.seconds = setup.seconds();
    report.rows.retain(|row| !row.values.is_empty());
    let measured = !report.rows.is_empty();
    let BesideReport { rows, notes, conditions, .. } = &mut report;
    let early = results::early(done, measured, &*rows, notes, conditions)?;
    report.goals = request.load.judge(&report.rows);
    report.charts = charts(&report);
    report.summary = summary(&report);
    report.commands = shell.history();
    let (page, whole) = (render(&report), report.clone());
    let figures = figures(&whole);
    results::write(report, &page, &setup.out, early, Some(&figures), request.document.markdown.as_deref())
}

/// The report before anything was measured.
fn empty(request: &BesideRequest, conditions: Conditions, file_bytes: u64) -> BesideReport {
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
        conditions,
        sizes,
        arms: load
            .columns
            .iter()
            .filter(|column| request.wants_arm(column.key))
            .map(|column| ArmInfo {
                key: column.key.to_owned(),
                label: column.label.to_owned(),
                missing: None,
            })
            .collect(),
        variants: VARIANTS
            .iter()
            .filter(|variant| request.wants(variant.key))
            .map(|variant| report::Variant {
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
        load: Load {
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
    let chart = |variant: &report::Variant| {
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
            how: "For each interval the median of the rounds.".to_owned(),
            x: Axis::linear("seconds"),
            y: if most > 10.0 * least { Axis::log("I/Os a second") } else { Axis::linear("I/Os a second") },
            limit: None,
            series,
        }
    };
    report.variants.iter().map(chart).filter(|chart| !chart.series.is_empty()).collect()
}

/// Summary, in a few sentences.
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

/// Contents of the table in a document.
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
        stacks: &[],
        notes: &report.notes,
    }
}

/// The figures, the goals and the notes, as Markdown.
pub fn table(report: &BesideReport) -> String {
    document::table(&figures(report))
}
