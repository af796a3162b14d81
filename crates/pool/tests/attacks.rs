//! A store of whole objects that attacks: the attacks on what a provider holds, by their numbers in
//! the list that SECURITY follows. No byte that was not written is ever returned, nothing hangs or
//! panics, and a loss is told.
//!
//! | Attack | Test |
//! |---|---|
//! | 1 to 12, 21, 23, 25 to 28 | here; 10 is outside the model, and its test shows what is lost |
//! | 22, 24 | `fencing::` |
//! | 1, 3, 11 to 15, 17 to 19, 29, 30 on a store that is covered | `covered::`, `crates/por/tests` |

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::common::{
    MIB, ROOT, anchored_in, finish, handle, import_spec, key, mount, noise, options, spec, write_file,
};
use crate::promises::{self, still};
use steadfast_anchor::MemoryRegister;
use steadfast_device::objects::{ObjectDevice, Store};
use steadfast_device::{Error as DeviceError, MemoryDevice, Operation, Result as DeviceResult};
use steadfast_env::Env;
use steadfast_format::object_names::{self, LABELS, OfEpoch};
use steadfast_pool::{
    AnchorWish, Error, EventKind, GoBack, GroupHandles, ImportSpec, Pool, ScrubCommand, older_roots, scan,
};
use steadfast_posix::FileSystem;

type Objects = BTreeMap<String, Vec<u8>>;

/// A provider: what it holds, and how it misbehaves.
#[derive(Default)]
struct Provider {
    objects: Objects,
    /// Names that lists leave out, and that they invent.
    hidden: Vec<String>,
    invented: Vec<String>,
    /// Says that it stores, and does not.
    drops: bool,
    /// Answers each third request with 503.
    storms: bool,
}

/// The store of one host.
#[derive(Clone, Default)]
struct Bucket {
    provider: Arc<Mutex<Provider>>,
    requests: Arc<AtomicU64>,
}

impl Bucket {
    fn lock(&self) -> MutexGuard<'_, Provider> {
        self.provider.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names of segments, oldest first.
    fn segments(&self) -> Vec<String> {
        self.lock().objects.keys().filter(|name| name.starts_with("seg/")).cloned().collect()
    }

    fn newest(&self, folder: &str) -> String {
        let names = self.lock();
        let mut names = names.objects.keys().filter(|name| name.starts_with(folder));
        names.next_back().expect("there is one").clone()
    }

    fn stormy(&self, operation: Operation, object: &str) -> DeviceResult<()> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if !self.lock().storms || !number.is_multiple_of(3) {
            return Ok(());
        }
        Err(DeviceError::Away {
            device: "bucket".into(),
            operation,
            object: object.to_owned(),
            status: Some(503),
            request: None,
            reason: "the store asks for fewer requests".into(),
        })
    }
}

impl Store for Bucket {
    fn identity(&self) -> String {
        "bucket".to_owned()
    }

    fn create(&self, name: &str, bytes: &[u8]) -> DeviceResult<bool> {
        self.stormy(Operation::Write, name)?;
        let mut provider = self.lock();
        if provider.objects.contains_key(name) {
            return Ok(false);
        }
        if !(provider.drops && name.starts_with("seg/")) {
            provider.objects.insert(name.to_owned(), bytes.to_vec());
        }
        Ok(true)
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> DeviceResult<Vec<u8>> {
        self.stormy(Operation::Read, name)?;
        let (device, object) = (self.identity(), name.to_owned());
        let Some(bytes) = self.lock().objects.get(name).cloned() else {
            return Err(DeviceError::Missing { device, object });
        };
        let Some(range) = range else { return Ok(bytes) };
        let length = bytes.len() as u64;
        if range.end > length {
            return Err(DeviceError::CutShort { device, object, length, needed: range.end });
        }
        let at = |byte: u64| usize::try_from(byte).expect("it is in memory");
        Ok(bytes[at(range.start)..at(range.end)].to_vec())
    }

    fn list(&self, folder: &str) -> DeviceResult<Vec<String>> {
        let provider = self.lock();
        let all = provider.objects.keys().chain(&provider.invented);
        let below = format!("{folder}/");
        let shown = all.filter(|name| name.starts_with(&below) && !provider.hidden.contains(name));
        Ok(shown.cloned().collect())
    }

    fn delete(&self, names: &[String]) -> DeviceResult<()> {
        let mut provider = self.lock();
        names.iter().for_each(|name| _ = provider.objects.remove(name));
        Ok(())
    }
}

/// A pool on a bucket, with an anchor beside it.
struct World {
    bucket: Bucket,
    register: Arc<MemoryRegister>,
    /// Without one the newest root is in the bucket.
    is_anchored: bool,
    /// Of the key that seals it.
    secret: Option<&'static [u8]>,
}

const FILES: [&str; 3] = ["one", "two", "three"];

fn content(name: &str) -> Vec<u8> {
    noise(name.len() as u64 + u64::from(name.as_bytes()[0]), 900_000)
}

impl World {
    /// With the first two of [`FILES`], one commit each. Metadata has second copies.
    fn new() -> World {
        World::with(&[])
    }

