//! # The workload engine
//!
//! Carries out the runs of a vdbench parameter file on whatever is mounted where the file points, and measures. It
//! knows nothing of the file system below: it opens, reads, writes and counts.
//!
//! ```text
//! Plan ─[execute]→ for each run: threads (raw, files) ─[cells]→ driver (drive) ─[Event]→ observer
//!                                                                   └────────→ RunResult
//! ```
//!
//! ## What it costs
//! An operation adds to the call itself: two readings of the clock (25 ns each), one draw or two (2 ns), six plain
//! stores to the thread's own counters, one load of the interval's number. No lock, no locked instruction, no
//! allocation; except one compare-and-swap where a rate is asked for, and one fetch-and-add where addresses are
//! sequential, because vdbench's sequential pointer is one for all threads.
//!
//! ## Invariants
//! (W1) A response time spans the call and nothing else: not waiting for a turn, not making data.
//! (W2) Every operation is counted once, in the interval in which it ended.
//! (W3) The stop flag ends everything within a second, but for a call the kernel does not give back.
//! (W4) What is written never repeats (see [`pattern`]).
#![forbid(unsafe_code)]

mod anchor;
mod command;
pub mod cpu;
mod drive;
mod evidence;
mod files;
pub mod histogram;
mod idle;
mod journal;
#[cfg(test)]
mod journal_tests;
mod monitor;
pub mod pattern;
pub mod random;
mod rate;
mod raw;
mod result;
mod shared;
#[cfg(test)]
mod steering_tests;
#[cfg(test)]
mod tests;
mod validate;
#[cfg(test)]
mod validate_tests;

pub use result::{Counter, Figures, Group, Groups, Interval, Line, RunResult};
pub use shared::IoError;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use steadfast_lab_params::{
    Arrival, CommandOutput, Commands, General, OpenFlags, Plan, Rate, RawWork, Repeat, Run, Sd, Seek, Wd,
    Work, XferSize, curve_rate, shares,
};

/// What the caller adds to the parameter file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Processes whose processor time is reported, such as the daemon of the file system that is measured.
    pub watch: Vec<u32>,
    /// Makes addresses and data repeatable.
    pub seed: u64,
    /// What `$output` stands for in commands.
    pub output: String,
    /// How operations of raw runs are carried out.
    pub engine: Engine,
    /// Response times begin when an operation was due, not when it was begun; where no rate is asked for, as ever.
    pub from_arrival: bool,
}

/// How operations of raw runs are carried out.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Engine {
    /// Through io_uring where that helps: past the page cache, with more operations at a time than processors.
    #[default]
    Auto,
    /// One thread for each operation at a time.
    Threads,
    /// Through io_uring wherever it is there.
    Ring,
}

/// What an observer is told while runs go on.
#[derive(Debug)]
pub enum Event<'a> {
    /// A run begins.
    Started {
        /// Which.
        run: &'a Run,
        /// When.
        started: SystemTime,
    },
    /// An interval is over.
    Interval {
        /// Of this run.
        run: &'a Run,
        /// What happened in it.
        interval: &'a Interval,
    },
    /// Something worth a line, from the threads of a run.
    Message(&'a str),
    /// Something worth a line, from the engine before a run.
    Notice(&'a str),
    /// A line that a command of `startcmd=` or `endcmd=` said.
    Command(CommandOutput, &'a str),
    /// An operation failed.
    Error(&'a IoError),
    /// A run is over.
    Finished(&'a RunResult),
}

/// Why a run could not begin. What goes wrong later is in [`RunResult::failure`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A lun or an anchor is not usable; the sentence says what to do.
    #[error("{0}")]
    Start(String),
    /// A lun must be filled first, and its size is not known.
    #[error(
        "lun={lun} does not exist or is too small, and sd={sd} has no size=; add size= (a multiple of 1m)."
    )]
    NoSize {
        /// Name of the storage.
        sd: String,
        /// Its file.
        lun: String,
    },
}

impl Error {
    pub(crate) fn start(error: impl std::fmt::Display) -> Error {
        Error::Start(error.to_string())
    }
}

/// What all runs found out, up to the first that failed or could not begin.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Finished runs, failed ones included.
    pub runs: Vec<RunResult>,
    /// Why the next run could not begin.
    pub refused: Option<Error>,
    /// The stop flag was seen.
    pub stopped: bool,
    /// With data validation: blocks that were read and compared.
    pub compared: Option<u64>,
}

