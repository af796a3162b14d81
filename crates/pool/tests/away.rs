//! A store of objects that is away for a while: nothing is suspended, nothing is lost, and all goes
//! on by itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{MIB, ROOT, handle, import_spec, mount, noise, read_file, spec, write_file};
use steadfast_device::Operation;
use steadfast_device::objects::{MemoryStore, ObjectDevice, Request, StoreFault};
use steadfast_env::Env;
use steadfast_env::insist::{Client, serving};
use steadfast_pool::{DeviceHandle, Error, EventKind, Obstacle, Pool, scan};

/// A store that is away as long as a test wants it.
struct Cloud {
    store: MemoryStore,
    away: Arc<AtomicBool>,
}

/// Ends an outage, so that no thread of a failed test waits for ever.
struct Returned(Arc<AtomicBool>);

impl Drop for Returned {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Requests that a store refuses while it is away.
type Refused = fn(&Request) -> bool;

impl Cloud {
    fn new(name: &str) -> Cloud {
        Cloud { store: MemoryStore::new(name), away: Arc::default() }
    }

    fn device(&self, writer: u8, refused: Refused) -> DeviceHandle {
        let away = Arc::clone(&self.away);
        let hook = move |request: &Request| {
            (away.load(Ordering::SeqCst) && refused(request)).then_some(StoreFault::Away)
        };
        let store = Arc::new(self.store.handle(hook));
        handle(&Arc::new(ObjectDevice::open(store, Some(256 * MIB), [writer; 16]).expect("a store")))
    }

    fn pool(&self, refused: Refused, failmode: &str) -> Pool {
        let pool = Pool::create(&Env::real(), spec(vec![self.device(1, refused)], None)).expect("a pool");
        pool.wait_for_devices();
        pool.set_pool_prop("failmode", Some(failmode)).expect("set");
        let (fs, _handle) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"one", &content(b"one"));
        pool.sync().expect("durable");
        _ = pool.take_events();
        pool
    }

    /// The store is away until it comes back, or the test fails.
    fn leave(&self) -> Returned {
        self.away.store(true, Ordering::SeqCst);
        Returned(Arc::clone(&self.away))
    }

    fn come_back(&self, pool: &Pool) {
        self.away.store(false, Ordering::SeqCst);
        // A request that was refused a moment before may be told behind the first call.
        until(|| pool.resume());
    }

    /// The files of the pool, as another host finds them.
    fn check(&self, names: &[&[u8]]) {
        let (mut pools, _) = scan(vec![self.device(2, |_| false)]);
        let spec = steadfast_pool::ImportSpec { force: true, ..import_spec(None) };
        let pool = Pool::import(&Env::real(), pools.remove(0), &spec).expect("it opens");
        let (fs, _handle) = mount(&pool, "tank");
        for name in [b"one" as &[u8], b"two", b"three"] {
            let is_there = fs.lookup(ROOT, name).is_ok();
            assert_eq!(is_there, names.contains(&name), "{}", name.escape_ascii());
            assert!(!is_there || read_file(&fs, ROOT, name) == content(name));
        }
    }
}

fn content(name: &[u8]) -> Vec<u8> {
    noise(name.len() as u64, 700_000)
}

fn until(is_so: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it does not come");
}

fn kinds(pool: &Pool) -> Vec<&'static str> {
    let events = pool.take_events();
    let kinds = events.iter().filter_map(|event| match &event.kind {
        EventKind::StoreAway { .. } => Some("away"),
        EventKind::Resumed { outage, .. } if outage.obstacle == Obstacle::StoreAway => Some("back"),
        EventKind::Suspended { .. } => Some("suspended"),
        _ => None,
    });
    kinds.collect()
}

