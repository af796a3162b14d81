//! Hosts that share one store of whole objects: a bounded part of `steadfast-sim --hosts 1000000`.

use steadfast_sim::hosts::{Planted, run, run_overtaken, run_rotten};

#[test]
fn hosts_on_one_store_lose_nothing_that_they_were_told() {
    let (counts, finding) = run(0, 3_000, None, |_| ());
    assert_eq!(finding.map(|finding| format!("seed {}: {}", finding.seed, finding.what)), None);
    assert!(counts.behind > 300, "{counts:?}");
    assert!(counts.slept > 300 && counts.fenced > 100 && counts.faults > 100, "{counts:?}");
}

#[test]
fn a_stale_root_that_nobody_is_warned_of_is_found() {
    let (counts, finding) = run(0, 20_000, Some(Planted::PrunedUntold), |_| ());
    let what = finding.map(|finding| finding.what).unwrap_or_default();
    assert!(what.contains("durable is"), "{counts:?}: {what}");
}

/// A bounded part of `steadfast-sim --overtaken 1000000`.
#[test]
fn a_host_whose_pool_is_taken_with_f_stops_and_the_other_has_all() {
    let (counts, finding) = run_overtaken(0, 2_000, None, |_| ());
    assert_eq!(finding.map(|finding| format!("seed {}: {}", finding.seed, finding.what)), None);
    assert!(counts.slept > 300 && counts.fenced > 300 && counts.faults > 20, "{counts:?}");
}

#[test]
fn a_host_that_sees_no_claim_of_another_is_found() {
    let (counts, finding) = run_overtaken(0, 2_000, Some(Planted::ClaimUnseen), |_| ());
    let what = finding.map(|finding| finding.what).unwrap_or_default();
    assert!(what.contains("durable is") || what.contains("had lost the pool"), "{counts:?}: {what}");
}

/// A bounded part of `steadfast-sim --rotten 1000000`.
#[test]
fn a_pool_whose_newest_root_is_damaged_goes_back_by_one_commit() {
    let (counts, finding) = run_rotten(0, 1_500, |_| ());
    assert_eq!(finding.map(|finding| format!("seed {}: {}", finding.seed, finding.what)), None);
    assert!(counts.behind > 200 && counts.slept > 50 && counts.fenced > 20, "{counts:?}");
    // Behind two damaged roots the one of a writer that had lost the pool.
    let (_, finding) = run_rotten(101_259, 1, |_| ());
    assert_eq!(finding.map(|finding| format!("seed {}: {}", finding.seed, finding.what)), None);
}
