//! `steadfast lab run recovery`: a device of a redundant pool is flooded with zeros under a live mount; how fast does it heal?
//!
//! ```text
//! rounds × (raidz1, raidz2, btrfs, zfs-fuse): make ─► for 25, 50, 75 %: fill ─► dd, clone, scrub, zero + heal, zero + replace ─► verify
//!                                                     └► raidz1 at 25 %: little and much memory, devices as hard disks, a cache device, a log device
//!         raidz1 of hard disks: small files, cold and again, with more memory, a cache device, special devices
//! ```
//!
//! Like the other experiments it is a stranger to the engine: it types commands and makes system calls. What goes to and from
//! devices is counted by the kernel: for a daemon by its process, for btrfs by its loop devices.
//!
//! ## Invariants
//! (R1) The device's own limit, a plain clone of it, and what reading and writing at once gives are measured in the same run, on the
//!      same devices, before each recovery.
//! (R2) After each recovery everything is read and compared with what was written; what differs ends the experiment, or of a
//!      stranger its round.
//! (R3) What is not installed is a column that says so, never a number. A stranger that does not come to the end of a step keeps its
//!      other figures, and goes on with the next step that means anything: what is wounded is mended before, and where it cannot be,
//!      the next round goes on. The report says which step it was, and why.                        `Hands::step`, `Hands::wounded`
//! (R4) Whatever way it ends, mounts, loop devices, daemons and files are gone.               `Drop` of `Made`
//! (R5) Ctrl-C ends the command that runs, and what takes everything away hears no more of it.   test: `ctrl_c_ends_the_command_that_runs`
//!
//! ## Reading order
//! [`data`] (what a result is), `bench` (one file system), `questions` (small files on slow devices), `page`.

pub(crate) mod args;
mod bench;
pub mod data;
mod page;
mod questions;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime};

pub use args::{RecoveryRequest, USAGE};
pub use page::render;

use crate::Context;
use crate::command::quoted;
use crate::error::Error;
use crate::figures::goals::{self, Bound};
use crate::figures::markdown::{self, Figures};
use crate::figures::{self, ArmInfo, Axis, Chart, Row, Series, shown};
use crate::progress::Progress;
use crate::report::{Conditions, median};
use crate::results::{self, Results};
use crate::shell::Shell;
use crate::target::check_fuse;
use crate::workdir::Workdir;
use crate::{machine, number, sources, space};

use args::MODEL;
use steadfast_lab_workload::cpu::CpuSample;

use bench::{Bench, Kind};
use data::{Course, RecoveryReport, Reported, SCHEMA, VERSION};
use questions::Beside;

/// One line for `lab list`.
pub const ABOUT: &str =
    "a device flooded with zeros: scrub, heal and resilver, beside dd, btrfs and zfs-fuse";
/// Percent of the pool that is filled, as in the source report.
const FILLS: [u32; 3] = [25, 50, 75];
/// Caches of little and of much memory, MiB each.
const MEMORY: [u64; 2] = [16, 1024];
/// Most bytes of the cache device in front of devices that are healed.
const CACHE_BYTES: u64 = 2 << 30;
/// Rough seconds of one stage, for the progress bar.
const STAGE_S: f64 = 10.0;

/// What it left behind.
pub type RecoveryResults = Results<RecoveryReport>;

/// A file system that is taken away in every case (R4).
struct Made {
    bench: Bench,
    shell: Shell,
}

impl Drop for Made {
    fn drop(&mut self) {
        self.bench.remove(&mut self.shell);
    }
}

/// What is at hand while it runs.
struct Hands<'a> {
    shell: &'a mut Shell,
    stop: &'a AtomicBool,
    progress: &'a mut Progress,
    report: &'a mut RecoveryReport,
    round: u32,
    device_bytes: u64,
    /// What stands for a hard disk.
    model: &'static str,
    /// Where images lie, which nobody needs to read in a report.
    below: &'a str,
}

