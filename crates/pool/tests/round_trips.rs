//! Round trips to a device of whole objects: how long one waits for a bucket, counted. A round trip
//! is a read that begins after one ended that belongs to the round trip before
//! ([`FarDevice::rounds`]); times are not looked at.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::common::{ME, ROOT, noise, read_file, write_file};
use crate::far::{FarDevice, cold, cold_on};
use steadfast_device::MemoryDevice;
use steadfast_format::ScanState;
use steadfast_pool::{Pool, ScrubCommand, SendSpec, Short};
use steadfast_posix::FileSystem;

/// Latency of a read: those that are asked for together meet.
const LATENCY: Duration = Duration::from_millis(50);
const MIB: usize = 1 << 20;

/// Round trips of `act`, as it is told to whoever looks.
fn rounds(far: &FarDevice, what: &str, act: impl FnOnce()) -> u64 {
    far.set_pause(LATENCY);
    let (reads, bytes, before) = (far.reads(), far.read_bytes(), far.rounds());
    far.most_in_flight();
    let begun = Instant::now();
    act();
    let seconds = begun.elapsed().as_secs_f64();
    far.set_pause(Duration::ZERO);
    let (reads, kib, rounds) = (far.reads() - reads, (far.read_bytes() - bytes) >> 10, far.rounds() - before);
    let most = far.most_in_flight();
    println!("{what}: {rounds} round trips, {reads} reads, {kib} KiB, {most} at once, {seconds:.2} s");
    rounds
}

/// Lists as `ls -lR` does: a directory with attributes, then each in it, sorted by names.
fn list(fs: &FileSystem, directory: u64) -> usize {
    let mut below = Vec::new();
    let mut count = 0;
    fs.readdir_plus(directory, 2, |entry, known| {
        assert_eq!(known.expect("no dot").expect("there").ino, entry.ino);
        count += 1;
        if entry.kind == 4 {
            below.push((entry.name.to_vec(), entry.ino));
        }
        true
    })
    .expect("listed");
    below.sort_unstable();
    count + below.into_iter().map(|(_, ino)| list(fs, ino)).sum::<usize>()
}

#[test]
fn a_walk_over_all_names_takes_few_round_trips() {
    let (far, _pool, fs, _handle) = cold(|fs| {
        for directory in 0..100 {
            let name = format!("directory {directory:03}").into_bytes();
            let directory = fs.mkdir(ME, ROOT, &name, 0o755).expect("made");
            for number in 0..100 {
                let name = format!("file{number:04}").into_bytes();
                fs.mknod(ME, directory.ino, &name, 0o100_644, 0).expect("made");
            }
        }
    });
    // One leaf after the other they were 198.
    let rounds = rounds(&far, "ls -lR", || assert_eq!(list(&fs, ROOT), 10_100));
    assert!(rounds <= 12, "{rounds} round trips");
}

/// Names of files in the order in which a directory lists them.
fn names(fs: &FileSystem) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    fs.readdir(ROOT, 2, |entry| {
        names.push(entry.name);
        true
    })
    .expect("listed");
    names
}

#[test]
fn a_tar_of_small_files_takes_few_round_trips() {
    let size = |number: usize| 4_096 + number * 7_919 % 12_288;
    let (far, _pool, fs, _handle) = cold(|fs| {
        for number in 0..1_000 {
            let name = format!("file{number:04}").into_bytes();
            write_file(fs, ROOT, &name, &noise(number as u64, size(number)));
        }
    });
    // One file after the other they were 1,034. A directory lists in an order of its own, so that
    // chunks are met in any order.
    let rounds = rounds(&far, "tar", || {
        let names = names(&fs);
        assert_eq!(names.len(), 1_000);
        for name in names {
            let number: usize = std::str::from_utf8(&name[4..]).expect("a number").parse().expect("a number");
            assert_eq!(read_file(&fs, ROOT, &name), noise(number as u64, size(number)));
        }
    });
    assert!(rounds <= 40, "{rounds} round trips");
}

