//! Integration tests of this crate: one program, so that the engine is linked once.

mod basics;
mod cold;
mod common;
mod concurrency;
mod faults;
mod model;
