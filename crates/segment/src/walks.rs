//! Walks: readers that go through segments in the order in which these were written, and how far
//! to read ahead of each ([`crate::chunks`] has the theory).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

use steadfast_format::SegmentId;

use crate::chunks::{CHUNK, Next, Source};

/// Walks that are told apart: those of as many readers at once, each of whom would otherwise ask
/// for small parts again as soon as there are more.
const WALKS_MAX: usize = 1024;
/// Window of a walk through content that had to wait once, and its growth each time it waits again:
/// 32 MiB are under way after four round trips. From 256 KiB on, and twice as much each time, they
/// were after eight, which is as long as 256 MB take at 640 MB/s and 50 ms.
const CONTENT_FIRST: u32 = 1 << 20;
const CONTENT_GROWTH: u64 = 4;
/// A window is asked for in so many transfers at least, so that a line is never idle between two.
/// Where readers fill a line together, none has to see to that alone.
const TRANSFERS_LEAST: u64 = 8;
/// Segments that are passed over in a search for the next one with something in it.
const EMPTY_MAX: usize = 8;

/// A reader.
struct Walk {
    /// Its segment, and the bytes of that.
    segment: SegmentId,
    end: u32,
    /// End of its furthest read.
    next: u32,
    /// End of the last chunk that a reader had to wait for.
    waited: u32,
    /// Bytes to be here or under way ahead of it.
    window: u64,
    /// Segments behind its own that were asked for.
    coming: VecDeque<Source>,
    /// The last of these, or its own.
    tail: Source,
    /// First chunk of it that was not asked for.
    ahead: u32,
    /// It reads what was read before, and went.
    is_again: bool,
    /// When it was last seen.
    seen: u64,
}

impl Walk {
    /// Bytes that were asked for ahead of the reader.
    fn ahead_bytes(&self) -> u64 {
        let asked = self.ahead.saturating_mul(CHUNK).min(self.tail.end);
        if self.coming.is_empty() {
            return u64::from(asked.saturating_sub(self.next));
        }
        let between = self.coming.iter().take(self.coming.len() - 1);
        let whole: u64 = between.map(|source| u64::from(source.end)).sum();
        u64::from(self.end.saturating_sub(self.next)) + whole + u64::from(asked)
    }
}

/// Chunks to be asked for.
pub(crate) struct Advance {
    pub source: Source,
    pub first: u32,
    pub chunks: u32,
}

/// Walks under way.
#[derive(Default)]
pub(crate) struct Walks {
    known: Vec<Walk>,
    /// Those that are in a segment, or asked for it.
    in_segment: HashMap<SegmentId, Vec<usize>>,
    /// All by when they were last seen.
    by_age: BTreeMap<u64, usize>,
    now: u64,
}

impl Walks {
    /// Notes a read that has to wait, or not. Gives its walk, and whether that was known.
    pub(crate) fn note(
        &mut self,
        source: &Source,
        range: Range<u32>,
        waits: bool,
        window_max: u64,
    ) -> (usize, bool) {
        self.now += 1;
        let segment = source.place.segment;
        let slack = CHUNK.saturating_add((range.end - range.start).saturating_mul(8));
        let is_near = |at: &&usize| {
            let walk = &self.known[**at];
            walk.segment == segment && walk.next.abs_diff(range.start) <= slack
        };
        let is_coming = |at: &&usize| self.known[**at].segment != segment;
        let here = self.in_segment.get(&segment).map_or(&[][..], Vec::as_slice);
        let known = here.iter().find(is_near).or_else(|| here.iter().find(is_coming)).copied();
        let Some(at) = known else { return (self.begin(source, &range), false) };
        let walk = &mut self.known[at];
        if walk.segment == segment {
            walk.next = walk.next.max(range.end);
        } else {
            while walk.segment != segment
                && let Some(source) = walk.coming.pop_front()
            {
                leave(&mut self.in_segment, walk.segment, at);
                (walk.segment, walk.end) = (source.place.segment, source.end);
            }
            (walk.next, walk.waited) = (range.end, 0);
        }
        if walk.coming.is_empty() {
            walk.ahead = walk.ahead.max(range.end.div_ceil(CHUNK));
        }
        // Those that wait for one chunk together wait once.
        if waits && range.end > walk.waited {
            walk.waited = range.end.next_multiple_of(CHUNK);
            let (least, growth) =
                if source.is_metadata { (CHUNK, 2) } else { (CONTENT_FIRST, CONTENT_GROWTH) };
            walk.window = (growth * walk.window).max(u64::from(least)).min(window_max);
        }
        self.by_age.remove(&walk.seen);
        self.by_age.insert(self.now, at);
        walk.seen = self.now;
        (at, true)
    }

