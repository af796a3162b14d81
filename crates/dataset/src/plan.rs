//! The plan of a sync for each record: the bytes to be written, and the fate of the old extent.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_device::Buffer;
use steadfast_format::extent::{Base, Extent, Overlaid};
use steadfast_format::overlay::Overlay;
use steadfast_format::{Address, BlockKind, BlockPointer, Compression, InodeId, SegmentId, Stamp, Txg};

use crate::dataset::Dataset;
use crate::extents::extent_key;
use crate::inode::{Frozen, Inode};
use crate::overlaid::{self, RANGES_MAX};
use crate::record::{Packed, Record, Reserve, index, len};
use crate::{Error, RangeSet, Result};

/// The plan for a record.
pub(crate) struct Planned {
    pub inode: InodeId,
    pub offset: u64,
    pub record_size: u64,
    pub plan: Plan,
    pub old: Option<Extent>,
    /// Block that the record was made to share in the txg being synced.
    pub shared: Option<BlockPointer>,
    /// How what was written of it came compressed.
    pub packed: Option<Arc<Packed>>,
    /// Content that is written of it stays in the block cache.
    pub keeps_written: bool,
}

impl Planned {
    /// Bytes of memory it holds, about.
    pub(crate) fn bytes(&self) -> u64 {
        4096 + match &self.plan {
            Plan::Whole(content) => len(content),
            Plan::Early(..) | Plan::Shared(..) => 0,
            Plan::Over(over) => len(&over.content),
        }
    }
}

pub(crate) enum Plan {
    /// It is stored as this; empty: as a hole.
    Whole(Content),
    /// So many bytes of it were stored before its txg closed, and the rest is zeros.
    Early(u32, BlockPointer),
    /// It refers to a block that was there.
    Shared(Extent),
    /// Written parts go over what stays of it.
    Over(NewOverlay),
}

/// The bytes of a record, and how many of them count.
pub(crate) struct Content {
    bytes: ContentBytes,
    length: usize,
}

enum ContentBytes {
    /// Put together from what was stored and what was written.
    Made(Vec<u8>),
    /// Written as a whole: they stay where `write` put them, in the frozen record at this offset.
    Frozen(Arc<Frozen>, u64),
}

impl Content {
    pub(crate) fn made(bytes: Vec<u8>) -> Content {
        let length = bytes.len();
        Content { bytes: ContentBytes::Made(bytes), length }
    }
}

impl Content {
    /// Its bytes where `write` put them, if that is all of them.
    pub(crate) fn written(&self) -> Option<&Arc<Buffer>> {
        let ContentBytes::Frozen(frozen, offset) = &self.bytes else { return None };
        let chunks = &frozen.layer.records.get(offset)?.chunks;
        chunks.values().next().filter(|chunk| chunk.len() == self.length)
    }
}

impl std::ops::Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            ContentBytes::Made(bytes) => &bytes[..self.length],
            ContentBytes::Frozen(frozen, offset) => {
                let whole = frozen.layer.records.get(offset).and_then(Record::whole);
                &whole.expect("a frozen layer does not change")[..self.length]
            }
        }
    }
}

/// An overlay to be written.
pub(crate) struct NewOverlay {
    under: Overlaid,
    ranges: Vec<Range<u32>>,
    /// Bytes of the ranges, one after the other. Empty: nothing is written, `under` has changed.
    pub content: Vec<u8>,
}

impl NewOverlay {
    /// True if the extent stays what it is.
    fn changes_nothing(&self, below: Option<&Extent>) -> bool {
        let inline = matches!(below, Some(Extent::Inline(_)));
        self.content.is_empty() && !inline && self.under == under_of(below)
    }

    /// The new extent, whose content lies at `pointer`.
    pub(crate) fn extent(&self, pointer: Option<BlockPointer>) -> Option<Extent> {
        let mut overlaid = self.under.clone();
        if pointer.is_some() {
            overlaid.overlays.push(Overlay { ranges: self.ranges.clone(), block: pointer });
        }
        overlaid::settled(overlaid)
    }
}

