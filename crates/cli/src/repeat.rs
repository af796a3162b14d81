//! Reports that come again and again: `[interval [count]]` behind the names, and `-T` for the time before each.

use crate::date;
use crate::family::{Failure, Session};
use crate::options::{Flag, Parsed, valued};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `-T`, for commands that repeat.
pub(crate) const TIME: Flag = valued('T', "d|u", "the time before each report: as a date, or in seconds");

/// Names, and how often to tell of them.
pub(crate) struct Plan {
    /// Operands that are no numbers.
    pub names: Vec<String>,
    interval: Option<Duration>,
    count: Option<u64>,
    stamp: Option<char>,
}

impl Plan {
    /// Reads operands and `-T`. No pool's name begins with a digit, so numbers at the end are interval and count.
    ///
    /// # Errors
    /// A sentence about what is wrong.
    pub fn read(parsed: &Parsed) -> Result<Plan, Failure> {
        let usage = |sentence: String| Failure::Usage(sentence);
        let stamp = match parsed.value('T') {
            None => None,
            Some("d") => Some('d'),
            Some("u") => Some('u'),
            Some(other) => return Err(usage(format!("invalid time format '{other}': must be d or u"))),
        };
        let is_number = |text: &String| text.parse::<f64>().is_ok();
        let first = parsed.operands.iter().position(is_number).unwrap_or(parsed.operands.len());
        let (names, numbers) = parsed.operands.split_at(first);
        let interval = match numbers.first().map(|text| text.parse::<f64>().unwrap_or(0.0)) {
            None => None,
            Some(seconds) if seconds > 0.0 && seconds < 1e9 => Some(Duration::from_secs_f64(seconds)),
            Some(_) => return Err(usage(format!("invalid interval '{}'", numbers[0]))),
        };
        let count = match numbers.get(1).map(|text| text.parse::<u64>()) {
            None => None,
            Some(Ok(count)) if count > 0 => Some(count),
            Some(_) => return Err(usage(format!("invalid count '{}'", numbers[1]))),
        };
        if let Some(extra) = numbers.get(2) {
            return Err(usage(format!("too many arguments: '{extra}' is one too many")));
        }
        Ok(Plan { names: names.to_vec(), interval, count, stamp })
    }

    /// True if there is more than one report.
    pub fn repeats(&self) -> bool {
        self.interval.is_some() && self.count != Some(1)
    }

    /// Makes a report, and again after each interval, until the count is reached or nobody reads any more. What a report
    /// returns is whether it counts.
    ///
    /// # Errors
    /// Those of the first report that fails.
    pub fn run(
        &self,
        session: &mut Session<'_, '_>,
        mut report: impl FnMut(&mut Session<'_, '_>) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut made = 0;
        loop {
            match self.stamp {
                Some('u') => session.line(now().to_string()),
                Some(_) => session.line(date::creation(now())),
                None => {}
            }
            made += u64::from(report(session)?);
            let Some(interval) = self.interval else { return Ok(()) };
            if self.count.is_some_and(|count| made >= count) || !session.flush() {
                return Ok(());
            }
            // A connection that is silent for long would be closed by the daemon.
            session.disconnect();
            (session.world.sleep)(interval);
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |after| after.as_secs())
}
