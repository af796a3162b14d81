//! Times as reports show them. All are UTC: figures of two machines can then be laid side by side.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A moment, cut into what is shown of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Moment {
    year: i64,
    month: u32,
    day: u32,
    second_of_day: u64,
    millis: u32,
}

impl Moment {
    /// Of a time by the wall clock.
    pub fn of(time: SystemTime) -> Moment {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (days, second_of_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
        let (year, month, day) = civil(days as i64);
        Moment { year, month, day, second_of_day, millis: since.subsec_millis() }
    }

    /// Now.
    pub fn now() -> Moment {
        Moment::of(SystemTime::now())
    }

    /// `03:02:14.023`
    pub fn time(&self) -> String {
        format!("{}.{:03}", self.clock(), self.millis)
    }

    /// `03:02:14`
    pub fn clock(&self) -> String {
        let s = self.second_of_day;
        format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
    }

    /// `Nov 21, 2026`
    pub fn date(&self) -> String {
        format!("{} {:02}, {}", MONTHS[self.month as usize - 1], self.day, self.year)
    }

    /// `11/21/2026-03:02:14-UTC`
    pub fn stamp(&self) -> String {
        format!("{:02}/{:02}/{}-{}-UTC", self.month, self.day, self.year, self.clock())
    }

    /// `03:02:09 Nov 21 2026 UTC`
    pub fn long(&self) -> String {
        format!("{} {} {:02} {} UTC", self.clock(), MONTHS[self.month as usize - 1], self.day, self.year)
    }

    /// `2026-11-21T03:02:09.123Z`
    pub fn iso(&self) -> String {
        format!("{}-{:02}-{:02}T{}Z", self.year, self.month, self.day, self.time())
    }

    /// `yymmdd.HHMMSS`, for names of directories.
    pub fn compact(&self) -> String {
        format!("{:02}{:02}{:02}.{}", self.year % 100, self.month, self.day, self.clock().replace(':', ""))
    }
}

/// Year, month, day of a day number since 1970 (proleptic Gregorian; eras of 400 years begin in March).
fn civil(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * shifted_month + 2) / 5 + 1) as u32;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 } as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn known_days_have_their_dates() {
        let at = |seconds: u64| Moment::of(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 23));
        assert_eq!(at(0).iso(), "1970-01-01T00:00:00.023Z");
        assert_eq!(at(951_782_400).date(), "Feb 29, 2000");
        assert_eq!(at(1_795_230_134).stamp(), "11/21/2026-03:02:14-UTC");
        assert_eq!(at(1_795_230_134).time(), "03:02:14.023");
        assert_eq!(at(4_107_542_399).iso(), "2100-02-28T23:59:59.023Z");
    }
}
