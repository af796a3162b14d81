//! The intent log: what `fsync` promised between two commits is there after the power went,
//! whatever became of the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Dice, ME, MIB, ROOT, handle, import, key, mount, noise, read_file, spec, write_file};
use steadfast_device::memory::{Effect, Fate, Fault};
use steadfast_device::{Device, MemoryDevice, Operation};
use steadfast_env::Env;
use steadfast_inspect::{Finding, Leaf, Request, Severity};
use steadfast_pool::Pool;
use steadfast_posix::{Fallocate, FileSystem, RENAME_EXCHANGE, SetAttr};

const S_IFDIR: u32 = 0o040_000;
/// An encrypted dataset, and its key.
const VAULT: &str = "tank/vault";
const SECRET: [u8; 32] = [7; 32];

/// One name as it shows.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Shown {
    ino: u64,
    mode: u32,
    nlink: u32,
    uid: u32,
    content: Vec<u8>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    target: Vec<u8>,
}

/// All names and what they show, by path.
type Picture = BTreeMap<String, Shown>;

fn picture(fs: &FileSystem) -> Picture {
    fn walk(fs: &FileSystem, directory: u64, path: &str, into: &mut Picture) {
        let mut entries = Vec::new();
        fs.readdir(directory, 0, |entry| {
            entries.push(entry);
            true
        })
        .expect("listed");
        for entry in entries {
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            let attr = fs.getattr(entry.ino).expect("an entry leads to an inode");
            let kind = attr.mode >> 12;
            let mut content = Vec::new();
            if kind == 8 {
                content = vec![0; usize::try_from(attr.size).unwrap()];
                assert_eq!(fs.read(entry.ino, 0, &mut content).expect("read"), content.len());
            }
            let names = fs.listxattr(ME, entry.ino).expect("listed");
            let value =
                |name: Vec<u8>| (name.clone(), fs.getxattr(entry.ino, &name).expect("listed just now"));
            let shown = Shown {
                ino: entry.ino,
                mode: attr.mode,
                nlink: attr.nlink,
                uid: attr.uid,
                content,
                xattrs: names.into_iter().map(value).collect(),
                target: if kind == 10 { fs.readlink(entry.ino).expect("a link") } else { Vec::new() },
            };
            into.insert(path.clone(), shown);
            if attr.mode & 0o170_000 == S_IFDIR {
                walk(fs, entry.ino, &path, into);
            }
        }
    }
    let mut picture = Picture::new();
    walk(fs, ROOT, "", &mut picture);
    picture
}

fn new_pool(env: &Env) -> (Arc<MemoryDevice>, Pool) {
    let device = Arc::new(MemoryDevice::new("a", 64 * MIB));
    let pool = Pool::create(env, spec(vec![handle(&device)], None)).expect("a pool");
    pool.datasets().set_property("tank", "journal", Some("ordered")).expect("a property");
    (device, pool)
}

/// Has the log reserved: the first `fsync` commits and asks for one.
fn warm(fs: &FileSystem, pool: &Pool) {
    let entry = fs.mknod(ME, ROOT, b"first", 0o100_644, 0).expect("made");
    fs.fsync(entry.ino).expect("committed");
    fs.forget(entry.ino, 1);
    // The segments come with the commit after it.
    fs.unlink(ROOT, b"first").expect("removed");
    pool.sync().expect("committed");
    assert!(pool.state().log.size_bytes > 0, "the log has segments");
}

fn crash(device: &Arc<MemoryDevice>, pool: Pool, mut fate: impl FnMut(usize) -> Fate) {
    device.power_off();
    drop(pool);
    device.power_on(&mut fate);
}

fn check(device: &Arc<MemoryDevice>) {
    // A copy as it would be found now: what no flush has made durable may be missing.
    let copy = Arc::new(MemoryDevice::from_image("copy", device.image()));
    let leaves = [Leaf { path: "copy".into(), device: copy as Arc<dyn Device> }];
    let env = Env::seeded(1);
    let mut findings = Vec::new();
    let request = Request { leaves: &leaves, secret: Some(SECRET.to_vec()), anchor: None, env: &env };
    steadfast_inspect::check(&request, &mut |finding| findings.push(finding));
    findings.retain(|finding| !matches!(finding, Finding::UberblockTorn { .. }));
    assert!(findings.iter().all(|finding| finding.class().1 <= Severity::Note), "{findings:?}");
}

