//! Options of `steadfast lab run engine`, and how large everything is.

use std::path::PathBuf;

use clap::builder::PossibleValue;

use super::columns::KEYS;
use crate::options::{Document, Form, Places, RepeatLine, one_of, wanted};

/// Parts for `--only`, in the order they run, with a line of help each.
const PARTS: &[(&str, &str)] = &[
    ("file", "one large file: sequential and random, cold and warm, fsync"),
    ("ratio", "sequential write of data that compresses 2.5 to 1"),
    ("fsync", "4 KiB appends with an fsync each, by 1, 4 and 16 threads, beside fdatasync on the same disk"),
    ("names", "create, stat, unlink of many files in one directory"),
    ("tree", "unpack and pack a source tree"),
    ("cow", "4 KiB at random in a large file: bytes to the device, reads before and after"),
    ("files", "curve: cost of an operation against the number of files"),
    ("pool", "curve: cost of an operation against the size of the pool"),
    ("cleaner", "curve: rate, amplification and latency against utilisation"),
    ("memory", "memory of the daemon under load"),
];

/// Options of `run engine`.
#[derive(clap::Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct EngineRequest {
    /// Interleaved rounds; the median is reported [default: 3, with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) rounds: Option<u32>,
    #[command(flatten)]
    pub(super) form: Form,
    /// Curves up to ten million files
    #[arg(long)]
    pub(super) long: bool,
    /// Parts, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parts())]
    pub(super) only: Option<Vec<String>>,
    /// Columns, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = one_of(KEYS))]
    pub(super) arms: Option<Vec<String>>,
    /// A tar archive to unpack instead of the generated tree
    #[arg(long, value_name = "FILE")]
    pub(super) source: Option<PathBuf>,
    /// The empty FUSE file system [default: examples/memfs beside this program]
    #[arg(long, value_name = "FILE")]
    pub(super) memfs: Option<PathBuf>,
    /// The simulated cleaner [default: examples/cleaner_curve beside this program]
    #[arg(long, value_name = "FILE")]
    pub(super) cleaner: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(flatten)]
    pub(crate) document: Document,
}

fn parts() -> clap::builder::PossibleValuesParser {
    PARTS.iter().map(|(name, about)| PossibleValue::new(*name).help(*about)).collect::<Vec<_>>().into()
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// How large everything is.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Image of each arm, bytes.
    pub image: u64,
    /// The large file, bytes.
    pub file: u64,
    /// Random reads.
    pub reads: u64,
    /// Random writes.
    pub writes: u64,
    /// Writes that are fsynced one by one.
    pub syncs: u64,
    /// Appends of each thread that are fsynced one by one.
    pub appends: u64,
    /// Files of the names group.
    pub files: u64,
    /// Files of the source tree.
    pub sources: u64,
    /// File of the copy-on-write group, bytes, and its random writes.
    pub cow: (u64, u64),
    /// Numbers of files at which the curve is measured.
    pub counts: Vec<u64>,
    /// Most seconds for making files of that curve.
    pub counts_limit_s: u64,
    /// Sizes of pools, GiB.
    pub pools: Vec<u64>,
    /// Image for the cleaner's curve, bytes; seconds at each utilisation; utilisations in percent.
    pub cleaner: (u64, u64, Vec<u64>),
}

impl Sizes {
    /// Free bytes needed where the images lie: what all arms hold at the same time, 1 KiB for each
    /// file of the curve, and some.
    pub fn room(&self) -> u64 {
        let curve = self.counts.last().copied().unwrap_or(0) << 10;
        10 * self.file.max(self.cow.0) + curve + 2 * GIB
    }
}

impl EngineRequest {
    /// Interleaved rounds.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.form.quick { 2 } else { 3 })
    }

    /// Is this part to be run?
    pub(super) fn wants(&self, part: &str) -> bool {
        wanted(self.only.as_deref(), part)
    }

    /// How large everything is.
    pub fn sizes(&self) -> Sizes {
        let powers = |low: u32, high: u32| {
            (low..=high).flat_map(|power| [10u64.pow(power), 3 * 10u64.pow(power)]).collect::<Vec<u64>>()
        };
        if self.form.tiny {
            Sizes {
                image: 320 * MIB,
                file: 16 * MIB,
                reads: 200,
                writes: 200,
                syncs: 5,
                appends: 5,
                files: 200,
                sources: 100,
                cow: (16 * MIB, 256),
                counts: vec![200, 400],
                counts_limit_s: 20,
                pools: vec![1, 4],
                cleaner: (192 * MIB, 1, vec![20, 60]),
            }
        } else if self.form.quick {
            Sizes {
                image: 2 * GIB,
                file: 128 * MIB,
                reads: 1_500,
                writes: 3_000,
                syncs: 60,
                appends: 300,
                files: 5_000,
                sources: 1_500,
                cow: (256 * MIB, 8_192),
                counts: vec![1_000, 3_000, 10_000, 30_000],
                counts_limit_s: 10,
                pools: vec![1, 30, 1_000],
                cleaner: (384 * MIB, 3, vec![30, 70, 85, 95]),
            }
        } else {
            let mut counts = powers(4, if self.long { 6 } else { 5 });
            counts.push(if self.long { 10_000_000 } else { 1_000_000 });
            Sizes {
                image: if self.long { 8 * GIB } else { 4 * GIB },
                file: 256 * MIB,
                reads: 4_000,
                writes: 10_000,
                syncs: 200,
                appends: 2_000,
                files: 20_000,
                sources: 5_000,
                cow: (GIB, 32_768),
                counts,
                counts_limit_s: if self.long { 7_200 } else { 45 },
                pools: vec![1, 10, 100, 1_000],
                cleaner: (512 * MIB, 4, vec![10, 30, 50, 70, 85, 90, 95]),
            }
        }
    }

    /// The command that repeats a run.
    pub(super) fn repeat(&self) -> String {
        RepeatLine::new("engine")
            .form(self.form)
            .flag("--long", self.long)
            .value("--rounds", self.rounds)
            .list("--only", self.only.as_deref())
            .list("--arms", self.arms.as_deref())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::{read, refused};

    #[test]
    fn options_are_read_and_repeated() {
        let request: EngineRequest = read("--quick --rounds 2 --only=file,cow --arms ext4,plain");
        assert!(request.form.quick && request.wants("cow") && !request.wants("tree"));
        let options = "--quick --rounds 2 --only file,cow --arms ext4,plain";
        assert_eq!(request.repeat(), format!("steadfast lab run engine {options}"));
        assert_eq!(read::<EngineRequest>(options), request);
        assert_eq!((read::<EngineRequest>("--quick").rounds(), read::<EngineRequest>("").rounds()), (2, 3));
    }

    #[test]
    fn every_mistake_is_a_sentence() {
        for (line, word) in [
            ("--only speed", "speed"),
            ("--arms zfs", "ext4"),
            ("--rounds 0", "'0' for '--rounds"),
            ("--rounds", "value is required"),
            ("--fast", "--fast"),
        ] {
            refused::<EngineRequest>(line, word);
        }
    }

    #[test]
    fn curves_grow_to_what_is_promised() {
        let sizes = EngineRequest::default().sizes();
        assert_eq!((sizes.counts[0], *sizes.counts.last().unwrap()), (10_000, 1_000_000));
        assert_eq!((sizes.pools[0], *sizes.pools.last().unwrap()), (1, 1_000));
        let long = EngineRequest { long: true, ..EngineRequest::default() }.sizes();
        assert_eq!(*long.counts.last().unwrap(), 10_000_000);
    }
}
