//! Sizes as people write and read them: powers of 1,024, at most five characters when shown.

const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

/// A size in bytes for people: `0B`, `512B`, `1K`, `25.9M`, `1.50G`.
#[must_use]
pub fn nice_bytes(bytes: u64) -> String {
    if bytes < 1024 { format!("{bytes}B") } else { nice_number(bytes) }
}

/// A number in powers of 1,024 for people: `0`, `999`, `1K`, `25.9M`.
///
/// A whole multiple of its unit has no decimals; anything else has as many (at most two) as fit
/// into five characters.
#[must_use]
pub fn nice_number(number: u64) -> String {
    let mut unit = 0;
    let mut whole = number;
    while whole >= 1024 && unit + 1 < UNITS.len() {
        whole /= 1024;
        unit += 1;
    }
    let divisor = 1_u64 << (10 * unit);
    if number.is_multiple_of(divisor) {
        return format!("{whole}{}", UNITS[unit]);
    }
    let value = number as f64 / divisor as f64;
    let mut text = String::new();
    for decimals in (0..=2).rev() {
        text = format!("{value:.decimals$}{}", UNITS[unit]);
        if text.len() <= 5 {
            break;
        }
    }
    text
}

/// A time for people, as latencies are shown: `812ns`, `17us`, `3ms`, `12s`; `-` for none.
#[must_use]
pub fn nice_nanos(nanos: u64) -> String {
    match nanos {
        0 => "-".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}us", nanos / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", nanos / 1_000_000),
        _ => format!("{}s", nanos / 1_000_000_000),
    }
}

/// Reads a size: digits, optionally a fraction, optionally a unit (`K`, `KB`, `KiB` up to `E`,
/// either case; `B`). A fraction needs a unit. `None` for anything else and for more than 2^64 − 1
/// bytes.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    parse_wide(text)?.try_into().ok()
}

/// True for a size that [`parse_size`] would read if it had not more than 2^64 − 1 bytes, such as
/// `1Z`.
#[must_use]
pub fn is_too_large(text: &str) -> bool {
    parse_wide(text).is_some_and(|bytes| u64::try_from(bytes).is_err())
}

fn parse_wide(text: &str) -> Option<u128> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        "P" | "PB" | "PIB" => 50,
        "E" | "EB" | "EIB" => 60,
        "Z" | "ZB" | "ZIB" => 70,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(w, f)| (w, Some(f)));
    if whole.is_empty() || !whole.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // More digits than 2^128 has are no number that somebody means.
    let whole: u128 = whole.parse().ok()?;
    let bytes = whole.checked_mul(1 << shift)?;
    let Some(fraction) = fraction else { return Some(bytes) };
    // Eighteen digits are finer than a byte of an exbibyte; more would only overflow.
    if shift == 0
        || fraction.is_empty()
        || fraction.len() > 18
        || !fraction.bytes().all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let numerator = u128::from(fraction.parse::<u64>().ok()?).checked_mul(1 << shift)?;
    let part = numerator / 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    bytes.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_at_most_five_characters() {
        let cases = [
            (0, "0B"),
            (1, "1B"),
            (1023, "1023B"),
            (1024, "1K"),
            (1536, "1.50K"),
            (10_239, "10.0K"),
            (27_158_118, "25.9M"),
            (1_610_612_736, "1.50G"),
            (256 << 20, "256M"),
            (1_048_575, "1024K"),
            (u64::MAX, "16.0E"),
        ];
        for (bytes, text) in cases {
            assert_eq!(nice_bytes(bytes), text, "{bytes}");
            assert!(text.len() <= 5);
        }
        assert_eq!(nice_number(7), "7");
    }

    #[test]
    fn a_size_beyond_64_bits_is_told_from_no_size() {
        for text in ["1Z", "1zb", "16E", "18446744073709551616", "99999999999999999999999P"] {
            assert!(is_too_large(text) && parse_size(text).is_none(), "{text}");
        }
        assert!(!is_too_large("15.9E") && !is_too_large("1Y") && !is_too_large("Z"));
    }

    #[test]
    fn times_carry_their_unit() {
        let shown = [0, 999, 1_000, 17_900, 999_999, 3_000_000, 12_000_000_000].map(nice_nanos);
        assert_eq!(shown, ["-", "999ns", "1us", "17us", "999us", "3ms", "12s"]);
    }

    #[test]
    fn sizes_people_write_are_read() {
        let cases = [
            ("0", 0),
            ("512", 512),
            ("128K", 131_072),
            ("128k", 131_072),
            ("128KB", 131_072),
            ("1MiB", 1 << 20),
            ("1.5G", 1_610_612_736),
            ("7B", 7),
            ("16E", 0),
        ];
        for (text, bytes) in cases {
            let expected = if text == "16E" { None } else { Some(bytes) };
            assert_eq!(parse_size(text), expected, "{text}");
        }
        for text in
            ["", "K", "-1", "1.5", "1.5.5K", "1X", "1 K", ".5K", "1.K", "99999999999999999999", "1e3", "é"]
        {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }
}
