//! Manifests (FORMAT.md, "Manifest run"): each block that a listed dataset leads to is listed as
//! its pointer says, and nothing is listed of segments that are gone.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::{Address, BlockPointer, DatasetId, ManifestRun, ManifestWriter, SegmentId, Txg};

use crate::finding::Bookmark;
use crate::view::View;
use crate::{Finding, Found};

/// Manifests listed in the meta tree.
#[derive(Default)]
pub(crate) struct Manifests {
    /// By address: writer, birth and hash.
    blocks: BTreeMap<Address, (DatasetId, Txg, [u8; 32])>,
    births: BTreeSet<(DatasetId, Txg, SegmentId)>,
    references: BTreeSet<(Address, Txg, DatasetId)>,
    writers: BTreeMap<DatasetId, Vec<ManifestWriter>>,
}

impl Manifests {
    pub fn add(&mut self, segment: SegmentId, run: &ManifestRun) {
        for entry in &run.entries {
            let address = Address { segment, offset: entry.offset };
            self.blocks.insert(address, (run.dataset, run.birth, entry.hash));
        }
    }

    pub fn add_birth(&mut self, dataset: DatasetId, txg: Txg, segment: SegmentId) {
        self.births.insert((dataset, txg, segment));
    }

    pub fn add_reference(&mut self, at: Address, txg: Txg, dataset: DatasetId) {
        self.references.insert((at, txg, dataset));
    }

    pub fn add_writers(&mut self, id: DatasetId, writers: Vec<ManifestWriter>) {
        self.writers.insert(id, writers);
    }

    /// Why a block of a dataset would not be found without its key.
    pub fn lacks(&self, pointer: &BlockPointer, bookmark: &Bookmark) -> Option<&'static str> {
        let writers = self.writers.get(&bookmark.dataset)?;
        let by = writers.iter().rev().find(|writer| writer.after < pointer.birth)?.dataset;
        let at = pointer.copies[0];
        let Some((dataset, birth, hash)) = self.blocks.get(&at) else { return Some("it is not listed") };
        if *hash != pointer.hash {
            return Some("it is listed with another hash");
        }
        let is_first = pointer.written.0 == 0;
        if is_first && (*dataset, *birth) != (by, pointer.birth) {
            return Some("it is listed as another dataset's, or of another txg");
        }
        if !is_first && !self.references.contains(&(at, pointer.birth, by)) {
            return Some("the reference to it is not listed");
        }
        (!self.births.contains(&(by, pointer.birth, at.segment)))
            .then_some("its segment is not listed under its txg")
    }
}

/// Reports manifests of datasets that are gone.
pub(crate) fn check(view: &View, found: &mut Found<'_>) {
    let table = &view.table;
    let lists = &table.manifests;
    let in_use = |segment: &SegmentId| {
        table.rows.contains_key(segment)
            || table.runs.range((*segment, 0)..=(*segment, u32::MAX)).next().is_some()
    };
    let listed: BTreeSet<SegmentId> = lists.blocks.keys().map(|at| at.segment).collect();
    let referred = lists.references.iter().map(|(at, ..)| at.segment);
    let born = lists.births.iter().map(|(_, _, segment)| *segment);
    let all: BTreeSet<SegmentId> = listed.iter().copied().chain(referred).chain(born).collect();
    for segment in all {
        if !in_use(&segment) || !listed.contains(&segment) {
            found(Finding::ManifestStray { segment });
        }
    }
}
