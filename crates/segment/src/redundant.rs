//! Segments of several columns: written in whole rows. A read takes the stored bytes, and
//! reconstructs them from the other columns if they are wrong or missing.
//!
//! ## Invariants
//! [redundant.1] A row is written once, whole: what a commit needs of it is filled up with dead
//!      units first.
//!      `Space::pad_stream`
//! [redundant.2] Only bytes that the caller accepted are written back, only into a segment whose
//!      slots are taken all the while, and only by a pool that may write.
//!      `Space::heal`
//! [redundant.3] A device that failed is not asked again, and rows that were written since the last
//!      commit do not name it.
//!      `Space::give_up_device`

use std::sync::Arc;

use crate::accounting::Wrong;
use crate::devices::GivenUp;
use crate::error::Error;
use crate::groups;
use crate::read::Located;
use crate::space::Space;
use crate::stream::{Filling, OpenSegment, WRITE_BYTES};
use steadfast_crypto::hash;
use steadfast_device::{Buffer, Error as DeviceError, SegmentPlace};
use steadfast_env::Bug;
use steadfast_format::{Address, Checksums, Column, DeviceId, Placement, SegmentId};
use steadfast_vdev::{Columns, Fault, Finding, Part, Summing, Written};

/// Bytes that each device of a group gets in one transfer while a segment fills.
const COLUMN_BYTES: usize = 512 << 10;

/// Ways to put together a block whose parts each have several versions, at most.
const COMBINATIONS_MAX: usize = 4096;

impl Space {
    /// Columns of a segment on devices in use.
    pub(crate) fn columns(&self, segment: SegmentId, place: &Placement, column: u32) -> Columns {
        let of = |stored: Option<Column>| {
            let Column { device, slot } = stored?;
            let device = self.devices.get(device)?.in_use()?;
            Some(steadfast_vdev::Column { device, place: SegmentPlace { segment, slot, slot_size: column } })
        };
        Columns::new(groups::layout(place), place.columns().map(of).collect())
    }

    /// The same for a reader: which copy of a mirror is read first goes by the place, so that long
    /// reads go to all of them.
    pub(crate) fn columns_of(&self, part: &Located) -> Columns {
        self.columns(part.segment, &part.place, part.column).starting_at(first_copy(part))
    }

    /// Writes whole rows of an open redundant segment that its devices do not have, if they are at
    /// least `least` bytes.
    pub(crate) fn write_rows(&self, filling: &mut Filling, least: usize) -> Result<(), Error> {
        let segment = Arc::clone(&filling.segment);
        // Only the holder of the stream appends.
        let length = usize::try_from(segment.len()).expect("segments are far below 4 GiB");
        let capacity = segment.capacity_units as usize * self.geometry.unit as usize;
        let whole = piece_bytes(&segment);
        while length - filling.written >= least.max(1) {
            let end = length.min(filling.written + whole);
            // The last row of a segment may reach beyond its end, where it is zero.
            let rows = if end == capacity { end } else { end - (end - filling.written) % segment.row };
            if rows == filling.written {
                break;
            }
            let range = filling.written..rows;
            let piece = if range.len().is_multiple_of(segment.row) {
                Part::new(Arc::<OpenSegment>::clone(&segment), range)
            } else {
                let mut last = vec![0; range.len()];
                segment.read(range.start, &mut last);
                last.resize(range.len().next_multiple_of(segment.row), 0);
                let range = 0..last.len();
                Part::new(Arc::new(last), range)
            };
            self.write_piece(&segment, filling.written, &piece)?;
            // `written` stays where it was on failure: a flush may be tried again.
            filling.written = rows;
        }
        Ok(())
    }

    fn write_piece(&self, segment: &OpenSegment, offset: usize, piece: &Part) -> Result<(), Error> {
        let id = segment.id;
        let (place, class) = {
            let state = self.read_state();
            let row = &state.table.rows[&id];
            (row.place.clone(), row.class)
        };
        let columns = self.columns(id, &place, segment.column);
        let chunk = match &place {
            Placement::Raidz { chunk_shift, .. } => 1 << chunk_shift,
            _ => groups::chunk_bytes(class, self.geometry) as usize,
        };
        let summing = (!class.is_pool()).then_some(Summing { chunk, sum: checksum });
        let Written { failed, sums } = columns.write(offset, piece, summing, &*self.env.tasks);
        let each = piece.bytes() / segment.row * segment.row / data_columns(&place);
        for (index, column) in place.present() {
            let handle = &self.devices[&column.device];
            if handle.in_use().is_some() {
                handle.counters.wrote(each, failed.iter().all(|(at, _)| *at != index));
            }
        }
        let missing = place.columns().count() - columns.present_count();
        let lost = missing + failed.len() > place.redundancy();
        for (index, source) in failed {
            let device = place.columns().nth(index).flatten().expect("it was written").device;
            if lost {
                return Err(Error::Device { device, source });
            }
            self.give_up_or_fail(device, source)?;
        }
        if lost {
            let device = place.present().next().map_or(DeviceId(0), |(_, column)| column.device);
            let source = DeviceError::NotInUse { device: "more devices than redundancy makes up for".into() };
            return Err(Error::Device { device, source });
        }
        self.write_state().table.add_sums(id, &sums);
        Ok(())
    }

