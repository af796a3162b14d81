//! Tests through the public surface.

mod away;
mod away_pass;
mod covered;
mod device;
mod lying;
mod oracle;
mod owed;
mod recovery;
mod rehearsal;
mod rekey;
mod samples;
mod statistics;
mod step;
mod store;
mod waiting;
