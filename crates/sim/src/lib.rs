//! # Simulation
//!
//! Runs the real stack (`pool`, `dataset`, `posix`) on false devices under one seed, and takes the
//! power away everywhere.
//!
//! ## Fault model
//!
//! *The device* ([`disk`]) has a volatile cache. A write that returned lies in the cache; a flush
//! that returned made durable what was written before it, and says nothing of another device; one
//! that failed lost it. When the power goes, of what was not flushed each write has landed or not,
//! independently of all others and of their order; a write may be torn: it lands in units of 512
//! bytes (or 4,096, if the device says so), any of them (a first part, a last part, all but one,
//! every other one). A range that was discarded and not flushed holds what it held, zeros, or bytes
//! that nobody wrote. A unit is never mixed of two writes: no device in use does that.
//!
//! *The power* goes between any two operations of a device, between any two calls of the workload,
//! and again during the recovery from such a loss ([`cut`]).
//!
//! *Faults of devices* strike the n-th operation of a kind, once or for some time: an error (EIO),
//! no room (ENOSPC), a write or flush that says it succeeded and did nothing, a write that lands
//! somewhere else, a bit that changed on its way or while it lay there, a device that goes away and
//! comes back.
//!
//! *The world*: time passes when someone sleeps or looks, random numbers follow from the seed, and
//! there is one thread ([`steadfast_env::Env::simulated`]). So a run follows from its seed. The
//! kernel and the fronts are not simulated.
//!
//! ## What is asked
//! Of every state ([`recover()`]): it opens without help; every byte can be read; what it holds is
//! what the [`oracle`] allows; the offline check finds nothing; it can be written, closed, checked
//! and opened again. Of every recovery: cut anywhere, the next one comes to the same end.
//!
//! ## Reading order
//! With debug assertions there is `spoil` besides: pools whose items somebody changed who has all
//! keys.
//!
//! [`disk`] and [`log`], [`pages`] (why a state costs little), [`op`] and [`workload`] (what is
//! done), [`base`] (how), [`cut`] (which states there are), [`recover()`], [`oracle`],
//! [`outcomes`] (which of them need not be opened), [`explore`]. [`hosts`] stands alone: several
//! hosts that share a store.
#![forbid(unsafe_code)]

pub mod anchor_disks;
pub mod base;
pub mod cut;
pub mod disk;
pub mod draw;
pub mod explore;
pub mod histories;
pub mod hosts;
pub mod log;
pub mod mirror_faults;
pub mod op;
pub mod oracle;
pub mod outcomes;
pub mod pages;
pub mod parity_histories;
pub mod recover;
pub mod run;
pub mod second_faults;
#[cfg(debug_assertions)]
pub mod spoil;
#[cfg(debug_assertions)]
pub mod spoil_use;
pub mod tree;
pub mod verbs;
pub mod verbs_devices;
pub mod verbs_snapshots;
pub mod verbs_streams;
pub mod workload;
pub mod world;

pub use base::Base;
pub use explore::{Broken, Counts, Explorer};
pub use recover::recover;
pub use steadfast_env::Bug;
pub use workload::{Number, Set};
pub use world::{SETTINGS, SHORT_SLOTS, Setting};
