//! `steadfast lab run iris-cache`: how large the cache of tree nodes has to be.

mod request;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use steadfast_lab_network::Conditions;
use steadfast_lab_report::figures::goals::{Bound, bound, summary};
use steadfast_lab_report::figures::{ArmInfo, Axis, Chart, Goal, Row, Series, shown};

pub(crate) use request::CacheRequest;

use super::client::{Client, Handle, Stable, failed};
use super::portal::Portal;
use super::split::NodeUse;
use crate::bucket::Cleared;
use crate::bucket::remote::Remote;
use crate::comparison::{self, ComparisonReport, Heading};
use crate::context::Context;
use crate::error::Error;
use crate::host::progress::Progress;
use crate::host::requirements::{check_fuse, check_room, check_root};
use crate::load::files::Noise;
use crate::results::{self, Results};
use crate::setup::Setup;
use request::Sizes;

/// Bytes of a transfer of the large file.
const RECORD: usize = 64 << 10;
/// Files of a folder of the tree.
const FOLDER: u64 = 100;
/// A time within this of that with the largest cache is as good.
const AS_GOOD: f64 = 1.15;
/// Bytes for content at each size: room to read ahead of a client 100 ms away, and too little to
/// hold the tree or the file.
const CONTENT: u64 = 32 << 20;

/// Work of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Load {
    Untar,
    Tar,
    Iozone,
    Sequential,
    Random,
}

impl Load {
    const ALL: [Load; 5] = [Load::Untar, Load::Tar, Load::Iozone, Load::Sequential, Load::Random];

    fn key(self) -> &'static str {
        match self {
            Load::Untar => "untar",
            Load::Tar => "tar",
            Load::Iozone => "iozone",
            Load::Sequential => "sequential",
            Load::Random => "random",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Load::Untar => "untar",
            Load::Tar => "tar",
            Load::Iozone => "IOzone's sequence",
            Load::Sequential => "sequential read",
            Load::Random => "random read",
        }
    }
}

