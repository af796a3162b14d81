//! The cleaner gets on: pools at 60, 90 and 100 % of their capacity are overwritten many times, and
//! deleting always works.

use crate::common::{MiniPool, read};
use steadfast_format::DatasetId;
use steadfast_segment::Geometry;

/// A pool of 252 slots, like a 256 MiB image, but of smaller slots.
const GEOMETRY: Geometry = Geometry { slot_size: 128 << 10, unit: 512 };
const SLOTS: u32 = 252;
const OWNER: DatasetId = DatasetId(0);
const CLEAN_BYTES_MAX: u64 = 4 << 20;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The cleaning of a sync, and its commit.
fn sync(pool: &mut MiniPool) {
    pool.clean(CLEAN_BYTES_MAX);
    pool.commit();
}

struct Outcome {
    written: u64,
    futile_max: u32,
}

/// Fills to `percent` of the capacity with blocks of `len` bytes, then overwrites `fold` times
/// that, names drawn by `pick`.
fn overwrite(
    pool: &mut MiniPool,
    percent: u64,
    len: usize,
    fold: u64,
    mut pick: impl FnMut(u64, u64) -> u64,
) -> Outcome {
    let asize = len.next_multiple_of(pool.geometry.unit as usize) as u64;
    let capacity = pool.space.accounting().capacity_bytes;
    let names = capacity * percent / 100 / asize;
    let total = names * (fold + 1);
    let (mut done, mut futile, mut futile_max) = (0, 0, 0);
    while done < total {
        let room = pool.space.room_for_txg_bytes(len as u32).min(2 << 20) / asize;
        for _ in 0..room {
            if done == total {
                break;
            }
            let name = if done < names { done } else { pick(done, names) };
            // Admission: what lives, and this block, fit the capacity.
            let accounting = pool.space.accounting();
            if accounting.live_bytes + asize > accounting.capacity_bytes {
                break;
            }
            pool.write(name, OWNER, len).expect("what was admitted finds room");
            done += 1;
            futile = 0;
        }
        futile += 1;
        futile_max = futile_max.max(futile);
        assert!(futile < 50, "no progress after {done} of {total}: {:?}", pool.space.accounting());
        sync(pool);
    }
    pool.verify();
    pool.crash();
    pool.verify();
    Outcome { written: total * asize, futile_max }
}

#[test]
fn twenty_fold_overwriting_at_60_percent_works() {
    let mut pool = MiniPool::new(GEOMETRY, SLOTS, &[true]);
    let mut random = Random(1);
    let outcome = overwrite(&mut pool, 60, 16 << 10, 20, |_, names| random.below(names));
    let amplification = (pool.moved + outcome.written) as f64 / outcome.written as f64;
    assert!(amplification < 2.0, "the cleaner wrote {} for {}", pool.moved, outcome.written);
}

#[test]
fn sequential_overwriting_costs_the_cleaner_almost_nothing() {
    let mut pool = MiniPool::new(GEOMETRY, SLOTS, &[true]);
    let outcome = overwrite(&mut pool, 60, 16 << 10, 20, |done, names| done % names);
    assert!(pool.moved * 20 < outcome.written, "the cleaner wrote {} for {}", pool.moved, outcome.written);
}

#[test]
fn small_random_blocks_at_90_percent_work() {
    let mut pool = MiniPool::new(GEOMETRY, SLOTS, &[true]);
    let mut random = Random(2);
    overwrite(&mut pool, 90, 1024, 4, |_, names| random.below(names));
}

#[test]
fn a_hot_tenth_at_90_percent_works() {
    let mut pool = MiniPool::new(GEOMETRY, SLOTS, &[true, true]);
    let mut random = Random(3);
    overwrite(&mut pool, 90, 4096, 5, |_, names| match random.below(10) {
        0 => random.below(names),
        _ => random.below(names / 10),
    });
}

#[test]
fn a_pool_filled_to_its_capacity_still_gets_on() {
    let mut pool = MiniPool::new(GEOMETRY, SLOTS, &[true]);
    let mut random = Random(4);
    let outcome = overwrite(&mut pool, 98, 8 << 10, 1, |_, names| random.below(names));
    assert!(outcome.futile_max < 50);
    // Deleting needs no room of its own: everything goes, in any order, and comes back as free
    // slots.
    let names: Vec<u64> = pool.blocks.keys().copied().collect();
    for part in names.chunks(100) {
        part.iter().for_each(|&name| pool.free(name));
        sync(&mut pool);
    }
    pool.verify();
    assert!(pool.space.free_slots() > SLOTS - 20, "{:?}", pool.space.accounting());
}

#[test]
fn whole_objects_are_cleaned_too() {
    let mut pool = MiniPool::new(GEOMETRY, SLOTS, &[false]);
    let mut random = Random(5);
    overwrite(&mut pool, 60, 8 << 10, 5, |_, names| random.below(names));
}

