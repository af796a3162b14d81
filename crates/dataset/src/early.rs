//! Content stored before its txg closes.
//!
//! ## The problem
//! A sync that begins when its txg closes leaves the devices idle while the txg fills, and whoever
//! then waits in `fsync` waits for all of it. But most of what a sequential writer leaves behind it
//! never changes again: it could be on its way already.
//!
//! ## The idea
//! A record that has become *complete* (every byte of it was written in the open txg) is listed.
//! While the thread that commits has nothing to commit, or waits for a store, it takes the oldest
//! listed ones, all but the latest [`LAG_BYTES`], and has them compressed, sealed, hashed and
//! appended like a sync would.
//! The pointer is kept with the record in memory, and nowhere else. When the txg closes, its sync
//! puts the pointer into the extents; only what is not stored yet is written then.
//!
//! ## Why a crash does no harm
//! Early writes are made in the turn of commits ([`Dataset::write_early`]). So what is appended
//! early in txg T lies behind the fill marks, or in slots that no row names, of the last commit,
//! T-1, exactly as what the sync of T appends. A crash before T commits leaves no trace of it. On
//! stores of whole objects that holds beside the commit of T-1, too, once it has handed over its
//! segments: T has others.
//!
//! ## Invariants
//! [early.1] A pointer is kept only with the very bytes that were stored: the writer shares the
//!      record's chunk, and any change (`Record::spoil`) parts the record from its pointer first,
//!      and from how its bytes came compressed, if they did.
//!      assert: `Layer::end_early`
//! [early.2] A block that was stored early is referenced by the extents of its txg or freed by the
//!      sync of its txg, once: its pointer lies in the record, or in the layer's list of stale
//!      ones.
//!      test: `what_changes_after_it_was_stored_is_freed`
//! [early.3] Nothing that others read, in memory or on devices, refers to a pointer before the sync
//!      of its txg.
//! [early.4] A record is stored early at most once a txg, so rewriting the same bytes costs at most
//!      one block more a txg; what a change after that has to place again is reserved again
//!      (`Record::charged`).
//! [early.5] A txg stores early at most a quarter of the free room, and nothing in a pool of which
//!      less than an eighth is free. Room for reserved content is never more than half of it, so a
//!      sync finds a place for all it has to write beside what became stale.

use crate::dataset::Dataset;
use crate::early_list::Listed;
use crate::inode::Inode;
use crate::record::Packed;
use crate::{Error, Result};
use std::borrow::Cow;
use std::sync::Arc;
use steadfast_blockio::BlockWrite;
use steadfast_format::extent::Extent;
use steadfast_format::{BlockKind, Txg};

/// Bytes stored in one turn at most, and a record more: a commit that is wanted meanwhile waits for
/// the turn.
pub const STEP_BYTES_MAX: u64 = 16 << 20;

impl Dataset {
    /// Lists records that became complete. Inside an operation.
    pub(crate) fn list_early(&self, inode: &Arc<Inode>, record_size: u64, complete: &[u64]) {
        if complete.is_empty() {
            return;
        }
        let mut list = self.overlay.early.lock();
        let was_due = list.is_due();
        let listed = |&start: &u64| Listed { inode: Arc::clone(inode), start, size: record_size };
        list.records.extend(complete.iter().map(listed));
        list.bytes += complete.len() as u64 * record_size;
        if list.is_due() && !was_due {
            self.txgs.commits.nudge();
        }
    }

    /// Stores complete records of the open txg, `txg`, if there are enough of them. True if it
    /// stored some. It is called in the turn of commits alone. An error leaves everything to
    /// the sync of the txg.
    pub fn write_early(&self, txg: Txg) -> Result<bool> {
        let picked: Vec<Listed> = {
            let mut list = self.overlay.early.lock();
            if !list.is_due() || list.stored.saturating_add(STEP_BYTES_MAX) > self.early_bytes_max() {
                return Ok(false);
            }
            let mut picked = Vec::new();
            let mut bytes = 0;
            let wanted = (list.bytes - list.lag_bytes).min(STEP_BYTES_MAX);
            while bytes < wanted
                && let Some(record) = list.records.pop_front()
            {
                bytes += record.size;
                picked.push(record);
            }
            list.bytes -= bytes;
            list.stored += bytes;
            picked
        };
        let begun: Vec<_> = picked
            .into_iter()
            .filter_map(|Listed { inode, start, .. }| {
                let (chunk, packed) = inode.state.lock().open.begin_early(start)?;
                let length = self.length_without_zeros(&chunk, chunk.len());
                Some((inode, start, chunk, length, packed))
            })
            .collect();
        // Holes and what fits into the tree are the sync's.
        let is_block = |start: u64, length: usize| length > if start == 0 { Extent::INLINE_MAX } else { 0 };
        let blocks = begun.iter().filter(|(_, start, _, length, _)| is_block(*start, *length));
        let blocks = blocks.map(|(_, _, chunk, length, packed)| {
            let data = Cow::Borrowed(&chunk[..*length]);
            let packed = Packed::of(packed.as_ref(), *length);
            BlockWrite { kind: BlockKind::Data, level: 0, record: true, data, packed }
        });
        let (pointers, error) = match self.blocks.write_many(txg, blocks.collect()) {
            Ok(pointers) => (pointers, None),
            Err(source) => {
                let source = Arc::new(source);
                (Vec::new(), Some(Error::Write { dataset: self.id, source }))
            }
        };
        let mut pointers = pointers.into_iter();
        for (inode, start, chunk, length, _) in &begun {
            let pointer = if is_block(*start, *length) { pointers.next() } else { None };
            let length = u32::try_from(*length).expect("records are small");
            if let Some(pointer) = pointer.as_ref().filter(|_| inode.keeps_written()) {
                self.blocks.keep(pointer, chunk);
            }
            let stored = pointer.map(|pointer| (length, pointer));
            inode.state.lock().open.end_early(*start, chunk, stored);
        }
        let Some(error) = error else { return Ok(true) };
        self.overlay.early.lock().stored = u64::MAX;
        Err(error)
    }

    /// Changes how much of what is complete is left to the sync, and what is worth storing at once
    /// (2 and 4 MiB, if nobody says otherwise).
    pub fn set_early_bytes(&self, lag: u64, step_min: u64) {
        let mut list = self.overlay.early.lock();
        (list.lag_bytes, list.step_bytes_min) = (lag, step_min.max(1));
    }

    /// Content comes as a stream from now on, or does no more: each record is stored early as soon
    /// as it is complete, so that a receive does not end with all of it left to do.
    pub fn set_streamed(&self, is_streamed: bool) {
        self.overlay.early.lock().set_streamed(is_streamed);
    }

    /// Bytes that may be stored early in one txg. [early.5]
    fn early_bytes_max(&self) -> u64 {
        let room = self.txgs.budget.room();
        if room.free < room.capacity / 8 { 0 } else { room.placeable / 4 }
    }

    /// Frees what was stored early and will never be referenced: the dataset is being destroyed.
    /// Sync context.
    pub(crate) fn drop_early(&self) {
        self.overlay.early.lock().clear();
        for inode in self.inodes.live() {
            let stale = inode.state.lock().open.take_early();
            stale.iter().for_each(|pointer| self.blocks.free(pointer));
        }
    }
}
