//! `steadfast lab run iris-scale`: many clients of one portal at once.

mod clients;
mod request;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use steadfast_lab_network::{Conditions, Counts, Link};
use steadfast_lab_report::figures::goals::{Bound, bound, summary};
use steadfast_lab_report::figures::{ArmInfo, Axis, Chart, Goal, Row, Series};
use steadfast_lab_report::number;

pub(crate) use clients::serve;
pub(crate) use request::ScaleRequest;

use super::ganesha::{self, Ganesha};
use super::portal::Portal;
use super::workers::Workers;
use crate::bucket::Cleared;
use crate::bucket::bare::Bare;
use crate::bucket::remote::Remote;
use crate::comparison::{self, ComparisonReport, Heading};
use crate::context::Context;
use crate::error::Error;
use crate::host::processes::processor_seconds;
use crate::host::progress::Progress;
use crate::host::requirements::{check_fuse, check_room, check_root};
use crate::options::Rate;
use crate::results::{self, Results};
use crate::setup::Setup;
use clients::{Crowd, Load};
use request::Sizes;

/// The server that the clients ask.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Front {
    /// That of the daemon.
    Ours,
    /// NFS-Ganesha over the mount of the same pool.
    Ganesha,
}

/// A server, and the rate of the link to the store meanwhile.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Course {
    front: Front,
    rate: Rate,
}

impl Course {
    /// All of them, in their order.
    fn all(rates: &[Rate], with_ganesha: bool) -> Vec<Course> {
        let mut all = Vec::new();
        for rate in rates.iter().copied() {
            all.push(Course { front: Front::Ours, rate });
            if with_ganesha && rate.0.is_none() {
                all.push(Course { front: Front::Ganesha, rate });
            }
        }
        all
    }

    /// Loads at this rate: a limit is for sequential work alone, as in the paper.
    fn loads(self) -> &'static [Load] {
        if self.rate.0.is_none() { &Load::ALL } else { &Load::ALL[..2] }
    }

    fn key(self, key: &str) -> String {
        let key = self.rate.key(key);
        if self.front == Front::Ganesha { format!("{key}_ganesha") } else { key }
    }

    /// A row of it, told beside a row of ours without a limit.
    fn row(self, key: &str, label: &str, unit: &str, more: bool, how: &str) -> Row {
        let mut label = self.rate.label(label);
        if self.front == Front::Ganesha {
            label += ", Ganesha";
        }
        Row::new(&self.key(key), &label, unit, more, how)
    }
}

