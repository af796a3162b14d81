//! Content in several copies: the property `copies`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::common::{self, Dice, ME, MIB, ROOT, handles, import, mount, noise, read_file, spec, write_file};
use crate::hosts::{Host, inspect_devices};
use steadfast_device::{Device, MemoryDevice, SegmentPlace};
use steadfast_env::Env;
use steadfast_format::{GroupClass, SegmentId};
use steadfast_pool::{
    CreateSpec, Error, GroupHandles, ImportSpec, Pool, Redundancy, ScanRow, ScanState, ScrubCommand,
    SendSpec, scan,
};
use steadfast_posix::{Errno, FileSystem};

const UNIT: usize = 4096;

fn devices(count: usize, mib: u64) -> Vec<Arc<MemoryDevice>> {
    (0..count).map(|at| Arc::new(MemoryDevice::new(&format!("d{at}"), mib * MIB))).collect()
}

fn props(copies: &str) -> BTreeMap<String, String> {
    let all = [("copies", copies), ("compression", "off")];
    all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A pool whose root dataset stores content so often.
fn pool_of(env: &Env, groups: Vec<GroupHandles>, copies: &str) -> Pool {
    let spec = CreateSpec { groups, root_props: props(copies), ..spec(Vec::new(), None) };
    Pool::create(env, spec).expect("a pool")
}

/// By what lies in each unit of the devices, between their labels, where that is.
type Units = HashMap<Vec<u8>, Vec<(usize, u32)>>;

fn look(devices: &[Arc<MemoryDevice>]) -> Units {
    let mut found = Units::new();
    for (at, device) in devices.iter().enumerate() {
        let units = u32::try_from((device.character().size_bytes - MIB) / UNIT as u64).expect("small");
        for slot in 0..units {
            let place = SegmentPlace { segment: SegmentId(1), slot, slot_size: UNIT as u32 };
            let mut bytes = vec![0; UNIT];
            device.read_segment(place, 0, &mut bytes).expect("readable");
            if bytes.iter().any(|byte| *byte != 0) {
                found.entry(bytes).or_default().push((at, slot));
            }
        }
    }
    found
}

fn spoil(devices: &[Arc<MemoryDevice>], (at, slot): (usize, u32)) {
    let place = SegmentPlace { segment: SegmentId(1), slot, slot_size: UNIT as u32 };
    devices[at].append_segment(place, 0, &noise(99, UNIT)).expect("written");
}

fn scrub(pool: &Pool) -> ScanRow {
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    for _ in 0..100_000 {
        if pool.scan_remaining() == [0, 0] {
            let scan = pool.state().scan.expect("there was one");
            assert_eq!(scan.state, ScanState::Finished);
            return scan;
        }
        pool.step();
    }
    panic!("{:?}", pool.state().scan);
}

/// The content of a file, unit by unit; no two are alike.
fn units(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.chunks(UNIT)
}

fn file(pool: &Pool, dataset: &str, name: &[u8], content: &[u8]) {
    let (fs, _handle) = mount(pool, dataset);
    write_file(&fs, ROOT, name, content);
    pool.sync().expect("committed");
}

fn has(pool: &Pool, dataset: &str, name: &[u8], content: &[u8]) -> bool {
    let (fs, _handle) = mount(pool, dataset);
    read_file(&fs, ROOT, name) == content
}

#[test]
fn each_unit_is_stored_as_often_as_asked_and_on_different_devices() {
    for copies in 1..=3 {
        let env = Env::simulated(7);
        let devices = devices(3, 64);
        let pool = pool_of(&env, GroupHandles::alone(handles(&devices)), &copies.to_string());
        let content = noise(copies as u64, 3 << 20);
        file(&pool, "tank", b"file", &content);
        pool.export().expect("exported");
        let found = look(&devices);
        for unit in units(&content) {
            let places = &found[unit];
            assert_eq!(places.len(), copies, "{places:?}");
            assert!(places.windows(2).all(|pair| pair[0].0 != pair[1].0), "{places:?}");
        }
        inspect_devices(&env, &devices, None);
    }
}

#[test]
fn reading_heals_from_another_copy_and_names_what_has_none() {
    for copies in 2..=3_usize {
        let env = Env::simulated(8);
        // One device: copies lie far apart on it.
        let devices = devices(1, 128);
        let pool = pool_of(&env, GroupHandles::alone(handles(&devices)), &copies.to_string());
        let content = noise(1, 1 << 20);
        file(&pool, "tank", b"file", &content);
        pool.export().expect("exported");
        let found = look(&devices);
        let places: Vec<Vec<_>> = units(&content).map(|unit| found[unit].clone()).collect();
        for lost in 0..copies {
            places.iter().for_each(|places| spoil(&devices, places[lost]));
            let pool = import(&env, handles(&devices), None).expect("imported");
            assert!(has(&pool, "tank", b"file", &content), "without copy {lost}");
            if lost > 0 {
                // Readers take the first copy that is right.
                let scan = scrub(&pool);
                assert!(scan.repaired >= 1 << 20 && scan.lost == 0, "{scan:?}");
            }
            assert!(pool.state().damaged.is_empty());
            let again = scrub(&pool);
            assert_eq!((again.repaired, again.lost), (0, 0), "copy {lost} was healed");
            pool.export().expect("exported");
            inspect_devices(&env, &devices, None);
        }
        // All copies of one unit.
        places[5].iter().for_each(|place| spoil(&devices, *place));
        let pool = import(&env, handles(&devices), None).expect("imported");
        {
            let (fs, _handle) = mount(&pool, "tank");
            let ino = fs.lookup(ROOT, b"file").expect("there").ino;
            let mut out = vec![0; UNIT];
            assert_eq!(fs.read(ino, 5 * UNIT as u64, &mut out), Err(Errno::EIO));
            assert_eq!(fs.read(ino, 512 << 10, &mut out), Ok(UNIT), "another record");
            fs.forget(ino, 1);
        }
        let damaged = pool.state().damaged;
        assert_eq!(damaged.len(), 1, "{damaged:?}");
        assert!(damaged[0].path.as_deref().is_some_and(|path| path.ends_with(b"file")), "{damaged:?}");
        assert!(scrub(&pool).lost > 0);
        pool.export().expect("exported");
    }
}

/// On raidz1 a block of which two columns are wrong is lost, unless it has another copy.
#[test]
fn a_scrub_heals_what_a_group_cannot() {
    let env = Env::simulated(9);
    let devices = devices(3, 64);
    let (redundancy, class) = (Redundancy::Raidz(1), GroupClass::Normal);
    let group = GroupHandles { redundancy, class, devices: handles(&devices) };
    let pool = pool_of(&env, vec![group], "2");
    let content = noise(1, 1 << 20);
    file(&pool, "tank", b"file", &content);
    pool.export().expect("exported");
    // The first copy of each unit, on whatever column it lies: both data columns of each row.
    let found = look(&devices);
    for unit in units(&content) {
        let places = &found[unit];
        assert!(places.len() >= 2, "{places:?}");
        let first = places.iter().min_by_key(|(_, slot)| *slot).expect("one");
        spoil(&devices, *first);
    }
    let pool = import(&env, handles(&devices), None).expect("imported");
    let scan = scrub(&pool);
    assert!(scan.repaired >= 1 << 20 && scan.lost == 0, "{scan:?}");
    assert!(has(&pool, "tank", b"file", &content));
    assert!(pool.state().damaged.is_empty(), "{:?}", pool.state().damaged);
    let again = scrub(&pool);
    assert_eq!((again.repaired, again.lost), (0, 0));
    pool.export().expect("exported");
    inspect_devices(&env, &devices, None);
}

#[test]
fn space_is_charged_for_each_copy_and_a_change_counts_for_new_content() {
    let env = Env::real();
    let devices = devices(2, 128);
    let pool = pool_of(&env, GroupHandles::alone(handles(&devices)), "1");
    let content = noise(3, 4 << 20);
    let used = |name: &str| pool.datasets().dataset_info(name).expect("there").used;
    let mut stored = Vec::new();
    for copies in 1..=3_u64 {
        let name = format!("tank/c{copies}");
        pool.datasets().create_dataset(&name, props(&copies.to_string()), None).expect("made");
        let before = used(&name);
        {
            let (fs, _handle) = mount(&pool, &name);
            write_file(&fs, ROOT, b"file", &content);
            let told = fs.lookup(ROOT, b"file").expect("there").attr.blocks * 512;
            assert_eq!(told, copies * 4 * MIB, "before the commit too");
        }
        pool.sync().expect("committed");
        let grown = used(&name) - before;
        assert!((copies * 4 * MIB..(copies * 4 + 1) * MIB).contains(&grown), "{copies} copies: {grown}");
        let info = pool.datasets().dataset_info(&name).expect("there");
        assert_eq!(info.logical, 4 * MIB, "what was written");
        let (fs, _handle) = mount(&pool, &name);
        let attr = fs.lookup(ROOT, b"file").expect("there").attr;
        assert_eq!(attr.blocks * 512, copies * 4 * MIB);
        stored.push(grown);
    }
    let before = used("tank/c1");
    pool.datasets().set_property("tank/c1", "copies", Some("2")).expect("set");
    assert!(used("tank/c1").abs_diff(before) < MIB / 4, "what is there stays as it is");
    file(&pool, "tank/c1", b"second", &content);
    assert!(used("tank/c1") - before >= 8 * MIB);
    pool.datasets().set_property("tank/c3", "copies", Some("1")).expect("set");
    let before = used("tank/c3");
    file(&pool, "tank/c3", b"second", &content);
    assert!(used("tank/c3") - before < 5 * MIB);
    for name in ["tank/c1", "tank/c2", "tank/c3"] {
        pool.datasets().destroy_dataset(name).expect("destroyed");
    }
    for _ in 0..50 {
        pool.sync().expect("committed");
    }
    assert!(pool.state().accounting.live_bytes < MIB, "{}", pool.state().accounting.live_bytes);
    pool.export().expect("exported");
    inspect_devices(&env, &devices, None);
}

fn fill(fs: &FileSystem, name: &[u8], seed: u64) -> (u64, Errno) {
    let ino = fs.mknod(ME, ROOT, name, 0o100_644, 0).expect("made").ino;
    let (data, mut at) = (noise(seed, 64 << 10), 0);
    loop {
        match fs.write(ino, at, &data, false) {
            Ok(_) => at += 64 << 10,
            Err(error) => {
                fs.forget(ino, 1);
                return (at, error);
            }
        }
    }
}

#[test]
fn quotas_and_the_room_of_the_pool_count_copies() {
    let env = Env::real();
    let devices = devices(1, 64);
    let pool = pool_of(&env, GroupHandles::alone(handles(&devices)), "1");
    for copies in ["1", "2", "3"] {
        pool.datasets().create_dataset(&format!("tank/c{copies}"), props(copies), None).expect("made");
    }
    for (name, copies) in [("tank/c2", 2), ("tank/c3", 3)] {
        pool.datasets().set_property(name, "quota", Some(&(6 * MIB).to_string())).expect("set");
        let (fs, _handle) = mount(&pool, name);
        let (bytes, error) = fill(&fs, b"file", copies);
        assert_eq!(error, Errno::EDQUOT);
        let at_most = 6 * MIB / copies;
        assert!(bytes <= at_most && bytes + MIB > at_most, "{bytes} of {at_most} in {copies} copies");
        drop(fs);
        pool.datasets().set_property(name, "quota", None).expect("unset");
    }
    // Full to the brim, and every commit finds its room; so does what is removed.
    let (fs, handle) = mount(&pool, "tank/c2");
    for round in 0..4 {
        let (bytes, error) = fill(&fs, b"large", round);
        assert_eq!(error, Errno::ENOSPC);
        fs.syncfs().expect("committed");
        assert!(bytes > 4 * MIB, "{bytes}");
        fs.unlink(ROOT, b"large").expect("removed");
        fs.syncfs().expect("committed");
    }
    drop((fs, handle));
    pool.export().expect("exported");
    inspect_devices(&env, &devices, None);
}

#[test]
fn the_cleaner_keeps_copies_apart() {
    let env = Env::simulated(11);
    let devices = devices(2, 64);
    let pool = pool_of(&env, GroupHandles::alone(handles(&devices)), "2");
    let mut expected = BTreeMap::new();
    let mut dice = Dice(5);
    // Overwritten at random, in a pool of which more than half lives.
    for round in 0..260_u64 {
        let name = format!("file{}", if round < 100 { round } else { dice.below(100) });
        let content = noise(round + 1, 300_000);
        let (fs, _handle) = mount(&pool, "tank");
        if expected.contains_key(&name) {
            fs.unlink(ROOT, name.as_bytes()).expect("there");
        }
        write_file(&fs, ROOT, name.as_bytes(), &content);
        drop(fs);
        pool.sync().expect("committed");
        expected.insert(name, content);
    }
    assert!(pool.state().accounting.relocations > 0, "something was moved");
    pool.export().expect("exported");
    inspect_devices(&env, &devices, None);
    let found = look(&devices);
    for content in expected.values() {
        // The last unit is not whole.
        for unit in units(content).filter(|unit| unit.len() == UNIT) {
            let mut on: Vec<usize> = found[unit].iter().map(|(at, _)| *at).collect();
            on.dedup();
            assert_eq!(on, [0, 1], "a copy on each device");
        }
    }
    let pool = import(&env, handles(&devices), None).expect("imported");
    assert!(expected.iter().all(|(name, content)| has(&pool, "tank", name.as_bytes(), content)));
    pool.export().expect("exported");
}

#[test]
fn snapshots_clones_and_a_removed_device_keep_copies() {
    let env = Env::simulated(12);
    let devices = devices(3, 64);
    let pool = pool_of(&env, GroupHandles::alone(handles(&devices)), "2");
    pool.datasets().create_dataset("tank/a", BTreeMap::new(), None).expect("made");
    let (old, new) = (noise(1, 1 << 20), noise(2, 1 << 20));
    file(&pool, "tank/a", b"file", &old);
    pool.datasets().take_snapshots(&["tank/a@s".to_owned()], &BTreeMap::new()).expect("taken");
    pool.datasets().clone_snapshot("tank/a@s", "tank/b", BTreeMap::new()).expect("cloned");
    {
        let (fs, _handle) = mount(&pool, "tank/a");
        let ino = fs.lookup(ROOT, b"file").expect("there").ino;
        fs.write(ino, 0, &new, false).expect("written");
        fs.forget(ino, 1);
    }
    pool.sync().expect("committed");
    pool.devices().remove_groups(&["d1".to_owned()], false).expect("begun");
    common::finish(&pool);
    pool.sync().expect("committed");
    pool.export().expect("exported");
    let devices = [Arc::clone(&devices[0]), Arc::clone(&devices[2])];
    inspect_devices(&env, &devices, None);
    let found = look(&devices);
    assert!(units(&old).chain(units(&new)).all(|unit| found[unit].len() == 2));
    let pool = import(&env, handles(&devices), None).expect("imported");
    assert!(has(&pool, "tank/a", b"file", &new) && has(&pool, "tank/b", b"file", &old));
    pool.export().expect("exported");
}

/// A stream carries content once; the target stores it as often as its own property says.
#[test]
fn a_stream_of_copies_becomes_copies_of_the_target() {
    let (from, to) = (Host::new("from", 64), Host::new("to", 64));
    from.pool.datasets().create_dataset("from/a", props("2"), None).expect("made");
    let content = noise(5, 2 << 20);
    file(&from.pool, "from/a", b"file", &content);
    from.snapshot("from/a@s");
    let sent = SendSpec { snapshot: "from/a@s".into(), properties: true, ..SendSpec::default() };
    let stream = from.send_as(sent);
    assert!(stream.len() < 3 << 20, "{} bytes", stream.len());
    to.receive("to/a", &stream).expect("received");
    let info = to.pool.datasets().dataset_info("to/a").expect("there");
    assert!(info.used >= 4 * MIB, "{}", info.used);
    assert!(has(&to.pool, "to/a", b"file", &content));
}

#[test]
fn copies_are_not_shared_and_sealed_content_has_two() {
    let env = Env::simulated(13);
    let devices = devices(1, 128);
    let pool = pool_of(&env, GroupHandles::alone(handles(&devices)), "3");
    let mut dedup = props("2");
    dedup.insert("dedup".to_owned(), "on".to_owned());
    pool.datasets().create_dataset("tank/d", dedup, None).expect("made");
    let content = noise(5, 1 << 20);
    for name in [&b"one"[..], b"two"] {
        file(&pool, "tank/d", name, &content);
    }
    let used = pool.datasets().dataset_info("tank/d").expect("there").used;
    assert!(used >= 4 * MIB, "two files in two copies each: {used}");
    let key = || Some(common::key(&env, &[7; 32]));
    let refused = pool.datasets().create_dataset("tank/e", props("3"), key());
    assert!(matches!(refused, Err(Error::SealedCopies { .. })), "{refused:?}");
    // Inherited, it counts as two.
    pool.datasets().create_dataset("tank/e", BTreeMap::new(), key()).expect("made");
    file(&pool, "tank/e", b"file", &content);
    let used = pool.datasets().dataset_info("tank/e").expect("there").used;
    assert!((2 * MIB..3 * MIB).contains(&used), "{used}");
    let refused = pool.datasets().set_property("tank/e", "copies", Some("3"));
    assert!(matches!(refused, Err(Error::SealedCopies { .. })), "{refused:?}");
    assert!(has(&pool, "tank/e", b"file", &content) && has(&pool, "tank/d", b"two", &content));
    pool.datasets().destroy_dataset("tank/e").expect("destroyed");
    pool.export().expect("exported");
    inspect_devices(&env, &devices, None);
}

/// Content of a checkpoint keeps each of its copies while the pool goes on, and each heals after
/// the way back. Without the way back all of them come free when the checkpoint goes.
#[test]
fn a_checkpoint_holds_every_copy() {
    for (copies, back) in [(2, true), (2, false), (3, true), (3, false)] {
        let env = Env::simulated(21);
        let devices = devices(2, 96);
        let pool = pool_of(&env, GroupHandles::alone(handles(&devices)), &copies.to_string());
        let content = noise(7, 2 << 20);
        file(&pool, "tank", b"old", &content);
        pool.checkpoint().expect("taken");
        let (fs, handle) = mount(&pool, "tank");
        fs.unlink(ROOT, b"old").expect("removed");
        for round in 0..6 {
            write_file(&fs, ROOT, format!("new {round}").as_bytes(), &noise(100 + round, 2 << 20));
            pool.sync().expect("committed");
        }
        drop((fs, handle));
        let kept = pool.state().accounting.kept_bytes;
        assert!(kept >= copies * 2 * MIB, "{copies} copies: {kept} bytes");
        if !back {
            pool.discard_checkpoint().expect("discarded");
            let (fs, handle) = mount(&pool, "tank");
            for round in 0..24 {
                let name = format!("later {}", round % 3);
                let _ = fs.unlink(ROOT, name.as_bytes());
                write_file(&fs, ROOT, name.as_bytes(), &noise(500 + round, 2 << 20));
                pool.sync().expect("committed");
            }
            assert_eq!(pool.state().accounting.kept_bytes, 0);
            let found = look(&devices);
            let gone = units(&content).filter(|unit| !found.contains_key(*unit)).count();
            assert!(gone > 0, "its slots are used again");
            drop((fs, handle));
            pool.export().expect("exported");
            inspect_devices(&env, &devices, None);
            continue;
        }
        pool.export().expect("exported");
        let places = look(&devices);
        let places: Vec<_> = units(&content).map(|unit| places[unit].clone()).collect();
        assert!(places.iter().all(|places| places.len() == copies as usize), "each copy is there");
        let found = scan(handles(&devices)).0.remove(0);
        let spec = ImportSpec { to_checkpoint: true, ..common::import_spec(None) };
        let pool = Pool::import(&env, found, &spec).expect("imported");
        places.iter().for_each(|places| spoil(&devices, places[0]));
        assert!(has(&pool, "tank", b"old", &content), "from another copy");
        pool.export().expect("exported");
        let healed = look(&devices);
        assert!(units(&content).all(|unit| healed[unit].len() == copies as usize), "and healed");
        inspect_devices(&env, &devices, None);
    }
}
