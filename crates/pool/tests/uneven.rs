//! Pools on devices of different sizes: they hold as much as the parity allows, with a device away,
//! replaced or removed, and are given that by a feature.

use std::sync::Arc;

use crate::common::{ME, MIB, ROOT, handle, handles, import, mount, noise, read_file, spec, write_file};
use steadfast_device::{Device, MemoryDevice};
use steadfast_env::Env;
use steadfast_format::{GroupClass, LabelConfig};
use steadfast_pool::{CreateSpec, Error, GroupHandles, Pool, Redundancy, ScanKind, ScanState, ScrubCommand};
use steadfast_posix::{Errno, FileSystem};

const RECORD: u64 = 128 << 10;
/// Refusals in a row, with a commit after each, before a pool counts as full.
const REFUSALS: u32 = 40;

fn devices(word: &str, sizes: &[u64]) -> Vec<Arc<MemoryDevice>> {
    let device = |(at, mib): (usize, &u64)| Arc::new(MemoryDevice::new(&format!("{word}{at}"), mib * MIB));
    sizes.iter().enumerate().map(device).collect()
}

fn group(redundancy: Redundancy, devices: &[Arc<MemoryDevice>]) -> GroupHandles {
    GroupHandles { redundancy, class: GroupClass::Normal, devices: handles(devices) }
}

fn create(env: &Env, groups: Vec<GroupHandles>) -> Pool {
    Pool::create(env, CreateSpec { groups, ..spec(Vec::new(), None) }).expect("a pool")
}

fn capacity(pool: &Pool) -> u64 {
    pool.state().accounting.capacity_bytes
}

fn live(pool: &Pool) -> u64 {
    pool.state().accounting.live_bytes
}

/// Appends records to a file until `percent` of the capacity live, or nothing more is let in. Gives
/// the records there are.
fn fill(pool: &Pool, fs: &FileSystem, file: u64, first: u64, percent: u64) -> u64 {
    let (mut records, mut refused) = (first, 0);
    while refused < REFUSALS {
        let left = (capacity(pool) * percent / 100).saturating_sub(live(pool)) / RECORD;
        if left == 0 {
            break;
        }
        for _ in 0..left.min(64) {
            match fs.write(file, records * RECORD, &noise(records, RECORD as usize), false) {
                Ok(_) => (records, refused) = (records + 1, 0),
                Err(Errno::ENOSPC) => {
                    refused += 1;
                    break;
                }
                Err(error) => panic!("record {records}: {error:?}"),
            }
        }
        pool.sync().expect("committed");
    }
    records
}

fn check(fs: &FileSystem, file: u64, records: u64) {
    let mut content = vec![0; RECORD as usize];
    for record in 0..records {
        assert_eq!(fs.read(file, record * RECORD, &mut content).expect("read"), content.len());
        assert!(content == noise(record, RECORD as usize), "record {record}");
    }
}

/// Lets all that goes on come to its end.
fn finish(pool: &Pool) {
    for _ in 0..10_000 {
        if pool.scan_remaining() == [0, 0] && pool.move_remaining().is_none() {
            return;
        }
        pool.sync().expect("the pool goes on");
    }
    panic!("{:?} {:?}", pool.state().scan, pool.state().moving);
}

/// A scrub that finds nothing.
fn scrub(pool: &Pool) {
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    finish(pool);
    let scan = pool.state().scan.expect("a scrub");
    assert_eq!((scan.state, scan.repaired, scan.lost, scan.missing), (ScanState::Finished, 0, 0, 0));
}