    /// The same with properties of the root dataset.
    fn with(props: &[(&str, &str)]) -> World {
        World::of(true, None, props)
    }

    /// The same with an anchor or none, sealed or not.
    fn of(is_anchored: bool, secret: Option<&'static [u8]>, props: &[(&str, &str)]) -> World {
        let register = Arc::new(MemoryRegister::new("/safe/tank.anchor"));
        let world = World { bucket: Bucket::default(), register, is_anchored, secret };
        let key = secret.map(|secret| key(&Env::simulated(9), secret));
        let mut spec = spec(vec![world.device(1)], key);
        spec.anchor = world.wish();
        spec.root_props.insert("redundant_metadata".into(), "all".into());
        spec.root_props.extend(props.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        let pool = Pool::create(&Env::simulated(1), spec).expect("a pool");
        FILES[..2].iter().for_each(|name| put(&pool, name).expect("committed"));
        pool.export().expect("exported");
        world
    }

    fn wish(&self) -> AnchorWish {
        if self.is_anchored { anchored_in(&self.register) } else { AnchorWish::default() }
    }

    fn device(&self, writer: u8) -> steadfast_pool::DeviceHandle {
        let store = Arc::new(self.bucket.clone());
        handle(&Arc::new(ObjectDevice::open(store, Some(256 * MIB), [writer; 16]).expect("a store")))
    }

    fn import(&self, writer: u8) -> Result<Pool, Error> {
        let (mut pools, _) = scan(vec![self.device(writer)]);
        let spec = ImportSpec { anchor: self.wish(), force: true, ..import_spec(self.secret) };
        Pool::import(&Env::simulated(writer.into()), pools.remove(0), &spec)
    }

    /// Each file is right or fails to be read, and the pool says so. Gives the names that failed.
    fn losses(&self, writer: u8) -> Vec<&'static str> {
        let pool = self.import(writer).expect("it opens");
        let lost = losses_of(&pool);
        pool.export().expect("exported");
        lost
    }

    fn attack(&self, change: impl FnOnce(&mut Objects)) {
        change(&mut self.bucket.lock().objects);
    }
}

fn put(pool: &Pool, name: &str) -> Result<(), Error> {
    let (fs, _handle) = mount(pool, "tank");
    write_file(&fs, ROOT, name.as_bytes(), &content(name));
    pool.sync()
}

fn losses_of(pool: &Pool) -> Vec<&'static str> {
    let Ok(held) = pool.datasets().open_dataset("tank") else { return FILES.to_vec() };
    let Ok(fs) = FileSystem::new(Arc::clone(held.dataset()), options()) else { return FILES.to_vec() };
    let mut lost = Vec::new();
    for name in FILES {
        let Ok(entry) = fs.lookup(ROOT, name.as_bytes()) else { continue };
        let (expected, mut at) = (content(name), 0);
        let mut out = vec![0; 128 << 10];
        while at < expected.len() {
            match fs.read(entry.ino, at as u64, &mut out) {
                Ok(count) => {
                    assert!(count > 0 && out[..count] == expected[at..at + count], "{name} at {at}");
                    at += count;
                }
                Err(_) => {
                    lost.push(name);
                    break;
                }
            }
        }
        fs.forget(entry.ino, 1);
    }
    if !lost.is_empty() {
        let state = pool.state();
        let counts = &state.leaves[0].counts;
        assert!(counts.read_errors + counts.checksum_errors > 0, "{counts:?}");
        let events = pool.take_events();
        let is_told = |kind: &EventKind| matches!(kind, EventKind::Block { .. } | EventKind::Device { .. });
        assert!(events.iter().any(|event| is_told(&event.kind)), "{events:?}");
    }
    lost
}

