//! Hosts that share one store of whole objects: names, roots, epochs, and what a host that slept
//! does to the one that took over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{MIB, ROOT, anchored_in, handle, import_spec, mount, noise, read_file, spec, write_file};
use steadfast_anchor::MemoryRegister;
use steadfast_anchor::memory::Fault as Answer;
use steadfast_device::Operation;
use steadfast_device::objects::{MemoryStore, ObjectDevice, Request, StoreFault};
use steadfast_env::Env;
use steadfast_pool::{AnchorWish, DeviceHandle, Error, ImportSpec, Pool, scan};

/// A store, and an anchor beside it, or none.
struct World {
    store: MemoryStore,
    register: Option<Arc<MemoryRegister>>,
}

impl World {
    fn new(is_anchored: bool) -> Arc<World> {
        let register = is_anchored.then(|| Arc::new(MemoryRegister::new("/safe/tank.anchor")));
        Arc::new(World { store: MemoryStore::new("bucket"), register })
    }

    fn wish(&self) -> AnchorWish {
        self.register.as_ref().map_or_else(AnchorWish::default, anchored_in)
    }

    /// The store as a device of host `writer`, which asks `hook` before each request.
    fn device(
        &self,
        writer: u8,
        hook: impl Fn(&Request) -> Option<StoreFault> + Send + Sync + 'static,
    ) -> Vec<DeviceHandle> {
        let store = Arc::new(self.store.handle(hook));
        let device = ObjectDevice::open(store, Some(256 * MIB), [writer; 16]).expect("a store");
        vec![handle(&Arc::new(device))]
    }

    /// A pool with a file.
    fn create(&self) -> Pool {
        let mut spec = spec(self.device(1, |_| None), None);
        spec.anchor = self.wish();
        let pool = Pool::create(&Env::simulated(1), spec).expect("a pool");
        put(&pool, "one").expect("committed");
        pool
    }

    fn import_with(
        &self,
        writer: u8,
        hook: impl Fn(&Request) -> Option<StoreFault> + Send + Sync + 'static,
    ) -> Result<Pool, Error> {
        let (mut pools, _) = scan(self.device(writer, hook));
        let spec = ImportSpec { anchor: self.wish(), force: true, ..import_spec(None) };
        Pool::import(&Env::simulated(u64::from(writer)), pools.remove(0), &spec)
    }

    fn import(&self, writer: u8) -> Result<Pool, Error> {
        self.import_with(writer, |_| None)
    }

    /// The files that a host that comes later finds, all of them whole.
    fn files(&self, writer: u8) -> Vec<&'static str> {
        let pool = self.import(writer).expect("it opens");
        let found = files_of(&pool);
        pool.export().expect("exported");
        found
    }

    fn count(&self, folder: &str) -> usize {
        self.store.names().iter().filter(|name| name.starts_with(folder)).count()
    }
}

const NAMES: [&str; 4] = ["one", "two", "three", "four"];

fn content(name: &str) -> Vec<u8> {
    noise(name.len() as u64, 700_000)
}

/// Writes a file, in place of what had its name, and waits until it is durable.
fn put(pool: &Pool, name: &str) -> Result<(), String> {
    if pool.state().suspended.is_some() {
        return Err(pool.sync().expect_err("it is suspended").to_string());
    }
    let (fs, _handle) = mount(pool, "tank");
    let _ = fs.unlink(ROOT, name.as_bytes());
    write_file(&fs, ROOT, name.as_bytes(), &content(name));
    pool.sync().map_err(|error| error.to_string())
}

fn files_of(pool: &Pool) -> Vec<&'static str> {
    let (fs, _handle) = mount(pool, "tank");
    let there = NAMES.into_iter().filter(|name| fs.lookup(ROOT, name.as_bytes()).is_ok());
    there.inspect(|name| assert!(read_file(&fs, ROOT, name.as_bytes()) == content(name))).collect()
}

/// Lets a host live on another thread: locks of the one that waits are no concern of its own.
fn meanwhile(life: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(life).join()).expect("the other host lives well");
}

/// Lets so much time pass on a host that has nothing to do.
fn idle(pool: &Pool, steps: usize) {
    (0..steps).for_each(|_| pool.step());
}

