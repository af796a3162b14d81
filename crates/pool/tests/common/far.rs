//! A device as far away as a store of objects: reads of it are counted, and may be held back until
//! so many have come.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::common::{handle, import, mount, spec};
use steadfast_device::{Character, Device, MemoryDevice, Objects, PartRead, Result, SegmentPlace};
use steadfast_env::Env;
use steadfast_format::Txg;
use steadfast_format::medium::UBERBLOCK_SIZE;
use steadfast_pool::{DatasetHandle, Pool};
use steadfast_posix::FileSystem;

/// How long a read is held that waits for others in vain. A test that has to wait so long fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A pool of whole objects that `fill` has filled and nobody has read since.
pub fn cold(fill: impl FnOnce(&FileSystem)) -> (Arc<FarDevice>, Pool, FileSystem, DatasetHandle) {
    cold_on(MemoryDevice::whole_segments("far", 1 << 30), |_, fs| fill(fs))
}

/// The same of a pool on this device.
pub fn cold_on(
    device: MemoryDevice,
    fill: impl FnOnce(&Pool, &FileSystem),
) -> (Arc<FarDevice>, Pool, FileSystem, DatasetHandle) {
    let env = Env::real();
    let far = FarDevice::new(Arc::new(device));
    let pool = Pool::create(&env, spec(vec![handle(&far)], None)).expect("a pool");
    let (fs, handle_of) = mount(&pool, "tank");
    fill(&pool, &fs);
    drop((fs, handle_of));
    pool.export().expect("exported");
    drop(pool);
    let pool = import(&env, vec![handle(&far)], None).expect("imported");
    let (fs, handle_of) = mount(&pool, "tank");
    (far, pool, fs, handle_of)
}

#[derive(Default)]
struct State {
    reads: u64,
    read_bytes: u64,
    in_flight: u64,
    most_in_flight: u64,
    /// Round trips of the longest row of reads that each began after the one before had ended.
    rounds: u64,
    /// How long a read takes.
    pause: Duration,
    /// Reads that have to come before any of them goes on.
    wanted: usize,
    waiting: usize,
    is_starved: bool,
}

pub struct FarDevice {
    device: Arc<dyn Device>,
    state: Mutex<State>,
    changed: Condvar,
}

impl FarDevice {
    pub fn new(device: Arc<dyn Device>) -> Arc<FarDevice> {
        Arc::new(FarDevice { device, state: Mutex::default(), changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Reads of segments so far.
    pub fn reads(&self) -> u64 {
        self.state().reads
    }

    /// Bytes of them.
    pub fn read_bytes(&self) -> u64 {
        self.state().read_bytes
    }

    /// Round trips so far: the longest row of reads that each began after the one before had ended.
    pub fn rounds(&self) -> u64 {
        self.state().rounds
    }

    /// Most reads that were under way at once, since the last call.
    pub fn most_in_flight(&self) -> u64 {
        std::mem::take(&mut self.state().most_in_flight)
    }

    /// From now on each read takes so long, so that those that are made side by side meet.
    pub fn set_pause(&self, pause: Duration) {
        self.state().pause = pause;
    }

    /// From now on reads are held until `count` of them are under way at once; then all go.
    pub fn gather(&self, count: usize) {
        let mut state = self.state();
        (state.wanted, state.waiting, state.is_starved) = (count, 0, false);
    }

    /// True if they came. Reads are not held any more.
    pub fn gathered(&self) -> bool {
        let state = self.state();
        let came = state.wanted == 0 && !state.is_starved;
        drop(state);
        self.let_go();
        came
    }

    /// Lets all reads go, and holds no more.
    pub fn let_go(&self) {
        self.state().wanted = 0;
        self.changed.notify_all();
    }

    /// So many reads, side by side.
    fn read(&self, count: usize, bytes: usize) {
        let (pause, round) = {
            let mut state = self.state();
            state.reads += count as u64;
            state.read_bytes += bytes as u64;
            state.in_flight += count as u64;
            state.most_in_flight = state.most_in_flight.max(state.in_flight);
            (state.pause, state.rounds + 1)
        };
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        self.hold(count);
        let mut state = self.state();
        state.in_flight -= count as u64;
        state.rounds = state.rounds.max(round);
    }

    fn hold(&self, count: usize) {
        let mut state = self.state();
        if state.wanted == 0 {
            return;
        }
        state.waiting += count;
        if state.waiting >= state.wanted {
            state.wanted = 0;
            self.changed.notify_all();
            return;
        }
        let (mut state, waited) =
            self.changed.wait_timeout_while(state, PATIENCE, |state| state.wanted > 0).unwrap();
        if waited.timed_out() {
            (state.wanted, state.is_starved) = (0, true);
            self.changed.notify_all();
        }
    }
}

impl Device for FarDevice {
    fn character(&self) -> Character {
        self.device.character()
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> Result<()> {
        self.device.put_segment(place, bytes)
    }

    fn append_segment(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()> {
        self.device.append_segment(place, offset, bytes)
    }

    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()> {
        self.read(1, out.len());
        self.device.read_segment(place, offset, out)
    }

    fn read_segment_parts(&self, place: SegmentPlace, offset: u32, parts: &mut [&mut [u8]]) -> Result<()> {
        self.read(1, parts.iter().map(|part| part.len()).sum());
        self.device.read_segment_parts(place, offset, parts)
    }

    fn read_many(&self, reads: &mut [PartRead<'_>]) {
        self.read(reads.len(), reads.iter().map(PartRead::bytes).sum());
        self.device.read_many(reads);
    }

    fn discard_segment(&self, place: SegmentPlace) -> Result<()> {
        self.device.discard_segment(place)
    }

    fn objects(&self) -> Option<&dyn Objects> {
        self.device.objects()
    }

    fn write_label(&self, copy: usize, bytes: &[u8]) -> Result<()> {
        self.device.write_label(copy, bytes)
    }

    fn read_label(&self, copy: usize) -> Result<Vec<u8>> {
        self.device.read_label(copy)
    }

    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        self.device.write_uberblock(copy, txg, bytes)
    }

    fn read_uberblocks(&self, copy: usize) -> Result<Vec<Vec<u8>>> {
        self.device.read_uberblocks(copy)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn release(&self) {
        self.device.release();
    }
}
