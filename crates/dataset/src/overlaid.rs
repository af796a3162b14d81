//! # Records with overlays
//!
//! A small write into a large record is stored as an *overlay* beside the record's block, the
//! *base*, which is neither read nor written again. A record that has gathered much is *folded*:
//! put together, written as one block, and its base and overlays are freed.
//! docs/decisions/0040-overlays.md has the arithmetic.
//!
//! ## Definitions
//! *Visible*: a byte of a base or an overlay is visible if no later overlay covers it.
//! *Settled*: nothing of an extent can go without changing what is read: [`settled`]. *Waste* of an
//! extent: what its blocks store, or occupy, beyond what its visible bytes would in one block.
//!
//! ## Invariants
//! [overlay.1] A stored extent is settled: each of its blocks has a visible byte, at most one of
//!      its overlays is zeros (the last), and its length is the end of its last visible byte.
//!      `check`
//! [overlay.2] An overlay for which an operation reserved nothing but an overlay fits into its
//!      extent, whatever the sync under way adds before it ([`has_room`]). So sync never has to
//!      fold a record whose fold nobody reserved.
//! [overlay.3] A fold is written from what operations of its txg reserved: that of its record (as a
//!      rewrite of the whole), or what is spare of the others; or from a share of what nobody has
//!      reserved (`plan`, `fold`).
//! [overlay.4] Each block of an extent is freed once: when an extent without it replaces the
//!      extent.

use crate::RangeSet;
use crate::store::occupied;
use std::ops::Range;
use steadfast_blockio::Blocks;
use steadfast_format::extent::{Base, Extent, Overlaid};
use steadfast_format::overlay::Overlay;
use steadfast_format::{BlockPointer, InodeId, node};

/// Ranges of one overlay, at most: a record that was written in more pieces is folded.
pub(crate) const RANGES_MAX: usize = 16;

/// A threshold that nothing lowers.
pub(crate) const ROOMY: u64 = 32;

/// Bytes that one txg adds to an extent, at most: an overlay of bytes and one of zeros.
const TXG_BYTES_MAX: usize = Overlay::BLOCK_BYTES_MAX + 1 + 2 * Overlay::ranges_bytes_max(RANGES_MAX);

/// Bytes of an extent besides its overlays, at most: its head and its base.
const EXTENT_BYTES_MAX: usize = 32 + BlockPointer::ENCODED_SIZE;

/// By how much numbers in a pointer that is not known yet may be longer than those of a made-up
/// one.
const UNKNOWN_POINTER: usize = 64;

/// Bytes stored beyond what the record would be folded, in 32nds of that, at which it is folded:
/// least and greatest. Which one counts differs by record, so that records written at the same rate
/// are not all folded in the same txg.
const FOLD_STORED: Range<u64> = 16..41;

/// The same of bytes occupied, over the one of bytes stored: seals and small overlays fill units
/// badly, and that alone should not hasten folds until it is this much.
const FOLD_OCCUPIED: (u64, u64) = (5, 3);

/// A part of a record that one block gives.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Part {
    /// In the record.
    pub range: Range<u64>,
    /// Where it begins in the block.
    pub at: u64,
}

/// The blocks from which parts of `window` (of the record) come. The rest is zeros.
pub(crate) fn parts(overlaid: &Overlaid, window: &Range<u64>) -> Vec<(BlockPointer, Vec<Part>)> {
    let mut covered = RangeSet::default();
    let mut found = Vec::new();
    let clip = |range: &Range<u64>| range.start.max(window.start)..range.end.min(window.end);
    for overlay in overlaid.overlays.iter().rev() {
        let mut shown = Vec::new();
        let mut at = 0;
        for range in &overlay.ranges {
            let range = wide(range);
            let inside = clip(&range);
            if inside.start < inside.end {
                let gaps = covered.gaps(inside.clone()).into_iter();
                shown.extend(gaps.map(|gap| Part { at: at + gap.start - range.start, range: gap }));
                covered.insert(inside);
            }
            at += range.end - range.start;
        }
        if let Some(pointer) = overlay.block.filter(|_| !shown.is_empty()) {
            found.push((pointer, shown));
        }
    }
    if let Some(base) = &overlaid.base {
        let inside = clip(&(0..base.length.into()));
        if inside.start < inside.end {
            let gaps = covered.gaps(inside).into_iter();
            let shown: Vec<Part> = gaps.map(|gap| Part { at: gap.start, range: gap }).collect();
            if !shown.is_empty() {
                found.push((base.pointer, shown));
            }
        }
    }
    found
}

