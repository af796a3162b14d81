//! Times as reports show them. All are UTC, so that figures of two machines can be laid side by
//! side.

use std::time::SystemTime;

use jiff::Timestamp;

/// A moment, in the forms that reports show.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Moment(Timestamp);

impl Moment {
    /// A time of the wall clock; one that no calendar holds is the beginning of 1970.
    pub fn of(time: SystemTime) -> Moment {
        Moment(Timestamp::try_from(time).unwrap_or_default())
    }

    /// Now.
    pub fn now() -> Moment {
        Moment::of(SystemTime::now())
    }

    fn shown(self, form: &str) -> String {
        self.0.strftime(form).to_string()
    }

    /// `03:02:14.023`
    pub fn time(&self) -> String {
        self.shown("%H:%M:%S%.3f")
    }

    /// `03:02:14`
    pub fn clock(&self) -> String {
        self.shown("%H:%M:%S")
    }

    /// `Nov 21, 2026`
    pub fn date(&self) -> String {
        self.shown("%b %d, %Y")
    }

    /// `11/21/2026-03:02:14-UTC`
    pub fn stamp(&self) -> String {
        self.shown("%m/%d/%Y-%H:%M:%S-UTC")
    }

    /// `03:02:09 Nov 21 2026 UTC`
    pub fn long(&self) -> String {
        self.shown("%H:%M:%S %b %d %Y UTC")
    }

    /// `2026-11-21T03:02:09.123Z`
    pub fn iso(&self) -> String {
        self.shown("%Y-%m-%dT%H:%M:%S%.3fZ")
    }

    /// `2026-11-21 05:20:11 UTC`
    pub fn seconds(&self) -> String {
        self.shown("%Y-%m-%d %H:%M:%S UTC")
    }

    /// `yymmdd.HHMMSS`, for names of directories.
    pub fn compact(&self) -> String {
        self.shown("%y%m%d.%H%M%S")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn known_days_have_their_dates() {
        let at = |seconds: u64| Moment::of(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 23));
        assert_eq!(at(0).iso(), "1970-01-01T00:00:00.023Z");
        assert_eq!(at(951_782_400).date(), "Feb 29, 2000");
        assert_eq!(at(951_782_400).long(), "00:00:00 Feb 29 2000 UTC");
        assert_eq!(at(951_782_400).compact(), "000229.000000");
        assert_eq!(at(1_795_230_134).stamp(), "11/21/2026-03:02:14-UTC");
        assert_eq!(at(1_795_230_134).time(), "03:02:14.023");
        assert_eq!(at(4_107_542_399).iso(), "2100-02-28T23:59:59.023Z");
    }
}
