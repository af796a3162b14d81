//! The devices that hold segments, and the work on them.

pub(crate) mod attach;
pub(crate) mod diagnosis;
pub(crate) mod errlog;
pub mod groups;
pub(crate) mod grow;
pub mod inject;
pub(crate) mod l2arc;
pub(crate) mod removal;
pub(crate) mod scrub;
pub(crate) mod scrub_walk;
pub(crate) mod spares;
pub(crate) mod trim;
