//! `steadfast lab run iris-scale`: many clients of one portal at once.

mod request;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_lab_network::{Counts, Link};
use steadfast_lab_report::figures::goals::{Bound, bound, summary};
use steadfast_lab_report::figures::{ArmInfo, Axis, Chart, Goal, Row, Series};
use steadfast_lab_report::number;

pub(crate) use request::ScaleRequest;

use super::client::{Client, Export, Handle, Stable, failed};
use super::crowd::at_once;
use super::ganesha::{self, Ganesha};
use super::portal::Portal;
use crate::bucket::Cleared;
use crate::bucket::bare::Bare;
use crate::bucket::remote::Remote;
use crate::comparison::{self, ComparisonReport, Heading};
use crate::context::Context;
use crate::error::Error;
use crate::host::processes::processor_seconds;
use crate::host::progress::Progress;
use crate::host::requirements::{check_fuse, check_room, check_root};
use crate::load::files::Noise;
use crate::results::{self, Results};
use crate::setup::Setup;
use request::Sizes;

/// Bytes of a transfer.
const TRANSFER: usize = 64 << 10;

/// Work of all clients at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Load {
    Write,
    Read,
    RandomWrite,
    RandomRead,
}

impl Load {
    const ALL: [Load; 4] = [Load::Write, Load::Read, Load::RandomRead, Load::RandomWrite];

    fn key(self) -> &'static str {
        match self {
            Load::Write => "write",
            Load::Read => "read",
            Load::RandomWrite => "random_write",
            Load::RandomRead => "random_read",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Load::Write => "sequential write, durable",
            Load::Read => "sequential read, cold",
            Load::RandomWrite => "random write of 64 KiB, durable",
            Load::RandomRead => "random read of 64 KiB, warm",
        }
    }
}

/// The server that the clients ask.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Front {
    /// That of the daemon.
    Ours,
    /// NFS-Ganesha over the mount of the same pool.
    Ganesha,
}

impl Front {
    /// A row of it, told beside a row of ours.
    fn row(self, key: &str, label: &str, unit: &str, more: bool, how: &str) -> Row {
        match self {
            Front::Ours => Row::new(key, label, unit, more, how),
            Front::Ganesha => {
                Row::new(&format!("{key}_ganesha"), &format!("{label}, Ganesha"), unit, more, how)
            }
        }
    }

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
    arms.extend(sizes.clients.iter().map(|count| arm(&count.to_string(), &clients(*count))));
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
    let fronts: &[Front] = if lacks.is_none() { &[Front::Ours, Front::Ganesha] } else { &[Front::Ours] };
    let steps = request.rounds() as usize * (sizes.clients.len() * Load::ALL.len() * fronts.len() + 1) + 1;
    let mut progress = Progress::new(steps as f64);
    let done = (|| {
        progress.begin("making the portal");
        let mut portal = Portal::make(&setup, context, &remote, request.conditions(), &[], &mut shell)?;
        let daemon = portal.daemon()?;
        progress.advance(1.0, "");
        for round in 0..request.rounds() {
            progress.begin("bare loop");
            measure_bare(&remote, request, &sizes, &mut report)?;
            progress.advance(1.0, "");
            for (count, front) in
                sizes.clients.iter().flat_map(|count| fronts.iter().map(move |one| (count, one)))
            {
                let outcome = (|| {
                    let mut beside = front.start(&portal, &setup)?;
                    for load in Load::ALL {
                        if stop.load(Ordering::Relaxed) {
                            return Err(Error::Stopped);
                        }
                        progress.begin(&format!("{}: {}", clients(*count), load.label()));
                        if load == Load::Read {
                            // A pool that is exported has no server over its mount.
                            drop(beside.take());
                            portal.cold()?;
                            beside = front.start(&portal, &setup)?;
                        }
                        let crowd = Crowd {
                            export: export(beside.as_ref(), &portal),
                            count: *count,
                            round,
                            sizes: &sizes,
                        };
                        let servers: Vec<u32> = beside.iter().map(Ganesha::process).chain([daemon]).collect();
                        let (before, passed) = (used(&servers)?, portal.passed());
                        let (bytes, seconds) = crowd.work(load)?;
                        let (used, passed) = (used(&servers)?.since(before), portal.passed().since(&passed));
                        let cost = Cost { bytes, seconds, used, passed };
                        cost.tell(load, *front, &count.to_string(), &mut report);
                        progress.advance(1.0, "");
                        if load == Load::ALL[Load::ALL.len() - 1] {
                            crowd.clear()?;
                        }
                    }
                    Ok(())
                })();
                match outcome {
                    // It is there to be compared, and does not end what is measured of ours.
                    Err(error) if *front == Front::Ganesha && !matches!(error, Error::Stopped) => {
                        report.notes.push(format!("NFS-Ganesha, {}: {error}", clients(*count)));
                    }
                    outcome => outcome?,
                }
                portal.settle()?;
            }
        }
        Ok(())
    })();
    progress.end();
    drop(cleared);
    report.conditions.seconds = setup.seconds();
    let measured = report.rows.iter().any(|row| row.values.len() > 1);
    tell(&mut report, &sizes.clients);
    let ComparisonReport { rows, notes, conditions, .. } = &mut report;
    let early = results::early(done, measured, &*rows, notes, conditions)?;
    report.goals = judge(&report.rows);
    report.summary = summary(&report.goals);
    report.notes.extend(notes_of_every_run());
    report.notes.push(match lacks {
        None => "NFS-Ganesha exports the mount of the same pool. It is started anew for each cold read."
            .to_owned(),
        Some(reason) => format!("NFS-Ganesha takes no part: {reason}"),
    });
    report.commands = shell.history();
    comparison::write(report, &setup.out, early, request.document.markdown.as_deref())
}

