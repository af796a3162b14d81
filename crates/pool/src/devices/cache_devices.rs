//! Cache devices come and go, and are labelled.

use crate::core::error::Error;
use crate::core::error::Result;
use crate::devices::groups::DeviceHandle;
use crate::devices::l2arc::CacheDevice;
use crate::devices::l2arc::CacheDeviceStatus;
use crate::devices::l2arc::FEATURE;
use crate::devices::offline::Offline;
use crate::devices::probe::{erase, give_back};
use crate::devices::state::Devices;
use std::sync::Arc;
use steadfast_device::Device;
use steadfast_device::Presence;
use steadfast_device::inject::Injector;
use steadfast_format::AuxClass;
use steadfast_format::AuxConfig;
use steadfast_format::Feature;
use steadfast_format::LabelConfig;
use steadfast_format::PoolState;
use steadfast_format::Txg;

impl Devices {
    fn listed_caches(&self) -> Vec<AuxConfig> {
        self.aux.listed.read().iter().filter(|aux| aux.class == AuxClass::Cache).cloned().collect()
    }

    /// Begins to use cache devices that import found. A pool that is read only writes to none.
    pub(crate) fn begin_caches(&self, found: Vec<(u64, Option<Arc<dyn Device>>)>) {
        let listed = self.listed_caches();
        let is_offline = |guid| listed.iter().any(|aux| aux.guid == guid && aux.given_up);
        let start = |(guid, device): (u64, Option<Arc<dyn Device>>)| match is_offline(guid) {
            true => CacheDevice::offline(guid),
            false => CacheDevice::start(&self.core, guid, device.filter(|_| !self.core.health.read_only)),
        };
        if found.is_empty() {
            return;
        }
        *self.aux.caches.write() = found.into_iter().map(start).collect();
        // Their labels say with the next commit what those of the others say.
        self.labels_due.mark();
        self.use_caches();
    }

    /// Readers use the cache devices that there are now.
    pub(crate) fn use_caches(&self) {
        let here = |cache: &Arc<CacheDevice>| cache.here.as_ref().map(|here| Arc::clone(&here.cache));
        self.core.blockio.set_l2arc(self.aux.caches.read().iter().filter_map(here).collect());
    }

    /// Lists new cache devices in memory; the next labels say so, and [`Self::use_caches`] begins
    /// to use them.
    pub(crate) fn list_caches(&self, handles: Vec<DeviceHandle>) -> Vec<Arc<CacheDevice>> {
        let mut new = Vec::new();
        for DeviceHandle { path, device } in handles {
            let guid = self.core.env.random.nonzero_u64();
            self.aux.listed.write().push(AuxConfig::new(AuxClass::Cache, guid, path));
            let cache = CacheDevice::start(&self.core, guid, Some(device));
            self.aux.caches.write().push(Arc::clone(&cache));
            new.push(cache);
        }
        if !new.is_empty() && !self.core.has_feature(FEATURE) {
            self.core.features.write().extend(Feature::known(FEATURE));
        }
        new
    }

    /// Adds devices that keep what was read from others. With `dry_run` only says whether it would.
    /// Devices that carry a pool are refused unless `force`. Durable when it returns.
    pub fn add_caches(&self, handles: Vec<DeviceHandle>, force: bool, dry_run: bool) -> Result<()> {
        self.check_new_aux(&handles, force)?;
        if dry_run {
            return Ok(());
        }
        // All of them before the first is listed.
        handles.iter().try_for_each(|handle| erase(&*handle.device))?;
        let _turn = self.core.sync_turn.lock();
        let before = (self.aux.listed.read().clone(), self.core.features.read().clone());
        let new = self.list_caches(handles);
        let written = self.write_labels_or(&[], || {
            (*self.aux.listed.write(), *self.core.features.write()) = before;
            self.aux.caches.write().retain(|cache| !new.iter().any(|other| other.guid == cache.guid));
            for cache in &new {
                cache.here.iter().for_each(|here| give_back(&*here.device));
                cache.release();
            }
        });
        self.use_caches();
        written
    }

