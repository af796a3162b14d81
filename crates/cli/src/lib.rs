//! The command line: reads what operators type, and owns the sentences they read.
//!
//! The same commands answer to our own words (`steadfast pool list`) and to ZFS's (`zpool list`),
//! with ZFS's option letters, property names, column headings, JSON shapes and exit codes: 0
//! success, 1 failure, 2 wrong command line. The daemon changes pools; this crate only asks it to.
//!
//! Imports go down this list:
//!
//! | module | holds |
//! |---|---|
//! | [`program`] | finds the command of a command line and runs it |
//! | [`catalog`] | the table of all commands; `completions` and `man`, which read it |
//! | [`manual`], [`completions`] | manual pages and shell scripts, made from a catalog |
//! | [`zpool`], [`zfs`], `steadfast` | one file for each verb |
//! | `properties`, [`key`], `repeat` | shared by verbs: properties, passphrases, intervals |
//! | [`command`], [`session`] | the types of commands, and one run of one |
//! | [`options`], [`message`], [`table`], [`json`], [`date`], [`world`] | parsing, text, the outside |
#![forbid(unsafe_code)]

pub mod catalog;
pub mod command;
pub mod completions;
pub mod date;
mod examples;
mod fuzz;
pub mod json;
pub mod key;
mod key_phrases;
#[cfg(test)]
mod left_out;
pub mod manual;
pub mod message;
pub mod options;
pub mod program;
mod progress;
mod properties;
mod repeat;
pub mod session;
mod steadfast;
pub mod table;
pub mod world;
pub mod zfs;
mod zfs_phrases;
pub mod zpool;
mod zpool_phrases;

pub use fuzz::fuzz_options;
use std::process::ExitCode;

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    ExitCode::from(world::real(|world| program::run(world, &arguments)))
}
