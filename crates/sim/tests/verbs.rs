//! Verbs that change what a pool is made of may be cut anywhere, and a second device may fail while
//! one is replaced.

use steadfast_device::Operation;
use steadfast_sim::second_faults::{SECOND_FAULTS, STALE_GROUPS};
use steadfast_sim::verbs_devices::VERBS;
use steadfast_sim::verbs_snapshots::SNAPSHOT_VERBS;
use steadfast_sim::verbs_streams::{STREAM_VERBS, VOLUME_VERBS};

/// One in so many states: all of them are `cargo run --release -p steadfast-sim -- --verbs`.
const EVERY: u64 = 11;

/// The same of verbs on devices of different sizes, whose histories are long: a pool is filled
/// until its segments get narrower.
const EVERY_UNEVEN: u64 = 23;

/// Kinds of verbs of devices: each kind is a test, so that they run side by side.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Groups of unequal devices.
    Uneven,
    /// Log devices and log mirrors.
    Log,
    /// Scrub and resilver.
    Scan,
    /// Special groups.
    Special,
    /// Groups that come and go.
    Group,
    /// Devices of a group, spares, split, reguid.
    Device,
}

/// The kind of a verb; each verb has one.
fn kind(name: &str) -> Kind {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match () {
        () if has(&["uneven"]) => Kind::Uneven,
        () if has(&["log"]) => Kind::Log,
        () if has(&["scrub", "resilver"]) => Kind::Scan,
        () if has(&["special"]) => Kind::Special,
        () if has(&["add", "remove"]) => Kind::Group,
        () => Kind::Device,
    }
}

#[test]
fn verbs_of_devices_may_be_cut_anywhere() {
    may_be_cut(EVERY, Kind::Device);
}

#[test]
fn verbs_of_groups_may_be_cut_anywhere() {
    may_be_cut(EVERY, Kind::Group);
}

#[test]
fn verbs_of_special_groups_may_be_cut_anywhere() {
    may_be_cut(EVERY, Kind::Special);
}

#[test]
fn verbs_beside_log_devices_may_be_cut_anywhere() {
    may_be_cut(EVERY, Kind::Log);
}

#[test]
fn scans_may_be_cut_anywhere() {
    may_be_cut(EVERY, Kind::Scan);
}

#[test]
fn verbs_of_uneven_groups_may_be_cut_anywhere() {
    may_be_cut(EVERY_UNEVEN, Kind::Uneven);
}

/// One in so many states of each verb of a kind.
fn may_be_cut(every: u64, which: Kind) {
    let (mut verbs, mut opened) = (0, 0);
    for verb in VERBS.iter().filter(|verb| kind(verb.name) == which) {
        let counts = verb.explore(every).unwrap_or_else(|what| panic!("{what}"));
        println!("{}: {counts:?}", verb.name);
        assert!(counts.states > 50, "{}: {counts:?}", verb.name);
        (verbs, opened) = (verbs + 1, opened + counts.opened);
    }
    assert!(verbs >= 3 && opened > 100, "{which:?}: {verbs} {opened}");
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

/// The end of a stream shows all of it at once; what is there of it before is freed or gone on
/// with.
#[test]
fn verbs_of_streams_may_be_cut_anywhere() {
    for verb in STREAM_VERBS {
        let counts = verb.explore(3).unwrap_or_else(|what| panic!("{what}"));
        println!("{}: {counts:?}", verb.name);
        assert!(counts.states >= 20 && counts.opened >= 5, "{}: {counts:?}", verb.name);
    }
}

/// Compressed streams, under several draws.
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

/// States of a cut beside each second fault.
const DOUBLE_CUTS: usize = 4;

#[test]
fn faults_and_a_cut_during_a_resilver_lose_nothing() {
    let mut cut = 0;
    for double in SECOND_FAULTS {
        for (operation, every) in [(Operation::Read, 3), (Operation::Write, 9), (Operation::Flush, 3)] {
            let counts =
                double.explore(operation, every, DOUBLE_CUTS).unwrap_or_else(|what| panic!("{what}"));
            println!("{}, {operation:?}: {counts:?}", double.name());
            assert!(counts.struck > 0, "{}, {operation:?}: {counts:?}", double.name());
            cut += counts.cut;
        }
    }
    assert!(cut > 50, "{cut}");
}

#[test]
fn devices_that_return_with_old_content_are_not_believed() {
    for old in STALE_GROUPS {
        let sets = old.explore().unwrap_or_else(|what| panic!("{what}"));
        assert!(sets >= 3, "{}", old.name());
    }
}

/// A scrub that was under way when the power went goes on, and finds the rest. `STEADFAST_LONG=1`
/// takes every state of the mirror.
#[test]
fn a_scrub_goes_on_where_the_power_went() {
    let scrubs: Vec<_> = VERBS.iter().filter(|verb| !verb.spoilt.is_empty()).collect();
    assert_eq!(scrubs.len(), 2);
    let is_long = std::env::var_os("STEADFAST_LONG").is_some_and(|value| value == "1");
    let of_mirror = if is_long { 1 } else { EVERY };
    for (verb, every) in scrubs.into_iter().zip([of_mirror, EVERY]) {
        let counts = verb.explore_drawn(every, 1).unwrap_or_else(|what| panic!("{what}"));
        println!("{}: {counts:?}", verb.name);
        assert!(counts.resumed > 20, "{}: {counts:?}", verb.name);
    }
}
