//! A device that fails at its n-th read, write, flush or discard, for every n: every call answers,
//! with a typed error or with success; a pool whose commit failed is suspended and says why; and
//! what is found afterwards is a state the file system was in, no older than the last sync that
//! returned.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{self, Dice, ME, MIB, ROOT, handles, import, import_spec, mount, noise, spec};
use steadfast_device::memory::{Effect, Fate, Fault, Image};
use steadfast_device::{Device, MemoryDevice, Operation};
use steadfast_env::{Clock, Env};
use steadfast_inspect::{Finding, Leaf, Request, Severity};
use steadfast_pool::{Error, ImportSpec, Memory, Pool, scan};
use steadfast_posix::{Errno, Fallocate, FileSystem, SetAttr};

/// One name as a user sees it: mode, links, size, content (or target, or entries of a directory),
/// attributes.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Seen {
    mode: u32,
    nlink: u32,
    content: Vec<u8>,
    xattr: Option<Vec<u8>>,
}

type Tree = BTreeMap<String, Seen>;

/// More than the open segments keep in memory.
const OLD_BYTES: usize = 2_500_000;

fn describe(fs: &FileSystem, ino: u64, path: &str, into: &mut Tree) {
    let attr = fs.getattr(ino).expect("there");
    let (mut content, mut below) = (Vec::new(), Vec::new());
    match attr.mode & 0o170_000 {
        0o040_000 => {
            let take = |entry: steadfast_posix::DirEntry| {
                below.push((entry.ino, entry.name));
                true
            };
            fs.readdir(ino, 2, take).expect("lists");
        }
        0o120_000 => content = fs.readlink(ino).expect("a link"),
        // Only read step by step: see `reads_of_old`.
        _ if path == "/old" => {}
        _ => {
            content = vec![0; usize::try_from(attr.size).expect("small")];
            let mut at = 0;
            while at < content.len() {
                at += fs.read(ino, at as u64, &mut content[at..]).expect("reads");
            }
        }
    }
    let xattr = fs.getxattr(ino, b"user.note").ok();
    into.insert(path.to_owned(), Seen { mode: attr.mode, nlink: attr.nlink, content, xattr });
    for (ino, name) in below {
        describe(fs, ino, &format!("{path}/{}", String::from_utf8_lossy(&name)), into);
    }
}

fn all(fs: &FileSystem) -> Tree {
    let mut seen = Tree::new();
    describe(fs, ROOT, "", &mut seen);
    seen
}

fn ino(fs: &FileSystem, name: &str) -> Result<u64, Errno> {
    let entry = fs.lookup(ROOT, name.as_bytes())?;
    fs.forget(entry.ino, 1);
    Ok(entry.ino)
}

fn made(fs: &FileSystem, made: Result<steadfast_posix::Entry, Errno>) -> Result<u64, Errno> {
    made.map(|entry| {
        fs.forget(entry.ino, 1);
        entry.ino
    })
}

/// Reads parts of the large file: what is read is what was written.
fn reads_of_old(fs: &FileSystem) -> Result<(), Errno> {
    let ino = ino(fs, "old")?;
    for at in [0, 600_000, 1_400_000] {
        let mut content = vec![0; 9_000];
        assert_eq!(fs.read(ino, at as u64, &mut content)?, content.len());
        // It is on one device and in one copy; no other bytes are ever given in its place.
        assert!(content[..] == noise(99, OLD_BYTES)[at..at + 9_000], "{at}");
    }
    Ok(())
}

type Step = Box<dyn Fn(&FileSystem) -> Result<(), Errno>>;

