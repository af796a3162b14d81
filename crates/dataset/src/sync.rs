//! Sync: frozen content to blocks and extents, then both trees.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_format::extent::Extent;
use steadfast_format::file_keys::ExtentsKey;
use steadfast_format::{BlockKind, BlockPointer, InodeId, Txg};
use steadfast_tree::Change;

use crate::dataset::{Counters, Dataset, extent_key};
use crate::inode::{Frozen, Inode};
use crate::layer::{index, len};
use crate::store::{BlockWrite, occupied};
use crate::{Error, Result};

/// Bytes of content handed to the room below at once.
const BATCH_BYTES: u64 = 16 << 20;
/// Extents freed by one step of destroying a dataset.
const DESTROY_STEP: usize = 50_000;

/// What a sync gave.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SyncResult {
    /// Root of the names tree.
    pub names_root: Option<BlockPointer>,
    /// Root of the extents tree.
    pub extents_root: Option<BlockPointer>,
    /// Sums as of this txg.
    pub counters: Counters,
}

/// What a sync changes of sums.
#[derive(Default)]
pub(crate) struct Growth {
    /// Bytes that files occupy, as `stat` tells it.
    pub allocated: BTreeMap<InodeId, i64>,
    /// Bytes of content on devices.
    data: i64,
    /// Bytes of content before compression.
    logical: i64,
}

impl Growth {
    /// Counts an extent that came (`sign` 1) or went (-1).
    fn count(&mut self, dataset: &Dataset, inode: InodeId, extent: &Extent, sign: i64) {
        let signed = |bytes: u64| sign * i64::try_from(bytes).expect("extents are small");
        *self.allocated.entry(inode).or_default() += signed(dataset.extent_bytes(extent));
        self.logical += signed(extent.length().into());
        if let Extent::Block { pointer, .. } = extent {
            self.data += signed(occupied(&*dataset.blocks, pointer));
        }
    }
}

/// A record whose new content is known.
struct Rebuilt {
    inode: Arc<Inode>,
    offset: u64,
    record_size: u64,
    /// Empty: the record becomes a hole.
    content: Content,
    old: Option<Extent>,
}

/// The bytes of a rebuilt record, and how many of them count.
struct Content {
    bytes: ContentBytes,
    length: usize,
}

enum ContentBytes {
    /// Put together from what was stored and what was written.
    Made(Vec<u8>),
    /// Written as a whole: they stay where `write` put them, in the frozen record at this offset.
    Frozen(Arc<Frozen>, u64),
}

impl std::ops::Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            ContentBytes::Made(bytes) => &bytes[..self.length],
            ContentBytes::Frozen(frozen, offset) => {
                let whole = frozen.layer.records.get(offset).and_then(|record| record.whole());
                &whole.expect("a frozen layer does not change")[..self.length]
            }
        }
    }
}

impl Dataset {
    /// Writes what `freeze` handed over. An error leaves the dataset unusable for further syncs: the pool is suspended.
    pub fn sync(&self, txg: Txg) -> Result<SyncResult> {
        let running = self.syncing.swap(true, Ordering::AcqRel);
        assert!(!running, "(D2) one sync at a time");
        let frozen = self.frozen.lock().take().expect("freeze came before");
        assert_eq!(frozen.txg, txg, "(D3) the txg that was frozen is synced");
        self.names_store.begin(txg);
        self.extents_store.begin(txg);

        let mut batch = Vec::new();
        let mut batch_bytes = 0;
        self.evict_retired();
        let mut grown = Growth::default();
        let mut budget = self.free_budget();
        self.work_off_cuts(&mut budget, &mut grown)?;
        for inode in &frozen.inodes {
            let Some(changes) = inode.frozen.lock().clone() else { continue };
            self.free_cuts(inode, &changes, &mut budget, &mut grown)?;
            for offset in self.records_to_build(inode.id, &changes)? {
                let rebuilt = self.rebuild(inode, &changes, offset)?;
                batch_bytes += len(&rebuilt.content) + 4096;
                batch.push(rebuilt);
                if batch_bytes >= BATCH_BYTES {
                    self.store(txg, std::mem::take(&mut batch), &mut grown)?;
                    batch_bytes = 0;
                }
            }
        }
        self.store(txg, batch, &mut grown)?;
        self.list_cuts()?;
        let snapshot = self.extents.snapshot();
        let extents_root = self.extents.sync(&snapshot)?;
        drop(snapshot);
        // Readers find in the extents what the frozen layers held.
        for inode in &frozen.inodes {
            *inode.frozen.lock() = None;
        }
        let names_root = self.names.sync(&frozen.names)?;
        for inode in &frozen.inodes {
            if let Some(&grown) = grown.allocated.get(&inode.id) {
                self.note_allocated(inode, grown);
            }
        }
        let counters = {
            let mut counters = self.counters.lock();
            let nodes = self.names_store.take_growth() + self.extents_store.take_growth();
            counters.used = counters.used.saturating_add_signed(nodes + grown.data);
            counters.data = counters.data.saturating_add_signed(grown.data);
            counters.logical = counters.logical.saturating_add_signed(grown.logical);
            counters.files = frozen.files;
            counters.next_inode = frozen.next_inode;
            *counters
        };
        for inode in frozen.inodes {
            self.evict(&inode);
        }
        self.syncing.store(false, Ordering::Release);
        Ok(SyncResult { names_root, extents_root, counters })
    }

