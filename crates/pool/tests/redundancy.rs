//! Pools of groups: made, degraded, scrubbed, with devices replaced, and imported after all of it.

use std::sync::Arc;

use crate::common::{self, ROOT, handles, import, mount, spec};
use steadfast_device::memory::{Effect, Fault};
use steadfast_device::{Device, MemoryDevice, Operation};
use steadfast_env::Env;
use steadfast_format::{GroupClass, LeafState};
use steadfast_pool::{
    CreateSpec, DeviceHandle, Error, GroupHandles, Pool, Redundancy, ScanKind, ScanState, ScrubCommand,
    Sweep, TrimCommand, TrimState,
};

const FILES: u64 = 24;

fn memory(identity: &str) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(identity, 128 << 20))
}

fn name(file: u64) -> Vec<u8> {
    format!("file{file}").into_bytes()
}

fn write_file(pool: &Pool, file: u64, bytes: &[u8]) {
    let (fs, handle) = mount(pool, "tank");
    let _ = fs.unlink(ROOT, &name(file));
    common::write_file(&fs, ROOT, &name(file), bytes);
    drop((fs, handle));
}

fn read_file(pool: &Pool, file: u64) -> Vec<u8> {
    let (fs, handle) = mount(pool, "tank");
    let bytes = common::read_file(&fs, ROOT, &name(file));
    drop((fs, handle));
    bytes
}

struct Machine {
    env: Env,
    devices: Vec<Arc<MemoryDevice>>,
}

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

impl Machine {
    fn new(devices: usize) -> Machine {
        let devices = (0..devices).map(|at| memory(&format!("device {at}")));
        Machine { env: Env::seeded(7), devices: devices.collect() }
    }

    fn create(&self, redundancy: Redundancy) -> Pool {
        let group = GroupHandles { redundancy, class: GroupClass::Normal, devices: handles(&self.devices) };
        let spec = CreateSpec { groups: vec![group], ..spec(Vec::new(), None) };
        let pool = Pool::create(&self.env, spec).expect("a pool");
        (0..FILES).for_each(|file| write_file(&pool, file, &content(file)));
        pool.sync().expect("committed");
        pool
    }

    fn import(&self, devices: &[usize]) -> Pool {
        let here: Vec<_> = devices.iter().map(|&at| Arc::clone(&self.devices[at])).collect();
        import(&self.env, handles(&here), None).expect("imported")
    }

    fn all(&self) -> Vec<usize> {
        (0..self.devices.len()).collect()
    }
}

fn check(pool: &Pool) {
    for file in 0..FILES {
        assert!(read_file(pool, file) == content(file), "file {file}");
    }
}

/// Lets the scan under way come to its end.
fn finish(pool: &Pool) {
    for _ in 0..10_000 {
        if pool.scan_remaining() == [0, 0] {
            return;
        }
        pool.sync().expect("the pool goes on");
    }
    panic!("{:?}", pool.state().scan);
}

/// Zeros of what a device holds between its labels.
fn flood(device: &MemoryDevice) {
    let size = device.character().size_bytes;
    for slot in 0..(size - (1 << 20)) / (64 << 10) {
        let place = steadfast_device::SegmentPlace {
            segment: steadfast_format::SegmentId(1),
            slot: u32::try_from(slot).unwrap(),
            slot_size: 64 << 10,
        };
        device.append_segment(place, 0, &[0; 64 << 10]).expect("written");
    }
    device.flush().expect("flushed");
}

const GROUPS: [(Redundancy, usize); 4] = [
    (Redundancy::Mirror, 2),
    (Redundancy::Raidz(1), 3),
    (Redundancy::Raidz(2), 6),
    (Redundancy::Raidz(3), 7),
];

