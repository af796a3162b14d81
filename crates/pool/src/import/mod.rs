//! How a pool is made, found and opened (ZFS: `spa_load`).

pub mod anchor;
pub(crate) mod create;
pub(crate) mod load;
pub(crate) mod reguid;
pub mod scan;
pub(crate) mod split;
