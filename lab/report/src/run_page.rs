//! `report.html`: one execution of a parameter file as a page. One file, nothing fetched, light and
//! dark.

use crate::figures::{ArmInfo, Row, shown};
use crate::html::{escape, lines, parts};
use crate::machine;
use crate::number;
use crate::phase;
use crate::report::{Conditions, Load, Machine, Phase};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Instant, SystemTime};
use steadfast_lab_params::{Plan, Rate, Run, Work};
use steadfast_lab_workload::cpu::CpuSample;
use steadfast_lab_workload::{Figures, RunResult};

/// More runs than this are in the table and in no picture.
const DRAWN_MAX: usize = 24;
/// Longest text that is carried in the page for download; longer ones lie beside it.
const CARRIED_MAX: usize = 8 << 20;

/// Data of the page, gathered while runs go on.
pub(crate) struct RunPage {
    started: SystemTime,
    clock: Instant,
    machine: Machine,
    /// Directory or file, its file system, and bytes used there at the start.
    places: Vec<(String, String, Option<u64>)>,
    parameters: String,
    words: String,
    runs: Vec<Finished>,
    /// Processors when everything began.
    cpu: CpuSample,
    watch_seconds: f64,
    /// Response times of each interval of the run that goes on.
    heat: Vec<Vec<u64>>,
}

struct Finished {
    phase: Phase,
    label: String,
    loops: String,
    asked: String,
    operations: Vec<(&'static str, Figures)>,
    /// Of each host, if there are several: its name, what it did, and its processors in percent.
    hosts: Vec<(String, Figures, f64)>,
    seconds: f64,
    errors: u64,
    warmup: String,
    overhead_us: Option<f64>,
    failure: Option<String>,
    format: bool,
    /// Operations of each interval by response time, from [`HEAT_FROM_NS`] on.
    heat: Vec<Vec<u64>>,
}

/// Least response time of a heat map, and how many edges it has: 1 us to 10 s.
const HEAT_FROM_NS: f64 = 1_000.0;
const HEAT_EDGES: usize = 29;
/// Intervals of a heat map; longer runs are laid together.
const HEAT_COLUMNS_MAX: usize = 240;

/// Bytes used on the file system that holds `place`, or its nearest parent that is there.
fn used(place: &Path) -> Option<u64> {
    let there = place.ancestors().find(|path| path.exists())?;
    let stat = rustix::fs::statvfs(there).ok()?;
    let unit = if stat.f_frsize == 0 { stat.f_bsize } else { stat.f_frsize };
    Some(stat.f_blocks.saturating_sub(stat.f_bfree) * unit)
}

fn places(plan: &Plan) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let all = plan.runs.iter().flat_map(|run| match &run.work {
        Work::Raw(work) => work.sds.iter().map(|sd| sd.lun.clone()).collect::<Vec<_>>(),
        Work::Files(work) => work.fsds.iter().map(|fsd| fsd.anchor.clone()).collect(),
    });
    for place in all {
        if !out.contains(&place) && out.len() < 64 {
            out.push(place);
        }
    }
    out
}

/// `max`, `100/s`, `curve`.
fn asked(run: &Run) -> String {
    match &run.rate {
        Rate::Max => "max".to_owned(),
        Rate::Fixed(rate) => format!("{rate}/s"),
        Rate::Variable(_) => "variable".to_owned(),
        Rate::Curve(_) => "curve".to_owned(),
        Rate::AsTraced => "as traced".to_owned(),
    }
}

impl RunPage {
    /// Looks at the machine and at the places that will be worked on. `words`: the command line.
    pub(crate) fn new(plan: &Plan, words: &str) -> RunPage {
        let places: Vec<_> = places(plan)
            .into_iter()
            .map(|place| {
                let there = Path::new(&place).ancestors().find(|path| path.exists());
                let absolute = there.and_then(|path| path.canonicalize().ok()).unwrap_or_default();
                let bytes = used(Path::new(&place));
                (place, machine::file_system_type(&absolute), bytes)
            })
            .collect();
        RunPage {
            started: SystemTime::now(),
            clock: Instant::now(),
            machine: machine::describe(Path::new(".")),
            places,
            parameters: plan.copy.clone(),
            words: words.to_owned(),
            runs: Vec::new(),
            cpu: CpuSample::take(&[]),
            watch_seconds: 0.0,
            heat: Vec::new(),
        }
    }

