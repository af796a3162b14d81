//! Options of `steadfast lab run cow` and `journal`, and how large and how long everything is.

use clap::Command;
use steadfast_lab_report::number;

use super::loads::{Changes, LOADS, Load, VARIANTS};
use crate::options::{Document, Form, Places, RepeatLine, one_of, wanted};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Longest file of the short form.
const QUICK_SIZE: u64 = 2 * GIB;
/// Seconds of each run in the short form.
const QUICK_S: u32 = 30;

/// Options of `run cow` and `run journal`.
#[derive(clap::Args, Clone, Debug, Eq, PartialEq)]
pub struct BesideRequest {
    /// The load.
    #[arg(skip = &LOADS[0])]
    pub(super) load: &'static Load,
    /// Interleaved rounds; the median is reported [default: 3, with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Seconds of each run of the load [default: 120 and 60, as the parameter files say; with
    /// --quick 30]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=86_400))]
    elapsed: Option<u32>,
    /// Seconds of each interval [default: 5, as the parameter files say]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3_600))]
    interval: Option<u32>,
    /// Size of the file [default: 1g and 10g, as the parameter files say; with --quick at most 2g]
    #[arg(long, value_name = "SIZE", value_parser = file_size)]
    size: Option<u64>,
    /// Loads, with commas between: the file as it is, or with an fsync after every write
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = one_of(VARIANTS.map(|variant| variant.key)))]
    only: Option<Vec<String>>,
    /// Columns, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    arms: Option<Vec<String>>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(flatten)]
    pub(crate) document: Document,
}

/// A size of the file: a hit area of 1 MiB is cut off it, and formats go by the MiB.
fn file_size(text: &str) -> Result<u64, String> {
    let size = number::parse_size(text).filter(|size| *size >= 16 * MIB && size % MIB == 0);
    size.ok_or_else(|| "give 16M or more in whole MiB, such as 256M or 2G".to_owned())
}

/// The command with the columns of this load.
pub(crate) fn with_columns(command: Command, load: &'static Load) -> Command {
    command.mut_arg("arms", |arg| arg.value_parser(one_of(load.columns.iter().map(|column| column.key))))
}

impl BesideRequest {
    /// The request for this load. Refuses a size above that of its file.
    pub(crate) fn of(self, load: &'static Load) -> Result<Self, String> {
        match (self.size, load.file_bytes()) {
            (Some(size), most) if size > most => Err(format!(
                "--size {}: the parameter file says {}, and a size is only ever reduced",
                number::bytes(size),
                number::bytes(most)
            )),
            _ => Ok(Self { load, ..self }),
        }
    }

    /// Interleaved rounds.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.form.quick { 2 } else { 3 })
    }

    /// Is this variant of the load to be run?
    pub(super) fn wants(&self, variant: &str) -> bool {
        wanted(self.only.as_deref(), variant)
    }

    /// Is this column to be measured?
    pub(super) fn wants_arm(&self, key: &str) -> bool {
        wanted(self.arms.as_deref(), key)
    }

    /// Changes to the parameter file.
    pub(super) fn changes(&self) -> Changes {
        let short = self.form.sized(
            Changes { elapsed_s: Some(3), interval_s: Some(1), size: Some(32 * MIB) },
            Changes { elapsed_s: Some(QUICK_S), interval_s: None, size: Some(QUICK_SIZE) },
            Changes::default(),
        );
        Changes {
            elapsed_s: self.elapsed.or(short.elapsed_s),
            interval_s: self.interval.or(short.interval_s),
            size: self.size.or(short.size),
        }
    }

    /// Size of each image for a file of so many bytes.
    pub(super) fn image_bytes(&self, file: u64) -> u64 {
        2 * file + if self.form.tiny { 256 * MIB } else { 2 * GIB }
    }

    /// The command that repeats a run.
    pub(super) fn repeat(&self) -> String {
        RepeatLine::new(self.load.name)
            .form(self.form)
            .value("--rounds", self.rounds)
            .value("--elapsed", self.elapsed)
            .value("--interval", self.interval)
            .size("--size", self.size)
            .list("--only", self.only.as_deref())
            .list("--arms", self.arms.as_deref())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;
    use crate::beside::loads::find;
    use crate::options::settings;

    fn words(line: &str) -> Result<BesideRequest, String> {
        let load = find(line.split(' ').next().unwrap()).unwrap();
        let command = with_columns(settings(BesideRequest::augment_args(Command::new("run"))), load);
        let matches = command.try_get_matches_from(line.split_whitespace().skip(1));
        let request = matches.and_then(|matches| BesideRequest::from_arg_matches(&matches));
        request.map_err(|error| error.to_string())?.of(load)
    }

    #[test]
    fn options_are_read_and_repeated() {
        for line in [
            "cow --quick --rounds 5 --only fsync --arms ext4,steadfast",
            "journal --elapsed 20 --interval 2 --size 512M --arms ordered,off",
            "cow",
        ] {
            assert_eq!(words(line).unwrap().repeat(), format!("steadfast lab run {line}"));
        }
        let quick = words("journal --quick").unwrap();
        assert_eq!(
            (quick.rounds(), quick.changes().elapsed_s, quick.changes().size),
            (2, Some(30), Some(2 << 30))
        );
        assert!(words("cow --only fsync").unwrap().wants("fsync"));
        assert!(!words("cow --only fsync").unwrap().wants("plain"));
        assert_eq!(words("cow").unwrap().changes(), Changes::default());
    }

    #[test]
    fn every_mistake_is_a_sentence() {
        for (line, word) in [
            ("cow --only speed", "plain"),
            ("cow --arms ordered", "steadfast"),
            ("journal --arms steadfast", "ordered"),
            ("cow --rounds 0", "'0' for '--rounds"),
            ("cow --elapsed", "value is required"),
            ("cow --size 2g", "only ever reduced"),
            ("cow --size 1M", "16M or more"),
            ("cow --fast", "--fast"),
            ("cow journal", "'journal'"),
        ] {
            let error = words(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
