//! Caches stay within their limits under any load, and their sizes are counted.

use std::sync::Arc;

use crate::common::{self, MIB, ROOT, handles, mount, noise, options, read_file, spec, write_file};
use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_pool::{CreateSpec, Memory, Pool};
use steadfast_posix::FileSystem;

const SMALL: Memory =
    Memory { node_cache_bytes: 4 << 20, block_cache_bytes: 8 << 20, dirty_bytes_max: 16 << 20 };

/// Asserts that nothing is beyond its bound, and gives the bytes of both caches.
fn within(pool: &Pool, memory: Memory) -> (u64, u64) {
    let used = pool.memory();
    assert!(used.nodes.bytes <= memory.node_cache_bytes as u64, "{used:?}");
    assert!(used.blocks.bytes <= memory.block_cache_bytes as u64, "{used:?}");
    assert!(used.nodes.bytes_max <= memory.node_cache_bytes as u64, "{used:?}");
    assert!(used.blocks.bytes_max <= memory.block_cache_bytes as u64, "{used:?}");
    assert!(used.dirty_bytes <= memory.dirty_bytes_max, "{used:?}");
    // One slot of 1 MiB, and a page, for each of six streams and two spare buffers.
    assert!(used.buffer_bytes <= 8 * ((1 << 20) + 4096), "{used:?}");
    (used.nodes.bytes, used.blocks.bytes)
}

#[test]
fn caches_stay_within_what_is_set_and_follow_it() {
    let devices = vec![Arc::new(MemoryDevice::new("memory", 128 * MIB))];
    let pool = CreateSpec { memory: SMALL, ..spec(handles(&devices), None) };
    let pool = Pool::create(&Env::real(), pool).expect("a pool");
    let (fs, _handle) = mount(&pool, "tank");
    for number in 0..24_u64 {
        write_file(&fs, ROOT, format!("content {number}").as_bytes(), &noise(number, 2 << 20));
        within(&pool, SMALL);
    }
    for number in 0..20_000 {
        let name = format!("a small file with a name of some length, number {number}");
        let entry = fs.mknod(common::ME, ROOT, name.as_bytes(), 0o100_644, 0).expect("made");
        fs.forget(entry.ino, 1);
    }
    pool.sync().expect("durable");
    within(&pool, SMALL);
    for turn in 0..2 {
        for number in 0..24_u64 {
            let content = read_file(&fs, ROOT, format!("content {number}").as_bytes());
            assert!(content == noise(number, 2 << 20), "turn {turn}, file {number}");
            within(&pool, SMALL);
        }
        fs.readdir(ROOT, 0, |_| true).expect("listed");
    }
    let (nodes, blocks) = within(&pool, SMALL);
    assert!(nodes > 1 << 20, "{nodes} bytes of nodes: the names alone are more");
    assert!(blocks > 4 << 20, "{blocks} bytes of blocks: 48 MiB were read");

    let smaller = Memory { node_cache_bytes: 1 << 20, block_cache_bytes: 2 << 20, ..SMALL };
    pool.set_memory(smaller);
    within(&pool, smaller);
    let larger = Memory { node_cache_bytes: 64 << 20, block_cache_bytes: 128 << 20, ..SMALL };
    pool.set_memory(larger);
    read_file(&fs, ROOT, b"content 3");
    let before = pool.memory();
    assert!(read_file(&fs, ROOT, b"content 3") == noise(3, 2 << 20));
    let after = pool.memory();
    assert_eq!(after.blocks.misses, before.blocks.misses, "all of it is cached now");
    assert!(after.blocks.hits >= before.blocks.hits + 16, "16 records of 128 KiB were found");
    within(&pool, larger);
}