    /// Takes a cache device away, by its path. Durable when it returns.
    pub fn remove_cache(&self, path: &str) -> Result<()> {
        self.core.check_writable()?;
        let _turn = self.core.sync_turn.lock();
        let listed = self.listed_caches().into_iter().find(|aux| aux.path == path);
        let Some(aux) = listed else {
            return Err(Error::ForeignDevice { path: path.to_owned(), pool: self.core.name() });
        };
        let before = (self.aux.listed.read().clone(), self.core.features.read().clone());
        self.aux.listed.write().retain(|other| other.guid != aux.guid);
        let gone = {
            let mut caches = self.aux.caches.write();
            let at = caches.iter().position(|cache| cache.guid == aux.guid);
            at.map(|at| caches.remove(at))
        };
        self.use_caches();
        if self.listed_caches().is_empty() {
            self.core.features.write().retain(|feature| feature.name != FEATURE);
        }
        self.write_labels_or(&[], || {
            (*self.aux.listed.write(), *self.core.features.write()) = before;
            self.aux.caches.write().extend(gone.clone());
            self.use_caches();
        })?;
        if let Some(cache) = gone {
            if let Some(here) = &cache.here {
                here.cache.stop_using();
                // It belongs to nobody now; one that cannot be written keeps a label that no pool
                // answers to.
                let _ = erase(&*here.device);
            }
            cache.release();
        }
        Ok(())
    }

    /// The cache device of this path.
    pub(crate) fn cache_named(&self, path: &str) -> Option<AuxConfig> {
        self.listed_caches().into_iter().find(|aux| aux.path == path)
    }

    /// Takes a cache device out of use: nothing is read from it or written to it, and nobody has it
    /// open. Its content stays there. Durable when it returns, unless the next import takes it
    /// into use again.
    pub(crate) fn offline_cache(&self, aux: &AuxConfig, how: Offline) -> Result<()> {
        self.core.check_writable()?;
        let _turn = self.core.sync_turn.lock();
        let known = self.put_cache(CacheDevice::offline(aux.guid), !how.until_import)?;
        if let Some(cache) = known {
            cache.release();
        }
        Ok(())
    }

    /// Takes a cache device into use again, as `open` finds it. True if it was out of use.
    pub(crate) fn online_cache(
        &self,
        aux: &AuxConfig,
        open: &dyn Fn() -> Result<Arc<dyn Device>>,
    ) -> Result<bool> {
        self.core.check_writable()?;
        let _turn = self.core.sync_turn.lock();
        let status = self.caches_status().into_iter().find(|cache| cache.guid == aux.guid);
        if status.is_some_and(|cache| cache.trouble.is_none() && !cache.is_offline) {
            return Ok(false);
        }
        // The one that failed lets go of it.
        let known = self.aux.caches.read().iter().find(|cache| cache.guid == aux.guid).cloned();
        known.iter().for_each(|cache| cache.release());
        let device = open()?;
        let label = crate::devices::probe::label_of(&*device)?;
        if label.pool != self.core.identity.guid || label.device_guid != aux.guid {
            return Err(Error::ForeignDevice { path: aux.path.clone(), pool: self.core.name() });
        }
        self.put_cache(CacheDevice::start(&self.core, aux.guid, Some(device)), false)?;
        Ok(true)
    }

