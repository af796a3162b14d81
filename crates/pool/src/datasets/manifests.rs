//! The manifests of datasets: read, and joined over lines of clones.

use crate::core::error::Result;
use crate::datasets::batch::Batch;
use crate::datasets::batch::Place;
use crate::datasets::state::Datasets;
use crate::datasets::table::Table;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashMap;
use steadfast_format::Address;
use steadfast_format::BlockPointer;
use steadfast_format::CellPlace;
use steadfast_format::DatasetId;
use steadfast_format::ManifestRun;
use steadfast_format::ManifestWriter;
use steadfast_format::MetaKey;
use steadfast_format::Txg;
use steadfast_format::meta_keys;
use steadfast_refs::deadlist::Txgs;
use steadfast_refs::manifest::bad;
use steadfast_refs::manifest::references_of;
use steadfast_refs::manifest::runs_of;

/// Request for a manifest: the blocks of a snapshot, or those beyond a base.
pub(crate) struct Listed {
    id: DatasetId,
    writers: Vec<ManifestWriter>,
    target: Txg,
    /// Beyond this one: a snapshot of the same line.
    base: Option<Txg>,
    /// All of it, told apart by whether it is younger than this.
    mark: Option<Txg>,
}

impl std::fmt::Display for Listed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "dataset {} at {} since {}", self.id, self.target, self.base.unwrap_or(Txg(0)))
    }
}

impl Listed {
    pub fn id(&self) -> DatasetId {
        self.id
    }

    pub fn base(&self) -> Option<Txg> {
        self.base
    }

    pub fn mark(&self) -> Option<Txg> {
        self.mark
    }
}

impl Datasets {
    /// Gives a dataset that begins the writers that it is to have: itself, if it is sealed.
    pub(crate) fn first_writers(&self, id: DatasetId, is_sealed: bool) -> Vec<ManifestWriter> {
        match is_sealed && self.core.has_feature(steadfast_refs::manifest::FEATURE) {
            true => {
                self.core.manifests.expect();
                vec![ManifestWriter { after: Txg(0), dataset: id }]
            }
            false => Vec::new(),
        }
    }

    /// The writers of what begins as a snapshot of a dataset, and goes on by itself.
    pub(crate) fn writers_of_clone(
        &self,
        table: &Table,
        (of, txg): (DatasetId, Txg),
        id: DatasetId,
    ) -> Vec<ManifestWriter> {
        let above = table.get(of).map_or(&[][..], |entry| &entry.writers);
        let mut writers: Vec<_> = above.iter().filter(|writer| writer.after < txg).copied().collect();
        if writers.is_empty() || writers.len() == ManifestWriter::MAX {
            return Vec::new();
        }
        writers.push(ManifestWriter { after: txg, dataset: id });
        writers
    }

    /// Writers of datasets, as stored.
    pub(crate) fn load_writers(&self, pool: &str) -> Result<()> {
        for item in self.core.items_of(meta_keys::MANIFEST_WRITERS) {
            let (MetaKey::ManifestWriters(id), value) = item? else { continue };
            let writers = ManifestWriter::decode_all(&value)
                .map_err(|error| self.core.corrupt(pool, "writers of a dataset", error))?;
            if let Some(entry) = self.table.write().get_mut(id) {
                entry.writers = writers;
                self.core.manifests.expect();
            }
        }
        Ok(())
    }

    /// Manifest of a snapshot, if its dataset has one. With `mark` all blocks are listed, told
    /// apart by whether they are younger than it.
    pub(crate) fn manifest_of(
        &self,
        id: DatasetId,
        target: Txg,
        (base, mark): (Option<Txg>, Option<Txg>),
    ) -> Option<Listed> {
        let writers = self.table.read().get(id)?.writers.clone();
        (!writers.is_empty()).then_some(Listed { id, writers, target, base, mark })
    }

    /// Datasets of a line, and the txgs in which each let go what was let go in some txgs.
    fn lines(&self, id: DatasetId, left: &Txgs) -> Vec<(DatasetId, Txgs)> {
        let table = self.table.read();
        let (mut lines, mut at, mut end) = (Vec::new(), id, left.end);
        loop {
            let origin = table.origin_of(at);
            let base = origin.map_or(Txg(0), |(_, base)| base);
            let start = left.start.max(base);
            if start < end {
                lines.push((at, start..end));
            }
            end = end.min(base);
            match origin {
                Some((of, _)) if left.start < end => at = of,
                _ => return lines,
            }
        }
    }

    /// Visits what a line let go in some txgs, of what was born in some.
    fn visit_let_go(
        &self,
        (id, left): (DatasetId, &Txgs),
        born: &Txgs,
        visit: &mut dyn FnMut(&CellPlace) -> Result<()>,
    ) -> Result<()> {
        for (of, left) in self.lines(id, left) {
            let mut cells = Vec::new();
            self.visit_cells(of, left, born.clone(), |cell, _| {
                cells.push(cell);
                true
            })?;
            for cell in cells {
                let key = |number| MetaKey::CellRun(of, cell, number).encode();
                for item in self.core.meta.range(key(0)..key(u64::MAX)) {
                    CellPlace::decode_run(&item?.1).map_err(bad)?.iter().try_for_each(&mut *visit)?;
                }
            }
        }
        Ok(())
    }

