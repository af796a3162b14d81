//! # Columns of one segment
//!
//! Writes rows with their parity, and reads bytes that somebody who knows them judges: [`Columns::read`] gives what the
//! caller's function accepts, from wherever it can be had, and says which columns were wrong. What a block means and whose
//! it is, nobody knows here: judgement comes in as a function.
//!
//! ## Invariants
//! (V1) A row is written once, whole, with its parity: no read before a write, no moment in which what was durable before has
//!      parity that does not fit.                        assert: `write`
//! (V2) A read gives bytes that were accepted, or an error. Up to p columns (n - 1 copies) that are missing, unreadable or wrong in
//!      any way do not keep it from that.                test: `columns/tests.rs`
//! (V3) Only bytes that were accepted are written back, and only where something else was read: other bytes of the same
//!      rows may have been computed from columns that are wrong there.
//! (V4) A column that was given as missing is neither read nor written.
//!
//! ## Cost
//! A read that is accepted at once: a transfer for each column that holds some of it. Otherwise all columns of its rows are read
//! once, and sets of columns taken to be wrong are tried, smallest first: at most the sum over j <= p of C(k + p, j), each one
//! pass of the parity kernel over the wanted part and one judgement. Sets that cannot change the bytes asked for are left out.

use std::ops::Range;

use steadfast_device::{Buffer, Device, Error as DeviceError, Place};

use crate::parity::{Repair, generate};
use crate::stripe::Stripe;

/// Place of one column.
#[derive(Clone, Copy)]
pub struct Column<'d> {
    /// Its device.
    pub device: &'d dyn Device,
    /// Where there; `slot_size` is the size of a column.
    pub place: Place,
}

/// How a segment's bytes are kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Layout {
    /// Every column holds all bytes: one column is a single device, several are a mirror.
    Mirror,
    /// Rows with parity.
    Raidz(Stripe),
}

/// The columns of a segment.
pub struct Columns<'d> {
    layout: Layout,
    /// `None` where the device is gone, or known not to have what was written.
    columns: Vec<Option<Column<'d>>>,
}

/// What is wrong with a column.
#[derive(Debug)]
pub enum Fault {
    /// Its device failed.
    Device(DeviceError),
    /// It held other bytes than those that were accepted.
    Wrong,
}

/// A column that was found to be wrong.
#[derive(Debug)]
pub struct Finding {
    /// Which column.
    pub column: usize,
    /// What is wrong.
    pub fault: Fault,
    /// True if it holds the right bytes now: they were written back.
    pub repaired: bool,
}

/// What a read gave.
#[derive(Debug)]
pub struct Found<T> {
    /// What the judgement made of the bytes.
    pub value: T,
    /// Columns that were wrong; empty for a segment in good health.
    pub findings: Vec<Finding>,
}

/// Why nothing was accepted.
#[derive(Debug)]
pub struct Lost<E> {
    /// The first judgement, if bytes could be had at all.
    pub rejected: Option<E>,
    /// Devices that failed, by column.
    pub failed: Vec<(usize, DeviceError)>,
}

/// Judges bytes: gives what they mean, or why they are not what was written.
pub type Judge<'j, T, E> = dyn FnMut(Buffer) -> Result<T, E> + 'j;

