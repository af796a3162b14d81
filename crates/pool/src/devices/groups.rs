//! Groups of devices: mirrors and raidz. Permitted groups, their labels, and the states of their
//! devices.
//!
//! ## Health of a device
//!
//! | state   | by                                                     | written to | read from | its content |
//! |---------|--------------------------------------------------------|------------|-----------|---|
//! | online  |                                                        | yes        | yes       | counts |
//! | offline | the operator                                           | no         | no        | counts; it is old |
//! | faulted | it failed, and its group can do without it             | no         | no        | counts; it is old |
//! | gone    | import did not find it, and its group can do without it| no         | no        | counts; it is old |
//! | leaving | the operator replaced, detached or removed it          | no         | yes       | moves to others |
//! | spared  | it was faulted or gone, and a spare holds all of it    | no         | no        | counts for nothing |
//!
//! ## Invariants
//! [group.1] A group is used as long as the number of its devices out of use is at most the number
//!      of columns that a segment may lack. Otherwise the pool is suspended, or not imported.
//!      `Space::give_up_or_fail`, [`check_present`]
//! [group.2] Rows do not name a device for data that it missed, and its content is verified like
//!      any other. So a device that returns with old content is not believed: a slot of it that
//!      rows name has its content of then, or is found wrong.

use crate::devices::state::Devices;
use std::sync::Arc;
use steadfast_device::Device;
use steadfast_segment::GroupSpec;
use steadfast_segment::groups_of;

use steadfast_env::Env;
use steadfast_format::{
    DeviceId, GroupClass, GroupConfig, GroupKind, LabelConfig, LeafConfig, LeafState, Placement, PoolGuid,
    SegmentRow, medium,
};
use steadfast_segment::{Geometry, Redundancy};

use crate::core::error::{Error, Result};
use crate::core::events::{EventKind, Events};
use crate::devices::leaf::Leaf;
use crate::devices::probe::FoundPool;

/// Feature of pools with groups.
pub(crate) const FEATURE: &str = "redundancy";
/// Feature of pools that have had special groups.
pub(crate) const SPECIAL: &str = "special_devices";
/// Feature of pools whose segments may have fewer columns than their group.
pub(crate) const UNEVEN: &str = "uneven_devices";

/// Greatest number of a device of a group: uberblocks have two bytes for it.
const DEVICE_ID_MAX: u64 = u16::MAX as u64;

/// Word for a group: `mirror`, `raidz2`.
#[must_use]
pub fn word(redundancy: Redundancy) -> String {
    match redundancy {
        Redundancy::None => "disk".to_owned(),
        Redundancy::Mirror => "mirror".to_owned(),
        Redundancy::Raidz(parity) => format!("raidz{parity}"),
    }
}

/// The redundancy of a listed group.
#[must_use]
pub fn redundancy_of(group: &GroupConfig) -> Redundancy {
    match group.kind {
        GroupKind::Mirror => Redundancy::Mirror,
        GroupKind::Raidz(parity) => Redundancy::Raidz(parity),
    }
}

/// Columns of data of a group to be made of these devices.
pub(crate) fn data_columns(group: &GroupHandles) -> u32 {
    let devices = u32::try_from(group.devices.len()).unwrap_or(u32::MAX);
    match group.redundancy {
        Redundancy::None | Redundancy::Mirror => 1,
        Redundancy::Raidz(parity) => devices.saturating_sub(parity.into()).max(1),
    }
}

/// Refuses a group that cannot be: too few devices, too many, or some that take whole objects only.
pub(crate) fn check(group: &GroupHandles) -> Result<()> {
    let (least, most) = match group.redundancy {
        Redundancy::None => (1, LabelConfig::LEAVES_MAX),
        Redundancy::Mirror => (2, Placement::COPIES_MAX),
        Redundancy::Raidz(parity) => (usize::from(parity) + 1, SegmentRow::COLUMNS_MAX),
    };
    let devices = group.devices.len();
    if !(least..=most).contains(&devices) {
        return Err(Error::GroupSize { group: word(group.redundancy), devices, least, most });
    }
    let whole = group.devices.iter().find(|handle| !handle.device.character().appendable);
    match whole {
        Some(handle) if group.redundancy != Redundancy::None || group.class == GroupClass::Special => {
            Err(Error::GroupOfObjects { path: handle.path.clone(), group: word(group.redundancy) })
        }
        _ => Ok(()),
    }
}

