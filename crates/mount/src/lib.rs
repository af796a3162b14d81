//! Serving datasets to the kernel: a file system through FUSE, with its snapshots below `.zfs`; a
//! volume through NBD.
//!
//! The path of a `write(2)`: the kernel's request arrives at `head::HeadHandler::write`, which
//! calls `posix::FileSystem::write`. A request is translated here; `posix` decides what it does.
//!
//! - `mount`: mounts a dataset and unmounts it.
//! - `head`: requests to the live file system: reads, writes, names, attributes, `fsync`.
//! - `snapshots`: requests to `.zfs/snapshot/NAME`.
//! - `collected`: bounds of what the kernel's page cache holds back, and exact refusals.
//! - `promised`: writes that were answered with success and have not come.
//! - `desk`: who changes snapshots for users of `.zfs/snapshot`.
//! - `fsync_waiters`: callers of `fsync` that another thread answers.
//! - `convert`: attributes, times and errors in the kernel's form.
//! - `volume`: a volume as an NBD client reads and writes it.
//! - `volume_client`: whether that client still listens.
//! - `teller`: sizes and times of files, told to a kernel that collects writes.
//! - `share`: a mounted file system as network clients use it.
//! - `top`: the top folder as the kernel may have seen it.
#![forbid(unsafe_code)]

mod collected;
mod convert;
mod desk;
mod fsync_waiters;
mod groups;
mod head;
mod mapped;
mod mount;
mod names;
mod promised;
mod share;
mod snapshot_door;
mod snapshots;
mod teller;
mod top;
mod volume;
mod volume_client;

pub use desk::{Person, SnapshotDesk};
pub use mount::{MountError, MountSpec, MountedFs, SWITCHES_VARIABLE, may_collect};
pub use volume::OpenVolume;
pub use volume_client::VolumeClient;
