//! Open segments: their bytes stay in memory until they are closed.

use std::sync::{Arc, RwLock};

use steadfast_format::{DeviceId, SegmentId};

use steadfast_device::Place;

/// A segment that is being filled. Readers share it; only its stream appends.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub id: SegmentId,
    pub device: DeviceId,
    pub place: Place,
    pub bytes: RwLock<Vec<u8>>,
}

impl OpenSegment {
    /// Appends `bytes`, padded with zeros to `unit`; the offset at which they begin.
    pub fn push(&self, bytes: &[u8], unit: u32) -> u32 {
        let mut buffer = self.bytes.write().expect("no append panics");
        let offset = buffer.len();
        buffer.extend_from_slice(bytes);
        let padded = buffer.len().next_multiple_of(unit as usize);
        buffer.resize(padded, 0);
        u32::try_from(offset).expect("segments are far below 4 GiB")
    }

    /// Copies from `offset` on.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        let buffer = self.bytes.read().expect("no append panics");
        let have = buffer.len().saturating_sub(offset).min(out.len());
        out[..have].copy_from_slice(&buffer[offset..offset + have]);
        // The padding of the last unit is all that a caller may ask for beyond the end.
        out[have..].fill(0);
    }
}

/// Who appends for one (owner, class).
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub open: Option<Filling>,
}

/// The open segment of a stream and how much of it the device has.
#[derive(Debug)]
pub(crate) struct Filling {
    pub segment: Arc<OpenSegment>,
    pub filled_units: u32,
    /// Bytes that the device has taken.
    pub written: usize,
}
