//! Options of `steadfast lab run dedup`, and how large everything is.

use crate::options::{Document, Form, ImageLoad, Places, RepeatLine};

/// Options of `run dedup`.
#[derive(clap::Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct DedupRequest {
    /// Rounds; the median is reported [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(flatten)]
    pub(crate) document: Document,
}

impl DedupRequest {
    /// Rounds.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.form.quick { 1 } else { 3 })
    }

    /// Sizes of the load.
    pub(super) fn load(&self) -> ImageLoad {
        self.form.sized(
            ImageLoad { image: 320 << 20, file: 8 << 20, writes: 128, steps: 2 },
            ImageLoad { image: 2 << 30, file: 128 << 20, writes: 4_096, steps: 4 },
            ImageLoad { image: 6 << 30, file: 512 << 20, writes: 16_384, steps: 8 },
        )
    }

    /// Bytes of each of the copies that are updated alike.
    pub(super) fn guest(&self) -> u64 {
        self.form.sized(4 << 20, 32 << 20, 128 << 20)
    }

    /// Ratios at which the room is measured.
    pub(super) fn ratios(&self) -> &'static [f64] {
        let whole: &[f64] = &[1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0];
        self.form.sized(&[1.0, 2.0], &[1.0, 2.0, 4.0], whole)
    }

    /// The command that repeats a run.
    pub(super) fn repeat(&self) -> String {
        RepeatLine::new("dedup").form(self.form).value("--rounds", self.rounds).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::{refused, repeats};

    #[test]
    fn options_are_read_and_repeated() {
        let lines = ["", "--quick", "--quick --rounds 3", "--tiny --rounds 1"];
        repeats("dedup", &lines, DedupRequest::repeat);
        for (line, word) in [("--fast", "--fast"), ("--out", "value is required")] {
            refused::<DedupRequest>(line, word);
        }
    }
}
