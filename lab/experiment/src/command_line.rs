//! The command line of `steadfast lab`. Each experiment declares its own options; here they become
//! one command.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Args, Command, FromArgMatches, Subcommand};

use crate::bench::BenchRequest;
use crate::beside::{self, BesideRequest};
use crate::bucket::BucketRequest;
use crate::catalogue::AllRequest;
use crate::compare::CompareRequest;
use crate::dedup::DedupRequest;
use crate::engine::EngineRequest;
use crate::error::Error;
use crate::feature::RunRequest;
use crate::iris::cache::CacheRequest;
use crate::iris::fronts::FrontsRequest;
use crate::iris::latency::LatencyRequest;
use crate::iris::retrievability::{AuditRequest, EncodeRequest, RecoverRequest};
use crate::iris::scale::ScaleRequest;
use crate::options::settings;
use crate::recovery::RecoveryRequest;
use crate::snapshots::SnapshotsRequest;

/// Name of the verb that runs a parameter file.
const FILE: &str = "FILE";
/// Name of the verb that runs all of them.
const ALL: &str = "all";

/// A command of `steadfast lab`.
#[derive(Clone, Debug, Eq, PartialEq, Subcommand)]
pub(crate) enum Request {
    /// Print this help.
    #[command(skip)]
    Help(String),
    /// List the experiments, the sources they repeat, and the time they take
    List,
    /// Draw a report again from its report.json
    Show(ShowRequest),
    /// Be one of the processes that have the clients of an experiment.
    #[command(hide = true)]
    Clients,
    /// Run an experiment, or several one after the other, and write report.html and report.json of
    /// each
    #[command(subcommand, subcommand_value_name = "EXPERIMENT", subcommand_help_heading = "Experiments")]
    Run(Box<Experiment>),
    /// Run them one after the other, with the same options.
    #[command(skip)]
    Each(Vec<Experiment>),
}

/// An experiment with its options.
#[derive(Clone, Debug, Eq, PartialEq, Subcommand)]
pub(crate) enum Experiment {
    /// lz4 against off: space, response times, processor use
    Compression(RunRequest),
    /// AES-256-GCM against off: response times, processor use
    Encryption(RunRequest),
    /// Rates, costs and curves beside ext4, xfs, btrfs and gocryptfs (needs root)
    Engine(EngineRequest),
    /// Copy on write: 4 KiB over and over in a file, beside ext4, xfs and btrfs (needs root)
    Cow(BesideRequest),
    /// Cost of each journal mode, ours and ext4's, beside xfs and btrfs (needs root)
    Journal(BesideRequest),
    /// A device flooded with zeros: scrub, heal and resilver, beside dd, btrfs and zfs-fuse (needs
    /// root)
    Recovery(RecoveryRequest),
    /// Cost of snapshots: taking, keeping, listing, destroying, sending, beside btrfs (needs root)
    Snapshots(SnapshotsRequest),
    /// Storing equal content once, and copies that share blocks, beside btrfs and xfs (needs root)
    Dedup(DedupRequest),
    /// Cost of the lab's own engine, beside a bare loop of pread and fio
    Bench(BenchRequest),
    /// A pool on a bucket far away, beside a bare loop, rclone, s3fs and ZeroFS (needs root)
    Bucket(BucketRequest),
    /// A portal's cache of tree nodes, from 0.1 to 50 MB, at several distances (needs root)
    IrisCache(CacheRequest),
    /// 1 to 1,000 NFS clients of one portal at once (needs root)
    IrisScale(ScaleRequest),
    /// Operations of an NFS client of a portal, hot and cold: where their time goes (needs root)
    IrisLatency(LatencyRequest),
    /// The NFS server of the daemon beside NFS-Ganesha on the same pool (needs root)
    IrisFronts(FrontsRequest),
    /// Rates of tags and of the code of a parity device, by each kernel
    IrisEncode(EncodeRequest),
    /// Audits of a store at several distances, and how often they find out (needs root)
    IrisAudit(AuditRequest),
    /// Recovery beside reading the store once, and the loss up to which all comes back (needs root)
    IrisRecover(RecoverRequest),
    /// Any parameter file on the file systems of --target (needs root for all but directories)
    #[command(name = FILE, override_usage = "steadfast lab run FILE --target LIST [OPTIONS]")]
    File(CompareRequest),
    /// Every experiment, and a page with links to all reports
    All(AllRequest),
}

