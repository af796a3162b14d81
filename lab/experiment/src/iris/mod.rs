//! The figures of the Iris paper about its portal: `steadfast lab run iris-cache` (figure 4),
//! `iris-scale` (figure 5) and `iris-latency` (figure 7); and `iris-fronts`, its NFS server beside
//! NFS-Ganesha. Beside them, its proofs of retrievability (figure 6): `retrievability`.
//!
//! ```text
//! S3 server of the lab ◄─ link ◄─ daemon: pool, log, anchor ◄─ NFS, link ◄─ client of the lab
//! ```
//!
//! The portal is a pool whose content is in a bucket far away and whose log and anchor are on this
//! machine. Like the other experiments these are strangers to the engine: they type commands, and
//! speak NFS with a client of their own, which caches nothing.
//!
//! ## Invariants
//! [lab_iris.1] Cold means that the pool was exported, the kernel's caches were dropped, and the
//!      pool imported; handles and the connection go on.
//! [lab_iris.2] Where the time of an operation went is told by the daemon's own counters before and
//!      after it; the rest of the client's time is the client's and its way.
//!
//! ## Reading order
//! `client` (NFS), `crowd`, `workers` (processes that have clients), `ganesha` (the server that is
//! compared), `portal`, `split` (the daemon's counters), `latency`, `cache`, `scale`; `fronts`,
//! which needs no store; `retrievability`.

pub(crate) mod cache;
pub(crate) mod client;
mod crowd;
pub(crate) mod fronts;
mod ganesha;
pub(crate) mod latency;
mod portal;
pub(crate) mod retrievability;
pub(crate) mod scale;
mod split;
mod workers;
