//! Spares: they wait, step in for devices that fail or are gone, and go when those are back or
//! replaced.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, ROOT, handles, import, mount, spec};
use steadfast_device::memory::{Effect, Fault};
use steadfast_device::{Device, MemoryDevice, Operation};
use steadfast_env::Env;
use steadfast_format::{GroupClass, LeafState};
use steadfast_pool::{CreateSpec, DeviceHandle, Error, EventKind, GroupHandles, Offline, Pool, Redundancy};

const FILES: u64 = 12;

fn content(file: u64) -> Vec<u8> {
    let mut state = file.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::new();
    while bytes.len() < 300_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

fn write(pool: &Pool, files: std::ops::Range<u64>) {
    let (fs, handle) = mount(pool, "tank");
    for file in files {
        common::write_file(&fs, ROOT, format!("file{file}").as_bytes(), &content(file));
    }
    drop((fs, handle));
    pool.sync().expect("committed");
}

fn check(pool: &Pool, files: std::ops::Range<u64>) {
    let (fs, handle) = mount(pool, "tank");
    for file in files {
        let bytes = common::read_file(&fs, ROOT, format!("file{file}").as_bytes());
        assert!(bytes == content(file), "file {file}");
    }
    drop((fs, handle));
}

struct Machine {
    env: Env,
    devices: Vec<Arc<MemoryDevice>>,
}

impl Machine {
    /// A pool on all devices but the last, which is its spare.
    fn new(redundancy: Redundancy, count: usize) -> (Machine, Pool) {
        let device = |at| Arc::new(MemoryDevice::new(&format!("device {at}"), 128 << 20));
        let devices: Vec<Arc<MemoryDevice>> = (0..=count).map(device).collect();
        let machine = Machine { env: Env::simulated(5), devices };
        let group = GroupHandles {
            redundancy,
            class: GroupClass::Normal,
            devices: handles(&machine.devices[..count]),
        };
        let spec = CreateSpec { groups: vec![group], ..spec(Vec::new(), None) };
        let pool = Pool::create(&machine.env, spec).expect("a pool");
        pool.devices().add_spares(handles(&machine.devices[count..]), false, false).expect("added");
        write(&pool, 0..FILES);
        (machine, pool)
    }

    fn import(&self, devices: &[usize]) -> Pool {
        let here: Vec<_> = devices.iter().map(|&at| Arc::clone(&self.devices[at])).collect();
        import(&self.env, handles(&here), None).expect("imported")
    }

    fn all(&self) -> Vec<usize> {
        (0..self.devices.len()).collect()
    }

    fn fail(&self, at: usize) {
        self.devices[at].arm(Fault { operation: Operation::Write, skip: 0, effect: Effect::FailAlways });
    }
}

/// Lets the pool do what it does when nothing is asked of it, until all of it is done.
fn settle(pool: &Pool) {
    for _ in 0..3 {
        (0..60).for_each(|_| pool.step());
        pool.sync().expect("the pool goes on");
    }
    for _ in 0..10_000 {
        if pool.scan_remaining() == [0, 0] {
            (0..60).for_each(|_| pool.step());
            pool.sync().expect("the pool goes on");
            return;
        }
        pool.step();
    }
    panic!("{:?}", pool.state().scan);
}

/// Waits as `zpool wait` does.
fn wait(pool: &Pool) {
    for _ in 0..10_000 {
        let seen = pool.turns();
        if pool.scan_remaining() == [0, 0] {
            return;
        }
        pool.wait_turn(seen, Duration::from_secs(600));
    }
    panic!("{:?}", pool.state().scan);
}

fn states(pool: &Pool) -> Vec<LeafState> {
    pool.state().leaves.iter().map(|leaf| leaf.config.state).collect()
}

const GROUPS: [(Redundancy, usize); 3] =
    [(Redundancy::Mirror, 2), (Redundancy::Raidz(1), 4), (Redundancy::Raidz(2), 5)];

#[test]
fn a_spare_steps_in_and_then_as_many_more_may_fail_as_before() {
    for (redundancy, count) in GROUPS {
        let (machine, pool) = Machine::new(redundancy, count);
        assert!(pool.state().spares[0].standing.is_none());
        machine.fail(1);
        write(&pool, FILES..2 * FILES);
        settle(&pool);
        let state = pool.state();
        assert!(state.spares[0].standing.is_some(), "{redundancy:?} {:?}", state.spares);
        assert_eq!(state.leaves.len(), count + 1, "{redundancy:?}");
        assert_eq!(state.leaves[1].config.state, LeafState::Spared, "{redundancy:?} {:?}", state.scan);
        let scan = state.scan.expect("a resilver");
        assert_eq!((scan.lost, scan.missing), (0, 0), "{redundancy:?}");
        let told = pool.take_events();
        assert!(told.iter().any(|event| matches!(event.kind, EventKind::Spare { word: "INUSE", .. })));
        // As if nothing had been.
        let spared = redundancy.spared(count as u32) as usize;
        let mut others: Vec<usize> = (0..state.leaves.len()).filter(|&at| at != 1).collect();
        for at in others.drain(..spared) {
            let path = state.leaves[at].config.path.clone();
            pool.offline(&path).unwrap_or_else(|error| panic!("{redundancy:?} {error}"));
        }
        check(&pool, 0..2 * FILES);
        pool.export().expect("exported");
        let pool = machine.import(&machine.all());
        check(&pool, 0..2 * FILES);
        assert!(pool.state().spares[0].standing.is_some(), "kept over the export");
        pool.export().expect("exported");
    }
}

#[test]
fn a_spare_goes_when_the_device_is_back_and_waits_again() {
    for (redundancy, count) in GROUPS {
        let (machine, pool) = Machine::new(redundancy, count);
        let path = pool.state().leaves[1].config.path.clone();
        machine.fail(1);
        write(&pool, FILES..2 * FILES);
        settle(&pool);
        assert!(matches!(
            pool.devices().remove_spare(&pool.state().spares[0].path),
            Err(Error::SpareInUse { .. })
        ));
        let named = [path.clone()];
        let other = pool.state().leaves[0].config.path.clone();
        assert!(matches!(pool.detach(&other), Err(Error::SpareInUse { .. })));
        assert!(matches!(pool.devices().remove_groups(&named, false), Err(Error::SpareInUse { .. })));
        machine.devices[1].disarm();
        let again = Arc::clone(&machine.devices[1]);
        let open =
            || -> steadfast_pool::Result<Arc<dyn Device>> { Ok(Arc::clone(&again) as Arc<dyn Device>) };
        assert!(pool.online(&path, &open).expect("it works again"));
        settle(&pool);
        settle(&pool);
        assert_eq!(states(&pool), vec![LeafState::Online; count], "{redundancy:?} {:?}", pool.state().scan);
        assert!(pool.state().spares[0].standing.is_none(), "{redundancy:?}");
        check(&pool, 0..2 * FILES);
        pool.export().expect("exported");
        // Nothing of the pool is on the spare.
        let pool = machine.import(&(0..count).collect::<Vec<_>>());
        check(&pool, 0..2 * FILES);
        assert!(pool.state().spares[0].trouble.is_some(), "it is not here");
        pool.export().expect("exported");
        let pool = machine.import(&machine.all());
        let spare = pool.state().spares[0].clone();
        assert_eq!((spare.standing, spare.trouble), (None, None));
        pool.devices().remove_spare(&spare.path).expect("it waits");
        assert!(pool.state().spares.is_empty());
        pool.export().expect("exported");
    }
}

#[test]
fn a_spare_steps_in_for_what_import_does_not_find_and_goes_when_it_is_replaced() {
    let (machine, pool) = Machine::new(Redundancy::Raidz(1), 4);
    let path = pool.state().leaves[2].config.path.clone();
    pool.export().expect("exported");
    let pool = machine.import(&[0, 1, 3, 4]);
    settle(&pool);
    assert_eq!(pool.state().leaves[2].config.state, LeafState::Spared, "{:?}", pool.state().leaves);
    let fresh = Arc::new(MemoryDevice::new("fresh", 128 << 20));
    let new = DeviceHandle { path: "fresh".into(), device: fresh as Arc<dyn Device> };
    pool.replace(&path, new, false).expect("begun");
    settle(&pool);
    settle(&pool);
    let state = pool.state();
    assert_eq!(states(&pool), [LeafState::Online; 4], "{:?}", state.scan);
    assert!(state.leaves.iter().any(|leaf| leaf.config.path == "fresh"));
    assert!(state.spares[0].standing.is_none() && state.spares[0].trouble.is_none());
    check(&pool, 0..FILES);
    pool.export().expect("exported");
}

#[test]
fn spares_that_make_no_sense_are_refused() {
    let (machine, pool) = Machine::new(Redundancy::Mirror, 2);
    for at in [0, 2] {
        let again = pool.devices().add_spares(handles(&machine.devices[at..=at]), true, false);
        assert!(matches!(again, Err(Error::Twice { .. })), "{again:?}");
    }
    let whole = Arc::new(MemoryDevice::whole_segments("objects", 128 << 20));
    let refused = pool.devices().add_spares(handles(&[whole]), false, false);
    assert!(matches!(refused, Err(Error::TooSmall { .. })), "{refused:?}");
    assert!(pool.devices().remove_spare("nothing").is_err());
    let dry = Arc::new(MemoryDevice::new("dry", 128 << 20));
    pool.devices().add_spares(handles(&[dry]), false, true).expect("it would do");
    assert_eq!(pool.state().spares.len(), 1);
    pool.export().expect("exported");
}

#[test]
fn what_waits_beside_is_added_or_taken_away_whole_or_not_at_all() {
    let (machine, pool) = Machine::new(Redundancy::Mirror, 2);
    let new = |name: &str| Arc::new(MemoryDevice::new(name, 128 << 20));
    let broken = Fault { operation: Operation::Write, skip: 0, effect: Effect::FailAlways };
    let waiting = |pool: &Pool| {
        let state = pool.state();
        (state.spares.len(), state.caches.len(), state.log_devices.len())
    };
    // The second of two cannot be written.
    let two = [new("one"), new("two")];
    two[1].arm(broken);
    pool.devices().add_spares(handles(&two), false, false).unwrap_err();
    pool.devices().add_caches(handles(&two), false, false).unwrap_err();
    assert_eq!(waiting(&pool), (1, 0, 0));
    // Labels cannot be written as long as a log device fails that they list.
    let (cache, log, other) = (new("cache"), new("log"), new("other log"));
    pool.devices().add_caches(handles(&[cache]), false, false).expect("added");
    pool.zil()
        .add_logs(GroupHandles::alone(handles(&[Arc::clone(&log), other])), false, false)
        .expect("added");
    log.arm(broken);
    let spare = pool.state().spares[0].path.clone();
    assert!(matches!(pool.devices().remove_spare(&spare), Err(Error::LogUnfit { .. })));
    assert_eq!(waiting(&pool), (1, 1, 2), "nothing was changed");
    // The next commit gives the log device up, and then they go.
    pool.sync().expect("committed");
    pool.devices().remove_spare(&spare).expect("removed");
    pool.devices().remove_cache("cache").expect("removed");
    pool.zil().remove_log("log").expect("removed");
    assert_eq!(waiting(&pool), (0, 0, 1));
    check(&pool, 0..FILES);
    pool.export().expect("exported");
    drop(machine);
}

#[test]
fn a_spare_is_sent_back_or_kept_for_good() {
    for (redundancy, count) in GROUPS {
        for keep in [false, true] {
            let (machine, pool) = Machine::new(redundancy, count);
            machine.fail(1);
            write(&pool, FILES..2 * FILES);
            settle(&pool);
            let state = pool.state();
            assert_eq!(state.leaves[1].config.state, LeafState::Spared, "{redundancy:?}");
            let (original, spare) = (state.leaves[1].config.path.clone(), state.spares[0].path.clone());
            if keep {
                pool.detach(&original).expect("the spare stays");
                settle(&pool);
                let state = pool.state();
                assert!(state.spares.is_empty(), "{redundancy:?} {:?}", state.spares);
                assert_eq!(states(&pool), vec![LeafState::Online; count], "{redundancy:?}");
                assert!(state.leaves.iter().any(|leaf| leaf.config.path == spare));
            } else {
                pool.detach(&spare).expect("it goes back");
                settle(&pool);
                let state = pool.state();
                assert!(state.spares[0].standing.is_none(), "{redundancy:?} {:?}", state.spares);
                assert_eq!(state.leaves.len(), count, "{redundancy:?} {:?}", states(&pool));
                assert_eq!(state.leaves[1].config.state, LeafState::Faulted, "{redundancy:?}");
            }
            check(&pool, 0..2 * FILES);
            write(&pool, 2 * FILES..3 * FILES);
            // As many more may fail as there is redundancy for: one less if the group lacks a
            // device.
            let spared = redundancy.spared(count as u32) as usize;
            let others: Vec<String> =
                pool.state().leaves.iter().map(|leaf| leaf.config.path.clone()).collect();
            let mut taken = 0;
            for path in others.iter().filter(|path| **path != original) {
                taken += usize::from(pool.offline(path).is_ok());
            }
            assert_eq!(taken, spared - usize::from(!keep), "{redundancy:?} keep: {keep}");
            check(&pool, 0..3 * FILES);
            pool.export().expect("exported");
            drop(pool);
            machine.devices[1].disarm();
            let without: Vec<usize> = (0..=count).filter(|at| *at != 1).collect();
            let pool = machine.import(&if keep { without } else { machine.all() });
            settle(&pool);
            check(&pool, 0..3 * FILES);
            pool.export().expect("exported");
        }
    }
}

/// Takes the power of a device away for the pool: what it is asked next fails, and it is out of
/// use.
fn lose(machine: &Machine, pool: &Pool, at: usize, files: std::ops::Range<u64>) {
    machine.fail(at);
    write(pool, files);
    settle(pool);
}

fn is_used(pool: &Pool) -> bool {
    pool.state().spares[0].standing.is_some()
}

#[test]
fn a_spare_that_was_sent_back_steps_in_at_the_next_import_and_when_its_device_fails_again() {
    for (redundancy, count) in GROUPS {
        let (machine, pool) = Machine::new(redundancy, count);
        let path = pool.state().leaves[1].config.path.clone();
        lose(&machine, &pool, 1, FILES..2 * FILES);
        assert!(is_used(&pool));
        let spare = pool.state().spares[0].path.clone();
        pool.detach(&spare).expect("it goes back");
        settle(&pool);
        assert!(!is_used(&pool), "{redundancy:?}");
        assert_eq!(pool.state().leaves[1].config.state, LeafState::Faulted, "{redundancy:?}");
        // A spare that the operator sent back stays away until the next import.
        write(&pool, 2 * FILES..3 * FILES);
        settle(&pool);
        assert!(!is_used(&pool), "{redundancy:?}");
        pool.export().expect("exported");
        drop(pool);
        let pool = machine.import(&machine.all());
        settle(&pool);
        assert!(is_used(&pool), "{redundancy:?} {:?}", pool.state().leaves);
        check(&pool, 0..3 * FILES);
        // Back, as a new one; sent back by that, it steps in for the next failure.
        machine.devices[1].disarm();
        let open = || -> steadfast_pool::Result<Arc<dyn Device>> {
            Ok(Arc::clone(&machine.devices[1]) as Arc<dyn Device>)
        };
        assert!(pool.online(&path, &open).expect("it works again"));
        settle(&pool);
        settle(&pool);
        assert!(!is_used(&pool), "{redundancy:?}");
        lose(&machine, &pool, 1, 3 * FILES..4 * FILES);
        assert!(is_used(&pool), "{redundancy:?} it failed again");
        // The same for one that was sent back by the operator and whose device came back.
        pool.detach(&spare).expect("it goes back");
        settle(&pool);
        machine.devices[1].disarm();
        assert!(pool.online(&path, &open).expect("it works again"));
        settle(&pool);
        assert_eq!(states(&pool), vec![LeafState::Online; count], "{redundancy:?} {:?}", pool.state().scan);
        lose(&machine, &pool, 1, 4 * FILES..5 * FILES);
        assert!(is_used(&pool), "{redundancy:?} it failed once more");
        check(&pool, 0..5 * FILES);
        pool.export().expect("exported");
    }
}

/// That a device failed, or is back, is seen before its spare has stepped in, or goes: whoever sees
/// it and waits finds that done.
#[test]
fn who_sees_a_failure_or_its_end_and_waits_waits_for_the_spare() {
    for (redundancy, count) in GROUPS {
        let (machine, pool) = Machine::new(redundancy, count);
        let path = pool.state().leaves[1].config.path.clone();
        machine.fail(1);
        write(&pool, FILES..2 * FILES);
        assert_eq!(states(&pool)[1], LeafState::Faulted, "{redundancy:?}: the commit told");
        assert!(!is_used(&pool), "{redundancy:?}: nobody has looked yet");
        assert_eq!(pool.scan_remaining(), [0, 1], "{redundancy:?}: a resilver will follow");
        wait(&pool);
        assert!(is_used(&pool), "{redundancy:?}");
        assert_eq!(states(&pool)[1], LeafState::Spared, "{redundancy:?}: and it counts for nothing");
        // A new one in its place; and one that comes back.
        let fresh = Arc::new(MemoryDevice::new("fresh", 128 << 20));
        let new = DeviceHandle { path: "fresh".into(), device: Arc::clone(&fresh) as Arc<dyn Device> };
        pool.replace(&path, new, false).expect("begun");
        wait(&pool);
        assert_eq!(states(&pool), vec![LeafState::Online; count], "{redundancy:?} {:?}", pool.state().scan);
        assert!(!is_used(&pool), "{redundancy:?}: it waits again");
        pool.offline_as("fresh", Offline { as_failed: true, until_import: false }).expect("out of use");
        wait(&pool);
        assert!(is_used(&pool), "{redundancy:?}");
        let open =
            || -> steadfast_pool::Result<Arc<dyn Device>> { Ok(Arc::clone(&fresh) as Arc<dyn Device>) };
        assert!(pool.online("fresh", &open).expect("it works"));
        wait(&pool);
        assert_eq!(states(&pool), vec![LeafState::Online; count], "{redundancy:?} {:?}", pool.state().scan);
        assert!(!is_used(&pool), "{redundancy:?}: it waits again");
        check(&pool, 0..2 * FILES);
        pool.export().expect("exported");
    }
}
