//! Tests through the public surface.

mod covered;
mod device;
mod recovery;
mod samples;
mod statistics;
mod store;
