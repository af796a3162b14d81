//! # Experiments that anyone can repeat
//!
//! `steadfast lab run compression` makes two pools on image files, loads both with the parameter file of the source
//! reports, measures space, response times and processor use, cleans up behind itself, and writes a page with the
//! reports' own figures beside ours.
//!
//! ```text
//! args ─► experiment ─[conduct]→ target: volumes made by commands    load: the file, run by the workload engine
//!                                      └──────────► phases ─► report (data) ─► report.json, html, terminal
//! ```
//!
//! The lab is a stranger to the engine: it imports nothing from it, starts the `steadfast` program it is given, and
//! could as well measure any two mounted directories (`--target dir:FIRST,SECOND`).
//!
//! ## Reading order
//! [`report`] (what a result is), [`experiment`] (what an experiment is and how one is conducted), `compression` and
//! `encryption`, [`target`], [`load`], [`html`]; then [`arms`], [`figures`], [`engine`], [`beside`], [`recovery`], [`snapshots`] and [`dedup`], which compare
//! many file systems.
#![forbid(unsafe_code)]

mod args;
pub mod arms;
pub mod bench;
pub mod beside;
mod calls;
mod command;
pub mod compare;
mod compression;
pub mod dedup;
mod encryption;
pub mod engine;
mod error;
pub mod experiment;
mod feature;
pub mod figures;
pub mod load;
mod progress;
pub mod recovery;
mod results;
mod shell;
mod site;
pub mod snapshots;
mod sources;
mod space;
pub mod target;
pub mod terminal;
mod workdir;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use args::{RunRequest, USAGE};
pub use command::Commands;
pub use error::Error;
pub use progress::Progress;
pub use results::Results;
pub use site::AllRequest;
pub use workdir::{Workdir, mounts_below};

use steadfast_lab_report::machine;
pub use steadfast_lab_report::{html, number, report};

use args::Request;
use experiment::Settings;
use figures::markdown::Figures;
use report::Report;
use results::Done;
use target::{Directories, Pools, Target};

/// What the lab must be told about the program it is part of.
#[derive(Clone, Debug)]
pub struct Context {
    /// The `steadfast` executable: pools are made by running it.
    pub steadfast: PathBuf,
    /// Its version.
    pub version: String,
}

/// `steadfast lab`. `args` are the words behind `lab`. Returns the exit status: 0, 1 for a failure, 2 for a wrong
/// command line, 130 when stopped by a signal.
pub fn main(args: &[String], context: &Context) -> i32 {
    match answer(args, context) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("steadfast lab: {error}");
            error.exit_status()
        }
    }
}

fn answer(args: &[String], context: &Context) -> Result<(), Error> {
    match args::parse(args)? {
        Request::Help => say(&format!(
            "{USAGE}\n{}\n{}\n{}\n{}\n{}\n{}\n{}",
            engine::USAGE,
            beside::USAGE,
            recovery::USAGE,
            snapshots::USAGE,
            compare::USAGE,
            dedup::USAGE,
            bench::USAGE
        )),
        Request::List => say(&site::list()),
        Request::Show { report, html, markdown, marks } => {
            let text = fs::read_to_string(&report).map_err(Error::io("read", &report))?;
            let wrong = |error: String| Error::Usage(format!("{}: {error}", report.display()));
            let insert = |figures: Figures<'_>| {
                let Some(document) = markdown.as_deref() else { return Ok(()) };
                let name = marks.as_deref().unwrap_or(figures.name);
                figures::markdown::insert(&Figures { name, ..figures }, document)
            };
            let page = if let Some(parsed) = engine::data::parse(&text) {
                let parsed = parsed.map_err(wrong)?;
                insert(engine::markdown::figures(&parsed, &parsed.heading()))?;
                engine::render(&parsed)
            } else if let Some(parsed) = beside::data::parse(&text) {
                let parsed = parsed.map_err(wrong)?;
                insert(beside::figures(&parsed))?;
                beside::render(&parsed)
            } else if let Some(parsed) = recovery::data::parse(&text) {
                let parsed = parsed.map_err(wrong)?;
                insert(recovery::figures_of(&parsed))?;
                recovery::render(&parsed)
            } else if markdown.is_some() {
                return Err(wrong("a report of this kind has no table for a document".to_owned()));
            } else {
                html::render(&report::parse(&text).map_err(|error| wrong(error.to_string()))?)
            };
            fs::write(&html, page).map_err(Error::io("write", &html))?;
            say(&format!("{}\n", html.display()))
        }
        Request::All(request) => say(&site::run(&request, context, &stop_on_signals()?)?),
        request => {
            let stop = stop_on_signals()?;
            let Some(done) = perform(&request, context, &stop)? else { return Ok(()) };
            if request.wants_json() {
                let text = fs::read_to_string(&done.json).map_err(Error::io("read", &done.json))?;
                return say(&text);
            }
            say(&format!(
                "{}\n\n{}\n\nreport: {}\n",
                done.summary,
                done.table.trim_end(),
                done.html.display()
            ))
        }
    }
}

