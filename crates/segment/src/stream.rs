//! Open segments: their bytes stay in memory until they are closed.

use std::sync::{Arc, Mutex, RwLock};

use steadfast_device::{Buffer, SegmentPlace};
use steadfast_format::{Column, DeviceId, Placement, SegmentId};
use steadfast_vdev::Look;

/// Pieces in which open segments go to a device: large enough to stream, small enough not to stall
/// an append.
pub(crate) const WRITE_BYTES: usize = 1 << 20;

/// A segment that is being filled. Readers share it; only its stream appends.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub id: SegmentId,
    pub place: Placement,
    /// Bytes of a slot where it lies.
    pub column: u32,
    /// Bytes of a row: what a redundant segment is written in.
    pub row: usize,
    /// Units that it holds.
    pub capacity_units: u32,
    /// Room for the whole segment, so that bytes never move; memory is touched as it fills. A
    /// device shares it once the segment takes no more.
    pub bytes: RwLock<Arc<Buffer>>,
}

/// Holds for every append.
const UNSHARED: &str = "a device shares bytes of a segment that takes no more";

impl OpenSegment {
    /// Where it lies, if that is one place.
    pub fn plain(&self) -> Option<(DeviceId, SegmentPlace)> {
        let Placement::Plain(Column { device, slot }) = self.place else { return None };
        Some((device, SegmentPlace { segment: self.id, slot, slot_size: self.column }))
    }

    /// Bytes that were appended.
    pub fn len(&self) -> u64 {
        self.bytes.read().expect("no append panics").len() as u64
    }

    /// Bytes that a device may share: nothing is appended any more.
    pub fn shared(&self) -> Arc<Buffer> {
        Arc::clone(&self.bytes.read().expect("no append panics"))
    }

    /// Appends `bytes`, padded with zeros to `unit`; the offset at which they begin.
    pub fn push(&self, bytes: &[u8], unit: u32) -> u32 {
        let mut buffer = self.bytes.write().expect("no append panics");
        let buffer = Arc::get_mut(&mut buffer).expect(UNSHARED);
        let offset = buffer.len();
        buffer.extend(bytes);
        let padded = buffer.len().next_multiple_of(unit as usize);
        buffer.resize(padded);
        u32::try_from(offset).expect("segments are far below 4 GiB")
    }

    /// Fills up with zeros.
    pub fn pad(&self, bytes: usize) {
        let mut buffer = self.bytes.write().expect("no append panics");
        let buffer = Arc::get_mut(&mut buffer).expect(UNSHARED);
        let end = buffer.len() + bytes;
        buffer.resize(end);
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

impl Look for OpenSegment {
    fn look(&self, see: &mut dyn FnMut(&[u8])) {
        see(&self.bytes.read().expect("no append panics"));
    }
}

/// Buffers of closed segments, kept for the next ones: memory that was touched once need not be
/// touched anew by the kernel, which costs more than writing into it.
#[derive(Debug, Default)]
pub(crate) struct SpareBuffers {
    buffers: Mutex<Vec<Buffer>>,
}

/// Spare buffers kept at most: streams of file content fill one after another, the others rarely.
const SPARE_BUFFERS_MAX: usize = 2;

impl SpareBuffers {
    /// An empty buffer for a segment of `slot_size` bytes.
    pub fn take(&self, slot_size: u32) -> Buffer {
        let spare = self.buffers.lock().expect("no holder panics").pop();
        let Some(mut spare) = spare else { return Buffer::with_capacity(slot_size as usize) };
        spare.resize(0);
        spare
    }

    /// Takes the buffer of a segment that is closed, if no reader has the segment any more.
    pub fn put(&self, segment: Arc<OpenSegment>) {
        let Ok(segment) = Arc::try_unwrap(segment) else { return };
        let buffer = segment.bytes.into_inner().expect("no append panics");
        // Nor a device: one that was silent may still send what nobody waits for.
        let Ok(buffer) = Arc::try_unwrap(buffer) else { return };
        let mut buffers = self.buffers.lock().expect("no holder panics");
        if buffers.len() < SPARE_BUFFERS_MAX {
            buffers.push(buffer);
        }
    }

    /// Memory held, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.buffers.lock().expect("no holder panics").iter().map(Buffer::memory_bytes).sum()
    }
}

/// Appender for one (owner, class).
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
