//! `steadfast lab run FILE --target LIST`: any parameter file on any file systems of one disk,
//! beside each other.
//!
//! Each file system is made anew for each round, on an image of the same size, and taken away
//! behind it; a directory gets a folder that is removed again. The luns and anchors of the
//! parameter file are mapped into each of them. Caches are alike when a file system's runs begin
//! (unmounted, the kernel's caches dropped, mounted again); from one run of the file to the next
//! they stay as they are, as vdbench leaves them.

mod request;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_lab_params::{Overrides, Plan, Rate};
use steadfast_lab_report::figures::{self, ArmInfo, Axis, Chart, Row, Series, shown};
use steadfast_lab_report::report::{Command, Conditions, Phase};
use steadfast_lab_report::{RunRequest, number, run_reported};
use steadfast_lab_workload::{Event, Options, RunResult, execution_seed};

pub(crate) use request::CompareRequest;

use crate::comparison::{self, ComparisonReport, Heading};
use crate::context::Context;
use crate::error::Error;
use crate::file_systems::{Arms, Kind, Recipe};
use crate::host::progress::Progress;
use crate::host::requirements::{check_fuse, check_room};
use crate::load;
use crate::results::{self, Results};
use crate::setup::Setup;
use request::Contender;

/// Seconds for making and taking away, for the progress bar.
const MAKING_S: f64 = 5.0;

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early. A load that fails on one file system is none: it is a note
/// and no number.
pub fn run(
    request: &CompareRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Results<ComparisonReport>, Error> {
    let plan = plan(request)?;
    let parent = request.places.parent();
    check(request, &plan, parent)?;
    let stem = request.file.file_stem().map_or("file".into(), |stem| stem.to_string_lossy().into_owned());
    let setup = Setup::new(&stem, request.places.out.as_deref(), parent)?;
    let (workdir, mut shell) = (&setup.workdir, setup.shell(context, stop)?);
    let named = |contender: &Contender| ArmInfo {
        key: contender.key.to_owned(),
        label: contender.label.clone(),
        missing: None,
    };
    let first = &request.contenders[0];
    let mut report = ComparisonReport::new(
        Some(Heading {
            name: stem.clone(),
            title: format!("{stem} on {}", names(request)),
            question: "One parameter file on file systems of one disk, made anew for each round.".to_owned(),
            base: (first.key.to_owned(), first.label.clone()),
        }),
        Conditions {
            elapsed_override_s: request.elapsed,
            ..setup.conditions(format!("Steadfast {}", context.version), request.repeat(), request.rounds)
        },
        format!("images of {}", number::bytes(request.image_bytes)),
        request.contenders.iter().map(named).collect(),
    );
    let each = load::seconds(&plan) + MAKING_S;
    let mut progress = Progress::new(each * request.contenders.len() as f64 * f64::from(request.rounds));
    let mut phases: Vec<Phase> = Vec::new();
    let done = (1..=request.rounds).try_for_each(|round| {
        let mut order: Vec<usize> = (0..request.contenders.len()).collect();
        // Each round begins with another one.
        order.rotate_left((round - 1) as usize % request.contenders.len());
        for at in order {
            if report.arms[at].missing.is_some() {
                continue;
            }
            let contender = &request.contenders[at];
            progress.begin(&format!("round {round}: making {}", contender.label));
            let recipe = Recipe {
                key: contender.key,
                label: contender.key,
                kind: contender.kind.clone(),
                image_bytes: request.image_bytes,
            };
            // Fresh for this round, gone behind it.
            let mut arms = Arms::new(vec![recipe], workdir, context, &mut shell)?;
            report.arms[at].missing = arms.info().remove(0).missing;
            let Some(arm) = arms.get(contender.key) else { continue };
            arm.cold(&mut shell)?;
            progress.advance(MAKING_S, "");
            let mut plan = plan.clone();
            let places = mapping(&plan, &arm.place());
            load::remap(&mut plan, &places)?;
            let watch = if arm.is_ours() { vec![arm.daemon(&mut shell)?] } else { Vec::new() };
            let watched = !watch.is_empty();
            let place = setup.out.join("vdbench").join(format!("{round}-{}", contender.key));
            fs::create_dir_all(&place).map_err(Error::io("create", &place))?;
            let options = Options {
                watch,
                seed: u64::from(round),
                draws: execution_seed().wrapping_add(u64::from(round)),
                ..Options::default()
            };
            let asked = RunRequest { options, ..RunRequest::new(&plan, &place) };
            let mut ended: Vec<RunResult> = Vec::new();
            let step = format!("round {round}: {}", contender.label);
            let reported = run_reported(&asked, stop, &mut std::io::sink(), &mut |event| match event {
                Event::Started { run, .. } => progress.begin(&format!("{step}, {}", run.label)),
                Event::Interval { run, interval } => {
                    let asked = &interval.line.requested;
                    let rate = asked.count as f64 / run.interval.max(1) as f64;
                    progress.advance(run.interval as f64, &format!("{rate:.0}/s  {:.3} ms", asked.mean_ms));
                }
                Event::Error(error) => progress.say(&error.to_string()),
                Event::Finished(result) if !result.is_format() => ended.push((*result).clone()),
                _ => {}
            })
            .map_err(Error::io("write", &place))?;
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            if let Some(reason) = reported.failure {
                let reason = reason.replace('\n', " ");
                report.notes.push(format!(
                    "{}, round {round}: the load failed and is not counted: {reason}",
                    contender.label
                ));
                continue;
            }
            let cores = report.conditions.machine.cores;
            for result in &ended {
                let phase = load::phase(result, contender.key, round, cores, watched);
                note(&mut report.rows, &phase, &result.run.rate);
                phases.push(phase);
            }
        }
        Ok(())
    });
    progress.end();
    let measured = !report.rows.is_empty();
    let ComparisonReport { rows, notes, conditions, .. } = &mut report;
    let early = results::early(done, measured, &*rows, notes, conditions)?;
    report.charts = charts(&report, &phases);
    report.conditions.seconds = setup.seconds();
    report.summary = summary(&report);
    report.notes.push(
        "Between two runs of the file caches stay as the run before left them; luns and anchors lie in the file system that is named above."
            .to_owned(),
    );
    report.commands = shell.history();
    // The load itself, as one would repeat it on files of one's own.
    report
        .commands
        .push(Command { line: format!("steadfast bench -f {}", request.file.display()), status: Some(0) });
    comparison::write(report, &setup.out, early, None)
}

fn names(request: &CompareRequest) -> String {
    request.contenders.iter().map(|contender| contender.label.as_str()).collect::<Vec<_>>().join(", ")
}

/// The plan of the file, with what was asked for changed.
fn plan(request: &CompareRequest) -> Result<Plan, Error> {
    let overrides = Overrides {
        elapsed: request.elapsed.map(u64::from),
        interval: request.interval.map(u64::from),
        ..Overrides::default()
    };
    let asked =
        steadfast_lab_params::Request { overrides, ..steadfast_lab_params::Request::file(&request.file) };
    Ok(steadfast_lab_params::parse(&asked)?)
}

/// Refuses what cannot come to its end.
fn check(request: &CompareRequest, plan: &Plan, parent: &Path) -> Result<(), Error> {
    for contender in &request.contenders {
        match &contender.kind {
            Kind::Folder { .. } => {}
            kind => {
                if !rustix::process::geteuid().is_root() {
                    return Err(Error::Missing {
                        what: format!(
                            "{} needs root: file systems are made on loop devices and mounted.",
                            contender.label
                        ),
                        action: "type `sudo steadfast lab run ...`, or name directories only.".to_owned(),
                    });
                }
                if matches!(kind, Kind::Ours { .. } | Kind::Gocryptfs | Kind::ZfsFuse { .. }) {
                    check_fuse()?;
                }
            }
        }
    }
    if let Some(sd) = plan.sds.iter().find(|sd| sd.size.is_none()) {
        return Err(Error::Usage(format!(
            "sd={} has no size=: its lun is a file that is made anew in each file system, so the parameter file must say how large",
            sd.name
        )));
    }
    let wanted: u64 = plan.sds.iter().filter_map(|sd| sd.size).sum();
    if wanted > request.image_bytes / 10 * 8 {
        return Err(Error::Usage(format!(
            "the storages come to {}, too much for images of {}: give a larger --size",
            number::bytes(wanted),
            number::bytes(request.image_bytes)
        )));
    }
    let made = request.contenders.iter().any(|contender| !matches!(contender.kind, Kind::Folder { .. }));
    match made {
        true => check_room(
            parent,
            request.image_bytes,
            "name another directory with --dir DIR, or smaller images with --size.",
        ),
        false => Ok(()),
    }
}

/// Where each lun and anchor lies: what it is called, in one word, below `place`.
fn mapping(plan: &Plan, place: &Path) -> Vec<(String, PathBuf)> {
    let luns = plan.sds.iter().map(|sd| sd.lun.clone());
    let anchors = plan.fsds.iter().map(|fsd| fsd.anchor.clone());
    let all: BTreeSet<String> = luns.chain(anchors).collect();
    all.into_iter()
        .map(|name| {
            let word = name.trim_matches('/').replace('/', "_");
            let to = place.join(word);
            (name, to)
        })
        .collect()
}

/// Takes the figures of a run into the rows.
fn note(rows: &mut Vec<Row>, phase: &Phase, asked: &Rate) {
    let run = &phase.run;
    let response = &phase.response;
    let [_, _, p99, p999] = response.percentiles(phase.operations);
    // A rate that was asked for is no result; whether it was kept is.
    let kept = match asked {
        Rate::Fixed(wanted) => Some(phase.rate / wanted * 100.0),
        _ => None,
    };
    let free = kept.is_none();
    for (key, label, unit, more, value) in [
        ("kept", "operations done of those asked for", "%", true, kept),
        ("rate", "operations", "1/s", true, free.then_some(phase.rate)),
        ("mib", "throughput", "MiB/s", true, free.then_some(phase.mib_per_s)),
        ("mean", "mean response time", "ms", false, Some(response.mean)),
        ("p99", "p99", "ms", false, p99),
        ("p999", "p99.9", "ms", false, p999),
        ("max", "longest", "ms", false, Some(response.max)),
        ("cpu", "processor use of the machine", "%", false, Some(phase.cpu.total)),
    ] {
        let row = Row::new(
            &format!("{run}/{key}"),
            &format!("{run}: {label}"),
            unit,
            more,
            "First interval not counted.",
        );
        if let Some(value) = value.filter(|value| *value > 0.0) {
            figures::add(rows, &row, &phase.arm, value);
        }
    }
}

/// Rate over time of each run, its rounds one after the other; where a rate was asked for, the mean
/// response time.
fn charts(report: &ComparisonReport, phases: &[Phase]) -> Vec<Chart> {
    let mut runs: Vec<&str> = Vec::new();
    for phase in phases {
        if !runs.contains(&phase.run.as_str()) {
            runs.push(&phase.run);
        }
    }
    let asked = |run: &str| report.rows.iter().any(|row| row.key == format!("{run}/kept"));
    let series = |run: &str, arm: &ArmInfo| {
        let mut points = Vec::new();
        let mut from = 0.0;
        for phase in phases.iter().filter(|phase| phase.run == run && phase.arm == arm.key) {
            for interval in &phase.intervals {
                let value = if asked(run) { interval.response_ms } else { Some(interval.rate) };
                points.extend(value.map(|value| (from + interval.at_s, value)));
            }
            from += phase.intervals.last().map_or(0.0, |last| last.at_s);
        }
        (!points.is_empty()).then(|| Series { label: arm.label.clone(), calculated: false, points })
    };
    let chart = |(at, run): (usize, &str)| {
        let (what, unit) = match asked(run) {
            true => ("mean response time over time", "milliseconds"),
            false => ("operations a second over time", "operations a second"),
        };
        let how = match report.conditions.rounds {
            1 => "Interval by interval.".to_owned(),
            rounds => format!("Interval by interval, the {rounds} rounds one after the other."),
        };
        Chart {
            key: format!("rate{at}"),
            title: format!("{run}: {what}"),
            how,
            x: Axis::linear("seconds"),
            y: Axis::linear(unit),
            limit: None,
            series: report.arms.iter().filter_map(|arm| series(run, arm)).collect(),
        }
    };
    runs.into_iter().enumerate().map(chart).collect()
}

/// Result of each run, for the first few: its rate, or the response times at the rate asked for.
fn summary(report: &ComparisonReport) -> String {
    let kept = |row: &&Row| row.key.ends_with("/rate") || row.key.ends_with("/kept");
    let results: Vec<&Row> = report.rows.iter().filter(kept).collect();
    let values = |row: &Row, unit: &str| {
        let of = |arm: &ArmInfo| Some(format!("{} {}{unit}", arm.label, shown(row.median(&arm.key)?)));
        report.arms.iter().filter_map(of).collect::<Vec<_>>().join(", ")
    };
    let sentence = |row: &&Row| match row.key.strip_suffix("/kept") {
        None => {
            format!("{}: {} operations a second.", row.key.trim_end_matches("/rate"), values(row, ""))
        }
        Some(run) => {
            let of = |key: &str| {
                report.row(&format!("{run}/{key}")).map_or(String::new(), |row| values(row, " ms"))
            };
            format!("{run}, at the rate asked for: mean response time {}; longest {}.", of("mean"), of("max"))
        }
    };
    let mut words: Vec<String> = results.iter().take(3).map(sentence).collect();
    if results.len() > 3 {
        words.push(format!("{} more runs below.", results.len() - 3));
    }
    if words.is_empty() {
        words.push("No run came to its end; the notes say why.".to_owned());
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::read;

    #[test]
    fn a_file_runs_on_two_directories_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["a", "b", "work"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(
            at("x.parm"),
            "sd=sd1,lun=/some/where/file,size=4m,threads=1\nwd=wd1,sd=sd1,xfersize=4k,rdpct=50\n\
             rd=first,wd=wd1,iorate=max,elapsed=2,interval=1\n",
        )
        .unwrap();
        let line = format!(
            "{} --target {}/,{}/ --rounds 1 --dir {} --out {}",
            at("x.parm").display(),
            at("a").display(),
            at("b").display(),
            at("work").display(),
            at("out").display()
        );
        let request = read::<CompareRequest>(&line).resolved().unwrap();
        let context = Context { steadfast: PathBuf::from("/no/such/program"), version: "1".to_owned() };
        if !rustix::process::geteuid().is_root() {
            // Caches are dropped by root alone.
            return;
        }
        let done = run(&request, &context, &Arc::default()).unwrap();
        let rate = done.report.rows.iter().find(|row| row.key == "first/rate").unwrap();
        assert!(rate.median("dir1").unwrap() > 0.0 && rate.median("dir2").unwrap() > 0.0);
        assert_eq!(done.report.charts.len(), 1);
        for name in ["a", "b", "work"] {
            assert_eq!(fs::read_dir(at(name)).unwrap().count(), 0, "{name} is as it was");
        }
    }

    #[test]
    fn a_rate_that_was_asked_for_is_no_result() {
        let mut report = ComparisonReport::new(None, Conditions::default(), String::new(), Vec::new());
        report.arms = vec![ArmInfo { key: "a".into(), label: "ext4".into(), missing: None }];
        let response = steadfast_lab_report::report::Response { mean: 0.25, max: 8.0, ..Default::default() };
        let phase = Phase {
            run: "rd1".into(),
            arm: "a".into(),
            rate: 99.0,
            operations: 150,
            response,
            ..Phase::default()
        };
        note(&mut report.rows, &phase, &Rate::Fixed(100.0));
        let keys: Vec<&str> = report.rows.iter().map(|row| row.key.as_str()).collect();
        assert_eq!(keys, ["rd1/kept", "rd1/mean", "rd1/max"], "no rate, and no p99.9 of 150 operations");
        assert_eq!(report.row("rd1/kept").unwrap().median("a"), Some(99.0));
        assert_eq!(
            summary(&report),
            "rd1, at the rate asked for: mean response time ext4 0.25 ms; longest ext4 8.00 ms."
        );
        report.rows.clear();
        note(&mut report.rows, &phase, &Rate::Max);
        assert_eq!(summary(&report), "rd1: ext4 99.0 operations a second.");
    }

    #[test]
    fn luns_and_anchors_find_their_place_and_sizes_are_wanted() {
        let plan = steadfast_lab_params::parse_text(
            "x.parm",
            "sd=sd1,lun=/dev/sdb,size=1m,openflags=o_direct\nwd=wd1,sd=sd1\nrd=rd1,wd=wd1,elapsed=2,iorate=max\n",
        )
        .unwrap();
        assert_eq!(mapping(&plan, Path::new("/m")), [("/dev/sdb".to_owned(), PathBuf::from("/m/dev_sdb"))]);
    }
}