/// Runs it and writes the reports.
///
/// # Errors
/// Whatever keeps it from its end. What is merely not installed does not.
pub fn run(
    request: &RecoveryRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<RecoveryResults, Error> {
    check_fuse()?;
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Missing {
            what: "This needs root: it attaches loop devices and drops the kernel's caches.".to_owned(),
            action: "type `sudo steadfast lab run recovery`.".to_owned(),
        });
    }
    let parent = request.dir.clone().unwrap_or_else(|| PathBuf::from("/var/tmp"));
    let device_bytes = device_bytes(request)?;
    let needed = device_bytes * (args::DEVICES as u64 + 1);
    let available = space::available(&parent)?;
    if request.devices.is_empty() && available < needed {
        return Err(Error::Missing {
            what: format!(
                "{} has {} free, and this needs {}.",
                parent.display(),
                number::bytes(available),
                number::bytes(needed)
            ),
            action: "name another directory with --dir DIR, or smaller devices with --size.".to_owned(),
        });
    }
    let out = results::directory("recovery", request.out.as_deref())?;

    let (started, clock) = (SystemTime::now(), Instant::now());
    let mut report = empty(request, context, device_bytes);
    report.conditions.machine = machine::describe(&parent);
    report.conditions.machine.busy_before_percent = machine::busy();

    let workdir = Workdir::create(&parent)?;
    let mut shell = Shell::new(&context.steadfast, &workdir.subdirectory("said")?).heeding(Arc::clone(stop));
    let arms: Vec<&'static str> = args::ARMS.into_iter().filter(|arm| request.wants(arm)).collect();
    let small = if request.wants("raidz1") { 2.0 } else { 0.0 };
    let stages = f64::from(request.rounds) * (arms.len() as f64 * FILLS.len() as f64 + small);
    let mut progress = Progress::new(stages * STAGE_S);
    let below = format!("{}/", workdir.path().display());
    let done = (1..=request.rounds).try_for_each(|round| {
        for (at, key) in arms.iter().enumerate() {
            // What did not come to its end in one round may in the next; what cannot take part cannot.
            let bench = bench_of(key, request, &workdir, device_bytes, round)?;
            if let Some(lacks) = bench.lacks() {
                report.arms[at].missing = Some(lacks);
                continue;
            }
            let last = Shell::new(&context.steadfast, &workdir.subdirectory("said-last")?);
            let mut made = Made { bench, shell: last };
            let hands = Hands {
                shell: &mut shell,
                stop,
                progress: &mut progress,
                report: &mut report,
                round,
                device_bytes,
                model: request.model(),
                below: &below,
            };
            match hands.measure(&mut made.bench) {
                // A stranger that does not do here what it should is a column that says so and keeps what it has (R3); one of
                // ours ends the run.
                Err(error) if ends_a_round(key, &error) => {
                    let why = format!("round {round}: {}", said(&error, &below));
                    let missing = &mut report.arms[at].missing;
                    *missing =
                        Some(missing.take().map_or_else(|| why.clone(), |one| format!("{one}; {why}")));
                }
                other => other?,
            }
        }
        for beside in [Beside::Cache, Beside::Special].into_iter().filter(|_| request.wants("raidz1")) {
            let bench = questions::bench(beside, &workdir)?;
            let last = Shell::new(&context.steadfast, &workdir.subdirectory("said-last")?);
            let mut made = Made { bench, shell: last };
            let hands = Hands {
                shell: &mut shell,
                stop,
                progress: &mut progress,
                report: &mut report,
                round,
                device_bytes,
                model: request.model(),
                below: &below,
            };
            hands.small_files(beside, request.files(), &mut made.bench)?;
        }
        Ok(())
    });
    progress.end();
    report.conditions.started = machine::stamp(started);
    report.conditions.seconds = clock.elapsed().as_secs_f64();
    let measured = report.rows.iter().any(|row| !row.values.is_empty());
    let early = results::early(done, measured, &mut report.notes)?;
    if early.is_some() {
        report.conditions.rounds = results::rounds(report.rows.iter().flat_map(|row| row.values.values()));
    }
    report.goals = judge(&report);
    report.charts = charts(&report);
    report.summary = summary(&report);
    report.notes.extend(questions::of_scans(&report.rows));
    report.notes.extend(questions::answers(&report.rows, &report.model));
    report.commands = shell.history();
    let (page, whole) = (render(&report), report.clone());
    let figures = figures_of(&whole);
    results::write(report, &page, &out, early, Some(&figures), request.markdown.as_deref())
}

/// Whether it is a stranger that did not come to the end of a step: its other figures stand (R3).
fn ends_a_step(key: &str, error: &Error) -> bool {
    let of_step = matches!(error, Error::Command { .. } | Error::Io { .. } | Error::Timeout { .. });
    of_step && !key.starts_with("raidz")
}

/// The same of what ends its round: it gave back other bytes, too (R2).
fn ends_a_round(key: &str, error: &Error) -> bool {
    ends_a_step(key, error) || matches!(error, Error::Answer { .. }) && !key.starts_with("raidz")
}

/// What went wrong, in a line, without the folder in which all images lie.
fn said(error: &Error, below: &str) -> String {
    error.to_string().replace('\n', " ").replace(below, "")
}

/// Bytes of each device: what was asked for, or what the given ones have.
fn device_bytes(request: &RecoveryRequest) -> Result<u64, Error> {
    let mut least = u64::MAX;
    for path in &request.devices {
        let mut file = fs::File::open(path).map_err(Error::io("open", path))?;
        let size = std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0));
        least = least.min(size.map_err(Error::io("measure", path))?);
    }
    Ok(if request.devices.is_empty() { request.device_bytes() } else { least })
}

