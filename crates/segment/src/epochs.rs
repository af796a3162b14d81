//! Epochs of segment ids, on devices of whole objects.
//!
//! An object is created once, so no two hosts may open segments of one id: not two that believe to
//! own the pool, nor one that crashed and the one that goes on. Each import that may write claims
//! an epoch on every such device, and the ids of its segments begin with it.
//!
//! [epochs.1] An id is opened by one import only: an epoch is claimed once on each device, before
//!      the first segment of it is opened.
//!      `Space::claim_epoch`, test: `two_imports_of_one_root_share_no_names`
//! [epochs.2] An import claims all epochs between that of the root it opened and its own, or finds
//!      them claimed. So a host that looks for the epoch after its own finds whoever has taken
//!      over, without a list.
//!      `Space::claim_epoch`
//! [epochs.3] The counter part of an id grows over all epochs of a pool, so it tells which of two
//!      segments is older.
//!      `Space::claim_epoch`

use steadfast_device::objects::LaterOwner;
use steadfast_device::{Objects, SharedDevice};
use steadfast_format::{DeviceId, SegmentId, Txg};

use crate::error::Error;
use crate::space::Space;

/// Epochs that an import tries before it gives up: each was claimed by another host meanwhile.
const TRIES_MAX: u64 = 1000;

impl Space {
    /// Devices of whole objects that are in use.
    pub(crate) fn stores(&self) -> Vec<(DeviceId, SharedDevice)> {
        let unappendable = self.devices.iter().filter(|(_, handle)| !handle.appendable);
        unappendable.filter_map(|(&id, handle)| Some((id, handle.in_use()?))).collect()
    }

    /// Asks each device of whole objects, and those that are about to be added.
    fn ask_stores<T>(
        &self,
        coming: &[(DeviceId, SharedDevice)],
        ask: impl Fn(&dyn Objects) -> steadfast_device::Result<T>,
    ) -> Result<Vec<T>, Error> {
        let stores = self.stores();
        let stores = stores.iter().chain(coming);
        let objects = stores.filter_map(|(id, device)| Some((*id, device.objects()?)));
        objects
            .map(|(device, objects)| ask(objects).map_err(|source| Error::Device { device, source }))
            .collect()
    }

    /// True if a device of the pool holds whole objects.
    #[must_use]
    pub fn has_objects(&self) -> bool {
        self.devices.values().any(|handle| !handle.appendable)
    }

    /// True if all devices of the pool hold whole objects: nothing is written twice to one place.
    #[must_use]
    pub fn is_all_objects(&self) -> bool {
        self.devices.values().all(|handle| !handle.appendable)
    }

    /// Epoch of the segments that are opened now; 0 where nothing holds whole objects.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.read_state().table.next_id.epoch()
    }

    /// Claims an epoch above that of the last segment, and above `floor`, on every device of whole
    /// objects, and opens segments of it from now on. Nothing happens where there is none. Gives
    /// the epoch.
    pub fn claim_epoch(&self, floor: u64) -> Result<Option<u64>, Error> {
        self.claim_with(&[], floor)
    }

    /// The same with devices that come to the pool, or that are all it has: above all epochs of
    /// former pools on them.
    pub fn claim_epoch_anew(&self, coming: &[(DeviceId, SharedDevice)]) -> Result<Option<u64>, Error> {
        let newest = self.ask_stores(coming, |store| store.newest_epoch())?;
        self.claim_with(coming, newest.into_iter().max().unwrap_or(0))
    }

    fn claim_with(&self, coming: &[(DeviceId, SharedDevice)], floor: u64) -> Result<Option<u64>, Error> {
        if !self.has_objects() && coming.iter().all(|(_, device)| device.objects().is_none()) {
            return Ok(None);
        }
        let first = self.epoch().max(floor) + 1;
        for epoch in first..first + TRIES_MAX {
            let claims = self.ask_stores(coming, |store| store.claim_epoch(epoch))?;
            if claims.iter().all(|claimed| *claimed) {
                self.begin_epoch(epoch)?;
                return Ok(Some(epoch));
            }
        }
        Err(Error::Epochs { first, tries: TRIES_MAX })
    }

    fn begin_epoch(&self, epoch: u64) -> Result<(), Error> {
        if epoch >= SegmentId::EPOCH_END {
            return Err(Error::Epochs { first: epoch, tries: 0 });
        }
        let table = &mut self.write_state().table;
        assert!(epoch > table.next_id.epoch(), "an epoch is claimed once [epochs.1]");
        table.next_id = SegmentId::new(epoch, table.next_id.counter());
        Ok(())
    }

    /// False if a store lets two hosts create one name: a claim on it fences nobody.
    pub fn creates_once(&self) -> Result<bool, Error> {
        Ok(self.ask_stores(&[], |store| store.creates_once())?.into_iter().all(|once| once))
    }

    /// True if another host has claimed an epoch after ours [epochs.2].
    pub fn is_overtaken(&self) -> Result<bool, Error> {
        let next = self.epoch() + 1;
        Ok(self.ask_stores(&[], |store| store.is_claimed(next))?.into_iter().any(|claimed| claimed))
    }

    /// Marks of the host that claimed the newest epoch behind ours, once it has left a label. A
    /// hint.
    pub fn later_owner(&self) -> Result<Option<LaterOwner>, Error> {
        let epoch = self.epoch();
        let found = self.ask_stores(&[], |store| store.later_owner(epoch))?;
        Ok(found.into_iter().flatten().max_by_key(|owner| owner.epoch))
    }

    /// True if the owner of an epoch may have deleted roots on a device of whole objects.
    pub fn is_pruned(&self, epoch: u64) -> Result<bool, Error> {
        Ok(self.ask_stores(&[], |store| store.is_pruned(epoch))?.into_iter().any(|pruned| pruned))
    }

    /// True if a device of whole objects has the root of a txg, written in an epoch.
    pub fn has_root(&self, epoch: u64, txg: Txg) -> Result<bool, Error> {
        Ok(self.ask_stores(&[], |store| store.has_root(epoch, txg))?.into_iter().any(|found| found))
    }
}
