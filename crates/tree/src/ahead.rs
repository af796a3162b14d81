//! Leaves read ahead for who goes through a tree in the order of its keys: a listing with
//! attributes, a walk over all files, the load of a table.
//!
//! A walk misses a leaf, goes through it, and misses the one behind it. The second of such misses
//! brings two leaves at once, the next four, and so on up to [`WINDOW_MAX`]; the leaves of a
//! window are read side by side, and come in one transfer where they lie side by side. A reader
//! that jumps about misses leaves that do not follow each other, and each comes alone. Two leaves
//! behind each other are missed by chance, too: where each request is dear, the third is asked for
//! at the second, and nobody waits for it.

use std::sync::Mutex;

/// Leaves of one window at most: half a mebibyte of the largest.
pub(crate) const WINDOW_MAX: usize = 32;
/// Walks that are told apart in one tree.
const WALKS_MAX: usize = 8;

/// Walks under way.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    walks: Mutex<Walks>,
}

#[derive(Debug, Default)]
struct Walks {
    /// First key behind the last window, and how many leaves that window had.
    known: Vec<(Vec<u8>, usize)>,
    /// The one that gives way to the next.
    oldest: usize,
}

impl Ahead {
    /// How many leaves to read from a missing one on, which begins at `lower`.
    pub(crate) fn window(&self, lower: Option<&[u8]>) -> usize {
        let Some(lower) = lower else { return 1 };
        let mut walks = self.walks.lock().expect("no panic while held");
        let Some(at) = walks.known.iter().position(|(behind, _)| behind == lower) else { return 1 };
        walks.oldest = 0;
        let (_, last) = walks.known.swap_remove(at);
        (2 * last).min(WINDOW_MAX)
    }

    /// So many leaves were read, and the next one begins at `behind`.
    pub(crate) fn note(&self, behind: &[u8], window: usize) {
        let mut walks = self.walks.lock().expect("no panic while held");
        let walks = &mut *walks;
        if walks.known.len() < WALKS_MAX {
            walks.known.push((behind.to_vec(), window));
            return;
        }
        let (known, last) = &mut walks.known[walks.oldest];
        known.clear();
        known.extend_from_slice(behind);
        *last = window;
        walks.oldest = (walks.oldest + 1) % WALKS_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_grow_while_leaves_follow_each_other_and_others_jump_about() {
        let ahead = Ahead::default();
        let key = |number: usize| number.to_be_bytes();
        let (mut at, mut windows) = (1, Vec::new());
        for jump in 0..8 {
            let window = ahead.window(Some(&key(at)));
            windows.push(window);
            at += window;
            ahead.note(&key(at), window);
            // Some others, each of which comes once.
            for other in 0..WALKS_MAX - 1 {
                assert_eq!(ahead.window(Some(&key(100_000 + 100 * jump + other))), 1);
            }
            ahead.note(&key(200_000 + jump), 1);
        }
        assert_eq!(windows, [1, 2, 4, 8, 16, 32, 32, 32]);
        assert_eq!(ahead.window(None), 1);
    }
}
