//! The command line of `steadfast lab`.

use std::path::PathBuf;

use crate::bench::{self, BenchRequest};
use crate::beside::{self, BesideRequest};
use crate::compare::{self, CompareRequest};
use crate::dedup::{self, DedupRequest};
use crate::engine::{self, EngineRequest};
use crate::error::Error;
use crate::number;
use crate::recovery::{self, RecoveryRequest};
use crate::site::{self, AllRequest};
use crate::snapshots::{self, SnapshotsRequest};

/// Help.
pub const USAGE: &str = "\
usage: steadfast lab list
       steadfast lab run EXPERIMENT [options]
       steadfast lab show REPORT.json [-o REPORT.html] [--markdown FILE [--marks NAME]]

Repeats an experiment and writes report.html and report.json.

experiments:
  compression     lz4 against off: space, response times, processor use
  encryption      AES-256-GCM against off: response times, processor use
  engine          rates, costs and curves beside ext4, xfs, btrfs and gocryptfs
  cow             copy on write: 4 KiB over and over in a file, beside ext4, xfs and btrfs
  journal         what each journal mode costs, ours and ext4's, beside xfs and btrfs
  recovery        a device flooded with zeros: scrub, heal and resilver, beside dd, btrfs and zfs-fuse
  snapshots       what snapshots cost to take, have, list, destroy and send, beside btrfs
  dedup           storing equal content once, and copies that share blocks, beside btrfs and xfs
  bench           what the lab's engine costs, beside a bare loop of pread and fio
  FILE            any parameter file, on what --target names: steadfast,ext4,zfs-fuse,/a/directory ...
  all             each of them, and one page that leads to all reports (--quick, --only NAMES, --out DIR)

options of run, compression and encryption:
  --out DIR       where the results go             (default: lab-EXPERIMENT-DATE in this directory)
  --size SIZE     size of each image file          (default: 256M)
  --elapsed N     seconds of each run of the load  (default: what the parameter file says, 10)
  --rounds N      how often the whole file is run; the middle of the rounds is reported (default: 1)
  --target WHAT   `steadfast`, or `dir:FIRST,SECOND`: two empty directories of any file systems
  --work DIR      where the image files lie while it runs (default: /var/tmp)
  --keep          leave pools and image files behind, and say how to remove them
  --json          print report.json instead of the table
";

/// What is asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Request {
    /// Print the help.
    Help,
    /// Name the experiments.
    List,
    /// Draw a report again.
    Show {
        /// `report.json`.
        report: PathBuf,
        /// Where the page goes.
        html: PathBuf,
        /// The document that table and pictures go into.
        markdown: Option<PathBuf>,
        /// Between which marks of it, if not those named after the experiment.
        marks: Option<String>,
    },
    /// Run one.
    Run(RunRequest),
    /// Run `engine`.
    Engine(EngineRequest),
    /// Run `cow` or `journal`.
    Beside(BesideRequest),
    /// Run `recovery`.
    Recovery(RecoveryRequest),
    /// Run a parameter file on many file systems.
    Compare(CompareRequest),
    /// Run `snapshots`.
    Snapshots(SnapshotsRequest),
    /// Run `dedup`.
    Dedup(DedupRequest),
    /// Run `bench`.
    Bench(BenchRequest),
    /// Run all of them.
    All(AllRequest),
}

impl Request {
    /// Whether `report.json` is to be printed.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Request::Run(request) => request.json,
            Request::Engine(request) => request.json,
            Request::Beside(request) => request.json,
            Request::Recovery(request) => request.json,
            Request::Compare(request) => request.json,
            Request::Snapshots(request) => request.json,
            Request::Dedup(request) => request.json,
            Request::Bench(request) => request.json,
            Request::Help | Request::List | Request::Show { .. } | Request::All(_) => false,
        }
    }
}

/// What `run` was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RunRequest {
    /// Name of the experiment.
    pub experiment: String,
    /// `--out`.
    pub out: Option<PathBuf>,
    /// `--size`, bytes.
    pub size: u64,
    /// `--elapsed`, seconds.
    pub elapsed_s: Option<u32>,
    /// `--rounds`.
    pub rounds: u32,
    /// `--target dir:`; empty means our own pools.
    pub directories: Vec<PathBuf>,
    /// `--work`.
    pub work: Option<PathBuf>,
    /// `--keep`.
    pub keep: bool,
    /// `--json`.
    pub json: bool,
}

impl RunRequest {
    /// An experiment with nothing but defaults.
    pub fn new(experiment: &str) -> Self {
        Self {
            experiment: experiment.to_owned(),
            out: None,
            size: 256 << 20,
            elapsed_s: None,
            rounds: 1,
            directories: Vec::new(),
            work: None,
            keep: false,
            json: false,
        }
    }
}

pub(crate) fn usage(text: String) -> Error {
    Error::Usage(format!("{text}\nSee `steadfast lab --help`."))
}

