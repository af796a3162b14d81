//! Pools with groups under the check: columns, parity and checksums of chunks, and devices that a
//! group can do without.

use std::collections::BTreeSet;
use std::sync::Arc;

use steadfast_device::memory::{Effect, Fault};
use steadfast_device::{Device, MemoryDevice, Operation, SegmentPlace};
use steadfast_env::Env;
use steadfast_format::{GroupClass, SegmentId};
use steadfast_inspect::{Finding, Leaf, Request, Severity, Summary};
use steadfast_pool::{CreateSpec, DeviceHandle, GroupHandles, Memory, Pool, Redundancy};
use steadfast_posix::{Atime, Caller, FileSystem, Options, Usage};

const CHUNK: u32 = 64 << 10;

struct Machine {
    env: Env,
    devices: Vec<Arc<MemoryDevice>>,
}

impl Machine {
    fn create(redundancy: Redundancy, count: usize) -> (Machine, Pool) {
        let device = |at| Arc::new(MemoryDevice::new(&format!("device {at}"), 128 << 20));
        let devices: Vec<Arc<MemoryDevice>> = (0..count).map(device).collect();
        let env = Env::simulated(3);
        let handle = |device: &Arc<MemoryDevice>| DeviceHandle {
            path: device.character().identity,
            device: Arc::clone(device) as Arc<dyn Device>,
        };
        let spec = CreateSpec {
            name: "tank".into(),
            groups: vec![GroupHandles {
                redundancy,
                class: GroupClass::Normal,
                devices: devices.iter().map(handle).collect(),
            }],
            ashift: 12,
            force: false,
            pool_props: Default::default(),
            root_props: Default::default(),
            key: None,
            aux: Default::default(),
            anchor: Default::default(),
            host: "host".into(),
            memory: Memory::default(),
        };
        let pool = Pool::create(&env, spec).unwrap();
        (Machine { env, devices }, pool)
    }

    /// An exported pool with files.
    fn new(redundancy: Redundancy, count: usize) -> Machine {
        let (machine, pool) = Machine::create(redundancy, count);
        write(&pool, 0..8);
        pool.export().unwrap();
        machine
    }

    fn check(&self, given: &[usize]) -> (BTreeSet<&'static str>, Vec<Finding>, Summary) {
        let leaf = |at: &usize| {
            let device = Arc::clone(&self.devices[*at]);
            Leaf { path: device.character().identity, device: device as Arc<dyn Device> }
        };
        let leaves: Vec<Leaf> = given.iter().map(leaf).collect();
        let request = Request { leaves: &leaves, secret: None, anchor: None, env: &self.env };
        let mut found = Vec::new();
        let summary = steadfast_inspect::check(&request, &mut |finding| found.push(finding));
        (found.iter().map(|finding| finding.class().0).collect(), found, summary)
    }

    fn all(&self) -> Vec<usize> {
        (0..self.devices.len()).collect()
    }

    /// Overwrites what a device holds between its labels.
    fn spoil(&self, at: usize, byte: u8) {
        let device = &self.devices[at];
        for slot in 0..u32::try_from((device.character().size_bytes - (1 << 20)) / u64::from(CHUNK)).unwrap()
        {
            let place = SegmentPlace { segment: SegmentId(1), slot, slot_size: CHUNK };
            device.append_segment(place, 0, &vec![byte; CHUNK as usize]).unwrap();
        }
    }
}

fn write(pool: &Pool, files: std::ops::Range<u64>) {
    let handle = pool.datasets().open_dataset("tank").unwrap();
    let usage = || Usage { used_bytes: 0, available_bytes: 1 << 30 };
    let options = Options { atime: Atime::Relative, usage: Arc::new(usage), block_bytes: 4096 };
    let fs = FileSystem::new(Arc::clone(handle.dataset()), options).unwrap();
    for file in files {
        let name = format!("file{file}");
        let entry = fs.mknod(Caller::ROOT, 1, name.as_bytes(), 0o100_644, 0).unwrap();
        let mut state = file.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let draw = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        let bytes: Vec<u8> = (0..40_000).flat_map(draw).collect();
        fs.write(entry.ino, 0, &bytes, false).unwrap();
        fs.forget(entry.ino, 1);
    }
    pool.sync().unwrap();
}

const GROUPS: [(Redundancy, usize); 3] =
    [(Redundancy::Mirror, 2), (Redundancy::Raidz(1), 4), (Redundancy::Raidz(2), 5)];

#[test]
fn healthy_groups_leave_nothing_to_say() {
    for (redundancy, count) in GROUPS {
        let machine = Machine::new(redundancy, count);
        let (_, found, summary) = machine.check(&machine.all());
        assert!(found.is_empty() && summary.blocks > 0, "{redundancy:?} {found:?}");
    }
}

