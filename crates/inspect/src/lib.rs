//! # Inspection
//!
//! Prints and checks any stored structure of a pool's devices, offline: nothing is mounted, nothing is written, no
//! daemon is asked.
//!
//! ## Hostile images
//! A hostile image is reported, and does no harm.                               test: `a_mutated_image_*`
//! [inspect.8] No byte of a device makes this crate panic.
//! [inspect.9] Memory is bounded by the real sizes of the devices: numbers in labels and rows count only as far as they fit.
//! [inspect.10] Every walk ends: levels fall, no address is entered twice, no unit is read for two blocks.
//! [inspect.11] Printed text is escaped, so a name on the device moves no cursor.
//! [inspect.12] No passphrase is stretched without a key file, and at most sixteen times with one.
//!
//! ## Reading order
//! [`leaf`] (labels and rings), `view` (from there to a readable pool), `walk` (trees), `meta` (the pool's own tree),
//! [`log`](mod@log) (the intent log), [`check`](mod@check) (everything against everything), [`finding`] (what can be wrong), [`dump`] (printing).
//!
//! ## Not here
//! Repair: what a check finds is mended by import, by the cleaner, by scrub, or from a backup.
#![forbid(unsafe_code)]

pub mod anchor;
pub mod check;
mod clones;
pub mod columns;
mod dump;
pub mod finding;
mod items;
mod keys;
pub mod leaf;
pub mod log;
mod manifests;
mod meta;
pub mod record;
mod references;
mod snapshots;
mod table;
mod view;
mod walk;

use steadfast_format::Address;

pub use anchor::{anchor, anchored};
pub use check::{Summary, check};
pub use dump::{Selector, Span, block, segments, tail, tree, uberblock};
pub use finding::{Finding, Found, Severity};
pub use leaf::{Leaf, label};
pub use log::log;
pub use record::{Record, Sink};
pub use view::Request;

/// Why nothing could be printed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device could not be opened or read.
    #[error(transparent)]
    Device(#[from] steadfast_device::Error),
    /// A file could not be read.
    #[error("{path}: {source}")]
    File {
        /// As it was named.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// No pool can be read from these devices; the findings say why.
    #[error("no pool can be read from these devices")]
    NoPool,
    /// There is no such dataset.
    #[error("there is no dataset '{name}'")]
    NoDataset {
        /// As it was named.
        name: String,
    },
    /// A dataset whose key was not given.
    #[error("dataset '{dataset}' is encrypted, and its key was not given")]
    Locked {
        /// As it was named.
        dataset: String,
    },
    /// Bytes that no segment has.
    #[error("no segment has {length} bytes at segment {}, offset {}", address.segment, address.offset)]
    Span {
        /// Where they should begin.
        address: Address,
        /// How many.
        length: u32,
    },
    /// A word of the command line that means nothing.
    #[error("'{word}' is not {wanted}")]
    Word {
        /// As it was typed.
        word: String,
        /// Kind wanted.
        wanted: &'static str,
    },
}
