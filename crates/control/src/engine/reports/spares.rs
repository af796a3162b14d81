//! Spares and cache devices.

use crate::api::{Health, VdevClass, VdevKind, VdevReport};
use steadfast_format::AuxConfig;
use steadfast_pool::{CacheDeviceStatus, FoundPool, PoolStatus as Measured, SpareStatus};

/// Members of a group. A member with a spare becomes a group of both: `spare-0`, by its position
/// among the members.
pub(in crate::engine) fn nested(measured: &Measured, children: Vec<VdevReport>) -> Vec<VdevReport> {
    let path_of = |id| measured.leaves.iter().find(|leaf| leaf.config.id == id).map(|leaf| &leaf.config.path);
    let standing = measured.spares.iter().filter_map(|spare| spare.standing);
    let pairs = standing.filter_map(|standing| Some((path_of(standing.instead)?, path_of(standing.leaf)?)));
    let pairs: Vec<(&String, &String)> = pairs.collect();
    let (spares, mut others): (Vec<VdevReport>, Vec<VdevReport>) =
        children.into_iter().partition(|child| pairs.iter().any(|(_, spare)| **spare == child.name));
    for (index, child) in others.iter_mut().enumerate() {
        let pair = pairs.iter().find(|(original, _)| **original == child.name);
        let Some(spare) = pair.and_then(|(_, path)| spares.iter().find(|spare| spare.name == **path)) else {
            continue;
        };
        let usable = |vdev: &VdevReport| matches!(vdev.state, Health::Online | Health::Degraded);
        let state = if usable(spare) || usable(child) { Health::Degraded } else { Health::Faulted };
        let pair = vec![child.clone(), spare.clone()];
        let guid = steadfast_pool::number_of(measured.made_as, "spare", child.guid);
        let group = VdevReport::new(format!("spare-{index}"), guid, spare.class, state);
        let (size, allocated) = (spare.size, spare.allocated);
        let group = VdevReport { kind: VdevKind::Mirror, size, allocated, children: pair, ..group };
        *child = group;
    }
    others
}

/// A spare in the section of spares.
pub(in crate::engine) fn report(spare: &SpareStatus) -> VdevReport {
    let (state, note) = match (&spare.trouble, spare.standing) {
        (_, Some(_)) => (Health::Inuse, Some("currently in use".to_owned())),
        (Some(trouble), None) => (Health::Unavail, Some(trouble.clone())),
        (None, None) => (Health::Avail, None),
    };
    line(spare.path.clone(), spare.guid, spare.size_bytes, state, note)
}

/// A spare of a pool that could be imported.
pub(in crate::engine) fn candidate(found: &FoundPool, aux: &AuxConfig) -> VdevReport {
    let here = found.devices.iter().find(|device| device.label.device_guid == aux.guid);
    let (state, note) = match (aux.standing, here) {
        (Some(_), _) => (Health::Inuse, Some("currently in use".to_owned())),
        (None, Some(_)) => (Health::Avail, None),
        (None, None) => (Health::Unavail, Some("cannot be opened".to_owned())),
    };
    let path = here.map_or(aux.path.clone(), |device| device.handle.path.clone());
    line(path, aux.guid, 0, state, note)
}

fn line(name: String, guid: u64, size: u64, state: Health, note: Option<String>) -> VdevReport {
    VdevReport { size, note, ..VdevReport::new(name, guid, VdevClass::Spare, state) }
}

/// A cache device in the section of cache devices.
pub(in crate::engine) fn cache_report(cache: &CacheDeviceStatus) -> VdevReport {
    let state = match cache.trouble {
        _ if cache.is_offline => Health::Offline,
        Some(_) => Health::Unavail,
        None => Health::Online,
    };
    VdevReport {
        size: cache.size_bytes,
        allocated: cache.counts.bytes,
        read_errors: cache.counts.read_errors,
        write_errors: cache.counts.write_errors,
        checksum_errors: cache.counts.wrong,
        note: cache.trouble.clone(),
        ..VdevReport::new(cache.path.clone(), cache.guid, VdevClass::Cache, state)
    }
}
