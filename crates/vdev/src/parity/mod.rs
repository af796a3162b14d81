//! # Parity arithmetic
//!
//! *k* data columns D0 … D(k-1) of equal length get up to three parity columns, byte by byte, in
//! the field GF(2^8) of the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), whose generator is 2:
//!
//! ```text
//! P = sum of Di          Q = sum of 2^i Di          R = sum of 4^i Di
//! ```
//!
//! Addition is XOR. With k at most [`DATA_COLUMNS_MAX`], any set of missing columns no greater than
//! the number of parity columns can be computed from the others: the square parts of the matrix of
//! rows (1, 2^i, 4^i) are regular for exponents below 255 (H. P. Anvin, "The mathematics of
//! RAID-6", for P and Q; R with 4^i as in OpenZFS's RAID-Z3; a test here tries every set for every
//! width). P and Q are those of Linux's RAID-6, so its known answers are ours.
//!
//! Two operations are enough. [`generate`] makes parity by Horner's rule, where each step
//! multiplies by 2 or 4 only. A [`Reconstruction`] is a small matrix, inverted once for a set of
//! missing columns; running it multiplies columns by constants and adds them up. Both go through
//! the columns in one pass and read each input once, so above the size of the caches the bound is
//! memory: (k + p) bytes moved for k bytes of data.
//!
//! ## Twins
//! A [`Kernel`] is one way to compute the same:
//! - GFNI with AVX-512: vectors of 64 bytes; multiplication by a constant is one affine
//!   transformation of the bits of each byte.
//! - AVX2 (32 bytes) and NEON (16 bytes): two tables of 16, by the halves of a byte.
//! - The scalar twin: 8 bytes in a register for Horner's rule, else a table of products.
//!
//! The best that the processor has is found at run time ([`Kernel::best`]). Invariants, each
//! compared by the tests of this module over random columns, widths and lengths:
//!
//! [parity.1] All kernels give the same bytes.
//! [parity.2] A repair of any possible set of missing columns gives the columns that were there.
//! [parity.3] No byte outside of the outputs is touched, whatever their length and alignment.
//!
//! `examples/parity.rs` prints the rates.

mod field;
mod scalar;
#[allow(unsafe_code)]
mod simd;

pub use field::{divide, inverse, multiply, power_of_2};

use field::Factor;

/// Most data columns of a stripe: a group has at most 32 devices, of which one at least holds
/// parity.
pub const DATA_COLUMNS_MAX: usize = 31;
/// Most parity columns of a stripe.
pub const PARITY_COLUMNS_MAX: usize = 3;

/// One way to do the arithmetic. All give the same bytes [parity.1].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kernel {
    /// Registers and tables; everywhere.
    Scalar,
    /// 32 bytes at once, two table lookups a product (x86-64).
    Avx2,
    /// 64 bytes at once, an affine transformation a product (x86-64).
    GfniAvx512,
    /// 16 bytes at once, two table lookups a product (64-bit ARM).
    Neon,
}

impl Kernel {
    /// All, the slowest first.
    pub const ALL: [Kernel; 4] = [Kernel::Scalar, Kernel::Avx2, Kernel::GfniAvx512, Kernel::Neon];

    /// The fastest of this processor.
    #[must_use]
    pub fn best() -> Kernel {
        let found = [Kernel::GfniAvx512, Kernel::Avx2, Kernel::Neon].into_iter().find(|k| k.is_supported());
        found.unwrap_or(Kernel::Scalar)
    }

    /// True if this processor can.
    #[must_use]
    pub fn is_supported(self) -> bool {
        self == Kernel::Scalar || simd::is_supported(self)
    }

    /// As reports name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Scalar => "scalar",
            Kernel::Avx2 => "avx2",
            Kernel::GfniAvx512 => "gfni-avx512",
            Kernel::Neon => "neon",
        }
    }
}

/// Fills the parity columns of `data`: P, then Q, then R, as many as there are.
///
/// # Panics
/// If the columns are not of one length, or too many or too few.
pub fn generate(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    generate_by(Kernel::best(), data, parity);
}

/// Like [`generate`], by a kernel of the caller's choice.
///
/// # Panics
/// As [`generate`], and if the processor has no such kernel.
pub fn generate_by(kernel: Kernel, data: &[&[u8]], parity: &mut [&mut [u8]]) {
    assert!((1..=DATA_COLUMNS_MAX).contains(&data.len()), "{} data columns", data.len());
    assert!((1..=PARITY_COLUMNS_MAX).contains(&parity.len()), "{} parity columns", parity.len());
    check_lengths(data, parity);
    // A vector kernel leaves the last bytes, which fill no vector, to the twin.
    let done = if kernel == Kernel::Scalar { 0 } else { simd::generate(kernel, data, parity) };
    scalar::generate(data, parity, done);
}

fn check_lengths(inputs: &[&[u8]], outputs: &[&mut [u8]]) {
    let length = inputs[0].len();
    let equal = inputs.iter().all(|column| column.len() == length)
        && outputs.iter().all(|column| column.len() == length);
    assert!(equal, "columns of a stripe are of one length");
}

/// How to compute missing columns of a stripe from others: columns 0 to k-1 are data, k to k+p-1
/// parity.
#[derive(Clone, Debug)]
pub struct Reconstruction {
    sources: Vec<usize>,
    wanted: Vec<usize>,
    /// For each wanted column one factor for each source.
    factors: Vec<&'static Factor>,
}

