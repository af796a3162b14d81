//! The groups of a pool as a label lists them.

use steadfast_device::SharedDevice;
use steadfast_format::{DeviceId, GroupClass, GroupConfig, GroupKind, LeafConfig};

use crate::groups::Redundancy;

/// A group of devices that keep segments together.
pub struct GroupSpec {
    /// How.
    pub redundancy: Redundancy,
    /// Class of its content.
    pub class: GroupClass,
    /// Columns of a new segment.
    pub width: u32,
    /// Bytes of a slot on its devices ([`Redundancy::column_bytes`]).
    pub column: u32,
    /// Its devices, at least `width`.
    pub members: Vec<MemberSpec>,
}

/// A device of a group.
pub struct MemberSpec {
    /// Its id.
    pub id: DeviceId,
    /// Its slots.
    pub slots: u32,
    /// The device, if it is in use.
    pub device: Option<SharedDevice>,
}

/// The groups of a pool as a label lists them, those that stand alone among them, each where its
/// first device is listed. `member` gives the slots of a device and the device itself, if it is in
/// use.
pub fn groups_of(
    slot_size: u32,
    listed_groups: &[GroupConfig],
    leaves: &[LeafConfig],
    mut member: impl FnMut(&LeafConfig) -> (u32, Option<SharedDevice>),
) -> Vec<GroupSpec> {
    let mut groups: Vec<(u8, GroupSpec)> = Vec::new();
    for leaf in leaves {
        let (slots, device) = member(leaf);
        let member = MemberSpec { id: leaf.id, slots, device };
        if let Some((_, group)) = groups.iter_mut().find(|(id, _)| leaf.group != 0 && *id == leaf.group) {
            group.members.push(member);
            continue;
        }
        let listed = listed_groups.iter().find(|group| group.id == leaf.group);
        let class = listed.map_or(GroupClass::Normal, |group| group.class);
        let (redundancy, width, column) = match listed {
            None => (Redundancy::None, 1, slot_size),
            Some(GroupConfig { kind: GroupKind::Mirror, width, column, .. }) => {
                (Redundancy::Mirror, u32::from(*width), *column)
            }
            Some(GroupConfig { kind: GroupKind::Raidz(parity), width, column, .. }) => {
                (Redundancy::Raidz(*parity), u32::from(*width), *column)
            }
        };
        groups.push((leaf.group, GroupSpec { redundancy, class, width, column, members: vec![member] }));
    }
    groups.into_iter().map(|(_, group)| group).collect()
}
