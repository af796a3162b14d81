//! Mending: the scrub and resilver of redundant segments. A segment is read whole, and each chunk
//! of each column is compared with its checksum. Wrong chunks are reconstructed from the others and
//! rewritten; missing columns are built on other devices. No key is needed, as the checksums are of
//! the stored bytes.
//!
//! Like ZFS's `dsl_scan` over a raidz or mirror, but by segment and column: block pointers are not
//! followed.
//!
//! Segments of the pool's own metadata have no checksums. Before they are mended, each of their
//! living blocks is read against its hash, which repairs the data columns ([`Space::read`]) and all
//! copies of a mirror ([`Space::make_alike`]). Mending then computes their parity anew, and makes
//! the copies of dead units alike.
//!
//! ## Invariants
//! [mend.1] Nothing is written that does not have the checksum it should have.
//!      `rebuild`
//! [mend.2] A column is written into a slot that is free, on a device that holds no other column of
//!      the segment; the row names it in the same commit whose flush makes it durable.
//!      `Space::mend_all`
//! [mend.3] Sync context only: no segment leaves the table and no slot changes hands meanwhile.

use std::collections::BTreeMap;
use std::ops::Range;

use steadfast_device::{Buffer, SegmentPlace};
use steadfast_format::{Checksums, Column, DeviceId, Placement, SegmentId};
use steadfast_vdev::parity::{Reconstruction, generate};
use steadfast_vdev::{Layout, Stripe};

use crate::Class;
use crate::accounting::Wrong;
use crate::error::Error;
use crate::groups;
use crate::redundant::checksum;
use crate::row::Row;
use crate::space::{Space, State, lock};

/// Segments on each side of those that are mended, among which bytes are looked for that lie in a
/// wrong place.
const BESIDE: usize = 8;

/// Result of mending.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Mended {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes that were wrong and are right again.
    pub repaired_bytes: u64,
    /// Bytes of columns built anew.
    pub rebuilt_bytes: u64,
    /// Bytes of rows that have more wrong columns than redundancy makes up for.
    pub lost_bytes: u64,
    /// The same of segments that hold copies of content: another copy may be right.
    pub lost_copies: u64,
    /// Columns that are still missing: no device has room for them.
    pub missing: u32,
}

impl Mended {
    /// Adds what was done elsewhere.
    pub fn add(&mut self, other: &Mended) {
        self.read_bytes += other.read_bytes;
        self.repaired_bytes += other.repaired_bytes;
        self.rebuilt_bytes += other.rebuilt_bytes;
        self.lost_bytes += other.lost_bytes;
        self.lost_copies += other.lost_copies;
        self.missing += other.missing;
    }
}

/// A segment under repair.
pub(crate) struct SegmentRepair {
    pub id: SegmentId,
    pub row: Row,
    /// Bytes of a slot where it lies.
    pub slot: u32,
    pub chunk: usize,
    pub rows: usize,
    /// Bytes of its columns; `None` where nothing could be read.
    pub columns: Vec<Option<Buffer>>,
    /// By row: columns that are not what they should be.
    pub bad: Vec<Vec<usize>>,
    /// Chunks with another checksum than theirs: column, row, and what is wrong.
    pub wrong: Vec<(usize, usize, Wrong)>,
}

impl Space {
    /// Segments that [`Space::mend_all`] has something to look at: of several columns, closed. With
    /// `incomplete` those only that have a column missing or on a device out of use.
    #[must_use]
    pub fn mendable(&self, incomplete: bool) -> Vec<SegmentId> {
        let state = self.read_state();
        let rows = state.table.rows.iter().filter(|(_, row)| {
            let redundant = state.table.is_redundant(row) && row.class != Class::Log;
            redundant && !row.open && (!incomplete || self.is_incomplete(&state.table, row))
        });
        rows.map(|(id, _)| *id).collect()
    }

    /// Ends segments that are open and miss a column, or have one on a device that leaves: what is
    /// appended next goes to whole ones, and these can be mended once a commit knows their
    /// checksums. Sync context only.
    pub fn close_incomplete(&self) -> Result<(), Error> {
        self.close_streams(|space, id| {
            let state = space.read_state();
            state
                .table
                .rows
                .get(&id)
                .is_some_and(|row| state.table.is_redundant(row) && space.is_incomplete(&state.table, row))
        })
    }

