//! Options of `steadfast lab run iris-latency`, and how large everything is.

use std::time::Duration;

use steadfast_lab_network::Conditions;

use crate::options::{Document, Form, Places, RepeatLine, RoundTrip, round_trip};

/// Round trip that is played where none is given.
const ROUND_TRIP: Duration = Duration::from_millis(50);

/// Round trip between client and portal where none is given: of machines of one local network or of
/// one zone of a data centre (docs/measurements/iris.md has the sources).
const CLIENT_ROUND_TRIP: Duration = Duration::from_micros(200);

/// Options of `run iris-latency`.
#[derive(clap::Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct LatencyRequest {
    /// Round trip to the store, like 50ms or 1s [default: 50ms]
    #[arg(long, value_name = "TIME", value_parser = round_trip)]
    rtt: Option<RoundTrip>,
    /// Round trip from the client to the portal, like 500us, beside a client on the same machine;
    /// 0ms: that one alone [default: 200us]
    #[arg(long, value_name = "TIME", value_parser = round_trip)]
    client_round_trip: Option<RoundTrip>,
    /// Cold samples of each operation; the median is reported [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    samples: Option<u32>,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(flatten)]
    pub(crate) document: Document,
}

/// How large everything is.
#[derive(Clone, Copy, Debug)]
pub(in crate::iris) struct Sizes {
    /// Files that are there beside those that are used: they make the trees deep.
    pub others: u64,
    /// Names of the directory that is listed.
    pub listed: u64,
    /// Cold samples of each operation.
    pub cold: u32,
    /// Hot samples of each operation.
    pub hot: u32,
    /// Calls that measure a client's way.
    pub calls: u32,
}

impl LatencyRequest {
    /// Round trip.
    pub(in crate::iris) fn round_trip(&self) -> Duration {
        self.rtt.map_or(ROUND_TRIP, |given| given.0)
    }

    /// Round trip from the client to the portal, as it was given or not.
    pub(in crate::iris) fn client_round_trip(&self) -> RoundTrip {
        self.client_round_trip.unwrap_or(RoundTrip(CLIENT_ROUND_TRIP))
    }

    /// Conditions of the way to the store.
    pub(in crate::iris) fn conditions(&self) -> Conditions {
        Conditions { round_trip: self.round_trip(), rate: None, loss: None }
    }

    /// How large everything is.
    pub(in crate::iris) fn sizes(&self) -> Sizes {
        let sized = |tiny, quick, whole| self.form.sized(tiny, quick, whole);
        Sizes {
            others: sized(100, 5_000, 50_000),
            listed: sized(20, 500, 1_000),
            cold: self.samples.unwrap_or(self.form.sized(1, 3, 5)),
            hot: self.form.sized(3, 30, 100),
            calls: self.form.sized(20, 300, 1_000),
        }
    }

    /// The command that repeats a run.
    pub(in crate::iris) fn repeat(&self) -> String {
        RepeatLine::new("iris-latency")
            .form(self.form)
            .value("--rtt", self.rtt)
            .value("--client-round-trip", self.client_round_trip)
            .value("--samples", self.samples)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::{read, refused, repeats};

    #[test]
    fn options_are_read_and_repeated() {
        let lines = ["", "--quick --rtt 20ms --client-round-trip 500us --samples 4"];
        repeats("iris-latency", &lines, LatencyRequest::repeat);
        refused::<LatencyRequest>("--rtt 9s", "0ms to 5s");
        refused::<LatencyRequest>("--client-round-trip 200", "with its unit");
        assert_eq!(read::<LatencyRequest>("").client_round_trip().to_string(), "200us");
    }
}
