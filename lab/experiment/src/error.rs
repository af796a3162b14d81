//! Why an experiment did not come to its end.

use std::io;
use std::path::{Path, PathBuf};

/// Why an experiment did not come to its end. Every text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// Something the experiment cannot do without is not there.
    #[error("{what}\n  action: {action}")]
    Missing {
        /// The missing thing, a sentence.
        what: String,
        /// Advice: the command to type.
        action: String,
    },
    /// A command failed.
    #[error("`{line}` ended with exit status {status}{}", said(.stderr))]
    Command {
        /// As one would type it.
        line: String,
        /// Exit status, or the name of the signal.
        status: String,
        /// Its standard error.
        stderr: String,
    },
    /// A command did not end.
    #[error("`{line}` did not end within {seconds} s and was stopped; look into {}", log.display())]
    Timeout {
        /// As one would type it.
        line: String,
        /// How long we waited.
        seconds: u64,
        /// Where the daemon writes.
        log: PathBuf,
    },
    /// A command answered with something else than it should.
    #[error("`{line}` answered `{answer}`, which is not {expected}")]
    Answer {
        /// As one would type it.
        line: String,
        /// The answer.
        answer: String,
        /// The expected answer.
        expected: &'static str,
    },
    /// The parameter file is not understood.
    #[error("{0}")]
    Parameters(#[from] steadfast_lab_params::Error),
    /// The load failed or could not begin.
    #[error("the load failed: {reason}\n  action: what it printed is in {}", out.display())]
    Run {
        /// Message of the load.
        reason: String,
        /// Its reports.
        out: PathBuf,
    },
    /// An anchor of the parameter file belongs to no arm of the experiment.
    #[error("the parameter file works on {anchor}, which this experiment does not set up")]
    Anchor {
        /// The anchor.
        anchor: String,
    },
    /// A file or directory could not be used.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// "create", "read".
        doing: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An experiment ended early, and what it had measured until then was kept.
    #[error("{why}\n  what was measured until then: {}", report.display())]
    Early {
        /// Why it ended.
        why: Box<Error>,
        /// The report of what was measured.
        report: PathBuf,
    },
    /// Ctrl-C, or told to end.
    #[error("stopped before the end; everything that was set up has been removed")]
    Stopped,
}

impl Error {
    /// For `map_err`: what we were doing to which path.
    pub fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
        let path = path.to_owned();
        move |source| Error::Io { doing, path, source }
    }

    /// Exit status of the process.
    pub fn exit_status(&self) -> i32 {
        match self {
            Error::Usage(_) => 2,
            Error::Stopped => 130,
            Error::Early { why, .. } => why.exit_status(),
            _ => 1,
        }
    }
}

fn said(stderr: &str) -> String {
    if stderr.trim().is_empty() { String::new() } else { format!(":\n{}", stderr.trim_end()) }
}
