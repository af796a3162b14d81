//! # The field of the tags
//!
//! GF(2^128) with the product of POLYVAL (RFC 8452): `dot(a, b) = a * b * x^-128` modulo
//! `x^128 + x^127 + x^126 + x^121 + 1`. The factor `x^-128` makes the reduction cheap and leaves a
//! field, whose one is `x^128`. An element is a `u128`, of which bit 0 is the constant term.
//!
//! Reducing is linear, so a sum of products is reduced once: [`Wide`] is such a sum. The vector
//! kernels compute wide sums and nothing else.

use crate::kernel::Kernel;
use crate::simd;

/// A sum of products that is not reduced yet: `low + middle * x^64 + high * x^128`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Wide {
    pub low: u128,
    pub middle: u128,
    pub high: u128,
}

impl Wide {
    /// The element of the field (Montgomery's reduction).
    #[allow(clippy::cast_possible_truncation, reason = "halves of a word")]
    pub fn reduce(self) -> u128 {
        let v0 = self.low as u64;
        let v1 = (self.low >> 64) as u64 ^ self.middle as u64;
        let v2 = self.high as u64 ^ (self.middle >> 64) as u64;
        let v3 = (self.high >> 64) as u64;
        let v1 = v1 ^ v0 << 63 ^ v0 << 62 ^ v0 << 57;
        let v2 = v2 ^ v0 ^ v0 >> 1 ^ v0 >> 2 ^ v0 >> 7;
        let v2 = v2 ^ v1 << 63 ^ v1 << 62 ^ v1 << 57;
        let v3 = v3 ^ v1 ^ v1 >> 1 ^ v1 >> 2 ^ v1 >> 7;
        u128::from(v2) | u128::from(v3) << 64
    }

    /// Adds the product of two elements.
    pub fn add_product(&mut self, a: u128, b: u128) {
        #[allow(clippy::cast_possible_truncation, reason = "halves of a word")]
        let (a0, a1, b0, b1) = (a as u64, (a >> 64) as u64, b as u64, (b >> 64) as u64);
        self.low ^= carryless(a0, b0);
        self.middle ^= carryless(a0, b1) ^ carryless(a1, b0);
        self.high ^= carryless(a1, b1);
    }
}

/// Product of two polynomials over GF(2), in time that does not depend on them: integer products
/// of every fourth bit, so that no carry reaches the next one that counts (BearSSL,
/// `ghash_ctmul64`).
fn carryless(a: u64, b: u64) -> u128 {
    let low = carryless_low(a, b);
    let high = carryless_low(a.reverse_bits(), b.reverse_bits()).reverse_bits() >> 1;
    u128::from(high) << 64 | u128::from(low)
}

/// The lower 64 bits of the product.
fn carryless_low(a: u64, b: u64) -> u64 {
    const EVERY_FOURTH: u64 = 0x1111_1111_1111_1111;
    let part = |value: u64, shift: usize| value & EVERY_FOURTH << shift;
    let (a, b): ([u64; 4], [u64; 4]) =
        (std::array::from_fn(|at| part(a, at)), std::array::from_fn(|at| part(b, at)));
    (0..4).fold(0, |sum, at| {
        let terms = (0..4).fold(0, |sum, of_a| sum ^ a[of_a].wrapping_mul(b[(at + 4 - of_a) % 4]));
        sum | part(terms, at)
    })
}

/// Product of two elements.
pub(crate) fn dot(a: u128, b: u128) -> u128 {
    inner_by(Kernel::Scalar, &[a], &[b.to_le_bytes()])
}

/// Sum of products, factor by factor.
pub(crate) fn inner(factors: &[u128], words: &[[u8; 16]]) -> u128 {
    inner_by(Kernel::best(), factors, words)
}

/// Like [`inner`], by a kernel of the caller's choice.
pub(crate) fn inner_by(kernel: Kernel, factors: &[u128], words: &[[u8; 16]]) -> u128 {
    assert_eq!(factors.len(), words.len(), "a factor for each word");
    if kernel != Kernel::Scalar {
        return simd::inner(kernel, factors, words).reduce();
    }
    let mut sum = Wide::default();
    factors.iter().zip(words).for_each(|(factor, word)| sum.add_product(*factor, u128::from_le_bytes(*word)));
    sum.reduce()
}

