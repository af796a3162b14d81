//! Pools that are as full as they may be: overwriting goes on, deleting always works, and what was
//! deleted comes back.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{self, Dice, ME, MIB, ROOT, handles, import, mount, noise, spec, write_file};
use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_pool::{Error, Pool};
use steadfast_posix::{Errno, FileSystem, SetAttr};

const RECORD: u64 = 128 << 10;

fn written_bytes(pool: &Pool) -> u64 {
    pool.state().leaves.iter().map(|leaf| leaf.counts.written_bytes).sum()
}

/// Appends records to a file until `percent` of the capacity live. Gives the records.
fn fill(pool: &Pool, fs: &FileSystem, file: u64, percent: u64) -> u64 {
    let mut records = 0;
    loop {
        let accounting = pool.state().accounting;
        let left = (accounting.capacity_bytes * percent / 100).saturating_sub(accounting.live_bytes) / RECORD;
        if left == 0 {
            return records;
        }
        for _ in 0..left.min(64) {
            let content = noise(records, RECORD as usize);
            fs.write(file, records * RECORD, &content, false).expect("below the capacity there is room");
            records += 1;
        }
        pool.sync().expect("committed");
    }
}

#[test]
fn random_overwriting_at_95_percent_goes_on_and_everything_can_be_deleted() {
    let env = Env::real();
    let devices = [Arc::new(MemoryDevice::new("a", 256 * MIB))];
    let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
    let (fs, open) = mount(&pool, "tank");
    let file = fs.mknod(ME, ROOT, b"file", 0o100_600, 0).expect("made").ino;
    let records = fill(&pool, &fs, file, 95);
    let mut versions: Vec<u64> = (0..records).collect();
    let mut dice = Dice(3);
    let before = written_bytes(&pool);
    for version in records..records * 2 {
        let record = dice.below(records);
        let content = noise(version, RECORD as usize);
        fs.write(file, record * RECORD, &content, false).expect("an overwrite is admitted");
        versions[record as usize] = version;
    }
    pool.sync().expect("committed");
    // The model expects 6 to 7 at this share, metadata and what the fill left behind aside.
    let amplification = (written_bytes(&pool) - before) as f64 / (records * RECORD) as f64;
    assert!(amplification < 12.0, "{amplification} bytes written per byte accepted");
    assert!(pool.state().accounting.relocations > 0, "the cleaner had something to do");

    drop((fs, open));
    pool.export().expect("exported");
    drop(pool);
    let pool = import(&env, handles(&devices), None).expect("imported");
    let (fs, _open) = mount(&pool, "tank");
    assert_eq!(fs.lookup(ROOT, b"file").expect("found").ino, file);
    let mut content = vec![0; RECORD as usize];
    for (record, version) in (0..).zip(&versions) {
        assert_eq!(fs.read(file, record * RECORD, &mut content).expect("read"), content.len());
        assert!(content == noise(*version, RECORD as usize), "record {record}");
    }

    // To the last byte, then everything goes.
    let mut number = 0;
    let refused = loop {
        let name = format!("more {number}");
        match fs.mknod(ME, ROOT, name.as_bytes(), 0o100_600, 0) {
            Err(error) => break error,
            Ok(entry) => {
                let result = fs.write(entry.ino, 0, &noise(number, RECORD as usize), false);
                fs.forget(entry.ino, 1);
                match result {
                    Err(error) => break error,
                    Ok(_) => number += 1,
                }
            }
        }
    };
    assert_eq!(refused, Errno::ENOSPC);
    for at in 0..number {
        fs.unlink(ROOT, format!("more {at}").as_bytes()).expect("deleting on a full pool works");
    }
    fs.forget(file, 1);
    fs.unlink(ROOT, b"file").expect("deleting on a full pool works");
    for _ in 0..4 {
        pool.sync().expect("committed");
    }
    let accounting = pool.state().accounting;
    assert!(accounting.live_bytes < 4 * MIB, "{accounting:?}");
    assert!(accounting.free_slots + 16 > accounting.slots, "{accounting:?}");
    // Live bytes that are left may lie in metadata.
    assert!(accounting.relocations < 50, "the table shrinks with what it speaks of: {accounting:?}");
}

