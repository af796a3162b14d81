//! Segments of the intent log: whole slots that belong to the log from their first commit on. What lies in them is the room
//! `intent_log`'s to know; here they are rows that live from end to end, so neither the cleaner nor a discard touches them,
//! and they are written over and over in place, past all streams.

use steadfast_device::Place;
use steadfast_format::{DatasetId, DeviceId, SegmentId};

use crate::Class;
use crate::error::Error;
use crate::space::{Space, lock};
use crate::table::Row;

/// Where a segment of the log lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogSegment {
    /// Name.
    pub segment: SegmentId,
    /// Device.
    pub device: DeviceId,
    /// Slot on it.
    pub slot: u32,
}

impl Space {
    /// Gives the log so many segments, or none at all if the pool is too full to spare them or a device takes whole objects
    /// only. Durable with the commit under way. Sync context only, before the changes of the table are taken.
    pub fn reserve_log(&self, slots: u32) -> Vec<LogSegment> {
        if self.devices.values().any(|handle| !handle.appendable) {
            return Vec::new();
        }
        let _sync = lock(&self.sync);
        let mut state = self.write_state();
        let table = &mut state.table;
        // An eighth stays: what was admitted beside this commit is at most half of what is free, and the log a 32nd of the pool.
        let kept = table.metadata_slots() + table.total_slots() / 8;
        if table.free_slots() < kept + slots {
            return Vec::new();
        }
        for _ in 0..slots {
            let id = table.allocate(DatasetId(0), Class::Log, kept).expect("counted just now");
            table.extend(id, self.geometry.slot_units());
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
        rows.map(|(&segment, &Row { device, slot, .. })| LogSegment { segment, device, slot }).collect()
    }

    fn log_place(&self, at: &LogSegment) -> Place {
        Place { segment: at.segment, slot: at.slot, slot_size: self.geometry.slot_size }
    }

    /// Writes into a segment of the log.
    pub fn write_log(&self, at: &LogSegment, offset: u32, bytes: &[u8]) -> Result<(), Error> {
        let handle = &self.devices[&at.device];
        let result = handle.device.append_segment_directly(self.log_place(at), offset, bytes);
        handle.counters.wrote(bytes.len(), result.is_ok());
        result.map_err(|source| Error::Device { device: at.device, source })
    }

    /// Makes what was written to the device of a segment durable.
    pub fn flush_log(&self, at: &LogSegment) -> Result<(), Error> {
        let handle = &self.devices[&at.device];
        handle.device.flush().map_err(|source| {
            handle.counters.write_failed();
            Error::Device { device: at.device, source }
        })
    }

    /// Reads from a segment of the log.
    pub fn read_log(&self, at: &LogSegment, offset: u32, out: &mut [u8]) -> Result<(), Error> {
        let read = self.read_place(at.device, self.log_place(at), offset, out);
        read.map_err(|source| Error::Device { device: at.device, source })
    }
}
