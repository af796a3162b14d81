//! How a transaction group becomes durable (ZFS: `spa_sync`).

pub(crate) mod anchor;
pub(crate) mod jobs;
pub(crate) mod stores;
pub(crate) mod sync;
