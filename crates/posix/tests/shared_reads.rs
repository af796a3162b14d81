//! Reads without a copy: the same bytes as those with one, or none.

use crate::support::{Draw, ROOT, World};
use steadfast_dataset::Settings;
use steadfast_env::Env;
use steadfast_posix::{Fallocate, SetAttr, SetIds};

/// Bytes that the file may have.
const SIZE_MAX: usize = 1 << 20;

/// Reads a range both ways. True if it was there without a copy.
fn compare(world: &World, ino: u64, offset: usize, length: usize) -> bool {
    let mut copied = vec![0xee; length];
    let count = world.fs.read(ino, offset as u64, &mut copied).expect("readable");
    let shared = world.fs.read_shared(ino, offset as u64, length).expect("readable");
    let Some(parts) = shared else { return false };
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    assert!(bytes == copied[..count], "{length} at {offset}");
    assert!(parts.iter().all(|part| !part.is_empty()) && !parts.is_empty());
    true
}

#[test]
fn a_read_without_a_copy_has_the_same_bytes_in_any_state_of_a_file() {
    let mut shared = 0;
    for seed in 0..8 {
        let mut world = World::new(Env::real(), Settings::default());
        let ino = world.file("f");
        let mut draw = Draw(seed);
        for _ in 0..60 {
            let at = draw.below(SIZE_MAX);
            let length = 1 + draw.below(SIZE_MAX - at);
            match draw.below(12) {
                0..5 => {
                    let length = if draw.below(2) == 0 { length } else { length.min(5_000) };
                    let bytes = draw.bytes(length);
                    world.fs.write(ino, at as u64, &bytes, SetIds::Stay).expect("room");
                }
                5 => {
                    let hole = Fallocate::PunchHole;
                    world.fs.fallocate(ino, hole, at as u64, length as u64, SetIds::Stay).expect("punched");
                }
                6 => {
                    let set = SetAttr { size: Some(at as u64), ..SetAttr::default() };
                    world.fs.setattr(ino, &set).expect("cut");
                }
                7 => {
                    let txg = world.freeze();
                    shared += usize::from(compare(&world, ino, at, length));
                    world.sync(txg);
                }
                _ => world.commit(),
            }
            for _ in 0..6 {
                let at = draw.below(SIZE_MAX + 5_000);
                let length = 1 + draw.below(SIZE_MAX / 2);
                shared += usize::from(compare(&world, ino, at, length));
            }
        }
        // All of it, when it has been written once and stored.
        let bytes: Vec<u8> = (0..SIZE_MAX).map(|at| (at % 251) as u8).collect();
        let whole = world.fs.mknod(ROOT, 1, b"whole", 0o100_644, 0).expect("new");
        world.fs.write(whole.ino, 0, &bytes, SetIds::Stay).expect("room");
        assert!(compare(&world, whole.ino, 0, SIZE_MAX), "it is where it was written");
        world.fs.write(whole.ino, 70_000, &bytes[70_000..70_010], SetIds::Stay).expect("room");
        assert!(compare(&world, whole.ino, 1, SIZE_MAX), "a writer takes a copy, not the reader's bytes");
        world.commit();
        world.commit();
        assert!(compare(&world, whole.ino, 1, SIZE_MAX) && compare(&world, whole.ino, 12_345, 54_321));
        assert!(!compare(&world, whole.ino, SIZE_MAX, 10), "behind the end nothing is");
        world.fs.forget(whole.ino, 1);
    }
    assert!(shared > 100, "{shared} without a copy");
}

#[test]
fn what_cannot_be_read_without_a_copy_is_left_to_the_read_that_says_why() {
    let mut world = World::new(Env::real(), Settings::default());
    let ino = world.file("f");
    assert!(world.fs.read_shared(1, 0, 10).is_err(), "a directory");
    assert!(world.fs.read_shared(ino, 0, 10).expect("readable").is_none(), "an empty file");
    world.fs.write(ino, 0, &[1; 300_000], SetIds::Stay).expect("room");
    world.commit();
    world.commit();
    assert!(compare(&world, ino, 0, 300_000));
    // The extents are in the cache of nodes; the blocks fail from the second on.
    world.blocks.fail_reads_after(Some(1));
    assert!(world.fs.read_shared(ino, 0, 300_000).expect("no answer is none").is_none());
    world.blocks.fail_reads_after(Some(1));
    assert!(world.fs.read(ino, 0, &mut [0; 300_000]).is_err());
    world.blocks.fail_reads_after(None);
    assert!(compare(&world, ino, 0, 300_000));
}
