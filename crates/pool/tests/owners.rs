//! Space by user and group: exact in every commit, held to quotas, counted once on old pools.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::common::{Dice, ME, MIB, ROOT, handle, import, mount, noise, spec};
use steadfast_device::{FileDevice, MemoryDevice, OpenOptions};
use steadfast_env::Env;
use steadfast_format::Owner;
use steadfast_pool::Pool;
use steadfast_posix::{Caller, Errno, Fallocate, FileSystem, SetAttr};

const KIB: u64 = 1 << 10;

fn new_pool() -> (Env, Arc<MemoryDevice>, Pool) {
    let env = Env::real();
    let device = Arc::new(MemoryDevice::new("a", 128 * MIB));
    let mut spec = spec(vec![handle(&device)], None);
    spec.root_props = [("compression".to_owned(), "off".to_owned())].into();
    let pool = Pool::create(&env, spec).expect("a pool");
    pool.datasets().create_dataset("tank/a", Default::default(), None).expect("created");
    (env, device, pool)
}

fn who(uid: u32, gid: u32) -> Caller {
    Caller { uid, gid, umask: 0 }
}

fn set(pool: &Pool, property: &str, value: u64) {
    pool.datasets().set_property("tank/a", property, Some(&value.to_string())).expect("set");
}

fn has(pool: &Pool, owner: Owner) -> (u64, u64) {
    let row =
        pool.datasets().owner_uses("tank/a").expect("counted").get(&owner).copied().unwrap_or_default().row;
    (row.bytes, row.objects)
}

/// Bytes and objects of everybody, by walking the names.
fn walked(fs: &FileSystem) -> BTreeMap<Owner, (u64, u64)> {
    fn walk(fs: &FileSystem, directory: u64, seen: &mut BTreeMap<u64, steadfast_posix::Attr>) {
        let mut entries = Vec::new();
        fs.readdir(directory, 0, |entry| {
            entries.push(entry);
            true
        })
        .expect("listed");
        for entry in entries.into_iter().filter(|entry| entry.name != b"." && entry.name != b"..") {
            let attr = fs.getattr(entry.ino).expect("it is there");
            let is_new = seen.insert(entry.ino, attr).is_none();
            if attr.mode >> 12 == 4 && is_new {
                walk(fs, entry.ino, seen);
            }
        }
    }
    let mut seen = BTreeMap::from([(ROOT, fs.getattr(ROOT).unwrap())]);
    walk(fs, ROOT, &mut seen);
    let mut sums: BTreeMap<Owner, (u64, u64)> = BTreeMap::new();
    for attr in seen.values() {
        for owner in [Owner::user(attr.uid), Owner::group(attr.gid)] {
            let sum = sums.entry(owner).or_default();
            *sum = (sum.0 + attr.blocks * 512, sum.1 + 1);
        }
    }
    sums
}

fn compare(pool: &Pool, fs: &FileSystem, when: &str) {
    fs.syncfs().expect("committed");
    let noted: BTreeMap<Owner, (u64, u64)> = pool
        .datasets()
        .owner_uses("tank/a")
        .expect("counted")
        .into_iter()
        .map(|(owner, each)| (owner, (each.row.bytes, each.row.objects)))
        .filter(|(_, row)| *row != (0, 0))
        .collect();
    assert_eq!(noted, walked(fs), "{when}");
    assert_eq!(fs.dataset().check().expect("walked"), Vec::new(), "{when}");
}