/// The export that the clients mount.
fn export(beside: Option<&Ganesha>, portal: &Portal) -> Export {
    beside.map_or_else(|| portal.export(), |ganesha| ganesha.export(portal.place()))
}

fn clients(count: u32) -> String {
    if count == 1 { "1 client".to_owned() } else { format!("{count} clients") }
}

/// The limit: transfers without a file system, on a way of the same kind.
fn measure_bare(
    remote: &Remote,
    request: &ScaleRequest,
    sizes: &Sizes,
    report: &mut ComparisonReport,
) -> Result<(), Error> {
    let place = Path::new("the store");
    let link =
        Link::start(remote.socket, request.conditions()).map_err(Error::io("open a link before", place))?;
    let bare = Bare::new(remote, &link.address().to_string(), &format!("{}/bare", remote.prefix))?;
    for load in [Load::Write, Load::Read] {
        let (before, passed) = (used(&[])?, link.counts());
        let rate = if load == Load::Write { bare.write(sizes.bytes)? } else { bare.read(sizes.bytes)? };
        let seconds = sizes.bytes as f64 / 1e6 / rate;
        let (used, passed) = (used(&[])?.since(before), link.counts().since(&passed));
        Cost { bytes: sizes.bytes, seconds, used, passed }.tell(load, Front::Ours, "bare", report);
    }
    bare.clear()
}

/// Seconds of processor time: of this process, which has the clients, the link and the store, and
/// of the servers: the daemon, and Ganesha before it.
#[derive(Clone, Copy)]
struct Used {
    here: f64,
    servers: f64,
}

fn used(servers: &[u32]) -> Result<Used, Error> {
    Ok(Used { here: processor_seconds(&[std::process::id()])?, servers: processor_seconds(servers)? })
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
    fn tell(&self, load: Load, front: Front, arm: &str, report: &mut ComparisonReport) {
        let row = front.row(load.key(), load.label(), "MB/s", true, "All clients together.");
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
            let row = front.row(
                &format!("{}_cpu_{key}", load.key()),
                &format!("{}: processor time {label}", load.label()),
                "s for 1 GB",
                false,
                "Everything: clients, link and store, which are this process, and the daemon; with Ganesha both servers.",
            );
            report.add(&row, arm, seconds / (self.bytes as f64 / 1e9));
        }
        let row = front.row(
            &format!("{}_requests", load.key()),
            &format!("{}: requests of the store", load.label()),
            "for 1 GB",
            false,
            "As the link counts them.",
        );
        report.add(&row, arm, self.passed.requests.iter().sum::<u64>() as f64 / (self.bytes as f64 / 1e9));
    }
}

/// Clients at once, each a thread of this process with a connection and a file of its own.
struct Crowd<'a> {
    export: Export,
    count: u32,
    round: u32,
    sizes: &'a Sizes,
}

