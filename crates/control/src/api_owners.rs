//! Requests of what users and groups take up. Part of [`crate::api`].

use serde::{Deserialize, Serialize};

/// What users and groups have of a file system, and may have.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsUserspace {
    /// Name.
    pub name: String,
}

/// One user or group.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct OwnerEntry {
    /// True for a group.
    pub group: bool,
    /// Number.
    pub id: u32,
    /// Bytes that the content of its files occupies.
    pub used: u64,
    /// What it may occupy; 0 is no quota.
    pub quota: u64,
    /// Inodes it has.
    pub objects: u64,
    /// How many it may have; 0 is no quota.
    pub object_quota: u64,
}
