//! Log devices: groups go there, and come back from there; they fail in use, get lost, are damaged,
//! put back, exchanged. Each promise is kept, or the import says which are lost.

use std::sync::Arc;

use crate::common::{self, ME, MIB, ROOT, handle, handles, import_spec, mount, noise, spec};
use crate::promises::{findings, names, put, still, wrong};
use steadfast_device::memory::{Effect, Fate, Fault};
use steadfast_device::{Device, MemoryDevice, Operation, SegmentPlace};
use steadfast_env::Env;
use steadfast_format::{GroupClass, InodeId, LogHeader, LogRecord, SegmentId, Stamp};
use steadfast_pool::{Error, EventKind, GroupHandles, ImportSpec, Pool, Redundancy, scan};

/// A pool of one device, and a log device that it may get.
struct Machine {
    env: Env,
    main: Arc<MemoryDevice>,
    log: Arc<MemoryDevice>,
}

impl Machine {
    fn new() -> (Machine, Pool) {
        let (machine, pool) = Machine::without_log();
        pool.zil().add_logs(GroupHandles::alone(vec![handle(&machine.log)]), false, false).expect("added");
        (machine, pool)
    }

    fn without_log() -> (Machine, Pool) {
        let env = still();
        let (main, log) =
            (Arc::new(MemoryDevice::new("a", 64 * MIB)), Arc::new(MemoryDevice::new("log", 64 * MIB)));
        let mut spec = spec(handles(std::slice::from_ref(&main)), None);
        spec.root_props.insert("journal".into(), "ordered".into());
        let pool = Pool::create(&env, spec).expect("a pool");
        (Machine { env, main, log }, pool)
    }

    fn both(&self) -> Vec<Arc<MemoryDevice>> {
        vec![Arc::clone(&self.main), Arc::clone(&self.log)]
    }

    /// The power goes for all, and comes back; nothing that was not flushed is there.
    fn crash(&self, pool: Pool) {
        self.both().iter().for_each(|device| device.power_off());
        drop(pool);
        self.both().iter().for_each(|device| device.power_on(|_| Fate::Dropped));
    }

    fn import(&self, devices: &[Arc<MemoryDevice>], accept_lost_log: bool) -> Result<Pool, Error> {
        let (mut pools, _) = scan(handles(devices));
        assert_eq!(pools.len(), 1, "one pool");
        Pool::import(&self.env, pools.remove(0), &ImportSpec { accept_lost_log, ..import_spec(None) })
    }
}

/// Groups as they lie in the first slot of the log device.
fn groups_on(log: &MemoryDevice) -> Vec<(u32, LogHeader, Vec<u8>)> {
    let place = SegmentPlace { segment: SegmentId(1), slot: 0, slot_size: 1 << 20 };
    let mut bytes = vec![0; 1 << 20];
    log.read_segment(place, 0, &mut bytes).expect("read");
    let mut groups = Vec::new();
    let mut at = 0;
    while let Ok((header, _)) = LogHeader::decode(&bytes[at..]) {
        let body = bytes[at + LogHeader::SIZE..][..header.length as usize].to_vec();
        groups.push((u32::try_from(at).unwrap(), header, body));
        at += LogHeader::stored_bytes(groups.last().unwrap().2.len());
    }
    groups
}

fn at_group(offset: u32) -> (SegmentPlace, u32) {
    (SegmentPlace { segment: SegmentId(1), slot: 0, slot_size: 1 << 20 }, offset)
}

/// Puts a group in another's place, whole by its hash.
fn forge(log: &MemoryDevice, offset: u32, header: &LogHeader, body: &[u8]) {
    let mut bytes = header.encode(|bound| steadfast_crypto::hash_parts(&[bound, body])).to_vec();
    bytes.extend_from_slice(body);
    let (place, offset) = at_group(offset);
    log.append_segment(place, offset, &bytes).expect("written");
    log.flush().expect("flushed");
}

