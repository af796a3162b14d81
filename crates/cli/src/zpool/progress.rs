//! Progress of a scrub, a resilver or a move of data: the lines of `zpool status`, and JSON in the
//! shape of OpenZFS's `scan_stats`, `removal_stats` and `raidz_expand_stats`.

use crate::date::{self, now};
use crate::json::Numbers;
use crate::table::tame;
use serde_json::{Value, json};
use steadfast_control::api::ScanReport;
use steadfast_property::nice_bytes;

/// Speed of a scan.
struct Pace {
    /// Bytes per second in this pass.
    rate: u64,
    /// Seconds left at this rate; `None` if nothing was read yet.
    left: Option<u64>,
}

/// The speed of a scan until `now`, or until its end.
fn pace(scan: &ScanReport, now: u64) -> Pace {
    let until = if scan.ended > 0 { scan.ended } else { now };
    let (begun, before) = match scan.pass_started {
        pass if pass > scan.started && scan.ended == 0 => (pass, scan.pass_before),
        _ => (scan.started, 0),
    };
    let rate = scan.scanned.saturating_sub(before) / until.saturating_sub(begun).max(1);
    let left = scan.total.saturating_sub(scan.scanned).checked_div(rate);
    Pace { rate, left: if scan.ended > 0 { Some(0) } else { left } }
}

/// A duration: `01:02:03`, or `4 days 01:02:03`.
fn duration(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days > 0 { format!("{days} days {clock}") } else { clock }
}

/// ZFS gives no time left below this rate, in bytes a second.
const SLOWEST_ESTIMATE: u64 = 10 << 20;

/// The lines of status for a scrub or a resilver, the first as in ZFS, behind `scan: `.
///
/// A block is read when it is found, so as many bytes are issued as are scanned. Lines of ours
/// follow if something was lost, skipped or not rebuilt.
pub(super) fn scan_lines(scan: &ScanReport, now: u64) -> Vec<String> {
    let date = date::ctime;
    let is_scrub = scan.function == "scrub";
    let processed = nice_bytes(scan.repaired + scan.resilvered);
    let took = duration(scan.ended.saturating_sub(scan.started));
    let mut lines = match scan.state.as_str() {
        "finished" => {
            let mended = if is_scrub { "scrub repaired" } else { "resilvered" };
            let (errors, ended) = (scan.errors, date(scan.ended));
            vec![format!("{mended} {processed} in {took} with {errors} errors on {ended}")]
        }
        "canceled" => vec![format!("{} canceled on {}", scan.function, date(scan.ended))],
        state => {
            let is_paused = state == "paused";
            let mut lines = match is_paused {
                true => vec![
                    format!("{} paused since {}", scan.function, date(scan.paused)),
                    format!("{} started on {}", scan.function, date(scan.started)),
                ],
                false => vec![format!("{} in progress since {}", scan.function, date(scan.started))],
            };
            let Pace { rate, left } = pace(scan, now);
            let at =
                if is_paused || rate == 0 { String::new() } else { format!(" at {}/s", nice_bytes(rate)) };
            let (scanned, total) = (nice_bytes(scan.scanned), nice_bytes(scan.total));
            lines.push(format!("{scanned} / {total} scanned{at}, {scanned} / {total} issued{at}"));
            let percent = (scan.scanned as f64 * 100.0 / scan.total.max(1) as f64).min(100.0);
            let mended = if is_scrub { "repaired" } else { "resilvered" };
            let has_begun = is_scrub || scan.resilvered + scan.repaired > 0;
            let left = match left.filter(|_| rate >= SLOWEST_ESTIMATE && has_begun) {
                _ if is_paused => String::new(),
                Some(left) => format!(", {} to go", duration(left)),
                None => ", no estimated completion time".to_owned(),
            };
            lines.push(format!("{processed} {mended}, {percent:.2}% done{left}"));
            if scan.limit > 0 {
                lines.push(format!("at most {}/s under other load", nice_bytes(scan.limit)));
            }
            lines
        }
    };
    if scan.lost > 0 {
        lines.push(format!("{} unrecoverable", nice_bytes(scan.lost)));
    }
    if !scan.left_out.is_empty() {
        let names: Vec<String> = scan.left_out.iter().map(|name| tame(name)).collect();
        lines.push(format!("not scanned, key not loaded: {}", names.join(", ")));
    }
    if scan.missing > 0 {
        lines.push(format!("{} columns are not rebuilt: no device has space for them", scan.missing));
    }
    lines
}

