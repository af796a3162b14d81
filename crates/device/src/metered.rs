//! A device that counts what is asked of it and how long that takes: what `zpool iostat` shows.
//!
//! The meter stands between a pool and its device, so whatever a pool does is counted: segments,
//! labels, uberblocks. Time is that of the call, from the moment the device is asked until it
//! answers. Nothing is queued above a device, so this is at once the *total wait* and the *disk
//! wait* of other systems.
//!
//! Latencies fall into buckets of powers of two, as in `zpool iostat -w`: bucket `n` holds calls of
//! `2^n` to `2^(n+1) - 1` nanoseconds. All counters only grow: a rate is the difference of two
//! [`Sample`]s.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steadfast_env::Clock;
use steadfast_env::brief::check_none_held;
use steadfast_env::insist::{is_insisting, served};
use steadfast_env::waiting::{Way, asking};
use steadfast_format::medium::UBERBLOCK_SIZE;
use steadfast_format::{DeviceId, SegmentId, Txg};

use crate::objects::LaterOwner;
use crate::{
    Buffer, Character, Device, DeviceWait, Error, Objects, PartRead, Presence, Result, SegmentPlace,
    SharedDevice,
};

/// Buckets of a histogram: the last holds all of about 9 minutes (2^39 ns) and more.
pub const BUCKETS: usize = 40;

/// A call that takes so long is slow, whether it ends well or not: OpenZFS's `zio_slow_io_ms`.
pub const SLOW: Duration = Duration::from_secs(30);

/// Kinds of calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Call {
    /// Reads of segments, labels and rings.
    Read,
    /// Writes of the same.
    Write,
    /// Flushes.
    Flush,
    /// Discards.
    Trim,
}

impl Call {
    fn way(self) -> Way {
        if self == Call::Read { Way::Read } else { Way::Write }
    }
}

/// Counters of one kind of call since the device was opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Count {
    /// Calls that ended, well or not.
    pub calls: u64,
    /// Bytes moved by those that ended well; for discards, bytes given back.
    pub bytes: u64,
    /// Nanoseconds they took together.
    pub nanos: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Calls by the power of two of the nanoseconds they took.
    pub histogram: [u64; BUCKETS],
    /// Calls by the power of two of the bytes that they were to move; those of no bytes are left
    /// out.
    pub sizes: [u64; BUCKETS],
}

/// All counters of one device at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sample {
    /// Reads.
    pub read: Count,
    /// Writes.
    pub write: Count,
    /// Flushes.
    pub flush: Count,
    /// Discards.
    pub trim: Count,
}

#[derive(Debug)]
struct Counter {
    bytes: AtomicU64,
    nanos: AtomicU64,
    errors: AtomicU64,
    histogram: [AtomicU64; BUCKETS],
    sizes: [AtomicU64; BUCKETS],
}

impl Default for Counter {
    fn default() -> Counter {
        let zero = || AtomicU64::new(0);
        let empty = || std::array::from_fn(|_| zero());
        Counter { bytes: zero(), nanos: zero(), errors: zero(), histogram: empty(), sizes: empty() }
    }
}

