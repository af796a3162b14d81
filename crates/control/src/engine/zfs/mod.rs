//! Verbs of file systems, volumes, snapshots and streams, under ZFS's names.

mod allow;
mod bookmark;
mod clone;
mod create;
pub(super) mod destroy;
mod diff;
mod hold;
pub(super) mod info;
mod inherit;
pub(super) mod keys;
mod list;
mod mount;
pub(super) mod names;
pub(super) mod parents;
mod promote;
mod receive;
mod receive_mounts;
mod rename;
mod rollback;
mod send;
mod set;
mod snapshot;
mod streams;
pub(super) mod token;
mod userspace;
pub(super) mod volumes;
mod wait;
