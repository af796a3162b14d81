//! The command line of `steadfast lab conformance` and `steadfast lab stress`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Args, Command, FromArgMatches};
use steadfast_lab_experiment::{Error, number, settings};

use crate::suite::{self, Kind};

/// Smallest image.
const IMAGE_LEAST: u64 = 64 << 20;
/// The word that lists the suites.
const LIST: &str = "list";

/// A command line, understood.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Request {
    /// Print this help.
    Help(String),
    /// Name the suites.
    List(Kind),
    /// Run them.
    Run(RunRequest),
}

/// Options of a run.
#[derive(Args, Clone, Debug, Eq, PartialEq)]
pub struct RunRequest {
    /// The command.
    #[arg(skip = Kind::Conformance)]
    pub kind: Kind,
    /// `list` names the suites and runs none
    #[arg(value_name = "list", value_parser = [LIST])]
    list: Option<String>,
    /// The long forms: millions of operations, a kernel build
    #[arg(long)]
    pub long: bool,
    /// Suites, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',', hide_possible_values = true, value_parser = suites())]
    pub only: Option<Vec<String>>,
    /// Directory of pools and scratch files while it runs [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Directory of the logs [default: steadfast-conformance or steadfast-stress in --dir]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Run in a directory below DIR instead of a pool: the same suites on any file system
    #[arg(long, value_name = "DIR")]
    pub on: Option<PathBuf>,
    /// Run in a guest of user-mode Linux that mounts the pool over NFS
    #[arg(long, conflicts_with = "on")]
    pub guest: bool,
    /// Size of the pool's image, sparse [default: what each suite asks for]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: Option<u64>,
    /// Options of `steadfast pool create`, such as "-O compression=off"; and the address of a
    /// store, below which each suite's pool lies instead of in an image
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    pool: Option<String>,
    /// Seed of random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl RunRequest {
    /// Nothing but defaults.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            list: None,
            long: false,
            only: None,
            dir: None,
            out: None,
            on: None,
            guest: false,
            size: None,
            pool: None,
            seed: 1,
        }
    }

    /// Options of `steadfast pool create`, word by word.
    pub fn pool_words(&self) -> Vec<&str> {
        self.words().filter(|word| !is_address(word)).collect()
    }

    /// Address of the pool of a suite, if it is to lie on a store: a prefix of its own below the
    /// one that is given.
    pub fn store(&self, suite: &str) -> Option<String> {
        let address = self.words().find(|word| is_address(word))?;
        let (path, query) = address.split_at(address.find('?').unwrap_or(address.len()));
        let path = path.trim_end_matches('/');
        Some(format!("{path}/suite-{suite}-{}{query}", std::process::id()))
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.pool.iter().flat_map(|words| words.split_ascii_whitespace())
    }
}

/// True for the address of a store. A property may hold one too, behind its name.
fn is_address(word: &str) -> bool {
    ["s3://", "gs://", "az://", "file://"].iter().any(|scheme| word.starts_with(scheme))
}

fn suites() -> PossibleValuesParser {
    suite::ALL.iter().map(|suite| suite.name).collect::<Vec<_>>().into()
}

fn size(text: &str) -> Result<u64, String> {
    let size = number::parse_size(text).filter(|size| *size >= IMAGE_LEAST);
    size.ok_or_else(|| "give 64M or more, such as 4G".to_owned())
}

/// Reads the words after `steadfast lab`; the first is `conformance` or `stress`.
pub(crate) fn parse(args: &[String]) -> Result<Request, Error> {
    let usage = |text: &str, verb: &str| {
        Error::Usage(format!("{}\nSee `steadfast lab {verb} --help`.", text.trim_end()))
    };
    let kind = match args.first().map(String::as_str) {
        Some("conformance") => Kind::Conformance,
        Some("stress") => Kind::Stress,
        other => {
            let text = format!("`{}` is neither conformance nor stress", other.unwrap_or(""));
            return Err(usage(&text, "conformance"));
        }
    };
    let command = RunRequest::augment_args(settings(Command::new(kind.name()).bin_name(format!("steadfast lab {}", kind.name()))))
        .about(
            "Runs suites on the mount of a fresh pool and prints a line for each: name, passed, failed, skipped,\n\
             seconds of processor, seconds of wall clock. A suite whose programs are not installed is skipped,\n\
             and its line says so. Exit status 1 if a case failed that is not in the list of known failures.",
        );
    let matches = command.try_get_matches_from(&args[1..]);
    match matches.and_then(|matches| RunRequest::from_arg_matches(&matches)) {
        Ok(request) if request.list.is_some() => Ok(Request::List(kind)),
        Ok(request) => Ok(Request::Run(RunRequest { kind, ..request })),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(Request::Help(error.to_string())),
        Err(error) => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            Err(usage(text.split("\n\nFor more information").next().unwrap_or(text), kind.name()))
        }
    }
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
        let pool = ["stress", "--pool", "-O compression=off"].map(str::to_owned);
        let Request::Run(request) = parse(&pool).unwrap() else { panic!() };
        assert_eq!((request.kind, request.pool_words()), (Kind::Stress, vec!["-O", "compression=off"]));
        let far = "-O keylocation=file:///key s3://bucket/lab/?endpoint=http://127.0.0.1:1";
        let Request::Run(request) = parse(&["stress", "--pool", far].map(str::to_owned)).unwrap() else {
            panic!()
        };
        assert_eq!(request.pool_words(), vec!["-O", "keylocation=file:///key"]);
        let own = format!("s3://bucket/lab/suite-git-{}?endpoint=http://127.0.0.1:1", std::process::id());
        assert_eq!(request.store("git"), Some(own));
        let Request::Help(text) = words("stress --help").unwrap() else { panic!() };
        assert!(text.contains("--pool <WORDS>") && text.contains("Usage: steadfast lab stress"), "{text}");
    }

    #[test]
    fn every_mistake_is_a_sentence_and_status_2() {
        for (line, word) in [
            ("stress --only dance", "dance"),
            ("stress --only", "value is required"),
            ("stress --size 1", "64M"),
            ("stress --seed x", "'x' for '--seed"),
            ("stress --fast", "--fast"),
            ("conformance --guest --on /tmp", "cannot be used with"),
            ("dance", "neither"),
        ] {
            let error = words(line).unwrap_err();
            assert_eq!(error.exit_status(), 2, "{line}");
            assert!(error.to_string().contains(word), "{line}: {error}");
        }
    }
}
