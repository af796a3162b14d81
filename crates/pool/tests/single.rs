//! Scrubs of what lies on single devices: every block is looked at, a second copy heals, and what
//! is lost is named.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{self, ROOT, handle, handles, import, mount, spec};
use steadfast_device::{Character, Device, MemoryDevice, Objects, Result, SegmentPlace};
use steadfast_env::Env;
use steadfast_format::medium::UBERBLOCK_SIZE;
use steadfast_format::{SegmentId, Txg};
use steadfast_pool::{
    CreateSpec, GroupHandles, NewKey, Pool, ScanRow, ScanState, ScrubCommand, Sweep, TrimCommand,
};

const FILES: u64 = 12;
const UNIT: u32 = 4096;

fn content(file: u64) -> Vec<u8> {
    let mut state = file.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::new();
    while bytes.len() < 300_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// A pool on two devices that stand alone, with files in it.
fn pool(env: &Env, key: Option<NewKey>) -> (Vec<Arc<MemoryDevice>>, Pool) {
    let device = |at| Arc::new(MemoryDevice::new(&format!("device {at}"), 64 << 20));
    let devices: Vec<Arc<MemoryDevice>> = (0..2).map(device).collect();
    let spec = CreateSpec { groups: GroupHandles::alone(handles(&devices)), ..spec(Vec::new(), key) };
    let pool = Pool::create(env, spec).expect("a pool");
    let (fs, handle) = mount(&pool, "tank");
    for file in 0..FILES {
        common::write_file(&fs, ROOT, format!("file{file}").as_bytes(), &content(file));
    }
    drop((fs, handle));
    pool.sync().expect("committed");
    (devices, pool)
}

fn scrub(pool: &Pool) -> ScanRow {
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    for _ in 0..100_000 {
        if pool.scan_remaining() == [0, 0] {
            let scan = pool.state().scan.expect("there was one");
            assert_eq!(scan.state, ScanState::Finished);
            return scan;
        }
        pool.step();
    }
    panic!("{:?}", pool.state().scan);
}

/// A unit of a device between its labels.
fn place(unit: u32) -> SegmentPlace {
    SegmentPlace { segment: SegmentId(1), slot: unit, slot_size: UNIT }
}

#[test]
fn every_unit_that_is_spoilt_is_found_and_healed_or_its_file_is_named() {
    let env = Env::simulated(3);
    let (devices, pool) = pool(&env, None);
    let clean = scrub(&pool);
    assert_eq!((clean.repaired, clean.lost), (0, 0));
    let stored = FILES * 300_000;
    assert!(clean.read >= stored, "{} of {stored} bytes were looked at", clean.read);
    let (mut healed, mut lost) = (0, 0);
    for device in &devices {
        let size = u32::try_from(device.character().size_bytes).expect("small");
        for unit in (0..(size - (1 << 20)) / UNIT).step_by(3) {
            let mut before = vec![0; UNIT as usize];
            device.read_segment(place(unit), 0, &mut before).expect("readable");
            if before.iter().all(|byte| *byte == 0) {
                continue;
            }
            let spoilt: Vec<u8> = before.iter().map(|byte| byte ^ 0x55).collect();
            device.append_segment(place(unit), 0, &spoilt).expect("written");
            let scan = scrub(&pool);
            let damaged = pool.state().damaged;
            let names: Vec<_> = damaged.iter().filter_map(|file| file.path.clone()).collect();
            match (scan.repaired, scan.lost) {
                // Of a block that is dead, or of the log: nobody misses it.
                (0, 0) => assert!(damaged.is_empty(), "unit {unit}: {damaged:?}"),
                (repaired, 0) => {
                    assert!(repaired > 0 && damaged.is_empty(), "unit {unit}: {damaged:?}");
                    let mut after = vec![0; UNIT as usize];
                    device.read_segment(place(unit), 0, &mut after).expect("readable");
                    assert!(after == before, "unit {unit} holds again what it should");
                    healed += 1;
                }
                (_, _) => {
                    assert_eq!(names.len(), 1, "unit {unit}: {damaged:?}");
                    lost += 1;
                }
            }
            // Unless the pool has put something else there meanwhile.
            let mut after = vec![0; UNIT as usize];
            device.read_segment(place(unit), 0, &mut after).expect("readable");
            if after == spoilt {
                device.append_segment(place(unit), 0, &before).expect("written");
            }
            pool.clear_errors(&[]);
        }
    }
    assert!(healed > 0 && lost > 100, "{healed} healed, {lost} lost");
    let clean = scrub(&pool);
    assert_eq!((clean.repaired, clean.lost), (0, 0));
    assert!(pool.state().damaged.is_empty());
    pool.export().expect("exported");
}

#[test]
fn a_scrub_goes_on_beside_changes_and_finds_nothing_that_is_not_there() {
    let env = Env::simulated(4);
    let (_, pool) = pool(&env, None);
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    for round in 0..20 {
        let (fs, handle) = mount(&pool, "tank");
        let name = format!("file{}", round % FILES).into_bytes();
        fs.unlink(ROOT, &name).expect("there");
        common::write_file(&fs, ROOT, &name, &content(round + 100));
        drop((fs, handle));
        pool.sync().expect("committed");
        pool.step();
    }
    for _ in 0..100_000 {
        if pool.scan_remaining() == [0, 0] {
            break;
        }
        pool.step();
    }
    let scan = pool.state().scan.expect("one");
    assert_eq!((scan.state, scan.repaired, scan.lost), (ScanState::Finished, 0, 0));
    assert!(pool.state().damaged.is_empty());
    assert!(pool.state().leaves.iter().all(|leaf| leaf.counts.checksum_errors == 0));
    pool.export().expect("exported");
}

#[test]
fn beside_other_load_a_scrub_keeps_within_its_bandwidth() {
    let env = Env::simulated(5);
    let (devices, pool) = pool(&env, None);
    pool.export().expect("exported");
    drop(pool);
    let pool = import(&env, handles(&devices), None).expect("imported");
    const LIMIT: u64 = 1 << 20;
    pool.set_pool_prop("scrublimit", Some(&LIMIT.to_string())).expect("set");
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    let began = env.clock.monotonic_ns();
    let mut read = 0;
    for round in 0..100_000_u64 {
        if pool.scan_remaining() == [0, 0] {
            break;
        }
        // Somebody reads and writes all the while.
        let (fs, handle) = mount(&pool, "tank");
        common::write_file(&fs, ROOT, format!("load{round}").as_bytes(), b"something");
        drop((fs, handle));
        pool.step();
        read = pool.state().scan.expect("one").read;
    }
    let seconds = (env.clock.monotonic_ns() - began) as f64 / 1e9;
    let scan = pool.state().scan.expect("one");
    assert_eq!((scan.state, scan.lost), (ScanState::Finished, 0));
    // A batch is read before each rest.
    let most = LIMIT as f64 * seconds + 3e6;
    assert!(read as f64 <= most, "{read} bytes in {seconds} s");
    assert!(seconds > 1.0, "it rested: {seconds} s for {read} bytes");
    pool.export().expect("exported");
}

/// Readers whose blocks are in memory are load, too: they want the processors.
#[test]
fn beside_readers_from_memory_a_scrub_keeps_within_its_bandwidth() {
    let env = Env::simulated(5);
    let (devices, pool) = pool(&env, None);
    pool.export().expect("exported");
    drop(pool);
    let pool = import(&env, handles(&devices), None).expect("imported");
    const LIMIT: u64 = 1 << 20;
    pool.set_pool_prop("scrublimit", Some(&LIMIT.to_string())).expect("set");
    let (fs, _open) = mount(&pool, "tank");
    common::read_file(&fs, ROOT, b"file0");
    let devices_read = || pool.state().leaves.iter().map(|leaf| leaf.sample.read.bytes).sum::<u64>();
    let before = devices_read();
    common::read_file(&fs, ROOT, b"file0");
    assert_eq!(devices_read(), before, "it is in memory");
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    let began = env.clock.monotonic_ns();
    for _ in 0..100_000 {
        if pool.scan_remaining() == [0, 0] {
            break;
        }
        common::read_file(&fs, ROOT, b"file0");
        pool.step();
    }
    let seconds = (env.clock.monotonic_ns() - began) as f64 / 1e9;
    let scan = pool.state().scan.expect("one");
    assert_eq!((scan.state, scan.lost), (ScanState::Finished, 0));
    // It reads the devices, all of it, whatever is in memory.
    assert!(devices_read() - before >= FILES * 300_000);
    let most = LIMIT as f64 * seconds + 3e6;
    assert!(scan.read as f64 <= most, "{} bytes in {seconds} s", scan.read);
    assert!(seconds > 1.0, "it rested: {seconds} s for {} bytes", scan.read);
    drop((fs, _open));
    pool.export().expect("exported");
}

/// Nor does it rest for those that read before it began, however much that was, or while it paused.
#[test]
fn what_was_read_before_a_scrub_is_no_load_beside_it() {
    let env = Env::simulated(5);
    let (_, pool) = pool(&env, None);
    pool.set_pool_prop("scrublimit", Some(&(1_u64 << 20).to_string())).expect("set");
    pool.sync().expect("committed");
    let (fs, _open) = mount(&pool, "tank");
    let read_all = || {
        for file in 0..FILES {
            common::read_file(&fs, ROOT, format!("file{file}").as_bytes());
        }
    };
    for is_paused in [false, true] {
        read_all();
        let began = env.clock.monotonic_ns();
        if is_paused {
            pool.devices().scrub(ScrubCommand::Start).expect("begun");
            pool.devices().scrub(ScrubCommand::Pause).expect("paused");
            read_all();
        }
        let scan = scrub(&pool);
        let seconds = (env.clock.monotonic_ns() - began) as f64 / 1e9;
        assert!(scan.read >= FILES * 300_000, "{} bytes", scan.read);
        assert!(seconds < 0.5, "{seconds} s for {} bytes, paused: {is_paused}", scan.read);
    }
    drop((fs, _open));
    pool.export().expect("exported");
}

type Reader = Box<dyn Fn(usize) + Send>;

/// A device of which each read lets somebody else read, too, in a thread of their own. They are
/// told how long it is.
struct Shared {
    below: MemoryDevice,
    reader: Mutex<Option<Reader>>,
}

impl Shared {
    fn let_read(&self, bytes: usize) {
        // Its own reads of the device let nobody read.
        let Some(reader) = self.reader.lock().unwrap().take() else { return };
        let reader = std::thread::spawn(move || {
            reader(bytes);
            reader
        });
        *self.reader.lock().unwrap() = Some(reader.join().expect("it reads"));
    }
}

impl Device for Shared {
    fn character(&self) -> Character {
        self.below.character()
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> Result<()> {
        self.below.put_segment(place, bytes)
    }

    fn append_segment(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()> {
        self.below.append_segment(place, offset, bytes)
    }

    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()> {
        self.let_read(out.len());
        self.below.read_segment(place, offset, out)
    }

    fn read_segment_parts(&self, place: SegmentPlace, offset: u32, parts: &mut [&mut [u8]]) -> Result<()> {
        self.let_read(parts.iter().map(|part| part.len()).sum());
        self.below.read_segment_parts(place, offset, parts)
    }

    fn discard_segment(&self, place: SegmentPlace) -> Result<()> {
        self.below.discard_segment(place)
    }

    fn objects(&self) -> Option<&dyn Objects> {
        self.below.objects()
    }

    fn write_label(&self, copy: usize, bytes: &[u8]) -> Result<()> {
        self.below.write_label(copy, bytes)
    }

    fn read_label(&self, copy: usize) -> Result<Vec<u8>> {
        self.below.read_label(copy)
    }

    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        self.below.write_uberblock(copy, txg, bytes)
    }

    fn read_uberblocks(&self, copy: usize) -> Result<Vec<Vec<u8>>> {
        self.below.read_uberblocks(copy)
    }

    fn flush(&self) -> Result<()> {
        self.below.flush()
    }
}

/// A reader whose reads all fall into the looks of a scrub is load beside it.
#[test]
fn reads_while_a_scrub_is_at_work_are_load_beside_it() {
    const LIMIT: u64 = 1 << 20;
    let env = Env::simulated(5);
    let below = MemoryDevice::new("shared", 64 << 20);
    let device = Arc::new(Shared { below, reader: Mutex::default() });
    let groups = GroupHandles::alone(vec![handle(&device)]);
    let pool = Pool::create(&env, CreateSpec { groups, ..spec(Vec::new(), None) }).expect("a pool");
    pool.set_pool_prop("scrublimit", Some(&LIMIT.to_string())).expect("set");
    let (fs, open) = mount(&pool, "tank");
    let fs = Arc::new(fs);
    for file in 0..FILES {
        common::write_file(&fs, ROOT, format!("file{file}").as_bytes(), &content(file));
    }
    // All it takes is in memory, and no time of access is left to be written.
    common::read_file(&fs, ROOT, b"file0");
    pool.sync().expect("committed");
    let reading = Arc::clone(&fs);
    *device.reader.lock().unwrap() = Some(Box::new(move |_| {
        common::read_file(&reading, ROOT, b"file0");
    }));
    let began = env.clock.monotonic_ns();
    let scan = scrub(&pool);
    let seconds = (env.clock.monotonic_ns() - began) as f64 / 1e9;
    *device.reader.lock().unwrap() = None;
    assert_eq!((scan.state, scan.lost), (ScanState::Finished, 0));
    assert!(scan.read >= FILES * 300_000, "{} bytes", scan.read);
    assert!(seconds > 1.0, "it rested: {seconds} s for {} bytes", scan.read);
    let most = LIMIT as f64 * seconds + 3e6;
    assert!(scan.read as f64 <= most, "{} bytes in {seconds} s", scan.read);
    drop((fs, open));
    pool.export().expect("exported");
}

/// On a store of objects one look of a scrub may last for seconds: not beside somebody who begins
/// to read meanwhile, if its bandwidth is bounded.
#[test]
fn a_reader_who_comes_while_a_store_is_scrubbed_bounds_it() {
    const LIMIT: u64 = 4 << 20;
    const STORED: usize = 48 << 20;
    let env = Env::simulated(5);
    let below = MemoryDevice::whole_segments("shared", 1 << 30);
    let device = Arc::new(Shared { below, reader: Mutex::default() });
    let groups = GroupHandles::alone(vec![handle(&device)]);
    let pool = Pool::create(&env, CreateSpec { groups, ..spec(Vec::new(), None) }).expect("a pool");
    pool.set_pool_prop("scrublimit", Some(&LIMIT.to_string())).expect("set");
    let (fs, open) = mount(&pool, "tank");
    let fs = Arc::new(fs);
    common::write_file(&fs, ROOT, b"small", &content(1));
    common::write_file(&fs, ROOT, b"large", &common::noise(1, STORED));
    common::read_file(&fs, ROOT, b"small");
    pool.sync().expect("committed");
    let (reading, clock, comes) = (Arc::clone(&fs), Arc::clone(&env.clock), AtomicBool::new(false));
    *device.reader.lock().unwrap() = Some(Box::new(move |bytes| {
        clock.sleep(Duration::from_millis(10));
        // A look that rests for nobody has transfers as long as that.
        if comes.fetch_or(bytes > 2 << 20, Ordering::Relaxed) {
            common::read_file(&reading, ROOT, b"small");
        }
    }));
    let began = env.clock.monotonic_ns();
    let scan = scrub(&pool);
    let seconds = (env.clock.monotonic_ns() - began) as f64 / 1e9;
    *device.reader.lock().unwrap() = None;
    assert_eq!((scan.state, scan.lost), (ScanState::Finished, 0));
    assert!(scan.read >= STORED as u64, "{} bytes", scan.read);
    // Some transfers come before it is seen.
    let most = LIMIT as f64 * seconds + 24e6;
    assert!(scan.read as f64 <= most, "{} bytes in {seconds} s", scan.read);
    drop((fs, open));
    pool.export().expect("exported");
}

/// Work on a device ends when the device leaves: the sync loop has nothing left to do, and rests.
#[test]
fn an_initialization_ends_with_its_device() {
    let env = Env::simulated(6);
    let (_, pool) = pool(&env, None);
    let path = pool.state().leaves[0].config.path.clone();
    // A slot now and then: it goes on for hours.
    pool.devices()
        .sweep(Sweep::Initialize, std::slice::from_ref(&path), TrimCommand::Start { rate: Some(4096) })
        .expect("begun");
    pool.step();
    assert!(pool.devices().sweep_remaining(Sweep::Initialize) > 0, "under way");
    pool.devices().remove_groups(&[path], false).expect("begun");
    for _ in 0..10_000 {
        if pool.move_remaining().is_none() {
            break;
        }
        pool.step();
    }
    assert_eq!((pool.state().leaves.len(), pool.move_remaining()), (1, None), "it has left");
    assert_eq!(pool.devices().sweep_remaining(Sweep::Initialize), 0);
    // Discards and other work that a removal leaves.
    (0..500).for_each(|_| pool.step());
    let began = env.clock.monotonic_ns();
    (0..10).for_each(|_| pool.step());
    let rested = Duration::from_nanos(env.clock.monotonic_ns() - began);
    assert!(rested > Duration::from_secs(10), "ten looks in {rested:?}");
    pool.export().expect("exported");
}
