//! The command line of `steadfast lab run cow` and `journal`, and how large and how long everything is.

use std::path::PathBuf;

use super::loads::{Load, VARIANTS};
use crate::error::Error;
use crate::number;

/// Help, for the text of `steadfast lab --help`.
pub const USAGE: &str = "\
options of run cow and run journal (need root):
  --rounds N      interleaved rounds; the middle is reported   (default: 3, with --quick 2)
  --elapsed N     seconds of each run of the load  (default: what the parameter file says, 120 and 60)
  --interval N    seconds of each interval         (default: what the parameter file says, 5)
  --size SIZE     size of the file                 (default: what the parameter file says, 1g and 10g)
  --quick         30 seconds each, and a file of at most 2g; the report says so
  --only NAMES    loads: plain (the file as it is), fsync (an fsync after every write)
  --arms NAMES    columns; cow: ext4 ext4-journal ext4-writeback xfs btrfs steadfast collected
                  journal: ext4 ext4-journal ext4-writeback xfs btrfs ordered data writeback off
  --dir DIR       where the images lie: the disk that is measured  (default: /var/tmp)
  --out DIR       where the results go             (default: lab-EXPERIMENT-DATE in this directory)
  --markdown FILE writes table and pictures into FILE, between its marks <!-- cow --> and <!-- /cow -->
";

/// What `run cow` or `run journal` was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BesideRequest {
    /// Which.
    pub load: &'static Load,
    /// `--rounds`.
    pub rounds: u32,
    /// `--elapsed`.
    pub elapsed_s: Option<u32>,
    /// `--interval`.
    pub interval_s: Option<u32>,
    /// `--size`, bytes.
    pub size: Option<u64>,
    /// `--quick`.
    pub quick: bool,
    /// `--tiny`: for tests of the experiment itself; the figures mean nothing.
    pub tiny: bool,
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
    /// `--json`.
    pub json: bool,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Longest file of the short form.
const QUICK_SIZE: u64 = 2 * GIB;
/// Seconds of each run in the short form.
const QUICK_S: u32 = 30;

/// What is asked of the parameter file that it does not say itself.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Changes {
    /// Replaces the duration of every run, seconds.
    pub elapsed_s: Option<u32>,
    /// Replaces the interval, seconds.
    pub interval_s: Option<u32>,
    /// Replaces the size of the file, bytes; never longer than the file says.
    pub size: Option<u64>,
}

impl BesideRequest {
    /// An experiment with nothing but defaults.
    pub fn new(load: &'static Load) -> Self {
        Self {
            load,
            rounds: 3,
            elapsed_s: None,
            interval_s: None,
            size: None,
            quick: false,
            tiny: false,
            only: None,
            arms: None,
            dir: None,
            out: None,
            markdown: None,
            json: false,
        }
    }

    /// Is this variant of the load to be run?
    pub fn wants(&self, variant: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|name| name == variant))
    }

    /// What is to be changed in the parameter file.
    pub fn changes(&self) -> Changes {
        let short = match (self.tiny, self.quick) {
            (true, _) => Changes { elapsed_s: Some(3), interval_s: Some(1), size: Some(32 * MIB) },
            (false, true) => Changes { elapsed_s: Some(QUICK_S), interval_s: None, size: Some(QUICK_SIZE) },
            _ => Changes::default(),
        };
        Changes {
            elapsed_s: self.elapsed_s.or(short.elapsed_s),
            interval_s: self.interval_s.or(short.interval_s),
            size: self.size.or(short.size),
        }
    }

    /// Size of each image for a file of so many bytes.
    pub fn image_bytes(&self, file: u64) -> u64 {
        2 * file + if self.tiny { 256 * MIB } else { 2 * GIB }
    }
}

fn usage(text: String) -> Error {
    Error::Usage(format!("{text}\nSee `steadfast lab --help`."))
}

