//! One device that holds segments (ZFS: leaf vdev).

use crate::core::error::Result;
use crate::core::events::Events;
use crate::core::ranked::{RankedRwLock, rank};
use std::sync::Arc;
use steadfast_device::Device;
use steadfast_device::Kind;
use steadfast_device::Meter;
use steadfast_device::Metered;
use steadfast_device::inject::Injected;
use steadfast_device::inject::Injector;
use steadfast_env::Env;
use steadfast_format::DeviceId;
use steadfast_format::LeafConfig;
use steadfast_format::LeafState;
use steadfast_por::Covered;

/// One leaf device of an imported pool.
pub(crate) struct Leaf {
    /// As labels list it.
    pub config: RankedRwLock<LeafConfig, rank::LeafConfig>,
    /// Behind its meter.
    pub device: Arc<dyn Device>,
    pub meter: Arc<Meter>,
    /// Faults on purpose.
    pub injector: Arc<Injector>,
    /// The part of `device` that a code may cover, of a store of whole objects: its outermost.
    pub covered: Option<Arc<Covered>>,
}

impl Leaf {
    pub fn new(config: LeafConfig, device: Arc<dyn Device>, env: &Env, events: &Arc<Events>) -> Leaf {
        Leaf::with_injector(config, device, env, events, Injector::new(Arc::clone(&env.clock)))
    }

    /// The same for a device that is opened anew: what was injected stays in force.
    pub fn with_injector(
        config: LeafConfig,
        device: Arc<dyn Device>,
        env: &Env,
        events: &Arc<Events>,
        injector: Arc<Injector>,
    ) -> Leaf {
        let device = Arc::new(Injected::new(device, Arc::clone(&injector)));
        let ear = Arc::clone(events);
        let on_error = Box::new(move |error: &steadfast_device::Error| ear.device_failed(error));
        let (metered, meter) = Metered::new(device, Arc::clone(&env.clock), on_error);
        let metered = metered.with_wait(Arc::clone(&events.wait), config.id);
        let metered: Arc<dyn Device> = Arc::new(metered);
        // Outermost: what the store fails to read, and the journal has, is counted as its error.
        let covered = metered.objects().is_some().then(|| Arc::new(Covered::new(Arc::clone(&metered))));
        let device = covered.clone().map_or(metered, |covered| covered as Arc<dyn Device>);
        Leaf { config: RankedRwLock::new(config), device, meter, injector, covered }
    }

    pub fn config(&self) -> LeafConfig {
        self.config.read().clone()
    }

    pub fn id(&self) -> DeviceId {
        self.config.read().id
    }

    pub fn path(&self) -> String {
        self.config.read().path.clone()
    }

    /// The device, if it is written and read.
    pub fn in_use(&self) -> Option<Arc<dyn Device>> {
        let state = self.config.read().state;
        let is_there = self.device.character().kind != Kind::Missing;
        (is_there && matches!(state, LeafState::Online | LeafState::Leaving))
            .then(|| Arc::clone(&self.device))
    }

    /// Zeros all uberblock slots and labels.
    pub fn erase_rings(&self) -> Result<()> {
        crate::devices::probe::erase(&*self.device)?;
        Ok(())
    }
}
