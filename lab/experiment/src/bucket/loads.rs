//! The work, and how it is counted.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use steadfast_lab_network::Counts;
use steadfast_lab_report::figures::Row;

use super::arm::{Arm, Kind};
use super::bare::Bare;
use super::remote::Remote;
use super::request::Sizes;
use super::zerofs::{self, Server};
use crate::comparison::ComparisonReport;
use crate::error::Error;
use crate::host::commands::quoted;
use crate::host::progress::Progress;
use crate::host::shell::Shell;
use crate::load::files::{self, Blocks, Noise};

/// Steps of one client, for the progress bar.
pub(super) fn steps(kind: Kind, sizes: &Sizes) -> f64 {
    match kind {
        Kind::Ours { .. } => 12.0 + sizes.commits as f64,
        _ => 6.0,
    }
}

/// A step of a stranger that has not ended by then is given up.
const STRANGERS_LIMIT: Duration = Duration::from_secs(300);

/// State while one client is measured.
pub(super) struct Hands<'a> {
    pub arm: &'a mut Arm,
    pub remote: &'a Remote,
    pub shell: &'a mut Shell,
    pub report: &'a mut ComparisonReport,
    pub progress: &'a mut Progress,
    pub round_trip: Duration,
    pub sizes: Sizes,
    /// Archive of the tree.
    pub archive: &'a Path,
    /// Bytes of the tree's files.
    pub tree_bytes: u64,
    pub round: u32,
    /// Steps of this client, and when they began and ended: for the picture.
    pub steps: Vec<(&'static str, Instant, Instant)>,
}

/// One step as it was counted.
struct Taken {
    seconds: f64,
    counts: Counts,
}

fn trips(taken: &Taken, round_trip: Duration) -> f64 {
    taken.seconds / round_trip.as_secs_f64().max(1e-9)
}

/// Row of a rate.
pub(super) fn rate(key: &str, label: &str, how: &str) -> Row {
    Row::new(key, label, "MB/s", true, how)
}

