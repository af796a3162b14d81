//! The steps of one file system in one round: filled, compared with dd, scrubbed, healed,
//! resilvered, read back.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use steadfast_lab_report::figures::{self, Row};
use steadfast_lab_workload::cpu::CpuSample;

use super::redundant::{Kind, Redundant, alive};
use super::report::{Course, FILLS, RecoveryReport};
use super::request::{DEVICES, RecoveryRequest};
use crate::error::Error;
use crate::host::caches::drop_kernel_caches;
use crate::host::commands::quoted;
use crate::host::progress::Progress;
use crate::host::shell::Shell;
use crate::host::workdir::Workdir;

/// Caches of little and of much memory, MiB each.
pub(super) const MEMORY: [u64; 2] = [16, 1024];
/// Most bytes of the cache device in front of devices that are healed.
const CACHE_BYTES: u64 = 2 << 30;
/// Rough seconds of one stage, for the progress bar.
pub(super) const STAGE_S: f64 = 10.0;

/// State while it runs.
pub(super) struct Hands<'a> {
    pub(super) shell: &'a mut Shell,
    pub(super) stop: &'a AtomicBool,
    pub(super) progress: &'a mut Progress,
    pub(super) report: &'a mut RecoveryReport,
    pub(super) round: u32,
    pub(super) device_bytes: u64,
    /// Model of a hard disk.
    pub(super) model: &'static str,
    /// Where images lie, which nobody needs to read in a report.
    pub(super) below: &'a str,
}

/// Whether it is a stranger that did not come to the end of a step: its other figures stand
/// [lab_recovery.3].
pub(super) fn ends_a_step(key: &str, error: &Error) -> bool {
    let of_step = matches!(error, Error::Command { .. } | Error::Io { .. } | Error::Timeout { .. });
    of_step && !key.starts_with("raidz")
}

/// The same of what ends its round: it gave back other bytes, too [lab_recovery.2].
pub(super) fn ends_a_round(key: &str, error: &Error) -> bool {
    ends_a_step(key, error) || matches!(error, Error::Answer { .. }) && !key.starts_with("raidz")
}

/// An error in one line, without the folder of the images.
pub(super) fn said(error: &Error, below: &str) -> String {
    error.to_string().replace('\n', " ").replace(below, "")
}

/// The file system of this column; nothing is made yet.
pub(super) fn redundant_of(
    key: &'static str,
    request: &RecoveryRequest,
    workdir: &Workdir,
    bytes: u64,
    round: u32,
) -> Result<Redundant, Error> {
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
    Ok(Redundant::new(key, kind, home.clone(), devices, device(DEVICES - 1), bytes, !given).named(round))
}

/// Rates of dd on the devices, MB/s [lab_recovery.1].
#[derive(Clone, Copy)]
struct Limits {
    read: f64,
    clone: f64,
    row: f64,
}

impl Hands<'_> {
    /// All stages of one file system in one round.
    pub(super) fn measure(mut self, bench: &mut Redundant) -> Result<(), Error> {
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
            // Share of time that neither idles nor waits for devices: its inverse bounds the
            // speed-up.
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
    fn degraded(&mut self, bench: &mut Redundant) -> Result<(), Error> {
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

    pub(super) fn alive(&self) -> Result<(), Error> {
        alive(self.stop)
    }

    fn note(&mut self, arm: &str, key: &str, label: &str, unit: &str, value: f64) {
        let row = Row::new(key, label, unit, true, "Counted by the kernel over the time of the command.");
        figures::add(&mut self.report.rows, &row, arm, value);
    }

    /// The device's own sequential limit, a plain clone of it, and one device written while as many
    /// are read as a row takes to be computed from [lab_recovery.1].
    fn limits(&mut self, bench: &Redundant) -> Result<Limits, Error> {
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

    /// Result of a step; none, and a note, if another file system failed in it [lab_recovery.3].
    fn step<T>(
        &mut self,
        bench: &Redundant,
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
        bench: &mut Redundant,
        act: impl FnOnce(&mut Redundant, &mut Shell) -> Result<(), Error>,
    ) -> Result<Option<Course>, Error> {
        let done = bench.course(what, (fill, self.round), self.shell, act);
        self.step(bench, fill, words, done)
    }

    /// The same behind a flood of zeros. If it has no end, a scrub mends what was flooded, for what
    /// comes next wants the other devices; if that has none either, nothing more can be asked in
    /// this round.
    fn wounded(
        &mut self,
        (what, words): (&str, &str),
        fill: u32,
        device: usize,
        bench: &mut Redundant,
        act: impl FnOnce(&mut Redundant, &mut Shell) -> Result<(), Error>,
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

    /// A clean scrub, one that heals, a resilver, and a look at every byte [lab_recovery.2].
    fn recover(&mut self, bench: &mut Redundant, fill: u32, limits: Limits) -> Result<(), Error> {
        let clean = self.course(("scrub", "a clean scrub"), fill, bench, Redundant::scrub)?;
        let healing = ("heal", "healing a zeroed device by a scrub");
        let heal = self.wounded(healing, fill, 1, bench, Redundant::scrub)?;
        let target = 2 % bench.devices.len();
        let replace = |bench: &mut Redundant, shell: &mut Shell| bench.replace(target, "", shell);
        let resilver =
            self.wounded(("resilver", "replacing a zeroed device"), fill, target, bench, replace)?;
        let copy = match &resilver {
            Some(_) => self.course(("copy", "replacing a healthy device"), fill, bench, replace)?,
            // It would fail for the same reason.
            None => None,
        };
        drop_kernel_caches()?;
        let (bytes, seconds) = bench.verify(self.stop)?;
        let rate = |bytes: u64, course: &Course| bytes as f64 / 1e6 / course.seconds;
        let key = bench.key;
        // zfs-fuse reads through the page cache of its images, where nothing is counted.
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

    /// The two questions that the source report left open: more memory, and a fast device in front
    /// of slow ones.
    fn questions(&mut self, bench: &mut Redundant, fill: u32) -> Result<(), Error> {
        let at = (fill, self.round);
        let rate = |course: &Course| course.written as f64 / 1e6 / course.seconds;
        for mib in MEMORY {
            bench.restart(mib, self.shell)?;
            bench.zero(1, self.shell)?;
            let what = format!("heal with caches of {mib} MiB");
            let course = bench.course(&what, at, self.shell, Redundant::scrub)?;
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
            let heal = bench.course(&what, at, self.shell, Redundant::scrub)?;
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
    fn fill_cache(&mut self, bench: &mut Redundant) -> Result<(), Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
