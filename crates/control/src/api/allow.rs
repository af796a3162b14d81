//! Permissions of users on datasets.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Somebody who is given permissions: the letter of the kind and the number, as `u1000`, `g100` or
/// `e`. Also the name of a permission set, as `s@work`, and `c` for the creator of a file system
/// below; what these are given is local.
pub type WhoText = String;

/// Give or take permissions (`zfs allow`, `zfs unallow`).
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsAllow {
    /// File system or volume.
    pub name: String,
    /// Users, groups, everyone, the creator, or permission sets.
    pub who: Vec<WhoText>,
    /// Permissions; empty with `take`: all.
    pub permissions: Vec<String>,
    /// On the dataset itself.
    pub local: bool,
    /// On all datasets below it.
    pub descendent: bool,
    /// Take them away.
    pub take: bool,
    /// From all datasets below too (`unallow -r`).
    pub recursive: bool,
}

/// List the permissions on a dataset, and on those above it that reach it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsAllowed {
    /// File system or volume.
    pub name: String,
}

/// Permissions that somebody has on a dataset.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Allowed {
    /// The dataset that they are stored with.
    pub dataset: String,
    /// User, group, everyone, creator or permission set.
    pub who: WhoText,
    /// On the dataset itself.
    pub local: BTreeSet<String>,
    /// On all datasets below it.
    pub descendent: BTreeSet<String>,
}
