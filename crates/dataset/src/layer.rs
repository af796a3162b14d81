//! One layer of changes to a file's content: data in records, and cuts.

use crate::RangeSet;
use crate::record::{Early, Growth, Packed, Record, Terms, index, len, pieces};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use steadfast_blockio::{BlockBytes, BlockPart};
use steadfast_device::Buffer;
use steadfast_format::extent::Extent;
use steadfast_format::{BlockPointer, Txg};

/// Changes of a file's content by one txg. Data wins over cuts of the same layer.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// By the offset at which the record begins.
    pub(crate) records: BTreeMap<u64, Record>,
    pub(crate) cuts: RangeSet,
    /// Records that became what a block holds which was there before, by the offset at which they
    /// begin. Data and cuts of the same layer win over them.
    pub(crate) shared: BTreeMap<u64, Shared>,
    /// Bytes of data in `records` and `shared`. A count, as each reply with attributes tells them.
    bytes: u64,
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

/// A run of bytes that was written, for readers that share it.
struct Written(Arc<Buffer>);

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Shared {
    /// The record's extent, if it came to be in `txg`.
    pub(crate) fn extent(&self, txg: Txg) -> Extent {
        Extent::Block { length: self.length, pointer: self.pointer.referred_in(txg) }
    }
}

impl Layer {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.cuts.is_empty() && self.shared.is_empty()
    }

    /// Bytes of data in it.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
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
            let follows = self.follows(terms.record_size, start);
            let new = || Record::new(terms.overlays.contains(&start));
            let record = self.records.entry(start).or_insert_with(new);
            let at = index(piece.start - offset);
            let bytes = &data[at..at + index(piece.end - piece.start)];
            self.stale.extend(record.spoil());
            let before = record.bytes();
            growth.memory += record.write(terms.record_size, follows, index(piece.start - start), bytes);
            self.bytes += record.bytes() - before;
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

    /// True if nothing of the record at `start` was written, and all of the one before it was.
    fn follows(&self, record_size: u64, start: u64) -> bool {
        let before = || start.checked_sub(record_size).and_then(|before| self.records.get(&before));
        !self.records.contains_key(&start) && before().is_some_and(|before| before.is_complete(record_size))
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
            self.bytes -= record.bytes();
            record.cut(index(range.start.saturating_sub(start)), index((range.end - start).min(record_size)));
            self.bytes += record.bytes();
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
        for start in gone {
            self.bytes -= self.shared.remove(&start).map_or(0, |shared| u64::from(shared.length));
        }
        self.cuts.insert(range);
    }

    /// Makes a record what a block holds, whatever was written or lies below.
    pub(crate) fn share(&mut self, record_size: u64, start: u64, shared: Shared) {
        if let Some(mut record) = self.records.remove(&start) {
            self.stale.extend(record.spoil());
            self.bytes -= record.bytes();
        }
        self.cuts.remove(start..start + record_size);
        self.bytes += u64::from(shared.length);
        self.bytes -= self.shared.insert(start, shared).map_or(0, |before| u64::from(before.length));
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

    /// Takes what this layer has of the ranges without a copy: each part with where it lies in the
    /// file. Gives the ranges of which it knows nothing; `None` if it has something that only a
    /// copy puts together.
    pub(crate) fn share_written(
        &self,
        record_size: u64,
        ranges: Vec<Range<u64>>,
        found: &mut Vec<(Range<u64>, Option<BlockPart>)>,
    ) -> Option<Vec<Range<u64>>> {
        if self.is_empty() {
            return Some(ranges);
        }
        let mut rest: Vec<Range<u64>> = Vec::new();
        for (start, piece) in ranges.into_iter().flat_map(|range| pieces(record_size, range)) {
            let (from, to) = (index(piece.start - start), index(piece.end - start));
            let chunks = self.records.get(&start).map(|record| &record.chunks);
            let chunk = chunks.and_then(|chunks| chunks.range(..=from).next_back());
            if let Some((&at, bytes)) = chunk.filter(|(at, bytes)| *at + bytes.len() >= to) {
                let part = BlockPart::new(BlockBytes::new(Written(Arc::clone(bytes))), from - at..to - at);
                found.push((piece, Some(part)));
            } else if self.touches(record_size, &piece) {
                return None;
            } else {
                match rest.last_mut() {
                    Some(last) if last.end == piece.start => last.end = piece.end,
                    _ => rest.push(piece),
                }
            }
        }
        Some(rest)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Grain, Reserve, overlay_space, record_space};

    const PLAIN: Grain = Grain { unit: 4096, sealed: false, copies: 1 };

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
                let data = plain.iter().filter(|byte| byte.is_some_and(|byte| byte > 0)).count();
                assert_eq!(layer.bytes(), data as u64, "round {round} step {step}");
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
    fn bytes_of_shared_records_count_until_they_are_cut_or_shared_again() {
        const RECORD: u64 = 16;
        let terms = Terms { record_size: RECORD, grain: PLAIN, overlays: &[] };
        let pointer = crate::plan::made_up(&[1; 16], Txg(3)).expect("it has bytes");
        let shared = |length| Shared { length, pointer };
        let mut layer = Layer::default();
        layer.write(terms, 64, 10, &[1; 20], |_| {});
        layer.share(RECORD, 0, shared(12));
        assert_eq!(layer.bytes(), 14 + 12, "the record's data is gone");
        layer.share(RECORD, 0, shared(5));
        assert_eq!(layer.bytes(), 14 + 5);
        layer.cut(RECORD, 0..18);
        assert_eq!(layer.bytes(), 12);
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
    fn a_record_behind_one_that_was_written_whole_gets_its_memory_at_once() {
        const RECORD: u64 = 1 << 17;
        let half = vec![1; 1 << 16];
        let terms = Terms { record_size: RECORD, grain: PLAIN, overlays: &[] };
        let mut layer = Layer::default();
        let memory = [0, 1, 2, 3, 7, 8]
            .map(|number| layer.write(terms, 8 * RECORD, number << 16, &half, |_| {}).memory >> 16);
        // A file's first record and one behind a gap may stay as short as they are.
        assert_eq!(memory, [1, 1, 2, 0, 1, 1]);
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