#[test]
fn a_writer_waits_for_a_deletion_that_takes_many_commits() {
    let env = Env::real();
    let devices = [Arc::new(MemoryDevice::new("a", 128 * MIB))];
    let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
    let (fs, open) = mount(&pool, "tank");
    let file = fs.mknod(ME, ROOT, b"file", 0o100_600, 0).expect("made").ino;
    let records = fill(&pool, &fs, file, 95);
    // As if the file were ten thousand times as long.
    open.dataset().set_frees_per_sync(2);
    fs.forget(file, 1);
    fs.unlink(ROOT, b"file").expect("deleted");
    write_file(&fs, ROOT, b"next", &noise(9, (records * RECORD) as usize * 9 / 10));
}

#[test]
fn a_sparse_image_shrinks_after_a_deletion_unless_autotrim_is_off() {
    use std::os::unix::fs::MetadataExt;
    use steadfast_device::{FileDevice, OpenOptions};

    let env = Env::real();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.img");
    std::fs::File::create(&path).and_then(|file| file.set_len(128 * MIB)).expect("an image");
    let device = Arc::new(FileDevice::open(&path, &OpenOptions::WRITE).expect("a device"));
    let pool = Pool::create(&env, spec(vec![common::handle(&device)], None)).expect("a pool");
    let (fs, _open) = mount(&pool, "tank");
    let occupied = || std::fs::metadata(&path).expect("the image").blocks() * 512;
    let written_and_deleted = |name: &[u8]| {
        write_file(&fs, ROOT, name, &noise(1, 40 << 20));
        pool.sync().expect("committed");
        let full = occupied();
        assert!(full > 40 * MIB, "{full} bytes");
        fs.unlink(ROOT, name).expect("deleted");
        // One commit frees the extents, the next one may have emptied the last slots, and a later
        // one discards them.
        for turn in 0..6 {
            fs.setxattr(ROOT, b"user.turn", &[turn], 0).expect("a change");
            pool.sync().expect("committed");
        }
        (full, occupied())
    };
    pool.set_pool_prop("autotrim", Some("off")).expect("set");
    let (full, after) = written_and_deleted(b"stays");
    assert!(after >= full, "{full} bytes before, {after} after");
    pool.set_pool_prop("autotrim", Some("on")).expect("set");
    let (full, after) = written_and_deleted(b"goes");
    // At work, a few slots are left for the next writes.
    assert!(after + 10 * MIB < full, "{full} bytes before, {after} after");
}

#[test]
fn a_trim_beside_writers_discards_what_is_free_and_nothing_else() {
    use steadfast_device::Operation;
    use steadfast_device::memory::{Effect, Fault};
    use steadfast_pool::{Sweep, TrimCommand, TrimState};

    let env = Env::real();
    let devices = ["a", "b"].map(|name| Arc::new(MemoryDevice::new(name, 64 * MIB)));
    let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
    let (fs, _open) = mount(&pool, "tank");
    pool.set_pool_prop("autotrim", Some("off")).expect("set");
    write_file(&fs, ROOT, b"kept", &noise(1, 20 << 20));
    // A slot whose discard fails counts as not discarded, and nothing stops.
    devices[0].arm(Fault { operation: Operation::Discard, skip: 2, effect: Effect::FailOnce });
    for round in 0..20_u64 {
        let state = |pool: &Pool| pool.state().leaves.iter().map(|leaf| leaf.trim.state).collect::<Vec<_>>();
        if !state(&pool).contains(&TrimState::Active) {
            pool.devices().sweep(Sweep::Trim, &[], TrimCommand::Start { rate: None }).expect("begun");
        }
        let name = format!("file {}", round % 3);
        let _ = fs.unlink(ROOT, name.as_bytes());
        write_file(&fs, ROOT, name.as_bytes(), &noise(round, 9 << 20));
        if round % 2 == 0 {
            pool.sync().expect("committed");
        }
    }
    while pool.devices().sweep_remaining(Sweep::Trim) > 0 {
        env.clock.sleep(std::time::Duration::from_millis(1));
    }
    let leaves = pool.state().leaves;
    assert!(leaves.iter().all(|leaf| leaf.trim.state == TrimState::Complete && leaf.trim.trimmed_bytes > 0));
    assert!(leaves[0].counts.write_errors == 1, "{:?}", leaves[0].counts);
    drop(fs);
    drop(_open);
    pool.export().expect("exported");
    let pool = common::import(&env, handles(&devices), None).expect("imported");
    let (fs, _open) = mount(&pool, "tank");
    assert!(common::read_file(&fs, ROOT, b"kept") == noise(1, 20 << 20));
    for round in 17..20_u64 {
        let name = format!("file {}", round % 3);
        assert!(common::read_file(&fs, ROOT, name.as_bytes()) == noise(round, 9 << 20), "{name}");
    }
}

