//! SD and WD: operations on one long file or device.
//!
//! Per operation, in this order: read or write? how long? hit or miss? random or next? where? A sequential operation
//! continues behind the last address *of its area*, random ones included; the pointer is shared by all threads.
//! Where both hit percentages are zero there is one area, the whole range; else the first `hitarea` bytes are for hits
//! and misses stay behind them.

use crate::pattern::Pattern;
use crate::random::{Random, mix};
use crate::rate::{Gate, Schedule, sleep_until};
use crate::shared::{Buffer, Cells, INCORRECT_SIZE, Shared, Slot, errno_text};
use crate::validate::{Map, Transfer};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use steadfast_lab_params::{OpenFlags, Operation, Range, RawWork, Sd, Seek, Wd, XferSize};

/// The flags of open(2) for `openflags=`.
pub(crate) fn open_flags(flags: OpenFlags) -> i32 {
    let mut out = OFlags::empty();
    if flags.direct {
        out |= OFlags::DIRECT;
    }
    if flags.dsync {
        out |= OFlags::DSYNC;
    }
    out.bits() as i32
}

/// Length of a file or block device; `None` if it is not there.
pub(crate) fn length(path: &Path) -> std::io::Result<Option<u64>> {
    match File::open(path) {
        Ok(mut file) => Ok(Some(file.seek(SeekFrom::End(0))?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A stretch of the storage with its sequential pointer, relative to its start.
struct Area {
    start: u64,
    length: u64,
    next: AtomicU64,
}

impl Area {
    fn new(start: u64, end: u64, largest: u64) -> Area {
        let length = end.saturating_sub(start);
        Area { start, length: length - length % largest.max(1), next: AtomicU64::new(0) }
    }

    /// Equal pieces of it, for `streams=`.
    fn pieces(self, count: u32, largest: u64) -> Vec<Area> {
        if count < 2 {
            return vec![self];
        }
        let length = self.length / u64::from(count);
        let length = length - length % largest.max(1);
        (0..u64::from(count))
            .map(|at| Area::new(self.start + at * length, self.start + (at + 1) * length, largest))
            .collect()
    }

    /// Where the next operation of `xfer` bytes goes; `None` at the end of what shall not wrap.
    fn address(&self, random: &mut Random, wd: &Wd, align: Option<u64>, xfer: u64) -> Option<u64> {
        let seek = wd.seek;
        let percent = match seek {
            Seek::Percent(percent) => percent,
            Seek::Eof => {
                let at = self.next.fetch_add(xfer, Relaxed);
                return (at + xfer <= self.length).then_some(self.start + at);
            }
            Seek::SequentialFromAnywhere => 0.0,
        };
        if random.hit(percent) {
            if let Some((low, high)) = wd.stride {
                return Some(self.start + self.stride(random, low, high, xfer));
            }
            let step = align.unwrap_or(xfer).max(1);
            let at = random.below((self.length - xfer.min(self.length)) / step + 1) * step;
            if percent < 100.0 {
                self.next.store(at + xfer, Relaxed);
            }
            return Some(self.start + at);
        }
        let mut at = self.next.fetch_add(xfer, Relaxed);
        if at + xfer > self.length {
            at = 0;
            self.next.store(xfer, Relaxed);
        }
        Some(self.start + at)
    }
}

impl Area {
    /// Skips between `low` and `high` bytes, a multiple of the transfer size; from the start again at the end.
    fn stride(&self, random: &mut Random, low: u64, high: u64, xfer: u64) -> u64 {
        let first = low.div_ceil(xfer);
        let skip = (first + random.below((high / xfer).saturating_sub(first) + 1)) * xfer;
        let at = self.next.fetch_add(skip + xfer, Relaxed) + skip;
        if at + xfer <= self.length {
            return at;
        }
        self.next.store(xfer, Relaxed);
        0
    }
}

/// One wd on one sd.
struct Stream {
    wd: Wd,
    workload: usize,
    /// Running sum of the weights of the streams of this storage, up to 1.
    until: f64,
    hits: Option<Area>,
    /// One for each of `streams=`; threads are dealt out over them.
    misses: Vec<Area>,
    /// Length at which addresses wrap, for a range beyond 100 %.
    wrap: u64,
    largest: u64,
    /// Addresses are multiples of it: a sector, or a key block where data is validated.
    unit: u64,
}

/// Who a thread is.
#[derive(Clone, Copy)]
pub(crate) struct Thread {
    /// Of its draws and its data.
    pub key: u64,
    /// Among the threads of its storage, from 0.
    pub number: usize,
}

/// One sd with all its streams.
pub(crate) struct Storage {
    pub sd: Sd,
    path: PathBuf,
    flags: OpenFlags,
    writes: bool,
    streams: Vec<Stream>,
    schedule: Option<Schedule>,
    index: usize,
    file_key: u64,
    /// Bytes of it that are used.
    pub size: u64,
    /// Its keys, if data is validated.
    pub map: Option<Arc<Map>>,
}

/// Everything the threads of a raw run need.
pub(crate) struct Plan {
    pub storages: Vec<Storage>,
    pub gate: Option<Gate>,
}

/// What goes wrong before the first operation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("Open for lun '{0}' failed\n{1}")]
    Open(String, String),
    #[error(
        "lun={0} has {1} bytes, fewer than one operation of xfersize={2}; give it size= or a smaller xfersize=."
    )]
    TooSmall(String, u64, u64),
    #[error(
        "lun={0}: the hit area of {1} bytes leaves nothing for misses; use a smaller hitarea= or a larger size=."
    )]
    HitArea(String, u64),
}

