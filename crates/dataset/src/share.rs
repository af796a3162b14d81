//! Sharing: a record of one file becomes what another one is, by referring to its block.
//!
//! ## The idea
//! An operation looks up which blocks hold the source and leaves them in the target's open layer,
//! as records ([`Shared`]) that have no bytes in memory. Sync counts the references before it frees
//! anything, and gives the target extents with pointers that were born in its txg: so what
//! snapshots hold of the source and of the target goes by the birth of each.
//!
//! ## Why the source's blocks are still there
//! A shared record was stored by a txg before the open one, and neither the open nor the frozen
//! layer, nor a cut, changes it. Only the sync of the open txg could free it; that sync counts the
//! shares of the operation first ([`Dataset::share_frozen`]). A record with overlays is not
//! shared, since a fold of the frozen txg may be replacing it.
//!
//! ## Invariants
//! [share.1] A pointer in an extent, and a pointer that is shared in a frozen layer, are references
//!      that are each freed once.
//!      test: `posix`, `sharing.rs`; `inspect check` counts them
//! [share.2] A shared record has the content that the source had when the operation looked,
//!      whatever happens to the source.
//! [share.3] A file whose record sizes differ from the source's is copied: records are shared as
//!      wholes.
//! [share.4] Blocks shared between datasets are of one domain, and the source is a snapshot that
//!      stays until the txg of the operation is committed: its blocks are freed by no sync before
//!      the one that counts the reference.
//!      test: `pool`, `repeats.rs`

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use steadfast_format::extent::Extent;
use steadfast_format::inode::InodeRecord;
use steadfast_txg::{AdmitKind, Cost, Operation};

use crate::Result;
use crate::cost::{ITEM_SPACE, METADATA_SPACE};
use crate::dataset::Dataset;
use crate::inode::Inode;
use crate::layer::Shared;
use crate::record::index;

/// Records that one operation shares at most. An operation of many would need more room for
/// metadata at once than a small pool ever has.
const RECORDS_MAX: u64 = 64;
/// Memory that a shared record takes in a layer.
const SHARED_BYTES: u64 = 256;

/// Why nothing is shared, where nothing is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unshared {
    /// It will not be whatever one waits for: these files, or this place of them.
    Never,
    /// The next record is not stored; after the commit of the source's last change it is.
    NotStored,
    /// The next record lies in the tree, or in pieces; what follows it may be shared.
    Record,
}

/// Result of sharing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sharing {
    /// So many bytes are shared, from the start of what was asked for.
    Done(u64),
    /// None.
    Not(Unshared),
}

/// Where bytes are shared from, and to.
#[derive(Clone, Copy, Debug)]
pub struct ShareRange {
    /// First byte in the source.
    pub source: u64,
    /// First byte in the target.
    pub target: u64,
    /// How many.
    pub length: u64,
}

/// Records of a source that can be shared.
struct Found {
    /// Whole records, by offset; what lies between them is a hole.
    records: Vec<(u64, Shared)>,
    /// Up to where that goes.
    reached: u64,
    /// Why no further.
    why: Unshared,
}

