//! # Redundancy
//!
//! Makes many unreliable devices into fewer reliable ones, one segment's columns at a time.
//!
//! [`parity`] is the arithmetic of parity columns and of reconstruction (ZFS: `vdev_raidz_math`).
//! [`Stripe`] is the layout of a segment's bytes in its columns. [`Columns`] writes, reads and
//! repairs them (decision 0080).
#![deny(unsafe_code)]

mod columns;
pub mod parity;
mod stripe;

pub use columns::{
    Attempts, Column, Columns, Fault, Finding, Found, Judge, Layout, Look, Lost, Part, Summing, Written,
};
pub use stripe::{Piece, Stripe};
