//! Faults on purpose: a device that fails, forgets where to write, or is slow, as long as somebody
//! wants it to.
//!
//! [`Injected`] stands between a pool and its device; its [`Injector`] is told what to do to the
//! calls that pass. Damage to the bytes themselves (zeros, flipped bits) is not done here: it is
//! written to the medium behind the pool's back, as decay would be.
//!
//! ## The model of a hard disk
//! One head. A transfer costs its bytes at the medium's rate, and a *seek* (with half a turn in it)
//! if it does not begin where the last one ended; a gap of at most [`SKIP_BYTES`] ahead is passed
//! over at the medium's rate instead. Transfers wait for each other in the order in which they
//! come. Labels lie at both ends. There is no cache: writes cost what reads cost, and a flush costs
//! nothing more.
//!
//! ## Invariants
//! [injector.1] With nothing injected a call costs one look at a flag.
//!      `Injector::pass`
//! [injector.2] Nobody sleeps with the injector's lock held.
//!      `Injector::pass`

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use steadfast_env::Clock;
use steadfast_format::Txg;
use steadfast_format::medium::UBERBLOCK_SIZE;

use crate::{
    Buffer, Character, Device, Error, Objects, Operation, PartRead, Presence, Result, SegmentPlace,
    SharedDevice,
};

/// A gap ahead that a hard disk passes over without a seek.
pub const SKIP_BYTES: u64 = 1 << 20;
/// `EIO` and `ENXIO`: what Linux says of a bad sector, and of a disk that is not there.
const EIO: i32 = 5;
const ENXIO: i32 = 6;

/// Which calls an injection concerns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Calls {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Flushes.
    Flushes,
    /// All of these.
    All,
}

impl Calls {
    fn include(self, operation: Operation) -> bool {
        match self {
            Calls::Reads => operation == Operation::Read,
            Calls::Writes => operation == Operation::Write,
            Calls::Flushes => operation == Operation::Flush,
            Calls::All => matches!(operation, Operation::Read | Operation::Write | Operation::Flush),
        }
    }
}

/// When an injection strikes, counted in calls that it concerns, from 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum When {
    /// At this call, and never again.
    Once(u64),
    /// At every so-many-th call.
    Every(u64),
}

impl When {
    fn strikes(self, call: u64) -> bool {
        match self {
            When::Once(at) => call == at,
            When::Every(at) => call.is_multiple_of(at.max(1)),
        }
    }
}

/// An injected fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Injection {
    /// They fail with `EIO`.
    Fail {
        /// Which.
        calls: Calls,
        /// When.
        when: When,
    },
    /// A segment's bytes are written to the slot beside the one that was meant.
    Misdirect {
        /// When.
        when: When,
    },
    /// All fail: nothing is there.
    Gone,
    /// They take longer.
    Slow {
        /// Nanoseconds that each takes more, all at once.
        latency_ns: u64,
        /// Bytes a second that pass, of all together; 0: no limit.
        bytes_per_second: u64,
    },
    /// They take what a hard disk would take: see the model above.
    Disk {
        /// Nanoseconds of a seek, with half a turn.
        seek_ns: u64,
        /// Bytes a second of the medium.
        bytes_per_second: u64,
    },
}

/// An injection that is in force, and what it did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Armed {
    /// The fault.
    pub injection: Injection,
    /// Calls it concerned.
    pub seen: u64,
    /// Calls it did something to: failed, misdirected, or made slower (seeks, for a hard disk).
    pub struck: u64,
}

struct ArmedState {
    armed: Armed,
    /// When the link or the head is free, on the monotonic clock.
    free_ns: u64,
    /// Where the head is.
    position: u64,
}

/// Faults injected into a device's calls.
pub struct Injector {
    clock: Arc<dyn Clock>,
    /// False if nothing is injected.
    active: AtomicBool,
    armings: Mutex<Vec<ArmedState>>,
}

/// The fate of a call.
#[derive(Default)]
struct Verdict {
    wait_ns: u64,
    misdirect: bool,
    fails: Option<i32>,
}

