//! Cost of an operation as trees and pools grow, and cost of cleaning as a pool fills.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use steadfast_lab_report::figures::{Axis, Chart, Row, Series, shown};
use steadfast_lab_report::number;

use super::Run;
use super::columns;
use super::request::EngineRequest;
use crate::context::Context;
use crate::error::Error;
use crate::file_systems::{Arm, Arms, Calls};
use crate::host::caches::drop_kernel_caches;
use crate::host::commands::quoted;
use crate::host::space;
use crate::host::workdir::Workdir;
use crate::load::files::{self, Blocks, Noise};

const GIB: u64 = 1 << 30;
/// Files of a directory in the curve over files.
const FOLDER_FILES: u64 = 1_000;
/// Operations that are timed at each point.
const SAMPLES: u64 = 1_000;
/// Bytes of a record that the cleaner's curve overwrites.
const RECORD: usize = 128 << 10;
/// Milliseconds that no write may take while the cleaner is at work.
pub(super) const STALL_MS: f64 = 100.0;

/// Units of the progress bar, all curves together.
pub(super) fn steps(request: &EngineRequest) -> f64 {
    let sizes = request.sizes();
    let count = |part: &str, points: usize, weight: f64| {
        if request.wants(part) { points as f64 * weight } else { 0.0 }
    };
    count("files", sizes.counts.len(), 24.0)
        + count("pool", sizes.pools.len(), 6.0)
        + count("cleaner", sizes.cleaner.2.len(), 2.0 * sizes.cleaner.1 as f64)
}

/// Draws all curves that are asked for.
pub(super) fn run(run: &mut Run<'_>, workdir: &Workdir, context: &Context) -> Result<(), Error> {
    if run.request.wants("files") {
        files(run)?;
    }
    if run.request.wants("pool") {
        pool(run, workdir, context)?;
    }
    if run.request.wants("cleaner") {
        cleaner(run, workdir, context)?;
    }
    Ok(())
}

fn io(place: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
    Error::io("work in", place)
}

fn series(label: &str) -> Series {
    Series { label: label.to_owned(), calculated: false, points: Vec::new() }
}

/// Microseconds of one operation, of a rate.
fn micros(rate: f64) -> f64 {
    1e6 / rate
}

/// One tree that grows, on ext4 and on a pool of ours.
fn files(run: &mut Run<'_>) -> Result<(), Error> {
    let sizes = run.request.sizes();
    let mut lines = Vec::new();
    let limit = Duration::from_secs(sizes.counts_limit_s);
    for key in ["ext4", "plain"] {
        let Some(arm) = run.arms.get(key) else { continue };
        let label = if arm.is_ours() { "steadfast" } else { arm.label };
        let place = arm.place().join("growing");
        arm.cold(&mut run.shell)?;
        fs::create_dir(&place).map_err(io(&place))?;
        let mut found =
            ["create", "stat, names not cached", "remove and create again", "stat, only folders known"]
                .map(|name| series(&format!("{label}: {name}")));
        let mut noise = Noise::new(3);
        let (mut there, began) = (0, Instant::now());
        let mut forgetting_s = 0.0;
        for &count in &sizes.counts {
            run.progress.begin(&format!("{} files: {label}", shown(count as f64)));
            let at = |index: u64| place.join(format!("{}", index / FOLDER_FILES)).join(format!("f{index}"));
            // The samples below are the last files of each point; where there are few, half of
            // them.
            let samples = SAMPLES.min(count / 2);
            while there + samples < count && began.elapsed() < limit {
                if run.stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
                let more = FOLDER_FILES.min(count - samples - there);
                grow(&place, &mut there, more)?;
            }
            if began.elapsed() >= limit {
                run.report.notes.push(format!(
                    "The curve over files ends for {label} at {} files: making them took the {} s that were given.",
                    shown(there as f64),
                    sizes.counts_limit_s
                ));
                break;
            }
            let before = Instant::now();
            grow(&place, &mut there, samples)?;
            found[0].points.push((count as f64, before.elapsed().as_secs_f64() * 1e6 / samples as f64));
            arm.settle(&mut run.shell)?;
            drop_kernel_caches()?;
            forgetting_s = arm.rest(&mut run.shell)?;
            let mut stats = |series: &mut Series| -> Result<(), Error> {
                let before = Instant::now();
                for _ in 0..SAMPLES {
                    let path = at(noise.below(count));
                    fs::symlink_metadata(&path).map_err(io(&path))?;
                }
                series.points.push((count as f64, before.elapsed().as_secs_f64() * 1e6 / SAMPLES as f64));
                Ok(())
            };
            stats(&mut found[1])?;
            // Among few files a folder is met again and again, among many each one but once: so
            // that each stat is one request, folders are looked up before.
            drop_kernel_caches()?;
            arm.rest(&mut run.shell)?;
            for folder in 0..count.div_ceil(FOLDER_FILES) {
                let path = place.join(folder.to_string());
                fs::symlink_metadata(&path).map_err(io(&path))?;
            }
            stats(&mut found[3])?;
            let before = Instant::now();
            for _ in 0..SAMPLES / 4 {
                let path = at(noise.below(count));
                fs::remove_file(&path).map_err(io(&path))?;
                fs::File::create_new(&path).map_err(io(&path))?;
            }
            found[2].points.push((count as f64, before.elapsed().as_secs_f64() * 4e6 / SAMPLES as f64));
            run.progress.advance(12.0, "");
        }
        for (key_of_row, what, points) in [
            ("stat_growth", "stat of a forgotten name", &found[1].points),
            ("name_growth", "stat of a forgotten name in a folder that is known", &found[3].points),
        ] {
            let [(least, fewest), .., (most, last)] = points[..] else { continue };
            let row = Row::new(
                key_of_row,
                &format!("{what}: among the most files over among the fewest"),
                "times",
                false,
                &format!("The curve over files, from {} to {} of them.", shown(least), shown(most)),
            );
            run.report.add(&row, key, last / fewest);
        }
        if arm.is_ours() {
            let row = Row::new(
                "forgetting",
                "the kernel's caches dropped among the most files, until the daemon rests",
                "s",
                false,
                "The kernel tells the daemon of each inode that it forgot. To a fifth of a second.",
            );
            run.report.add(&row, key, forgetting_s);
        }
        lines.extend(found);
        // The tree goes with its file system: nothing else is done on it.
    }
    run.report.charts.push(Chart {
        key: "files".to_owned(),
        title: "Cost of an operation against the number of files".to_owned(),
        how: format!(
            "Empty files, {FOLDER_FILES} a directory. At each point {SAMPLES} operations at random places; stat after the \
             kernel's caches were dropped and the daemon had heard of all that the kernel forgot."
        ),
        x: Axis::log("files"),
        y: Axis::log("µs an operation"),
        limit: None,
        series: lines,
    });
    Ok(())
}

