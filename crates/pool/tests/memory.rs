//! What the caches hold is within what is set, whatever is done, and counted.

mod common;

use std::sync::Arc;

use common::{MIB, ROOT, handles, mount, noise, read_file, spec, write_file};
use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_pool::{CreateSpec, Memory, Pool};

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