impl Front {
    /// Starts it, if it is not the daemon.
    fn start(self, portal: &Portal, setup: &Setup) -> Result<Option<Ganesha>, Error> {
        if self == Front::Ours {
            return Ok(None);
        }
        let home = setup.workdir.subdirectory("ganesha")?;
        Ganesha::start(&home, &[portal.place()]).map(Some)
    }
}

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early.
pub fn run(
    request: &ScaleRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Results<ComparisonReport>, Error> {
    check_fuse()?;
    check_root("it drops the kernel's caches", "steadfast lab run iris-scale")?;
    let (parent, sizes) = (request.places.parent(), request.sizes());
    check_room(parent, 4 << 30, "name another directory with --dir DIR.")?;
    let remote = Remote::open(None)?;
    let setup = Setup::new("iris-scale", request.places.out.as_deref(), parent)?;
    let mut shell = setup.shell(context, stop)?;
    let arm =
        |key: &str, label: &str| ArmInfo { key: key.to_owned(), label: label.to_owned(), missing: None };
    let mut arms = vec![arm("bare", "bare loop, 32 at once")];
    arms.extend(sizes.clients.iter().map(|count| arm(&count.to_string(), &so_many(*count))));
    let mut report = ComparisonReport::new(
        Some(heading()),
        setup.conditions(
            format!("Steadfast {} on {}, {}", context.version, remote.label, request.way()),
            request.repeat(),
            request.rounds(),
        ),
        format!(
            "{} of all clients together, {} random transfers",
            number::bytes(sizes.bytes),
            sizes.transfers
        ),
        arms,
    );
    let cleared = Cleared(&remote);
    let lacks = ganesha::lacks();
    let courses = Course::all(&request.rates(), lacks.is_none());
    let works: usize = courses.iter().map(|course| course.loads().len() * sizes.clients.len()).sum();
    let steps = request.rounds() as usize * (works + request.rates().len()) + 1;
    let mut progress = Progress::new(steps as f64);
    let done = (|| {
        progress.begin("making the portal");
        let mut workers = Workers::start(request.processes(), &context.steadfast)?;
        let unlimited = request.conditions(Rate(None));
        let mut portal = Portal::make(&setup, context, &remote, unlimited, &[], &mut shell)?;
        let daemon = portal.daemon()?;
        progress.advance(1.0, "");
        for round in 0..request.rounds() {
            for rate in request.rates() {
                progress.begin("bare loop");
                measure_bare(&remote, request, &sizes, rate, &mut report)?;
                portal.set_rate(rate);
                progress.advance(1.0, "");
                let courses = || courses.iter().filter(|course| course.rate == rate);
                for (count, course) in
                    sizes.clients.iter().flat_map(|count| courses().map(move |course| (*count, *course)))
                {
                    let mut hands = Hands {
                        portal: &mut portal,
                        workers: &mut workers,
                        setup: &setup,
                        daemon,
                        client_rate: request.client_rate,
                        sizes: &sizes,
                        stop,
                    };
                    let outcome = hands.measure(course, count, round, &mut report, &mut progress);
                    match outcome {
                        // It is there to be compared, and does not end what is measured of ours.
                        Err(error) if course.front == Front::Ganesha && !matches!(error, Error::Stopped) => {
                            report.notes.push(format!("NFS-Ganesha, {}: {error}", so_many(count)));
                        }
                        outcome => outcome?,
                    }
                    portal.settle()?;
                }
            }
        }
        Ok(())
    })();
    progress.end();
    drop(cleared);
    report.conditions.seconds = setup.seconds();
    let measured = report.rows.iter().any(|row| row.values.len() > 1);
    tell(&mut report, &sizes.clients, &courses);
    let ComparisonReport { rows, notes, conditions, .. } = &mut report;
    let early = results::early(done, measured, &*rows, notes, conditions)?;
    report.goals = judge(&report.rows, &sizes.clients, &request.rates());
    report.summary = summary(&report.goals);
    report.notes.extend(notes_of_every_run(request));
    report.notes.push(match lacks {
        _ if request.rates().iter().all(|rate| rate.0.is_some()) => {
            "NFS-Ganesha takes no part: it is compared where the link has no limit.".to_owned()
        }
        None => "NFS-Ganesha exports the mount of the same pool. It is started anew for each cold read."
            .to_owned(),
        Some(reason) => format!("NFS-Ganesha takes no part: {reason}"),
    });
    report.commands = shell.history();
    comparison::write(report, &setup.out, early, request.document.markdown.as_deref())
}

/// State while a number of clients is measured.
struct Hands<'a, 'p> {
    portal: &'a mut Portal<'p>,
    workers: &'a mut Workers,
    setup: &'a Setup,
    daemon: u32,
    client_rate: Option<u64>,
    sizes: &'a Sizes,
    stop: &'a AtomicBool,
}

impl Hands<'_, '_> {
    /// All loads of so many clients of a server.
    fn measure(
        &mut self,
        course: Course,
        count: u32,
        round: u32,
        report: &mut ComparisonReport,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        let mut beside = course.front.start(self.portal, self.setup)?;
        for load in course.loads() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            progress.begin(&course.rate.label(&format!("{}: {}", so_many(count), load.label())));
            if *load == Load::Read {
                // A pool that is exported has no server over its mount.
                drop(beside.take());
                self.portal.cold()?;
                beside = course.front.start(self.portal, self.setup)?;
            }
            let mut export = beside
                .as_ref()
                .map_or_else(|| self.portal.export(), |ganesha| ganesha.export(self.portal.place()));
            let _links = self.clients_links(&mut export.nfs)?;
            let crowd =
                Crowd { export, count, round, bytes: self.sizes.bytes, transfers: self.sizes.transfers };
            let servers: Vec<u32> = beside.iter().map(Ganesha::process).chain([self.daemon]).collect();
            let (before, passed) = (used(&servers, self.workers)?, self.portal.passed());
            let (bytes, seconds) = crowd.work(*load, self.workers)?;
            let used = used(&servers, self.workers)?.since(before);
            let cost = Cost { bytes, seconds, used, passed: self.portal.passed().since(&passed) };
            cost.tell(*load, course, &count.to_string(), report);
            progress.advance(1.0, "");
            if load == course.loads().last().expect("there is work at every rate") {
                crowd.clear()?;
            }
        }
        Ok(())
    }

    /// A link for each client before a server, if they shall have one. The server's address becomes
    /// that of the links.
    fn clients_links(&self, server: &mut SocketAddr) -> Result<Option<Link>, Error> {
        if self.client_rate.is_none() {
            return Ok(None);
        }
        let conditions = Conditions { round_trip: Duration::ZERO, rate: self.client_rate, loss: None };
        let link = Link::start_each(*server, conditions)
            .map_err(Error::io("open links before", Path::new("the portal")))?;
        *server = link.address();
        Ok(Some(link))
    }
}