#[test]
fn a_spoilt_column_is_told_by_its_chunks_and_nothing_is_lost() {
    for (redundancy, count) in GROUPS {
        for (byte, word) in [(0, "stale"), (7, "hash")] {
            let machine = Machine::new(redundancy, count);
            machine.spoil(1, byte);
            let (codes, found, summary) = machine.check(&machine.all());
            let harmless = BTreeSet::from(["chunk-wrong", "parity-wrong", "more"]);
            assert!(codes.contains("chunk-wrong") && codes.is_subset(&harmless), "{redundancy:?} {codes:?}");
            assert_eq!(summary.worst(), Some(Severity::Degraded));
            let told = |finding: &Finding| match finding {
                Finding::ChunkWrong { device, wrong, .. } => device.0 == 2 && *wrong == word,
                _ => true,
            };
            assert!(found.iter().all(told), "{redundancy:?} {word} {found:?}");
        }
    }
}

#[test]
fn more_spoilt_columns_than_parity_are_fatal() {
    let machine = Machine::new(Redundancy::Raidz(1), 4);
    [0, 2].into_iter().for_each(|at| machine.spoil(at, 9));
    let (codes, _, summary) = machine.check(&machine.all());
    // The pool's own metadata is lost too, and with it the table that says what is where.
    assert!(codes.contains("block-lost"), "{codes:?}");
    assert_eq!(summary.worst(), Some(Severity::Fatal));
}

#[test]
fn a_device_that_its_group_can_spare_is_not_fatal() {
    for (redundancy, count) in GROUPS {
        let machine = Machine::new(redundancy, count);
        let spared = redundancy.spared(count as u32) as usize;
        let (codes, _, summary) = machine.check(&(0..count - spared).collect::<Vec<_>>());
        assert_eq!(codes, BTreeSet::from(["device-spared"]), "{redundancy:?}");
        assert_eq!(
            (summary.worst(), summary.findings[&Severity::Degraded]),
            (Some(Severity::Degraded), spared as u64)
        );
        let (codes, _, summary) = machine.check(&(0..count - spared - 1).collect::<Vec<_>>());
        if count > spared + 1 {
            assert!(codes.contains("device-missing"), "{redundancy:?} {codes:?}");
            assert_eq!(summary.worst(), Some(Severity::Fatal));
        }
    }
}

#[test]
fn a_device_without_a_label_is_told_as_one_that_can_be_spared() {
    let machine = Machine::new(Redundancy::Raidz(1), 4);
    steadfast_pool::erase(&*machine.devices[2]).unwrap();
    let (codes, _, summary) = machine.check(&machine.all());
    assert_eq!(codes, BTreeSet::from(["device-spared", "label-spared"]));
    assert_eq!(summary.worst(), Some(Severity::Degraded));
    let (codes, _, _) = machine.check(&[2]);
    assert_eq!(codes, BTreeSet::from(["label-none"]));
}

#[test]
fn what_was_written_without_a_device_lacks_its_columns() {
    let (machine, pool) = Machine::create(Redundancy::Raidz(1), 4);
    write(&pool, 0..4);
    let path = pool.state().leaves[1].config.path.clone();
    pool.offline(&path).unwrap();
    write(&pool, 4..8);
    pool.export().unwrap();
    let (codes, _, summary) = machine.check(&machine.all());
    assert_eq!(codes, BTreeSet::from(["column-missing", "device-out"]));
    assert_eq!(summary.worst(), Some(Severity::Degraded));
}

#[test]
fn a_row_with_more_wrong_chunks_than_parity_is_lost_and_the_rest_is_not() {
    let (mut lost, mut fatal) = (0, 0);
    // The same place on two devices of raidz1: a row of content now and then, or of metadata, or of
    // nothing.
    for slot in (0..120).step_by(4) {
        let machine = Machine::new(Redundancy::Raidz(1), 4);
        for device in &machine.devices[..2] {
            let place = SegmentPlace { segment: SegmentId(1), slot, slot_size: CHUNK };
            device.append_segment(place, 0, &vec![9; CHUNK as usize]).unwrap();
        }
        let (codes, found, summary) = machine.check(&machine.all());
        fatal += u64::from(summary.worst() == Some(Severity::Fatal));
        if codes.contains("row-lost") && summary.worst() == Some(Severity::Damage) {
            lost += 1;
            let told = |finding: &Finding| matches!(finding, Finding::RowLost { wrong: 2, spared: 1, .. });
            assert!(found.iter().any(told), "{found:?}");
            // Whose block is in it is told that too; of metadata the other copy is good.
            assert!(codes.contains("block-lost") || codes.contains("copy-bad"), "{codes:?}");
        }
    }
    assert!(lost > 3, "{lost} lost, {fatal} fatal");
}

#[test]
fn a_column_that_cannot_be_read_is_told_with_its_device() {
    let mut told = 0;
    for skip in 0..200 {
        let machine = Machine::new(Redundancy::Raidz(2), 5);
        let fault = Fault { operation: Operation::Read, skip, effect: Effect::FailAlways };
        machine.devices[1].arm(fault);
        let (codes, found, summary) = machine.check(&machine.all());
        // Its labels, uberblocks and the pool's own metadata come first.
        if codes.contains("column-unreadable") {
            told += 1;
            let is_it = |finding: &Finding| match finding {
                Finding::ColumnUnreadable { device, .. } => device.0 == 2,
                _ => true,
            };
            assert!(found.iter().all(is_it), "{found:?}");
            assert_eq!(summary.worst(), Some(Severity::Degraded), "{codes:?}");
        }
    }
    assert!(told > 0);
}
