//! Lanes: the order in which a scrub or resilver reads (ZFS: sequential `dsl_scan`,
//! `scan_io_queue`).
//!
//! Like ZFS's sequential scan, which gathers block pointers and sorts them by offset, but nothing
//! is gathered: the segment table already lists segments by device and slot.
//!
//! Each device has a lane: the columns to be read from it, in the order of its slots. Its workers
//! take the next column each, read it and compare it with its checksums. So all devices read at
//! once, each in order, and none waits for a thread that wakes up or compares. The worker that
//! brings the last column of a segment reconstructs and writes its wrong or missing columns, while
//! the lanes go on.
//!
//! One batch of segments is in memory at a time. The caller chooses its size, and so the length of
//! one call.
//!
//! A scrub reads all columns. A resilver reads the fewest columns that can do ([`Plan`]): the
//! column that moves, if its old device still has it; else as many others as reconstruction needs;
//! all of them only if these were wrong. A device most of whose copied columns were wrong is not
//! read any more. So replacing a healthy device costs one read and one write of each byte, as a
//! clone does, and replacing a lying one costs as many reads as a row has data columns.
//!
//! ## Invariants
//! [lanes.1] Of one device as many reads are under way as its lane has workers, and no more, begun
//!      in the order of slots.
//!      `Space::take`
//! [lanes.2] A segment is finished once in each pass, by the worker that brought its last column.
//!      `SegmentRead::left`
//! [lanes.3] Of a segment of which not everything was read, nothing is mended but what moves or is
//!      missing, and nothing is called lost: what was read was right, or it is read again with
//!      more.
//!      `SegmentRead::disappoints`

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use steadfast_device::{Buffer, SegmentPlace};
use steadfast_env::Job;
use steadfast_format::{Address, Checksums, Column, DeviceId, Placement, SegmentId};
use steadfast_vdev::Layout;
use steadfast_vdev::parity::Reconstruction;

use crate::Class;
use crate::accounting::Wrong;
use crate::error::Error;
use crate::groups;
use crate::mend::{Mended, SegmentRepair, what_is_wrong};
use crate::redundant::checksum;
use crate::row::Row;
use crate::space::{Space, lock};

/// Workers of a lane. While one compares or writes, the device has the other one's read.
const LANE_WORKERS: usize = 2;
/// Workers at most, however many devices a group has.
const WORKERS_MAX: usize = 48;

/// How much of each segment is to be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Depth {
    /// All columns, so that whatever is wrong is found.
    All,
    /// The columns that move or are built anew, and those needed for that.
    Needed,
}

/// Which columns of a segment are read.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Plan {
    /// Those that move, from where they are.
    Copy,
    /// Those that what moves or is missing is computed from.
    Compute(Vec<usize>),
    /// All there are.
    All,
}

/// Absent columns of a segment, by index: those that move from a device in use, and those that
/// cannot be read.
#[derive(Debug, Default)]
struct Absent {
    moving: Vec<usize>,
    missing: Vec<usize>,
}

/// Gives checksums of segments beside those that are mended.
pub type Others<'s> = dyn Fn() -> Vec<Vec<[u8; Checksums::SIZE]>> + Sync + 's;

/// Checksums of other places, to recognise a chunk that was written to the wrong place.
struct OtherChecksums<'s> {
    segments: Vec<&'s [[u8; Checksums::SIZE]]>,
    others: &'s Others<'s>,
    /// All of them, once the first wrong chunk was met.
    sums: OnceLock<HashSet<[u8; Checksums::SIZE]>>,
}

impl<'s> OtherChecksums<'s> {
    fn new(segments: Vec<&'s [[u8; Checksums::SIZE]]>, others: &'s Others<'s>) -> OtherChecksums<'s> {
        OtherChecksums { segments, others, sums: OnceLock::new() }
    }

    fn has(&self, sum: &[u8; Checksums::SIZE]) -> bool {
        let all = || {
            let here = self.segments.iter().copied().flatten().copied();
            here.chain((self.others)().into_iter().flatten()).collect()
        };
        self.sums.get_or_init(all).contains(sum)
    }
}

/// A segment whose columns are being read.
struct SegmentRead<'s> {
    absent: Absent,
    plan: Plan,
    id: SegmentId,
    row: Row,
    /// Bytes of a slot where it lies.
    slot: u32,
    chunk: usize,
    rows: usize,
    sums: &'s [[u8; Checksums::SIZE]],
    /// And those of others.
    known: &'s OtherChecksums<'s>,
    columns: Vec<Mutex<Read>>,
    /// Columns in lanes that are yet to be brought.
    left: AtomicUsize,
}

/// The bytes read of a column, and its wrong rows.
#[derive(Default)]
struct Read {
    bytes: Option<Buffer>,
    wrong: Vec<(usize, Wrong)>,
}

