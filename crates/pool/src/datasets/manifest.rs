//! # Which sealed blocks a snapshot has, for who has no key
//!
//! Nodes of an encrypted dataset are sealed, so only its key leads from a snapshot to its blocks. A *manifest* lists them in the clear as they are
//! written: it says of a block what every pointer to it says, and which dataset wrote it in which txg. `docs/decisions/0127-manifests.md`.
//!
//! ## The idea
//! A block is in the snapshot S of a dataset if it was born by S in the dataset's line and not let go before S. Both are known without a key: births by the
//! manifest, and what was let go by the cells of 0090, as far as it still lives; what does not live is in no snapshot. So
//!
//! ```text
//! S            = born by S, living            less what lies in cells (L, ·) with L < S
//! S beyond B   = born after B by S, living    less what lies in cells (L, ·) with B ≤ L < S
//! B beyond S   = what lies in cells (L, b) with B ≤ L < S and b < B
//! ```
//!
//! for a snapshot B of the same line. An increment costs what changed. Of a bookmark the third is not known, since what only B held is gone; there the first
//! is said, and a receiver drops what is not in it.
//!
//! *Blocks with several references.* A later reference is listed with the txg of its making, as a birth. A cell then takes a reference and not the block, so what
//! lies in cells counts only if nobody else refers to the block. So some blocks too many may be sent, and some that are gone not be told as
//! gone; never one too few. With the key the trees are walked, and know better (`raw_send.rs`).
//!
//! ## Invariants
//! (M1) Each living block that a dataset with writers wrote is listed once, under the address of its first copy.   `DatasetBlocks`; test: `manifests.rs`
//! (M2) An entry whose block is dead goes when its segment goes, or when the cleaner moved what lived there. So there are no more entries than blocks
//!      that the segments in use ever took.                                                                       `prune`
//! (M3) Writers of a dataset never change but for its end: they are its history, whatever is promoted.
//! (M4) What is said of S never lacks a block of it.                                          debug assertion: `raw_send.rs`
//!
//! ## Cost
//! 66 bytes a block in the meta tree, stored twice, appended side by side: 0.1 % of records of 128 KiB. Nothing of it is kept in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_format::{
    Address, BlockPointer, CellPlace, DatasetId, ManifestEntry, ManifestRun, ManifestWriter, MetaKey,
    SegmentId, Txg, meta_keys,
};
use steadfast_segment::Space;
use steadfast_tree::{Change, Tree};

use crate::core::error::{Error, Result};
use crate::core::inner::Inner;
use crate::datasets::deadlist::Txgs;
use crate::datasets::table::Table;
use crate::streams::raw_send::{Batch, Place};

/// Feature of pools with manifests.
pub(crate) const FEATURE: &str = "manifests";

/// The manifests of a pool.
pub(crate) struct Manifests {
    meta: Arc<Tree>,
    /// Txg being synced.
    syncing: Arc<AtomicU64>,
    /// Some dataset has one.
    any: AtomicBool,
    pending: Mutex<Pending>,
}

/// What the commit under way is to list.
#[derive(Default)]
struct Pending {
    written: Vec<(DatasetId, BlockPointer)>,
    referred: BTreeSet<(Address, Txg, DatasetId)>,
}

/// Lists what one dataset writes.
pub(crate) struct Lister {
    pub manifests: Arc<Manifests>,
    pub writer: DatasetId,
}

impl Lister {
    /// These blocks were written.
    pub fn written(&self, pointers: &[BlockPointer]) {
        let mut pending = self.manifests.pending.lock();
        pending.written.extend(pointers.iter().map(|pointer| (self.writer, *pointer)));
    }

    /// One more reference to a block is made, in this txg or in the one being synced.
    pub fn referred(&self, pointer: &BlockPointer, txg: Option<Txg>) {
        let txg = txg.unwrap_or_else(|| Txg(self.manifests.syncing.load(Ordering::Acquire)));
        self.manifests.pending.lock().referred.insert((pointer.copies[0], txg, self.writer));
    }
}