/// The segment in which a file's content lies: the longest run of its bytes is searched.
fn segment_of(world: &World, name: &str) -> (String, usize) {
    let needle = content(name)[200_000..200_064].to_vec();
    let provider = world.bucket.lock();
    let found = provider.objects.iter().find_map(|(object, bytes)| {
        bytes.windows(64).position(|window| window == needle).map(|at| (object.clone(), at))
    });
    found.expect("content does not compress, and is stored as it is")
}

#[test]
fn attack_1_a_flipped_bit_of_content_is_an_error_that_is_counted_and_told() {
    let world = World::new();
    let (object, at) = segment_of(&world, "one");
    world.attack(|objects| objects.get_mut(&object).expect("it is there")[at] ^= 4);
    assert_eq!(world.losses(2), ["one"]);
    let pool = world.import(3).expect("it opens");
    pool.devices().scrub(ScrubCommand::Start).expect("a scrub");
    finish(&pool);
    let damaged = pool.state().damaged;
    assert!(damaged.iter().any(|file| file.path.as_deref() == Some(b"one")), "{damaged:?}");
    // It was only shown: the provider shows the right bytes again.
    world.attack(|objects| objects.get_mut(&object).expect("it is there")[at] ^= 4);
    drop(pool);
    assert_eq!(world.losses(4), [""; 0]);
}

/// Every object in turn: metadata has two copies, in two objects.
#[test]
fn attack_2_a_spoilt_object_of_metadata_heals_from_its_second_copy() {
    for spoilt in World::new().bucket.segments() {
        let world = World::new();
        let holds_content = FILES[..2].iter().any(|name| segment_of(&world, name).0 == spoilt);
        world.attack(|objects| {
            let bytes = objects.get_mut(&spoilt).expect("worlds are alike");
            bytes.iter_mut().skip(4096).step_by(512).for_each(|byte| *byte ^= 0x10);
        });
        let lost = world.losses(2);
        assert_eq!(lost.is_empty(), !holds_content, "{spoilt}: {lost:?}");
    }
}

/// Bytes of the tag behind each sealed record, by object and offset. A record of 128 KiB that does
/// not compress ends with a unit, and its tag lies alone in the next one.
fn tags(world: &World) -> Vec<(String, usize)> {
    let provider = world.bucket.lock();
    let mut found = Vec::new();
    for (name, bytes) in provider.objects.iter().filter(|(name, _)| name.starts_with("seg/")) {
        for (number, unit) in bytes.chunks(4096).enumerate().skip(1) {
            let (tag, rest) = unit.split_at(unit.len().min(16));
            let follows = bytes[number * 4096 - 16..number * 4096].iter().any(|byte| *byte != 0);
            if follows && tag.iter().any(|byte| *byte != 0) && rest.iter().all(|byte| *byte == 0) {
                found.push((name.clone(), number * 4096));
            }
        }
    }
    found
}

