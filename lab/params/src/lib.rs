//! # Parameter files of vdbench
//!
//! Reads the language that vdbench 5.04.07 accepts and says what it means: a [`Plan`] of [`Run`]s
//! with all names resolved, all loops unrolled and all checks made, so that what remains for an
//! engine is to carry it out.
//!
//! ```text
//! files ─[lexer]→ statements ─[section, keyword, read]→ definitions ─[plan]→ runs
//! ```
//!
//! ## Invariants
//! [params.1] No input makes this crate panic, loop or allocate without bound: lines, definitions,
//!      lists and runs have limits with names. Guarded by [`fuzz`] and the test
//!      `mutated_files_never_panic`.
//! [params.2] Nothing is dropped silently: a word is carried out, or ignored with a warning because
//!      it cannot change what is measured, or refused by name.
//! [params.3] Every refusal names file, line and word in one sentence, and carries vdbench's own
//!      text where it has one.
//!
//! The language was described from the outside (documentation, behaviour); nothing here is taken
//! from its source.
#![forbid(unsafe_code)]

#[cfg(test)]
mod accept_tests;
mod checks;
mod control;
mod error;
mod hosts;
mod keyword;
mod lexer;
mod model;
mod number;
mod plan;
mod read;
mod replay;
mod section;
mod shown;
#[cfg(test)]
mod tests;

pub use control::{CommandOutput, Commands, JournalRules, Repeat, Validate, repeat_text};
pub use error::{Error, ErrorKind, Place, Warning};
pub use hosts::{AGENT_PORT, Host};
pub use keyword::{Keyword, Section, Treatment, keywords};
pub use lexer::{Disk, Files};
pub use model::*;
pub use plan::{FormatOverride, Overrides, curve_rate, shares};
pub use replay::{Replay, ReplayShare};
pub use shown::{short_bytes, size_text, thousands};

use lexer::{Lexer, Replacement};
use section::Definitions;
use std::path::{Path, PathBuf};

/// Files to read, and additions from the command line.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Read one after the other, as one file.
    pub files: Vec<PathBuf>,
    /// `name=value` for `$name` and `!name`.
    pub replacements: Vec<(String, String)>,
    /// Parameters behind a lone `+`, appended to each rd=.
    pub appended: Option<String>,
    /// Options over the file.
    pub overrides: Overrides,
}

impl Request {
    /// One file, nothing else.
    pub fn file(path: impl Into<PathBuf>) -> Request {
        Request { files: vec![path.into()], ..Request::default() }
    }
}

/// Reads parameter files from disk.
///
/// # Errors
/// The first mistake found, with its place; see [`ErrorKind`].
pub fn parse(request: &Request) -> Result<Plan, Error> {
    parse_with(request, &Disk)
}

/// Reads one text, as if it were a file of that name.
///
/// # Errors
/// As [`parse`].
pub fn parse_text(name: &str, text: &str) -> Result<Plan, Error> {
    struct One<'a>(&'a str, &'a str);
    impl Files for One<'_> {
        fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
            if path == Path::new(self.0) {
                Ok(self.1.into())
            } else {
                Err(std::io::ErrorKind::NotFound.into())
            }
        }
    }
    parse_with(&Request::file(name), &One(name, text))
}

/// As [`parse`], with the files from elsewhere.
///
/// # Errors
/// As [`parse`].
pub fn parse_with(request: &Request, files: &dyn Files) -> Result<Plan, Error> {
    let replacements = request
        .replacements
        .iter()
        .map(|(name, value)| Replacement { name: name.clone(), value: value.clone(), used: false })
        .collect();
    let mut lexer = Lexer::new(files, replacements, hosts::names);
    let mut definitions = Definitions::new();
    let mut statements: Vec<lexer::Statement> = Vec::new();
    for path in &request.files {
        statements.extend(lexer.file(path)?);
    }
    lexer.refuse_unused()?;
    let mut statements = section::divide(statements);
    if let Some(appended) = &request.appended {
        let name = "command line".into();
        let extra = lexer.text(Path::new("command line"), &name, appended, true)?;
        for statement in statements.iter_mut().filter(|s| s.items[0].keyword.eq_ignore_ascii_case("rd")) {
            if !statement.items[0].values.iter().any(|v| v.text.eq_ignore_ascii_case("default")) {
                statement.items.extend(extra.iter().flat_map(|e| e.items.clone()));
            }
        }
    }
    for statement in &statements {
        definitions.statement(statement)?;
    }
    definitions.warnings.append(&mut lexer.warnings);
    definitions.warnings.sort_by_key(|w| w.place.line);
    plan::plan(definitions, &request.overrides, lexer.copy)
}

/// Entry for fuzzers: any bytes give a plan or an error, in bounded time.
pub fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match parse_text("fuzz.parm", &text) {
        Ok(plan) => {
            assert!(plan.runs.iter().all(|run| run.interval > 0), "a run without an interval");
            let _ = (plan.simulation(), plan.anchor_lines());
        }
        Err(error) => assert!(!error.sentence().is_empty(), "an error without a sentence"),
    }
}
