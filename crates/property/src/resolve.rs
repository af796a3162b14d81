//! Inheritance: the effective value of a property, and its source.

use crate::table::{Change, Property, Scope};
use crate::value::{is_user_property, lookup};
use std::collections::BTreeMap;

/// Properties set on one dataset itself: exact values by name.
pub type Local = BTreeMap<String, String>;

/// Source of a value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// It cannot be set: a measured or fixed value.
    None,
    /// Not set anywhere.
    Default,
    /// Set here.
    Local,
    /// Came with a stream.
    Received,
    /// Set for this import or mount only.
    Temporary,
    /// Set on the named ancestor.
    Inherited(String),
}

/// An effective value and its source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Resolved {
    /// Exact form.
    pub value: String,
    /// Origin.
    pub source: Source,
}

/// Finds the value of property `name` for the dataset at the end of `chain`.
///
/// `chain` holds the dataset and its ancestors from the pool's root down, each with what is set on
/// itself. `None` for a user property that is not set, and for a property without a default
/// (computed elsewhere).
///
/// `mountpoint` is more than inheritance: an inherited path is extended by the names below the
/// ancestor that set it, and the default is `mount_base` + the pool's name.
#[must_use]
pub fn resolve(chain: &[(&str, &Local)], name: &str, mount_base: &str) -> Option<Resolved> {
    let (dataset, local) = chain.last()?;
    if let Some(value) = local.get(name) {
        return Some(Resolved { value: value.clone(), source: Source::Local });
    }
    let property: Option<&Property> = lookup(Scope::Dataset, name);
    if property.is_some_and(|p| p.inherit) || is_user_property(name) {
        for (ancestor, set) in chain[..chain.len() - 1].iter().rev() {
            if let Some(value) = set.get(name) {
                let value =
                    if name == "mountpoint" { extend(value, ancestor, dataset) } else { value.clone() };
                return Some(Resolved { value, source: Source::Inherited((*ancestor).to_owned()) });
            }
        }
    }
    if name == "mountpoint" {
        let value = format!("{}/{dataset}", mount_base.trim_end_matches('/'));
        return Some(Resolved { value, source: Source::Default });
    }
    let property = property?;
    let source = if property.change == Change::Never { Source::None } else { Source::Default };
    Some(Resolved { value: property.default?.to_owned(), source })
}

fn extend(mountpoint: &str, ancestor: &str, dataset: &str) -> String {
    if mountpoint == "none" || mountpoint == "legacy" {
        return mountpoint.to_owned();
    }
    let below = dataset.strip_prefix(ancestor).unwrap_or_default();
    format!("{}{below}", mountpoint.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(pairs: &[(&str, &str)]) -> Local {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn the_nearest_setting_wins_and_is_named() {
        let (root, mid, leaf) =
            (local(&[("compression", "lz4")]), local(&[("compression", "zstd")]), Local::new());
        let chain = [("tank", &root), ("tank/a", &mid), ("tank/a/b", &leaf)];
        let found = resolve(&chain, "compression", "/").unwrap();
        assert_eq!(found, Resolved { value: "zstd".into(), source: Source::Inherited("tank/a".into()) });
        assert_eq!(resolve(&chain[..2], "compression", "/").unwrap().source, Source::Local);
        let bare = [("tank", &leaf)];
        assert_eq!(resolve(&bare, "compression", "/").unwrap().source, Source::Default);
    }

    #[test]
    fn a_property_that_does_not_inherit_stays_where_it_was_set() {
        let (root, leaf) = (local(&[("canmount", "off")]), Local::new());
        let chain = [("tank", &root), ("tank/a", &leaf)];
        let found = resolve(&chain, "canmount", "/").unwrap();
        assert_eq!(found, Resolved { value: "on".into(), source: Source::Default });
    }

    #[test]
    fn mountpoints_follow_the_names() {
        let (none, set) = (Local::new(), local(&[("mountpoint", "/srv/x")]));
        let chain = [("tank", &none), ("tank/a", &none)];
        assert_eq!(resolve(&chain, "mountpoint", "/").unwrap().value, "/tank/a");
        assert_eq!(
            resolve(&chain, "mountpoint", "/home/u/steadfast").unwrap().value,
            "/home/u/steadfast/tank/a"
        );
        let chain = [("tank", &set), ("tank/a", &none), ("tank/a/b", &none)];
        let found = resolve(&chain, "mountpoint", "/").unwrap();
        assert_eq!(found, Resolved { value: "/srv/x/a/b".into(), source: Source::Inherited("tank".into()) });
        let off = local(&[("mountpoint", "none")]);
        let chain = [("tank", &off), ("tank/a", &none)];
        assert_eq!(resolve(&chain, "mountpoint", "/").unwrap().value, "none");
        let slash = local(&[("mountpoint", "/")]);
        let chain = [("tank", &slash), ("tank/a", &none)];
        assert_eq!(resolve(&chain, "mountpoint", "/").unwrap().value, "/a");
    }

    #[test]
    fn user_properties_inherit_and_have_no_default() {
        let (root, leaf) = (local(&[("org:owner", "ann")]), Local::new());
        let chain = [("tank", &root), ("tank/a", &leaf)];
        assert_eq!(resolve(&chain, "org:owner", "/").unwrap().value, "ann");
        assert_eq!(resolve(&chain, "org:other", "/"), None);
    }
}
