//! `steadfast lab run iris-latency`: how long an operation of an NFS client takes, hot and cold,
//! and where its time goes.

mod request;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use steadfast_lab_network::{Conditions, Link};
use steadfast_lab_report::figures::goals::{Bound, bound, summary};
use steadfast_lab_report::figures::stack::{Bar, Stack};
use steadfast_lab_report::figures::{ArmInfo, Goal, Row, shown};
use steadfast_lab_report::report::median;

pub(crate) use request::LatencyRequest;

use super::client::{Client, Export, Handle, Stable, TRANSFER, failed};
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
use crate::options::RoundTrip;
use crate::results::{self, Results};
use crate::setup::Setup;
use request::Sizes;

/// Keys of the columns: a client on the same machine, one that is away, and NFS-Ganesha.
const HERE: [&str; 2] = ["cold", "hot"];
const AWAY: [&str; 2] = ["away_cold", "away_hot"];
const GANESHA: [&str; 2] = ["ganesha_cold", "ganesha_hot"];

/// The columns; `away` is the round trip of the client that is away, if there is one.
fn arms(away: Option<RoundTrip>, lacks: Option<&String>) -> Vec<ArmInfo> {
    let arm = |key: &str, label: String, missing: Option<&String>| ArmInfo {
        key: key.to_owned(),
        label,
        missing: missing.cloned(),
    };
    let mut arms: Vec<ArmInfo> = HERE.map(|heat| arm(heat, heat.to_owned(), None)).to_vec();
    for (key, heat) in AWAY.into_iter().zip(HERE) {
        arms.extend(away.map(|away| arm(key, format!("{heat}, client {} away", in_ms(away.0)), None)));
    }
    let ganesha = GANESHA.into_iter().zip(HERE);
    arms.extend(ganesha.map(|(key, heat)| arm(key, format!("NFS-Ganesha, {heat}"), lacks)));
    arms
}

/// A time as a reader knows it: "0.2 ms".
fn in_ms(time: Duration) -> String {
    format!("{} ms", time.as_micros() as f64 / 1e3)
}

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
    network: f64,
    portal: f64,
    reads: f64,
    writes: f64,
}

