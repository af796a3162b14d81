//! Requests that a pool makes to a store of whole objects: what one pays for, and waits for.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::common::{
    ME, MIB, ROOT, anchored_in, handle, import, import_spec, mount, noise, read_file, spec, write_file,
};
use steadfast_anchor::MemoryRegister;
use steadfast_device::Operation;
use steadfast_device::objects::{MemoryStore, ObjectDevice, Request};
use steadfast_env::{Env, Job, TaskHandle, Tasks};
use steadfast_pool::{ImportSpec, Pool, ScrubCommand, scan};

/// A store whose requests are noted, with an anchor beside it.
struct Noted {
    store: MemoryStore,
    register: Arc<MemoryRegister>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Noted {
    fn new() -> Noted {
        let register = Arc::new(MemoryRegister::new("anchor"));
        Noted { store: MemoryStore::new("bucket"), register, requests: Arc::default() }
    }

    fn device(&self) -> Arc<ObjectDevice> {
        let requests = Arc::clone(&self.requests);
        let store = self.store.handle(move |request| {
            requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
            None
        });
        Arc::new(ObjectDevice::open(Arc::new(store), Some(256 * MIB), [1; 16]).expect("a store"))
    }

    fn create(&self) -> Pool {
        let mut spec = spec(vec![handle(&self.device())], None);
        spec.anchor = anchored_in(&self.register);
        Pool::create(&Env::simulated(1), spec).expect("a pool")
    }

    fn import(&self) -> Pool {
        let (mut pools, _) = scan(vec![handle(&self.device())]);
        let spec = ImportSpec { anchor: anchored_in(&self.register), ..import_spec(None) };
        Pool::import(&Env::simulated(2), pools.remove(0), &spec).expect("imported")
    }

    /// Requests since the last look, of a kind.
    fn take(&self, operation: Operation) -> Vec<String> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = requests.iter().filter(|request| request.operation == operation);
        let names = taken.map(|request| request.name.clone()).collect();
        requests.retain(|request| request.operation != operation);
        names
    }

    fn clear(&self) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Puts of a commit of one small change, without the copy of the root, which comes behind it.
fn puts_of_a_small_commit(noted: &Noted, pool: &Pool) -> usize {
    let (fs, _handle) = mount(pool, "tank");
    for name in [b"a", b"b", b"c", b"d"] {
        write_file(&fs, ROOT, name, b"some words");
        pool.sync().expect("committed");
        (0..4).for_each(|_| pool.step());
    }
    noted.clear();
    fs.mkdir(ME, ROOT, b"folder", 0o755).expect("made");
    pool.sync().expect("committed");
    let (puts, reads) = (noted.take(Operation::Write), noted.take(Operation::Read));
    let copies = puts.iter().filter(|name| name.starts_with("pool/root/")).count();
    assert_eq!(reads, [""; 0], "nothing is read");
    (0..4).for_each(|_| pool.step());
    let copies = copies + noted.take(Operation::Write).len();
    assert_eq!(copies, 1, "one copy of the root");
    assert!(noted.take(Operation::Discard).len() <= 1, "deletes go together");
    assert_eq!(noted.take(Operation::List), [""; 0]);
    puts.len() - (puts.iter().filter(|name| name.starts_with("pool/root/")).count())
}

/// A commit of one small change: one object of the file systems' metadata and one of the pool's,
/// and no more with an anchor beside the store.
#[test]
fn a_small_commit_makes_two_puts() {
    let noted = Noted::new();
    let pool = noted.create();
    assert_eq!(puts_of_a_small_commit(&noted, &pool), 2);
}

/// Second copies of metadata are a property, and each is a put.
#[test]
fn second_copies_of_metadata_are_two_puts_more() {
    for (value, puts) in [("all", 4), ("most", 4), ("some", 3), ("none", 2)] {
        let noted = Noted::new();
        let pool = noted.create();
        let shown = pool.datasets().resolve("tank", "redundant_metadata", "/").expect("known");
        assert_eq!(shown.expect("it has a value").value, "none", "of a new pool of one bucket");
        pool.datasets().set_property("tank", "redundant_metadata", Some(value)).expect("set");
        pool.sync().expect("committed");
        assert_eq!(puts_of_a_small_commit(&noted, &pool), puts, "{value}");
        // Metadata of both kinds is read again.
        let (fs, _handle) = mount(&pool, "tank");
        assert_eq!(read_file(&fs, ROOT, b"a"), b"some words");
        drop((fs, _handle));
        pool.export().expect("exported");
        let pool = noted.import();
        let (fs, _handle) = mount(&pool, "tank");
        assert_eq!(read_file(&fs, ROOT, b"d"), b"some words");
        drop((fs, _handle));
        // The property holds after an import, before any file system was opened.
        assert_eq!(puts_of_an_import_and_a_change(&noted, pool), puts, "{value}");
    }
}

/// Puts of a commit after an import, of a change of one small file.
fn puts_of_an_import_and_a_change(noted: &Noted, pool: Pool) -> usize {
    pool.export().expect("exported");
    let pool = noted.import();
    let (fs, _handle) = mount(&pool, "tank");
    noted.clear();
    fs.mkdir(ME, ROOT, b"after", 0o755).expect("made");
    pool.sync().expect("committed");
    noted.take(Operation::Write).iter().filter(|name| name.starts_with("seg/")).count()
}

/// An import lists once, and reads the newest label and roots, the tail and the tables.
#[test]
fn an_import_makes_few_requests() {
    let noted = Noted::new();
    let pool = noted.create();
    {
        let (fs, _handle) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"a", b"some words");
        pool.sync().expect("committed");
    }
    pool.export().expect("exported");
    noted.clear();
    let pool = noted.import();
    let (lists, reads) = (noted.take(Operation::List), noted.take(Operation::Read));
    assert_eq!(lists, ["pool"]);
    assert!(reads.len() <= 8, "{} {reads:?}", reads.len());
    pool.export().expect("exported");
}

