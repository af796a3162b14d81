//! Quotas and reservations: exact to the operation's worst case, kept over a crash, never in the
//! way of deleting.

use std::sync::Arc;

use crate::common::{ME, MIB, ROOT, handle, import, mount, noise, spec};
use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_pool::{Error, Pool, VolumeSpec};
use steadfast_posix::{Errno, Fallocate, FileSystem};

const KIB: u64 = 1 << 10;

/// Bytes promised to an operation on names, and bytes that nodes may take besides content
/// (`steadfast_dataset`).
const NODES: u64 = 16 * KIB;

/// Nodes of trees that compress worse than before: what `used` may stand above a limit
/// (`pool/src/datasets/quotas.rs`).
const NODES_ABOVE: u64 = 64 * KIB;

fn new_pool(datasets: &[&str]) -> (Env, Arc<MemoryDevice>, Pool) {
    let env = Env::real();
    let device = Arc::new(MemoryDevice::new("a", 128 * MIB));
    let mut spec = spec(vec![handle(&device)], None);
    spec.root_props = [("compression".to_owned(), "off".to_owned())].into();
    let pool = Pool::create(&env, spec).expect("a pool");
    for name in datasets {
        pool.datasets().create_dataset(name, Default::default(), None).expect("created");
    }
    (env, device, pool)
}

fn set(pool: &Pool, name: &str, property: &str, bytes: u64) -> Result<(), Error> {
    pool.datasets().set_property(name, property, Some(&bytes.to_string()))
}

fn used(pool: &Pool, fs: &FileSystem, name: &str) -> u64 {
    fs.syncfs().expect("committed");
    pool.datasets().dataset_info(name).expect("it is there").used
}

fn new_file(fs: &FileSystem, name: &str) -> Result<u64, Errno> {
    Ok(fs.mknod(ME, ROOT, name.as_bytes(), 0o100_644, 0)?.ino)
}

/// Writes pieces of so many bytes behind each other until one is refused; the bytes written and the
/// refusal.
fn fill(fs: &FileSystem, ino: u64, piece: u64) -> (u64, Errno) {
    let data = noise(ino, usize::try_from(piece).unwrap());
    let mut at = fs.getattr(ino).expect("it is there").size;
    loop {
        match fs.write(ino, at, &data, false) {
            Ok(_) => at += piece,
            Err(error) => return (at, error),
        }
    }
}

#[test]
fn a_quota_is_filled_to_the_worst_case_of_what_is_refused() {
    let (_env, _device, pool) = new_pool(&["tank/a"]);
    for (round, quota) in [8 * MIB, 9 * MIB + 300 * KIB, 12 * MIB].into_iter().enumerate() {
        set(&pool, "tank/a", if round == 1 { "refquota" } else { "quota" }, quota).expect("set");
        let (fs, _use) = mount(&pool, "tank/a");
        let ino = new_file(&fs, &format!("large{round}")).expect("made");
        for piece in [128 * KIB, 4 * KIB] {
            let (_, error) = fill(&fs, ino, piece);
            assert_eq!(error, Errno::EDQUOT);
            let used = used(&pool, &fs, "tank/a");
            assert!(used <= quota + NODES_ABOVE, "{used} of {quota}");
            // A record is at its longest rewritten whole, so that much may be left.
            assert!(quota.saturating_sub(used) < 128 * KIB + piece + NODES, "{used} of {quota}");
            let info = pool.datasets().dataset_info("tank/a").unwrap();
            assert_eq!(info.available, quota.saturating_sub(used));
        }
        // A file of its own for each page: nothing is rewritten, so less than a page and the nodes
        // is left.
        let mut refused = None;
        for number in 0..1_000 {
            let made = new_file(&fs, &format!("page{round}-{number}"));
            refused = made.and_then(|ino| fs.write(ino, 0, &noise(1, 4096), false)).err();
            if refused.is_some() {
                break;
            }
        }
        assert_eq!(refused, Some(Errno::EDQUOT));
        let used = used(&pool, &fs, "tank/a");
        assert!(
            used <= quota + NODES_ABOVE && quota.saturating_sub(used) < 4 * KIB + 2 * NODES,
            "{used} of {quota}"
        );
        pool.datasets().set_properties("tank/a", &[("quota", None), ("refquota", None)]).expect("none");
    }
}

