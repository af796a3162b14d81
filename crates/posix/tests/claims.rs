//! The claims of the heads of modules, one test each.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::{ROOT, World};
use steadfast_dataset::Settings;
use steadfast_env::Env;
use steadfast_posix::{
    AclKind, Atime, Caller, Errno, Fallocate, Identity, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT,
    S_IFCHR, S_ISGID, SetAttr, SetTime, Time,
};

fn world(recordsize: u32) -> World {
    World::new(Env::seeded(5), Settings { recordsize, ..Settings::default() })
}

fn size(size: u64) -> SetAttr<'static> {
    SetAttr { size: Some(size), ..SetAttr::default() }
}

fn mode(mode: u32) -> SetAttr<'static> {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

/// [dataset.1], with the cut and the growth in every combination of layers.
#[test]
fn a_file_that_grows_again_shows_zeros() {
    for commits in 0..16_u32 {
        let mut world = world(512);
        let file = world.file("f");
        let step = |world: &mut World, number: u32| {
            if commits & 1 << number != 0 {
                world.commit();
            }
        };
        world.fs.write(file, 0, &[7; 3_000], false).expect("writes");
        step(&mut world, 0);
        world.fs.setattr(file, &size(700)).expect("cuts");
        step(&mut world, 1);
        world.fs.setattr(file, &size(2_000)).expect("grows");
        step(&mut world, 2);
        world.fs.write(file, 1_800, &[9; 10], false).expect("writes");
        step(&mut world, 3);
        let mut expected = vec![0; 2_000];
        expected[..700].fill(7);
        expected[1_800..1_810].fill(9);
        assert_eq!(world.content(file), expected, "commits {commits:04b}");
        world.check();
        world.reopen();
        assert_eq!(world.content(file), expected, "commits {commits:04b}, opened again");
    }
}

#[test]
fn what_is_done_between_freeze_and_sync_belongs_to_the_next_txg() {
    let mut world = world(512);
    let file = world.file("f");
    world.fs.write(file, 0, &[1; 2_000], false).expect("writes");
    let txg = world.freeze();
    world.fs.write(file, 100, &[2; 50], false).expect("writes");
    world.fs.setattr(file, &size(600)).expect("cuts");
    world.fs.mknod(ROOT, 1, b"late", 0o644, 0).expect("makes");
    world.fs.unlink(1, b"f").expect("removes");
    world.sync(txg);
    world.reopen();
    assert_eq!(world.list(1), [b"f".to_vec()]);
    assert_eq!(world.content(file), vec![1; 2_000]);
    assert_eq!(world.fs.getattr(file).expect("there").nlink, 1);
    world.check();
}

#[test]
fn orphans_are_reclaimed_at_open() {
    let mut world = world(4096);
    let empty = world.blocks.live();
    let kept = world.fs.mknod(ROOT, 1, b"open", 0o644, 0).expect("makes").ino;
    world.fs.write(kept, 0, &[3; 50_000], false).expect("writes");
    world.fs.setxattr(kept, b"user.a", &[1; 9_000], 0).expect("sets");
    let unnamed = world.fs.tmpfile(ROOT, 1, 0o600).expect("makes").ino;
    world.fs.write(unnamed, 0, &[4; 50_000], false).expect("writes");
    world.fs.unlink(1, b"open").expect("removes");
    world.commit();
    assert_eq!(world.content(kept), vec![3; 50_000], "an open file lives");
    let by_handle = world.fs.lookup(kept, b".").map(|found| found.ino);
    assert_eq!(by_handle, Err(Errno::ESTALE), "but no handle finds it any more");
    assert_eq!(world.fs.dataset().orphans().expect("listed").len(), 2);
    world.reopen();
    assert_eq!(world.fs.getattr(kept), Err(Errno::ESTALE));
    assert_eq!(world.fs.dataset().orphans().expect("listed"), []);
    world.check();
    assert_eq!(world.blocks.live(), empty, "nothing of them is left");
}

