//! Integration tests of this crate: one program, so that the engine is linked once.

mod answers;
mod datasets;
mod pool_words;
mod programs;
mod suite_words;
mod usages;
mod words;
