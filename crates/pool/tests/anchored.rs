//! A pool with an anchor: crashes between uberblock and register, and the attacks of
//! docs/SECURITY.md by their numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{self, MIB, ROOT, handles, import_spec, key, mount, read_file, spec, write_file};
use parking_lot::Mutex;
use steadfast_anchor::memory::Fault as Answer;
use steadfast_anchor::{AnchorRecord, MemoryRegister, MemoryWitness, RecordBytes, Register, Witness};
use steadfast_device::memory::{Effect, Fate, Fault, Image};
use steadfast_device::{MemoryDevice, Operation};
use steadfast_env::Env;
use steadfast_format::{PoolGuid, PoolState, Txg};
use steadfast_pool::{AnchorWish, Error, EventKind, ImportSpec, Pool, Registers, scan};

const SECRET: [u8; 32] = [9; 32];
const PATH: &str = "/safe/tank.anchor";

/// A machine: devices, registers by path, and what its host remembers.
#[derive(Default)]
struct Corner {
    registers: Mutex<BTreeMap<String, Arc<MemoryRegister>>>,
    witnesses: Mutex<BTreeMap<u64, Arc<MemoryWitness>>>,
}

impl Corner {
    fn at(&self, path: &str) -> Arc<MemoryRegister> {
        let mut registers = self.registers.lock();
        Arc::clone(registers.entry(path.to_owned()).or_insert_with(|| Arc::new(MemoryRegister::new(path))))
    }

    fn record(&self) -> Option<Box<RecordBytes>> {
        self.at(PATH).peek()
    }

    fn decoded(&self) -> AnchorRecord {
        AnchorRecord::decode(&self.record().expect("a record")[..]).expect("a record")
    }

    fn forget(&self) {
        self.witnesses.lock().clear();
    }
}

impl Registers for Corner {
    fn register(&self, path: &str) -> Arc<dyn Register> {
        self.at(path)
    }

    fn witness(&self, pool: PoolGuid) -> Option<Arc<dyn Witness>> {
        let mut witnesses = self.witnesses.lock();
        Some(Arc::clone(witnesses.entry(pool.0).or_default()) as Arc<dyn Witness>)
    }
}

struct Machine {
    env: Env,
    devices: Vec<Arc<MemoryDevice>>,
    corner: Arc<Corner>,
    sealed: bool,
}

/// Disks that an adversary can keep a copy of.
type Disks = Vec<Image>;

impl Machine {
    fn new(sealed: bool) -> Machine {
        let devices =
            vec![Arc::new(MemoryDevice::new("a", 64 * MIB)), Arc::new(MemoryDevice::new("b", 64 * MIB))];
        Machine { env: Env::seeded(7), devices, corner: Arc::default(), sealed }
    }

    fn wish(&self, path: Option<&str>) -> AnchorWish {
        let registers = Arc::clone(&self.corner) as Arc<dyn Registers>;
        AnchorWish { registers: Some(registers), path: path.map(str::to_owned), ..AnchorWish::default() }
    }

    fn create(&self, anchored: bool) -> Pool {
        let key = self.sealed.then(|| key(&self.env, &SECRET));
        let mut spec = spec(handles(&self.devices), key);
        spec.anchor = self.wish(anchored.then_some(PATH));
        Pool::create(&self.env, spec).expect("a pool")
    }

    fn spec(&self) -> ImportSpec {
        ImportSpec { anchor: self.wish(None), ..import_spec(self.sealed.then_some(&SECRET[..])) }
    }

    fn import_as(&self, spec: &ImportSpec) -> Result<Pool, Error> {
        let (mut pools, _) = scan(handles(&self.devices));
        Pool::import(&self.env, pools.remove(0), spec)
    }

    fn import(&self) -> Result<Pool, Error> {
        self.import_as(&self.spec())
    }

    fn import_accepting(&self) -> Result<Pool, Error> {
        let mut spec = self.spec();
        spec.anchor.accept_rollback = true;
        self.import_as(&spec)
    }

    fn disks(&self) -> Disks {
        self.devices.iter().map(|device| device.image()).collect()
    }

    fn put_back(&self, disks: &Disks) {
        self.devices.iter().zip(disks).for_each(|(device, image)| device.restore(image));
    }

    /// Writes a file and commits.
    fn write(&self, pool: &Pool, name: &str) -> Result<(), Error> {
        let (fs, _handle) = mount(pool, "tank");
        write_file(&fs, ROOT, name.as_bytes(), name.as_bytes());
        pool.sync()
    }

