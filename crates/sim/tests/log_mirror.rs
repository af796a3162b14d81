//! Whichever side of a log mirror is left when the power went, it has every promise.

use steadfast_sim::mirror_faults::HISTORIES;

/// About so many states of each history: more of them are
/// `cargo run --release -p steadfast-sim -- --verbs`.
const STATES: usize = 24;

#[test]
fn one_side_of_a_log_mirror_is_enough_wherever_the_power_goes() {
    let (mut states, mut opened) = (0, 0);
    for history in HISTORIES {
        let counts = history.explore(STATES, 0).unwrap_or_else(|what| panic!("{what}"));
        println!("{}: {counts:?}", history.name);
        assert!(counts.states >= 8 && counts.opened > 0, "{}: {counts:?}", history.name);
        states += counts.states;
        opened += counts.opened;
    }
    assert!(states > 150 && opened > 150, "{states} {opened}");
}

/// Under other draws other writes are left out, and other events looked at.
#[test]
fn so_it_is_under_any_draw() {
    let mut states = 0;
    for seed in 1..5 {
        for history in HISTORIES {
            let counts = history.explore(STATES / 4, seed);
            states += counts.unwrap_or_else(|what| panic!("seed {seed}: {what}")).states;
        }
    }
    assert!(states > 100, "{states}");
}
