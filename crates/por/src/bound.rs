//! # Arithmetic: samples, tiles, and the chance that something is lost
//!
//! A tile fails if more unknowns fall into it than it can hold (*overload*), or if those that fall
//! into it are not independent (*rank*).
//!
//! *Overload.* The lost cells were chosen without the key, so their number in a tile is binomial
//! with a mean of at most [`LOST_MEAN`]. A binomial tail above the mean is at most the Poisson tail
//! (Anderson and Samuels 1967).
//!
//! *Rank.* The expected number of non-empty sets of u columns that sum to zero, each column being d
//! of s rows at random, is
//! `E = 2^-s * sum over j of C(s, j) * (1 + k_j)^u - 1`, where `k_j = K_d(j) / C(s, d)` and K is
//! the Krawtchouk polynomial. By Markov's inequality the chance that there is one is at most E.
//! The first order in k sums to zero (no single column is zero), so E is also the sum of
//! `(1 + k_j)^u - 1 - u * k_j`, of which no term is negative: that can be computed in floating
//! point.

use crate::code::{DEGREE, ROWS};
use crate::tile::Tile;

/// Lost cells that a tile is made for, on average.
pub const LOST_MEAN: f64 = 1583.9;
/// Most lost cells of a tile of which the rank is vouched for: 95 % of the rows.
pub const LOST_MAX: u32 = 1945;

/// Samples after which a store that lacks the fraction `missing` is found out but for one case
/// in 2^`bits`.
///
/// # Panics
/// If the fraction is not between 0 and 1.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
pub fn samples(missing: f64, bits: f64) -> u32 {
    assert!(missing > 0.0 && missing < 1.0, "a fraction of {missing}");
    (bits * std::f64::consts::LN_2 / -(-missing).ln_1p()).ceil() as u32
}

/// Chance that an audit of so many samples finds a store out that lacks the fraction `missing`.
#[must_use]
pub fn detection(missing: f64, samples: u32) -> f64 {
    -(f64::from(samples) * (-missing).ln_1p()).exp_m1()
}

/// Logarithm to base 2 of the chance that a Poisson number of this mean is at least `least`.
#[must_use]
pub fn overload_log2(mean: f64, least: u32) -> f64 {
    let least = f64::from(least);
    let mut term = least.mul_add(mean.ln(), -mean) - ln_factorial(least);
    let (first, mut sum, mut number) = (term, 0.0, least);
    // Terms fall like a geometric series above the mean; below it the first may be the least.
    while number < mean || term > first - 40.0 {
        sum += (term - first).exp();
        number += 1.0;
        term += (mean / number).ln();
    }
    (first + f64::ln(sum)) / std::f64::consts::LN_2
}

/// Logarithm to base 2 of the bound E for `columns` columns of `degree` of `rows` rows.
///
/// # Panics
/// If a column has more rows than there are.
#[must_use]
pub fn rank_log2(rows: usize, degree: usize, columns: u32) -> f64 {
    assert!(degree <= rows, "{degree} of {rows} rows");
    let (s, d, u) = (rows as f64, degree as f64, f64::from(columns));
    let ln_choose = |n: f64, k: f64| ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k);
    let (mut least, mut terms) = (f64::NEG_INFINITY, Vec::with_capacity(rows + 1));
    for j in 0..=rows {
        let kappa = correlation(rows, degree, j);
        let excess = if kappa.abs() * u < 1e-4 {
            // (1 + k)^u - 1 - u k to second and third order.
            ((u * (u - 1.0) / 2.0) * kappa * kappa * (1.0 + (u - 2.0) / 3.0 * kappa)).max(0.0).ln()
        } else if kappa <= -1.0 {
            (u - 1.0).max(0.0).ln()
        } else {
            let power = u * kappa.ln_1p();
            if power > 600.0 { power } else { (power.exp_m1() - u * kappa).max(0.0).ln() }
        };
        let term = ln_choose(s, j as f64) - s * std::f64::consts::LN_2 + excess;
        least = least.max(term);
        terms.push(term);
    }
    debug_assert!(d > 0.0);
    let sum: f64 = terms.iter().map(|term| (term - least).exp()).sum();
    (least + sum.ln()) / std::f64::consts::LN_2
}

/// `K_d(j; s) / C(s, d)`: how far a random column agrees with a fixed set of j rows. It is the mean
/// of (-1)^i, where i of the column's rows are in the set, and i is hypergeometric.
fn correlation(rows: usize, degree: usize, j: usize) -> f64 {
    // Row by row: chance of each i after so many draws without replacement.
    let mut chance = vec![0.0; degree + 1];
    chance[0] = 1.0;
    for drawn in 0..degree {
        for i in (0..=drawn).rev() {
            let left = (rows - drawn) as f64;
            let inside = (j as f64 - i as f64).max(0.0) / left;
            chance[i + 1] += chance[i] * inside;
            chance[i] *= 1.0 - inside;
        }
    }
    chance.iter().enumerate().map(|(i, chance)| if i % 2 == 0 { *chance } else { -chance }).sum()
}