    fn names(&self, pool: &Pool) -> Vec<String> {
        let (fs, _handle) = mount(pool, "tank");
        ["one", "two", "three", "four"]
            .into_iter()
            .filter(|name| fs.lookup(ROOT, name.as_bytes()).is_ok())
            .inspect(|name| assert_eq!(read_file(&fs, ROOT, name.as_bytes()), name.as_bytes()))
            .map(str::to_owned)
            .collect()
    }

    /// A refused import changes neither devices nor register.
    #[track_caller]
    fn refuses(&self, spec: &ImportSpec) -> Error {
        let before = (self.disks_bytes(), self.corner.record());
        let error = self.import_as(spec).map(|_| ()).expect_err("refused");
        assert!((self.disks_bytes(), self.corner.record()) == before, "a refusal changes nothing: {error}");
        error
    }

    /// Labels and rings of all devices: what an import writes first.
    fn disks_bytes(&self) -> Vec<Vec<u8>> {
        use steadfast_device::Device;
        let all = |device: &Arc<MemoryDevice>| {
            let labels = (0..4).flat_map(|copy| device.read_label(copy).expect("read"));
            let rings = (0..4).flat_map(|copy| device.read_uberblocks(copy).expect("read").concat());
            labels.chain(rings).collect()
        };
        self.devices.iter().map(all).collect()
    }
}

fn both(test: impl Fn(Machine)) {
    for sealed in [false, true] {
        test(Machine::new(sealed));
    }
}

fn internal_history(pool: &Pool) -> Vec<String> {
    let entries = pool.history().expect("a history");
    entries.into_iter().filter(|entry| entry.internal).map(|entry| entry.text).collect()
}

#[test]
fn a_pool_is_found_again_at_its_anchored_root_and_every_import_takes_over() {
    both(|machine| {
        let pool = machine.create(true);
        machine.write(&pool, "one").expect("committed");
        let status = pool.state().anchor.expect("it has an anchor");
        assert_eq!((status.register.as_str(), status.epoch, status.keyed), (PATH, 1, machine.sealed));
        assert_eq!(status.txg, pool.state().txg);
        assert!(pool.features().iter().any(|feature| feature.name == "anchor"));
        pool.export().expect("exported");
        for round in 2..5 {
            let pool = machine.import().expect("imported");
            assert_eq!(machine.names(&pool), ["one"]);
            let status = pool.state().anchor.expect("still");
            assert_eq!((status.epoch, status.txg), (round, pool.state().txg));
            assert_eq!(machine.corner.decoded().txg(), pool.state().txg);
            pool.export().expect("exported");
        }
        // Read-only: the register is looked at and left as it is.
        let before = machine.corner.record();
        let pool = machine.import_as(&ImportSpec { read_only: true, ..machine.spec() }).expect("imported");
        assert_eq!(machine.names(&pool), ["one"]);
        pool.export().expect("exported");
        assert!(machine.corner.record() == before);
    });
}

/// The crash table of `steadfast_anchor`, step by step: at every write and flush of a commit, and
/// at the register.
#[test]
fn a_crash_at_each_step_between_blocks_uberblock_and_register_opens_the_anchored_root() {
    both(|machine| {
        machine.create(true).export().expect("exported");
        let (mut before_seen, mut after_seen) = (false, false);
        for (operation, skips) in [(Operation::Write, 60), (Operation::Flush, 7)] {
            for (skip, fate) in (0..skips).flat_map(|skip| {
                [(skip, Fate::Dropped), (skip, Fate::Applied), (skip, Fate::Torn { sectors: 3 })]
            }) {
                let pool = machine.import().expect("what is anchored is found");
                let committed = pool.state().txg;
                {
                    let (fs, _handle) = mount(&pool, "tank");
                    let name = format!("{operation} {skip} {fate:?}");
                    write_file(&fs, ROOT, name.as_bytes(), b"x");
                }
                machine.devices[0].arm(Fault { operation, skip, effect: Effect::PowerOff });
                let done = pool.sync().is_ok();
                machine.devices.iter().for_each(|device| device.power_off());
                drop(pool);
                machine.devices.iter().for_each(|device| device.power_on(|_| fate));
                let anchored = machine.corner.decoded();
                assert!(done == (anchored.txg() > committed), "acknowledged if and only if anchored");
                (before_seen, after_seen) = (before_seen || !done, after_seen || done);
                let pool = machine.import().expect("what is anchored is found");
                let (fs, _handle) = mount(&pool, "tank");
                let name = format!("{operation} {skip} {fate:?}");
                assert_eq!(
                    fs.lookup(ROOT, name.as_bytes()).is_ok(),
                    done,
                    "{name}: no roll-forward, no fallback [anchor.3]"
                );
                drop((fs, _handle));
                pool.export().expect("exported");
            }
        }
        assert!(before_seen && after_seen, "both sides of the register were met");
    });
}

