//! # Redundancy
//!
//! Makes many unreliable devices into fewer reliable ones, one segment's columns at a time.
//!
//! [`parity`] is the arithmetic: what further columns hold, and how missing ones are had again.
#![deny(unsafe_code)]

pub mod parity;
