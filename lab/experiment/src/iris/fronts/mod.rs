//! `steadfast lab run iris-fronts`: the daemon's NFS server beside NFS-Ganesha on the same pool.
//!
//! ```text
//!                    ┌─ NFS server of the daemon ─┐
//! clients of the lab ┤                            ├─ one pool on this machine
//!                    └─ NFS-Ganesha ─ FUSE mount ─┘
//!                    └─ NFS-Ganesha ─ ext4
//! ```

mod request;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_lab_report::figures::goals::{ratio, summary};
use steadfast_lab_report::figures::{ArmInfo, Goal, Row};
use steadfast_lab_report::number;

pub(crate) use request::FrontsRequest;

use super::client::{Client, Export, Handle, Stable, TRANSFER, failed};
use super::crowd::at_once;
use super::ganesha::{self, Ganesha};
use super::portal::listening;
use crate::comparison::{self, ComparisonReport, Heading};
use crate::context::Context;
use crate::error::Error;
use crate::file_systems::{Arms, Kind, Recipe};
use crate::host::processes::processor_seconds;
use crate::host::progress::Progress;
use crate::host::requirements::{check_fuse, check_room, check_root};
use crate::host::shell::Shell;
use crate::load::files::{Noise, SMALL};
use crate::results::{self, Results};
use crate::setup::Setup;
use request::Sizes;

/// Columns: key and heading.
const COLUMNS: [(&str, &str); 4] = [
    ("ours", "Steadfast"),
    ("unsynced", "Steadfast, sync=disabled"),
    ("ganesha", "Ganesha on the same pool"),
    ("ext4", "Ganesha on ext4"),
];

/// Work of the clients, in its order: each finds what the ones before it left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Work {
    StreamWrite,
    StreamRead,
    SmallRead,
    SmallWrite,
    DurableWrite,
    Create,
    Getattr,
    Lookup,
    List,
    Remove,
}

impl Work {
    const ALL: [Work; 10] = [
        Work::StreamWrite,
        Work::StreamRead,
        Work::SmallRead,
        Work::SmallWrite,
        Work::DurableWrite,
        Work::Create,
        Work::Getattr,
        Work::Lookup,
        Work::List,
        Work::Remove,
    ];

    fn key(self) -> &'static str {
        match self {
            Work::StreamWrite => "stream_write",
            Work::StreamRead => "stream_read",
            Work::SmallRead => "small_read",
            Work::SmallWrite => "small_write",
            Work::DurableWrite => "durable_write",
            Work::Create => "create",
            Work::Getattr => "getattr",
            Work::Lookup => "lookup",
            Work::List => "list",
            Work::Remove => "remove",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Work::StreamWrite => "sequential write 1 MiB, COMMIT at the end",
            Work::StreamRead => "sequential read 1 MiB, warm",
            Work::SmallRead => "4 KiB random read, warm",
            Work::SmallWrite => "4 KiB random write, COMMIT at the end",
            Work::DurableWrite => "4 KiB random write, FILE_SYNC",
            Work::Create => "CREATE",
            Work::Getattr => "GETATTR",
            Work::Lookup => "LOOKUP",
            Work::List => "READDIRPLUS, names",
            Work::Remove => "REMOVE",
        }
    }

    fn is_stream(self) -> bool {
        matches!(self, Work::StreamWrite | Work::StreamRead)
    }

    fn row(self, count: u32) -> Row {
        let unit = if self.is_stream() { "MB/s" } else { "1/s" };
        Row::new(&key(self.key(), count), &label(self.label(), count), unit, true, "All clients together.")
    }
}

fn key(work: &str, count: u32) -> String {
    if count == 1 { work.to_owned() } else { format!("{work}_many") }
}

fn label(work: &str, count: u32) -> String {
    if count == 1 { format!("{work}, 1 client") } else { format!("{work}, {count} clients") }
}

