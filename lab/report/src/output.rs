//! Listens to runs and writes everything down: console, output directory, `report.json`,
//! `latency.csv`.

use crate::clock::Moment;
use crate::flatfile;
use crate::histogram_page;
use crate::json;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::page::{Page, escape, hash};
use crate::run_page::{self, RunPage};
use crate::table::{self, Stretch};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use steadfast_lab_params::{CommandOutput, Operation, Plan, Run, Work, short_bytes, thousands};
use steadfast_lab_workload::cpu::CpuUse;
use steadfast_lab_workload::{Event, Groups, Interval, RunResult, Share};

/// Headers are repeated after so many intervals.
const HEADER_EVERY: u32 = 30;

/// Which runs a page of its own follows.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Subject {
    Storage(String),
    Workload(String),
    Host(String),
}

impl Subject {
    fn storage(&self) -> Option<&String> {
        if let Subject::Storage(name) = self { Some(name) } else { None }
    }

    fn workload(&self) -> Option<&String> {
        if let Subject::Workload(name) = self { Some(name) } else { None }
    }

    fn host(&self) -> Option<&String> {
        if let Subject::Host(name) = self { Some(name) } else { None }
    }
}

struct SubjectPages {
    subject: Subject,
    /// Name of its pages, without the ending.
    base: String,
    page: Page,
    histogram: Page,
}

impl SubjectPages {
    /// Its part of a stretch of time, and the processors that worked on it. `None` for a host that
    /// took no part.
    fn part<'a>(&self, all: &Groups, cpu: &'a CpuUse, hosts: &'a [Share]) -> Option<(Groups, &'a CpuUse)> {
        match &self.subject {
            Subject::Storage(name) => Some((all.filtered(|group| group.storage == *name), cpu)),
            Subject::Workload(name) => Some((all.filtered(|group| group.workload == *name), cpu)),
            Subject::Host(name) => {
                let share = hosts.iter().find(|share| share.host == *name)?;
                Some((share.groups.clone(), &share.cpu))
            }
        }
    }

    fn takes_part(&self, run: &Run) -> bool {
        let name_of = |name: &String, storages: bool| match (&run.work, storages) {
            (Work::Raw(work), true) => work.sds.iter().any(|sd| sd.name == *name),
            (Work::Raw(work), false) => work.wds.iter().any(|(wd, _)| wd.name == *name),
            (Work::Files(work), true) => work.fsds.iter().any(|fsd| fsd.name == *name),
            (Work::Files(work), false) => {
                work.fwds.iter().any(|(fwd, _)| fwd.name == *name)
                    || (work.format.is_some() && name == "format")
            }
        };
        match &self.subject {
            Subject::Storage(name) => name_of(name, true),
            Subject::Workload(name) => name_of(name, false),
            // Which hosts had a part is known when they say something.
            Subject::Host(_) => true,
        }
    }
}

/// The output directory and the console of one execution.
pub struct Output<'a> {
    console: &'a mut dyn Write,
    dir: PathBuf,
    columns: Vec<Operation>,
    files: bool,
    summary: Page,
    totals: Page,
    flatfile: Page,
    histogram: Page,
    status: Page,
    errorlog: Page,
    logfile: Page,
    anchors: Option<Page>,
    skew: Page,
    subjects: Vec<SubjectPages>,
    planned: Vec<(String, String)>,
    begun: bool,
    totals_header: bool,
    results: Vec<serde_json::Value>,
    latency: Page,
    started: Moment,
    /// Of `histogram=`.
    edges: Option<Vec<u64>>,
    /// Contents of `report.html`.
    report: RunPage,
    /// Lines at the foot of a terminal.
    live: Option<Live>,
    /// For Prometheus.
    metrics: Option<Metrics>,
}

