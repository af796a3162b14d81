//! A crash behind a log that is full, and behind one of two txgs on a pool that is nearly full.

use std::sync::Arc;

use crate::common::{Dice, ME, MIB, ROOT, handle, import, mount, noise, read_file, spec, write_file};
use steadfast_device::memory::{Effect, Fate, Fault};
use steadfast_device::{MemoryDevice, Operation};
use steadfast_env::Env;
use steadfast_pool::Pool;
use steadfast_posix::FileSystem;

const CHUNK: u64 = 64 << 10;

fn new_pool(env: &Env, bytes: u64) -> (Arc<MemoryDevice>, Pool) {
    let device = Arc::new(MemoryDevice::new("a", bytes));
    let mut spec = spec(vec![handle(&device)], None);
    spec.root_props.insert("compression".into(), "off".into());
    (Arc::clone(&device), Pool::create(env, spec).expect("a pool"))
}

/// Lets the pool have a log.
fn warm(fs: &FileSystem, pool: &Pool) {
    let ino = write_file(fs, ROOT, b"first", b"first");
    fs.fsync(ino).expect("committed");
    fs.unlink(ROOT, b"first").expect("removed");
    pool.sync().expect("committed");
    assert!(pool.state().log.size_bytes > 0, "the log has segments");
}

#[test]
fn a_log_that_is_full_to_its_last_group_is_replayed() {
    for bytes in [3_000, 150_000] {
        // Nobody commits in such a world but who waits for it, and nobody does before the log is
        // full.
        let env = Env::simulated(1);
        let (device, pool) = new_pool(&env, 256 * MIB);
        let (fs, used) = mount(&pool, "tank");
        warm(&fs, &pool);
        let (txg, before, size) = (pool.state().txg, pool.state().log.counts, pool.state().log.size_bytes);
        let mut images = Vec::new();
        let mut files = 0_u64;
        let logged = loop {
            let name = format!("f{files}");
            let ino = write_file(&fs, ROOT, name.as_bytes(), &noise(files, bytes));
            images.push((device.image(), files));
            if images.len() > 2 {
                images.remove(0);
            }
            fs.fsync(ino).expect("durable");
            if pool.state().txg != txg {
                break pool.state().log.counts.groups - before.groups;
            }
            files += 1;
        };
        let used_bytes = pool.state().log.counts.bytes - before.bytes;
        assert!(used_bytes > size * 8 / 10, "{used_bytes} of {size} bytes before it did not fit any more");
        // As it was before the call that committed: nothing but the log holds all these files.
        let (image, promised) = images.pop().expect("one");
        assert_eq!(promised, logged);
        drop((fs, used));
        device.power_off();
        drop(pool);
        let device = Arc::new(MemoryDevice::from_image("a", image));
        let env = Env::real();
        let began = env.clock.monotonic_ns();
        let pool = import(&env, vec![handle(&device)], None).expect("imported");
        let took = (env.clock.monotonic_ns() - began) / 1_000_000;
        assert_eq!(pool.state().log.replayed, logged);
        println!("{logged} groups, {used_bytes} bytes: imported in {took} ms");
        let (fs, used) = mount(&pool, "tank");
        for file in 0..promised {
            let found = read_file(&fs, ROOT, format!("f{file}").as_bytes());
            assert!(found == noise(file, bytes), "f{file}");
        }
        drop((fs, used));
        pool.close().expect("closed");
    }
}

/// Content of a chunk as of a version.
fn stamp(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(CHUNK as usize / 8)
}

/// Overwrites and makes durable until the power goes; in a txg and the one before it, as it comes.
#[test]
fn a_nearly_full_pool_replays_two_txgs_wherever_the_power_went() {
    let env = Env::real();
    let (device, mut pool) = new_pool(&env, 128 * MIB);
    let (fs, used) = mount(&pool, "tank");
    warm(&fs, &pool);
    let file = fs.mknod(ME, ROOT, b"file", 0o100_600, 0).expect("made").ino;
    let mut known: Vec<(u64, u64)> = Vec::new();
    loop {
        let accounting = pool.state().accounting;
        let left = (accounting.capacity_bytes * 96 / 100).saturating_sub(accounting.live_bytes) / CHUNK;
        if left == 0 {
            break;
        }
        for _ in 0..left.min(64) {
            let at = known.len() as u64;
            fs.write(file, at * CHUNK, &stamp(at), false).expect("there is room");
            known.push((at, at));
        }
        pool.sync().expect("committed");
    }
    drop((fs, used));
    let chunks = known.len() as u64;
    let (mut version, mut dice) = (chunks, Dice(5));
    let (mut replayed, mut two) = (0, 0);
    for round in 0..std::env::var("STEADFAST_LOG_SEEDS").map_or(8, |n| n.parse().expect("a number")) {
        let (fs, used) = mount(&pool, "tank");
        let (skip, whole) = (dice.below(600), dice.below(3));
        let operation = if whole == 0 { Operation::Flush } else { Operation::Write };
        let skip = if whole == 0 { skip / 8 } else { skip };
        device.arm(Fault { operation, skip, effect: Effect::PowerOff });
        let committed = pool.state().txg;
        loop {
            let at = dice.below(chunks);
            version += 1;
            known[usize::try_from(at).expect("few")].1 = version;
            if fs.write(file, at * CHUNK, &stamp(version), false).is_err() {
                break;
            }
            // Some nobody asks for: they belong to the next that somebody does.
            if dice.below(3) > 0 {
                if fs.fsync(file).is_err() {
                    break;
                }
                known.iter_mut().for_each(|known| known.0 = known.1);
            }
        }
        two += u64::from(pool.state().txg > committed);
        drop((fs, used));
        device.power_off();
        drop(pool);
        let mut fates = Dice(round);
        device.power_on(|_| if fates.below(2) == 0 { Fate::Dropped } else { Fate::Applied });
        device.disarm();
        pool = import(&env, vec![handle(&device)], None)
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        replayed += pool.state().log.replayed;
        let (fs, used) = mount(&pool, "tank");
        let mut content = vec![0; CHUNK as usize];
        for (at, known) in (0..).zip(&mut known) {
            assert_eq!(fs.read(file, at * CHUNK, &mut content).expect("read"), content.len());
            let found = [known.1, known.0].into_iter().find(|version| content == stamp(*version));
            let found = found.unwrap_or_else(|| panic!("round {round}: chunk {at} is neither of {known:?}"));
            *known = (found, found);
        }
        drop((fs, used));
    }
    println!("{replayed} groups replayed, {two} rounds with commits between");
    assert!(replayed > 0 && two > 0);
    pool.close().expect("closed");
}
