//! # Solving a tile
//!
//! Take the cells that are still there out of a tile. Its rows are then sums of the missing cells
//! alone: a system of 2,048 equations over GF(2), whose unknowns are whole cells.
//!
//! 1. *Peel*: a row with one unknown is that unknown. It is taken out of its eight other rows,
//!    which may leave another row with one. Below 0.49 unknowns a row this finds nearly all.
//! 2. *Set aside*: where no row has one unknown left, one of a row with the fewest is set aside,
//!    and peeling goes on. A peeled unknown is then its row plus a sum of those set aside. Of the
//!    1,584 unknowns of the planned loss about 410 are set aside.
//! 3. *Eliminate*: each row that peeling did not use is an equation between those set aside. Gauss
//!    and Jordan solve these on bits, with a record of which rows were added to which.
//!
//! So the dense system is a fourth as wide as the sparse one. Fill-in stays in that fourth: each
//! peeled unknown keeps the row that it came from, which has seven unknowns on average.
//!
//! All of this works on bits. Contents follow once, by a [`Program`] that adds strips: peeled
//! unknowns without those set aside, the rows of the dense system, those set aside, and then the
//! peeled unknowns again that need them. An unknown that the system does not determine is named;
//! nothing is guessed [por.5]. It is taken for zero where others are computed, which do not depend
//! on it.

use crate::code::{ROWS, Rows};
use crate::gather::Lists;

/// Computes values from rows. Values have numbers: rows come first, then one for each step.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// For each step the values that are added. Each comes before the step.
    pub steps: Lists,
}

impl Program {
    /// The values of all steps, behind those of the rows.
    pub fn run<T: Copy + Default + std::ops::BitXor<Output = T>>(&self, mut values: Vec<T>) -> Vec<T> {
        for step in 0..self.steps.len() {
            let sum = self.steps.of(step).iter().fold(T::default(), |sum, &at| sum ^ values[at as usize]);
            values.push(sum);
        }
        values
    }
}

/// How the unknowns of a tile follow from its rows.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    /// The arithmetic.
    pub program: Program,
    /// Unknowns that are determined, and the step that computes each.
    pub found: Vec<(usize, usize)>,
    /// Unknowns that are not determined, ascending.
    pub undetermined: Vec<usize>,
}

/// Role of an unknown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Role {
    /// Not known yet.
    Live,
    /// Peeled, so many were before.
    Peeled(u32),
    /// Set aside, so many were before.
    Aside(u32),
}

/// Solves for unknowns that lie in these rows.
pub(crate) fn solve(unknowns: &[Rows]) -> Solution {
    let of_row = Lists::of_outputs(ROWS, unknowns.iter());
    let order = Order::of(unknowns, &of_row);
    let dense = Dense::of(&order, &of_row);
    dense.solution(&order, &of_row)
}

/// Unknowns in the order of peeling.
struct Order {
    roles: Vec<Role>,
    /// Unknown and the row it is.
    peeled: Vec<(u32, u16)>,
    aside: Vec<u32>,
    /// Rows that no unknown was peeled from.
    unused: Vec<u16>,
}