impl Plan {
    /// `weights` per (workload, storage) pair in file order; `rate` per pair too, if there is one.
    pub(crate) fn new(
        work: &RawWork,
        weights: &[f64],
        rate: Option<&dyn Fn(f64) -> Schedule>,
        controlled: bool,
        seed: u64,
        unit: u64,
    ) -> Result<Plan, Error> {
        let pairs: Vec<(usize, usize)> =
            work.wds.iter().enumerate().flat_map(|(w, (_, sds))| sds.iter().map(move |s| (w, *s))).collect();
        let mut storages = Vec::new();
        let mut shares = Vec::new();
        for (index, sd) in work.sds.iter().enumerate() {
            let mine: Vec<(usize, f64)> = pairs
                .iter()
                .zip(weights)
                .filter(|((_, s), _)| *s == index)
                .map(|((w, _), weight)| (*w, *weight))
                .collect();
            let sum: f64 = mine.iter().map(|(_, weight)| weight).sum();
            let path = PathBuf::from(&sd.lun);
            let found = length(&path).map_err(|e| Error::Open(sd.lun.clone(), errno_text(&e)))?.unwrap_or(0);
            let size = sd.size.map_or(found, |size| size.min(found.max(size)));
            let mut streams = Vec::new();
            let mut until = 0.0;
            for (workload, weight) in mine {
                let wd = work.wds[workload].0.clone();
                until += if sum > 0.0 { weight / sum } else { 0.0 };
                streams.push(stream(sd, wd, workload, until, size, (seed, unit))?);
            }
            if let Some(last) = streams.last_mut() {
                last.until = 1.0;
            }
            let mut sd = sd.clone();
            // As in vdbench: every stream has equally many threads.
            if let Some(count) = streams.iter().map(|s| s.wd.streams).find(|count| *count > 1) {
                sd.threads = sd.threads.next_multiple_of(count);
            }
            let flags = streams.iter().find_map(|s| s.wd.openflags).or(sd.openflags).unwrap_or_default();
            let writes = streams.iter().any(|s| s.wd.rdpct < 100.0);
            let schedule = rate.map(|make| make(sum));
            shares.push(sum);
            let file_key = path.to_string_lossy().bytes().fold(seed, |key, byte| mix(key, u64::from(byte)));
            storages.push(Storage {
                sd,
                path,
                flags,
                writes,
                streams,
                schedule,
                index,
                file_key,
                size,
                map: None,
            });
        }
        let gate = if controlled && rate.is_none() { Gate::new(&shares) } else { None };
        Ok(Plan { storages, gate })
    }
}

