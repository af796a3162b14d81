//! Integration tests of this crate: a server over a dataset in memory, and clients of ours.

mod changes;
mod conformance;
mod connections;
mod kernel;
mod lists;
mod locks;
mod names;
mod permissions;
mod snapshots;
mod support;
mod writes;