#[test]
fn whatever_grows_is_refused_at_a_quota_and_whatever_shrinks_works() {
    let (_env, _device, pool) = new_pool(&["tank/a"]);
    set(&pool, "tank/a", "quota", 4 * MIB).expect("set");
    let (fs, _use) = mount(&pool, "tank/a");
    let ino = new_file(&fs, "file").expect("made");
    let other = new_file(&fs, "other").expect("made");
    fill(&fs, ino, 128 * KIB);
    fill(&fs, other, 4 * KIB);
    // The room left is less than an operation on names takes.
    while fs.mkdir(ME, ROOT, format!("d{}", fs.statfs().files).as_bytes(), 0o755).is_ok() {}
    let refused = |what: &str, result: Result<(), Errno>| assert_eq!(result, Err(Errno::EDQUOT), "{what}");
    refused("write", fs.write(ino, 0, &noise(3, 1 << 20), false).map(drop));
    refused("create", new_file(&fs, "more").map(drop));
    refused("mkdir", fs.mkdir(ME, ROOT, b"dir", 0o755).map(drop));
    refused("symlink", fs.symlink(ME, ROOT, b"link", b"file").map(drop));
    refused("tmpfile", fs.tmpfile(ME, ROOT, 0o600).map(drop));
    refused("setxattr", fs.setxattr(ino, b"user.x", &noise(4, 60_000), 0));
    let end = fs.getattr(ino).unwrap().size;
    let allocate = Fallocate::Allocate { keep_size: false };
    refused("fallocate", fs.fallocate(ino, allocate, end, 8 * MIB, false).map(drop));
    refused("copy_file_range", fs.copy_file_range(ino, 0, other, 64 * MIB, MIB).map(drop));
    assert_eq!(fs.write(ino, 0, b"", false), Ok(false));
    fs.rename(ROOT, b"file", ROOT, b"renamed", 0).expect("a rename takes as much as it gives");
    fs.setattr(ino, &steadfast_posix::SetAttr { mode: Some(0o600), ..Default::default() }).expect("chmod");
    fs.fallocate(ino, Fallocate::PunchHole, 0, MIB, false).expect("a hole");
    fs.unlink(ROOT, b"other").expect("unlink");
    fs.forget(other, 1);
    fs.write(ino, 0, &noise(5, 64 << 10), false).expect("there is room again, and it is waited for");
    assert!(used(&pool, &fs, "tank/a") <= 4 * MIB + NODES_ABOVE);
}

#[test]
fn a_quota_above_counts_all_below_it_and_a_refquota_only_its_own() {
    let (_env, _device, pool) = new_pool(&["tank/a", "tank/a/b", "tank/a/c"]);
    set(&pool, "tank/a", "quota", 6 * MIB).expect("set");
    set(&pool, "tank/a", "refquota", MIB).expect("set");
    let (b, _use_b) = mount(&pool, "tank/a/b");
    let (c, _use_c) = mount(&pool, "tank/a/c");
    let (in_b, in_c) = (new_file(&b, "f").unwrap(), new_file(&c, "f").unwrap());
    b.write(in_b, 0, &noise(1, 3 << 20), false).expect("half of it");
    let (bytes, error) = fill(&c, in_c, 64 * KIB);
    assert_eq!(error, Errno::EDQUOT);
    assert!((2 * MIB..3 * MIB).contains(&bytes), "{bytes}");
    let info = |name: &str| pool.datasets().dataset_info(name).unwrap();
    b.syncfs().unwrap();
    assert_eq!(info("tank/a").used, info("tank/a").referenced + info("tank/a").used_by_children);
    assert_eq!(info("tank/a").used_by_children, info("tank/a/b").used + info("tank/a/c").used);
    assert!(info("tank/a/b").available < 256 * KIB && info("tank").available > 50 * MIB);
    b.unlink(ROOT, b"f").unwrap();
    b.forget(in_b, 1);
    c.write(in_c, bytes, &noise(2, 1 << 20), false).expect("what another gave back is there");
}

