//! The list of experiments: `steadfast lab list`, and the options of `steadfast lab run all`.

use std::path::PathBuf;

use crate::options::{one_of, wanted};

/// An experiment, as the list has it.
pub(crate) struct Entry {
    pub name: &'static str,
    /// Question that it answers.
    pub question: &'static str,
    /// Which source it repeats.
    pub source: &'static str,
    /// How long it takes, and its short form.
    pub time: &'static str,
    /// Options of its short form.
    pub quick: &'static [&'static str],
}

/// All of them, the quickest first.
pub(crate) static ENTRIES: [Entry; 17] = [
    Entry {
        name: "bench",
        question: "What does the lab's own engine cost, beside a bare loop of pread and fio?",
        source: "section 5 of vdbench's reference measurements",
        time: "4 minutes; --quick 1",
        quick: &["--quick"],
    },
    Entry {
        name: "compression",
        question: "What does lz4 save in space, and what does it cost in time and processors?",
        source: "source reports 000 and 002",
        time: "2 minutes; --quick 1",
        quick: &["--quick"],
    },
    Entry {
        name: "encryption",
        question: "What does AES-256-GCM cost in time and processors?",
        source: "source reports 000 and 002",
        time: "2 minutes; --quick 1",
        quick: &["--quick"],
    },
    Entry {
        name: "engine",
        question: "How fast is the file system beside others, and how does an operation's cost grow?",
        source: "Iris, sections 7 and 8 (tar, untar, large files)",
        time: "15 minutes; --quick 4",
        quick: &["--quick"],
    },
    Entry {
        name: "bucket",
        question: "What does a pool on a bucket far away cost in time, round trips and requests?",
        source: "Iris, section 7 (a cloud 50 ms away)",
        time: "2 minutes with --quick; the whole form was not timed",
        quick: &["--quick"],
    },
    Entry {
        name: "iris-latency",
        question: "Where does the time of an NFS client's operation go, hot and cold?",
        source: "Iris, figure 7",
        time: "5 minutes; --quick 2",
        quick: &["--quick"],
    },
    Entry {
        name: "iris-cache",
        question: "How large has a portal's cache of tree nodes to be?",
        source: "Iris, figure 4",
        time: "--quick 20 minutes; the whole form was not timed",
        quick: &["--quick"],
    },
    Entry {
        name: "iris-scale",
        question: "Does the rate of all NFS clients of a portal together stay, however many there are?",
        source: "Iris, figure 5",
        time: "--quick 2 minutes; the whole form was not timed",
        quick: &["--quick"],
    },
    Entry {
        name: "iris-fronts",
        question: "Is the daemon's own NFS server faster than NFS-Ganesha on the same pool?",
        source: "no figure; the goal of our own server",
        time: "--quick 1 minute; the whole form was not timed",
        quick: &["--quick"],
    },
    Entry {
        name: "iris-encode",
        question: "Does the code of a parity device keep up with what is written, on one core?",
        source: "Iris, figure 6",
        time: "1 minute; --quick half of it",
        quick: &["--quick"],
    },
    Entry {
        name: "iris-audit",
        question: "Does a store still hold everything, and how dear is the question?",
        source: "no figure; the goals of our own audits",
        time: "--quick 2 minutes; the whole form was not timed",
        quick: &["--quick"],
    },
    Entry {
        name: "iris-recover",
        question: "Does everything come back up to the planned loss, and how long does it take?",
        source: "no figure; the goals of our own recovery",
        time: "--quick 2 minutes; the whole form was not timed",
        quick: &["--quick"],
    },
    Entry {
        name: "cow",
        question: "What does copying on write cost in rate, evenness and bytes written?",
        source: "source report 001",
        time: "80 minutes; --quick 20",
        quick: &["--quick"],
    },
    Entry {
        name: "journal",
        question: "What does each mode of a journal cost?",
        source: "source report 001",
        time: "80 minutes; --quick 30",
        quick: &["--quick"],
    },
    Entry {
        name: "recovery",
        question: "How long do scrub, healing and resilvering take, beside a plain clone?",
        source: "source report 003",
        time: "30 minutes; --quick 5",
        quick: &["--quick"],
    },
    Entry {
        name: "snapshots",
        question: "What do many snapshots cost, and do unique blocks add up?",
        source: "source report 001",
        time: "20 minutes; --quick 2",
        quick: &["--quick"],
    },
    Entry {
        name: "dedup",
        question: "What does storing equal content once cost and save, and what do copies that share blocks?",
        source: "source report 001",
        time: "15 minutes; --quick 2",
        quick: &["--quick"],
    },
];

/// Text of `lab list`.
pub(crate) fn list() -> String {
    let mut text = String::new();
    for entry in &ENTRIES {
        text += &format!(
            "{:<12} {}\n{:<12} repeats {}; takes {}\n",
            entry.name, entry.question, "", entry.source, entry.time
        );
    }
    text + &format!("{:<12} {}\n", "all", "Each of them, and one page that leads to all reports.")
}

/// Options of `run all`.
#[derive(clap::Args, Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct AllRequest {
    /// The short form of each experiment
    #[arg(long)]
    pub quick: bool,
    /// Experiments, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = one_of(ENTRIES.iter().map(|entry| entry.name)))]
    pub only: Option<Vec<String>>,
    /// Directory for the results [default: lab-all-DATE in this directory]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl AllRequest {
    /// The experiments that are asked for.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &'static Entry> {
        ENTRIES.iter().filter(|entry| wanted(self.only.as_deref(), entry.name))
    }
}
