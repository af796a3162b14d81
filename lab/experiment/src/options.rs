//! Options that several experiments share, the values of options, and the line that repeats a run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use steadfast_lab_report::number;

/// Default of `--dir`.
const DIRECTORY: &str = "/var/tmp";

/// Settings of every command: an option given twice counts once, the last of them.
pub fn settings(command: clap::Command) -> clap::Command {
    command.no_binary_name(true).args_override_self(true)
}

/// Directories of an experiment, and the form of its results.
#[derive(Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct Places {
    /// Directory of the image files; the disk below it is measured [default: /var/tmp]
    #[arg(long, alias = "work", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Directory for the results [default: lab-EXPERIMENT-DATE in this directory]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print report.json instead of the table
    #[arg(long)]
    pub json: bool,
}

impl Places {
    /// Directory of the image files.
    pub(crate) fn parent(&self) -> &Path {
        self.dir.as_deref().unwrap_or(Path::new(DIRECTORY))
    }
}

/// The place of the table and the pictures in a document.
#[derive(Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct Document {
    /// Write table and pictures into FILE, between its marks <!-- NAME --> and <!-- /NAME -->
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// How large an experiment is.
#[derive(Args, Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Form {
    /// The short form: less of everything; the report says so
    #[arg(long)]
    pub quick: bool,
    /// Sizes for tests of the experiment itself; the figures mean nothing.
    #[arg(long, hide = true)]
    pub tiny: bool,
}

impl Form {
    /// The value for this form.
    pub(crate) fn sized<T>(self, tiny: T, quick: T, whole: T) -> T {
        match (self.tiny, self.quick) {
            (true, _) => tiny,
            (false, true) => quick,
            _ => whole,
        }
    }
}

/// Sizes of an experiment that changes a file on an image of each file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageLoad {
    /// Bytes of each image.
    pub(crate) image: u64,
    /// Bytes of the file.
    pub(crate) file: u64,
    /// Writes of 4 KiB that are timed.
    pub(crate) writes: u64,
    /// Rounds of changes, each of a share of the file.
    pub(crate) steps: u64,
}

/// Reads a size of at least `least` bytes; `advice` says what to give.
pub(crate) fn size(least: u64, advice: &'static str) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| number::parse_size(text).filter(|size| *size >= least).ok_or_else(|| advice.to_owned())
}

/// Reads one name of a list.
pub(crate) fn one_of(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(names.into_iter().collect::<Vec<_>>())
}

/// Is `name` in a list of `--only` or `--arms`? No list means all.
pub(crate) fn wanted(list: Option<&[String]>, name: &str) -> bool {
    list.is_none_or(|list| list.iter().any(|one| one == name))
}

/// Longest round trip.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(5);

/// A round trip as it was given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RoundTrip(pub(crate) Duration);

/// Reads a round trip.
pub(crate) fn round_trip(text: &str) -> Result<RoundTrip, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits.parse().map_err(|_| "give a time like 50ms".to_owned())?;
    let seconds = match &text[digits.len()..] {
        "ms" => number / 1e3,
        "s" => number,
        "us" => number / 1e6,
        _ => return Err("give a time with its unit, like 50ms or 1s".to_owned()),
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time <= ROUND_TRIP_MAX => Ok(RoundTrip(time)),
        _ => Err("give a time from 0ms to 5s".to_owned()),
    }
}

impl std::fmt::Display for RoundTrip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.as_micros().is_multiple_of(1000) {
            write!(f, "{}ms", self.0.as_millis())
        } else {
            write!(f, "{}us", self.0.as_micros())
        }
    }
}

/// Least rate of a link to a store.
const RATE_LEAST: u64 = 1 << 20;
/// The rate that the paper's network had, at its lower end.
const RATE_PLAYED: u64 = 250_000_000;

/// Bytes a second each way of a link to a store; `None` sets no limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Rate(pub(crate) Option<u64>);

/// Reads a rate of `--rate`.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    match text {
        "none" => Ok(Rate(None)),
        _ => size(RATE_LEAST, "give 1M or more, or none")(text).map(|bytes| Rate(Some(bytes))),
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some(bytes) if bytes.is_multiple_of(1 << 20) => write!(f, "{}M", bytes >> 20),
            Some(bytes) => write!(f, "{bytes}"),
        }
    }
}

impl Rate {
    /// MB/s.
    pub(crate) fn megabytes(self) -> Option<f64> {
        self.0.map(|bytes| bytes as f64 / 1e6)
    }

