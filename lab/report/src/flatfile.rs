//! flatfile.html: one blank-separated row per interval and average, for spreadsheets and scripts.

use crate::table::{Stretch, deviation, figures, read_write};
use steadfast_lab_params::{Operation, Rate, Run, Seek, Work, XferSize};
use steadfast_lab_workload::histogram::Histogram;
use steadfast_lab_workload::{Figures, Line};

const MIB: f64 = 1_048_576.0;
/// Rate that vdbench prints for `iorate=max`.
const RATE_MAX: f64 = 9_999_988.0;

const RAW: &[(&str, &str)] = &[
    ("Run", "Name of run from RD="),
    ("Interval", "Reporting interval number"),
    ("reqrate", "Requested i/o rate"),
    ("rate", "Observed i/o rate"),
    ("MB/sec", "Megabytes per second (MB=1024*1024)"),
    ("bytes/io", "Average data transfersize"),
    ("read%", "Observed read percentage"),
    ("resp", "Observed response time"),
    ("read_resp", "Observed read response time"),
    ("write_resp", "Observed write response time"),
    ("resp_max", "Observed maximum response time"),
    ("read_max", "Observed maximum read response time"),
    ("write_max", "Observed maximum write response time"),
    ("resp_std", "Standard deviation response time"),
    ("read_std", "Standard deviation reads"),
    ("write_std", "Standard deviation writes"),
    ("xfersize", "data transfer size requested"),
    ("threads", "number of threads requested"),
    ("rdpct", "read% requested"),
    ("rhpct", "readhit% requested"),
    ("whpct", "writehit% requested"),
    ("seekpct", "seek% requested"),
    ("lunsize", "Total amount of Gigabytes of all luns (GB= 1024*1024*1024)"),
    ("version", "Version identifier"),
    ("compratio", "Requested compression ratio"),
    ("dedupratio", "Requested dedup ratio"),
    ("queue_depth", "Calculated average i/o queue depth"),
];

const FILE: &[(&str, &str)] = &[
    ("Run", "Name of run from RD="),
    ("Interval", "Reporting interval number"),
    ("Xfersize", "data transfer size requested"),
    ("Threads", "number of threads requested"),
    ("Reqrate", "Requested FWD rate"),
    ("Rate", "Requested operations per second"),
    ("Rate_std", "Requested operations per second standard deviation"),
    ("Rate_max", "Requested operations per second max"),
    ("Resp", "Requested response time"),
    ("Resp_std", "Requested response time standard deviation"),
    ("Resp_max", "Requested response time max"),
    ("MB/sec", "Megabytes per second (MB=1024*1024)"),
    ("MB_read", "Megabytes read per second"),
    ("MB_write", "Megabytes written per second"),
];

const CPU: &[(&str, &str)] = &[
    ("cpu_used", "cpu% user+sys"),
    ("cpu_user", "cpu% user"),
    ("cpu_kernel", "cpu% sys "),
    ("cpu_wait", "cpu% wait"),
    ("cpu_idle", "cpu% idle"),
];

/// Operations with six columns each, in their order. Copy and move have none in vdbench.
const OPERATIONS: [Operation; 11] = [
    Operation::Read,
    Operation::Write,
    Operation::Mkdir,
    Operation::Rmdir,
    Operation::Create,
    Operation::Open,
    Operation::Close,
    Operation::Delete,
    Operation::Getattr,
    Operation::Setattr,
    Operation::Access,
];

fn title(operation: Operation) -> String {
    let name = operation.name();
    name[..1].to_ascii_uppercase() + &name[1..]
}

/// Comment lines and the line of column names.
pub(crate) fn head(files: bool) -> Vec<String> {
    let mut lines = vec![
        "*".to_string(),
        "* One row per interval and per average; columns are separated by blanks. The first line that is"
            .to_string(),
        "* no comment holds a one-word name for each column; times are milliseconds.".to_string(),
        "* ".to_string(),
    ];
    let mut columns: Vec<(String, String)> =
        (if files { FILE } else { RAW }).iter().map(|(n, t)| (n.to_string(), t.to_string())).collect();
    if files {
        for operation in OPERATIONS {
            let name = title(operation);
            for (suffix, text) in [
                ("rate", "s per second"),
                ("rate_std", "s per second stddev"),
                ("rate_max", "s per second max"),
                ("resp", " response time"),
                ("resp_std", " response time stddev"),
                ("resp_max", " response time max"),
            ] {
                columns.push((format!("{name}_{suffix}"), format!("{name}{text}")));
            }
        }
        columns.push(("Compratio".into(), "Requested compression ratio".into()));
        columns.push(("Dedupratio".into(), "Requested dedup ratio".into()));
    }
    columns.extend(CPU.iter().map(|(n, t)| (n.to_string(), t.to_string())));
    lines.extend(columns.iter().map(|(name, text)| format!("* {name:<16}: {text}")));
    lines.push("* 'n/a'           : Data not available, or conflicting data. eg. multiple different xfersize parameters used.".into());
    lines.push("* ".into());
    let mut names = "         tod               timestamp ".to_string();
    columns.iter().for_each(|(name, _)| names += &format!("{name} "));
    lines.push(names);
    lines
}

/// Four decimals at most, none where there are none.
fn short(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" { "0".into() } else { text.into() }
}

