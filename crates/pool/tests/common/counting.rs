//! A device that counts what reaches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use steadfast_device::{Character, Device, Result, SegmentPlace};
use steadfast_format::Txg;
use steadfast_format::medium::UBERBLOCK_SIZE;

/// Counts at a device: bytes written, of all kinds, and reads of segments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub written_bytes: u64,
    pub reads: u64,
    pub read_bytes: u64,
}

impl Counts {
    /// Counts since `before`.
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            written_bytes: self.written_bytes - before.written_bytes,
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
        }
    }
}

pub struct CountingDevice {
    device: Arc<dyn Device>,
    written_bytes: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
}

impl CountingDevice {
    pub fn new(device: Arc<dyn Device>) -> Arc<CountingDevice> {
        let none = AtomicU64::default;
        Arc::new(CountingDevice { device, written_bytes: none(), reads: none(), read_bytes: none() })
    }

    pub fn counts(&self) -> Counts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            written_bytes: get(&self.written_bytes),
            reads: get(&self.reads),
            read_bytes: get(&self.read_bytes),
        }
    }

    fn wrote(&self, bytes: usize) {
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Device for CountingDevice {
    fn character(&self) -> Character {
        self.device.character()
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> Result<()> {
        self.wrote(bytes.len());
        self.device.put_segment(place, bytes)
    }

    fn append_segment(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()> {
        self.wrote(bytes.len());
        self.device.append_segment(place, offset, bytes)
    }

    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(out.len() as u64, Ordering::Relaxed);
        self.device.read_segment(place, offset, out)
    }

    fn read_segment_parts(&self, place: SegmentPlace, offset: u32, parts: &mut [&mut [u8]]) -> Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.device.read_segment_parts(place, offset, parts)
    }

    fn discard_segment(&self, place: SegmentPlace) -> Result<()> {
        self.device.discard_segment(place)
    }

    fn objects(&self) -> Option<&dyn steadfast_device::Objects> {
        self.device.objects()
    }

    fn write_label(&self, copy: usize, bytes: &[u8]) -> Result<()> {
        self.wrote(bytes.len());
        self.device.write_label(copy, bytes)
    }

    fn read_label(&self, copy: usize) -> Result<Vec<u8>> {
        self.device.read_label(copy)
    }

    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        self.wrote(bytes.len());
        self.device.write_uberblock(copy, txg, bytes)
    }

    fn read_uberblocks(&self, copy: usize) -> Result<Vec<Vec<u8>>> {
        self.device.read_uberblocks(copy)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn refresh_size(&self) -> Result<u64> {
        self.device.refresh_size()
    }

    fn release(&self) {
        self.device.release();
    }
}
