//! Calendar dates, in UTC.

/// Seconds of a day.
pub const DAY: u64 = 86_400;

/// A moment of the calendar.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Civil {
    /// Year, from 1970 on.
    pub year: u64,
    /// 1 to 12.
    pub month: usize,
    /// 1 to 31.
    pub day: u64,
    /// 0 to 23.
    pub hour: u64,
    /// 0 to 59.
    pub minute: u64,
    /// 0 to 59.
    pub second: u64,
    /// 0 for Sunday.
    pub weekday: usize,
}

/// Date and time of day, in UTC, of this many seconds since 1970.
#[must_use]
pub fn civil(seconds: u64) -> Civil {
    let (days, rest) = (seconds / DAY, seconds % DAY);
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
    Civil { year, month: month as usize, day, hour, minute, second, weekday: ((days + 4) % 7) as usize }
}