#[test]
fn readers_and_writers_go_on_in_memory_and_a_held_fsync_returns_when_the_store_is_back() {
    let cloud = Cloud::new("bucket");
    let pool = cloud.pool(|_| true, "wait");
    let (fs, _handle) = mount(&pool, "tank");
    let outage_ends = cloud.leave();
    let two = write_file(&fs, ROOT, b"two", &content(b"two"));
    std::thread::scope(|scope| {
        let _ends = outage_ends;
        let held = scope.spawn(|| fs.fsync(two));
        until(|| pool.store_away().is_some());
        let outage = pool.store_away().expect("it is away");
        // The commit's own first request is a put; the look at the epoch behind the commit before
        // may come first.
        let first = ["bucket: write of seg/", "bucket: read of pool/epoch/"];
        assert!(first.iter().any(|first| outage.reason.contains(first)), "{outage:?}");
        let fields: Vec<&str> = outage.fields.iter().map(|(role, _)| *role).collect();
        assert_eq!(fields, ["device", "operation", "object", "status", "request"]);
        assert!(outage.since_ns > 1_700_000_000_000_000_000, "{outage:?}");
        // Nothing is suspended, and status answers.
        let state = pool.state();
        assert_eq!((state.suspended, state.leaves[0].away.is_some()), (None, true));
        // Memory is read and written.
        assert!(read_file(&fs, ROOT, b"two") == content(b"two"));
        write_file(&fs, ROOT, b"three", &content(b"three"));
        assert!(read_file(&fs, ROOT, b"three") == content(b"three"));
        // A verb says why it cannot be done, and no way out of the pool loses what waits.
        for refused in [pool.sync(), pool.export(), pool.destroy(), pool.set_pool_prop("comment", Some("x"))]
        {
            let error = refused.expect_err("the store is away");
            assert!(matches!(&error, Error::StoreAway { .. }), "{error}");
        }
        assert!(!pool.resume(), "zpool clear does not help");
        assert!(!held.is_finished());
        cloud.come_back(&pool);
        held.join().expect("no panic").expect("the change is durable");
    });
    assert_eq!(kinds(&pool), ["away", "back"]);
    assert!(pool.state().leaves[0].degraded.is_none(), "the way to it failed, not the store");
    pool.sync().expect("as if nothing had been");
    drop((fs, _handle));
    pool.export().expect("exported");
    drop(pool);
    cloud.check(&[b"one", b"two", b"three"]);
}

#[test]
fn with_failmode_continue_fsync_fails_and_nothing_is_lost_all_the_same() {
    let cloud = Cloud::new("bucket");
    let pool = cloud.pool(|_| true, "continue");
    let (fs, _handle) = mount(&pool, "tank");
    let _ends = cloud.leave();
    let two = write_file(&fs, ROOT, b"two", &content(b"two"));
    fs.fsync(two).expect_err("it is told that the file is not durable");
    fs.fsync(two).expect_err("at once");
    assert!(read_file(&fs, ROOT, b"two") == content(b"two"));
    cloud.come_back(&pool);
    fs.fsync(two).expect("durable");
    assert_eq!(kinds(&pool), ["away", "back"]);
    drop((fs, _handle));
    drop(pool);
    cloud.check(&[b"one", b"two"]);
}

