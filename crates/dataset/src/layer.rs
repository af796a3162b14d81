//! One layer of changes to a file's content: data in records, and cuts.

use crate::RangeSet;
use crate::overlaid::RANGES_MAX;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use steadfast_device::Buffer;
use steadfast_format::extent::Extent;
use steadfast_format::{BlockPointer, Compression, Txg};

/// Changes of a file's content by one txg. Data wins over cuts of the same layer.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// By the offset at which the record begins.
    pub(crate) records: BTreeMap<u64, Record>,
    pub(crate) cuts: RangeSet,
    /// Records that became what a block holds which was there before, by the offset at which they
    /// begin. Data and cuts of the same layer win over them.
    pub(crate) shared: BTreeMap<u64, Shared>,
    /// Blocks written early of records that were changed or cut afterwards: nothing refers to them,
    /// and the sync of this layer frees them.
    pub(crate) stale: Vec<BlockPointer>,
}

/// A record that refers to a block of another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    /// Bytes of it that count; behind them are zeros.
    pub(crate) length: u32,
    /// The other record's pointer.
    pub(crate) pointer: BlockPointer,
}

impl Shared {
    /// The record's extent, if it came to be in `txg`.
    pub(crate) fn extent(&self, txg: Txg) -> Extent {
        Extent::Block { length: self.length, pointer: self.pointer.referred_in(txg) }
    }
}

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
    chunks: BTreeMap<usize, Arc<Buffer>>,
    /// Bytes of space reserved for it.
    charged: u64,
    /// An overlay of it fits into its extent, whatever the sync under way does.
    overlay: bool,
    early: Early,
    /// Its bytes as they came compressed: they are one chunk, from its beginning. Gone with any
    /// change. [early.1]
    packed: Option<Arc<Packed>>,
}

/// How far a record has got towards being stored before its txg closes ([`crate::early`]).
#[derive(Clone, Copy, Debug, Default)]
enum Early {
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
/// open one more. An incompressible record is stored as it is.
pub(crate) fn record_space(grain: Grain, length: u64) -> u64 {
    length.next_multiple_of(grain.unit) + if grain.sealed { grain.unit } else { 0 }
}

/// Space that an overlay of so many bytes takes in the worst case. The first record may have bytes
/// in the tree itself that move into the overlay; they are no more than a unit.
fn overlay_space(grain: Grain, start: u64, bytes: u64) -> u64 {
    record_space(grain, bytes) + if start == 0 { grain.unit.max(Extent::INLINE_MAX as u64) } else { 0 }
}

impl Layer {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.cuts.is_empty() && self.shared.is_empty()
    }

    /// Bytes of data in it.
    pub(crate) fn bytes(&self) -> u64 {
        let shared = self.shared.values().map(|shared| u64::from(shared.length));
        self.records.values().map(Record::bytes).chain(shared).sum()
    }

    /// Writes `data` at `offset` of a file that is `size` bytes long afterwards. `complete` hears
    /// of each record that is to be listed for being written early.
    pub(crate) fn write(
        &mut self,
        terms: Terms<'_>,
        size: u64,
        offset: u64,
        data: &[u8],
        mut complete: impl FnMut(u64),
    ) -> Growth {
        let mut growth = Growth::default();
        for (start, piece) in pieces(terms.record_size, offset..offset + len(data)) {
            let new = || Record { overlay: terms.overlays.contains(&start), ..Record::default() };
            let record = self.records.entry(start).or_insert_with(new);
            let at = index(piece.start - offset);
            let bytes = &data[at..at + index(piece.end - piece.start)];
            self.stale.extend(record.spoil());
            growth.memory += record.write(terms.record_size, index(piece.start - start), bytes);
            if matches!(record.early, Early::Not) && record.is_complete(terms.record_size) {
                record.early = Early::Listed;
                complete(start);
            }
            let space = record.space(terms.grain, start, terms.record_size.min(size - start));
            if space > record.charged {
                growth.records += u64::from(record.charged == 0);
                growth.space += space - record.charged;
                record.charged = space;
            }
        }
        growth
    }

    /// Makes a range read as zeros, whatever was written or lies below.
    pub(crate) fn cut(&mut self, record_size: u64, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = range.start / record_size * record_size;
        let starts: Vec<u64> = self.records.range(first..range.end).map(|(&start, _)| start).collect();
        for start in starts {
            let record = self.records.get_mut(&start).expect("just listed");
            self.stale.extend(record.spoil());
            record.cut(index(range.start.saturating_sub(start)), index((range.end - start).min(record_size)));
            if record.chunks.is_empty() {
                self.records.remove(&start);
            }
        }
        let gone: Vec<u64> = self
            .shared
            .range(range.start..range.end)
            .filter(|(start, _)| *start + record_size <= range.end)
            .map(|(&start, _)| start)
            .collect();
        gone.iter().for_each(|start| _ = self.shared.remove(start));
        self.cuts.insert(range);
    }

