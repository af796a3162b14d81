//! The vector kernels. One body for all widths: `kernel!` writes it for a vector type and its
//! operations, inside a function that has the processor's feature, so that nothing is left of the
//! calls between.
//!
//! Each returns how many leading bytes of the columns it did: whole vectors; the twin does the
//! rest.

use super::Kernel;
use super::field::Factor;

/// True if this processor has what the kernel needs.
pub(super) fn is_supported(kernel: Kernel) -> bool {
    match kernel {
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx2 => std::is_x86_feature_detected!("avx2"),
        #[cfg(target_arch = "x86_64")]
        Kernel::GfniAvx512 => {
            std::is_x86_feature_detected!("gfni")
                && std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("avx512bw")
        }
        #[cfg(target_arch = "aarch64")]
        Kernel::Neon => std::arch::is_aarch64_feature_detected!("neon"),
        _ => false,
    }
}

/// Parity by Horner's rule.
pub(super) fn generate(kernel: Kernel, data: &[&[u8]], parity: &mut [&mut [u8]]) -> usize {
    assert!(is_supported(kernel), "this processor has no {}", kernel.name());
    let columns = Columns::new(data, parity);
    // SAFETY: the processor has the features, by the assertion above; `Columns` vouches for the
    // pointers.
    unsafe {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => avx2::generate(&columns),
            #[cfg(target_arch = "x86_64")]
            Kernel::GfniAvx512 => gfni_avx512::generate(&columns),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => neon::generate(&columns),
            _ => unreachable!("not supported here"),
        }
    }
}

/// Sums of products.
pub(super) fn combine(
    kernel: Kernel,
    factors: &[&Factor],
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
) -> usize {
    assert!(is_supported(kernel), "this processor has no {}", kernel.name());
    assert_eq!(factors.len(), inputs.len() * outputs.len(), "a factor for each input of each output");
    let columns = Columns::new(inputs, outputs);
    // SAFETY: the processor has the features, by the assertion above; `Columns` vouches for the
    // pointers.
    unsafe {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => avx2::combine(factors, &columns),
            #[cfg(target_arch = "x86_64")]
            Kernel::GfniAvx512 => gfni_avx512::combine(factors, &columns),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => neon::combine(factors, &columns),
            _ => unreachable!("not supported here"),
        }
    }
}

/// Where columns begin: inputs to read, outputs to write, all of `length` bytes. Checked once, so
/// that the loops need not.
struct Columns<'c, 'd> {
    inputs: &'c [&'d [u8]],
    outputs: [*mut u8; super::PARITY_COLUMNS_MAX],
    rows: usize,
    length: usize,
}

impl<'c, 'd> Columns<'c, 'd> {
    fn new(inputs: &'c [&'d [u8]], outputs: &mut [&mut [u8]]) -> Columns<'c, 'd> {
        let length = outputs[0].len();
        assert!(inputs.iter().all(|input| input.len() == length), "columns of one length");
        assert!(outputs.iter().all(|output| output.len() == length), "columns of one length");
        let mut pointers = [std::ptr::null_mut(); super::PARITY_COLUMNS_MAX];
        pointers.iter_mut().zip(outputs.iter_mut()).for_each(|(pointer, out)| *pointer = out.as_mut_ptr());
        Columns { inputs, outputs: pointers, rows: outputs.len(), length }
    }
}