/// Creates `count` more files.
fn grow(place: &Path, there: &mut u64, count: u64) -> Result<(), Error> {
    for index in *there..*there + count {
        let folder = place.join(format!("{}", index / FOLDER_FILES));
        if index % FOLDER_FILES == 0 {
            fs::create_dir(&folder).map_err(io(&folder))?;
        }
        let path = folder.join(format!("f{index}"));
        fs::File::create_new(&path).map_err(io(&path))?;
    }
    *there += count;
    Ok(())
}

/// The same work on pools of growing size.
fn pool(run: &mut Run<'_>, workdir: &Workdir, context: &Context) -> Result<(), Error> {
    let sizes = run.request.sizes();
    let mut cost =
        ["create", "stat, names not cached", "4 KiB write and fsync", "4 KiB random read, cold"].map(series);
    let mut whole = ["create the pool", "import"].map(series);
    let mut memory = vec![series("daemon after import")];
    for &gib in &sizes.pools {
        run.alive()?;
        run.progress.begin(&format!("pool of {gib} GiB"));
        let before = Instant::now();
        let mut arms = {
            let recipe = columns::recipe("plain", gib * GIB, run.request, context);
            Arms::new(vec![recipe], &pool_place(workdir, gib)?, context, &mut run.shell)?
        };
        let x = gib as f64;
        whole[0].points.push((x, before.elapsed().as_secs_f64() * 1e3));
        let Some(arm) = arms.get("plain") else { continue };
        let place = arm.place();
        let count = sizes.files.min(5_000);
        cost[0].points.push((x, micros(files::create(&place, 0, count).map_err(io(&place))?)));
        let file = place.join("large");
        files::write(&file, sizes.file.min(64 << 20), &mut Blocks::new(1, 1.0)).map_err(io(&place))?;
        let before = Instant::now();
        arm.cold(&mut run.shell)?;
        whole[1].points.push((x, before.elapsed().as_secs_f64() * 1e3));
        let (_, now) = arm.memory(&mut run.shell)?;
        memory[0].points.push((x, now as f64 / number::MIB));
        cost[1].points.push((x, micros(files::stat(&place, count).map_err(io(&place))?)));
        let mut noise = Noise::new(gib);
        let reads = files::random_reads(&file, sizes.reads.min(1_000), &mut noise).map_err(io(&place))?;
        cost[3].points.push((x, micros(reads)));
        let syncs = files::random_writes(&file, sizes.syncs.min(60), true, &mut noise).map_err(io(&place))?;
        cost[2].points.push((x, micros(syncs)));
        run.progress.advance(6.0, "");
    }
    let chart = |key: &str, title: &str, how: &str, y: Axis, series: Vec<Series>| Chart {
        key: key.to_owned(),
        title: title.to_owned(),
        how: how.to_owned(),
        x: Axis::log("pool size, GiB (sparse image)"),
        y,
        limit: None,
        series,
    };
    run.report.charts.extend([
        chart(
            "pool",
            "Cost of an operation against the size of the pool",
            "A new pool on a sparse image of each size, compression off.",
            Axis::log("µs an operation"),
            cost.to_vec(),
        ),
        chart(
            "pool_open",
            "Creating and importing a pool of that size",
            "Import is a whole export, dropping of all caches, and import.",
            Axis::log("ms"),
            whole.to_vec(),
        ),
        chart(
            "pool_memory",
            "Memory of the daemon for a pool of that size",
            "VmRSS of the process after the import.",
            Axis::linear("MiB"),
            memory,
        ),
    ]);
    Ok(())
}

