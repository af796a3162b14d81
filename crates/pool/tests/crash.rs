//! The power goes at any moment: what was committed is found, whatever became of the writes that were under way.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{Dice, MIB, ROOT, handles, import, mount, noise, read_file, spec, write_file};
use steadfast_device::MemoryDevice;
use steadfast_device::Operation;
use steadfast_device::memory::{Effect, Fate, Fault};
use steadfast_env::Env;
use steadfast_pool::Pool;

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
        // What may be there: each name as of the last commit that returned, or as of one that did not.
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
                // Files are removed only by a commit that returns, so that a crash cannot bring an answer of two kinds.
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

/// Content that was stored before its txg closed is behind the marks of the last commit: losing the power then loses it without
/// a trace, also when the devices kept all of it.
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