/// [posix.1]
#[test]
fn links_are_counted() {
    let mut world = world(4096);
    let links = |world: &World, ino: u64| world.fs.getattr(ino).expect("there").nlink;
    let file = world.file("a");
    world.fs.link(file, 1, b"b").expect("links");
    let above = world.fs.mkdir(ROOT, 1, b"above", 0o755).expect("makes").ino;
    let below = world.fs.mkdir(ROOT, above, b"below", 0o755).expect("makes").ino;
    assert_eq!([links(&world, file), links(&world, above), links(&world, 1)], [2, 3, 3]);
    world.fs.rename(above, b"below", 1, b"b", RENAME_EXCHANGE).expect("change places");
    assert_eq!([links(&world, file), links(&world, above), links(&world, 1)], [2, 2, 4]);
    world.fs.rename(1, b"a", above, b"below", 0).expect("two names of one file: nothing");
    assert_eq!(links(&world, file), 2);
    world.fs.unlink(1, b"a").expect("removes");
    world.fs.rmdir(1, b"b").expect("removes");
    assert_eq!([links(&world, file), links(&world, below), links(&world, 1)], [1, 0, 3]);
    assert_eq!(world.fs.mkdir(ROOT, below, b"x", 0o755).map(|entry| entry.ino), Err(Errno::ENOENT));
    world.check();
}

/// [posix.1]
#[test]
fn a_whiteout_takes_the_place_of_what_was_renamed() {
    let mut world = world(4096);
    let file = world.file("a");
    let above = world.fs.mkdir(ROOT, 1, b"above", 0o755).expect("makes").ino;
    let size = |world: &World, ino: u64| world.fs.getattr(ino).expect("there").size;
    let before = [size(&world, 1), size(&world, above)];
    world.fs.rename(1, b"a", above, b"b", RENAME_WHITEOUT).expect("renames");
    assert_eq!([size(&world, 1), size(&world, above)], [before[0], before[1] + 1]);
    assert_eq!(world.fs.lookup(above, b"b").expect("it is there").ino, file);
    let left = world.fs.lookup(1, b"a").expect("and this is in its place");
    assert_eq!((left.attr.mode, left.attr.rdev, left.attr.nlink), (S_IFCHR, 0, 1));
    world.check();
    // A whiteout can be replaced, and a directory leaves one too.
    world.fs.rename(above, b"b", 1, b"a", RENAME_WHITEOUT).expect("renames back");
    world.fs.rename(1, b"above", 1, b"other", RENAME_WHITEOUT | RENAME_NOREPLACE).expect("a directory");
    assert_eq!(world.fs.getattr(1).expect("there").nlink, 3);
    let taken = world.fs.rename(1, b"other", 1, b"a", RENAME_WHITEOUT | RENAME_NOREPLACE);
    assert_eq!(taken, Err(Errno::EEXIST));
    let both = world.fs.rename(1, b"other", 1, b"a", RENAME_WHITEOUT | RENAME_EXCHANGE);
    assert_eq!(both, Err(Errno::EINVAL));
    world.check();
    for name in [&b"a"[..], b"above"] {
        world.fs.unlink(1, name).expect("a whiteout is removed as a file is");
    }
    world.check();
}

#[test]
fn a_listing_neither_repeats_nor_skips_what_stays() {
    let mut world = world(4096);
    let stays: BTreeSet<Vec<u8>> = (0..300).map(|number| format!("stays-{number}").into_bytes()).collect();
    for name in &stays {
        world.file(std::str::from_utf8(name).expect("ascii"));
    }
    for number in 0..300 {
        world.file(&format!("goes-{number}"));
    }
    let (mut cookie, mut seen, mut round) = (0, Vec::new(), 0);
    loop {
        let mut taken = 0;
        let before = cookie;
        world
            .fs
            .readdir(1, cookie, |entry| {
                if taken == 7 {
                    return false;
                }
                taken += 1;
                cookie = entry.cookie;
                seen.push(entry.name);
                true
            })
            .expect("lists");
        if cookie == before {
            break;
        }
        // Others come and go between any two parts of the listing, and commits too.
        world.file(&format!("comes-{round}"));
        let _ = world.fs.unlink(1, format!("goes-{round}").as_bytes());
        if round % 10 == 0 {
            world.commit();
        }
        round += 1;
    }
    let unique: BTreeSet<Vec<u8>> = seen.iter().cloned().collect();
    assert_eq!(unique.len(), seen.len(), "none twice");
    assert!(stays.is_subset(&unique), "none left out");
    assert!(world.fs.readdir(1, u64::MAX, |_| panic!("behind the last")).is_ok());
}

