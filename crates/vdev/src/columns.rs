//! # Columns of one segment, in a mirror or in raidz
//!
//! Writes rows with their parity, and reads bytes under a caller's judgement: [`Columns::read`]
//! tries copies, then reconstructs columns from the others, until the caller's function accepts the
//! bytes, and reports the wrong columns. Blocks and their hashes are unknown here.
//!
//! Like ZFS's `vdev_raidz_reconstruct` (and combinatorial reconstruction, `vdev_raidz_combrec`) and
//! `vdev_mirror`, but a stripe is a row of a segment and not a block: rows are written whole, so
//! there is no partial stripe and no padding by block.
//!
//! ## Invariants
//! [columns.1] A row is written once, whole, with its parity: no read before a write, no moment in
//!      which what was durable before has parity that does not fit.
//!      assert: `write`
//! [columns.2] A read gives bytes that were accepted, or an error. Up to p columns (n - 1 copies)
//!      that are missing, unreadable or wrong in any way do not keep it from that.
//!      test: `columns/tests.rs`
//! [columns.3] Only bytes that were accepted are written back, and only where something else was
//!      read: other bytes of the same rows may have been computed from columns that are wrong
//!      there.
//! [columns.4] A column that was given as missing is neither read nor written.
//!
//! ## Cost
//! A read that is accepted at once: a transfer for each column that holds some of it. Otherwise all
//! columns of its rows are read once (again, or for the first time if the caller gives what it
//! read: [`Columns::attempts_behind`]), and sets of columns taken to be wrong are tried, smallest
//! first: at most the sum over j <= p of C(k + p, j), each one pass of the parity kernel over the
//! wanted part and one judgement. Sets that cannot change the bytes asked for are left out.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use steadfast_device::{Buffer, Error as DeviceError, SegmentPlace, SharedDevice};
use steadfast_env::{Job, Tasks};

use crate::parity::{Reconstruction, generate};
use crate::stripe::Stripe;

/// Writes of fewer bytes, parity included, are not worth waking threads for: the kernel takes them
/// into memory.
const TOGETHER_BYTES_MIN: usize = 256 << 10;

/// One column: a device, and where on it the column lies.
#[derive(Clone)]
pub struct Column {
    /// Its device.
    pub device: SharedDevice,
    /// Where there; `slot_size` is the size of a column.
    pub place: SegmentPlace,
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
pub struct Columns {
    layout: Layout,
    /// Copy of a mirror that is read first.
    first: usize,
    /// `None` where the device is gone, or known not to have what was written.
    columns: Vec<Option<Column>>,
}

/// Fault of a column.
#[derive(Debug)]
pub enum Fault {
    /// Its device failed.
    Device(DeviceError),
    /// It held other bytes than those that were accepted.
    Wrong,
    /// It held zeros where something was written: the write never came there, or the device was
    /// wiped.
    Blank,
}

impl Fault {
    /// Of a column that held `bytes` where others were accepted.
    fn of(bytes: &[u8]) -> Fault {
        if bytes.iter().all(|byte| *byte == 0) { Fault::Blank } else { Fault::Wrong }
    }
}

/// Checksum of every chunk that is written, parity included.
pub struct Summing<S> {
    /// Bytes of a chunk; those of a row, where there are rows.
    pub chunk: usize,
    /// Makes it.
    pub sum: fn(&[u8]) -> S,
}

impl<S> Clone for Summing<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Summing<S> {}

/// The end of the write of one column.
struct ColumnWritten<S> {
    index: usize,
    failed: Option<DeviceError>,
    sums: Vec<S>,
}

/// Bytes that several threads look at.
pub trait Look: Send + Sync {
    /// Lets `see` see them.
    fn look(&self, see: &mut dyn FnMut(&[u8]));
}

impl<T: AsRef<[u8]> + Send + Sync> Look for T {
    fn look(&self, see: &mut dyn FnMut(&[u8])) {
        see(self.as_ref());
    }
}

/// A part of such bytes.
#[derive(Clone)]
pub struct Part {
    all: Arc<dyn Look>,
    range: Range<usize>,
}

impl Part {
    /// The bytes of a range.
    #[must_use]
    pub fn new(all: Arc<dyn Look>, range: Range<usize>) -> Part {
        Part { all, range }
    }

