//! Options of `steadfast lab run bench`.

use crate::options::{Document, Places, RepeatLine};

/// Options of `run bench`.
#[derive(clap::Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct BenchRequest {
    /// Interleaved rounds; the median is reported [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Seconds of each measurement [default: 4, with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=3_600))]
    seconds: Option<u64>,
    /// One round of two seconds each
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(flatten)]
    pub(crate) document: Document,
}

impl BenchRequest {
    /// Interleaved rounds.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 })
    }

    /// Seconds of each measurement.
    pub(super) fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(if self.quick { 2 } else { 4 })
    }

    /// The command that repeats a run.
    pub(crate) fn repeat(&self) -> String {
        RepeatLine::new("bench")
            .flag("--quick", self.quick)
            .value("--rounds", self.rounds)
            .value("--seconds", self.seconds)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::{read, refused, repeats};

    #[test]
    fn options_are_read_and_repeated() {
        repeats("bench", &["", "--rounds 5 --seconds 2", "--quick"], BenchRequest::repeat);
        let quick: BenchRequest = read("--quick");
        assert_eq!((quick.rounds(), quick.seconds()), (1, 2));
        for (line, word) in
            [("--fast", "--fast"), ("--rounds 0", "'0' for '--rounds"), ("--out", "value is required")]
        {
            refused::<BenchRequest>(line, word);
        }
    }
}
