//! The daemon of one user on one host, and both ends of its socket.
//!
//! One daemon holds all imported pools, because only one process may write to a device. Commands
//! talk to it over a Unix socket in lines of JSON. The first command that needs a daemon starts it.
//!
//! ## Parts
//! - [`api`]: every request and answer as a type. [`check`]: checks of requests that need no pool.
//! - [`engine`]: the pools, their mounts, and the verbs.
//! - [`refusal`]: the catalogue of messages.
//! - [`wire`]: one message a line; versions. [`server`] and [`client`]: the two ends of the socket.
//! - [`service`]: the interface between the socket and the engine.
//! - [`daemon`]: its life from start to signal. [`runtime`]: its folder, socket, lock and log.
//! - [`cachefile`]: the pools to import at the next start.
//! - [`secret`]: keys and passphrases. [`descriptor`]: source or target of a stream.
//! - [`owners`]: names of users and groups. [`memory`]: memory of the machine.
//! - [`inject`]: deliberate faults.
//!
//! ## Invariants
//! [control.1] At most one daemon per runtime folder: it holds an exclusive lock from before it
//!      listens until its end. test: `two_daemons_started_at_once_leave_one`
//! [control.2] Only the daemon's own user, and root, get an answer: folder 0700, socket 0600, peer
//!      credentials checked.
//! [control.3] No secret is in a log, a history record, an error or a debug print.
//!     test: `secrets_are_nowhere_to_be_read`
//! [control.4] Any bytes on the socket get an answer or a closed connection, never a panic.
//!     test: `garbage_gets_a_sentence`
#![forbid(unsafe_code)]

pub mod agent;
pub mod api;
pub mod audit_record;
pub mod cachefile;
mod caller;
pub mod check;
pub mod client;
pub mod daemon;
pub mod descriptor;
pub mod engine;
pub mod inject;
mod ledger;
pub mod memory;
mod meters;
pub mod owners;
pub mod prices;
mod program;
pub mod refusal;
pub mod rights;
pub mod runtime;
pub mod secret;
pub mod server;
pub mod service;
pub mod steps;
pub mod store_clean;
pub mod stores;
mod syslog;
pub mod token;
pub mod wire;

pub use caller::Caller;
pub use refusal::{Code, Refusal};
pub use runtime::Runtime;
pub use secret::{Key, KeyFormat, Secret};
pub use service::Service;
