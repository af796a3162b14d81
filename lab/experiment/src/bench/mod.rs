//! `steadfast lab run bench`: what the lab's own engine costs, beside a bare loop of pread(2) and
//! beside fio.
//!
//! One file of 64 MiB in the page cache, 4 KiB read at random places by one, two and eight threads:
//! a load that waits for nothing, so the measured cost is that of the tool itself. All columns do
//! it in one run, in interleaved rounds, each beginning with another. Then the time to read a
//! parameter file of 10,000 lines, and the time of a program to its first operation.

mod columns;
mod request;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use steadfast_lab_report::figures::goals::{Bound, bound, ratio};
use steadfast_lab_report::figures::{self, Goal, Row};
use steadfast_lab_report::report::Command;

pub(crate) use request::BenchRequest;

use crate::comparison::{self, ComparisonReport, Heading};
use crate::context::Context;
use crate::error::Error;
use crate::host::progress::Progress;
use crate::host::workdir::Workdir;
use crate::results::{self, Results};
use crate::setup::Setup;
use columns::COLUMNS;

/// Threads of each measurement.
const THREADS: [u32; 3] = [1, 2, 8];
/// The file that is read.
pub(crate) const FILE_BYTES: u64 = 64 << 20;
/// Lines of the parameter file that is read.
const LINES: usize = 10_000;

fn reads(threads: u32) -> Row {
    let label = match threads {
        1 => "4 KiB random reads, cached, 1 thread".to_owned(),
        threads => format!("4 KiB random reads, cached, {threads} threads"),
    };
    Row::new(&format!("reads{threads}"), &label, "1/s", true, "One file of 64 MiB in the page cache.")
}

fn overhead(threads: u32) -> Row {
    let label = match threads {
        1 => "processor time above the bare loop, 1 thread".to_owned(),
        threads => format!("processor time above the bare loop, {threads} threads"),
    };
    let how = "Processors in use divided by the rate, less the same of the bare loop in the same round.";
    Row::new(&format!("overhead{threads}"), &label, "us/op", false, how)
}

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early. fio that is not installed is a column that says so.
pub fn run(
    request: &BenchRequest,
    context: &Context,
    stop: &AtomicBool,
) -> Result<Results<ComparisonReport>, Error> {
    let setup = Setup::new("bench", request.places.out.as_deref(), request.places.parent())?;
    let (workdir, cores) = (&setup.workdir, setup.machine.cores);
    let file = workdir.path().join("peak");
    fill(&file)?;
    let mut report = ComparisonReport::new(
        Some(Heading {
            name: "bench".to_owned(),
            title: "Cost of measuring".to_owned(),
            question: "Reads that wait for nothing: how many of them each engine does, beside a loop that does nothing else."
                .to_owned(),
            base: ("bare".to_owned(), "the bare loop".to_owned()),
        }),
        setup.conditions(
            format!("The lab's engine, Steadfast {}", context.version),
            request.repeat(),
            request.rounds(),
        ),
        format!("one file of 64 MiB, {} seconds each", request.seconds()),
        columns::info(),
    );
    let steps =
        f64::from(request.rounds()) * (THREADS.len() * COLUMNS.len()) as f64 * request.seconds() as f64;
    let mut progress = Progress::new(steps);
    let done = (0..request.rounds()).try_for_each(|round| {
        for threads in THREADS {
            let mut rates = vec![None; COLUMNS.len()];
            for turn in 0..COLUMNS.len() {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
                let at = (turn + round as usize) % COLUMNS.len();
                if report.arms[at].missing.is_some() {
                    continue;
                }
                let column = &COLUMNS[at];
                progress.begin(&format!("round {}: {}, {threads} threads", round + 1, column.label));
                let rate = (column.measure)(&columns::Load {
                    file: &file,
                    threads,
                    seconds: request.seconds(),
                    stop,
                })?;
                progress.advance(request.seconds() as f64, &format!("{rate:.0}/s"));
                rates[at] = Some(rate);
                figures::add(&mut report.rows, &reads(threads), column.key, rate);
            }
            let busy = f64::from(threads.min(cores));
            if let Some(bare) = rates[0] {
                for (column, rate) in COLUMNS.iter().zip(&rates).skip(1) {
                    let Some(rate) = rate else { continue };
                    let above = (busy / rate - busy / bare) * 1e6;
                    figures::add(&mut report.rows, &overhead(threads), column.key, above);
                }
            }
        }
        let parsed = parse_ms();
        let row =
            Row::new("parse", "a parameter file of 10,000 lines, read", "ms", false, "Within the process.");
        figures::add(&mut report.rows, &row, "raw", parsed);
        let start = start_ms(context, workdir, &file)?;
        let how = "The program started, one operation of 4 KiB done, all reports written, the program ended: more than to the first operation.";
        let row = Row::new("start", "a whole execution of one operation", "ms", false, how);
        figures::add(&mut report.rows, &row, "raw", start);
        Ok(())
    });
    progress.end();
    report.conditions.seconds = setup.seconds();
    let measured = !report.rows.is_empty();
    let ComparisonReport { rows, notes, conditions, .. } = &mut report;
    let early = results::early(done, measured, &*rows, notes, conditions)?;
    report.goals = judge(&report.rows);
    report.summary = figures::goals::summary(&report.goals);
    report.commands = columns::fio_lines(request.seconds())
        .into_iter()
        .map(|line| Command { line, status: Some(0) })
        .collect();
    report.notes.push(
        "Every column reads the same file in the same process's page cache; the lab's engines and the bare loop are threads \
         of one program, fio is one of its own. Cached reads never wait; the ring is for reads that do."
            .to_owned(),
    );
    comparison::write(report, &setup.out, early, request.document.markdown.as_deref())
}

