//! Conducts an experiment: sets up, loads, measures, cleans up.
//!
//! ## Invariants
//! [experiment.1] When an experiment ends, in whatever way, its pools and files are gone, unless it
//!      was told to keep them: `conduct`, `Drop` of `Pools`.
//! [experiment.2] Every figure of a report was measured in that run or published in a named source.
//! [experiment.3] Parameter files are carried out as they are. Only anchors are mapped and, on
//!      request, durations replaced.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use steadfast_lab_params::Plan;
use steadfast_lab_report::report::{self, Conditions, Phase, Report};
use steadfast_lab_report::{RunRequest, machine, run_reported};
use steadfast_lab_workload::{Event, Options as LoadOptions, execution_seed};

use super::columns;
use super::experiment::{ArmSpec, Experiment, StageFacts};
use super::target::Target;
use crate::error::Error;
use crate::host::progress::Progress;
use crate::load;

/// How an experiment is to be conducted.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Rounds.
    pub rounds: u32,
    /// Replaces the duration of every run, seconds.
    pub elapsed_s: Option<u32>,
    /// Leave pools and files behind.
    pub keep: bool,
    /// Where results go; exists.
    pub out: PathBuf,
    /// Where image files lie, for the description of the machine.
    pub backing: PathBuf,
    /// The command that repeats it.
    pub repeat: String,
}

/// An experiment while it runs.
struct Stage<'a> {
    target: &'a mut dyn Target,
    arms: &'a [ArmSpec],
    plan: &'a Plan,
    directories: &'a [(String, PathBuf)],
    settings: &'a Settings,
    stop: &'a AtomicBool,
    progress: &'a mut Progress,
    cores: u32,
    round: u32,
    phases: Vec<Phase>,
}

impl Stage<'_> {
    /// Runs the whole parameter file. After every run that is not a format the volume is settled
    /// and its space asked.
    fn run_parameters(&mut self) -> Result<(), Error> {
        let out = self.settings.out.join(format!("vdbench-{}", self.round));
        let options = LoadOptions {
            watch: self.target.processes(),
            seed: u64::from(self.round),
            draws: execution_seed().wrapping_add(u64::from(self.round)),
            ..Default::default()
        };
        let watched = !options.watch.is_empty();
        let request = RunRequest { options, ..RunRequest::new(self.plan, &out) };
        let mut broken: Option<Error> = None;
        let reported = {
            let (progress, target) = (&mut *self.progress, &mut *self.target);
            let (arms, directories, phases) = (self.arms, self.directories, &mut self.phases);
            let (round, cores, rounds) = (self.round, self.cores, self.settings.rounds);
            run_reported(&request, self.stop, &mut std::io::sink(), &mut |event| match event {
                Event::Started { run, .. } => {
                    let turn = if rounds > 1 { format!("round {round}, ") } else { String::new() };
                    progress.begin(&format!("{turn}{}", run.label));
                }
                Event::Interval { run, interval } if run.elapsed.is_some() => {
                    let figures = format!(
                        "{:.0}/s  {:.3} ms",
                        interval.line.requested.count as f64 / run.interval.max(1) as f64,
                        interval.line.requested.mean_ms
                    );
                    progress.advance(run.interval as f64, &figures);
                }
                Event::Error(error) => progress.say(&error.to_string()),
                Event::Finished(result) if !result.is_format() && broken.is_none() => {
                    let place = load::directory(&result.run).unwrap_or_default();
                    let Some(at) = directories.iter().position(|(_, to)| Path::new(place).starts_with(to))
                    else {
                        broken = Some(Error::Anchor { anchor: place.to_owned() });
                        return;
                    };
                    let volume = &arms[at].volume;
                    let mut phase = load::phase(result, volume.arm, round, cores, watched);
                    match target.settle(volume).and_then(|()| target.space(volume)) {
                        Ok(space) => phase.space = Some(space),
                        Err(error) => broken = Some(error),
                    }
                    phases.push(phase);
                }
                _ => {}
            })
        };
        let reported = reported.map_err(Error::io("write", &out))?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        // Where the load itself failed, measuring behind it fails too: the first cause is what
        // helps.
        match (reported.failure, broken) {
            (Some(reason), _) => Err(Error::Run { reason, out }),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(()),
        }
    }
}