/// On a store that is covered, these are the tags of cells (`covered::`). On others a tag is the
/// seal's, behind the bytes that it authenticates, or that of a root.
#[test]
fn attack_3_a_flipped_tag_alone_is_an_error_that_is_counted_and_told() {
    let world = World::of(true, Some(&[7; 32]), &[]);
    let tags = tags(&world);
    assert_eq!(tags.len(), 12, "two files of six such records: {tags:?}");
    let flip = |at: usize, (object, offset): &(String, usize)| {
        world.attack(|objects| objects.get_mut(object).expect("it is there")[offset + at % 16] ^= 4);
    };
    let mut hits = BTreeMap::new();
    for (at, tag) in tags.iter().enumerate() {
        flip(at, tag);
        let lost = world.losses(2);
        assert_eq!(lost.len(), 1, "{tag:?}: {lost:?}");
        *hits.entry(lost[0]).or_insert(0) += 1;
        flip(at, tag);
    }
    assert_eq!(hits, BTreeMap::from([("one", 6), ("two", 6)]));
    // A scrub finds it without a reader, and names the file.
    flip(0, &tags[0]);
    let pool = world.import(3).expect("it opens");
    pool.devices().scrub(ScrubCommand::Start).expect("a scrub");
    finish(&pool);
    let damaged = pool.state().damaged;
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    assert!(FILES.iter().any(|name| damaged[0].path.as_deref() == Some(name.as_bytes())), "{damaged:?}");
    flip(0, &tags[0]);
    drop(pool);
    assert_eq!(world.losses(4), [""; 0]);
}

/// The same where each record is stored twice: the other copy is read.
#[test]
fn attack_3_a_flipped_tag_of_one_copy_is_counted_and_harms_no_reader() {
    let tags_of = |world: &World| {
        let mut of = BTreeMap::<String, Vec<usize>>::new();
        tags(world).into_iter().for_each(|(object, offset)| of.entry(object).or_default().push(offset));
        of
    };
    let new = || World::of(true, Some(&[7; 32]), &[("copies", "2")]);
    let spoilt = tags_of(&new());
    assert_eq!(spoilt.values().map(Vec::len).collect::<Vec<_>>(), [6; 4], "{spoilt:?}");
    for (object, offsets) in spoilt {
        let world = new();
        world.attack(|objects| {
            let bytes = objects.get_mut(&object).expect("worlds are alike");
            offsets.iter().for_each(|offset| bytes[*offset] ^= 4);
        });
        let pool = world.import(2).expect("it opens");
        assert_eq!(losses_of(&pool), [""; 0], "{object}");
        pool.devices().scrub(ScrubCommand::Start).expect("a scrub");
        finish(&pool);
        let state = pool.state();
        assert!(state.leaves[0].counts.hash_errors >= 6, "{object}: {:?}", state.leaves[0].counts);
        assert!(state.damaged.is_empty(), "{object}: {:?}", state.damaged);
        pool.export().expect("exported");
        assert_eq!(world.losses(3), [""; 0], "{object}");
    }
}

#[test]
fn attack_3_a_root_or_label_whose_tag_alone_is_flipped_is_not_believed() {
    for is_anchored in [true, false] {
        let world = World::of(is_anchored, Some(&[7; 32]), &[]);
        let (before, record) = (world.bucket.lock().objects.clone(), world.register.peek());
        for (folder, tag) in [("pool/root/", 4064..4096), ("pool/label/", 16..48)] {
            let newest = world.bucket.newest(folder);
            for at in tag.step_by(5) {
                world.attack(|objects| objects.get_mut(&newest).expect("it is there")[at] ^= 4);
                let what = format!("anchor {is_anchored}, {newest}, byte {at}");
                match world.import(2) {
                    // The label before it is as good, and the root is in the anchor.
                    Ok(pool) => {
                        assert!(is_anchored || folder == "pool/label/", "{what}");
                        assert_eq!(losses_of(&pool), [""; 0], "{what}");
                    }
                    // The root before it is whole, and the operator decides.
                    Err(error) => {
                        assert!(!is_anchored && folder == "pool/root/", "{what}: {error}");
                        assert_eq!(error.code(), "ROOT-DAMAGED", "{what}: {error}");
                        let (mut pools, _) = scan(vec![world.device(2)]);
                        let roots = older_roots(&pools[0]);
                        let back = Some(GoBack { from: roots[0], to: roots[1] });
                        let anchor = AnchorWish { back, ..AnchorWish::default() };
                        let spec = ImportSpec { anchor, force: true, ..import_spec(world.secret) };
                        let pool = Pool::import(&Env::simulated(2), pools.remove(0), &spec);
                        assert_eq!(losses_of(&pool.expect("it opens")), [""; 0], "{what}");
                    }
                }
                world.attack(|objects| *objects = before.clone());
                world.register.put(record.clone());
            }
        }
        assert_eq!(world.losses(3), [""; 0]);
    }
}