impl Dataset {
    /// Waits until all that an inode shows is stored in its trees. Asks each time `patience` has
    /// passed whether to go on. False if not.
    pub fn wait_stored(&self, inode: &Inode, patience: Duration, go_on: impl Fn() -> bool) -> Result<bool> {
        let changed = inode.changed_txg();
        if changed <= self.txgs.commits.committed() {
            return Ok(true);
        }
        self.txgs.commits.request_sync(changed);
        while !self.txgs.commits.wait_committed_for(changed, patience)? {
            if !go_on() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes a range of `target` what a range of `source` is, without copying it, as far as whole
    /// records go. `also` changes the attributes.
    pub fn share(
        &self,
        source: &Inode,
        target: &Arc<Inode>,
        range: ShareRange,
        also: impl Fn(&mut InodeRecord),
    ) -> Result<Sharing> {
        self.share_from(self, source, target, range, also)
    }

    /// The same from a file of another dataset of the pool: a snapshot that its caller keeps until
    /// this is committed. [share.4]
    pub fn share_from(
        &self,
        from: &Dataset,
        source: &Inode,
        target: &Arc<Inode>,
        range: ShareRange,
        also: impl Fn(&mut InodeRecord),
    ) -> Result<Sharing> {
        let never = Ok(Sharing::Not(Unshared::Never));
        let is_possible = self.blocks.shares() && from.blocks.shares();
        // A row of the reference table stands for one copy, and new content is to have more.
        let is_once = self.grain().copies == 1;
        if !is_possible || !is_once || self.blocks.domain() != from.blocks.domain() {
            return never;
        }
        let (record_size, source_size, is_final) = {
            let state = source.state.lock();
            (state.record_size(), state.record.size, state.record_is_final())
        };
        let target_differs = {
            let state = target.state.lock();
            state.record_is_final() && state.record_size() != record_size
        };
        let is_aligned = range.source.is_multiple_of(record_size) && range.target.is_multiple_of(record_size);
        let length =
            range.length.min(source_size.saturating_sub(range.source)).min(RECORDS_MAX * record_size);
        if !is_final || target_differs || !is_aligned || length == 0 {
            return never;
        }
        let records = length.div_ceil(record_size);
        // The quota of the owner counts shared bytes in full.
        let account = self.account_of(target);
        let content = if account.is_some() { length.next_multiple_of(self.blocks.unit().into()) } else { 0 };
        let cost = Cost {
            memory: 4096 + records * SHARED_BYTES,
            space: content + METADATA_SPACE + records * ITEM_SPACE,
            blocks: records + 1,
        };
        let begin = || Ok(self.txgs.begin_for(account.clone(), AdmitKind::Write, cost)?);
        self.operate(begin, |op| {
            let wanted = range.source..range.source + length;
            let found = from.stored_records(source, record_size, wanted)?;
            if found.reached == range.source {
                return Ok(Sharing::Not(found.why));
            }
            let shared = self.share_records(op, target, record_size, range, &found, &also);
            Ok(if shared == 0 { Sharing::Not(Unshared::Never) } else { Sharing::Done(shared) })
        })
    }

    /// Blocks of whole records from `range.start` on that are stored and that nothing changes, by
    /// offset; up to where that goes, and why no further. Ranges between them are holes. Inside an
    /// operation, so that nothing of it is freed before the sync of its txg.
    fn stored_records(&self, inode: &Inode, record_size: u64, range: Range<u64>) -> Result<Found> {
        let mut end = range.end;
        {
            let state = inode.state.lock();
            let frozen = inode.frozen.lock().clone();
            let changes = |piece: &Range<u64>| {
                let frozen = frozen.as_ref().is_some_and(|f| f.layer.touches(record_size, piece));
                frozen || state.open.touches(record_size, piece)
            };
            if changes(&range) {
                let starts = (range.start..range.end).step_by(index(record_size));
                let pieces = starts.map(|start| start..(start + record_size).min(range.end));
                end =
                    pieces.take_while(|piece| !changes(piece)).last().map_or(range.start, |piece| piece.end);
            }
        }
        if end == range.start {
            return Ok(Found { records: Vec::new(), reached: end, why: Unshared::NotStored });
        }
        // Asked before the extents: a cut that is worked off meanwhile leaves a hole.
        if let Some(cut) =
            self.freeing.cuts.read().of(inode.id).and_then(|cuts| cuts.within(range.start..end).next())
        {
            end = cut.start / record_size * record_size;
        }
        let mut records = Vec::new();
        for (start, extent) in self.extents_in(inode.id, &(range.start..end))? {
            match extent {
                Extent::Block { length, pointer } if pointer.copy_count() == 1 => {
                    records.push((start, Shared { length, pointer }));
                }
                // In several copies, in the tree, or about to be folded: it is copied.
                Extent::Block { .. } | Extent::Inline(_) | Extent::Overlaid(_) => {
                    let reached = start.max(range.start);
                    return Ok(Found { records, reached, why: Unshared::Record });
                }
            }
        }
        Ok(Found { records, reached: end.max(range.start), why: Unshared::NotStored })
    }

    /// Puts what was found into the target's open layer, as far as it may. The bytes of which the
    /// target is now what the source was.
    fn share_records(
        &self,
        op: &Operation<'_>,
        target: &Arc<Inode>,
        record_size: u64,
        range: ShareRange,
        found: &Found,
        also: impl Fn(&mut InodeRecord),
    ) -> u64 {
        let mut state = target.state.lock();
        if !state.record_is_final() {
            state.record.record_shift = u8::try_from(record_size.ilog2()).expect("below 64");
            state.record.flags |= InodeRecord::FLAG_RECORD_FINAL;
        } else if state.record_size() != record_size {
            return 0;
        }
        // A part of a record is shared only where nothing of the target lies behind it, and the
        // source shows nothing there.
        let mut length = found.reached - range.source;
        let part = length % record_size;
        let last = range.source + length - part;
        let shows_more = found
            .records
            .last()
            .is_some_and(|(start, shared)| *start == last && u64::from(shared.length) > part);
        if part > 0 && (state.record.size > range.target + length || shows_more) {
            length -= part;
        }
        if length == 0 {
            return 0;
        }
        let end = range.target + length;
        self.note_written(&mut state, range.target..end);
        let mut at = range.target;
        for (start, shared) in found.records.iter().filter(|(start, _)| *start < range.source + length) {
            let start = range.target + (start - range.source);
            self.hole(&mut state, record_size, at..start);
            state.open.share(record_size, start, *shared);
            at = (start + record_size).min(end);
        }
        self.hole(&mut state, record_size, at..end);
        state.record.size = state.record.size.max(end);
        also(&mut state.record);
        self.mark(op.txg(), target, &mut state);
        length
    }

    fn hole(&self, state: &mut crate::InodeState, record_size: u64, range: Range<u64>) {
        if !range.is_empty() {
            self.note_cut(state, range.clone());
            state.open.cut(record_size, range);
        }
    }
}
