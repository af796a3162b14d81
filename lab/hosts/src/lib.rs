//! # Several hosts
//!
//! `hd=` and `host=` of a parameter file: one process, the master, divides each run among hosts,
//! each carries out its part with the same engine, and the master lays their intervals together. A
//! host is a thread of the master where it names this machine, else an agent
//! (`steadfast bench agent`) that listens there.
//!
//! ```text
//! Run ─[part]→ one Run for each host ─[link: TLS, a shared secret]→ agent
//!          ─[worker: Session]→ intervals ─[master: laid together by number]→ Event, RunResult
//! ```
//!
//! ## Invariants
//! [hosts.1] Nothing that a master says is read before it has proved that it knows the secret, but
//!      4 bytes of a length, which is bounded, and a proof of fixed size.
//!      test: `hostile_bytes_change_nothing`
//! [hosts.2] The secret never leaves the process, is in no message, no log and on no command line;
//!      a proof is bound to the keys of its own connection and worth nothing on another.
//!      test: `a_proof_is_bound_to_its_connection`
//! [hosts.3] A host that is gone ends the run; what all hosts had measured until then is in the
//!      result.
#![forbid(unsafe_code)]

mod agent;
mod link;
mod master;
mod message;
mod part;
mod secret;
#[cfg(test)]
mod tests;
mod worker;

pub use agent::{Agent, serve};
pub use master::{Hosts, needed};
pub use secret::{ENVIRONMENT, Secret};

/// Errors between master and agent, in sentences for the operator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The secret is missing, too short, or open to others.
    #[error("{0}")]
    Secret(String),
    /// An address cannot be used.
    #[error("{0}")]
    Address(String),
    /// The other side is none of ours, or does not know the secret.
    #[error("{0}")]
    Refused(String),
    /// The connection broke.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// TLS did not come about.
    #[error("TLS failed: {0}")]
    Tls(#[from] rustls::Error),
}
