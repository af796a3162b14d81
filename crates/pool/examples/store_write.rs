//! Sequential write to a store of objects behind a line, with an anchor at hand, beside a bare loop
//! of puts.
//!
//!     cargo run --release -p steadfast-pool --example store_write -- [MS] [MBIT] [MIB]

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use steadfast_anchor::MemoryRegister;
use steadfast_device::Result;
use steadfast_device::objects::{MemoryStore, ObjectDevice, Store};
use steadfast_env::{Env, Job};
use steadfast_pool::{CreateSpec, DeviceHandle, GroupHandles, Memory, Pool};
use steadfast_posix::{Atime, Caller, FileSystem, Options, Usage};

const OBJECT: usize = 8 << 20;
const PUTS: usize = 32;

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let draw = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes / 8).flat_map(draw).collect()
}

/// A store behind a line: each put takes a round trip, and its bytes their time on the line.
struct Far {
    store: MemoryStore,
    delay: Duration,
    bytes_a_second: f64,
    free_at: Mutex<Instant>,
}

impl Far {
    fn new(line: Line) -> Far {
        let store = MemoryStore::new("bucket");
        Far {
            store,
            delay: line.delay,
            bytes_a_second: line.mbit * 1e6 / 8.0,
            free_at: Mutex::new(Instant::now()),
        }
    }
}

impl Store for Far {
    fn identity(&self) -> String {
        self.store.identity()
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let sent = {
            let mut free_at = self.free_at.lock().expect("no holder panics");
            let began = (*free_at).max(Instant::now());
            *free_at = began + Duration::from_secs_f64(bytes.len() as f64 / self.bytes_a_second);
            *free_at
        };
        std::thread::sleep((sent + self.delay).saturating_duration_since(Instant::now()));
        self.store.create(name, bytes)
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>> {
        std::thread::sleep(self.delay);
        self.store.read(name, range)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.store.list(folder)
    }

    fn delete(&self, names: &[String]) -> Result<()> {
        self.store.delete(names)
    }
}

#[derive(Clone, Copy)]
struct Line {
    delay: Duration,
    mbit: f64,
}

fn bare(line: Line, content: &[u8]) -> Duration {
    let (store, begun) = (Far::new(line), Instant::now());
    let objects: Vec<(usize, &[u8])> = content.chunks(OBJECT).enumerate().collect();
    let (store, objects) = (&store, &objects);
    let put = |first: usize| -> Job<'_> {
        Box::new(move || {
            for (number, bytes) in objects.iter().skip(first).step_by(PUTS) {
                assert!(store.create(&format!("{number}"), bytes).expect("memory takes it"));
            }
        })
    };
    Env::real().tasks.run_waiting((0..PUTS).map(put).collect());
    begun.elapsed()
}

fn through_a_pool(line: Line, content: &[u8]) -> Duration {
    let device = ObjectDevice::open(Arc::new(Far::new(line)), Some(1 << 50), [1; 16]).expect("a store");
    let handle = DeviceHandle { path: "bucket".into(), device: Arc::new(device) };
    let spec = CreateSpec {
        name: "tank".into(),
        groups: GroupHandles::alone(vec![handle]),
        ashift: 12,
        force: false,
        pool_props: BTreeMap::new(),
        root_props: BTreeMap::from([("recordsize".to_owned(), "1048576".to_owned())]),
        key: None,
        aux: Default::default(),
        anchor: common::anchored_in(&Arc::new(MemoryRegister::new("anchor"))),
        host: "host".into(),
        memory: Memory::default(),
    };
    let pool = Pool::create(&Env::real(), spec).expect("a pool");
    let handle = pool.datasets().open_dataset("tank").expect("it opens");
    let usage = Arc::new(|| Usage { used_bytes: 0, available_bytes: 1 << 40 });
    let options = Options { atime: Atime::Off, usage, block_bytes: 4096 };
    let fs = FileSystem::new(Arc::clone(handle.dataset()), options).expect("a file system");
    let entry = fs.mknod(Caller::ROOT, 1, b"large", 0o100_644, 0).expect("made");
    let begun = Instant::now();
    for (number, piece) in (0..).zip(content.chunks(1 << 20)) {
        fs.write(entry.ino, number << 20, piece, false).expect("written");
    }
    pool.sync().expect("committed");
    begun.elapsed()
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let delay = Duration::from_millis(numbers.next().unwrap_or(100));
    let line = Line { delay, mbit: numbers.next().unwrap_or(1000) as f64 };
    let content = noise(usize::try_from(numbers.next().unwrap_or(1024)).expect("it fits") << 20);
    let rate = |took: Duration| content.len() as f64 / 1e6 / took.as_secs_f64();
    for _ in 0..3 {
        let (bare, pool) = (rate(bare(line, &content)), rate(through_a_pool(line, &content)));
        println!("bare loop of {PUTS} puts {bare:.0} MB/s, pool {pool:.0} MB/s, {:.2} of it", pool / bare);
    }
}
