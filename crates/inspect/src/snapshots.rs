//! Snapshots and cells, held against each other and against the heads.
//! `docs/decisions/0090-snapshots.md`.
//!
//! Heads are walked before this: what they reach is marked and seen. Then every place of every cell
//! is marked, each once and none that a head reached. Then the snapshots of each dataset are walked
//! from the youngest to the oldest, skipping what was seen before: what such a walk sees for the
//! first time is what its snapshot refers to and nothing younger does, and that is, to the byte,
//! what the cells say was let go between it and the next one. So nothing a snapshot needs is free,
//! and nothing is kept for nobody.

use std::collections::BTreeMap;

use steadfast_format::{BlockKind, BlockPointer, CellId, CellPlace, DatasetId, DatasetRow, SnapshotRow, Txg};

use crate::check::Summary;
use crate::clones::Shared;
use crate::finding::{At, Bookmark};
use crate::meta::Meta;
use crate::view::View;
use crate::walk::{Item, Visit, Walk};
use crate::{Finding, Found};

/// Marks what is in cells and compares their sums. After the heads.
pub(crate) fn check_cells(view: &mut View, meta: &Meta, found: &mut Found<'_>) {
    let unit = u64::from(view.table.geometry.unit);
    let mut runs: BTreeMap<(DatasetId, CellId), [u64; 3]> = BTreeMap::new();
    // Blocks that a hidden dataset freed of the snapshot it began as belong to that snapshot.
    let own = |id: &DatasetId| !meta.receives.contains_key(id);
    for (id, cell, places) in meta.runs.iter().filter(|(id, ..)| own(id)) {
        let sum = runs.entry((*id, *cell)).or_default();
        for place in places {
            sum[0] += 1;
            sum[1] += u64::from(place.psize).next_multiple_of(unit);
            sum[2] += u64::from(place.logical);
            // A shadow names what is its origin's, which marks it.
            if cell.born >= meta.base(*id) {
                mark(view, *id, *cell, place, found);
            }
        }
    }
    let mut kept: BTreeMap<DatasetId, [u64; 2]> = BTreeMap::new();
    for (&(id, cell), stored) in meta.cells.iter().filter(|((id, _), _)| own(id)) {
        let counted = runs.remove(&(id, cell)).unwrap_or_default();
        for (field, stored, counted) in [
            ("places of a cell", stored.places, counted[0]),
            ("bytes of a cell", stored.bytes, counted[1]),
            ("content of a cell", stored.logical, counted[2]),
        ] {
            if stored != counted {
                found(Finding::Count { dataset: id, field, stored, found: counted });
            }
        }
        let base = meta.base(id);
        let held = meta.snapshots.range((id, cell.born.next())..=(id, cell.left)).next().is_some();
        let is_shadow = cell.born < base;
        if is_shadow && cell.left < base {
            found(Finding::CellStray { dataset: id, left: cell.left, born: cell.born });
        }
        let dead = meta.dead.iter().any(|(of, after, before)| {
            *of == id && cell.born >= *after && cell.left > *after && cell.left < *before
        });
        if held && !is_shadow {
            let sum = kept.entry(id).or_default();
            // Either may be any number in a pool that somebody made.
            sum[0] = sum[0].saturating_add(stored.bytes);
            sum[1] = sum[1].saturating_add(stored.logical);
        }
        // Held and dead is as wrong as neither.
        if (held || is_shadow) == dead {
            found(Finding::CellStray { dataset: id, left: cell.left, born: cell.born });
        }
    }
    for &(dataset, after, before) in &meta.dead {
        if after < before
            && let Some((&(_, snapshot), _)) =
                meta.snapshots.range((dataset, after.next())..(dataset, before)).next()
        {
            found(Finding::DeadRange { dataset, after, before, snapshot });
        }
    }
    for ((dataset, cell), counted) in runs {
        let (left, born) = (cell.left, cell.born);
        found(Finding::CellStray { dataset, left, born });
        found(Finding::Count { dataset, field: "places of a cell", stored: 0, found: counted[0] });
    }
    for row in meta.datasets.iter().filter(|row| own(&row.id)) {
        let counted = kept.get(&row.id).copied().unwrap_or_default();
        for (field, stored, counted) in
            [("kept", row.lineage.kept, counted[0]), ("kept_logical", row.lineage.kept_logical, counted[1])]
        {
            if stored != counted {
                found(Finding::Count { dataset: row.id, field, stored, found: counted });
            }
        }
    }
}