fn stream(
    sd: &Sd,
    wd: Wd,
    workload: usize,
    until: f64,
    size: u64,
    (seed, unit): (u64, u64),
) -> Result<Stream, Error> {
    let largest = wd.xfersize.largest().max(1);
    // Block 0 of a device holds labels that somebody may want back.
    let first = if sd.lun.starts_with("/dev/") { largest } else { 0 };
    let (low, high) = match wd.range.or(sd.range) {
        None => (first, size),
        Some(Range::Percent { low, high }) => {
            ((size as f64 * low / 100.0) as u64, (size as f64 * high / 100.0) as u64)
        }
        Some(Range::Bytes { low, high }) => (low, high.min(size)),
    };
    let low = (low.max(first) / unit * unit).max(first);
    // Hits mean nothing to streams, as in vdbench.
    let split = (wd.rhpct + wd.whpct) as u64 > 0 && wd.streams < 2;
    let (hits, misses) = if split {
        let border = low + sd.hitarea.next_multiple_of(unit);
        if border + largest > high {
            return Err(Error::HitArea(sd.lun.clone(), sd.hitarea));
        }
        (Some(Area::new(low, border, largest.min(sd.hitarea))), Area::new(border, high, largest))
    } else {
        (None, Area::new(low, high, largest))
    };
    let misses = misses.pieces(wd.streams, largest);
    if misses.iter().any(|area| area.length < largest) {
        return Err(Error::TooSmall(sd.lun.clone(), size, largest));
    }
    if wd.seek == Seek::SequentialFromAnywhere {
        let mut random = Random::new(&[seed, workload as u64]);
        for area in &misses {
            area.next.store(random.below(area.length / largest) * largest, Relaxed);
        }
    }
    Ok(Stream { wd, workload, until, hits, misses, wrap: size, largest, unit })
}

