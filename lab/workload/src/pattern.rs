//! # Data that compresses exactly so much, and never twice the same
//!
//! A compressing file system is measured wrongly by data that compresses better than people think,
//! and a deduplicating one by data that repeats. vdbench copies from one buffer of 1 MiB, so a
//! compressor with a window of 8 MiB sees one file as 25 copies of the same. Here nothing repeats,
//! and a ratio is a ratio.
//!
//! ## How
//! A *stencil* of 4 MiB of random 32-bit words is made once per ratio; each word is zero with the
//! probability that the table gives for the ratio. Each 4 KiB unit of each write draws from (seed,
//! file, position, generation) a place in the stencil and a 64-bit key, and copies: zero words stay
//! zero, other words are XORed with the key. So zeros lie as in the stencil, and the rest is as
//! random as the key. It is a few vector instructions per 16 bytes, so it runs near the speed of a
//! copy.
//!
//! ## What was written before
//! With `dedupratio=` some blocks of `dedupunit=` bytes repeat on purpose. Which ones depends on
//! their place alone, so a place that was a duplicate stays one: a share of 1/ratio less the sets
//! is unique (and differs at each rewrite), the rest belongs to one of the sets, and all blocks of
//! a set have one content. So distinct contents are 1/ratio of all.
//!
//! ## Claims
//! [pattern.1] The ratio under LZ4, in blocks of 128 KiB, is the ratio asked for within 3 %.
//!      test: `lz4_finds_the_ratio...`
//! [pattern.2] No two 4 KiB units are equal: 2^64 keys, 2^19 places.
//!      test: `no_two_units_are_equal`
//! [pattern.3] A rewrite of the same place differs from what was there (`generation`).
//!      test: `a_rewrite_differs`
//! [pattern.4] Blocks to distinct contents are as the dedup ratio says.
//!      test: `distinct_contents_are_as_few`
//!
//! ## Not here
//! Other compressors: zstd finds about 1.3 times the ratio in such data, because it codes the
//! positions of zeros better. That is a property of the data of vdbench too.

use crate::random::{Random, mix};
use steadfast_lab_params::{Dedup, DedupSets, FlipFlop, HotSets};

/// Words of the stencil: 4 MiB.
const STENCIL_WORDS: usize = 1 << 20;
/// Bytes that share a place and a key.
pub const UNIT: usize = 4096;
const UNIT_WORDS: usize = UNIT / 4;

/// Share of zero words, per 10,000, for a ratio: measured with LZ4 on blocks of 128 KiB, straight
/// between rows. `ratios_of_the_table` (ignored test) prints it anew.
const ZEROS: &[(f64, f64)] = &[
    (1.0, 0.0),
    (1.02, 1281.4),
    (1.05, 1906.4),
    (1.1, 2665.8),
    (1.15, 3261.0),
    (1.2, 3743.4),
    (1.3, 4502.0),
    (1.4, 5085.1),
    (1.5, 5548.5),
    (1.6, 5932.4),
    (1.8, 6530.1),
    (2.0, 6976.9),
    (2.25, 7400.7),
    (2.5, 7720.9),
    (2.75, 7973.9),
    (3.0, 8175.9),
    (3.5, 8486.2),
    (4.0, 8704.3),
    (5.0, 8998.6),
    (6.0, 9184.9),
    (7.0, 9313.7),
    (8.0, 9407.8),
    (10.0, 9537.0),
    (12.0, 9621.3),
    (15.0, 9704.8),
    (20.0, 9788.6),
    (25.0, 9835.9),
];

/// Makes data of one ratio. Cheap to share between threads; filling needs no state.
#[derive(Debug)]
pub struct Pattern {
    stencil: Vec<u64>,
    seed: u64,
    repeats: Option<Repeats>,
    /// `pattern=`: what is written instead, over and over.
    fixed: Option<Vec<u8>>,
}