#[test]
fn groups_go_to_the_device_and_come_back_from_there() {
    let (machine, pool) = Machine::new();
    let status = pool.state();
    assert_eq!((status.log.size_bytes, status.log_devices.len()), (63 * MIB, 1), "all its slots");
    assert!(!status.log_devices[0].given_up && status.log_devices[0].trouble.is_none());
    let (fs, used) = mount(&pool, "tank");
    let before = (machine.main.counts(), machine.log.counts());
    for round in 0..10 {
        put(&fs, &format!("f{round}"), &noise(round, 4_000));
    }
    let (main, log) = (machine.main.counts(), machine.log.counts());
    assert_eq!((main.writes, main.flushes), (before.0.writes, before.0.flushes), "the pool's device rests");
    assert_eq!((log.writes - before.1.writes, log.flushes - before.1.flushes), (10, 10));
    drop((fs, used));
    machine.crash(pool);
    assert_eq!(wrong(&machine.both()), Vec::<&str>::new());
    assert_eq!(wrong(&[Arc::clone(&machine.main)]), ["log-device-missing"]);
    let pool = machine.import(&machine.both(), false).expect("imported");
    assert_eq!((pool.state().log.replayed, names(&pool).len()), (10, 10));
    // Taken away it is nobody's, and the pool keeps what it promises in segments of its own.
    pool.zil().remove_log("log").expect("removed");
    assert!(pool.state().log_devices.is_empty() && steadfast_pool::label_of(&*machine.log).is_err());
    let (fs, used) = mount(&pool, "tank");
    put(&fs, "after", b"it");
    pool.sync().expect("committed");
    let before = machine.log.counts();
    put(&fs, "later", b"too");
    assert_eq!(machine.log.counts(), before);
    assert!(pool.state().log.counts.durable > 0);
    drop((fs, used));
    machine.crash(pool);
    let pool = machine.import(&[Arc::clone(&machine.main)], false).expect("imported");
    assert_eq!(names(&pool).len(), 12);
    // And back, in use, with one more.
    let second = Arc::new(MemoryDevice::new("log2", 64 * MIB));
    assert!(matches!(pool.zil().remove_log("log"), Err(Error::NoSuchLog { .. })));
    pool.zil()
        .add_logs(GroupHandles::alone(vec![handle(&machine.log), handle(&second)]), false, false)
        .expect("added");
    assert!(matches!(
        pool.zil().add_logs(GroupHandles::alone(vec![handle(&second)]), false, false),
        Err(Error::Twice { .. })
    ));
    assert_eq!(pool.state().log.size_bytes, 2 * 63 * MIB);
    let (fs, used) = mount(&pool, "tank");
    put(&fs, "both", b"are there");
    drop((fs, used));
    pool.export().expect("exported");
    let all = [machine.both(), vec![second]].concat();
    assert_eq!(wrong(&all), Vec::<&str>::new());
    let pool = machine.import(&all, false).expect("imported");
    assert_eq!((pool.state().log.replayed, names(&pool).len()), (0, 13));
}

#[test]
fn a_device_that_fails_in_use_costs_nothing() {
    for (operation, effect) in [
        (Operation::Write, Effect::FailOnce),
        (Operation::Write, Effect::FailAlways),
        (Operation::Flush, Effect::FailOnce),
        (Operation::Flush, Effect::PowerOff),
    ] {
        let (machine, pool) = Machine::new();
        let (fs, used) = mount(&pool, "tank");
        put(&fs, "before", b"1");
        machine.log.arm(Fault { operation, skip: 0, effect });
        let txg = pool.state().txg;
        put(&fs, "at", b"2");
        assert!(pool.state().txg > txg, "what the log could not take was committed");
        let status = pool.state();
        assert!(status.suspended.is_none() && status.log_devices[0].given_up, "{operation:?} {effect:?}");
        assert!(status.log_devices[0].trouble.is_some());
        let told = |event: &steadfast_pool::Event| matches!(&event.kind, EventKind::LogFailed { path, .. } if path == "log");
        assert_eq!(pool.take_events().iter().filter(|event| told(event)).count(), 1, "told once");
        // From the next commit on the pool's own segments do it.
        pool.sync().expect("committed");
        let durable = pool.state().log.counts.durable;
        put(&fs, "behind", b"3");
        pool.sync().expect("committed");
        put(&fs, "in the pool", b"4");
        assert!(pool.state().log.counts.durable > durable, "{operation:?} {effect:?}");
        drop((fs, used));
        machine.crash(pool);
        // Neither with nor without the device does anybody ask for a decision.
        let copy = Arc::new(MemoryDevice::from_image("a", machine.main.image()));
        let without = machine.import(&[copy], false).expect("the device is not needed");
        assert_eq!(names(&without), ["at", "before", "behind", "in the pool"]);
        let pool = machine.import(&machine.both(), false).expect("imported");
        assert_eq!(names(&pool), ["at", "before", "behind", "in the pool"]);
        assert!(pool.state().log_devices[0].given_up);
        pool.zil().remove_log("log").expect("removed");
        pool.zil()
            .add_logs(GroupHandles::alone(vec![handle(&machine.log)]), true, false)
            .expect("a new start");
        assert!(!pool.state().log_devices[0].given_up);
    }
}

