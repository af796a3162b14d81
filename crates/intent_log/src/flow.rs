//! Groups that are under way to the medium: written side by side, flushed one flush after the
//! other.

use std::collections::BTreeMap;

use parking_lot::{Condvar, Mutex};
use steadfast_format::Txg;

/// A group, and what it is known by.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Mark {
    /// Its number.
    pub sequence: u64,
    /// Its hash, which binds in those before it.
    pub hash: [u8; 32],
    /// Segment that it is on.
    pub segment: usize,
}

/// How far groups have come.
#[derive(Default)]
pub(crate) struct Flow {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    /// All groups up to here are written.
    written: u64,
    /// All groups up to here are durable.
    durable: u64,
    /// Hash of the last of these, if it is known.
    hash: [u8; 32],
    /// Written and not flushed; those behind a gap, too.
    unflushed: BTreeMap<u64, Mark>,
    /// Somebody flushes.
    flushing: bool,
    /// Groups that were begun and did not end.
    under_way: usize,
    /// First group that could not be written or flushed: it and all behind it are in the hands of a
    /// commit.
    failed: Option<u64>,
    /// Txg whose commit mends that.
    broken: Txg,
}

impl Flow {
    /// True if groups may be begun: nothing failed, or the commit that mends it has come and nobody
    /// is under way any more. `next` is the number of the group that would be begun. Under the lock
    /// that groups are begun under.
    pub fn is_open(&self, committed: Txg, next: u64) -> bool {
        let mut state = self.state.lock();
        if state.failed.is_none() {
            return true;
        }
        if state.broken > committed || state.under_way > 0 {
            return false; // [intent_log.5]
        }
        // Roots hold all that was begun before.
        *state = State { written: next - 1, durable: next - 1, ..State::default() };
        true
    }

    /// A group is drafted: its promises depend on it from now on. Under the lock that groups are
    /// begun under.
    pub fn begin(&self) {
        self.state.lock().under_way += 1;
    }

    /// Waits until nobody is under way. Under the lock that groups are begun under.
    pub fn settle(&self) {
        let mut state = self.state.lock();
        while state.under_way > 0 {
            self.moved.wait(&mut state);
        }
    }

    /// Number after the last group before which all are written; and how many before `sequence` are
    /// not known to be durable.
    pub fn written_to(&self) -> u64 {
        self.state.lock().written + 1
    }

    /// The last group that is durable with all before it; the hash is zero if it is not known.
    pub fn durable(&self) -> (u64, [u8; 32]) {
        let state = self.state.lock();
        (state.durable, state.hash)
    }

    /// How many groups before `sequence` are not known to be durable.
    pub fn behind(&self, sequence: u64) -> u64 {
        sequence - 1 - self.state.lock().durable
    }

    /// A group's write ended. True once it is durable, with all groups before it; `open` tells the
    /// open txg if that fails. `secure` flushes segments and vouches for all groups up to one.
    pub fn wrote(
        &self,
        mark: Mark,
        is_written: bool,
        secure: impl Fn(&[usize], Mark) -> bool,
        open: impl Fn() -> Txg,
    ) -> bool {
        let sequence = mark.sequence;
        {
            let mut state = self.state.lock();
            if is_written {
                state.unflushed.insert(sequence, mark);
                while state.unflushed.contains_key(&(state.written + 1)) {
                    state.written += 1;
                }
            } else {
                state.failed = Some(state.failed.map_or(sequence, |failed| failed.min(sequence)));
            }
            self.moved.notify_all();
        }
        let is_durable = self.reach(sequence, secure);
        let mut state = self.state.lock();
        if !is_durable {
            // A group that is under way now was drafted in this txg or before.
            drop(state);
            let open = open();
            state = self.state.lock();
            state.broken = state.broken.max(open);
        }
        state.under_way -= 1;
        self.moved.notify_all();
        is_durable
    }

    /// Waits until all groups up to `goal` are durable, and secures them if nobody does. False if
    /// that failed.
    pub fn reach(&self, goal: u64, secure: impl Fn(&[usize], Mark) -> bool) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.durable >= goal {
                return true;
            }
            if state.failed.is_some_and(|failed| failed <= goal) {
                return false;
            }
            if state.flushing || state.written < goal {
                self.moved.wait(&mut state);
                continue;
            }
            // Groups written by now are durable with this flush; groups written meanwhile, with
            // the next one.
            let written = state.written;
            state.flushing = true;
            let mut segments: Vec<usize> =
                state.unflushed.range(..=written).map(|(_, mark)| mark.segment).collect();
            let last = *state.unflushed.get(&written).expect("what is written is not durable yet");
            drop(state);
            segments.sort_unstable();
            segments.dedup();
            let is_flushed = secure(&segments, last);
            state = self.state.lock();
            state.flushing = false;
            if is_flushed {
                (state.durable, state.hash) = (written, last.hash);
                state.unflushed = state.unflushed.split_off(&(written + 1));
            } else {
                let first = state.durable + 1;
                state.failed = Some(state.failed.map_or(first, |failed| failed.min(first)));
            }
            self.moved.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: fn() -> Txg = || Txg(7);

    fn mark(sequence: u64, segment: usize) -> Mark {
        Mark { sequence, segment, hash: [u8::try_from(sequence).unwrap(); 32] }
    }

    #[test]
    fn one_flush_serves_all_that_was_written_before_it() {
        let flow = Flow::default();
        (0..3).for_each(|_| flow.begin());
        std::thread::scope(|scope| {
            // The second and third are written before the first: neither is durable, whatever is
            // flushed.
            let later = [2, 3].map(|n| {
                scope.spawn({
                    let flow = &flow;
                    move || flow.wrote(mark(n, 0), true, |_, _| true, OPEN)
                })
            });
            while flow.state.lock().unflushed.len() < 2 {
                std::thread::yield_now();
            }
            assert_eq!((flow.written_to(), flow.behind(4)), (1, 3));
            assert!(flow.wrote(mark(1, 0), true, |on, last| on == [0] && last == mark(3, 0), OPEN));
            assert!(later.into_iter().all(|thread| thread.join().unwrap()));
        });
        assert_eq!((flow.written_to(), flow.behind(4), flow.durable()), (4, 0, (3, [3; 32])));
        assert!(flow.state.lock().unflushed.is_empty());
        assert!(flow.reach(3, |_, _| panic!("nothing is left to flush")));
    }

    #[test]
    fn a_failure_takes_all_behind_it_along_until_a_commit_mends_it() {
        let flow = Flow::default();
        flow.begin();
        assert!(flow.wrote(mark(1, 0), true, |_, _| true, OPEN));
        flow.begin();
        flow.begin();
        assert!(!flow.wrote(mark(2, 0), false, |_, _| true, OPEN), "it could not be written");
        assert!(!flow.is_open(Txg(6), 4) && !flow.is_open(Txg(7), 4), "another one is under way");
        assert!(!flow.wrote(mark(3, 0), true, |_, _| true, OPEN), "what it builds on is not there");
        assert!(!flow.reach(2, |_, _| true) && flow.reach(1, |_, _| true));
        assert!(!flow.is_open(Txg(6), 4));
        assert!(flow.is_open(Txg(7), 4));
        flow.begin();
        assert!(!flow.wrote(mark(4, 1), true, |_, _| false, OPEN), "it could not be flushed");
        assert!(flow.is_open(Txg(7), 5));
        flow.begin();
        assert!(flow.wrote(mark(5, 1), true, |on, _| on == [1], OPEN));
    }
}
