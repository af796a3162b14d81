//! Experiments that switch one feature on and off under a carried parameter file:
//! `steadfast lab run compression` and `encryption`.

mod columns;
mod compression;
mod conduct;
mod directories;
mod encryption;
mod experiment;
mod pools;
mod request;
mod target;
pub mod terminal;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use steadfast_lab_report::html;

pub use directories::Directories;
pub use experiment::Experiment;
pub use pools::Pools;
pub use request::{Compared, RunRequest};
pub use target::{Target, Volume};

use crate::context::Context;
use crate::error::Error;
use crate::host::requirements::check_room;
use crate::results::{self, Results};
use conduct::Settings;

/// All experiments.
pub fn all() -> Vec<Box<dyn Experiment>> {
    vec![Box::new(compression::Compression), Box::new(encryption::Encryption)]
}

/// The experiment of this name.
pub fn find(name: &str) -> Option<Box<dyn Experiment>> {
    all().into_iter().find(|experiment| experiment.name() == name)
}

/// Runs one experiment and writes its report. When it ends, in whatever way, its pools and files
/// are gone, unless `request.keep`.
pub fn run(request: &RunRequest, context: &Context, stop: &Arc<AtomicBool>) -> Result<Results, Error> {
    let experiment = find(&request.experiment)
        .ok_or_else(|| Error::Usage(format!("there is no experiment `{}`", request.experiment)))?;
    let work = request.work.clone().unwrap_or_else(|| PathBuf::from("/var/tmp"));
    let (mut target, backing): (Box<dyn Target>, PathBuf) = match &request.target {
        Compared::Pools => {
            let advice = "name another directory with --work DIR, or smaller images with --size.";
            check_room(&work, experiment.bytes_needed(request.size), advice)?;
            let pools = Pools::new(&context.steadfast, &context.version, request.size, &work)?;
            (Box::new(pools.heeding(Arc::clone(stop))), work)
        }
        Compared::Directories(given) => {
            let arms = experiment.arms().len();
            if given.len() != arms {
                return Err(Error::Usage(format!(
                    "{} compares {arms} sides, and --target names {}; write --target dir:FIRST,SECOND",
                    experiment.name(),
                    given.len()
                )));
            }
            (Box::new(Directories::new(given.clone())), given[0].clone())
        }
    };
    let out = results::directory(&request.experiment, request.out.as_deref())?;
    let settings = Settings {
        rounds: request.rounds,
        elapsed_s: request.elapsed_s,
        keep: request.keep,
        out: out.clone(),
        backing,
        repeat: request.repeat(),
    };
    let report = conduct::conduct(experiment.as_ref(), target.as_mut(), &settings, stop)?;
    let page = html::render(&report);
    results::write(report, &page, &out, None, None, None)
}

impl results::Told for steadfast_lab_report::report::Report {
    fn summary(&self) -> &str {
        &self.summary
    }

    fn table(&self) -> String {
        terminal::table(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_lab_report::phase::operation;

    use crate::load::{directory, plan, remap, seconds};

    #[test]
    fn every_carried_file_is_read_and_pointed_elsewhere() {
        for experiment in all() {
            let mut plan = plan(&experiment.parameters(), Some(4)).unwrap();
            let mapping: Vec<_> = experiment
                .arms()
                .iter()
                .map(|arm| (arm.anchor.to_owned(), PathBuf::from(format!("/elsewhere/{}", arm.volume.arm))))
                .collect();
            remap(&mut plan, &mapping).unwrap();
            let runs: Vec<_> = plan.runs.iter().filter(|run| run.elapsed.is_some()).collect();
            assert!(!runs.is_empty());
            for run in runs {
                assert!(directory(run).unwrap().starts_with("/elsewhere/"), "{}", run.label);
                assert_eq!(run.elapsed, Some(4));
                assert!(["read", "write"].contains(&operation(run).as_str()));
            }
            assert!(seconds(&plan) >= 16.0);
        }
    }

    #[test]
    fn an_anchor_that_nobody_sets_up_is_refused_by_name() {
        let experiment = find("compression").unwrap();
        let mut plan = plan(&experiment.parameters(), None).unwrap();
        let error = remap(&mut plan, &[("/zfs_compress".to_owned(), PathBuf::from("/x"))]).unwrap_err();
        assert!(error.to_string().contains("/zfs_nocompress"), "{error}");
    }
}
