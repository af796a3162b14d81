//! A verb is refused because labels could not be written, some of them were, and then the power
//! goes at any write of the next commit: what was committed before is found. And what a refused
//! verb has to leave behind: no key that opens what it is not to open any more.

use std::ops::Range;
use std::sync::Arc;

use crate::common::{
    MIB, ROOT, handle, handles, import_spec, key, mount, noise, read_file, spec, write_file,
};
use steadfast_device::memory::{Effect, Fate, Fault};
use steadfast_device::{MemoryDevice, Operation};
use steadfast_env::Env;
use steadfast_format::{GroupClass, medium};
use steadfast_pool::{CreateSpec, Error, GroupHandles, ImportSpec, Pool, Redundancy, scan};

/// Crashes at later writes than this one of a commit are none: it has fewer.
const CRASHES_MAX: u64 = 200;
/// Between two crashes. Behind the uberblocks of which the first are durable there are more writes
/// than this before all labels are: two more uberblocks and the first labels.
const CRASH_STEP: usize = 3;

/// The device of a pool, a log device that it may have, and a device that is to come.
struct Machine {
    env: Env,
    main: Arc<MemoryDevice>,
    log: Arc<MemoryDevice>,
    new: Arc<MemoryDevice>,
}

/// Something that brings the pool a device.
type Verb = fn(&Pool, &Machine) -> Result<(), Error>;

const VERBS: [(&str, Verb); 5] = [
    ("add", |pool, machine| {
        let devices = vec![handle(&machine.new)];
        let group = GroupHandles { redundancy: Redundancy::None, class: GroupClass::Normal, devices };
        pool.devices().add_groups(vec![group], false, false)
    }),
    ("attach", |pool, machine| pool.attach("a", handle(&machine.new), false)),
    ("replace", |pool, machine| pool.replace("a", handle(&machine.new), false)),
    ("spare", |pool, machine| pool.devices().add_spares(vec![handle(&machine.new)], false, false)),
    ("log", |pool, machine| {
        pool.zil().add_logs(GroupHandles::alone(vec![handle(&machine.new)]), false, false)
    }),
];

impl Machine {
    fn new(with_log: bool) -> (Machine, Pool) {
        let device = |name: &str| Arc::new(MemoryDevice::new(name, 64 * MIB));
        let machine = Machine {
            env: Env { clock: Env::seeded(1).clock, ..Env::real() },
            main: device("a"),
            log: device("log"),
            new: device("new"),
        };
        let pool = Pool::create(&machine.env, spec(vec![handle(&machine.main)], None)).expect("a pool");
        if with_log {
            pool.zil()
                .add_logs(GroupHandles::alone(vec![handle(&machine.log)]), false, false)
                .expect("added");
        }
        // Labels are older than the root from here on.
        put(&pool, "before");
        (machine, pool)
    }

    fn all(&self) -> Vec<Arc<MemoryDevice>> {
        [&self.main, &self.new, &self.log].map(Arc::clone).to_vec()
    }

    /// The power goes for all and comes back; nothing is there that was not flushed, and nothing
    /// fails any more.
    fn crash(&self, pool: Pool) {
        self.all().iter().for_each(|device| device.power_off());
        drop(pool);
        for device in self.all() {
            device.power_on(|_| Fate::Dropped);
            device.disarm();
        }
    }

    fn import(&self, spec: &ImportSpec) -> Result<Pool, Error> {
        let (mut pools, _) = scan(handles(&self.all()));
        assert_eq!(pools.len(), 1, "one pool");
        Pool::import(&self.env, pools.remove(0), spec)
    }
}

fn put(pool: &Pool, name: &str) {
    let (fs, _used) = mount(pool, "tank");
    write_file(&fs, ROOT, name.as_bytes(), &noise(7, 100_000));
    pool.sync().expect("committed");
}

/// Lets a verb fail by this fault of this device. True if it did; the pool is to be found after any
/// crash that follows.
fn refused(name: &str, verb: Verb, with_log: bool, fault: Fault, of: fn(&Machine) -> &MemoryDevice) -> bool {
    for crash in (0..CRASHES_MAX).step_by(CRASH_STEP) {
        let (machine, pool) = Machine::new(with_log);
        of(&machine).arm(fault);
        if verb(&pool, &machine).is_ok() {
            return false;
        }
        if pool.suspended().is_some() {
            // It was the pool's already, and is found as such.
            machine.crash(pool);
            let pool = machine.import(&import_spec(None)).expect("a pool");
            let (fs, _used) = mount(&pool, "tank");
            assert!(read_file(&fs, ROOT, b"before") == noise(7, 100_000));
            return false;
        }
        let (fs, used) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"after", &noise(8, 5000));
        machine.main.arm(Fault { operation: Operation::Write, skip: crash, effect: Effect::PowerOff });
        let committed = pool.sync().is_ok() && machine.main.counts().failed == 0;
        drop((fs, used));
        machine.crash(pool);
        let context = format!("{name}, {fault:?}, crash at write {crash}");
        let pool = machine.import(&import_spec(None)).unwrap_or_else(|error| panic!("{context}: {error}"));
        let (fs, _used) = mount(&pool, "tank");
        assert!(read_file(&fs, ROOT, b"before") == noise(7, 100_000), "{context}");
        if committed {
            assert!(read_file(&fs, ROOT, b"after") == noise(8, 5000), "{context}");
            let paths: Vec<String> =
                pool.state().leaves.iter().map(|leaf| leaf.config.path.clone()).collect();
            assert_eq!(paths, ["a"], "{context}");
            return true;
        }
    }
    panic!("{name}: a commit has fewer writes");
}