/// Options of `lab show`.
#[derive(Args, Clone, Debug, Eq, PartialEq)]
pub(crate) struct ShowRequest {
    /// report.json of an experiment
    #[arg(value_name = "REPORT.json")]
    pub report: PathBuf,
    /// The page [default: REPORT.html]
    #[arg(short = 'o', long = "out", value_name = "REPORT.html")]
    html: Option<PathBuf>,
    /// Write table and pictures into FILE, between its marks <!-- NAME --> and <!-- /NAME -->
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Name of the marks, if not that of the experiment
    #[arg(long, value_name = "NAME", requires = "markdown", value_parser = mark)]
    pub marks: Option<String>,
}

impl ShowRequest {
    /// The page.
    pub(crate) fn page(&self) -> PathBuf {
        self.html.clone().unwrap_or_else(|| self.report.with_extension("html"))
    }
}

/// The name of marks stands in a comment of a document.
fn mark(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    match !name.is_empty() && name.chars().all(plain) {
        true => Ok(name.to_owned()),
        false => Err("letters, digits and - alone".to_owned()),
    }
}

impl Experiment {
    /// Is `report.json` to be printed?
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Self::Compression(request) | Self::Encryption(request) => request.json,
            Self::Engine(request) => request.places.json,
            Self::Cow(request) | Self::Journal(request) => request.places.json,
            Self::Recovery(request) => request.places.json,
            Self::Snapshots(request) => request.places.json,
            Self::Dedup(request) => request.places.json,
            Self::Bench(request) => request.places.json,
            Self::Bucket(request) => request.places.json,
            Self::IrisCache(request) => request.places.json,
            Self::IrisScale(request) => request.places.json,
            Self::IrisLatency(request) => request.places.json,
            Self::IrisFronts(request) => request.places.json,
            Self::IrisEncode(request) => request.places.json,
            Self::IrisAudit(request) => request.places.json,
            Self::IrisRecover(request) => request.places.json,
            Self::File(request) => request.places.json,
            Self::All(_) => false,
        }
    }

    /// The experiment with what follows from several of its options. Refuses options that do not
    /// fit together.
    fn resolved(self) -> Result<Self, String> {
        let load = |name| beside::find(name).expect("both loads are there: a test names them");
        Ok(match self {
            Self::Compression(request) => {
                Self::Compression(RunRequest { experiment: "compression".to_owned(), ..request.resolved() })
            }
            Self::Encryption(request) => {
                Self::Encryption(RunRequest { experiment: "encryption".to_owned(), ..request.resolved() })
            }
            Self::Cow(request) => Self::Cow(request.of(load("cow"))?),
            Self::Journal(request) => Self::Journal(request.of(load("journal"))?),
            Self::File(request) => Self::File(request.resolved()?),
            Self::Recovery(request) => {
                request.check()?;
                Self::Recovery(request)
            }
            other => other,
        })
    }
}

/// The whole command.
fn command() -> Command {
    let load = |name| beside::find(name).expect("both loads are there: a test names them");
    let command = Request::augment_subcommands(settings(Command::new("lab").bin_name("steadfast lab")))
        .about("Repeats an experiment and writes report.html and report.json.")
        .disable_help_subcommand(true)
        .subcommand_required(true);
    let lines: Vec<String> = experiments(&command)
        .map(|one| {
            format!(
                "  {:<12} {}",
                one.get_name(),
                one.get_about().map(ToString::to_string).unwrap_or_default()
            )
        })
        .collect();
    let command = command.mut_subcommand("run", |run| {
        settings(run)
            .disable_help_subcommand(true)
            .mut_subcommand("cow", |cow| beside::with_columns(cow, load("cow")))
            .mut_subcommand("journal", |journal| beside::with_columns(journal, load("journal")))
    });
    command.after_help(format!(
        "Experiments:\n{}\n\n`steadfast lab run EXPERIMENT --help` explains the options of an experiment. Several \
         names are run one after the other, with the same options.",
        lines.join("\n")
    ))
}

/// The commands of the experiments.
fn experiments(command: &Command) -> impl Iterator<Item = &Command> {
    command.find_subcommand("run").into_iter().flat_map(Command::get_subcommands)
}

/// A sentence about a wrong command line.
fn usage(text: &str, verb: &str) -> Error {
    Error::Usage(format!("{}\nSee `steadfast lab {verb}--help`.", text.trim_end()))
}

