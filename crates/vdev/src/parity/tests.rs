use proptest::prelude::*;

use super::*;

fn kernels() -> impl Iterator<Item = Kernel> {
    Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported())
}

/// Bytes that look random, the same for a seed.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn refs(columns: &[Vec<u8>]) -> Vec<&[u8]> {
    columns.iter().map(Vec::as_slice).collect()
}

fn muts(columns: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    columns.iter_mut().map(Vec::as_mut_slice).collect()
}

/// The definition, byte by byte: products by shifting and adding, powers by repeated products.
fn by_definition(data: &[Vec<u8>], row: usize) -> Vec<u8> {
    fn product(mut a: u8, mut b: u8) -> u8 {
        let mut sum = 0;
        while b != 0 {
            sum ^= if b & 1 == 1 { a } else { 0 };
            a = a << 1 ^ if a >= 0x80 { 0x1d } else { 0 };
            b >>= 1;
        }
        sum
    }
    let base = [1, 2, 4][row];
    let mut sums = vec![0; data[0].len()];
    let mut factor = 1;
    for column in data {
        sums.iter_mut().zip(column).for_each(|(sum, &byte)| *sum ^= product(factor, byte));
        factor = product(factor, base);
    }
    sums
}

fn parity_of(kernel: Kernel, data: &[Vec<u8>], parity: usize) -> Vec<Vec<u8>> {
    let mut columns = vec![vec![0xaa; data[0].len()]; parity];
    generate_by(kernel, &refs(data), &mut muts(&mut columns));
    columns
}

#[test]
fn the_field_is_a_field() {
    for a in 0..=255 {
        assert_eq!((multiply(a, 0), multiply(a, 1)), (0, a));
        if a != 0 {
            assert_eq!(multiply(a, inverse(a)), 1);
        }
        for b in 0..=255 {
            assert_eq!(multiply(a, b), multiply(b, a));
            for c in [1, 2, 29, 142, 255] {
                assert_eq!(multiply(a, b ^ c), multiply(a, b) ^ multiply(a, c));
                assert_eq!(multiply(multiply(a, b), c), multiply(a, multiply(b, c)));
            }
        }
    }
    // The generator comes round after 255 steps, not before.
    assert!((1..255).all(|exponent| power_of_2(exponent) != 1) && power_of_2(255) == 1);
    // Known answers: Anvin's paper, and the polynomial itself.
    assert_eq!((power_of_2(8), multiply(0x80, 2), inverse(2)), (0x1d, 0x1d, 0x8e));
}

/// Worked out by hand from the definition: three columns of one byte.
#[test]
fn known_answers() {
    for (data, [p, q, r]) in [
        // 1 + 2 + 4; 1 + 2*2 + 4*4; 1 + 4*2 + 16*4.
        ([0x01, 0x02, 0x04], [0x07, 0x15, 0x49]),
        // 0x80 + 0x80 + 0x80; 0x80 + 2*0x80 (0x1d) + 4*0x80 (0x3a); 0x80 + 0x3a + 16*0x80 (0xe8).
        ([0x80, 0x80, 0x80], [0x80, 0xa7, 0x52]),
        ([0x00, 0x00, 0x01], [0x01, 0x04, 0x10]),
        ([0xff, 0x00, 0x00], [0xff, 0xff, 0xff]),
    ] {
        for kernel in kernels() {
            // Long enough for every vector, and a rest.
            let columns: Vec<Vec<u8>> = data.iter().map(|&byte| vec![byte; 611]).collect();
            let parity = parity_of(kernel, &columns, 3);
            for (column, byte) in parity.iter().zip([p, q, r]) {
                assert!(column.iter().all(|&found| found == byte), "{kernel:?} of {data:02x?}");
            }
        }
    }
}

#[test]
fn every_set_of_missing_columns_of_every_width_is_repaired() {
    for data in 1..=DATA_COLUMNS_MAX {
        // Length 75: a vector of 64, and bytes after it.
        let columns: Vec<Vec<u8>> = (0..data).map(|column| bytes(column as u64 + 1, 75)).collect();
        for parity in 1..=PARITY_COLUMNS_MAX.min(32 - data) {
            let mut all = columns.clone();
            all.extend(parity_of(Kernel::Scalar, &columns, parity));
            let sets = (1_u64..1 << (data + parity)).filter(|_| data + parity < 8);
            let small = sets.filter(|set| set.count_ones() as usize <= parity);
            let few = triples(data + parity).filter(|_| data + parity >= 8);
            let large = few.filter(|set| set.count_ones() as usize <= parity);
            for set in small.chain(large) {
                let missing: Vec<usize> = (0..data + parity).filter(|&at| set >> at & 1 == 1).collect();
                let repair =
                    Reconstruction::new(data, parity, &missing, &missing).expect("no more than the parity");
                assert!(repair.sources().iter().all(|source| !missing.contains(source)));
                assert_eq!(repair.sources().len(), data);
                let sources: Vec<&[u8]> = repair.sources().iter().map(|&at| all[at].as_slice()).collect();
                let mut found = vec![vec![0x55; 75]; missing.len()];
                repair.run(&sources, &mut muts(&mut found));
                for (column, &at) in found.iter().zip(&missing) {
                    assert!(*column == all[at], "column {at} of {data}+{parity} without {missing:?}");
                    // Each of them alone, though the others cannot be had either.
                    let alone =
                        Reconstruction::new(data, parity, &missing, &[at]).expect("no more than the parity");
                    let sources: Vec<&[u8]> = alone.sources().iter().map(|&at| all[at].as_slice()).collect();
                    let mut found = [vec![0x55; 75]];
                    alone.run(&sources, &mut muts(&mut found));
                    assert!(found[0] == all[at], "{at} alone of {data}+{parity} without {missing:?}");
                }
            }
        }
    }
}