impl Storage {
    /// The slots of a thread of this storage: read and write of each stream.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        let both = [Operation::Read, Operation::Write];
        let slot = |s: &Stream, operation| Slot {
            storage: self.index,
            workload: s.workload,
            operation,
            requested: true,
        };
        self.streams.iter().flat_map(|s| both.map(|operation| slot(s, operation))).collect()
    }

    /// End of the furthest byte that may be used.
    pub(crate) fn end(&self) -> u64 {
        self.size + self.sd.offset
    }

    /// The longest transfer.
    pub(crate) fn largest(&self) -> u64 {
        self.streams.iter().map(|s| s.largest).max().unwrap_or(0)
    }

    /// One thread's whole life in a run.
    pub(crate) fn work(
        &self,
        shared: &Shared<'_>,
        gate: Option<&Gate>,
        cells: &Cells,
        pattern: &Pattern,
        thread: Thread,
    ) {
        let key = thread.key;
        let opened = OpenOptions::new()
            .read(true)
            .write(self.writes)
            .custom_flags(open_flags(self.flags))
            .open(&self.path);
        let file = match opened {
            Ok(file) => file,
            Err(error) => {
                shared.fail(Error::Open(self.sd.lun.clone(), errno_text(&error)).to_string());
                return;
            }
        };
        let mut random = Random::new(&[key, self.file_key]);
        let mut buffer = Buffer::new(self.largest() as usize);
        let mut generation = key << 40;
        while !shared.ended() {
            if let Some(schedule) = &self.schedule {
                let due = schedule.take(&mut random, shared.now_ns());
                if !sleep_until(shared.start, due, || shared.ended()) {
                    break;
                }
            }
            if let Some(gate) = gate
                && !gate.admit(self.index)
            {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            let at = if self.streams.len() == 1 {
                0
            } else {
                let draw = random.unit();
                self.streams.iter().position(|s| draw < s.until).unwrap_or(0)
            };
            generation += 1;
            if !self.operation(
                (at, thread.number),
                &file,
                &mut random,
                &mut buffer,
                shared,
                cells,
                pattern,
                generation,
            ) {
                break;
            }
        }
        if self.writes
            && self.flags.fsync
            && let Err(error) = file.sync_all()
        {
            shared.io_error(Operation::Write, &self.path, 0, 0, errno_text(&error));
        }
        if let Some(gate) = gate {
            gate.leave(self.index);
        }
    }

    /// One operation; false at the end of what shall not wrap.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn operation(
        &self,
        (at, thread): (usize, usize),
        file: &File,
        random: &mut Random,
        buffer: &mut Buffer,
        shared: &Shared<'_>,
        cells: &Cells,
        pattern: &Pattern,
        generation: u64,
    ) -> bool {
        let stream = &self.streams[at];
        let read = random.hit(stream.wd.rdpct);
        let xfer = transfer(&stream.wd.xfersize, random);
        let area = match &stream.hits {
            Some(hits) if random.hit(if read { stream.wd.rhpct } else { stream.wd.whpct }) => hits,
            // Only streams pay for the division.
            _ => match stream.misses.as_slice() {
                [whole] => whole,
                pieces => &pieces[thread % pieces.len()],
            },
        };
        let Some(address) = area.address(random, &stream.wd, self.sd.align, xfer) else { return false };
        let mut address = address;
        if address + xfer > stream.wrap {
            address = (address - stream.wrap.min(address)) / stream.unit * stream.unit;
        }
        let address = address + self.sd.offset;
        let bytes = buffer.bytes(xfer as usize);
        if let Some(map) = &self.map {
            let transfer = Transfer {
                map,
                first: address / stream.unit,
                lba: address,
                file_key: self.file_key,
                file,
                path: &self.path,
                fsync_each: self.flags.fsync_each,
                pattern,
                shared,
            };
            validated(&transfer, at, read, bytes, cells);
            return true;
        }
        let (cell, operation) = if read {
            (&cells.slots[at * 2].1, Operation::Read)
        } else {
            (&cells.slots[at * 2 + 1].1, Operation::Write)
        };
        if !read {
            pattern.fill(bytes, self.file_key, address, generation);
        }
        let before = Instant::now();
        let done = if read {
            file.read_at(bytes, address)
        } else {
            write(file, bytes, address, self.flags.fsync_each)
        };
        let ns = before.elapsed().as_nanos() as u64;
        match done {
            Ok(count) if count as u64 == xfer => cell.record(ns, xfer, shared.interval.load(Relaxed)),
            Ok(_) => shared.io_error(operation, &self.path, address, xfer, INCORRECT_SIZE.into()),
            Err(error) => shared.io_error(operation, &self.path, address, xfer, errno_text(&error)),
        }
        true
    }
}

/// One operation under validation: apart, so that the others do not carry its code.
#[cold]
#[inline(never)]
fn validated(transfer: &Transfer<'_, '_>, at: usize, read: bool, bytes: &mut [u8], cells: &Cells) {
    let (length, interval) = (bytes.len() as u64, &transfer.shared.interval);
    transfer.run(!read, bytes, &mut |operation, ns| {
        let slot = at * 2 + usize::from(operation == Operation::Write);
        cells.slots[slot].1.record(ns, length, interval.load(Relaxed));
    });
}

/// One write, and with `fsync_each` the fsync(2) behind it.
#[inline]
pub(crate) fn write(file: &File, bytes: &[u8], address: u64, fsync_each: bool) -> std::io::Result<usize> {
    let count = file.write_at(bytes, address)?;
    if fsync_each {
        file.sync_all()?;
    }
    Ok(count)
}