/// The same content without what nobody sees; `None` if nothing is left but zeros. [overlay.1]
pub(crate) fn settled(overlaid: Overlaid) -> Option<Extent> {
    let Overlaid { base, overlays, .. } = overlaid;
    let mut covered = RangeSet::default();
    let mut zeros = RangeSet::default();
    let mut kept = Vec::new();
    let mut length = 0;
    for overlay in overlays.into_iter().rev() {
        let visible: Vec<Range<u64>> =
            overlay.ranges.iter().flat_map(|range| covered.gaps(wide(range))).collect();
        overlay.ranges.iter().for_each(|range| covered.insert(wide(range)));
        let Some(end) = visible.last().map(|range| range.end) else { continue };
        if overlay.block.is_some() {
            length = length.max(end);
            kept.push((overlay, end));
        } else {
            visible.into_iter().for_each(|range| zeros.insert(range));
        }
    }
    kept.reverse();
    let shown = |base: Base| {
        let end = covered.gaps(0..base.length.into()).last()?.end;
        Some(Base { length: narrow(end), pointer: base.pointer })
    };
    let mut base = base.and_then(shown);
    if base.is_none()
        && let Some((Overlay { ranges, block: Some(pointer) }, end)) = kept.first()
        && ranges.len() == 1
        && ranges[0].start == 0
    {
        base = Some(Base { length: narrow(*end), pointer: *pointer });
        kept.remove(0);
    }
    length = length.max(base.map_or(0, |base| base.length.into()));
    // Zeros that no later overlay covers may as well be the last one; they count where something
    // lies below.
    let mut below = RangeSet::default();
    below.insert(0..base.map_or(0, |base| base.length.into()));
    kept.iter().flat_map(|(overlay, _)| &overlay.ranges).for_each(|range| below.insert(wide(range)));
    let zeros: Vec<Range<u32>> =
        zeros.iter().flat_map(|range| below.within(range).collect::<Vec<_>>()).map(|r| slim(&r)).collect();
    let mut overlays: Vec<Overlay> = kept.into_iter().map(|(overlay, _)| overlay).collect();
    if !zeros.is_empty() {
        overlays.push(Overlay { ranges: zeros, block: None });
    }
    match (base, overlays.is_empty()) {
        (None, true) => None,
        (Some(base), true) => Some(Extent::Block { length: base.length, pointer: base.pointer }),
        (_, false) => Some(Extent::Overlaid(Overlaid { length: narrow(length), base, overlays })),
    }
}

/// True if whatever the sync under way and the next one add to this extent fits into a leaf value.
/// [overlay.2]
pub(crate) fn has_room(value: &[u8]) -> bool {
    value.len() + 2 * TXG_BYTES_MAX <= node::VALUE_BYTES_MAX
}

/// True if an extent with a pointer that is made up fits into a leaf value with the real one.
pub(crate) fn fits(extent: &Extent) -> bool {
    if let Extent::Overlaid(overlaid) = extent {
        let most = |overlay: &Overlay| {
            Overlay::BLOCK_BYTES_MAX + 1 + Overlay::ranges_bytes_max(overlay.ranges.len())
        };
        let overlays: usize = overlaid.overlays.iter().map(most).sum();
        // Most have few overlays, and need not be encoded to be measured.
        if overlays + EXTENT_BYTES_MAX + UNKNOWN_POINTER <= node::VALUE_BYTES_MAX {
            return true;
        }
    }
    extent.encode().len() + UNKNOWN_POINTER <= node::VALUE_BYTES_MAX
}

/// Bytes of a record: occupied and stored by its blocks, and what it would store folded.
struct Sums {
    taken: u64,
    stored: u64,
    folded: u64,
}

impl Sums {
    fn of(blocks: &dyn Blocks, overlaid: &Overlaid) -> Sums {
        let (mut taken, mut stored, mut plain) = (0, 0, 0_u64);
        for pointer in overlaid.pointers() {
            taken += occupied(blocks, pointer);
            stored += u64::from(pointer.psize);
            plain += u64::from(pointer.lsize);
        }
        let length = u64::from(overlaid.length);
        // Holes become zeros.
        let content = if blocks.compresses() {
            let visible = parts(overlaid, &(0..length));
            visible.iter().flat_map(|(_, parts)| parts).map(|part| part.range.end - part.range.start).sum()
        } else {
            length
        };
        // As if it were compressed as it is now.
        Sums { taken, stored, folded: (content * stored).div_ceil(plain.max(1)) }
    }
}

/// True if a record takes more space when it is folded.
pub(crate) fn grows_by_folding(blocks: &dyn Blocks, overlaid: &Overlaid) -> bool {
    let Sums { taken, folded, .. } = Sums::of(blocks, overlaid);
    folded.next_multiple_of(blocks.unit().into()) > taken
}

