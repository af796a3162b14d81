//! How a pool is made, found and opened (ZFS: `spa_load`).

pub mod anchor;
pub(crate) mod checkpoint;
pub(crate) mod create;
pub(crate) mod load;
pub(crate) mod reguid;
pub(crate) mod root;
pub(crate) mod split;
pub(crate) mod tables;
