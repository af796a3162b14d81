//! The file systems that are compared: how each is made, made cold, asked for the bytes it wrote,
//! and taken away. An experiment gives recipes; dropping [`Arms`] takes everything away, however
//! the experiment ends.

mod arm;
mod arms;
mod calls;
mod kind;
pub(crate) mod loop_device;
pub(crate) mod zfs_fuse;

pub use arm::Arm;
pub use arms::Arms;
pub(crate) use calls::Calls;
pub(crate) use kind::{Kind, Recipe};