#[test]
fn a_flooded_device_is_read_around_and_a_scrub_heals_it() {
    for (redundancy, count) in GROUPS {
        let machine = Machine::new(count);
        let pool = machine.create(redundancy);
        pool.export().expect("exported");
        flood(&machine.devices[1]);
        let pool = machine.import(&machine.all());
        check(&pool);
        pool.devices().scrub(ScrubCommand::Start).expect("begun");
        // In a world without tasks it may have ended by now.
        let again = pool.devices().scrub(ScrubCommand::Start);
        assert!(matches!(again, Ok(()) | Err(Error::ScanActive { .. })), "{again:?}");
        finish(&pool);
        let scan = pool.state().scan.expect("there was one");
        assert_eq!((scan.kind, scan.state, scan.lost), (ScanKind::Scrub, ScanState::Finished, 0));

        let leaves = pool.state().leaves;
        assert!(leaves[1].counts.checksum_errors > 0, "{redundancy:?}");
        assert!(leaves.iter().enumerate().all(|(at, leaf)| at == 1 || leaf.counts.checksum_errors == 0));
        // It holds now what it should: the others may fail.
        pool.devices().scrub(ScrubCommand::Start).expect("begun");
        finish(&pool);
        assert_eq!(pool.state().scan.expect("a second").repaired, 0, "{redundancy:?}");
        pool.export().expect("exported");
        flood(&machine.devices[0]);
        let pool = machine.import(&machine.all());
        check(&pool);
        assert_eq!(pool.state().scan.expect("kept over the export").state, ScanState::Finished);
        pool.export().expect("exported");
    }
}

/// The pool's own metadata lies on both devices of a mirror, and a read asks one of them: a scrub
/// asks both.
#[test]
fn a_scrub_mends_copies_that_nobody_reads() {
    const SNAPSHOTS: usize = 200;
    for spoilt in [0, 1] {
        let machine = Machine::new(2);
        let pool = machine.create(Redundancy::Mirror);
        for number in 0..SNAPSHOTS {
            let name = format!("tank@a-snapshot-whose-row-stays-where-it-is-{number}");
            pool.datasets().take_snapshots(&[name], &Default::default()).expect("taken");
        }
        pool.export().expect("exported");
        flood(&machine.devices[spoilt]);
        let pool = machine.import(&machine.all());
        for repaired in [true, false] {
            pool.devices().scrub(ScrubCommand::Start).expect("begun");
            finish(&pool);
            let scan = pool.state().scan.expect("a scrub");
            assert_eq!((scan.repaired > 0, scan.lost), (repaired, 0), "device {spoilt}: {scan:?}");
        }
        pool.export().expect("exported");
        // It has all of it, alone.
        let pool = machine.import(&[spoilt]);
        check(&pool);
        assert_eq!(pool.datasets().snapshot_names("tank").expect("listed").len(), SNAPSHOTS);
        pool.export().expect("exported");
    }
}

#[test]
fn a_device_is_replaced_while_the_pool_is_used() {
    for (redundancy, count) in GROUPS {
        let machine = Machine::new(count + 1);
        let all = machine.devices.clone();
        let first = Machine { env: machine.env.clone(), devices: all[..count].to_vec() };
        let pool = first.create(redundancy);
        let new = DeviceHandle { path: "new".into(), device: Arc::clone(&all[count]) as Arc<dyn Device> };
        let old = pool.state().leaves[1].config.path.clone();
        pool.replace(&old, new, false).expect("begun");
        write_file(&pool, FILES, &content(FILES));
        finish(&pool);
        for _ in 0..3 {
            write_file(&pool, FILES + 1, &content(3));
            pool.sync().expect("committed");
        }
        let state = pool.state();
        let paths: Vec<&str> = state.leaves.iter().map(|leaf| leaf.config.path.as_str()).collect();
        assert_eq!(paths.len(), count, "{redundancy:?} {paths:?} {:?}", state.scan);
        assert!(paths.contains(&"new") && !paths.contains(&old.as_str()), "{paths:?}");
        check(&pool);
        pool.export().expect("exported");
        // Without the old one and without another one everything is there.
        let mut left: Vec<usize> = (0..=count).filter(|&at| at != 1).collect();
        left.remove(0);
        let pool = machine.import(&left);
        check(&pool);
        pool.export().expect("exported");
    }
}

/// Bytes that scans of one pool read.
struct Read {
    /// A scrub before the second device was replaced.
    scrub: u64,
    /// The resilver that replaced it.
    resilver: u64,
    /// Bytes that it built.
    rebuilt: u64,
    /// A scrub after it.
    after: u64,
}

