//! Pools of mirrors that are split: both halves have everything, and live on beside each other.

use std::sync::Arc;

use crate::common::{
    self, MIB, ROOT, handle, handles, import_spec, mount, noise, read_file, spec, write_file,
};
use steadfast_device::MemoryDevice;
use steadfast_device::memory::Fate;
use steadfast_env::Env;
use steadfast_format::{GroupClass, LeafState};
use steadfast_pool::{CreateSpec, Error, GroupHandles, Pool, Redundancy, ScrubCommand, scan};

const FILES: u64 = 20;

struct Machine {
    env: Env,
    devices: Vec<Arc<MemoryDevice>>,
}

impl Machine {
    fn new(devices: usize) -> Machine {
        let made = (0..devices).map(|at| Arc::new(MemoryDevice::new(&format!("d{at}"), 128 * MIB)));
        Machine { env: Env::seeded(9), devices: made.collect() }
    }

    fn create(&self, groups: &[(Redundancy, GroupClass, usize)]) -> Pool {
        let mut devices = handles(&self.devices).into_iter();
        let group = |&(redundancy, class, count): &(Redundancy, GroupClass, usize)| GroupHandles {
            redundancy,
            class,
            devices: devices.by_ref().take(count).collect(),
        };
        let groups = groups.iter().map(group).collect();
        let pool = Pool::create(&self.env, CreateSpec { groups, ..spec(Vec::new(), None) }).expect("a pool");
        write(&pool, "tank", 0..FILES);
        pool
    }

    fn import(&self, name: &str) -> Pool {
        let (pools, _) = scan(handles(&self.devices));
        let names: Vec<String> = pools.iter().map(|found| found.config.name.clone()).collect();
        let found = pools.into_iter().find(|found| found.config.name == name);
        let found = found.unwrap_or_else(|| panic!("{name} among {names:?}"));
        assert!(found.missing.is_empty(), "{:?}", found.missing);
        Pool::import(&self.env, found, &import_spec(None)).expect("imported")
    }
}

fn write(pool: &Pool, dataset: &str, files: std::ops::Range<u64>) {
    let (fs, _open) = mount(pool, dataset);
    for file in files {
        write_file(&fs, ROOT, format!("f{file}").as_bytes(), &noise(file, 150_000));
    }
    pool.sync().expect("committed");
}

fn check(pool: &Pool, dataset: &str, files: std::ops::Range<u64>) {
    let (fs, _open) = mount(pool, dataset);
    for file in files {
        assert!(read_file(&fs, ROOT, format!("f{file}").as_bytes()) == noise(file, 150_000), "file {file}");
    }
}

fn whole(pool: &Pool) {
    let settle = || {
        for _ in 0..10_000 {
            if pool.scan_remaining() == [0, 0] {
                break;
            }
            pool.sync().expect("the pool goes on");
        }
    };
    // Segments of a txg that was cut off in the middle are looked at by a resilver first.
    settle();
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    settle();
    let scan = pool.state().scan.expect("a scrub");
    assert_eq!((scan.repaired, scan.lost), (0, 0));
    assert!(pool.state().leaves.iter().all(|leaf| leaf.config.state == LeafState::Online));
}

fn paths(pool: &Pool) -> Vec<String> {
    pool.state().leaves.into_iter().map(|leaf| leaf.config.path).collect()
}

const MIRROR: Redundancy = Redundancy::Mirror;
const NORMAL: GroupClass = GroupClass::Normal;

#[test]
fn both_halves_have_everything_and_go_their_own_ways() {
    let machine = Machine::new(7);
    let pool = machine.create(&[(MIRROR, NORMAL, 2), (MIRROR, NORMAL, 3), (MIRROR, GroupClass::Special, 2)]);
    let number = pool.guid();
    assert_eq!(pool.split("other", &[], true).expect("it can be"), ["d1", "d4", "d6"]);
    assert_eq!(paths(&pool).len(), 7, "nothing happened");
    let parted = pool.split("other", &["d0".into()], false).expect("split");
    assert_eq!(parted, ["d0", "d4", "d6"]);
    assert_eq!(paths(&pool), ["d1", "d2", "d3", "d5"]);
    write(&pool, "tank", FILES..FILES + 5);
    whole(&pool);
    // The other half is imported beside it, has what there was then, and takes other content and a
    // second device.
    let other = machine.import("other");
    assert_ne!(other.guid(), number);
    assert_eq!(paths(&other), ["d0", "d4", "d6"]);
    check(&other, "other", 0..FILES);
    assert!(mount(&other, "other").0.lookup(ROOT, b"f20").is_err(), "that came later");
    write(&other, "other", 100..110);
    let new = Arc::new(MemoryDevice::new("new", 128 * MIB));
    other.attach("d0", handle(&new), false).expect("begun");
    whole(&other);
    check(&pool, "tank", 0..FILES + 5);
    other.export().expect("exported");
    pool.export().expect("exported");
    drop((other, pool));
    let pool = machine.import("tank");
    assert_eq!(pool.guid(), number);
    check(&pool, "tank", 0..FILES + 5);
    whole(&pool);
    // And once more.
    pool.split("third", &["d1".into()], false).expect_err("a mirror of one has no half to give");
    pool.attach("d1", handle(&Arc::new(MemoryDevice::new("more", 128 * MIB))), false).expect("begun");
    whole(&pool);
}