/// The uberblock is durable, the register was not reached, or its answer was lost: the three rows
/// of the crash table.
#[test]
fn a_swap_that_fails_or_whose_answer_is_lost_suspends_and_the_next_import_opens_what_the_register_holds() {
    both(|machine| {
        for (answers, kept) in [(&[Answer::Before; 5][..], false), (&[Answer::After; 5], true)] {
            let machine = Machine::new(machine.sealed);
            let pool = machine.create(true);
            machine.write(&pool, "one").expect("committed");
            machine.corner.at(PATH).arm(answers);
            let error = machine.write(&pool, "two").expect_err("not acknowledged");
            assert!(matches!(error, Error::Suspended { .. }), "{error}");
            assert!(error.to_string().contains("does not answer"), "{error}");
            assert!(pool.state().suspended.is_some());
            assert_eq!(machine.names(&pool), ["one", "two"], "reads go on");
            drop(pool);
            let pool = machine.import().expect("imported");
            assert_eq!(machine.names(&pool).len(), if kept { 2 } else { 1 });
            machine.write(&pool, "three").expect("and goes on");
            pool.export().expect("exported");
        }
        // A hiccup is none of the operator's business.
        let pool = machine.create(true);
        machine.corner.at(PATH).arm(&[Answer::Before, Answer::After, Answer::After]);
        machine.write(&pool, "one").expect("sent again");
        assert_eq!(pool.state().anchor.map(|anchor| anchor.failures), Some(3));
    });
}

/// Attack 7: the whole store is put back to an earlier, consistent txg.
#[test]
fn attack_7_the_whole_store_put_back_is_refused_and_accepted_only_by_that_word() {
    both(|machine| {
        let pool = machine.create(true);
        machine.write(&pool, "one").expect("committed");
        pool.export().expect("exported");
        let old = machine.disks();
        let pool = machine.import().expect("imported");
        for name in ["two", "three"] {
            machine.write(&pool, name).expect("committed");
        }
        pool.export().expect("exported");
        let anchored = machine.corner.decoded().txg();
        machine.put_back(&old);
        for forget in [false, true] {
            if forget {
                machine.corner.forget();
            }
            // Not even with force.
            for force in [false, true] {
                for read_only in [false, true] {
                    let error = machine.refuses(&ImportSpec { force, read_only, ..machine.spec() });
                    assert!(
                        matches!(error, Error::PutBack { anchored: at, .. } if at == anchored),
                        "{error}"
                    );
                    assert!(error.to_string().contains("put back to an earlier copy"), "{error}");
                }
            }
        }
        let pool = machine.import_accepting().expect("the operator accepts");
        assert_eq!(machine.names(&pool), ["one"]);
        let told = internal_history(&pool);
        assert!(told.iter().any(|line| line.contains("the operator accepted txg")), "{told:?}");
        let event = |event: &steadfast_pool::Event| matches!(event.kind, EventKind::RootAccepted { .. });
        assert!(pool.take_events().iter().any(event));
        machine.write(&pool, "four").expect("and goes on");
        pool.export().expect("exported");
        let pool = machine.import().expect("no more questions");
        assert_eq!(machine.names(&pool), ["one", "four"]);
    });
}

/// Attack 8: store and the daemon's own state are put back, the register is not.
#[test]
fn attack_8_store_and_host_put_back_but_not_the_register_is_refused() {
    both(|machine| {
        let pool = machine.create(true);
        machine.write(&pool, "one").expect("committed");
        pool.export().expect("exported");
        let (old, seen) = (machine.disks(), machine.corner.record());
        let pool = machine.import().expect("imported");
        machine.write(&pool, "two").expect("committed");
        let guid = pool.guid();
        pool.export().expect("exported");
        machine.put_back(&old);
        machine.corner.witnesses.lock().get(&guid.0).expect("a witness").put(seen);
        assert!(matches!(machine.refuses(&machine.spec()), Error::PutBack { .. }));
    });
}

