//! # Conformance and stress
//!
//! `steadfast lab conformance` and `steadfast lab stress` run suites that others wrote, and one of
//! our own, on the mount of a fresh pool: one pool a suite. After each suite the pool is exported,
//! read by `steadfast inspect check`, imported again, and its tree must be what it was before.
//!
//! ```text
//! suites/NAME.sh ─[stage: pool, mount, time limit]→ log ─[tally: PASS, FAIL, SKIP]→ cases
//!                ─[known failures taken off]→ line
//! ```
//!
//! ## Invariants
//! [conformance.1] A suite is judged by its cases one by one, never by its exit status alone: a
//!      suite that prints no case failed.
//! [conformance.2] A case that is expected to fail stands in `known-failures.txt` with a reason. If
//!      it passes, that is an error too, and so is a suite that ends without a single case that
//!      passed or was skipped with a reason.
//! [conformance.3] When a run ends, in whatever way, its mounts, its daemon and its files are gone;
//!      the logs stay.
//!
//! ## Reading order
//! [`suite`] (the list), [`stage`] (a pool for one suite), `guest` (the same over NFS), [`tally`]
//! (its result), [`stress`] (our own suite).
#![forbid(unsafe_code)]

mod guest;
mod known;
mod random;
mod request;
pub mod stage;
pub mod stress;
pub mod suite;
pub mod tally;
pub mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_lab_experiment::{Context, Error, Workdir, stop_on_signals};

pub use request::RunRequest;

use stage::Stage;
use suite::Kind;
use tally::Tally;

/// `steadfast lab conformance` and `steadfast lab stress`. `args` begins with that word. Returns
/// the exit status: 0 when nothing failed unexpectedly, 1 when something did, 2 for a wrong command
/// line, 130 when stopped by a signal.
pub fn main(args: &[String], context: &Context) -> i32 {
    if args.first().map(String::as_str) == Some("stress-worker") {
        return stress::worker_main(&args[1..]);
    }
    if let [word, dir] = args
        && word == "tree-of"
    {
        return tree::print(Path::new(dir));
    }
    let answered = match request::parse(args) {
        Ok(request::Request::Help(text)) => {
            print!("{text}");
            return 0;
        }
        Ok(request::Request::List(kind)) => {
            for suite in suite::ALL.iter().filter(|suite| suite.kind == kind) {
                println!("{:<12}  {}", suite.name, suite.about);
            }
            return 0;
        }
        Ok(request::Request::Run(request)) => {
            stop_on_signals().and_then(|stop| run(&request, context, &stop))
        }
        Err(error) => Err(error),
    };
    match answered {
        Ok(tallies) => {
            let sum = |of: fn(&Tally) -> usize| tallies.iter().map(of).sum::<usize>();
            let unexpected: usize = tallies.iter().map(|tally| tally.unexpected.len()).sum();
            println!(
                "{} passed, {} failed, {} skipped{}",
                sum(|t| t.passed),
                sum(|t| t.failed.len()),
                sum(|t| t.skipped.len()),
                if unexpected == 0 { String::new() } else { format!("; {unexpected} unexpected") }
            );
            i32::from(unexpected > 0)
        }
        Err(error) => {
            eprintln!("steadfast lab: {error}");
            error.exit_status()
        }
    }
}

/// Runs the suites asked for, one after the other, and prints a line for each.
///
/// # Errors
/// A failure that keeps a suite from being run at all. A suite that fails is no error but a
/// [`Tally`] with failures.
pub fn run(request: &RunRequest, context: &Context, stop: &AtomicBool) -> Result<Vec<Tally>, Error> {
    let parent = request.dir.clone().unwrap_or_else(|| PathBuf::from("/var/tmp"));
    let out =
        request.out.clone().unwrap_or_else(|| parent.join(format!("steadfast-{}", request.kind.name())));
    fs::create_dir_all(&out).map_err(Error::io("create", &out))?;
    let out = out.canonicalize().map_err(Error::io("find", &out))?;
    println!(
        "{:<12} {:>7} {:>6} {:>7} {:>8} {:>8}",
        "suite", "passed", "failed", "skipped", "cpu s", "wall s"
    );
    let mut tallies = Vec::new();
    for suite in suite::ALL {
        let wanted = match &request.only {
            Some(names) => names.iter().any(|name| name == suite.name),
            None => suite.kind == request.kind && (request.long || !suite.long_only),
        };
        if !wanted {
            continue;
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let log = out.join(format!("{}.log", suite.name));
        let of_guest = if request.guest { guest::NEEDS } else { &[] };
        let missing: Vec<&str> =
            suite.needs.iter().chain(of_guest).copied().filter(|program| !stage::on_path(program)).collect();
        let mut tally = if suite.root && !rustix::process::geteuid().is_root() {
            Tally::skipped(suite.name, "it changes users, which takes root")
        } else if request.guest && suite.kind != Kind::Conformance {
            Tally::skipped(suite.name, "a guest runs the suites of conformance alone")
        } else if missing.is_empty() {
            let workdir = Workdir::create(&parent)?;
            let mut stage = Stage::new(workdir, context, request, suite)?;
            stage.perform(suite, &log, stop)?
        } else {
            Tally::skipped(suite.name, &format!("{} not installed", missing.join(", ")))
        };
        tally.judge(&known::of(suite.name, request.guest));
        println!("{}", tally.line());
        if let Some(reason) = &tally.skipped_whole {
            println!("    SKIP {reason}");
        }
        for case in &tally.unexpected {
            println!("    FAIL {case}");
        }
        if !tally.unexpected.is_empty() {
            println!("    log: {}", log.display());
        }
        tallies.push(tally);
    }
    Ok(tallies)
}

/// The suites of a kind that the short form runs, for tests that want every one of them by name.
pub fn names(kind: Kind) -> Vec<&'static str> {
    suite::ALL.iter().filter(|suite| suite.kind == kind && !suite.long_only).map(|suite| suite.name).collect()
}