#[test]
fn what_has_no_two_halves_is_refused() {
    let refused = |groups: &[(Redundancy, GroupClass, usize)], act: &dyn Fn(&Pool) -> Vec<String>| {
        let machine = Machine::new(groups.iter().map(|group| group.2).sum());
        let pool = machine.create(groups);
        let named = act(&pool);
        let before = paths(&pool);
        let error = pool.split("other", &named, false).expect_err("refused");
        assert_eq!(paths(&pool), before);
        check(&pool, "tank", 0..FILES);
        error
    };
    let none = |_: &Pool| Vec::new();
    for groups in [
        &[(Redundancy::Raidz(1), NORMAL, 3)][..],
        &[(MIRROR, NORMAL, 2), (Redundancy::None, NORMAL, 1)],
        &[(MIRROR, NORMAL, 2), (Redundancy::None, GroupClass::Special, 1)],
    ] {
        let error = refused(groups, &none);
        assert!(matches!(error, Error::Split { .. }), "{error}");
    }
    let error = refused(&[(MIRROR, NORMAL, 3)], &|_| vec!["d0".into(), "d1".into()]);
    assert!(matches!(error, Error::Split { .. }), "{error}");
    let error = refused(&[(MIRROR, NORMAL, 3)], &|pool| {
        pool.offline("d0").expect("it can be spared");
        Vec::new()
    });
    assert!(matches!(error, Error::NotWhole { .. }), "{error}");
}

#[test]
fn a_half_of_an_encrypted_pool_opens_with_the_key() {
    let machine = Machine::new(2);
    let group = GroupHandles { redundancy: MIRROR, class: NORMAL, devices: handles(&machine.devices) };
    let secret = [3; 32];
    let key = common::key(&machine.env, &secret);
    let pool = Pool::create(&machine.env, CreateSpec { groups: vec![group], ..spec(Vec::new(), Some(key)) });
    let pool = pool.expect("a pool");
    write(&pool, "tank", 0..FILES);
    pool.split("other", &[], false).expect("split");
    let (pools, _) = scan(handles(&machine.devices[1..]));
    let other =
        Pool::import(&machine.env, pools.into_iter().next().expect("one"), &import_spec(Some(&secret)));
    check(&other.expect("imported"), "other", 0..FILES);
    check(&pool, "tank", 0..FILES);
}

/// Files of a dataset that hold what they should.
fn promised(pool: &Pool, dataset: &str, files: &[&str]) -> Vec<bool> {
    let (fs, _open) = mount(pool, dataset);
    let is_there = |name: &&str| {
        fs.lookup(ROOT, name.as_bytes()).is_ok() && read_file(&fs, ROOT, name.as_bytes()) == name.as_bytes()
    };
    files.iter().map(is_there).collect()
}

#[test]
fn what_was_promised_on_a_log_device_is_in_both_halves() {
    // No txg closes for its age: what is promised is on the log device and nowhere else.
    let env = Env { clock: Env::seeded(1).clock, ..Env::real() };
    let made = |name: &str| Arc::new(MemoryDevice::new(name, 64 * MIB));
    let machine = Machine { env, devices: ["d0", "d1", "log"].map(made).into() };
    let devices = handles(&machine.devices[..2]);
    let group = GroupHandles { redundancy: MIRROR, class: NORMAL, devices };
    let mut spec = CreateSpec { groups: vec![group], ..spec(Vec::new(), None) };
    spec.root_props.insert("journal".into(), "ordered".into());
    let pool = Pool::create(&machine.env, spec).expect("a pool");
    pool.zil().add_logs(GroupHandles::alone(handles(&machine.devices[2..])), false, false).expect("added");
    let promise = |name: &str| {
        let (fs, _open) = mount(&pool, "tank");
        write_file(&fs, ROOT, name.as_bytes(), name.as_bytes());
        let ino = fs.lookup(ROOT, name.as_bytes()).expect("there").ino;
        fs.fsync(ino).expect("durable");
        fs.forget(ino, 1);
    };
    promise("first");
    pool.sync().expect("committed");
    promise("before");
    let groups = pool.state().log.counts.groups;
    assert!(groups > 0, "it went to the log device");
    pool.split("other", &[], false).expect("split");
    promise("after");
    assert!(pool.state().log.counts.groups > groups, "the log goes on");
    // The power goes; the log device stays with the first.
    machine.devices.iter().for_each(|device| device.power_off());
    drop(pool);
    machine.devices.iter().for_each(|device| device.power_on(|_| Fate::Dropped));
    let all = ["first", "before", "after"];
    let other = machine.import("other");
    assert_eq!(promised(&other, "other", &all), [true, true, false]);
    assert!(other.state().log_devices.is_empty());
    let first = machine.import("tank");
    assert_eq!(promised(&first, "tank", &all), [true; 3]);
    assert_eq!(first.state().log_devices.len(), 1);
    first.export().expect("exported");
    other.export().expect("exported");
}