/// Attack 9: the register is put back. With the store as it is, and with the store put back too.
#[test]
fn attack_9_a_register_put_back_is_refused_by_the_store_and_by_the_host() {
    both(|machine| {
        let pool = machine.create(true);
        machine.write(&pool, "one").expect("committed");
        pool.export().expect("exported");
        let (old, register) = (machine.disks(), machine.corner.record());
        let pool = machine.import().expect("imported");
        for name in ["two", "three"] {
            machine.write(&pool, name).expect("committed");
        }
        pool.export().expect("exported");
        machine.corner.at(PATH).put(register);
        // By the host that saw more.
        let error = machine.refuses(&machine.spec());
        assert!(
            matches!(error, Error::AnchorUnusable { source: steadfast_anchor::Error::Behind { .. }, .. }),
            "{error}"
        );
        // By the store, on a host that saw nothing.
        machine.corner.forget();
        let error = machine.refuses(&machine.spec());
        assert!(matches!(error, Error::AnchorBehind { .. }), "{error}");
        let new = machine.disks();
        // Both put back: only a host that saw more can tell (attack 10 puts that back too, and is
        // out of reach).
        machine.put_back(&old);
        machine.import().expect("nobody is left who knows").export().expect("exported");

        let machine = Machine { devices: machine.devices, ..Machine::new(machine.sealed) };
        drop(new);
        let pool = machine.create_over();
        machine.write(&pool, "one").expect("committed");
        pool.export().expect("exported");
        let (old, register) = (machine.disks(), machine.corner.record());
        let pool = machine.import().expect("imported");
        machine.write(&pool, "two").expect("committed");
        pool.export().expect("exported");
        machine.put_back(&old);
        machine.corner.at(PATH).put(register);
        let error = machine.refuses(&machine.spec());
        assert!(error.to_string().contains("was put back"), "{error}");
        let pool = machine.import_accepting().expect("the operator accepts");
        assert_eq!(machine.names(&pool), ["one"]);
        pool.export().expect("exported");
        machine.import().expect("no more questions");
    });
}

impl Machine {
    fn create_over(&self) -> Pool {
        let key = self.sealed.then(|| key(&self.env, &SECRET));
        let mut spec = spec(handles(&self.devices), key);
        (spec.anchor, spec.force) = (self.wish(Some(PATH)), true);
        Pool::create(&self.env, spec).expect("a pool")
    }
}

/// Attack 22: two daemons open one pool, each on a copy of its devices.
#[test]
fn attack_22_of_two_daemons_exactly_one_wins_and_the_other_says_why() {
    both(|machine| {
        let first = machine.create(true);
        machine.write(&first, "one").expect("committed");
        let copies: Vec<_> = machine
            .disks()
            .into_iter()
            .zip(["a", "b"])
            .map(|(image, name)| Arc::new(MemoryDevice::from_image(name, image)))
            .collect();
        let other =
            Machine { devices: copies, corner: Arc::clone(&machine.corner), ..Machine::new(machine.sealed) };
        let second = other.import_as(&ImportSpec { force: true, ..other.spec() }).expect("takes over");
        let before = machine.disks_bytes();
        let error = machine.write(&first, "two").expect_err("fenced");
        assert!(error.to_string().contains("another daemon has taken over this pool"), "{error}");
        assert!(machine.disks_bytes() == before, "a fenced daemon writes no root");
        let state = first.state();
        assert!(state.suspended.is_some() && state.anchor.is_some_and(|anchor| anchor.fenced.is_some()));
        assert_eq!(machine.names(&first)[0], "one", "reads go on");
        assert!(first.set_pool_prop("comment", Some("x")).is_err());
        first.export().expect("it can be let go of");
        // No write of the winner that was acknowledged is lost.
        other.write(&second, "three").expect("the winner goes on");
        second.export().expect("exported");
        let second = other.import().expect("imported");
        assert_eq!(other.names(&second), ["one", "three"]);
        second.export().expect("exported");
        // The loser's copy is an earlier copy now.
        assert!(matches!(machine.refuses(&machine.spec()), Error::PutBack { .. }));
    });
}

/// Attack 24: a daemon that slept through a takeover wakes with changes to commit and slots to give
/// back.
#[test]
fn attack_24_a_stale_daemon_wakes_and_neither_commits_nor_discards() {
    let machine = Machine::new(true);
    let stale = machine.create(true);
    {
        let (fs, _handle) = mount(&stale, "tank");
        write_file(&fs, ROOT, b"large", &common::noise(1, 6 << 20));
        stale.sync().expect("committed");
        fs.unlink(ROOT, b"large").expect("removed");
        write_file(&fs, ROOT, b"two", b"two");
    }
    // Same devices: what a lock on them would forbid. Another host reads them and takes over the
    // register.
    let other = Machine {
        devices: machine.devices.clone(),
        corner: Arc::clone(&machine.corner),
        ..Machine::new(true)
    };
    let winner = other.import_as(&ImportSpec { force: true, ..other.spec() }).expect("takes over");
    let committed = machine.disks_bytes();
    let discards =
        |machine: &Machine| machine.devices.iter().map(|device| device.counts().discards).sum::<u64>();
    let before = discards(&machine);
    let error = stale.sync().expect_err("fenced");
    assert!(error.to_string().contains("taken over"), "{error}");
    stale.export().expect("let go");
    drop(stale);
    assert!(machine.disks_bytes() == committed, "it wrote nothing");
    assert_eq!(discards(&machine), before, "and gave nothing back");
    let (fs, handle) = mount(&winner, "tank");
    assert!(
        read_file(&fs, ROOT, b"large") == common::noise(1, 6 << 20),
        "nothing that is referenced is gone"
    );
    drop((fs, handle));
    other.write(&winner, "three").expect("the winner goes on");
    winner.export().expect("exported");
}