impl Outcome {
    /// The sentence that ended everything before its time, if one did.
    pub fn failure(&self) -> Option<String> {
        let failed = self.runs.iter().find_map(|run| run.failure.clone());
        failed.or_else(|| self.refused.as_ref().map(Error::to_string))
    }

    /// The sentence about errors that were too few to end a run; none where `data_errors=remove` goes on.
    pub fn failed_operations(&self, plan: &Plan) -> Option<String> {
        let errors: u64 = self.runs.iter().map(|run| run.errors).sum();
        (errors > 0 && plan.general.data_errors.remove.is_none()).then(|| {
            format!("{errors} operations failed, I/O errors or data that was wrong; errorlog.html has the first of them.")
        })
    }

    /// Runs in which nothing was done that was asked for.
    pub fn idle_runs(&self) -> Vec<&str> {
        self.runs
            .iter()
            .filter(|run| !run.did_work() && !run.stopped)
            .map(|run| run.run.label.as_str())
            .collect()
    }
}

/// Carries out all runs of a plan, in order. A run that fails or cannot begin ends the plan; what was found out before
/// is in the outcome all the same.
pub fn execute(
    plan: &Plan,
    options: &Options,
    stop: &AtomicBool,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some((place, name)) = plan.remote.first() {
        let sentence = format!(
            "{}:{}: host {name} is not this machine: several hosts are read, and not carried out yet; use hd=localhost.",
            place.file, place.line
        );
        outcome.refused = Some(Error::Start(sentence));
        return outcome;
    }
    outcome.refused = rounds(plan, options, stop, &mut outcome, observer).err();
    outcome.stopped = stop.load(Relaxed);
    if !outcome.stopped {
        command::run(&plan.general.endcmd, &options.output, stop, observer);
    }
    outcome
}

