//! `steadfast lab run iris-latency`: how long an operation of an NFS client takes, hot and cold,
//! and where its time goes.

mod request;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use steadfast_lab_report::figures::goals::{Bound, bound, summary};
use steadfast_lab_report::figures::stack::{Bar, Stack};
use steadfast_lab_report::figures::{ArmInfo, Goal, Row};

pub(crate) use request::LatencyRequest;

use super::client::{Client, Handle, Stable, TRANSFER, failed};
use super::ganesha::{self, Ganesha};
use super::portal::Portal;
use super::split::Totals;
use crate::bucket::Cleared;
use crate::bucket::remote::Remote;
use crate::comparison::{self, ComparisonReport, Heading};
use crate::context::Context;
use crate::error::Error;
use crate::host::progress::Progress;
use crate::host::requirements::{check_fuse, check_room, check_root};
use crate::load::files::{self, Noise};
use crate::results::{self, Results};
use crate::setup::Setup;
use request::Sizes;

/// Keys and headings of the columns.
const ARMS: [(&str, &str); 4] = [
    ("cold", "cold"),
    ("hot", "hot"),
    ("ganesha_cold", "NFS-Ganesha, cold"),
    ("ganesha_hot", "NFS-Ganesha, hot"),
];
/// Keys of its columns begin with it.
const GANESHA: &str = "ganesha";

/// An operation as a client sees it: all calls of it, one after the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Operation {
    Create1,
    Create3,
    List,
    Read,
    Write,
    Remove,
}

impl Operation {
    const ALL: [Operation; 6] = [
        Operation::Create1,
        Operation::Create3,
        Operation::List,
        Operation::Read,
        Operation::Write,
        Operation::Remove,
    ];

    fn key(self) -> &'static str {
        match self {
            Operation::Create1 => "create1",
            Operation::Create3 => "create3",
            Operation::List => "list",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Remove => "remove",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Operation::Create1 => "create, depth 1",
            Operation::Create3 => "create, depth 3",
            Operation::List => "list",
            Operation::Read => "read 1 MB",
            Operation::Write => "write 1 MB",
            Operation::Remove => "remove",
        }
    }
}

/// Seconds of some operations of one kind, by where they went.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    client: f64,
    portal: f64,
    reads: f64,
    writes: f64,
}

