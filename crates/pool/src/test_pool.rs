//! A small pool in a world without tasks, for tests that look inside.

use std::sync::Arc;

use steadfast_device::{Device, MemoryDevice};
use steadfast_env::Env;
use steadfast_property::Local;

use crate::{AnchorWish, CreateSpec, DeviceHandle, GroupHandles, Memory, Pool};

/// A pool of one device.
pub(crate) fn tank() -> Pool {
    let device = Arc::new(MemoryDevice::new("a", 128 << 20));
    let handle = DeviceHandle { path: "a".into(), device: device as Arc<dyn Device> };
    let spec = CreateSpec {
        name: "tank".into(),
        groups: GroupHandles::alone(vec![handle]),
        ashift: 12,
        force: false,
        pool_props: Local::new(),
        root_props: Local::new(),
        key: None,
        anchor: AnchorWish::default(),
        host: "host".into(),
        memory: Memory::default(),
    };
    Pool::create(&Env::simulated(1), spec).expect("a pool")
}
