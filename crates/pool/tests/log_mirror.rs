//! Mirrors of log devices: each side has every promise, so either is enough. They come and go in
//! use, fail, get lost, decay, return. Each promise is kept, whichever side is left.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::common::{self, Dice, ME, MIB, ROOT, handle, handles, import_spec, mount, noise, spec};
use crate::promises::{names, put, still, wrong};
use steadfast_device::memory::{Effect, Fate, Fault};
use steadfast_device::{Character, Device, MemoryDevice, Operation, SegmentPlace};
use steadfast_env::Env;
use steadfast_format::medium::UBERBLOCK_SIZE;
use steadfast_format::{GroupClass, LogHeader, SegmentId, Txg};
use steadfast_pool::{
    DeviceHandle, Error, EventKind, GroupHandles, ImportSpec, LogDeviceStatus, LogOut, Offline, Pool,
    Redundancy, scan,
};
use steadfast_posix::SetAttr;

/// Bytes of a slot on devices of this size.
const SLOT: u32 = 1 << 20;

/// A pool of one device, and devices for its log.
struct Machine {
    env: Env,
    main: Arc<MemoryDevice>,
    logs: Vec<Arc<MemoryDevice>>,
}

fn mirror(devices: Vec<DeviceHandle>) -> Vec<GroupHandles> {
    vec![GroupHandles { redundancy: Redundancy::Mirror, class: GroupClass::Normal, devices }]
}

impl Machine {
    fn without_logs(count: usize) -> (Machine, Pool) {
        let env = still();
        let main = Arc::new(MemoryDevice::new("main", 64 * MIB));
        let log = |at: usize| Arc::new(MemoryDevice::new(&format!("log{at}"), 64 * MIB));
        let mut spec = spec(handles(std::slice::from_ref(&main)), None);
        spec.root_props.insert("journal".into(), "ordered".into());
        let pool = Pool::create(&env, spec).expect("a pool");
        (Machine { env, main, logs: (0..count).map(log).collect() }, pool)
    }

    /// With a mirror of the first two, and more that wait.
    fn new(more: usize) -> (Machine, Pool) {
        let (machine, pool) = Machine::without_logs(2 + more);
        pool.zil().add_logs(mirror(handles(&machine.logs[..2])), false, false).expect("added");
        (machine, pool)
    }

    fn with(&self, logs: &[usize]) -> Vec<Arc<MemoryDevice>> {
        let logs = logs.iter().map(|at| Arc::clone(&self.logs[*at]));
        std::iter::once(Arc::clone(&self.main)).chain(logs).collect()
    }

    fn all(&self) -> Vec<Arc<MemoryDevice>> {
        self.with(&(0..self.logs.len()).collect::<Vec<_>>())
    }

    /// The power goes for all, and comes back.
    fn crash_as(&self, pool: Pool, mut fate: impl FnMut(usize) -> Fate) {
        self.all().iter().for_each(|device| device.power_off());
        drop(pool);
        self.all().iter().for_each(|device| device.power_on(&mut fate));
    }

    /// The same, and nothing that was not flushed is there.
    fn crash(&self, pool: Pool) {
        self.crash_as(pool, |_| Fate::Dropped);
    }

    fn import(&self, logs: &[usize], accept_lost_log: bool) -> Result<Pool, Error> {
        import(&self.env, &self.with(logs), accept_lost_log)
    }

    /// The same of copies, which leaves the devices as they are.
    fn import_copy(&self, logs: &[usize]) -> Result<Pool, Error> {
        let copy = |device: &Arc<MemoryDevice>| {
            let name = device.character().identity;
            Arc::new(MemoryDevice::from_image(&name, device.image()))
        };
        import(&self.env, &self.with(logs).iter().map(copy).collect::<Vec<_>>(), false)
    }
}

fn import(env: &Env, devices: &[Arc<MemoryDevice>], accept_lost_log: bool) -> Result<Pool, Error> {
    let (pools, _) = scan(handles(devices));
    let found = pools.into_iter().find(|found| found.config.leaves.len() == 1).expect("a pool");
    Pool::import(env, found, &ImportSpec { accept_lost_log, ..import_spec(None) })
}

/// The same in a pool that nobody else uses. True if the log did it.
fn promise(pool: &Pool, name: &str) -> bool {
    let before = pool.state().log.counts.durable;
    let (fs, _used) = mount(pool, "tank");
    put(&fs, name, name.as_bytes());
    pool.state().log.counts.durable > before
}

/// Status of the log device of this name.
fn side(pool: &Pool, name: &str) -> LogDeviceStatus {
    let all = pool.state().log_devices;
    all.into_iter().find(|log| log.path == name).unwrap_or_else(|| panic!("{name} is listed"))
}

