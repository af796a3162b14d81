//! The columns: the bare loop, the lab's engines, fio.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::Value;
use steadfast_lab_workload::{Engine, Options, execute, random::Random};

use super::FILE_BYTES;
use crate::error::Error;
use steadfast_lab_report::figures::ArmInfo;

/// Bytes of a read.
const BLOCK: u64 = 4096;

/// Load of a column.
pub(super) struct Load<'a> {
    pub file: &'a Path,
    pub threads: u32,
    pub seconds: u64,
    pub stop: &'a AtomicBool,
}

/// A reader.
pub(super) struct Column {
    pub key: &'static str,
    pub label: &'static str,
    /// A program that must be installed.
    pub needs: Option<&'static str>,
    /// Reads a second.
    pub measure: fn(&Load<'_>) -> Result<f64, Error>,
}

/// All of them; what the others are held against first.
pub(super) const COLUMNS: &[Column] = &[
    Column { key: "bare", label: "bare loop of pread", needs: None, measure: bare },
    Column { key: "raw", label: "lab, raw file", needs: None, measure: |load| raw(load, Engine::Threads) },
    Column { key: "tree", label: "lab, tree of files", needs: None, measure: tree },
    Column {
        key: "ring",
        label: "lab, raw file, io_uring",
        needs: None,
        measure: |load| raw(load, Engine::Ring),
    },
    Column {
        key: "fio-psync",
        label: "fio psync",
        needs: Some("fio"),
        measure: |load| fio(load, "psync", 1),
    },
    Column {
        key: "fio-io_uring",
        label: "fio io_uring",
        needs: Some("fio"),
        measure: |load| fio(load, "io_uring", 1),
    },
];

/// Columns as reports name them.
pub(super) fn info() -> Vec<ArmInfo> {
    let there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let missing = |column: &Column| {
        let program = column.needs.filter(|program| !there(program))?;
        Some(format!("{program} is not installed"))
    };
    COLUMNS
        .iter()
        .map(|column| ArmInfo {
            key: column.key.to_owned(),
            label: column.label.to_owned(),
            missing: missing(column),
        })
        .collect()
}

/// Threads that draw a place, read, count, and do nothing else.
fn bare(load: &Load<'_>) -> Result<f64, Error> {
    let end = AtomicBool::new(false);
    let file = File::open(load.file).map_err(Error::io("open", load.file))?;
    let begun = Instant::now();
    let mut count = 0u64;
    std::thread::scope(|scope| {
        let work = |key: u64| {
            let (file, end) = (&file, &end);
            move || {
                let mut random = Random::new(&[key]);
                let mut buffer = vec![0u8; BLOCK as usize];
                let mut count = 0u64;
                while !end.load(Relaxed) {
                    let at = random.below(FILE_BYTES / BLOCK) * BLOCK;
                    count +=
                        u64::from(file.read_at(&mut buffer, at).is_ok_and(|length| length as u64 == BLOCK));
                }
                count
            }
        };
        let threads: Vec<_> = (0..load.threads).map(|key| scope.spawn(work(u64::from(key)))).collect();
        while begun.elapsed() < Duration::from_secs(load.seconds) && !load.stop.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }
        end.store(true, Relaxed);
        count = threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum();
    });
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// The engine on one file.
fn raw(load: &Load<'_>, engine: Engine) -> Result<f64, Error> {
    let text = format!(
        "sd=sd1,lun={},threads={}\nwd=wd1,sd=sd1,xfersize=4k\nrd=peak,wd=wd1,iorate=max,elapsed={},interval=1\n",
        load.file.display(),
        load.threads,
        load.seconds.max(2)
    );
    ours(load, &text, Options { engine, ..Options::default() })
}

/// The engine on a tree of eight files of 8 MiB.
fn tree(load: &Load<'_>) -> Result<f64, Error> {
    let text = format!(
        "fsd=fsd1,anchor={}.tree,depth=1,width=1,files=8,size=8m\n\
         fwd=fwd1,fsd=fsd1,operation=read,xfersize=4k,fileio=random,fileselect=random,threads={}\n\
         rd=peak,fwd=fwd1,fwdrate=max,format=restart,elapsed={},interval=1\n",
        load.file.display(),
        load.threads,
        load.seconds.max(2)
    );
    ours(load, &text, Options::default())
}

fn ours(load: &Load<'_>, text: &str, options: Options) -> Result<f64, Error> {
    let plan = steadfast_lab_params::parse_text("peak.parm", text)?;
    let outcome = execute(&plan, &options, load.stop, &mut |_| {});
    if load.stop.load(Relaxed) {
        return Err(Error::Stopped);
    }
    if let Some(reason) = outcome.failure() {
        return Err(Error::Run { reason, out: load.file.to_owned() });
    }
    let run = outcome.runs.iter().rfind(|run| !run.is_format());
    Ok(run.map_or(0.0, |run| {
        // The first second is the warm-up; by the clock, so that a late end counts.
        let seconds: f64 =
            run.lines.iter().filter(|line| line.number >= run.first_measured).map(|line| line.seconds).sum();
        run.measured.requested().count as f64 / seconds.max(1e-9)
    }))
}

fn fio_words(file: &str, threads: u32, seconds: u64, engine: &str, depth: u32) -> Vec<String> {
    [
        "--name=peak",
        "--rw=randread",
        "--bs=4k",
        "--size=64m",
        "--thread",
        "--time_based",
        "--group_reporting",
        "--norandommap",
        "--randrepeat=0",
        "--invalidate=0",
        "--ramp_time=1",
        "--output-format=json",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain([
        format!("--filename={file}"),
        format!("--ioengine={engine}"),
        format!("--iodepth={depth}"),
        format!("--numjobs={threads}"),
        format!("--runtime={}", seconds.max(2) - 1),
    ])
    .collect()
}

/// The lines of fio, for the report.
pub(super) fn fio_lines(seconds: u64) -> Vec<String> {
    ["psync", "io_uring"]
        .map(|engine| format!("fio {}", fio_words("FILE", 8, seconds, engine, 1).join(" ")))
        .to_vec()
}

fn fio(load: &Load<'_>, engine: &str, depth: u32) -> Result<f64, Error> {
    let words = fio_words(&load.file.display().to_string(), load.threads, load.seconds, engine, depth);
    let ended = Command::new("fio").args(&words).output().map_err(Error::io("run", Path::new("fio")))?;
    let rate = serde_json::from_slice::<Value>(&ended.stdout)
        .ok()
        .and_then(|said| said["jobs"][0]["read"]["iops"].as_f64())
        .filter(|_| ended.status.success());
    rate.ok_or_else(|| Error::Command {
        line: format!("fio {}", words.join(" ")),
        status: ended.status.to_string(),
        stderr: String::from_utf8_lossy(&ended.stderr).into_owned(),
    })
}