fn bench_of(
    key: &'static str,
    request: &RecoveryRequest,
    workdir: &Workdir,
    bytes: u64,
    round: u32,
) -> Result<Bench, Error> {
    let (kind, width) = match key {
        "raidz1" => (Kind::Ours { parity: 1 }, 4),
        "raidz2" => (Kind::Ours { parity: 2 }, 6),
        "btrfs" => (Kind::Btrfs, 2),
        _ => {
            let programs = request.zfs_fuse.clone().unwrap_or_else(|| PathBuf::from("/sbin"));
            (Kind::ZfsFuse { programs }, 4)
        }
    };
    let home = workdir.subdirectory(key)?;
    let given = !request.devices.is_empty();
    let device = |at: usize| match request.devices.get(at) {
        Some(path) => path.clone(),
        None => home.join(format!("d{at}.img")),
    };
    let devices = (0..width).map(device).collect();
    Ok(Bench::new(key, kind, home.clone(), devices, device(args::DEVICES - 1), bytes, !given).named(round))
}

/// What dd reaches on the devices, MB/s (R1).
#[derive(Clone, Copy)]
struct Limits {
    read: f64,
    clone: f64,
    row: f64,
}

impl Hands<'_> {
    /// All stages of one file system in one round.
    fn measure(mut self, bench: &mut Bench) -> Result<(), Error> {
        let all_at_once = bench.make(self.shell)?;
        if let Some(rate) = all_at_once {
            self.note(bench.key, "all", "all devices written by dd at once, together", "MB/s", rate);
        }
        for fill in FILLS {
            self.alive()?;
            self.progress.begin(&format!("round {}: {} at {fill} %", self.round, bench.key));
            let before = CpuSample::take(&[]);
            let filled = bench.fill(u64::from(fill), self.stop, self.shell);
            let Some((bytes, seconds)) = self.step(bench, fill, "filling it", filled)? else { continue };
            let usage = CpuSample::take(&[]).since(&before);
            let rate = bytes as f64 / 1e6 / seconds;
            self.note(bench.key, "fill", "filling, noise made meanwhile", "MB/s", rate);
            // What neither idles nor waits for devices: with all of it the same work would go so much faster and no more.
            let busy = (100.0 - usage.idle - usage.wait).clamp(0.0, 100.0) / 100.0;
            self.note(bench.key, "fill_busy", "filling over what the processors allow", "times", busy);
            if let (Some(all), Some(parity)) = (all_at_once, bench.parity()) {
                let width = bench.devices.len() as f64;
                let share = all * (width - f64::from(parity)) / width;
                let label = "filling over the data's share of what dd writes to all devices";
                self.note(bench.key, "fill_all", label, "times", rate / share);
            }
            let limits = self.limits(bench);
            let Some(limits) = self.step(bench, fill, "dd beside it", limits)? else { continue };
            self.recover(bench, fill, limits)?;
            if bench.key == "raidz1" && fill == FILLS[0] {
                self.questions(bench, fill)?;
            }
            self.progress.advance(STAGE_S, "");
        }
        self.degraded(bench)
    }

    /// Reading everything, with all devices and without as many as can be spared.
    fn degraded(&mut self, bench: &mut Bench) -> Result<(), Error> {
        let Some(parity) = bench.parity() else { return Ok(()) };
        bench.restart(MEMORY[0], self.shell)?;
        let rate = |(bytes, seconds): (u64, f64)| bytes as f64 / 1e6 / seconds;
        let whole = rate(bench.read_all(self.stop)?);
        bench.set_away(parity as usize, true, self.shell)?;
        let degraded = rate(bench.read_all(self.stop)?);
        bench.set_away(parity as usize, false, self.shell)?;
        self.note(bench.key, "read_whole", "reading everything, all devices there", "MB/s", whole);
        self.note(bench.key, "read_degraded", "the same without as many as can be spared", "MB/s", degraded);
        let row = Row::new(
            "slower",
            "reading without them: times slower",
            "times",
            false,
            "Caches of the daemon of 16 MiB, the kernel's dropped before each.",
        );
        figures::add(&mut self.report.rows, &row, bench.key, whole / degraded);
        Ok(())
    }

    fn alive(&self) -> Result<(), Error> {
        bench::alive(self.stop)
    }

    fn note(&mut self, arm: &str, key: &str, label: &str, unit: &str, value: f64) {
        let row = Row::new(key, label, unit, true, "Counted by the kernel over the time of the command.");
        figures::add(&mut self.report.rows, &row, arm, value);
    }

    /// The device's own sequential limit, a plain clone of it, and one device written while as many are read as a row takes to be
    /// computed from (R1).
    fn limits(&mut self, bench: &Bench) -> Result<Limits, Error> {
        let mib = self.device_bytes >> 20;
        let device = quoted(&bench.devices[0].display().to_string());
        let spare = quoted(&bench.spare.display().to_string());
        let bytes = mib << 20;
        let read = format!("dd if={device} of=/dev/null bs=1M count={mib} iflag=direct status=none");
        let read = bench.timed(&read, bytes, self.shell)?;
        let clone = format!(
            "dd if={device} of={spare} bs=1M count={mib} iflag=direct oflag=direct conv=notrunc,fsync status=none"
        );
        let clone = bench.timed(&clone, bytes, self.shell)?;
        let sources = &bench.devices[..bench.sources()];
        let reads = sources.iter().map(|source| {
            let source = quoted(&source.display().to_string());
            format!("dd if={source} of=/dev/null bs=1M count={mib} iflag=direct status=none & ")
        });
        let line = format!(
            "{}dd if=/dev/zero of={spare} bs=1M count={mib} oflag=direct conv=notrunc,fsync status=none && wait",
            reads.collect::<String>()
        );
        let row = bench.timed(&line, bytes, self.shell)?;
        // A clone carries the label of what it was made of: nobody is to find it.
        self.shell.ask(&format!("dd if=/dev/zero of={spare} bs=1M count=1 conv=notrunc status=none"))?;
        self.shell.ask(&format!(
            "dd if=/dev/zero of={spare} bs=1M seek={} count=1 conv=notrunc,fsync status=none",
            mib - 1
        ))?;
        self.note(bench.key, "read", "device alone, read by dd, 1 MiB direct", "MB/s", read);
        self.note(bench.key, "clone", "device cloned by dd, 1 MiB direct", "MB/s", clone);
        let label = "device written by dd while as many are read as rebuilding takes";
        self.note(bench.key, "row", label, "MB/s", row);
        Ok(Limits { read, clone, row })
    }

    /// What a step came to; nothing, and noted, where a stranger did not come to its end (R3).
    fn step<T>(
        &mut self,
        bench: &Bench,
        fill: u32,
        what: &str,
        done: Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        match done {
            Err(error) if ends_a_step(bench.key, &error) => {
                let label = self.report.arms.iter().find(|arm| arm.key == bench.key);
                let label = label.map_or(bench.key, |arm| arm.label.as_str());
                let mut note = format!(
                    "{label}, round {} at {fill} %: {what} did not come to its end, and its other figures stand. Why: {}",
                    self.round,
                    said(&error, self.below)
                );
                if bench.wants_room(&error) {
                    note.push_str(
                        " btrfs makes each block group read-only while it copies it, and wants unallocated space on both devices for \
                         another of its kind.",
                    );
                }
                self.report.notes.push(note);
                Ok(None)
            }
            done => done.map(Some),
        }
    }

    /// A scrub or a replace as such a step.
    fn course(
        &mut self,
        (what, words): (&str, &str),
        fill: u32,
        bench: &mut Bench,
        act: impl FnOnce(&mut Bench, &mut Shell) -> Result<(), Error>,
    ) -> Result<Option<Course>, Error> {
        let done = bench.course(what, (fill, self.round), self.shell, act);
        self.step(bench, fill, words, done)
    }

    /// The same behind a flood of zeros. If it has no end, a scrub mends what was flooded, for what comes next wants the other devices; if
    /// that has none either, nothing more can be asked in this round.
    fn wounded(
        &mut self,
        (what, words): (&str, &str),
        fill: u32,
        device: usize,
        bench: &mut Bench,
        act: impl FnOnce(&mut Bench, &mut Shell) -> Result<(), Error>,
    ) -> Result<Option<Course>, Error> {
        let zeroed = bench.zero(device, self.shell);
        let zeroed = self.step(bench, fill, "flooding a device with zeros", zeroed)?;
        let course = match zeroed {
            Some(()) => self.course((what, words), fill, bench, act)?,
            None => None,
        };
        if course.is_none() {
            bench.scrub(self.shell)?;
        }
        Ok(course)
    }

    /// A clean scrub, one that heals, a resilver, and a look at every byte (R2).
    fn recover(&mut self, bench: &mut Bench, fill: u32, limits: Limits) -> Result<(), Error> {
        let clean = self.course(("scrub", "a clean scrub"), fill, bench, Bench::scrub)?;
        let healing = ("heal", "healing a zeroed device by a scrub");
        let heal = self.wounded(healing, fill, 1, bench, Bench::scrub)?;
        let target = 2 % bench.devices.len();
        let replace = |bench: &mut Bench, shell: &mut Shell| bench.replace(target, "", shell);
        let resilver =
            self.wounded(("resilver", "replacing a zeroed device"), fill, target, bench, replace)?;
        let copy = match &resilver {
            Some(_) => self.course(("copy", "replacing a healthy device"), fill, bench, replace)?,
            // It would fail for the same reason.
            None => None,
        };
        crate::arms::drop_kernel_caches()?;
        let (bytes, seconds) = bench.verify(self.stop)?;
        let rate = |bytes: u64, course: &Course| bytes as f64 / 1e6 / course.seconds;
        let key = bench.key;
        // What zfs-fuse reads comes from the page cache of its images, and nobody counts it.
        let counted = key != "zfs-fuse";
        let read = |course: &Option<Course>| {
            course.as_ref().filter(|_| counted).map(|course| rate(course.read, course))
        };
        let written = |course: &Option<Course>| course.as_ref().map(|course| rate(course.written, course));
        let content = clean.as_ref().map(|course| rate(bytes, course));
        let (scrubbed, rebuilt, copied) = (read(&clean), written(&resilver), written(&copy));
        for (key_of, what, value) in [
            ("scrubbed", "clean scrub, content of files", content),
            ("scrub", "clean scrub, read from the devices", scrubbed),
            ("heal", "scrub of a zeroed device, healed", written(&heal)),
            ("healread", "the same, read from the devices", read(&heal)),
            ("resilver", "replace of a zeroed device, rebuilt", rebuilt),
            ("copy", "replace of a healthy device, copied", copied),
        ] {
            if let Some(value) = value {
                self.note(key, &format!("{key_of}{fill}"), &format!("{what}, {fill} % full"), "MB/s", value);
            }
        }
        self.note(key, "verify", "reading all back, compared", "MB/s", bytes as f64 / 1e6 / seconds);
        if fill == FILLS[FILLS.len() - 1] {
            for (key_of, what, value, limit) in [
                ("scrub_read", "clean scrub over dd reading one device", scrubbed, limits.read),
                ("resilver_clone", "resilver over dd cloning one device", rebuilt, limits.clone),
                ("resilver_row", "resilver over dd that reads and writes as much", rebuilt, limits.row),
                ("copy_clone", "replace of a healthy device over dd cloning it", copied, limits.clone),
            ] {
                if let Some(value) = value {
                    self.note(key, key_of, what, "times", value / limit);
                }
            }
        }
        self.report.courses.extend([clean, heal, resilver, copy].into_iter().flatten());
        Ok(())
    }

    /// The two questions that the source report left open: more memory, and a fast device in front of slow ones.
    fn questions(&mut self, bench: &mut Bench, fill: u32) -> Result<(), Error> {
        let at = (fill, self.round);
        let rate = |course: &Course| course.written as f64 / 1e6 / course.seconds;
        for mib in MEMORY {
            bench.restart(mib, self.shell)?;
            bench.zero(1, self.shell)?;
            let what = format!("heal with caches of {mib} MiB");
            let course = bench.course(&what, at, self.shell, Bench::scrub)?;
            let key = format!("memory{mib}");
            self.note(bench.key, &key, &format!("{what}, {fill} % full"), "MB/s", rate(&course));
            self.report.courses.push(course);
        }
        bench.restart(MEMORY[0], self.shell)?;
        for (key, beside) in
            [("disk", ""), ("diskcache", " and a cache device"), ("disklog", " and a log device")]
        {
            match key {
                "diskcache" => self.fill_cache(bench)?,
                "disklog" => bench.add_log(self.shell)?,
                _ => {}
            }
            bench.model(self.model, self.shell)?;
            bench.zero(1, self.shell)?;
            let what = format!("heal on hard disks{beside}");
            let heal = bench.course(&what, at, self.shell, Bench::scrub)?;
            self.note(
                bench.key,
                &format!("{key}heal"),
                &format!("{what}, {fill} % full"),
                "MB/s",
                rate(&heal),
            );
            let what = format!("resilver on hard disks{beside}");
            let model = self.model;
            let resilver =
                bench.course(&what, at, self.shell, |bench, shell| bench.replace(2, model, shell))?;
            let label = format!("{what}, {fill} % full");
            self.note(bench.key, &format!("{key}resilver"), &label, "MB/s", rate(&resilver));
            bench.model("", self.shell)?;
            if key == "diskcache" {
                bench.remove_cache(self.shell)?;
            }
            self.report.courses.extend([heal, resilver]);
        }
        bench.verify(self.stop).map(drop)
    }

    /// Puts a cache device in front of the disks that holds as much of the content as it takes.
    fn fill_cache(&mut self, bench: &mut Bench) -> Result<(), Error> {
        bench.add_cache(self.device_bytes.min(CACHE_BYTES), self.shell)?;
        let mut content = 0;
        // No reader waits for it: what came while it was busy comes again.
        for _ in 0..2 {
            content = bench.read_all(self.stop)?.0;
        }
        let held = bench.cached(self.shell)? as f64 / content as f64;
        let row = Row::new(
            "diskcacheheld",
            "content that the cache device held meanwhile, of all",
            "times",
            true,
            "As `zpool iostat -v` tells.",
        );
        figures::add(&mut self.report.rows, &row, bench.key, held);
        Ok(())
    }
}

