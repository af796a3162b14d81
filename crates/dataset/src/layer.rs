//! One layer of changes to a file's content: data in records, and cuts.

use crate::RangeSet;
use std::collections::BTreeMap;
use std::ops::Range;

/// What one txg changed of a file's content. Data wins over cuts of the same layer.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// By the offset at which the record begins.
    pub(crate) records: BTreeMap<u64, Record>,
    pub(crate) cuts: RangeSet,
}

/// The written parts of one record.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Disjoint, not adjacent; by offset in the record.
    chunks: BTreeMap<usize, Vec<u8>>,
    /// Bytes of space reserved for it.
    charged: u64,
}

/// What a change added to what is reserved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    pub(crate) memory: u64,
    pub(crate) space: u64,
}

/// Space that a record of `length` bytes takes in the worst case: padded to 4 KiB, its seal may open one more unit.
pub(crate) fn record_space(length: u64) -> u64 {
    length.next_multiple_of(4096) + 4096
}

impl Layer {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.cuts.is_empty()
    }

    /// Bytes of data in it.
    pub(crate) fn bytes(&self) -> u64 {
        let chunks = self.records.values().flat_map(Record::chunks);
        chunks.map(|(_, bytes)| len(bytes)).sum()
    }

    /// Writes `data` at `offset` of a file that is `size` bytes long afterwards.
    pub(crate) fn write(&mut self, record_size: u64, size: u64, offset: u64, data: &[u8]) -> Growth {
        let mut growth = Growth::default();
        for (start, piece) in pieces(record_size, offset..offset + len(data)) {
            let record = self.records.entry(start).or_default();
            let at = index(piece.start - offset);
            let bytes = &data[at..at + index(piece.end - piece.start)];
            growth.memory += record.write(index(piece.start - start), bytes);
            let space = record_space(record_size.min(size - start));
            if space > record.charged {
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
            record.cut(index(range.start.saturating_sub(start)), index((range.end - start).min(record_size)));
            if record.chunks.is_empty() {
                self.records.remove(&start);
            }
        }
        self.cuts.insert(range);
    }

    /// Fills what this layer knows of the `wanted` ranges into `out`, whose first byte is `base` of the file. Returns
    /// the ranges it knows nothing of.
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

    /// What lies at `at`: true for data, false for a cut, `None` for nothing; and up to where that holds.
    pub(crate) fn state_at(&self, record_size: u64, at: u64) -> (Option<bool>, u64) {
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
        self.chunks.iter().map(|(&at, bytes)| (at, bytes.as_slice()))
    }

    /// End of the last written part.
    pub(crate) fn end(&self) -> usize {
        self.chunks.last_key_value().map_or(0, |(&at, bytes)| at + bytes.len())
    }

    /// If the record is one run of bytes from its start, those.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        match self.chunks.first_key_value() {
            Some((0, bytes)) if self.chunks.len() == 1 => Some(bytes),
            _ => None,
        }
    }

    /// Returns the bytes of memory added.
    fn write(&mut self, offset: usize, data: &[u8]) -> u64 {
        let end = offset + data.len();
        // Sequential writes and overwrites extend a chunk that is there; anything else makes a new one.
        let (at, mut chunk) = match self.chunks.range_mut(..=offset).next_back() {
            Some((&at, bytes)) if at + bytes.len() >= offset => (at, std::mem::take(bytes)),
            _ => (offset, Vec::new()),
        };
        let before = chunk.len();
        let overlap = (chunk.len() - (offset - at)).min(data.len());
        chunk[offset - at..offset - at + overlap].copy_from_slice(&data[..overlap]);
        chunk.extend_from_slice(&data[overlap..]);
        let mut added = len(&chunk) - before as u64;
        // Chunks that the new end reaches become part of it.
        let reached: Vec<usize> = self.chunks.range(at + 1..=end).map(|(&at, _)| at).collect();
        for other in reached {
            let bytes = self.chunks.remove(&other).expect("just listed");
            let covered = (end - other).min(bytes.len());
            added -= covered as u64;
            chunk.extend_from_slice(&bytes[covered..]);
        }
        self.chunks.insert(at, chunk);
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
                self.chunks.insert(end, bytes[end - at..].to_vec());
            }
            if at < start {
                bytes.truncate(start - at);
                self.chunks.insert(at, bytes);
            }
        }
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

    #[test]
    fn a_layer_equals_an_array_of_bytes() {
        const RECORD: u64 = 16;
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
                    layer.write(RECORD, 80, start, &vec![byte; index(end - start)]);
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
        let mut layer = Layer::default();
        let first = layer.write(1 << 17, 4096, 0, &[1; 4096]);
        let again = layer.write(1 << 17, 4096, 0, &[2; 4096]);
        assert_eq!((first.memory, first.space), (4096, 8192));
        assert_eq!((again.memory, again.space), (0, 0));
    }
}