impl<'d> Columns<'d> {
    /// # Panics
    /// If the layout wants another number of columns.
    #[must_use]
    pub fn new(layout: Layout, columns: Vec<Option<Column<'d>>>) -> Columns<'d> {
        match layout {
            Layout::Mirror => assert!(!columns.is_empty(), "a mirror has a copy"),
            Layout::Raidz(stripe) => assert_eq!(columns.len(), stripe.columns(), "columns of a stripe"),
        }
        Columns { layout, columns }
    }

    /// Columns that may fail without loss, if all are there.
    #[must_use]
    pub fn redundancy(&self) -> usize {
        match self.layout {
            Layout::Mirror => self.columns.len() - 1,
            Layout::Raidz(stripe) => stripe.parity(),
        }
    }

    /// Writes bytes of the segment from `offset` on: whole rows. Gives the columns that did not take them; if those and the
    /// missing ones are more than the redundancy, what was written is lost, and the caller must not go on.
    ///
    /// # Panics
    /// If the bytes are not whole rows (V1).
    #[must_use = "columns that failed have to be told"]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Vec<(usize, DeviceError)> {
        let mut failed = Vec::new();
        let mut put = |index: usize, at: usize, bytes: &[u8]| {
            if let Some(column) = &self.columns[index] {
                failed.extend(append(column, at, bytes).err().map(|error| (index, error)));
            }
        };
        match self.layout {
            Layout::Mirror => (0..self.columns.len()).for_each(|index| put(index, offset, bytes)),
            Layout::Raidz(stripe) => {
                let range = offset..offset + bytes.len();
                let whole = offset.is_multiple_of(stripe.row()) && bytes.len().is_multiple_of(stripe.row());
                assert!(whole, "a row is written once, whole (V1)");
                let rows = stripe.rows(&range);
                let mut parity: Vec<Buffer> =
                    (0..stripe.parity()).map(|_| Buffer::to_fill(rows.len())).collect();
                for (row, data) in bytes.chunks(stripe.row()).enumerate() {
                    let chunks: Vec<&[u8]> = data.chunks(stripe.chunk()).collect();
                    let at = row * stripe.chunk()..(row + 1) * stripe.chunk();
                    let mut parity: Vec<&mut [u8]> =
                        parity.iter_mut().map(|column| &mut column[at.clone()]).collect();
                    generate(&chunks, &mut parity);
                }
                for index in 0..stripe.data() {
                    let mut column = Buffer::with_capacity(rows.len());
                    for row in bytes.chunks(stripe.row()) {
                        column.extend(&row[index * stripe.chunk()..(index + 1) * stripe.chunk()]);
                    }
                    put(index, rows.start, &column);
                }
                for (index, column) in parity.iter().enumerate() {
                    put(stripe.data() + index, rows.start, column);
                }
            }
        }
        failed
    }

    /// Reads `len` bytes from `offset` on and gives what `judge` makes of them (V2).
    pub fn read<T, E>(
        &self,
        offset: usize,
        len: usize,
        judge: &mut Judge<'_, T, E>,
    ) -> Result<Found<T>, Lost<E>> {
        match self.layout {
            Layout::Mirror => self.read_copies(offset, len, judge),
            Layout::Raidz(stripe) => {
                RaidzRead { columns: self, stripe, range: offset..offset + len }.read(judge)
            }
        }
    }

    fn read_copies<T, E>(
        &self,
        offset: usize,
        len: usize,
        judge: &mut Judge<'_, T, E>,
    ) -> Result<Found<T>, Lost<E>> {
        let mut lost = Lost { rejected: None, failed: Vec::new() };
        let mut wrong = Vec::new();
        for (index, column) in self.present() {
            let mut bytes = Buffer::to_fill(len);
            if let Err(error) = fetch(column, offset, &mut bytes) {
                lost.failed.push((index, error));
                continue;
            }
            // Judging takes the bytes; who may have to write them elsewhere keeps a copy.
            let kept = (!wrong.is_empty() || !lost.failed.is_empty()).then(|| bytes.to_vec());
            match judge(bytes) {
                Err(verdict) => {
                    wrong.push(index);
                    lost.rejected.get_or_insert(verdict);
                }
                Ok(value) => {
                    let repair = |index: usize| {
                        let column = self.columns[index].as_ref().expect("it was read");
                        kept.as_ref().is_some_and(|bytes| append(column, offset, bytes).is_ok())
                    };
                    let unread =
                        lost.failed.into_iter().map(|(column, error)| (column, Fault::Device(error)));
                    let wrong = wrong.into_iter().map(|column| (column, Fault::Wrong));
                    let findings = unread.chain(wrong).map(|(column, fault)| {
                        let repaired = repair(column);
                        Finding { column, fault, repaired }
                    });
                    return Ok(Found { value, findings: findings.collect() });
                }
            }
        }
        Err(lost)
    }

