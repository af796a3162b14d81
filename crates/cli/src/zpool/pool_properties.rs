//! Properties of pools, for `zpool list` and `zpool get`.

use crate::json::{self, Numbers};
use crate::options::Parsed;
use crate::properties::shown;
use std::collections::BTreeMap;
use steadfast_control::api::{PoolInfo, Source, Value};
use steadfast_property::{Scope, is_user_property, zfs_feature_state};

/// A property of a pool; `-` if it is absent.
pub(super) fn cell(pool: &PoolInfo, name: &str) -> Value {
    let zfs = || name.strip_prefix("feature@").and_then(zfs_feature_state);
    match pool.properties.get(name) {
        Some(value) => value.clone(),
        None if is_user_property(name) => Value { value: "-".into(), source: Source::Default },
        None => zfs().map_or_else(
            || Value::measured("-"),
            |state| Value { value: state.into(), source: Source::Local },
        ),
    }
}

/// Pools with properties, and with what `more` adds to an entry.
pub(super) fn as_json(
    command: &str,
    pools: &[PoolInfo],
    parsed: &Parsed,
    properties: impl Fn(&PoolInfo) -> BTreeMap<String, Value>,
    more: impl Fn(&PoolInfo, &mut serde_json::Value),
) -> String {
    let numbers = Numbers::of(parsed);
    let mut by_name = serde_json::Map::new();
    for pool in pools {
        let mut map = serde_json::Map::new();
        for (name, value) in properties(pool) {
            let shown = shown(Scope::Pool, &name, &value.value, numbers.exact);
            map.insert(name, json::property(&shown, &value, numbers.as_number));
        }
        let mut entry = json::pool(&pool.name, pool.state.as_str(), (pool.guid, pool.txg), numbers);
        entry["type"] = "POOL".into();
        entry["properties"] = map.into();
        more(pool, &mut entry);
        by_name.insert(json::pool_key(&pool.name, pool.guid, parsed), entry);
    }
    let mut document = json::document(command);
    document.insert("pools".into(), by_name.into());
    json::text(document)
}