#[test]
fn a_reservation_is_there_on_a_full_pool() {
    let (env, device, pool) = new_pool(&["tank/kept", "tank/greedy"]);
    let free = pool.datasets().dataset_info("tank").unwrap().available;
    set(&pool, "tank/kept", "reservation", 20 * MIB).expect("set");
    assert!(matches!(
        set(&pool, "tank/kept", "reservation", free + MIB),
        Err(Error::ReservationTooHigh { .. })
    ));
    let left = pool.datasets().dataset_info("tank/greedy").unwrap().available;
    // Its content is part of the bytes kept for it; a commit moves the pool's own metadata by some
    // nodes.
    let kept = 20 * MIB - pool.datasets().dataset_info("tank/kept").unwrap().used;
    assert!(left.abs_diff(free - kept) < MIB / 4, "{left} of {free}");
    let (fs, used_greedy) = mount(&pool, "tank/greedy");
    let ino = new_file(&fs, "f").unwrap();
    let (_, error) = fill(&fs, ino, 128 * KIB);
    assert_eq!(error, Errno::ENOSPC, "the pool is full for it, which is no quota");
    drop((fs, used_greedy, pool));
    // A crash, and the reservation is still there.
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    let (fs, _use) = mount(&pool, "tank/kept");
    let ino = new_file(&fs, "f").expect("a name");
    for at in 0..18 {
        fs.write(ino, at * MIB, &noise(at, 1 << 20), false).expect("18 of 20 MiB are there");
    }
    let info = pool.datasets().dataset_info("tank/kept").unwrap();
    assert!(info.available < 3 * MIB, "{info:?}");
}

#[test]
fn a_refreservation_is_used_before_it_is_written() {
    let (_env, _device, pool) = new_pool(&["tank/a", "tank/a/b"]);
    set(&pool, "tank/a", "refreservation", 10 * MIB).expect("set");
    let info = |name: &str| pool.datasets().dataset_info(name).unwrap();
    let a = info("tank/a");
    assert_eq!(a.used_by_refreservation, 10 * MIB - a.referenced);
    assert_eq!(a.used, 10 * MIB + a.used_by_children);
    let (fs, _use) = mount(&pool, "tank/a");
    let ino = new_file(&fs, "f").unwrap();
    fs.write(ino, 0, &noise(1, 3 << 20), false).unwrap();
    fs.syncfs().unwrap();
    let after = info("tank/a");
    assert_eq!(
        (after.used, after.used_by_children),
        (a.used, a.used_by_children),
        "nothing moved but the parts"
    );
    assert_eq!(after.used_by_refreservation, 10 * MIB - after.referenced);
    assert!(matches!(set(&pool, "tank/a", "quota", 9 * MIB), Err(Error::LimitTooLow { .. })));
    assert!(matches!(set(&pool, "tank/a", "refquota", 9 * MIB), Err(Error::LimitTooLow { .. })));
    set(&pool, "tank/a", "quota", 11 * MIB).expect("more than is kept");
    assert!(matches!(
        set(&pool, "tank/a", "refreservation", 20 * MIB),
        Err(Error::ReservationTooHigh { .. })
    ));
}

#[test]
fn nothing_is_moved_below_a_quota_that_has_no_room_for_it() {
    let (_env, _device, pool) = new_pool(&["tank/a", "tank/q", "tank/q/b"]);
    set(&pool, "tank/a", "reservation", 10 * MIB).expect("set");
    set(&pool, "tank/q", "quota", 9 * MIB).expect("set");
    let error = pool
        .datasets()
        .rename_dataset("tank/a", "tank/q/b/a")
        .expect_err("it is charged with what is reserved");
    assert!(matches!(error, Error::RenameOverQuota { .. }), "{error}");
    assert_eq!(pool.datasets().names(), ["tank", "tank/a", "tank/q", "tank/q/b"]);
    set(&pool, "tank/q", "quota", 20 * MIB).expect("set");
    pool.datasets().rename_dataset("tank/a", "tank/q/b/a").expect("there is room");
    // Below the same quota it moves as it likes, and from there too.
    set(&pool, "tank/q", "quota", 11 * MIB).expect("as much is charged");
    pool.datasets().rename_dataset("tank/q/b/a", "tank/q/a").expect("it counts already");
    pool.datasets().rename_dataset("tank/q/a", "tank/a").expect("nothing is in the way");
}

