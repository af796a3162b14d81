//! (C1): the cleaner leaves the commit its room in open segments. The simulated pool of `examples/cleaner_curve`, which
//! writes the leaves that changed rows lie in; an error is a commit that found no slot.

#[path = "../examples/cleaner_curve/device.rs"]
mod device;
#[path = "../examples/cleaner_curve/tree.rs"]
mod tree;
#[allow(dead_code, reason = "the example uses the rest")]
#[path = "../examples/cleaner_curve/world.rs"]
mod world;

use world::{Setting, World};

/// Hot blocks make cheap victims and many small runs, so many leaves of relocations change in a commit; with the cleaner
/// filling the segments they go to, commit 4,507 found no slot.
#[test]
fn commits_find_room_at_95_percent_when_a_tenth_is_hot() {
    let setting = Setting {
        slots: 256,
        slot_bytes: 4 << 20,
        block_bytes: 128 << 10,
        percent: 95,
        device_rate: 400_000_000,
        flush_ns: 2_000_000,
        memory_rate: 1_000_000_000,
        clean_bytes: 12 << 20,
        hot_tenths: 9,
    };
    let seen = World::new(setting).run(4.0, 6.0).expect("what was admitted is committed");
    assert!(seen.sums.commits > 1000 && seen.sums.moved > seen.sums.accepted, "{:?}", seen.sums);
}
