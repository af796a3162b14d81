//! Groups with parity on devices of different sizes: they hold as much as the parity allows, and
//! what is narrow survives what all else does.

use std::collections::BTreeSet;

use crate::common::MiniPool;
use steadfast_format::{DatasetId, DeviceId, SegmentId};
use steadfast_segment::{Class, Depth, Error, Geometry, Moved, Redundancy};

const GEOMETRY: Geometry = Geometry { slot_size: 128 << 10, unit: 512 };
const OWNER: DatasetId = DatasetId(0);

/// Parity, sizes in slots, and how many slots can be filled: all but the largest devices, as many
/// as there are of parity.
const GROUPS: [(u8, &[u32], u64); 5] = [
    (1, &[180, 180, 60], 120),
    (1, &[120, 90, 60, 30], 60),
    (2, &[180, 180, 180, 60, 60], 100),
    (1, &[180, 180, 180, 60, 60], 120),
    // Segments of four columns of data have two at least, so of what the two largest have to
    // themselves a part is not used.
    (1, &[180, 180, 30, 30, 30], 45),
];

fn pool((parity, sizes, _): (u8, &[u32], u64)) -> MiniPool {
    MiniPool::with_uneven(GEOMETRY, sizes, Redundancy::Raidz(parity))
}

/// Writes small blocks until there is no room; gives the next name.
fn fill(pool: &mut MiniPool, mut name: u64) -> u64 {
    let mut refused = 0;
    while refused < 3 {
        match pool.write(name, OWNER, 1500) {
            Ok(()) => {
                name += 1;
                refused = 0;
                if name.is_multiple_of(256) {
                    pool.commit();
                }
            }
            Err(Error::NoSpace) => {
                refused += 1;
                pool.commit();
            }
            Err(error) => panic!("{error}"),
        }
    }
    name
}

/// Rows of file content with fewer columns than there are devices.
fn narrow(pool: &MiniPool) -> usize {
    let content = [Class::Data as u8, Class::Clean as u8];
    let rows = pool.durable.rows.values().filter(|row| content.contains(&row.class));
    rows.filter(|row| row.place.columns().count() < pool.devices.len()).count()
}

fn slots(bytes: u64) -> u64 {
    bytes / u64::from(GEOMETRY.slot_size)
}

#[test]
fn devices_are_filled_as_far_as_the_parity_allows() {
    for group in GROUPS {
        let mut pool = pool(group);
        let before = pool.space.accounting();
        assert_eq!(slots(before.size_bytes), group.2, "{group:?}");
        fill(&mut pool, 0);
        let full = pool.space.accounting();
        // Less slots that the commit keeps, and the pool's own metadata with what is dead beside
        // it.
        assert!(slots(full.live_bytes) + 16 >= group.2, "{group:?}: {full:?}");
        assert!(narrow(&pool) > 10, "{group:?}");
        pool.verify();
        pool.crash();
        pool.verify();
        let again = pool.space.accounting();
        assert_eq!((again.size_bytes, again.live_bytes), (full.size_bytes, full.live_bytes), "{group:?}");
    }
}

/// A commit's worth of blocks, as a pool lets them in, and the commit with its cleaning. Gives how
/// many were written.
fn write_some(pool: &mut MiniPool, mut pick: impl FnMut() -> Option<u64>) -> u64 {
    const LEN: usize = 8 << 10;
    let room = pool.space.room_for_txg_bytes(LEN as u32).min(1 << 20) / LEN as u64;
    let mut written = 0;
    for _ in 0..room {
        let accounting = pool.space.accounting();
        if accounting.live_bytes + LEN as u64 > accounting.capacity_bytes {
            break;
        }
        let Some(name) = pick() else { break };
        pool.write(name, OWNER, LEN).expect("what was admitted finds room");
        written += 1;
    }
    pool.clean(4 << 20);
    pool.commit();
    written
}

#[test]
fn capacity_can_be_lived_in_and_never_falls() {
    for group in GROUPS {
        let mut pool = pool(group);
        let mut capacity = pool.space.accounting().capacity_bytes;
        let names = capacity * 93 / 100 / (8 << 10);
        let (mut done, mut futile, mut seed) = (0, 0, 1_u64);
        // Filled, and then as much once more, anywhere.
        while done < 2 * names {
            let mut next = done;
            let written = write_some(&mut pool, || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                next += 1;
                (next <= 2 * names).then_some(if next <= names { next } else { 1 + (seed >> 33) % names })
            });
            done += written;
            futile = if written == 0 { futile + 1 } else { 0 };
            let accounting = pool.space.accounting();
            assert!(futile < 100, "{group:?}: no progress after {done} of {names}: {accounting:?}");
            assert!(accounting.capacity_bytes >= capacity, "{group:?}: {accounting:?} after {capacity}");
            capacity = accounting.capacity_bytes;
        }
        assert!(pool.space.accounting().live_bytes >= names * (8 << 10), "{group:?}");
        pool.verify();
        pool.crash();
        pool.verify();
    }
}

/// All sets of so many of the devices.
fn sets(devices: usize, count: u32) -> impl Iterator<Item = BTreeSet<usize>> {
    let all = (0..1_u32 << devices).filter(move |set| set.count_ones() == count);
    all.map(move |set| (0..devices).filter(|at| set >> at & 1 == 1).collect())
}

