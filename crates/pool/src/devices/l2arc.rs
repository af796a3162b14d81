//! Cache devices: they keep what was read from the pool's devices, and nothing on them is ever needed.
//!
//! The labels list one as an auxiliary device. Its slots are a second cache of blocks ([`L2Arc`]), empty at every import. One that is
//! missing, damaged or full of something else is of no use, and of no harm: what is read from it is judged like everything else.
//!
//! ## Invariants
//! (Z1) Nothing that any root names lies on a cache device, so none is counted, waited for or flushed by a commit.
//! (Z2) What fails of one is trouble of that one alone.                                   `Inner::write_cache_labels`

use std::sync::Arc;

use parking_lot::Mutex;
use steadfast_blockio::{L2Arc, L2ArcCounts};
use steadfast_device::inject::{Injected, Injector};
use steadfast_device::metered::Sample;
use steadfast_device::{Device, Meter, Metered, Presence};
use steadfast_env::Env;
use steadfast_format::{AuxClass, AuxConfig, Feature, LabelConfig, PoolState, Txg, medium};

use crate::core::error::{Error, Result};
use crate::core::events::Events;
use crate::core::inner::Inner;
use crate::devices::grow::give_back;
use crate::import::create::DeviceHandle;
use crate::import::scan::FoundPool;

/// Name of the feature.
pub(crate) const FEATURE: &str = "cache_devices";

/// A cache device as status shows it.
#[derive(Clone, Debug)]
pub struct CacheDeviceStatus {
    /// Path by which it was last opened.
    pub path: String,
    /// Random name.
    pub guid: u64,
    /// Bytes that blocks can fill; 0 if it is not here.
    pub size_bytes: u64,
    /// What it did as a cache.
    pub counts: L2ArcCounts,
    /// What was asked of it as a device, if it is here.
    pub sample: Option<Sample>,
    /// Why it is of no use, if it is.
    pub trouble: Option<String>,
}

/// A cache device that the labels list, and what it is if it is here.
pub(crate) struct CacheDevice {
    guid: u64,
    here: Option<Here>,
    trouble: Mutex<Option<String>>,
}

struct Here {
    device: Arc<dyn Device>,
    meter: Arc<Meter>,
    /// Faults on purpose.
    injector: Arc<Injector>,
    cache: Arc<L2Arc>,
    size_bytes: u64,
}

impl CacheDevice {
    fn start(inner: &Inner, guid: u64, device: Option<Arc<dyn Device>>) -> Arc<CacheDevice> {
        let here = device.map(|device| {
            let injector = Injector::new(Arc::clone(&inner.env.clock));
            let device = Arc::new(Injected::new(device, Arc::clone(&injector)));
            let (device, meter) = metered(&inner.env, &inner.events, device);
            let slots = medium::slot_count(device.character().size_bytes, inner.slot_size);
            let shared = Arc::clone(&device);
            let unit = 1 << inner.ashift;
            let cache = L2Arc::start(&inner.env, shared, inner.slot_size, slots, unit);
            Here { device, meter, injector, cache, size_bytes: u64::from(slots) * u64::from(inner.slot_size) }
        });
        Arc::new(CacheDevice { guid, here, trouble: Mutex::new(None) })
    }

    /// Lets others have it.
    pub fn release(&self) {
        if let Some(here) = &self.here {
            here.cache.stop();
            here.device.release();
        }
    }
}

fn metered(env: &Env, events: &Arc<Events>, device: Arc<dyn Device>) -> (Arc<dyn Device>, Arc<Meter>) {
    let ear = Arc::clone(events);
    let on_error = Box::new(move |error: &steadfast_device::Error| ear.device_failed(error));
    let (metered, meter) = Metered::new(device, Arc::clone(&env.clock), on_error);
    (Arc::new(metered), meter)
}

/// Cache devices that a pool's labels list, with those that are here; paths are put right in `aux`.
pub(crate) fn find(found: &FoundPool, aux: &mut [AuxConfig]) -> Vec<(u64, Option<Arc<dyn Device>>)> {
    let listed = aux.iter_mut().filter(|aux| aux.class == AuxClass::Cache);
    let device = |aux: &mut AuxConfig| {
        let here = found.devices.iter().find(|device| device.label.device_guid == aux.guid);
        if let Some(here) = here {
            aux.path.clone_from(&here.handle.path);
        }
        (aux.guid, here.map(|here| Arc::clone(&here.handle.device)))
    };
    listed.map(device).collect()
}

impl Inner {
    fn listed_caches(&self) -> Vec<AuxConfig> {
        self.aux.read().iter().filter(|aux| aux.class == AuxClass::Cache).cloned().collect()
    }

    /// Begins to use cache devices that import found. A pool that is read only writes to none.
    pub(crate) fn begin_caches(&self, found: Vec<(u64, Option<Arc<dyn Device>>)>) {
        let start = |(guid, device): (u64, Option<Arc<dyn Device>>)| {
            CacheDevice::start(self, guid, device.filter(|_| !self.read_only))
        };
        if found.is_empty() {
            return;
        }
        *self.caches.write() = found.into_iter().map(start).collect();
        // Their labels say with the next commit what those of the others say.
        self.commit_state.lock().labels_dirty = true;
        self.use_caches();
    }