    /// A key for what is measured at this rate: as it is without a limit.
    pub(crate) fn key(self, key: &str) -> String {
        self.megabytes().map_or_else(|| key.to_owned(), |rate| format!("{key}_at{rate:.0}"))
    }

    /// A label of the same.
    pub(crate) fn label(self, label: &str) -> String {
        self.megabytes().map_or_else(|| label.to_owned(), |rate| format!("{label}, link of {rate:.0} MB/s"))
    }
}

/// Rates of the link to the store, one after the other.
#[derive(Args, Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Rates {
    /// Bytes a second each way of the link to the store, like 250M, or none; several with commas
    /// between [default: none,250000000]
    #[arg(long = "rate", value_name = "RATES", value_delimiter = ',', value_parser = rate)]
    given: Option<Vec<Rate>>,
}

impl Rates {
    /// Those to play: without a limit, and the one of the Iris paper.
    pub(crate) fn all(&self) -> Vec<Rate> {
        self.given.clone().unwrap_or_else(|| vec![Rate(None), Rate(Some(RATE_PLAYED))])
    }

    /// As they were given.
    pub(crate) fn words(&self) -> Option<Vec<String>> {
        self.given.as_ref().map(|rates| rates.iter().map(Rate::to_string).collect())
    }

    /// In words.
    pub(crate) fn told(&self) -> String {
        let one = |rate: &Rate| {
            rate.megabytes().map_or_else(|| "no limit".to_owned(), |it| format!("{it:.0} MB/s"))
        };
        self.all().iter().map(one).collect::<Vec<_>>().join(", then ")
    }
}

/// A share, in parts of a million.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Percent(pub(crate) u32);

/// Reads a share of at most a half.
pub(crate) fn percent(text: &str) -> Result<Percent, String> {
    let number = text.strip_suffix('%').and_then(|digits| digits.parse::<f64>().ok());
    match number.ok_or("give a share like 0.1%")? {
        share if (0.0..=50.0).contains(&share) => Ok(Percent((share * 1e4).round() as u32)),
        _ => Err("give a share from 0% to 50%".to_owned()),
    }
}

impl std::fmt::Display for Percent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 1e4)
    }
}

/// The command that repeats a run, built option by option.
pub(crate) struct RepeatLine(String);

impl RepeatLine {
    /// `steadfast lab run EXPERIMENT`.
    pub(crate) fn new(experiment: &str) -> Self {
        Self(format!("steadfast lab run {experiment}"))
    }

    /// An option without a value, if it was given.
    pub(crate) fn flag(mut self, name: &str, given: bool) -> Self {
        if given {
            self.0 += &format!(" {name}");
        }
        self
    }

    /// `--quick` and `--tiny`.
    pub(crate) fn form(self, form: Form) -> Self {
        self.flag("--quick", form.quick).flag("--tiny", form.tiny)
    }

    /// An option with a value, if it was given.
    pub(crate) fn value(mut self, name: &str, value: Option<impl std::fmt::Display>) -> Self {
        if let Some(value) = value {
            self.0 += &format!(" {name} {value}");
        }
        self
    }

    /// An option with a size, in whole MiB where it is.
    pub(crate) fn size(self, name: &str, bytes: Option<u64>) -> Self {
        self.value(
            name,
            bytes.map(|bytes| match bytes % (1 << 20) {
                0 => format!("{}M", bytes >> 20),
                _ => bytes.to_string(),
            }),
        )
    }

    /// An option with a list, if it was given.
    pub(crate) fn list(self, name: &str, list: Option<&[String]>) -> Self {
        self.value(name, list.map(|names| names.join(",")))
    }

    /// The line.
    pub(crate) fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The options of one experiment, read from a line.
    pub(crate) fn parse<R: Args>(line: &str) -> Result<R, clap::Error> {
        let command = settings(R::augment_args(clap::Command::new("run")));
        R::from_arg_matches(&command.try_get_matches_from(line.split_whitespace())?)
    }

    /// The same of a line that is right.
    pub(crate) fn read<R: Args>(line: &str) -> R {
        parse(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Checks that each line of options is repeated as it was given.
    pub(crate) fn repeats<R: Args>(experiment: &str, lines: &[&str], repeat: impl Fn(&R) -> String) {
        for line in lines {
            let expected = format!("steadfast lab run {experiment} {line}");
            assert_eq!(repeat(&read(line)), expected.trim_end());
        }
    }

    /// A line that is refused, with this in what is said.
    pub(crate) fn refused<R: Args>(line: &str, word: &str) {
        let error = parse::<R>(line).err().unwrap_or_else(|| panic!("{line}: taken")).to_string();
        assert!(error.contains(word), "{line}: {error}");
    }
}