impl Order {
    fn of(unknowns: &[Rows], of_row: &Lists) -> Order {
        let mut roles = vec![Role::Live; unknowns.len()];
        let mut live: Vec<usize> = (0..ROWS).map(|row| of_row.of(row).len()).collect();
        // Rows by the number of their live unknowns. A row moves down by another entry; entries of
        // before are passed over.
        let mut waiting = vec![Vec::new(); live.iter().max().map_or(1, |most| most + 1)];
        (0..).zip(&live).for_each(|(row, &count)| waiting[count].push(row));
        waiting[0].clear();
        let (mut peeled, mut aside, mut is_used) = (Vec::new(), Vec::new(), vec![false; ROWS]);
        let mut least = 1;
        while least < waiting.len() {
            let Some(row) = waiting[least].pop() else {
                least += 1;
                continue;
            };
            let at = usize::from(row);
            if live[at] != least {
                continue;
            }
            let mut left = of_row.of(at).iter().copied();
            let unknown = left.find(|&unknown| roles[unknown as usize] == Role::Live);
            let unknown = unknown.expect("as many live unknowns as were counted");
            if least == 1 {
                roles[unknown as usize] = Role::Peeled(number(peeled.len()));
                peeled.push((unknown, row));
                is_used[at] = true;
            } else {
                roles[unknown as usize] = Role::Aside(number(aside.len()));
                aside.push(unknown);
            }
            for &row in &unknowns[unknown as usize] {
                let count = &mut live[usize::from(row)];
                *count -= 1;
                if *count > 0 {
                    waiting[*count].push(row);
                    least = least.min(*count);
                }
            }
        }
        let unused = (0..).zip(&is_used).filter(|(_, is_used)| !**is_used).map(|(row, _)| row).collect();
        Order { roles, peeled, aside, unused }
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("cells of a tile")
}

/// The system of the unknowns that were set aside.
struct Dense {
    /// For each peeled unknown those of them that it needs.
    needs: Bits,
    /// Row of the tile, and the pivot's column, of each row of the system that has a pivot.
    pivots: Vec<(u16, usize)>,
    /// For each of them: the columns that are left, then the pivots' rows whose sum it is.
    rows: Bits,
    /// Columns without a pivot.
    free: Vec<u64>,
}

impl Dense {
    fn of(order: &Order, of_row: &Lists) -> Dense {
        let columns = order.aside.len();
        let words = columns.div_ceil(64);
        let mut needs = Bits::new(order.peeled.len(), words);
        let mut sum = vec![0; words];
        // The sum of what a row's unknowns need, but for the one that is peeled from it.
        let sum_of = |row: u16, but: u32, needs: &Bits, sum: &mut Vec<u64>| {
            sum.fill(0);
            for &unknown in of_row.of(row.into()).iter().filter(|&&unknown| unknown != but) {
                match order.roles[unknown as usize] {
                    Role::Aside(column) => sum[column as usize / 64] ^= 1 << (column % 64),
                    Role::Peeled(before) => add(sum, needs.row(before as usize)),
                    Role::Live => unreachable!("every unknown is peeled or set aside"),
                }
            }
        };
        if columns > 0 {
            for (at, &(unknown, row)) in order.peeled.iter().enumerate() {
                sum_of(row, unknown, &needs, &mut sum);
                needs.row_mut(at).copy_from_slice(&sum);
            }
        }
        let mut equations: Vec<(u16, Vec<u64>)> = Vec::new();
        for &row in order.unused.iter().filter(|_| columns > 0) {
            sum_of(row, u32::MAX, &needs, &mut sum);
            if sum.iter().any(|word| *word != 0) {
                equations.push((row, sum.clone()));
            }
        }
        let mut rows = Bits::new(equations.len(), words + equations.len().div_ceil(64));
        for (at, (_, bits)) in equations.iter().enumerate() {
            rows.row_mut(at)[..words].copy_from_slice(bits);
            rows.set(at, 64 * words + at);
        }
        let (mut pivots, mut free) = (Vec::new(), vec![0_u64; words]);
        // Rows change places; the record of sums names them by their first place.
        let mut first_place: Vec<usize> = (0..equations.len()).collect();
        let mut is_full = true;
        for column in 0..columns {
            let pivot = pivots.len();
            let Some(found) = (pivot..equations.len()).find(|&row| rows.has(row, column)) else {
                free[column / 64] |= 1 << (column % 64);
                is_full = false;
                continue;
            };
            rows.swap(pivot, found);
            first_place.swap(pivot, found);
            rows.clear_others(pivot, column, if is_full { column / 64 } else { 0 });
            pivots.push((equations[first_place[pivot]].0, column));
        }
        // Sums are of rows with a pivot alone: put their bits in the order of the pivots.
        let mut kept = Bits::new(pivots.len(), words + pivots.len().div_ceil(64));
        for at in 0..pivots.len() {
            kept.row_mut(at)[..words].copy_from_slice(&rows.row(at)[..words]);
            for pivot in (0..pivots.len()).filter(|&pivot| rows.has(at, 64 * words + first_place[pivot])) {
                kept.set(at, 64 * words + pivot);
            }
        }
        Dense { needs, pivots, rows: kept, free }
    }

    /// True if the unknowns of these columns have a sum that the system determines.
    fn determines(&self, columns: &[u64]) -> bool {
        let mut left: Vec<u64> =
            columns.iter().zip(&self.free).map(|(columns, free)| columns & free).collect();
        for (at, &(_, column)) in self.pivots.iter().enumerate() {
            if columns[column / 64] >> (column % 64) & 1 == 1 {
                let row = self.rows.row(at).iter().zip(&self.free);
                left.iter_mut().zip(row).for_each(|(left, (row, free))| *left ^= row & free);
            }
        }
        left.iter().all(|word| *word == 0)
    }

