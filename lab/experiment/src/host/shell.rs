//! Lines of shell, written down as a person would type them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::error::Error;
use crate::host::commands::{Commands, Ended};
use steadfast_lab_report::report;

/// A thousand-GiB pool, or an export behind a long load, takes its time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Runs lines; `$SF` is the program under test.
pub(crate) struct Shell {
    commands: Commands,
}

impl Shell {
    pub fn new(steadfast: &Path, scratch: &Path) -> Self {
        let environment =
            vec![("SF".to_owned(), steadfast.to_owned()), ("LC_ALL".to_owned(), PathBuf::from("C.UTF-8"))];
        let commands = Commands::new(Path::new("bash"), "bash", environment, scratch).patient(PATIENCE);
        Self { commands }
    }

    /// Lines end when this is set.
    pub fn heeding(self, stop: Arc<AtomicBool>) -> Self {
        Self { commands: self.commands.heeding(stop) }
    }

    /// Runs a line and wants exit status 0; it stands in the report. Returns what it printed.
    pub fn run(&mut self, line: &str) -> Result<String, Error> {
        let said = self.ask(line);
        self.commands.note(line.replace("$SF", "steadfast"));
        said
    }

    /// The same for what is no step of the experiment: questions, dropping caches.
    pub fn ask(&mut self, line: &str) -> Result<String, Error> {
        let ended = self.commands.attempt(&["-euc", line], None, false)?;
        well(line, ended)
    }

    /// Runs a line as [`Shell::run`] does; `None` if it had not ended after so long, and was ended.
    pub fn run_within(&mut self, line: &str, limit: Duration) -> Result<Option<String>, Error> {
        let ended = self.commands.attempt_within(&["-euc", line], None, false, limit);
        self.commands.note(line.replace("$SF", "steadfast"));
        ended?.map(|ended| well(line, ended)).transpose()
    }

    /// Lines that were run, each once.
    pub fn history(&self) -> Vec<report::Command> {
        let mut seen = std::collections::BTreeSet::new();
        self.commands.history().iter().filter(|c| seen.insert(c.line.clone())).cloned().collect()
    }
}

/// Output of a line that ended with exit status 0.
fn well(line: &str, ended: Ended) -> Result<String, Error> {
    match ended.status {
        Some(0) => Ok(ended.stdout),
        status => Err(Error::Command {
            line: line.to_owned(),
            status: status.map_or_else(|| "none: ended by a signal".to_owned(), |s| s.to_string()),
            stderr: ended.stderr + &ended.stdout,
        }),
    }
}
