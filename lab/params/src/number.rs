//! Numbers with units, ranges of numbers, ranges of names.

use crate::error::{Error, ErrorKind};
use crate::lexer::Item;

/// No list of the language is useful beyond this.
const LIST_MAX: usize = 4_096;

/// A number as written: `4k`, `-50`, `50%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// In bytes, seconds or a count.
    Plain(f64),
    /// Of something the keyword says.
    Percent(f64),
}

/// Which letters follow a number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// k m g t: powers of 1024, with or without a trailing b.
    Size,
    /// m: 60, h: 3600, and s, which vdbench does not know.
    Time,
}

/// Reads a number; `None` if it is none.
pub fn number(text: &str, unit: Unit) -> Option<Number> {
    let lower = text.to_ascii_lowercase();
    let (body, percent) = match lower.strip_suffix('%') {
        Some(body) => (body, true),
        None => (lower.as_str(), false),
    };
    let (body, factor) = split_unit(body, unit);
    if !body.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
        || body.contains(['_', 'n', 'i'])
    {
        return None;
    }
    let value = body.parse::<f64>().ok().filter(|v| v.is_finite())? * factor;
    if !value.is_finite() {
        return None;
    }
    // vdbench keeps a percentage as the negative number, so people write it like that too.
    if percent || value < 0.0 { Some(Number::Percent(value.abs())) } else { Some(Number::Plain(value)) }
}

fn split_unit(body: &str, unit: Unit) -> (&str, f64) {
    const K: f64 = 1024.0;
    let table: &[(&str, f64)] = match unit {
        Unit::Size => &[
            ("kb", K),
            ("mb", K * K),
            ("gb", K * K * K),
            ("tb", K * K * K * K),
            ("k", K),
            ("m", K * K),
            ("g", K * K * K),
            ("t", K * K * K * K),
            ("h", 3600.0),
        ],
        Unit::Time => &[("s", 1.0), ("m", 60.0), ("h", 3600.0)],
    };
    for (suffix, factor) in table {
        if let Some(body) = body.strip_suffix(suffix) {
            return (body, *factor);
        }
    }
    (body, 1.0)
}

/// How a list's number is shown again in "For loops: xfersize=64k".
pub fn show_size(value: f64) -> String {
    for (letter, factor) in [("g", 1u64 << 30), ("m", 1 << 20), ("k", 1 << 10)] {
        let factor = factor as f64;
        if value >= factor && value % factor == 0.0 {
            return format!("{}{letter}", value / factor);
        }
    }
    format!("{value}")
}

/// All numbers of an item, ranges expanded: `(1-8,d)`, `(64k-1k,d)`, `(2-6,2)`,
/// `(100-300,100,1000)`.
pub fn numbers(item: &Item, unit: Unit) -> Result<Vec<Number>, Error> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < item.values.len() {
        let value = &item.values[at];
        let bounds = value
            .text
            .split_once('-')
            .filter(|(a, b)| item.listed && !value.quoted && !a.is_empty() && !b.is_empty());
        let Some((low, high)) = bounds else {
            out.push(number(&value.text, unit).ok_or_else(|| not_a_number(item, &value.text))?);
            at += 1;
            continue;
        };
        let bound = |text: &str| match number(text, unit) {
            Some(Number::Plain(v)) => Ok(v),
            _ => Err(not_a_number(item, text)),
        };
        let (low, high) = (bound(low)?, bound(high)?);
        let step = item.values.get(at + 1).ok_or_else(|| {
            let text = format!("the range {} has no step", value.text);
            Error::new(ErrorKind::BadValue, &item.place, &item.keyword, text)
                .hint("write (low-high,step) or (low-high,d)")
        })?;
        expand(item, low, high, &step.text, unit, &mut out)?;
        at += 2;
    }
    if out.len() > LIST_MAX {
        return Err(too_many(item));
    }
    Ok(out)
}

fn expand(
    item: &Item,
    low: f64,
    high: f64,
    step: &str,
    unit: Unit,
    out: &mut Vec<Number>,
) -> Result<(), Error> {
    let bad = |text: String| Error::new(ErrorKind::BadValue, &item.place, &item.keyword, text);
    let mut at = low;
    if step.eq_ignore_ascii_case("d") {
        if low <= 0.0 || high <= 0.0 {
            return Err(bad("a doubling range must not touch zero".into()));
        }
        let up = high >= low;
        while (up && at <= high) || (!up && at >= high) {
            out.push(Number::Plain(at));
            at = if up { at * 2.0 } else { at / 2.0 };
            if out.len() > LIST_MAX {
                return Err(too_many(item));
            }
        }
        return Ok(());
    }
    let Some(Number::Plain(step)) = number(step, unit).filter(|n| matches!(n, Number::Plain(v) if *v > 0.0))
    else {
        return Err(bad(format!("'{step}' is not a step of a range")));
    };
    let up = high >= low;
    while (up && at <= high) || (!up && at >= high) {
        out.push(Number::Plain(at));
        at = if up { at + step } else { at - step };
        if out.len() > LIST_MAX {
            return Err(too_many(item));
        }
    }
    Ok(())
}

