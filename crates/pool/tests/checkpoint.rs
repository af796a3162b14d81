//! A checkpoint keeps one root of the pool whole, whatever becomes of the pool, and the pool can be
//! taken back to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{
    Dice, MIB, ROOT, anchored_in, handles, import, import_spec, key, mount, noise, read_file, spec,
    write_file,
};
use crate::hosts::inspect_devices;
use steadfast_anchor::MemoryRegister;
use steadfast_device::memory::{Effect, Fate, Fault};
use steadfast_device::{MemoryDevice, Operation};
use steadfast_env::Env;
use steadfast_format::{Feature, GroupClass, Need};
use steadfast_pool::{CreateSpec, Error, GroupHandles, ImportSpec, Pool, Redundancy, ScrubCommand, scan};

const FILE: usize = 300_000;

/// A pool, its devices and the secret of its key.
struct World {
    env: Env,
    devices: Vec<Arc<MemoryDevice>>,
    secret: Option<[u8; 32]>,
}

impl World {
    fn new(sizes: &[u64], redundancy: Redundancy, secret: Option<[u8; 32]>) -> (World, Pool) {
        World::with_special(sizes, redundancy, &[], secret)
    }

    /// With a mirror for metadata and small blocks.
    fn with_special(
        sizes: &[u64],
        redundancy: Redundancy,
        special: &[u64],
        secret: Option<[u8; 32]>,
    ) -> (World, Pool) {
        let env = Env::seeded(11);
        let made = |word: &str, sizes: &[u64]| -> Vec<Arc<MemoryDevice>> {
            let named = sizes.iter().enumerate();
            named.map(|(at, size)| Arc::new(MemoryDevice::new(&format!("{word}{at}"), *size))).collect()
        };
        let (normal, special) = (made("d", sizes), made("s", special));
        let group = |redundancy, class, devices: &[Arc<MemoryDevice>]| {
            let devices = handles(devices);
            GroupHandles { redundancy, class, devices }
        };
        let alone = spec(handles(&normal), secret.as_ref().map(|secret| key(&env, secret)));
        let mut groups = match redundancy {
            Redundancy::None => alone.groups.clone(),
            redundancy => vec![group(redundancy, GroupClass::Normal, &normal)],
        };
        if !special.is_empty() {
            groups.push(group(Redundancy::Mirror, GroupClass::Special, &special));
        }
        let pool = Pool::create(&env, CreateSpec { groups, ..alone }).expect("a pool");
        let devices = [normal, special].concat();
        (World { env, devices, secret }, pool)
    }

    fn spec(&self) -> ImportSpec {
        ImportSpec { force: true, ..import_spec(self.secret.as_ref().map(|secret| &secret[..])) }
    }

    fn import(&self, spec: &ImportSpec) -> Result<Pool, Error> {
        Pool::import(&self.env, scan(handles(&self.devices)).0.remove(0), spec)
    }

    fn back(&self) -> Result<Pool, Error> {
        self.import(&ImportSpec { to_checkpoint: true, ..self.spec() })
    }

    fn inspect(&self) {
        inspect_devices(&self.env, &self.devices, self.secret.as_ref().map(|secret| &secret[..]));
    }

    /// As a power cut leaves it: every write that no flush followed is drawn.
    fn cut(&self, dice: &mut Dice) {
        for device in &self.devices {
            device.power_on(|_| match dice.below(3) {
                0 => Fate::Dropped,
                1 => Fate::Applied,
                _ => Fate::Torn { sectors: dice.below(9) as usize },
            });
        }
    }
}

/// Writes, deletes and commits so much that every slot of a small pool is used several times.
fn churn(pool: &Pool, seed: u64, bytes: usize) {
    let (fs, _handle) = mount(pool, "tank");
    let mut written = 0;
    let mut round = 0;
    while written < bytes {
        let name = format!("churn {}", round % 7);
        if let Ok(known) = fs.lookup(ROOT, name.as_bytes()) {
            fs.unlink(ROOT, name.as_bytes()).expect("removed");
            fs.forget(known.ino, 1);
        }
        let made = fs.mknod(crate::common::ME, ROOT, name.as_bytes(), 0o100_644, 0).expect("made");
        for part in 0..2 {
            let written = fs.write(made.ino, part << 20, &noise(seed + round + part, 1 << 20), false);
            assert!(written.is_ok(), "round {round}: {:?}", pool.state().accounting);
        }
        fs.forget(made.ino, 1);
        pool.sync().expect("committed");
        written += 2 << 20;
        round += 1;
    }
}

