//! Streams: one file system sent to another of its kind on the same disk, beside `cp` of the same
//! file, and increments of it.
//!
//! Both sides are made for this and taken away behind it. The time begins cold (the sending side
//! was unmounted, our pool exported, and the kernel's caches dropped) and ends when the copy is
//! durable. Stream and cp take turns, also in being first. At the end the file that arrived is
//! compared with the one that was sent.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Run;
use super::host::Step;
use crate::error::Error;
use crate::file_systems::{Arm, Arms, Kind, Recipe};
use crate::host::commands::quoted;
use crate::host::shell::Shell;
use crate::load::files::Noise;
use steadfast_lab_report::figures::goals::{Bound, bound};
use steadfast_lab_report::figures::{Goal, Row};
use steadfast_lab_report::number;
use steadfast_lab_report::report::median;

/// Bytes of a write that changes something: a record.
const RECORD: usize = 128 << 10;
/// Bytes of a write of the file as it is at first.
const MIB: usize = 1 << 20;
/// Of how many records one is written anew before an increment.
const ONE_OF: u64 = 100;
/// Words for `pool create`.
const WORDS: &str = "-O compression=off";
/// The arm that is sent from, and that of btrfs which is sent to. The other pool of ours is of the
/// daemon of the first.
const FROM: &str = "streams";
const TO: &str = "streams-to";
/// For the progress bar.
pub(super) const UNITS: f64 = 400.0;

/// Two file systems of one kind.
struct Pair {
    arms: Arms,
    /// Of ours: how lines for their daemon begin, and the name of the pool that is sent from.
    ours: Option<(String, String)>,
    /// The folder with the file that is sent, and the one in which it arrives.
    from: PathBuf,
    to: PathBuf,
}

fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

impl Pair {
    fn make(key: &str, run: &mut Run<'_>) -> Result<Pair, Error> {
        let (is_ours, image_bytes) = (key == "steadfast", run.request.stream_image());
        let recipe = |key, kind| Recipe { key, label: key, kind, image_bytes };
        let btrfs = || Kind::Loop { file_system: "btrfs", words: "-q", options: "" };
        let recipes = match is_ours {
            true => vec![recipe(FROM, Kind::Ours { words: WORDS, property: None })],
            false => vec![recipe(FROM, btrfs()), recipe(TO, btrfs())],
        };
        let mut arms = Arms::new(recipes, run.workdir, run.context, &mut run.shell)?;
        let arm = arms.get(FROM).expect("it takes part");
        let from = arm.place();
        if is_ours {
            let (prefix, pool, to) = (arm.ours(""), arm.pool(), from.with_file_name("to"));
            let image = path(&from.with_file_name("to.img"));
            let create = format!("{prefix}pool create {WORDS} -m {} {pool}to {image}", path(&to));
            run.shell.run(&format!("truncate -s {image_bytes} {image} && {create}"))?;
            return Ok(Pair { arms, ours: Some((prefix, pool)), from, to });
        }
        let (from, to) = (from.join("vol"), arms.get(TO).expect("it takes part").place());
        run.shell.run(&format!("btrfs -q subvolume create {}", path(&from)))?;
        Ok(Pair { arms, ours: None, from, to })
    }

    fn arm(&mut self) -> &mut Arm {
        self.arms.get(FROM).expect("it takes part")
    }

    /// The snapshot of this number, as commands of btrfs name it.
    fn subvolume(&self, number: u32) -> String {
        path(&self.from.with_file_name(format!("s{number}")))
    }

    /// The line that takes it.
    fn snapshot(&self, number: u32) -> String {
        match &self.ours {
            Some((prefix, pool)) => format!("{prefix}fs snapshot {pool}@s{number}"),
            None => {
                format!("btrfs -q subvolume snapshot -r {} {}", path(&self.from), self.subvolume(number))
            }
        }
    }

    /// The line that writes it to standard output, or what is new in it since another one.
    fn send(&self, number: u32, base: Option<u32>) -> String {
        match (&self.ours, base) {
            (Some((prefix, pool)), None) => format!("{prefix}fs send {pool}@s{number}"),
            (Some((prefix, pool)), Some(base)) => format!("{prefix}fs send -i @s{base} {pool}@s{number}"),
            (None, None) => format!("btrfs send -q {}", self.subvolume(number)),
            (None, Some(base)) => {
                format!("btrfs send -q -p {} {}", self.subvolume(base), self.subvolume(number))
            }
        }
    }