#[test]
fn reading_changes_the_access_time_as_the_mount_says() {
    let world = world(4096);
    let file = world.file("f");
    world.fs.write(file, 0, b"x", false).expect("writes");
    let long_ago = SetTime::To(Time { seconds: 1_000, nanos: 0 });
    let read = |rule| {
        world.fs.set_atime(rule);
        world.fs.read(file, 0, &mut [0]).expect("reads");
        world.fs.getattr(file).expect("there").atime
    };
    let set = SetAttr { atime: Some(long_ago), ..SetAttr::default() };
    world.fs.setattr(file, &set).expect("sets");
    assert_eq!(read(Atime::Off).seconds, 1_000);
    let first = read(Atime::Relative);
    assert!(first.seconds > 1_000, "older than the last change");
    assert_eq!(read(Atime::Relative), first, "newer than the last change, and of today");
    assert!(read(Atime::Strict) > first);

    let open = |rule| {
        world.fs.set_atime(rule);
        let moved = world.fs.opened_for_reading(file).expect("opens");
        (moved, world.fs.getattr(file).expect("there").atime)
    };
    let before = world.fs.getattr(file).expect("there").atime;
    assert_eq!(open(Atime::Relative), (false, before), "newer than the last change");
    world.fs.write(file, 0, b"y", false).expect("writes");
    world.fs.read_unnoticed(file, 0, &mut [0]).expect("reads");
    assert_eq!(open(Atime::Strict), (false, before), "there only reads count, each of them");
    assert_eq!(open(Atime::Off), (false, before));
    let (moved, at) = open(Atime::Relative);
    assert!(moved && at > before, "changed since");

    let list = |dirs| {
        world.fs.setattr(1, &set).expect("sets");
        world.fs.set_dir_atime(dirs);
        world.fs.readdir(1, 0, |_| true).expect("lists");
        world.fs.getattr(1).expect("there").atime
    };
    assert_eq!(list(false).seconds, 1_000);
    assert!(list(true).seconds > 1_000);
    world.fs.set_dir_atime(false);
    assert!(read(Atime::Strict) > first, "files are no directories");
}

/// The kernel has nothing to tell of a file that it writes in the tick in which it was made: the
/// times of its own clock are those that the file has.
#[test]
fn where_the_kernel_keeps_times_a_new_file_has_that_of_its_clocks_tick() {
    let env = Env::real();
    let clock = std::sync::Arc::clone(&env.clock);
    let tick = || Time::from_ns(clock.tick_ns());
    let world = World::new(env, Settings::default());
    world.fs.set_new_at_tick(true);
    let mut within = 0;
    for number in 0..1_000 {
        let before = tick();
        let file = world.file(&format!("f{number}"));
        let after = tick();
        let made = world.fs.getattr(file).expect("there");
        assert!(before <= made.mtime && made.mtime <= after, "{before:?} {made:?} {after:?}");
        assert_eq!((made.mtime, made.atime, made.btime), (made.ctime, made.ctime, made.ctime));
        within += u32::from(before == after);
        world.fs.write_collected(file, 0, b"content", false, false).expect("written");
        assert_eq!(world.fs.getattr(file).expect("there").mtime, made.mtime);
    }
    assert!(within > 0, "no file was made within a tick");
}

#[test]
fn an_access_time_alone_asks_for_no_commit_and_goes_with_the_next() {
    let mut world = world(4096);
    let file = world.file("f");
    world.fs.write(file, 0, b"x", false).expect("writes");
    world.commit();
    world.commit();
    world.fs.read(file, 0, &mut [0]).expect("reads");
    let atime = world.fs.getattr(file).expect("there").atime;
    assert!(!world.fs.dataset().has_changes());
    world.fs.syncfs().expect("waits for nothing");
    world.commit();
    world.reopen();
    assert_eq!(world.fs.getattr(file).expect("there").atime, atime);
}

#[test]
fn set_ids_do_not_survive_a_change_of_content_or_owner() {
    let world = world(4096);
    let file = world.file("f");
    let now = || world.fs.getattr(file).expect("there").mode & 0o7777;
    world.fs.setattr(file, &mode(0o6755)).expect("sets");
    world.fs.write(file, 0, b"x", false).expect("writes");
    assert_eq!(now(), 0o6755, "root may keep them");
    assert_eq!(world.fs.write(file, 0, b"x", true), Ok(true));
    assert_eq!(now(), 0o755);
    world.fs.setattr(file, &mode(0o6745)).expect("sets");
    world.fs.setattr(file, &SetAttr { set_ids: true.into(), ..size(0) }).expect("cuts");
    assert_eq!(now(), 0o2745, "without group execution set-gid means mandatory locking");
    world.fs.setattr(file, &mode(0o4755)).expect("sets");
    world.fs.setattr(file, &SetAttr { uid: Some(7), ..SetAttr::default() }).expect("sets");
    assert_eq!(now(), 0o755);
}