#[test]
fn any_devices_that_can_be_spared_may_be_away() {
    for (parity, sizes, blocks) in
        [(1, &[60, 60, 20][..], 460), (1, &[60, 45, 30, 15][..], 330), (2, &[90, 90, 90, 30, 30][..], 570)]
    {
        let mut pool = MiniPool::with_uneven(GEOMETRY, sizes, Redundancy::Raidz(parity));
        for name in 0..blocks {
            pool.write(name, OWNER, 8000).expect("there is room");
            if name % 50 == 49 {
                pool.commit();
            }
        }
        pool.commit();
        assert!(narrow(&pool) > 0, "{sizes:?}");
        for gone in sets(sizes.len(), parity.into()) {
            pool.gone.clone_from(&gone);
            pool.import().unwrap();
            pool.verify();
            // And the pool goes on without them: what is written lacks no more columns than its
            // parity makes up for.
            for name in 2000..2020 {
                pool.write(name, OWNER, 8000).expect("there is room");
            }
            pool.commit();
            pool.verify();
            for row in pool.durable.rows.values() {
                let missing = row.place.columns().filter(Option::is_none).count();
                assert!(missing <= row.place.redundancy(), "{row:?}");
            }
            pool.gone.clear();
            pool.import().unwrap();
            pool.verify();
            // Those that are away next may be all that a row can do without. The next commit knows
            // the blocks of the commit itself.
            for _ in 0..2 {
                assert_eq!(mend(&pool), 0, "{sizes:?} {gone:?}");
                pool.commit();
            }
            assert!(pool.space.mendable(true).is_empty(), "{sizes:?} {gone:?}");
            (2000..2020).for_each(|name| pool.free(name));
            pool.clean(1 << 20);
            pool.commit();
        }
    }
}

/// Builds what is missing, with the checksums that are stored. Gives the columns that found no
/// room. As a resilver does, it ends those segments only that lack something: what is left of the
/// others is room that the commit has counted on.
fn mend(pool: &MiniPool) -> u32 {
    pool.space.close_incomplete().expect("the devices write");
    let sums = |id: SegmentId| -> Vec<[u8; 16]> {
        let parts = pool.durable.sums.range((id, 0)..=(id, u32::MAX));
        parts.flat_map(|(_, part)| part.sums.iter().copied()).collect()
    };
    let ids = pool.space.mendable(true).into_iter().filter(|id| pool.durable.rows.contains_key(id));
    let patients: Vec<_> = ids.map(|id| (id, sums(id))).collect();
    pool.space.mend_all(&patients, Depth::All, &Vec::new).expect("the devices are there").missing
}

/// [uneven.7]
#[test]
fn a_device_that_was_away_has_room_for_what_was_written_without_it() {
    for group in [GROUPS[0], GROUPS[1], GROUPS[2]] {
        for gone in 0..group.1.len() {
            let mut pool = pool(group);
            let mut name = 0;
            while pool.space.accounting().free_bytes * 2 > pool.space.accounting().size_bytes {
                pool.write(name, OWNER, 1500).expect("there is room");
                name += 1;
            }
            pool.commit();
            pool.commit();
            let before = pool.space.accounting();
            let device = DeviceId(gone as u64 + 1);
            assert!(pool.space.take_out(device));
            let without = pool.space.accounting();
            assert_eq!(without.size_bytes, before.size_bytes, "{group:?} {device}");
            // Columns of what was open are left, whose slots come back with the commit.
            assert!(slots(before.free_bytes) <= slots(without.free_bytes) + 8, "{group:?} {device}");
            fill(&mut pool, name);
            pool.space.take_in(device, pool.devices[gone].clone());
            pool.commit();
            // The next commit knows the blocks of the commit itself.
            for _ in 0..2 {
                assert_eq!(mend(&pool), 0, "{group:?} {device}");
                pool.commit();
            }
            assert!(pool.space.mendable(true).is_empty(), "{group:?} {device}");
            pool.verify();
        }
    }
}

#[test]
fn a_larger_device_makes_narrow_segments_wide() {
    let mut pool = pool(GROUPS[0]);
    let mut name = 0;
    let mut next = || {
        name += 1;
        Some(name)
    };
    let mut refused = 0;
    while refused < 20 {
        refused = if write_some(&mut pool, &mut next) == 0 { refused + 1 } else { 0 };
    }
    let (before, most) = (narrow(&pool), slots(pool.space.accounting().live_bytes));
    // All three hold 180 slots now; but of the third device's 120 none can be taken by itself, once
    // what the others have free is used up.
    pool.sizes[2] = 180;
    assert_eq!(pool.space.grow_device(DeviceId(3), 180), 120);
    assert_eq!(slots(pool.space.accounting().size_bytes), 180);
    let mut commits = 0;
    while slots(pool.space.accounting().live_bytes) < most + 30 {
        write_some(&mut pool, &mut next);
        commits += 1;
        assert!(commits < 4000, "{:?}", pool.space.accounting());
    }
    assert!(narrow(&pool) < before, "{} of {before}", narrow(&pool));
    pool.verify();
    pool.crash();
    pool.verify();
}

#[test]
fn columns_can_be_moved_within_an_uneven_group() {
    let mut pool = pool(GROUPS[0]);
    for name in 0..3000 {
        pool.write(name, OWNER, 1500).expect("there is room");
    }
    pool.commit();
    pool.space.close_open().expect("the devices write");
    pool.commit();
    for id in pool.space.movable(false) {
        let parts = pool.durable.sums.range((id, 0)..=(id, u32::MAX));
        let sums: Vec<[u8; 16]> = parts.flat_map(|(_, part)| part.sums.iter().copied()).collect();
        let moved = pool.space.level(id, &sums, true).expect("the devices write");
        assert!(!matches!(moved, Moved::Unreadable), "{id}");
    }
    pool.commit();
    pool.verify();
}
