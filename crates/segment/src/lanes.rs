//! Lanes: how many segments are mended at once.
//!
//! Every device has a lane: the columns that are to be read of it, in the order in which they lie there. A lane is read by one
//! worker at a time, while another compares what it read before with its checksums, so that a device always has one long read to
//! do, the next one behind the last, and all devices read at once. Whoever brings the last column of a segment computes and
//! writes what is wrong or missing of it, while the lanes go on.
//!
//! A batch of segments is in memory at a time: the caller chooses how many, and so how long one call takes.
//!
//! ## Invariants
//! (N4) Of one device one read is under way at a time, in the order of slots.                     `Lane::take`
//! (N5) A segment is finished once, by the worker that brought its last column.                    `Bed::left`

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use steadfast_device::{Buffer, Place};
use steadfast_env::Job;
use steadfast_format::{Address, Checksums, Column, DeviceId, Placement, SegmentId};

use crate::Class;
use crate::accounting::Wrong;
use crate::error::Error;
use crate::mend::{Mended, Patient, what_is_wrong};
use crate::redundant::checksum;
use crate::space::{Space, lock};
use crate::table::Row;

/// Workers of a lane: one reads, the other compares.
const LANE_WORKERS: usize = 2;
/// Workers at most, however many devices a group has.
const WORKERS_MAX: usize = 48;

/// A segment whose columns are being read.
struct Bed<'s> {
    id: SegmentId,
    row: Row,
    /// Bytes of a slot where it lies.
    slot: u32,
    chunk: usize,
    rows: usize,
    sums: &'s [[u8; Checksums::SIZE]],
    columns: Vec<Mutex<Read>>,
    /// Columns in lanes that are yet to be brought.
    left: AtomicUsize,
}

/// What was read of a column, and the rows of it that are not what they should be.
#[derive(Default)]
struct Read {
    bytes: Option<Buffer>,
    wrong: Vec<(usize, Wrong)>,
}

/// Columns to be read of one device.
struct Lane {
    device: DeviceId,
    queue: Mutex<VecDeque<Stop>>,
}

/// One column to be read.
struct Stop {
    bed: usize,
    column: usize,
    slot: u32,
}

/// What came of a batch.
#[derive(Default)]
struct Outcome {
    report: Mended,
    error: Option<Error>,
}

impl Space {
    /// Mends segments, as [`Space::mend`] does one: all devices read at once, each in order. Sync context only (N3).
    ///
    /// # Errors
    /// If a device failed that its group cannot do without.
    pub fn mend_all(
        &self,
        segments: &[(SegmentId, Vec<[u8; Checksums::SIZE]>)],
        rebuild: bool,
    ) -> Result<Mended, Error> {
        let _sync = lock(&self.sync);
        let beds: Vec<Bed<'_>> = segments.iter().filter_map(|(id, sums)| self.bed(*id, sums)).collect();
        let lanes = self.lanes(&beds);
        // Of those that nothing can be read of, nobody brings a column.
        let idle: Vec<&Bed<'_>> = beds.iter().filter(|bed| bed.left.load(Ordering::Acquire) == 0).collect();
        let outcome = Mutex::new(Outcome::default());
        let workers = if lanes.len() * LANE_WORKERS > WORKERS_MAX { 1 } else { LANE_WORKERS };
        let mut jobs: Vec<Job<'_>> = Vec::new();
        for _ in 0..workers {
            for lane in &lanes {
                let (beds, outcome) = (&beds, &outcome);
                jobs.push(Box::new(move || self.work(lane, beds, outcome, rebuild)));
            }
        }
        self.env.tasks.run_waiting(jobs);
        idle.into_iter().for_each(|bed| self.finish(bed, &outcome, rebuild));
        let Outcome { report, error } = outcome.into_inner().expect("no job panics");
        error.map_or(Ok(report), Err)
    }