#[test]
fn a_silent_anchor_leaves_a_pool_of_objects_openable() {
    for (answers, found) in [([Answer::Before; 5], &["one"][..]), ([Answer::After; 5], &["one", "two"][..])] {
        let world = World::new(true);
        let pool = world.create();
        let register = world.register.as_ref().expect("it has one");
        register.arm(&answers);
        put(&pool, "two").expect_err("the anchor does not answer");
        drop(pool);
        register.disarm();
        for writer in 2..5 {
            assert_eq!(world.files(writer), found, "{answers:?}");
        }
    }
}

#[test]
fn an_anchored_root_is_in_the_anchor_and_a_copy_follows_it() {
    let world = World::new(true);
    let seen = Arc::new(AtomicBool::new(false));
    let pool = {
        world.create().export().expect("exported");
        let (register, seen) = (Arc::clone(world.register.as_ref().expect("one")), Arc::clone(&seen));
        let hook = move |request: &Request| {
            if request.operation == Operation::Write && request.name.starts_with("pool/root/") {
                let record = register.peek().expect("a record");
                let record = steadfast_anchor::AnchorRecord::decode(&record[..]).expect("a record");
                assert!(request.name.ends_with(&format!("{:016x}", record.txg().0)), "{request:?}");
                seen.store(true, Ordering::Relaxed);
            }
            None
        };
        world.import_with(2, hook).expect("imported")
    };
    put(&pool, "two").expect("committed");
    idle(&pool, 3);
    assert!(seen.load(Ordering::Relaxed), "a copy was made");
    drop(pool);
    // The anchor is lost: the copy is what the operator has.
    let lost = World { store: world.store.copy(), register: None };
    let (mut pools, _) = scan(lost.device(3, |_| None));
    let mut spec = ImportSpec { force: true, ..import_spec(None) };
    spec.anchor.accept_lost = true;
    let pool = Pool::import(&Env::simulated(3), pools.remove(0), &spec).expect("the copy opens");
    assert_eq!(files_of(&pool), ["one", "two"]);
    pool.export().expect("exported");
}

/// The host sleeps at each request of its import and of a commit; another one lives meanwhile.
#[test]
fn attack_24_a_host_that_slept_deletes_nothing_of_the_next_one() {
    for is_anchored in [true, false] {
        for late_lists in [false, true] {
            let mut at = 0;
            loop {
                let world = World::new(is_anchored);
                world.create().export().expect("exported");
                if late_lists {
                    world.store.settle();
                }
                let (left, slept) =
                    (std::sync::atomic::AtomicUsize::new(at), Arc::new(AtomicBool::new(false)));
                let hook = {
                    let (world, slept) = (Arc::clone(&world), Arc::clone(&slept));
                    move |_: &Request| {
                        if left
                            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                            .is_err()
                            && !slept.swap(true, Ordering::Relaxed)
                        {
                            meanwhile(|| {
                                let pool = world.import(3).expect("the other host takes over");
                                put(&pool, "two").expect("committed");
                                drop(pool);
                            });
                        }
                        None
                    }
                };
                // Everything that a host was told to be durable is found by the next one.
                let mut told = vec!["one"];
                let imported = world.import_with(2, hook);
                assert!(imported.is_ok() || slept.load(Ordering::Relaxed), "{:?}", imported.err());
                if let Ok(pool) = imported {
                    // The first commit, behind the answer.
                    idle(&pool, 1);
                    for name in ["three", "four"] {
                        match put(&pool, name) {
                            Ok(()) => told.push(name),
                            Err(error) => assert!(slept.load(Ordering::Relaxed), "{name}: {error}"),
                        }
                        idle(&pool, 40);
                    }
                }
                let done = !slept.load(Ordering::Relaxed);
                if !done {
                    told.push("two");
                }
                let found = world.files(4);
                let what = format!("anchor {is_anchored}, late lists {late_lists}, request {at}");
                assert!(
                    told.iter().all(|name| found.contains(name)),
                    "{what}: told {told:?}, found {found:?}"
                );
                if done {
                    break;
                }
                at += 1;
            }
            assert!(at > 20, "anchor {is_anchored}, late lists {late_lists}: {at} requests");
        }
    }
}

