//! The cost of knowing where the time of each request went.
//!
//! `cargo run --release -p steadfast-env --example request_cost`

use std::time::Instant;
use steadfast_env::requests::{Operation, Origin, Requests};
use steadfast_env::waiting::{Span, Way, asking};

/// Repetitions of a round; the best round of some counts, as other programs only slow it down.
const TIMES: u32 = 1_000_000;
const ROUNDS: u32 = 9;

fn best_ns(mut act: impl FnMut()) -> f64 {
    let round = |_| {
        let began = Instant::now();
        (0..TIMES).for_each(|_| act());
        began.elapsed().as_nanos() as f64 / f64::from(TIMES)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn main() {
    let requests = Requests::default();
    let of_request = best_ns(|| {
        let span = Span::begin();
        requests.add(Origin::Nfs, Operation::Getattr, &span.split());
    });
    println!("a request: {of_request:.0} ns");
    println!("a read of a device: {:.0} ns", best_ns(|| asking(Way::Read, || ())));
    println!("a write of a device: {:.0} ns", best_ns(|| asking(Way::Write, || ())));
}