/// Lets the scan under way come to its end.
fn finish(pool: &Pool) {
    while pool.scan_remaining() != [0, 0] {
        pool.sync().expect("the pool goes on");
    }
}

fn fill(pool: &Pool, files: u64) {
    let (fs, _handle) = mount(pool, "tank");
    for file in 0..files {
        write_file(&fs, ROOT, format!("file {file}").as_bytes(), &noise(file, FILE));
    }
    pool.sync().expect("committed");
}

fn has_all(pool: &Pool, files: u64) {
    let (fs, _handle) = mount(pool, "tank");
    for file in 0..files {
        assert!(read_file(&fs, ROOT, format!("file {file}").as_bytes()) == noise(file, FILE), "file {file}");
    }
    assert!(fs.lookup(ROOT, b"churn 0").is_err(), "what came later is gone");
}

/// Everything that the checkpoint needs is destroyed and written over, and comes back.
fn comes_back((world, pool): (World, Pool), churned: usize) {
    let datasets = pool.datasets();
    datasets.create_dataset("tank/child", Default::default(), None).expect("made");
    fill(&pool, 12);
    pool.datasets().take_snapshots(&["tank@early".into()], &Default::default()).expect("taken");
    {
        // Dead units in segments that the checkpoint needs, and runs that the cleaner moved.
        let (fs, _handle) = mount(&pool, "tank");
        for file in (0..12).step_by(3) {
            fs.unlink(ROOT, format!("file {file}").as_bytes()).expect("removed");
            write_file(&fs, ROOT, format!("file {file}").as_bytes(), &noise(file, FILE));
        }
    }
    pool.checkpoint().expect("taken");
    let at = pool.checkpoint_status().expect("it is there");
    assert!(matches!(pool.checkpoint(), Err(Error::CheckpointThere { .. })));
    assert!(pool.state().leaves.iter().all(|leaf| leaf.allocated_bytes > 0), "it needs each device");
    {
        let (fs, _handle) = mount(&pool, "tank");
        for file in 0..12 {
            fs.unlink(ROOT, format!("file {file}").as_bytes()).expect("removed");
        }
    }
    pool.datasets().destroy_snapshots(&["tank@early".into()], false).expect("destroyed");
    pool.datasets().destroy_dataset("tank/child").expect("destroyed");
    let slots = pool.state().accounting.slots as usize * pool.state().accounting.slot_size as usize;
    assert!(churned > slots, "every slot is used again");
    churn(&pool, 1000, churned);
    let status = pool.checkpoint_status().expect("it is there");
    assert!(status.txg == at.txg && status.bytes > at.bytes.max(12 * FILE as u64), "{at:?}, {status:?}");
    world.inspect();
    pool.export().expect("exported");
    drop(pool);

    // An import finds what to keep by the checkpoint's own table.
    let pool = world.import(&world.spec()).expect("imported");
    assert_eq!(pool.checkpoint_status(), Some(status));
    churn(&pool, 2000, churned / 4);
    world.inspect();
    pool.export().expect("exported");
    drop(pool);

    let look = ImportSpec { to_checkpoint: true, read_only: true, ..world.spec() };
    let pool = world.import(&look).expect("a look at it");
    has_all(&pool, 12);
    drop(pool);

    let pool = world.back().expect("taken back");
    assert!(pool.state().txg > status.txg && pool.checkpoint_status().is_none());
    has_all(&pool, 12);
    assert!(pool.datasets().open_dataset("tank/child").is_ok());
    assert!(pool.datasets().open_dataset("tank").expect("open").snapshots().open("early").is_some());
    assert!(!pool.features().iter().any(|feature| feature.name == "checkpoint"));
    world.inspect();
    churn(&pool, 3000, churned / 2);
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    finish(&pool);
    assert!(pool.state().damaged.is_empty());
    world.inspect();

    // Once more.
    pool.checkpoint().expect("taken");
    churn(&pool, 4000, churned / 2);
    pool.export().expect("exported");
    drop(pool);
    let pool = world.back().expect("taken back");
    {
        let (fs, _handle) = mount(&pool, "tank");
        assert!(read_file(&fs, ROOT, b"file 3") == noise(3, FILE));
        assert!(fs.lookup(ROOT, b"churn 0").is_ok());
    }
    world.inspect();
    pool.export().expect("exported");
    drop(pool);
    assert!(matches!(world.back(), Err(Error::NoCheckpoint { .. })), "there is none any more");
    world.import(&world.spec()).expect("nor was anything changed");
}

