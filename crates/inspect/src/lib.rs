//! # Inspection
//!
//! Prints and checks any stored structure of a pool's devices, offline: nothing is mounted, nothing is written, no
//! daemon is asked.
//!
//! ## What a hostile image can do
//! Be told of. (H1) No byte of a device panics this room. (H2) Memory is bounded by the devices' real sizes: numbers in
//! labels and rows are believed only as far as they fit. (H3) Every walk ends: levels fall, no address is entered twice, no
//! unit is read for two blocks. (H4) What is printed is escaped; a stranger's name moves no cursor. (H5) Without a key file
//! no passphrase is stretched; with one, sixteen times at most.                  test: `a_mutated_image_*`
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
        /// What the system said.
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
        /// What it should be.
        wanted: &'static str,
    },
}
