//! Ways to do the arithmetic, one for each kind of processor.

use crate::simd;

/// One way to do the arithmetic. All give the same bytes [por.8].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kernel {
    /// Registers of 64 and 128 bits; everywhere.
    Scalar,
    /// Sums of 32 bytes at once, carry-less products of 8 by 8 bytes (x86-64).
    Avx2,
    /// Sums of 64 bytes at once, four carry-less products at once (x86-64).
    Avx512,
    /// Sums of 16 bytes at once, carry-less products of 8 by 8 bytes (64-bit ARM).
    Neon,
}

impl Kernel {
    /// All, the slowest first.
    pub const ALL: [Kernel; 4] = [Kernel::Scalar, Kernel::Avx2, Kernel::Avx512, Kernel::Neon];

    /// The fastest of this processor.
    #[must_use]
    pub fn best() -> Kernel {
        let found = [Kernel::Avx512, Kernel::Avx2, Kernel::Neon].into_iter().find(|k| k.is_supported());
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
            Kernel::Avx512 => "avx512",
            Kernel::Neon => "neon",
        }
    }
}