/// Attack 26: a root that was never anchored, and one that was made without the key.
#[test]
fn attack_26_an_unanchored_or_forged_root_is_not_opened() {
    both(|machine| {
        let pool = machine.create(true);
        machine.write(&pool, "one").expect("committed");
        // A valid root, durable on the devices and never anchored: what an adversary would keep of
        // a crash.
        machine.corner.at(PATH).arm(&[Answer::Before; 5]);
        machine.write(&pool, "two").expect_err("not anchored");
        drop(pool);
        let transient = machine.disks();
        let pool = machine.import().expect("the anchored root is there");
        assert_eq!(machine.names(&pool), ["one"], "the transient root is not opened");
        machine.write(&pool, "three").expect("committed");
        machine.write(&pool, "four").expect("committed");
        pool.export().expect("exported");
        machine.put_back(&transient);
        assert!(matches!(machine.refuses(&machine.spec()), Error::PutBack { .. }));

        // A pool of somebody else's making, consistent in itself, with this pool's number in its
        // labels and root: for an unsealed pool nothing secret is needed to make one, and the
        // register refuses it all the same.
        if !machine.sealed {
            // The same seed draws the same number.
            let forger = Machine { corner: Arc::default(), ..Machine::new(false) };
            let forged = forger.create(false);
            assert_eq!(forged.guid(), machine.corner.decoded().pool);
            for (name, later) in [("two", false), ("three", true)] {
                (0..if later { 20 } else { 1 })
                    .for_each(|_| forged.set_pool_prop("comment", Some(name)).expect("set"));
                let images = forger.disks();
                machine.put_back(&images);
                assert!(
                    matches!(machine.refuses(&machine.spec()), Error::AnchorUnnamed { .. }),
                    "by this host"
                );
                let mut named = machine.spec();
                named.anchor.path = Some(PATH.to_owned());
                let error = machine.refuses(&named);
                let told = if later { "is older than the pool" } else { "put back to an earlier copy" };
                assert!(error.to_string().contains(told), "{error}");
            }
            drop(forged);
        }
        // A record made without the key.
        if machine.sealed {
            let mut record = machine.corner.decoded();
            record.keyed = false;
            let forged = record.encode(steadfast_crypto::hash);
            machine.corner.at(PATH).put(Some(Box::new(forged)));
            let error = machine.refuses(&machine.spec());
            assert!(
                matches!(error, Error::AnchorUnusable { source: steadfast_anchor::Error::Forged { .. }, .. }),
                "{error}"
            );
        }
    });
}

