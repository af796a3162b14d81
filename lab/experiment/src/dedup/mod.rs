//! `steadfast lab run dedup`: what storing equal content once costs and saves, and what copies that
//! share blocks do, beside btrfs and xfs.
//!
//! The same bytes, made before any clock runs, are written to a pool with `dedup=off`, to one with
//! `dedup=on`, to btrfs and to xfs: once, where nothing of it is there yet, and again under another
//! name. Then the file is copied by `cp --reflink`, and 4 KiB are written at random places of the
//! copy, as they are of a file that shares nothing. Then the claim of source report 001, that
//! unique blocks add up: copies of one file, as of one image of a guest, get the same updates and a
//! few changes of their own, and the room is drawn step by step. At last files of the lab's own
//! data with a `dedupratio=` are written one by one, and the room they take is drawn beside what
//! the ratio says.

mod request;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use steadfast_lab_params::{Dedup, DedupSets, FlipFlop, HotSets};
use steadfast_lab_report::figures::goals::{Bound, bound};
use steadfast_lab_report::figures::{self, Axis, Chart, Goal, Row, Series};
use steadfast_lab_report::number::{self, MIB};
use steadfast_lab_workload::pattern::Pattern;

pub(crate) use request::DedupRequest;

use crate::comparison::{self, ComparisonReport, Heading};
use crate::context::Context;
use crate::error::Error;
use crate::file_systems::{Arm, Arms, Kind, Recipe};
use crate::host::commands::quoted;
use crate::host::progress::Progress;
use crate::host::requirements::{check_fuse, check_room, check_root};
use crate::host::shell::Shell;
use crate::load::files::{self, Noise};
use crate::results::{self, Results};
use crate::setup::Setup;

/// Bytes of one write(2), and of a block that repeats: a record.
const RECORD: usize = 128 << 10;
/// Columns.
const KEYS: [&str; 4] = ["steadfast", "dedup", "btrfs", "xfs"];
/// Copies of one file that are updated alike.
const GUESTS: u64 = 8;
/// Of a hundred records of each copy: how many a step writes anew with what all copies get, and
/// with what none else gets.
const COMMON_PERCENT: u64 = 10;
const OWN_PERCENT: u64 = 1;
/// How long room must stay as it is to count as at rest, and how often that is looked at.
const REST: Duration = Duration::from_millis(500);
const RESTS_MAX: usize = 20;