#[test]
fn attack_4_swapped_objects_and_swapped_parts_are_rejected() {
    let world = World::new();
    let ((one, _), (two, _)) = (segment_of(&world, "one"), segment_of(&world, "two"));
    assert_ne!(one, two, "each commit has its own objects");
    world.attack(|objects| {
        let (first, second) = (objects[&one].clone(), objects[&two].clone());
        objects.insert(one.clone(), second);
        objects.insert(two.clone(), first);
    });
    assert_eq!(world.losses(2), ["one", "two"]);
    let world = World::new();
    let (object, at) = segment_of(&world, "one");
    world.attack(|objects| {
        let bytes = objects.get_mut(&object).expect("it is there");
        let (from, to) = (at - at % 4096, at - at % 4096 + 131_072);
        for offset in 0..4096 {
            bytes.swap(from + offset, to + offset);
        }
    });
    assert_eq!(world.losses(2), ["one"]);
}

#[test]
fn attack_5_an_old_object_under_a_new_name_is_rejected() {
    let world = World::new();
    let ((old, _), (new, _)) = (segment_of(&world, "one"), segment_of(&world, "two"));
    world.attack(|objects| _ = objects.insert(new, objects[&old].clone()));
    assert_eq!(world.losses(2), ["two"]);
}

#[test]
fn attack_6_one_object_rolled_back_is_rejected_or_not_needed() {
    let world = World::new();
    let before = world.bucket.lock().objects.clone();
    let pool = world.import(2).expect("it opens");
    put(&pool, "three").expect("committed");
    pool.export().expect("exported");
    let after = world.bucket.lock().objects.clone();
    // Objects are created once, so an earlier version is that of another object, or none.
    for name in after.keys().filter(|name| !before.contains_key(*name)) {
        for earlier in [None, before.values().next_back()] {
            world.attack(|objects| match earlier {
                Some(bytes) => _ = objects.insert(name.clone(), bytes.clone()),
                None => _ = objects.remove(name),
            });
            // Without its newest label it is found by the one before.
            assert_eq!(scan(vec![world.device(9)]).0.len(), 1, "{name}");
            if let Ok(pool) = world.import(9) {
                let lost = losses_of(&pool);
                assert!(lost.is_empty() || name.starts_with("seg/"), "{name}: {lost:?}");
                drop(pool);
            }
            world.attack(|objects| _ = objects.insert(name.clone(), after[name].clone()));
        }
    }
    assert_eq!(world.losses(10), [""; 0]);
    // A label of zeros says that the store was erased, whatever is left of earlier ones.
    let erased = OfEpoch { epoch: 1 << 20, number: 1 };
    world.attack(|objects| _ = objects.insert(object_names::of_epoch(LABELS, erased), vec![0; 512]));
    assert_eq!(scan(vec![world.device(11)]).0.len(), 0);
}

#[test]
fn attack_7_and_8_the_whole_store_rolled_back_is_refused() {
    let world = World::new();
    let before = world.bucket.lock().objects.clone();
    let pool = world.import(2).expect("it opens");
    put(&pool, "three").expect("committed");
    // The pool is imported: its own memory is not what is asked.
    pool.export().expect("exported");
    let after = world.bucket.lock().objects.clone();
    world.attack(|objects| *objects = before);
    // No host remembers anything here (8): the register alone says no, and force does not help.
    let error = world.import(3).err().expect("it is refused");
    assert!(
        error.code().starts_with("ANCHOR-") || error.code() == "POOL-DAMAGED",
        "{}: {error}",
        error.code()
    );
    world.attack(|objects| *objects = after);
    assert_eq!(world.losses(4), [""; 0]);
}

