//! Content stored before its txg closes: what it leaves behind, and what it does not.

use crate::support::World;
use steadfast_dataset::{ReceivedContent, Settings};
use steadfast_env::Env;
use steadfast_format::{BlockKind, Compression, InodeId};
use steadfast_posix::{Fallocate, SetAttr};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const RECORD: usize = 16 << 10;

/// Bytes that nothing takes for a hole.
fn content(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(1 + (at * 31 + seed) % 250).expect("small")).collect()
}

fn world() -> World {
    let settings = Settings { recordsize: u32::try_from(RECORD).expect("small"), zeros_are_holes: true };
    World::new(Env::seeded(3), settings)
}

/// Counts calls that write content.
fn count_writes(world: &World) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let at = Arc::clone(&count);
    world.blocks.watch_writes(move |kind| {
        at.fetch_add(usize::from(kind == BlockKind::Data), Ordering::Relaxed);
    });
    count
}

#[test]
fn what_is_stored_early_is_not_written_again() {
    let mut world = world();
    let file = world.file("f");
    world.commit();
    let writes = count_writes(&world);
    // Ten records and a half.
    let content = self::content(5, 10 * RECORD + RECORD / 2);
    world.fs.write(file, 0, &content, false).expect("writes");
    let before = world.blocks.live();
    assert!(world.write_early() && !world.write_early(), "all of it at once");
    assert_eq!((world.blocks.live() - before, writes.load(Ordering::Relaxed)), (10, 1));
    assert!(world.content(file) == content);
    world.commit();
    assert_eq!(writes.load(Ordering::Relaxed), 2, "the half is left to the sync");
    world.reopen();
    assert!(world.content(file) == content);
    world.check();
}

#[test]
fn what_changes_after_it_was_stored_is_freed() {
    let mut world = world();
    let file = world.file("f");
    world.commit();
    let empty = world.blocks.live();
    let mut content = self::content(6, 8 * RECORD);
    world.fs.write(file, 0, &content, false).expect("writes");
    assert!(world.write_early());
    // One is overwritten in part, one whole, one gets a hole, one is cut off with half of the one
    // before it.
    for (at, length) in [(100, 50), (RECORD, RECORD)] {
        content[at..at + length].fill(9);
        world.fs.write(file, at as u64, &content[at..at + length], false).expect("writes");
    }
    let hole = 3 * RECORD + 10..3 * RECORD + 1_000;
    world
        .fs
        .fallocate(file, Fallocate::PunchHole, hole.start as u64, hole.len() as u64, false)
        .expect("punches");
    content[hole].fill(0);
    content.truncate(6 * RECORD + RECORD / 2);
    let set = SetAttr { size: Some(content.len() as u64), ..SetAttr::default() };
    world.fs.setattr(file, &set).expect("cuts");
    assert!(!world.write_early(), "a record is stored early once a txg");
    assert!(world.content(file) == content);
    // `World::take` compares what is counted with what is there.
    world.commit();
    assert!(world.content(file) == content);
    world.reopen();
    assert!(world.content(file) == content);
    world.check();
    world.fs.unlink(1, b"f").expect("removes");
    world.fs.forget_all();
    world.check();
    assert!(world.blocks.live() <= empty, "nothing is left of it");
}

#[test]
fn a_file_that_goes_with_its_txg_leaves_nothing() {
    let mut world = world();
    let before = world.blocks.live();
    let file = world.file("f");
    world.fs.write(file, 0, &content(7, 4 * RECORD), false).expect("writes");
    assert!(world.write_early());
    assert_eq!(world.blocks.live(), before + 4);
    world.fs.unlink(1, b"f").expect("removes");
    world.check();
    assert_eq!(world.blocks.live(), before);
}

#[test]
fn a_crash_forgets_what_was_stored_early() {
    let mut world = world();
    let file = world.file("f");
    let old = content(1, 2 * RECORD);
    world.fs.write(file, 0, &old, false).expect("writes");
    world.commit();
    let before = world.blocks.live();
    world.fs.write(file, 0, &content(2, 2 * RECORD), false).expect("writes");
    assert!(world.write_early());
    world.reopen();
    assert!(world.content(file) == old);
    assert_eq!(world.blocks.live(), before);
    world.check();
}

