//! Options of `steadfast lab run iris-cache`, and how large everything is.

use std::time::Duration;

use crate::options::{Document, Form, Places, RepeatLine, RoundTrip, round_trip};

/// Options of `run iris-cache`.
#[derive(clap::Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct CacheRequest {
    /// Round trips to the store, with commas between [default: 0ms,20ms,100ms, with --quick
    /// 0ms,20ms]
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = round_trip)]
    rtt: Option<Vec<RoundTrip>>,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(flatten)]
    pub(crate) document: Document,
}

/// How large everything is.
#[derive(Clone, Debug)]
pub(in crate::iris) struct Sizes {
    /// Sizes of the node cache in bytes.
    pub caches: &'static [u64],
    /// Files of the tree, and bytes of each.
    pub files: (u64, usize),
    /// Bytes of the large file.
    pub large: u64,
    /// Random reads of it.
    pub reads: u64,
}

const WHOLE: [u64; 9] =
    [100 << 10, 250 << 10, 500 << 10, 1 << 20, 5 << 19, 5 << 20, 10 << 20, 25 << 20, 50 << 20];

impl CacheRequest {
    /// Round trips.
    pub(in crate::iris) fn round_trips(&self) -> Vec<Duration> {
        let ms = Duration::from_millis;
        let usual = || self.form.sized(vec![ms(1)], vec![ms(0), ms(20)], vec![ms(0), ms(20), ms(100)]);
        self.rtt.as_ref().map_or_else(usual, |given| given.iter().map(|one| one.0).collect())
    }

    /// How large everything is.
    pub(in crate::iris) fn sizes(&self) -> Sizes {
        let sized = |tiny, quick, whole| self.form.sized(tiny, quick, whole);
        Sizes {
            caches: self.form.sized(
                &[5 << 20],
                &[100 << 10, 500 << 10, 1 << 20, 5 << 19, 5 << 20, 20 << 20],
                &WHOLE,
            ),
            files: self.form.sized((40, 512), (3_000, 4_096), (12_000, 4_096)),
            large: sized(1 << 20, 32 << 20, 64 << 20),
            // At 100 ms each one is a tenth of a second, four times at each size.
            reads: sized(16, 100, 200),
        }
    }

    /// The command that repeats a run.
    pub(in crate::iris) fn repeat(&self) -> String {
        let times = self.rtt.as_ref().map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
        RepeatLine::new("iris-cache").form(self.form).list("--rtt", times.as_deref()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::{read, refused, repeats};

    #[test]
    fn options_are_read_and_repeated() {
        repeats("iris-cache", &["", "--quick --rtt 0ms,20ms"], CacheRequest::repeat);
        assert_eq!(read::<CacheRequest>("").round_trips().len(), 3);
        refused::<CacheRequest>("--rtt 20ms,1h", "with its unit");
    }
}
