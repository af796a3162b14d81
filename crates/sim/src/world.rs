//! A pool of false devices, and files in it.

use std::sync::Arc;

use steadfast_device::Device;
use steadfast_env::{Bug, Env};
use steadfast_pool::{CreateSpec, DatasetHandle, DeviceHandle, Error, ImportSpec, Memory, Pool, scan};
use steadfast_posix::{Atime, FileSystem, Options, Usage};

use crate::disk::Disk;
use crate::log::Log;
use crate::pages::Image;

/// Bytes of each device: the smallest there may be.
pub const DISK_BYTES: u64 = 64 << 20;

const MEMORY: Memory =
    Memory { node_cache_bytes: 8 << 20, block_cache_bytes: 8 << 20, dirty_bytes_max: 64 << 20 };

/// What a pool is like.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Devices.
    pub disks: usize,
    /// Properties of the root dataset.
    pub props: &'static [(&'static str, &'static str)],
}

/// Pools that workloads run on.
pub const SETTINGS: &[Setting] = &[
    Setting { disks: 1, props: &[("recordsize", "16384"), ("journal", "off")] },
    Setting { disks: 2, props: &[("recordsize", "4096"), ("compression", "off"), ("journal", "off")] },
    Setting { disks: 1, props: &[("recordsize", "131072"), ("compression", "zstd"), ("journal", "off")] },
    Setting { disks: 1, props: &[("recordsize", "16384"), ("journal", "ordered")] },
];

/// A world that repeats.
#[must_use]
pub fn env(seed: u64, bug: Option<Bug>) -> Env {
    Env { bug, ..Env::simulated(seed) }
}

/// Devices.
pub struct Disks {
    /// They.
    pub all: Vec<Arc<Disk>>,
    /// What reaches them.
    pub log: Arc<Log>,
}

impl Disks {
    /// Devices that hold images.
    #[must_use]
    pub fn new(images: &[Image]) -> Disks {
        let log = Arc::new(Log::default());
        let disk = |(number, image): (usize, &Image)| Arc::new(Disk::new(number, image.clone(), &log));
        Disks { all: images.iter().enumerate().map(disk).collect(), log }
    }

    /// Handles as a pool wants them.
    #[must_use]
    pub fn handles(&self) -> Vec<DeviceHandle> {
        let handle = |disk: &Arc<Disk>| DeviceHandle {
            path: disk.character().identity,
            device: Arc::clone(disk) as Arc<dyn Device>,
        };
        self.all.iter().map(handle).collect()
    }

    /// What lies on them, all writes applied.
    #[must_use]
    pub fn images(&self) -> Vec<Image> {
        self.all.iter().map(|disk| disk.image()).collect()
    }
}

/// Makes a pool.
///
/// # Errors
/// What the pool says.
pub fn create(env: &Env, disks: &Disks, setting: &Setting) -> Result<Pool, Error> {
    Pool::create(
        env,
        CreateSpec {
            name: "tank".into(),
            devices: disks.handles(),
            ashift: 12,
            force: false,
            pool_props: Default::default(),
            root_props: setting.props.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            key: None,
            anchor: Default::default(),
            host: "sim".into(),
            memory: MEMORY,
        },
    )
}

/// Imports the pool.
///
/// # Errors
/// What the pool says.
pub fn import(env: &Env, disks: &Disks) -> Result<Pool, Error> {
    let (mut pools, mut others) = scan(disks.handles());
    let Some(found) = pools.pop() else { return Err(others.remove(0).1) };
    Pool::import(
        env,
        found,
        &ImportSpec {
            new_name: None,
            force: false,
            destroyed: false,
            read_only: false,
            accept_lost_log: false,
            secret: None,
            anchor: Default::default(),
            host: "sim".into(),
            memory: MEMORY,
        },
    )
}

/// A mounted pool. Parts are dropped in the order in which a crash would not mind.
pub struct Mounted {
    /// Its root dataset.
    pub fs: FileSystem,
    /// Keeps it open.
    pub handle: DatasetHandle,
    /// The pool.
    pub pool: Pool,
}

/// Mounts the root dataset.
///
/// # Errors
/// What the pool says.
pub fn mount(pool: Pool) -> Result<Mounted, Error> {
    let handle = pool.open_dataset("tank")?;
    let options = Options {
        atime: Atime::Off,
        usage: Arc::new(|| Usage { used_bytes: 0, available_bytes: 32 << 20 }),
        block_bytes: 4096,
    };
    let fs = FileSystem::new(Arc::clone(handle.dataset()), options);
    let fs =
        fs.map_err(|errno| Error::Suspended { pool: pool.name(), reason: format!("mount: {errno:?}") })?;
    Ok(Mounted { fs, handle, pool })
}
