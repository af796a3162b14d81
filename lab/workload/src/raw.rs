//! SD and WD: operations on one long file or device.
//!
//! Per operation, in this order: read or write? how long? hit or miss? random or next? where? A
//! sequential operation continues behind the last address *of its area*, random ones included; the
//! pointer is shared by all threads. Where both hit percentages are zero there is one area, the
//! whole range; else the first `hitarea` bytes are for hits and misses stay behind them.

mod ring;

use crate::event::Engine;
use crate::file_calls::{self, open_flags};
use crate::pattern::Pattern;
use crate::random::{Random, mix};
use crate::rate::{Gate, Schedule, sleep_until};
use crate::shared::{Buffer, Cells, INCORRECT_SIZE, Note, Shared, Slot, errno_text};
use crate::validate::{Map, Transfer};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use steadfast_lab_params::{Arrival, OpenFlags, Operation, Range, RawWork, Removal, Sd, Seek, Wd, XferSize};

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
    fn address(
        &self,
        random: &mut Random,
        wd: &Wd,
        align: Option<u64>,
        xfer: u64,
        read: bool,
    ) -> Option<u64> {
        let seek = wd.seek;
        if wd.hotband.is_some() {
            return Some(self.start + self.hot(random, xfer, read));
        }
        let percent = match seek {
            Seek::Poisson(midpoint) => {
                let blocks = (self.length / xfer.max(1)).max(1);
                return Some(self.start + poisson(random, blocks, midpoint) * xfer);
            }
            Seek::Percent(percent) => percent,
            Seek::Eof => {
                let at = self.next.fetch_add(xfer, Relaxed);
                return (at + xfer <= self.length).then_some(self.start + at);
            }
            Seek::SequentialFromAnywhere => 0.0,
            Seek::Backward => {
                let mut at = self.next.fetch_add(xfer, Relaxed);
                if at + xfer > self.length {
                    at = 0;
                    self.next.store(xfer, Relaxed);
                }
                return Some(self.start + self.length - at - xfer);
            }
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

/// One of `count`, the first more often: exponential with its mean at `count` / `midpoint`, going
/// round.
pub(crate) fn poisson(random: &mut Random, count: u64, midpoint: f64) -> u64 {
    let draw = -(1.0 - random.unit()).ln() * count as f64 / midpoint;
    draw as u64 % count
}

/// Where a hot band's curve ends, in MB: 10 PB, as far as vdbench's own.
const HOT_MB: f64 = 1e10;

impl Area {
    /// An address of a hot band: as many accesses fall into the first 10 MB as between 10 and 100
    /// MB, between 100 MB and 1 GB and so on; what lies behind the band goes round. Writes keep one
    /// per cent of the band away.
    fn hot(&self, random: &mut Random, xfer: u64, read: bool) -> u64 {
        let blocks = (self.length / xfer.max(1)).max(1);
        let bytes = ((HOT_MB + 1.0).powf(random.unit()) - 1.0) * 1e6;
        let away = if read { 0 } else { blocks / 100 };
        ((bytes / xfer.max(1) as f64) as u64).wrapping_add(away) % blocks * xfer
    }

    /// Skips between `low` and `high` bytes, a multiple of the transfer size; from the start again
    /// at the end.
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
    /// Of the whole rate.
    share: f64,
    /// Where priorities or a rate of its own are asked for.
    schedule: Option<Schedule>,
}

/// Longest sleep of a thread that waits for the first of several schedules.
const PRIORITY_NAP_NS: u64 = 20_000_000;

/// Identity of a thread.
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
    /// Of a concatenation: each part's path and its end within the whole.
    parts: Vec<(PathBuf, u64)>,
    flags: OpenFlags,
    writes: bool,
    streams: Vec<Stream>,
    schedule: Option<Schedule>,
    /// Its streams have schedules of their own, or none, in the order in which they are served.
    prioritised: bool,
    index: usize,
    file_key: u64,
    /// Bytes of it that are used.
    pub size: u64,
    /// Its keys, if data is validated.
    pub map: Option<Arc<Map>>,
    /// `data_errors=remove`.
    pub removal: Option<Removal>,
    /// Nanoseconds after the start until which it is not used, after an error.
    removed: AtomicU64,
}

/// Everything the threads of a raw run need.
pub(crate) struct Plan {
    pub storages: Vec<Storage>,
    pub gate: Option<Gate>,
}

/// Errors before the first operation.
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
        (seed, draws): (u64, u64),
        unit: u64,
        arrival: Arrival,
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
            let usable = |sd: &Sd| -> Result<u64, Error> {
                let path = Path::new(&sd.lun);
                let found = file_calls::length(path)
                    .map_err(|e| Error::Open(sd.lun.clone(), errno_text(&e)))?
                    .unwrap_or(0);
                Ok(sd.size.map_or(found, |size| size.min(found.max(size))))
            };
            let mut size = usable(sd)?;
            let mut parts = Vec::new();
            if !sd.parts.is_empty() {
                let largest =
                    mine.iter().map(|(w, _)| work.wds[*w].0.xfersize.largest()).max().unwrap_or(1).max(1);
                size = 0;
                for part in &sd.parts {
                    let whole = usable(part)?;
                    size += whole - whole % largest;
                    parts.push((PathBuf::from(&part.lun), size));
                }
            }
            let mut streams = Vec::new();
            let mut until = 0.0;
            for (workload, weight) in mine {
                let wd = work.wds[workload].0.clone();
                until += if sum > 0.0 { weight / sum } else { 0.0 };
                let mut made = stream(sd, wd, workload, until, size, (draws, unit))?;
                made.share = weight;
                streams.push(made);
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
            let own = streams.iter().any(|s| s.wd.priority.is_some());
            let schedule = if own { None } else { rate.map(|make| make(sum)) };
            if own {
                for stream in &mut streams {
                    let sds = work.wds[stream.workload].1.len() as f64;
                    stream.schedule = match stream.wd.iorate {
                        Some(rate) => Some(Schedule::varying(&[(rate / sds, 1.0)], 1.0, arrival)),
                        None => rate.map(|make| make(stream.share)),
                    };
                }
                // Streams with priority come first.
                streams.sort_by_key(|stream| stream.wd.priority);
                let mut until = 0.0;
                let rest: f64 = streams.iter().filter(|s| s.schedule.is_none()).map(|s| s.share).sum();
                for stream in streams.iter_mut().filter(|s| s.schedule.is_none()) {
                    until += stream.share / rest.max(f64::MIN_POSITIVE);
                    stream.until = until;
                }
            }
            shares.push(sum);
            let file_key = path.to_string_lossy().bytes().fold(seed, |key, byte| mix(key, u64::from(byte)));
            storages.push(Storage {
                sd,
                path,
                flags,
                writes,
                streams,
                parts,
                prioritised: own,
                schedule,
                index,
                file_key,
                size,
                map: None,
                removal: None,
                removed: AtomicU64::new(0),
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
    let (low, high) = match wd.hotband.or(wd.range).or(sd.range) {
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
    Ok(Stream { wd, workload, until, hits, misses, wrap: size, largest, unit, share: 0.0, schedule: None })
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

    /// Seed of its data, besides places.
    pub(crate) fn file_key(&self) -> u64 {
        self.file_key
    }

    /// Whether operations may go through a ring: nothing comes between a read or a write and the
    /// next.
    pub(crate) fn suits_ring(&self, engine: Engine, processors: u32) -> bool {
        let possible = self.map.is_none() && !self.flags.fsync_each && self.removal.is_none();
        match engine {
            Engine::Threads => false,
            Engine::Ring => possible,
            // Reads from a cache never wait, and a plain call is then faster than a ring.
            Engine::Auto => possible && self.flags.direct && self.sd.threads > processors,
        }
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
        let files = match self.open() {
            Ok(files) => files,
            Err(error) => {
                shared.fail(error.to_string());
                return;
            }
        };
        let mut random = Random::new(&[key]);
        let mut buffer = Buffer::new(self.largest() as usize);
        let mut generation = key << 40;
        while !shared.ended() {
            if self.removed.load(Relaxed) > 0 && self.out(shared) {
                if self.removed.load(Relaxed) == u64::MAX {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            let mut late_ns = 0;
            if let Some(schedule) = &self.schedule {
                let due = schedule.take(&mut random, shared.now_ns());
                if !sleep_until(shared.start, due, || shared.ended()) {
                    break;
                }
                if shared.from_arrival {
                    late_ns = shared.now_ns().saturating_sub(due);
                }
            }
            if let Some(gate) = gate
                && !gate.admit(self.index)
            {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            let at = if self.prioritised {
                match self.next_stream(&mut random, shared.now_ns()) {
                    Ok(at) => at,
                    Err(due) => {
                        let nap = due.saturating_sub(shared.now_ns()).min(PRIORITY_NAP_NS);
                        std::thread::sleep(Duration::from_nanos(nap));
                        continue;
                    }
                }
            } else {
                self.draw_stream(&mut random)
            };
            generation += 1;
            let Some((read, address, xfer)) = self.next_operation(at, thread.number, &mut random) else {
                break;
            };
            let (part, address) = self.place(address, xfer, files.len());
            let (file, bytes) = (&files[part], buffer.bytes(xfer as usize));
            if let Some(map) = &self.map {
                let transfer = Transfer {
                    map,
                    first: address / self.streams[at].unit,
                    lba: address,
                    file_key: self.part_key(part),
                    file,
                    path: self.part_path(part),
                    fsync_each: self.flags.fsync_each,
                    pattern,
                    shared,
                };
                validated(&transfer, at, read, bytes, cells);
                continue;
            }
            if !read {
                pattern.fill(bytes, self.part_key(part), address, generation);
            }
            self.transfer((at, read), file, part, address, bytes, late_ns, shared, cells);
        }
        self.finish(&files, shared, gate);
    }

    /// After the last operation of a thread.
    fn finish(&self, files: &[File], shared: &Shared<'_>, gate: Option<&Gate>) {
        if self.writes && self.flags.fsync {
            for (part, file) in files.iter().enumerate() {
                if let Err(error) = file.sync_all() {
                    shared.io_error(Operation::Write, self.part_path(part), 0, 0, errno_text(&error));
                }
            }
        }
        if let Some(gate) = gate {
            gate.leave(self.index);
        }
    }

    /// Whether an error took it out, for now or for good.
    fn out(&self, shared: &Shared<'_>) -> bool {
        let until = self.removed.load(Relaxed);
        until > 0 && until > shared.now_ns()
    }

    /// The stream of the next operation, by the weights.
    #[inline]
    fn draw_stream(&self, random: &mut Random) -> usize {
        if self.streams.len() == 1 {
            return 0;
        }
        let draw = random.unit();
        self.streams.iter().position(|s| draw < s.until).unwrap_or(0)
    }

    /// Next operation of a stream: read or write, place, length. `None` at the end of a stream that
    /// does not wrap.
    #[inline]
    fn next_operation(&self, at: usize, thread: usize, random: &mut Random) -> Option<(bool, u64, u64)> {
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
        let mut address = area.address(random, &stream.wd, self.sd.align, xfer, read)?;
        if address + xfer > stream.wrap {
            address = (address - stream.wrap.min(address)) / stream.unit * stream.unit;
        }
        Some((read, address + self.sd.offset, xfer))
    }

    /// The part that an address lies on, and where there. No transfer crosses from one part to the
    /// next.
    #[inline]
    fn place(&self, address: u64, xfer: u64, files: usize) -> (usize, u64) {
        if files == 1 {
            return (0, address);
        }
        let part = self.parts.partition_point(|(_, end)| *end <= address).min(files - 1);
        let start = part.checked_sub(1).map_or(0, |before| self.parts[before].1);
        (part, (address - start).min((self.parts[part].1 - start).saturating_sub(xfer)))
    }

    fn part_path(&self, part: usize) -> &Path {
        self.parts.get(part).map_or(&self.path, |(path, _)| path)
    }

    /// Seed of the data of a part, besides its place.
    fn part_key(&self, part: usize) -> u64 {
        if part == 0 { self.file_key } else { mix(self.file_key, part as u64) }
    }

    /// Its file, or those of its parts.
    fn open(&self) -> Result<Vec<File>, Error> {
        let mut options = OpenOptions::new();
        options.read(true).write(self.writes).custom_flags(open_flags(self.flags));
        let open = |path: &Path| {
            let failed = |e: std::io::Error| Error::Open(path.display().to_string(), errno_text(&e));
            options.open(path).map_err(failed)
        };
        match self.parts.as_slice() {
            [] => Ok(vec![open(&self.path)?]),
            parts => parts.iter().map(|(path, _)| open(path)).collect(),
        }
    }

    /// The first stream that has something to do, in the order of priorities; or when one will.
    fn next_stream(&self, random: &mut Random, now: u64) -> Result<usize, u64> {
        let mut due = u64::MAX;
        for (at, stream) in self.streams.iter().enumerate() {
            match stream.schedule.as_ref().map(|schedule| schedule.take_due(random, now)) {
                Some(Ok(_)) => return Ok(at),
                Some(Err(later)) => due = due.min(later),
                None => {}
            }
        }
        let draw = random.unit();
        let free = |s: &Stream| s.schedule.is_none();
        let drawn = self.streams.iter().position(|s| free(s) && draw < s.until);
        drawn.or_else(|| self.streams.iter().rposition(free)).ok_or(due)
    }

    /// The call itself, and what is counted of it.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn transfer(
        &self,
        (at, read): (usize, bool),
        file: &File,
        part: usize,
        address: u64,
        bytes: &mut [u8],
        late_ns: u64,
        shared: &Shared<'_>,
        cells: &Cells,
    ) {
        let xfer = bytes.len() as u64;
        let operation = if read { Operation::Read } else { Operation::Write };
        let cell = &cells.slots[at * 2 + usize::from(!read)].1;
        let before = Instant::now();
        let done = if read {
            file.read_at(bytes, address)
        } else {
            file_calls::write(file, bytes, address, self.flags.fsync_each)
        };
        let ns = before.elapsed().as_nanos() as u64 + late_ns;
        let errno = match done {
            Ok(count) if count as u64 == xfer => {
                return cell.record(ns, xfer, shared.interval.load(Relaxed));
            }
            Ok(_) => INCORRECT_SIZE.to_string(),
            Err(error) => errno_text(&error),
        };
        self.failed(operation, self.part_path(part), address, xfer, errno, shared);
    }

    /// Tells an error, and takes the storage out where that is wanted.
    #[cold]
    fn failed(
        &self,
        operation: Operation,
        path: &Path,
        address: u64,
        xfer: u64,
        errno: String,
        shared: &Shared<'_>,
    ) {
        if let Some(removal) = self.removal {
            let until = match removal {
                Removal::ForGood => u64::MAX,
                Removal::Seconds(seconds) => {
                    shared.now_ns().saturating_add(seconds.saturating_mul(1_000_000_000)).min(u64::MAX - 1)
                }
            };
            if self.removed.swap(until, Relaxed) < shared.now_ns() || until == u64::MAX {
                shared.note(Note::Message(format!("data_errors=remove: {} is taken out.", self.sd.name)));
            }
        }
        shared.io_error(operation, path, address, xfer, errno);
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
    fn a_hot_band_and_poisson_prefer_the_low_addresses() {
        let area = Area::new(1 << 20, (1 << 20) + (10 << 30), 4096);
        let mut random = Random::new(&[7]);
        let hot = Wd { hotband: Some(Range::Percent { low: 0.0, high: 100.0 }), ..wd(Seek::Percent(100.0)) };
        let mut below = |wd: &Wd, read: bool, mib: u64| {
            let hits = (0..20_000).filter(|_| {
                let at = area.address(&mut random, wd, None, 4096, read).unwrap();
                assert!(at >= 1 << 20 && at + 4096 <= (1 << 20) + (10 << 30) && at.is_multiple_of(4096));
                at < (1 + mib) << 20
            });
            hits.count() as f64 / 20_000.0
        };
        // 1/1024 of the band has a tenth of the reads and none of the writes; the first tenth a
        // quarter and more.
        assert!((0.08..0.16).contains(&below(&hot, true, 10)), "reads");
        assert!(below(&hot, false, 10) < 0.01, "writes");
        assert!(below(&hot, true, 1024) > 0.25);
        let third = wd(Seek::Poisson(3.0));
        // 1 - e^-1 of all below the mean at one third, and a little from those that went round.
        let found = below(&third, true, 10 * 1024 / 3);
        assert!((0.62..0.70).contains(&found), "{found}");
    }

    #[test]
    fn a_stride_skips_ahead_within_its_bounds_and_begins_anew_at_the_end() {
        let area = Area::new(0, 1 << 20, 4096);
        let mut random = Random::new(&[3]);
        let wd = Wd { stride: Some((8192, 16384)), ..wd(Seek::Percent(100.0)) };
        let (mut last, mut rounds, mut skips) = (0, 0, std::collections::BTreeSet::new());
        for number in 0..1_000 {
            let at = area.address(&mut random, &wd, None, 4096, true).unwrap();
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
        assert_eq!(pieces[1].address(&mut random, &sequential, None, 4096, true), Some(8192 + each));
    }

    #[test]
    fn half_random_addresses_make_runs_of_mean_length_two() {
        let area = Area::new(0, 1 << 30, 4096);
        let mut random = Random::new(&[1]);
        let mut last = u64::MAX;
        let mut follows = 0u32;
        for _ in 0..100_000 {
            let at = area.address(&mut random, &wd(Seek::Percent(50.0)), None, 4096, true).unwrap();
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
        let mut next = |seek| area.address(&mut random, &wd(seek), None, 4096, true);
        let wrapping: Vec<_> = (0..4).map(|_| next(Seek::Percent(0.0)).unwrap()).collect();
        assert_eq!(wrapping, [8192, 12288, 16384, 8192]);
        let area = Area::new(8192, 8192 + 3 * 4096 + 100, 4096);
        let mut back = |seek| area.address(&mut random, &wd(seek), None, 4096, true);
        let seen: Vec<u64> = (0..4).filter_map(|_| back(Seek::Backward)).collect();
        assert_eq!(seen, [8192 + 8192, 8192 + 4096, 8192, 8192 + 8192], "from the end, and again");
        let area = Area::new(0, 2 * 4096, 4096);
        let mut next = |seek| area.address(&mut random, &wd(seek), None, 4096, true);
        assert_eq!([next(Seek::Eof), next(Seek::Eof), next(Seek::Eof)], [Some(0), Some(4096), None]);
    }

    #[test]
    fn weighted_sizes_come_as_often_as_asked_for() {
        let size = XferSize::Weighted(vec![(4096, 50.0), (8192, 25.0), (65536, 25.0)]);
        let mut random = Random::new(&[9]);
        let small = (0..100_000).filter(|_| transfer(&size, &mut random) == 4096).count();
        assert!(small.abs_diff(50_000) < 1_000, "{small}");
    }
}