#[test]
fn what_was_fsynced_is_there_after_a_crash_without_a_commit() {
    // A clock of its own, by which no txg closes for its age.
    let env = Env { clock: Env::seeded(1).clock, ..Env::real() };
    let (device, pool) = new_pool(&env);
    let (fs, used) = mount(&pool, "tank");
    warm(&fs, &pool);
    let txg = pool.state().txg;
    let one = fs.mknod(ME, ROOT, b"one", 0o100_644, 0).unwrap().ino;
    let two = fs.mknod(ME, ROOT, b"two", 0o100_644, 0).unwrap().ino;
    for round in 0..20 {
        fs.write(one, round * 5_000, &noise(round, 5_000), false).unwrap();
        fs.write(two, round * 100, &[7; 100], false).unwrap();
        fs.fsync(one).unwrap();
    }
    let log = pool.state().log;
    assert_eq!((log.counts.groups, log.counts.durable, log.counts.errors), (20, 20, 0), "one group an fsync");
    assert_eq!(pool.state().txg, txg, "nothing was committed");
    let before = device.counts();
    fs.write(one, 100_000, &noise(20, 4_096), false).unwrap();
    fs.fsync(one).unwrap();
    let after = device.counts();
    assert_eq!((after.writes - before.writes, after.flushes - before.flushes), (1, 1));
    assert_eq!(after.written_bytes - before.written_bytes, 8_192);
    let before = device.counts();
    fs.fsync(one).unwrap();
    assert_eq!(device.counts().writes, before.writes, "what is durable is not written again");
    drop((fs, used));
    crash(&device, pool, |_| Fate::Dropped);

    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    assert_eq!(pool.state().log.replayed, 21);
    let (fs, used) = mount(&pool, "tank");
    let found = picture(&fs);
    let mut expected: Vec<u8> = (0..20).flat_map(|round| noise(round, 5_000)).collect();
    expected.extend(noise(20, 4_096));
    assert!(found["/one"].content == expected);
    assert!(found["/two"].content == [7; 2_000], "a group holds all that was done before");
    fs.write(one, 0, b"again", false).unwrap();
    fs.fsync(one).unwrap();
    drop((fs, used));
    pool.close().expect("closed");
    check(&device);
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    assert_eq!(pool.state().log.replayed, 0, "a closed pool has an empty log");
    let (fs, _used) = mount(&pool, "tank");
    assert_eq!(&picture(&fs)["/one"].content[..5], b"again");
}

/// A mount under test.
struct World {
    fs: FileSystem,
}

impl World {
    fn pick(&self, dice: &mut Dice, want_directory: bool) -> Option<(u64, String, u64)> {
        let all: Vec<(String, Shown)> = picture(&self.fs)
            .into_iter()
            .filter(|(_, s)| (s.mode & 0o170_000 == S_IFDIR) == want_directory)
            .collect();
        let (path, shown) = all.get(usize::try_from(dice.below(all.len().max(1) as u64)).unwrap())?.clone();
        let (parent, name) = path.rsplit_once('/').unwrap();
        let parent = if parent.is_empty() { ROOT } else { picture(&self.fs)[parent].ino };
        Some((parent, name.to_owned(), shown.ino))
    }

    fn directory(&self, dice: &mut Dice) -> u64 {
        if dice.below(2) == 0 { ROOT } else { self.pick(dice, true).map_or(ROOT, |(_, _, ino)| ino) }
    }