    /// The line that makes of it what standard input holds, below a name of this pass.
    fn receive(&self, pass: u32) -> String {
        match &self.ours {
            Some((prefix, pool)) => format!("{prefix}fs receive {pool}to/copy{pass}"),
            None => format!("btrfs receive -q {}", path(&self.to.join(format!("copy{pass}")))),
        }
    }

    /// The file that arrived.
    fn arrived(&self, pass: u32, number: u32) -> PathBuf {
        let copy = self.to.join(format!("copy{pass}"));
        if self.ours.is_some() { copy.join("file") } else { copy.join(format!("s{number}/file")) }
    }

    /// Lines behind which what arrived is durable.
    fn sync(&self) -> String {
        let line = format!("sync -f {}", path(&self.to));
        match &self.ours {
            Some((prefix, pool)) => format!("{line}; {prefix}pool sync {pool}to"),
            None => line,
        }
    }

    /// Takes the other pool away; the rest goes with the arms.
    fn remove(&self, shell: &mut Shell) {
        if let Some((prefix, pool)) = &self.ours {
            let _ = shell.ask(&format!("{prefix}pool destroy -f {pool}to"));
        }
    }
}

/// Runs lines, each of which must succeed. Returns their output and their seconds, without the
/// start of the shell; nothing if they did not end within the limit.
fn timed(lines: &str, limit: Option<Duration>, shell: &mut Shell) -> Result<Option<(String, f64)>, Error> {
    let line = format!("set -o pipefail; began=$EPOCHREALTIME; {lines}; echo $began $EPOCHREALTIME");
    let said = match limit {
        None => Some(shell.run(&line)?),
        Some(limit) => shell.run_within(&line, limit)?,
    };
    let Some(said) = said else { return Ok(None) };
    match ended(&said) {
        Some(seconds) => Ok(Some((said, seconds))),
        None => Err(Error::Answer { line, answer: said, expected: "two times at its end" }),
    }
}

/// Seconds between the two times in the last line.
fn ended(said: &str) -> Option<f64> {
    let (began, ended) = said.lines().next_back()?.split_once(' ')?;
    let seconds = ended.trim().parse::<f64>().ok()? - began.parse::<f64>().ok()?;
    (seconds > 0.0).then_some(seconds)
}

/// Writes a file of bytes that do not compress.
fn write_noise(path: &Path, bytes: u64, seed: u64) -> std::io::Result<()> {
    let (mut file, mut noise, mut block) = (File::create(path)?, Noise::new(seed), vec![0; MIB]);
    for _ in 0..bytes / MIB as u64 {
        noise.fill(&mut block);
        file.write_all(&block)?;
    }
    file.sync_all()
}

/// Writes one of a hundred records anew, others for each number.
fn write_anew(path: &Path, number: u32) -> std::io::Result<u64> {
    let file = File::options().write(true).open(path)?;
    let records = file.metadata()?.len() / RECORD as u64;
    let (mut noise, mut record) = (Noise::new(10_000 + u64::from(number)), vec![0; RECORD]);
    let changed: Vec<u64> = (0..records).filter(|at| at % ONE_OF == u64::from(number) % ONE_OF).collect();
    for at in &changed {
        noise.fill(&mut record);
        file.write_all_at(&record, at * RECORD as u64)?;
    }
    file.sync_all()?;
    Ok(changed.len() as u64)
}

fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    median(&values.collect::<Vec<_>>())
}

/// Figures of one round.
#[derive(Default)]
struct Found {
    /// Seconds of each pass, by stream and by cp.
    sent: Vec<f64>,
    copied: Vec<f64>,
    /// Bytes of the whole, and seconds of sending it to nowhere.
    whole: (f64, f64),
    /// Seconds of each increment, sent and received; its bytes, and seconds of sending it to
    /// nowhere.
    increments: Vec<f64>,
    parts: Vec<(f64, f64)>,
}