/// A life in steps, each of which touches what the ones before left; `None` is a sync.
fn script() -> Vec<Option<Step>> {
    fn step(step: impl Fn(&FileSystem) -> Result<(), Errno> + 'static) -> Option<Step> {
        Some(Box::new(step))
    }
    let write = |name: &'static str, at: u64, seed: u64, bytes: usize| {
        step(move |fs| {
            let ino =
                ino(fs, name).or_else(|_| made(fs, fs.mknod(ME, ROOT, name.as_bytes(), 0o100_644, 0)))?;
            fs.write(ino, at, &noise(seed, bytes), false).map(drop)
        })
    };
    vec![
        write("kept", 0, 21, 200_000),
        write("old 7", 100, 4, 50),
        step(|fs| fs.unlink(ROOT, b"old 20")),
        step(reads_of_old),
        step(|fs| fs.rename(ROOT, b"old 3", ROOT, b"old 11", 0)),
        write("large", 0, 1, 700_000),
        write("small", 0, 2, 100),
        None,
        write("large", 130_000, 3, 5_000),
        step(|fs| fs.rename(ROOT, b"small", ROOT, b"moved", 0)),
        step(|fs| made(fs, fs.mkdir(ME, ROOT, b"dir", 0o755)).map(drop)),
        None,
        step(|fs| fs.setxattr(ino(fs, "large")?, b"user.note", &[7; 9_000], 0)),
        step(|fs| made(fs, fs.symlink(ME, ROOT, b"link", &[b't'; 3_000])).map(drop)),
        step(|fs| fs.rename(ROOT, b"moved", ino(fs, "dir")?, b"here", 0)),
        step(|fs| fs.fallocate(ino(fs, "large")?, Fallocate::PunchHole, 10_000, 300_000, false).map(drop)),
        None,
        step(|fs| fs.unlink(ROOT, b"large")),
        write("second", 4_000, 5, 400_000),
        None,
        step(|fs| {
            let set = SetAttr { size: Some(90_000), ..SetAttr::default() };
            fs.setattr(ino(fs, "second")?, &set).map(drop)
        }),
        step(|fs| made(fs, fs.link(ino(fs, "second")?, ROOT, b"name")).map(drop)),
        None,
    ]
}

fn new_devices() -> [Arc<MemoryDevice>; 2] {
    [MemoryDevice::new("a", 64 * MIB), MemoryDevice::new("b", 64 * MIB)].map(Arc::new)
}

/// Images of a pool that is to be imported.
fn prepared() -> Vec<Image> {
    let devices = new_devices();
    let env = Env::seeded(5);
    let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
    {
        // Enough names and attributes for trees of several nodes, of which small caches hold few.
        let (fs, _handle) = mount(&pool, "tank");
        for number in 0..30 {
            let name = format!("old {number}");
            let ino = common::write_file(&fs, ROOT, name.as_bytes(), &noise(100 + number, 9_000));
            fs.setxattr(ino, b"user.note", &noise(number, 2_000), 0).expect("set");
        }
        common::write_file(&fs, ROOT, b"old", &noise(99, OLD_BYTES));
    }
    pool.close().expect("closed");
    drop(pool);
    devices.iter().map(|device| device.image()).collect()
}

fn devices_of(images: &[Image]) -> Vec<Arc<MemoryDevice>> {
    let device = |(at, image): (usize, &Image)| MemoryDevice::from_image(["a", "b"][at], image.clone());
    images.iter().enumerate().map(device).map(Arc::new).collect()
}

/// The pool's own check finds nothing that is lost.
fn checked(devices: &[Arc<MemoryDevice>], context: &str) {
    let leaves: Vec<Leaf> = devices
        .iter()
        .map(|device| Leaf {
            path: device.character().identity,
            device: Arc::clone(device) as Arc<dyn Device>,
        })
        .collect();
    let env = Env::seeded(1);
    let mut findings = Vec::new();
    let request = Request { leaves: &leaves, secret: None, anchor: None, env: &env };
    let summary = steadfast_inspect::check(&request, &mut |finding| findings.push(finding));
    // An uberblock that a crash tore stays so until its slot of the ring is used again.
    findings.retain(|finding| !matches!(finding, Finding::UberblockTorn { .. }));
    assert!(findings.iter().all(|finding| finding.class().1 <= Severity::Note), "{context}: {findings:?}");
    assert!(summary.datasets > 0, "{context}: it was looked at");
}

/// Result of a script that ran under a fault.
struct Came {
    /// The fault struck.
    struck: bool,
    /// Something failed.
    failed: bool,
}

fn is_device_fault(error: &Error) -> bool {
    error.to_string().contains("Input/output error") || matches!(error, Error::Suspended { .. })
}

