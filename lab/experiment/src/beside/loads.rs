//! The two loads: their parameter files, what they are run on, in which variants, and what was to
//! be reached.

use std::path::PathBuf;

use serde_json::Value;
use steadfast_lab_params::{OpenFlags, Overrides, Plan, Work};

use crate::error::Error;
use crate::file_systems::Kind;
use crate::load::{self, Parameters};
use crate::sources;
use steadfast_lab_report::figures::goals::{Bound, bound, ratio};
use steadfast_lab_report::figures::{Goal, Row};

/// One of the two experiments.
#[derive(Debug)]
pub struct Load {
    /// Name on the command line.
    pub name: &'static str,
    /// Heading of the report.
    pub title: &'static str,
    /// Question, in one sentence.
    pub question: &'static str,
    /// The parameter file.
    pub parameters: Parameters,
    /// Directory of its lun.
    pub anchor: &'static str,
    /// Columns.
    pub(crate) columns: &'static [Column],
    /// Goals.
    wanted: &'static [Wanted],
    /// Figures of the source report: row of ours, key in the carried file, what it was.
    pub(crate) reported: &'static [(&'static str, &'static str, &'static str)],
    /// Setting and conclusion of the source report.
    pub(crate) source: &'static str,
}

impl PartialEq for Load {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Load {}

/// Changes to the parameter file that were asked for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Changes {
    /// Replaces the duration of every run, seconds.
    pub elapsed_s: Option<u32>,
    /// Replaces the interval, seconds.
    pub interval_s: Option<u32>,
    /// Replaces the size of the file, bytes; never longer than the file says.
    pub size: Option<u64>,
}

/// A file system, before it is made.
#[derive(Debug)]
pub(crate) struct Column {
    pub key: &'static str,
    pub label: &'static str,
    pub kind: Kind,
}