    /// Ends all open segments of several columns. Sync context only.
    pub fn close_redundant(&self) -> Result<(), Error> {
        self.close_streams(|space, id| {
            let state = space.read_state();
            state.table.rows.get(&id).is_some_and(|row| !matches!(row.place, Placement::Plain(_)))
        })
    }

    /// Ends all open segments, so that what lies of them on devices is read from there. Sync
    /// context only.
    pub fn close_open(&self) -> Result<(), Error> {
        self.close_streams(|_, _| true)
    }

    /// The log has no segments from the next commit on, whose root must not name any. Sync context
    /// only.
    pub fn drop_log(&self) {
        let _sync = lock(&self.sync);
        let mut state = self.write_state();
        let logs: Vec<(SegmentId, u32)> = state
            .table
            .rows
            .iter()
            .filter(|(_, row)| row.class == Class::Log)
            .map(|(id, row)| (*id, row.filled))
            .collect();
        for (id, units) in logs {
            state.table.kill(id, 0, units).expect("the log lives from end to end");
        }
    }

    /// Segments with checksums whose numbers come shortly before and after these: they were written
    /// at about the same time, and lie beside them where slots were free in a row.
    #[must_use]
    pub fn beside(&self, first: SegmentId, last: SegmentId) -> Vec<SegmentId> {
        let state = self.read_state();
        let rows = &state.table.rows;
        let fit = |(id, row): (&SegmentId, &Row)| (state.table.sum_parts(row) > 0).then_some(*id);
        let before = rows.range(..first).rev().filter_map(fit).take(BESIDE);
        before.chain(rows.range(SegmentId(last.0 + 1)..).filter_map(fit).take(BESIDE)).collect()
    }

    pub(crate) fn is_incomplete(&self, table: &crate::table::Table, row: &Row) -> bool {
        !table.is_fit(row)
            || row.place.columns().any(|column| column.is_none_or(|column| !self.stays(table, column.device)))
    }

    /// Whether a column may stay on a device.
    fn stays(&self, table: &crate::table::Table, device: DeviceId) -> bool {
        self.is_in_use(device) && table.may_stay(device)
    }

    /// Bytes that the columns of a segment hold; 0 if it is not there any more.
    #[must_use]
    pub fn stored_bytes(&self, id: SegmentId) -> u64 {
        let state = self.read_state();
        state.table.rows.get(&id).map_or(0, |row| {
            let rows = row.filled.div_ceil(state.table.row_units(row));
            u64::from(rows) * u64::from(self.chunk_of(row)) * row.place.columns().count() as u64
        })
    }

    /// Bytes that the columns of all segments but those of the log hold on each device, living and
    /// dead ones. On a store of whole objects they are what lies there, besides labels and roots:
    /// the log writes into room that it was given, and no object is made for that.
    #[must_use]
    pub fn stored_by_device(&self) -> BTreeMap<DeviceId, u64> {
        let state = self.read_state();
        let mut sums = BTreeMap::new();
        for row in state.table.rows.values().filter(|row| row.class != Class::Log) {
            let bytes = self.bytes_a_column(&state, row);
            for column in row.place.columns().flatten() {
                *sums.entry(column.device).or_default() += bytes;
            }
        }
        sums
    }

    /// Segments that lie on a device of whole objects, each with the bytes of its object there.
    #[must_use]
    pub fn objects_on(&self, device: DeviceId) -> Vec<(SegmentId, u64)> {
        let state = self.read_state();
        let rows = state.table.rows.iter().filter(|(_, row)| row.class != Class::Log && !row.open);
        let lies = rows.filter(|(_, row)| row.place.columns().flatten().any(|at| at.device == device));
        lies.map(|(id, row)| (*id, self.bytes_a_column(&state, row))).collect()
    }

    /// Bytes that each column of a segment holds.
    fn bytes_a_column(&self, state: &State, row: &Row) -> u64 {
        match row.place {
            Placement::Raidz { chunk_shift, .. } => {
                u64::from(row.filled.div_ceil(state.table.row_units(row))) << chunk_shift
            }
            _ => u64::from(row.filled) * u64::from(self.geometry.unit),
        }
    }

    pub(crate) fn chunk_of(&self, row: &Row) -> u32 {
        match &row.place {
            Placement::Raidz { chunk_shift, .. } => 1 << chunk_shift,
            _ => groups::chunk_bytes(row.class, self.geometry),
        }
    }

