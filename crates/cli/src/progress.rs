//! A bar on a terminal for what takes time: the share that is done, bytes left, time left.

use crate::session::Session;
use std::time::Duration;
use steadfast_property::nice_bytes;

/// Cells of the bar.
const CELLS: u64 = 24;
/// An estimate made earlier than this misleads.
const ESTIMATE_AFTER: Duration = Duration::from_secs(2);

/// The bar of one pool.
pub(crate) struct Bar {
    pool: String,
    /// The activity that is drawn, and the most that was ever left of it: its beginning.
    drawn: Option<(String, u64)>,
}

impl Bar {
    /// A bar, if somebody sees it: a pipe or a log gets none.
    pub fn on_terminal(session: &Session<'_, '_>, pool: &str) -> Option<Bar> {
        let is_seen = session.world.out_is_terminal && session.world.explains;
        is_seen.then(|| Bar { pool: pool.to_owned(), drawn: None })
    }

    /// Draws the bar of an activity over itself.
    pub fn draw(&mut self, session: &mut Session<'_, '_>, activity: &str, left: u64, elapsed: Duration) {
        let total = match self.drawn.take() {
            Some((former, total)) if former == activity => total.max(left),
            _ => left,
        };
        let what = format!("{activity} {}", self.pool);
        let text = format!("\r{}\x1b[K", line(&what, total, left, elapsed));
        session.tell(&text);
        self.drawn = Some((activity.to_owned(), total));
    }

    /// Removes it from the terminal.
    pub fn end(self, session: &mut Session<'_, '_>) {
        if self.drawn.is_some() {
            session.tell("\r\x1b[K");
        }
    }
}

fn line(what: &str, total: u64, left: u64, elapsed: Duration) -> String {
    let done = total.saturating_sub(left);
    let share =
        |of: u64| u64::try_from(u128::from(done) * u128::from(of) / u128::from(total.max(1))).unwrap_or(of);
    let full = usize::try_from(share(CELLS)).unwrap_or(0);
    let bar = "#".repeat(full) + &"-".repeat(CELLS as usize - full);
    let mut text = format!("{what} [{bar}] {:>3} %, {} left", share(100), nice_bytes(left));
    if elapsed >= ESTIMATE_AFTER && done > 0 {
        let seconds = elapsed.as_millis() * u128::from(left) / u128::from(done) / 1000;
        text.push_str(&match seconds {
            0..100 => format!(", {seconds} s"),
            100..6000 => format!(", {} min", seconds.div_ceil(60)),
            _ => format!(", {} h", seconds.div_ceil(3600)),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_tells_share_bytes_and_time_left() {
        let at = |left: u64, seconds| line("scrub tank", 1 << 30, left << 20, Duration::from_secs(seconds));
        assert_eq!(at(1024, 0), "scrub tank [------------------------]   0 %, 1G left");
        assert_eq!(at(512, 1), "scrub tank [############------------]  50 %, 512M left", "too early to tell");
        assert_eq!(at(256, 30), "scrub tank [##################------]  75 %, 256M left, 10 s");
        assert_eq!(at(768, 100), "scrub tank [######------------------]  25 %, 768M left, 5 min");
        assert_eq!(at(1023, 100), "scrub tank [------------------------]   0 %, 1023M left, 29 h");
        // More is left than before: data was added meanwhile.
        assert!(line("x", 10, 20, Duration::ZERO).contains("  0 %"));
        assert!(line("x", u64::MAX, 1, Duration::from_secs(9)).contains("99 %"));
    }
}