/// Writes `generate` and `combine` for one kind of vector.
///
/// `$vectors` vectors are worked on at once: enough independent sums to fill the pipeline, few
/// enough to stay in registers with three rows.
macro_rules! kernel {
    ($feature:literal, $vector:ty, $bytes:literal, $vectors:literal) => {
        const STEP: usize = $bytes * $vectors;

        /// # Safety
        /// The processor has the feature; the columns are valid for their length.
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn generate(columns: &Columns<'_, '_>) -> usize {
            // SAFETY: as for this function.
            unsafe {
                match columns.rows {
                    1 => generate_rows::<1>(columns),
                    2 => generate_rows::<2>(columns),
                    3 => generate_rows::<3>(columns),
                    rows => unreachable!("{rows} parity columns"),
                }
            }
        }

        /// # Safety
        /// As [`generate`].
        #[target_feature(enable = $feature)]
        unsafe fn generate_rows<const ROWS: usize>(columns: &Columns<'_, '_>) -> usize {
            let mut at = 0;
            // SAFETY: at + STEP (or one vector) is at most the length of each column, which
            // `Columns` checked.
            unsafe {
                while at + STEP <= columns.length {
                    generate_at::<ROWS, $vectors>(columns, at);
                    at += STEP;
                }
                while at + $bytes <= columns.length {
                    generate_at::<ROWS, 1>(columns, at);
                    at += $bytes;
                }
            }
            at
        }

        /// # Safety
        /// As [`generate`]; `VECTORS` vectors from `at` on are within the columns.
        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn generate_at<const ROWS: usize, const VECTORS: usize>(columns: &Columns<'_, '_>, at: usize) {
            let mut sums = [[zero(); VECTORS]; ROWS];
            for input in columns.inputs.iter().rev() {
                for index in 0..VECTORS {
                    // SAFETY: within the column, by this function's condition.
                    let value = unsafe { load(input.as_ptr().add(at + index * $bytes)) };
                    sums[0][index] = add(sums[0][index], value);
                    if ROWS > 1 {
                        sums[1][index] = add(double(sums[1][index]), value);
                    }
                    if ROWS > 2 {
                        sums[2][index] = add(quadruple(sums[2][index]), value);
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                for (index, &sum) in sums.iter().enumerate() {
                    // SAFETY: within the column, by this function's condition; outputs are borrowed
                    // exclusively.
                    unsafe { store(columns.outputs[row].add(at + index * $bytes), sum) };
                }
            }
        }

        /// # Safety
        /// As [`generate`]; one factor for each input of each output.
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn combine(factors: &[&Factor], columns: &Columns<'_, '_>) -> usize {
            // SAFETY: as for this function.
            unsafe {
                match columns.rows {
                    1 if factors.iter().all(|factor| factor.value == 1) => generate_rows::<1>(columns),
                    1 => combine_rows::<1>(factors, columns),
                    2 => combine_rows::<2>(factors, columns),
                    3 => combine_rows::<3>(factors, columns),
                    rows => unreachable!("{rows} missing columns"),
                }
            }
        }

        /// # Safety
        /// As [`combine`].
        #[target_feature(enable = $feature)]
        unsafe fn combine_rows<const ROWS: usize>(factors: &[&Factor], columns: &Columns<'_, '_>) -> usize {
            let mut at = 0;
            // SAFETY: at + STEP (or one vector) is at most the length of each column, which
            // `Columns` checked.
            unsafe {
                while at + STEP <= columns.length {
                    combine_at::<ROWS, $vectors>(factors, columns, at);
                    at += STEP;
                }
                while at + $bytes <= columns.length {
                    combine_at::<ROWS, 1>(factors, columns, at);
                    at += $bytes;
                }
            }
            at
        }

        /// # Safety
        /// As [`combine`]; `VECTORS` vectors from `at` on are within the columns.
        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn combine_at<const ROWS: usize, const VECTORS: usize>(
            factors: &[&Factor],
            columns: &Columns<'_, '_>,
            at: usize,
        ) {
            let mut sums = [[zero(); VECTORS]; ROWS];
            let inputs = columns.inputs.len();
            for (column, input) in columns.inputs.iter().enumerate() {
                let mut values = [zero(); VECTORS];
                for (index, value) in values.iter_mut().enumerate() {
                    // SAFETY: within the column, by this function's condition.
                    *value = unsafe { load(input.as_ptr().add(at + index * $bytes)) };
                }
                for row in 0..ROWS {
                    let by = prepare(factors[row * inputs + column]);
                    for index in 0..VECTORS {
                        sums[row][index] = add(sums[row][index], multiply(values[index], by));
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                for (index, &sum) in sums.iter().enumerate() {
                    // SAFETY: within the column, by this function's condition; outputs are borrowed
                    // exclusively.
                    unsafe { store(columns.outputs[row].add(at + index * $bytes), sum) };
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod gfni_avx512 {
    use super::{Columns, Factor};
    use std::arch::x86_64::*;

    kernel!("gfni,avx512f,avx512bw", __m512i, 64, 4);

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn zero() -> __m512i {
        _mm512_setzero_si512()
    }

    /// # Safety
    /// 64 bytes from `from` on can be read.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load(from: *const u8) -> __m512i {
        // SAFETY: by this function's condition; no alignment is needed.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    /// # Safety
    /// 64 bytes from `to` on can be written.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn store(to: *mut u8, value: __m512i) {
        // SAFETY: by this function's condition; no alignment is needed.
        unsafe { _mm512_storeu_si512(to.cast(), value) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn add(a: __m512i, b: __m512i) -> __m512i {
        _mm512_xor_si512(a, b)
    }

    #[inline]
    #[target_feature(enable = "gfni,avx512f")]
    fn double(a: __m512i) -> __m512i {
        multiply(a, prepare(const { Factor::constant(2) }))
    }

    #[inline]
    #[target_feature(enable = "gfni,avx512f")]
    fn quadruple(a: __m512i) -> __m512i {
        multiply(a, prepare(const { Factor::constant(4) }))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn prepare(factor: &Factor) -> __m512i {
        _mm512_set1_epi64(factor.matrix.cast_signed())
    }

    #[inline]
    #[target_feature(enable = "gfni,avx512f")]
    fn multiply(a: __m512i, by: __m512i) -> __m512i {
        _mm512_gf2p8affine_epi64_epi8::<0>(a, by)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Columns, Factor};
    use std::arch::x86_64::*;

    kernel!("avx2", __m256i, 32, 2);

    #[inline]
    #[target_feature(enable = "avx2")]
    fn zero() -> __m256i {
        _mm256_setzero_si256()
    }

    /// # Safety
    /// 32 bytes from `from` on can be read.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load(from: *const u8) -> __m256i {
        // SAFETY: by this function's condition; no alignment is needed.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    /// # Safety
    /// 32 bytes from `to` on can be written.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn store(to: *mut u8, value: __m256i) {
        // SAFETY: by this function's condition; no alignment is needed.
        unsafe { _mm256_storeu_si256(to.cast(), value) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(a: __m256i, b: __m256i) -> __m256i {
        _mm256_xor_si256(a, b)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn double(a: __m256i) -> __m256i {
        // Bytes with the top bit set are negative: all ones where the polynomial is to be taken
        // off.
        let carries = _mm256_cmpgt_epi8(_mm256_setzero_si256(), a);
        let polynomial = _mm256_and_si256(carries, _mm256_set1_epi8(0x1d));
        _mm256_xor_si256(_mm256_add_epi8(a, a), polynomial)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn quadruple(a: __m256i) -> __m256i {
        double(double(a))
    }

    /// The two tables, once for each half of the vector.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn prepare(factor: &Factor) -> (__m256i, __m256i) {
        // SAFETY: both tables are arrays of 16 bytes.
        let (low, high) = unsafe {
            (_mm_loadu_si128(factor.low.as_ptr().cast()), _mm_loadu_si128(factor.high.as_ptr().cast()))
        };
        (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn multiply(a: __m256i, (low, high): (__m256i, __m256i)) -> __m256i {
        let nibble = _mm256_set1_epi8(0x0f);
        let from_low = _mm256_shuffle_epi8(low, _mm256_and_si256(a, nibble));
        let from_high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16::<4>(a), nibble));
        _mm256_xor_si256(from_low, from_high)
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::{Columns, Factor};
    use std::arch::aarch64::*;

    kernel!("neon", uint8x16_t, 16, 4);

    #[inline]
    #[target_feature(enable = "neon")]
    fn zero() -> uint8x16_t {
        vdupq_n_u8(0)
    }

    /// # Safety
    /// 16 bytes from `from` on can be read.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load(from: *const u8) -> uint8x16_t {
        // SAFETY: by this function's condition; no alignment is needed.
        unsafe { vld1q_u8(from) }
    }

    /// # Safety
    /// 16 bytes from `to` on can be written.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn store(to: *mut u8, value: uint8x16_t) {
        // SAFETY: by this function's condition; no alignment is needed.
        unsafe { vst1q_u8(to, value) }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn add(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        veorq_u8(a, b)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn double(a: uint8x16_t) -> uint8x16_t {
        // All ones where the top bit is set and the polynomial is to be taken off.
        let carries = vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(a)));
        veorq_u8(vshlq_n_u8::<1>(a), vandq_u8(carries, vdupq_n_u8(0x1d)))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn quadruple(a: uint8x16_t) -> uint8x16_t {
        double(double(a))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn prepare(factor: &Factor) -> (uint8x16_t, uint8x16_t) {
        // SAFETY: both tables are arrays of 16 bytes.
        unsafe { (vld1q_u8(factor.low.as_ptr()), vld1q_u8(factor.high.as_ptr())) }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn multiply(a: uint8x16_t, (low, high): (uint8x16_t, uint8x16_t)) -> uint8x16_t {
        let from_low = vqtbl1q_u8(low, vandq_u8(a, vdupq_n_u8(0x0f)));
        let from_high = vqtbl1q_u8(high, vshrq_n_u8::<4>(a));
        veorq_u8(from_low, from_high)
    }
}