    /// Bytes of a segment up to its fill mark; 0 if it is not there any more.
    #[must_use]
    pub fn filled_bytes(&self, id: SegmentId) -> u64 {
        let state = self.read_state();
        state.table.rows.get(&id).map_or(0, |row| u64::from(row.filled) * u64::from(self.geometry.unit))
    }

    /// Parts of its checksums that a segment should have; 0 if it has none or is not there any
    /// more.
    #[must_use]
    pub fn checksum_parts(&self, id: SegmentId) -> u32 {
        let state = self.read_state();
        state.table.rows.get(&id).map_or(0, |row| state.table.sum_parts(row))
    }

    /// Checksums that a segment should have at least; 0 if it has none or is not there any more.
    pub(crate) fn checksums_wanted(&self, id: SegmentId) -> usize {
        let state = self.read_state();
        state.table.rows.get(&id).filter(|row| state.table.sum_parts(row) > 0).map_or(0, |row| {
            let rows = row.filled.div_ceil(state.table.row_units(row)) as usize;
            rows * Checksums::per_row(&row.place)
        })
    }

    /// Computes what is wrong or missing of a segment that was read, and writes it.
    pub(crate) fn mend_read(
        &self,
        mut repair: SegmentRepair,
        sums: &[[u8; Checksums::SIZE]],
        report: &mut Mended,
    ) -> Result<(), Error> {
        let before = report.lost_bytes;
        let rebuilt = repair.rebuild(sums, report);
        let lost = report.lost_bytes - before;
        if lost > 0 {
            self.note_unreadable(repair.id);
        }
        if repair.row.owner.copy().is_some() {
            report.lost_bytes = before;
            report.lost_copies += lost;
        }
        if !self.is_healing() {
            return Ok(());
        }
        let replaced = self.replace_columns(&repair, report);
        self.write_back(&repair, &rebuilt, report);
        replaced
    }

    /// Writes rows that were computed to where they were wrong, if the segment's row still names
    /// the place: what was just built elsewhere is not needed where it was.
    fn write_back(&self, repair: &SegmentRepair, rebuilt: &[(usize, Range<usize>)], report: &mut Mended) {
        let SegmentRepair { id, row, slot, chunk, .. } = repair;
        for (index, rows) in rebuilt {
            let column = row.place.columns().nth(*index).flatten();
            let named = self.column_of(*id, *index);
            let stays = |column: &Column| self.is_in_use(column.device) && named == Some(*column);
            let Some(Column { device, slot: at }) = column.filter(stays) else {
                continue;
            };
            let Some(bytes) = repair.columns.get(*index).and_then(Option::as_ref) else { continue };
            let handle = &self.devices[&device];
            let place = SegmentPlace { segment: *id, slot: at, slot_size: *slot };
            let bytes = &bytes[rows.start * chunk..rows.end * chunk];
            let offset = u32::try_from(rows.start * chunk).expect("within a column");
            let written =
                handle.device(device).and_then(|device| device.append_segment(place, offset, bytes));
            handle.counters.wrote(bytes.len(), written.is_ok());
            if written.is_ok() {
                handle.counters.repaired(bytes.len());
                report.repaired_bytes += bytes.len() as u64;
            }
        }
    }

    /// Where a column of a segment lies by now.
    fn column_of(&self, id: SegmentId, index: usize) -> Option<Column> {
        self.read_state().table.rows.get(&id)?.place.columns().nth(index).flatten()
    }

    /// Builds missing columns on other devices [mend.2]: first those of devices that leave. Where
    /// others are away, too, and there is room for some only, a replacement would have no end
    /// otherwise.
    fn replace_columns(&self, repair: &SegmentRepair, report: &mut Mended) -> Result<(), Error> {
        let whole = repair.bad.iter().all(|bad| bad.len() <= repair.row.place.redundancy());
        let mut absent: Vec<(bool, usize)> = {
            let table = &self.read_state().table;
            let columns = repair.row.place.columns().enumerate();
            let absent =
                columns.filter(|(_, column)| column.is_none_or(|column| !self.stays(table, column.device)));
            let is_left =
                |column: Option<Column>| column.is_some_and(|column| !table.may_stay(column.device));
            absent.map(|(index, column)| (!is_left(column), index)).collect()
        };
        absent.sort_unstable();
        for (_, index) in absent {
            let Some(bytes) = repair.columns[index].as_ref().filter(|_| whole) else {
                report.missing += 1;
                continue;
            };
            let target = self.write_state().table.take_spare_column(repair.id);
            let Some(target) = target else {
                report.missing += 1;
                continue;
            };
            let Column { device, slot } = target;
            let handle = &self.devices[&device];
            let place = SegmentPlace { segment: repair.id, slot, slot_size: repair.slot };
            let written = handle.device(device).and_then(|device| device.append_segment(place, 0, bytes));
            handle.counters.wrote(bytes.len(), written.is_ok());
            match written {
                Ok(()) => {
                    self.write_state().table.set_column(repair.id, index, target);
                    report.rebuilt_bytes += bytes.len() as u64;
                }
                Err(source) => {
                    self.write_state().table.unclaim_slot(target);
                    report.missing += 1;
                    self.give_up_or_fail(device, source)?;
                }
            }
        }
        Ok(())
    }