/// Replaces the second device of a pool of which something may have been spoilt before, between two
/// scrubs.
fn read_by_replacing(redundancy: Redundancy, count: usize, spoil: impl FnOnce(&MemoryDevice)) -> Read {
    let machine = Machine::new(count + 1);
    let first = Machine { env: machine.env.clone(), devices: machine.devices[..count].to_vec() };
    let pool = first.create(redundancy);
    let old = pool.state().leaves[1].config.path.clone();
    let scrubbed = |pool: &Pool| {
        pool.devices().scrub(ScrubCommand::Start).expect("begun");
        finish(pool);
        let scrub = pool.state().scan.expect("a scrub");
        assert_eq!((scrub.repaired, scrub.lost), (0, 0), "{redundancy:?}: everything was right before");
        scrub.read
    };
    // So that nothing is read from memory, and nothing is open.
    pool.export().expect("exported");
    let pool = machine.import(&(0..count).collect::<Vec<_>>());
    let scrub = scrubbed(&pool);
    pool.export().expect("exported");
    spoil(&machine.devices[1]);
    let pool = machine.import(&(0..count).collect::<Vec<_>>());
    let device = Arc::clone(&machine.devices[count]) as Arc<dyn Device>;
    pool.replace(&old, DeviceHandle { path: "new".into(), device }, false).expect("begun");
    finish(&pool);
    let resilver = pool.state().scan.expect("a resilver");
    assert_eq!(
        (resilver.kind, resilver.missing, resilver.lost),
        (ScanKind::Resilver, 0, 0),
        "{redundancy:?}"
    );
    check(&pool);
    let after = scrubbed(&pool);
    pool.export().expect("exported");
    let left: Vec<usize> = (0..=count).filter(|&at| at != 1).collect();
    let pool = machine.import(&left);
    check(&pool);
    pool.export().expect("exported");
    Read { scrub, resilver: resilver.read, rebuilt: resilver.rebuilt, after }
}

/// Compared within one pool each: how often a pool commits is not given, so two do not hold the
/// same bytes. An import and the scans themselves commit far less than a sixteenth of the content.
#[test]
fn a_resilver_reads_what_it_needs() {
    const SEGMENT: u64 = 2 << 20;
    for (redundancy, count) in GROUPS {
        let count = count as u64;
        let data = match redundancy {
            Redundancy::Raidz(parity) => count - u64::from(parity),
            _ => 1,
        };
        let told = |what: &str, read: &Read| {
            let Read { scrub, resilver, rebuilt, after } = read;
            format!(
                "{redundancy:?}, {what}: {scrub} scrubbed, {resilver} resilvered, {rebuilt} rebuilt, {after} after"
            )
        };
        // Of a healthy device its own columns.
        let read = read_by_replacing(redundancy, count as usize, |_| ());
        let most = read.scrub / count + read.scrub / 16;
        assert!((read.rebuilt..=most).contains(&read.resilver), "{}", told("healthy", &read));
        assert!(read.after <= read.scrub + read.scrub / 16, "{}", told("healthy", &read));
        // Of a flooded one, but for some that are tried, as many others as a row has data.
        let read = read_by_replacing(redundancy, count as usize, flood);
        assert!((data * read.rebuilt..read.scrub).contains(&read.resilver), "{}", told("flooded", &read));
        // A spoilt chunk is made up for by the other columns of its segment.
        let read = read_by_replacing(redundancy, count as usize, |device| {
            let place = steadfast_device::SegmentPlace {
                segment: steadfast_format::SegmentId(1),
                slot: 40,
                slot_size: 64 << 10,
            };
            device.append_segment(place, 0, &[0x5a; 64 << 10]).expect("written");
        });
        let most = read.scrub / count + read.scrub / 16 + SEGMENT;
        assert!((read.rebuilt..=most).contains(&read.resilver), "{}", told("spoilt", &read));
    }
}

#[test]
fn a_device_that_was_offline_gets_what_it_missed() {
    for (redundancy, count) in GROUPS {
        let machine = Machine::new(count);
        let pool = machine.create(redundancy);
        let path = pool.state().leaves[0].config.path.clone();
        pool.offline(&path).expect("it can be spared");
        assert_eq!(pool.state().leaves[0].config.state, LeafState::Offline);
        let other = pool.state().leaves[1].config.path.clone();
        let spare = redundancy.spared(count as u32);
        assert_eq!(pool.offline(&other).is_ok(), spare > 1, "{redundancy:?}");
        for file in 0..FILES {
            write_file(&pool, file, &content(file + 100));
        }
        pool.sync().expect("committed");
        let never = || -> steadfast_pool::Result<Arc<dyn Device>> { panic!("it is open") };
        assert!(pool.online(&path, &never).expect("it comes back"));
        if spare > 1 {
            assert!(pool.online(&other, &never).expect("it comes back"));
        }
        finish(&pool);
        let scan = pool.state().scan.expect("a resilver");
        assert_eq!((scan.kind, scan.state, scan.missing), (ScanKind::Resilver, ScanState::Finished, 0));
        assert!(scan.rebuilt > 0, "{redundancy:?} {scan:?}");
        pool.export().expect("exported");
        // The others as many as can be spared are gone: what it holds now is needed and right.
        let pool = machine.import(&(0..count - spare as usize).collect::<Vec<_>>());
        for file in 0..FILES {
            assert!(read_file(&pool, file) == content(file + 100), "{redundancy:?}: file {file}");
        }
        pool.export().expect("exported");
    }
}

