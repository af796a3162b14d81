//! Every request and answer of the daemon's API.
//!
//! Values are exact (bytes, seconds, words); the command line makes them readable. Requests carry
//! absolute paths: the daemon's working folder is `/`.

mod allow;
mod audits;
mod costs;
mod daemon;
mod dedup;
mod devices;
mod events;
mod filesystems;
mod pools;
mod request;
mod scans;
mod snapshots;
mod streams;
mod values;

pub use allow::*;
pub use audits::*;
pub use costs::*;
pub use daemon::*;
pub use dedup::*;
pub use devices::*;
pub use events::*;
pub use filesystems::*;
pub use pools::*;
pub use request::{API_VERSION, Call, Request};
pub(crate) use request::{for_each_verb, to_json};
pub use scans::*;
pub use snapshots::*;
pub use streams::*;
pub use values::*;
