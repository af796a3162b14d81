//! # Experiments that anyone can repeat
//!
//! `steadfast lab run compression` makes two pools on image files, loads both with the parameter
//! file of the source reports, measures space, response times and processor use, removes everything
//! it made, and writes a page with the reports' own figures beside ours.
//!
//! ```text
//! command_line ─► perform ─► one experiment ─► results: report.json, report.html, a table
//!                            feature   compression, encryption: one feature on and off
//!                            engine    many loads on many file systems
//!                            beside    cow, journal: one parameter file on many file systems
//!                            compare   any parameter file on any file systems
//!                            recovery, snapshots, dedup, bench
//!                            bucket    pools and others on a store of objects far away
//!                               ▼
//!                            comparison (a report with a column for each file system),
//!                            document, results
//!                               ▼
//!                            file_systems (made, made cold, taken away),
//!                            load (parameter files, files)
//!                               ▼
//!                            host (commands, mounts, daemons, directories, free space)
//! ```
//!
//! The lab is a stranger to the engine. It imports nothing from it and starts the `steadfast`
//! program it is given; it could as well measure any two mounted directories
//! (`--target dir:FIRST,SECOND`).
//!
//! ## Reading order
//! `host`, `file_systems`, `load`; then an experiment: `feature` for one that switches a feature,
//! [`engine`] for one with many columns; then `command_line` and `all`.
#![forbid(unsafe_code)]

mod all;
mod bench;
pub mod beside;
mod bucket;
mod catalogue;
mod command_line;
mod compare;
pub mod comparison;
mod context;
mod dedup;
mod document;
pub mod engine;
mod error;
mod feature;
mod file_systems;
mod host;
mod iris;
mod load;
mod options;
mod perform;
mod recovery;
mod results;
mod setup;
mod snapshots;
mod sources;

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use context::{Context, stop_on_signals};
pub use error::Error;
pub use feature::{Pools, RunRequest, Target, Volume, run, terminal};
pub use host::commands::{Commands, quoted};
pub use host::mounts::{mounts_below, unmount};
pub use host::processes::end_process;
pub use host::requirements::check_fuse;
pub use host::workdir::Workdir;
pub use options::settings;
pub use results::Results;
pub use steadfast_lab_report::{html, number, report};

use command_line::{Experiment, Request};

/// `steadfast lab`. `args` are the words after `lab`. Returns the exit status: 0, 1 for a failure,
/// 2 for a wrong command line, 130 when stopped by a signal.
pub fn main(args: &[String], context: &Context) -> i32 {
    match answer(args, context) {
        Ok(text) => {
            // A closed standard output is not our failure.
            let _ = std::io::stdout().write_all(text.as_bytes());
            0
        }
        Err(error) => {
            eprintln!("steadfast lab: {error}");
            error.exit_status()
        }
    }
}

/// The text for standard output.
fn answer(args: &[String], context: &Context) -> Result<String, Error> {
    let experiments = match command_line::parse(args)? {
        Request::Help(text) => return Ok(text),
        Request::List => return Ok(catalogue::list()),
        Request::Show(request) => {
            perform::show(&request)?;
            return Ok(format!("{}\n", request.page().display()));
        }
        Request::Clients => {
            // The one that started it ends it, after a signal to all of them too.
            let _stopped = stop_on_signals()?;
            iris::scale::serve().map_err(Error::io("work for", std::path::Path::new("the lab")))?;
            return Ok(String::new());
        }
        Request::Run(experiment) => vec![*experiment],
        Request::Each(experiments) => experiments,
    };
    let stop = stop_on_signals()?;
    let mut text = String::new();
    for experiment in &experiments {
        // Of those before a failure everything has been said.
        let _ = std::io::stdout().write_all(text.as_bytes());
        text = one(experiment, context, &stop)?;
    }
    Ok(text)
}

/// Runs an experiment, and says what came of it.
fn one(experiment: &Experiment, context: &Context, stop: &Arc<AtomicBool>) -> Result<String, Error> {
    if let Experiment::All(request) = experiment {
        return all::run(request, context, stop);
    }
    let Some(done) = perform::perform(experiment, context, stop)? else { return Ok(String::new()) };
    if experiment.wants_json() {
        return fs::read_to_string(&done.json).map_err(Error::io("read", &done.json));
    }
    Ok(format!("{}\n\n{}\n\nreport: {}\n", done.summary, done.table.trim_end(), done.html.display()))
}