#[test]
fn zeros_and_what_fits_into_the_tree_are_left_to_the_sync() {
    let mut world = world();
    let file = world.file("f");
    let mut content = vec![0; 3 * RECORD];
    content[..5].fill(1);
    content[2 * RECORD..2 * RECORD + 100].fill(2);
    world.fs.write(file, 0, &content, false).expect("writes");
    let before = world.blocks.live_bytes();
    assert!(world.write_early());
    assert_eq!(world.blocks.live_bytes() - before, 4096, "one piece of the last record");
    world.commit();
    world.reopen();
    assert!(world.content(file) == content);
    assert_eq!(world.fs.seek(file, RECORD as u64, true), Ok(2 * RECORD as u64));
    world.check();
}

#[test]
fn what_cannot_be_stored_early_is_stored_by_the_sync() {
    let mut world = world();
    let file = world.file("f");
    let content = self::content(8, 4 * RECORD);
    world.fs.write(file, 0, &content, false).expect("writes");
    world.blocks.fail_writes_after(Some(0));
    let dataset = Arc::clone(world.fs.dataset());
    assert!(dataset.write_early(world.txgs.gate.open_txg()).is_err());
    world.blocks.fail_writes_after(None);
    assert!(!world.write_early(), "once a txg is enough");
    world.commit();
    world.reopen();
    assert!(world.content(file) == content);
    world.check();
}

#[test]
fn a_dataset_that_is_destroyed_frees_what_was_stored_early() {
    let world = world();
    let file = world.file("f");
    world.fs.write(file, 0, &content(9, 6 * RECORD), false).expect("writes");
    assert!(world.write_early());
    world.fs.write(file, 0, &content(9, 100), false).expect("writes");
    let dataset = world.fs.dataset();
    dataset.begin_destroy();
    let txg = world.txgs.gate.open_txg();
    while !dataset.destroy_step(txg).expect("frees").0 {}
    assert_eq!(world.blocks.live(), 0);
}

/// Stands for what compression makes of bytes: shorter, and of no others.
fn mark(bytes: &[u8]) -> Vec<u8> {
    let sum = bytes
        .iter()
        .fold(7_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(7));
    sum.to_le_bytes().to_vec()
}

#[test]
fn what_came_compressed_is_stored_so_unless_it_changed() {
    let mut state = 5_u64;
    let mut draw = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("31 bits") % limit
    };
    let (mut kept, mut lost) = (0, 0);
    for round in 0..60 {
        let mut world = world();
        let file = world.file("f");
        let mut whole = content(round, 6 * RECORD);
        world.fs.write(file, 0, &whole, false).expect("writes");
        world.commit();
        world.blocks.take_packed();
        for step in 0..12 {
            match draw(6) {
                0..=2 => {
                    // A record, all of it or its beginning, with zeros at its end or without.
                    let (start, length) = (draw(6) * RECORD, [RECORD, 1 + draw(RECORD)][draw(2)]);
                    let mut bytes = content(round * 31 + step, length);
                    let zeros = [0, draw(length)][draw(2)];
                    bytes[length - zeros..].fill(0);
                    let packed = mark(&bytes);
                    let arrived = ReceivedContent {
                        inode: InodeId(file),
                        offset: start as u64,
                        bytes: &bytes,
                        packed: Some((Compression::Lz4, &packed)),
                    };
                    world.fs.dataset().receive_packed(&[arrived]).expect("taken");
                    whole[start..start + length].copy_from_slice(&bytes);
                }
                3 => {
                    let at = draw(whole.len() - 500);
                    let bytes = content(round + step, 1 + draw(500));
                    world.fs.write(file, at as u64, &bytes, false).expect("writes");
                    whole[at..at + bytes.len()].copy_from_slice(&bytes);
                }
                4 => {
                    let (at, length) = (draw(whole.len() - 5_000), 1 + draw(5_000));
                    let hole = Fallocate::PunchHole;
                    world.fs.fallocate(file, hole, at as u64, length as u64, false).expect("punches");
                    whole[at..at + length].fill(0);
                }
                _ if draw(2) == 0 => _ = world.write_early(),
                _ => world.commit(),
            }
        }
        assert!(world.content(file) == whole, "{round}");
        world.commit();
        assert!(world.content(file) == whole, "{round}");
        let stored = world.blocks.take_packed();
        assert!(stored.iter().all(|(plain, packed)| mark(plain) == *packed), "{round}");
        kept += stored.len();
        lost += usize::from(stored.is_empty());
        world.reopen();
        assert!(world.content(file) == whole, "{round}");
        world.check();
    }
    assert!(kept > 60 && lost < 30, "{kept} {lost}");
}
