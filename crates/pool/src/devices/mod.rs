//! The devices that hold segments, and the work on them.

pub(crate) mod attach;
pub(crate) mod cache_devices;
pub(crate) mod diagnose;
pub(crate) mod diagnosis;
pub(crate) mod errlog;
pub mod groups;
pub(crate) mod grow;
pub(crate) mod l2arc;
pub(crate) mod labels;
pub(crate) mod labels_due;
pub(crate) mod leaf;
pub(crate) mod lost_content;
pub(crate) mod offline;
pub(crate) mod parity;
pub(crate) mod probe;
pub(crate) mod removal;
pub(crate) mod replace;
pub(crate) mod scan;
pub(crate) mod scrub;
pub(crate) mod scrub_flow;
pub(crate) mod scrub_walk;
pub(crate) mod spare;
pub(crate) mod spares;
pub(crate) mod state;
pub(crate) mod sweep;
pub(crate) mod trim;