/// The report before anything was measured.
fn empty(request: &RecoveryRequest, context: &Context, device_bytes: u64) -> RecoveryReport {
    let label = |key: &str| match key {
        "raidz1" => "raidz1 of 4",
        "raidz2" => "raidz2 of 6",
        "btrfs" => "btrfs raid1 of 2",
        _ => "zfs-fuse raidz1 of 4",
    };
    let arm = |key: &&str| ArmInfo { key: (*key).to_owned(), label: label(key).to_owned(), missing: None };
    let on = if request.devices.is_empty() { "image files" } else { "the devices named" };
    let figures = sources::reported();
    let reports = figures["workloads"]["recovery"]["reports"][0]["rates"].as_array().cloned();
    let reported = reports.unwrap_or_default().into_iter().filter_map(|rate| {
        Some(Reported {
            what: rate["what"].as_str()?.to_owned(),
            printed: rate["printed"].as_str()?.to_owned(),
            rate: rate["mb_per_s"].as_f64()?,
        })
    });
    RecoveryReport {
        schema: SCHEMA.to_owned(),
        version: VERSION,
        title: "Recovery".to_owned(),
        question: "A device of a redundant pool is flooded with zeros while it is mounted: how fast does it heal, and how fast \
                   is the device replaced?"
            .to_owned(),
        summary: String::new(),
        conditions: Conditions {
            target: format!("Steadfast {}", context.version),
            repeat: args::repeat(request),
            rounds: request.rounds,
            ..Conditions::default()
        },
        sizes: format!("devices of {} on {on}, filled to 25, 50 and 75 %", number::bytes(device_bytes)),
        model: request.model().to_owned(),
        arms: args::ARMS.iter().filter(|arm| request.wants(arm)).map(arm).collect(),
        rows: Vec::new(),
        goals: Vec::new(),
        charts: Vec::new(),
        courses: Vec::new(),
        reported: reported.collect(),
        source: figures["workloads"]["recovery"]["setup"].as_str().unwrap_or_default().to_owned(),
        notes: vec![
            "Healed and rebuilt are bytes that were written to the devices while it went on, read are those read from them; the \
             metadata of the pool itself is in both. zfs-fuse reads its images through the page cache, where nobody counts: its \
             reads have no figure, and what it has in memory it need not read."
                .to_owned(),
            format!(
                "A hard disk is a model that the daemon is told to keep to (`zpool inject ... {}`): one head, a seek where a \
                 transfer does not begin where the last one ended, bytes at that rate, no cache. The pools of \
                 small files are on such disks; cache and special devices beside them answer as fast as the machine's own disk. Of \
                 small files there are {}, 11 KB on the average.",
                request.model(),
                request.files()
            ),
        ],
        commands: Vec::new(),
    }
}

