//! File systems and volumes: creating, destroying, listing, renaming and mounting them; their
//! properties and keys.

use super::values::{Properties, Value};
use crate::secret::Key;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Create a file system.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsCreate {
    /// Name, pool included.
    pub name: String,
    /// Create missing parents too; succeed if it exists already (`-p`).
    pub parents: bool,
    /// Do not mount (`-u`).
    pub no_mount: bool,
    /// Only check (`-n`).
    pub dry_run: bool,
    /// `-o`.
    pub properties: Properties,
    /// Key, if it becomes an encryption root.
    pub key: Option<Key>,
    /// Create a volume (`-V`).
    #[serde(default)]
    pub volume: Option<NewVolume>,
}

/// Size of a new volume. The size of its blocks is the property `volblocksize`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct NewVolume {
    /// Bytes; rounded up to whole blocks.
    pub bytes: u64,
    /// Reserve no space for it (`-s`).
    pub sparse: bool,
}

/// Destroy a file system.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsDestroy {
    /// Name.
    pub name: String,
    /// Children too (`-r`).
    pub recursive: bool,
    /// Clones of its snapshots too, wherever they are (`-R`).
    #[serde(default)]
    pub clones: bool,
    /// Even if files are open (`-f`).
    pub force: bool,
    /// Only list what would be destroyed (`-n`).
    pub dry_run: bool,
}

/// Properties of file systems.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsList {
    /// File systems to start at; empty: every pool.
    pub names: Vec<String>,
    /// How many levels below to include; `None`: all. 0: only the named.
    pub depth: Option<u32>,
}

/// File systems and snapshots with their properties.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsListAll {
    /// File systems and snapshots to start at; empty: every pool.
    pub names: Vec<String>,
    /// How many levels below to include; `None`: all. 0: only the named. A snapshot is a level
    /// below its file system.
    pub depth: Option<u32>,
    /// List file systems.
    pub filesystems: bool,
    /// List snapshots.
    pub snapshots: bool,
    /// List bookmarks.
    #[serde(default)]
    pub bookmarks: bool,
    /// Wanted properties; empty: all.
    #[serde(default)]
    pub wanted: Vec<String>,
}

/// A file system and all its properties.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsInfo {
    /// Name.
    pub name: String,
    /// Transaction group that made it.
    pub createtxg: u64,
    /// Path of its mount now, which may differ from its mountpoint.
    pub mounted_at: Option<PathBuf>,
    /// All properties, user properties too.
    pub properties: BTreeMap<String, Value>,
    /// Values received with a stream, even if a local value overrides them.
    #[serde(default)]
    pub received: Properties,
}

impl FsInfo {
    /// Exact value of a property; `-` if it has none.
    #[must_use]
    pub fn value(&self, property: &str) -> &str {
        self.properties.get(property).map_or("-", |v| v.value.as_str())
    }
}

/// Change properties of a file system.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsSet {
    /// Name.
    pub name: String,
    /// New values.
    pub properties: Properties,
    /// Do not remount even if the mountpoint changes (`-u`).
    pub no_mount: bool,
}

/// Remove a local setting.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsInherit {
    /// Name.
    pub name: String,
    /// Which property.
    pub property: String,
    /// In all children too (`-r`).
    pub recursive: bool,
    /// Revert to the received value, if there is one (`-S`).
    #[serde(default)]
    pub received: bool,
}

/// Move a file system, with all below it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsRename {
    /// Name.
    pub name: String,
    /// New name, in the same pool.
    pub to: String,
    /// Create missing parents of the new name (`-p`).
    pub parents: bool,
    /// Even if files are open (`-f`).
    pub force: bool,
    /// Do not remount (`-u`).
    pub no_remount: bool,
}

/// Mount a file system.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsMount {
    /// Name.
    pub name: String,
    /// Path instead of its mountpoint (`mount -t steadfast`).
    pub at: Option<PathBuf>,
    /// `-o`: `ro`, `noexec` and the like, for this mount only.
    pub options: Vec<String>,
    /// Over a folder that is not empty (`-O`).
    pub overlay: bool,
}

/// Unmount a file system.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsUnmount {
    /// Name.
    pub name: String,
    /// Even if files are open (`-f`).
    pub force: bool,
}

/// Share a file system with NFS clients as its `sharenfs` says, or end that until its next mount.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsShare {
    /// Name.
    pub name: String,
    /// False: end it.
    pub share: bool,
}

/// List the file systems that are shared.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsShares {}

/// A file system that is shared.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct SharedFs {
    /// Name.
    pub name: String,
    /// Path that clients mount.
    pub path: String,
    /// Address and port of the server.
    pub address: String,
    /// Clients that may mount it.
    pub clients: Vec<String>,
}

/// Load a key.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsLoadKey {
    /// An encryption root.
    pub name: String,
    /// Its key.
    pub key: Key,
    /// Only try it (`-n`).
    pub dry_run: bool,
}

/// Unload a key.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsUnloadKey {
    /// An encryption root.
    pub name: String,
}

/// Change the key of a file system.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsChangeKey {
    /// Name.
    pub name: String,
    /// The new key; `None`: use the key of the encryption root above (`-i`).
    pub key: Option<Key>,
    /// New `keylocation`; `None`: it stays, or becomes `prompt`.
    pub location: Option<String>,
    /// New `pbkdf2iters`, which is stored and has no effect; `None`: it stays.
    #[serde(default)]
    pub iterations: Option<String>,
}

/// Ask for space and quotas of users and groups.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsUserspace {
    /// Name, of a snapshot too.
    pub name: String,
}

/// One user or group.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct OwnerEntry {
    /// True for a group.
    pub group: bool,
    /// Number.
    pub id: u32,
    /// Bytes that its files occupy.
    pub used: u64,
    /// Quota in bytes; 0: none.
    pub quota: u64,
    /// Its inodes.
    pub objects: u64,
    /// Quota in inodes; 0: none.
    pub object_quota: u64,
}

/// Ask how many files of a file system were removed and are not destroyed yet (ZFS: the delete
/// queue): files that somebody has open. 0 if it is not mounted.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsDeleteQueue {
    /// Name of the file system.
    pub name: String,
    /// Answer after this many milliseconds, even if some are left.
    #[serde(default)]
    pub patience_ms: u64,
}
