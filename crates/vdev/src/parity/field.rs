//! GF(2^8) by the polynomial 0x11d: products, inverses, and each constant as the kernels want it.

/// Powers of 2, twice over, so that sums of two logarithms need no reduction.
const POWERS: [u8; 510] = {
    let mut powers = [0; 510];
    let mut value = 1;
    let mut at = 0;
    while at < 510 {
        powers[at] = value;
        value = double(value);
        at += 1;
    }
    powers
};

const LOGARITHMS: [u8; 256] = {
    let mut logarithms = [0; 256];
    let mut at = 0;
    while at < 255 {
        logarithms[POWERS[at] as usize] = at as u8;
        at += 1;
    }
    logarithms
};

/// 2 a.
pub(super) const fn double(a: u8) -> u8 {
    a << 1 ^ if a & 0x80 == 0 { 0 } else { 0x1d }
}

/// a b.
#[must_use]
pub const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    POWERS[LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize]
}

/// 1 / a.
///
/// # Panics
/// If `a` is 0.
#[must_use]
pub const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "0 has no inverse");
    POWERS[255 - LOGARITHMS[a as usize] as usize]
}

/// a / b.
///
/// # Panics
/// If `b` is 0.
#[must_use]
pub const fn divide(a: u8, b: u8) -> u8 {
    multiply(a, inverse(b))
}

/// 2 to the power of `exponent`.
#[must_use]
pub const fn power_of_2(exponent: usize) -> u8 {
    POWERS[exponent % 255]
}

/// A constant to multiply by.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Factor {
    /// Products with 0x00 to 0x0f.
    pub low: [u8; 16],
    /// Products with 0x00, 0x10 to 0xf0.
    pub high: [u8; 16],
    /// The multiplication as a matrix over the bits: byte 7 - i holds, for bit i of the product,
    /// the bits of the other factor that are added up to it. As `GF2P8AFFINEQB` takes it (Intel,
    /// "Galois Field New Instructions").
    pub matrix: u64,
    /// The constant.
    pub value: u8,
}

impl Factor {
    /// The constant `value`, prepared.
    pub fn of(value: u8) -> &'static Factor {
        &FACTORS[usize::from(value)]
    }

    /// Like [`Factor::of`], where the constant is known to the compiler: of use where it is loaded,
    /// not built into instructions.
    #[cfg(target_arch = "x86_64")]
    pub const fn constant(value: u8) -> &'static Factor {
        &FACTORS[value as usize]
    }

    const fn new(value: u8) -> Factor {
        let (mut low, mut high) = ([0; 16], [0; 16]);
        let mut at = 0;
        while at < 16 {
            low[at] = multiply(value, at as u8);
            high[at] = multiply(value, (at as u8) << 4);
            at += 1;
        }
        let mut matrix = 0_u64;
        let mut bit_in = 0;
        while bit_in < 8 {
            let product = multiply(value, 1 << bit_in) as u64;
            let mut bit_out = 0;
            while bit_out < 8 {
                matrix |= (product >> bit_out & 1) << ((7 - bit_out) * 8 + bit_in);
                bit_out += 1;
            }
            bit_in += 1;
        }
        Factor { low, high, matrix, value }
    }
}

static FACTORS: [Factor; 256] = {
    let mut factors = [const { Factor::new(0) }; 256];
    let mut at = 0;
    while at < 256 {
        factors[at] = Factor::new(at as u8);
        at += 1;
    }
    factors
};