    /// Columns on a device that rows name, in memory, in the last committed root or in the
    /// checkpoint's.
    #[must_use]
    pub fn columns_on(&self, device: DeviceId) -> u64 {
        let state = self.read_state();
        let table = &state.table;
        let emptied = table.emptied.values().map(|emptied| &emptied.row);
        let named = |row: &&Row| row.place.present().any(|(_, column)| column.device == device);
        let rows = table.rows.values().chain(emptied).chain(table.kept.rows.values()).filter(named).count();
        let kept = table.kept.columns.keys().filter(|column| column.device == device).count();
        (rows + kept) as u64 + u64::from(state.table.lost_on(device))
    }

    /// Columns on a device that rows name in memory: what else [`Space::columns_on`] counts is gone
    /// with the next commits.
    #[must_use]
    pub fn columns_named_on(&self, device: DeviceId) -> u64 {
        let state = self.read_state();
        let named = |row: &&Row| row.place.present().any(|(_, column)| column.device == device);
        state.table.rows.values().filter(named).count() as u64
    }
}

impl SegmentRepair {
    /// Computes what is wrong or missing from the rest, and checks it [mend.1]. Gives the columns
    /// and rows that hold other bytes than before.
    pub fn rebuild(
        &mut self,
        sums: &[[u8; Checksums::SIZE]],
        report: &mut Mended,
    ) -> Vec<(usize, Range<usize>)> {
        let layout = groups::layout(&self.row.place);
        let mut changed = Vec::new();
        let mut at = 0;
        while at < self.rows {
            let bad = self.bad[at].clone();
            let end = (at..self.rows).find(|&row| self.bad[row] != bad).unwrap_or(self.rows);
            let rows = at..end;
            at = end;
            let done = match layout {
                _ if bad.len() > self.row.place.redundancy() => false,
                _ if bad.is_empty() => true,
                Layout::Mirror => self.copy(&bad, rows.clone(), sums),
                Layout::Raidz(stripe) => self.compute(stripe, &bad, rows.clone(), sums),
            };
            if done {
                changed.extend(bad.into_iter().map(|column| (column, rows.clone())));
            } else {
                report.lost_bytes += (rows.len() * self.chunk) as u64;
            }
        }
        match layout {
            _ if !self.row.class.is_pool() => {}
            Layout::Raidz(stripe) => changed.extend(self.parity_anew(stripe)),
            Layout::Mirror => changed.extend(self.dead_alike()),
        }
        changed
    }

    fn room(&mut self, column: usize) -> &mut Buffer {
        let bytes = self.rows * self.chunk;
        self.columns[column].get_or_insert_with(|| Buffer::zeroed(bytes))
    }

    /// These bytes are those of a column from row `first` on.
    fn put(&mut self, column: usize, first: usize, bytes: Buffer) {
        if bytes.len() == self.rows * self.chunk {
            self.columns[column] = Some(bytes);
            return;
        }
        let begin = first * self.chunk;
        self.room(column)[begin..begin + bytes.len()].copy_from_slice(&bytes);
    }

    fn copy(&mut self, bad: &[usize], rows: Range<usize>, sums: &[[u8; Checksums::SIZE]]) -> bool {
        let bytes = rows.start * self.chunk..rows.end * self.chunk;
        let good = (0..self.columns.len())
            .find_map(|column| self.columns[column].as_ref().filter(|_| !bad.contains(&column)));
        let Some(good) = good else { return false };
        let source = Buffer::gather(&[&good[bytes]]);
        if !fits(&source, self.chunk, sums, 1, 0, rows.start) {
            return false;
        }
        let (last, others) = bad.split_last().expect("a row without a bad copy is not copied");
        others.iter().for_each(|&column| self.put(column, rows.start, source.clone()));
        self.put(*last, rows.start, source);
        true
    }