/// Appends what labels say of a new group and its leaves, or of devices that stand alone. Numbers
/// of devices up to `last` were given out since the import, if only to some that have left since;
/// numbers of groups up to `taken` are those of mirrors of log devices.
pub(crate) fn add(
    env: &Env,
    events: &Arc<Events>,
    geometry: Geometry,
    handles: GroupHandles,
    (last, taken): (DeviceId, u8),
    groups: &mut Vec<GroupConfig>,
    leaves: &mut Vec<Arc<Leaf>>,
) -> Result<()> {
    let is_special = handles.class == GroupClass::Special;
    if is_special && handles.redundancy == Redundancy::None && handles.devices.len() > 1 {
        // Each is a group of its own.
        return handles.devices.into_iter().try_for_each(|device| {
            let one = GroupHandles { devices: vec![device], ..handles };
            add(env, events, geometry, one, (last, taken), groups, leaves)
        });
    }
    let width = u32::try_from(handles.devices.len()).expect("checked");
    let column = handles.redundancy.column_bytes(width, geometry);
    let id = groups.last().map_or(0, |group| group.id).max(taken);
    // As in ZFS a device that stands alone has a number too, though none shows it.
    let alone = leaves.iter().filter(|leaf| leaf.config().group == 0).count();
    let place = u8::try_from(groups.len() + alone).ok().filter(|place| *place < u8::MAX);
    let id = place.map_or(id, |place| id.max(place));
    let kind = match handles.redundancy {
        // A group says what it holds, so a special device is a mirror of one column.
        Redundancy::None if is_special => Some(GroupKind::Mirror),
        Redundancy::None => None,
        Redundancy::Mirror => Some(GroupKind::Mirror),
        Redundancy::Raidz(parity) => Some(GroupKind::Raidz(parity)),
    };
    let group = match kind {
        None => 0,
        Some(kind) => {
            let id = id.checked_add(1).ok_or(Error::TooManyGroups)?;
            let width = u8::try_from(width).expect("checked");
            groups.push(GroupConfig { id, kind, width, column, class: handles.class });
            id
        }
    };
    let column = if group == 0 { geometry.slot_size } else { column };
    for handle in handles.devices {
        let bytes = handle.device.character().size_bytes;
        let slots = medium::slot_count(bytes, column);
        if slots == 0 {
            return Err(Error::TooSmall {
                path: handle.path,
                bytes,
                needed: medium::device_bytes(1, column),
            });
        }
        let last = leaves.iter().map(|leaf| leaf.id().0).max().unwrap_or(0).max(last.0);
        if group != 0 && last >= DEVICE_ID_MAX {
            return Err(Error::TooManyGroups);
        }
        let (id, state) = (DeviceId(last + 1), LeafState::Online);
        let config =
            LeafConfig { id, guid: env.random.nonzero_u64(), slots, group, state, path: handle.path };
        leaves.push(Arc::new(Leaf::new(config, handle.device, env, events)));
    }
    Ok(())
}

/// Those of some paths that are of special devices.
#[must_use]
pub fn special_among(config: &LabelConfig, paths: &[String]) -> Vec<String> {
    let is_special = |leaf: &&LeafConfig| {
        let group = config.groups.iter().find(|group| group.id == leaf.group);
        group.is_some_and(|group| group.class == GroupClass::Special)
    };
    let leaves = config.leaves.iter().filter(is_special);
    leaves.filter(|leaf| paths.contains(&leaf.path)).map(|leaf| leaf.path.clone()).collect()
}

/// True if import can do without the devices that were not found.
#[must_use]
pub fn is_enough(found: &FoundPool) -> bool {
    check_present(found).is_ok()
}

/// Paths of the devices of groups that miss too many, those that are missing; none if import can do
/// without what was not found.
#[must_use]
pub fn needed_among(found: &FoundPool) -> Vec<String> {
    check_present(found).err().unwrap_or_default()
}

/// A number for what has no number of its own, as a group: it follows from the number with which
/// the pool was made, from what it is, and from which of these it is. Never 0.
#[must_use]
pub fn number_of(pool: PoolGuid, what: &str, which: u64) -> u64 {
    let text = format!("{} {what} {which}", pool.0);
    let hash = steadfast_crypto::hash(text.as_bytes());
    let (first, _) = hash.split_first_chunk::<8>().expect("a hash has 32 bytes");
    u64::from_le_bytes(*first).max(1)
}

