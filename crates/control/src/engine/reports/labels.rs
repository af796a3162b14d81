//! Devices and groups of a pool that is not imported: as its labels say, or as the list of
//! remembered pools says.

use crate::api::{Health, VdevClass, VdevReport};
use crate::cachefile::{CachedPool, CachedVdev};
use crate::engine::devices;
use crate::engine::reports::devices::devices_of;
use crate::engine::reports::groups::{group_number, kind, name_of, with_log_mirrors};
use crate::engine::reports::spares;
use std::path::{Path, PathBuf};
use steadfast_device::OpenOptions;
use steadfast_format::{AuxClass, AuxConfig, GroupClass, GroupConfig, LabelConfig, LeafConfig, LeafState};
use steadfast_pool::{FoundDevice, FoundPool, LogOut, PoolStatus as Measured, Redundancy};

/// Remark about a missing device.
const NOT_HERE: &str = "cannot be opened";

/// Devices and groups of a pool, as its labels list them.
pub(in crate::engine) fn vdevs(found: &FoundPool) -> Vec<VdevReport> {
    let config = &found.config;
    let needed = steadfast_pool::needed_among(found);
    // A split took these away.
    let is_own = |leaf: &LeafConfig| leaf.state != LeafState::Parted || here(found, leaf.guid).is_some();
    let own: Vec<&LeafConfig> = config.leaves.iter().filter(|leaf| is_own(leaf)).collect();
    let mut vdevs: Vec<VdevReport> = Vec::new();
    for leaf in &own {
        let members = || own.iter().filter(|other| other.group == leaf.group);
        let group = config.groups.iter().find(|group| group.id == leaf.group);
        let Some(group) = group.filter(|_| members().count() > 1) else {
            vdevs.push(leaf_of(found, leaf));
            continue;
        };
        // Once, with its first member.
        if members().next().is_some_and(|first| first.id == leaf.id) {
            let children = members().map(|leaf| leaf_of(found, leaf)).collect();
            let lacks = members().any(|leaf| needed.contains(&leaf.path));
            vdevs.push(group_of(config, group, lacks, children));
        }
    }
    vdevs.sort_by_key(|vdev| vdev.class == VdevClass::Special);
    let logs = config.aux.iter().filter(|aux| aux.class == AuxClass::Log);
    let logs = logs.map(|aux| (aux.log.mirror, log_of(found, aux))).collect();
    vdevs.extend(with_log_mirrors(config.pool, logs));
    let waiting = config.aux.iter().filter(|aux| aux.class == AuxClass::Spare);
    vdevs.extend(waiting.map(|aux| spares::candidate(found, aux)));
    vdevs
}

pub(in crate::engine) fn here(found: &FoundPool, guid: u64) -> Option<&FoundDevice> {
    found.devices.iter().find(|device| device.label.device_guid == guid)
}

fn leaf_of(found: &FoundPool, leaf: &LeafConfig) -> VdevReport {
    let config = &found.config;
    let here = here(found, leaf.guid);
    let (state, note) = match (leaf.state, here) {
        (LeafState::Spared, _) => (Health::Faulted, Some("replaced by a spare")),
        (_, None) => (Health::Unavail, Some(NOT_HERE)),
        (LeafState::Offline, _) => (Health::Offline, None),
        (LeafState::Faulted, _) => (Health::Faulted, Some("is out of use")),
        // Labels do not tell whether it is out of use.
        (LeafState::Leaving, _) if is_removed(config, leaf) => (Health::Online, Some("is being removed")),
        (LeafState::Leaving, _) => (Health::Online, Some("is being replaced")),
        (LeafState::Online | LeafState::Gone | LeafState::Parted, _) => (Health::Online, None),
    };
    let class = match config.groups.iter().find(|group| group.id == leaf.group) {
        Some(group) => class_of(group),
        None => VdevClass::Main,
    };
    let name = here.map_or(leaf.path.clone(), |device| device.handle.path.clone());
    VdevReport {
        // A slot of a device of raidz holds a column, which is smaller than a segment.
        size: u64::from(leaf.slots) * u64::from(config.column_of(leaf)),
        note: note.map(str::to_owned),
        ..VdevReport::new(name, leaf.guid, class, state)
    }
}

/// True if the device's group is being removed.
fn is_removed(config: &LabelConfig, leaf: &LeafConfig) -> bool {
    let same = |other: &&LeafConfig| other.id == leaf.id || leaf.group != 0 && other.group == leaf.group;
    config.leaves.iter().filter(same).all(|leaf| leaf.state == LeafState::Leaving)
}