/// Sums of products of words side by side, each with the same factor.
pub(crate) struct WideSums {
    pub low: Vec<u128>,
    pub middle: Vec<u128>,
    pub high: Vec<u128>,
}

impl WideSums {
    /// So many sums of nothing.
    pub fn new(words: usize) -> WideSums {
        WideSums { low: vec![0; words], middle: vec![0; words], high: vec![0; words] }
    }

    /// Adds `factor` times each word to its sum.
    pub fn add_products(&mut self, kernel: Kernel, factor: u128, words: &[[u8; 16]]) {
        assert_eq!(self.low.len(), words.len(), "a sum for each word");
        if kernel != Kernel::Scalar {
            return simd::accumulate(kernel, factor, words, self);
        }
        for (at, word) in words.iter().enumerate() {
            let mut sum = Wide { low: self.low[at], middle: self.middle[at], high: self.high[at] };
            sum.add_product(factor, u128::from_le_bytes(*word));
            (self.low[at], self.middle[at], self.high[at]) = (sum.low, sum.middle, sum.high);
        }
    }

    /// The elements.
    pub fn reduce(&self) -> Vec<u128> {
        let sums = self.low.iter().zip(&self.middle).zip(&self.high);
        sums.map(|((&low, &middle), &high)| Wide { low, middle, high }.reduce()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(text: &str) -> u128 {
        let bytes = (0..32).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap());
        u128::from_le_bytes(bytes.collect::<Vec<_>>().try_into().unwrap())
    }

    /// RFC 8452, appendix A.
    #[test]
    fn the_published_example_of_polyval_holds() {
        let key = hex("25629347589242761d31f826ba4b757b");
        let words = ["4f4f95668c83dfb6401762bb2d01a262", "d1a24ddd2721d006bbe45f20d3c9f362"].map(hex);
        let words = words.map(u128::to_le_bytes);
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
            let sum = inner_by(kernel, &[dot(key, key), key], &words);
            assert_eq!(sum, hex("f7a3b47b846119fae5b7866cf5e5b77e"), "{}", kernel.name());
        }
    }

    /// The definition, bit by bit: shift and add, then divide by x 128 times.
    fn by_definition(a: u128, b: u128) -> u128 {
        let modulus_over_x = 1 << 127 | 1 << 126 | 1 << 125 | 1 << 120;
        // a * b * x^-128 = sum over bits i of b of a * x^(i - 128): Horner from the lowest bit.
        (0..128).fold(0, |sum: u128, bit| {
            let sum = if b >> bit & 1 == 1 { sum ^ a } else { sum };
            if sum & 1 == 1 { sum >> 1 ^ modulus_over_x } else { sum >> 1 }
        })
    }

    proptest! {
        #[test]
        fn products_are_those_of_the_definition(a: u128, b: u128) {
            prop_assert_eq!(dot(a, b), by_definition(a, b));
        }

        #[test]
        fn it_is_a_field(a: u128, b: u128, c: u128) {
            prop_assert_eq!(dot(a, b), dot(b, a));
            prop_assert_eq!(dot(dot(a, b), c), dot(a, dot(b, c)));
            prop_assert_eq!(dot(a, b ^ c), dot(a, b) ^ dot(a, c));
        }

        #[test]
        fn all_kernels_give_the_same_sums(
            pairs in proptest::collection::vec((any::<u128>(), any::<[u8; 16]>()), 1..40),
            factor: u128,
        ) {
            let (factors, words): (Vec<u128>, Vec<[u8; 16]>) = pairs.into_iter().unzip();
            let inner = inner_by(Kernel::Scalar, &factors, &words);
            let sums = |kernel| {
                let mut sums = WideSums::new(words.len());
                sums.add_products(kernel, factor, &words);
                sums.add_products(kernel, 3, &words);
                sums.reduce()
            };
            let expected = sums(Kernel::Scalar);
            for (at, sum) in expected.iter().enumerate() {
                prop_assert_eq!(*sum, dot(factor ^ 3, u128::from_le_bytes(words[at])));
            }
            for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
                prop_assert_eq!(inner_by(kernel, &factors, &words), inner, "{}", kernel.name());
                prop_assert_eq!(sums(kernel), expected.clone(), "{}", kernel.name());
            }
        }
    }
}