/// A server that is measured.
struct Front {
    key: &'static str,
    export: Export,
    /// Processes that do its work.
    processes: Vec<u32>,
}

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early. That Ganesha is not installed is no failure.
pub fn run(
    request: &FrontsRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Results<ComparisonReport>, Error> {
    check_fuse()?;
    check_root("it mounts a loop device and starts a server", "steadfast lab run iris-fronts")?;
    let (parent, sizes) = (request.places.parent(), request.sizes());
    check_room(parent, 12 * sizes.stream, "name another directory with --dir DIR.")?;
    let setup = Setup::new("iris-fronts", request.places.out.as_deref(), parent)?;
    let mut shell = setup.shell(context, stop)?;
    let missing = ganesha::lacks();
    let mut report = ComparisonReport::new(
        Some(heading()),
        setup.conditions(format!("Steadfast {}", context.version), request.repeat(), request.rounds()),
        format!(
            "{} file, {} names, {} small operations, {} of them durable each; all clients together",
            number::bytes(sizes.stream),
            sizes.files,
            sizes.small,
            sizes.durable
        ),
        COLUMNS
            .map(|(key, label)| ArmInfo {
                key: key.to_owned(),
                label: label.to_owned(),
                missing: missing.clone().filter(|_| matches!(key, "ganesha" | "ext4")),
            })
            .to_vec(),
    );
    let widths = [1, request.crowd()];
    let steps = request.rounds() as usize * COLUMNS.len() * widths.len() * Work::ALL.len();
    let mut progress = Progress::new(steps as f64 + 5.0);
    progress.begin("making the file systems");
    let image_bytes = (8 * sizes.stream).max(1 << 30);
    let recipes = [
        ("pool", Kind::Ours { words: "-O compression=off", property: None }),
        ("ext4", Kind::Loop { file_system: "ext4", words: "-q", options: "" }),
    ];
    let recipes = recipes.map(|(key, kind)| Recipe { key, label: key, kind, image_bytes });
    let mut arms = Arms::new(recipes.to_vec(), &setup.workdir, context, &mut shell)?;
    let done = (|| {
        // It ends before the file systems that it exports.
        let mut server = None;
        let fronts = begin(&mut arms, missing.is_none(), &setup, &mut server, &mut shell)?;
        progress.advance(5.0, "");
        for round in 0..request.rounds() as usize {
            for count in widths {
                let mut order: Vec<&Front> = fronts.iter().collect();
                order.rotate_left(round % fronts.len());
                for front in order {
                    let crowd = Crowd { front, count, round, sizes };
                    crowd.all(&mut report, &mut progress, stop)?;
                }
            }
        }
        Ok(())
    })();
    progress.end();
    drop(arms);
    report.conditions.seconds = setup.seconds();
    let measured = !report.rows.is_empty();
    let ComparisonReport { rows, notes, conditions, .. } = &mut report;
    let early = results::early(done, measured, &*rows, notes, conditions)?;
    report.goals = judge(&report.rows, widths);
    report.summary = summary(&report.goals);
    report.notes.extend(notes_of_every_run());
    report.commands = shell.history();
    comparison::write(report, &setup.out, early, request.document.markdown.as_deref())
}

/// Shares the pool and starts Ganesha, if there is one.
fn begin(
    arms: &mut Arms,
    has_ganesha: bool,
    setup: &Setup,
    server: &mut Option<Ganesha>,
    shell: &mut Shell,
) -> Result<Vec<Front>, Error> {
    let ext4 = arms.get("ext4").map(|arm| arm.place());
    let Some(pool) = arms.get("pool") else { return Ok(Vec::new()) };
    let (name, place) = (pool.pool(), pool.place());
    let shared = "sharenfs=insecure,no_root_squash";
    shell.run(&pool.ours(&format!("fs set {shared} {name}")))?;
    shell.run(&pool.ours(&format!("fs create -o sync=disabled {name}/unsynced")))?;
    let address = listening(&shell.ask(&pool.ours("fs share"))?)?;
    let daemon = pool.daemon(shell)?;
    let ours = |key, path| {
        let export = Export { nfs: address, mount: address, path };
        Front { key, export, processes: vec![daemon] }
    };
    let mut fronts = vec![ours("ours", place.clone()), ours("unsynced", place.join("unsynced"))];
    if has_ganesha {
        let exports: Vec<PathBuf> = [Some(place), ext4].into_iter().flatten().collect();
        let home = setup.workdir.subdirectory("ganesha")?;
        let ganesha = server.insert(Ganesha::start(&home, &exports)?);
        let processes = [vec![ganesha.process(), daemon], vec![ganesha.process()]];
        for ((key, path), processes) in ["ganesha", "ext4"].into_iter().zip(exports).zip(processes) {
            fronts.push(Front { key, export: ganesha.export(path), processes });
        }
    }
    Ok(fronts)
}

impl Front {
    /// Seconds of processor time that its processes have used.
    fn processor_seconds(&self) -> Result<f64, Error> {
        processor_seconds(&self.processes)
    }
}

/// Clients of one server.
struct Crowd<'a> {
    front: &'a Front,
    count: u32,
    round: usize,
    sizes: Sizes,
}

