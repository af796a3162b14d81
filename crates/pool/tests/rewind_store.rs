//! A store of whole objects whose newest root is damaged, and no anchor: nothing opens by itself,
//! and the operator goes back to an older root (`zpool import -F`).

use std::sync::Arc;

use crate::common::{MIB, ROOT, handle, import_spec, key, mount, noise, read_file, spec, write_file};
use crate::promises::{self, still};
use steadfast_device::MemoryDevice;
use steadfast_device::objects::{MemoryStore, ObjectDevice, Store};
use steadfast_env::Env;
use steadfast_format::Txg;
use steadfast_pool::{
    AnchorWish, DeviceHandle, Error, FoundPool, GoBack, GroupHandles, ImportSpec, Pool, RootAge, older_roots,
    scan,
};

const NAMES: [&str; 4] = ["one", "two", "three", "four"];
const SECRET: &[u8] = &[7; 32];

/// A store, and whether the pool on it is sealed.
struct World {
    store: MemoryStore,
    secret: Option<&'static [u8]>,
}

impl World {
    fn create(secret: Option<&'static [u8]>) -> (World, Pool) {
        let world = World { store: MemoryStore::new("bucket"), secret };
        let key = secret.map(|secret| key(&Env::simulated(9), secret));
        let pool = Pool::create(&Env::simulated(1), spec(world.device(1), key)).expect("a pool");
        put(&pool, "one").expect("committed");
        put(&pool, "two").expect("committed");
        (world, pool)
    }

    /// Another one that holds the same now.
    fn copy(&self) -> World {
        World { store: self.store.copy(), ..*self }
    }

    fn device(&self, writer: u8) -> Vec<DeviceHandle> {
        let store = Arc::new(self.store.handle(|_| None));
        let device = ObjectDevice::open(store, Some(256 * MIB), [writer; 16]).expect("a store");
        vec![handle(&Arc::new(device))]
    }

    fn import_of(&self, writer: u8, back_to: Option<RootAge>, read_only: bool) -> Result<Pool, Error> {
        let (mut pools, _) = scan(self.device(writer));
        let anchor = wish(&pools[0], back_to);
        let spec = ImportSpec { anchor, force: true, read_only, ..import_spec(self.secret) };
        Pool::import(&Env::simulated(writer.into()), pools.remove(0), &spec)
    }

    fn import(&self, writer: u8) -> Result<Pool, Error> {
        self.import_of(writer, None, false)
    }

    /// Roots that the store knows, newest first.
    fn roots(&self) -> Vec<RootAge> {
        older_roots(&scan(self.device(9)).0[0])
    }

    fn newest(&self, folder: &str) -> String {
        let names = self.store.names().into_iter().filter(|name| name.starts_with(folder));
        names.max().expect("there is one")
    }

    fn flip(&self, object: &str, at: usize) {
        let mut bytes = self.store.read(object, None).expect("it is there");
        bytes[at] ^= 4;
        assert!(self.store.remove(object) && self.store.create(object, &bytes).expect("created"));
    }

    fn files(&self, writer: u8) -> Vec<&'static str> {
        let pool = self.import(writer).expect("it opens");
        let found = files_of(&pool);
        pool.export().expect("exported");
        found
    }
}

/// Gives up the newest root for this one.
fn wish(found: &FoundPool, back_to: Option<RootAge>) -> AnchorWish {
    let back = back_to.map(|to| GoBack { from: older_roots(found)[0], to });
    AnchorWish { back, ..AnchorWish::default() }
}

fn content(name: &str) -> Vec<u8> {
    noise(name.len() as u64 + u64::from(name.as_bytes()[0]), 700_000)
}

fn put(pool: &Pool, name: &str) -> Result<(), Error> {
    let (fs, _handle) = mount(pool, "tank");
    write_file(&fs, ROOT, name.as_bytes(), &content(name));
    pool.sync()
}

fn files_of(pool: &Pool) -> Vec<&'static str> {
    let (fs, _handle) = mount(pool, "tank");
    let there = NAMES.into_iter().filter(|name| fs.lookup(ROOT, name.as_bytes()).is_ok());
    there.inspect(|name| assert!(read_file(&fs, ROOT, name.as_bytes()) == content(name))).collect()
}

/// How the pool was left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Dies,
    Exports,
    /// A commit that frees many objects is the last one before the export.
    Empties,
}

