//! The start that experiments have in common: a directory for results, a private one for images, a
//! shell, the machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime};

use steadfast_lab_report::machine;
use steadfast_lab_report::report::{Conditions, Machine};

use crate::context::Context;
use crate::error::Error;
use crate::host::shell::Shell;
use crate::host::workdir::Workdir;
use crate::results;

/// An experiment that has begun.
pub(crate) struct Setup {
    /// Directory for the results.
    pub out: PathBuf,
    /// Private directory for images, removed when dropped: keep it longer than what is mounted in
    /// it.
    pub workdir: Workdir,
    /// The machine, and how busy it was at the start.
    pub machine: Machine,
    started: SystemTime,
    clock: Instant,
}

impl Setup {
    /// Begins an experiment. `out` is where its results were asked for, `parent` where its images
    /// go.
    pub(crate) fn new(name: &str, out: Option<&Path>, parent: &Path) -> Result<Setup, Error> {
        let out = results::directory(name, out)?;
        let (started, clock) = (SystemTime::now(), Instant::now());
        let workdir = Workdir::create(parent)?;
        let mut machine = machine::describe(parent);
        machine.busy_before_percent = machine::busy();
        Ok(Setup { out, workdir, machine, started, clock })
    }

    /// A shell whose lines end when `stop` is set.
    pub(crate) fn shell(&self, context: &Context, stop: &Arc<AtomicBool>) -> Result<Shell, Error> {
        Ok(self.shell_in("said", context)?.heeding(Arc::clone(stop)))
    }

    /// A shell that works even while the experiment unwinds.
    pub(crate) fn last_shell(&self, context: &Context) -> Result<Shell, Error> {
        self.shell_in("said-last", context)
    }

    fn shell_in(&self, scratch: &str, context: &Context) -> Result<Shell, Error> {
        Ok(Shell::new(&context.steadfast, &self.workdir.subdirectory(scratch)?))
    }

    /// Conditions of the report.
    pub(crate) fn conditions(&self, target: String, repeat: String, rounds: u32) -> Conditions {
        Conditions {
            started: machine::stamp(self.started),
            target,
            repeat,
            rounds,
            machine: self.machine.clone(),
            ..Conditions::default()
        }
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.clock.elapsed().as_secs_f64()
    }
}