#[test]
fn several_properties_are_set_all_or_none() {
    let (env, device, pool) = new_pool(&["tank/a"]);
    let edits = [("org:x", Some("1")), ("quota", Some("4096"))];
    assert!(matches!(pool.datasets().set_properties("tank/a", &edits), Err(Error::LimitTooLow { .. })));
    assert!(pool.datasets().local_props("tank/a").unwrap().is_empty(), "neither is set");
    let both = (10 * MIB).to_string();
    let edits = [("reservation", Some(both.as_str())), ("quota", Some(both.as_str())), ("org:x", Some("2"))];
    pool.datasets().set_properties("tank/a", &edits).expect("they fit each other");
    drop(pool);
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    assert_eq!(pool.datasets().local_props("tank/a").unwrap().len(), 3);
}

#[test]
fn writers_side_by_side_do_not_pass_a_quota_together() {
    let (_env, _device, pool) = new_pool(&["tank/a"]);
    set(&pool, "tank/a", "quota", 8 * MIB).expect("set");
    let (fs, _use) = mount(&pool, "tank/a");
    let files: Vec<u64> = (0..4).map(|n| new_file(&fs, &format!("f{n}")).unwrap()).collect();
    std::thread::scope(|scope| {
        for ino in files {
            let fs = &fs;
            scope.spawn(move || assert_eq!(fill(fs, ino, 64 * KIB).1, Errno::EDQUOT));
        }
    });
    let used = used(&pool, &fs, "tank/a");
    assert!(used <= 8 * MIB + NODES_ABOVE && used > 7 * MIB, "{used}");
}

#[test]
fn what_is_kept_for_a_volume_goes_back_with_its_size() {
    let (env, device, pool) = new_pool(&[]);
    let (short, long) = (8 * MIB, 20 * MIB);
    let cases = [("tank/all", Some(long), Some(short)), ("tank/more", Some(9 * MIB), Some(9 * MIB))];
    let kept = |pool: &Pool, name: &str| {
        pool.datasets()
            .local_props(name)
            .expect("there")
            .get("refreservation")
            .map(|bytes| bytes.parse().expect("bytes"))
    };
    for (name, reserved, _) in cases.into_iter().chain([("tank/sparse", None, None)]) {
        let volume = VolumeSpec { bytes: short, block_bytes: 16 << 10 };
        pool.datasets().create_volume(name, Default::default(), None, volume).expect("made");
        set(&pool, name, "refreservation", short).expect("set");
        pool.datasets().take_snapshots(&[format!("{name}@a")], &Default::default()).expect("taken");
        pool.datasets().grow_volume(name, long).expect("grown");
        pool.datasets()
            .set_property(name, "refreservation", reserved.map(|bytes| bytes.to_string()).as_deref())
            .expect("set");
        assert_eq!(kept(&pool, name), reserved);
        pool.datasets().rollback(&format!("{name}@a")).expect("rolled back");
    }
    let before = pool.datasets().dataset_info("tank/all").expect("there");
    assert_eq!(before.used_by_refreservation + before.written, short);
    drop(pool);
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    for (name, _, expected) in cases.into_iter().chain([("tank/sparse", None, None)]) {
        assert_eq!(kept(&pool, name), expected, "{name}");
    }
}