    /// One operation; refusals are fine.
    fn step(&mut self, dice: &mut Dice) {
        let name = format!("n{}", dice.below(6));
        let fs = &self.fs;
        match dice.below(20) {
            0..3 => {
                if let Ok(entry) = fs.mknod(ME, self.directory(dice), name.as_bytes(), 0o100_644, 0) {
                    fs.forget(entry.ino, 1);
                }
            }
            3 => {
                if let Ok(entry) = fs.mkdir(ME, self.directory(dice), name.as_bytes(), 0o755) {
                    fs.forget(entry.ino, 1);
                }
            }
            4 => {
                if let Ok(entry) = fs.symlink(ME, self.directory(dice), name.as_bytes(), b"where it leads") {
                    fs.forget(entry.ino, 1);
                }
            }
            5 => {
                if let Ok(entry) = fs.tmpfile(ME, ROOT, 0o600) {
                    fs.write(entry.ino, 0, &noise(dice.below(99), 300), false).unwrap();
                    let _ = fs.link(entry.ino, ROOT, name.as_bytes()).map(|entry| fs.forget(entry.ino, 1));
                    fs.forget(entry.ino, 1);
                }
            }
            6 => {
                if let Some((parent, name, _)) = self.pick(dice, false) {
                    fs.unlink(parent, name.as_bytes()).unwrap();
                }
            }
            7 => {
                if let Some((parent, name, _)) = self.pick(dice, true) {
                    let _ = fs.rmdir(parent, name.as_bytes());
                }
            }
            8..10 => {
                let directory = dice.below(4) == 0;
                let flags = if dice.below(5) == 0 { RENAME_EXCHANGE } else { 0 };
                if let Some((parent, from, _)) = self.pick(dice, directory) {
                    let target = self.directory(dice);
                    let _ = fs.rename(parent, from.as_bytes(), target, name.as_bytes(), flags);
                }
            }
            10 => {
                if let Some((_, _, ino)) = self.pick(dice, false) {
                    let _ = fs.link(ino, ROOT, name.as_bytes()).map(|entry| fs.forget(entry.ino, 1));
                }
            }
            11 => {
                if let Some((_, _, ino)) = self.pick(dice, false) {
                    let size = dice.below(20_000);
                    let _ = fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() });
                }
            }
            12 => {
                if let Some((_, _, ino)) = self.pick(dice, false) {
                    let mode = Some(0o600 + u32::try_from(dice.below(8)).unwrap());
                    fs.setattr(ino, &SetAttr { mode, uid: Some(7), ..SetAttr::default() }).unwrap();
                }
            }
            13 => {
                if let Some((_, _, ino)) = self.pick(dice, false) {
                    let length = usize::try_from(1 + dice.below(9_000)).unwrap();
                    let _ =
                        fs.setxattr(ino, format!("user.{}", dice.below(3)).as_bytes(), &noise(1, length), 0);
                }
            }
            14 => {
                if let Some((_, _, ino)) = self.pick(dice, false) {
                    let _ = fs.removexattr(ino, format!("user.{}", dice.below(3)).as_bytes());
                }
            }
            15 => {
                if let Some((_, _, ino)) = self.pick(dice, false) {
                    let how = [Fallocate::PunchHole, Fallocate::ZeroRange { keep_size: false }];
                    let how = how[usize::try_from(dice.below(2)).unwrap()];
                    let _ = fs.fallocate(ino, how, dice.below(9_000), 1 + dice.below(9_000), false);
                }
            }
            _ => {
                if let Some((_, _, ino)) = self.pick(dice, false) {
                    let length = usize::try_from(1 + dice.below(9_000)).unwrap();
                    let _ = fs.write(ino, dice.below(150_000), &noise(dice.below(1_000), length), false);
                }
            }
        }
    }
}

/// Holds what is found after a crash against a picture taken in a moment that was promised.
fn agrees(found: &Picture, promised: &Picture) -> Result<(), String> {
    let names = |picture: &Picture| picture.keys().cloned().collect::<Vec<_>>();
    if names(found) != names(promised) {
        return Err(format!("names {:?} instead of {:?}", names(found), names(promised)));
    }
    for (path, shown) in promised {
        let there = &found[path];
        let without = |shown: &Shown| Shown { content: Vec::new(), ..shown.clone() };
        if without(there) != without(shown) {
            return Err(format!("{path}: attributes {:?} instead of {:?}", without(there), without(shown)));
        }
        if there.content != shown.content {
            let at = there.content.iter().zip(&shown.content).position(|(a, b)| a != b);
            let sizes = (there.content.len(), shown.content.len());
            return Err(format!("{path}: content differs at {at:?}, sizes {sizes:?}"));
        }
    }
    Ok(())
}