    fn begin(&mut self, source: &Source, range: &Range<u32>) -> usize {
        let walk = Walk {
            segment: source.place.segment,
            end: source.end,
            next: range.end,
            waited: range.end.next_multiple_of(CHUNK),
            window: 0,
            coming: VecDeque::new(),
            tail: source.clone(),
            ahead: range.end.div_ceil(CHUNK),
            is_again: false,
            seen: self.now,
        };
        let at = if self.known.len() < WALKS_MAX {
            self.known.push(walk);
            self.known.len() - 1
        } else {
            let (_, oldest) = self.by_age.pop_first().expect("some are known");
            let gone = std::mem::replace(&mut self.known[oldest], walk);
            let coming = gone.coming.iter().map(|source| source.place.segment);
            for segment in coming.chain([gone.segment]) {
                leave(&mut self.in_segment, segment, oldest);
            }
            oldest
        };
        self.by_age.insert(self.now, at);
        self.in_segment.entry(source.place.segment).or_default().push(at);
        at
    }

    /// Chunks from one on that are to be asked for next, if it is the one behind the reader's.
    pub(crate) fn room_at(&self, at: usize, segment: SegmentId, first: u32) -> u32 {
        let walk = &self.known[at];
        if walk.tail.place.segment != segment || walk.ahead != first {
            return 0;
        }
        let room = walk.window.saturating_sub(walk.ahead_bytes()) / u64::from(CHUNK);
        u32::try_from(room).unwrap_or(u32::MAX).min(walk.tail.chunks().saturating_sub(first))
    }

    /// The next chunks to be asked for, if the window of a walk has room for them.
    pub(crate) fn advance(
        &mut self,
        at: usize,
        (least, most): (u32, u32),
        is_line_full: bool,
        next: &Next<'_>,
    ) -> Option<Advance> {
        let walk = &mut self.known[at];
        let transfers = if is_line_full { 1 } else { TRANSFERS_LEAST };
        let share = u32::try_from(walk.window / transfers / u64::from(CHUNK)).unwrap_or(most);
        let most = share.clamp(least, most);
        let room = walk.window.saturating_sub(walk.ahead_bytes());
        // In steps of a transfer, or of half a small window.
        let step = (walk.window / 2).clamp(u64::from(CHUNK), u64::from(most * CHUNK));
        if room < step {
            return None;
        }
        for _ in 0..EMPTY_MAX {
            if walk.ahead < walk.tail.chunks() {
                break;
            }
            let source = next(walk.tail.place.segment)?;
            self.in_segment.entry(source.place.segment).or_default().push(at);
            walk.coming.push_back(source.clone());
            (walk.tail, walk.ahead) = (source, 0);
        }
        let wanted = u32::try_from(room.div_ceil(u64::from(CHUNK))).unwrap_or(most);
        let chunks = most.min(wanted).min(walk.tail.chunks().saturating_sub(walk.ahead));
        if chunks == 0 {
            return None;
        }
        let first = walk.ahead;
        walk.ahead += chunks;
        Some(Advance { source: walk.tail.clone(), first, chunks })
    }

    /// Its reader wants what was read before: all ahead of it is wanted again.
    pub(crate) fn read_again(&mut self, at: usize) {
        self.known[at].is_again = true;
    }

    pub(crate) fn reads_again(&self, at: usize) -> bool {
        self.known[at].is_again
    }

    /// There was no room from a chunk on.
    pub(crate) fn fall_back(&mut self, walk: usize, segment: SegmentId, chunk: u32) {
        let walk = &mut self.known[walk];
        if walk.tail.place.segment == segment {
            walk.ahead = chunk;
        }
    }
}

#[cfg(test)]
impl Walks {
    /// Each walk is found by each of its segments, and by its age, and nothing else is.
    pub(crate) fn check(&self) {
        let mut expected: Vec<(SegmentId, usize)> = Vec::new();
        for (at, walk) in self.known.iter().enumerate() {
            expected.push((walk.segment, at));
            expected.extend(walk.coming.iter().map(|source| (source.place.segment, at)));
            assert_eq!(self.by_age.get(&walk.seen), Some(&at));
        }
        let listed = self.in_segment.iter().flat_map(|(id, walks)| walks.iter().map(|at| (*id, *at)));
        let mut listed: Vec<_> = listed.collect();
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected);
        assert_eq!(self.by_age.len(), self.known.len());
    }
}

/// A walk is in a segment no more.
fn leave(in_segment: &mut HashMap<SegmentId, Vec<usize>>, segment: SegmentId, walk: usize) {
    if let Some(walks) = in_segment.get_mut(&segment) {
        walks.retain(|at| *at != walk);
        if walks.is_empty() {
            in_segment.remove(&segment);
        }
    }
}
