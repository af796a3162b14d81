//! # NFS
//!
//! Serves file systems to NFS clients: NFS version 3 with its mount and lock protocols over TCP
//! (RFC 1813, RFC 5531, RFC 4506; decisions 0175, 0187).
//!
//! The path of a WRITE: bytes of a stream become a record (`rpc`), a record a call (`nfs3`), and a
//! call calls of [`steadfast_posix::FileSystem`], the very object that the local mount of the file
//! system uses.
//!
//! - `xdr`: values as bytes. `rpc`: records, calls, replies.
//! - `mount3`, `nfs3`, `acl3`, `nlm4`, `nsm`, `finder`: arguments and results of the programs.
//! - `locks`: the table of locks. `lock_service`: its programs. `hosts`: machines to tell of a
//!   restart. `callback`: calls of ours to clients.
//! - `registration`: at another port mapper. `handle`: file handles.
//! - `export`: file systems that are shared. `service`: from a record to a reply. `operation`: the
//!   procedures. `snapshot_folders`: `.zfs`. `replay`: replies to calls that come again.
//!   `reply`: a reply on its way.
//! - `server`: connections and threads. `turns`: whose request is next.
//!   `crowd`: connections of each address.
//! - `fuzz`: entries for fuzzers. `client`: a client for tests.
#![forbid(unsafe_code)]

pub mod acl3;
mod callback;
pub mod client;
mod crowd;
mod export;
pub mod finder;
pub mod fuzz;
pub mod handle;
mod hosts;
mod lock_service;
mod locks;
pub mod mount3;
pub mod nfs3;
pub mod nlm4;
pub mod nsm;
mod operation;
mod registration;
mod replay;
mod reply;
pub mod rpc;
mod server;
mod service;
mod snapshot_folders;
mod spare;
mod tags;
mod turns;
pub mod xdr;

pub use crowd::CONNECTIONS_MAX;
pub use export::{Export, Exports, Note, SnapshotChange, Snapshots, Still, View, Volume};
pub use lock_service::LockSettings;
pub use registration::{RPCBIND, Registration};
pub use reply::Reply;
pub use server::{Door, Figures, Log, Served, Server};
pub use service::{Answer, Peer, Service};