fn pool_place(workdir: &Workdir, number: u64) -> Result<Workdir, Error> {
    Workdir::create(&workdir.subdirectory(&format!("c{number}"))?)
}

/// Output of the simulated cleaner for one utilisation.
#[derive(serde::Deserialize)]
struct Simulated {
    percent: f64,
    amplification: f64,
    model: f64,
    rate_mb: f64,
    wait_p999_ms: f64,
    wait_max_ms: f64,
}

#[derive(serde::Deserialize)]
struct SimulatedCurve {
    rows: Vec<Simulated>,
}

/// Steady random overwriting at growing utilisation: on a real mount, and in the simulation of the
/// cleaner's own room where that program is there.
fn cleaner(run: &mut Run<'_>, workdir: &Workdir, context: &Context) -> Result<(), Error> {
    let (bytes, seconds, percents) = run.request.sizes().cleaner;
    let mut amplification = series("mount: bytes to the device per byte accepted");
    let mut rate = series("mount");
    let mut waits =
        ["mount: p99.9 of write(2)", "mount: longest write(2)", "the disk's own longest call meanwhile"]
            .map(series);
    for percent in percents {
        run.alive()?;
        run.progress.begin(&format!("overwriting a pool that is {percent} % full"));
        let home = pool_place(workdir, 10_000 + percent)?;
        let mut arms = Arms::new(
            vec![columns::recipe("plain", bytes, run.request, context)],
            &home,
            context,
            &mut run.shell,
        )?;
        let Some(arm) = arms.get("plain") else { continue };
        let found = overwritten(arm, run, percent, seconds)?;
        let x = percent as f64;
        amplification.points.push((x, found.amplification));
        rate.points.push((x, found.rate_mb));
        waits[0].points.push((x, found.p999_ms));
        waits[1].points.push((x, found.max_ms));
        waits[2].points.push((x, found.device_ms));
        run.progress.advance(2.0 * seconds as f64, "");
    }
    let stall = Row::new(
        "stall",
        "longest write(2) at any utilisation",
        "ms",
        false,
        "In the cleaner's curve on the mount.",
    );
    let longest = waits[1].points.iter().map(|(_, ms)| *ms).fold(0.0, f64::max);
    run.report.add(&stall, "plain", longest);
    let disk = Row::new(
        "stall_disk",
        "longest call to the device meanwhile",
        "ms",
        false,
        "Of the daemon's reads, writes and flushes while writes were timed, at the utilisation of the longest write(2); known to a \
         factor of two, and this is the upper end. A write(2) that waits no longer than this may have waited for the disk.",
    );
    let beside = waits[1].points.iter().zip(&waits[2].points).max_by(|a, b| a.0.1.total_cmp(&b.0.1));
    if let Some((&(percent, wait), &(_, call))) = beside {
        run.report.add(&disk, "plain", call);
        if wait > STALL_MS && call >= wait {
            run.report.notes.push(format!(
                "The longest write(2), {} ms in the pool that is {percent} % full, was in the same seconds as a call to the disk of {} to {} \
                 ms: it may be the disk that stood still.",
                shown(wait),
                shown(call / 2.0),
                shown(call)
            ));
        }
    }

    let mut amplifications = vec![amplification];
    let mut rates = vec![rate];
    let mut latencies = waits.to_vec();
    match simulated(run, context)? {
        Some(curve) => {
            let line = |label: &str, calculated: bool, value: fn(&Simulated) -> f64| Series {
                label: label.to_owned(),
                calculated,
                points: curve.rows.iter().map(|row| (row.percent, value(row))).collect(),
            };
            amplifications.push(line("simulation: hours of writing", false, |row| row.amplification));
            amplifications.push(line("model", true, |row| row.model));
            rates.push(line("simulation of a disk of 400 MB/s", false, |row| row.rate_mb));
            latencies.push(line("simulation: p99.9", false, |row| row.wait_p999_ms));
            latencies.push(line("simulation: longest", false, |row| row.wait_max_ms));
        }
        None => run.report.notes.push(
            "The simulated cleaner is not built, so the cleaner's curve is that of the mount alone: \
             cargo build --release -p steadfast-segment --example cleaner_curve."
                .to_owned(),
        ),
    }
    let how = format!(
        "Records of 128 KiB overwritten at random for {seconds} s, after as much to settle, in a pool of {}; utilisation is \
         the file's share of what df offers.",
        number::bytes(bytes)
    );
    let chart = |key: &str, title: &str, y: Axis, limit: Option<(f64, String)>, series: Vec<Series>| Chart {
        key: key.to_owned(),
        title: title.to_owned(),
        how: how.clone(),
        x: Axis::linear("utilisation, %"),
        y,
        limit,
        series,
    };
    run.report.charts.extend([
        chart(
            "cleaner_amplification",
            "Cleaning: write amplification",
            Axis::linear("bytes written per byte accepted"),
            None,
            amplifications,
        ),
        chart("cleaner_rate", "Cleaning: rate", Axis::linear("MB/s accepted"), None, rates),
        chart(
            "cleaner_latency",
            "Cleaning: how long a write waits",
            Axis::log("ms"),
            Some((STALL_MS, format!("{STALL_MS} ms"))),
            latencies,
        ),
    ]);
    Ok(())
}

