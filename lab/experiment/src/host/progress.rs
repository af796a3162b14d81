//! How far an experiment is: a bar on a terminal, a line a step elsewhere. On standard error,
//! because standard output is for results.

use std::io::{self, IsTerminal, Write};

/// How far an experiment is.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    pictures: bool,
    /// Seconds of load in all, as far as known.
    total_s: f64,
    done_s: f64,
    step: String,
    drawn: bool,
}

impl Progress {
    /// For standard error as it is. `total_s` is how long the load will take.
    pub fn new(total_s: f64) -> Self {
        let unicode = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
            .is_some_and(|value| value.to_ascii_lowercase().replace('-', "").contains("utf8"));
        Self {
            terminal: io::stderr().is_terminal(),
            pictures: unicode,
            total_s,
            done_s: 0.0,
            step: String::new(),
            drawn: false,
        }
    }

    /// Says one line that stays.
    pub fn say(&mut self, line: &str) {
        self.wipe();
        // A closed standard error must not end an experiment.
        let _ = writeln!(io::stderr(), "{line}");
        self.draw("");
    }

    /// A step begins.
    pub fn begin(&mut self, step: &str) {
        self.step = step.to_owned();
        if !self.terminal {
            let _ = writeln!(io::stderr(), "{:>3.0} %  {step}", self.percent());
        }
        self.draw("");
    }

    /// So many more seconds of load are done; `figures` tells how it goes.
    pub fn advance(&mut self, seconds: f64, figures: &str) {
        self.done_s += seconds;
        self.draw(figures);
    }

    /// Nothing more to come: takes the bar away.
    pub fn end(&mut self) {
        self.wipe();
        self.step.clear();
    }

    fn percent(&self) -> f64 {
        if self.total_s > 0.0 { (self.done_s / self.total_s * 100.0).min(100.0) } else { 0.0 }
    }

    fn draw(&mut self, figures: &str) {
        if !self.terminal || self.step.is_empty() {
            return;
        }
        // A terminal that does not know its width says 0.
        let columns = match rustix::termios::tcgetwinsize(io::stderr()) {
            Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
            _ => 80,
        };
        let line = bar_line(self.percent(), &self.step, figures, columns.saturating_sub(1), self.pictures);
        let _ = write!(io::stderr(), "\r{line}\x1b[K");
        let _ = io::stderr().flush();
        self.drawn = true;
    }

    fn wipe(&mut self) {
        if self.drawn {
            let _ = write!(io::stderr(), "\r\x1b[K");
            self.drawn = false;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// The bar, its percentage, the step and its figures, in at most `columns` characters.
fn bar_line(percent: f64, step: &str, figures: &str, columns: usize, pictures: bool) -> String {
    const WIDTH: usize = 24;
    let (full, empty) = if pictures { ('█', '░') } else { ('#', '-') };
    let filled = ((percent / 100.0) * WIDTH as f64).round() as usize;
    let bar: String = (0..WIDTH).map(|n| if n < filled { full } else { empty }).collect();
    let line = format!("{bar} {percent:>3.0} %  {step}  {figures}");
    line.trim_end().chars().take(columns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fits_any_terminal() {
        let line = bar_line(50.0, "write_compressed", "101/s 0.310 ms", 200, false);
        assert_eq!(line, "############------------  50 %  write_compressed  101/s 0.310 ms");
        for columns in [0, 5, 30, 60] {
            assert!(bar_line(99.9, "read", "1/s", columns, true).chars().count() <= columns);
        }
    }
}