fn run(seed: u64, dataset: &str) {
    // A commit that nobody asked for would hold what nobody was promised.
    let env = Env { clock: Env::seeded(1).clock, ..Env::real() };
    let mut dice = Dice(seed);
    let (device, mut pool) = new_pool(&env);
    let sealed = dataset == VAULT;
    if sealed {
        pool.datasets()
            .create_dataset(VAULT, Default::default(), Some(key(&env, &SECRET)))
            .expect("a dataset");
    }
    for round in 0..8 {
        let (fs, used) = mount(&pool, dataset);
        let mut world = World { fs };
        if round == 0 {
            warm(&world.fs, &pool);
        }
        // Allowed states: as of the last `fsync` that returned, or of one that did not.
        let mut promised = None;
        let mut unsure = None;
        let device_fails_at = (dice.below(3) == 0).then(|| dice.below(12));
        for sync in 0..1 + dice.below(8) {
            for _ in 0..dice.below(12) {
                world.step(&mut dice);
            }
            if dice.below(12) == 0 {
                let now = picture(&world.fs);
                pool.sync().expect("committed");
                promised = Some(now);
            }
            let Some((_, _, ino)) = world.pick(&mut dice, false) else { continue };
            // A file that did not change promises nothing of others.
            let mode = Some(0o640 + u32::try_from(dice.below(8)).unwrap());
            world.fs.setattr(ino, &SetAttr { mode, ..SetAttr::default() }).unwrap();
            if device_fails_at == Some(sync) {
                let operation = if dice.below(2) == 0 { Operation::Flush } else { Operation::Write };
                device.arm(Fault { operation, skip: 0, effect: Effect::PowerOff });
            }
            let now = picture(&world.fs);
            match world.fs.fsync(ino) {
                Ok(()) => promised = Some(now),
                Err(_) => {
                    unsure = Some(now);
                    break;
                }
            }
        }
        let before_last = promised.clone();
        drop((world, used));
        let mut fates = Dice(seed ^ round);
        crash(&device, pool, |_| match fates.below(3) {
            0 => Fate::Dropped,
            1 => Fate::Applied,
            _ => Fate::Torn { sectors: usize::try_from(fates.below(9)).unwrap() },
        });
        // The power goes inside replays, too.
        for _ in 0..dice.below(3) {
            let operation = if dice.below(2) == 0 { Operation::Flush } else { Operation::Write };
            device.arm(Fault { operation, skip: dice.below(9), effect: Effect::PowerOff });
            let result = import(&env, vec![handle(&device)], None);
            if let (true, Ok(pool)) = (sealed, &result) {
                if dice.below(2) == 0 {
                    device.disarm();
                    device.arm(Fault { operation, skip: dice.below(9), effect: Effect::PowerOff });
                }
                if dice.below(3) > 0
                    && pool.datasets().load_key(VAULT, &SECRET, false).is_ok()
                    && dice.below(2) == 0
                {
                    let _ = pool.sync();
                }
            }
            device.power_off();
            drop(result);
            device.power_on(|_| if dice.below(2) == 0 { Fate::Dropped } else { Fate::Applied });
            device.disarm();
        }
        pool = import(&env, vec![handle(&device)], None).expect("imported");
        if sealed {
            pool.datasets().load_key(VAULT, &SECRET, false).expect("loaded");
        }
        let (fs, used) = mount(&pool, dataset);
        if let Some(promised) = before_last {
            let found = picture(&fs);
            let verdict = agrees(&found, &promised);
            let other = unsure.map(|picture| agrees(&found, &picture));
            if let Err(reason) = verdict
                && other.as_ref().is_none_or(Result::is_err)
            {
                panic!("seed {seed:#x}, round {round}: {reason}; {other:?}");
            }
        }
        drop((fs, used));
        pool.sync().expect("committed");
        check(&device);
    }
}

#[test]
fn all_that_was_done_before_an_fsync_survives_a_crash_at_any_moment() {
    for seed in 0x109..0x109 + std::env::var("STEADFAST_LOG_SEEDS").map_or(24, |n| n.parse().unwrap()) {
        run(seed, "tank");
    }
}

#[test]
fn so_does_what_was_done_in_an_encrypted_dataset_whose_key_comes_later() {
    for seed in 0x209..0x209 + std::env::var("STEADFAST_LOG_SEEDS").map_or(24, |n| n.parse().unwrap()) {
        run(seed, VAULT);
    }
}

fn contains(image: &[u8], word: &[u8]) -> bool {
    image.windows(word.len()).any(|window| window == word)
}

