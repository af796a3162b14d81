//! Devices that err: counted by kind, faulted or marked when it is too much, and files named that
//! nothing can mend.

use std::sync::Arc;

use crate::common::{self, ROOT, finish, handles, import, mount, noise, spec};
use steadfast_device::memory::{Effect, Fault};
use steadfast_device::{Device, MemoryDevice, Operation, SegmentPlace};
use steadfast_env::Env;
use steadfast_format::{GroupClass, LeafState, SegmentId};
use steadfast_pool::inject::{Injection, When};
use steadfast_pool::{
    Cause, CreateSpec, ERRORS_MAX, EventKind, GroupHandles, Pool, Redundancy, ScrubCommand, WINDOW,
};

const FILES: u64 = 24;
const CHUNK: u32 = 64 << 10;

fn name(file: u64) -> Vec<u8> {
    format!("file{file}").into_bytes()
}

fn content(file: u64) -> Vec<u8> {
    noise(file, 300_000)
}

struct Machine {
    env: Env,
    devices: Vec<Arc<MemoryDevice>>,
}

impl Machine {
    /// Devices that hold an exported pool with files.
    fn new(redundancy: Redundancy, count: usize) -> Machine {
        let device = |at| Arc::new(MemoryDevice::new(&format!("device {at}"), 128 << 20));
        let machine = Machine { env: Env::simulated(7), devices: (0..count).map(device).collect() };
        let group =
            GroupHandles { redundancy, class: GroupClass::Normal, devices: handles(&machine.devices) };
        let spec = CreateSpec { groups: vec![group], ..spec(Vec::new(), None) };
        let pool = Pool::create(&machine.env, spec).expect("a pool");
        let (fs, handle) = mount(&pool, "tank");
        for file in 0..FILES {
            common::write_file(&fs, ROOT, &name(file), &content(file));
        }
        drop((fs, handle));
        pool.export().expect("exported");
        machine
    }

    fn import(&self) -> Pool {
        import(&self.env, handles(&self.devices), None).expect("imported")
    }

    /// Overwrites what a device holds between its labels.
    fn spoil(&self, at: usize, bytes: impl Fn(u32) -> Vec<u8>) {
        let device = &self.devices[at];
        let slots = u32::try_from((device.character().size_bytes - (1 << 20)) / u64::from(CHUNK)).unwrap();
        for slot in 0..slots {
            let place = SegmentPlace { segment: SegmentId(1), slot, slot_size: CHUNK };
            device.append_segment(place, 0, &bytes(slot)).expect("written");
        }
        device.flush().expect("flushed");
    }
}

impl Machine {
    /// Overwrites what a device holds of a file's content. Gives in how many pieces it was.
    fn spoil_file(&self, at: usize, file: u64) -> usize {
        const PIECE: usize = 4096;
        let wanted = content(file);
        let wanted: Vec<&[u8]> = wanted.chunks_exact(PIECE).collect();
        let mut spoilt = 0;
        let device = &self.devices[at];
        let slots = u32::try_from((device.character().size_bytes - (1 << 20)) / u64::from(CHUNK)).unwrap();
        for slot in 0..slots {
            let place = SegmentPlace { segment: SegmentId(1), slot, slot_size: CHUNK };
            let mut found = vec![0; CHUNK as usize];
            device.read_segment(place, 0, &mut found).expect("readable");
            for (index, _) in found.chunks(PIECE).enumerate().filter(|(_, piece)| wanted.contains(piece)) {
                let offset = u32::try_from(index * PIECE).unwrap();
                device.append_segment(place, offset, &noise(u64::from(slot), PIECE)).expect("written");
                spoilt += 1;
            }
        }
        spoilt
    }
}

fn read(pool: &Pool, file: u64) -> bool {
    let (fs, handle) = mount(pool, "tank");
    let right = common::read_file(&fs, ROOT, &name(file)) == content(file);
    drop((fs, handle));
    right
}

