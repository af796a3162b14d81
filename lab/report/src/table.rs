//! Lines of the two console tables, column by column as 5.04.07 prints them.
//!
//! A number that is too wide for its column loses decimals from the right; a rate over zero
//! intervals is `NaN`, printed without padding, as programs that read these tables expect.

use steadfast_lab_params::{Operation, Plan, Work};
use steadfast_lab_workload::cpu::CpuUse;
use steadfast_lab_workload::histogram::Histogram;
use steadfast_lab_workload::{Figures, Groups, Line};

const MIB: f64 = 1_048_576.0;

/// A number in a column of `width`: too wide, it is cut from the right; it never loses digits
/// before the point.
pub(crate) fn number(value: f64, width: usize, decimals: usize) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    let mut text = format!("{value:.decimals$}");
    if let Some(point) = text.find('.').filter(|_| text.len() > width) {
        text.truncate(width.max(point));
        if text.ends_with('.') {
            text.pop();
        }
    }
    format!("{text:>width$}")
}

/// Data of a line: groups over nominal seconds (0 if nothing was measured), and processors.
pub(crate) struct Stretch<'a> {
    pub groups: &'a Groups,
    pub seconds: f64,
    pub cpu: &'a CpuUse,
}

impl Stretch<'_> {
    fn rate(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { f64::NAN }
    }
}

/// Two lines above raw runs.
pub(crate) fn raw_header(date: &str) -> [String; 2] {
    [
        format!(
            "{date}    interval        i/o   MB/sec   bytes   read     resp     read    write     read    write     resp  queue  cpu%  cpu%"
        ),
        "                               rate  1024**2     i/o    pct     time     resp     resp      max      max   stddev  depth sys+u   sys"
            .to_string(),
    ]
}

/// Reads, writes and both.
pub(crate) fn read_write(groups: &Groups) -> (Histogram, Histogram, Histogram) {
    let (read, write) = (groups.operation(Operation::Read), groups.operation(Operation::Write));
    let mut all = read.clone();
    all.merge(&write);
    (read, write, all)
}

/// Label and columns of a raw run, to be put behind a time.
pub(crate) fn raw_line(label: &str, stretch: &Stretch<'_>) -> String {
    let (read, write, all) = read_write(stretch.groups);
    let zero = |value: f64| if value.is_nan() { 0.0 } else { value };
    let bytes = all.bytes.checked_div(all.count).unwrap_or(0);
    let percent = if all.count > 0 { read.count as f64 * 100.0 / all.count as f64 } else { 0.0 };
    let depth = if stretch.seconds > 0.0 { all.sum_ns as f64 / 1e9 / stretch.seconds } else { 0.0 };
    let cpu = |value: f64| if stretch.seconds > 0.0 { format!("{value:>5.1}") } else { "  NaN".into() };
    format!(
        "{label:>12} {:>10.1} {:>8.2} {bytes:>7} {percent:>6.2} {:>8.3} {:>8.3} {:>8.3} {:>8.2} {:>8.2} {:>8.3} {depth:>6.1} {} {}",
        zero(stretch.rate(all.count)),
        zero(stretch.rate(all.bytes)) / MIB,
        all.mean_ms(),
        read.mean_ms(),
        write.mean_ms(),
        read.max_ms(),
        write.max_ms(),
        all.stddev_ms(),
        cpu(stretch.cpu.used),
        cpu(stretch.cpu.system)
    )
}

/// Which columns of operations a file table has: what the parameter file uses, opens and closes
/// always, and all that a format does where there is one.
pub(crate) fn columns(plan: &Plan) -> Vec<Operation> {
    let mut used = vec![Operation::Open, Operation::Close];
    for run in &plan.runs {
        let Work::Files(work) = &run.work else { continue };
        if work.format.is_some() {
            used.extend([Operation::Mkdir, Operation::Rmdir, Operation::Create, Operation::Delete]);
        }
        used.extend(work.fwds.iter().flat_map(|(fwd, _)| fwd.operations.clone()));
    }
    let order = Operation::ALL.into_iter();
    order.filter(|o| !matches!(o, Operation::Read | Operation::Write) && used.contains(o)).collect()
}

/// `...mkdir....`
fn centred(title: &str) -> String {
    let dots = 12usize.saturating_sub(title.len());
    format!("{}{title}{}", ".".repeat(dots / 2), ".".repeat(dots - dots / 2))
}

/// Two lines above file runs.
pub(crate) fn file_header(date: &str, columns: &[Operation]) -> [String; 2] {
    let mut lines =
        [format!("{date} ..Interval.. .ReqstdOps... ...cpu%..."), format!("{:28}rate   resp total  sys", "")];
    let (head, sub) = file_header_tail(columns);
    lines[0] += &head;
    lines[1] += &sub;
    lines
}

/// The part from "read pct" on, which skew.html uses too.
fn file_header_tail(columns: &[Operation]) -> (String, String) {
    let mut head = "  read ....read..... ....write.... ..mb/sec... mb/sec .xfer..".to_string();
    let mut sub = "   pct   rate   resp   rate   resp  read write  total    size".to_string();
    for column in columns {
        head += &format!(" {}", centred(column.name()));
        sub += "  rate   resp";
    }
    (head, sub)
}

/// Label and columns of a file run, to be put behind a time.
pub(crate) fn file_line(label: &str, stretch: &Stretch<'_>, columns: &[Operation]) -> String {
    let cpu = |value: f64| if stretch.seconds > 0.0 { value } else { f64::NAN };
    let cpu = format!(" {} {}", number(cpu(stretch.cpu.used), 5, 1), number(cpu(stretch.cpu.system), 4, 2));
    format!(" {label:>12}{}", file_columns(stretch, columns, &cpu))
}

