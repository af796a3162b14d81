//! Folding in the background, and what a pool that gets full does about waste.
//!
//! Sync folds what is written ([`crate::plan`]). Two more kinds of records are folded though nobody
//! writes them: those that a reader found in many pieces, while little is written; and all that
//! waste something, once the pool gets full. They are picked before a txg closes, so that the
//! attributes which it flushes say "not noted" of what their files occupy, and folded by its sync,
//! from space that nobody has reserved.
//!
//! ## When a pool gets full
//! Overlays keep their base alive, so a file that is overwritten occupies up to some 1.9 times what
//! it holds. With an eighth of the pool free or more that does not matter. Below, the waste that a
//! record may have falls with what is free, to nothing at a 64th; and from a 16th on writes reserve
//! whole records, as if there were no overlays, so that sync can fold each.

use crate::dataset::Dataset;
use crate::extents::extent_key;
use crate::inode::Inode;
use crate::overlaid::{self, ROOMY};
use crate::plan::{Content, Plan, Planned};
use crate::record::{index, record_space};
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use steadfast_format::InodeId;
use steadfast_format::extent::{Extent, Overlaid};
use steadfast_format::file_keys::{ExtentsKey, NamesKey};

/// Bytes of records folded in the background by one sync, at most.
const BYTES_MAX: u64 = 64 << 20;

/// Records to be folded whose blocks are fetched side by side.
const FETCHED_AT_ONCE: usize = 16;

/// Records waiting to be folded, at most.
const WAITING_MAX: usize = 4_096;

/// Items of the extents tree looked at by one sync.
const WALK_ITEMS: usize = 16_384;

/// Blocks from which one read of (most of) a record took its bytes, so that the record is worth
/// folding.
const PIECES: usize = 4;

/// Share of the dirty budget from which on readers' wishes wait.
const QUIET_SHARE: u64 = 8;

/// The threshold below which writes reserve whole records: a 16th of the pool is free.
const TIGHT: u64 = 14;

impl Dataset {
    /// How much waste is allowed, in 32nds of what is allowed in a roomy pool.
    pub(crate) fn allowed_waste(&self) -> u64 {
        let room = self.txgs.budget.room();
        let share = u128::from(room.free) * 1024 / u128::from(room.capacity.max(1));
        // An eighth is 128, a 64th is 16.
        u64::try_from(share).unwrap_or(u64::MAX).saturating_sub(16).min(112) * ROOMY / 112
    }

    /// True if writes are to reserve whole records.
    pub(crate) fn is_tight(&self) -> bool {
        self.allowed_waste() < TIGHT
    }

    /// A reader took `bytes` of a record from so many blocks. One that would take more space folded
    /// stays as it is: reading a sparse file makes it no larger.
    pub(crate) fn note_pieces(
        &self,
        record: (InodeId, u64),
        bytes: usize,
        overlaid: &Overlaid,
        blocks: usize,
    ) {
        if blocks < PIECES
            || bytes < overlaid.length as usize / 2
            || overlaid::grows_by_folding(&*self.blocks, overlaid)
        {
            return;
        }
        let mut folding = self.overlay.folding.lock();
        if folding.read.len() < WAITING_MAX && !folding.unreadable.contains(&record) {
            folding.read.insert(record);
        }
    }

    /// True if something waits to be folded.
    pub(crate) fn has_folds(&self) -> bool {
        let (walks, quiet) = (self.allowed_waste() < ROOMY, self.is_quiet());
        let folding = self.overlay.folding.lock();
        !folding.wasteful.is_empty() || walks && !folding.clean || quiet && !folding.read.is_empty()
    }

    /// Space that nobody has reserved and that folds of one txg may take; what they give back is
    /// more.
    pub(crate) fn unreserved_for_folds(&self) -> u64 {
        let (budget, reserved) = (&self.txgs.budget, self.txgs.budget.reserved());
        let need = reserved.space.saturating_add(budget.overhead(reserved.blocks));
        (budget.room().placeable.saturating_sub(need) / 4).min(BYTES_MAX)
    }

    fn is_quiet(&self) -> bool {
        let budget = &self.txgs.budget;
        budget.reserved().memory < budget.limits().memory / QUIET_SHARE
    }

    /// Picks what the txg that closes next folds. Loads inodes, so not in the exclusive moment.
    pub(crate) fn pick_folds(&self) -> Result<()> {
        let mut budget = self.unreserved_for_folds();
        // The size of the metadata depends on the other changes of the commit. [commit_room.2]
        let mut blocks = self.txgs.budget.reserved().blocks;
        let waiting: BTreeSet<(InodeId, u64)> = {
            let folding = self.overlay.folding.lock();
            let read = folding.read.iter().filter(|_| self.is_quiet());
            read.chain(&folding.wasteful).copied().collect()
        };
        for (id, offset) in waiting {
            let inode = match self.inode(id) {
                Ok(inode) => Some(inode),
                Err(Error::NoInode(_)) => None,
                Err(error) => return Err(error),
            };
            let record_size = inode.as_ref().map_or(0, |inode| inode.state.lock().record_size());
            // Each of its pieces dies, which changes leaves of the pool's metadata; the record and
            // its extent are new.
            let pieces = match inode.as_ref().map(|_| self.extent_at(id, offset)).transpose()?.flatten() {
                Some(extent) => extent.pointers().len() as u64 + 1,
                None => 0,
            };
            let overhead = |blocks| self.txgs.budget.overhead(blocks);
            let metadata = overhead(blocks + pieces).saturating_sub(overhead(blocks));
            let space = if pieces == 0 { 0 } else { record_space(self.grain(), record_size) + metadata };
            if space > budget {
                return Ok(());
            }
            budget -= space;
            blocks += pieces;
            let mut folding = self.overlay.folding.lock();
            folding.wasteful.remove(&(id, offset));
            folding.read.remove(&(id, offset));
            let Some(inode) = inode else { continue };
            let mut state = inode.state.lock();
            if !state.gone {
                state.folding = true;
                self.mark_record(&inode, &mut state);
                folding.picked.push((Arc::clone(&inode), offset));
            }
        }
        Ok(())
    }