#[test]
fn a_pool_goes_back_from_a_damaged_root() {
    for (secret, end) in [
        (None, End::Dies),
        (Some(SECRET), End::Dies),
        (None, End::Exports),
        (Some(SECRET), End::Exports),
        (None, End::Empties),
    ] {
        let (world, pool) = World::create(secret);
        if end == End::Empties {
            let (fs, handle) = mount(&pool, "tank");
            write_file(&fs, ROOT, b"large", &noise(3, 20 << 20));
            pool.sync().expect("committed");
            assert!(world.store.names().len() > 25);
            fs.unlink(ROOT, b"large").expect("removed");
            drop((fs, handle));
        }
        if end != End::Dies {
            pool.export().expect("exported");
        }
        drop(pool);
        let segments = world.store.names().into_iter().filter(|name| name.starts_with("seg/")).count();
        assert!(segments < 20, "{end:?}: {segments} objects");
        let newest = world.newest("pool/root/");
        let length = world.store.read(&newest, None).expect("it is there").len();
        for at in [0, 20, 30, 100, length - 20] {
            let what = format!("{} {end:?}, byte {at}", secret.is_some());
            let world = world.copy();
            world.flip(&newest, at);
            let before = world.store.names();
            for read_only in [false, true] {
                let refused = world.import_of(2, None, read_only).err().expect("it is refused");
                assert_eq!(refused.code(), "ROOT-DAMAGED", "{what}: {refused}");
                assert!(refused.is_of_root());
            }
            let roots = world.roots();
            assert!(roots.len() > 2 && roots.is_sorted_by(|a, b| a > b), "{roots:?}");
            let expected: &[&str] = if end == End::Dies { &["one"] } else { &["one", "two"] };
            let looked = world.import_of(2, Some(roots[1]), true).expect("the one before is whole");
            assert_eq!((looked.state().txg, files_of(&looked)), (roots[0].1, expected.to_vec()), "{what}");
            drop(looked);
            assert_eq!(world.store.names(), before, "{what}: a refusal and a look change nothing");

            let pool = world.import_of(3, Some(roots[1]), false).expect("the one before is whole");
            let back = pool.went_back().expect("it is told");
            assert_eq!((back.from, back.to), (roots[0].1, roots[1].1), "{what}");
            assert_eq!(files_of(&pool), expected, "{what}");
            put(&pool, "three").expect("committed");
            drop(pool);
            let all: Vec<&str> = expected.iter().copied().chain(["three"]).collect();
            assert_eq!(world.files(4), all, "{what}");
            // Again, behind a damaged root that still lies there.
            let newest = world.newest("pool/root/");
            world.flip(&newest, at);
            let refused = world.import(5).err().expect("it is refused");
            assert!(matches!(refused, Error::SpoiltRoot { .. }), "{what}: {refused}");
            drop(world.import_of(6, Some(world.roots()[1]), false).expect("the one before is whole"));
            assert_eq!(world.files(7), all, "{what}");
        }
    }
}

/// A root that is gone although the store lists it is no reason to open the one before.
#[test]
fn a_newest_root_that_is_listed_and_gone_is_missed() {
    let (world, pool) = World::create(None);
    drop(pool);
    world.store.settle();
    assert!(world.store.remove(&world.newest("pool/root/")));
    let refused = world.import(2).err().expect("it is refused");
    assert!(matches!(refused, Error::SpoiltRoot { .. }), "{refused}");
    drop(world.import_of(3, Some(world.roots()[1]), false).expect("the one before is whole"));
    world.store.list_at_once();
    assert_eq!(world.files(4), ["one"]);
}

/// Objects that strangers put beside the roots are none of them.
#[test]
fn names_that_no_commit_gives_keep_nobody_out() {
    let (world, pool) = World::create(None);
    drop(pool);
    let (epoch, txg) = world.roots()[0];
    for (epoch, txg) in [(epoch, Txg(u64::MAX)), (epoch, Txg(txg.0 + 2)), (u64::from(u32::MAX), txg)] {
        let name = format!("pool/root/{epoch:08x}-{:016x}", txg.0);
        assert!(world.store.create(&name, &[1; 4096]).expect("created"));
    }
    assert_eq!(world.files(2), ["one", "two"]);
}

