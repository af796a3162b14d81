//! Proof of stored bytes by sample: chunks of columns, drawn at random and read from their devices,
//! and copies of blocks read from one device. Redundancy gives nothing here, and no cache does.
//!
//! ## Invariants
//! [prove.1] A byte of a device is drawn as often as any other one that checksums prove: living and
//!     dead ones, data and parity.
//!     `Space::draw_chunks`, test: `each_chunk_is_drawn_as_often_as_its_bytes`
//! [prove.2] Wrong bytes count only if their segment lies there still once they were read: a slot
//!     may be given to another segment meanwhile, and a segment's id never is.
//!     `Space::prove_chunk`, `Space::prove_copy`
//! [prove.3] No lock is held while a device reads.

use std::collections::BTreeMap;
use std::ops::Range;

use steadfast_device::{Buffer, SegmentPlace};
use steadfast_format::{Address, Checksums, Column, DeviceId, Placement, SegmentId};
use steadfast_vdev::Layout;
use steadfast_vdev::parity::{Reconstruction, generate};

use crate::Class;
use crate::accounting::Wrong;
use crate::groups;
use crate::read::{Located, same_places};
use crate::redundant::checksum;
use crate::row::Row;
use crate::space::{Space, State};

/// Places looked up for one sample: each time its segment must have moved meanwhile.
const LOOKUPS_MAX: usize = 4;

/// A chunk of a column that was drawn.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct DrawnChunk {
    /// Where it lies.
    pub device: DeviceId,
    slot: u32,
    row: u32,
    /// Its segment.
    pub segment: SegmentId,
    column: u8,
    chunk: u32,
    slot_size: u32,
    per_row: u8,
    rows_per_part: u8,
}

impl DrawnChunk {
    /// Where it begins in its column.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.row * self.chunk
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.chunk
    }

    /// Part of the segment's checksums that has its own.
    #[must_use]
    pub fn part(&self) -> u32 {
        self.row / u32::from(self.rows_per_part)
    }

    /// Which of that part it is.
    #[must_use]
    pub fn index(&self) -> usize {
        let column = if self.per_row == 1 { 0 } else { usize::from(self.column) };
        (self.row % u32::from(self.rows_per_part)) as usize * usize::from(self.per_row) + column
    }
}

/// Result of a sample.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Proof {
    /// The device gave the bytes that were written.
    Held,
    /// It gave other bytes.
    Wrong,
    /// It gave none.
    Unreadable(String),
    /// Nothing of it lies there any more: it says nothing of the device.
    Gone,
}

/// Bytes that devices hold, by what proves them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Provable {
    /// Bytes that checksums of chunks prove, by device.
    pub chunks: BTreeMap<DeviceId, u64>,
    /// Bytes of living blocks that only a pointer proves.
    pub by_pointer: u64,
    /// Bytes of segments that a stream still appends to: nothing proves them now.
    pub open: u64,
    /// The same of devices that are away, and of segments whose checksums no commit has yet.
    pub unproven: u64,
}

/// Which bytes of a device's chunks are asked for, by their numbers, in order.
pub type Positions = BTreeMap<DeviceId, Vec<u64>>;

