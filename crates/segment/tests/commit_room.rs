//! Invariants [commit_room.1] and [commit_room.2]: what was admitted is committed, whatever a
//! commit's metadata comes to. The simulated pool of `examples/cleaner_curve`, which writes the
//! nodes that changed extents, rows and relocations lie in; an error is a commit that found no
//! slot, which would suspend a pool.

#[path = "../examples/cleaner_curve/device.rs"]
mod device;
#[path = "../examples/cleaner_curve/tree.rs"]
mod tree;
#[allow(dead_code, reason = "the example uses the rest")]
#[path = "../examples/cleaner_curve/world.rs"]
mod world;

use world::{Nodes, Setting, World};

/// Hot blocks make cheap victims and many small runs, so many leaves of relocations change in a
/// commit; with the cleaner filling the segments they go to, commit 4,507 found no slot.
#[test]
fn commits_find_room_at_95_percent_when_a_tenth_is_hot() {
    let setting = Setting {
        slots: 256,
        uneven: &[],
        slot_bytes: 4 << 20,
        block_bytes: 128 << 10,
        percent: 95,
        device_rate: 400_000_000,
        flush_ns: 2_000_000,
        memory_rate: 1_000_000_000,
        clean_bytes: Some(12 << 20),
        longer_ns: u64::MAX,
        hot_tenths: 9,
        nodes: Nodes::COMPRESSED,
    };
    let seen = World::new(setting).run(4.0, 6.0).expect("what was admitted is committed");
    assert!(seen.sums.commits > 1000 && seen.sums.moved > seen.sums.accepted, "{:?}", seen.sums);
}

/// Simulated milliseconds: what the machine does beside is not in them. Where the cleaner's stream
/// was full and writers had left little, the cleaner stopped, writers took the rest, and the slot
/// that it then took was waited for by all: 285 ms here.
#[test]
fn no_write_waits_for_the_slots_that_the_cleaner_takes() {
    let setting = Setting {
        slots: 256,
        uneven: &[],
        slot_bytes: 4 << 20,
        block_bytes: 128 << 10,
        percent: 95,
        device_rate: 400_000_000,
        flush_ns: 2_000_000,
        memory_rate: 1_000_000_000,
        clean_bytes: None,
        longer_ns: u64::MAX,
        hot_tenths: 1,
        nodes: Nodes::COMPRESSED,
    };
    let mut waits = World::new(setting).run(2.0, 3.0).expect("what was admitted is committed").waits;
    waits.sort_unstable();
    let (most, late) = (waits[waits.len() - 1], waits[waits.len() * 999 / 1000]);
    assert!(most < 200_000_000 && late < 125_000_000, "{most} and {late} ns of {} waits", waits.len());
}

/// A pool at so many hundredths of its capacity, metadata included, is overwritten and then
/// emptied.
fn overwrite_and_delete(slot_bytes: u32, slots: u32, block_bytes: u32, percent: u64, hot_tenths: u64) {
    overwrite_and_delete_on(&[], slot_bytes, slots, block_bytes, percent, hot_tenths);
}

/// The same on one device, or on a raidz1 group of several.
fn overwrite_and_delete_on(
    uneven: &'static [u32],
    slot_bytes: u32,
    slots: u32,
    block_bytes: u32,
    percent: u64,
    hot_tenths: u64,
) {
    // Small blocks are many, and each of them changes nodes larger than itself.
    let fold = if block_bytes <= 4 << 10 { 0.03 } else { 0.3 };
    let setting = Setting {
        slots,
        uneven,
        slot_bytes,
        block_bytes,
        percent,
        device_rate: 400_000_000,
        flush_ns: 2_000_000,
        memory_rate: 1_000_000_000,
        clean_bytes: Some(8 << 20),
        longer_ns: u64::MAX,
        hot_tenths,
        // Sealed, and nothing compresses: the most that can come.
        nodes: Nodes::LARGEST,
    };
    let mut world = World::new(setting);
    let seen = world.run(fold, fold).unwrap_or_else(|error| panic!("{setting:?}: {error}"));
    assert!(seen.sums.accepted > 0 && seen.sums.metadata > 0, "{setting:?}: {:?}", seen.sums);
    world.delete_all().unwrap_or_else(|error| panic!("{setting:?}, deleting: {error}"));
}

/// Utilisations, and tenths of the writes that go to a tenth of the blocks.
fn grid(slot_bytes: u32, slots: u32, block_bytes: u32) {
    for percent in [85, 95, 98] {
        for hot_tenths in [1, 9] {
            overwrite_and_delete(slot_bytes, slots, block_bytes, percent, hot_tenths);
        }
    }
}

#[test]
fn commits_find_room_with_blocks_of_4_kib_in_slots_of_1_mib() {
    grid(1 << 20, 64, 4 << 10);
    overwrite_and_delete(1 << 20, 254, 4 << 10, 95, 1);
}

#[test]
fn commits_find_room_with_blocks_of_16_and_32_kib_in_slots_of_1_mib() {
    grid(1 << 20, 64, 16 << 10);
    grid(1 << 20, 254, 32 << 10);
}

#[test]
fn commits_find_room_with_blocks_of_128_kib_in_slots_of_1_mib() {
    grid(1 << 20, 64, 128 << 10);
    grid(1 << 20, 254, 128 << 10);
}

#[test]
fn commits_find_room_in_slots_of_4_mib() {
    grid(4 << 20, 64, 4 << 10);
    grid(4 << 20, 64, 16 << 10);
    grid(4 << 20, 128, 128 << 10);
}

/// Narrow segments hold half of a slot or a third, and each ends with a rest of its own.
#[test]
fn commits_find_room_on_devices_of_different_sizes() {
    const HALVES: &[u32] = &[64, 192, 192];
    const THIRDS: &[u32] = &[80, 120, 160, 200];
    for (uneven, block_bytes, percent, hot_tenths) in [
        (HALVES, 128 << 10, 95, 1),
        (HALVES, 128 << 10, 98, 9),
        (HALVES, 16 << 10, 95, 9),
        (THIRDS, 128 << 10, 95, 1),
        (THIRDS, 16 << 10, 95, 9),
    ] {
        overwrite_and_delete_on(uneven, 1 << 20, 0, block_bytes, percent, hot_tenths);
    }
}