#[test]
fn what_files_take_up_moves_with_their_owner() {
    let (_env, _device, pool) = new_pool();
    let (fs, _use) = mount(&pool, "tank/a");
    let file = fs.mknod(who(1000, 100), ROOT, b"f", 0o100_644, 0).unwrap().ino;
    fs.write(file, 0, &noise(1, 300 << 10), false).unwrap();
    fs.mkdir(who(1000, 100), ROOT, b"d", 0o755).unwrap();
    compare(&pool, &fs, "after a write");
    assert_eq!(has(&pool, Owner::user(1000)), (300 * KIB, 2));
    assert_eq!(has(&pool, Owner::user(0)), (0, 1), "the top folder");
    fs.setattr(file, &SetAttr { uid: Some(2000), ..SetAttr::default() }).unwrap();
    fs.write(file, 300 << 10, &noise(2, 100 << 10), false).unwrap();
    compare(&pool, &fs, "a chown and a write in one txg");
    assert_eq!(has(&pool, Owner::user(1000)), (0, 1));
    assert_eq!(has(&pool, Owner::user(2000)), (400 * KIB, 1));
    assert_eq!(has(&pool, Owner::group(100)), (400 * KIB, 2));
    fs.fallocate(file, Fallocate::PunchHole, 0, 256 << 10, false).unwrap();
    compare(&pool, &fs, "a hole");
    fs.setattr(file, &SetAttr { size: Some(5000), gid: Some(7), ..SetAttr::default() }).unwrap();
    compare(&pool, &fs, "cut and given to another group");
    fs.unlink(ROOT, b"f").unwrap();
    fs.syncfs().unwrap();
    assert_eq!(has(&pool, Owner::user(2000)).1, 1, "it is open, and counts");
    fs.forget(file, 1);
    compare(&pool, &fs, "it is gone");
}

#[test]
fn sums_are_exact_whatever_is_done_and_after_a_crash() {
    let (env, device, mut pool) = new_pool();
    let mut draw = Dice(7);
    for round in 0..6 {
        let (fs, used) = mount(&pool, "tank/a");
        for step in 0..120 {
            let name = format!("n{}", draw.below(12)).into_bytes();
            let caller = who(draw.below(4) as u32, 10 + draw.below(3) as u32);
            let found = fs.lookup(ROOT, &name).ok().map(|entry| entry.ino);
            match (draw.below(9), found) {
                (0..=3, None) => {
                    _ = fs.mknod(caller, ROOT, &name, 0o100_644, 0).map(|made| fs.forget(made.ino, 1))
                }
                (4, None) => _ = fs.mkdir(caller, ROOT, &name, 0o755).map(|made| fs.forget(made.ino, 1)),
                (0..=4, Some(ino)) => {
                    let (at, count) = (draw.below(600_000), 1 + draw.below(200_000) as usize);
                    let _ = fs.write(ino, at, &noise(step, count), false);
                }
                (5, Some(ino)) => {
                    let owner =
                        SetAttr { uid: Some(caller.uid), gid: Some(caller.gid), ..SetAttr::default() };
                    fs.setattr(ino, &owner).expect("chown");
                }
                (6, Some(ino)) => {
                    let _ =
                        fs.setattr(ino, &SetAttr { size: Some(draw.below(500_000)), ..SetAttr::default() });
                }
                (7, Some(ino)) => {
                    let _ = fs.fallocate(ino, Fallocate::PunchHole, draw.below(400_000), 150_000, false);
                }
                (8, Some(_)) => _ = fs.unlink(ROOT, &name).or_else(|_| fs.rmdir(ROOT, &name)),
                _ => fs.syncfs().expect("committed"),
            }
            found.into_iter().for_each(|ino| fs.forget(ino, 1));
        }
        compare(&pool, &fs, &format!("round {round}"));
        if round % 2 == 0 {
            // Changes that fsync promised are replayed, owners and all.
            for ino in 2..20 {
                let _ = fs.fsync(ino);
            }
            drop((fs, used, pool));
        } else {
            drop((fs, used));
            pool.export().expect("exported");
        }
        pool = import(&env, vec![handle(&device)], None).expect("imported");
        let (fs, _used) = mount(&pool, "tank/a");
        compare(&pool, &fs, &format!("imported after round {round}"));
    }
}

