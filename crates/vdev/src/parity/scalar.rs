//! The scalar twin: what every processor can, and what the vector kernels are compared with.

use super::field::{Factor, double, multiply};

const LANES: u64 = 0x0101_0101_0101_0101;

/// Doubles each of eight bytes.
fn double_lanes(value: u64) -> u64 {
    let carries = value >> 7 & LANES;
    ((value & !(LANES << 7)) << 1) ^ (carries * 0x1d)
}

/// Horner's rule from byte `from` on: from the last data column to the first, multiply what there
/// is and add.
pub(super) fn generate(data: &[&[u8]], parity: &mut [&mut [u8]], from: usize) {
    let length = data[0].len();
    let whole = from + (length - from) / 8 * 8;
    for at in (from..whole).step_by(8) {
        let (mut p, mut q, mut r) = (0, 0, 0);
        for column in data.iter().rev() {
            let value = u64::from_le_bytes(column[at..at + 8].try_into().expect("eight bytes"));
            p ^= value;
            if parity.len() > 1 {
                q = double_lanes(q) ^ value;
            }
            if parity.len() > 2 {
                r = double_lanes(double_lanes(r)) ^ value;
            }
        }
        for (column, sum) in parity.iter_mut().zip([p, q, r]) {
            column[at..at + 8].copy_from_slice(&sum.to_le_bytes());
        }
    }
    for at in whole..length {
        let (mut p, mut q, mut r) = (0, 0, 0);
        for column in data.iter().rev() {
            p ^= column[at];
            q = double(q) ^ column[at];
            r = double(double(r)) ^ column[at];
        }
        for (column, sum) in parity.iter_mut().zip([p, q, r]) {
            column[at] = sum;
        }
    }
}

/// Bytes of a column that are worked on at once, so that the output stays in the innermost cache.
const PIECE: usize = 4096;

/// Sums of products from byte `from` on.
pub(super) fn combine(factors: &[&Factor], inputs: &[&[u8]], outputs: &mut [&mut [u8]], from: usize) {
    for (row, output) in outputs.iter_mut().enumerate() {
        let factors = &factors[row * inputs.len()..][..inputs.len()];
        let length = output.len();
        for begin in (from..length).step_by(PIECE) {
            let end = length.min(begin + PIECE);
            let out = &mut output[begin..end];
            out.fill(0);
            for (factor, input) in factors.iter().zip(inputs) {
                let input = &input[begin..end];
                match factor.value {
                    0 => {}
                    1 => out.iter_mut().zip(input).for_each(|(sum, value)| *sum ^= value),
                    // The table costs 256 products: too many for the few bytes that a vector kernel
                    // leaves.
                    value if input.len() < 512 => {
                        out.iter_mut().zip(input).for_each(|(sum, &byte)| *sum ^= multiply(value, byte));
                    }
                    _ => {
                        let products = products(factor);
                        out.iter_mut()
                            .zip(input)
                            .for_each(|(sum, &byte)| *sum ^= products[usize::from(byte)]);
                    }
                }
            }
        }
    }
}

fn products(factor: &Factor) -> [u8; 256] {
    std::array::from_fn(|byte| factor.low[byte & 15] ^ factor.high[byte >> 4])
}