/// What was to be reached by the columns that were asked for.
fn judge(report: &RecoveryReport) -> Vec<figures::Goal> {
    let (rows, mut found) = (&report.rows, Vec::new());
    let has = |arm: &str| report.arms.iter().any(|known| known.key == arm);
    for arm in ["raidz1", "raidz2"].into_iter().filter(|arm| has(arm)) {
        let scrub = format!("{arm}: clean scrub at least 0.8 of dd reading one device");
        found.extend(goals::bound(rows, "scrub_read", arm, Bound::AtLeast(0.8), &scrub));
        let resilver = format!("{arm}: resilver at least 0.8 of dd cloning one device");
        found.extend(goals::bound(rows, "resilver_clone", arm, Bound::AtLeast(0.8), &resilver));
        let resilver = format!("{arm}: resilver at least 0.8 of dd that reads and writes as much");
        found.extend(goals::bound(rows, "resilver_row", arm, Bound::AtLeast(0.8), &resilver));
        let write =
            format!("{arm}: writing at least 0.7 of the data's share of what dd writes to all devices");
        found.extend(goals::bound(rows, "fill_all", arm, Bound::AtLeast(0.7), &write));
        let write = format!("{arm}: writing at least 0.7 of what the processors allow");
        found.extend(goals::bound(rows, "fill_busy", arm, Bound::AtLeast(0.7), &write));
        let degraded = format!("{arm}: degraded reads at most 2 times slower");
        found.extend(goals::bound(rows, "slower", arm, Bound::AtMost(2.0), &degraded));
        let copy = format!("{arm}: replacing a healthy device at least 0.8 of dd cloning it");
        found.extend(goals::bound(rows, "copy_clone", arm, Bound::AtLeast(0.8), &copy));
    }
    if has("raidz1") && has("zfs-fuse") {
        for (key, what) in [("scrubbed", "clean scrub"), ("resilver", "resilver")] {
            for fill in FILLS {
                let text = format!("raidz1: {what} at {fill} % at least as fast as zfs-fuse");
                let key = format!("{key}{fill}");
                found.extend(goals::ratio(rows, &key, "raidz1", "zfs-fuse", 1.0, &text));
            }
        }
    }
    found
}

