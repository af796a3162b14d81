//! Properties of pools, for `zpool list` and `zpool get`.

use crate::json;
use crate::properties::shown;
use std::collections::BTreeMap;
use steadfast_control::api::{PoolInfo, Source, Value};
use steadfast_property::{Scope, zfs_feature_state};

/// A property of a pool; `-` if it is absent.
pub(super) fn cell(pool: &PoolInfo, name: &str) -> Value {
    let zfs = || name.strip_prefix("feature@").and_then(zfs_feature_state);
    match pool.properties.get(name) {
        Some(value) => value.clone(),
        None => zfs().map_or_else(
            || Value::measured("-"),
            |state| Value { value: state.into(), source: Source::Local },
        ),
    }
}

pub(super) fn as_json(
    command: &str,
    pools: &[PoolInfo],
    exact: bool,
    as_number: bool,
    properties: impl Fn(&PoolInfo) -> BTreeMap<String, Value>,
) -> String {
    let mut by_name = serde_json::Map::new();
    for pool in pools {
        let mut map = serde_json::Map::new();
        for (name, value) in properties(pool) {
            let shown = shown(Scope::Pool, &name, &value.value, exact);
            map.insert(name, json::property(&shown, &value, as_number));
        }
        let entry = serde_json::json!({
            "name": pool.name,
            "type": "POOL",
            "state": pool.state.as_str(),
            "pool_guid": json::number(pool.guid, as_number),
            "txg": json::number(pool.txg, as_number),
            "properties": map,
        });
        by_name.insert(pool.name.clone(), entry);
    }
    let mut document = json::document(command);
    document.insert("pools".into(), by_name.into());
    json::text(document)
}
