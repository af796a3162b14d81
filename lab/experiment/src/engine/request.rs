//! The command line of `steadfast lab run engine`, and how large everything is.

use std::path::PathBuf;

use crate::error::Error;

/// Names for `--only`, in the order they run, with a line of help.
pub const PARTS: &[(&str, &str)] = &[
    ("file", "one large file: sequential and random, cold and warm, fsync"),
    ("ratio", "sequential write of data that compresses 2.5 to 1"),
    ("names", "create, stat, unlink of many files in one directory"),
    ("tree", "unpack and pack a source tree"),
    ("cow", "4 KiB at random in a large file: bytes to the device, reads before and after"),
    ("files", "curve: cost of an operation against the number of files"),
    ("pool", "curve: cost of an operation against the size of the pool"),
    ("cleaner", "curve: rate, amplification and latency against utilisation"),
    ("memory", "memory of the daemon under load"),
];

/// Help, for the text of `steadfast lab --help`.
pub const USAGE: &str = "\
options of run engine (needs root):
  --rounds N      interleaved rounds; the middle is reported   (default: 3, with --quick 2)
  --quick         a quarter of everything: four minutes
  --long          curves up to ten million files
  --only NAMES    parts, with commas between: file ratio names tree cow files pool cleaner memory
  --arms NAMES    columns: ext4 xfs btrfs gocryptfs memfs plain lz4 sealed
  --dir DIR       where the images lie: the disk that is measured  (default: /var/tmp)
  --out DIR       where the results go             (default: lab-engine-DATE in this directory)
  --markdown FILE writes table and pictures into FILE, between its marks <!-- engine --> and <!-- /engine -->
  --source FILE   a tar archive to unpack instead of the generated tree
  --memfs FILE    the empty FUSE file system       (default: examples/memfs beside this program)
  --cleaner FILE  the simulated cleaner            (default: examples/cleaner_curve beside this program)
";

/// What `run engine` was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EngineRequest {
    /// `--rounds`.
    pub rounds: u32,
    /// `--quick`.
    pub quick: bool,
    /// `--tiny`: sizes for tests of the experiment itself; the figures mean nothing.
    pub tiny: bool,
    /// `--long`.
    pub long: bool,
    /// `--only`; none means all.
    pub only: Option<Vec<String>>,
    /// `--arms`; none means all.
    pub arms: Option<Vec<String>>,
    /// `--dir`.
    pub dir: Option<PathBuf>,
    /// `--out`.
    pub out: Option<PathBuf>,
    /// `--markdown`.
    pub markdown: Option<PathBuf>,
    /// `--source`.
    pub source: Option<PathBuf>,
    /// `--memfs`.
    pub memfs: Option<PathBuf>,
    /// `--cleaner`.
    pub cleaner: Option<PathBuf>,
    /// `--json`.
    pub json: bool,
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
    /// Free bytes needed where the images lie: what all arms hold at the same time, 1 KiB for each file of the curve, and some.
    pub fn room(&self) -> u64 {
        let curve = self.counts.last().copied().unwrap_or(0) << 10;
        10 * self.file.max(self.cow.0) + curve + 2 * GIB
    }
}

impl EngineRequest {
    /// Nothing but defaults.
    pub fn new() -> Self {
        Self {
            rounds: 3,
            quick: false,
            tiny: false,
            long: false,
            only: None,
            arms: None,
            dir: None,
            out: None,
            markdown: None,
            source: None,
            memfs: None,
            cleaner: None,
            json: false,
        }
    }