/// Lets a sweep come to its end.
fn sweep(pool: &Pool, what: Sweep) {
    let left = || match what {
        Sweep::Trim => pool.devices().sweep_remaining(Sweep::Trim),
        Sweep::Initialize => pool.devices().sweep_remaining(Sweep::Initialize),
    };
    match what {
        Sweep::Trim => {
            pool.devices().sweep(Sweep::Trim, &[], TrimCommand::Start { rate: None }).expect("begun")
        }
        Sweep::Initialize => {
            pool.devices().sweep(Sweep::Initialize, &[], TrimCommand::Start { rate: None }).expect("begun")
        }
    }
    for _ in 0..10_000 {
        if left() == 0 {
            return;
        }
        pool.step();
    }
    panic!("{what:?}: {} bytes left", left());
}

/// A device that is offline keeps its place in a sweep, which goes on when it is back.
#[test]
fn a_sweep_rests_while_its_device_is_offline() {
    let (redundancy, count) = GROUPS[0];
    let machine = Machine { env: Env::simulated(7), ..Machine::new(count) };
    let pool = machine.create(redundancy);
    let path = pool.state().leaves[1].config.path.clone();
    let named = std::slice::from_ref(&path);
    let status = |pool: &Pool| [pool.state().leaves[1].trim, pool.state().leaves[1].initialize];
    for what in [Sweep::Trim, Sweep::Initialize] {
        // A slot now and then.
        let start = TrimCommand::Start { rate: Some(4096) };
        pool.devices().sweep(what, named, start).expect("begun");
    }
    (0..4).for_each(|_| pool.step());
    assert!(pool.devices().sweep_remaining_on(Sweep::Trim, named) > 0, "under way");
    let other = pool.state().leaves[0].config.path.clone();
    assert_eq!(pool.devices().sweep_remaining_on(Sweep::Trim, &[other]), 0, "of that one alone");
    pool.offline(&path).expect("it can be spared");
    let before = status(&pool);
    (0..50).for_each(|_| pool.step());
    for (status, before) in status(&pool).into_iter().zip(before) {
        assert_eq!((status.state, status.done_bytes), (TrimState::Active, before.done_bytes));
    }
    for what in [Sweep::Trim, Sweep::Initialize] {
        assert_eq!(pool.devices().sweep_remaining(what), 0, "nobody waits for {what:?}");
    }
    let never = || -> steadfast_pool::Result<Arc<dyn Device>> { panic!("it is open") };
    assert!(pool.online(&path, &never).expect("it comes back"));
    finish(&pool);
    for what in [Sweep::Trim, Sweep::Initialize] {
        assert!(pool.devices().sweep_remaining(what) > 0, "{what:?} goes on");
        pool.devices().sweep(what, named, TrimCommand::Suspend).expect("stopped");
        pool.devices().sweep(what, named, TrimCommand::Start { rate: Some(1 << 40) }).expect("faster");
        for _ in 0..10_000 {
            if pool.devices().sweep_remaining(what) == 0 {
                break;
            }
            pool.step();
        }
    }
    assert_eq!(status(&pool).map(|status| status.state), [TrimState::Complete; 2]);
    check(&pool);
    pool.export().expect("exported");
}