/// MB/s against the filling, and over time.
fn charts(report: &RecoveryReport) -> Vec<Chart> {
    let of = |arm: &ArmInfo, what: &str, name: &str| {
        let points: Vec<(f64, f64)> = FILLS
            .iter()
            .filter_map(|fill| {
                let row = report.rows.iter().find(|row| row.key == format!("{what}{fill}"))?;
                Some((f64::from(*fill), row.median(&arm.key)?))
            })
            .collect();
        (!points.is_empty()).then(|| Series {
            label: format!("{}, {name}", arm.label),
            calculated: false,
            points,
        })
    };
    let by_fill = |key: &str, what: &str, title: &str| {
        let mut series: Vec<Series> = report.arms.iter().filter_map(|arm| of(arm, key, what)).collect();
        let flat = |label: &str, rate: f64| Series {
            label: label.to_owned(),
            calculated: true,
            points: FILLS.iter().map(|fill| (f64::from(*fill), rate)).collect(),
        };
        series.extend(
            report.reported.iter().map(|reported| flat(&format!("source: {}", reported.what), reported.rate)),
        );
        Chart {
            key: key.to_owned(),
            title: title.to_owned(),
            how: "The middle of the rounds; dashed what the source report printed.".to_owned(),
            x: Axis::linear("percent full"),
            y: Axis::log("MB/s"),
            limit: None,
            series,
        }
    };
    let mut all = vec![
        by_fill("heal", "healed", "A zeroed device healed by a scrub, MB/s"),
        by_fill("resilver", "rebuilt", "A zeroed device replaced, MB/s"),
    ];
    for (what, title) in
        [("heal", "Healing over time at 75 %, MB/s"), ("resilver", "Resilver over time at 75 %, MB/s")]
    {
        let last = |arm: &ArmInfo| {
            let fullest = |course: &&Course| {
                course.arm == arm.key && course.what == what && course.fill == FILLS[FILLS.len() - 1]
            };
            let course = report.courses.iter().rev().find(fullest)?;
            Some(drawn(&arm.label, course))
        };
        all.push(Chart {
            key: format!("{what}-time"),
            title: title.to_owned(),
            how: "Bytes written to the devices, in tenths of the time it took, which stands beside the name; the last round."
                .to_owned(),
            x: Axis::linear("percent of the time it took"),
            y: Axis::linear("MB/s"),
            limit: None,
            series: report.arms.iter().filter_map(last).collect(),
        });
    }
    let disks = ["heal on hard disks", "resilver on hard disks"].into_iter().filter_map(|what| {
        let course = report.courses.iter().rfind(|course| course.what == what)?;
        Some(drawn(what, course))
    });
    all.push(Chart {
        key: "disk-time".to_owned(),
        title: "On devices that stand for hard disks, MB/s".to_owned(),
        how: format!(
            "Bytes written to the devices, in tenths of the time it took; raidz1 of 4, each {}.",
            report.model
        ),
        x: Axis::linear("percent of the time it took"),
        y: Axis::linear("MB/s"),
        limit: (report.model == MODEL).then(|| (60.0, "rate of one disk".to_owned())),
        series: disks.collect(),
    });
    all.retain(|chart| chart.series.iter().any(|series| !series.points.is_empty()));
    all
}

