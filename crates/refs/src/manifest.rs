//! # Manifests: the list of a snapshot's sealed blocks, readable without its key
//!
//! Nodes of an encrypted dataset are sealed, so only its key leads from a snapshot to its blocks. A
//! *manifest* lists them in the clear as they are written: it says of a block what every pointer to
//! it says, and which dataset wrote it in which txg. `docs/decisions/0127-manifests.md`.
//!
//! ## The idea
//! A block is in the snapshot S of a dataset if it was born by S in the dataset's line and not let
//! go before S. Both are known without a key: births by the manifest, and what was let go by the
//! cells of 0090, as far as it still lives; what does not live is in no snapshot. So
//!
//! ```text
//! S            = born by S, living            less what lies in cells (L, ·) with L < S
//! S beyond B   = born after B by S, living    less what lies in cells (L, ·) with B ≤ L < S
//! B beyond S   = what lies in cells (L, b) with B ≤ L < S and b < B
//! ```
//!
//! for a snapshot B of the same line. An increment costs what changed. Of a bookmark the third is
//! not known, since what only B held is gone; there the first is said, and a receiver drops what is
//! not in it.
//!
//! *Blocks with several references.* A later reference is listed with the txg of its making, as a
//! birth. A cell then takes a reference and not the block, so what lies in cells counts only if
//! nobody else refers to the block. So some blocks too many may be sent, and some that are gone not
//! be told as gone; never one too few. With the key the trees are walked, and know better
//! (`raw_send.rs`).
//!
//! ## Invariants
//! [manifest.1] Each living block that a dataset with writers wrote is listed once, under the
//!      address of its first copy.
//!      `DatasetBlocks`; test: `manifests.rs`
//! [manifest.2] An entry whose block is dead goes when its segment goes, or when the cleaner moved
//!      what lived there. So there are no more entries than blocks that the segments in use ever
//!      took.
//!      `prune`
//! [manifest.3] Writers of a dataset never change but for its end: they are its history, whatever
//!      is promoted.
//! [manifest.4] A list of S never lacks a block of it. It is read between two commits, or under the
//!      commit's lock: a cell that is freed halfway would hide a shared block.
//!      debug assertion: `check_listed` in `send.rs`
//!
//! ## Cost
//! 66 bytes a block in the meta tree, stored twice, appended side by side: 0.1 % of records of 128
//! KiB. Nothing of it is kept in memory.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_format::{
    Address, BlockPointer, DatasetId, ManifestEntry, ManifestRun, MetaKey, SegmentId, Txg,
};
use steadfast_segment::Space;
use steadfast_tree::{Change, Tree};

use crate::deadlist::Txgs;
use crate::{Error, Result};

/// Feature of pools with manifests.
pub const FEATURE: &str = "manifests";

/// The manifests of a pool.
pub struct Manifests {
    meta: Arc<Tree>,
    /// Txg being synced.
    syncing: Arc<AtomicU64>,
    /// Some dataset has one.
    any: AtomicBool,
    pending: Mutex<Pending>,
}

/// Entries that the commit under way is to list.
#[derive(Default)]
struct Pending {
    written: Vec<(DatasetId, BlockPointer)>,
    referred: BTreeSet<(Address, Txg, DatasetId)>,
}

/// Lists what one dataset writes.
pub struct Lister {
    /// Where it lists.
    pub manifests: Arc<Manifests>,
    /// The dataset.
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
pub fn runs_of(segment: SegmentId) -> Range<Vec<u8>> {
    let key = |segment| MetaKey::Manifest(Address { segment, offset: 0 }).encode();
    key(segment)..key(SegmentId(segment.0 + 1))
}

/// First key of the later references in a segment, and that behind it.
pub fn references_of(segment: SegmentId) -> Range<Vec<u8>> {
    let key =
        |segment| MetaKey::ManifestReference(Address { segment, offset: 0 }, Txg(0), DatasetId(0)).encode();
    key(segment)..key(SegmentId(segment.0 + 1))
}

/// Why an item of a manifest is none.
pub fn bad(error: impl ToString) -> Error {
    Error::BadDataset { dataset: DatasetId(0), reason: format!("a manifest: {}", error.to_string()) }
}

impl Manifests {
    /// The manifests of a pool.
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

    /// Lists what was written since the last commit. Sync context. `forgets` one of it: a bug that
    /// is to be noticed.
    pub fn write(&self, space: &Space, forgets: bool) -> Result<()> {
        let Pending { mut written, referred } = std::mem::take(&mut *self.pending.lock());
        // An entry that died since would not be pruned if its segment went with it.
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

    /// Takes off the lists of these segments what is dead. Sync context. [manifest.2]
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
            // The new entry is made before the old one goes: a reader may come between.
            items.iter().filter(|(_, value)| value.is_some()).try_for_each(change)?;
            items.iter().filter(|(_, value)| value.is_none()).try_for_each(change)?;
        }
        Ok(())
    }

    /// The listed block at an address, if there is one.
    pub fn entry_at(&self, address: Address) -> Result<Option<BlockPointer>> {
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
    pub fn segments_of(
        &self,
        dataset: DatasetId,
        born: &Txgs,
        found: &mut BTreeSet<SegmentId>,
    ) -> Result<()> {
        let key = |txg| MetaKey::ManifestBirth(dataset, txg, SegmentId(0)).encode();
        for item in self.meta.range(key(born.start)..key(born.end)) {
            if let Some(MetaKey::ManifestBirth(_, _, segment)) = MetaKey::decode(&item?.0) {
                found.insert(segment);
            }
        }
        Ok(())
    }
}
