//! Snapshots against copies: a random history of writes, removals, snapshots and destroyed
//! snapshots, beside the cleaner. After every commit the check finds each living unit in one place
//! and every snapshot whole, and each snapshot reads as the copy that was made when it was taken.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_device::{Device, MemoryDevice};
use steadfast_env::Env;
use steadfast_format::KeyFormat;
use steadfast_inspect::{Leaf, Request};
use steadfast_pool::{CreateSpec, DatasetHandle, DeviceHandle, ImportSpec, Memory, NewKey, Pool, scan};
use steadfast_posix::{Atime, Caller, FileSystem, Options, Usage};

const ROOT: u64 = 1;
const ME: Caller = Caller::ROOT;
const FS: &str = "tank/fs";

/// Record size of its files.
const RECORD: u64 = 131_072;

/// Content by name.
type Files = BTreeMap<String, Vec<u8>>;

fn handle(device: &Arc<MemoryDevice>) -> DeviceHandle {
    DeviceHandle { path: device.character().identity, device: Arc::clone(device) as Arc<dyn Device> }
}

fn options() -> Options {
    Options {
        atime: Atime::Relative,
        usage: Arc::new(|| Usage { used_bytes: 0, available_bytes: 1 << 30 }),
        block_bytes: 4096,
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Bytes that do not compress.
fn noise(seed: u64, bytes: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let draw = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(draw).collect()
}

struct World {
    env: Env,
    device: Arc<MemoryDevice>,
    pool: Option<Pool>,
    mounted: Option<(FileSystem, DatasetHandle)>,
    files: Files,
    snapshots: BTreeMap<u64, Files>,
    taken: u64,
    /// Raw key of the file system.
    secret: Option<Vec<u8>>,
}

impl World {
    fn new(mib: u64) -> World {
        World::with(mib, &[], None)
    }

    fn with(mib: u64, props: &[(&str, &str)], secret: Option<&[u8]>) -> World {
        let env = Env::real();
        let device = Arc::new(MemoryDevice::new("a", mib << 20));
        let spec = CreateSpec {
            name: "tank".into(),
            groups: steadfast_pool::GroupHandles::alone(vec![handle(&device)]),
            ashift: 12,
            force: false,
            pool_props: Default::default(),
            root_props: Default::default(),
            key: None,
            aux: Default::default(),
            anchor: Default::default(),
            host: "host".into(),
            memory: Memory::default(),
        };
        let pool = Pool::create(&env, spec).expect("created");
        let props = props.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let random = |out: &mut [u8]| env.random.fill(out);
        let key = secret.map(|secret| {
            let user =
                steadfast_pool::new_user_key(KeyFormat::Raw, secret, &random, None).expect("a raw key");
            NewKey { user: Arc::new(user) }
        });
        pool.datasets().create_dataset(FS, props, key).expect("made");
        let secret = secret.map(<[u8]>::to_vec);
        let (files, snapshots) = (Files::new(), BTreeMap::new());
        let mut world =
            World { env, device, pool: Some(pool), mounted: None, files, snapshots, taken: 0, secret };
        world.mount();
        world
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("imported")
    }

    fn fs(&self) -> &FileSystem {
        &self.mounted.as_ref().expect("mounted").0
    }

    fn mount(&mut self) {
        let handle = self.pool().datasets().open_dataset(FS).expect("opens");
        let fs = FileSystem::new(Arc::clone(handle.dataset()), options()).expect("a file system");
        self.mounted = Some((fs, handle));
    }

    /// The pool is left as a crash leaves it, or exported, and imported again.
    fn reopen(&mut self, crash: bool) {
        self.mounted = None;
        let pool = self.pool.take().expect("imported");
        if crash {
            pool.sync().expect("committed");
        } else {
            pool.export().expect("exported");
        }
        drop(pool);
        let (mut pools, _) = scan(vec![handle(&self.device)]);
        let spec = ImportSpec {
            new_name: None,
            force: true,
            destroyed: false,
            read_only: false,
            accept_lost_log: false,
            to_checkpoint: false,
            secret: None,
            anchor: Default::default(),
            host: "host".into(),
            memory: Memory::default(),
        };
        self.pool = Some(Pool::import(&self.env, pools.remove(0), &spec).expect("imported"));
        if let Some(secret) = &self.secret {
            self.pool().datasets().load_key(FS, secret, false).expect("loaded");
        }
        self.mount();
    }

    fn write(&mut self, dice: &mut Dice) {
        let name = format!("file-{}", dice.below(12));
        let entry = match self.fs().lookup(ROOT, name.as_bytes()) {
            Ok(entry) => entry,
            Err(_) => self.fs().mknod(ME, ROOT, name.as_bytes(), 0o100_644, 0).expect("made"),
        };
        let content = self.files.entry(name).or_default();
        let (offset, length) = match dice.below(3) {
            0 => (0, 1 + dice.below(600_000)),
            1 => (dice.below(content.len() as u64 + 1), 1 + dice.below(9_000)),
            _ => (dice.below(400_000) / 4096 * 4096, 4096 * (1 + dice.below(4))),
        };
        let data = noise(dice.below(1 << 40), length);
        let end = usize::try_from(offset + length).expect("small");
        if content.len() < end {
            content.resize(end, 0);
        }
        content[usize::try_from(offset).expect("small")..end].copy_from_slice(&data);
        let fs = &self.mounted.as_ref().expect("mounted").0;
        fs.write(entry.ino, offset, &data, false).expect("written");
        fs.forget(entry.ino, 1);
    }

    /// A part of a file becomes a part of another one, or of itself.
    fn copy(&mut self, dice: &mut Dice) {
        let (from, to) = (format!("file-{}", dice.below(12)), format!("file-{}", dice.below(12)));
        let Some(source) = self.files.get(&from).cloned().filter(|content| !content.is_empty()) else {
            return;
        };
        let size = source.len() as u64;
        let (at, target, length) = match dice.below(4) {
            0 | 1 => (0, 0, size),
            2 => {
                let at = dice.below(size) / RECORD * RECORD;
                (at, dice.below(5) * RECORD, 1 + dice.below(size - at))
            }
            _ => (dice.below(size), dice.below(size), 1 + dice.below(200_000)),
        };
        let fs = &self.mounted.as_ref().expect("mounted").0;
        let from_ino = fs.lookup(ROOT, from.as_bytes()).expect("there").ino;
        let to_ino = match fs.lookup(ROOT, to.as_bytes()) {
            Ok(entry) => entry.ino,
            Err(_) => fs.mknod(ME, ROOT, to.as_bytes(), 0o100_644, 0).expect("made").ino,
        };
        let content = self.files.entry(to).or_default();
        if let Ok(copied) = fs.copy_file_range(from_ino, at, to_ino, target, length) {
            let (start, from) =
                (usize::try_from(target).expect("small"), usize::try_from(at).expect("small"));
            let copied = usize::try_from(copied).expect("small");
            assert_eq!(copied as u64, length.min(size - at));
            content.resize(content.len().max(start + copied), 0);
            content[start..start + copied].copy_from_slice(&source[from..from + copied]);
        }
        fs.forget(from_ino, 1);
        fs.forget(to_ino, 1);
    }

    /// A file gets the bytes that another one has.
    fn repeat(&mut self, dice: &mut Dice) {
        let (from, to) = (format!("file-{}", dice.below(12)), format!("file-{}", dice.below(12)));
        let Some(content) = self.files.get(&from).cloned().filter(|content| !content.is_empty()) else {
            return;
        };
        let fs = &self.mounted.as_ref().expect("mounted").0;
        let entry = match fs.lookup(ROOT, to.as_bytes()) {
            Ok(entry) => entry,
            Err(_) => fs.mknod(ME, ROOT, to.as_bytes(), 0o100_644, 0).expect("made"),
        };
        fs.write(entry.ino, 0, &content, false).expect("written");
        fs.forget(entry.ino, 1);
        let target = self.files.entry(to).or_default();
        target.resize(target.len().max(content.len()), 0);
        target[..content.len()].copy_from_slice(&content);
    }

    fn remove(&mut self, dice: &mut Dice) {
        let name = format!("file-{}", dice.below(12));
        if self.files.remove(&name).is_some() {
            self.fs().unlink(ROOT, name.as_bytes()).expect("removed");
        }
    }

    fn truncate(&mut self, dice: &mut Dice) {
        let name = format!("file-{}", dice.below(12));
        let Some(content) = self.files.get_mut(&name) else { return };
        let size = dice.below(content.len() as u64 + 1);
        content.truncate(usize::try_from(size).expect("small"));
        let fs = &self.mounted.as_ref().expect("mounted").0;
        let entry = fs.lookup(ROOT, name.as_bytes()).expect("there");
        let set = steadfast_posix::SetAttr { size: Some(size), ..Default::default() };
        fs.setattr(entry.ino, &set).expect("cut");
        fs.forget(entry.ino, 1);
    }

    fn snapshot(&mut self) {
        self.taken += 1;
        let name = format!("{FS}@s{}", self.taken);
        self.pool().datasets().take_snapshots(&[name], &Default::default()).expect("taken");
        self.snapshots.insert(self.taken, self.files.clone());
    }

    /// `quiet`: no record is folded by itself meanwhile, so figures can be told to the byte.
    fn destroy(&mut self, dice: &mut Dice, quiet: bool) {
        let mut names = Vec::new();
        for _ in 0..1 + dice.below(3) {
            let Some(&number) =
                self.snapshots.keys().nth(dice.below(self.snapshots.len().max(1) as u64) as usize)
            else {
                break;
            };
            self.snapshots.remove(&number);
            names.push(format!("{FS}@s{number}"));
        }
        if names.is_empty() {
            return;
        }
        let promised = self.pool().datasets().reclaimable(&names).expect("summed");
        // The space of files is noted with the commit after theirs: from then on figures do not
        // change by themselves.
        for comment in ["a", "b"] {
            self.pool().set_pool_prop("comment", Some(comment)).expect("committed");
        }
        let before = self.pool().datasets().dataset_info(FS).expect("measured");
        let again = self.pool().datasets().reclaimable(&names).expect("summed");
        assert!(again >= promised, "what is let go meanwhile is added");
        self.pool().datasets().destroy_snapshots(&names, false).expect("destroyed");
        let after = self.pool().datasets().dataset_info(FS).expect("measured");
        if quiet {
            assert_eq!(
                before.used_by_snapshots - after.used_by_snapshots,
                again,
                "what was promised came back"
            );
        }
    }

    fn rollback(&mut self) {
        let Some((&number, files)) = self.snapshots.last_key_value() else { return };
        self.files = files.clone();
        let name = format!("{FS}@s{number}");
        assert!(self.pool().datasets().rollback(&name).is_err(), "it is in use");
        self.mounted = None;
        self.pool().datasets().rollback(&name).expect("rolled back");
        self.mount();
    }

    /// Everything is as the copies say, and the check finds nothing.
    fn compare(&self, when: &str) {
        self.pool().sync().expect("committed");
        let listed = self.pool().datasets().snapshot_names(FS).expect("listed");
        let known: Vec<String> = self.snapshots.keys().map(|number| format!("s{number}")).collect();
        assert_eq!(listed, known, "{when}");
        compare_files(self.fs(), &self.files, &format!("{when}: the file system"));
        let snapshots = self.mounted.as_ref().expect("mounted").1.snapshots();
        for (number, files) in &self.snapshots {
            let handle = snapshots.open(&format!("s{number}")).expect("opens");
            handle
                .with(|dataset| {
                    let fs = FileSystem::of_snapshot(Arc::clone(dataset), options());
                    compare_files(&fs, files, &format!("{when}: snapshot {number}"));
                })
                .expect("still there");
        }
        self.check(when);
        self.sums(when);
    }

    /// The device holds each living unit once, as roots and cells say.
    fn check(&self, when: &str) {
        while self.pool().datasets().freeing() > 0 {
            self.pool().sync().expect("committed");
        }
        let leaf = Leaf {
            path: "a".into(),
            device: Arc::new(MemoryDevice::from_image("a", self.device.image())) as Arc<dyn Device>,
        };
        let request = Request { leaves: &[leaf], secret: self.secret.clone(), anchor: None, env: &self.env };
        let mut told = Vec::new();
        let summary =
            steadfast_inspect::check(&request, &mut |finding| told.push(finding.record().to_string()));
        assert_eq!(told, Vec::<String>::new(), "{when}");
        assert_eq!(summary.snapshots, self.snapshots.len() as u64);
        assert_eq!(summary.leaked_units, 0, "{when}");
    }

    /// Sums that can be told in two ways are the same.
    fn sums(&self, when: &str) {
        let info = self.pool().datasets().dataset_info(FS).expect("measured");
        assert_eq!(info.used, info.referenced + info.used_by_snapshots, "{when}");
        let infos = self.pool().datasets().snapshot_infos(FS, None).expect("measured");
        let all: Vec<String> = infos.iter().map(|info| info.name.clone()).collect();
        let alone: u64 = infos.iter().map(|info| info.used).sum();
        assert!(alone <= info.used_by_snapshots, "{when}");
        assert_eq!(
            self.pool().datasets().reclaimable(&all).expect("summed"),
            info.used_by_snapshots,
            "{when}"
        );
        for one in &infos {
            let name = std::slice::from_ref(&one.name);
            assert_eq!(
                self.pool().datasets().reclaimable(name).expect("summed"),
                one.used,
                "{when}: {}",
                one.name
            );
            assert!(one.written <= one.referenced, "{when}");
        }
        match infos.first() {
            Some(first) => assert_eq!(first.written, first.referenced, "{when}: nothing is older"),
            None => assert_eq!(info.written, info.referenced, "{when}: nothing is older"),
        }
    }
}

fn compare_files(fs: &FileSystem, files: &Files, what: &str) {
    let mut names = Vec::new();
    fs.readdir(ROOT, 2, |found| {
        names.push(String::from_utf8(found.name).expect("text"));
        true
    })
    .expect("listed");
    names.sort();
    assert_eq!(names, files.keys().cloned().collect::<Vec<_>>(), "{what}");
    for (name, content) in files {
        let entry = fs.lookup(ROOT, name.as_bytes()).expect("there");
        assert_eq!(entry.attr.size, content.len() as u64, "{what}: size of {name}");
        let mut data = vec![0; content.len()];
        let mut at = 0;
        while at < data.len() {
            let end = data.len().min(at + (1 << 20));
            at += fs.read(entry.ino, at as u64, &mut data[at..end]).expect("read");
        }
        assert!(data == *content, "{what}: content of {name}");
        fs.forget(entry.ino, 1);
    }
}

#[test]
fn a_snapshot_keeps_what_was_there_and_gives_back_what_only_it_kept() {
    let mut world = World::new(96);
    let fs = world.fs();
    let entry = fs.mknod(ME, ROOT, b"a", 0o100_644, 0).expect("made");
    fs.write(entry.ino, 0, &noise(1, 1 << 20), false).expect("written");
    world.files.insert("a".into(), noise(1, 1 << 20));
    world.snapshot();
    world.compare("taken");
    let before = world.pool().datasets().dataset_info(FS).expect("measured");
    // The space of the file, and the time it was read, are noted after it: a leaf of names, twice.
    assert!(before.used_by_snapshots <= 16 << 10 && before.written <= 16 << 10, "{before:?}");
    world.fs().write(entry.ino, 0, &noise(2, 1 << 20), false).expect("written");
    world.files.insert("a".into(), noise(2, 1 << 20));
    world.compare("overwritten");
    let after = world.pool().datasets().dataset_info(FS).expect("measured");
    assert!(after.used_by_snapshots >= 1 << 20 && after.written >= 1 << 20, "{after:?}");
    assert!(after.used_by_snapshots < (1 << 20) + (300 << 10), "content, and few nodes: {after:?}");
    world.destroy(&mut Dice(1), true);
    world.compare("destroyed");
    let gone = world.pool().datasets().dataset_info(FS).expect("measured");
    assert_eq!(gone.used_by_snapshots, 0);
}

#[test]
fn snapshots_equal_copies_in_any_order_of_events() {
    for seed in [1, 2, 3] {
        let mut dice = Dice(seed);
        let mut world = World::new(96);
        for step in 0..220 {
            match dice.below(20) {
                0..=9 => world.write(&mut dice),
                10 => world.remove(&mut dice),
                11 => world.truncate(&mut dice),
                12..=14 if world.snapshots.len() < 8 => world.snapshot(),
                12..=15 => world.destroy(&mut dice, true),
                18 if dice.below(3) == 0 => world.rollback(),
                16 => world.pool().sync().expect("committed"),
                17 if dice.below(4) == 0 => world.reopen(dice.below(2) == 0),
                _ => {}
            }
            if step % 20 == 19 {
                world.compare(&format!("seed {seed}, step {step}"));
            }
        }
        let all: Vec<String> = world.snapshots.keys().map(|number| format!("{FS}@s{number}")).collect();
        if !all.is_empty() {
            world.pool().datasets().destroy_snapshots(&all, false).expect("destroyed");
        }
        world.snapshots.clear();
        world.compare(&format!("seed {seed}, all destroyed"));
        assert_eq!(world.pool().datasets().dataset_info(FS).expect("measured").used_by_snapshots, 0);
        world.snapshot();
        world.mounted = None;
        assert!(world.pool().datasets().destroy_dataset(FS).is_err(), "it has a snapshot");
        world.pool().datasets().destroy_with_snapshots(FS).expect("destroyed");
        world.snapshots.clear();
        world.check(&format!("seed {seed}, the file system destroyed"));
    }
}

#[test]
fn what_the_cleaner_moves_stays_in_snapshots_and_cells() {
    let mut dice = Dice(7);
    let mut world = World::new(64);
    for file in 0..12 {
        let name = format!("file-{file}");
        let content = noise(file, 1_500_000);
        let entry = world.fs().mknod(ME, ROOT, name.as_bytes(), 0o100_644, 0).expect("made");
        world.fs().write(entry.ino, 0, &content, false).expect("written");
        world.fs().forget(entry.ino, 1);
        world.files.insert(name, content);
    }
    let mut moved = 0;
    for round in 0..120 {
        // Pages here and there, so that segments are left with some units that live, held by the
        // file system or by a snapshot.
        for _ in 0..60 {
            let name = format!("file-{}", dice.below(12));
            let offset = dice.below(1_400_000) / 4096 * 4096;
            let data = noise(dice.below(1 << 40), 4096);
            let start = usize::try_from(offset).expect("small");
            world.files.get_mut(&name).expect("made")[start..start + 4096].copy_from_slice(&data);
            let fs = world.fs();
            let entry = fs.lookup(ROOT, name.as_bytes()).expect("there");
            fs.write(entry.ino, offset, &data, false).expect("written");
            fs.forget(entry.ino, 1);
        }
        world.snapshot();
        if world.snapshots.len() > 6 {
            world.destroy(&mut dice, false);
        }
        let relocations = world.pool().state().accounting.relocations;
        moved += u64::from(relocations > 0);
        if round % 20 == 19 {
            world.compare(&format!("round {round}, {relocations} runs moved"));
        }
    }
    assert!(moved > 10, "the cleaner had nothing to move: {moved}");
    world.reopen(true);
    world.compare("imported");
}

/// Seed, properties and key of a world.
type Kind<'a> = (u64, &'a [(&'a str, &'a str)], Option<&'a [u8]>);

/// Copies that share blocks, and content that is found to be there: in any order of events each
/// block has as many references as its row says, and files and snapshots read as their copies.
#[test]
fn shared_blocks_go_with_their_last_reference() {
    let secret = [7; 32];
    let worlds: [Kind<'_>; 5] = [
        (1, &[], None),
        (2, &[("dedup", "on")], None),
        (3, &[("dedup", "verify"), ("compression", "off")], None),
        (4, &[], Some(&secret)),
        (5, &[("dedup", "on")], Some(&secret)),
    ];
    for (seed, props, secret) in worlds {
        let mut dice = Dice(seed);
        let mut world = World::with(96, props, secret);
        let (mut shared, mut hits) = (0, 0);
        for step in 0..260 {
            match dice.below(24) {
                0..=6 => world.write(&mut dice),
                7..=11 => world.copy(&mut dice),
                12 | 13 => world.repeat(&mut dice),
                14 => world.remove(&mut dice),
                15 => world.truncate(&mut dice),
                16 | 17 if world.snapshots.len() < 6 => world.snapshot(),
                16..=18 => world.destroy(&mut dice, false),
                19 if dice.below(3) == 0 => world.rollback(),
                20 if dice.below(4) == 0 => world.reopen(dice.below(2) == 0),
                _ => world.pool().sync().expect("committed"),
            }
            let sharing = world.pool().sharing();
            shared = shared.max(sharing.sums.shared);
            hits += sharing.hits;
            if step % 20 == 19 {
                world.compare(&format!("seed {seed}, step {step}"));
            }
        }
        assert!(shared > 0 || hits > 0, "seed {seed}: nothing was ever shared");
        assert_eq!(hits > 0, props.iter().any(|(name, _)| *name == "dedup"), "seed {seed}");
        let all: Vec<String> = world.snapshots.keys().map(|number| format!("{FS}@s{number}")).collect();
        if !all.is_empty() {
            world.pool().datasets().destroy_snapshots(&all, false).expect("destroyed");
        }
        world.snapshots.clear();
        world.compare(&format!("seed {seed}, all destroyed"));
        world.mounted = None;
        world.pool().datasets().destroy_dataset(FS).expect("destroyed");
        world.check(&format!("seed {seed}, the file system destroyed"));
        assert_eq!(
            world.pool().sharing().sums,
            Default::default(),
            "seed {seed}: nothing is left in the table"
        );
    }
}

/// A shared record is written anew and stored before its txg closes. Dedup finds the very block
/// that it shared, which then has one reference for it and not two.
#[test]
fn what_is_stored_early_may_find_the_block_that_it_shared() {
    let mut world = World::with(96, &[("dedup", "on")], None);
    world.mounted.as_ref().expect("mounted").1.dataset().set_early_bytes(0, 1);
    let content = noise(5, 8 * RECORD);
    let fs = world.fs();
    let first = fs.mknod(ME, ROOT, b"file-0", 0o100_644, 0).expect("made").ino;
    let second = fs.mknod(ME, ROOT, b"file-1", 0o100_644, 0).expect("made").ino;
    fs.write(first, 0, &content, false).expect("written");
    world.pool().sync().expect("committed");
    let fs = world.fs();
    assert_eq!(fs.copy_file_range(first, 0, second, 0, 8 * RECORD), Ok(8 * RECORD));
    fs.write(second, 0, &content, false).expect("written");
    // The sync of the txg does what was not done early.
    (0..2000).any(|_| {
        world.env.clock.sleep(std::time::Duration::from_millis(1));
        world.pool().sharing().hits > 0
    });
    fs.forget(first, 1);
    fs.forget(second, 1);
    world.files.insert("file-0".into(), content.clone());
    world.files.insert("file-1".into(), content);
    world.compare("written as it was");
    let hits = world.pool().sharing().hits;
    assert_eq!(hits, 8, "each record was found");
    let sharing = world.pool().sharing();
    let known: u64 = sharing.sums.classes.iter().map(|class| class.ref_blocks).sum();
    assert_eq!((sharing.entries(), known), (8, 16), "{sharing:?}");
}
