//! Goals, and whether they are met.

use steadfast_lab_report::figures::Goal;
use steadfast_lab_report::figures::goals::{Bound, bound, ratio};

use crate::comparison::ComparisonReport;

/// Row, least share of the bare loop, text.
const SHARES: [(&str, &str); 4] = [
    ("write", "sequential write at least 0.8 of 32 bare transfers at once"),
    ("read", "cold sequential read at least 0.8 of 32 bare transfers at once"),
    ("scrub", "scrub at least 0.8 of 32 bare reads at once"),
    ("send", "send at least 0.8 of 32 bare reads at once"),
];
const SHARE: f64 = 0.8;

/// Row, arm, limit, text.
const BOUNDED: [(&str, &str, f64, &str); 7] = [
    ("many_trips", "bucket", 12.0, "ls -lR of many files, cold, at most 12 round trips"),
    ("tar_trips", "bucket", 40.0, "tar of small files, cold, at most 40 round trips"),
    ("import_rows", "bucket", 6.0, "import at most 6 requests in a row"),
    ("commit_rows", "bucket", 3.0, "commit of one change at most 3 requests in a row"),
    ("memory_share", "bucket", 1.2, "memory at most 1.2 times what is set, bucket alone"),
    ("memory_share", "local", 1.2, "memory at most 1.2 times what is set, with log, cache and anchor"),
    ("fsync_requests", "local", 0.5, "fsync with a log device makes no request (a commit may fall between)"),
];

/// Rows in which ours is to be ahead of every other client.
const AHEAD: [&str; 11] = [
    "write",
    "read",
    "untar",
    "untar_requests",
    "ls",
    "ls_requests",
    "tar",
    "tar_requests",
    "rm",
    "rm_requests",
    "space",
];

/// Judges the figures of a report. Goals whose row was left out of this run are left out too.
pub(super) fn judge(report: &ComparisonReport) -> Vec<Goal> {
    let rows = &report.rows;
    let has = |row: &str, arm: &str| report.row(row).is_some_and(|row| row.values.contains_key(arm));
    let mut judged: Vec<Option<Goal>> = Vec::new();
    for (row, text) in SHARES {
        judged.push(ratio(rows, row, "bucket", "bare", SHARE, text));
    }
    for (row, arm, limit, text) in BOUNDED.into_iter().filter(|(row, arm, ..)| has(row, arm)) {
        judged.push(bound(rows, row, arm, Bound::AtMost(limit), text));
    }
    for other in ["rclone", "s3fs", "zerofs"] {
        for row in AHEAD.into_iter().filter(|row| has(row, other)) {
            let label = report.row(row).map(|row| format!("{}, {}", row.label, row.unit)).unwrap_or_default();
            judged.push(ratio(rows, row, "bucket", other, 1.0, &format!("{label}: ahead of {other}")));
        }
    }
    judged.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_lab_report::figures::Verdict;

    use crate::comparison::tests::report;

    #[test]
    fn ours_is_judged_beside_the_bare_loop_and_by_itself() {
        let goals = judge(&report("write", true, &[("bare", &[100.0]), ("bucket", &[79.0])]));
        assert_eq!((goals.len(), goals[0].verdict), (1, Verdict::NotMet));
        let goals = judge(&report("many_trips", false, &[("bucket", &[11.0]), ("local", &[3.0])]));
        assert_eq!((goals.len(), goals[0].verdict), (1, Verdict::Met));
        assert_eq!(judge(&report("fsync_requests", false, &[("bucket", &[11.0])])).len(), 0);
        let goals = judge(&report("ls", false, &[("bucket", &[1.0]), ("s3fs", &[2.0])]));
        assert_eq!((goals[0].text.as_str(), goals[0].verdict), ("a row, 1/s: ahead of s3fs", Verdict::Met));
    }
}
