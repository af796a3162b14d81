//! Policy of automatic snapshots: `steadfast:auto-snapshot=hourly=24,daily=7,weekly=4`.
//!
//! A user property, so that it is inherited, sent and received like others. Its name is reserved,
//! so that the value is checked when it is set. The idea is that of sanoid and zfs-auto-snapshot,
//! which people install beside ZFS.

/// The property.
pub const AUTO_SNAPSHOT: &str = "steadfast:auto-snapshot";
/// Prefix of Steadfast's own properties with a ':'.
pub const RESERVED_PREFIX: &str = "steadfast:";
/// Most snapshots of one period that can be kept.
pub const KEEP_MAX: u32 = 10_000;

/// How often a snapshot is taken.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Period {
    /// At each quarter of an hour.
    Frequent,
    /// At each full hour.
    Hourly,
    /// At midnight.
    Daily,
    /// On Mondays.
    Weekly,
    /// On the first of a month.
    Monthly,
    /// On the first of January.
    Yearly,
}

impl Period {
    /// All, the shortest first.
    pub const ALL: [Period; 6] =
        [Period::Frequent, Period::Hourly, Period::Daily, Period::Weekly, Period::Monthly, Period::Yearly];

    /// Word in the property and in names of snapshots.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Period::Frequent => "frequent",
            Period::Hourly => "hourly",
            Period::Daily => "daily",
            Period::Weekly => "weekly",
            Period::Monthly => "monthly",
            Period::Yearly => "yearly",
        }
    }
}

/// A parsed value of the property.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Policy {
    /// Number of snapshots to keep, at most once for each period. 0 takes none and removes existing
    /// ones; snapshots of periods not listed stay.
    pub keep: Vec<(Period, u32)>,
}

impl Policy {
    /// Reads a value: `off`, `none` or nothing for no snapshots, or `PERIOD=COUNT` with commas
    /// between.
    ///
    /// # Errors
    /// A sentence with the allowed form.
    pub fn parse(text: &str) -> Result<Policy, String> {
        if matches!(text, "" | "off" | "none") {
            return Ok(Policy::default());
        }
        let mut policy = Policy::default();
        for part in text.split(',') {
            let (word, count) = part.split_once('=').ok_or_else(|| {
                format!("'{part}' is not of the form PERIOD=COUNT: write for example hourly=24,daily=7,weekly=4, or off")
            })?;
            let period = Period::ALL.into_iter().find(|period| period.word() == word).ok_or_else(|| {
                let words = Period::ALL.map(Period::word).join(", ");
                format!("there is no period '{word}': must be one of {words}")
            })?;
            let count = count.parse().ok().filter(|count| *count <= KEEP_MAX).ok_or_else(|| {
                format!("'{count}' is not a number of snapshots to keep: {word} takes 0 to {KEEP_MAX}")
            })?;
            if policy.keep.iter().any(|(known, _)| *known == period) {
                return Err(format!("{word} is given twice"));
            }
            policy.keep.push((period, count));
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_names_periods_and_counts() {
        let policy = Policy::parse("hourly=24,daily=7,weekly=0").unwrap();
        assert_eq!(policy.keep, [(Period::Hourly, 24), (Period::Daily, 7), (Period::Weekly, 0)]);
        for none in ["off", "none", ""] {
            assert_eq!(Policy::parse(none).unwrap(), Policy::default());
        }
        let all = Period::ALL.map(|period| format!("{}=1", period.word())).join(",");
        assert_eq!(Policy::parse(&all).unwrap().keep.len(), 6);
    }

    #[test]
    fn what_is_no_policy_is_refused_with_what_is_allowed() {
        let why = |text: &str| Policy::parse(text).unwrap_err();
        assert!(why("on").contains("PERIOD=COUNT"), "{}", why("on"));
        assert!(why("hourly").contains("hourly=24"));
        assert!(why("minutely=3").contains("frequent, hourly, daily, weekly, monthly, yearly"));
        assert!(why("hourly=").contains("0 to 10000"));
        assert!(why("hourly=-1").contains("0 to 10000"));
        assert!(why("hourly=10001").contains("0 to 10000"));
        assert!(why("hourly=1,hourly=2").contains("twice"));
        assert!(why("hourly=1,").contains("''"));
        assert!(why(" hourly=1").contains("' hourly'"));
    }
}