#[test]
fn a_pool_of_uneven_devices_is_filled_loses_one_and_gets_a_larger_one() {
    let env = Env::real();
    let small = devices("small", &[64]);
    let large = devices("large", &[192, 192, 192]);
    let first: Vec<_> = small.iter().chain(&large[..2]).cloned().collect();
    let pool = create(&env, vec![group(Redundancy::Raidz(1), &first)]);
    // All but the largest, less the reserve and what labels take; with a column on each device it
    // would be twice the smallest.
    let begun = capacity(&pool);
    assert!(begun > (64 + 192 - 26) * MIB && begun < (64 + 192) * MIB, "{} MiB", begun / MIB);
    let (fs, open) = mount(&pool, "tank");
    let file = fs.mknod(ME, ROOT, b"file", 0o100_600, 0).expect("made").ino;
    let records = fill(&pool, &fs, file, 0, 90);
    assert!(records * RECORD > begun / 10 * 8, "{records} records of {begun} bytes");
    assert!(
        capacity(&pool) + MIB >= begun,
        "it is not less for what lies there: {:?}",
        pool.state().accounting
    );
    drop((fs, open));
    pool.export().expect("exported");
    drop(pool);

    let pool = import(&env, handles(&first), None).expect("imported");
    assert!(capacity(&pool) + 8 * MIB >= begun, "{:?}", pool.state().accounting);
    let (fs, open) = mount(&pool, "tank");
    fs.lookup(ROOT, b"file").expect("found");
    check(&fs, file, records);
    scrub(&pool);
    // Whichever is away, all is there, and there is as much room; what is written meanwhile is
    // resilvered.
    for (at, away) in first.iter().enumerate() {
        let (path, before) = (away.character().identity, capacity(&pool));
        pool.offline(&path).expect("the others have it");
        let without = capacity(&pool);
        assert!(without + 8 * MIB >= before, "{path}: {without} of {before}");
        for record in (at as u64 * 7..records).step_by(29) {
            fs.write(file, record * RECORD, &noise(record, RECORD as usize), false).expect("an overwrite");
        }
        pool.sync().expect("committed");
        check(&fs, file, records);
        let open = || -> steadfast_pool::Result<Arc<dyn Device>> { Ok(Arc::clone(away) as Arc<dyn Device>) };
        pool.online(&path, &open).expect("it is there");
        finish(&pool);
        let scan = pool.state().scan.expect("a resilver");
        assert_eq!((scan.lost, scan.missing), (0, 0), "{path}: {scan:?}");
        scrub(&pool);
    }
    // In place of the small one comes one as large as the others: what is narrow is written anew as
    // the pool fills.
    pool.replace("small0", handle(&large[2]), false).expect("begun");
    finish(&pool);
    let mut all = records;
    for _ in 0..400 {
        if live(&pool) > begun + 50 * MIB {
            break;
        }
        all = fill(&pool, &fs, file, all, 97);
        pool.sync().expect("committed");
    }
    let after = pool.state().accounting;
    assert!(after.size_bytes > (2 * 192 - 10) * MIB, "{after:?}");
    assert!(after.live_bytes > begun + 50 * MIB, "{after:?}");
    check(&fs, file, all);
    drop((fs, open));
    scrub(&pool);
    pool.export().expect("exported");
    // And any one of them may be lost.
    let two: Vec<_> = large[1..].to_vec();
    let pool = import(&env, handles(&two), None).expect("imported");
    let (fs, _open) = mount(&pool, "tank");
    fs.lookup(ROOT, b"file").expect("found");
    check(&fs, file, all);
}

/// Nobody has to try again: what is there after a larger device has come is there for one long
/// copy.
#[test]
fn a_copy_goes_on_while_segments_become_wider() {
    let env = Env::real();
    let (mut first, large) = (devices("small", &[64]), devices("large", &[192, 192, 192]));
    first.extend_from_slice(&large[..2]);
    let pool = create(&env, vec![group(Redundancy::Raidz(1), &first)]);
    let begun = capacity(&pool);
    let (fs, _open) = mount(&pool, "tank");
    let file = fs.mknod(ME, ROOT, b"file", 0o100_600, 0).expect("made").ino;
    let records = fill(&pool, &fs, file, 0, 95);
    pool.replace("small0", handle(&large[2]), false).expect("begun");
    finish(&pool);
    let goal = (begun + 100 * MIB) / RECORD;
    assert!(records < goal);
    for record in records..goal {
        let wrote = fs.write(file, record * RECORD, &noise(record, RECORD as usize), false);
        wrote.unwrap_or_else(|error| {
            panic!("record {record} of {goal}: {error:?}, {:?}", pool.state().accounting)
        });
    }
    pool.sync().expect("committed");
    check(&fs, file, goal);
    scrub(&pool);
}

