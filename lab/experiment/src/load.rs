//! The load: a parameter file as it is, its anchors mapped to the directories of this run, carried out by the
//! workload engine, its results turned into phases.

use std::path::{Path, PathBuf};

use steadfast_lab_params::{Files, Overrides, Plan, Request, Run, Work, parse_with};
use steadfast_lab_workload::{Figures, RunResult};

use crate::error::Error;
use crate::report::{Cpu, Interval, Phase, Response};

/// A parameter file that the program carries.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Name: `compression.parm`.
    pub file: &'static str,
    /// Text.
    pub text: &'static str,
}

struct Carried<'a>(&'a Parameters);

impl Files for Carried<'_> {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        if path == Path::new(self.0.file) {
            Ok(self.0.text.as_bytes().to_vec())
        } else {
            Err(std::io::ErrorKind::NotFound.into())
        }
    }
}

/// Reads the file; `elapsed_s` replaces the duration of every run.
pub fn plan(parameters: &Parameters, elapsed_s: Option<u32>) -> Result<Plan, Error> {
    plan_with(parameters, Overrides { elapsed: elapsed_s.map(u64::from), ..Overrides::default() })
}

/// Reads the file, with the options of vdbench's command line over it.
pub fn plan_with(parameters: &Parameters, overrides: Overrides) -> Result<Plan, Error> {
    let request = Request { overrides, ..Request::file(parameters.file) };
    Ok(parse_with(&request, &Carried(parameters))?)
}

/// Points every anchor and lun of the plan to its directory. All must be in `mapping`.
pub fn remap(plan: &mut Plan, mapping: &[(String, PathBuf)]) -> Result<(), Error> {
    let moved = |place: &str| -> Result<String, Error> {
        mapping
            .iter()
            .filter_map(|(from, to)| Path::new(place).strip_prefix(from).ok().map(|rest| (from, to, rest)))
            .max_by_key(|(from, ..)| from.len())
            .map(|(_, to, rest)| {
                if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) }.display().to_string()
            })
            .ok_or_else(|| Error::Anchor { anchor: place.to_owned() })
    };
    for fsd in &mut plan.fsds {
        fsd.anchor = moved(&fsd.anchor)?;
    }
    for sd in &mut plan.sds {
        sd.lun = moved(&sd.lun)?;
    }
    for run in &mut plan.runs {
        match &mut run.work {
            Work::Files(work) => {
                for fsd in &mut work.fsds {
                    fsd.anchor = moved(&fsd.anchor)?;
                }
            }
            Work::Raw(work) => {
                for sd in &mut work.sds {
                    sd.lun = moved(&sd.lun)?;
                }
            }
        }
    }
    Ok(())
}

/// Seconds the plan will take, formats not counted.
pub fn seconds(plan: &Plan) -> f64 {
    plan.runs
        .iter()
        .filter_map(|run| run.elapsed.map(|elapsed| (elapsed + run.warmup + run.pause) as f64))
        .sum()
}

/// The directory a run works on; the first of them when there are several.
pub fn directory(run: &Run) -> Option<&str> {
    match &run.work {
        Work::Files(work) => match work.fwds.first().and_then(|(_, at)| at.first()) {
            Some(index) => work.fsds.get(*index).map(|fsd| fsd.anchor.as_str()),
            None => work.fsds.first().map(|fsd| fsd.anchor.as_str()),
        },
        Work::Raw(work) => work.sds.first().map(|sd| sd.lun.as_str()),
    }
}

/// `write`, `read`, or what else the run does first.
pub fn operation(run: &Run) -> String {
    match &run.work {
        Work::Files(work) => work
            .fwds
            .first()
            .and_then(|(fwd, _)| fwd.operations.first())
            .map_or_else(|| "format".to_owned(), |operation| operation.name().to_owned()),
        Work::Raw(work) => match work.wds.first().map_or(100.0, |(wd, _)| wd.rdpct) {
            percent if percent >= 100.0 => "read".to_owned(),
            percent if percent <= 0.0 => "write".to_owned(),
            _ => "mixed".to_owned(),
        },
    }
}

/// A finished run as a phase of the report.
pub fn phase(result: &RunResult, arm: &str, round: u32, cores: u32, watched: bool) -> Phase {
    let figures = Figures::from(&result.measured.requested());
    let seconds = result.measured_seconds().max(1.0);
    let interval_s = result.run.interval as f64;
    let cpu = &result.measured_cpu;
    Phase {
        round,
        arm: arm.to_owned(),
        run: result.run.label.clone(),
        operation: operation(&result.run),
        rate: figures.count as f64 / seconds,
        mib_per_s: figures.bytes as f64 / seconds / crate::number::MIB,
        operations: figures.count,
        response: Response {
            mean: figures.mean_ms,
            p50: figures.p50_ms,
            p90: figures.p90_ms,
            p99: figures.p99_ms,
            p999: figures.p999_ms,
            max: figures.max_ms,
        },
        cpu: Cpu { total: cpu.used, system: cpu.system },
        daemon_percent: watched.then(|| cpu.watched_seconds / (seconds * f64::from(cores.max(1))) * 100.0),
        intervals: result
            .lines
            .iter()
            .map(|line| Interval {
                at_s: f64::from(line.number) * interval_s,
                rate: line.requested.count as f64 / interval_s,
                response_ms: (line.requested.count > 0).then_some(line.requested.mean_ms),
                cpu_total: line.cpu.used,
            })
            .collect(),
        space: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment;

    #[test]
    fn every_carried_file_is_read_and_pointed_elsewhere() {
        for experiment in experiment::all() {
            let mut plan = plan(&experiment.parameters(), Some(4)).unwrap();
            let mapping: Vec<_> = experiment
                .arms()
                .iter()
                .map(|arm| (arm.anchor.to_owned(), PathBuf::from(format!("/elsewhere/{}", arm.volume.arm))))
                .collect();
            remap(&mut plan, &mapping).unwrap();
            let runs: Vec<_> = plan.runs.iter().filter(|run| run.elapsed.is_some()).collect();
            assert!(!runs.is_empty());
            for run in runs {
                assert!(directory(run).unwrap().starts_with("/elsewhere/"), "{}", run.label);
                assert_eq!(run.elapsed, Some(4));
                assert!(["read", "write"].contains(&operation(run).as_str()));
            }
            assert!(seconds(&plan) >= 16.0);
        }
    }

    #[test]
    fn an_anchor_that_nobody_sets_up_is_refused_by_name() {
        let experiment = experiment::find("compression").unwrap();
        let mut plan = plan(&experiment.parameters(), None).unwrap();
        let error = remap(&mut plan, &[("/zfs_compress".to_owned(), PathBuf::from("/x"))]).unwrap_err();
        assert!(error.to_string().contains("/zfs_nocompress"), "{error}");
    }
}
