//! Round trips of an import and of a commit, of a pool that is all on a store of objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{ME, MIB, ROOT, anchored_in, handle, import_spec, key, mount, noise, spec, write_file};
use crate::far_store::FarStore;
use steadfast_anchor::MemoryRegister;
use steadfast_device::Operation;
use steadfast_device::objects::{MemoryStore, ObjectDevice, Request, Store, StoreFault};
use steadfast_env::Env;
use steadfast_format::{Column, MetaKey, Placement, SegmentId, SegmentRow, meta_keys};
use steadfast_pool::forge::ForgedTree;
use steadfast_pool::{AnchorWish, ImportSpec, Memory, Pool, ScrubCommand, scan};
use steadfast_posix::FileSystem;

/// Latency of a request: those that are made together meet.
const LATENCY: Duration = Duration::from_millis(50);

/// Class of segments of file content, as rows tell it.
const CONTENT: u8 = 1;

/// A store that is near while it is filled, and far away afterwards.
struct World {
    store: MemoryStore,
    register: Option<Arc<MemoryRegister>>,
    /// Secret of a sealed pool.
    secret: Option<[u8; 32]>,
    env: Env,
}

impl World {
    fn new(is_anchored: bool) -> World {
        let register = is_anchored.then(|| Arc::new(MemoryRegister::new("anchor")));
        World { store: MemoryStore::new("bucket"), register, secret: None, env: Env::real() }
    }

    fn wish(&self) -> AnchorWish {
        self.register.as_ref().map_or_else(AnchorWish::default, anchored_in)
    }

    fn create(&self, capacity_bytes: u64) -> Pool {
        let store = Arc::new(self.store.handle(|_| None));
        let device = ObjectDevice::open(store, Some(capacity_bytes), [1; 16]).expect("a store");
        let key = self.secret.map(|secret| key(&self.env, &secret));
        let mut spec = spec(vec![handle(&Arc::new(device))], key);
        spec.anchor = self.wish();
        Pool::create(&self.env, spec).expect("a pool")
    }

    /// Looks for the pool far away, and imports it.
    fn import(&self) -> (Arc<FarStore>, Pool) {
        let far = FarStore::new(&self.store, LATENCY);
        let store = Arc::clone(&far) as Arc<dyn Store>;
        let device = ObjectDevice::open(store, None, [2; 16]).expect("a store");
        let (mut pools, _) = scan(vec![handle(&Arc::new(device))]);
        let secret = self.secret.as_ref().map(|secret| &secret[..]);
        let spec = ImportSpec { anchor: self.wish(), force: true, ..import_spec(secret) };
        let pool = Pool::import(&self.env, pools.remove(0), &spec).expect("imported");
        (far, pool)
    }
}

/// The first commit comes behind the answer, so the round trips so far are those of the import, and
/// at most the first one of that commit.
#[test]
fn an_import_takes_few_round_trips_and_a_commit_fewer() {
    for (is_anchored, import_max, commit_max) in [(false, 6, 3), (true, 6, 1)] {
        let world = World::new(is_anchored);
        {
            let pool = world.create(256 * MIB);
            for name in ["tank/a", "tank/b", "tank/c"] {
                pool.datasets().create_dataset(name, Default::default(), None).expect("made");
                let (fs, _handle) = mount(&pool, name);
                write_file(&fs, ROOT, b"file", &noise(1, 100_000));
                pool.sync().expect("committed");
            }
            pool.export().expect("exported");
        }
        let (far, pool) = world.import();
        let (trips, requests) = far.take();
        println!("import, anchor {is_anchored}: {trips} round trips, {requests:?}");
        assert!(trips <= import_max, "anchor {is_anchored}: {trips} round trips, {requests:?}");
        let (fs, _handle) = mount(&pool, "tank");
        pool.sync().expect("committed");
        for name in [b"a", b"b", b"c"] {
            far.quiet();
            far.take();
            fs.mkdir(ME, ROOT, name, 0o755).expect("made");
            pool.sync().expect("committed");
            let (trips, requests) = far.take();
            assert!(trips <= commit_max, "anchor {is_anchored}: {trips} round trips, {requests:?}");
        }
    }
}

/// Trees of many leaves, of which an opening reads a few; tables that lie in the segment of another
/// commit than the last; and a key that opens the file system. As `lab run bucket` does it.
#[test]
fn an_import_of_many_files_takes_few_round_trips() {
    for secret in [None, Some([7; 32])] {
        let world = World { secret, ..World::new(false) };
        {
            let pool = world.create(256 * MIB);
            let (fs, _handle) = mount(&pool, "tank");
            write_file(&fs, ROOT, b"large", &noise(1, 24 << 20));
            pool.sync().expect("committed");
            for number in 0..3_000 {
                let name = format!("a file with a name of its own {number:04}");
                fs.mknod(ME, ROOT, name.as_bytes(), 0o100_644, 0).expect("made");
            }
            pool.sync().expect("committed");
            drop((fs, _handle));
            pool.export().expect("exported");
        }
        let (far, pool) = world.import();
        let (trips, requests) = far.take();
        println!("import of many files, sealed {}: {trips} round trips, {requests:?}", secret.is_some());
        assert!(trips <= 6, "{trips} round trips, {requests:?}");
        let (fs, _handle) = mount(&pool, "tank");
        assert_eq!(fs.lookup(ROOT, b"large").expect("there").attr.size, 24 << 20);
    }
}