fn so_many(count: u32) -> String {
    if count == 1 { "1 client".to_owned() } else { format!("{count} clients") }
}

/// The limit: transfers without a file system, on a way of the same kind.
fn measure_bare(
    remote: &Remote,
    request: &ScaleRequest,
    sizes: &Sizes,
    rate: Rate,
    report: &mut ComparisonReport,
) -> Result<(), Error> {
    let place = Path::new("the store");
    let link = Link::start(remote.socket, request.conditions(rate))
        .map_err(Error::io("open a link before", place))?;
    let course = Course { front: Front::Ours, rate };
    let none = Workers::none();
    let bare = Bare::new(remote, &link.address().to_string(), &format!("{}/bare", remote.prefix))?;
    for load in [Load::Write, Load::Read] {
        let (before, passed) = (used(&[], &none)?, link.counts());
        let rate = if load == Load::Write { bare.write(sizes.bytes)? } else { bare.read(sizes.bytes)? };
        let seconds = sizes.bytes as f64 / 1e6 / rate;
        let (used, passed) = (used(&[], &none)?.since(before), link.counts().since(&passed));
        Cost { bytes: sizes.bytes, seconds, used, passed }.tell(load, course, "bare", report);
    }
    bare.clear()
}

/// Seconds of processor time: of this process, which has the link and the store, with those that
/// have the clients; and of the servers: the daemon, and Ganesha before it.
#[derive(Clone, Copy)]
struct Used {
    here: f64,
    servers: f64,
}

fn used(servers: &[u32], workers: &Workers) -> Result<Used, Error> {
    let here: Vec<u32> = workers.processes().chain([std::process::id()]).collect();
    Ok(Used { here: processor_seconds(&here)?, servers: processor_seconds(servers)? })
}

impl Used {
    fn since(self, before: Used) -> Used {
        Used { here: self.here - before.here, servers: self.servers - before.servers }
    }
}

/// A load that was done.
struct Cost {
    bytes: u64,
    seconds: f64,
    used: Used,
    passed: Counts,
}

impl Cost {
    fn tell(&self, load: Load, course: Course, arm: &str, report: &mut ComparisonReport) {
        let row = course.row(load.key(), load.label(), "MB/s", true, "All clients together.");
        report.add(&row, arm, self.bytes as f64 / 1e6 / self.seconds);
        if !matches!(load, Load::Write | Load::Read) {
            return;
        }
        let parts = [
            ("all", "of everything", self.used.here + self.used.servers),
            ("daemon", "of the daemon", self.used.servers),
        ];
        for (key, label, seconds) in parts {
            // The bare loop has no daemon.
            if arm == "bare" && key == "daemon" {
                continue;
            }
            let row = course.row(
                &format!("{}_cpu_{key}", load.key()),
                &format!("{}: processor time {label}", load.label()),
                "s for 1 GB",
                false,
                "Everything: clients, link and store, and the daemon; with Ganesha both servers.",
            );
            report.add(&row, arm, seconds / (self.bytes as f64 / 1e9));
        }
        let row = course.row(
            &format!("{}_requests", load.key()),
            &format!("{}: requests of the store", load.label()),
            "for 1 GB",
            false,
            "As the link counts them.",
        );
        report.add(&row, arm, self.passed.requests.iter().sum::<u64>() as f64 / (self.bytes as f64 / 1e9));
        let row = course.row(
            &format!("{}_carried", load.key()),
            &format!("{}: bytes on the link", load.label()),
            "for a byte of content",
            false,
            "As the link counts them, in the direction of the content.",
        );
        let carried = if load == Load::Write { self.passed.up } else { self.passed.down };
        report.add(&row, arm, carried as f64 / self.bytes as f64);
    }
}

