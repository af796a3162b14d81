//! One record of a layer: its written parts, how far it is towards being stored, and the space that
//! is reserved for it.

use crate::overlaid::RANGES_MAX;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use steadfast_device::Buffer;
use steadfast_format::extent::Extent;
use steadfast_format::{BlockPointer, Compression};

/// The first bytes of a record as they came compressed.
#[derive(Debug)]
pub(crate) struct Packed {
    pub compression: Compression,
    pub bytes: Vec<u8>,
    /// Their length when they are not compressed.
    pub length: usize,
}

impl Packed {
    /// For content that is a part of the record, or all of it, and contains these bytes if it is as
    /// long as they.
    pub fn of(this: Option<&Arc<Packed>>, length: usize) -> Option<(Compression, &[u8])> {
        let packed = this.filter(|packed| packed.length == length)?;
        Some((packed.compression, &packed.bytes))
    }
}

/// The written parts of one record.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Disjoint, not adjacent; by offset in the record. An early write of the record shares a chunk
    /// meanwhile, and a change then makes another one.
    pub(crate) chunks: BTreeMap<usize, Arc<Buffer>>,
    /// Bytes in them together.
    bytes: u64,
    /// Bytes of space reserved for it.
    pub(crate) charged: u64,
    /// An overlay of it fits into its extent, whatever the sync under way does.
    pub(crate) overlay: bool,
    pub(crate) early: Early,
    /// Its bytes as they came compressed: they are one chunk, from its beginning. Gone with any
    /// change. [early.1]
    pub(crate) packed: Option<Arc<Packed>>,
}

/// How far a record has got towards being stored before its txg closes ([`crate::early`]).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Early {
    /// It is not complete.
    #[default]
    Not,
    /// It is complete and listed for being written early.
    Listed,
    /// It is being written.
    Writing,
    /// Its first so many bytes, behind which there are only zeros, are stored there.
    Stored(u32, BlockPointer),
    /// It was listed before and has changed since: it waits for its sync.
    Spent,
}

/// How blocks lie on devices, as far as reservations have to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grain {
    /// Allocation unit.
    pub(crate) unit: u64,
    /// Content is sealed.
    pub(crate) sealed: bool,
    /// How often a record is stored.
    pub(crate) copies: u64,
}

/// How a file is stored, as far as writes have to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) record_size: u64,
    pub(crate) grain: Grain,
    /// Records, by offset, that can be stored as overlays if they are new to the layer.
    pub(crate) overlays: &'a [u64],
}

/// Space reserved for a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reserve {
    /// Enough to write it whole.
    Whole {
        /// Rest of the reservation if it gets an overlay instead.
        beyond_overlay: u64,
    },
    /// An overlay, and something towards folds.
    Overlay {
        /// Rest of the reservation if it gets an overlay.
        spare: u64,
        /// Bytes missing to write it whole instead.
        missing: u64,
    },
}

/// Addition of a change to the reserved space.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    pub(crate) memory: u64,
    pub(crate) space: u64,
    /// Records that the layer had nothing of.
    pub(crate) records: u64,
}

/// Space that a record of `length` bytes takes in the worst case: padded to a unit, and a seal may
/// open one more. An incompressible record is stored as it is. All of that for each copy.
pub(crate) fn record_space(grain: Grain, length: u64) -> u64 {
    grain.copies * (length.next_multiple_of(grain.unit) + if grain.sealed { grain.unit } else { 0 })
}

/// Space that an overlay of so many bytes takes in the worst case. The first record may have bytes
/// in the tree itself that move into the overlay; they are no more than a unit.
pub(crate) fn overlay_space(grain: Grain, start: u64, bytes: u64) -> u64 {
    record_space(grain, bytes) + if start == 0 { grain.unit.max(Extent::INLINE_MAX as u64) } else { 0 }
}

impl Record {
    /// One without data.
    pub(crate) fn new(overlay: bool) -> Record {
        Record { overlay, ..Record::default() }
    }

    /// Space to be reserved for it, if it is `length` bytes long. An overlay and as much again,
    /// which lets sync fold about one record for each that it would take to fill one; or the whole
    /// record, if that is less or no overlay will do.
    pub(crate) fn space(&self, grain: Grain, start: u64, length: u64) -> u64 {
        let whole = record_space(grain, length);
        // Between the chunks of the first record there may be bytes of the tree itself.
        let ranges = if start == 0 { 2 * self.chunks.len() + 1 } else { self.chunks.len() };
        if !self.overlay || ranges > RANGES_MAX {
            return whole;
        }
        whole.min(2 * overlay_space(grain, start, self.bytes()))
    }