/// Figures of an experiment while it runs.
struct Run<'a> {
    request: &'a DedupRequest,
    arms: Arms,
    shell: Shell,
    progress: Progress,
    stop: &'a AtomicBool,
    report: ComparisonReport,
    /// Room against the ratio of the data.
    lines: Vec<Series>,
    /// Room of copies that get the same updates.
    drifts: Vec<Series>,
}

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early. A program that is not installed is no failure.
pub fn run(
    request: &DedupRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Results<ComparisonReport>, Error> {
    check_fuse()?;
    check_root("it mounts loop devices", "steadfast lab run dedup")?;
    let parent = request.places.parent();
    let advice = "name another directory with --dir DIR, or measure less with --quick.";
    check_room(parent, KEYS.len() as u64 * request.load().image, advice)?;
    let setup = Setup::new("dedup", request.places.out.as_deref(), parent)?;
    let (workdir, mut shell) = (&setup.workdir, setup.shell(context, stop)?);
    let arms = Arms::new(recipes(request), workdir, context, &mut shell)?;
    let report = ComparisonReport::new(
        Some(Heading {
            name: "dedup".to_owned(),
            title: "Storing equal content once".to_owned(),
            question: "What does dedup cost where nothing repeats, what does it save where much does, and what do copies that share blocks cost?".to_owned(),
            base: ("steadfast".to_owned(), "dedup=off".to_owned()),
        }),
        setup.conditions(
            format!("Steadfast {} through FUSE", context.version),
            request.repeat(),
            request.rounds(),
        ),
        format!("files of {}, images of {}", number::bytes(request.load().file), number::bytes(request.load().image)),
        arms.info(),
    );
    let total = f64::from(request.rounds()) * (KEYS.len() as f64 * 7.0 + request.ratios().len() as f64);
    let progress = Progress::new(total);
    let (lines, drifts) = (Vec::new(), Vec::new());
    let mut run = Run { request, arms, shell, progress, stop, report, lines, drifts };
    let done = (0..request.rounds()).try_for_each(|round| run.round(round));
    run.progress.end();
    let Run { arms, shell, mut report, lines, drifts, .. } = run;
    drop(arms);
    report.charts = charts(request, lines, drifts);
    report.conditions.seconds = setup.seconds();
    report.goals = judge(&report.rows);
    report.summary = figures::goals::summary(&report.goals);
    report.commands = shell.history();
    report.notes = vec![
        "Nothing compresses, and compression is off everywhere, so that what is saved is saved by sharing alone.".to_owned(),
        "btrfs and xfs store equal content once only when a program asks for it afterwards; here they are written to as they are, and share by copies.".to_owned(),
        "The copy is `cp --reflink=auto` for us, since FUSE servers are not asked for FICLONE and the copy goes by copy_file_range, and `--reflink=always` for the others.".to_owned(),
        "The room is that of the pool or file system as a whole, less what there was before. Ours of the first file is that of its intent log, too, which holds what fsync asked for.".to_owned(),
    ];
    let measured = !report.rows.is_empty();
    let ComparisonReport { rows, notes, conditions, .. } = &mut report;
    let early = results::early(done, measured, &*rows, notes, conditions)?;
    comparison::write(report, &setup.out, early, request.document.markdown.as_deref())
}

fn recipes(request: &DedupRequest) -> Vec<Recipe> {
    let image_bytes = request.load().image;
    let ours =
        |key, label, words| Recipe { key, label, kind: Kind::Ours { words, property: None }, image_bytes };
    let other = |file_system, words| Recipe {
        key: file_system,
        label: file_system,
        kind: Kind::Loop { file_system, words, options: "" },
        image_bytes,
    };
    vec![
        ours("steadfast", "dedup=off", "-O compression=off"),
        ours("dedup", "dedup=on", "-O compression=off -O dedup=on"),
        other("btrfs", "-q"),
        other("xfs", "-q -m reflink=1"),
    ]
}

/// Result of writing a file.
struct Written {
    rate: f64,
    /// Milliseconds of each write(2), sorted.
    waits: Vec<f64>,
}

impl Written {
    fn percentile(&self, share: f64) -> f64 {
        let last = self.waits.len().saturating_sub(1);
        self.waits.get((last as f64 * share).round() as usize).copied().unwrap_or(0.0)
    }
}

/// Writes bytes that are there, a record at a time, and fsyncs.
fn write(path: &Path, data: &[u8]) -> std::io::Result<Written> {
    let mut waits = Vec::with_capacity(data.len() / RECORD);
    let began = Instant::now();
    let mut file = File::create(path)?;
    for record in data.chunks(RECORD) {
        let one = Instant::now();
        file.write_all(record)?;
        waits.push(one.elapsed().as_secs_f64() * 1e3);
    }
    file.sync_all()?;
    let rate = data.len() as f64 / 1e6 / began.elapsed().as_secs_f64();
    waits.sort_by(f64::total_cmp);
    Ok(Written { rate, waits })
}

/// Data of which each content is there `ratio` times on average.
fn data(bytes: u64, ratio: f64, seed: u64) -> Vec<u8> {
    let mut pattern = Pattern::new(1.0, seed);
    if ratio > 1.0 {
        let (unit, sets) = (RECORD as u64, DedupSets::Percent(5.0));
        let (flipflop, hot) = (FlipFlop::Never, HotSets::default());
        pattern = pattern.repeating(&Dedup { ratio, unit, sets, flipflop, hot }, bytes, 1);
    }
    let mut data = vec![0; usize::try_from(bytes).expect("a file fits into memory")];
    pattern.fill(&mut data, seed, 0, seed);
    data
}

fn unique() -> Row {
    Row::new("unique", "writing what is not there yet", "MB/s", true, "With fsync.")
}

fn again() -> Row {
    Row::new("again", "writing the same once more, under another name", "MB/s", true, "With fsync.")
}

impl Run<'_> {
    fn round(&mut self, round: u32) -> Result<(), Error> {
        let bytes = self.request.load().file;
        let content = data(bytes, 1.0, 1 + u64::from(round));
        let other = data(bytes, 1.0, 1_001 + u64::from(round));
        let mut keys = KEYS;
        // Each round begins with another.
        keys.rotate_left(round as usize % KEYS.len());
        for key in keys {
            if self.arms.get(key).is_some_and(|arm| arm.takes_part()) {
                self.one(key, round, &content, &other)?;
                self.drift(key, round)?;
            }
        }
        self.ratios(round)
    }

    fn note(&mut self, key: &'static str, row: &Row, value: f64) {
        figures::add(&mut self.report.rows, row, key, value);
    }

    fn begin(&mut self, round: u32, key: &str, what: &str) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        self.progress.begin(&format!("round {}: {key}, {what}", round + 1));
        Ok(())
    }

    fn arm(&mut self, key: &str) -> &mut Arm {
        self.arms.get(key).expect("it takes part")
    }

    fn used(&mut self, key: &str) -> Result<f64, Error> {
        let Run { arms, shell, .. } = self;
        arms.get(key).expect("it takes part").used(shell)
    }

    /// The same once it does not change any more: xfs and btrfs give back what was removed in the
    /// background.
    fn used_at_rest(&mut self, key: &str) -> Result<f64, Error> {
        let mut used = self.used(key)?;
        for _ in 0..RESTS_MAX {
            std::thread::sleep(REST);
            let now = self.used(key)?;
            if now == used {
                break;
            }
            used = now;
        }
        Ok(used)
    }

    fn one(&mut self, key: &'static str, round: u32, content: &[u8], other: &[u8]) -> Result<(), Error> {
        let place = self.arm(key).place();
        let (first, second) = (place.join("first"), place.join("second"));
        let (copy, plain) = (place.join("copy"), place.join("plain"));
        let bytes = content.len() as f64;
        let before = self.used(key)?;

        self.begin(round, key, "unique content")?;
        let written = write(&first, content).map_err(Error::io("write", &first))?;
        self.note(key, &unique(), written.rate);
        let wait = |name: &str, text: &str| Row::new(name, text, "ms", false, "write(2) of 128 KiB.");
        self.note(
            key,
            &wait("unique99", "of these writes, 99 % take no longer than"),
            written.percentile(0.99),
        );
        let once = self.used(key)?;
        let room = |name: &str, text: &str| Row::new(name, text, "times", false, "Of the bytes of one file.");
        self.note(key, &room("room1", "room of the first file"), (once - before) / bytes);
        self.progress.advance(1.0, &format!("{:.0} MB/s", written.rate));

        self.begin(round, key, "the same once more")?;
        let written = write(&second, content).map_err(Error::io("write", &second))?;
        self.note(key, &again(), written.rate);
        self.note(
            key,
            &wait("again99", "of writes of what is there, 99 % take no longer than"),
            written.percentile(0.99),
        );
        let twice = self.used(key)?;
        self.note(key, &room("room2", "room that the second file adds"), (twice - once).max(0.0) / bytes);
        self.progress.advance(1.0, &format!("{:.0} MB/s", written.rate));

        self.begin(round, key, "a copy that shares")?;
        let how = if self.arm(key).is_ours() { "auto" } else { "always" };
        let line = format!(
            "cp --reflink={how} {} {}",
            quoted(&first.display().to_string()),
            quoted(&copy.display().to_string())
        );
        let began = Instant::now();
        self.shell.run(&line)?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        let row = Row::new(
            "copy",
            "a copy of the file that shares its blocks",
            "ms",
            false,
            "cp --reflink, with its start.",
        );
        self.note(key, &row, took);
        let copied = self.used(key)?;
        self.note(key, &room("room3", "room that the copy adds"), (copied - twice).max(0.0) / bytes);
        self.progress.advance(1.0, &format!("{took:.0} ms"));

        self.begin(round, key, "writes into a file that shares nothing")?;
        write(&plain, other).map_err(Error::io("write", &plain))?;
        self.used(key)?;
        let mut noise = Noise::new(u64::from(round) + 5);
        let writes = self.request.load().writes;
        for (row, text, path) in [
            ("writes", "4 KiB random writes into a file that shares nothing", &plain),
            ("parting", "4 KiB random writes into the copy", &copy),
        ] {
            let row = Row::new(row, text, "1/s", true, "fsync at the end.");
            let rate =
                files::random_writes(path, writes, false, &mut noise).map_err(Error::io("write", path))?;
            self.note(key, &row, rate);
            self.used(key)?;
            self.progress.advance(1.0, &format!("{rate:.0}/s"));
        }

        self.begin(round, key, "all removed")?;
        let began = Instant::now();
        for path in [&first, &second, &copy, &plain] {
            std::fs::remove_file(path).map_err(Error::io("remove", path))?;
        }
        let left = self.used(key)?;
        let row = Row::new("remove", "the four files removed, until that is durable", "s", false, "");
        self.note(key, &row, began.elapsed().as_secs_f64());
        self.progress.advance(1.0, &format!("{:.1} MiB left", (left - before) / MIB));
        Ok(())
    }

    /// Copies of one file get the same updates and a few of their own: what they shared becomes
    /// each one's, or is found again.
    fn drift(&mut self, key: &'static str, round: u32) -> Result<(), Error> {
        let records = self.request.guest() / RECORD as u64;
        let (common, own) = (records * COMMON_PERCENT / 100, (records * OWN_PERCENT / 100).max(1));
        let place = self.arm(key).place();
        let guest = |number: u64| place.join(format!("guest{number}"));
        let seed = 9_000 + u64::from(round);
        self.begin(round, key, "copies that are updated alike")?;
        write(&guest(0), &data(self.request.guest(), 1.0, seed)).map_err(Error::io("write", &guest(0)))?;
        // Stored, so that the copies share it.
        self.used_at_rest(key)?;
        let how = if self.arm(key).is_ours() { "auto" } else { "always" };
        for number in 1..GUESTS {
            let (from, to) = (guest(0).display().to_string(), guest(number).display().to_string());
            self.shell.run(&format!("cp --reflink={how} {} {}", quoted(&from), quoted(&to)))?;
        }
        let before = self.used_at_rest(key)?;
        let pattern = Pattern::new(1.0, seed);
        let mut record = vec![0; RECORD];
        let mut points = vec![(0.0, 0.0)];
        for step in 1..=self.request.load().steps {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            for number in 0..GUESTS {
                let path = guest(number);
                let file = File::options().write(true).open(&path).map_err(Error::io("open", &path))?;
                // Places are all copies' alike; so are the contents of the first of them.
                for at in 0..common + own {
                    let whose = if at < common { 0 } else { number + 1 };
                    let record_at = ((step * 31 + at) * 2_654_435_761 % records) * RECORD as u64;
                    pattern.fill(&mut record, whose, record_at, step);
                    file.write_all_at(&record, record_at).map_err(Error::io("write", &path))?;
                }
                file.sync_all().map_err(Error::io("fsync", &path))?;
            }
            points.push((step as f64, (self.used(key)? - before) / MIB));
        }
        let (steps, of_record) = (self.request.load().steps as f64, RECORD as f64 / MIB);
        let written = (GUESTS * (common + own)) as f64 * of_record;
        let distinct = (common + GUESTS * own) as f64 * of_record;
        let last = points.last().map_or(0.0, |point| point.1);
        let row = Row::new(
            "adds_up",
            &format!("{GUESTS} copies updated alike {steps} times: room of what was written"),
            "times",
            false,
            "1 is each byte written kept; a content that is written again at the same place frees what was there.",
        );
        self.note(key, &row, last / (written * steps));
        if round == 0 {
            let label = self.arms.get(key).map_or(key, |arm| arm.label);
            self.drifts.push(Series { label: label.to_owned(), calculated: false, points });
            if key == "steadfast" {
                let line = |label: &str, each: f64| Series {
                    label: label.to_owned(),
                    calculated: true,
                    points: (0..=self.request.load().steps)
                        .map(|step| (step as f64, step as f64 * each))
                        .collect(),
                };
                let lines = [line("written", written), line("different contents", distinct)];
                self.drifts.extend(lines);
            }
        }
        for number in 0..GUESTS {
            std::fs::remove_file(guest(number)).map_err(Error::io("remove", &guest(number)))?;
        }
        self.used(key)?;
        self.progress.advance(1.0, &format!("{last:.0} MiB more"));
        Ok(())
    }

    /// The room of data that repeats more and more.
    fn ratios(&mut self, round: u32) -> Result<(), Error> {
        let (bytes, key) = (self.request.load().file, "dedup");
        if !self.arm(key).takes_part() {
            return Ok(());
        }
        let path = self.arm(key).place().join("ratio");
        let (mut found, mut said) = (Vec::new(), Vec::new());
        for (at, &ratio) in self.request.ratios().iter().enumerate() {
            self.begin(round, key, &format!("dedupratio={ratio}"))?;
            let content = data(bytes, ratio, 5_000 + 100 * u64::from(round) + at as u64);
            let before = self.used(key)?;
            let written = write(&path, &content).map_err(Error::io("write", &path))?;
            let room = (self.used(key)? - before) / bytes as f64;
            found.push((ratio, room));
            said.push((ratio, 1.0 / ratio));
            let row = Row::new(
                &format!("ratio{ratio}"),
                &format!("room of data of dedupratio={ratio}"),
                "times",
                false,
                "Of what was written.",
            );
            self.note(key, &row, room);
            std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
            self.used(key)?;
            self.progress.advance(1.0, &format!("{room:.2} of it, {:.0} MB/s", written.rate));
        }
        if round == 0 {
            self.lines.push(Series { label: "dedup=on".to_owned(), calculated: false, points: found });
            self.lines.push(Series {
                label: "what the ratio says".to_owned(),
                calculated: true,
                points: said,
            });
        }
        Ok(())
    }
}

