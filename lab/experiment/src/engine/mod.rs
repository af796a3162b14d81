//! `steadfast lab run engine`: how fast the file system is beside others on the same disk, and what an operation costs as
//! pools and trees grow.
//!
//! ```text
//! options ─► arms (each a file system made by commands) ─[groups of work, interleaved rounds]→ rows
//!         └► curves (files, pool size, utilisation, memory)                                    └► goals
//!                                                        report.json, report.html, a table and pictures for a document
//! ```
//!
//! The other experiments compare two settings of one system under a carried parameter file; this one compares many
//! systems under many small loads, so it has a shape of its own. It too is a stranger to the engine: it types commands.
//!
//! ## Invariants
//! (N1) What is called cold is cold for everybody: everything is unmounted (our pools exported), written back, the
//!      kernel's caches are dropped, those of image files among them, and everything is mounted again.       [`arms`](crate::arms)
//! (N2) All arms do the same calls on the same bytes in the same order; each round begins with another arm.
//! (N3) What is not installed is a column that says so, never a number.
//! (N4) Whatever way it ends, mounts, loop devices, daemons and files are gone.                              `Drop`
//! (N5) Ctrl-C ends the command that is waited for; what takes everything away hears no more of it.
//!
//! ## Reading order
//! [`data`] (what a result is), [`arms`](crate::arms), [`work`], [`goals`], `groups` and `curves` (what is run), `chart`, `page`.

pub(crate) mod args;
mod columns;
mod curves;
pub mod data;
pub mod goals;
mod groups;
pub(crate) mod markdown;
mod page;
pub(crate) mod source_tree;
pub mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

pub use args::{EngineRequest, USAGE};
pub use markdown::table;
pub use page::render;

use crate::arms::Arms;
use crate::error::Error;
use crate::progress::Progress;
use crate::report::Conditions;
use crate::results::Results;
use crate::shell::Shell;
use crate::space;
use crate::target::check_fuse;
use crate::workdir::Workdir;
use crate::{Context, machine, results};

use data::EngineReport;

/// One line for `lab list`.
pub const ABOUT: &str = "rates, costs and curves beside ext4, xfs, btrfs and gocryptfs";

/// What it left behind.
pub type EngineResults = Results<EngineReport>;

/// The stage while the experiment runs: what every group and curve gets.
pub(crate) struct Run<'a> {
    pub request: &'a EngineRequest,
    pub arms: Arms,
    pub shell: Shell,
    pub scratch: PathBuf,
    pub progress: Progress,
    pub stop: &'a AtomicBool,
    pub report: EngineReport,
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
/// Whatever keeps it from its end. What is merely not installed does not.
pub fn run(
    request: &EngineRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<EngineResults, Error> {
    check_fuse()?;
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Missing {
            what: "This needs root: it mounts loop devices and drops the kernel's caches.".to_owned(),
            action: "type `sudo steadfast lab run engine`.".to_owned(),
        });
    }
    let parent = request.dir.clone().unwrap_or_else(|| PathBuf::from("/var/tmp"));
    let available = space::available(&parent)?;
    let needed = request.sizes().room();
    if available < needed {
        return Err(Error::Missing {
            what: format!(
                "{} has {} free, and this needs {}.",
                parent.display(),
                crate::number::bytes(available),
                crate::number::bytes(needed)
            ),
            action: "name another directory with --dir DIR, or measure less with --quick.".to_owned(),
        });
    }
    let out = results::directory("engine", request.out.as_deref())?;
    let (started, clock) = (SystemTime::now(), Instant::now());
    let workdir = Workdir::create(&parent)?;
    let mut shell = Shell::new(&context.steadfast, &workdir.subdirectory("said")?).heeding(Arc::clone(stop));
    let mut machine = machine::describe(&parent);
    machine.busy_before_percent = machine::busy();
    let scratch = workdir.subdirectory("scratch")?;
    let mut progress = Progress::new(groups::steps(request) + curves::steps(request));
    progress.begin("making the file systems");
    let arms = Arms::new(columns::recipes(request, context), &workdir, context, &mut shell)?;
    let report = EngineReport::new(request, &arms, context, machine);
    // From here on `Run` owns what must be taken away; `workdir` outlives it and goes last.
    let mut run = Run { request, arms, shell, scratch, progress, stop, report };
    let done = groups::run(&mut run).and_then(|()| curves::run(&mut run, &workdir, context));
    run.progress.end();
    let Run { arms, shell, mut report, .. } = run;
    drop(arms);
    let measured = !report.rows.is_empty() || !report.charts.is_empty();
    let early = results::early(done, measured, &mut report.notes)?;
    if early.is_some() {
        report.conditions.rounds = results::rounds(report.rows.iter().flat_map(|row| row.values.values()));
    }
    report.conditions = Conditions {
        started: machine::stamp(started),
        seconds: clock.elapsed().as_secs_f64(),
        ..report.conditions
    };
    report.goals = goals::judge(&report);
    report.summary = goals::summary(&report);
    report.commands = shell.history();
    let (page, heading) = (render(&report), report.heading());
    let figures_of = report.clone();
    let figures = markdown::figures(&figures_of, &heading);
    results::write(report, &page, &out, early, Some(&figures), request.markdown.as_deref())
}
