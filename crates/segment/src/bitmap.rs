//! Bits of the allocation units of one segment; a set bit is a dead unit.

/// Dead units of a segment. Absent (no words) means that none is dead, which is how most rows spend
/// their lives.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DeadUnits {
    words: Option<Box<[u64]>>,
}

impl DeadUnits {
    /// From the stored form: bit `i` of the little-endian bytes is unit `i`. `None` if a bit at or
    /// beyond `units` is set or if there are too few bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8], units: u32) -> Option<DeadUnits> {
        if bytes.len() < (units as usize).div_ceil(8) {
            return None;
        }
        let mut words = vec![0_u64; (bytes.len()).div_ceil(8)].into_boxed_slice();
        for (at, &byte) in bytes.iter().enumerate() {
            words[at / 8] |= u64::from(byte) << (at % 8 * 8);
        }
        let dead = DeadUnits { words: Some(words) };
        let bits = u32::try_from(bytes.len() * 8).ok()?;
        (dead.count(units, bits - units) == 0).then_some(dead)
    }

    /// The stored form for `units` units, or `None` where no unit is dead.
    #[must_use]
    pub fn to_bytes(&self, units: u32) -> Option<Vec<u8>> {
        let words = self.words.as_ref()?;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize((units as usize).div_ceil(8), 0);
        Some(bytes)
    }

    /// How many of `count` units from `start` are dead.
    #[must_use]
    pub fn count(&self, start: u32, count: u32) -> u32 {
        let Some(words) = &self.words else { return 0 };
        let mut dead = 0;
        each_word(start, count, |at, mask| {
            dead += words.get(at).map_or(0, |word| (word & mask).count_ones());
        });
        dead
    }

    /// Marks `count` units from `start` dead, in a segment that may grow to `units_max` units. They
    /// were alive: the caller has looked.
    pub fn kill(&mut self, start: u32, count: u32, units_max: u32) {
        assert!(start + count <= units_max);
        let words =
            self.words.get_or_insert_with(|| vec![0; (units_max as usize).div_ceil(64)].into_boxed_slice());
        if words.len() < (units_max as usize).div_ceil(64) {
            // Loaded with the length of its fill mark.
            let mut grown = words.to_vec();
            grown.resize((units_max as usize).div_ceil(64), 0);
            *words = grown.into_boxed_slice();
        }
        each_word(start, count, |at, mask| {
            assert_eq!(words[at] & mask, 0, "a unit dies once");
            words[at] |= mask;
        });
    }

    /// Maximal runs (start, count) of living units below `units`.
    #[must_use]
    pub fn live_runs(&self, units: u32) -> Vec<(u32, u32)> {
        let Some(words) = &self.words else {
            return if units == 0 { Vec::new() } else { vec![(0, units)] };
        };
        let mut runs = Vec::new();
        let mut at = 0;
        while at < units {
            let start = next_bit(words, at, units, false);
            at = next_bit(words, start, units, true);
            if start < at {
                runs.push((start, at - start));
            }
        }
        runs
    }
}

/// The first unit from `at` on whose bit is `set`, or `end`. Bits beyond the words are not set.
fn next_bit(words: &[u64], mut at: u32, end: u32, set: bool) -> u32 {
    while at < end {
        let word = words.get((at / 64) as usize).copied().unwrap_or(0);
        let wanted = (if set { word } else { !word }) >> (at % 64);
        if wanted != 0 {
            return end.min(at + wanted.trailing_zeros());
        }
        at += 64 - at % 64;
    }
    end
}

/// Calls `each` with every word that holds some of `count` bits from `start`, and the mask of those
/// bits.
pub(crate) fn each_word(start: u32, count: u32, mut each: impl FnMut(usize, u64)) {
    let (mut at, end) = (start, start + count);
    while at < end {
        let bit = at % 64;
        let take = (64 - bit).min(end - at);
        each((at / 64) as usize, (u64::MAX >> (64 - take)) << bit);
        at += take;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_counts_agree_with_one_bit_at_a_time() {
        let mut dead = DeadUnits::default();
        assert_eq!(dead.live_runs(300), vec![(0, 300)]);
        for (start, count) in [(0, 1), (5, 3), (62, 4), (128, 64), (255, 45)] {
            dead.kill(start, count, 300);
        }
        assert_eq!(dead.live_runs(300), vec![(1, 4), (8, 54), (66, 62), (192, 63)]);
        assert_eq!(dead.count(0, 300), 1 + 3 + 4 + 64 + 45);
        assert_eq!(dead.count(63, 66), 3 + 1);
    }

    #[test]
    fn stored_bits_come_back_and_foreign_bits_are_refused() {
        let mut dead = DeadUnits::default();
        assert_eq!(dead.to_bytes(77), None);
        dead.kill(3, 1, 2048);
        dead.kill(70, 7, 2048);
        let bytes = dead.to_bytes(77).unwrap();
        assert_eq!(bytes.len(), 10);
        let loaded = DeadUnits::from_bytes(&bytes, 77).unwrap();
        assert_eq!(loaded.live_runs(77), dead.live_runs(77));
        assert_eq!(DeadUnits::from_bytes(&bytes, 76), None, "unit 76 does not exist but is dead");
        assert_eq!(DeadUnits::from_bytes(&bytes[..9], 77), None, "too short");
    }

    #[test]
    #[should_panic(expected = "a unit dies once")]
    fn a_unit_cannot_die_twice() {
        let mut dead = DeadUnits::default();
        dead.kill(3, 2, 64);
        dead.kill(4, 1, 64);
    }
}