fn mark(view: &mut View, dataset: DatasetId, cell: CellId, place: &CellPlace, found: &mut Found<'_>) {
    let at = At::Cell { left: cell.left, born: cell.born };
    let kind = if place.logical > 0 { BlockKind::Data } else { BlockKind::Extents };
    let bookmark = || Bookmark { dataset, kind, level: 0, at: at.clone() };
    let address = place.address;
    let Some(pieces) = view.table.resolve(address, place.psize) else {
        return found(Finding::PointerUnallocated { bookmark: bookmark(), address });
    };
    if place.logical > 0 && view.table.references.is_further(address) {
        return;
    }
    let (mut dead, mut twice) = (0, 0);
    for piece in pieces {
        let marked = view.table.mark(piece);
        dead += marked.dead;
        twice += marked.twice;
    }
    if dead > 0 {
        found(Finding::PointerDead { bookmark: bookmark(), address, units: dead });
    }
    if twice > 0 {
        found(Finding::Overlap { bookmark: bookmark(), address, units: twice });
    }
}

/// Walks the snapshots of a dataset, youngest first. After [`check_cells`].
pub(crate) fn check_snapshots(
    view: &mut View,
    meta: &Meta,
    row: &DatasetRow,
    shared: &mut Shared,
    summary: &mut Summary,
    found: &mut Found<'_>,
) {
    let of_dataset = (row.id, Txg(0))..=(row.id, Txg(u64::MAX));
    let mut younger = Txg(u64::MAX);
    for (&(_, txg), snapshot) in meta.snapshots.range(of_dataset).rev() {
        summary.snapshots += 1;
        let base = meta.base(row.id);
        let mut seen = Seen { shared: &mut *shared, base, bytes: 0, blocks: 0, whole: true };
        seen.walk(view, snapshot, found);
        summary.blocks += seen.blocks;
        summary.bytes += seen.bytes;
        let cells = meta.cells.range(
            (row.id, CellId { left: txg, born: Txg(0) })..(row.id, CellId { left: younger, born: Txg(0) }),
        );
        let stored: u64 = cells
            .filter(|((_, cell), _)| cell.born >= base && cell.born < txg)
            .fold(0, |stored, (_, sum)| stored.saturating_add(sum.bytes));
        if seen.whole && stored != seen.bytes {
            let field = "what was let go since a snapshot";
            found(Finding::Count { dataset: row.id, field, stored, found: seen.bytes });
        }
        younger = txg;
    }
}

/// Blocks that a snapshot reaches and nothing younger does.
struct Seen<'s> {
    /// Blocks of its origin.
    shared: &'s mut Shared,
    base: Txg,
    bytes: u64,
    blocks: u64,
    whole: bool,
}

impl Seen<'_> {
    fn walk(&mut self, view: &mut View, snapshot: &SnapshotRow, found: &mut Found<'_>) {
        for (kind, root) in [(BlockKind::Names, snapshot.names), (BlockKind::Extents, snapshot.extents)] {
            let Some(root) = root else { continue };
            let walk = Walk { dataset: self.shared.dataset, kind, keys: self.shared.keys.clone(), root };
            self.whole &= walk.run(view, self, found);
        }
    }

    /// True if the block was not seen before.
    fn see(
        &mut self,
        view: &mut View,
        pointer: &BlockPointer,
        bookmark: &Bookmark,
        found: &mut Found<'_>,
    ) -> bool {
        if pointer.birth <= self.base {
            return self.shared.look(view, pointer, bookmark, found);
        }
        let mut fresh = false;
        for &address in &pointer.copies[..pointer.copy_count()] {
            let Some(pieces) = view.table.resolve(address, pointer.psize) else {
                found(Finding::PointerUnallocated { bookmark: bookmark.clone(), address });
                continue;
            };
            let mut lost = 0;
            for piece in pieces {
                let sight = view.table.see(piece);
                fresh |= sight.fresh > 0;
                lost += sight.unmarked;
            }
            if view.table.references.is_listed(pointer) {
                fresh = view.table.references.see(bookmark, pointer);
            }
            if lost > 0 {
                found(Finding::SnapshotLost { bookmark: bookmark.clone(), address, units: lost });
            }
        }
        if fresh {
            self.blocks += 1;
            self.bytes += u64::from(pointer.asize(view.table.geometry.unit)) * pointer.copy_count() as u64;
        }
        fresh
    }
}

impl Visit for Seen<'_> {
    fn node(
        &mut self,
        view: &mut View,
        pointer: &BlockPointer,
        bookmark: &Bookmark,
        found: &mut Found<'_>,
    ) -> bool {
        self.see(view, pointer, bookmark, found)
    }

    fn item(&mut self, view: &mut View, item: Item<'_>, found: &mut Found<'_>) {
        let Some(content) = item.content(self.shared.dataset, found) else {
            self.whole = false;
            return;
        };
        for (pointer, bookmark) in content {
            // Blocks of its origin are read there.
            if self.see(view, &pointer, &bookmark, found) && pointer.birth > self.base {
                view.read(&pointer, &bookmark, self.shared.keys.as_deref(), found);
            }
        }
    }
}
