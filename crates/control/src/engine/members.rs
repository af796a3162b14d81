//! Devices of a pool, found by the name that the operator typed.

use crate::engine::devices;
use crate::engine::reports::groups::{group_name, log_mirrors};
use crate::engine::state::{Engine, ImportedPool};
use crate::refusal::Refusal;
use crate::stores;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadfast_device::{Device, FileDevice, Medium, OpenOptions, Operation};
use steadfast_pool::PoolStatus;

impl Engine {
    /// The pool's path of a device, which the operator may know by another path.
    pub(super) fn member(held: &ImportedPool, pool: &str, device: &Path) -> Result<String, Refusal> {
        let leaves = held.pool.state().leaves;
        let numbered = leaves.iter().find(|leaf| is_number(device, leaf.config.guid));
        if let Some(leaf) = numbered {
            return Ok(leaf.config.path.clone());
        }
        Engine::among(leaves.iter().map(|leaf| leaf.config.path.as_str()), pool, device)
    }

    /// The same for data and log devices.
    pub(super) fn member_or_log(held: &ImportedPool, pool: &str, device: &Path) -> Result<String, Refusal> {
        let state = held.pool.state();
        let leaf = state.leaves.iter().find(|leaf| is_number(device, leaf.config.guid));
        let log = state.log_devices.iter().find(|log| is_number(device, log.guid));
        if let Some(path) = leaf.map(|leaf| &leaf.config.path).or(log.map(|log| &log.path)) {
            return Ok(path.clone());
        }
        let leaves = state.leaves.iter().map(|leaf| leaf.config.path.as_str());
        let logs = state.log_devices.iter().map(|log| log.path.as_str());
        Engine::among(leaves.chain(logs), pool, device)
    }

    /// The same for data, log and cache devices.
    pub(super) fn member_log_or_cache(
        held: &ImportedPool,
        pool: &str,
        device: &Path,
    ) -> Result<String, Refusal> {
        Engine::member_or_log(held, pool, device).or_else(|refusal| {
            let caches = held.pool.state().caches;
            if let Some(cache) = caches.iter().find(|cache| is_number(device, cache.guid)) {
                return Ok(cache.path.clone());
            }
            Engine::among(caches.iter().map(|cache| cache.path.as_str()), pool, device).map_err(|_| refusal)
        })
    }

    /// The same among these paths.
    pub(super) fn among<'a>(
        paths: impl Iterator<Item = &'a str> + Clone,
        pool: &str,
        device: &Path,
    ) -> Result<String, Refusal> {
        let named = |path: &str| Path::new(path) == device;
        let same =
            |path: &str| Medium::of(Path::new(path)).is_some_and(|medium| Medium::of(device) == Some(medium));
        // As status prints disks: without their folder.
        let short = |path: &str| {
            path.starts_with("/dev/") && !device.exists() && Path::new(path).file_name() == device.file_name()
        };
        let found = paths.clone().find(|path| named(path)).or_else(|| paths.clone().find(|path| same(path)));
        let found = found.or_else(|| paths.clone().find(|path| short(path)));
        found.map(str::to_owned).ok_or_else(|| Refusal::no_device(pool, device.display()))
    }
}

/// True if the operator typed a device's GUID.
fn is_number(device: &Path, guid: u64) -> bool {
    guid != 0 && device.file_name().and_then(|name| name.to_str()) == Some(&*guid.to_string())
}

/// The pool's paths of devices.
pub(super) fn members(held: &ImportedPool, pool: &str, devices: &[PathBuf]) -> Result<Vec<String>, Refusal> {
    devices.iter().map(|device| Engine::member(held, pool, device)).collect()
}

/// The same for data and log devices.
pub(super) fn members_or_logs(
    held: &ImportedPool,
    pool: &str,
    devices: &[PathBuf],
) -> Result<Vec<String>, Refusal> {
    devices.iter().map(|device| Engine::member_or_log(held, pool, device)).collect()
}

/// A device of the group of this name.
pub(super) fn group_named(state: &PoolStatus, device: &Path) -> Option<String> {
    let word = device.file_name()?.to_str()?;
    let grouped = state.leaves.iter().filter(|leaf| leaf.config.group != 0);
    let mut named = grouped.filter(|leaf| group_name(state, leaf.config.group) == word);
    named.next().map(|leaf| leaf.config.path.clone())
}

/// A device of the log mirror of this name.
pub(super) fn log_named(state: &PoolStatus, device: &Path) -> Option<String> {
    let word = device.file_name()?.to_str()?;
    log_mirrors(state).get(word).map(|sides| sides[0].path.clone())
}

/// Opens the device at a path.
pub(super) fn opener(path: &str) -> impl Fn() -> steadfast_pool::Result<Arc<dyn Device>> {
    move || {
        let path = Path::new(path);
        if !stores::is_address(path) {
            return Ok(Arc::new(FileDevice::open(path, &OpenOptions::WRITE)?) as Arc<dyn Device>);
        }
        devices::open(path, &OpenOptions::WRITE).map(|handle| handle.device).map_err(|refusal| {
            let (device, operation) = (path.display().to_string(), Operation::Open);
            let reason = format!("{}. {}", refusal.what, refusal.action);
            steadfast_device::Error::Store { device, operation, object: String::new(), reason }.into()
        })
    }
}