    /// How many they are.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.range.len()
    }

    fn look(&self, see: &mut dyn FnMut(&[u8])) {
        self.all.look(&mut |all| see(&all[self.range.clone()]));
    }
}

/// Gives the bytes of a column, in buffers that lie one behind the other, to a write.
type Source = Box<dyn FnOnce(&mut dyn FnMut(&[&[u8]])) + Send>;

/// Result of a write.
#[derive(Debug)]
#[must_use = "columns that failed have to be told"]
pub struct Written<S> {
    /// Columns that did not take their bytes, and what their devices said.
    pub failed: Vec<(usize, DeviceError)>,
    /// Of every chunk, row by row, by column, whether it was written or not; of a mirror once.
    pub sums: Vec<S>,
}

/// A column that was found to be wrong.
#[derive(Debug)]
pub struct Finding {
    /// Which column.
    pub column: usize,
    /// The fault.
    pub fault: Fault,
    /// True if it holds the right bytes now: they were written back.
    pub repaired: bool,
}

/// Result of a read.
#[derive(Debug)]
pub struct Found<T> {
    /// The result of the judgement.
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

impl Columns {
    /// # Panics
    /// If the layout wants another number of columns.
    #[must_use]
    pub fn new(layout: Layout, columns: Vec<Option<Column>>) -> Columns {
        match layout {
            Layout::Mirror => assert!(!columns.is_empty(), "a mirror has a copy"),
            Layout::Raidz(stripe) => assert_eq!(columns.len(), stripe.columns(), "columns of a stripe"),
        }
        Columns { layout, first: 0, columns }
    }

    /// The same, where reads of a mirror begin with copy `first`, modulo their number: so large
    /// reads spread over the copies.
    #[must_use]
    pub fn starting_at(self, first: usize) -> Columns {
        let first = first % self.columns.len();
        Columns { first, ..self }
    }

    /// Columns that are there.
    #[must_use]
    pub fn present_count(&self) -> usize {
        self.columns.iter().flatten().count()
    }

    /// Columns that may fail without loss, if all are there.
    #[must_use]
    pub fn redundancy(&self) -> usize {
        match self.layout {
            Layout::Mirror => self.columns.len() - 1,
            Layout::Raidz(stripe) => stripe.parity(),
        }
    }

    /// Writes bytes of the segment from `offset` on: whole rows, all columns at once. If the
    /// columns that did not take them and the missing ones are more than the redundancy, what was
    /// written is lost, and the caller must not go on.
    ///
    /// # Panics
    /// If the bytes are not whole rows [columns.1].
    pub fn write<S: Send + 'static>(
        &self,
        offset: usize,
        bytes: &Part,
        summing: Option<Summing<S>>,
        tasks: &dyn Tasks,
    ) -> Written<S> {
        match self.layout {
            Layout::Mirror => {
                let source = |_: usize| -> Source {
                    let bytes = bytes.clone();
                    Box::new(move |write| bytes.look(&mut |bytes| write(&[bytes])))
                };
                let all = bytes.bytes() * self.columns.len();
                self.write_columns((offset, all), summing.map(|summing| (summing, 1)), tasks, source)
            }
            Layout::Raidz(stripe) => {
                let range = offset..offset + bytes.bytes();
                let whole = offset.is_multiple_of(stripe.row()) && bytes.bytes().is_multiple_of(stripe.row());
                assert!(whole, "a row is written once, whole [columns.1]");
                let rows = stripe.rows(&range);
                let mut parity: Vec<Buffer> =
                    (0..stripe.parity()).map(|_| Buffer::to_fill(rows.len())).collect();
                bytes.look(&mut |bytes| {
                    for (row, data) in bytes.chunks(stripe.row()).enumerate() {
                        let chunks: Vec<&[u8]> = data.chunks(stripe.chunk()).collect();
                        let at = row * stripe.chunk()..(row + 1) * stripe.chunk();
                        let mut parity: Vec<&mut [u8]> =
                            parity.iter_mut().map(|column| &mut column[at.clone()]).collect();
                        generate(&chunks, &mut parity);
                    }
                });
                let parity: Vec<Arc<Buffer>> = parity.into_iter().map(Arc::new).collect();
                let source = |column: usize| -> Source {
                    if let Some(index) = column.checked_sub(stripe.data()) {
                        let parity = Arc::clone(&parity[index]);
                        return Box::new(move |write| write(&[&parity[..]]));
                    }
                    let bytes = bytes.clone();
                    Box::new(move |write| {
                        bytes.look(&mut |bytes| {
                            let at = column * stripe.chunk()..(column + 1) * stripe.chunk();
                            let rows = bytes.chunks(stripe.row());
                            write(&rows.map(|row| &row[at.clone()]).collect::<Vec<&[u8]>>());
                        });
                    })
                };
                let summing = summing.map(|summing| (summing, stripe.columns()));
                self.write_columns((rows.start, rows.len() * stripe.columns()), summing, tasks, source)
            }
        }
    }

