//! The vector kernels: sums of strips, and wide sums of carry-less products. Each has a scalar twin
//! (`gather.rs`, `field.rs`) that a test compares it with.
//!
//! Bodies work on references of whole vectors, so the only things that are unsafe here are the
//! loads and stores of such a reference and the calls into functions that want a feature.

use crate::field::{Wide, WideSums};
use crate::gather::{Lists, Strip};
use crate::kernel::Kernel;

/// True if this processor has what the kernel needs.
pub(crate) fn is_supported(kernel: Kernel) -> bool {
    match kernel {
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx2 => std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("pclmulqdq"),
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx512 => {
            std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("vpclmulqdq")
                && is_supported(Kernel::Avx2)
        }
        #[cfg(target_arch = "aarch64")]
        Kernel::Neon => {
            std::arch::is_aarch64_feature_detected!("neon") && std::arch::is_aarch64_feature_detected!("aes")
        }
        _ => false,
    }
}

/// Adds to each output the inputs of its list.
pub(crate) fn gather(kernel: Kernel, lists: &Lists, inputs: &[Strip], outputs: &mut [Strip]) {
    assert!(is_supported(kernel), "this processor has no {}", kernel.name());
    // SAFETY: the processor has the features, by the assertion above.
    unsafe {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => avx2::gather(lists, inputs, outputs),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => avx512::gather(lists, inputs, outputs),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => neon::gather(lists, inputs, outputs),
            _ => unreachable!("not supported here"),
        }
    }
}

/// Computes value after value, each the sum of earlier ones that its list names.
pub(crate) fn follow(kernel: Kernel, lists: &Lists, given: usize, values: &mut [Strip]) {
    assert!(is_supported(kernel), "this processor has no {}", kernel.name());
    // SAFETY: the processor has the features, by the assertion above.
    unsafe {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => avx2::follow(lists, given, values),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => avx512::follow(lists, given, values),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => neon::follow(lists, given, values),
            _ => unreachable!("not supported here"),
        }
    }
}

/// Sum of products, not reduced.
pub(crate) fn inner(kernel: Kernel, factors: &[u128], words: &[[u8; 16]]) -> Wide {
    assert!(is_supported(kernel), "this processor has no {}", kernel.name());
    // SAFETY: the processor has the features, by the assertion above.
    unsafe {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => avx2::inner(factors, words),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => avx512::inner(factors, words),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => neon::inner(factors, words),
            _ => unreachable!("not supported here"),
        }
    }
}

/// Adds `factor` times each word to its sum.
pub(crate) fn accumulate(kernel: Kernel, factor: u128, words: &[[u8; 16]], sums: &mut WideSums) {
    assert!(is_supported(kernel), "this processor has no {}", kernel.name());
    // SAFETY: the processor has the features, by the assertion above.
    unsafe {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => avx2::accumulate(factor, words, sums),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => avx512::accumulate(factor, words, sums),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => neon::accumulate(factor, words, sums),
            _ => unreachable!("not supported here"),
        }
    }
}

/// Inputs that are asked of the caches ahead: they lie anywhere in them.
const AHEAD: usize = 12;