/// As tar(1) does: the files of a directory as they are listed, then each directory below.
fn tar(fs: &FileSystem, directory: u64) -> usize {
    let mut entries = Vec::new();
    fs.readdir_plus(directory, 2, |entry, _| {
        entries.push(entry.to_entry());
        true
    })
    .expect("listed");
    let mut bytes = 0;
    for entry in entries {
        if entry.kind == 4 {
            bytes += tar(fs, entry.ino);
            continue;
        }
        let mut out = vec![0; 64 << 10];
        bytes += fs.read(entry.ino, 0, &mut out).expect("read");
        fs.forget(entry.ino, 1);
    }
    bytes
}

#[test]
fn a_tar_of_a_tree_with_few_files_in_each_directory_takes_few_round_trips() {
    const DIRECTORIES: usize = 100;
    const FILES: usize = 10;
    let size = |directory: usize, file: usize| 4_096 + (directory * FILES + file) * 7_919 % 12_288;
    let (far, _pool, fs, _handle) = cold(|fs| {
        for directory in 0..DIRECTORIES {
            let made =
                fs.mkdir(ME, ROOT, format!("directory {directory:03}").as_bytes(), 0o755).expect("made");
            for file in 0..FILES {
                let content = noise((directory * FILES + file) as u64, size(directory, file));
                write_file(fs, made.ino, format!("file{file}").as_bytes(), &content);
            }
        }
    });
    let all: usize = (0..DIRECTORIES).flat_map(|one| (0..FILES).map(move |file| size(one, file))).sum();
    let rounds = rounds(&far, "tar of a tree", || assert_eq!(tar(&fs, ROOT), all));
    assert!(rounds <= 60, "{rounds} round trips");
}

#[test]
fn a_long_file_is_asked_for_ahead_of_its_reader() {
    const LENGTH: usize = 96 * MIB;
    let content = noise(5, LENGTH);
    let (far, _pool, fs, _handle) = cold(|fs| {
        write_file(fs, ROOT, b"long", &content);
    });
    let file = fs.lookup(ROOT, b"long").expect("there");
    let before = far.reads();
    let rounds = rounds(&far, "a file of 96 MiB", || {
        let mut out = vec![0; MIB];
        for at in (0..LENGTH).step_by(MIB) {
            assert_eq!(fs.read(file.ino, at as u64, &mut out), Ok(MIB));
            assert!(out == content[at..at + MIB], "at {at}");
        }
    });
    // 32 MiB at a time are 3 round trips; the window grows in 4.
    assert!(rounds <= 7, "{rounds} round trips");
    assert!(far.reads() - before <= 60, "{} reads", far.reads() - before);
}

/// Files of 4 MiB and 128 MiB in all, on a pool that nobody has read.
fn long_files(fs: &FileSystem) {
    for number in 0..32 {
        write_file(fs, ROOT, format!("file{number:02}").as_bytes(), &noise(number, 4 * MIB));
    }
}