impl Reconstruction {
    /// Plans how to compute the columns `wanted`, where all of `missing` cannot be had, of a stripe
    /// of `data` and `parity` columns. Both ascend, and what is wanted is missing. `None` if more
    /// is missing than there is parity.
    ///
    /// # Panics
    /// If there is no such stripe or column, nothing is wanted, or the lists are not as said.
    #[must_use]
    pub fn new(data: usize, parity: usize, missing: &[usize], wanted: &[usize]) -> Option<Reconstruction> {
        assert!((1..=DATA_COLUMNS_MAX).contains(&data) && (1..=PARITY_COLUMNS_MAX).contains(&parity));
        assert!(missing.is_sorted_by(|a, b| a < b), "{missing:?} do not ascend");
        assert!(!wanted.is_empty() && wanted.is_sorted_by(|a, b| a < b), "{wanted:?} do not ascend");
        assert!(wanted.iter().all(|column| missing.contains(column)), "{wanted:?} of {missing:?}");
        assert!(missing.iter().all(|&column| column < data + parity), "{missing:?} of {data}+{parity}");
        if missing.len() > parity {
            return None;
        }
        let lost_data: Vec<usize> = missing.iter().copied().filter(|&column| column < data).collect();
        let kept_parity = (data..data + parity).filter(|column| !missing.contains(column));
        // P first: it costs no multiplication.
        let used_parity: Vec<usize> = kept_parity.take(lost_data.len()).collect();
        let kept_data: Vec<usize> = (0..data).filter(|column| !missing.contains(column)).collect();

        // Row j of the parity says: sum over lost i of c(j,i) Di = Pj + sum over kept i of c(j,i)
        // Di.
        let system = |row: usize, column: usize| coefficient(used_parity[row] - data, lost_data[column]);
        let inverted = invert(lost_data.len(), system);
        let sources: Vec<usize> = kept_data.iter().chain(&used_parity).copied().collect();
        // Coefficient of a source in a lost data column.
        let to_data = |lost: usize, source: usize| match used_parity.iter().position(|&used| used == source) {
            Some(row) => inverted[lost][row],
            None => {
                let terms = used_parity.iter().enumerate();
                terms.fold(0, |sum, (row, &used)| {
                    sum ^ multiply(inverted[lost][row], coefficient(used - data, source))
                })
            }
        };
        // A lost parity column is the sum over all data columns, the lost ones written out.
        let to_parity = |lost: usize, source: usize| {
            let own = if source < data { coefficient(lost - data, source) } else { 0 };
            let terms = lost_data.iter().enumerate();
            terms.fold(own, |sum, (at, &column)| {
                sum ^ multiply(coefficient(lost - data, column), to_data(at, source))
            })
        };
        let mut factors = Vec::with_capacity(wanted.len() * sources.len());
        for &column in wanted {
            let at = lost_data.iter().position(|&lost| lost == column);
            factors.extend(sources.iter().map(|&source| {
                Factor::of(match at {
                    Some(at) => to_data(at, source),
                    None => to_parity(column, source),
                })
            }));
        }
        Some(Reconstruction { sources, wanted: wanted.to_vec(), factors })
    }

    /// The columns it reads, in the order in which [`Reconstruction::run`] wants them: as many as
    /// there are data columns.
    #[must_use]
    pub fn sources(&self) -> &[usize] {
        &self.sources
    }

    /// The columns it gives, in the order in which [`Reconstruction::run`] fills them.
    #[must_use]
    pub fn wanted(&self) -> &[usize] {
        &self.wanted
    }

    /// Fills the wanted columns.
    ///
    /// # Panics
    /// If the columns are not of one length, or not as many as [`Reconstruction::sources`] and
    /// [`Reconstruction::wanted`].
    pub fn run(&self, sources: &[&[u8]], wanted: &mut [&mut [u8]]) {
        self.run_by(Kernel::best(), sources, wanted);
    }

    /// Like [`Reconstruction::run`], by a kernel of the caller's choice.
    ///
    /// # Panics
    /// As [`Reconstruction::run`], and if the processor has no such kernel.
    pub fn run_by(&self, kernel: Kernel, sources: &[&[u8]], wanted: &mut [&mut [u8]]) {
        assert_eq!((sources.len(), wanted.len()), (self.sources.len(), self.wanted.len()), "columns");
        check_lengths(sources, wanted);
        let done =
            if kernel == Kernel::Scalar { 0 } else { simd::combine(kernel, &self.factors, sources, wanted) };
        scalar::combine(&self.factors, sources, wanted, done);
    }
}

/// Coefficient of data column `column` in parity column `row`.
fn coefficient(row: usize, column: usize) -> u8 {
    power_of_2(row * column)
}

/// Inverts a square matrix of at most three rows by Gauss and Jordan.
fn invert(size: usize, entry: impl Fn(usize, usize) -> u8) -> Vec<Vec<u8>> {
    // The matrix, and beside it the unit matrix.
    let mut rows: Vec<Vec<u8>> = (0..size)
        .map(|row| {
            let left = (0..size).map(|column| entry(row, column));
            left.chain((0..size).map(|column| u8::from(row == column))).collect()
        })
        .collect();
    for at in 0..size {
        let pivot = (at..size).find(|&row| rows[row][at] != 0);
        rows.swap(at, pivot.expect("any rows and columns of the parity matrix are regular"));
        let scale = inverse(rows[at][at]);
        rows[at].iter_mut().for_each(|value| *value = multiply(*value, scale));
        let pivot = rows[at].clone();
        for (index, row) in rows.iter_mut().enumerate() {
            let factor = row[at];
            if index != at && factor != 0 {
                row.iter_mut().zip(&pivot).for_each(|(value, &p)| *value ^= multiply(factor, p));
            }
        }
    }
    rows.into_iter().map(|row| row[size..].to_vec()).collect()
}

#[cfg(test)]
mod tests;
