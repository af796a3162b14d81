//! Content: reading through the layers, writing and cutting in the open one (ZFS: `dmu_read`,
//! `dmu_write`, `dmu_free_long_range`).

use crate::ahead::Advice;
use crate::cost::{ITEM_SPACE, METADATA_SPACE};
use crate::dataset::Dataset;
use crate::extents::extent_key;
use crate::inode::{Inode, InodeState};
use crate::layer::Shared;
use crate::owner_rows::{WriteClaim, WriteTerms};
use crate::owners::owned_by;
use crate::record::{Grain, Packed, Terms, index, len, pieces, record_space};
use crate::{BlockBytes, BlockPart, Error, Result, overlaid};
use std::ops::{Bound, Range};
use std::sync::Arc;
use steadfast_env::Bug;
use steadfast_format::extent::Extent;
use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_format::inode::InodeRecord;
use steadfast_format::{BlockPointer, InodeId};
use steadfast_txg::{AdmitKind, Cost, Operation, Refusal};

/// How often a read begins again because a sync replaced what it was reading.
const READ_RETRIES: usize = 4;

/// Bytes of a file that are brought before it is read; a longer one is read ahead by itself.
const BEGINNING: u64 = 256 << 10;

impl Dataset {
    /// Reads at `offset` into `out`; the number of bytes up to the end of the file.
    pub fn read(&self, inode: &Inode, offset: u64, out: &mut [u8]) -> Result<usize> {
        for attempt in 0.. {
            let mut shared = Vec::new();
            let (count, missing) = {
                let state = inode.state.lock();
                let count = state.record.size.saturating_sub(offset).min(len(out));
                if count == 0 {
                    return Ok(0);
                }
                let out = &mut out[..index(count)];
                let record_size = state.record_size();
                let wanted = std::iter::once(offset..offset + count).collect();
                let missing = state.open.fill(record_size, offset, out, wanted);
                let missing = state.open.split_shared(record_size, missing, &mut shared);
                let frozen = inode.frozen.lock().clone();
                drop(state);
                let missing = match frozen {
                    Some(frozen) => {
                        let missing = frozen.layer.fill(frozen.record_size, offset, out, missing);
                        frozen.layer.split_shared(frozen.record_size, missing, &mut shared)
                    }
                    None => missing,
                };
                (index(count), missing)
            };
            if !missing.is_empty() {
                self.look_ahead(inode, offset, count as u64);
            }
            let place = |range: &Range<u64>| index(range.start - offset)..index(range.end - offset);
            let stored = missing.into_iter().try_for_each(|range| {
                let part = &mut out[place(&range)];
                self.read_stored(inode.id, range, part)
            });
            let stored = stored.and_then(|()| {
                shared.into_iter().try_for_each(|(range, start, shared)| {
                    let part = &mut out[place(&range)];
                    part.fill(0);
                    let Shared { length, pointer } = shared;
                    self.fill_from_extent(inode.id, start, &Extent::Block { length, pointer }, range, part)
                })
            });
            match stored {
                Ok(()) => return Ok(count),
                // A sync may have replaced the extent and freed its block meanwhile: look again
                // from the top.
                Err(Error::Read { .. }) if attempt < READ_RETRIES => {}
                Err(error) => {
                    if let Error::Read { inode, range, .. } = &error {
                        self.note_damage(*inode, range.clone());
                    }
                    return Err(error);
                }
            }
        }
        unreachable!("the loop returns")
    }