/// Attack 25: the log is put back to before what it promised last, or a part of it is dropped,
/// while the root stays.
#[test]
fn attack_25_a_log_that_is_put_back_is_refused_and_what_was_not_promised_is_not_replayed() {
    both(|machine| {
        let pool = machine.create(true);
        let (fs, used) = mount(&pool, "tank");
        let put = |name: &str| fs.fsync(write_file(&fs, ROOT, name.as_bytes(), name.as_bytes()));
        // The first asks for a log, the commit after it makes one.
        put("one").expect("committed");
        machine.write(&pool, "two").expect("committed");
        let (txg, groups) = (pool.state().txg, pool.state().log.counts.groups);
        let before = machine.corner.decoded();
        put("three").expect("logged");
        let (old_disks, old_record) = (machine.disks(), machine.corner.record());
        put("four").expect("logged");
        let (disks, record) = (machine.disks(), machine.corner.record());
        let after = machine.corner.decoded();
        assert_eq!((pool.state().txg, pool.state().log.counts.groups), (txg, groups + 2), "no commit");
        assert_eq!((after.txg(), after.seq), (before.txg(), before.seq + 2), "the register moves with each");
        assert_eq!(after.log.seq, before.log.seq + 2);
        // One more, which the register does not take: it is in the log, and nobody was promised it.
        machine.corner.at(PATH).arm(&[Answer::Before; 20]);
        put("five").expect_err("neither logged nor committed");
        machine.devices.iter().for_each(|device| device.power_off());
        drop((fs, used));
        drop(pool);
        machine.devices.iter().for_each(|device| device.power_on(|_| Fate::Applied));
        assert_eq!(machine.corner.record(), record);
        machine.corner.at(PATH).disarm();
        let pool = machine.import().expect("what was promised is there");
        assert_eq!((machine.names(&pool).len(), pool.state().log.replayed), (4, 2));
        let (fs, used) = mount(&pool, "tank");
        assert!(fs.lookup(ROOT, b"five").is_err(), "what was not promised is not replayed");
        drop((fs, used));
        pool.export().expect("exported");

        // A longer log than the register vouches for: who can write the store can make one of a
        // pool without a key.
        machine.put_back(&disks);
        machine.corner.at(PATH).put(old_record);
        machine.corner.forget();
        let pool = machine.import().expect("it opens");
        assert_eq!(machine.names(&pool), ["one", "two", "three"]);
        pool.export().expect("exported");

        // The log of a moment ago, behind the root that is anchored: only the register tells.
        machine.put_back(&old_disks);
        machine.corner.at(PATH).put(record);
        machine.corner.forget();
        let mut spec = machine.spec();
        let error = machine.refuses(&spec);
        assert!(matches!(error, Error::LogDamaged { .. }), "{error}");
        assert!(error.to_string().contains("the anchor vouches for the intent log up to group"), "{error}");
        spec.anchor.accept_rollback = true;
        machine.refuses(&spec);
        spec.accept_lost_log = true;
        let pool = machine.import_as(&spec).expect("the operator accepts");
        assert_eq!(machine.names(&pool), ["one", "two", "three"]);
        let told = internal_history(&pool);
        assert!(told.iter().any(|line| line.contains("gave up a part of the intent log")), "{told:?}");
        machine.write(&pool, "four").expect("and goes on");
        pool.export().expect("exported");
        assert_eq!(machine.names(&machine.import().expect("no more questions")).len(), 4);
    });
}

/// Promises made before a pool got or lost its anchor survive a crash at any point.
#[test]
fn what_the_log_promised_survives_the_coming_and_going_of_an_anchor() {
    for (add, operation) in [
        (true, Operation::Write),
        (true, Operation::Flush),
        (false, Operation::Write),
        (false, Operation::Flush),
    ] {
        for skip in 0..40 {
            let machine = Machine::new(false);
            let pool = machine.create(!add);
            let (fs, used) = mount(&pool, "tank");
            let put = |name: &str| fs.fsync(write_file(&fs, ROOT, name.as_bytes(), name.as_bytes()));
            put("one").expect("committed");
            machine.write(&pool, "two").expect("committed");
            put("three").expect("logged");
            assert!(pool.state().log.counts.groups > 0);
            machine.devices[0].arm(Fault { operation, skip, effect: Effect::PowerOff });
            let done = match add {
                true => pool.add_anchor(&machine.wish(Some(PATH)), false, false),
                false => pool.remove_anchor(PATH),
            };
            let four = done.is_ok() && put("four").is_ok();
            machine.devices.iter().for_each(|device| device.power_off());
            drop((fs, used));
            drop(pool);
            machine.devices.iter().for_each(|device| device.power_on(|_| Fate::Dropped));
            let pool = machine.import().unwrap_or_else(|error| panic!("{add} {operation} {skip}: {error}"));
            let names = machine.names(&pool);
            assert!(names.len() >= if four { 4 } else { 3 }, "{add} {operation} {skip}: {names:?}");
            pool.export().expect("exported");
            if done.is_ok() {
                break;
            }
        }
    }
}

/// A daemon that another one has taken over from promises nothing, and writes nothing where the
/// other's log may be.
#[test]
fn a_fenced_daemon_answers_no_fsync_out_of_its_log() {
    both(|machine| {
        let pool = machine.create(true);
        let (fs, _used) = mount(&pool, "tank");
        let put = |name: &str| fs.fsync(write_file(&fs, ROOT, name.as_bytes(), name.as_bytes()));
        put("one").expect("committed");
        machine.write(&pool, "two").expect("committed");
        put("three").expect("logged");
        // Another record is in the register: as after a takeover elsewhere.
        let mut taken = machine.corner.decoded();
        (taken.seq, taken.epoch, taken.writer) = (taken.seq + 1, taken.epoch + 1, taken.writer ^ 1);
        let bytes = taken.encode(steadfast_crypto::hash);
        machine.corner.at(PATH).put(Some(Box::new(bytes)));
        let written =
            |machine: &Machine| machine.devices.iter().map(|device| device.counts().writes).sum::<u64>();
        let before = written(&machine);
        put("four").expect_err("fenced");
        assert_eq!(written(&machine), before, "nothing was written");
        assert!(pool.state().suspended.is_some());
    });
}