#[test]
fn capabilities_do_not_survive_a_write() {
    let world = world(4096);
    let file = world.file("f");
    world.fs.setxattr(file, b"security.capability", b"all", 0).expect("sets");
    world.fs.setxattr(file, b"user.other", b"kept", 0).expect("sets");
    assert_eq!(world.fs.write(file, 0, b"x", false), Ok(true));
    assert_eq!(world.fs.getxattr(file, b"security.capability"), Err(Errno::ENODATA));
    assert_eq!(world.fs.getxattr(file, b"user.other"), Ok(b"kept".to_vec()));
    assert_eq!(world.fs.write(file, 0, b"x", false), Ok(false));
}

#[test]
fn a_set_gid_directory_hands_its_group_down() {
    let world = world(4096);
    let above = world.fs.mkdir(ROOT, 1, b"d", 0o755).expect("makes").ino;
    let set = SetAttr { gid: Some(50), ..mode(0o2775) };
    world.fs.setattr(above, &set).expect("sets");
    let user = Caller { uid: 9, gid: 9, umask: 0 };
    let file = world.fs.mknod(user, above, b"f", 0o644, 0).expect("makes").attr;
    let below = world.fs.mkdir(user, above, b"d", 0o755).expect("makes").attr;
    assert_eq!((file.uid, file.gid, file.mode & S_ISGID), (9, 50, 0));
    assert_eq!((below.gid, below.mode & S_ISGID), (50, S_ISGID));
    assert_eq!(world.fs.mknod(user, 1, b"f", 0o644, 0).expect("makes").attr.gid, 9);
}

#[test]
fn a_copy_within_a_file_does_not_copy_what_it_adds() {
    let world = world(512);
    let file = world.file("f");
    world.fs.write(file, 0, &[5; 456], false).expect("writes");
    assert_eq!(world.fs.copy_file_range(file, 0, file, 456, 20_000), Ok(456));
    assert_eq!(world.content(file), vec![5; 912]);
    assert_eq!(world.fs.copy_file_range(file, 0, file, 100, 200), Err(Errno::EINVAL), "they overlap");
}

/// The pool of these tests has 1 TiB free.
#[test]
fn allocation_far_out_asks_only_for_its_range() {
    let world = world(512);
    let file = world.file("f");
    let allocate = |offset: u64, length: u64| {
        world.fs.fallocate(file, Fallocate::Allocate { keep_size: false }, offset, length, false)
    };
    assert_eq!(allocate(0, 1 << 41), Err(Errno::ENOSPC));
    assert_eq!(allocate(1 << 43, (1 << 40) + 1), Err(Errno::ENOSPC));
    assert_eq!(allocate(1 << 43, 4096), Ok(false));
    assert_eq!(world.fs.getattr(file).expect("attributes").size, (1 << 43) + 4096);
}

#[test]
fn allocation_that_keeps_the_size_keeps_the_times() {
    let world = world(512);
    let file = world.file("f");
    world.fs.write(file, 0, &[5; 456], false).expect("writes");
    let before = world.fs.getattr(file).expect("attributes");
    let allocate = |keep_size| {
        std::thread::sleep(Duration::from_millis(2));
        world.fs.fallocate(file, Fallocate::Allocate { keep_size }, 0, 1 << 20, false).expect("allocates");
        world.fs.getattr(file).expect("attributes")
    };
    let kept = allocate(true);
    assert_eq!((kept.size, kept.mtime, kept.ctime), (456, before.mtime, before.ctime));
    assert_eq!(allocate(false).size, 1 << 20);
}

