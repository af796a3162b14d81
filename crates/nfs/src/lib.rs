//! # NFS
//!
//! Serves file systems to NFS clients: NFS version 3 and its mount protocol, version 3, over TCP
//! (RFC 1813, RFC 5531, RFC 4506; decision 0175).
//!
//! The path of a WRITE: bytes of a stream become a record (`rpc`), a record a call (`nfs3`), and a
//! call calls of [`steadfast_posix::FileSystem`], the very object that the local mount of the file
//! system uses.
//!
//! - `xdr`: values as bytes. `rpc`: records, calls, replies.
//! - `mount3`, `nfs3`: arguments and results of the two programs.
//! - `handle`: file handles.
//! - `export`: file systems that are shared. `service`: from a record to a reply. `operation`: the
//!   procedures. `replay`: replies to calls that come again.
//! - `server`: connections and threads.
//! - `fuzz`: entries for fuzzers. `client`: a client for tests.
#![forbid(unsafe_code)]

pub mod client;
mod export;
pub mod fuzz;
pub mod handle;
pub mod mount3;
pub mod nfs3;
mod operation;
mod replay;
pub mod rpc;
mod server;
mod service;
pub mod xdr;

pub use export::{Export, Exports, Note, View, Volume};
pub use server::{CONNECTIONS_MAX, Figures, Log, Server};
pub use service::{Answer, Service};
