//! Integration tests of this crate, in one program.

mod hosts;
mod journal;
mod refusals;
mod shapes;
mod utilities;
mod workloads;