/// The txg that is being written counts as not durable.
#[test]
fn syncfs_waits_for_the_txg_that_is_being_written() {
    let mut world = world(512);
    let file = world.file("f");
    world.fs.write(file, 0, b"x", false).expect("writes");
    let txg = world.freeze();
    let result = world.fs.dataset().sync(txg).expect("syncs");
    let fs = std::sync::Arc::clone(&world.fs);
    let waiting = std::thread::spawn(move || fs.syncfs());
    std::thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished(), "not committed yet");
    world.take(txg, result);
    waiting.join().expect("no panic").expect("durable");
    world.fs.syncfs().expect("nothing to wait for");
}

#[test]
fn what_a_file_occupies_is_the_same_after_opening_again() {
    let mut world = world(4096);
    for (name, bytes) in [("inline", 100), ("one block", 4_000), ("many", 50_000)] {
        let file = world.file(name);
        world.fs.write(file, 0, &vec![6; bytes], false).expect("writes");
        world.commit();
        let blocks = world.fs.getattr(file).expect("there").blocks;
        assert!(blocks > 0, "{name} is no hole");
        world.reopen();
        assert_eq!(world.fs.getattr(file).expect("there").blocks, blocks, "{name}, counted");
        world.commit();
    }
    world.check();
}

#[test]
fn what_an_attribute_may_take_is_reserved_before_it_is_set() {
    let world = world(4096);
    let ino = world.file("a");
    let before = world.txgs.budget.reserved();
    world.fs.setxattr(ino, b"user.big", &[7; 65_536], 0).expect("sets");
    let after = world.txgs.budget.reserved();
    assert!(after.space - before.space >= 2 * 65_536, "two copies of 64 KiB");
    assert!(after.memory - before.memory >= 65_536);
}

/// A caller that is killed while it waits for a commit gets away, at once when it is noticed;
/// others go on waiting.
#[test]
fn who_is_killed_waits_no_longer_for_a_commit() {
    let mut world = world(512);
    let file = world.file("f");
    let asked = std::cell::Cell::new(0);
    let dies_at = |times: u32| {
        asked.set(0);
        world.fs.fsync_unless(file, || {
            asked.set(asked.get() + 1);
            asked.get() == times
        })
    };
    assert_eq!(dies_at(2), Err(Errno::EINTR));
    assert_eq!(asked.get(), 2);
    world.commit();
    assert_eq!(world.fs.fsync_unless(file, || panic!("durable things are not waited for")), Ok(()));
}

#[test]
fn a_file_is_settled_when_its_content_is_stored() {
    let mut world = world(512);
    let file = world.file("f");
    world.commit();
    let is_settled = |world: &World| world.fs.getattr(file).expect("there").is_settled;
    assert!(is_settled(&world));
    world.fs.write(file, 0, &[1; 5_000], false).expect("writes");
    assert!(!is_settled(&world));
    let txg = world.freeze();
    assert!(!is_settled(&world), "on its way");
    world.sync(txg);
    assert!(is_settled(&world));
    world.fs.setattr(file, &size(9)).expect("cuts");
    assert!(!is_settled(&world), "a cut frees blocks");
    world.commit();
    assert!(is_settled(&world));
}

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&bits.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// Names that are there stay as they are, whatever is asked of new ones.
#[test]
fn new_names_can_be_held_to_utf_8() {
    let world = world(512);
    let (me, bad, good) = (Caller::ROOT, &b"caf\xe9"[..], "caf\u{e9}".as_bytes());
    let old = world.fs.mknod(me, 1, bad, 0o644, 0).expect("made").ino;
    world.fs.set_utf8_only(true);
    assert_eq!(world.fs.mknod(me, 1, b"\xff", 0o644, 0).map(drop), Err(Errno::EILSEQ));
    assert_eq!(world.fs.mkdir(me, 1, b"\xff", 0o755).map(drop), Err(Errno::EILSEQ));
    assert_eq!(world.fs.symlink(me, 1, b"\xff", b"x").map(drop), Err(Errno::EILSEQ));
    assert_eq!(world.fs.link(old, 1, b"\xff").map(drop), Err(Errno::EILSEQ));
    assert_eq!(world.fs.rename(1, bad, 1, b"\xff", 0), Err(Errno::EILSEQ));
    assert_eq!(world.fs.lookup(1, b"\xff").map(drop), Err(Errno::ENOENT));
    world.fs.symlink(me, 1, b"link", b"\xff").expect("what it leads to is no name here");
    assert_eq!(world.fs.lookup(1, bad).expect("there").ino, old);
    world.fs.rename(1, bad, 1, good, 0).expect("this is how it gets a better one");
    world.fs.unlink(1, good).expect("gone");
}

