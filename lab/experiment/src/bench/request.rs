//! The command line of `steadfast lab run bench`.

use std::path::PathBuf;

use crate::args::{Words, count, usage};
use crate::error::Error;

/// Help, for the text of `steadfast lab --help`.
pub const USAGE: &str = "\
options of run bench (no root needed; `nice -n -15` helps where the machine has other work):
  --rounds N      interleaved rounds; the middle is reported   (default: 3, with --quick 1)
  --seconds N     seconds of each measurement      (default: 4, with --quick 2)
  --quick         one round of two seconds each
  --dir DIR       where the file of 64 MiB lies    (default: /var/tmp)
  --out DIR       where the results go             (default: lab-bench-DATE in this directory)
  --markdown FILE writes the table into FILE, between its marks <!-- bench --> and <!-- /bench -->
";

/// What `run bench` was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BenchRequest {
    /// `--rounds`.
    pub rounds: u32,
    /// `--seconds`.
    pub seconds: u64,
    /// `--dir`.
    pub dir: Option<PathBuf>,
    /// `--out`.
    pub out: Option<PathBuf>,
    /// `--markdown`.
    pub markdown: Option<PathBuf>,
    /// `--json`.
    pub json: bool,
}

/// Reads the words after `steadfast lab run`, one of which is `bench`. `None` if help is asked for.
pub(crate) fn parse(args: &[String]) -> Result<Option<BenchRequest>, Error> {
    let mut words = Words::new(args);
    let (mut rounds, mut seconds, mut quick) = (None, None, false);
    let mut request =
        BenchRequest { rounds: 3, seconds: 4, dir: None, out: None, markdown: None, json: false };
    while let Some(word) = words.next() {
        match word {
            "bench" => {}
            "-h" | "--help" => return Ok(None),
            "--quick" => quick = true,
            "--json" => request.json = true,
            "--rounds" => rounds = Some(count(word, words.value(word)?, 1, 100)?),
            "--seconds" => seconds = Some(count(word, words.value(word)?, 2, 3_600)?),
            "--dir" | "--work" => request.dir = Some(PathBuf::from(words.value(word)?)),
            "--out" => request.out = Some(PathBuf::from(words.value(word)?)),
            "--markdown" => request.markdown = Some(PathBuf::from(words.value(word)?)),
            _ => return Err(usage(format!("lab run bench knows no option {word}"))),
        }
    }
    request.rounds = rounds.unwrap_or(if quick { 1 } else { 3 });
    request.seconds = u64::from(seconds.unwrap_or(if quick { 2 } else { 4 }));
    Ok(Some(request))
}

/// The command that repeats a run.
pub(crate) fn repeat(request: &BenchRequest) -> String {
    let mut line = "steadfast lab run bench".to_owned();
    if request.rounds != 3 {
        line.push_str(&format!(" --rounds {}", request.rounds));
    }
    if request.seconds != 4 {
        line.push_str(&format!(" --seconds {}", request.seconds));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Option<BenchRequest>, Error> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_and_repeated() {
        for line in ["bench", "bench --rounds 5 --seconds 2"] {
            assert_eq!(repeat(&words(line).unwrap().unwrap()), format!("steadfast lab run {line}"));
        }
        let quick = words("bench --quick").unwrap().unwrap();
        assert_eq!((quick.rounds, quick.seconds), (1, 2));
        for (line, word) in
            [("bench --fast", "--fast"), ("bench --rounds 0", "--rounds 0"), ("bench --out", "needs a value")]
        {
            let error = words(line).unwrap_err();
            assert!(error.exit_status() == 2 && error.to_string().contains(word), "{line}: {error}");
        }
    }
}
