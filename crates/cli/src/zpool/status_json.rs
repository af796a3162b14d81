//! `zpool status -j`, in the shape of OpenZFS 2.3, and devices in other documents.

use super::reason::reason;
use super::scripts::Scripts;
use super::vdev_tree::{chosen, label};
use super::{dedup, errors, progress, stores};
use crate::json::{self, FLAT_VDEVS, Numbers};
use crate::options::Parsed;
use serde_json::{Map, Value, json};
use steadfast_control::Refusal;
use steadfast_control::api::{
    Health, PoolReport, TilesReport, TrimReport, TrimState, VdevClass, VdevKind, VdevReport,
};

pub(super) fn as_json(pools: &[PoolReport], parsed: &Parsed, scripts: &Scripts) -> String {
    let numbers = Numbers::of(parsed);
    let mut by_name = Map::new();
    for pool in pools {
        let mut entry = json::pool(&pool.name, pool.state.as_str(), (pool.guid, pool.txg), numbers);
        let problem = reason(pool);
        if let Some(message) = pool.messages.first() {
            entry["status"] = json!(message.what);
            entry["action"] = json!(message.advice());
        }
        if let Some(reason) = problem {
            // As in OpenZFS, with the break of the line.
            entry["status"] = json!(format!("{}\n", reason.status));
            entry["action"] = json!(format!("{}\n", reason.action));
        }
        if let Some(msgid) = problem.and_then(|reason| reason.msgid) {
            entry["msgid"] = json!(msgid);
        }
        if !pool.messages.is_empty() {
            entry["messages"] = pool.messages.iter().map(message_json).collect();
        }
        if let Some(scan) = &pool.scan {
            entry["scan_stats"] = progress::as_json(scan, numbers);
        }
        if let Some(checkpoint) = &pool.checkpoint {
            entry["checkpoint_stats"] = json!({
                "state": "EXISTS",
                "start_time": numbers.time(checkpoint.taken),
                "space": numbers.bytes(checkpoint.bytes),
            });
        }
        if let Some(audit) = &pool.audit {
            entry["audit"] = json!(audit);
        }
        if let Some(moving) = &pool.moving {
            let (name, told) = progress::move_as_json(moving, numbers);
            entry[name] = told;
        }
        let needed = || pool.vdevs.iter().filter(|vdev| vdev.class != VdevClass::Cache);
        let sum = |field: fn(&VdevReport) -> u64| needed().map(field).sum::<u64>();
        let room = |field: fn(&VdevReport) -> u64| {
            let holds = |vdev: &&VdevReport| matches!(vdev.class, VdevClass::Main | VdevClass::Special);
            pool.vdevs.iter().filter(holds).map(field).sum::<u64>()
        };
        let mut root = json!({
            "name": pool.name,
            "vdev_type": "root",
            "guid": numbers.raw(pool.guid),
            "class": "normal",
            "state": state_word(pool.state),
            "alloc_space": numbers.bytes(room(|v| v.allocated)),
            "total_space": numbers.bytes(room(|v| v.size)),
            "def_space": numbers.bytes(room(usable)),
            "read_errors": numbers.count(sum(|v| v.read_errors)),
            "write_errors": numbers.count(sum(|v| v.write_errors)),
            "checksum_errors": numbers.count(sum(|v| v.checksum_errors)),
        });
        let vdevs = chosen(&pool.vdevs, parsed);
        let form = Form { parsed, numbers, scripts };
        if parsed.has_long(FLAT_VDEVS.long) {
            let mut flat = Map::from_iter([(pool.name.clone(), root)]);
            vdevs.iter().for_each(|vdev| form.flat(vdev, &pool.name, true, &mut flat));
            entry["vdevs"] = flat.into();
        } else {
            let of_class = |class| vdevs.iter().filter(move |vdev| vdev.class == class);
            root["vdevs"] = form.nested(of_class(VdevClass::Main), true);
            entry["vdevs"] = json!({ pool.name.clone(): root });
            for (class, name) in CLASSES {
                if of_class(class).next().is_some() {
                    entry[name] = form.nested(of_class(class), true);
                }
            }
        }
        let log = &pool.log;
        entry["log"] = json!({
            "size": numbers.bytes(log.size),
            "devices": numbers.raw(log.devices),
            "groups": numbers.raw(log.groups),
            "bytes": numbers.raw(log.bytes),
            "durable": numbers.raw(log.durable),
            "committed_instead": numbers.raw(log.committed_instead),
            "replayed": numbers.raw(log.replayed),
            "held": numbers.raw(log.held),
        });
        stores::status_json(pool, numbers, &mut entry);
        if parsed.has('D') {
            entry["dedup_stats"] = dedup::as_json(&pool.sharing, numbers.exact, numbers.as_number);
        }
        entry["error_count"] = numbers.count(pool.error_count);
        if parsed.has('v') && pool.error_count > 0 {
            let mut files: Vec<String> = pool.errors.iter().map(errors::path).collect();
            files.dedup();
            entry["errlist"] = json!(files);
            entry["errors"] = pool
                .errors
                .iter()
                .map(|error| {
                    let (offset, length) = (numbers.raw(error.offset), numbers.raw(error.length));
                    json!({ "path": errors::path(error), "offset": offset, "length": length })
                })
                .collect();
        }
        by_name.insert(json::pool_key(&pool.name, pool.guid, parsed), entry);
    }
    let mut document = json::document("zpool status");
    document.insert("pools".into(), by_name.into());
    json::text(document)
}

