//! The program that measures kernels and counts audits, and what it prints.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::error::Error;
use crate::host::commands::quoted;
use crate::host::shell::Shell;

/// Rates of the kernels.
#[derive(Deserialize)]
pub(super) struct Rates {
    pub rates: Vec<Rate>,
    pub blocks: Vec<Block>,
}

/// Rate of some work.
#[derive(Deserialize)]
pub(super) struct Rate {
    pub work: String,
    pub arm: String,
    pub mb_s: Vec<f64>,
}

/// Rate where blocks of this size are coded each by itself.
#[derive(Deserialize)]
pub(super) struct Block {
    pub bytes: u64,
    pub arm: String,
    pub mb_s: Vec<f64>,
}

/// Times of an audit, and how often audits of damaged stores found out.
#[derive(Deserialize)]
pub(super) struct Audits {
    pub samples: u32,
    pub cells: u64,
    pub audits: u32,
    pub reply_bytes: u64,
    pub reply_ms: Vec<f64>,
    pub verify_ms: Vec<f64>,
    pub judge_ms: Vec<f64>,
    pub detection: Vec<Detection>,
    pub histogram: Vec<Bar>,
}

/// How often audits of so many samples found out that a fraction of cells is missing.
#[derive(Deserialize)]
pub(super) struct Detection {
    pub missing: f64,
    pub samples: u32,
    pub found: f64,
    pub formula: f64,
    pub deviations: f64,
}

/// Audits in which so many samples failed, counted and by the formula.
#[derive(Deserialize)]
pub(super) struct Bar {
    pub failed: u32,
    pub audits: u32,
    pub formula: f64,
}

/// Losses, and what came back.
#[derive(Deserialize)]
pub(super) struct Losses {
    pub cells: u64,
    pub tiles: u32,
    pub trials: u32,
    pub edge: Vec<Edge>,
    pub solving: Vec<Solving>,
}

/// Recoveries after a loss that is this part of the planned one.
#[derive(Deserialize)]
pub(super) struct Edge {
    pub pattern: String,
    pub part: f64,
    /// Share of the recoveries after which nothing was missing.
    pub whole: f64,
    /// Share of the lost cells that came back.
    pub back: f64,
    /// Least share of whole recoveries, by the arithmetic.
    pub bound: f64,
}

/// Time of one tile that lost so many cells.
#[derive(Deserialize)]
pub(super) struct Solving {
    pub lost: u32,
    pub seconds: Vec<f64>,
}

/// Path of the program.
///
/// # Errors
/// It is not built.
pub(super) fn find(given: Option<&Path>, context: &Context) -> Result<PathBuf, Error> {
    let beside = || Some(context.steadfast.parent()?.join("examples").join("retrievability"));
    let program = given.map(Path::to_owned).or_else(beside).unwrap_or_default();
    if program.is_file() {
        return Ok(program);
    }
    Err(Error::Missing {
        what: format!("{} is not there: the program that measures kernels is not built.", program.display()),
        action: "cargo build --release -p steadfast-por --example retrievability, or name it with --program \
                 FILE."
            .to_owned(),
    })
}

/// Runs it and reads what it prints.
pub(super) fn run<T: DeserializeOwned>(program: &Path, words: &str, shell: &mut Shell) -> Result<T, Error> {
    let line = format!("{} {words}", quoted(&program.display().to_string()));
    let said = shell.run(&line)?;
    serde_json::from_str(&said).map_err(|error| Error::Answer {
        line,
        answer: error.to_string(),
        expected: "the JSON of rates and statistics",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_built_is_told_with_the_command_that_builds_it() {
        let context = Context { steadfast: PathBuf::from("/no/such/steadfast"), version: "1".to_owned() };
        let said = find(None, &context).unwrap_err().to_string();
        assert!(said.contains("/no/such/examples/retrievability") && said.contains("cargo build"), "{said}");
        assert!(find(Some(Path::new("/bin/sh")), &context).is_ok());
    }
}
