//! Costs of a pool on a bucket: counters that equal those of the server, prices, budgets.

use std::time::Duration;

use serde_json::Value;
use steadfast_hostile::{Fault, Kind, Rule, Store};
use steadfast_tests::{Host, no_fuse, skip, until};

use crate::bucket::with_keys;

/// Requests that the server saw, of some kinds; of all if none is named.
fn seen(store: &Store, kinds: &[Kind]) -> u64 {
    let counts = |kind: &Kind| kinds.is_empty() || kinds.contains(kind);
    store.seen().iter().filter(|seen| counts(&seen.kind)).count() as u64
}

fn told(host: &Host) -> Value {
    let out = host.run("pool status -j --json-int tank").ok().out;
    serde_json::from_str::<Value>(&out).expect("JSON")["pools"]["tank"].clone()
}

/// The entry of the pool's one store.
fn store_of(pool: &Value) -> Value {
    pool["stores"].as_object().expect("stores").values().next().expect("one").clone()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number: {value}"))
}

/// True if the daemon counted the requests that the server saw. A read that is asked for twice is
/// counted twice; if the first answer overtakes the second request, that may never leave.
fn agree(daemon: u64, server: u64, hedges: u64) -> bool {
    (server..=server + hedges).contains(&daemon)
}

/// Counters of this month at a moment in which the server saw no request while they were read.
fn settled(host: &Host, store: &Store) -> Value {
    until(|| {
        let before = seen(store, &[]);
        let month = store_of(&told(host))["this_month"].clone();
        let (after, total) = (seen(store, &[]), number(&month["requests_total"]));
        match before == after && agree(total, after, number(&month["hedges"])) {
            true => Ok(month),
            false => Err(format!("the server saw {before} and then {after}, the daemon tells {month}")),
        }
    })
}

fn check_counters(host: &Host, store: &Store) -> Value {
    let month = settled(host, store);
    let of = |words: &[&str]| words.iter().map(|word| number(&month["requests"][word])).sum::<u64>();
    let now = [
        (of(&["create", "put", "replace"]), seen(store, &[Kind::Put])),
        (of(&["get"]), seen(store, &[Kind::Get])),
        (of(&["head"]), seen(store, &[Kind::Head])),
        (of(&["list"]), seen(store, &[Kind::List])),
        (of(&["delete"]), seen(store, &[Kind::Delete])),
    ];
    let hedges = number(&month["hedges"]);
    let is_right = |(at, (daemon, server)): (usize, &(u64, u64))| {
        agree(*daemon, *server, if at == 1 { hedges } else { 0 })
    };
    assert!(now.iter().enumerate().all(is_right), "{now:?} of {month}");
    month
}