fn class_of(group: &GroupConfig) -> VdevClass {
    match group.class {
        GroupClass::Special => VdevClass::Special,
        GroupClass::Normal => VdevClass::Main,
    }
}

/// A group. It is unavailable if it `lacks` too many of its devices.
fn group_of(config: &LabelConfig, group: &GroupConfig, lacks: bool, children: Vec<VdevReport>) -> VdevReport {
    let state = match children.iter().all(|child| child.state == Health::Online) {
        true => Health::Online,
        false if lacks => Health::Unavail,
        false => Health::Degraded,
    };
    let redundancy = steadfast_pool::redundancy_of(group);
    let sizes = children.iter().map(|child| child.size);
    let size = match redundancy {
        Redundancy::Mirror => sizes.min().unwrap_or(0),
        _ => sizes.sum(),
    };
    let number = group_number(config.pool, group.id);
    let vdev = VdevReport::new(name_of(group), number, class_of(group), state);
    VdevReport { kind: kind(redundancy), size, children, ..vdev }
}

fn log_of(found: &FoundPool, aux: &AuxConfig) -> VdevReport {
    let here = here(found, aux.guid);
    let state = match here {
        _ if aux.log.out == Some(LogOut::Offline) => Health::Offline,
        Some(_) if aux.given_up => Health::Faulted,
        Some(_) => Health::Online,
        None => Health::Unavail,
    };
    let name = here.map_or(aux.path.clone(), |device| device.handle.path.clone());
    let note = if aux.given_up { Some("given up") } else { here.is_none().then_some(NOT_HERE) };
    VdevReport { note: note.map(str::to_owned), ..VdevReport::new(name, aux.guid, VdevClass::Log, state) }
}

/// Devices and groups of a pool that is remembered and not imported: as labels say, if one of its
/// devices has one, or else as they were when the list was written.
pub(in crate::engine) fn remembered(pool: &CachedPool) -> Vec<VdevReport> {
    let open = |path: &PathBuf| devices::open(path, &OpenOptions::PEEK).ok();
    let (found, _) = steadfast_pool::scan(pool.devices.iter().filter_map(open).collect());
    if let Some(found) = found.iter().find(|found| found.guid.0 == pool.guid) {
        return vdevs(found);
    }
    let mut vdevs: Vec<VdevReport> = pool.vdevs.iter().map(listed).collect();
    let is_listed =
        |path: &&PathBuf| pool.vdevs.iter().flat_map(|vdev| &vdev.devices).any(|(listed, _)| listed == *path);
    let others = pool.devices.iter().filter(|path| !is_listed(path));
    vdevs.extend(others.map(|path| gone(path, 0, VdevClass::Main)));
    vdevs
}

/// A device of which only the path is known.
fn gone(path: &Path, guid: u64, class: VdevClass) -> VdevReport {
    let note = if path.exists() { "no label of the pool was found on it" } else { NOT_HERE };
    let vdev = VdevReport::new(path.display().to_string(), guid, class, Health::Unavail);
    VdevReport { note: Some(note.to_owned()), ..vdev }
}

fn listed(vdev: &CachedVdev) -> VdevReport {
    let mut children: Vec<VdevReport> =
        vdev.devices.iter().map(|(path, guid)| gone(path, *guid, vdev.class)).collect();
    if vdev.group.is_empty() && children.len() == 1 {
        return children.remove(0);
    }
    let group = VdevReport::new(vdev.group.clone(), vdev.guid, vdev.class, Health::Unavail);
    VdevReport { kind: vdev.kind, children, ..group }
}

/// A pool's devices in the list of remembered pools.
pub(in crate::engine) fn layout(measured: &Measured) -> Vec<CachedVdev> {
    let device = |vdev: &VdevReport| (PathBuf::from(&vdev.name), vdev.guid);
    let kept = |vdev: VdevReport| CachedVdev {
        guid: vdev.guid,
        class: vdev.class,
        kind: vdev.kind,
        devices: match vdev.children.is_empty() {
            true => vec![device(&vdev)],
            false => leaves(&vdev).into_iter().map(device).collect(),
        },
        group: if vdev.children.is_empty() { String::new() } else { vdev.name },
    };
    // Notes, which name the pool, are not kept.
    devices_of("", measured).into_iter().map(kept).collect()
}

/// Devices of a group, spares and replaced devices too.
fn leaves(vdev: &VdevReport) -> Vec<&VdevReport> {
    match vdev.children.is_empty() {
        true => vec![vdev],
        false => vdev.children.iter().flat_map(leaves).collect(),
    }
}