fn is_used(pool: &Pool, name: &str) -> bool {
    let side = side(pool, name);
    side.sample.is_some() && !side.given_up && side.out.is_none() && side.trouble.is_none()
}

fn slot(slot: u32) -> SegmentPlace {
    SegmentPlace { segment: SegmentId(u64::from(slot) + 1), slot, slot_size: SLOT }
}

/// Content of the first slot of a log device.
fn first_slot(log: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; SLOT as usize];
    log.read_segment(slot(0), 0, &mut bytes).expect("read");
    bytes
}

/// Where groups begin in the first slot of a log device.
fn groups_on(log: &MemoryDevice) -> Vec<u32> {
    let bytes = first_slot(log);
    let (mut groups, mut at) = (Vec::new(), 0);
    while let Ok((header, _)) = LogHeader::decode(&bytes[at..]) {
        groups.push(u32::try_from(at).expect("within a slot"));
        at += LogHeader::stored_bytes(header.length as usize);
    }
    groups
}

fn spoil(log: &MemoryDevice, group: u32) {
    log.flip_bit_in(slot(0), group + 200, 3);
}

#[test]
fn both_sides_have_every_promise_and_either_is_enough() {
    let (machine, pool) = Machine::new(0);
    let status = pool.state();
    assert_eq!((status.log.size_bytes, status.log_devices.len()), (63 * MIB, 2), "its slots count once");
    assert!(status.log_devices.iter().all(|log| log.mirror == 1), "{:?}", status.log_devices);
    let features: Vec<String> = pool.features().into_iter().map(|feature| feature.name).collect();
    assert!(["log_device", "log_mirrors"].iter().all(|name| features.iter().any(|known| known == name)));
    let counts = |device: &Arc<MemoryDevice>| (device.counts().writes, device.counts().flushes);
    let before: Vec<_> = machine.all().iter().map(counts).collect();
    let (fs, used) = mount(&pool, "tank");
    for round in 0..10 {
        put(&fs, &format!("f{round}"), &noise(round, 4_000));
    }
    drop((fs, used));
    let after: Vec<_> = machine.all().iter().map(counts).collect();
    let done = |at: usize| (after[at].0 - before[at].0, after[at].1 - before[at].1);
    assert_eq!([done(0), done(1), done(2)], [(0, 0), (10, 10), (10, 10)], "the pool's device rests");
    assert!(first_slot(&machine.logs[0]) == first_slot(&machine.logs[1]), "they hold the same");
    machine.crash(pool);
    assert_eq!(wrong(&machine.all()), Vec::<&str>::new());
    assert_eq!(wrong(&machine.with(&[1])), ["log-side-missing"]);
    assert_eq!(wrong(&machine.with(&[])), ["log-device-missing"; 2]);
    for (logs, away) in [(&[0, 1][..], None), (&[0][..], Some("log1")), (&[1][..], Some("log0"))] {
        let pool = machine.import_copy(logs).unwrap_or_else(|error| panic!("{logs:?}: {error}"));
        assert_eq!((pool.state().log.replayed, names(&pool).len()), (10, 10), "{logs:?}");
        assert!(pool.take_events().iter().all(|event| !matches!(event.kind, EventKind::LogGivenUp { .. })));
        for log in pool.state().log_devices {
            let is_away = away == Some(&*log.path);
            let out = is_away.then_some(LogOut::Gone);
            assert_eq!((log.out, log.sample.is_none()), (out, is_away), "{logs:?}");
        }
    }
    // With neither it is as with a single one that is lost.
    let Err(Error::LogMissing { path, reason, empty: false, .. }) = machine.import_copy(&[]) else {
        panic!("they are missed")
    };
    assert!(path == "log0" && reason.contains("log1"), "{path}: {reason}");
    let pool = machine.import(&[], true).expect("accepted");
    assert!(names(&pool).is_empty() && pool.state().log_devices.iter().all(|log| log.given_up));
    drop(pool);
    // A side that comes back is not believed, whichever it is.
    let pool = machine.import(&[0, 1], false).expect("imported");
    assert_eq!((pool.state().log.replayed, names(&pool).len()), (0, 0));
}

