//! Verbs that change what a pool is made of may be cut anywhere, and a second device may fail while one is replaced.

use steadfast_device::Operation;
use steadfast_pool::Redundancy;
use steadfast_sim::SHORT_SLOTS;
use steadfast_sim::verbs::{SNAPSHOT_VERBS, VERBS, double_faults, old_content};
use steadfast_sim::verbs_streams::{STREAM_VERBS, VOLUME_VERBS};

/// One in so many states: all of them are `cargo run --release -p steadfast-sim -- --verbs`.
const EVERY: u64 = 11;

/// The same of verbs on devices of different sizes, whose histories are long: a pool is filled until its segments get narrower.
const EVERY_UNEVEN: u64 = 23;

#[test]
fn verbs_may_be_cut_anywhere() {
    may_be_cut(EVERY, |name| !name.contains("uneven"));
}

#[test]
fn verbs_of_uneven_groups_may_be_cut_anywhere() {
    may_be_cut(EVERY_UNEVEN, |name| name.contains("uneven"));
}

/// One in so many states of each verb of such a name.
fn may_be_cut(every: u64, is_meant: fn(&str) -> bool) {
    let (mut verbs, mut opened) = (0, 0);
    for verb in VERBS.iter().filter(|verb| is_meant(verb.name)) {
        let counts = verb.explore(every).unwrap_or_else(|what| panic!("{what}"));
        println!("{}: {counts:?}", verb.name);
        assert!(counts.states > 50, "{}: {counts:?}", verb.name);
        (verbs, opened) = (verbs + 1, opened + counts.opened);
    }
    assert!(verbs >= 7 && opened > 100, "{verbs} {opened}");
}

/// All of them: before or after, and every snapshot whole.
#[test]
fn verbs_of_snapshots_may_be_cut_anywhere() {
    for verb in SNAPSHOT_VERBS {
        let counts = verb.explore(1).unwrap_or_else(|what| panic!("{what}"));
        println!("{}: {counts:?}", verb.name);
        assert!(counts.states >= 12 && counts.opened >= 4, "{}: {counts:?}", verb.name);
    }
}

/// The end of a stream shows all of it at once; what is there of it before is freed or gone on with.
#[test]
fn verbs_of_streams_may_be_cut_anywhere() {
    for verb in STREAM_VERBS {
        let counts = verb.explore(3).unwrap_or_else(|what| panic!("{what}"));
        println!("{}: {counts:?}", verb.name);
        assert!(counts.states >= 20 && counts.opened >= 5, "{}: {counts:?}", verb.name);
    }
}

/// What comes compressed, under several draws.
#[test]
fn compressed_streams_may_be_cut_anywhere_under_any_draw() {
    let compressed: Vec<_> = STREAM_VERBS.iter().filter(|verb| verb.name.contains("compressed")).collect();
    assert_eq!(compressed.len(), 3);
    for (verb, seed) in compressed.iter().flat_map(|verb| (1..=6).map(move |seed| (verb, seed))) {
        let counts = verb.explore_drawn(3, seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        println!("{}, seed {seed}: {counts:?}", verb.name);
        assert!(counts.states >= 20 && counts.opened >= 5, "{}, seed {seed}: {counts:?}", verb.name);
    }
}

#[test]
fn verbs_of_volumes_may_be_cut_anywhere() {
    for verb in VOLUME_VERBS {
        let counts = verb.explore(1).unwrap_or_else(|what| panic!("{what}"));
        println!("{}: {counts:?}", verb.name);
        assert!(counts.states >= 10 && counts.opened >= 4, "{}: {counts:?}", verb.name);
    }
}

#[test]
fn a_second_fault_during_a_resilver_loses_nothing() {
    for (operation, every) in [(Operation::Read, 7), (Operation::Write, 9), (Operation::Flush, 3)] {
        let struck = double_faults(operation, every).unwrap_or_else(|what| panic!("{what}"));
        assert!(struck > 0, "{operation:?}");
    }
}

#[test]
fn devices_that_return_with_old_content_are_not_believed() {
    for (redundancy, count, short) in [
        (Redundancy::Mirror, 3, None),
        (Redundancy::Raidz(1), 4, None),
        (Redundancy::Raidz(2), 5, None),
        (Redundancy::Raidz(3), 6, None),
        (Redundancy::Raidz(1), 4, Some((0, SHORT_SLOTS))),
        (Redundancy::Raidz(2), 5, Some((1, SHORT_SLOTS))),
    ] {
        old_content(redundancy, count, short).unwrap_or_else(|what| panic!("{what}"));
    }
}