    /// Is this part to be run?
    pub fn wants(&self, part: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|name| name == part))
    }

    /// How large everything is.
    pub fn sizes(&self) -> Sizes {
        let powers = |low: u32, high: u32| {
            (low..=high).flat_map(|power| [10u64.pow(power), 3 * 10u64.pow(power)]).collect::<Vec<u64>>()
        };
        if self.tiny {
            Sizes {
                image: 320 * MIB,
                file: 16 * MIB,
                reads: 200,
                writes: 200,
                syncs: 5,
                files: 200,
                sources: 100,
                cow: (16 * MIB, 256),
                counts: vec![200, 400],
                counts_limit_s: 20,
                pools: vec![1, 4],
                cleaner: (192 * MIB, 1, vec![20, 60]),
            }
        } else if self.quick {
            Sizes {
                image: 2 * GIB,
                file: 128 * MIB,
                reads: 1_500,
                writes: 3_000,
                syncs: 60,
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
}

impl Default for EngineRequest {
    fn default() -> Self {
        Self::new()
    }
}

fn usage(text: String) -> Error {
    Error::Usage(format!("{text}\nSee `steadfast lab --help`."))
}

/// Reads the words after `steadfast lab run`, one of which is `engine`. `None` if help is asked for.
pub(crate) fn parse(args: &[String]) -> Result<Option<EngineRequest>, Error> {
    let mut request = EngineRequest::new();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        let mut value = || {
            attached
                .clone()
                .or_else(|| words.next().cloned())
                .filter(|value| !value.is_empty())
                .ok_or_else(|| usage(format!("{name} needs a value")))
        };
        let list = |text: String, known: &[&str]| {
            let names: Vec<String> = text.split(',').map(str::to_owned).collect();
            match names.iter().find(|name| !known.contains(&name.as_str())) {
                Some(unknown) => Err(usage(format!("{name} {unknown}: give some of {}", known.join(", ")))),
                None => Ok(names),
            }
        };
        match name {
            "engine" => {}
            "-h" | "--help" => return Ok(None),
            "--quick" => (request.quick, request.rounds) = (true, request.rounds.min(2)),
            "--tiny" => request.tiny = true,
            "--long" => request.long = true,
            "--json" => request.json = true,
            "--rounds" => {
                let text = value()?;
                request.rounds =
                    text.parse().ok().filter(|n| (1..=100).contains(n)).ok_or_else(|| {
                        usage(format!("--rounds {text}: give a whole number from 1 to 100"))
                    })?;
            }
            "--only" => {
                let known: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
                request.only = Some(list(value()?, &known)?);
            }
            "--arms" => request.arms = Some(list(value()?, &super::columns::KEYS)?),
            "--dir" | "--work" => request.dir = Some(PathBuf::from(value()?)),
            "--out" => request.out = Some(PathBuf::from(value()?)),
            "--markdown" => request.markdown = Some(PathBuf::from(value()?)),
            "--source" => request.source = Some(PathBuf::from(value()?)),
            "--memfs" => request.memfs = Some(PathBuf::from(value()?)),
            "--cleaner" => request.cleaner = Some(PathBuf::from(value()?)),
            _ => return Err(usage(format!("lab run engine knows no option {name}"))),
        }
    }
    Ok(Some(request))
}

/// The command that repeats a run.
pub(crate) fn repeat(request: &EngineRequest) -> String {
    let mut line = "steadfast lab run engine".to_owned();
    for (given, word) in [(request.quick, " --quick"), (request.tiny, " --tiny"), (request.long, " --long")] {
        if given {
            line.push_str(word);
        }
    }
    if request.rounds != 3 {
        line.push_str(&format!(" --rounds {}", request.rounds));
    }
    for (names, word) in [(&request.only, "--only"), (&request.arms, "--arms")] {
        if let Some(names) = names {
            line.push_str(&format!(" {word} {}", names.join(",")));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Option<EngineRequest>, Error> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_and_repeated() {
        let request = words("engine --quick --rounds 2 --only=file,cow --arms ext4,plain").unwrap().unwrap();
        assert!(request.quick && request.wants("cow") && !request.wants("tree"));
        let line = repeat(&request);
        assert_eq!(line, "steadfast lab run engine --quick --rounds 2 --only file,cow --arms ext4,plain");
        let again: Vec<String> = line.split(' ').skip(3).map(str::to_owned).collect();
        assert_eq!(parse(&again).unwrap(), Some(request));
    }

    #[test]
    fn every_mistake_is_a_sentence_and_status_2() {
        for (line, word) in [
            ("engine --only speed", "speed"),
            ("engine --arms zfs", "ext4"),
            ("engine --rounds 0", "--rounds 0"),
            ("engine --rounds", "needs a value"),
            ("engine --fast", "--fast"),
        ] {
            let error = words(line).unwrap_err();
            assert_eq!(error.exit_status(), 2, "{line}");
            assert!(error.to_string().contains(word), "{line}: {error}");
        }
    }

    #[test]
    fn help_names_every_part() {
        let line = USAGE.lines().find(|line| line.contains("--only")).unwrap();
        assert!(PARTS.iter().all(|(name, _)| line.contains(name)), "{line}");
    }

    #[test]
    fn curves_grow_to_what_is_promised() {
        let sizes = EngineRequest::new().sizes();
        assert_eq!((sizes.counts[0], *sizes.counts.last().unwrap()), (10_000, 1_000_000));
        assert_eq!((sizes.pools[0], *sizes.pools.last().unwrap()), (1, 1_000));
        let long = EngineRequest { long: true, ..EngineRequest::new() }.sizes();
        assert_eq!(*long.counts.last().unwrap(), 10_000_000);
    }
}