/// All columns behind the label; `cpu` is put behind the requested operations.
fn file_columns(stretch: &Stretch<'_>, columns: &[Operation], cpu: &str) -> String {
    let (read, write, all) = read_write(stretch.groups);
    let requested = stretch.groups.requested();
    let percent = if all.count > 0 { read.count as f64 * 100.0 / all.count as f64 } else { 0.0 };
    let size = all.bytes.checked_div(all.count).unwrap_or(0);
    let pair = |times: &Histogram, width: usize| {
        format!(" {} {}", number(stretch.rate(times.count), width, 1), number(times.mean_ms(), 6, 3))
    };
    let mut out = pair(&requested, 6) + cpu + &format!(" {}", number(percent, 5, 1));
    out += &pair(&read, 6);
    out += &pair(&write, 6);
    for (bytes, width) in [(read.bytes, 5), (write.bytes, 5), (all.bytes, 6)] {
        out += &format!(" {}", number(stretch.rate(bytes) / MIB, width, 2));
    }
    out += &format!(" {size:>7}");
    for column in columns {
        out += &pair(&stretch.groups.operation(*column), 5);
    }
    out
}

/// The lines `std_` and `max_` below an average: of rates per interval, and of response times.
pub(crate) fn spread_line(
    label: &str,
    lines: &[Line],
    groups: &Groups,
    seconds: f64,
    columns: &[Operation],
    max: bool,
) -> String {
    let requested = groups.requested();
    let kinds = groups.0.iter().filter(|g| g.requested && g.times.count > 0).map(|g| g.operation);
    let mut kinds: Vec<Operation> = kinds.collect();
    kinds.sort_unstable();
    kinds.dedup();
    let pair = |times: &Histogram, rates: Vec<f64>, width: usize, shown: bool| {
        if !shown || times.count == 0 || rates.is_empty() {
            return " ".repeat(width + 8);
        }
        let (rate, time) = if max {
            (rates.iter().copied().fold(0.0, f64::max), times.max_ms())
        } else {
            (deviation(&rates), times.stddev_ms())
        };
        format!(" {} {}", number(rate, width, 1), number(time, 6, 3))
    };
    let rates = |of: &dyn Fn(&Line) -> u64| -> Vec<f64> {
        lines.iter().map(|line| of(line) as f64 / seconds.max(1e-9)).collect()
    };
    let of = |operation: Operation| {
        rates(&|line: &Line| {
            line.operations.iter().find(|(o, _)| *o == operation).map_or(0, |(_, f)| f.count)
        })
    };
    let mut out = format!(" {label:>12}");
    out += &pair(&requested, rates(&|line| line.requested.count), 6, kinds.len() == 1);
    out += &" ".repeat(11 + 6);
    out += &pair(&groups.operation(Operation::Read), of(Operation::Read), 6, true);
    out += &pair(&groups.operation(Operation::Write), of(Operation::Write), 6, true);
    out += &" ".repeat(6 + 6 + 7 + 8);
    for column in columns {
        out += &pair(&groups.operation(*column), of(*column), 5, true);
    }
    out
}

/// Sample standard deviation (n-1); 0 for fewer than two.
pub(crate) fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64).sqrt()
}

/// Two lines above a part of skew.html about file runs.
pub(crate) fn file_skew_header(what: &str, columns: &[Operation]) -> [String; 2] {
    let (head, sub) = file_header_tail(columns);
    [format!("              .ReqstdOps...{head}"), format!("{what:<16}rate   resp{sub}")]
}

/// A line of skew.html about file runs.
pub(crate) fn file_skew_line(name: &str, stretch: &Stretch<'_>, columns: &[Operation]) -> String {
    format!("{name:<13}{}", file_columns(stretch, columns, ""))
}

/// Two lines above a part of skew.html about raw runs.
pub(crate) fn raw_skew_header(what: &str) -> [String; 2] {
    [
        "                     i/o   MB/sec   bytes   read     resp     read    write     resp     resp queue ".to_string(),
        format!("{what:<20}rate  1024**2     i/o    pct     time     resp     resp      max   stddev depth "),
    ]
}

/// A line of skew.html about raw runs.
pub(crate) fn raw_skew_line(name: &str, stretch: &Stretch<'_>) -> String {
    let (read, write, all) = read_write(stretch.groups);
    let zero = |value: f64| if value.is_nan() { 0.0 } else { value };
    let percent = if all.count > 0 { read.count as f64 * 100.0 / all.count as f64 } else { 0.0 };
    let depth = if stretch.seconds > 0.0 { all.sum_ns as f64 / 1e9 / stretch.seconds } else { 0.0 };
    format!(
        "{name:<14}{:>10.2} {:>8.2} {:>7} {percent:>6.2} {:>8.3} {:>8.3} {:>8.3} {:>8.3} {:>8.3} {depth:>5.1} ",
        zero(stretch.rate(all.count)),
        zero(stretch.rate(all.bytes)) / MIB,
        all.bytes.checked_div(all.count).unwrap_or(0),
        all.mean_ms(),
        read.mean_ms(),
        write.mean_ms(),
        all.max_ms(),
        all.stddev_ms()
    )
}

/// Figures of one operation of a kept line.
pub(crate) fn figures(line: &Line, operation: Operation) -> Figures {
    line.operations
        .iter()
        .find(|(o, _)| *o == operation)
        .map_or_else(Figures::default, |(_, figures)| *figures)
}
