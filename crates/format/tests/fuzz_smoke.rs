//! A short smoke of every fuzz entry: golden bytes, damaged in seeded ways, never make a decoder
//! panic, and what is accepted encodes to the bytes it came from. The long runs are in `fuzz/`.

#[allow(dead_code, reason = "each test uses its part")]
use crate::support;
use std::fs;
use std::path::Path;

use steadfast_format::fuzz::ALL;

const ROUNDS: u64 = 4_000;

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap()
    }
}

/// Bytes that are likely to be looked at more than others get damaged more: the first hundred or
/// so.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let near = random.next().is_multiple_of(2);
        let at = random.below(if near { bytes.len().min(112) } else { bytes.len() });
        let byte = random.next().to_le_bytes()[0];
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at.min(bytes.len()), byte),
            2 => bytes.extend_from_slice(&random.next().to_le_bytes()),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            4 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            5 if at < bytes.len() => bytes[at] = bytes[at].wrapping_add(1),
            6 if at < bytes.len() => bytes[at] = byte,
            _ if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ => {}
        }
    }
}

fn entry_of(golden: &str) -> Option<fn(&[u8])> {
    // The longest name that the file's begins with: "node_leaf" is of "node".
    ALL.iter()
        .filter(|(name, _)| golden.starts_with(name))
        .max_by_key(|(name, _)| name.len())
        .map(|entry| entry.1)
}

#[test]
fn damaged_golden_bytes_never_panic_and_what_is_accepted_is_canonical() {
    let mut random = Random(0x5eed);
    let mut accepted = 0_u64;
    for (name, golden) in support::all() {
        let entry = entry_of(&name).unwrap_or_else(|| panic!("golden/{name}.hex belongs to no fuzz entry"));
        entry(&golden);
        let rounds = if golden.len() > 1000 { ROUNDS / 4 } else { ROUNDS };
        for _ in 0..rounds {
            let mut bytes = golden.clone();
            damage(&mut bytes, &mut random);
            entry(&bytes);
            accepted += u64::from(bytes == golden);
        }
    }
    assert!(accepted < ROUNDS, "the damage does damage");
}

#[test]
fn other_bytes_never_panic() {
    let mut random = Random(7);
    for (_, entry) in ALL {
        entry(&[]);
        for byte in [0, 1, 0xff] {
            entry(&vec![byte; 5000]);
        }
        for _ in 0..200 {
            let length = random.below(300);
            entry(&(0..length).map(|_| random.next().to_le_bytes()[0]).collect::<Vec<_>>());
        }
    }
}

#[test]
fn every_entry_has_golden_bytes_and_a_target() {
    let golden = support::all();
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    for (name, _) in ALL {
        assert!(golden.iter().any(|(file, _)| file.starts_with(name)), "{name} has no golden bytes");
        let target = fs::read_to_string(targets.join(format!("{name}.rs")));
        let target = target.unwrap_or_else(|_| panic!("fuzz/fuzz_targets/{name}.rs is missing"));
        assert!(target.contains(&format!("steadfast_format::fuzz::{name}(")), "{name}.rs calls its entry");
    }
    let manifest = fs::read_to_string(targets.join("../Cargo.toml")).unwrap();
    for file in fs::read_dir(&targets).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not in fuzz/Cargo.toml");
    }
}