    /// The bytes from `offset` on up to the end of the file, at most `length`, as they lie in
    /// memory: nothing is copied. `None` if not all of them are runs that were written, or content
    /// of blocks that the last sync stored, or one cannot be read: [`Dataset::read`] has them, or
    /// says why not.
    pub fn read_shared(&self, inode: &Inode, offset: u64, length: usize) -> Result<Option<Vec<BlockPart>>> {
        let (pieces, end) = {
            let state = inode.state.lock();
            let end = state.record.size.min(offset.saturating_add(length as u64));
            let mut pieces = Vec::new();
            let range = std::iter::once(offset..end).filter(|range| !range.is_empty()).collect();
            let rest = state.open.share_written(state.record_size(), range, &mut pieces);
            let frozen = inode.frozen.lock().clone();
            drop(state);
            let rest = match (&frozen, rest) {
                (Some(frozen), Some(rest)) => {
                    frozen.layer.share_written(frozen.record_size, rest, &mut pieces)
                }
                (_, rest) => rest,
            };
            let Some(rest) = rest else { return Ok(None) };
            let cuts = self.freeing.cuts.read();
            let is_cut = |range: &Range<u64>| {
                cuts.of(inode.id).is_some_and(|cuts| cuts.within(range.clone()).next().is_some())
            };
            if rest.iter().any(is_cut) || (rest.is_empty() && pieces.is_empty()) {
                return Ok(None);
            }
            pieces.extend(rest.into_iter().map(|range| (range, None)));
            pieces.sort_unstable_by_key(|(range, _)| range.start);
            (pieces, end)
        };
        if pieces.iter().any(|(_, written)| written.is_none()) {
            self.look_ahead(inode, offset, end - offset);
        }
        let mut parts = Vec::with_capacity(pieces.len());
        for (range, written) in pieces {
            match written {
                Some(part) => parts.push(part),
                None => match self.stored_parts(inode.id, range)? {
                    Some(stored) => parts.extend(stored),
                    None => return Ok(None),
                },
            }
        }
        Ok(Some(parts))
    }

    /// The bytes of a range in the blocks that the last sync stored. `None` if they are not all
    /// there.
    fn stored_parts(&self, inode: InodeId, range: Range<u64>) -> Result<Option<Vec<BlockPart>>> {
        let parts = self.extents_in(inode, &range)?;
        let mut wanted = Vec::with_capacity(parts.len());
        let mut done = range.start;
        for (at, extent) in &parts {
            let Extent::Block { length, pointer } = extent else { return Ok(None) };
            if *at > done {
                return Ok(None);
            }
            let until = range.end.min(at + u64::from(*length));
            if until <= done {
                return Ok(None);
            }
            wanted.push((*pointer, index(done - at)..index(until - at)));
            done = until;
        }
        if done < range.end {
            return Ok(None);
        }
        if wanted.len() > 1 {
            let behind: Vec<BlockPointer> = wanted[1..].iter().map(|(pointer, _)| *pointer).collect();
            self.blocks.read_ahead(inode.0, &behind, true);
        }
        let read = |(pointer, range): (BlockPointer, Range<usize>)| {
            self.blocks.read(&pointer).ok().map(|bytes| BlockPart::new(bytes, range))
        };
        Ok(wanted.into_iter().map(read).collect())
    }

    /// Fills `out` with the bytes of `range` as the last sync stored them.
    pub(crate) fn read_stored(&self, inode: InodeId, range: Range<u64>, out: &mut [u8]) -> Result<()> {
        // Asked before the extents: a cut that is worked off meanwhile leaves nothing to be seen,
        // and one that is new content's meanwhile was zeros when this read began.
        let cuts: Vec<Range<u64>> = self
            .freeing
            .cuts
            .read()
            .of(inode)
            .map(|cuts| cuts.within(range.clone()).collect())
            .unwrap_or_default();
        let parts = self.extents_in(inode, &range)?;
        // All but the first are fetched beside it; each is then waited for in turn.
        let blocks = blocks_in(&parts, &range);
        if blocks.len() > 1 {
            self.blocks.read_ahead(inode.0, &blocks[1..], true);
        }
        // Zeros where no extent is; where one is, it brings all bytes itself, unless overlays leave
        // holes in it.
        let mut done = range.start;
        for (at, extent) in &parts {
            let end = at + u64::from(extent.length());
            let (from, to) = (done.max(*at), range.end.min(end));
            if from >= to {
                continue;
            }
            out[index(done - range.start)..index(from - range.start)].fill(0);
            let part = &mut out[index(from - range.start)..index(to - range.start)];
            if matches!(extent, Extent::Overlaid(_)) {
                part.fill(0);
            }
            self.fill_from_extent(inode, *at, extent, from..to, part)?;
            done = to;
        }
        out[index(done - range.start)..].fill(0);
        for cut in cuts {
            out[index(cut.start - range.start)..index(cut.end - range.start)].fill(0);
        }
        Ok(())
    }