/// How far the rate falls from its best among `clients` up to `most`, in percent, in each round.
fn falls(row: &Row, clients: &[u32], most: u32) -> Vec<f64> {
    let among = clients.iter().filter(|count| (10..=most).contains(*count));
    let rates: Vec<&Vec<f64>> = among.filter_map(|count| row.values.get(&count.to_string())).collect();
    let Some(last) = rates.last().filter(|_| rates.len() > 1) else { return Vec::new() };
    let fall = |(round, last): (usize, &f64)| {
        let best = rates.iter().filter_map(|rates| rates.get(round)).copied().fold(0.0, f64::max);
        (best > 0.0).then(|| 100.0 * (1.0 - last / best))
    };
    last.iter().enumerate().filter_map(fall).collect()
}

/// The smaller of the link's rate and the bare loop's through such a link, in each round, MB/s.
fn limits(row: &Row, rate: Rate) -> Vec<f64> {
    let link = rate.megabytes().unwrap_or(f64::INFINITY);
    row.values.get("bare").into_iter().flatten().map(|bare| bare.min(link)).collect()
}

/// Rows and the pictures that follow from the rates.
fn tell(report: &mut ComparisonReport, clients: &[u32], courses: &[Course]) {
    let mut rates: Vec<Rate> = courses.iter().map(|course| course.rate).collect();
    rates.dedup();
    for rate in &rates {
        let of_rate = courses.iter().filter(|course| course.rate == *rate);
        let works = of_rate.flat_map(|course| course.loads().iter().map(|load| (*course, *load)));
        let found = works.filter_map(|(course, load)| {
            // The title has the rate.
            let label = Course { rate: Rate(None), ..course }.row("", load.label(), "", true, "").label;
            Some((label, report.row(&course.key(load.key()))?.clone()))
        });
        let (labels, rows): (Vec<String>, Vec<Row>) = found.unzip();
        let lines = labels.iter().zip(&rows).flat_map(|(label, row)| lines(label, row, clients, *rate));
        let chart = Chart {
            key: rate.key("rates"),
            title: rate.label("All clients together"),
            how: "Each client is a thread of the lab with a connection and a file of its own.".to_owned(),
            x: Axis::log("clients"),
            y: Axis::linear("MB/s"),
            limit: rate.megabytes().map(|rate| (rate, "the link".to_owned())),
            series: lines.collect(),
        };
        report.charts.push(chart);
        for row in &rows {
            tell_falls(report, row, clients);
        }
        for load in [Load::Write, Load::Read] {
            let course = Course { front: Front::Ours, rate: *rate };
            if let Some(row) = report.row(&course.key(load.key())).cloned() {
                tell_of_limit(report, &row, clients, load, course);
            }
        }
    }
}

/// The line of a row; at a limited rate the bare loop's beside it.
fn lines(label: &str, row: &Row, clients: &[u32], rate: Rate) -> Vec<Series> {
    let point = |count: &u32| Some((f64::from(*count), row.median(&count.to_string())?));
    let points: Vec<(f64, f64)> = clients.iter().filter_map(point).collect();
    let ends = [points.first(), points.last()].map(|end| end.map(|(count, _)| *count));
    let mut lines = vec![Series { label: label.to_owned(), calculated: false, points }];
    if let Some(bare) = row.median("bare").filter(|_| rate.0.is_some()) {
        lines.push(Series {
            label: format!("{label}, bare loop"),
            calculated: true,
            points: ends.into_iter().flatten().map(|count| (count, bare)).collect(),
        });
    }
    lines
}

