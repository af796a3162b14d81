//! # Redundancy
//!
//! Makes many unreliable devices into fewer reliable ones, one segment's columns at a time.
//!
//! [`parity`] is the arithmetic: what further columns hold, and how missing ones are had again. [`Stripe`] says where the bytes of a
//! segment lie in its columns, [`Columns`] writes them, reads them and repairs what is wrong (decision 0080).
#![deny(unsafe_code)]

mod columns;
pub mod parity;
mod stripe;

pub use columns::{Attempts, Column, Columns, Fault, Finding, Found, Judge, Layout, Lost, Summing, Written};
pub use stripe::{Piece, Stripe};
