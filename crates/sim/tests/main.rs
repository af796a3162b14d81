//! Integration tests of this crate: one program, so that the engine is linked once.

mod explorer;
mod histories;
mod hosts;
mod log_mirror;
mod parity;
#[cfg(debug_assertions)]
mod spoil;
mod verbs;