#[test]
fn an_uneven_group_is_removed_and_takes_what_others_held() {
    let env = Env::seeded(7);
    for (leaves, stays) in [("uneven0", "even0"), ("even0", "uneven0")] {
        let (uneven, even) = (devices("uneven", &[64, 128, 128]), devices("even", &[128, 128]));
        let groups = vec![group(Redundancy::Raidz(1), &uneven), group(Redundancy::Mirror, &even)];
        let pool = create(&env, groups);
        {
            let (fs, _open) = mount(&pool, "tank");
            for file in 0..6_u64 {
                write_file(&fs, ROOT, format!("f{file}").as_bytes(), &noise(file, 10 << 20));
            }
        }
        pool.sync().expect("committed");
        let taken = |pool: &Pool| {
            let usage = pool.state().accounting.devices;
            usage.iter().filter(|device| device.free_slots < device.slots).count()
        };
        assert_eq!(taken(&pool), 5, "both groups hold something");
        pool.devices().remove_groups(&[leaves.to_owned()], false).expect("begun");
        finish(&pool);
        for _ in 0..3 {
            pool.sync().expect("committed");
        }
        let paths: Vec<String> = pool.state().leaves.into_iter().map(|leaf| leaf.config.path).collect();
        assert!(!paths.contains(&leaves.to_owned()) && paths.contains(&stays.to_owned()), "{paths:?}");
        scrub(&pool);
        let (fs, _open) = mount(&pool, "tank");
        for file in 0..6_u64 {
            let name = format!("f{file}");
            assert!(read_file(&fs, ROOT, name.as_bytes()) == noise(file, 10 << 20), "{name}");
        }
    }
}

/// A group of more devices than columns is full, and one of them is replaced by a larger one, which
/// grows then: what that has to itself is no room until columns have moved there, and they move by
/// themselves.
#[test]
fn a_larger_device_in_a_widened_group_is_of_use_as_columns_move_there() {
    let env = Env::seeded(7);
    let (first, more) = (devices("first", &[96, 96, 96]), devices("more", &[64, 128]));
    let pool = create(&env, vec![group(Redundancy::Raidz(1), &first)]);
    pool.attach("first0", handle(&more[0]), false).expect("begun");
    finish(&pool);
    let (fs, _open) = mount(&pool, "tank");
    let file = fs.mknod(ME, ROOT, b"file", 0o100_600, 0).expect("made").ino;
    let full = fill(&pool, &fs, file, 0, 98);
    let before = capacity(&pool);
    let evened = |pool: &Pool| {
        finish(pool);
        let moving = pool.state().moving.expect("a job");
        assert_eq!((moving.kind, moving.state), (ScanKind::Expand, ScanState::Finished));
        assert!(moving.rebuilt > 0, "columns moved: {moving:?}");
    };
    let begun = |pool: &Pool| pool.state().moving.expect("a job").begun_ns;
    let attached = begun(&pool);
    pool.replace("more0", handle(&more[1]), false).expect("begun");
    let soon = capacity(&pool);
    assert!(
        soon < before + 24 * MIB || begun(&pool) > attached,
        "{soon} after {before}, before columns move"
    );
    evened(&pool);
    let replaced = capacity(&pool);
    assert!(replaced > before + 28 * MIB, "{replaced} after {before}");
    let records = fill(&pool, &fs, file, full, 98);
    assert!(records * RECORD > replaced / 10 * 9, "{records} records of {replaced} bytes");

    more[1].grow(192 * MIB);
    assert!(pool.devices().expand("more1").expect("it has grown") > 0);
    evened(&pool);
    let grown = capacity(&pool);
    assert!(grown > replaced + 4 * MIB, "{grown} after {replaced}");
    let records = fill(&pool, &fs, file, records, 98);
    assert!(records * RECORD > grown / 10 * 9, "{records} records of {grown} bytes");
    check(&fs, file, records);
    scrub(&pool);
}