    /// Writes what each column gets, from `at` on, `length` bytes together, and makes a sum of
    /// every chunk of the first so many columns, whether they are there or not. `source` gives what
    /// a column gets: it calls the write with buffers that lie one behind the other.
    fn write_columns<S: Send + 'static>(
        &self,
        (at, length): (usize, usize),
        summing: Option<(Summing<S>, usize)>,
        tasks: &dyn Tasks,
        source: impl Fn(usize) -> Source,
    ) -> Written<S> {
        let outcomes: Arc<Mutex<Vec<ColumnWritten<S>>>> = Arc::default();
        let job = |(index, column): (usize, &Option<Column>)| -> Job<'static> {
            let (column, source, outcomes) = (column.clone(), source(index), Arc::clone(&outcomes));
            let summing = summing.filter(|(_, summed)| index < *summed).map(|(summing, _)| summing);
            Box::new(move || {
                source(&mut |parts| {
                    // A column hashed first keeps one processor busy while others wait for their
                    // devices.
                    let sums = summing.map_or_else(Vec::new, |Summing { chunk, sum }| {
                        parts.iter().flat_map(|part| part.chunks(chunk)).map(sum).collect()
                    });
                    let failed = column.as_ref().and_then(|Column { device, place }| {
                        device.append_segment_parts(*place, offset32(at), parts).err()
                    });
                    let outcome = ColumnWritten { index, failed, sums };
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
                });
            })
        };
        let jobs: Vec<Job<'static>> = self.columns.iter().enumerate().map(job).collect();
        if length >= TOGETHER_BYTES_MIN {
            tasks.run_owned(jobs);
        } else {
            jobs.into_iter().for_each(|job| job());
        }
        let mut outcomes = std::mem::take(&mut *outcomes.lock().unwrap_or_else(PoisonError::into_inner));
        outcomes.sort_by_key(|outcome| outcome.index);
        let (mut failed, mut sums) = (Vec::new(), Vec::new());
        for ColumnWritten { index, failed: error, sums: column } in outcomes {
            failed.extend(error.map(|error| (index, error)));
            sums.push(column);
        }
        Written { failed, sums: by_row(sums) }
    }

    /// Reads `len` bytes from `offset` on and gives what `judge` makes of them [columns.2].
    pub fn read<T, E>(
        &self,
        offset: usize,
        len: usize,
        judge: &mut Judge<'_, T, E>,
    ) -> Result<Found<T>, Lost<E>> {
        let mut attempts = self.attempts(offset, len);
        let mut rejected = None;
        while let Some(bytes) = attempts.next() {
            // The caller's check takes the bytes; a caller that may have to write them elsewhere
            // keeps a copy.
            let kept = (!attempts.is_untroubled()).then(|| bytes.to_vec());
            match judge(bytes) {
                Ok(value) => {
                    let findings = kept.map_or_else(Vec::new, |kept| attempts.accept(&kept, true));
                    return Ok(Found { value, findings });
                }
                Err(verdict) => {
                    rejected.get_or_insert(verdict);
                }
            }
        }
        Err(Lost { rejected, failed: attempts.failed })
    }

    /// Possible versions of `len` bytes from `offset` on, one after the other.
    #[must_use]
    pub fn attempts(&self, offset: usize, len: usize) -> Attempts<'_> {
        let range = offset..offset + len;
        Attempts {
            columns: self,
            range,
            taken: 0,
            failed: Vec::new(),
            read: Vec::new(),
            lies: None,
            rows: None,
            sets: Vec::new(),
            again: false,
        }
    }

    /// The same after [`Columns::read_straight`] gave wrong bytes, from `copy`: that version is
    /// left out, and nothing of it is read again before all others were given.
    #[must_use]
    pub fn attempts_behind(&self, offset: usize, copy: usize, rejected: Buffer) -> Attempts<'_> {
        let mut attempts = self.attempts(offset, rejected.len());
        match self.layout {
            Layout::Mirror => {
                // If the device of a copy before it failed, that is to be told.
                if self.present().next().is_some_and(|(first, _)| first == copy) {
                    let count = self.columns.len();
                    attempts.taken = (copy + count - self.first) % count + 1;
                    attempts.read.push((copy, rejected));
                    attempts.again = true;
                }
            }
            Layout::Raidz(_) => {
                attempts.taken = 1;
                attempts.lies = Some(rejected);
                attempts.again = true;
            }
        }
        attempts
    }

    /// Reads the stored bytes into `outs`, one behind the other, if all columns that hold some can
    /// be read. The caller checks them, and asks for [`Columns::attempts`] if they are wrong. Gives
    /// which copy of a mirror it was. The error names the column and its device's error; nothing,
    /// if the column is missing.
    pub fn read_straight(
        &self,
        offset: usize,
        outs: &mut [&mut [u8]],
    ) -> Result<usize, (usize, Option<DeviceError>)> {
        match self.layout {
            Layout::Mirror => {
                let mut last = None;
                for (index, Column { device, place }) in self.present() {
                    match device.read_segment_parts(*place, offset32(offset), outs) {
                        Ok(()) => return Ok(index),
                        Err(error) => last = Some((index, Some(error))),
                    }
                }
                Err(last.unwrap_or((0, None)))
            }
            Layout::Raidz(stripe) => {
                let mut parts: Vec<(usize, Vec<&mut [u8]>)> = Vec::new();
                parts.resize_with(stripe.data(), Default::default);
                let mut at = offset;
                for out in outs {
                    let mut rest = &mut out[..];
                    for piece in stripe.pieces(at..at + rest.len()) {
                        let (part, after) = rest.split_at_mut(piece.bytes.len());
                        rest = after;
                        at += part.len();
                        let (begin, of_column) = &mut parts[piece.column];
                        if of_column.is_empty() {
                            *begin = piece.at;
                        }
                        of_column.push(part);
                    }
                }
                // Nothing is read in vain if a column is missing that holds some.
                if let Some(index) =
                    (0..parts.len()).find(|&at| !parts[at].1.is_empty() && self.columns[at].is_none())
                {
                    return Err((index, None));
                }
                for (index, (at, parts)) in parts.iter_mut().enumerate().filter(|(_, (_, p))| !p.is_empty()) {
                    let Some(Column { device, place }) = &self.columns[index] else {
                        return Err((index, None));
                    };
                    let read = device.read_segment_parts(*place, offset32(*at), parts);
                    read.map_err(|error| (index, Some(error)))?;
                }
                Ok(0)
            }
        }
    }

    /// Reads bytes of which nobody here knows what they should be, if all columns fit together:
    /// copies alike, parity as it should be. `None` if they do not, or one is missing or cannot be
    /// read.
    #[must_use]
    pub fn read_consistent(&self, offset: usize, len: usize) -> Option<Buffer> {
        match self.layout {
            Layout::Mirror => {
                let mut first: Option<Buffer> = None;
                for column in &self.columns {
                    let mut bytes = Buffer::to_fill(len);
                    fetch(column.as_ref()?, offset, &mut bytes).ok()?;
                    match &first {
                        Some(first) if first[..] != bytes[..] => return None,
                        Some(_) => {}
                        None => first = Some(bytes),
                    }
                }
                first
            }
            Layout::Raidz(stripe) => {
                let part = stripe.rows(&(offset..offset + len));
                let mut read = Vec::with_capacity(self.columns.len());
                for column in &self.columns {
                    let mut bytes = Buffer::to_fill(part.len());
                    fetch(column.as_ref()?, part.start, &mut bytes).ok()?;
                    read.push(bytes);
                }
                let (columns, stored) = read.split_at(stripe.data());
                let mut parity: Vec<Buffer> = stored.iter().map(|_| Buffer::to_fill(part.len())).collect();
                let data: Vec<&[u8]> = columns.iter().map(|column| &column[..]).collect();
                generate(&data, &mut parity.iter_mut().map(|column| &mut column[..]).collect::<Vec<_>>());
                if parity.iter().zip(stored).any(|(computed, stored)| computed[..] != stored[..]) {
                    return None;
                }
                let mut bytes = Buffer::with_capacity(len);
                for piece in stripe.pieces(offset..offset + len) {
                    let at = piece.at - part.start;
                    bytes.extend(&columns[piece.column][at..at + piece.bytes.len()]);
                }
                Some(bytes)
            }
        }
    }

    /// Columns that are there, the first to be read first.
    fn present(&self) -> impl Iterator<Item = (usize, &Column)> {
        let count = self.columns.len();
        let order = (0..count).map(move |at| (self.first + at) % count);
        order.filter_map(|index| Some((index, self.columns[index].as_ref()?)))
    }
}