impl Space {
    /// Draws chunks. `choose` hears how many bytes each device has, and says which of them are
    /// asked for: numbers below that, in rising order. Everything is of one moment.
    pub fn draw_chunks(&self, choose: &mut dyn FnMut(&Provable) -> Positions) -> (Provable, Vec<DrawnChunk>) {
        let state = self.read_state();
        let mut provable = Provable::default();
        for (id, row) in &state.table.rows {
            self.count(&state, *id, row, &mut provable);
        }
        let positions = choose(&provable);
        let mut drawn = Vec::new();
        if positions.values().all(Vec::is_empty) {
            return (provable, drawn);
        }
        // Bytes passed on each device, and numbers drawn of them.
        let mut passed: BTreeMap<DeviceId, (u64, usize)> = BTreeMap::new();
        for (id, row) in &state.table.rows {
            if !is_summed(&state, *id, row) {
                continue;
            }
            let chunk = self.chunk_of(row);
            let rows = row.filled.div_ceil(state.table.row_units(row));
            let bytes = u64::from(rows) * u64::from(chunk);
            for (column, Column { device, slot }) in row.place.present() {
                let Some(wanted) = positions.get(&device).filter(|_| self.is_in_use(device)) else {
                    continue;
                };
                let (before, next) = passed.entry(device).or_default();
                while let Some(position) = wanted.get(*next).filter(|position| **position < *before + bytes) {
                    let at = (position - *before) / u64::from(chunk);
                    drawn.push(DrawnChunk {
                        device,
                        slot,
                        row: u32::try_from(at).expect("a row of a column"),
                        segment: *id,
                        column: u8::try_from(column).expect("at most 32 columns"),
                        chunk,
                        slot_size: state.table.column_bytes(&row.place),
                        per_row: u8::try_from(Checksums::per_row(&row.place)).expect("at most 32"),
                        rows_per_part: u8::try_from(Checksums::rows_per_part(&row.place))
                            .expect("at most 128"),
                    });
                    *next += 1;
                }
                *before += bytes;
            }
        }
        (provable, drawn)
    }

    fn count(&self, state: &State, id: SegmentId, row: &Row, provable: &mut Provable) {
        if row.class == Class::Log {
            return;
        }
        let chunk = u64::from(self.chunk_of(row));
        let bytes = u64::from(row.filled.div_ceil(state.table.row_units(row))) * chunk;
        let summed = is_summed(state, id, row);
        let living = u64::from(row.live) * u64::from(self.geometry().unit);
        for (_, Column { device, .. }) in row.place.present() {
            let is_there = self.is_in_use(device);
            match row.place {
                _ if summed && is_there => *provable.chunks.entry(device).or_default() += bytes,
                _ if row.open => provable.open += bytes,
                _ if summed || !is_by_pointer(row) => provable.unproven += bytes,
                _ if !is_there => provable.unproven += share(&row.place, living),
                _ => provable.by_pointer += share(&row.place, living),
            }
        }
    }

    /// Reads a chunk from its device, and compares it with its checksum, which `sum` looks up.
    pub fn prove_chunk(
        &self,
        drawn: &DrawnChunk,
        sum: &mut dyn FnMut() -> Option<[u8; Checksums::SIZE]>,
    ) -> Proof {
        if !self.lies(drawn) {
            return Proof::Gone;
        }
        let Some(wanted) = sum() else { return Proof::Gone };
        let DrawnChunk { device, segment, slot, slot_size, .. } = *drawn;
        let mut bytes = Buffer::to_fill(drawn.chunk as usize);
        let place = SegmentPlace { segment, slot, slot_size };
        let read = self.read_place(device, place, drawn.offset(), &mut bytes);
        if read.is_ok() && checksum(&bytes) == wanted {
            return Proof::Held;
        }
        // [prove.2]
        if !self.lies(drawn) || sum() != Some(wanted) {
            return Proof::Gone;
        }
        match read {
            Ok(()) => {
                let address = Address { segment, offset: drawn.offset() };
                self.note_wrong(device, address, &bytes);
                Proof::Wrong
            }
            Err(error) => Proof::Unreadable(error.to_string()),
        }
    }

    /// Counts wrong bytes against a device, as a scrub does.
    fn note_wrong(&self, device: DeviceId, address: Address, bytes: &[u8]) {
        let wrong = if steadfast_format::is_zero(bytes) { Wrong::Stale } else { Wrong::Hash };
        self.devices[&device].counters.rejected(address, wrong);
    }

    /// True if a chunk's segment still lies where it was drawn.
    fn lies(&self, drawn: &DrawnChunk) -> bool {
        let state = self.read_state();
        let Some(row) = state.table.rows.get(&drawn.segment) else { return false };
        let column = row.place.columns().nth(usize::from(drawn.column)).flatten();
        let is_it = column == Some(Column { device: drawn.device, slot: drawn.slot });
        is_it
            && is_summed(&state, drawn.segment, row)
            && self.chunk_of(row) == drawn.chunk
            && state.table.column_bytes(&row.place) == drawn.slot_size
            && self.is_in_use(drawn.device)
    }