impl Found {
    /// Rows of a file of so many bytes, each with its figure: the middle of what was done more than
    /// once.
    fn rows(&self, file: u64) -> Vec<(Row, f64)> {
        let rate = |seconds: f64| file as f64 / 1e6 / seconds;
        let mb = |bytes: f64| bytes / 1e6;
        let (sent, copied) = (median(&self.sent), median(&self.copied));
        let ratio = middle(self.sent.iter().zip(&self.copied).map(|(sent, copied)| copied / sent));
        let increment = median(&self.increments);
        let bytes = middle(self.parts.iter().map(|part| part.0));
        let nowhere = middle(self.parts.iter().map(|part| part.1));
        let over = |part: Option<f64>, whole: Option<f64>| Some(part? / whole?);
        let whole = (self.whole.1 > 0.0).then_some(self.whole);
        let size = number::bytes(file);
        let row = |key: &str, label: &str, unit: &str, more: bool, how: &str| {
            Row::new(&format!("stream_{key}"), label, unit, more, how)
        };
        let figures = [
            (
                row(
                    "rate",
                    &format!("a file of {size} sent to another one on the same disk and received"),
                    "MB/s",
                    true,
                    "From cold until it is durable there.",
                ),
                sent.map(rate),
            ),
            (
                row("copied", "the same file by cp through the mounts", "MB/s", true, "And a sync."),
                copied.map(rate),
            ),
            (row("cp", "sent and received over cp", "times", true, "Of each pair of them, in turns."), ratio),
            (
                row("send", "the whole sent to nowhere", "s", false, "Into a pipe, where bytes are counted."),
                whole.map(|whole| whole.1),
            ),
            (
                row("bytes", "bytes of the whole stream", "MB", false, "Counted."),
                whole.map(|whole| mb(whole.0)),
            ),
            (
                row(
                    "part",
                    "an increment sent and received, 1 % of the records written anew",
                    "s",
                    false,
                    "From cold until it is durable there; records of 128 KiB, all over the file.",
                ),
                increment,
            ),
            (row("part_send", "the increment sent to nowhere", "s", false, "As the whole was."), nowhere),
            (row("part_bytes", "bytes of the increment", "MB", false, "Counted."), bytes.map(mb)),
            (
                row("part_share", "bytes of the increment over those of the whole", "times", false, ""),
                over(bytes, whole.map(|whole| whole.0)),
            ),
            (
                row(
                    "part_time",
                    "time of the increment over that of the whole",
                    "times",
                    false,
                    "Both received.",
                ),
                over(increment, sent),
            ),
            (
                row("part_send_time", "the same, both sent to nowhere", "times", false, ""),
                over(nowhere, whole.map(|whole| whole.1)),
            ),
        ];
        figures.into_iter().filter_map(|(row, value)| Some((row, value?))).collect()
    }
}

