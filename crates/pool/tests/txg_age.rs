//! When the open txg is committed though nobody asks: an interval after its first change.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{ME, MIB, ROOT, handle, mount, noise, spec, write_file};
use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_pool::{DatasetHandle, Pool};
use steadfast_posix::FileSystem;

const INTERVAL: Duration = Duration::from_secs(5);
/// Looks of the sync loop and the commit itself take little of a clock that only sleeps.
const SLACK: Duration = Duration::from_secs(1);

/// A pool with nothing to commit, for a minute already.
fn rested(env: &Env) -> (Pool, FileSystem, DatasetHandle) {
    let device = Arc::new(MemoryDevice::new("a", 64 * MIB));
    let pool = Pool::create(env, spec(vec![handle(&device)], None)).expect("a pool");
    let (fs, used) = mount(&pool, "tank");
    write_file(&fs, ROOT, b"old", &noise(1, 1000));
    pool.sync().expect("committed");
    let (txg, until_ns) = (pool.last_commit().0, env.clock.monotonic_ns() + 60_000_000_000);
    while env.clock.monotonic_ns() < until_ns {
        pool.step();
    }
    // The rest that a commit leaves for the next one is done by then.
    let rested = pool.last_commit().0;
    assert!(rested.0 <= txg.0 + 2, "an idle pool commits nothing: {txg} to {rested}");
    (pool, fs, used)
}

/// Lets time pass until the pool commits by itself; how long that took.
fn until_committed(env: &Env, pool: &Pool) -> Duration {
    let (txg, begun_ns) = (pool.last_commit().0, env.clock.monotonic_ns());
    for _ in 0..100 {
        if pool.last_commit().0 > txg {
            return Duration::from_nanos(env.clock.monotonic_ns() - begun_ns);
        }
        pool.step();
    }
    panic!("no commit comes by itself");
}

#[test]
fn a_change_behind_a_rest_is_committed_an_interval_later() {
    let env = Env::simulated(1);
    let (pool, fs, _used) = rested(&env);
    write_file(&fs, ROOT, b"first", &noise(2, 1000));
    let took = until_committed(&env, &pool);
    assert!(took >= INTERVAL - SLACK && took <= INTERVAL + SLACK, "{took:?}");
}

#[test]
fn later_changes_do_not_put_a_commit_off() {
    let env = Env::simulated(1);
    let (pool, fs, _used) = rested(&env);
    let (txg, begun_ns) = (pool.last_commit().0, env.clock.monotonic_ns());
    for n in 0..8_u8 {
        write_file(&fs, ROOT, &[b'a' + n], &noise(n.into(), 1000));
        env.clock.sleep(INTERVAL / 8);
    }
    assert_eq!(pool.last_commit().0, txg);
    pool.step();
    assert!(pool.last_commit().0 > txg, "the first of them is as old as a change may become");
    assert!(
        env.clock.monotonic_ns() - begun_ns <= u64::try_from((INTERVAL + SLACK).as_nanos()).expect("short")
    );
}

#[test]
fn a_change_of_the_pool_alone_counts_from_its_time_too() {
    let env = Env::simulated(1);
    let (pool, _fs, _used) = rested(&env);
    pool.log(0, false, "a line of the history");
    let took = until_committed(&env, &pool);
    assert!(took >= INTERVAL - SLACK && took <= INTERVAL + SLACK, "{took:?}");
}

#[test]
fn whoever_asks_for_a_commit_waits_for_no_interval() {
    let env = Env::simulated(1);
    let (pool, fs, _used) = rested(&env);
    let asked: [&dyn Fn(u64); 3] =
        [&|ino| fs.fsync(ino).expect("durable"), &|_| pool.sync().expect("durable"), &|_| {
            pool.export().expect("exported")
        }];
    for (n, ask) in (0..).zip(asked) {
        let entry = fs.mknod(ME, ROOT, &[b'a' + n], 0o100_644, 0).expect("made");
        fs.write(entry.ino, 0, b"content", false).expect("written");
        let begun_ns = env.clock.monotonic_ns();
        ask(entry.ino);
        let took = Duration::from_nanos(env.clock.monotonic_ns() - begun_ns);
        assert!(took < SLACK, "{n}: {took:?}");
    }
}
