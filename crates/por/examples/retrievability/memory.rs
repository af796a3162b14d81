//! Memory that the code of a large pool takes, in each of its works: a simulated pool.
//!
//! Full is what memory holds: segments, tiles, slots, the journal's ring, units of tags. Simulated
//! is the content: segments are short, and all bytes are zero. A zero cell has a tag like any
//! other, so nothing is left out but bytes: the medium is a file that has no pages of zeros.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use steadfast_env::Env;
use steadfast_format::parity::ParitySegment;
use steadfast_format::{PoolGuid, SegmentId};
use steadfast_por::PAYLOAD;
use steadfast_por::parity::{Creation, Error, Medium, ParityDevice, Search};

use crate::{Options, SEGMENT};

const POOL: PoolGuid = PoolGuid(5);
/// Cells of a segment.
const CELLS: usize = 64;
/// One in so many segments is of 8 MiB: the longest decides how many are read at once.
const LONG: u64 = 4096;
const JOURNAL: u64 = 16 << 30;
/// Cells that are lost.
const LOST: u64 = 100;
/// Rounds of a re-key that are made: all take as much memory.
const REKEYED: u32 = 2;
const PAGE: usize = 4096;

/// A file that has pages which are not zero.
struct Sparse {
    file: File,
    /// A bit for each page that was written.
    pages: Vec<AtomicU64>,
}

