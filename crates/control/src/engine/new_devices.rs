//! Opening devices that are to become part of a pool.

use crate::api::VdevSpec;
use crate::engine::devices;
use crate::engine::state::Engine;
use crate::refusal::{Code, Refusal};
use crate::stores;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use steadfast_device::{Medium, OpenOptions};
use steadfast_pool::DeviceHandle;

/// The refusal of a device that a command names by two paths.
pub(super) fn listed_twice(path: &Path) -> Refusal {
    let what = format!("the device {} is listed twice under two paths", path.display());
    Refusal::new(Code::VdevTwice, what).with("device", path.display())
}

impl Engine {
    /// Opens new devices. Refuses devices that are listed twice, in use, or hold other data.
    pub(super) fn open_new(
        &self,
        vdevs: &[VdevSpec],
        force: bool,
    ) -> Result<(Vec<PathBuf>, Vec<DeviceHandle>), Refusal> {
        let paths: Vec<PathBuf> = vdevs.iter().flat_map(|vdev| vdev.devices.clone()).collect();
        let mut media = BTreeSet::new();
        for path in &paths {
            // Before any is opened: the lock on the first would make the second one look used.
            if let Some(medium) = Medium::of(path)
                && !media.insert(medium)
            {
                return Err(listed_twice(path));
            }
        }
        let mut handles = Vec::new();
        for path in &paths {
            handles.push(
                devices::open_new(path, &OpenOptions::WRITE)
                    .map_err(|refusal| self.name_user(path, refusal))?,
            );
            devices::check_contents(path, force)?;
        }
        // The name of a store has no wish of a capacity in it.
        let named = |(path, handle): (PathBuf, &DeviceHandle)| match stores::is_address(&path) {
            true => PathBuf::from(&handle.path),
            false => path,
        };
        Ok((paths.into_iter().zip(&handles).map(named).collect(), handles))
    }

    /// Names the pool that uses a device, if the device is in use by one of ours.
    pub(super) fn name_user(&self, path: &Path, refusal: Refusal) -> Refusal {
        let Some(medium) = Medium::of(path).filter(|_| refusal.code == Code::VdevInUse) else {
            return refusal;
        };
        for (name, held) in self.pools.read().iter() {
            if held.devices.read().iter().any(|device| Medium::of(device) == Some(medium)) {
                let what = format!("the device {} is in use by the imported pool '{name}'", path.display());
                return Refusal::new(Code::VdevInUse, what).with("device", path.display()).with("pool", name);
            }
        }
        refusal
    }
}