/// A client with a directory and a file of its own.
struct Ready {
    client: Client,
    directory: Handle,
    file: Handle,
}

const LARGE: &str = "large";

impl Crowd<'_> {
    /// Does all work, and takes the large files away.
    fn all(
        &self,
        report: &mut ComparisonReport,
        progress: &mut Progress,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        for work in Work::ALL {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            progress.begin(&format!("{}: {}", self.front.key, label(work.label(), self.count)));
            let before = self.front.processor_seconds()?;
            let (done, seconds) = self.at_once(work)?;
            let used = self.front.processor_seconds()? - before;
            let unit = if work.is_stream() { 1e6 } else { 1.0 };
            report.add(&work.row(self.count), self.front.key, done as f64 / unit / seconds);
            if work.is_stream() {
                let row = Row::new(
                    &key(&format!("{}_cpu", work.key()), self.count),
                    &label(&format!("{}: processor time", work.label()), self.count),
                    "s for 1 GB",
                    false,
                    "Of the server's processes; with Ganesha on the pool, of Ganesha and the daemon.",
                );
                report.add(&row, self.front.key, used / (done as f64 / 1e9));
            }
            progress.advance(1.0, "");
        }
        let clear = |_, ready: &mut Ready| ready.client.remove(&ready.directory, LARGE).map(|()| 0);
        at_once(0..self.count, |number| self.connect(number), || Ok(()), clear)
            .map_err(failed("remove files of"))?;
        Ok(())
    }

    fn at_once(&self, work: Work) -> Result<(u64, f64), Error> {
        let act = |number, ready: &mut Ready| self.act(work, number, ready);
        at_once(0..self.count, |number| self.connect(number), || Ok(()), act).map_err(failed(work.label()))
    }

    /// Connects. Directory and file are made by the first work.
    fn connect(&self, number: u32) -> std::io::Result<Ready> {
        let (mut client, top) = self.front.export.client()?;
        let name = format!("{}-{}-{}-{number}", self.front.key, self.round, self.count);
        let directory = client.lookup(&top, &name).or_else(|_| client.mkdir(&top, &name))?;
        let file = client.create(&directory, LARGE)?;
        Ok(Ready { client, directory, file })
    }

    fn act(&self, work: Work, number: u32, ready: &mut Ready) -> std::io::Result<u64> {
        let Ready { client, directory, file } = ready;
        let share = |all: u64| (all / u64::from(self.count)).max(1);
        let (files, small) = (share(self.sizes.files), share(self.sizes.small));
        let transfers = share(self.sizes.stream / TRANSFER as u64);
        let pages = transfers * (TRANSFER / SMALL) as u64;
        let mut noise = Noise::new(u64::from(number) + 1);
        let mut data = vec![0; TRANSFER];
        noise.fill(&mut data);
        let wrong = |what: String| Err(std::io::Error::other(what));
        let (count, bytes) = match work {
            Work::StreamWrite | Work::StreamRead => (transfers, TRANSFER),
            Work::DurableWrite => (share(self.sizes.durable), SMALL),
            Work::SmallRead | Work::SmallWrite | Work::Getattr => (small, SMALL),
            Work::Create | Work::Lookup | Work::Remove => (files, 0),
            Work::List => (1, 0),
        };
        for at in 0..count {
            let name = || format!("name-{at}");
            match work {
                Work::StreamWrite | Work::SmallWrite | Work::DurableWrite => {
                    data[..8].copy_from_slice(&noise.number().to_le_bytes());
                    let page = if work.is_stream() { at } else { noise.below(pages) };
                    let stable = if work == Work::DurableWrite { Stable::FileSync } else { Stable::Unstable };
                    client.write(file, page * bytes as u64, &data[..bytes], stable)?;
                }
                Work::StreamRead | Work::SmallRead => {
                    let page = if work.is_stream() { at } else { noise.below(pages) };
                    let read = client.read(file, page * bytes as u64, bytes)?;
                    if read != bytes {
                        return wrong(format!("{read} of {bytes} bytes were read"));
                    }
                }
                Work::Create => drop(client.create(directory, &name())?),
                Work::Getattr => client.getattr(file)?,
                Work::Lookup => drop(client.lookup(directory, &name())?),
                Work::Remove => client.remove(directory, &name())?,
                Work::List => {
                    let names = client.list(directory)?.len() as u64;
                    if names != files + 1 {
                        return wrong(format!("{names} names of {} were listed", files + 1));
                    }
                }
            }
        }
        if matches!(work, Work::StreamWrite | Work::SmallWrite) {
            client.commit(file)?;
        }
        Ok(match work {
            Work::StreamWrite | Work::StreamRead => count * TRANSFER as u64,
            Work::List => files + 1,
            _ => count,
        })
    }
}

