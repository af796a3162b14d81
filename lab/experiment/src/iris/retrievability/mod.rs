//! Proofs of retrievability: `steadfast lab run iris-encode` (figure 6 of the Iris paper),
//! `iris-audit` and `iris-recover`.
//!
//! ```text
//! program (example `retrievability` of the engine's sources) ─[its JSON]→ rates, statistics
//! S3 server of the lab ◄─ link ◄─ daemon: pool, parity device        ─→ audits, recoveries
//! ```
//!
//! The lab is a stranger to the engine, so kernels and statistics over thousands of audits come
//! from a program that is built with the engine; whole audits and recoveries are commands on a
//! pool.
//!
//! ## Reading order
//! `program`, `encode`; `covered` (a pool with a parity device), `audit`, `writers` (a part of it),
//! `recover`.

pub(crate) mod audit;
mod covered;
pub(crate) mod encode;
mod program;
pub(crate) mod recover;
mod request;
mod writers;

pub(crate) use request::{AuditRequest, EncodeRequest, RecoverRequest};
