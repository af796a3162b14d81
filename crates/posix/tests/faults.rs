//! Space that ends, reads and writes that fail, at the first, second, third... call: nothing half
//! done.

use std::collections::BTreeMap;

use crate::support::{ROOT, World};
use steadfast_dataset::Settings;
use steadfast_env::Env;
use steadfast_format::InodeId;
use steadfast_posix::{Errno, Fallocate, FileSystem, SetAttr, WriteClaim};

type Step = fn(&FileSystem) -> Result<(), Errno>;

/// One inode as a user sees it, times left out.
#[derive(Debug, Eq, PartialEq)]
struct Seen {
    ino: u64,
    mode: u32,
    nlink: u32,
    size: u64,
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn describe(fs: &FileSystem, ino: u64, path: &str, into: &mut BTreeMap<String, Seen>) {
    let attr = fs.getattr(ino).expect("there");
    let mut content = Vec::new();
    let mut below = Vec::new();
    match attr.mode & 0o170_000 {
        0o040_000 => {
            let take = |entry: steadfast_posix::DirEntry| {
                below.push((entry.ino, entry.name));
                true
            };
            fs.readdir(ino, 2, take).expect("lists");
        }
        0o120_000 => content = fs.readlink(ino).expect("a link"),
        _ => {
            content = vec![0; usize::try_from(attr.size).expect("small")];
            let count = fs.read(ino, 0, &mut content).expect("reads");
            assert_eq!(count, content.len());
        }
    }
    let names = fs.listxattr(ROOT, ino).expect("lists");
    let xattrs = names.into_iter().map(|name| (name.clone(), fs.getxattr(ino, &name).expect("listed")));
    let seen =
        Seen { ino, mode: attr.mode, nlink: attr.nlink, size: attr.size, content, xattrs: xattrs.collect() };
    into.insert(path.to_owned(), seen);
    for (ino, name) in below {
        describe(fs, ino, &format!("{path}/{}", String::from_utf8_lossy(&name)), into);
    }
}

fn all(world: &World) -> BTreeMap<String, Seen> {
    let mut seen = BTreeMap::new();
    describe(&world.fs, 1, "", &mut seen);
    seen
}

fn ino(fs: &FileSystem, parent: u64, name: &[u8]) -> Result<u64, Errno> {
    let entry = fs.lookup(parent, name)?;
    fs.forget(entry.ino, 1);
    Ok(entry.ino)
}

fn done(fs: &FileSystem, made: Result<steadfast_posix::Entry, Errno>) -> Result<(), Errno> {
    made.map(|entry| fs.forget(entry.ino, 1))
}

/// One of everything, on top of what [`prepared`] made. Steps use nothing that others leave.
const STEPS: [(&str, Step); 16] = [
    ("mknod", |fs| done(fs, fs.mknod(ROOT, 1, b"new", 0o644, 0))),
    ("mkdir", |fs| done(fs, fs.mkdir(ROOT, 1, b"newdir", 0o755))),
    ("symlink", |fs| done(fs, fs.symlink(ROOT, 1, b"newlink", &[b't'; 3_000]))),
    ("link", |fs| done(fs, fs.link(ino(fs, 1, b"file")?, 1, b"second"))),
    ("write", |fs| fs.write(ino(fs, 1, b"file")?, 700, &[8; 3_000], false).map(drop)),
    ("append", |fs| fs.write(ino(fs, 1, b"file")?, 9_000, &[8; 3_000], false).map(drop)),
    ("truncate", |fs| {
        let set = SetAttr { size: Some(1_000), ..SetAttr::default() };
        fs.setattr(ino(fs, 1, b"cut")?, &set).map(drop)
    }),
    ("punch", |fs| fs.fallocate(ino(fs, 1, b"hole")?, Fallocate::PunchHole, 600, 3_000, false).map(drop)),
    ("setxattr", |fs| fs.setxattr(ino(fs, 1, b"file")?, b"user.new", &[1; 5_000], 0)),
    ("removexattr", |fs| fs.removexattr(ino(fs, 1, b"file")?, b"user.old")),
    ("rename", |fs| fs.rename(1, b"moved", ino(fs, 1, b"dir")?, b"here", 0)),
    ("replace", |fs| fs.rename(1, b"winner", 1, b"loser", 0)),
    ("unlink", |fs| fs.unlink(1, b"victim")),
    ("rmdir", |fs| fs.rmdir(1, b"empty")),
    ("copy", |fs| {
        let (from, to) = (ino(fs, 1, b"source")?, ino(fs, 1, b"target")?);
        fs.copy_file_range(from, 100, to, 50, 4_000).map(drop)
    }),
    ("tmpfile", |fs| done(fs, fs.tmpfile(ROOT, 1, 0o600))),
];

/// Many records a file; and one, with overlays.
const RECORD_SIZES: [u32; 2] = [512, 32_768];

/// A file system, committed, with names enough for a tree of several levels.
fn prepared(recordsize: u32) -> World {
    let mut world = World::new(Env::seeded(9), Settings { recordsize, ..Settings::default() });
    for number in 0..150 {
        world.file(&format!("filler-{number}"));
    }
    for name in ["file", "cut", "hole", "moved", "winner", "loser", "victim", "source", "target"] {
        let file = world.file(name);
        world.fs.write(file, 0, &vec![name.as_bytes()[0]; 9_000], false).expect("writes");
        world.fs.setxattr(file, b"user.old", &[2; 5_000], 0).expect("sets");
    }
    for name in ["dir", "empty"] {
        let made = world.fs.mkdir(ROOT, 1, name.as_bytes(), 0o755);
        done(&world.fs, made).expect("makes");
    }
    world.commit();
    for name in ["file", "cut", "hole", "source", "target"] {
        let file = ino(&world.fs, 1, name.as_bytes()).expect("there");
        world.fs.write(file, 5_000, &[b'o'; 1_000], false).expect("writes");
    }
    world.commit();
    let overlays = world.fs.dataset().overlay_counts().written;
    assert_eq!(overlays, if recordsize > 4096 { 5 } else { 0 });
    world.reopen();
    world
}

#[test]
fn refused_space_leaves_nothing_half_done_at_every_admission() {
    RECORD_SIZES.into_iter().for_each(refuse_space);
}

fn refuse_space(recordsize: u32) {
    for admissions in 0.. {
        let mut world = prepared(recordsize);
        world.space.set(Some(admissions));
        for (name, step) in STEPS {
            let before = all(&world);
            if let Err(errno) = step(&world.fs) {
                assert_eq!(errno, Errno::ENOSPC, "{name}");
                assert!(world.space.refused());
                assert_eq!(all(&world), before, "{name} was refused");
                step(&world.fs).expect("there is room again");
            }
        }
        let refused = world.space.refused();
        world.space.set(None);
        world.fs.forget_all();
        world.check();
        if !refused {
            assert!(admissions as usize >= STEPS.len(), "every step was refused once");
            return;
        }
    }
}

#[test]
fn failing_reads_give_eio_and_leave_the_tree_as_it_was() {
    RECORD_SIZES.into_iter().for_each(fail_reads);
}

fn fail_reads(recordsize: u32) {
    let mut failures = 0;
    for (name, step) in STEPS {
        let mut world = prepared(recordsize);
        let before = all(&world);
        for reads in 0.. {
            // Nothing is in memory.
            world.reopen();
            world.blocks.fail_reads_after(Some(reads));
            let result = step(&world.fs);
            world.blocks.fail_reads_after(None);
            let Err(errno) = result else { break };
            failures += 1;
            assert_eq!(errno, Errno::EIO, "{name} after {reads} reads");
            assert_eq!(all(&world), before, "{name} after {reads} reads");
            world.fs.forget_all();
            world.check();
        }
    }
    // Content in many records is many reads; in one it is at least a read a step.
    let least = if recordsize == 512 { 20 } else { STEPS.len() };
    assert!(failures > least, "{failures} failures were met");
}

#[test]
fn a_sync_that_cannot_write_changes_nothing_that_is_read_or_durable() {
    RECORD_SIZES.into_iter().for_each(fail_writes);
}

fn fail_writes(recordsize: u32) {
    let mut failures = 0;
    for writes in 0.. {
        let mut world = prepared(recordsize);
        let durable = all(&world);
        for (name, step) in STEPS {
            step(&world.fs).unwrap_or_else(|errno| panic!("{name}: {errno:?}"));
        }
        let changed = all(&world);
        let txg = world.freeze();
        world.blocks.fail_writes_after(Some(writes));
        let result = world.fs.dataset().sync(txg);
        world.blocks.fail_writes_after(None);
        let failed = result.is_err();
        failures += u32::from(failed);
        assert_eq!(all(&world), changed, "after {writes} writes: memory still answers");
        if let Ok(result) = result {
            world.take(txg, result);
        }
        world.reopen();
        assert_eq!(all(&world), if failed { durable } else { changed }, "after {writes} writes");
        world.check();
        if !failed {
            assert!(failures > 2, "content and both trees failed");
            return;
        }
    }
}

#[test]
fn unreadable_content_is_noted_and_the_rest_reads() {
    let mut world = World::new(Env::seeded(3), Settings { recordsize: 4096, ..Settings::default() });
    let file = world.file("f");
    world.fs.write(file, 0, &[1; 20_000], false).expect("writes");
    world.commit();
    // Nothing is cached of content: the first read meets the fault, whatever it is.
    world.blocks.fail_reads_after(Some(0));
    assert_eq!(world.fs.read(file, 5_000, &mut [0; 100]), Err(Errno::EIO));
    world.blocks.fail_reads_after(None);
    let damage = world.fs.dataset().damage();
    assert_eq!(damage.len(), 1);
    assert_eq!((damage[0].inode.0, damage[0].range.clone()), (file, 4_096..8_192));
    assert_eq!(world.content(file), vec![1; 20_000], "it was the store's fault");
}

/// A file whose attributes and content fill leaves of their own, of which none is in memory. Its
/// name and its inode are.
fn with_victim() -> (World, u64) {
    let mut world = prepared(512);
    let victim = ino(&world.fs, 1, b"victim").expect("there");
    for number in 0..40 {
        world.fs.setxattr(victim, format!("user.{number}").as_bytes(), &[3; 3_000], 0).expect("sets");
    }
    world.fs.write(victim, 0, &[4; 1 << 20], false).expect("writes");
    world.commit();
    world.reopen();
    assert_eq!(ino(&world.fs, 1, b"victim"), Ok(victim));
    (world, victim)
}

fn orphans(world: &World) -> Vec<InodeId> {
    world.fs.dataset().orphans().expect("listed")
}

#[test]
fn a_name_goes_though_other_items_of_its_file_cannot_be_read() {
    let (mut world, victim) = with_victim();
    world.blocks.fail_reads_after(Some(0));
    assert_eq!(world.fs.getxattr(victim, b"user.39"), Err(Errno::EIO));
    world.fs.unlink(1, b"victim").expect("removes");
    assert_eq!(world.fs.lookup(1, b"victim").map(|entry| entry.ino), Err(Errno::ENOENT));
    world.commit();
    world.blocks.fail_reads_after(None);
    assert_eq!(orphans(&world), [InodeId(victim)], "for as long as they cannot be read");
    world.reopen();
    assert_eq!(orphans(&world), []);
    world.check();
}

#[test]
fn a_file_goes_though_the_places_of_its_content_cannot_be_read() {
    let (mut world, _) = with_victim();
    let other = ino(&world.fs, 1, b"file").expect("there");
    world.fs.unlink(1, b"victim").expect("removes");
    // The list of cuts lies in the leaf with this file's content. The other leaves are not read.
    world.nodes.clear();
    world.fs.dataset().forged_items(false).expect("all names are in memory");
    let mut content = [0; 12];
    world.fs.read(other, 0, &mut content).expect("reads");
    world.blocks.fail_reads_after(Some(0));
    world.commit();
    assert!(!world.fs.dataset().has_changes(), "no commit is due for extents that cannot be read");
    assert!(!world.fs.dataset().owes_frees(), "nobody waits for room that does not come");
    world.fs.write(other, 0, b"others go on", false).expect("writes");
    world.commit();
    world.blocks.fail_reads_after(None);
    let kept = world.blocks.live();
    world.reopen();
    world.check();
    assert!(world.blocks.live() < kept - 2_000, "the next opening frees what can be read again");
    world.fs.read(other, 0, &mut content).expect("reads");
    assert_eq!(&content, b"others go on");
}

/// A file system of which no node is in memory, and none can be read, but the inode of one file is.
/// With `read` that file was read, and its access time moved.
fn without_nodes(read: bool) -> (World, u64) {
    let world = prepared(512);
    let file = ino(&world.fs, 1, b"file").expect("there");
    if read {
        world.fs.read(file, 0, &mut [0; 100]).expect("reads");
    }
    world.nodes.clear();
    world.blocks.fail_reads_after(Some(0));
    (world, file)
}

#[test]
fn a_change_of_an_inode_in_memory_is_refused_where_its_record_cannot_be_replaced() {
    let (mut world, file) = without_nodes(false);
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let size = SetAttr { size: Some(10), ..SetAttr::default() };
    let before = world.fs.getattr(file).expect("in memory");
    assert_eq!(world.fs.setattr(file, &mode).map(drop), Err(Errno::EIO));
    assert_eq!(world.fs.setattr(file, &size).map(drop), Err(Errno::EIO));
    assert_eq!(world.fs.write(file, 0, b"new", false).map(drop), Err(Errno::EIO));
    for mode in [Fallocate::Allocate { keep_size: false }, Fallocate::PunchHole] {
        assert_eq!(world.fs.fallocate(file, mode, 600, 20_000, false).map(drop), Err(Errno::EIO));
    }
    assert_eq!(world.fs.may_write(file, WriteClaim::default()), Err(Errno::EIO));
    assert_eq!(world.fs.getattr(file), Ok(before), "nothing was changed");
    world.commit();
    world.blocks.fail_reads_after(None);
    world.fs.setattr(file, &mode).expect("it can be read again");
    world.fs.write(file, 0, b"new", false).expect("writes");
    world.commit();
    world.reopen();
    assert_eq!(world.fs.getattr(file).expect("there").mode & 0o777, 0o600);
    world.check();
}

#[test]
fn a_time_of_reading_that_cannot_be_stored_fails_no_commit() {
    let (mut world, _) = without_nodes(true);
    world.commit();
    world.commit();
    world.blocks.fail_reads_after(None);
    world.check();
}
