//! # Solving a tile
//!
//! Take the cells that are still there out of a tile. Its rows are then sums of the missing cells
//! alone: a system of 2,048 equations over GF(2), whose unknowns are whole cells. It is solved
//! in two steps.
//!
//! 1. *Peel*: a row with one unknown is that unknown. It is taken out of its eight other rows,
//!    which may leave another row with one. Below 0.3 unknowns a row this finds nearly all.
//! 2. *Eliminate*: Gauss and Jordan on the bits of the rest, with a record of which rows were added
//!    to which. An unknown is determined if its row has no other bit left.
//!
//! Both work on bits first. Contents follow once, by strips, as in [`crate::gather`]. An unknown
//! that the system does not determine is named; nothing is guessed [por.5].

use crate::code::{ROWS, Rows};

/// How the unknowns of a tile follow from its rows.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Solution {
    /// Unknown and the row it is, in this order: each is added to all of its rows before the next.
    pub peeled: Vec<(usize, u16)>,
    /// Unknown and the rows whose sum it is, after all that were peeled.
    pub eliminated: Vec<(usize, Vec<u16>)>,
    /// Unknowns that are not determined, ascending.
    pub undetermined: Vec<usize>,
}

/// Solves for unknowns that lie in these rows.
pub(crate) fn solve(unknowns: &[Rows]) -> Solution {
    let mut solution = Solution::default();
    let is_left = peel(unknowns, &mut solution.peeled);
    let columns: Vec<usize> = (0..unknowns.len()).filter(|&unknown| is_left[unknown]).collect();
    if !columns.is_empty() {
        eliminate(unknowns, &columns, &mut solution);
    }
    solution
}

/// Finds unknowns that are alone in a row; tells for each unknown whether it is left.
fn peel(unknowns: &[Rows], peeled: &mut Vec<(usize, u16)>) -> Vec<bool> {
    let mut is_left = vec![true; unknowns.len()];
    // Unknowns in a row: how many, and the exclusive or of their numbers.
    let mut rows = vec![(0_usize, 0_usize); ROWS];
    for (unknown, own) in unknowns.iter().enumerate() {
        for &row in own {
            let (count, numbers) = &mut rows[usize::from(row)];
            *count += 1;
            *numbers ^= unknown;
        }
    }
    let mut ready: Vec<u16> = (0..).take(ROWS).filter(|&row| rows[usize::from(row)].0 == 1).collect();
    while let Some(row) = ready.pop() {
        let (1, unknown) = rows[usize::from(row)] else { continue };
        peeled.push((unknown, row));
        is_left[unknown] = false;
        for &row in &unknowns[unknown] {
            let (count, numbers) = &mut rows[usize::from(row)];
            *count -= 1;
            *numbers ^= unknown;
            if *count == 1 {
                ready.push(row);
            }
        }
    }
    is_left
}

/// Bits of the system that is left: for each row its unknowns, then which rows it is the sum of.
struct Matrix {
    bits: Vec<u64>,
    /// Words of a row.
    width: usize,
}

impl Matrix {
    fn row(&self, row: usize) -> &[u64] {
        &self.bits[row * self.width..][..self.width]
    }

    fn set(&mut self, row: usize, bit: usize) {
        self.bits[row * self.width + bit / 64] |= 1 << (bit % 64);
    }

    fn has(&self, row: usize, bit: usize) -> bool {
        self.bits[row * self.width + bit / 64] >> (bit % 64) & 1 == 1
    }

    fn swap(&mut self, one: usize, other: usize) {
        if one != other {
            let (low, high) = self.bits.split_at_mut(one.max(other) * self.width);
            low[one.min(other) * self.width..][..self.width].swap_with_slice(&mut high[..self.width]);
        }
    }

