//! Tests through the public surface.

mod device;
mod recovery;
mod samples;
mod store;
