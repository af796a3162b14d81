//! Uploads: how many are under way, what they hold, and what becomes of one that fails.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use steadfast_device::objects::{MemoryStore, ObjectDevice, Request, Store, StoreFault};
use steadfast_device::{Buffer, Operation, Result, SharedDevice};
use steadfast_env::Env;
use steadfast_format::{Address, DatasetId, DeviceId};
use steadfast_segment::{Class, Error, Geometry, Space};

use crate::common::content;

const GEOMETRY: Geometry = Geometry { slot_size: 64 << 10, unit: 4096 };
const OWNER: DatasetId = DatasetId(7);
const BLOCK: usize = 16 << 10;
/// A hook that is called less often than it waits for is a failure, not a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Counts puts of segments, and holds each until enough are there, or until it is told to let go.
#[derive(Default)]
struct Held {
    puts: Mutex<Puts>,
    changed: Condvar,
    fails: AtomicBool,
}

#[derive(Default)]
struct Puts {
    here: usize,
    most: usize,
    is_open: bool,
    /// Puts that came, and how many of the first ones may go.
    came: usize,
    let_go: usize,
}

impl Held {
    fn pass(&self, request: &Request, enough: usize) -> Option<StoreFault> {
        if request.operation != Operation::Write || !request.name.starts_with("seg/") {
            return None;
        }
        let mut puts = self.puts.lock().unwrap();
        let number = puts.came;
        puts.came += 1;
        puts.here += 1;
        puts.most = puts.most.max(puts.here);
        puts.is_open |= puts.here >= enough;
        self.changed.notify_all();
        let holds = |puts: &mut Puts| !puts.is_open && number >= puts.let_go;
        let waited = self.changed.wait_timeout_while(puts, PATIENCE, holds).unwrap();
        assert!(!waited.1.timed_out(), "{} puts are under way, not {enough}", waited.0.most);
        let mut puts = waited.0;
        puts.here -= 1;
        self.fails.load(Ordering::Relaxed).then_some(StoreFault::Fails)
    }

    fn open(&self) {
        self.puts.lock().unwrap().is_open = true;
        self.changed.notify_all();
    }

    /// Lets the first ones go.
    fn let_go(&self, first: usize) {
        self.puts.lock().unwrap().let_go = first;
        self.changed.notify_all();
    }

    fn wait_for(&self, here: usize) {
        let puts = self.puts.lock().unwrap();
        let waited = self.changed.wait_timeout_while(puts, PATIENCE, |puts| puts.here < here).unwrap();
        assert!(!waited.1.timed_out(), "{} puts are under way, not {here}", waited.0.here);
    }
}

fn space(held: &Arc<Held>, enough: usize, env: Env) -> Space {
    let hook = Arc::clone(held);
    let store = MemoryStore::new("objects").handle(move |request| hook.pass(request, enough));
    let device = ObjectDevice::open(Arc::new(store), Some(64 << 20), [1; 16]).expect("a store");
    let slots = (64 << 20) / GEOMETRY.slot_size - 1;
    Space::new(GEOMETRY, vec![(DeviceId(1), slots, Arc::new(device) as SharedDevice)], env)
}

fn write(space: &Space, blocks: std::ops::Range<u64>) -> Vec<(Address, u64)> {
    let append = |seed| (space.append(OWNER, Class::Data, &content(seed, BLOCK)).expect("room"), seed);
    blocks.map(append).collect()
}

fn verify(space: &Space, blocks: &[(Address, u64)]) {
    for &(address, seed) in blocks {
        let read = space
            .read(address, BLOCK, |bytes| if bytes[..] == content(seed, BLOCK) { Ok(()) } else { Err(()) });
        read.unwrap_or_else(|_| panic!("block {seed} is read back"));
    }
    space.check().expect("consistent");
}

/// Notes the memory that segments are put out of.
struct Noting {
    store: MemoryStore,
    memory: Mutex<Vec<usize>>,
}

impl Store for Noting {
    fn identity(&self) -> String {
        self.store.identity()
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        assert!(!name.starts_with("seg/"), "a copy would be sent");
        self.store.create(name, bytes)
    }