/// Blocks that repeat, see the module's text.
#[derive(Clone, Copy, Debug)]
struct Repeats {
    unit: u64,
    /// Of all blocks, those with a content of their own.
    unique: f64,
    sets: u64,
    /// Contents that each set takes turns with, and each hot set.
    faces: u64,
    hot_faces: u64,
    /// Sets of the first blocks of each storage; `sets` are numbered behind them.
    hot: HotSets,
}

/// How many contents repeat, of storages of `bytes` altogether: a whole number.
pub(crate) fn sets(dedup: &Dedup, bytes: u64) -> f64 {
    let blocks = (bytes / dedup.unit.max(1)).max(1) as f64;
    let sets = match dedup.sets {
        DedupSets::Count(count) => (count as f64).min(blocks / dedup.ratio),
        DedupSets::Percent(percent) => blocks * percent / 100.0,
    };
    sets.ceil().max(1.0)
}

/// Stands for a file in the data of a set: not the key of any file, by all odds.
const SET_KEY: u64 = 0x5e75_0000_dedd_0001;

impl Pattern {
    /// Data that compresses `ratio` to 1.
    pub fn new(ratio: f64, seed: u64) -> Pattern {
        Pattern::with_zeros(zeros_for(ratio), seed)
    }

    /// As [`Pattern::new`], from the share of zero words, per 10,000.
    fn with_zeros(zeros: f64, seed: u64) -> Pattern {
        let mut random = Random::new(&[seed, 0x057e_4c11]);
        let threshold = (zeros / 10_000.0 * f64::from(u32::MAX)) as u64;
        let word = |random: &mut Random| {
            let draw = random.draw();
            // Never zero by accident: a word is zero because the ratio wants it.
            if draw >> 32 < threshold { 0 } else { u64::from(draw as u32 | u32::from(draw as u32 == 0)) }
        };
        // One unit more than the places, so that a unit never runs over the end.
        let words = (STENCIL_WORDS + UNIT_WORDS) / 2;
        let stencil = (0..words).map(|_| word(&mut random) | word(&mut random) << 32).collect();
        Pattern { stencil, seed, repeats: None, fixed: None }
    }

    /// The same data with repetitions, over `storages` of `bytes` altogether.
    pub fn repeating(mut self, dedup: &Dedup, bytes: u64, storages: u64) -> Pattern {
        let blocks = (bytes / dedup.unit.max(1)).max(1) as f64;
        let sets = sets(dedup, bytes);
        let unique = (1.0 / dedup.ratio - sets / blocks).clamp(0.0, 1.0);
        // Hot blocks are not unique, so more of the others must be.
        let cold = (blocks - (dedup.hot.blocks() * storages) as f64).max(1.0);
        self.repeats = Some(Repeats {
            unit: dedup.unit.max(1),
            unique: (unique * blocks / cold).min(1.0),
            sets: (sets as u64).saturating_sub(dedup.hot.sets()).max(1),
            faces: if dedup.flipflop == FlipFlop::Always { 2 } else { 1 },
            hot_faces: if dedup.flipflop == FlipFlop::Never { 1 } else { 2 },
            hot: dedup.hot,
        });
        self
    }

    /// The bytes of a file instead, over and over, as often as they fit into 1 MiB (or once, if
    /// they are longer).
    pub fn copying(mut self, bytes: &[u8]) -> Pattern {
        let times = ((1 << 20) / bytes.len().max(1)).max(1);
        self.fixed = (!bytes.is_empty()).then(|| bytes.repeat(times));
        self
    }

