//! One file system in one round: filled, made cold, loaded in each variant, and what that cost.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_lab_params::Operation;
use steadfast_lab_report::{RunRequest, run_reported};
use steadfast_lab_workload::{Event, Figures, Options, RunResult, execution_seed};

use super::loads::{self, Variant};
use super::report::BesideReport;
use super::request::BesideRequest;
use crate::error::Error;
use crate::file_systems::Arm;
use crate::host::progress::Progress;
use crate::host::shell::Shell;
use crate::load;
use crate::load::files::{self, Blocks};
use steadfast_lab_report::figures::{self, Row};
use steadfast_lab_report::number::MIB;
use steadfast_lab_report::report::{Phase, median};

/// State while one file system is measured.
pub(super) struct Hands<'a> {
    pub arm: &'a mut Arm,
    pub shell: &'a mut Shell,
    pub progress: &'a mut Progress,
    pub stop: &'a AtomicBool,
    pub out: &'a Path,
    pub round: u32,
    pub file_bytes: u64,
    pub report: &'a mut BesideReport,
}

/// Counts around a run.
struct Counted {
    result: RunResult,
    phase: Phase,
    /// Bytes that the device was told to write, until nothing more was.
    written: u64,
    /// Bytes that the image grew by on the disk; may shrink.
    grown: f64,
}

impl Hands<'_> {
    /// Everything that is done with one file system in one round.
    pub fn fill_and_run(&mut self, request: &BesideRequest, variants: &[&Variant]) -> Result<(), Error> {
        let changes = request.changes();
        let plan = request.load.plan(changes, variants.first().unwrap_or(&&loads::VARIANTS[0]))?;
        let place = self.arm.place();
        let lun = loads::lun(&plan);
        let path = place.join(lun.file_name().unwrap_or_default());
        self.alive()?;
        self.progress.begin(&format!("round {}: filling {}", self.round, self.arm.label));
        let mut blocks = Blocks::new(u64::from(self.round), 1.0);
        files::write(&path, self.file_bytes, &mut blocks).map_err(Error::io("write", &path))?;
        self.alive()?;
        self.arm.quiet(self.shell)?;
        self.arm.cold(self.shell)?;
        files::read(&path).map_err(Error::io("read", &path))?;
        self.progress.advance(super::MAKING_S, "");
        for variant in variants {
            self.alive()?;
            let mut plan = request.load.plan(changes, variant)?;
            load::remap(&mut plan, &[(request.load.anchor.to_owned(), place.clone())])?;
            match self.run(&plan, variant)? {
                Ok(counted) => self.note(variant, counted),
                Err(reason) => self.report.notes.push(format!(
                    "{}, {}, round {}: the load failed and is not counted: {}",
                    self.arm.label,
                    variant.name,
                    self.round,
                    reason.replace('\n', " ")
                )),
            }
        }
        Ok(())
    }

    fn alive(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Runs the plan once. The inner error is the load's own: it ends this run and nothing else.
    fn run(
        &mut self,
        plan: &steadfast_lab_params::Plan,
        variant: &Variant,
    ) -> Result<Result<Counted, String>, Error> {
        let out: PathBuf =
            self.out.join("vdbench").join(format!("{}-{}-{}", self.round, self.arm.key, variant.key));
        let watch = if self.arm.is_ours() { vec![self.arm.daemon(self.shell)?] } else { Vec::new() };
        let watched = !watch.is_empty();
        let (written, occupied) = (self.arm.quiet(self.shell)?, self.arm.occupied()?);
        let options = Options {
            watch,
            seed: u64::from(self.round),
            draws: execution_seed().wrapping_add(u64::from(self.round)),
            ..Default::default()
        };
        let request = RunRequest { options, ..RunRequest::new(plan, &out) };
        let mut finished = None;
        let step = format!("round {}: {}, {}", self.round, self.arm.label, variant.name);
        let progress = &mut *self.progress;
        let reported = run_reported(&request, self.stop, &mut std::io::sink(), &mut |event| match event {
            Event::Started { .. } => progress.begin(&step),
            Event::Interval { run, interval } => {
                let asked = &interval.line.requested;
                let rate = asked.count as f64 / run.interval.max(1) as f64;
                progress.advance(run.interval as f64, &format!("{rate:.0}/s  {:.3} ms", asked.mean_ms));
            }
            Event::Error(error) => progress.say(&error.to_string()),
            Event::Finished(result) if !result.is_format() => finished = Some((*result).clone()),
            _ => {}
        })
        .map_err(Error::io("write", &out))?;
        self.alive()?;
        if let Some(reason) = reported.failure {
            return Ok(Err(reason));
        }
        let Some(result) = finished else { return Ok(Err("nothing was run".to_owned())) };
        let cores = self.report.conditions.machine.cores;
        let mut phase = load::phase(&result, self.arm.key, self.round, cores, watched);
        variant.name.clone_into(&mut phase.operation);
        let written = self.arm.quiet(self.shell)?.saturating_sub(written);
        let grown = self.arm.occupied()? as f64 - occupied as f64;
        Ok(Ok(Counted { result, phase, written, grown }))
    }

    /// Takes the figures of a run into the rows.
    fn note(&mut self, variant: &Variant, counted: Counted) {
        let cores = self.report.conditions.machine.cores;
        for (row, value) in rows(variant, &counted, cores) {
            // A figure that only some have keeps its place in the table all the same.
            match value {
                Some(value) => figures::add(&mut self.report.rows, &row, self.arm.key, value),
                None => drop(figures::entry(&mut self.report.rows, &row)),
            }
        }
        self.report.phases.push(counted.phase);
    }
}