/// Natural logarithm of n!, by Stirling's series from 32 on.
fn ln_factorial(n: f64) -> f64 {
    if n < 32.0 {
        let mut product = 1.0;
        let mut factor = 2.0;
        while factor <= n {
            product *= factor;
            factor += 1.0;
        }
        return product.ln();
    }
    let series = 1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3)) + 1.0 / (1260.0 * n.powi(5));
    (n + 0.5).mul_add(n.ln(), -n) + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

/// How large the parity of a pool is, and what it is good for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Cells that the pool can hold.
    pub cells: u64,
    /// Fraction of them that may be lost.
    pub loss: f64,
    /// Tiles.
    pub tiles: u32,
}

impl Plan {
    /// The parity for a pool of so many cells, of which the fraction `loss` may be lost. The tiles
    /// span all of the pool: with a code for each part of it, an adversary would spend all of his
    /// losses on one part.
    ///
    /// # Panics
    /// If the fraction is not between 0 and 1, or the pool needs more than 2^32 tiles.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "asserted to be in range")]
    pub fn new(cells: u64, loss: f64) -> Plan {
        assert!(loss > 0.0 && loss < 1.0, "a loss of {loss}");
        let tiles = (loss * cells as f64 / LOST_MEAN).ceil().max(1.0);
        assert!(tiles <= f64::from(u32::MAX), "{tiles} tiles");
        Plan { cells, loss, tiles: tiles as u32 }
    }

    /// Bytes of all tiles.
    #[must_use]
    pub fn parity_bytes(&self) -> u64 {
        u64::from(self.tiles) * Tile::SIZE as u64
    }

    /// Most cells that may be lost.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "fewer than the cells")]
    pub fn lost_max(&self) -> u64 {
        (self.loss * self.cells as f64) as u64
    }

    /// Logarithm to base 2 of the chance that not all comes back when so many cells are lost.
    #[must_use]
    pub fn failure_log2(&self, lost: u64) -> f64 {
        let overload = overload_log2(lost as f64 / f64::from(self.tiles), LOST_MAX + 1);
        let rank = rank_log2(ROWS, DEGREE, LOST_MAX);
        (overload.exp2() + rank.exp2()).log2() + f64::from(self.tiles).log2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64, by: f64) {
        assert!((found - expected).abs() <= by, "{found} instead of {expected}");
    }

    /// ceil(ln(1 / miss) / -ln(1 - e)).
    #[test]
    fn samples_are_those_of_the_formula() {
        let bits_of_99 = 100_f64.log2();
        let rows = [(0.001, 4603, 27_713), (0.005, 919, 5532), (0.01, 459, 2759), (0.05, 90, 541)];
        for (missing, for_99, for_40_bits) in rows {
            assert_eq!((samples(missing, bits_of_99), samples(missing, 40.0)), (for_99, for_40_bits));
            near(detection(missing, for_99), 0.99, 0.0011);
        }
    }

    /// By hand: two columns of 2 of 4 rows are equal in one of C(4, 2) = 6 cases. Three columns
    /// have three pairs, and sum to zero in a triangle: 4 of the 20 triples of pairs... as ordered
    /// columns 24 of 216.
    #[test]
    fn the_rank_bound_is_the_expected_number_of_null_sets() {
        near(rank_log2(4, 2, 2).exp2(), 1.0 / 6.0, 1e-9);
        near(rank_log2(4, 2, 3).exp2(), 3.0 / 6.0 + 24.0 / 216.0, 1e-9);
    }

    /// The same formula in exact fractions of integers, by another program.
    #[test]
    fn the_rank_bound_is_the_exact_one() {
        near(rank_log2(128, 4, 96).exp2() * 1e6, 514.580_906_365, 1e-6);
        near(rank_log2(128, 5, 96).exp2() * 2e6, 34.888_610_276, 1e-7);
        near(rank_log2(256, 4, 192).exp2() * 5e5, 56.735_049_213, 1e-7);
        near(rank_log2(1024, 9, 973), -50.382_197, 1e-5);
        near(rank_log2(ROWS, 5, LOST_MAX), -27.235_686, 1e-5);
        near(rank_log2(ROWS, DEGREE, LOST_MAX), -59.655_105, 1e-5);
    }

    #[test]
    fn the_tail_is_the_sum_of_its_terms() {
        // 1 - e^-2 (1 + 2 + 2).
        near(overload_log2(2.0, 3).exp2(), 1.0 - 5.0 * (-2_f64).exp(), 1e-12);
        near(overload_log2(2.0, 0), 0.0, 1e-12);
        near(overload_log2(LOST_MEAN, LOST_MAX + 1), -60.0, 0.6);
    }

    #[test]
    fn parity_for_two_percent_is_below_its_goal() {
        let tib = 1 << 28;
        let plan = Plan::new(tib, 0.02);
        assert_eq!(plan.tiles, 3390);
        let share = plan.parity_bytes() as f64 / (tib as f64 * 4096.0);
        assert!(share <= 0.026, "{share}");
        near(plan.failure_log2(plan.lost_max()), -47.1, 0.6);
        // More lost than planned is worse, less is better, down to the rank bound.
        assert!(plan.failure_log2(plan.lost_max() * 11 / 10) > -30.0);
        near(plan.failure_log2(plan.lost_max() / 2), -59.7 + 3390_f64.log2(), 0.1);
        assert_eq!(Plan::new(0, 0.02).tiles, 1);
    }
}
