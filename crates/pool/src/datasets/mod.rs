//! File systems, volumes, snapshots and clones (ZFS: DSL).

pub(crate) mod blocks;
pub(crate) mod bookmarks;
pub(crate) mod clones;
pub mod counts;
pub(crate) mod dataset;
pub(crate) mod ddt;
pub(crate) mod deadlist;
pub(crate) mod destroy;
pub(crate) mod diff;
pub(crate) mod freeing;
pub(crate) mod holds;
pub(crate) mod keys;
pub(crate) mod manifest;
pub(crate) mod newer;
pub(crate) mod owners;
pub(crate) mod quotas;
pub(crate) mod raw;
pub(crate) mod received;
pub(crate) mod rename;
pub(crate) mod rollback;
pub(crate) mod snapshots;
pub(crate) mod table;
pub(crate) mod traverse;
pub(crate) mod volumes;
