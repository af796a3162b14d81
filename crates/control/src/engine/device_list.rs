//! Device lists of `zpool create` and `zpool add`: their classes and groups.

use crate::api::{VdevClass, VdevKind, VdevSpec};
use crate::check::vdev_word;
use crate::engine::reports::groups::kind;
use crate::engine::state::ImportedPool;
use crate::refusal::{Code, Refusal};
use steadfast_format::GroupClass;
use steadfast_pool::{DeviceHandle, GroupHandles, Redundancy};

/// Classes of devices that are divided into slots.
const SLOTTED: [VdevClass; 5] =
    [VdevClass::Main, VdevClass::Special, VdevClass::Log, VdevClass::Spare, VdevClass::Cache];

/// The devices of a list that are divided into slots, class by class.
pub(super) fn slotted(vdevs: &[VdevSpec]) -> Vec<VdevSpec> {
    SLOTTED.iter().flat_map(|class| vdevs.iter().filter(move |vdev| vdev.class == *class)).cloned().collect()
}

/// Opened devices of such a list by class.
pub(super) struct HandlesByClass {
    /// Main ones, then special ones.
    pub main: Vec<DeviceHandle>,
    pub logs: Vec<DeviceHandle>,
    pub spares: Vec<DeviceHandle>,
    pub caches: Vec<DeviceHandle>,
}

/// Sorts what [`slotted`] listed.
pub(super) fn sorted(vdevs: &[VdevSpec], handles: Vec<DeviceHandle>) -> HandlesByClass {
    let count = |class| {
        let of = vdevs.iter().filter(|vdev| vdev.class == class);
        of.map(|vdev| vdev.devices.len()).sum::<usize>()
    };
    let mut handles = handles.into_iter();
    let [mut main, special, logs, spares, caches]: [Vec<DeviceHandle>; 5] =
        SLOTTED.map(|class| handles.by_ref().take(count(class)).collect());
    main.extend(special);
    HandlesByClass { main, logs, spares, caches }
}

/// The log devices and mirrors of them that a device list asks for, of its log devices in their
/// order.
pub(super) fn log_groups(vdevs: &[VdevSpec], handles: Vec<DeviceHandle>) -> Vec<GroupHandles> {
    let mut handles = handles.into_iter();
    let logs = vdevs.iter().filter(|vdev| vdev.class == VdevClass::Log);
    let group = logs.map(|vdev| GroupHandles {
        redundancy: redundancy(vdev.kind),
        class: GroupClass::Normal,
        devices: handles.by_ref().take(vdev.devices.len()).collect(),
    });
    group.collect()
}

/// The groups that a device list asks for, of its main devices in their order, then of its special
/// ones; single ones stand alone.
pub(super) fn groups(vdevs: &[VdevSpec], handles: Vec<DeviceHandle>) -> Vec<GroupHandles> {
    let mut handles = handles.into_iter();
    let of = |class| vdevs.iter().filter(move |vdev| vdev.class == class);
    let group = of(VdevClass::Main).chain(of(VdevClass::Special)).map(|vdev| GroupHandles {
        redundancy: redundancy(vdev.kind),
        class: if vdev.class == VdevClass::Special { GroupClass::Special } else { GroupClass::Normal },
        devices: handles.by_ref().take(vdev.devices.len()).collect(),
    });
    group.collect()
}

fn redundancy(kind: VdevKind) -> Redundancy {
    match kind {
        VdevKind::Plain => Redundancy::None,
        VdevKind::Mirror => Redundancy::Mirror,
        VdevKind::Raidz1 => Redundancy::Raidz(1),
        VdevKind::Raidz2 => Redundancy::Raidz(2),
        VdevKind::Raidz3 => Redundancy::Raidz(3),
    }
}