fn blank(_: u32) -> Vec<u8> {
    vec![0; CHUNK as usize]
}

/// Lets the pool do what it does when nothing is asked of it.
fn rest(pool: &Pool) {
    (0..50).for_each(|_| pool.step());
}

#[test]
fn wrong_bytes_are_counted_by_kind_and_mark_the_device_that_gave_them() {
    let machine = Machine::new(Redundancy::Raidz(2), 5);
    machine.spoil(1, blank);
    machine.spoil(3, |slot| noise(1000 + u64::from(slot), CHUNK as usize));
    let pool = machine.import();
    assert!((0..FILES).all(|file| read(&pool, file)));
    rest(&pool);
    let leaves = pool.state().leaves;
    let [zeroed, noisy] = [&leaves[1].counts, &leaves[3].counts];
    assert!(zeroed.stale_errors > 0 && zeroed.hash_errors == 0, "{zeroed:?}");
    assert!(noisy.hash_errors > 0 && noisy.stale_errors == 0, "{noisy:?}");
    assert_eq!(zeroed.checksum_errors, zeroed.stale_errors);
    assert!([0, 2, 4].iter().all(|&at| leaves[at].counts.checksum_errors == 0));
    let marked = |pool: &Pool| -> Vec<Option<Cause>> {
        pool.state().leaves.iter().map(|leaf| leaf.degraded).collect()
    };
    assert_eq!(marked(&pool), [None, Some(Cause::Checksum), None, Some(Cause::Checksum), None]);
    assert!(pool.state().leaves.iter().all(|leaf| leaf.config.state == LeafState::Online), "they are used");
    let told = pool.take_events();
    let degraded = told.iter().filter(|event| matches!(event.kind, EventKind::DeviceDegraded { .. }));
    assert_eq!(degraded.count(), 2, "each once");
    // A scrub finds the rest; then all is well, once somebody says so.
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    finish(&pool);
    let one = pool.state().leaves[1].config.path.clone();
    pool.clear_errors(&[one]);
    assert_eq!(marked(&pool), [None, None, None, Some(Cause::Checksum), None]);
    pool.clear_errors(&[]);
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    finish(&pool);
    rest(&pool);
    assert_eq!(marked(&pool), [None; 5]);
    assert!(pool.state().leaves.iter().all(|leaf| leaf.counts.checksum_errors == 0));
    pool.export().expect("exported");
}

/// Of writes that fell into the slot beside their own: what lies there is another's, and what
/// should lie in their own never came.
#[test]
fn writes_that_went_astray_are_misplaced_where_they_fell() {
    for (redundancy, count) in [(Redundancy::Mirror, 2), (Redundancy::Raidz(1), 4), (Redundancy::Raidz(2), 5)]
    {
        let machine = Machine::new(redundancy, count);
        let pool = machine.import();
        let path = pool.state().leaves[1].config.path.clone();
        pool.inject(&path, Injection::Misdirect { when: When::Every(2) }).expect("it is in use");
        {
            let (fs, _handle) = mount(&pool, "tank");
            for file in FILES..2 * FILES {
                common::write_file(&fs, ROOT, &name(file), &content(file));
            }
        }
        pool.sync().expect("committed");
        assert_eq!(pool.clear_injected(None), 1);
        pool.devices().scrub(ScrubCommand::Start).expect("begun");
        finish(&pool);
        let leaves = pool.state().leaves;
        let counts = &leaves[1].counts;
        assert!(counts.misplaced_errors > 0, "{redundancy:?}: {counts:?}");
        assert!(counts.stale_errors > 0, "{redundancy:?}: {counts:?}");
        assert_eq!((counts.authentication_errors, counts.read_errors), (0, 0), "{redundancy:?}");
        assert!((0..count).all(|at| at == 1 || leaves[at].counts.checksum_errors == 0), "{redundancy:?}");
        assert_eq!(pool.state().scan.expect("one").lost, 0, "{redundancy:?}");
        pool.devices().scrub(ScrubCommand::Start).expect("begun");
        finish(&pool);
        let scan = pool.state().scan.expect("one");
        assert_eq!((scan.repaired, scan.lost), (0, 0), "{redundancy:?}");
        pool.export().expect("exported");
        let pool = machine.import();
        assert!((0..2 * FILES).all(|file| read(&pool, file)), "{redundancy:?}");
        pool.export().expect("exported");
    }
}