/// An extent as what overlays go over. Bytes of the tree itself are not: they move into the
/// overlay.
fn under_of(extent: Option<&Extent>) -> Overlaid {
    match extent {
        None | Some(Extent::Inline(_)) => Overlaid::default(),
        Some(Extent::Block { length, pointer }) => {
            let base = Some(Base { length: *length, pointer: *pointer });
            Overlaid { length: *length, base, overlays: Vec::new() }
        }
        Some(Extent::Overlaid(overlaid)) => overlaid.clone(),
    }
}

/// A pointer where none is known yet, for what an extent would be.
pub(crate) fn made_up(content: &[u8], txg: Txg) -> Option<BlockPointer> {
    let size = u32::try_from(content.len()).expect("records are small");
    (size > 0).then_some(BlockPointer {
        hash: [0; 32],
        copies: [Address { segment: SegmentId(1), offset: 0 }, Address::NONE, Address::NONE],
        psize: size,
        lsize: size,
        birth: txg,
        written: Txg(0),
        stamp: Stamp::default(),
        compression: Compression::Off,
        kind: BlockKind::Data,
        level: 0,
    })
}

/// Counts of small overwrites since the dataset was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OverlayCounts {
    /// Overlays written.
    pub written: u64,
    /// Records that had overlays and were written whole.
    pub folded: u64,
}

impl Dataset {
    /// Counts of small overwrites since the dataset was opened.
    #[must_use]
    pub fn overlay_counts(&self) -> OverlayCounts {
        OverlayCounts {
            written: self.overlay.written.load(Ordering::Relaxed),
            folded: self.overlay.folded.load(Ordering::Relaxed),
        }
    }