#[test]
fn attack_9_a_register_rolled_back_is_refused_by_the_store() {
    let world = World::new();
    let record = world.register.peek();
    let pool = world.import(2).expect("it opens");
    put(&pool, "three").expect("committed");
    pool.export().expect("exported");
    let now = world.register.peek();
    world.register.put(record);
    let error = world.import(3).err().expect("it is refused");
    assert!(error.code().starts_with("ANCHOR-"), "{}: {error}", error.code());
    world.register.put(now);
    assert_eq!(world.losses(4), [""; 0]);
}

/// Nobody is left who knows better: what was committed since is lost, and no byte is wrong.
#[test]
fn attack_10_everything_put_back_with_its_witnesses_is_believed() {
    let world = World::new();
    let before = (world.bucket.lock().objects.clone(), world.register.peek());
    let pool = world.import(2).expect("it opens");
    put(&pool, "three").expect("committed");
    pool.export().expect("exported");
    let (objects, record) = before;
    world.attack(|all| *all = objects);
    world.register.put(record);
    let pool = world.import(3).expect("it is what it was");
    assert_eq!(losses_of(&pool), [""; 0]);
    let (fs, held) = mount(&pool, "tank");
    assert!(fs.lookup(ROOT, b"one").is_ok() && fs.lookup(ROOT, b"three").is_err());
    drop((fs, held));
    pool.export().expect("exported");
}

#[test]
fn attack_11_writes_that_were_acknowledged_and_dropped_are_found() {
    let world = World::new();
    let pool = world.import(2).expect("it opens");
    world.bucket.lock().drops = true;
    put(&pool, "three").expect("the provider says so");
    drop(pool);
    world.bucket.lock().drops = false;
    // Its metadata went as well: nothing opens, and the error names an object.
    let error = world.import(3).err().expect("it is refused");
    assert!(error.to_string().contains("is missing"), "{error}");
}

#[test]
fn attack_12_torn_and_padded_objects_and_short_answers_are_detected() {
    let world = World::new();
    let (object, at) = segment_of(&world, "one");
    let whole = world.bucket.lock().objects[&object].clone();
    for (keep, is_lost) in [(at, true), (0, true), (whole.len(), false)] {
        world.attack(|objects| _ = objects.insert(object.clone(), whole[..keep].to_vec()));
        let lost = world.losses(2);
        assert_eq!(lost.contains(&"one"), is_lost, "{keep} of {} bytes: {lost:?}", whole.len());
    }
    let padded = [&whole[..], &[7; 5_000]].concat();
    world.attack(|objects| _ = objects.insert(object.clone(), padded));
    assert_eq!(world.losses(3), [""; 0], "bytes behind the end are not asked for");
}

#[test]
fn attack_21_a_storm_of_503_is_waited_for() {
    let world = World::new();
    let pool = world.import(2).expect("it opens");
    pool.wait_for_devices();
    world.bucket.lock().storms = true;
    let stormy = put(&pool, "three");
    world.bucket.lock().storms = false;
    stormy.or_else(|_| pool.sync()).expect("durable in the end");
    assert_eq!(pool.state().suspended, None);
    pool.export().expect("exported");
    assert_eq!(world.losses(3), [""; 0]);
}

#[test]
fn attack_23_a_host_that_is_shown_a_fork_is_refused() {
    let world = World::new();
    let fork = Bucket::default();
    fork.lock().objects = world.bucket.lock().objects.clone();
    let pool = world.import(2).expect("it opens");
    put(&pool, "three").expect("committed");
    pool.export().expect("exported");
    let forked = World { bucket: fork, register: Arc::clone(&world.register), ..World::new() };
    let error = forked.import(3).err().expect("it is refused");
    assert!(
        error.code().starts_with("ANCHOR-") || error.code() == "POOL-DAMAGED",
        "{}: {error}",
        error.code()
    );
    assert_eq!(world.losses(4), [""; 0]);
}