    /// Takes an interval of the run that goes on.
    pub(crate) fn interval(&mut self, interval: &steadfast_lab_workload::Interval) {
        let edges: Vec<u64> =
            (0..HEAT_EDGES).map(|at| (HEAT_FROM_NS * 10f64.powf(at as f64 / 4.0)) as u64).collect();
        self.heat.push(interval.groups.requested().buckets(&edges));
    }

    /// Takes a finished run.
    pub(crate) fn add(&mut self, result: &RunResult) {
        let key = format!("r{}", self.runs.len());
        let mut phase = phase::phase(result, &key, 1, self.machine.cores, false);
        phase.operation = "work".to_owned();
        // A format, or a run that was over within its warm-up, has no averages: then the whole of
        // it is shown.
        let measured = result.measured.requested().count > 0;
        let (groups, seconds) = match measured {
            true => (&result.measured, result.measured_seconds()),
            false => (&result.whole, result.seconds),
        };
        let list = steadfast_lab_params::Operation::ALL.into_iter();
        let operations = list
            .map(|operation| (operation.name(), Figures::from(&groups.operation(operation))))
            .filter(|(_, figures)| figures.count > 0)
            .collect();
        if !measured {
            let figures = Figures::from(&groups.requested());
            let per = seconds.max(1e-9);
            phase.rate = figures.count as f64 / per;
            phase.mib_per_s = figures.bytes as f64 / per / number::MIB;
            phase.operations = figures.count;
            phase.cpu.total = result.whole_cpu.used;
            phase.cpu.system = result.whole_cpu.system;
            let response = &mut phase.response;
            (response.mean, response.p50, response.p90) = (figures.mean_ms, figures.p50_ms, figures.p90_ms);
            (response.p99, response.p999, response.max) = (figures.p99_ms, figures.p999_ms, figures.max_ms);
        }
        self.runs.push(Finished {
            phase,
            label: result.run.label.clone(),
            loops: result.run.loops.clone(),
            asked: asked(&result.run),
            operations,
            hosts: result
                .hosts
                .iter()
                .map(|share| (share.host.clone(), Figures::from(&share.groups.requested()), share.cpu.used))
                .collect(),
            seconds,
            errors: result.errors,
            warmup: match result.run.warmup {
                0 => "1 interval".to_owned(),
                seconds => format!("{seconds} s"),
            },
            overhead_us: result.overhead_us(),
            failure: result.failure.clone(),
            format: result.is_format(),
            heat: std::mem::take(&mut self.heat),
        });
        self.watch_seconds += result.whole_cpu.watched_seconds;
    }

    /// Summary, in a sentence or two.
    fn summary(&self, failure: Option<&str>) -> String {
        let mut text = match failure {
            Some(failure) => format!("It ended before its time: {failure} "),
            None => String::new(),
        };
        let loads: Vec<&Finished> = self.runs.iter().filter(|run| !run.format).collect();
        let work = if loads.is_empty() { self.runs.iter().collect() } else { loads };
        let fastest = work.iter().max_by(|a, b| a.phase.rate.total_cmp(&b.phase.rate));
        // The worst of any run: a percentile that stays below the tail would hide it.
        let slowest = work.iter().max_by(|a, b| a.phase.response.max.total_cmp(&b.phase.response.max));
        let count = |n: usize| if n == 1 { "One run".to_owned() } else { format!("{n} runs") };
        text += &format!("{} in {:.0} seconds. ", count(self.runs.len()), self.clock.elapsed().as_secs_f64());
        if let (Some(fast), Some(slow)) = (fastest, slowest) {
            let response = &slow.phase.response;
            let [p50, _, p99, _] = response.percentiles(slow.phase.operations);
            let quantiles: Vec<String> = [(p50, "half of its operations"), (p99, "99 of 100")]
                .into_iter()
                .filter_map(|(value, which)| Some(format!("{which} took less than {} ms", shown(value?))))
                .collect();
            let quantiles =
                if quantiles.is_empty() { String::new() } else { format!("; {}", quantiles.join(", ")) };
            text += &format!(
                "The most was {} operations a second and {} MiB/s in {}. The longest operation took {} ms, in {}{quantiles}.",
                shown(fast.phase.rate),
                shown(fast.phase.mib_per_s),
                fast.name(),
                shown(response.max),
                slow.name()
            );
        }
        let errors: u64 = self.runs.iter().map(|run| run.errors).sum();
        if errors > 0 {
            text += &format!(" {errors} operations failed: errorlog.html has them.");
        }
        text
    }

