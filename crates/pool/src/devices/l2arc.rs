//! Cache devices: they keep copies of blocks that were read from the pool's devices. Nothing on
//! them is ever needed.
//!
//! The labels list one as an auxiliary device. Its slots are a second cache of blocks ([`L2Arc`]),
//! found again after an import. One that is missing, damaged or full of something else is of no
//! use, and of no harm: a block from it is verified like any other.
//!
//! ## Invariants
//! [cache_device.1] Nothing that any root names lies on a cache device, so none is counted, waited
//!      for or flushed by a commit.
//! [cache_device.2] An error of one is trouble of that one alone.
//!      `write_cache_labels`

use crate::core::ranked::{RankedMutex, rank};
use crate::core::state::Core;
use std::sync::Arc;

use steadfast_blockio::{L2Arc, L2ArcCounts};
use steadfast_device::inject::{Injected, Injector};
use steadfast_device::metered::Sample;
use steadfast_device::{Device, Meter, Metered};
use steadfast_env::Env;
use steadfast_format::{AuxClass, AuxConfig, medium};

use crate::core::events::Events;
use crate::devices::probe::FoundPool;

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
    /// Hits and sizes of the cache.
    pub counts: L2ArcCounts,
    /// Operations of the device, if it is here.
    pub sample: Option<Sample>,
    /// Why it is of no use, if it is.
    pub trouble: Option<String>,
    /// Somebody took it out of use.
    pub is_offline: bool,
}

/// A cache device that the labels list, and what it is if it is here.
pub(crate) struct CacheDevice {
    pub guid: u64,
    pub here: Option<Here>,
    pub trouble: RankedMutex<Option<String>, rank::Trouble>,
    /// Somebody took it out of use: nobody has it open.
    pub is_offline: bool,
}

pub(crate) struct Here {
    pub device: Arc<dyn Device>,
    pub meter: Arc<Meter>,
    /// Faults on purpose.
    pub injector: Arc<Injector>,
    pub cache: Arc<L2Arc>,
    pub size_bytes: u64,
}

impl CacheDevice {
    pub fn start(core: &Core, guid: u64, device: Option<Arc<dyn Device>>) -> Arc<CacheDevice> {
        let here = device.map(|device| {
            let injector = Injector::new(Arc::clone(&core.env.clock));
            let device = Arc::new(Injected::new(device, Arc::clone(&injector)));
            let (device, meter) = metered(&core.env, &core.events, device);
            let slots = medium::slot_count(device.character().size_bytes, core.identity.slot_size);
            let shared = Arc::clone(&device);
            let unit = 1 << core.identity.ashift;
            let cache = L2Arc::start(
                &core.env,
                shared,
                (core.identity.guid, guid),
                core.identity.slot_size,
                slots,
                unit,
            );
            Here {
                device,
                meter,
                injector,
                cache,
                size_bytes: u64::from(slots) * u64::from(core.identity.slot_size),
            }
        });
        Arc::new(CacheDevice { guid, here, trouble: RankedMutex::new(None), is_offline: false })
    }

    /// One that somebody took out of use.
    pub fn offline(guid: u64) -> Arc<CacheDevice> {
        Arc::new(CacheDevice { guid, here: None, trouble: RankedMutex::new(None), is_offline: true })
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
        let here = here.filter(|_| !aux.given_up);
        if let Some(here) = here {
            aux.path.clone_from(&here.handle.path);
        }
        (aux.guid, here.map(|here| Arc::clone(&here.handle.device)))
    };
    listed.map(device).collect()
}