/// A widened group that is nearly full loses a device: what it had free is no room until it is
/// back, and writers are told so.
#[test]
fn a_full_widened_group_without_a_device_refuses_what_has_no_place() {
    let env = Env::seeded(7);
    let (first, more) = (devices("first", &[96, 96, 96]), devices("more", &[96]));
    let pool = create(&env, vec![group(Redundancy::Raidz(1), &first)]);
    pool.attach("first0", handle(&more[0]), false).expect("begun");
    finish(&pool);
    let (fs, _open) = mount(&pool, "tank");
    let file = fs.mknod(ME, ROOT, b"file", 0o100_600, 0).expect("made").ino;
    let records = fill(&pool, &fs, file, 0, 95);
    let before = capacity(&pool);
    pool.offline("first1").expect("the others have it");
    let (mut written, mut refused) = (0, 0);
    for record in 0..records {
        match fs.write(file, record * RECORD, &noise(record, RECORD as usize), false) {
            Ok(_) => written += 1,
            Err(Errno::ENOSPC) => refused += 1,
            Err(error) => panic!("record {record}: {error:?}"),
        }
        if record % 64 == 0 {
            pool.sync().expect("committed");
        }
    }
    assert!(written > 0 && refused > 0, "{written} written, {refused} refused");
    assert!(capacity(&pool) < before, "what it had free is not to be had");
    check(&fs, file, records);
    let back = Arc::clone(&first[1]);
    let open =
        move || -> steadfast_pool::Result<Arc<dyn Device>> { Ok(Arc::clone(&back) as Arc<dyn Device>) };
    pool.online("first1", &open).expect("it is there");
    finish(&pool);
    for record in (0..records).step_by(9) {
        let written = (0..REFUSALS).any(|_| {
            let written = fs.write(file, record * RECORD, &noise(record, RECORD as usize), false);
            pool.sync().expect("committed");
            written.is_ok()
        });
        assert!(written, "record {record}: {:?}", pool.state().accounting);
    }
    check(&fs, file, records);
    scrub(&pool);
}

#[test]
fn a_device_too_small_for_its_place_is_told_how_large_it_has_to_be() {
    let env = Env::seeded(7);
    let first = devices("d", &[96, 96, 96]);
    let pool = create(&env, vec![group(Redundancy::Raidz(1), &first)]);
    let (fs, _open) = mount(&pool, "tank");
    let file = fs.mknod(ME, ROOT, b"file", 0o100_600, 0).expect("made").ino;
    let records = fill(&pool, &fs, file, 0, 85);
    let replace = |bytes: u64| {
        let new = Arc::new(MemoryDevice::new(&format!("new{bytes}"), bytes));
        pool.replace("d0", handle(&new), false)
    };
    let Err(Error::TooSmall { bytes, mut needed, .. }) = replace(64 * MIB) else { panic!("it is too small") };
    assert!(bytes == 64 * MIB && needed > 72 * MIB && needed < 96 * MIB, "{needed} of {bytes}");
    // A commit that was made meanwhile may have taken a slot.
    while let Err(error) = replace(needed) {
        let Error::TooSmall { bytes, needed: more, .. } = error else { panic!("{error}") };
        assert!(bytes == needed && more > needed && more < 96 * MIB, "{more} of {bytes}");
        needed = more;
    }
    finish(&pool);
    check(&fs, file, records);
    scrub(&pool);
}

#[test]
fn a_pool_without_the_feature_is_given_it() {
    let env = Env::seeded(7);
    let devices = devices("d", &[64, 192, 192]);
    let pool = create(&env, vec![group(Redundancy::Raidz(1), &devices)]);
    let most = capacity(&pool);
    pool.export().expect("exported");
    drop(pool);
    let hash = |bytes: &[u8]| steadfast_crypto::hash(bytes);
    for device in &devices {
        for copy in 0..4 {
            let area = device.read_label(copy).expect("read");
            let mut label = LabelConfig::decode(&area, hash).expect("a label");
            let known = label.features.len();
            label.features.retain(|feature| feature.name != "uneven_devices");
            assert_eq!(label.features.len(), known - 1);
            device.write_label(copy, &label.encode(hash).expect("it fits")).expect("written");
        }
        device.flush().expect("flushed");
    }
    let pool = import(&env, handles(&devices), None).expect("imported");
    let least = capacity(&pool);
    assert!(least < 2 * 64 * MIB && most > 3 * 64 * MIB, "{} and {} MiB", least / MIB, most / MIB);
    {
        let (fs, _open) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"before", &noise(1, 30 << 20));
    }
    pool.sync().expect("committed");
    assert!(capacity(&pool) < 2 * 64 * MIB);
    pool.enable_feature("uneven_devices").expect("enabled");
    assert!(capacity(&pool) + 2 * MIB >= most, "at once: {:?}", pool.state().accounting);
    {
        let (fs, _open) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"after", &noise(2, 100 << 20));
    }
    pool.sync().expect("committed");
    pool.export().expect("exported");
    drop(pool);
    let pool = import(&env, handles(&devices), None).expect("imported");
    let (fs, _open) = mount(&pool, "tank");
    for (name, seed, bytes) in [("before", 1, 30 << 20), ("after", 2, 100 << 20)] {
        assert!(read_file(&fs, ROOT, name.as_bytes()) == noise(seed, bytes), "{name}");
    }
    scrub(&pool);
}