#[test]
fn what_the_log_replays_is_counted() {
    let (env, device, pool) = new_pool();
    {
        let (fs, _use) = mount(&pool, "tank/a");
        let kept = fs.mknod(who(5, 5), ROOT, b"kept", 0o100_644, 0).unwrap().ino;
        fs.write(kept, 0, &noise(1, 100 << 10), false).unwrap();
        fs.syncfs().unwrap();
        let new = fs.mknod(who(6, 6), ROOT, b"new", 0o100_644, 0).unwrap().ino;
        fs.write(new, 0, &noise(2, 50 << 10), false).unwrap();
        fs.setattr(kept, &SetAttr { uid: Some(9), ..SetAttr::default() }).unwrap();
        let gone = fs.mknod(who(8, 8), ROOT, b"gone", 0o100_644, 0).unwrap().ino;
        fs.fsync(new).unwrap();
        fs.fsync(kept).unwrap();
        fs.unlink(ROOT, b"gone").unwrap();
        fs.forget(gone, 1);
        fs.fsync(ROOT).unwrap();
    }
    drop(pool);
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    let (fs, _use) = mount(&pool, "tank/a");
    compare(&pool, &fs, "replayed");
    assert_eq!(
        (has(&pool, Owner::user(9)).1, has(&pool, Owner::user(6)).1, has(&pool, Owner::user(8)).1),
        (1, 1, 0)
    );
}

#[test]
fn quotas_of_owners_are_reached_exactly() {
    let (_env, _device, pool) = new_pool();
    set(&pool, "userquota@1000", MIB);
    set(&pool, "groupquota@200", 2 * MIB);
    set(&pool, "userobjquota@3000", 5);
    set(&pool, "userquota@4000", 1_000_000);
    let (fs, _use) = mount(&pool, "tank/a");
    // A quota that is no multiple of a unit holds a file of as many bytes, and no byte more.
    let whole = fs.mknod(who(4000, 4000), ROOT, b"whole", 0o100_644, 0).unwrap().ino;
    fs.write(whole, 0, &noise(4, 1_000_000), false).expect("it fits");
    let more = fs.mknod(who(4000, 4000), ROOT, b"more", 0o100_644, 0).unwrap().ino;
    assert_eq!(fs.write(more, 0, b"x", false), Err(Errno::EDQUOT));
    // As mkfile does: its last byte first.
    fs.unlink(ROOT, b"whole").unwrap();
    fs.forget(whole, 1);
    let last = fs.mknod(who(4000, 4000), ROOT, b"last", 0o100_644, 0).unwrap().ino;
    fs.write(last, 999_999, b"x", false).unwrap();
    for at in (0..1_000_000_u64).step_by(128 << 10) {
        let bytes = noise(at, (1_000_000 - at as usize).min(128 << 10));
        fs.write(last, at, &bytes, false).expect("it fits");
    }
    fs.syncfs().unwrap();
    assert_eq!(fs.write(more, 0, b"x", false), Err(Errno::EDQUOT));
    let mut files = Vec::new();
    for (uid, gid) in [(1000, 100), (1000, 200), (2000, 200), (0, 0)] {
        let name = format!("{uid}-{gid}");
        files.push(fs.mknod(who(uid, gid), ROOT, name.as_bytes(), 0o100_644, 0).unwrap().ino);
    }
    let fill = |ino: u64| {
        let mut at = 0;
        loop {
            match fs.write(ino, at, &noise(ino, 128 << 10), false) {
                Ok(_) => at += 128 * KIB,
                Err(error) => return (at, error),
            }
        }
    };
    assert_eq!(fill(files[0]), (MIB, Errno::EDQUOT), "records that do not compress fill it to the byte");
    assert_eq!(fs.write(files[1], 0, b"x", false), Err(Errno::EDQUOT), "a user's files count together");
    assert_eq!(fill(files[2]), (2 * MIB, Errno::EDQUOT), "a group's too");
    fs.write(files[3], 0, &noise(1, 1 << 20), false).expect("nobody else is in the way");
    let owner = SetAttr { uid: Some(1000), ..SetAttr::default() };
    assert_eq!(fs.setattr(files[3], &owner).err(), Some(Errno::EDQUOT), "a file too large to be taken over");
    fs.setattr(files[0], &SetAttr { mode: Some(0o600), ..SetAttr::default() }).expect("chmod takes nothing");
    fs.setattr(files[0], &SetAttr { size: Some(512 << 10), ..SetAttr::default() }).expect("nor does a cut");
    fs.write(files[1], 0, &noise(2, 128 << 10), false).expect_err("the group has its fill");
    fs.write(files[0], 512 << 10, &noise(3, 512 << 10), false).expect("what was cut is there again");
    for number in 0..5 {
        fs.mkdir(who(3000, 3000), ROOT, format!("o{number}").as_bytes(), 0o755).expect("five may be");
    }
    assert_eq!(fs.mkdir(who(3000, 3000), ROOT, b"o5", 0o755).err(), Some(Errno::EDQUOT));
    assert_eq!(fs.symlink(who(3000, 3000), ROOT, b"o5", b"x").err(), Some(Errno::EDQUOT));
    assert_eq!(fs.tmpfile(who(3000, 3000), ROOT, 0o600).err(), Some(Errno::EDQUOT));
    assert_eq!(
        fs.setattr(files[3], &SetAttr { uid: Some(3000), ..SetAttr::default() }).err(),
        Some(Errno::EDQUOT)
    );
    fs.rmdir(ROOT, b"o4").unwrap();
    fs.mkdir(who(3000, 3000), ROOT, b"again", 0o755).expect_err("the kernel still knows the folder");
    let entry = fs.lookup(ROOT, b"o3").unwrap();
    fs.rmdir(ROOT, b"o3").unwrap();
    fs.forget(entry.ino, 2);
    fs.mkdir(who(3000, 3000), ROOT, b"again", 0o755).expect("one went");
    compare_objects(&pool, &fs);
}