    fn present(&self) -> impl Iterator<Item = (usize, &Column<'d>)> {
        self.columns.iter().enumerate().filter_map(|(index, column)| Some((index, column.as_ref()?)))
    }
}

/// A read of a range of a raidz segment.
struct RaidzRead<'c, 'd> {
    columns: &'c Columns<'d>,
    stripe: Stripe,
    range: Range<usize>,
}

/// The rows of a range, as they were read; `None` where a column could not be.
struct Rows {
    columns: Vec<Option<Buffer>>,
    failed: Vec<(usize, DeviceError)>,
}

impl RaidzRead<'_, '_> {
    fn read<T, E>(&self, judge: &mut Judge<'_, T, E>) -> Result<Found<T>, Lost<E>> {
        let mut rejected = None;
        if let Some(bytes) = self.read_straight() {
            match judge(bytes) {
                Ok(value) => return Ok(Found { value, findings: Vec::new() }),
                Err(verdict) => rejected = Some(verdict),
            }
        }
        let rows = self.read_rows();
        let touched = self.touched();
        let unknown: Vec<usize> =
            (0..self.stripe.columns()).filter(|&column| rows.columns[column].is_none()).collect();
        let present: Vec<usize> =
            (0..self.stripe.columns()).filter(|&column| rows.columns[column].is_some()).collect();
        if unknown.len() <= self.stripe.parity() {
            for suspects in subsets(&present, self.stripe.parity() - unknown.len()) {
                // Taking a column that holds nothing of this to be wrong changes nothing of what was judged before, unless it is
                // parity that something is computed from.
                let computes =
                    touched.iter().any(|column| unknown.contains(column) || suspects.contains(column));
                let first = suspects.is_empty() && rejected.is_none();
                if !computes && !first {
                    continue;
                }
                let mut missing: Vec<usize> = unknown.iter().chain(&suspects).copied().collect();
                missing.sort_unstable();
                let Some(bytes) = self.compute(&rows, &missing) else { continue };
                let kept = bytes.to_vec();
                match judge(bytes) {
                    Err(verdict) => {
                        rejected.get_or_insert(verdict);
                    }
                    Ok(value) => return Ok(Found { value, findings: self.repair(rows, &kept) }),
                }
            }
        }
        Err(Lost { rejected, failed: rows.failed })
    }

    /// The bytes as they lie, if all columns that hold some can be read.
    fn read_straight(&self) -> Option<Buffer> {
        let mut bytes = Buffer::to_fill(self.range.len());
        let mut parts: Vec<(usize, Vec<&mut [u8]>)> = Vec::new();
        parts.resize_with(self.stripe.data(), Default::default);
        let mut rest = &mut bytes[..];
        for piece in self.stripe.pieces(self.range.clone()) {
            let (part, after) = rest.split_at_mut(piece.bytes.len());
            rest = after;
            let (at, of_column) = &mut parts[piece.column];
            if of_column.is_empty() {
                *at = piece.at;
            }
            of_column.push(part);
        }
        for (column, (at, parts)) in parts.iter_mut().enumerate().filter(|(_, (_, parts))| !parts.is_empty())
        {
            let Column { device, place } = self.columns.columns[column]?;
            device.read_segment_parts(place, offset32(*at), parts).ok()?;
        }
        Some(bytes)
    }

    fn read_rows(&self) -> Rows {
        let part = self.stripe.rows(&self.range);
        let mut failed = Vec::new();
        let columns = self.columns.columns.iter().enumerate().map(|(index, column)| {
            let mut bytes = Buffer::to_fill(part.len());
            match fetch(column.as_ref()?, part.start, &mut bytes) {
                Ok(()) => Some(bytes),
                Err(error) => {
                    failed.push((index, error));
                    None
                }
            }
        });
        let columns = columns.collect();
        Rows { columns, failed }
    }

