//! Properties of users and groups: `userquota@1000`, `groupobjused@100`.

/// A property of a user or group, by number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OwnerProperty {
    /// (true for a group, the group's or user's number).
    pub owner: (bool, u32),
    /// Counts inodes instead of bytes.
    pub objects: bool,
    /// Measured; otherwise a quota.
    pub used: bool,
}

/// Prefixes of the names, by group, objects, used.
const PREFIXES: [(&str, bool, bool, bool); 8] = [
    ("userused@", false, false, true),
    ("userquota@", false, false, false),
    ("userobjused@", false, true, true),
    ("userobjquota@", false, true, false),
    ("groupused@", true, false, true),
    ("groupquota@", true, false, false),
    ("groupobjused@", true, true, true),
    ("groupobjquota@", true, true, false),
];

impl OwnerProperty {
    /// From a name with a number, as it is stored.
    #[must_use]
    pub fn parse(name: &str) -> Option<OwnerProperty> {
        let (property, who) = OwnerProperty::split(name)?;
        let is_plain = who.bytes().all(|byte| byte.is_ascii_digit()) && !who.is_empty();
        let id = who.parse().ok().filter(|_| is_plain)?;
        Some(OwnerProperty { owner: (property.owner.0, id), ..property })
    }

    /// A property (with number 0) and the user or group as typed; `None` for other names.
    #[must_use]
    pub fn split(name: &str) -> Option<(OwnerProperty, &str)> {
        PREFIXES.iter().find_map(|(prefix, group, objects, used)| {
            let who = name.strip_prefix(prefix)?;
            Some((OwnerProperty { owner: (*group, 0), objects: *objects, used: *used }, who))
        })
    }

    /// The stored name.
    #[must_use]
    pub fn name(&self) -> String {
        let kind = (self.owner.0, self.objects, self.used);
        let prefix = PREFIXES.iter().find(|(_, group, objects, used)| (*group, *objects, *used) == kind);
        format!("{}{}", prefix.map_or("", |(prefix, ..)| prefix), self.owner.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_whose_and_what() {
        for name in ["userquota@0", "groupobjused@4294967295", "userobjquota@1000", "groupused@7"] {
            assert_eq!(OwnerProperty::parse(name).expect(name).name(), name);
        }
        for name in
            ["userquota@", "userquota@-1", "userquota@+1", "userquota@joe", "userquota", "projectquota@1"]
        {
            assert_eq!(OwnerProperty::parse(name), None, "{name}");
        }
        assert_eq!(
            OwnerProperty::split("groupquota@staff").map(|(property, who)| (property.owner.0, who)),
            Some((true, "staff"))
        );
    }
}
