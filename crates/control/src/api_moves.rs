//! Requests of the verbs that move devices and what lies on them. Part of [`crate::api`].

use crate::api::{Properties, ScrubCommand, TrimCommand};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Add a device to the group of another, or make a mirror of one that stands alone.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolAttach {
    /// Name of the pool.
    pub name: String,
    /// A device of the pool, or a group by the name that status prints.
    pub device: PathBuf,
    /// The device that comes.
    pub new: PathBuf,
    /// Take a device that carries something already (`-f`).
    pub force: bool,
}

/// Take a device out of a mirror, or end a replacement by giving up one of its halves.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolDetach {
    /// Name of the pool.
    pub name: String,
    /// Device.
    pub device: PathBuf,
}

/// Even out how full devices are, or stop that.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolRebalance {
    /// Name of the pool.
    pub name: String,
    /// What.
    pub command: ScrubCommand,
}

/// Build anew what is missing on devices, from the beginning.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolResilver {
    /// Name of the pool.
    pub name: String,
}

/// Fill all free space of devices with a pattern, or stop that.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolInitialize {
    /// Name.
    pub name: String,
    /// Devices, by the names that status prints or a path to them; empty: all.
    pub devices: Vec<PathBuf>,
    /// What.
    pub command: TrimCommand,
}

/// Make a pool of one device of each mirror.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolSplit {
    /// Name.
    pub name: String,
    /// Name of the new pool.
    pub new_name: String,
    /// Devices of the new pool; for groups of which none is named, their last one.
    pub devices: Vec<PathBuf>,
    /// Only say which devices those would be.
    pub dry_run: bool,
    /// Properties of the new pool that it keeps (`-o`).
    #[serde(default)]
    pub properties: Properties,
}

/// Give the pool another number.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolReguid {
    /// Name.
    pub name: String,
}
