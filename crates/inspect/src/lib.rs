//! # Inspection
//!
//! Prints and checks any stored structure of a pool's devices, offline: nothing is mounted, nothing
//! is written, no daemon is asked.
//!
//! ## Hostile images
//! A hostile image is reported, and does no harm (test: `a_mutated_image_*`).
//!
//! ## Invariants
//! [inspect.8] No byte of a device makes this crate panic.
//! [inspect.9] Memory is bounded by the real sizes of the devices: numbers in labels and rows count
//!      only as far as they fit.
//! [inspect.10] Every walk ends: levels fall, no address is entered twice, no unit is read for two
//!      blocks.
//! [inspect.11] Printed text is escaped, so a name on the device moves no cursor.
//! [inspect.12] No passphrase is stretched without a key file, and at most sixteen times with one.
//!
//! ## Reading order
//! [`leaf`] (labels and rings), `view` (from there to a readable pool), `walk` (trees), `meta` (the
//! pool's own tree), `namespace` (files and directories), [`log`](mod@log) (the intent log),
//! [`check`](mod@check) (everything against everything), [`finding`] (what can be wrong), [`dump`]
//! (printing).
//!
//! ## Not here
//! Repair: what a check finds is mended by import, by the cleaner, by scrub, or from a backup.
#![forbid(unsafe_code)]

pub mod anchor;
pub mod check;
mod checkpoint;
mod clones;
pub mod columns;
mod dump;
mod error;
pub mod finding;
mod items;
mod keys;
pub mod leaf;
pub mod log;
mod manifests;
mod meta;
mod namespace;
pub mod record;
mod references;
mod snapshots;
mod table;
mod view;
mod walk;

pub use anchor::{anchor, anchored};
pub use check::{Summary, check};
pub use dump::{Selector, Span, block, segments, tail, tree, uberblock};
pub use error::Error;
pub use finding::{Finding, Found, Severity};
pub use leaf::{Leaf, label};
pub use log::log;
pub use record::{Record, Sink};
pub use view::Request;
