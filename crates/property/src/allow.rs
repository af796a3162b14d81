//! Permissions of users on a dataset (`zfs allow`), as properties that nobody sets by hand.
//! `docs/decisions/0152-guests.md`.
//!
//! ## Invariants
//! [allow.1] No permission lets a user mount where the user chooses, make set-user-id programs or
//!     devices count, or give permissions: the daemon acts as root.
//!     `NEVER`, test: `no_permission_leads_to_the_rights_of_root`

use crate::table::{Change, Scope};
use crate::value::lookup;
use std::collections::BTreeSet;
use std::fmt;

/// Prefix of the properties that hold permissions. It is reserved, so no command sets them.
pub const ALLOW_PREFIX: &str = "steadfast:allow:";

/// Permissions besides the names of properties.
pub const PERMISSIONS: &[&str] = &[
    "bookmark",
    "create",
    "destroy",
    "diff",
    "groupused",
    "hold",
    "mount",
    "release",
    "rollback",
    "send",
    "snapshot",
    "userprop",
    "userused",
];

/// Permissions and properties of ZFS that nobody is given here, each with the reason.
const NEVER: &[(&str, &str)] = &[
    ("allow", "only root gives permissions"),
    ("canmount", "the daemon mounts as root"),
    ("change-key", "only root handles keys"),
    ("clone", "only root makes clones"),
    ("devices", "a device node would reach the hardware"),
    ("keylocation", "the daemon reads the file as root"),
    ("load-key", "only root handles keys"),
    ("mountpoint", "the daemon mounts as root, wherever it says"),
    ("nbd", "only root opens volumes to clients"),
    ("overlay", "the daemon mounts as root"),
    ("promote", "only root promotes clones"),
    ("receive", "a stream may bring set-user-id programs of root"),
    ("rename", "a mount moves with the name"),
    ("setuid", "a set-user-id program has the rights of its owner"),
    ("share", "a share lets machines in that say themselves who their users are"),
    ("sharenfs", "a share lets machines in that say themselves who their users are"),
    ("volmode", "the daemon mounts as root"),
];

/// Somebody who is given a permission, or a list of permissions that is stored beside them.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Who {
    /// A permission set, by its name without the `@`: names for lists of permissions.
    Set(String),
    /// The creator of a file system below, who is given them on that one.
    Creator,
    /// A user, by number.
    User(u32),
    /// The members of a group, by number.
    Group(u32),
    /// All users.
    Everyone,
}

impl Who {
    /// From the name of a property.
    #[must_use]
    pub fn of_property(name: &str) -> Option<Who> {
        let who = name.strip_prefix(ALLOW_PREFIX)?;
        let number = |digits: &str| digits.parse().ok();
        match who.split_at_checked(1)? {
            ("e", "") => Some(Who::Everyone),
            ("c", "") => Some(Who::Creator),
            ("s", set) => set_name(set).map(|name| Who::Set(name.to_owned())),
            ("u", digits) => number(digits).map(Who::User),
            ("g", digits) => number(digits).map(Who::Group),
            _ => None,
        }
    }

    /// The name of the property.
    #[must_use]
    pub fn property(&self) -> String {
        format!("{ALLOW_PREFIX}{self}")
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Set(name) => write!(f, "s@{name}"),
            Who::Creator => f.write_str("c"),
            Who::User(id) => write!(f, "u{id}"),
            Who::Group(id) => write!(f, "g{id}"),
            Who::Everyone => f.write_str("e"),
        }
    }
}

/// Most characters of the name of a permission set, with its `@`.
const SET_NAME_MAX: usize = 64;

/// The name of a permission set without its `@`; `None` if it is none.
#[must_use]
pub fn set_name(text: &str) -> Option<&str> {
    let name = text.strip_prefix('@')?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    (!name.is_empty() && text.len() <= SET_NAME_MAX && name.chars().all(fits)).then_some(name)
}

