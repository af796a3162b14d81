//! # References to blocks
//!
//! Most blocks have one pointer. This room knows the others: who else refers to a block ([`ddt`]),
//! who still needs one that was let go ([`deadlist`]), and which sealed blocks a snapshot has
//! ([`manifest`]). It stands between the datasets and `blockio`: a dataset writes, reads and frees
//! through [`blocks`], and data flows one way.
//!
//! Nothing of the pool is locked under the locks of this room.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod ddt;
pub mod deadlist;
mod error;
pub mod manifest;
pub mod raw_source;

pub use error::{Error, Result};