    /// Hands over what was picked, at freeze.
    pub(crate) fn take_folds(&self) -> Vec<(Arc<Inode>, u64)> {
        std::mem::take(&mut self.overlay.folding.lock().picked)
    }

    /// Folds what was picked, in batches that `store` takes over, each with the bytes it holds.
    pub(crate) fn fold_picked(
        &self,
        picked: &[(Arc<Inode>, u64)],
        mut store: impl FnMut(Planned) -> Result<()>,
    ) -> Result<()> {
        for some in picked.chunks(FETCHED_AT_ONCE) {
            self.fetch_folds(some);
            for (inode, offset) in some {
                inode.state.lock().folding = false;
                if let Some(planned) = self.plan_fold(inode.id, *offset)? {
                    store(planned)?;
                }
            }
        }
        Ok(())
    }

    /// Reads the blocks of records that are folded next side by side: one after another they would
    /// delay every caller that waits for this commit.
    fn fetch_folds(&self, picked: &[(Arc<Inode>, u64)]) {
        for (inode, offset) in picked {
            // An error of an extent is reported by the fold.
            if let Ok(Some(extent @ Extent::Overlaid(_))) = self.extent_at(inode.id, *offset) {
                let pointers: Vec<_> = extent.pointers().into_iter().copied().collect();
                self.blocks.read_ahead(inode.id.0, &pointers, true);
            }
        }
    }

    /// A record to be folded; `None` if it needs none any more, or cannot be read.
    pub(crate) fn plan_fold(&self, inode: InodeId, offset: u64) -> Result<Option<Planned>> {
        let is_cut = self.freeing.cuts.read().of(inode).is_some_and(|cuts| cuts.containing(offset).is_some());
        let Some(value) = self.extents.get(&extent_key(inode, offset))? else { return Ok(None) };
        let old = self.decode_extent(&value)?;
        if is_cut || !matches!(old, Extent::Overlaid(_)) {
            return Ok(None);
        }
        let length = u64::from(old.length());
        let mut content = vec![0; index(length)];
        match self.fill_from_extent(inode, offset, &old, offset..offset + length, &mut content) {
            Ok(()) => {}
            Err(Error::Read { inode, range, .. }) => {
                // It stays as it is, and its readers get the error.
                self.note_damage(inode, range);
                let mut folding = self.overlay.folding.lock();
                if folding.unreadable.len() >= WAITING_MAX {
                    // Then nothing more is looked for: folding is of use, and trying the same again
                    // and again is not.
                    folding.clean = true;
                }
                // This very attempt has found it in many pieces.
                folding.read.remove(&(inode, offset));
                folding.unreadable.insert((inode, offset));
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        self.overlay.folded.fetch_add(1, Ordering::Relaxed);
        let plan = Plan::Whole(self.without_zeros(Content::made(content), None));
        let (old, record_size) = (Some(old), length);
        let (shared, packed, keeps_written) = (None, None, false);
        Ok(Some(Planned { inode, offset, record_size, plan, old, shared, packed, keeps_written }))
    }

    /// Walks on through the extents for wasteful ones, if the pool gets full. Once a sync.
    pub(crate) fn walk_for_waste(&self) -> Result<()> {
        let allowed = self.allowed_waste();
        let (cursor, clean) = {
            let folding = self.overlay.folding.lock();
            (folding.cursor.clone(), folding.clean || folding.wasteful.len() >= WAITING_MAX)
        };
        if allowed >= ROOMY || clean {
            return Ok(());
        }
        let from = match cursor {
            Some(key) => Bound::Excluded(key),
            None => Bound::Included(NamesKey::all_of(InodeId(1))),
        };
        let (mut seen, mut last, mut wasteful) = (0, None, Vec::new());
        for item in self.extents.range((from, Bound::Unbounded)).take(WALK_ITEMS) {
            let (key, value) = item?;
            seen += 1;
            if let (Ok(ExtentsKey::Extent { inode, offset }), extent @ Extent::Overlaid(_)) =
                (ExtentsKey::decode(&key), self.decode_extent(&value)?)
                && overlaid::is_worth_folding(&*self.blocks, inode, offset, &extent, allowed)
            {
                wasteful.push((inode, offset));
            }
            last = Some(key);
        }
        let mut folding = self.overlay.folding.lock();
        wasteful.retain(|record| !folding.unreadable.contains(record));
        folding.found |= !wasteful.is_empty();
        folding.wasteful.extend(wasteful);
        folding.cursor = last;
        if seen < WALK_ITEMS {
            folding.cursor = None;
            folding.clean = !std::mem::take(&mut folding.found);
        }
        Ok(())
    }

    /// Records that could not be read may be tried again.
    pub(crate) fn forget_unreadable(&self) {
        let mut folding = self.overlay.folding.lock();
        folding.clean &= folding.unreadable.is_empty();
        folding.unreadable.clear();
    }

    /// Overlays were written: a walk may find something again.
    pub(crate) fn note_overlays(&self) {
        self.overlay.folding.lock().clean = false;
    }
}
