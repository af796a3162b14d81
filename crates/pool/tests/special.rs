//! Pools with special devices: what lies there, what becomes of it when they are full, removed,
//! replaced or lost.

use std::sync::Arc;

use crate::common::{
    self, ME, MIB, ROOT, handles, import, import_spec, mount, noise, read_file, spec, write_file,
};
use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_format::GroupClass;
use steadfast_pool::{CreateSpec, Error, GroupHandles, Pool, Redundancy, ScrubCommand};
use steadfast_posix::Errno;

struct Machine {
    env: Env,
    normal: Vec<Arc<MemoryDevice>>,
    special: Vec<Arc<MemoryDevice>>,
}

impl Machine {
    fn new(normal: (usize, u64), special: (usize, u64)) -> Machine {
        let made = |word: &str, (count, bytes): (usize, u64)| -> Vec<Arc<MemoryDevice>> {
            (0..count).map(|at| Arc::new(MemoryDevice::new(&format!("{word}{at}"), bytes))).collect()
        };
        Machine { env: Env::seeded(5), normal: made("normal", normal), special: made("special", special) }
    }

    fn normal(&self, redundancy: Redundancy) -> GroupHandles {
        GroupHandles { redundancy, class: GroupClass::Normal, devices: handles(&self.normal) }
    }

    fn special(&self, redundancy: Redundancy) -> GroupHandles {
        GroupHandles { redundancy, class: GroupClass::Special, devices: handles(&self.special) }
    }

    fn create(&self, groups: Vec<GroupHandles>) -> Pool {
        Pool::create(&self.env, CreateSpec { groups, ..spec(Vec::new(), None) }).expect("a pool")
    }

    fn all(&self) -> Vec<Arc<MemoryDevice>> {
        self.normal.iter().chain(&self.special).cloned().collect()
    }

    fn import(&self) -> Pool {
        import(&self.env, handles(&self.all()), None).expect("imported")
    }
}

/// Bytes written to normal and to special devices since the pool was opened.
fn written(pool: &Pool) -> [u64; 2] {
    sums(pool, |leaf| leaf.counts.written_bytes)
}

/// Bytes that live on each.
fn living(pool: &Pool) -> [u64; 2] {
    sums(pool, |leaf| leaf.allocated_bytes)
}

fn sums(pool: &Pool, of: impl Fn(&steadfast_pool::LeafStatus) -> u64) -> [u64; 2] {
    let state = pool.state();
    let special: Vec<u8> = state
        .groups
        .iter()
        .filter(|group| group.class == GroupClass::Special)
        .map(|group| group.id)
        .collect();
    let mut sums = [0; 2];
    for leaf in &state.leaves {
        sums[usize::from(special.contains(&leaf.config.group))] += of(leaf);
    }
    sums
}

fn finish(pool: &Pool) {
    for _ in 0..10_000 {
        if pool.scan_remaining() == [0, 0] && pool.move_remaining().is_none() {
            return;
        }
        pool.sync().expect("the pool goes on");
    }
    panic!("{:?} {:?}", pool.state().scan, pool.state().moving);
}

fn name(file: u64) -> Vec<u8> {
    format!("file{file}").into_bytes()
}

fn write(pool: &Pool, files: std::ops::Range<u64>, bytes: usize) {
    let (fs, _open) = mount(pool, "tank");
    for file in files {
        write_file(&fs, ROOT, &name(file), &noise(file, bytes));
    }
    pool.sync().expect("committed");
}

fn check(pool: &Pool, files: std::ops::Range<u64>, bytes: usize) {
    let (fs, _open) = mount(pool, "tank");
    for file in files {
        assert!(read_file(&fs, ROOT, &name(file)) == noise(file, bytes), "file {file}");
    }
}

