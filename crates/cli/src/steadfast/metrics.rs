//! `steadfast daemon metrics`: the daemon's counters as text for Prometheus.
//!
//! The text is written by a command that asks over the daemon's socket, so nothing listens on the
//! network: decision 0190.

use crate::options::Parsed;
use crate::session::{Doing, Failure, Session};
use steadfast_control::api::{
    CacheReport, DaemonInfo, DaemonMemory, DaemonReport, Health, LastAudit, MemoryReport, PoolInfo, PoolIo,
    PoolIostat, PoolList, PoolMemory, RequestIo,
};
use steadfast_control::client::Client;
use steadfast_lab_report::prometheus::{Text, quoted};

/// Everything that the text is made of.
struct Told {
    daemon: DaemonReport,
    memory: MemoryReport,
    pools: Vec<PoolInfo>,
    flows: Vec<PoolIo>,
}

/// Prints the metrics of the running daemon.
pub(super) fn show(session: &mut Session<'_, '_>, _parsed: &Parsed) -> Result<(), Failure> {
    let doing = || "cannot get the metrics of the daemon".to_owned();
    let mut client = Client::connect(&session.world.runtime(), &session.typed).doing(doing)?;
    let told = Told {
        daemon: client.call(DaemonInfo {}).doing(doing)?,
        memory: client.call(DaemonMemory::default()).doing(doing)?,
        pools: client.call(PoolList::default()).doing(doing)?,
        flows: client.call(PoolIostat::default()).doing(doing)?,
    };
    session.out.push_str(&text(&told));
    Ok(())
}

const SECOND: f64 = 1e9;
/// Buckets of request times are joined by twos, from about a microsecond to a minute: 2^10 to
/// 2^36 ns.
const BUCKETS: std::ops::RangeInclusive<usize> = 5..=18;

fn text(told: &Told) -> String {
    let mut out = Text::default();
    out.family("steadfast_daemon_info", "gauge", "The running daemon; the value is always 1.");
    out.value("steadfast_daemon_info", &format!("version=\"{}\"", quoted(&told.daemon.version)), 1.0);
    out.family("steadfast_daemon_resident_bytes", "gauge", "Memory of the daemon.");
    out.value("steadfast_daemon_resident_bytes", "", told.memory.resident as f64);
    pools(&mut out, told);
    audits(&mut out, &told.pools);
    requests(&mut out, &told.flows);
    caches(&mut out, &told.memory);
    devices(&mut out, &told.flows);
    stores(&mut out, &told.flows);
    out.into_text()
}

fn of_pool(name: &str) -> String {
    format!("pool=\"{}\"", quoted(name))
}

fn pools(out: &mut Text, told: &Told) {
    let name = "steadfast_pool_healthy";
    out.family(name, "gauge", "1 if the pool is ONLINE.");
    for pool in &told.pools {
        let label = format!("{},state=\"{}\"", of_pool(&pool.name), pool.state.as_str());
        out.value(name, &label, if pool.state == Health::Online { 1.0 } else { 0.0 });
    }
    let name = "steadfast_pool_bytes";
    out.family(name, "gauge", "Space of the pool: allocated and free.");
    for pool in &told.flows {
        let label = of_pool(&pool.name);
        out.value(name, &format!("{label},kind=\"allocated\""), pool.allocated as f64);
        out.value(name, &format!("{label},kind=\"free\""), pool.free as f64);
    }
}

/// The last audit of each pool that had one.
fn audits(out: &mut Text, pools: &[PoolInfo]) {
    type Value = fn(&LastAudit) -> f64;
    let families: [(&str, &str, Value); 3] = [
        ("steadfast_pool_audit_time_seconds", "When the last audit ended, since 1970.", |audit| {
            audit.ended_ns as f64 / SECOND
        }),
        ("steadfast_pool_audit_samples", "Samples of the last audit.", |audit| f64::from(audit.samples)),
        ("steadfast_pool_audit_failed", "Samples of the last audit that were not held.", |audit| {
            f64::from(audit.failed)
        }),
    ];
    for (name, about, value) in families {
        out.family(name, "gauge", about);
        for (pool, audit) in pools.iter().filter_map(|pool| Some((pool, pool.audit.as_ref()?))) {
            out.value(name, &of_pool(&pool.name), value(audit));
        }
    }
}

