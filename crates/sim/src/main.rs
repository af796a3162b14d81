//! `cargo run --release -p steadfast-sim -- --seconds 60`: takes the power away everywhere, and tells what came of it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use serde_json::json;
use steadfast_sim::run::{Caught, Plan, Report, hunt, parse, replay, run};
use steadfast_sim::{Bug, Counts, Number};

const USAGE: &str = "usage: steadfast-sim [--seconds N] [--states N] [--nightly] [--from N] [--workers N] [--seed NUMBER] [--json]
  --seconds N    ends after so many seconds (60)
  --states N     ends after so many states
  --nightly      ends after ten million states, or eight hours
  --from N       samples other workloads
  --workers N    so many at once (processors)
  --seed NUMBER  one workload alone, as a failure prints it
  --json         one object on the standard output";

struct Args {
    plan: Plan,
    seed: Option<Number>,
    json: bool,
}

fn args() -> Result<Args, String> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut args =
        Args { plan: Plan { seconds: 60, states: u64::MAX, from: 0, workers }, seed: None, json: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = |what: &str| {
            let text = words.next().ok_or_else(|| format!("{what} wants a number"))?;
            parse(&text).ok_or_else(|| format!("{what}: '{text}' is no number"))
        };
        match word.as_str() {
            "--seconds" => args.plan.seconds = value(&word)?.0,
            "--states" => args.plan.states = value(&word)?.0,
            "--nightly" => (args.plan.states, args.plan.seconds) = (10_000_000, 8 * 3600),
            "--from" => args.plan.from = value(&word)?.0,
            "--workers" => {
                args.plan.workers = usize::try_from(value(&word)?.0).map_err(|error| error.to_string())?;
            }
            "--seed" => args.seed = Some(value(&word)?),
            "--json" => args.json = true,
            _ => return Err(format!("'{word}' means nothing here\n{USAGE}")),
        }
    }
    Ok(args)
}

fn main() -> ExitCode {
    let args = match args() {
        Ok(args) => args,
        Err(error) => {
            eprintln!("steadfast-sim: {error}");
            return ExitCode::from(2);
        }
    };
    // States that break panic by the dozen when a bug is planted; what counts of a panic is told with the state.
    std::panic::set_hook(Box::new(|_| ()));
    let (report, canaries) = match args.seed {
        Some(number) => {
            eprintln!("{number}: {}", number.text());
            (replay(number), Vec::new())
        }
        None => {
            let canaries: Vec<Caught> =
                [Bug::NoFlushBeforeRoot, Bug::FsyncIgnored].map(|bug| hunt(bug, 100)).into();
            (run(&args.plan, &progress), canaries)
        }
    };
    if args.json {
        tell_json(&report, &canaries)
    } else {
        tell(&report, &canaries)
    }
    let canary_dead = canaries.iter().any(|caught| caught.broken.is_none());
    ExitCode::from(u8::from(!report.broken.is_empty() || canary_dead))
}

fn progress(counts: &Counts, broken: usize) {
    eprintln!(
        "{} workloads, {} states, {} distinct, {} opened, {broken} broken",
        counts.workloads, counts.states, counts.distinct, counts.opened
    );
}

fn a_minute(count: u64, ns: u64) -> u64 {
    u64::try_from(u128::from(count) * 60_000_000_000 / u128::from(ns.max(1))).unwrap_or(u64::MAX)
}

fn tell(report: &Report, canaries: &[Caught]) {
    for caught in canaries {
        match &caught.broken {
            Some(broken) => {
                println!("canary {:?}: caught after {} workloads: {broken}", caught.bug, caught.workloads)
            }
            None => println!("canary {:?}: NOT CAUGHT in {} workloads", caught.bug, caught.workloads),
        }
    }
    for broken in &report.broken {
        println!("BROKEN {broken}");
        println!("  replay: cargo run --release -p steadfast-sim -- --seed {}", broken.number);
    }
    let counts = &report.counts;
    let (seconds, cpu) = (report.wall_ns / 1_000_000_000, report.cpu_ns / 1_000_000_000);
    println!("workloads {} {:?}", counts.workloads, report.sets);
    println!("states    {}, of these {} distinct", counts.states, counts.distinct);
    println!("opened    {}, and {} cut again inside recovery", counts.opened, counts.second);
    println!("time      {seconds} s, {cpu} s of processors");
    println!(
        "a minute and core: {} states, {} distinct, {} opened",
        a_minute(counts.states, report.cpu_ns),
        a_minute(counts.distinct, report.cpu_ns),
        a_minute(counts.opened + counts.second, report.cpu_ns)
    );
    println!(
        "failures  {}",
        if report.broken.is_empty() { "none".into() } else { report.broken.len().to_string() }
    );
}

fn tell_json(report: &Report, canaries: &[Caught]) {
    let counts = &report.counts;
    let broken: Vec<_> = report
        .broken
        .iter()
        .map(|broken| json!({ "seed": broken.number.to_string(), "text": broken.to_string() }))
        .collect();
    let canaries: Vec<_> = canaries
        .iter()
        .map(|caught| {
            json!({
                "bug": format!("{:?}", caught.bug),
                "caught": caught.broken.is_some(),
                "workloads": caught.workloads,
                "text": caught.broken.as_ref().map(ToString::to_string),
            })
        })
        .collect();
    let sets: serde_json::Map<_, _> =
        report.sets.iter().map(|(set, count)| (format!("{set:?}").to_lowercase(), json!(count))).collect();
    println!(
        "{}",
        json!({
            "workloads": counts.workloads,
            "sets": sets,
            "states": counts.states,
            "distinct": counts.distinct,
            "opened": counts.opened,
            "second": counts.second,
            "wall_ns": report.wall_ns,
            "cpu_ns": report.cpu_ns,
            "states_per_core_minute": a_minute(counts.states, report.cpu_ns),
            "distinct_per_core_minute": a_minute(counts.distinct, report.cpu_ns),
            "opened_per_core_minute": a_minute(counts.opened + counts.second, report.cpu_ns),
            "canaries": canaries,
            "failures": broken,
        })
    );
}
