//! Clones against copies: a random history of several file systems that are written, snapshotted,
//! cloned, promoted, rolled back and destroyed, with and without a key, with and without blocks
//! that are shared. After every few steps each file system and each snapshot reads as the copy that
//! was made of it, the check finds nothing, and figures that can be told in two ways are the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_device::{Device, MemoryDevice};
use steadfast_env::Env;
use steadfast_format::KeyFormat;
use steadfast_inspect::{Leaf, Request};
use steadfast_pool::{CreateSpec, DeviceHandle, Error, ImportSpec, Memory, NewKey, Pool, new_user_key, scan};
use steadfast_posix::{Atime, Caller, FileSystem, Options, Usage};

const ROOT: u64 = 1;
const ME: Caller = Caller::ROOT;
const SECRET: &[u8] = &[0x5e; 32];

/// Content by name.
type Files = BTreeMap<String, Vec<u8>>;

fn handle(device: &Arc<MemoryDevice>) -> DeviceHandle {
    DeviceHandle { path: device.character().identity, device: Arc::clone(device) as Arc<dyn Device> }
}

fn options() -> Options {
    Options {
        atime: Atime::Off,
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

    fn of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(usize::try_from(self.below(all.len().max(1) as u64)).expect("small"))
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

/// A file system as it should be.
#[derive(Clone, Default)]
struct Copy {
    files: Files,
    /// Oldest first, with what a clone of it would be a clone of.
    snapshots: Vec<(String, Files)>,
    /// The snapshot it is a clone of.
    origin: Option<String>,
}

struct World {
    env: Env,
    device: Arc<MemoryDevice>,
    pool: Option<Pool>,
    /// By name.
    all: BTreeMap<String, Copy>,
    made: u64,
    sealed: bool,
}

impl World {
    /// With the property `dedup`, of histories that share blocks; these copy files too.
    fn new(mib: u64, sealed: bool, dedup: Option<&'static str>) -> World {
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
        let key = sealed.then(|| {
            let random = |out: &mut [u8]| env.random.fill(out);
            NewKey { user: Arc::new(new_user_key(KeyFormat::Raw, SECRET, &random, None).expect("a key")) }
        });
        let props = dedup.map(|value| [("dedup".to_owned(), value.to_owned())].into());
        pool.datasets().create_dataset("tank/fs", props.unwrap_or_default(), key).expect("made");
        let all = BTreeMap::from([("tank/fs".to_owned(), Copy::default())]);
        World { env, device, pool: Some(pool), all, made: 0, sealed }
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("imported")
    }

    fn with<R>(&self, name: &str, act: impl FnOnce(&FileSystem) -> R) -> R {
        let handle = self.pool().datasets().open_dataset(name).expect("opens");
        let fs = FileSystem::new(Arc::clone(handle.dataset()), options()).expect("a file system");
        let result = act(&fs);
        fs.forget_all();
        result
    }

    fn reopen(&mut self, crash: bool) {
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
        let pool = Pool::import(&self.env, pools.remove(0), &spec).expect("imported");
        for name in self.all.keys().filter(|_| self.sealed) {
            let info = pool.datasets().dataset_info(name).expect("measured");
            if info.encryption_root.as_deref() == Some(name) {
                pool.datasets().load_key(name, SECRET, false).expect("loaded");
            }
        }
        self.pool = Some(pool);
    }

    fn names(&self) -> Vec<String> {
        self.all.keys().cloned().collect()
    }

    /// All snapshots, in full.
    fn snapshots(&self) -> Vec<String> {
        let of = |(name, copy): (&String, &Copy)| -> Vec<String> {
            copy.snapshots.iter().map(|(snapshot, _)| format!("{name}@{snapshot}")).collect()
        };
        self.all.iter().flat_map(of).collect()
    }

    fn clones_of(&self, snapshot: &str) -> Vec<String> {
        let is_clone = |(_, copy): &(&String, &Copy)| copy.origin.as_deref() == Some(snapshot);
        self.all.iter().filter(is_clone).map(|(name, _)| name.clone()).collect()
    }

    fn write(&mut self, dice: &mut Dice) {
        let Some(fs) = dice.of(&self.names()).cloned() else { return };
        let name = format!("file-{}", dice.below(6));
        let length_now = self.all[&fs].files.get(&name).map_or(0, |content| content.len() as u64);
        let (offset, length) = match dice.below(3) {
            0 => (0, 1 + dice.below(300_000)),
            1 => (dice.below(length_now + 1), 1 + dice.below(9_000)),
            _ => (dice.below(200_000) / 4096 * 4096, 4096 * (1 + dice.below(4))),
        };
        let data = noise(dice.below(1 << 40), length);
        self.with(&fs, |fs| {
            let entry = match fs.lookup(ROOT, name.as_bytes()) {
                Ok(entry) => entry,
                Err(_) => fs.mknod(ME, ROOT, name.as_bytes(), 0o100_644, 0).expect("made"),
            };
            fs.write(entry.ino, offset, &data, false).expect("written");
        });
        let content = self.all.get_mut(&fs).expect("there").files.entry(name).or_default();
        let end = usize::try_from(offset + length).expect("small");
        if content.len() < end {
            content.resize(end, 0);
        }
        content[usize::try_from(offset).expect("small")..end].copy_from_slice(&data);
    }

    /// A file becomes what another one of its file system is, by a copy or by being written.
    fn repeat(&mut self, dice: &mut Dice) {
        let Some(fs) = dice.of(&self.names()).cloned() else { return };
        let (from, to) = (format!("file-{}", dice.below(6)), format!("file-{}", dice.below(6)));
        let Some(content) = self.all[&fs].files.get(&from).cloned().filter(|_| from != to) else { return };
        let copies = dice.below(2) == 0;
        self.with(&fs, |fs| {
            let ino = |name: &str| match fs.lookup(ROOT, name.as_bytes()) {
                Ok(entry) => entry.ino,
                Err(_) => fs.mknod(ME, ROOT, name.as_bytes(), 0o100_644, 0).expect("made").ino,
            };
            let (source, target) = (ino(&from), ino(&to));
            if copies {
                let copied = fs.copy_file_range(source, 0, target, 0, content.len() as u64);
                assert_eq!(copied, Ok(content.len() as u64));
            } else if !content.is_empty() {
                fs.write(target, 0, &content, false).expect("written");
            }
        });
        let target = self.all.get_mut(&fs).expect("there").files.entry(to).or_default();
        target.resize(target.len().max(content.len()), 0);
        target[..content.len()].copy_from_slice(&content);
    }

    fn remove(&mut self, dice: &mut Dice) {
        let Some(fs) = dice.of(&self.names()).cloned() else { return };
        let name = format!("file-{}", dice.below(6));
        if self.all.get_mut(&fs).expect("there").files.remove(&name).is_some() {
            self.with(&fs, |fs| fs.unlink(ROOT, name.as_bytes()).expect("removed"));
        }
    }

    fn snapshot(&mut self, dice: &mut Dice) {
        let Some(fs) = dice.of(&self.names()).cloned() else { return };
        if self.all[&fs].snapshots.len() >= 5 {
            return;
        }
        self.made += 1;
        let name = format!("s{}", self.made);
        self.pool().datasets().take_snapshots(&[format!("{fs}@{name}")], &Default::default()).expect("taken");
        let copy = self.all.get_mut(&fs).expect("there");
        copy.snapshots.push((name, copy.files.clone()));
    }

    fn clone(&mut self, dice: &mut Dice) {
        let Some(snapshot) = dice.of(&self.snapshots()).cloned() else { return };
        if self.all.len() >= 5 {
            return;
        }
        self.made += 1;
        let name = format!("tank/c{}", self.made);
        self.pool().datasets().clone_snapshot(&snapshot, &name, Default::default()).expect("cloned");
        let (fs, at) = snapshot.split_once('@').expect("a snapshot");
        let found = self.all[fs].snapshots.iter().find(|(known, _)| known == at).expect("there");
        let copy = Copy { files: found.1.clone(), snapshots: Vec::new(), origin: Some(snapshot) };
        self.all.insert(name, copy);
    }

    fn promote(&mut self, dice: &mut Dice) {
        let Some(name) = dice.of(&self.names()).cloned() else { return };
        let Some(origin) = self.all[&name].origin.clone() else {
            assert!(matches!(self.pool().datasets().promote(&name), Err(Error::NotClone { .. })));
            return;
        };
        self.pool().datasets().promote(&name).expect("promoted");
        let (fs, at) = origin.split_once('@').expect("a snapshot");
        let mut old = self.all.remove(fs).expect("there");
        let end = old.snapshots.iter().position(|(known, _)| known == at).expect("there") + 1;
        let moved: Vec<_> = old.snapshots.drain(..end).collect();
        for copy in self.all.values_mut().chain(Some(&mut old)) {
            if let Some(origin) = &mut copy.origin
                && let Some((of, known)) = origin.split_once('@')
                && of == fs
                && moved.iter().any(|(moved, _)| moved == known)
            {
                *origin = format!("{name}@{known}");
            }
        }
        let new = self.all.get_mut(&name).expect("there");
        new.snapshots.splice(0..0, moved);
        (new.origin, old.origin) = (old.origin.take(), Some(format!("{name}@{at}")));
        self.all.insert(fs.to_owned(), old);
    }

    fn destroy_snapshots(&mut self, dice: &mut Dice) {
        let Some(snapshot) = dice.of(&self.snapshots()).cloned() else { return };
        let names = std::slice::from_ref(&snapshot);
        if !self.clones_of(&snapshot).is_empty() {
            let refused = self.pool().datasets().destroy_snapshots(names, false);
            assert!(matches!(refused, Err(Error::HasClones { .. })), "{refused:?}");
            return;
        }
        self.pool().datasets().destroy_snapshots(names, false).expect("destroyed");
        let (fs, at) = snapshot.split_once('@').expect("a snapshot");
        self.all.get_mut(fs).expect("there").snapshots.retain(|(known, _)| known != at);
    }

    fn destroy(&mut self, dice: &mut Dice) {
        let Some(name) = dice.of(&self.names()).cloned() else { return };
        if self.all.len() < 2 {
            return;
        }
        let clones: Vec<String> = self.all[&name]
            .snapshots
            .iter()
            .flat_map(|(s, _)| self.clones_of(&format!("{name}@{s}")))
            .collect();
        match self.pool().datasets().destroy_with_snapshots(&name) {
            Ok(()) => {
                assert!(clones.is_empty(), "{name} has the clones {clones:?}");
                self.all.remove(&name);
            }
            Err(Error::HasClones { .. }) => assert!(!clones.is_empty(), "{name} has no clones"),
            Err(Error::KeyNeeded { .. }) => assert!(self.sealed),
            Err(error) => panic!("{name}: {error}"),
        }
    }

    fn rollback(&mut self, dice: &mut Dice) {
        let Some(name) = dice.of(&self.names()).cloned() else { return };
        let Some((snapshot, files)) = self.all[&name].snapshots.last().cloned() else { return };
        self.pool().datasets().rollback(&format!("{name}@{snapshot}")).expect("rolled back");
        self.all.get_mut(&name).expect("there").files = files;
    }

    fn compare(&self, when: &str) {
        self.pool().sync().expect("committed");
        for (name, copy) in &self.all {
            let when = format!("{when}: {name}");
            let listed = self.pool().datasets().snapshot_names(name).expect("listed");
            let known: Vec<&String> = copy.snapshots.iter().map(|(snapshot, _)| snapshot).collect();
            assert_eq!(listed.iter().collect::<Vec<_>>(), known, "{when}");
            let info = self.pool().datasets().dataset_info(name).expect("measured");
            assert_eq!(info.origin, copy.origin, "{when}");
            self.with(name, |fs| compare_files(fs, &copy.files, &when));
            let handle = self.pool().datasets().open_dataset(name).expect("opens");
            for (snapshot, files) in &copy.snapshots {
                let opened = handle.snapshots().open(snapshot).expect("opens");
                let read = opened.with(|dataset| {
                    let fs = FileSystem::of_snapshot(Arc::clone(dataset), options());
                    compare_files(&fs, files, &format!("{when}@{snapshot}"));
                });
                read.expect("still there");
            }
        }
        self.check(when);
        self.sums(when);
    }

    fn check(&self, when: &str) {
        for _ in 0..10_000 {
            if self.pool().datasets().freeing() == 0 {
                break;
            }
            self.pool().sync().expect("committed");
        }
        assert_eq!(self.pool().datasets().freeing(), 0, "{when}: it is freed at last");
        let leaf = Leaf {
            path: "a".into(),
            device: Arc::new(MemoryDevice::from_image("a", self.device.image())) as Arc<dyn Device>,
        };
        let secret = self.sealed.then(|| SECRET.to_vec());
        let request = Request { leaves: &[leaf], secret, anchor: None, env: &self.env };
        let mut told = Vec::new();
        let summary =
            steadfast_inspect::check(&request, &mut |finding| told.push(finding.record().to_string()));
        assert_eq!(told, Vec::<String>::new(), "{when}");
        assert_eq!(summary.snapshots, self.snapshots().len() as u64, "{when}");
        assert_eq!(summary.leaked_units, 0, "{when}");
    }

    /// Figures of a file system add up, and all of them together are what lives.
    fn sums(&self, when: &str) {
        for (name, copy) in &self.all {
            let when = format!("{when}: {name}");
            let info = self.pool().datasets().dataset_info(name).expect("measured");
            assert_eq!(info.used, info.used_by_dataset + info.used_by_snapshots, "{when}");
            assert!(info.used_by_dataset <= info.referenced, "{when}");
            let infos = self.pool().datasets().snapshot_infos(name, None).expect("measured");
            let all: Vec<String> = infos.iter().map(|info| info.name.clone()).collect();
            assert_eq!(
                self.pool().datasets().reclaimable(&all).expect("summed"),
                info.used_by_snapshots,
                "{when}"
            );
            for one in &infos {
                let asked =
                    self.pool().datasets().reclaimable(std::slice::from_ref(&one.name)).expect("summed");
                assert_eq!(asked, one.used, "{when}: {}", one.name);
                assert_eq!(one.clones, self.clones_of(&one.name), "{when}: {}", one.name);
                assert!(one.written <= one.referenced, "{when}");
            }
            match (infos.first(), &copy.origin) {
                (None, Some(_)) => assert_eq!(info.written, info.used_by_dataset, "{when}"),
                (None, None) => assert_eq!(info.written, info.referenced, "{when}"),
                (Some(first), None) => assert_eq!(first.written, first.referenced, "{when}"),
                (Some(_), Some(_)) => {}
            }
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
            at += fs.read(entry.ino, at as u64, &mut data[at..]).expect("read");
        }
        assert!(data == *content, "{what}: content of {name}");
        fs.forget(entry.ino, 1);
    }
}

fn history(seed: u64, sealed: bool, dedup: Option<&'static str>) {
    let mut dice = Dice(seed);
    let mut world = World::new(96, sealed, dedup);
    let mut shared = 0;
    for step in 0..260 {
        match dice.below(24) {
            0..=8 => world.write(&mut dice),
            9 => world.remove(&mut dice),
            10..=12 => world.snapshot(&mut dice),
            13..=14 => world.clone(&mut dice),
            15..=16 => world.promote(&mut dice),
            17..=18 => world.destroy_snapshots(&mut dice),
            19 => world.destroy(&mut dice),
            20 => world.rollback(&mut dice),
            21 => world.pool().sync().expect("committed"),
            22 if dice.below(3) == 0 => world.reopen(dice.below(2) == 0),
            22 | 23 if dedup.is_some() => (0..3).for_each(|_| world.repeat(&mut dice)),
            _ => {}
        }
        shared = shared.max(world.pool().sharing().saved_bytes());
        if step % 10 == 9 {
            world.compare(&format!("seed {seed}, step {step}"));
        }
    }
    // Everything goes, clones before what they are clones of.
    for _ in 0..2_000 {
        if world.all.len() == 1 {
            break;
        }
        world.destroy(&mut dice);
    }
    let last = world.names().remove(0);
    world.compare(&format!("seed {seed}, only {last} is left"));
    world.pool().datasets().destroy_with_snapshots(&last).expect("destroyed");
    world.all.clear();
    world.check(&format!("seed {seed}, all destroyed"));
    assert_eq!(shared > 0, dedup.is_some(), "seed {seed}");
    assert_eq!(world.pool().sharing().sums, Default::default(), "seed {seed}: nothing is left in the table");
}

#[test]
fn clones_equal_copies_in_any_order_of_events() {
    (1..=12).for_each(|seed| history(seed, false, None));
}

#[test]
fn clones_of_encrypted_file_systems_equal_copies_in_any_order_of_events() {
    (21..=32).for_each(|seed| history(seed, true, None));
}

#[test]
fn clones_that_share_blocks_equal_copies_in_any_order_of_events() {
    (41..=44).for_each(|seed| history(seed, false, Some("off")));
    (45..=48).for_each(|seed| history(seed, false, Some("on")));
    (51..=53).for_each(|seed| history(seed, true, Some("off")));
    (54..=57).for_each(|seed| history(seed, true, Some("verify")));
}
