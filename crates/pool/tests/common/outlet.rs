//! One outlet for several devices: the power goes for all of them at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use steadfast_device::memory::Fate;
use steadfast_device::{Character, Device, MemoryDevice, Result, SegmentPlace};
use steadfast_format::Txg;
use steadfast_format::medium::UBERBLOCK_SIZE;
use steadfast_pool::DeviceHandle;

/// Devices that lose their power together, before one of their writes or flushes.
pub struct Outlet {
    devices: Vec<Arc<MemoryDevice>>,
    /// Writes and flushes that are left; the power goes before the one after them.
    left: AtomicU64,
}

impl Outlet {
    pub fn new(devices: Vec<Arc<MemoryDevice>>, left: u64) -> Arc<Outlet> {
        Arc::new(Outlet { devices, left: AtomicU64::new(left) })
    }

    /// The n-th device, as the pool is to see it.
    pub fn handle(self: &Arc<Outlet>, n: usize) -> DeviceHandle {
        let device = Arc::clone(&self.devices[n]);
        let path = device.character().identity;
        DeviceHandle { path, device: Arc::new(Plugged { device, outlet: Arc::clone(self) }) }
    }

    /// True if the power has gone.
    pub fn is_off(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// The power goes now, if it has not, and comes back.
    pub fn restart(&self, mut fate: impl FnMut() -> Fate) {
        self.devices.iter().for_each(|device| device.power_off());
        self.devices.iter().for_each(|device| device.power_on(|_| fate()));
    }

    fn count(&self) {
        let one_less = |left: u64| left.checked_sub(1);
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        if left.is_ok_and(|left| left == 1) {
            self.devices.iter().for_each(|device| device.power_off());
        }
    }
}

struct Plugged {
    device: Arc<MemoryDevice>,
    outlet: Arc<Outlet>,
}

impl Device for Plugged {
    fn character(&self) -> Character {
        self.device.character()
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> Result<()> {
        self.outlet.count();
        self.device.put_segment(place, bytes)
    }

    fn append_segment(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()> {
        self.outlet.count();
        self.device.append_segment(place, offset, bytes)
    }

    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()> {
        self.device.read_segment(place, offset, out)
    }

    fn discard_segment(&self, place: SegmentPlace) -> Result<()> {
        self.device.discard_segment(place)
    }

    fn objects(&self) -> Option<&dyn steadfast_device::Objects> {
        self.device.objects()
    }

    fn write_label(&self, copy: usize, bytes: &[u8]) -> Result<()> {
        self.outlet.count();
        self.device.write_label(copy, bytes)
    }

    fn read_label(&self, copy: usize) -> Result<Vec<u8>> {
        self.device.read_label(copy)
    }

    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        self.outlet.count();
        self.device.write_uberblock(copy, txg, bytes)
    }

    fn read_uberblocks(&self, copy: usize) -> Result<Vec<Vec<u8>>> {
        self.device.read_uberblocks(copy)
    }

    fn flush(&self) -> Result<()> {
        self.outlet.count();
        self.device.flush()
    }
}