#[test]
fn a_side_that_was_away_is_not_believed_and_comes_back_by_itself() {
    let (machine, pool) = Machine::new(0);
    assert!(promise(&pool, "one"));
    machine.crash(pool);
    // The second one is away, and the log goes on with the first.
    let pool = machine.import(&[0], false).expect("one is enough");
    assert!(is_used(&pool, "log0") && !is_used(&pool, "log1"));
    assert!(promise(&pool, "two"));
    machine.crash(pool);
    assert_eq!(wrong(&machine.with(&[0])), Vec::<&str>::new(), "labels know that the other is out");
    // Alone it lacks that, and labels say so.
    let Err(Error::LogMissing { path, .. }) = machine.import_copy(&[1]) else { panic!("it has not all") };
    assert_eq!(path, "log0");
    let pool = machine.import(&[0, 1], false).expect("imported");
    assert_eq!((names(&pool), pool.state().log.replayed), (vec!["one".to_owned(), "two".to_owned()], 1));
    assert!(is_used(&pool, "log0") && is_used(&pool, "log1"), "it is back without being asked for");
    assert!(promise(&pool, "three"));
    machine.crash(pool);
    assert_eq!(names(&machine.import_copy(&[1]).expect("it has all again")).len(), 3);
    // One that was put back to an earlier copy is as one that was away.
    let early = [machine.logs[0].image(), machine.logs[1].image()];
    let pool = machine.import(&[0, 1], false).expect("imported");
    assert!(promise(&pool, "four"));
    machine.crash(pool);
    machine.logs[1].restore(&early[1]);
    assert_eq!(wrong(&machine.all()), ["log-side-old"]);
    let pool = machine.import(&[0, 1], false).expect("the other has all");
    assert!(names(&pool).len() == 4 && is_used(&pool, "log1"));
    assert!(promise(&pool, "five"));
    machine.crash(pool);
    assert_eq!(names(&machine.import_copy(&[1]).expect("it has all")).len(), 5);
    // Both put back: nothing there has all.
    machine.logs.iter().zip(&early).for_each(|(log, early)| log.restore(early));
    let refused = machine.import_copy(&[0, 1]).err().expect("earlier copies").to_string();
    assert!(refused.contains("earlier copy"), "{refused}");
}

#[test]
fn what_one_side_lost_is_read_from_the_other_and_mended() {
    let (machine, pool) = Machine::new(0);
    let (fs, used) = mount(&pool, "tank");
    for round in 0..6 {
        put(&fs, &format!("f{round}"), &noise(round, 2_000));
    }
    drop((fs, used));
    machine.crash(pool);
    let groups = groups_on(&machine.logs[0]);
    assert_eq!(groups.len(), 6);
    let whole = first_slot(&machine.logs[0]);
    // Two on one side, another on the other, and the last one, of which nobody knew that it was
    // durable.
    for (side, group) in [(0, 1), (0, 3), (1, 2), (1, 5)] {
        spoil(&machine.logs[side], groups[group]);
    }
    assert_eq!(wrong(&machine.all()), ["log-copy"; 3]);
    assert!(
        matches!(machine.import_copy(&[0]), Err(Error::LogDamaged { .. })),
        "alone it has not what it lost"
    );
    let pool = machine.import(&[0, 1], false).expect("together they have all");
    assert_eq!((names(&pool).len(), pool.state().log.replayed), (6, 6));
    let counted = [side(&pool, "log0").checksum_errors, side(&pool, "log1").checksum_errors];
    assert_eq!(counted, [2, 1]);
    let mended = pool.take_events().into_iter().filter_map(|event| match event.kind {
        EventKind::LogMended { path, groups } => Some((path, groups)),
        _ => None,
    });
    let mut healed: Vec<(String, u64)> = mended.collect();
    healed.sort();
    assert_eq!(healed, [("log0".to_owned(), 2), ("log1".to_owned(), 1)]);
    for log in &machine.logs {
        assert!(first_slot(log) == whole, "it is as it was");
    }
    pool.clear_errors(&[]);
    assert_eq!(side(&pool, "log0").checksum_errors, 0);
    machine.crash(pool);

    // A side whose every slot was zeroed, labels apart, is written anew as far as groups count.
    let pool = machine.import(&[0, 1], false).expect("imported");
    assert!(promise(&pool, "more"));
    machine.crash(pool);
    let zeros = vec![0; SLOT as usize];
    (0..63).for_each(|at| machine.logs[0].append_segment(slot(at), 0, &zeros).expect("zeroed"));
    machine.logs[0].flush().expect("flushed");
    let pool = machine.import(&[0, 1], false).expect("imported");
    assert_eq!(names(&pool).len(), 7);
    assert!(groups_on(&machine.logs[0]).len() == 1 && is_used(&pool, "log0"));
    machine.crash(pool);

    // Groups that both sides lost are lost, and the import says so as for a single device.
    let (machine, pool) = Machine::new(0);
    for name in ["a", "b", "c"] {
        assert!(promise(&pool, name));
    }
    machine.crash(pool);
    let second = groups_on(&machine.logs[0])[1];
    machine.logs.iter().for_each(|log| spoil(log, second));
    let refused = machine.import_copy(&[0, 1]).err().expect("it is damaged");
    let Error::LogDamaged { safe, .. } = &refused else { panic!("{refused}") };
    assert!(safe.contains("after them: 1 are whole"), "{safe}");
    let pool = machine.import(&[0, 1], true).expect("accepted");
    assert_eq!(names(&pool), ["a"]);
}

