//! The command line of `steadfast lab run snapshots`.

use std::path::PathBuf;

use crate::args::{Words, count, usage};
use crate::error::Error;

/// Help, for the text of `steadfast lab --help`.
pub const USAGE: &str = "\
options of run snapshots (needs root):
  --rounds N      rounds; the middle is reported   (default: 2, with --quick 1)
  --most N        snapshots at the end             (default: 10000, with --quick 1000)
  --peer-seconds N  what btrfs gets for each of its steps at most; what it did until then is told  (default: 120)
  --quick         fewer snapshots, smaller files; the report says so
  --dir DIR       where the images lie: the disk that is measured  (default: /var/tmp)
  --out DIR       where the results go             (default: lab-snapshots-DATE in this directory)
  --markdown FILE writes table and pictures into FILE, between its marks <!-- snapshots --> and <!-- /snapshots -->
";

/// Seconds of each step of others.
const PEER_SECONDS: u32 = 120;

/// What `run snapshots` was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SnapshotsRequest {
    /// `--quick`.
    pub quick: bool,
    /// `--tiny`: sizes for tests of the experiment itself; the figures mean nothing.
    pub tiny: bool,
    /// `--rounds`.
    pub rounds: u32,
    /// `--most`.
    pub most: u32,
    /// `--peer-seconds`.
    pub peer_seconds: u32,
    /// `--dir`.
    pub dir: Option<PathBuf>,
    /// `--out`.
    pub out: Option<PathBuf>,
    /// `--markdown`.
    pub markdown: Option<PathBuf>,
    /// `--json`.
    pub json: bool,
}

impl SnapshotsRequest {
    /// What fits this form: tiny, quick or whole.
    fn sized<T>(&self, tiny: T, quick: T, whole: T) -> T {
        match (self.tiny, self.quick) {
            (true, _) => tiny,
            (false, true) => quick,
            _ => whole,
        }
    }

    /// Bytes of the file that is written to.
    pub(crate) fn file(&self) -> u64 {
        self.sized(8 << 20, 64 << 20, 256 << 20)
    }

    /// Bytes of each image.
    pub(crate) fn image(&self) -> u64 {
        self.sized(320 << 20, 3 << 30, 8 << 30)
    }

    /// Writes of 4 KiB that are timed.
    pub(crate) fn writes(&self) -> u64 {
        self.sized(128, 8_192, 32_768)
    }

    /// Changes of a share of the file, each behind a snapshot.
    pub(crate) fn steps(&self) -> u64 {
        self.sized(2, 8, 16)
    }

    /// Bytes of the file that is sent.
    pub(crate) fn stream_file(&self) -> u64 {
        self.sized(16 << 20, 256 << 20, 1 << 30)
    }

    /// How often it is sent in a round, and how many increments follow.
    pub(crate) fn passes(&self) -> u32 {
        self.sized(1, 3, 3)
    }

    /// Bytes of each of the images it is sent from and to: what arrives stays there, and a copy comes and goes.
    pub(crate) fn stream_image(&self) -> u64 {
        (u64::from(self.passes()) + 3) * self.stream_file() + (512 << 20)
    }

    /// Options of the mount of btrfs. Its cleaner wakes with a commit, every 30 s unless something else is said: tests do not wait so long.
    pub(crate) fn mount_options(&self) -> &'static str {
        if self.tiny { "commit=1" } else { "" }
    }

    /// How many snapshots there are where something is measured, rising.
    pub(crate) fn counts(&self) -> Vec<u32> {
        let mut counts: Vec<u32> =
            [0, 10, 100, 1_000].into_iter().filter(|count| *count < self.most).collect();
        counts.push(self.most);
        counts
    }
}

/// Reads the words after `steadfast lab run`, one of which is `snapshots`. `None` if help is asked for.
pub(crate) fn parse(args: &[String]) -> Result<Option<SnapshotsRequest>, Error> {
    let mut words = Words::new(args);
    let (mut rounds, mut most) = (None, None);
    let mut request = SnapshotsRequest {
        quick: false,
        tiny: false,
        rounds: 2,
        most: 10_000,
        peer_seconds: PEER_SECONDS,
        dir: None,
        out: None,
        markdown: None,
        json: false,
    };
    while let Some(word) = words.next() {
        match word {
            "snapshots" => {}
            "-h" | "--help" => return Ok(None),
            "--quick" => request.quick = true,
            "--tiny" => request.tiny = true,
            "--json" => request.json = true,
            "--rounds" => rounds = Some(count(word, words.value(word)?, 1, 100)?),
            "--most" => most = Some(count(word, words.value(word)?, 20, 100_000)?),
            "--peer-seconds" => request.peer_seconds = count(word, words.value(word)?, 1, 86_400)?,
            "--dir" | "--work" => request.dir = Some(PathBuf::from(words.value(word)?)),
            "--out" => request.out = Some(PathBuf::from(words.value(word)?)),
            "--markdown" => request.markdown = Some(PathBuf::from(words.value(word)?)),
            _ => return Err(usage(format!("lab run snapshots knows no option {word}"))),
        }
    }
    let usual = usual(&request);
    request.rounds = rounds.unwrap_or(usual.0);
    request.most = most.unwrap_or(usual.1);
    Ok(Some(request))
}

/// Rounds, and snapshots at the end, of this form.
fn usual(request: &SnapshotsRequest) -> (u32, u32) {
    request.sized((1, 20), (1, 1_000), (2, 10_000))
}

/// The command that repeats a run.
pub(crate) fn repeat(request: &SnapshotsRequest) -> String {
    let mut line = "steadfast lab run snapshots".to_owned();
    let usual = usual(request);
    for (given, word) in [(request.quick, " --quick"), (request.tiny, " --tiny")] {
        if given {
            line.push_str(word);
        }
    }
    if request.rounds != usual.0 {
        line.push_str(&format!(" --rounds {}", request.rounds));
    }
    if request.most != usual.1 {
        line.push_str(&format!(" --most {}", request.most));
    }
    if request.peer_seconds != PEER_SECONDS {
        line.push_str(&format!(" --peer-seconds {}", request.peer_seconds));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Option<SnapshotsRequest>, Error> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_and_repeated() {
        for line in [
            "snapshots",
            "snapshots --quick",
            "snapshots --quick --rounds 3 --most 50",
            "snapshots --rounds 1",
            "snapshots --tiny --rounds 3",
            "snapshots --rounds 1 --peer-seconds 5",
        ] {
            assert_eq!(repeat(&words(line).unwrap().unwrap()), format!("steadfast lab run {line}"));
        }
        assert_eq!(words("snapshots --most 50").unwrap().unwrap().counts(), [0, 10, 50]);
        assert_eq!(words("snapshots").unwrap().unwrap().counts(), [0, 10, 100, 1_000, 10_000]);
        for (line, word) in [
            ("snapshots --fast", "--fast"),
            ("snapshots --most 1", "--most 1"),
            ("snapshots --out", "needs a value"),
        ] {
            let error = words(line).unwrap_err();
            assert!(error.exit_status() == 2 && error.to_string().contains(word), "{line}: {error}");
        }
    }
}