    /// Takes a device out of use because it failed. Rows written since the last commit name it no
    /// more [redundant.3]: what it holds of them nobody knows.
    pub(crate) fn give_up_device(&self, device: DeviceId, reason: &str) {
        let Some(handle) = self.devices.get(device) else { return };
        let mut state = self.write_state();
        if handle.in_use().is_none() {
            return;
        }
        handle.set(None);
        state.table.set_in_use(device, false);
        state.table.lose_fresh(device);
        state.given_up.push(GivenUp { device, reason: reason.to_owned() });
    }

    /// Devices given up since this was last called.
    pub fn take_given_up(&self) -> Vec<GivenUp> {
        std::mem::take(&mut self.write_state().given_up)
    }

    /// Reads a block's parts from whatever is left of them, until the caller accepts what it is
    /// given. A copy that was already `rejected`, of a block of one part, is not read again.
    pub(crate) fn reconstruct<T, E>(
        &self,
        address: Address,
        parts: &[Located],
        len: usize,
        rejected: Option<(Buffer, usize)>,
        verify: &mut dyn FnMut(Buffer) -> Result<T, E>,
    ) -> Option<T> {
        let is_alone = |part: &Located| part.open.is_some() || matches!(part.place, Placement::Plain(_));
        if parts.iter().all(is_alone) || self.env.has_bug(Bug::OthersUnread) {
            return None;
        }
        let columns: Vec<Columns> = parts.iter().map(|part| self.columns_of(part)).collect();
        let mut attempts: Vec<_> = match (rejected, parts, &columns[..]) {
            (Some((bytes, copy)), [part], [columns]) => {
                vec![columns.attempts_behind(part.offset as usize, copy, bytes)]
            }
            _ => {
                let each = parts.iter().zip(&columns);
                each.map(|(part, columns)| columns.attempts(part.offset as usize, part.bytes)).collect()
            }
        };
        let mut versions: Vec<Vec<Vec<u8>>> = Vec::new();
        for (part, attempts) in parts.iter().zip(&mut attempts) {
            let mut all = Vec::new();
            if let Some(open) = &part.open {
                let mut bytes = vec![0; part.bytes];
                open.read(part.offset as usize, &mut bytes);
                all.push(bytes);
            } else {
                while let Some(bytes) = attempts.next() {
                    all.push(bytes.to_vec());
                    // Of a block in one part each version is judged as it comes.
                    if parts.len() == 1 {
                        break;
                    }
                }
            }
            versions.push(all);
        }
        if let ([first], [only]) = (&mut versions[..], &mut attempts[..]) {
            let mut next = first.pop();
            while let Some(bytes) = next {
                let mut judged = Buffer::from(bytes.clone());
                judged.resize(len);
                if let Ok(value) = verify(judged) {
                    self.heal(address, parts, attempts, &[bytes]);
                    return Some(value);
                }
                next = only.next().map(|bytes| bytes.to_vec());
            }
            self.note_unread(parts, &attempts);
            return None;
        }
        let mut chosen = vec![0; versions.len()];
        for _ in 0..COMBINATIONS_MAX {
            let parts_now: Option<Vec<&Vec<u8>>> =
                versions.iter().zip(&chosen).map(|(all, &at)| all.get(at)).collect();
            let parts_now = parts_now?;
            let mut judged = Buffer::with_capacity(parts_now.iter().map(|bytes| bytes.len()).sum());
            parts_now.iter().for_each(|bytes| judged.extend(bytes));
            judged.resize(len);
            if let Ok(value) = verify(judged) {
                let accepted: Vec<Vec<u8>> = parts_now.into_iter().cloned().collect();
                self.heal(address, parts, attempts, &accepted);
                return Some(value);
            }
            // The next combination, as a number counts up.
            let digit = chosen.iter().zip(&versions).position(|(&at, all)| at + 1 < all.len());
            let Some(digit) = digit else { break };
            chosen[digit] += 1;
            chosen[..digit].fill(0);
        }
        self.note_unread(parts, &attempts);
        None
    }