impl Crowd<'_> {
    /// Bytes of all clients together, and seconds from the moment at which all are connected until
    /// the last has ended.
    fn work(&self, load: Load) -> Result<(u64, f64), Error> {
        let done = at_once(
            self.count,
            |number| self.connect(number),
            |number, (client, file)| self.transfer(load, number, client, file),
        );
        done.map_err(failed(load.label()))
    }

    fn connect(&self, number: u32) -> std::io::Result<(Client, Handle)> {
        let (mut client, top) = self.export.client()?;
        // There already, but for the first load.
        let file = client.create(&top, &self.name(number))?;
        Ok((client, file))
    }

    fn name(&self, number: u32) -> String {
        format!("of{}-{number}-{}", self.count, self.round)
    }

    /// Removes the files: each round begins alike.
    fn clear(&self) -> Result<(), Error> {
        let removed = self.export.client().and_then(|(mut client, top)| {
            (0..self.count).try_for_each(|number| client.remove(&top, &self.name(number)))
        });
        removed.map_err(failed("remove the files of"))
    }

    fn transfer(&self, load: Load, number: u32, client: &mut Client, file: &[u8]) -> std::io::Result<u64> {
        let records = (self.sizes.bytes / u64::from(self.count) / TRANSFER as u64).max(1);
        let transfers = (self.sizes.transfers / u64::from(self.count)).max(1);
        let mut noise = Noise::new(u64::from(number) + 1);
        let mut data = vec![0; TRANSFER];
        noise.fill(&mut data);
        let count = match load {
            Load::Write | Load::Read => records,
            Load::RandomWrite | Load::RandomRead => transfers,
        };
        for record in 0..count {
            let at = match load {
                Load::Write | Load::Read => record,
                Load::RandomWrite | Load::RandomRead => noise.below(records),
            } * TRANSFER as u64;
            match load {
                Load::Write | Load::RandomWrite => {
                    data[..8].copy_from_slice(&(at ^ record).to_le_bytes());
                    client.write(file, at, &data, Stable::Unstable)?;
                }
                Load::Read | Load::RandomRead if client.read(file, at, TRANSFER)? != TRANSFER => {
                    return Err(std::io::Error::other("a file is shorter than it was written"));
                }
                Load::Read | Load::RandomRead => {}
            }
        }
        if matches!(load, Load::Write | Load::RandomWrite) {
            client.commit(file)?;
        }
        Ok(count * TRANSFER as u64)
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

/// Rows and the picture that follow from the rates.
fn tell(report: &mut ComparisonReport, clients: &[u32]) {
    let fronts = [Front::Ours, Front::Ganesha];
    let keys =
        fronts.iter().flat_map(|front| Load::ALL.map(|load| front.row(load.key(), "", "", true, "").key));
    let rows: Vec<Row> = keys.filter_map(|key| report.row(&key)).cloned().collect();
    let series = rows.iter().map(|row| Series {
        label: row.label.clone(),
        calculated: false,
        points: clients
            .iter()
            .filter_map(|count| Some((f64::from(*count), row.median(&count.to_string())?)))
            .collect(),
    });
    report.charts.push(Chart {
        key: "rates".to_owned(),
        title: "All clients together".to_owned(),
        how: "Each client is a thread of the lab with a connection and a file of its own.".to_owned(),
        x: Axis::log("clients"),
        y: Axis::linear("MB/s"),
        limit: None,
        series: series.collect(),
    });
    for row in rows {
        let measured = |most: &u32| row.values.contains_key(&most.to_string());
        for most in [100, 1_000].into_iter().filter(measured) {
            let told = Row::new(
                &format!("{}_fall", row.key),
                &format!("{}: slower than the best from 10 clients on", row.label),
                "%",
                false,
                "How far the rate is below the best of fewer clients.",
            );
            for percent in falls(&row, clients, most) {
                report.add(&told, &most.to_string(), percent);
            }
        }
    }
}

fn judge(rows: &[Row]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for load in [Load::Write, Load::Read] {
        let key = format!("{}_fall", load.key());
        for (most, limit) in [("100", 5.0), ("1000", 15.0)] {
            let has = rows.iter().any(|row| row.key == key && row.values.contains_key(most));
            let text = format!("{}: flat within {limit} % to {most} clients", load.label());
            goals.extend(bound(rows, &key, most, Bound::AtMost(limit), &text).filter(|_| has));
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
fn notes_of_every_run() -> Vec<String> {
    vec![
        "It repeats figure 5 of the Iris paper: 250 to 280 MB/s for 10 to 100 clients, falling a little at 100, on other \
         machines and another network."
            .to_owned(),
        "Each client is a thread of the lab's process with a connection and a file of its own, and one call at a time. \
         Clients, portal, link and store share the processors of this machine, which bound most rates: no rate can be \
         above their number over the processor time of everything."
            .to_owned(),
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
        tell(&mut report, &clients);
        let goals = judge(&report.rows);
        assert_eq!((goals.len(), goals[0].verdict), (1, Verdict::NotMet));
        assert_eq!(report.charts[0].series[0].points.len(), 4);
    }
}
