//! How fast is parity arithmetic here? Prints GB/s of all columns of a stripe together, data and
//! parity, for 8 data columns, by kernel and record size: the measure and the sizes of OpenZFS's
//! `raidz_test -B`, so that the two tables can be laid side by side.
//!
//! `cargo run --release -p steadfast-vdev --example parity [-- --rounds N] [--all]`
//!
//! Measures the fastest kernel, or each with `--all`. Rounds go through all cells in turn, the
//! median is printed.

use rustix::time::{ClockId, clock_gettime};
use steadfast_vdev::parity::{Kernel, Reconstruction, generate_by};

const DATA: usize = 8;
const SIZES: [usize; 6] = [4 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20, 16 << 20];

/// Operation, parity columns of the stripe, columns that are missing.
const OPERATIONS: [(&str, usize, &[usize]); 10] = [
    ("gen_p", 1, &[]),
    ("gen_pq", 2, &[]),
    ("gen_pqr", 3, &[]),
    ("rec_p", 1, &[1]),
    ("rec_q", 2, &[1, DATA]),
    ("rec_r", 3, &[1, DATA, DATA + 1]),
    ("rec_pq", 2, &[1, 2]),
    ("rec_pr", 3, &[1, 2, DATA + 1]),
    ("rec_qr", 3, &[1, 2, DATA]),
    ("rec_pqr", 3, &[1, 2, 3]),
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let all = words.iter().any(|word| word == "--all");
    let rounds = words.iter().position(|word| word == "--rounds").and_then(|at| words.get(at + 1));
    let rounds: usize = rounds.map_or(5, |word| word.parse().expect("--rounds takes a number"));
    let best = Kernel::best();
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported() && (all || *kernel == best)) {
        println!(
            "kernel {}, {DATA} data columns, GB/s of all columns, median of {rounds} rounds",
            kernel.name()
        );
        let sizes = SIZES.map(|size| format!("{:>9}", format!("{} KiB", size >> 10)));
        println!(
            "| operation | {} |\n|-----------|{}",
            sizes.join(" | "),
            "----------:|".repeat(SIZES.len())
        );
        let mut cells = vec![Vec::new(); OPERATIONS.len() * SIZES.len()];
        for _ in 0..rounds {
            for (index, cell) in cells.iter_mut().enumerate() {
                let (_, parity, missing) = OPERATIONS[index / SIZES.len()];
                cell.push(rate(kernel, parity, missing, SIZES[index % SIZES.len()]));
            }
        }
        for (row, (name, ..)) in cells.chunks_mut(SIZES.len()).zip(OPERATIONS) {
            let medians = row.iter_mut().map(|cell| {
                cell.sort_by(f64::total_cmp);
                format!("{:>9.1}", cell[cell.len() / 2])
            });
            println!("| {name:<9} | {} |", medians.collect::<Vec<_>>().join(" | "));
        }
        println!();
    }
}

/// GB/s of one operation on records of `size` bytes. The stripe counts in full, as in `raidz_test`;
/// parity that is not to be used (P, where data is to be had from Q) is missing, but not rebuilt.
fn rate(kernel: Kernel, parity: usize, missing: &[usize], size: usize) -> f64 {
    let column = size / DATA;
    let mut columns: Vec<Vec<u8>> =
        (0..DATA + parity).map(|at| (0..column).map(|byte| (byte * 7 + at) as u8).collect()).collect();
    let lost: Vec<usize> = missing.iter().copied().filter(|&at| at < DATA).collect();
    let repair =
        (!lost.is_empty()).then(|| Reconstruction::new(DATA, parity, missing, &lost).expect("possible"));
    let mut outputs = vec![vec![0; column]; if lost.is_empty() { parity } else { lost.len() }];
    let mut work = || {
        let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        let Some(repair) = &repair else {
            let data: Vec<&[u8]> = columns[..DATA].iter().map(Vec::as_slice).collect();
            return generate_by(kernel, &data, &mut outputs);
        };
        let sources: Vec<&[u8]> = repair.sources().iter().map(|&at| columns[at].as_slice()).collect();
        repair.run_by(kernel, &sources, &mut outputs);
    };
    work();
    // Processor time, so that other work on the machine counts as little as can be.
    let (begin, mut count) = (processor_seconds(), 0);
    while processor_seconds() - begin < 0.03 {
        (0..(1 << 20) / size.min(1 << 20)).for_each(|_| work());
        count += (1 << 20) / size.min(1 << 20);
    }
    let seconds = processor_seconds() - begin;
    columns[0][0] ^= outputs[0][0];
    (count * (DATA + parity) * column) as f64 / seconds / 1e9
}

fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
