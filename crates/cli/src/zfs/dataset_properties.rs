//! Properties of datasets, for `zfs list` and `zfs get`.

use crate::json;
use crate::properties::shown;
use std::collections::BTreeMap;
use steadfast_control::api::{FsInfo, Value};
use steadfast_property::Scope;

/// A property or the name; `-` if it is absent.
pub(super) fn cell(fs: &FsInfo, name: &str) -> Value {
    match name {
        "name" => Value::measured(&fs.name),
        name => fs.properties.get(name).cloned().unwrap_or_else(|| Value::measured("-")),
    }
}

pub(super) fn as_json(
    command: &str,
    found: &[FsInfo],
    exact: bool,
    as_number: bool,
    properties: impl Fn(&FsInfo) -> BTreeMap<String, Value>,
) -> String {
    let mut by_name = serde_json::Map::new();
    for fs in found {
        let mut map = serde_json::Map::new();
        for (name, value) in properties(fs) {
            let shown = shown(Scope::Dataset, &name, &value.value, exact);
            map.insert(name, json::property(&shown, &value, as_number));
        }
        let entry = serde_json::json!({
            "name": fs.name,
            "type": match fs.name.find(['@', '#']).map(|at| fs.name.as_bytes()[at]) {
                Some(b'@') => "SNAPSHOT",
                Some(_) => "BOOKMARK",
                None if fs.value("type") == "volume" => "VOLUME",
                None => "FILESYSTEM",
            },
            "pool": fs.name.split('/').next(),
            "createtxg": json::number(fs.createtxg, as_number),
            "properties": map,
        });
        by_name.insert(fs.name.clone(), entry);
    }
    let mut document = json::document(command);
    document.insert("datasets".into(), by_name.into());
    json::text(document)
}