fn compare_objects(pool: &Pool, fs: &FileSystem) {
    fs.syncfs().unwrap();
    assert_eq!(has(pool, Owner::user(3000)).1, 5, "four with a name and one that is remembered");
    assert_eq!(has(pool, Owner::user(1000)).0, MIB);
}

#[test]
fn a_dataset_of_an_old_pool_is_counted_once_the_pool_may() {
    // The pool that version 1 made.
    let env = Env::real();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/pool.v1.img.zst");
    let packed = std::fs::read(path).expect("the golden pool");
    let image = zstd::bulk::decompress(&packed, 64 << 20).expect("an image");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.img"), image).expect("written");
    let device = FileDevice::open(&folder.path().join("a.img"), &OpenOptions::WRITE).expect("a device");
    let pool = import(&env, vec![handle(&Arc::new(device))], None).expect("an old pool opens");
    pool.datasets().create_dataset("tank/a", Default::default(), None).expect("created");
    assert!(pool.datasets().owner_uses("tank/a").is_err(), "nobody counts");
    assert!(pool.datasets().set_property("tank/a", "userquota@5", Some("4096")).is_err());
    let (fs, _use) = mount(&pool, "tank/a");
    let file = fs.mknod(who(5, 6), ROOT, b"f", 0o100_644, 0).unwrap().ino;
    fs.write(file, 0, &noise(1, 200 << 10), false).unwrap();
    fs.mkdir(ME, ROOT, b"d", 0o755).unwrap();
    fs.syncfs().unwrap();
    pool.enable_feature("owner_accounting").expect("enabled");
    fs.mkdir(who(5, 6), ROOT, b"e", 0o755).unwrap();
    compare(&pool, &fs, "counted");
    assert_eq!(has(&pool, Owner::user(5)), (200 * KIB, 2));
}
