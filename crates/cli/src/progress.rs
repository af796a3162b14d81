//! A bar on a terminal for what takes time: the share that is done, bytes left, time left.

use crate::session::Session;
use std::time::{Duration, Instant};
use steadfast_control::wire::Progress;
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

/// Steps of a request on a terminal, on standard error. A request that is done in a moment draws
/// nothing.
pub(crate) struct StepBar {
    doing: String,
    begun: Instant,
    part: String,
    /// When the part began.
    part_begun: Instant,
    drawn: bool,
}

/// Time after which a bar is worth its flicker.
const SHOWN_AFTER: Duration = Duration::from_millis(500);

impl StepBar {
    /// A bar for something that reads like "destroy tank".
    pub fn new(doing: &str) -> StepBar {
        let now = Instant::now();
        StepBar { doing: doing.to_owned(), begun: now, part: String::new(), part_begun: now, drawn: false }
    }

    /// Text that draws the bar over itself.
    pub fn draw(&mut self, step: &Progress) -> String {
        if self.part != step.what {
            step.what.clone_into(&mut self.part);
            self.part_begun = Instant::now();
        }
        if self.begun.elapsed() < SHOWN_AFTER {
            return String::new();
        }
        self.drawn = true;
        format!("\r{}\x1b[K", step_line(&self.doing, step, self.part_begun.elapsed()))
    }

    /// Text that removes it from the terminal.
    pub fn end(self) -> &'static str {
        if self.drawn { "\r\x1b[K" } else { "" }
    }
}

fn step_line(doing: &str, Progress { what, bytes: done, of, .. }: &Progress, elapsed: Duration) -> String {
    let left = of.saturating_sub(*done);
    let what = format!("{doing}: {what}");
    format!("{}, {done} of {of}{}", share(&what, *of, left), time_left(*done, left, elapsed))
}

fn line(what: &str, total: u64, left: u64, elapsed: Duration) -> String {
    let done = total.saturating_sub(left);
    format!("{}, {} left{}", share(what, total, left), nice_bytes(left), time_left(done, left, elapsed))
}

/// The bar, with the share that is done.
fn share(what: &str, total: u64, left: u64) -> String {
    let done = total.saturating_sub(left);
    let share =
        |of: u64| u64::try_from(u128::from(done) * u128::from(of) / u128::from(total.max(1))).unwrap_or(of);
    let full = usize::try_from(share(CELLS)).unwrap_or(0);
    let bar = "#".repeat(full) + &"-".repeat(CELLS as usize - full);
    format!("{what} [{bar}] {:>3} %", share(100))
}

/// The time that is left, once it can be told.
fn time_left(done: u64, left: u64, elapsed: Duration) -> String {
    let mut text = String::new();
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
    fn steps_that_take_a_moment_draw_nothing() {
        let step = |done| Progress { what: "mounting".into(), bytes: done, of: 4, ..Progress::default() };
        let mut bar = StepBar::new("import tank");
        assert_eq!(bar.draw(&step(0)), "");
        let begun = Instant::now().checked_sub(SHOWN_AFTER).expect("this machine has run for a while");
        let mut late = StepBar { begun, ..StepBar::new("import tank") };
        assert_eq!(
            (bar.end(), late.draw(&step(1)).as_str()),
            ("", "\rimport tank: mounting [######------------------]  25 %, 1 of 4\x1b[K")
        );
        assert_eq!(late.end(), "\r\x1b[K");
    }

    #[test]
    fn a_bar_tells_share_bytes_and_time_left() {
        let at = |left: u64, seconds| line("scrub tank", 1 << 30, left << 20, Duration::from_secs(seconds));
        assert_eq!(at(1024, 0), "scrub tank [------------------------]   0 %, 1G left");
        assert_eq!(at(512, 1), "scrub tank [############------------]  50 %, 512M left", "too early to tell");
        assert_eq!(at(256, 30), "scrub tank [##################------]  75 %, 256M left, 10 s");
        assert_eq!(at(768, 100), "scrub tank [######------------------]  25 %, 768M left, 5 min");
        assert_eq!(at(1023, 100), "scrub tank [------------------------]   0 %, 1023M left, 29 h");
        let at = |done, seconds| {
            let step = Progress { what: "unmounting".into(), bytes: done, of: 40, ..Progress::default() };
            step_line("destroy tank", &step, Duration::from_secs(seconds))
        };
        assert_eq!(at(10, 1), "destroy tank: unmounting [######------------------]  25 %, 10 of 40");
        assert_eq!(at(20, 8), "destroy tank: unmounting [############------------]  50 %, 20 of 40, 8 s");
        // More is left than before: data was added meanwhile.
        assert!(line("x", 10, 20, Duration::ZERO).contains("  0 %"));
        assert!(line("x", u64::MAX, 1, Duration::from_secs(9)).contains("99 %"));
    }
}
