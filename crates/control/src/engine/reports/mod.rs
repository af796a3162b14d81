//! State of devices and pools, in the form of the API.

pub(super) mod damage;
pub(super) mod dedup;
pub(super) mod devices;
pub(super) mod groups;
pub(super) mod labels;
pub(super) mod replacements;
pub(super) mod spares;