#[test]
fn what_is_not_to_be_cached_is_not_and_is_read_all_the_same() {
    let devices = vec![Arc::new(MemoryDevice::new("memory", 128 * MIB))];
    let memory = Memory { node_cache_bytes: 64 << 20, block_cache_bytes: 64 << 20, ..SMALL };
    let pool = CreateSpec { memory, ..spec(handles(&devices), None) };
    let pool = Pool::create(&Env::real(), pool).expect("a pool");
    let none = [("primarycache".to_owned(), "none".to_owned())];
    pool.datasets().create_dataset("tank/fs", none.into(), None).expect("made");
    let (fs, _handle) = mount(&pool, "tank/fs");
    let name = |number: u64| format!("a small file with a name of some length, number {number}").into_bytes();
    let bytes = || (pool.memory().nodes.bytes, pool.memory().blocks.bytes);
    let before = bytes();
    for number in 0..10_000 {
        let entry = fs.mknod(common::ME, ROOT, &name(number), 0o100_644, 0).expect("made");
        fs.forget(entry.ino, 1);
    }
    write_file(&fs, ROOT, b"content", &noise(1, 2 << 20));
    pool.sync().expect("durable");
    let look = || {
        for number in (0..10_000).step_by(100) {
            let entry = fs.lookup(ROOT, &name(number)).expect("found");
            fs.forget(entry.ino, 1);
        }
        assert!(read_file(&fs, ROOT, b"content") == noise(1, 2 << 20));
        bytes()
    };
    let after = look();
    // The pool's own tree is kept: it is no file system's.
    assert!(after.0 < before.0 + (256 << 10), "{before:?} {after:?}: the names come to more than a MiB");
    assert_eq!(after.1, before.1, "no content");
    pool.datasets().set_property("tank/fs", "primarycache", Some("metadata")).expect("set");
    let metadata = look();
    assert!(metadata.0 > after.0 + (512 << 10), "{after:?} {metadata:?}");
    assert_eq!(metadata.1, before.1, "no content");
    pool.datasets().set_property("tank/fs", "primarycache", Some("all")).expect("set");
    assert!(look().1 >= before.1 + (2 << 20));
}

#[test]
fn inodes_that_the_kernel_knows_rest_in_a_file_system_and_in_its_snapshot() {
    let devices = vec![Arc::new(MemoryDevice::new("memory", 128 * MIB))];
    let small = Memory { node_cache_bytes: 64 << 10, ..SMALL };
    let pool = CreateSpec { memory: small, ..spec(handles(&devices), None) };
    let pool = Pool::create(&Env::real(), pool).expect("a pool");
    let (fs, handle) = mount(&pool, "tank");
    let name = |number: u64| format!("file {number}").into_bytes();
    let made: Vec<u64> = (0..2_000)
        .map(|number| {
            let entry = fs.mknod(common::ME, ROOT, &name(number), 0o100_644, 0).expect("made");
            fs.write(entry.ino, 0, &number.to_le_bytes(), false).expect("written");
            entry.ino
        })
        .collect();
    pool.datasets().take_snapshots(&["tank@then".to_owned()], &Default::default()).expect("a snapshot");
    let then = handle.snapshots().open("then").expect("it is there");
    let view = FileSystem::of_snapshot(then.with(Arc::clone).expect("it is there"), options());
    let look = || {
        for (number, &ino) in (0..).zip(&made) {
            assert_eq!(view.lookup(ROOT, &name(number)).expect("found").ino, ino);
        }
    };
    look();
    (0..1_000).for_each(|number| fs.unlink(ROOT, &name(number)).expect("there"));
    for _ in 0..5 {
        let made = fs.mkdir(common::ME, ROOT, b"a reason to commit", 0o755).expect("made");
        fs.forget(made.ino, 1);
        pool.sync().expect("durable");
        fs.rmdir(ROOT, b"a reason to commit").expect("there");
        pool.sync().expect("durable");
    }
    let used = pool.memory().inodes;
    assert!(used.live < 1_200, "1,000 have no links, and what else is live has some 20 places: {used:?}");
    assert!(used.resting > 2_900, "1,000 in the file system, 2,000 in the snapshot: {used:?}");
    assert!(used.resting_bytes < 10 * used.resting, "{used:?}");
    let eight = |fs: &FileSystem, ino| {
        let mut found = [0; 9];
        assert_eq!(fs.read(ino, 0, &mut found), Ok(8));
        u64::from_le_bytes(*found.first_chunk().expect("eight"))
    };
    for (number, &ino) in (0..).zip(&made) {
        assert_eq!(fs.getattr(ino).expect("held").nlink, u32::from(number >= 1_000));
        assert_eq!(view.getattr(ino).expect("held").nlink, 1);
        assert_eq!((eight(&fs, ino), eight(&view, ino)), (number, number));
    }
    made.iter().for_each(|&ino| view.forget(ino, 1));
    made.iter().for_each(|&ino| fs.forget(ino, 1));
    assert_eq!(fs.dataset().counters().files, 1_001, "what had no links is gone with the last lookup");
    assert_eq!(pool.memory().inodes.resting, 0);
    // Inodes of a destroyed snapshot are given back.
    look();
    assert!(pool.memory().inodes.resting > 1_900);
    pool.datasets().destroy_snapshots(&["tank@then".to_owned()], false).expect("it goes");
    pool.sync().expect("durable");
    made.iter().for_each(|&ino| view.forget(ino, 1));
    assert_eq!(pool.memory().inodes.resting, 0);
    drop((view, then, fs, handle));
    pool.export().expect("exported");
}