#[test]
fn a_root_is_gone_back_to_only_if_all_its_objects_are_there() {
    let (world, pool) = World::create(None);
    let before = world.store.names();
    put(&pool, "three").expect("committed");
    drop(pool);
    let roots = world.roots();
    // An object that the second file lies in: the last two roots need it.
    let (only_one, both) = (world.copy(), world.copy());
    let of_two: Vec<String> = before.into_iter().filter(|name| name.starts_with("seg/")).collect();
    world.flip(&world.newest("pool/root/"), 100);
    let lost = of_two.iter().find(|name| {
        let needle = &content("two")[200_000..200_064];
        // Some were deleted since.
        let object = world.store.read(name, None).unwrap_or_default();
        object.windows(64).any(|window| window == needle)
    });
    let lost = lost.expect("content does not compress");
    assert!(world.store.remove(lost));
    let names = world.store.names();
    for read_only in [true, false] {
        let refused = world.import_of(2, Some(roots[1]), read_only).err().expect("it is refused");
        assert!(matches!(&refused, Error::RootObjects { gone: 1, first, .. } if first == lost), "{refused}");
        assert!(refused.is_of_root());
    }
    assert_eq!(world.store.names(), names, "nothing was changed");
    // Once it is there again, nothing is in the way.
    assert!(world.store.create(lost, &both.store.read(lost, None).expect("it is there")).expect("created"));
    drop(world.import_of(3, Some(roots[1]), false).expect("the one before is whole"));
    assert_eq!(world.files(4), ["one", "two"]);
    // An object that is cut short is as bad as one that is gone.
    only_one.flip(&only_one.newest("pool/root/"), 100);
    let bytes = only_one.store.read(lost, None).expect("it is there");
    assert!(
        only_one.store.remove(lost) && only_one.store.create(lost, &bytes[..bytes.len() - 1]).expect("put")
    );
    let refused = only_one.import_of(2, Some(roots[1]), false).err().expect("it is refused");
    assert!(matches!(refused, Error::RootObjects { .. }), "{refused}");
    assert_eq!(both.files(2), ["one", "two", "three"]);
}

/// A host that lives on and whose last root the store has damaged is fenced as by any import.
#[test]
fn the_living_writer_of_a_damaged_root_is_fenced() {
    let (world, writer) = World::create(None);
    world.flip(&world.newest("pool/root/"), 100);
    let roots = world.roots();
    let pool = world.import_of(2, Some(roots[1]), false).expect("the one before is whole");
    let refused = put(&writer, "four").expect_err("it has lost the pool");
    assert!(refused.to_string().contains("another"), "{refused}");
    put(&pool, "three").expect("committed");
    drop((writer, pool));
    assert_eq!(world.files(3), ["one", "three"]);
}

/// The writer goes on while somebody looks for an older root: nothing of it is lost.
#[test]
fn a_writer_that_went_on_is_not_gone_back_from() {
    let (world, writer) = World::create(None);
    world.flip(&world.newest("pool/root/"), 100);
    let (roots, mut found) = (world.roots(), scan(world.device(2)).0);
    put(&writer, "three").expect("committed");
    let anchor = wish(&found[0], Some(roots[1]));
    let spec = ImportSpec { anchor, force: true, ..import_spec(None) };
    let late = Pool::import(&Env::simulated(2), found.remove(0), &spec).err().expect("it is refused");
    // The writer deletes what its last two roots do not need.
    assert!(matches!(late, Error::RootMoved { .. }) || late.is_of_root(), "{late}");
    // Nor if it had gone on before that look.
    let stale = GoBack { from: roots[0], to: roots[1] };
    let spec = ImportSpec { anchor: AnchorWish { back: Some(stale), ..AnchorWish::default() }, ..spec };
    let late = Pool::import(&Env::simulated(3), scan(world.device(3)).0.remove(0), &spec);
    assert!(matches!(late, Err(Error::RootMoved { .. })), "{:?}", late.map(|_| ()));
    drop(writer);
    assert_eq!(world.files(4), ["one", "two", "three"]);
}

/// Changes that `fsync` stored on a log device since the older root are replayed upon it.
#[test]
fn a_log_device_gives_back_what_was_synced_since() {
    let world = World { store: MemoryStore::new("bucket"), secret: None };
    let log = Arc::new(MemoryDevice::new("log", 64 * MIB));
    let mut spec = spec(world.device(1), None);
    spec.root_props.insert("journal".into(), "ordered".into());
    let pool = Pool::create(&still(), spec).expect("a pool");
    pool.zil().add_logs(GroupHandles::alone(vec![handle(&log)]), false, false).expect("added");
    let (fs, held) = mount(&pool, "tank");
    // The first asks for a log, and the commit after it makes one.
    promises::put(&fs, "early", b"0");
    pool.sync().expect("committed");
    let groups = pool.state().log.counts.groups;
    promises::put(&fs, "committed", b"1");
    pool.sync().expect("committed");
    promises::put(&fs, "promised", b"2");
    assert_eq!(pool.state().log.counts.groups, groups + 2, "the log has both");
    drop((fs, held, pool));
    world.flip(&world.newest("pool/root/"), 100);
    let roots = world.roots();
    let devices = world.device(2).into_iter().chain([handle(&log)]).collect();
    let found = scan(devices).0.remove(0);
    let spec = ImportSpec { anchor: wish(&found, Some(roots[1])), force: true, ..import_spec(None) };
    let pool = Pool::import(&still(), found, &spec).expect("the one before is whole");
    assert_eq!(promises::names(&pool), ["committed", "early", "promised"]);
    pool.export().expect("exported");
}