impl Counter {
    fn add(&self, bytes: u64, nanos: u64, good: bool) {
        let counter = if good { &self.bytes } else { &self.errors };
        counter.fetch_add(if good { bytes } else { 1 }, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.histogram[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        if bytes > 0 {
            self.sizes[bucket(bytes)].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn sample(&self) -> Count {
        let histogram: [u64; BUCKETS] = std::array::from_fn(|n| self.histogram[n].load(Ordering::Relaxed));
        Count {
            calls: histogram.iter().sum(),
            bytes: self.bytes.load(Ordering::Relaxed),
            nanos: self.nanos.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            histogram,
            sizes: std::array::from_fn(|n| self.sizes[n].load(Ordering::Relaxed)),
        }
    }
}

/// The bucket of a latency or size.
fn bucket(value: u64) -> usize {
    (value.max(1).ilog2() as usize).min(BUCKETS - 1)
}

/// Hears of every call that failed, from the thread that made it.
pub type OnError = Box<dyn Fn(&Error) + Send + Sync>;

/// Counters of one device, shared with their readers.
pub struct Meter {
    clock: Arc<dyn Clock>,
    counters: [Counter; 4],
    slow: AtomicU64,
    on_error: OnError,
}

impl Meter {
    /// All counters now. They are read one after another, so calls that end meanwhile may be in
    /// some and not in others; but each that is counted has its bucket.
    #[must_use]
    pub fn sample(&self) -> Sample {
        let [read, write, flush, trim] = &self.counters;
        Sample { read: read.sample(), write: write.sample(), flush: flush.sample(), trim: trim.sample() }
    }

    /// Calls that were slow ([`SLOW`]) since the device was opened or [`Meter::forget_slow`].
    #[must_use]
    pub fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }

    /// Counts them from zero again.
    pub fn forget_slow(&self) {
        self.slow.store(0, Ordering::Relaxed);
    }

    fn measure<T>(&self, call: Call, bytes: usize, act: impl FnOnce() -> Result<T>) -> Result<T> {
        check_none_held("a device");
        let begin = self.clock.monotonic_ns();
        let result = asking(call.way(), act);
        self.account(call, bytes, begin, result)
    }

    /// A moment of the monotonic clock in nanoseconds since 1970.
    fn wall_ns_of(&self, monotonic_ns: u64) -> u64 {
        let passed = self.clock.monotonic_ns().saturating_sub(monotonic_ns);
        u64::try_from(self.clock.wall_ns() - i128::from(passed)).unwrap_or(0)
    }

    /// Counts a call that began then and has ended.
    fn account<T>(&self, call: Call, bytes: usize, begin: u64, result: Result<T>) -> Result<T> {
        let nanos = self.clock.monotonic_ns().saturating_sub(begin);
        self.counters[call as usize].add(bytes as u64, nanos, result.is_ok());
        if u128::from(nanos) >= SLOW.as_nanos() {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
        if let Err(error) = &result {
            (self.on_error)(error);
        }
        result
    }
}

/// A device behind a [`Meter`].
pub struct Metered {
    device: SharedDevice,
    meter: Arc<Meter>,
    wait: Option<(Arc<DeviceWait>, DeviceId)>,
}

impl Metered {
    /// Puts a meter before a device. `on_error` hears of every failure.
    #[must_use]
    pub fn new(device: SharedDevice, clock: Arc<dyn Clock>, on_error: OnError) -> (Metered, Arc<Meter>) {
        let counters = std::array::from_fn(|_| Counter::default());
        let meter = Arc::new(Meter { clock, counters, slow: AtomicU64::new(0), on_error });
        (Metered { device, meter: Arc::clone(&meter), wait: None }, meter)
    }

    /// Writes of content and uberblocks wait as `wait` says, and so does all else that a commit
    /// does. Writes of the intent log fail: a commit takes their place.
    #[must_use]
    pub fn with_wait(self, wait: Arc<DeviceWait>, id: DeviceId) -> Metered {
        Metered { wait: Some((wait, id)), ..self }
    }

    /// Makes a transfer that waits for the device, as long as `goes_on` says. Only the last attempt
    /// is counted.
    fn patiently<T>(
        &self,
        call: Call,
        bytes: usize,
        goes_on: &dyn Fn() -> bool,
        act: impl Fn() -> Result<T>,
    ) -> Result<T> {
        check_none_held("a device");
        let begin = Cell::new(0);
        let attempt = || {
            begin.set(self.meter.clock.monotonic_ns());
            act()
        };
        let result = asking(call.way(), || match &self.wait {
            Some((wait, id)) => wait.patiently(*id, &|| self.meter.wall_ns_of(begin.get()), goes_on, attempt),
            None => attempt(),
        });
        self.meter.account(call, bytes, begin.get(), result)
    }

    fn write(&self, bytes: usize, act: impl Fn() -> Result<()>) -> Result<()> {
        self.patiently(Call::Write, bytes, &|| true, act)
    }

    /// True if this thread reads for a client, and such reads wait for the device.
    fn holds_this_read(&self) -> bool {
        self.wait.as_ref().is_some_and(|(wait, _)| wait.holds_reads() && served().is_some())
    }

    /// Waits for the device only where the caller insists, or reads for a client that waits.
    fn measure<T>(&self, call: Call, bytes: usize, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        let insists = is_insisting();
        let waits = insists || call == Call::Read && self.holds_this_read();
        if !waits {
            return self.meter.measure(call, bytes, act);
        }
        let act = RefCell::new(&mut act);
        let is_heard = || self.holds_this_read() && !served().is_some_and(|client| client.is_gone());
        self.patiently(call, bytes, &|| insists || is_heard(), || (act.borrow_mut())())
    }
}

/// Asked while a pool is imported or committed, never on the way of an operation.
impl Objects for Metered {
    fn stored_segments(&self) -> Result<Vec<SegmentId>> {
        self.stores()?.stored_segments()
    }

    fn delete_segments(&self, segments: &[SegmentId]) -> Result<()> {
        self.stores()?.delete_segments(segments)
    }

    fn claim_epoch(&self, epoch: u64) -> Result<bool> {
        self.stores()?.claim_epoch(epoch)
    }

    fn creates_once(&self) -> Result<bool> {
        self.stores()?.creates_once()
    }

    /// A commit asks this.
    fn is_claimed(&self, epoch: u64) -> Result<bool> {
        let store = self.stores()?;
        asking(Way::Write, || match &self.wait {
            Some((wait, id)) if is_insisting() => {
                let begin = self.meter.clock.monotonic_ns();
                wait.patiently(*id, &|| self.meter.wall_ns_of(begin), &|| true, || store.is_claimed(epoch))
            }
            _ => store.is_claimed(epoch),
        })
    }

    fn has_root(&self, epoch: u64, txg: Txg) -> Result<bool> {
        self.stores()?.has_root(epoch, txg)
    }

    fn is_pruned(&self, epoch: u64) -> Result<bool> {
        self.stores()?.is_pruned(epoch)
    }

    fn known_roots(&self) -> Vec<(u64, Txg)> {
        self.stores().map_or_else(|_| Vec::new(), |store| store.known_roots())
    }

    fn newest_epoch(&self) -> Result<u64> {
        self.stores()?.newest_epoch()
    }

    fn later_owner(&self, epoch: u64) -> Result<Option<LaterOwner>> {
        self.stores()?.later_owner(epoch)
    }
}

impl Metered {
    fn stores(&self) -> Result<&dyn Objects> {
        self.device.objects().ok_or_else(|| Error::NotInUse { device: self.character().identity })
    }
}

impl Device for Metered {
    fn character(&self) -> Character {
        self.device.character()
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> Result<()> {
        self.write(bytes.len(), || self.device.put_segment(place, bytes))
    }

    fn put_shared(&self, place: SegmentPlace, bytes: &Arc<Buffer>) -> Result<()> {
        self.write(bytes.len(), || self.device.put_shared(place, bytes))
    }

    fn append_segment(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()> {
        self.write(bytes.len(), || self.device.append_segment(place, offset, bytes))
    }

    fn append_segment_directly(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()> {
        let write = || self.device.append_segment_directly(place, offset, bytes);
        self.meter.measure(Call::Write, bytes.len(), write)
    }

    fn append_segment_parts(&self, place: SegmentPlace, offset: u32, parts: &[&[u8]]) -> Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.write(bytes, || self.device.append_segment_parts(place, offset, parts))
    }

    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()> {
        self.measure(Call::Read, out.len(), || self.device.read_segment(place, offset, out))
    }

    fn read_segment_parts(&self, place: SegmentPlace, offset: u32, parts: &mut [&mut [u8]]) -> Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.measure(Call::Read, bytes, || self.device.read_segment_parts(place, offset, parts))
    }

    fn read_many(&self, reads: &mut [PartRead<'_>]) {
        check_none_held("a device");
        let begin = self.meter.clock.monotonic_ns();
        asking(Way::Read, || self.device.read_many(reads));
        for read in reads {
            let outcome = std::mem::replace(&mut read.outcome, Ok(()));
            read.outcome = match outcome {
                // A commit reads this, or a client that waits, and waits for the store.
                Err(Error::Away { .. }) if is_insisting() || self.holds_this_read() => {
                    self.read_segment_parts(read.place, read.offset, &mut read.outs)
                }
                outcome => self.meter.account(Call::Read, read.bytes(), begin, outcome),
            };
        }
    }

    fn discard_segment(&self, place: SegmentPlace) -> Result<()> {
        let bytes = place.slot_size as usize;
        self.meter.measure(Call::Trim, bytes, || self.device.discard_segment(place))
    }

    fn can_discard(&self) -> bool {
        self.device.can_discard()
    }

    fn objects(&self) -> Option<&dyn Objects> {
        self.device.objects().map(|_| self as &dyn Objects)
    }

    fn write_label(&self, copy: usize, bytes: &[u8]) -> Result<()> {
        self.measure(Call::Write, bytes.len(), || self.device.write_label(copy, bytes))
    }

    fn read_label(&self, copy: usize) -> Result<Vec<u8>> {
        self.meter.measure(Call::Read, steadfast_format::medium::CONFIG_SIZE, || self.device.read_label(copy))
    }

    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        self.write(UBERBLOCK_SIZE, || self.device.write_uberblock(copy, txg, bytes))
    }

    fn read_uberblocks(&self, copy: usize) -> Result<Vec<Vec<u8>>> {
        let bytes = UBERBLOCK_SIZE * steadfast_format::medium::RING_SLOTS as usize;
        self.meter.measure(Call::Read, bytes, || self.device.read_uberblocks(copy))
    }

    fn flush(&self) -> Result<()> {
        self.meter.measure(Call::Flush, 0, || self.device.flush())
    }

    fn seen_bytes(&self) -> u64 {
        self.device.seen_bytes()
    }

    fn refresh_size(&self) -> Result<u64> {
        self.device.refresh_size()
    }

    fn presence(&self) -> Presence {
        self.device.presence()
    }

    fn release(&self) {
        self.device.release();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use steadfast_env::Env;

    use super::*;
    use steadfast_format::SegmentId;

    use crate::memory::{Effect, Fault};
    use crate::{MemoryDevice, Operation};

    #[test]
    fn buckets_are_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 1023, 1024].map(bucket), [0, 0, 1, 1, 2, 9, 10]);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn slow_calls_are_counted_whether_they_end_well_or_not() {
        let clock = Env::seeded(1).clock;
        let memory = Arc::new(MemoryDevice::new("m", 64 << 20)) as SharedDevice;
        let (_, meter) = Metered::new(memory, Arc::clone(&clock), Box::new(|_| ()));
        let call = |time| {
            meter.measure(Call::Read, 0, || {
                clock.sleep(time);
                Ok(())
            })
        };
        call(SLOW / 2).unwrap();
        assert_eq!(meter.slow(), 0);
        call(SLOW).unwrap();
        let failed: Result<()> = meter.measure(Call::Flush, 0, || {
            clock.sleep(2 * SLOW);
            Err(Error::ReadOnly { device: "m".into() })
        });
        failed.unwrap_err();
        assert_eq!(meter.slow(), 2);
        meter.forget_slow();
        assert_eq!(meter.slow(), 0);
    }

    #[test]
    fn who_looks_while_calls_end_finds_a_bucket_for_each() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..500_000).for_each(|nanos| counter.add(1, nanos, true)));
            for _ in 0..5_000 {
                let count = counter.sample();
                assert_eq!(count.histogram.iter().sum::<u64>(), count.calls);
            }
        });
        assert_eq!((counter.sample().calls, counter.sample().bytes), (500_000, 500_000));
    }

    #[test]
    fn calls_bytes_and_failures_are_counted_by_kind() {
        let memory = Arc::new(MemoryDevice::new("m", 64 << 20));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&heard);
        let on_error: OnError = Box::new(move |error| ear.lock().unwrap().push(error.to_string()));
        let clock = Env::seeded(1).clock;
        let (device, meter) = Metered::new(Arc::clone(&memory) as SharedDevice, clock, on_error);
        let place = SegmentPlace { segment: SegmentId(1), slot: 0, slot_size: 1 << 20 };
        device.put_segment(place, &[7; 8192]).unwrap();
        device.append_segment(place, 8192, &[8; 4096]).unwrap();
        let mut out = [0; 4096];
        device.read_segment(place, 8192, &mut out).unwrap();
        assert_eq!(out, [8; 4096]);
        device.flush().unwrap();
        device.discard_segment(place).unwrap();
        memory.arm(Fault { operation: Operation::Read, skip: 0, effect: Effect::FailOnce });
        device.read_segment(place, 0, &mut out).unwrap_err();
        let sample = meter.sample();
        let counted = |count: &Count| (count.calls, count.bytes, count.errors);
        assert_eq!(counted(&sample.read), (2, 4096, 1));
        assert_eq!(counted(&sample.write), (2, 12_288, 0));
        assert_eq!(counted(&sample.flush), (1, 0, 0));
        assert_eq!(counted(&sample.trim), (1, 1 << 20, 0));
        let sized = |count: &Count| {
            let sizes = count.sizes.iter().enumerate().filter(|(_, calls)| **calls > 0);
            sizes.map(|(power, calls)| (1 << power, *calls)).collect::<Vec<(u64, u64)>>()
        };
        assert_eq!(sized(&sample.read), [(4096, 2)], "a call that failed has a size");
        assert_eq!(sized(&sample.write), [(4096, 1), (8192, 1)]);
        assert_eq!((sized(&sample.flush), sized(&sample.trim)), (vec![], vec![(1 << 20, 1)]));
        for count in [&sample.read, &sample.write, &sample.flush, &sample.trim] {
            assert_eq!(count.histogram.iter().sum::<u64>(), count.calls, "every call has its bucket");
            assert!(count.nanos > 0, "the stepped clock moves with every look");
        }
        assert_eq!(heard.lock().unwrap().len(), 1);
        assert!(heard.lock().unwrap()[0].contains("read"));
    }
}