#[test]
fn metadata_lies_on_special_devices_and_small_blocks_as_far_as_the_property_says() {
    let kinds = [
        (Redundancy::Raidz(1), 3, Redundancy::Mirror, 2),
        (Redundancy::Mirror, 2, Redundancy::Mirror, 2),
        (Redundancy::None, 1, Redundancy::None, 1),
        (Redundancy::Raidz(2), 4, Redundancy::Raidz(2), 4),
    ];
    for (kind, count, special, special_count) in kinds {
        let machine = Machine::new((count, 128 * MIB), (special_count, 64 * MIB));
        let pool = machine.create(vec![machine.normal(kind), machine.special(special)]);
        assert!(pool.features().iter().any(|feature| feature.name == "special_devices"));
        write(&pool, 0..100, 100_000);
        let [content, metadata] = living(&pool);
        assert!(content >= 100 * 100_000, "{kind:?}: {content}");
        assert!(metadata > 0 && metadata < content / 4, "{kind:?}: {metadata} beside {content}");
        // Nothing but metadata changes: the other devices get their uberblocks.
        let before = written(&pool);
        {
            let (fs, _open) = mount(&pool, "tank");
            for file in 0..200 {
                fs.mkdir(ME, ROOT, format!("d{file}").as_bytes(), 0o755).expect("made");
            }
        }
        pool.sync().expect("committed");
        let after = written(&pool);
        assert_eq!(after[0], before[0], "{kind:?}: metadata went to the normal side");
        assert!(after[1] > before[1]);

        pool.datasets().set_property("tank", "special_small_blocks", Some("32768")).expect("set");
        let before = living(&pool);
        write(&pool, 100..200, 30_000);
        let after = living(&pool);
        assert_eq!(after[0], before[0], "{kind:?}: small blocks went to the normal side");
        assert!(after[1] >= before[1] + 100 * 30_000);
        write(&pool, 200..210, 40_000);
        assert!(living(&pool)[0] >= after[0] + 10 * 40_000, "{kind:?}: larger blocks are content");

        pool.export().expect("exported");
        drop(pool);
        let pool = machine.import();
        check(&pool, 0..100, 100_000);
        check(&pool, 100..200, 30_000);
        check(&pool, 200..210, 40_000);
        pool.devices().scrub(ScrubCommand::Start).expect("begun");
        finish(&pool);
        let scan = pool.state().scan.expect("a scrub");
        assert_eq!((scan.repaired, scan.lost), (0, 0), "{kind:?}");
        pool.export().expect("exported");
    }
}

#[test]
fn a_special_side_that_is_full_sends_the_rest_to_the_other_one() {
    let machine = Machine::new((1, 512 * MIB), (1, 64 * MIB));
    let pool = machine.create(vec![machine.normal(Redundancy::None), machine.special(Redundancy::None)]);
    pool.datasets().set_property("tank", "special_small_blocks", Some("131072")).expect("set");
    // All of it is small: twice what the special device holds.
    let files = 128;
    write(&pool, 0..files, MIB as usize);
    let [normal, special] = living(&pool);
    assert!(special > 30 * MIB && normal > 60 * MIB, "{normal} {special}");
    check(&pool, 0..files, MIB as usize);
    // A part is left to metadata, which goes on being written there.
    let before = written(&pool);
    {
        let (fs, _open) = mount(&pool, "tank");
        for file in 0..100 {
            fs.mkdir(ME, ROOT, format!("d{file}").as_bytes(), 0o755).expect("made");
        }
    }
    pool.sync().expect("committed");
    assert_eq!(written(&pool)[0], before[0]);
    pool.export().expect("exported");
    drop(pool);
    let pool = machine.import();
    check(&pool, 0..files, MIB as usize);
}

#[test]
fn a_full_pool_keeps_content_off_special_devices_and_deletes() {
    let machine = Machine::new((1, 128 * MIB), (1, 128 * MIB));
    let pool = machine.create(vec![machine.normal(Redundancy::None), machine.special(Redundancy::None)]);
    let (fs, open) = mount(&pool, "tank");
    let file = fs.mknod(ME, ROOT, b"big", 0o100_600, 0).expect("made").ino;
    let (mut at, mut refused) = (0, false);
    while !refused {
        for _ in 0..16 {
            match fs.write(file, at, &noise(at, 128 << 10), false) {
                Ok(_) => at += 128 << 10,
                Err(Errno::ENOSPC) => refused = true,
                Err(error) => panic!("{error:?}"),
            }
        }
        pool.sync().expect("committed");
        assert!(at < 256 * MIB, "content goes where it should not");
    }
    let [normal, special] = living(&pool);
    assert!(normal >= 70 * MIB && special < 16 * MIB, "{normal} {special}");
    for at in (0..at).step_by(128 << 10).step_by(7) {
        let mut content = vec![0; 128 << 10];
        assert_eq!(fs.read(file, at, &mut content).expect("read"), content.len());
        assert!(content == noise(at, 128 << 10), "at {at}");
    }
    // Deleting gives all of it back.
    fs.unlink(ROOT, b"big").expect("deleted");
    fs.forget_all();
    drop((fs, open));
    for _ in 0..50 {
        pool.sync().expect("committed");
    }
    write(&pool, 0..40, MIB as usize);
    check(&pool, 0..40, MIB as usize);
}

