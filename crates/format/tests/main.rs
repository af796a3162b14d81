//! Integration tests of this crate: one program, so that the engine is linked once.

mod document;
mod fuzz_smoke;
mod golden;
mod support;
