//! Processor time that a parity device costs those who put segments: of those who put, of passes.
//!
//! The store is memory, so what it costs is in both arms. The parity device is a file.

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use steadfast_device::objects::MemoryStore;
use steadfast_device::{Device, ObjectDevice, SegmentPlace};
use steadfast_env::Env;
use steadfast_format::{PoolGuid, SegmentId};
use steadfast_por::parity::{Creation, ParityDevice};
use steadfast_por::{Covered, SharedParity, pass_step};

use crate::{Options, list, processor_seconds};

/// Bytes of a segment.
const SEGMENT: usize = 8 << 20;
/// Segments that are put side by side.
const WRITERS: usize = 4;
/// Segments between two flushes, as of commits.
const FLUSHED: usize = 4;
/// Time between two looks at the journal.
const LOOK: Duration = Duration::from_millis(50);
const STORE: u16 = 3;

/// A way of some rate.
struct Link {
    nanoseconds_a_segment: u64,
    free_at: Mutex<Instant>,
}

impl Link {
    fn pass(&self) {
        let arrives = {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            *free_at = (*free_at).max(Instant::now()) + Duration::from_nanos(self.nanoseconds_a_segment);
            *free_at
        };
        std::thread::sleep(arrives.saturating_duration_since(Instant::now()));
    }
}
/// Memory that stays allocated while it is not used.
const SPARE: usize = 128 << 20;

/// Figures of a round, in seconds: wall time of all, of puts (of all threads together) and of
/// flushes, the longest put; processor time of all, and of passes.
struct Round {
    wall: f64,
    puts: f64,
    longest: f64,
    flushes: f64,
    all: f64,
    passes: f64,
    steps: usize,
}

pub fn run(options: &Options) -> Result<String, String> {
    // As a daemon of some memory does.
    steadfast_device::pages::set_spare_bytes(SPARE);
    let segments = (options.mebibytes << 20).div_ceil(SEGMENT);
    let mut content = steadfast_device::Buffer::zeroed(SEGMENT);
    Env::seeded(1).random.fill(&mut content);
    let parity = parity(options)?;
    let mut rounds = [Vec::new(), Vec::new()];
    for round in 0..options.rounds {
        // Each is first in turn.
        for at in [round % 2, 1 - round % 2] {
            let parity = (at == 1).then_some(&parity);
            rounds[at].push(ingest((round * segments, segments), &content, options.rate, parity));
        }
    }
    let of = |at: usize, part: fn(&Round) -> f64| list(&rounds[at].iter().map(part).collect::<Vec<f64>>());
    let arm = |at: usize| {
        format!(
            "{{\"wall\":{},\"puts\":{},\"longest\":{},\"flushes\":{},\"processor\":{},\"passes\":{},\"steps\":{}}}",
            of(at, |round| round.wall),
            of(at, |round| round.puts),
            of(at, |round| round.longest),
            of(at, |round| round.flushes),
            of(at, |round| round.all),
            of(at, |round| round.passes),
            of(at, |round| round.steps as f64),
        )
    };
    Ok(format!("\"bytes\":{},\"plain\":{},\"parity\":{}", segments * SEGMENT, arm(0), arm(1)))
}

/// Writes a file once, as one in use is: where the file system finds room for each byte first, that
/// is a cost of the first fill alone.
fn written(file: &File, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; 8 << 20];
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(zeros.len() as u64);
        (&*file).write_all(&zeros[..piece as usize])?;
        left -= piece;
    }
    file.sync_all()
}

/// A new parity device, whose journal is a part of it.
fn parity(options: &Options) -> Result<SharedParity, String> {
    let bytes = (options.device as u64) << 20;
    let file = tempfile::tempfile_in(&options.directory)
        .and_then(|file| written(&file, bytes).map(|()| file))
        .map_err(|error| format!("a file in {}: {error}", options.directory))?;
    let creation = Creation {
        pool: PoolGuid(5),
        cells: 0,
        loss_ppm: 20_000,
        journal_bytes: bytes / u64::from(options.journal_part),
        key: None,
        is_away: false,
    };
    let creation = creation.fitting(bytes).ok_or("the device is too small")?;
    let device = ParityDevice::create(Box::new(file), &creation, &*Env::seeded(2).random);
    let mut device = device.map_err(|error| error.to_string())?;
    device.work_beside(Env::real().tasks);
    Ok(Arc::new(RwLock::new(device)))
}

/// Puts some segments behind those of former rounds.
fn ingest(
    (before, segments): (usize, usize),
    content: &[u8],
    rate: u32,
    parity: Option<&SharedParity>,
) -> Round {
    let nanoseconds_a_segment = SEGMENT as u64 * 1000 / u64::from(rate);
    let link = Link { nanoseconds_a_segment, free_at: Mutex::new(Instant::now()) };
    let store = Arc::new(MemoryStore::new("bucket"));
    let device = ObjectDevice::open(store, Some(1 << 40), [1; 16]).expect("memory");
    let covered = Covered::new(Arc::new(device));
    if let Some(parity) = parity {
        covered.cover(STORE, Arc::clone(parity));
    }
    let (puts, longest, flushes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (began, spent) = (Instant::now(), process_seconds());
    let (wall, (passes, steps)) = std::thread::scope(|scope| {
        let passes = scope.spawn(|| parity.map_or((0.0, 0), |parity| passes(parity, &is_over)));
        let writers = [(); WRITERS].map(|()| {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= segments {
                        break;
                    }
                    let segment = SegmentId((before + at) as u64 + 1);
                    let slot_size = u32::try_from(SEGMENT).expect("8 MiB");
                    let place = SegmentPlace { segment, slot: 0, slot_size };
                    let began = Instant::now();
                    noted(&puts, || covered.put_segment(place, content)).expect("memory takes it");
                    longest.fetch_max(nanoseconds(began), Ordering::Relaxed);
                    link.pass();
                    if at % FLUSHED == FLUSHED - 1 {
                        noted(&flushes, || covered.flush()).expect("memory");
                    }
                }
            })
        });
        writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
        noted(&flushes, || covered.flush()).expect("memory");
        let wall = began.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Release);
        (wall, passes.join().expect("the passes"))
    });
    assert_eq!(covered.left_out(), None, "all is covered");
    let [puts, longest, flushes] = [puts, longest, flushes].map(|sum| sum.into_inner() as f64 / 1e9);
    Round { wall, puts, longest, flushes, all: process_seconds() - spent, passes, steps }
}

/// Does some work and adds its time to a sum, in nanoseconds.
fn noted<T>(sum: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = work();
    sum.fetch_add(nanoseconds(began), Ordering::Relaxed);
    done
}

/// Nanoseconds since then.
fn nanoseconds(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).expect("short")
}

/// Steps of passes, as the pool makes them. Their processor time and number.
fn passes(parity: &SharedParity, is_over: &AtomicBool) -> (f64, usize) {
    let (before, mut steps) = (processor_seconds(), 0);
    while !is_over.load(Ordering::Acquire) {
        let is_due = parity.read().unwrap_or_else(PoisonError::into_inner).is_pass_due();
        if is_due {
            pass_step(parity).expect("a step");
            steps += 1;
        } else {
            std::thread::sleep(LOOK);
        }
    }
    (processor_seconds() - before, steps)
}

/// Processor time of all threads.
fn process_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
