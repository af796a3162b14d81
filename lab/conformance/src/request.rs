//! The command line of `steadfast lab conformance` and `steadfast lab stress`.

use std::path::PathBuf;

use steadfast_lab_experiment::{Error, number};

use crate::suite::{self, Kind};

/// Help.
pub const USAGE: &str = "\
usage: steadfast lab conformance|stress [options]
       steadfast lab conformance|stress list

Runs suites on the mount of a fresh pool and prints a line for each: name, passed, failed, skipped, seconds of processor,
seconds of wall clock. What is not installed is skipped and said. Exit status 1 if something failed that is not in the list
of known failures.

  --long          the long forms: millions of operations, a kernel build
  --only NAMES    these suites, with commas between
  --dir DIR       where pools and scratch files lie while it runs (default: /var/tmp)
  --out DIR       where the logs stay   (default: steadfast-conformance or steadfast-stress in --dir)
  --on DIR        in a directory below DIR instead of a pool: the same suites on any file system
  --size SIZE     size of the pool's image, sparse                (default: what each suite asks for)
  --pool WORDS    options of `steadfast pool create`, such as \"-O compression=off\"
  --seed N        seed of what is random (default: 1)
";

/// What is asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Request {
    /// Print the help.
    Help,
    /// Name the suites.
    List(Kind),
    /// Run them.
    Run(RunRequest),
}

/// What a run was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RunRequest {
    /// Which of the two commands.
    pub kind: Kind,
    /// `--long`.
    pub long: bool,
    /// `--only`.
    pub only: Option<Vec<String>>,
    /// `--dir`.
    pub dir: Option<PathBuf>,
    /// `--out`.
    pub out: Option<PathBuf>,
    /// `--on`.
    pub on: Option<PathBuf>,
    /// `--size`, bytes.
    pub size: Option<u64>,
    /// `--pool`.
    pub pool: Vec<String>,
    /// `--seed`.
    pub seed: u64,
}

impl RunRequest {
    /// Nothing but defaults.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            long: false,
            only: None,
            dir: None,
            out: None,
            on: None,
            size: None,
            pool: Vec::new(),
            seed: 1,
        }
    }
}

fn usage(text: String) -> Error {
    Error::Usage(format!("{text}\nSee `steadfast lab conformance --help`."))
}

/// Reads the words after `steadfast lab`; the first is `conformance` or `stress`.
pub(crate) fn parse(args: &[String]) -> Result<Request, Error> {
    let kind = match args.first().map(String::as_str) {
        Some("conformance") => Kind::Conformance,
        Some("stress") => Kind::Stress,
        other => return Err(usage(format!("`{}` is neither conformance nor stress", other.unwrap_or("")))),
    };
    let mut request = RunRequest::new(kind);
    let mut words = args[1..].iter();
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .filter(|value| !value.is_empty())
                .ok_or_else(|| usage(format!("{word} needs a value")))
        };
        match word.as_str() {
            "-h" | "--help" => return Ok(Request::Help),
            "list" => return Ok(Request::List(kind)),
            "--long" => request.long = true,
            "--only" => {
                let names: Vec<String> = value()?.split(',').map(str::to_owned).collect();
                if let Some(unknown) =
                    names.iter().find(|name| suite::ALL.iter().all(|suite| suite.name != **name))
                {
                    let all: Vec<&str> = suite::ALL.iter().map(|suite| suite.name).collect();
                    return Err(usage(format!("there is no suite `{unknown}`: {}", all.join(", "))));
                }
                request.only = Some(names);
            }
            "--dir" => request.dir = Some(PathBuf::from(value()?)),
            "--out" => request.out = Some(PathBuf::from(value()?)),
            "--on" => request.on = Some(PathBuf::from(value()?)),
            "--size" => {
                let text = value()?;
                let size = number::parse_size(text).filter(|size| *size >= 64 << 20);
                request.size =
                    Some(size.ok_or_else(|| usage(format!("--size {text}: give 64M or more, such as 4G")))?);
            }
            "--pool" => request.pool = value()?.split_ascii_whitespace().map(str::to_owned).collect(),
            "--seed" => {
                let text = value()?;
                request.seed =
                    text.parse().map_err(|_| usage(format!("--seed {text}: give a whole number")))?;
            }
            _ => return Err(usage(format!("lab {} knows no option {word}", kind.name()))),
        }
    }
    Ok(Request::Run(request))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Request, Error> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let expected = RunRequest {
            long: true,
            only: Some(vec!["git".to_owned(), "fsx".to_owned()]),
            size: Some(1 << 30),
            seed: 7,
            ..RunRequest::new(Kind::Conformance)
        };
        assert_eq!(
            words("conformance --long --only git,fsx --size 1G --seed 7").unwrap(),
            Request::Run(expected)
        );
        assert_eq!(words("stress list").unwrap(), Request::List(Kind::Stress));
    }

    #[test]
    fn every_mistake_is_a_sentence_and_status_2() {
        for (line, word) in [
            ("stress --only dance", "dance"),
            ("stress --only", "needs a value"),
            ("stress --size 1", "64M"),
            ("stress --seed x", "--seed x"),
            ("stress --fast", "--fast"),
        ] {
            let error = words(line).unwrap_err();
            assert_eq!(error.exit_status(), 2, "{line}");
            assert!(error.to_string().contains(word), "{line}: {error}");
        }
    }
}