/// A line over the time that a course took.
fn drawn(label: &str, course: &Course) -> Series {
    let label = format!("{label}, {:.1} s", course.seconds);
    let points = rates(course).into_iter().map(|(at, rate)| (at / course.seconds * 100.0, rate)).collect();
    Series { label, calculated: false, points }
}

/// MB/s written, in tenths of the time it took.
fn rates(course: &Course) -> Vec<(f64, f64)> {
    let step = course.seconds / 10.0;
    let by = |until: f64| {
        let passed = course.points.iter().take_while(|point| point.0 <= until);
        passed.last().map_or(0, |point| point.2)
    };
    (0..10)
        .map(|tenth| {
            let (from, until) = (step * f64::from(tenth), step * f64::from(tenth + 1));
            let last = if tenth == 9 { course.written } else { by(until) };
            ((from + until) / 2.0, last.saturating_sub(by(from)) as f64 / 1e6 / step)
        })
        .collect()
}

/// What came out, in a few sentences.
fn summary(report: &RecoveryReport) -> String {
    let mut words = if report.goals.is_empty() { String::new() } else { goals::summary(&report.goals) };
    for arm in report.arms.iter().filter(|arm| !arm.is_absent(&report.rows)) {
        let of = |key: &str| report.rows.iter().find(|row| row.key == key)?.values.get(&arm.key);
        let middle = |key: &str| of(key).and_then(|values| median(values));
        if let (Some(heal), Some(resilver)) = (middle("heal75"), middle("resilver75")) {
            words.push_str(&format!(
                " {}: healed {} MB/s, resilvered {} MB/s at 75 %.",
                arm.label,
                shown(heal),
                shown(resilver)
            ));
        }
    }
    words.push_str(" Every byte was compared after every recovery.");
    words.trim().to_owned()
}

