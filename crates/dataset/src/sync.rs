//! Sync of one dataset (ZFS: `dmu_objset_sync`, `dnode_sync`): frozen content becomes blocks and
//! extents, then both trees are written. The pool's commit (ZFS: `spa_sync`) calls it for each
//! dataset.

use crate::dataset::{Counters, Dataset};
use crate::extents::extent_key;
use crate::growth::Growth;
use crate::inode::{Frozen, Inode};
use crate::plan::{NewOverlay, Plan, Planned};
use crate::record::Packed;
use crate::{Error, Result};
use std::borrow::Cow;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use steadfast_blockio::BlockWrite;
use steadfast_device::Buffer;
use steadfast_env::Bug;
use steadfast_format::extent::Extent;
use steadfast_format::file_keys::ExtentsKey;
use steadfast_format::{BlockKind, BlockPointer, InodeId, Txg};
use steadfast_tree::Change;

/// Bytes of content handed to the room below at once.
const BATCH_BYTES: u64 = 16 << 20;

/// Extents freed by one step of destroying a dataset.
const DESTROY_STEP: usize = 50_000;

/// Result of a sync.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SyncResult {
    /// Root of the names tree.
    pub names_root: Option<BlockPointer>,
    /// Root of the extents tree.
    pub extents_root: Option<BlockPointer>,
    /// Sums as of this txg.
    pub counters: Counters,
}

/// True if two pointers are one reference.
fn is_same(one: &BlockPointer, other: &BlockPointer) -> bool {
    (one.copies, one.birth) == (other.copies, other.birth)
}

