//! Many threads on one file system, while txgs are frozen, written and committed, and freed blocks
//! vanish: no call fails that may not, nobody sees bytes that nobody wrote, and the trees are sound
//! at the end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::support::{Draw, ROOT, World};
use steadfast_dataset::Settings;
use steadfast_env::{Env, TaskHandle};
use steadfast_posix::{Caller, Errno, Fallocate, FileSystem, SetAttr};

const RECORD: usize = 4096;
const BLOCK: usize = 1000;

/// Runs `job` for each of `count` threads, committing all the while; then checks.
fn beside_commits(count: u64, job: impl Fn(&FileSystem, u64) + Send + Sync + 'static) -> World {
    let settings = Settings { recordsize: u32::try_from(RECORD).expect("small"), zeros_are_holes: false };
    let mut world = World::new(Env::real(), settings);
    world.set_frees_per_sync(20);
    let (job, running) = (Arc::new(job), Arc::new(AtomicU32::new(0)));
    let failed = Arc::new(AtomicBool::new(false));
    let mut tasks: Vec<Box<dyn TaskHandle>> = Vec::new();
    for thread in 0..count {
        running.fetch_add(1, Ordering::SeqCst);
        let (fs, job, running, failed) = (world.fs.clone(), job.clone(), running.clone(), failed.clone());
        let body = move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(&fs, thread)));
            failed.fetch_or(result.is_err(), Ordering::SeqCst);
            running.fetch_sub(1, Ordering::SeqCst);
        };
        tasks.push(world.env.tasks.spawn("operations", Box::new(body)));
    }
    while running.load(Ordering::SeqCst) > 0 {
        world.write_early();
        world.commit();
    }
    assert!(tasks.into_iter().all(TaskHandle::join) && !failed.load(Ordering::SeqCst));
    world.fs.forget_all();
    world.check();
    world
}

/// Refusals that are right when others rename and remove at the same time.
fn may_be_refused<T>(result: Result<T, Errno>) -> Option<T> {
    let expected = [
        Errno::ENOENT,
        Errno::EEXIST,
        Errno::ENOTEMPTY,
        Errno::EISDIR,
        Errno::ENOTDIR,
        Errno::EINVAL,
        Errno::ESTALE,
        Errno::EPERM,
    ];
    match result {
        Ok(value) => Some(value),
        Err(errno) if expected.contains(&errno) => None,
        Err(errno) => panic!("{errno:?}"),
    }
}

#[test]
fn names_stay_whole_while_many_change_them() {
    let mut world = beside_commits(4, |fs, thread| {
        let mut draw = Draw(thread + 1);
        let mut directories = vec![1];
        let name = |draw: &mut Draw| vec![b'a' + u8::try_from(draw.below(8)).expect("small")];
        for _ in 0..20_000 {
            let parent = directories[draw.below(directories.len())];
            let (one, other) = (name(&mut draw), name(&mut draw));
            match draw.below(8) {
                0 => {
                    if let Some(entry) = may_be_refused(fs.mkdir(ROOT, parent, &one, 0o755)) {
                        fs.forget(entry.ino, 1);
                        directories.push(entry.ino);
                    }
                }
                1 | 2 => {
                    if let Some(entry) = may_be_refused(fs.mknod(ROOT, parent, &one, 0o100_644, 0)) {
                        may_be_refused(fs.write(entry.ino, 0, &[7; 5000], false));
                        fs.forget(entry.ino, 1);
                    }
                }
                3 => {
                    may_be_refused(fs.unlink(parent, &one));
                }
                4 => {
                    may_be_refused(fs.rmdir(parent, &one));
                }
                5 => {
                    if let Some(entry) = may_be_refused(fs.lookup(parent, &one)) {
                        let made = fs.link(entry.ino, parent, &other);
                        if let Some(entry) = may_be_refused(made) {
                            fs.forget(entry.ino, 1);
                        }
                        fs.forget(entry.ino, 1);
                    }
                }
                6 => {
                    let target = directories[draw.below(directories.len())];
                    let flags = [0, 1, 2][draw.below(3)];
                    may_be_refused(fs.rename(parent, &one, target, &other, flags));
                }
                _ => {
                    let mut names = BTreeSet::new();
                    may_be_refused(fs.readdir(parent, 0, |entry| names.insert(entry.name.clone())));
                }
            }
        }
    });
    world.reopen();
    world.check();
}

