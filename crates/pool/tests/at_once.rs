//! Everything at once: threads write, copy and delete files, take, destroy, hold and rename
//! snapshots, clone, promote, send and receive, while commits go on beside them. The order is
//! random. In any order, files read as they were written, the offline check finds nothing, and all
//! space comes back when everything is destroyed. With keys and raw streams, and without.
//!
//! The simulator plays verbs one after the other and crashes between any two writes; this plays
//! them side by side. `STEADFAST_AT_ONCE=SECONDS` makes it last.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{Dice, ME, MIB, ROOT, handles, key, mount, noise, spec};
use crate::hosts::{Host, Quiet};
use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_pool::{Error, Pool, ReceiveSpec, SendSpec};
use steadfast_posix::{FileSystem, SetAttr};

const SECRET: &[u8] = &[0x5e; 32];
const RECORD: u64 = 16 << 10;
/// Files of a writer, and records of a file, at most.
const FILES: u64 = 12;
const RECORDS: u64 = 24;
const SNAPSHOTS: u64 = 5;
const CLONES: u64 = 3;

/// How many of each verb were carried out, and how many refused: what a run was worth
/// (`--nocapture`).
static TALLY: Mutex<BTreeMap<&str, (u64, u64)>> = Mutex::new(BTreeMap::new());

/// Errors that a verb may return if it came too late or too early, or met an object that is in use.
fn refused(result: Result<(), Error>, what: &'static str) {
    use Error as E;
    {
        let mut tally = TALLY.lock().expect("whole");
        let (done, not) = tally.entry(what).or_default();
        *(if result.is_ok() { done } else { not }) += 1;
    }
    match result {
        Ok(())
        | Err(
            E::NoSuchDataset { .. }
            | E::DatasetExists { .. }
            | E::NoSuchSnapshot { .. }
            | E::SnapshotExists { .. }
            | E::SnapshotHeld { .. }
            | E::HoldExists { .. }
            | E::NoSuchHold { .. }
            | E::YoungerSnapshots { .. }
            | E::HasSnapshots { .. }
            | E::HasClones { .. }
            | E::HasChildren { .. }
            | E::NotClone { .. }
            | E::PromoteConflict { .. }
            | E::SnapshotPinned { .. }
            | E::NotEarlier { .. }
            | E::DestinationExists { .. }
            | E::NoBase { .. }
            | E::BaseNotYoungest { .. }
            | E::TargetIsClone { .. }
            | E::Modified { .. }
            | E::PartialExists { .. }
            | E::NoPartial { .. }
            | E::ReceiveActive { .. }
            | E::Busy { .. },
        ) => {}
        Err(error) => panic!("{what}: {error}\n{error:?}"),
    }
}

fn bytes(seeds: &[u64]) -> Vec<u8> {
    seeds.iter().flat_map(|seed| noise(*seed, RECORD as usize)).collect()
}

