//! Properties and features of pools.

use crate::api::Properties;
use crate::cachefile::Listed;
use crate::check::FEATURE;
use crate::engine::refuse;
use crate::engine::state::ImportedPool;
use crate::refusal::Refusal;
use std::path::PathBuf;
use steadfast_format::Feature;
use steadfast_pool::Pool;
use steadfast_property::is_user_property;

/// Pool properties of an import, which are not stored.
pub(super) const TEMPORARY: [&str; 4] = ["altroot", CACHEFILE, "readonly", "ashift"];
/// Names the list in which the pool stands.
pub(super) const CACHEFILE: &str = "cachefile";

/// Sets a property of a pool, or lets it use a feature.
pub(super) fn set_property(pool: &Pool, name: &str, value: &str) -> Result<(), Refusal> {
    match name.strip_prefix(FEATURE) {
        Some(feature) => pool.enable_feature(feature),
        // As in ZFS an empty value removes a user property.
        None => {
            pool.set_pool_prop(name, Some(value).filter(|value| !value.is_empty() || !is_user_property(name)))
        }
    }
    .map_err(refuse::pool)
}

pub(super) fn altroot(properties: &Properties) -> Option<PathBuf> {
    properties.get("altroot").filter(|value| *value != "none").map(PathBuf::from)
}

/// The list in which a pool is to stand. A pool with a temporary name stands in none, as in ZFS.
pub(super) fn listed(properties: &Properties, is_temporary: bool) -> Result<Listed, Refusal> {
    let listed = match is_temporary {
        true => Listed::Nowhere,
        false => Listed::of(properties.get(CACHEFILE).map(String::as_str)),
    };
    listed.check().map(|()| listed)
}

pub(super) fn read_only(properties: &Properties) -> bool {
    properties.get("readonly").is_some_and(|value| value == "on")
}

/// Features that an imported pool could be given.
pub(super) fn missing_features(held: &ImportedPool) -> Vec<&'static str> {
    let used = held.pool.features();
    let can = |name: &&str| {
        !Feature::STRUCTURAL.contains(name) && !used.iter().any(|feature| feature.name == *name)
    };
    Feature::KNOWN.iter().map(|(name, ..)| *name).filter(can).collect()
}

/// State of each feature that this version or the pool knows, as `zpool get feature@...` prints it.
pub(super) fn feature_states(held: &ImportedPool) -> Vec<(String, &'static str)> {
    let used = held.pool.features();
    let state = held.pool.state();
    let encrypted = || {
        let names = held.pool.datasets().names();
        names.iter().any(|name| {
            held.pool.datasets().dataset_info(name).is_ok_and(|info| info.encryption_root.is_some())
        })
    };
    let mut names: Vec<String> = Feature::KNOWN.iter().map(|(name, ..)| (*name).to_owned()).collect();
    names.extend(used.iter().filter(|feature| !feature.is_known()).map(|feature| feature.name.clone()));
    let state_of = |name: &str| {
        let active = match name {
            "encryption" => encrypted(),
            "relocation" => state.accounting.relocations > 0,
            // Uses are not counted: any block may use it from the moment it is enabled.
            _ => true,
        };
        // Metadata are sealed from the first on, or never.
        let comes_by_command = Feature::STRUCTURAL.contains(&name) && name != "sealed_metadata";
        match (used.iter().any(|feature| feature.name == name), active) {
            // The command that needs one of these turns it on.
            (false, _) if comes_by_command && !held.pool.is_read_only() => "enabled",
            (false, _) => "disabled",
            (true, false) => "enabled",
            (true, true) => "active",
        }
    };
    names.into_iter().map(|name| (format!("feature@{name}"), name)).map(|(p, n)| (p, state_of(&n))).collect()
}
