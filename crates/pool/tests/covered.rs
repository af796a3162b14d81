//! A pool with a parity device: what its store loses comes back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{MIB, ROOT, handle, import, key, mount, noise, read_file, spec, write_file};
use steadfast_anchor::memory::Fault;
use steadfast_anchor::{AnchorRecord, MemoryRegister, Register, Witness};
use steadfast_device::Operation;
use steadfast_device::objects::{MemoryStore, ObjectDevice, Store, StoreFault};
use steadfast_env::Env;
use steadfast_format::object_names::LABELS;
use steadfast_format::{PoolGuid, PoolState};
use steadfast_pool::{Error, FoundPool, ImportSpec, ParityMedium, Pool, Registers, blank_parity, scan};
use steadfast_posix::FileSystem;

pub(crate) const CAPACITY: u64 = 256 * MIB;
pub(crate) const PATH: &str = "/safe/parity";
pub(crate) const TILES: &str = "s3://tiles";

/// The trusted corner: files by path, and a register.
#[derive(Default)]
pub(crate) struct Corner(
    pub(crate) Mutex<BTreeMap<String, File>>,
    Arc<MemoryRegister>,
    pub(crate) Mutex<Option<MemoryStore>>,
);

impl Corner {
    fn with(path: &str, bytes: u64) -> Arc<Corner> {
        let corner = Corner::default();
        corner.put(path, bytes);
        Arc::new(corner)
    }

    pub(crate) fn put(&self, path: &str, bytes: u64) {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(bytes).expect("room");
        self.0.lock().unwrap().insert(path.to_owned(), file);
    }

    /// The bytes of a file, and a file with such bytes in its place.
    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        let files = self.0.lock().unwrap();
        let mut bytes = vec![0; usize::try_from(files[path].metadata().unwrap().len()).unwrap()];
        std::os::unix::fs::FileExt::read_exact_at(&files[path], &mut bytes, 0).unwrap();
        bytes
    }

    pub(crate) fn write(&self, path: &str, bytes: &[u8], at: u64) {
        std::os::unix::fs::FileExt::write_all_at(&self.0.lock().unwrap()[path], bytes, at).unwrap();
    }

    pub(crate) fn put_back(&self, path: &str, bytes: &[u8]) {
        self.put(path, bytes.len() as u64);
        std::os::unix::fs::FileExt::write_all_at(&self.0.lock().unwrap()[path], bytes, 0).unwrap();
    }
}

impl Registers for Corner {
    fn register(&self, _: &str) -> Arc<dyn Register> {
        Arc::clone(&self.1) as Arc<dyn Register>
    }

    fn witness(&self, _: PoolGuid) -> Option<Arc<dyn Witness>> {
        None
    }

    fn parity(&self, path: &str) -> io::Result<Box<dyn ParityMedium>> {
        let files = self.0.lock().unwrap();
        let file = files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(file.try_clone()?))
    }

    fn tiles(&self, address: &str) -> io::Result<Arc<dyn Store>> {
        assert_eq!(address, TILES);
        let store = self.2.lock().unwrap().take().ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(store))
    }
}