    /// Places of a copy of a block that only its pointer proves: device, segment, and the bytes
    /// there that are the block's. A row of parity counts with each block of the row, for its share
    /// of the row's data.
    pub fn places_by_pointer(&self, address: Address, len: usize) -> Vec<(DeviceId, SegmentId, u32, u64)> {
        let padded = self.geometry().units(len) * self.geometry().unit as usize;
        let parts = self.locate(address, padded).unwrap_or_default();
        let mut places = Vec::new();
        for part in parts.iter().filter(|part| part.open.is_none()) {
            let is_it = self.read_state().table.rows.get(&part.segment).is_some_and(is_by_pointer);
            if !is_it {
                continue;
            }
            let bytes = share(&part.place, part.bytes as u64);
            for (_, Column { device, .. }) in part.place.present() {
                if self.is_in_use(device) {
                    places.push((device, part.segment, part.offset, bytes));
                }
            }
        }
        places
    }

    /// Reads a copy of a block as far as it can from one device, and has it judged. Of raidz all
    /// columns of its rows are read, and the parity must be theirs.
    pub fn prove_copy(
        &self,
        device: DeviceId,
        (address, len): (Address, usize),
        judge: &dyn Fn(&[u8]) -> bool,
    ) -> Proof {
        let padded = self.geometry().units(len) * self.geometry().unit as usize;
        let mut before: Option<Vec<Located>> = None;
        let (mut failure, mut wrong) = (Proof::Gone, None);
        for _ in 0..LOOKUPS_MAX {
            let Ok(parts) = self.locate(address, padded) else { return Proof::Gone };
            let lies_here = |part: &Located| part.place.present().any(|(_, column)| column.device == device);
            if !parts.iter().any(lies_here) || parts.iter().any(|part| part.open.is_some()) {
                return Proof::Gone;
            }
            if before.as_ref().is_some_and(|before| same_places(before, &parts)) {
                break;
            }
            match self.read_directly(device, &parts, padded) {
                Ok((bytes, fits)) if fits && judge(&bytes[..len]) => return Proof::Held,
                Ok((bytes, _)) => {
                    failure = Proof::Wrong;
                    wrong = Some(bytes);
                }
                Err(reason) => failure = Proof::Unreadable(reason),
            }
            before = Some(parts);
        }
        if !self.is_in_use(device) {
            return Proof::Gone;
        }
        // Of raidz it is not known which column is wrong before the rest was computed.
        let is_row = |part: &Located| matches!(part.place, Placement::Raidz { .. });
        if let (Proof::Wrong, Some(bytes), Some(parts)) = (&failure, wrong, before)
            && !parts.iter().any(is_row)
        {
            self.note_wrong(device, address, &bytes);
        }
        failure
    }