    /// The blocks behind a place, as many as are taken at once: those of the target, and with a
    /// base those that only the base has.
    pub(crate) fn listed_batch(&self, listed: &Listed, after: Option<Place>) -> Result<Batch> {
        // A commit frees what a cell let go: in the midst of one a block could be found in a cell
        // and its other reference be gone. A promotion gives cells to others.
        let all = Txg(0)..listed.target;
        let lines = self.lines(listed.id, &all);
        let at_rest = self.freeing.between_commits(|| self.listed_batch_once(listed, after));
        if let Some(batch) = at_rest
            && self.lines(listed.id, &all) == lines
        {
            return batch;
        }
        let _turn = self.core.sync_turn.lock();
        self.listed_batch_once(listed, after)
    }

    fn listed_batch_once(&self, listed: &Listed, after: Option<Place>) -> Result<Batch> {
        let mut batch = self.born(listed, after)?;
        let all = Txg(0)..Txg(u64::MAX);
        let left = listed.base.unwrap_or(Txg(0))..listed.target;
        let mut places: HashMap<Address, Place> =
            batch.blocks.iter().map(|(place, (pointer, _))| (pointer.copies[0], *place)).collect();
        self.visit_let_go((listed.id, &left), &all, &mut |let_go| {
            if places.contains_key(&let_go.address) && !self.core.references.is_shared(let_go.address) {
                let place = places.remove(&let_go.address).expect("looked up just now");
                batch.blocks.remove(&place);
            }
            Ok(())
        })?;
        // Blocks that died since were let go before, by a cell that is freed.
        batch.blocks.retain(|_, (pointer, _)| self.core.space.is_live(pointer.copies[0]));
        if let Some(base) = listed.base {
            let mut shared: BTreeMap<Address, (BlockPointer, u64)> = BTreeMap::new();
            self.visit_let_go((listed.id, &left), &(Txg(0)..base), &mut |let_go| {
                // Second copies are listed with the first.
                let Some(pointer) = self.core.manifests.entry_at(let_go.address)? else { return Ok(()) };
                match self.core.references.is_shared(let_go.address) {
                    false => batch.add(after, &pointer, false),
                    true => shared.entry(let_go.address).or_insert((pointer, 0)).1 += 1,
                }
                Ok(())
            })?;
            for (address, (pointer, let_go)) in shared {
                if self.core.references.count(address) == let_go {
                    batch.add(after, &pointer, false);
                }
            }
        }
        Ok(batch)
    }

    /// Blocks that the manifest lists as born after the base, up to the target.
    fn born(&self, listed: &Listed, after: Option<Place>) -> Result<Batch> {
        let (first, last) = (listed.base.unwrap_or(Txg(0)).next(), listed.target.next());
        let ends = listed.writers.iter().skip(1).map(|writer| writer.after.next()).chain([last]);
        let ranges: Vec<(DatasetId, Txgs)> = listed
            .writers
            .iter()
            .zip(ends)
            .map(|(writer, end)| (writer.dataset, writer.after.next().max(first)..end.min(last)))
            .filter(|(_, born)| !born.is_empty())
            .collect();
        let is_wanted = |dataset: DatasetId, txg: Txg| {
            ranges.iter().any(|(writer, born)| *writer == dataset && born.contains(&txg))
        };
        let mut segments = BTreeSet::new();
        for (writer, born) in &ranges {
            self.core.manifests.segments_of(*writer, born, &mut segments)?;
        }
        let mut batch = Batch::default();
        let is_old = |txg: Txg| listed.mark.is_some_and(|mark| txg <= mark);
        for segment in segments {
            let mut pointers: HashMap<u32, BlockPointer> = HashMap::new();
            let mut referred: Vec<(u32, Txg)> = Vec::new();
            for item in self.core.meta.range(references_of(segment)) {
                if let Some(MetaKey::ManifestReference(at, txg, dataset)) = MetaKey::decode(&item?.0)
                    && is_wanted(dataset, txg)
                {
                    referred.push((at.offset, txg));
                }
            }
            for item in self.core.meta.range(runs_of(segment)) {
                let run = ManifestRun::decode(&item?.1).map_err(bad)?;
                let wanted = is_wanted(run.dataset, run.birth);
                for entry in &run.entries {
                    let pointer = run.pointer(segment, entry);
                    if !referred.is_empty() {
                        pointers.insert(entry.offset, pointer);
                    }
                    if wanted && self.core.space.is_live(pointer.copies[0]) {
                        batch.add_told(after, &pointer, is_old(run.birth));
                    }
                }
            }
            for (offset, txg) in referred {
                if let Some(pointer) = pointers.get(&offset)
                    && self.core.space.is_live(pointer.copies[0])
                {
                    batch.add_told(after, pointer, is_old(txg));
                }
            }
        }
        Ok(batch)
    }
}
