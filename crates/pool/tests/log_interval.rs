//! `journal=data`: what nobody asked for is durable about a second later, all of one moment.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{ME, MIB, ROOT, handle, import, mount, noise, read_file, spec};
use crate::promises::still;
use steadfast_device::MemoryDevice;
use steadfast_device::memory::Fate;
use steadfast_env::Env;
use steadfast_pool::Pool;
use steadfast_posix::FileSystem;

fn new_pool(env: &Env, props: &[(&str, &str)]) -> (Arc<MemoryDevice>, Pool) {
    let device = Arc::new(MemoryDevice::new("a", 64 * MIB));
    let mut spec = spec(vec![handle(&device)], None);
    spec.root_props = props.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    (device, Pool::create(env, spec).expect("a pool"))
}

/// Lets the pool have a log.
fn warm(fs: &FileSystem, pool: &Pool) {
    let entry = fs.mknod(ME, ROOT, b"first", 0o100_644, 0).expect("made");
    fs.fsync(entry.ino).expect("committed");
    fs.forget(entry.ino, 1);
    fs.unlink(ROOT, b"first").expect("removed");
    pool.sync().expect("committed");
    assert!(pool.state().log.size_bytes > 0, "the log has segments");
}

/// Waits as long as it takes, and that is not for ever.
fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what} does not come");
}

fn put(fs: &FileSystem, name: &str, content: &[u8]) {
    let entry = fs.mknod(ME, ROOT, name.as_bytes(), 0o100_644, 0).expect("made");
    fs.write(entry.ino, 0, content, false).expect("written");
    fs.forget(entry.ino, 1);
}

fn crash(device: &Arc<MemoryDevice>, pool: Pool) {
    device.power_off();
    drop(pool);
    device.power_on(|_| Fate::Dropped);
}

#[test]
fn what_nobody_asked_for_is_logged_by_itself() {
    let env = still();
    let (device, pool) = new_pool(&env, &[("journal", "data")]);
    let (fs, used) = mount(&pool, "tank");
    warm(&fs, &pool);
    let (txg, groups) = (pool.state().txg, pool.state().log.counts.groups);
    put(&fs, "one", &noise(1, 10_000));
    put(&fs, "two", &noise(2, 300));
    // The task looks by itself; nobody calls `fsync` and no commit comes.
    until("a group", || pool.state().log.counts.groups > groups);
    // The look may have come between the two.
    assert_eq!(pool.zil().log_interval(), Some(true));
    assert_eq!((pool.state().txg, pool.state().log.counts.durable), (txg, 0), "nobody asked for anything");
    drop((fs, used));
    crash(&device, pool);
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    assert!(pool.state().log.replayed > 0);
    let (fs, used) = mount(&pool, "tank");
    assert!(read_file(&fs, ROOT, b"one") == noise(1, 10_000));
    assert!(read_file(&fs, ROOT, b"two") == noise(2, 300));
    // It goes on after an import, and costs nothing where nothing changes.
    pool.sync().expect("committed");
    let before = device.counts().writes;
    assert_eq!(pool.zil().log_interval(), Some(true));
    assert_eq!(device.counts().writes, before);
    drop((fs, used));
    pool.close().expect("closed");
}

#[test]
fn what_is_too_much_for_a_group_is_committed_by_itself() {
    let env = still();
    let (device, pool) = new_pool(&env, &[("journal", "data"), ("compression", "off")]);
    let (fs, used) = mount(&pool, "tank");
    warm(&fs, &pool);
    let txg = pool.state().txg;
    put(&fs, "large", &noise(3, 6 << 20));
    until("a commit", || pool.state().txg > txg);
    until("its end", || pool.zil().log_interval() == Some(true));
    drop((fs, used));
    crash(&device, pool);
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    let (fs, _used) = mount(&pool, "tank");
    assert!(read_file(&fs, ROOT, b"large") == noise(3, 6 << 20));
}

#[test]
fn only_those_who_have_the_property_are_logged_unasked() {
    let env = still();
    for props in [&[("journal", "ordered")][..], &[("journal", "data"), ("sync", "disabled")]] {
        let (_device, pool) = new_pool(&env, props);
        let (fs, _used) = mount(&pool, "tank");
        put(&fs, "file", b"content");
        assert_eq!(pool.zil().log_interval(), None, "{props:?}");
    }
    // Set later, on a dataset that is open, and for one of two.
    let (device, pool) = new_pool(&env, &[]);
    pool.datasets().create_dataset("tank/kept", Default::default(), None).expect("a dataset");
    let ((fs, used), (kept, kept_used)) = (mount(&pool, "tank"), mount(&pool, "tank/kept"));
    warm(&fs, &pool);
    pool.datasets().set_property("tank/kept", "journal", Some("data")).expect("set");
    pool.sync().expect("committed");
    put(&fs, "one", b"one");
    put(&kept, "two", b"two");
    until("a look", || pool.zil().log_interval() == Some(true));
    drop((fs, used, kept, kept_used));
    crash(&device, pool);
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    let (kept, kept_used) = mount(&pool, "tank/kept");
    assert_eq!(read_file(&kept, ROOT, b"two"), b"two");
    let (fs, used) = mount(&pool, "tank");
    assert!(fs.lookup(ROOT, b"one").is_err(), "nobody asked for it, and no second is promised there");
    pool.datasets().set_property("tank/kept", "journal", None).expect("inherited");
    assert_eq!(pool.zil().log_interval(), None);
    drop((fs, used, kept, kept_used));
}

#[test]
fn where_there_is_no_log_the_interval_commits() {
    let env = still();
    let device = Arc::new(MemoryDevice::whole_segments("a", 64 * MIB));
    let mut spec = spec(vec![handle(&device)], None);
    spec.root_props.insert("journal".into(), "data".into());
    let pool = Pool::create(&env, spec).expect("a pool");
    let (fs, _used) = mount(&pool, "tank");
    let txg = pool.state().txg;
    put(&fs, "file", b"content");
    until("a commit", || pool.state().txg > txg);
}