    /// Bytes of parts as they lie, and whether the parity beside them is theirs.
    fn read_directly(
        &self,
        device: DeviceId,
        parts: &[Located],
        len: usize,
    ) -> Result<(Buffer, bool), String> {
        let mut bytes = Buffer::to_fill(len);
        let (mut rest, mut fits) = (&mut bytes[..], true);
        for part in parts {
            let (out, after) = rest.split_at_mut(part.bytes);
            rest = after;
            let place = |slot| SegmentPlace { segment: part.segment, slot, slot_size: part.column };
            match groups::layout(&part.place) {
                Layout::Mirror => {
                    let in_use = |column: &Column| self.is_in_use(column.device);
                    let there = || part.place.present().map(|(_, column)| column).filter(in_use);
                    let here = there().find(|column| column.device == device);
                    let Some(Column { device, slot }) = here.or_else(|| there().next()) else {
                        return Err("no column of it is there".to_owned());
                    };
                    let read = self.read_place(device, place(slot), part.offset, out);
                    read.map_err(|error| error.to_string())?;
                }
                Layout::Raidz(stripe) => {
                    let start = part.offset as usize;
                    let rows = stripe.rows(&(start..start + part.bytes));
                    let mut columns: Vec<Option<Buffer>> = vec![None; stripe.columns()];
                    for (index, Column { device: other, slot }) in part.place.present() {
                        let mut column = Buffer::to_fill(rows.len());
                        let offset = u32::try_from(rows.start).expect("within a column");
                        match self.read_place(other, place(slot), offset, &mut column) {
                            Ok(()) => columns[index] = Some(column),
                            Err(error) if other == device => return Err(error.to_string()),
                            // The rest may do without it.
                            Err(_) => {}
                        }
                    }
                    fill_up(&mut columns, (stripe.data(), stripe.parity()), rows.len());
                    fits &= is_parity_right(&columns, stripe.data());
                    for piece in stripe.pieces(start..start + part.bytes) {
                        let Some(column) = &columns[piece.column] else {
                            return Err(format!("column {} of it is not there", piece.column));
                        };
                        let at = piece.at - rows.start;
                        let within: Range<usize> = at..at + piece.bytes.len();
                        out[piece.bytes].copy_from_slice(&column[within]);
                    }
                }
            }
        }
        Ok((bytes, fits))
    }
}

/// Computes columns of data that are not there from the others, if these are enough. Then the block
/// has its hash only if all that were read for it are right.
fn fill_up(columns: &mut [Option<Buffer>], (data, parity): (usize, usize), bytes: usize) {
    let missing: Vec<usize> = (0..columns.len()).filter(|at| columns[*at].is_none()).collect();
    let wanted: Vec<usize> = missing.iter().copied().filter(|at| *at < data).collect();
    if wanted.is_empty() {
        return;
    }
    let Some(repair) = Reconstruction::new(data, parity, &missing, &wanted) else { return };
    let mut computed: Vec<Buffer> = wanted.iter().map(|_| Buffer::zeroed(bytes)).collect();
    {
        let sources = repair.sources().iter().map(|at| columns[*at].as_deref());
        let Some(sources) = sources.collect::<Option<Vec<&[u8]>>>() else { return };
        repair.run(&sources, &mut computed.iter_mut().map(|column| &mut column[..]).collect::<Vec<_>>());
    }
    wanted.into_iter().zip(computed).for_each(|(at, column)| columns[at] = Some(column));
}

/// True if a row's parity is that of its data, as far as all of it is there.
fn is_parity_right(columns: &[Option<Buffer>], data: usize) -> bool {
    let (data, parity) = columns.split_at(data);
    let Some(data) = data.iter().map(Option::as_deref).collect::<Option<Vec<&[u8]>>>() else { return true };
    let mut computed: Vec<Vec<u8>> = parity.iter().map(|_| vec![0; data[0].len()]).collect();
    generate(&data, &mut computed.iter_mut().map(|column| &mut column[..]).collect::<Vec<_>>());
    let stored = parity.iter().zip(&computed);
    stored
        .into_iter()
        .all(|(stored, computed)| stored.as_ref().is_none_or(|stored| stored[..] == computed[..]))
}

/// True if each chunk of a segment has a checksum that a commit has stored.
fn is_summed(state: &State, id: SegmentId, row: &Row) -> bool {
    !row.open && state.table.sum_parts(row) > 0 && !state.table.sums.contains_key(&id)
}

/// True if only pointers prove what a segment holds: on a single device, and of the pool's own
/// metadata.
fn is_by_pointer(row: &Row) -> bool {
    row.class.is_pool() || matches!(row.place, Placement::Plain(_))
}

/// Bytes that each column has for so many bytes of blocks.
fn share(place: &Placement, bytes: u64) -> u64 {
    match place {
        Placement::Plain(_) | Placement::Mirror(_) => bytes,
        Placement::Raidz { parity, columns, .. } => {
            bytes / (columns.len() - usize::from(*parity)).max(1) as u64
        }
    }
}