/// Attributes that are switched off are neither shown nor taken, and come back afterwards. Those of
/// `security.` do not belong to users.
#[test]
fn attributes_of_users_can_be_switched_off() {
    let world = world(512);
    let file = world.file("f");
    world.fs.setxattr(file, b"user.a", b"kept", 0).expect("sets");
    world.fs.setxattr(file, b"security.b", b"label", 0).expect("sets");
    world.fs.set_user_attributes(false);
    assert_eq!(world.fs.getxattr(file, b"user.a"), Err(Errno::EOPNOTSUPP));
    assert_eq!(world.fs.setxattr(file, b"user.a", b"other", 0), Err(Errno::EOPNOTSUPP));
    assert_eq!(world.fs.removexattr(file, b"user.a"), Err(Errno::EOPNOTSUPP));
    assert_eq!(world.fs.listxattr(Caller::ROOT, file), Ok(vec![b"security.b".to_vec()]));
    assert_eq!(world.fs.getxattr(file, b"security.b"), Ok(b"label".to_vec()));
    world.fs.set_user_attributes(true);
    assert_eq!(world.fs.getxattr(file, b"user.a"), Ok(b"kept".to_vec()));
}

/// [acl.1], [acl.2]: lists follow modes, modes follow lists, and both come back after a crash.
#[test]
fn lists_and_modes_stay_in_step() {
    const NOBODY: u32 = u32::MAX;
    let (access, default) = (AclKind::Access.name(), AclKind::Default.name());
    let list = acl(&[(1, 6, NOBODY), (2, 4, 1000), (4, 4, NOBODY), (16, 6, NOBODY), (32, 0, NOBODY)]);
    let mut world = world(512);
    let file = world.file("f");
    assert_eq!(world.fs.setxattr(file, access, &list, 0), Err(Errno::EOPNOTSUPP), "not switched on");
    world.fs.set_acls(true);
    world.fs.setattr(file, &mode(0o2640)).expect("set");
    world.fs.setxattr(file, access, &list, 0).expect("set");
    assert_eq!(world.fs.getattr(file).expect("there").mode & 0o7777, 0o2660);
    world.fs.set_acl(file, AclKind::Access, &list, true).expect("set");
    assert_eq!(
        world.fs.getattr(file).expect("there").mode & 0o7777,
        0o660,
        "its setter is outside the group"
    );
    world.fs.setattr(file, &mode(0o751)).expect("set");
    let moved = acl(&[(1, 7, NOBODY), (2, 4, 1000), (4, 4, NOBODY), (16, 5, NOBODY), (32, 1, NOBODY)]);
    assert_eq!(world.fs.getxattr(file, access), Ok(moved.clone()));

    assert_eq!(world.fs.setxattr(file, default, &list, 0), Err(Errno::EACCES), "of directories only");
    world.fs.setxattr(1, default, &list, 0).expect("set");
    let user = Caller { uid: 1000, gid: 100, umask: 0o077 };
    let made = world.fs.mknod(user, 1, b"new", 0o664, 0).expect("made");
    assert_eq!(made.attr.mode & 0o777, 0o660, "the umask is not looked at");
    let below = world.fs.mkdir(user, 1, b"below", 0o700).expect("made");
    assert_eq!(below.attr.mode & 0o777, 0o600);
    assert_eq!(world.fs.getxattr(below.ino, default), Ok(list.clone()));
    let link = world.fs.symlink(user, 1, b"link", b"x").expect("made");
    assert_eq!(world.fs.listxattr(ROOT, link.ino), Ok(vec![]));

    world.commit();
    world.check();
    world.reopen();
    assert_eq!(world.fs.getxattr(file, access), Err(Errno::EOPNOTSUPP), "off again");
    assert_eq!(world.fs.listxattr(ROOT, file), Ok(vec![]));
    world.fs.set_acls(true);
    assert_eq!(world.fs.getxattr(file, access), Ok(moved));
    world.fs.removexattr(1, default).expect("removed");
    let made = world.fs.mknod(user, 1, b"plain", 0o666, 0).expect("made");
    assert_eq!(made.attr.mode & 0o777, 0o600, "now it is");
    let minimal = acl(&[(1, 6, NOBODY), (4, 0, NOBODY), (32, 4, NOBODY)]);
    world.fs.setxattr(file, access, &minimal, 0).expect("set");
    assert_eq!(world.fs.getattr(file).expect("there").mode & 0o777, 0o604);
    assert_eq!(world.fs.getxattr(file, access), Err(Errno::ENODATA), "the mode says it all");
    assert_eq!(world.fs.setxattr(file, access, &[1, 2, 3], 0), Err(Errno::EINVAL));
    world.commit();
    world.check();
}

