//! Calendar dates, in UTC, in the forms of ZFS.

use jiff::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |after| after.as_secs())
}

/// A time beyond the calendar is shown as the beginning of 1970.
fn shown(seconds: u64, form: &str) -> String {
    let seconds = i64::try_from(seconds).unwrap_or_default();
    Timestamp::from_second(seconds).unwrap_or_default().strftime(form).to_string()
}

/// As `zfs get creation` shows it: `Sat Nov 21  5:25 2026`.
#[must_use]
pub fn creation(seconds: u64) -> String {
    shown(seconds, "%a %b %e %k:%M %Y")
}

/// As `zpool history` shows it: `2026-11-21.05:25:07`.
#[must_use]
pub fn history(seconds: u64) -> String {
    shown(seconds, "%Y-%m-%d.%H:%M:%S")
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
    format!("{}.{rest:09}", shown(nanos / 1_000_000_000, "%b %e %Y %H:%M:%S"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_agree_with_the_calendar() {
        assert_eq!(history(0), "1970-01-01.00:00:00");
        assert_eq!(creation(0), "Thu Jan  1  0:00 1970");
        assert_eq!(history(951_782_400), "2000-02-29.00:00:00");
        assert_eq!(history(1_795_238_707), "2026-11-21.05:25:07");
        assert_eq!(creation(1_795_238_707), "Sat Nov 21  5:25 2026");
        assert_eq!(event(1_795_238_707_000_000_042), "Nov 21 2026 05:25:07.000000042");
        assert_eq!(history(4_102_444_799), "2099-12-31.23:59:59");
        assert_eq!(creation(1_796_112_307), "Tue Dec  1  8:05 2026");
        assert_eq!(event(1_796_112_307_000_000_000), "Dec  1 2026 08:05:07.000000000");
        assert_eq!(history(u64::MAX), "1970-01-01.00:00:00");
    }
}