/// Free slots of a group are filled and discarded while a device is away, which gets the data that
/// it missed afterwards. Neither touches a column, nor a future one.
#[test]
fn free_slots_of_a_group_are_filled_and_discarded_while_a_device_is_away() {
    const AWAY: usize = 1;
    for (redundancy, count) in GROUPS {
        let machine = Machine { env: Env::simulated(7), ..Machine::new(count) };
        let pool = machine.create(redundancy);
        let path = pool.state().leaves[AWAY].config.path.clone();
        pool.offline(&path).expect("it can be spared");
        let rewrite = |files: std::ops::Range<u64>, seed: u64| {
            files.for_each(|file| write_file(&pool, file, &content(file + seed)));
            pool.sync().expect("committed");
        };
        rewrite(0..FILES / 2, 100);
        for (what, seed) in [(Sweep::Initialize, 200), (Sweep::Trim, 300)] {
            let free: Vec<u64> = {
                let state = pool.state();
                let slot = |at: usize| state.leaves[at].size_bytes / state.accounting.devices[at].slots;
                (0..count).map(|at| state.accounting.devices[at].free_slots * slot(at)).collect()
            };
            sweep(&pool, what);
            let leaves = pool.state().leaves;
            for (at, leaf) in leaves.iter().enumerate() {
                let status = if what == Sweep::Trim { leaf.trim } else { leaf.initialize };
                if at == AWAY {
                    assert_eq!(status.state, TrimState::Untrimmed, "{redundancy:?}: it was passed over");
                    continue;
                }
                assert_eq!(status.state, TrimState::Complete, "{redundancy:?} {what:?}: device {at}");
                // Commits beside it take and give back some.
                let some = 16 * leaf.size_bytes / 128;
                assert!(
                    free[at].abs_diff(status.trimmed_bytes) <= some && status.trimmed_bytes > some,
                    "{redundancy:?} {what:?}: device {at}: {} of {}",
                    status.trimmed_bytes,
                    free[at]
                );
            }
            rewrite(2..FILES / 3, seed);
        }
        // Named, it is refused, and those beside it are left alone.
        let before: Vec<_> = pool.state().leaves.iter().map(|leaf| (leaf.trim, leaf.initialize)).collect();
        let start = TrimCommand::Start { rate: None };
        for named in [vec![path.clone()], vec![pool.state().leaves[0].config.path.clone(), path.clone()]] {
            for refused in [
                pool.devices().sweep(Sweep::Trim, &named, start),
                pool.devices().sweep(Sweep::Initialize, &named, start),
            ] {
                assert!(matches!(refused, Err(Error::TrimOut { .. })), "{redundancy:?}: {refused:?}");
            }
        }
        let after: Vec<_> = pool.state().leaves.iter().map(|leaf| (leaf.trim, leaf.initialize)).collect();
        assert_eq!(before, after, "{redundancy:?}");
        let never = || -> steadfast_pool::Result<Arc<dyn Device>> { panic!("it is open") };
        assert!(pool.online(&path, &never).expect("it comes back"));
        finish(&pool);
        let scan = pool.state().scan.expect("a resilver");
        assert_eq!(
            (scan.kind, scan.state, scan.missing),
            (ScanKind::Resilver, ScanState::Finished, 0),
            "{redundancy:?}"
        );
        assert!(scan.rebuilt > 0, "{redundancy:?}");
        // Now of all of them, and what is written then.
        sweep(&pool, Sweep::Initialize);
        sweep(&pool, Sweep::Trim);
        rewrite(4..8, 400);
        let right = |pool: &Pool| {
            for file in 0..FILES {
                let seed = match file {
                    4..8 => 400,
                    2..4 => 300,
                    0..2 | 8..12 => 100,
                    _ => 0,
                };
                assert!(read_file(pool, file) == content(file + seed), "{redundancy:?}: file {file}");
            }
        };
        pool.devices().scrub(ScrubCommand::Start).expect("begun");
        finish(&pool);
        let scan = pool.state().scan.expect("a scrub");
        assert_eq!((scan.kind, scan.repaired, scan.lost), (ScanKind::Scrub, 0, 0), "{redundancy:?}");
        let leaves = pool.state().leaves;
        assert!(leaves.iter().all(|leaf| leaf.counts.checksum_errors == 0), "{redundancy:?}");
        pool.export().expect("exported");
        // Columns of the device that was away are needed now.
        let spare = redundancy.spared(count as u32) as usize;
        let here: Vec<usize> =
            (0..count).filter(|&at| at == AWAY || at >= spare + usize::from(spare > AWAY)).collect();
        assert_eq!(here.len(), count - spare);
        let pool = machine.import(&here);
        right(&pool);
        pool.export().expect("exported");
    }
}