/// Rows of a pool that has lived for a while lie in leaves that many commits wrote, each in a
/// segment of its own.
#[test]
fn an_import_of_tables_in_many_segments_takes_few_round_trips() {
    let world = World::new(false);
    {
        let pool = world.create(256 * MIB);
        for round in 0..12 {
            for number in 0..12 {
                let name = format!("tank/a-file-system-with-a-long-name-{round:02}-{number:02}");
                pool.datasets().create_dataset(&name, Default::default(), None).expect("made");
            }
            pool.sync().expect("committed");
        }
        pool.export().expect("exported");
    }
    let (far, pool) = world.import();
    let (trips, requests) = far.take();
    println!("import of 144 file systems: {trips} round trips, {} requests", requests.len());
    assert!(trips <= 7, "{trips} round trips, {requests:?}");
    drop(pool);
}

/// A close writes small tables anew. A leaf that cannot be read at that moment stays where it is:
/// the pool is closed all the same, and has everything when the store gives it again.
#[test]
fn a_leaf_that_cannot_be_read_at_a_close_stays_where_it_is() {
    let name = |round, number| format!("tank/a-file-system-with-a-long-name-{round:02}-{number:02}");
    let world = World::new(false);
    {
        let pool = world.create(256 * MIB);
        for round in 0..12 {
            for number in 0..12 {
                pool.datasets().create_dataset(&name(round, number), Default::default(), None).expect("made");
            }
            pool.sync().expect("committed");
        }
        // No export, which would pack them.
    }
    let objects: Vec<String> =
        world.store.names().into_iter().filter(|name| name.starts_with("seg/")).collect();
    let mut refused = 0;
    for object in &objects {
        let store = world.store.copy();
        let is_lost = Arc::new(AtomicBool::new(false));
        let reads = Arc::new(AtomicU64::new(0));
        let hook = {
            let (object, is_lost, reads) = (object.clone(), Arc::clone(&is_lost), Arc::clone(&reads));
            move |request: &Request| {
                let hit = request.operation == Operation::Read && request.name == object;
                (hit && is_lost.load(Ordering::Relaxed)).then(|| {
                    reads.fetch_add(1, Ordering::Relaxed);
                    StoreFault::Fails
                })
            }
        };
        let open = |store: MemoryStore| {
            let device = ObjectDevice::open(Arc::new(store), None, [2; 16]).expect("a store");
            let (mut pools, _) = scan(vec![handle(&Arc::new(device))]);
            let spec = ImportSpec { force: true, ..import_spec(None) };
            Pool::import(&world.env, pools.remove(0), &spec).expect("imported")
        };
        let pool = open(store.handle(hook));
        pool.sync().expect("committed");
        // Leaves are forgotten, and so are the bytes that they came with.
        pool.set_memory(Memory { node_cache_bytes: 0, block_cache_bytes: 0, ..Memory::default() });
        is_lost.store(true, Ordering::Relaxed);
        pool.export().unwrap_or_else(|error| panic!("without {object}: {error}"));
        refused += u64::from(reads.load(Ordering::Relaxed) > 0);
        drop(pool);
        let pool = open(store.handle(|_| None));
        let names = (0..12).flat_map(|round| (0..12).map(move |number| name(round, number)));
        names.for_each(|name| drop(pool.datasets().dataset_info(&name).expect("it is there")));
        pool.export().expect("exported");
    }
    assert!(refused > 0, "leaves were asked for");
}

/// As many segments as a full TiB has in slots of 8 MiB: their rows are in the table, and nobody
/// reads what they hold.
#[test]
fn an_import_of_a_full_tebibyte_takes_few_round_trips() {
    const SEGMENTS: u64 = 1 << 17;
    let world = World::new(false);
    {
        let pool = world.create(1 << 42);
        let (fs, _handle) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"file", &noise(1, 1 << 20));
        pool.sync().expect("committed");
        let items = pool.forged_items(ForgedTree::Meta).expect("read");
        let rows = items.iter().filter(|(key, _)| key[0] == meta_keys::SEGMENT);
        let mut rows = rows.map(|(_, value)| SegmentRow::decode(value).expect("a row"));
        let row = rows.find(|row| row.class == CONTENT).expect("one of content");
        let Placement::Plain(Column { device, .. }) = row.place else { panic!("a store stands alone") };
        for number in 1..=SEGMENTS {
            let slot = 10_000 + u32::try_from(number).expect("few");
            let row = SegmentRow { place: Placement::Plain(Column { device, slot }), ..row.clone() };
            let key = MetaKey::Segment(SegmentId::new(0, number)).encode();
            pool.forge(ForgedTree::Meta, &key, Some(&row.encode())).expect("set");
        }
        pool.sync().expect("committed");
    }
    let (far, pool) = world.import();
    let (trips, requests) = far.take();
    println!("import of a TiB: {trips} round trips, {} requests", requests.len());
    assert!(trips <= 40, "{trips} round trips, {} requests", requests.len());
    drop(pool);
}