    /// Fills `buffer` with the data of `file` at `position`. `generation` should differ for every
    /// write.
    pub fn fill(&self, buffer: &mut [u8], file: u64, position: u64, generation: u64) {
        if let Some(fixed) = &self.fixed {
            return fill_fixed(buffer, fixed, position);
        }
        let Some(repeats) = self.repeats else { return self.fill_unique(buffer, file, position, generation) };
        for (index, block) in buffer.chunks_mut(repeats.unit as usize).enumerate() {
            let number = position / repeats.unit + index as u64;
            let draw = self.draw(file, number);
            let (set, faces) = match repeats.hot.set(number) {
                Some(hot) => (hot, repeats.hot_faces),
                None if ((draw >> 11) as f64 / (1u64 << 53) as f64) < repeats.unique => {
                    self.fill_unique(block, file, number * repeats.unit, generation);
                    continue;
                }
                None => (repeats.hot.sets() + mix(draw, SET_KEY) % repeats.sets, repeats.faces),
            };
            // Each set has room for two contents, whether it takes turns or not.
            let face = mix(generation, SET_KEY) % faces;
            self.fill_unique(block, SET_KEY, (set * 2 + face) * repeats.unit.max(UNIT as u64), 0);
        }
    }

    /// Decides whether a block repeats, and which content. One turn of `mix` over a count is a
    /// count in steps of its key: for a key near a simple fraction of 2^64 it would call far more
    /// blocks unique than it should, or far fewer.
    fn draw(&self, file: u64, number: u64) -> u64 {
        mix(mix(mix(self.seed ^ SET_KEY, file), number), SET_KEY)
    }

    fn fill_unique(&self, buffer: &mut [u8], file: u64, position: u64, generation: u64) {
        let base = mix(mix(self.seed, file), generation);
        for (index, unit) in buffer.chunks_mut(UNIT).enumerate() {
            // Units smaller than ours (dedupunit=512) must differ too.
            let at = mix(base, position + (index * UNIT) as u64);
            let place = (at >> 40) as usize % (STENCIL_WORDS / 2);
            let key = mix(at, base) | 1 | 1 << 32;
            let stencil = &self.stencil[place..place + UNIT / 8];
            for (to, from) in unit.chunks_exact_mut(8).zip(stencil) {
                to.copy_from_slice(&keyed(*from, key).to_le_bytes());
            }
            let tail = unit.len() / 8;
            let rest = unit.chunks_exact_mut(8).into_remainder();
            if !rest.is_empty() {
                let bytes = keyed(stencil[tail], key).to_le_bytes();
                rest.copy_from_slice(&bytes[..rest.len()]);
            }
        }
    }
}

/// Copies `fixed` again and again, so that every place has its byte whatever the length of a write.
fn fill_fixed(mut buffer: &mut [u8], fixed: &[u8], position: u64) {
    let mut start = (position % fixed.len() as u64) as usize;
    while !buffer.is_empty() {
        let count = buffer.len().min(fixed.len() - start);
        let (now, rest) = buffer.split_at_mut(count);
        now.copy_from_slice(&fixed[start..start + count]);
        (buffer, start) = (rest, 0);
    }
}

/// Both halves XORed with the key, zero halves kept.
#[inline]
fn keyed(words: u64, key: u64) -> u64 {
    let (low, high) = (words as u32, (words >> 32) as u32);
    let low = if low == 0 { 0 } else { low ^ key as u32 };
    let high = if high == 0 { 0 } else { high ^ (key >> 32) as u32 };
    u64::from(low) | u64::from(high) << 32
}