impl Hands<'_> {
    fn add(&mut self, row: &Row, value: f64) {
        self.report.add(row, self.arm.key, value);
    }

    /// Does a step, and counts what passes meanwhile. The time in which a client that had ended was
    /// watched does not count.
    fn take(
        &mut self,
        step: &'static str,
        work: impl FnOnce(&mut Self) -> Result<Duration, Error>,
    ) -> Result<Taken, Error> {
        let round = self.round;
        self.progress.begin(&format!("round {round}: {}, {step}", self.arm.key));
        let (before, began) = (self.arm.link.counts(), Instant::now());
        let watched = work(self)?;
        let ended = Instant::now();
        self.steps.push((step, began, ended));
        self.progress.advance(1.0, "");
        let seconds = (ended - began).saturating_sub(watched).as_secs_f64();
        Ok(Taken { seconds, counts: self.arm.link.counts().since(&before) })
    }

    fn rate(&mut self, row: &Row, taken: &Taken, bytes: u64) {
        self.add(row, bytes as f64 / 1e6 / taken.seconds);
        self.requests(&row.key, &row.label, taken);
    }

    fn requests(&mut self, key: &str, label: &str, taken: &Taken) {
        let row = Row::new(
            &format!("{key}_requests"),
            label,
            "requests",
            false,
            "Counted by the link as they pass.",
        );
        self.add(&row, taken.counts.total() as f64);
    }

    fn waits(&mut self, key: &str, label: &str, taken: &Taken) {
        self.add(&Row::new(key, label, "s", false, "Wall time of the command."), taken.seconds);
        let row = Row::new(
            &format!("{key}_trips"),
            label,
            "round trips",
            false,
            "Wall time over the round trip: what the client waits for, its own work included.",
        );
        self.add(&row, trips(taken, self.round_trip));
        let row = Row::new(
            &format!("{key}_rows"),
            label,
            "requests in a row",
            false,
            "Longest row of requests that each left after the one before was answered, counted by the link.",
        );
        self.add(&row, taken.counts.round_trips as f64);
        self.requests(key, label, taken);
    }

    fn cold(&mut self) -> Result<(), Error> {
        self.arm.release(self.shell)?;
        self.arm.reopen(self.remote, self.shell)
    }

    /// A line that a stranger gets a limited time for.
    fn line(&mut self, line: &str) -> Result<(), Error> {
        if let Kind::Ours { .. } = self.arm.kind {
            return self.shell.run(line).map(drop);
        }
        match self.shell.run_within(line, STRANGERS_LIMIT)? {
            Some(_) => Ok(()),
            None => Err(Error::Answer {
                line: line.to_owned(),
                answer: format!("no end within {} s", STRANGERS_LIMIT.as_secs()),
                expected: "an end",
            }),
        }
    }

    /// A step of a client that is asked by NFS.
    fn by_nfs(&self, step: impl FnOnce(&Server) -> io::Result<()>) -> Result<Duration, Error> {
        let failed = Error::io("work in", Path::new("ZeroFS"));
        step(self.arm.server()).map(|()| Duration::ZERO).map_err(failed)
    }

    /// Everything, on one client.
    pub fn measure(&mut self) -> Result<(), Error> {
        self.file()?;
        self.tree()?;
        if let Kind::Ours { .. } = self.arm.kind {
            self.listed()?;
            self.small()?;
            self.whole()?;
            self.memory()?;
        }
        self.space()
    }

    fn file(&mut self) -> Result<(), Error> {
        let path = self.arm.place().join("large");
        let bytes = self.sizes.file;
        let io = Error::io("work in", &path);
        let mut blocks = Blocks::new(u64::from(self.round), 1.0);
        let seed = u64::from(self.round);
        let taken = self.take("write", |hands| {
            if hands.arm.kind == Kind::ZeroFs {
                return hands.by_nfs(|server| zerofs::write_large(server, bytes, seed));
            }
            files::write(&path, bytes, &mut blocks).map_err(io)?;
            hands.arm.settle(hands.shell)
        })?;
        let row = rate(
            "write",
            "sequential write, durable",
            "A new file of incompressible data, until the store has it.",
        );
        self.rate(&row, &taken, bytes);
        self.cold()?;
        let io = Error::io("work in", &path);
        let taken = self.take("read", |hands| match hands.arm.kind {
            Kind::ZeroFs => hands.by_nfs(|server| zerofs::read_large(server, bytes)),
            _ => files::read(&path).map(|_| Duration::ZERO).map_err(io),
        })?;
        let row = rate(
            "read",
            "sequential read, cold",
            "The same file, after everything was closed and opened again.",
        );
        self.rate(&row, &taken, bytes);
        Ok(())
    }

    fn tree(&mut self) -> Result<(), Error> {
        let place = quoted(&self.arm.place().display().to_string());
        let archive = quoted(&self.archive.display().to_string());
        let sources = self.sizes.sources;
        let taken = self.take("untar", |hands| {
            if hands.arm.kind == Kind::ZeroFs {
                return hands.by_nfs(|server| zerofs::unpack(server, sources));
            }
            hands.line(&format!("tar -xf {archive} -C {place}"))?;
            hands.arm.settle(hands.shell)
        })?;
        self.waits("untar", "unpack a tree of small files, durable", &taken);
        self.cold()?;
        let taken = self.take("ls", |hands| {
            if hands.arm.kind == Kind::ZeroFs {
                return hands.by_nfs(|server| zerofs::list(server).map(drop));
            }
            hands.line(&format!("ls -lR {place}/tree > /dev/null")).map(|()| Duration::ZERO)
        })?;
        self.waits("ls", "ls -lR of that tree, cold", &taken);
        self.cold()?;
        let taken = self.take("tar", |hands| {
            if hands.arm.kind == Kind::ZeroFs {
                return hands.by_nfs(zerofs::pack);
            }
            hands.line(&format!("tar -cf - -C {place} tree | cat > /dev/null")).map(|()| Duration::ZERO)
        })?;
        self.waits("tar", "tar of that tree, cold", &taken);
        Ok(())
    }

    /// Directories of empty files.
    fn listed(&mut self) -> Result<(), Error> {
        let (folders, each) = self.sizes.listed;
        let place = self.arm.place().join("many");
        let io = |place: &Path| Error::io("work in", place);
        fs::create_dir(&place).map_err(io(&place))?;
        for folder in 0..folders {
            let folder = place.join(format!("d{folder}"));
            fs::create_dir(&folder).map_err(io(&folder))?;
            files::create(&folder, 0, each).map_err(io(&folder))?;
        }
        self.arm.settle(self.shell)?;
        self.arm.release(self.shell)?;
        self.arm.quiet()?;
        let taken = self
            .take("import", |hands| hands.arm.reopen(hands.remote, hands.shell).map(|()| Duration::ZERO))?;
        self.waits("import", "import", &taken);
        let shown = quoted(&place.display().to_string());
        let taken = self.take("ls of many", |hands| {
            hands.line(&format!("ls -lR {shown} > /dev/null")).map(|()| Duration::ZERO)
        })?;
        let label = format!("ls -lR of {} files in {folders} directories, cold", folders * each);
        self.waits("many", &label, &taken);
        Ok(())
    }

    /// Commits of one change, and fsync.
    fn small(&mut self) -> Result<(), Error> {
        let path = self.arm.place().join("one");
        let io = |path: &Path| Error::io("write", path);
        fs::write(&path, [1; 4096]).map_err(io(&path))?;
        self.arm.settle(self.shell)?;
        let commits = self.sizes.commits;
        let mut longest = Vec::new();
        for number in 0..commits {
            fs::write(&path, [number as u8; 4096]).map_err(io(&path))?;
            // The commit before goes on behind its answer, with its deletes.
            self.arm.quiet()?;
            let sync = self.arm.ours(&format!("pool sync {}", self.arm.pool()));
            let taken = self.take("commit", |hands| hands.shell.run(&sync).map(|_| Duration::ZERO))?;
            longest.push(taken);
        }
        longest.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let middle = &longest[longest.len() / 2];
        self.waits("commit", "commit of one change", middle);
        let list = self.arm.ours("pool list");
        let taken = self.take("command", |hands| hands.shell.run(&list).map(|_| Duration::ZERO))?;
        self.waits("command", "a command that asks nothing of the store", &taken);
        let syncs = self.sizes.syncs;
        let mut noise = Noise::new(u64::from(self.round));
        let taken = self.take("fsync", |_| {
            files::random_writes(&path, syncs, true, &mut noise).map(|_| Duration::ZERO).map_err(io(&path))
        })?;
        // One more ends the load.
        let each = (syncs + 1) as f64;
        let label = "write of 4 KiB and fsync";
        let requests =
            Row::new("fsync_requests", label, "requests", false, "Counted by the link, for each fsync.");
        self.add(&requests, taken.counts.total() as f64 / each);
        let row = Row::new("fsync", label, "ms", false, "Wall time for each fsync.");
        self.add(&row, taken.seconds * 1e3 / each);
        Ok(())
    }

    /// Everything that is stored: scrub, and a stream.
    fn whole(&mut self) -> Result<(), Error> {
        let bytes = self.sizes.file + self.tree_bytes;
        self.cold()?;
        let scrub = self.arm.ours(&format!("pool scrub -w {}", self.arm.pool()));
        let taken = self.take("scrub", |hands| hands.shell.run(&scrub).map(|_| Duration::ZERO))?;
        self.rate(
            &rate("scrub", "scrub of everything", "Bytes of the files over the wall time."),
            &taken,
            bytes,
        );
        let name = format!("{}@all", self.arm.pool());
        let snapshot = self.arm.ours(&format!("fs snapshot {name}"));
        self.shell.run(&snapshot)?;
        self.cold()?;
        let send = self.arm.ours(&format!("fs send {name} | cat > /dev/null"));
        let taken = self.take("send", |hands| hands.shell.run(&send).map(|_| Duration::ZERO))?;
        self.rate(
            &rate("send", "send of everything, cold", "Bytes of the files over the wall time."),
            &taken,
            bytes,
        );
        Ok(())
    }

    /// The most that the daemon ever held in memory, beside what it may hold.
    fn memory(&mut self) -> Result<(), Error> {
        let line = self.arm.ours("daemon memory -j");
        let answer = self.shell.ask(&line)?;
        let bytes = |document: &serde_json::Value, key: &str| {
            document["memory"][key]
                .as_str()
                .map_or_else(|| document["memory"][key].as_f64(), |n| n.parse().ok())
        };
        let figures = serde_json::from_str(&answer).ok().and_then(|document| {
            let set = ["node_cache_bytes", "block_cache_bytes", "dirty_bytes"];
            let set: Option<Vec<f64>> = set.iter().map(|key| bytes(&document, key)).collect();
            Some((bytes(&document, "resident_max")?, set?.iter().sum::<f64>()))
        });
        let Some((most, set)) = figures else {
            return Err(Error::Answer { line, answer, expected: "sizes of memory" });
        };
        let row = Row::new(
            "memory",
            "memory of the daemon, at most",
            "MB",
            false,
            "Resident, the most since it began, as the kernel counts it.",
        );
        self.add(&row, most / 1e6);
        let row = Row::new(
            "memory_share",
            "the same of what is set",
            "times",
            false,
            "Over the sizes set for nodes, blocks and changes together.",
        );
        self.add(&row, most / set);
        Ok(())
    }

    fn space(&mut self) -> Result<(), Error> {
        self.arm.settle(self.shell)?;
        let beside = Bare::new(self.remote, &self.remote.socket.to_string(), &self.arm.prefix)?;
        let (objects, bytes) = beside.stored()?;
        let content = (self.sizes.file + self.tree_bytes) as f64;
        let row = Row::new(
            "space",
            "bytes in the bucket for each byte of content",
            "times",
            false,
            "Listed by the store before anything is removed.",
        );
        self.add(&row, bytes as f64 / content);
        let row = Row::new("objects", "objects in the bucket", "objects", false, "Listed by the store.");
        self.add(&row, objects as f64);
        let place = quoted(&self.arm.place().display().to_string());
        let sources = self.sizes.sources;
        let taken = self.take("rm", |hands| {
            if hands.arm.kind == Kind::ZeroFs {
                return hands.by_nfs(|server| zerofs::remove(server, sources));
            }
            hands.line(&format!("rm -r {place}/tree"))?;
            hands.arm.settle(hands.shell)
        })?;
        self.waits("rm", "remove the tree, durable", &taken);
        Ok(())
    }
}
