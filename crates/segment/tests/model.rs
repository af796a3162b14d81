//! Random appends, frees, cleanings, commits, crashes and drops of owners against the simplest
//! model: a map of blocks.

use std::cell::Cell;

use crate::common::MiniPool;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use steadfast_format::DatasetId;
use steadfast_segment::{Class, Error, Geometry, Redundancy};

#[derive(Clone, Debug)]
enum Step {
    Write { name: u64, owner: u64, len: usize },
    Free { name: u64 },
    Clean { budget: u64 },
    Commit,
    Crash,
    DropOwner { owner: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..60_u64, 0..2_u64, 1..9000_usize).prop_map(|(name, owner, len)| Step::Write { name, owner, len }),
        5 => (0..60_u64).prop_map(|name| Step::Free { name }),
        3 => (1..200_000_u64).prop_map(|budget| Step::Clean { budget }),
        3 => Just(Step::Commit),
        1 => Just(Step::Crash),
        1 => (1..2_u64).prop_map(|owner| Step::DropOwner { owner }),
    ];
    proptest::collection::vec(step, 1..200)
}

fn run(pool: &mut MiniPool, steps: &[Step]) {
    for step in steps {
        match *step {
            Step::Write { name, owner, len } => {
                // A block keeps its owner.
                let name = name * 2 + owner;
                // A quarter of them are metadata, which has no floor: a pool admits as much as a
                // commit can take.
                let class = match name / 2 % 8 {
                    6 if pool.space.free_slots() > 8 => Class::Meta0,
                    7 if pool.space.free_slots() > 8 => Class::Meta1,
                    6 | 7 => continue,
                    _ => Class::Data,
                };
                match pool.write_class(name, DatasetId(owner), class, len) {
                    Ok(()) | Err(Error::NoSpace) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Free { name } => pool.free(name),
            Step::Clean { budget } => {
                pool.clean(budget);
            }
            Step::Commit => pool.commit(),
            Step::Crash => pool.crash(),
            Step::DropOwner { owner } => {
                let owner = DatasetId(owner);
                pool.space.drop_owner(owner);
                pool.blocks.retain(|_, block| block.owner != owner);
            }
        }
        pool.verify();
    }
    // In each case a crash now loses nothing that was committed, and a second import reads the
    // same.
    pool.commit();
    let committed = pool.blocks.clone();
    pool.crash();
    pool.verify();
    assert_eq!(pool.blocks, committed);
    pool.commit();
    pool.crash();
    pool.verify();
}

const SMALL: Geometry = Geometry { slot_size: 16 << 10, unit: 512 };

/// Runs many random histories; the cleaner must have had something to do in them.
fn explore(cases: u32, pool: impl Fn() -> MiniPool) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let moved = Cell::new(0);
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
        .run(&steps(), |steps| {
            let mut pool = pool();
            run(&mut pool, &steps);
            moved.set(moved.get() + pool.moved);
            Ok(())
        })
        .unwrap();
    assert!(moved.get() > 1 << 20, "the cleaner moved only {} bytes", moved.get());
}

#[test]
fn space_equals_the_model_on_two_appendable_devices() {
    explore(96, || MiniPool::new(SMALL, 12, &[true, true]));
}

#[test]
fn space_equals_the_model_on_whole_objects() {
    explore(96, || MiniPool::new(SMALL, 25, &[false]));
}

#[test]
fn space_equals_the_model_on_mixed_devices() {
    explore(96, || MiniPool::new(SMALL, 13, &[true, false]));
}

#[test]
fn space_equals_the_model_on_mirrors_and_raidz() {
    for (redundancy, width, devices) in [
        (Redundancy::Mirror, 2, 2),
        (Redundancy::Mirror, 3, 4),
        (Redundancy::Raidz(1), 3, 3),
        (Redundancy::Raidz(2), 5, 6),
        (Redundancy::Raidz(3), 4, 4),
    ] {
        explore(32, || {
            let pool = MiniPool::with_group(SMALL, 30, redundancy, width, devices);
            assert!(pool.space.accounting().slots >= 25);
            pool
        });
    }
}

/// Narrow segments need slots that hold a tail in a part of them.
#[test]
fn space_equals_the_model_on_devices_of_different_sizes() {
    let geometry = Geometry { slot_size: 64 << 10, unit: 512 };
    for (parity, sizes) in [(1, &[8, 36, 36][..]), (2, &[8, 30, 30, 30][..])] {
        explore(24, || {
            let pool = MiniPool::with_uneven(geometry, sizes, Redundancy::Raidz(parity));
            let whole = u64::from(*sizes.iter().min().expect("there are some"));
            assert!(pool.space.accounting().slots > 2 * whole);
            pool
        });
    }
}