/// Columns to be read of one device.
struct Lane {
    device: DeviceId,
    queue: Mutex<VecDeque<ColumnRead>>,
}

/// One column to be read.
struct ColumnRead {
    segment_read: usize,
    column: usize,
    slot: u32,
}

/// Result of a batch.
#[derive(Default)]
struct Outcome {
    report: Mended,
    error: Option<Error>,
    /// Segments that have to be read again with more.
    again: Vec<usize>,
}

impl Space {
    /// Mends segments: all devices read at once, each in order; what is wrong is put right, and
    /// columns that are missing, or lie where they are not to stay, are built on devices that have
    /// room. With each segment come its checksums as they are stored, none for the pool's own
    /// metadata; `others` is asked for those of segments beside, if a chunk is wrong that may be
    /// one of theirs. Sync context only [mend.3].
    ///
    /// # Errors
    /// If a device failed that its group cannot do without.
    pub fn mend_all(
        &self,
        segments: &[(SegmentId, Vec<[u8; Checksums::SIZE]>)],
        depth: Depth,
        others: &Others<'_>,
    ) -> Result<Mended, Error> {
        let _sync = lock(&self.sync);
        let mut report = Mended::default();
        let known = OtherChecksums::new(segments.iter().map(|(_, sums)| &sums[..]).collect(), others);
        let mut reads: Vec<SegmentRead<'_>> = segments
            .iter()
            .filter_map(|(id, sums)| self.segment_read(*id, (&sums[..], &known), depth))
            .collect();
        while !reads.is_empty() {
            let Outcome { report: pass, error, mut again } = self.pass(&reads);
            report.add(&pass);
            if let Some(error) = error {
                return Err(error);
            }
            again.sort_unstable();
            reads = reads
                .into_iter()
                .enumerate()
                .filter(|(at, _)| again.binary_search(at).is_ok())
                .map(|(_, segment_read)| segment_read)
                .collect();
            reads.iter_mut().for_each(Self::plan_more);
        }
        Ok(report)
    }

    /// Reads what is planned of each segment, and finishes those of which that is enough.
    fn pass(&self, reads: &[SegmentRead<'_>]) -> Outcome {
        let lanes = self.lanes(reads);
        // Of those that nothing can be read of, nobody brings a column.
        let idle: Vec<usize> =
            (0..reads.len()).filter(|at| reads[*at].left.load(Ordering::Acquire) == 0).collect();
        let outcome = Mutex::new(Outcome::default());
        let workers = if lanes.len() * LANE_WORKERS > WORKERS_MAX { 1 } else { LANE_WORKERS };
        let mut jobs: Vec<Job<'_>> = Vec::new();
        for _ in 0..workers {
            for lane in &lanes {
                let outcome = &outcome;
                jobs.push(Box::new(move || self.work(lane, reads, outcome)));
            }
        }
        self.env.tasks.run_waiting(jobs);
        idle.into_iter().for_each(|at| self.finish(reads, at, &outcome));
        outcome.into_inner().expect("no job panics")
    }

    /// Columns that are not to stay where they are, or are nowhere.
    fn absent(&self, row: &Row) -> Absent {
        let state = self.read_state();
        let mut absent = Absent::default();
        for (index, column) in row.place.columns().enumerate() {
            match column {
                Some(column) if !self.is_in_use(column.device) => absent.missing.push(index),
                Some(column) if !state.table.may_stay(column.device) => absent.moving.push(index),
                Some(_) => {}
                None => absent.missing.push(index),
            }
        }
        absent
    }

    /// The least that has to be read of a segment.
    fn plan(&self, row: &Row, absent: &Absent, depth: Depth) -> Plan {
        // The pool's own metadata has no checksums, and its parity is made anew from all there is.
        if depth == Depth::All || row.class.is_pool() {
            return Plan::All;
        }
        let is_trusted = |index: &usize| {
            let column = row.place.columns().nth(*index).flatten();
            column.is_some_and(|column| self.devices[&column.device].copies_well())
        };
        if absent.missing.is_empty() && !absent.moving.is_empty() && absent.moving.iter().all(is_trusted) {
            return Plan::Copy;
        }
        Self::plan_to_compute(row, absent)
    }

    /// The columns from which the absent ones of a segment are reconstructed.
    fn plan_to_compute(row: &Row, absent: &Absent) -> Plan {
        let mut absent = [&absent.moving[..], &absent.missing].concat();
        absent.sort_unstable();
        if absent.is_empty() || absent.len() > row.place.redundancy() {
            return Plan::All;
        }
        match groups::layout(&row.place) {
            Layout::Mirror => (0..row.place.columns().count())
                .find(|index| !absent.contains(index))
                .map_or(Plan::All, |index| Plan::Compute(vec![index])),
            Layout::Raidz(stripe) => Reconstruction::new(stripe.data(), stripe.parity(), &absent, &absent)
                .map_or(Plan::All, |repair| Plan::Compute(repair.sources().to_vec())),
        }
    }

    /// Plans to read more of a segment of which what was read was not right.
    fn plan_more(segment_read: &mut SegmentRead<'_>) {
        segment_read.plan = match segment_read.plan {
            Plan::Copy => Self::plan_to_compute(&segment_read.row, &segment_read.absent),
            Plan::Compute(_) | Plan::All => Plan::All,
        };
        segment_read.columns.iter_mut().for_each(|column| *column = Mutex::default());
    }

    /// A place for a segment, if it can be mended.
    fn segment_read<'s>(
        &self,
        id: SegmentId,
        (sums, known): (&'s [[u8; Checksums::SIZE]], &'s OtherChecksums<'s>),
        depth: Depth,
    ) -> Option<SegmentRead<'s>> {
        let (row, slot, row_units) = {
            let state = self.read_state();
            let row = state.table.rows.get(&id).filter(|row| !row.open)?;
            if state.table.sums.get(&id).is_some_and(|pending| *pending != sums) {
                // It was moved, or closed, since the last commit, and what is stored speaks of what
                // was before.
                return None;
            }
            (row.clone(), state.table.column_bytes(&row.place), state.table.row_units(row))
        };
        if matches!(row.place, Placement::Plain(_)) || row.class == Class::Log {
            return None;
        }
        let rows = row.filled.div_ceil(row_units) as usize;
        if !row.class.is_pool() && sums.len() < rows * Checksums::per_row(&row.place) {
            // Not all of it is committed yet.
            return None;
        }
        let chunk = self.chunk_of(&row) as usize;
        let columns = row.place.columns().map(|_| Mutex::default()).collect();
        let absent = self.absent(&row);
        let plan = self.plan(&row, &absent, depth);
        let left = AtomicUsize::new(0);
        Some(SegmentRead { absent, plan, id, row, slot, chunk, rows, sums, known, columns, left })
    }