/// This host's memory of the register costs no caller time, and is there when the call is over.
#[test]
fn a_host_remembers_the_log_once_callers_have_been_answered() {
    both(|machine| {
        let pool = machine.create(true);
        let (fs, _used) = mount(&pool, "tank");
        fs.fsync(write_file(&fs, ROOT, b"one", b"one")).expect("committed");
        machine.write(&pool, "two").expect("committed");
        let before = machine.corner.decoded();
        let remembered = |corner: &Corner| {
            let witness = Arc::clone(corner.witnesses.lock().values().next().expect("this host's"));
            AnchorRecord::decode(&witness.recall().expect("a record")[..]).expect("a record").seq
        };
        let (corner, seen) = (Arc::clone(&machine.corner), Arc::new(Mutex::new(None)));
        let tell = Arc::clone(&seen);
        fs.fsync_later(write_file(&fs, ROOT, b"three", b"three"), move |durable| {
            *tell.lock() = Some((durable, corner.decoded().seq, remembered(&corner)));
        });
        let answered = seen.lock().take().expect("this thread wrote the group");
        assert_eq!(answered, (Ok(()), before.seq + 1, before.seq));
        assert_eq!(remembered(&machine.corner), before.seq + 1);
        assert_eq!(machine.corner.decoded().log.seq, before.log.seq + 1, "out of the log");
    });
}

#[test]
fn losing_every_uberblock_does_not_make_a_pool_unopenable() {
    both(|machine| {
        let pool = machine.create(true);
        machine.write(&pool, "one").expect("committed");
        pool.export().expect("exported");
        for device in &machine.devices {
            for copy in 0..4 {
                for slot in 0..48 {
                    use steadfast_device::Device;
                    device.write_uberblock(copy, Txg(slot), &[0; 4096]).expect("written");
                }
            }
            steadfast_device::Device::flush(&**device).expect("flushed");
        }
        let pool = machine.import().expect("the register carries the root");
        assert_eq!(machine.names(&pool), ["one"]);
        machine.write(&pool, "two").expect("committed");
        pool.export().expect("exported");
        assert_eq!(machine.names(&machine.import().expect("imported")), ["one", "two"]);
    });
}

#[test]
fn labels_that_deny_the_anchor_are_not_believed() {
    both(|machine| {
        let pool = machine.create(true);
        machine.write(&pool, "one").expect("committed");
        pool.export().expect("exported");
        machine.strip();
        // By the root, which names the record that carries it; and by the host.
        machine.corner.forget();
        let error = machine.refuses(&machine.spec());
        assert!(matches!(error, Error::AnchorUnnamed { .. }), "{error}");
        let mut named = machine.spec();
        named.anchor.path = Some(PATH.to_owned());
        let pool = machine.import_as(&named).expect("named by the operator");
        assert_eq!(machine.names(&pool), ["one"]);
        pool.export().expect("exported");
        machine.import().expect("the labels are right again").export().expect("exported");

        // Put back to before the anchor was added, where neither labels nor root know of it: the
        // host does.
        let machine = Machine::new(machine.sealed);
        let pool = machine.create(false);
        machine.write(&pool, "one").expect("committed");
        pool.export().expect("exported");
        let old = machine.disks();
        let pool = machine.import().expect("imported");
        pool.add_anchor(&machine.wish(Some(PATH)), false, false).expect("added");
        machine.write(&pool, "two").expect("committed");
        pool.export().expect("exported");
        machine.put_back(&old);
        assert!(matches!(machine.refuses(&machine.spec()), Error::AnchorUnnamed { .. }));
        named = machine.spec();
        named.anchor.path = Some(PATH.to_owned());
        assert!(matches!(machine.refuses(&named), Error::PutBack { .. }));
        // A host that never saw it cannot know: docs/SECURITY.md says so.
        machine.corner.forget();
        machine.import().expect("imported").export().expect("exported");
    });
}

impl Machine {
    /// Takes the anchor out of all labels, as anybody can who writes to the devices: their checksum
    /// is no secret.
    fn strip(&self) {
        use steadfast_device::Device;
        for device in &self.devices {
            for copy in 0..4 {
                let area = device.read_label(copy).expect("read");
                let mut label =
                    steadfast_format::LabelConfig::decode(&area, steadfast_crypto::hash).expect("a label");
                assert_eq!(label.state, PoolState::Exported);
                label.aux.clear();
                label.features.retain(|feature| feature.name != "anchor");
                device
                    .write_label(copy, &label.encode(steadfast_crypto::hash).expect("fits"))
                    .expect("written");
            }
            device.flush().expect("flushed");
        }
    }
}