pub(crate) struct World {
    pub(crate) store: MemoryStore,
    pub(crate) env: Env,
    pub(crate) corner: Arc<Corner>,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let corner = Corner::with(PATH, 64 * MIB);
        World { store: MemoryStore::new("bucket"), env: Env::simulated(seed), corner }
    }

    pub(crate) fn device(&self, writer: u8) -> Arc<ObjectDevice> {
        let store = Arc::new(self.store.handle(|_| None));
        Arc::new(ObjectDevice::open(store, Some(CAPACITY), [writer; 16]).expect("a store"))
    }

    pub(crate) fn create(&self) -> Pool {
        self.create_on(&self.device(1))
    }

    fn create_on(&self, device: &Arc<ObjectDevice>) -> Pool {
        Pool::create(&self.env, spec(vec![handle(device)], None)).expect("a pool")
    }

    /// A pool with an anchor.
    fn anchored(&self, device: &Arc<ObjectDevice>) -> Pool {
        let mut wish = spec(vec![handle(device)], None);
        wish.anchor.registers = Some(Arc::clone(&self.corner) as Arc<dyn Registers>);
        wish.anchor.path = Some("/safe/anchor".to_owned());
        Pool::create(&self.env, wish).expect("a pool")
    }

    /// Once it cuts, the register does not answer behind a label: the commit behind labels fails.
    /// Once it refuses, it takes no label.
    fn cut_device(&self, [cuts, refuses]: [&Arc<AtomicBool>; 2], writer: u8) -> Arc<ObjectDevice> {
        let (cuts, refuses, register) = (Arc::clone(cuts), Arc::clone(refuses), Arc::clone(&self.corner.1));
        let store = self.store.handle(move |request| {
            let is_label = request.operation == Operation::Write && request.name.starts_with(LABELS);
            if is_label && cuts.load(Ordering::Relaxed) {
                register.arm(&[Fault::Before; 64]);
            }
            (is_label && refuses.load(Ordering::Relaxed)).then_some(StoreFault::Fails)
        });
        Arc::new(ObjectDevice::open(Arc::new(store), Some(CAPACITY), [writer; 16]).expect("a store"))
    }

    pub(crate) fn add(&self, pool: &Pool) {
        self.try_add(pool, PATH).expect("a parity device");
    }

    fn try_add(&self, pool: &Pool, path: &str) -> Result<(), Error> {
        pool.devices().add_parity(path, self.corner.parity(path).expect("a file"), false, false)
    }

    pub(crate) fn import(&self, writer: u8) -> Pool {
        import_with(&self.env, &self.device(writer), &self.corner)
    }

    pub(crate) fn segments(&self) -> Vec<String> {
        self.store.names().into_iter().filter(|name| name.starts_with("seg/")).collect()
    }
}

pub(crate) fn import_with(env: &Env, device: &Arc<ObjectDevice>, corner: &Arc<Corner>) -> Pool {
    let found: FoundPool = scan(vec![handle(device)]).0.pop().expect("a pool");
    let mut spec: ImportSpec = crate::common::import_spec(None);
    spec.anchor.registers = Some(Arc::clone(corner) as Arc<dyn Registers>);
    Pool::import(env, found, &spec).expect("imported")
}

pub(crate) fn fill(pool: &Pool, numbers: std::ops::Range<u64>) {
    let (fs, _open) = mount(pool, "tank");
    for number in numbers {
        write_file(&fs, ROOT, format!("file {number}").as_bytes(), &noise(number, 1_500_000));
        pool.sync().expect("committed");
    }
}

pub(crate) fn check(pool: &Pool, numbers: std::ops::Range<u64>) {
    let (fs, _open) = mount(pool, "tank");
    for number in numbers {
        let content = read_file(&fs, ROOT, format!("file {number}").as_bytes());
        assert!(content == noise(number, 1_500_000), "file {number}");
    }
}

/// Commits and steps until a condition holds.
pub(crate) fn until(pool: &Pool, what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..200 {
        if is_so() {
            return;
        }
        pool.sync().expect("committed");
        // Where nothing is asked for, a step lets time pass.
        (0..20).for_each(|_| pool.step());
    }
    panic!("never: {what}");
}

pub(crate) fn parity(pool: &Pool) -> steadfast_pool::ParityStatus {
    pool.state().parity.expect("a parity device")
}