/// All sets of one to three of `width` columns.
fn triples(width: usize) -> impl Iterator<Item = u64> {
    (0..width).flat_map(move |a| {
        (a..width).flat_map(move |b| (b..width).map(move |c| 1_u64 << a | 1 << b | 1 << c))
    })
}

#[test]
fn more_missing_than_parity_is_no_repair() {
    assert!(Reconstruction::new(4, 1, &[0, 4], &[0, 4]).is_none());
    assert!(Reconstruction::new(4, 2, &[0, 1, 2], &[0, 1, 2]).is_none());
    assert!(Reconstruction::new(4, 3, &[0, 1, 2, 6], &[0, 1, 2, 6]).is_none());
    assert!(Reconstruction::new(4, 3, &[0, 1, 6], &[0, 1, 6]).is_some());
}

#[test]
#[should_panic(expected = "of one length")]
fn columns_of_two_lengths_are_a_bug() {
    generate(&[&[0; 64], &[0; 63]], &mut [&mut [0; 64]]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// [parity.1], [parity.3]: each kernel as the definition says, at odd places and lengths, and
    /// nothing beside.
    #[test]
    fn kernels_agree(
        data in 1_usize..=DATA_COLUMNS_MAX,
        parity in 1_usize..=PARITY_COLUMNS_MAX,
        length in 0_usize..1200,
        offset in 0_usize..70,
        seed: u64,
    ) {
        let columns: Vec<Vec<u8>> =
            (0..data).map(|column| bytes(seed ^ column as u64, offset + length)).collect();
        let inputs: Vec<&[u8]> = columns.iter().map(|column| &column[offset..]).collect();
        let plain: Vec<Vec<u8>> = inputs.iter().map(|input| input.to_vec()).collect();
        let expected: Vec<Vec<u8>> = (0..parity).map(|row| by_definition(&plain, row)).collect();
        for kernel in kernels() {
            let mut outputs = vec![vec![0xcc; offset + length + 7]; parity];
            let mut parts: Vec<&mut [u8]> =
                outputs.iter_mut().map(|output| &mut output[offset..offset + length]).collect();
            generate_by(kernel, &inputs, &mut parts);
            for (output, expected) in outputs.iter().zip(&expected) {
                prop_assert_eq!(&output[offset..offset + length], &expected[..], "{:?}", kernel);
                let beside = output[..offset].iter().chain(&output[offset + length..]);
                prop_assert!(beside.into_iter().all(|&byte| byte == 0xcc), "{:?} wrote beside", kernel);
            }
        }
    }

    /// [parity.1], [parity.2]: each kernel repairs what is missing.
    #[test]
    fn kernels_repair(
        data in 1_usize..=DATA_COLUMNS_MAX,
        parity in 1_usize..=PARITY_COLUMNS_MAX,
        length in 1_usize..9000,
        picks: [prop::sample::Index; 3],
        seed: u64,
    ) {
        let columns: Vec<Vec<u8>> = (0..data).map(|column| bytes(seed ^ column as u64, length)).collect();
        let mut all = columns.clone();
        all.extend(parity_of(Kernel::Scalar, &columns, parity));
        let mut missing: Vec<usize> = picks[..parity].iter().map(|pick| pick.index(data + parity)).collect();
        missing.sort_unstable();
        missing.dedup();
        let repair = Reconstruction::new(data, parity, &missing, &missing).expect("no more than the parity");
        let sources: Vec<&[u8]> = repair.sources().iter().map(|&at| all[at].as_slice()).collect();
        for kernel in kernels() {
            let mut found = vec![vec![0xcc; length]; missing.len()];
            repair.run_by(kernel, &sources, &mut muts(&mut found));
            for (column, &at) in found.iter().zip(&missing) {
                prop_assert!(*column == all[at], "{:?}: column {} without {:?}", kernel, at, missing);
            }
        }
    }
}