#[test]
fn counters_equal_those_of_the_server_over_failures_and_restarts() {
    if let Some(why) = no_fuse() {
        return skip("costs of a bucket", &why);
    }
    let store = Store::start();
    let (host, address) = with_keys(&store, "tank");
    let endpoint = store.endpoint();
    let port = endpoint.rsplit(':').next().expect("a port");
    host.shell(&format!("zpool create -f -m $PWD/t tank '{address}' anchor $PWD/anchor")).ok();
    store.add(Rule::next(Kind::Put, 2, Fault::Answer(503, "SlowDown")));
    store.add(Rule::next(Kind::Get, 1, Fault::Lose));
    host.shell("head -c 3000000 /dev/urandom > noise; cp noise t/; sync t/noise; zfs snapshot tank@one").ok();
    let month = check_counters(&host, &store);
    assert!(number(&month["bytes_out"]) > 3_000_000 && number(&month["retries"]) >= 2, "{month}");
    assert_eq!(number(&month["slowdowns"]), 2, "{month}");
    let pool = told(&host);
    assert_eq!(pool["freshness"], "anchored");
    let stored = number(&store_of(&pool)["stored_bytes"]);
    let objects: u64 =
        store.objects().iter().map(|name| store.object(name).map_or(0, |bytes| bytes.len() as u64)).sum();
    assert!(
        stored <= objects && objects <= stored + (1 << 20),
        "{stored} of {objects}: {:?}",
        store.objects()
    );
    assert_eq!(store_of(&pool)["price"], Value::Null);
    assert_eq!(store_of(&pool)["unpriced"], format!("no price is known for {endpoint}"));

    // A daemon that ends loses nothing, and one that is killed the last minute at most.
    host.shell("zpool export tank").ok();
    host.run("daemon stop").ok();
    host.shell(&format!("zpool import -d '{address}' tank; cmp noise t/noise")).ok();
    let month = check_counters(&host, &store);
    assert!(number(&month["bytes_in"]) > 3_000_000, "{month}");
    host.shell("zpool export tank").ok();
    let at_export = seen(&store, &[]);
    host.kill_daemon();
    host.shell(&format!("zpool import -d '{address}' tank")).ok();
    assert!(number(&store_of(&told(&host))["this_month"]["requests_total"]) > at_export);
    check_counters(&host, &store);

    // A price of one's own.
    let row = format!(
        r#"{{"name":"Shelf","scheme":"s3","endpoints":["127.0.0.1:{port}"],"currency":"USD","writes_per_million":5,
        "reads_per_million":0.4,"lists_per_million":5,"deletes_per_million":0,"egress_per_gb":0.09,
        "stored_per_gb_month":0.023,"gb_bytes":1073741824}}"#
    );
    std::fs::write(host.at("run/prices.json"), format!(r#"{{"version":1,"prices":[{row}]}}"#))
        .expect("written");
    let month = settled(&host, &store);
    let of = |words: &[&str]| words.iter().map(|word| number(&month["requests"][word])).sum::<u64>();
    let requests = of(&["create", "put", "replace", "list", "probe"]) * 5_000 + of(&["get", "head"]) * 400;
    let price = store_of(&told(&host))["price"].clone();
    assert_eq!(price["requests"], format!("0.{requests:09}"), "{price} of {month}");
    host.run("pool status tank").ok().says("freshness").says("anchored").says("by the row 'Shelf'");
    let listed = host.shell("zpool list -Hp -o requests,egress,price tank").ok().out;
    let cells: Vec<&str> = listed.trim().split('\t').collect();
    assert!(cells[0].parse::<u64>().expect("a number") >= number(&month["requests_total"]), "{listed}");
    assert!(cells[1].parse::<u64>().expect("bytes") > 3_000_000 && cells[2].starts_with("$0.0"), "{listed}");

    // Tables: ours beside those of ZFS, within 80 columns.
    let own = host.run("pool iostat -v tank").ok().says("hedge").says("bucket/tank").out;
    let (_, section) = own.split_once("\n\n").expect("a section of its own");
    assert!(section.lines().all(|line| line.chars().count() <= 80), "{section}");
    let zfs = host.shell("zpool iostat -v tank; zpool status tank").ok().out;
    assert!(!zfs.contains("hedge") && !zfs.contains("freshness"), "{zfs}");
    host.shell("zpool status --stores tank").ok().says("freshness");
    let interval = host.shell("zpool iostat --stores -Hp -y tank 1 1").ok().out;
    let cells: Vec<&str> = interval.trim().split('\t').collect();
    assert_eq!((cells.len(), cells[0], cells[1]), (11, "tank", address.as_str()), "{interval}");
    host.shell("zpool destroy tank").ok();
}

#[test]
fn a_budget_stops_a_scrub_and_nothing_else() {
    if let Some(why) = no_fuse() {
        return skip("budgets of a bucket", &why);
    }
    let store = Store::start();
    let (host, address) = with_keys(&store, "tank");
    host.shell(&format!("zpool create -f -o requestbudget=10 -m $PWD/t tank '{address}' anchor $PWD/anchor"))
        .ok();
    // By itself, within two looks.
    until(|| {
        let told = host.run("pool status tank").ok().out;
        if told.contains("background work waits") { Ok(()) } else { Err(told) }
    });
    host.run("pool status tank").ok().says("STORE-BUDGET").says("requestbudget");
    host.run("pool status -x").ok().says("tank");
    host.until("zpool events tank", |told| told.contains("budget_exceeded"));
    host.shell("zpool scrub tank; echo kept > t/a; sync t/a; cat t/a").ok().says("kept");
    std::thread::sleep(Duration::from_millis(300));
    host.shell("echo again > t/b; sync t/b; zpool sync tank; zpool status tank")
        .ok()
        .says("scrub in progress");
    host.shell("zpool set requestbudget=none tank; zpool wait -t scrub tank; zpool status tank")
        .ok()
        .says("with 0 errors");
    host.until("zpool events tank", |told| told.contains("budget_freed"));
    host.shell("zpool destroy tank").ok();
}

#[test]
fn a_probe_tells_what_it_cost_and_prices_are_listed() {
    let store = Store::start();
    let (host, address) = with_keys(&store, "tank");
    let out = host.run(&format!("store probe --quick -j {address}")).ok().out;
    let probe: Value = serde_json::from_str(&out).expect("JSON");
    let (total, hedges) = (number(&probe["requests_total"]), number(&probe["hedges"]));
    assert!(agree(total, seen(&store, &[]), hedges), "the server saw {}: {probe}", seen(&store, &[]));
    assert!(number(&probe["bytes_out"]) > 0 && probe["price"].is_null(), "{probe}");
    host.run(&format!("store prices {address}")).fails(1).says("no price is known for http://127.0.0.1");
    host.run("store prices s3://bucket/tank?region=us-east-1").ok().says("AWS S3 Standard").says("$0.023");
    host.run("store prices s3://bucket/tank?region=eu-west-1").fails(1).says("AWS S3 in eu-west-1");
    let table = host.run("store prices").ok().says("Cloudflare R2").says("Google Cloud").out;
    assert!(table.lines().all(|line| line.chars().count() <= 80 || line.contains("prices.json")), "{table}");
    std::fs::write(host.at("run/prices.json"), "{").expect("written");
    host.run("store prices").fails(1).says("run/prices.json").says("cannot be understood");
}