/// A client reads bytes that only the store has: it waits until the store is back, until it is
/// killed, or not at all, as `failmode` says.
#[test]
fn a_read_of_what_only_the_store_has_waits_as_failmode_says() {
    static IS_KILLED: AtomicBool = AtomicBool::new(false);
    let client = Client { is_dying: |_| IS_KILLED.load(Ordering::SeqCst), thread: 7 };
    let cloud = Cloud::new("bucket");
    drop(cloud.pool(|_| true, "wait"));
    // Requests of the pool's own tasks are answered: nobody but the reader waits.
    let refused: Refused = |request| request.name.starts_with("seg/") && request.operation == Operation::Read;
    let (mut pools, _) = scan(vec![cloud.device(2, refused)]);
    let spec = steadfast_pool::ImportSpec { force: true, ..import_spec(None) };
    let pool = Pool::import(&Env::real(), pools.remove(0), &spec).expect("it opens");
    pool.wait_for_devices();
    let (fs, _handle) = mount(&pool, "tank");
    pool.sync().expect("its first commit is over");
    let entry = fs.lookup(ROOT, b"one").expect("found");
    let expected = content(b"one");
    let read = |at: usize| {
        let mut out = vec![0; 4096];
        let read = serving(client, || fs.read(entry.ino, at as u64, &mut out));
        read.map(|count| assert!(count > 0 && out[..count] == expected[at..at + count], "{at}"))
    };
    assert!(fs.reads_wait());
    let outage_ends = cloud.leave();
    std::thread::scope(|scope| {
        let _ends = outage_ends;
        let held = scope.spawn(|| read(0));
        until(|| pool.store_away().is_some());
        assert!(!held.is_finished());
        cloud.come_back(&pool);
        held.join().expect("no panic").expect("read");
    });
    assert_eq!(kinds(&pool), ["away", "back"]);
    pool.sync().expect("the time of the read is stored, so no commit waits");
    // A reader that is killed is not kept, and takes the outage along.
    let outage_ends = cloud.leave();
    std::thread::scope(|scope| {
        let _ends = outage_ends;
        let killed = scope.spawn(|| read(500_000));
        until(|| pool.store_away().is_some());
        IS_KILLED.store(true, Ordering::SeqCst);
        assert_eq!(killed.join().expect("no panic"), Err(steadfast_posix::Errno::EIO));
        until(|| pool.store_away().is_none());
        IS_KILLED.store(false, Ordering::SeqCst);
    });
    pool.set_pool_prop("failmode", Some("continue")).expect("set");
    assert!(!fs.reads_wait());
    let _ends = cloud.leave();
    assert_eq!(read(500_000), Err(steadfast_posix::Errno::EIO));
}

/// The first request that a commit makes may be any: each kind is away in turn.
#[test]
fn whatever_a_commit_asks_of_the_store_is_asked_again() {
    let of: [Refused; 4] = [
        |request| request.name.starts_with("seg/") && request.operation == Operation::Write,
        |request| request.name.starts_with("pool/root/"),
        |request| request.name.starts_with("pool/epoch/"),
        |request| request.operation == Operation::Read,
    ];
    for (turn, refused) in of.into_iter().enumerate() {
        let cloud = Cloud::new("bucket");
        let pool = cloud.pool(refused, "wait");
        let (fs, _handle) = mount(&pool, "tank");
        let outage_ends = cloud.leave();
        let two = write_file(&fs, ROOT, b"two", &content(b"two"));
        std::thread::scope(|scope| {
            let _ends = outage_ends;
            let held = scope.spawn(|| fs.fsync(two));
            until(|| pool.store_away().is_some());
            cloud.come_back(&pool);
            held.join().expect("no panic").unwrap_or_else(|error| panic!("{turn}: {error:?}"));
        });
        assert_eq!(kinds(&pool), ["away", "back"], "{turn}");
        drop((fs, _handle));
        pool.export().expect("exported");
        drop(pool);
        cloud.check(&[b"one", b"two"]);
    }
}

#[test]
fn a_pool_that_is_given_up_ends_at_once_and_returns_to_its_last_commit() {
    let cloud = Cloud::new("bucket");
    let pool = cloud.pool(|_| true, "wait");
    let (fs, handle) = mount(&pool, "tank");
    let ends = cloud.leave();
    write_file(&fs, ROOT, b"two", &content(b"two"));
    pool.sync().expect_err("it is away");
    pool.give_up_waiting();
    until(|| pool.state().suspended.is_some());
    drop((fs, handle));
    pool.export().expect("it is let go");
    drop(pool);
    drop(ends);
    cloud.check(&[b"one"]);
}