    /// Makes a record what a block holds, whatever was written or lies below.
    pub(crate) fn share(&mut self, record_size: u64, start: u64, shared: Shared) {
        if let Some(mut record) = self.records.remove(&start) {
            self.stale.extend(record.spoil());
        }
        self.cuts.remove(start..start + record_size);
        self.shared.insert(start, shared);
    }

    /// Divides ranges of which neither data nor cuts of this layer know anything into those that
    /// shared records have, with where these begin, and the rest.
    pub(crate) fn split_shared(
        &self,
        record_size: u64,
        ranges: Vec<Range<u64>>,
        found: &mut Vec<(Range<u64>, u64, Shared)>,
    ) -> Vec<Range<u64>> {
        if self.shared.is_empty() {
            return ranges;
        }
        let mut rest: Vec<Range<u64>> = Vec::new();
        for (start, piece) in ranges.into_iter().flat_map(|range| pieces(record_size, range)) {
            match self.shared.get(&start) {
                Some(shared) => found.push((piece, start, *shared)),
                None => match rest.last_mut() {
                    Some(last) if last.end == piece.start => last.end = piece.end,
                    _ => rest.push(piece),
                },
            }
        }
        rest
    }

    /// True if what this layer has at `at` is a shared record's.
    pub(crate) fn is_shared(&self, record_size: u64, at: u64) -> bool {
        self.shared.contains_key(&(at / record_size * record_size))
            && self.own_state_at(record_size, at).0.is_none()
    }

    /// True if the layer changes something in `range`.
    pub(crate) fn touches(&self, record_size: u64, range: &Range<u64>) -> bool {
        let first = range.start / record_size * record_size;
        let known = |(state, until): (Option<bool>, u64)| state.is_some() || until < range.end;
        self.shared.range(first..range.end).next().is_some() || known(self.state_at(record_size, range.start))
    }

    /// Fills what this layer knows of the `wanted` ranges into `out`, whose first byte is `base` of
    /// the file. Returns the ranges it knows nothing of.
    pub(crate) fn fill(
        &self,
        record_size: u64,
        base: u64,
        out: &mut [u8],
        wanted: Vec<Range<u64>>,
    ) -> Vec<Range<u64>> {
        if self.is_empty() {
            return wanted;
        }
        let mut missing = Vec::new();
        for range in wanted {
            let mut gap = range.start;
            for (start, piece) in pieces(record_size, range.clone()) {
                let Some(record) = self.records.get(&start) else { continue };
                for (at, bytes) in record.within(index(piece.start - start)..index(piece.end - start)) {
                    let at = start + at as u64;
                    self.fill_gap(gap..at, base, out, &mut missing);
                    let place = index(at - base);
                    out[place..place + bytes.len()].copy_from_slice(bytes);
                    gap = at + len(bytes);
                }
            }
            self.fill_gap(gap..range.end, base, out, &mut missing);
        }
        missing
    }

    fn fill_gap(&self, gap: Range<u64>, base: u64, out: &mut [u8], missing: &mut Vec<Range<u64>>) {
        if gap.is_empty() {
            return;
        }
        for zeros in self.cuts.within(gap.clone()) {
            out[index(zeros.start - base)..index(zeros.end - base)].fill(0);
        }
        missing.extend(self.cuts.gaps(gap));
    }

    /// Kind of the byte at `at`: true for data, false for a cut, `None` for nothing; and the end
    /// of the range for which that holds.
    pub(crate) fn state_at(&self, record_size: u64, at: u64) -> (Option<bool>, u64) {
        let (state, until) = self.own_state_at(record_size, at);
        if state.is_some() || self.shared.is_empty() {
            return (state, until);
        }
        let start = at / record_size * record_size;
        match self.shared.get(&start).map(|shared| start + u64::from(shared.length)) {
            Some(end) if at < end => (Some(true), until.min(end)),
            Some(_) => (Some(false), until.min(start + record_size)),
            None => {
                let next = self.shared.range(at..).next().map_or(u64::MAX, |(&start, _)| start);
                (None, until.min(next))
            }
        }
    }

    /// The same, of data and cuts.
    fn own_state_at(&self, record_size: u64, at: u64) -> (Option<bool>, u64) {
        let next_data = self.next_data(record_size, at);
        match next_data {
            Some(data) if data.contains(&at) => (Some(true), data.end),
            _ => {
                let data = next_data.map_or(u64::MAX, |data| data.start);
                match self.cuts.containing(at) {
                    Some(cut) => (Some(false), cut.end.min(data)),
                    None => (None, data.min(self.cuts.next_start(at).unwrap_or(u64::MAX))),
                }
            }
        }
    }

