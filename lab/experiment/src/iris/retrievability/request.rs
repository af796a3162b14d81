//! Options of `iris-encode`, `iris-audit` and `iris-recover`, and how large everything is.

use std::path::PathBuf;

use crate::options::{Document, Form, Places, Rate, Rates, RepeatLine};

/// Options of `run iris-encode`.
#[derive(clap::Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct EncodeRequest {
    /// Rounds; the median is reported [default: 9, with --quick 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// The program that measures kernels [default: examples/retrievability beside this program]
    #[arg(long, value_name = "FILE")]
    pub(super) program: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(flatten)]
    pub(crate) document: Document,
}

impl EncodeRequest {
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(self.form.sized(1, 5, 9))
    }

    /// Cells in memory: more than any cache holds, but for tests.
    pub(super) fn cells(&self) -> u32 {
        self.form.sized(4 << 10, 32 << 10, 32 << 10)
    }

    pub(super) fn repeat(&self) -> String {
        RepeatLine::new("iris-encode").form(self.form).value("--rounds", self.rounds).finish()
    }
}

/// Options of `run iris-audit`.
#[derive(clap::Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct AuditRequest {
    /// Audits at each distance; the median is reported [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// The program that counts audits [default: examples/retrievability beside this program]
    #[arg(long, value_name = "FILE")]
    pub(super) program: Option<PathBuf>,
    #[command(flatten)]
    rates: Rates,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(flatten)]
    pub(crate) document: Document,
}

impl AuditRequest {
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(self.form.sized(1, 3, 5))
    }

    /// Audits of each damaged store in memory.
    pub(super) fn audits(&self) -> u32 {
        self.form.sized(100, 2_000, 10_000)
    }

    /// Bytes of the file in the pool.
    pub(super) fn file(&self) -> u64 {
        self.form.sized(24 << 20, 256 << 20, 1 << 30)
    }

    /// Bytes that writers write in a round. The store is in memory, and has what two pools wrote in
    /// all rounds, with and without a limit.
    pub(super) fn written(&self) -> u64 {
        self.form.sized(16 << 20, 256 << 20, 256 << 20)
    }

    /// Round trips to the store, ms.
    pub(super) fn delays(&self) -> &'static [u64] {
        self.form.sized(&[0, 50], &[0, 20, 50], &[0, 20, 50])
    }

    /// The same in words.
    pub(super) fn way(&self) -> String {
        self.rates.told()
    }

    /// Rates of the link to the store of those who write, one after the other.
    pub(super) fn rates(&self) -> Vec<Rate> {
        self.rates.all()
    }

    pub(super) fn repeat(&self) -> String {
        RepeatLine::new("iris-audit")
            .form(self.form)
            .value("--rounds", self.rounds)
            .list("--rate", self.rates.words().as_deref())
            .finish()
    }
}

/// Options of `run iris-recover`.
#[derive(clap::Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct RecoverRequest {
    /// Losses of a pool that are recovered; the median is reported [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// The program that counts recoveries [default: examples/retrievability beside this program]
    #[arg(long, value_name = "FILE")]
    pub(super) program: Option<PathBuf>,
    #[command(flatten)]
    rates: Rates,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(flatten)]
    pub(crate) document: Document,
}

impl RecoverRequest {
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(self.form.sized(1, 3, 5))
    }

    /// Tiles of the code in memory, and recoveries at each loss.
    pub(super) fn trials(&self) -> (u32, u32) {
        self.form.sized((1, 1), (2, 6), (4, 40))
    }

    /// Bytes of the file in the pool.
    pub(super) fn file(&self) -> u64 {
        self.form.sized(48 << 20, 256 << 20, 1 << 30)
    }

    /// Bytes of the parity device: a code that is not much larger than the pool, and of two tiles
    /// at least, so that one segment of 2,048 cells comes back.
    pub(super) fn parity(&self) -> u64 {
        self.form.sized(80 << 20, 80 << 20, 128 << 20)
    }

    /// Rates of the link to the store, one after the other.
    pub(super) fn rates(&self) -> Vec<Rate> {
        self.rates.all()
    }

    pub(super) fn repeat(&self) -> String {
        RepeatLine::new("iris-recover")
            .form(self.form)
            .value("--rounds", self.rounds)
            .list("--rate", self.rates.words().as_deref())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::{refused, repeats};

    #[test]
    fn options_are_read_and_repeated() {
        let lines = ["", "--quick --rounds 4"];
        repeats("iris-encode", &lines, EncodeRequest::repeat);
        let with_rates = lines.into_iter().chain(["--quick --rate none", "--rate none,100M"]);
        let lines: Vec<&str> = with_rates.collect();
        repeats("iris-audit", &lines, AuditRequest::repeat);
        repeats("iris-recover", &lines, RecoverRequest::repeat);
        refused::<EncodeRequest>("--rounds 0", "1..=100");
        refused::<RecoverRequest>("--rate fast", "1M or more, or none");
    }
}