    /// Puts a cache device into the place of the one of its number, with labels that say whether
    /// the pool does without it, and returns what was there. If they cannot be written, nothing
    /// changes. The caller has the turn of commits.
    fn put_cache(&self, new: Arc<CacheDevice>, given_up: bool) -> Result<Option<Arc<CacheDevice>>> {
        let swap = |cache: &Arc<CacheDevice>| {
            let mut caches = self.aux.caches.write();
            let place = caches.iter_mut().find(|other| other.guid == cache.guid);
            place.map(|place| std::mem::replace(place, Arc::clone(cache)))
        };
        let before = self.aux.listed.read().clone();
        for aux in self.aux.listed.write().iter_mut().filter(|aux| aux.guid == new.guid) {
            aux.given_up = given_up;
        }
        let known = swap(&new);
        self.use_caches();
        self.write_labels_or(&[], || {
            *self.aux.listed.write() = before;
            let _ = known.as_ref().and_then(swap);
            new.release();
            self.use_caches();
        })?;
        Ok(known)
    }

    /// Fault injectors of the cache devices that are here, by path.
    pub(crate) fn cache_injectors(&self) -> Vec<(String, Arc<Injector>)> {
        let caches = self.aux.caches.read().clone();
        let of = |aux: AuxConfig| {
            let cache = caches.iter().find(|cache| cache.guid == aux.guid)?;
            Some((aux.path, Arc::clone(&cache.here.as_ref()?.injector)))
        };
        self.listed_caches().into_iter().filter_map(of).collect()
    }

    /// Cache devices as status shows them.
    pub(crate) fn caches_status(&self) -> Vec<CacheDeviceStatus> {
        let status = |aux: AuxConfig| {
            let known = self.aux.caches.read().iter().find(|cache| cache.guid == aux.guid).cloned();
            let here = known.as_ref().and_then(|cache| cache.here.as_ref());
            let written = known.as_ref().and_then(|cache| cache.trouble.lock().clone());
            let failed = here.is_some_and(|here| here.cache.has_failed());
            let gone = here.is_none_or(|here| here.device.presence() != Presence::Whole);
            let is_offline = known.as_ref().is_some_and(|cache| cache.is_offline);
            let trouble = match (written, failed, gone) {
                _ if is_offline => None,
                (Some(trouble), ..) => Some(trouble),
                (None, true, _) => Some("could not be written".to_owned()),
                (None, false, true) if self.core.health.read_only => {
                    Some("is not used by a pool that is read only".to_owned())
                }
                (None, false, true) => Some("is not here".to_owned()),
                (None, false, false) => None,
            };
            CacheDeviceStatus {
                path: aux.path,
                guid: aux.guid,
                size_bytes: here.map_or(0, |here| here.size_bytes),
                counts: here.map(|here| here.cache.counts()).unwrap_or_default(),
                sample: here.map(|here| here.meter.sample()),
                trouble,
                is_offline,
            }
        };
        self.listed_caches().into_iter().map(status).collect()
    }

    /// Writes two copies of the labels of cache devices [cache_device.2].
    pub(crate) fn write_cache_labels(&self, copies: [usize; 2], state: PoolState, txg: Txg) {
        let caches: Vec<Arc<CacheDevice>> = self.aux.caches.read().clone();
        for cache in caches.iter().filter(|cache| cache.trouble.lock().is_none()) {
            let Some(here) = &cache.here else { continue };
            if let Err(reason) = self.write_aux_label(cache.guid, &*here.device, copies, state, txg) {
                *cache.trouble.lock() = Some(reason);
            }
        }
    }

    /// Writes two copies of the label of an auxiliary device.
    pub(crate) fn write_aux_label(
        &self,
        guid: u64,
        device: &dyn Device,
        copies: [usize; 2],
        state: PoolState,
        txg: Txg,
    ) -> std::result::Result<(), String> {
        let Some(leaf) = self.leaves().into_iter().next() else { return Ok(()) };
        let own = steadfast_format::DeviceId(0);
        let label = LabelConfig { device: own, device_guid: guid, ..self.label_of(&leaf, state, txg) };
        let Some(label) = label.encode(steadfast_crypto::hash) else { return Ok(()) };
        let written = copies.iter().try_for_each(|copy| device.write_label(*copy, &label));
        written.and_then(|()| device.flush()).map_err(|error| error.to_string())
    }
}