#[test]
fn a_device_that_takes_too_long_is_counted_and_marked() {
    let machine = Machine::new(Redundancy::Raidz(1), 4);
    let pool = machine.import();
    let path = pool.state().leaves[2].config.path.clone();
    let slow = Injection::Slow { latency_ns: 31_000_000_000, bytes_per_second: 0 };
    pool.inject(&path, slow).expect("it is in use");
    assert!((0..FILES).all(|file| read(&pool, file)));
    rest(&pool);
    let leaves = pool.state().leaves;
    let calls: Vec<bool> = leaves.iter().map(|leaf| leaf.slow >= ERRORS_MAX).collect();
    assert_eq!(calls, [false, false, true, false]);
    assert!([0, 1, 3].iter().all(|&at| leaves[at].slow == 0));
    let marked: Vec<Option<Cause>> = leaves.iter().map(|leaf| leaf.degraded).collect();
    assert_eq!(marked, [None, None, Some(Cause::Slow), None]);
    pool.clear_injected(None);
    pool.clear_errors(&[]);
    assert!(pool.state().leaves.iter().all(|leaf| leaf.slow == 0 && leaf.degraded.is_none()));
    pool.export().expect("exported");
}

#[test]
fn a_device_that_cannot_be_read_is_faulted_as_long_as_it_can_be_spared() {
    let machine = Machine::new(Redundancy::Raidz(1), 4);
    let pool = machine.import();
    let fail = |at: usize| {
        machine.devices[at].arm(Fault { operation: Operation::Read, skip: 0, effect: Effect::FailAlways });
    };
    fail(2);
    assert!((0..FILES).all(|file| read(&pool, file)));
    rest(&pool);
    let state = pool.state();
    assert!(state.leaves[2].counts.read_errors >= ERRORS_MAX, "{:?}", state.leaves[2].counts);
    let states: Vec<LeafState> = state.leaves.iter().map(|leaf| leaf.config.state).collect();
    assert_eq!(states, [LeafState::Online, LeafState::Online, LeafState::Faulted, LeafState::Online]);
    assert!(state.suspended.is_none());
    // It is not asked again.
    let before = pool.state().leaves[2].counts.read_errors;
    assert!((0..FILES).all(|file| read(&pool, file)));
    assert_eq!(pool.state().leaves[2].counts.read_errors, before);
    pool.export().expect("exported");
}

#[test]
fn a_few_errors_far_apart_are_forgiven() {
    let machine = Machine::new(Redundancy::Raidz(1), 4);
    let pool = machine.import();
    for file in 0..FILES {
        machine.devices[1].arm(Fault { operation: Operation::Read, skip: 0, effect: Effect::FailOnce });
        assert!(read(&pool, file));
        rest(&pool);
        machine.env.clock.sleep(WINDOW);
    }
    let leaf = &pool.state().leaves[1];
    assert!(leaf.counts.read_errors >= ERRORS_MAX, "{:?}", leaf.counts);
    assert_eq!((leaf.config.state, leaf.degraded), (LeafState::Online, None));
    pool.export().expect("exported");
}

