//! `zpool status -j`.

use super::vdev_tree::chosen;
use super::{dedup, errors, progress};
use crate::json;
use crate::options::Parsed;
use serde_json::{Map, Value, json};
use steadfast_control::Refusal;
use steadfast_control::api::{PoolReport, TrimState, VdevClass, VdevKind, VdevReport};
use steadfast_control::check::vdev_word;
use steadfast_property::nice_bytes;

pub(super) fn as_json(pools: &[PoolReport], parsed: &Parsed) -> String {
    let as_number = parsed.has_long("json-int");
    let exact = parsed.has('p');
    let mut by_name = Map::new();
    for pool in pools {
        let needed = || pool.vdevs.iter().filter(|vdev| vdev.class != VdevClass::Cache);
        let sum = |field: fn(&VdevReport) -> u64| needed().map(field).sum::<u64>();
        let room = |field: fn(&VdevReport) -> u64| {
            let holds = |vdev: &&VdevReport| matches!(vdev.class, VdevClass::Main | VdevClass::Special);
            pool.vdevs.iter().filter(holds).map(field).sum::<u64>()
        };
        let root = json!({
            "name": pool.name,
            "vdev_type": "root",
            "guid": json::number(pool.guid, as_number),
            "state": pool.state.as_str(),
            "alloc_space": size(room(|v| v.allocated), exact, as_number),
            "total_space": size(room(|v| v.size), exact, as_number),
            "read_errors": json::number(sum(|v| v.read_errors), as_number),
            "write_errors": json::number(sum(|v| v.write_errors), as_number),
            "checksum_errors": json::number(sum(|v| v.checksum_errors), as_number),
            "vdevs": vdevs_json(&chosen(&pool.vdevs, parsed), false, parsed, exact, as_number),
        });
        let mut entry = json!({
            "name": pool.name,
            "state": pool.state.as_str(),
            "pool_guid": json::number(pool.guid, as_number),
            "txg": json::number(pool.txg, as_number),
            "vdevs": { pool.name.clone(): root },
            "error_count": json::number(pool.error_count, as_number),
        });
        let log = &pool.log;
        entry["log"] = json!({
            "size": size(log.size, exact, as_number),
            "devices": json::number(log.devices, as_number),
            "groups": json::number(log.groups, as_number),
            "bytes": json::number(log.bytes, as_number),
            "durable": json::number(log.durable, as_number),
            "committed_instead": json::number(log.committed_instead, as_number),
            "replayed": json::number(log.replayed, as_number),
            "held": json::number(log.held, as_number),
        });
        if let Some(message) = pool.messages.first() {
            entry["status"] = json!(message.what);
            entry["action"] = json!(message.advice());
            entry["msgid"] = json!(message.code.as_str());
        }
        if !pool.messages.is_empty() {
            let all: Vec<Value> = pool.messages.iter().map(message_json).collect();
            entry["messages"] = Value::Array(all);
        }
        if let Some(scan) = &pool.scan {
            entry["scan_stats"] = progress::as_json(scan, exact, as_number);
        }
        if let Some(moving) = &pool.moving {
            let (name, told) = progress::move_as_json(moving, exact, as_number);
            entry[name] = told;
        }
        if parsed.has('D') {
            entry["dedup_stats"] = dedup::as_json(&pool.sharing, exact, as_number);
        }
        if parsed.has('v') {
            entry["errlist"] = pool.errors.iter().map(|error| Value::from(errors::place(error))).collect();
        }
        by_name.insert(pool.name.clone(), entry);
    }
    let mut document = json::document("zpool status");
    document.insert("pools".into(), by_name.into());
    json::text(document)
}

fn message_json(message: &Refusal) -> Value {
    json!({
        "code": message.code.as_str(),
        "status": message.what,
        "meaning": message.meaning,
        "action": message.advice(),
        "fields": message.fields,
    })
}

fn size(bytes: u64, exact: bool, as_number: bool) -> Value {
    if as_number || exact { json::number(bytes, as_number) } else { json!(nice_bytes(bytes)) }
}

fn vdevs_json(vdevs: &[VdevReport], is_member: bool, parsed: &Parsed, exact: bool, as_number: bool) -> Value {
    let mut map = Map::new();
    for vdev in vdevs {
        let kind = match vdev.kind {
            VdevKind::Plain if vdev.name.starts_with("/dev/") => "disk",
            VdevKind::Plain => "file",
            kind => vdev_word(VdevClass::Main, kind),
        };
        let class = match vdev.class {
            VdevClass::Main => "normal",
            class => vdev_word(class, vdev.kind),
        };
        let mut entry = json!({
            "name": vdev.name,
            "vdev_type": kind,
            "class": class,
            "guid": json::number(vdev.guid, as_number),
            "state": vdev.state.as_str(),
            "total_space": size(vdev.size, exact, as_number),
            "read_errors": json::number(vdev.read_errors, as_number),
            "write_errors": json::number(vdev.write_errors, as_number),
            "checksum_errors": json::number(vdev.checksum_errors, as_number),
        });
        // As in ZFS, space is counted by group.
        if !is_member {
            entry["alloc_space"] = size(vdev.allocated, exact, as_number);
        }
        if vdev.children.is_empty() {
            entry["path"] = json!(vdev.name);
            entry["slow_ios"] = json::number(vdev.kinds.slow, as_number);
            entry["errors_by_kind"] = errors::as_json(&vdev.kinds, as_number);
        } else {
            entry["vdevs"] = vdevs_json(&vdev.children, true, parsed, exact, as_number);
        }
        if let Some(trim) = vdev.trim.filter(|_| parsed.has('t')) {
            let unsupported = trim.state == TrimState::Unsupported;
            entry["trim_notsup"] = json::number(u64::from(unsupported), as_number);
            if !unsupported {
                entry["trim_state"] = json!(trim.state);
                entry["trimmed"] = size(trim.trimmed, exact, as_number);
                entry["trim_done"] = size(trim.done, exact, as_number);
                entry["to_trim"] = size(trim.total, exact, as_number);
                entry["trim_time"] = json::number(trim.since, as_number);
            }
        }
        if let Some(init) = vdev.initialize.filter(|_| parsed.has('i')) {
            entry["init_state"] = match init.state {
                TrimState::Untrimmed => json!("UNINITIALIZED"),
                state => json!(state),
            };
            entry["initialized"] = size(init.done, exact, as_number);
            entry["to_initialize"] = size(init.total, exact, as_number);
            entry["init_time"] = json::number(init.since, as_number);
        }
        if let Some(note) = &vdev.note {
            entry["note"] = json!(note);
        }
        map.insert(vdev.name.clone(), entry);
    }
    map.into()
}