/// The lines of status for a removal, an expansion or a rebalance.
pub(super) fn move_lines(moving: &ScanReport) -> Vec<String> {
    let (what, word) = match moving.function.as_str() {
        "remove" => (format!("Evacuation of {}", tame(&moving.what)), "remove"),
        "expand" => ("Expansion".to_owned(), "expand"),
        _ => ("Rebalance".to_owned(), "rebalance"),
    };
    let moved = nice_bytes(moving.resilvered);
    let lost = match moving.lost {
        0 => String::new(),
        lost => format!("; {} unreadable, not moved", nice_bytes(lost)),
    };
    let took = duration(moving.ended.saturating_sub(moving.started));
    let head = |text: String| format!("{word}: {text}");
    match moving.state.as_str() {
        "finished" => {
            let what = if word == "remove" { format!("Removal of {}", tame(&moving.what)) } else { what };
            vec![head(format!("{what} copied {moved} in {took}, completed on {}", date::ctime(moving.ended)))]
        }
        "canceled" => {
            let what = if word == "remove" { "Removal".to_owned() } else { what };
            vec![head(format!("{what} canceled on {}{lost}", date::ctime(moving.ended)))]
        }
        state => {
            let Pace { rate, left } = pace(moving, now());
            let percent = (moving.scanned as f64 * 100.0 / moving.total.max(1) as f64).min(100.0);
            let left = left
                .map_or_else(|| "no estimated time".to_owned(), |left| format!("{} to go", duration(left)));
            let since = date::ctime(moving.started);
            let (scanned, total) = (nice_bytes(moving.scanned), nice_bytes(moving.total));
            vec![
                head(match state {
                    "paused" => format!("{what} paused, started on {since}"),
                    _ => format!("{what} in progress since {since}"),
                }),
                format!("\t{scanned} of {total} scanned at {}/s, {moved} copied", nice_bytes(rate)),
                format!("\t{percent:.2}% done, {left}{lost}"),
            ]
        }
    }
}

/// The scan as JSON.
pub(super) fn as_json(scan: &ScanReport, numbers: Numbers) -> Value {
    let Pace { rate, left } = pace(scan, now());
    let (number, bytes) = (|value| numbers.raw(value), |value| numbers.bytes(value));
    let in_pass = bytes(scan.scanned.saturating_sub(scan.pass_before));
    json!({
        "function": scan.function.to_uppercase(),
        // In OpenZFS a paused scan is one that is scanning and has a time of its pause.
        "state": match scan.state.as_str() {
            "active" | "paused" => "SCANNING".to_owned(),
            state => state.to_uppercase(),
        },
        "start_time": numbers.time(scan.started),
        "end_time": numbers.time(scan.ended),
        "to_examine": bytes(scan.total),
        "examined": bytes(scan.scanned),
        "skipped": bytes(0),
        "processed": bytes(scan.repaired + scan.resilvered),
        "errors": numbers.count(scan.errors),
        "bytes_per_scan": in_pass.clone(),
        "pass_start": number(scan.pass_started),
        "scrub_pause": numbers.time(scan.paused),
        "scrub_spent_paused": number(0),
        "issued_bytes_per_scan": in_pass,
        "issued": bytes(scan.scanned),
        "lost": bytes(scan.lost),
        "missing_columns": number(scan.missing),
        "bytes_per_second_max": if scan.limit == 0 { Value::Null } else { bytes(scan.limit) },
        "left_out": scan.left_out,
        "bytes_per_second": bytes(rate),
        "seconds_left": left.map_or(Value::Null, number),
    })
}