#[test]
fn a_refreservation_is_whole_again_after_a_snapshot() {
    let (env, device, pool) = new_pool(&["tank/a", "tank/greedy"]);
    set(&pool, "tank/a", "refreservation", 15 * MIB).expect("set");
    let info = |pool: &Pool, name: &str| pool.datasets().dataset_info(name).unwrap();
    let (fs, used_a) = mount(&pool, "tank/a");
    let ino = new_file(&fs, "f").unwrap();
    fs.write(ino, 0, &noise(1, 12 << 20), false).unwrap();
    fs.syncfs().unwrap();
    let before = info(&pool, "tank/a");
    pool.datasets().take_snapshots(&["tank/a@1".to_owned()], &Default::default()).expect("there is room");
    let kept = |pool: &Pool| {
        let info = info(pool, "tank/a");
        let unique = pool.datasets().written_since_name("tank/a", "1").unwrap();
        assert_eq!(info.used_by_refreservation, 15 * MIB - unique, "{info:?}");
        assert_eq!(info.used, info.used_by_dataset + info.used_by_snapshots + info.used_by_refreservation);
        info
    };
    let taken = kept(&pool);
    assert!(taken.used > before.used + 11 * MIB, "{taken:?}");
    // Others fill the rest, and all of the file is written again.
    let (greedy, used_greedy) = mount(&pool, "tank/greedy");
    let large = new_file(&greedy, "f").unwrap();
    assert_eq!(fill(&greedy, large, 128 * KIB).1, Errno::ENOSPC);
    greedy.syncfs().unwrap();
    for at in 0..12 {
        fs.write(ino, at * MIB, &noise(100 + at, 1 << 20), false).expect("it is kept for this");
        fs.syncfs().unwrap();
        assert!(kept(&pool).used.abs_diff(taken.used) < MIB / 4, "one part becomes the other");
    }
    drop((fs, used_a, greedy, used_greedy, pool));
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    kept(&pool);
    pool.datasets().destroy_snapshots(&["tank/a@1".to_owned()], false).expect("destroyed");
    let gone = info(&pool, "tank/a");
    assert_eq!((gone.used, gone.used_by_refreservation), (15 * MIB, 15 * MIB - gone.referenced));
}

#[test]
fn a_snapshot_needs_what_may_be_written_again() {
    let (_env, _device, pool) = new_pool(&["tank/q", "tank/q/v", "tank/plain"]);
    set(&pool, "tank/q/v", "refreservation", 15 * MIB).expect("set");
    let (fs, _use) = mount(&pool, "tank/q/v");
    let ino = new_file(&fs, "f").unwrap();
    fs.write(ino, 0, &noise(1, 12 << 20), false).unwrap();
    let take = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        pool.datasets().take_snapshots(&names, &Default::default())
    };
    let refused = |names: &[&str]| match take(names) {
        Err(Error::SnapshotReservation { name, bytes }) => {
            assert_eq!(name, "tank/q/v");
            assert!((11 * MIB..13 * MIB).contains(&bytes), "{bytes}");
        }
        other => panic!("{other:?}"),
    };
    // A quota above it has no room for both.
    set(&pool, "tank/q", "quota", 20 * MIB).expect("set");
    refused(&["tank/q/v@1"]);
    refused(&["tank/plain@1", "tank/q/v@1"]);
    assert_eq!(pool.datasets().snapshot_names("tank/plain").unwrap(), [""; 0], "all or none");
    set(&pool, "tank/q", "quota", 28 * MIB).expect("set");
    take(&["tank/q/v@1"]).expect("15 and 12");
    // Nothing was written since, so nothing more is needed.
    take(&["tank/q/v@2"]).expect("no more than before");
    pool.datasets()
        .destroy_snapshots(&["tank/q/v@1".to_owned(), "tank/q/v@2".to_owned()], false)
        .expect("destroyed");
    pool.datasets().set_property("tank/q", "quota", None).expect("none");
    // The same where the pool has none.
    let (plain, _used) = mount(&pool, "tank/plain");
    let large = new_file(&plain, "f").unwrap();
    assert_eq!(fill(&plain, large, 128 * KIB).1, Errno::ENOSPC);
    plain.syncfs().unwrap();
    refused(&["tank/q/v@1"]);
    take(&["tank/plain@1"]).expect("nothing is kept for it");
    pool.datasets().set_property("tank/q/v", "refreservation", None).expect("none");
    take(&["tank/q/v@1"]).expect("and nothing for this one now");
}
