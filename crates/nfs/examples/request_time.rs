//! The time that requests take in the server, by operation, without devices and without a kernel.
//!
//! `cargo run --release -p steadfast-nfs --example request_time`
//!
//! A client calls over the loopback device; the pool is in memory and nothing waits for a commit.
//! The first column is the server's own count, from the record of a request to its reply; the
//! second is the time at the client. Both are the best round of some, as other programs only slow
//! it down.

#[path = "../tests/support.rs"]
#[allow(dead_code, unused_imports, reason = "the world of the tests")]
mod support;

use std::time::Instant;

use steadfast_nfs::client::Client;
use steadfast_posix::requests::Operation;
use support::{Calls, Portal};

const ROUNDS: usize = 15;
/// Names of the directory that is listed.
const LISTED: usize = 1_000;
/// Names of another one, so that the tree has some height.
const OTHERS: usize = 20_000;
/// Files that are made and removed in a round, and calls that change nothing.
const FILES: usize = 2_000;
/// Listings of a round.
const LISTINGS: usize = 200;

struct Best {
    own_ns: f64,
    client_ns: f64,
}

/// Time of the server and of the client for one of `count` operations.
fn best(portal: &Portal, operation: Operation, count: usize, mut act: impl FnMut(usize)) -> Best {
    let mut best = Best { own_ns: f64::INFINITY, client_ns: f64::INFINITY };
    for round in 0..ROUNDS {
        let own = || {
            let samples = portal.world.fs.requests().samples();
            let of_it = samples.iter().filter(|sample| sample.operation == operation);
            of_it.map(|sample| sample.own_ns).sum::<u64>()
        };
        let (before, began) = (own(), Instant::now());
        act(round);
        let client_ns = began.elapsed().as_nanos() as f64 / count as f64;
        best.client_ns = best.client_ns.min(client_ns);
        // A request is counted before its reply is sent.
        best.own_ns = best.own_ns.min((own() - before) as f64 / count as f64);
    }
    best
}

/// A whole listing with attributes; gives how many bytes it had.
fn list(client: &mut Client, directory: &[u8]) -> usize {
    let answer = client.nfs(17, |out| {
        out.opaque(directory).u64(0).u64(0).u32(256 << 10).u32(256 << 10);
    });
    let answer = answer.expect("answered");
    assert_eq!(answer.status, 0);
    assert_eq!(answer.results.last(), Some(&1), "all of it");
    answer.results.len()
}

fn main() {
    let only = std::env::args().nth(1);
    let mut portal = Portal::new("insecure,no_root_squash,async");
    portal.world.inodes.set_bytes_max(256 << 20);
    portal.world.nodes.set_bytes_max(64 << 20);
    let (mut client, top) = portal.root();
    let listed = client.mkdir(&top, "listed", 0o755).expect("made").handle;
    let others = client.mkdir(&top, "others", 0o755).expect("made").handle;
    for name in 0..LISTED {
        client.create(&listed, &format!("file{name}"), 0o644).expect("made");
    }
    for name in 0..OTHERS {
        client.create(&others, &format!("file{name}"), 0o644).expect("made");
    }
    portal.mounted.notes.lock().clear();
    portal.world.commit();
    let file = client.find(&listed, "file7").expect("there").handle;
    let tell = |name: &str, of: &dyn Fn() -> Best| {
        if only.as_deref().is_none_or(|only| only == name) {
            let Best { own_ns, client_ns } = of();
            println!("{name:<26} {:>9.2} us   {:>9.2} us", own_ns / 1e3, client_ns / 1e3);
        }
    };
    let client = std::cell::RefCell::new(client);
    println!("{:<26} {:>9}      {:>9}", "", "server", "client");
    tell("getattr", &|| {
        let act = |_| (0..FILES).for_each(|_| _ = client.borrow_mut().getattr(&file));
        best(&portal, Operation::Getattr, FILES, act)
    });
    tell("lookup", &|| {
        let act = |_| (0..FILES).for_each(|_| _ = client.borrow_mut().find(&listed, "file9"));
        best(&portal, Operation::Lookup, FILES, act)
    });
    let create = |round: usize| {
        let name = |at: usize| format!("new{round}-{at}");
        (0..FILES).for_each(|at| _ = client.borrow_mut().create(&top, &name(at), 0o644).expect("made"));
    };
    let remove = |round: usize| {
        let name = |at: usize| format!("new{round}-{at}");
        (0..FILES).for_each(|at| assert_eq!(client.borrow_mut().remove(&top, &name(at)), 0));
        portal.mounted.notes.lock().clear();
    };
    tell("create", &|| best(&portal, Operation::Create, FILES, create));
    tell("remove", &|| best(&portal, Operation::Remove, FILES, remove));
    tell("list of 1,000", &|| {
        let act = |_| (0..LISTINGS).for_each(|_| _ = list(&mut client.borrow_mut(), &listed));
        best(&portal, Operation::List, LISTINGS, act)
    });
}