/// First key of what a segment lists, and that behind it.
fn runs_of(segment: SegmentId) -> Range<Vec<u8>> {
    let key = |segment| MetaKey::Manifest(Address { segment, offset: 0 }).encode();
    key(segment)..key(SegmentId(segment.0 + 1))
}

fn references_of(segment: SegmentId) -> Range<Vec<u8>> {
    let key =
        |segment| MetaKey::ManifestReference(Address { segment, offset: 0 }, Txg(0), DatasetId(0)).encode();
    key(segment)..key(SegmentId(segment.0 + 1))
}

/// Why an item of a manifest is none.
fn bad(error: impl ToString) -> Error {
    Error::BadDataset { dataset: DatasetId(0), reason: format!("a manifest: {}", error.to_string()) }
}

impl Manifests {
    pub fn new(meta: Arc<Tree>, syncing: Arc<AtomicU64>) -> Manifests {
        Manifests { meta, syncing, any: AtomicBool::new(false), pending: Mutex::default() }
    }

    /// A dataset has one.
    pub fn expect(&self) {
        self.any.store(true, Ordering::Relaxed);
    }

    /// Some dataset has one, so blocks that are written come to have entries.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Lists what was written since the last commit. Sync context. `forgets` one of it: a bug that is to be noticed.
    pub fn write(&self, space: &Space, forgets: bool) -> Result<()> {
        let Pending { mut written, referred } = std::mem::take(&mut *self.pending.lock());
        // What died since would not be pruned if its segment went with it.
        written.retain(|(_, pointer)| space.is_live(pointer.copies[0]));
        written.sort_by_key(|(_, pointer)| pointer.copies[0]);
        if forgets {
            written.pop();
        }
        let mut births = BTreeSet::new();
        let mut items: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let same = |a: &(DatasetId, BlockPointer), b: &(DatasetId, BlockPointer)| {
            (a.0, a.1.birth, a.1.stamp.salt, a.1.copies[0].segment)
                == (b.0, b.1.birth, b.1.stamp.salt, b.1.copies[0].segment)
        };
        for of_one in written.chunk_by(same) {
            let (dataset, first) = &of_one[0];
            births.insert((*dataset, first.birth, first.copies[0].segment));
            for some in of_one.chunks(ManifestRun::ENTRIES_MAX) {
                let run = ManifestRun {
                    dataset: *dataset,
                    birth: first.birth,
                    salt: first.stamp.salt,
                    entries: some.iter().map(|(_, pointer)| ManifestEntry::of(pointer)).collect(),
                };
                items.push((MetaKey::Manifest(some[0].1.copies[0]).encode(), run.encode()));
            }
        }
        for (address, txg, dataset) in referred {
            if space.is_live(address) {
                births.insert((dataset, txg, address.segment));
                items.push((MetaKey::ManifestReference(address, txg, dataset).encode(), Vec::new()));
            }
        }
        let birth =
            |(dataset, txg, segment)| (MetaKey::ManifestBirth(dataset, txg, segment).encode(), Vec::new());
        items.extend(births.into_iter().map(birth));
        items.sort();
        let changes: Vec<Change<'_>> = items.iter().map(|(key, value)| Change::Insert(key, value)).collect();
        self.meta.batch(&changes)?;
        Ok(())
    }