fn requests(out: &mut Text, pools: &[PoolIo]) {
    let all = || pools.iter().flat_map(|pool| pool.requests.iter().map(move |requests| (pool, requests)));
    let label = |pool: &PoolIo, requests: &RequestIo| {
        let RequestIo { origin, operation, hot, .. } = requests;
        let cache = if *hot { "hot" } else { "cold" };
        let (origin, operation) = (quoted(origin), quoted(operation));
        format!("{},from=\"{origin}\",operation=\"{operation}\",cache=\"{cache}\"", of_pool(&pool.name))
    };
    let name = "steadfast_request_part_seconds_total";
    let about = "Time of requests by where it went: own processing, waiting for reads, waiting for writes.";
    out.family(name, "counter", about);
    for (pool, requests) in all() {
        let parts = [("own", requests.own_ns), ("reads", requests.read_ns), ("writes", requests.write_ns)];
        for (part, ns) in parts {
            let label = format!("{},part=\"{part}\"", label(pool, requests));
            out.value(name, &label, ns as f64 / SECOND);
        }
    }
    let name = "steadfast_request_seconds";
    out.family(name, "histogram", "Time of requests. Cold: something had to be read from a device or store.");
    for (pool, requests) in all() {
        let RequestIo { own_ns, read_ns, write_ns, histogram, count, .. } = requests;
        let part = |range: std::ops::Range<usize>| -> u64 {
            histogram.iter().skip(range.start).take(range.len()).sum()
        };
        let edges = BUCKETS.map(|at| {
            let below = if at == *BUCKETS.start() { 0 } else { 2 * at - 2 };
            ((1_u64 << (2 * at)) as f64 / SECOND, part(below..2 * at))
        });
        let sum = own_ns.saturating_add(*read_ns).saturating_add(*write_ns) as f64 / SECOND;
        out.histogram(name, &label(pool, requests), &edges.collect::<Vec<_>>(), *count, sum);
    }
}

fn caches(out: &mut Text, memory: &MemoryReport) {
    type Value = fn(&CacheReport) -> u64;
    let families: [(&str, &str, &str, Value); 7] = [
        ("steadfast_cache_bytes", "gauge", "Bytes that a cache holds.", |cache| cache.bytes),
        ("steadfast_cache_bytes_max", "gauge", "Bytes that it may hold.", |cache| cache.bytes_max),
        ("steadfast_cache_hits_total", "counter", "Entries found.", |cache| cache.hits),
        ("steadfast_cache_misses_total", "counter", "Entries read.", |cache| cache.misses),
        (
            "steadfast_cache_shared_total",
            "counter",
            "Entries that another request was reading already.",
            |cache| cache.shared,
        ),
        ("steadfast_cache_evictions_total", "counter", "Entries that went for others.", |cache| {
            cache.evictions
        }),
        ("steadfast_cache_pinned", "gauge", "Entries in use now (nodes).", |cache| cache.pinned),
    ];
    for (name, kind, about, value) in families {
        out.family(name, kind, about);
        for pool in &memory.pools {
            let PoolMemory { nodes, blocks, chunks, .. } = pool;
            for (cache, report) in [("nodes", nodes), ("blocks", blocks), ("chunks", chunks)] {
                let label = format!("{},cache=\"{cache}\"", of_pool(&pool.name));
                out.value(name, &label, value(report) as f64);
            }
        }
    }
    let name = "steadfast_dirty_bytes";
    out.family(name, "gauge", "Changes that wait for a commit.");
    for pool in &memory.pools {
        out.value(name, &of_pool(&pool.name), pool.dirty as f64);
    }
}

