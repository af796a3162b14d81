//! # Sums of many cells, gathered
//!
//! Adding cells to a tile could go through the cells and change nine rows for each: every byte of
//! a row is then read and written nine times for a cell. Here it goes through the rows instead. A
//! batch is cut into [`Strip`]s of 256 bytes, and all strips of one place in the cell lie side by
//! side (512 KiB for 2,048 cells: in the second cache). A row's strip is then read once, held in
//! registers while the strips of its cells are added, and written once.

use crate::kernel::Kernel;
use crate::simd;

/// Bytes of a strip: four vectors of 64 bytes, so four independent sums.
pub(crate) const STRIP: usize = 256;

/// A piece of a cell or of a row. Kernels take it at any address, and are fastest at multiples of
/// 64.
pub(crate) type Strip = [u8; STRIP];

pub(crate) const ZERO: Strip = [0; STRIP];

/// Adds a strip to another one.
pub(crate) fn add(sum: &mut Strip, other: &Strip) {
    sum.iter_mut().zip(other).for_each(|(sum, byte)| *sum ^= byte);
}

/// For each output the inputs that are added to it.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    /// Turns round: inputs name their outputs, below `outputs`.
    pub fn of_outputs<'o>(
        outputs: usize,
        names: impl Iterator<Item = &'o [u16; crate::code::DEGREE]> + Clone,
    ) -> Lists {
        let mut starts = vec![0_u32; outputs + 1];
        names.clone().flatten().for_each(|&output| starts[usize::from(output) + 1] += 1);
        for at in 0..outputs {
            starts[at + 1] += starts[at];
        }
        let mut next = starts.clone();
        let mut items = vec![0; *starts.last().expect("one more than outputs") as usize];
        for (input, outputs) in (0..).zip(names) {
            for &output in outputs {
                let at = &mut next[usize::from(output)];
                items[*at as usize] = input;
                *at += 1;
            }
        }
        Lists { starts, items }
    }

    /// Adds an input to the list that is not ended yet.
    pub fn push(&mut self, input: u32) {
        self.items.push(input);
    }

    /// Ends a list.
    pub fn end(&mut self) {
        self.starts.push(u32::try_from(self.items.len()).expect("some millions at most"));
    }

    /// Number of outputs.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Inputs of all outputs, one list after the other.
    pub fn items(&self) -> &[u32] {
        &self.items
    }

    /// Inputs of one output.
    pub fn of(&self, output: usize) -> &[u32] {
        &self.items[self.starts[output] as usize..self.starts[output + 1] as usize]
    }
}

impl Default for Lists {
    /// No lists.
    fn default() -> Lists {
        Lists { starts: vec![0], items: Vec::new() }
    }
}

/// Computes value after value, each the sum of those that its list names: of the first `given`,
/// which are there, or of those before it.
pub(crate) fn follow_by(kernel: Kernel, lists: &Lists, given: usize, values: &mut [Strip]) {
    assert_eq!(given + lists.len(), values.len(), "a list for each value that is computed");
    if kernel != Kernel::Scalar {
        return simd::follow(kernel, lists, given, values);
    }
    for step in 0..lists.len() {
        let (before, rest) = values.split_at_mut(given + step);
        let mut sum = ZERO;
        lists.of(step).iter().for_each(|&input| add(&mut sum, &before[input as usize]));
        rest[0] = sum;
    }
}

/// Adds to each output the inputs of its list.
pub(crate) fn gather_by(kernel: Kernel, lists: &Lists, inputs: &[Strip], outputs: &mut [Strip]) {
    assert_eq!(lists.len(), outputs.len(), "a list for each output");
    if kernel != Kernel::Scalar {
        return simd::gather(kernel, lists, inputs, outputs);
    }
    for (output, sum) in outputs.iter_mut().enumerate() {
        lists.of(output).iter().for_each(|&input| add(sum, &inputs[input as usize]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn strips(seed: u64, count: usize) -> Vec<Strip> {
        let mut strips = vec![ZERO; count];
        let random = steadfast_env::Env::seeded(seed).random;
        strips.iter_mut().for_each(|strip| random.fill(strip));
        strips
    }

    fn listed(lists: &[Vec<u16>]) -> Lists {
        let mut all = Lists::default();
        for list in lists {
            list.iter().for_each(|&input| all.push(input.into()));
            all.end();
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn all_kernels_give_the_same_bytes(
            seed: u64,
            lists in proptest::collection::vec(proptest::collection::vec(0_u16..20, 0..30), 1..20),
        ) {
            let lists = listed(&lists);
            let (inputs, before) = (strips(seed, 20), strips(seed ^ 1, lists.len()));
            // The definition, byte by byte.
            let expected: Vec<Strip> = (0..lists.len()).map(|output| {
                std::array::from_fn(|at| {
                    let items = lists.of(output).iter();
                    items.fold(before[output][at], |sum, &input| sum ^ inputs[input as usize][at])
                })
            }).collect();
            for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
                let mut outputs = before.clone();
                gather_by(kernel, &lists, &inputs, &mut outputs);
                prop_assert!(outputs == expected, "{}", kernel.name());
            }
        }

        #[test]
        fn all_kernels_follow_lists_to_the_same_bytes(
            seed: u64,
            lists in proptest::collection::vec(proptest::collection::vec(0_u16..1000, 0..30), 1..20),
        ) {
            // Each names values before it alone.
            let before = |(step, list): (u16, &Vec<u16>)| list.iter().map(|at| at % (10 + step)).collect();
            let lists: Vec<Vec<u16>> = (0..).zip(&lists).map(before).collect();
            let given = strips(seed, 10);
            let mut expected = given.clone();
            for list in &lists {
                let mut sum = ZERO;
                list.iter().for_each(|&input| add(&mut sum, &expected[usize::from(input)]));
                expected.push(sum);
            }
            for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
                let mut values = given.clone();
                values.resize(10 + lists.len(), [0xee; STRIP]);
                follow_by(kernel, &listed(&lists), 10, &mut values);
                prop_assert!(values == expected, "{}", kernel.name());
            }
        }
    }

    #[test]
    fn lists_turned_round_hold_each_pair_once() {
        let names = [[0, 1, 2, 3, 4, 5, 6, 7, 8], [8, 1, 9, 3, 10, 5, 11, 7, 0]];
        let lists = Lists::of_outputs(12, names.iter());
        assert_eq!((lists.of(0), lists.of(2), lists.of(9)), (&[0, 1][..], &[0][..], &[1][..]));
        assert_eq!((0..12).map(|output| lists.of(output).len()).sum::<usize>(), 18);
    }
}