    /// Notes that the bytes just written from the beginning of the record at `start` arrived in
    /// this compressed form. Returns the bytes of memory that are kept.
    pub(crate) fn came_packed(&mut self, start: u64, packed: Packed) -> u64 {
        let is_all = |record: &&mut Record| record.whole().is_some_and(|whole| whole.len() == packed.length);
        let Some(record) = self.records.get_mut(&start).filter(is_all) else { return 0 };
        let kept = len(&packed.bytes);
        record.packed = Some(Arc::new(packed));
        kept
    }

    /// The bytes of a record that is listed for being written early and has not changed since, and
    /// how they came compressed.
    pub(crate) fn begin_early(&mut self, start: u64) -> Option<(Arc<Buffer>, Option<Arc<Packed>>)> {
        let record = self.records.get_mut(&start).filter(|record| matches!(record.early, Early::Listed))?;
        record.early = Early::Writing;
        let (_, chunk) = record.chunks.first_key_value().expect("a complete record has bytes");
        Some((Arc::clone(chunk), record.packed.take()))
    }

    /// Ends an early write that began with [`Layer::begin_early`]: the first `length` bytes of
    /// `chunk` are stored at `pointer`, and only zeros follow. If the record has changed since,
    /// the write was useless.
    pub(crate) fn end_early(&mut self, start: u64, chunk: &Arc<Buffer>, stored: Option<(u32, BlockPointer)>) {
        let record = self.records.get_mut(&start).filter(|record| matches!(record.early, Early::Writing));
        match (record, stored) {
            (Some(record), Some((length, pointer))) => {
                let same = record.chunks.values().all(|now| Arc::ptr_eq(now, chunk));
                assert!(same, "[early.1] a record that is being written early changes by `spoil` only");
                record.early = Early::Stored(length, pointer);
            }
            (Some(record), None) => record.early = Early::Spent,
            (None, stored) => self.stale.extend(stored.map(|(_, pointer)| pointer)),
        }
    }

    /// Every block written early for it, which nothing will refer to.
    pub(crate) fn take_early(&mut self) -> Vec<BlockPointer> {
        let mut taken = std::mem::take(&mut self.stale);
        taken.extend(self.records.values_mut().filter_map(Record::spoil));
        taken
    }

    /// The first chunk that ends above `at`.
    fn next_data(&self, record_size: u64, at: u64) -> Option<Range<u64>> {
        let first = at / record_size * record_size;
        self.records.range(first..).find_map(|(&start, record)| {
            record
                .chunks
                .iter()
                .map(|(&offset, bytes)| start + offset as u64..start + (offset + bytes.len()) as u64)
                .find(|range| range.end > at)
        })
    }
}

