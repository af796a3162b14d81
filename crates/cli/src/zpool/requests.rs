//! `zpool iostat --requests`: requests of clients by operation, and where their time went.

use crate::json::Numbers;
use crate::options::{Flag, Parsed};
use crate::session::Session;
use crate::table::{Column, render, tame};
use serde_json::{Value, json};
use steadfast_control::api::{PoolIo, RequestIo};
use steadfast_property::{nice_nanos, nice_number};

/// `--requests`.
pub(super) const REQUESTS: Flag = Flag {
    letter: '\0',
    long: "requests",
    value: "",
    doc: "requests of clients by operation instead: how long, and whether for us or for devices and stores",
};

/// Requests of one kind between two moments.
pub(super) struct RequestFlow {
    pool: String,
    requests: RequestIo,
}

/// Requests since `before`, or since the import. Kinds without any are left out.
pub(super) fn flows(pools: &[PoolIo], before: &[PoolIo]) -> Vec<RequestFlow> {
    let mut flows = Vec::new();
    for pool in pools {
        // A pool that was imported again starts to count at zero.
        let old = before.iter().find(|old| old.guid == pool.guid && old.age_ns <= pool.age_ns);
        for now in &pool.requests {
            let is_same = |then: &&RequestIo| {
                then.origin == now.origin && then.operation == now.operation && then.hot == now.hot
            };
            let then = old.and_then(|old| old.requests.iter().find(is_same));
            let requests = then.map_or_else(|| now.clone(), |then| less(now, then));
            if requests.count > 0 {
                flows.push(RequestFlow { pool: pool.name.clone(), requests });
            }
        }
    }
    flows
}

fn less(now: &RequestIo, then: &RequestIo) -> RequestIo {
    let before = |at: usize| then.histogram.get(at).copied().unwrap_or(0);
    RequestIo {
        count: now.count.saturating_sub(then.count),
        own_ns: now.own_ns.saturating_sub(then.own_ns),
        read_ns: now.read_ns.saturating_sub(then.read_ns),
        write_ns: now.write_ns.saturating_sub(then.write_ns),
        histogram: now.histogram.iter().enumerate().map(|(at, n)| n.saturating_sub(before(at))).collect(),
        ..now.clone()
    }
}

impl RequestFlow {
    fn mean(&self, sum_ns: u64) -> u64 {
        sum_ns / self.requests.count.max(1)
    }

    fn total_ns(&self) -> u64 {
        let RequestIo { own_ns, read_ns, write_ns, .. } = &self.requests;
        own_ns.saturating_add(*read_ns).saturating_add(*write_ns)
    }

    /// Share of our own processing in thousandths.
    fn own_permille(&self) -> u64 {
        self.requests.own_ns.saturating_mul(1000) / self.total_ns().max(1)
    }

    /// A time that so many of a hundred requests did not exceed. Times are kept by powers of two,
    /// so it is right within a factor of two.
    fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.requests.count * percent).div_ceil(100).max(1);
        let mut below = 0;
        for (at, count) in self.requests.histogram.iter().enumerate() {
            if below + count >= wanted {
                let (low, into) = (1_u64 << at, wanted - below);
                return low + (low as u128 * u128::from(into) / u128::from(*count)) as u64;
            }
            below += count;
        }
        0
    }
}

fn heat(requests: &RequestIo) -> &'static str {
    if requests.hot { "hot" } else { "cold" }
}

const COLUMNS: [&str; 12] = [
    "POOL",
    "FROM",
    "OPERATION",
    "CACHE",
    "REQUESTS",
    "MEAN",
    "OWN",
    "READS",
    "WRITES",
    "OWN%",
    "P50",
    "P99",
];
/// Columns of text.
const TEXTS: usize = 4;

