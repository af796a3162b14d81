//! # The workload engine
//!
//! Carries out the runs of a vdbench parameter file on whatever is mounted where the file points,
//! and measures. It knows nothing of the file system below: it opens, reads, writes and counts.
//!
//! ```text
//! Plan ─[execute]→ for each run: threads (raw, files) ─[cells]→ driver (drive) ─[Event]→ observer
//!                                                                   └────────→ RunResult
//! ```
//!
//! ## What it costs
//! An operation adds to the call itself: two readings of the clock (25 ns each), one draw or two (2
//! ns), six plain stores to the thread's own counters, one load of the interval's number. No lock,
//! no locked instruction, no allocation; except one compare-and-swap where a rate is asked for, and
//! one fetch-and-add where addresses are sequential, because vdbench's sequential pointer is one
//! for all threads.
//!
//! ## Invariants
//! [workload.1] A response time spans the call and nothing else: not waiting for a turn, not making
//!      data.
//! [workload.2] Every operation is counted once, in the interval in which it ended.
//! [workload.3] The stop flag ends everything within a second, but for a call the kernel does not
//!      give back.
//! [workload.4] What is written never repeats (see [`pattern`]).
#![forbid(unsafe_code)]

mod anchor;
mod command;
pub mod cpu;
mod drive;
mod error;
mod event;
mod evidence;
mod execute;
mod file_calls;
mod files;
mod fill;
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
mod recovery;
mod replay;
#[cfg(test)]
mod replay_tests;
mod result;
mod session;
mod shared;
#[cfg(test)]
mod steering_tests;
#[cfg(test)]
mod tests;
mod trace;
mod validate;
#[cfg(test)]
mod validate_tests;

pub use error::Error;
pub use event::{Engine, Event, Meet, Observer, Options};
pub use execute::{Outcome, execute, execute_by};
pub use monitor::{Order, order as monitor_order};
pub use random::execution_seed;
pub use result::{Counter, Figures, Group, Groups, Interval, Line, RunResult, Share, has_percentile};
pub use session::{Crew, Session};
pub use shared::IoError;