#[test]
fn an_anchor_comes_and_goes_whatever_is_cut_off() {
    both(|machine| {
        let pool = machine.create(false);
        machine.write(&pool, "one").expect("committed");
        assert!(pool.state().anchor.is_none());
        pool.add_anchor(&machine.wish(Some(PATH)), false, true).expect("it would work");
        assert!(machine.corner.record().is_none(), "and nothing was done");
        pool.add_anchor(&machine.wish(Some(PATH)), false, false).expect("added");
        let again = pool.add_anchor(&machine.wish(Some("/other")), false, false).expect_err("one is enough");
        assert!(matches!(again, Error::AnchorThere { .. }));
        assert!(matches!(pool.remove_anchor("/other"), Err(Error::NoSuchAnchor { .. })));
        pool.export().expect("exported");
        let pool = machine.import().expect("imported");
        pool.remove_anchor(PATH).expect("removed");
        assert!(machine.corner.decoded().retired && pool.state().anchor.is_none());
        machine.write(&pool, "two").expect("committed");
        pool.export().expect("exported");
        machine.corner.at(PATH).put(None);
        let pool = machine.import().expect("it lives without");
        assert_eq!(machine.names(&pool), ["one", "two"]);
        drop(pool);

        // Cut off at each write and flush of both.
        for add in [true, false] {
            for operation in [Operation::Write, Operation::Flush] {
                for skip in 0..40 {
                    let machine = Machine::new(machine.sealed);
                    let pool = machine.create(!add);
                    machine.write(&pool, "one").expect("committed");
                    machine.devices[0].arm(Fault { operation, skip, effect: Effect::PowerOff });
                    let done = match add {
                        true => pool.add_anchor(&machine.wish(Some(PATH)), false, false),
                        false => pool.remove_anchor(PATH),
                    };
                    machine.devices.iter().for_each(|device| device.power_off());
                    drop(pool);
                    machine.devices.iter().for_each(|device| device.power_on(|_| Fate::Dropped));
                    let pool =
                        machine.import().unwrap_or_else(|error| panic!("{add} {operation} {skip}: {error}"));
                    let has = pool.state().anchor.is_some();
                    assert!(done.is_err() || has == add, "{add} {operation} {skip}: what was promised holds");
                    machine.write(&pool, "two").expect("and goes on");
                    pool.export().expect("exported");
                    let pool = machine.import().expect("again");
                    assert_eq!(machine.names(&pool), ["one", "two"]);
                    pool.export().expect("exported");
                    if done.is_ok() {
                        break;
                    }
                }
            }
        }
    });
}

#[test]
fn a_register_that_is_lost_damaged_or_anothers_is_named_and_given_up_only_by_that_word() {
    both(|machine| {
        let pool = machine.create(true);
        machine.write(&pool, "one").expect("committed");
        pool.export().expect("exported");
        let right = machine.corner.record();
        let other = Machine { env: Env::seeded(8), ..Machine::new(machine.sealed) };
        other.create(true).export().expect("exported");
        let mut rotten = right.clone();
        rotten.as_mut().expect("a record")[300] ^= 1;
        for (record, word) in
            [(None, "there is no anchor at"), (rotten, "anchor"), (other.corner.record(), "another pool")]
        {
            machine.corner.at(PATH).put(record);
            let error = machine.refuses(&machine.spec());
            assert!(
                matches!(error, Error::AnchorUnusable { .. }) && error.to_string().contains(word),
                "{error}"
            );
            // A rollback is something else.
            let mut accepting = machine.spec();
            accepting.anchor.accept_rollback = true;
            assert!(matches!(machine.refuses(&accepting), Error::AnchorUnusable { .. }));
        }
        // It was moved.
        machine.corner.at("/moved").put(right.clone());
        machine.corner.at(PATH).put(None);
        let mut moved = machine.spec();
        moved.anchor.path = Some("/moved".into());
        machine.import_as(&moved).expect("found").export().expect("exported");
        machine.import().expect("the labels know").export().expect("exported");
        // It is lost.
        machine.corner.at("/moved").put(None);
        let mut lost = machine.spec();
        lost.anchor.accept_lost = true;
        let pool = machine.import_as(&lost).expect("given up");
        assert!(pool.state().anchor.is_none());
        let told = internal_history(&pool);
        assert!(told.iter().any(|line| line.contains("gave up the pool's anchor")), "{told:?}");
        pool.add_anchor(&machine.wish(Some("/new")), false, false).expect("a new one");
        pool.export().expect("exported");
        let pool = machine.import().expect("imported");
        assert_eq!(machine.names(&pool), ["one"]);
        assert_eq!(pool.state().anchor.map(|anchor| anchor.register), Some("/new".to_owned()));
    });
}