    /// Readers use the cache devices that there are now.
    fn use_caches(&self) {
        let here = |cache: &Arc<CacheDevice>| cache.here.as_ref().map(|here| Arc::clone(&here.cache));
        self.blockio.set_l2arc(self.caches.read().iter().filter_map(here).collect());
    }

    /// Adds cache devices, which lose what they held. With `dry_run` only says whether it would. Durable when it returns.
    pub(crate) fn add_caches(&self, handles: Vec<DeviceHandle>, force: bool, dry_run: bool) -> Result<()> {
        self.check_new_aux(&handles, force)?;
        if dry_run {
            return Ok(());
        }
        // All of them before the first is listed.
        handles.iter().try_for_each(|handle| crate::import::scan::erase(&*handle.device))?;
        let _turn = self.sync_turn.lock();
        let before = (self.aux.read().clone(), self.features.read().clone());
        let mut new = Vec::new();
        for DeviceHandle { path, device } in handles {
            let guid = self.env.random.nonzero_u64();
            let class = AuxClass::Cache;
            self.aux.write().push(AuxConfig::new(class, guid, path));
            let cache = CacheDevice::start(self, guid, Some(device));
            self.caches.write().push(Arc::clone(&cache));
            new.push(cache);
        }
        if !self.has_feature(FEATURE) {
            self.features.write().extend(Feature::known(FEATURE));
        }
        let written = self.write_labels_or(&[], || {
            (*self.aux.write(), *self.features.write()) = before;
            self.caches.write().retain(|cache| !new.iter().any(|other| other.guid == cache.guid));
            for cache in &new {
                cache.here.iter().for_each(|here| give_back(&*here.device));
                cache.release();
            }
        });
        self.use_caches();
        written
    }

    /// Takes a cache device away. Durable when it returns.
    pub(crate) fn remove_cache(&self, path: &str) -> Result<()> {
        self.check_writable()?;
        let _turn = self.sync_turn.lock();
        let listed = self.listed_caches().into_iter().find(|aux| aux.path == path);
        let Some(aux) = listed else {
            return Err(Error::ForeignDevice { path: path.to_owned(), pool: self.name() });
        };
        let before = (self.aux.read().clone(), self.features.read().clone());
        self.aux.write().retain(|other| other.guid != aux.guid);
        let gone = {
            let mut caches = self.caches.write();
            let at = caches.iter().position(|cache| cache.guid == aux.guid);
            at.map(|at| caches.remove(at))
        };
        self.use_caches();
        if self.listed_caches().is_empty() {
            self.features.write().retain(|feature| feature.name != FEATURE);
        }
        self.write_labels_or(&[], || {
            (*self.aux.write(), *self.features.write()) = before;
            self.caches.write().extend(gone.clone());
            self.use_caches();
        })?;
        if let Some(cache) = gone {
            if let Some(here) = &cache.here {
                here.cache.stop_using();
                // It belongs to nobody now; one that cannot be written keeps a label that no pool answers to.
                let _ = crate::import::scan::erase(&*here.device);
            }
            cache.release();
        }
        Ok(())
    }

    /// What stands before each cache device that is here, by its path.
    pub(crate) fn cache_injectors(&self) -> Vec<(String, Arc<Injector>)> {
        let caches = self.caches.read().clone();
        let of = |aux: AuxConfig| {
            let cache = caches.iter().find(|cache| cache.guid == aux.guid)?;
            Some((aux.path, Arc::clone(&cache.here.as_ref()?.injector)))
        };
        self.listed_caches().into_iter().filter_map(of).collect()
    }

    /// Cache devices as status shows them.
    pub(crate) fn caches_status(&self) -> Vec<CacheDeviceStatus> {
        let status = |aux: AuxConfig| {
            let known = self.caches.read().iter().find(|cache| cache.guid == aux.guid).cloned();
            let here = known.as_ref().and_then(|cache| cache.here.as_ref());
            let written = known.as_ref().and_then(|cache| cache.trouble.lock().clone());
            let failed = here.is_some_and(|here| here.cache.has_failed());
            let gone = here.is_none_or(|here| here.device.presence() != Presence::Whole);
            let trouble = match (written, failed, gone) {
                (Some(trouble), ..) => Some(trouble),
                (None, true, _) => Some("could not be written".to_owned()),
                (None, false, true) if self.read_only => {
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
            }
        };
        self.listed_caches().into_iter().map(status).collect()
    }

    /// Writes two copies of the labels of cache devices (Z2).
    pub(crate) fn write_cache_labels(&self, copies: [usize; 2], state: PoolState, txg: Txg) {
        let caches: Vec<Arc<CacheDevice>> = self.caches.read().clone();
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