/// Writes, copies, cuts and deletes files of a file system, and reads them again.
fn write(fs: &FileSystem, seed: u64, stop: &AtomicBool) {
    let mut dice = Dice(seed);
    // Inode and what each record was made of.
    let mut files: BTreeMap<u64, (u64, Vec<u64>)> = BTreeMap::new();
    let compare = |ino: u64, seeds: &[u64], when: &str| {
        let mut found = vec![0; seeds.len() * RECORD as usize];
        let mut at = 0;
        while at < found.len() {
            at += fs.read(ino, at as u64, &mut found[at..]).expect("read");
        }
        assert!(found == bytes(seeds), "{when}: inode {ino}");
    };
    while !stop.load(Ordering::Relaxed) {
        let number = dice.below(FILES);
        let name = format!("f{number}").into_bytes();
        match (dice.below(8), files.remove(&number)) {
            (_, None) => {
                let ino = fs.mknod(ME, ROOT, &name, 0o100_600, 0).expect("made").ino;
                // Few seeds, so that some of it is there already.
                let seeds: Vec<u64> = (0..1 + dice.below(RECORDS)).map(|_| dice.below(200)).collect();
                fs.write(ino, 0, &bytes(&seeds), false).expect("written");
                files.insert(number, (ino, seeds));
            }
            (0, Some((ino, seeds))) => {
                compare(ino, &seeds, "before it goes");
                fs.forget(ino, 1);
                fs.unlink(ROOT, &name).expect("deleted");
            }
            (1, Some((ino, mut seeds))) => {
                seeds.truncate(dice.below(seeds.len() as u64 + 1) as usize);
                let cut = SetAttr { size: Some(seeds.len() as u64 * RECORD), ..SetAttr::default() };
                fs.setattr(ino, &cut).expect("cut");
                files.insert(number, (ino, seeds));
            }
            (2, Some((ino, mut seeds))) => {
                if let Some((from, source)) = files.values().next().cloned() {
                    let length = source.len() as u64 * RECORD;
                    let copied = fs.copy_file_range(from, 0, ino, 0, length).expect("copied");
                    let whole = (copied / RECORD) as usize;
                    assert_eq!(copied % RECORD, 0);
                    seeds.resize(seeds.len().max(whole), 0);
                    seeds[..whole].copy_from_slice(&source[..whole]);
                }
                files.insert(number, (ino, seeds));
            }
            (3, Some((ino, seeds))) => {
                compare(ino, &seeds, "amid");
                files.insert(number, (ino, seeds));
            }
            (_, Some((ino, mut seeds))) => {
                if let Some(last) = seeds.len().checked_sub(1) {
                    let place = dice.below(last as u64 + 1);
                    seeds[place as usize] = 1000 + dice.below(1 << 20);
                    let record = bytes(&seeds[place as usize..=place as usize]);
                    fs.write(ino, place * RECORD, &record, false).expect("written");
                }
                files.insert(number, (ino, seeds));
            }
        }
    }
    for (ino, seeds) in files.values() {
        compare(*ino, seeds, "at the end");
        fs.forget(*ino, 1);
    }
}

/// A name among a few: of a dataset that is written, or of a clone.
fn any_dataset(dice: &mut Dice) -> String {
    match dice.below(4) {
        0 => "tank/a".to_owned(),
        1 => "tank/b".to_owned(),
        _ => format!("tank/c{}", dice.below(CLONES)),
    }
}

fn any_snapshot(dice: &mut Dice) -> String {
    format!("{}@s{}", any_dataset(dice), dice.below(SNAPSHOTS))
}

/// Snapshots, clones and what is made of them.
fn verbs(pool: &Pool, seed: u64, stop: &AtomicBool) {
    let mut dice = Dice(seed);
    while !stop.load(Ordering::Relaxed) {
        let (name, one) = (any_dataset(&mut dice), any_snapshot(&mut dice));
        let names = std::slice::from_ref(&one);
        match dice.below(19) {
            0..=3 => refused(pool.datasets().take_snapshots(names, &Default::default()), "snapshot"),
            4..=6 => refused(pool.datasets().destroy_snapshots(names, false), "destroy"),
            7 => refused(pool.datasets().destroy_snapshots(names, true), "destroy deferred"),
            8 => {
                let clone = format!("tank/c{}", dice.below(CLONES));
                refused(
                    pool.datasets().clone_snapshot(&one, &clone, Default::default()).map(|_| ()),
                    "clone",
                );
            }
            9 => refused(pool.datasets().promote(&name), "promote"),
            10 if name.starts_with("tank/c") => {
                refused(pool.datasets().destroy_with_snapshots(&name), "destroy");
            }
            11 => refused(pool.datasets().hold(names, "tag"), "hold"),
            12 => refused(pool.datasets().release(names, "tag"), "release"),
            13 => {
                let to = format!("s{}", dice.below(SNAPSHOTS));
                refused(pool.datasets().rename_snapshots(names, &to), "rename");
            }
            15 if name.starts_with("tank/c") => {
                let to = format!("tank/c{}", dice.below(CLONES));
                refused(pool.datasets().rename_dataset(&name, &to), "rename a clone");
            }
            16 => refused(
                pool.datasets().create_dataset("tank/new", Default::default(), None).map(|_| ()),
                "create",
            ),
            17 => refused(pool.datasets().destroy_dataset("tank/new"), "destroy an empty one"),
            14 if name.starts_with("tank/c") => refused(pool.datasets().rollback(&one), "rollback"),
            18 => {
                // A later repeat in its stream may refer to it.
                let came = format!("tank/r@s{}", dice.below(SNAPSHOTS));
                refused(pool.datasets().destroy_snapshots(&[came], false), "destroy what came");
            }
            _ => {
                let dedup = ["on", "off", "verify"][dice.below(3) as usize];
                refused(pool.datasets().set_property(&name, "dedup", Some(dedup)), "set");
            }
        }
    }
}