/// Reads the words after `steadfast lab`.
pub fn parse(args: &[String]) -> Result<Request, Error> {
    let mut words = args.iter();
    match words.next().map(String::as_str) {
        None | Some("-h" | "--help" | "help") => Ok(Request::Help),
        Some("list") => Ok(Request::List),
        Some("show") => show(words.as_slice()),
        Some("run") => match experiment_named(words.as_slice()) {
            Some("engine") => {
                Ok(engine::args::parse(words.as_slice())?.map_or(Request::Help, Request::Engine))
            }
            Some("bench") => Ok(bench::args::parse(words.as_slice())?.map_or(Request::Help, Request::Bench)),
            Some("snapshots") => {
                Ok(snapshots::args::parse(words.as_slice())?.map_or(Request::Help, Request::Snapshots))
            }
            Some("dedup") => Ok(dedup::args::parse(words.as_slice())?.map_or(Request::Help, Request::Dedup)),
            Some("all") => Ok(site::parse(words.as_slice())?.map_or(Request::Help, Request::All)),
            Some("recovery") => {
                Ok(recovery::args::parse(words.as_slice())?.map_or(Request::Help, Request::Recovery))
            }
            named => match named.and_then(beside::loads::find) {
                Some(load) => {
                    Ok(beside::args::parse(load, words.as_slice())?.map_or(Request::Help, Request::Beside))
                }
                None if named.is_some_and(compare::args::is_file) => {
                    Ok(compare::args::parse(words.as_slice())?.map_or(Request::Help, Request::Compare))
                }
                None => run(words.as_slice()),
            },
        },
        Some(other) => Err(usage(format!("`{other}` is not a verb of lab: list, run or show"))),
    }
}

/// The first word that is neither an option nor, as far as one can tell before knowing the experiment, an option's value.
fn experiment_named(words: &[String]) -> Option<&str> {
    const FLAGS: [&str; 8] = ["--quick", "--tiny", "--long", "--json", "--keep", "--help", "-h", "--"];
    let mut before = "--";
    for word in words {
        let value = before.starts_with('-') && !before.contains('=') && !FLAGS.contains(&before);
        if !word.starts_with('-') && !value {
            return Some(word);
        }
        before = if value && !word.starts_with('-') { "--" } else { word };
    }
    None
}

/// Splits `--name=value`; takes the next word as the value otherwise.
pub(crate) struct Words<'a> {
    rest: std::slice::Iter<'a, String>,
    attached: Option<&'a str>,
}

impl<'a> Words<'a> {
    pub(crate) fn new(words: &'a [String]) -> Words<'a> {
        Words { rest: words.iter(), attached: None }
    }

    pub(crate) fn next(&mut self) -> Option<&'a str> {
        let word = self.rest.next()?.as_str();
        match word.split_once('=') {
            Some((name, value)) if word.starts_with("--") => {
                self.attached = Some(value);
                Some(name)
            }
            _ => {
                self.attached = None;
                Some(word)
            }
        }
    }

    pub(crate) fn value(&mut self, option: &str) -> Result<&'a str, Error> {
        match self.attached.take().or_else(|| self.rest.next().map(String::as_str)) {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(usage(format!("{option} needs a value"))),
        }
    }
}

fn show(args: &[String]) -> Result<Request, Error> {
    let mut words = Words::new(args);
    let (mut report, mut html, mut markdown, mut marks) = (None, None, None, None);
    while let Some(word) = words.next() {
        match word {
            "-o" | "--out" => html = Some(PathBuf::from(words.value(word)?)),
            "--markdown" => markdown = Some(PathBuf::from(words.value(word)?)),
            "--marks" => {
                let name = words.value(word)?;
                let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
                if name.is_empty() || !name.chars().all(plain) {
                    return Err(usage(format!("--marks {name}: letters, digits and - alone")));
                }
                marks = Some(name.to_owned());
            }
            _ if word.starts_with('-') => return Err(usage(format!("lab show knows no option {word}"))),
            _ if report.is_none() => report = Some(PathBuf::from(word)),
            _ => return Err(usage("lab show draws one report at a time".to_owned())),
        }
    }
    let report = report.ok_or_else(|| usage("lab show needs the path of a report.json".to_owned()))?;
    let html = html.unwrap_or_else(|| report.with_extension("html"));
    if marks.is_some() && markdown.is_none() {
        return Err(usage("--marks says where in the document of --markdown, which is not given".to_owned()));
    }
    Ok(Request::Show { report, html, markdown, marks })
}