/// True if a record wastes so much that it is worth folding, if so many 32nds are allowed of what
/// is else.
pub(crate) fn is_worth_folding(
    blocks: &dyn Blocks,
    inode: InodeId,
    offset: u64,
    extent: &Extent,
    allowed: u64,
) -> bool {
    let Extent::Overlaid(overlaid) = extent else { return false };
    let Sums { taken, stored, folded } = Sums::of(blocks, overlaid);
    let first = overlaid.pointers().next().map_or(0, |pointer| pointer.birth.0);
    let folded_units = folded.next_multiple_of(blocks.unit().into());
    let mixed =
        (inode.0 ^ offset.rotate_left(20) ^ first.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let limit = allowed * (FOLD_STORED.start + (mixed >> 32) % (FOLD_STORED.end - FOLD_STORED.start));
    let exceeds =
        |all: u64, folded: u64, limit: u64| all.saturating_sub(folded) * 32 * ROOMY > folded * limit;
    exceeds(stored, folded, limit) || exceeds(taken, folded_units, limit * FOLD_OCCUPIED.0 / FOLD_OCCUPIED.1)
}

fn wide(range: &Range<u32>) -> Range<u64> {
    range.start.into()..range.end.into()
}

fn narrow(at: u64) -> u32 {
    u32::try_from(at).expect("records are small")
}

/// A range of a record in the form overlays keep it.
pub(crate) fn slim(range: &Range<u64>) -> Range<u32> {
    narrow(range.start)..narrow(range.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockWrite, MemoryBlocks};
    use steadfast_format::{BlockKind, Txg};

    const LENGTH: usize = 96;

    /// Bytes as they are read.
    fn content(blocks: &MemoryBlocks, extent: Option<&Extent>, window: Range<usize>) -> Vec<u8> {
        let mut out = [0; LENGTH];
        match extent {
            None => {}
            Some(Extent::Block { length, pointer }) => {
                let length = *length as usize;
                out[..length].copy_from_slice(&blocks.read(pointer).expect("there")[..length]);
            }
            Some(Extent::Inline(_)) => unreachable!(),
            Some(Extent::Overlaid(overlaid)) => {
                for (pointer, parts) in parts(overlaid, &(window.start as u64..window.end as u64)) {
                    let bytes = blocks.read(&pointer).expect("there");
                    for part in parts {
                        let count = usize::try_from(part.range.end - part.range.start).expect("small");
                        let at = usize::try_from(part.at).expect("small");
                        let start = usize::try_from(part.range.start).expect("small");
                        out[start..start + count].copy_from_slice(&bytes[at..at + count]);
                    }
                }
            }
        }
        out[window].to_vec()
    }

    #[test]
    fn an_overlaid_record_equals_an_array_of_bytes() {
        let mut state = 7_u64;
        let mut draw = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from((state >> 33) % limit as u64).expect("small")
        };
        let blocks = MemoryBlocks::new();
        for round in 0..200 {
            let mut plain = [0_u8; LENGTH];
            let mut extent: Option<Extent> = None;
            for step in 0..30 {
                let mut overlaid = match extent.take() {
                    None => Overlaid::default(),
                    Some(Extent::Block { length, pointer }) => {
                        Overlaid { length, base: Some(Base { length, pointer }), overlays: Vec::new() }
                    }
                    Some(Extent::Overlaid(overlaid)) => overlaid,
                    Some(Extent::Inline(_)) => unreachable!(),
                };
                let mut ranges = RangeSet::default();
                for _ in 0..=draw(3) {
                    let start = draw(LENGTH);
                    ranges.insert(start as u64..(start + 1 + draw(20)).min(LENGTH) as u64);
                }
                let byte = u8::try_from(1 + draw(200)).expect("small");
                let zeros = draw(3) == 0;
                for range in ranges.iter() {
                    plain[usize::try_from(range.start).expect("small")
                        ..usize::try_from(range.end).expect("small")]
                        .fill(if zeros { 0 } else { byte });
                }
                let ranges: Vec<Range<u32>> = ranges.iter().map(|range| slim(&range)).collect();
                let count: u32 = ranges.iter().map(|range| range.end - range.start).sum();
                let block = (!zeros).then(|| {
                    let write = BlockWrite::new(BlockKind::Data, 0, vec![byte; count as usize]);
                    blocks.write_many(Txg(1), vec![write]).expect("written")[0]
                });
                overlaid.overlays.push(Overlay { ranges, block });
                extent = settled(overlaid);
                assert_eq!(content(&blocks, extent.as_ref(), 0..LENGTH), plain, "round {round} step {step}");
                let (from, to) = (draw(LENGTH / 2), LENGTH / 2 + draw(LENGTH / 2));
                if matches!(extent, Some(Extent::Overlaid(_))) {
                    assert_eq!(content(&blocks, extent.as_ref(), from..to), plain[from..to]);
                }
                let end = plain.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                assert_eq!(
                    extent.as_ref().map_or(0, Extent::length) as usize,
                    end,
                    "round {round} step {step}"
                );
                if let Some(Extent::Overlaid(overlaid)) = &extent {
                    let again = settled(overlaid.clone());
                    assert_eq!(again.as_ref(), extent.as_ref(), "[overlay.1] settled is settled");
                    let shown = parts(overlaid, &(0..LENGTH as u64)).len();
                    assert_eq!(shown, overlaid.pointers().count(), "[overlay.1] each block shows something");
                    let encoded = extent.as_ref().expect("some").encode();
                    assert_eq!(Extent::decode(&encoded).as_ref(), Ok(extent.as_ref().expect("some")));
                }
            }
        }
    }
}
