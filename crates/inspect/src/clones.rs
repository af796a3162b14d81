//! Clones: whose blocks are whose. `docs/decisions/0090-snapshots.md`, `0091-clones.md`.
//!
//! Blocks of a clone that were born by its origin belong to the origin. Walks of the clone stop
//! there and keep where they stopped, its *border*. When all heads and cells are marked, what lies
//! behind the borders is walked: each block of it must be kept by a relative, and the sum must be
//! what the row says the clone shares, and what its origin has without the clone's shadows.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use steadfast_crypto::BlockKeys;
use steadfast_format::{Address, BlockKind, BlockPointer, CellId, DatasetId, DatasetRow, Txg};

use crate::finding::{At, Bookmark};
use crate::meta::Meta;
use crate::view::View;
use crate::walk::{Item, Visit, Walk};
use crate::{Finding, Found};

/// Where the walk of a clone stopped: a node, or a block of content.
pub(crate) type Border = Vec<(BlockPointer, Bookmark)>;

impl Meta {
    /// Finds the origins of clones, and drops rows whose origin is none of theirs.
    pub(crate) fn find_origins(&mut self, found: &mut Found<'_>) {
        let numbers: BTreeMap<DatasetId, (DatasetId, Txg)> =
            self.snapshots.iter().map(|(&(id, txg), row)| (row.number, (id, txg))).collect();
        let rows: BTreeMap<DatasetId, DatasetRow> =
            self.datasets.iter().map(|row| (row.id, row.clone())).collect();
        let (snapshots, origins) = (&self.snapshots, &mut self.origins);
        self.datasets.retain(|row| {
            if row.lineage.origin.0 == 0 {
                return true;
            }
            let origin = numbers.get(&row.lineage.origin);
            let reason = match origin.and_then(|(of, txg)| Some((rows.get(of)?, *txg))) {
                None => Some("its origin does not exist"),
                Some((of, txg)) => {
                    let oldest = snapshots.range((row.id, Txg(0))..=(row.id, Txg(u64::MAX))).next();
                    unrelated(row, of, txg, oldest.map(|((_, txg), _)| *txg))
                }
            };
            if let Some(reason) = reason {
                found(Finding::Dataset { dataset: row.id, reason });
                return false;
            }
            origins.extend(origin.map(|origin| (row.id, *origin)));
            true
        });
    }

    /// Txg of the snapshot that a dataset is a clone of, or 0.
    pub(crate) fn base(&self, id: DatasetId) -> Txg {
        self.origins.get(&id).map_or(Txg(0), |(_, txg)| *txg)
    }
}

/// Why a dataset cannot be a clone of that snapshot of `of`.
fn unrelated(row: &DatasetRow, of: &DatasetRow, txg: Txg, oldest: Option<Txg>) -> Option<&'static str> {
    let owner = |row: &DatasetRow| row.encryption.as_ref().map(|encryption| encryption.owner);
    let tests = [
        (of.id == row.id, "its origin is a snapshot of its own"),
        (oldest.is_some_and(|oldest| oldest <= txg), "it has a snapshot older than its origin"),
        (of.family() != row.family(), "its blocks are sealed under another number than its origin's"),
        (of.hash_seed != row.hash_seed, "it orders directories by another seed than its origin"),
        (owner(of) != owner(row), "its blocks lie in segments of another owner than its origin's"),
        (row.destroying, "it is being destroyed, and has an origin"),
        (row.lineage.shared > row.used, "it shares more than it has"),
    ];
    tests.into_iter().find_map(|(wrong, reason)| wrong.then_some(reason))
}

/// Blocks behind the border of a clone's head, and of its snapshots. After the heads and cells of
/// all.
pub(crate) struct Shared {
    pub dataset: DatasetId,
    pub keys: Option<Arc<BlockKeys>>,
    /// Everything that could keep it was reached, so that what nobody keeps is lost.
    pub certain: bool,
    /// Addresses already seen.
    visited: HashSet<Address>,
    /// The same of blocks that more than one pointer leads to: by inode, offset and birth too.
    referred: HashSet<(u64, u64, Address, Txg)>,
    bytes: u64,
    data: u64,
    whole: bool,
}

impl Shared {
    pub fn new(dataset: DatasetId, keys: Option<Arc<BlockKeys>>, certain: bool) -> Shared {
        Shared {
            dataset,
            keys,
            certain,
            visited: HashSet::new(),
            referred: HashSet::new(),
            bytes: 0,
            data: 0,
            whole: true,
        }
    }

    /// Looks at what lies behind a border.
    pub fn behind(&mut self, view: &mut View, border: &Border, found: &mut Found<'_>) {
        for (pointer, bookmark) in border {
            if pointer.kind == BlockKind::Data {
                self.look(view, pointer, bookmark, found);
                continue;
            }
            let (kind, keys) = (pointer.kind, self.keys.clone());
            let walk = Walk { dataset: self.dataset, kind, keys, root: *pointer };
            self.whole &= walk.run(view, self, found);
        }
    }

