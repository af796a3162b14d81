//! Calendar dates, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};
use steadfast_control::date::{Civil, civil};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |after| after.as_secs())
}

/// As `zfs get creation` shows it: `Sat Nov 21  5:25 2026`.
#[must_use]
pub fn creation(seconds: u64) -> String {
    let Civil { year, month, day, hour, minute, weekday, .. } = civil(seconds);
    format!("{} {} {day:>2} {hour:>2}:{minute:02} {year}", WEEKDAYS[weekday], MONTHS[month - 1])
}

/// As `zpool history` shows it: `2026-11-21.05:25:07`.
#[must_use]
pub fn history(seconds: u64) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = civil(seconds);
    format!("{year:04}-{month:02}-{day:02}.{hour:02}:{minute:02}:{second:02}")
}

/// The time of the day: `05:25:07`.
#[must_use]
pub fn clock(seconds: u64) -> String {
    let Civil { hour, minute, second, .. } = civil(seconds);
    format!("{hour:02}:{minute:02}:{second:02}")
}

/// As `zpool events` shows it: `Nov 21 2026 05:25:07.123456789`.
#[must_use]
pub fn event(nanos: u64) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = civil(nanos / 1_000_000_000);
    let rest = nanos % 1_000_000_000;
    format!("{} {day:>2} {year} {hour:02}:{minute:02}:{second:02}.{rest:09}", MONTHS[month - 1])
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
    }
}