/// Asks the caches for a strip.
#[inline(always)]
fn prefetch(strip: &Strip) {
    #[cfg(target_arch = "x86_64")]
    for line in strip.as_chunks::<64>().0 {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it reads nothing, and the address is that of a reference.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = strip;
}

/// Writes `gather` and `follow` for one kind of vector.
macro_rules! gather {
    ($feature:literal, $bytes:literal) => {
        /// Vectors of a strip.
        const VECTORS: usize = crate::gather::STRIP / $bytes;

        #[target_feature(enable = $feature)]
        pub(super) fn gather(lists: &Lists, inputs: &[Strip], outputs: &mut [Strip]) {
            let mut ahead = lists.items().iter().skip(AHEAD);
            for (output, strip) in outputs.iter_mut().enumerate() {
                let list = lists.of(output);
                if list.is_empty() {
                    continue;
                }
                let vectors = strip.as_chunks_mut::<$bytes>().0;
                let mut sums = [zero(); VECTORS];
                for (sum, vector) in sums.iter_mut().zip(vectors.iter()) {
                    *sum = load(vector);
                }
                for &input in list {
                    ahead.next().into_iter().for_each(|&input| prefetch(&inputs[input as usize]));
                    let vectors = inputs[input as usize].as_chunks::<$bytes>().0;
                    for (sum, vector) in sums.iter_mut().zip(vectors) {
                        *sum = add(*sum, load(vector));
                    }
                }
                for (vector, sum) in vectors.iter_mut().zip(sums) {
                    store(vector, sum);
                }
            }
        }

        #[target_feature(enable = $feature)]
        pub(super) fn follow(lists: &Lists, given: usize, values: &mut [Strip]) {
            let mut ahead = lists.items().iter().skip(AHEAD);
            for step in 0..lists.len() {
                let (before, rest) = values.split_at_mut(given + step);
                let mut sums = [zero(); VECTORS];
                for &input in lists.of(step) {
                    // One that is yet to be computed was written a moment ago.
                    ahead.next().and_then(|&input| before.get(input as usize)).into_iter().for_each(prefetch);
                    let vectors = before[input as usize].as_chunks::<$bytes>().0;
                    for (sum, vector) in sums.iter_mut().zip(vectors) {
                        *sum = add(*sum, load(vector));
                    }
                }
                for (vector, sum) in rest[0].as_chunks_mut::<$bytes>().0.iter_mut().zip(sums) {
                    store(vector, sum);
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{AHEAD, Lists, Strip, Wide, WideSums, prefetch};
    use std::arch::x86_64::*;

    gather!("avx512f", 64);

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn zero() -> __m512i {
        _mm512_setzero_si512()
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(from: &[u8; 64]) -> __m512i {
        // SAFETY: 64 bytes are borrowed; no alignment is needed.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(to: &mut [u8; 64], value: __m512i) {
        // SAFETY: 64 bytes are borrowed exclusively; no alignment is needed.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn add(a: __m512i, b: __m512i) -> __m512i {
        _mm512_xor_si512(a, b)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load_words(from: &[[u8; 16]; 4]) -> __m512i {
        // SAFETY: 64 bytes are borrowed; no alignment is needed.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load_elements(from: &[u128; 4]) -> __m512i {
        // SAFETY: 64 bytes are borrowed; no alignment is needed.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store_elements(to: &mut [u128; 4], value: __m512i) {
        // SAFETY: 64 bytes are borrowed exclusively; no alignment is needed.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) }
    }

    /// Four products: low, middle and high parts.
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn products(a: __m512i, b: __m512i) -> [__m512i; 3] {
        let crossed = add(_mm512_clmulepi64_epi128::<0x10>(a, b), _mm512_clmulepi64_epi128::<0x01>(a, b));
        [_mm512_clmulepi64_epi128::<0x00>(a, b), crossed, _mm512_clmulepi64_epi128::<0x11>(a, b)]
    }

    #[target_feature(enable = "avx512f,vpclmulqdq,avx2,pclmulqdq")]
    pub(super) fn inner(factors: &[u128], words: &[[u8; 16]]) -> Wide {
        let (factors, last_factors) = factors.as_chunks::<4>();
        let (words, last_words) = words.as_chunks::<4>();
        let mut sums = [zero(); 3];
        for (factor, word) in factors.iter().zip(words) {
            let parts = products(load_elements(factor), load_words(word));
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum = add(*sum, part);
            }
        }
        let [low, middle, high] = sums.map(|sum| {
            let mut lanes = [0; 4];
            store_elements(&mut lanes, sum);
            lanes.into_iter().fold(0, |sum, lane| sum ^ lane)
        });
        let last = super::avx2::inner(last_factors, last_words);
        Wide { low: low ^ last.low, middle: middle ^ last.middle, high: high ^ last.high }
    }

    #[target_feature(enable = "avx512f,vpclmulqdq")]
    pub(super) fn accumulate(factor: u128, words: &[[u8; 16]], sums: &mut WideSums) {
        let by = load_elements(&[factor; 4]);
        let (whole, last) = words.as_chunks::<4>();
        let done = whole.len() * 4;
        let lows = sums.low.as_chunks_mut::<4>().0.iter_mut();
        let middles = sums.middle.as_chunks_mut::<4>().0.iter_mut();
        let highs = sums.high.as_chunks_mut::<4>().0.iter_mut();
        for (((word, low), middle), high) in whole.iter().zip(lows).zip(middles).zip(highs) {
            let parts = products(by, load_words(word));
            for (sum, part) in [low, middle, high].into_iter().zip(parts) {
                store_elements(sum, add(load_elements(sum), part));
            }
        }
        for (at, word) in (done..).zip(last) {
            let mut sum = Wide::default();
            sum.add_product(factor, u128::from_le_bytes(*word));
            sums.low[at] ^= sum.low;
            sums.middle[at] ^= sum.middle;
            sums.high[at] ^= sum.high;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{AHEAD, Lists, Strip, Wide, WideSums, prefetch};
    use std::arch::x86_64::*;

    gather!("avx2", 32);

    #[inline]
    #[target_feature(enable = "avx2")]
    fn zero() -> __m256i {
        _mm256_setzero_si256()
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(from: &[u8; 32]) -> __m256i {
        // SAFETY: 32 bytes are borrowed; no alignment is needed.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(to: &mut [u8; 32], value: __m256i) {
        // SAFETY: 32 bytes are borrowed exclusively; no alignment is needed.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(a: __m256i, b: __m256i) -> __m256i {
        _mm256_xor_si256(a, b)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load_word(from: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes are borrowed; no alignment is needed.
        unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn element(value: u128) -> __m128i {
        load_word(&value.to_le_bytes())
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn value(of: __m128i) -> u128 {
        let mut bytes = [0; 16];
        // SAFETY: 16 bytes are borrowed exclusively; no alignment is needed.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), of) };
        u128::from_le_bytes(bytes)
    }

    /// A product: low, middle and high part.
    #[inline]
    #[target_feature(enable = "avx2,pclmulqdq")]
    fn product(a: __m128i, b: __m128i) -> [__m128i; 3] {
        let crossed = _mm_xor_si128(_mm_clmulepi64_si128::<0x10>(a, b), _mm_clmulepi64_si128::<0x01>(a, b));
        [_mm_clmulepi64_si128::<0x00>(a, b), crossed, _mm_clmulepi64_si128::<0x11>(a, b)]
    }

    #[target_feature(enable = "avx2,pclmulqdq")]
    pub(super) fn inner(factors: &[u128], words: &[[u8; 16]]) -> Wide {
        let mut sums = [_mm_setzero_si128(); 3];
        for (factor, word) in factors.iter().zip(words) {
            let parts = product(element(*factor), load_word(word));
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum = _mm_xor_si128(*sum, part);
            }
        }
        let [low, middle, high] = sums.map(|sum| value(sum));
        Wide { low, middle, high }
    }

    #[target_feature(enable = "avx2,pclmulqdq")]
    pub(super) fn accumulate(factor: u128, words: &[[u8; 16]], sums: &mut WideSums) {
        let by = element(factor);
        let sums = sums.low.iter_mut().zip(&mut sums.middle).zip(&mut sums.high);
        for (word, ((low, middle), high)) in words.iter().zip(sums) {
            let parts = product(by, load_word(word));
            for (sum, part) in [low, middle, high].into_iter().zip(parts) {
                *sum = value(_mm_xor_si128(element(*sum), part));
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::{AHEAD, Lists, Strip, Wide, WideSums, prefetch};
    use std::arch::aarch64::*;

    gather!("neon", 16);

    #[inline]
    #[target_feature(enable = "neon")]
    fn zero() -> uint8x16_t {
        vdupq_n_u8(0)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn load(from: &[u8; 16]) -> uint8x16_t {
        // SAFETY: 16 bytes are borrowed; no alignment is needed.
        unsafe { vld1q_u8(from.as_ptr()) }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn store(to: &mut [u8; 16], value: uint8x16_t) {
        // SAFETY: 16 bytes are borrowed exclusively; no alignment is needed.
        unsafe { vst1q_u8(to.as_mut_ptr(), value) }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn add(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        veorq_u8(a, b)
    }

    /// Adds a product.
    #[inline]
    #[target_feature(enable = "neon,aes")]
    #[allow(clippy::cast_possible_truncation, reason = "halves of a word")]
    fn add_product(sum: &mut Wide, a: u128, b: u128) {
        let (a0, a1, b0, b1) = (a as u64, (a >> 64) as u64, b as u64, (b >> 64) as u64);
        sum.low ^= vmull_p64(a0, b0);
        sum.middle ^= vmull_p64(a0, b1) ^ vmull_p64(a1, b0);
        sum.high ^= vmull_p64(a1, b1);
    }

    #[target_feature(enable = "neon,aes")]
    pub(super) fn inner(factors: &[u128], words: &[[u8; 16]]) -> Wide {
        let mut sum = Wide::default();
        for (factor, word) in factors.iter().zip(words) {
            add_product(&mut sum, *factor, u128::from_le_bytes(*word));
        }
        sum
    }

    #[target_feature(enable = "neon,aes")]
    pub(super) fn accumulate(factor: u128, words: &[[u8; 16]], sums: &mut WideSums) {
        for (at, word) in words.iter().enumerate() {
            let mut sum = Wide { low: sums.low[at], middle: sums.middle[at], high: sums.high[at] };
            add_product(&mut sum, factor, u128::from_le_bytes(*word));
            (sums.low[at], sums.middle[at], sums.high[at]) = (sum.low, sum.middle, sum.high);
        }
    }
}
