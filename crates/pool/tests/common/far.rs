//! A device as far away as a store of objects: reads of it are counted, and may be held back until
//! so many have come.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use steadfast_device::{Character, Device, Objects, Result, SegmentPlace};
use steadfast_format::Txg;
use steadfast_format::medium::UBERBLOCK_SIZE;

/// How long a read is held that waits for others in vain. A test that has to wait so long fails.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct State {
    reads: u64,
    in_flight: u64,
    /// Times at which a read began while none was under way.
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

    /// Round trips so far: reads that are under way together are one.
    pub fn rounds(&self) -> u64 {
        self.state().rounds
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

    fn read(&self) {
        let pause = {
            let mut state = self.state();
            state.reads += 1;
            state.rounds += u64::from(state.in_flight == 0);
            state.in_flight += 1;
            state.pause
        };
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        self.hold();
        self.state().in_flight -= 1;
    }

    fn hold(&self) {
        let mut state = self.state();
        if state.wanted == 0 {
            return;
        }
        state.waiting += 1;
        if state.waiting == state.wanted {
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
        self.read();
        self.device.read_segment(place, offset, out)
    }

    fn read_segment_parts(&self, place: SegmentPlace, offset: u32, parts: &mut [&mut [u8]]) -> Result<()> {
        self.read();
        self.device.read_segment_parts(place, offset, parts)
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