#[test]
fn a_lost_device_is_missed_and_given_up_only_by_that_word() {
    let (machine, pool) = Machine::new();
    let (fs, used) = mount(&pool, "tank");
    put(&fs, "committed", b"1");
    pool.sync().expect("committed");
    let early = machine.log.image();
    put(&fs, "promised", b"2");
    drop((fs, used));
    machine.crash(pool);
    let main = [Arc::clone(&machine.main)];
    let whole = machine.main.image();
    let Err(Error::LogMissing { path, empty: false, .. }) = machine.import(&main, false) else {
        panic!("it is missed")
    };
    assert_eq!(path, "log");
    assert!(machine.main.image().to_vec() == whole.to_vec(), "a refused import writes nothing");
    // For reading, the last commit is shown.
    let (mut pools, _) = scan(handles(&main));
    let spec = ImportSpec { read_only: true, ..import_spec(None) };
    let pool = Pool::import(&machine.env, pools.remove(0), &spec).expect("imported");
    assert_eq!(names(&pool), ["committed"]);
    drop(pool);
    let pool = machine.import(&main, true).expect("accepted");
    assert_eq!(names(&pool), ["committed"]);
    let history = pool.history().expect("a history");
    let told = |text: &str| text.contains("gave up the log device log") && text.contains("is lost");
    assert!(history.iter().any(|entry| told(&entry.text)), "{history:?}");
    assert!(pool.take_events().iter().any(|e| matches!(e.kind, EventKind::LogGivenUp { .. })));
    let status = pool.state();
    assert!(status.log_devices[0].given_up && status.log_devices[0].sample.is_none());
    drop(pool);
    // Once given up it is not asked for again, and what comes back of it is not believed.
    let pool = machine.import(&machine.both(), false).expect("imported");
    assert_eq!((names(&pool), pool.state().log.replayed), (vec!["committed".to_owned()], 0));
    pool.zil().remove_log("log").expect("removed");
    pool.close().expect("closed");

    // An exported pool promised nothing that is not committed.
    let (machine, pool) = Machine::new();
    pool.export().expect("exported");
    let main = [Arc::clone(&machine.main)];
    assert!(matches!(machine.import(&main, false), Err(Error::LogMissing { empty: true, .. })));
    // One of another pool is none of ours, and a copy of before the last import is not believed.
    let other = Arc::new(MemoryDevice::from_image("log", early));
    let (pools, _) = scan(handles(&[Arc::clone(&machine.main), other]));
    assert_eq!(pools.len(), 2, "it says whose it is");
    let early = machine.log.image();
    let pool = machine.import(&machine.both(), false).expect("imported");
    let (fs, used) = mount(&pool, "tank");
    put(&fs, "promised", b"2");
    drop((fs, used));
    machine.crash(pool);
    machine.log.restore(&early);
    let refused = machine.import(&machine.both(), false).err().expect("an earlier copy");
    assert!(refused.to_string().contains("earlier copy"), "{refused}");
    assert!(machine.import(&machine.both(), true).is_ok());
}