    /// Takes off the lists of these segments what is dead. Sync context. (M2)
    pub fn prune(&self, segments: &BTreeSet<SegmentId>, space: &Space) -> Result<()> {
        for &segment in segments {
            let (mut lost, mut kept) = (BTreeSet::new(), BTreeSet::new());
            let mut items: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
            let gone = !space.is_known(segment);
            for item in self.meta.range(runs_of(segment)) {
                let (key, value) = item?;
                let mut run = ManifestRun::decode(&value).map_err(bad)?;
                let birth = (run.dataset, run.birth);
                let listed = run.entries.len();
                run.entries.retain(|entry| !gone && space.is_live(Address { segment, offset: entry.offset }));
                match run.entries.first() {
                    Some(first) => {
                        kept.insert(birth);
                        if run.entries.len() < listed {
                            let now = MetaKey::Manifest(Address { segment, offset: first.offset }).encode();
                            if now != key {
                                items.push((key, None));
                            }
                            items.push((now, Some(run.encode())));
                        }
                    }
                    None => {
                        lost.insert(birth);
                        items.push((key, None));
                    }
                }
            }
            for item in self.meta.range(references_of(segment)) {
                let (key, _) = item?;
                let Some(MetaKey::ManifestReference(address, txg, dataset)) = MetaKey::decode(&key) else {
                    continue;
                };
                match !gone && space.is_live(address) {
                    true => _ = kept.insert((dataset, txg)),
                    false => {
                        lost.insert((dataset, txg));
                        items.push((key, None));
                    }
                }
            }
            for (dataset, txg) in lost.difference(&kept) {
                items.push((MetaKey::ManifestBirth(*dataset, *txg, segment).encode(), None));
            }
            items.sort();
            let change = |(key, value): &'_ (Vec<u8>, Option<Vec<u8>>)| match value {
                Some(value) => self.meta.insert(key, value).map(drop),
                None => self.meta.remove(key).map(drop),
            };
            // What stays is entered before what it was known as goes, for who reads meanwhile.
            items.iter().filter(|(_, value)| value.is_some()).try_for_each(change)?;
            items.iter().filter(|(_, value)| value.is_none()).try_for_each(change)?;
        }
        Ok(())
    }

    /// The listed block at an address, if there is one.
    fn entry_at(&self, address: Address) -> Result<Option<BlockPointer>> {
        let Some((key, value)) = self.meta.floor(&MetaKey::Manifest(address).encode())? else {
            return Ok(None);
        };
        match MetaKey::decode(&key) {
            Some(MetaKey::Manifest(first)) if first.segment == address.segment => {}
            _ => return Ok(None),
        }
        let run = ManifestRun::decode(&value).map_err(bad)?;
        let entry = run.entries.iter().find(|entry| entry.offset == address.offset);
        Ok(entry.map(|entry| run.pointer(address.segment, entry)))
    }

    /// Segments that list births of a dataset in some txgs, from one on.
    fn segments_of(&self, dataset: DatasetId, born: &Txgs, found: &mut BTreeSet<SegmentId>) -> Result<()> {
        let key = |txg| MetaKey::ManifestBirth(dataset, txg, SegmentId(0)).encode();
        for item in self.meta.range(key(born.start)..key(born.end)) {
            if let Some(MetaKey::ManifestBirth(_, _, segment)) = MetaKey::decode(&item?.0) {
                found.insert(segment);
            }
        }
        Ok(())
    }
}

/// What of a line is asked for: a snapshot, and what it is held against.
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