/// Segments that the cleaner cannot read stay where they are: the pool goes on, status names the
/// files, and no good data is lost.
#[test]
fn the_cleaner_goes_on_wherever_a_read_fails() {
    use steadfast_device::Operation;
    use steadfast_device::memory::{Effect, Fault};

    let env = Env::real();
    for (skip, effect) in
        [(0, Effect::FailOnce), (1, Effect::FailOnce), (3, Effect::FailOnce), (7, Effect::FailAlways)]
    {
        let context = format!("read {skip}, {effect:?}");
        let devices = [Arc::new(MemoryDevice::new("a", 64 * MIB))];
        let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
        let (fs, _open) = mount(&pool, "tank");
        let file = fs.mknod(ME, ROOT, b"file", 0o100_600, 0).expect("made").ino;
        let records = fill(&pool, &fs, file, 80);
        let mut seeds: Vec<u64> = (0..records).collect();
        for record in 0..records {
            fs.write(file, record * RECORD, &noise(record, RECORD as usize), false).expect("written");
        }
        pool.sync().expect("committed");
        // Whole records are overwritten, so only the cleaner reads content.
        devices[0].arm(Fault { operation: Operation::Read, skip, effect });
        let mut dice = Dice(skip + 1);
        let (mut struck, mut refused) = (0, 0);
        for turn in 0..3 * records {
            let record = dice.below(records);
            match fs.write(file, record * RECORD, &noise(1000 + turn, RECORD as usize), false) {
                Ok(_) => seeds[record as usize] = 1000 + turn,
                // With no segment that can be read there is nothing to gain.
                Err(Errno::ENOSPC) if effect == Effect::FailAlways => refused += 1,
                Err(errno) => panic!("{context}, turn {turn}: {errno:?}"),
            }
            assert_eq!(pool.state().suspended, None, "{context}, turn {turn}");
            struck = devices[0].counts().failed;
            if refused > 3 {
                break;
            }
        }
        assert!(struck > 0, "{context}: the cleaner has read");
        pool.sync().expect("committed");
        // Status names the file without anybody having read it, if it is still bad.
        let named = || pool.state().damaged.iter().any(|damaged| damaged.path.as_deref() == Some(b"file"));
        if effect == Effect::FailAlways {
            (0..60_000).any(|_| {
                named() || {
                    env.clock.sleep(std::time::Duration::from_millis(5));
                    false
                }
            });
            assert!(named(), "{context}: {:?}", pool.state().damaged);
        }
        devices[0].disarm();
        pool.clear_errors(&[]);
        // It is tried again, and everything goes on.
        for turn in 0..records {
            let record = dice.below(records);
            fs.write(file, record * RECORD, &noise(9000 + turn, RECORD as usize), false).expect("written");
            seeds[record as usize] = 9000 + turn;
        }
        pool.sync().expect("committed");
        let mut content = vec![0; RECORD as usize];
        for (record, seed) in seeds.iter().enumerate() {
            assert_eq!(fs.read(file, record as u64 * RECORD, &mut content), Ok(RECORD as usize));
            assert!(content == noise(*seed, RECORD as usize), "{context}, record {record}");
        }
        assert!(!named(), "{context}: {:?}", pool.state().damaged);
    }
}