#[test]
fn no_leaf_that_comes_has_labels_before_log_devices_have_theirs() {
    let (machine, pool) = Machine::new();
    let (fs, used) = mount(&pool, "tank");
    put(&fs, "committed", b"1");
    pool.sync().expect("committed");
    put(&fs, "promised", b"2");
    drop((fs, used));
    // The power goes as soon as the log device is to be written.
    machine.log.arm(Fault { operation: Operation::Write, skip: 0, effect: Effect::PowerOff });
    let more = Arc::new(MemoryDevice::new("more", 64 * MIB));
    let group = GroupHandles::alone(vec![handle(&more)]);
    assert!(matches!(pool.devices().add_groups(group, false, false), Err(Error::LogUnfit { .. })));
    assert!(steadfast_pool::label_of(&*more).is_err(), "it would make the log device an earlier copy");
    more.power_off();
    machine.crash(pool);
    more.power_on(|_| Fate::Dropped);
    let all = [machine.both(), vec![more]].concat();
    let pool = machine.import(&all, false).expect("nothing is missing");
    assert_eq!(names(&pool), ["committed", "promised"]);
}

#[test]
fn a_log_device_that_goes_is_there_until_the_root_whatever_leaf_fails() {
    // In one commit it goes and a leaf fails, of which labels tell before the root. The power goes
    // at any write of the other leaf.
    for skip in 0..40 {
        let env = still();
        let leaves = ["a", "b"].map(|name| Arc::new(MemoryDevice::new(name, 64 * MIB)));
        let log = Arc::new(MemoryDevice::new("log", 64 * MIB));
        let all = [Arc::clone(&leaves[0]), Arc::clone(&leaves[1]), Arc::clone(&log)];
        let mut spec = spec(Vec::new(), None);
        spec.groups = vec![GroupHandles {
            redundancy: Redundancy::Mirror,
            class: GroupClass::Normal,
            devices: handles(&leaves),
        }];
        spec.root_props.insert("journal".into(), "ordered".into());
        let pool = Pool::create(&env, spec).expect("a pool");
        pool.zil().add_logs(GroupHandles::alone(vec![handle(&log)]), false, false).expect("added");
        let (fs, used) = mount(&pool, "tank");
        put(&fs, "promised", b"1");
        drop((fs, used));
        leaves[1].arm(Fault { operation: Operation::Write, skip: 0, effect: Effect::FailAlways });
        leaves[0].arm(Fault { operation: Operation::Write, skip, effect: Effect::PowerOff });
        // It is done, or the pool is suspended.
        let _ = pool.offline("log");
        all.iter().for_each(|device| device.power_off());
        drop(pool);
        all.iter().for_each(|device| device.power_on(|_| Fate::Dropped));
        let (mut pools, _) = scan(handles(&all));
        let pool = Pool::import(&env, pools.remove(0), &import_spec(None));
        let pool = pool.unwrap_or_else(|error| panic!("power lost at write {skip}: {error}"));
        assert_eq!(names(&pool), ["promised"], "power lost at write {skip}");
    }
}

