//! `cargo run --release -p steadfast-sim -- --seconds 60`: takes the power away everywhere, and
//! tells what came of it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use serde_json::json;
use steadfast_device::Operation;
use steadfast_sim::histories::{self, Theme};
use steadfast_sim::hosts;
use steadfast_sim::mirror_faults;
use steadfast_sim::parity_histories::{self, Lives};
use steadfast_sim::run::{Caught, Choice, Plan, Report, hunt, parse, replay, run};
use steadfast_sim::second_faults::{self, SECOND_FAULTS, STALE_GROUPS};
use steadfast_sim::verbs_devices::VERBS;
use steadfast_sim::verbs_snapshots::SNAPSHOT_VERBS;
use steadfast_sim::verbs_streams::{STREAM_VERBS, VOLUME_VERBS};
use steadfast_sim::{Bug, Number, SETTINGS};

const USAGE: &str = "usage: steadfast-sim [--seconds N] [--states N] [--nightly] [--two [--part I/N] [--at CHUNK]] [--faults]
                     [--setting N] [--from N] [--workers N] [--seed NUMBER] [--json]
  --seconds N    ends after so many seconds (60; of --two: when all are done)
  --states N     ends after so many states
  --nightly      ends after ten million states, or eight hours
  --two          all sequences of two changes, on every setting, instead of all of one and samples of the others
  --part I/N     the I-th of N parts of them, I from 1
  --at CHUNK     from this chunk on, as a run that was cut off tells it
  --faults       workloads on devices with a fault
  --verbs        nothing of that, but verbs that change what a pool is made of, and histories of snapshots, clones and checkpoints
                 and of log devices, cut at any write, second faults, and devices that return with old content
  --spoil N      nothing of that, but pools with N changes of items and streams, all hashes right, --from a seed on: --spoil 1
                 --from SEED makes one of them again
  --hosts N      nothing of that, but hosts that share one store of whole objects, until N states are judged, --from a seed on:
                 --hosts 1 --from SEED makes one world again
  --overtaken N  the same of hosts that take the pool from each other with import -f, and go on living
  --rotten N     the same of a store that damages the newest root, from which hosts go back with import -F
  --checkpoints N
                 nothing of that, but histories with a checkpoint, until N states are made, --from a seed on
  --parity N     nothing of that, but histories of parity devices, passes, losses and recoveries, until N states are judged,
                 --from a seed on; behind that --whole K: of one state in K everything is asked, of the others that they open,
                 give back what was lost, and read
  --setting N    on one setting alone; --setting list tells them
  --from N       samples other workloads
  --workers N    so many at once (processors)
  --seed NUMBER  one workload alone, as a failure prints it
  --json         one object on the standard output";

/// Of what a canary made wrong so much is told: that it rings is enough.
const CANARY_CHARS: usize = 100;
/// Histories of each theme that are cut with the verbs.
const HISTORIES: u64 = 100;
/// One in so many states of a history with a checkpoint is opened, and so many may break.
const CHECKPOINTS_EVERY: u64 = 10;
const CHECKPOINTS_BROKEN_MAX: u64 = 10;
/// States of each history of a parity device that are judged, about.
const PARITY_STATES: usize = 500;
/// Histories of them that are cut with the verbs.
const PARITY_HISTORIES: u64 = 20;
/// States of each history of log devices that are judged with them, about.
const LOG_STATES: usize = 1_000;
/// States of a cut beside each second fault.
const DOUBLE_CUTS: usize = 12;

struct Args {
    plan: Plan,
    seed: Option<Number>,
    json: bool,
}

fn part(text: &str) -> Option<(u64, u64)> {
    let (part, of) = text.split_once('/')?;
    let (part, of) = (part.parse::<u64>().ok()?, of.parse().ok()?);
    (1..=of).contains(&part).then(|| (part - 1, of))
}