/// Caches that hold next to nothing, so that reading means reading a device.
const TINY: Memory = Memory { node_cache_bytes: 4096, block_cache_bytes: 4096, dirty_bytes_max: 64 << 10 };

/// Runs the script on a pool with one fault, then takes the power away, puts it on again and looks.
fn run(
    images: &[Image],
    memory: Memory,
    at: usize,
    fault: Fault,
    fates: &mut dyn FnMut(usize) -> Fate,
) -> Came {
    let context = format!("{fault:?} at device {at}");
    let devices = devices_of(images);
    let env = Env::seeded(9);
    devices[at].arm(fault);
    let mut came = Came { struck: false, failed: false };
    // States the file system was in, and the first one that may still be found.
    let mut states: Vec<Tree> = Vec::new();
    let mut floor = 0;
    let (mut pools, others) = scan(handles(&devices));
    assert!(pools.len() + others.len() <= 2 && pools.len() <= 1, "{context}");
    // An unreadable device belongs to no pool, and its pool lacks it.
    let found = pools.pop().ok_or_else(|| others.into_iter().next().expect("both were unreadable").1);
    match found.and_then(|found| Pool::import(&env, found, &ImportSpec { memory, ..import_spec(None) })) {
        Err(Error::MissingDevices { .. }) => {
            came.failed = true;
            assert_eq!(fault.operation, Operation::Read);
        }
        Err(error) => {
            came.failed = true;
            assert!(is_device_fault(&error), "{context}: {error}");
        }
        Ok(pool) => {
            let (fs, handle) = mount(&pool, "tank");
            let quiet = |fs: &FileSystem| {
                // The check itself must not meet the fault, or use it up.
                let left = devices[at].take_faults();
                let seen = all(fs);
                left.into_iter().for_each(|fault| devices[at].arm(fault));
                seen
            };
            states.push(quiet(&fs));
            for (number, step) in script().iter().enumerate() {
                let Some(step) = step else {
                    match pool.sync() {
                        Ok(()) => floor = states.len() - 1,
                        Err(error) => {
                            came.failed = true;
                            assert!(is_device_fault(&error), "{context}, step {number}: {error}");
                            assert!(pool.state().suspended.is_some(), "{context}, step {number}");
                            assert!(pool.sync().is_err(), "{context}: suspended for good");
                            if fault.effect == Effect::PowerOff {
                                break; // nobody is there to see the rest
                            }
                        }
                    }
                    continue;
                };
                if let Err(errno) = step(&fs) {
                    came.failed = true;
                    // A step whose predecessor failed does not find its file.
                    assert!(
                        matches!(errno, Errno::EIO | Errno::ENOENT),
                        "{context}, step {number}: {errno:?}"
                    );
                }
                let seen = quiet(&fs);
                if states.last() != Some(&seen) {
                    states.push(seen);
                }
            }
            drop((fs, handle));
            // Either way it lets go of its devices.
            came.failed |= pool.export().is_err();
        }
    }
    came.struck = devices[at].counts().failed > 0;
    devices.iter().for_each(|device| device.power_on(&mut *fates));
    let pool = import(&env, handles(&devices), None).unwrap_or_else(|error| panic!("{context}: {error}"));
    let (fs, handle) = mount(&pool, "tank");
    let found = all(&fs);
    if !states.is_empty() {
        let which = states.iter().rposition(|state| *state == found);
        let which = which.unwrap_or_else(|| panic!("{context}: a state that never was: {:?}", found.keys()));
        assert!(which >= floor, "{context}: state {which} is older than the last sync, {floor}");
    }
    // It works again.
    let entry = fs.mknod(ME, ROOT, b"afterwards", 0o100_644, 0).expect("made");
    fs.write(entry.ino, 0, &noise(8, 50_000), false).expect("written");
    drop((fs, handle));
    pool.export().expect("exported");
    checked(&devices, &context);
    came
}