/// Seconds of a load with one size of the cache, and the use of the cache.
struct Point {
    round_trip: Duration,
    cache: u64,
    load: Load,
    seconds: f64,
    nodes: NodeUse,
}

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early.
pub fn run(
    request: &CacheRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Results<ComparisonReport>, Error> {
    check_fuse()?;
    check_root("it drops the kernel's caches", "steadfast lab run iris-cache")?;
    let (parent, sizes) = (request.places.parent(), request.sizes());
    check_room(parent, 4 << 30, "name another directory with --dir DIR.")?;
    let remote = Remote::open(None)?;
    let setup = Setup::new("iris-cache", request.places.out.as_deref(), parent)?;
    let mut shell = setup.shell(context, stop)?;
    let arm =
        |load: Load| ArmInfo { key: load.key().to_owned(), label: load.label().to_owned(), missing: None };
    let mut report = ComparisonReport::new(
        Some(heading()),
        setup.conditions(format!("Steadfast {} on {}", context.version, remote.label), request.repeat(), 1),
        format!(
            "tree of {} files of {} bytes, file of {} MiB in records of 4 KiB, {} random reads of 64 KiB",
            sizes.files.0,
            sizes.files.1,
            sizes.large >> 20,
            sizes.reads
        ),
        Load::ALL.map(arm).to_vec(),
    );
    let cleared = Cleared(&remote);
    let trips = request.round_trips();
    let mut progress = Progress::new((trips.len() * (sizes.caches.len() * Load::ALL.len() + 2)) as f64);
    let mut points = Vec::new();
    let done = trips.iter().try_for_each(|round_trip| {
        progress.begin(&format!("making a portal {} ms away", round_trip.as_millis()));
        let conditions = Conditions { round_trip: *round_trip, rate: None, loss: None };
        let portal = Portal::make(&setup, context, &remote, conditions, &["recordsize=4K"], &mut shell)?;
        let mut hands = Hands::fill(portal, &sizes)?;
        progress.advance(2.0, "");
        for (number, cache) in sizes.caches.iter().enumerate() {
            for load in Load::ALL {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
                progress.begin(&format!(
                    "{} ms, {} KiB: {}",
                    round_trip.as_millis(),
                    cache >> 10,
                    load.label()
                ));
                let (seconds, nodes) = hands.measure(load, *cache, number)?;
                points.push(Point { round_trip: *round_trip, cache: *cache, load, seconds, nodes });
                progress.advance(1.0, "");
            }
        }
        Ok(())
    });
    progress.end();
    drop(cleared);
    report.conditions.seconds = setup.seconds();
    tell(&mut report, &points);
    let measured = !report.rows.is_empty();
    let ComparisonReport { rows, notes, conditions, .. } = &mut report;
    let early = results::early(done, measured, &*rows, notes, conditions)?;
    report.goals = judge(&report.rows);
    report.summary = summary(&report.goals);
    report.notes.extend(notes_of_every_run());
    report.commands = shell.history();
    comparison::write(report, &setup.out, early, request.document.markdown.as_deref())
}

/// State while one portal is measured.
struct Hands<'a, 's> {
    portal: Portal<'a>,
    client: Client,
    top: Handle,
    sizes: &'s Sizes,
    noise: Noise,
}

const TREE: &str = "tree";
const LARGE: &str = "large";

impl<'a, 's> Hands<'a, 's> {
    fn fill(portal: Portal<'a>, sizes: &'s Sizes) -> Result<Hands<'a, 's>, Error> {
        let (client, top) = portal.client()?;
        let mut hands = Hands { portal, client, top, sizes, noise: Noise::new(11) };
        hands.untar(TREE).map_err(failed("fill"))?;
        let top = hands.top.clone();
        let large = hands.client.create(&top, LARGE).map_err(failed("fill"))?;
        hands.pass(&large, true).map_err(failed("fill"))?;
        hands.portal.settle()?;
        Ok(hands)
    }

    /// Does a load with nothing in memory and a cache of this size. `number` tells trees apart.
    fn measure(&mut self, load: Load, cache: u64, number: usize) -> Result<(f64, NodeUse), Error> {
        self.portal.cold()?;
        // The pool gets its share of what the daemon has.
        self.portal.set_caches(cache, CONTENT)?;
        let began = Instant::now();
        self.act(load, number).map_err(failed(load.label()))?;
        if matches!(load, Load::Untar | Load::Iozone) {
            self.portal.settle()?;
        }
        let seconds = began.elapsed().as_secs_f64();
        Ok((seconds, self.portal.node_cache()?))
    }

    fn act(&mut self, load: Load, number: usize) -> std::io::Result<()> {
        match load {
            Load::Untar => self.untar(&format!("{TREE}{number}")),
            Load::Tar => self.tar(),
            Load::Iozone => {
                let large = self.client.lookup(&self.top, LARGE)?;
                // Rewrite, read, reread, random read, random write.
                self.pass(&large, true)?;
                self.pass(&large, false)?;
                self.pass(&large, false)?;
                self.random(&large, false)?;
                self.random(&large, true)
            }
            Load::Sequential => {
                let large = self.client.lookup(&self.top, LARGE)?;
                self.pass(&large, false)
            }
            Load::Random => {
                let large = self.client.lookup(&self.top, LARGE)?;
                self.random(&large, false)
            }
        }
    }

    fn untar(&mut self, name: &str) -> std::io::Result<()> {
        let tree = self.client.mkdir(&self.top, name)?;
        let mut content = vec![0; self.sizes.files.1];
        let mut folder = Handle::new();
        for file in 0..self.sizes.files.0 {
            if file % FOLDER == 0 {
                folder = self.client.mkdir(&tree, &format!("folder{}", file / FOLDER))?;
            }
            self.noise.fill(&mut content);
            let made = self.client.create(&folder, &format!("a file of the tree {file}"))?;
            self.client.write(&made, 0, &content, Stable::Unstable)?;
        }
        Ok(())
    }

    fn tar(&mut self) -> std::io::Result<()> {
        let tree = self.client.lookup(&self.top, TREE)?;
        let mut read = 0;
        for folder in self.client.list(&tree)? {
            for file in self.client.list(&folder)? {
                read += self.client.read(&file, 0, RECORD)? as u64;
            }
        }
        let expected = self.sizes.files.0 * self.sizes.files.1 as u64;
        match read == expected {
            true => Ok(()),
            false => Err(std::io::Error::other(format!("{read} bytes were read, not {expected}"))),
        }
    }

    /// The large file from its beginning to its end.
    fn pass(&mut self, large: &[u8], writes: bool) -> std::io::Result<()> {
        let mut data = vec![0; RECORD];
        for offset in (0..self.sizes.large).step_by(RECORD) {
            if writes {
                self.noise.fill(&mut data);
                self.client.write(large, offset, &data, Stable::Unstable)?;
            } else {
                self.client.read(large, offset, RECORD)?;
            }
        }
        if writes { self.client.commit(large) } else { Ok(()) }
    }

    fn random(&mut self, large: &[u8], writes: bool) -> std::io::Result<()> {
        let mut data = vec![0; RECORD];
        for _ in 0..self.sizes.reads {
            let offset = self.noise.below(self.sizes.large / RECORD as u64) * RECORD as u64;
            if writes {
                self.noise.fill(&mut data);
                self.client.write(large, offset, &data, Stable::Unstable)?;
            } else {
                self.client.read(large, offset, RECORD)?;
            }
        }
        if writes { self.client.commit(large) } else { Ok(()) }
    }
}

/// Millions of bytes.
fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// The least size whose time is as good as that of the largest.
fn knee(curve: &[(u64, f64)]) -> Option<u64> {
    let (_, last) = curve.last()?;
    curve.iter().find(|(_, seconds)| *seconds <= AS_GOOD * last).map(|(cache, _)| *cache)
}

/// Rows and pictures.
fn tell(report: &mut ComparisonReport, points: &[Point]) {
    let mut trips: Vec<Duration> = points.iter().map(|point| point.round_trip).collect();
    trips.dedup();
    // A tar reads and writes nothing, so the nodes that are held then were read.
    let tars = || points.iter().filter(|point| point.load == Load::Tar);
    let node = tars().next_back().and_then(|point| point.nodes.node_bytes());
    let x = match node {
        Some(bytes) => format!("node cache, MB (1 MB = {} nodes)", shown(1e6 / bytes)),
        None => "node cache, MB".to_owned(),
    };
    let nodes =
        |cache: u64| node.map_or(String::new(), |bytes| format!(", {} nodes", shown(cache as f64 / bytes)));
    for trip in trips {
        let ms = trip.as_millis();
        let of =
            |load: Load| points.iter().filter(move |point| point.round_trip == trip && point.load == load);
        let knees = Row::new(
            &format!("knee_{ms}"),
            &format!("knee at a round trip of {ms} ms"),
            "MB",
            false,
            "The least size of the node cache whose time is within 15 % of that with the largest one.",
        );
        let line = |load: Load, value: fn(&Point) -> f64| Series {
            label: load.label().to_owned(),
            calculated: false,
            points: of(load).map(|point| (mb(point.cache), value(point))).collect(),
        };
        let chart = |key: &str, title: &str, y: &str, series: Vec<Series>| Chart {
            key: format!("{key}_{ms}"),
            title: format!("{title}, round trip {ms} ms"),
            how: "Each load begins with nothing in memory.".to_owned(),
            x: Axis::log(&x),
            y: Axis::linear(y),
            limit: None,
            series,
        };
        report.charts.push(chart(
            "time",
            "Time of each load",
            "s",
            Load::ALL.map(|load| line(load, |p| p.seconds)).into(),
        ));
        report.charts.push(chart(
            "hits",
            "Nodes found in the cache",
            "%",
            Load::ALL.map(|load| line(load, |point| point.nodes.hit_rate())).into(),
        ));
        for load in Load::ALL {
            let curve: Vec<(u64, f64)> = of(load).map(|point| (point.cache, point.seconds)).collect();
            if let Some(knee) = knee(&curve) {
                report.add(&knees, load.key(), mb(knee));
            }
        }
        for load in Load::ALL {
            for point in of(load) {
                let size = format!("{} MB{}", shown(mb(point.cache)), nodes(point.cache));
                let key = format!("{ms}_{}", point.cache);
                let row =
                    Row::new(&format!("time_{key}"), &format!("{ms} ms, {size}"), "s", false, "Wall time.");
                report.add(&row, load.key(), point.seconds);
                let label = format!("{ms} ms, {size}: found");
                let row = Row::new(&format!("hits_{key}"), &label, "%", true, "By the daemon's counters.");
                report.add(&row, load.key(), point.nodes.hit_rate());
            }
        }
    }
}

fn judge(rows: &[Row]) -> Vec<Goal> {
    let knees: Vec<&Row> = rows.iter().filter(|row| row.key.starts_with("knee_")).collect();
    let mut goals = Vec::new();
    for row in knees {
        for load in [Load::Tar, Load::Untar, Load::Iozone] {
            let text = format!("{}: {} at most 5 MB (paper: 5 to 10 MB)", load.label(), row.label);
            // 5 MiB are a little more.
            goals.extend(bound(rows, &row.key, load.key(), Bound::AtMost(5.3), &text));
        }
    }
    goals
}

fn heading() -> Heading {
    Heading {
        name: "iris-cache".to_owned(),
        title: "How large the portal's cache of tree nodes has to be".to_owned(),
        question: "From which size on does a larger cache gain nothing, at each distance of the store?"
            .to_owned(),
        base: ("tar".to_owned(), "tar".to_owned()),
    }
}

/// Notes for every run.
fn notes_of_every_run() -> Vec<String> {
    vec![
        "It repeats figure 4 of the Iris paper, in which tar, untar and IOzone gained up to 5 to 10 MB (10,000 to 20,000 \
         nodes of some 500 bytes). Our nodes are larger; the axis has both."
            .to_owned(),
        "All work is done by the lab's NFS client, which caches nothing. Each load begins cold. Content has a cache of 32 MiB \
         at each size, less than the tree and the file take. The file has records of 4 KiB, as the paper's blocks."
            .to_owned(),
        "IOzone's sequence is rewrite, read, reread, random read and random write of 64 KiB, with a commit behind each \
         that writes. untar and that sequence end when the store has everything."
            .to_owned(),
        "A ratio to tar says nothing here; compare within a column.".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_the_least_size_that_is_as_good_as_the_largest() {
        assert_eq!(knee(&[(1, 9.0), (2, 4.4), (3, 4.1), (4, 4.0)]), Some(2));
        assert_eq!(knee(&[(1, 9.0), (4, 4.0)]), Some(4));
        assert_eq!(knee(&[]), None);
    }

    #[test]
    fn each_load_is_a_line_and_its_knee_is_judged() {
        let nodes = NodeUse { bytes: 4e6, hits: 3.0, misses: 1_001.0, evictions: 1.0 };
        let point = |cache, load, seconds| Point {
            round_trip: Duration::from_millis(20),
            cache,
            load,
            seconds,
            nodes,
        };
        let sizes = [(100_000, 8.0), (20_000_000, 2.0)];
        let points: Vec<Point> = sizes
            .into_iter()
            .flat_map(|(cache, seconds)| Load::ALL.map(|load| point(cache, load, seconds)))
            .collect();
        let mut report = crate::comparison::tests::report("none", false, &[]);
        tell(&mut report, &points);
        assert_eq!((report.charts.len(), report.charts[0].series.len()), (2, 5));
        assert_eq!(report.charts[0].x.label, "node cache, MB (1 MB = 250 nodes)");
        assert_eq!(report.row("knee_20").unwrap().median("tar"), Some(20.0));
        assert!(report.row("time_20_100000").unwrap().label.contains("0.10 MB, 25.0 nodes"));
        assert_eq!(judge(&report.rows).len(), 3);
    }
}