/// The rows of a range, as they were read; `None` where a column could not be.
type Rows = Vec<Option<Buffer>>;

/// Versions of a range of bytes, the likeliest first: as it lies, from other copies, and with every
/// set of columns that could be wrong computed from the others. A version that is accepted goes to
/// [`Attempts::accept`].
pub struct Attempts<'c> {
    columns: &'c Columns,
    range: Range<usize>,
    /// Versions given or found to be impossible so far.
    taken: usize,
    failed: Vec<(usize, DeviceError)>,
    /// Copies of a mirror that were given.
    read: Vec<(usize, Buffer)>,
    /// Bytes of a raidz segment that the caller has read.
    lies: Option<Buffer>,
    /// Of a raidz segment, once the bytes as they lie did not do.
    rows: Option<Rows>,
    /// Sets of columns taken to be missing, yet to be tried, the last first.
    sets: Vec<Vec<usize>>,
    /// The bytes as they lie are to be given at last: the caller had read them before, and a device
    /// may have erred once.
    again: bool,
}

impl Attempts<'_> {
    /// The next version.
    #[allow(clippy::should_implement_trait, reason = "an iterator could not be asked about what it gave")]
    pub fn next(&mut self) -> Option<Buffer> {
        match self.columns.layout {
            Layout::Mirror => self.next_copy(),
            Layout::Raidz(stripe) => self.next_of(stripe),
        }
    }

    /// True if the version given last is the first, as it lies, and nothing failed on the way.
    #[must_use]
    pub fn is_untroubled(&self) -> bool {
        self.taken == 1 && self.failed.is_empty()
    }

    /// Columns that could not be read.
    #[must_use]
    pub fn failed(&self) -> &[(usize, DeviceError)] {
        &self.failed
    }

    /// The bytes are these: says in which columns something else was read, and if `repair`, writes
    /// them back there [columns.3].
    #[must_use]
    pub fn accept(self, accepted: &[u8], repair: bool) -> Vec<Finding> {
        assert_eq!(accepted.len(), self.range.len(), "the bytes that were asked for");
        match self.columns.layout {
            Layout::Mirror => self.accept_copy(accepted, repair),
            Layout::Raidz(stripe) => self.accept_rows(stripe, accepted, repair),
        }
    }

    fn next_copy(&mut self) -> Option<Buffer> {
        loop {
            let count = self.columns.columns.len();
            if self.taken >= count {
                return self.once_more();
            }
            let index = (self.columns.first + self.taken) % count;
            self.taken += 1;
            let Some(column) = &self.columns.columns[index] else { continue };
            let mut bytes = Buffer::to_fill(self.range.len());
            match fetch(column, self.range.start, &mut bytes) {
                Err(error) => self.failed.push((index, error)),
                Ok(()) if self.read.iter().any(|(_, read)| read[..] == bytes[..]) => {
                    self.read.push((index, bytes));
                }
                Ok(()) => {
                    self.read.push((index, Buffer::from(bytes.to_vec())));
                    return Some(bytes);
                }
            }
        }
    }

    fn accept_copy(self, accepted: &[u8], repair: bool) -> Vec<Finding> {
        let unread = self.failed.into_iter().map(|(column, error)| (column, Fault::Device(error)));
        let wrong = self.read.iter().filter(|(_, bytes)| bytes[..] != *accepted);
        let wrong = wrong.map(|(column, bytes)| (*column, Fault::of(bytes)));
        let findings = unread.chain(wrong).map(|(column, fault)| {
            let place = self.columns.columns[column].as_ref().expect("it was read");
            Finding { column, fault, repaired: repair && append(place, self.range.start, accepted).is_ok() }
        });
        findings.collect()
    }

    fn next_of(&mut self, stripe: Stripe) -> Option<Buffer> {
        self.taken += 1;
        if self.taken == 1 {
            let mut bytes = Buffer::to_fill(self.range.len());
            if self.columns.read_straight(self.range.start, &mut [&mut bytes]).is_ok() {
                return Some(bytes);
            }
            self.taken += 1;
        }
        if self.rows.is_none() {
            self.read_rows(stripe);
        }
        while let Some(missing) = self.sets.pop() {
            let bytes = self.reconstruct(stripe, &missing);
            if bytes.is_some() {
                return bytes;
            }
        }
        self.once_more()
    }

    fn once_more(&mut self) -> Option<Buffer> {
        if !std::mem::take(&mut self.again) {
            return None;
        }
        let mut bytes = Buffer::to_fill(self.range.len());
        self.columns.read_straight(self.range.start, &mut [&mut bytes]).ok()?;
        Some(bytes)
    }

    /// Reads all columns of the rows, but for what is known of them, and lists the sets of columns
    /// that may be wrong.
    fn read_rows(&mut self, stripe: Stripe) {
        let part = stripe.rows(&self.range);
        let columns = self.columns.columns.iter().enumerate().map(|(index, column)| {
            let column = column.as_ref()?;
            let known = self.lies.as_ref().and_then(|lies| among(lies, &self.range, stripe, index, &part));
            if known.is_some() {
                return known;
            }
            let mut bytes = Buffer::to_fill(part.len());
            match fetch(column, part.start, &mut bytes) {
                Ok(()) => Some(bytes),
                Err(error) => {
                    self.failed.push((index, error));
                    None
                }
            }
        });
        let rows: Rows = columns.collect();
        let (present, unknown): (Vec<usize>, Vec<usize>) =
            (0..stripe.columns()).partition(|&column| rows[column].is_some());
        if unknown.len() <= stripe.parity() {
            let touched = self.touched(stripe);
            // Taking a column that holds nothing of this to be wrong changes nothing of what was
            // given before, unless it is parity that something is computed from.
            let computes = |missing: &Vec<usize>| touched.iter().any(|column| missing.contains(column));
            let all = subsets(&present, stripe.parity() - unknown.len()).into_iter().map(|suspects| {
                let mut missing: Vec<usize> = unknown.iter().chain(&suspects).copied().collect();
                missing.sort_unstable();
                missing
            });
            self.sets = all.filter(computes).collect();
            self.sets.reverse();
        }
        self.rows = Some(rows);
    }

    /// Data columns that hold some of the range.
    fn touched(&self, stripe: Stripe) -> Vec<usize> {
        let mut columns: Vec<usize> = stripe.pieces(self.range.clone()).map(|piece| piece.column).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The bytes, those of `missing` columns computed from the others.
    fn reconstruct(&self, stripe: Stripe, missing: &[usize]) -> Option<Buffer> {
        let rows = self.rows.as_ref().expect("rows were read");
        let wanted: Vec<usize> =
            self.touched(stripe).into_iter().filter(|column| missing.contains(column)).collect();
        let mut computed: Vec<Buffer> = Vec::new();
        if !wanted.is_empty() {
            let repair = Reconstruction::new(stripe.data(), stripe.parity(), missing, &wanted)?;
            let sources = repair.sources().iter().map(|&column| rows[column].as_deref());
            let sources: Vec<&[u8]> = sources.collect::<Option<_>>()?;
            let length = stripe.rows(&self.range).len();
            computed = wanted.iter().map(|_| Buffer::to_fill(length)).collect();
            repair.run(&sources, &mut computed.iter_mut().map(|column| &mut column[..]).collect::<Vec<_>>());
        }
        let begin = stripe.rows(&self.range).start;
        let mut bytes = Buffer::with_capacity(self.range.len());
        for piece in stripe.pieces(self.range.clone()) {
            let column = match wanted.iter().position(|&column| column == piece.column) {
                Some(index) => &computed[index],
                None => rows[piece.column].as_ref()?,
            };
            let at = piece.at - begin;
            bytes.extend(&column[at..at + piece.bytes.len()]);
        }
        Some(bytes)
    }

    fn accept_rows(mut self, stripe: Stripe, accepted: &[u8], repair: bool) -> Vec<Finding> {
        if self.rows.is_none() {
            self.read_rows(stripe);
        }
        let rows = self.rows.expect("read just now");
        let begin = stripe.rows(&self.range).start;
        let mut faults: Vec<(usize, Fault)> =
            self.failed.into_iter().map(|(column, error)| (column, Fault::Device(error))).collect();
        for piece in stripe.pieces(self.range.clone()) {
            let read = rows[piece.column].as_ref();
            let at = piece.at - begin;
            let read = read.map(|read| &read[at..at + piece.bytes.len()]);
            let wrong = read.filter(|read| **read != accepted[piece.bytes.clone()]);
            if let Some(wrong) = wrong
                && !faults.iter().any(|(column, _)| *column == piece.column)
            {
                faults.push((piece.column, Fault::of(wrong)));
            }
        }
        let findings = faults.into_iter().map(|(index, fault)| {
            let pieces: Vec<_> =
                stripe.pieces(self.range.clone()).filter(|piece| piece.column == index).collect();
            // Of a column that holds nothing of the range there is nothing known to be right.
            let repaired = repair
                && !pieces.is_empty()
                && self.columns.columns[index].as_ref().is_some_and(|Column { device, place }| {
                    // They follow each other in the column.
                    let parts: Vec<&[u8]> =
                        pieces.iter().map(|piece| &accepted[piece.bytes.clone()]).collect();
                    device.append_segment_parts(*place, offset32(pieces[0].at), &parts).is_ok()
                });
            Finding { column: index, fault, repaired }
        });
        findings.collect()
    }
}