/// The size of the next operation.
#[inline]
pub(crate) fn transfer(size: &XferSize, random: &mut Random) -> u64 {
    match size {
        XferSize::Fixed(size) => *size,
        XferSize::Weighted(list) => {
            let mut draw = random.unit() * 100.0;
            for (size, percent) in list {
                if draw < *percent {
                    return *size;
                }
                draw -= percent;
            }
            list.last().map_or(0, |(size, _)| *size)
        }
        XferSize::Between { low, high, align } => low + random.below((high - low) / align + 1) * align,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_lab_params::{Work, parse_text};

    fn wd(seek: Seek) -> Wd {
        let plan = parse_text("t", "sd=s,lun=x,size=1g\nwd=w,sd=s\nrd=r,wd=w,iorate=max\n").unwrap();
        let Work::Raw(work) = &plan.runs[0].work else { panic!("not a raw run") };
        Wd { seek, ..work.wds[0].0.clone() }
    }

    #[test]
    fn a_stride_skips_ahead_within_its_bounds_and_begins_anew_at_the_end() {
        let area = Area::new(0, 1 << 20, 4096);
        let mut random = Random::new(&[3]);
        let wd = Wd { stride: Some((8192, 16384)), ..wd(Seek::Percent(100.0)) };
        let (mut last, mut rounds, mut skips) = (0, 0, std::collections::BTreeSet::new());
        for number in 0..1_000 {
            let at = area.address(&mut random, &wd, None, 4096).unwrap();
            assert!(at + 4096 <= 1 << 20);
            if number > 0 && at > last {
                skips.insert(at - last - 4096);
            } else if number > 0 {
                rounds += 1;
                assert_eq!(at, 0);
            }
            last = at;
        }
        assert_eq!(skips.into_iter().collect::<Vec<_>>(), [8192, 12288, 16384]);
        assert!((12..25).contains(&rounds), "{rounds}");
    }

    #[test]
    fn streams_are_equal_pieces_that_do_not_overlap() {
        let pieces = Area::new(8192, 8192 + (1 << 20), 4096).pieces(3, 4096);
        let bounds: Vec<_> = pieces.iter().map(|p| (p.start, p.length)).collect();
        let each = (1 << 20) / 3 / 4096 * 4096;
        assert_eq!(bounds, [(8192, each), (8192 + each, each), (8192 + 2 * each, each)]);
        let mut random = Random::new(&[1]);
        let sequential = wd(Seek::Percent(0.0));
        assert_eq!(pieces[1].address(&mut random, &sequential, None, 4096), Some(8192 + each));
    }

    #[test]
    fn half_random_addresses_make_runs_of_mean_length_two() {
        let area = Area::new(0, 1 << 30, 4096);
        let mut random = Random::new(&[1]);
        let mut last = u64::MAX;
        let mut follows = 0u32;
        for _ in 0..100_000 {
            let at = area.address(&mut random, &wd(Seek::Percent(50.0)), None, 4096).unwrap();
            assert!(at.is_multiple_of(4096) && at + 4096 <= 1 << 30);
            follows += u32::from(at == last.wrapping_add(4096));
            last = at;
        }
        assert!(follows.abs_diff(50_000) < 1_000, "{follows}");
    }

    #[test]
    fn sequential_addresses_wrap_and_eof_ends() {
        let area = Area::new(8192, 8192 + 3 * 4096 + 100, 4096);
        let mut random = Random::new(&[1]);
        let mut next = |seek| area.address(&mut random, &wd(seek), None, 4096);
        let wrapping: Vec<_> = (0..4).map(|_| next(Seek::Percent(0.0)).unwrap()).collect();
        assert_eq!(wrapping, [8192, 12288, 16384, 8192]);
        let area = Area::new(0, 2 * 4096, 4096);
        let mut next = |seek| area.address(&mut random, &wd(seek), None, 4096);
        assert_eq!([next(Seek::Eof), next(Seek::Eof), next(Seek::Eof)], [Some(0), Some(4096), None]);
    }

    #[test]
    fn an_fsync_follows_each_write_that_asks_for_it() {
        // It takes any write and knows no fsync.
        let zero = OpenOptions::new().write(true).open("/dev/zero").unwrap();
        assert_eq!(write(&zero, b"1234", 0, false).unwrap(), 4);
        assert_eq!(write(&zero, b"1234", 0, true).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }

    #[test]
    fn weighted_sizes_come_as_often_as_asked_for() {
        let size = XferSize::Weighted(vec![(4096, 50.0), (8192, 25.0), (65536, 25.0)]);
        let mut random = Random::new(&[9]);
        let small = (0..100_000).filter(|_| transfer(&size, &mut random) == 4096).count();
        assert!(small.abs_diff(50_000) < 1_000, "{small}");
    }
}