/// Ten minutes on the clock of the pool: each request that fails takes four of them.
#[test]
fn ten_minutes_pass_and_nobody_does_anything() {
    let store = MemoryStore::new("bucket");
    let env = Env::seeded(7);
    let (clock, end, told) = (Arc::clone(&env.clock), Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(0)));
    let hook = {
        let (end, told) = (Arc::clone(&end), Arc::clone(&told));
        move |_: &Request| {
            if clock.monotonic_ns() >= end.load(Ordering::SeqCst) {
                return None;
            }
            clock.sleep(Duration::from_secs(240));
            *told.lock().expect("no panic") += 1;
            Some(StoreFault::Away)
        }
    };
    let device = ObjectDevice::open(Arc::new(store.handle(hook)), Some(256 * MIB), [1; 16]).expect("a store");
    let pool = Pool::create(&env, spec(vec![handle(&Arc::new(device))], None)).expect("a pool");
    pool.wait_for_devices();
    pool.set_pool_prop("failmode", Some("wait")).expect("set");
    let (fs, _handle) = mount(&pool, "tank");
    // Ten minutes from the moment on in which the pool knows that the store is away: before that,
    // requests at the same moment each move the clock.
    end.store(u64::MAX, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until(|| pool.store_away().is_some());
            end.store(env.clock.monotonic_ns() + 600_000_000_000, Ordering::SeqCst);
        });
        let one = write_file(&fs, ROOT, b"one", &content(b"one"));
        fs.fsync(one).expect("durable after ten minutes");
    });
    assert!(*told.lock().expect("no panic") >= 3, "each request that failed took four minutes");
    assert_eq!(pool.state().suspended, None);
    let events = pool.take_events();
    let lasted = events.iter().find_map(|event| match &event.kind {
        EventKind::Resumed { nanos, .. } => Some(*nanos),
        _ => None,
    });
    assert!(lasted.is_some_and(|nanos| nanos >= 600_000_000_000), "{events:?}");
    assert!(pool.state().leaves[0].degraded.is_none());
}

/// The object that a reader waits for is gone when the store is back: the reader is told, and
/// nobody else goes on waiting.
#[test]
fn a_reader_that_waited_for_an_object_that_is_gone_holds_nobody_up() {
    let client = Client { is_dying: |_| false, thread: 7 };
    let cloud = Cloud::new("bucket");
    drop(cloud.pool(|_| true, "wait"));
    let refused: Refused = |request| request.name.starts_with("seg/") && request.operation == Operation::Read;
    let (mut pools, _) = scan(vec![cloud.device(2, refused)]);
    let spec = steadfast_pool::ImportSpec { force: true, ..import_spec(None) };
    let pool = Pool::import(&Env::real(), pools.remove(0), &spec).expect("it opens");
    pool.wait_for_devices();
    let (fs, _handle) = mount(&pool, "tank");
    pool.sync().expect("its first commit is over");
    let entry = fs.lookup(ROOT, b"one").expect("found");
    let outage_ends = cloud.leave();
    std::thread::scope(|scope| {
        let _ends = outage_ends;
        let held = scope.spawn(|| serving(client, || fs.read(entry.ino, 300_000, &mut vec![0; 4096])));
        until(|| pool.store_away().is_some());
        let needle = &content(b"one")[300_000..300_064];
        for name in cloud.store.names().into_iter().filter(|name| name.starts_with("seg/")) {
            let object = steadfast_device::objects::Store::read(&cloud.store, &name, None).expect("there");
            if object.windows(64).any(|window| window == needle) {
                assert!(cloud.store.remove(&name));
            }
        }
        cloud.away.store(false, Ordering::SeqCst);
        assert_eq!(held.join().expect("no panic"), Err(steadfast_posix::Errno::EIO));
    });
    assert!(pool.store_away().is_none());
    write_file(&fs, ROOT, b"two", &content(b"two"));
    pool.sync().expect("nobody waits for the store any more");
    assert_eq!(pool.state().suspended, None);
}