#[test]
fn a_log_waits_for_the_key_of_its_dataset_and_shows_nothing_meanwhile() {
    let env = Env { clock: Env::seeded(1).clock, ..Env::real() };
    let (device, pool) = new_pool(&env);
    pool.datasets().create_dataset(VAULT, Default::default(), Some(key(&env, &SECRET))).expect("a dataset");
    let (plain, plain_used) = mount(&pool, "tank");
    let (vault, vault_used) = mount(&pool, VAULT);
    warm(&plain, &pool);
    let txg = pool.state().txg;
    for (fs, name) in [(&plain, b"a name that anybody reads"), (&vault, b"a name that is nobody's  ")] {
        let ino = fs.mknod(ME, ROOT, name, 0o100_644, 0).unwrap().ino;
        let words: Vec<u8> = [&name[..], b": words"].concat();
        fs.setxattr(ino, b"user.note", &words, 0).unwrap();
        fs.write(ino, 0, &words, false).unwrap();
        fs.fsync(ino).unwrap();
    }
    assert_eq!((pool.state().txg, pool.state().log.counts.groups), (txg, 2), "nothing was committed");
    drop((plain, plain_used, vault, vault_used));
    crash(&device, pool, |_| Fate::Dropped);
    let image = device.image().to_vec();
    assert!(contains(&image, b"a name that anybody reads: words"), "the log is what was crashed with");
    assert!(!contains(&image, b"a name that is nobody's"), "what is encrypted is never in the clear");

    // Import after import, clean or not, keeps it; the others have theirs.
    for round in 0..4 {
        let pool = import(&env, vec![handle(&device)], None).expect("imported");
        let log = pool.state().log;
        assert_eq!((log.held, log.replayed), (1, u64::from(round == 0)));
        let (plain, used) = mount(&pool, "tank");
        assert_eq!(
            read_file(&plain, ROOT, b"a name that anybody reads"),
            b"a name that anybody reads: words"
        );
        let new = write_file(&plain, ROOT, format!("new {round}").as_bytes(), &noise(round, 9_000));
        plain.fsync(new).unwrap();
        assert_eq!(pool.state().log.counts.groups, 0, "nothing is written over what is held");
        drop((plain, used));
        if round % 2 == 0 {
            crash(&device, pool, |_| Fate::Dropped);
        } else {
            pool.close().expect("closed");
            check(&device);
        }
    }
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    assert!(pool.datasets().load_key(VAULT, &[3; 32], false).is_err(), "another key");
    assert_eq!(pool.state().log.held, 1);
    pool.datasets().load_key(VAULT, &SECRET, false).expect("loaded");
    assert_eq!((pool.state().log.held, pool.state().log.replayed), (0, 1));
    let (vault, used) = mount(&pool, VAULT);
    assert_eq!(read_file(&vault, ROOT, b"a name that is nobody's  "), b"a name that is nobody's  : words");
    pool.sync().expect("committed");
    let ino = write_file(&vault, ROOT, b"later", b"later");
    vault.fsync(ino).unwrap();
    assert_eq!(pool.state().log.counts.groups, 1, "the log is free again");
    drop((vault, used));
    crash(&device, pool, |_| Fate::Dropped);
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    pool.datasets().load_key(VAULT, &SECRET, false).expect("loaded");
    let (vault, used) = mount(&pool, VAULT);
    assert_eq!(read_file(&vault, ROOT, b"a name that is nobody's  "), b"a name that is nobody's  : words");
    assert_eq!(read_file(&vault, ROOT, b"later"), b"later");
    drop((vault, used));
    pool.close().expect("closed");
    check(&device);
}

#[test]
fn callers_who_do_not_wait_are_told_when_it_is_durable_and_share_groups() {
    const CALLERS: u64 = 6;
    const ROUNDS: u64 = 40;
    let env = Env { clock: Env::seeded(1).clock, ..Env::real() };
    let (device, pool) = new_pool(&env);
    let (fs, used) = mount(&pool, "tank");
    warm(&fs, &pool);
    let files: Vec<u64> =
        (0..CALLERS).map(|n| write_file(&fs, ROOT, format!("file {n}").as_bytes(), b"")).collect();
    std::thread::scope(|scope| {
        for (caller, &ino) in (0..).zip(&files) {
            let fs = &fs;
            scope.spawn(move || {
                let (tell, hear) = std::sync::mpsc::channel();
                for round in 0..ROUNDS {
                    fs.write(ino, round * 100, &noise(caller, 100), false).unwrap();
                    if caller == 0 {
                        fs.fsync(ino).unwrap();
                        continue;
                    }
                    let tell = tell.clone();
                    fs.fsync_later(ino, move |durable| tell.send(durable).unwrap());
                    hear.recv().expect("nobody is forgotten").expect("durable");
                }
            });
        }
    });
    let counts = pool.state().log.counts;
    // And the one that had the log reserved.
    assert_eq!(counts.durable + counts.committed_instead, CALLERS * ROUNDS + 1);
    assert!(counts.groups <= counts.durable && counts.durable > 0);
    drop((fs, used));
    crash(&device, pool, |_| Fate::Dropped);
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    let (fs, _used) = mount(&pool, "tank");
    for caller in 0..CALLERS {
        let found = read_file(&fs, ROOT, format!("file {caller}").as_bytes());
        let expected = noise(caller, 100).repeat(ROUNDS as usize);
        assert!(found == expected, "file {caller}");
    }
}