/// Permissions of one user, group, set or everyone on a dataset. A name that begins with `@` is a
/// permission set.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Granted {
    /// On the dataset itself.
    pub local: BTreeSet<String>,
    /// On all datasets below it.
    pub descendent: BTreeSet<String>,
}

impl Granted {
    /// From the value of a property.
    #[must_use]
    pub fn parse(value: &str) -> Granted {
        let (local, descendent) = value.split_once('/').unwrap_or((value, ""));
        let set = |list: &str| list.split(',').filter(|p| !p.is_empty()).map(str::to_owned).collect();
        Granted { local: set(local), descendent: set(descendent) }
    }

    /// The value of a property; `None` if there is nothing to store.
    #[must_use]
    pub fn value(&self) -> Option<String> {
        let list = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(",");
        let is_empty = self.local.is_empty() && self.descendent.is_empty();
        (!is_empty).then(|| format!("{}/{}", list(&self.local), list(&self.descendent)))
    }
}

/// The name by which a permission is stored.
///
/// # Errors
/// The reason why nobody is given it.
pub fn permission(name: &str) -> Result<String, &'static str> {
    if let Some((_, reason)) = NEVER.iter().find(|(never, _)| *never == name) {
        return Err(reason);
    }
    if PERMISSIONS.contains(&name) {
        return Ok(name.to_owned());
    }
    if name.starts_with('@') {
        return match set_name(name) {
            Some(_) => Ok(name.to_owned()),
            None => Err("the name of a set is `@` and at most 63 letters, digits, '-', '_', '.' and ':'"),
        };
    }
    // Quotas of users and groups are one permission for all of them, as in ZFS.
    let of_owners = format!("{name}@0");
    let property = lookup(Scope::Dataset, name).or_else(|| lookup(Scope::Dataset, &of_owners));
    match property.filter(|property| property.change != Change::Never) {
        Some(property) => match NEVER.iter().find(|(never, _)| *never == property.name) {
            Some((_, reason)) => Err(reason),
            None => Ok(property.name.trim_end_matches("@...").to_owned()),
        },
        None => Err("there is no such permission"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_permission_leads_to_the_rights_of_root() {
        for (name, _) in NEVER {
            assert!(permission(name).is_err() && !PERMISSIONS.contains(name), "{name}");
        }
        assert!(permission("mount").is_ok() && permission("compress").as_deref() == Ok("compression"));
        assert_eq!(permission("userquota").as_deref(), Ok("userquota"));
        // A set holds permissions that are checked like these.
        assert_eq!(permission("@mine").as_deref(), Ok("@mine"));
        assert!(set_name(&format!("@{}", "a".repeat(63))).is_some());
        assert!(set_name(&format!("@{}", "a".repeat(64))).is_none());
        for name in ["used", "@", "@a,b", "@a/b", "", "steadfast:allow:e", "org:x"] {
            assert!(permission(name).is_err(), "{name}");
        }
    }

    #[test]
    fn grants_are_stored_as_they_are_read() {
        let set = Who::Set("work:1".into());
        for who in [Who::User(0), Who::User(u32::MAX), Who::Group(7), Who::Everyone, Who::Creator, set] {
            assert_eq!(Who::of_property(&who.property()), Some(who));
        }
        for name in [
            "steadfast:allow:",
            "steadfast:allow:u",
            "steadfast:allow:s",
            "steadfast:allow:s@",
            "steadfast:allow:cx",
            "steadfast:allow:ex",
            "steadfast:allow:ü",
            "org:u1",
        ] {
            assert_eq!(Who::of_property(name), None, "{name}");
        }
        let granted = Granted::parse("send,snapshot/mount");
        assert_eq!(granted.value().as_deref(), Some("send,snapshot/mount"));
        assert_eq!(Granted::parse("").value(), None);
        assert_eq!(Granted::parse("/a").descendent.len(), 1);
    }
}