#[test]
fn a_scrub_asks_for_much_at_once_and_never_a_cache() {
    let (far, pool, fs, _handle) = cold(long_files);
    // All of it is in memory or was, and the scrub reads it once more.
    (0..32).for_each(|number| drop(read_file(&fs, ROOT, format!("file{number:02}").as_bytes())));
    let (before, reads) = (far.read_bytes(), far.reads());
    let rounds = rounds(&far, "scrub of 128 MiB", || {
        pool.devices().scrub(ScrubCommand::Start).expect("begun");
        while pool.state().scan.expect("a scan").state == ScanState::Active {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let read = far.read_bytes() - before;
    assert!(read >= 128 * MIB as u64, "{read}");
    let scan = pool.state().scan.expect("a scan");
    assert_eq!((scan.state, scan.lost, scan.repaired), (ScanState::Finished, 0, 0));
    // 16 requests of 4 MiB at a time are 2 round trips; nodes are 2.
    assert!(rounds <= 12, "{rounds} round trips");
    // In parts of a mebibyte they were 142.
    let reads = far.reads() - reads;
    assert!(reads <= 60, "{reads} reads");
}

/// Files of as many writers at once, 256 MiB in all, in transfers of 64 KiB, on a pool that nobody
/// has read.
fn files_side_by_side(fs: &FileSystem, count: usize) {
    let data = noise(7, 64 << 10);
    let made =
        |number: usize| fs.mknod(ME, ROOT, name_of(number).as_bytes(), 0o100_644, 0).expect("made").ino;
    let files: Vec<u64> = (0..count).map(made).collect();
    for at in (0..256 * MIB / count).step_by(data.len()) {
        files.iter().for_each(|file| _ = fs.write(*file, at as u64, &data, false).expect("written"));
    }
    files.iter().for_each(|file| fs.forget(*file, 1));
}

fn name_of(number: usize) -> String {
    format!("of reader {number:03}")
}

/// Files of many writers lie among each other: ahead of one reader lies what others have read.
#[test]
fn many_readers_bring_little_in_vain() {
    for (count, cache) in [(1, 2048), (10, 2048), (100, 2048), (10, 256), (100, 256)] {
        let (far, pool, fs, _handle) = cold(|fs| files_side_by_side(fs, count));
        let memory = steadfast_pool::Memory::default();
        pool.set_memory(steadfast_pool::Memory { block_cache_bytes: cache * MIB, ..memory });
        let before = far.read_bytes();
        rounds(&far, &format!("{count} readers of 256 MiB, {} MiB for chunks", cache / 4), || {
            std::thread::scope(|scope| {
                for number in 0..count {
                    let fs = &fs;
                    scope.spawn(move || {
                        let file = fs.lookup(ROOT, name_of(number).as_bytes()).expect("there");
                        let mut out = vec![0; 64 << 10];
                        for at in (0..256 * MIB / count - out.len() + 1).step_by(out.len()) {
                            assert_eq!(fs.read(file.ino, at as u64, &mut out), Ok(out.len()));
                        }
                    });
                }
            });
        });
        let read = far.read_bytes() - before;
        // With memory for all chunks a hundred readers had 323 MiB.
        assert!(cache < 2048 || read < 300 * MIB as u64, "{count}: {read} bytes");
    }
}

#[test]
fn a_stream_is_sent_from_many_requests_at_once() {
    // A thread that gets no processor for 50 ms asks one round trip late, so the least of three
    // sends counts.
    let send = || {
        let (far, pool, _fs, _handle) = cold(long_files);
        pool.datasets().take_snapshots(&["tank@all".to_owned()], &BTreeMap::new()).expect("taken");
        let mut out = Vec::new();
        let rounds = rounds(&far, "send of 128 MiB", || {
            let spec = SendSpec { snapshot: "tank@all".into(), packed: true, ..SendSpec::default() };
            pool.streams().send(&[spec], &mut out, &mut |_, _| ()).expect("sent");
        });
        assert!(out.len() >= 128 * MIB);
        rounds
    };
    let mut counts = vec![send()];
    while counts.len() < 3 && counts.last().is_some_and(|rounds| *rounds > 16) {
        counts.push(send());
    }
    assert!(counts.iter().any(|rounds| *rounds <= 16), "{counts:?} round trips");
}

/// Reads a range of a file as a program does that takes it in order.
fn read_some(fs: &FileSystem, range: Range<usize>) {
    let entry = fs.lookup(ROOT, b"file").expect("there");
    let mut out = vec![0; 128 << 10];
    for at in range.step_by(out.len()) {
        assert_eq!(fs.read(entry.ino, at as u64, &mut out).expect("read"), out.len());
    }
}

/// Where bytes are short, a reader gets what it asks for and pays for nothing else. Where requests
/// are short, all goes on: large transfers ahead of a reader are fewer requests than its own.
#[test]
fn a_budget_of_bytes_stops_reading_ahead_and_one_of_requests_does_not() {
    const READ: usize = 4 * MIB;
    let begin = |short: Short| {
        let world = cold(|fs| _ = write_file(fs, ROOT, b"file", &noise(1, 64 * MIB)));
        let (far, pool, fs, _) = &world;
        pool.hold_background(short);
        far.set_pause(LATENCY / 5);
        let before = (far.reads(), far.read_bytes());
        read_some(fs, 0..READ);
        (world, before)
    };
    let ((far, ..), before) = begin(Short { egress: true, requests: false });
    let (reads, bytes) = (far.reads() - before.0, far.read_bytes() - before.1);
    println!("bytes are short: {reads} reads, {} KiB for {} KiB", bytes >> 10, READ >> 10);
    assert!(bytes <= (READ + MIB) as u64, "{bytes} bytes are read for {READ}");

    // A window grows each time its reader waits, which is once for each window at least.
    let ((far, _pool, fs, _handle), before) = begin(Short { egress: false, requests: true });
    let mut ahead = 0;
    for read in (READ..32 * MIB).step_by(READ) {
        // Reads that are under way come in.
        for _ in 0..100 {
            ahead = (far.read_bytes() - before.1).saturating_sub(read as u64);
            if ahead > READ as u64 {
                println!(
                    "requests are short: {} reads, {ahead} bytes ahead of {read}",
                    far.reads() - before.0
                );
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        read_some(&fs, read..read + READ);
    }
    panic!("nothing is read ahead: {ahead} bytes");
}

/// Records all over a file were written anew: what an increment reads lies scattered, nodes and
/// content. On a device that has its own, each transfer would be waited for.
#[test]
fn an_increment_of_scattered_records_is_read_side_by_side() {
    const RECORD: usize = 128 << 10;
    let snapshot = |pool: &Pool, name: &str| {
        pool.sync().expect("committed");
        pool.datasets().take_snapshots(&[name.to_owned()], &BTreeMap::new()).expect("taken");
    };
    let (far, pool, _fs, _handle) = cold_on(MemoryDevice::new("far", 1 << 30), |pool, fs| {
        let file = write_file(fs, ROOT, b"large", &noise(1, 960 * RECORD));
        snapshot(pool, "tank@0");
        for record in (0..960).step_by(10) {
            let content = noise(2 + record as u64, RECORD);
            fs.write(file, (record * RECORD) as u64, &content, false).expect("written");
        }
        snapshot(pool, "tank@1");
    });
    let (mut sent, before) = (Vec::new(), far.read_bytes());
    let spec = SendSpec { snapshot: "tank@1".into(), base: Some("tank@0".into()), ..SendSpec::default() };
    let rounds = rounds(&far, "an increment of 96 records", || {
        pool.streams().send(&[spec], &mut sent, &mut |_, _| ()).expect("sent");
    });
    assert!(sent.len() > 96 * RECORD);
    // Read as a file they were 94, and 115 MB, as read-ahead took what lies between for wanted.
    assert!(rounds <= 50, "{rounds} round trips");
    let read = far.read_bytes() - before;
    assert!(read < 2 * sent.len() as u64, "{read} bytes");
}

/// Of a file with many extents one record was written anew: what an increment reads is the way to
/// that record, and not the file's other extents.
#[test]
fn an_increment_of_one_record_of_many_reads_the_way_to_it() {
    const RECORD: u64 = 128 << 10;
    let snapshot = |pool: &Pool, name: &str| {
        pool.sync().expect("committed");
        pool.datasets().take_snapshots(&[name.to_owned()], &BTreeMap::new()).expect("taken");
    };
    let (far, pool, _fs, _handle) = cold_on(MemoryDevice::new("far", 1 << 30), |pool, fs| {
        let file = write_file(fs, ROOT, b"many", &noise(1, 100));
        for record in 1..4000 {
            fs.write(file, record * RECORD, &noise(record, 100), false).expect("written");
        }
        snapshot(pool, "tank@0");
        fs.write(file, 2000 * RECORD, &noise(1, 100), false).expect("written");
        snapshot(pool, "tank@1");
    });
    let (mut sent, before) = (Vec::new(), (far.reads(), far.read_bytes()));
    let spec = SendSpec { snapshot: "tank@1".into(), base: Some("tank@0".into()), ..SendSpec::default() };
    pool.streams().send(&[spec], &mut sent, &mut |_, _| ()).expect("sent");
    let (reads, bytes) = (far.reads() - before.0, far.read_bytes() - before.1);
    println!("an increment of one record of 4000: {reads} reads, {} KiB", bytes >> 10);
    // All extents of the file are 400 KB and more.
    assert!(bytes < 200 << 10, "{reads} reads, {bytes} bytes");
}
