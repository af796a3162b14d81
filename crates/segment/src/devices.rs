//! The devices of a pool. They are looked up at every read and only ever added to, so lookups take no lock.

use std::ops::Index;
use std::sync::OnceLock;

use steadfast_device::SharedDevice;
use steadfast_format::{DeviceId, LabelConfig};

use crate::accounting::Counters;

/// A device and what was asked of it.
pub(crate) struct Handle {
    pub device: SharedDevice,
    pub appendable: bool,
    pub counters: Counters,
}

/// Devices by id, in the order they were added. A pool has a handful, so a lookup walks along them.
pub(crate) struct Devices {
    places: Box<[OnceLock<(DeviceId, Handle)>]>,
}

impl Devices {
    pub fn new(devices: impl IntoIterator<Item = (DeviceId, SharedDevice)>) -> Devices {
        let places = (0..LabelConfig::LEAVES_MAX).map(|_| OnceLock::new()).collect();
        let all = Devices { places };
        for (id, device) in devices {
            assert!(all.add(id, device), "a label lists each of its at most 255 devices once");
        }
        all
    }

    /// Adds a device. False if its id is taken or there is no place left. One caller at a time.
    pub fn add(&self, id: DeviceId, device: SharedDevice) -> bool {
        if self.iter().any(|(known, _)| *known == id) {
            return false;
        }
        let appendable = device.character().appendable;
        let handle = Handle { device, appendable, counters: Counters::default() };
        let place = self.places.iter().find(|place| place.get().is_none());
        place.is_some_and(|place| place.set((id, handle)).is_ok())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&DeviceId, &Handle)> {
        self.places.iter().map_while(OnceLock::get).map(|(id, handle)| (id, handle))
    }

    pub fn get(&self, id: DeviceId) -> Option<&Handle> {
        self.iter().find(|(known, _)| **known == id).map(|(_, handle)| handle)
    }

    pub fn values(&self) -> impl Iterator<Item = &Handle> {
        self.iter().map(|(_, handle)| handle)
    }
}

impl Index<&DeviceId> for Devices {
    type Output = Handle;

    fn index(&self, id: &DeviceId) -> &Handle {
        self.get(*id).expect("a row names a device of its pool: the table was checked at import")
    }
}