/// A scrub of a pool in which nothing changed since its last commit reads at once.
#[test]
fn a_scrub_begins_without_a_commit() {
    let world = World::new(false);
    {
        let pool = world.create(256 * MIB);
        let (fs, _handle) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"file", &noise(1, 3_000_000));
        pool.sync().expect("committed");
        pool.export().expect("exported");
    }
    let (far, pool) = world.import();
    pool.sync().expect("its first commit is over");
    far.quiet();
    far.take();
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    let ends = || {
        while pool.scan_remaining()[0] > 0 {
            pool.wait_turn(pool.turns(), Duration::from_millis(100));
        }
        pool.state().scan.expect("a scrub")
    };
    ends();
    far.quiet();
    let (trips, requests) = far.take();
    println!("scrub: {trips} round trips, {requests:?}");
    let first: Vec<_> = requests.iter().filter(|(trip, ..)| *trip == 1).collect();
    assert!(!first.is_empty() && first.iter().all(|(_, kind, _)| *kind == Operation::Read), "{first:?}");
    // Another one finds what was written meanwhile.
    let (fs, _handle) = mount(&pool, "tank");
    write_file(&fs, ROOT, b"another", &noise(2, 3_000_000));
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    let scan = ends();
    assert!(scan.read >= 6_000_000 && scan.lost == 0, "{scan:?}");
}

/// Makes so many files in a directory.
fn make_files(fs: &FileSystem, directory: u64, name: &str, count: u32) {
    for number in 0..count {
        fs.mknod(ME, directory, format!("{name}{number}").as_bytes(), 0o100_644, 0).expect("made");
    }
}

const LISTED: [&str; 3] = ["listed", "listed too", "listed as well"];

/// A pool in whose tree each round of changes left its nodes in a segment of its own: the names of
/// the top, a path of two directories, and three directories with 300 files. Names of the top need
/// more than one leaf.
fn lived(world: &World) {
    let pool = world.create(1024 * MIB);
    let (fs, _handle) = mount(&pool, "tank");
    let folder = |parent, name: &[u8], count| {
        let made = fs.mkdir(ME, parent, name, 0o755).expect("made").ino;
        make_files(&fs, made, "file", count);
        pool.sync().expect("committed");
        made
    };
    folder(ROOT, b"others", 5_000);
    for name in LISTED {
        folder(ROOT, name.as_bytes(), 300);
    }
    let one = folder(ROOT, b"one", 50);
    folder(one, b"two", 50);
    make_files(&fs, ROOT, "old", 600);
    pool.sync().expect("committed");
    drop((fs, _handle));
    pool.export().expect("exported");
}

/// Imports the pool, does something in it that nothing is in memory for, and exports it. Gives the
/// round trips of that.
fn trips_of(world: &World, what: &str, act: impl FnOnce(&FileSystem)) -> u64 {
    let (far, pool) = world.import();
    let (fs, _handle) = mount(&pool, "tank");
    fs.getattr(ROOT).expect("there");
    pool.sync().expect("committed");
    far.quiet();
    far.take();
    act(&fs);
    let (trips, requests) = far.take();
    println!("{what}: {trips} round trips, {requests:?}");
    pool.sync().expect("committed");
    drop((fs, _handle));
    pool.export().expect("exported");
    trips
}

/// Nodes of a path lie in the segments of many commits. Those that are likely to be needed next are
/// asked for together with the one that is waited for, and the names of the top lie together,
/// whichever of them were changed last.
#[test]
fn a_path_in_a_tree_that_has_lived_takes_one_round_trip() {
    let world = World { secret: Some([7; 32]), ..World::new(true) };
    lived(&world);
    let find = |fs: &FileSystem, parent, name: &str| fs.lookup(parent, name.as_bytes()).expect("there").ino;
    let mut created = Vec::new();
    for round in 0..4 {
        // Another leaf of the top is changed, and another one of the directories.
        trips_of(&world, "create at the top", |fs| make_files(fs, ROOT, &format!("new{round}-"), 1));
        created.push(trips_of(&world, "create three levels down", |fs| {
            let two = find(fs, find(fs, ROOT, "one"), "two");
            make_files(fs, two, &format!("new{round}-"), 1);
        }));
    }
    let list = |fs: &FileSystem, name: &str| {
        let mut count = 0;
        fs.readdir_looking(find(fs, ROOT, name), 0, |_, known| {
            count += usize::from(known.is_some());
            true
        })
        .expect("listed");
        assert_eq!(count, 300);
    };
    let listed = LISTED.map(|name| trips_of(&world, "list", |fs| list(fs, name)));
    // They were two and three to create, two to list. A thread that gets no processor for 50 ms
    // asks one round trip late, so one of each may have one more.
    let late = |trips: &[u64]| trips.iter().filter(|trips| **trips > 1).count();
    assert!(late(&created) <= 1 && late(&listed) <= 1, "{created:?}, {listed:?}");
}