/// Classes that have an entry of their own, beside the normal devices. The last two are ours.
pub(super) const CLASSES: [(VdevClass, &str); 6] = [
    (VdevClass::Special, "special"),
    (VdevClass::Log, "logs"),
    (VdevClass::Cache, "l2cache"),
    (VdevClass::Spare, "spares"),
    (VdevClass::Anchor, "anchor"),
    (VdevClass::Parity, "parity"),
];

fn message_json(message: &Refusal) -> Value {
    json!({
        "code": message.code.as_str(),
        "status": message.what,
        "meaning": message.meaning,
        "action": message.advice(),
        "fields": message.fields,
    })
}

/// A state as OpenZFS's JSON names it, which is not everywhere the word that status prints.
fn state_word(state: Health) -> &'static str {
    match state {
        Health::Unavail => "CANT_OPEN",
        Health::Suspended => "ONLINE",
        state => state.as_str(),
    }
}

/// Bytes of a group without its parity.
fn usable(vdev: &VdevReport) -> u64 {
    let parity: u64 = match vdev.kind {
        VdevKind::Plain | VdevKind::Mirror => return vdev.size,
        VdevKind::Raidz1 => 1,
        VdevKind::Raidz2 => 2,
        VdevKind::Raidz3 => 3,
    };
    let columns = vdev.children.len() as u64;
    let data = u128::from(vdev.size) * u128::from(columns.saturating_sub(parity));
    u64::try_from(data / u128::from(columns.max(1))).unwrap_or(vdev.size)
}

/// The head of an entry of a group or device: what it is.
pub(super) fn vdev_head(vdev: &VdevReport, parsed: &Parsed) -> Value {
    let is_device = vdev.children.is_empty();
    let kind = match (vdev.kind, vdev.name.split_once('-')) {
        (VdevKind::Plain, _) if vdev.name.starts_with("/dev/") => "disk",
        (VdevKind::Plain, _) => "file",
        (VdevKind::Mirror, Some(("spare", _))) => "spare",
        (VdevKind::Mirror, Some(("replacing", _))) => "replacing",
        (VdevKind::Mirror, _) => "mirror",
        (VdevKind::Raidz1 | VdevKind::Raidz2 | VdevKind::Raidz3, _) => "raidz",
    };
    let class = match vdev.class {
        VdevClass::Main => "normal",
        VdevClass::Special => "special",
        VdevClass::Log => "log",
        VdevClass::Cache => "l2cache",
        VdevClass::Spare => "spare",
        VdevClass::Anchor => "anchor",
        VdevClass::Parity => "parity",
    };
    let mut entry = json!({
        "name": label(vdev, parsed),
        "vdev_type": kind,
        "guid": Numbers::of(parsed).raw(vdev.guid),
        "class": class,
        "state": state_word(vdev.state),
    });
    if is_device {
        entry["path"] = json!(vdev.name);
    }
    entry
}

/// How devices are written.
struct Form<'a> {
    parsed: &'a Parsed,
    numbers: Numbers,
    scripts: &'a Scripts,
}

