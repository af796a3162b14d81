//! A pool on a covered store: nothing above the device changes, and losses of the store come back.

use std::fs::File;
use std::sync::{Arc, Mutex};

use crate::common::{MIB, ROOT, handle, import, mount, noise, read_file, spec, write_file};
use steadfast_device::objects::{MemoryStore, ObjectDevice};
use steadfast_env::Env;
use steadfast_format::PoolGuid;
use steadfast_pool::Pool;
use steadfast_por::Covered;
use steadfast_por::parity::{Creation, ParityDevice};

/// The parity's own name of the pool.
const POOL: PoolGuid = PoolGuid(1);
const CAPACITY: u64 = 256 * MIB;

/// The store as a new process would cover it.
fn cover(store: &MemoryStore, corner: &File, writer: u8) -> Arc<Covered> {
    let device = ObjectDevice::open(Arc::new(store.handle(|_| None)), Some(CAPACITY), [writer; 16]);
    let medium = Box::new(corner.try_clone().expect("a file"));
    let random = Env::seeded(writer.into()).random;
    let parity = ParityDevice::open(medium, POOL, None, &*random).expect("a parity device");
    Arc::new(Covered::new(Arc::new(device.expect("a store")), 1, Arc::new(Mutex::new(parity))))
}

fn segments(store: &MemoryStore) -> Vec<String> {
    store.names().into_iter().filter(|name| name.starts_with("seg/")).collect()
}

#[test]
fn a_pool_on_a_covered_store_lives_and_gets_back_what_the_store_loses() {
    let (store, env) = (MemoryStore::new("bucket"), Env::simulated(1));
    let cells = CAPACITY / 4096;
    let creation = Creation { pool: POOL, cells, loss_ppm: 20_000, journal_bytes: 8 * MIB, key: None };
    let corner = tempfile::tempfile().expect("a file");
    corner.set_len(creation.bytes()).expect("room");
    let medium = Box::new(corner.try_clone().expect("a file"));
    ParityDevice::create(medium, &creation, &*env.random).expect("a parity device");

    let covered = cover(&store, &corner, 1);
    let pool = Pool::create(&env, spec(vec![handle(&covered)], None)).expect("a pool");
    let (fs, open) = mount(&pool, "tank");
    for number in 0..8_u64 {
        write_file(&fs, ROOT, format!("file {number}").as_bytes(), &noise(number, 2_500_000));
        pool.sync().expect("committed");
    }
    // Deleted segments leave the code, and then the store.
    let before = segments(&store).len();
    (0..3).for_each(|number| fs.unlink(ROOT, format!("file {number}").as_bytes()).expect("removed"));
    drop((fs, open));
    for _ in 0..4 {
        pool.sync().expect("committed");
        (0..8).for_each(|_| pool.step());
    }
    let pass = covered.pass().expect("a pass");
    covered.anchored(pass.generation).expect("deleted");
    let after = segments(&store).len();
    assert!(after < before, "{after} of {before} objects are left");
    assert!(covered.audit(400, &*env.random).is_held());
    pool.export().expect("exported");
    drop((pool, covered));
    let left = segments(&store);

    // The store loses three objects and keeps silent.
    for name in left.iter().step_by(left.len() / 3).take(3) {
        assert!(store.remove(name));
    }
    let covered = cover(&store, &corner, 2);
    assert!(!covered.audit(400, &*env.random).is_held());
    let repair = covered.repair().expect("a repair");
    assert!(repair.from_code.is_complete() && repair.unsound.is_empty());
    assert_eq!((repair.restored.len(), segments(&store).len()), (3, left.len()));
    let pool = import(&env, vec![handle(&covered)], None).expect("imported");
    let (fs, _open) = mount(&pool, "tank");
    for number in 3..8_u64 {
        let content = read_file(&fs, ROOT, format!("file {number}").as_bytes());
        assert!(content == noise(number, 2_500_000), "file {number}");
    }
}