fn tell_falls(report: &mut ComparisonReport, row: &Row, clients: &[u32]) {
    let measured = |most: &u32| row.values.contains_key(&most.to_string());
    for most in [100, 1_000].into_iter().filter(measured) {
        let told = Row::new(
            &format!("{}_fall", row.key),
            &format!("{}: slower than the best from 10 clients on", row.label),
            "%",
            false,
            "How far the rate is below the best of fewer clients.",
        );
        for percent in falls(row, clients, most) {
            report.add(&told, &most.to_string(), percent);
        }
    }
}

fn tell_of_limit(report: &mut ComparisonReport, row: &Row, clients: &[u32], load: Load, course: Course) {
    let told = course.row(
        &of_limit(load),
        &format!("{}: of the smaller of link and bare loop", load.label()),
        "of it",
        true,
        "The bare loop went through a link of its own with the same rate, in the same round.",
    );
    let limits = limits(row, course.rate);
    for count in clients.iter().map(u32::to_string) {
        let rates = row.values.get(&count).into_iter().flatten();
        rates.zip(&limits).for_each(|(rate, limit)| report.add(&told, &count, rate / limit));
    }
}

fn of_limit(load: Load) -> String {
    format!("{}_of_limit", load.key())
}

fn judge(rows: &[Row], clients: &[u32], rates: &[Rate]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let find = |key: &str| rows.iter().find(|row| row.key == key);
    for course in rates.iter().map(|rate| Course { front: Front::Ours, rate: *rate }) {
        for load in [Load::Write, Load::Read] {
            let key = format!("{}_fall", course.key(load.key()));
            let label = course.rate.label(load.label());
            for (most, limit) in [("100", 5.0), ("1000", 15.0)] {
                let has = find(&key).is_some_and(|row| row.values.contains_key(most));
                let text = format!("{label}: flat within {limit} % to {most} clients");
                goals.extend(bound(rows, &key, most, Bound::AtMost(limit), &text).filter(|_| has));
            }
            let key = course.key(&of_limit(load));
            let Some(row) = find(&key) else { continue };
            // The worst of them is judged.
            let among = clients.iter().filter(|count| (10..=100).contains(*count)).map(u32::to_string);
            let worst = among
                .filter_map(|count| Some((row.median(&count)?, count)))
                .min_by(|one, other| one.0.total_cmp(&other.0));
            let Some((_, count)) = worst else { continue };
            let text =
                format!("{label}: with 10 to 100 clients at least 0.9 of the smaller of link and bare loop");
            goals.extend(bound(rows, &key, &count, Bound::AtLeast(0.9), &text));
        }
    }
    goals
}

fn heading() -> Heading {
    Heading {
        name: "iris-scale".to_owned(),
        title: "Many NFS clients of one portal".to_owned(),
        question: "Does the rate of all clients together stay, however many there are?".to_owned(),
        base: ("bare".to_owned(), "the bare loop".to_owned()),
    }
}