/// One value for all, or `n/a`.
fn common<T: PartialEq>(mut values: impl Iterator<Item = T>, show: impl Fn(&T) -> String) -> String {
    let Some(first) = values.next() else { return "n/a".into() };
    if values.all(|value| value == first) { show(&first) } else { "n/a".into() }
}

fn xfersize(size: &XferSize) -> String {
    match size {
        XferSize::Fixed(size) => size.to_string(),
        _ => "n/a".into(),
    }
}

/// One row, without the two times in front. `average`: the intervals it is made of.
pub(crate) fn row(
    files: bool,
    run: &Run,
    interval: &str,
    stretch: &Stretch<'_>,
    average: Option<&[Line]>,
    requested: Figures,
) -> String {
    let rate = match run.rate {
        steadfast_lab_params::Rate::Fixed(rate) => rate,
        Rate::Variable(_) => -1.0,
        _ => RATE_MAX,
    };
    let per_second = |count: u64| {
        if stretch.seconds > 0.0 {
            count as f64 / stretch.seconds
        } else if files {
            f64::NAN
        } else {
            0.0
        }
    };
    let mut out: Vec<String> = vec![run.label.clone(), interval.to_string()];
    match &run.work {
        Work::Files(work) => {
            let (read, write, all) = read_write(stretch.groups);
            let sizes = common(work.fwds.iter().map(|(fwd, _)| &fwd.xfersize), |size| xfersize(size));
            out.push(if work.format.is_some() { "131072".into() } else { sizes });
            out.push(common(work.fwds.iter().map(|(fwd, _)| fwd.threads), u32::to_string));
            out.push(short(rate));
            let rates: Vec<f64> = lines_rates(average, run, |line| line.requested.count);
            six(&mut out, per_second(requested.count), &rates, average.is_some(), &requested);
            for bytes in [all.bytes, read.bytes, write.bytes] {
                out.push(short(per_second(bytes) / MIB));
            }
            for operation in OPERATIONS {
                let times: Histogram = stretch.groups.operation(operation);
                let rates = lines_rates(average, run, |line| figures(line, operation).count);
                six(&mut out, per_second(times.count), &rates, average.is_some(), &Figures::from(&times));
            }
            out.push(short(run.compratio));
            out.push(if run.dedupratio > 1.0 { short(run.dedupratio) } else { "n/a".into() });
        }
        Work::Raw(work) => {
            let (read, write, all) = read_write(stretch.groups);
            let percent = if all.count > 0 { read.count as f64 * 100.0 / all.count as f64 } else { 0.0 };
            for value in [
                rate,
                per_second(all.count),
                per_second(all.bytes) / MIB,
                all.bytes.checked_div(all.count).unwrap_or(0) as f64,
                percent,
                all.mean_ms(),
                read.mean_ms(),
                write.mean_ms(),
                all.max_ms(),
                read.max_ms(),
                write.max_ms(),
                all.stddev_ms(),
                read.stddev_ms(),
                write.stddev_ms(),
            ] {
                out.push(short(value));
            }
            out.push(common(work.wds.iter().map(|(wd, _)| &wd.xfersize), |size| xfersize(size)));
            out.push(common(work.sds.iter().map(|sd| sd.threads), u32::to_string));
            for value in [0, 1, 2] {
                let of = |wd: &steadfast_lab_params::Wd| [wd.rdpct, wd.rhpct, wd.whpct][value];
                // The rate of a trace was not requested.
                let drawn = work.wds.iter().filter(|_| run.replay.is_none());
                out.push(common(drawn.map(|(wd, _)| of(wd)), |v| short(*v)));
            }
            out.push(common(work.wds.iter().map(|(wd, _)| wd.seek), |seek| match seek {
                Seek::Percent(percent) => short(*percent),
                _ => "n/a".into(),
            }));
            let bytes: u64 = work.sds.iter().filter_map(|sd| sd.size).sum();
            out.push(short(bytes as f64 / (1u64 << 30) as f64));
            out.push(env!("CARGO_PKG_VERSION").into());
            out.push(short(run.compratio));
            out.push(if run.dedupratio > 1.0 { short(run.dedupratio) } else { "n/a".into() });
            let depth = if stretch.seconds > 0.0 { all.sum_ns as f64 / 1e9 / stretch.seconds } else { 0.0 };
            out.push(short(depth));
        }
    }
    let cpu = |value: f64| if stretch.seconds > 0.0 { short(value) } else { "NaN".into() };
    for value in [stretch.cpu.used, stretch.cpu.user, stretch.cpu.system, stretch.cpu.wait, stretch.cpu.idle]
    {
        out.push(cpu(value));
    }
    out.join(" ") + " "
}

fn lines_rates(average: Option<&[Line]>, run: &Run, count: impl Fn(&Line) -> u64) -> Vec<f64> {
    average.unwrap_or_default().iter().map(|line| count(line) as f64 / run.interval as f64).collect()
}

fn six(out: &mut Vec<String>, rate: f64, rates: &[f64], average: bool, figures: &Figures) {
    let max = if average { rates.iter().copied().fold(0.0, f64::max) } else { 0.0 };
    let spread = if average { deviation(rates) } else { 0.0 };
    for value in [rate, spread, max, figures.mean_ms, figures.stddev_ms, figures.max_ms] {
        out.push(short(value));
    }
}
