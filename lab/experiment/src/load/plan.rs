//! The load: a parameter file as it is, its anchors mapped to the directories of this run, carried
//! out by the workload engine, its results turned into phases.

use std::path::{Path, PathBuf};

use steadfast_lab_params::{Files, Overrides, Plan, Request, Work, parse_with};

use crate::error::Error;
pub use steadfast_lab_report::phase::{directory, phase};

/// A parameter file that the program carries.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Name: `compression.parm`.
    pub file: &'static str,
    /// Text.
    pub text: &'static str,
}

struct Carried<'a>(&'a Parameters);

impl Files for Carried<'_> {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        if path == Path::new(self.0.file) {
            Ok(self.0.text.as_bytes().to_vec())
        } else {
            Err(std::io::ErrorKind::NotFound.into())
        }
    }
}

/// Reads the file; `elapsed_s` replaces the duration of every run.
pub fn plan(parameters: &Parameters, elapsed_s: Option<u32>) -> Result<Plan, Error> {
    plan_with(parameters, Overrides { elapsed: elapsed_s.map(u64::from), ..Overrides::default() })
}

/// Reads the file, with the options of vdbench's command line over it.
pub fn plan_with(parameters: &Parameters, overrides: Overrides) -> Result<Plan, Error> {
    let request = Request { overrides, ..Request::file(parameters.file) };
    Ok(parse_with(&request, &Carried(parameters))?)
}

/// Points every anchor and lun of the plan to its directory. All must be in `mapping`.
pub fn remap(plan: &mut Plan, mapping: &[(String, PathBuf)]) -> Result<(), Error> {
    let moved = |place: &str| -> Result<String, Error> {
        mapping
            .iter()
            .filter_map(|(from, to)| Path::new(place).strip_prefix(from).ok().map(|rest| (from, to, rest)))
            .max_by_key(|(from, ..)| from.len())
            .map(|(_, to, rest)| {
                if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) }.display().to_string()
            })
            .ok_or_else(|| Error::Anchor { anchor: place.to_owned() })
    };
    for fsd in &mut plan.fsds {
        fsd.anchor = moved(&fsd.anchor)?;
    }
    for sd in &mut plan.sds {
        sd.lun = moved(&sd.lun)?;
    }
    for run in &mut plan.runs {
        match &mut run.work {
            Work::Files(work) => {
                for fsd in &mut work.fsds {
                    fsd.anchor = moved(&fsd.anchor)?;
                }
            }
            Work::Raw(work) => {
                for sd in work.sds.iter_mut().flat_map(|sd| match sd.parts.is_empty() {
                    true => std::slice::from_mut(sd),
                    false => sd.parts.as_mut_slice(),
                }) {
                    sd.lun = moved(&sd.lun)?;
                }
            }
        }
    }
    Ok(())
}

/// Seconds the plan will take, formats not counted.
pub fn seconds(plan: &Plan) -> f64 {
    plan.runs
        .iter()
        .filter_map(|run| run.elapsed.map(|elapsed| (elapsed + run.warmup + run.pause) as f64))
        .sum()
}
