//! Histories of snapshots and clones equal a model of copies, wherever the power goes.

use steadfast_sim::histories::explore;

/// One in so many states: all of them are `cargo run --release -p steadfast-sim -- --verbs`.
const EVERY: u64 = 5;

#[test]
fn snapshots_and_clones_are_copies_wherever_the_power_goes() {
    let (mut states, mut opened) = (0, 0);
    // As many on each of six settings.
    for seed in 0..36 {
        let counts = explore(seed, EVERY).unwrap_or_else(|what| panic!("{what}"));
        states += counts.states;
        opened += counts.opened;
    }
    println!("{states} states, {opened} opened");
    assert!(states > 1000 && opened > 150, "{states} {opened}");
}