/// The whole life: a parity device comes to a pool that has content, covers it, lets deleted
/// objects go, and gives back what the store loses, across an import.
#[test]
fn what_a_store_loses_comes_back() {
    let world = World::new(1);
    let pool = world.create();
    fill(&pool, 0..4);
    world.add(&pool);
    assert!(matches!(world.try_add(&pool, PATH), Err(Error::ParityThere { .. })));
    // An audit says of how much it tells: of nothing that was there before, as yet.
    let coverage = pool.devices().audit(100).expect("an audit").coverage;
    assert_eq!(coverage.uncovered, parity(&pool).uncovered);
    assert!(coverage.uncovered > 0 && coverage.covered < coverage.stored / 2, "{coverage:?}");
    fill(&pool, 4..8);
    let newer = pool.devices().audit(100).expect("an audit").coverage;
    assert!(newer.covered > coverage.covered && newer.covered < newer.stored, "{newer:?}");
    until(&pool, "all is covered", || parity(&pool).uncovered == 0);
    let coverage = pool.devices().audit(100).expect("an audit").coverage;
    assert!(coverage.uncovered == 0 && coverage.covered == coverage.stored, "{coverage:?}");
    let before = world.segments().len();
    {
        let (fs, _open) = mount(&pool, "tank");
        (0..3).for_each(|number| fs.unlink(ROOT, format!("file {number}").as_bytes()).expect("removed"));
    }
    pool.sync().expect("committed");
    until(&pool, "deleted objects go", || world.segments().len() < before);
    let report = pool.devices().audit(400).expect("an audit");
    assert!(report.is_held(), "{report:?}");
    pool.export().expect("exported");
    drop(pool);

    // Metadata that leads to the content is lost, too: the import gets it back before it reads on.
    let left = world.segments();
    for name in left.iter().step_by(left.len() / 3).take(3) {
        assert!(world.store.remove(name));
    }
    let pool = world.import(2);
    assert_eq!(parity(&pool).trouble, None);
    assert!(left.iter().all(|name| world.segments().contains(name)));
    // It could not walk before: whoever has the pool proves what it put back.
    let unproven = pool.devices().take_unproven();
    assert!(unproven.len() == 3 && !pool.devices().is_proof_due(), "{unproven:?}");
    let proven = pool.devices().prove_content(&unproven, &AtomicBool::new(false)).expect("to its end");
    assert!(proven.blocks > 0 && proven.wrong == 0 && proven.unread == 0, "{proven:?}");
    assert!(pool.devices().audit(400).expect("an audit").is_held());

    // The store loses more while the pool is in use.
    for name in left.iter().step_by(left.len() / 3).take(2) {
        assert!(world.store.remove(name));
    }
    let report = pool.devices().audit(400).expect("an audit");
    assert!(!report.is_held());
    assert!(parity(&pool).audit.is_some_and(|audit| audit.failed > 0));
    let recovered = pool.devices().recover(1 << 30, &mut |_, _| ()).expect("a recovery");
    assert!(recovered.lost.is_empty() && recovered.unsound.is_empty(), "{recovered:?}");
    assert_eq!(recovered.restored.len(), 2);
    assert!(parity(&pool).audit.is_some_and(|audit| audit.failed == 0));
    assert!(pool.devices().audit(400).expect("an audit").is_held());
    check(&pool, 3..8);
    pool.devices().remove_parity(PATH).expect("removed");
    assert!(pool.state().parity.is_none());
    assert!(matches!(pool.devices().audit(1), Err(Error::NoParity { .. })));
    pool.export().expect("exported");
    let pool = import(&world.env, vec![handle(&world.device(3))], None).expect("imported without a corner");
    check(&pool, 3..8);
}

/// Bytes that were wrong before the code took them in come back as they were: their tags are right.
/// The hashes in pointers tell, and name the file.
#[test]
fn blocks_of_objects_that_came_back_are_held_against_their_hashes() {
    let world = World::new(21);
    let pool = world.create();
    fill(&pool, 0..4);
    pool.export().expect("exported");
    drop(pool);
    let files: Vec<String> = world.segments();
    let hand = world.store.handle(|_| None);
    let object = |name: &String| hand.read(name, None).expect("there");
    let largest = files.iter().max_by_key(|name| object(name).len()).expect("some");
    let mut bytes = object(largest);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    assert!(world.store.remove(largest) && hand.create(largest, &bytes).expect("created"));
    let pool = world.import(2);
    world.add(&pool);
    until(&pool, "all is covered", || parity(&pool).uncovered == 0);
    let stop = AtomicBool::new(false);
    for name in [largest, files.iter().find(|name| *name != largest).expect("another one")] {
        assert!(world.store.remove(name));
    }
    let recovered = pool.devices().recover(1 << 30, &mut |_, _| ()).expect("a recovery");
    assert!(recovered.lost.is_empty() && recovered.restored.len() == 2, "{recovered:?}");
    let proven = pool.devices().prove_content(&recovered.restored, &stop).expect("to its end");
    assert_eq!((proven.wrong, proven.named.len(), proven.unread), (1, 1, 0), "{proven:?}");
    assert!(proven.blocks > 8 && proven.bytes > 1_000_000 && proven.locked.is_empty(), "{proven:?}");
    assert!(recovered.restored.contains(&proven.named[0].0));
    let damaged = pool.state().damaged;
    let path = damaged.first().and_then(|file| file.path.clone()).expect("a file is named");
    assert!(damaged.len() == 1 && path.windows(5).any(|part| part == b"file "), "{damaged:?}");
}

