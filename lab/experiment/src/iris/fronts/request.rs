//! Options of `steadfast lab run iris-fronts`, and how large everything is.

use crate::options::{Document, Form, Places, RepeatLine};

/// Options of `run iris-fronts`.
#[derive(clap::Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct FrontsRequest {
    /// Rounds; the median is reported [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Clients of the second half of the rows [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1_000))]
    clients: Option<u32>,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(flatten)]
    pub(crate) document: Document,
}

/// How large everything is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Files that are made, looked up, listed and removed.
    pub files: u64,
    /// Small operations on one file, of all clients together.
    pub small: u64,
    /// Small writes that are durable when they are answered.
    pub durable: u64,
    /// Bytes of the file that is written and read from its beginning to its end.
    pub stream: u64,
}

impl FrontsRequest {
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(self.form.sized(1, 3, 5))
    }

    /// Number of clients where there are several.
    pub(super) fn crowd(&self) -> u32 {
        self.clients.unwrap_or(8)
    }

    pub(super) fn sizes(&self) -> Sizes {
        let sized = |tiny, quick, whole| self.form.sized(tiny, quick, whole);
        Sizes {
            files: sized(40, 2_000, 10_000),
            small: sized(80, 8_000, 40_000),
            durable: sized(8, 200, 1_000),
            stream: sized(4 << 20, 256 << 20, 1 << 30),
        }
    }

    /// The command that repeats a run.
    pub(super) fn repeat(&self) -> String {
        RepeatLine::new("iris-fronts")
            .form(self.form)
            .value("--rounds", self.rounds)
            .value("--clients", self.clients)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::{refused, repeats};

    #[test]
    fn options_are_read_and_repeated() {
        let lines = ["", "--quick --rounds 4 --clients 16"];
        repeats("iris-fronts", &lines, FrontsRequest::repeat);
        refused::<FrontsRequest>("--clients 1", "2..=1000");
    }
}
