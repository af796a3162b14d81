//! The list of properties in the usage of the commands that take one.

use crate::pools::POOL;
use crate::table::{Change, DATASET, Property, Scope};
use std::fmt::Write as _;

/// All properties of a scope in the columns of ZFS, from which programs take names: whether a
/// property can be set on what exists, whether it is inherited (pools have no such column), values.
#[must_use]
pub fn usage_list(scope: Scope) -> String {
    let mut rows: Vec<&Property> = table(scope).iter().collect();
    rows.sort_by_key(|property| property.name);
    let width = rows.iter().map(|property| property.name.len()).max().unwrap_or(0);
    let mut list = "The following properties are supported:\n\n".to_owned();
    let inherit = if scope == Scope::Dataset { "  INHERIT" } else { "" };
    let _ = writeln!(list, "\t{:<width$}  EDIT{inherit}   VALUES\n", "PROPERTY");
    for property in rows {
        let is_set = matches!(property.change, Change::Anytime | Change::AtImport);
        let _ = write!(list, "\t{:<width$}  {:>4}", property.name, yes(is_set));
        if scope == Scope::Dataset {
            let _ = write!(list, "  {:>7}", yes(property.inherit));
        }
        let _ = writeln!(list, "   {}", property.values);
    }
    list.push_str(match scope {
        Scope::Dataset => {
            "\nA name with a colon (:) is a property of the user. Sizes take a unit: K, M, G and so on.\n"
        }
        Scope::Pool => "\nThe name of a feature follows `feature@`. Sizes take a unit: K, M, G and so on.\n",
    });
    list
}

fn table(scope: Scope) -> &'static [Property] {
    match scope {
        Scope::Dataset => DATASET,
        Scope::Pool => POOL,
    }
}

fn yes(is_so: bool) -> &'static str {
    if is_so { "YES" } else { "NO" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_each_property_once_in_order() {
        for scope in [Scope::Dataset, Scope::Pool] {
            let list = usage_list(scope);
            let names: Vec<&str> = list
                .lines()
                .filter_map(|line| line.strip_prefix('\t'))
                .filter_map(|line| line.split_whitespace().next())
                .filter(|name| *name != "PROPERTY")
                .collect();
            assert!(names.is_sorted(), "{names:?}");
            assert_eq!(names.len(), table(scope).len());
            assert!(table(scope).iter().all(|property| names.contains(&property.name)));
        }
        let list = usage_list(Scope::Dataset);
        let words = |name: &str| -> Vec<&str> {
            let line = list.lines().find(|line| line.split_whitespace().next() == Some(name)).expect(name);
            line.split_whitespace().take(4).collect()
        };
        assert_eq!(words("atime"), ["atime", "YES", "YES", "on"]);
        assert_eq!(words("quota"), ["quota", "YES", "NO", "<size>"]);
        assert_eq!(words("used"), ["used", "NO", "NO", "<size>"]);
        // At the creation only.
        assert_eq!(words("encryption")[..2], ["encryption", "NO"]);
        assert!(
            usage_list(Scope::Pool).contains("\n\tPROPERTY ") && !usage_list(Scope::Pool).contains("INHERIT")
        );
    }
}
