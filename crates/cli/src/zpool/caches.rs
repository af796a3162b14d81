//! `zpool iostat --caches`: the caches of a pool in memory.

use crate::json::Numbers;
use crate::options::{Flag, Parsed};
use crate::session::Session;
use crate::table::{Column, render, tame};
use serde_json::{Value, json};
use steadfast_control::api::{CacheReport, PoolIo};
use steadfast_property::{nice_bytes, nice_number};

/// `--caches`.
pub(super) const CACHES: Flag = Flag {
    letter: '\0',
    long: "caches",
    value: "",
    doc: "caches in memory instead: hits, misses, reads shared with another request, evictions, pins",
};

/// Counters of one cache between two moments.
pub(super) struct CacheFlow {
    pool: String,
    cache: String,
    counts: CacheReport,
}

/// Counters since `before`, or since the import. Bytes and pinned entries are those of now.
pub(super) fn flows(pools: &[PoolIo], before: &[PoolIo]) -> Vec<CacheFlow> {
    let mut flows = Vec::new();
    for pool in pools {
        // A pool that was imported again starts to count at zero.
        let old = before.iter().find(|old| old.guid == pool.guid && old.age_ns <= pool.age_ns);
        for now in &pool.caches {
            let then = old.and_then(|old| old.caches.iter().find(|then| then.cache == now.cache));
            let counts = then.map_or_else(|| now.counts.clone(), |then| less(&now.counts, &then.counts));
            flows.push(CacheFlow { pool: pool.name.clone(), cache: now.cache.clone(), counts });
        }
    }
    flows
}

fn less(now: &CacheReport, then: &CacheReport) -> CacheReport {
    CacheReport {
        hits: now.hits.saturating_sub(then.hits),
        misses: now.misses.saturating_sub(then.misses),
        shared: now.shared.saturating_sub(then.shared),
        evictions: now.evictions.saturating_sub(then.evictions),
        ..now.clone()
    }
}

const COLUMNS: [&str; 9] =
    ["POOL", "CACHE", "USED", "LIMIT", "HITS", "MISSES", "SHARED", "EVICTED", "PINNED"];
/// Columns of text.
const TEXTS: usize = 2;

/// The table.
pub(super) fn table(session: &mut Session<'_, '_>, flows: &[CacheFlow], parsed: &Parsed) {
    let exact = parsed.has('p');
    let bytes = |bytes: u64| if exact { bytes.to_string() } else { nice_bytes(bytes) };
    let count = |count: u64| if exact { count.to_string() } else { nice_number(count) };
    let row = |flow: &CacheFlow| {
        let CacheReport { bytes: used, bytes_max, hits, misses, shared, evictions, pinned } = flow.counts;
        let head = [tame(&flow.pool), tame(&flow.cache), bytes(used), bytes(bytes_max)];
        head.into_iter().chain([hits, misses, shared, evictions, pinned].map(count)).collect()
    };
    let rows: Vec<Vec<String>> = flows.iter().map(row).collect();
    let column =
        |(at, heading): (usize, &&str)| Column { heading: (*heading).to_owned(), right: at >= TEXTS };
    let columns: Vec<Column> = COLUMNS.iter().enumerate().map(column).collect();
    session.line(render(&columns, &rows, parsed.has('H')).trim_end());
}

/// Caches of one pool in `iostat -j`.
pub(super) fn json(pool: &str, flows: &[CacheFlow], numbers: Numbers) -> Value {
    let own = flows.iter().filter(|flow| flow.pool == pool);
    let told = own.map(|flow| {
        let CacheReport { bytes, bytes_max, hits, misses, shared, evictions, pinned } = flow.counts;
        let counts = json!({
            "bytes": numbers.raw(bytes),
            "bytes_max": numbers.raw(bytes_max),
            "hits": numbers.raw(hits),
            "misses": numbers.raw(misses),
            "shared": numbers.raw(shared),
            "evictions": numbers.raw(evictions),
            "pinned": numbers.raw(pinned),
        });
        (flow.cache.clone(), counts)
    });
    told.collect::<serde_json::Map<String, Value>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_control::api::CacheIo;

    fn pool(age_ns: u64, hits: u64, shared: u64, pinned: u64) -> PoolIo {
        let (groups, devices, stores, requests) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let counts = CacheReport { bytes: 7, bytes_max: 9, hits, shared, pinned, ..CacheReport::default() };
        let caches = vec![CacheIo { cache: "nodes".into(), counts }];
        let name = "tank".to_owned();
        PoolIo { name, guid: 9, age_ns, allocated: 0, free: 0, groups, devices, stores, requests, caches }
    }

    #[test]
    fn an_interval_has_its_own_counts_and_the_pins_of_now() {
        let (first, next) = (pool(1, 10, 4, 6), pool(2, 15, 5, 1));
        let since_import = flows(std::slice::from_ref(&first), &[]);
        let CacheReport { hits, shared, pinned, .. } = since_import[0].counts;
        assert_eq!((hits, shared, pinned), (10, 4, 6));
        let between = flows(&[next], std::slice::from_ref(&first));
        let CacheReport { hits, shared, pinned, bytes, .. } = between[0].counts;
        assert_eq!((hits, shared, pinned, bytes), (5, 1, 1, 7));
        let anew = flows(&[pool(0, 3, 0, 0)], &[first]);
        assert_eq!(anew[0].counts.hits, 3, "a pool that was imported again counts from there");
        let told = json("tank", &anew, Numbers { exact: true, as_number: true });
        assert_eq!((&told["nodes"]["hits"], &told["nodes"]["pinned"]), (&json!(3), &json!(0)));
        assert_eq!(json("other", &anew, Numbers { exact: true, as_number: true }), json!({}));
    }
}
