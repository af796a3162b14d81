//! Devices that are being replaced.

use crate::api::{Health, VdevKind, VdevReport};
use steadfast_format::{LeafState, ScanKind, ScanState};
use steadfast_pool::{LeafStatus, PoolStatus as Measured};

/// Members of a group. A member and the device that replaces it become a group of both:
/// `replacing-0`, by its position among the members. The new device is listed behind the old one.
/// `members` and `children` are the same devices.
pub(in crate::engine) fn nested(
    measured: &Measured,
    width: u8,
    members: &[&LeafStatus],
    children: Vec<VdevReport>,
) -> Vec<VdevReport> {
    let is_leaving = |leaf: &LeafStatus| leaf.config.state == LeafState::Leaving;
    let is_spare = |leaf: &LeafStatus| {
        let mut standing = measured.spares.iter().filter_map(|spare| spare.standing);
        standing.any(|standing| [standing.leaf, standing.instead].contains(&leaf.config.id))
    };
    let staying = members.iter().filter(|leaf| !is_leaving(leaf)).count();
    // For the moment in which a member of a wider mirror is detached, it looks the same.
    if staying < usize::from(width) || members.len() != children.len() {
        return children;
    }
    let resilvers = measured
        .scan
        .as_ref()
        .is_some_and(|scan| scan.kind == ScanKind::Resilver && scan.state == ScanState::Active);
    let mut children = children.into_iter();
    let mut nested: Vec<VdevReport> = Vec::new();
    let mut at = 0;
    while let Some(child) = children.next() {
        let (old, new) = (members[at], members.get(at + 1));
        at += 1;
        let Some(new) = new.filter(|new| is_leaving(old) && !is_leaving(new)) else {
            nested.push(child);
            continue;
        };
        if is_spare(old) || is_spare(new) {
            nested.push(child);
            continue;
        }
        let mut fresh = children.next().expect("as many children as members");
        at += 1;
        if resilvers && fresh.state == Health::Online {
            let note = fresh.note.take().map_or(String::new(), |note| note + "  ");
            fresh.note = Some(note + "(resilvering)");
        }
        // A group of one column is named `replacing` itself.
        if width == 1 {
            nested.extend([child, fresh]);
            continue;
        }
        let usable = |vdev: &VdevReport| matches!(vdev.state, Health::Online | Health::Degraded);
        let state = match (child.state, fresh.state) {
            (Health::Online, Health::Online) => Health::Online,
            _ if usable(&child) || usable(&fresh) => Health::Degraded,
            _ => Health::Faulted,
        };
        let guid = steadfast_pool::number_of(measured.made_as, "replacing", child.guid);
        let group = VdevReport::new(format!("replacing-{}", nested.len()), guid, child.class, state);
        nested.push(VdevReport {
            kind: VdevKind::Mirror,
            size: fresh.size,
            allocated: child.allocated.saturating_add(fresh.allocated),
            expandsize: fresh.expandsize,
            children: vec![child, fresh],
            ..group
        });
    }
    nested
}