/// Goals.
fn judge(rows: &[Row]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for threads in THREADS {
        let key = format!("reads{threads}");
        let with = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        for (arm, name) in [("raw", "raw file"), ("tree", "tree")] {
            goals.extend(ratio(
                rows,
                &key,
                arm,
                "bare",
                0.9,
                &format!("{name}, {with}: at least 0.9 of the bare loop"),
            ));
            for fio in ["fio psync", "fio io_uring"] {
                let text = format!("{name}, {with}: not below {fio}");
                goals.extend(ratio(rows, &key, arm, &fio.replace(' ', "-"), 1.0, &text));
            }
        }
    }
    for (arm, name) in [("raw", "raw file"), ("tree", "tree")] {
        let text = format!("{name}: under 0.3 us an operation above the bare loop, 1 thread");
        goals.extend(bound(rows, "overhead1", arm, Bound::AtMost(0.3), &text));
    }
    goals.extend(bound(rows, "parse", "raw", Bound::AtMost(50.0), "10,000 lines read in under 50 ms"));
    goals.extend(bound(rows, "start", "raw", Bound::AtMost(100.0), "start to first operation under 100 ms"));
    goals
}

/// Makes the file, and reads it once.
fn fill(path: &Path) -> Result<(), Error> {
    let block: Vec<u8> = (0..1u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let bytes = block.repeat((FILE_BYTES >> 20) as usize);
    fs::write(path, bytes).map_err(Error::io("write", path))?;
    fs::read(path).map_err(Error::io("read", path)).map(drop)
}

/// A file of so many lines, a workload each.
fn long_file() -> String {
    let mut text = String::from("sd=sd1,lun=/x,size=1g\n");
    for at in 0..LINES - 2 {
        text += &format!("wd=wd{at},sd=sd1,xfersize=(4k,50,64k,50),rdpct=70,seekpct=50 * of many\n");
    }
    text + "rd=rd1,wd=wd0,iorate=100,elapsed=10\n"
}

fn parse_ms() -> f64 {
    let text = long_file();
    let begun = Instant::now();
    let plan = steadfast_lab_params::parse_text("long.parm", &text);
    let took = begun.elapsed();
    assert!(plan.is_ok_and(|plan| plan.wds.len() == LINES - 2), "a file of our own is read");
    took.as_secs_f64() * 1e3
}

fn start_ms(context: &Context, workdir: &Workdir, file: &Path) -> Result<f64, Error> {
    let parameters = workdir.path().join("one.parm");
    let text = format!(
        "sd=sd1,lun={},threads=1\nwd=wd1,sd=sd1,xfersize=4k\nrd=one,wd=wd1,iorate=max,elapsed=2,interval=1,maxdata=4k\n",
        file.display()
    );
    fs::write(&parameters, text).map_err(Error::io("write", &parameters))?;
    let out = workdir.path().join("one");
    let mut command = std::process::Command::new(&context.steadfast);
    command.arg("bench").arg("-f").arg(&parameters).arg("-o").arg(&out);
    let begun = Instant::now();
    let ended = command.output().map_err(Error::io("run", &context.steadfast))?;
    let took: Duration = begun.elapsed();
    if !ended.status.success() {
        return Err(Error::Command {
            line: "steadfast bench -f one.parm".to_owned(),
            status: ended.status.to_string(),
            stderr: String::from_utf8_lossy(&ended.stderr).into_owned(),
        });
    }
    Ok(took.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_file_has_its_lines_and_is_read() {
        assert_eq!(long_file().lines().count(), LINES);
        assert!(parse_ms() > 0.0);
    }

    #[test]
    fn every_column_of_ours_reads_and_goals_are_judged() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fill(&file).unwrap();
        let stop = AtomicBool::new(false);
        let mut rows = Vec::new();
        for column in COLUMNS.iter().filter(|column| column.needs.is_none()) {
            let rate = (column.measure)(&columns::Load { file: &file, threads: 2, seconds: 2, stop: &stop })
                .unwrap();
            assert!(rate.is_finite() && rate > 0.0, "{} read nothing: {rate}", column.key);
            figures::add(&mut rows, &reads(2), column.key, rate);
        }
        let goals = judge(&rows);
        assert!(goals.iter().any(|goal| goal.text.contains("2 threads: at least 0.9")));
    }
}