/// What a document gets.
pub(crate) fn figures_of(report: &RecoveryReport) -> Figures<'_> {
    let base = report.arms.first().map_or(("raidz1", "raidz1"), |arm| (arm.key.as_str(), arm.label.as_str()));
    Figures {
        name: "recovery",
        conditions: &report.conditions,
        sizes: &report.sizes,
        arms: &report.arms,
        base,
        rows: &report.rows,
        goals: &report.goals,
        charts: &report.charts,
        notes: &report.notes,
    }
}

/// The figures, the goals, and what has to be known of them, as Markdown.
pub fn table(report: &RecoveryReport) -> String {
    markdown::table(&figures_of(report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rates_of_a_course_add_up_to_what_was_written() {
        let course = Course {
            arm: "raidz1".into(),
            what: "heal".into(),
            fill: 75,
            round: 1,
            seconds: 2.0,
            read: 0,
            written: 400_000_000,
            points: (0..=20u32).map(|at| (f64::from(at) / 10.0, 0, u64::from(at) * 20_000_000)).collect(),
        };
        let rates = rates(&course);
        let written: f64 = rates.iter().map(|(_, rate)| rate * 0.2).sum();
        assert!((written - 400.0).abs() < 1e-6, "{rates:?}");
    }

    #[test]
    fn a_stranger_s_failure_ends_a_step_or_a_round_and_ours_the_run() {
        let command = Error::Command { line: "a".into(), status: "1".into(), stderr: String::new() };
        let other_bytes = Error::Answer {
            line: "read f0".into(),
            answer: "other bytes".into(),
            expected: "what was written",
        };
        assert!(ends_a_step("btrfs", &command) && ends_a_round("btrfs", &command));
        assert!(!ends_a_step("zfs-fuse", &other_bytes) && ends_a_round("zfs-fuse", &other_bytes));
        for error in [&command, &other_bytes] {
            assert!(!ends_a_step("raidz2", error) && !ends_a_round("raidz1", error), "{error}");
        }
        assert!(!ends_a_round("btrfs", &Error::Stopped));
    }

    #[test]
    fn what_was_not_asked_for_is_no_goal() {
        let context = Context { steadfast: PathBuf::from("steadfast"), version: "0".into() };
        let goals = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let mut report = empty(&args::parse(&words).unwrap().unwrap(), &context, 1 << 30);
            for (key, unit) in [
                ("scrub_read", "times"),
                ("scrubbed25", "MB/s"),
                ("resilver25", "MB/s"),
                ("resilver50", "MB/s"),
                ("resilver75", "MB/s"),
            ] {
                for arm in report.arms.clone() {
                    figures::add(&mut report.rows, &Row::new(key, key, unit, true, ""), &arm.key, 1.0);
                }
            }
            judge(&report)
        };
        assert!(
            goals("recovery --arms raidz1").iter().all(|goal| goal.arm == "raidz1" && goal.against.is_none())
        );
        assert!(goals("recovery --arms btrfs").is_empty());
        let all = goals("recovery");
        let beside: Vec<&str> = all
            .iter()
            .filter(|goal| goal.against.as_deref() == Some("zfs-fuse"))
            .map(|goal| goal.row.as_str())
            .collect();
        assert_eq!(beside, ["scrubbed25", "resilver25", "resilver50", "resilver75"], "at every filling");
    }

    #[test]
    fn the_source_s_figures_are_carried() {
        let request = args::parse(&["recovery".to_owned()]).unwrap().unwrap();
        let context = Context { steadfast: PathBuf::from("steadfast"), version: "0".into() };
        let report = empty(&request, &context, 1 << 30);
        let rates: Vec<f64> = report.reported.iter().map(|reported| reported.rate).collect();
        assert_eq!(rates, [75.0, 32.0, 60.0, 30.0]);
        let page = render(&report);
        assert!(page.contains("75 MB/s") && page.contains("</html>"), "{page}");
        assert!(data::parse(&serde_json::to_string(&report).unwrap()).unwrap().is_ok());
    }
}
