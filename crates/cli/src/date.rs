//! Calendar dates, in UTC.

/// Year, month (1-12), day, hour, minute, second, and weekday (0 = Sunday) of seconds since 1970.
fn civil(seconds: u64) -> (u64, usize, u64, u64, u64, u64, usize) {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01; 400-year eras of 146,097 days. The arithmetic is Howard Hinnant's `civil_from_days`.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest % 3_600 / 60, rest % 60);
    (year, month as usize, day, hour, minute, second, ((days + 4) % 7) as usize)
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/// As `zfs get creation` shows it: `Sat Nov 21  5:25 2026`.
#[must_use]
pub fn creation(seconds: u64) -> String {
    let (year, month, day, hour, minute, _, weekday) = civil(seconds);
    format!("{} {} {day:>2} {hour:>2}:{minute:02} {year}", WEEKDAYS[weekday], MONTHS[month - 1])
}

/// As `zpool history` shows it: `2026-11-21.05:25:07`.
#[must_use]
pub fn history(seconds: u64) -> String {
    let (year, month, day, hour, minute, second, _) = civil(seconds);
    format!("{year:04}-{month:02}-{day:02}.{hour:02}:{minute:02}:{second:02}")
}

/// As `zpool events` shows it: `Nov 21 2026 05:25:07.123456789`.
#[must_use]
pub fn event(nanos: u64) -> String {
    let (year, month, day, hour, minute, second, _) = civil(nanos / 1_000_000_000);
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
