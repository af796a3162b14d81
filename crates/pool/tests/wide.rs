//! Groups as wide as a group may be, with all lost that they can do without, and one device more
//! than that.

use std::sync::Arc;

use crate::common::{self, Dice, MIB, ROOT, finish, handles, mount, noise, spec, write_file};
use steadfast_device::MemoryDevice;
use steadfast_device::memory::Image;
use steadfast_env::Env;
use steadfast_format::GroupClass;
use steadfast_pool::{CreateSpec, Error, GroupHandles, Pool, Redundancy, ScrubCommand, scan};

const FILES: u64 = 30;

fn content(file: u64) -> Vec<u8> {
    noise(file + 1, 1 + (file * file * 600) as usize)
}

fn devices(count: usize) -> Vec<Arc<MemoryDevice>> {
    (0..count).map(|at| Arc::new(MemoryDevice::new(&format!("device {at}"), 64 * MIB))).collect()
}

fn create(env: &Env, redundancy: Redundancy, devices: &[Arc<MemoryDevice>]) -> Result<Pool, Error> {
    let group = GroupHandles { redundancy, class: GroupClass::Normal, devices: handles(devices) };
    Pool::create(env, CreateSpec { groups: vec![group], ..spec(Vec::new(), None) })
}

/// Content of the devices of an exported pool with files.
fn images(env: &Env, redundancy: Redundancy, count: usize) -> Vec<Image> {
    let devices = devices(count);
    let pool = create(env, redundancy, &devices).expect("a pool");
    write(&pool, 0..FILES);
    pool.export().expect("exported");
    drop(pool);
    devices.iter().map(|device| device.image()).collect()
}

fn write(pool: &Pool, files: std::ops::Range<u64>) {
    let (fs, _handle) = mount(pool, "tank");
    for file in files {
        write_file(&fs, ROOT, format!("file {file}").as_bytes(), &content(file));
    }
}

fn check(pool: &Pool, files: u64, when: &str) {
    let (fs, _handle) = mount(pool, "tank");
    for file in 0..files {
        let found = common::read_file(&fs, ROOT, format!("file {file}").as_bytes());
        assert!(found == content(file), "{when}: file {file}");
    }
}

/// Imports copies of those that are there.
fn import(env: &Env, images: &[Image], gone: &[usize]) -> Result<Pool, Error> {
    let here = images.iter().enumerate().filter(|(at, _)| !gone.contains(at));
    let here = here.map(|(at, image)| MemoryDevice::from_image(&format!("device {at}"), image.clone()));
    let here: Vec<Arc<MemoryDevice>> = here.map(Arc::new).collect();
    let (mut pools, others) = scan(handles(&here));
    assert_eq!((pools.len(), others.len()), (1, 0));
    Pool::import(env, pools.remove(0), &common::import_spec(None))
}

#[test]
fn as_many_devices_as_there_may_be_lose_as_many_as_they_can_do_without() {
    for (redundancy, count) in
        [(Redundancy::Raidz(3), 32), (Redundancy::Raidz(3), 4), (Redundancy::Mirror, 4)]
    {
        let env = Env::simulated(9);
        let images = images(&env, redundancy, count);
        let last = count - 1;
        let mut sets = vec![vec![0, 1, 2], vec![last - 2, last - 1, last], vec![0, count / 2, last]];
        let mut dice = Dice(count as u64);
        while sets.len() < 6 {
            let mut set: Vec<usize> = (0..3).map(|_| dice.below(count as u64) as usize).collect();
            set.sort_unstable();
            set.dedup();
            sets.extend((set.len() == 3).then_some(set));
        }
        for gone in sets {
            let when = format!("{redundancy:?} of {count} without {gone:?}");
            let pool = import(&env, &images, &gone).unwrap_or_else(|error| panic!("{when}: {error}"));
            check(&pool, FILES, &when);
            write(&pool, FILES..FILES + 5);
            pool.sync().expect("committed");
            pool.devices().scrub(ScrubCommand::Start).expect("begun");
            finish(&pool);
            assert_eq!(pool.state().scan.expect("one").lost, 0, "{when}");
            check(&pool, FILES + 5, &when);
            pool.export().expect("exported");
            // One more is too many, whichever it is. (Of four it would be all.)
            if count > 4 {
                let more = (0..count).find(|at| !gone.contains(at)).expect("there are more");
                let refused = import(&env, &images, &[&gone[..], &[more]].concat()).map(drop);
                assert!(matches!(refused, Err(Error::MissingDevices { .. })), "{when}: {refused:?}");
            }
        }
        let pool = import(&env, &images, &[]).expect("all are there");
        check(&pool, FILES, "with all");
        pool.export().expect("exported");
    }
}

#[test]
fn one_more_than_there_may_be_is_refused_and_nothing_is_written() {
    let env = Env::simulated(9);
    for (redundancy, count, most) in [
        (Redundancy::Raidz(1), 33, 32),
        (Redundancy::Raidz(2), 33, 32),
        (Redundancy::Raidz(3), 33, 32),
        (Redundancy::Mirror, 5, 4),
    ] {
        let devices = devices(count);
        let refused = create(&env, redundancy, &devices).map(drop).expect_err("too many");
        assert!(matches!(refused, Error::GroupSize { .. }), "{redundancy:?}: {refused}");
        let told = refused.to_string();
        assert!(told.contains(&most.to_string()) && told.contains(&count.to_string()), "{told}");
        assert!(!told.contains('\n'), "one sentence: {told}");
        assert!(devices.iter().all(|device| device.counts().writes == 0), "{redundancy:?}");
    }
}