impl Record {
    /// Space to be reserved for it, if it is `length` bytes long. An overlay and as much again,
    /// which lets sync fold about one record for each that it would take to fill one; or the whole
    /// record, if that is less or no overlay will do.
    fn space(&self, grain: Grain, start: u64, length: u64) -> u64 {
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

    fn bytes(&self) -> u64 {
        self.chunks.values().map(|bytes| len(bytes)).sum()
    }

    /// Parts of `range` that were written.
    fn within(&self, range: Range<usize>) -> impl Iterator<Item = (usize, &[u8])> {
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
    fn is_complete(&self, record_size: u64) -> bool {
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
    fn spoil(&mut self) -> Option<BlockPointer> {
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

    /// Returns the bytes of memory added.
    fn write(&mut self, record_size: u64, offset: usize, data: &[u8]) -> u64 {
        let end = offset + data.len();
        // Sequential writes and overwrites extend a chunk that is there; anything else makes a new
        // one.
        let (at, chunk) = match self.chunks.range_mut(..=offset).next_back() {
            Some((&at, bytes)) if at + bytes.len() >= offset => (at, std::mem::take(bytes)),
            _ => (offset, Arc::default()),
        };
        // An early write of the record keeps its own reference to the chunk.
        let mut bytes = Arc::try_unwrap(chunk).unwrap_or_else(|shared| Buffer::clone(&shared));
        let mut before = bytes.capacity();
        // Chunks that the new end reaches become part of it.
        let reached: Vec<usize> = self.chunks.range(at + 1..=end).map(|(&at, _)| at).collect();
        let reached: Vec<(usize, Arc<Buffer>)> =
            reached.into_iter().filter_map(|at| self.chunks.remove_entry(&at)).collect();
        let last = reached.last().map_or(0, |(at, next)| at + next.len());
        make_room(&mut bytes, end.max(last) - at, index(record_size) - at);
        let overlap = (bytes.len() - (offset - at)).min(data.len());
        bytes[offset - at..offset - at + overlap].copy_from_slice(&data[..overlap]);
        bytes.extend(&data[overlap..]);
        for (other, next) in reached {
            before += next.capacity();
            let covered = (end - other).min(next.len());
            bytes.extend(&next[covered..]);
        }
        let added = bytes.capacity().saturating_sub(before) as u64;
        self.chunks.insert(at, Arc::new(bytes));
        added
    }

    fn cut(&mut self, start: usize, end: usize) {
        let touched: Vec<usize> = self
            .chunks
            .range(..end)
            .rev()
            .take_while(|(at, bytes)| *at + bytes.len() > start)
            .map(|(&at, _)| at)
            .collect();
        for at in touched {
            let mut bytes = self.chunks.remove(&at).expect("just listed");
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

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Grain = Grain { unit: 4096, sealed: false };

    #[test]
    fn a_layer_equals_an_array_of_bytes() {
        const RECORD: u64 = 16;
        let terms = Terms { record_size: RECORD, grain: PLAIN, overlays: &[] };
        let mut state = 99_u64;
        let mut draw = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        for round in 0..300 {
            let mut layer = Layer::default();
            // None: not there; Some(byte): data or zero.
            let mut plain: Vec<Option<u8>> = vec![None; 80];
            for step in 0..25 {
                let start = draw(80);
                let end = (start + 1 + draw(30)).min(80);
                let byte = u8::try_from(1 + draw(200)).expect("small");
                let cut = draw(3) == 0;
                if cut {
                    layer.cut(RECORD, start..end);
                } else {
                    layer.write(terms, 80, start, &vec![byte; index(end - start)], |_| {});
                }
                plain[index(start)..index(end)].fill(Some(if cut { 0 } else { byte }));
                let mut out = vec![255; 80];
                let (from, to) = (draw(40), 41 + draw(39));
                let wanted = std::iter::once(from..to).collect();
                let missing = layer.fill(RECORD, 0, &mut out, wanted);
                let missing: Vec<u64> = missing.into_iter().flatten().collect();
                for at in from..to {
                    let expected = plain[index(at)];
                    assert_eq!(
                        missing.contains(&at),
                        expected.is_none(),
                        "round {round} step {step} byte {at}"
                    );
                    assert_eq!(
                        out[index(at)],
                        expected.unwrap_or(255),
                        "round {round} step {step} byte {at}"
                    );
                    let (is_data, until) = layer.state_at(RECORD, at);
                    assert!(until > at);
                    match (is_data, expected) {
                        (Some(true), Some(byte)) => assert_ne!(byte, 0),
                        (Some(false), expected) => assert_eq!(expected, Some(0)),
                        (None, None) => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn rewriting_the_same_bytes_costs_memory_once() {
        let terms = Terms { record_size: 1 << 17, grain: PLAIN, overlays: &[] };
        let mut layer = Layer::default();
        let first = layer.write(terms, 4096, 0, &[1; 4096], |_| {});
        let again = layer.write(terms, 4096, 0, &[2; 4096], |_| {});
        assert_eq!((first.memory, first.space), (4096, 4096));
        assert_eq!((again.memory, again.space), (0, 0));
        let sealed = Terms { grain: Grain { sealed: true, ..PLAIN }, ..terms };
        let first = Layer::default().write(sealed, 4096, 0, &[1; 4096], |_| {});
        assert_eq!((first.memory, first.space), (4096, 8192), "the seal opens another unit");
    }

    #[test]
    fn what_is_reserved_covers_an_overlay_or_the_whole_and_never_more_than_the_whole() {
        const RECORD: u64 = 1 << 17;
        for grain in [PLAIN, Grain { sealed: true, ..PLAIN }] {
            let whole = record_space(grain, RECORD);
            let terms = Terms { record_size: RECORD, grain, overlays: &[RECORD] };
            let mut layer = Layer::default();
            let mut reserved = 0;
            for page in 0..32_u64 {
                // Every other page first, then the gaps: more and more ranges, then one.
                let at = RECORD + (page % 16 * 2 + page / 16) * 4096;
                reserved += layer.write(terms, 4 * RECORD, at, &[1; 4096], |_| {}).space;
                let needed = overlay_space(grain, RECORD, (page + 1) * 4096);
                match layer.records[&RECORD].reserve(grain, RECORD, RECORD) {
                    Reserve::Overlay { spare, missing } => {
                        assert!(reserved < whole && reserved >= needed);
                        assert_eq!((spare, missing), (reserved - needed, whole - needed));
                    }
                    Reserve::Whole { beyond_overlay } => {
                        assert_eq!((reserved, beyond_overlay), (whole, whole.saturating_sub(needed)));
                    }
                }
            }
            assert_eq!(reserved, whole);
            let other = layer.write(terms, 4 * RECORD, 0, &[1; 4096], |_| {});
            assert_eq!(other.space, whole, "nobody said that an overlay will do");
        }
    }
}
