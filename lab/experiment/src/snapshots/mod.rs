//! `steadfast lab run snapshots`: what snapshots cost, to take, to have, to list, to destroy and to
//! send, beside btrfs.
//!
//! One file in one file system, of which more and more snapshots are taken. At each count: single
//! commands that take one more, 4 KiB writes at random places into the file that all of them share,
//! a listing. At the end all of them are destroyed at once. Before it a file system is sent to
//! another one of its kind, beside `cp`, and increments follow (`streams`). Then the claim of
//! source report 001, that unique blocks add up: a share of the file is written anew and a snapshot
//! taken, over and over, and the room is drawn beside what was written.

mod host;
mod request;
mod streams;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use steadfast_lab_report::figures::goals::{Bound, bound};
use steadfast_lab_report::figures::{self, Axis, Chart, Goal, Row, Series};
use steadfast_lab_report::number::{self, MIB};

pub(crate) use request::SnapshotsRequest;

use crate::comparison::{self, ComparisonReport, Heading};
use crate::context::Context;
use crate::error::Error;
use crate::file_systems::{Arms, Kind, Recipe};
use crate::host::progress::Progress;
use crate::host::requirements::{check_fuse, check_room, check_root};
use crate::host::shell::Shell;
use crate::host::workdir::Workdir;
use crate::load::files::{self, Blocks, Noise};
use crate::results::{self, Results};
use crate::setup::Setup;
use host::{Host, Step};

/// Commands that are timed one by one at each count.
const SAMPLES: u32 = 5;
/// Percent of the file that is written anew between two snapshots.
const CHANGES: [u64; 2] = [1, 10];

/// A count with commas.
fn many(count: u32) -> String {
    match count / 1_000 {
        0 => count.to_string(),
        thousands => format!("{thousands},{:03}", count % 1_000),
    }
}

fn with(count: u32) -> String {
    match count {
        0 => "without snapshots".to_owned(),
        count => format!("with {} snapshots", many(count)),
    }
}

fn row_of(what: &str, count: u32) -> Row {
    let key = format!("{what}{count}");
    match what {
        "take" => Row::new(
            &key,
            &format!("a snapshot taken {}", with(count)),
            "ms",
            false,
            "One command from its start to its end, durable.",
        ),
        "writes" => Row::new(
            &key,
            &format!("4 KiB random writes {}", with(count)),
            "1/s",
            true,
            "fsync at the end; a snapshot was taken just before, so that all of them part from it.",
        ),
        _ => Row::new(
            &key,
            &format!("all listed, {}", with(count)),
            "ms",
            false,
            "Ours with the room of each; btrfs without.",
        ),
    }
}