    /// The whole page. `dir` has the files that can be downloaded from it.
    pub(crate) fn render(&self, dir: &Path, failure: Option<&str>) -> String {
        let mut machine = self.machine.clone();
        let usage = CpuSample::take(&[]).since(&self.cpu);
        let share = |seconds: f64| {
            let all = self.clock.elapsed().as_secs_f64().max(1e-3) * f64::from(machine.cores.max(1));
            seconds / all * 100.0
        };
        machine.own_during_percent = share(usage.own_seconds + self.watch_seconds).clamp(0.0, 100.0);
        machine.busy_during_percent = Some((100.0 - usage.idle - usage.wait).clamp(0.0, 100.0));
        let busy = machine.other_work().map(|work| {
            format!("The machine {work}. Rates and times include it. Repeat it on an idle machine.")
        });
        let conditions = Conditions {
            started: machine::stamp(self.started),
            seconds: self.clock.elapsed().as_secs_f64(),
            target: self.target(),
            repeat: self.words.clone(),
            rounds: 1,
            elapsed_override_s: None,
            machine,
        };
        let cores =
            format!("{} cores, {} memory", self.machine.cores, number::bytes(self.machine.memory_bytes));
        let title = match self.runs.iter().find(|run| !run.format).or(self.runs.first()) {
            Some(run) if self.runs.iter().filter(|run| !run.format).count() < 2 => {
                format!("Run {}", run.label)
            }
            Some(run) => format!("Runs from {} on", run.label),
            None => "No run".to_owned(),
        };
        let mut page = parts::opening(
            &title,
            "Demands of the parameter file, and results.",
            &self.summary(failure),
            failure.map(|_| "The figures are those of what was done until then.").or(busy.as_deref()),
            &[&conditions.target, &cores, &self.machine.kernel, &conditions.started],
        );
        page += &parts::section(
            "The runs",
            "Response times in milliseconds, of what was asked for, without the warm-up. CPU is the whole machine, percent.",
            &self.table(),
        );
        page += &self.pictures();
        page += &parts::section(
            "Each operation",
            "Opens and closes that come with reads and writes are here too, though not in the rates above.",
            &self.operations(),
        );
        if self.runs.iter().any(|run| !run.hosts.is_empty()) {
            page += &parts::section(
                "Host by host",
                "Operations of each host, without the warm-up. CPU is that host, percent.",
                &self.hosts(),
            );
        }
        page += &parts::section(
            "Space",
            "Used on the file system that holds each place, before and after.",
            &self.space(),
        );
        let load =
            Load { file: "as it was read".to_owned(), text: self.parameters.clone(), mapping: Vec::new() };
        page += &parts::section(
            "Commands and conditions",
            "",
            &(parts::facts(&conditions) + &parts::parameter_file(&load)),
        );
        page += &parts::section("The numbers", "", &downloads(dir));
        page += &parts::footer(&conditions, "steadfast-lab-report", crate::json::SCHEMA_VERSION);
        parts::linked(page + "</main>\n</body>\n</html>\n")
    }

    fn target(&self) -> String {
        match self.places.as_slice() {
            [] => "nothing".to_owned(),
            [(place, kind, _)] => format!("{place} on {kind}"),
            [(place, kind, _), rest @ ..] => format!("{place} on {kind}, and {} more", rest.len()),
        }
    }

    fn table(&self) -> String {
        let mut table = String::from("<thead><tr><th scope=\"col\">Run</th>");
        for (head, unit) in [
            ("Asked", ""),
            ("Rate", "per second"),
            ("MiB/s", ""),
            ("Mean", "ms"),
            ("p50", "ms"),
            ("p90", "ms"),
            ("p99", "ms"),
            ("p99.9", "ms"),
            ("Longest", "ms"),
            ("CPU", "%"),
            ("System", "%"),
            ("Engine", "µs/op"),
            ("Warm-up", ""),
            ("Measured", "s"),
        ] {
            table += &format!("<th scope=\"col\">{head}<small>{unit}</small></th>");
        }
        table += "</tr></thead>\n<tbody>\n";
        for run in &self.runs {
            let phase = &run.phase;
            let response = &phase.response;
            table +=
                &format!("<tr><th scope=\"row\">{}</th><td>{}</td>", escape(&run.name()), escape(&run.asked));
            let [p50, p90, p99, p999] = response.percentiles(phase.operations);
            let times = [Some(response.mean), p50, p90, p99, p999, Some(response.max)];
            let figures = [Some(phase.rate), Some(phase.mib_per_s)].into_iter().chain(times);
            figures.chain([Some(phase.cpu.total), Some(phase.cpu.system)]).for_each(|value| {
                let value = value.filter(|_| phase.operations > 0);
                table += &format!("<td>{}</td>", value.map_or("–".to_owned(), shown));
            });
            let overhead = run.overhead_us.map_or("–".to_owned(), shown);
            table +=
                &format!("<td>{overhead}</td><td>{}</td><td>{}</td></tr>\n", run.warmup, shown(run.seconds));
            if let Some(failure) = &run.failure {
                table += &format!(
                    "<tr><th scope=\"row\"></th><td class=\"missed\" colspan=\"14\">{}</td></tr>\n",
                    escape(failure)
                );
            }
        }
        parts::scroll(&(table + "</tbody>\n"))
    }

