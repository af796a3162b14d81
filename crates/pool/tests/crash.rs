//! The power goes at any moment: what was committed is found, whatever became of the writes that
//! were under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{
    Dice, MIB, ROOT, handle, handles, import, import_spec, key, mount, noise, read_file, spec, write_file,
};
use crate::outlet::Outlet;
use crate::promises::{put, still};
use steadfast_device::MemoryDevice;
use steadfast_device::Operation;
use steadfast_device::memory::{Effect, Fate, Fault};
use steadfast_env::Env;
use steadfast_pool::{AuxHandles, CreateSpec, Error, GroupHandles, Pool, scan};

/// Content of a file by the round that wrote it.
fn content(round: u64) -> Vec<u8> {
    noise(round, 2_000 + (round as usize * 7_919) % 300_000)
}

fn crash_run(seed: u64) {
    let env = Env::real();
    let mut dice = Dice(seed);
    let devices = [MemoryDevice::new("a", 64 * MIB), MemoryDevice::new("b", 64 * MIB)].map(Arc::new);
    Pool::create(&env, spec(handles(&devices), None)).expect("a pool").close().expect("closed");
    let mut committed: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..12 {
        let pool = import(&env, handles(&devices), None).expect("what was committed is found");
        // Allowed states: each name as of the last commit that returned, or of one that did not.
        let mut offered = committed.clone();
        {
            let (fs, _handle) = mount(&pool, "tank");
            for (name, version) in &committed {
                let found = read_file(&fs, ROOT, name.as_bytes());
                assert!(found == content(*version), "seed {seed:#x}, round {round}: {name}");
            }
            // Names that only a commit under way knew are not needed any more.
            for slot in 0..6 {
                let name = format!("file {slot}");
                if !committed.contains_key(&name) && fs.lookup(ROOT, name.as_bytes()).is_ok() {
                    fs.unlink(ROOT, name.as_bytes()).expect("removed");
                }
            }
            pool.sync().expect("committed");
            for step in 0..4 {
                let name = format!("file {}", dice.below(6));
                let version = round * 10 + step;
                offered.entry(name).or_insert_with_key(|name| {
                    write_file(&fs, ROOT, name.as_bytes(), &content(version));
                    version
                });
            }
            if dice.below(2) == 0 {
                pool.sync().expect("committed");
                committed = offered.clone();
                // Files are removed only by a commit that returns, so that a crash cannot bring an
                // answer of two kinds.
                if let Some(name) = committed.keys().next().cloned() {
                    fs.unlink(ROOT, name.as_bytes()).expect("removed");
                    pool.sync().expect("committed");
                    committed.remove(&name);
                }
            } else {
                let device = &devices[dice.below(2) as usize];
                let operation = if dice.below(3) == 0 { Operation::Flush } else { Operation::Write };
                let skip = dice.below(if operation == Operation::Flush { 3 } else { 8 });
                device.arm(Fault { operation, skip, effect: Effect::PowerOff });
                if pool.sync().is_ok() {
                    committed = offered.clone();
                }
            }
        }
        devices.iter().for_each(|device| device.power_off());
        drop(pool);
        for device in &devices {
            device.power_on(|_| match dice.below(3) {
                0 => Fate::Dropped,
                1 => Fate::Applied,
                _ => Fate::Torn { sectors: dice.below(9) as usize },
            });
        }
    }
}

#[test]
fn what_was_committed_survives_a_crash_at_any_write_or_flush() {
    for seed in 0x51f3..0x51fb {
        crash_run(seed);
    }
}

/// Content that was stored before its txg closed is behind the marks of the last commit: losing the
/// power then loses it without a trace, also when the devices kept all of it.
#[test]
fn content_stored_before_its_txg_closed_leaves_nothing_behind() {
    let env = Env::real();
    if env.tasks.parallelism() < 2 {
        // Nothing is stored early there.
        return;
    }
    let devices = [Arc::new(MemoryDevice::new("a", 256 * MIB))];
    Pool::create(&env, spec(handles(&devices), None)).expect("a pool").close().expect("closed");
    for fate in [Fate::Applied, Fate::Dropped, Fate::Torn { sectors: 3 }] {
        let pool = import(&env, handles(&devices), None).expect("imported");
        let (fs, handle) = mount(&pool, "tank");
        handle.dataset().set_early_bytes(0, 1);
        let big = noise(1, 12 << 20);
        let mut number = 0;
        let before = loop {
            pool.sync().expect("committed");
            let before = pool.state();
            let name = format!("big {number}");
            write_file(&fs, ROOT, name.as_bytes(), &big);
            while pool.state().accounting.live_bytes < before.accounting.live_bytes + (11 << 20) {
                std::thread::yield_now();
            }
            if pool.state().txg == before.txg {
                break before;
            }
            // A commit came between.
            fs.unlink(ROOT, name.as_bytes()).expect("removed");
            number += 1;
        };
        devices[0].power_off();
        drop((fs, handle, pool));
        devices[0].power_on(|_| fate);
        let pool = import(&env, handles(&devices), None).expect("imported again");
        assert_eq!(pool.state().accounting.live_bytes, before.accounting.live_bytes, "{fate:?}");
        let (fs, handle) = mount(&pool, "tank");
        assert!(fs.lookup(ROOT, format!("big {number}").as_bytes()).is_err());
        assert_eq!(handle.dataset().check().expect("readable"), []);
        drop((fs, handle));
        pool.export().expect("exported");
    }
}

