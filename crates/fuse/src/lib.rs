//! # The FUSE front
//!
//! Translates the kernel's FUSE protocol into calls of one trait, [`Handler`], and decides nothing.
//!
//! ## The way of a request
//! ```text
//!   kernel ──read──► device ──bytes──► wire::request::decode ──Operation──► dispatch::serve
//!                                                                               ──► Handler
//!   kernel ◄─write── device ◄─bytes─── wire::reply::encode_* ◄─ answer of the handler,
//!                                                               or EIO if it panicked
//! ```
//! [`wire`] is bytes only, [`dispatch`] lends memory only, [`Session`] owns descriptors, threads
//! and the mount. A second transport (the kernel's io_uring queues) would replace `device` and the
//! loop in `session` and nothing else: [`wire::Parts`] already reads a request that lies in three
//! places, and [`dispatch::serve`] fills whatever memory it is lent.
//!
//! ## Reading order
//! [`handler`](Handler) (what a file system must know), `types` (the nouns), `session` (threads,
//! and why nothing hangs), `mount`, `notify` (the kernel is to forget, without deadlock), `forgets`
//! (it forgot), `wire::init` (every feature flag, with its reason).
//!
//! ## Example
//! ```no_run
//! use std::{path::Path, sync::Arc};
//! use steadfast_fuse::{Handler, MountOptions, Session, UnmountMode};
//!
//! struct Nothing;
//! impl Handler for Nothing {}
//!
//! let mut options = MountOptions::new("tank");
//! options.subtype = Some("steadfast".into());
//! let session = Session::mount(Path::new("/tank"), &options, Arc::new(Nothing))?;
//! session.unmount(UnmountMode::Clean)?;
//! # Ok::<(), steadfast_fuse::Error>(())
//! ```
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod arenas;
mod aside;
mod caller;
mod device;
pub mod dispatch;
mod error;
mod forgets;
mod handler;
mod handshake;
mod idle_poll;
mod later;
mod mount;
mod notify;
mod options;
mod session;
mod sink;
mod switches;
mod sync_calls;
mod threads;
mod types;
mod uring;
mod write_out;

pub mod wire;

pub use aside::aside;
pub use caller::{Intent, intent_of, may_be_writing};
pub use error::Error;
pub use handler::{Handler, Reply};
pub use idle_poll::IdlePolling;
pub use later::Later;
pub use mount::{UnmountMode, become_io_flusher, clear_stale};
pub use notify::{Notifier, NotifyError};
pub use options::{IdlePoll, LogEvent, LogSink, MountFlags, MountOptions, MountVia, Readdirplus};
pub use session::{EndReason, Session};
pub use sink::{DirPlusSink, DirSink, ValueSink};
pub use switches::{SWITCHES, Switch, SwitchError};
pub use sync_calls::SyncCalls;
pub use types::*;
pub use wire::reply::TTL_LONG;
pub use write_out::{HeldPages, KernelsView, KnownFile, dirty_threshold};