#[test]
fn callers_who_do_not_wait_are_told_of_a_commit_when_the_log_fails() {
    let env = Env { clock: Env::seeded(1).clock, ..Env::real() };
    let (device, pool) = new_pool(&env);
    let (fs, used) = mount(&pool, "tank");
    warm(&fs, &pool);
    let ino = write_file(&fs, ROOT, b"file", b"first");
    device.arm(Fault { operation: Operation::Write, skip: 0, effect: Effect::FailOnce });
    let (tell, hear) = std::sync::mpsc::channel();
    fs.fsync_later(ino, move |durable| tell.send(durable).unwrap());
    hear.recv().unwrap().expect("a commit made it durable");
    let counts = pool.state().log.counts;
    // Two calls: the one that had the log reserved, and this one.
    assert_eq!((counts.groups, counts.durable, counts.committed_instead, counts.errors), (0, 0, 2, 1));
    fs.write(ino, 0, b"again", false).unwrap();
    fs.fsync(ino).unwrap();
    assert_eq!(pool.state().log.counts.groups, 1, "that commit mended the log");
    drop((fs, used));
    crash(&device, pool, |_| Fate::Dropped);
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    let (fs, _used) = mount(&pool, "tank");
    assert_eq!(read_file(&fs, ROOT, b"file"), b"again");
}

/// A pool that crashed with a group of an encrypted dataset in its log.
fn held(env: &Env) -> (Arc<MemoryDevice>, Pool) {
    let (device, pool) = new_pool(env);
    pool.datasets().create_dataset(VAULT, Default::default(), Some(key(env, &SECRET))).expect("a dataset");
    let (plain, plain_used) = mount(&pool, "tank");
    let (vault, vault_used) = mount(&pool, VAULT);
    warm(&plain, &pool);
    let ino = write_file(&vault, ROOT, b"file", &noise(1, 10_000));
    vault.fsync(ino).unwrap();
    drop((plain, plain_used, vault, vault_used));
    crash(&device, pool, |_| Fate::Dropped);
    let pool = import(env, vec![handle(&device)], None).expect("imported");
    assert_eq!(pool.state().log.held, 1);
    (device, pool)
}

#[test]
fn a_held_log_goes_with_its_dataset() {
    let env = Env { clock: Env::seeded(1).clock, ..Env::real() };
    let (device, pool) = held(&env);
    pool.datasets().destroy_dataset(VAULT).expect("destroyed");
    pool.sync().expect("committed");
    assert_eq!(pool.state().log.held, 0);
    let (plain, used) = mount(&pool, "tank");
    let ino = write_file(&plain, ROOT, b"after", b"after");
    plain.fsync(ino).unwrap();
    assert_eq!(pool.state().log.counts.groups, 1, "the log is free again");
    drop((plain, used));
    pool.close().expect("closed");
    check(&device);
}

#[test]
fn a_held_log_that_is_damaged_keeps_its_dataset_closed() {
    let env = Env { clock: Env::seeded(1).clock, ..Env::real() };
    let (device, pool) = held(&env);
    pool.close().expect("closed");
    let image = device.image();
    let bytes = image.to_vec();
    let header = bytes.windows(8).position(|window| window == b"SFilog\0\0").expect("a group");
    for at in [header, header + 200] {
        let device = Arc::new(MemoryDevice::from_image("a", image.clone()));
        device.flip_bit(at as u64, 0);
        let pool = import(&env, vec![handle(&device)], None).expect("imported");
        let error =
            pool.datasets().load_key(VAULT, &SECRET, false).expect_err("its log is damaged").to_string();
        assert!(error.contains("which an earlier import found whole"), "{error}");
        assert!(pool.datasets().open_dataset(VAULT).is_err());
        assert_eq!(pool.state().log.held, 1);
    }
}
