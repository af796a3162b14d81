//! The lines that vdbench prints of a plan before it is carried out.

use crate::model::{Fsd, Plan, Rate, Run, Wd, Work};
use crate::number::show_size;
use crate::plan::curve_rate;

impl Run {
    /// `Starting RD=rd1; I/O rate: Uncontrolled MAX; elapsed=4; For loops: None`, without the first
    /// word.
    pub fn banner(&self) -> String {
        let warmup = if self.warmup > 0 { format!(" warmup={}", self.warmup) } else { String::new() };
        let elapsed = self.elapsed.map_or("(none)".to_string(), |seconds| seconds.to_string());
        match &self.work {
            Work::Files(work) if work.format.is_some() => format!("RD={}", self.label),
            Work::Files(_) => {
                let rate = match &self.rate {
                    Rate::Max => "fwdrate=max.".to_string(),
                    Rate::Fixed(rate) => format!("fwdrate={rate};"),
                    Rate::Variable(_) => "fwdrate=variable;".to_string(),
                    Rate::Curve(_) => "fwdrate=curve;".to_string(),
                    Rate::AsTraced => "fwdrate=traced;".to_string(),
                };
                format!("RD={}; elapsed={elapsed}{warmup}; {rate} For loops: {}", self.label, self.loops)
            }
            Work::Raw(work) => {
                let controlled = |wd: &Wd| wd.skew.is_some() || wd.priority.is_some() || wd.iorate.is_some();
                let controlled = work.wds.iter().any(|(wd, _)| controlled(wd));
                let rate = match &self.rate {
                    Rate::Max if controlled => "Controlled MAX".to_string(),
                    Rate::Max => "Uncontrolled MAX".to_string(),
                    Rate::Fixed(rate) => format!("{rate}"),
                    Rate::Variable(_) => "Variable".to_string(),
                    Rate::Curve(_) => "Uncontrolled curve".to_string(),
                    Rate::AsTraced => "as traced".to_string(),
                };
                let rate = match &self.replay {
                    Some(replay) => format!("{rate} (replay of {})", replay.file),
                    None => rate,
                };
                format!(
                    "RD={}; I/O rate: {rate}; elapsed={elapsed}{warmup}; For loops: {}",
                    self.label, self.loops
                )
            }
        }
    }
}

impl Plan {
    /// Lines of `-s`: each run, and the sum of their seconds.
    pub fn simulation(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let (mut seconds, mut count) = (0u64, 0usize);
        for run in &self.runs {
            lines.push(format!("Simulating {}", run.banner()));
            let points = if let Rate::Curve(points) = &run.rate { points.as_slice() } else { &[] };
            for percent in points {
                let rate = curve_rate(10_000.0, *percent);
                let at = Run {
                    label: format!("{}_({percent}%)", run.label),
                    rate: Rate::Fixed(rate),
                    ..run.clone()
                };
                lines.push(format!("Simulating {}", at.banner()));
            }
            count += 1 + points.len();
            // Without pause=, as vdbench counts.
            seconds += (run.elapsed.unwrap_or(0) + run.warmup) * (1 + points.len() as u64);
        }
        lines.push(format!(
            "Total amount of Run Definitions: {count}; total elapsed time {seconds} seconds, or {:.4} hours, plus a format if requested.",
            seconds as f64 / 3600.0
        ));
        lines
    }

    /// `Anchor size:` of each file system that is used.
    pub fn anchor_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let (mut directories, mut files, mut bytes) = (0u64, 0u64, 0u64);
        let mut seen: Vec<&str> = Vec::new();
        for run in &self.runs {
            let Work::Files(work) = &run.work else { continue };
            for fsd in work.fsds.iter() {
                if seen.contains(&fsd.anchor.as_str()) {
                    continue;
                }
                seen.push(&fsd.anchor);
                let size = fsd.total_bytes();
                lines.push(format!(
                    "Anchor size: anchor={}: dirs: {:>12}; files: {:>12}; bytes: {:>10} ({})",
                    fsd.anchor,
                    thousands(fsd.directories()),
                    thousands(fsd.file_count()),
                    short_bytes(size),
                    thousands(size)
                ));
                directories += fsd.directories();
                files = files.saturating_add(fsd.file_count());
                bytes = bytes.saturating_add(size);
            }
        }
        if lines.len() > 1 {
            lines.push(format!(
                "Estimated totals for all {} anchors: dirs: {}; files: {}; bytes: {} ",
                lines.len(),
                thousands(directories),
                thousands(files),
                short_bytes(bytes)
            ));
        }
        lines
    }
}

impl Fsd {
    /// Bytes of all files, from the mean of `sizes=`, limited by `totalsize=`.
    pub fn total_bytes(&self) -> u64 {
        let mean: f64 = match self.sizes.as_slice() {
            [(average, 0.0)] => *average as f64,
            sizes => sizes.iter().map(|(size, percent)| *size as f64 * percent / 100.0).sum(),
        };
        let bytes = (mean * self.file_count() as f64) as u64;
        self.totalsize.map_or(bytes, |limit| bytes.min(limit))
    }
}

/// `64.000m`; small sizes as they are.
pub fn short_bytes(bytes: u64) -> String {
    let value = bytes as f64;
    for (letter, factor) in [("t", 1u64 << 40), ("g", 1 << 30), ("m", 1 << 20)] {
        if bytes >= factor {
            return format!("{:.3}{letter}", value / factor as f64);
        }
    }
    if bytes >= 100 << 10 { format!("{:.3}k", value / 1024.0) } else { bytes.to_string() }
}

/// `67,108,864`.
pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// How a size is written in parameter files: `64k`.
pub fn size_text(bytes: u64) -> String {
    show_size(bytes as f64)
}