#[test]
fn all_that_was_destroyed_and_written_over_comes_back() {
    comes_back(World::new(&[64 * MIB], Redundancy::None, None), 160 << 20);
}

#[test]
fn it_comes_back_sealed_and_on_raidz() {
    comes_back(World::new(&[64 * MIB; 4], Redundancy::Raidz(1), Some([7; 32])), 200 << 20);
}

#[test]
fn it_comes_back_on_a_mirror() {
    comes_back(World::new(&[64 * MIB; 2], Redundancy::Mirror, None), 160 << 20);
}

/// Segments are three columns wide as far as the smallest device reaches, and two beyond.
#[test]
fn it_comes_back_on_devices_of_unlike_sizes() {
    comes_back(World::new(&[64 * MIB, 96 * MIB, 96 * MIB], Redundancy::Raidz(1), None), 220 << 20);
}

/// Metadata and the ends of files lie on a mirror of their own.
#[test]
fn it_comes_back_beside_special_devices() {
    let (world, pool) = World::with_special(&[64 * MIB; 3], Redundancy::Raidz(1), &[64 * MIB; 2], None);
    pool.datasets().set_property("tank", "special_small_blocks", Some("65536")).expect("set");
    comes_back((world, pool), 220 << 20);
}

/// A stream's segment stays open when its last block dies, and its slot is given out again as soon
/// as it is closed.
#[test]
fn a_segment_that_was_open_without_life_is_in_nobodys_way() {
    let (world, pool) = World::new(&[64 * MIB], Redundancy::None, None);
    fill(&pool, 1);
    {
        let (fs, _handle) = mount(&pool, "tank");
        fs.unlink(ROOT, b"file 0").expect("removed");
        pool.sync().expect("committed");
    }
    pool.checkpoint().expect("taken");
    churn(&pool, 7, 4 << 20);
    pool.close().expect("closed");
    drop(pool);
    let pool = world.back().expect("taken back");
    has_all(&pool, 0);
    world.inspect();
    churn(&pool, 8, 80 << 20);
    pool.export().expect("exported");
    drop(pool);
    let pool = world.import(&world.spec()).expect("imported");
    churn(&pool, 9, 20 << 20);
    world.inspect();
}

#[test]
fn discarding_gives_back_all_that_it_kept() {
    let (world, pool) = World::new(&[64 * MIB], Redundancy::None, None);
    fill(&pool, 30);
    let before = pool.state().accounting.capacity_bytes;
    pool.checkpoint().expect("taken");
    let feature = Feature::known("checkpoint").expect("known");
    assert_eq!(feature.need, Need::Write, "an older program may look, and write nothing");
    assert!(pool.features().contains(&feature));
    {
        let (fs, _handle) = mount(&pool, "tank");
        for file in 0..30 {
            fs.unlink(ROOT, format!("file {file}").as_bytes()).expect("removed");
        }
        pool.sync().expect("committed");
    }
    let kept = pool.checkpoint_status().expect("it is there").bytes;
    assert!(kept >= 30 * FILE as u64, "{kept} bytes");
    assert!(pool.state().accounting.capacity_bytes + kept <= before, "what is kept holds nothing else");
    pool.discard_checkpoint().expect("discarded");
    assert!(matches!(pool.discard_checkpoint(), Err(Error::NoCheckpoint { .. })));
    let accounting = pool.state().accounting;
    assert_eq!((accounting.kept_bytes, accounting.capacity_bytes), (0, before));
    assert!(!pool.features().contains(&feature));
    churn(&pool, 1, 60 << 20);
    world.inspect();
    drop(pool);
    assert!(matches!(world.back(), Err(Error::NoCheckpoint { .. })));
}

