//! Loads: a parameter file carried out by the workload engine, and files made by plain system
//! calls.

pub mod files;
mod plan;
pub(crate) mod source_tree;

pub use plan::{Parameters, directory, phase, plan, plan_with, remap, seconds};
