//! The bottom of a pool: its parts, its errors, its events.

pub(crate) mod admission;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod history;
pub(crate) mod inner;
pub(crate) mod memory;
pub(crate) mod rows;