/// Conducts an experiment on a target and cleans up behind it.
pub fn conduct(
    experiment: &dyn Experiment,
    target: &mut dyn Target,
    settings: &Settings,
    stop: &AtomicBool,
) -> Result<Report, Error> {
    let result = perform(experiment, target, settings, stop);
    if settings.keep {
        let words = target.keep();
        eprintln!("Kept, as asked. To take everything away:\n    {words}");
        return result;
    }
    let cleaned = target.clean_up();
    let mut report = result?;
    cleaned?;
    report.commands = target.history();
    Ok(report)
}

/// A report on somebody else's directories: the load is the experiment's, what is compared is not,
/// and the published figures are about something else.
fn rename(report: &mut Report, names: &[(String, String)]) {
    for (arm, (label, short)) in report.arms.iter_mut().zip(names) {
        (arm.label, arm.short) = (label.clone(), short.clone());
    }
    report.sources.clear();
    report.measures.iter_mut().for_each(|measure| measure.published.clear());
    report.title = format!("The {} load on {}", report.experiment, report.conditions.target);
    report.question = "The same parameter file, one directory after the other.".to_owned();
    report.summary = columns::plain_summary(report);
    report.notes = columns::plain_notes(report);
}

fn perform(
    experiment: &dyn Experiment,
    target: &mut dyn Target,
    settings: &Settings,
    stop: &AtomicBool,
) -> Result<Report, Error> {
    let (started, clock) = (SystemTime::now(), Instant::now());
    let mut machine = machine::describe(&settings.backing);
    let arms = experiment.arms();
    let parameters = experiment.parameters();
    let mut plan = load::plan(&parameters, settings.elapsed_s)?;
    let mut progress = Progress::new(load::seconds(&plan) * f64::from(settings.rounds));

    let mut directories = Vec::new();
    for arm in &arms {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        progress.begin(&format!("making {}", arm.volume.file_system()));
        directories.push((arm.anchor.to_owned(), target.prepare(&arm.volume)?));
    }
    load::remap(&mut plan, &directories)?;

    progress.begin("seeing how busy the machine is");
    machine.busy_before_percent = machine::busy();

    let cores = machine.cores;
    let mut phases = Vec::new();
    for round in 1..=settings.rounds {
        let mut stage = Stage {
            target,
            arms: &arms,
            plan: &plan,
            directories: &directories,
            settings,
            stop,
            progress: &mut progress,
            cores,
            round,
            phases: Vec::new(),
        };
        stage.run_parameters()?;
        phases.append(&mut stage.phases);
    }
    progress.end();

    let facts = StageFacts { used_how: target.used_how(), daemon: !target.processes().is_empty() };
    let mut report = Report {
        schema: report::SCHEMA.to_owned(),
        version: report::VERSION,
        experiment: experiment.name().to_owned(),
        title: experiment.title().to_owned(),
        question: experiment.question().to_owned(),
        summary: String::new(),
        conditions: Conditions {
            started: machine::stamp(started),
            seconds: clock.elapsed().as_secs_f64(),
            target: target.describe(),
            repeat: settings.repeat.clone(),
            rounds: settings.rounds,
            elapsed_override_s: settings.elapsed_s,
            machine,
        },
        arms: arms
            .iter()
            .zip(&directories)
            .map(|(arm, (anchor, directory))| report::Arm {
                key: arm.volume.arm.to_owned(),
                label: arm.label.to_owned(),
                short: arm.short.to_owned(),
                anchor: anchor.clone(),
                directory: directory.display().to_string(),
            })
            .collect(),
        measures: experiment.measures(&phases, &facts),
        phases,
        sources: experiment.sources(),
        load: report::Load {
            file: parameters.file.to_owned(),
            text: parameters.text.to_owned(),
            mapping: directories.iter().map(|(from, to)| (from.clone(), to.display().to_string())).collect(),
        },
        commands: target.history(),
        notes: Vec::new(),
    };
    match target.names() {
        None => {
            report.summary = experiment.summary(&report);
            report.notes = experiment.notes(&report);
        }
        Some(names) => rename(&mut report, &names),
    }
    Ok(report)
}