    /// Extents with bytes in `range`, and where they begin, in order.
    pub(crate) fn extents_in(&self, inode: InodeId, range: &Range<u64>) -> Result<Vec<(u64, Extent)>> {
        let mut parts = Vec::new();
        let mut take = |key: &[u8], value: &[u8]| -> Result<()> {
            if let Ok(ExtentsKey::Extent { inode: owner, offset }) = ExtentsKey::decode(key)
                && owner == inode
            {
                let extent = self.decode_extent(value)?;
                if range.start.max(offset) < range.end.min(offset + u64::from(extent.length())) {
                    parts.push((offset, extent));
                }
            }
            Ok(())
        };
        if let Some((key, value)) = self.extents.floor(&extent_key(inode, range.start))? {
            take(&key, &value)?;
        }
        let from = extent_key(inode, range.start + 1);
        for item in self.extents.range(from..extent_key(inode, range.end)) {
            let (key, value) = item?;
            take(&key, &value)?;
        }
        Ok(parts)
    }

    /// True if a range of a file is what the last sync stored, and nothing cuts it.
    #[must_use]
    pub fn is_as_stored(&self, inode: &Inode, range: Range<u64>) -> bool {
        let changes = {
            let state = inode.state.lock();
            let frozen = inode.frozen.lock().clone();
            let frozen = frozen.as_ref().is_some_and(|f| f.layer.touches(f.record_size, &range));
            frozen || state.open.touches(state.record_size(), &range)
        };
        let cuts = self.freeing.cuts.read();
        !changes && cuts.of(inode.id).is_none_or(|cuts| cuts.within(range).next().is_none())
    }

    /// Blocks of content as they were compressed:
    /// [`Blocks::read_packed`](crate::Blocks::read_packed).
    #[must_use]
    pub fn read_packed(&self, pointers: &[BlockPointer]) -> Vec<Option<BlockBytes>> {
        self.blocks.read_packed(pointers)
    }

    /// True if content of small files that will be read soon should be brought before.
    pub fn brings_content(&self) -> bool {
        self.blocks.bring_bytes_max() > 0
    }

    /// Brings the beginnings of files that will be read soon, in an order that is not known, in the
    /// background. Gives for how many of them there was room.
    pub fn bring_content(&self, inodes: &[InodeId]) -> usize {
        let ends = |id: &InodeId| (extent_key(*id, 0), extent_key(*id, BEGINNING));
        self.extents.bring(&inodes.iter().map(ends).collect::<Vec<_>>(), 1);
        let (mut pointers, mut room) = (Vec::new(), self.blocks.bring_bytes_max());
        for (count, &id) in inodes.iter().enumerate() {
            // An error of this look-up is reported to the reader of the file.
            let parts = self.extents_in(id, &(0..BEGINNING)).unwrap_or_default();
            for pointer in blocks_in(&parts, &(0..BEGINNING)) {
                let Some(left) = room.checked_sub(u64::from(pointer.psize)) else {
                    self.blocks.bring(&pointers);
                    return count;
                };
                room = left;
                pointers.push(pointer);
            }
        }
        self.blocks.bring(&pointers);
        inodes.len()
    }

    /// Notes how a file is read, and has read ahead what comes next.
    fn look_ahead(&self, inode: &Inode, offset: u64, count: u64) {
        let window = self.blocks.read_ahead_bytes_max();
        if window == 0 {
            return;
        }
        let advice = inode.reading.lock().note(offset, count, window);
        match advice {
            Advice::Nothing => {}
            Advice::Cancel => self.blocks.cancel_read_ahead(inode.id.0),
            // An error of this look-up is reported to the reader of the range.
            Advice::Ahead(range) => {
                let parts = self.extents_in(inode.id, &range).unwrap_or_default();
                self.blocks.read_ahead(inode.id.0, &blocks_in(&parts, &range), false);
            }
        }
    }

    /// Reads a range of a file that is as it is stored ([`Dataset::is_as_stored`]), from the extent
    /// that begins at `at`. The caller found it in a tree: it is not looked up.
    pub fn read_extent(
        &self,
        inode: &Inode,
        (at, extent): (u64, &Extent),
        range: Range<u64>,
        out: &mut [u8],
    ) -> Result<()> {
        out.fill(0);
        self.fill_from_extent(inode.id, at, extent, range, out)
    }