/// Notes for every run.
fn notes_of_every_run(request: &ScaleRequest) -> Vec<String> {
    let of = match request.processes() {
        0 => "the lab's own process".to_owned(),
        1 => "a process of the lab".to_owned(),
        many => format!("one of {many} processes"),
    };
    vec![
        "It repeats figure 5 of the Iris paper: 250 to 280 MB/s for 10 to 100 clients, falling a little at 100, on other \
         machines; there the network and the disks were the bound."
            .to_owned(),
        format!(
            "The link to the store, each way: {}. Without a limit the processors of this machine are the bound; the paper's \
             network had 250 MB/s at the lower end. The bare loop goes through a link of its own of the same kind. NFS-Ganesha \
             takes part where there is no limit.",
            request.rates_told()
        ),
        format!(
            "Each client is a thread of {of} with a connection and a file of its own, and one call at a time. \
             Clients, portal, link and store share the processors of this machine, which bound most rates without a limit: no \
             rate can be above their number over the processor time of everything."
        ),
        "All clients move the same number of bytes together, however many they are. A write ends with COMMIT of each. \
         The sequential read is cold, the random read follows it and finds much in memory."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_lab_report::figures::Verdict;

    #[test]
    fn a_rate_that_falls_is_judged_from_ten_clients_on() {
        let mut row = Row::new("write", "write", "MB/s", true, "");
        for (count, rate) in [("1", 300.0), ("10", 100.0), ("50", 90.0), ("100", 80.0)] {
            row.values.insert(count.to_owned(), vec![rate, 2.0 * rate]);
        }
        row.values.insert("50".to_owned(), vec![90.0, 320.0]);
        let clients = [1, 10, 50, 100];
        let rounded = |falls: Vec<f64>| falls.iter().map(|fall| fall.round()).collect::<Vec<_>>();
        assert_eq!(rounded(falls(&row, &clients, 100)), [20.0, 50.0], "each round has its own best");
        assert!(falls(&row, &[1, 10], 100).is_empty());
        let mut report = crate::comparison::tests::report("none", false, &[]);
        report.rows = vec![row];
        let rates = [Rate(None)];
        tell(&mut report, &clients, &Course::all(&rates, true));
        let goals = judge(&report.rows, &clients, &rates);
        assert_eq!((goals.len(), goals[0].verdict), (1, Verdict::NotMet));
        assert_eq!(report.charts[0].series[0].points.len(), 4);
    }

    #[test]
    fn notes_tell_the_links_that_were_played() {
        let notes = |line| notes_of_every_run(&crate::options::tests::read(line)).join("\n");
        assert!(notes("").contains("each way: no limit, then 250 MB/s. "));
        let limited = notes("--rate 100M --processes 3");
        assert!(
            limited.contains("each way: 105 MB/s. ") && limited.contains("one of 3 processes"),
            "{limited}"
        );
    }

    #[test]
    fn each_rate_has_goals_of_its_own_beside_the_smaller_of_link_and_bare_loop() {
        let rates = [Rate(None), Rate(Some(250_000_000))];
        let courses = Course::all(&rates, true);
        let mut report = crate::comparison::tests::report("none", false, &[]);
        report.rows.clear();
        let add = |report: &mut ComparisonReport, course: Course, arm: &str, rate: f64| {
            report.add(&course.row("read", "read", "MB/s", true, ""), arm, rate);
        };
        let [free, ganesha, limited] = courses[..] else { panic!("{courses:?}") };
        for (arm, of_free, of_limited) in
            [("bare", 1_000.0, 300.0), ("1", 400.0, 100.0), ("10", 950.0, 245.0), ("100", 500.0, 240.0)]
        {
            add(&mut report, free, arm, of_free);
            add(&mut report, ganesha, arm, 10.0);
            add(&mut report, limited, arm, of_limited);
        }
        assert_eq!((limited.loads(), ganesha.loads().len()), (&[Load::Write, Load::Read][..], 4));
        let clients = [1, 10, 100];
        tell(&mut report, &clients, &courses);
        let told: Vec<(String, f64, Verdict)> = judge(&report.rows, &clients, &rates)
            .into_iter()
            .map(|goal| (goal.text, goal.measured.unwrap(), goal.verdict))
            .collect();
        let expected = [
            ("sequential read, cold: flat within 5 % to 100 clients", 47.37, Verdict::NotMet),
            (
                "sequential read, cold: with 10 to 100 clients at least 0.9 of the smaller of link and bare loop",
                0.5,
                Verdict::NotMet,
            ),
            ("sequential read, cold, link of 250 MB/s: flat within 5 % to 100 clients", 2.04, Verdict::Met),
            // The bare loop had more than the link lets pass: the link is the bound.
            (
                "sequential read, cold, link of 250 MB/s: with 10 to 100 clients at least 0.9 of the smaller of link and bare loop",
                0.96,
                Verdict::Met,
            ),
        ];
        for (told, expected) in told.iter().zip(&expected) {
            assert_eq!((told.0.as_str(), told.2), (expected.0, expected.2));
            assert!((told.1 - expected.1).abs() < 0.01, "{told:?}");
        }
        assert_eq!(told.len(), expected.len());
        let [first, second] = &report.charts[..] else { panic!("{:?}", report.charts) };
        assert_eq!((first.series.len(), first.limit.is_none()), (2, true));
        assert_eq!((second.key.as_str(), second.limit.as_ref().unwrap().0), ("rates_at250", 250.0));
        let labels: Vec<&str> = second.series.iter().map(|line| line.label.as_str()).collect();
        assert_eq!(labels, ["sequential read, cold", "sequential read, cold, bare loop"]);
        assert_eq!(second.series[1].points, [(1.0, 300.0), (100.0, 300.0)]);
    }
}
