//! Carries out the runs of a plan, in order.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use steadfast_lab_params::{CommandOutput, Commands, Plan, Rate, Repeat, Run, Work, curve_rate, shares};

use crate::error::Error;
use crate::event::{Event, Options};
use crate::result::RunResult;
use crate::session::{Crew, Session};
use crate::shared::IoError;
use crate::{command, fill, monitor, recovery};

/// Results of all runs, up to the first that failed or could not begin.
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

    /// The sentence about errors that were too few to end a run; none where `data_errors=remove`
    /// goes on.
    pub fn failed_operations(&self, plan: &Plan) -> Option<String> {
        let errors: u64 = self.runs.iter().map(|run| run.errors).sum();
        (errors > 0 && plan.general.data_errors.remove.is_none()).then(|| {
            format!(
                "{errors} operations failed (I/O errors or wrong data); errorlog.html lists the first ones."
            )
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

/// Carries out all runs of a plan, in order. A run that fails or cannot begin ends the plan; what
/// was found out before is in the outcome all the same.
pub fn execute(
    plan: &Plan,
    options: &Options,
    stop: &AtomicBool,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Outcome {
    let other = plan.hosts.iter().find(|host| !host.is_here()).or(plan.hosts.get(1));
    let refused = |error: Error| Outcome { refused: Some(error), ..Outcome::default() };
    if let Some(host) = other {
        return refused(Error::Start(format!(
            "{}: host {} is not this machine, and this command measures only this machine: leave hd= out, or use 'steadfast bench'.",
            host.place, host.name
        )));
    }
    match Session::new(&plan.general, &plan.format, options, stop) {
        Ok(mut session) => execute_by(plan, options, stop, &mut session, observer),
        Err(error) => refused(error),
    }
}

/// As [`execute`], by others than this process.
pub fn execute_by(
    plan: &Plan,
    options: &Options,
    stop: &AtomicBool,
    crew: &mut dyn Crew,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut work = Execution { plan, options, stop, crew };
    outcome.refused = work.rounds(&mut outcome, observer).err();
    outcome.stopped = stop.load(Relaxed);
    if !outcome.stopped {
        command::run(&plan.general.endcmd, &options.output, stop, observer);
    }
    outcome
}

/// A plan on its way.
struct Execution<'a> {
    plan: &'a Plan,
    options: &'a Options,
    stop: &'a AtomicBool,
    crew: &'a mut dyn Crew,
}

impl Execution<'_> {
    /// `startcmd=`, then all runs as often as `loop=` says.
    fn rounds(&mut self, outcome: &mut Outcome, observer: &mut dyn FnMut(&Event<'_>)) -> Result<(), Error> {
        let (plan, stop) = (self.plan, self.stop);
        if let Some(monitor) = &plan.general.monitor {
            monitor::clear(monitor)
                .map_err(|e| Error::Start(format!("monitor={monitor} cannot be written: {e}.")))?;
        }
        command::run(&plan.general.startcmd, &self.options.output, stop, observer);
        let begun = std::time::Instant::now();
        for round in 1u64.. {
            self.all_runs(outcome, observer)?;
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

    fn all_runs(&mut self, outcome: &mut Outcome, observer: &mut dyn FnMut(&Event<'_>)) -> Result<(), Error> {
        let (plan, stop) = (self.plan, self.stop);
        self.crew.begin()?;
        let recovers = plan.general.journal.filter(|rules| rules.recover);
        let short = self.crew.short(&fill::used(plan))?;
        if let (Some(_), Some((_, sd))) = (recovers, short.first()) {
            return Err(Error::Start(format!(
                "lun={} does not exist or is too short, so its journal has nothing to compare with.",
                sd.lun
            )));
        }
        if let (Some(rules), Some(mut recovery)) = (recovers, recovery::run(plan)?) {
            // With skip_read_all nothing is read, but what was under way is looked at when the
            // journal is.
            recovery.maxdata = rules.skip_read_all.then_some(steadfast_lab_params::DataLimit::Bytes(1));
            self.one(&recovery, None, outcome, observer)?;
            if rules.only || outcome.failure().is_some() {
                return Ok(());
            }
        }
        if !short.is_empty() {
            for (host, sd) in &short {
                observer(&Event::Notice(&format!(
                    "lun={} does not exist or is too small. host={host}",
                    sd.lun
                )));
            }
            self.one(&fill::fill_run(&plan.general, short)?, None, outcome, observer)?;
        }
        for run in &plan.runs {
            let ended = outcome.runs.last().is_some_and(|run| run.ended_all);
            if ended || outcome.failure().is_some() || stop.load(Relaxed) {
                break;
            }
            pause(run.pause, stop);
            self.one(run, None, outcome, observer)?;
            if let Rate::Curve(points) = &run.rate {
                self.curve(run, points, outcome, observer)?;
            }
        }
        Ok(())
    }

    fn one(
        &mut self,
        run: &Run,
        weights: Option<&[f64]>,
        outcome: &mut Outcome,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<(), Error> {
        let general = &self.plan.general;
        command::run(&run.startcmd, &self.options.output, self.stop, observer);
        let mut first_error = None;
        let mut result = self.crew.run(run, weights, &mut |event| {
            if let (Event::Error(error), None) = (event, &first_error) {
                first_error = Some((*error).clone());
            }
            observer(event);
        })?;
        if let (Some(line), Some(error)) = (&general.data_errors.command, &first_error) {
            let line = error_command(line, error);
            let commands = Commands { lines: vec![line], to: CommandOutput::Console };
            command::run(&commands, &self.options.output, self.stop, observer);
        }
        result.notes.iter().for_each(|note| observer(&Event::Notice(note)));
        if let Some(count) = self.crew.compared() {
            outcome.compared = Some(outcome.compared.unwrap_or(0) + count);
        }
        if let Some(limit) = general.abort_failed_skew {
            result.failure = result.failure.take().or_else(|| failed_skew(&result, limit));
        }
        command::run(&run.endcmd, &self.options.output, self.stop, observer);
        observer(&Event::Finished(&result));
        outcome.runs.push(result);
        Ok(())
    }

    /// The points of a curve: percentages of the rate just found, in the proportions just seen.
    fn curve(
        &mut self,
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
            if outcome.failure().is_some() || self.stop.load(Relaxed) {
                break;
            }
            let rate = curve_rate(max, *percent);
            let point =
                Run { label: format!("{}_({percent}%)", run.label), rate: Rate::Fixed(rate), ..run.clone() };
            self.one(&point, Some(&weights), outcome, observer)?;
            let slow = outcome.runs.last().map_or(0.0, |r| r.measured.requested().mean_ms());
            if run.stopcurve.is_some_and(|limit| slow > limit) {
                break;
            }
        }
        Ok(())
    }
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

/// Share of each (workload, storage, operation) that was asked for, in the order in which runs make
/// their groups.
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

/// The sentence of `abort_failed_skew=` about the first workload whose share missed its skew by
/// more.
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