#[test]
fn what_a_scrub_finds_lost_is_named_by_file_and_range() {
    let machine = Machine::new(Redundancy::Raidz(1), 4);
    // A file on three devices, two of them with data at least: more than one parity makes up for.
    let pool = machine.import();
    let whole = pool.state().damaged;
    assert!(whole.is_empty(), "{whole:?}");
    pool.export().expect("exported");
    assert!(
        [0, 1, 2].into_iter().map(|at| machine.spoil_file(at, 5)).filter(|spoilt| *spoilt > 0).count() > 1
    );
    let pool = machine.import();
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    finish(&pool);
    let scan = pool.state().scan.expect("there was one");
    assert!(scan.lost > 0, "{scan:?}");
    let damaged = pool.state().damaged;
    let names: Vec<_> = damaged.iter().filter_map(|file| file.path.clone()).collect();
    assert!(names.contains(&name(5)), "named, though nobody read it: {damaged:?}");
    for file in &damaged {
        assert!(file.path.is_some() && !file.ranges.is_empty(), "{file:?}");
        assert!(file.ranges.iter().all(|(start, end)| start < end && *end <= 300_000), "{file:?}");
    }
    // Files that are not named can be read.
    for file in 0..FILES {
        let named = damaged.iter().any(|damage| damage.path.as_deref() == Some(&name(file)[..]));
        assert!(named || read(&pool, file), "file {file}");
    }
    pool.export().expect("exported");
}

/// Records of a file that cannot be read; the others are what was written.
fn unreadable(pool: &Pool, file: u64) -> Vec<(u64, u64)> {
    const RECORD: usize = 128 << 10;
    let (fs, handle) = mount(pool, "tank");
    let ino = fs.lookup(ROOT, &name(file)).expect("there").ino;
    let whole = content(file);
    let mut lost: Vec<(u64, u64)> = Vec::new();
    for start in (0..whole.len()).step_by(RECORD) {
        let end = whole.len().min(start + RECORD);
        let mut found = vec![0; end - start];
        match fs.read(ino, start as u64, &mut found) {
            Ok(_) => assert!(found == whole[start..end], "file {file} from {start}: other bytes"),
            Err(_) => match lost.last_mut().filter(|last| last.1 == start as u64) {
                Some(last) => last.1 = end as u64,
                None => lost.push((start as u64, end as u64)),
            },
        }
    }
    fs.forget(ino, 1);
    drop((fs, handle));
    lost
}

#[test]
fn one_device_more_than_can_be_spared_gives_a_report_that_is_exact() {
    for (redundancy, count) in [
        (Redundancy::Mirror, 2),
        (Redundancy::Raidz(1), 4),
        (Redundancy::Raidz(2), 6),
        (Redundancy::Raidz(3), 6),
    ] {
        let machine = Machine::new(redundancy, count);
        let spared = redundancy.spared(u32::try_from(count).unwrap()) as usize;
        // As many as can be spared lie about everything, and one more about two files.
        (0..spared).for_each(|at| machine.spoil(at, |slot| noise(77 + u64::from(slot), CHUNK as usize)));
        for file in [5, 9] {
            assert!(
                (spared..count).any(|at| machine.spoil_file(at, file) > 0),
                "{redundancy:?}: file {file}"
            );
        }
        let pool = machine.import();
        pool.devices().scrub(ScrubCommand::Start).expect("begun");
        finish(&pool);
        rest(&pool);
        assert!(pool.state().scan.expect("one").lost > 0, "{redundancy:?}");
        let told = pool.state().damaged;
        let named = |file: u64| -> Vec<(u64, u64)> {
            let ranges = told.iter().filter(|damage| damage.path.as_deref() == Some(&name(file)[..]));
            ranges.flat_map(|damage| damage.ranges.clone()).collect()
        };
        for file in 0..FILES {
            assert_eq!(named(file), unreadable(&pool, file), "{redundancy:?}: file {file}");
            assert!(!named(file).is_empty() || ![5, 9].contains(&file), "{redundancy:?}: file {file}");
        }
        assert!(told.iter().all(|damage| damage.path.is_some()), "{redundancy:?}: {told:?}");
        pool.export().expect("exported");
    }
}
