//! Requests that a pool makes to a store of whole objects: what one pays for, and waits for.

use std::sync::{Arc, Mutex, PoisonError};

use crate::common::{ME, MIB, ROOT, anchored_in, handle, import_spec, mount, spec, write_file};
use steadfast_anchor::MemoryRegister;
use steadfast_device::Operation;
use steadfast_device::objects::{MemoryStore, ObjectDevice, Request};
use steadfast_env::Env;
use steadfast_pool::{ImportSpec, Pool, scan};

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

/// A commit of one small change: one object for each stream of metadata, the copy of the root
/// behind the swap, and deletes of all that it freed together.
#[test]
fn a_small_commit_makes_few_requests() {
    let noted = Noted::new();
    let pool = noted.create();
    let (fs, _handle) = mount(&pool, "tank");
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
    assert!(puts.len() - copies <= 4 && copies <= 1, "{puts:?}");
    assert_eq!(reads, [""; 0], "nothing is read");
    (0..4).for_each(|_| pool.step());
    let copies = noted.take(Operation::Write);
    assert!(copies.len() <= 1, "{copies:?}");
    assert!(noted.take(Operation::Discard).len() <= 1);
    assert_eq!(noted.take(Operation::List), [""; 0]);
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
