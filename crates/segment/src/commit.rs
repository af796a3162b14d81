//! The part of a commit that is the space's: flush, table changes, the tail, freed slots (ZFS:
//! `metaslab_sync`).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use steadfast_device::{Error as DeviceError, SegmentPlace, SharedDevice};
use steadfast_env::Job;
use steadfast_format::{Column, CommitTail, DatasetId, DeviceId, Placement, SegmentId, SegmentRow};

use crate::devices::Handle;
use crate::error::Error;
use crate::row::FreedSlot;
use crate::space::{Discard, Space, lock};
use crate::uploads::Handed;
use crate::{Class, SpaceChanges, SpaceTail};

impl Space {
    /// Hands all appended bytes to the devices. Segments on devices of whole objects are closed by
    /// this, as such a device takes a segment once; it returns when all of them are there. Comes
    /// after the tail's block was appended.
    pub fn flush_open(&self) -> Result<(), Error> {
        let handed = self.hand_over()?;
        self.finish_uploads(handed)
    }

    /// The first half of [`Space::flush_open`]: all appended bytes are on devices that can be
    /// appended to, or on their way to others. [`Space::finish_uploads`] waits for these; what is
    /// appended meanwhile is none of them.
    pub fn hand_over(&self) -> Result<Handed, Error> {
        self.retry_uploads();
        let streams: Vec<_> = lock(&self.streams).values().cloned().collect();
        let results: Vec<Mutex<Result<(), Error>>> = streams.iter().map(|_| Mutex::new(Ok(()))).collect();
        let jobs = streams.iter().zip(&results).map(|(stream, result)| -> Job<'_> {
            Box::new(move || {
                let flushed = self.flush_stream(&mut stream.lock());
                self.start_uploads();
                *lock(result) = flushed;
            })
        });
        self.env.tasks.run_all(jobs.collect());
        let flushed =
            results.into_iter().try_for_each(|result| result.into_inner().expect("no flush panics"));
        let handed = self.handed();
        if flushed.is_err() {
            // Nobody goes on before they have ended.
            let _ = self.finish_uploads(handed);
        }
        flushed.map(|()| handed)
    }

    /// Ends the open segments that are chosen.
    pub(crate) fn close_streams(&self, chosen: impl Fn(&Space, SegmentId) -> bool) -> Result<(), Error> {
        self.retry_uploads();
        let streams: Vec<_> = lock(&self.streams).values().cloned().collect();
        for stream in streams {
            let mut stream = stream.lock();
            if stream.open.as_ref().is_some_and(|filling| chosen(self, filling.segment.id)) {
                self.close(&mut stream)?;
            }
        }
        self.finish_uploads(self.handed())
    }

    /// Makes all devices' writes durable, in parallel. A device of a group that fails is given up
    /// if the group can do without it.
    pub fn flush_devices(&self) -> Result<(), Error> {
        let used: Vec<(DeviceId, &Handle, SharedDevice)> =
            self.devices.iter().filter_map(|(&id, handle)| Some((id, handle, handle.in_use()?))).collect();
        let results: Vec<Mutex<Option<DeviceError>>> = used.iter().map(|_| Mutex::new(None)).collect();
        let jobs = used.iter().zip(&results).map(|((_, handle, device), result)| -> Job<'_> {
            Box::new(move || {
                if let Err(source) = device.flush() {
                    handle.counters.write_failed();
                    *lock(result) = Some(source);
                }
            })
        });
        self.env.tasks.run_waiting(jobs.collect());
        for ((device, ..), result) in used.into_iter().zip(results) {
            if let Some(source) = result.into_inner().expect("no flush panics") {
                self.give_up_or_fail(device, source)?;
            }
        }
        Ok(())
    }

    /// Gives up a device that failed, if its group can do without it; else that is the error.
    pub fn give_up_or_fail(&self, device: DeviceId, source: DeviceError) -> Result<(), Error> {
        if self.give_up(device, &source.to_string()) { Ok(()) } else { Err(Error::Device { device, source }) }
    }

    /// True if the group of a device can do without it.
    #[must_use]
    pub fn can_spare(&self, device: DeviceId) -> bool {
        self.read_state().table.can_spare(device)
    }

    /// Gives up a device for a reason, if its group can do without it. False if it cannot.
    pub fn give_up(&self, device: DeviceId, reason: &str) -> bool {
        let spared = self.read_state().table.can_spare(device);
        if spared {
            self.give_up_device(device, reason);
        }
        spared
    }

    /// Rows and relocations that changed since this was last called, for the meta tree. Storing
    /// them changes the table again; those changes go into the tail ([`Space::tail`]) and, one
    /// commit later, come from here.
    pub fn table_changes(&self) -> SpaceChanges {
        self.write_state().table.take_changes()
    }

    /// The commit tail's part of the space. Opens room for the tail's block in both of the pool's
    /// streams, or in the first if there is one copy: the next append of class `Pool0` and the next
    /// of `Pool1`, if they are of this tail (compressed or not, sealed or not), go to segments
    /// whose rows are in the tail. Nothing else may be appended to those streams or freed before
    /// [`Space::committed`].
    pub fn tail(&self) -> Result<SpaceTail, Error> {
        let owner = DatasetId(0);
        // Two more rows at most come in when segments are opened for the tail.
        let columns = self.read_state().table.columns_max() as usize;
        let bytes = tail_bytes_max(&self.tail_now()) + 2 * (ROW_BYTES_MAX + columns * Column::ENCODED_SIZE);
        if bytes > self.geometry.slot_size as usize {
            return Err(Error::TooLarge { bytes, slot_size: self.geometry.slot_size });
        }
        let units = u32::try_from(self.geometry.units(bytes)).expect("checked against the slot size");
        for class in [Class::Pool0, Class::Pool1] {
            let stream = self.stream(owner, class);
            let mut stream = stream.lock();
            self.make_room(&mut stream, owner, class, units, false)?;
            let id = stream.open.as_ref().expect("room was made").segment.id;
            self.write_state().table.touch(id);
            if !self.has_pool_copies() && self.is_on_store(id) {
                break;
            }
        }
        let tail = self.tail_now();
        debug_assert!(tail_bytes_max(&tail) <= bytes);
        let mut state = self.write_state();
        state.table.seal_emptied();
        state.tail_bytes = bytes as u64;
        state.table.note_tail(units);
        drop(state);
        Ok(tail)
    }

    pub(crate) fn tail_now(&self) -> SpaceTail {
        let state = self.read_state();
        let changes = state.table.peek_changes();
        let bootstrap = state.table.bootstrap();
        let rows: BTreeMap<_, _> = changes.rows.into_iter().chain(bootstrap.rows).collect();
        let runs: BTreeMap<_, _> = changes.runs.into_iter().chain(bootstrap.runs).collect();
        let (rows, runs) = (rows.into_iter().collect(), runs.into_iter().collect());
        let changes = SpaceChanges { rows, runs, sums: Vec::new() };
        SpaceTail { changes, next_segment: state.table.next_id }
    }

    /// Where a segment lies, for the uberblock to name the places of the tail.
    #[must_use]
    pub fn place_of(&self, segment: SegmentId) -> Option<Placement> {
        self.read_state().table.rows.get(&segment).map(|row| row.place.clone())
    }

    /// The commit is durable: slots of segments that its tail knew to be empty are free
    /// [segment.7]. Gives how many.
    pub fn committed(&self) -> usize {
        let (count, freed) = self.write_state().table.release_committed();
        let commit = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        let (mut discards, mut dead) = (lock(&self.discards), lock(&self.dead_objects));
        for FreedSlot { segment, column: Column { device, slot }, slot_size } in freed {
            let place = SegmentPlace { segment, slot, slot_size };
            if !self.devices[&device].appendable {
                // A whole object has a name of its own: the next segment in its slot does not
                // replace it.
                dead.push(device, segment, commit);
            } else if self.discarding.load(Ordering::Relaxed) {
                discards.push_back(Discard { device, place, commit });
            }
        }
        count
    }
}