impl Inner {
    /// Gives a dataset that begins the writers that it is to have: itself, if it is sealed.
    pub(crate) fn first_writers(&self, id: DatasetId, is_sealed: bool) -> Vec<ManifestWriter> {
        match is_sealed && self.has_feature(FEATURE) {
            true => {
                self.manifests.expect();
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
        for item in self.items_of(meta_keys::MANIFEST_WRITERS) {
            let (MetaKey::ManifestWriters(id), value) = item? else { continue };
            let writers = ManifestWriter::decode_all(&value)
                .map_err(|error| self.corrupt(pool, "writers of a dataset", error))?;
            if let Some(entry) = self.table.write().get_mut(id) {
                entry.writers = writers;
                self.manifests.expect();
            }
        }
        Ok(())
    }

    /// What is listed of a snapshot, if its dataset has a manifest. `mark`: all of it is asked for, and which of it is younger than that.
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
                for item in self.meta.range(key(0)..key(u64::MAX)) {
                    CellPlace::decode_run(&item?.1).map_err(bad)?.iter().try_for_each(&mut *visit)?;
                }
            }
        }
        Ok(())
    }

    /// The blocks behind a place, as many as are taken at once: those of the target, and with a base those that only the base has.
    pub(crate) fn listed_batch(&self, listed: &Listed, after: Option<Place>) -> Result<Batch> {
        loop {
            let all = Txg(0)..listed.target;
            let lines = self.lines(listed.id, &all);
            let batch = self.listed_batch_once(listed, after)?;
            // A promotion gives cells to others.
            if self.lines(listed.id, &all) == lines {
                return Ok(batch);
            }
        }
    }

    fn listed_batch_once(&self, listed: &Listed, after: Option<Place>) -> Result<Batch> {
        let mut batch = self.born(listed, after)?;
        let all = Txg(0)..Txg(u64::MAX);
        let left = listed.base.unwrap_or(Txg(0))..listed.target;
        let mut places: HashMap<Address, Place> =
            batch.blocks.iter().map(|(place, (pointer, _))| (pointer.copies[0], *place)).collect();
        self.visit_let_go((listed.id, &left), &all, &mut |let_go| {
            if places.contains_key(&let_go.address) && !self.references.is_shared(let_go.address) {
                let place = places.remove(&let_go.address).expect("looked up just now");
                batch.blocks.remove(&place);
            }
            Ok(())
        })?;
        // What died since it was looked at was let go before, by a cell that is freed.
        batch.blocks.retain(|_, (pointer, _)| self.space.is_live(pointer.copies[0]));
        if let Some(base) = listed.base {
            let mut shared: BTreeMap<Address, (BlockPointer, u64)> = BTreeMap::new();
            self.visit_let_go((listed.id, &left), &(Txg(0)..base), &mut |let_go| {
                // Second copies are listed with the first.
                let Some(pointer) = self.manifests.entry_at(let_go.address)? else { return Ok(()) };
                match self.references.is_shared(let_go.address) {
                    false => batch.add(after, &pointer, false),
                    true => shared.entry(let_go.address).or_insert((pointer, 0)).1 += 1,
                }
                Ok(())
            })?;
            for (address, (pointer, let_go)) in shared {
                if self.references.count(address) == let_go {
                    batch.add(after, &pointer, false);
                }
            }
        }
        Ok(batch)
    }

    /// What is listed as born after the base, by the target.
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
            self.manifests.segments_of(*writer, born, &mut segments)?;
        }
        let mut batch = Batch::default();
        let is_old = |txg: Txg| listed.mark.is_some_and(|mark| txg <= mark);
        for segment in segments {
            let mut pointers: HashMap<u32, BlockPointer> = HashMap::new();
            let mut referred: Vec<(u32, Txg)> = Vec::new();
            for item in self.meta.range(references_of(segment)) {
                if let Some(MetaKey::ManifestReference(at, txg, dataset)) = MetaKey::decode(&item?.0)
                    && is_wanted(dataset, txg)
                {
                    referred.push((at.offset, txg));
                }
            }
            for item in self.meta.range(runs_of(segment)) {
                let run = ManifestRun::decode(&item?.1).map_err(bad)?;
                let wanted = is_wanted(run.dataset, run.birth);
                for entry in &run.entries {
                    let pointer = run.pointer(segment, entry);
                    if !referred.is_empty() {
                        pointers.insert(entry.offset, pointer);
                    }
                    if wanted && self.space.is_live(pointer.copies[0]) {
                        batch.add_told(after, &pointer, is_old(run.birth));
                    }
                }
            }
            for (offset, txg) in referred {
                if let Some(pointer) = pointers.get(&offset)
                    && self.space.is_live(pointer.copies[0])
                {
                    batch.add_told(after, pointer, is_old(txg));
                }
            }
        }
        Ok(batch)
    }
}
