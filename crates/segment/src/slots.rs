//! The slots of one device that are taken (ZFS: a space map, but of whole slots).

use crate::bitmap::each_word;

/// Slots of one device. The lowest free one is taken first, which keeps a sparse image short.
#[derive(Clone, Debug)]
pub struct Slots {
    taken: Vec<u64>,
    total: u32,
    free: u32,
    /// No free slot lies in a word below this one.
    hint: usize,
}

impl Slots {
    /// `total` free slots.
    #[must_use]
    pub fn new(total: u32) -> Slots {
        let mut taken = vec![0; (total as usize).div_ceil(64)];
        let beyond = u32::try_from(taken.len() * 64).unwrap_or(u32::MAX) - total;
        each_word(total, beyond, |at, mask| taken[at] |= mask);
        Slots { taken, total, free: total, hint: 0 }
    }

    /// Adds free slots until there are `total`; gives how many were added, 0 if there are as many
    /// already.
    pub fn grow(&mut self, total: u32) -> u32 {
        let added = total.saturating_sub(self.total);
        if added > 0 {
            let words = (total as usize).div_ceil(64);
            let old_end = u32::try_from(self.taken.len() * 64).unwrap_or(u32::MAX);
            // The bits behind the old end stood for slots that did not exist.
            each_word(self.total, old_end.min(total) - self.total, |at, mask| self.taken[at] &= !mask);
            self.taken.resize(words, 0);
            let beyond = u32::try_from(words * 64).unwrap_or(u32::MAX) - total;
            each_word(total, beyond, |at, mask| self.taken[at] |= mask);
            self.hint = self.hint.min((self.total / 64) as usize);
            self.total = total;
            self.free += added;
        }
        added
    }

    /// All slots there are.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Slots that hold nothing and are not being emptied.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free
    }

    /// True if `slot` is taken or does not exist.
    #[must_use]
    pub fn is_taken(&self, slot: u32) -> bool {
        slot >= self.total || self.taken[(slot / 64) as usize] >> (slot % 64) & 1 == 1
    }

    /// Takes the lowest free slot.
    pub fn take(&mut self) -> Option<u32> {
        while let Some(word) = self.taken.get(self.hint) {
            if *word != u64::MAX {
                let slot = u32::try_from(self.hint * 64).ok()? + word.trailing_ones();
                return self.claim(slot).then_some(slot);
            }
            self.hint += 1;
        }
        None
    }

    /// Takes the lowest free slot behind a part `at` / `of` of the device, or the lowest of all.
    pub fn take_behind(&mut self, at: usize, of: usize) -> Option<u32> {
        let first = u64::from(self.total) * at as u64 / of.max(1) as u64;
        let free = u32::try_from(first).ok().and_then(|first| self.next_free(first));
        match free.filter(|_| first > 0) {
            Some(slot) => self.claim(slot).then_some(slot),
            None => self.take(),
        }
    }

    /// The first free slot from this one on.
    #[must_use]
    pub fn next_free(&self, from: u32) -> Option<u32> {
        let mut at = (from / 64) as usize;
        let mut below = (1 << (from % 64)) - 1;
        while let Some(word) = self.taken.get(at) {
            let free = !(word | below);
            if free != 0 {
                return u32::try_from(at * 64).ok().map(|first| first + free.trailing_zeros());
            }
            (at, below) = (at + 1, 0);
        }
        None
    }

    /// Takes one slot; false if it is taken already or does not exist.
    pub fn claim(&mut self, slot: u32) -> bool {
        if self.is_taken(slot) {
            return false;
        }
        self.taken[(slot / 64) as usize] |= 1 << (slot % 64);
        self.free -= 1;
        true
    }

    /// Gives a slot back.
    pub fn release(&mut self, slot: u32) {
        assert!(slot < self.total && self.is_taken(slot), "only a taken slot is given back");
        self.taken[(slot / 64) as usize] &= !(1 << (slot % 64));
        self.free += 1;
        self.hint = self.hint.min((slot / 64) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_given_out_once_and_lowest_first() {
        let mut slots = Slots::new(130);
        assert_eq!((0..130).map(|_| slots.take().unwrap()).collect::<Vec<_>>(), (0..130).collect::<Vec<_>>());
        assert_eq!((slots.take(), slots.free()), (None, 0));
        slots.release(70);
        slots.release(3);
        assert_eq!((slots.take(), slots.take(), slots.take()), (Some(3), Some(70), None));
    }

    #[test]
    fn growing_adds_free_slots_and_keeps_what_is_taken() {
        for (from, to) in [(1, 2), (10, 64), (63, 65), (64, 128), (70, 300), (130, 130), (130, 100)] {
            let mut slots = Slots::new(from);
            let taken = slots.take().unwrap();
            let added = slots.grow(to);
            assert_eq!(added, to.saturating_sub(from), "{from} to {to}");
            let total = from.max(to);
            assert_eq!((slots.total(), slots.free()), (total, total - 1));
            assert!(slots.is_taken(taken) && slots.is_taken(total));
            let rest: Vec<u32> = std::iter::from_fn(|| slots.take()).collect();
            assert_eq!(rest, (1..total).collect::<Vec<_>>(), "{from} to {to}");
        }
    }

    #[test]
    fn free_slots_are_found_in_order_from_anywhere() {
        let mut slots = Slots::new(200);
        for slot in (0..200).filter(|slot| !matches!(slot, 5 | 63 | 64 | 127 | 199)) {
            assert!(slots.claim(slot));
        }
        for (from, found) in [(0, 5), (5, 5), (6, 63), (64, 64), (65, 127), (128, 199), (199, 199)] {
            assert_eq!(slots.next_free(from), Some(found), "from {from}");
        }
        assert_eq!((slots.next_free(200), slots.next_free(u32::MAX)), (None, None));
        assert_eq!(Slots::new(64).next_free(64), None);
    }

    #[test]
    fn a_slot_that_is_taken_or_missing_cannot_be_claimed() {
        let mut slots = Slots::new(10);
        assert!(slots.claim(9) && !slots.claim(9) && !slots.claim(10) && !slots.claim(u32::MAX));
        assert_eq!(slots.free(), 9);
    }
}