    /// Data columns that hold some of the range.
    fn touched(&self) -> Vec<usize> {
        let mut columns: Vec<usize> =
            self.stripe.pieces(self.range.clone()).map(|piece| piece.column).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The bytes, those of `missing` columns computed from the others.
    fn compute(&self, rows: &Rows, missing: &[usize]) -> Option<Buffer> {
        let wanted: Vec<usize> =
            self.touched().into_iter().filter(|column| missing.contains(column)).collect();
        let mut computed: Vec<Buffer> = Vec::new();
        if !wanted.is_empty() {
            let repair = Repair::new(self.stripe.data(), self.stripe.parity(), missing, &wanted)?;
            let sources: Vec<&[u8]> = repair
                .sources()
                .iter()
                .map(|&column| rows.columns[column].as_deref())
                .collect::<Option<_>>()?;
            let length = self.stripe.rows(&self.range).len();
            computed = wanted.iter().map(|_| Buffer::to_fill(length)).collect();
            repair.run(&sources, &mut computed.iter_mut().map(|column| &mut column[..]).collect::<Vec<_>>());
        }
        let begin = self.stripe.rows(&self.range).start;
        let mut bytes = Buffer::with_capacity(self.range.len());
        for piece in self.stripe.pieces(self.range.clone()) {
            let column = match wanted.iter().position(|&column| column == piece.column) {
                Some(index) => &computed[index],
                None => rows.columns[piece.column].as_ref()?,
            };
            let at = piece.at - begin;
            bytes.extend(&column[at..at + piece.bytes.len()]);
        }
        Some(bytes)
    }

    /// Writes accepted bytes back to where something else was read (V3), and says which columns those were.
    fn repair(&self, rows: Rows, accepted: &[u8]) -> Vec<Finding> {
        let begin = self.stripe.rows(&self.range).start;
        let mut faults: Vec<(usize, Fault)> =
            rows.failed.into_iter().map(|(column, error)| (column, Fault::Device(error))).collect();
        for piece in self.stripe.pieces(self.range.clone()) {
            let read = rows.columns[piece.column].as_ref();
            let at = piece.at - begin;
            let wrong =
                read.is_some_and(|read| read[at..at + piece.bytes.len()] != accepted[piece.bytes.clone()]);
            if wrong && !faults.iter().any(|(column, _)| *column == piece.column) {
                faults.push((piece.column, Fault::Wrong));
            }
        }
        let findings = faults.into_iter().map(|(index, fault)| {
            let pieces: Vec<_> =
                self.stripe.pieces(self.range.clone()).filter(|piece| piece.column == index).collect();
            // Of a column that holds nothing of the range there is nothing known to be right.
            let repaired = !pieces.is_empty()
                && self.columns.columns[index].as_ref().is_some_and(|column| {
                    pieces
                        .iter()
                        .all(|piece| append(column, piece.at, &accepted[piece.bytes.clone()]).is_ok())
                });
            Finding { column: index, fault, repaired }
        });
        findings.collect()
    }
}

/// All subsets of at most `most` of `items`, the empty one first, smaller ones before larger ones.
fn subsets(items: &[usize], most: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..most {
        let until = all.len();
        for index in from..until {
            let last = all[index].last().copied();
            for &item in items.iter().filter(|&&item| last.is_none_or(|last| item > last)) {
                let mut larger = all[index].clone();
                larger.push(item);
                all.push(larger);
            }
        }
        from = until;
    }
    all
}

fn append(column: &Column<'_>, at: usize, bytes: &[u8]) -> Result<(), DeviceError> {
    column.device.append_segment(column.place, offset32(at), bytes)
}

fn fetch(column: &Column<'_>, at: usize, out: &mut [u8]) -> Result<(), DeviceError> {
    column.device.read_segment(column.place, offset32(at), out)
}

fn offset32(at: usize) -> u32 {
    u32::try_from(at).expect("segments are far below 4 GiB")
}

#[cfg(test)]
mod tests;
