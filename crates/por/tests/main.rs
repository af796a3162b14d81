//! Tests through the public surface.

mod recovery;
mod samples;
mod store;