impl Parts {
    const NAMES: [&'static str; 5] =
        ["client", "client network", "portal", "waiting for reads: store", "waiting for writes: log, store"];

    /// Of operations that took so long at the client, which waited for replies so long.
    fn of(seconds: f64, waited: f64, totals: Totals) -> Parts {
        let Totals { own, reads, writes, .. } = totals;
        Parts {
            client: (seconds - waited).max(0.0),
            network: (waited - own - reads - writes).max(0.0),
            portal: own,
            reads,
            writes,
        }
    }

    fn values(&self) -> [f64; 5] {
        [self.client, self.network, self.portal, self.reads, self.writes]
    }

    fn total(&self) -> f64 {
        self.values().iter().sum()
    }

    fn plus(self, more: Parts) -> Parts {
        Parts {
            client: self.client + more.client,
            network: self.network + more.network,
            portal: self.portal + more.portal,
            reads: self.reads + more.reads,
            writes: self.writes + more.writes,
        }
    }

    fn share(&self) -> f64 {
        100.0 * self.portal / self.total().max(1e-9)
    }

    fn bar(&self, label: &str, count: f64, trips: Option<f64>) -> Bar {
        let values = self.values();
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
    let away = Some(request.client_round_trip()).filter(|away| !away.0.is_zero());
    let lacks = ganesha::lacks();
    let mut report = ComparisonReport::new(
        Some(heading()),
        setup.conditions(
            format!(
                "Steadfast {} on {}, round trip {} ms; to the client {}",
                context.version,
                remote.label,
                round_trip.as_millis(),
                request.client_round_trip()
            ),
            request.repeat(),
            1,
        ),
        format!(
            "{} other files, a directory of {} names, {} cold and {} hot samples of each operation",
            sizes.others, sizes.listed, sizes.cold, sizes.hot
        ),
        arms(away, lacks.as_ref()),
    );
    let cleared = Cleared(&remote);
    let servers = 1.0 + f64::from(u8::from(lacks.is_none())) + f64::from(u8::from(away.is_some()));
    let mut progress = Progress::new(servers * Operation::ALL.len() as f64 * f64::from(sizes.cold + 1) + 2.0);
    progress.begin("making the portal");
    let done =
        Portal::make(&setup, context, &remote, request.conditions(), &[], &mut shell).and_then(|portal| {
            let mut hands = Hands::fill(portal, sizes)?;
            hands.measure_trip(round_trip, &mut report)?;
            progress.advance(2.0, "");
            let _way = away.map(|away| hands.go_away(away.0, &mut report)).transpose()?;
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
    report.goals = judge(&report.rows, away);
    report.summary = summary(&report.goals);
    report.notes.extend(notes_of_every_run());
    report.notes.extend(note_of_away(&report, away));
    report.commands = shell.history();
    comparison::write(report, &setup.out, early, request.document.markdown.as_deref())
}

/// State while the portal is measured.
struct Hands<'a> {
    portal: Portal<'a>,
    /// The client on this machine; behind it the one that is away.
    seats: Vec<Seat>,
    sizes: Sizes,
    /// Seconds of a round trip to the store as it is played, if one is.
    trip: Option<f64>,
    data: Vec<u8>,
    /// Number of the next operation, which new names have.
    next: u64,
    /// Files of the fill that were removed.
    removed: u64,
}

/// A client, the handle of the top, and its columns, cold and hot.
struct Seat {
    client: Client,
    top: Handle,
    arms: [&'static str; 2],
}

/// Round trips that are measured by themselves.
const TRIPS: u32 = 21;
const LISTED: &str = "listed";
const DEEP: [&str; 2] = ["one", "two"];
const LARGE: &str = "large";

impl<'a> Hands<'a> {
    /// Fills the pool by the local mount, which is quick.
    fn fill(mut portal: Portal<'a>, sizes: Sizes) -> Result<Hands<'a>, Error> {
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
        // Each of three clients removes some.
        for number in 0..3 * u64::from(sizes.cold + sizes.hot) {
            let path = place.join(format!("old{number}"));
            fs::write(&path, b"").map_err(io(&path))?;
        }
        portal.settle()?;
        let (client, top) = portal.client()?;
        let seats = vec![Seat { client, top, arms: HERE }];
        Ok(Hands { portal, seats, sizes, trip: None, data, next: 0, removed: 0 })
    }

    /// Measures the round trip to the store by itself: the link, the store and a client's work are
    /// a part of each one that the portal waits for.
    fn measure_trip(&mut self, round_trip: Duration, report: &mut ComparisonReport) -> Result<(), Error> {
        if round_trip.is_zero() {
            return Ok(());
        }
        let seconds = self.portal.trips(TRIPS)?;
        let how = "Ranged reads of 4 KiB on the same way, one after the other.";
        let row = Row::new("trip", "the store's round trip as played", "ms", false, how);
        seconds.iter().for_each(|seconds| report.add(&row, HERE[0], seconds * 1e3));
        self.trip = median(&seconds);
        Ok(())
    }

    /// Gives the portal a client that is so far away, for as long as the link lives. The
    /// link's own cost is measured first, and is a part of the round trip.
    fn go_away(&mut self, round_trip: Duration, report: &mut ComparisonReport) -> Result<Link, Error> {
        let export = self.portal.export();
        let open = |round_trip: Duration| -> Result<(Link, Seat), Error> {
            let link = Link::start(export.nfs, Conditions { round_trip, rate: None, loss: None })
                .map_err(Error::io("open a link before", Path::new("the portal")))?;
            let away = Export { nfs: link.address(), mount: link.address(), path: export.path.clone() };
            let (client, top) = away.client().map_err(failed("mount"))?;
            Ok((link, Seat { client, top, arms: AWAY }))
        };
        let here = getattr(&mut self.seats[0], self.sizes.calls)?;
        let (link, mut seat) = open(Duration::ZERO)?;
        let through = getattr(&mut seat, self.sizes.calls)?;
        drop((link, seat));
        let cost = Duration::from_secs_f64((through - here).max(0.0));
        let (link, mut seat) = open(round_trip.saturating_sub(cost))?;
        let away = getattr(&mut seat, self.sizes.calls)?;
        self.seats.push(seat);
        let how = "Median of the calls, one after the other.";
        let row = Row::new("getattr", "GETATTR, in memory", "ms", false, how);
        report.add(&row, HERE[1], here * 1e3);
        report.add(&row, AWAY[1], away * 1e3);
        let row = Row::new("getattr_cost", "the client's link by itself, a GETATTR", "ms", false, how);
        report.add(&row, AWAY[1], cost.as_secs_f64() * 1e3);
        let row = Row::new("getattr_away", "the client's round trip as played, a GETATTR", "ms", false, how);
        report.add(&row, AWAY[1], (away - here) * 1e3);
        Ok(link)
    }

    fn measure(
        &mut self,
        report: &mut ComparisonReport,
        progress: &mut Progress,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let mut told = vec![Told::default(); self.seats.len()];
        for operation in Operation::ALL {
            let mut cold = vec![Vec::new(); self.seats.len()];
            for sample in 1..=self.sizes.cold {
                for (seat, cold) in cold.iter_mut().enumerate() {
                    if stop.load(Ordering::Relaxed) {
                        return Err(Error::Stopped);
                    }
                    progress.begin(&format!("{}, cold, {sample}", operation.label()));
                    self.portal.cold()?;
                    let key = self.seats[seat].arms[0];
                    cold.push(self.sample(operation, 1, seat, &mut |seconds| {
                        add(report, operation, key, seconds);
                    })?);
                    progress.advance(1.0, "");
                }
            }
            for (seat, cold) in cold.into_iter().enumerate() {
                progress.begin(&format!("{}, hot", operation.label()));
                let key = self.seats[seat].arms[1];
                let hot = self.sample(operation, self.sizes.hot, seat, &mut |seconds| {
                    add(report, operation, key, seconds);
                })?;
                progress.advance(1.0, "");
                let arms = self.seats[seat].arms;
                told[seat].tell(operation, arms, (&cold, self.trip), (hot, self.sizes.hot), report);
            }
        }
        let row = Row::new(
            "share",
            "all six operations",
            "% of the time in the portal",
            false,
            "Mean of the shares of the six operations.",
        );
        let titles = ["Cold: nothing in memory", "Hot: everything in memory"];
        for (seat, told) in self.seats.iter().zip(told) {
            let place = if seat.arms == HERE { "client on the same machine" } else { "client away" };
            for (((arm, title), sum), bars) in
                seat.arms.into_iter().zip(titles).zip(told.shares).zip(told.bars)
            {
                report.add(&row, arm, sum / Operation::ALL.len() as f64);
                report.stacks.push(Stack {
                    key: arm.to_owned(),
                    title: format!("{title}; {place}"),
                    how: "Mean of the samples; the portal's parts by its own counters, the client's by its clock."
                        .to_owned(),
                    unit: "ms".to_owned(),
                    parts: Parts::NAMES.map(str::to_owned).to_vec(),
                    bars,
                });
            }
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
                let (client, top) = begun.export(place).client().map_err(failed("mount"))?;
                self.seats = vec![Seat { client, top, arms: GANESHA }];
                self.timed(operation, 1, 0, &mut |seconds| add(report, operation, GANESHA[0], seconds))?;
                progress.advance(1.0, "");
            }
            progress.begin(&format!("{}, by NFS-Ganesha, hot", operation.label()));
            let hot = self.sizes.hot;
            self.timed(operation, hot, 0, &mut |seconds| add(report, operation, GANESHA[1], seconds))?;
            progress.advance(1.0, "");
        }
        Ok(())
    }

    /// Does an operation so many times. Returns the sum of its parts.
    fn sample(
        &mut self,
        operation: Operation,
        count: u32,
        seat: usize,
        tell: &mut dyn FnMut(f64),
    ) -> Result<Parts, Error> {
        let (before, waited) = (self.portal.totals()?, self.seats[seat].client.waited());
        let seconds = self.timed(operation, count, seat, tell)?;
        let waited = (self.seats[seat].client.waited() - waited).as_secs_f64();
        Ok(Parts::of(seconds, waited, self.portal.totals()?.since(before)))
    }

    /// Does an operation so many times. Returns the sum of its seconds.
    fn timed(
        &mut self,
        operation: Operation,
        count: u32,
        seat: usize,
        tell: &mut dyn FnMut(f64),
    ) -> Result<f64, Error> {
        let mut seconds = 0.0;
        for _ in 0..count {
            let began = Instant::now();
            self.act(operation, seat).map_err(failed(operation.label()))?;
            let one = began.elapsed().as_secs_f64();
            tell(one);
            seconds += one;
        }
        Ok(seconds)
    }

    fn act(&mut self, operation: Operation, seat: usize) -> std::io::Result<()> {
        self.next += 1;
        let next = self.next;
        let Seat { client, top, .. } = &mut self.seats[seat];
        match operation {
            Operation::Create1 => client.create(top, &format!("new{next}")).map(drop),
            Operation::Create3 => {
                let one = client.lookup(top, DEEP[0])?;
                let two = client.lookup(&one, DEEP[1])?;
                client.create(&two, &format!("new{next}")).map(drop)
            }
            Operation::List => {
                let listed = client.lookup(top, LISTED)?;
                let names = client.list(&listed)?.len() as u64;
                match names == self.sizes.listed {
                    true => Ok(()),
                    false => Err(std::io::Error::other(format!("{names} names were listed"))),
                }
            }
            Operation::Read => {
                let large = client.lookup(top, LARGE)?;
                match client.read(&large, 0, TRANSFER)? {
                    TRANSFER => Ok(()),
                    count => Err(std::io::Error::other(format!("{count} bytes were read"))),
                }
            }
            Operation::Write => {
                let large = client.lookup(top, LARGE)?;
                // Other bytes each time.
                self.data[..8].copy_from_slice(&next.to_le_bytes());
                client.write(&large, 0, &self.data, Stable::Unstable)?;
                client.commit(&large)
            }
            Operation::Remove => {
                self.removed += 1;
                client.remove(top, &format!("old{}", self.removed - 1))
            }
        }
    }
}

/// Seconds of a GETATTR of the top, the middle of so many.
fn getattr(seat: &mut Seat, count: u32) -> Result<f64, Error> {
    let one = |_| {
        let began = Instant::now();
        seat.client.getattr(&seat.top).map(|()| began.elapsed().as_secs_f64())
    };
    let times: Vec<f64> = (0..count).map(one).collect::<Result<_, _>>().map_err(failed("GETATTR"))?;
    Ok(median(&times).unwrap_or_default())
}

/// Figures of a client so far.
#[derive(Clone, Default)]
struct Told {
    /// Sums of the portal's shares, cold and hot.
    shares: [f64; 2],
    bars: [Vec<Bar>; 2],
    /// Round trips of the first operation, cold.
    first_trips: Option<f64>,
}

impl Told {
    /// Tells an operation of a client: of `cold` each sample, of `hot` the sum of so many.
    fn tell(
        &mut self,
        operation: Operation,
        arms: [&'static str; 2],
        (cold, trip): (&[Parts], Option<f64>),
        (hot, hot_count): (Parts, u32),
        report: &mut ComparisonReport,
    ) {
        let row = |key: &str, unit: &str, how: &str| {
            Row::new(&format!("{}_{key}", operation.key()), operation.label(), unit, false, how)
        };
        if let Some(trip) = trip {
            let how = "Time that the portal waited for reads over the store's round trip as played.";
            let trips: Vec<f64> = cold.iter().map(|parts| parts.reads / trip).collect();
            let told = row("trips", "round trips waited for", how);
            trips.iter().for_each(|trips| report.add(&told, arms[0], *trips));
            let middle = median(&trips).unwrap_or_default();
            let first = *self.first_trips.get_or_insert(middle);
            if matches!(operation, Operation::Create3 | Operation::List) {
                let told =
                    row("more", "round trips more than create at depth 1", "Difference of the medians.");
                report.add(&told, arms[0], middle - first);
            }
        }
        let sum = cold.iter().fold(Parts::default(), |sum, parts| sum.plus(*parts));
        let both = [(sum, cold.len() as f64), (hot, f64::from(hot_count))];
        for (at, (parts, count)) in both.into_iter().enumerate() {
            let told = row(
                "share",
                "% of the time in the portal",
                "The portal's own processing over the time at the client.",
            );
            report.add(&told, arms[at], parts.share());
            let told = row("own", "ms in the portal", "The portal's own processing, of each cold sample.");
            let each: Vec<f64> = match at {
                0 => cold.iter().map(|parts| parts.portal).collect(),
                _ => vec![parts.portal / count.max(1.0)],
            };
            each.iter().for_each(|seconds| report.add(&told, arms[at], seconds * 1e3));
            let how = "From a call's first byte to its reply's last, without what the portal counts.";
            let told = row("network", "ms in the client network", how);
            report.add(&told, arms[at], parts.network * 1e3 / count.max(1.0));
            let trips = trip.filter(|_| at == 0).map(|trip| parts.reads / trip / count.max(1.0));
            self.bars[at].push(parts.bar(operation.label(), count, trips));
            self.shares[at] += parts.share();
        }
    }
}

fn add(report: &mut ComparisonReport, operation: Operation, heat: &str, seconds: f64) {
    let row =
        Row::new(operation.key(), operation.label(), "ms", false, "Time at the client, all calls of it.");
    report.add(&row, heat, seconds * 1e3);
}

fn judge(rows: &[Row], away: Option<RoundTrip>) -> Vec<Goal> {
    let share = |limit: f64, heat: &str, place: &str, paper: &str| {
        format!(
            "the portal takes at most {limit} % of an operation's time, {heat}{place}, in the mean (paper: {paper})"
        )
    };
    let mut goals = vec![
        ("share", HERE[0], 5.0, share(5.0, "cold", "", "14 %")),
        ("share", HERE[1], 10.0, share(10.0, "hot", "", "29 %")),
    ];
    if let Some(away) = away {
        let place = format!(", client {} away", in_ms(away.0));
        goals.push(("share", AWAY[0], 5.0, share(5.0, "cold", &place, "14 %")));
        goals.push(("share", AWAY[1], 10.0, share(10.0, "hot", &place, "29 %")));
    }
    let more = [
        "create at depth 3, cold: at most 2 round trips more than at depth 1",
        "list, cold: at most 2 round trips more than create at depth 1",
    ];
    goals.push(("create3_more", HERE[0], 2.0, more[0].to_owned()));
    goals.push(("list_more", HERE[0], 2.0, more[1].to_owned()));
    goals
        .into_iter()
        .filter_map(|(row, arm, limit, text)| bound(rows, row, arm, Bound::AtMost(limit), &text))
        .collect()
}

/// A sentence about the link between client and portal, and how exact it is.
fn note_of_away(report: &ComparisonReport, away: Option<RoundTrip>) -> Option<String> {
    let of = |key: &str| report.row(key)?.median(AWAY[1]);
    Some(format!(
        "The client that is away has a link with a round trip of {} before the portal, as in a local network. A GETATTR takes \
         {} ms longer there than on the same machine; {} ms of that are the link's own work, which is a part of the round \
         trip. The link has no limit of its rate: a wire of 10 Gb/s would take 0.84 ms more for 1 MB.",
        in_ms(away?.0),
        shown(of("getattr_away")?),
        shown(of("getattr_cost")?),
    ))
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
         Its network to the store is a link. The client network is what a call and its reply take beside all that the \
         portal counts: for a client on the same machine, system calls and the wait for a processor."
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
        let parts = Parts::of(1.0, 0.95, totals);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(parts.client, 0.05) && near(parts.network, 0.15) && near(parts.share(), 10.0));
        // Counters may have more than the client saw, by what the answer's way took.
        assert!(near(Parts::of(0.7, 0.7, totals).network, 0.0));
        let bar = parts.plus(parts).bar("create", 2.0, Some(1.5));
        assert_eq!(bar.values.len(), Parts::NAMES.len());
        assert_eq!((bar.values[2] * 10.0).round(), 1_000.0);
        assert_eq!(bar.note, "portal 10 %, 1.5 trips");
    }

    #[test]
    fn shares_and_round_trips_are_judged() {
        let mut row = Row::new("share", "", "%", false, "");
        row.values.insert("cold".to_owned(), vec![4.0]);
        row.values.insert("hot".to_owned(), vec![20.0]);
        row.values.insert("away_hot".to_owned(), vec![9.0]);
        let rows = [row];
        let verdicts = |away| judge(&rows, away).iter().map(|goal| goal.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(None), [Verdict::Met, Verdict::NotMet]);
        let away = Some(RoundTrip(Duration::from_micros(200)));
        let [.., cold, hot] = &judge(&rows, away)[..] else { panic!() };
        assert_eq!((cold.verdict, hot.verdict), (Verdict::NotMeasured, Verdict::Met));
        assert!(hot.text.contains("hot, client 0.2 ms away"), "{}", hot.text);
    }

    #[test]
    fn each_client_has_its_columns_and_its_part_of_the_picture() {
        let mut report = crate::comparison::tests::report("none", false, &[]);
        report.rows.clear();
        let part = |reads| Parts { client: 0.1, network: 0.2, portal: 0.1, reads, writes: 0.0 };
        let mut told = Told::default();
        told.tell(Operation::Create1, AWAY, (&[part(0.0)], Some(0.05)), (part(0.0), 2), &mut report);
        told.tell(Operation::List, AWAY, (&[part(0.1), part(0.2)], Some(0.05)), (part(0.0), 2), &mut report);
        let of = |row: &str, arm: &str| report.row(row).unwrap().median(arm).unwrap();
        assert!((of("list_more", "away_cold") - 3.0).abs() < 1e-9, "{}", of("list_more", "away_cold"));
        assert!((of("list_network", "away_cold") - 200.0).abs() < 1e-9);
        assert!((of("list_network", "away_hot") - 100.0).abs() < 1e-9, "of each of two");
        let own = |arm: &str| report.row("list_own").unwrap().values[arm].len();
        assert_eq!((own("away_cold"), own("away_hot")), (2, 1), "each cold sample, one mean of the hot ones");
        assert_eq!(told.bars.each_ref().map(Vec::len), [2, 2]);
        let arms = arms(Some(RoundTrip(Duration::from_micros(200))), Some(&"none".to_owned()));
        assert_eq!(arms[3].label, "hot, client 0.2 ms away");
        assert_eq!(arms.iter().filter(|arm| arm.missing.is_some()).count(), 2);
    }
}