    /// Frees extents that lie wholly in what this txg cut.
    fn free_cuts(
        &self,
        inode: &Inode,
        changes: &Frozen,
        budget: &mut usize,
        grown: &mut Growth,
    ) -> Result<()> {
        let size = changes.record_size;
        for cut in changes.layer.cuts.iter() {
            // The records at the edges are rebuilt, so that what is left over for later is whole records.
            let first = cut.start.div_ceil(size) * size;
            let inner_end = if cut.end == u64::MAX { cut.end } else { cut.end / size * size };
            if first < inner_end {
                self.free_cut(inode.id, first..inner_end, budget, grown)?;
            }
        }
        Ok(())
    }

    pub(crate) fn drop_extent(&self, inode: InodeId, extent: &Extent, grown: &mut Growth) {
        grown.count(self, inode, extent, -1);
        if let Extent::Block { pointer, .. } = extent {
            self.blocks.free(pointer);
        }
    }

    /// Offsets of records whose content changes: written ones, and those that a cut covers in part.
    fn records_to_build(&self, inode: InodeId, changes: &Frozen) -> Result<BTreeSet<u64>> {
        let mut offsets: BTreeSet<u64> = changes.layer.records.keys().copied().collect();
        for cut in changes.layer.cuts.iter() {
            for edge in [cut.start, cut.end] {
                let offset = edge / changes.record_size * changes.record_size;
                if edge == u64::MAX || offset == edge || offsets.contains(&offset) {
                    continue;
                }
                if self.extents.contains(&extent_key(inode, offset))? {
                    offsets.insert(offset);
                }
            }
        }
        Ok(offsets)
    }

    /// The new content of a record: what is stored, cut, then written over.
    fn rebuild(&self, inode: &Arc<Inode>, changes: &Arc<Frozen>, offset: u64) -> Result<Rebuilt> {
        let end = changes.size.min(offset.saturating_add(changes.record_size));
        let length = index(end.saturating_sub(offset));
        let old = match self.extents.get(&extent_key(inode.id, offset))? {
            Some(value) => Some(self.decode_extent(&value)?),
            None => None,
        };
        let record = changes.layer.records.get(&offset);
        let bytes = match record.and_then(|record| record.whole()) {
            Some(whole) if whole.len() >= length => ContentBytes::Frozen(Arc::clone(changes), offset),
            _ => {
                let mut content = vec![0; length];
                if let Some(extent) = &old {
                    let stored = self.extent_content(inode.id, offset, extent)?;
                    let count = length.min(stored.len()).min(extent.length() as usize);
                    content[..count].copy_from_slice(&stored[..count]);
                    self.zero_cuts(inode.id, &(offset..end), &mut content);
                }
                for cut in changes.layer.cuts.within(offset..end) {
                    content[index(cut.start - offset)..index(cut.end - offset)].fill(0);
                }
                for (at, bytes) in record.into_iter().flat_map(|record| record.chunks()) {
                    if at < length {
                        let count = bytes.len().min(length - at);
                        content[at..at + count].copy_from_slice(&bytes[..count]);
                    }
                }
                ContentBytes::Made(content)
            }
        };
        let mut content = Content { bytes, length };
        // Zeros at the end need not be stored, and a record of zeros is a hole: those that nobody wrote in any case,
        // those that were written only where compression may take them (else a disk filled with zeros stays empty).
        let mut used = content.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        if !self.settings.read().zeros_are_holes {
            used = used.max(record.map_or(0, |record| record.end().min(length)));
        }
        if used == 0 || length - used >= 4096 {
            content.length = used;
        }
        let record_size = changes.record_size;
        Ok(Rebuilt { inode: Arc::clone(inode), offset, record_size, content, old })
    }

