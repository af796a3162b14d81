//! Columns of redundant segments: read whole, compared with the checksums of their chunks and with
//! each other. Reading blocks does not show whether parity and second copies are right; this does.

use std::collections::BTreeSet;

use steadfast_format::{Checksums, GroupKind, LabelConfig, LeafConfig, LeafState, SegmentId};
use steadfast_segment::{ColumnFault, Wrong};

use crate::meta::Meta;
use crate::view::View;
use crate::{Finding, Found};

/// Tells what is wrong with the columns of all segments.
pub(crate) fn check(view: &View, meta: &Meta, found: &mut Found<'_>) {
    for &segment in view.table.rows.keys() {
        let sums = sums_of(meta, segment);
        view.space.verify_columns(segment, &sums, &mut |fault| found(finding(segment, fault)));
    }
    let named: BTreeSet<SegmentId> = meta.sums.keys().map(|(segment, _)| *segment).collect();
    for segment in named {
        if meta.table_whole && !view.table.rows.contains_key(&segment) {
            found(Finding::ChecksumsStray { segment });
        }
    }
}

/// Checksums of a segment up to the first part that is not there.
fn sums_of(meta: &Meta, segment: SegmentId) -> Vec<[u8; Checksums::SIZE]> {
    let parts = (0..).map_while(|part| meta.sums.get(&(segment, part)));
    parts.flatten().copied().collect()
}

fn finding(segment: SegmentId, fault: ColumnFault) -> Finding {
    match fault {
        ColumnFault::Missing { column } => Finding::ColumnMissing { segment, column },
        ColumnFault::Unreadable { column, device } => Finding::ColumnUnreadable { segment, column, device },
        ColumnFault::Chunk { column, device, row, wrong } => {
            let wrong = match wrong {
                Wrong::Hash => "hash",
                Wrong::Stale => "stale",
                Wrong::Misplaced => "misplaced",
                Wrong::Authentication => "authentication",
            };
            Finding::ChunkWrong { segment, column, device, row, wrong }
        }
        ColumnFault::Parity { row } => Finding::ParityWrong { segment, row },
        ColumnFault::Lost { row, wrong, spared } => Finding::RowLost { segment, row, wrong, spared },
        ColumnFault::Sums { stored, wanted } => Finding::ChecksumsFew { segment, stored, wanted },
    }
}

/// The word for a device that a pool does without; nothing for one in use.
pub(crate) fn out_of_use(leaf: &LeafConfig) -> Option<&'static str> {
    match leaf.state {
        LeafState::Online | LeafState::Leaving => None,
        LeafState::Offline => Some("offline"),
        LeafState::Faulted => Some("faulted"),
        LeafState::Gone => Some("gone"),
        LeafState::Spared => Some("spared"),
        LeafState::Parted => None,
    }
}

/// Tells of devices that were not given, or that the pool does without. `given` says which were
/// given. True if an import could do without them.
pub(crate) fn check_devices(
    config: &LabelConfig,
    given: &dyn Fn(&LeafConfig) -> bool,
    found: &mut Found<'_>,
) -> bool {
    let mut enough = true;
    // Leaves that were split off belong to another pool.
    let parted = |leaf: &&LeafConfig| leaf.state == LeafState::Parted && !given(leaf);
    for leaf in config.leaves.iter().filter(|leaf| !parted(leaf)) {
        let spared = can_spare(config, leaf, given);
        let (path, device) = (leaf.path.clone(), leaf.id);
        match out_of_use(leaf) {
            Some(state) if spared => found(Finding::DeviceOut { path, device, state }),
            None if given(leaf) => {}
            _ if spared => found(Finding::DeviceSpared { path, device }),
            _ => {
                enough = false;
                found(Finding::DeviceMissing { path, device });
            }
        }
    }
    enough
}

/// True if the group of a device can do without all of its devices that are not there.
fn can_spare(config: &LabelConfig, leaf: &LeafConfig, given: &dyn Fn(&LeafConfig) -> bool) -> bool {
    let Some(group) = config.groups.iter().find(|group| group.id == leaf.group) else { return false };
    let most = match group.kind {
        GroupKind::Mirror => usize::from(group.width).saturating_sub(1),
        GroupKind::Raidz(parity) => usize::from(parity),
    };
    let of_group = config.leaves.iter().filter(|other| other.group == group.id);
    let missing = of_group
        .filter(|other| !matches!(other.state, LeafState::Leaving | LeafState::Spared))
        .filter(|other| other.state != LeafState::Parted || given(other))
        .filter(|other| !given(other) || out_of_use(other).is_some());
    missing.count() <= most
}