fn judge(rows: &[Row], widths: [u32; 2]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for count in widths {
        for work in Work::ALL {
            let (key, label) = (key(work.key(), count), label(work.label(), count));
            let text = format!("{label}: at least 1.5 times as fast as Ganesha on the same pool");
            goals.extend(ratio(rows, &key, "ours", "ganesha", 1.5, &text));
        }
        for work in [Work::StreamWrite, Work::StreamRead] {
            let (key, label) = (key(&format!("{}_cpu", work.key()), count), label(work.label(), count));
            let text = format!("{label}: at most half of Ganesha's processor time");
            goals.extend(ratio(rows, &key, "ours", "ganesha", 2.0, &text));
        }
    }
    goals
}

fn heading() -> Heading {
    Heading {
        name: "iris-fronts".to_owned(),
        title: "The NFS server of the daemon beside NFS-Ganesha".to_owned(),
        question:
            "Is a server inside the daemon worth having, or does a known one over the mount do as well?"
                .to_owned(),
        base: ("ganesha".to_owned(), "Ganesha on the same pool".to_owned()),
    }
}

/// Notes for every run.
fn notes_of_every_run() -> Vec<String> {
    vec![
        "All servers speak NFS version 3 over TCP to the same client of the lab, on this machine; each client is a \
         thread with a connection, a directory and a file of its own, and one call at a time."
            .to_owned(),
        "The pool is an image file on this machine, compression off, not encrypted; ext4 is on a loop device of the same \
         size, whose kernel threads are not in the processor time."
            .to_owned(),
        "CREATE and REMOVE are durable when our server answers, as RFC 1813 asks. Ganesha with its FSAL_VFS does not \
         wait for that: the column with sync=disabled promises as little."
            .to_owned(),
        "Clients and servers share the processors of this machine, and the client takes its part of every operation."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_lab_report::figures::Verdict;

    #[test]
    fn rates_and_processor_time_are_judged_beside_ganesha() {
        let mut rows = Vec::new();
        for (name, more, ours, theirs) in
            [("create", true, 30.0, 20.0), ("stream_read_cpu_many", false, 1.0, 1.9)]
        {
            let mut row = Row::new(name, "", "", more, "");
            row.values.insert("ours".to_owned(), vec![ours]);
            row.values.insert("ganesha".to_owned(), vec![theirs]);
            rows.push(row);
        }
        let goals = judge(&rows, [1, 8]);
        let verdicts: Vec<_> = goals.iter().map(|goal| (goal.row.as_str(), goal.verdict)).collect();
        assert_eq!(verdicts, [("create", Verdict::Met), ("stream_read_cpu_many", Verdict::NotMet)]);
    }
}