    /// Writes a batch of records and replaces their extents.
    fn store(&self, txg: Txg, mut batch: Vec<Rebuilt>, grown: &mut Growth) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut blocks = Vec::new();
        let mut plans = Vec::with_capacity(batch.len());
        let mut stored = Vec::with_capacity(batch.len());
        for rebuilt in &mut batch {
            let Rebuilt { inode, offset, record_size, content, old } = rebuilt;
            stored.push((inode.id, *offset..offset.saturating_add(*record_size)));
            let inline = *offset == 0 && content.len() <= Extent::INLINE_MAX;
            let new = match (content.is_empty(), inline) {
                (true, _) => Some(None),
                (false, true) => Some(Some(Extent::Inline(content.to_vec()))),
                (false, false) => {
                    let data = Cow::Borrowed(&**content);
                    blocks.push(BlockWrite { kind: BlockKind::Data, level: 0, data });
                    None
                }
            };
            plans.push((inode.id, *offset, new, old.take()));
        }
        let sizes: Vec<u32> =
            blocks.iter().map(|block| u32::try_from(block.data.len()).expect("records are small")).collect();
        let written = self.blocks.write_many(txg, blocks);
        let pointers = written.map_err(|source| Error::Write { dataset: self.id, source })?;
        let mut pointers = pointers.into_iter().zip(sizes);

        let mut changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::with_capacity(plans.len());
        let mut dropped = Vec::new();
        for (inode, offset, new, old) in plans {
            let new = new.unwrap_or_else(|| {
                let (pointer, length) = pointers.next().expect("one pointer a block");
                Some(Extent::Block { length, pointer })
            });
            if let Some(extent) = &new {
                grown.count(self, inode, extent, 1);
            }
            changes.push((extent_key(inode, offset), new.map(|extent| extent.encode())));
            dropped.extend(old.map(|extent| (inode, extent)));
        }
        changes.sort();
        let borrowed: Vec<Change<'_>> = changes
            .iter()
            .map(|(key, value)| match value {
                Some(value) => Change::Insert(key, value),
                None => Change::Remove(key),
            })
            .collect();
        self.extents.batch(&borrowed)?;
        // After the extents: a reader that finds no cut must not find the extent it was for.
        self.uncut(stored.into_iter());
        for (inode, extent) in dropped {
            self.drop_extent(inode, &extent, grown);
        }
        Ok(())
    }

    /// From now on the dataset is being destroyed: it is not frozen or synced any more.
    pub fn begin_destroy(&self) {
        self.destroying.store(true, Ordering::Release);
    }

    /// Frees a bounded part of the dataset's blocks; true when nothing is left. Sync context. A crash between the steps
    /// begins again with the roots stored last.
    pub fn destroy_step(&self, txg: Txg) -> Result<(bool, SyncResult)> {
        self.names_store.begin(txg);
        self.extents_store.begin(txg);
        let mut grown = Growth::default();
        let mut keys = Vec::new();
        for item in self.extents.range::<&[u8]>(..).take(DESTROY_STEP) {
            let (key, value) = item?;
            if let Ok(ExtentsKey::Extent { inode, .. }) = ExtentsKey::decode(&key) {
                keys.push((inode, key, Some(self.decode_extent(&value)?)));
            } else {
                keys.push((InodeId(0), key, None));
            }
        }
        let removed: Vec<Change<'_>> = keys.iter().map(|(_, key, _)| Change::Remove(key)).collect();
        self.extents.batch(&removed)?;
        for (inode, _, extent) in &keys {
            if let Some(extent) = extent {
                self.drop_extent(*inode, extent, &mut grown);
            }
        }
        let extents_done = keys.len() < DESTROY_STEP;
        let mut names_done = false;
        if extents_done {
            let mut names = Vec::new();
            for item in self.names.range::<&[u8]>(..).take(DESTROY_STEP) {
                names.push(item?.0);
            }
            let removed: Vec<Change<'_>> = names.iter().map(|key| Change::Remove(key)).collect();
            self.names.batch(&removed)?;
            names_done = names.len() < DESTROY_STEP;
        }
        let extents = self.extents.snapshot();
        let names = self.names.snapshot();
        let extents_root = self.extents.sync(&extents)?;
        let names_root = self.names.sync(&names)?;
        let counters = {
            let mut counters = self.counters.lock();
            let nodes = self.names_store.take_growth() + self.extents_store.take_growth();
            counters.used = counters.used.saturating_add_signed(nodes + grown.data);
            counters.data = counters.data.saturating_add_signed(grown.data);
            counters.logical = counters.logical.saturating_add_signed(grown.logical);
            *counters
        };
        Ok((names_done, SyncResult { names_root, extents_root, counters }))
    }
}