#[test]
fn every_block_read_was_written_as_one() {
    // Each thread owns every fourth block of one file and writes it whole with one byte value;
    // whoever reads a block of another thread finds one value all over, and of its own the last one
    // written.
    beside_commits(4, |fs, thread| {
        let entry = match fs.mknod(ROOT, 1, b"shared", 0o100_644, 0) {
            Err(Errno::EEXIST) => fs.lookup(1, b"shared"),
            made => made,
        };
        let ino = entry.expect("made or found").ino;
        let mut draw = Draw(thread + 10);
        let mut own = [0_u8; 40];
        let mut buffer = vec![0; BLOCK];
        for _ in 0..30_000 {
            let block = draw.below(own.len());
            let offset = |thread: u64| (block as u64 * 4 + thread) * BLOCK as u64;
            match draw.below(4) {
                0 => {
                    own[block] = u8::try_from(1 + draw.below(250)).expect("small");
                    fs.write(ino, offset(thread), &[own[block]; BLOCK], false).expect("writes");
                }
                1 => {
                    own[block] = 0;
                    fs.fallocate(ino, Fallocate::PunchHole, offset(thread), BLOCK as u64, false)
                        .expect("punches");
                }
                2 => {
                    let count = fs.read(ino, offset(thread), &mut buffer).expect("reads");
                    assert!(
                        buffer[..count].iter().all(|&byte| byte == own[block]),
                        "block {block} of {thread}"
                    );
                }
                _ => {
                    let other = draw.below(4) as u64;
                    let count = fs.read(ino, offset(other), &mut buffer).expect("reads");
                    assert!(
                        buffer[..count].windows(2).all(|pair| pair[0] == pair[1]),
                        "block {block} of {other}"
                    );
                }
            }
        }
    });
}

#[test]
fn files_come_and_go_while_others_are_read() {
    beside_commits(3, |fs, thread| {
        let caller = Caller::ROOT;
        let mut draw = Draw(thread + 20);
        for round in 0..2_000_usize {
            let name = format!("{thread}-{}", round % 5);
            let entry = match fs.mknod(caller, 1, name.as_bytes(), 0o100_644, 0) {
                Err(Errno::EEXIST) => {
                    fs.unlink(1, name.as_bytes()).expect("there");
                    fs.mknod(caller, 1, name.as_bytes(), 0o100_644, 0).expect("free again")
                }
                made => made.expect("made"),
            };
            let data = vec![u8::try_from(1 + round % 200).expect("small"); 1 + draw.below(20 * RECORD)];
            fs.write(entry.ino, 0, &data, false).expect("writes");
            let mut read = vec![0; data.len()];
            assert_eq!(fs.read(entry.ino, 0, &mut read), Ok(data.len()));
            assert!(read == data);
            let size = draw.below(data.len());
            let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
            fs.setattr(entry.ino, &set).expect("truncates");
            assert_eq!(fs.read(entry.ino, 0, &mut read), Ok(size));
            assert!(read[..size] == data[..size]);
            fs.forget(entry.ino, 1);
        }
    });
}

#[test]
fn fsync_returns_when_its_txg_is_committed_and_not_before() {
    let mut world = World::new(Env::real(), Settings::default());
    let ino = world.file("a");
    world.fs.write(ino, 0, b"promised", false).expect("writes");
    let (fs, txgs) = (world.fs.clone(), world.txgs.clone());
    let txg = txgs.gate.open_txg();
    let closed = world.freeze();
    assert_eq!(closed, txg);
    // Closed, written, not committed: forgotten by everybody and read again, the inode still knows
    // its txg.
    let result = world.fs.dataset().sync(closed).expect("syncs");
    fs.forget(ino, 1);
    let waiter = {
        let (fs, txgs) = (fs.clone(), txgs.clone());
        let body = move || {
            fs.fsync(ino).expect("commits");
            assert!(txgs.commits.committed() >= txg, "fsync came back too early");
        };
        world.env.tasks.spawn("fsync", Box::new(body))
    };
    while !txgs.commits.is_requested(txg) {
        std::thread::yield_now();
    }
    world.take(closed, result);
    assert!(waiter.join());
    fs.fsync(ino).expect("nothing is left to wait for");
}
