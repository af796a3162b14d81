//! Integration tests of this crate: one program, so that the engine is linked once.

mod check;
mod clones;
mod columns;
mod common;
mod hostile;
mod namespace;
mod real_pool;
mod snapshots;
