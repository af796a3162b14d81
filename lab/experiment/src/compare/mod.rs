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

use steadfast_lab_params::{Overrides, Plan};
use steadfast_lab_report::figures::{self, ArmInfo, Axis, Chart, Row, Series, shown};
use steadfast_lab_report::report::{Conditions, Phase};
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
                note(&mut report.rows, &phase);
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
fn note(rows: &mut Vec<Row>, phase: &Phase) {
    let run = &phase.run;
    let response = &phase.response;
    for (key, label, unit, more, value) in [
        ("rate", "operations", "1/s", true, phase.rate),
        ("mib", "throughput", "MiB/s", true, phase.mib_per_s),
        ("mean", "mean response time", "ms", false, response.mean),
        ("p99", "p99", "ms", false, response.p99),
        ("p999", "p99.9", "ms", false, response.p999),
        ("max", "longest", "ms", false, response.max),
        ("cpu", "processor use of the machine", "%", false, phase.cpu.total),
    ] {
        let row = Row::new(
            &format!("{run}/{key}"),
            &format!("{run}: {label}"),
            unit,
            more,
            "First interval not counted.",
        );
        if value > 0.0 {
            figures::add(rows, &row, &phase.arm, value);
        }
    }
}

/// Rate over time of each run's first round.
fn charts(report: &ComparisonReport, phases: &[Phase]) -> Vec<Chart> {
    let mut runs: Vec<&str> = Vec::new();
    for phase in phases {
        if !runs.contains(&phase.run.as_str()) {
            runs.push(&phase.run);
        }
    }
    let series = |run: &str, arm: &ArmInfo| {
        let phase = phases.iter().find(|phase| phase.run == run && phase.arm == arm.key)?;
        let points = phase.intervals.iter().map(|interval| (interval.at_s, interval.rate)).collect();
        Some(Series { label: arm.label.clone(), calculated: false, points })
    };
    let chart = |(at, run): (usize, &str)| Chart {
        key: format!("rate{at}"),
        title: format!("{run}: operations a second over time"),
        how: "The first round of each.".to_owned(),
        x: Axis::linear("seconds"),
        y: Axis::linear("operations a second"),
        limit: None,
        series: report.arms.iter().filter_map(|arm| series(run, arm)).collect(),
    };
    runs.into_iter().enumerate().map(chart).collect()
}

/// Rates of each file system, run by run, for the first few runs.
fn summary(report: &ComparisonReport) -> String {
    let rates: Vec<&Row> = report.rows.iter().filter(|row| row.key.ends_with("/rate")).collect();
    let sentence = |row: &&Row| {
        let of = |arm: &ArmInfo| Some(format!("{} {}", arm.label, shown(row.median(&arm.key)?)));
        let rates: Vec<String> = report.arms.iter().filter_map(of).collect();
        format!("{}: {} operations a second.", row.key.trim_end_matches("/rate"), rates.join(", "))
    };
    let mut words: Vec<String> = rates.iter().take(3).map(sentence).collect();
    if rates.len() > 3 {
        words.push(format!("{} more runs below.", rates.len() - 3));
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
    fn luns_and_anchors_find_their_place_and_sizes_are_wanted() {
        let plan = steadfast_lab_params::parse_text(
            "x.parm",
            "sd=sd1,lun=/dev/sdb,size=1m,openflags=o_direct\nwd=wd1,sd=sd1\nrd=rd1,wd=wd1,elapsed=2,iorate=max\n",
        )
        .unwrap();
        assert_eq!(mapping(&plan, Path::new("/m")), [("/dev/sdb".to_owned(), PathBuf::from("/m/dev_sdb"))]);
    }
}