#[test]
fn several_owners_get_on_side_by_side() {
    let mut pool = MiniPool::new(GEOMETRY, SLOTS, &[true]);
    let mut random = Random(6);
    (0..5).for_each(|owner| pool.space.expect_owner(DatasetId(owner)));
    for owner in 0..5 {
        for name in 0..400 {
            pool.write(owner * 1000 + name, DatasetId(owner), 8 << 10).unwrap();
        }
        sync(&mut pool);
    }
    let mut done = 0;
    let mut futile = 0;
    while done < 20_000 {
        let room = pool.space.room_for_txg_bytes(8 << 10).min(1 << 20) / (8 << 10);
        for _ in 0..room {
            let owner = random.below(5);
            pool.write(owner * 1000 + random.below(400), DatasetId(owner), 8 << 10).unwrap();
            done += 1;
            futile = 0;
        }
        futile += 1;
        pool.space.check().unwrap();
        assert!(futile < 50, "{:?}", pool.space.accounting());
        sync(&mut pool);
    }
    pool.verify();
    // A dropped owner's space is free after one commit, without a block of it having been read.
    let reads = pool.space.device_counts().values().map(|counts| counts.reads).sum::<u64>();
    let live = pool.space.accounting().live_bytes;
    assert_eq!(pool.space.drop_owner(DatasetId(3)), 400 * (8 << 10));
    pool.blocks.retain(|_, block| block.owner != DatasetId(3));
    assert_eq!(pool.space.accounting().live_bytes, live - 400 * (8 << 10));
    assert_eq!(pool.space.device_counts().values().map(|counts| counts.reads).sum::<u64>(), reads);
    pool.commit();
    pool.verify();
    pool.crash();
    pool.verify();
}

#[test]
fn a_loop_of_crashes_and_small_commits_does_not_fill_the_pool() {
    let mut pool = MiniPool::new(GEOMETRY, 64, &[true]);
    for turn in 0..400_u64 {
        pool.write(turn % 10, OWNER, 3000).expect("room");
        sync(&mut pool);
        pool.crash();
    }
    pool.verify();
}

#[test]
fn a_segment_that_cannot_be_read_is_left_alone_and_the_rest_is_cleaned() {
    use steadfast_device::memory::{Effect, Fault};
    let mut pool = MiniPool::new(GEOMETRY, 64, &[true]);
    for name in 0..800 {
        pool.write(name, OWNER, 8000).unwrap();
        if name % 50 == 0 {
            pool.commit();
        }
    }
    for name in (0..800).filter(|name| name % 4 != 0) {
        pool.free(name);
    }
    let operation = steadfast_device::Operation::Read;
    pool.devices[0].arm(Fault { operation, skip: 0, effect: Effect::FailOnce });
    let free = pool.space.free_slots();
    let report = pool.clean(u64::MAX);
    assert_eq!(report.segments_unreadable, 1);
    assert!(report.segments_emptied >= 3, "{report:?}");
    pool.commit();
    assert!(pool.space.free_slots() > free);
    pool.verify();
    for block in pool.blocks.values() {
        read(&pool.space, block).unwrap();
    }
}

#[test]
fn what_is_bad_where_nothing_lives_keeps_no_segment() {
    use steadfast_device::memory::{Effect, Fault};
    // So few slots that the cleaner is wanted.
    let mut pool = MiniPool::new(GEOMETRY, 20, &[true]);
    // In so many pieces that a victim is read as a whole.
    for name in 0..800 {
        pool.write(name, OWNER, 1500).unwrap();
        if name % 50 == 0 {
            pool.commit();
        }
    }
    for name in (0..800).filter(|name| name % 2 != 0) {
        pool.free(name);
    }
    let operation = steadfast_device::Operation::Read;
    pool.devices[0].arm(Fault { operation, skip: 0, effect: Effect::FailOnce });
    let report = pool.clean(u64::MAX);
    assert!(report.segments_unreadable == 0 && report.segments_emptied >= 4, "{report:?}");
    assert!(pool.devices[0].take_faults().is_empty(), "it struck");
    pool.commit();
    pool.verify();
    for block in pool.blocks.values() {
        read(&pool.space, block).unwrap();
    }
}

#[test]
fn a_commit_moves_no_more_than_its_budget_and_one_segment() {
    let mut pool = MiniPool::new(GEOMETRY, SLOTS, &[true]);
    let mut random = Random(7);
    let (len, budget) = (8 << 10, 512 << 10);
    let capacity = pool.space.accounting().capacity_bytes;
    let names = capacity * 90 / 100 / len as u64;
    let (mut done, mut moved, mut most) = (0, 0, 0);
    while done < names * 3 {
        let limit =
            pool.space.txg_bytes_max(len as u32, budget, 1000).min(pool.space.room_for_txg_bytes(len as u32));
        for _ in 0..limit / len as u64 {
            let name = if done < names { done } else { random.below(names) };
            pool.write(name, OWNER, len).expect("what was admitted finds room");
            done += 1;
        }
        let bytes = pool.clean(budget).bytes_moved;
        (moved, most) = (moved + bytes, most.max(bytes));
        pool.commit();
    }
    assert!(moved > 20 * budget, "there was something to do: {moved}");
    assert!(most <= budget + u64::from(GEOMETRY.slot_size), "{most} bytes in one commit");
    pool.verify();
}

