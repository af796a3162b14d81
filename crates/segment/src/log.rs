//! Segments of the intent log: whole slots that belong to the log from their first commit on. Their
//! content is the business of `intent_log`. Here they are rows that live from end to end, so
//! neither the cleaner nor a discard touches them. They are overwritten in place, past all streams.

use std::sync::Mutex;

use steadfast_device::{Error as DeviceError, SegmentPlace};
use steadfast_env::Job;
use steadfast_format::{Column, DatasetId, DeviceId, Placement, SegmentId};

use crate::Class;
use crate::error::Error;
use crate::side::Side;
use crate::space::{Space, lock};

/// Where a segment of the log lies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogSegment {
    /// Name.
    pub segment: SegmentId,
    /// Where: each column holds all of it.
    pub place: Placement,
    /// Bytes of it.
    pub bytes: u32,
    /// Bytes of a slot where it lies.
    column: u32,
}

impl LogSegment {
    /// The devices it lies on.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceId> {
        self.place.present().map(|(_, column)| column.device).collect()
    }

    /// Columns it is written in, each of which holds all of it.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.place.present().count()
    }

    fn places(&self) -> impl Iterator<Item = (DeviceId, SegmentPlace)> + '_ {
        self.place.present().map(|(_, Column { device, slot })| {
            (device, SegmentPlace { segment: self.segment, slot, slot_size: self.column })
        })
    }
}

impl Space {
    /// Gives the log so many segments, or none at all if the pool is too full to spare them or a
    /// device takes whole objects only. Durable with the commit under way. Sync context only,
    /// before the changes of the table are taken.
    pub fn reserve_log(&self, slots: u32) -> Vec<LogSegment> {
        if self.devices.values().any(|handle| !handle.appendable) {
            return Vec::new();
        }
        let _sync = lock(&self.sync);
        let mut state = self.write_state();
        let table = &mut state.table;
        // An eighth stays: what was admitted beside this commit is at most half of what is free,
        // and the log a 32nd of the pool.
        let kept = table.metadata_slots() + table.total_of(Side::Normal) / 8;
        if table.free_of(Side::Normal) < kept + slots {
            return Vec::new();
        }
        for _ in 0..slots {
            let Some(id) = table.allocate(DatasetId(0), Class::Log, kept, 0) else { break };
            let units = table.capacity_units(&table.rows[&id]);
            table.extend(id, units);
            table.close(id);
        }
        drop(state);
        self.log_segments()
    }

    /// The log's segments, oldest first.
    #[must_use]
    pub fn log_segments(&self) -> Vec<LogSegment> {
        let state = self.read_state();
        let rows = state.table.rows.iter().filter(|(_, row)| row.class == Class::Log);
        let segment = |(&segment, row): (&SegmentId, &crate::row::Row)| LogSegment {
            segment,
            place: row.place.clone(),
            bytes: row.filled * self.geometry.unit,
            column: state.table.groups[row.group].column,
        };
        rows.map(segment).collect()
    }

    /// Writes into a segment of the log, into each of its columns. A device of several that fails
    /// is given up.
    pub fn write_log(&self, at: &LogSegment, offset: u32, bytes: &[u8]) -> Result<(), Error> {
        self.on_log(at, |device, place| device.append_segment_directly(place, offset, bytes), bytes.len())
    }

    /// Makes what was written to the devices of a segment durable.
    pub fn flush_log(&self, at: &LogSegment) -> Result<(), Error> {
        self.on_log(at, |device, _| device.flush(), 0)
    }

    /// Does something to each column, beside each other. Fails if all of them do, or one that its
    /// group cannot spare.
    fn on_log(
        &self,
        at: &LogSegment,
        act: impl Fn(&dyn steadfast_device::Device, SegmentPlace) -> steadfast_device::Result<()> + Sync,
        bytes: usize,
    ) -> Result<(), Error> {
        let places: Vec<(DeviceId, SegmentPlace)> = at.places().collect();
        let results: Vec<Mutex<Result<(), DeviceError>>> =
            places.iter().map(|_| Mutex::new(Ok(()))).collect();
        let act = &act;
        let one = |device: DeviceId, place: SegmentPlace| {
            let handle = &self.devices[&device];
            let result = handle.device(device).and_then(|device| act(&*device, place));
            match (&result, bytes) {
                (Err(_), 0) => handle.counters.write_failed(),
                (Ok(()), 0) => {}
                _ => handle.counters.wrote(bytes, result.is_ok()),
            }
            result
        };
        if let [(device, place)] = places[..] {
            return one(device, place).map_err(|source| Error::Device { device, source });
        }
        let one = &one;
        let jobs = places.iter().zip(&results).map(|(&(device, place), result)| -> Job<'_> {
            Box::new(move || *lock(result) = one(device, place))
        });
        self.env.tasks.run_all(jobs.collect());
        let (mut written, mut last) = (0, None);
        for ((device, _), result) in places.into_iter().zip(results) {
            match result.into_inner().expect("no write panics") {
                Ok(()) => written += 1,
                Err(DeviceError::NotInUse { .. }) => {}
                Err(source) => match self.give_up_or_fail(device, source) {
                    Ok(()) => {}
                    Err(error) => last = Some(error),
                },
            }
        }
        match last {
            Some(error) => Err(error),
            None if written > 0 => Ok(()),
            None => {
                let device = at.devices().first().copied().unwrap_or(DeviceId(0));
                let source = DeviceError::NotInUse { device: "every device of the log".into() };
                Err(Error::Device { device, source })
            }
        }
    }

    /// Reads from the copy of this number of a segment of the log.
    pub fn read_log(&self, at: &LogSegment, copy: usize, offset: u32, out: &mut [u8]) -> Result<(), Error> {
        let (device, place) = at.places().nth(copy).unwrap_or_else(|| panic!("{at:?} has no copy {copy}"));
        let read = self.read_place(device, place, offset, out);
        read.map_err(|source| Error::Device { device, source })
    }
}