    fn solution(&self, order: &Order, of_row: &Lists) -> Solution {
        let is_full = self.free.iter().all(|word| *word == 0);
        let words = self.free.len();
        let mut steps = Lists::default();
        // Step of each peeled unknown, without those set aside.
        let alone = |before: u32| number(ROWS) + before;
        for &(unknown, row) in &order.peeled {
            steps.push(u32::from(row));
            for &other in of_row.of(row.into()).iter().filter(|&&other| other != unknown) {
                if let Role::Peeled(before) = order.roles[other as usize] {
                    steps.push(alone(before));
                }
            }
            steps.end();
        }
        let equations = number(ROWS + steps.len());
        for &(row, _) in &self.pivots {
            steps.push(u32::from(row));
            for &other in of_row.of(row.into()) {
                if let Role::Peeled(before) = order.roles[other as usize] {
                    steps.push(alone(before));
                }
            }
            steps.end();
        }
        let (mut found, mut undetermined) = (Vec::new(), Vec::new());
        let mut step_of_column = vec![None; order.aside.len()];
        for (at, &(_, column)) in self.pivots.iter().enumerate() {
            let own = (0..).zip(0..self.pivots.len());
            own.filter(|&(_, other)| self.rows.has(at, 64 * words + other))
                .for_each(|(other, _): (u32, usize)| steps.push(equations + other));
            let step = steps.len();
            steps.end();
            step_of_column[column] = Some(number(ROWS + step));
            let is_tied = self.rows.row(at).iter().zip(&self.free).any(|(word, free)| word & free != 0);
            if !is_tied {
                found.push((order.aside[column] as usize, step));
            } else {
                undetermined.push(order.aside[column] as usize);
            }
        }
        let free = (0..order.aside.len()).filter(|&column| step_of_column[column].is_none());
        undetermined.extend(free.map(|column| order.aside[column] as usize));
        // Peeled unknowns again, now with those set aside.
        let mut last: Vec<u32> = Vec::with_capacity(order.peeled.len());
        for (at, &(unknown, row)) in order.peeled.iter().enumerate() {
            let needs = self.needs.row(at);
            let step = if needs.iter().all(|word| *word == 0) {
                at
            } else {
                steps.push(u32::from(row));
                for &other in of_row.of(row.into()).iter().filter(|&&other| other != unknown) {
                    match order.roles[other as usize] {
                        Role::Peeled(before) => steps.push(last[before as usize]),
                        Role::Aside(column) => {
                            step_of_column[column as usize].iter().for_each(|&s| steps.push(s))
                        }
                        Role::Live => unreachable!("every unknown is peeled or set aside"),
                    }
                }
                steps.end();
                steps.len() - 1
            };
            last.push(number(ROWS + step));
            if is_full || self.determines(needs) {
                found.push((unknown as usize, step));
            } else {
                undetermined.push(unknown as usize);
            }
        }
        undetermined.sort_unstable();
        Solution { program: Program { steps }, found, undetermined }
    }
}

/// Rows of bits.
struct Bits {
    bits: Vec<u64>,
    /// Words of a row.
    width: usize,
}

fn add(sum: &mut [u64], other: &[u64]) {
    sum.iter_mut().zip(other).for_each(|(word, add)| *word ^= add);
}

impl Bits {
    fn new(rows: usize, width: usize) -> Bits {
        Bits { bits: vec![0; rows * width], width }
    }

    fn row(&self, row: usize) -> &[u64] {
        &self.bits[row * self.width..][..self.width]
    }

    fn row_mut(&mut self, row: usize) -> &mut [u64] {
        &mut self.bits[row * self.width..][..self.width]
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
                add(&mut row[from..], &pivot[from..]);
            }
        }
    }
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
        let values = solution.program.run(rows);
        let mut found = BTreeSet::new();
        for &(unknown, step) in &solution.found {
            assert_eq!(values[ROWS + step], contents[unknown], "unknown {unknown}");
            assert!(found.insert(unknown), "unknown {unknown} is found once");
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
        let nothing = solve(&[]);
        assert!(
            nothing.found.is_empty() && nothing.undetermined.is_empty() && nothing.program.steps.len() == 0
        );
    }
}
