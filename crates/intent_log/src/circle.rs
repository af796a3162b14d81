//! The circle: groups are written round and round over the log's segments.

use std::collections::VecDeque;

use steadfast_format::Txg;

/// Room that groups take, and groups that may be overwritten.
#[derive(Debug)]
pub(crate) struct Circle {
    segments: u64,
    segment_bytes: u64,
    /// Where the next group goes, counted on from the beginning and never wrapped.
    at: u64,
    /// Groups whose txg is not committed, oldest first.
    live: VecDeque<Span>,
}

#[derive(Debug)]
struct Span {
    start: u64,
    txg: Txg,
    /// Number of the group.
    sequence: u64,
}

/// A place for a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct GroupPosition {
    /// Which segment, by its rank.
    pub segment: usize,
    /// Where in it.
    pub offset: u32,
}

impl Circle {
    pub fn new(segments: usize, segment_bytes: u32) -> Circle {
        assert!(segments > 0 && segment_bytes > 0);
        Circle {
            segments: segments as u64,
            segment_bytes: segment_bytes.into(),
            at: 0,
            live: VecDeque::new(),
        }
    }

    /// Groups of `committed` and before may be overwritten, if their own writes are over: those of
    /// numbers below `written_to`.
    pub fn release(&mut self, committed: Txg, written_to: u64) {
        let is_free = |span: &Span| span.txg <= committed && span.sequence < written_to;
        while self.live.front().is_some_and(is_free) {
            self.live.pop_front();
        }
    }

    /// Takes room for `bytes` of group `sequence` of `txg`; `None` if what lies there is still
    /// needed.
    pub fn place(&mut self, bytes: usize, txg: Txg, sequence: u64) -> Option<GroupPosition> {
        let bytes = bytes as u64;
        assert!(bytes > 0 && bytes <= self.segment_bytes);
        let rest = self.segment_bytes - self.at % self.segment_bytes;
        let start = if bytes <= rest { self.at } else { self.at + rest };
        let oldest = self.live.front().map_or(start, |span| span.start);
        if start + bytes - oldest > self.segments * self.segment_bytes {
            return None;
        }
        self.live.push_back(Span { start, txg, sequence });
        self.at = start + bytes;
        let segment = usize::try_from(start / self.segment_bytes % self.segments).expect("few segments");
        let offset = u32::try_from(start % self.segment_bytes).expect("within a segment");
        Some(GroupPosition { segment, offset })
    }

    /// True if more than half of the circle is needed.
    pub fn is_half_full(&self) -> bool {
        let used = self.live.front().map_or(0, |span| self.at - span.start);
        2 * used > self.segments * self.segment_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circle() {
        // [intent_log.3], against a plain picture of what lies where.
        const SEGMENTS: usize = 3;
        const BYTES: u32 = 64;
        let mut circle = Circle::new(SEGMENTS, BYTES);
        let mut picture: Vec<Option<Txg>> = vec![None; SEGMENTS * BYTES as usize];
        let mut state = 1_u64;
        let mut draw = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let (mut committed, mut refused, mut placed) = (Txg(0), 0, 0);
        let mut open = Txg(1);
        for _ in 0..20_000 {
            match draw(10) {
                0..2 => open = open.next(),
                2..5 if committed.next() < open => committed = committed.next(),
                _ => {
                    circle.release(committed, u64::MAX);
                    let bytes = usize::try_from(1 + draw(64)).expect("small");
                    let Some(spot) = circle.place(bytes, open, 1) else {
                        refused += 1;
                        continue;
                    };
                    placed += 1;
                    assert!(spot.offset as usize + bytes <= BYTES as usize, "a group crosses no end");
                    let at = spot.segment * BYTES as usize + spot.offset as usize;
                    for place in &mut picture[at..at + bytes] {
                        assert!(place.is_none_or(|txg| txg <= committed), "[intent_log.3]");
                        *place = Some(open);
                    }
                }
            }
        }
        assert!(refused > 100 && placed > 1_000, "{refused} {placed}");
        let mut circle = Circle::new(2, 100);
        assert!(circle.place(100, Txg(1), 1).is_some() && !circle.is_half_full());
        assert!(circle.place(1, Txg(1), 2).is_some() && circle.is_half_full());
        assert_eq!(circle.place(100, Txg(2), 3), None);
        circle.release(Txg(1), 1);
        assert_eq!(circle.place(100, Txg(2), 3), None, "its write may come yet");
        circle.release(Txg(1), 3);
        assert_eq!(circle.place(100, Txg(2), 3), Some(GroupPosition { segment: 0, offset: 0 }));
    }
}