    /// Fills `out`, whose bytes are zeros, with the bytes of `range` (of the file) as far as an
    /// extent that begins at `at` has them.
    pub(crate) fn fill_from_extent(
        &self,
        inode: InodeId,
        at: u64,
        extent: &Extent,
        range: Range<u64>,
        out: &mut [u8],
    ) -> Result<()> {
        let read = |pointer: &BlockPointer, shown: Range<u64>| {
            let failed =
                |source| Error::Read { dataset: self.id, inode, range: shown, source: Arc::new(source) };
            self.blocks.read(pointer).map_err(failed)
        };
        let count = index(range.end.min(at + u64::from(extent.length())).saturating_sub(range.start));
        if count == 0 {
            return Ok(());
        }
        let first = index(range.start - at);
        match extent {
            Extent::Inline(content) => out[..count].copy_from_slice(&content[first..first + count]),
            Extent::Block { length, pointer } => {
                let content = read(pointer, at..at + u64::from(*length))?;
                out[..count].copy_from_slice(&content[first..first + count]);
            }
            Extent::Overlaid(overlaid) => {
                let blocks = overlaid::parts(overlaid, &(range.start - at..range.end - at));
                self.note_pieces((inode, at), count, overlaid, blocks.len());
                for (pointer, parts) in blocks {
                    let shown = at + parts[0].range.start..at + parts[parts.len() - 1].range.end;
                    let content = read(&pointer, shown)?;
                    for part in parts {
                        let count = index(part.range.end - part.range.start);
                        let place = index(at + part.range.start - range.start);
                        out[place..place + count]
                            .copy_from_slice(&content[index(part.at)..index(part.at) + count]);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads blocks of content that are `suspect`, of so many extents behind a key, and notes those
    /// that cannot be read as damage. Gives the key to go on behind, `None` at the end.
    pub fn look_over(
        &self,
        behind: Option<Vec<u8>>,
        extents_max: usize,
        suspect: &dyn Fn(&BlockPointer) -> bool,
    ) -> Result<Option<Vec<u8>>> {
        let from = match behind {
            Some(key) => Bound::Excluded(key),
            None => Bound::Included(NamesKey::all_of(InodeId(1))),
        };
        let (mut seen, mut last) = (0, None);
        for item in self.extents.range((from, Bound::Unbounded)).take(extents_max) {
            let (key, value) = item?;
            (seen, last) = (seen + 1, Some(key));
            let key = last.as_deref().unwrap_or_default();
            let Ok(ExtentsKey::Extent { inode, offset }) = ExtentsKey::decode(key) else { continue };
            for (pointer, shown) in blocks_of(&self.decode_extent(&value)?) {
                if suspect(&pointer) && self.blocks.read(&pointer).is_err() {
                    self.note_damage(inode, offset + shown.start..offset + shown.end);
                }
            }
        }
        Ok(last.filter(|_| seen == extents_max))
    }

    /// Begins an operation that writes `bytes` at `offset` of `inode`.
    pub fn begin_write(&self, inode: &Inode, offset: u64, bytes: u64) -> Result<Operation<'_>> {
        self.begin_write_as(AdmitKind::Write, inode, offset, bytes)
    }

    /// How a file's content is counted that comes later, and its size.
    pub fn write_terms(&self, inode: &Inode) -> (WriteTerms, u64) {
        let (record_size, size) = self.record_size_and_size(inode);
        (WriteTerms { record_size, grain: self.grain() }, size)
    }

    /// Would writes be admitted that take as much together? Waits as a write would, and changes
    /// nothing. Their memory is not asked for, nor slots for all of them: they need not come at
    /// once, and may be more than all of it.
    pub fn may_write(&self, inode: &Inode, claim: WriteClaim) -> Result<()> {
        let space = claim.space.saturating_add(METADATA_SPACE);
        let cost = Cost { memory: 0, space, blocks: claim.records + 1 };
        self.txgs.begin_for(self.account_of(inode), AdmitKind::Promise, cost)?.settle(Cost::default());
        Ok(())
    }

    fn record_size_and_size(&self, inode: &Inode) -> (u64, u64) {
        let state = inode.state.lock();
        let record_size = if state.record_is_final() {
            state.record_size()
        } else {
            u64::from(self.settings.read().recordsize)
        };
        (record_size, state.record.size)
    }

    /// Begins an operation of a kind that writes `bytes` at `offset` of `inode`.
    pub fn begin_write_as(
        &self,
        kind: AdmitKind,
        inode: &Inode,
        offset: u64,
        bytes: u64,
    ) -> Result<Operation<'_>> {
        let (record_size, size) = self.record_size_and_size(inode);
        let end = offset + bytes;
        let records = end.div_ceil(record_size) - offset / record_size;
        let grain = self.grain();
        // The worst case: every record is rewritten whole. `write` settles for what it was.
        let whole = records * record_space(grain, record_size);
        // Each record's extent, and the inode.
        let memory = bytes + 4096;
        let cost = |content| Cost { memory, space: content + METADATA_SPACE, blocks: records + 1 };
        let begin = |content| self.txgs.begin_for(self.account_of(inode), kind, cost(content));
        match begin(whole) {
            // The last record goes no further than the file, so the last room can be filled: a
            // write that makes the file longer reserves for that itself.
            Err(Refusal::NoSpace | Refusal::OverQuota) if size.max(end) % record_size != 0 => {
                let last = record_size.min(size.max(end) - (end - 1) / record_size * record_size);
                Ok(begin(whole - record_space(grain, record_size) + record_space(grain, last))?)
            }
            begun => Ok(begun?),
        }
    }

    /// Writes `data` at `offset`, or at the end if `append`; `also` changes the attributes (size is
    /// done). Gives the offset written at. Fails only in an operation that reads nothing
    /// ([`Dataset::operate`]), before it has changed anything.
    pub fn write(
        &self,
        op: &mut Operation<'_>,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        append: bool,
        also: impl FnOnce(&mut InodeRecord),
    ) -> Result<u64> {
        self.write_as(op, inode, (offset, data), append, None, also)
    }

    /// The same of what came compressed too.
    pub(crate) fn write_as(
        &self,
        op: &mut Operation<'_>,
        inode: &Arc<Inode>,
        (offset, data): (u64, &[u8]),
        append: bool,
        packed: Option<Packed>,
        also: impl FnOnce(&mut InodeRecord),
    ) -> Result<u64> {
        let overlays = self.overlays_of(inode, offset, len(data), append)?;
        let mut state = inode.state.lock();
        let offset = if append { state.record.size } else { offset };
        self.choose_record_size(&mut state);
        let record_size = state.record_size();
        self.note_written(&mut state, offset..offset + len(data));
        let size = state.record.size.max(offset + len(data));
        let terms = Terms { record_size, grain: self.grain(), overlays: &overlays };
        let mut complete = Vec::new();
        let mut growth = state.open.write(terms, size, offset, data, |start| complete.push(start));
        growth.memory += packed.map_or(0, |packed| state.open.came_packed(offset, packed));
        state.record.size = size;
        also(&mut state.record);
        let inode_blocks = u64::from(!state.dirty);
        self.mark(op.txg(), inode, &mut state);
        let metadata = METADATA_SPACE.min(ITEM_SPACE * (growth.records + inode_blocks));
        op.settle(Cost {
            memory: growth.memory,
            space: growth.space + metadata,
            blocks: growth.records + inode_blocks,
        });
        // Under the inode's lock and inside the gate, so that a freeze finds what is listed in the
        // layer it takes.
        self.list_early(inode, record_size, &complete);
        Ok(offset)
    }

    /// How often content that is written now is stored.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.grain().copies
    }

    /// How blocks lie on devices.
    pub(crate) fn grain(&self) -> Grain {
        let (copies, _) = self.blocks.copies(self.txgs.gate.present_txg());
        Grain { unit: self.blocks.unit().into(), sealed: self.blocks.seals(), copies: copies as u64 }
    }

    /// Records that a write covers in part and whose extents have room for an overlay. Looked up
    /// without the inode's lock, once a record and txg; what others do meanwhile makes a
    /// reservation larger than needed at worst.
    fn overlays_of(&self, inode: &Inode, offset: u64, count: u64, append: bool) -> Result<Vec<u64>> {
        let mut asked = Vec::new();
        let has_content;
        {
            let state = inode.state.lock();
            has_content = state.record_is_final();
            let record_size =
                if has_content { state.record_size() } else { self.settings.read().recordsize.into() };
            if self.grain().copies > 1 || !self.takes_overlays(record_size) || self.is_tight() {
                return Ok(asked);
            }
            let offset = if append { state.record.size } else { offset };
            // Only the first and the last can be covered in part.
            let last = (offset + count - 1) / record_size * record_size;
            for (start, piece) in [offset, last.max(offset)]
                .into_iter()
                .filter_map(|from| pieces(record_size, from..offset + count).next())
            {
                let in_part = piece.end - piece.start < record_size;
                if in_part && !asked.contains(&start) && !state.open.records.contains_key(&start) {
                    asked.push(start);
                }
            }
        }
        // A file that never had content has no extents.
        if !has_content {
            return Ok(asked);
        }
        let mut unread = Ok(());
        asked.retain(|&start| match self.extents.get(&extent_key(inode.id, start)) {
            Ok(value) => value.is_none_or(|value| overlaid::has_room(&value)),
            // Both are looked up before the operation begins again.
            Err(error @ steadfast_tree::Error::Unread) => {
                unread = Err(error);
                false
            }
            // An extent that cannot be read is the sync's to report.
            Err(_) => false,
        });
        unread?;
        Ok(asked)
    }

    /// A file gets its record size with its first content, and keeps it.
    pub(crate) fn choose_record_size(&self, state: &mut InodeState) {
        if !state.record_is_final() {
            let recordsize = self.settings.read().recordsize;
            state.record.record_shift = u8::try_from(recordsize.ilog2()).expect("below 64");
            state.record.flags |= InodeRecord::FLAG_RECORD_FINAL;
        }
    }

    /// Makes `range` read as zeros (a hole), as part of an operation. The size stays.
    pub fn cut(&self, op: &Operation<'_>, inode: &Arc<Inode>, range: Range<u64>) {
        let mut state = inode.state.lock();
        if state.record_is_final() {
            let record_size = state.record_size();
            self.note_cut(&mut state, range.clone());
            state.open.cut(record_size, range);
            self.owners.note_freed(op.txg(), owned_by(&state.record));
        }
        self.mark(op.txg(), inode, &mut state);
    }

    /// Makes the size at least `size`, whatever others did meanwhile; `also` changes the other
    /// attributes.
    pub fn grow(
        &self,
        op: &Operation<'_>,
        inode: &Arc<Inode>,
        size: u64,
        also: impl FnOnce(&mut InodeRecord),
    ) {
        self.change(op, inode, |record| {
            record.size = record.size.max(size);
            also(record);
        });
    }

    /// Sets the size, cutting what lies behind a smaller one; `also` changes the other attributes.
    pub fn set_size(
        &self,
        op: &Operation<'_>,
        inode: &Arc<Inode>,
        size: u64,
        also: impl FnOnce(&mut InodeRecord),
    ) {
        let mut state = inode.state.lock();
        if size < state.record.size && state.record_is_final() && !self.has_bug(Bug::TailKept) {
            let record_size = state.record_size();
            // To the end of everything, not of the file: [dataset.1] must hold for whatever was
            // ever written behind.
            self.note_cut(&mut state, size..u64::MAX);
            state.open.cut(record_size, size..u64::MAX);
            self.owners.note_freed(op.txg(), owned_by(&state.record));
        }
        state.record.size = size;
        also(&mut state.record);
        self.mark(op.txg(), inode, &mut state);
    }

    /// The next offset from `offset` on that holds data (or, if not `data`, a hole). `None` if
    /// there is no more data.
    pub fn seek(&self, inode: &Inode, offset: u64, data: bool) -> Result<Option<u64>> {
        let (size, record_size) = {
            let state = inode.state.lock();
            (state.record.size, state.record_size())
        };
        if offset >= size {
            return Ok(None);
        }
        let mut at = offset;
        while at < size {
            let (is_data, until) = self.state_at(inode, record_size, at)?;
            if is_data == data {
                return Ok(Some(at));
            }
            at = until.min(size);
        }
        Ok(if data { None } else { Some(size) })
    }

    fn state_at(&self, inode: &Inode, record_size: u64, at: u64) -> Result<(bool, u64)> {
        let (open, open_until, frozen) = {
            let state = inode.state.lock();
            let (open, until) = state.open.state_at(record_size, at);
            (open, until, inode.frozen.lock().clone())
        };
        if let Some(is_data) = open {
            return Ok((is_data, open_until));
        }
        let (below, below_until) = match frozen {
            Some(frozen) => frozen.layer.state_at(frozen.record_size, at),
            None => (None, u64::MAX),
        };
        let until = open_until.min(below_until);
        if let Some(is_data) = below {
            return Ok((is_data, until));
        }
        let (is_data, stored_until) = self.stored_at(inode.id, at)?;
        Ok((is_data, until.min(stored_until)))
    }

    fn stored_at(&self, inode: InodeId, at: u64) -> Result<(bool, u64)> {
        let (cut, next_cut) = match self.freeing.cuts.read().of(inode) {
            Some(cuts) => (cuts.containing(at), cuts.next_start(at).unwrap_or(u64::MAX)),
            None => (None, u64::MAX),
        };
        if let Some(cut) = cut {
            return Ok((false, cut.end));
        }
        let (is_data, until) = self.extent_state_at(inode, at)?;
        Ok((is_data, until.min(next_cut)))
    }

    fn extent_state_at(&self, inode: InodeId, at: u64) -> Result<(bool, u64)> {
        if let Some((key, value)) = self.extents.floor(&extent_key(inode, at))?
            && let Ok(ExtentsKey::Extent { inode: owner, offset }) = ExtentsKey::decode(&key)
            && owner == inode
        {
            let extent = self.decode_extent(&value)?;
            let end = offset + u64::from(extent.length());
            if at < end {
                let Extent::Overlaid(overlaid) = extent else { return Ok((true, end)) };
                let mut data = crate::RangeSet::default();
                let parts = overlaid::parts(&overlaid, &(0..end - offset));
                let parts = parts.into_iter().flat_map(|(_, parts)| parts);
                parts.for_each(|part| data.insert(part.range));
                return Ok(match data.containing(at - offset) {
                    Some(data) => (true, offset + data.end),
                    None => (false, data.next_start(at - offset).map_or(end, |next| offset + next)),
                });
            }
        }
        let (from, to) = (extent_key(inode, at + 1), extent_key(InodeId(inode.0 + 1), 0));
        match self.extents.range(from..to).next() {
            Some(item) => match ExtentsKey::decode(&item?.0) {
                Ok(ExtentsKey::Extent { offset, .. }) => Ok((false, offset)),
                _ => Ok((false, u64::MAX)),
            },
            None => Ok((false, u64::MAX)),
        }
    }
}

/// The blocks of an extent that something is read from, and which bytes of the extent lie between
/// the first and the last that each gives.
#[must_use]
pub fn blocks_of(extent: &Extent) -> Vec<(BlockPointer, Range<u64>)> {
    match extent {
        Extent::Inline(_) => Vec::new(),
        Extent::Block { length, pointer } => vec![(*pointer, 0..u64::from(*length))],
        Extent::Overlaid(overlaid) => {
            let parts = overlaid::parts(overlaid, &(0..overlaid.length.into()));
            let shown = |parts: &[overlaid::Part]| parts[0].range.start..parts[parts.len() - 1].range.end;
            parts.iter().map(|(pointer, parts)| (*pointer, shown(parts))).collect()
        }
    }
}

/// The blocks that hold the bytes of `range`, in order.
fn blocks_in(parts: &[(u64, Extent)], range: &Range<u64>) -> Vec<BlockPointer> {
    let mut blocks = Vec::new();
    for (at, extent) in parts {
        match extent {
            Extent::Inline(_) => {}
            Extent::Block { pointer, .. } => blocks.push(*pointer),
            Extent::Overlaid(overlaid) => {
                let end = range.end.min(at + u64::from(extent.length()));
                let shown = range.start.max(*at) - at..end - at;
                blocks.extend(overlaid::parts(overlaid, &shown).into_iter().map(|(pointer, _)| pointer));
            }
        }
    }
    blocks
}