/// Cuts the power at each write of a verb in turn; what an import finds then is one of two states,
/// and both are whole.
fn cut_at_every_write(prepare: impl Fn(&Pool), verb: impl Fn(&World), judge: impl Fn(&World, u64)) {
    let (world, pool) = World::new(&[64 * MIB], Redundancy::None, None);
    fill(&pool, 8);
    prepare(&pool);
    pool.close().expect("closed");
    drop(pool);
    let image = world.devices[0].image();
    // Each write once; then some of them again, under other fates of what was not flushed.
    for (draw, every) in [(5, 1), (6, 4), (7, 4), (9, 4)] {
        let mut dice = Dice(draw);
        for at in (draw % every..).step_by(every as usize) {
            world.devices[0].restore(&image);
            let fault = Fault { operation: Operation::Write, skip: at, effect: Effect::PowerOff };
            world.devices[0].arm(fault);
            verb(&world);
            let was_cut = world.devices[0].take_faults().is_empty();
            world.devices[0].power_off();
            world.cut(&mut dice);
            judge(&world, at);
            if !was_cut {
                assert!(at > 10, "the verb writes");
                break;
            }
        }
    }
}

#[test]
fn a_checkpoint_survives_a_power_cut_at_every_write_of_its_making() {
    let take = |world: &World| {
        let Ok(pool) = world.import(&world.spec()) else { return };
        let _ = pool.checkpoint();
    };
    cut_at_every_write(
        |_| (),
        take,
        |world, at| {
            let pool = world.import(&world.spec()).unwrap_or_else(|error| panic!("write {at}: {error}"));
            has_all(&pool, 8);
            let is_there = pool.checkpoint_status().is_some();
            world.inspect();
            {
                let (fs, _handle) = mount(&pool, "tank");
                fs.unlink(ROOT, b"file 0").expect("removed");
            }
            churn(&pool, at, 6 << 20);
            pool.close().expect("closed");
            drop(pool);
            match world.back() {
                Ok(pool) => has_all(&pool, 8),
                Err(Error::NoCheckpoint { .. }) => assert!(!is_there, "write {at}"),
                Err(error) => panic!("write {at}: {error}"),
            }
        },
    );
}

#[test]
fn a_power_cut_at_every_write_of_a_way_back_leaves_the_pool_here_or_there() {
    let change = |pool: &Pool| {
        pool.checkpoint().expect("taken");
        let (fs, _handle) = mount(pool, "tank");
        for file in 0..8 {
            fs.unlink(ROOT, format!("file {file}").as_bytes()).expect("removed");
        }
        churn(pool, 77, 20 << 20);
    };
    let back = |world: &World| {
        let Ok(pool) = world.back() else { return };
        let (fs, _handle) = mount(&pool, "tank");
        fs.unlink(ROOT, b"file 7").expect("removed");
        let _ = pool.sync();
    };
    cut_at_every_write(change, back, |world, at| {
        let pool = world.import(&world.spec()).unwrap_or_else(|error| panic!("write {at}: {error}"));
        world.inspect();
        let is_back = pool.checkpoint_status().is_none();
        if is_back {
            has_all(&pool, 7);
        } else {
            let (fs, _handle) = mount(&pool, "tank");
            assert!(fs.lookup(ROOT, b"churn 0").is_ok() && fs.lookup(ROOT, b"file 0").is_err());
        }
        drop(pool);
        if !is_back {
            has_all(&world.back().expect("the way back is open"), 8);
        }
    });
}

#[test]
fn a_power_cut_at_every_write_of_a_discard_leaves_a_checkpoint_or_none() {
    let change = |pool: &Pool| {
        pool.checkpoint().expect("taken");
        churn(pool, 78, 20 << 20);
    };
    let discard = |world: &World| {
        let Ok(pool) = world.import(&world.spec()) else { return };
        if pool.discard_checkpoint().is_ok() {
            let (fs, _handle) = mount(&pool, "tank");
            for file in 0..8 {
                fs.unlink(ROOT, format!("file {file}").as_bytes()).expect("removed");
                write_file(&fs, ROOT, format!("file {file}").as_bytes(), &noise(file, FILE));
            }
            let _ = pool.sync();
        }
    };
    cut_at_every_write(change, discard, |world, at| {
        let pool = world.import(&world.spec()).unwrap_or_else(|error| panic!("write {at}: {error}"));
        world.inspect();
        let is_there = pool.checkpoint_status().is_some();
        drop(pool);
        if is_there {
            has_all(&world.back().expect("the way back is open"), 8);
        }
    });
}

