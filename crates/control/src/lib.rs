//! The daemon of one host and user, and both ends of its socket.
//!
//! One daemon holds all imported pools, because only one process may write to a device. Commands talk to it over a
//! Unix socket in lines of JSON; nothing else does. The first command that needs it starts it.
//!
//! ## Parts
//! - [`api`]: every request and answer as a type, and [`Host`], the trait that a daemon serves.
//! - [`refusal`]: the catalogue of codes, and the sentences that go with them.
//! - [`secret`]: keys and passphrases on their way through.
//! - [`runtime`]: which folder, socket, lock and log belong to this user.
//! - [`wire`]: one line, one message; versions.
//! - [`server`] and [`client`]: the two ends. [`daemon`]: life from start to signal.
//! - [`check`]: what is refused before a pool hears of it.
//! - [`mount`]: a dataset behind the kernel's protocol, with its snapshots beside it.
//! - [`cachefile`]: the pools to import again at the next start.
//! - [`engine`]: the host that holds real pools and mounts them.
//! - [`date`]: the calendar.
//! - [`owners`]: names of users and groups.
//! - [`inject`]: faults on purpose.
//! - [`descriptor`]: where streams go to and come from.
//!
//! ## Invariants
//! (C1) At most one daemon per runtime folder: it holds an exclusive lock from before it listens until it has gone.
//!      test: `two_daemons_started_at_once_leave_one`
//! (C2) Nobody but the daemon's own user (and root) gets an answer: folder 0700, socket 0600, peer credentials checked.
//! (C3) No secret is in a log, a history record, an error or a debug print.  test: `secrets_are_nowhere_to_be_read`
//! (C4) Any bytes on the socket get an answer or a closed connection, never a panic.  test: `garbage_gets_a_sentence`
#![forbid(unsafe_code)]

pub mod api;
mod api_clones;
mod api_moves;
mod api_owners;
mod api_sharing;
mod api_snapshots;
mod api_streams;
pub mod cachefile;
pub mod check;
pub mod client;
pub mod daemon;
pub mod date;
pub mod descriptor;
pub mod engine;
pub mod inject;
pub mod memory;
pub mod mount;
mod mount_snapshots;
pub mod owners;
pub mod refusal;
pub mod runtime;
pub mod secret;
pub mod server;
pub mod wire;

pub use api::{Caller, Host};
pub use refusal::{Code, Refusal};
pub use runtime::Runtime;
pub use secret::{Key, KeyFormat, Secret};
