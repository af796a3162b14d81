//! `steadfast lab run recovery`: how fast a redundant pool heals a device that is flooded with
//! zeros under a live mount.
//!
//! ```text
//! rounds × (raidz1, raidz2, btrfs, zfs-fuse):
//!     make ─► for 25, 50, 75 %: fill ─► dd, clone, scrub, zero + heal, zero + replace ─► verify
//!     raidz1 at 25 % also: little and much memory, devices as hard disks, a cache device,
//!                          a log device
//!     raidz1 of hard disks also: small files, cold and again, with more memory, a cache device,
//!                                special devices
//! ```
//!
//! Like the other experiments it is a stranger to the engine: it types commands and makes system
//! calls. The kernel counts the bytes to and from devices: for a daemon by its process, for btrfs
//! by its loop devices.
//!
//! ## Invariants
//! [lab_recovery.1] The device's own limit, a plain clone of it, and the rate of reading and
//!      writing at once are measured in the same run, on the same devices, before each recovery.
//! [lab_recovery.2] After each recovery everything is read and compared with what was written. A
//!      difference ends the experiment, or the round of another file system.
//! [lab_recovery.3] A file system that is not installed is a column that says so, never a number.
//!      If another file system fails in a step, it keeps its other figures and goes on with the
//!      next step that means anything: the damage is mended first, and if it cannot be, the next
//!      round goes on. The report names the step and the reason: `Hands::step`, `Hands::wounded`.
//! [lab_recovery.4] When it ends, in whatever way, mounts, loop devices, daemons and files are
//!      gone: `Drop` of `Made`.
//! [lab_recovery.5] Ctrl-C ends the command that runs. Commands that take everything away do not
//!      heed it: test `ctrl_c_ends_the_command_that_runs`.
//!
//! ## Reading order
//! [`report`] (the result as data), `redundant` (one file system), `measure` (its steps),
//! `small_files` (small files on slow devices), `judge`, `charts`, `page`.

mod charts;
mod judge;
mod measure;
mod page;
mod redundant;
pub mod report;
mod request;
mod small_files;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use page::render;
pub(crate) use request::RecoveryRequest;

use crate::context::Context;
use crate::document::{self, Figures};
use crate::error::Error;
use crate::host::progress::Progress;
use crate::host::requirements::{check_fuse, check_room, check_root};
use crate::host::shell::Shell;
use crate::results::{self, Results, Told};
use crate::setup::Setup;
use measure::{Hands, STAGE_S, ends_a_round, redundant_of, said};
use redundant::Redundant;
use report::{FILLS, RecoveryReport};
use small_files::Beside;

/// A file system that is taken away in every case [lab_recovery.4].
struct Made {
    volume: Redundant,
    shell: Shell,
}

impl Drop for Made {
    fn drop(&mut self) {
        self.volume.remove(&mut self.shell);
    }
}

impl Told for RecoveryReport {
    fn summary(&self) -> &str {
        &self.summary
    }

