//! Repeated reports: `[interval [count]]` behind the names, and `-T` for the time before each
//! report.

use crate::date::{self, now};
use crate::options::{Flag, Parsed, valued};
use crate::session::{Failure, Session};
use std::time::Duration;

/// `-T`, for commands that repeat.
pub(crate) const TIME: Flag =
    valued('T', "d|u", "print the time before each report: d as a date, u in seconds since 1970");

/// Names, interval and count of a repeated report.
pub(crate) struct Plan {
    /// Operands that are not numbers.
    pub names: Vec<String>,
    interval: Option<Duration>,
    count: Option<u64>,
    stamp: Stamp,
}

impl Plan {
    /// Reads operands and `-T`. No pool name begins with a digit: numbers at the end are interval
    /// and count.
    ///
    /// # Errors
    /// The first operand that is wrong.
    pub fn read(parsed: &Parsed) -> Result<Plan, Failure> {
        let usage = |sentence: String| Failure::Usage(sentence);
        let stamp = Stamp::read(parsed)?;
        let is_number = |text: &String| text.parse::<f64>().is_ok();
        let first = parsed.operands.iter().position(is_number).unwrap_or(parsed.operands.len());
        let (names, numbers) = parsed.operands.split_at(first);
        let interval = numbers.first().map(|text| interval(text)).transpose()?;
        let count = match numbers.get(1).map(|text| text.parse::<u64>()) {
            None => None,
            Some(Ok(count)) if count > 0 => Some(count),
            Some(_) => {
                return Err(usage(format!("invalid count '{}': must be a whole number from 1", numbers[1])));
            }
        };
        if let Some(extra) = numbers.get(2) {
            return Err(usage(format!("too many arguments: unexpected '{extra}'")));
        }
        Ok(Plan { names: names.to_vec(), interval, count, stamp })
    }

    /// True if there are several reports.
    pub fn repeats(&self) -> bool {
        self.interval.is_some() && self.count != Some(1)
    }

    /// Makes a report after each interval, until the count is reached or the reader is gone. A
    /// report returns whether it counts.
    ///
    /// # Errors
    /// The error of the first report that fails.
    pub fn run(
        &self,
        session: &mut Session<'_, '_>,
        mut report: impl FnMut(&mut Session<'_, '_>) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut made = 0;
        loop {
            self.stamp.print(session);
            made += u64::from(report(session)?);
            let Some(interval) = self.interval else { return Ok(()) };
            if self.count.is_some_and(|count| made >= count) || !session.flush() {
                return Ok(());
            }
            // The daemon closes connections that are silent for long.
            session.disconnect();
            (session.world.sleep)(interval);
        }
    }
}

/// The time that `-T` prints before each report.
#[derive(Clone, Copy)]
pub(crate) enum Stamp {
    /// No time.
    None,
    /// As a date.
    Date,
    /// In seconds since 1970.
    Seconds,
}

impl Stamp {
    /// Reads `-T`.
    ///
    /// # Errors
    /// Another value than `d` and `u`.
    pub fn read(parsed: &Parsed) -> Result<Stamp, Failure> {
        match parsed.value('T') {
            None => Ok(Stamp::None),
            Some("d") => Ok(Stamp::Date),
            Some("u") => Ok(Stamp::Seconds),
            Some(other) => Err(Failure::Usage(format!("invalid time format '{other}': must be d or u"))),
        }
    }

    /// Prints the present time.
    pub fn print(self, session: &mut Session<'_, '_>) {
        match self {
            Stamp::None => {}
            Stamp::Date => session.line(date::stamp(now())),
            Stamp::Seconds => session.line(now().to_string()),
        }
    }
}

/// Reads an interval in seconds.
///
/// # Errors
/// A text that is not a positive number.
pub(crate) fn interval(text: &str) -> Result<Duration, Failure> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds < 1e9 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(Failure::Usage(format!("invalid interval '{text}': must be a positive number of seconds"))),
    }
}