#[test]
fn a_damaged_log_says_what_is_safe_and_keeps_that() {
    let (machine, pool) = Machine::new();
    let (fs, used) = mount(&pool, "tank");
    for round in 0..6 {
        put(&fs, &format!("f{round}"), &noise(round, 2_000));
    }
    drop((fs, used));
    machine.crash(pool);
    let groups = groups_on(&machine.log);
    assert_eq!(groups.len(), 6);
    let whole = machine.log.image();
    let (first, last) = (&groups[0], &groups[5]);
    let foreign = |change: &dyn Fn(&mut LogHeader)| {
        let mut header = last.1.clone();
        change(&mut header);
        header
    };
    let unknown = || {
        let mut body = last.2.clone();
        body[0] = 99; // the kind of its first record
        body
    };
    type Harm<'h> = (&'h str, Box<dyn Fn() + 'h>, usize, &'h str);
    let log = &machine.log;
    let extreme = |record: LogRecord<'_>| {
        let mut body = Vec::new();
        record.encode(&mut body);
        let length = u32::try_from(body.len()).unwrap();
        (foreign(&|header| (header.records, header.length) = (1, length)), body)
    };
    let far = InodeId(u64::MAX);
    let cases: [Harm<'_>; 9] = [
        (
            "an inode of the last number",
            Box::new(|| {
                let (header, body) = extreme(LogRecord::Data { inode: far, offset: 0, bytes: b"content" });
                forge(log, last.0, &header, &body);
            }),
            5,
            "log-records",
        ),
        (
            "content behind the last byte of all",
            Box::new(|| {
                let offset = u64::MAX - 3;
                let (header, body) =
                    extreme(LogRecord::Data { inode: InodeId(2), offset, bytes: b"content" });
                forge(log, last.0, &header, &body);
            }),
            5,
            "log-records",
        ),
        (
            "a next inode that is none",
            Box::new(|| {
                let (header, body) = extreme(LogRecord::Counters { files: 1, next_inode: u64::MAX });
                forge(log, last.0, &header, &body);
            }),
            5,
            "log-records",
        ),
        // A bit of the fourth group: the two behind it hang in the air.
        ("a bit", Box::new(|| log.flip_bit_in(at_group(groups[3].0).0, groups[3].0 + 200, 3)), 3, "log-gap"),
        ("an unknown kind", Box::new(|| forge(log, last.0, &last.1, &unknown())), 5, "log-records"),
        (
            "another parent",
            Box::new(|| forge(log, last.0, &foreign(&|header| header.parent = [9; 32]), &last.2)),
            5,
            "log-chain",
        ),
        (
            "a committed txg",
            Box::new(|| {
                forge(log, last.0, &foreign(&|header| header.txg = steadfast_format::Txg(1)), &last.2);
            }),
            5,
            "log-committed",
        ),
        (
            "a seal where there is no key",
            Box::new(|| {
                let stamp = Stamp { salt: [1; 16], counter: 1 };
                forge(log, last.0, &foreign(&|header| header.stamp = stamp), &last.2);
            }),
            5,
            "log-seal",
        ),
        // Nothing can be read, and nothing is known but the commits.
        (
            "no answer",
            Box::new(|| log.arm(Fault { operation: Operation::Read, skip: 10, effect: Effect::FailAlways })),
            usize::MAX,
            "",
        ),
    ];
    for (what, harm, safe, code) in &cases {
        log.restore(&whole);
        log.disarm();
        let main = Arc::new(MemoryDevice::from_image("a", machine.main.image()));
        harm();
        let all = [Arc::clone(&main), Arc::clone(log)];
        if !code.is_empty() {
            assert_eq!(wrong(&all), [*code], "{what}: {:?}", findings(&all));
        }
        let before = main.image();
        let refused = machine.import(&all, false).err().unwrap_or_else(|| panic!("{what} is refused"));
        let Error::LogDamaged { reason, safe: told, .. } = &refused else { panic!("{what}: {refused}") };
        assert!(!reason.is_empty() && told.contains("All commits up to txg"), "{what}: {refused}");
        if *safe == usize::MAX {
            continue;
        }
        assert!(told.contains(&format!("after them: {safe} are whole")), "{what}: {told}");
        assert!(main.image().to_vec() == before.to_vec(), "{what}: a refused import writes nothing");
        let pool = machine.import(&all, true).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(names(&pool).len(), *safe, "{what}: all that is safe is there");
        let history = pool.history().expect("a history");
        assert!(
            history.iter().any(|entry| entry.text.contains("gave up a part of the intent log")),
            "{what}"
        );
        pool.close().expect("closed");
        machine.import(&all, false).unwrap_or_else(|error| panic!("{what}, again: {error}"));
    }
    // A torn last group was promised to nobody.
    log.disarm();
    log.restore(&whole);
    log.flip_bit_in(at_group(last.0).0, last.0 + 200, 3);
    assert_eq!(wrong(&machine.both()), Vec::<&str>::new());
    assert!(findings(&machine.both()).iter().any(|finding| finding.class().0 == "log-torn"));
    let pool = machine.import(&machine.both(), false).expect("imported");
    assert_eq!((names(&pool).len(), pool.state().log.replayed), (5, 5));
    assert_eq!(first.1.sequence + 5, last.1.sequence);
}

