//! A small pool in a world without tasks, for tests that look inside.

use std::sync::Arc;

use steadfast_device::{Device, MemoryDevice};
use steadfast_env::Env;
use steadfast_property::Local;

use crate::{AnchorWish, CreateSpec, DeviceHandle, GroupHandles, Memory, Pool};

/// A pool of one device.
pub(crate) fn tank() -> Pool {
    tank_on(&Env::simulated(1), &Arc::new(MemoryDevice::new("a", 128 << 20)))
}

/// A device as pools are given it.
pub(crate) fn handle(device: &Arc<MemoryDevice>) -> DeviceHandle {
    DeviceHandle { path: "a".into(), device: Arc::clone(device) as Arc<dyn Device> }
}

/// A pool of this device.
pub(crate) fn tank_on(env: &Env, device: &Arc<MemoryDevice>) -> Pool {
    tank_of(env, handle(device))
}

/// A pool of a device of any kind.
pub(crate) fn tank_of(env: &Env, device: DeviceHandle) -> Pool {
    let spec = CreateSpec {
        name: "tank".into(),
        groups: GroupHandles::alone(vec![device]),
        ashift: 12,
        force: false,
        pool_props: Local::new(),
        root_props: Local::new(),
        key: None,
        aux: Default::default(),
        anchor: AnchorWish::default(),
        host: "host".into(),
        memory: Memory::default(),
    };
    Pool::create(env, spec).expect("a pool")
}