    /// Space to be reserved for it at a length of `length` bytes.
    pub(crate) fn reserve(&self, grain: Grain, start: u64, length: u64) -> Reserve {
        let (whole, overlay) = (record_space(grain, length), overlay_space(grain, start, self.bytes()));
        let beyond = self.charged.saturating_sub(overlay);
        if !self.overlay || self.charged >= whole {
            Reserve::Whole { beyond_overlay: beyond }
        } else {
            Reserve::Overlay { spare: beyond, missing: whole.saturating_sub(overlay) }
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Parts of `range` that were written.
    pub(crate) fn within(&self, range: Range<usize>) -> impl Iterator<Item = (usize, &[u8])> {
        let before = self.chunks.range(..=range.start).next_back().map_or(range.start, |(&at, _)| at);
        self.chunks.range(before..range.end.max(before)).filter_map(move |(&at, bytes)| {
            let (start, end) = (at.max(range.start), (at + bytes.len()).min(range.end));
            (start < end).then(|| (start, &bytes[start - at..end - at]))
        })
    }

    /// All written parts.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.chunks.iter().map(|(&at, bytes)| (at, &bytes[..]))
    }

    /// End of the last written part.
    pub(crate) fn end(&self) -> usize {
        self.chunks.last_key_value().map_or(0, |(&at, bytes)| at + bytes.len())
    }

    /// If the record is one run of bytes from its start, those.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        match self.chunks.first_key_value() {
            Some((0, bytes)) if self.chunks.len() == 1 => Some(&bytes[..]),
            _ => None,
        }
    }

    /// How its bytes came compressed, if they did.
    pub(crate) fn packed(&self) -> Option<Arc<Packed>> {
        self.packed.clone()
    }

    /// True if it is one run of `record_size` bytes.
    pub(crate) fn is_complete(&self, record_size: u64) -> bool {
        self.whole().is_some_and(|bytes| len(bytes) == record_size)
    }

    /// Where it is stored already, if it is, and how many bytes of it; what follows is zeros.
    pub(crate) fn stored_early(&self) -> Option<(u32, BlockPointer)> {
        match self.early {
            Early::Stored(length, pointer) => Some((length, pointer)),
            _ => None,
        }
    }

    /// The record changes, so its early block, stored or under way, is useless. Its reservation is
    /// worth that block, and the record is stored once more.
    pub(crate) fn spoil(&mut self) -> Option<BlockPointer> {
        self.packed = None;
        match std::mem::replace(&mut self.early, Early::Spent) {
            Early::Not => self.early = Early::Not,
            Early::Listed | Early::Spent => {}
            Early::Writing => self.charged = 0,
            Early::Stored(_, pointer) => {
                self.charged = 0;
                return Some(pointer);
            }
        }
        None
    }

    /// Returns the bytes of memory added. A record that `follows` one that was written whole gets
    /// memory for all of it with a write of half of it, as its writer goes on most likely.
    pub(crate) fn write(&mut self, record_size: u64, follows: bool, offset: usize, data: &[u8]) -> u64 {
        let end = offset + data.len();
        // Sequential writes and overwrites extend a chunk that is there; anything else makes a new
        // one.
        let (at, chunk) = match self.chunks.range_mut(..=offset).next_back() {
            Some((&at, bytes)) if at + bytes.len() >= offset => (at, std::mem::take(bytes)),
            _ => (offset, Arc::default()),
        };
        // An early write of the record keeps its own reference to the chunk.
        let mut bytes = Arc::try_unwrap(chunk).unwrap_or_else(|shared| Buffer::clone(&shared));
        let (mut before, mut replaced) = (bytes.capacity(), len(&bytes));
        // Chunks that the new end reaches become part of it.
        let reached: Vec<usize> = self.chunks.range(at + 1..=end).map(|(&at, _)| at).collect();
        let reached: Vec<(usize, Arc<Buffer>)> =
            reached.into_iter().filter_map(|at| self.chunks.remove_entry(&at)).collect();
        let last = reached.last().map_or(0, |(at, next)| at + next.len());
        let (needed, most) = (end.max(last) - at, index(record_size) - at);
        let takes_all = follows && data.len() >= most / 2;
        make_room(&mut bytes, if takes_all { most } else { needed }, most);
        let overlap = (bytes.len() - (offset - at)).min(data.len());
        bytes[offset - at..offset - at + overlap].copy_from_slice(&data[..overlap]);
        bytes.extend(&data[overlap..]);
        for (other, next) in reached {
            before += next.capacity();
            replaced += len(&next);
            let covered = (end - other).min(next.len());
            bytes.extend(&next[covered..]);
        }
        let added = bytes.capacity().saturating_sub(before) as u64;
        self.bytes = self.bytes + len(&bytes) - replaced;
        self.chunks.insert(at, Arc::new(bytes));
        added
    }

    pub(crate) fn cut(&mut self, start: usize, end: usize) {
        let touched: Vec<usize> = self
            .chunks
            .range(..end)
            .rev()
            .take_while(|(at, bytes)| *at + bytes.len() > start)
            .map(|(&at, _)| at)
            .collect();
        for at in touched {
            let mut bytes = self.chunks.remove(&at).expect("just listed");
            self.bytes -= (at + bytes.len()).min(end) as u64 - at.max(start) as u64;
            if at + bytes.len() > end {
                self.chunks.insert(end, Arc::new(Buffer::from(bytes[end - at..].to_vec())));
            }
            if at < start {
                Arc::make_mut(&mut bytes).resize(start - at);
                self.chunks.insert(at, bytes);
            }
        }
    }
}

/// Sees to it that `bytes`, which will not become longer than `most`, can become `needed` bytes
/// long.
fn make_room(bytes: &mut Buffer, needed: usize, most: usize) {
    if needed > bytes.capacity() {
        // A buffer that grows once will grow again.
        let room = if bytes.is_empty() { needed } else { needed.max(2 * bytes.capacity()).min(most) };
        let mut larger = Buffer::with_room(room);
        larger.extend(bytes);
        *bytes = larger;
    }
}

/// Cuts a range at record boundaries: start of the record, and the part of the range in it.
pub(crate) fn pieces(record_size: u64, range: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let start = at / record_size * record_size;
        let piece = at..(start + record_size).min(range.end);
        at = piece.end;
        Some((start, piece))
    })
}

/// A position within one call's buffer or one record.
pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).expect("within a buffer")
}

pub(crate) fn len(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}