impl<'a> Output<'a> {
    /// Creates the directory, one level, and all its files.
    ///
    /// # Errors
    /// When the directory or a file cannot be made.
    pub fn create(
        dir: &Path,
        plan: &Plan,
        words: &str,
        console: &'a mut dyn Write,
    ) -> io::Result<Output<'a>> {
        let new = !dir.is_dir();
        if new {
            std::fs::create_dir(dir)?;
        }
        let files = plan.runs.iter().any(|run| matches!(run.work, Work::Files(_)));
        let page = |name: &str| Page::create(dir, name);
        let started = Moment::now();
        let mut output = Output {
            console,
            dir: dir.to_path_buf(),
            columns: table::columns(plan),
            files,
            summary: page("summary.html")?,
            totals: page("totals.html")?,
            flatfile: page("flatfile.html")?,
            histogram: page("histogram.html")?,
            status: page("status.html")?,
            errorlog: page("errorlog.html")?,
            logfile: page("logfile.html")?,
            anchors: if files { Some(page("anchors.html")?) } else { None },
            skew: page("skew.html")?,
            subjects: Vec::new(),
            planned: plan.runs.iter().map(|run| (run.label.clone(), run.loops.clone())).collect(),
            begun: false,
            totals_header: false,
            results: Vec::new(),
            latency: page("latency.csv")?,
            started,
            edges: plan.general.histogram.clone(),
            report: RunPage::new(plan, words),
            live: None,
            metrics: None,
        };
        output.subjects(dir, plan)?;
        let mut parmfile = page("parmfile.html")?;
        parmfile.line("");
        plan.copy.lines().for_each(|line| parmfile.line(&escape(line)));
        output.titles(plan);
        if new {
            output.say(&format!("Created output directory '{}'", dir.display()));
        }
        Ok(output)
    }

    /// Shows how it goes at the foot of a terminal.
    pub fn show_live(&mut self) {
        self.live = Some(Live::default());
    }

    /// Answers Prometheus at this address.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn serve_metrics(&mut self, address: &str) -> io::Result<()> {
        let metrics = Metrics::listen(address)?;
        self.say(&format!("Metrics for Prometheus: http://{}/metrics", metrics.address));
        self.metrics = Some(metrics);
        Ok(())
    }

    fn subjects(&mut self, dir: &Path, plan: &Plan) -> io::Result<()> {
        let mut wanted: Vec<Subject> = Vec::new();
        let mut want = |subject: Subject| {
            if !wanted.contains(&subject) {
                wanted.push(subject);
            }
        };
        for run in &plan.runs {
            match &run.work {
                Work::Raw(work) => {
                    work.sds.iter().for_each(|sd| want(Subject::Storage(sd.name.clone())));
                    work.wds.iter().for_each(|(wd, _)| want(Subject::Workload(wd.name.clone())));
                }
                Work::Files(work) => {
                    work.fsds.iter().for_each(|fsd| want(Subject::Storage(fsd.name.clone())));
                    work.fwds.iter().for_each(|(fwd, _)| want(Subject::Workload(fwd.name.clone())));
                    if work.format.is_some() {
                        want(Subject::Workload("format".into()));
                    }
                }
            }
        }
        if plan.hosts.len() > 1 {
            plan.hosts.iter().for_each(|host| want(Subject::Host(host.name.clone())));
        }
        let mut taken: Vec<String> = RESERVED.iter().map(|name| name.to_string()).collect();
        for subject in wanted {
            let (name, title, histogram_title) = match (&subject, self.files) {
                (Subject::Storage(n), true) => {
                    (n, format!("Report for fsd {n}"), format!("Performance histogram for FSD={n}"))
                }
                (Subject::Workload(n), true) => {
                    (n, format!("Report for fwd {n}"), format!("Performance histogram for FWD={n}"))
                }
                (Subject::Storage(n), false) => {
                    (n, format!("SD report for sd={n}"), "SD response time histogram.".to_string())
                }
                (Subject::Host(n), _) => {
                    (n, format!("Host report for host={n}"), format!("Response time histogram for host={n}"))
                }
                (Subject::Workload(n), false) => {
                    (n, format!("Workload Report for wd={n}"), "WD response time histogram.".to_string())
                }
            };
            let base = page_name(name, &mut taken);
            let mut page = Page::create(dir, &format!("{base}.html"))?;
            let mut histogram = Page::create(dir, &format!("{base}.histogram.html"))?;
            page.line(&title);
            page.line("");
            let link = if self.files {
                "Link to Performance histogram:  "
            } else {
                "Link to response time histogram:"
            };
            page.line(&format!("{link} <A HREF=\"{base}.histogram.html\">histogram</A>"));
            histogram.line(&histogram_title);
            histogram.line("");
            self.subjects.push(SubjectPages { subject, base, page, histogram });
        }
        Ok(())
    }

    /// Top of each file, before the first run is known.
    fn titles(&mut self, plan: &Plan) {
        let long = self.started.long();
        self.summary.line(crate::PRODUCT);
        self.summary.line(&format!("Vdbench summary report, created {long} ({long})"));
        self.summary.line("");
        let link = |text: &str, name: &str| format!("{text:<32} <A HREF=\"{name}.html\">{name}</A>");
        for (text, name) in [
            ("Link to logfile:", "logfile"),
            ("Run totals:", "totals"),
            ("Vdbench status:", "status"),
            ("Copy of input parameter files:", "parmfile"),
            ("Link to errorlog:", "errorlog"),
            ("Link to flatfile:", "flatfile"),
        ] {
            self.summary.line(&link(text, name));
        }
        if self.files {
            self.summary.line(&link("Link to anchor status:", "anchors"));
        }
        self.summary.line("Machine readable:                <A HREF=\"report.json\">report.json</A>   <A HREF=\"latency.csv\">latency.csv</A>   <A HREF=\"report.html\">report.html</A>");
        self.summary.line("");
        let list = |wanted: fn(&Subject) -> Option<&String>, subjects: &[SubjectPages]| -> String {
            subjects
                .iter()
                .filter_map(|s| Some((wanted(&s.subject)?, &s.base)))
                .map(|(name, base)| format!("<A HREF=\"{base}.html\">{}</A>", escape(name)))
                .collect::<Vec<_>>()
                .join("   ")
        };
        let (kind, work) =
            if self.files { ("FSD", "Link to FWD reports:") } else { ("SD", "Link to workload report:") };
        self.summary.line(&format!(
            "{:<32} {}",
            format!("Link to {kind} reports:"),
            list(Subject::storage, &self.subjects)
        ));
        self.summary.line(&format!("{work:<32} {}", list(Subject::workload, &self.subjects)));
        let hosts = list(Subject::host, &self.subjects);
        if !hosts.is_empty() {
            self.summary.line(&format!("{:<32} {hosts}", "Link to host reports:"));
        }
        self.summary.line(&link("Link to response time histogram:", "histogram"));
        self.summary.line(&link("Link to workload skew report:", "skew"));
        self.summary.line("");
        self.totals.line("Run totals");
        self.totals.line("");
        self.totals.line("");
        flatfile::head(self.files).iter().for_each(|line| self.flatfile.line(line));
        self.histogram.line("Total response time histogram.");
        self.histogram.line("");
        self.histogram.line("");
        for line in [
            "* Vdbench status",
            "",
            "* The lines below tell what is going on, one event each, for programs that watch.",
            "* Each is flushed when it is written. The values are separated by tabs.",
            "",
        ] {
            self.status.line(line);
        }
        self.errorlog.line(&format!("Vdbench error log, created {long} "));
        self.errorlog.line(
            "Error log. If there are no error messages beyond this line then there were no Data Validation or I/O errors.",
        );
        self.errorlog.line("");
        self.logfile.line(crate::PRODUCT);
        self.logfile.line(crate::DISTRIBUTION);
        self.logfile.line("");
        self.skew.line("Workload skew report");
        self.skew.line("");
        self.skew.line("");
        self.latency.line(json::LATENCY_HEADER);
        if let Some(anchors) = &mut self.anchors {
            for line in [
                "Anchor status report",
                "",
                "(This report will not contain useful info when the 'shared=yes' FSD parameter is used)",
                "",
                "                                   ......Anchor size....    ......Total size.....    ......Workingset.....",
                "                                   files     dirs  bytes    files     dirs  bytes    files     dirs  bytes",
                "",
                "",
            ] {
                anchors.line(line);
            }
            let mut seen = Vec::new();
            for fsd in plan
                .runs
                .iter()
                .filter_map(|run| if let Work::Files(work) = &run.work { Some(work) } else { None })
                .flat_map(|w| &w.fsds)
            {
                if !seen.contains(&&fsd.anchor) {
                    seen.push(&fsd.anchor);
                    let wss = fsd.workingset.unwrap_or(0);
                    anchors.line(&format!(
                        "{:<29} {:>8} {:>8} {:>6} {:>8} {:>8} {:>6} {:>8} {:>8} {:>6}",
                        fsd.anchor,
                        fsd.file_count(),
                        fsd.directories(),
                        brief(fsd.total_bytes()),
                        0,
                        0,
                        brief(fsd.totalsize.unwrap_or(0)),
                        0,
                        0,
                        brief(wss)
                    ));
                }
            }
        }
    }

    /// A line on the console and in the log, behind the time.
    pub fn say(&mut self, text: &str) {
        for (at, line) in text.split('\n').enumerate() {
            let stamp = Moment::now().time();
            let line = if at == 0 || !line.is_empty() { format!("{stamp} {line}") } else { line.to_string() };
            self.put(&line);
        }
    }

    fn put(&mut self, line: &str) {
        // A console that has gone away does not end a measurement.
        let _ = self.put_console(line);
        self.logfile.line(&escape(line));
    }

    fn put_console(&mut self, line: &str) -> io::Result<()> {
        if let Some(live) = &mut self.live {
            live.wipe(self.console)?;
        }
        writeln!(self.console, "{line}")?;
        if let Some(live) = &mut self.live {
            live.draw(self.console)?;
        }
        self.console.flush()
    }

    fn put_summary(&mut self, line: &str) {
        self.put(line);
        self.summary.line(&escape(line));
    }

    /// A line of status.html.
    pub fn status(&mut self, text: &str) {
        let stamp = Moment::now().stamp();
        self.status.line(&format!("{stamp} \t{text}"));
    }

    /// Takes one event.
    pub fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Ready { .. } => {}
            Event::Started { run, .. } => self.started(run),
            Event::Interval { run, interval } => self.interval(run, interval),
            Event::Message(text) => {
                let text = if text.contains('\n') {
                    format!("\nMessage from slave localhost-0: \n{text}\n")
                } else {
                    format!("localhost-0: {text}")
                };
                self.say(&text);
            }
            Event::Notice(text) => self.say(text),
            Event::Command(CommandOutput::Console, text) => self.say(text),
            Event::Command(CommandOutput::Summary, text) => {
                self.put_summary(&format!("{} {text}", Moment::now().time()));
            }
            Event::Command(CommandOutput::Log, text) => {
                self.logfile.line(&format!("{} {}", Moment::now().time(), escape(text)));
            }
            Event::Error(error) => {
                let at = Moment::of(error.at).time();
                let shown = error.to_string();
                for text in error.evidence.iter().chain(std::iter::once(&shown)) {
                    let host = error.host.as_deref().unwrap_or("localhost");
                    let line = format!("{} {host}-0: {at} {text}", Moment::now().time());
                    self.put(&line);
                    self.errorlog.line(&escape(&line));
                }
            }
            Event::Finished(result) => self.finished(result),
        }
    }

    fn started(&mut self, run: &Run) {
        if let Some(live) = &mut self.live {
            let _ = live.wipe(self.console);
            live.begin();
        }
        if !self.begun {
            self.begun = true;
            if !self.planned.iter().any(|(label, _)| *label == run.label) {
                self.planned.insert(0, (run.label.clone(), run.loops.clone()));
            }
            self.index();
        }
        let banner = format!("Starting {}", run.banner());
        self.say(&banner);
        let anchor = format!(
            "<a name=\"_{}\"></a><i><b>{} {}</b></i>",
            hash(&run.label, &run.loops),
            Moment::now().time(),
            escape(&banner)
        );
        let mut pages = vec![&mut self.summary, &mut self.totals, &mut self.histogram, &mut self.skew];
        pages.extend(self.anchors.as_mut());
        pages.extend(self.subjects.iter_mut().flat_map(|s| [&mut s.page, &mut s.histogram]));
        for page in pages {
            page.line(&anchor);
            page.line("");
        }
        self.status(&format!("Starting\trd={}\tFor loops: {}", run.label, run.loops));
    }

    /// The list of runs at the top of most files.
    fn index(&mut self) {
        let lines: Vec<String> = self
            .planned
            .iter()
            .enumerate()
            .map(|(at, (label, loops))| {
                let lead = if at == 0 { "Link to Run Definitions:" } else { "" };
                let hash = hash(label, loops);
                format!("{lead:<32} <A HREF=\"#_{hash}\">{} For loops: {}</A>", escape(label), escape(loops))
            })
            .collect();
        let mut pages = vec![&mut self.summary, &mut self.totals, &mut self.histogram, &mut self.skew];
        pages.extend(self.subjects.iter_mut().flat_map(|s| [&mut s.page, &mut s.histogram]));
        for page in pages {
            lines.iter().for_each(|line| page.line(line));
            page.line("");
            page.line("");
        }
    }

    fn header(&self) -> [String; 2] {
        let date = Moment::now().date();
        if self.files { table::file_header(&date, &self.columns) } else { table::raw_header(&date) }
    }

    fn line(&self, label: &str, stretch: &Stretch<'_>) -> String {
        if self.files {
            table::file_line(label, stretch, &self.columns)
        } else {
            table::raw_line(label, stretch)
        }
    }

    fn interval(&mut self, run: &Run, interval: &Interval) {
        let number = interval.line.number;
        self.report.interval(interval);
        if let Some(metrics) = &mut self.metrics {
            metrics.interval(run, interval);
        }
        if let Some(live) = &mut self.live {
            // The lines are drawn again behind the next line of the console.
            let _ = live.wipe(self.console);
            live.interval(run, interval);
        }
        let stretch =
            Stretch { groups: &interval.groups, seconds: run.interval as f64, cpu: &interval.line.cpu };
        let stamp = Moment::now();
        if number % HEADER_EVERY == 1 {
            let header = self.header();
            self.put_summary("");
            header.iter().for_each(|line| self.put_summary(line));
            for subject in self.subjects.iter_mut().filter(|s| s.takes_part(run)) {
                subject.page.line("");
                header.iter().for_each(|line| subject.page.line(line));
            }
        }
        let line = format!("{}{}", stamp.time(), self.line(&number.to_string(), &stretch));
        self.put_summary(&line);
        let flat =
            flatfile::row(self.files, run, &number.to_string(), &stretch, None, interval.line.requested);
        self.flatfile.line(&format!("{} {} {flat}", stamp.time(), stamp.stamp()));
        for at in 0..self.subjects.len() {
            if self.subjects[at].takes_part(run) {
                let part = self.subjects[at].part(&interval.groups, stretch.cpu, &interval.hosts);
                let Some((groups, cpu)) = part else { continue };
                let own = Stretch { groups: &groups, seconds: stretch.seconds, cpu };
                let line = format!("{}{}", stamp.time(), self.line(&number.to_string(), &own));
                self.subjects[at].page.line(&line);
            }
        }
        json::latency_rows(&run.label, &number.to_string(), &interval.line, run.interval as f64)
            .iter()
            .for_each(|row| self.latency.line(row));
        if interval.warmup && u64::from(number) * run.interval >= run.warmup.max(run.interval) {
            self.status(&format!("Warmup done\trd={}\tFor loops: {}", run.label, run.loops));
        }
    }

    fn finished(&mut self, result: &RunResult) {
        let run = &result.run;
        let last = result.lines.last().map_or(0, |line| line.number);
        let span = format!("{}-{last}", result.first_measured);
        let seconds = result.measured_seconds();
        let stretch = Stretch { groups: &result.measured, seconds, cpu: &result.measured_cpu };
        let stamp = Moment::now();
        let label = format!("avg_{span}");
        let average = format!("{}{}", stamp.time(), self.line(&label, &stretch));
        self.put_summary(&average);
        if !self.totals_header {
            self.totals_header = true;
            self.totals.line("");
            self.header().iter().for_each(|line| self.totals.line(line));
        }
        self.totals.line(&average);
        self.totals.line("");
        let measured: Vec<_> =
            result.lines.iter().filter(|l| l.number >= result.first_measured).cloned().collect();
        if self.files {
            for (name, max) in [("std", false), ("max", true)] {
                let label = format!("{name}_{span}");
                let spread = table::spread_line(
                    &label,
                    &measured,
                    &result.measured,
                    run.interval as f64,
                    &self.columns,
                    max,
                );
                let line = format!("{}{spread}", stamp.time());
                self.put_summary(&line);
            }
        }
        let figures = (&result.measured.requested()).into();
        let flat = flatfile::row(self.files, run, &format!(" {label}"), &stretch, Some(&measured), figures);
        self.flatfile.line(&format!("{} {} {flat}", stamp.time(), stamp.stamp()));
        self.warnings(result, &stretch);
        histogram_page::write(&mut self.histogram, &result.measured, self.files, self.edges.as_deref());
        for at in 0..self.subjects.len() {
            let part = self.subjects[at].part(&result.measured, &result.measured_cpu, &result.hosts);
            if let (true, Some((groups, cpu))) = (self.subjects[at].takes_part(run), part) {
                let own = Stretch { groups: &groups, seconds, cpu };
                let line = format!("{}{}", stamp.time(), self.line(&label, &own));
                self.subjects[at].page.line(&line);
                let page = &mut self.subjects[at].histogram;
                histogram_page::write(page, &groups, self.files, self.edges.as_deref());
            }
            self.subjects[at].page.line("");
        }
        self.summary.line("");
        self.skew_page(result, &stretch);
        if self.files {
            self.counters(result);
        }
        json::latency_total(result).iter().for_each(|row| self.latency.line(row));
        self.results.push(json::run(result));
        self.report.add(result);
        if let Some(metrics) = &mut self.metrics {
            metrics.finished(result);
        }
        if let Some(overhead) = result.overhead_us() {
            let own = result.whole_cpu.own_seconds;
            self.say(&format!(
                "Engine: {overhead:.3} us of processor time outside the kernel for each operation; {own:.2} s in all."
            ));
        }
        for what in ["Workload done", "Slaves done"] {
            self.status(&format!("{what}\trd={}\tFor loops: {}", run.label, run.loops));
        }
        if let Some(failure) = &result.failure {
            self.say(&format!("\n{failure}\n"));
            self.errorlog.line(&escape(failure));
        }
    }

    /// A machine at its limit measures itself.
    fn warnings(&mut self, result: &RunResult, stretch: &Stretch<'_>) {
        if stretch.seconds > 0.0 && stretch.cpu.used > 80.0 && !result.is_format() {
            let lines = [
                format!("Warning for host=localhost: average processor utilization {:.1}%", stretch.cpu.used),
                "Any processor utilization over 80% could mean that your system".to_string(),
                "does not have enough cycles to run the highest rate possible.".to_string(),
            ];
            self.boxed(&lines);
        }
    }

    fn boxed(&mut self, lines: &[String]) {
        let width = lines.iter().map(String::len).max().unwrap_or(0);
        let stars = "*".repeat(width + 4);
        let stamp = Moment::now().time();
        self.put_summary(&format!("{stamp} *"));
        self.put_summary(&format!("{stamp} {stars}"));
        lines.iter().for_each(|line| self.put_summary(&format!("{stamp} * {line:<width$} *")));
        self.put_summary(&format!("{stamp} {stars}"));
        self.put_summary(&format!("{stamp} *"));
    }

    fn counters(&mut self, result: &RunResult) {
        let stamp = Moment::now().time();
        self.put(&format!("{stamp} "));
        self.put(&format!("{stamp} Miscellaneous statistics:"));
        self.put(&format!(
            "{stamp} (These statistics do not include activity between the last reported interval and shutdown.)"
        ));
        let seconds = (result.lines.len() as u64 * result.run.interval).max(1);
        for counter in &result.counters {
            self.put(&format!(
                "{stamp} {:<20}{:<40} {:>10} {:>10}/sec",
                counter.name,
                counter.text,
                thousands(counter.count),
                thousands(counter.count / seconds)
            ));
        }
        self.put(&format!("{stamp} "));
    }

    fn skew_page(&mut self, result: &RunResult, stretch: &Stretch<'_>) {
        let stamp = Moment::now().time();
        let (storage, workload) = if self.files { ("FSD:", "FWD:") } else { ("SD:", "WD:") };
        for (title, storages) in [(storage, true), (workload, false)] {
            let name = |group: &steadfast_lab_workload::Group| {
                if storages { group.storage.clone() } else { group.workload.clone() }
            };
            let mut names: Vec<String> = Vec::new();
            for group in &result.measured.0 {
                if !names.contains(&name(group)) {
                    names.push(name(group));
                }
            }
            self.skew.line(&format!("{stamp} "));
            let header = if self.files {
                table::file_skew_header(title, &self.columns)
            } else {
                table::raw_skew_header(title)
            };
            header.iter().for_each(|line| self.skew.line(&format!("{stamp} {line}")));
            let mut row = |label: &str, groups: &Groups| {
                let own = Stretch { groups, seconds: stretch.seconds, cpu: stretch.cpu };
                let line = if self.files {
                    table::file_skew_line(label, &own, &self.columns)
                } else {
                    table::raw_skew_line(label, &own)
                };
                self.skew.line(&format!("{stamp} {line}"));
            };
            for one in &names {
                row(one, &result.measured.filtered(|group| name(group) == *one));
            }
            row("Total", &result.measured);
        }
        if !result.hosts.is_empty() {
            self.skew.line(&format!("{stamp} "));
            let header = if self.files {
                table::file_skew_header("Host:", &self.columns)
            } else {
                table::raw_skew_header("Host:")
            };
            header.iter().for_each(|line| self.skew.line(&format!("{stamp} {line}")));
            for share in &result.hosts {
                let own = Stretch { groups: &share.groups, seconds: stretch.seconds, cpu: &share.cpu };
                let line = if self.files {
                    table::file_skew_line(&share.host, &own, &self.columns)
                } else {
                    table::raw_skew_line(&share.host, &own)
                };
                self.skew.line(&format!("{stamp} {line}"));
            }
        }
        self.skew.line("");
    }

    /// Writes `report.json` and the last lines. `failure`: the sentence that ended everything.
    ///
    /// # Errors
    /// When a file could not be written completely; the sentence names it.
    pub fn finish(mut self, failure: Option<&str>) -> io::Result<()> {
        if let Some(live) = &mut self.live {
            let _ = live.wipe(self.console);
        }
        self.live = None;
        let report = json::report(&self.started, std::mem::take(&mut self.results), failure);
        let text = serde_json::to_string_pretty(&report).map_err(io::Error::other)?;
        std::fs::write(self.dir.join("report.json"), text + "\n")?;
        run_page::write(&self.report, &self.dir, failure)?;
        if failure.is_none() {
            self.status("Shutting down slaves");
            self.status("Vdbench complete");
            self.summary.line(&format!("{} Vdbench execution completed successfully", Moment::now().time()));
            let line = format!(
                "Vdbench execution completed successfully. Output directory: {} ",
                self.dir.display()
            );
            self.say(&line);
            self.put("");
        } else {
            self.status("Vdbench failed");
        }
        self.close()
    }

    /// Writes what `-s` says, and the last lines: nothing was carried out.
    ///
    /// # Errors
    /// As [`Output::finish`].
    pub fn simulated(mut self, lines: impl IntoIterator<Item = String>) -> io::Result<()> {
        lines.into_iter().for_each(|line| self.say(&line));
        let done = "Vdbench simulation completed successfully";
        self.summary.line(&format!("{} {done}", Moment::now().time()));
        self.say(&format!("{done}. Output directory: {} ", self.dir.display()));
        self.put("");
        self.close()
    }

    fn close(self) -> io::Result<()> {
        let pages = [
            self.summary,
            self.totals,
            self.flatfile,
            self.histogram,
            self.status,
            self.errorlog,
            self.logfile,
            self.skew,
            self.latency,
        ];
        pages.into_iter().find_map(Page::failure).map_or(Ok(()), Err)
    }
}

/// Pages that a storage or workload of the same name must not take.
const RESERVED: [&str; 11] = [
    "report",
    "summary",
    "totals",
    "flatfile",
    "histogram",
    "status",
    "errorlog",
    "parmfile",
    "logfile",
    "anchors",
    "skew",
];

/// A file name for a storage or workload, used by nobody yet.
fn page_name(name: &str, taken: &mut Vec<String>) -> String {
    let base: String =
        name.chars().map(|c| if c == '/' || c.is_control() { '_' } else { c }).take(200).collect();
    let free = std::iter::once(base.clone())
        .chain((2u32..).map(|n| format!("{base}_{n}")))
        .find(|n| !taken.contains(n));
    let free = free.unwrap_or(base);
    taken.push(free.clone());
    free
}

/// `64.0m`, `0`.
fn brief(bytes: u64) -> String {
    let text = short_bytes(bytes);
    match text.split_once('.') {
        Some((whole, rest)) => {
            let letter = rest.chars().last().unwrap_or(' ');
            format!("{whole}.{}{letter}", rest.chars().next().unwrap_or('0'))
        }
        None => text,
    }
}
