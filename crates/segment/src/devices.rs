//! The devices of a pool. They are looked up at every read and only ever added to, so lookups take
//! no lock.

use crate::accounting::Counters;
use std::ops::Index;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use steadfast_device::{Error as DeviceError, Result, SharedDevice};
use steadfast_format::{DeviceId, LabelConfig};

/// A device that the pool gave up by itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GivenUp {
    /// The device.
    pub device: DeviceId,
    /// Its error.
    pub reason: String,
}

/// Columns that may be wrong before others are to be right, of those copied from a device that
/// leaves.
const COPIES_WRONG: u32 = 2;

/// Devices that there may be from one import to the next. One that left keeps its place, and a
/// spare that steps in, or a replacement, takes another: a pool of as many devices as a label lists
/// may have each of them replaced so many times.
const PLACES: usize = 16 * LabelConfig::LEAVES_MAX;

/// A device and what was asked of it.
pub(crate) struct Handle {
    /// Nothing while the pool does without it.
    device: RwLock<Option<SharedDevice>>,
    pub appendable: bool,
    pub counters: Arc<Counters>,
    /// Columns that were copied from it to another device because it leaves: those that were right,
    /// and those that were not.
    copies: [AtomicU32; 2],
}

impl Handle {
    /// The device, if it is in use.
    pub fn in_use(&self) -> Option<SharedDevice> {
        self.device.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The device, or an error that says it is not in use.
    pub fn device(&self, id: DeviceId) -> Result<SharedDevice> {
        self.in_use().ok_or_else(|| DeviceError::NotInUse { device: format!("device {id}") })
    }

    /// A column was read in order to copy it, and was right or not.
    pub fn copied(&self, right: bool) {
        self.copies[usize::from(!right)].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it is worth a try to copy what lies there: most of what was copied so far was right.
    pub fn copies_well(&self) -> bool {
        let [right, wrong] = &self.copies;
        wrong.load(Ordering::Relaxed) <= right.load(Ordering::Relaxed) / 2 + COPIES_WRONG
    }

    /// Takes it out of use, or into use.
    pub fn set(&self, device: Option<SharedDevice>) {
        self.copies.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        *self.device.write().unwrap_or_else(PoisonError::into_inner) = device;
    }
}

/// Where a device may come to be; small as long as there is none.
type Room = OnceLock<Box<(DeviceId, Handle)>>;

/// Devices by id, in the order they were added. A pool has a handful, so a lookup walks along them.
pub(crate) struct Devices {
    places: Box<[Room]>,
}

impl Devices {
    pub fn new() -> Devices {
        Devices { places: (0..PLACES).map(|_| Room::new()).collect() }
    }

    /// Whether there is a place for so many more.
    pub fn has_places(&self, devices: usize) -> bool {
        self.iter().count() + devices <= self.places.len()
    }

    /// Adds a device, in use or not. False if its id is taken or there is no place left. One caller
    /// at a time.
    pub fn add(&self, id: DeviceId, device: Option<SharedDevice>) -> bool {
        if self.iter().any(|(known, _)| *known == id) {
            return false;
        }
        // An absent device cannot be asked; devices of groups can always be appended to.
        let appendable = device.as_ref().is_none_or(|device| device.character().appendable);
        let (device, counters) = (RwLock::new(device), Arc::new(Counters::default()));
        let handle = Handle { device, appendable, counters, copies: Default::default() };
        let place = self.places.iter().find(|place| place.get().is_none());
        place.is_some_and(|place| place.set(Box::new((id, handle))).is_ok())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&DeviceId, &Handle)> {
        self.places.iter().map_while(OnceLock::get).map(|place| (&place.0, &place.1))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_may_have_had_many_more_devices_than_it_has() {
        let devices = Devices::new();
        let ids = || (1..=PLACES as u64).map(DeviceId);
        assert!(ids().all(|id| devices.has_places(1) && devices.add(id, None)));
        assert!(!devices.add(DeviceId(1), None), "its number is taken");
        assert!(!devices.has_places(1) && !devices.add(DeviceId(PLACES as u64 + 1), None));
        assert!(ids().all(|id| devices.get(id).is_some()));
    }
}