struct Found {
    amplification: f64,
    rate_mb: f64,
    p999_ms: f64,
    max_ms: f64,
    /// Longest call of the daemon to its device meanwhile.
    device_ms: f64,
}

fn overwritten(arm: &mut Arm, run: &mut Run<'_>, percent: u64, seconds: u64) -> Result<Found, Error> {
    let place = arm.place();
    let (size, _) = space::df(&place)?;
    let record = RECORD as u64;
    let file = place.join("file");
    let whole = (size / 100 * percent / (1 << 20)).max(1) << 20;
    files::write(&file, whole, &mut Blocks::new(percent, 1.0)).map_err(io(&place))?;
    let mut noise = Noise::new(percent);
    let lasting = Duration::from_secs(seconds);
    // Every segment has been written and cleaned about once before anything counts, as far as the
    // time goes.
    files::overwrite(&file, RECORD, lasting, size, &mut noise).map_err(io(&place))?;
    arm.settle(&mut run.shell)?;
    let before = arm.written(&mut run.shell)?;
    let calls = Calls::of(arm, &mut run.shell)?;
    let done = files::overwrite(&file, RECORD, lasting, 4 * size, &mut noise).map_err(io(&place))?;
    let device_ms = Calls::of(arm, &mut run.shell)?.longest_ms_since(&calls);
    arm.settle(&mut run.shell)?;
    let written = arm.written(&mut run.shell)?.saturating_sub(before);
    Ok(Found {
        amplification: written as f64 / done.bytes.max(record) as f64,
        rate_mb: done.bytes as f64 / 1e6 / done.seconds,
        p999_ms: done.percentile(0.999),
        max_ms: done.percentile(1.0),
        device_ms,
    })
}

/// Runs the simulation, if it is built.
fn simulated(run: &mut Run<'_>, context: &Context) -> Result<Option<SimulatedCurve>, Error> {
    let beside = || Some(context.steadfast.parent()?.join("examples").join("cleaner_curve"));
    let program: PathBuf = run.request.cleaner.clone().or_else(beside).unwrap_or_default();
    if !program.is_file() {
        return Ok(None);
    }
    run.progress.begin("simulating the cleaner");
    // Hours of writing in seconds; fewer and shorter where the rest is short too.
    let words = match (run.request.form.tiny, run.request.form.quick) {
        (true, _) => " --percent 50 --slots 64 --fold 1 --warm 1",
        (_, true) => " --percent 30,70,85,95 --slots 128 --fold 3 --warm 2",
        _ => "",
    };
    let line = format!("{} --json{words}", quoted(&program.display().to_string()));
    let said = run.shell.run(&line)?;
    serde_json::from_str(&said).map(Some).map_err(|error| Error::Answer {
        line,
        answer: error.to_string(),
        expected: "the JSON of the cleaner's curve",
    })
}