    /// The lanes of all devices that hold columns, each in the order of its slots [lanes.1].
    fn lanes(&self, reads: &[SegmentRead<'_>]) -> Vec<Lane> {
        let mut lanes: Vec<(DeviceId, Vec<ColumnRead>)> = Vec::new();
        for (at, segment_read) in reads.iter().enumerate() {
            for (column, Column { device, slot }) in segment_read.row.place.present() {
                let planned = match &segment_read.plan {
                    Plan::Copy => segment_read.absent.moving.contains(&column),
                    Plan::Compute(sources) => sources.contains(&column),
                    Plan::All => true,
                };
                if !planned || !self.is_in_use(device) {
                    continue;
                }
                let stop = ColumnRead { segment_read: at, column, slot };
                segment_read.left.fetch_add(1, Ordering::AcqRel);
                match lanes.iter_mut().find(|(known, _)| *known == device) {
                    Some((_, stops)) => stops.push(stop),
                    None => lanes.push((device, vec![stop])),
                }
            }
        }
        let lane = |(device, mut stops): (DeviceId, Vec<ColumnRead>)| {
            stops.sort_by_key(|stop| stop.slot);
            Lane { device, queue: Mutex::new(stops.into()) }
        };
        lanes.into_iter().map(lane).collect()
    }

    /// Reads and compares columns of a lane until there are no more.
    fn work(&self, lane: &Lane, reads: &[SegmentRead<'_>], outcome: &Mutex<Outcome>) {
        while let Some((stop, bytes)) = self.take(lane, reads) {
            let segment_read = &reads[stop.segment_read];
            self.compare(lane, segment_read, stop.column, bytes);
            if segment_read.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.finish(reads, stop.segment_read, outcome);
            }
        }
    }

    /// Compares what was read of a column, and counts what is wrong against its device.
    fn compare(&self, lane: &Lane, segment_read: &SegmentRead<'_>, column: usize, bytes: Option<Buffer>) {
        let Some(bytes) = bytes else { return };
        let wrong = segment_read.wrong(column, &bytes);
        if segment_read.plan == Plan::Copy {
            self.devices[&lane.device].copied(wrong.is_empty());
        }
        // A segment whose columns were wrong is read once more with the rest, and counted then.
        let counted = if segment_read.plan == Plan::All { &wrong[..] } else { &[] };
        for (row, wrong) in counted {
            let offset = u32::try_from(row * segment_read.chunk).expect("within a column");
            self.devices[&lane.device]
                .counters
                .rejected(Address { segment: segment_read.id, offset }, *wrong);
        }
        *lock(&segment_read.columns[column]) = Read { bytes: Some(bytes), wrong };
    }

    /// Reads all columns of one segment and compares them, and changes nothing.
    pub(crate) fn examine(
        &self,
        id: SegmentId,
        sums: &[[u8; Checksums::SIZE]],
        report: &mut Mended,
    ) -> Option<SegmentRepair> {
        let none = Vec::<Vec<[u8; Checksums::SIZE]>>::new;
        let known = OtherChecksums::new(vec![sums], &none);
        let reads = [self.segment_read(id, (sums, &known), Depth::All)?];
        for lane in &self.lanes(&reads) {
            while let Some((stop, bytes)) = self.take(lane, &reads) {
                self.compare(lane, &reads[0], stop.column, bytes);
            }
        }
        Some(reads[0].repair(report))
    }

    /// Reads the next column of a lane. The bytes are nothing if it could not be read.
    fn take(&self, lane: &Lane, reads: &[SegmentRead<'_>]) -> Option<(ColumnRead, Option<Buffer>)> {
        let stop = lock(&lane.queue).pop_front()?;
        let segment_read = &reads[stop.segment_read];
        let place = SegmentPlace { segment: segment_read.id, slot: stop.slot, slot_size: segment_read.slot };
        let mut bytes = Buffer::to_fill(segment_read.rows * segment_read.chunk);
        let read = self.read_place(lane.device, place, 0, &mut bytes);
        Some((stop, read.is_ok().then_some(bytes)))
    }

    /// All planned columns of a segment that can be read were: mends it [lanes.2], or has it read
    /// again with more [lanes.3].
    fn finish(&self, reads: &[SegmentRead<'_>], at: usize, outcome: &Mutex<Outcome>) {
        let segment_read = &reads[at];
        let mut report = Mended::default();
        if segment_read.disappoints() {
            report.read_bytes = segment_read
                .columns
                .iter()
                .map(|read| lock(read).bytes.as_ref().map_or(0, |b| b.len() as u64))
                .sum();
            let mut outcome = lock(outcome);
            outcome.report.add(&report);
            outcome.again.push(at);
            return;
        }
        let mended = self.mend_read(segment_read.repair(&mut report), segment_read.sums, &mut report);
        let mut outcome = lock(outcome);
        outcome.report.add(&report);
        if let Err(error) = mended {
            outcome.error.get_or_insert(error);
        }
    }
}

impl SegmentRead<'_> {
    /// Rows of a column that do not have their checksums, and what is wrong with them.
    fn wrong(&self, column: usize, bytes: &[u8]) -> Vec<(usize, Wrong)> {
        let per_row = Checksums::per_row(&self.row.place);
        let wrong = |(row, bytes): (usize, &[u8])| {
            let sum = self.sums.get(row * per_row + if per_row == 1 { 0 } else { column })?;
            let found = checksum(bytes);
            (found != *sum).then(|| (row, what_is_wrong(bytes, || self.known.has(&found))))
        };
        bytes.chunks(self.chunk).enumerate().filter_map(wrong).collect()
    }

    /// Whether not everything was read, and of that not everything is right [lanes.3].
    fn disappoints(&self) -> bool {
        let is_right = |index: usize| {
            let read = lock(&self.columns[index]);
            read.bytes.is_some() && read.wrong.is_empty()
        };
        match &self.plan {
            Plan::All => false,
            Plan::Compute(sources) => !sources.iter().all(|index| is_right(*index)),
            Plan::Copy => !self.absent.moving.iter().all(|index| is_right(*index)),
        }
    }

    /// The bytes read of all columns, taken out.
    fn repair(&self, report: &mut Mended) -> SegmentRepair {
        let mut columns = Vec::with_capacity(self.columns.len());
        let mut bad: Vec<Vec<usize>> = vec![Vec::new(); self.rows];
        let mut all_wrong = Vec::new();
        for (index, read) in self.columns.iter().enumerate() {
            let Read { bytes, wrong } = std::mem::take(&mut *lock(read));
            let absent = self.absent.moving.contains(&index) || self.absent.missing.contains(&index);
            match &bytes {
                // Not read and not needed.
                None if self.plan != Plan::All && !absent => {}
                None => bad.iter_mut().for_each(|columns| columns.push(index)),
                Some(bytes) => {
                    report.read_bytes += bytes.len() as u64;
                    wrong.iter().for_each(|(row, _)| bad[*row].push(index));
                    all_wrong.extend(wrong.into_iter().map(|(row, wrong)| (index, row, wrong)));
                }
            }
            columns.push(bytes);
        }
        let SegmentRead { id, row, slot, chunk, rows, .. } = self;
        let (row, wrong) = (row.clone(), all_wrong);
        SegmentRepair { id: *id, row, slot: *slot, chunk: *chunk, rows: *rows, columns, bad, wrong }
    }
}
