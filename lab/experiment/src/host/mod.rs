//! The machine that an experiment runs on: commands, mounts, daemons, directories, free space.

pub(crate) mod caches;
pub mod commands;
pub(crate) mod memory;
pub mod mounts;
pub mod processes;
pub(crate) mod progress;
pub mod requirements;
pub(crate) mod shell;
pub(crate) mod space;
pub mod workdir;