    fn pictures(&self) -> String {
        let drawn: Vec<&Finished> =
            self.runs.iter().filter(|run| !run.format && run.phase.operations > 0).take(DRAWN_MAX).collect();
        if drawn.is_empty() {
            return String::new();
        }
        let names: Vec<String> = drawn.iter().map(|run| run.name()).collect();
        let phases: Vec<Phase> = drawn.iter().map(|run| run.phase.clone()).collect();
        let arms: Vec<ArmInfo> = phases
            .iter()
            .zip(&names)
            .map(|(phase, name)| ArmInfo { key: phase.arm.clone(), label: name.clone(), missing: None })
            .collect();
        let row = |key: &str, label: &str, unit: &str, more: bool, value: fn(&Phase) -> Option<f64>| {
            let mut row = Row::new(key, label, unit, more, "");
            row.values = phases
                .iter()
                .filter_map(|phase| Some((phase.arm.clone(), vec![value(phase)?])))
                .collect::<BTreeMap<_, _>>();
            row
        };
        let rows = [
            row("rate", "Rate", "operations a second", true, |phase| Some(phase.rate)),
            row("mib", "Throughput", "MiB a second", true, |phase| Some(phase.mib_per_s)),
            row("p99", "99 of 100 were quicker", "milliseconds", false, |phase| {
                phase.response.percentiles(phase.operations)[2]
            }),
            row("max", "The longest", "milliseconds", false, |phase| Some(phase.response.max)),
            row("cpu", "Processors", "percent of the machine", false, |phase| Some(phase.cpu.total)),
        ];
        let left = self.runs.iter().filter(|run| !run.format).count() - drawn.len();
        let lead = match left {
            0 => "The same numbers as in the table, one line a run.".to_owned(),
            left => format!("The first {DRAWN_MAX} runs; {left} more are in the table."),
        };
        let mut out = parts::section("Run beside run", &lead, &parts::bars(&arms, &rows));
        let runs = lines::Runs {
            arms: phases
                .iter()
                .zip(&names)
                .map(|(phase, name)| (phase.arm.as_str(), name.as_str()))
                .collect(),
            phases: &phases,
        };
        let cards = |cards: String| format!("<div class=\"cards wide\">\n{cards}</div>\n");
        out += &parts::section(
            "Over time: rate",
            "Operations a second in each interval; every run has a scale of its own.",
            &cards(lines::each_rate(&runs, "work")),
        );
        out += &parts::section(
            "Over time: response time",
            "Median, p99 and longest of each interval, milliseconds; each line across is ten times the one below. An \
             interval of fewer than 100 operations has no p99.",
            &cards(lines::each_quantiles(&runs, "work")),
        );
        let maps: String = drawn.iter().map(|run| lines::heat_card(&run.name(), &run.heat_map())).collect();
        if !maps.is_empty() {
            out += &parts::section(
                "Over time: all operations",
                "A column an interval, upwards the response time; the darker a field, the more operations took so long.",
                &cards(maps),
            );
        }
        // Nine colours tell nine lines apart.
        let first = lines::Runs { arms: runs.arms.iter().copied().take(9).collect(), phases: &phases };
        out += &parts::section(
            "Response times beyond the mean",
            "Of 1,000 operations, 500 were quicker than p50, 990 quicker than p99 and 999 quicker than p99.9.",
            &cards(lines::percentiles(&first)),
        );
        out
    }

    fn operations(&self) -> String {
        let mut table = String::from("<thead><tr><th scope=\"col\">Run</th>");
        for head in
            ["Operation", "Count", "Per second", "MiB/s", "Mean ms", "p50", "p90", "p99", "p99.9", "Longest"]
        {
            table += &format!("<th scope=\"col\">{head}</th>");
        }
        table += "</tr></thead>\n<tbody>\n";
        for run in &self.runs {
            for (name, figures) in &run.operations {
                table += &format!("{}</tr>\n", run.line(name, figures));
            }
        }
        parts::scroll(&(table + "</tbody>\n"))
    }