/// Sleeps before a request of the first commit behind the answer of an import; another host imports
/// and commits meanwhile. Its files stay, whenever the first one wakes.
#[test]
fn attack_24_a_host_that_sleeps_in_its_first_commit_changes_nothing_of_the_next_one() {
    for (is_anchored, late_lists) in [(true, false), (true, true), (false, false), (false, true)] {
        let (mut at, mut stopped) = (0, 0);
        loop {
            let what = format!("anchor {is_anchored}, late lists {late_lists}, request {at}");
            let world = World::new(is_anchored);
            world.create().export().expect("exported");
            if late_lists {
                world.store.settle();
            }
            let answered = Arc::new(AtomicBool::new(false));
            let (left, slept) = (std::sync::atomic::AtomicUsize::new(at), Arc::new(AtomicBool::new(false)));
            let hook = {
                let (world, answered, slept) =
                    (Arc::clone(&world), Arc::clone(&answered), Arc::clone(&slept));
                move |_: &Request| {
                    let count = |n: usize| n.checked_sub(1);
                    if answered.load(Ordering::Relaxed)
                        && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_err()
                        && !slept.swap(true, Ordering::Relaxed)
                    {
                        meanwhile(|| {
                            let pool = world.import(3).expect("the other host takes over");
                            put(&pool, "two").expect("committed");
                            drop(pool);
                        });
                    }
                    None
                }
            };
            let pool = world.import_with(2, hook).expect("imported");
            let found = pool.state().txg;
            answered.store(true, Ordering::Relaxed);
            idle(&pool, 3);
            if !slept.load(Ordering::Relaxed) {
                assert!(pool.state().txg > found && pool.state().suspended.is_none(), "{what}");
                assert!(at > 2, "{what}: so few requests");
                break;
            }
            match pool.state().suspended {
                // It slept when that commit was durable, and noticed behind it.
                Some(reason) if pool.state().txg > found => {
                    assert!(reason.contains("another"), "{what}: {reason}");
                }
                Some(reason) => {
                    assert!(reason.contains("first commit since the import failed"), "{what}: {reason}");
                    stopped += 1;
                }
                // It slept when that commit was over: in labels, copies or deletes.
                None => assert!(pool.state().txg > found, "{what}"),
            }
            let refused = put(&pool, "three").expect_err("it has lost the pool");
            assert!(refused.contains("another"), "{what}: {refused}");
            drop(pool);
            assert_eq!(world.files(4), ["one", "two"], "{what}");
            at += 1;
        }
        assert!(stopped > 0, "anchor {is_anchored}: it never slept before its commit was over");
    }
}

/// Each object in turn is missing when another host imports by force: a root, a label, rows, roots
/// of datasets, content.
#[test]
fn an_import_that_fails_leaves_the_living_writer_alone() {
    for is_anchored in [true, false] {
        let world = World::new(is_anchored);
        let writer = world.create();
        writer.datasets().create_dataset("tank/old", Default::default(), None).expect("made");
        for _ in 0..4 {
            put(&writer, "two").expect("committed");
        }
        let record = || world.register.as_ref().and_then(|register| register.peek());
        let (mut reasons, mut opened) = (BTreeSet::new(), 0);
        for missing in world.store.names() {
            let beside = World { store: world.store.copy(), register: world.register.clone() };
            let before = record();
            assert!(beside.store.remove(&missing));
            let claims = beside.count("pool/epoch/");
            if scan(beside.device(3, |_| None)).0.is_empty() {
                // Its labels are missing.
                continue;
            }
            match beside.import(3) {
                Ok(_) => opened += 1,
                Err(error) => {
                    assert_eq!(beside.count("pool/epoch/"), claims, "{missing}: {error}");
                    assert!(record() == before, "{missing}: {error}");
                    reasons.insert(error.to_string().split(&missing).next().expect("a part").to_owned());
                }
            }
            if let Some(register) = &world.register {
                register.put(before);
            }
        }
        assert!(opened > 0, "{reasons:?}");
        assert!(reasons.iter().any(|reason| reason.contains("dataset")), "{reasons:?}");
        put(&writer, "three").expect("nobody has fenced it");
    }
}

