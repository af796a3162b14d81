//! Options of `steadfast lab run iris-scale`, and how large everything is.

use std::time::Duration;

use steadfast_lab_network::Conditions;
use steadfast_lab_report::number;

use crate::options::{Document, Form, Places, Rate, Rates, RepeatLine, RoundTrip, round_trip};

/// Round trip that is played where none is given.
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// Least rate of a client.
const RATE_LEAST: u64 = 1 << 20;
/// Most clients: each has a thread and a connection.
const CLIENTS_MAX: i64 = 4_000;

/// Options of `run iris-scale`.
#[derive(clap::Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct ScaleRequest {
    /// Numbers of clients, with commas between [default: 1,10,20,50,100,200,1000, with --quick
    /// 1,10,50,100]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=CLIENTS_MAX))]
    clients: Option<Vec<u32>>,
    /// Rounds; the median is reported [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Round trip to the store, like 50ms or 1s [default: 20ms]
    #[arg(long, value_name = "TIME", value_parser = round_trip)]
    rtt: Option<RoundTrip>,
    #[command(flatten)]
    rates: Rates,
    /// Bytes a second each way of each client's own link to the portal, like 100M [default: no such
    /// links]
    #[arg(long, value_name = "SIZE", value_parser = crate::options::size(RATE_LEAST, "give 1M or more"))]
    pub(in crate::iris) client_rate: Option<u64>,
    /// Processes that have the clients, each client a thread of one; 0: the lab's own [default: one
    /// for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    processes: Option<u32>,
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
    /// Numbers of clients.
    pub clients: Vec<u32>,
    /// Bytes of all files of one number of clients together.
    pub bytes: u64,
    /// Random transfers of all clients together.
    pub transfers: u64,
}

impl ScaleRequest {
    /// Conditions of the way to the store.
    pub(in crate::iris) fn conditions(&self, rate: Rate) -> Conditions {
        Conditions { round_trip: self.rtt.map_or(ROUND_TRIP, |given| given.0), rate: rate.0, loss: None }
    }

    /// Rates of that way, one after the other.
    pub(in crate::iris) fn rates(&self) -> Vec<Rate> {
        self.rates.all()
    }

    /// The same in words.
    pub(in crate::iris) fn rates_told(&self) -> String {
        self.rates.told()
    }

    /// Processes that have the clients.
    pub(in crate::iris) fn processes(&self) -> u32 {
        let processors =
            || std::thread::available_parallelism().map_or(1, |count| count.get().min(64) as u32);
        self.processes.unwrap_or_else(processors)
    }

    /// How often everything is measured.
    pub(in crate::iris) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(1)
    }

    /// The conditions in words.
    pub(in crate::iris) fn way(&self) -> String {
        let clients = self.client_rate.map_or_else(String::new, |rate| {
            format!(", a link of {} each for every client", number::bytes(rate) + "/s")
        });
        let round_trip = self.conditions(Rate(None)).round_trip.as_millis();
        format!("round trip {round_trip} ms, rate: {}{clients}", self.rates.told())
    }

    /// How large everything is.
    pub(in crate::iris) fn sizes(&self) -> Sizes {
        let form = self.form;
        let usual = || form.sized(vec![1, 3], vec![1, 10, 50, 100], vec![1, 10, 20, 50, 100, 200, 1_000]);
        Sizes {
            clients: self.clients.clone().unwrap_or_else(usual),
            bytes: form.sized(4 << 20, 256 << 20, 1 << 30),
            transfers: form.sized(30, 2_000, 10_000),
        }
    }

    /// The command that repeats a run.
    pub(in crate::iris) fn repeat(&self) -> String {
        let clients = self.clients.as_ref().map(|all| all.iter().map(u32::to_string).collect::<Vec<_>>());
        RepeatLine::new("iris-scale")
            .form(self.form)
            .list("--clients", clients.as_deref())
            .value("--rounds", self.rounds)
            .value("--rtt", self.rtt)
            .list("--rate", self.rates.words().as_deref())
            .size("--client-rate", self.client_rate)
            .value("--processes", self.processes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::{read, refused, repeats};

    #[test]
    fn options_are_read_and_repeated() {
        let lines = [
            "",
            "--quick --clients 1,10 --rounds 3 --rtt 20ms --rate 100M --client-rate 10M",
            "--rate none --processes 0",
            "--rate none,125000000",
        ];
        repeats("iris-scale", &lines, ScaleRequest::repeat);
        assert_eq!(read::<ScaleRequest>("").sizes().clients, [1, 10, 20, 50, 100, 200, 1_000]);
        refused::<ScaleRequest>("--clients 0", "'0' for '--clients");
        refused::<ScaleRequest>("--rate 1K", "1M or more, or none");
        refused::<ScaleRequest>("--client-rate none", "1M or more");
        let played = |line| read::<ScaleRequest>(line).rates();
        assert_eq!(played(""), [Rate(None), Rate(Some(250_000_000))], "both, unless one is asked for");
        assert_eq!(played("--rate 100M"), [Rate(Some(100 << 20))]);
        assert!(read::<ScaleRequest>("").way().ends_with("rate: no limit, then 250 MB/s"));
    }
}