    fn hosts(&self) -> String {
        let mut table = String::from("<thead><tr><th scope=\"col\">Run</th>");
        for head in [
            "Host",
            "Count",
            "Per second",
            "MiB/s",
            "Mean ms",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "Longest",
            "CPU %",
        ] {
            table += &format!("<th scope=\"col\">{head}</th>");
        }
        table += "</tr></thead>\n<tbody>\n";
        // A format may be over before anything counts.
        let worked = |run: &&Finished| run.hosts.iter().any(|(_, figures, _)| figures.count > 0);
        for run in self.runs.iter().filter(worked) {
            for (name, figures, cpu) in &run.hosts {
                table += &format!("{}<td>{}</td></tr>\n", run.line(&escape(name), figures), shown(*cpu));
            }
        }
        parts::scroll(&(table + "</tbody>\n"))
    }

    fn space(&self) -> String {
        let mut table = String::from(
            "<thead><tr><th scope=\"col\">Place</th><th scope=\"col\">File system</th><th scope=\"col\">Before</th>\
             <th scope=\"col\">After</th></tr></thead>\n<tbody>\n",
        );
        for (place, kind, before) in &self.places {
            let bytes = |bytes: Option<u64>| bytes.map_or("–".to_owned(), number::bytes);
            table += &format!(
                "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                escape(place),
                escape(kind),
                bytes(*before),
                bytes(used(Path::new(place)))
            );
        }
        parts::scroll(&(table + "</tbody>\n"))
    }
}

impl Finished {
    /// A row of figures, open at its end: the run, `name`, and what it did.
    fn line(&self, name: &str, figures: &Figures) -> String {
        let per = self.seconds.max(1e-9);
        let mut row = format!(
            "<tr><th scope=\"row\">{}</th><td>{name}</td><td>{}</td>",
            escape(&self.name()),
            steadfast_lab_params::thousands(figures.count)
        );
        let rates = [figures.count as f64 / per, figures.bytes as f64 / per / number::MIB];
        let f = figures;
        let [p50, p90, p99, p999] = f.percentiles();
        let times = [Some(f.mean_ms), p50, p90, p99, p999, Some(f.max_ms)];
        rates.into_iter().map(Some).chain(times).for_each(|value| {
            row += &format!("<td>{}</td>", value.map_or("–".to_owned(), shown));
        });
        row
    }

    /// Its operations by interval and response time, as a picture takes them.
    fn heat_map(&self) -> lines::HeatMap {
        let together = self.heat.len().div_ceil(HEAT_COLUMNS_MAX).max(1);
        let sum = |chunk: &[Vec<u64>]| {
            let mut all = vec![0u64; HEAT_EDGES + 1];
            for counts in chunk {
                all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
            all
        };
        let interval_s = self.phase.intervals.first().map_or(1.0, |first| first.at_s);
        lines::HeatMap {
            columns: self.heat.chunks(together).map(sum).collect(),
            seconds: interval_s * together as f64,
            from_ms: HEAT_FROM_NS / 1e6,
            per_decade: 4,
        }
    }

    /// `rd1`, `rd1 threads=2`.
    fn name(&self) -> String {
        if self.loops == "None" || self.format {
            self.label.clone()
        } else {
            format!("{} {}", self.label, self.loops)
        }
    }
}

/// The numbers within the page itself, so that a copy of the page has them.
fn downloads(dir: &Path) -> String {
    let mut items = String::new();
    for (name, kind, about) in [
        ("report.json", "application/json", "everything on this page and more, for programs"),
        ("latency.csv", "text/csv", "percentiles of each operation in each interval"),
        ("flatfile.html", "text/plain", "one row an interval, in the columns of vdbench"),
    ] {
        let Ok(bytes) = std::fs::read(dir.join(name)) else { continue };
        let place = match bytes.len() {
            length if length > CARRIED_MAX => name.to_owned(),
            _ => format!("data:{kind};base64,{}", base64(&bytes)),
        };
        items += &format!(
            "<li><a download=\"{name}\" href=\"{place}\">{name}</a>: {about}, {}.</li>\n",
            number::bytes(bytes.len() as u64)
        );
    }
    format!("<ul class=\"notes\">\n{items}</ul>\n")
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let letter = char::from(LETTERS[(word >> (18 - 6 * at)) as usize & 63]);
            out.push(if at <= chunk.len() { letter } else { '=' });
        }
    }
    out
}

/// Writes the page into the output directory, whose other files it offers.
pub(crate) fn write(page: &RunPage, dir: &Path, failure: Option<&str>) -> std::io::Result<()> {
    std::fs::write(dir.join("report.html"), page.render(dir, failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (plain, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