/// A call as the injector sees it.
struct Call {
    operation: Operation,
    /// Byte of the device, where it is known.
    at: u64,
    bytes: u64,
    /// It writes a segment.
    content: bool,
}

impl Injector {
    /// Nothing is injected yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Injector> {
        Arc::new(Injector { clock, active: AtomicBool::new(false), armings: Mutex::default() })
    }

    /// Injects something more.
    pub fn arm(&self, injection: Injection) {
        let mut armings = self.lock();
        let armed = Armed { injection, seen: 0, struck: 0 };
        // The head stands nowhere at first: the first transfer seeks.
        armings.push(ArmedState { armed, free_ns: 0, position: u64::MAX });
        self.active.store(true, Ordering::Release);
    }

    /// Injects nothing any more. Gives how many injections there were.
    pub fn clear(&self) -> usize {
        let mut armings = self.lock();
        self.active.store(false, Ordering::Release);
        armings.drain(..).count()
    }

    /// The armed faults.
    #[must_use]
    pub fn armed(&self) -> Vec<Armed> {
        self.lock().iter().map(|arming| arming.armed).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<ArmedState>> {
        self.armings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call pass, after the time it takes. True if a segment's bytes are to go astray; the
    /// error's number if it fails.
    fn pass(&self, passing: &Call) -> std::result::Result<bool, i32> {
        if !self.active.load(Ordering::Acquire) {
            return Ok(false);
        }
        let verdict = self.judge(passing);
        self.wait(verdict.wait_ns);
        verdict.fails.map_or(Ok(verdict.misdirect), Err)
    }

    fn judge(&self, passing: &Call) -> Verdict {
        let now = self.clock.monotonic_ns();
        let mut verdict = Verdict::default();
        self.lock().iter_mut().for_each(|arming| arming.judge(passing, now, &mut verdict));
        verdict
    }

    fn wait(&self, nanos: u64) {
        if nanos > 0 {
            self.clock.sleep(Duration::from_nanos(nanos));
        }
    }
}

impl ArmedState {
    fn judge(&mut self, passing: &Call, now: u64, verdict: &mut Verdict) {
        let transfer = matches!(passing.operation, Operation::Read | Operation::Write);
        let concerned = match self.armed.injection {
            Injection::Fail { calls, .. } => calls.include(passing.operation),
            Injection::Misdirect { .. } => passing.content,
            Injection::Gone => true,
            Injection::Slow { .. } | Injection::Disk { .. } => transfer,
        };
        if !concerned {
            return;
        }
        self.armed.seen += 1;
        let struck = match self.armed.injection {
            Injection::Gone => {
                verdict.fails = Some(ENXIO);
                true
            }
            Injection::Fail { when, .. } => {
                let strikes = when.strikes(self.armed.seen);
                if strikes {
                    verdict.fails.get_or_insert(EIO);
                }
                strikes
            }
            Injection::Misdirect { when } => {
                let strikes = when.strikes(self.armed.seen);
                verdict.misdirect |= strikes;
                strikes
            }
            Injection::Slow { latency_ns, bytes_per_second } => {
                let turn = self.turn(now, transfer_ns(passing.bytes, bytes_per_second));
                verdict.wait_ns = verdict.wait_ns.max(latency_ns.saturating_add(turn));
                true
            }
            Injection::Disk { seek_ns, bytes_per_second } => {
                let ahead = passing.at.checked_sub(self.position).filter(|gap| *gap <= SKIP_BYTES);
                self.position = passing.at.saturating_add(passing.bytes);
                let moved = passing.bytes + ahead.unwrap_or(0);
                let seek = if ahead.is_some() { 0 } else { seek_ns };
                let turn = self.turn(now, transfer_ns(moved, bytes_per_second).saturating_add(seek));
                verdict.wait_ns = verdict.wait_ns.max(turn);
                ahead.is_none()
            }
        };
        self.armed.struck += u64::from(struck);
    }

    /// Takes a turn of so many nanoseconds behind earlier callers. Gives how long that takes from
    /// now.
    fn turn(&mut self, now: u64, nanos: u64) -> u64 {
        self.free_ns = self.free_ns.max(now).saturating_add(nanos);
        self.free_ns - now
    }
}

/// Time of a transfer; none where there is no limit.
fn transfer_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    if bytes_per_second == 0 { 0 } else { u64::try_from(nanos).unwrap_or(u64::MAX) }
}

