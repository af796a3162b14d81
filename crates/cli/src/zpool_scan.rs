//! How far a scrub, a resilver or a move is: rate and time left, and the whole as JSON in the shape of OpenZFS's `scan_stats`,
//! `removal_stats` and `raidz_expand_stats`.

use crate::json;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};
use steadfast_control::api::ScanReport;
use steadfast_property::nice_bytes;

/// How fast a scan is.
pub(crate) struct Pace {
    /// Bytes a second since it began.
    pub rate: u64,
    /// Seconds to go at that rate; `None` while nothing was read.
    pub left: Option<u64>,
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |after| after.as_secs())
}

/// How fast a scan is as of `now`, or was until its end.
pub(crate) fn pace(scan: &ScanReport, now: u64) -> Pace {
    let until = if scan.ended > 0 { scan.ended } else { now };
    let rate = scan.scanned / until.saturating_sub(scan.started).max(1);
    let left = scan.total.saturating_sub(scan.scanned).checked_div(rate);
    Pace { rate, left: if scan.ended > 0 { Some(0) } else { left } }
}

/// The scan as JSON.
pub(crate) fn as_json(scan: &ScanReport, exact: bool, as_number: bool) -> Value {
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

/// What moves things from devices to others as JSON, and under which name it stands. Of what OpenZFS tells, places among the
/// top-level devices are missing: a group that is widened is evened out with all that have room, and a device that left has no
/// place any more. A rebalance is not in OpenZFS, and has the words of a removal.
pub(crate) fn move_as_json(moving: &ScanReport, exact: bool, as_number: bool) -> (&'static str, Value) {
    let Pace { rate, left } = pace(moving, now());
    let number = |value| json::number(value, as_number);
    let bytes = |value| if as_number || exact { number(value) } else { json!(nice_bytes(value)) };
    let (name, to_copy, copied) = match moving.function.as_str() {
        "remove" => ("removal_stats", "to_copy", "copied"),
        "expand" => ("raidz_expand_stats", "to_reflow", "reflowed"),
        _ => ("rebalance_stats", "to_copy", "copied"),
    };
    let mut told = json!({
        // The word of OpenZFS for what is under way.
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
        // Pointers name segments, and these follow what moves: nothing is looked up elsewhere afterwards.
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