/// The next extent of a record.
enum NextExtent<'a> {
    /// This, or nothing. Its pointers are those it had, or one that it was made to share.
    Is(Option<Extent>),
    /// This, which it was made to share: a reference of its own.
    Shared(Extent),
    /// This, whose block was stored before: another reference than any the record had.
    Early(Extent),
    /// A block that is being written, of so many bytes, and its content if that stays in the cache.
    Block(u32, Option<&'a Arc<Buffer>>),
    /// The old extent under an overlay that is being written.
    Over(&'a NewOverlay),
}

/// A block of content. If it is as long as the record that arrived compressed, the compressed form
/// goes with it.
fn block<'a>(data: &'a [u8], record: bool, packed: Option<&'a Arc<Packed>>) -> BlockWrite<'a> {
    let packed = Packed::of(packed, data.len());
    BlockWrite { kind: BlockKind::Data, level: 0, record, data: Cow::Borrowed(data), packed }
}

impl Dataset {
    /// Writes what `freeze` handed over. An error leaves the dataset unusable for further syncs:
    /// the pool is suspended.
    pub fn sync(&self, txg: Txg) -> Result<SyncResult> {
        let running = self.syncing.swap(true, Ordering::AcqRel);
        assert!(!running, "[dataset.2] one sync at a time");
        // If other datasets share blocks with this one, the commit did so before.
        self.share_frozen();
        let frozen = self.changes.frozen.lock().take().expect("freeze came before");
        assert_eq!(frozen.txg, txg, "[dataset.3] the txg that was frozen is synced");
        self.names_store.begin(txg);
        self.extents_store.begin(txg);

        let mut batch = Vec::new();
        let mut batch_bytes = 0;
        self.evict_retired();
        self.make_room_everywhere();
        let mut grown = Growth::default();
        let mut budget = self.free_budget();
        let mut charged = self.work_off_cuts(&mut budget, &mut grown)?;
        let changes = frozen.inodes.iter().filter_map(|inode| inode.frozen.lock().clone());
        let mut spare = self.unreserved_for_folds() + changes.map(|f| self.spare_of(&f)).sum::<u64>();
        for inode in &frozen.inodes {
            let Some(changes) = inode.frozen.lock().clone() else { continue };
            self.free_cuts(inode, &changes, &mut budget, &mut grown)?;
            changes.layer.stale.iter().for_each(|pointer| self.blocks.free(pointer));
            for offset in self.records_to_build(inode.id, &changes)? {
                let Some(planned) = self.plan(txg, inode, &changes, offset, &mut spare)? else { continue };
                batch_bytes += planned.bytes();
                batch.push(planned);
                if batch_bytes >= BATCH_BYTES {
                    self.store(txg, std::mem::take(&mut batch), &mut grown)?;
                    batch_bytes = 0;
                }
            }
        }
        // A fold reads the extents as they are now.
        self.store(txg, std::mem::take(&mut batch), &mut grown)?;
        batch_bytes = 0;
        self.fold_picked(&frozen.folds, |planned| {
            batch_bytes += planned.bytes();
            batch.push(planned);
            if batch_bytes >= BATCH_BYTES {
                self.store(txg, std::mem::take(&mut batch), &mut grown)?;
                batch_bytes = 0;
            }
            Ok(())
        })?;
        self.store(txg, batch, &mut grown)?;
        self.walk_for_waste()?;
        self.list_cuts()?;
        let growth =
            |inode: &Arc<Inode>| grown.allocated.get(&inode.id).map(|grown| (Arc::clone(inode), *grown));
        charged.extend(frozen.inodes.iter().filter_map(growth));
        self.sync_owners(txg, &frozen.moved, &charged)?;
        let snapshot = self.extents.snapshot();
        let extents_root = self.extents.sync(&snapshot)?;
        drop(snapshot);
        // Readers find in the extents what the frozen layers held.
        for inode in &frozen.inodes {
            self.note_stored(inode, grown.allocated.get(&inode.id).copied().unwrap_or(0));
        }
        self.tell_resized(frozen.folds.iter().map(|(inode, _)| inode.id));
        let names_root = self.names.sync(&frozen.names)?;
        self.count_if_wanted(names_root)?;
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
            // The records at the edges are rebuilt, so that what is left over for later is whole
            // records.
            let first = cut.start.div_ceil(size) * size;
            let inner_end = if cut.end == u64::MAX { cut.end } else { cut.end / size * size };
            if first < inner_end {
                self.free_cut(inode.id, first..inner_end, budget, grown)?;
            }
        }
        Ok(())
    }

    pub(crate) fn drop_extent(&self, inode: InodeId, extent: &Extent, grown: &mut Growth) {
        self.replace_extent(inode, extent, &[], grown);
    }

    /// Frees what an extent that goes has and the one that replaces it does not have. [overlay.4]
    fn replace_extent(&self, inode: InodeId, old: &Extent, kept: &[BlockPointer], grown: &mut Growth) {
        grown.count(self, inode, old, -1);
        for pointer in old.pointers() {
            if kept.iter().all(|kept| !is_same(kept, pointer)) {
                self.blocks.free(pointer);
            }
        }
    }

    /// Counts the references that records made in the txg that was frozen. Before anything of it is
    /// freed, by any dataset.
    pub fn share_frozen(&self) {
        let mut frozen = self.changes.frozen.lock();
        let Some(frozen) = frozen.as_mut().filter(|frozen| !frozen.shares_counted) else { return };
        frozen.shares_counted = true;
        for inode in &frozen.inodes {
            let Some(changes) = inode.frozen.lock().clone() else { continue };
            if self.has_bug(Bug::ReferenceNotCounted) {
                continue;
            }
            changes.layer.shared.values().for_each(|shared| self.blocks.share(&shared.pointer));
        }
    }

    /// Writes a batch of records and replaces their extents.
    fn store(&self, txg: Txg, mut batch: Vec<Planned>, grown: &mut Growth) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut blocks = Vec::new();
        let mut plans = Vec::with_capacity(batch.len());
        let mut stored = Vec::with_capacity(batch.len());
        for planned in &mut batch {
            let (inode, offset) = (planned.inode, planned.offset);
            stored.push((inode, offset..offset.saturating_add(planned.record_size)));
            let next = match &planned.plan {
                Plan::Whole(content) if content.is_empty() => NextExtent::Is(None),
                Plan::Whole(content) if offset == 0 && content.len() <= Extent::INLINE_MAX => {
                    NextExtent::Is(Some(Extent::Inline(content.to_vec())))
                }
                Plan::Whole(content) => {
                    blocks.push(block(content, true, planned.packed.as_ref()));
                    let kept = content.written().filter(|_| planned.keeps_written);
                    NextExtent::Block(u32::try_from(content.len()).expect("records are small"), kept)
                }
                &Plan::Early(length, pointer) => NextExtent::Early(Extent::Block { length, pointer }),
                Plan::Shared(extent) => NextExtent::Shared(extent.clone()),
                Plan::Over(over) if over.content.is_empty() => NextExtent::Is(over.extent(None)),
                Plan::Over(over) => {
                    blocks.push(block(&over.content, false, planned.packed.as_ref()));
                    NextExtent::Over(over)
                }
            };
            plans.push((inode, offset, next, planned.old.take(), planned.shared));
        }
        let written = self.blocks.write_many(txg, blocks);
        let pointers =
            written.map_err(|source| Error::Write { dataset: self.id, source: Arc::new(source) })?;
        let mut pointers = pointers.into_iter();

        let mut changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::with_capacity(plans.len());
        let mut dropped = Vec::new();
        let mut unshared = Vec::new();
        for (inode, offset, next, old, shared) in plans {
            let mut pointer = || pointers.next().expect("one pointer a block");
            // A new pointer is a reference of its own, even to a block that the old extent referred
            // to.
            let carries = matches!(next, NextExtent::Is(_) | NextExtent::Over(_));
            // Of what was stored equal content may have found the very block that the record was
            // made to share: one reference more.
            let refers = !matches!(next, NextExtent::Block(..) | NextExtent::Early(_));
            let new = match next {
                NextExtent::Is(extent) => extent,
                NextExtent::Shared(extent) | NextExtent::Early(extent) => Some(extent),
                NextExtent::Block(length, kept) => {
                    let pointer = pointer();
                    kept.iter().for_each(|content| self.blocks.keep(&pointer, content));
                    Some(Extent::Block { length, pointer })
                }
                NextExtent::Over(over) => {
                    over.extent(Some(pointer()).filter(|_| !self.has_bug(Bug::OverlayStale)))
                }
            };
            let mut kept = Vec::new();
            if let Some(extent) = &new {
                grown.count(self, inode, extent, 1);
                kept.extend(extent.pointers().into_iter().copied());
            }
            // The record was shared, and then changed as a whole.
            unshared
                .extend(shared.filter(|shared| !refers || kept.iter().all(|kept| !is_same(kept, shared))));
            kept.retain(|_| carries);
            changes.push((extent_key(inode, offset), new.map(|extent| extent.encode())));
            dropped.extend(old.map(|extent| (inode, extent, kept)));
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
        for (inode, extent, kept) in dropped {
            self.replace_extent(inode, &extent, &kept, grown);
        }
        unshared.iter().for_each(|pointer| self.blocks.free(pointer));
        Ok(())
    }

    /// From now on the dataset is being destroyed: it is not frozen or synced any more.
    pub fn begin_destroy(&self) {
        self.destroying.store(true, Ordering::Release);
    }

    /// Frees a bounded part of the dataset's blocks; true when nothing is left. Sync context. A
    /// crash between the steps begins again with the roots stored last.
    pub fn destroy_step(&self, txg: Txg) -> Result<(bool, SyncResult)> {
        self.names_store.begin(txg);
        self.extents_store.begin(txg);
        self.drop_early();
        let mut grown = Growth::default();
        let step = DESTROY_STEP.min(self.freeing.room.load(Ordering::Relaxed));
        let mut keys = Vec::new();
        for item in self.extents.range::<&[u8]>(..).take(step) {
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
        let extents_done = keys.len() < step;
        let mut names_done = false;
        if extents_done {
            let mut names = Vec::new();
            for item in self.names.range::<&[u8]>(..).take(step) {
                names.push(item?.0);
            }
            let removed: Vec<Change<'_>> = names.iter().map(|key| Change::Remove(key)).collect();
            self.names.batch(&removed)?;
            names_done = names.len() < step;
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
