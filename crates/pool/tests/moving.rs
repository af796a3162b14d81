//! Devices attached, detached and removed, and pools rebalanced: under use, over exports, and with
//! the power cut at every write.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{self, Dice, ROOT, import, mount, noise, spec};
use steadfast_device::memory::Fate;
use steadfast_device::{Character, Device, MemoryDevice, Presence, Result as DeviceResult, SegmentPlace};
use steadfast_env::Env;
use steadfast_format::medium::UBERBLOCK_SIZE;
use steadfast_format::{GroupClass, LeafState, Txg};
use steadfast_pool::inject::{Calls, Injection, When};
use steadfast_pool::{
    CreateSpec, DeviceHandle, Error, GroupHandles, Pool, Redundancy, ScanKind, ScanState, ScrubCommand,
};

const FILES: u64 = 16;
const BYTES: usize = 200_000;

/// A line that all devices hang on: it breaks at the n-th write or flush of any of them.
#[derive(Default)]
struct Line {
    left: AtomicI64,
    /// How long a label takes.
    label_ms: AtomicU64,
    devices: std::sync::Mutex<Vec<Arc<MemoryDevice>>>,
}

impl Line {
    fn cut_after(&self, writes: i64) {
        self.left.store(writes, Ordering::SeqCst);
    }

    fn is_cut(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    fn pull(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.devices.lock().unwrap().iter().for_each(|device| device.power_off());
        }
    }
}

struct Wired(Arc<MemoryDevice>, Arc<Line>);

impl Device for Wired {
    fn character(&self) -> Character {
        self.0.character()
    }
    fn presence(&self) -> Presence {
        self.0.presence()
    }
    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> DeviceResult<()> {
        self.1.pull();
        self.0.put_segment(place, bytes)
    }
    fn append_segment(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> DeviceResult<()> {
        self.1.pull();
        self.0.append_segment(place, offset, bytes)
    }
    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> DeviceResult<()> {
        self.0.read_segment(place, offset, out)
    }
    fn discard_segment(&self, place: SegmentPlace) -> DeviceResult<()> {
        self.0.discard_segment(place)
    }
    fn objects(&self) -> Option<&dyn steadfast_device::Objects> {
        self.0.objects()
    }
    fn write_label(&self, copy: usize, bytes: &[u8]) -> DeviceResult<()> {
        self.1.pull();
        std::thread::sleep(Duration::from_millis(self.1.label_ms.load(Ordering::Relaxed)));
        self.0.write_label(copy, bytes)
    }
    fn read_label(&self, copy: usize) -> DeviceResult<Vec<u8>> {
        self.0.read_label(copy)
    }
    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> DeviceResult<()> {
        self.1.pull();
        self.0.write_uberblock(copy, txg, bytes)
    }
    fn read_uberblocks(&self, copy: usize) -> DeviceResult<Vec<Vec<u8>>> {
        self.0.read_uberblocks(copy)
    }
    fn flush(&self) -> DeviceResult<()> {
        self.1.pull();
        self.0.flush()
    }
    fn refresh_size(&self) -> DeviceResult<u64> {
        self.0.refresh_size()
    }
}

/// Devices "d0", "d1" and so on, on one line.
struct Machine {
    env: Env,
    line: Arc<Line>,
    devices: Vec<Arc<MemoryDevice>>,
}

impl Machine {
    fn new(devices: usize) -> Machine {
        let made = (0..devices).map(|at| Arc::new(MemoryDevice::new(&format!("d{at}"), 128 << 20)));
        let devices: Vec<_> = made.collect();
        let line = Arc::new(Line::default());
        line.cut_after(i64::MAX);
        line.devices.lock().unwrap().extend(devices.iter().cloned());
        Machine { env: Env::seeded(7), line, devices }
    }

    fn handle(&self, at: usize) -> DeviceHandle {
        let device = Wired(Arc::clone(&self.devices[at]), Arc::clone(&self.line));
        DeviceHandle { path: format!("d{at}"), device: Arc::new(device) }
    }