    /// A place for a segment, if it can be mended.
    fn bed<'s>(&self, id: SegmentId, sums: &'s [[u8; Checksums::SIZE]]) -> Option<Bed<'s>> {
        let (row, slot, row_units) = {
            let state = self.read_state();
            let row = state.table.rows.get(&id).filter(|row| !row.open)?;
            if state.table.sums.get(&id).is_some_and(|pending| *pending != sums) {
                // It was moved, or closed, since the last commit, and what is stored speaks of what was before.
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
        Some(Bed { id, row, slot, chunk, rows, sums, columns, left: AtomicUsize::new(0) })
    }

    /// The lanes of all devices that hold columns, each in the order of its slots (N4).
    fn lanes(&self, beds: &[Bed<'_>]) -> Vec<Lane> {
        let mut lanes: Vec<(DeviceId, Vec<Stop>)> = Vec::new();
        for (bed, place) in beds.iter().map(|bed| &bed.row.place).enumerate() {
            for (column, Column { device, slot }) in place.present() {
                if !self.is_in_use(device) {
                    continue;
                }
                let stop = Stop { bed, column, slot };
                beds[bed].left.fetch_add(1, Ordering::AcqRel);
                match lanes.iter_mut().find(|(known, _)| *known == device) {
                    Some((_, stops)) => stops.push(stop),
                    None => lanes.push((device, vec![stop])),
                }
            }
        }
        let lane = |(device, mut stops): (DeviceId, Vec<Stop>)| {
            stops.sort_by_key(|stop| stop.slot);
            Lane { device, queue: Mutex::new(stops.into()) }
        };
        lanes.into_iter().map(lane).collect()
    }

    /// Reads and compares columns of a lane until there are no more.
    fn work(&self, lane: &Lane, beds: &[Bed<'_>], outcome: &Mutex<Outcome>, rebuild: bool) {
        while let Some((stop, bytes)) = self.take(lane, beds) {
            let bed = &beds[stop.bed];
            self.compare(lane, bed, stop.column, bytes);
            if bed.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.finish(bed, outcome, rebuild);
            }
        }
    }

    /// Compares what was read of a column, and counts what is wrong against its device.
    fn compare(&self, lane: &Lane, bed: &Bed<'_>, column: usize, bytes: Option<Buffer>) {
        let Some(bytes) = bytes else { return };
        let wrong = bed.wrong(column, &bytes);
        for (row, wrong) in &wrong {
            let offset = u32::try_from(row * bed.chunk).expect("within a column");
            self.devices[&lane.device].counters.rejected(Address { segment: bed.id, offset }, *wrong);
        }
        *lock(&bed.columns[column]) = Read { bytes: Some(bytes), wrong };
    }

    /// Reads all columns of one segment and compares them, and changes nothing.
    pub(crate) fn examine(
        &self,
        id: SegmentId,
        sums: &[[u8; Checksums::SIZE]],
        report: &mut Mended,
    ) -> Option<Patient> {
        let beds = [self.bed(id, sums)?];
        for lane in &self.lanes(&beds) {
            while let Some((stop, bytes)) = self.take(lane, &beds) {
                self.compare(lane, &beds[0], stop.column, bytes);
            }
        }
        Some(beds[0].patient(report))
    }

    /// Reads the next column of a lane, while nobody else reads of it. The bytes are nothing if it could not be read.
    fn take(&self, lane: &Lane, beds: &[Bed<'_>]) -> Option<(Stop, Option<Buffer>)> {
        let mut queue = lock(&lane.queue);
        let stop = queue.pop_front()?;
        let bed = &beds[stop.bed];
        let place = Place { segment: bed.id, slot: stop.slot, slot_size: bed.slot };
        let mut bytes = Buffer::to_fill(bed.rows * bed.chunk);
        let read = self.read_place(lane.device, place, 0, &mut bytes);
        Some((stop, read.is_ok().then_some(bytes)))
    }

    /// All columns of a segment that can be read were: mends it (N5).
    fn finish(&self, bed: &Bed<'_>, outcome: &Mutex<Outcome>, rebuild: bool) {
        let mut report = Mended::default();
        let mended = self.mend_patient(bed.patient(&mut report), bed.sums, rebuild, &mut report);
        let mut outcome = lock(outcome);
        outcome.report.add(&report);
        if let Err(error) = mended {
            outcome.error.get_or_insert(error);
        }
    }
}

impl Bed<'_> {
    /// Rows of a column that do not have their checksums, and what is wrong with them.
    fn wrong(&self, column: usize, bytes: &[u8]) -> Vec<(usize, Wrong)> {
        let per_row = Checksums::per_row(&self.row.place);
        let wrong = |(row, bytes): (usize, &[u8])| {
            let sum = self.sums.get(row * per_row + if per_row == 1 { 0 } else { column })?;
            let found = checksum(bytes);
            (found != *sum).then(|| (row, what_is_wrong(bytes, &found, self.sums)))
        };
        bytes.chunks(self.chunk).enumerate().filter_map(wrong).collect()
    }

    /// What was read of all columns, taken out of the bed.
    fn patient(&self, report: &mut Mended) -> Patient {
        let mut columns = Vec::with_capacity(self.columns.len());
        let mut bad: Vec<Vec<usize>> = vec![Vec::new(); self.rows];
        let mut all_wrong = Vec::new();
        for (index, read) in self.columns.iter().enumerate() {
            let Read { bytes, wrong } = std::mem::take(&mut *lock(read));
            match &bytes {
                None => bad.iter_mut().for_each(|columns| columns.push(index)),
                Some(bytes) => {
                    report.read_bytes += bytes.len() as u64;
                    wrong.iter().for_each(|(row, _)| bad[*row].push(index));
                    all_wrong.extend(wrong.into_iter().map(|(row, wrong)| (index, row, wrong)));
                }
            }
            columns.push(bytes);
        }
        let Bed { id, row, slot, chunk, rows, .. } = self;
        let (row, wrong) = (row.clone(), all_wrong);
        Patient { id: *id, row, slot: *slot, chunk: *chunk, rows: *rows, columns, bad, wrong }
    }
}
