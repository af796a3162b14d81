//! Speaks to operators, and owns every sentence they read.
//!
//! The same commands answer to our own words (`steadfast pool list`) and to those people know (`zpool list`), with
//! ZFS's option letters, property names, column headings, JSON shapes and exit codes: 0 success, 1 failure, 2 a
//! command that was not understood. Everything that changes a pool happens in the daemon; here are words only.
//!
//! Reading order: [`options`] (what a command line may look like), [`family`] (which commands there are), [`zpool`] and
//! [`zfs`] (what they do), [`table`] and [`json`] (how answers look), [`key`] (passphrases), [`world`] (what of the
//! machine is touched).
#![forbid(unsafe_code)]

pub mod completions;
pub mod date;
pub mod demo;
pub mod family;
mod fuzz;
pub mod inspect;
pub mod json;
pub mod key;
pub mod lab;
pub mod manual;
mod memory;
pub mod options;
mod repeat;
pub mod sharing;
mod steadfast;
pub mod table;
pub mod world;
pub mod zfs;
mod zfs_clones;
mod zfs_diff;
mod zfs_keep;
mod zfs_rename;
mod zfs_snapshots;
mod zfs_streams;
mod zfs_userspace;
pub mod zpool;
mod zpool_errors;
mod zpool_events;
mod zpool_growth;
mod zpool_import;
mod zpool_inject;
mod zpool_iostat;
mod zpool_moves;
mod zpool_scan;
mod zpool_status;
mod zpool_trim;
mod zpool_vdevs;

pub use fuzz::fuzz_options;
use std::process::ExitCode;

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    ExitCode::from(world::real(|world| family::run(world, &arguments)))
}