#[test]
fn a_device_that_fails_is_faulted_and_the_pool_goes_on_until_too_many_do() {
    let machine = Machine::new(4);
    let pool = machine.create(Redundancy::Raidz(1));
    machine.devices[2].arm(Fault { operation: Operation::Write, skip: 3, effect: Effect::FailAlways });
    for file in 0..FILES {
        write_file(&pool, file, &content(file + 50));
    }
    pool.sync().expect("the others take it");
    pool.sync().expect("and again");
    let states: Vec<LeafState> = pool.state().leaves.iter().map(|leaf| leaf.config.state).collect();
    assert_eq!(states, [LeafState::Online, LeafState::Online, LeafState::Faulted, LeafState::Online]);
    assert!(pool.state().suspended.is_none());
    let path = pool.state().leaves[0].config.path.clone();
    assert!(matches!(pool.offline(&path), Err(Error::DeviceNeeded { .. })), "one is out already");
    machine.devices[2].disarm();
    let again = Arc::clone(&machine.devices[2]);
    let open = || -> steadfast_pool::Result<Arc<dyn Device>> { Ok(Arc::clone(&again) as Arc<dyn Device>) };
    let faulted = pool.state().leaves[2].config.path.clone();
    assert!(pool.online(&faulted, &open).expect("it works again"));
    finish(&pool);
    machine.devices[0].arm(Fault { operation: Operation::Flush, skip: 0, effect: Effect::FailAlways });
    write_file(&pool, 3, &content(99));
    pool.sync().expect("the others take it");
    machine.devices[1].arm(Fault { operation: Operation::Flush, skip: 0, effect: Effect::FailAlways });
    write_file(&pool, 4, &content(98));
    assert!(pool.sync().is_err(), "two of raidz1 are too many");
    assert!(pool.state().suspended.is_some());
    assert!(read_file(&pool, 3) == content(99), "reading goes on");
}

#[test]
fn groups_that_cannot_be_are_refused() {
    let machine = Machine::new(5);
    let create = |redundancy, devices: &[Arc<MemoryDevice>]| {
        let group = GroupHandles { redundancy, class: GroupClass::Normal, devices: handles(devices) };
        Pool::create(&machine.env, CreateSpec { groups: vec![group], ..spec(Vec::new(), None) }).map(drop)
    };
    let devices = &machine.devices;
    for (redundancy, count) in [(Redundancy::Mirror, 1), (Redundancy::Mirror, 5), (Redundancy::Raidz(2), 2)] {
        let refused = create(redundancy, &devices[..count]);
        assert!(matches!(refused, Err(Error::GroupSize { .. })), "{redundancy:?} {count} {refused:?}");
    }
    let whole = Arc::new(MemoryDevice::whole_segments("objects", 128 << 20));
    let refused = create(Redundancy::Mirror, &[Arc::clone(&devices[0]), whole]);
    assert!(matches!(refused, Err(Error::GroupOfObjects { .. })), "{refused:?}");
    let pool = Pool::create(&machine.env, spec(handles(&devices[..1]), None)).expect("a pool");
    let path = pool.state().leaves[0].config.path.clone();
    assert!(matches!(pool.offline(&path), Err(Error::DeviceNeeded { .. })));
    let new = DeviceHandle { path: "new".into(), device: Arc::clone(&devices[1]) as Arc<dyn Device> };
    pool.replace(&path, new, false).expect("one that stands alone is copied");
}

/// Pauses a scrub before its end: that of a small pool may be over before anybody can say a word.
fn pause_one(pool: &Pool) {
    for _ in 0..10_000 {
        pool.devices().scrub(ScrubCommand::Start).expect("begun");
        match pool.devices().scrub(ScrubCommand::Pause) {
            Ok(()) => return,
            Err(Error::ScanNone { .. }) => finish(pool),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("each was over at once");
}

#[test]
fn a_scrub_is_paused_over_an_export_and_goes_on() {
    let machine = Machine::new(3);
    let pool = machine.create(Redundancy::Raidz(1));
    assert!(matches!(pool.devices().scrub(ScrubCommand::Pause), Err(Error::ScanNone { .. })));
    pause_one(&pool);
    pool.export().expect("exported");
    let pool = machine.import(&machine.all());
    let paused = pool.state().scan.expect("kept");
    assert_eq!(paused.state, ScanState::Paused);
    assert!(paused.ended_ns >= paused.begun_ns && paused.ended_ns > 0, "the time of the pause: {paused:?}");
    pool.devices().scrub(ScrubCommand::Start).expect("it goes on");
    let state = pool.state();
    assert!(state.scan_pass.begun_ns >= paused.ended_ns, "the pause does not count");
    assert!(state.scan.is_some_and(|scan| scan.state == ScanState::Finished || scan.ended_ns == 0));
    finish(&pool);
    pause_one(&pool);
    pool.devices().scrub(ScrubCommand::Stop).expect("stopped");
    assert_eq!(pool.state().scan.expect("told").state, ScanState::Canceled);
    pool.export().expect("exported");
}