impl Parts {
    const NAMES: [&'static str; 4] =
        ["client and its way", "portal", "waiting for reads: store", "waiting for writes: log, store"];

    /// Of an operation that took so long at the client.
    fn of(seconds: f64, totals: Totals) -> Parts {
        let Totals { own, reads, writes, .. } = totals;
        Parts { client: (seconds - own - reads - writes).max(0.0), portal: own, reads, writes }
    }

    fn total(&self) -> f64 {
        self.client + self.portal + self.reads + self.writes
    }

    fn plus(self, more: Parts) -> Parts {
        Parts {
            client: self.client + more.client,
            portal: self.portal + more.portal,
            reads: self.reads + more.reads,
            writes: self.writes + more.writes,
        }
    }

    fn share(&self) -> f64 {
        100.0 * self.portal / self.total().max(1e-9)
    }

    fn bar(&self, label: &str, count: f64, trips: Option<f64>) -> Bar {
        let values = [self.client, self.portal, self.reads, self.writes];
        let note = match trips {
            Some(trips) => format!("portal {:.0} %, {trips:.1} trips", self.share()),
            None => format!("portal {:.0} %", self.share()),
        };
        Bar {
            label: label.to_owned(),
            values: values.iter().map(|value| value * 1e3 / count.max(1.0)).collect(),
            note,
        }
    }
}

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early.
pub fn run(
    request: &LatencyRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Results<ComparisonReport>, Error> {
    check_fuse()?;
    check_root("it drops the kernel's caches", "steadfast lab run iris-latency")?;
    let (parent, sizes) = (request.places.parent(), request.sizes());
    check_room(parent, 4 << 30, "name another directory with --dir DIR.")?;
    let remote = Remote::open(None)?;
    let setup = Setup::new("iris-latency", request.places.out.as_deref(), parent)?;
    let mut shell = setup.shell(context, stop)?;
    let round_trip = request.round_trip();
    let lacks = ganesha::lacks();
    let mut report = ComparisonReport::new(
        Some(heading()),
        setup.conditions(
            format!(
                "Steadfast {} on {}, round trip {} ms",
                context.version,
                remote.label,
                round_trip.as_millis()
            ),
            request.repeat(),
            1,
        ),
        format!(
            "{} other files, a directory of {} names, {} cold and {} hot samples of each operation",
            sizes.others, sizes.listed, sizes.cold, sizes.hot
        ),
        ARMS.map(|(key, label)| ArmInfo {
            key: key.to_owned(),
            label: label.to_owned(),
            missing: lacks.clone().filter(|_| key.starts_with(GANESHA)),
        })
        .to_vec(),
    );
    let cleared = Cleared(&remote);
    let servers = if lacks.is_none() { 2.0 } else { 1.0 };
    let mut progress = Progress::new(servers * Operation::ALL.len() as f64 * f64::from(sizes.cold + 1) + 2.0);
    progress.begin("making the portal");
    let done =
        Portal::make(&setup, context, &remote, request.conditions(), &[], &mut shell).and_then(|portal| {
            let mut hands = Hands::fill(portal, sizes, round_trip)?;
            progress.advance(2.0, "");
            hands.measure(&mut report, &mut progress, stop)?;
            match lacks {
                None => hands.measure_beside(&setup, &mut report, &mut progress, stop),
                Some(_) => Ok(()),
            }
        });
    progress.end();
    drop(cleared);
    report.conditions.seconds = setup.seconds();
    let measured = !report.rows.is_empty();
    let ComparisonReport { rows, notes, conditions, .. } = &mut report;
    let early = results::early(done, measured, &*rows, notes, conditions)?;
    report.goals = judge(&report.rows);
    report.summary = summary(&report.goals);
    report.notes.extend(notes_of_every_run());
    report.commands = shell.history();
    comparison::write(report, &setup.out, early, request.document.markdown.as_deref())
}

/// State while the portal is measured.
struct Hands<'a> {
    portal: Portal<'a>,
    client: Client,
    top: Handle,
    sizes: Sizes,
    round_trip: Duration,
    data: Vec<u8>,
    /// Number of the next operation, which new names have.
    next: u64,
    /// Files of the fill that were removed.
    removed: u64,
}

const LISTED: &str = "listed";
const DEEP: [&str; 2] = ["one", "two"];
const LARGE: &str = "large";

impl<'a> Hands<'a> {
    /// Fills the pool by the local mount, which is quick.
    fn fill(mut portal: Portal<'a>, sizes: Sizes, round_trip: Duration) -> Result<Hands<'a>, Error> {
        let place = portal.place();
        let io = |path: &std::path::Path| Error::io("fill", path);
        let folders = ["others", LISTED, "one", "one/two"];
        for (folder, names) in folders.into_iter().zip([sizes.others, sizes.listed, 50, 50]) {
            let folder = place.join(folder);
            fs::create_dir(&folder).map_err(io(&folder))?;
            files::create(&folder, 0, names).map_err(io(&folder))?;
        }
        let mut data = vec![0; TRANSFER];
        Noise::new(7).fill(&mut data);
        let large = place.join(LARGE);
        fs::write(&large, &data).map_err(io(&large))?;
        // Each of two servers removes some.
        for number in 0..2 * u64::from(sizes.cold + sizes.hot) {
            let path = place.join(format!("old{number}"));
            fs::write(&path, b"").map_err(io(&path))?;
        }
        portal.settle()?;
        let (client, top) = portal.client()?;
        Ok(Hands { portal, client, top, sizes, round_trip, data, next: 0, removed: 0 })
    }

    fn measure(
        &mut self,
        report: &mut ComparisonReport,
        progress: &mut Progress,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let mut shares = [0.0; 2];
        let mut bars: [Vec<Bar>; 2] = Default::default();
        let trip = self.round_trip.as_secs_f64();
        let mut first_trips = None;
        for operation in Operation::ALL {
            let (mut trips, mut cold) = (Vec::new(), Parts::default());
            for sample in 1..=self.sizes.cold {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
                progress.begin(&format!("{}, cold, {sample}", operation.label()));
                self.portal.cold()?;
                let parts =
                    self.sample(operation, 1, &mut |seconds| add(report, operation, "cold", seconds))?;
                trips.push(parts.reads / trip.max(1e-9));
                cold = cold.plus(parts);
                progress.advance(1.0, "");
            }
            progress.begin(&format!("{}, hot", operation.label()));
            let hot = self
                .sample(operation, self.sizes.hot, &mut |seconds| add(report, operation, "hot", seconds))?;
            progress.advance(1.0, "");
            if !self.round_trip.is_zero() {
                let row = Row::new(
                    &format!("{}_trips", operation.key()),
                    operation.label(),
                    "round trips waited for",
                    false,
                    "Time that the portal waited for reads over the round trip.",
                );
                trips.iter().for_each(|trips| report.add(&row, "cold", *trips));
                trips.sort_by(f64::total_cmp);
                let middle = trips[trips.len() / 2];
                let first = *first_trips.get_or_insert(middle);
                if matches!(operation, Operation::Create3 | Operation::List) {
                    let row = Row::new(
                        &format!("{}_more", operation.key()),
                        operation.label(),
                        "round trips more than create at depth 1",
                        false,
                        "Difference of the medians.",
                    );
                    report.add(&row, "cold", middle - first);
                }
            }
            for (at, (heat, parts, count)) in
                [("cold", cold, self.sizes.cold), ("hot", hot, self.sizes.hot)].into_iter().enumerate()
            {
                let row = Row::new(
                    &format!("{}_share", operation.key()),
                    operation.label(),
                    "% of the time in the portal",
                    false,
                    "The portal's own processing over the time at the client.",
                );
                report.add(&row, heat, parts.share());
                let mean = f64::from(count);
                let of_trips = (at == 0 && !self.round_trip.is_zero()).then(|| cold.reads / trip / mean);
                bars[at].push(parts.bar(operation.label(), mean, of_trips));
                shares[at] += parts.share();
            }
        }
        let row = Row::new(
            "share",
            "all six operations",
            "% of the time in the portal",
            false,
            "Mean of the shares of the six operations.",
        );
        for (heat, sum) in ["cold", "hot"].into_iter().zip(shares) {
            report.add(&row, heat, sum / Operation::ALL.len() as f64);
        }
        for ((heat, title), bars) in
            [("cold", "Cold: nothing in memory"), ("hot", "Hot: everything in memory")].into_iter().zip(bars)
        {
            report.stacks.push(Stack {
                key: heat.to_owned(),
                title: title.to_owned(),
                how: "Mean of the samples; the parts by the portal's own counters.".to_owned(),
                unit: "ms".to_owned(),
                parts: Parts::NAMES.map(str::to_owned).to_vec(),
                bars,
            });
        }
        Ok(())
    }

    /// The same operations by NFS-Ganesha over the mount of the same pool, by the client's clock.
    fn measure_beside(
        &mut self,
        setup: &Setup,
        report: &mut ComparisonReport,
        progress: &mut Progress,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let home = setup.workdir.subdirectory("ganesha")?;
        for operation in Operation::ALL {
            let mut server = None;
            for sample in 1..=self.sizes.cold {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
                progress.begin(&format!("{}, by NFS-Ganesha, cold, {sample}", operation.label()));
                // A pool that is exported has no server over its mount.
                drop(server.take());
                self.portal.cold()?;
                let place = self.portal.place();
                let begun = server.insert(Ganesha::start(&home, std::slice::from_ref(&place))?);
                (self.client, self.top) = begun.export(place).client().map_err(failed("mount"))?;
                self.timed(operation, 1, &mut |seconds| add(report, operation, ARMS[2].0, seconds))?;
                progress.advance(1.0, "");
            }
            progress.begin(&format!("{}, by NFS-Ganesha, hot", operation.label()));
            self.timed(operation, self.sizes.hot, &mut |seconds| add(report, operation, ARMS[3].0, seconds))?;
            progress.advance(1.0, "");
        }
        Ok(())
    }

    /// Does an operation so many times. Returns the sum of its parts.
    fn sample(
        &mut self,
        operation: Operation,
        count: u32,
        tell: &mut dyn FnMut(f64),
    ) -> Result<Parts, Error> {
        let before = self.portal.totals()?;
        let seconds = self.timed(operation, count, tell)?;
        Ok(Parts::of(seconds, self.portal.totals()?.since(before)))
    }

    /// Does an operation so many times. Returns the sum of its seconds.
    fn timed(&mut self, operation: Operation, count: u32, tell: &mut dyn FnMut(f64)) -> Result<f64, Error> {
        let mut seconds = 0.0;
        for _ in 0..count {
            let began = Instant::now();
            self.act(operation).map_err(failed(operation.label()))?;
            let one = began.elapsed().as_secs_f64();
            tell(one);
            seconds += one;
        }
        Ok(seconds)
    }

    fn act(&mut self, operation: Operation) -> std::io::Result<()> {
        self.next += 1;
        let (next, client) = (self.next, &mut self.client);
        match operation {
            Operation::Create1 => client.create(&self.top, &format!("new{next}")).map(drop),
            Operation::Create3 => {
                let one = client.lookup(&self.top, DEEP[0])?;
                let two = client.lookup(&one, DEEP[1])?;
                client.create(&two, &format!("new{next}")).map(drop)
            }
            Operation::List => {
                let listed = client.lookup(&self.top, LISTED)?;
                let names = client.list(&listed)?.len() as u64;
                match names == self.sizes.listed {
                    true => Ok(()),
                    false => Err(std::io::Error::other(format!("{names} names were listed"))),
                }
            }
            Operation::Read => {
                let large = client.lookup(&self.top, LARGE)?;
                match client.read(&large, 0, TRANSFER)? {
                    TRANSFER => Ok(()),
                    count => Err(std::io::Error::other(format!("{count} bytes were read"))),
                }
            }
            Operation::Write => {
                let large = client.lookup(&self.top, LARGE)?;
                // Other bytes each time.
                self.data[..8].copy_from_slice(&next.to_le_bytes());
                client.write(&large, 0, &self.data, Stable::Unstable)?;
                client.commit(&large)
            }
            Operation::Remove => {
                self.removed += 1;
                client.remove(&self.top, &format!("old{}", self.removed - 1))
            }
        }
    }
}

fn add(report: &mut ComparisonReport, operation: Operation, heat: &str, seconds: f64) {
    let row =
        Row::new(operation.key(), operation.label(), "ms", false, "Time at the client, all calls of it.");
    report.add(&row, heat, seconds * 1e3);
}

fn judge(rows: &[Row]) -> Vec<Goal> {
    let goals: [(&str, &str, f64, &str); 4] = [
        (
            "share",
            "cold",
            5.0,
            "the portal takes at most 5 % of an operation's time, cold, in the mean (paper: 14 %)",
        ),
        (
            "share",
            "hot",
            10.0,
            "the portal takes at most 10 % of an operation's time, hot, in the mean (paper: 29 %)",
        ),
        ("create3_more", "cold", 2.0, "create at depth 3, cold: at most 2 round trips more than at depth 1"),
        ("list_more", "cold", 2.0, "list, cold: at most 2 round trips more than create at depth 1"),
    ];
    goals
        .into_iter()
        .filter_map(|(row, arm, limit, text)| bound(rows, row, arm, Bound::AtMost(limit), text))
        .collect()
}

fn heading() -> Heading {
    Heading {
        name: "iris-latency".to_owned(),
        title: "Where the time of an operation goes, from an NFS client to a store far away".to_owned(),
        question:
            "How much of it is the portal's own work, how much is waiting, and for how many round trips?"
                .to_owned(),
        base: ("cold".to_owned(), "cold".to_owned()),
    }
}

/// Notes for every run.
fn notes_of_every_run() -> Vec<String> {
    vec![
        "It repeats figure 7 of the Iris paper: portal, network and cloud of create, list, read and write. There the \
         portal took 14 % of the time cold and 29 % hot, on other machines and another network."
            .to_owned(),
        "The portal is a pool on the lab's own store, with log and anchor on this machine, encrypted with AES-256-GCM. \
         Its network to the store is the link; the client is on the same machine, so its part is system calls and the \
         client's own work."
            .to_owned(),
        "Client, portal, link and store share the processors of this machine, so a wait for a processor is in the part \
         of whoever waits; the portal's own part also has its waits for locks."
            .to_owned(),
        "An operation is all calls that a client without a cache makes for it: create at depth 3 is two lookups and a \
         create, read and write begin with a lookup, write ends with a commit, list is READDIRPLUS to its end. Creates \
         and removes are durable when they are answered, by the log on this machine; a commit of 1 MB goes to the store."
            .to_owned(),
        "NFS-Ganesha exports the mount of the same pool; for each cold sample it is started anew, behind the import, and has \
         looked at the top of the export then. It answers creates and removes before they are durable."
            .to_owned(),
        "Cold: exported, caches of the kernel dropped, imported, one commit; the connection goes on. The import itself \
         reads what it needs, and the root of the names with it."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_lab_report::figures::Verdict;

    #[test]
    fn what_no_counter_has_is_the_clients() {
        let totals = Totals { own: 0.1, reads: 0.5, writes: 0.2, requests: 1.0 };
        let parts = Parts::of(1.0, totals);
        assert!((parts.client - 0.2).abs() < 1e-9 && (parts.share() - 10.0).abs() < 1e-9);
        // Counters may have more than the client saw, by what the answer's way took.
        assert!(Parts::of(0.7, totals).client.abs() < 1e-9);
        let bar = parts.plus(parts).bar("create", 2.0, Some(1.5));
        assert_eq!((bar.values[1] * 10.0).round(), 1_000.0);
        assert_eq!(bar.note, "portal 10 %, 1.5 trips");
    }

    #[test]
    fn shares_and_round_trips_are_judged() {
        let mut row = Row::new("share", "", "%", false, "");
        row.values.insert("cold".to_owned(), vec![4.0]);
        row.values.insert("hot".to_owned(), vec![20.0]);
        let goals = judge(&[row]);
        let verdicts: Vec<Verdict> = goals.iter().map(|goal| goal.verdict).collect();
        assert_eq!(verdicts, [Verdict::Met, Verdict::NotMet]);
    }
}