/// `None` if settings are listed instead.
fn args() -> Result<Option<Args>, String> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let plan = Plan { seconds: 60, states: u64::MAX, from: 0, workers, setting: None, choice: Choice::Mixed };
    let mut args = Args { plan, seed: None, json: false };
    let (mut two, mut shard, mut first, mut seconds) = (false, (0, 1), 0, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut text = || words.next().ok_or_else(|| format!("{word} wants a value"));
        let mut value = || {
            let text = text()?;
            Ok::<_, String>(parse(&text).ok_or_else(|| format!("{word}: '{text}' is no number"))?.0)
        };
        match word.as_str() {
            "--seconds" => seconds = Some(value()?),
            "--states" => args.plan.states = value()?,
            "--nightly" => (args.plan.states, seconds) = (10_000_000, Some(8 * 3600)),
            "--two" => two = true,
            "--part" => {
                let text = text()?;
                shard = part(&text).ok_or_else(|| format!("--part: '{text}' is not as 1/4"))?;
            }
            "--at" => first = value()?,
            "--faults" => args.plan.choice = Choice::Faulty,
            "--setting" => {
                let text = text()?;
                if text == "list" {
                    return Ok(None);
                }
                let known = text.parse().ok().filter(|at| *at < SETTINGS.len());
                args.plan.setting = Some(known.ok_or_else(|| format!("--setting: there is no '{text}'"))?);
            }
            "--from" => args.plan.from = value()?,
            "--workers" => {
                args.plan.workers = usize::try_from(value()?).map_err(|error| error.to_string())?
            }
            "--seed" => args.seed = Some(Number(value()?)),
            "--json" => args.json = true,
            _ => return Err(format!("'{word}' means nothing here\n{USAGE}")),
        }
    }
    if two {
        args.plan.choice = Choice::Two { part: shard.0, of: shard.1, at: first };
        args.plan.seconds = u64::MAX;
    } else if shard != (0, 1) || first != 0 {
        return Err(format!("--part and --at are of --two\n{USAGE}"));
    }
    args.plan.seconds = seconds.unwrap_or(args.plan.seconds);
    Ok(Some(args))
}

/// Cuts verbs everywhere, and tells of each.
fn cut_verbs() -> ExitCode {
    let mut broken = false;
    let mut tell = |name: &str, result: Result<String, String>| match result {
        Ok(text) => println!("{name}: {text}"),
        Err(what) => {
            broken = true;
            println!("{name}: BROKEN: {what}");
        }
    };
    for seed in 0..HISTORIES {
        for (theme, of) in [(Theme::Copies, "copies"), (Theme::Checkpoint, "a checkpoint")] {
            let counts = histories::explore(theme, seed, 1);
            let told = counts.map(|counts| format!("{} states, {} opened", counts.states, counts.opened));
            tell(&format!("history {seed} of {of}"), told);
        }
    }
    for seed in 0..PARITY_HISTORIES {
        let counts = parity_histories::explore(seed, PARITY_STATES, Lives::All, None);
        let told = counts.map(|counts| format!("{} states, {} opened", counts.states, counts.opened));
        tell(&format!("history {seed} of a parity device"), told);
    }
    for verb in VERBS.iter().chain(SNAPSHOT_VERBS).chain(STREAM_VERBS).chain(VOLUME_VERBS) {
        let counts = verb.explore(1);
        tell(verb.name, counts.map(|counts| format!("{} states, {} opened", counts.states, counts.opened)));
    }
    for history in mirror_faults::HISTORIES {
        let counts = history.explore(LOG_STATES, 0);
        let told = counts.map(|counts| format!("{} states, {} opened", counts.states, counts.opened));
        tell(history.name, told);
    }
    for double in SECOND_FAULTS {
        for operation in [Operation::Read, Operation::Write, Operation::Flush] {
            let counts = double.explore(operation, 1, DOUBLE_CUTS);
            let told = |count: second_faults::Counts| {
                format!("{} times, at a {operation:?}, {} states of a cut beside it", count.struck, count.cut)
            };
            tell(&double.name(), counts.map(told));
        }
    }
    for old in STALE_GROUPS {
        tell(&old.name(), old.explore().map(|count| format!("{count} sets of devices")));
    }
    ExitCode::from(u8::from(broken))
}