#[derive(Debug)]
enum Wanted {
    /// Row, arm, against which, limit, in words.
    Ratio(&'static str, &'static str, &'static str, f64, &'static str),
    /// Row, arm, at least, in words.
    AtLeast(&'static str, &'static str, f64, &'static str),
    /// Row, arm, at most, in words.
    AtMost(&'static str, &'static str, f64, &'static str),
}

/// How the load is run.
#[derive(Debug)]
pub(crate) struct Variant {
    /// For `--only`.
    pub key: &'static str,
    /// Before the keys of its rows.
    pub prefix: &'static str,
    /// Name in tables.
    pub name: &'static str,
    /// How it was made.
    pub how: &'static str,
}

/// The variants, in the order they run.
pub(crate) const VARIANTS: [Variant; 2] = [
    Variant {
        key: "plain",
        prefix: "",
        name: "as the file says",
        how: "The parameter file as it is: nothing asks for durability before the end.",
    },
    Variant {
        key: "fsync",
        prefix: "fsync_",
        name: "fsync after every write",
        how: "The same plan, with openflags=fsync_each put on its storages after it was read: behind every write(2) the \
              same thread calls fsync(2) before it goes on, and the response time of the write spans both.",
    },
];

/// Inode tables and the journal are written by mkfs: not in the background while the load runs,
/// where they would count as bytes written by it.
const EXT4: &str = "-q -E lazy_itable_init=0,lazy_journal_init=0";

const fn ext4(key: &'static str, label: &'static str, options: &'static str) -> Column {
    Column { key, label, kind: Kind::Loop { file_system: "ext4", words: EXT4, options } }
}

const fn plain(file_system: &'static str) -> Column {
    Column {
        key: file_system,
        label: file_system,
        kind: Kind::Loop { file_system, words: "-q", options: "" },
    }
}

const fn ours(key: &'static str, label: &'static str, property: Option<&'static str>) -> Column {
    Column { key, label, kind: Kind::Ours { words: "", property } }
}

const ORDERED: Column = ext4("ext4", "ext4, data=ordered", "data=ordered");
const JOURNAL: Column = ext4("ext4-journal", "ext4, data=journal", "data=journal");
const WRITEBACK: Column = ext4("ext4-writeback", "ext4, data=writeback", "data=writeback");

/// The two of them.
pub static LOADS: [Load; 2] = [
    Load {
        name: "cow",
        title: "Cost and evenness of copying on write",
        question: "Half reads, half writes of 4 KiB in one file, as fast as it goes: how many, how evenly, and at what price \
                   in bytes written and space.",
        parameters: Parameters { file: "cow.parm", text: include_str!("../../../workloads/cow.parm") },
        anchor: "/mypool",
        columns: &[
            ORDERED,
            JOURNAL,
            WRITEBACK,
            plain("xfs"),
            plain("btrfs"),
            ours("steadfast", "steadfast", None),
            ours("passed", "steadfast, writeback_cache=off", Some("writeback_cache=off")),
        ],
        wanted: &[
            Wanted::Ratio("rate", "steadfast", "ext4", 1.0, "cow.parm equal to ext4's rate"),
            Wanted::Ratio("rate", "steadfast", "btrfs", 5.0, "cow.parm at least 5 times btrfs's rate"),
            Wanted::AtLeast(
                "worst",
                "steadfast",
                0.8,
                "cow.parm: the worst interval at least 0.8 of the median one",
            ),
            Wanted::Ratio(
                "fsync_rate",
                "steadfast",
                "ext4",
                1.0,
                "cow.parm, fsync after every write: equal to ext4's rate",
            ),
        ],
        reported: &[
            ("lowest", "rate_per_s_min", "lowest interval"),
            ("highest", "rate_per_s_max", "highest interval"),
            ("write_mean", "write_ms_min", "write response time of the best interval"),
            ("write_mean", "write_ms_max", "write response time of the worst interval"),
            ("max", "max_ms", "longest write"),
        ],
        source: "Source report 001: ZFS in the kernel on a partition of an NVMe drive, the original vdbench, 8 threads. The \
                 rate of one interval was 2,172 and of another 32,250 I/Os a second; the report blames copying on write.",
    },
    Load {
        name: "journal",
        title: "Cost of each journal mode",
        question: "Seven reads to three writes of 4 KiB, four threads, as fast as it goes: what does each mode of a journal \
                   cost in rate, in evenness, and in bytes written.",
        parameters: Parameters {
            file: "journal.parm",
            text: include_str!("../../../workloads/journal.parm"),
        },
        anchor: "/mnt/newdrive",
        columns: &[
            ORDERED,
            JOURNAL,
            WRITEBACK,
            plain("xfs"),
            plain("btrfs"),
            ours("ordered", "steadfast, journal=ordered", Some("journal=ordered")),
            ours("data", "steadfast, journal=data", Some("journal=data")),
            ours("writeback", "steadfast, journal=writeback", Some("journal=writeback")),
            ours("off", "steadfast, journal=off", Some("journal=off")),
        ],
        wanted: &[
            Wanted::Ratio(
                "rate",
                "ordered",
                "off",
                0.9,
                "journal.parm: journal=ordered costs at most 10 % of the rate of journal=off",
            ),
            Wanted::AtMost(
                "bytes",
                "data",
                3.1,
                "journal.parm: journal=data writes at most 3.1 bytes for one accepted",
            ),
            Wanted::Ratio(
                "fsync_rate",
                "ordered",
                "ext4",
                1.0,
                "journal.parm, fsync after every write: equal to ext4's rate",
            ),
        ],
        reported: &[
            ("lowest", "rate_per_s_min", "lowest interval"),
            ("highest", "rate_per_s_max", "highest interval"),
            ("mean", "mean_ms", "mean response time"),
        ],
        source: "Source report 001: ext4 (data=ordered) on a partition of an NVMe drive, the original vdbench, 4 threads. One \
                 interval, 85,463 I/Os a second, lay 35 % below the rest; the report guesses that a journal adds 10 to 15 % \
                 to what is written and did not measure it. Bytes to the device per byte accepted are that figure.",
    },
];

/// The load of this name.
pub fn find(name: &str) -> Option<&'static Load> {
    LOADS.iter().find(|load| load.name == name)
}

impl Load {
    /// Bytes of its file, as the parameter file says.
    pub fn file_bytes(&self) -> u64 {
        let plan = load::plan(&self.parameters, None).expect("the carried files are read by a test");
        plan.sds.iter().filter_map(|sd| sd.size).max().unwrap_or(0)
    }

    /// The plan of the parameter file with what was asked for changed.
    pub(crate) fn plan(&self, changes: Changes, variant: &Variant) -> Result<Plan, Error> {
        let overrides = Overrides {
            elapsed: changes.elapsed_s.map(u64::from),
            interval: changes.interval_s.map(u64::from),
            ..Overrides::default()
        };
        let mut plan = load::plan_with(&self.parameters, overrides)?;
        let resize = |size: &mut Option<u64>| {
            *size = match (*size, changes.size) {
                (Some(said), Some(asked)) => Some(said.min(asked)),
                (said, _) => said,
            };
        };
        plan.sds.iter_mut().for_each(|sd| resize(&mut sd.size));
        for run in &mut plan.runs {
            let Work::Raw(work) = &mut run.work else { continue };
            for sd in &mut work.sds {
                resize(&mut sd.size);
                if variant.key == "fsync" {
                    let flags = sd.openflags.unwrap_or_default();
                    sd.openflags = Some(OpenFlags { fsync_each: true, ..flags });
                }
            }
        }
        Ok(plan)
    }

