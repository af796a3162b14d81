//! The reference table, held against what leads to each block.
//! `docs/decisions/0092-one-reference-table.md`.
//!
//! Pointers of heads and places in cells are counted for each address that has a row; units of such
//! a block are marked once. A pointer that only a snapshot has is known by its position in the
//! extents tree, since other pointers may lead to the same block.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use steadfast_format::{
    Address, BlockKind, BlockPointer, DatasetId, ReferenceRow, SharingClass, SharingRow, Txg,
};

use crate::finding::{At, Bookmark};
use crate::view::View;
use crate::{Finding, Found};

/// Rows, and what was found to lead to their blocks.
#[derive(Default)]
pub(crate) struct References {
    rows: BTreeMap<Address, ReferenceRow>,
    sums: SharingRow,
    counted: HashMap<Address, u64>,
    seen: HashSet<(DatasetId, u64, u64, Address, Txg)>,
}

impl References {
    /// Takes a row of the table.
    pub fn add(&mut self, address: Address, row: ReferenceRow) {
        self.rows.insert(address, row);
    }

    /// Takes the table's sums.
    pub fn set_sums(&mut self, sums: SharingRow) {
        self.sums = sums;
    }

    /// True if a block may have more than one reference.
    pub fn is_listed(&self, pointer: &BlockPointer) -> bool {
        pointer.kind == BlockKind::Data && self.rows.contains_key(&pointer.copies[0])
    }

    /// Counts a reference to a listed block. True if it is the first.
    pub fn count(&mut self, address: Address) -> bool {
        let counted = self.counted.entry(address).or_default();
        *counted += 1;
        *counted == 1
    }

    /// True if a place has a row, and the reference was counted and is not the first.
    pub fn is_further(&mut self, address: Address) -> bool {
        self.rows.contains_key(&address) && !self.count(address)
    }

    /// Notes that an extent refers to a listed block. True if no younger tree of the dataset has it
    /// there.
    pub fn see(&mut self, bookmark: &Bookmark, pointer: &BlockPointer) -> bool {
        let At::File { inode, offset } = bookmark.at else { return true };
        self.seen.insert((bookmark.dataset, inode.0, offset, pointer.copies[0], pointer.birth))
    }
}

/// Compares rows and sums with what was counted. `partly` are owners of which not everything was
/// reached.
pub(crate) fn check(view: &View, partly: &BTreeSet<DatasetId>, found: &mut Found<'_>) {
    let table = &view.table;
    let unit = u64::from(table.geometry.unit);
    let mut sums = SharingRow::default();
    let mut classes: BTreeMap<u8, SharingClass> = BTreeMap::new();
    for (&address, row) in &table.references.rows {
        let dsize = u64::from(row.psize).next_multiple_of(unit);
        let references = row.more.saturating_add(1);
        match row.content {
            None => {
                sums.shared += 1;
                sums.shared_bytes += dsize;
                sums.saved_bytes = sums.saved_bytes.saturating_add(dsize.saturating_mul(row.more));
            }
            Some(_) => {
                let log2 = u8::try_from(references.ilog2()).expect("below 64");
                let class = classes.entry(log2).or_insert(SharingClass { log2, ..SharingClass::default() });
                let (lsize, psize) = (u64::from(row.lsize), u64::from(row.psize));
                class.blocks += 1;
                class.lsize += lsize;
                class.psize += psize;
                class.dsize += dsize;
                let grow = |sum: &mut u64, by: u64| *sum = sum.saturating_add(by.saturating_mul(references));
                grow(&mut class.ref_blocks, 1);
                grow(&mut class.ref_lsize, lsize);
                grow(&mut class.ref_psize, psize);
                grow(&mut class.ref_dsize, dsize);
            }
        }
        if partly.contains(&row.owner) {
            continue;
        }
        let counted = table.references.counted.get(&address).copied().unwrap_or(0);
        if counted != references {
            found(Finding::References { address, stored: references, found: counted });
        }
    }
    sums.classes = classes.into_values().collect();
    if sums != table.references.sums {
        found(Finding::ReferenceSums);
    }
}
