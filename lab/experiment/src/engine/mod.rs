//! `steadfast lab run engine`: how fast the file system is beside others on the same disk, and what
//! an operation costs as pools and trees grow.
//!
//! ```text
//! options ─► arms (each a file system made by commands)
//!         │      ─[groups of work, interleaved rounds]→ rows ─────────────────┐
//!         └► curves (files, pool size, utilisation, memory) ──────────────────┴─► goals
//!
//! rows, curves, goals ─► report.json, report.html, a table and pictures for a document
//! ```
//!
//! The other experiments compare two settings of one system under a carried parameter file; this
//! one compares many systems under many small loads, so it has a shape of its own. It too is a
//! stranger to the engine: it types commands.
//!
//! ## Invariants
//! [lab_engine.1] Cold means the same for everybody: everything is unmounted (our pools exported)
//!      and written back, the kernel's caches are dropped, those of image files among them, and
//!      everything is mounted again: `Arm::cold`.
//! [lab_engine.2] All arms do the same calls on the same bytes in the same order; each round begins
//!      with another arm.
//! [lab_engine.3] A file system that is not installed is a column that says so, never a number.
//! [lab_engine.4] When it ends, in whatever way, mounts, loop devices, daemons and files are gone:
//!      `Drop` of `Arms`.
//! [lab_engine.5] Ctrl-C ends the command that is waited for. Commands that take everything away do
//!      not heed it.
//!
//! ## Reading order
//! `comparison` (the result as data), `file_systems`, `load`, `goals`, `groups` and `curves` (the
//! work).

mod columns;
mod curves;
mod goals;
mod groups;
mod request;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_lab_report::number;

pub(crate) use request::EngineRequest;

use crate::comparison::{self, ComparisonReport};
use crate::context::Context;
use crate::error::Error;
use crate::file_systems::Arms;
use crate::host::progress::Progress;
use crate::host::requirements::{check_fuse, check_room, check_root};
use crate::host::shell::Shell;
use crate::results::{self, Results};
use crate::setup::Setup;

/// The stage while the experiment runs: what every group and curve gets.
pub(crate) struct Run<'a> {
    pub request: &'a EngineRequest,
    pub arms: Arms,
    pub shell: Shell,
    pub scratch: PathBuf,
    pub progress: Progress,
    pub stop: &'a AtomicBool,
    pub report: ComparisonReport,
}

impl Run<'_> {
    /// Ends the experiment if somebody asked for it.
    pub fn alive(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
    }
}

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early. A program that is not installed is no failure.
pub fn run(
    request: &EngineRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Results<ComparisonReport>, Error> {
    check_fuse()?;
    check_root("it mounts loop devices and drops the kernel's caches", "steadfast lab run engine")?;
    let parent = request.places.parent();
    let advice = "name another directory with --dir DIR, or measure less with --quick.";
    check_room(parent, request.sizes().room(), advice)?;
    let setup = Setup::new("engine", request.places.out.as_deref(), parent)?;
    let (workdir, mut shell) = (&setup.workdir, setup.shell(context, stop)?);
    let scratch = workdir.subdirectory("scratch")?;
    let mut progress = Progress::new(groups::steps(request) + curves::steps(request));
    progress.begin("making the file systems");
    let arms = Arms::new(columns::recipes(request, context), workdir, context, &mut shell)?;
    let sizes = request.sizes();
    let report = ComparisonReport::new(
        None,
        setup.conditions(
            format!("Steadfast {} through FUSE", context.version),
            request.repeat(),
            request.rounds(),
        ),
        format!(
            "{} file, {} files, tree of {} sources",
            number::bytes(sizes.file),
            sizes.files,
            sizes.sources
        ),
        arms.info(),
    );
    // From here on `Run` owns what must be taken away; `setup.workdir` outlives it and goes last.
    let mut run = Run { request, arms, shell, scratch, progress, stop, report };
    let done = groups::run(&mut run).and_then(|()| curves::run(&mut run, workdir, context));
    run.progress.end();
    let Run { arms, shell, mut report, .. } = run;
    drop(arms);
    let measured = !report.rows.is_empty() || !report.charts.is_empty();
    let ComparisonReport { rows, notes, conditions, .. } = &mut report;
    let early = results::early(done, measured, &*rows, notes, conditions)?;
    report.conditions.seconds = setup.seconds();
    report.goals = goals::judge(&report);
    report.summary = goals::summary(&report);
    report.commands = shell.history();
    comparison::write(report, &setup.out, early, request.document.markdown.as_deref())
}