/// The first look at a file costs a node or two for each of three items (its directory's
/// attributes, its entry, its own attributes), however many files there are, if the cache holds a
/// small part of the tree.
#[test]
fn a_cold_name_costs_a_few_reads_among_however_many_files() {
    const DIRECTORY: u64 = 500;
    let mut world = world(512);
    let mut directories = Vec::new();
    let mut made = 0;
    for files in [4_000, 16_000] {
        while made < files {
            if made % DIRECTORY == 0 {
                let name = format!("d{}", made / DIRECTORY);
                let entry = world.fs.mkdir(ROOT, 1, name.as_bytes(), 0o755).expect("new");
                world.fs.forget(entry.ino, 1);
                directories.push(entry.ino);
            }
            let directory = directories[usize::try_from(made / DIRECTORY).expect("few")];
            let entry = world.fs.mknod(ROOT, directory, format!("f{made}").as_bytes(), 0o100_644, 0);
            world.fs.forget(entry.expect("new").ino, 1);
            made += 1;
        }
        world.commit();
        world.reopen();
        let mut reads = [0, 0];
        let cold = 40;
        for step in 0..2 * cold {
            // Far apart, so that one finds next to nothing of what the one before brought.
            let file = step * 7_919 % files;
            let directory = directories[usize::try_from(file / DIRECTORY).expect("few")];
            let name = format!("f{file}");
            let before = world.blocks.reads();
            if step < cold {
                let found = world.fs.lookup(directory, name.as_bytes()).expect("there");
                world.fs.forget(found.ino, 1);
            } else {
                world.fs.unlink(directory, name.as_bytes()).expect("removed");
                let entry = world.fs.mknod(ROOT, directory, name.as_bytes(), 0o100_644, 0).expect("new");
                world.fs.forget(entry.ino, 1);
            }
            let took = world.blocks.reads() - before;
            assert!(took <= 9, "{files} files, step {step}: {took} nodes read");
            reads[usize::from(step >= cold)] += took;
        }
        assert!(reads.iter().all(|reads| *reads <= 4 * cold), "{files} files: {reads:?} for {cold} each");
        world.check();
    }
}

/// References that come back by number reach what is in memory, once; what is not there has none.
#[test]
fn what_is_forgotten_by_number_is_forgotten_once() {
    let mut world = world(512);
    let entry = world.fs.mknod(ROOT, 1, b"f", 0o100_644, 0).expect("new");
    world.fs.lookup(1, b"f").expect("there");
    world.fs.unlink(1, b"f").expect("removed");
    world.commit();
    world.fs.forget(entry.ino, 1);
    assert!(world.fs.getattr(entry.ino).is_ok(), "one reference is left");
    world.fs.forget(entry.ino, 1);
    assert_eq!(world.fs.getattr(entry.ino), Err(Errno::ESTALE));
    for ino in [entry.ino, 12_345, 0] {
        world.fs.forget(ino, 1);
    }
    world.check();
    let other = world.file("g");
    world.commit();
    world.reopen();
    let before = world.blocks.reads();
    world.fs.forget(other, 1);
    assert_eq!(world.blocks.reads(), before, "nothing is read to be forgotten");
    assert!(world.fs.lookup(1, b"g").is_ok());
}

#[test]
fn a_cold_removal_for_a_client_begins_one_operation() {
    let mut world = world(4096);
    // Names and inodes fill leaves of their own.
    (0..1_000).for_each(|n| _ = world.file(&format!("f{n}")));
    world.commit();
    world.reopen();
    world.nodes.clear();
    let client = Identity { uid: 0, gid: 0, groups: &[] };
    // A second one is refused.
    world.space.set(Some(1));
    world.fs.remove_for(&client, 1, b"f900", false).expect("removed");
    assert!(!world.space.refused());
    world.space.set(None);
    world.check();
}