/// A device behind an [`Injector`].
pub struct Injected {
    device: SharedDevice,
    injector: Arc<Injector>,
}

impl Injected {
    /// Puts an injector before a device.
    #[must_use]
    pub fn new(device: SharedDevice, injector: Arc<Injector>) -> Injected {
        Injected { device, injector }
    }

    fn pass(&self, operation: Operation, at: u64, bytes: usize, content: bool) -> Result<bool> {
        let passing = Call { operation, at, bytes: bytes as u64, content };
        self.injector.pass(&passing).map_err(|number| self.failed(operation, at, number))
    }

    fn failed(&self, operation: Operation, at: u64, number: i32) -> Error {
        let device = self.device.character().identity;
        Error::Io { device, operation, offset: at, source: io::Error::from_raw_os_error(number) }
    }

    /// A write of a segment: gives where it really goes.
    fn pass_write(&self, place: SegmentPlace, offset: u32, bytes: usize) -> Result<SegmentPlace> {
        let astray = self.pass(Operation::Write, byte_of(place, offset), bytes, true)?;
        let slot = place.slot.checked_sub(1).unwrap_or(1);
        Ok(if astray { SegmentPlace { slot, ..place } } else { place })
    }

    fn pass_read(&self, place: SegmentPlace, offset: u32, bytes: usize) -> Result<()> {
        self.pass(Operation::Read, byte_of(place, offset), bytes, false).map(drop)
    }

    fn pass_label(&self, operation: Operation, copy: usize, bytes: usize) -> Result<()> {
        // The first two are in front of everything, the last two behind.
        let at = if copy < 2 { 0 } else { self.device.character().size_bytes };
        self.pass(operation, at, bytes, false).map(drop)
    }
}

/// Where a place's byte lies on a device.
fn byte_of(place: SegmentPlace, offset: u32) -> u64 {
    steadfast_format::medium::slot_offset(place.slot, place.slot_size) + u64::from(offset)
}