#[test]
fn a_full_pool_goes_on_beside_its_checkpoint_until_that_is_discarded() {
    let (world, pool) = World::new(&[64 * MIB], Redundancy::None, None);
    fill(&pool, 60);
    pool.checkpoint().expect("taken");
    let mut contents: BTreeMap<u64, bool> = (0..60).map(|file| (file, true)).collect();
    {
        let (fs, _handle) = mount(&pool, "tank");
        // To the last byte; what is deleted gives nothing back.
        let mut number = 0;
        let make =
            |number| fs.mknod(crate::common::ME, ROOT, format!("more {number}").as_bytes(), 0o100_600, 0);
        while let Ok(entry) = make(number) {
            if fs.write(entry.ino, 0, &noise(number, 128 << 10), false).is_err() {
                break;
            }
            number += 1;
            if number.is_multiple_of(16) {
                pool.sync().expect("committed");
            }
        }
        for (file, is_there) in &mut contents {
            match fs.unlink(ROOT, format!("file {file}").as_bytes()) {
                Ok(_) => *is_there = false,
                Err(_) => break,
            }
        }
        pool.sync().expect("a full pool commits");
        let refused = fs.mknod(crate::common::ME, ROOT, b"one more", 0o100_600, 0).ok();
        let refused = refused.is_none_or(|entry| fs.write(entry.ino, 0, &noise(1, 1 << 20), false).is_err());
        assert!(refused, "what the checkpoint needs is not given out");
    }
    assert!(pool.suspended().is_none());
    world.inspect();
    pool.close().expect("closed");
    drop(pool);
    {
        let look = ImportSpec { to_checkpoint: true, read_only: true, ..world.spec() };
        let pool = world.import(&look).expect("a look at it");
        let (fs, _handle) = mount(&pool, "tank");
        for file in 0..60 {
            assert!(read_file(&fs, ROOT, format!("file {file}").as_bytes()) == noise(file, FILE));
        }
    }
    let pool = world.import(&world.spec()).expect("imported");
    pool.discard_checkpoint().expect("discarded");
    {
        let (fs, _handle) = mount(&pool, "tank");
        for (file, _) in contents.iter().filter(|(_, is_there)| **is_there) {
            fs.unlink(ROOT, format!("file {file}").as_bytes()).expect("removed");
        }
        pool.sync().expect("committed");
        write_file(&fs, ROOT, b"and another", &noise(1, 10 << 20));
        pool.sync().expect("committed");
    }
    world.inspect();
}

#[test]
fn a_pool_without_room_beside_it_gets_no_checkpoint() {
    let (world, pool) = World::new(&[64 * MIB], Redundancy::None, None);
    let full = pool.state().accounting.capacity_bytes * 97 / 100 / FILE as u64;
    fill(&pool, full);
    assert!(matches!(pool.checkpoint(), Err(Error::CheckpointRoom { .. })));
    assert!(pool.checkpoint_status().is_none() && pool.state().accounting.kept_bytes == 0);
    world.inspect();
}

#[test]
fn the_cleaner_makes_room_for_a_checkpoint() {
    let (world, pool) = World::new(&[128 * MIB], Redundancy::None, None);
    {
        // Every second block dies: much is free, and nearly all of it in gaps.
        let (fs, _handle) = mount(&pool, "tank");
        for file in 0..600 {
            write_file(&fs, ROOT, format!("gap {file}").as_bytes(), &noise(file, 128 << 10));
        }
        pool.sync().expect("committed");
        for file in (0..600).step_by(2) {
            fs.unlink(ROOT, format!("gap {file}").as_bytes()).expect("removed");
        }
        pool.sync().expect("committed");
    }
    pool.checkpoint().expect("taken");
    world.inspect();
    let (fs, _handle) = mount(&pool, "tank");
    write_file(&fs, ROOT, b"more", &noise(1, 8 << 20));
    pool.sync().expect("there is room beside it");
}