    /// Adds row `pivot` to all others that have `bit`; words before `from` of it are zero.
    fn clear_others(&mut self, pivot: usize, bit: usize, from: usize) {
        let (before, rest) = self.bits.split_at_mut(pivot * self.width);
        let (pivot, after) = rest.split_at_mut(self.width);
        for row in before.chunks_exact_mut(self.width).chain(after.chunks_exact_mut(self.width)) {
            if row[bit / 64] >> (bit % 64) & 1 == 1 {
                row[from..].iter_mut().zip(&pivot[from..]).for_each(|(word, add)| *word ^= add);
            }
        }
    }
}

fn eliminate(unknowns: &[Rows], columns: &[usize], solution: &mut Solution) {
    let mut number_of = vec![usize::MAX; ROWS];
    let mut rows: Vec<u16> = Vec::new();
    for &row in columns.iter().flat_map(|&unknown| &unknowns[unknown]) {
        if number_of[usize::from(row)] == usize::MAX {
            number_of[usize::from(row)] = rows.len();
            rows.push(row);
        }
    }
    let first_sum = columns.len().next_multiple_of(64);
    let width = (first_sum + rows.len()).div_ceil(64);
    let mut matrix = Matrix { bits: vec![0; rows.len() * width], width };
    for (column, &unknown) in columns.iter().enumerate() {
        unknowns[unknown].iter().for_each(|&row| matrix.set(number_of[usize::from(row)], column));
    }
    (0..rows.len()).for_each(|row| matrix.set(row, first_sum + row));

    let (mut pivots, mut free) = (Vec::new(), vec![0_u64; first_sum / 64]);
    for column in 0..columns.len() {
        let pivot = pivots.len();
        let Some(found) = (pivot..rows.len()).find(|&row| matrix.has(row, column)) else {
            free[column / 64] |= 1 << (column % 64);
            solution.undetermined.push(columns[column]);
            continue;
        };
        matrix.swap(pivot, found);
        let from = if solution.undetermined.is_empty() { column / 64 } else { 0 };
        matrix.clear_others(pivot, column, from);
        pivots.push(column);
    }
    for (row, column) in pivots.into_iter().enumerate() {
        let is_tied = matrix.row(row).iter().zip(&free).any(|(word, free)| word & free != 0);
        if is_tied {
            solution.undetermined.push(columns[column]);
        } else {
            let sum = (0..rows.len()).filter(|&other| matrix.has(row, first_sum + other));
            solution.eliminated.push((columns[column], sum.map(|other| rows[other]).collect()));
        }
    }
    solution.undetermined.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::DEGREE;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Unknowns that a system determines, by the plainest elimination: one vector of booleans a
    /// row, no peeling. An unknown is determined if its unit vector is in the span of the rows.
    fn by_model(unknowns: &[Rows], rows: usize) -> BTreeSet<usize> {
        let mut system: Vec<Vec<bool>> = (0..rows)
            .map(|row| unknowns.iter().map(|own| own.iter().any(|&r| usize::from(r) == row)).collect())
            .collect();
        let mut rank = 0;
        for column in 0..unknowns.len() {
            let Some(found) = (rank..rows).find(|&row| system[row][column]) else { continue };
            system.swap(rank, found);
            let pivot = system[rank].clone();
            for (at, row) in system.iter_mut().enumerate() {
                if at != rank && row[column] {
                    row.iter_mut().zip(&pivot).for_each(|(bit, add)| *bit ^= add);
                }
            }
            rank += 1;
        }
        let alone = system[..rank].iter().filter(|row| row.iter().filter(|bit| **bit).count() == 1);
        alone.map(|row| row.iter().position(|bit| *bit).unwrap()).collect()
    }

    /// Unknowns that a solution determines; checks on the way that it is right, with random
    /// contents.
    fn determined(unknowns: &[Rows], seed: u64) -> BTreeSet<usize> {
        let env = steadfast_env::Env::seeded(seed);
        let contents: Vec<u64> = unknowns.iter().map(|_| env.random.nonzero_u64()).collect();
        let mut rows = vec![0; ROWS];
        for (own, content) in unknowns.iter().zip(&contents) {
            own.iter().for_each(|&row| rows[usize::from(row)] ^= content);
        }
        let solution = solve(unknowns);
        let mut found = BTreeSet::new();
        for &(unknown, row) in &solution.peeled {
            let content = rows[usize::from(row)];
            assert_eq!(content, contents[unknown], "peeled {unknown}");
            unknowns[unknown].iter().for_each(|&row| rows[usize::from(row)] ^= content);
            found.insert(unknown);
        }
        for (unknown, sum) in &solution.eliminated {
            let content = sum.iter().fold(0, |total, &row| total ^ rows[usize::from(row)]);
            assert_eq!(content, contents[*unknown], "eliminated {unknown}");
            found.insert(*unknown);
        }
        let undetermined: BTreeSet<usize> = solution.undetermined.iter().copied().collect();
        assert_eq!(undetermined.len(), solution.undetermined.len(), "each once");
        assert!(undetermined.is_disjoint(&found) && undetermined.len() + found.len() == unknowns.len());
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        /// In few rows, so that every outcome is met: all determined, some, none.
        #[test]
        fn what_is_determined_is_what_the_model_determines(
            seed: u64,
            own in proptest::collection::vec(proptest::sample::subsequence((0_u16..24).collect::<Vec<_>>(), 9), 0..30),
        ) {
            let unknowns: Vec<Rows> = own.into_iter().map(|rows| rows.try_into().unwrap()).collect();
            prop_assert_eq!(determined(&unknowns, seed), by_model(&unknowns, 24));
        }
    }

    /// So many columns of nine of the first `rows` rows.
    fn drawn(env: &steadfast_env::Env, rows: usize, count: usize) -> Vec<Rows> {
        let draw = |_| {
            let mut all: Vec<u16> = (0..).take(rows).collect();
            std::array::from_fn(|at| {
                let other = at + usize::try_from(env.random.nonzero_u64() % (rows - at) as u64).unwrap();
                all.swap(at, other);
                all[at]
            })
        };
        (0..count).map(draw).collect()
    }

    /// A bound that is met: systems of few rows are singular as often as the arithmetic says.
    #[test]
    fn singular_systems_are_as_rare_as_their_bound() {
        let (rows, count) = (32, 27);
        let env = steadfast_env::Env::seeded(11);
        let trials = if std::env::var_os("STEADFAST_LONG").is_some() { 1_000_000 } else { 3_000 };
        let singular =
            (0..trials).filter(|_| !solve(&drawn(&env, rows, count)).undetermined.is_empty()).count();
        let bound =
            f64::from(trials) * crate::bound::rank_log2(rows, DEGREE, u32::try_from(count).unwrap()).exp2();
        // Null sets of a singular system are one or a few, so the bound is near.
        let (least, most) = (bound / 2.0 - 3.0 * bound.sqrt(), bound + 3.0 * bound.sqrt());
        assert!((least..=most).contains(&(singular as f64)), "{singular} instead of {bound}");
    }

    /// With 95 % as many unknowns as rows; above the rows some are never determined.
    #[test]
    fn full_tiles_are_solved_and_overfull_ones_are_not() {
        let env = steadfast_env::Env::seeded(12);
        let trials = if std::env::var_os("STEADFAST_LONG").is_some() { 1_000 } else { 3 };
        for trial in 0..trials {
            let unknowns = drawn(&env, ROWS, crate::bound::LOST_MAX as usize);
            assert!(solve(&unknowns).undetermined.is_empty(), "trial {trial}");
        }
        assert!(solve(&drawn(&env, ROWS, ROWS + 1)).undetermined.len() > 1);
    }

    #[test]
    fn twins_are_named_and_the_others_are_found() {
        let rows = |first: u16| -> Rows { std::array::from_fn(|at| first + u16::try_from(at).unwrap()) };
        let unknowns = [rows(0), rows(100), rows(0), rows(104)];
        assert_eq!(determined(&unknowns, 1), BTreeSet::from([1, 3]));
        assert_eq!(solve(&[]), Solution::default());
    }
}