#[test]
fn metadata_that_is_written_again_and_again_stays_on_special_devices() {
    let machine = Machine::new((1, 256 * MIB), (2, 64 * MIB));
    let pool = machine.create(vec![machine.normal(Redundancy::None), machine.special(Redundancy::Mirror)]);
    write(&pool, 0..200, 10_000);
    let before = written(&pool);
    let (fs, _open) = mount(&pool, "tank");
    for round in 0..400_u64 {
        for file in 0..100 {
            let _ = fs.unlink(ROOT, format!("d{file}").as_bytes());
            let entry = fs.mknod(ME, ROOT, format!("d{file}").as_bytes(), 0o100_644, 0).expect("made");
            fs.write(entry.ino, 0, &noise(round + file, 900), false).expect("written");
            fs.forget(entry.ino, 1);
        }
        pool.sync().expect("committed");
    }
    let after = written(&pool);
    // More than the special devices hold was written, and nothing of it elsewhere.
    assert!(after[1] - before[1] > 3 * 64 * MIB, "{} bytes", after[1] - before[1]);
    assert_eq!(after[0], before[0]);
}

#[test]
fn special_devices_are_added_filled_by_a_rebalance_and_removed() {
    let machine = Machine::new((3, 128 * MIB), (2, 64 * MIB));
    let pool = machine.create(vec![machine.normal(Redundancy::Raidz(1))]);
    {
        let (fs, _open) = mount(&pool, "tank");
        for number in 0..3000 {
            fs.mkdir(
                ME,
                ROOT,
                format!("a folder with a long name, so that leaves are many {number}").as_bytes(),
                0o755,
            )
            .expect("made");
        }
    }
    write(&pool, 0..60, 50_000);
    pool.devices().add_groups(vec![machine.special(Redundancy::Mirror)], false, false).expect("added");
    pool.datasets().set_property("tank", "special_small_blocks", Some("16384")).expect("set");
    write(&pool, 60..160, 12_000);
    let before = living(&pool);
    pool.devices().rebalance(ScrubCommand::Start).expect("begun");
    finish(&pool);
    let after = living(&pool);
    assert!(after[1] > before[1], "older metadata moves there: {before:?} {after:?}");
    pool.export().expect("exported");
    drop(pool);
    let pool = machine.import();
    // One of the two fails and is replaced.
    let new = Arc::new(MemoryDevice::new("new", 64 * MIB));
    pool.replace("special0", common::handle(&new), false).expect("begun");
    finish(&pool);
    for _ in 0..5 {
        pool.sync().expect("committed");
    }
    check(&pool, 60..160, 12_000);
    let path = |pool: &Pool| pool.state().leaves.last().expect("there are some").config.path.clone();
    pool.devices().remove_groups(&[path(&pool)], false).expect("begun");
    finish(&pool);
    for _ in 0..5 {
        pool.sync().expect("committed");
    }
    assert_eq!(pool.state().leaves.len(), 3);
    assert_eq!(living(&pool)[1], 0);
    check(&pool, 0..60, 50_000);
    check(&pool, 60..160, 12_000);
    pool.export().expect("exported");
    drop(pool);
    let pool = import(&machine.env, handles(&machine.normal), None).expect("imported without them");
    check(&pool, 0..60, 50_000);
    check(&pool, 60..160, 12_000);
}

#[test]
fn a_lost_special_group_is_a_lost_pool_and_one_of_a_mirror_is_not() {
    let machine = Machine::new((3, 128 * MIB), (2, 64 * MIB));
    let groups = vec![machine.normal(Redundancy::Raidz(1)), machine.special(Redundancy::Mirror)];
    let pool = machine.create(groups);
    write(&pool, 0..30, 30_000);
    pool.export().expect("exported");
    drop(pool);
    let some: Vec<_> = machine.normal.iter().chain(&machine.special[..1]).cloned().collect();
    let pool = import(&machine.env, handles(&some), None).expect("one is spared");
    check(&pool, 0..30, 30_000);
    pool.export().expect("exported");
    drop(pool);
    let (mut pools, _) = steadfast_pool::scan(handles(&machine.normal));
    let lost = Pool::import(&machine.env, pools.remove(0), &import_spec(None)).map(drop);
    let Err(Error::MissingDevices { missing, .. }) = lost else { panic!("{lost:?}") };
    assert_eq!(missing, ["special0", "special1"]);
}

#[test]
fn the_last_normal_group_stays_and_whole_objects_are_no_special_devices() {
    let machine = Machine::new((1, 128 * MIB), (1, 128 * MIB));
    let pool = machine.create(vec![machine.normal(Redundancy::None), machine.special(Redundancy::None)]);
    let refused = pool.devices().remove_groups(&["normal0".into()], false);
    assert!(matches!(refused, Err(Error::LastGroup { .. })), "{refused:?}");
    let objects = Arc::new(MemoryDevice::whole_segments("objects", 128 * MIB));
    let group = GroupHandles {
        redundancy: Redundancy::None,
        class: GroupClass::Special,
        devices: vec![common::handle(&objects)],
    };
    let refused = pool.devices().add_groups(vec![group], false, false);
    assert!(matches!(refused, Err(Error::GroupOfObjects { .. })), "{refused:?}");
}
