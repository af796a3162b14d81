//! How a run goes, at the foot of a terminal: rates of the last intervals, response times as a line
//! of heat, processors.
//!
//! Three lines below the console's own, wiped before each of those and drawn again behind it. Only
//! where standard output is a terminal.

use std::io::{self, Write};
use steadfast_lab_params::Run;
use steadfast_lab_workload::Interval;

/// Rates that are remembered.
const HISTORY: usize = 120;
/// First edge of the line of heat, nanoseconds; each next is 10^(1/4) times as far.
const HEAT_FROM_NS: f64 = 1_000.0;
/// Edges of the line of heat: 1 us to 10 s, four a decade.
const HEAT_EDGES: usize = 29;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const SHADES: [char; 5] = ['·', '░', '▒', '▓', '█'];

/// The lines and what they are drawn from.
#[derive(Debug, Default)]
pub(crate) struct Live {
    rates: Vec<f64>,
    lines: Vec<String>,
    drawn: usize,
}

impl Live {
    /// Takes the lines away, so that something else can be written.
    pub(crate) fn wipe(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.drawn > 0 {
            write!(out, "\x1b[{}A\x1b[J", self.drawn)?;
            self.drawn = 0;
        }
        Ok(())
    }

    /// Puts them back.
    pub(crate) fn draw(&mut self, out: &mut dyn Write) -> io::Result<()> {
        // A terminal that does not know its width says 0.
        let columns = match rustix::termios::tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
            _ => 80,
        };
        for line in &self.lines {
            let cut: String = line.chars().take(columns.saturating_sub(1)).collect();
            writeln!(out, "{cut}")?;
        }
        self.drawn = self.lines.len();
        Ok(())
    }

    /// A run begins: nothing is known of it.
    pub(crate) fn begin(&mut self) {
        self.rates.clear();
        self.lines.clear();
    }

    /// An interval is over.
    pub(crate) fn interval(&mut self, run: &Run, interval: &Interval) {
        let line = &interval.line;
        let seconds = run.interval as f64;
        let rate = line.requested.count as f64 / seconds;
        if self.rates.len() == HISTORY {
            self.rates.remove(0);
        }
        self.rates.push(rate);
        let done = u64::from(line.number) * run.interval;
        let end =
            run.elapsed.map_or("until done".to_owned(), |elapsed| format!("of {} s", elapsed + run.warmup));
        let warmup = if interval.warmup { "  warm-up" } else { "" };
        let figures = &line.requested;
        let p99 = figures.percentiles()[2].map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3}"));
        let heat = interval.groups.requested().buckets(&heat_edges());
        self.lines = vec![
            format!(
                "{}  {done} {end}{warmup}  {rate:.0}/s  {:.1} MiB/s  p50 {:.3}  p99 {p99}  max {:.1} ms  cpu {:.0} % (system {:.0})",
                run.label,
                figures.bytes as f64 / seconds / 1_048_576.0,
                figures.p50_ms,
                figures.max_ms,
                line.cpu.used,
                line.cpu.system
            ),
            format!("rate     {}", sparks(&self.rates)),
            format!("response 1us{}10s", heat_line(&heat)),
        ];
    }
}

fn heat_edges() -> Vec<u64> {
    (0..HEAT_EDGES).map(|at| (HEAT_FROM_NS * 10f64.powf(at as f64 / 4.0)) as u64).collect()
}

/// One sign an interval, as high as its rate against the highest.
fn sparks(rates: &[f64]) -> String {
    let most = rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    rates.iter().map(|rate| BARS[((rate / most * 7.0).round() as usize).min(7)]).collect()
}

/// One sign a stretch of response time, as dark as its share; the scale is that of roots, so that
/// tails are seen.
fn heat_line(counts: &[u64]) -> String {
    let total = counts.iter().sum::<u64>().max(1) as f64;
    let shade = |count: &u64| match *count {
        0 => ' ',
        count => SHADES[((count as f64 / total).powf(0.25) * 5.0).min(4.0) as usize],
    };
    counts.iter().map(shade).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_rates_are_high_and_rare_response_times_are_seen() {
        assert_eq!(sparks(&[0.0, 50.0, 100.0]), "▁▅█");
        let line = heat_line(&[0, 1_000_000, 1, 0]);
        let signs: Vec<char> = line.chars().collect();
        assert_eq!((signs[0], signs[3]), (' ', ' '));
        assert!(signs[1] != ' ' && signs[2] != ' ' && signs[1] != signs[2], "{line}");
    }

    #[test]
    fn what_was_drawn_is_wiped() {
        let mut live = Live { lines: vec!["a".into(), "b".into()], ..Live::default() };
        let mut out = Vec::new();
        live.draw(&mut out).unwrap();
        live.wipe(&mut out).unwrap();
        live.wipe(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a\nb\n\x1b[2A\x1b[J");
    }
}
