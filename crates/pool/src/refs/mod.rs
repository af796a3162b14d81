//! The layer of references between datasets and blocks: who else refers to a block, and who still needs one that was let go.

pub(crate) mod blocks;
pub(crate) mod ddt;
pub(crate) mod deadlist;
pub(crate) mod manifest;
pub(crate) mod raw_source;