impl Run<'_> {
    /// All of it for one column in one round. A stranger that cannot do it keeps its other figures.
    pub(super) fn streams(&mut self, key: &'static str, round: u32) -> Result<(), Error> {
        self.progress.begin(&format!("round {}: {key}, streams", round + 1));
        let mut found = Found::default();
        let done = self.exchange(key, round, &mut found);
        for (row, value) in found.rows(self.request.stream_file()) {
            self.note(key, &row, value);
        }
        self.progress.advance(UNITS, "");
        match done {
            Err(error @ (Error::Command { .. } | Error::Io { .. })) if key != "steadfast" => {
                let below = format!("{}/", self.workdir.path().display());
                let said = error.to_string().replace('\n', " ").replace(&below, "");
                self.stopped(key, round, &format!("streams did not come to their end: {said}"));
                Ok(())
            }
            other => other,
        }
    }

    fn exchange(&mut self, key: &'static str, round: u32, found: &mut Found) -> Result<(), Error> {
        let mut pair = Pair::make(key, self)?;
        let done = self.sent_and_copied(&mut pair, key, round, found);
        let done = match done {
            Ok(true) => self.increments(&mut pair, key, round, found),
            other => other,
        };
        pair.remove(&mut self.shell);
        done.map(drop)
    }

    /// Most time of a step of this column.
    fn limit(&self, key: &str) -> Option<Duration> {
        (key != "steadfast").then(|| Duration::from_secs(u64::from(self.request.peer_seconds())))
    }

    /// A step from cold; nothing, and noted, if it had no end in its time.
    fn step(
        &mut self,
        pair: &mut Pair,
        (key, round): (&'static str, u32),
        what: &str,
        lines: &str,
    ) -> Result<Option<(String, f64)>, Error> {
        Step::new(self.stop, None).may()?;
        pair.arm().cold(&mut self.shell)?;
        let ended = timed(lines, self.limit(key), &mut self.shell)?;
        if ended.is_none() {
            let seconds = self.request.peer_seconds();
            self.stopped(key, round, &format!("{what} was stopped after {seconds} s."));
        }
        Ok(ended)
    }

    /// The whole by stream and by cp in turns. False if something had no end in its time.
    fn sent_and_copied(
        &mut self,
        pair: &mut Pair,
        key: &'static str,
        round: u32,
        found: &mut Found,
    ) -> Result<bool, Error> {
        let file = pair.from.join("file");
        write_noise(&file, self.request.stream_file(), 1 + u64::from(round))
            .map_err(Error::io("write", &file))?;
        pair.arm().settle(&mut self.shell)?;
        self.shell.run(&pair.snapshot(0))?;
        let (send, sync) = (pair.send(0, None), pair.sync());
        let copy = pair.to.join("file");
        for pass in 0..self.request.passes() {
            if pair.ours.is_none() {
                let folder = pair.to.join(format!("copy{pass}"));
                fs::create_dir(&folder).map_err(Error::io("create", &folder))?;
            }
            let receive = pair.receive(pass);
            let (mut sent, mut copied) = (None, None);
            let mut ways = [true, false];
            ways.rotate_left((round + pass) as usize % 2);
            for by_stream in ways {
                if by_stream {
                    let lines = format!("{send} | {receive}; {sync}");
                    sent = self.step(pair, (key, round), "sending and receiving the whole", &lines)?;
                } else {
                    let lines = format!("cp {} {}; {sync}", path(&file), path(&copy));
                    copied = self.step(pair, (key, round), "cp through the mounts", &lines)?;
                    fs::remove_file(&copy).map_err(Error::io("remove", &copy))?;
                    self.shell.ask(&sync)?;
                }
            }
            let (Some((_, sent)), Some((_, copied))) = (sent, copied) else { return Ok(false) };
            found.sent.push(sent);
            found.copied.push(copied);
        }
        Ok(true)
    }

    /// One of a hundred records written anew and sent on, again and again, into what arrived last.
    /// False as above.
    fn increments(
        &mut self,
        pair: &mut Pair,
        key: &'static str,
        round: u32,
        found: &mut Found,
    ) -> Result<bool, Error> {
        let (file, passes) = (pair.from.join("file"), self.request.passes());
        let (sync, receive) = (pair.sync(), pair.receive(passes - 1));
        let send = pair.send(0, None);
        let what = "sending to nowhere";
        let Some(whole) = self.step(pair, (key, round), what, &format!("{send} | wc -c"))? else {
            return Ok(false);
        };
        found.whole = counted(&send, whole)?;
        for number in 1..=passes {
            write_anew(&file, number).map_err(Error::io("write", &file))?;
            pair.arm().settle(&mut self.shell)?;
            self.shell.run(&pair.snapshot(number))?;
            let send = pair.send(number, Some(number - 1));
            let lines = format!("{send} | {receive}; {sync}");
            let Some((_, seconds)) = self.step(pair, (key, round), "an increment", &lines)? else {
                return Ok(false);
            };
            found.increments.push(seconds);
            let Some(part) = self.step(pair, (key, round), what, &format!("{send} | wc -c"))? else {
                return Ok(false);
            };
            found.parts.push(counted(&send, part)?);
        }
        let arrived = pair.arrived(passes - 1, passes);
        self.shell.run(&format!("cmp {} {}", path(&file), path(&arrived)))?;
        Ok(true)
    }
}

/// Bytes that `wc -c` counted, and seconds.
fn counted(line: &str, (said, seconds): (String, f64)) -> Result<(f64, f64), Error> {
    match said.lines().next().and_then(|line| line.trim().parse().ok()) {
        Some(bytes) => Ok((bytes, seconds)),
        None => Err(Error::Answer { line: line.to_owned(), answer: said, expected: "a number of bytes" }),
    }
}