/// A file that knows whether something written to it may be lost if the power fails.
struct Watched(File, Arc<AtomicBool>);

impl ParityMedium for Watched {
    fn size(&self) -> io::Result<u64> {
        ParityMedium::size(&self.0)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        ParityMedium::read(&self.0, at, out)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.1.store(true, Ordering::SeqCst);
        ParityMedium::write(&self.0, at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        ParityMedium::flush(&self.0)?;
        self.1.store(false, Ordering::SeqCst);
        Ok(())
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        ParityMedium::grow(&self.0, bytes)
    }
}

/// Status does not say that all is covered before a power cut would leave it so. A pool in which
/// nothing is written gets there, too.
#[test]
fn all_is_covered_once_it_is_durable() {
    let world = World::new(21);
    let pool = world.create();
    fill(&pool, 0..4);
    let is_dirty = Arc::new(AtomicBool::new(false));
    let file = tempfile::tempfile().expect("a file");
    file.set_len(64 * MIB).expect("room");
    let medium = Box::new(Watched(file, Arc::clone(&is_dirty)));
    pool.devices().add_parity(PATH, medium, false, false).expect("a parity device");
    assert!(parity(&pool).uncovered > 1);
    let mut steps = 0;
    while parity(&pool).uncovered > 0 {
        pool.step();
        steps += 1;
        assert!(steps < 1000, "never: {:?}", parity(&pool));
    }
    assert!(!is_dirty.load(Ordering::SeqCst));
    pool.export().expect("exported");
}

/// An audit tells of what a power cut would leave covered, as status does, while content comes in.
#[test]
fn an_audit_counts_what_is_durable() {
    let world = World::new(22);
    let pool = world.create();
    fill(&pool, 0..4);
    world.add(&pool);
    let (mut steps, mut seen) = (0, std::collections::BTreeSet::new());
    while parity(&pool).uncovered > 0 {
        pool.step();
        let told = pool.devices().audit(1).expect("an audit").coverage.uncovered;
        assert_eq!(told, parity(&pool).uncovered);
        seen.insert(told);
        steps += 1;
        assert!(steps < 1000, "never: {:?}", parity(&pool));
    }
    assert!(steps > 2 && seen.contains(&0), "{steps} steps, {seen:?}");
    pool.export().expect("exported");
}

/// [parity_device.1], [parity_device.3]
#[test]
fn a_parity_that_is_old_lost_or_of_another_pool_is_told() {
    let world = World::new(2);
    let pool = world.create();
    world.add(&pool);
    fill(&pool, 0..2);
    until(&pool, "all is covered", || parity(&pool).uncovered == 0);
    pool.export().expect("exported");
    drop(pool);
    let old = world.corner.bytes(PATH);
    let pool = world.import(2);
    fill(&pool, 2..4);
    pool.export().expect("exported");
    drop(pool);
    let now = world.corner.bytes(PATH);

    world.corner.put_back(PATH, &old);
    let pool = world.import(3);
    let trouble = parity(&pool).trouble.expect("it is old");
    assert!(trouble.starts_with("it was put back to an older state"), "{trouble}");
    assert!(matches!(pool.devices().audit(1), Err(Error::ParityUnusable { .. })));
    // The pool goes on, and what is written now is caught up with when the right one is back.
    fill(&pool, 4..5);
    pool.export().expect("exported");
    drop(pool);
    world.corner.put_back(PATH, &now);
    let pool = world.import(4);
    assert_eq!(parity(&pool).trouble, None);
    until(&pool, "all is covered", || parity(&pool).uncovered == 0);
    pool.export().expect("exported");
    drop(pool);

    world.corner.0.lock().unwrap().remove(PATH);
    let pool = world.import(5);
    assert!(parity(&pool).trouble.expect("it is lost").contains("not found"));
    check(&pool, 0..5);
    pool.export().expect("exported");
    drop(pool);

    let other = World::new(3);
    let stranger = other.create();
    other.add(&stranger);
    stranger.export().expect("exported");
    drop(stranger);
    world.corner.put_back(PATH, &other.corner.bytes(PATH));
    let pool = world.import(6);
    assert!(parity(&pool).trouble.expect("it is another's").starts_with("the parity device is of pool"));
    pool.devices().remove_parity(PATH).expect("removed");
    let foreign = world.try_add(&pool, PATH);
    assert!(matches!(foreign, Err(Error::ParityForeign { .. })));
    world.corner.put("/safe/small", 9 * MIB);
    match world.try_add(&pool, "/safe/small") {
        Err(Error::ParitySmall { needed, .. }) => {
            world.corner.put("/safe/small", needed);
            world.try_add(&pool, "/safe/small").expect("large enough");
        }
        other => panic!("{other:?}"),
    }
    until(&pool, "all is covered", || parity(&pool).uncovered == 0);
    assert!(pool.devices().audit(100).expect("an audit").is_held());
}

/// The anchor's record tells the last pass, and the code of a sealed pool has no key of its own.
#[test]
fn an_anchor_knows_the_last_pass_of_a_sealed_pool() {
    let world = World::new(4);
    let mut wish = spec(vec![handle(&world.device(1))], Some(key(&world.env, &[7; 32])));
    wish.anchor.registers = Some(Arc::clone(&world.corner) as Arc<dyn Registers>);
    wish.anchor.path = Some("/safe/anchor".to_owned());
    let pool = Pool::create(&world.env, wish).expect("a pool");
    let told =
        || AnchorRecord::decode(&world.corner.1.read().expect("a record")[..]).expect("a record").por_gen;
    assert_eq!(told(), 0);
    world.add(&pool);
    fill(&pool, 0..3);
    let generation = || parity(&pool).figures.expect("a code").generation;
    until(&pool, "a pass is anchored", || generation() > 1 && told() == generation());
    pool.export().expect("exported");
    drop(pool);

    let found: FoundPool = scan(vec![handle(&world.device(2))]).0.pop().expect("a pool");
    let mut spec: ImportSpec = crate::common::import_spec(Some(&[7; 32]));
    spec.anchor.registers = Some(Arc::clone(&world.corner) as Arc<dyn Registers>);
    let pool = Pool::import(&world.env, found, &spec).expect("imported");
    assert_eq!(parity(&pool).trouble, None);
    for name in world.segments().iter().step_by(5) {
        assert!(world.store.remove(name));
    }
    assert!(pool.devices().recover(1 << 30, &mut |_, _| ()).expect("a recovery").lost.is_empty());
    check(&pool, 0..3);
    pool.devices().remove_parity(PATH).expect("removed");
    assert_eq!(told(), 0);
}

/// A parity device that comes after one whose removal was cut off is not held against the pass of
/// that one, wherever its coming is cut off.
#[test]
fn a_cut_removal_makes_no_later_parity_old() {
    let world = World::new(5);
    let cuts = Arc::new(AtomicBool::new(false));
    let device = |writer: u8| world.cut_device([&cuts, &Arc::default()], writer);
    let import = |writer| import_with(&world.env, &device(writer), &world.corner);
    let pool = world.anchored(&device(1));
    let told =
        || AnchorRecord::decode(&world.corner.1.read().expect("a record")[..]).expect("a record").por_gen;
    world.add(&pool);
    fill(&pool, 0..3);
    until(&pool, "a pass is anchored", || told() > 1);
    cuts.store(true, Ordering::Relaxed);
    assert!(pool.devices().remove_parity(PATH).is_err(), "its commit was cut off");
    drop(pool);

    cuts.store(false, Ordering::Relaxed);
    world.corner.1.disarm();
    let pool = import(2);
    assert!(pool.state().parity.is_none() && told() > 1, "labels know of none, the anchor does");
    world.corner.put(PATH, 64 * MIB);
    cuts.store(true, Ordering::Relaxed);
    assert!(world.try_add(&pool, PATH).is_err(), "its commit was cut off");
    drop(pool);

    cuts.store(false, Ordering::Relaxed);
    world.corner.1.disarm();
    let pool = import(3);
    assert_eq!(parity(&pool).trouble, None);
    check(&pool, 0..3);
}

/// A new pool whose parity device failed it is taken back, though the commit that failed suspended
/// it: the same devices and parity device take another one. If its store takes no label it stays,
/// and that is an error.
#[test]
fn a_new_pool_is_taken_back_or_said_to_stay() {
    for stays in [false, true] {
        let world = World::new(6);
        let [cuts, refuses] = [false; 2].map(|_| Arc::new(AtomicBool::new(false)));
        let pool = world.anchored(&world.cut_device([&cuts, &refuses], 1));
        let before = world.corner.bytes(PATH);
        cuts.store(true, Ordering::Relaxed);
        assert!(world.try_add(&pool, PATH).is_err(), "its commit was cut off");
        assert!(pool.suspended().is_some());
        cuts.store(false, Ordering::Relaxed);
        refuses.store(stays, Ordering::Relaxed);
        world.corner.1.disarm();
        let (taken, guid) = (pool.take_back(), pool.guid());
        assert_eq!(taken.is_err(), stays, "{taken:?}");
        drop(pool);

        let device = world.device(2);
        let found: FoundPool = scan(vec![handle(&device)]).0.pop().expect("a label");
        let parity = world.corner.parity(PATH).expect("a file");
        if stays {
            assert_eq!(found.config.state, PoolState::Active);
            let pool = import_with(&world.env, &device, &world.corner);
            assert!(pool.state().parity.is_some_and(|parity| parity.trouble.is_none()));
            continue;
        }
        assert_eq!(found.config.state, PoolState::Destroyed);
        blank_parity(&*parity, PoolGuid(guid.0 ^ 1)).expect("written");
        assert!(world.corner.bytes(PATH) != before, "another pool's stays");
        blank_parity(&*parity, guid).expect("written");
        let pool = world.create_on(&device);
        world.add(&pool);
    }
}

/// A recovery gives back what it can; behind it the code is made anew without what is lost, and
/// what is left is held and covered. An export while it is made loses nothing.
#[test]
fn a_code_is_made_anew_behind_a_recovery() {
    let world = World::new(6);
    world.corner.put(PATH, 32 * MIB);
    let pool = world.create();
    world.add(&pool);
    let before = world.segments();
    // Content alone, of which each object that is committed later does without.
    fill(&pool, 0..8);
    until(&pool, "all is covered", || parity(&pool).uncovered == 0);
    let content: Vec<String> = world.segments().into_iter().filter(|name| !before.contains(name)).collect();
    let figures = || parity(&pool).figures.expect("a code");
    assert_eq!(figures().tiles, 1);
    fill(&pool, 8..12);
    until(&pool, "a pass ends", || figures().journal_used < figures().journal_size / 8);
    // Objects of more than a tile's rows.
    let mut lost = 0;
    for name in &content {
        // Some were of metadata, and have gone since.
        if let Ok(object) = world.store.read(name, None)
            && lost < 2300 * 4096
        {
            lost += object.len();
            assert!(world.store.remove(name));
        }
    }
    assert!(lost > 2048 * 4096, "{lost}");
    let recover = |pool: &Pool| pool.devices().recover(1 << 30, &mut |_, _| ()).expect("a recovery");
    let recovered = recover(&pool);
    assert!(!recovered.lost.is_empty() && pool.devices().is_rekey_due(&recovered));
    assert!(pool.devices().owes_rekey());
    assert!(!pool.devices().audit(400).expect("an audit").is_held());

    // It is told to end before it reads, by an export, and the next owner goes on.
    let rekey = |pool: &Pool, recovered, stop: bool| {
        pool.devices().rekey(recovered, 1 << 30, &AtomicBool::new(stop), &mut |_, _| ())
    };
    assert!(matches!(rekey(&pool, &recovered, true), Err(Error::Rekey { .. })));
    let rekeyed = rekey(&pool, &recovered, false).expect("a re-key");
    assert!(!rekeyed.left_out.is_empty() && rekeyed.rounds == 1);
    assert!(!pool.devices().owes_rekey());
    assert!(!pool.devices().is_rekey_due(&recover(&pool)));
    pool.sync().expect("committed");
    let report = pool.devices().audit(400).expect("an audit");
    assert!(report.is_held(), "{report:?}");
    let left_out = rekeyed.left_out.len() as u64;
    assert!(report.coverage.uncovered >= left_out && report.coverage.covered < report.coverage.stored);
    assert_eq!(parity(&pool).uncovered, report.coverage.uncovered);
    check(&pool, 8..12);
    let is_used = || pool.features().iter().any(|feature| feature.name == "parity_rekey");
    assert!(is_used());
    pool.devices().remove_parity(PATH).expect("removed");
    assert!(!is_used());
}

/// A parity device of before a re-key is old, whatever its code: it is told, and not used. So is
/// one of before the beginning of a re-key that was cut off.
#[test]
fn a_parity_of_before_a_re_key_is_told() {
    let world = World::new(7);
    let pool = world.create();
    world.add(&pool);
    fill(&pool, 0..4);
    until(&pool, "all is covered", || parity(&pool).uncovered == 0);
    pool.export().expect("exported");
    drop(pool);
    let mut writer = 1;
    for is_cut in [true, false] {
        let old = world.corner.bytes(PATH);
        writer += 1;
        let pool = world.import(writer);
        let stop = AtomicBool::new(false);
        let mut watch = |_, _| stop.store(is_cut, Ordering::Relaxed);
        let recovered = pool.devices().recover(1 << 30, &mut |_, _| ()).expect("a recovery");
        let rekeyed = pool.devices().rekey(&recovered, 1, &stop, &mut watch);
        assert_eq!(rekeyed.is_err(), is_cut, "{rekeyed:?}");
        assert_eq!(parity(&pool).figures.expect("a code").next.is_some(), is_cut);
        pool.export().expect("exported");
        drop(pool);
        let now = world.corner.bytes(PATH);
        world.corner.put_back(PATH, &old);
        writer += 1;
        let pool = world.import(writer);
        let trouble = parity(&pool).trouble.expect("it is old");
        assert!(trouble.starts_with("it was put back to an older state"), "{trouble}");
        let refused = pool.devices().rekey(&recovered, 1, &AtomicBool::new(false), &mut |_, _| ());
        assert!(matches!(refused, Err(Error::ParityUnusable { .. })));
        pool.export().expect("exported");
        drop(pool);
        world.corner.put_back(PATH, &now);
    }
    let pool = world.import(9);
    assert_eq!(parity(&pool).trouble, None);
    for name in world.segments().iter().step_by(3) {
        assert!(world.store.remove(name));
    }
    assert!(pool.devices().recover(1 << 30, &mut |_, _| ()).expect("a recovery").lost.is_empty());
    check(&pool, 0..4);
}

/// Files of a dataset or snapshot, each with the ranges of pages that cannot be read.
fn unreadable(fs: &FileSystem, names: &[String]) -> BTreeMap<Vec<u8>, Vec<(u64, u64)>> {
    const PAGE: u64 = 4096;
    let mut found = BTreeMap::new();
    for name in names {
        let Ok(entry) = fs.lookup(ROOT, name.as_bytes()) else { continue };
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for at in (0..entry.attr.size).step_by(usize::try_from(PAGE).unwrap()) {
            let end = entry.attr.size.min(at + PAGE);
            let mut bytes = vec![0; usize::try_from(end - at).unwrap()];
            if fs.read(entry.ino, at, &mut bytes).is_err() {
                match ranges.last_mut() {
                    Some(last) if last.1 == at => last.1 = end,
                    _ => ranges.push((at, end)),
                }
            }
        }
        fs.forget(entry.ino, 1);
        if !ranges.is_empty() {
            found.insert(name.clone().into_bytes(), ranges);
        }
    }
    found
}

/// Files in cells that did not come back are named with their ranges: of the dataset, of each
/// snapshot and of a clone those that cannot be read, and no others. Content is not read for it.
/// Cells of what was deleted are told as dead.
#[test]
fn files_in_lost_cells_are_named() {
    let world = World::new(8);
    world.corner.put(PATH, 32 * MIB);
    let pool = world.create();
    world.add(&pool);
    let before = world.segments();
    {
        // Of its first object some cells have nothing that lives.
        let (fs, _open) = mount(&pool, "tank");
        let file = write_file(&fs, ROOT, b"file 20", &noise(20, 1_500_000));
        pool.sync().expect("committed");
        fs.write(file, 0, &noise(21, 128 << 10), false).expect("written over");
    }
    fill(&pool, 0..10);
    let datasets = pool.datasets();
    datasets.take_snapshots(&["tank@one".to_owned()], &BTreeMap::new()).expect("taken");
    datasets.clone_snapshot("tank@one", "tank/clone", BTreeMap::new()).expect("cloned");
    until(&pool, "all is covered", || parity(&pool).uncovered == 0);
    let content: Vec<String> = world.segments().into_iter().filter(|name| !before.contains(name)).collect();
    {
        let (fs, _open) = mount(&pool, "tank");
        // Only the snapshot and the clone have these.
        (0..2).for_each(|number| fs.unlink(ROOT, format!("file {number}").as_bytes()).expect("removed"));
        let file = fs.lookup(ROOT, b"file 2").expect("found");
        fs.write(file.ino, 0, &noise(99, 303_104), false).expect("written");
        let other = fs.lookup(ROOT, b"file 3").expect("found");
        fs.rename(ROOT, b"file 3", ROOT, b"moved", 0).expect("renamed");
        fs.forget(file.ino, 1);
        fs.forget(other.ino, 1);
        let (clone, _open) = mount(&pool, "tank/clone");
        clone.unlink(ROOT, b"file 4").expect("removed");
    }
    pool.sync().expect("committed");
    datasets.take_snapshots(&["tank@two".to_owned()], &BTreeMap::new()).expect("taken");
    fill(&pool, 10..14);
    until(&pool, "a pass ends", || {
        let figures = parity(&pool).figures.expect("a code");
        figures.journal_used < figures.journal_size / 8
    });
    let mut lost = 0;
    for name in &content {
        if let Ok(object) = world.store.read(name, None)
            && lost < 2600 * 4096
        {
            lost += object.len();
            assert!(world.store.remove(name));
        }
    }
    let recovered = pool.devices().recover(1 << 30, &mut |_, _| ()).expect("a recovery");
    assert!(!recovered.lost.is_empty());
    let read = |pool: &Pool| pool.state().leaves[0].sample.read.bytes;
    let before = read(&pool);
    let mut passed = Vec::new();
    let named = pool
        .devices()
        .name_lost(&recovered.lost, &AtomicBool::new(false), &mut |done, of| passed.push((done, of)))
        .expect("nobody stopped it");
    assert!(read(&pool) - before < MIB, "{}", read(&pool) - before);
    assert!(passed.len() > 4 && passed.is_sorted() && passed.last().is_some_and(|(done, of)| done <= of));
    assert!(named.is_complete() && named.unnamed == 0, "{named:?}");
    assert_eq!(named.live_cells + named.dead_cells, recovered.lost.len() as u64);
    assert!(named.dead_cells >= 32 && named.live_cells > 2000, "{named:?}");
    // `zpool status -v` has them, too.
    let listed = pool.state().damaged;
    assert!(named.files.iter().all(|file| listed.contains(file)), "{listed:?}");

    // A reader finds the same.
    pool.export().expect("exported");
    drop(pool);
    let pool = world.import(2);
    let names: Vec<String> =
        (0..14).chain([20]).map(|number| format!("file {number}")).chain(["moved".to_owned()]).collect();
    let mut all = 0;
    for moment in ["tank", "tank@one", "tank@two", "tank/clone"] {
        let of = |file: &&steadfast_pool::DamagedFile| file.dataset == moment;
        let told = named
            .files
            .iter()
            .filter(of)
            .map(|file| (file.path.clone().expect("all have names"), file.ranges.clone()));
        let told: BTreeMap<_, _> = told.collect();
        let found = match moment.split_once('@') {
            None => unreadable(&mount(&pool, moment).0, &names),
            Some((dataset, snapshot)) => {
                let open = pool.datasets().open_dataset(dataset).expect("it opens");
                let open = open.snapshots().open(snapshot).expect("it is there");
                open.with(|files| {
                    unreadable(&FileSystem::of_snapshot(Arc::clone(files), crate::common::options()), &names)
                })
                .expect("it is there")
            }
        };
        assert_eq!(told, found, "{moment}");
        all += found.len();
    }
    assert!(all > 6 && named.files.len() == all, "{named:?}");
    assert!(named.files.iter().any(|file| file.dataset == "tank" && file.path.as_deref() == Some(b"moved")));
}
