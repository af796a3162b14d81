//! Goals, and the summary.

use steadfast_lab_report::figures::goals::{self, Bound};
use steadfast_lab_report::figures::{self, shown};
use steadfast_lab_report::report::median;

use super::report::{FILLS, RecoveryReport};

/// Goals of the columns that were asked for.
pub(super) fn judge(report: &RecoveryReport) -> Vec<figures::Goal> {
    let (rows, mut found) = (&report.rows, Vec::new());
    let has = |arm: &str| report.arms.iter().any(|known| known.key == arm);
    for arm in ["raidz1", "raidz2"].into_iter().filter(|arm| has(arm)) {
        let scrub = format!("{arm}: clean scrub at least 0.95 of dd reading one device");
        found.extend(goals::bound(rows, "scrub_read", arm, Bound::AtLeast(0.95), &scrub));
        let resilver = format!("{arm}: resilver at least 0.8 of dd cloning one device");
        found.extend(goals::bound(rows, "resilver_clone", arm, Bound::AtLeast(0.8), &resilver));
        let resilver = format!("{arm}: resilver at least 0.95 of dd that reads and writes as much");
        found.extend(goals::bound(rows, "resilver_row", arm, Bound::AtLeast(0.95), &resilver));
        let write =
            format!("{arm}: writing at least 0.7 of the data's share of what dd writes to all devices");
        found.extend(goals::bound(rows, "fill_all", arm, Bound::AtLeast(0.7), &write));
        let write = format!("{arm}: writing at least 0.7 of what the processors allow");
        found.extend(goals::bound(rows, "fill_busy", arm, Bound::AtLeast(0.7), &write));
        let degraded = format!("{arm}: degraded reads at most 2 times slower");
        found.extend(goals::bound(rows, "slower", arm, Bound::AtMost(2.0), &degraded));
        let copy = format!("{arm}: replacing a healthy device at least 0.8 of dd cloning it");
        found.extend(goals::bound(rows, "copy_clone", arm, Bound::AtLeast(0.8), &copy));
    }
    if has("raidz1") && has("zfs-fuse") {
        for (key, what, limit) in [("scrubbed", "clean scrub", 1.0), ("resilver", "resilver", 1.2)] {
            for fill in FILLS {
                let text = format!("raidz1: {what} at {fill} % at least {limit} of zfs-fuse's rate");
                let key = format!("{key}{fill}");
                found.extend(goals::ratio(rows, &key, "raidz1", "zfs-fuse", limit, &text));
            }
        }
    }
    found
}

/// Summary, in a few sentences.
pub(super) fn summary(report: &RecoveryReport) -> String {
    let mut words = if report.goals.is_empty() { String::new() } else { goals::summary(&report.goals) };
    for arm in report.arms.iter().filter(|arm| !arm.is_absent(&report.rows)) {
        let of = |key: &str| report.rows.iter().find(|row| row.key == key)?.values.get(&arm.key);
        let middle = |key: &str| of(key).and_then(|values| median(values));
        if let (Some(heal), Some(resilver)) = (middle("heal75"), middle("resilver75")) {
            words.push_str(&format!(
                " {}: healed {} MB/s, resilvered {} MB/s at 75 %.",
                arm.label,
                shown(heal),
                shown(resilver)
            ));
        }
    }
    words.push_str(" Every byte was compared after every recovery.");
    words.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use steadfast_lab_report::figures::Row;
    use steadfast_lab_report::report::Conditions;

    use super::*;
    use crate::options::tests::read;

    #[test]
    fn what_was_not_asked_for_is_no_goal() {
        let goals = |line: &str| {
            let mut report = RecoveryReport::new(&read(line), Conditions::default(), 1 << 30);
            for (key, unit) in [
                ("scrub_read", "times"),
                ("scrubbed25", "MB/s"),
                ("resilver25", "MB/s"),
                ("resilver50", "MB/s"),
                ("resilver75", "MB/s"),
            ] {
                for arm in report.arms.clone() {
                    figures::add(&mut report.rows, &Row::new(key, key, unit, true, ""), &arm.key, 1.0);
                }
            }
            judge(&report)
        };
        assert!(goals("--arms raidz1").iter().all(|goal| goal.arm == "raidz1" && goal.against.is_none()));
        assert!(goals("--arms btrfs").is_empty());
        let all = goals("");
        let beside: Vec<&str> = all
            .iter()
            .filter(|goal| goal.against.as_deref() == Some("zfs-fuse"))
            .map(|goal| goal.row.as_str())
            .collect();
        assert_eq!(beside, ["scrubbed25", "resilver25", "resilver50", "resilver75"], "at every filling");
    }
}