/// The intervals that count: those after the warm-up.
fn measured(result: &RunResult, phase: &Phase) -> Vec<f64> {
    let first = (result.first_measured as usize).saturating_sub(1);
    phase.intervals.iter().skip(first).map(|interval| interval.rate).collect()
}

/// All figures of a run, in the order of the table.
fn rows(variant: &Variant, counted: &Counted, cores: u32) -> Vec<(Row, Option<f64>)> {
    let Counted { result, phase, written, grown } = counted;
    let mut found = Vec::new();
    let mut add = |key: &str, label: &str, unit: &str, more: bool, how: &str, value: Option<f64>| {
        // A value that was not measured is not a figure.
        let value = value.filter(|value| value.is_finite());
        let label = format!("{}: {label}", variant.name);
        found.push((Row::new(&format!("{}{key}", variant.prefix), &label, unit, more, how), value));
    };
    let rates = measured(result, phase);
    let (least, most) = (rates.iter().copied().reduce(f64::min), rates.iter().copied().reduce(f64::max));
    add(
        "rate",
        "I/O rate",
        "1/s",
        true,
        "Reads and writes together, first interval not counted.",
        Some(phase.rate),
    );
    add("lowest", "lowest interval", "1/s", true, "The interval with the fewest I/Os.", least);
    add("highest", "highest interval", "1/s", true, "The interval with the most I/Os.", most);
    let worst = least.zip(median(&rates)).map(|(least, middle)| least / middle);
    add("worst", "worst interval over the median one", "times", true, "1 is a rate without any dip.", worst);
    let response = &phase.response;
    let of = |operation| Figures::from(&result.measured.operation(operation));
    let (read, write) = (of(Operation::Read), of(Operation::Write));
    add("mean", "mean response time", "ms", false, "Reads and writes together.", Some(response.mean));
    add("read_mean", "mean of reads", "ms", false, "Reads alone.", Some(read.mean_ms));
    add(
        "write_mean",
        "mean of writes",
        "ms",
        false,
        "Writes alone, with their fsync where there is one.",
        Some(write.mean_ms),
    );
    let [p50, _, p99, p999] = response.percentiles(phase.operations);
    for (key, label, value) in [
        ("p50", "p50", p50),
        ("p99", "p99", p99),
        ("p999", "p99.9", p999),
        ("max", "longest", Some(response.max)),
    ] {
        add(key, label, "ms", false, "Reads and writes together.", value);
    }
    let seconds = result.measured_seconds();
    let each = |seconds: f64| (phase.operations > 0).then(|| seconds * 1e6 / phase.operations as f64);
    let machine = phase.cpu.total / 100.0 * f64::from(cores) * seconds;
    add(
        "cpu",
        "processor use",
        "%",
        false,
        "Whole machine, user and system, the load and whatever else ran included.",
        Some(phase.cpu.total),
    );
    add(
        "cpu_each",
        "processor time of an I/O",
        "\u{b5}s",
        false,
        "The same over the I/Os: what the load itself and everything else on the machine took is in it.",
        each(machine),
    );
    let daemon = phase.daemon_percent.map(|percent| percent / 100.0 * f64::from(cores) * seconds);
    add(
        "daemon",
        "processor use of our daemon",
        "%",
        false,
        "The daemon alone, in percent of the whole machine.",
        phase.daemon_percent,
    );
    add(
        "daemon_each",
        "the same, of an I/O",
        "\u{b5}s",
        false,
        "The daemon's processor time over the I/Os.",
        daemon.and_then(each),
    );
    let accepted = result.whole.operation(Operation::Write).bytes as f64;
    let how = "Counted by the device or by the daemon's process, until nothing more is written; below 1 what was written twice \
               in memory went to the device once.";
    add(
        "bytes",
        "bytes to the device per byte accepted",
        "B/B",
        false,
        how,
        (accepted > 0.0).then(|| *written as f64 / accepted),
    );
    add(
        "space",
        "image grown by",
        "MiB",
        false,
        "Blocks that the image takes of the disk below, after the run against before; the file itself stays as long as it was.",
        Some(grown / MIB),
    );
    found
}
