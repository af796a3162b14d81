//! Integration tests of this crate: one program, so that the engine is linked once.

mod beside_commits;
mod claims;
mod early;
mod faults;
mod hostile_inodes;
mod hostile_names;
mod journal;
mod model;
mod occupied;
mod one_file;
mod overlays;
mod patience;
mod resting;
mod shared_reads;
mod support;
mod threads;