/// The table.
pub(super) fn table(session: &mut Session<'_, '_>, flows: &[RequestFlow], parsed: &Parsed) {
    let exact = parsed.has('p');
    let time = |ns: u64| if exact { ns.to_string() } else { nice_nanos(ns) };
    let row = |flow: &RequestFlow| {
        let RequestIo { origin, operation, count, own_ns, read_ns, write_ns, .. } = &flow.requests;
        let permille = flow.own_permille();
        vec![
            tame(&flow.pool),
            tame(origin),
            tame(operation),
            heat(&flow.requests).to_owned(),
            if exact { count.to_string() } else { nice_number(*count) },
            time(flow.mean(flow.total_ns())),
            time(flow.mean(*own_ns)),
            time(flow.mean(*read_ns)),
            time(flow.mean(*write_ns)),
            format!("{}.{}", permille / 10, permille % 10),
            time(flow.percentile(50)),
            time(flow.percentile(99)),
        ]
    };
    let rows: Vec<Vec<String>> = flows.iter().map(row).collect();
    let column =
        |(at, heading): (usize, &&str)| Column { heading: (*heading).to_owned(), right: at >= TEXTS };
    let columns: Vec<Column> = COLUMNS.iter().enumerate().map(column).collect();
    session.line(render(&columns, &rows, parsed.has('H')).trim_end());
}

/// Requests of one pool in `iostat -j`.
pub(super) fn json(pool: &str, flows: &[RequestFlow], numbers: Numbers) -> Value {
    let own = flows.iter().filter(|flow| flow.pool == pool);
    own.map(|flow| {
        let requests = &flow.requests;
        json!({
            "from": requests.origin,
            "operation": requests.operation,
            "cache": heat(requests),
            "requests": numbers.raw(requests.count),
            "own_ns": numbers.raw(requests.own_ns),
            "read_ns": numbers.raw(requests.read_ns),
            "write_ns": numbers.raw(requests.write_ns),
            "histogram": requests.histogram.iter().map(|count| numbers.raw(*count)).collect::<Vec<_>>(),
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(hot: bool, count: u64, own_ns: u64, read_ns: u64) -> RequestIo {
        let mut histogram = vec![0; 40];
        histogram[10] = count;
        let (origin, operation) = ("nfs".to_owned(), "create".to_owned());
        RequestIo { origin, operation, hot, count, own_ns, read_ns, write_ns: 0, histogram }
    }

    fn pool(age_ns: u64, requests: Vec<RequestIo>) -> PoolIo {
        let (groups, devices, stores, caches) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let name = "tank".to_owned();
        PoolIo { name, guid: 9, age_ns, allocated: 0, free: 0, groups, devices, stores, requests, caches }
    }

    #[test]
    fn an_interval_has_its_own_requests() {
        let first = pool(1, vec![requests(true, 4, 400, 0), requests(false, 1, 100, 900)]);
        let since_import = flows(std::slice::from_ref(&first), &[]);
        assert_eq!(since_import.len(), 2);
        assert_eq!((since_import[1].own_permille(), since_import[1].mean(1000)), (100, 1000));
        let next = pool(2, vec![requests(true, 4, 400, 0), requests(false, 3, 500, 1500)]);
        let between = flows(&[next], std::slice::from_ref(&first));
        // Nothing hot was new.
        assert_eq!(between.len(), 1);
        assert_eq!((between[0].requests.count, between[0].total_ns()), (2, 1000));
        assert_eq!(between[0].requests.histogram[10], 2);
        let anew = flows(&[pool(0, vec![requests(true, 1, 7, 0)])], &[first]);
        assert_eq!(anew[0].requests.own_ns, 7, "a pool that was imported again counts from there");
    }

    #[test]
    fn percentiles_lie_in_their_bucket() {
        let mut one = requests(true, 100, 1, 0);
        (one.histogram[10], one.histogram[20]) = (98, 2);
        let flow = flows(&[pool(1, vec![one])], &[]).remove(0);
        assert!((1 << 10..=1 << 11).contains(&flow.percentile(50)), "{}", flow.percentile(50));
        assert!((1 << 20..=1 << 21).contains(&flow.percentile(99)), "{}", flow.percentile(99));
        let told = json("tank", &[flow], Numbers { exact: true, as_number: true });
        assert_eq!((&told[0]["cache"], &told[0]["requests"]), (&json!("hot"), &json!(100)));
    }
}