#[test]
fn a_side_that_fails_in_use_costs_a_commit_and_nothing_else() {
    for at in 0..2 {
        let other = 1 - at;
        let (failing, left) = (format!("log{at}"), format!("log{other}"));
        for (operation, effect) in [
            (Operation::Write, Effect::FailOnce),
            (Operation::Write, Effect::FailAlways),
            (Operation::Flush, Effect::FailOnce),
            (Operation::Flush, Effect::PowerOff),
        ] {
            let (machine, pool) = Machine::new(0);
            assert!(promise(&pool, "before"));
            machine.logs[at].arm(Fault { operation, skip: 0, effect });
            let txg = pool.state().txg;
            assert!(!promise(&pool, "at"), "not both sides have it");
            assert!(pool.state().txg > txg, "what the log could not take was committed");
            assert!(side(&pool, &failing).given_up && is_used(&pool, &left), "{operation:?} {effect:?}");
            assert!(pool.suspended().is_none());
            let told = pool
                .take_events()
                .into_iter()
                .filter(|event| matches!(&event.kind, EventKind::LogFailed { path, .. } if *path == failing));
            assert_eq!(told.count(), 1, "told once");
            // The other one goes on, and is enough from then on; the one that failed is not.
            pool.sync().expect("committed");
            assert!(promise(&pool, "behind"), "{operation:?} {effect:?}");
            machine.crash(pool);
            machine.logs[at].disarm();
            let Err(Error::LogMissing { path, .. }) = machine.import_copy(&[at]) else {
                panic!("{operation:?} {effect:?}: it lacks what came later")
            };
            assert_eq!(path, left);
            for logs in [&[other][..], &[0, 1]] {
                let pool = machine.import_copy(logs).expect("it is not needed");
                assert_eq!(names(&pool), ["at", "before", "behind"], "{operation:?} {effect:?}");
            }
            // Brought back it is a side again.
            let pool = machine.import(&[0, 1], false).expect("imported");
            let open = || Ok(Arc::clone(&machine.logs[at]) as Arc<dyn Device>);
            assert!(pool.online(&failing, &open).expect("it is its label"));
            assert!(!pool.online(&failing, &open).expect("already") && is_used(&pool, &failing));
            assert!(promise(&pool, "with both"));
            machine.crash(pool);
            assert_eq!(names(&machine.import_copy(&[at]).expect("it has all")).len(), 4);
        }
    }
    // When the second fails as well, the pool's own segments take over.
    let (machine, pool) = Machine::new(0);
    assert!(promise(&pool, "a"));
    for log in &machine.logs {
        log.arm(Fault { operation: Operation::Write, skip: 0, effect: Effect::FailAlways });
    }
    assert!(!promise(&pool, "b"));
    pool.sync().expect("committed");
    assert!(pool.state().log_devices.iter().all(|log| log.given_up));
    promise(&pool, "c");
    pool.sync().expect("committed");
    assert!(promise(&pool, "d"), "in the pool");
    machine.crash(pool);
    assert_eq!(names(&machine.import_copy(&[]).expect("neither is needed")), ["a", "b", "c", "d"]);
}