/// Runs what is asked for; `None` if it is no experiment.
fn perform(request: &Request, context: &Context, stop: &Arc<AtomicBool>) -> Result<Option<Done>, Error> {
    Ok(Some(match request {
        Request::Run(request) => run(request, context, stop)?.into(),
        Request::Engine(request) => engine::run(request, context, stop)?.into(),
        Request::Beside(request) => beside::run(request, context, stop)?.into(),
        Request::Recovery(request) => recovery::run(request, context, stop)?.into(),
        Request::Compare(request) => compare::run(request, context, stop)?.into(),
        Request::Snapshots(request) => snapshots::run(request, context, stop)?.into(),
        Request::Dedup(request) => dedup::run(request, context, stop)?.into(),
        Request::Bench(request) => bench::run(request, context, stop)?.into(),
        Request::Help | Request::List | Request::Show { .. } | Request::All(_) => return Ok(None),
    }))
}

impl results::Told for Report {
    fn summary(&self) -> &str {
        &self.summary
    }

    fn table(&self) -> String {
        terminal::table(self)
    }
}

/// A closed standard output is not our failure.
fn say(text: &str) -> Result<(), Error> {
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// A flag that Ctrl-C, SIGTERM and SIGHUP set, instead of ending the process.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(Error::io("watch for signals in", Path::new("/proc/self")))?;
    }
    Ok(stop)
}

/// Runs one experiment and writes its report. Whatever happens, what was set up is gone afterwards, unless
/// `request.keep`.
pub fn run(request: &RunRequest, context: &Context, stop: &Arc<AtomicBool>) -> Result<Results, Error> {
    let experiment = experiment::find(&request.experiment)
        .ok_or_else(|| Error::Usage(format!("there is no experiment `{}`", request.experiment)))?;
    let arms = experiment.arms().len();
    if !request.directories.is_empty() && request.directories.len() != arms {
        return Err(Error::Usage(format!(
            "{} compares {arms} sides, and --target names {}; write --target dir:FIRST,SECOND",
            experiment.name(),
            request.directories.len()
        )));
    }
    let work = request.work.clone().unwrap_or_else(|| PathBuf::from("/var/tmp"));
    let mut target: Box<dyn Target> = if request.directories.is_empty() {
        check_room(&work, experiment.bytes_needed(request.size))?;
        let pools = Pools::new(&context.steadfast, &context.version, request.size, &work)?;
        Box::new(pools.heeding(Arc::clone(stop)))
    } else {
        Box::new(Directories::new(request.directories.clone()))
    };
    let out = results::directory(&request.experiment, request.out.as_deref())?;
    let settings = Settings {
        rounds: request.rounds,
        elapsed_s: request.elapsed_s,
        keep: request.keep,
        out: out.clone(),
        backing: request.directories.first().cloned().unwrap_or(work),
        repeat: repeat_line(request),
    };
    let report = experiment::conduct(experiment.as_ref(), target.as_mut(), &settings, stop)?;
    let page = html::render(&report);
    results::write(report, &page, &out, None, None, None)
}

/// The command that repeats a run.
fn repeat_line(request: &RunRequest) -> String {
    let mut line = format!("steadfast lab run {}", request.experiment);
    if request.directories.is_empty() {
        if request.size != 256 << 20 {
            line.push_str(&format!(" --size {}", request.size));
        }
    } else {
        let names: Vec<String> = request.directories.iter().map(|path| path.display().to_string()).collect();
        line.push_str(&format!(" --target dir:{}", names.join(",")));
    }
    if let Some(seconds) = request.elapsed_s {
        line.push_str(&format!(" --elapsed {seconds}"));
    }
    if request.rounds != 1 {
        line.push_str(&format!(" --rounds {}", request.rounds));
    }
    line
}

fn check_room(work: &Path, needed: u64) -> Result<(), Error> {
    let available = space::available(work)?;
    if available < needed {
        return Err(Error::Missing {
            what: format!(
                "{} has {} free, and this experiment needs {}.",
                work.display(),
                number::bytes(available),
                number::bytes(needed)
            ),
            action: "name another directory with --work DIR, or smaller images with --size.".to_owned(),
        });
    }
    Ok(())
}