/// Reads the words after `steadfast lab`.
pub(crate) fn parse(args: &[String]) -> Result<Request, Error> {
    let mut words: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut verb = String::new();
    match words.first() {
        None | Some(&"help") => words = vec!["--help"],
        Some(&"run") => {
            if let Some(each) = several(&words)? {
                return Ok(Request::Each(each));
            }
            if let Some(at) = names_at(&words).first().copied() {
                let name = words.remove(at);
                words.insert(1, name);
                if !is_experiment(name) {
                    if !is_file(name) {
                        return Err(usage(
                            &format!("there is no experiment `{name}`: {}", names().join(", ")),
                            "",
                        ));
                    }
                    words.insert(1, FILE);
                }
                verb = format!("run {} ", words[1]);
            } else if !words.iter().any(|word| ["-h", "--help"].contains(word)) {
                let text = format!(
                    "lab run needs the name of an experiment: {}, or a parameter file",
                    names().join(", ")
                );
                return Err(usage(&text, ""));
            }
        }
        Some(_) => {}
    }
    let matches = command().try_get_matches_from(&words);
    let request = matches.and_then(|matches| Request::from_arg_matches(&matches));
    match request {
        Ok(Request::Run(experiment)) => {
            let experiment = experiment.resolved().map_err(|text| usage(&text, &verb))?;
            Ok(Request::Run(Box::new(experiment)))
        }
        Ok(request) => Ok(request),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(Request::Help(error.to_string())),
        Err(error) => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            Err(usage(text.split("\n\nFor more information").next().unwrap_or(text), &verb))
        }
    }
}

/// The experiments, if more than one is named: each with all options.
fn several(words: &[&str]) -> Result<Option<Vec<Experiment>>, Error> {
    let named = names_at(words);
    if named.len() < 2 || !named.iter().all(|at| is_experiment(words[*at]) && words[*at] != ALL) {
        return Ok(None);
    }
    let options: Vec<&str> = (1..words.len()).filter(|at| !named.contains(at)).map(|at| words[at]).collect();
    if options.iter().any(|word| *word == "--out" || word.starts_with("--out=")) {
        let text =
            "--out is for the report of one experiment: leave it out, and each has a directory of its own";
        return Err(usage(text, ""));
    }
    let mut each = Vec::new();
    for at in named {
        let line = ["run", words[at]].iter().chain(&options).map(ToString::to_string).collect::<Vec<_>>();
        match parse(&line)? {
            Request::Run(experiment) => each.push(*experiment),
            // Help of the first one.
            _ => return Ok(None),
        }
    }
    Ok(Some(each))
}

fn names() -> Vec<String> {
    experiments(&command()).map(|one| one.get_name().to_owned()).filter(|name| name != FILE).collect()
}

fn is_experiment(word: &str) -> bool {
    names().iter().any(|name| name == word)
}

/// Is this word the name of a parameter file?
fn is_file(word: &str) -> bool {
    word.contains('/') || word.ends_with(".parm") || word.ends_with(".vdb") || Path::new(word).is_file()
}