    fn group(&self, redundancy: Redundancy, devices: &[usize]) -> GroupHandles {
        GroupHandles { redundancy, class: GroupClass::Normal, devices: self.handles(devices) }
    }

    fn handles(&self, devices: &[usize]) -> Vec<DeviceHandle> {
        devices.iter().map(|&at| self.handle(at)).collect()
    }

    fn create(&self, groups: Vec<GroupHandles>) -> Pool {
        let pool = Pool::create(&self.env, CreateSpec { groups, ..spec(Vec::new(), None) }).expect("a pool");
        write(&pool, 0..FILES, 0);
        pool.sync().expect("committed");
        pool
    }

    fn import(&self, devices: &[usize]) -> Pool {
        let handles = devices.iter().map(|&at| self.handle(at)).collect();
        import(&self.env, handles, None).unwrap_or_else(|error| panic!("{devices:?}: {error}"))
    }
}

fn name(file: u64) -> Vec<u8> {
    format!("file{file}").into_bytes()
}

fn content(file: u64, version: u64) -> Vec<u8> {
    noise(file * 100 + version, BYTES)
}

fn write(pool: &Pool, files: std::ops::Range<u64>, version: u64) {
    let (fs, _handle) = mount(pool, "tank");
    for file in files {
        let _ = fs.unlink(ROOT, &name(file));
        common::write_file(&fs, ROOT, &name(file), &content(file, version));
    }
}

fn check(pool: &Pool, version: u64, what: &str) {
    let (fs, _handle) = mount(pool, "tank");
    for file in 0..FILES {
        assert!(common::read_file(&fs, ROOT, &name(file)) == content(file, version), "{what}: file {file}");
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

fn paths(pool: &Pool) -> Vec<String> {
    pool.state().leaves.into_iter().map(|leaf| leaf.config.path).collect()
}

fn capacity(pool: &Pool) -> u64 {
    pool.state().accounting.capacity_bytes
}

#[test]
fn a_device_more_makes_a_raidz_group_larger_and_gets_its_share() {
    for (redundancy, count) in [(Redundancy::Raidz(1), 3), (Redundancy::Raidz(2), 4)] {
        let machine = Machine::new(count + 1);
        let pool = machine.create(vec![machine.group(redundancy, &(0..count).collect::<Vec<_>>())]);
        {
            let (fs, _handle) = mount(&pool, "tank");
            for file in 0..5_u64 {
                common::write_file(&fs, ROOT, format!("big{file}").as_bytes(), &noise(file, 10 << 20));
            }
        }
        pool.sync().expect("committed");
        let before = capacity(&pool);
        pool.attach("d1", machine.handle(count), false).expect("begun");
        write(&pool, 0..FILES, 1);
        finish(&pool);
        pool.sync().expect("committed");
        let moving = pool.state().moving.expect("a job");
        assert_eq!((moving.kind, moving.state), (ScanKind::Expand, ScanState::Finished));
        assert!(moving.rebuilt > 0, "columns of old segments moved: {moving:?}");
        let gain = capacity(&pool) as f64 / before as f64;
        let fair = (count + 1) as f64 / count as f64;
        assert!((gain / fair - 1.0).abs() < 0.1, "{gain} of {fair}");
        let usage = pool.state().accounting.devices;
        let taken: Vec<u64> = usage.iter().map(|device| device.slots - device.free_slots).collect();
        let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
        assert!(most - least <= 6, "{taken:?}");
        check(&pool, 1, "widened");
        pool.export().expect("exported");
        // As many as ever may be lost, the new one among them or not.
        for lost in [0, count] {
            let here: Vec<usize> = (0..=count).filter(|&at| at != lost).collect();
            let pool = machine.import(&here);
            check(&pool, 1, "degraded");
            pool.close().expect("closed");
        }
    }
}

#[test]
fn a_single_device_becomes_a_mirror_and_one_again() {
    let machine = Machine::new(6);
    let pool = machine.create(vec![machine.group(Redundancy::None, &[0])]);
    pool.attach("d0", machine.handle(1), false).expect("begun");
    finish(&pool);
    let scan = pool.state().scan.expect("a resilver");
    assert_eq!(
        (scan.kind, scan.state, scan.missing, scan.lost),
        (ScanKind::Resilver, ScanState::Finished, 0, 0)
    );
    check(&pool, 0, "mirrored");
    pool.export().expect("exported");
    for alone in [0, 1] {
        let pool = machine.import(&[alone]);
        check(&pool, 0, "one of two");
        pool.close().expect("closed");
    }
    let pool = machine.import(&[0, 1]);
    finish(&pool);
    // To three and four, and no further.
    pool.attach("d1", machine.handle(2), false).expect("begun");
    pool.attach("d1", machine.handle(3), false).expect("begun while the third is resilvered");
    finish(&pool);
    let fifth = pool.attach("d1", machine.handle(4), false);
    assert!(matches!(fifth, Err(Error::GroupSize { .. })), "{fifth:?}");
    write(&pool, 0..FILES, 1);
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    finish(&pool);
    assert_eq!(pool.state().scan.expect("a scrub").repaired, 0, "all copies are alike");
    for gone in ["d0", "d2", "d3"] {
        pool.detach(gone).expect("three others are there");
        assert!(!paths(&pool).contains(&gone.to_owned()));
        check(&pool, 1, gone);
    }
    assert!(matches!(pool.detach("d1"), Err(Error::DeviceNeeded { .. })));
    assert!(matches!(pool.offline("d1"), Err(Error::DeviceNeeded { .. })));
    pool.devices().scrub(ScrubCommand::Start).expect("its checksums are there");
    finish(&pool);
    pool.export().expect("exported");
    let pool = machine.import(&[1]);
    check(&pool, 1, "the last");
    // A device that left is blank, and may come again.
    pool.attach("d1", machine.handle(0), false).expect("begun");
    finish(&pool);
    // One that stands alone is replaced.
    pool.detach("d0").expect("the other is there");
    pool.replace("d1", machine.handle(5), false).expect("begun");
    finish(&pool);
    pool.sync().expect("committed");
    assert_eq!(paths(&pool), ["d5"]);
    check(&pool, 1, "replaced");
    pool.export().expect("exported");
    check(&machine.import(&[5]), 1, "replaced and imported");
}

#[test]
fn what_was_detached_is_free_at_once() {
    let machine = Machine::new(3);
    let pool = machine.create(vec![machine.group(Redundancy::Mirror, &[0, 1])]);
    // The commit that erases its labels takes its time.
    machine.line.label_ms.store(2, Ordering::Relaxed);
    for round in 0..15 {
        // Not by force: what carries the label of a pool in use is refused.
        pool.attach("d0", machine.handle(2), false).unwrap_or_else(|error| panic!("round {round}: {error}"));
        finish(&pool);
        pool.detach("d2").expect("two others are there");
    }
    check(&pool, 0, "attached and detached");
    pool.export().expect("exported");
}

#[test]
fn the_last_copy_is_not_let_go() {
    let machine = Machine::new(5);
    let pool = machine.create(vec![machine.group(Redundancy::Mirror, &[0, 1])]);
    pool.offline("d0").expect("the other is there");
    write(&pool, 0..4, 1);
    pool.sync().expect("committed");
    assert!(matches!(pool.detach("d1"), Err(Error::DeviceNeeded { .. })));
    let open = || -> steadfast_pool::Result<Arc<dyn Device>> { panic!("it is open") };
    pool.online("d0", &open).expect("it comes back");
    // Data that it missed is not there before the resilver ends.
    if pool.detach("d1").is_ok() {
        // (`scan_remaining` counts d1 itself now, which leaves.)
        let scan = pool.state().scan.expect("what brought d0 up to date");
        let ended = (ScanKind::Resilver, ScanState::Finished, 0);
        assert_eq!((scan.kind, scan.state, scan.missing), ended, "it had ended before");
    }
    pool.export().expect("exported");

    let machine = Machine::new(5);
    let pool = machine.create(vec![machine.group(Redundancy::Raidz(1), &[0, 1, 2])]);
    assert!(matches!(pool.detach("d1"), Err(Error::Detach { .. })));
    let twice = pool.attach("d1", machine.handle(0), true);
    assert!(matches!(twice, Err(Error::Twice { .. })), "{twice:?}");
    assert!(matches!(pool.devices().remove_groups(&["d0".to_owned()], false), Err(Error::LastGroup { .. })));
    assert!(matches!(pool.devices().cancel_remove(), Err(Error::MoveNone { .. })));
    assert!(matches!(pool.devices().rebalance(ScrubCommand::Pause), Err(Error::MoveNone { .. })));
}

#[test]
fn a_replacement_is_ended_by_detaching_either_half() {
    for redundancy in [Redundancy::Mirror, Redundancy::Raidz(1)] {
        for old_leaves in [true, false] {
            let machine = Machine::new(4);
            let pool = machine.create(vec![machine.group(redundancy, &[0, 1, 2])]);
            pool.replace("d1", machine.handle(3), false).expect("begun");
            let (gone, stays) = if old_leaves { ("d1", "d3") } else { ("d3", "d1") };
            // The resilver may have ended by now, and the old half left.
            let ended = pool.detach(gone);
            finish(&pool);
            pool.sync().expect("committed");
            let left = paths(&pool);
            match ended {
                Ok(()) => assert!(!left.contains(&gone.to_owned()), "{redundancy:?} {left:?}"),
                Err(_) => assert_eq!(left, ["d0", "d3", "d2"], "{redundancy:?}"),
            }
            let both = left.len() == 3 && left.contains(&stays.to_owned());
            assert!(both || left.iter().all(|path| path != "d1"), "{redundancy:?} {left:?}");
            check(&pool, 0, "ended");
            pool.export().expect("exported");
        }
    }
}

/// Kinds of groups for pools of two: devices of the first, devices of the second.
const PAIRS: [(Redundancy, &[usize], Redundancy, &[usize]); 4] = [
    (Redundancy::None, &[0], Redundancy::None, &[1]),
    (Redundancy::Mirror, &[0, 1], Redundancy::Mirror, &[2, 3]),
    (Redundancy::Raidz(1), &[0, 1, 2], Redundancy::Mirror, &[3, 4]),
    (Redundancy::Mirror, &[0, 1], Redundancy::Raidz(2), &[2, 3, 4, 5]),
];

#[test]
fn a_group_is_removed_while_the_pool_is_used() {
    for (first, of_first, second, of_second) in PAIRS {
        for back in [false, true] {
            let machine = Machine::new(6);
            let groups = vec![machine.group(first, of_first), machine.group(second, of_second)];
            let pool = machine.create(groups);
            let (gone, left) = if back { (of_second, of_first) } else { (of_first, of_second) };
            let path = format!("d{}", gone[0]);
            let before = pool.state().accounting.live_bytes;
            pool.devices().remove_groups(std::slice::from_ref(&path), true).expect("it could be");
            assert_eq!(paths(&pool).len(), of_first.len() + of_second.len(), "a dry run changes nothing");
            pool.devices().remove_groups(std::slice::from_ref(&path), false).expect("begun");
            write(&pool, 0..FILES / 2, 0);
            finish(&pool);
            pool.sync().expect("committed");
            let expected: Vec<String> = left.iter().map(|at| format!("d{at}")).collect();
            assert_eq!(paths(&pool), expected, "{first:?} {second:?} {:?}", pool.state().moving);
            let moving = pool.state().moving.expect("a job");
            assert_eq!((moving.kind, moving.state, moving.lost), (ScanKind::Remove, ScanState::Finished, 0));
            assert!(pool.state().accounting.live_bytes < 2 * before);
            check(&pool, 0, "removed");
            pool.export().expect("exported");
            let pool = machine.import(left);
            check(&pool, 0, "removed and imported");
            assert!(matches!(
                pool.devices().remove_groups(&[expected[0].clone()], false),
                Err(Error::LastGroup { .. })
            ));
            // A removed device is blank, and can be added again.
            let alone = GroupHandles {
                redundancy: Redundancy::None,
                class: GroupClass::Normal,
                devices: vec![machine.handle(gone[0])],
            };
            pool.devices().add_groups(vec![alone], false, false).expect("added");
            pool.export().expect("exported");
        }
    }
}

#[test]
fn a_device_can_be_added_after_the_youngest_one_has_left() {
    let machine = Machine::new(4);
    let pool =
        machine.create(vec![machine.group(Redundancy::None, &[0]), machine.group(Redundancy::None, &[1])]);
    pool.devices().remove_groups(&["d1".to_owned()], false).expect("begun");
    finish(&pool);
    pool.sync().expect("committed");
    assert_eq!(paths(&pool), ["d0"]);
    // Its number is not given out again before the next import.
    pool.devices().add_groups(vec![machine.group(Redundancy::Mirror, &[2, 3])], true, false).expect("added");
    write(&pool, 0..FILES, 1);
    check(&pool, 1, "added");
    pool.export().expect("exported");
    let pool = machine.import(&[0, 2, 3]);
    check(&pool, 1, "imported");
    pool.export().expect("exported");
}

#[test]
fn a_removal_is_refused_without_room_and_can_be_cancelled() {
    let machine = Machine::new(2);
    let pool =
        machine.create(vec![machine.group(Redundancy::None, &[0]), machine.group(Redundancy::None, &[1])]);
    {
        let (fs, _handle) = mount(&pool, "tank");
        for file in 0..14_u64 {
            common::write_file(&fs, ROOT, format!("big{file}").as_bytes(), &noise(file, 10 << 20));
        }
    }
    pool.sync().expect("committed");
    let refused = pool.devices().remove_groups(&["d1".to_owned()], false);
    assert!(matches!(refused, Err(Error::RemoveRoom { .. })), "{refused:?}");
    {
        let (fs, _handle) = mount(&pool, "tank");
        for file in 3..14_u64 {
            fs.unlink(ROOT, format!("big{file}").as_bytes()).expect("removed");
        }
    }
    pool.sync().expect("committed");
    pool.sync().expect("committed");
    let before = capacity(&pool);
    pool.devices().remove_groups(&["d1".to_owned()], false).expect("begun");
    assert!(capacity(&pool) < before, "what leaves is no room");
    match pool.devices().cancel_remove() {
        Ok(()) => {
            assert_eq!(capacity(&pool), before);
            assert_eq!(pool.state().moving.expect("told").state, ScanState::Canceled);
            assert!(pool.state().leaves.iter().all(|leaf| leaf.config.state == LeafState::Online));
        }
        // In a world without tasks it may have ended by now.
        Err(error) => assert!(matches!(error, Error::MoveNone { .. })),
    }
    finish(&pool);
    check(&pool, 0, "cancelled");
    pool.export().expect("exported");
}

/// Two devices that stand alone, with files on both.
fn two_single_devices(machine: &Machine) -> Pool {
    let pool =
        machine.create(vec![machine.group(Redundancy::None, &[0]), machine.group(Redundancy::None, &[1])]);
    write(&pool, 0..FILES, 1);
    pool.sync().expect("committed");
    pool
}

#[test]
fn a_removal_that_is_under_way_is_cancelled() {
    // Nothing happens between two calls here.
    let machine = Machine { env: Env::simulated(7), ..Machine::new(2) };
    let pool = two_single_devices(&machine);
    // A step ends after one transfer.
    let slow = Injection::Slow { latency_ns: 60_000_000_000, bytes_per_second: 0 };
    pool.inject("d1", slow).expect("it is in use");
    pool.devices().remove_groups(&["d1".to_owned()], false).expect("begun");
    let state = pool.state().moving.expect("told").state;
    assert_eq!(state, ScanState::Active);
    pool.devices().cancel_remove().expect("it is under way");
    pool.clear_injected(None);
    assert_eq!(pool.state().moving.expect("told").state, ScanState::Canceled);
    assert!(pool.state().leaves.iter().all(|leaf| leaf.config.state == LeafState::Online));
    finish(&pool);
    assert_eq!(paths(&pool), ["d0", "d1"]);
    check(&pool, 1, "cancelled");
    pool.export().expect("exported");
    check(&machine.import(&[0, 1]), 1, "imported");
}

/// [removal.4]
#[test]
fn a_removal_that_cannot_read_a_segment_ends_and_its_device_stays() {
    let machine = Machine::new(2);
    let pool = two_single_devices(&machine);
    pool.inject("d1", Injection::Fail { calls: Calls::Reads, when: When::Every(1) }).expect("it is in use");
    pool.devices().remove_groups(&["d1".to_owned()], false).expect("begun");
    finish(&pool);
    assert_eq!(pool.state().moving.expect("told").state, ScanState::Canceled);
    assert_eq!(pool.clear_injected(Some("d1")), 1);
    assert_eq!(paths(&pool), ["d0", "d1"]);
    check(&pool, 1, "it stays");
    pool.devices().remove_groups(&["d1".to_owned()], false).expect("it can be read again");
    finish(&pool);
    pool.sync().expect("committed");
    assert_eq!(paths(&pool), ["d0"]);
    check(&pool, 1, "removed");
    pool.export().expect("exported");
}

#[test]
fn a_rebalance_fills_an_added_group_and_can_be_stopped() {
    // Three columns of data are no power of two: the last row of a segment reaches beyond its end.
    let cases: [(Redundancy, &[usize], &[usize]); 3] = [
        (Redundancy::None, &[0], &[1]),
        (Redundancy::Mirror, &[0, 1], &[2, 3]),
        (Redundancy::Raidz(1), &[0, 1, 2, 3], &[4, 5, 6, 7]),
    ];
    for (redundancy, first, second) in cases {
        let machine = Machine::new(8);
        let pool = machine.create(vec![machine.group(redundancy, first)]);
        {
            let (fs, _handle) = mount(&pool, "tank");
            for file in 0..4_u64 {
                common::write_file(&fs, ROOT, format!("big{file}").as_bytes(), &noise(file, 10 << 20));
            }
        }
        pool.sync().expect("committed");
        pool.devices().add_groups(vec![machine.group(redundancy, second)], false, false).expect("added");
        pool.devices().rebalance(ScrubCommand::Start).expect("begun");
        if pool.devices().rebalance(ScrubCommand::Pause).is_ok() {
            pool.export().expect("exported");
            let pool = machine.import(&(0..first.len() + second.len()).collect::<Vec<_>>());
            assert_eq!(pool.state().moving.expect("kept").state, ScanState::Paused);
            pool.devices().rebalance(ScrubCommand::Start).expect("it goes on");
            finish(&pool);
            evened(&pool);
        } else {
            finish(&pool);
            evened(&pool);
        }
    }
}

fn evened(pool: &Pool) {
    pool.sync().expect("committed");
    check(pool, 0, "rebalanced");
    let devices = pool.state().accounting.devices;
    let taken: Vec<u64> = devices.iter().map(|device| device.slots - device.free_slots).collect();
    let (least, most) = (*taken.iter().min().unwrap(), *taken.iter().max().unwrap());
    assert!(least * 2 > most, "{taken:?} {:?}", pool.state().moving);
}

/// A verb on a pool: the devices at its beginning, and those that are there if it comes to its end.
struct Case {
    what: &'static str,
    groups: &'static [(Redundancy, &'static [usize])],
    begin: fn(&Machine, &Pool) -> Result<(), Error>,
    /// A device that may be lost once all is done.
    spared: Option<usize>,
}

const CASES: [Case; 6] = [
    Case {
        what: "attach to a single device",
        groups: &[(Redundancy::None, &[0])],
        begin: |machine, pool| pool.attach("d0", machine.handle(5), false),
        spared: Some(0),
    },
    Case {
        what: "attach to raidz1",
        groups: &[(Redundancy::Raidz(1), &[0, 1, 2])],
        begin: |machine, pool| pool.attach("d0", machine.handle(5), false),
        spared: Some(1),
    },
    Case {
        what: "detach from a mirror",
        groups: &[(Redundancy::Mirror, &[0, 1, 2])],
        begin: |_, pool| pool.detach("d0"),
        spared: Some(1),
    },
    Case {
        what: "remove a single device",
        groups: &[(Redundancy::None, &[0]), (Redundancy::None, &[1])],
        begin: |_, pool| pool.devices().remove_groups(&["d0".to_owned()], false),
        spared: None,
    },
    Case {
        what: "remove a mirror from beside raidz1",
        groups: &[(Redundancy::Mirror, &[0, 1]), (Redundancy::Raidz(1), &[2, 3, 4])],
        begin: |_, pool| pool.devices().remove_groups(&["d0".to_owned()], false),
        spared: Some(2),
    },
    Case {
        what: "replace a single device",
        groups: &[(Redundancy::None, &[0])],
        begin: |machine, pool| pool.replace("d0", machine.handle(5), false),
        spared: None,
    },
];

/// The power goes at the n-th write or flush, for every n: what was there is there, and the verb
/// goes on or never was.
#[test]
fn the_power_goes_at_any_write_of_a_verb() {
    for case in &CASES {
        let machine = Machine::new(6);
        let groups = case.groups.iter().map(|(redundancy, devices)| machine.group(*redundancy, devices));
        machine.create(groups.collect()).export().expect("exported");
        let images: Vec<_> = machine.devices.iter().map(|device| device.image()).collect();
        let begun: Vec<usize> = case.groups.iter().flat_map(|(_, devices)| devices.iter().copied()).collect();
        let mut cuts = 0;
        let mut at = 0;
        loop {
            for (device, image) in machine.devices.iter().zip(&images) {
                device.restore(image);
                device.power_on(|_| Fate::Dropped);
            }
            machine.line.cut_after(i64::MAX);
            let pool = machine.import(&begun);
            machine.line.cut_after(at);
            let _ = (case.begin)(&machine, &pool);
            for _ in 0..200 {
                let over = pool.scan_remaining() == [0, 0] && pool.move_remaining().is_none();
                if over || machine.line.is_cut() || pool.sync().is_err() {
                    break;
                }
            }
            let whole = !machine.line.is_cut();
            drop(pool);
            let mut dice = Dice(at as u64);
            for device in &machine.devices {
                device.power_on(|_| match dice.below(3) {
                    0 => Fate::Dropped,
                    1 => Fate::Applied,
                    _ => Fate::Torn { sectors: dice.below(9) as usize },
                });
            }
            machine.line.cut_after(i64::MAX);
            come_back(&machine, case, at);
            if whole {
                break;
            }
            cuts += 1;
            // Every cut of the first writes, which are those of labels and of the first commits,
            // and then each third.
            at += if at < 60 { 1 } else { 3 };
        }
        assert!(cuts > 20, "{}: {cuts}", case.what);
    }
}

fn come_back(machine: &Machine, case: &Case, at: i64) {
    let what = format!("{} cut at {at}", case.what);
    let found = (0..machine.devices.len()).map(|at| machine.handle(at)).collect();
    let (mut pools, _) = steadfast_pool::scan(found);
    assert_eq!(pools.len(), 1, "{what}");
    let pool = Pool::import(&machine.env, pools.remove(0), &common::import_spec(None));
    let pool = pool.unwrap_or_else(|error| panic!("{what}: {error}"));
    check(&pool, 0, &what);
    write(&pool, 0..2, 0);
    finish(&pool);
    check(&pool, 0, &what);
    pool.sync().expect("committed");
    let leaves = pool.state().leaves;
    assert!(leaves.iter().all(|leaf| leaf.config.state == LeafState::Online), "{what}: {leaves:?}");
    let here: Vec<usize> = leaves.iter().map(|leaf| leaf.config.path[1..].parse().unwrap()).collect();
    pool.export().expect("exported");
    // The redundancy that it should have it has.
    let count = here.len();
    let spared = case.spared.filter(|_| count > 1);
    let left: Vec<usize> = here.into_iter().filter(|at| Some(*at) != spared).collect();
    let pool = machine.import(&left);
    check(&pool, 0, &what);
}