    fn compute(
        &mut self,
        stripe: Stripe,
        bad: &[usize],
        rows: Range<usize>,
        sums: &[[u8; Checksums::SIZE]],
    ) -> bool {
        let bytes = rows.start * self.chunk..rows.end * self.chunk;
        let Some(repair) = Reconstruction::new(stripe.data(), stripe.parity(), bad, bad) else {
            return false;
        };
        let mut computed: Vec<Buffer> = bad.iter().map(|_| Buffer::to_fill(bytes.len())).collect();
        {
            let source = |&column: &usize| self.columns[column].as_ref().map(|column| &column[bytes.clone()]);
            let Some(sources) = repair.sources().iter().map(source).collect::<Option<Vec<&[u8]>>>() else {
                return false;
            };
            repair.run(&sources, &mut computed.iter_mut().map(|column| &mut column[..]).collect::<Vec<_>>());
        }
        let right = bad.iter().zip(&computed).all(|(&column, computed)| {
            fits(computed, self.chunk, sums, stripe.columns(), column, rows.start)
        });
        if right {
            bad.iter().zip(computed).for_each(|(&column, computed)| self.put(column, rows.start, computed));
        }
        right
    }

    /// Copies of dead units, which nobody will judge, become like the first that there is: so
    /// copies that differ are of living blocks. Which rows of them changed.
    fn dead_alike(&mut self) -> Vec<(usize, Range<usize>)> {
        let mut changed = Vec::new();
        // Chunks of such a segment are units.
        let is_dead =
            |row: &usize| self.row.dead.count(u32::try_from(*row).expect("within a segment"), 1) > 0;
        let dead: Vec<usize> = (0..self.rows).filter(is_dead).collect();
        for row in dead {
            let at = row * self.chunk..(row + 1) * self.chunk;
            let first =
                self.columns.iter().flatten().next().map(|bytes| Buffer::gather(&[&bytes[at.clone()]]));
            let Some(first) = first else { break };
            for column in 0..self.columns.len() {
                let held = self.columns[column].as_ref().map(|bytes| &bytes[at.clone()]);
                if held.is_some_and(|held| *held != first[..]) {
                    self.put(column, row, first.clone());
                    changed.push((column, row..row + 1));
                }
            }
        }
        changed
    }

    /// Parity of data columns that were read by judgement before; which rows of it changed.
    fn parity_anew(&mut self, stripe: Stripe) -> Vec<(usize, Range<usize>)> {
        let data: Option<Vec<&[u8]>> = self.columns[..stripe.data()].iter().map(Option::as_deref).collect();
        let Some(data) = data else { return Vec::new() };
        let mut parity: Vec<Buffer> =
            (0..stripe.parity()).map(|_| Buffer::to_fill(self.rows * self.chunk)).collect();
        generate(&data, &mut parity.iter_mut().map(|column| &mut column[..]).collect::<Vec<_>>());
        let mut changed = Vec::new();
        for (index, computed) in parity.into_iter().enumerate() {
            let column = stripe.data() + index;
            let Some(stored) = &self.columns[column] else { continue };
            let differs = |row: &usize| {
                let bytes = row * self.chunk..(row + 1) * self.chunk;
                stored[bytes.clone()] != computed[bytes]
            };
            let rows: Vec<usize> = (0..self.rows).filter(differs).collect();
            self.put(column, 0, computed);
            changed.extend(rows.into_iter().map(|row| (column, row..row + 1)));
        }
        changed
    }
}

/// The fault of a chunk with a wrong checksum. `is_elsewhere` says whether it belongs in another
/// place.
pub(crate) fn what_is_wrong(bytes: &[u8], is_elsewhere: impl FnOnce() -> bool) -> Wrong {
    if steadfast_format::is_zero(bytes) {
        Wrong::Stale
    } else if is_elsewhere() {
        Wrong::Misplaced
    } else {
        Wrong::Hash
    }
}

/// Whether chunks of a column from row `first` on have their checksums; true where there are none.
fn fits(
    bytes: &[u8],
    chunk: usize,
    sums: &[[u8; Checksums::SIZE]],
    per_row: usize,
    column: usize,
    first: usize,
) -> bool {
    bytes.chunks(chunk).enumerate().all(|(row, bytes)| {
        let sum = sums.get((first + row) * per_row + if per_row == 1 { 0 } else { column });
        sum.is_none_or(|sum| checksum(bytes) == *sum)
    })
}
