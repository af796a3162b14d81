//! Bytes that deletions still owe (ZFS: `freeing`), readable at any moment.
//!
//! A commit takes what deletions owe out of the places where it is counted, frees as much of it as
//! it may, and puts the rest back. A count in between finds nothing owed. So a commit notes before
//! it begins whether anything was owed, and the note holds until its end. A count during which a
//! commit begins or ends is repeated.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts before the answer of the commits is taken.
const COUNTS_MAX: u32 = 16;

/// Note of the running commit: whether it found anything owed.
#[derive(Default)]
pub(crate) struct Freeing {
    /// Beginnings and ends of commits; odd while one is under way.
    turns: AtomicU64,
    /// It found something owed when it began.
    owing: AtomicBool,
}

/// A commit is under way while this lives.
pub(crate) struct Turn<'a>(&'a Freeing);

impl Freeing {
    /// A commit begins that found something to be freed, or nothing. One at a time.
    pub fn begin(&self, owing: bool) -> Turn<'_> {
        self.owing.store(owing, Ordering::SeqCst);
        let turns = self.turns.fetch_add(1, Ordering::SeqCst);
        assert!(turns.is_multiple_of(2), "one commit at a time");
        Turn(self)
    }

    /// Asks something that must not see a part of a commit. `None` if one was under way meanwhile:
    /// ask again, under the commit's own lock.
    pub fn between_commits<T>(&self, ask: impl FnOnce() -> T) -> Option<T> {
        let before = self.turns.load(Ordering::SeqCst);
        if !before.is_multiple_of(2) {
            return None;
        }
        let answer = ask();
        (self.turns.load(Ordering::SeqCst) == before).then_some(answer)
    }

    /// The result of `count`; at least 1 while a commit is running that may have taken something
    /// out of the counted places.
    pub fn told(&self, count: impl Fn() -> u64) -> u64 {
        let mut most = 0;
        for _ in 0..COUNTS_MAX {
            let before = self.turns.load(Ordering::SeqCst);
            let taken = !before.is_multiple_of(2) && self.owing.load(Ordering::SeqCst);
            let found = count().max(u64::from(taken));
            if self.turns.load(Ordering::SeqCst) == before {
                return found;
            }
            most = most.max(found);
        }
        most.max(1)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.turns.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_a_commit_took_is_told_until_its_end() {
        let freeing = Freeing::default();
        assert_eq!(freeing.told(|| 0), 0);
        let turn = freeing.begin(true);
        assert_eq!(freeing.told(|| 0), 1);
        assert_eq!(freeing.told(|| 9), 9);
        drop(turn);
        assert_eq!(freeing.told(|| 0), 0);
    }

    #[test]
    fn who_counts_while_a_commit_begins_or_ends_counts_again() {
        let freeing = Freeing::default();
        let (turn, counts) = (Cell::new(None), Cell::new(0));
        let beginning = || {
            counts.set(counts.get() + 1);
            if counts.get() == 1 {
                turn.set(Some(freeing.begin(true)));
            }
            0
        };
        assert_eq!((freeing.told(beginning), counts.get()), (1, 2));
        // The rest was put back before the end, which comes after it was counted.
        let left = Cell::new(0);
        let ending = || {
            let found = left.get();
            left.set(3);
            drop(turn.take());
            found
        };
        assert_eq!(freeing.told(ending), 3);
        // Without a moment's peace something is still to be freed.
        let restless = || {
            drop(freeing.begin(false));
            0
        };
        assert_eq!(freeing.told(restless), 1);
    }

    #[test]
    fn an_answer_from_the_midst_of_a_commit_is_none() {
        let freeing = Freeing::default();
        assert_eq!(freeing.between_commits(|| 5), Some(5));
        let turn = freeing.begin(false);
        assert_eq!(freeing.between_commits(|| 5), None);
        drop(turn);
        assert_eq!(freeing.between_commits(|| drop(freeing.begin(false))), None);
        assert_eq!(freeing.between_commits(|| 6), Some(6));
    }
}