fn zeros_for(ratio: f64) -> f64 {
    let ratio = ratio.clamp(ZEROS[0].0, ZEROS[ZEROS.len() - 1].0);
    let above = ZEROS.partition_point(|(r, _)| *r < ratio).max(1);
    let ((r0, z0), (r1, z1)) = (ZEROS[above - 1], ZEROS[above]);
    // The compressed size is roughly proportional to the words that are not zero, so 1/ratio is
    // nearly straight.
    z0 + (z1 - z0) * (1.0 / ratio - 1.0 / r0) / (1.0 / r1 - 1.0 / r0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn lz4_ratio(pattern: &Pattern, block: usize) -> f64 {
        let mut buffer = vec![0; block];
        let (mut stored, blocks) = (0, (8 << 20) / block);
        for at in 0..blocks {
            pattern.fill(&mut buffer, 1, (at * block) as u64, 0);
            stored += lz4_flex::block::compress(&buffer).len().min(block);
        }
        (blocks * block) as f64 / stored as f64
    }

    #[test]
    #[ignore = "prints the table of zeros; run it after changing how data is made"]
    fn ratios_of_the_table() {
        let grid: Vec<(f64, f64)> = (0..200)
            .map(|step| 10_000.0 * (1.0 - 0.965f64.powi(step)))
            .map(|zeros| (zeros, lz4_ratio(&Pattern::with_zeros(zeros, 7), 128 << 10)))
            .collect();
        for wanted in [
            1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0,
            5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 15.0, 20.0, 25.0,
        ] {
            let at = grid.partition_point(|(_, ratio)| *ratio < wanted).clamp(1, grid.len() - 1);
            let ((z0, r0), (z1, r1)) = (grid[at - 1], grid[at]);
            println!("    ({wanted:?}, {:.1}),", z0 + (z1 - z0) * (wanted - r0) / (r1 - r0));
        }
    }

    #[test]
    fn lz4_finds_the_ratio_that_was_asked_for_within_three_per_cent() {
        for wanted in [1.0, 1.1, 1.25, 1.5, 1.7, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 17.0, 25.0] {
            let found = lz4_ratio(&Pattern::new(wanted, 3), 128 << 10);
            assert!((found / wanted - 1.0).abs() < 0.03, "asked for {wanted}, found {found}");
        }
    }

    #[test]
    #[ignore = "prints a speed; run it with --release on an idle machine"]
    fn speed_of_making_data() {
        for ratio in [1.0, 2.5] {
            let pattern = Pattern::new(ratio, 1);
            for block in [4 << 10, 256 << 10] {
                let mut buffer = vec![0; block];
                let begun = std::time::Instant::now();
                let rounds = (4u64 << 30) / block as u64;
                for round in 0..rounds {
                    pattern.fill(&mut buffer, 1, round * block as u64, round);
                }
                let speed = 4.0 / begun.elapsed().as_secs_f64() * 1.073_741_824;
                println!(
                    "ratio {ratio}, blocks of {block}: {speed:.2} GB/s, last byte {}",
                    buffer[block - 1]
                );
            }
        }
    }

    #[test]
    fn no_two_units_are_equal() {
        let pattern = Pattern::new(2.5, 1);
        let mut seen = HashSet::new();
        let mut buffer = vec![0; 128 << 10];
        for file in 0..2 {
            for block in 0..256u64 {
                pattern.fill(&mut buffer, file, block * (128 << 10), 0);
                for unit in buffer.chunks(UNIT) {
                    assert!(
                        seen.insert(unit.to_vec()),
                        "a unit of file {file}, block {block} occurred before"
                    );
                }
            }
        }
        assert_eq!(seen.len(), 2 * 256 * 32);
    }

    #[test]
    fn whatever_the_file_its_share_of_unique_blocks_is_the_same() {
        let pattern = Pattern::new(1.0, 1);
        let (blocks, wanted) = (2048, 0.2);
        let is_unique = |draw: u64| (draw >> 11) as f64 / (1u64 << 53) as f64;
        for file in 0..10_000 {
            let key = mix(file, 1);
            let unique = (0..blocks).filter(|number| is_unique(pattern.draw(key, *number)) < wanted).count();
            let found = unique as f64 / blocks as f64;
            // Six standard deviations of a binomial.
            assert!((found - wanted).abs() < 0.053, "file {file}: {found}");
        }
    }

    #[test]
    fn distinct_contents_are_as_few_as_the_dedup_ratio_says() {
        for (ratio, unit) in [(2.0, 4096), (3.5, 8192), (1.0, 512)] {
            let dedup = Dedup {
                ratio,
                unit,
                sets: DedupSets::Percent(if ratio > 1.0 { 5.0 } else { 0.001 }),
                flipflop: FlipFlop::Never,
                hot: HotSets::default(),
            };
            let bytes = 16384 * unit;
            let pattern = Pattern::new(2.0, 1).repeating(&dedup, bytes, 1);
            let mut buffer = vec![0; 16 * unit as usize];
            let mut seen = HashSet::new();
            for at in 0..1024u64 {
                pattern.fill(&mut buffer, 1, at * 16 * unit, at);
                seen.extend(buffer.chunks(unit as usize).map(<[u8]>::to_vec));
            }
            let found = 16384.0 / seen.len() as f64;
            assert!((found / ratio - 1.0).abs() < 0.03, "asked for {ratio}, found {found}");
        }
    }

    #[test]
    fn hot_sets_have_so_many_blocks_and_the_ratio_stays() {
        let mut hot = HotSets::default();
        (hot.pairs[0], hot.pairs[1]) = ((10, 40), (1, 600));
        let dedup =
            Dedup { ratio: 4.0, unit: 4096, sets: DedupSets::Percent(2.0), flipflop: FlipFlop::Hot, hot };
        let pattern = Pattern::new(1.0, 1).repeating(&dedup, 16384 * 4096, 1);
        let mut counts: std::collections::HashMap<Vec<u8>, u64> = Default::default();
        let mut buffer = vec![0; 4096];
        for at in 0..16384 {
            // Hot sets alone take turns, by what a write brings: always the same here.
            pattern.fill(&mut buffer, 1, at * 4096, if at < 1000 { 7 } else { at });
            *counts.entry(buffer.clone()).or_default() += 1;
        }
        assert_eq!(counts.values().filter(|count| **count == 600).count(), 1);
        assert!(counts.values().filter(|count| **count == 40).count() >= 10);
        let found = 16384.0 / counts.len() as f64;
        assert!((found / 4.0 - 1.0).abs() < 0.03, "{found}");
        // In other writes they have the other content, and what is not hot has not.
        let content = |place: u64, generation| {
            let mut buffer = vec![0; 4096];
            pattern.fill(&mut buffer, 1, place * 4096, generation);
            buffer
        };
        let faces = |place| (0..40).map(|g| content(place, g)).collect::<HashSet<_>>().len();
        assert_eq!(faces(0), 2);
        assert!((1000..1100).filter(|place| faces(*place) == 1).count() > 50);
    }

    #[test]
    fn a_window_larger_than_a_block_finds_no_more_to_save() {
        let pattern = Pattern::new(2.5, 1);
        let mut whole = vec![0; 16 << 20];
        pattern.fill(&mut whole, 9, 0, 0);
        // Runs of 16 bytes without a zero word, at any alignment of words, occur once.
        let mut seen = HashSet::new();
        for at in (0..whole.len() - 16).step_by(4) {
            let run = &whole[at..at + 16];
            if run.chunks(4).all(|word| word != [0; 4]) {
                assert!(seen.insert(run), "bytes {at} to {} occurred before", at + 16);
            }
        }
        assert!(seen.len() > 1_000);
    }

    #[test]
    fn a_pattern_file_lies_at_the_same_place_however_it_is_written() {
        let pattern = Pattern::new(1.0, 1).copying(b"abcdefg");
        let (mut whole, mut half) = (vec![0; 3 << 20], vec![0; 1 << 20]);
        pattern.fill(&mut whole, 1, 0, 1);
        pattern.fill(&mut half, 2, 1_500_000, 9);
        assert_eq!(&whole[..9], b"abcdefgab");
        assert_eq!(&whole[1_500_000..1_500_000 + (1 << 20)], half);
    }

    #[test]
    fn a_rewrite_differs_and_the_same_key_gives_the_same_data() {
        let pattern = Pattern::new(1.0, 1);
        let (mut a, mut b, mut c) = (vec![0; 10_000], vec![0; 10_000], vec![0; 10_000]);
        pattern.fill(&mut a, 1, 8192, 1);
        pattern.fill(&mut b, 1, 8192, 2);
        pattern.fill(&mut c, 1, 8192, 1);
        assert_eq!(a, c);
        assert!(a.chunks(8).zip(b.chunks(8)).all(|(a, b)| a != b));
    }
}
