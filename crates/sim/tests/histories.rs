//! Histories of snapshots and clones equal a model of copies, wherever the power goes.

use steadfast_sim::histories::{Theme, explore};

/// One in so many states: all of them are `cargo run --release -p steadfast-sim -- --verbs`.
const EVERY: u64 = 5;
/// The same of histories with a checkpoint, whose states are opened three times.
const EVERY_CHECKPOINT: u64 = 40;

#[test]
fn snapshots_and_clones_are_copies_wherever_the_power_goes() {
    let (mut states, mut opened) = (0, 0);
    // As many on each of six settings.
    for seed in 0..36 {
        let counts = explore(Theme::Copies, seed, EVERY).unwrap_or_else(|what| panic!("{what}"));
        states += counts.states;
        opened += counts.opened;
    }
    println!("{states} states, {opened} opened");
    assert!(states > 1000 && opened > 150, "{states} {opened}");
}

/// A pool that has a checkpoint goes back to it from any state; the way back and the discard are
/// done or not.
#[test]
fn a_checkpoint_is_kept_wherever_the_power_goes() {
    let (mut states, mut opened, mut back) = (0, 0, 0);
    // One on each of eight settings, and two that found slots which two segments claimed.
    for seed in (0..8).chain([14, 40]) {
        let counts =
            explore(Theme::Checkpoint, seed, EVERY_CHECKPOINT).unwrap_or_else(|what| panic!("{what}"));
        states += counts.states;
        opened += counts.opened;
        back += counts.back;
    }
    println!("{states} states, {opened} opened, {back} of them went back");
    assert!(states > 1000 && opened > 100 && back > 50, "{states} {opened} {back}");
}