#[test]
fn devices_are_attached_detached_replaced_and_taken_out_in_use() {
    let (machine, pool) = Machine::without_logs(4);
    pool.zil().add_logs(GroupHandles::alone(vec![handle(&machine.logs[0])]), false, false).expect("added");
    assert!(promise(&pool, "alone"));
    assert!(!pool.features().iter().any(|feature| feature.name == "log_mirrors"));
    // A single one becomes a mirror at once, and a mirror gets a third side.
    pool.attach("log0", handle(&machine.logs[1]), false).expect("attached");
    assert_eq!((side(&pool, "log0").mirror, side(&pool, "log1").mirror), (1, 1));
    assert!(promise(&pool, "pair") && is_used(&pool, "log1"));
    pool.attach("log1", handle(&machine.logs[2]), false).expect("attached");
    assert!(promise(&pool, "triple"));
    machine.crash(pool);
    for at in 0..3 {
        assert_eq!(names(&machine.import_copy(&[at]).expect("each has all")), ["alone", "pair", "triple"]);
    }
    let pool = machine.import(&[0, 1, 2], false).expect("imported");
    // Groups that come later have other numbers.
    let more = [MemoryDevice::new("m0", 64 * MIB), MemoryDevice::new("m1", 64 * MIB)].map(Arc::new);
    let group =
        GroupHandles { redundancy: Redundancy::Mirror, class: GroupClass::Normal, devices: handles(&more) };
    pool.devices().add_groups(vec![group], false, false).expect("added");
    assert_eq!(pool.state().groups.iter().map(|group| group.id).collect::<Vec<_>>(), [2]);
    // One goes, and belongs to nobody.
    pool.detach("log0").expect("detached");
    assert!(steadfast_pool::label_of(&*machine.logs[0]).is_err());
    assert!(promise(&pool, "without the first"));
    // Another one is exchanged.
    pool.replace("log2", handle(&machine.logs[3]), false).expect("replaced");
    assert!(steadfast_pool::label_of(&*machine.logs[2]).is_err());
    let listed: Vec<String> = pool.state().log_devices.into_iter().map(|log| log.path).collect();
    assert_eq!(listed, ["log1", "log3"]);
    assert!(promise(&pool, "exchanged"));
    let others = more.iter().cloned();
    let crash = |pool: Pool| {
        more.iter().for_each(|device| device.power_off());
        machine.crash(pool);
        more.iter().for_each(|device| device.power_on(|_| Fate::Dropped));
    };
    let with = |logs: &[usize]| -> Vec<Arc<MemoryDevice>> {
        machine.with(logs).into_iter().chain(others.clone()).collect()
    };
    let import_with = |logs: &[usize]| {
        let (pools, _) = scan(handles(&with(logs)));
        let found = pools.into_iter().find(|found| found.config.leaves.len() == 3).expect("a pool");
        Pool::import(&machine.env, found, &import_spec(None))
    };
    crash(pool);
    let pool = import_with(&[3]).expect("the new one has all");
    assert_eq!(names(&pool).len(), 5);
    drop(pool);
    let pool = import_with(&[1, 3]).expect("imported");
    assert!(is_used(&pool, "log1") && is_used(&pool, "log3"));
    // Out of use for a while, over an import too; the last one as well, for the log goes on in the
    // pool.
    pool.offline("log3").expect("offline");
    assert_eq!(side(&pool, "log3").out, Some(LogOut::Offline));
    assert!(promise(&pool, "one is out"));
    crash(pool);
    assert!(matches!(import_with(&[3]), Err(Error::LogMissing { .. })), "it was out");
    let pool = import_with(&[1, 3]).expect("imported");
    assert_eq!((side(&pool, "log3").out, names(&pool).len()), (Some(LogOut::Offline), 6));
    assert!(matches!(pool.reguid(None), Err(Error::NotWhole { .. })), "its labels would be left behind");
    assert!(matches!(pool.detach("log1"), Err(Error::DeviceNeeded { .. })), "the other one is out");
    let until_import = Offline { until_import: true, ..Offline::default() };
    pool.offline_as("log1", until_import).expect("log devices are expendable");
    promise(&pool, "both are out");
    pool.sync().expect("committed");
    assert!(promise(&pool, "in the pool"));
    crash(pool);
    let pool = import_with(&[1, 3]).expect("imported");
    assert!(is_used(&pool, "log1"), "until the import");
    let open = || -> steadfast_pool::Result<Arc<dyn Device>> { unreachable!("it is open") };
    assert!(pool.online("log3", &open).expect("online") && is_used(&pool, "log3"));
    // By force it is as if it had failed.
    pool.offline_as("log3", Offline { as_failed: true, ..Offline::default() }).expect("as failed");
    assert!(side(&pool, "log3").given_up);
    pool.let_go("log3", false).expect("it is out of use");
    assert!(matches!(pool.let_go("log1", true), Err(Error::StillInUse { .. })));
    // In its own place it is a new one.
    let in_place = DeviceHandle { path: "log3".into(), ..handle(&machine.logs[0]) };
    pool.replace("log3", in_place, false).expect("replaced");
    assert!(promise(&pool, "in its place") && is_used(&pool, "log3"));
    // Away with all of it.
    pool.zil().remove_log("log3").expect("removed");
    assert!(pool.state().log_devices.is_empty());
    let features: Vec<String> = pool.features().into_iter().map(|feature| feature.name).collect();
    assert!(!features.iter().any(|name| name.starts_with("log_")), "{features:?}");
    for at in [0, 1] {
        assert!(steadfast_pool::label_of(&*machine.logs[at]).is_err());
    }
    crash(pool);
    assert_eq!(names(&import_with(&[]).expect("imported")).len(), 9);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let (machine, pool) = Machine::new(3);
    let before = pool.state().log_devices.len();
    let extra = |at: usize| handle(&machine.logs[at]);
    let add = |redundancy, devices: Vec<DeviceHandle>| {
        let group = GroupHandles { redundancy, class: GroupClass::Normal, devices };
        pool.zil().add_logs(vec![group], false, false)
    };
    let refused = add(Redundancy::Raidz(1), vec![extra(2), extra(3)]).expect_err("no parity");
    assert_eq!(refused.to_string(), "invalid vdev specification: unsupported 'log' device: raidz");
    let one = add(Redundancy::Mirror, vec![extra(2)]).expect_err("one is no mirror");
    assert!(matches!(one, Error::GroupSize { devices: 1, least: 2, .. }), "{one}");
    let five: Vec<DeviceHandle> =
        (0..5).map(|at| handle(&Arc::new(MemoryDevice::new(&format!("x{at}"), 64 * MIB)))).collect();
    assert!(matches!(add(Redundancy::Mirror, five), Err(Error::GroupSize { devices: 5, .. })));
    assert!(matches!(add(Redundancy::Mirror, vec![extra(2), extra(2)]), Err(Error::Twice { .. })));
    assert!(matches!(add(Redundancy::Mirror, vec![extra(2), extra(0)]), Err(Error::Twice { .. })));
    let objects = Arc::new(MemoryDevice::whole_segments("objects", 64 * MIB));
    assert!(matches!(
        add(Redundancy::Mirror, vec![extra(2), handle(&objects)]),
        Err(Error::GroupOfObjects { .. })
    ));
    assert!(matches!(pool.attach("log0", extra(1), false), Err(Error::Twice { .. })));
    assert!(matches!(pool.attach("log0", handle(&machine.main), false), Err(Error::Twice { .. })));
    assert!(matches!(pool.attach("log0", handle(&objects), false), Err(Error::GroupOfObjects { .. })));
    assert!(matches!(pool.replace("log0", extra(1), false), Err(Error::Twice { .. })));
    assert!(matches!(pool.replace("log0", extra(0), false), Err(Error::StillInUse { .. })));
    assert!(matches!(pool.zil().remove_log("log4"), Err(Error::NoSuchLog { .. })));
    // A larger one is needed beside larger ones.
    let large: Vec<_> =
        (0..2).map(|at| Arc::new(MemoryDevice::new(&format!("large{at}"), 96 * MIB))).collect();
    add(Redundancy::Mirror, handles(&large)).expect("a second mirror");
    let (least, most) = (64 * MIB, 96 * MIB);
    let told = pool.attach("large0", extra(2), false);
    assert!(
        matches!(told, Err(Error::TooSmall { needed, .. }) if needed > least && needed <= most),
        "{told:?}"
    );
    let told = pool.replace("large0", extra(2), false);
    assert!(
        matches!(told, Err(Error::TooSmall { needed, .. }) if needed > least && needed <= most),
        "{told:?}"
    );
    assert_eq!(machine.logs[2].counts().writes, 0, "nothing was written to it");
    assert_eq!(side(&pool, "large0").mirror, 2);
    pool.zil().remove_log("large1").expect("removed, both");
    assert_eq!(pool.state().log_devices.len(), before);
    // Four are as many as a mirror takes.
    pool.attach("log0", extra(2), false).expect("three");
    pool.attach("log0", extra(3), false).expect("four");
    assert!(matches!(pool.attach("log0", extra(4), false), Err(Error::GroupSize { devices: 5, .. })));
    // One that stands alone has nothing to be detached from.
    for name in ["log1", "log2", "log3"] {
        pool.detach(name).expect("detached");
    }
    assert_eq!(side(&pool, "log0").mirror, 0);
    assert!(matches!(pool.detach("log0"), Err(Error::Detach { .. })));
    assert!(promise(&pool, "still"));
}

