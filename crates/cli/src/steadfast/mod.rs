//! `steadfast` itself: the daemon, the links of other names, the offline tools, the doors to the
//! lab. [`crate::catalog`] has the table.

pub(crate) mod audit;
mod audit_agent;
mod audit_file;
pub(crate) mod bench;
pub(crate) mod compat;
pub(crate) mod daemon;
mod demo;
pub(crate) mod inspect;
pub(crate) mod lab;
mod memory;
mod metrics;
pub(crate) mod mount;
pub(crate) mod store;
mod supervisor;