/// Spoils pools, and tells what does not hold.
#[cfg(debug_assertions)]
fn spoil(words: &[String]) -> Result<ExitCode, String> {
    use steadfast_sim::spoil::{self, Report};
    let number = |at: usize| {
        let text = words.get(at).ok_or_else(|| format!("a number is missing\n{USAGE}"))?;
        parse(text).map(|number| number.0).ok_or_else(|| format!("'{text}' is no number"))
    };
    let progress = |report: &Report| {
        eprintln!(
            "{:>6.0} s  {} rounds, {} changes, {} findings",
            report.seconds,
            commas(report.rounds),
            commas(report.mutations),
            report.findings.len()
        );
        if let Some(last) = report.findings.last() {
            eprintln!("the last: seed {}: {}", last.seed, last.what);
        }
    };
    let report = match words.get(1).map(String::as_str) {
        Some("--from") => spoil::run(number(2)?, number(0)?, progress),
        None => spoil::run(0, number(0)?, progress),
        Some(word) => return Err(format!("'{word}' means nothing here\n{USAGE}")),
    };
    let rate = |count: u64| commas((count as f64 / report.seconds.max(0.001)) as u64);
    println!(
        "{} changes in {} rounds, {} and {} a second: {} pools refused, {} suspended with a reason, {} found by the offline \
         check; {} streams received, {} refused; {} rounds not planted",
        commas(report.mutations),
        commas(report.rounds),
        rate(report.mutations),
        rate(report.rounds),
        commas(report.refused),
        commas(report.suspended),
        commas(report.found_offline),
        commas(report.streams_taken),
        commas(report.streams_refused),
        commas(report.unplanted)
    );
    for finding in &report.findings {
        println!("\nseed {}: {}", finding.seed, finding.what);
        finding.changes.iter().for_each(|change| println!("    {change}"));
    }
    Ok(ExitCode::from(u8::from(!report.findings.is_empty())))
}

/// Only debug assertions can write what no pool writes.
#[cfg(not(debug_assertions))]
fn spoil(_: &[String]) -> Result<ExitCode, String> {
    Err("--spoil needs a build with debug assertions".into())
}

/// How many, and from which seed on.
fn number_and_seed(words: &[String]) -> Result<(u64, u64), String> {
    let number = |at: usize| {
        let text = words.get(at).ok_or_else(|| format!("a number is missing\n{USAGE}"))?;
        parse(text).map(|number| number.0).ok_or_else(|| format!("'{text}' is no number"))
    };
    let from = match words.get(1).map(String::as_str) {
        Some("--from") => number(2)?,
        None => 0,
        Some(word) => return Err(format!("'{word}' means nothing here\n{USAGE}")),
    };
    Ok((number(0)?, from))
}

/// Cuts histories with a checkpoint, and tells of each.
fn keep_checkpoints(words: &[String]) -> Result<ExitCode, String> {
    let (most, from) = number_and_seed(words)?;
    let (mut states, mut opened, mut back, mut broken) = (0, 0, 0, 0);
    for seed in from.. {
        if states >= most || broken >= CHECKPOINTS_BROKEN_MAX {
            break;
        }
        match histories::explore(Theme::Checkpoint, seed, CHECKPOINTS_EVERY) {
            Ok(counts) => {
                (states, opened) = (states + counts.states, opened + counts.opened);
                back += counts.back;
            }
            Err(what) => {
                broken += 1;
                println!("{what}");
            }
        }
        eprintln!("to history {seed}: {} states, {} opened", commas(states), commas(opened));
    }
    let (states, opened, back) = (commas(states), commas(opened), commas(back));
    println!("{states} states, {opened} opened, {back} of them went back, {broken} histories broken");
    Ok(ExitCode::from(u8::from(broken > 0)))
}

