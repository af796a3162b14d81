//! The command line of `steadfast lab run dedup`.

use std::path::PathBuf;

use crate::args::{Words, count, usage};
use crate::error::Error;

/// Help, for the text of `steadfast lab --help`.
pub const USAGE: &str = "\
options of run dedup (needs root):
  --rounds N      rounds; the middle is reported   (default: 3, with --quick 1)
  --quick         smaller files, fewer ratios; the report says so
  --dir DIR       where the images lie: the disk that is measured  (default: /var/tmp)
  --out DIR       where the results go             (default: lab-dedup-DATE in this directory)
  --markdown FILE writes table and pictures into FILE, between its marks <!-- dedup --> and <!-- /dedup -->
";

/// What `run dedup` was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DedupRequest {
    /// `--quick`.
    pub quick: bool,
    /// `--tiny`: sizes for tests of the experiment itself; the figures mean nothing.
    pub tiny: bool,
    /// `--rounds`.
    pub rounds: u32,
    /// `--dir`.
    pub dir: Option<PathBuf>,
    /// `--out`.
    pub out: Option<PathBuf>,
    /// `--markdown`.
    pub markdown: Option<PathBuf>,
    /// `--json`.
    pub json: bool,
}

impl DedupRequest {
    /// What fits this form: tiny, quick or whole.
    fn sized<T>(&self, tiny: T, quick: T, whole: T) -> T {
        match (self.tiny, self.quick) {
            (true, _) => tiny,
            (false, true) => quick,
            _ => whole,
        }
    }

    /// Bytes of a file.
    pub(crate) fn file(&self) -> u64 {
        self.sized(8 << 20, 128 << 20, 512 << 20)
    }

    /// Bytes of each image.
    pub(crate) fn image(&self) -> u64 {
        self.sized(320 << 20, 2 << 30, 6 << 30)
    }

    /// Writes of 4 KiB that are timed.
    pub(crate) fn writes(&self) -> u64 {
        self.sized(128, 4_096, 16_384)
    }

    /// Bytes of each of the copies that are updated alike.
    pub(crate) fn guest(&self) -> u64 {
        self.sized(4 << 20, 32 << 20, 128 << 20)
    }

    /// How often they are.
    pub(crate) fn steps(&self) -> u64 {
        self.sized(2, 4, 8)
    }

    /// Ratios at which the room is measured.
    pub(crate) fn ratios(&self) -> &'static [f64] {
        self.sized::<&'static [f64]>(&[1.0, 2.0], &[1.0, 2.0, 4.0], &[1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0])
    }
}

/// Reads the words after `steadfast lab run`, one of which is `dedup`. `None` if help is asked for.
pub(crate) fn parse(args: &[String]) -> Result<Option<DedupRequest>, Error> {
    let mut words = Words::new(args);
    let mut rounds = None;
    let mut request = DedupRequest {
        quick: false,
        tiny: false,
        rounds: 3,
        dir: None,
        out: None,
        markdown: None,
        json: false,
    };
    while let Some(word) = words.next() {
        match word {
            "dedup" => {}
            "-h" | "--help" => return Ok(None),
            "--quick" => request.quick = true,
            "--tiny" => request.tiny = true,
            "--json" => request.json = true,
            "--rounds" => rounds = Some(count(word, words.value(word)?, 1, 100)?),
            "--dir" | "--work" => request.dir = Some(PathBuf::from(words.value(word)?)),
            "--out" => request.out = Some(PathBuf::from(words.value(word)?)),
            "--markdown" => request.markdown = Some(PathBuf::from(words.value(word)?)),
            _ => return Err(usage(format!("lab run dedup knows no option {word}"))),
        }
    }
    request.rounds = rounds.unwrap_or(if request.quick { 1 } else { 3 });
    Ok(Some(request))
}

/// The command that repeats a run.
pub(crate) fn repeat(request: &DedupRequest) -> String {
    let mut line = "steadfast lab run dedup".to_owned();
    for (given, word) in [(request.quick, " --quick"), (request.tiny, " --tiny")] {
        if given {
            line.push_str(word);
        }
    }
    if request.rounds != if request.quick { 1 } else { 3 } {
        line.push_str(&format!(" --rounds {}", request.rounds));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Option<DedupRequest>, Error> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_and_repeated() {
        for line in ["dedup", "dedup --quick", "dedup --quick --rounds 3", "dedup --tiny --rounds 1"] {
            assert_eq!(repeat(&words(line).unwrap().unwrap()), format!("steadfast lab run {line}"));
        }
        for (line, word) in [("dedup --fast", "--fast"), ("dedup --out", "needs a value")] {
            let error = words(line).unwrap_err();
            assert!(error.exit_status() == 2 && error.to_string().contains(word), "{line}: {error}");
        }
    }
}