    /// Compares with what the clone's row says: what its walk reached of its own, and what it
    /// shares. After its head's border and before those of its snapshots.
    pub fn compare(&self, meta: &Meta, row: &DatasetRow, own: (u64, u64), found: &mut Found<'_>) {
        let lineage = &row.lineage;
        if self.whole {
            for (field, stored, counted) in [
                ("shared", lineage.shared, self.bytes),
                ("used", row.used, own.0 + self.bytes),
                ("data", row.data, own.1 + self.data),
            ] {
                if stored != counted {
                    found(Finding::Count { dataset: row.id, field, stored, found: counted });
                }
            }
        }
        let Some(origin) = meta.origins.get(&row.id).and_then(|origin| meta.snapshots.get(origin)) else {
            return;
        };
        let shadows = shadows_of(meta, row.id);
        let rest = |whole: u64, less: u64| whole.saturating_sub(less);
        for (field, stored, counted) in [
            ("shared", lineage.shared, rest(origin.used, shadows.0)),
            ("shared_logical", lineage.shared_logical, rest(origin.logical, shadows.1)),
        ] {
            if stored != counted {
                found(Finding::Count { dataset: row.id, field, stored, found: counted });
            }
        }
    }

    /// True if the block was not looked at before.
    pub fn look(
        &mut self,
        view: &mut View,
        pointer: &BlockPointer,
        bookmark: &Bookmark,
        found: &mut Found<'_>,
    ) -> bool {
        let address = pointer.copies[0];
        let is_new = match bookmark.at {
            At::File { inode, offset } if view.table.references.is_listed(pointer) => {
                self.referred.insert((inode.0, offset, address, pointer.birth))
            }
            _ => self.visited.insert(address),
        };
        if !is_new {
            return false;
        }
        for &address in &pointer.copies[..pointer.copy_count()] {
            let Some(pieces) = view.table.resolve(address, pointer.psize) else {
                found(Finding::PointerUnallocated { bookmark: bookmark.clone(), address });
                continue;
            };
            let units: u32 = pieces.into_iter().map(|piece| view.table.unkept(piece)).sum();
            if units > 0 && self.certain {
                found(Finding::CloneLost { bookmark: bookmark.clone(), address, units });
            }
        }
        let bytes = u64::from(pointer.asize(view.table.geometry.unit)) * pointer.copy_count() as u64;
        self.bytes += bytes;
        self.data += if pointer.kind == BlockKind::Data { bytes } else { 0 };
        true
    }
}

impl Visit for Shared {
    fn node(
        &mut self,
        view: &mut View,
        pointer: &BlockPointer,
        bookmark: &Bookmark,
        found: &mut Found<'_>,
    ) -> bool {
        self.look(view, pointer, bookmark, found)
    }

    fn item(&mut self, view: &mut View, item: Item<'_>, found: &mut Found<'_>) {
        let Some(content) = item.content(self.dataset, found) else {
            self.whole = false;
            return;
        };
        for (pointer, bookmark) in content {
            self.look(view, &pointer, &bookmark, found);
        }
    }
}

/// Bytes, and content before compression, that a clone let go of its origin.
fn shadows_of(meta: &Meta, id: DatasetId) -> (u64, u64) {
    let base = meta.base(id);
    let first = CellId { left: Txg(0), born: Txg(0) };
    let last = CellId { left: Txg(u64::MAX), born: Txg(u64::MAX) };
    let cells = meta.cells.range((id, first)..=(id, last)).filter(|((_, cell), _)| cell.born < base);
    // Sums of a spoiled pool may be beyond what can be added up: the total is wrong then, and told.
    cells.fold((0, 0), |(bytes, logical): (u64, u64), (_, sum)| {
        (bytes.saturating_add(sum.bytes), logical.saturating_add(sum.logical))
    })
}

/// Blocks named by a clone's shadows must be kept by a relative. After the heads and cells of all.
pub(crate) fn check_shadows(view: &View, meta: &Meta, unsure: &BTreeSet<DatasetId>, found: &mut Found<'_>) {
    for (id, cell, places) in &meta.runs {
        if cell.born >= meta.base(*id) || unsure.contains(id) {
            continue;
        }
        for place in places {
            let at = At::Cell { left: cell.left, born: cell.born };
            let kind = if place.logical > 0 { BlockKind::Data } else { BlockKind::Extents };
            let bookmark = Bookmark { dataset: *id, kind, level: 0, at };
            let address = place.address;
            match view.table.resolve(address, place.psize) {
                None => found(Finding::PointerUnallocated { bookmark, address }),
                Some(pieces) => {
                    let units: u32 = pieces.into_iter().map(|piece| view.table.unkept(piece)).sum();
                    if units > 0 {
                        found(Finding::CloneLost { bookmark, address, units });
                    }
                }
            }
        }
    }
}
