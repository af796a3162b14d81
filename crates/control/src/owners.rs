//! Names of users and groups, as this machine's tables of both have them.
//!
//! The files are read, not the name service: a user of a directory server is shown, and named, by
//! number.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_property::OwnerProperty;

/// Names by number.
pub type Names = BTreeMap<u32, String>;

/// Names in the form of `/etc/passwd` and `/etc/group`: the first field, and the number in the
/// third.
#[must_use]
pub fn names_in(table: &str) -> Names {
    let mut names = Names::new();
    for line in table.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(Ok(id))) = (fields.next(), fields.nth(1).map(str::parse))
            && !name.is_empty()
        {
            names.entry(id).or_insert_with(|| name.to_owned());
        }
    }
    names
}

/// The names of this machine's users, or groups.
#[must_use]
pub fn names(group: bool) -> Names {
    let path = if group { "/etc/group" } else { "/etc/passwd" };
    names_in(&std::fs::read_to_string(path).unwrap_or_default())
}

/// Numbers of the groups that list a user as a member.
#[must_use]
pub fn groups_of(uid: u32) -> BTreeSet<u32> {
    let Some(user) = names(false).remove(&uid) else { return BTreeSet::new() };
    members_in(&std::fs::read_to_string("/etc/group").unwrap_or_default(), &user)
}

/// Numbers of the groups in a table that list a user.
fn members_in(table: &str, user: &str) -> BTreeSet<u32> {
    let group = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let (id, members) = (fields.next()?.parse().ok()?, fields.next()?);
        members.split(',').any(|member| !user.is_empty() && member == user).then_some(id)
    };
    table.lines().filter_map(group).collect()
}

/// A property of an owner by number, if its owner was named: `userquota@joe` as `userquota@1000`.
#[must_use]
pub fn by_number(name: &str) -> Option<String> {
    let (property, who) = OwnerProperty::split(name)?;
    if OwnerProperty::parse(name).is_some() {
        return Some(name.to_owned());
    }
    let id = names(property.owner.0).into_iter().find(|(_, name)| name == who)?.0;
    Some(OwnerProperty { owner: (property.owner.0, id), ..property }.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_as_they_are() {
        let names = names_in(
            "root:x:0:0:root:/root:/bin/sh\n# remark\nann:x:1000:1000::/:\nsecond:x:1000:1::\nbad:x:y\n:x:5:\n",
        );
        assert_eq!(names, Names::from([(0, "root".to_owned()), (1000, "ann".to_owned())]));
    }

    #[test]
    fn members_are_found_in_their_groups() {
        let table = "root:x:0:\nstaff:x:50:ann,bob\nusers:x:100:bob\nbad:x:y:ann\nshort:x:7\nann:x:1000:\n";
        assert_eq!(members_in(table, "ann"), BTreeSet::from([50]));
        assert_eq!(members_in(table, "bob"), BTreeSet::from([50, 100]));
        assert_eq!(members_in(table, ""), BTreeSet::new());
    }

    #[test]
    fn owners_are_known_by_name_and_by_number() {
        assert_eq!(by_number("userquota@root").as_deref(), Some("userquota@0"));
        assert_eq!(by_number("groupused@77777").as_deref(), Some("groupused@77777"));
        assert_eq!(by_number("userquota@nobody-of-this-name"), None);
        assert_eq!(by_number("quota"), None);
    }
}