fn charts(request: &DedupRequest, lines: Vec<Series>, drifts: Vec<Series>) -> Vec<Chart> {
    vec![
        Chart {
            key: "dedup_adds_up".to_owned(),
            title: "Unique blocks add up".to_owned(),
            how: format!(
                "{GUESTS} copies of a file of {} that share its blocks. In each step each gets the same update, {COMMON_PERCENT} % of its records, and {OWN_PERCENT} % of its own.",
                number::bytes(request.guest())
            ),
            x: Axis::linear("updates of all copies"),
            y: Axis::linear("MiB more than before the first"),
            limit: None,
            series: drifts,
        },
        Chart {
            key: "dedup_room".to_owned(),
            title: "Room against how much repeats".to_owned(),
            how: format!(
                "A file of {} of the lab's data with dedupratio= and dedupunit={}, each ratio in data of its own.",
                number::bytes(request.load().file),
                number::bytes(RECORD as u64)
            ),
            x: Axis::linear("dedupratio= of the data"),
            y: Axis::linear("room, of what was written"),
            limit: None,
            series: lines,
        },
    ]
}

fn judge(rows: &[Row]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut beside = |key: &str, least: f64, text: &str| {
        // Round by round: what else the machine does changes less within one than from one to the
        // next.
        let values = |arm: &str| rows.iter().find(|row| row.key == key)?.values.get(arm);
        if let (Some(with), Some(without)) = (values("dedup"), values("steadfast")) {
            let mut row = Row::new(key, "", "times", true, "");
            let ratios = with.iter().zip(without).map(|(with, without)| with / without).collect();
            row.values.insert("dedup".to_owned(), ratios);
            goals.extend(bound(&[row], key, "dedup", Bound::AtLeast(least), text));
        }
    };
    beside("unique", 0.7, "writing unique data with dedup=on at least 0.7 of dedup=off");
    beside("again", 1.0, "writing what is there already with dedup=on at least as fast as with dedup=off");
    for (key, arm, text) in [
        ("room2", "dedup", "what is there already takes no more than a hundredth of its size again"),
        ("room3", "steadfast", "a copy takes no more than a hundredth of its size"),
    ] {
        goals.extend(bound(rows, key, arm, Bound::AtMost(0.01), text));
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn goals_are_judged_by_what_was_measured() {
        let mut rows = Vec::new();
        for (row, arm, value) in [
            (unique(), "steadfast", 1_000.0),
            (unique(), "dedup", 690.0),
            (again(), "steadfast", 1_000.0),
            (again(), "dedup", 1_400.0),
        ] {
            figures::add(&mut rows, &row, arm, value);
        }
        let verdicts: Vec<&str> = judge(&rows).iter().map(|goal| goal.verdict.text()).collect();
        assert_eq!(verdicts, ["not met", "met"]);
    }

    #[test]
    fn data_repeats_as_often_as_it_says() {
        for ratio in [1.0, 2.0, 4.0] {
            let data = data(64 << 20, ratio, 3);
            let blocks: HashSet<&[u8]> = data.chunks(RECORD).collect();
            let found = data.len() as f64 / RECORD as f64 / blocks.len() as f64;
            assert!((found / ratio - 1.0).abs() < 0.25, "{ratio}: {found}");
        }
    }
}