fn run(args: &[String]) -> Result<Request, Error> {
    let mut words = Words::new(args);
    let mut request: Option<RunRequest> = None;
    let mut given = RunRequest::new("");
    while let Some(word) = words.next() {
        match word {
            "-h" | "--help" => return Ok(Request::Help),
            "--out" => given.out = Some(PathBuf::from(words.value(word)?)),
            "--work" => given.work = Some(PathBuf::from(words.value(word)?)),
            "--keep" => given.keep = true,
            "--json" => given.json = true,
            "--size" => {
                let value = words.value(word)?;
                given.size = number::parse_size(value)
                    .filter(|size| *size >= 128 << 20)
                    .ok_or_else(|| usage(format!("--size {value}: give 128M or more, such as 256M or 1G")))?;
            }
            "--elapsed" => given.elapsed_s = Some(count(word, words.value(word)?, 2, 86_400)?),
            "--rounds" => given.rounds = count(word, words.value(word)?, 1, 1_000)?,
            "--target" => {
                let value = words.value(word)?;
                given.directories = match value.strip_prefix("dir:") {
                    Some(list) => list.split(',').map(PathBuf::from).collect(),
                    None if value == "steadfast" => Vec::new(),
                    None => {
                        return Err(usage(format!(
                            "--target {value}: write `steadfast` or `dir:FIRST,SECOND`"
                        )));
                    }
                };
            }
            _ if word.starts_with('-') => return Err(usage(format!("lab run knows no option {word}"))),
            _ if request.is_none() => request = Some(RunRequest::new(word)),
            _ => return Err(usage(format!("lab run runs one experiment; `{word}` is a second"))),
        }
    }
    let Some(named) = request else {
        return Err(usage(
            "lab run needs the name of an experiment: compression, encryption, engine, cow, journal, recovery, snapshots, dedup, bench or all"
                .to_owned(),
        ));
    };
    if crate::experiment::find(&named.experiment).is_none() {
        let names: Vec<_> = crate::experiment::all().iter().map(|e| e.name()).collect();
        return Err(usage(format!(
            "there is no experiment `{}`: {}",
            named.experiment,
            names.join(", ") + ", engine, cow, journal, recovery, snapshots, dedup, bench or all"
        )));
    }
    Ok(Request::Run(RunRequest { experiment: named.experiment, ..given }))
}

pub(crate) fn count(option: &str, value: &str, least: u32, most: u32) -> Result<u32, Error> {
    value
        .parse::<u32>()
        .ok()
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| usage(format!("{option} {value}: give a whole number from {least} to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Request, Error> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_may_stand_anywhere_and_take_their_value_either_way() {
        let expected = RunRequest {
            size: 1 << 30,
            elapsed_s: Some(4),
            rounds: 3,
            json: true,
            ..RunRequest::new("compression")
        };
        for line in [
            "run compression --size 1G --elapsed 4 --rounds 3 --json",
            "run --size=1G --elapsed=4 --json compression --rounds=3",
        ] {
            assert_eq!(words(line).unwrap(), Request::Run(expected.clone()), "{line}");
        }
        let Request::Run(request) = words("run encryption --target dir:/a,/b").unwrap() else { panic!() };
        assert_eq!(request.directories, [PathBuf::from("/a"), PathBuf::from("/b")]);
    }

    #[test]
    fn every_mistake_is_a_sentence_and_status_2() {
        for (line, word) in [
            ("dance", "dance"),
            ("run", "compression"),
            ("run speed", "speed"),
            ("run compression encryption", "second"),
            ("run compression --size 1M", "128M"),
            ("run compression --elapsed 1", "--elapsed"),
            ("run compression --rounds", "needs a value"),
            ("run compression --rounds=", "needs a value"),
            ("run compression --target x", "dir:FIRST"),
            ("run compression --fast", "--fast"),
            ("show", "report.json"),
            ("show a b", "one report"),
            ("show a --marks x", "--markdown"),
            ("show a --markdown b --marks x>", "--marks x>"),
        ] {
            let error = words(line).unwrap_err();
            assert_eq!(error.exit_status(), 2, "{line}");
            assert!(error.to_string().contains(word), "{line}: {error}");
        }
    }

    #[test]
    fn the_experiment_is_found_wherever_it_stands() {
        for line in
            ["run cow --quick", "run --quick cow", "run --out compression cow", "run --out=x --rounds 2 cow"]
        {
            assert!(
                matches!(words(line).unwrap(), Request::Beside(request) if request.load.name == "cow"),
                "{line}"
            );
        }
        assert!(matches!(words("run --only file --long engine").unwrap(), Request::Engine(_)));
        let Request::Run(request) = words("run compression --out cow").unwrap() else { panic!() };
        assert_eq!(request.out, Some(PathBuf::from("cow")));
    }

    #[test]
    fn help_names_every_experiment() {
        for experiment in crate::experiment::all() {
            let line = USAGE.lines().find(|line| line.trim_start().starts_with(experiment.name())).unwrap();
            assert!(line.ends_with(experiment.about()), "{line}");
        }
        for load in &crate::beside::loads::LOADS {
            assert!(USAGE.contains(&format!("  {:<14}  {}\n", load.name, load.about)), "{}", load.name);
        }
    }
}
