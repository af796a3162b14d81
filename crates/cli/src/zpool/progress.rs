//! Progress of a scrub, a resilver or a move of data: the lines of `zpool status`, and JSON in the
//! shape of OpenZFS's `scan_stats`, `removal_stats` and `raidz_expand_stats`.

use crate::date::{self, now};
use crate::json;
use crate::table::tame;
use serde_json::{Value, json};
use steadfast_control::api::ScanReport;
use steadfast_property::nice_bytes;

/// Speed of a scan.
struct Pace {
    /// Bytes per second since the start.
    rate: u64,
    /// Seconds left at this rate; `None` if nothing was read yet.
    left: Option<u64>,
}

/// The speed of a scan until `now`, or until its end.
fn pace(scan: &ScanReport, now: u64) -> Pace {
    let until = if scan.ended > 0 { scan.ended } else { now };
    let rate = scan.scanned / until.saturating_sub(scan.started).max(1);
    let left = scan.total.saturating_sub(scan.scanned).checked_div(rate);
    Pace { rate, left: if scan.ended > 0 { Some(0) } else { left } }
}

/// A duration: `01:02:03`, or `4 days 01:02:03`.
fn duration(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days > 0 { format!("{days} days {clock}") } else { clock }
}

/// The lines of status for a scrub or a resilver.
pub(super) fn scan_lines(scan: &ScanReport) -> Vec<String> {
    let date = date::creation;
    let mended = match scan.function.as_str() {
        "scrub" => format!("repaired {}", nice_bytes(scan.repaired + scan.resilvered)),
        _ => format!("resilvered {}", nice_bytes(scan.resilvered + scan.repaired)),
    };
    let errors = format!("with {} unrecoverable", nice_bytes(scan.lost));
    let took = duration(scan.ended.saturating_sub(scan.started));
    let mut lines = match scan.state.as_str() {
        "finished" => {
            let words = if scan.function == "scrub" { format!("scrub {mended}") } else { mended };
            vec![format!("{words} in {took} {errors} on {}", date(scan.ended))]
        }
        "canceled" => vec![format!("{} canceled on {}", scan.function, date(scan.ended))],
        state => {
            let head = match state {
                "paused" => format!("{} paused, started on {}", scan.function, date(scan.started)),
                _ => format!("{} in progress since {}", scan.function, date(scan.started)),
            };
            let Pace { rate, left } = pace(scan, now());
            let percent = scan.scanned as f64 * 100.0 / scan.total.max(1) as f64;
            let left = left
                .map_or_else(|| "no estimated time".to_owned(), |left| format!("{} to go", duration(left)));
            let limit = match scan.limit {
                0 => String::new(),
                limit => format!(", at most {}/s under other load", nice_bytes(limit)),
            };
            let (scanned, total) = (nice_bytes(scan.scanned), nice_bytes(scan.total));
            vec![
                head,
                format!("{scanned} / {total} scanned at {}/s{limit}", nice_bytes(rate)),
                format!("{mended}, {:.2}% done, {left}", percent.min(100.0)),
            ]
        }
    };
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
            vec![head(format!(
                "{what} copied {moved} in {took}, completed on {}",
                date::creation(moving.ended)
            ))]
        }
        "canceled" => {
            let what = if word == "remove" { "Removal".to_owned() } else { what };
            vec![head(format!("{what} canceled on {}{lost}", date::creation(moving.ended)))]
        }
        state => {
            let Pace { rate, left } = pace(moving, now());
            let percent = (moving.scanned as f64 * 100.0 / moving.total.max(1) as f64).min(100.0);
            let left = left
                .map_or_else(|| "no estimated time".to_owned(), |left| format!("{} to go", duration(left)));
            let since = date::creation(moving.started);
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
pub(super) fn as_json(scan: &ScanReport, exact: bool, as_number: bool) -> Value {
    let Pace { rate, left } = pace(scan, now());
    let number = |value| json::number(value, as_number);
    let bytes = |value| if as_number || exact { number(value) } else { json!(nice_bytes(value)) };
    json!({
        "function": scan.function.to_uppercase(),
        "state": scan.state.to_uppercase(),
        "start_time": number(scan.started),
        "end_time": number(scan.ended),
        "to_examine": bytes(scan.total),
        "examined": bytes(scan.scanned),
        "processed": bytes(scan.repaired + scan.resilvered),
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
pub(super) fn move_as_json(moving: &ScanReport, exact: bool, as_number: bool) -> (&'static str, Value) {
    let Pace { rate, left } = pace(moving, now());
    let number = |value| json::number(value, as_number);
    let bytes = |value| if as_number || exact { number(value) } else { json!(nice_bytes(value)) };
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
        "start_time": number(moving.started),
        "end_time": number(moving.ended),
        to_copy: bytes(moving.total),
        copied: bytes(moving.resilvered),
        "examined": bytes(moving.scanned),
        "lost": bytes(moving.lost),
        "bytes_per_second": bytes(rate),
        "seconds_left": left.map_or(Value::Null, number),
    });
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

    #[test]
    fn moves_have_the_names_of_openzfs() {
        let mut moving = ScanReport {
            function: "remove".into(),
            state: "active".into(),
            started: 1000,
            ended: 0,
            total: 8 << 20,
            scanned: 4 << 20,
            repaired: 0,
            resilvered: 3 << 20,
            lost: 0,
            missing: 0,
            what: "mirror-0".into(),
            limit: 0,
            left_out: Vec::new(),
        };
        let (name, told) = move_as_json(&moving, false, true);
        assert_eq!(
            (name, &told["name"], &told["state"]),
            ("removal_stats", &json!("mirror-0"), &json!("SCANNING"))
        );
        assert_eq!((&told["to_copy"], &told["copied"]), (&json!(8 << 20), &json!(3 << 20)));
        assert_eq!((&told["mapping_memory"], &told["end_time"]), (&json!(0), &json!(0)));
        let (_, told) = move_as_json(&moving, false, false);
        assert_eq!((&told["to_copy"], &told["start_time"]), (&json!("8M"), &json!("1000")));
        (moving.function, moving.state, moving.ended) = ("expand".into(), "finished".into(), 1010);
        let (name, told) = move_as_json(&moving, true, false);
        assert_eq!((name, &told["state"]), ("raidz_expand_stats", &json!("FINISHED")));
        assert_eq!((&told["to_reflow"], &told["reflowed"]), (&json!("8388608"), &json!("3145728")));
        assert_eq!((&told["name"], &told["to_copy"]), (&Value::Null, &Value::Null));
        (moving.function, moving.state) = ("rebalance".into(), "paused".into());
        let (name, told) = move_as_json(&moving, true, true);
        assert_eq!((name, &told["state"]), ("rebalance_stats", &json!("PAUSED")));
        assert_eq!((&told["copied"], &told["name"]), (&json!(3 << 20), &Value::Null));
    }

    #[test]
    fn rate_and_time_left_follow_from_what_was_read() {
        let mut scan = ScanReport {
            function: "scrub".into(),
            state: "active".into(),
            started: 1000,
            ended: 0,
            total: 4000,
            scanned: 1000,
            repaired: 8,
            resilvered: 0,
            lost: 0,
            missing: 0,
            what: String::new(),
            limit: 0,
            left_out: Vec::new(),
        };
        let Pace { rate, left } = pace(&scan, 1010);
        assert_eq!((rate, left), (100, Some(30)));
        assert_eq!(pace(&ScanReport { scanned: 0, ..scan.clone() }, 1010).left, None);
        (scan.state, scan.ended, scan.scanned) = ("finished".into(), 1020, 4000);
        assert_eq!((pace(&scan, 9999).rate, pace(&scan, 9999).left), (200, Some(0)));
        let told = as_json(&scan, true, true);
        assert_eq!((&told["function"], &told["state"]), (&json!("SCRUB"), &json!("FINISHED")));
        assert_eq!((&told["examined"], &told["seconds_left"]), (&json!(4000), &json!(0)));
    }
}
