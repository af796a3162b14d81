//! Between the room `segment` and the items of the meta tree.

use steadfast_format::{
    Checksums, CommitTail, DatasetId, MetaKey, RelocationRow, SegmentRow, Txg, meta_keys,
};
use steadfast_segment::{SpaceChanges, SpaceTail};

/// Tables of the meta tree that an import reads.
pub(crate) const TABLES: [u8; 17] = [
    meta_keys::POOL_PROPERTY,
    meta_keys::DATASET,
    meta_keys::DATASET_PROPERTY,
    meta_keys::SEGMENT,
    meta_keys::RELOCATION,
    meta_keys::HELD_LOG,
    meta_keys::SCAN,
    meta_keys::SNAPSHOT,
    meta_keys::CELL,
    meta_keys::CELL_RUN,
    meta_keys::DEAD_RANGE,
    meta_keys::HOLD,
    meta_keys::BOOKMARK,
    meta_keys::RECEIVE,
    meta_keys::RECEIVED_PROPERTY,
    meta_keys::SHARING,
    meta_keys::MANIFEST_WRITERS,
];

/// Changes of the meta tree: key and new value, `None` where the item goes.
pub(crate) fn items(changes: &SpaceChanges) -> impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)> + '_ {
    let rows = changes
        .rows
        .iter()
        .map(|(id, row)| (MetaKey::Segment(*id).encode(), row.as_ref().map(SegmentRow::encode)));
    let runs = changes.runs.iter().map(|((id, unit), run)| {
        let value = run.as_ref().map(RelocationRow::encode).map(Vec::from);
        (MetaKey::Relocation(*id, *unit).encode(), value)
    });
    let sums = changes.sums.iter().map(|((id, part), sums)| {
        (MetaKey::Checksums(*id, *part).encode(), sums.as_ref().map(Checksums::encode))
    });
    rows.chain(runs).chain(sums)
}

/// Counters that a tail carries besides space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextIds {
    pub dataset: DatasetId,
    pub history: u64,
}

/// The stored form of a tail.
pub(crate) fn tail_of(tail: SpaceTail, txg: Txg, next: NextIds) -> CommitTail {
    CommitTail {
        txg,
        next_segment: tail.next_segment,
        next_dataset: next.dataset,
        next_history: next.history,
        rows: tail.changes.rows,
        runs: tail.changes.runs,
    }
}