#[test]
fn writers_are_let_in_by_as_much_as_the_cleaner_gives_back() {
    let mut pool = MiniPool::new(GEOMETRY, SLOTS, &[true]);
    let empty = pool.space.txg_bytes_max(8 << 10, 1 << 20, 1000);
    assert_eq!(empty, pool.space.room_for_txg_bytes(8 << 10) / 2, "nothing has to be cleaned");
    let capacity = pool.space.accounting().capacity_bytes;
    let mut random = Random(8);
    let names = capacity * 95 / 100 / (8 << 10);
    let mut done = 0;
    while done < names * 2 {
        for _ in 0..pool.space.room_for_txg_bytes(8 << 10).min(1 << 20) / (8 << 10) {
            let name = if done < names { done } else { random.below(names) };
            pool.write(name, OWNER, 8 << 10).expect("what was admitted finds room");
            done += 1;
        }
        pool.clean(4 << 20);
        pool.commit();
    }
    let limits = [1 << 20, 2 << 20].map(|budget| pool.space.txg_bytes_max(8 << 10, budget, 1000));
    assert!(limits[0] <= limits[1] && limits[1] < empty / 4, "{limits:?} of {empty}");
    assert!(limits[1] <= pool.space.room_for_txg_bytes(8 << 10), "{limits:?}");
}

#[test]
fn relocations_are_no_more_than_living_blocks_and_go_with_them() {
    let mut pool = MiniPool::new(GEOMETRY, SLOTS, &[true]);
    let mut random = Random(9);
    overwrite(&mut pool, 85, 4096, 3, |_, names| random.below(names));
    let blocks = (pool.blocks.len() + pool.pool_blocks.len()) as u64;
    let full = pool.space.accounting().relocations;
    // A block that lies across the end of a segment it was moved into has two.
    assert!(full > 1000 && full < blocks + u64::from(SLOTS), "{full} for {blocks} blocks");
    let names: Vec<u64> = pool.blocks.keys().copied().collect();
    for (at, part) in names.chunks(names.len() / 10 + 1).enumerate() {
        part.iter().for_each(|&name| pool.free(name));
        sync(&mut pool);
        let left = (pool.blocks.len() + pool.pool_blocks.len()) as u64;
        let relocations = pool.space.accounting().relocations;
        assert!(relocations <= left + u64::from(SLOTS), "part {at}: {relocations} for {left} blocks");
    }
    assert!(pool.space.accounting().relocations < 20, "{:?}", pool.space.accounting());
    pool.crash();
    pool.verify();
}

/// However long a pool is overwritten, its relocation table is bounded by what lives, and goes with
/// it.
#[test]
fn relocations_stay_bounded_over_many_times_the_pools_size() {
    for percent in [85, 95] {
        let mut pool = MiniPool::new(GEOMETRY, SLOTS, &[true]);
        let mut random = Random(percent);
        let (len, budget) = (8 << 10, 512 << 10);
        let names = pool.space.accounting().capacity_bytes * percent / 100 / len as u64;
        // The pool's size is some 1.2 times what lives.
        let (mut done, mut peaks) = (0, Vec::new());
        for tenth in 1..=10 {
            let mut peak = 0;
            while done < names * 2 * tenth {
                let limit = pool.space.txg_bytes_max(len as u32, budget, 1000);
                let limit = limit.min(pool.space.room_for_txg_bytes(len as u32));
                for _ in 0..limit / len as u64 {
                    let name = if done < names { done } else { random.below(names) };
                    pool.write(name, OWNER, len).expect("what was admitted finds room");
                    done += 1;
                }
                pool.clean(budget);
                pool.commit();
                let seen = pool.space.accounting();
                // A block that lies across the end of a segment has two.
                assert!(seen.relocations <= names + seen.slots, "{percent} %: {seen:?}");
                peak = peak.max(seen.relocations);
            }
            peaks.push(peak);
        }
        let (early, late) = (peaks[2..6].iter().max().unwrap(), peaks[6..].iter().max().unwrap());
        assert!(*early > 0 && *late <= early * 11 / 10, "{percent} %: it does not go on growing: {peaks:?}");
        pool.verify();
        for name in 0..names {
            pool.free(name);
        }
        for _ in 0..3 {
            pool.clean(u64::MAX);
            pool.commit();
        }
        let left = pool.space.accounting().relocations;
        assert!(left < 16, "{percent} %: {left} of {peaks:?} speak of what is gone");
    }
}
