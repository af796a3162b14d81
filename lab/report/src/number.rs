//! Numbers as people read them. One place, so that the table, the charts, the sentence and the
//! terminal agree.

use crate::report::Unit;

/// Bytes in a MiB.
pub const MIB: f64 = 1_048_576.0;

/// A value with its unit, three significant figures or so: "26.4 MiB", "0.310 ms", "12.1 %".
pub fn with_unit(value: f64, unit: Unit) -> String {
    format!("{} {}", bare(value, unit), symbol(unit))
}

/// A value without its unit.
pub fn bare(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Mebibytes => format!("{value:.1}"),
        Unit::Milliseconds => milliseconds(value),
        Unit::PercentOfMachine => format!("{value:.1}"),
        Unit::PerSecond => format!("{value:.1}"),
    }
}

/// The unit's symbol.
pub fn symbol(unit: Unit) -> &'static str {
    match unit {
        Unit::Mebibytes => "MiB",
        Unit::Milliseconds => "ms",
        Unit::PercentOfMachine => "%",
        Unit::PerSecond => "/s",
    }
}

/// Milliseconds to the microsecond, as the source reports print them.
pub fn milliseconds(value: f64) -> String {
    format!("{value:.3}")
}

/// How many times: "2.2×", "0.98×", "14×".
pub fn times(ratio: f64) -> String {
    if !ratio.is_finite() {
        "n/a".to_owned()
    } else if ratio >= 9.95 {
        format!("{ratio:.0}×")
    } else if (0.95..1.05).contains(&ratio) {
        format!("{ratio:.2}×")
    } else if ratio >= 0.95 {
        format!("{ratio:.1}×")
    } else {
        format!("{ratio:.2}×")
    }
}

/// Bytes in the largest fitting unit.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value} B") } else { format!("{scaled:.1} {}", UNITS[unit]) }
}

/// A round number not below `value`, and how many steps lead to it: the end of a chart's axis.
pub fn axis_end(value: f64) -> (f64, u32) {
    if !value.is_finite() || value <= 0.0 {
        return (1.0, 2);
    }
    let power = 10f64.powf(value.log10().floor());
    for (factor, steps) in
        [(1.0, 2), (1.5, 3), (2.0, 4), (2.5, 5), (3.0, 3), (4.0, 4), (5.0, 5), (6.0, 3), (8.0, 4)]
    {
        if factor * power >= value * 0.999_999 {
            return (factor * power, steps);
        }
    }
    (10.0 * power, 5)
}

/// A tick's label: as few decimals as tell it from its neighbours.
pub fn tick(value: f64, step: f64) -> String {
    let mut decimals = 0usize;
    let mut unit = step;
    while decimals < 6 && (unit - unit.round()).abs() > 1e-6 * unit.abs().max(1e-9) {
        unit *= 10.0;
        decimals += 1;
    }
    format!("{value:.decimals$}")
}

/// Reads a size as people type it: `256M`, `1g`, `1048576`. Powers of 1,024.
pub fn parse_size(text: &str) -> Option<u64> {
    let trimmed = text.trim().trim_end_matches(['b', 'B']).trim_end_matches(['i', 'I']);
    let (digits, shift) = match trimmed.chars().last()?.to_ascii_lowercase() {
        'k' => (&trimmed[..trimmed.len() - 1], 10),
        'm' => (&trimmed[..trimmed.len() - 1], 20),
        'g' => (&trimmed[..trimmed.len() - 1], 30),
        't' => (&trimmed[..trimmed.len() - 1], 40),
        _ => (trimmed, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_ends_at_a_round_number_not_below() {
        for value in [0.001, 0.261, 0.999, 1.0, 1.01, 9.6, 10.616, 65.0, 79.2, 4321.0] {
            let (end, steps) = axis_end(value);
            assert!(end >= value * 0.999_999 && end <= value * 2.01, "{value} -> {end}");
            assert!((2..=5).contains(&steps));
        }
        assert_eq!(axis_end(0.0), (1.0, 2));
        assert_eq!(axis_end(f64::NAN), (1.0, 2));
    }

    #[test]
    fn ticks_have_as_few_decimals_as_needed() {
        assert_eq!(tick(20.0, 10.0), "20");
        assert_eq!(tick(0.5, 0.5), "0.5");
        assert_eq!(tick(0.05, 0.05), "0.05");
    }

    #[test]
    fn sizes_are_read_with_and_without_suffix() {
        assert_eq!(parse_size("256M"), Some(256 << 20));
        assert_eq!(parse_size("1g"), Some(1 << 30));
        assert_eq!(parse_size("64MiB"), Some(64 << 20));
        assert_eq!(parse_size("512"), Some(512));
        for wrong in ["", "M", "-1M", "1.5G", "ten", "99999999999999T"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ratios_read_as_factors() {
        assert_eq!(times(2.207), "2.2×");
        assert_eq!(times(0.4), "0.40×");
        assert_eq!(times(1.004), "1.00×");
        assert_eq!(times(14.2), "14×");
        assert_eq!(times(f64::INFINITY), "n/a");
    }
}