impl Medium for Sparse {
    fn size(&self) -> io::Result<u64> {
        Medium::size(&self.file)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        Medium::read(&self.file, at, out)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(at.is_multiple_of(PAGE as u64), "whole pages are written");
        let page = |number: usize| {
            let number = usize::try_from(at).expect("64 bits") / PAGE + number;
            (&self.pages[number / 64], 1_u64 << (number % 64))
        };
        let is_written = |(number, bytes): (usize, &[u8])| {
            let (word, bit) = page(number);
            let is_there = word.load(Ordering::Relaxed) & bit != 0;
            is_there || bytes != &[0; PAGE][..bytes.len()]
        };
        let mut rest = 0;
        while rest < bytes.len() {
            let run =
                bytes[rest..].chunks(PAGE).enumerate().map(|(number, bytes)| (rest / PAGE + number, bytes));
            let first = is_written((rest / PAGE, &bytes[rest..][..PAGE.min(bytes.len() - rest)]));
            let length = run
                .take_while(|page| is_written(*page) == first)
                .map(|(_, bytes)| bytes.len())
                .sum::<usize>();
            if first {
                Medium::write(&self.file, at + rest as u64, &bytes[rest..rest + length])?;
                for number in rest / PAGE..(rest + length).div_ceil(PAGE) {
                    let (word, bit) = page(number);
                    word.fetch_or(bit, Ordering::Relaxed);
                }
            }
            rest += length;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        if Medium::size(self)? < bytes { self.file.set_len(bytes) } else { Ok(()) }
    }
}

/// A work, with the seconds it took, the most memory that was resident in it and what was at its
/// end.
struct Stage {
    name: &'static str,
    seconds: f64,
    most: u64,
    after: u64,
    more: String,
}

fn stage<T>(name: &'static str, stages: &mut Vec<Stage>, work: impl FnOnce() -> (T, String)) -> T {
    // The kernel's mark of the most begins anew.
    fs::write("/proc/self/clear_refs", "5").expect("its own memory");
    let began = Instant::now();
    let (done, more) = work();
    let (most, after) = (resident("VmHWM:"), resident("VmRSS:"));
    eprintln!(
        "{name}: {:.1} s, {} MiB at most, {} MiB behind it{more}",
        began.elapsed().as_secs_f64(),
        most >> 20,
        after >> 20
    );
    stages.push(Stage { name, seconds: began.elapsed().as_secs_f64(), most, after, more });
    done
}

/// Bytes of memory that this process has, by the kernel's count.
fn resident(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("its own memory");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("a line of it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

pub fn run(options: &Options) -> Result<String, String> {
    let cells = (options.gibibytes as u64) << 18;
    let segments = cells / SEGMENT as u64;
    let memory = (options.memory as u64) << 20;
    let creation =
        Creation { pool: POOL, cells, loss_ppm: 20_000, journal_bytes: JOURNAL, key: None, is_away: false };
    let said = |error: Error| error.to_string();
    let file = tempfile::tempfile_in(&options.directory).map_err(|error| error.to_string())?;
    // Room for the second code.
    let pages = usize::try_from(creation.bytes() * 3).expect("64 bits") / PAGE;
    file.set_len(creation.bytes()).map_err(|error| error.to_string())?;
    let sparse = |file: File| -> Box<dyn Medium> {
        Box::new(Sparse { file, pages: (0..pages.div_ceil(64)).map(|_| AtomicU64::new(u64::MAX)).collect() })
    };
    let fresh = file.try_clone().map_err(|error| error.to_string())?;
    let medium = Sparse { file: fresh, pages: (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() };
    let (env, mut stages) = (Env::real(), Vec::new());
    let mut device = stage("create", &mut stages, || {
        (ParityDevice::create(Box::new(medium), &creation, &*env.random), String::new())
    })
    .map_err(said)?;
    let zeros = vec![0; SEGMENT * PAYLOAD];
    let mut passes = Vec::new();
    stage("put segments", &mut stages, || {
        let mut next = 1;
        while next <= segments {
            let length = if next % LONG == 0 { SEGMENT } else { CELLS } * PAYLOAD;
            match device.add(SegmentId(next), 1, &zeros[..length]) {
                Ok(_) => next += 1,
                Err(Error::JournalFull { .. }) => {
                    stage("a pass", &mut passes, || (device.pass(), String::new())).expect("it works");
                }
                Err(error) => panic!("{error}"),
            }
        }
        ((), String::new())
    });
    stages.append(&mut passes);
    stage("the last pass", &mut stages, || (device.pass(), String::new())).map_err(said)?;
    let figures = device.figures();
    drop(device);
    let before = resident("VmRSS:");
    let mut device = stage("open", &mut stages, || {
        let device = ParityDevice::open(sparse(file), POOL, None, &*env.random);
        (device, format!(", {} MiB before", before >> 20))
    })
    .map_err(said)?;
    // Spread over segments, and so over tiles.
    let lost = |segment: ParitySegment| segment.segment.0 % (segments / LOST) == 7;
    let read = |segment: ParitySegment, bytes: &mut Vec<u8>| {
        bytes.clear();
        bytes.resize(segment.length as usize, 0);
        if lost(segment) {
            bytes[5 * PAYLOAD] = 1;
        }
        Ok(())
    };
    let (done, stop) = (BTreeSet::new(), AtomicBool::new(false));
    stage("recover", &mut stages, || {
        let mut search = Search {
            env: &env,
            memory,
            done: &done,
            read: &read,
            mirrored: &|_| (),
            stop: &stop,
            watch: &mut |_, _| (),
        };
        let outcome = device.snapshot().recover(&mut search).expect("it works");
        let code = &outcome.from_code;
        assert!(code.is_complete() && outcome.unsound.is_empty(), "{code:?}");
        ((), format!(", {} rounds, {} cells came back", outcome.rounds, code.recovered))
    });
    let read = |segment: ParitySegment, bytes: &mut Vec<u8>| {
        bytes.clear();
        bytes.resize(segment.length as usize, 0);
        Ok(())
    };
    stage("re-key", &mut stages, || {
        device.begin_rekey(&BTreeSet::new(), None, &*env.random).expect("there is room");
        device.pass().expect("it works");
        for _ in 0..REKEYED {
            let mut search = Search {
                env: &env,
                memory,
                done: &done,
                read: &read,
                mirrored: &|_| (),
                stop: &stop,
                watch: &mut |_, _| (),
            };
            let made = device.snapshot().make_tiles(&mut search).expect("it works");
            let mut made = made.expect("there are more");
            while let Some(step) = device.begin_made(&mut made) {
                device.end_step(step.run()).expect("it works");
            }
        }
        let next = device.figures().next.expect("it is under way");
        ((), format!(", {REKEYED} rounds, {} tiles of {}", next.made, next.tiles))
    });
    let stages: Vec<String> = stages
        .iter()
        .map(|stage| {
            format!(
                "\"name\":\"{}\",\"seconds\":{:.3},\"most\":{},\"after\":{},\"more\":\"{}\"",
                stage.name,
                stage.seconds,
                stage.most,
                stage.after,
                stage.more.trim_start_matches(", ")
            )
        })
        .collect();
    Ok(format!(
        "\"setting\":{memory},\"cells\":{cells},\"tiles\":{},\"segments\":{},\"stages\":{}",
        figures.tiles,
        figures.segments,
        crate::objects(stages)
    ))
}