/// Which writes of the new device are labels, and one before and some behind them. Of one that gets
/// segments rings are erased first; what it gets then is counted by nobody, for a resilver goes on
/// beside the verb. Others are erased, and labels are the last they get.
fn labels_of_new(name: &str, verb: Verb) -> Range<u64> {
    let erased = 4 * (medium::RING_SLOTS + 1);
    if ["add", "attach", "replace"].contains(&name) {
        return erased - 1..erased + 6;
    }
    let (machine, pool) = Machine::new(false);
    verb(&pool, &machine).expect("nothing fails");
    let all = machine.new.counts().writes;
    all - 9..all
}

#[test]
fn a_new_device_that_cannot_be_labelled_is_none_of_the_next_roots() {
    for (name, verb) in VERBS {
        let mut failed = 0;
        for skip in labels_of_new(name, verb) {
            for effect in [Effect::FailOnce, Effect::FailAlways] {
                let fault = Fault { operation: Operation::Write, skip, effect };
                failed += u32::from(refused(name, verb, false, fault, |machine| &machine.new));
            }
        }
        assert!(failed >= 4, "{name}: {failed} of them");
    }
}

#[test]
fn the_power_goes_while_labels_are_put_back() {
    for (name, verb) in VERBS {
        for skip in labels_of_new(name, verb) {
            for crash in (0..CRASHES_MAX).step_by(CRASH_STEP) {
                let (machine, pool) = Machine::new(false);
                machine.new.arm(Fault { operation: Operation::Write, skip, effect: Effect::FailOnce });
                machine.main.arm(Fault {
                    operation: Operation::Write,
                    skip: crash,
                    effect: Effect::PowerOff,
                });
                let _ = verb(&pool, &machine);
                let over = machine.main.counts().failed == 0;
                machine.crash(pool);
                let pool = machine.import(&import_spec(None));
                let pool = pool.unwrap_or_else(|error| panic!("{name}, write {skip} and {crash}: {error}"));
                let (fs, _used) = mount(&pool, "tank");
                assert!(read_file(&fs, ROOT, b"before") == noise(7, 100_000), "{name}, {skip}, {crash}");
                if over {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_log_device_that_fails_between_two_copies_leaves_labels_that_the_next_root_goes_with() {
    for (name, verb) in VERBS {
        let mut failed = 0;
        for skip in 0..8 {
            let fault = Fault { operation: Operation::Write, skip, effect: Effect::FailAlways };
            failed += u32::from(refused(name, verb, true, fault, |machine| &machine.log));
        }
        assert!(failed >= 2, "{name}: in the first copies and in the second");
    }
}

#[test]
fn a_changed_key_is_the_only_one_though_a_log_device_failed_meanwhile() {
    let [old, new] = [[1_u8; 32], [2; 32]];
    let mut failed = 0;
    for skip in 0..4 {
        let (machine, pool) = Machine::new(true);
        drop(pool);
        let env = &machine.env;
        let sealed = spec(vec![handle(&machine.main)], Some(key(env, &old)));
        let pool = Pool::create(env, CreateSpec { force: true, ..sealed }).expect("a sealed pool");
        pool.zil().add_logs(GroupHandles::alone(vec![handle(&machine.log)]), true, false).expect("added");
        put(&pool, "before");
        machine.log.arm(Fault { operation: Operation::Write, skip, effect: Effect::FailAlways });
        pool.datasets()
            .change_key("tank", Some(key(env, &new)), None)
            .expect("the pool does without its log device");
        failed += machine.log.counts().failed;
        machine.crash(pool);
        let import = |secret: &[u8]| {
            let (mut pools, _) = scan(vec![handle(&machine.main), handle(&machine.log)]);
            Pool::import(env, pools.remove(0), &import_spec(Some(secret)))
        };
        let told = import(&old).map(drop);
        assert!(matches!(told, Err(Error::WrongKey { .. })), "write {skip}: {told:?}");
        let pool = import(&new).expect("the new key opens it");
        let (fs, _used) = mount(&pool, "tank");
        assert!(read_file(&fs, ROOT, b"before") == noise(7, 100_000));
    }
    assert!(failed >= 4, "each time");
}

#[test]
fn rings_that_cannot_be_read_are_told_as_that() {
    let env = Env::real();
    let device = Arc::new(MemoryDevice::new("a", 64 * MIB));
    let devices = || handles(std::slice::from_ref(&device));
    let pool = Pool::create(&env, spec(devices(), None)).expect("a pool");
    put(&pool, "before");
    pool.export().expect("exported");
    drop(pool);
    let import = |fails: &[(u64, Effect)]| {
        // Four labels are read first.
        for &(ring, effect) in fails {
            device.arm(Fault { operation: Operation::Read, skip: 4 + ring, effect });
        }
        let (mut pools, _) = scan(devices());
        let pool = Pool::import(&env, pools.remove(0), &import_spec(None));
        device.disarm();
        pool
    };
    let told = import(&[(0, Effect::FailAlways)]).map(drop);
    assert!(matches!(told, Err(Error::Device(_))), "{told:?}");
    // One is enough.
    let pool =
        import(&[(0, Effect::FailOnce), (1, Effect::FailOnce), (2, Effect::FailOnce)]).expect("imported");
    let (fs, _used) = mount(&pool, "tank");
    assert!(read_file(&fs, ROOT, b"before") == noise(7, 100_000));
}