/// Reads the words after `steadfast lab run`, one of which is the name of `load`. `None` if help is asked for.
pub(crate) fn parse(load: &'static Load, args: &[String]) -> Result<Option<BesideRequest>, Error> {
    let mut request = BesideRequest::new(load);
    let (mut words, mut rounds) = (args.iter(), None);
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
        let count = |text: String, least: u32, most: u32| {
            text.parse::<u32>()
                .ok()
                .filter(|number| (least..=most).contains(number))
                .ok_or_else(|| usage(format!("{name} {text}: give a whole number from {least} to {most}")))
        };
        match name {
            _ if name == load.name => {}
            "-h" | "--help" => return Ok(None),
            "--quick" => request.quick = true,
            "--tiny" => request.tiny = true,
            "--json" => request.json = true,
            "--rounds" => rounds = Some(count(value()?, 1, 100)?),
            "--elapsed" => request.elapsed_s = Some(count(value()?, 2, 86_400)?),
            "--interval" => request.interval_s = Some(count(value()?, 1, 3_600)?),
            "--size" => {
                let text = value()?;
                // A hit area of 1 MiB is cut off the file, and formats go by the MiB.
                let size = number::parse_size(&text).filter(|size| *size >= 16 * MIB && size % MIB == 0);
                request.size = Some(size.ok_or_else(|| {
                    usage(format!("--size {text}: give 16M or more in whole MiB, such as 256M or 2G"))
                })?);
            }
            "--only" => request.only = Some(list(value()?, &VARIANTS.map(|variant| variant.key))?),
            "--arms" => {
                let known: Vec<&str> = load.columns.iter().map(|column| column.key).collect();
                request.arms = Some(list(value()?, &known)?);
            }
            "--dir" | "--work" => request.dir = Some(PathBuf::from(value()?)),
            "--out" => request.out = Some(PathBuf::from(value()?)),
            "--markdown" => request.markdown = Some(PathBuf::from(value()?)),
            _ if name.starts_with('-') => {
                return Err(usage(format!("lab run {} knows no option {name}", load.name)));
            }
            _ => return Err(usage(format!("lab run runs one experiment; `{name}` is a second"))),
        }
    }
    request.rounds = rounds.unwrap_or(if request.quick { 2 } else { 3 });
    if let (Some(size), most) = (request.size, load.file_bytes())
        && size > most
    {
        return Err(usage(format!(
            "--size {}: the parameter file says {}, and a size is only ever reduced",
            number::bytes(size),
            number::bytes(most)
        )));
    }
    Ok(Some(request))
}

/// The command that repeats a run.
pub(crate) fn repeat(request: &BesideRequest) -> String {
    let mut line = format!("steadfast lab run {}", request.load.name);
    for (given, word) in [(request.quick, " --quick"), (request.tiny, " --tiny")] {
        if given {
            line.push_str(word);
        }
    }
    if request.rounds != if request.quick { 2 } else { 3 } {
        line.push_str(&format!(" --rounds {}", request.rounds));
    }
    for (given, word) in [(request.elapsed_s, "--elapsed"), (request.interval_s, "--interval")] {
        if let Some(seconds) = given {
            line.push_str(&format!(" {word} {seconds}"));
        }
    }
    if let Some(size) = request.size {
        line.push_str(&format!(" --size {}M", size / MIB));
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
    use crate::beside::loads::find;

    fn words(line: &str) -> Result<Option<BesideRequest>, Error> {
        let load = find(line.split(' ').next().unwrap()).unwrap();
        parse(load, &line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_and_repeated() {
        for line in [
            "cow --quick --rounds 5 --only fsync --arms ext4,steadfast",
            "journal --elapsed 20 --interval 2 --size 512M --arms ordered,off",
            "cow",
        ] {
            let request = words(line).unwrap().unwrap();
            let again = repeat(&request);
            assert_eq!(again, format!("steadfast lab run {line}"));
        }
        let quick = words("journal --quick").unwrap().unwrap();
        assert_eq!(
            (quick.rounds, quick.changes().elapsed_s, quick.changes().size),
            (2, Some(30), Some(2 << 30))
        );
        assert!(words("cow --only fsync").unwrap().unwrap().wants("fsync"));
        assert!(!words("cow --only fsync").unwrap().unwrap().wants("plain"));
        assert_eq!(words("cow").unwrap().unwrap().changes(), Changes::default());
    }

    #[test]
    fn every_mistake_is_a_sentence_and_status_2() {
        for (line, word) in [
            ("cow --only speed", "plain"),
            ("cow --arms ordered", "steadfast"),
            ("journal --arms steadfast", "ordered"),
            ("cow --rounds 0", "--rounds 0"),
            ("cow --elapsed", "needs a value"),
            ("cow --size 2g", "only ever reduced"),
            ("cow --size 1M", "16M or more"),
            ("cow --fast", "--fast"),
            ("cow journal", "second"),
        ] {
            let error = words(line).unwrap_err();
            assert_eq!(error.exit_status(), 2, "{line}");
            assert!(error.to_string().contains(word), "{line}: {error}");
        }
    }

    #[test]
    fn help_names_every_column_and_variant() {
        for name in ["cow", "journal"] {
            for column in find(name).unwrap().columns {
                assert!(USAGE.contains(&format!(" {}", column.key)), "{}", column.key);
            }
        }
        assert!(VARIANTS.iter().all(|variant| USAGE.contains(&format!("{} (", variant.key))));
    }
}
