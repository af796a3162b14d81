//! Options of an execution, and the events that its observer gets.

use std::time::SystemTime;

use steadfast_lab_params::{CommandOutput, Run};

use crate::result::{Groups, Interval, RunResult};
use crate::shared::IoError;

/// Waits until every host that shares a tree has come to this step of its format, or until the last
/// argument says that the run is over. Called by one thread at a time.
pub type Meet<'a> = dyn Fn(&str, usize, &dyn Fn() -> bool) + Sync + 'a;

/// Observers of a run.
pub type Observer<'a> = dyn FnMut(&Event<'_>) + 'a;

/// Options beside the parameter file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Processes whose processor time is reported, such as the daemon of the file system that is
    /// measured.
    pub watch: Vec<u32>,
    /// Makes data repeatable.
    pub seed: u64,
    /// Makes addresses and arrivals repeatable. They differ from run to run and from round to round
    /// of `loop=`.
    pub draws: u64,
    /// Value of `$output` in commands.
    pub output: String,
    /// How operations of raw runs are carried out.
    pub engine: Engine,
    /// Response times begin when an operation was due, not when it was begun; where no rate is
    /// asked for, as ever.
    pub from_arrival: bool,
}

/// How operations of raw runs are carried out.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Engine {
    /// Through io_uring where that helps: past the page cache, with more operations at a time than
    /// processors.
    #[default]
    Auto,
    /// One thread for each operation at a time.
    Threads,
    /// Through io_uring wherever it is there.
    Ring,
}

/// An event while runs go on.
#[derive(Debug)]
pub enum Event<'a> {
    /// Everything is prepared: the run begins when the observer returns.
    Ready {
        /// Which.
        run: &'a Run,
        /// Groups that are counted.
        groups: &'a Groups,
        /// Bytes of each storage.
        sizes: &'a [(String, u64)],
    },
    /// A run begins.
    Started {
        /// Which.
        run: &'a Run,
        /// When.
        started: SystemTime,
    },
    /// An interval is over.
    Interval {
        /// Of this run.
        run: &'a Run,
        /// Its counts.
        interval: &'a Interval,
    },
    /// Something worth a line, from the threads of a run.
    Message(&'a str),
    /// Something worth a line, from the engine before a run.
    Notice(&'a str),
    /// A line that a command of `startcmd=` or `endcmd=` said.
    Command(CommandOutput, &'a str),
    /// An operation failed.
    Error(&'a IoError),
    /// A run is over.
    Finished(&'a RunResult),
}