/// Cuts histories of parity devices, and tells what does not hold.
fn cover(words: &[String]) -> Result<ExitCode, String> {
    let at = words.iter().position(|word| word == "--whole").unwrap_or(words.len());
    let (words, whole) = words.split_at(at);
    let (most, from) = number_and_seed(words)?;
    let lives = match whole {
        [] => Lives::All,
        [_, count] => match parse(count) {
            Some(count) if count.0 > 0 => Lives::OneIn(count.0),
            _ => return Err(format!("'{count}' is no number above 0")),
        },
        _ => return Err(format!("--whole takes a number\n{USAGE}")),
    };
    let tell = |counts: &parity_histories::Counts| {
        format!(
            "{} states judged, {} opened, {} of these lived on, {} cut again; {} of stores that had lost objects, {} objects came \
             back, {} recoveries and re-keys were interrupted, {} codes made anew, {} changes while a step of a pass ran",
            commas(counts.states),
            commas(counts.opened),
            commas(counts.whole),
            commas(counts.second),
            commas(counts.lossy),
            commas(counts.restored),
            commas(counts.interrupted),
            commas(counts.rekeyed),
            commas(counts.visited)
        )
    };
    let progress = |seed, counts: &_| eprintln!("to history {seed}: {}", tell(counts));
    match parity_histories::run(from, most, PARITY_STATES, lives, None, progress) {
        Ok(counts) => {
            println!("{}", tell(&counts));
            Ok(ExitCode::SUCCESS)
        }
        Err(what) => {
            println!("BROKEN: {what}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Lets hosts share a store, and tells what does not hold.
fn share(words: &[String], kind: &str) -> Result<ExitCode, String> {
    let (most, from) = number_and_seed(words)?;
    let tell = |counts: &hosts::Counts| {
        format!(
            "{} states judged in {} worlds; {} first commits behind an import, {} hosts slept, {} were stopped, {} faults",
            commas(counts.states),
            commas(counts.worlds),
            commas(counts.behind),
            commas(counts.slept),
            commas(counts.fenced),
            commas(counts.faults)
        )
    };
    let progress = |counts: &hosts::Counts| eprintln!("{}", tell(counts));
    let (counts, finding) = match kind {
        "--overtaken" => hosts::run_overtaken(from, most, None, progress),
        "--rotten" => hosts::run_rotten(from, most, progress),
        _ => hosts::run(from, most, None, progress),
    };
    println!("{}", tell(&counts));
    if let Some(finding) = &finding {
        println!("\nseed {}: {}", finding.seed, finding.what);
    }
    Ok(ExitCode::from(u8::from(finding.is_some())))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(word @ ("--hosts" | "--overtaken" | "--rotten")) = words.first().map(String::as_str) {
        return share(&words[1..], word).unwrap_or_else(|error| {
            eprintln!("steadfast-sim: {error}");
            ExitCode::from(2)
        });
    }
    if words.first().is_some_and(|word| word == "--parity") {
        return cover(&words[1..]).unwrap_or_else(|error| {
            eprintln!("steadfast-sim: {error}");
            ExitCode::from(2)
        });
    }
    if words.first().is_some_and(|word| word == "--checkpoints") {
        return keep_checkpoints(&words[1..]).unwrap_or_else(|error| {
            eprintln!("steadfast-sim: {error}");
            ExitCode::from(2)
        });
    }
    if words.first().is_some_and(|word| word == "--spoil") {
        return spoil(&words[1..]).unwrap_or_else(|error| {
            eprintln!("steadfast-sim: {error}");
            ExitCode::from(2)
        });
    }
    if std::env::args().nth(1).is_some_and(|word| word == "--verbs") {
        return cut_verbs();
    }
    let args = match args() {
        Ok(Some(args)) => args,
        Ok(None) => {
            for (at, setting) in SETTINGS.iter().enumerate() {
                println!("{at:>2}  {}", setting.name);
            }
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("steadfast-sim: {error}");
            return ExitCode::from(2);
        }
    };
    // States that break panic by the dozen when a bug is planted; what counts of a panic is told
    // with the state.
    std::panic::set_hook(Box::new(|_| ()));
    let (report, canaries) = match args.seed {
        Some(number) => {
            eprintln!("{number}: {}", number.text());
            (replay(number), Vec::new())
        }
        None if !Bug::COMPILED => {
            eprintln!("no canaries: planted bugs are compiled only with debug assertions");
            (run(&args.plan, &progress), Vec::new())
        }
        None => {
            let canaries: Vec<Caught> = [Bug::NoFlushBeforeRoot, Bug::LogNotFlushed, Bug::OthersUnread]
                .map(|bug| hunt(bug, 100))
                .into();
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

fn progress(report: &Report) {
    let counts = &report.counts;
    let chunks = match report.chunks {
        Some((first, end)) => format!(", chunk {first} of {end} (go on with --at {first})"),
        None => String::new(),
    };
    eprintln!(
        "{:>6} s  {} workloads, {} states, {} opened, {} broken{chunks}",
        report.wall_ns / 1_000_000_000,
        counts.workloads,
        counts.states,
        counts.opened,
        report.broken.len()
    );
}

fn a_minute(count: u64, ns: u64) -> u64 {
    u64::try_from(u128::from(count) * 60_000_000_000 / u128::from(ns.max(1))).unwrap_or(u64::MAX)
}

/// A number with commas.
fn commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn tell(report: &Report, canaries: &[Caught]) {
    let counts = &report.counts;
    let (seconds, cpu) = (report.wall_ns / 1_000_000_000, report.cpu_ns / 1_000_000_000);
    println!("states     {:>12}  judged, in {} workloads", commas(counts.states), commas(counts.workloads));
    println!("distinct   {:>12}  of these differ in some byte", commas(counts.distinct));
    println!(
        "opened     {:>12}  of these read something that no other read; inspected, written, closed, opened again",
        commas(counts.opened)
    );
    let third = commas(counts.third);
    println!(
        "cut again  {:>12}  inside their recovery, {third} of these inside the second one",
        commas(counts.second)
    );
    if counts.without + counts.mended > 0 {
        let (without, mended) = (commas(counts.without), commas(counts.mended));
        println!(
            "spared     {without:>12}  opened without the devices that were struck, or while they failed; of {mended} more what \
             was wrong was mended, and others were away then"
        );
    }
    if counts.refused > 0 {
        println!(
            "refused    {:>12}  operations for want of room, which changed nothing",
            commas(counts.refused)
        );
    }
    println!("time       {:>12}  s, {} s of processors", commas(seconds), commas(cpu));
    if let Some((ns, number, counts)) = &report.longest {
        let (states, opened) = (commas(counts.states), commas(counts.opened));
        let again = commas(counts.second);
        println!(
            "longest    {:>12}  s of processor for --seed {number}: {states} states, {opened} opened, {again} cut again",
            commas(ns / 1_000_000_000)
        );
    }
    let rate = |count| commas(a_minute(count, report.cpu_ns));
    let dear = counts.opened + counts.second;
    println!("a minute and core: {} states; {} opened or cut again", rate(counts.states), rate(dear));
    let sets: Vec<String> = report.sets.iter().map(|(set, count)| format!("{set:?} {count}")).collect();
    println!("\nworkloads: {}", sets.join(", ").to_lowercase());
    let areas: Vec<String> =
        counts.areas.iter().map(|(area, count)| format!("{area} {}", commas(*count))).collect();
    println!("states cut after: {}", areas.join(", "));
    println!("\nstates     workloads  setting");
    for (setting, (states, workloads)) in &report.settings {
        println!(
            "{:>10}  {:>8}  {:>2} {}",
            commas(*states),
            commas(*workloads),
            setting,
            SETTINGS[*setting].name
        );
    }
    if !counts.faults.is_empty() {
        println!("\nworkloads  fault                  what came of it");
        for ((fault, verdict), count) in &counts.faults {
            println!("{:>9}  {fault:<21}  {verdict}", commas(*count));
        }
    }
    if !canaries.is_empty() {
        println!();
    }
    for caught in canaries {
        let (bug, states) = (caught.bug, commas(caught.states));
        match &caught.broken {
            Some(broken) => {
                let what: String = broken.what.chars().take(CANARY_CHARS).collect();
                println!("canary     {bug:?}: caught after {states} states: {what} ...");
            }
            None => println!("canary     {bug:?}: NOT CAUGHT in {states} states"),
        }
    }
    if let Some((first, end)) = report.chunks {
        match first < end {
            true => println!("chunks     up to {first} of {end} are done; go on with --at {first}"),
            false => println!("chunks     all are done"),
        }
    }
    for broken in &report.broken {
        println!("\nFAILURE    {broken}");
        println!("  again with: cargo run --release -p steadfast-sim -- --seed {}", broken.number);
    }
    match report.broken.len() {
        0 => println!("failures   none"),
        count => println!("failures   {count}"),
    }
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
                "states": caught.states,
                "text": caught.broken.as_ref().map(ToString::to_string),
            })
        })
        .collect();
    let sets: serde_json::Map<_, _> =
        report.sets.iter().map(|(set, count)| (format!("{set:?}").to_lowercase(), json!(count))).collect();
    let faults: Vec<_> = counts
        .faults
        .iter()
        .map(|((fault, verdict), count)| json!({ "fault": fault, "verdict": verdict, "workloads": count }))
        .collect();
    let settings: serde_json::Map<_, _> = report
        .settings
        .iter()
        .map(|(at, (states, _))| (SETTINGS[*at].name.to_owned(), json!(states)))
        .collect();
    let longest = report.longest.as_ref().map(|(ns, number, counts)| {
        let number = number.to_string();
        json!({ "workload": number, "cpu_ns": ns, "states": counts.states, "opened": counts.opened, "second": counts.second })
    });
    println!(
        "{}",
        json!({
            "workloads": counts.workloads,
            "sets": sets,
            "states": counts.states,
            "distinct": counts.distinct,
            "opened": counts.opened,
            "second": counts.second,
            "third": counts.third,
            "without": counts.without,
            "mended": counts.mended,
            "refused": counts.refused,
            "areas": counts.areas,
            "faults": faults,
            "settings": settings,
            "chunks": report.chunks,
            "longest": longest,
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