/// Sends what is there and receives it beside.
fn streams(pool: &Pool, sealed: bool, seed: u64, stop: &AtomicBool) {
    let mut dice = Dice(seed);
    let mut last: Option<String> = None;
    while !stop.load(Ordering::Relaxed) {
        let base = last.take().filter(|_| dice.below(4) > 0);
        // An increment is of what the last stream was of.
        let of = base.as_deref().and_then(|base| base.split('@').next()).map(str::to_owned);
        let of = of.unwrap_or_else(|| any_dataset(&mut dice));
        let all = pool.datasets().snapshot_names(&of).unwrap_or_default();
        let full = |name: &String| format!("{of}@{name}");
        let Some(snapshot) = all.last().map(full) else {
            std::thread::yield_now();
            continue;
        };
        let part = |snapshot, base| SendSpec { snapshot, base, raw: sealed, ..SendSpec::default() };
        let (plan, what) = match base {
            Some(base) => (vec![part(snapshot.clone(), Some(base))], "increment"),
            // Later ones repeat what earlier ones brought.
            None if dice.below(2) == 0 => {
                let later = all.windows(2).map(|pair| part(full(&pair[1]), Some(full(&pair[0]))));
                ([part(full(&all[0]), None)].into_iter().chain(later).collect(), "stream of all")
            }
            None => (vec![part(snapshot.clone(), None)], "full stream"),
        };
        let mut stream = Vec::new();
        let sent = pool.streams().send(&plan, &mut stream, &mut |_, _| ());
        let arrived = sent.and_then(|_| {
            let target = "tank/r".to_owned();
            let spec = ReceiveSpec { target, force: dice.below(2) == 0, ..ReceiveSpec::default() };
            // Some break off.
            if dice.below(4) == 0 {
                let cut = dice.below(stream.len() as u64) as usize;
                let broken = pool.streams().receive(&spec, &mut &stream[..cut], &mut Quiet);
                assert!(broken.is_err(), "a part of a stream is no stream");
                return Ok(());
            }
            pool.streams().receive(&spec, &mut stream.as_slice(), &mut Quiet).map(|_| ())
        });
        if arrived.is_ok() {
            last = Some(snapshot);
        }
        refused(arrived, what);
        if dice.below(4) == 0 {
            refused(pool.datasets().destroy_with_snapshots("tank/r"), "destroy what was received");
        }
    }
}

fn run(seed: u64, sealed: bool, time: Duration) {
    let env = Env::real();
    let devices = vec![Arc::new(MemoryDevice::new("a", 512 * MIB))];
    let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
    let host = Host { env, devices, pool };
    let pool = &host.pool;
    let before = host.live();
    for (name, dedup) in [("tank/a", "on"), ("tank/b", "off")] {
        let props =
            [("recordsize", RECORD.to_string()), ("compression", "off".into()), ("dedup", dedup.into())];
        let props = props.into_iter().map(|(name, value): (&str, String)| (name.to_owned(), value)).collect();
        pool.datasets().create_dataset(name, props, sealed.then(|| key(&host.env, SECRET))).expect("made");
    }
    let secret = sealed.then_some(SECRET);
    let (a, b) = (mount(pool, "tank/a"), mount(pool, "tank/b"));
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A panic of one thread stops the others.
        struct Stops<'a>(&'a AtomicBool);
        impl Drop for Stops<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let work: [Box<dyn FnOnce() + Send>; 6] = [
            Box::new(|| write(&a.0, seed, stop)),
            Box::new(|| write(&b.0, seed + 1, stop)),
            Box::new(|| verbs(pool, seed + 2, stop)),
            Box::new(|| verbs(pool, seed + 3, stop)),
            Box::new(|| streams(pool, sealed, seed + 4, stop)),
            Box::new(|| {
                while !stop.load(Ordering::Relaxed) {
                    pool.sync().expect("committed");
                    std::thread::sleep(Duration::from_micros(300));
                }
            }),
        ];
        for work in work {
            scope.spawn(move || {
                let _stops = Stops(stop);
                work();
            });
        }
        let begun = Instant::now();
        while begun.elapsed() < time && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(pool.state().suspended, None);
    let names = pool.datasets().names();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    host.check_with(secret);
    drop((a, b));
    // Clones before what they are clones of: a few rounds.
    for round in 0.. {
        let all: Vec<String> = pool.datasets().names().into_iter().filter(|name| name != "tank").collect();
        if all.is_empty() {
            break;
        }
        assert!(round < 20, "{all:?} cannot be destroyed");
        for name in all {
            for snapshot in pool.datasets().snapshot_names(&name).expect("listed") {
                refused(pool.datasets().release(&[format!("{name}@{snapshot}")], "tag"), "release");
            }
            refused(pool.datasets().destroy_with_snapshots(&name), "destroy");
        }
    }
    host.check_with(secret);
    assert_eq!(pool.sharing().sums, Default::default());
    assert!(host.live() < before + MIB, "{before} bytes lived, {} are left", host.live());
}

