//! Pools whose items somebody changed who has all keys: a bounded part of
//! `steadfast-sim --spoil 1000000`.

use steadfast_sim::spoil::{again, run};

/// Changes of one run: some two hundred pools.
const CHANGES: u64 = 400;

#[test]
fn a_spoiled_pool_neither_panics_nor_hangs() {
    let report = run(0, CHANGES, |_| ());
    assert_eq!(report.findings, []);
    assert!(report.refused > 0 && report.found_offline > 0, "changes come through: {report:?}");
    assert!(report.unplanted < report.rounds / 2, "{report:?}");
}

/// Rounds that ended in a panic or without an end before it was mended.
#[test]
fn rounds_that_were_mended_stay_so() {
    for seed in SEEDS {
        assert_eq!(again(*seed).findings, [], "seed {seed}");
    }
}

/// A record size that is none, figures and reservations that cannot be added up, and a writer that
/// waited for ever for room beside such a reservation; references to a block in segment 0; sums in
/// a deadlist that cannot be added up, by the pool and by the offline check.
const SEEDS: &[u64] =
    &[50_021, 50_736, 51_497, 52_143, 95_975, 7_200_939, 300_035_368, 310_066_339, 321_015_969];