/// The intent log of a pool on a store is on a log device beside it, and the register knows how far
/// it was promised.
#[test]
fn attack_25_a_log_that_is_put_back_or_cut_is_refused() {
    let world = World::with(&[("journal", "ordered")]);
    let log = Arc::new(MemoryDevice::new("log", 64 * MIB));
    let import = |writer: u8| {
        let (mut pools, _) = scan(vec![world.device(writer), handle(&log)]);
        let spec = ImportSpec { anchor: anchored_in(&world.register), force: true, ..import_spec(None) };
        Pool::import(&still(), pools.remove(0), &spec)
    };
    let pool = import(2).expect("it opens");
    pool.zil().add_logs(GroupHandles::alone(vec![handle(&log)]), false, false).expect("added");
    let (fs, held) = mount(&pool, "tank");
    // The first asks for a log, and the commit after it makes one.
    promises::put(&fs, "early", b"0");
    pool.sync().expect("committed");
    let (txg, groups, blank) = (pool.state().txg, pool.state().log.counts.groups, log.image());
    promises::put(&fs, "one-more", b"1");
    let cut = log.image();
    promises::put(&fs, "last", b"2");
    let whole = log.image();
    assert_eq!((pool.state().txg, pool.state().log.counts.groups), (txg, groups + 2), "no commit");
    drop((fs, held));
    drop(pool);
    for (put_back, writer) in [(&blank, 3), (&cut, 4)] {
        log.restore(put_back);
        let error = import(writer).err().expect("it is refused");
        assert!(matches!(error, Error::LogDamaged { .. }), "{error}");
    }
    log.restore(&whole);
    let pool = import(5).expect("what was promised is there");
    assert_eq!(promises::names(&pool), ["early", "last", "one", "one-more", "two"]);
    pool.export().expect("exported");
}

#[test]
fn attack_26_roots_that_are_not_anchored_are_not_opened() {
    let world = World::new();
    // A root of a commit that the anchor did not take, and one that somebody made up.
    let newest = world.bucket.newest("pool/root/");
    let (path, txg) = newest.rsplit_once('-').expect("epoch and txg");
    let next = u64::from_str_radix(txg, 16).expect("hexadecimal") + 1;
    let bytes = world.bucket.lock().objects[&newest].clone();
    for invented in [bytes.clone(), vec![0xa5; bytes.len()], Vec::new()] {
        world.attack(|objects| _ = objects.insert(format!("{path}-{next:016x}"), invented));
        assert_eq!(world.losses(2), [""; 0]);
    }
}

#[test]
fn attack_27_objects_of_the_last_root_deleted_while_a_commit_is_in_flight() {
    let world = World::new();
    let older = world.bucket.segments();
    for gone in &older {
        let world = World::new();
        let pool = world.import(2).expect("it opens");
        world.attack(|objects| _ = objects.remove(gone));
        // It may fail, as what it reads is gone; it crashes in any case.
        _ = put(&pool, "three");
        drop(pool);
        match world.import(3) {
            Ok(pool) => _ = losses_of(&pool),
            Err(error) => assert!(error.to_string().contains("missing"), "{gone}: {error}"),
        }
    }
}

#[test]
fn attack_28_lists_that_lie_and_deleted_objects_that_return_are_ignored() {
    let world = World::new();
    let before = world.bucket.lock().objects.clone();
    let pool = world.import(2).expect("it opens");
    let (fs, held) = mount(&pool, "tank");
    fs.unlink(ROOT, b"one").expect("removed");
    put(&pool, "three").expect("committed");
    drop((fs, held));
    pool.export().expect("exported");
    // All that was ever deleted is back, and lists hide and invent.
    world.attack(|objects| {
        before.iter().for_each(|(name, bytes)| _ = objects.entry(name.clone()).or_insert(bytes.clone()));
    });
    {
        let hidden = world.bucket.newest("pool/root/");
        let mut provider = world.bucket.lock();
        provider.hidden = vec![hidden];
        provider.invented = vec!["seg/0000000000000001/00000000000fffff".into(), "seg/nonsense".into()];
    }
    let pool = world.import(3).expect("it opens");
    assert_eq!(losses_of(&pool), [""; 0]);
    let (fs, held) = mount(&pool, "tank");
    assert!(fs.lookup(ROOT, b"one").is_err(), "it was removed");
    assert!(fs.lookup(ROOT, b"three").is_ok());
    drop((fs, held));
    pool.export().expect("exported");
}