/// A writer that was fenced puts its last root late, and the next owner commits so often that its
/// own first roots are gone. A host that listed before looks for them by name in vain.
#[test]
fn a_stale_root_of_a_fenced_writer_is_not_opened() {
    let world = World::new(false);
    world.create().export().expect("exported");
    let late = Arc::new(parking_lot::Mutex::new(None));
    let hook = {
        let (world, late) = (Arc::clone(&world), Arc::clone(&late));
        let (slept, before) = (AtomicBool::new(false), world.count("pool/root/"));
        move |request: &Request| {
            let is_root = request.operation == Operation::Write && request.name.starts_with("pool/root/");
            if is_root && world.count("pool/root/") > before && !slept.swap(true, Ordering::Relaxed) {
                meanwhile(|| {
                    // One that will import has listed, and the next owner begins.
                    *late.lock() = Some(world.device(4, |_| None));
                    let pool = world.import(3).expect("the other host takes over");
                    for _ in 0..80 {
                        put(&pool, "two").expect("committed");
                    }
                    drop(pool);
                });
            }
            None
        }
    };
    let pool = world.import_with(2, hook).expect("imported");
    put(&pool, "three").expect("committed");
    put(&pool, "four").expect_err("it was fenced");
    drop(pool);
    let (mut pools, _) = scan(late.lock().take().expect("it listed"));
    let spec = ImportSpec { force: true, ..import_spec(None) };
    let stale = Pool::import(&Env::simulated(4), pools.remove(0), &spec);
    assert!(matches!(stale, Err(Error::RootMoved { .. })), "{:?}", stale.map(|pool| files_of(&pool)));
    assert_eq!(world.files(5), ["one", "two", "three"]);
}

/// A writer is fenced in its last commit, whose root comes. The one that fenced it sleeps in its
/// own first commit. A third one opens the fenced writer's root, shows it, and dies.
#[test]
fn what_an_import_showed_stays_when_a_rival_wakes() {
    let world = World::new(false);
    world.create().export().expect("exported");
    let rival = Arc::new(parking_lot::Mutex::new(None));
    let is_root =
        |request: &Request| request.operation == Operation::Write && request.name.starts_with("pool/root/");
    let hook = {
        let (world, rival, slept) = (Arc::clone(&world), Arc::clone(&rival), AtomicBool::new(false));
        let before = world.count("pool/root/");
        move |request: &Request| {
            let is_last = is_root(request) && world.count("pool/root/") > before;
            if is_last && !slept.swap(true, Ordering::Relaxed) {
                meanwhile(|| *rival.lock() = Some(world.import(3).expect("it fences the writer")));
            }
            None
        }
    };
    let writer = world.import_with(2, hook).expect("imported");
    idle(&writer, 1);
    put(&writer, "two").expect_err("it was fenced");
    drop(writer);
    let third = world.import(4).expect("it opens");
    assert_eq!(files_of(&third), ["one", "two"], "the last root of the writer");
    drop(third);
    let rival = rival.lock().take().expect("it sleeps");
    idle(&rival, 1);
    let reason = rival.state().suspended.expect("it was fenced, too");
    assert!(reason.contains("another host"), "{reason}");
    drop(rival);
    assert_eq!(world.files(5), ["one", "two"]);
}

#[test]
fn attack_22_a_host_that_was_overtaken_stops_and_deletes_nothing() {
    for is_anchored in [true, false] {
        let world = World::new(is_anchored);
        let slow = world.create();
        meanwhile(|| {
            let pool = world.import(2).expect("the other host takes over");
            put(&pool, "two").expect("committed");
            drop(pool);
        });
        let before = world.store.names();
        // Objects that it frees, and those it takes for left over when the grace has passed.
        idle(&slow, 2_000);
        let removed = before.iter().filter(|name| !world.store.names().contains(name)).count();
        assert_eq!(removed, 0);
        let refused = put(&slow, "three").expect_err("it has lost the pool");
        assert!(refused.contains("another"), "{refused}");
        drop(slow);
        assert_eq!(world.files(3), ["one", "two"]);
    }
}