/// Rows of references are metadata that grows with what is written and changes with what is freed:
/// a pool that is full of shared blocks refuses writes, not commits, and all of it can be deleted.
#[test]
fn a_pool_full_of_shared_blocks_goes_on_and_everything_can_be_deleted() {
    for (record, dedup) in [(32 << 10, "on"), (32 << 10, "verify"), (32 << 10, "off")] {
        let env = Env::real();
        let devices = [Arc::new(MemoryDevice::new("a", 64 * MIB))];
        let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
        let record_text = record.to_string();
        let props = [("recordsize", record_text.as_str()), ("compression", "off"), ("dedup", dedup)];
        let props = props.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        pool.datasets().create_dataset("tank/fs", props, None).expect("made");
        let (fs, open) = mount(&pool, "tank/fs");
        let context = format!("records of {record}, dedup={dedup}");
        let mut dice = Dice(record + dedup.len() as u64);
        let (mut files, mut refused, mut made) = (Vec::<(u64, Vec<u64>)>::new(), 0, 0_u64);
        let bytes_of = |seeds: &[u64]| -> Vec<u8> {
            seeds.iter().flat_map(|seed| noise(*seed, usize::try_from(record).expect("small"))).collect()
        };
        let mut turn = 0_u64;
        while refused < 3 {
            turn += 1;
            assert_eq!(pool.state().suspended, None, "{context}, turn {turn}");
            match dice.below(8) {
                // Some of it is there already, some is not.
                0..=3 => {
                    let seeds: Vec<u64> = (0..32).map(|_| dice.below(4) * dice.below(1 << 30)).collect();
                    made += 1;
                    let file = fs.mknod(ME, ROOT, format!("{made}").as_bytes(), 0o100_600, 0);
                    let Ok(file) = file else {
                        refused += 1;
                        continue;
                    };
                    match fs.write(file.ino, 0, &bytes_of(&seeds), false) {
                        Ok(_) => files.push((file.ino, seeds)),
                        Err(Errno::ENOSPC) => {
                            refused += 1;
                            files.push((file.ino, Vec::new()));
                        }
                        Err(errno) => panic!("{context}, turn {turn}: {errno:?}"),
                    }
                }
                // A copy.
                4 | 5 if !files.is_empty() => {
                    let (source, seeds) = files[dice.below(files.len() as u64) as usize].clone();
                    made += 1;
                    let Ok(file) = fs.mknod(ME, ROOT, format!("{made}").as_bytes(), 0o100_600, 0) else {
                        refused += 1;
                        continue;
                    };
                    let length = seeds.len() as u64 * record;
                    let copied = match fs.copy_file_range(source, 0, file.ino, 0, length) {
                        Ok(copied) => copied,
                        Err(Errno::ENOSPC) => 0,
                        Err(errno) => panic!("{context}, turn {turn}: {errno:?}"),
                    };
                    refused += u64::from(copied < length);
                    let whole = (copied / record) as usize;
                    let cut = SetAttr { size: Some(whole as u64 * record), ..SetAttr::default() };
                    fs.setattr(file.ino, &cut).expect("cut to whole records");
                    files.push((file.ino, seeds[..whole].to_vec()));
                }
                // One record anew.
                6 if !files.is_empty() => {
                    let at = dice.below(files.len() as u64) as usize;
                    let (file, seeds) = &mut files[at];
                    if let Some(last) = seeds.len().checked_sub(1) {
                        let (place, seed) = (dice.below(last as u64 + 1), dice.below(1 << 30));
                        match fs.write(*file, place * record, &bytes_of(&[seed]), false) {
                            Ok(_) => seeds[place as usize] = seed,
                            Err(Errno::ENOSPC) => refused += 1,
                            Err(errno) => panic!("{context}, turn {turn}: {errno:?}"),
                        }
                    }
                }
                _ if turn.is_multiple_of(16) => pool.sync().expect("committed"),
                _ => {}
            }
        }
        let name = "tank/fs@full".to_owned();
        let snapshot = pool.datasets().take_snapshots(std::slice::from_ref(&name), &Default::default());
        pool.sync().expect("committed");
        for (ino, seeds) in &files {
            let mut found = vec![0; seeds.len() * record as usize];
            let mut at = 0;
            while at < found.len() {
                at += fs.read(*ino, at as u64, &mut found[at..]).expect("read");
            }
            assert!(found == bytes_of(seeds), "{context}: inode {ino}");
        }
        if dedup == "off" {
            assert!(pool.sharing().sums.shared > 0, "{context}: {:?}", pool.sharing());
        } else {
            assert!(pool.sharing().hits > 20, "{context}: {:?}", pool.sharing());
        }
        for (ino, _) in &files {
            fs.forget(*ino, 1);
        }
        let mut names = Vec::new();
        fs.readdir(ROOT, 2, |found| {
            names.push(found.name);
            true
        })
        .expect("listed");
        for name in names {
            fs.unlink(ROOT, &name).expect("deleting on a full pool works");
        }
        if snapshot.is_ok() {
            pool.datasets().destroy_snapshots(std::slice::from_ref(&name), false).expect("destroyed");
        }
        for _ in 0..2000 {
            pool.sync().expect("committed");
            if pool.datasets().freeing() == 0 {
                break;
            }
        }
        assert_eq!(pool.datasets().freeing(), 0, "{context}");
        assert_eq!(pool.state().suspended, None, "{context}");
        let accounting = pool.state().accounting;
        assert!(accounting.live_bytes < 4 * MIB, "{context}: {accounting:?}");
        assert_eq!(pool.sharing().sums, Default::default(), "{context}");
        drop((fs, open));
    }
}

