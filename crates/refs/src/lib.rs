//! # References to blocks
//!
//! Most blocks have one pointer. This room knows the others: further references to a block
//! ([`ddt`]), snapshots that still need a block that was let go ([`deadlist`]), and the sealed
//! blocks of a snapshot ([`manifest`]). It stands between the datasets and `blockio`: a dataset
//! writes, reads and frees through [`blocks`], and data flows one way.
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
