//! A small fast generator for addresses and choices: wyrand. Not for secrets.

/// A stream of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// Mixes two words into one that depends on every bit of both (the multiply-and-fold of wyhash).
#[inline]
pub fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0xa076_1d64_78bd_642f) * u128::from(b ^ 0xe703_7ed1_a0b4_28db);
    (product >> 64) as u64 ^ product as u64
}

/// The seed of addresses and arrivals where nobody asked for one: the same throughout an execution,
/// another in every execution, short enough to be typed.
pub fn execution_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    static SEED: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    // The standard library keys its hashers by the kernel's random numbers.
    *SEED.get_or_init(|| std::hash::RandomState::new().build_hasher().finish() >> 32)
}

impl Random {
    /// A stream that depends on all words of the key.
    pub fn new(key: &[u64]) -> Random {
        Random(key.iter().fold(0x9e37_79b9_7f4a_7c15, |state, word| mix(state, *word)))
    }

    /// The next 64 bits.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db);
        (product >> 64) as u64 ^ product as u64
    }

    /// Uniform in `0..bound`; 0 for a bound of 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `[0, 1)`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True in `percent` of the calls. Certain answers cost nothing.
    #[inline]
    pub fn hit(&mut self, percent: f64) -> bool {
        if percent >= 100.0 {
            return true;
        }
        percent > 0.0 && self.unit() * 100.0 < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_below_a_bound_are_uniform() {
        let mut random = Random::new(&[1, 2]);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        // Five standard deviations of a binomial with p = 0.1.
        assert!(counts.iter().all(|c| c.abs_diff(10_000) < 475), "{counts:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn streams_of_different_keys_differ() {
        let (mut a, mut b) = (Random::new(&[1, 2]), Random::new(&[2, 1]));
        assert!((0..100).all(|_| a.draw() != b.draw()));
    }
}
