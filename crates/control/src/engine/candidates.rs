//! Pools that are not imported: what the labels of their devices say, or else the list of remembered pools.

use super::{Engine, devices, report, spares};
use crate::api::{Health, PoolCandidate, VdevClass, VdevReport};
use crate::cachefile::{CachedPool, CachedVdev};
use crate::refusal::{Code, Refusal};
use crate::secret::KeyFormat;
use std::path::{Path, PathBuf};
use steadfast_device::OpenOptions;
use steadfast_format::{
    AuxClass, AuxConfig, GroupClass, GroupConfig, LabelConfig, LeafConfig, LeafState, LogOut, PoolState,
};
use steadfast_pool::{FoundDevice, FoundPool, PoolStatus as Measured, Redundancy};

/// Of a device that is not there.
const NOT_HERE: &str = "cannot be opened";

impl Engine {
    pub(super) fn candidates(
        &self,
        search: &[PathBuf],
        destroyed: bool,
    ) -> Result<Vec<PoolCandidate>, Refusal> {
        let mut search = devices::search(&self.places(search))?;
        let held: Vec<u64> = self.pools.read().values().map(|held| held.pool.guid().0).collect();
        search.pools.retain(|found| !held.contains(&found.guid.0));
        search.pools.retain(|found| (found.config.state == PoolState::Destroyed) == destroyed);
        if search.pools.is_empty()
            && let Some(refusal) = search.refused.into_iter().next()
        {
            // A device that was named holds nothing: that is the answer, and not an empty list.
            return Err(refusal);
        }
        Ok(search.pools.iter().map(|found| self.candidate(found)).collect())
    }

    fn candidate(&self, found: &FoundPool) -> PoolCandidate {
        let config = &found.config;
        let name = &config.name;
        let missing = !steadfast_pool::is_enough(found);
        let message = if missing {
            let special = steadfast_pool::special_among(config, &found.missing);
            let why = steadfast_pool::lost_metadata(&special);
            let what = format!("devices are missing: {}{why}", found.missing.join(", "));
            Some(Refusal::new(Code::PoolDevices, what).with("pool", name))
        } else if config.state == PoolState::Destroyed {
            let what = format!("the pool '{name}' was destroyed");
            Some(Refusal::new(Code::PoolDestroyed, what).with("pool", name))
        } else if config.state == PoolState::Active && config.host != self.host {
            let what = format!("the pool was last used by host '{}' and was not exported", config.host);
            Some(Refusal::new(Code::PoolActive, what).with("pool", name))
        } else if let Some(aux) = missing_log(found) {
            let what = format!("the log device {} was not found", aux.path);
            Some(Refusal::new(Code::LogMissing, what).with("pool", name).with("device", &aux.path))
        } else {
            None
        };
        let state = match &message {
            _ if missing => Health::Unavail,
            Some(message) if message.code == Code::LogMissing => Health::Degraded,
            _ if !found.missing.is_empty() || is_log_degraded(found) => Health::Degraded,
            _ => Health::Online,
        };
        PoolCandidate {
            name: name.clone(),
            guid: found.guid.0,
            state,
            importable: !missing,
            sealed: config.key.as_ref().and_then(|(wrapped, _)| KeyFormat::parse(wrapped.key_format.name())),
            vdevs: vdevs(found),
            message,
        }
    }
}

/// Devices and groups of a pool, as its labels list them.
fn vdevs(found: &FoundPool) -> Vec<VdevReport> {
    let config = &found.config;
    let needed = steadfast_pool::needed_among(found);
    // What went to another pool is none of this one's.
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
    vdevs.extend(report::with_log_mirrors(config.pool, logs));
    let waiting = config.aux.iter().filter(|aux| aux.class == AuxClass::Spare);
    vdevs.extend(waiting.map(|aux| spares::candidate(found, aux)));
    vdevs
}

fn here(found: &FoundPool, guid: u64) -> Option<&FoundDevice> {
    found.devices.iter().find(|device| device.label.device_guid == guid)
}

fn leaf_of(found: &FoundPool, leaf: &LeafConfig) -> VdevReport {
    let config = &found.config;
    let here = here(found, leaf.guid);
    let (state, note) = match (leaf.state, here) {
        (LeafState::Spared, _) => (Health::Faulted, Some("a spare holds what it should")),
        (_, None) => (Health::Unavail, Some(NOT_HERE)),
        (LeafState::Offline, _) => (Health::Offline, None),
        (LeafState::Faulted, _) => (Health::Faulted, Some("failed and was taken out of use")),
        // Labels do not say whether it is out of use.
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

/// Whether all that lies on a device's group goes to others.
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

/// A group; one that `lacks` too many of its devices is of no use.
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
    let number = report::group_number(config.pool, group.id);
    let vdev = VdevReport::new(report::name_of(group), number, class_of(group), state);
    VdevReport { kind: super::anchors::kind(redundancy), size, children, ..vdev }
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

/// A log device that is needed and was not found: no other one of its mirror was, that is in use.
fn missing_log(found: &FoundPool) -> Option<&AuxConfig> {
    let has = |aux: &AuxConfig| here(found, aux.guid).is_some();
    let mut used = found.config.aux.iter().filter(|aux| aux.class == AuxClass::Log && aux.is_in_use());
    let has_other = |aux: &AuxConfig| {
        let beside = |other: &AuxConfig| aux.log.mirror != 0 && other.log.mirror == aux.log.mirror;
        found.config.aux.iter().any(|other| beside(other) && other.is_in_use() && has(other))
    };
    used.find(|aux| !has(aux) && !has_other(aux))
}

/// True if a mirror of log devices lacks one.
fn is_log_degraded(found: &FoundPool) -> bool {
    let mut logs = found.config.aux.iter().filter(|aux| aux.class == AuxClass::Log && aux.log.mirror != 0);
    logs.any(|aux| here(found, aux.guid).is_none() || !aux.is_in_use())
}

/// Devices and groups of a pool that is remembered and not imported: as labels say, if one of its devices has one, or else as they were
/// when the list was written.
pub(super) fn remembered(pool: &CachedPool) -> Vec<VdevReport> {
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

/// A device of which nothing but its path is known.
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

/// What the list of remembered pools keeps of a pool's devices.
pub(super) fn layout(measured: &Measured) -> Vec<CachedVdev> {
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
    report::devices_of(measured).into_iter().map(kept).collect()
}

/// Devices of a group; those that a spare stands for, and the spare, among them.
fn leaves(vdev: &VdevReport) -> Vec<&VdevReport> {
    match vdev.children.is_empty() {
        true => vec![vdev],
        false => vdev.children.iter().flat_map(leaves).collect(),
    }
}
