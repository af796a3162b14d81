//! The crew that carries out the runs of a plan: this process, or other hosts for it.

use crate::drive::Context;
use crate::error::Error;
use crate::event::{Meet, Observer, Options};
use crate::random::mix;
use crate::result::RunResult;
use crate::{anchor, fill, shared};
use std::sync::atomic::AtomicBool;
use steadfast_lab_params::{FormatTuning, General, Run, Sd, Work};

/// The name of this machine where a file names none.
const HERE: &str = "localhost";

/// Carries out runs, one after the other.
pub trait Crew {
    /// All runs begin, or begin again: what earlier ones wrote is not known any more.
    ///
    /// # Errors
    /// Error when a needed host cannot be reached.
    fn begin(&mut self) -> Result<(), Error>;

    /// Those of these storages that must be filled first, and the host where that is so.
    ///
    /// # Errors
    /// When one cannot be looked at or has no size.
    fn short(&mut self, sds: &[Sd]) -> Result<Vec<(String, Sd)>, Error>;

    /// Carries out one run. `weights`: shares of the groups, over what the parameters say.
    ///
    /// # Errors
    /// When it cannot begin. Later failures are in [`RunResult::failure`].
    fn run(
        &mut self,
        run: &Run,
        weights: Option<&[f64]>,
        observer: &mut Observer<'_>,
    ) -> Result<RunResult, Error>;

    /// Key blocks that were read and compared since the last call, if data is validated.
    fn compared(&mut self) -> Option<u64>;
}

/// This process: what it knows of trees and storages from one run to the next.
pub struct Session<'a> {
    context: Context<'a>,
    /// How often all runs have begun.
    rounds: u64,
}

impl<'a> Session<'a> {
    /// Nothing is known yet.
    ///
    /// # Errors
    /// When the file of `pattern=` cannot be used.
    pub fn new(
        general: &'a General,
        format: &'a FormatTuning,
        options: &'a Options,
        stop: &'a AtomicBool,
    ) -> Result<Session<'a>, Error> {
        let fixed = general.pattern.as_deref().map(pattern_file).transpose()?;
        let seed = general.seed.unwrap_or(options.seed);
        let trees = anchor::Trees::new(general.validate);
        let maps = Default::default();
        Ok(Session {
            context: Context {
                general,
                format,
                options,
                stop,
                trees,
                seed,
                draws: options.draws,
                fixed,
                lost: Vec::new(),
                maps,
                meet: None,
            },
            rounds: 0,
        })
    }

    /// Formats of trees that several hosts share meet there after each step.
    pub fn meeting(mut self, meet: &'a Meet<'a>) -> Session<'a> {
        self.context.meet = Some(meet);
        self
    }
}

impl Crew for Session<'_> {
    fn begin(&mut self) -> Result<(), Error> {
        self.context.trees = anchor::Trees::new(self.context.general.validate);
        self.context.maps.clear();
        self.context.draws = mix(self.context.options.draws, self.rounds);
        self.rounds += 1;
        Ok(())
    }

    fn short(&mut self, sds: &[Sd]) -> Result<Vec<(String, Sd)>, Error> {
        let short = fill::short(self.context.general, sds)?;
        Ok(short.into_iter().map(|sd| (HERE.to_string(), sd)).collect())
    }

    fn run(
        &mut self,
        run: &Run,
        weights: Option<&[f64]>,
        observer: &mut Observer<'_>,
    ) -> Result<RunResult, Error> {
        if let (Work::Raw(work), "SD_format", None) = (&run.work, run.label.as_str(), run.elapsed) {
            fill::make_files(work)?;
        }
        self.context.run(run, weights, observer)
    }

    fn compared(&mut self) -> Option<u64> {
        self.context.compared()
    }
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