#[test]
fn what_waits_for_a_key_keeps_the_sides_that_it_has() {
    const SECRET: [u8; 32] = [7; 32];
    let (machine, pool) = Machine::new(1);
    pool.datasets()
        .create_dataset("tank/vault", Default::default(), Some(common::key(&machine.env, &SECRET)))
        .expect("made");
    let (fs, used) = mount(&pool, "tank/vault");
    put(&fs, "secret", b"kept");
    drop((fs, used));
    machine.crash(pool);
    let pool = machine.import(&[0, 1], false).expect("imported");
    assert_eq!(pool.state().log.held, 1);
    let held = |result: Result<(), Error>| matches!(result, Err(Error::LogHeld { datasets: 1, .. }));
    assert!(held(pool.attach("log0", handle(&machine.logs[2]), false)));
    assert!(held(pool.replace("log0", handle(&machine.logs[2]), false)));
    assert!(held(pool.detach("log0")));
    assert!(held(pool.offline("log0")));
    assert!(held(pool.zil().remove_log("log0")));
    machine.crash(pool);
    // Either one is enough for it, too.
    for at in 0..2 {
        let pool = machine.import_copy(&[at]).expect("one is enough");
        pool.datasets().load_key("tank/vault", &SECRET, false).expect("the key");
        let (fs, _used) = mount(&pool, "tank/vault");
        assert_eq!(common::read_file(&fs, ROOT, b"secret"), b"kept", "log{at}");
    }
    // One that takes no labels any more is given up all the same: the other has what is held.
    let pool = machine.import(&[0, 1], false).expect("imported");
    machine.logs[0].arm(Fault { operation: Operation::Write, skip: 0, effect: Effect::FailAlways });
    assert!(matches!(pool.reguid(None), Err(Error::LogUnfit { .. })));
    pool.sync().expect("committed");
    assert!(side(&pool, "log0").given_up && is_used(&pool, "log1") && pool.state().log.held == 1);
    machine.crash(pool);
    assert!(matches!(machine.import_copy(&[0]), Err(Error::LogMissing { empty: false, .. })));
    let pool = machine.import(&[1], false).expect("the other one has it");
    pool.datasets().load_key("tank/vault", &SECRET, false).expect("the key");
    let (fs, _used) = mount(&pool, "tank/vault");
    assert_eq!(common::read_file(&fs, ROOT, b"secret"), b"kept");
}