    fn table(&self) -> String {
        document::table(&figures(self))
    }
}

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early. A program that is not installed is no failure.
pub fn run(
    request: &RecoveryRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Results<RecoveryReport>, Error> {
    check_fuse()?;
    check_root("it attaches loop devices and drops the kernel's caches", "steadfast lab run recovery")?;
    let parent = request.places.parent();
    let device_bytes = device_bytes(request)?;
    if request.devices.is_empty() {
        let advice = "name another directory with --dir DIR, or smaller devices with --size.";
        check_room(parent, device_bytes * (request::DEVICES as u64 + 1), advice)?;
    }
    let setup = Setup::new("recovery", request.places.out.as_deref(), parent)?;
    let conditions =
        setup.conditions(format!("Steadfast {}", context.version), request.repeat(), request.rounds());
    let mut report = RecoveryReport::new(request, conditions, device_bytes);
    let (workdir, mut shell) = (&setup.workdir, setup.shell(context, stop)?);
    let arms: Vec<&'static str> = request::ARMS.into_iter().filter(|arm| request.wants(arm)).collect();
    let small = if request.wants("raidz1") { 2.0 } else { 0.0 };
    let stages = f64::from(request.rounds()) * (arms.len() as f64 * FILLS.len() as f64 + small);
    let mut progress = Progress::new(stages * STAGE_S);
    let below = format!("{}/", workdir.path().display());
    let done = (1..=request.rounds()).try_for_each(|round| {
        for (at, key) in arms.iter().enumerate() {
            // A file system that failed in one round may succeed in the next; one that is not
            // installed takes no part.
            let bench = redundant_of(key, request, workdir, device_bytes, round)?;
            if let Some(lacks) = bench.lacks() {
                report.arms[at].missing = Some(lacks);
                continue;
            }
            let last = setup.last_shell(context)?;
            let mut made = Made { volume: bench, shell: last };
            let hands = Hands {
                shell: &mut shell,
                stop,
                progress: &mut progress,
                report: &mut report,
                round,
                device_bytes,
                model: request.model(),
                below: &below,
            };
            match hands.measure(&mut made.volume) {
                // A stranger that does not do here what it should is a column that says so and
                // keeps what it has [lab_recovery.3]; one of ours ends the run.
                Err(error) if ends_a_round(key, &error) => {
                    let why = format!("round {round}: {}", said(&error, &below));
                    let missing = &mut report.arms[at].missing;
                    *missing =
                        Some(missing.take().map_or_else(|| why.clone(), |one| format!("{one}; {why}")));
                }
                other => other?,
            }
        }
        for beside in [Beside::Cache, Beside::Special].into_iter().filter(|_| request.wants("raidz1")) {
            let bench = small_files::bench(beside, workdir)?;
            let last = setup.last_shell(context)?;
            let mut made = Made { volume: bench, shell: last };
            let hands = Hands {
                shell: &mut shell,
                stop,
                progress: &mut progress,
                report: &mut report,
                round,
                device_bytes,
                model: request.model(),
                below: &below,
            };
            hands.small_files(beside, request.files(), &mut made.volume)?;
        }
        Ok(())
    });
    progress.end();
    report.conditions.seconds = setup.seconds();
    let measured = report.rows.iter().any(|row| !row.values.is_empty());
    let RecoveryReport { rows, notes, conditions, .. } = &mut report;
    let early = results::early(done, measured, &*rows, notes, conditions)?;
    report.goals = judge::judge(&report);
    report.charts = charts::charts(&report);
    report.summary = judge::summary(&report);
    report.notes.extend(small_files::of_scans(&report.rows));
    report.notes.extend(small_files::answers(&report.rows, &report.model));
    report.commands = shell.history();
    let (page, whole) = (render(&report), report.clone());
    let figures = figures(&whole);
    results::write(report, &page, &setup.out, early, Some(&figures), request.document.markdown.as_deref())
}

/// Bytes of each device: what was asked for, or what the given ones have.
fn device_bytes(request: &RecoveryRequest) -> Result<u64, Error> {
    let mut least = u64::MAX;
    for path in &request.devices {
        let mut file = fs::File::open(path).map_err(Error::io("open", path))?;
        let size = std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0));
        least = least.min(size.map_err(Error::io("measure", path))?);
    }
    Ok(if request.devices.is_empty() { request.device_bytes() } else { least })
}

/// Contents of the table in a document.
pub(crate) fn figures(report: &RecoveryReport) -> Figures<'_> {
    let base = report.arms.first().map_or(("raidz1", "raidz1"), |arm| (arm.key.as_str(), arm.label.as_str()));
    Figures {
        name: "recovery",
        conditions: &report.conditions,
        sizes: &report.sizes,
        arms: &report.arms,
        base,
        rows: &report.rows,
        goals: &report.goals,
        charts: &report.charts,
        stacks: &[],
        notes: &report.notes,
    }
}