    fn create_shared(&self, name: &str, bytes: &Arc<Buffer>) -> Result<bool> {
        self.memory.lock().unwrap().push(bytes.as_ptr().addr());
        self.store.create(name, bytes)
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>> {
        self.store.read(name, range)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.store.list(folder)
    }

    fn delete(&self, names: &[String]) -> Result<()> {
        self.store.delete(names)
    }
}

#[test]
fn segments_are_put_out_of_the_memory_that_they_were_filled_in_and_others_are_filled_there() {
    let store = Arc::new(Noting { store: MemoryStore::new("objects"), memory: Mutex::default() });
    let device = ObjectDevice::open(Arc::clone(&store) as _, Some(64 << 20), [1; 16]).expect("a store");
    let device: SharedDevice = Arc::new(device);
    let slots = (64 << 20) / GEOMETRY.slot_size - 1;
    let space = Space::new(GEOMETRY, vec![(DeviceId(1), slots, device)], Env::real());
    let mut blocks = Vec::new();
    for first in [0, 4, 8] {
        blocks.extend(write(&space, first..first + 4));
        space.flush_open().expect("stored");
    }
    verify(&space, &blocks);
    let memory = store.memory.lock().unwrap().clone();
    assert_eq!(memory, [memory[0]; 3]);
}

#[test]
fn puts_of_one_stream_run_side_by_side_and_no_append_waits_for_one() {
    const PUTS: usize = 32;
    let held = Arc::new(Held::default());
    let space = space(&held, PUTS, Env::real());
    // Each put waits until all of them are under way: one that waited for another would hang.
    let blocks = write(&space, 0..4 * PUTS as u64);
    verify(&space, &blocks);
    space.flush_open().expect("stored");
    assert_eq!(held.puts.lock().unwrap().most, PUTS);
    assert_eq!(space.upload_bytes(), 0);
    verify(&space, &blocks);
}

#[test]
fn what_is_on_its_way_is_read_from_memory() {
    let held = Arc::new(Held::default());
    let space = space(&held, usize::MAX, Env::real());
    let blocks = write(&space, 0..8);
    held.wait_for(2);
    assert_eq!(space.upload_bytes(), 8 * BLOCK as u64);
    verify(&space, &blocks);
    // One that dies before it is stored leaves no row behind.
    for &(address, _) in &blocks[..4] {
        space.free(address, BLOCK).expect("it lives");
    }
    space.check().expect("consistent");
    held.open();
    space.flush_open().expect("stored");
    verify(&space, &blocks[4..]);
}

#[test]
fn appends_wait_when_uploads_hold_what_they_may() {
    let held = Arc::new(Held::default());
    let space = space(&held, usize::MAX, Env::real());
    space.set_upload_bytes(4 * u64::from(GEOMETRY.slot_size) - 1);
    let appended = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for seed in 0..40 {
                space.append(OWNER, Class::Data, &content(seed, BLOCK)).expect("room");
                appended.fetch_add(1, Ordering::Relaxed);
            }
        });
        held.wait_for(4);
        // The append that filled the last of them may not be counted yet.
        let began = Instant::now();
        while appended.load(Ordering::Relaxed) < 16 && began.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        // Four segments are on their way, so the block behind them waits.
        assert_eq!(appended.load(Ordering::Relaxed) / 16, 1, "16 blocks went on their way");
        assert!(appended.load(Ordering::Relaxed) <= 17);
        assert!(space.upload_bytes() <= 4 * u64::from(GEOMETRY.slot_size));
        held.open();
        writer.join().expect("it goes on");
    });
    space.flush_open().expect("stored");
}

#[test]
fn a_put_that_failed_is_made_again_by_the_next_flush() {
    for env in [Env::real(), Env::seeded(1)] {
        let held = Arc::new(Held::default());
        held.open();
        held.fails.store(true, Ordering::Relaxed);
        let space = space(&held, 1, env);
        let mut blocks = write(&space, 0..6);
        assert!(matches!(space.flush_open(), Err(Error::Device { device: DeviceId(1), .. })));
        // It is still in memory, and more can be appended.
        verify(&space, &blocks);
        blocks.extend(write(&space, 6..10));
        assert!(space.flush_open().is_err());
        verify(&space, &blocks);
        held.fails.store(false, Ordering::Relaxed);
        space.flush_open().expect("stored");
        assert_eq!(space.upload_bytes(), 0);
        verify(&space, &blocks);
    }
}

/// A flush returns when its own segments are stored, though one that was filled while it waited is
/// still on its way.
#[test]
fn a_flush_waits_for_what_was_handed_over_and_no_more() {
    let held = Arc::new(Held::default());
    let space = space(&held, usize::MAX, Env::real());
    write(&space, 0..4);
    let handed = space.hand_over().expect("on its way");
    held.wait_for(1);
    let later = std::thread::scope(|scope| {
        let flush = scope.spawn(|| space.finish_uploads(handed));
        let later = write(&space, 4..8);
        held.wait_for(2);
        assert!(!flush.is_finished(), "what was handed over is not stored");
        held.let_go(1);
        flush.join().expect("it ends").expect("stored");
        later
    });
    assert_eq!(space.upload_bytes(), u64::from(GEOMETRY.slot_size), "the later one is on its way");
    held.open();
    space.flush_open().expect("stored");
    verify(&space, &later);
}

/// An append that waits for room retries what failed, and is told that it failed again. A flush
/// that waits for the same put must not take it for stored.
#[test]
fn a_put_whose_failure_an_append_was_told_of_fails_the_flush_too() {
    for env in [Env::real(), Env::seeded(1)] {
        let held = Arc::new(Held::default());
        held.open();
        held.fails.store(true, Ordering::Relaxed);
        let space = space(&held, 1, env);
        let blocks = write(&space, 0..4);
        let handed = space.hand_over().expect("on its way");
        space.set_upload_bytes(0);
        assert!(space.append(OWNER, Class::Data, &content(4, BLOCK)).is_err(), "it is told");
        assert!(space.finish_uploads(handed).is_err(), "and so is the flush");
        held.fails.store(false, Ordering::Relaxed);
        space.flush_open().expect("stored");
        verify(&space, &blocks);
    }
}

#[test]
fn where_all_that_is_on_its_way_has_failed_an_append_says_so() {
    for env in [Env::real(), Env::seeded(1)] {
        let held = Arc::new(Held::default());
        held.open();
        held.fails.store(true, Ordering::Relaxed);
        let space = space(&held, 1, env);
        space.set_upload_bytes(0);
        let failed = (0..100).find_map(|seed| space.append(OWNER, Class::Data, &content(seed, BLOCK)).err());
        assert!(matches!(failed, Some(Error::Device { .. })), "{failed:?}");
    }
}

#[test]
fn an_owner_that_is_dropped_leaves_nothing_on_its_way() {
    let held = Arc::new(Held::default());
    let space = space(&held, usize::MAX, Env::real());
    write(&space, 0..10);
    held.wait_for(2);
    space.drop_owner(OWNER);
    space.check().expect("consistent");
    held.open();
    space.flush_open().expect("nothing is left");
    assert_eq!(space.upload_bytes(), 0);
    space.check().expect("consistent");
}