impl Device for Injected {
    fn character(&self) -> Character {
        self.device.character()
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> Result<()> {
        let place = self.pass_write(place, 0, bytes.len())?;
        self.device.put_segment(place, bytes)
    }

    fn put_shared(&self, place: SegmentPlace, bytes: &Arc<Buffer>) -> Result<()> {
        let place = self.pass_write(place, 0, bytes.len())?;
        self.device.put_shared(place, bytes)
    }

    fn append_segment(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()> {
        let place = self.pass_write(place, offset, bytes.len())?;
        self.device.append_segment(place, offset, bytes)
    }

    fn append_segment_directly(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()> {
        let place = self.pass_write(place, offset, bytes.len())?;
        self.device.append_segment_directly(place, offset, bytes)
    }

    fn append_segment_parts(&self, place: SegmentPlace, offset: u32, parts: &[&[u8]]) -> Result<()> {
        let place = self.pass_write(place, offset, parts.iter().map(|part| part.len()).sum())?;
        self.device.append_segment_parts(place, offset, parts)
    }

    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()> {
        self.pass_read(place, offset, out.len())?;
        self.device.read_segment(place, offset, out)
    }

    fn read_segment_parts(&self, place: SegmentPlace, offset: u32, parts: &mut [&mut [u8]]) -> Result<()> {
        self.pass_read(place, offset, parts.iter().map(|part| part.len()).sum())?;
        self.device.read_segment_parts(place, offset, parts)
    }

    /// All wait together, as long as the slowest.
    fn read_many(&self, reads: &mut [PartRead<'_>]) {
        if !self.injector.active.load(Ordering::Acquire) {
            return self.device.read_many(reads);
        }
        let mut wait_ns = 0;
        for read in &mut *reads {
            let at = byte_of(read.place, read.offset);
            let bytes = read.bytes() as u64;
            let verdict =
                self.injector.judge(&Call { operation: Operation::Read, at, bytes, content: false });
            wait_ns = wait_ns.max(verdict.wait_ns);
            read.outcome =
                verdict.fails.map_or(Ok(()), |number| Err(self.failed(Operation::Read, at, number)));
        }
        self.injector.wait(wait_ns);
        for some in reads.chunk_by_mut(|one, next| one.outcome.is_ok() == next.outcome.is_ok()) {
            if some[0].outcome.is_ok() {
                self.device.read_many(some);
            }
        }
    }

    fn discard_segment(&self, place: SegmentPlace) -> Result<()> {
        self.pass(Operation::Discard, byte_of(place, 0), 0, false)?;
        self.device.discard_segment(place)
    }

    fn can_discard(&self) -> bool {
        self.device.can_discard()
    }

    fn objects(&self) -> Option<&dyn Objects> {
        self.device.objects()
    }

    fn write_label(&self, copy: usize, bytes: &[u8]) -> Result<()> {
        self.pass_label(Operation::Write, copy, bytes.len())?;
        self.device.write_label(copy, bytes)
    }

    fn read_label(&self, copy: usize) -> Result<Vec<u8>> {
        self.pass_label(Operation::Read, copy, steadfast_format::medium::CONFIG_SIZE)?;
        self.device.read_label(copy)
    }

    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        self.pass_label(Operation::Write, copy, bytes.len())?;
        self.device.write_uberblock(copy, txg, bytes)
    }

    fn read_uberblocks(&self, copy: usize) -> Result<Vec<Vec<u8>>> {
        let bytes = UBERBLOCK_SIZE * steadfast_format::medium::RING_SLOTS as usize;
        self.pass_label(Operation::Read, copy, bytes)?;
        self.device.read_uberblocks(copy)
    }

    fn flush(&self) -> Result<()> {
        self.pass(Operation::Flush, 0, 0, false)?;
        self.device.flush()
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
    use std::sync::atomic::AtomicU64;

    use steadfast_format::SegmentId;

    use super::*;
    use crate::MemoryDevice;

    /// A clock that moves only by sleeping, and says how long it was slept.
    #[derive(Default)]
    struct Sleeper(AtomicU64);

    impl Clock for Sleeper {
        fn wall_ns(&self) -> i128 {
            0
        }
        fn monotonic_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
        fn sleep(&self, duration: Duration) {
            self.0.fetch_add(u64::try_from(duration.as_nanos()).unwrap(), Ordering::Relaxed);
        }
    }

    fn place(slot: u32) -> SegmentPlace {
        SegmentPlace { segment: SegmentId(u64::from(slot) + 1), slot, slot_size: 1 << 20 }
    }

    fn device() -> (Injected, Arc<Injector>, Arc<Sleeper>) {
        let clock = Arc::new(Sleeper::default());
        let injector = Injector::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let memory = Arc::new(MemoryDevice::new("m", 64 << 20)) as SharedDevice;
        (Injected::new(memory, Arc::clone(&injector)), injector, clock)
    }

    #[test]
    fn reads_side_by_side_wait_together_and_fail_alone() {
        let (device, injector, clock) = device();
        device.append_segment(place(0), 0, &[7; 8192]).unwrap();
        injector.arm(Injection::Slow { latency_ns: 1_000, bytes_per_second: 0 });
        injector.arm(Injection::Fail { calls: Calls::Reads, when: When::Once(2) });
        let mut outs = [[0; 4096]; 3];
        let mut reads: Vec<PartRead<'_>> =
            outs.iter_mut().map(|out| PartRead::new(place(0), 0, vec![&mut out[..]])).collect();
        device.read_many(&mut reads);
        let good: Vec<bool> = reads.iter().map(|read| read.outcome.is_ok()).collect();
        assert_eq!(good, [true, false, true]);
        assert_eq!((outs[0], outs[1], outs[2]), ([7; 4096], [0; 4096], [7; 4096]));
        assert_eq!(clock.0.load(Ordering::Relaxed), 1_000);
    }

    #[test]
    fn the_nth_call_of_its_kind_fails_and_no_other() {
        let (device, injector, _) = device();
        injector.arm(Injection::Fail { calls: Calls::Reads, when: When::Once(2) });
        injector.arm(Injection::Fail { calls: Calls::Writes, when: When::Every(3) });
        let mut out = [0; 4096];
        let reads: Vec<bool> = (0..4).map(|_| device.read_segment(place(0), 0, &mut out).is_ok()).collect();
        assert_eq!(reads, [true, false, true, true]);
        let writes: Vec<bool> =
            (0..6).map(|_| device.append_segment(place(0), 0, &[1; 4096]).is_ok()).collect();
        assert_eq!(writes, [true, true, false, true, true, false]);
        device.flush().unwrap();
        let armed = injector.armed();
        assert_eq!((armed[0].seen, armed[0].struck), (4, 1));
        assert_eq!((armed[1].seen, armed[1].struck), (6, 2));
        assert_eq!(injector.clear(), 2);
        assert!(injector.armed().is_empty());
    }

    #[test]
    fn a_device_that_is_gone_comes_back_as_it_was() {
        let (device, injector, _) = device();
        device.append_segment(place(0), 0, &[7; 4096]).unwrap();
        injector.arm(Injection::Gone);
        let mut out = [0; 4096];
        assert_eq!(device.read_segment(place(0), 0, &mut out).unwrap_err().errno(), Some(ENXIO));
        device.flush().unwrap_err();
        device.read_label(0).unwrap_err();
        injector.clear();
        device.read_segment(place(0), 0, &mut out).unwrap();
        assert_eq!(out, [7; 4096]);
    }

    #[test]
    fn a_write_goes_astray_and_where_it_should_be_nothing_changes() {
        let (device, injector, _) = device();
        for slot in 0..3 {
            device.append_segment(place(slot), 0, &[slot as u8; 4096]).unwrap();
        }
        injector.arm(Injection::Misdirect { when: When::Once(1) });
        device.append_segment(place(2), 0, &[9; 4096]).unwrap();
        let mut out = [0; 4096];
        let mut read = |slot| {
            device.read_segment(place(slot), 0, &mut out).unwrap();
            out[0]
        };
        assert_eq!([read(0), read(1), read(2)], [0, 9, 2]);
    }

    #[test]
    fn a_hard_disk_seeks_where_it_is_not_and_reads_on_where_it_is() {
        let (device, injector, clock) = device();
        injector.arm(Injection::Disk { seek_ns: 8_000_000, bytes_per_second: 1 << 20 });
        let mut out = vec![0; 1 << 20];
        let mut took = |slot, offset, bytes: usize| {
            let began = clock.monotonic_ns();
            device.read_segment(place(slot), offset, &mut out[..bytes]).unwrap();
            clock.monotonic_ns() - began
        };
        assert_eq!(took(3, 0, 1 << 20), 1_008_000_000, "a seek and a second of bytes");
        assert_eq!(took(4, 0, 1 << 20), 1_000_000_000, "what lies behind it");
        assert_eq!(took(5, 1 << 19, 1 << 19), 1_000_000_000, "a gap is passed over at the medium's rate");
        assert_eq!(took(0, 0, 1 << 20), 1_008_000_000, "back");
        assert_eq!(injector.armed()[0].struck, 2, "two seeks");
    }

    #[test]
    fn a_slow_link_is_shared_and_latency_is_not() {
        let mut arming = ArmedState {
            armed: Armed {
                injection: Injection::Slow { latency_ns: 5, bytes_per_second: 1_000_000_000 },
                seen: 0,
                struck: 0,
            },
            free_ns: 0,
            position: 0,
        };
        let waits: Vec<u64> = (0..3)
            .map(|_| {
                let mut verdict = Verdict::default();
                let passing = Call { operation: Operation::Read, at: 0, bytes: 100, content: false };
                arming.judge(&passing, 1000, &mut verdict);
                verdict.wait_ns
            })
            .collect();
        assert_eq!(waits, [105, 205, 305]);
    }
}