/// Every `stride`th n of one operation, until the script runs through without meeting the fault. At
/// least `reached` operations are tried, and at least `failed` runs notice (metadata has two copies
/// and content is tried again, so many reads that fail are made good).
fn every(operation: Operation, effect: Effect, stride: usize, reached: u64, failed: u64) {
    let memory = if operation == Operation::Read { TINY } else { Memory::default() };
    let images = prepared();
    let mut dice = Dice(0x51f3);
    let mut failures = 0;
    for at in 0..images.len() {
        for skip in (0..).step_by(stride) {
            let mut fates = |_| match dice.below(3) {
                0 => Fate::Dropped,
                1 => Fate::Applied,
                _ => Fate::Torn { sectors: dice.below(9) as usize },
            };
            let came = run(&images, memory, at, Fault { operation, skip, effect }, &mut fates);
            failures += u64::from(came.failed);
            if !came.struck {
                assert!(!came.failed, "nothing fails without a fault");
                assert!(skip >= reached, "only {skip} operations were reached");
                break;
            }
        }
    }
    assert!(failures >= failed, "{failures} runs noticed the fault");
}

#[test]
fn a_write_that_fails_once_suspends_the_pool_and_loses_nothing_committed() {
    every(Operation::Write, Effect::FailOnce, 1, 20, 40);
}

#[test]
fn writes_that_fail_for_good_suspend_the_pool_and_lose_nothing_committed() {
    every(Operation::Write, Effect::FailAlways, 3, 20, 14);
}

#[test]
fn a_flush_that_fails_suspends_the_pool_and_loses_nothing_committed() {
    every(Operation::Flush, Effect::FailOnce, 1, 10, 20);
    every(Operation::Flush, Effect::FailAlways, 3, 10, 7);
}

#[test]
fn a_read_that_fails_is_an_error_of_its_own_and_harms_nothing() {
    every(Operation::Read, Effect::FailOnce, 1, 5, 0);
    every(Operation::Read, Effect::FailAlways, 1, 5, 6);
}

#[test]
fn a_discard_that_fails_harms_nothing() {
    every(Operation::Discard, Effect::FailOnce, 1, 0, 0);
}

#[test]
fn the_power_may_go_at_any_write() {
    every(Operation::Write, Effect::PowerOff, 2, 20, 20);
}

#[test]
fn a_pool_is_created_whole_or_refused_wherever_a_device_fails() {
    for operation in [Operation::Read, Operation::Write, Operation::Flush] {
        for at in 0..2 {
            for skip in 0.. {
                let devices = new_devices();
                devices[at].arm(Fault { operation, skip, effect: Effect::FailOnce });
                let env = Env::seeded(3);
                let made = Pool::create(&env, spec(handles(&devices), None));
                let struck = devices[at].take_faults().is_empty();
                if let Err(error) = &made {
                    assert!(is_device_fault(error), "{operation} {skip}: {error}");
                }
                let stands = made.is_ok_and(|pool| pool.export().is_ok());
                if stands {
                    checked(&devices, &format!("{operation} {skip}"));
                }
                // Devices that a failed attempt leaves may be given to the next one.
                let spec = steadfast_pool::CreateSpec { force: true, ..spec(handles(&devices), None) };
                let pool = Pool::create(&env, spec).expect("the device works again");
                pool.export().expect("exported");
                checked(&devices, &format!("{operation} {skip}, again"));
                if !struck {
                    assert!(stands);
                    break;
                }
            }
        }
    }
}

/// Settings far too small make everything slow and nothing wrong.
#[test]
fn memory_settings_of_next_to_nothing_work() {
    for memory in [TINY, Memory { node_cache_bytes: 0, block_cache_bytes: 0, dirty_bytes_max: 1 }] {
        let devices = devices_of(&prepared());
        let env = Env::seeded(13);
        let (mut pools, _) = scan(handles(&devices));
        let spec = ImportSpec { memory, ..import_spec(None) };
        let pool = Pool::import(&env, pools.remove(0), &spec).expect("imported");
        let (fs, handle) = mount(&pool, "tank");
        for step in script().iter().flatten() {
            step(&fs).expect("done");
        }
        // Several writers at once, each with more than all of the budget.
        std::thread::scope(|scope| {
            for writer in 0..4u64 {
                let fs = &fs;
                scope.spawn(move || {
                    for round in 0..5 {
                        let name = format!("{writer} {round}");
                        common::write_file(fs, ROOT, name.as_bytes(), &noise(writer * 10 + round, 150_000));
                        if round > 0 {
                            let old = format!("{writer} {}", round - 1);
                            fs.unlink(ROOT, old.as_bytes()).expect("removed");
                        }
                    }
                });
            }
        });
        for writer in 0..4u64 {
            let found = common::read_file(&fs, ROOT, format!("{writer} 4").as_bytes());
            assert!(found == noise(writer * 10 + 4, 150_000), "{memory:?}");
        }
        let before = all(&fs);
        drop((fs, handle));
        pool.export().expect("exported");
        drop(pool);
        checked(&devices, &format!("{memory:?}"));
        let pool = import(&env, handles(&devices), None).expect("imported");
        assert!(all(&mount(&pool, "tank").0) == before, "{memory:?}");
    }
}