/// Goals of streams.
pub(super) fn judge(rows: &[Row]) -> Vec<Goal> {
    [
        ("stream_cp", Bound::AtLeast(0.7), "sent and received at least 0.7 of the rate of cp"),
        (
            "stream_part_share",
            Bound::AtMost(0.02),
            "an increment of 1 % under 0.02 of the bytes of the whole",
        ),
        ("stream_part_time", Bound::AtMost(0.02), "an increment of 1 % under 0.02 of the time of the whole"),
    ]
    .into_iter()
    .filter_map(|(key, limit, text)| bound(rows, key, "steadfast", limit, text))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::workdir::Workdir;
    use steadfast_lab_report::figures;

    #[test]
    fn figures_are_those_of_what_was_timed() {
        let found = Found {
            sent: vec![2.0, 1.0, 4.0],
            copied: vec![3.0, 1.5, 2.0],
            whole: (2e9, 0.5),
            increments: vec![0.03, 0.05, 0.04],
            parts: vec![(2e7, 0.02), (3e7, 0.01), (2.2e7, 0.03)],
        };
        let mut rows = Vec::new();
        for (row, value) in found.rows(2_000_000_000) {
            figures::add(&mut rows, &row, "steadfast", value);
        }
        let of = |key: &str| rows.iter().find(|row| row.key == key).unwrap().median("steadfast").unwrap();
        for (key, value) in [
            ("stream_rate", 1_000.0),
            ("stream_copied", 1_000.0),
            ("stream_cp", 1.5),
            ("stream_send", 0.5),
            ("stream_bytes", 2_000.0),
            ("stream_part", 0.04),
            ("stream_part_bytes", 22.0),
            ("stream_part_share", 0.011),
            ("stream_part_time", 0.02),
            ("stream_part_send_time", 0.04),
        ] {
            assert!((of(key) - value).abs() < 1e-9, "{key}: {}", of(key));
        }
        let verdicts: Vec<&str> = judge(&rows).iter().map(|goal| goal.verdict.text()).collect();
        assert_eq!(verdicts, ["met", "met", "met"]);
        // A run that was cut short has only the figures measured until then.
        let cut = Found { sent: vec![2.0], copied: vec![1.0], ..Found::default() };
        let keys: Vec<String> = cut.rows(1 << 20).into_iter().map(|(row, _)| row.key).collect();
        assert_eq!(keys, ["stream_rate", "stream_copied", "stream_cp"]);
        assert!(Found::default().rows(1).is_empty());
    }

    #[test]
    fn lines_are_timed_from_within_and_each_must_end_well() {
        let dir = Workdir::create(&std::env::temp_dir()).unwrap();
        let mut shell = Shell::new(Path::new("steadfast"), dir.path());
        let (said, seconds) =
            timed("head -c 7 /dev/zero | wc -c; sleep 0.02", None, &mut shell).unwrap().unwrap();
        assert!(seconds >= 0.02, "{seconds}");
        assert!((counted("", (said, seconds)).unwrap().0 - 7.0).abs() < f64::EPSILON);
        for lines in ["false | cat; true", "cat | false; true", "false; true"] {
            assert!(matches!(timed(lines, None, &mut shell), Err(Error::Command { .. })), "{lines}");
        }
        let brief = Some(Duration::from_millis(50));
        assert!(timed("sleep 100", brief, &mut shell).unwrap().is_none());
        assert_eq!(ended("1.5 1.5"), None);
    }

    #[test]
    fn one_record_of_a_hundred_is_written_anew() {
        let dir = Workdir::create(&std::env::temp_dir()).unwrap();
        let path = dir.path().join("file");
        write_noise(&path, 32 << 20, 1).unwrap();
        let before = fs::read(&path).unwrap();
        assert_eq!(write_anew(&path, 1).unwrap(), 3);
        let after = fs::read(&path).unwrap();
        let differ: Vec<usize> = (0..256)
            .filter(|at| before[at * RECORD..(at + 1) * RECORD] != after[at * RECORD..(at + 1) * RECORD])
            .collect();
        assert_eq!(differ, [1, 101, 201]);
        assert_eq!(after.len(), before.len());
    }
}
