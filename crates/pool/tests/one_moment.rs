//! Snapshots that are taken together are of one moment, whatever is written meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{self, ME, MIB, ROOT, handles, mount, options, read_file, spec};
use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_pool::{DatasetHandle, Pool};
use steadfast_posix::FileSystem;

const SNAPSHOTS: u64 = 60;
const FILE: &[u8] = b"number";

/// Stops the writer when dropped, by a panic too.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes a number to the first file system and then to the second, and a file of that name into
/// each; then the next number.
fn write(first: &FileSystem, second: &FileSystem, written: &AtomicU64, stop: &AtomicBool) {
    let both = [first, second];
    let inos = both.map(|fs| fs.lookup(ROOT, FILE).expect("made").ino);
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        for (fs, ino) in both.into_iter().zip(inos) {
            fs.write(ino, 0, &number.to_le_bytes(), false).expect("written");
        }
        for fs in both {
            let made = fs.mknod(ME, ROOT, format!("{number}").as_bytes(), 0o100_644, 0).expect("made");
            fs.forget(made.ino, 1);
        }
        written.store(number, Ordering::Release);
    }
    for (fs, ino) in both.into_iter().zip(inos) {
        fs.forget(ino, 1);
    }
}

/// Numbers that a snapshot shows: the one in the file, and the greatest that is a name.
fn shown(handle: &DatasetHandle, snapshot: &str) -> [u64; 2] {
    let opened = handle.snapshots().open(snapshot).expect("it opens");
    let shown = opened.with(|dataset| {
        let fs = FileSystem::of_snapshot(Arc::clone(dataset), options());
        let bytes = read_file(&fs, ROOT, FILE);
        let mut last = 0;
        fs.readdir(ROOT, 0, |entry| {
            let name = String::from_utf8(entry.name).expect("a name");
            last = last.max(name.parse().unwrap_or(0));
            true
        })
        .expect("listed");
        [u64::from_le_bytes(bytes.try_into().expect("eight bytes")), last]
    });
    shown.expect("it is there")
}

#[test]
fn no_snapshot_shows_what_came_later_without_what_came_before() {
    let env = Env::real();
    let devices = vec![Arc::new(MemoryDevice::new("a", 256 * MIB))];
    let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
    for name in ["tank/a", "tank/b"] {
        pool.datasets().create_dataset(name, Default::default(), None).expect("made");
    }
    let (a, b) = (mount(&pool, "tank/a"), mount(&pool, "tank/b"));
    for fs in [&a.0, &b.0] {
        common::write_file(fs, ROOT, FILE, &0_u64.to_le_bytes());
    }
    let (written, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut before = Vec::new();
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        scope.spawn(|| {
            let _stops = Stops(&stop);
            write(&a.0, &b.0, &written, &stop);
        });
        for taken in 0..SNAPSHOTS {
            // Something is new in each.
            let seen = before.last().copied().unwrap_or(0);
            while written.load(Ordering::Acquire) == seen {
                assert!(!stop.load(Ordering::Relaxed), "the writer goes on");
                std::thread::yield_now();
            }
            before.push(written.load(Ordering::Acquire));
            let mut names = [format!("tank/a@s{taken}"), format!("tank/b@s{taken}")];
            if taken % 2 == 1 {
                names.reverse();
            }
            pool.datasets().take_snapshots(&names, &Default::default()).expect("taken");
        }
    });
    for (taken, before) in before.into_iter().enumerate() {
        let name = format!("s{taken}");
        let (first, second) = (shown(&a.1, &name), shown(&b.1, &name));
        for (first, second) in first.into_iter().zip(second) {
            assert!(second <= first && first <= second + 1, "{name}: {first} in a, {second} in b");
            assert!(second >= before, "{name}: {second} in b, and {before} was written before it");
        }
    }
}