#[test]
fn an_anchor_follows_the_way_back_as_any_other_commit() {
    let env = Env::seeded(3);
    let register = Arc::new(MemoryRegister::new("register"));
    let devices = vec![Arc::new(MemoryDevice::new("a", 64 * MIB))];
    let wish = || anchored_in(&register);
    let pool =
        Pool::create(&env, CreateSpec { anchor: wish(), ..spec(handles(&devices), None) }).expect("a pool");
    fill(&pool, 6);
    pool.checkpoint().expect("taken");
    churn(&pool, 9, 60 << 20);
    pool.close().expect("closed");
    drop(pool);
    let found = || scan(handles(&devices)).0.remove(0);
    let back = ImportSpec { to_checkpoint: true, anchor: wish(), ..import_spec(None) };
    let pool = Pool::import(&env, found(), &back).expect("taken back");
    has_all(&pool, 6);
    pool.close().expect("closed");
    drop(pool);
    let pool = Pool::import(&env, found(), &ImportSpec { anchor: wish(), ..import_spec(None) });
    has_all(&pool.expect("no rollback is seen"), 6);
}

#[test]
fn devices_stay_while_there_is_a_checkpoint() {
    let (world, pool) = World::new(&[64 * MIB; 2], Redundancy::Mirror, None);
    let new = || handles(&[Arc::new(MemoryDevice::new("new", 64 * MIB))]).remove(0);
    fill(&pool, 3);
    pool.checkpoint().expect("taken");
    let there = |result: Result<(), Error>| assert!(matches!(result, Err(Error::CheckpointThere { .. })));
    there(pool.attach("d0", new(), false));
    there(pool.detach("d1"));
    there(pool.replace("d1", new(), false));
    there(pool.devices().remove_groups(&["d0".into()], false));
    there(pool.split("other", &[], false).map(drop));
    there(pool.reguid(None));
    // One may fail and come back: what is written meanwhile is built anew, and what the checkpoint
    // needs lies where it lay.
    pool.offline("d1").expect("out of use");
    churn(&pool, 5, 80 << 20);
    pool.online("d1", &|| Ok(Arc::clone(&world.devices[1]) as _)).expect("in use");
    finish(&pool);
    world.inspect();
    // A device that came after the checkpoint stays, empty.
    let added = Arc::new(MemoryDevice::new("added", 64 * MIB));
    pool.devices()
        .add_groups(GroupHandles::alone(handles(std::slice::from_ref(&added))), true, false)
        .expect("added");
    churn(&pool, 6, 80 << 20);
    pool.close().expect("closed");
    drop(pool);
    let all: Vec<Arc<MemoryDevice>> = world.devices.iter().chain([&added]).map(Arc::clone).collect();
    let found = scan(handles(&all)).0.remove(0);
    let back = ImportSpec { to_checkpoint: true, ..world.spec() };
    let pool = Pool::import(&world.env, found, &back).expect("taken back");
    has_all(&pool, 3);
    churn(&pool, 7, 80 << 20);
    drop(pool);
    inspect_devices(&world.env, &all, None);
    import(&world.env, handles(&all), None).expect("imported");
}

#[test]
fn the_log_is_replayed_beside_a_checkpoint_and_not_over_it() {
    let (world, pool) = World::new(&[64 * MIB], Redundancy::None, None);
    let promise = |pool: &Pool, name: &[u8]| {
        let (fs, _handle) = mount(pool, "tank");
        let made = fs.mknod(crate::common::ME, ROOT, name, 0o100_644, 0).expect("made").ino;
        fs.write(made, 0, &noise(9, 5_000), false).expect("written");
        fs.fsync(made).expect("promised");
        fs.forget(made, 1);
    };
    // The log has its segments from the first promise on.
    promise(&pool, b"file 0");
    pool.sync().expect("committed");
    pool.checkpoint().expect("taken");
    promise(&pool, b"promised");
    drop(pool);
    let pool = world.import(&world.spec()).expect("imported");
    assert!(pool.state().log.replayed > 0, "the promise is kept");
    {
        let (fs, _handle) = mount(&pool, "tank");
        assert!(read_file(&fs, ROOT, b"promised") == noise(9, 5_000));
    }
    world.inspect();
    promise(&pool, b"given up");
    drop(pool);
    let pool = world.back().expect("taken back");
    assert_eq!(pool.state().log.replayed, 0);
    let (fs, _handle) = mount(&pool, "tank");
    assert!(read_file(&fs, ROOT, b"file 0") == noise(9, 5_000));
    assert!(fs.lookup(ROOT, b"promised").is_err() && fs.lookup(ROOT, b"given up").is_err());
    promise(&pool, b"new");
    world.inspect();
}