/// Devices of each group that import can do without, or those that are missing and cannot be
/// [group.1]: the paths of all of a group that misses too many.
pub(crate) fn check_present(found: &FoundPool) -> std::result::Result<(), Vec<String>> {
    let config = &found.config;
    let here = |leaf: &&LeafConfig| found.devices.iter().any(|device| device.label.device_guid == leaf.guid);
    let is_out = |leaf: &LeafConfig| matches!(leaf.state, LeafState::Offline | LeafState::Faulted);
    let mut fatal = Vec::new();
    for leaf in config.leaves.iter().filter(|leaf| leaf.group == 0 && !here(leaf)) {
        fatal.push(leaf.path.clone());
    }
    for group in &config.groups {
        let of_group = || config.leaves.iter().filter(|leaf| leaf.group == group.id);
        let spared = redundancy_of(group).spared(group.width.into()) as usize;
        // Data of a leaving device moves to others of its group, unless all of them leave or no
        // other has it.
        let parted = |leaf: &&LeafConfig| leaf.state == LeafState::Parted && !here(leaf);
        let of_group = || of_group().filter(|leaf| leaf.state != LeafState::Spared && !parted(leaf));
        let all_leave = of_group().all(|leaf| leaf.state == LeafState::Leaving);
        let counts = |leaf: &&LeafConfig| all_leave || spared == 0 || leaf.state != LeafState::Leaving;
        let missing: Vec<&LeafConfig> =
            of_group().filter(counts).filter(|leaf| !here(leaf) || is_out(leaf)).collect();
        if missing.len() > spared {
            fatal.extend(missing.into_iter().map(|leaf| leaf.path.clone()));
        }
    }
    if fatal.is_empty() { Ok(()) } else { Err(fatal) }
}

/// A device to make or import a pool with, and the path that labels shall remember.
#[derive(Clone)]
pub struct DeviceHandle {
    /// As the operator named it, absolute.
    pub path: String,
    /// Opened for writing (or for reading, if the pool is imported read-only).
    pub device: Arc<dyn Device>,
}

/// Devices to make a group of.
#[derive(Clone)]
pub struct GroupHandles {
    /// How they keep segments together. [`Redundancy::None`]: each stands alone.
    pub redundancy: Redundancy,
    /// Class of data that the group takes.
    pub class: GroupClass,
    /// The devices.
    pub devices: Vec<DeviceHandle>,
}

impl GroupHandles {
    /// Devices of which each stands alone.
    #[must_use]
    pub fn alone(devices: Vec<DeviceHandle>) -> Vec<GroupHandles> {
        vec![GroupHandles { redundancy: Redundancy::None, class: GroupClass::Normal, devices }]
    }
}

/// The groups of a pool for the room `segment`.
pub(crate) fn group_specs(slot_size: u32, groups: &[GroupConfig], leaves: &[Arc<Leaf>]) -> Vec<GroupSpec> {
    let configs = leaves.iter().map(|leaf| leaf.config());
    // One that is spared counts for nothing.
    let configs: Vec<LeafConfig> = configs.filter(|leaf| leaf.state != LeafState::Spared).collect();
    groups_of(slot_size, groups, &configs, |listed| {
        let leaf = leaves.iter().find(|leaf| leaf.id() == listed.id).expect("of these leaves");
        (listed.slots, leaf.in_use())
    })
}

impl Devices {
    /// Devices that the space gave up since the last look: their labels' state, and an event. At
    /// the beginning of a commit.
    pub(crate) fn note_given_up(&self) {
        if self.fault_given_up() {
            self.labels_due.mark();
        }
    }

    /// Devices that the pool gave up by itself are faulted. True if there are some, which labels
    /// are to say. One that was leaving goes on leaving: only so an import goes on with what takes
    /// its place, and understands a root that counts one device less than labels list.
    pub(crate) fn fault_given_up(&self) -> bool {
        let mut any = false;
        for given_up in self.core.space.take_given_up() {
            let leaves = self.leaves();
            let Some(leaf) = leaves.iter().find(|leaf| leaf.id() == given_up.device) else { continue };
            {
                let mut config = leaf.config.write();
                if config.state != LeafState::Leaving {
                    config.state = LeafState::Faulted;
                }
            }
            any = true;
            self.core.events.note(EventKind::DeviceFaulted { path: leaf.path(), reason: given_up.reason });
        }
        any
    }

    /// Does something to every leaf in use. One that fails is given up if its group can do without
    /// it.
    pub(crate) fn on_leaves(&self, mut act: impl FnMut(&Leaf) -> steadfast_device::Result<()>) -> Result<()> {
        for leaf in &self.leaves() {
            if leaf.in_use().is_none() || self.core.space.is_out_of_use(leaf.id()) {
                continue;
            }
            if let Err(source) = act(leaf) {
                self.core.space.give_up_or_fail(leaf.id(), source)?;
            }
        }
        Ok(())
    }
}
