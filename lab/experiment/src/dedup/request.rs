//! Options of `steadfast lab run dedup`, and how large everything is.

use crate::options::{Document, Form, Places, RepeatLine};

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

    /// Bytes of a file.
    pub(super) fn file(&self) -> u64 {
        self.form.sized(8 << 20, 128 << 20, 512 << 20)
    }

    /// Bytes of each image.
    pub(super) fn image(&self) -> u64 {
        self.form.sized(320 << 20, 2 << 30, 6 << 30)
    }

    /// Writes of 4 KiB that are timed.
    pub(super) fn writes(&self) -> u64 {
        self.form.sized(128, 4_096, 16_384)
    }

    /// Bytes of each of the copies that are updated alike.
    pub(super) fn guest(&self) -> u64 {
        self.form.sized(4 << 20, 32 << 20, 128 << 20)
    }

    /// Updates of each copy.
    pub(super) fn steps(&self) -> u64 {
        self.form.sized(2, 4, 8)
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
    use crate::options::tests::{read, refused};

    #[test]
    fn options_are_read_and_repeated() {
        for line in ["", "--quick", "--quick --rounds 3", "--tiny --rounds 1"] {
            let request: DedupRequest = read(line);
            assert_eq!(request.repeat(), format!("steadfast lab run dedup {line}").trim_end());
        }
        for (line, word) in [("--fast", "--fast"), ("--out", "value is required")] {
            refused::<DedupRequest>(line, word);
        }
    }
}