/// The groups of a class that a pool has, each with its devices.
pub(super) fn groups_of(held: &ImportedPool, class: GroupClass) -> Vec<(VdevKind, usize)> {
    let state = held.pool.state();
    let alone = state.leaves.iter().filter(|leaf| leaf.config.group == 0 && class == GroupClass::Normal);
    let alone = alone.map(|_| (VdevKind::Plain, 1));
    let of = |id| state.leaves.iter().filter(|leaf| leaf.config.group == id).count();
    let groups = state.groups.iter().filter(|group| group.class == class);
    let groups = groups.map(|group| match of(group.id) {
        1 => (VdevKind::Plain, 1),
        devices => (kind(steadfast_pool::redundancy_of(group)), devices),
    });
    alone.chain(groups).collect()
}

/// Refuses groups of different redundancy, as ZFS does: a pool is as safe as its least redundant
/// group. `normal` and `special` are the pool's present groups. A special group may be of another
/// kind if it survives as many failures: its loss is the loss of the pool.
pub(super) fn check_alike(
    vdevs: &[VdevSpec],
    [normal, special]: [&[(VdevKind, usize)]; 2],
    force: bool,
) -> Result<(), Refusal> {
    if force {
        return Ok(());
    }
    let with = |existing: &[(VdevKind, usize)], class| {
        let new = vdevs.iter().filter(|vdev| vdev.class == class);
        let mut all: Vec<(VdevKind, usize)> = existing.to_vec();
        all.extend(new.map(|vdev| (vdev.kind, vdev.devices.len())));
        all
    };
    let all = with(normal, VdevClass::Main);
    let spared = |(kind, devices): (VdevKind, usize)| match kind {
        VdevKind::Plain => 0,
        VdevKind::Mirror => devices - 1,
        VdevKind::Raidz1 => 1,
        VdevKind::Raidz2 => 2,
        VdevKind::Raidz3 => 3,
    };
    // As in ZFS a mirror may stand beside a raidz group that survives as many failures.
    let other = all.windows(2).find(|pair| spared(pair[0]) != spared(pair[1]));
    let other = other.map(|pair| (pair[0], pair[1], ""));
    let special = with(special, VdevClass::Special);
    let weaker =
        special.into_iter().find(|group| all.first().is_some_and(|first| spared(*first) != spared(*group)));
    let weaker = weaker.and_then(|group| Some((*all.first()?, group, "special ")));
    match other.or(weaker) {
        Some((first, second, word)) => {
            let [first, second] = [first, second].map(|vdev| match vdev.0 {
                VdevKind::Plain => "single devices".to_owned(),
                kind => format!("{} of {} devices", vdev_word(VdevClass::Main, kind), vdev.1),
            });
            let what = format!("mismatched redundancy: {first} and {word}{second} in one pool");
            Err(Refusal::new(Code::VdevMismatch, what))
        }
        None => Ok(()),
    }
}

/// Difference in the sizes of a group's devices from which ZFS asks for `-f`.
const SIZES_ALIKE: u64 = 16 << 20;

/// Refuses groups whose devices differ in size, as ZFS does: what is larger may be a typing error.
/// `handles` are the main and special devices in their order.
pub(super) fn check_sizes(vdevs: &[VdevSpec], handles: &[DeviceHandle], force: bool) -> Result<(), Refusal> {
    if force {
        return Ok(());
    }
    // Groups that are too small are refused later, for that.
    let least = |redundancy| match redundancy {
        Redundancy::None | Redundancy::Mirror => 2,
        Redundancy::Raidz(parity) => usize::from(parity) + 1,
    };
    let all = groups(vdevs, handles.to_vec());
    for group in all.iter().filter(|group| group.devices.len() >= least(group.redundancy)) {
        let sizes = || group.devices.iter().map(|handle| handle.device.character().size_bytes);
        let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        if most - least > SIZES_ALIKE {
            let what = format!(
                "{} contains devices of different sizes: {} and {}",
                steadfast_pool::group_word(group.redundancy),
                steadfast_property::nice_bytes(least),
                steadfast_property::nice_bytes(most)
            );
            return Err(Refusal::new(Code::VdevMismatch, what));
        }
    }
    Ok(())
}
