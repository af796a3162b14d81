//! Names, numbers and kinds of groups and log mirrors, as status prints them.

use crate::api::{Health, VdevKind, VdevReport};
use std::collections::BTreeMap;
use steadfast_format::{GroupConfig, PoolGuid};
use steadfast_pool::{LogDeviceStatus, PoolStatus as Measured, Redundancy};

/// Name of a log device's mirror.
pub(in crate::engine) fn log_mirror_of(log: &LogDeviceStatus) -> Option<String> {
    log_mirror_name(log.mirror)
}

/// Name of a log mirror by its number.
fn log_mirror_name(mirror: u8) -> Option<String> {
    (mirror != 0).then(|| format!("mirror-{}", mirror - 1))
}

pub(in crate::engine) fn log_mirror_number(pool: PoolGuid, mirror: u8) -> u64 {
    steadfast_pool::number_of(pool, "log mirror", mirror.into())
}

/// Number of a group in status. `pool` is the number of the pool at its creation.
pub(in crate::engine) fn group_number(pool: PoolGuid, group: u8) -> u64 {
    steadfast_pool::number_of(pool, "group", group.into())
}

/// Log mirrors by name.
pub(in crate::engine) fn log_mirrors(measured: &Measured) -> BTreeMap<String, Vec<&LogDeviceStatus>> {
    let mut mirrors: BTreeMap<String, Vec<&LogDeviceStatus>> = BTreeMap::new();
    for log in &measured.log_devices {
        if let Some(name) = log_mirror_of(log) {
            mirrors.entry(name).or_default().push(log);
        }
    }
    mirrors
}

/// Log devices, each with the number of its mirror or 0: sides of a mirror go below a line of it.
/// `pool` is the number of the pool at its creation.
pub(in crate::engine) fn with_log_mirrors(pool: PoolGuid, logs: Vec<(u8, VdevReport)>) -> Vec<VdevReport> {
    let mut vdevs: Vec<VdevReport> = Vec::new();
    for (mirror, log) in logs {
        let Some(name) = log_mirror_name(mirror) else {
            vdevs.push(log);
            continue;
        };
        match vdevs.iter_mut().find(|vdev| vdev.name == name) {
            Some(vdev) => vdev.children.push(log),
            None => {
                let guid = log_mirror_number(pool, mirror);
                let vdev = VdevReport::new(name, guid, log.class, log.state);
                vdevs.push(VdevReport { kind: VdevKind::Mirror, children: vec![log], ..vdev });
            }
        }
    }
    for vdev in vdevs.iter_mut().filter(|vdev| !vdev.children.is_empty()) {
        let all = |state: Health| vdev.children.iter().all(|child| child.state == state);
        let any = vdev.children.iter().any(|child| child.state == Health::Online);
        let state = match (all(Health::Online), any) {
            (true, _) => Health::Online,
            (false, true) => Health::Degraded,
            (false, false) if all(Health::Offline) => Health::Offline,
            (false, false) if all(Health::Unavail) => Health::Unavail,
            (false, false) => Health::Faulted,
        };
        // Each side holds everything. The size of a missing one is not known.
        let sizes = vdev.children.iter().map(|child| child.size).filter(|size| *size > 0);
        let size = sizes.min().unwrap_or(0);
        (vdev.state, vdev.size) = (state, size);
    }
    vdevs
}

/// Name of a group. Its number never changes.
pub(in crate::engine) fn group_name(measured: &Measured, id: u8) -> String {
    measured.groups.iter().find(|group| group.id == id).map(name_of).unwrap_or_default()
}

/// The same from a label.
pub(in crate::engine) fn name_of(group: &GroupConfig) -> String {
    let index = group.id - 1;
    // A mirror of one column has a second device only while one is replaced or removed.
    match (steadfast_pool::redundancy_of(group), group.width) {
        (steadfast_pool::Redundancy::Mirror, 1) => format!("replacing-{index}"),
        (redundancy, _) => format!("{}-{index}", steadfast_pool::group_word(redundancy)),
    }
}

/// The kind of a group.
pub(in crate::engine) fn kind(redundancy: Redundancy) -> VdevKind {
    match redundancy {
        Redundancy::None => VdevKind::Plain,
        Redundancy::Mirror => VdevKind::Mirror,
        Redundancy::Raidz(1) => VdevKind::Raidz1,
        Redundancy::Raidz(2) => VdevKind::Raidz2,
        Redundancy::Raidz(_) => VdevKind::Raidz3,
    }
}