/// Where two writes or flushes meet.
#[derive(Default)]
struct Meeting {
    /// Whether it is on, how many wait, and how often two met.
    state: Mutex<(bool, usize, usize)>,
    come: Condvar,
}

impl Meeting {
    /// Waits for a second one, if it is on; so long at most that a test which fails comes to its
    /// end.
    fn wait(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.0 {
            return;
        }
        state.1 += 1;
        if state.1 == 2 {
            (state.1, state.2) = (0, state.2 + 1);
            self.come.notify_all();
            return;
        }
        let met = state.2;
        let waited = self.come.wait_timeout_while(state, Duration::from_secs(60), |state| state.2 == met);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.2 == met {
            state.1 = 0; // Nobody came.
        }
    }

    fn set(&self, is_on: bool) -> usize {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = is_on;
        state.2
    }
}

/// A device whose writes and flushes wait for those of another.
struct Sociable {
    device: Arc<MemoryDevice>,
    meeting: Arc<Meeting>,
}

impl Device for Sociable {
    fn character(&self) -> Character {
        self.device.character()
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> steadfast_device::Result<()> {
        self.device.put_segment(place, bytes)
    }

    fn append_segment(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> steadfast_device::Result<()> {
        self.meeting.wait();
        self.device.append_segment(place, offset, bytes)
    }

    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> steadfast_device::Result<()> {
        self.device.read_segment(place, offset, out)
    }

    fn discard_segment(&self, place: SegmentPlace) -> steadfast_device::Result<()> {
        self.device.discard_segment(place)
    }

    fn write_label(&self, copy: usize, bytes: &[u8]) -> steadfast_device::Result<()> {
        self.device.write_label(copy, bytes)
    }

    fn read_label(&self, copy: usize) -> steadfast_device::Result<Vec<u8>> {
        self.device.read_label(copy)
    }

    fn write_uberblock(
        &self,
        copy: usize,
        txg: Txg,
        bytes: &[u8; UBERBLOCK_SIZE],
    ) -> steadfast_device::Result<()> {
        self.device.write_uberblock(copy, txg, bytes)
    }

    fn read_uberblocks(&self, copy: usize) -> steadfast_device::Result<Vec<Vec<u8>>> {
        self.device.read_uberblocks(copy)
    }

    fn flush(&self) -> steadfast_device::Result<()> {
        self.meeting.wait();
        self.device.flush()
    }
}

#[test]
fn both_sides_are_written_and_flushed_at_once() {
    let (machine, pool) = Machine::without_logs(2);
    let meeting = Arc::new(Meeting::default());
    let sociable = |device: &Arc<MemoryDevice>| {
        let (device, meeting) = (Arc::clone(device), Arc::clone(&meeting));
        handle(&Arc::new(Sociable { device, meeting }))
    };
    let sides = machine.logs.iter().map(sociable).collect();
    pool.zil().add_logs(mirror(sides), false, false).expect("added");
    let (fs, _used) = mount(&pool, "tank");
    put(&fs, "warm", b"up");
    assert_eq!(meeting.set(true), 0);
    for round in 0..3 {
        put(&fs, &format!("f{round}"), b"content");
    }
    // A write and a flush each: none was alone.
    assert_eq!(meeting.set(false), 6);
}

/// One life of a pool whose log devices fail, come, go, are lost at imports and found again, and
/// lose power.
fn run(seed: u64) {
    let mut dice = Dice(seed);
    let (machine, mut pool) = Machine::new(1);
    // Of each file what the last fsync promised.
    let mut promised: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for round in 0..6 {
        let (fs, used) = mount(&pool, "tank");
        for _ in 0..4 + dice.below(16) {
            let at = usize::try_from(dice.below(3)).expect("small");
            let name = format!("log{at}");
            let listed = pool.state().log_devices;
            let is_listed = listed.iter().any(|log| log.path == name);
            let told = |what: &str, error: &Error| {
                panic!("seed {seed:#x}, round {round}: {what} {name}: {error}");
            };
            match dice.below(14) {
                0 => pool.sync().expect("committed"),
                1 => {
                    let operation = if dice.below(2) == 0 { Operation::Write } else { Operation::Flush };
                    machine.logs[at].arm(Fault { operation, skip: dice.below(4), effect: Effect::FailOnce });
                }
                2 if is_listed => pool.offline(&name).unwrap_or_else(|error| told("offline", &error)),
                3 if is_listed => {
                    machine.logs[at].disarm();
                    let open = || Ok(Arc::clone(&machine.logs[at]) as Arc<dyn Device>);
                    if let Err(error) = pool.online(&name, &open) {
                        told("online", &error);
                    }
                }
                4 if !is_listed => {
                    machine.logs[at].disarm();
                    let added = match listed.first() {
                        Some(beside) => pool.attach(&beside.path, handle(&machine.logs[at]), true),
                        None => pool.zil().add_logs(
                            GroupHandles::alone(vec![handle(&machine.logs[at])]),
                            true,
                            false,
                        ),
                    };
                    added.unwrap_or_else(|error| told("attach", &error));
                }
                5 if is_listed && listed.len() > 1 => match pool.detach(&name) {
                    Ok(()) | Err(Error::DeviceNeeded { .. } | Error::Detach { .. }) => {}
                    Err(error) => told("detach", &error),
                },
                6 if !is_listed && !listed.is_empty() => {
                    machine.logs[at].disarm();
                    let old = &listed[0].path;
                    let done = pool.replace(old, handle(&machine.logs[at]), true);
                    done.unwrap_or_else(|error| told("replace", &error));
                }
                7 if is_listed && dice.below(4) == 0 => {
                    pool.zil().remove_log(&name).unwrap_or_else(|error| told("remove", &error));
                }
                _ => {
                    let (file, length) = (dice.below(6), 1 + dice.below(30_000));
                    let content = noise(dice.below(1 << 30), usize::try_from(length).expect("small"));
                    let text = format!("f{file}");
                    let entry = fs.lookup(ROOT, text.as_bytes());
                    let entry = entry.or_else(|_| fs.mknod(ME, ROOT, text.as_bytes(), 0o100_644, 0));
                    let ino = entry.expect("made").ino;
                    fs.setattr(ino, &SetAttr { size: Some(0), ..Default::default() }).expect("cut");
                    fs.write(ino, 0, &content, false).expect("written");
                    fs.fsync(ino).expect("durable");
                    fs.forget(ino, 1);
                    promised.insert(file, content);
                }
            }
        }
        drop((fs, used));
        // Those in use: any one of a mirror may be away, if another one is there.
        let used: Vec<usize> = (0..3)
            .filter(|at| {
                let name = format!("log{at}");
                let mut state = pool.state().log_devices.into_iter();
                state.any(|log| log.path == name && log.out.is_none() && !log.given_up)
            })
            .collect();
        let mut fates = Dice(seed ^ round);
        machine.crash_as(pool, |_| match fates.below(3) {
            0 => Fate::Dropped,
            1 => Fate::Applied,
            _ => Fate::Torn { sectors: usize::try_from(fates.below(9)).expect("small") },
        });
        let mut here: Vec<usize> = (0..3).collect();
        if used.len() > 1 && dice.below(2) == 0 {
            let away = used[usize::try_from(dice.below(used.len() as u64)).expect("small")];
            here.retain(|at| *at != away);
        }
        pool = machine.import(&here, false).unwrap_or_else(|error| {
            panic!("seed {seed:#x}, round {round}, with {here:?} of {used:?}: {error}");
        });
        let (fs, used) = mount(&pool, "tank");
        for (name, content) in &promised {
            let found = common::read_file(&fs, ROOT, format!("f{name}").as_bytes());
            assert!(found == *content, "seed {seed:#x}, round {round}: f{name}");
        }
        drop((fs, used));
    }
}

#[test]
fn no_promise_is_lost_whichever_side_is_left() {
    for seed in 0..12 {
        run(0x0116_0000 + seed);
    }
}
