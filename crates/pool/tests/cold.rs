//! Nothing is in memory, and the device is far away: operations wait for it side by side, hold no
//! lock meanwhile, and read nothing twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{ME, ROOT};
use crate::far::{FarDevice, cold};
use steadfast_pool::{DatasetHandle, Memory, Pool};
use steadfast_posix::{FileSystem, SetAttr, Span};

/// Threads that ask at once.
const THREADS: usize = 24;
/// Reads that must be under way at once: some of the names lie in one leaf.
const TOGETHER: usize = 12;
const NAMES: usize = 8_000;

fn name(number: usize) -> Vec<u8> {
    format!("a name of some length, number {number:06}").into_bytes()
}

/// The same, cold, where one read does not bring what lies beside it.
fn many_names_cold() -> (Arc<FarDevice>, Pool, FileSystem, DatasetHandle) {
    let (far, pool, fs, handle) = cold(many_names);
    pool.set_memory(Memory { block_cache_bytes: 0, ..Memory::default() });
    (far, pool, fs, handle)
}

/// A directory of many names, in the root, whose inner nodes are in memory and whose leaves are
/// not.
fn many_names(fs: &FileSystem) {
    for number in 0..NAMES {
        let made = fs.mknod(ME, ROOT, &name(number), 0o100_644, 0).expect("made");
        fs.forget(made.ino, 1);
    }
}

/// Runs `act` for each number in a thread of its own, and says whether reads came together.
fn together(far: &FarDevice, act: impl Fn(usize) + Sync) -> bool {
    far.gather(TOGETHER);
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let act = &act;
            scope.spawn(move || act(number));
        }
    });
    far.gathered()
}

#[test]
fn creates_in_a_cold_directory_wait_side_by_side() {
    let (far, pool, fs, _handle) = many_names_cold();
    // The way down is read.
    fs.lookup(ROOT, b"no such name").unwrap_err();
    let made = |number: usize| format!("new {number}").into_bytes();
    assert!(together(&far, |number| {
        fs.mknod(ME, ROOT, &made(number), 0o100_644, 0).expect("made");
    }));
    let before = far.reads();
    (0..THREADS).for_each(|number| assert!(fs.lookup(ROOT, &made(number)).is_ok(), "{number}"));
    assert_eq!(far.reads(), before, "what was made is in memory");
    pool.sync().expect("committed");
}

#[test]
fn all_changes_of_names_wait_side_by_side() {
    let (far, pool, fs, _handle) = many_names_cold();
    fs.lookup(ROOT, b"no such name").unwrap_err();
    let act = |number: usize| {
        let (old, new) = (name(number * 300), format!("new {number}").into_bytes());
        match number % 4 {
            0 => fs.unlink(ROOT, &old).expect("removed"),
            1 => fs.rename(ROOT, &old, ROOT, &new, 0).expect("renamed"),
            2 => assert!(fs.mkdir(ME, ROOT, &new, 0o755).is_ok(), "{number}"),
            _ => {
                let file = fs.lookup(ROOT, &old).expect("there");
                fs.link(file.ino, ROOT, &new).expect("linked");
                fs.setxattr(file.ino, b"user.a", b"b", 0).expect("set");
            }
        }
    };
    assert!(together(&far, act));
    for number in 0..THREADS {
        let (old, new) = (name(number * 300), format!("new {number}").into_bytes());
        assert_eq!(fs.lookup(ROOT, &old).is_ok(), number % 4 > 1, "{number}");
        assert_eq!(fs.lookup(ROOT, &new).is_ok(), number % 4 > 0, "{number}");
    }
    let listed = AtomicUsize::new(0);
    let count = |_| {
        listed.fetch_add(1, Ordering::Relaxed);
        true
    };
    fs.readdir(ROOT, 0, count).expect("listed");
    assert_eq!(listed.into_inner(), 2 + NAMES - 6 + 6 + 6);
    pool.sync().expect("committed");
}

#[test]
fn what_many_look_for_is_read_once() {
    let (far, _pool, fs, _handle) = many_names_cold();
    fs.lookup(ROOT, b"no such name").unwrap_err();
    let (begun, waited) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let before = far.reads();
    // The first read is held until all have asked.
    far.gather(2);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let span = Span::begin();
                begun.fetch_add(1, Ordering::SeqCst);
                fs.lookup(ROOT, &name(77)).expect("there");
                waited.fetch_add(usize::from(!span.split().is_hot()), Ordering::SeqCst);
            });
        }
        while begun.load(Ordering::SeqCst) < THREADS || far.reads() == before {
            std::thread::yield_now();
        }
        (0..1000).for_each(|_| std::thread::yield_now());
        far.let_go();
    });
    // The leaf of the name, and that of its inode.
    assert!(far.reads() - before <= 2, "{} reads", far.reads() - before);
    // Those who follow a read wait for it as its leader does, and know it.
    assert!(waited.into_inner() > 2);
}

#[test]
fn a_commit_passes_an_operation_that_waits_for_the_device() {
    let (far, pool, fs, _handle) = many_names_cold();
    fs.lookup(ROOT, b"no such name").unwrap_err();
    let open = pool.datasets().open_dataset("tank").expect("it is open");
    let before = far.reads();
    // Two that never come: the first read is held until it is let go.
    far.gather(2);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| fs.unlink(ROOT, &name(77)));
        while far.reads() == before {
            std::thread::yield_now();
        }
        // The gate of the txgs, which every operation and every commit passes, is free, and so are
        // the names.
        open.dataset().txgs().gate.still(|_| ());
        fs.setattr(ROOT, &SetAttr { mode: Some(0o700), ..SetAttr::default() }).expect("set");
        far.let_go();
        waits.join().expect("no panic").expect("removed");
    });
    fs.lookup(ROOT, &name(77)).unwrap_err();
    pool.sync().expect("committed");
}

#[test]
fn a_request_knows_what_it_waited_for() {
    let (_far, _pool, fs, _handle) = many_names_cold();
    let split = |act: &dyn Fn()| {
        let span = Span::begin();
        act();
        span.split()
    };
    let last = name(NAMES - 1);
    let find = || fs.forget(fs.lookup(ROOT, &last).expect("there").ino, 1);
    let cold = split(&find);
    assert!(!cold.is_hot() && cold.waited.write_ns == 0);
    assert!(cold.own_ns() > 0, "nodes were judged and searched");
    assert!(split(&find).is_hot());
    // A change is made in memory; the commit is waited for.
    let made = split(&|| {
        fs.mknod(ME, ROOT, b"new", 0o100_644, 0).expect("made");
    });
    assert_eq!(made.waited.write_ns, 0);
    let synced = split(&|| fs.syncfs().expect("durable"));
    assert!(synced.waited.write_ns > 0 && synced.is_hot());
}