/// Places of words in `run ...` that are neither an option nor the value of one: the name of the
/// experiment is the first of them, and options may stand before it.
fn names_at(words: &[&str]) -> Vec<usize> {
    let command = command();
    let Some(run) = command.find_subcommand("run") else { return Vec::new() };
    let takes_value = |word: &str| {
        let Some(name) = word.strip_prefix("--") else { return false };
        run.get_subcommands().flat_map(Command::get_arguments).any(|arg| {
            let alias = || arg.get_all_aliases().into_iter().flatten().any(|alias| alias == name);
            arg.get_action().takes_values() && (arg.get_long() == Some(name) || alias())
        })
    };
    let (mut at, mut found) = (1, Vec::new());
    while at < words.len() {
        match words[at] {
            word if takes_value(word) => at += 1,
            word if word.starts_with('-') => {}
            _ => found.push(at),
        }
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{ENTRIES, list};

    fn words(line: &str) -> Result<Request, Error> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn experiment(line: &str) -> Experiment {
        match words(line).unwrap() {
            Request::Run(experiment) => *experiment,
            other => panic!("{line}: {other:?}"),
        }
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
            assert_eq!(experiment(line), Experiment::Compression(expected.clone()), "{line}");
        }
        for (line, seconds) in [("run compression --quick", 4), ("run compression --quick --elapsed 9", 9)] {
            let Experiment::Compression(request) = experiment(line) else { panic!() };
            assert_eq!(request.elapsed_s, Some(seconds), "{line}");
        }
        let Experiment::Encryption(request) = experiment("run encryption --target dir:/a,/b") else {
            panic!()
        };
        let sides = vec![PathBuf::from("/a"), PathBuf::from("/b")];
        assert_eq!(request.target, crate::feature::Compared::Directories(sides));
        let Experiment::Bench(request) = experiment("run bench --rounds 2 --rounds 5") else { panic!() };
        assert!(request.repeat().ends_with("--rounds 5"), "the last counts");
    }

    #[test]
    fn every_mistake_is_a_sentence_and_status_2() {
        for (line, word) in [
            ("dance", "dance"),
            ("run", "compression"),
            ("run speed", "there is no experiment `speed`"),
            ("run compression speed", "'speed'"),
            ("run compression all", "'all'"),
            ("run compression encryption --out x", "a directory of its own"),
            ("run iris-encode iris-audit --devices a", "--devices"),
            ("run compression --size 1M", "128M"),
            ("run compression --elapsed 1", "--elapsed"),
            ("run compression --rounds", "value is required"),
            ("run compression --rounds=", "'' for '--rounds"),
            ("run compression --target x", "dir:FIRST"),
            ("run compression --fast", "--fast"),
            ("run recovery --devices a,b", "give 7"),
            ("run cow --size 2g", "only ever reduced"),
            ("run no/such.parm --target ext4", "no parameter file"),
            ("show", "REPORT.json"),
            ("show a b", "'b'"),
            ("show a --marks x", "--markdown"),
            ("show a --markdown b --marks x>", "letters, digits"),
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
            assert!(matches!(experiment(line), Experiment::Cow(_)), "{line}");
        }
        assert!(matches!(experiment("run --only file --long engine"), Experiment::Engine(_)));
        assert!(matches!(experiment("run --work journal dedup"), Experiment::Dedup(_)));
        let Experiment::Compression(request) = experiment("run compression --out cow") else { panic!() };
        assert_eq!(request.out, Some(PathBuf::from("cow")));
    }

    #[test]
    fn several_experiments_have_the_same_options() {
        let each = |line: &str| match words(line).unwrap() {
            Request::Each(each) => each,
            other => panic!("{line}: {other:?}"),
        };
        let quick = each("run --quick iris-encode iris-audit --rounds 2 iris-recover");
        let alone = ["iris-encode", "iris-audit", "iris-recover"]
            .map(|name| experiment(&format!("run {name} --quick --rounds 2")));
        assert_eq!(quick, alone);
        assert_eq!(each("run compression compression").len(), 2);
    }

    #[test]
    fn help_names_every_experiment_and_each_explains_its_options() {
        let help = |line: &str| match words(line).unwrap() {
            Request::Help(text) => text,
            other => panic!("{line}: {other:?}"),
        };
        for line in ["", "help", "-h", "--help"] {
            let text = help(line);
            assert!(names().iter().all(|name| text.contains(&format!("\n  {name} "))), "{text}");
        }
        assert!(help("show --help").contains("-o, --out <REPORT.html>"));
        for name in names().iter() {
            assert!(help(&format!("run {name} --help")).contains("--out <DIR>"), "{name}");
            assert!(help("run --help").contains(name.as_str()), "{name}");
        }
        assert!(help("run engine --help").contains("memory of the daemon under load"));
        for column in beside::find("journal").unwrap().columns {
            assert!(help("run journal --help").contains(column.key), "{}", column.key);
        }
        command().debug_assert();
    }

    #[test]
    fn the_list_has_every_experiment_with_its_source_and_its_time() {
        let text = list();
        for name in names().iter().filter(|name| *name != "all") {
            assert!(ENTRIES.iter().any(|entry| entry.name == name), "{name}");
            assert!(text.contains(name.as_str()), "{name}");
        }
        assert!(crate::feature::all().iter().all(|experiment| text.contains(experiment.name())));
        // Each knows the options of its short form.
        for entry in &ENTRIES {
            let line = format!("run {} {}", entry.name, entry.quick.join(" "));
            assert!(words(&line).is_ok(), "{line}");
        }
    }
}