/// All names of an item, ranges such as `(sd1-sd9)` expanded. A trailing `*` stays: only the caller
/// knows the names.
pub fn names(item: &Item) -> Result<Vec<String>, Error> {
    let mut out = Vec::new();
    for value in &item.values {
        let range = value.text.split_once('-').filter(|_| item.listed && !value.quoted);
        let Some((low, high)) = range.and_then(|(a, b)| Some((split_name(a)?, split_name(b)?))) else {
            out.push(value.text.clone());
            continue;
        };
        if low.0 != high.0 || high.1 < low.1 {
            let text = format!("{} is not a range of names", value.text);
            return Err(Error::new(ErrorKind::BadValue, &item.place, &item.keyword, text)
                .hint("both ends need the same letters before their numbers"));
        }
        if high.1 - low.1 > LIST_MAX as u64 {
            return Err(too_many(item));
        }
        out.extend((low.1..=high.1).map(|n| format!("{}{n}", low.0)));
    }
    if out.len() > LIST_MAX {
        return Err(too_many(item));
    }
    Ok(out)
}

fn split_name(text: &str) -> Option<(&str, u64)> {
    let digits = text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (prefix, number) = text.split_at(text.len() - digits);
    if prefix.is_empty() || (number.len() > 1 && number.starts_with('0')) {
        return None;
    }
    Some((prefix, number.parse().ok()?))
}

fn not_a_number(item: &Item, text: &str) -> Error {
    let hint = "write a number, with k, m, g or t for powers of 1024";
    Error::new(ErrorKind::BadValue, &item.place, text, format!("{}=: '{text}' is not a number", item.keyword))
        .hint(hint)
}

fn too_many(item: &Item) -> Error {
    let text = format!("the list of {}= has more than {LIST_MAX} values", item.keyword);
    Error::new(ErrorKind::TooLarge, &item.place, &item.keyword, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Place;
    use crate::lexer::Value;

    fn item(values: &[&str]) -> Item {
        let values = values.iter().map(|v| Value { text: v.to_string(), quoted: false }).collect();
        Item { keyword: "k".into(), values, listed: true, place: Place { file: "t".into(), line: 1 } }
    }

    fn plain(values: &[&str]) -> Vec<f64> {
        let out = numbers(&item(values), Unit::Size).unwrap();
        out.into_iter().map(|n| if let Number::Plain(v) = n { v } else { panic!("percent") }).collect()
    }

    #[test]
    fn ranges_double_halve_step_and_mix() {
        assert_eq!(plain(&["1-8", "d"]), [1.0, 2.0, 4.0, 8.0]);
        assert_eq!(plain(&["64k-16k", "d"]), [65536.0, 32768.0, 16384.0]);
        assert_eq!(plain(&["2-6", "2"]), [2.0, 4.0, 6.0]);
        assert_eq!(plain(&["100-300", "100", "1000"]), [100.0, 200.0, 300.0, 1000.0]);
    }

    #[test]
    fn units_are_powers_of_1024_and_m_is_a_minute_where_time_is_meant() {
        assert_eq!(number("8M", Unit::Size), Some(Number::Plain(8388608.0)));
        assert_eq!(number("1gb", Unit::Size), Some(Number::Plain(1073741824.0)));
        assert_eq!(number("1m", Unit::Time), Some(Number::Plain(60.0)));
        assert_eq!(number("5s", Unit::Time), Some(Number::Plain(5.0)));
        assert_eq!(number("5s", Unit::Size), None);
        assert_eq!(number("-50", Unit::Size), Some(Number::Percent(50.0)));
        assert_eq!(number("1e3", Unit::Size), Some(Number::Plain(1000.0)));
        for bad in ["8M#", "nan", "inf", "", "k", "1_0", "0x10", "1e999"] {
            assert_eq!(number(bad, Unit::Size), None, "{bad}");
        }
    }

    #[test]
    fn an_endless_range_is_refused_and_not_expanded() {
        let error = numbers(&item(&["1-1000000000", "1"]), Unit::Size).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge);
        assert_eq!(numbers(&item(&["0-8", "d"]), Unit::Size).unwrap_err().kind, ErrorKind::BadValue);
    }
}