/// A sealed pool's own key lies in the labels and its root dataset's in a row, so a change writes
/// twice. Cut off at any write and any flush, the pool opens with one of the two keys, its root
/// dataset with one of the two, nothing is lost, and changing the key once more makes both agree.
#[test]
fn a_change_of_a_sealed_pools_key_may_be_cut_off_anywhere() {
    let env = Env::real();
    let (old, new) = ([7_u8; 32], [8_u8; 32]);
    let device = Arc::new(MemoryDevice::new("a", 64 * MIB));
    let open = |secret: &[u8]| import(&env, vec![handle(&device)], Some(secret));
    let pool = Pool::create(&env, spec(vec![handle(&device)], Some(key(&env, &old)))).expect("a pool");
    pool.datasets().create_dataset("tank/below", Default::default(), None).expect("a dataset");
    for name in ["tank", "tank/below"] {
        let (fs, _handle) = mount(&pool, name);
        write_file(&fs, ROOT, b"file", &content(1));
    }
    pool.export().expect("exported");
    drop(pool);
    let before = device.image();
    let (mut cuts, mut mixed, mut opened_by) = (0, 0, [0, 0]);
    for (operation, kept) in [Operation::Write, Operation::Flush]
        .into_iter()
        .flat_map(|operation| [(operation, Fate::Dropped), (operation, Fate::Applied)])
    {
        for skip in 0.. {
            device.restore(&before);
            let pool = open(&old).expect("as it was");
            device.arm(Fault { operation, skip, effect: Effect::PowerOff });
            let changed = pool.datasets().change_key("tank", Some(key(&env, &new)), None);
            let struck = device.take_faults().is_empty();
            assert!(struck || changed.is_ok(), "{changed:?}");
            device.power_off();
            drop(pool);
            device.power_on(|_| kept);

            let keys = [old, new];
            let index = keys.iter().position(|secret| open(secret).is_ok()).expect("one of the two opens it");
            assert!(changed.is_err() || index == 1, "what was done is done");
            let other = keys[1 - index];
            assert!(matches!(open(&other), Err(Error::WrongKey { .. })), "and one only");
            opened_by[index] += 1;
            let pool = open(&keys[index]).expect("again");
            if !pool.datasets().dataset_info("tank").expect("told").key_loaded {
                assert_eq!(index, 0, "rows change before the labels");
                pool.datasets().load_key("tank", &other, false).expect("the other key");
                mixed += 1;
            }
            pool.datasets().change_key("tank", Some(key(&env, &new)), None).expect("once more");
            pool.export().expect("exported");
            drop(pool);
            let pool = open(&new).expect("they agree");
            for name in ["tank", "tank/below"] {
                let (fs, _handle) = mount(&pool, name);
                assert!(read_file(&fs, ROOT, b"file") == content(1), "{name}, {operation:?} {skip}");
            }
            pool.close().expect("closed");
            if !struck {
                break;
            }
            cuts += 1;
        }
    }
    assert!(cuts > 20 && mixed > 0 && opened_by[0] > 0 && opened_by[1] > 0, "{cuts} {mixed} {opened_by:?}");
}

/// A pool is made with its log device, spare and cache device, or there is none, wherever the power
/// goes.
#[test]
fn a_create_with_log_spare_and_cache_may_be_cut_off_anywhere() {
    let env = still();
    let (mut nothing, mut labels_only, mut whole) = (0, 0, 0);
    for fates in
        [[Fate::Dropped; 3], [Fate::Applied; 3], [Fate::Applied, Fate::Dropped, Fate::Torn { sectors: 3 }]]
    {
        for left in 1.. {
            let devices =
                ["main", "log", "spare", "cache"].map(|name| Arc::new(MemoryDevice::new(name, 64 * MIB)));
            let outlet = Outlet::new(devices.to_vec(), left);
            let wish = |force| CreateSpec {
                aux: AuxHandles {
                    logs: GroupHandles::alone(vec![outlet.handle(1)]),
                    spares: vec![outlet.handle(2)],
                    caches: vec![outlet.handle(3)],
                },
                force,
                ..spec(vec![outlet.handle(0)], None)
            };
            let made = Pool::create(&env, wish(false));
            let struck = outlet.is_off();
            let is_made = made.is_ok();
            assert!(struck || is_made, "{:?}", made.err());
            drop(made);
            let mut turn = fates.iter().cycle();
            outlet.restart(|| *turn.next().expect("it goes round"));

            let (mut pools, _) = scan(handles(&devices));
            let found = pools.pop().map(|pool| Pool::import(&env, pool, &import_spec(None)));
            match found {
                Some(Ok(pool)) => {
                    whole += 1;
                    let state = pool.state();
                    let troubles = [
                        state.log_devices.iter().map(|log| log.trouble.clone()).collect::<Vec<_>>(),
                        state.spares.iter().map(|spare| spare.trouble.clone()).collect(),
                        state.caches.iter().map(|cache| cache.trouble.clone()).collect(),
                    ];
                    assert_eq!(troubles, [[None], [None], [None]], "{fates:?}, {left} writes");
                    let (fs, _handle) = mount(&pool, "tank");
                    put(&fs, "file", b"content");
                    assert_eq!(read_file(&fs, ROOT, b"file"), b"content");
                }
                refused => {
                    assert!(
                        !is_made,
                        "what was made is there: {:?}, {left} writes",
                        refused.map(|found| found.err())
                    );
                    nothing += 1;
                    if refused.is_some() {
                        labels_only += 1;
                        Pool::create(&env, wish(true)).expect("the devices are free for another one");
                    }
                }
            }
            if !struck {
                break;
            }
        }
    }
    assert!(nothing > 100 && labels_only > 3 && whole > 3, "{nothing} {labels_only} {whole}");
}