#[test]
fn a_device_that_dies_in_the_replay_leaves_it_for_the_next() {
    let (machine, pool) = Machine::new();
    let (fs, used) = mount(&pool, "tank");
    for round in 0..6 {
        put(&fs, &format!("f{round}"), &noise(round, 150_000));
    }
    drop((fs, used));
    machine.crash(pool);
    let mut refused = 0;
    for device in machine.both() {
        for operation in [Operation::Read, Operation::Write, Operation::Flush] {
            for skip in [0, 1, 5, 11, 60, 215] {
                let images = machine.both().iter().map(|device| device.image()).collect::<Vec<_>>();
                device.arm(Fault { operation, skip, effect: Effect::PowerOff });
                let (mut pools, _) = scan(handles(&machine.both()));
                let result = (pools.len() == 1)
                    .then(|| Pool::import(&machine.env, pools.remove(0), &import_spec(None)));
                match result {
                    Some(Ok(pool)) => drop(pool),
                    Some(Err(error)) => {
                        refused += 1;
                        assert!(!error.to_string().is_empty());
                    }
                    None => {}
                }
                machine.both().iter().for_each(|device| {
                    device.power_off();
                    device.power_on(|index| if index % 2 == 0 { Fate::Applied } else { Fate::Dropped });
                });
                let pool = machine.import(&machine.both(), false);
                let pool = pool.unwrap_or_else(|error| panic!("{operation:?} {skip}: {error}"));
                assert_eq!(names(&pool).len(), 6, "{operation:?} {skip}");
                drop(pool);
                for (device, image) in machine.both().iter().zip(&images) {
                    device.power_off();
                    device.power_on(|_| Fate::Dropped);
                    device.restore(image);
                }
            }
        }
    }
    assert!(refused > 8, "{refused} imports met the fault");
}

#[test]
fn a_full_log_commits_and_keeps_every_promise() {
    // In the pool: two slots of 1 MiB, and each group has 150 kB.
    let (machine, pool) = Machine::without_log();
    let (fs, used) = mount(&pool, "tank");
    for round in 0..64 {
        put(&fs, &format!("f{round:02}"), &noise(round, 150_000));
    }
    let counts = pool.state().log.counts;
    assert!(counts.durable > 20, "{counts:?}");
    drop((fs, used));
    machine.crash(pool);
    let pool = machine.import(&[Arc::clone(&machine.main)], false).expect("imported");
    let (fs, _used) = mount(&pool, "tank");
    for round in 0..64 {
        let name = format!("f{round:02}");
        assert!(common::read_file(&fs, ROOT, name.as_bytes()) == noise(round, 150_000), "{name}");
    }
}