    /// Offsets of records whose content changes: written ones, and those that a cut covers in part.
    pub(crate) fn records_to_build(&self, inode: InodeId, changes: &Frozen) -> Result<BTreeSet<u64>> {
        let mut offsets: BTreeSet<u64> = changes.layer.records.keys().copied().collect();
        offsets.extend(changes.layer.shared.keys());
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

    /// Decides about a record. `spare` is what operations of the txg reserved beyond what will be
    /// written for them. `None`: nothing changes.
    pub(crate) fn plan(
        &self,
        txg: Txg,
        inode: &Arc<Inode>,
        changes: &Arc<Frozen>,
        offset: u64,
        spare: &mut u64,
    ) -> Result<Option<Planned>> {
        let old = match self.extents.get(&extent_key(inode.id, offset))? {
            Some(value) => Some(self.decode_extent(&value)?),
            None => None,
        };
        // Cuts of earlier txgs are whole records: what lies in one is on its way out.
        let is_cut =
            self.freeing.cuts.read().of(inode.id).is_some_and(|cuts| cuts.containing(offset).is_some());
        let shared = changes.layer.shared.get(&offset).map(|shared| shared.extent(txg));
        let below = shared.as_ref().or(old.as_ref().filter(|_| !is_cut));
        let record = changes.layer.records.get(&offset);
        let length = index(changes.length_of(offset));
        let end = offset.saturating_add(changes.record_size);
        let is_cut_now = changes.layer.cuts.within(offset..end).next().is_some();
        let pointer = shared.as_ref().and_then(|extent| extent.pointers().first().copied().copied());
        let plan = match record.and_then(Record::whole) {
            _ if shared.is_some() && record.is_none() && !is_cut_now => {
                Plan::Shared(shared.clone().expect("just asked"))
            }
            Some(whole) if whole.len() >= length => match record.and_then(Record::stored_early) {
                Some((length, pointer)) => Plan::Early(length, pointer),
                None => {
                    let bytes = ContentBytes::Frozen(Arc::clone(changes), offset);
                    Plan::Whole(self.without_zeros(Content { bytes, length }, record))
                }
            },
            _ => match self.over(txg, changes, offset, below) {
                Some((over, _)) if over.changes_nothing(below) && shared.is_none() => return Ok(None),
                Some((over, extent)) if !self.folds(inode.id, changes, offset, extent.as_ref(), spare) => {
                    self.plan_over(over)
                }
                // Unreadable content need not be read: it stays under an overlay, and its reader
                // gets the error.
                over => match (self.plan_whole(inode.id, changes, offset, below), over) {
                    (Err(Error::Read { inode, range, .. }), over) => {
                        self.note_damage(inode, range);
                        let over =
                            over.map(|(over, _)| over).or_else(|| self.salvage(txg, changes, offset, below));
                        self.plan_over(over.unwrap_or_else(|| self.left(inode, changes, offset, below)))
                    }
                    (plan, _) => plan?,
                },
            },
        };
        let keeps_written = inode.keeps_written();
        let (inode, record_size) = (inode.id, changes.record_size);
        let packed = record.and_then(Record::packed);
        Ok(Some(Planned { inode, offset, record_size, plan, old, shared: pointer, packed, keeps_written }))
    }

    fn plan_over(&self, over: NewOverlay) -> Plan {
        if !over.content.is_empty() {
            self.overlay.written.fetch_add(1, Ordering::Relaxed);
            self.note_overlays();
        }
        Plan::Over(over)
    }

    fn plan_whole(
        &self,
        inode: InodeId,
        changes: &Frozen,
        offset: u64,
        below: Option<&Extent>,
    ) -> Result<Plan> {
        let content = Content::made(self.rebuild(inode, changes, offset, below)?);
        let folded = matches!(below, Some(Extent::Overlaid(_)));
        self.overlay.folded.fetch_add(u64::from(folded), Ordering::Relaxed);
        Ok(Plan::Whole(self.without_zeros(content, changes.layer.records.get(&offset))))
    }

    /// The written part of a record as an overlay, and the extent that comes of it, about; `None`
    /// if the record must be written whole: an overlay has one copy.
    fn over(
        &self,
        txg: Txg,
        changes: &Frozen,
        offset: u64,
        below: Option<&Extent>,
    ) -> Option<(NewOverlay, Option<Extent>)> {
        if !self.takes_overlays(changes.record_size) || self.blocks.copies(txg).1 > 1 {
            return None;
        }
        let record = changes.layer.records.get(&offset);
        let mut under = under_of(below);
        let end = offset.saturating_add(changes.record_size);
        let cut = changes.layer.cuts.within(offset..end).map(|cut| cut.start - offset..cut.end - offset);
        let mut cuts = RangeSet::default();
        cut.for_each(|cut| cuts.insert(cut));
        let mut pieces: Vec<(u64, &[u8])> =
            record.into_iter().flat_map(Record::chunks).map(|(at, bytes)| (at as u64, bytes)).collect();
        if let Some(Extent::Inline(content)) = below {
            // Bytes of the tree itself move into the overlay, as far as they still count.
            let mut gone = cuts.clone();
            pieces.iter().for_each(|&(at, bytes)| gone.insert(at..at + len(bytes)));
            let left = gone.gaps(0..len(content)).into_iter();
            pieces.extend(left.map(|gap| (gap.start, &content[index(gap.start)..index(gap.end)])));
            pieces.sort_by_key(|&(at, _)| at);
        }
        if under.end() == 0 && self.settings.read().zeros_are_holes {
            pieces.retain(|(_, bytes)| bytes.iter().any(|&byte| byte != 0));
        }
        let zeros: Vec<Range<u32>> =
            cuts.within(0..under.end().into()).map(|range| overlaid::slim(&range)).collect();
        let mut ranges = RangeSet::default();
        pieces.iter().for_each(|&(at, bytes)| ranges.insert(at..at + len(bytes)));
        let ranges: Vec<Range<u32>> = ranges.iter().map(|range| overlaid::slim(&range)).collect();
        if zeros.len() > RANGES_MAX || ranges.len() > RANGES_MAX {
            return None;
        }
        if !zeros.is_empty() {
            under.overlays.push(Overlay { ranges: zeros, block: None });
        }
        let content = pieces.iter().map(|&(_, bytes)| bytes).collect::<Vec<_>>().concat();
        let over = NewOverlay { under, ranges, content };
        let extent = over.extent(made_up(&over.content, txg));
        let fits = match &extent {
            // Small files are kept in the tree.
            Some(extent) if offset == 0 && extent.length() as usize <= Extent::INLINE_MAX => false,
            Some(extent) => overlaid::fits(extent),
            None => true,
        };
        fits.then_some((over, extent))
    }

    /// A record that should be written whole, and of which not all can be read: what can be read of
    /// its overlays, and what was written, becomes one overlay above what cannot. `None` where the
    /// pool or the form of an extent does not allow it.
    fn salvage(&self, txg: Txg, changes: &Frozen, offset: u64, below: Option<&Extent>) -> Option<NewOverlay> {
        if !self.overlay.allowed.load(Ordering::Relaxed) {
            return None;
        }
        let mut under = under_of(below);
        let end = offset.saturating_add(changes.record_size);
        let cuts = changes.layer.cuts.within(offset..end).map(|cut| cut.start - offset..cut.end - offset);
        let mut zeros = RangeSet::default();
        cuts.for_each(|cut| zeros.insert(cut));
        let mut newer = zeros.clone();
        let mut written = RangeSet::default();
        let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
        for (at, bytes) in changes.layer.records.get(&offset).into_iter().flat_map(Record::chunks) {
            newer.insert(at as u64..at as u64 + len(bytes));
            written.insert(at as u64..at as u64 + len(bytes));
            pieces.push((at as u64, bytes.to_vec()));
        }
        let base = under.base.map(|base| base.pointer.copies);
        let mut moved = Vec::new();
        for (pointer, parts) in overlaid::parts(&under, &(0..under.length.into())) {
            let Some(bytes) = self.blocks.read(&pointer).ok().filter(|_| base != Some(pointer.copies)) else {
                continue;
            };
            let shown: Vec<(Range<u64>, usize)> = parts
                .iter()
                .flat_map(|part| newer.gaps(part.range.clone()).into_iter().map(move |gap| (part, gap)))
                .map(|(part, gap)| (gap.clone(), index(part.at + gap.start - part.range.start)))
                .collect();
            let mut joined = written.clone();
            shown.iter().for_each(|(range, _)| joined.insert(range.clone()));
            // One that is in too many pieces stays what it is.
            if joined.iter().count() <= RANGES_MAX {
                written = joined;
                let taken = |(range, at): (Range<u64>, usize)| {
                    (range.start, bytes[at..at + index(range.end - range.start)].to_vec())
                };
                pieces.extend(shown.into_iter().map(taken));
                moved.push(pointer.copies);
            }
        }
        under.overlays.retain(|overlay| overlay.block.is_none_or(|block| !moved.contains(&block.copies)));
        // Bytes behind the end of all parts do not count.
        let shown = u64::from(under.end());
        let zeros: Vec<Range<u32>> = zeros.within(0..shown).map(|range| overlaid::slim(&range)).collect();
        if !zeros.is_empty() {
            under.overlays.push(Overlay { ranges: zeros, block: None });
        }
        pieces.sort_by_key(|&(at, _)| at);
        let ranges: Vec<Range<u32>> = written.iter().map(|range| overlaid::slim(&range)).collect();
        let content = pieces.iter().map(|(_, bytes)| &bytes[..]).collect::<Vec<_>>().concat();
        let over = NewOverlay { under, ranges, content };
        let is_valid = over.ranges.len() <= RANGES_MAX
            && over.under.overlays.iter().all(|overlay| overlay.ranges.len() <= RANGES_MAX)
            && over.extent(made_up(&over.content, txg)).is_none_or(|extent| overlaid::fits(&extent));
        is_valid.then_some(over)
    }

    /// The last resort: the record stays what it was, but for an end that was cut off. Its new
    /// bytes are lost, and all of it is noted as damaged.
    fn left(&self, inode: InodeId, changes: &Frozen, offset: u64, below: Option<&Extent>) -> NewOverlay {
        self.note_damage(inode, offset..offset + changes.length_of(offset));
        let mut under = under_of(below);
        let end = offset.saturating_add(under.end().into());
        if let Some(cut) = changes.layer.cuts.within(offset..end).last().filter(|cut| cut.end == end) {
            let kept = cut.start - offset;
            if let Some(base) = under.base.as_mut().filter(|_| under.overlays.is_empty()) {
                base.length = u32::try_from(kept).expect("records are small");
            }
            under.base = under.base.filter(|base| base.length > 0);
        }
        NewOverlay { under, ranges: Vec::new(), content: Vec::new() }
    }

    /// True if a record is folded instead of becoming `extent`. [overlay.3]
    fn folds(
        &self,
        inode: InodeId,
        changes: &Frozen,
        offset: u64,
        extent: Option<&Extent>,
        spare: &mut u64,
    ) -> bool {
        let allowed = self.allowed_waste();
        let worth = extent
            .is_some_and(|extent| overlaid::is_worth_folding(&*self.blocks, inode, offset, extent, allowed));
        // A record that was only cut gives back more than it takes, as cuts do.
        let Some(record) = changes.layer.records.get(&offset) else { return worth };
        match record.reserve(self.grain(), offset, changes.length_of(offset)) {
            Reserve::Whole { beyond_overlay } => {
                if !worth {
                    *spare += beyond_overlay;
                }
                worth
            }
            Reserve::Overlay { missing, .. } => {
                let folds = worth && missing <= *spare;
                if folds {
                    *spare -= missing;
                }
                folds
            }
        }
    }

    /// True if records of that size may have overlays.
    pub(crate) fn takes_overlays(&self, record_size: u64) -> bool {
        self.overlay.allowed.load(Ordering::Relaxed) && record_size > self.blocks.unit().into()
    }

    /// Spare part of the reservation for the records of a file, if each gets an overlay.
    pub(crate) fn spare_of(&self, changes: &Frozen) -> u64 {
        let grain = self.grain();
        let spare = |(&offset, record): (&u64, &Record)| match record.reserve(
            grain,
            offset,
            changes.length_of(offset),
        ) {
            Reserve::Overlay { spare, .. } => spare,
            Reserve::Whole { .. } => 0,
        };
        changes.layer.records.iter().map(spare).sum()
    }

    /// The new content of a record: what is stored, cut, then written over. Reads what shows and
    /// nothing else.
    fn rebuild(
        &self,
        inode: InodeId,
        changes: &Frozen,
        offset: u64,
        below: Option<&Extent>,
    ) -> Result<Vec<u8>> {
        let end = offset + changes.length_of(offset);
        let mut content = vec![0; index(end - offset)];
        let wanted = std::iter::once(offset..end).collect();
        let missing = changes.layer.fill(changes.record_size, offset, &mut content, wanted);
        if let Some(extent) = below {
            // All but the first are fetched beside it, as for a reader.
            let mut shown: Vec<BlockPointer> = Vec::new();
            if let Extent::Overlaid(overlaid) = extent {
                let within = missing.iter().map(|range| range.start - offset..range.end - offset);
                let blocks = within.flat_map(|range| overlaid::parts(overlaid, &range));
                for (pointer, _) in blocks {
                    if shown.iter().all(|known| known.copies != pointer.copies) {
                        shown.push(pointer);
                    }
                }
            }
            if shown.len() > 1 {
                self.blocks.read_ahead(inode.0, &shown[1..], true);
            }
            for range in missing {
                let out = &mut content[index(range.start - offset)..index(range.end - offset)];
                self.fill_from_extent(inode, offset, extent, range, out)?;
            }
        }
        Ok(content)
    }

    /// Zeros at the end need not be stored, and a record of zeros is a hole: those that nobody
    /// wrote in any case, those that were written only where compression may take them (else a disk
    /// filled with zeros stays empty).
    pub(crate) fn without_zeros(&self, mut content: Content, record: Option<&Record>) -> Content {
        let written = record.map_or(0, |record| record.end().min(content.len()));
        content.length = self.length_without_zeros(&content, written);
        content
    }

    /// Stored length of a record whose first `written` bytes were written.
    pub(crate) fn length_without_zeros(&self, content: &[u8], written: usize) -> usize {
        let mut used = content.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        if !self.settings.read().zeros_are_holes {
            used = used.max(written);
        }
        if used == 0 || content.len() - used >= 4096 { used } else { content.len() }
    }
}