/// As in ZFS: a new file system or clone that could not be mounted or written is not made at all.
#[test]
fn a_full_pool_refuses_new_datasets_and_makes_nothing_of_them() {
    let env = Env::real();
    let devices = [Arc::new(MemoryDevice::new("a", 64 * MIB))];
    let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
    let datasets = pool.datasets();
    datasets.create_dataset("tank/a", BTreeMap::new(), None).expect("made");
    datasets.take_snapshots(&["tank/a@s".to_owned()], &BTreeMap::new()).expect("taken");
    let (fs, open) = mount(&pool, "tank/a");
    // Until not even an empty file can be made.
    let mut files = 0;
    while let Ok(file) = fs.mknod(ME, ROOT, format!("file {files}").as_bytes(), 0o100_600, 0) {
        let mut at = 0;
        while fs.write(file.ino, at, &noise(at, 4096), false).is_ok() {
            at += 4096;
        }
        pool.sync().expect("committed");
        files += 1;
        assert!(files < 200, "it is not getting full");
    }
    let refused = |result: Result<_, Error>| match result {
        Err(Error::NoSpace { pool }) => assert_eq!(pool, "tank"),
        other => panic!("{other:?}"),
    };
    let before = datasets.names();
    refused(datasets.create_dataset("tank/b", BTreeMap::new(), None));
    refused(datasets.clone_snapshot("tank/a@s", "tank/c", BTreeMap::new()));
    assert_eq!(datasets.names(), before);
    // Snapshots take no room for content and go on.
    datasets.take_snapshots(&["tank/a@later".to_owned()], &BTreeMap::new()).expect("taken");
    datasets.destroy_snapshots(&["tank/a@later".to_owned()], false).expect("destroyed");
    drop((fs, open));
    pool.export().expect("exported");
}