    fn note_unread(&self, parts: &[Located], attempts: &[steadfast_vdev::Attempts<'_>]) {
        for (part, attempts) in parts.iter().zip(attempts) {
            for (index, _) in attempts.failed() {
                if let Some(column) = part.place.columns().nth(*index).flatten() {
                    self.devices[&column.device].counters.read(0, false);
                }
            }
        }
    }

    /// Holds every copy of a block on a mirror against bytes that are known to be right, and writes
    /// those anew that hold something else [redundant.2]. A read of one copy says nothing of the
    /// others. Returns the repaired bytes.
    pub fn make_alike(&self, address: Address, bytes: &[u8]) -> u64 {
        let padded = self.geometry.units(bytes.len()) * self.geometry.unit as usize;
        let Ok(parts) = self.locate(address, padded) else { return 0 };
        let mut whole = bytes.to_vec();
        whole.resize(padded, 0);
        let (mut rest, mut repaired) = (&whole[..], 0);
        for part in parts {
            let (accepted, after) = rest.split_at(part.bytes);
            rest = after;
            if part.open.is_some() || !matches!(part.place, Placement::Mirror(_)) {
                continue;
            }
            repaired += self.rewrite_columns(address, &part, accepted);
        }
        repaired
    }

    /// Writes columns of a redundant segment anew that hold something else than bytes known to be
    /// right: every copy of a mirror, data columns of raidz. Gives how many bytes.
    pub(crate) fn rewrite_columns(&self, address: Address, part: &Located, right: &[u8]) -> u64 {
        let columns = self.columns_of(part);
        let mut attempts = columns.attempts(part.offset as usize, part.bytes);
        if matches!(part.place, Placement::Mirror(_)) {
            while attempts.next().is_some() {}
        }
        self.heal(address, std::slice::from_ref(part), vec![attempts], &[right.to_vec()])
    }

    /// Writes accepted bytes back where something else was found, and counts that [redundant.2].
    /// Gives how many.
    fn heal(
        &self,
        address: Address,
        parts: &[Located],
        attempts: Vec<steadfast_vdev::Attempts<'_>>,
        accepted: &[Vec<u8>],
    ) -> u64 {
        let mut bytes = 0;
        for ((part, attempts), accepted) in parts.iter().zip(attempts).zip(accepted) {
            if part.open.is_some() || matches!(part.place, Placement::Plain(_)) {
                continue;
            }
            // As long as this is held no slot is given to another segment.
            let state = self.read_state();
            let stands = state.table.place_of(part.segment).is_some_and(|place| *place == part.place);
            let findings = attempts.accept(accepted, stands && self.is_healing());
            drop(state);
            for Finding { column, fault, repaired } in findings {
                let Some(Column { device, .. }) = part.place.columns().nth(column).flatten() else {
                    continue;
                };
                let counters = &self.devices[&device].counters;
                match fault {
                    Fault::Device(_) => counters.read(0, false),
                    Fault::Wrong => counters.rejected(address, Wrong::Hash),
                    Fault::Blank => counters.rejected(address, Wrong::Stale),
                }
                if repaired {
                    counters.repaired(accepted.len());
                    bytes += accepted.len() as u64;
                }
            }
        }
        bytes
    }

    /// Counts a read of a redundant segment against the devices that it went to.
    pub(crate) fn note_read(&self, part: &Located, bytes: usize, failed: Option<usize>) {
        let data = data_columns(&part.place);
        let start = part.offset as usize;
        let mut by_column = vec![0; data];
        match groups::layout(&part.place) {
            steadfast_vdev::Layout::Mirror => by_column[0] = bytes,
            steadfast_vdev::Layout::Raidz(stripe) => {
                stripe
                    .pieces(start..start + bytes)
                    .for_each(|piece| by_column[piece.column] += piece.bytes.len());
            }
        }
        let mirror = matches!(part.place, Placement::Mirror(_));
        for (index, bytes) in by_column.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0) {
            let column = if mirror {
                let count = part.place.columns().count();
                let order = (0..count).map(|at| (first_copy(part) + at) % count);
                order.filter_map(|at| part.place.columns().nth(at).flatten()).find(|column| {
                    self.devices.get(column.device).is_some_and(|handle| handle.in_use().is_some())
                })
            } else {
                part.place.columns().nth(index).flatten()
            };
            let handle = column.and_then(|column| self.devices.get(column.device));
            if let Some(handle) = handle.filter(|handle| handle.in_use().is_some()) {
                handle.counters.read(bytes, failed != Some(index));
            }
        }
    }
}

/// Pieces in which an open segment goes to its devices: whole rows.
pub(crate) fn piece_bytes(segment: &OpenSegment) -> usize {
    let columns = data_columns(&segment.place);
    WRITE_BYTES.max(columns * COLUMN_BYTES).next_multiple_of(segment.row)
}

/// Which copy of a mirror a read begins with.
fn first_copy(part: &Located) -> usize {
    part.offset as usize / WRITE_BYTES
}

/// Columns over which the bytes of a row are spread.
fn data_columns(place: &Placement) -> usize {
    match place {
        Placement::Plain(_) | Placement::Mirror(_) => 1,
        Placement::Raidz { parity, columns, .. } => columns.len() - usize::from(*parity),
    }
}

/// Checksum of a chunk as it lies on its device.
pub(crate) fn checksum(chunk: &[u8]) -> [u8; Checksums::SIZE] {
    hash(chunk)[..Checksums::SIZE].try_into().expect("a hash is longer")
}