#[test]
fn verbs_side_by_side_with_writers_leave_nothing_wrong_and_nothing_behind() {
    let seconds = std::env::var("STEADFAST_AT_ONCE").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    for round in 0.. {
        run(
            100 * round + 1,
            round % 2 == 1,
            Duration::from_millis(if seconds.is_some() { 2000 } else { 700 }),
        );
        if round >= 3 && Instant::now() >= end {
            break;
        }
    }
    println!("{:?}", TALLY.lock().expect("whole"));
}

/// Each of four threads makes `tank/one` in its own way, at the same moment. Returns how many did.
fn race(pool: &Pool) -> usize {
    let datasets = pool.datasets();
    let start = std::sync::Barrier::new(4);
    let makers: [&(dyn Fn() -> Result<(), Error> + Sync); 4] = [
        &|| datasets.create_dataset("tank/one", Default::default(), None).map(drop),
        &|| datasets.create_dataset("tank/one", Default::default(), None).map(drop),
        &|| datasets.clone_snapshot("tank/a@s", "tank/one", Default::default()).map(drop),
        &|| datasets.rename_dataset("tank/other", "tank/one"),
    ];
    let start = &start;
    std::thread::scope(|scope| {
        let threads = makers.map(|make| {
            scope.spawn(move || {
                start.wait();
                match make() {
                    Ok(()) => 1,
                    Err(Error::DatasetExists { name }) => {
                        assert_eq!(name, "tank/one");
                        0
                    }
                    Err(error) => panic!("{error:?}"),
                }
            })
        });
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

#[test]
fn of_those_who_make_the_same_name_at_once_one_does() {
    let env = Env::real();
    let devices = vec![Arc::new(MemoryDevice::new("a", 64 * MIB))];
    let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
    let host = Host { env, devices, pool };
    let datasets = host.pool.datasets();
    datasets.create_dataset("tank/a", Default::default(), None).expect("made");
    datasets.take_snapshots(&["tank/a@s".to_owned()], &Default::default()).expect("taken");
    for _ in 0..60 {
        datasets.create_dataset("tank/other", Default::default(), None).expect("made");
        assert_eq!(race(&host.pool), 1);
        let names = datasets.names();
        assert_eq!(names.iter().filter(|name| *name == "tank/one").count(), 1, "{names:?}");
        datasets.destroy_dataset("tank/one").expect("destroyed");
        refused(datasets.destroy_dataset("tank/other"), "destroy what was not renamed");
    }
    // And no more than the limit allows.
    datasets.set_property("tank", "filesystem_limit", Some("3")).expect("set");
    for _ in 0..20 {
        let start = &std::sync::Barrier::new(4);
        let made = std::thread::scope(|scope| {
            let threads = ["w", "x", "y", "z"].map(|name| {
                scope.spawn(move || {
                    start.wait();
                    match datasets.create_dataset(&format!("tank/{name}"), Default::default(), None) {
                        Ok(_) => 1,
                        Err(Error::FilesystemLimit { limit: 3, .. }) => 0,
                        Err(error) => panic!("{error:?}"),
                    }
                })
            });
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<usize>()
        });
        assert_eq!(made, 2, "beside tank/a");
        for name in ["w", "x", "y", "z"] {
            refused(datasets.destroy_dataset(&format!("tank/{name}")), "destroy");
        }
    }
    host.check();
}