    /// Judges the figures. Goals whose row was left out of this run are left out too.
    pub(crate) fn judge(&self, rows: &[Row]) -> Vec<Goal> {
        let goal = |wanted: &Wanted| match *wanted {
            Wanted::Ratio(row, arm, against, limit, text) => ratio(rows, row, arm, against, limit, text),
            Wanted::AtLeast(row, arm, limit, text) => bound(rows, row, arm, Bound::AtLeast(limit), text),
            Wanted::AtMost(row, arm, limit, text) => bound(rows, row, arm, Bound::AtMost(limit), text),
        };
        self.wanted.iter().filter_map(goal).collect()
    }

    /// Figures of the source report: row of ours, description, value.
    pub(crate) fn reported(&self) -> Vec<(&'static str, &'static str, f64)> {
        let file: Value = sources::reported();
        let figures = &file["workloads"][self.name]["reports"][0];
        self.reported
            .iter()
            .filter_map(|(row, key, what)| Some((*row, *what, figures[*key].as_f64()?)))
            .collect()
    }
}

/// The only lun of a plan of ours.
pub(crate) fn lun(plan: &Plan) -> PathBuf {
    plan.sds.first().map(|sd| PathBuf::from(&sd.lun)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(plan: &Plan) -> (&steadfast_lab_params::Run, &steadfast_lab_params::Sd) {
        let Work::Raw(work) = &plan.runs[0].work else { panic!("a raw run") };
        (&plan.runs[0], &work.sds[0])
    }

    #[test]
    fn nothing_of_the_file_changes_unasked_and_only_what_is_asked_does() {
        for (load, elapsed, size, threads) in [(&LOADS[0], 120, 1u64 << 30, 8), (&LOADS[1], 60, 10 << 30, 4)]
        {
            assert_eq!(load.file_bytes(), size);
            let plan = load.plan(Changes::default(), &VARIANTS[0]).unwrap();
            let (run, sd) = first(&plan);
            assert_eq!((run.elapsed, run.interval), (Some(elapsed), 5));
            assert_eq!((sd.size, sd.threads, sd.openflags), (Some(size), threads, None));
            assert!(lun(&plan).starts_with(load.anchor));
            let changes = Changes { elapsed_s: Some(20), interval_s: Some(2), size: Some(64 << 20) };
            let plan = load.plan(changes, &VARIANTS[1]).unwrap();
            let (run, sd) = first(&plan);
            assert_eq!((run.elapsed, run.interval, sd.size), (Some(20), 2, Some(64 << 20)));
            assert!(sd.openflags.unwrap().fsync_each && !sd.openflags.unwrap().dsync);
            // A size is only ever reduced.
            let plan =
                load.plan(Changes { size: Some(1 << 40), ..Changes::default() }, &VARIANTS[0]).unwrap();
            assert_eq!(first(&plan).1.size, Some(size));
        }
    }

    #[test]
    fn the_figures_beside_ours_are_those_of_the_report() {
        let printed = |load: &Load| load.reported().iter().map(|(_, _, value)| *value).collect::<Vec<_>>();
        assert_eq!(printed(&LOADS[0]), [2172.0, 32250.0, 0.451, 5.978, 8.243]);
        assert_eq!(printed(&LOADS[1]), [85463.0, 139_745.0, 0.028]);
    }

    #[test]
    fn goals_are_the_issues() {
        let row = |key: &str, values: &[(&str, f64)]| {
            let mut row = Row::new(key, key, "1/s", true, "");
            for (arm, value) in values {
                row.values.insert((*arm).to_owned(), vec![*value]);
            }
            row
        };
        // Judged is the default, not the column of writes that are passed on one by one.
        let cow = |ours, worst, passed| {
            let rows = [
                row("rate", &[("ext4", 100.0), ("btrfs", 20.0), ("steadfast", ours), ("passed", passed)]),
                row("worst", &[("steadfast", worst), ("passed", 1.0 - worst)]),
            ];
            LOADS[0].judge(&rows)
        };
        let verdicts = |goals: &[Goal]| goals.iter().map(|goal| goal.verdict.text()).collect::<Vec<_>>();
        assert_eq!(verdicts(&cow(99.0, 0.79, 700.0)), ["not met", "not met", "not met"]);
        assert_eq!(verdicts(&cow(700.0, 0.8, 37.0)), ["met", "met", "met"]);
        assert_eq!(cow(99.0, 0.79, 700.0)[2].bound(), "at least 0.8");
        let rows = [
            row("rate", &[("ordered", 91.0), ("off", 100.0)]),
            row("bytes", &[("data", 3.2)]),
            row("fsync_rate", &[("ordered", 10.0), ("ext4", 10.0)]),
        ];
        assert_eq!(verdicts(&LOADS[1].judge(&rows)), ["met", "not met", "met"]);
        assert_eq!(LOADS[1].judge(&[row("rate", &[("off", 1.0)])])[0].verdict.text(), "not measured");
    }
}