impl Form<'_> {
    /// Groups and devices by name, members within their groups.
    fn nested<'v>(&self, vdevs: impl Iterator<Item = &'v VdevReport>, are_top: bool) -> Value {
        let mut map = Map::new();
        for vdev in vdevs {
            let mut entry = self.entry(vdev, are_top);
            if !vdev.children.is_empty() {
                entry["vdevs"] = self.nested(vdev.children.iter(), false);
            }
            map.insert(label(vdev, self.parsed), entry);
        }
        map.into()
    }

    /// Groups and devices side by side.
    fn flat(&self, vdev: &VdevReport, parent: &str, is_top: bool, map: &mut Map<String, Value>) {
        let mut entry = self.entry(vdev, is_top);
        if !is_top || vdev.class == VdevClass::Main {
            entry["parent"] = json!(parent);
        }
        let name = label(vdev, self.parsed);
        map.insert(name.clone(), entry);
        vdev.children.iter().for_each(|child| self.flat(child, &name, false, map));
    }

    fn entry(&self, vdev: &VdevReport, is_top: bool) -> Value {
        let numbers = self.numbers;
        let mut entry = vdev_head(vdev, self.parsed);
        let is_device = vdev.children.is_empty();
        let is_spare = vdev.class == VdevClass::Spare;
        if !is_spare {
            // As in ZFS, space is counted by group.
            if is_top {
                entry["alloc_space"] = numbers.bytes(vdev.allocated);
                entry["total_space"] = numbers.bytes(vdev.size);
                entry["def_space"] = numbers.bytes(usable(vdev));
            }
            entry["rep_dev_size"] = numbers.bytes(vdev.size);
            if vdev.expandsize > 0 {
                entry["ex_dev_size"] = numbers.bytes(vdev.expandsize);
            }
            if is_device {
                entry["phys_space"] = numbers.bytes(vdev.size);
            }
            entry["read_errors"] = numbers.count(vdev.read_errors);
            entry["write_errors"] = numbers.count(vdev.write_errors);
            entry["checksum_errors"] = numbers.count(vdev.checksum_errors);
        }
        if is_device && !is_spare {
            entry["slow_ios"] = numbers.count(vdev.kinds.slow);
            entry["errors_by_kind"] = errors::as_json(&vdev.kinds, numbers.as_number);
            if self.parsed.has_long("power") {
                entry["power_state"] = json!("-");
            }
        }
        if let Some(trim) = vdev.trim.filter(|_| self.parsed.has('t')) {
            self.trim(&trim, &mut entry);
        }
        if let Some(init) = vdev.initialize.filter(|_| self.parsed.has('i')) {
            entry["init_state"] = match init.state {
                TrimState::Untrimmed => json!("UNINITIALIZED"),
                state => json!(state),
            };
            if init.state != TrimState::Untrimmed {
                entry["initialized"] = numbers.bytes(init.done);
                entry["to_initialize"] = numbers.bytes(init.total);
                entry["init_time"] = numbers.time(init.since);
                entry["init_errors"] = numbers.count(0);
            }
        }
        for (name, value) in self.scripts.of(vdev.guid) {
            entry[name] = json!(value);
        }
        if let Some(note) = &vdev.note {
            entry["note"] = json!(note);
        }
        if let Some(tiles) = &vdev.tiles {
            entry["tiles"] = self.tiles(tiles);
        }
        entry
    }

    /// Ours: tiles of a parity device at a store.
    fn tiles(&self, tiles: &TilesReport) -> Value {
        let TilesReport { store, trouble, lost, to_delete, gone, staying } = tiles;
        let mut entry = json!({ "store": store });
        let counts =
            [("objects_to_delete", *to_delete), ("objects_gone", *gone), ("objects_staying", *staying)];
        for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            entry[name] = self.numbers.raw(count);
        }
        if let Some(tile) = lost {
            entry["lost_tile"] = self.numbers.raw(u64::from(*tile));
        }
        if let Some(trouble) = trouble {
            entry["trouble"] = json!(trouble);
        }
        entry
    }

    fn trim(&self, trim: &TrimReport, entry: &mut Value) {
        let numbers = self.numbers;
        let is_unsupported = trim.state == TrimState::Unsupported;
        entry["trim_notsup"] = numbers.raw(u64::from(is_unsupported));
        if is_unsupported {
            return;
        }
        entry["trim_state"] = json!(trim.state);
        if trim.state != TrimState::Untrimmed {
            entry["trimmed"] = numbers.bytes(trim.done);
            entry["to_trim"] = numbers.bytes(trim.total);
            entry["trim_time"] = numbers.time(trim.since);
            entry["trim_errors"] = numbers.count(0);
            // Ours: bytes that were free, and given back.
            entry["trim_given_back"] = numbers.bytes(trim.trimmed);
        }
    }
}