/// The rows of a column, if all of them is among the bytes of a range as they lie.
fn among(
    lies: &[u8],
    range: &Range<usize>,
    stripe: Stripe,
    column: usize,
    rows: &Range<usize>,
) -> Option<Buffer> {
    let mut bytes = Buffer::with_capacity(rows.len());
    for piece in stripe.pieces(range.clone()).filter(|piece| piece.column == column) {
        if piece.at != rows.start + bytes.len() {
            return None;
        }
        bytes.extend(&lies[piece.bytes]);
    }
    (bytes.len() == rows.len()).then_some(bytes)
}

/// The parts of columns, row by row.
fn by_row<S>(columns: Vec<Vec<S>>) -> Vec<S> {
    let mut all = Vec::with_capacity(columns.iter().map(Vec::len).sum());
    let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
    loop {
        let before = all.len();
        all.extend(columns.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            return all;
        }
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

fn append(column: &Column, at: usize, bytes: &[u8]) -> Result<(), DeviceError> {
    column.device.append_segment(column.place, offset32(at), bytes)
}

fn fetch(column: &Column, at: usize, out: &mut [u8]) -> Result<(), DeviceError> {
    column.device.read_segment(column.place, offset32(at), out)
}

fn offset32(at: usize) -> u32 {
    u32::try_from(at).expect("segments are far below 4 GiB")
}

#[cfg(test)]
mod tests;