/// A removal, an expansion or a rebalance as JSON, with the name of its entry. Indexes of top-level
/// devices, which OpenZFS prints, are missing: an expansion moves data of all groups, and a removed
/// device has no index. A rebalance, which OpenZFS lacks, has the names of a removal.
pub(super) fn move_as_json(moving: &ScanReport, numbers: Numbers) -> (&'static str, Value) {
    let Pace { rate, left } = pace(moving, now());
    let (number, bytes) = (|value| numbers.raw(value), |value| numbers.bytes(value));
    let (name, to_copy, copied) = match moving.function.as_str() {
        "remove" => ("removal_stats", "to_copy", "copied"),
        "expand" => ("raidz_expand_stats", "to_reflow", "reflowed"),
        _ => ("rebalance_stats", "to_copy", "copied"),
    };
    let mut told = json!({
        // OpenZFS's word for an active scan.
        "state": match moving.state.as_str() {
            "active" => "SCANNING".to_owned(),
            state => state.to_uppercase(),
        },
        "start_time": numbers.time(moving.started),
        "end_time": numbers.time(moving.ended),
        to_copy: bytes(moving.total),
        copied: bytes(moving.resilvered),
        "examined": bytes(moving.scanned),
        "lost": bytes(moving.lost),
        "bytes_per_second": bytes(rate),
        "seconds_left": left.map_or(Value::Null, number),
    });
    if moving.function == "expand" {
        told["waiting_for_resilver"] = number(0);
    }
    if moving.function == "remove" {
        told["name"] = json!(moving.what);
        // Block pointers name segments, which move as a whole: no mapping is kept.
        told["mapping_memory"] = bytes(0);
    }
    (name, told)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTEGERS: Numbers = Numbers { exact: false, as_number: true };
    const NICE: Numbers = Numbers { exact: false, as_number: false };
    const EXACT: Numbers = Numbers { exact: true, as_number: false };

    fn report(function: &str, state: &str) -> ScanReport {
        ScanReport { function: function.into(), state: state.into(), started: 1000, ..ScanReport::default() }
    }

    #[test]
    fn moves_have_the_names_of_openzfs() {
        let mut moving = ScanReport {
            total: 8 << 20,
            scanned: 4 << 20,
            resilvered: 3 << 20,
            what: "mirror-0".into(),
            ..report("remove", "active")
        };
        let (name, told) = move_as_json(&moving, INTEGERS);
        assert_eq!(
            (name, &told["name"], &told["state"]),
            ("removal_stats", &json!("mirror-0"), &json!("SCANNING"))
        );
        assert_eq!((&told["to_copy"], &told["copied"]), (&json!(8 << 20), &json!(3 << 20)));
        assert_eq!((&told["mapping_memory"], &told["end_time"]), (&json!(0), &json!(0)));
        let (_, told) = move_as_json(&moving, NICE);
        assert_eq!((&told["to_copy"], &told["end_time"]), (&json!("8M"), &json!("-")));
        (moving.function, moving.state, moving.ended) = ("expand".into(), "finished".into(), 1010);
        let (name, told) = move_as_json(&moving, EXACT);
        assert_eq!((name, &told["state"]), ("raidz_expand_stats", &json!("FINISHED")));
        assert_eq!((&told["to_reflow"], &told["reflowed"]), (&json!("8388608"), &json!("3145728")));
        assert_eq!((&told["name"], &told["to_copy"]), (&Value::Null, &Value::Null));
        (moving.function, moving.state) = ("rebalance".into(), "paused".into());
        let (name, told) = move_as_json(&moving, INTEGERS);
        assert_eq!((name, &told["state"]), ("rebalance_stats", &json!("PAUSED")));
        assert_eq!((&told["copied"], &told["name"]), (&json!(3 << 20), &Value::Null));
    }

    #[test]
    fn rate_and_time_left_follow_from_what_was_read() {
        let mut scan = ScanReport { total: 4000, scanned: 1000, repaired: 8, ..report("scrub", "active") };
        let Pace { rate, left } = pace(&scan, 1010);
        assert_eq!((rate, left), (100, Some(30)));
        assert_eq!(pace(&ScanReport { scanned: 0, ..scan.clone() }, 1010).left, None);
        // The time of a pause does not count.
        let later = ScanReport { pass_started: 1500, pass_before: 500, ..scan.clone() };
        assert_eq!(pace(&later, 1510).rate, 50);
        (scan.state, scan.ended, scan.scanned) = ("finished".into(), 1020, 4000);
        assert_eq!((pace(&scan, 9999).rate, pace(&scan, 9999).left), (200, Some(0)));
        let told = as_json(&scan, INTEGERS);
        assert_eq!((&told["function"], &told["state"]), (&json!("SCRUB"), &json!("FINISHED")));
        assert_eq!((&told["examined"], &told["seconds_left"]), (&json!(4000), &json!(0)));
        assert_eq!(
            (&told["issued"], &told["errors"], &told["skipped"]),
            (&json!(4000), &json!(0), &json!(0))
        );
        let told = as_json(&ScanReport { paused: 1015, ended: 0, ..report("scrub", "paused") }, EXACT);
        assert_eq!((&told["state"], &told["scrub_pause"]), (&json!("SCANNING"), &json!("1015")));
    }

    #[test]
    fn scan_lines_are_those_of_zfs() {
        let at = date::ctime;
        let scrub = ScanReport { total: 4 << 30, scanned: 1 << 30, ..report("scrub", "active") };
        assert_eq!(
            scan_lines(&scrub, 1010),
            [
                format!("scrub in progress since {}", at(1000)),
                "1G / 4G scanned at 102M/s, 1G / 4G issued at 102M/s".to_owned(),
                "0B repaired, 25.00% done, 00:00:30 to go".to_owned(),
            ]
        );
        let slow = ScanReport { scanned: 1 << 20, ..scrub.clone() };
        assert_eq!(scan_lines(&slow, 1010)[2], "0B repaired, 0.02% done, no estimated completion time");
        let paused = ScanReport { state: "paused".into(), paused: 1009, ..scrub.clone() };
        assert_eq!(
            scan_lines(&paused, 9999),
            [
                format!("scrub paused since {}", at(1009)),
                format!("scrub started on {}", at(1000)),
                "1G / 4G scanned, 1G / 4G issued".to_owned(),
                "0B repaired, 25.00% done".to_owned(),
            ]
        );
        let done = ScanReport { ended: 1001, ..report("scrub", "finished") };
        assert_eq!(
            scan_lines(&done, 9999),
            [format!("scrub repaired 0B in 00:00:01 with 0 errors on {}", at(1001))]
        );
        let done = ScanReport { ended: 87_402, lost: 8192, errors: 2, repaired: 4096, ..done };
        assert_eq!(
            scan_lines(&done, 9999),
            [
                format!("scrub repaired 4K in 1 days 00:00:02 with 2 errors on {}", at(87_402)),
                "8K unrecoverable".to_owned(),
            ]
        );
        let canceled = ScanReport { ended: 1001, ..report("resilver", "canceled") };
        assert_eq!(scan_lines(&canceled, 9999), [format!("resilver canceled on {}", at(1001))]);
        let resilver = ScanReport { total: 4 << 30, scanned: 1 << 30, ..report("resilver", "active") };
        let told = scan_lines(&resilver, 1010);
        assert_eq!(told[0], format!("resilver in progress since {}", at(1000)));
        assert_eq!(told[2], "0B resilvered, 25.00% done, no estimated completion time");
        let resilver = ScanReport { resilvered: 1 << 20, ..resilver };
        assert_eq!(scan_lines(&resilver, 1010)[2], "1M resilvered, 25.00% done, 00:00:30 to go");
        let done = ScanReport { ended: 1001, state: "finished".into(), ..resilver };
        assert_eq!(
            scan_lines(&done, 9999),
            [format!("resilvered 1M in 00:00:01 with 0 errors on {}", at(1001))]
        );
    }
}
