//! Calendar dates in the forms of ZFS, in the time zone of whoever runs the program.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |after| after.as_secs())
}

/// A time beyond the calendar is shown as the beginning of 1970.
fn shown(seconds: u64, form: &str) -> String {
    shown_in(TimeZone::system(), seconds, form)
}

fn shown_in(zone: TimeZone, seconds: u64, form: &str) -> String {
    let seconds = i64::try_from(seconds).unwrap_or_default();
    Timestamp::from_second(seconds).unwrap_or_default().to_zoned(zone).strftime(form).to_string()
}

const CREATION: &str = "%a %b %e %k:%M %Y";
const HISTORY: &str = "%Y-%m-%d.%H:%M:%S";
const EVENT: &str = "%b %e %Y %H:%M:%S";
const STAMP: &str = "%a %b %e %H:%M:%S %Z %Y";
const CTIME: &str = "%a %b %e %H:%M:%S %Y";

/// As ctime(3), and so `zpool status`, writes it: `Sat Nov 21 05:25:07 2026`.
#[must_use]
pub fn ctime(seconds: u64) -> String {
    shown(seconds, CTIME)
}

/// As date(1) writes it: `Sat Nov 21 05:25:07 UTC 2026`.
#[must_use]
pub fn stamp(seconds: u64) -> String {
    shown(seconds, STAMP)
}

/// As `zfs get creation` shows it: `Sat Nov 21  5:25 2026`.
#[must_use]
pub fn creation(seconds: u64) -> String {
    shown(seconds, CREATION)
}

/// As `zpool history` shows it: `2026-11-21.05:25:07`.
#[must_use]
pub fn history(seconds: u64) -> String {
    shown(seconds, HISTORY)
}

/// The time of the day: `05:25:07`.
#[must_use]
pub fn clock(seconds: u64) -> String {
    shown(seconds, "%H:%M:%S")
}

/// As `zpool events` shows it: `Nov 21 2026 05:25:07.123456789`.
#[must_use]
pub fn event(nanos: u64) -> String {
    let rest = nanos % 1_000_000_000;
    format!("{}.{rest:09}", shown(nanos / 1_000_000_000, EVENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_agree_with_the_calendar() {
        let utc = |seconds, form| shown_in(TimeZone::UTC, seconds, form);
        assert_eq!(utc(0, HISTORY), "1970-01-01.00:00:00");
        assert_eq!(utc(0, CREATION), "Thu Jan  1  0:00 1970");
        assert_eq!(utc(951_782_400, HISTORY), "2000-02-29.00:00:00");
        assert_eq!(utc(1_795_238_707, HISTORY), "2026-11-21.05:25:07");
        assert_eq!(utc(1_795_238_707, CREATION), "Sat Nov 21  5:25 2026");
        assert_eq!(utc(1_795_238_707, CTIME), "Sat Nov 21 05:25:07 2026");
        assert_eq!(utc(1_795_238_707, STAMP), "Sat Nov 21 05:25:07 UTC 2026");
        assert_eq!(utc(1_795_238_707, EVENT), "Nov 21 2026 05:25:07");
        assert_eq!(utc(4_102_444_799, HISTORY), "2099-12-31.23:59:59");
        assert_eq!(utc(1_796_112_307, CREATION), "Tue Dec  1  8:05 2026");
        assert_eq!(utc(1_796_112_307, CTIME), "Tue Dec  1 08:05:07 2026");
        assert_eq!(utc(u64::MAX, HISTORY), "1970-01-01.00:00:00");
        assert!(event(1_795_238_707_000_000_042).ends_with(":07.000000042"));
        let east = TimeZone::fixed(jiff::tz::offset(5));
        assert_eq!(shown_in(east, 1_795_238_707, CTIME), "Sat Nov 21 10:25:07 2026");
    }
}