/// Stored bytes of a tail, at most: encoded, not compressed, sealed.
fn tail_bytes_max(tail: &SpaceTail) -> usize {
    let length = |row: &SegmentRow| {
        row.place.columns().count() * Column::ENCODED_SIZE + row.dead.as_ref().map_or(0, Vec::len)
    };
    let lengths: usize = tail.changes.rows.iter().filter_map(|(_, row)| row.as_ref()).map(length).sum();
    let rows = tail.changes.rows.len() * (ROW_BYTES_MAX - SegmentRow::DEAD_BYTES_MAX);
    let runs = CommitTail::encoded_size_max(0, tail.changes.runs.len());
    runs + rows + lengths + SEAL_BYTES_MAX
}

/// Stored bytes of a change of one row, at most, without its columns.
const ROW_BYTES_MAX: usize = 12 + SegmentRow::LAYOUT.size() + SegmentRow::DEAD_BYTES_MAX;

/// Bytes that sealing adds to a block, generously.
const SEAL_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use steadfast_format::{RelocationRow, Txg};

    use super::*;

    /// The columns of a row were taken for one, so tails with many rows of wide groups came out
    /// longer than what room was made for.
    #[test]
    fn a_tail_is_no_longer_than_what_room_is_made_for() {
        let column = |id: u64| Column { device: DeviceId(id), slot: 7 };
        for width in [1, 2, 6, 32] {
            let place = match width {
                1 => Placement::Plain(column(1)),
                _ => Placement::Raidz {
                    parity: 1,
                    chunk_shift: 12,
                    columns: (1..=width).map(|id| Some(column(id))).collect(),
                },
            };
            let row = |dead: Option<Vec<u8>>| SegmentRow {
                class: Class::Pool0 as u8,
                owner: DatasetId(0),
                filled: 1 << 20,
                place: place.clone(),
                dead,
            };
            let rows = (1..=300).map(|id| match id % 3 {
                0 => (SegmentId(id), None),
                1 => (SegmentId(id), Some(row(None))),
                _ => (SegmentId(id), Some(row(Some(vec![0x55; 32])))),
            });
            let run = RelocationRow { segment: SegmentId(9), unit: 3, units: 2 };
            let runs = (0..50).map(|unit| ((SegmentId(5), unit), (unit % 2 == 0).then_some(run)));
            let changes = SpaceChanges { rows: rows.collect(), runs: runs.collect(), sums: Vec::new() };
            let tail = SpaceTail { changes: changes.clone(), next_segment: SegmentId(400) };
            let encoded = CommitTail {
                txg: Txg(1),
                next_segment: tail.next_segment,
                next_dataset: DatasetId(1),
                next_history: 1,
                rows: changes.rows,
                runs: changes.runs,
            };
            let (length, bound) = (encoded.encode().len() + SEAL_BYTES_MAX, tail_bytes_max(&tail));
            assert!(length <= bound, "{width} columns: {length} bytes, and room for {bound}");
        }
    }
}
