//! Options of `steadfast lab run bucket`, and how large everything is.

use std::time::Duration;

use steadfast_lab_network::{Conditions, Loss};
use steadfast_lab_report::number;

use super::remote::Given;
use crate::options::{Document, Form, Places, RepeatLine, one_of, wanted};
use crate::options::{Percent, RoundTrip};
use crate::options::{percent, round_trip};

/// Columns, in their order.
pub(super) const ARMS: [&str; 6] = ["bare", "bucket", "local", "rclone", "s3fs", "zerofs"];
/// Round trip that is played where none is given.
const ROUND_TRIP: Duration = Duration::from_millis(50);
/// Least rate.
const RATE_LEAST: u64 = 64 << 10;

/// Options of `run bucket`.
#[derive(clap::Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct BucketRequest {
    /// Round trip to the store, like 50ms or 1s [default: 50ms]
    #[arg(long, value_name = "TIME", value_parser = round_trip)]
    rtt: Option<RoundTrip>,
    /// Bytes a second in each direction, like 100M [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = crate::options::size(RATE_LEAST, "give 64K or more"))]
    rate: Option<u64>,
    /// Packets that are lost on the way and sent again, like 0.1% [default: none]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    loss: Option<Percent>,
    /// Seed of --loss: the same one loses the same packets of each connection [default: 1]
    #[arg(long, value_name = "N", requires = "loss")]
    loss_seed: Option<u64>,
    /// A store to use instead of the lab's own in memory, like
    /// s3://BUCKET/PREFIX?endpoint=http://HOST:PORT. Its keys are in the environment:
    /// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
    #[arg(long, value_name = "ADDRESS")]
    pub(super) store: Option<Given>,
    /// Rounds; the median is reported [default: 2, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Columns, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = one_of(ARMS))]
    arms: Option<Vec<String>>,
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
    /// Bytes of the large file, and of the bare transfers.
    pub file: u64,
    /// Small files of the tree.
    pub sources: u64,
    /// Directories that are listed, and files of each.
    pub listed: (u64, u64),
    /// Writes that are fsynced one by one.
    pub syncs: u64,
    /// Commits of one change.
    pub commits: u64,
}

impl BucketRequest {
    /// Round trip.
    pub(super) fn round_trip(&self) -> Duration {
        self.rtt.map_or(ROUND_TRIP, |given| given.0)
    }

    /// Conditions of every way to the store.
    pub(super) fn conditions(&self) -> Conditions {
        Conditions { round_trip: self.round_trip(), rate: self.rate, loss: self.loss() }
    }

    fn loss(&self) -> Option<Loss> {
        self.loss.map(|Percent(per_million)| Loss { per_million, seed: self.loss_seed.unwrap_or(1) })
    }

    /// The conditions in words.
    pub(super) fn way(&self) -> String {
        let rate = self.rate.map_or_else(|| "no limit".to_owned(), |rate| number::bytes(rate) + "/s");
        let loss = self.loss().map_or_else(String::new, |Loss { per_million, seed }| {
            format!(", {} of packets lost by seed {seed}", Percent(per_million))
        });
        format!("round trip {}, rate: {rate}{loss}", RoundTrip(self.round_trip()))
    }

    /// Rounds.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(self.form.sized(1, 1, 2))
    }

    /// Is this column wanted?
    pub(super) fn wants(&self, arm: &str) -> bool {
        wanted(self.arms.as_deref(), arm)
    }

    /// How large everything is.
    pub(super) fn sizes(&self) -> Sizes {
        let sized = |tiny, quick, whole| self.form.sized(tiny, quick, whole);
        Sizes {
            file: sized(16 << 20, 128 << 20, 512 << 20),
            sources: sized(40, 300, 1_000),
            listed: self.form.sized((4, 10), (30, 100), (100, 100)),
            syncs: sized(3, 10, 20),
            commits: sized(2, 3, 7),
        }
    }

    /// The command that repeats a run.
    pub(super) fn repeat(&self) -> String {
        RepeatLine::new("bucket")
            .form(self.form)
            .value("--rtt", self.rtt)
            .size("--rate", self.rate)
            .value("--loss", self.loss)
            .value("--loss-seed", self.loss_seed)
            .value("--store", self.store.as_ref())
            .value("--rounds", self.rounds)
            .list("--arms", self.arms.as_deref())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::{read, refused, repeats};

    #[test]
    fn options_are_read_and_repeated() {
        let store = "--store s3://bucket/lab?endpoint=http://127.0.0.1:7070";
        let lossy = "--loss 0.15% --loss-seed 9";
        let lines =
            ["", "--quick --rtt 20ms --rate 100M --rounds 3 --arms bare,bucket", "--rtt 500us", store, lossy];
        repeats("bucket", &lines, BucketRequest::repeat);
        assert_eq!(read::<BucketRequest>("--rtt 1s").repeat(), "steadfast lab run bucket --rtt 1000ms");
        assert_eq!(read::<BucketRequest>("").round_trip(), Duration::from_millis(50));
        let lossy = read::<BucketRequest>(lossy);
        assert_eq!(lossy.conditions().loss, Some(Loss { per_million: 1_500, seed: 9 }));
        assert!(lossy.way().ends_with(", 0.15% of packets lost by seed 9"), "{}", lossy.way());
    }

    #[test]
    fn every_mistake_is_a_sentence() {
        for (line, word) in [
            ("--rtt 50", "with its unit"),
            ("--rtt fast", "like 50ms"),
            ("--rtt 1h", "with its unit"),
            ("--rtt 6s", "0ms to 5s"),
            ("--rtt -1ms", "'-1'"),
            ("--rate 1K", "64K"),
            ("--loss 1", "like 0.1%"),
            ("--loss 51%", "0% to 50%"),
            ("--loss-seed 3", "--loss"),
            ("--store bucket", "s3://"),
            ("--store s3://b/p", "endpoint="),
            ("--store s3://b/p?endpoint=https://x", "http://"),
            ("--arms zfs", "rclone"),
            ("--rounds 0", "'0' for '--rounds"),
        ] {
            refused::<BucketRequest>(line, word);
        }
    }
}