/// Figures of an experiment while it runs.
struct Run<'a> {
    request: &'a SnapshotsRequest,
    context: &'a Context,
    workdir: &'a Workdir,
    arms: Arms,
    shell: Shell,
    progress: Progress,
    stop: &'a AtomicBool,
    report: ComparisonReport,
    /// Steps that were stopped after their time, a sentence each.
    cut: Vec<String>,
    /// Arms that hold snapshots which could not be destroyed in time, and are left out from then
    /// on.
    full: Vec<&'static str>,
    /// Milliseconds of taking one and rates of writing, by count; bytes by number of snapshots; one
    /// line an arm and kind.
    lines: Vec<(&'static str, Series)>,
}

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early. A program that is not installed is no failure.
pub fn run(
    request: &SnapshotsRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Results<ComparisonReport>, Error> {
    check_fuse()?;
    check_root("it mounts loop devices", "steadfast lab run snapshots")?;
    let parent = request.places.parent();
    let advice = "name another directory with --dir DIR, or measure less with --quick.";
    check_room(parent, 2 * (request.load().image + request.stream_image()), advice)?;
    let setup = Setup::new("snapshots", request.places.out.as_deref(), parent)?;
    let (workdir, mut shell) = (&setup.workdir, setup.shell(context, stop)?);
    let recipes = vec![
        Recipe {
            key: "btrfs",
            label: "btrfs",
            kind: Kind::Loop { file_system: "btrfs", words: "-q", options: request.mount_options() },
            image_bytes: request.load().image,
        },
        Recipe {
            key: "steadfast",
            label: "steadfast",
            kind: Kind::Ours { words: "-O compression=off", property: None },
            image_bytes: request.load().image,
        },
    ];
    let arms = Arms::new(recipes, workdir, context, &mut shell)?;
    let report = ComparisonReport::new(
        Some(Heading {
            name: "snapshots".to_owned(),
            title: "Cost of snapshots".to_owned(),
            question: "Many snapshots of one file system: what does it cost to take one more, to write, to list them, to send them elsewhere, to be rid of them, and do unique blocks add up?".to_owned(),
            base: ("btrfs".to_owned(), "btrfs".to_owned()),
        }),
        setup.conditions(
            format!("Steadfast {} through FUSE", context.version),
            request.repeat(),
            request.rounds(),
        ),
        format!(
            "a file of {}, images of {}; streams of a file of {}",
            number::bytes(request.load().file),
            number::bytes(request.load().image),
            number::bytes(request.stream_file())
        ),
        arms.info(),
    );
    let total = f64::from(request.rounds()) * 2.0 * (f64::from(request.most()) + 2_000.0 + streams::UNITS);
    let mut run = Run {
        request,
        context,
        workdir,
        arms,
        shell,
        progress: Progress::new(total),
        stop,
        report,
        cut: Vec::new(),
        full: Vec::new(),
        lines: Vec::new(),
    };
    let done = (0..request.rounds()).try_for_each(|round| run.round(round));
    run.progress.end();
    let Run { arms, shell, mut report, cut, lines, .. } = run;
    drop(arms);
    // By what was measured, and then by how many there were.
    let kinds = ["take", "each", "stopped", "writes", "list"];
    let place = |row: &Row| kinds.iter().position(|kind| row.key.starts_with(kind)).unwrap_or(kinds.len());
    report.rows.sort_by_key(place);
    report.charts = charts(request, lines);
    report.conditions.seconds = setup.seconds();
    report.goals = judge(request, &report.rows);
    report.summary = figures::goals::summary(&report.goals);
    report.commands = shell.history();
    report.notes = vec![
        "btrfs takes its snapshots read-only, as these are. Its listing has no room of each: that needs quota groups, which it does not keep unless asked, and which slow it down.".to_owned(),
        "btrfs frees the room of what was destroyed when its cleaner wakes, every 30 s.".to_owned(),
        "A listing of ours tells how much would come back if that snapshot alone were destroyed.".to_owned(),
        "The room in the last picture is that of the pool or file system as a whole, less what there was before the first change; the thin line is the bytes that programs wrote.".to_owned(),
    ];
    report.notes.push(
        "Send and cp go from one file system to another on the same disk, from cold, until everything is durable there: the sending one was \
         unmounted (our pool exported) and the kernel's caches dropped before. Both pools of ours are of one daemon. What arrived was compared with \
         what was sent."
            .to_owned(),
    );
    if !cut.is_empty() {
        let told = format!(
            "Each step of btrfs ends after {} s at most, each of ours when it is done.",
            request.peer_seconds()
        );
        report.notes.splice(0..0, std::iter::once(told).chain(cut));
    }
    let measured = !report.rows.is_empty();
    let ComparisonReport { rows, notes, conditions, .. } = &mut report;
    let early = results::early(done, measured, &*rows, notes, conditions)?;
    comparison::write(report, &setup.out, early, request.document.markdown.as_deref())
}

impl<'a> Run<'a> {
    fn round(&mut self, round: u32) -> Result<(), Error> {
        let mut keys = ["btrfs", "steadfast"];
        // Each round begins with the other.
        keys.rotate_left(round as usize % 2);
        for key in keys {
            if self.arms.get(key).is_none() {
                continue;
            }
            self.streams(key, round)?;
            // Destroying many may have to be stopped, so it comes last.
            for percent in CHANGES {
                if self.has_room(key, round, &format!("{percent} % changed")) {
                    self.unique(key, percent, round)?;
                }
            }
            if self.has_room(key, round, "many snapshots") {
                self.many(key, round)?;
            }
        }
        Ok(())
    }

    /// Steps of this arm, each of which begins when it is called.
    fn steps(&self, key: &str) -> impl Fn() -> Step<'a> + use<'a> {
        let limit = (key != "steadfast").then(|| Duration::from_secs(u64::from(self.request.peer_seconds())));
        let stop = self.stop;
        move || Step::new(stop, limit)
    }

    /// Notes a step that came to no end.
    fn stopped(&mut self, key: &str, round: u32, what: &str) {
        let sentence = format!("Round {}, {key}: {what}", round + 1);
        self.progress.begin(&sentence);
        self.cut.push(sentence);
    }

    /// Notes that there are too few snapshots: how many were made, and in how long.
    fn too_few(&mut self, key: &str, round: u32, (from, made, count): (u32, u32, u32), seconds: f64) {
        let label = format!(
            "snapshots made in {} s on the way from {} to {}, then stopped",
            self.request.peer_seconds(),
            many(from),
            many(count)
        );
        let how = "By a script. Measurements with so many are left out.";
        let row = Row::new(&format!("stopped{count}"), &label, "snapshots", true, how);
        figures::add(&mut self.report.rows, &row, key, f64::from(made));
        let what = format!(
            "{} snapshots made in {seconds:.0} s on the way from {} to {}, stopped. Measurements with so many are left out.",
            many(made),
            many(from),
            many(count)
        );
        self.stopped(key, round, &what);
    }

    /// False, and noted, if there are snapshots still which could not be destroyed in time.
    fn has_room(&mut self, key: &'static str, round: u32, what: &str) -> bool {
        let is_full = self.full.contains(&key);
        if is_full {
            let why = format!(
                "{what}: left out, for there are snapshots still that could not be destroyed in time."
            );
            self.stopped(key, round, &why);
        }
        !is_full
    }

    /// Destroys all snapshots and waits for their room; what took longer than it may is noted.
    /// Seconds of both.
    fn destroy(&mut self, key: &'static str, round: u32) -> Result<(Option<f64>, Option<f64>), Error> {
        let step = self.steps(key);
        let arm = self.arms.get(key).expect("it takes part");
        let host = Host::new(arm, &self.context.steadfast);
        let ended = host.destroy(&mut self.shell, &step)?;
        let what = match ended {
            (None, _) => "destroying all of them",
            (_, None) => "waiting until the room of all is free",
            _ => return Ok(ended),
        };
        self.full.push(key);
        let (seconds, label) = (self.request.peer_seconds(), format!("{what}, stopped before its end after"));
        let key_of_row = if ended.0.is_none() { "halted_destroy" } else { "halted_freed" };
        let row = Row::new(key_of_row, &label, "s", false, "The longest time allowed.");
        figures::add(&mut self.report.rows, &row, key, f64::from(seconds));
        self.stopped(key, round, &format!("{what} was stopped after {seconds} s."));
        Ok(ended)
    }

    /// Writes a figure down, and in the first round draws it.
    fn note(&mut self, key: &'static str, row: &Row, value: f64) {
        figures::add(&mut self.report.rows, row, key, value);
    }

    fn draw(&mut self, chart: &'static str, label: String, round: u32, point: (f64, f64)) {
        if round > 0 {
            return;
        }
        match self.lines.iter_mut().find(|(of, series)| *of == chart && series.label == label) {
            Some((_, series)) => series.points.push(point),
            None => self.lines.push((chart, Series { label, calculated: false, points: vec![point] })),
        }
    }

    /// More and more snapshots of one file.
    fn many(&mut self, key: &'static str, round: u32) -> Result<(), Error> {
        let (request, step) = (self.request, self.steps(key));
        let mut noise = Noise::new(u64::from(round) + 1);
        let mut there: u32 = 0;
        // All that were wanted were there when they were destroyed.
        let mut is_whole = true;
        let file = {
            let arm = self.arms.get(key).expect("it takes part");
            let folder = Host::new(arm, &self.context.steadfast).folder(&mut self.shell)?;
            folder.join("file")
        };
        self.progress.begin(&format!("round {}: {key}, a file", round + 1));
        files::write(&file, request.load().file, &mut Blocks::new(u64::from(round) + 7, 1.0))
            .map_err(Error::io("write", &file))?;
        for count in request.counts() {
            step().may()?;
            self.progress.begin(&format!("round {}: {key} {}", round + 1, with(count)));
            let arm = self.arms.get(key).expect("it takes part");
            let host = Host::new(arm, &self.context.steadfast);
            let before = host.used(&mut self.shell)?;
            let mut each = None;
            if count > there {
                let taking = step();
                let made = host.take_many(there, count, &mut self.shell, &taking)?;
                let seconds = taking.seconds();
                self.progress.advance(f64::from(made), "");
                if there + made < count {
                    self.too_few(key, round, (there, made, count), seconds);
                    is_whole = false;
                    break;
                }
                each = Some(seconds * 1e3 / f64::from(made));
                let grown = (host.used(&mut self.shell)? - before) / f64::from(count - there);
                if count == request.most() {
                    let row = Row::new(
                        "room",
                        "room of a snapshot of what did not change",
                        "B",
                        false,
                        "Of everything allocated, snapshots that follow each other with nothing written between.",
                    );
                    figures::add(&mut self.report.rows, &row, key, grown.max(0.0));
                }
                there = count;
            }
            let mut taken: Vec<f64> = Vec::new();
            for _ in 0..SAMPLES {
                step().may()?;
                taken.push(host.take(there)?);
                there += 1;
            }
            taken.sort_by(f64::total_cmp);
            let took = taken[taken.len() / 2];
            let (listed, lines) = host.list()?;
            if lines < there as usize {
                return Err(Error::Answer {
                    line: format!("the listing of {key}"),
                    answer: format!("{lines} lines"),
                    expected: "a line for each snapshot",
                });
            }
            let writing = step();
            let (rate, written) =
                files::random_writes_while(&file, request.load().writes, false, &mut noise, &|| {
                    writing.goes_on()
                })
                .map_err(Error::io("write", &file))?;
            step().may()?;
            let seconds = writing.seconds();
            arm.settle(&mut self.shell)?;
            if written < request.load().writes {
                let what = format!(
                    "{written} of {} writes {} in {seconds:.0} s, stopped; their rate stands in the table.",
                    request.load().writes,
                    with(count)
                );
                self.stopped(key, round, &what);
            }
            self.note(key, &row_of("take", count), took);
            self.note(key, &row_of("list", count), listed);
            self.note(key, &row_of("writes", count), rate);
            let x = f64::from(count.max(1));
            self.draw("take", key.to_owned(), round, (x, took));
            self.draw("writes", key.to_owned(), round, (x, rate));
            if count == request.most() {
                let row = Row::new(
                    "each",
                    "one of many taken in a row by a script",
                    "ms",
                    false,
                    "With the start of the command.",
                );
                self.note(key, &row, each.unwrap_or(took));
            }
            self.progress.advance(100.0, &format!("{took:.1} ms, {rate:.0}/s"));
        }
        self.progress.begin(&format!("round {}: {key}, all destroyed", round + 1));
        let (returned, done) = self.destroy(key, round)?;
        let row = Row::new(
            "destroy",
            "all of them destroyed, the command",
            "s",
            false,
            "One range; btrfs is given all names at once.",
        );
        if let Some(returned) = returned.filter(|_| is_whole) {
            self.note(key, &row, returned);
        }
        let row = Row::new(
            "freed",
            "until their room is free again",
            "s",
            false,
            "zpool wait -t free; btrfs subvolume sync.",
        );
        if let Some(done) = done.filter(|_| is_whole) {
            self.note(key, &row, done);
        }
        self.progress.advance(200.0, "");
        Ok(())
    }

    /// A share of the file is written anew and a snapshot taken, over and over.
    fn unique(&mut self, key: &'static str, percent: u64, round: u32) -> Result<(), Error> {
        let request = self.request;
        let mut noise = Noise::new(100 + percent);
        let arm = self.arms.get(key).expect("it takes part");
        let host = Host::new(arm, &self.context.steadfast);
        let file = host.folder(&mut self.shell)?.join("file");
        files::write(&file, request.load().file, &mut Blocks::new(3, 1.0))
            .map_err(Error::io("write", &file))?;
        let before = host.used(&mut self.shell)?;
        let writes = request.load().file / files::SMALL as u64 * percent / 100;
        let mut points = vec![(0.0, 0.0)];
        for step in 1..=request.load().steps {
            Step::new(self.stop, None).may()?;
            self.progress.begin(&format!("round {}: {key}, {percent} % changed, {step}", round + 1));
            host.take(1_000_000 + step as u32)?;
            files::random_writes(&file, writes, false, &mut noise).map_err(Error::io("write", &file))?;
            points.push((step as f64, (host.used(&mut self.shell)? - before) / MIB));
            self.progress.advance(20.0, "");
        }
        self.destroy(key, round)?;
        let written = (request.load().steps * writes * files::SMALL as u64) as f64 / MIB;
        let row = Row::new(
            &format!("unique{percent}"),
            &format!(
                "room of {} snapshots, {percent} % changed between, of what was written",
                request.load().steps
            ),
            "times",
            false,
            "4 KiB at random places; 1 is each byte written once more kept.",
        );
        let last = points.last().map_or(0.0, |point| point.1);
        self.note(key, &row, last / written);
        for point in points {
            self.draw("unique", format!("{key}, {percent} % changed"), round, point);
        }
        if key == "steadfast" && round == 0 {
            let per_step = written / request.load().steps as f64;
            let points =
                (0..=request.load().steps).map(|step| (step as f64, step as f64 * per_step)).collect();
            self.lines.push((
                "unique",
                Series { label: format!("written, {percent} %"), calculated: true, points },
            ));
        }
        Ok(())
    }
}

fn charts(request: &SnapshotsRequest, lines: Vec<(&'static str, Series)>) -> Vec<Chart> {
    let of = |key: &str| {
        lines.iter().filter(|(chart, _)| *chart == key).map(|(_, series)| series.clone()).collect()
    };
    vec![
        Chart {
            key: "snapshots_take".to_owned(),
            title: "Taking a snapshot against how many there are".to_owned(),
            how: "The middle of five commands each; none is drawn at 1.".to_owned(),
            x: Axis::log("snapshots"),
            y: Axis::linear("ms"),
            limit: None,
            series: of("take"),
        },
        Chart {
            key: "snapshots_writes".to_owned(),
            title: "Writing against how many snapshots there are".to_owned(),
            how: format!(
                "{} writes of 4 KiB at random places of the file that all of them share.",
                figures::shown(request.load().writes as f64)
            ),
            x: Axis::log("snapshots"),
            y: Axis::linear("writes a second"),
            limit: None,
            series: of("writes"),
        },
        Chart {
            key: "snapshots_unique".to_owned(),
            title: "Unique blocks add up".to_owned(),
            how: "A snapshot, then a share of the file written anew, over and over.".to_owned(),
            x: Axis::linear("snapshots, each followed by a change"),
            y: Axis::linear("MiB more than before"),
            limit: None,
            series: of("unique"),
        },
    ]
}

fn judge(request: &SnapshotsRequest, rows: &[Row]) -> Vec<Goal> {
    let most = request.most();
    let mut goals = Vec::new();
    for count in [0, most] {
        let text = format!("a snapshot taken {}: under 5 ms", with(count));
        goals.extend(bound(rows, &format!("take{count}"), "steadfast", Bound::AtMost(5.0), &text));
    }
    let text = format!("{} snapshots listed in under 0.5 s", many(most));
    goals.extend(bound(rows, &format!("list{most}"), "steadfast", Bound::AtMost(500.0), &text));
    // Writing with many beside writing with few, of the same file system.
    let rate = |count: u32| rows.iter().find(|row| row.key == format!("writes{count}"))?.median("steadfast");
    let first = request.counts().into_iter().nth(1).unwrap_or(most);
    if let (Some(few), Some(with_most)) = (rate(first), rate(most)) {
        let mut row = Row::new("slower", "", "times", true, "");
        row.values.insert("steadfast".to_owned(), vec![with_most / few]);
        let text =
            format!("writing with {} snapshots at least 0.9 of writing with {}", many(most), many(first));
        goals.extend(bound(&[row], "slower", "steadfast", Bound::AtLeast(0.9), &text));
    }
    goals.extend(streams::judge(rows));
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_by_what_was_measured() {
        let request: SnapshotsRequest = crate::options::tests::read("--most 50");
        let mut rows = Vec::new();
        for (row, value) in [
            (row_of("take", 0), 4.0),
            (row_of("take", 50), 6.0),
            (row_of("list", 50), 20.0),
            (row_of("writes", 10), 1_000.0),
            (row_of("writes", 50), 800.0),
        ] {
            figures::add(&mut rows, &row, "steadfast", value);
        }
        let goals = judge(&request, &rows);
        let verdicts: Vec<&str> = goals.iter().map(|goal| goal.verdict.text()).collect();
        assert_eq!(verdicts, ["met", "not met", "met", "not met"]);
    }
}