/// A bug in the sync task is no hang: who waits gets an error, and what was committed is there.
#[test]
fn a_panic_of_the_sync_task_suspends_the_pool() {
    let devices = devices_of(&prepared());
    let env = Env::seeded(2);
    let pool = import(&env, handles(&devices), None).expect("imported");
    let (fs, handle) = mount(&pool, "tank");
    let before = all(&fs);
    common::write_file(&fs, ROOT, b"lost", &noise(1, 10_000));
    devices[0].arm(Fault { operation: Operation::Write, skip: 1, effect: Effect::Panic });
    let error = pool.sync().expect_err("nobody commits");
    assert!(matches!(error, Error::Suspended { .. }), "{error}");
    assert!(error.to_string().contains("internal error in a background task (sync)"), "{error}");
    drop((fs, handle));
    drop(pool);
    devices.iter().for_each(|device| device.power_on(|_| Fate::Applied));
    let pool = import(&env, handles(&devices), None).expect("imported");
    assert!(all(&mount(&pool, "tank").0) == before);
}

/// A clock that somebody sets.
struct SetClock {
    wall_ns: std::sync::Mutex<i128>,
    passed_ns: std::sync::atomic::AtomicU64,
}

impl Clock for SetClock {
    fn wall_ns(&self) -> i128 {
        *self.wall_ns.lock().expect("nobody panics")
    }

    fn monotonic_ns(&self) -> u64 {
        self.passed_ns.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }

    fn sleep(&self, duration: std::time::Duration) {
        let passed = u64::try_from(duration.as_nanos()).expect("short");
        self.passed_ns.fetch_add(passed, std::sync::atomic::Ordering::Relaxed);
    }
}

/// The wall clock stamps files and orders nothing: whatever it says, the last commit is the one
/// that is found.
#[test]
fn a_clock_that_jumps_changes_stamps_only() {
    let clock = Arc::new(SetClock {
        wall_ns: std::sync::Mutex::new(0),
        passed_ns: std::sync::atomic::AtomicU64::new(1),
    });
    let env = Env { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..Env::seeded(4) };
    let devices = devices_of(&prepared());
    let mut stamps = BTreeMap::new();
    // Now, long ago, before 1970, beyond 2038, 2106 and what 64 bits of nanoseconds hold, and back.
    let seconds =
        [1_800_000_000, 86_400, -2_000_000_000, 2_200_000_000, 4_300_000_000, 20_000_000_000, 0, -1];
    for (round, second) in seconds.into_iter().enumerate() {
        *clock.wall_ns.lock().expect("nobody panics") = i128::from(second) * 1_000_000_000 + 7;
        let pool = import(&env, handles(&devices), None).expect("imported");
        {
            let (fs, _handle) = mount(&pool, "tank");
            for (name, stamp) in &stamps {
                let entry = fs.lookup(ROOT, format!("round {name}").as_bytes()).expect("committed");
                fs.forget(entry.ino, 1);
                assert_eq!((entry.attr.mtime.seconds, entry.attr.mtime.nanos), *stamp, "round {name}");
            }
            common::write_file(&fs, ROOT, format!("round {round}").as_bytes(), &noise(round as u64, 3_000));
            stamps.insert(round, (second, 7));
        }
        // Both ways a daemon may end.
        if round % 2 == 0 {
            pool.export().expect("exported");
        } else {
            pool.sync().expect("committed");
        }
    }
    checked(&devices, "a clock that jumps");
}
