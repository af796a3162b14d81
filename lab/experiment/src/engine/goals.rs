//! Goals, and whether they are met.

use steadfast_lab_report::figures::Goal;
use steadfast_lab_report::figures::goals::{Bound, bound, ratio, summary as summed};

use crate::comparison::ComparisonReport;

/// `arm` at least `limit` times as good as `against` in `row`.
struct Wanted {
    row: &'static str,
    arm: &'static str,
    against: &'static str,
    limit: f64,
    text: &'static str,
}

const WANTED: &[Wanted] = &[
    Wanted {
        row: "write",
        arm: "plain",
        against: "ext4",
        limit: 0.7,
        text: "sequential write at least 0.7 of ext4",
    },
    Wanted {
        row: "write",
        arm: "sealed",
        against: "plain",
        limit: 0.95,
        text: "encryption costs a sequential write at most 5 %",
    },
    Wanted {
        row: "write25",
        arm: "lz4",
        against: "plain",
        limit: 1.0,
        text: "lz4 at ratio 2.5 not slower than off",
    },
    Wanted {
        row: "read",
        arm: "plain",
        against: "ext4",
        limit: 0.7,
        text: "cold sequential read at least 0.7 of ext4",
    },
    Wanted {
        row: "read",
        arm: "sealed",
        against: "plain",
        limit: 0.95,
        text: "encryption costs a cold sequential read at most 5 %",
    },
    Wanted {
        row: "random_cold",
        arm: "plain",
        against: "ext4",
        limit: 0.5,
        text: "4 KiB random read, cold, at least 0.5 of ext4",
    },
    Wanted {
        row: "random_warm",
        arm: "plain",
        against: "ext4",
        limit: 1.0,
        text: "4 KiB random read, warm, equal to ext4",
    },
    Wanted {
        row: "random_write",
        arm: "plain",
        against: "ext4",
        limit: 1.0,
        text: "4 KiB random write, fsync at the end, equal to ext4",
    },
    Wanted {
        row: "create",
        arm: "plain",
        against: "memfs",
        limit: 0.95,
        text: "create at least 0.95 of an empty FUSE file system",
    },
    Wanted {
        row: "stat",
        arm: "plain",
        against: "memfs",
        limit: 0.95,
        text: "stat at least 0.95 of an empty FUSE file system",
    },
    Wanted {
        row: "unlink",
        arm: "plain",
        against: "memfs",
        limit: 0.95,
        text: "unlink at least 0.95 of an empty FUSE file system",
    },
    Wanted {
        row: "untar",
        arm: "plain",
        against: "ext4",
        limit: 0.8,
        text: "unpack a source tree at least 0.8 of ext4",
    },
    Wanted {
        row: "untar",
        arm: "plain",
        against: "memfs",
        limit: 0.95,
        text: "unpack a source tree at least 0.95 of an empty FUSE file system",
    },
    Wanted {
        row: "tar",
        arm: "plain",
        against: "ext4",
        limit: 0.6,
        text: "pack a source tree, cold, at least 0.6 of ext4",
    },
];

/// Rows in which the encrypted pool must be so many times as good as gocryptfs.
const GOCRYPTFS: f64 = 1.5;
const AGAINST_GOCRYPTFS: [&str; 12] = [
    "write",
    "read",
    "random_cold",
    "random_warm",
    "random_write",
    "fsync",
    "create",
    "stat",
    "unlink",
    "untar",
    "tar",
    "cow_rate",
];

/// Rows whose figure itself is bounded: row, limit, text.
const BOUNDED: &[(&str, Bound, &str)] = &[
    (
        "cow_bytes",
        Bound::AtMost(2.5),
        "4 KiB at random in a large file: at most 2.5 bytes to the device per byte accepted",
    ),
    ("cow_read", Bound::AtMost(1.5), "reads of that file at most 1.5 times slower afterwards"),
    ("fsync_share_1", Bound::AtLeast(0.9), "fsync by 1 thread at least 0.9 of fdatasync on the same disk"),
    ("fsync_share_4", Bound::AtLeast(0.9), "fsync by 4 threads at least 0.9 of fdatasync on the same disk"),
    ("fsync_share_16", Bound::AtLeast(0.9), "fsync by 16 threads at least 0.9 of fdatasync on the same disk"),
    (
        "stat_growth",
        Bound::AtMost(1.5),
        "stat of a forgotten name among the most files at most 1.5 times one among the fewest",
    ),
    (
        "name_growth",
        Bound::AtMost(1.5),
        "stat of a forgotten name in a known folder among the most files at most 1.5 times one among the fewest",
    ),
    ("stall", Bound::AtMost(super::curves::STALL_MS), "no stall over 100 ms at any utilisation"),
];

/// Judges the figures of a report. Goals whose row was left out of this run are left out too.
pub fn judge(report: &ComparisonReport) -> Vec<Goal> {
    let rows = &report.rows;
    let mut judged: Vec<Option<Goal>> = Vec::new();
    for wanted in WANTED {
        judged.push(ratio(rows, wanted.row, wanted.arm, wanted.against, wanted.limit, wanted.text));
    }
    for row in AGAINST_GOCRYPTFS {
        let Some(label) = report.row(row).map(|row| row.label.clone()) else { continue };
        let text = format!("{label}: encrypted at least 1.5 of gocryptfs");
        judged.push(ratio(rows, row, "sealed", "gocryptfs", GOCRYPTFS, &text));
    }
    for (row, limit, text) in BOUNDED {
        judged.push(bound(rows, row, "plain", *limit, text));
    }
    judged.into_iter().flatten().collect()
}

/// Summary, in a sentence or three.
pub fn summary(report: &ComparisonReport) -> String {
    summed(&report.goals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_lab_report::figures::Verdict;

    use crate::comparison::tests::report;

    #[test]
    fn ratios_are_judged_with_their_spread() {
        let verdict = |ours: &[f64]| {
            judge(&report("write", true, &[("ext4", &[90.0, 100.0, 110.0]), ("plain", ours)]))[0].verdict
        };
        assert_eq!(verdict(&[70.0, 71.0, 72.0]), Verdict::Met);
        assert_eq!(verdict(&[60.0, 65.0, 75.0]), Verdict::WithinSpread);
        assert_eq!(verdict(&[50.0, 50.0, 51.0]), Verdict::NotMet);
        assert_eq!(judge(&report("write", true, &[("plain", &[1.0])]))[0].verdict, Verdict::NotMeasured);
    }

    #[test]
    fn a_time_that_is_shorter_is_better() {
        let goals = judge(&report("untar", false, &[("ext4", &[1.0]), ("plain", &[1.2])]));
        assert_eq!(goals[0].verdict, Verdict::Met);
        assert!((goals[0].measured.unwrap() - 0.833).abs() < 0.001);
    }

    #[test]
    fn a_bounded_figure_is_judged_by_itself() {
        let goals = judge(&report("cow_bytes", false, &[("plain", &[3.0])]));
        assert_eq!((goals[0].verdict, goals[0].bound().as_str()), (Verdict::NotMet, "at most 2.5"));
        let mut whole = report("cow_bytes", false, &[("plain", &[3.0])]);
        whole.goals = goals;
        assert!(
            summary(&whole).starts_with("0 of 1 goals are met. Not met: 4 KiB at random"),
            "{}",
            summary(&whole)
        );
    }
}