#[test]
fn what_waits_for_a_key_keeps_the_log_where_it_is() {
    const SECRET: [u8; 32] = [7; 32];
    let (machine, pool) = Machine::new();
    pool.datasets()
        .create_dataset("tank/vault", Default::default(), Some(common::key(&machine.env, &SECRET)))
        .expect("made");
    let (fs, used) = mount(&pool, "tank/vault");
    put(&fs, "secret", b"kept");
    drop((fs, used));
    machine.crash(pool);
    let pool = machine.import(&machine.both(), false).expect("imported");
    assert_eq!(pool.state().log.held, 1);
    let third = Arc::new(MemoryDevice::new("third", 64 * MIB));
    assert!(matches!(
        pool.zil().add_logs(GroupHandles::alone(vec![handle(&third)]), false, false),
        Err(Error::LogHeld { datasets: 1, .. })
    ));
    assert!(matches!(pool.zil().remove_log("log"), Err(Error::LogHeld { .. })));
    pool.export().expect("exported");
    // An exported pool may need its log device all the same.
    let main = [Arc::new(MemoryDevice::from_image("a", machine.main.image()))];
    assert!(matches!(machine.import(&main, false), Err(Error::LogMissing { empty: false, .. })));
    let pool = machine.import(&main, true).expect("accepted");
    assert_eq!(pool.state().log.held, 0);
    let history = pool.history().expect("a history");
    assert!(history.iter().any(|entry| entry.text.contains("held for tank/vault")), "{history:?}");
    pool.datasets().load_key("tank/vault", &SECRET, false).expect("the key");
    let (fs, used) = mount(&pool, "tank/vault");
    assert!(fs.lookup(ROOT, b"secret").is_err(), "it was only promised");
    drop((fs, used, pool));
    let pool = machine.import(&machine.both(), false).expect("imported");
    pool.datasets().load_key("tank/vault", &SECRET, false).expect("the key");
    let (fs, used) = mount(&pool, "tank/vault");
    assert_eq!(common::read_file(&fs, ROOT, b"secret"), b"kept");
    drop((fs, used));
    pool.zil().remove_log("log").expect("nothing is kept there any more");
}

/// One life of a pool whose log device comes, goes, fails and loses power.
fn run(seed: u64) {
    let mut dice = common::Dice(seed);
    let (machine, mut pool) = Machine::new();
    // Of each file what the last fsync promised.
    let mut promised: std::collections::BTreeMap<u64, Vec<u8>> = Default::default();
    for round in 0..6 {
        let (fs, used) = mount(&pool, "tank");
        for _ in 0..4 + dice.below(20) {
            match dice.below(12) {
                0 => pool.sync().expect("committed"),
                1 if !pool.state().log_devices.is_empty() => pool.zil().remove_log("log").expect("removed"),
                2 if pool.state().log_devices.is_empty() => {
                    // A device that fails at once is not taken; that is another claim.
                    machine.log.disarm();
                    pool.zil()
                        .add_logs(GroupHandles::alone(vec![handle(&machine.log)]), true, false)
                        .expect("added");
                }
                3 => {
                    let operation = if dice.below(2) == 0 { Operation::Write } else { Operation::Flush };
                    machine.log.arm(Fault { operation, skip: dice.below(4), effect: Effect::FailOnce });
                }
                _ => {
                    let (name, length) = (dice.below(6), 1 + dice.below(30_000));
                    let content = noise(dice.below(1 << 30), usize::try_from(length).unwrap());
                    let text = format!("f{name}");
                    let entry = fs.lookup(ROOT, text.as_bytes());
                    let entry = entry.or_else(|_| fs.mknod(ME, ROOT, text.as_bytes(), 0o100_644, 0));
                    let ino = entry.expect("made").ino;
                    let cut = steadfast_posix::SetAttr { size: Some(0), ..Default::default() };
                    fs.setattr(ino, &cut).expect("cut");
                    fs.write(ino, 0, &content, false).expect("written");
                    fs.fsync(ino).expect("durable");
                    fs.forget(ino, 1);
                    promised.insert(name, content);
                }
            }
        }
        drop((fs, used));
        let all = if pool.state().log_devices.is_empty() {
            vec![Arc::clone(&machine.main)]
        } else {
            machine.both()
        };
        machine.both().iter().for_each(|device| device.power_off());
        drop(pool);
        let mut fates = common::Dice(seed ^ round);
        machine.both().iter().for_each(|device| {
            device.power_on(|_| match fates.below(3) {
                0 => Fate::Dropped,
                1 => Fate::Applied,
                _ => Fate::Torn { sectors: usize::try_from(fates.below(9)).unwrap() },
            });
        });
        assert_eq!(wrong(&all), Vec::<&str>::new(), "seed {seed:#x}, round {round}");
        pool = machine.import(&machine.both(), false).unwrap_or_else(|error| {
            panic!("seed {seed:#x}, round {round}: {error}");
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
fn no_promise_is_lost_whatever_the_log_device_does() {
    for seed in 0..12 {
        run(0x5106 + seed);
    }
}
