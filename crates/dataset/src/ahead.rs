//! Sequential reading noticed, and what comes next asked for in time.
//!
//! The kernel asks for a file's content in requests of at most a megabyte, a few at once when it
//! reads ahead itself, and they may arrive in any order. A file is *read sequentially* while each
//! read begins within [`SLACK`] of where the furthest one ended. The bytes behind it are then read
//! ahead in a window as long as what was read so far, up to a bound the room below gives: so a
//! short run wastes little, and a long one keeps the device busy.

use std::ops::Range;

/// How far from the expected place a read may begin.
const SLACK: u64 = 2 << 20;
/// Bytes read in sequence before anything is read ahead.
const RUN_MIN: u64 = 256 << 10;

/// How one file is being read.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// End of the furthest read of the run.
    next: u64,
    /// Bytes of the run; 0 before the first read.
    run: u64,
    /// End of the last requested range.
    ahead: u64,
}

/// Advice after a read.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Advice {
    /// Nothing.
    Nothing,
    /// Read this ahead.
    Ahead(Range<u64>),
    /// The run is over: what was asked for is not wanted any more.
    Cancel,
}

impl Reading {
    /// Notes a read of `count` bytes at `offset`; at most `window_max` bytes are to be read ahead.
    pub(crate) fn note(&mut self, offset: u64, count: u64, window_max: u64) -> Advice {
        let end = offset.saturating_add(count);
        if self.run == 0 || offset.abs_diff(self.next) > SLACK {
            let cancel = self.ahead > self.next;
            *self = Reading { next: end, run: count, ahead: end };
            return if cancel { Advice::Cancel } else { Advice::Nothing };
        }
        self.run = self.run.saturating_add(count);
        self.next = self.next.max(end);
        self.ahead = self.ahead.max(self.next);
        let window = self.run.min(window_max);
        let goal = self.next.saturating_add(window);
        // In steps of half a window, so that a small read does not ask for a few bytes each time.
        if self.run < RUN_MIN || goal.saturating_sub(self.ahead) < window.div_ceil(2).max(1) {
            return Advice::Nothing;
        }
        let range = self.ahead..goal;
        self.ahead = goal;
        Advice::Ahead(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_run_is_followed_by_a_growing_window() {
        let mut reading = Reading::default();
        assert_eq!(reading.note(0, MIB, 8 * MIB), Advice::Nothing, "one read is no run");
        assert_eq!(reading.note(MIB, MIB, 8 * MIB), Advice::Ahead(2 * MIB..4 * MIB));
        let mut asked = 4 * MIB;
        for at in 2..64 {
            if let Advice::Ahead(range) = reading.note(at * MIB, MIB, 8 * MIB) {
                assert_eq!(range.start, asked, "nothing is asked for twice, and nothing left out");
                asked = range.end;
            }
            assert!(asked > (at + 1) * MIB && asked <= (at + 9) * MIB, "{at}: {asked}");
        }
    }

    #[test]
    fn requests_out_of_order_are_one_run() {
        let mut reading = Reading::default();
        let mut asked = 0;
        for at in [0, 2, 1, 3, 5, 4, 7, 6, 8, 9] {
            match reading.note(at * MIB, MIB, 4 * MIB) {
                Advice::Ahead(range) => asked = range.end,
                Advice::Cancel => panic!("{at}"),
                Advice::Nothing => {}
            }
        }
        assert!((10 * MIB..=14 * MIB).contains(&asked));
    }

    #[test]
    fn random_reads_ask_for_nothing_and_end_a_run() {
        let mut reading = Reading::default();
        for at in [70, 3, 900, 12, 555, 41] {
            assert_eq!(reading.note(at * 10 * MIB, 4096, 8 * MIB), Advice::Nothing);
        }
        for at in 0..4 {
            reading.note(at * MIB, MIB, 8 * MIB);
        }
        assert_eq!(reading.note(500 * MIB, 4096, 8 * MIB), Advice::Cancel);
        assert_eq!(reading.note(100 * MIB, 4096, 8 * MIB), Advice::Nothing);
    }

    #[test]
    fn nothing_is_asked_for_where_there_is_no_room_for_it() {
        let mut reading = Reading::default();
        for at in 0..16 {
            assert_eq!(reading.note(at * MIB, MIB, 0), Advice::Nothing);
        }
    }
}
