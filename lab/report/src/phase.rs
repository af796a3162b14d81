//! A finished run of the load as data for pages: where it worked, what it did, how it went.

use crate::report::{Cpu, Interval, Phase, Response};
use steadfast_lab_params::{Run, Work};
use steadfast_lab_workload::{Figures, RunResult};

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
                quantiles_ms: {
                    let [p50, _, p99, _] = line.requested.percentiles();
                    [p50, p99, (line.requested.count > 0).then_some(line.requested.max_ms)]
                },
            })
            .collect(),
        space: None,
    }
}