/// `startcmd=`, then all runs as often as `loop=` says.
fn rounds(
    plan: &Plan,
    options: &Options,
    stop: &AtomicBool,
    outcome: &mut Outcome,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<(), Error> {
    let fixed = plan.general.pattern.as_deref().map(pattern_file).transpose()?;
    if let Some(monitor) = &plan.general.monitor {
        monitor::clear(monitor)
            .map_err(|e| Error::Start(format!("monitor={monitor} cannot be written: {e}.")))?;
    }
    command::run(&plan.general.startcmd, &options.output, stop, observer);
    let begun = std::time::Instant::now();
    for round in 1u64.. {
        all_runs(plan, options, stop, fixed.clone(), outcome, observer)?;
        let more = match plan.general.repeat {
            Repeat::Times(times) => round < times,
            Repeat::Seconds(seconds) => begun.elapsed() < Duration::from_secs(seconds),
            Repeat::Forever => true,
        };
        let ended = outcome.runs.last().is_none_or(|run| run.ended_all);
        if !more || ended || outcome.failure().is_some() || stop.load(Relaxed) {
            break;
        }
        observer(&Event::Notice(&format!("loop: round {round} is done, the next begins.")));
    }
    Ok(())
}

/// The bytes of `pattern=`.
fn pattern_file(path: &str) -> Result<Vec<u8>, Error> {
    const PATTERN_MAX: u64 = 64 << 20;
    let refused = |why: String| Error::Start(format!("pattern={path}: {why}."));
    let length = std::fs::metadata(path).map_err(|e| refused(shared::errno_text(&e)))?.len();
    if length == 0 || length > PATTERN_MAX {
        return Err(refused(format!("the file has {length} bytes; 1 to {PATTERN_MAX} are possible")));
    }
    std::fs::read(path).map_err(|e| refused(shared::errno_text(&e)))
}

fn all_runs(
    plan: &Plan,
    options: &Options,
    stop: &AtomicBool,
    fixed: Option<Vec<u8>>,
    outcome: &mut Outcome,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<(), Error> {
    let mut context = drive::Context {
        general: &plan.general,
        format: &plan.format,
        options,
        stop,
        trees: anchor::Trees::default(),
        seed: plan.general.seed.unwrap_or(options.seed),
        fixed,
        maps: Default::default(),
    };
    context.trees.validate = plan.general.validate;
    let recovers = plan.general.journal.filter(|rules| rules.recover);
    let fill = fill_run(plan)?;
    if let (Some(_), Some(fill)) = (recovers, &fill) {
        let lun = match &fill.work {
            Work::Raw(work) => work.sds.first().map_or("", |sd| sd.lun.as_str()),
            Work::Files(_) => "",
        };
        return Err(Error::Start(format!(
            "lun={lun} is not there or too short, and its journal is to be recovered: nothing is left to compare."
        )));
    }
    if let (Some(rules), Some(mut recovery)) = (recovers, recovery_run(plan)?) {
        // With skip_read_all nothing is read, but what was under way is looked at when the journal is.
        recovery.maxdata = rules.skip_read_all.then_some(steadfast_lab_params::DataLimit::Bytes(1));
        one(&mut context, &recovery, None, outcome, observer)?;
        if rules.only || outcome.failure().is_some() {
            return Ok(());
        }
    }
    if let Some(fill) = fill {
        if let Work::Raw(work) = &fill.work {
            for sd in &work.sds {
                observer(&Event::Notice(&format!(
                    "lun={} does not exist or is too small. host=localhost",
                    sd.lun
                )));
            }
            make_files(work)?;
        }
        one(&mut context, &fill, None, outcome, observer)?;
    }
    for run in &plan.runs {
        let ended = outcome.runs.last().is_some_and(|run| run.ended_all);
        if ended || outcome.failure().is_some() || stop.load(Relaxed) {
            break;
        }
        pause(run.pause, stop);
        one(&mut context, run, None, outcome, observer)?;
        if let Rate::Curve(points) = &run.rate {
            curve(&mut context, run, points, outcome, observer)?;
        }
    }
    Ok(())
}

fn one(
    context: &mut drive::Context<'_>,
    run: &Run,
    weights: Option<&[f64]>,
    outcome: &mut Outcome,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<(), Error> {
    command::run(&run.startcmd, &context.options.output, context.stop, observer);
    let mut first_error = None;
    let mut result = context.run(run, weights, &mut |event| {
        if let (Event::Error(error), None) = (event, &first_error) {
            first_error = Some((*error).clone());
        }
        observer(event);
    })?;
    let limit = &context.general.data_errors;
    if let (Some(line), Some(error)) = (&limit.command, &first_error) {
        let line = error_command(line, error);
        let commands = Commands { lines: vec![line], to: CommandOutput::Console };
        command::run(&commands, &context.options.output, context.stop, observer);
    }
    result.notes.iter().for_each(|note| observer(&Event::Notice(note)));
    outcome.compared = context.compared(outcome.compared);
    if let Some(limit) = context.general.abort_failed_skew {
        result.failure = result.failure.take().or_else(|| failed_skew(&result, limit));
    }
    command::run(&run.endcmd, &context.options.output, context.stop, observer);
    observer(&Event::Finished(&result));
    outcome.runs.push(result);
    Ok(())
}

/// `data_errors="command $lun $lba ..."` for one error.
fn error_command(line: &str, error: &IoError) -> String {
    let sector = if error.evidence.is_empty() { "-1".to_string() } else { error.offset.to_string() };
    let code = error.errno.split(':').next().unwrap_or_default();
    // Quoted: a path is no command.
    let path = format!("'{}'", error.path.replace('\'', "'\\''"));
    line.replace("$lun", &path)
        .replace("$lba", &error.offset.to_string())
        .replace("$size", &error.bytes.to_string())
        .replace("$sector", &sector)
        .replace("$error", code)
}

/// The points of a curve: percentages of the rate just found, in the proportions just seen.
fn curve(
    context: &mut drive::Context<'_>,
    run: &Run,
    points: &[f64],
    outcome: &mut Outcome,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<(), Error> {
    let Some(found) = outcome.runs.last() else { return Ok(()) };
    let count = found.measured.requested().count;
    let max = count as f64 / found.measured_seconds().max(1.0);
    let weights = proportions(found);
    if count == 0 {
        return Ok(());
    }
    for percent in points {
        if outcome.failure().is_some() || context.stop.load(Relaxed) {
            break;
        }
        let rate = curve_rate(max, *percent);
        let point =
            Run { label: format!("{}_({percent}%)", run.label), rate: Rate::Fixed(rate), ..run.clone() };
        one(context, &point, Some(&weights), outcome, observer)?;
        let slow = outcome.runs.last().map_or(0.0, |r| r.measured.requested().mean_ms());
        if run.stopcurve.is_some_and(|limit| slow > limit) {
            break;
        }
    }
    Ok(())
}

/// Share of each (workload, storage, operation) that was asked for, in the order in which runs make their groups.
fn proportions(result: &RunResult) -> Vec<f64> {
    let total = result.measured.requested().count.max(1) as f64;
    let mut pairs: Vec<(String, String, Option<steadfast_lab_params::Operation>)> = Vec::new();
    match &result.run.work {
        Work::Raw(work) => {
            for (wd, sds) in &work.wds {
                pairs.extend(sds.iter().map(|sd| (wd.name.clone(), work.sds[*sd].name.clone(), None)));
            }
        }
        Work::Files(work) => {
            for (fwd, fsds) in &work.fwds {
                for fsd in fsds {
                    let mixed = fwd.rdpct.is_some();
                    let each = fwd.operations.iter().map(|o| (!mixed).then_some(*o));
                    pairs.extend(each.map(|o| (fwd.name.clone(), work.fsds[*fsd].name.clone(), o)));
                }
            }
        }
    }
    pairs
        .iter()
        .map(|(workload, storage, operation)| {
            let times = result.measured.merged(|g| {
                g.requested
                    && g.workload == *workload
                    && g.storage == *storage
                    && operation.is_none_or(|operation| g.operation == operation)
            });
            times.count as f64 / total
        })
        .collect()
}

/// The sentence of `abort_failed_skew=` about the first workload whose share missed its skew by more.
fn failed_skew(result: &RunResult, limit: f64) -> Option<String> {
    let workloads: Vec<(&str, Option<f64>)> = match &result.run.work {
        Work::Raw(work) => work.wds.iter().map(|(wd, _)| (wd.name.as_str(), wd.skew)).collect(),
        Work::Files(work) => work.fwds.iter().map(|(fwd, _)| (fwd.name.as_str(), fwd.skew)).collect(),
    };
    let skews: Vec<Option<f64>> = workloads.iter().map(|(_, skew)| *skew).collect();
    let total = result.measured.requested().count as f64;
    if skews.iter().all(Option::is_none) || total == 0.0 || result.stopped {
        return None;
    }
    workloads.iter().zip(shares(&skews)).find_map(|((name, _), share)| {
        let count = result.measured.merged(|g| g.requested && g.workload == *name).count as f64;
        let (found, wanted) = (count / total * 100.0, share * 100.0);
        ((found - wanted).abs() > limit).then(|| {
            format!(
                "'abort_failed_skew={limit}' requested: {name} of rd={} had {found:.2} % of the operations, not {wanted:.2} %; \
                 skew.html has all of them.",
                result.run.label
            )
        })
    })
}

/// Seconds of rest, unless stopped.
fn pause(seconds: u64, stop: &AtomicBool) {
    let end = std::time::Instant::now() + Duration::from_secs(seconds);
    while std::time::Instant::now() < end && !stop.load(Relaxed) {
        std::thread::sleep(
            Duration::from_millis(20).min(end.saturating_duration_since(std::time::Instant::now())),
        );
    }
}

/// The run `SD_format` that fills what is missing or too short, if anything is.
fn fill_run(plan: &Plan) -> Result<Option<Run>, Error> {
    let mut short: Vec<Sd> = Vec::new();
    for run in &plan.runs {
        let Work::Raw(work) = &run.work else { continue };
        let parts = work
            .sds
            .iter()
            .flat_map(|sd| if sd.parts.is_empty() { std::slice::from_ref(sd) } else { &sd.parts });
        for sd in parts {
            if short.iter().any(|s| s.name == sd.name) {
                continue;
            }
            let found = raw::length(Path::new(&sd.lun)).map_err(|e| {
                Error::Start(format!("Open for lun '{}' failed\n{}", sd.lun, shared::errno_text(&e)))
            })?;
            let device = sd.lun.starts_with("/dev/");
            let enough = match (found, sd.size) {
                (None | Some(0), None) => {
                    return Err(Error::NoSize { sd: sd.name.clone(), lun: sd.lun.clone() });
                }
                (Some(_), None) => true,
                (found, Some(size)) => found.unwrap_or(0) >= size,
            };
            if device && !enough {
                return Err(Error::Start(format!(
                    "lun={} is smaller than size= of sd={} says.",
                    sd.lun, sd.name
                )));
            }
            if !device && (!enough || (plan.general.formatsds && sd.size.is_some())) {
                short.push(sd.clone());
            }
        }
    }
    if short.is_empty() {
        return Ok(None);
    }
    Ok(Some(fill(&plan.general, short)?))
}

/// The run `journal_recovery` that reads all storages and compares what their journals know.
fn recovery_run(plan: &Plan) -> Result<Option<Run>, Error> {
    const MIB: u64 = 1 << 20;
    let mut sds: Vec<Sd> = Vec::new();
    for run in &plan.runs {
        let Work::Raw(work) = &run.work else { continue };
        for sd in
            work.sds.iter().filter(|sd| !sds.iter().any(|known| known.name == sd.name)).collect::<Vec<_>>()
        {
            let found = raw::length(Path::new(&sd.lun)).ok().flatten().unwrap_or(0);
            let size = sd.size.map_or(found, |size| size.min(found));
            sds.push(Sd { size: Some(size - size % MIB), ..sd.clone() });
        }
    }
    if sds.is_empty() {
        return Ok(None);
    }
    let mut run = fill(&plan.general, sds)?;
    run.label = "journal_recovery".into();
    run.rd = "journal_recovery".into();
    if let Work::Raw(work) = &mut run.work {
        for (wd, _) in &mut work.wds {
            wd.name = "journal_recovery".into();
            wd.rdpct = 100.0;
        }
    }
    Ok(Some(run))
}

fn fill(general: &General, mut sds: Vec<Sd>) -> Result<Run, Error> {
    const MIB: u64 = 1 << 20;
    let mut xfersize = general.formatxfersize;
    for sd in &mut sds {
        sd.threads = 2;
        sd.range = None;
        sd.offset = 0;
        sd.openflags = sd.openflags.map(|flags| OpenFlags { direct: flags.direct, ..OpenFlags::default() });
        let size = sd.size.unwrap_or(0);
        if size % MIB != 0 {
            return Err(Error::Start(format!(
                "lun={} does not exist or is too small, and size= of sd={} is not a multiple of 1m, so it is not filled.",
                sd.lun, sd.name
            )));
        }
        while size % xfersize != 0 && xfersize > 512 {
            xfersize = if MIB.is_multiple_of(xfersize) { xfersize } else { MIB };
            if size % xfersize != 0 {
                xfersize /= 2;
            }
        }
    }
    if let Some(rules) = general.validate.filter(|rules| !xfersize.is_multiple_of(rules.block)) {
        return Err(Error::Start(format!(
            "size= of a new lun allows no format in multiples of {} bytes, the key block of data validation; use a size= that does.",
            rules.block
        )));
    }
    let place = sds[0].place.clone();
    let wd = Wd {
        name: "SD_format".into(),
        sds: sds.iter().map(|sd| sd.name.clone()).collect(),
        rdpct: 0.0,
        xfersize: XferSize::Fixed(xfersize),
        seek: Seek::Eof,
        rhpct: 0.0,
        whpct: 0.0,
        skew: None,
        range: None,
        streams: 1,
        stride: None,
        hotband: None,
        priority: None,
        iorate: None,
        threads: None,
        openflags: None,
        place,
    };
    let all = (0..sds.len()).collect();
    Ok(Run {
        label: "SD_format".into(),
        rd: "SD_format".into(),
        loops: "threads=2 iorate=max".into(),
        rate: Rate::Max,
        arrival: Arrival::Exponential,
        spike: false,
        startcmd: Default::default(),
        endcmd: Default::default(),
        elapsed: None,
        interval: 1,
        warmup: 0,
        pause: 0,
        maxdata: None,
        maxdataread: None,
        maxdatawritten: None,
        stopcurve: None,
        compratio: general.compratio,
        dedupratio: general.dedup.map_or(1.0, |dedup| dedup.ratio),
        work: Work::Raw(RawWork { sds, wds: vec![(wd, all)] }),
    })
}

/// Files to be filled must exist first. Their parents are the operator's.
fn make_files(work: &RawWork) -> Result<(), Error> {
    for sd in &work.sds {
        let path = Path::new(&sd.lun);
        let made = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
        made.map_err(|e| {
            let errno = shared::errno_text(&e);
            Error::Start(format!("Open for lun '{}' failed\n{errno}; create its directory first.", sd.lun))
        })?;
    }
    Ok(())
}