/// Tasks that wait beside each other, where commits are made by whoever asks for one.
struct Beside(Arc<dyn Tasks>);

impl Tasks for Beside {
    fn spawn(&self, name: &str, job: Job<'static>) -> Box<dyn TaskHandle> {
        self.0.spawn(name, job)
    }

    fn run_all<'a>(&self, jobs: Vec<Job<'a>>) {
        self.0.run_all(jobs);
    }

    fn waits_beside(&self) -> bool {
        true
    }

    fn parallelism(&self) -> usize {
        self.0.parallelism().max(2)
    }

    fn is_concurrent(&self) -> bool {
        false
    }
}

/// Puts under way, and whether any is held.
#[derive(Default)]
struct Gathering {
    puts: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gathering {
    /// Holds a put until so many are here.
    fn hold(&self, enough: usize) {
        let mut puts = self.puts.lock().unwrap_or_else(PoisonError::into_inner);
        puts.0 += 1;
        puts.1 |= puts.0 >= enough;
        self.changed.notify_all();
        let patience = Duration::from_secs(60);
        let waited = self.changed.wait_timeout_while(puts, patience, |puts| !puts.1);
        let (mut puts, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!timeout.timed_out(), "{} puts are under way", puts.0);
        puts.0 -= 1;
    }
}

/// Segments of a large file are put side by side: each put is held until enough are under way.
#[test]
fn a_large_file_is_put_side_by_side() {
    const PUTS: usize = 32;
    let (store, gathering) = (MemoryStore::new("bucket"), Arc::new(Gathering::default()));
    let held = Arc::clone(&gathering);
    let is_large = Arc::new(AtomicBool::new(false));
    let holds = Arc::clone(&is_large);
    let handle_of_store = store.handle(move |request| {
        if request.operation == Operation::Write && request.name.starts_with("seg/") && holds.load(Relaxed) {
            held.hold(PUTS);
        }
        None
    });
    let device = ObjectDevice::open(Arc::new(handle_of_store), Some(256 * MIB), [1; 16]).expect("a store");
    let env = Env::real();
    let env = Env { tasks: Arc::new(Beside(Arc::clone(&env.tasks))), ..env };
    let pool = Pool::create(&env, spec(vec![handle(&Arc::new(device))], None)).expect("a pool");
    let (fs, _handle) = mount(&pool, "tank");
    let content = noise(1, 48 << 20);
    is_large.store(true, Relaxed);
    write_file(&fs, ROOT, b"large", &content);
    pool.sync().expect("committed");
    assert!(gathering.puts.lock().unwrap_or_else(PoisonError::into_inner).1, "so many were under way");
    assert!(read_file(&fs, ROOT, b"large") == content);
}

/// While the root of a commit is on its way, content of the next one is put: the root is held
/// until a segment has come behind it [commit.9].
#[test]
fn content_is_stored_while_the_commit_before_waits_for_its_store() {
    /// Roots and segments that came while roots are held.
    #[derive(Default)]
    struct Came {
        holds: bool,
        roots: usize,
        segments: usize,
    }
    let came: Arc<(Mutex<Came>, Condvar)> = Arc::default();
    let patience = Duration::from_secs(60);
    let (store, seen) = (MemoryStore::new("bucket"), Arc::clone(&came));
    let handle_of_store = store.handle(move |request| {
        let mut now = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_write = request.operation == Operation::Write && now.holds;
        if is_write && request.name.starts_with("pool/root/") {
            now.roots += 1;
            seen.1.notify_all();
            let waited = seen.1.wait_timeout_while(now, patience, |now| now.segments == 0);
            let (mut now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            assert!(!timeout.timed_out(), "no segment comes while the root is on its way");
            now.holds = false;
        } else if is_write && now.roots > 0 {
            now.segments += 1;
            seen.1.notify_all();
        }
        None
    });
    let device = ObjectDevice::open(Arc::new(handle_of_store), Some(256 * MIB), [1; 16]).expect("a store");
    let env = Env::real();
    let env = Env { tasks: Arc::new(Beside(Arc::clone(&env.tasks))), ..env };
    let pool = Pool::create(&env, spec(vec![handle(&Arc::new(device))], None)).expect("a pool");
    let (first, next) = (noise(1, 300_000), noise(2, 24 << 20));
    {
        let (fs, _handle) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"first", &first);
        came.0.lock().unwrap().holds = true;
        std::thread::scope(|scope| {
            let commit = scope.spawn(|| pool.sync());
            let now = came.0.lock().unwrap();
            drop(came.1.wait_timeout_while(now, patience, |now| now.roots == 0).unwrap());
            write_file(&fs, ROOT, b"next", &next);
            commit.join().expect("it ends").expect("committed");
        });
    }
    pool.export().expect("exported");
    let again = ObjectDevice::open(Arc::new(store.handle(|_| None)), Some(256 * MIB), [1; 16]);
    let pool =
        import(&Env::real(), vec![handle(&Arc::new(again.expect("a store")))], None).expect("imported");
    let (fs, _handle) = mount(&pool, "tank");
    assert!(read_file(&fs, ROOT, b"first") == first && read_file(&fs, ROOT, b"next") == next);
}

/// Each request takes longer than a look of a scrub may last: it gets on by one look a time.
#[test]
fn a_scrub_comes_to_its_end_however_slow_the_store() {
    let env = Env::simulated(1);
    let clock = Arc::clone(&env.clock);
    let store = MemoryStore::new("bucket").handle(move |_| {
        clock.sleep(Duration::from_millis(50));
        None
    });
    let device = ObjectDevice::open(Arc::new(store), Some(256 * MIB), [1; 16]).expect("a store");
    let pool = Pool::create(&env, spec(vec![handle(&Arc::new(device))], None)).expect("a pool");
    {
        let (fs, _handle) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"a", &noise(3, 1 << 20));
    }
    pool.sync().expect("committed");
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    assert_ne!(pool.scan_remaining()[0], 0);
    (0..100).for_each(|_| pool.step());
    assert_eq!(pool.scan_remaining()[0], 0);
}
