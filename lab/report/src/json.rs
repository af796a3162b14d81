//! `report.json`, for programs: everything the tables say, percentiles, and processor time of the
//! measured system and of the tool. And `latency.csv`, percentiles per operation and interval.
//!
//! The schema has a version. Fields are added without a new one; a field that changes its meaning
//! gets a new version.

use crate::clock::Moment;
use serde_json::{Value, json};
use steadfast_lab_params::{Operation, Rate, Work};
use steadfast_lab_workload::cpu::CpuUse;
use steadfast_lab_workload::{Figures, Groups, Line, RunResult};

/// Version of the schema.
pub const SCHEMA_VERSION: u32 = 1;

/// First line of latency.csv.
pub(crate) const LATENCY_HEADER: &str =
    "run,interval,operation,count,rate_per_s,bytes,mean_ms,stddev_ms,p50_ms,p90_ms,p99_ms,p99.9_ms,max_ms";

/// The whole document.
pub(crate) fn report(started: &Moment, runs: Vec<Value>, failure: Option<&str>) -> Value {
    json!({
        "schema": "steadfast-lab-report",
        "version": SCHEMA_VERSION,
        "program": env!("CARGO_PKG_VERSION"),
        "started": started.iso(),
        "finished": Moment::now().iso(),
        "failure": failure,
        "runs": runs,
    })
}

/// One run as it stands in `runs` of the report.
pub fn run(result: &RunResult) -> Value {
    let run = &result.run;
    let intervals: Vec<Value> = result
        .lines
        .iter()
        .map(|line| {
            json!({
                "interval": line.number,
                "seconds": line.seconds,
                "warmup": line.number < result.first_measured,
                "requested": figures(&line.requested, run.interval as f64),
                "operations": operations(&line.operations, run.interval as f64),
                "cpu": cpu(&line.cpu),
            })
        })
        .collect();
    json!({
        "label": run.label,
        "rd": run.rd,
        "loops": run.loops,
        "kind": if matches!(run.work, Work::Raw(_)) { "raw" } else { "files" },
        "format": result.is_format(),
        "rate": match &run.rate {
            Rate::Fixed(rate) => json!(rate),
            Rate::Max => json!("max"),
            Rate::Variable(list) => json!(list),
            Rate::Curve(_) => json!("curve"),
            Rate::AsTraced => json!("traced"),
        },
        "compratio": run.compratio,
        "dedupratio": run.dedupratio,
        "interval_s": run.interval,
        "elapsed_s": run.elapsed,
        "warmup_s": run.warmup,
        "started": Moment::of(result.started).iso(),
        "seconds": result.seconds,
        "intervals": intervals,
        // The values of the avg_ line of the tables.
        "average": stretch(&result.measured, result.measured_seconds(), &result.measured_cpu),
        // From the first operation to the last, by the clock: the figures of a format.
        "whole": stretch(&result.whole, result.seconds, &result.whole_cpu),
        "storages": parts(result, true),
        "workloads": parts(result, false),
        // Empty where one machine alone worked.
        "hosts": result.hosts.iter().map(|share| {
            (share.host.clone(), stretch(&share.groups, result.measured_seconds(), &share.cpu))
        }).collect::<serde_json::Map<_, _>>(),
        "counters": result.counters.iter().map(|c| (c.name.to_string(), json!(c.count))).collect::<serde_json::Map<_, _>>(),
        "errors": result.errors,
        "engine_us_per_operation": result.overhead_us(),
        "failure": result.failure,
        "stopped": result.stopped,
    })
}

fn stretch(groups: &Groups, seconds: f64, usage: &CpuUse) -> Value {
    let requested = Figures::from(&groups.requested());
    let list: Vec<(Operation, Figures)> = Operation::ALL
        .into_iter()
        .map(|operation| (operation, Figures::from(&groups.operation(operation))))
        .filter(|(_, figures)| figures.count > 0)
        .collect();
    json!({
        "seconds": seconds,
        "requested": figures(&requested, seconds),
        "operations": operations(&list, seconds),
        "cpu": cpu(usage),
    })
}

/// Figures of each storage or workload.
fn parts(result: &RunResult, storages: bool) -> Value {
    let mut out = serde_json::Map::new();
    for group in &result.measured.0 {
        let name = if storages { &group.storage } else { &group.workload };
        if !out.contains_key(name) {
            let own = result.measured.filtered(|g| *name == *if storages { &g.storage } else { &g.workload });
            let requested = Figures::from(&own.requested());
            out.insert(name.clone(), figures(&requested, result.measured_seconds()));
        }
    }
    Value::Object(out)
}

fn operations(list: &[(Operation, Figures)], seconds: f64) -> Value {
    Value::Object(list.iter().map(|(o, f)| (o.name().to_string(), figures(f, seconds))).collect())
}

fn figures(f: &Figures, seconds: f64) -> Value {
    let per_second = |value: f64| if seconds > 0.0 { value / seconds } else { 0.0 };
    let [p50, p90, p99, p999] = f.percentiles();
    json!({
        "count": f.count,
        "rate_per_s": per_second(f.count as f64),
        "bytes": f.bytes,
        "mib_per_s": per_second(f.bytes as f64) / 1_048_576.0,
        "mean_ms": f.mean_ms,
        "stddev_ms": f.stddev_ms,
        // Null where there were too few operations.
        "p50_ms": p50,
        "p90_ms": p90,
        "p99_ms": p99,
        "p999_ms": p999,
        "max_ms": f.max_ms,
    })
}

fn cpu(usage: &CpuUse) -> Value {
    json!({
        "used_pct": usage.used,
        "user_pct": usage.user,
        "system_pct": usage.system,
        "wait_pct": usage.wait,
        "idle_pct": usage.idle,
        "nice_pct": usage.nice,
        "steal_pct": usage.steal,
        "watched_s": usage.watched_seconds,
        "own_s": usage.own_seconds,
        "own_user_s": usage.own_user_seconds,
    })
}

fn csv(run: &str, interval: &str, operation: &str, f: &Figures, seconds: f64) -> String {
    let run =
        if run.contains([',', '"']) { format!("\"{}\"", run.replace('"', "\"\"")) } else { run.to_string() };
    let rate = if seconds > 0.0 { f.count as f64 / seconds } else { 0.0 };
    // Empty where there were too few operations.
    let [p50, p90, p99, p999] =
        f.percentiles().map(|value| value.map_or(String::new(), |ms| format!("{ms:.6}")));
    format!(
        "{run},{interval},{operation},{},{rate:.3},{},{:.6},{:.6},{p50},{p90},{p99},{p999},{:.6}",
        f.count, f.bytes, f.mean_ms, f.stddev_ms, f.max_ms
    )
}

/// Rows of one interval.
pub(crate) fn latency_rows(run: &str, interval: &str, line: &Line, seconds: f64) -> Vec<String> {
    line.operations.iter().map(|(o, f)| csv(run, interval, o.name(), f, seconds)).collect()
}

/// Rows of a whole run: `avg` as the tables', `all` with the warm-up.
pub(crate) fn latency_total(result: &RunResult) -> Vec<String> {
    let mut rows = Vec::new();
    let stretches =
        [("avg", &result.measured, result.measured_seconds()), ("all", &result.whole, result.seconds)];
    for (name, groups, seconds) in stretches {
        for operation in Operation::ALL {
            let figures = Figures::from(&groups.operation(operation));
            if figures.count > 0 {
                rows.push(csv(&result.run.label, name, operation.name(), &figures, seconds));
            }
        }
    }
    rows
}
