//! A plan carried out and written down: what the command does, for programs that have a plan
//! already.

use crate::output::Output;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use steadfast_lab_hosts::{Hosts, Secret};
use steadfast_lab_params::{Plan, thousands};
use steadfast_lab_workload::{Error, Event, Options, Outcome, execute, execute_by};

/// Plan to carry out, and the directory of its reports.
pub struct RunRequest<'a> {
    /// The runs.
    pub plan: &'a Plan,
    /// The output directory; made if its parent is there.
    pub dir: &'a Path,
    /// Processes to watch, seed.
    pub options: Options,
    /// A run in which nothing was done is no failure.
    pub allow_idle: bool,
    /// Lines for the console and the log, before the first run.
    pub opening: Vec<String>,
    /// The command line, for the page.
    pub words: String,
    /// Show how it goes at the foot of a terminal.
    pub live: bool,
    /// Answer Prometheus there.
    pub metrics: Option<String>,
    /// The file of the secret that this process and its agents share.
    pub secret: Option<PathBuf>,
}

impl<'a> RunRequest<'a> {
    /// Nothing watched, nothing idle allowed, no lines.
    pub fn new(plan: &'a Plan, dir: &'a Path) -> RunRequest<'a> {
        RunRequest {
            plan,
            dir,
            options: Options::default(),
            allow_idle: false,
            opening: Vec::new(),
            words: "vdbench".to_owned(),
            live: false,
            metrics: None,
            secret: None,
        }
    }
}

/// Result.
#[derive(Debug)]
pub struct Reported {
    /// Results of all runs.
    pub outcome: Outcome,
    /// Why it is a failure, in a sentence or two: an error, the stop flag, or a run in which
    /// nothing was done.
    pub failure: Option<String>,
}

/// Carries out a plan, with the console lines on `console`, all pages and `report.json` in the
/// directory, and each event also handed to `also`. Ends soon after `stop` becomes true.
///
/// # Errors
/// When the directory or a page cannot be written. Failures of the runs are in
/// [`Reported::failure`].
pub fn run_reported(
    request: &RunRequest<'_>,
    stop: &AtomicBool,
    console: &mut dyn Write,
    also: &mut dyn FnMut(&Event<'_>),
) -> io::Result<Reported> {
    let mut output = Output::create(request.dir, request.plan, &request.words, console)?;
    if let Some(address) = &request.metrics {
        output
            .serve_metrics(address)
            .map_err(|error| io::Error::new(error.kind(), format!("--metrics {address}: {error}")))?;
    }
    if request.live {
        output.show_live();
    }
    request.opening.iter().for_each(|line| output.say(line));
    request.plan.anchor_lines().iter().for_each(|line| output.say(line));
    output.status("Starting slaves");
    output.status("Slaves connected");
    let mut observer = |event: &Event<'_>| {
        output.event(event);
        also(event);
    };
    let outcome = if steadfast_lab_hosts::needed(request.plan) {
        let secret = || Secret::find(request.secret.as_deref());
        match Hosts::connect(request.plan, &request.options, stop, secret) {
            Ok(mut hosts) => execute_by(request.plan, &request.options, stop, &mut hosts, &mut observer),
            Err(error) => Outcome { refused: Some(Error::Start(error.to_string())), ..Outcome::default() },
        }
    } else {
        execute(request.plan, &request.options, stop, &mut observer)
    };
    let idle = outcome.idle_runs().join(", ");
    // The sentence of a failed run was said when the run ended.
    let said = outcome.runs.iter().any(|run| run.failure.is_some());
    let failure = match outcome.failure() {
        Some(sentence) => Some(sentence),
        None if outcome.stopped => Some("Stopped before the end of the run definitions.".to_string()),
        None if !idle.is_empty() && !request.allow_idle => Some(format!(
            "Nothing was done in rd={idle}: no operation that was asked for took place.\n\
             Say format=yes, or --allow-idle if that is what you expect."
        )),
        None if outcome.failed_operations(request.plan).is_some() => outcome.failed_operations(request.plan),
        None if outcome.compared == Some(0) => Some(
            "Data validation compared nothing: no block was read that this execution had written.\n\
             Use a longer elapsed=, a smaller size=, or -vr."
                .to_string(),
        ),
        None => None,
    };
    if let Some(count) = outcome.compared {
        output.say(&format!("Data validation: {} key blocks were read and compared.", thousands(count)));
    }
    if let Some(text) = failure.as_ref().filter(|_| !said) {
        output.say(&format!("\n{text}\n"));
    }
    output.finish(failure.as_deref())?;
    Ok(Reported { outcome, failure })
}