fn devices(out: &mut Text, pools: &[PoolIo]) {
    let all = || {
        pools.iter().flat_map(|pool| {
            pool.devices.iter().flat_map(move |device| {
                let calls = [
                    ("read", &device.read),
                    ("write", &device.write),
                    ("flush", &device.flush),
                    ("trim", &device.trim),
                ];
                let label = format!("{},device=\"{}\"", of_pool(&pool.name), quoted(&device.name));
                calls.map(move |(call, count)| (format!("{label},call=\"{call}\""), count))
            })
        })
    };
    let name = "steadfast_device_calls_total";
    out.family(name, "counter", "Calls of devices.");
    all().for_each(|(label, count)| out.value(name, &label, count.calls as f64));
    let name = "steadfast_device_bytes_total";
    out.family(name, "counter", "Bytes they moved.");
    all().for_each(|(label, count)| out.value(name, &label, count.bytes as f64));
    let name = "steadfast_device_seconds_total";
    out.family(name, "counter", "Time they took together.");
    all().for_each(|(label, count)| out.value(name, &label, count.nanos as f64 / SECOND));
}

fn stores(out: &mut Text, pools: &[PoolIo]) {
    let all = || pools.iter().flat_map(|pool| pool.stores.iter().map(move |store| (pool, store)));
    let label = |pool: &PoolIo, store: &str| format!("{},store=\"{}\"", of_pool(&pool.name), quoted(store));
    let name = "steadfast_store_requests_total";
    out.family(name, "counter", "Requests to stores of objects.");
    for (pool, store) in all() {
        for (kind, count) in &store.counts.requests {
            let label = format!("{},request=\"{}\"", label(pool, &store.name), quoted(kind));
            out.value(name, &label, *count as f64);
        }
    }
    let name = "steadfast_store_bytes_total";
    out.family(name, "counter", "Bytes read from and written to stores of objects.");
    for (pool, store) in all() {
        let label = label(pool, &store.name);
        out.value(name, &format!("{label},way=\"read\""), store.counts.bytes_in as f64);
        out.value(name, &format!("{label},way=\"written\""), store.counts.bytes_out as f64);
    }
    let name = "steadfast_store_retries_total";
    out.family(name, "counter", "Requests to stores that were made again.");
    for (pool, store) in all() {
        out.value(name, &label(pool, &store.name), store.counts.retries as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_of_requests_counts_each_once() {
        let mut histogram = vec![0; 40];
        // 300 ns, 3 us, 70 ms, 3 minutes.
        for ns in [300_u64, 3_000, 70_000_000, 180_000_000_000] {
            histogram[ns.ilog2() as usize] += 1;
        }
        let (origin, operation) = ("nfs".to_owned(), "create".to_owned());
        let requests = RequestIo {
            origin,
            operation,
            hot: false,
            count: 4,
            own_ns: 500_000_000,
            read_ns: 1_000_000_000,
            write_ns: 0,
            histogram,
        };
        let (groups, devices, stores, caches) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let name = "ta\"nk".to_owned();
        let requests = vec![requests];
        let (age_ns, allocated, free) = (1, 7, 8);
        let pool =
            PoolIo { name, guid: 9, age_ns, allocated, free, groups, devices, stores, requests, caches };
        let mut out = Text::default();
        super::requests(&mut out, &[pool]);
        let text = out.into_text();
        let label = "pool=\"ta\\\"nk\",from=\"nfs\",operation=\"create\",cache=\"cold\"";
        for (edge, count) in [("0.000001024", 1), ("0.000004096", 2), ("68.719476736", 3), ("+Inf", 4)] {
            let line = format!("steadfast_request_seconds_bucket{{{label},le=\"{edge}\"}} {count}\n");
            assert!(text.contains(&line), "no {line} in {text}");
        }
        let line = format!("steadfast_request_part_seconds_total{{{label},part=\"own\"}} 0.5\n");
        assert!(text.contains(&line), "{text}");
        assert!(text.contains(&format!("steadfast_request_seconds_sum{{{label}}} 1.5\n")), "{text}");
    }
}