/// The request for the commit that was refused stays. The sync task makes no turn for it: turns
/// are counted while none of the waits for the next one is long.
#[test]
fn attack_22_a_host_that_was_overtaken_comes_to_rest() {
    for is_anchored in [true, false] {
        let world = World::new(is_anchored);
        world.create().export().expect("exported");
        let (mut pools, _) = scan(world.device(2, |_| None));
        let spec = ImportSpec { anchor: world.wish(), force: true, ..import_spec(None) };
        let slow = Pool::import(&Env::real(), pools.remove(0), &spec).expect("imported");
        slow.sync().expect("its first commit");
        drop(world.import(3).expect("the other host takes over"));
        // It may learn of it behind a commit.
        let overtaken = (0..60).any(|_| slow.sync().is_err());
        assert!(overtaken && slow.is_overtaken() && slow.state().suspended.is_some());
        let seen = slow.turns();
        (0..200).for_each(|_| slow.wait_turn(slow.turns(), Duration::from_millis(1)));
        let turns = slow.turns() - seen;
        assert!(turns < 20, "anchor {is_anchored}: {turns} turns");
        slow.export().expect("it is let go");
        drop(slow);
        assert_eq!(world.files(4), ["one"]);
    }
}

#[test]
fn objects_that_nobody_needs_are_deleted() {
    for is_anchored in [true, false] {
        let world = World::new(is_anchored);
        let pool = world.create();
        for _ in 0..30 {
            put(&pool, "two").expect("committed");
            idle(&pool, 3);
        }
        let lived = world.count("seg/");
        assert!(lived < 30, "{lived} objects for two files");
        // A host that dies leaves what it had not committed.
        let (fs, handle) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"three", &content("three"));
        drop((fs, handle, pool));
        let orphan = steadfast_format::object_names::segment(steadfast_format::SegmentId::new(1, 9_999));
        steadfast_device::objects::Store::create(&world.store, &orphan, b"left over").expect("created");
        let pool = world.import(2).expect("imported");
        assert!(world.store.names().contains(&orphan), "not at once");
        idle(&pool, 2_000);
        assert!(!world.store.names().contains(&orphan), "when the grace has passed");
        pool.export().expect("exported");
        assert_eq!(world.files(3), ["one", "two"]);
        assert!(world.count("pool/root/") <= 64 && world.count("pool/label/") <= 4);
    }
}

#[test]
fn a_new_pool_on_an_old_store_shares_no_names_with_it() {
    let world = World::new(false);
    world.create().export().expect("exported");
    let old = world.store.names();
    let mut spec = spec(world.device(2, |_| None), None);
    spec.force = true;
    let pool = Pool::create(&Env::simulated(2), spec).expect("over the old one");
    put(&pool, "two").expect("committed");
    pool.export().expect("exported");
    let new: Vec<_> = world.store.names().into_iter().filter(|name| !old.contains(name)).collect();
    let of_one = |name: &&String| name.contains("/00000001");
    assert_eq!(new.iter().filter(of_one).count(), 0, "{new:?}");
    assert_eq!(world.files(3), ["two"]);
}

#[test]
fn answers_that_are_lost_change_nothing() {
    let world = World::new(true);
    world.create().export().expect("exported");
    // Each create is done, and its answer is lost once: the device finds its own bytes.
    let pool = world.import_with(2, {
        let lost = parking_lot::Mutex::new(std::collections::BTreeSet::new());
        move |request: &Request| {
            let strikes = request.operation == Operation::Write && request.name.starts_with("seg/");
            (strikes && lost.lock().insert(request.name.clone())).then_some(StoreFault::AnswerLost)
        }
    });
    // The device does not retry by itself: the pool stops, and goes on from its last root.
    let pool = pool.expect("its first commit is behind the answer");
    idle(&pool, 1);
    let reason = pool.state().suspended.expect("it is stopped");
    assert!(reason.contains("first commit since the import failed"), "{reason}");
    drop(pool);
    assert_eq!(world.files(3), ["one"]);
}

#[test]
fn a_store_that_creates_a_name_twice_is_used_with_an_anchor_only() {
    let world = World::new(false);
    world.create().export().expect("exported");
    world.store.forget_conditions();
    let refused = world.import(2).err();
    assert!(matches!(refused, Some(Error::Unfenced { .. })), "{refused:?}");
    let mut again = spec(world.device(3, |_| None), None);
    again.force = true;
    let refused = Pool::create(&Env::simulated(3), again).err();
    assert!(matches!(refused, Some(Error::Unfenced { .. })), "{refused:?}");

    let world = World::new(true);
    world.store.forget_conditions();
    world.create().export().expect("exported");
    assert_eq!(world.files(2), ["one"]);
}
