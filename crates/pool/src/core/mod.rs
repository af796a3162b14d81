//! The bottom of a pool: its parts, its errors, its events.

pub(crate) mod admission;
pub(crate) mod checkpoint;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod history;
pub(crate) mod overtaker;
pub(crate) mod ranked;
pub(crate) mod references;
pub(crate) mod rows;
pub(crate) mod state;
pub(crate) mod sweep;
pub(crate) mod view;
